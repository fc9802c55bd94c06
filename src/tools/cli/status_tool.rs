//! `codex-shim status`: the health of a session, on one screen.

use std::time::SystemTime;

use bytesize::ByteSize;
use clap::Args;
use serde_json::value::RawValue;

use super::Done;
use super::drift_tool::Outlook;
use super::hub_tool::Down;
use super::offline::{self, Door};
use super::screen::{self, Screen, Tone, counted};
use super::screen::{Clock, Times};
use super::select_session::SessionWord;
use super::{FAILED, say, select_session};
use crate::api::{
    ConfigDocument, ConfigWarningDocument, ContextEngineDocument, Counters, Fault, IndexDocument, JournalDocument,
    SessionDocument, State, ThreadDocument, Verbatim,
};
use crate::config::Environment;
use crate::control::client::{self, Unanswered};
use crate::history::Activity;
use crate::sessions::names::short_id;
use crate::store::{Found, Otherwise};

/// Show whether a session is healthy
///
/// The first line is the verdict. The rest is what it is based on: relay, server, client, versions, journal, faults. With
/// --json it prints the document that `GET /sessions/self` returns.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Without SESSION: the session in CODEX_SHIM_SESSION, else the live session
whose folder or repository contains the current folder, else the only live
session, else the session used last.

Exit status:
  0  the status is known, also that of a stopped session
  1  a relay is running and does not answer
  3  no such session

With --json it prints what `GET /sessions/self` returns. If several sessions
are live in the folder and none is named, that is {\"sessions\":[…]}.

Examples:
  codex-shim status
  codex-shim status work
  codex-shim status --json | jq .faults")]
pub(super) struct StatusArguments {
    #[command(flatten)]
    session: SessionWord,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    times: Times,
}

/// Width of the label column.
const LABEL_COLUMNS: usize = 9;

/// Most threads and faults that are listed, so that the output fits a screen.
const LISTED_MAX: usize = 3;

/// The state of a session.
#[derive(Debug)]
struct Report {
    document: SessionDocument,
    life: Life,
    /// Of a hub that does not run.
    down: Option<Down>,
}

/// How the session is named.
struct SessionNames<'a> {
    heading: &'a str,
    /// Names it in a suggested command; empty if that finds it.
    argument: &'a str,
}

#[derive(Debug, PartialEq, Eq)]
enum Life {
    /// The relay answered.
    Live,
    /// A relay is running but does not answer; the reason.
    Silent(String),
    Stopped,
}

/// Prints the state of a session, or of all live ones in a folder.
pub(super) fn run(arguments: &StatusArguments, environment: &Environment) -> Done {
    let sessions = select_session::several(arguments.session.name(), Otherwise::Latest, environment)?;
    let (door, clock) = (offline::door(environment), Clock::of(&arguments.times));
    let (mut texts, mut status) = (Vec::new(), 0);
    for session in &sessions {
        let (report, as_sent) = look(session, door);
        if let Life::Silent(why) = &report.life {
            status = FAILED;
            if arguments.json {
                let pid = session.holder.as_ref().map_or_else(|| "unknown".to_owned(), |holder| holder.pid.to_string());
                say(&format!("session {} (pid {pid}) is live but does not answer: {why}", session.name()));
                continue;
            }
        }
        texts.push(match (arguments.json, as_sent) {
            (true, Some(as_sent)) => as_sent.get().to_owned(),
            (true, None) => serde_json::to_string(&report.document).expect("BUG: plain data is JSON"),
            (false, _) => {
                let to = Screen::of_stdout(environment);
                let name = SessionNames {
                    heading: &select_session::heading(session, to, environment),
                    argument: &select_session::argument_for(session, arguments.session.name(), environment),
                };
                let drift = || {
                    let version = report.document.hub.as_ref()?.server.version.as_deref();
                    Outlook::of_replaced(session, version, environment)
                };
                as_screen(&report, session, &name, (&clock, to), drift())
            }
        });
    }
    let printed = match (&sessions[..], arguments.json) {
        ([_], true) => texts.first().map_or(0, |text| screen::print_exactly(&format!("{text}\n"))),
        (_, true) => screen::print_exactly(&format!("{{\"sessions\":[{}]}}\n", texts.join(","))),
        (_, false) => screen::print(&texts.join("\n")),
    };
    Ok(if status == 0 { printed } else { status })
}

