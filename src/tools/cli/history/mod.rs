//! The history tools: events, actions, transcripts, search; and which thread a name means.
//!
//! If a relay is running it is queried, otherwise its files are indexed and read: see [`super::offline`].
//!
//! [`Following`] follows the events of a session across restarts of its relay. It keeps a cursor. The next event has the next
//! number, whether it comes from the running relay, from the one after it, or from the files that the last one left. So no
//! event is missed or repeated.

mod below;
mod entry;
mod events;
mod export;
mod search;
mod tail;
mod transcript;

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::CliError;
use super::offline::{self, Read, readable_state};
use super::{NO_SUCH_THREAD, select_session, threads};
use crate::api::{Cursor, EventDocument, EventStreamQuery, GapReason, Query as _, Verbatim, gap_event};
use crate::config::Environment;
use crate::control::{Listener, Listening, Received};
use crate::store::{Found, Otherwise};
#[cfg(feature = "fleet")]
pub(super) use events::{EventPrinter, cells as event_cells, table_of_hosts};
pub(super) use events::{EventsArguments, run_events};
pub(super) use search::{SearchArguments, run_search};
pub(super) use tail::{TailArguments, run_tail};
pub(super) use transcript::{TranscriptArguments, run_transcript};

/// An event with its text.
type FollowedEvent = Verbatim<EventDocument>;

/// How often to check for a running relay.
const LOOK_WAIT: Duration = Duration::from_millis(200);

/// How long a relay may not answer, as happens just after its start.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Events read at a time from a stopped session.
const PAGE: u64 = 500;

/// A followed session.
struct Following<'a> {
    read: &'a mut Read,
    /// The number of the last event, and its epoch.
    cursor: Cursor,
    listener: Option<Listener>,
    waiting: VecDeque<FollowedEvent>,
    /// The files of the last relay were read to the end; nothing more comes until the next relay.
    has_left_read: bool,
    /// Since when the running relay has not answered.
    silent_since: Option<Instant>,
    /// The relay evicted our stream and asked for a pause until then.
    ask_again_at: Option<Instant>,
}

impl<'a> Following<'a> {
    /// Follows a session from after event `seq`.
    fn new(read: &'a mut Read, seq: u64) -> Following<'a> {
        let (cursor, waiting, has_left_read, silent_since) = (Cursor::from(seq), VecDeque::new(), false, None);
        Following { read, cursor, listener: None, waiting, has_left_read, silent_since, ask_again_at: None }
    }

    /// Access for other queries to the session.
    fn read(&mut self) -> &mut Read {
        self.read
    }

    /// The next event; `None` after `wait_max`. Without a limit it waits indefinitely.
    fn next(&mut self, wait_max: Option<Duration>) -> Result<Option<FollowedEvent>, CliError> {
        let began = Instant::now();
        loop {
            if let Some(followed) = self.waiting.pop_front() {
                return Ok(Some(followed));
            }
            let left = wait_max.map(|wait_max| wait_max.saturating_sub(began.elapsed()));
            match &mut self.listener {
                Some(listener) => match listener.next(left) {
                    Ok(Received::Event(event)) => {
                        let followed: Option<FollowedEvent> = serde_json::from_str(&event.data).ok();
                        if let Some(seq) = event.id.as_deref().and_then(|id| id.parse().ok()) {
                            let epoch = followed.as_ref().and_then(|followed| followed.document.epoch.clone());
                            self.cursor = Cursor { seq, epoch };
                        }
                        self.waiting.extend(followed);
                    }
                    Ok(Received::Nothing) => return Ok(None),
                    // Another relay may be running by now, or soon.
                    Ok(Received::End) | Err(_) => {
                        self.ask_again_at = listener.retry_after().map(|after| Instant::now() + after);
                        self.listener = None;
                    }
                },
                None => {
                    let is_early = self.ask_again_at.is_some_and(|at| Instant::now() < at);
                    // The relay that asked for a pause may have exited.
                    if !is_early || !self.read.session.is_still_live() {
                        self.ask_again_at = None;
                        self.find()?;
                    }
                    let is_there = self.listener.is_some() || !self.waiting.is_empty();
                    if !is_there && left.is_some_and(|left| left.is_zero()) {
                        return Ok(None);
                    }
                    if !is_there {
                        std::thread::park_timeout(left.map_or(LOOK_WAIT, |left| left.min(LOOK_WAIT)));
                    }
                }
            }
        }
    }

    /// Opens a stream of the running relay, or reads the files that the last one left.
    fn find(&mut self) -> Result<(), CliError> {
        let session = self.read.session.clone();
        if session.is_still_live() {
            self.has_left_read = false;
            self.read.forget_past();
            let path = EventStreamQuery::default().path();
            match Listener::start(&session.dir, &path, Some(&last_id(&self.cursor))) {
                Ok(Listening::Begun(listener)) => (self.listener, self.silent_since) = (Some(listener), None),
                Ok(Listening::Refused(refused)) => return Err(CliError::failed(refused.message)),
                // The relay has just started or is exiting.
                Err(why) => {
                    let silent_since = self.silent_since.get_or_insert_with(Instant::now);
                    if why.is_silence() || silent_since.elapsed() >= SILENCE_MAX {
                        return Err(CliError::failed(why.message(&session)));
                    }
                }
            }
            return Ok(());
        }
        if !session.dir.exists() {
            return Err(CliError::failed(format!("session {} was deleted", session.name())));
        }
        if self.has_left_read {
            return Ok(());
        }
        // A history opened before that relay ran does not cover its events.
        self.read.forget_past();
        let Some(history) = self.read.past()? else { return Ok(()) };
        let page = history.events(Some(&self.cursor), PAGE, 0, false);
        let page = page.map_err(|error| CliError::failed(error.to_string()))?;
        if page.events.len() < PAGE as usize {
            self.has_left_read = true;
        }
        let first = page.events.first().and_then(|event| event.seq);
        let other_history = page.gap_reason.filter(|reason| reason.is_other_history());
        let is_gone = first.is_some_and(|first| first > self.cursor.seq + 1);
        if let Some(reason) = other_history.or(is_gone.then_some(GapReason::Retention)) {
            let gap = gap_event(reason.name(), self.cursor.seq, first.map(|first| first - 1));
            self.waiting.extend(Verbatim::read(gap));
        }
        let seq = if other_history.is_some() { page.next_seq.saturating_sub(1) } else { self.cursor.seq };
        self.cursor = Cursor { seq, epoch: page.epoch.clone() };
        self.cursor.seq = page.events.iter().filter_map(|event| event.seq).next_back().unwrap_or(self.cursor.seq);
        self.waiting.extend(page.verbatim().events);
        Ok(())
    }
}

/// A cursor as `Last-Event-ID`.
fn last_id(cursor: &Cursor) -> String {
    match &cursor.epoch {
        Some(epoch) => format!("{epoch}:{}", cursor.seq),
        None => cursor.seq.to_string(),
    }
}

/// The thread with the latest message.
const LATEST: &str = "latest";

/// Why a name is not resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NotAThread {
    Unknown {
        name: String,
        threads: Vec<String>,
    },
    /// No session of the folder has it.
    InNone {
        name: String,
        threads: Vec<String>,
    },
    Ambiguous {
        name: String,
        matching: Vec<String>,
    },
}

