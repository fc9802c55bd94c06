//! Reads sessions: asks the relay if one is running, otherwise reads the files. The first tool that opens a stopped session
//! indexes it and orphans its open requests, as the start of a relay would.
//!
//! *Locking.* The session's lock is only shared, and only for an instant, so a relay that starts meanwhile gets its session.
//! Everything read under the lock (the end of the journal, the runs with open requests) belongs to runs that are over and does
//! not change when a relay starts: only that much is indexed and orphaned. Writing the history takes the index's own lock, for
//! which other tools and a relay's index wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::door::{Door, NOT_RECORDED, SessionError};
use crate::api::{
    ActionDocument, ActionsQuery, Command, ContextDocument, ContextQuery, Cursor, DeliveriesDocument, DeliveriesQuery,
    EventDocument, EventPage, EventsQuery, FragmentsDocument, FragmentsQuery, JournalDocument, Limit, OneRequest,
    Query, Request, RequestDocument, RequestList, Requests, SessionDocument, State, Verbatim, WaitingDocument,
    WhichRequests,
};
use crate::capture::notify_started;
use crate::control::client::{self, ANSWER_WAIT_MAX, Caller, Unanswered};
use crate::control::{add_computed_members, identify_offline};
use crate::files::{Folder, Refused};
use crate::history::{Activity, SessionActivity, rfc3339_millis};
use crate::index::{
    HISTORY_FILE, History, HistoryError, HistoryQuery, Index, IndexNotice, IndexSettings, Marks, Notify, ReadAt,
    TranscriptFiles, fill_stored_search,
};
use crate::journal::reader::{Reader, Step};
use crate::journal::{Header, IndexedTo, Position, Record, end_of, size_bytes};
use crate::store::{
    Compared, Found, IndexLock, LEDGER_FILE, LedgerError, OfflineLedger, Sums, WhichCommands, renew_sum,
};

/// How long to wait for another tool that indexes the same session.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(30);

/// Polling interval of the lock, because `flock` has no timeout.
const LOCK_LOOK_WAIT: Duration = Duration::from_millis(20);

/// Attempts while a session keeps starting or ending.
const TRIES_MAX: u32 = 10;

/// How long a relay may not answer, as happens just after its start.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Pause between two attempts.
const LOOK_WAIT: Duration = Duration::from_millis(50);

/// The relay's answer to a query, or the result of `read` if no relay is running. `read` returns `None` if one is running by then.
fn ask<Q: Query>(
    session: &Found,
    query: &Q,
    mut read: impl FnMut() -> Result<Option<Q::Document>, SessionError>,
) -> Result<Q::Document, SessionError> {
    for _ in 0..TRIES_MAX {
        if let Some(document) = of_relay(session, query)? {
            return Ok(document);
        }
        if let Some(document) = read()? {
            return Ok(document);
        }
    }
    Err(SessionError::new(format!("session {} keeps restarting; try again", session.name())))
}

/// The relay's answer to a query; `None` if no relay is running.
pub fn of_relay<Q: Query>(session: &Found, query: &Q) -> Result<Option<Q::Document>, SessionError> {
    let began = Instant::now();
    while session.is_still_live() {
        match client::ask(&session.dir, query, ANSWER_WAIT_MAX) {
            // A relay holds its lock before it listens.
            Err(Unanswered::NoAnswer(error)) if !error.is_silence() && began.elapsed() < SILENCE_MAX => {
                std::thread::park_timeout(LOOK_WAIT);
            }
            asked => return answered(session, asked),
        }
    }
    Ok(None)
}

/// The answer of a relay; `None` if it has exited since it was found.
pub fn answered<T>(session: &Found, asked: Result<T, Unanswered>) -> Result<Option<T>, SessionError> {
    match asked {
        Ok(answer) => Ok(Some(answer)),
        Err(Unanswered::NoAnswer(_)) if !session.is_still_live() => Ok(None),
        Err(error) => Err(SessionError::of(session, &error)),
    }
}

/// The state of a session whose relay was running; `None` if it has exited.
pub fn live_state(session: &Found) -> Result<Option<SessionDocument>, SessionError> {
    match client::ask(&session.dir, &State, ANSWER_WAIT_MAX) {
        Err(error @ (Unanswered::Refused(_) | Unanswered::Invalid(_))) => {
            Err(SessionError::new(format!("session {}: {error}", session.name())))
        }
        asked => answered(session, asked),
    }
}

