//! Context: the user's terminal commands, put in front of the next message and hidden from every screen.
//!
//! Pushed commands arrive as [`ContextChange`]s, wait here, and leave with a `turn/start`, or in a hub with a `turn/steer`, under a lease: the response
//! that confirms delivery deletes them, any other end queues them again in front. Until then they stay in the ledger,
//! so a crash may show them twice but never loses them.
//!
//! A `turn/start` is never delayed, and never changed while no command is queued for its thread.

pub(super) mod command;
mod envelope;
mod strip;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::model::{ContextChange, Delivery, LedgerEntry, Outcome, RowId, WaitingCommand};
use super::open_calls::{CallKey, Calls, OpenCall};
use super::purpose::Purpose;
use super::threads::Threads;
use super::{Effect, Note, Now, Seen, Warning};
use crate::invariants::holds;
use crate::protocol::{Method, inject_items_params, named, of_name};
use crate::wire::{Body, Members, Message, RpcId};

pub use command::{Command, Label, Origin, PushError};
pub use command::{ContextBounds, Preview, Provenance, PushedCommand};
pub use envelope::Envelope;
pub use envelope::{MARKER_END, MARKER_START};

pub(super) use envelope::{THREAD_ID_BYTES_MAX, TURN_CHARS_MAX, TurnStart};
pub(super) use strip::OwnItems;

use strip::{Foreign, Previews, Scanner, minor_of};

/// A line without our text before the user's words; `None` if it has none.
#[must_use]
pub fn without_context(line: &[u8]) -> Option<Vec<u8>> {
    let Body::Message(message) = Body::parse(line) else { return None };
    let (previews, foreign, threads) = (Previews::default(), Foreign::default(), Threads::default());
    let may_hold_ours = Scanner::default().may_hold_ours(line, &message, &previews);
    if may_hold_ours { strip::strip(line, &message, &previews, &foreign, &threads) } else { None }
}

/// A call of ours without the text before the user's words; `None` if it is not a message of the user, or has no such text.
#[must_use]
pub fn message_without_context(line: &[u8]) -> Option<Vec<u8>> {
    let Body::Message(message) = Body::parse(line) else { return None };
    let method = message.method.as_deref().and_then(Method::of);
    if method == Some(Method::TurnStart) { without_context(line) } else { None }
}

/// The error codes for an unknown method. Source: JSON-RPC; the real server uses the second one.
const METHOD_NOT_FOUND: i64 = -32_601;
const INVALID_REQUEST: i64 = -32_600;

/// The first 0.x version of codex observed to support `thread/inject_items`; 0.98 does not.
const INJECTS_FROM_MINOR: u32 = 125;

named! {
    /// The way to deliver context to the model.
    #[derive(Default)]
    pub enum Carrier {
        /// In front of the user's words.
        #[default]
        Envelope = "envelope",
        /// A call of our own before the turn.
        InjectItems = "inject_items",
        /// A call of our own, or in front of the user's words once the server has rejected such calls.
        Auto = "auto",
        /// Not at all; commands stay queued.
        Off = "off",
    }
}

impl std::str::FromStr for Carrier {
    type Err = String;

    fn from_str(text: &str) -> Result<Carrier, String> {
        of_name(text).ok_or_else(|| format!("`{text}` is none of envelope, inject_items, auto and off"))
    }
}

/// Settings of context delivery.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextSettings {
    pub carrier: Carrier,
    #[serde(flatten)]
    pub bounds: ContextBounds,
    /// Tools that show more of the terminal; `None` for those of the commands' sources.
    pub mcp: Option<Vec<String>>,
}

/// Queued commands, deliveries in flight, and settings.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Context {
    #[serde(skip)]
    settings: ContextSettings,
    waiting: Vec<Waiting>,
    deliveries: u64,
    /// The server rejected `thread/inject_items`, and the user was warned.
    inject_refused: bool,
    /// The user was warned that the bounds leave no room.
    misfit_warned: bool,
    previews: Previews,
    #[serde(skip)]
    scanner: Scanner,
    /// Of the clients of a hub.
    foreign: Foreign,
    steered: Vec<Steered>,
}

/// Context that went to a running turn. The server drops words that the model has not read when the turn is interrupted.
#[derive(Debug, Serialize, Deserialize)]
struct Steered {
    turn_id: String,
    lease: Lease,
}

#[derive(Debug, Serialize, Deserialize)]
struct Waiting {
    command: WaitingCommand,
    /// The delivery that carries the command now.
    leased_to: Option<u64>,
}

/// Context sent but not confirmed. The response to the call that carries it settles it, or the end of the turn that it joined.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Lease {
    delivery: u64,
    thread_id: String,
    carrier: Carrier,
    text_bytes: usize,
}

/// Facts to read from the response to a `turn/start` about the context sent with it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct TurnSent {
    /// The delivery that belongs to the turn.
    delivery: Option<u64>,
    /// The start of the user's words, if context goes before them.
    words: Option<String>,
    pub(super) projected: Option<Projected>,
}

/// The projection that a turn carries.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Projected {
    pub(super) epoch: Option<String>,
    bytes: usize,
}

/// A projection to put before the user's words.
#[derive(Debug)]
pub(super) struct Projection {
    pub(super) text: String,
    /// It is shown once for each epoch; `None` means with every turn.
    pub(super) epoch: Option<String>,
}

/// The lines that carry context with a `turn/start`.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// A call of ours to send ahead of it.
    pub(super) ahead: Option<Vec<u8>>,
    /// The line to send instead.
    pub(super) instead: Option<Vec<u8>>,
}

