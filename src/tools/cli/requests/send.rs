//! `codex-shim send` and `codex-shim interrupt`: message the model or stop it, beside the client. `codex-shim wait`, and waiting for the
//! end of a turn.
//!
//! Waiting polls: a document that the relay has ready and returns in well under a millisecond, and the turn rows, of which one is
//! written at the start and one at the end of a turn. There is no stream of these states, and 200 ms is short for a person and
//! costs the relay nothing.

use std::borrow::Cow;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::super::complete;
use super::super::history::thread_named;
use super::super::offline::{self, Read};
use super::super::select_session::{Common, SessionFlag};
use super::super::{FAILED, NO_SUCH_THREAD, say, screen};
use super::turn_end::{PendingTurn, ToldOf, TurnEnd, TurnProgress, WaitFlags, wait_for};
use super::{CliError, Done, print_json, readable, running, select_session};
use crate::api::{
    self, Command, Content, Entry, InputBody, InterruptBody, Limit, Request, SessionDocument, ThreadDocument,
    Transcript, TranscriptDocument, TurnReply, TurnRowDocument, TurnRowsQuery, Verbatim, WhichRequests,
};
use crate::config::Environment;
use crate::config::parse_duration;
use crate::control::BODY_BYTES_MAX;
use crate::control::client::{self, PendingRequest, Refused, Unanswered};
use crate::history::Activity;
use crate::hub;
use crate::store::{Found, ThreadUse};

/// Sends a message to the model.
pub(in crate::cli) fn run_send(arguments: SendArguments, environment: &Environment) -> Done {
    let session = running(arguments.session.name(), environment)?;
    let says = match arguments.text.as_str() {
        "-" => from_stdin()?,
        _ => arguments.text,
    };
    if says.trim().is_empty() {
        return Err(CliError::usage("the message is empty"));
    }
    let thread = match (arguments.is_new, &arguments.thread) {
        (true, _) => Some(new_thread(&session)?),
        (false, Some(name)) => Some(thread_named(&session, name, environment)?),
        (false, None) => select_session::thread_here(&session, ThreadUse::Speak)?,
    };
    let began = Instant::now();
    let at = select_session::argument_for(&session, arguments.session.name(), environment);
    let watch = arguments.waiting.is_on.then(|| TurnWatch::begin(&session, at, environment)).transpose()?;
    let message = Command::Input(InputBody { text: says, thread_id: thread });
    check_length(message.call().body.len())?;
    let in_words = |error: &Unanswered| refusal(error, Call::Send, arguments.thread.as_deref());
    let reply: Verbatim<TurnReply> = offline::command(&session, &message, in_words)?;
    let turn = &reply.document;
    if let Some(watch) = watch {
        let left = || arguments.waiting.left(began);
        let (failing_since, told_of) = (None, ToldOf::default());
        let turn = WatchedTurn { watch, session: &session, reply: &reply, failing_since, told_of };
        return wait_for(turn, POLL_WAIT, left)?.print(arguments.as_json);
    }
    if arguments.as_json {
        return Ok(print_json(&reply));
    }
    let [turn_id, thread_id] =
        [&turn.turn_id, &turn.thread_id].map(|id| screen::plain(id.as_deref().unwrap_or_default()));
    let sent = thread_in_words(&session, &thread_id).map(|words| format!("sent to {words}\n")).unwrap_or_default();
    Ok(screen::print(&match turn.steered {
        true => format!("{sent}sent to running turn {turn_id} in thread {thread_id}\n"),
        false => format!("{sent}started turn {turn_id} in thread {thread_id}\n"),
    }))
}

/// A thread in words for a person; `None` if nothing is known of it.
fn thread_in_words(session: &Found, thread_id: &str) -> Option<String> {
    let document = client::ask(&session.dir, &api::State, WORDS_WAIT_MAX).ok()?;
    let thread = document.threads.into_iter().find(|thread| thread.thread_id == thread_id)?;
    thread.identity.in_words().map(|words| screen::plain(&words))
}

/// How long a relay may take to say which thread it was.
const WORDS_WAIT_MAX: Duration = Duration::from_secs(2);