/// The same; `None` too if the relay refuses, or has a document of another version.
pub fn readable_state(session: &Found) -> Result<Option<SessionDocument>, SessionError> {
    match client::ask(&session.dir, &State, ANSWER_WAIT_MAX) {
        Err(Unanswered::Refused(_) | Unanswered::Invalid(_)) => Ok(None),
        asked => answered(session, asked),
    }
}

/// A query that the ledger of a stopped session answers too.
pub trait LedgerQuery: Query<Document: Default> {
    fn read(&self, ledger: &mut OfflineLedger) -> Result<Self::Document, LedgerError>;
}

impl LedgerQuery for ContextQuery {
    fn read(&self, ledger: &mut OfflineLedger) -> Result<ContextDocument, LedgerError> {
        ledger.waiting_context().map(ContextDocument::of)
    }
}

impl LedgerQuery for DeliveriesQuery {
    fn read(&self, ledger: &mut OfflineLedger) -> Result<DeliveriesDocument, LedgerError> {
        Ok(DeliveriesDocument { deliveries: ledger.deliveries()? })
    }
}

impl LedgerQuery for FragmentsQuery {
    fn read(&self, ledger: &mut OfflineLedger) -> Result<FragmentsDocument, LedgerError> {
        ledger.fragments().map(FragmentsDocument::of)
    }
}

/// The answer of the relay or of the ledger to a query.
pub fn query<Q: LedgerQuery>(session: &Found, query: &Q) -> Result<Q::Document, SessionError> {
    ask(session, query, || match ledger(session)? {
        Some(mut ledger) => query.read(&mut ledger).map(Some).map_err(failed),
        None => Ok(Some(Q::Document::default())),
    })
}

/// Requests, oldest first.
pub fn requests(session: &Found, which: WhichRequests) -> Result<Vec<Request>, SessionError> {
    let listed = ask(session, &Requests(which), || {
        let Some(mut ledger) = settled_ledger(session)? else { return Ok(Some(RequestList::default())) };
        let rows = ledger.requests(which).map_err(failed)?;
        let mut requests: Vec<Request> = rows.into_iter().map(Request::with_choices).collect();
        identify(session, &mut requests);
        Ok(Some(RequestList { requests }))
    })?;
    Ok(listed.requests)
}

/// A request with its answers; `None` if the id is unknown.
pub fn request(session: &Found, id: &str) -> Result<Option<RequestDocument>, SessionError> {
    let Some(query) = OneRequest::of(id) else { return Ok(None) };
    match of_relay(session, &query) {
        Ok(None) => stored_request(session, id),
        Err(error) if error.code() == "request_not_found" => Ok(None),
        answered => answered,
    }
}

/// A request in the ledger of a stopped session; `None` if the id is unknown.
pub fn stored_request(session: &Found, id: &str) -> Result<Option<RequestDocument>, SessionError> {
    let Some(mut ledger) = settled_ledger(session)? else { return Ok(None) };
    let stored = ledger.request(id).map_err(failed)?;
    Ok(stored.map(|RequestDocument { request, answers }| {
        let mut request = request.with_choices();
        identify(session, std::slice::from_mut(&mut request));
        RequestDocument { answers, request }
    }))
}

/// Adds who the threads of these rows are, as the history of a session says that has no relay, and what is risky about the requests.
fn identify(session: &Found, rows: &mut [Request]) {
    if session.dir.join(HISTORY_FILE).exists() {
        identify_offline(&history_of(session), rows);
    }
    add_computed_members(rows);
}

/// Removes waiting commands, through the relay if one is running. Returns how many still wait, and how many were removed; the relay
/// has removed at least one.
pub fn remove_commands(session: &Found, which: WhichCommands) -> Result<(WaitingDocument, usize), SessionError> {
    let command = match which {
        WhichCommands::All => Command::Clear,
        WhichCommands::One(id) => Command::Drop(id),
    };
    let send = || client::command(&session.dir, &command, Caller::Tool);
    if session.live
        && let Some(waiting) = answered(session, send().and_then(|reply| reply.document()))?
    {
        return Ok((waiting, 1));
    }
    let mut ledger = OfflineLedger::open(&session.dir).map_err(failed)?;
    let count = ledger.clear_context(which).map_err(failed)?;
    let waiting = ledger.waiting_context().map_err(failed)?.len() as u64;
    drop(ledger);
    notify_started(session, || send().map(drop)).map_err(SessionError::new)?;
    Ok((WaitingDocument { waiting }, count))
}

