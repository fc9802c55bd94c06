//! Asks the sessions how they are, and carries answers to them: all that goes through a control socket.
//!
//! One thread looks, every second or when it is told to; what may take long, an answer or a turn, has a thread of its own
//! for as long as it takes, which is human traffic.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::{Value, json};

use super::ask::{Ask, of_row};
use super::model::{Event, First, Link, Live, News, SessionRow};
use super::reader::{Gone, Teller};
use crate::control::answer::is_stored;
use crate::control::client::{self, Answer};
use crate::control::{SessionDocument, with_choices};
use crate::store::Found;

/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The same for the list of all sessions.
const LIST_EVERY: Duration = Duration::from_secs(2);

/// How long a relay may take to start or stop a turn: it gives the server 30 s.
const TURN_WAIT_MAX: Duration = Duration::from_secs(35);

/// How long it may take to keep an answer: it gives itself 10 s.
const DECISION_WAIT_MAX: Duration = Duration::from_secs(15);

/// A thread that looks until this is dropped.
#[derive(Debug)]
pub(super) struct Looking {
    look: SyncSender<()>,
}

impl Looking {
    /// Looks now.
    pub(super) fn now(&self) {
        // One that waits already is enough.
        let _ = self.look.try_send(());
    }
}

fn start(
    name: &str,
    every: Duration,
    mut look: impl FnMut() -> Result<(), Gone> + Send + 'static,
) -> io::Result<Looking> {
    let (now, told) = sync_channel(1);
    let until_told = move |told: &Receiver<()>| told.recv_timeout(every) != Err(RecvTimeoutError::Disconnected);
    std::thread::Builder::new().name(name.to_owned()).spawn(move || while look().is_ok() && until_told(&told) {})?;
    Ok(Looking { look: now })
}

/// Looks at all sessions.
pub(super) fn list(home: &Path, events: SyncSender<Event>) -> io::Result<Looking> {
    let home = home.to_owned();
    start("list", LIST_EVERY, move || {
        // A folder that cannot be read now may be read later.
        let found = Found::all(&home).unwrap_or_default();
        let rows = std::thread::scope(|scope| {
            let asked: Vec<_> = found
                .iter()
                .map(|session| (session, session.live.then(|| scope.spawn(|| document(session)))))
                .collect();
            asked
                .into_iter()
                .map(|(session, asked)| row(session, asked.and_then(|asked| asked.join().ok().flatten())))
                .collect()
        });
        events.send(Event::Listed(rows)).map_err(|_| Gone)
    })
}

fn document(session: &Found) -> Option<SessionDocument> {
    let answer = client::get(&session.dir, "/sessions/self").ok()?;
    serde_json::from_slice(&answer.body).ok()
}

fn row(session: &Found, document: Option<SessionDocument>) -> SessionRow {
    SessionRow {
        id: session.id.clone(),
        live: session.live,
        state: document.as_ref().map(|document| document.state),
        pending: document.as_ref().map_or(0, |document| document.pending_requests),
        cwd: session.holder.as_ref().map(|holder| holder.place.cwd.clone()).unwrap_or_default(),
        used_us: us(session.last_used),
    }
}

