//! The recorder: holds the session and writes its journal.
//!
//! If the session cannot be opened at the start (a full disk, a missing folder), the recorder retries while the relay
//! runs. The journal then begins with a gap for the lines that passed before.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::inbox::Outbox;
use super::notices::Notices;
use super::session::{OpenedSession, Opening, SessionParts};
use crate::config::RetentionBounds;
use crate::context_engine::ContextEngine;
use crate::control::{ControlSocket, Published};
use crate::engine::{ContextBounds, Effect, Input, Note, Now, Order, Token};
use crate::index::Index;
use crate::journal::{Batch, Bounds, Writer, WriterState};
use crate::os;
use crate::socket::EndpointState;
use crate::store::{Ledger, Session, StoreError};
use crate::wire::Conn;

/// Delay between attempts to open the session.
const REOPEN_AFTER: Duration = Duration::from_secs(1);

/// How long a relay that ends waits for the ledger. The contract gives 200 ms for everything after the last byte.
const LEDGER_END_WAIT_MAX: Duration = Duration::from_millis(100);

/// How long it then waits for the index, which may be amid a step.
const INDEX_END_WAIT_MAX: Duration = Duration::from_millis(50);

/// How long a process that becomes another program waits for its context engine, which that kills: as long as `dispose` may take.
const ENGINE_LEAVE_WAIT_MAX: Duration = Duration::from_millis(70);

/// Limit of orders that wait for room at the ledger. Each request in progress needs only a few.
const OVERFLOW_MAX: usize = 100_000;

/// Limit of notes kept for a journal that is not open yet: one run of the child causes no more by itself.
const NOTES_KEPT_MAX: usize = 8;

/// Records lines and notes, or counts the lines if that is impossible.
#[derive(Debug)]
pub struct Recorder {
    opening: Opening,
    published: Arc<Published>,
    state: RecorderState,
    parts: SessionParts,
    /// The name with which the client introduced itself.
    client: Option<String>,
    /// Orders that the ledger had no room for, oldest first.
    overflow: VecDeque<Order>,
    /// Tokens of refused orders.
    refused: Vec<Token>,
}

/// A session as another process of it has written it down.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SessionState {
    pub(super) id: String,
    /// The descriptor of its lock.
    pub(super) lock: RawFd,
    /// The generation of the journal.
    pub(super) generation: String,
    /// The run in whose name the ledger keeps deliveries.
    pub(super) own_run: String,
    /// `None` if nothing is recorded.
    pub(super) writer: Option<WriterState>,
    /// `None` while the control socket is missing.
    pub(super) control: Option<EndpointState>,
}

#[derive(Debug)]
enum RecorderState {
    /// `record` is off.
    Off,
    Open(Box<Writer>),
    /// The session is not open yet.
    Closed(Closed),
}

/// What was missed before the session was opened.
#[derive(Debug)]
struct Closed {
    lines: u64,
    notes: Vec<Note>,
    reason: String,
    retry_at: Duration,
}

impl Recorder {
    /// Tries to open the session.
    pub(super) fn open(opening: Opening, notices: &Notices) -> Recorder {
        let opened = opening.open(notices).map_err(|error| {
            notices.report(&format!("{error}; relaying goes on without a session until it can be opened"));
            Closed { lines: 0, notes: Vec::new(), reason: error.to_string(), retry_at: REOPEN_AFTER }
        });
        let (state, parts) = match opened {
            Ok(OpenedSession { writer: Some(writer), parts }) => (RecorderState::Open(writer), parts),
            Ok(OpenedSession { writer: None, parts }) => (RecorderState::Off, parts),
            Err(closed) => (RecorderState::Closed(closed), SessionParts::default()),
        };
        Recorder::of(opening, state, parts, notices)
    }

    /// Serves a session whose lock we hold.
    ///
    /// # Errors
    ///
    /// If the journal's folder cannot be read.
    pub(super) fn open_in(
        session: Session,
        opening: Opening,
        before: Option<SessionState>,
        notices: &Notices,
    ) -> Result<Recorder, StoreError> {
        let OpenedSession { writer, parts } = opening.open_in(session, before, notices)?;
        let state = writer.map_or(RecorderState::Off, RecorderState::Open);
        Ok(Recorder::of(opening, state, parts, notices))
    }