/// Queries a live session, or reads the files of a stopped one. Also returns the response as it was received.
fn look(session: &Found, door: Door) -> (Report, Option<Box<RawValue>>) {
    let from_files = |life: Life| {
        let (mut document, fault) = match life {
            Life::Stopped => offline::state(session, door),
            Life::Live | Life::Silent(_) => (offline::stored_state(session), None),
        };
        let since = || screen::time(SystemTime::now());
        document.faults.extend(fault.map(|why| Fault { what: why.to_string(), since: since() }));
        let down = Down::of(session).filter(|_| life == Life::Stopped);
        (Report { document, life, down }, None)
    };
    if !session.live {
        return from_files(Life::Stopped);
    }
    match client::ask_verbatim(&session.dir, &State, client::ANSWER_WAIT_MAX) {
        Ok(Verbatim { text, document }) => (Report { document, life: Life::Live, down: None }, Some(text)),
        // It may have exited since it was found.
        Err(Unanswered::NoAnswer(_)) if !session.is_still_live() => from_files(Life::Stopped),
        Err(error) => from_files(Life::Silent(error.why(session))),
    }
}

fn as_screen(
    report: &Report,
    session: &Found,
    name: &SessionNames<'_>,
    (clock, to): (&Clock, Screen),
    drift: Option<String>,
) -> String {
    let (verdict, tone) = verdict(report);
    let document = &report.document;
    let is_live = report.life == Life::Live;
    let mut rows = vec![("session", name.heading.to_owned())];
    rows.extend(session.holder.as_ref().map(|holder| ("cwd", holder.place.cwd.clone())));
    if is_live {
        rows.push(("state", state(document, clock, to)));
        rows.extend(threads(document, clock, to).map(|threads| ("threads", threads)));
    }
    if is_live || document.pending_requests > 0 {
        rows.push(("waiting", pending(document.pending_requests, name.argument)));
    }
    if !matches!(report.life, Life::Silent(_)) {
        rows.push(("context", context(document.context_waiting, name.argument)));
    }
    rows.push(("relay", relay(report, session, clock)));
    if is_live {
        rows.push(("server", server(document, session)));
        rows.extend(drift.map(|drift| ("", drift)));
        rows.push(("client", client(document)));
        rows.extend(document.context_engine.as_ref().map(|known| ("engine", engine(known))));
        rows.push(("passed", passed(&document.counters)));
        rows.extend(document.config.as_ref().and_then(config).map(|config| ("config", config)));
        rows.extend(config_warnings(document).map(|warnings| ("codex", warnings)));
    }
    rows.push(("journal", journal(report, session, clock)));
    if !matches!(report.life, Life::Silent(_)) {
        rows.push(("index", index(report)));
        rows.push(("faults", faults(document, clock)));
    }
    rows.push(("folder", session.dir.display().to_string()));
    rows.extend(document.socket.clone().map(|socket| ("socket", socket)));
    rows.push(("versions", versions(session)));
    let mut text = format!("{}\n\n", to.paint(tone, &screen::plain(&verdict)));
    for (label, value) in rows {
        for (number, line) in value.split('\n').enumerate() {
            let label = to.paint(Tone::Faint, &format!("{:LABEL_COLUMNS$}", if number == 0 { label } else { "" }));
            text.push_str(&format!("{label} {}\n", screen::plain(line)));
        }
    }
    text
}

/// Reports settings that the relay has not applied.
fn config(config: &ConfigDocument) -> Option<String> {
    let error = config.error.as_ref().map(|error| format!("config.toml is not applied: {error}"));
    let names = config.restart_needed.join(", ");
    let waiting = (!names.is_empty()).then(|| format!("changed; restart this session to apply: {names}"));
    let told: Vec<String> = error.into_iter().chain(waiting).collect();
    (!told.is_empty()).then(|| told.join("\n"))
}

/// What codex says about its own configuration.
fn config_warnings(document: &SessionDocument) -> Option<String> {
    let lines = |warning: &ConfigWarningDocument| -> Vec<String> {
        warning.in_words().lines().map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
    };
    let mut told: Vec<String> = document.config_warnings.iter().take(LISTED_MAX).flat_map(lines).collect();
    let unlisted = document.config_warnings.len().saturating_sub(LISTED_MAX) as u64;
    told.extend(counted(unlisted, "more, see `status --json`", "more, see `status --json`"));
    (!told.is_empty()).then(|| told.join("\n"))
}