/// The problem of a stopped session's ledger, by its checksum.
#[must_use]
pub fn damage_of_ledger(session: &Found) -> Option<String> {
    let compared = || Sums::read(&session.dir).and_then(|sums| sums.compare(&session.dir, LEDGER_FILE, &|_| {}));
    let is_damaged = !session.live && matches!(compared(), Ok(Compared::Differs));
    is_damaged.then(|| {
        format!(
            "{}: its content differs from its checksum, so requests and answers may be wrong or missing; `codex-shim doctor \
             --files` says what to do",
            session.dir.join(LEDGER_FILE).display()
        )
    })
}

fn failed(error: LedgerError) -> SessionError {
    SessionError::new(error.to_string())
}

/// The ledger of a session, if it has one.
fn ledger(session: &Found) -> Result<Option<OfflineLedger>, SessionError> {
    if !session.dir.join(LEDGER_FILE).exists() {
        return Ok(None);
    }
    OfflineLedger::open(&session.dir).map(Some).map_err(failed)
}

/// [`ledger`] without open requests of runs that are over: they are orphaned first.
fn settled_ledger(session: &Found) -> Result<Option<OfflineLedger>, SessionError> {
    settle(session)?;
    ledger(session)
}

/// Access to the history of a session, live or stopped.
pub struct Read {
    pub session: Found,
    door: Door,
    past: Option<OfflineSession>,
}

impl Read {
    pub fn through(door: Door, session: Found) -> Read {
        Read { session, door, past: None }
    }

    /// The answer of the relay or of the files to a query.
    pub fn query<Q: HistoryQuery>(&mut self, query: &Q) -> Result<Q::Document, SessionError> {
        if self.session.is_still_live() {
            self.past = None;
        }
        let session = self.session.clone();
        ask(&session, query, || match self.past()? {
            Some(history) => query.read(history, ReadAt::WHOLE).map(Some).map_err(unread),
            None => Ok(None),
        })
    }

    /// The same; `None` if the session records nothing.
    pub fn query_recorded<Q: HistoryQuery>(&mut self, query: &Q) -> Result<Option<Q::Document>, SessionError> {
        match self.query(query) {
            Err(error) if error.code() == NOT_RECORDED => Ok(None),
            answered => answered.map(Some),
        }
    }

    /// The threads with messages, latest first.
    pub fn threads(&mut self) -> Result<Vec<String>, SessionError> {
        // By then everything that was recorded is indexed.
        self.query(&EventsQuery::after(None, 1))?;
        history_of(&self.session).threads(0).map_err(unread)
    }

    /// The thread of the latest message, if all is indexed.
    pub fn latest_thread(&self) -> Result<Option<String>, SessionError> {
        history_of(&self.session).latest_thread(0).map_err(unread)
    }

    /// At most `limit` events after `since`, or the last ones.
    pub fn events(
        &mut self,
        since: Option<u64>,
        limit: u64,
    ) -> Result<EventPage<Verbatim<EventDocument>>, SessionError> {
        self.query(&EventsQuery::after(since.map(Cursor::from).as_ref(), limit))
    }

    /// The `limit` most recently changed actions.
    pub fn actions(&mut self, limit: u64) -> Result<Vec<ActionDocument>, SessionError> {
        Ok(self.query(&ActionsQuery { limit: Some(Limit(limit)) })?.actions)
    }

    /// Forgets the opened history, because a relay has written to it since.
    pub fn forget_past(&mut self) {
        self.past = None;
    }