impl fmt::Display for NotAThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotAThread::Unknown { name, threads: listed } if listed.is_empty() => {
                write!(
                    f,
                    "unknown thread `{name}`: this session has no threads yet; `codex-shim send --new TEXT` starts one"
                )
            }
            NotAThread::Unknown { name, threads: all } => {
                write!(f, "unknown thread `{name}`; threads in this session, latest first: {}", threads::in_line(all))
            }
            NotAThread::InNone { name, threads: all } => {
                write!(f, "unknown thread `{name}`; threads in these sessions: {}", threads::in_line(all))
            }
            NotAThread::Ambiguous { name, matching } => {
                write!(
                    f,
                    "`{name}` is the beginning of several threads: {}; give more of the id",
                    threads::in_line(matching)
                )
            }
        }
    }
}

impl From<NotAThread> for CliError {
    fn from(error: NotAThread) -> CliError {
        CliError::exits(NO_SUCH_THREAD, error.to_string())
    }
}

impl NotAThread {
    /// The same with who the threads are, as the sessions in these folders have it on record.
    pub(super) fn described(self, session_dirs: &[&Path]) -> NotAThread {
        match self {
            NotAThread::Unknown { name, threads } => {
                NotAThread::Unknown { name, threads: threads::rows(threads, session_dirs) }
            }
            NotAThread::InNone { name, threads } => {
                NotAThread::InNone { name, threads: threads::rows(threads, session_dirs) }
            }
            NotAThread::Ambiguous { name, matching } => {
                NotAThread::Ambiguous { name, matching: threads::rows(matching, session_dirs) }
            }
        }
    }
}

/// Finds a thread by its id, a unique beginning of it, or `latest`. `threads` is sorted, latest first.
pub(super) fn find(name: &str, threads: &[String]) -> Result<String, NotAThread> {
    if let Some(exact) = threads.iter().find(|thread| *thread == name) {
        return Ok(exact.clone());
    }
    if let (LATEST, Some(latest)) = (name, threads.first()) {
        return Ok(latest.clone());
    }
    let matching: Vec<String> =
        threads.iter().filter(|thread| !name.is_empty() && thread.starts_with(name)).cloned().collect();
    match &matching[..] {
        [only] => Ok(only.clone()),
        [] => Err(NotAThread::Unknown { name: name.to_owned(), threads: threads.to_vec() }),
        _ => Err(NotAThread::Ambiguous { name: name.to_owned(), matching }),
    }
}

/// Resolves a thread's name. A session without a history accepts only whole ids.
pub(in crate::cli) fn thread_named(session: &Found, name: &str, environment: &Environment) -> Result<String, CliError> {
    Ok(resolved(session, name, environment)?)
}

