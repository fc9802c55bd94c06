//! What stands around the driver in a world on pipes: the engine, the record and the ledger, with their faults.
//!
//! The driver is the product's own. Broken relays are made here: by what the engine is told to decide, by what is recorded, and by
//! what the pipes do.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use codex_shim::testing::driver::{Direction, Driver, Elsewhere, Host, Links as _, Pair, Passed};
use codex_shim::testing::engine::{
    ApiCallId, ApiReply, ChildEffect, ClientName, Decision, Effect, Engine, Incoming, Input, LedgerEntry, LinkEffect,
    Note, Now, Order, OwnLine, Token,
};
use codex_shim::testing::journal::{Batch, Writer};
use codex_shim::testing::wire::{Conn, Line, LineEnd, Side};
use rustix::process::{Resource, Rlimit};

use super::canary::Canary;
use super::happened::Event;
use super::held::call_about_thread;
use super::lines::shown;
use super::pipe::Pipe;
use super::world::{FROM_CLIENT, FROM_SERVER, HOLD_MAX, STEPS, TO_CLIENT, TO_SERVER, World};

/// The result of an order that the relay learns.
#[derive(Debug, Clone, Copy)]
pub enum Told {
    Nothing,
    First(Token),
    Whether(Token),
    /// A hub has not read its ledger: nothing is stored, and only a failure is reported.
    Failure(Token),
}

pub type Shim = Driver<Pair<Pipe, Pipe>>;

/// A driver between the pipes of a client and a server.
pub fn shim(pipes: &[Pipe; 4]) -> Shim {
    let from_client = Direction::new(Side::Client, pipes[FROM_CLIENT].clone(), pipes[TO_SERVER].clone());
    let from_server = Direction::new(Side::Server, pipes[FROM_SERVER].clone(), pipes[TO_CLIENT].clone());
    Driver::new(Pair { from_client, from_server })
}

/// One run of the shim, with everything that ends with it.
pub struct Run {
    pub engine: Engine,
    pub writer: Writer,
    /// Entries on their way to the ledger.
    pub orders: VecDeque<(Told, LedgerEntry)>,
    pub started: Duration,
    /// Since when something waits for a token.
    pub held: BTreeMap<Token, Duration>,
    /// Checks of programs and reads of fragments that have no result.
    pub checks: Vec<Token>,
    pub reads: Vec<Token>,
    /// Orders for which the ledger had no room.
    refused: Vec<Token>,
    /// What could not be recorded, because there is no journal yet.
    pub without_journal: Option<Unrecorded>,
    /// Releases that a canary delays, and until when.
    pub released_late: VecDeque<(Token, Duration)>,
    /// Marks of which a part is written.
    pub begun: Vec<Token>,
    /// A line that a canary lets the next one overtake, or puts into the next one.
    pub overtaken: Option<OwnLine>,
    /// A line that a canary sends once more.
    pub copied: Option<(Side, Vec<u8>)>,
    /// Effects that a canary delays, and for how many others.
    pub delayed: (Vec<Effect>, u32),
    /// Something has been read, and is not passed on.
    pub is_reading: bool,
    /// A release of held lines that a canary puts behind all other effects.
    postponed: Option<Token>,
}

/// The lines and notes of a run whose journal is not open.
#[derive(Default)]
pub struct Unrecorded {
    pub lines: u64,
    notes: Vec<Note>,
}

impl Run {
    pub fn new(engine: Engine, writer: Writer, started: Duration) -> Run {
        Run {
            engine,
            writer,
            orders: VecDeque::new(),
            started,
            held: BTreeMap::new(),
            checks: Vec::new(),
            reads: Vec::new(),
            refused: Vec::new(),
            without_journal: None,
            released_late: VecDeque::new(),
            begun: Vec::new(),
            overtaken: None,
            copied: None,
            delayed: (Vec::new(), 0),
            is_reading: false,
            postponed: None,
        }
    }
}

/// The pipes of a side: out of it, and from the shim to the other one.
const fn pipes_of(from: Side) -> (usize, usize) {
    match from {
        Side::Client => (FROM_CLIENT, TO_SERVER),
        Side::Server => (FROM_SERVER, TO_CLIENT),
    }
}