    /// The history of the stopped session; `None` if a relay is running by now.
    pub fn past(&mut self) -> Result<Option<&History>, SessionError> {
        if self.past.is_none() {
            match OfflineSession::open(&self.session, self.door)? {
                Past::Stopped(past) => self.past = Some(past),
                Past::Live => return Ok(None),
                Past::NothingRecorded => {
                    let name = self.session.name();
                    return Err(SessionError::unrecorded(format!(
                        "session {name} has no recording: its setting `record` is false, or it was never used"
                    )));
                }
            }
        }
        Ok(self.past.as_ref().map(|past| &past.history))
    }
}

/// The threads that the history of a session knows, latest first. Nothing is indexed for it.
pub fn stored_threads(session: &Found) -> Vec<String> {
    let has_any = session.dir.join(HISTORY_FILE).exists();
    let threads = has_any.then(|| history_of(session).threads(0).ok()).flatten();
    threads.unwrap_or_default()
}

/// The history of a session as it is, whether it runs or not.
pub fn history_of(session: &Found) -> History {
    History::new(&session.dir.join(HISTORY_FILE))
}

/// The state of a session from its files, without its relay.
pub fn stored_state(session: &Found) -> SessionDocument {
    SessionDocument {
        session_id: session.id.clone(),
        generation: session.last_segment().map(|segment| segment.generation.to_string()),
        journal: JournalDocument { bytes: size_bytes(&session.journal_dir()).unwrap_or_default(), gaps: None },
        started_at: session.holder.as_ref().map(|holder| holder.started_at.clone()),
        ..SessionDocument::default()
    }
}

/// The state of a stopped session, which is indexed for it; and why it could not be.
pub fn state(session: &Found, door: Door) -> (SessionDocument, Option<SessionError>) {
    let (mut document, mut fault) = (stored_state(session), None);
    match OfflineSession::open(session, door) {
        Ok(Past::Stopped(past)) => {
            let (activity, since_us) = past.activity.session(u64::MAX);
            document.state_since = (activity == Activity::Stopped).then(|| rfc3339_millis(since_us));
            document.index.persisted = true;
            document.index.epoch = past.history.events(None, 1, 0, false).ok().and_then(|page| page.epoch);
        }
        // A session that has just started is read through its relay next time.
        Ok(Past::Live | Past::NothingRecorded) => {}
        Err(why) => fault = Some(why),
    }
    if let Ok(Some(mut ledger)) = ledger(session) {
        document.context_waiting = ledger.waiting_context().map_or(0, |waiting| waiting.len() as u64);
        document.pending_requests = pending(session).unwrap_or_default();
    }
    (document, fault)
}

/// The header of the journal's newest segment.
pub fn last_header(session: &Found) -> Option<Header> {
    let from = Position { segment: session.last_segment()?, offset: 0 };
    let mut reader = Reader::new(&session.journal_dir(), Some(from));
    match reader.step().ok()? {
        Step::Record { bytes, .. } => match Record::parse(bytes).ok()? {
            Record::Header(header) => Some(header),
            Record::Line { .. } | Record::Event { .. } | Record::Gap { .. } => None,
        },
        Step::Lost { .. } | Step::End => None,
    }
}

/// Whether an opened session can be read.
#[derive(Debug)]
enum Past {
    Stopped(OfflineSession),
    /// A relay is running, so it must be queried instead.
    Live,
    /// Nothing was ever recorded.
    NothingRecorded,
}

/// A stopped, fully indexed session.
#[derive(Debug)]
struct OfflineSession {
    /// Query it with epoch 0.
    history: History,
    /// The final activity of the session and its threads.
    activity: Arc<SessionActivity>,
}

impl OfflineSession {
    /// Indexes and opens a stopped session.
    fn open(session: &Found, door: Door) -> Result<Past, SessionError> {
        if !settle(session)? {
            return Ok(Past::Live);
        }
        let Some(_lock) = take_lock(session)? else { return Ok(Past::Live) };
        let Some(end) = session.while_stopped(|| end_of(&session.journal_dir())) else {
            return Ok(Past::Live);
        };
        if let Err(error) = Folder::at(&session.journal_dir())
            && let Some(refused) = Refused::behind(&error)
        {
            return Err(SessionError::new(format!("the journal of session {} is not read: {refused}", session.name())));
        }
        let history = history_of(session);
        let Some(end) = end else { return Ok(Past::NothingRecorded) };
        let settings = IndexSettings {
            session_id: session.id.clone(),
            session_dir: session.dir.clone(),
            journal_dir: session.journal_dir(),
            retention: door.retention,
            indexed_to: IndexedTo::default(),
            home: None,
            transcript_files: TranscriptFiles::None,
        };
        let (state, activity) = Index::catch_up(settings, Some(end), marks(session)?, notices(door.say));
        renew_sum(&session.dir, HISTORY_FILE);
        match state.fault {
            None => Ok(Past::Stopped(OfflineSession { history, activity })),
            Some(why) => Err(SessionError::new(format!(
                "the history of session {} is not usable: {why}; its journal is not affected, see `codex-shim tape show {}`",
                session.name(),
                session.argument()
            ))),
        }
    }
}