    fn of(opening: Opening, state: RecorderState, parts: SessionParts, notices: &Notices) -> Recorder {
        let published = Arc::clone(&notices.published);
        Recorder { opening, published, state, parts, client: None, overflow: VecDeque::new(), refused: Vec::new() }
    }

    /// The state for another process; `None` if the session is not open yet.
    pub(super) fn state(&self) -> Option<SessionState> {
        let SessionParts { session: Some(session), generation, own_run, .. } = &self.parts else { return None };
        let writer = match &self.state {
            RecorderState::Off => None,
            RecorderState::Open(writer) => Some(writer.state()),
            RecorderState::Closed(_) => return None,
        };
        let control = self.parts.control_socket.as_ref().and_then(ControlSocket::state);
        let (id, lock) = (session.id.clone(), session.lock());
        Some(SessionState { id, lock, generation: generation.clone(), own_run: own_run.clone(), writer, control })
    }

    /// Waits until the ledger has written its queue. Returns whether it has.
    pub fn settle_ledger(&mut self, wait_max: Duration) -> bool {
        self.drain_overflow();
        !self.has_overflow() && self.parts.ledger.as_ref().is_none_or(|ledger| ledger.settles_within(wait_max))
    }

    /// Ends what runs beside the loop, for the program that this process becomes. Its clients wait, so nothing else does: the ledger is
    /// settled already, and an index that is amid a step does the step again. That program inherits what it needs to go on with the session.
    pub fn leave(self) -> os::Result<()> {
        let ended = self.parts.context_engine.as_ref().map(ContextEngine::end);
        if let Some(index) = &self.parts.index {
            index.end();
        }
        // Then it has heard of its end.
        if let Some(ended) = ended {
            let _ = ended.recv_timeout(ENGINE_LEAVE_WAIT_MAX);
        }
        self.parts.control_socket.map_or(Ok(()), ControlSocket::leave)?;
        self.parts.session.map_or(Ok(()), Session::share)
    }

    /// The id of the session; `None` if it could not be opened yet.
    pub fn session_id(&self) -> Option<&str> {
        self.parts.session.map(|session| session.id.as_str())
    }

    /// The generation for a server that starts now.
    ///
    /// # Errors
    ///
    /// If the journal's folder cannot be read.
    pub fn next_generation(&self) -> Result<String, StoreError> {
        self.parts.session.map_or_else(|| Ok(String::new()), |session| Ok(session.next_generation()?.to_string()))
    }

    /// Begins another generation of the session, with its own journal, because the server was restarted. `server_run` is as in
    /// [`super::start::OfHub`].
    ///
    /// # Errors
    ///
    /// If the journal's folder cannot be read. The lines that follow go into the journal of the previous generation.
    pub fn next_run(&mut self, child_pid: u32, server_run: Option<String>) -> Result<(), StoreError> {
        (self.opening.child_pid, self.opening.adopted) = (child_pid, false);
        let Some(session) = self.parts.session else { return Ok(()) };
        let generation = session.next_generation()?;
        if let RecorderState::Open(_) = &self.state {
            self.state = RecorderState::Open(Box::new(self.opening.writer(session, generation.clone())));
        }
        self.drain_overflow();
        if let Some(ledger) = &self.parts.ledger
            && let server_run = server_run.unwrap_or_else(|| generation.to_string())
            && ledger.begin_run(server_run.clone())
        {
            self.parts.own_run.clone_from(&server_run);
            self.opening.outbox.try_post(Input::SessionOpened { generation: server_run });
        }
        self.parts.generation = generation.to_string();
        self.published.child_started(&self.parts.generation, child_pid);
        Ok(())
    }

    pub(super) fn configure(&mut self, bounds: Bounds, retention: RetentionBounds, context_bounds: ContextBounds) {
        self.opening.bounds = bounds;
        self.opening.retention = retention;
        self.opening.context_bounds = context_bounds;
        if let RecorderState::Open(writer) = &self.state {
            writer.bound(bounds);
        }
        if let Some(index) = &self.parts.index {
            index.retain(retention);
        }
        self.published.bound_context(context_bounds);
    }

