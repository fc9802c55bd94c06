//! The inbox: the pending requests of all sessions, polled once for all tabs.
//!
//! One thread lists the sessions. Each live session has a thread that polls its relay, so a hung relay delays only its own
//! session. The threads pause while no page is open. Each tab remembers the number of the last change that it received, and
//! requests newer changes; the inbox has no queue per tab.
//!
//! A source that knows all answers may have more sessions than threads are wanted for. Then a session with requests takes the
//! place of one without, and the page says how many it leaves out.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::shown;
use crate::api::SessionDocument;
use crate::control::client::Unanswered;
use crate::control::sort_by_arrival;
use crate::hub::Down;
use crate::sessions::ask::Ask;
use crate::sessions::poller::{Requests, ended};
use crate::sessions::source::{Polling, Source};
use crate::store::Found;

/// Polling interval of a relay without traffic. A relay counts as busy for this time after traffic.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Polling interval of a busy relay, and of the size of every relay's journal.
const ASK_BUSY_EVERY: Duration = Duration::from_millis(40);

/// Interval at which a thread lists the sessions.
const LIST_EVERY: Duration = Duration::from_secs(1);

/// How long the threads go on without a page.
const REST_AFTER: Duration = Duration::from_secs(10);

/// How long a relay may fail to answer before the page says so: a relay holds its lock before it listens.
const PROBLEM_AFTER: Duration = Duration::from_secs(3);

/// How long a page waits for new answers of all relays.
const FRESH_WAIT_MAX: Duration = Duration::from_secs(3);

/// Live sessions that are watched.
const WATCHED_MAX: usize = 64;

/// The same if their source knows all answers already.
const KNOWN_WATCHED_MAX: usize = 256;

fn watched_max(polling: Polling) -> usize {
    match polling {
        Polling::Relays => WATCHED_MAX,
        Polling::Known => KNOWN_WATCHED_MAX,
    }
}

fn look_every(polling: Polling) -> Duration {
    match polling {
        Polling::Relays => ASK_BUSY_EVERY,
        Polling::Known => ASK_EVERY,
    }
}

/// The state of a live session that is not watched.
const LEFT_OUT: &str = "not watched here: too many sessions are live";

/// Stopped sessions that are listed.
const STOPPED_MAX: usize = 50;

/// Total JSON bytes of the listed requests. Beyond this limit the inbox shortens further requests.
const REQUESTS_BYTES_MAX: usize = 4 << 20;

/// Most requests in the inbox. Further requests appear after earlier ones have ended.
const REQUESTS_MAX: usize = 500;

/// Most requests of one session in the inbox, so that it hides no other session.
const REQUESTS_OF_SESSION_MAX: usize = 100;

/// Ends of requests that are remembered for slow tabs.
const ENDED_MAX: usize = 128;

/// The inbox; its threads end with the process.
#[derive(Debug, Clone)]
pub(super) struct Inbox(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    home: PathBuf,
    source: Arc<dyn Source>,
    /// The only session to show.
    only: Option<String>,
    state: Mutex<State>,
    /// The number of the last change.
    changed: watch::Sender<u64>,
    /// Changes whenever a thread has looked.
    looked: watch::Sender<()>,
    readers: AtomicUsize,
    list: SyncSender<()>,
}

#[derive(Debug, Default)]
struct State {
    change: u64,
    found: Vec<Found>,
    /// Some live session is not watched.
    is_full: bool,
    /// Number of completed listings.
    lists: u64,
    wanted_at: Option<Instant>,
    watched: BTreeMap<String, Watched>,
    sessions: Vec<Value>,
    /// The requests of each session, if the source knows them.
    waiting: HashMap<String, usize>,
    /// The title of the list of sessions, which says what is left out.
    title: String,
    sessions_changed: u64,
    /// Number of watches that were begun.
    watches: u64,
    requests: Vec<Pending>,
    ended: VecDeque<(u64, Arc<str>)>,
    /// The change of the last end that is forgotten.
    forgotten: u64,
}

/// A live session.
#[derive(Debug)]
struct Watched {
    /// Tells this watch from a later one of the same session.
    number: u64,
    look: SyncSender<()>,
    /// Number of completed polls.
    looks: u64,
    /// The last poll had no answer.
    is_silent: bool,
    document: Option<SessionDocument>,
    problem: Option<String>,
}