impl World {
    /// Has the driver do something; a run that was killed in between is over then.
    fn drive(&mut self, what: impl FnOnce(&mut Shim, &mut World)) {
        let Some(mut shim) = self.shim.take() else { return };
        what(&mut shim, self);
        if std::mem::take(&mut self.dies) {
            return self.killed();
        }
        if let Some((to, line)) = self.run.as_mut().and_then(|run| run.copied.take()) {
            shim.links.send(Conn::OWN, to, vec![line], None);
        }
        let begun = shim.links.from_client.begun_marks();
        begun.iter().for_each(|token| self.referee.begun(*token));
        self.run.iter_mut().for_each(|run| run.begun.clone_from(&begun));
        self.shim = Some(shim);
    }

    /// The relay is killed while the driver works: nothing more is told, recorded or written.
    fn die(&mut self) {
        self.dies = true;
        self.pipes.iter().for_each(Pipe::cut);
    }

    /// Hands an input to the engine, and carries out what follows.
    pub fn tell(&mut self, input: Input) {
        self.tell_at_once(vec![input]);
    }

    fn tell_at_once(&mut self, inputs: Vec<Input>) {
        self.pipes_take(usize::MAX);
        self.drive(|shim, world| {
            let mut effects = Vec::new();
            inputs.into_iter().for_each(|input| world.handle(world.now(), input, &mut effects));
            world.carry_out_all(shim, &mut effects);
        });
    }

    /// Fragments are read, often just when an answer is stored.
    pub fn tell_fragments(&mut self, read: Input) {
        let orders = if self.dice.once_in(2) { self.orders_up_to_answer() } else { 0 };
        let mut inputs = vec![read];
        inputs.extend((0..orders).map_while(|_| self.store_next()));
        self.tell_at_once(inputs);
    }

    /// How many orders the ledger processes until an answer is stored; 0 if none waits for that.
    fn orders_up_to_answer(&self) -> u64 {
        let stores_answer = |(told, _): &(Told, LedgerEntry)| matches!(told, Told::Whether(_));
        let orders = self.run.iter().flat_map(|run| &run.orders);
        orders.into_iter().position(stores_answer).map_or(0, |at| at as u64 + 1)
    }

    /// Carries out all effects, also those that concern the child.
    fn carry_out_all(&mut self, shim: &mut Shim, effects: &mut Vec<Effect>) {
        while let Some(effect) = shim.carry_out_all(self, effects) {
            if effect == ChildEffect::CloseServerInput && !self.dies {
                self.close_server_input();
            }
        }
    }

    /// The server gets no more lines, and has all that came before.
    fn close_server_input(&mut self) {
        let bytes = self.pipes[TO_SERVER].get(usize::MAX);
        self.server_hears(&bytes);
        self.server_hears_end();
        self.pipes[TO_SERVER].close();
        let checked = self.referee.server_is_deaf(&self.client.mouth.said);
        self.holds(checked);
    }

    /// How many bytes the pipes take from the shim next: at times nothing, or a part of a line.
    fn pipes_take(&mut self, bytes_max: usize) {
        let stalls = self.canary == Canary::Stalls && self.happened.times(Event::Step) > 500;
        for pipe in [TO_CLIENT, TO_SERVER] {
            let takes = match self.dice.roll(4) {
                _ if stalls => 0,
                0 | 1 => 0,
                2 => bytes_max.min(self.dice.roll(60) as usize),
                _ => bytes_max,
            };
            self.pipes[pipe].takes(takes);
        }
    }

    /// Reads some of a side's output, and passes it on.
    pub fn read(&mut self, from: Side, bytes_max: usize) {
        let (pipe, _) = pipes_of(from);
        if !self.shim.as_mut().is_some_and(|shim| shim.links.direction(from).is_empty()) {
            // While output waits, nothing more is read.
            return;
        }
        self.pipes_take(bytes_max);
        self.pipes[pipe].gives(bytes_max);
        self.pipes[pipe].loses(self.canary == Canary::LosesBytes && self.dice.once_in(20));
        let is_withdrawal = from == Side::Server && withdraws(&self.pipes[pipe].peek(bytes_max));
        self.drive(|shim, world| {
            let (now, mut frames, mut effects) = (world.now(), Vec::new(), Vec::new());
            shim.links.direction(from).read(now.elapsed, &mut frames);
            world.take_messages(is_withdrawal, &mut effects);
            shim.pass(world, now, (Conn::OWN, from), &mut frames, &mut effects);
            if world.dice.once_in(300) {
                world.die();
            }
            world.carry_out_all(shim, &mut effects);
        });
    }