/// The first line: the verdict.
fn verdict(report: &Report) -> (String, Tone) {
    let document = &report.document;
    if let Some(down) = &report.down
        && document.faults.is_empty()
    {
        let tone = if down.server.is_some() { Tone::Warning } else { Tone::Faint };
        return (format!("stopped: {}; {}", down.what(), down.remedy()), tone);
    }
    match &report.life {
        Life::Stopped if document.faults.is_empty() => {
            ("stopped: no relay is running in this session".to_owned(), Tone::Faint)
        }
        Life::Stopped => ("stopped, and its journal cannot be indexed".to_owned(), Tone::Warning),
        Life::Silent(why) => {
            (format!("a relay is running but does not answer: {why}; see shim.log in its folder"), Tone::Bad)
        }
        Life::Live => match (document.faults.len(), document.journal.gaps.unwrap_or(0), document.state) {
            (0, 0, Activity::Stopped) if document.client.name.as_deref() == Some("codex-shim") => (
                "stopped: the server was stopped; `POST /sessions/self/start` on the control socket starts it"
                    .to_owned(),
                Tone::Warning,
            ),
            (0, 0, Activity::Stopped) => (
                "ending: the server has exited, and the client has not read all of its output".to_owned(),
                Tone::Warning,
            ),
            (0, 0, Activity::Thinking | Activity::Working | Activity::Idle)
                if document.threads.iter().any(|thread| thread.stalled_since.is_some()) =>
            {
                ("the relay is healthy, but a turn has been silent for a long time".to_owned(), Tone::Warning)
            }
            (0, 0, _) if document.config_warnings.iter().any(|warning| warning.is_broken) => {
                ("the relay is healthy, but codex cannot use its configuration".to_owned(), Tone::Warning)
            }
            (0, 0, Activity::Thinking | Activity::Working | Activity::Idle | Activity::Newer(_)) => {
                ("healthy".to_owned(), Tone::Good)
            }
            (0, 0, Activity::WaitingInput | Activity::WaitingPermission) => {
                ("healthy, and waiting for you".to_owned(), Tone::Good)
            }
            (faults, gaps, _) => {
                let told = [
                    counted(faults as u64, "fault", "faults"),
                    counted(gaps, "gap in the journal", "gaps in the journal"),
                ];
                let told: Vec<String> = told.into_iter().flatten().collect();
                (format!("the relay is running, with {}", told.join(" and ")), Tone::Warning)
            }
        },
    }
}

/// The activity of the session, and its duration.
fn state(document: &SessionDocument, clock: &Clock, to: Screen) -> String {
    let since = document.state_since.as_deref().and_then(|at| clock.age(at));
    let since = since.map(|since| format!(" for {since}")).unwrap_or_default();
    format!("{}{since}", screen::state(document.state, to))
}

/// Each active thread with its last action, and further threads while there is room.
fn threads(document: &SessionDocument, clock: &Clock, to: Screen) -> Option<String> {
    // What codex opens for its own work is of no interest, unless it waits for a person.
    let is_shown = |thread: &&ThreadDocument| thread.identity.kind.is_user() || thread.pending > 0;
    let mut all: Vec<&ThreadDocument> = document.threads.iter().filter(is_shown).collect();
    // Those of this folder come first. Of the idle threads, the most recently active comes first.
    all.sort_by_cached_key(|thread| {
        let is_here = thread.identity.cwd.as_deref().is_none_or(select_session::is_here);
        let rests = matches!(thread.activity_state, Activity::Idle | Activity::Stopped);
        (!is_here, rests, std::cmp::Reverse(thread.since.clone()))
    });
    let ids = document.threads.iter().map(|thread| thread.thread_id.as_str());
    let mut told: Vec<String> = Vec::new();
    for thread in all.iter().take(LISTED_MAX) {
        // Programs get the whole id.
        let id = if to == Screen::None { &thread.thread_id } else { short_id(&thread.thread_id, ids.clone()) };
        let since = clock.age(&thread.since).map(|since| format!(" for {since}")).unwrap_or_default();
        let silent = thread.stalled_since.as_deref().and_then(|at| clock.age(at));
        let silent = silent.map(|silent| format!(", silent for {silent}")).unwrap_or_default();
        let words = thread.identity.in_words().map(|words| format!("  {}", screen::plain(&words))).unwrap_or_default();
        told.push(format!("{id}  {}{since}{silent}{words}", screen::state(thread.activity_state, to)));
        told.extend(thread.last_action.as_ref().map(|action| format!("  {action}")));
    }
    let unlisted = all.len().saturating_sub(LISTED_MAX);
    told.extend((unlisted > 0).then(|| format!("{unlisted} more, see --json")));
    Some(told.join("\n")).filter(|told| !told.is_empty())
}