#[derive(Debug)]
struct Pending {
    session: String,
    ask: Arc<Ask>,
    since: String,
    changed: u64,
    json: Arc<str>,
}

/// Changes since the one that a tab has seen.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) change: u64,
    pub(super) sessions: Option<String>,
    pub(super) requests: Vec<Arc<str>>,
    pub(super) ended: Vec<Arc<str>>,
}

/// An open page; without one the threads rest.
#[derive(Debug)]
pub(super) struct Reader(Arc<Shared>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.state().wanted_at = Some(Instant::now());
        self.0.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Inbox {
    /// # Errors
    ///
    /// The thread could not be started.
    pub(super) fn start(home: PathBuf, source: Arc<dyn Source>, only: Option<String>) -> std::io::Result<Inbox> {
        let (list, listed) = sync_channel(1);
        let shared = Arc::new(Shared {
            home,
            source,
            only,
            state: Mutex::default(),
            changed: watch::channel(0).0,
            looked: watch::channel(()).0,
            readers: AtomicUsize::new(0),
            list,
        });
        let own = Arc::clone(&shared);
        std::thread::Builder::new().name("list".to_owned()).spawn(move || list_sessions(&own, &listed))?;
        Ok(Inbox(shared))
    }

    pub(super) fn reader(&self) -> Reader {
        self.0.readers.fetch_add(1, Ordering::Relaxed);
        Reader(Arc::clone(&self.0))
    }

    pub(super) fn changed(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Makes the threads look now.
    pub(super) fn look(&self) {
        let mut state = self.0.state();
        state.wanted_at = Some(Instant::now());
        // A look that is already due is enough.
        let _ = self.0.list.try_send(());
        for watched in state.watched.values() {
            let _ = watched.look.try_send(());
        }
    }

    /// Waits until all relays have answered once more, but not for one that did not answer the last time.
    pub(super) async fn refresh(&self) {
        let mut looked = self.0.looked.subscribe();
        let (lists, looks): (u64, BTreeMap<String, u64>) = {
            let state = self.0.state();
            (state.lists, state.watched.iter().map(|(id, watched)| (id.clone(), watched.looks)).collect())
        };
        self.look();
        let is_done = || {
            let state = self.0.state();
            state.lists > lists && state.is_fresh(&looks)
        };
        let done = async { while !is_done() && looked.changed().await.is_ok() {} };
        let _ = timeout(FRESH_WAIT_MAX, done).await;
    }

    /// The whole inbox as JSON, and the change that it has.
    pub(super) fn snapshot(&self) -> (u64, String) {
        let state = self.0.state();
        let requests: Vec<&str> = state.requests.iter().map(|pending| &*pending.json).collect();
        let text = format!(
            r#"{{"now":{},"version":{},"home":{},"title":{},"requests":[{}],"sessions":{}}}"#,
            json!(now()),
            json!(env!("CARGO_PKG_VERSION")),
            json!(self.0.home.to_string_lossy()),
            json!(state.title),
            requests.join(","),
            json!(state.sessions),
        );
        (state.change, text)
    }

    /// The changes after one; `None` if the ends since then are forgotten.
    pub(super) fn since(&self, change: u64) -> Option<Changes> {
        let state = self.0.state();
        if change < state.forgotten {
            return None;
        }
        let sessions = || json!({ "now": now(), "title": state.title, "sessions": state.sessions }).to_string();
        let sessions = (state.sessions_changed > change).then(sessions);
        let requests = state.requests.iter().filter(|pending| pending.changed > change);
        let ended = state.ended.iter().filter(|(at, _)| *at > change);
        Some(Changes {
            change: state.change,
            sessions,
            requests: requests.map(|pending| Arc::clone(&pending.json)).collect(),
            ended: ended.map(|(_, json)| Arc::clone(json)).collect(),
        })
    }

    /// All sessions that are shown, listed anew.
    pub(super) fn sessions(&self) -> Vec<Found> {
        self.0.all()
    }

    /// The session with this id, listed anew.
    pub(super) fn session(&self, id: &str) -> Option<Found> {
        self.0.all().into_iter().find(|session| session.id == id)
    }
}

/// The current time, RFC 3339.
pub(super) fn now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_wanted(&self) -> bool {
        self.readers.load(Ordering::Relaxed) > 0 || self.state().wanted_at.is_some_and(|at| at.elapsed() < REST_AFTER)
    }

    fn all(&self) -> Vec<Found> {
        let mut all = self.source.all();
        all.retain(|session| self.only.as_ref().is_none_or(|only| *only == session.id));
        all
    }

    /// Changes the state, and tells the tabs if there is something new for them.
    fn update(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        let before = state.change;
        change(&mut state);
        state.list_again();
        let after = state.change;
        drop(state);
        if after != before {
            self.changed.send_replace(after);
        }
        self.looked.send_replace(());
    }
}

impl State {
    /// Whether every relay that usually answers has been polled since `looks`, the numbers of polls at that time.
    fn is_fresh(&self, looks: &BTreeMap<String, u64>) -> bool {
        let has_looked = |(id, watched): (&String, &Watched)| watched.looks > looks.get(id).copied().unwrap_or(0);
        self.watched.iter().all(|one| one.1.is_silent || has_looked(one))
    }

    fn next_change(&mut self) -> u64 {
        self.change += 1;
        self.change
    }

    fn list_again(&mut self) {
        let live = self.found.iter().filter(|session| session.live);
        let stopped = self.found.iter().filter(|session| !session.live).take(STOPPED_MAX);
        let shown = |session: &Found| {
            let watched = self.watched.get(&session.id);
            let document = watched.and_then(|watched| watched.document.as_ref());
            let is_left_out = self.is_left_out(session);
            let problem = watched.and_then(|watched| watched.problem.as_deref()).or(is_left_out.then_some(LEFT_OUT));
            let down = Down::with_server(session).map(|down| down.in_list());
            let mut told = shown::session(session, document, problem.or(down.as_deref()));
            if is_left_out {
                told["pending"] = json!(self.waiting.get(&session.id).copied().unwrap_or(0));
            }
            told
        };
        let sessions: Vec<Value> = live.chain(stopped).map(shown).collect();
        let title = self.title();
        if sessions != self.sessions || title != self.title {
            (self.sessions, self.title) = (sessions, title);
            self.sessions_changed = self.next_change();
        }
    }

    /// Whether there was no room to watch a live session.
    fn is_left_out(&self, session: &Found) -> bool {
        session.live && self.is_full && !self.watched.contains_key(&session.id)
    }

    fn title(&self) -> String {
        let left_out: Vec<&Found> = self.found.iter().filter(|session| self.is_left_out(session)).collect();
        let requests: usize = left_out.iter().filter_map(|session| self.waiting.get(&session.id)).sum();
        match (left_out.len(), requests) {
            (0, _) => "Sessions".to_owned(),
            (sessions, 0) => format!("Sessions ({sessions} of them not watched here)"),
            (sessions, requests) => {
                format!("Sessions ({sessions} of them not watched here, with {requests} requests that are not listed)")
            }
        }
    }

    /// The sessions to watch now, with those that wait for an answer first, at most `max` in all.
    ///
    /// If there is no room for one with requests, a watched session without requests is dropped for it.
    fn unwatched(&mut self, found: &[Found], max: usize) -> Vec<Found> {
        let has_requests = |id: &str| self.waiting.get(id).is_some_and(|count| *count > 0);
        let is_new = |session: &&Found| session.live && !self.watched.contains_key(&session.id);
        let (mut new, idle): (Vec<&Found>, Vec<&Found>) =
            found.iter().filter(is_new).partition(|session| has_requests(&session.id));
        let lacking = (self.watched.len() + new.len()).saturating_sub(max);
        // The page shows only the state of a session without requests.
        let leaves = |id: &&String| !has_requests(id) && !self.requests.iter().any(|pending| pending.session == **id);
        let left: Vec<String> = self.watched.keys().filter(leaves).take(lacking).cloned().collect();
        new.extend(idle);
        let room = max.saturating_sub(self.watched.len() - left.len());
        self.is_full = new.len() > room || !left.is_empty();
        let taken = new.into_iter().take(room).cloned().collect();
        // Its thread ends.
        left.iter().for_each(|id| drop(self.watched.remove(id)));
        taken
    }

    /// The watch with this number, if it was not replaced.
    fn watch(&mut self, id: &str, number: u64) -> Option<&mut Watched> {
        self.watched.get_mut(id).filter(|watched| watched.number == number)
    }

    /// Adds the requests that are new, up to the limits. `asks` are in the order of their arrival.
    fn add(&mut self, found: &Found, asks: &[Arc<Ask>]) {
        for ask in asks {
            let known = self.requests.iter().position(|known| known.session == found.id && known.ask.id == ask.id);
            match known {
                Some(index) if Arc::ptr_eq(&self.requests[index].ask, ask) => continue,
                // More of it has become known.
                Some(index) => drop(self.requests.remove(index)),
                None => {}
            }
            if self.requests.len() == REQUESTS_MAX || self.ids_of(&found.id).len() == REQUESTS_OF_SESSION_MAX {
                break;
            }
            let bytes: usize = self.requests.iter().map(|pending| pending.json.len()).sum();
            let room = if bytes < REQUESTS_BYTES_MAX { shown::IN_LIST } else { shown::IN_LONG_LIST };
            let document = self.watched.get(&found.id).and_then(|watched| watched.document.as_ref());
            let client = document.and_then(|document| document.client.name.as_deref());
            let pending = Pending {
                session: found.id.clone(),
                ask: Arc::clone(ask),
                since: ask.row.requested_at.clone(),
                json: shown::request(found, client, ask, room).to_string().into(),
                changed: self.next_change(),
            };
            self.requests.push(pending);
        }
        let place = |pending: &Pending| match pending.session == found.id {
            true => asks.iter().position(|ask| ask.id == pending.ask.id),
            false => None,
        };
        self.requests.sort_by_cached_key(place);
        sort_by_arrival(&mut self.requests, |pending| pending.session.clone(), |pending| pending.since.clone());
    }

    /// Removes a request; `ending` says how it has ended.
    fn end(&mut self, session: &str, request_id: &str, mut ending: Value) {
        self.requests.retain(|pending| pending.session != session || pending.ask.id != request_id);
        ending["session"] = json!(session);
        ending["request_id"] = json!(request_id);
        if self.ended.len() == ENDED_MAX
            && let Some((change, _)) = self.ended.pop_front()
        {
            self.forgotten = change;
        }
        let change = self.next_change();
        self.ended.push_back((change, ending.to_string().into()));
    }

    fn ids_of(&self, session: &str) -> Vec<String> {
        let of_session = self.requests.iter().filter(|pending| pending.session == session);
        of_session.map(|pending| pending.ask.id.clone()).collect()
    }
}

fn list_sessions(shared: &Arc<Shared>, told: &Receiver<()>) {
    loop {
        let goes_on = match shared.is_wanted() {
            true => told.recv_timeout(LIST_EVERY).map_or_else(is_due, |()| true),
            false => told.recv().is_ok(),
        };
        if !goes_on {
            return;
        }
        let found = shared.all();
        let waiting = shared.source.waiting().unwrap_or_default();
        let unwatched = {
            let mut state = shared.state();
            state.waiting = waiting;
            state.unwatched(&found, watched_max(shared.source.polling()))
        };
        // A caller of `refresh` also waits for the first poll of each new session.
        for session in unwatched {
            watch_session(shared, session);
        }
        shared.update(|state| {
            state.found = found;
            state.lists += 1;
        });
    }
}

fn is_due(error: std::sync::mpsc::RecvTimeoutError) -> bool {
    error == std::sync::mpsc::RecvTimeoutError::Timeout
}

/// Starts the thread that asks the relay of a session.
fn watch_session(shared: &Arc<Shared>, found: Found) {
    let (look, told) = sync_channel(1);
    let id = found.id.clone();
    let number = {
        let mut state = shared.state();
        state.watches += 1;
        let number = state.watches;
        let watched = Watched { number, look, looks: 0, is_silent: false, document: None, problem: None };
        state.watched.insert(id.clone(), watched);
        number
    };
    let own = Arc::clone(shared);
    let watch = Watch { found, number };
    let started = std::thread::Builder::new().name("watch".to_owned()).spawn(move || ask_relay(&own, &watch, &told));
    if let Err(error) = started {
        tracing::warn!(%error, "start a thread for a session");
        shared.state().watched.remove(&id);
    }
}

/// The work of a thread that asks a relay.
struct Watch {
    found: Found,
    number: u64,
}

/// Asks a relay until it has ended, no page is open, or another session takes its place.
fn ask_relay(shared: &Shared, watch: &Watch, told: &Receiver<()>) {
    let found = &watch.found;
    let mut requests = Requests::default();
    let mut answered_at = Instant::now();
    let mut traffic = Traffic::default();
    while shared.is_wanted() {
        match shared.source.state(found) {
            Ok(document) => {
                answered_at = Instant::now();
                requests.read(&*shared.source, found, &document);
                take(shared, watch, document, &requests.asks);
            }
            Err(Unanswered::NoAnswer(_)) if !shared.source.is_still_live(found) => break,
            Err(error) => {
                let why =
                    error.away().map_or_else(|| format!("it does not answer: {}", error.why(found)), str::to_owned);
                has_problem(shared, watch, answered_at, why);
            }
        }
        if !traffic.wait(&*shared.source, found, told) {
            break;
        }
    }
    let has_ended = !shared.source.is_still_live(found);
    shared.update(|state| {
        if state.watch(&found.id, watch.number).is_none() {
            return;
        }
        state.watched.remove(&found.id);
        if !has_ended {
            // No page is open. The next thread lists the requests again.
            return state.requests.retain(|pending| pending.session != found.id);
        }
        state.found.iter_mut().filter(|session| session.id == found.id).for_each(|session| session.live = false);
        for request_id in state.ids_of(&found.id) {
            let why = "its session has stopped, so no answer reaches codex any more";
            state.end(&found.id, &request_id, shown::unknown_ending(why));
        }
    });
}

/// Tells a busy relay from an idle one by the size of its journal.
#[derive(Default)]
struct Traffic {
    last: Option<(String, u64)>,
    seen_at: Option<Instant>,
}

impl Traffic {
    /// Waits until the next poll is due; `false` ends the thread. The relay writes a request to the journal before the ledger
    /// has it, so a busy relay needs several polls after the last traffic.
    fn wait(&mut self, source: &dyn Source, found: &Found, told: &Receiver<()>) -> bool {
        let asked_at = Instant::now();
        loop {
            match told.recv_timeout(look_every(source.polling())) {
                Ok(()) => return true,
                Err(error) if !is_due(error) => return false,
                Err(_) => self.look(source.traffic(found)),
            }
            let is_busy = self.seen_at.is_some_and(|at| at.elapsed() < ASK_EVERY);
            if is_busy || asked_at.elapsed() >= ASK_EVERY {
                return true;
            }
        }
    }

    fn look(&mut self, traffic: (String, u64)) {
        if self.last.as_ref() != Some(&traffic) {
            (self.last, self.seen_at) = (Some(traffic), Some(Instant::now()));
        }
    }
}

/// Takes the answer of a relay, and asks how the requests have ended that no longer wait.
fn take(shared: &Shared, watch: &Watch, document: SessionDocument, asks: &[Arc<Ask>]) {
    let found = &watch.found;
    let known = shared.state().ids_of(&found.id);
    let gone = known.into_iter().filter(|id| !asks.iter().any(|ask| ask.id == *id));
    let gone: Vec<(String, Value)> =
        gone.map(|id| (ending_of(shared, found, &id), id)).map(|(ending, id)| (id, ending)).collect();
    shared.update(|state| {
        let Some(watched) = state.watch(&found.id, watch.number) else { return };
        watched.document = Some(document);
        watched.problem = None;
        watched.is_silent = false;
        watched.looks += 1;
        gone.into_iter().for_each(|(id, ending)| state.end(&found.id, &id, ending));
        state.add(found, asks);
    });
}

fn ending_of(shared: &Shared, found: &Found, request_id: &str) -> Value {
    match ended(&*shared.source, found, request_id) {
        Some(row) => shown::ending(&row),
        None => shown::unknown_ending("the request no longer waits"),
    }
}

/// Notes that a relay does not answer. Its requests stay: it may only be slow.
fn has_problem(shared: &Shared, watch: &Watch, answered_at: Instant, why: String) {
    shared.update(|state| {
        if let Some(watched) = state.watch(&watch.found.id, watch.number) {
            watched.is_silent = true;
            watched.looks += 1;
            if answered_at.elapsed() >= PROBLEM_AFTER {
                watched.problem = Some(why);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Request;
    use crate::control::client::Caller;
    use crate::requests::request_testing::one_of_each_kind;
    use crate::sessions::ask::of_row;
    use crate::sessions::source::Home;

    fn found(id: &str) -> Found {
        Found {
            id: id.to_owned(),
            dir: PathBuf::from(id),
            live: true,
            holder: None,
            repository: None,
            threads: None,
            last_used: SystemTime::UNIX_EPOCH,
        }
    }

    fn asks(count: usize, diff_lines: usize) -> Vec<Arc<Ask>> {
        let wanted = |row: &&Request| row.request_type == "approval" && row.changes.is_array();
        let kinds = one_of_each_kind();
        let like = kinds.iter().find(wanted).unwrap_or(&kinds[0]);
        let ask = |index: usize| {
            let mut row = like.clone();
            row.request_id = format!("r{index}");
            if diff_lines > 0 {
                let diff = "+a line of a diff\n".repeat(diff_lines);
                row.changes = json!([{ "path": "/w/a.txt", "kind": { "type": "add" }, "diff": diff }]);
            }
            Arc::new(of_row(row, 0))
        };
        (0..count).map(ask).collect()
    }

    fn watched(number: u64) -> Watched {
        Watched { number, look: sync_channel(1).0, looks: 0, is_silent: false, document: None, problem: None }
    }

    #[test]
    fn sessions_with_requests_are_watched_first() {
        let mut state = State::default();
        let all: Vec<Found> = (0..8).map(|number| found(&format!("s{number}"))).collect();
        let watch = |state: &mut State| -> Vec<String> {
            let new = state.unwatched(&all, 4);
            new.iter().for_each(|session| drop(state.watched.insert(session.id.clone(), watched(0))));
            state.found = all.clone();
            state.list_again();
            new.into_iter().map(|session| session.id).collect()
        };
        assert_eq!(watch(&mut state), ["s0", "s1", "s2", "s3"]);
        assert_eq!(state.title, "Sessions (4 of them not watched here)");
        // A session without room gets a request: one without requests is watched no longer.
        state.waiting = HashMap::from([("s7".to_owned(), 2), ("s0".to_owned(), 1)]);
        assert_eq!(watch(&mut state), ["s7"]);
        assert!(state.watched.contains_key("s0") && state.watched.len() == 4);
        // One whose request is listed stays, even if it was answered meanwhile.
        state.add(&found("s2"), &asks(1, 0));
        state.waiting = (3..8).map(|number| (format!("s{number}"), 1)).collect();
        assert_eq!(watch(&mut state), ["s4"]);
        assert_eq!(state.watched.keys().collect::<Vec<_>>(), ["s2", "s3", "s4", "s7"]);
        assert_eq!(state.title, "Sessions (4 of them not watched here, with 2 requests that are not listed)");
        let of = |id: &str| state.sessions.iter().find(|session| session["id"] == id).cloned().unwrap_or_default();
        assert_eq!((&of("s6")["pending"], &of("s6")["words"]), (&json!(1), &json!(LEFT_OUT)));
        // With room for all, nothing is left out.
        let new = state.unwatched(&all, 8);
        new.iter().for_each(|session| drop(state.watched.insert(session.id.clone(), watched(0))));
        state.list_again();
        assert_eq!((state.watched.len(), &*state.title), (8, "Sessions"));
    }

    #[test]
    fn one_session_hides_no_other() {
        let mut state = State::default();
        state.add(&found("long"), &asks(REQUESTS_OF_SESSION_MAX + 1, 0));
        assert_eq!(state.requests.len(), REQUESTS_OF_SESSION_MAX);
        state.add(&found("short"), &asks(1, 0));
        assert_eq!(state.ids_of("short"), ["r0"]);
        // One that ends makes room for another.
        state.end("long", "r0", Value::Null);
        state.add(&found("long"), &asks(REQUESTS_OF_SESSION_MAX + 1, 0)[1..]);
        assert_eq!(state.ids_of("long").len(), REQUESTS_OF_SESSION_MAX);
    }

    #[test]
    fn hung_relay_is_not_waited_for() {
        let watched = |looks, is_silent| Watched { looks, is_silent, ..watched(0) };
        let mut state = State::default();
        state.watched.insert("hung".to_owned(), watched(3, true));
        state.watched.insert("well".to_owned(), watched(7, false));
        let looks = BTreeMap::from([("hung".to_owned(), 3), ("well".to_owned(), 7)]);
        assert!(!state.is_fresh(&looks), "the other one is");
        state.watched.insert("well".to_owned(), watched(8, false));
        assert!(state.is_fresh(&looks));
        state.watched.insert("new".to_owned(), watched(0, false));
        assert!(!state.is_fresh(&looks), "a relay that was never polled is waited for");
    }

    #[test]
    fn request_of_which_more_is_known_is_sent_again() {
        let mut state = State::default();
        let found = found("s");
        state.add(&found, &asks(2, 0));
        let (before, first) = (state.change, Arc::clone(&state.requests[0].json));
        state.add(&found, &[asks(1, 3), state.requests[1..].iter().map(|one| Arc::clone(&one.ask)).collect()].concat());
        assert_eq!(state.requests.len(), 2);
        let of = |id: &str| state.requests.iter().find(|pending| pending.ask.id == id).expect("it is listed");
        assert!(of("r0").changed > before && of("r0").json != first, "{}", of("r0").json);
        assert!(of("r1").changed <= before);
    }

    #[test]
    fn requests_are_listed_by_arrival() {
        let asked = |id: &str, at: &str| {
            let mut row = one_of_each_kind()[0].clone();
            (row.request_id, row.requested_at) = (id.to_owned(), format!("2026-01-02T{at}:00.000Z"));
            Arc::new(of_row(row, 0))
        };
        let mut state = State::default();
        let add = |state: &mut State, session: &str, asks: &[Arc<Ask>]| -> String {
            state.add(&found(session), asks);
            let listed = state.requests.iter().map(|pending| pending.ask.id.as_str());
            listed.collect::<Vec<_>>().join(" ")
        };
        let mut a = vec![asked("a1", "12:00")];
        assert_eq!(add(&mut state, "a", &a), "a1");
        // The clock is set back, forward, and back again.
        for (id, at, expect) in [("a2", "10:00", "a1 a2"), ("a3", "18:00", "a1 a2 a3"), ("a4", "09:00", "a1 a2 a3 a4")]
        {
            a.push(asked(id, at));
            assert_eq!(add(&mut state, "a", &a), expect);
        }
        assert_eq!(add(&mut state, "b", &[asked("b1", "08:00"), asked("b2", "09:30")]), "b1 a1 a2 a3 a4 b2");
        // More of the first one has become known.
        a[0] = asked("a1", "12:00");
        assert_eq!(add(&mut state, "a", &a), "b1 a1 a2 a3 a4 b2");
        state.end("a", "a4", Value::Null);
        a.pop();
        assert_eq!(add(&mut state, "a", &a), "b1 b2 a1 a2 a3");
    }

    #[test]
    fn relay_without_an_answer_is_not_waited_for_again() {
        let shared = Shared {
            home: PathBuf::new(),
            source: Arc::new(Home { path: PathBuf::new(), caller: Caller::Web }),
            only: None,
            state: Mutex::default(),
            changed: watch::channel(0).0,
            looked: watch::channel(()).0,
            readers: AtomicUsize::new(0),
            list: sync_channel(1).0,
        };
        shared.state().watched.insert("hung".to_owned(), Watched { looks: 1, ..watched(7) });
        let watch = |number| Watch { found: found("hung"), number };
        // The thread of an earlier watch says nothing.
        has_problem(&shared, &watch(6), Instant::now(), "it hangs".to_owned());
        assert!(!shared.state().watched["hung"].is_silent);
        has_problem(&shared, &watch(7), Instant::now(), "it hangs".to_owned());
        let state = shared.state();
        assert!(state.is_fresh(&BTreeMap::from([("hung".to_owned(), 1)])), "its look has ended");
        assert!(state.is_fresh(&BTreeMap::from([("hung".to_owned(), 2)])), "the next look is not waited for");
    }

    #[test]
    fn inbox_has_at_most_500_requests() {
        let mut state = State::default();
        for session in 0..=REQUESTS_MAX / REQUESTS_OF_SESSION_MAX {
            state.add(&found(&format!("s{session}")), &asks(REQUESTS_OF_SESSION_MAX, 0));
        }
        assert_eq!(state.requests.len(), 500);
    }

    #[test]
    fn long_inbox_has_short_requests() {
        let mut state = State::default();
        for session in 0..3 {
            state.add(&found(&format!("s{session}")), &asks(REQUESTS_OF_SESSION_MAX, 1_000));
        }
        let bytes: usize = state.requests.iter().map(|pending| pending.json.len()).sum();
        let longest = state.requests.iter().map(|pending| pending.json.len()).max().unwrap_or_default();
        assert!(longest > 10_000, "{longest}");
        assert!((REQUESTS_BYTES_MAX..2 * REQUESTS_BYTES_MAX).contains(&bytes), "{bytes}");
    }
}