/// The queued commands of a thread, fitted to the bounds.
#[derive(Debug)]
enum Fitted {
    /// The text for the model.
    Envelope(String),
    Nothing,
    /// The bounds leave no room.
    TooBig,
}

impl Context {
    pub(super) fn new(settings: ContextSettings) -> Context {
        Context {
            settings,
            waiting: Vec::new(),
            deliveries: 0,
            inject_refused: false,
            misfit_warned: false,
            previews: Previews::default(),
            scanner: Scanner::default(),
            foreign: Foreign::default(),
            steered: Vec::new(),
        }
    }

    pub(super) fn check(&self) {
        let rows: BTreeSet<RowId> = self.waiting.iter().map(|waiting| waiting.command.row).collect();
        holds!("context.commands-wait-once", rows.len() == self.waiting.len());
        holds!("context.leased-to-a-made-delivery", self.leased().all(|delivery| self.has_made(delivery)));
        holds!("context.delivery-has-a-text", self.steered.iter().all(|steered| steered.lease.text_bytes > 0));
    }

    /// The deliveries that carry commands now.
    pub(super) fn leased(&self) -> impl Iterator<Item = u64> {
        self.waiting.iter().filter_map(|waiting| waiting.leased_to)
    }

    /// The deliveries that have joined a running turn.
    pub(super) fn joined_deliveries(&self) -> impl Iterator<Item = u64> {
        self.steered.iter().map(|steered| steered.lease.delivery)
    }

    pub(super) fn has_made(&self, delivery: u64) -> bool {
        (1..=self.deliveries).contains(&delivery)
    }

