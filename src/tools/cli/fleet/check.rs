//! `codex-shim fleet check`: is the server there, and may these credentials do what they should and nothing else.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::super::requests::print_json;
use super::super::screen::{self, Screen, Tone};
use super::super::table::{Column, Table};
use super::super::{CliError, Done, FAILED, say};
use super::{Format, member, not_read};
use crate::config::Environment;
use crate::fleet::{
    ClientError, ConnectError, Keeping, Member, NameFile, Outcome, Permission, Probe, Role, StreamPlan, StreamState,
    in_permissions, plans,
};

/// How long `--set-up` waits for a server that has just been started.
const SERVER_WAIT_MAX: Duration = Duration::from_secs(30);

/// Pause between two attempts to connect.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long two agents with one name are reported after they were noticed.
const OTHERS_FOR: Duration = Duration::from_secs(120);

/// Check the server of the fleet, and what these credentials may do
///
/// It tries what the credentials must be able to do, and what the server must refuse to them. It leaves nothing in a stream.
#[derive(Debug, Args)]
#[command(after_long_help = "\
The administrator's credentials create the streams with --set-up, and change
them to what this version of codex-shim needs.

Exit status: 0, or 1 if a check has failed.

Examples:
  codex-shim fleet check
  codex-shim fleet check --json | jq '.checks[] | select(.ok | not)'
  CODEX_SHIM_FLEET_USER=admin CODEX_SHIM_FLEET_CREDS=admin.nk \\
    codex-shim fleet check --set-up
  codex-shim fleet check --set-up --replicas 3 --keep-days 7")]
pub(in crate::cli) struct CheckArguments {
    /// Create the streams, or change them to what is needed
    #[arg(long)]
    set_up: bool,
    /// Copies of each stream, in a cluster
    #[arg(long, value_name = "N", default_value_t = 1, requires = "set_up", value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: u8,
    /// Days for which events are kept
    #[arg(long, value_name = "DAYS", default_value_t = 14, requires = "set_up", value_parser = clap::value_parser!(u16).range(1..))]
    keep_days: u16,
    #[command(flatten)]
    format: Format,
}

/// The result of one check.
struct Check {
    name: String,
    is_ok: bool,
    detail: String,
}

impl Check {
    fn failed(name: impl Into<String>, why: String) -> Check {
        Check { name: name.into(), is_ok: false, detail: why }
    }

    fn of(name: impl Into<String>, problem: Result<impl Into<String>, String>) -> Check {
        let is_ok = problem.is_ok();
        Check { name: name.into(), is_ok, detail: problem.map_or_else(|why| why, Into::into) }
    }
}

pub(super) fn run(arguments: &CheckArguments, environment: &Environment) -> Done {
    let member = member(environment)?;
    let probe = reached(&member, arguments.set_up)?;
    let keeping = Keeping {
        replicas: arguments.replicas,
        events: Duration::from_secs(24 * 3600 * u64::from(arguments.keep_days)),
    };
    let (role, checks) = probe.block_on(checks(&probe, &member, arguments.set_up, keeping, environment))?;
    let status = if checks.iter().all(|check| check.is_ok) { 0 } else { FAILED };
    if arguments.format.as_json {
        let document = |check: &Check| json!({ "name": check.name, "ok": check.is_ok, "detail": check.detail });
        let document = json!({
            "ok": status == 0,
            "role": name_of(role),
            "checks": checks.iter().map(document).collect::<Vec<_>>(),
        });
        return Ok(status.max(print_json(&document)));
    }
    let to = Screen::of_stdout(environment);
    let columns = vec![Column::whole(""), Column::text("CHECK"), Column::text("DETAIL").spare()];
    let cells = |check: &Check| {
        let (tone, word) = if check.is_ok { (Tone::Good, "ok") } else { (Tone::Bad, "FAILED") };
        vec![(tone, word.to_owned()), (Tone::Plain, check.name.clone()), (Tone::Faint, check.detail.clone())]
    };
    let table = Table::within(columns, to, screen::columns(to)).add(checks.iter().map(cells).collect());
    Ok(status.max(screen::print(&table)))
}

/// Connects. A server that is to be set up may have been started just now.
fn reached(member: &Member, waits: bool) -> Result<Probe, CliError> {
    let began = Instant::now();
    let mut has_told = false;
    loop {
        match Probe::connect(member) {
            Err(ClientError::Connect(error @ ConnectError::NotReached { .. }))
                if waits && began.elapsed() < SERVER_WAIT_MAX =>
            {
                if !has_told {
                    say(&format!("{error}; waiting up to {} s for the server", SERVER_WAIT_MAX.as_secs()));
                    has_told = true;
                }
                std::thread::park_timeout(LOOK_EVERY);
            }
            connected => return connected.map_err(not_read),
        }
    }
}

