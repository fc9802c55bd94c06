//! Polls sessions and sends answers: everything that asks a session.
//!
//! One thread polls, every second or on request. Answers and turns may take long, so each call gets its own thread; a person
//! cannot start many.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::{
    Command, InputBody, InterruptBody, ListedThread, OneRequest, OverruledDocument, Request, Responded,
    SessionDocument, TurnReply,
};
use crate::control::client::Unanswered;
use crate::hub::Down;
use crate::requests::answer::is_stored;
use crate::sessions::ask::{Ask, of_row};
use crate::sessions::at_once;
use crate::sessions::news::{First, News, NotOverruled, Overruling, Sent, SentInto};
use crate::sessions::news::{Link, Live};
use crate::sessions::reader::{Gone, Teller};
use crate::sessions::rows::{SessionRow, ThreadLine, Waiting};
use crate::sessions::source::Source;
use crate::store::Found;
use crate::text::parsed_us;

/// How often a session is polled.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often all sessions are polled.
const LIST_EVERY: Duration = Duration::from_secs(2);

/// A polling thread; it ends when this is dropped.
#[derive(Debug)]
pub struct Looking {
    look: SyncSender<()>,
}

impl Looking {
    pub fn now(&self) {
        // A poll that is already due is enough.
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

/// Polls all sessions.
pub fn list(
    source: &Arc<dyn Source>,
    listed: impl Fn(Vec<SessionRow>) -> Result<(), Gone> + Send + 'static,
) -> io::Result<Looking> {
    let source = Arc::clone(source);
    let mut known: HashMap<String, Requests> = HashMap::new();
    start("list", LIST_EVERY, move || {
        let found = source.all();
        let ids: HashSet<&str> = found.iter().map(|session| &*session.id).collect();
        known.retain(|id, _| ids.contains(&**id));
        let live = found.iter().filter(|session| session.live);
        let asked: Vec<(&Found, Mutex<Requests>)> =
            live.map(|session| (session, Mutex::new(known.remove(&session.id).unwrap_or_default()))).collect();
        let polled = at_once(&asked, |(session, requests)| {
            let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
            polled_or_lost(&*source, session, &mut requests)
        });
        let requests = asked.into_iter().map(|(session, requests)| (session.id.clone(), requests.into_inner()));
        known.extend(requests.map(|(id, requests)| (id, requests.unwrap_or_else(PoisonError::into_inner))));
        let mut polled = polled.into_iter();
        listed(found.iter().map(|session| row(session, session.live.then(|| polled.next()).flatten())).collect())
    })
}

/// A session's document, and the requests that wait for a person.
type SessionLook = (SessionDocument, Vec<Waiting>);

/// A poll that panics is a session that does not answer. What was known of it is forgotten.
fn polled_or_lost(
    source: &dyn Source,
    session: &Found,
    requests: &mut Requests,
) -> Result<SessionLook, Option<String>> {
    CATCHES.set(true);
    let caught = catch_unwind(AssertUnwindSafe(|| polled(source, session, requests)));
    CATCHES.set(false);
    caught.unwrap_or_else(|_| {
        *requests = Requests::default();
        Err(None)
    })
}

thread_local! {
    static CATCHES: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread is caught, so that it is no reason to end the program.
pub fn catches_panics() -> bool {
    CATCHES.get()
}

/// `Err` has the words for a session that cannot answer, if they are known.
fn polled(source: &dyn Source, session: &Found, requests: &mut Requests) -> Result<SessionLook, Option<String>> {
    let document = source.state(session).map_err(|error| error.away().map(str::to_owned))?;
    requests.read(source, session, &document);
    let waiting = requests.asks.iter().filter(|ask| ask.is_for_human());
    let waiting = waiting.map(|ask| Waiting::of(ask, &cwd(session))).collect();
    Ok((document, waiting))
}

/// The row of a session; one that has stopped was not polled.
fn row(session: &Found, polled: Option<Result<SessionLook, Option<String>>>) -> SessionRow {
    let (document, waiting, away) = match polled {
        Some(Ok((document, waiting))) => (Some(document), waiting, None),
        Some(Err(away)) => (None, Vec::new(), away),
        None => (None, Vec::new(), Down::with_server(session).map(|down| down.in_list())),
    };
    SessionRow {
        id: session.id.clone(),
        live: session.live,
        away,
        state: document.as_ref().map(|document| document.state),
        pending: document.as_ref().map_or(0, |document| document.pending_requests),
        waiting,
        cwd: cwd(session),
        threads: document.as_ref().map(thread_lines).unwrap_or_default(),
        client: document.and_then(|document| document.only_client().map(str::to_owned)),
        used_us: us(session.last_used),
    }
}

/// The rows of the threads in a document.
fn thread_lines(document: &SessionDocument) -> Vec<ThreadLine> {
    let line = |ListedThread { name, short_name, thread }: ListedThread<'_>| ThreadLine {
        id: thread.thread_id.clone(),
        name,
        short_name,
        state: thread.activity_state,
        since_us: parsed_us(&thread.since),
        about: thread.about().unwrap_or_default().to_owned(),
    };
    document.listed_threads().into_iter().map(line).collect()
}

fn cwd(session: &Found) -> String {
    session.holder.as_ref().map(|holder| holder.place.cwd.clone()).unwrap_or_default()
}

/// The pending requests of a session; they are read again only after traffic in the session.
#[derive(Default)]
pub struct Requests {
    pub asks: Vec<Arc<Ask>>,
    /// The relay's counters at the time of the read.
    read_at: Option<(Option<String>, u64, u64, u64)>,
}

impl Requests {
    /// Reads the requests if they may have changed.
    pub fn read(&mut self, source: &dyn Source, session: &Found, document: &SessionDocument) {
        let counters = &document.counters;
        let pending = document.pending_requests;
        let now = (document.generation.clone(), pending, counters.client_lines, counters.server_lines);
        if self.read_at.as_ref() == Some(&now) {
            return;
        }
        if pending == 0 {
            self.asks.clear();
            return;
        }
        let Ok(rows) = source.pending(session) else { return };
        // The count and the ledger are not read atomically.
        self.read_at = (rows.len() as u64 == pending).then_some(now);
        let mut known: BTreeMap<String, Arc<Ask>> =
            std::mem::take(&mut self.asks).into_iter().map(|ask| (ask.id.clone(), ask)).collect();
        let ask = |row: Request| {
            // The files of a change may become known after its request. Its summary names them.
            let known = known.remove(&row.request_id).filter(|known| known.row.summary == row.summary);
            known.unwrap_or_else(|| Arc::new(ask(whole(source, session, row))))
        };
        self.asks = rows.into_iter().map(ask).collect();
    }
}

/// Whether nothing about these requests has changed.
fn are_same(some: &[Arc<Ask>], others: &[Arc<Ask>]) -> bool {
    some.len() == others.len() && some.iter().zip(others).all(|(one, other)| Arc::ptr_eq(one, other))
}

pub fn us(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

/// Polls one session.
pub fn session(source: Arc<dyn Source>, found: Found, teller: Teller) -> io::Result<Looking> {
    let mut requests = Requests::default();
    let mut told: Option<Vec<Arc<Ask>>> = None;
    let mut last = None;
    start("look", LOOK_EVERY, move || {
        if last.is_none() {
            teller.tell(News::Placed(cwd(&found)))?;
        }
        let (link, document) = link(&*source, &found);
        match &document {
            Some(document) => requests.read(&*source, &found, document),
            None if link == Link::Stopped => requests.asks.clear(),
            None => {}
        }
        if last.as_ref() != Some(&link) {
            teller.tell(News::Linked(link.clone()))?;
            last = Some(link);
        }
        let before = told.as_deref().unwrap_or_default();
        let is_same = told.as_ref().is_some_and(|told| are_same(told, &requests.asks));
        if !is_same {
            let gone = ids(before).filter(|id| !ids(&requests.asks).any(|other| other == *id));
            let ended = gone.filter_map(|id| ended(&*source, &found, id)).collect();
            told = Some(requests.asks.clone());
            teller.tell(News::Pending { asks: requests.asks.clone(), ended })?;
        }
        Ok(())
    })
}

pub fn ids(asks: &[Arc<Ask>]) -> impl Iterator<Item = &str> {
    asks.iter().map(|ask| ask.id.as_str())
}

fn link(source: &dyn Source, found: &Found) -> (Link, Option<SessionDocument>) {
    match source.state(found) {
        Ok(document) => {
            let state = document.state;
            let threads = document.threads.iter().filter(|thread| thread.activity_state == state);
            let since_us = threads.filter_map(|thread| parsed_us(&thread.since)).max();
            (Link::Up(Box::new(Live { since_us, document: steady(document.clone()) })), Some(document))
        }
        Err(Unanswered::NoAnswer(_)) if !source.is_still_live(found) => (Link::Stopped, None),
        Err(error) => (Link::Silent(error.to_string()), None),
    }
}

/// A document without counters, so that an unchanged one is sent only once.
fn steady(mut document: SessionDocument) -> SessionDocument {
    document.counters = crate::api::Counters::default();
    document.journal = crate::api::JournalDocument::default();
    document.index = crate::api::IndexDocument::default();
    document
}

/// The whole row; a list omits large columns.
fn whole(source: &dyn Source, session: &Found, row: Request) -> Request {
    // Its large members share the room of a list. The whole row has room for all of them.
    let whole = row.is_cut().then(|| ended(source, session, &row.request_id)).flatten();
    whole.map_or(row, Request::with_choices)
}

fn ask(row: Request) -> Ask {
    let asked_us = parsed_us(&row.requested_at).unwrap_or_default();
    of_row(row, asked_us)
}

/// The row of a request, pending or not.
pub fn ended(source: &dyn Source, session: &Found, id: &str) -> Option<Request> {
    source.request(session, &OneRequest::of(id)?).ok()
}

/// A call that runs in its own thread.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// Answers a request.
    Respond { request_id: String, body: Value },
    /// Sends a message to the model.
    Say(InputBody),
    /// Interrupts the turn of this thread, or of the last one.
    Interrupt(Option<String>),
    /// Overrules a denial.
    Overrule(Overruling),
    /// Reads the facts of the session for filters.
    Facts,
}

/// The session that a call goes to.
type To<'a> = (&'a dyn Source, &'a Found);

/// Makes the call and sends the result.
pub fn run(call: Call, source: Arc<dyn Source>, session: Found, teller: Teller) -> io::Result<()> {
    std::thread::Builder::new().name("call".to_owned()).spawn(move || {
        let to = (&*source, &session);
        let news = match call {
            Call::Respond { request_id, body } => {
                let result = respond(to, &request_id, &body);
                News::Responded { request_id, result }
            }
            Call::Say(message) => News::Said(say(to, message)),
            Call::Interrupt(thread_id) => {
                let turn = send::<TurnReply>(to, &Command::Interrupt(InterruptBody { thread_id }));
                News::Interrupted(turn.map(|turn| turn.thread_id).map_err(|error| error.to_string()))
            }
            Call::Facts => News::Facts(Box::new(source.facts(&session))),
            Call::Overrule(asked) => {
                let result = overrule(to, &asked);
                News::Overruled { asked, result }
            }
        };
        let _ = teller.tell(news);
    })?;
    Ok(())
}

fn send<T: DeserializeOwned>((source, session): To<'_>, command: &Command) -> Result<T, Unanswered> {
    source.command(session, command)?.document()
}

fn overrule(to: To<'_>, asked: &Overruling) -> Result<String, NotOverruled> {
    let overruled: Result<OverruledDocument, _> = send(to, &Command::Overrule(asked.review_id.clone(), asked.applies));
    match overruled {
        Ok(OverruledDocument { turn_id: Some(_), .. }) => Ok("approved: the running turn learns of it now".to_owned()),
        Ok(_) => Ok("approved: the model learns of it with your next message".to_owned()),
        Err(error) if error.code() == "turn_over" => Err(NotOverruled::TurnOver),
        Err(error) => Err(NotOverruled::Other(error.to_string())),
    }
}

fn say(to: To<'_>, message: InputBody) -> Result<Sent, String> {
    let turn: TurnReply = send(to, &Command::Input(message)).map_err(|error| error.to_string())?;
    let into = if turn.steered { SentInto::RunningTurn } else { SentInto::NewTurn };
    Ok(Sent { thread_id: turn.thread_id, into })
}

fn respond(to: To<'_>, request_id: &str, body: &Value) -> Result<(Box<Request>, First), String> {
    let one = OneRequest::of(request_id).ok_or("this is not the id of a request")?;
    let responded = send(to, &Command::Respond(one, body.clone()));
    let Responded { idempotent, request, .. } = responded.map_err(|error| match &error {
        Unanswered::NoAnswer(error) if error.is_unsent() => format!("nothing was sent: {error}"),
        Unanswered::NoAnswer(error) => format!("no reply, so the answer may or may not count: {error}"),
        Unanswered::Refused(_) | Unanswered::Invalid(_) => error.to_string(),
    })?;
    let first = match (idempotent, is_stored(&request, body)) {
        (false, _) => First::We,
        (true, true) => First::Same,
        (true, false) => First::Other,
    };
    Ok((Box::new(request), first))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::AtomicBool;

    use serde_json::json;

    use super::*;
    use crate::api::{Command, OneRequest};
    use crate::control::client::{RawReply, Refused};
    use crate::sessions::reader::Following;
    use crate::sessions::source::{Polling, Recorded};

    const PATIENCE: Duration = Duration::from_secs(20);

    /// The id of a session that was asked, and the name of the thread that asked.
    type Look = (String, Option<String>);

    /// Sessions of which the live ones are asked. A look at `broken` panics.
    #[derive(Debug, Default)]
    struct Sessions {
        of: Vec<(&'static str, bool)>,
        asked: Mutex<Vec<Look>>,
    }

    impl Sessions {
        fn ask(&self, session: &Found) -> Unanswered {
            let thread = std::thread::current().name().map(str::to_owned);
            assert!(catches_panics(), "the terminal UI ends with any other panic");
            self.asked.lock().expect("BUG: no panic").push((session.id.clone(), thread));
            assert_ne!(session.id, "broken");
            Unanswered::Refused(Refused::coded("not_found", &json!({})))
        }
    }

    impl Source for Sessions {
        fn all(&self) -> Vec<Found> {
            let found = |(id, live): &(&str, bool)| Found {
                id: (*id).to_owned(),
                dir: PathBuf::new(),
                live: *live,
                holder: None,
                repository: None,
                threads: None,
                last_used: SystemTime::UNIX_EPOCH,
            };
            self.of.iter().map(found).collect()
        }

        fn is_still_live(&self, _: &Found) -> bool {
            true
        }

        fn traffic(&self, _: &Found) -> (String, u64) {
            (String::new(), 0)
        }

        fn polling(&self) -> Polling {
            Polling::Relays
        }

        fn state(&self, session: &Found) -> Result<SessionDocument, Unanswered> {
            Err(self.ask(session))
        }

        fn pending(&self, session: &Found) -> Result<Vec<Request>, Unanswered> {
            Err(self.ask(session))
        }

        fn request(&self, session: &Found, _: &OneRequest) -> Result<Request, Unanswered> {
            Err(self.ask(session))
        }

        fn command(&self, session: &Found, _: &Command) -> Result<RawReply, Unanswered> {
            Err(self.ask(session))
        }

        fn recorded(&self, _: &Found, _: Arc<AtomicBool>) -> Box<dyn Recorded> {
            unreachable!("BUG: a poll reads no recording")
        }

        fn follow(&self, _: &Found, _: u64, _: Teller) -> io::Result<Following> {
            Err(io::Error::other("nothing is followed"))
        }
    }

    /// The ids of the rows of the first two polls, and what was asked.
    fn polls(of: &[(&'static str, bool)]) -> (Vec<Vec<String>>, Vec<Look>) {
        let sessions = Arc::new(Sessions { of: of.to_vec(), ..Sessions::default() });
        let source: Arc<dyn Source> = Arc::clone(&sessions) as Arc<dyn Source>;
        let (tell, told) = sync_channel(2);
        let ids = |rows: Vec<SessionRow>| rows.into_iter().map(|row| row.id).collect::<Vec<_>>();
        let looking = list(&source, move |rows| tell.try_send(ids(rows)).map_err(|_| Gone)).expect("a thread");
        let rows = [0, 1].map(|_| {
            let rows = told.recv_timeout(PATIENCE).expect("the poller runs");
            looking.now();
            rows
        });
        let asked = sessions.asked.lock().expect("BUG: no panic").clone();
        (rows.to_vec(), asked)
    }

    #[test]
    fn look_that_panics_costs_one_session() {
        let (rows, _) = polls(&[("one", true), ("broken", true), ("two", true), ("stopped", false)]);
        assert_eq!(rows, [["one", "broken", "two", "stopped"]; 2]);
    }

    #[test]
    fn only_live_sessions_are_asked() {
        let stopped = ["a", "b", "c"].map(|id| (id, false));
        let (rows, asked) = polls(&[&[("one", true)], &stopped[..]].concat());
        assert_eq!(rows, [["one", "a", "b", "c"]; 2]);
        // The poller's own thread suffices.
        let own = ("one".to_owned(), Some("list".to_owned()));
        assert!(asked.len() >= 2 && asked.iter().all(|asked| *asked == own), "{asked:?}");
    }
}