fn resolved(session: &Found, name: &str, environment: &Environment) -> Result<String, NotAThread> {
    match known(&mut offline::read(session.clone(), environment)) {
        Ok(threads) => find(name, &threads).map_err(|error| error.described(&[&session.dir])),
        Err(_) => Ok(name.to_owned()),
    }
}

/// The history of the session of this folder that has the named thread. Without a name, and for `latest`, it is the session
/// used last.
pub(super) fn read_of(
    flag: Option<&str>,
    name: Option<&str>,
    environment: &Environment,
) -> Result<Result<Read, NotAThread>, CliError> {
    let Some(name) = name.filter(|name| *name != LATEST) else {
        return offline::chosen(flag, environment).map(Ok);
    };
    let mut sessions = select_session::several(flag, Otherwise::Latest, environment)?;
    // Each of the two says which session it has chosen.
    if sessions.len() == 1
        && let Some(session) = sessions.pop()
    {
        return Ok(Ok(offline::read(session, environment)));
    }
    let (mut reads, mut threads) = (Vec::new(), Vec::new());
    for session in sessions {
        let mut read = offline::read(session, environment);
        let known = match known(&mut read) {
            Ok(known) => known,
            // The thread may be in another session.
            Err(error) => {
                error.report();
                continue;
            }
        };
        threads.extend(known.iter().cloned());
        reads.push((read, known));
    }
    let found = find(name, &threads).map_err(|error| match error {
        NotAThread::Unknown { name, threads } if !threads.is_empty() => NotAThread::InNone { name, threads },
        error @ (NotAThread::Unknown { .. } | NotAThread::InNone { .. } | NotAThread::Ambiguous { .. }) => error,
    });
    let dirs: Vec<&Path> = reads.iter().map(|(read, _)| &*read.session.dir).collect();
    let found = found.map_err(|error| error.described(&dirs));
    Ok(found.map(|thread| {
        let read = reads.into_iter().find(|(_, known)| known.contains(&thread));
        read.expect("BUG: each thread comes from a session").0
    }))
}

/// All threads of a session: those with messages, and those that a live relay has seen.
pub(super) fn known(read: &mut Read) -> Result<Vec<String>, CliError> {
    let mut threads = read.threads()?;
    let session = &read.session;
    // A new thread has no messages yet.
    if session.is_still_live()
        && let Some(document) = readable_state(session)?
    {
        let live = document.threads.into_iter().map(|thread| thread.thread_id);
        threads.extend(live.filter(|thread| !threads.contains(thread)).collect::<Vec<_>>());
    }
    // Of a hub, the thread of this folder is the one that is meant first.
    if let Some(here) = select_session::thread_to_read(session) {
        threads.retain(|thread| *thread != here);
        threads.insert(0, here);
    }
    Ok(threads)
}

/// [`thread_named`] that accepts an unknown name as a whole id; the caller checks it.
pub(in crate::cli) fn thread_or_id(session: &Found, name: &str, environment: &Environment) -> Result<String, CliError> {
    match resolved(session, name, environment) {
        Err(NotAThread::Unknown { .. }) if name != LATEST => Ok(name.to_owned()),
        found => Ok(found?),
    }
}

/// The thread for a filter: `latest`, or the beginning of an existing id.
pub(super) fn thread_or_beginning(read: &mut Read, name: &str) -> Result<String, CliError> {
    match find(name, &known(read)?) {
        Ok(thread) => Ok(thread),
        // A filter may match several threads, and threads without messages.
        Err(_) if name != LATEST => Ok(name.to_owned()),
        Err(error) => Err(error.described(&[&read.session.dir]).into()),
    }
}

/// The thread with the latest entry, also one that no person speaks in.
pub(super) fn latest_of_all(read: &mut Read) -> Result<String, CliError> {
    let known = known(read)?;
    match read.latest_thread()? {
        Some(latest) => Ok(latest),
        None => Ok(find(LATEST, &known)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_found_by_unique_beginning() {
        let threads = ["ab-2", "ab-1", "c"].map(str::to_owned);
        let check = |name: &str, expect: Result<&str, &str>| match (find(name, &threads), expect) {
            (Ok(found), Ok(expect)) => assert_eq!(found, expect),
            (Err(why), Err(words)) => assert!(why.to_string().contains(words), "{why}"),
            (found, expect) => panic!("{name}: {found:?}, not {expect:?}"),
        };
        check("latest", Ok("ab-2"));
        check("c", Ok("c"));
        check("ab-1", Ok("ab-1"));
        check("ab", Err("several threads: ab-2; ab-1; give more"));
        check("x", Err("unknown thread `x`; threads in this session, latest first: ab-2; ab-1; c"));
        check("", Err("unknown thread ``"));
        let none = find("latest", &[]).expect_err("there is no thread").to_string();
        assert!(none.contains("no threads yet") && none.contains("--new"), "{none}");
    }
}