/// `at` names the session in the suggested command.
fn pending(requests: u64, at: &str) -> String {
    match requests {
        0 => "no requests are pending".to_owned(),
        1 => format!("1 request is pending: `codex-shim show latest{at}`"),
        many => format!("{many} requests are pending: `codex-shim requests{at}`"),
    }
}

fn context(commands: u64, at: &str) -> String {
    match counted(commands, "command waits", "commands wait") {
        None => "no commands wait for the next message".to_owned(),
        Some(waiting) => format!("{waiting} for the next message: `codex-shim context show{at}`"),
    }
}

/// The lag of the history.
fn index(report: &Report) -> String {
    let IndexDocument { lag_lines, lag_ms, persisted, event_persist_error, pruned, .. } = report.document.index;
    let mut told = vec![how_far(report, lag_lines, lag_ms, persisted)];
    told.extend(counted(pruned.events, "old event", "old events").map(|events| format!("{events} pruned")));
    told.extend(counted(event_persist_error, "commit", "commits").map(|commits| format!("{commits} failed")));
    told.join(", ")
}

fn how_far(report: &Report, lag_lines: u64, lag_ms: u64, persisted: bool) -> String {
    match (counted(lag_lines, "line", "lines"), persisted) {
        (None, true) => "up to date".to_owned(),
        (Some(lines), true) => format!("{lines} behind, the oldest for {lag_ms} ms"),
        (Some(lines), false) => format!("cannot be written: {lines} behind"),
        (None, false) if report.document.faults.is_empty() => "no history is kept".to_owned(),
        (None, false) => "cannot be written".to_owned(),
    }
}

fn relay(report: &Report, session: &Found, clock: &Clock) -> String {
    let pid = session.holder.as_ref().map_or_else(|| "unknown".to_owned(), |holder| holder.pid.to_string());
    let started = report.document.started_at.as_deref().and_then(|at| humantime::parse_rfc3339(at).ok());
    match (&report.life, started) {
        (Life::Stopped, _) => {
            format!("stopped, last used {} ({} ago)", clock.text_of(session.last_used), clock.age_of(session.last_used))
        }
        (Life::Live | Life::Silent(_), Some(started)) => {
            format!("live, pid {pid}, since {} ({})", clock.text_of(started), clock.age_of(started))
        }
        (Life::Live | Life::Silent(_), None) => format!("live, pid {pid}"),
    }
}

fn server(document: &SessionDocument, session: &Found) -> String {
    let mut told = match (document.state, document.child.pid) {
        (Activity::Stopped, _) => "ended".to_owned(),
        (_, Some(pid)) => format!("pid {pid}"),
        (_, None) => "not started".to_owned(),
    };
    match &document.child.codex_version {
        Some(version) => told.push_str(&format!(", codex {version}")),
        None => told.push_str(", version not known yet"),
    }
    if let Some(holder) = &session.holder {
        told.push_str(&format!(": {}", holder.place.server.join(" ")));
    }
    told
}

/// Each name once: `codex-tui (3), vscode`.
fn counted_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for name in names {
        match counted.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counted.push((name, 1)),
        }
    }
    let words = |(name, count): (&str, usize)| if count == 1 { name.to_owned() } else { format!("{name} ({count})") };
    counted.into_iter().map(words).collect::<Vec<_>>().join(", ")
}

fn client(document: &SessionDocument) -> String {
    if let Some(hub) = &document.hub {
        let told = counted_names(hub.connections.iter().filter_map(|each| each.client.name.as_deref()));
        return if told.is_empty() { "none is connected".to_owned() } else { told };
    }
    match (&document.client.name, &document.client.version) {
        (Some(name), Some(version)) => format!("{name} {version}"),
        (Some(name), None) => name.clone(),
        (None, _) => "has not initialized yet".to_owned(),
    }
}