async fn checks(
    probe: &Probe,
    member: &Member,
    sets_up: bool,
    keeping: Keeping,
    environment: &Environment,
) -> Result<(Role, Vec<Check>), CliError> {
    if sets_up {
        probe.waits_for_jetstream(SERVER_WAIT_MAX).await;
    }
    let role = probe.role().await;
    if sets_up && role != Role::Administrator {
        let message = format!("user {} is not the administrator of this fleet's streams", probe.user);
        return Err(CliError::failed(message).with_remedy("use the administrator's credentials in fleet.creds"));
    }
    let version = probe.version();
    let mut checks = vec![Check::of("the server answers", Ok(format!("{}, nats-server {version}", member.url)))];
    match role {
        Role::Administrator => {
            for plan in plans(keeping) {
                checks.push(stream(probe, &plan, sets_up).await);
            }
        }
        Role::Nobody => {
            let why = with_tokens(strangers(&probe.user), &[&member.host, &probe.user]);
            checks.push(Check::failed("these credentials belong to this fleet", why));
        }
        Role::Host | Role::Operator | Role::Viewer => {
            let name = if role == Role::Host { &member.host } else { &probe.user };
            let whose = with_tokens(format!("{} {name}", name_of(role)), &[name]);
            checks.push(Check::of("these credentials belong to this fleet", Ok(whose)));
            checks.extend(names(probe, member, role, environment).await);
            checks.extend(probe.tries(role).await.into_iter().map(judged));
        }
    }
    Ok((role, checks))
}

async fn stream(probe: &Probe, plan: &StreamPlan, sets_up: bool) -> Check {
    if sets_up && let Err(why) = probe.sets_up(plan, SERVER_WAIT_MAX).await {
        return Check::failed(format!("stream {}", plan.name), why);
    }
    let state = match probe.state(plan).await {
        StreamState::AsPlanned => Ok(if sets_up { "set up" } else { "is there" }),
        StreamState::Missing => Err("it is missing; use --set-up".to_owned()),
        StreamState::Different(member) => Err(format!("its {member} is not what is needed; use --set-up")),
        StreamState::Failed(why) => Err(why),
    };
    Check::of(format!("stream {}", plan.name), state)
}

/// Whether each host has one agent: of all hosts for a console, of its own for a host, which cannot read the others.
async fn names(probe: &Probe, member: &Member, role: Role, environment: &Environment) -> Option<Check> {
    let doubled = match role {
        Role::Host => {
            let home = environment.shim_home().value?;
            let has_others = NameFile::load(&home, &member.host).had_others_within(OTHERS_FOR);
            Ok(Some(member.host.clone()).filter(|_| has_others).into_iter().collect())
        }
        Role::Operator | Role::Viewer => probe.hosts_with_others().await,
        Role::Administrator | Role::Nobody => return None,
    };
    let result = doubled.and_then(|doubled: Vec<String>| match &doubled[..] {
        [] => Ok("no name is used twice"),
        several => {
            let several = screen::plain(&several.join(", "));
            Err(format!("two agents run as {several}; give one of them another name with fleet.host"))
        }
    });
    Some(Check::of("each host has one agent", result))
}

fn judged((rule, name, outcome): (Permission, &str, Outcome)) -> Check {
    let wrong = match (rule, outcome) {
        (Permission::Needed, Outcome::Admitted) => return Check::of(name, Ok("may")),
        (Permission::Forbidden, Outcome::Refused) => return Check::of(name, Ok("refused, as it should be")),
        (_, Outcome::Failed(why)) => why,
        (Permission::Needed, Outcome::Refused) => {
            "the server refuses it; see its configuration in `codex-shim docs fleet`".to_owned()
        }
        (Permission::Needed, Outcome::Nobody) => {
            "no stream takes it; run `fleet check --set-up` as the administrator".to_owned()
        }
        (Permission::Forbidden, Outcome::Admitted | Outcome::Nobody) => {
            "the server admits it; compare its configuration with `codex-shim docs fleet`".to_owned()
        }
    };
    Check::failed(name, wrong)
}

fn strangers(user: &str) -> String {
    format!("the server lets user {user} do nothing of a fleet; check fleet.user, fleet.host and fleet.creds")
}

/// A text about these names, and how the server's permissions write them if that is not as they are.
fn with_tokens(text: String, names: &[&str]) -> String {
    let tokens: Vec<String> = names.iter().filter_map(|name| in_permissions(name)).collect();
    screen::plain(&[vec![text], tokens].concat().join("; "))
}

fn name_of(role: Role) -> &'static str {
    match role {
        Role::Administrator => "administrator",
        Role::Host => "host",
        Role::Operator => "operator",
        Role::Viewer => "viewer",
        Role::Nobody => "none",
    }
}
