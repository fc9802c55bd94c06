//! `codex-shim drift`: the effect of another version of codex on the clients on record.

mod played;
pub(super) mod schemas;
mod scratch;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use self::schemas::{Keeping, Known};
use super::offline::{self, Read};
use super::progress::Progress;
use super::requests::print_json;
use super::screen::{self, Clock, Screen, Times, Tone, counted};
use super::select_session;
use super::since::{Since, SinceFlag};
use super::{CliError, Done, FAILED, say};
use crate::api::{ClientUsesQuery, Moment};
use crate::config::{Environment, Flags, Settings};
use crate::drift::{Finding, FindingKind, Uses, findings, unknown_to_us, with_played};
use crate::hub::process::{self, ServerProcess};
use crate::relay::locate::{self, Codex};
use crate::store::Found;
use crate::text::plain;

/// The period without `--since`.
const PERIOD: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Tell what another version of codex breaks
///
/// Compares what each client on record really uses of codex, its calls, their members and constants, and how it answers requests, with
/// the protocol of another codex. That codex only writes its schema, without a server and without the network.
///
/// With --replay, both programs also get the last conversation of each client again. They have folders of their own, no account and no
/// network, and a scripted model that repeats the words of the recorded one and runs none of its commands.
///
/// Without --codex it is about the codex that codex-shim runs, compared with the one before. For that, `drift` and `hub start` keep the
/// protocol of each version in use.
#[derive(Debug, Args)]
#[command(after_long_help = "\
REJECTED is a method or a value that the other codex refuses, or a member that
it needs: the call fails, or never ends when it is played. UNANSWERED is a
request that only the other codex makes, and CHANGED a result that lacks a
member or has another type, or a message that comes no more: that matters if
the client is asked, or reads it. IGNORED is a member without effect. UNKNOWN TO
US is a method that codex-shim itself does not know.

Exit status: 0 if no call fails, 1 if one does or if a session cannot be read,
or 2 if the other codex cannot be asked.

Examples:
  codex-shim drift
  codex-shim drift --codex ~/new/node_modules/.bin/codex
  codex-shim drift --codex ~/new/node_modules/.bin/codex --replay
  codex-shim drift --codex 0.171.0 --client codex-tui --since 7d
  codex-shim drift --json | jq '.findings[] | select(.kind == \"rejected\")'")]
pub(super) struct DriftArguments {
    /// The other codex: a program, or a version that was seen before
    #[arg(long, value_name = "PATH|VERSION")]
    codex: Option<String>,
    /// Only this client
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    #[command(flatten)]
    since: SinceFlag,
    /// Also play the last conversation of each client, or these tapes
    #[arg(long, value_name = "TAPE", num_args = 0..)]
    replay: Option<Vec<PathBuf>>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    times: Times,
}

/// The two protocols.
struct Compared {
    from: Option<Known>,
    to: Known,
    /// Their programs, as far as these are known.
    from_program: Option<Codex>,
    to_program: Option<Codex>,
}

/// Prints the report.
pub(super) fn run(arguments: &DriftArguments, environment: &Environment) -> Done {
    let (settings, _) = Settings::load(Flags::default(), environment);
    let compared = compared(arguments.codex.as_deref(), &settings, environment)?;
    let (uses, worst) = uses(arguments, environment)?;
    let from = compared.from.as_ref();
    let mut found = findings(&uses, from.map(|from| &from.schema), &compared.to.schema);
    if let Some(tapes) = &arguments.replay {
        let since = arguments.since.get().unwrap_or_else(|| Since::ago(PERIOD));
        let played = played::findings(tapes, arguments.client.as_deref(), since, &compared, environment)?;
        found = with_played(found, played);
    }
    found.extend(unknown_to_us(from.map(|from| &from.schema), &compared.to.schema));
    let status = if found.iter().any(Finding::breaks) { FAILED } else { worst };
    if arguments.json {
        let from = from.map(|from| &from.version);
        return Ok(status.max(print_json(&json!({ "from": from, "to": compared.to.version, "findings": found }))));
    }
    let clock = Clock::of(&arguments.times);
    if uses.is_empty() && arguments.replay.is_none() {
        say("no client is on record in this period");
    }
    let text = report(&compared, &uses, &found, &clock, Screen::of_stdout(environment));
    Ok(status.max(screen::print(&text)))
}

/// The effect of the codex that codex-shim runs next on the clients on record.
pub(super) struct Outlook {
    compared: Compared,
    found: Vec<Finding>,
    uses: Uses,
}