/// The user's context engine.
fn engine(known: &ContextEngineDocument) -> String {
    let count = |outcome: &str| -> u64 {
        known.calls.iter().filter(|call| (call.outcome == "ok") == (outcome == "ok")).map(|call| call.count).sum()
    };
    let calls = counted(count("ok"), "call", "calls").unwrap_or_else(|| "no calls yet".to_owned());
    let failed = counted(count(""), "failed", "failed").map(|failed| format!(", {failed}")).unwrap_or_default();
    let name = known.name.as_deref().unwrap_or("the context engine");
    match (known.running, &known.last_end) {
        (true, last_end) => {
            let version = known.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
            let times = if known.ends == 1 { "once".to_owned() } else { format!("{} times", known.ends) };
            let ends = last_end.as_ref().map(|why| format!("; it exited {times} before, most recently: {why}"));
            format!("{name}{version}: {calls}{failed}{}", ends.unwrap_or_default())
        }
        (false, Some(why)) => format!("{name} is not running: {why}; {calls}{failed}"),
        (false, None) => format!("{name} is starting"),
    }
}

fn passed(counters: &Counters) -> String {
    let traffic = |lines: u64, bytes: u64| {
        let lines_told = counted(lines, "line", "lines").unwrap_or_else(|| "no lines".to_owned());
        // Bytes are counted when they are forwarded; under `serve` without a client nothing is.
        if bytes == 0 { lines_told } else { format!("{lines_told} ({})", ByteSize(bytes)) }
    };
    format!(
        "{} from the client, {} from the server",
        traffic(counters.client_lines, counters.client_bytes),
        traffic(counters.server_lines, counters.server_bytes)
    )
}

fn journal(report: &Report, session: &Found, clock: &Clock) -> String {
    let JournalDocument { bytes, gaps } = report.document.journal;
    let counters = &report.document.counters;
    let mut told = vec![ByteSize(bytes).to_string()];
    match report.life {
        Life::Live if counters.journal_appended_bytes == 0 => told.push("nothing is recorded".to_owned()),
        Life::Live | Life::Silent(_) => told.push(format!("written {} ago", clock.age_of(session.last_used))),
        Life::Stopped => {}
    }
    match gaps {
        Some(0) => told.push("no gaps".to_owned()),
        Some(gaps) => {
            let lines = counted(counters.journal_missed_lines, "line", "lines").unwrap_or_default();
            told.extend(counted(gaps, "gap", "gaps").map(|gaps| format!("{gaps} ({lines} missing)")));
        }
        None => {}
    }
    told.extend(
        counted(counters.omitted_lines, "line", "lines").map(|lines| format!("{lines} omitted as secret or too long")),
    );
    told.join(", ")
}

fn faults(document: &SessionDocument, clock: &Clock) -> String {
    if document.faults.is_empty() {
        return "none".to_owned();
    }
    let fault = |fault: &Fault| format!("{}  {}", clock.text(&fault.since), screen::plain(&fault.what));
    let mut told: Vec<String> = document.faults.iter().take(LISTED_MAX).map(fault).collect();
    let unlisted = document.faults.len().saturating_sub(LISTED_MAX) as u64 + document.counters.faults_unlisted;
    told.extend(counted(unlisted, "more, see shim.log", "more, see shim.log"));
    told.join("\n")
}

/// Our version, and the relay's if the journal names it.
fn versions(session: &Found) -> String {
    let ours = env!("CARGO_PKG_VERSION");
    match offline::last_header(session) {
        Some(header) if header.shim != ours => format!("codex-shim {ours}, the relay {}", header.shim),
        Some(_) | None => format!("codex-shim {ours}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncounted_bytes_are_left_out() {
        let counters = Counters { client_lines: 1, client_bytes: 2_048, server_lines: 3, ..Counters::default() };
        assert_eq!(passed(&counters), "1 line (2.0 KiB) from the client, 3 lines from the server");
    }
    #[test]
    fn clients_of_one_name_are_counted() {
        assert_eq!(counted_names(["tui", "vscode", "tui"].into_iter()), "tui (2), vscode");
    }
}