    /// Number of commands not yet confirmed.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn envelope_bytes_max(&self) -> usize {
        self.settings.bounds.envelope_bytes_max
    }

    /// Stores the server's version. `auto` does not try `thread/inject_items` with a version known to reject it.
    pub(super) fn server_is(&mut self, codex_version: &str) {
        self.previews.server_is(codex_version);
        let refuses = minor_of(codex_version).is_some_and(|minor| minor < INJECTS_FROM_MINOR);
        self.inject_refused |= refuses && self.settings.carrier == Carrier::Auto;
    }

    pub(super) fn configure(&mut self, settings: ContextSettings) {
        if settings != self.settings {
            self.misfit_warned = false;
            self.settings = settings;
        }
    }

    /// Registers opening tags of user-role fragments.
    pub(super) fn may_begin_with(&mut self, openings: Vec<String>) {
        self.previews.may_begin_with(openings);
    }

    /// Applies a change of the command buffer.
    pub(super) fn changed(&mut self, change: ContextChange, threads: &mut Threads) {
        match change {
            ContextChange::Loaded(all) => {
                // After a handover most are known, and some may have been removed meanwhile.
                self.waiting.retain(|known| all.iter().any(|command| command.row == known.command.row));
                let is_new =
                    |command: &WaitingCommand| self.waiting.iter().all(|known| known.command.row != command.row);
                let added: Vec<_> = all.into_iter().filter(is_new).collect();
                self.waiting.extend(added.into_iter().map(|command| Waiting { command, leased_to: None }));
            }
            ContextChange::Added(added) => {
                self.waiting.extend(added.into_iter().map(|command| Waiting { command, leased_to: None }));
            }
            ContextChange::Cleared(rows) => self.waiting.retain(|waiting| !rows.contains(&waiting.command.row)),
            ContextChange::Forgotten { row, counted_by } => {
                let Some(index) = self.waiting.iter().position(|waiting| waiting.command.row == row) else { return };
                let gone = self.waiting.remove(index).command;
                if let Some(next) = self.waiting.iter_mut().find(|waiting| waiting.command.row == counted_by) {
                    next.command.forgotten_before += 1 + gone.forgotten_before;
                }
            }
            ContextChange::Beginnings(known) => {
                known.into_iter().for_each(|(thread_id, words)| threads.remember_words(thread_id, &words));
            }
        }
    }

    /// The client reused the id of an open call, so their responses are indistinguishable. Neither settles the other's
    /// context, and the new call carries none: showing context twice is better than losing it.
    pub(super) fn is_ambiguous(&mut self, call: &mut OpenCall, effects: &mut Vec<Effect>) {
        if let Some(turn) = &mut call.turn {
            (turn.delivery, turn.words) = (None, None);
        }
        if let Some(lease) = call.lease.take() {
            self.put_back(&lease, Outcome::Unknown, effects);
        }
    }

    /// A client of a hub, or an API caller, starts or steers a turn: an envelope that it has written itself stays in every echo.
    pub(super) fn words_given(&mut self, line: &[u8], message: &Message<'_>) {
        if self.scanner.may_begin_envelope(line)
            && let Some(turn) = TurnStart::read(line, message)
            && let Some(first) = turn.first_text()
        {
            self.foreign.add(first);
        }
    }

    /// Loads a turn with the queued context of its thread and the assembled projection. `None` if it carries nothing.
    pub(super) fn load(
        &mut self,
        seen: &Seen<'_>,
        message: &Message<'_>,
        projection: Option<Projection>,
        calls: &mut Calls,
        effects: &mut Vec<Effect>,
    ) -> Option<Loaded> {
        let carries = !self.waiting.is_empty() || projection.is_some() || self.previews.may_show_fragments();
        let call = seen.opened.filter(|_| carries)?;
        // Without an id the server would not respond, so nothing could settle the lease.
        if let RpcId::Other(_) = RpcId::from_raw(message.id?) {
            return None;
        }
        let line = seen.line;
        let turn = TurnStart::read(line, message)?;
        let envelope = self.carrier_now().and_then(|carrier| match self.envelope_for(&turn.thread_id) {
            Fitted::Envelope(envelope) => Some((carrier, envelope)),
            Fitted::Nothing => None,
            Fitted::TooBig => {
                if !std::mem::replace(&mut self.misfit_warned, true) {
                    effects.push(Effect::Warn(Warning::ContextDoesNotFit));
                }
                None
            }
        });
        let in_front = match &envelope {
            Some((Carrier::Envelope, text)) => text.as_str(),
            Some((Carrier::InjectItems | Carrier::Auto | Carrier::Off, _)) | None => "",
        };
        let both = format!("{in_front}{}", projection.as_ref().map_or("", |projection| &projection.text));
        let instead = if both.is_empty() { None } else { turn.with_envelope(&both) };
        let projected = projection.filter(|_| instead.is_some());
        let projected = projected.map(|Projection { text, epoch }| Projected { epoch, bytes: text.len() });
        // An envelope that does not fit stays queued; a projection was for this turn only.
        let envelope = envelope.filter(|(carrier, _)| *carrier != Carrier::Envelope || instead.is_some());
        // Codex 0.125 takes an item sent ahead as the thread's beginning.
        let is_fronted = instead.is_some() || envelope.is_some() || self.previews.may_show_fragments();
        let words = is_fronted.then(|| turn.preview());
        let mut sent = TurnSent { delivery: None, words, projected };
        let (mut ahead, mut lease) = (None, None);
        if let Some((carrier, text)) = envelope {
            let params = inject_items_params(&turn.thread_id, &[("user", vec![&text])]);
            let of_turn = self.lease(seen.now, &turn.thread_id, carrier, text, effects);
            sent.delivery = Some(of_turn.delivery);
            lease = Some(of_turn);
            if carrier != Carrier::Envelope {
                let name = Method::ThreadInjectItems.name();
                let (key, line) = calls.call_server(seen.conn, name, Some(&params), Purpose::Context);
                ahead = Some(line);
                if let Some(call) = calls.to_server.get_mut(key) {
                    call.lease = lease.take();
                }
            }
        }
        if let Some(call) = calls.to_server.get_mut(call) {
            (call.turn, call.lease) = (Some(sent), lease);
        }
        Some(Loaded { ahead, instead })
    }

    /// The current carrier, unless context is off.
    fn carrier_now(&self) -> Option<Carrier> {
        match (self.settings.carrier, self.inject_refused) {
            (Carrier::Off, _) | (Carrier::InjectItems, true) => None,
            (Carrier::Envelope, _) | (Carrier::Auto, true) => Some(Carrier::Envelope),
            (Carrier::InjectItems | Carrier::Auto, false) => Some(Carrier::InjectItems),
        }
    }

    /// Leases the queued commands of a thread to this turn.
    fn lease(&mut self, now: Now, thread_id: &str, carrier: Carrier, text: String, effects: &mut Vec<Effect>) -> Lease {
        self.deliveries += 1;
        let number = self.deliveries;
        let mut carries = false;
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.is_free_for(thread_id)) {
            (waiting.leased_to, carries) = (Some(number), true);
        }
        holds!("context.delivery-carries-commands", carries && !text.is_empty());
        let (thread_id, text_bytes) = (thread_id.to_owned(), text.len());
        let lease = Lease { delivery: number, thread_id: thread_id.clone(), carrier, text_bytes };
        let delivery = Delivery { number, at_us: now.unix_us, thread_id, carrier, text };
        effects.push(Effect::keep(LedgerEntry::Sent(Box::new(delivery))));
        lease
    }

    /// The queued commands of a thread as text.
    fn envelope_for(&self, thread_id: &str) -> Fitted {
        let free: Vec<&WaitingCommand> = self
            .waiting
            .iter()
            .filter(|waiting| waiting.is_free_for(thread_id))
            .map(|waiting| &waiting.command)
            .collect();
        if free.is_empty() {
            return Fitted::Nothing;
        }
        match Envelope::fitted(thread_id, free, &self.settings) {
            Some(envelope) => Fitted::Envelope(envelope.render()),
            None => Fitted::TooBig,
        }
    }

    /// The server responds to a call: learns of threads, and settles the context that the call carries.
    pub(super) fn answered(
        &mut self,
        now: Now,
        message: &Message<'_>,
        call: &mut OpenCall,
        threads: &mut Threads,
        effects: &mut Vec<Effect>,
    ) {
        let TurnSent { delivery, words, projected } = call.turn.take().unwrap_or_default();
        let begins = match (call.method, message.result) {
            (Some(Method::ThreadStart), Some(result)) => {
                threads.mentioned_in(result, effects);
                false
            }
            (Some(Method::ThreadResume | Method::ThreadFork), Some(result)) => {
                threads.mentioned_in(result, effects).is_some_and(|thread_id| threads.begin(&thread_id))
            }
            (Some(Method::TurnStart), Some(_)) => call.thread_id.as_deref().is_some_and(|thread_id| {
                threads.mention(thread_id, effects);
                threads.begin(thread_id)
            }),
            (_, _) => false,
        };
        // The user's words are the beginning of the thread, instead of the text put before them.
        if let (true, None, Some(thread_id), Some(words)) = (begins, message.refusal(), &call.thread_id, words)
            && let Some(words) = threads.of(thread_id).learn_words(&words)
        {
            effects.push(Effect::keep(LedgerEntry::ThreadBegan { thread_id: thread_id.clone(), words }));
        }
        let turn_id = turn_named(message).filter(|_| delivery.is_some() || projected.is_some());
        if let (Some(delivery), Some(turn_id)) = (delivery, turn_id.clone()) {
            effects.push(Effect::keep(LedgerEntry::TurnNamed { delivery, turn_id }));
        }
        if let Some(lease) = call.lease.take() {
            let joined = turn_id.clone().filter(|_| call.method == Some(Method::TurnSteer));
            match (message.refusal(), joined) {
                (None, Some(turn_id)) => self.joined(Steered { turn_id, lease }, threads, effects),
                (None, None) => self.arrived(&lease, turn_id.clone().filter(|_| delivery.is_some()), effects),
                (Some(error), _) => {
                    self.put_back(&lease, Outcome::Refused, effects);
                    if lease.carrier == Carrier::InjectItems {
                        self.note_refusal(error, effects);
                    }
                }
            }
        }
        if let (Some(thread_id), Some(projected), None) = (&call.thread_id, projected, message.refusal()) {
            projected.arrived(now, call.key, thread_id.clone(), turn_id, threads, effects);
        }
    }

    /// The server has queued context in a running turn.
    fn joined(&mut self, steered: Steered, threads: &Threads, effects: &mut Vec<Effect>) {
        match threads.has_ended(&steered.lease.thread_id, &steered.turn_id) {
            // Whether the model has read it is unknown.
            true => self.put_back(&steered.lease, Outcome::Unknown, effects),
            false => self.steered.push(steered),
        }
    }

    /// A turn has ended; a completed one has read all that joined it.
    pub(super) fn turn_ended(&mut self, turn_id: &str, is_completed: bool, effects: &mut Vec<Effect>) {
        for Steered { turn_id, lease } in self.take_steered(|steered| steered.turn_id == turn_id) {
            match is_completed {
                true => self.arrived(&lease, Some(turn_id), effects),
                false => self.put_back(&lease, Outcome::Unknown, effects),
            }
        }
    }

    /// A thread is unloaded, and its turn with it.
    pub(super) fn thread_closed(&mut self, thread_id: &str, effects: &mut Vec<Effect>) {
        for Steered { lease, .. } in self.take_steered(|steered| steered.lease.thread_id == thread_id) {
            self.put_back(&lease, Outcome::Unknown, effects);
        }
    }

    /// The server ended, and its turns with it.
    pub(super) fn turns_ended(&mut self, effects: &mut Vec<Effect>) {
        for Steered { lease, .. } in self.take_steered(|_| true) {
            self.put_back(&lease, Outcome::ServerExited, effects);
        }
    }

    fn take_steered(&mut self, is_over: impl Fn(&Steered) -> bool) -> Vec<Steered> {
        self.steered.extract_if(.., |steered| is_over(steered)).collect()
    }

    fn arrived(&mut self, lease: &Lease, turn_id: Option<String>, effects: &mut Vec<Effect>) {
        let mut delete = Vec::new();
        self.waiting.retain(|waiting| {
            let has_arrived = waiting.leased_to == Some(lease.delivery);
            if has_arrived {
                delete.push(waiting.command.row);
            }
            !has_arrived
        });
        effects.push(Effect::Note(Note::ContextDelivered {
            thread_id: lease.thread_id.clone(),
            turn_id,
            carrier: lease.carrier.name(),
            commands: delete.len() as u64,
            bytes: lease.text_bytes as u64,
        }));
        let (delivery, outcome) = (lease.delivery, Outcome::Delivered);
        effects.push(Effect::keep(LedgerEntry::Settled { delivery, outcome, delete }));
    }

    fn put_back(&mut self, lease: &Lease, outcome: Outcome, effects: &mut Vec<Effect>) {
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.leased_to == Some(lease.delivery)) {
            waiting.leased_to = None;
        }
        let delivery = lease.delivery;
        effects.push(Effect::keep(LedgerEntry::Settled { delivery, outcome, delete: Vec::new() }));
    }

    /// The server rejected a call of ours. If it does not know the method, later calls would fail too.
    fn note_refusal(&mut self, error: &RawValue, effects: &mut Vec<Effect>) {
        if is_unknown_method(error) && !std::mem::replace(&mut self.inject_refused, true) {
            effects.push(Effect::Warn(match self.settings.carrier {
                Carrier::Auto => Warning::InjectRefusedFallsBack,
                Carrier::InjectItems | Carrier::Envelope | Carrier::Off => Warning::InjectRefusedWaits,
            }));
        }
    }

    /// The server ended without responding to the call that carried this.
    pub(super) fn server_ended(&mut self, lease: &Lease, effects: &mut Vec<Effect>) {
        self.put_back(lease, Outcome::ServerExited, effects);
    }

    /// Whether only an envelope, which contains `\u` escapes, would have to be removed from a line of the server.
    pub(super) fn hides_only_envelopes(&self) -> bool {
        !self.previews.may_show_fragments()
    }

    /// The server line without text that the client must not see; `None` if it has none.
    pub(super) fn stripped(&self, line: &[u8], message: &Message<'_>, threads: &Threads) -> Option<Vec<u8>> {
        if !self.scanner.may_hold_ours(line, message, &self.previews) {
            return None;
        }
        strip::strip(line, message, &self.previews, &self.foreign, threads)
    }
}