impl Outlook {
    /// The outlook of a server of this version; `None` if the next codex is the same, or if one of the two is not known. Nothing is
    /// indexed or kept for it.
    pub(super) fn of(server: &str, settings: &Settings, environment: &Environment) -> Option<Outlook> {
        let from = schemas::kept(settings, server)?;
        let codex = locate::codex(settings, environment).ok()?;
        let to = schemas::of_program(settings, &codex, Keeping::Asked).ok().filter(|to| to.version != server)?;
        let query = ClientUsesQuery { since: Some(Moment(Since::ago(PERIOD).micros())) };
        let mut uses = Uses::default();
        for session in select_session::all_quietly(environment).ok()? {
            if let Ok(document) = offline::history_of(&session).client_uses(&query, 0) {
                uses.add(document.uses);
            }
        }
        let found = findings(&uses, Some(&from.schema), &to.schema);
        Some(Outlook {
            compared: Compared { from: Some(from), to, from_program: None, to_program: Some(codex) },
            found,
            uses,
        })
    }

    /// The same for the server of a hub whose codex was replaced since it started, in one line.
    pub(super) fn of_replaced(hub: &Found, version: Option<&str>, environment: &Environment) -> Option<String> {
        process::recorded(&hub.dir).filter(ServerProcess::is_outdated)?;
        let (settings, _) = Settings::load(Flags::default(), environment);
        Some(Outlook::of(version?, &settings, environment)?.in_one_line())
    }

    /// Whether a call of a client is expected to fail.
    pub(super) fn breaks(&self) -> bool {
        self.found.iter().any(Finding::breaks)
    }

    pub(super) fn in_one_line(&self) -> String {
        let broken: BTreeSet<(&str, &str)> =
            self.found.iter().filter(|it| it.breaks()).map(|it| (&*it.client, &*it.version)).collect();
        let expected =
            match counted(broken.len() as u64, "client is expected to break", "clients are expected to break") {
                Some(count) => format!("{count}; see `codex-shim drift`"),
                None if self.uses.is_empty() => {
                    "what it breaks is not known, because no client is on record yet".to_owned()
                }
                None => "no client is expected to break".to_owned(),
            };
        format!("codex {} is next: {expected}", self.compared.to.version)
    }

    /// The whole report, without colours.
    pub(super) fn report(&self) -> String {
        report(&self.compared, &self.uses, &self.found, &Clock::of(&Times::default()), Screen::None)
    }
}

/// Keeps the protocol of a program that a server runs, for the day on which another one has replaced it.
pub(super) fn keep(version: &str, program: PathBuf, settings: &Settings) {
    if schemas::kept(settings, version).is_none()
        && let Err(why) = schemas::of_program(settings, &plain_codex(program), Keeping::Kept)
    {
        tracing::info!(why, "the protocol of codex");
    }
}

fn plain_codex(program: PathBuf) -> Codex {
    Codex { program, path: None, notice: None }
}

/// The last protocol in use that was another one.
fn before(version: &str, settings: &Settings) -> Option<Known> {
    let before = schemas::kept_versions(settings).into_iter().find(|before| before != version)?;
    schemas::kept(settings, &before)
}

fn compared(other: Option<&str>, settings: &Settings, environment: &Environment) -> Result<Compared, CliError> {
    let unusable = |why: String, remedy: &str| CliError::exits(super::USAGE, why).with_remedy(remedy.to_owned());
    let own_program = locate::codex(settings, environment).map_err(|error| error.to_string());
    let own = own_program.as_ref().map_err(Clone::clone);
    let own = own.and_then(|own| schemas::of_program(settings, own, Keeping::Kept));
    let own_program = own_program.ok();
    let Some(other) = other else {
        let to = own.map_err(|why| unusable(why, "name one with --codex"))?;
        let from = before(&to.version, settings);
        return Ok(Compared { from, to, from_program: None, to_program: own_program });
    };
    let is_version = !other.contains('/') && other.starts_with(|char: char| char.is_ascii_digit());
    let (to, to_program) = if is_version {
        let to = schemas::kept(settings, other).ok_or_else(|| {
            let kept = schemas::kept_versions(settings);
            let kept = if kept.is_empty() { "none".to_owned() } else { kept.join(", ") };
            let why = format!("the protocol of codex {other} is not known; known: {kept}");
            let install = format!("install it with `npm install --prefix DIR @openai/codex@{other}`");
            unusable(why, &format!("{install}, and give --codex DIR/node_modules/.bin/codex"))
        })?;
        (to, None)
    } else {
        // A name alone would be looked up on PATH.
        let program = std::path::absolute(other).ok().filter(|program| program.exists());
        let program =
            program.ok_or_else(|| unusable(format!("there is no {other}"), "give --codex a program or a version"))?;
        let program = plain_codex(program);
        let to = schemas::of_program(settings, &program, Keeping::Asked)
            .map_err(|why| unusable(why, "give --codex a codex"))?;
        (to, Some(program))
    };
    let own = own.ok().filter(|own| own.version != to.version);
    let from_program = own_program.filter(|_| own.is_some());
    let from = own.or_else(|| before(&to.version, settings));
    Ok(Compared { from, to, from_program, to_program })
}