    /// What the relay hears of the ledger before it passes what it has read. The effects wait for that.
    fn take_messages(&mut self, is_withdrawal: bool, effects: &mut Vec<Effect>) {
        // An answer of a caller is often stored just when the server does not want it any more.
        let count = match self.dice.roll(15) {
            0 => self.dice.roll(4),
            1..=11 if is_withdrawal => self.orders_up_to_answer(),
            12..=14 => self.orders_up_to_answer(),
            _ => 0,
        };
        if let Some(input) = (count > 0).then(|| self.read_fragments()).flatten() {
            self.handle(self.now(), input, effects);
        }
        for _ in 0..count {
            let Some(input) = self.store_next() else { break };
            self.run.iter_mut().for_each(|run| run.is_reading = true);
            self.handle(self.now(), input, effects);
        }
        self.run.iter_mut().for_each(|run| run.is_reading = false);
    }

    /// Writes some of the outgoing data.
    pub fn flush(&mut self, from: Side, bytes_max: usize) {
        let stalls = self.canary == Canary::Stalls && self.happened.times(Event::Step) > 500;
        self.pipes[pipes_of(from).1].takes(if stalls { 0 } else { bytes_max });
        self.drive(|shim, world| {
            let mut effects = Vec::new();
            let to = if from == Side::Client { Side::Server } else { Side::Client };
            shim.flush(world, world.now(), (Conn::OWN, to), &mut effects);
            world.carry_out_all(shim, &mut effects);
        });
    }

    pub fn release_late(&mut self) {
        let now = self.now.elapsed;
        let (Some(run), Some(shim)) = (&mut self.run, &mut self.shim) else { return };
        while let Some((token, _)) = run.released_late.pop_front_if(|(_, due)| *due <= now) {
            shim.links.release(token);
        }
    }

    /// The token for which something has waited since before a time.
    pub fn held_since_before(&self, limit: Duration) -> Option<Token> {
        let (run, shim) = (self.run.as_ref()?, self.shim.as_ref()?);
        let held = [&shim.links.from_client, &shim.links.from_server].map(Direction::held);
        held.into_iter().flatten().find(|token| run.held.get(token).is_some_and(|since| *since < limit))
    }

    /// Whether nothing is in flight.
    pub fn is_at_rest(&self) -> bool {
        let (Some(run), Some(shim)) = (&self.run, &self.shim) else { return true };
        let is_idle = shim.links.from_client.is_empty() && shim.links.from_server.is_empty();
        let is_heard = self.fragments_hang || run.reads.is_empty();
        let is_read = self.pipes[FROM_CLIENT].is_read() && self.pipes[FROM_SERVER].is_read();
        let is_all_here = run.orders.is_empty() && run.checks.is_empty() && is_heard;
        is_all_here && is_idle && is_read && self.pipes.iter().all(Pipe::is_empty)
    }

    fn order(&mut self, order: Order) {
        let now = self.now().elapsed;
        let (told, entry) = match order {
            Order::Keep(entry) => (Told::Nothing, entry),
            Order::KeepFirst(token, entry) => {
                let checked = self.referee.ordered(now, token, &entry, false);
                self.holds(checked);
                (Told::First(token), entry)
            }
            Order::Commit(token, mut entry) => {
                self.ruled_by_canary(&mut entry);
                let checked = self.referee.ordered(now, token, &entry, true);
                self.holds(checked);
                (Told::Whether(token), entry)
            }
            Order::Read(..) => return self.broken("what is not to be done here: an early order".to_owned()),
        };
        let is_refused = matches!(told, Told::Whether(_)) && self.dice.once_in(15);
        let Some(run) = &mut self.run else { return };
        match told {
            Told::Whether(token) if is_refused => {
                self.happened.count(Event::RefusedOrder);
                run.refused.push(token);
            }
            told => run.orders.push_back((told, entry)),
        }
        self.reopened_by_canary();
    }

    /// The referee learns what the engine waits for: the context of a thread, or the check of a program for the request in a line.
    fn sees(&mut self, effects: &[Effect], line: Option<&[u8]>) {
        for effect in effects {
            match effect {
                Effect::RunFragments(token, _) => self.referee.held.reads(*token),
                Effect::CheckProgram(token, _) => {
                    let checked = self.referee.check_begins(*token, line.unwrap_or_default());
                    self.holds(checked);
                }
                _ => {}
            }
        }
    }