    /// See [`Writer::share_lines`].
    pub fn share_lines(&mut self, share: bool) {
        if let RecorderState::Open(writer) = &mut self.state {
            writer.share_lines(share);
        }
    }

    /// A batch for the time `now` and the lines of a connection; `None` if there is no journal.
    pub fn batch<'a>(&mut self, now: Now, conn: Conn, notices: &Notices) -> Option<Batch<'a>> {
        let mut batch = self.any_batch(now, notices)?;
        if conn != Conn::OWN {
            batch.on(conn);
        }
        Some(batch)
    }

    fn any_batch<'a>(&mut self, now: Now, notices: &Notices) -> Option<Batch<'a>> {
        if let RecorderState::Closed(closed) = &self.state
            && now.elapsed >= closed.retry_at
        {
            return self.open_again(now, notices);
        }
        match &mut self.state {
            RecorderState::Open(writer) => Some(writer.batch(now)),
            RecorderState::Off | RecorderState::Closed(_) => None,
        }
    }

    /// Tries to open the session; its journal begins with a gap for the lines missed so far.
    fn open_again<'a>(&mut self, now: Now, notices: &Notices) -> Option<Batch<'a>> {
        let RecorderState::Closed(closed) = &mut self.state else { return None };
        closed.retry_at = now.elapsed + REOPEN_AFTER;
        let OpenedSession { writer, parts } = self.opening.open(notices).ok()?;
        self.parts = parts;
        self.write_client_name();
        let RecorderState::Closed(closed) = &mut self.state else { return None };
        notices.report("the session is open; recording begins");
        let Some(mut writer) = writer else {
            self.state = RecorderState::Off;
            return None;
        };
        if closed.lines > 0 {
            writer.begin_with_gap(closed.lines, std::mem::take(&mut closed.reason));
        }
        let mut batch = writer.batch(now);
        closed.notes.iter().for_each(|note| batch.push_note(note));
        self.state = RecorderState::Open(writer);
        Some(batch)
    }

    /// Writes the client's name into the session's lock, now or once the session is open.
    pub fn name_client(&mut self, name: Option<String>) {
        self.client = name;
        self.write_client_name();
    }

    fn write_client_name(&self) {
        if let Some(session) = self.parts.session
            && let Err(error) = session.name_client(self.client.as_deref())
        {
            // Tools then show the session without its client.
            tracing::warn!(%error, "write the client's name into the lock");
        }
    }

    pub fn commit(&mut self, batch: &mut Batch<'_>, notices: &mut Notices) {
        let RecorderState::Open(writer) = &mut self.state else { return };
        if let Err(error) = writer.commit(batch) {
            notices.journal_failed(&error);
        }
        if let Some(index) = &self.parts.index {
            index.journal_grew(writer.tally().appended_bytes);
        }
        self.publish_tally();
    }

    /// Publishes what the journal has counted.
    pub(super) fn publish_tally(&self) {
        if let RecorderState::Open(writer) = &self.state {
            self.published.journal(writer.tally());
        }
    }

    /// Whether the context engine has calls to answer.
    pub fn calls_context_engine(&self) -> bool {
        self.parts.context_engine.as_ref().is_some_and(ContextEngine::is_calling)
    }

    /// Carries out an effect that puts something on record; returns any other.
    pub fn add(&mut self, batch: &mut Option<Batch<'_>>, effect: Effect) -> Option<Effect> {
        match (effect, batch) {
            (Effect::Note(note), batch) => {
                self.published.note(&note);
                match batch {
                    Some(batch) => batch.push_note(&note),
                    None => self.miss_note(note),
                }
                None
            }
            (Effect::Order(order), _) => {
                self.order(order);
                None
            }
            (other, _) => Some(other),
        }
    }

    /// Counts lines for which there was no batch.
    pub(super) fn miss_lines(&mut self, lines: u64) {
        if let RecorderState::Closed(closed) = &mut self.state {
            closed.lines += lines;
        }
    }

    /// Keeps a note for which there was no batch.
    pub(super) fn miss_note(&mut self, note: Note) {
        if let RecorderState::Closed(closed) = &mut self.state
            && closed.notes.len() < NOTES_KEPT_MAX
        {
            closed.notes.push(note);
        }
    }