fn unread(error: HistoryError) -> SessionError {
    SessionError::new(error.to_string())
}

/// Orphans the open requests of runs that are over. False if a relay is running, which does so itself.
fn settle(session: &Found) -> Result<bool, SessionError> {
    let Some(mut ledger) = ledger(session)? else { return Ok(true) };
    // Usually there are none, and then the lock is not needed.
    if ledger.open_runs().map_err(failed)?.is_empty() {
        return Ok(true);
    }
    let Some(runs) = session.while_stopped(|| ledger.open_runs()) else { return Ok(false) };
    // The server of a hub outlives it, and its requests are still open.
    let alive = crate::hub::process::recorded(&session.dir).map(|server| server.generation);
    let over: Vec<String> = runs.map_err(failed)?.into_iter().filter(|run| alive.as_ref() != Some(run)).collect();
    ledger.orphan(&over).map_err(failed)?;
    Ok(true)
}

/// How many requests of a session without a relay are pending: those that wait at the server that a hub has left.
pub fn pending(session: &Found) -> Result<u64, SessionError> {
    let Some(mut ledger) = settled_ledger(session)? else { return Ok(0) };
    Ok(ledger.requests(WhichRequests::Pending).map_err(failed)?.len() as u64)
}

/// Takes the lock of the index; `None` if a relay is running.
fn take_lock(session: &Found) -> Result<Option<IndexLock>, SessionError> {
    let began = Instant::now();
    loop {
        match IndexLock::try_take(&session.dir) {
            Ok(Some(lock)) => return Ok(Some(lock)),
            Ok(None) if session.is_still_live() => return Ok(None),
            Ok(None) if began.elapsed() < LOCK_WAIT_MAX => std::thread::park_timeout(LOCK_LOOK_WAIT),
            Ok(None) => {
                return Err(SessionError::new(format!(
                    "another process has been indexing session {} for {LOCK_WAIT_MAX:?}; try again",
                    session.name()
                )));
            }
            Err(error) => {
                return Err(SessionError::new(format!("lock the history in {}: {error}", session.dir.display())));
            }
        }
    }
}

/// Completes the search index of a stopped session; passes on how many entries each step has read.
pub fn complete_search(session: &Found, advance: impl Fn(u64)) -> Result<(), SessionError> {
    loop {
        // A relay that starts meanwhile waits for a few steps, and then takes the others itself.
        let Some(_lock) = take_lock(session)? else { return Ok(()) };
        match fill_stored_search(&session.dir.join(HISTORY_FILE)).map_err(SessionError::new)? {
            0 => return Ok(()),
            entries => advance(entries),
        }
    }
}

/// Reserves event numbers in the ledger.
fn marks(session: &Found) -> Result<Marks, SessionError> {
    let mut ledger = OfflineLedger::open(&session.dir).map_err(failed)?;
    let id = session.id.clone();
    Ok(Box::new(move |wish| ledger.reserve_seq(&id, &wish).map_err(|error| error.to_string())))
}

/// Passes on what a person should know. A fault is read from the index's state.
fn notices(say: fn(&str)) -> Notify {
    Box::new(move |notice| match notice {
        IndexNotice::Failed(_)
        | IndexNotice::AwaitsLedger(_)
        | IndexNotice::Recovered
        | IndexNotice::ClockJumped(_)
        | IndexNotice::TranscriptFailed(_) => {}
        IndexNotice::SetAside(kept) => {
            say(&format!("history.db was damaged; it was renamed to {} and rebuilt from the journal", kept.display()));
        }
    })
}