    /// Begins the journal of a run that had none so far.
    pub fn open_journal(&mut self) {
        let Some(run) = &mut self.run else { return };
        let Some(Unrecorded { lines, notes }) = run.without_journal.take() else { return };
        if lines > 0 {
            run.writer.begin_with_gap(lines, "there was no folder".to_owned());
        }
        let mut batch = run.writer.batch(self.now);
        notes.iter().for_each(|note| batch.push_note(note));
        commit(&mut run.writer, &mut batch, self.room_bytes);
    }
}

impl Host for World {
    fn now(&self) -> Now {
        World::now(self)
    }

    fn engine(&self) -> &Engine {
        &self.run.as_ref().expect("BUG: the driver belongs to a run").engine
    }

    fn decide(
        &mut self,
        now: Now,
        conn: Conn,
        from: Side,
        incoming: Incoming<'_>,
        effects: &mut Vec<Effect>,
    ) -> Option<Decision> {
        let Incoming::Line(line) = incoming else { return None };
        if self.dies {
            return None;
        }
        let said = if from == Side::Client { &self.client.mouth.said } else { &self.server.mouth.said };
        let is_last = line.end == LineEnd::EndOfStream;
        let waits = match self.referee.reads(now.elapsed, from, (line.bytes, is_last), said) {
            Ok(waits) => waits,
            Err(what) => {
                self.broken(what);
                return None;
            }
        };
        let misread = self.misread(from, line.bytes);
        let read = misread.as_deref().map_or(line, |bytes| Line { bytes, ..line });
        let decision = self.run.as_mut()?.engine.read(now, conn, from, Incoming::Line(read), effects);
        self.sees(effects, Some(line.bytes));
        if let Some(decision) = &decision {
            let checked = self.referee.passes_only(from, line.bytes, decision, effects);
            self.holds(checked);
        }
        if waits == decision.is_some() {
            self.broken(format!("6: it is {waits} that it waits for its context: {}", shown(line.bytes)));
        }
        let mut decision = decision?;
        self.sees(&decision.then, Some(line.bytes));
        if let Some(mark) = decision.mark {
            self.referee.marked(mark, line.bytes);
        }
        self.go_wrong(from, line, &mut decision);
        self.spoil(now, effects);
        let mut then = std::mem::take(&mut decision.then);
        self.spoil(now, &mut then);
        decision.then = then;
        self.reports_too_early(now, &decision, effects);
        if let Some(token) = decision.hold {
            let since = self.now.elapsed;
            self.run.as_mut()?.held.insert(token, since);
        }
        Some(decision)
    }

    fn handle(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        if self.dies {
            return;
        }
        let before = effects.len();
        let call = call_about_thread(&input);
        match &input {
            Input::Committed { token, done } => self.referee.committed(now.elapsed, *token, *done),
            Input::ProgramChecked { token, checked } => self.referee.checked(now.elapsed, *token, checked.is_ok()),
            Input::ReleaseAllHeld => self.referee.held.give_up(),
            Input::Written(mark) => {
                self.referee.begun(*mark);
                self.referee.written(*mark);
            }
            Input::Tick => self.referee.ticks(now.elapsed),
            Input::Closed { from: Side::Server } => self.referee.server_ended(),
            _ => {}
        }
        let (now, input) = self.misheard(now, input);
        if let Some(run) = &mut self.run {
            run.engine.handle(now, input, effects);
        }
        self.sees(&effects[before..], None);
        let checked = self.referee.decides_nothing(&effects[before..]);
        self.holds(checked);
        if let Some(call) = call {
            self.referee.held.called(now.elapsed, &call, &effects[before..]);
        }
        self.hides_injections(effects);
    }

    fn batch<'a>(&mut self, _: Now, _: Conn) -> Option<Batch<'a>> {
        let now = self.now;
        let run = self.run.as_mut().filter(|run| run.without_journal.is_none());
        run.map(|run| run.writer.batch(now))
    }

    fn miss(&mut self, lines: usize) {
        self.happened.add(Event::LineWithoutJournal, lines as u64);
        let counts = self.canary != Canary::CountsNoMissing;
        if let Some(missed) = self.run.as_mut().and_then(|run| run.without_journal.as_mut()).filter(|_| counts) {
            missed.lines += lines as u64;
        }
    }

    fn add(&mut self, batch: &mut Option<Batch<'_>>, effect: Effect) -> Option<Effect> {
        match (effect, batch) {
            (Effect::Note(note), Some(batch)) => batch.push_note(&note),
            (Effect::Note(note), None) => {
                let missed = self.run.as_mut().and_then(|run| run.without_journal.as_mut());
                if let Some(missed) = missed {
                    missed.notes.push(note);
                }
            }
            (Effect::Order(order), _) => self.order(order),
            (other, _) => return Some(other),
        }
        None
    }