    /// Records a note in a batch of its own.
    pub(super) fn note(&mut self, note: Note, now: Now, notices: &mut Notices) {
        match self.any_batch(now, notices) {
            Some(mut batch) => {
                batch.push_note(&note);
                self.commit(&mut batch, notices);
            }
            None => self.miss_note(note),
        }
    }

    /// Records the generation's last note. No later commit could repair a failed write, so this one is retried in a new
    /// segment.
    pub(super) fn last_note(&mut self, note: &Note, now: Now, notices: &mut Notices) {
        for _ in 0..2 {
            self.retry_now();
            let Some(mut batch) = self.any_batch(now, notices) else { return };
            batch.push_note(note);
            self.commit(&mut batch, notices);
            if matches!(&self.state, RecorderState::Open(writer) if writer.is_whole()) {
                return;
            }
        }
    }

    /// Allows one more attempt at once, regardless of the last failure.
    fn retry_now(&mut self) {
        match &mut self.state {
            RecorderState::Open(writer) => writer.try_at_once(),
            RecorderState::Closed(closed) => closed.retry_at = Duration::ZERO,
            RecorderState::Off => {}
        }
    }

    /// The session's ledger and id.
    pub(super) fn session(&self) -> Option<(&Ledger, &str)> {
        Some((self.parts.ledger.as_ref()?, &self.parts.session_id))
    }

    /// The index of the session, if it has one.
    pub(super) fn index(&self) -> Option<Index> {
        self.parts.index.clone()
    }

    /// The folder of the session; `None` if it could not be opened yet.
    pub(super) fn session_dir(&self) -> Option<PathBuf> {
        self.parts.session.map(|session| session.dir.clone())
    }

    pub(super) fn context_engine(&self) -> Option<&ContextEngine> {
        self.parts.context_engine.as_ref()
    }

    /// Another sending end of the relay's inbox.
    pub(super) fn outbox(&self) -> Outbox {
        self.opening.outbox.clone()
    }

    /// Queues an order for the ledger after all earlier ones; never waits. It is refused if there is no ledger or the queue
    /// is full.
    pub(super) fn order(&mut self, order: Order) {
        let has_room = self.overflow.len() < OVERFLOW_MAX;
        let Some(ledger) = self.parts.ledger.as_ref().filter(|_| has_room) else {
            if !has_room {
                tracing::warn!("too many orders wait for the ledger: an entry is dropped");
            }
            self.refused.extend(order.token());
            return;
        };
        let given_back = if self.overflow.is_empty() { ledger.hand(order).err() } else { Some(order) };
        self.overflow.extend(given_back);
    }

    /// Tokens of the orders refused since the last call.
    pub(super) fn take_refused(&mut self) -> Vec<Token> {
        std::mem::take(&mut self.refused)
    }

    /// Passes queued orders to the ledger while it has room.
    pub fn drain_overflow(&mut self) {
        let Some(ledger) = &self.parts.ledger else { return };
        while let Some(order) = self.overflow.pop_front() {
            if let Err(order) = ledger.hand(order) {
                self.overflow.push_front(order);
                return;
            }
        }
    }

    /// Whether orders wait for room at the ledger.
    pub(super) fn has_overflow(&self) -> bool {
        !self.overflow.is_empty()
    }

    /// Ends the session. The next start indexes whatever the index has not read by then.
    pub fn close(mut self) {
        let began = Instant::now();
        let ended = self.parts.context_engine.as_ref().map(ContextEngine::end);
        self.drain_overflow();
        if let Some(ledger) = &self.parts.ledger {
            ledger.finish(LEDGER_END_WAIT_MAX);
        }
        if let Some(ended) = ended {
            // It ends in parallel with the ledger, so both share one limit.
            let _ = ended.recv_timeout(LEDGER_END_WAIT_MAX.saturating_sub(began.elapsed()));
        }
        if let Some(index) = &self.parts.index {
            index.end();
        }
        if let Some(socket) = self.parts.control_socket {
            socket.close();
        }
        if let Some(index) = &self.parts.index {
            index.await_end(INDEX_END_WAIT_MAX);
        }
    }
}
