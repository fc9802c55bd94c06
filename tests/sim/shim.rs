//! What stands around the driver in a world on pipes: the engine, the record and the ledger, with their faults.
//!
//! The driver is the product's own. Broken relays are made here: by what the engine is told to decide, by what is recorded, and by
//! what the pipes do.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use codex_shim::testing::driver::{Direction, Driver, Elsewhere, Host, Links as _, Pair, Passed};
use codex_shim::testing::engine::{
    ApiCallId, ApiReply, ClientName, Decision, Effect, Engine, Incoming, Input, LedgerEntry, LinkEffect, Now, Order,
    OwnLine, Passage, Token,
};
use codex_shim::testing::journal::{Batch, Writer};
use codex_shim::testing::wire::{Conn, Line, Side};
use rustix::process::{Resource, Rlimit};
use serde_json::Value;

use super::canary::Canary;
use super::happened::Event;
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
    /// Releases that a canary delays, and until when.
    pub released_late: VecDeque<(Token, Duration)>,
    /// Marks of which a part is written.
    begun: Vec<Token>,
    /// A line that a canary lets the next one overtake.
    overtaken: Option<OwnLine>,
}

impl Run {
    pub fn new(engine: Engine, writer: Writer, started: Duration) -> Run {
        Run {
            engine,
            writer,
            orders: VecDeque::new(),
            started,
            held: BTreeMap::new(),
            released_late: VecDeque::new(),
            begun: Vec::new(),
            overtaken: None,
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
        self.pipes_take(usize::MAX);
        self.drive(|shim, world| {
            let mut effects = Vec::new();
            world.handle(world.now(), input, &mut effects);
            while shim.carry_out_all(world, &mut effects).is_some() {}
        });
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
        self.drive(|shim, world| {
            let (now, mut frames, mut effects) = (world.now(), Vec::new(), Vec::new());
            shim.links.direction(from).read(now.elapsed, &mut frames);
            shim.pass(world, now, (Conn::OWN, from), &mut frames, &mut effects);
            if world.dice.once_in(300) {
                world.die();
            }
            while shim.carry_out_all(world, &mut effects).is_some() {}
        });
    }

    /// Writes some of the outgoing data.
    pub fn flush(&mut self, from: Side, bytes_max: usize) {
        let stalls = self.canary == Canary::Stalls && self.happened.times(Event::Step) > 500;
        self.pipes[pipes_of(from).1].takes(if stalls { 0 } else { bytes_max });
        self.drive(|shim, world| {
            let mut effects = Vec::new();
            let to = if from == Side::Client { Side::Server } else { Side::Client };
            shim.flush(world, world.now(), (Conn::OWN, to), &mut effects);
            while shim.carry_out_all(world, &mut effects).is_some() {}
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
        run.orders.is_empty() && is_idle && self.pipes.iter().all(Pipe::is_empty)
    }

    fn order(&mut self, order: Order) {
        let now = self.now().elapsed;
        let Some(run) = &mut self.run else { return };
        let (told, entry) = match order {
            Order::Keep(entry) => (Told::Nothing, entry),
            Order::KeepFirst(token, entry) => {
                self.referee.ordered(now, token, &entry, false);
                (Told::First(token), entry)
            }
            Order::Commit(token, entry) => {
                self.referee.ordered(now, token, &entry, true);
                (Told::Whether(token), entry)
            }
            Order::Read(..) => return self.broken("what is not to be done here: an order to read".to_owned()),
        };
        run.orders.push_back((told, entry));
    }

    /// The change that some canaries make to a decision.
    fn go_wrong(&mut self, from: Side, line: Line<'_>, decision: &mut Decision) {
        let is_last = self.happened.times(Event::Step) == STEPS;
        let answers = from == Side::Client && decision.mark.is_some();
        let is_copied = match self.canary {
            Canary::SaysTwice => from == Side::Server && self.dice.once_in(50),
            Canary::AnswersTwice => answers,
            _ => false,
        };
        let to = if from == Side::Client { Side::Server } else { Side::Client };
        let Some(form) = decision.record.clone() else { return };
        let own = |bytes: Vec<u8>| Passage::Replace(OwnLine { to, form: form.clone(), bytes });
        match self.canary {
            _ if is_copied && decision.line == Passage::Forward => {
                decision.line = own([line.bytes, line.bytes].join(&b'\n'));
            }
            Canary::LosesTheClientsLast if is_last && from == Side::Client => decision.line = Passage::Withhold,
            Canary::LosesTheServersLast if is_last && from == Side::Server => decision.line = Passage::Withhold,
            Canary::AltersAnswers if answers && decision.line == Passage::Forward => {
                decision.line = own(String::from_utf8_lossy(line.bytes).replace("nth", "9th").into_bytes());
            }
            Canary::SwallowsAnswers if answers => decision.line = Passage::Withhold,
            Canary::SwallowsSecondAnswers if from == Side::Client && self.referee.is_second(line.bytes) => {
                decision.line = Passage::Withhold;
            }
            Canary::ShowsUnkept if from == Side::Server => decision.hold = None,
            Canary::SendsUnkept if answers => decision.hold = None,
            Canary::ShowsEnvelopes if from == Side::Server && matches!(decision.line, Passage::Replace(_)) => {
                decision.line = Passage::Forward;
            }
            Canary::PrintsAgain if decision.line == Passage::Forward => {
                if let Ok(value) = serde_json::from_slice::<Value>(line.bytes) {
                    decision.line = own(value.to_string().into_bytes());
                }
            }
            Canary::Overtakes if from == Side::Server => self.overtake(line, decision, own),
            _ => {}
        }
    }

    /// Lets a line that should wait behind a request overtake it.
    fn overtake(&mut self, line: Line<'_>, decision: &mut Decision, own: impl Fn(Vec<u8>) -> Passage) {
        let Some(run) = &mut self.run else { return };
        if decision.line != Passage::Forward {
            return;
        }
        match (decision.hold.is_some(), run.overtaken.take()) {
            (true, None) => {
                if let Passage::Replace(line) = own(line.bytes.to_vec()) {
                    run.overtaken = Some(line);
                    (decision.line, decision.hold) = (Passage::Withhold, None);
                }
            }
            (_, Some(overtaken)) => decision.line = own([line.bytes, &overtaken.bytes].join(&b'\n')),
            (false, None) => {}
        }
    }

    /// What some canaries leave out of the effects of a line, or do instead.
    fn spoil_recalls(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let begins = self.canary == Canary::RecallsBegun;
        if self.canary != Canary::KeepsAnswers && !begins {
            return;
        }
        let recalls = effects.extract_if(.., |effect| matches!(effect, Effect::Link(LinkEffect::Recall(_))));
        for recall in recalls.collect::<Vec<Effect>>() {
            match recall {
                Effect::Link(LinkEffect::Recall(token))
                    if begins && self.run.as_ref().is_some_and(|run| run.begun.contains(&token)) =>
                {
                    self.handle(now, Input::Recalled(token), effects);
                }
                recall if begins => effects.push(recall),
                _ => {}
            }
        }
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
        if let Err(what) = self.referee.reads(now.elapsed, from, line.bytes, said) {
            self.broken(what);
            return None;
        }
        let run = self.run.as_mut()?;
        let mut decision = run.engine.read(now, conn, from, incoming, effects)?;
        if let Some(mark) = decision.mark {
            self.referee.marked(mark, line.bytes);
        }
        self.go_wrong(from, line, &mut decision);
        self.spoil_recalls(now, effects);
        let mut then = std::mem::take(&mut decision.then);
        self.spoil_recalls(now, &mut then);
        decision.then = then;
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
        match &input {
            Input::Committed { token, done } => self.referee.committed(*token, *done),
            Input::Written(mark) => {
                self.referee.begun(*mark);
                self.referee.written(*mark);
            }
            Input::Tick => self.referee.ticks(now.elapsed),
            Input::Closed { from: Side::Server } => self.referee.server_ended(),
            _ => {}
        }
        if let Some(run) = &mut self.run {
            run.engine.handle(now, input, effects);
        }
    }

    fn batch<'a>(&mut self, _: Now, _: Conn) -> Option<Batch<'a>> {
        let now = self.now;
        self.run.as_mut().map(|run| run.writer.batch(now))
    }

    fn miss(&mut self, _: usize) {}

    fn add(&mut self, batch: &mut Option<Batch<'_>>, effect: Effect) -> Option<Effect> {
        match (effect, batch) {
            (Effect::Note(note), Some(batch)) => batch.push_note(&note),
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
    }

    fn carry_out(&mut self, effect: Effect, _: &mut Vec<Effect>) -> Option<Elsewhere> {
        if self.dice.once_in(4_000) {
            self.die();
        }
        if self.dies {
            return None;
        }
        let now = self.now;
        let run = self.run.as_mut()?;
        match effect {
            Effect::Note(note) => {
                let mut batch = run.writer.batch(now);
                batch.push_note(&note);
                commit(&mut run.writer, &mut batch, self.room_bytes);
            }
            Effect::Order(order) => self.order(order),
            Effect::Link(LinkEffect::Release(token)) if self.canary == Canary::ReleasesLate => {
                run.released_late.push_back((token, now.elapsed + HOLD_MAX + Duration::from_millis(60)));
            }
            Effect::Link(LinkEffect::Inject(injection)) => {
                if let (Some(mark), Some(line)) = (injection.mark, injection.lines.first()) {
                    self.referee.marked(mark, &line.bytes);
                }
                return Some(Elsewhere::Link(LinkEffect::Inject(injection)));
            }
            Effect::Link(effect) => return Some(Elsewhere::Link(effect)),
            Effect::Child(effect) => return Some(Elsewhere::Child(effect)),
            // Nothing is assembled. The simulation leaves out commands run for the user.
            Effect::NotifyPending(_)
            | Effect::NotifyIdle(_)
            | Effect::Warn(_)
            | Effect::PublishConfigWarning(_)
            | Effect::Consult(_)
            | Effect::RunFragments(..)
            | Effect::CheckProgram(..) => {}
        }
        None
    }

    fn report_refused(&mut self, _: &mut Vec<Effect>) {}

    fn introduce(&mut self, _: Conn, _: ClientName) {}

    fn reply(&mut self, api_call: ApiCallId, reply: ApiReply, _: &mut Vec<Effect>) {
        if self.canary == Canary::LeavesCallers {
            return;
        }
        let lies = self.canary == Canary::LiesToCallers && reply == ApiReply::Kept;
        let reply = if lies { ApiReply::NotOpen } else { reply };
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
    /// The ledger processes one entry.
    pub fn ledger(&mut self) {
        if self.ledger_hangs {
            return;
        }
        let Some(run) = &mut self.run else { return };
        let Some((told, entry)) = run.orders.pop_front() else { return };
        let fails = !self.ledger_works || self.dice.once_in(15);
        match (told, fails) {
            (Told::Whether(token), true) => self.tell(Input::Committed { token, done: false }),
            // The entry is retried, but not reported again.
            (Told::First(token), true) => {
                run.orders.push_front((Told::Nothing, entry));
                self.tell(Input::Committed { token, done: false });
            }
            (Told::Nothing | Told::Failure(_), true) => run.orders.push_front((Told::Nothing, entry)),
            (_, false) => {
                self.keep(entry);
                if let Told::First(token) | Told::Whether(token) = told {
                    self.tell(Input::Committed { token, done: true });
                }
            }
        }
        self.happened.add(Event::FailedCommit, u64::from(fails));
    }

    fn keep(&mut self, entry: LedgerEntry) {
        let is_last = self.happened.times(Event::Step) == STEPS;
        let is_unknown = |name: &String| self.rows.get(name).is_none();
        let forgets = match (&entry, self.canary) {
            (LedgerEntry::RequestEnded(end), Canary::ForgetsAnswers) => end.payload.is_some(),
            (LedgerEntry::RequestEnded(end), Canary::LeavesOpen) => end.payload.is_none(),
            (LedgerEntry::AnswerLost(_), Canary::ForgetsLostAnswers) => true,
            (LedgerEntry::RequestOpened(_), Canary::ForgetsHidden) => self.referee.hides,
            (LedgerEntry::RequestOpened(_), Canary::ForgetsTheLast) => self.referee.hides && is_last,
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