    fn commit(&mut self, batch: &mut Batch<'_>) {
        if self.dies {
            return;
        }
        if self.canary == Canary::ForwardsFirst && self.dice.once_in(4) {
            // It is killed once the line is out.
            self.dies = true;
            return;
        }
        if let Some(run) = &mut self.run {
            commit(&mut run.writer, batch, self.room_bytes);
        }
        self.recorded_by_canary();
    }

    fn carry_out(&mut self, effect: Effect, effects: &mut Vec<Effect>) -> Option<Elsewhere> {
        if self.dice.once_in(4_000) {
            self.die();
        }
        if self.dies {
            return None;
        }
        let now = self.now;
        let released_at = World::now(self).elapsed;
        let run = self.run.as_mut()?;
        match effect {
            Effect::Note(note) => {
                if let Some(missed) = &mut run.without_journal {
                    missed.notes.push(note);
                    return None;
                }
                let mut batch = run.writer.batch(now);
                batch.push_note(&note);
                commit(&mut run.writer, &mut batch, self.room_bytes);
            }
            Effect::Order(order) => self.order(order),
            Effect::Link(LinkEffect::Release(token)) if self.canary == Canary::ReleasesLate => {
                run.released_late.push_back((token, now.elapsed + HOLD_MAX + Duration::from_millis(60)));
            }
            Effect::Link(LinkEffect::ReleaseHeld(token)) => {
                if run.postponed != Some(token) {
                    self.referee.released(released_at, token);
                    if self.canary == Canary::ReleasesLast {
                        run.postponed = Some(token);
                        effects.push(Effect::Link(LinkEffect::ReleaseHeld(token)));
                        return None;
                    }
                }
                return Some(Elsewhere::Link(LinkEffect::ReleaseHeld(token)));
            }
            Effect::Link(LinkEffect::PassLate { conns, line }) => {
                self.referee.shows_late(&line);
                return Some(Elsewhere::Link(LinkEffect::PassLate { conns, line }));
            }
            Effect::Link(LinkEffect::PassHeld(mut lines)) => {
                for late in &mut lines {
                    self.calls_after_turn(&late.bytes, &mut late.decision);
                }
                return Some(Elsewhere::Link(LinkEffect::PassHeld(lines)));
            }
            Effect::Link(LinkEffect::Inject(mut injection)) => {
                if let (Some(mark), Some(line)) = (injection.mark, injection.lines.first()) {
                    self.referee.injects(mark, &line.bytes);
                }
                if self.mixes_lines(&mut injection.lines) {
                    return None;
                }
                return Some(Elsewhere::Link(LinkEffect::Inject(injection)));
            }
            Effect::Link(effect) => return Some(Elsewhere::Link(effect)),
            Effect::Child(effect) => return Some(Elsewhere::Child(effect)),
            Effect::RunFragments(token, _) => run.reads.push(token),
            Effect::CheckProgram(token, _) => run.checks.push(token),
            // The simulation leaves out commands run for the user and the context engine.
            Effect::NotifyPending(_)
            | Effect::NotifyIdle(_)
            | Effect::Warn(_)
            | Effect::PublishConfigWarning(_)
            // No budget is set.
            | Effect::LookAtBudget(..)
            | Effect::Consult(_) => {}
        }
        None
    }

    fn report_refused(&mut self, effects: &mut Vec<Effect>) {
        let refused = self.run.as_mut().map(|run| std::mem::take(&mut run.refused)).unwrap_or_default();
        for token in refused {
            let now = World::now(self);
            match self.canary {
                Canary::ForgetsRefused => self.referee.committed(now.elapsed, token, false),
                _ => self.handle(now, Input::Committed { token, done: false }, effects),
            }
        }
        self.give_back(effects);
    }

    fn introduce(&mut self, _: Conn, _: ClientName) {}

    fn reply(&mut self, api_call: ApiCallId, reply: ApiReply, _: &mut Vec<Effect>) {
        if self.canary == Canary::LeavesCallers {
            return;
        }
        let lies = self.canary == Canary::LiesToCallers && reply == ApiReply::Kept;
        let reply = if lies { ApiReply::NotOpen } else { reply };
        let promises = self.canary == Canary::PromisesTaken && self.referee.taken_of == Some(api_call);
        let reply = if promises { ApiReply::Kept } else { reply };
        if let Err(what) = self.referee.replied(api_call, &reply) {
            self.broken(what);
        }
    }