/// Starts a thread in the session's folder, or in the caller's if the session is a hub; returns its id.
fn new_thread(session: &Found) -> Result<String, CliError> {
    let folder = match &session.threads {
        Some(_) => std::env::current_dir().ok(),
        None => session.holder.as_ref().map(|holder| PathBuf::from(&holder.place.cwd)),
    };
    let in_words = |error: &Unanswered| match error {
        Unanswered::Refused(refused) => Some(CliError::failed(format!("start a thread: {}", refused.message))),
        Unanswered::NoAnswer(_) | Unanswered::Invalid(_) => None,
    };
    let document: Value = offline::command(session, &Command::StartThread(folder), in_words)?;
    match document["result"]["thread"]["id"].as_str() {
        Some(id) => Ok(id.to_owned()),
        None => {
            let why = document["error"]["message"].as_str().unwrap_or("the server's answer names no thread");
            Err(CliError::failed(format!("start a thread: {why}")))
        }
    }
}

/// All of stdin without the final line break of a shell or editor. Other programs may write what is not UTF-8.
fn from_stdin() -> Result<String, CliError> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().take(BODY_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| CliError::failed(format!("read stdin: {error}")))?;
    check_length(bytes.len())?;
    let text = String::from_utf8_lossy(&bytes);
    if matches!(text, Cow::Owned(_)) {
        screen::print_to_stderr("codex-shim: bytes of the message that are not UTF-8 are sent as U+FFFD\n");
    }
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