/// The uses of clients, and an exit status, which is 1 if a session is unreadable.
fn uses(arguments: &DriftArguments, environment: &Environment) -> Result<(Uses, i32), CliError> {
    let sessions = select_session::listed(None, environment)?;
    let since = arguments.since.get().unwrap_or_else(|| Since::ago(PERIOD));
    let query = ClientUsesQuery { since: Some(Moment(since.micros())) };
    let door = offline::door(environment);
    let progress = Progress::new("reading sessions", sessions.len() as u64);
    let read = select_session::at_once(&sessions, |session| {
        let read = Read::through(door, session.clone()).query_recorded(&query);
        progress.advance(1);
        read
    });
    drop(progress);
    let (mut uses, mut worst) = (Uses::default(), 0);
    for (session, read) in sessions.iter().zip(read) {
        match read {
            Ok(document) => uses.add(document.unwrap_or_default().uses),
            Err(error) if error.code() == "not_found" => {
                let name = session.name();
                say(&format!("what the clients of session {name} use is not known: its relay is of an older version"));
                worst = FAILED;
            }
            Err(error) => worst = worst.max(CliError::from(error).report()),
        }
    }
    if let Some(client) = &arguments.client {
        uses.retain_client(client);
    }
    Ok((uses, worst))
}

fn report(compared: &Compared, uses: &Uses, found: &[Finding], clock: &Clock, screen: Screen) -> String {
    let mut text = String::new();
    let to = &compared.to.version;
    match &compared.from {
        Some(from) => text.push_str(&screen.paint(Tone::Strong, &format!("codex {} → {to}\n", from.version))),
        None => {
            text.push_str(&screen.paint(Tone::Strong, &format!("codex {to}\n")));
            say("no protocol of an earlier codex is known, so only what this one refuses is told");
        }
    }
    // A tape may be of a client that is not on record.
    let of_found = found.iter().filter(|finding| finding.kind != FindingKind::UnknownToUs);
    let of_found = of_found.map(|finding| (&*finding.client, &*finding.version));
    let clients: BTreeSet<(&str, &str)> = uses.clients().chain(of_found).collect();
    for (client, version) in clients {
        let of_client = |finding: &&Finding| finding.client == client && finding.version == version;
        let of_client: Vec<&Finding> = found.iter().filter(of_client).collect();
        text.push_str(&heading(client, version, &of_client, screen));
        of_client.iter().for_each(|finding| text.push_str(&told(finding, clock, screen)));
    }
    let of_ours: Vec<&Finding> = found.iter().filter(|finding| finding.kind == FindingKind::UnknownToUs).collect();
    if !of_ours.is_empty() {
        text.push_str(&screen.paint(Tone::Strong, "\ncodex-shim\n"));
        of_ours.iter().for_each(|finding| text.push_str(&told(finding, clock, screen)));
    }
    screen::fitted(&text, screen::columns(screen))
}

fn heading(client: &str, version: &str, found: &[&Finding], screen: Screen) -> String {
    let name = if client.is_empty() { "a client without a name" } else { client };
    let name = plain(&format!("{name} {version}"));
    let breaks = found.iter().filter(|finding| finding.breaks()).count() as u64;
    let may_break = found.iter().filter(|finding| finding.may_break()).count() as u64;
    let breaks = counted(breaks, "call fails", "calls fail");
    let may_break = counted(may_break, "thing may matter", "things may matter");
    let (tone, verdict) = match (breaks, may_break) {
        (Some(breaks), Some(may_break)) => (Tone::Bad, format!("{breaks}, {may_break}")),
        (Some(breaks), None) => (Tone::Bad, breaks),
        (None, Some(may_break)) => (Tone::Warning, format!("no call fails, {may_break}")),
        (None, None) if found.is_empty() => (Tone::Good, "nothing changes".to_owned()),
        (None, None) => (Tone::Good, "no call fails".to_owned()),
    };
    format!("\n{}: {}\n", screen.paint(Tone::Strong, name.trim_end()), screen.paint(tone, &verdict))
}

fn told(finding: &Finding, clock: &Clock, screen: Screen) -> String {
    let tone = match (finding.breaks(), finding.may_break()) {
        (true, _) => Tone::Bad,
        (false, true) => Tone::Warning,
        (false, false) => Tone::Faint,
    };
    let what = match (&finding.member, &finding.value) {
        (Some(member), Some(value)) => format!("{} {member} = {value}", finding.method),
        (Some(member), None) => format!("{} {member}", finding.method),
        (None, _) => finding.method.clone(),
    };
    let used = match (&finding.last_used_at, finding.count) {
        (Some(at), count) => format!("  {count} ×, last {}", clock.text(at)),
        (None, _) => String::new(),
    };
    let kind = screen.paint(tone, &format!("{:<13}", finding.kind.name().replace('_', " ")));
    format!("  {kind}  {}{}\n{:17}{}\n", plain(&what), screen.paint(Tone::Faint, &used), "", plain(&finding.advice))
}