    fn clients_changed(&mut self, _: usize) {}

    fn passed(&mut self, _: Side, _: Passed) {}

    fn publish_waiting(&mut self, _: usize) {}

    fn report(&mut self, fault: &str) {
        self.broken(format!("what is not to be reported here: {fault}"));
    }
}

impl World {
    /// The ledger processes one entry, and the relay hears of it.
    pub fn ledger(&mut self) {
        if let Some(input) = self.store_next() {
            self.tell(input);
        }
    }

    /// The ledger processes one entry; returns what it reports.
    fn store_next(&mut self) -> Option<Input> {
        if self.ledger_hangs {
            return None;
        }
        let (told, entry) = self.run.as_mut()?.orders.pop_front()?;
        let fails = !self.ledger_works || self.dice.once_in(15);
        self.happened.add(Event::FailedCommit, u64::from(fails));
        match told {
            // The entry is retried, but not reported again.
            Told::First(_) | Told::Nothing | Told::Failure(_) if fails => {
                self.run.as_mut()?.orders.push_front((Told::Nothing, entry));
            }
            Told::Whether(_) if fails => {}
            Told::First(_) | Told::Nothing | Told::Failure(_) | Told::Whether(_) => self.keep(entry),
        }
        match told {
            Told::First(token) | Told::Whether(token) => Some(Input::Committed { token, done: !fails }),
            Told::Nothing | Told::Failure(_) => None,
        }
    }

    fn keep(&mut self, entry: LedgerEntry) {
        self.say(|| format!("stored {entry:?}"));
        let is_last = self.happened.times(Event::Step) == STEPS;
        let is_unknown = |name: &String| self.rows.get(name).is_none();
        let forgets = match (&entry, self.canary) {
            (LedgerEntry::RequestEnded(end), Canary::ForgetsAnswers) => end.payload.is_some(),
            (LedgerEntry::RequestEnded(end), Canary::LeavesOpen) => end.payload.is_none(),
            (LedgerEntry::AnswerLost(_), Canary::ForgetsLostAnswers) => true,
            (LedgerEntry::RequestOpened(_), Canary::ForgetsHidden) => self.referee.habits.hides,
            (LedgerEntry::RequestOpened(_), Canary::ForgetsTheLast) => self.referee.habits.hides && is_last,
            (LedgerEntry::RequestEnded(end), Canary::ForgetsTheLast) => is_unknown(&end.request_id),
            (LedgerEntry::RequestExpired { request_id, .. }, Canary::ForgetsTheLast) => is_unknown(request_id),
            _ => false,
        };
        let twice = match (&entry, self.canary) {
            (LedgerEntry::RequestEnded(_), Canary::EndsTwice)
            | (LedgerEntry::RequestExpired { .. }, Canary::ExpiresTwice)
            | (LedgerEntry::RequestOpened(_), Canary::OpensTwice) => Some(entry.clone()),
            _ => None,
        };
        if let LedgerEntry::Settled { delete, .. } = &entry {
            self.commands.retain(|command| !delete.contains(&command.row));
        }
        for entry in [Some(entry).filter(|_| !forgets), twice].into_iter().flatten() {
            if let Err(what) = self.rows.keep(entry, self.canary) {
                self.broken(what);
            }
        }
    }
}

/// Whether the server says that it does not want an answer any more.
pub fn withdraws(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    text.contains("serverRequest/resolved") || text.contains("turn/completed")
}

/// Records a batch, as far as there is space.
pub fn commit(writer: &mut Writer, batch: &mut Batch<'_>, room_bytes: Option<u64>) {
    let _limit = room_bytes.map(Limit::set);
    // Missing lines are counted, and marked as soon as there is space.
    let _ = writer.commit(batch);
}

/// A temporary limit on the size of files.
struct Limit(Rlimit);

impl Limit {
    fn set(bytes: u64) -> Limit {
        let before = rustix::process::getrlimit(Resource::Fsize);
        let limit = Rlimit { current: Some(bytes), ..before };
        rustix::process::setrlimit(Resource::Fsize, limit).expect("a limit may be lowered");
        Limit(before)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        rustix::process::setrlimit(Resource::Fsize, self.0).expect("it is what it was");
    }
}