/// A message travels in a body of this length, with quotes and line breaks escaped.
fn check_length(bytes: usize) -> Result<(), CliError> {
    if bytes as u64 > BODY_BYTES_MAX {
        let why =
            format!("the message is too long: it may have {BODY_BYTES_MAX} bytes, with quotes and line breaks escaped");
        return Err(CliError::usage(why));
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Send,
    Interrupt,
}

/// The words for a refusal, with the next step. `thread` is the one that the user named.
fn refusal(error: &Unanswered, call: Call, thread: Option<&str>) -> Option<CliError> {
    let Unanswered::Refused(Refused { code, message, pending, .. }) = error else { return None };
    let why = match (code.as_str(), pending.as_deref()) {
        ("pending_structured_request", Some(PendingRequest { request_id: id, requested_at })) => {
            let at = humantime::parse_rfc3339(requested_at).ok();
            let waiting = at.map(|at| screen::age(at, SystemTime::now()));
            format!(
                "request {id} is pending in this thread{}; answer it with `codex-shim respond {id}`, then {}",
                waiting.map(|age| format!(" for {age}")).unwrap_or_default(),
                match call {
                    Call::Send => "send it again",
                    Call::Interrupt => "try again",
                }
            )
        }
        ("thread_not_found", _) => match (thread, call) {
            (Some(thread), Call::Send) => {
                let why = format!("the server does not know thread `{thread}`; start another one with --new");
                return Some(CliError::exits(NO_SUCH_THREAD, screen::plain(&why)));
            }
            (Some(thread), Call::Interrupt) => {
                let why = format!("the server does not know thread `{thread}`; nothing to interrupt");
                return Some(CliError::exits(NO_SUCH_THREAD, screen::plain(&why)));
            }
            (None, Call::Send) => {
                "no turn has run in this session yet; start a thread with --new, or name one with --thread".to_owned()
            }
            (None, Call::Interrupt) => "no turn has run in this session yet; nothing to interrupt".to_owned(),
        },
        ("no_active_turn", _) => format!("{message}; nothing to interrupt"),
        (_, _) => return None,
    };
    Some(CliError::failed(why))
}

/// Interrupts the running turn.
pub(in crate::cli) fn run_interrupt(arguments: InterruptArguments, environment: &Environment) -> Done {
    let session = running(arguments.common.session.name(), environment)?;
    let thread = match &arguments.thread {
        Some(name) => Some(thread_named(&session, name, environment)?),
        None => select_session::thread_here(&session, ThreadUse::Interrupt)?,
    };
    let in_words = |error: &Unanswered| refusal(error, Call::Interrupt, arguments.thread.as_deref());
    let interrupt = Command::Interrupt(InterruptBody { thread_id: thread });
    let reply: Verbatim<TurnReply> = offline::command(&session, &interrupt, in_words)?;
    if arguments.common.as_json {
        return Ok(print_json(&reply));
    }
    let words = reply.document.thread_id.and_then(|thread_id| thread_in_words(&session, &thread_id));
    Ok(screen::print(&format!("interrupted{}\n", words.map(|words| format!(" {words}")).unwrap_or_default())))
}

/// Send a message to the model
///
/// The message joins the running turn, or starts one. The client sees it as if it came from elsewhere. If a request is pending
/// in the thread, nothing is sent: answer the request first.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status:
  0  the server accepted the message; with --wait: the turn completed
  1  it did not, or a request is pending; with --wait also: the turn failed,
     was interrupted, or --timeout passed
  2  the message is empty
  3  no such thread or session
  4  the session is not running

Examples:
  codex-shim send 'now run the tests'
  codex-shim send --wait 'summarize the diff' > summary.txt
  codex-shim send --new --wait --timeout 10m 'fix the build'
  git diff | codex-shim send - --json | jq -r .turn_id")]
pub(in crate::cli) struct SendArguments {
    /// The message; `-` reads it from stdin
    #[arg(value_name = "TEXT")]
    pub(in crate::cli) text: String,
    /// Thread: its id, a beginning, or `latest` [default: the last one of this folder]
    #[arg(long, value_name = "THREAD", conflicts_with = "is_new", add = complete::threads())]
    pub(in crate::cli) thread: Option<String>,
    /// Start a new thread for the message
    #[arg(long = "new")]
    pub(in crate::cli) is_new: bool,
    #[command(flatten)]
    pub(in crate::cli) waiting: WaitFlags,
    #[command(flatten)]
    pub(in crate::cli) session: SessionFlag,
    /// Print one JSON document
    #[arg(long = "json")]
    pub(in crate::cli) as_json: bool,
}

/// Stop the running turn
///
/// A request that is pending in it is withdrawn by the server.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0, or 1 if no turn is running or the server refused, or 3 if there
is no such thread or session, or 4 if the session is not running.

Examples:
  codex-shim interrupt
  codex-shim interrupt work --thread latest")]
pub(in crate::cli) struct InterruptArguments {
    #[command(flatten)]
    pub(in crate::cli) common: Common,
    /// Thread: its id, a beginning, or `latest` [default: the last one of this folder]
    #[arg(long, value_name = "THREAD", add = complete::threads())]
    pub(in crate::cli) thread: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Goal {
    /// No turn is running, and no request is pending
    Idle,
    /// A request is pending
    Pending,
}

/// Wait until a request is pending or the session is idle
#[derive(Debug, Args)]
#[command(after_long_help = "\
A session is idle if no turn is running and no request is pending. In a hub
only the threads of your folder count, if one is open there. With --json
it prints what `GET /sessions/self` returns, and with --for pending also the
pending requests that it waited for, as `requests --json` does.

Exit status: 0, or 1 after --timeout, or 4 if the session is not running or
ends.

Examples:
  codex-shim wait --for pending && codex-shim show latest
  codex-shim wait work --for idle --timeout 10m")]
pub(in crate::cli) struct WaitArguments {
    #[command(flatten)]
    pub(in crate::cli) common: Common,
    /// Condition: a pending request, or an idle session
    #[arg(long = "for", value_name = "WHAT", value_enum)]
    pub(in crate::cli) goal: Goal,
    /// Longest time to wait, such as 90s or 10m [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(in crate::cli) timeout: Option<Duration>,
}

/// Polling interval.
const POLL_WAIT: Duration = Duration::from_millis(200);

/// How long a relay may not answer, as happens just after its start.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Time limit of the last poll, however little time is left.
const LAST_LOOK_WAIT_MAX: Duration = Duration::from_secs(1);

pub(in crate::cli) fn run_wait(arguments: &WaitArguments, environment: &Environment) -> Done {
    let began = Instant::now();
    let session = readable(arguments.common.session.name(), environment)?;
    let left = || arguments.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
    // A hub has threads in many folders; whoever names it means them all.
    let is_hub = session.holder.as_ref().is_some_and(|holder| hub::is_hub(&holder.place));
    let only_here = is_hub && !select_session::is_named(arguments.common.session.name(), environment);
    let is_meant =
        |thread: &ThreadDocument| only_here && thread.identity.cwd.as_deref().is_some_and(select_session::is_here);
    let (answer, state, has_come) = loop {
        let answer = look(&session, left())?;
        let state = State::of(&answer.document, is_meant);
        if state.holds(arguments.goal) {
            break (answer, state, true);
        }
        let left = left();
        if left.is_some_and(|left| left.is_zero()) {
            break (answer, state, false);
        }
        std::thread::park_timeout(left.map_or(POLL_WAIT, |left| left.min(POLL_WAIT)));
    };
    let at = select_session::argument_for(&session, arguments.common.session.name(), environment);
    let mut document = value_of(&answer);
    if arguments.common.as_json && has_come && arguments.goal == Goal::Pending {
        let mut rows = offline::requests(&session, WhichRequests::Pending)?;
        rows.retain(|row| state.has(row));
        document["requests"] = json!(rows);
    }
    let printed = match (arguments.common.as_json, has_come) {
        (true, _) => print_json(&document),
        (false, true) => screen::print(&told(arguments.goal, &state, &at)),
        (false, false) => 0,
    };
    if has_come {
        return Ok(printed);
    }
    let requests = screen::counted(state.pending, "pending request", "pending requests");
    let whose = if state.of_folder.is_some() { "what works in this folder" } else { "the session" };
    say(&format!(
        "timed out: {whose} {}, with {}",
        screen::sentence(state.activity),
        requests.as_deref().unwrap_or("no pending requests")
    ));
    Ok(FAILED)
}

/// A document with all members that were sent.
fn value_of<T>(document: &Verbatim<T>) -> Value {
    serde_json::from_str(document.text.get()).expect("BUG: it was read before")
}

/// The session's document. A relay that does not answer is retried for at most the time left.
fn look(session: &Found, left: Option<Duration>) -> Result<Verbatim<SessionDocument>, CliError> {
    let asked = Instant::now();
    let silence_max = left.map_or(SILENCE_MAX, |left| left.clamp(LAST_LOOK_WAIT_MAX, SILENCE_MAX));
    loop {
        let wait_max = silence_max.saturating_sub(asked.elapsed());
        let why = match client::ask_verbatim(&session.dir, &api::State, wait_max) {
            Ok(document) => return Ok(document),
            Err(Unanswered::NoAnswer(_)) if !session.is_still_live() => return Err(CliError::not_running(session)),
            Err(Unanswered::NoAnswer(why)) => why,
            Err(error @ (Unanswered::Refused(_) | Unanswered::Invalid(_))) => {
                return Err(CliError::failed(error.to_string()));
            }
        };
        if why.is_silence() || asked.elapsed() + POLL_WAIT >= silence_max {
            return Err(CliError::failed(why.message(session)));
        }
        std::thread::park_timeout(POLL_WAIT);
    }
}

/// What `wait` waits for: of the threads that are meant, else of the whole session.
#[derive(Debug)]
struct State {
    /// The ids of the threads that are meant; `None` for the whole session.
    of_folder: Option<Vec<String>>,
    activity: Activity,
    pending: u64,
}

impl State {
    fn of(document: &SessionDocument, is_meant: impl Fn(&ThreadDocument) -> bool) -> State {
        let threads: Vec<&ThreadDocument> = document.threads.iter().filter(|thread| is_meant(thread)).collect();
        if threads.is_empty() {
            return State { of_folder: None, activity: document.state, pending: document.pending_requests };
        }
        // A request of an agent waits for a person, too; what it does is its own business.
        let pending = threads.iter().map(|thread| thread.pending).sum();
        let of_persons = threads.iter().filter(|thread| thread.identity.kind.is_user());
        let activity = of_persons.map(|thread| thread.activity_state).max().unwrap_or(Activity::Idle);
        let of_folder = threads.iter().map(|thread| thread.thread_id.clone()).collect();
        State { of_folder: Some(of_folder), activity, pending }
    }

    /// Whether a request is of what is waited for.
    fn has(&self, row: &Request) -> bool {
        self.of_folder.as_ref().is_none_or(|ids| row.thread_id.as_ref().is_some_and(|id| ids.contains(id)))
    }

    fn holds(&self, goal: Goal) -> bool {
        match goal {
            Goal::Pending => self.pending > 0,
            Goal::Idle => self.activity == Activity::Idle && self.pending == 0,
        }
    }
}

/// `at` names the session in the suggested command.
fn told(goal: Goal, state: &State, at: &str) -> String {
    let all = if state.of_folder.is_some() { " --here" } else { at };
    match (goal, state.pending) {
        (Goal::Idle, _) => "idle\n".to_owned(),
        (Goal::Pending, 1) => format!("1 request is pending; see `codex-shim show latest{at}`\n"),
        (Goal::Pending, many) => format!("{many} requests are pending; see `codex-shim requests{all}`\n"),
    }
}

/// Why a turn failed whose server has ended, as in the history.
const SERVER_GONE: &str = "app_server_stream_closed";

/// Most rows per poll.
const ROWS_MAX: u64 = 500;

/// A position in the turn rows before the awaited turn.
pub(super) struct TurnWatch {
    read: Read,
    since_id: u64,
    /// The run of the server; `None` if the turn may outlive it, as the server of a hub outlives the hub.
    run: Option<String>,
    /// Names the session in suggested commands; empty if they find it.
    at: String,
}

/// A turn of a session that is waited for.
struct WatchedTurn<'a> {
    watch: TurnWatch,
    session: &'a Found,
    reply: &'a Verbatim<TurnReply>,
    failing_since: Option<Instant>,
    told_of: ToldOf,
}

impl TurnWatch {
    /// Remembers the current end of the rows.
    pub(super) fn begin(session: &Found, at: String, environment: &Environment) -> Result<TurnWatch, CliError> {
        let mut read = offline::read(session.clone(), environment);
        let last = rows(&mut read, None, 1)
            .map_err(|why| CliError::failed(format!("--wait needs the history of this session: {why}")))?;
        let run = run_of(&look(session, None)?.document);
        Ok(TurnWatch { read, since_id: last.last().map_or(0, |row| row.id), run, at })
    }

    /// The session's document, and the turn rows that are new. The document comes first: if it is that of another run of the server,
    /// the rows have the end of every turn of the run before.
    fn look(&mut self, session: &Found) -> Result<(Option<SessionDocument>, Vec<TurnRowDocument>), CliError> {
        Ok((offline::of_relay(session, &api::State)?, rows(&mut self.read, Some(self.since_id), ROWS_MAX)?))
    }
}

impl WatchedTurn<'_> {
    fn ended(&mut self, outcome: String, error: Option<String>) -> Result<TurnProgress, CliError> {
        let message = last_message(&mut self.watch.read, &self.reply.document)?;
        Ok(TurnProgress::Ended(TurnEnd { turn: value_of(self.reply), outcome, error, message, unknown: None }))
    }
}