impl Lease {
    pub(super) fn delivery(&self) -> u64 {
        self.delivery
    }
}

impl Projected {
    /// The server accepted the turn.
    fn arrived(
        self,
        now: Now,
        call: CallKey,
        thread_id: String,
        turn_id: Option<String>,
        threads: &mut Threads,
        effects: &mut Vec<Effect>,
    ) {
        let Projected { epoch, bytes } = self;
        if let Some(epoch) = &epoch {
            let counts = threads.of(&thread_id).saw_epoch(call, epoch.clone());
            let (thread_id, epoch, at_us) = (thread_id.clone(), epoch.clone(), now.unix_us);
            if counts {
                effects.push(Effect::keep(LedgerEntry::EpochShown { thread_id, epoch, at_us }));
            }
        }
        effects.push(Effect::Note(Note::ContextProjected { thread_id, turn_id, bytes: bytes as u64, epoch }));
    }
}

/// The turn named by the response to a `turn/start` or a `turn/steer`.
fn turn_named(message: &Message<'_>) -> Option<String> {
    let result = Members::of(message.result?)?;
    match result.get("turn") {
        Some(turn) => Members::of(turn)?.text("id"),
        None => result.text("turnId"),
    }
}

/// Whether an error says that the server does not know `thread/inject_items`.
pub(super) fn is_unknown_method(error: &RawValue) -> bool {
    let error = Members::of(error).unwrap_or_default();
    let message = error.text("message").unwrap_or_default();
    match error.get("code").and_then(|code| code.get().parse().ok()) {
        Some(METHOD_NOT_FOUND) => true,
        // `unknown variant `thread/inject_items`, expected one of …`
        Some(INVALID_REQUEST) => message.contains("unknown") || message.contains("inject_items"),
        Some(_) | None => false,
    }
}