/// A time in microseconds since the Unix epoch.
pub(super) fn us(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

fn parsed_us(text: &str) -> Option<u64> {
    humantime::parse_rfc3339(text).ok().map(us)
}

/// Looks at one session.
pub(super) fn session(found: Found, teller: Teller) -> io::Result<Looking> {
    let mut known = BTreeSet::new();
    let mut last = None;
    start("look", LOOK_EVERY, move || {
        let link = link(&found);
        let is_up = matches!(link, Link::Up(_));
        if last.as_ref() != Some(&link) {
            teller.tell(News::Linked(link.clone()))?;
            last = Some(link);
        }
        let asks = if is_up { pending(&found.dir) } else { Some(Vec::new()) };
        let Some(asks) = asks else { return Ok(()) };
        let now: BTreeSet<String> = asks.iter().map(|ask| ask.id.clone()).collect();
        let gone: Vec<String> = known.difference(&now).cloned().collect();
        let ended = gone.iter().filter_map(|id| ended(&found.dir, id)).collect();
        if known != now || !asks.is_empty() {
            teller.tell(News::Pending { asks, ended })?;
        }
        known = now;
        Ok(())
    })
}

fn link(found: &Found) -> Link {
    match client::get(&found.dir, "/sessions/self").map(|answer| answer.document::<SessionDocument>()) {
        Ok(Ok(document)) => {
            let state = document.state;
            let threads = document.threads.iter().filter(|thread| thread.activity_state == state);
            let since_us = threads.filter_map(|thread| parsed_us(&thread.since)).max();
            Link::Up(Box::new(Live { since_us, document: steady(document) }))
        }
        Ok(Err(why)) => Link::Silent(why),
        Err(_) if !found.is_still_live() => Link::Stopped,
        Err(error) => Link::Silent(error.to_string()),
    }
}

/// Without what changes all the time and is shown nowhere, so that what has not changed is told once.
fn steady(mut document: SessionDocument) -> SessionDocument {
    document.counters = crate::control::Counters::default();
    document.journal = crate::control::JournalDocument::default();
    document.index = crate::control::IndexDocument::NONE;
    document
}

/// What waits; `None` where that cannot be told just now.
fn pending(dir: &Path) -> Option<Vec<Ask>> {
    #[derive(Deserialize)]
    struct Rows {
        requests: Vec<Value>,
    }
    let answer = client::get(dir, "/sessions/self/codex-pending-requests").ok()?;
    let Rows { requests } = answer.document().ok()?;
    Some(requests.into_iter().map(|row| ask(whole(dir, row))).collect())
}

/// A row with all that is asked: of many together some come without it.
fn whole(dir: &Path, row: Value) -> Value {
    let is_cut = row["request_payload"]["omitted"] == "size";
    match row["request_id"].as_str().filter(|_| is_cut).and_then(|id| ended(dir, id)) {
        Some(whole) => with_choices(whole),
        None => row,
    }
}

fn ask(row: Value) -> Ask {
    let asked_us = row["requested_at"].as_str().and_then(parsed_us).unwrap_or_default();
    of_row(row, asked_us)
}

/// The row of a request, whatever has become of it.
fn ended(dir: &Path, id: &str) -> Option<Value> {
    let answer = client::get(dir, &format!("/sessions/self/codex-requests/{id}")).ok()?;
    let mut document: Value = answer.document().ok()?;
    Some(document["request"].take())
}

/// What is done at the socket in a thread of its own.
#[derive(Debug)]
pub(super) enum Errand {
    Respond { request_id: String, body: Value },
    Say { text: String, thread_id: Option<String> },
    Interrupt(Option<String>),
}

/// Does it, and tells what came of it.
pub(super) fn run(errand: Errand, dir: PathBuf, teller: Teller) -> io::Result<()> {
    std::thread::Builder::new().name("errand".to_owned()).spawn(move || {
        let news = match errand {
            Errand::Respond { request_id, body } => {
                let result = respond(&dir, &request_id, &body);
                News::Responded { request_id, result }
            }
            Errand::Say { text, thread_id } => News::Said(say(&dir, &text, thread_id.as_deref())),
            Errand::Interrupt(thread_id) => {
                let body = in_thread(json!({}), thread_id.as_deref());
                News::Interrupted(post(&dir, "/sessions/self/interrupt", &body).map(drop))
            }
        };
        let _ = teller.tell(news);
    })?;
    Ok(())
}

fn post(dir: &Path, path: &str, body: &Value) -> Result<Value, String> {
    let asked = client::post_by_tui(dir, path, body.to_string(), TURN_WAIT_MAX);
    asked.map_err(|error| error.to_string())?.document()
}

/// A body that names its thread, where there is one to name.
fn in_thread(mut body: Value, thread_id: Option<&str>) -> Value {
    if let Some(thread_id) = thread_id {
        body["thread_id"] = json!(thread_id);
    }
    body
}

fn say(dir: &Path, text: &str, thread_id: Option<&str>) -> Result<String, String> {
    let turn = post(dir, "/sessions/self/input", &in_thread(json!({ "text": text }), thread_id))?;
    Ok(match turn["steered"] == true {
        true => "said in the turn that runs".to_owned(),
        false => "a turn has begun".to_owned(),
    })
}

fn respond(dir: &Path, request_id: &str, body: &Value) -> Result<(Value, First), String> {
    let path = format!("/sessions/self/codex-requests/{request_id}/respond");
    let asked = client::post_by_tui(dir, &path, body.to_string(), DECISION_WAIT_MAX);
    let answer: Answer = asked.map_err(|error| match error.is_unsent() {
        true => format!("nothing was sent: {error}"),
        false => format!("it is not known whether that was taken: {error}"),
    })?;
    let mut document: Value = answer.document()?;
    let row = document["request"].take();
    let first = match document["idempotent"] == true && !is_stored(&row, body) {
        true => First::Other,
        false => First::We,
    };
    Ok((row, first))
}