impl PendingTurn for WatchedTurn<'_> {
    /// If the relay ends, its files say how the turn ended.
    fn look(&mut self) -> Result<TurnProgress, CliError> {
        let (session, turn) = (self.session, &self.reply.document);
        let (document, new) = match self.watch.look(session) {
            Ok(seen) => seen,
            // A relay that is killed breaks off its answer, and the next one may run already.
            Err(_) if self.failing_since.get_or_insert_with(Instant::now).elapsed() < SILENCE_MAX => {
                return Ok(TurnProgress::Unread);
            }
            Err(error) => return Err(error),
        };
        self.failing_since = None;
        self.watch.since_id = new.last().map_or(self.watch.since_id, |row| row.id);
        let is_full = new.len() as u64 == ROWS_MAX;
        let is_of_turn = |row: &TurnRowDocument| row.turn_id == turn.turn_id && row.thread_id == turn.thread_id;
        if let Some(row) = new.into_iter().find(|row| is_of_turn(row) && row.event_type != "started") {
            return self.ended(row.event_type, row.error_message.or(row.error_code));
        }
        // More rows may wait.
        if is_full {
            return Ok(TurnProgress::Again);
        }
        let run = &self.watch.run;
        match &document {
            Some(document) if run.is_none() || run_of(document) == *run => {
                if document.pending_requests > 0 {
                    let rows = offline::requests(session, WhichRequests::Pending)?;
                    self.told_of.tell(&rows, turn.thread_id.as_deref().unwrap_or_default(), "respond ");
                }
                Ok(TurnProgress::Running)
            }
            None if run.is_none() => Err(CliError::not_running(session)),
            // The server is gone, and a relay that was killed has recorded no end of the turn.
            Some(_) | None => self.ended("failed".to_owned(), Some(SERVER_GONE.to_owned())),
        }
    }

    fn late(&self) -> String {
        let (at, thread) = (&self.watch.at, self.reply.document.thread_id.as_deref().unwrap_or_default());
        format!(
            "`codex-shim wait --for idle{at}` waits for it, `codex-shim transcript {thread}{at}` shows its messages"
        )
    }
}

