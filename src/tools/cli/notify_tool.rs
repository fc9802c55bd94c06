//! `codex-shim notify test`: runs the configured hooks with example documents, in the manner of a relay, and shows what became of them.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::{Value, json};

use super::requests::print_json;
use super::screen::{self, Screen, Tone};
use super::select_session::{self, SessionFlag};
use super::{CliError, Done, FAILED, say};
use crate::api::ThreadIdentityDocument;
use crate::config::{Environment, Flags, Settings};
use crate::engine::{BudgetLimit, RequestType, Spent};
use crate::history::{ThreadClient, ThreadIdentity};
use crate::hub::bypass::Bypass;
use crate::protocol::{Method, ThreadDescription};
use crate::relay::{HookOutcome, HookTried, try_hook};
use crate::store::Otherwise;

#[derive(Debug, Subcommand)]
pub(super) enum NotifyTool {
    Test(NotifyTestArguments),
}

/// Run each configured hook with an example
///
/// The output names the exit status of each hook and shows what it printed. A hook gets the JSON, the variable CODEX_SHIM_SESSION and the 10 s that a relay would give it. The request of the example does not
/// exist, so an answer to it is refused.
#[derive(Debug, Args)]
#[command(after_long_help = "\
The settings are those of this shell and of config.toml; a relay that was
started with other CODEX_SHIM_* variables has those.

Exit status: 0, or 1 if a hook failed, took too long, or none is configured.

Examples:
  codex-shim notify test
  codex-shim notify test pending
  codex-shim notify test --json | jq '.hooks[] | .hook, .exit_status'")]
pub(super) struct NotifyTestArguments {
    /// Only this hook
    #[arg(value_name = "EVENT", value_enum)]
    event: Option<HookEvent>,
    #[command(flatten)]
    session: SessionFlag,
    /// Print one JSON document
    #[arg(long = "json")]
    as_json: bool,
}

/// An event that has a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HookEvent {
    /// A request waits for an answer
    Pending,
    /// The last turn that ran is over
    Idle,
    /// A turn has been silent for a long time
    Stalled,
    /// A codex goes past the hub
    Bypass,
    /// Most of a token budget is used
    Budget,
}

impl HookEvent {
    fn setting(self) -> &'static str {
        match self {
            HookEvent::Pending => "on_pending",
            HookEvent::Idle => "on_idle",
            HookEvent::Stalled => "on_stalled",
            HookEvent::Bypass => "on_bypass",
            HookEvent::Budget => "on_budget",
        }
    }

    fn command(self, settings: &Settings) -> &[String] {
        match self {
            HookEvent::Pending => &settings.on_pending.value,
            HookEvent::Idle => &settings.on_idle.value,
            HookEvent::Stalled => &settings.on_stalled.value,
            HookEvent::Bypass => &settings.on_bypass.value,
            HookEvent::Budget => &settings.on_budget.value,
        }
    }

    /// The JSON of the example.
    fn example(self, session_id: &str) -> Value {
        const THREAD: &str = "0192c4f0-1111-7000-8000-000000000001";
        const TURN: &str = "0192c4f0-2222-7000-8000-000000000001";
        const AT: &str = "2026-01-02T03:04:05.678Z";
        let mut example = match self {
            HookEvent::Pending => json!({
                "request_id": "6b02d1a90c4e-0", "session_id": session_id, "process_generation": "6b02d1a90c4e",
                "rpc_request_id": 0, "thread_id": THREAD, "turn_id": TURN, "item_id": "call_1",
                "request_type": RequestType::Approval.name(), "request_method": Method::CommandApproval.name(),
                "requested_at": AT, "expires_at": null, "status": "pending",
                "request_payload": {
                    "threadId": THREAD, "turnId": TURN, "itemId": "call_1", "command": "echo \"it's an example\"",
                    "cwd": "/tmp", "reason": "codex-shim notify test",
                },
                "resolved_payload": null, "resolved_at": null, "resolution_source": null, "resolved_by": null,
                "dispatched_at": null, "confirmed_at": null, "error_code": null, "error_message": null, "late": false,
                "changes": null, "item": null, "rule": null, "program": null, "reason": null,
                "summary": "run echo \"it's an example\" (codex-shim notify test)",
            }),
            HookEvent::Idle => json!({ "thread_id": THREAD, "turn_id": TURN, "status": "completed", "error": null }),
            HookEvent::Stalled => {
                json!({ "thread_id": THREAD, "turn_id": TURN, "stalled_since": AT, "silent_ms": 300_000 })
            }
            HookEvent::Budget => {
                let spent = Spent {
                    limit: BudgetLimit::Day,
                    client: None,
                    day: "2026-01-02".to_owned(),
                    used: 4_100_000,
                    most: 5_000_000,
                };
                return spent.document();
            }
            HookEvent::Bypass => {
                return json!(Bypass {
                    pid: 4711,
                    terminal: Some("pts/3".to_owned()),
                    folder: Some("/tmp/proj".to_owned()),
                    started_at: Some(AT.to_owned()),
                    thread_ids: vec![THREAD.to_owned()],
                    reason: "option",
                    why: "with --no-daemon, codex runs a server of its own".to_owned(),
                    remedy: "leave that out".to_owned(),
                });
            }
        };
        let description = ThreadDescription {
            cwd: Some("/tmp/proj".to_owned()),
            title: Some("An example".to_owned()),
            ..ThreadDescription::default()
        };
        let client = ThreadClient { name: "codex-tui".to_owned(), ..ThreadClient::default() };
        let thread = ThreadIdentity { description, client: Some(client), last_used_us: 0 };
        let thread = ThreadIdentityDocument::recorded(thread);
        example["name"] = json!(thread.folder_and_client());
        example["thread"] = json!(thread);
        example
    }
}