impl Waiting {
    fn is_free_for(&self, thread_id: &str) -> bool {
        self.leased_to.is_none() && self.command.thread_id.as_deref().is_none_or(|own| own == thread_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::model::Verdict;
    use crate::engine::{Order, RowId};
    use crate::protocol::Event;
    use crate::wire::{Body, Conn};
    use std::time::Duration;

    /// A context with its effects so far.
    struct Play {
        context: Context,
        calls: Calls,
        threads: Threads,
        effects: Vec<Effect>,
    }

    impl Play {
        fn start(carrier: Carrier) -> Play {
            let settings = ContextSettings { carrier, ..ContextSettings::default() };
            Play {
                context: Context::new(settings),
                calls: Calls::new("codex-shim:x:".to_owned()),
                threads: Threads::default(),
                effects: Vec::new(),
            }
        }

        /// Pushes commands for this thread, named after their rows.
        fn push(&mut self, rows: &[RowId], thread_id: Option<&str>) {
            self.context.changed(ContextChange::Added(waiting(rows, thread_id)), &mut self.threads);
        }

        /// The client starts a turn; returns how the line is forwarded and which commands it carries.
        fn turn(&mut self, id: u32, thread: &str) -> String {
            self.words(id, "turn/start", thread)
        }

        fn words(&mut self, id: u32, method: &str, thread: &str) -> String {
            let line = format!(
                r#"{{"id":{id},"method":"{method}","params":{{"threadId":"{thread}","input":[{{"type":"text","text":"hi"}}]}}}}"#
            );
            let Body::Message(message) = Body::parse(line.as_bytes()) else { panic!("{line}: no message") };
            let (event, now) = (Event::of(&message), Now { unix_us: 1, elapsed: Duration::ZERO });
            let opened = Some(self.calls.to_server.open(Conn::OWN, &event, None).expect("BUG: there is room"));
            let body = &Body::OtherJson;
            let seen = Seen { now, conn: Conn::OWN, line: line.as_bytes(), verdict: Verdict::Open, body, opened };
            let loaded = self.context.load(&seen, &event, None, &mut self.calls, &mut self.effects);
            let (how, bytes) = match loaded.map(|Loaded { ahead, instead }| (ahead, instead)) {
                None | Some((None, None)) => return "unchanged".to_owned(),
                Some((None, Some(bytes))) => ("replaced", bytes),
                Some((Some(bytes), _)) => ("preceded", bytes),
            };
            let text = String::from_utf8(bytes).expect("BUG: it was UTF-8");
            let shown = text.match_indices("\\\"cmd\\\":\\\"").map(|(at, found)| {
                let cmd = &text[at + found.len()..];
                &cmd[..cmd.find('\\').unwrap_or(cmd.len())]
            });
            format!("{how} {}", shown.collect::<Vec<_>>().join(","))
        }

        /// The server responds; returns whose call that was.
        fn answer(&mut self, id: &str, rest: &str) -> &'static str {
            let line = format!(r#"{{"id":{id},{rest}}}"#);
            let Body::Message(message) = Body::parse(line.as_bytes()) else { panic!("{line}: no message") };
            let event = Event::of(&message);
            let mut completed = self.calls.to_server.complete(Conn::OWN, &event).call;
            let now = Now { unix_us: 1, elapsed: Duration::ZERO };
            let Play { context, threads, effects, .. } = self;
            if let Some(call) = &mut completed {
                context.answered(now, &event, call, threads, effects);
            }
            if event.id.map(RpcId::from_raw).is_some_and(|id| self.calls.is_own(&id)) { "ours" } else { "client's" }
        }

        /// Ends and names of deliveries since the last call, as `number outcome rows` and `number turn`, and warnings.
        fn kept(&mut self) -> Vec<String> {
            let in_words = |effect: &Effect| {
                if let Effect::Order(Order::Keep(LedgerEntry::Settled { delivery, outcome, delete })) = effect {
                    return Some(format!("{delivery} {} {delete:?}", outcome.name()));
                }
                if let Effect::Order(Order::Keep(LedgerEntry::TurnNamed { delivery, turn_id })) = effect {
                    return Some(format!("{delivery} is {turn_id}"));
                }
                if let Effect::Warn(warning) = effect { Some(format!("{warning:?}")) } else { None }
            };
            std::mem::take(&mut self.effects).iter().filter_map(in_words).collect()
        }
    }

    const RESULT: &str = r#""result":{"turn":{"id":"u1"}}"#;
    const REFUSED: &str = r#""error":{"code":-32600,"message":"Invalid request: unknown variant"}"#;
    const BAD_THREAD: &str = r#""error":{"code":-32600,"message":"invalid thread id: x"}"#;
    const BUSY: &str = r#""error":{"code":-32001,"message":"Server overloaded; retry later."}"#;

    #[test]
    fn steered_context_waits_for_the_end_of_its_turn() {
        const JOINED: &str = r#""result":{"turnId":"u1"}"#;
        let steered = || {
            let mut play = Play::start(Carrier::Envelope);
            play.push(&[1], None);
            assert_eq!(play.words(1, "turn/steer", "t"), "replaced c1");
            play
        };
        let joined = || {
            let mut play = steered();
            play.answer("1", JOINED);
            assert_eq!(play.kept(), ["1 is u1"], "it is not settled");
            assert_eq!(play.turn(2, "t"), "unchanged", "it is on its way");
            play
        };
        let mut play = joined();
        play.context.turn_ended("other", false, &mut play.effects);
        play.context.turn_ended("u1", true, &mut play.effects);
        assert_eq!(play.kept(), ["1 delivered [1]"]);
        let mut play = joined();
        play.context.turn_ended("u1", false, &mut play.effects);
        assert_eq!((play.kept(), play.turn(3, "t")), (vec!["1 unknown []".to_owned()], "replaced c1".to_owned()));
        let mut play = joined();
        play.context.thread_closed("t", &mut play.effects);
        assert_eq!((play.kept(), play.turn(3, "t")), (vec!["1 unknown []".to_owned()], "replaced c1".to_owned()));
        let mut play = joined();
        play.context.turns_ended(&mut play.effects);
        assert_eq!((play.kept(), play.turn(3, "t")), (vec!["1 server_exited []".to_owned()], "replaced c1".to_owned()));
        let mut play = steered();
        play.answer("1", REFUSED);
        assert_eq!((play.kept(), play.turn(3, "t")), (vec!["1 refused []".to_owned()], "replaced c1".to_owned()));
        // The end of the turn comes on another connection ahead of the response.
        let mut play = steered();
        play.threads.of("t");
        play.threads.turn_completed("t", "u1");
        play.answer("1", JOINED);
        assert_eq!(
            (play.kept(), play.turn(3, "t")),
            (vec!["1 is u1".to_owned(), "1 unknown []".to_owned()], "replaced c1".to_owned())
        );
    }

    #[test]
    fn success_deletes_and_error_requeues_in_front() {
        let mut play = Play::start(Carrier::Envelope);
        assert_eq!(play.turn(1, "t"), "unchanged");
        play.push(&[1, 2], None);
        assert_eq!(play.turn(2, "t"), "replaced c1,c2");
        play.push(&[3], None);
        assert_eq!(play.answer("2", BUSY), "client's");
        assert_eq!(play.kept(), ["1 refused []"]);
        assert_eq!(play.turn(3, "t"), "replaced c1,c2,c3");
        assert_eq!(play.answer("\"3\"", RESULT), "client's");
        assert_eq!(play.context.waiting(), 3);
        assert_eq!(play.answer("3", RESULT), "client's");
        assert_eq!(play.kept(), ["2 is u1", "2 delivered [1, 2, 3]"]);
        assert_eq!((play.context.waiting(), &*play.turn(4, "t")), (0, "unchanged"));
    }

    #[test]
    fn hook_commands_are_sorted_by_start() {
        let mut play = Play::start(Carrier::Envelope);
        play.push(&[1, 2, 3, 4, 5, 6], None);
        let of = [Origin::Push, Origin::Hook, Origin::Hook, Origin::Shell, Origin::Exec, Origin::Hook];
        for ((waiting, source), ts) in play.context.waiting.iter_mut().zip(of).zip([9, 8, 7, 6, 5, 4]) {
            (waiting.command.command.provenance.source, waiting.command.command.ts) = (source, ts);
        }
        assert_eq!(play.turn(1, "t"), "replaced c1,c4,c3,c2,c5,c6");
    }

    #[test]
    fn second_turn_carries_later_commands() {
        let mut play = Play::start(Carrier::Envelope);
        play.push(&[1], None);
        assert_eq!(play.turn(1, "t"), "replaced c1");
        assert_eq!(play.turn(2, "t"), "unchanged");
        play.push(&[2], None);
        assert_eq!(play.turn(3, "t"), "replaced c2");
        play.answer("3", RESULT);
        play.answer("1", REFUSED);
        assert_eq!(play.turn(4, "t"), "replaced c1");
        for lease in play.calls.to_server.take_all().into_iter().filter_map(|call| call.lease) {
            play.context.server_ended(&lease, &mut play.effects);
        }
        assert_eq!(play.kept(), ["2 is u1", "2 delivered [2]", "1 refused []", "3 server_exited []"]);
        assert_eq!(play.context.waiting(), 1);
    }

    #[test]
    fn ambiguous_response_requeues_commands() {
        for (carrier, how) in [(Carrier::Envelope, "replaced c1"), (Carrier::InjectItems, "preceded c1")] {
            let mut play = Play::start(carrier);
            play.push(&[1], None);
            assert_eq!(play.turn(5, "t"), how);
            let Body::Message(message) = Body::parse(br#"{"id":5,"method":"x"}"#) else { panic!("no message") };
            let again = play.calls.to_server.open(Conn::OWN, &Event::of(&message), None).expect("BUG: there is room");
            for call in play.calls.to_server.same_id(Some(again)) {
                play.context.is_ambiguous(call, &mut play.effects);
            }
            play.answer("5", RESULT);
            // A call of our own settles its delivery; only the turn stays unknown.
            let (expect, again): (&[&str], _) = match carrier {
                Carrier::Envelope => (&["1 unknown []"], how),
                Carrier::InjectItems | Carrier::Auto | Carrier::Off => (&[], "unchanged"),
            };
            assert_eq!(play.kept(), expect);
            assert_eq!((play.context.waiting(), &*play.turn(6, "t")), (1, again));
        }
    }

    /// Commands for this thread, named after their rows.
    fn waiting(rows: &[RowId], thread_id: Option<&str>) -> Vec<WaitingCommand> {
        let waiting = |row: &RowId| WaitingCommand {
            row: *row,
            thread_id: thread_id.map(str::to_owned),
            forgotten_before: 0,
            command: Command {
                cmd: format!("c{row}"),
                exit_code: None,
                cwd: None,
                block_id: None,
                ts: 1,
                preview: Preview::default(),
                shell_id: None,
                provenance: Provenance::default(),
            },
        };
        rows.iter().map(waiting).collect()
    }

    #[test]
    fn ledger_read_by_the_next_program_is_what_waits() {
        let mut play = Play::start(Carrier::Envelope);
        play.push(&[1, 2, 3], None);
        // During the handover one command was removed, and one was added.
        play.context.changed(ContextChange::Loaded(waiting(&[2, 3, 4], None)), &mut play.threads);
        assert_eq!((play.context.waiting(), &*play.turn(1, "t")), (3, "replaced c2,c3,c4"));
        // The leases remain.
        play.context.changed(ContextChange::Loaded(waiting(&[2, 3, 4], None)), &mut play.threads);
        assert_eq!((play.context.waiting(), &*play.turn(2, "t")), (3, "unchanged"));
    }

    #[test]
    fn thread_gets_own_and_untargeted_commands() {
        let mut play = Play::start(Carrier::Envelope);
        play.push(&[1], Some("a"));
        play.push(&[2], None);
        play.push(&[3], Some("b"));
        assert_eq!(play.turn(1, "b"), "replaced c2,c3");
        assert_eq!(play.turn(2, "c"), "unchanged");
        assert_eq!(play.turn(3, "a"), "replaced c1");
    }

    #[test]
    fn cleared_or_evicted_commands_are_not_shown() {
        let mut play = Play::start(Carrier::Envelope);
        play.push(&[1, 2, 3], None);
        play.context.changed(ContextChange::Forgotten { row: 1, counted_by: 2 }, &mut play.threads);
        assert_eq!(play.turn(1, "t"), "replaced c2,c3");
        let counted = |effect: &Effect| {
            matches!(effect, Effect::Order(Order::Keep(LedgerEntry::Sent(delivery)))
                if delivery.text.contains("\"total_commands_run\":3,\"kept\":2,\"dropped\":1"))
        };
        assert!(play.effects.iter().any(counted));
        play.context.changed(ContextChange::Cleared(vec![2, 3]), &mut play.threads);
        play.answer("1", REFUSED);
        assert_eq!((play.context.waiting(), &*play.turn(2, "t")), (0, "unchanged"));
    }

    #[test]
    fn own_call_is_settled_by_its_response() {
        let mut play = Play::start(Carrier::InjectItems);
        play.push(&[1], None);
        assert_eq!(play.turn(1, "t"), "preceded c1");
        assert_eq!(play.answer("1", RESULT), "client's");
        assert_eq!(play.answer("\"codex-shim:x:1\"", r#""result":{}"#), "ours");
        assert_eq!(play.kept(), ["1 is u1", "1 delivered [1]"]);
        assert_eq!(play.answer("\"codex-shim:y:1\"", r#""result":{}"#), "client's");
    }

    #[test]
    fn own_call_may_begin_thread_in_any_order() {
        for ours_first in [true, false] {
            let mut play = Play::start(Carrier::InjectItems);
            for (number, id, began) in [(1, "1", true), (2, "2", false)] {
                play.push(&[number], None);
                play.turn(number as u32, "t");
                let own = format!("\"codex-shim:x:{number}\"");
                let (ours, clients) = ((&*own, r#""result":{}"#), (id, RESULT));
                for (id, outcome) in if ours_first { [ours, clients] } else { [clients, ours] } {
                    play.answer(id, outcome);
                }
                let is_begin =
                    |effect: &Effect| matches!(effect, Effect::Order(Order::Keep(LedgerEntry::ThreadBegan { .. })));
                assert_eq!(play.effects.iter().any(is_begin), began, "{number}, ours first: {ours_first}");
                play.kept();
            }
        }
    }

    #[test]
    fn rejection_warns_once_and_auto_falls_back() {
        for (carrier, then, warning) in [
            (Carrier::Auto, "replaced c1", "InjectRefusedFallsBack"),
            (Carrier::InjectItems, "unchanged", "InjectRefusedWaits"),
        ] {
            let mut play = Play::start(carrier);
            play.push(&[1], None);
            assert_eq!(play.turn(1, "t"), "preceded c1");
            assert_eq!(play.answer("\"codex-shim:x:1\"", BUSY), "ours");
            assert_eq!(play.turn(2, "t"), "preceded c1");
            assert_eq!(play.answer("\"codex-shim:x:2\"", BAD_THREAD), "ours");
            assert_eq!(play.turn(3, "t"), "preceded c1");
            assert_eq!(play.answer("\"codex-shim:x:3\"", REFUSED), "ours");
            assert_eq!(play.kept(), ["1 refused []", "2 refused []", "3 refused []", warning]);
            assert_eq!(play.turn(4, "t"), then);
            assert_eq!(play.answer("\"codex-shim:x:9\"", BUSY), "ours");
            assert_eq!(play.kept(), [""; 0]);
        }
    }

    #[test]
    fn auto_skips_injection_for_old_versions() {
        let first = |carrier, version| {
            let mut play = Play::start(carrier);
            play.context.server_is(version);
            play.push(&[1], None);
            (play.turn(1, "t"), play.kept())
        };
        for (version, how) in [
            ("0.77.0", "replaced c1"),
            ("0.98.0", "replaced c1"),
            ("0.125.0", "preceded c1"),
            ("0.169.0-alpha.2", "preceded c1"),
            ("0.0.0", "preceded c1"),
            ("1.0.0", "preceded c1"),
            ("nonsense", "preceded c1"),
        ] {
            assert_eq!(first(Carrier::Auto, version), (how.to_owned(), Vec::new()), "{version}");
        }
        // Without an alternative it is tried anyway.
        assert_eq!(first(Carrier::InjectItems, "0.98.0").0, "preceded c1");
    }

    #[test]
    fn null_error_succeeds_and_null_id_carries_nothing() {
        let mut play = Play::start(Carrier::Envelope);
        play.push(&[1], None);
        assert_eq!(play.turn(1, "t"), "replaced c1");
        play.answer("1", r#""result":{"turn":{"id":"u1"}},"error":null"#);
        assert_eq!(play.kept(), ["1 is u1", "1 delivered [1]"]);
        play.push(&[2], None);
        let line = br#"{"id":null,"method":"turn/start","params":{"threadId":"t","input":[]}}"#;
        let Body::Message(message) = Body::parse(line) else { panic!("no message") };
        let opened = play.calls.to_server.open(Conn::OWN, &Event::of(&message), None);
        let now = Now { unix_us: 1, elapsed: Duration::ZERO };
        let seen = Seen { now, conn: Conn::OWN, line, verdict: Verdict::Open, body: &Body::OtherJson, opened };
        assert!(play.context.load(&seen, &message, None, &mut play.calls, &mut play.effects).is_none());
    }

    #[test]
    fn too_small_bounds_warn_once() {
        let mut play = Play::start(Carrier::Envelope);
        play.context.settings.bounds.envelope_bytes_max = 100;
        play.push(&[1], None);
        assert_eq!([play.turn(1, "t"), play.turn(2, "t")], ["unchanged", "unchanged"]);
        assert_eq!(play.kept(), ["ContextDoesNotFit"]);
    }

    #[test]
    fn nothing_is_sent_when_off() {
        let mut play = Play::start(Carrier::Off);
        play.push(&[1], None);
        assert_eq!((&*play.turn(1, "t"), play.context.waiting()), ("unchanged", 1));
    }

    #[test]
    fn threads_are_reported_once() {
        let mut play = Play::start(Carrier::Off);
        let mut play = |step: &str| {
            let Body::Message(message) = Body::parse(&step.as_bytes()[1..]) else { panic!("{step}: no message") };
            let event = Event::of(&message);
            if step.starts_with('>') {
                return play.calls.to_server.open(Conn::OWN, &event, None).and(None);
            }
            let mut completed = play.calls.to_server.complete(Conn::OWN, &event).call;
            let (now, mut effects) = (Now { unix_us: 1, elapsed: Duration::ZERO }, Vec::new());
            let Play { context, threads, .. } = &mut play;
            match (&mut completed, event.params) {
                (Some(call), _) => context.answered(now, &event, call, threads, &mut effects),
                (None, Some(params)) => drop(threads.mentioned_in(params, &mut effects)),
                (None, None) => {}
            }
            effects.pop().map(|effect| format!("{effect:?}"))
        };
        let seen = |id: &str| Some(format!("{:?}", Effect::keep(LedgerEntry::ThreadSeen { thread_id: id.to_owned() })));
        assert_eq!(play(r#">{"id":1,"method":"thread/start","params":{}}"#), None);
        assert_eq!(play(r#"<{"id":"1","result":{"thread":{"id":"no"}}}"#), None);
        assert_eq!(play(r#"<{"id":1,"result":{"thread":{"id":"a"}}}"#), seen("a"));
        assert_eq!(play(r#"<{"method":"thread/started","params":{"thread":{"id":"a"}}}"#), None);
        assert_eq!(play(r#"<{"method":"thread/started","params":{"thread":{"id":"b"}}}"#), seen("b"));
        assert_eq!(play(r#">{"id":2,"method":"turn/start","params":{"threadId":"c"}}"#), None);
        assert_eq!(play(r#"<{"id":2,"error":{"code":-32600}}"#), None);
        assert_eq!(play(r#"<{"id":2,"result":{}}"#), None);
        assert_eq!(play(r#">{"id":3,"method":"turn/start","params":{"threadId":"c"}}"#), None);
        assert_eq!(play(r#"<{"id":3,"result":{}}"#), seen("c"));
    }
}