/// The run of the server that a document names; `None` for a hub.
fn run_of(document: &SessionDocument) -> Option<String> {
    document.generation.clone().filter(|_| document.hub.is_none())
}

/// At most `limit` turn rows after `since_id`, or the last ones.
fn rows(read: &mut Read, since_id: Option<u64>, limit: u64) -> Result<Vec<TurnRowDocument>, CliError> {
    let query = TurnRowsQuery { since_id, since_epoch: None, limit: Some(Limit(limit)) };
    Ok(read.query(&query)?.events)
}

/// The model's last message in a turn.
fn last_message(read: &mut Read, turn: &TurnReply) -> Result<Option<String>, CliError> {
    let thread_id = turn.thread_id.as_deref().unwrap_or_default();
    let answer = read.query(&Transcript { thread_id: thread_id.to_owned() });
    let Ok(TranscriptDocument { entries, .. }) = answer else { return Ok(None) };
    let turn_id = turn.turn_id.as_deref();
    Ok(entries.iter().rev().find_map(|entry| match Entry::read(entry.get())? {
        Entry { content: Content::Assistant(said), turn_id: of, .. } if of.as_deref() == turn_id => {
            Some(said.text.unwrap_or_default().into_owned())
        }
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_next_step() {
        let refused_call = |code: &str, call: Call, thread: Option<&str>| {
            let pending = json!({ "request_id": "g-0", "requested_at": "2026" });
            let refused = Refused::coded(code, &json!({ "pending_request": pending }));
            refusal(&Unanswered::Refused(refused), call, thread)
        };
        let refused = |code: &str| refused_call(code, Call::Send, None).map(|error| error.to_string());
        let told = refused("pending_structured_request").unwrap_or_default();
        assert!(told.starts_with("request g-0 is pending") && told.contains("codex-shim respond g-0"), "{told}");
        assert!(refused("thread_not_found").is_some_and(|told| told.contains("--thread")));
        assert_eq!(refused("timeout"), None);
        let check = |call: Call, thread: Option<&str>, exit: i32, expect: &str| {
            let error = refused_call("thread_not_found", call, thread).expect("it has words");
            assert_eq!((error.exit, error.to_string().contains(expect)), (exit, true), "{error}");
        };
        check(Call::Send, None, FAILED, "start a thread with --new");
        check(Call::Send, Some("t"), NO_SUCH_THREAD, "does not know thread `t`; start another one with --new");
        check(Call::Interrupt, None, FAILED, "no turn has run in this session yet; nothing to interrupt");
        check(Call::Interrupt, Some("t"), NO_SUCH_THREAD, "does not know thread `t`; nothing to interrupt");
    }
}

#[cfg(test)]
mod wait_tests {
    use serde_json::json;

    use super::*;

    fn document(state: &str, pending: u64, threads: Vec<Value>) -> SessionDocument {
        let document = json!({
            "session_id": "s", "state": state, "activity_state": state, "pending_requests": pending, "threads": threads,
            "context_waiting": 0, "child": {}, "client": {}, "journal": { "bytes": 0 }, "counters": {}, "faults": [],
            "index": { "lag_lines": 0, "lag_ms": 0, "persisted": true },
        });
        serde_json::from_value(document).expect("BUG: it is a session")
    }

    #[test]
    fn wait_ends_with_its_condition() {
        let check = |state: &str, pending: u64, expect: (bool, bool)| {
            let state = State::of(&document(state, pending, Vec::new()), |_| true);
            assert_eq!((state.holds(Goal::Idle), state.holds(Goal::Pending)), expect, "{state:?}");
        };
        check("idle", 0, (true, false));
        check("idle", 1, (false, true));
        check("working", 0, (false, false));
        check("waiting_permission", 2, (false, true));
        check("stopped", 0, (false, false));
    }

    #[test]
    fn in_a_hub_the_threads_of_the_folder_count() {
        let thread = |cwd: &str, kind: &str, state: &str, pending: u64| json!({ "thread_id": format!("{cwd} {kind}"), "cwd": cwd, "kind": kind, "activity_state": state, "pending": pending, "since": "" });
        let threads = vec![
            thread("/a", "user", "idle", 0),
            thread("/a", "title", "working", 0),
            thread("/b", "user", "working", 0),
            thread("/c", "user", "idle", 0),
            thread("/c", "subagent", "waiting_permission", 1),
        ];
        let document = document("waiting_permission", 1, threads);
        let row = Request { thread_id: Some("/c subagent".to_owned()), ..Request::default() };
        let cases = [
            ("/a", (true, false)),
            ("/b", (false, false)),
            ("/c", (false, true)),
            // Nothing works here: the session.
            ("/d", (false, true)),
        ];
        for (folder, expect) in cases {
            let state = State::of(&document, |thread| thread.identity.cwd.as_deref() == Some(folder));
            assert_eq!((state.holds(Goal::Idle), state.holds(Goal::Pending)), expect, "{folder}: {state:?}");
            assert_eq!(state.has(&row), expect.1, "{folder}: {state:?}");
        }
    }
}