/// A hook that was run.
#[derive(Debug, Serialize)]
struct Tried {
    hook: &'static str,
    command: Vec<String>,
    /// `null` if it was killed or could not be started.
    exit_status: Option<i32>,
    /// Why it has no exit status.
    error: Option<String>,
    took_ms: u64,
    output: String,
}

pub(super) fn run(tool: &NotifyTool, environment: &Environment) -> Done {
    let NotifyTool::Test(arguments) = tool;
    let (settings, complaints) = Settings::load(Flags::default(), environment);
    complaints.iter().for_each(|complaint| say(&complaint.to_string()));
    let events = match arguments.event {
        Some(event) => vec![event],
        None => HookEvent::value_variants().to_vec(),
    };
    let configured: Vec<HookEvent> =
        events.iter().copied().filter(|event| !event.command(&settings).is_empty()).collect();
    if configured.is_empty() {
        let names: Vec<&str> = events.iter().map(|event| event.setting()).collect();
        let message = format!("no command is configured; set {} in config.toml", names.join(", "));
        return Err(CliError::failed(message).with_remedy("`codex-shim docs notifications` has commands to copy"));
    }
    let session_id = session_id(arguments.session.name(), environment)?;
    let mut tried = Vec::new();
    for event in configured {
        tried.push(try_event(event, &settings, &session_id)?);
    }
    let has_failed = tried.iter().any(|tried| tried.exit_status != Some(0));
    let printed = match arguments.as_json {
        true => print_json(&json!({ "hooks": tried })),
        false => screen::print(&as_text(&tried, Screen::of_stdout(environment))),
    };
    Ok(if has_failed { FAILED } else { printed })
}

/// The session in `CODEX_SHIM_SESSION` of the hooks; any name if there is no session.
fn session_id(flag: Option<&str>, environment: &Environment) -> Result<String, CliError> {
    match select_session::one_quietly(flag, Otherwise::Latest, environment) {
        Ok((session, _)) => Ok(session.id),
        Err(error) if select_session::is_named(flag, environment) => Err(error.into()),
        Err(_) => Ok("example".to_owned()),
    }
}

fn try_event(event: HookEvent, settings: &Settings, session_id: &str) -> Result<Tried, CliError> {
    let command = event.command(settings).to_vec();
    let input = event.example(session_id).to_string();
    let HookTried { outcome, output, took } = try_hook(&command, session_id, &input)
        .map_err(|error| CliError::failed(format!("run {}: {error}", event.setting())))?;
    let (exit_status, error) = match outcome {
        HookOutcome::Ended(Some(status)) => (Some(status), None),
        HookOutcome::Ended(None) => (None, Some("a signal ended it".to_owned())),
        HookOutcome::Killed => (None, Some("it took longer than 10 s and was killed".to_owned())),
        HookOutcome::NotStarted(error) => (None, Some(format!("it cannot be started: {error}"))),
    };
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    Ok(Tried { hook: event.setting(), command, exit_status, error, took_ms, output })
}

fn as_text(tried: &[Tried], to: Screen) -> String {
    tried.iter().map(|tried| one_as_text(tried, to)).collect()
}

/// The hook and its outcome, and its output below.
fn one_as_text(tried: &Tried, to: Screen) -> String {
    let (tone, outcome) = match (tried.exit_status, &tried.error) {
        (Some(0), _) => (Tone::Good, "exit status 0".to_owned()),
        (Some(status), _) => (Tone::Bad, format!("exit status {status}")),
        (None, error) => (Tone::Bad, error.clone().unwrap_or_default()),
    };
    let took = screen::lasted(Duration::from_millis(tried.took_ms));
    let mut text = format!(
        "{}  {}  {}\n",
        to.paint(Tone::Strong, tried.hook),
        to.paint(tone, &screen::plain(&outcome)),
        to.paint(Tone::Faint, &took)
    );
    text.push_str(&format!("  {}\n", to.paint(Tone::Faint, &screen::plain(&tried.command.join(" ")))));
    for line in tried.output.lines() {
        text.push_str(&format!("  {}\n", screen::plain(line)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_and_output_are_shown() {
        let tried = Tried {
            hook: "on_idle",
            command: vec!["notify".to_owned(), "a\u{1b}".to_owned()],
            exit_status: Some(3),
            error: None,
            took_ms: 12,
            output: "one\ntwo\u{1b}[2J\n".to_owned(),
        };
        let expect = "on_idle  exit status 3  12ms\n  notify a\u{fffd}\n  one\n  two\u{fffd}[2J\n";
        assert_eq!(one_as_text(&tried, Screen::None), expect);
        let killed = Tried { exit_status: None, error: Some("it was killed".to_owned()), ..tried };
        assert!(one_as_text(&killed, Screen::None).starts_with("on_idle  it was killed  12ms\n"));
    }
}
