//! The shim's loop, played by the rule at the top of `engine`: the whole result of one read is recorded before any of
//! it is forwarded; other effects run in order.

use std::collections::VecDeque;
use std::time::Duration;

use codex_shim::testing::engine::{
    ApiReply, ChildEffect, Decision, Effect, Engine, Incoming, Input, LedgerEntry, LinkEffect, Now, Order, OwnLine,
    Passage, Token,
};
use codex_shim::testing::journal::{Batch, Writer};
use codex_shim::testing::wire::{Conn, Frame, Framer, Line, LineEnd, Side};
use rustix::process::{Resource, Rlimit};
use serde_json::Value;

use super::canary::Canary;
use super::dice::Dice;
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

/// Outgoing data, in order.
#[derive(Debug)]
pub enum Out {
    Bytes(Vec<u8>),
    Hold(Token, Duration),
    /// The end of a line of this length.
    Mark(Token, usize),
}

/// One direction of the shim.
#[derive(Debug, Default)]
pub struct Lane {
    framer: Framer,
    pub out: VecDeque<Out>,
}

/// One run of the shim, with everything that ends with it.
pub struct Run {
    pub engine: Engine,
    pub writer: Writer,
    pub lanes: [Lane; 2],
    /// Entries on their way to the ledger.
    pub orders: VecDeque<(Told, LedgerEntry)>,
    pub started: Duration,
    /// Releases that a canary delays, and until when.
    pub released_late: VecDeque<(Token, Duration)>,
}

impl Run {
    fn release(&mut self, token: Token) {
        for lane in &mut self.lanes {
            lane.out.retain(|out| !matches!(out, Out::Hold(held, _) if *held == token));
        }
    }

    /// Takes back the line before a mark, unless a part of it is written.
    fn recall(&mut self, token: Token) -> bool {
        let out = &mut self.lanes[Side::Client as usize].out;
        let at = out.iter().position(|out| matches!(out, Out::Mark(mark, _) if *mark == token));
        let Some((at, Some(Out::Mark(_, length)))) = at.map(|at| (at, out.get(at))) else { return false };
        let is_whole = at > 0 && matches!(&out[at - 1], Out::Bytes(bytes) if bytes.len() == *length);
        if is_whole {
            out.drain(at - 1..=at);
        }
        is_whole
    }

    pub fn release_late(&mut self, now: Duration) {
        while let Some((token, _)) = self.released_late.pop_front_if(|(_, due)| *due <= now) {
            self.release(token);
        }
    }
}

impl World {
    /// Carries out the engine's effects in order; the run may end between any two of them.
    pub fn tell(&mut self, input: Input) {
        let mut effects = Vec::new();
        let now = self.now();
        let Some(run) = &mut self.run else { return };
        match &input {
            Input::Committed { token, done } => self.referee.committed(*token, *done),
            Input::Written(mark) => self.referee.written(*mark),
            Input::Tick => self.referee.ticks(now.elapsed),
            Input::Closed { from: Side::Server } => self.referee.server_ended(),
            _ => {}
        }
        run.engine.handle(now, input, &mut effects);
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if self.dice.once_in(4_000) {
                return self.killed();
            }
            let effect = match effect {
                Effect::Order(order) => {
                    self.order(order);
                    continue;
                }
                other => other,
            };
            let Some(run) = &mut self.run else { return };
            match effect {
                Effect::Note(note) => {
                    let mut batch = run.writer.batch(self.now);
                    batch.push_note(&note);
                    commit(&mut run.writer, batch, self.room_bytes);
                }
                Effect::Link(LinkEffect::Release(token)) if self.canary == Canary::ReleasesLate => {
                    run.released_late.push_back((token, self.now.elapsed + HOLD_MAX + Duration::from_millis(60)));
                }
                Effect::Link(LinkEffect::Release(token)) => run.release(token),
                Effect::Link(LinkEffect::Recall(_)) if self.canary == Canary::KeepsAnswers => {}
                Effect::Link(LinkEffect::Recall(token)) => {
                    if run.recall(token) || self.canary == Canary::RecallsBegun {
                        self.tell(Input::Recalled(token));
                    }
                }
                Effect::Link(LinkEffect::Inject(injection)) => {
                    put_on_record(run, self.now, &injection.lines, self.room_bytes);
                    if let (Some(mark), Some(line)) = (injection.mark, injection.lines.first()) {
                        self.referee.marked(mark, &line.bytes);
                    }
                    let lines: Vec<u8> =
                        injection.lines.into_iter().flat_map(|line| LineEnd::Newline.ends(line.bytes)).collect();
                    let lane = &mut run.lanes[Side::Client as usize];
                    let length = lines.len();
                    lane.out.push_back(Out::Bytes(lines));
                    lane.out.extend(injection.mark.map(|mark| Out::Mark(mark, length)));
                }
                Effect::Link(LinkEffect::PassLate { line, .. }) => {
                    run.lanes[Side::Server as usize].out.push_back(Out::Bytes(LineEnd::Newline.ends(line)));
                }
                Effect::Link(LinkEffect::Reply(..)) if self.canary == Canary::LeavesCallers => {}
                Effect::Link(LinkEffect::Reply(api_call, reply)) => {
                    let lies = self.canary == Canary::LiesToCallers && reply == ApiReply::Kept;
                    let reply = if lies { ApiReply::NotOpen } else { reply };
                    if let Err(what) = self.referee.replied(api_call, &reply) {
                        self.broken(what);
                    }
                }
                // A server that starts with a client needs no introduction, and nothing is assembled for it. The
                // simulation leaves out commands run for the user and the child's fate.
                Effect::Link(LinkEffect::Introduce(..))
                | Effect::NotifyPending(_)
                | Effect::NotifyIdle(_)
                | Effect::Warn(_)
                | Effect::Child(ChildEffect::CloseServerInput)
                | Effect::Child(ChildEffect::CloseClientOutput)
                | Effect::Child(ChildEffect::SignalServer(_))
                | Effect::Child(ChildEffect::KillServer)
                | Effect::Child(ChildEffect::DrainServer { .. })
                | Effect::Child(ChildEffect::Finish(_)) => {}
                other => self.broken(format!("what is not to be done here: {other:?}")),
            }
        }
    }

    /// An entry goes on its way to the ledger.
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
            Order::Early(..) => return self.broken("what is not to be done here: an early order".to_owned()),
        };
        run.orders.push_back((told, entry));
    }

    /// Reads some of a side's output: records all of it first, and forwards it then.
    pub fn read(&mut self, from: Side, bytes_max: usize) {
        let Some(run) = &mut self.run else { return };
        let lane = from as usize;
        // While output waits, nothing more is read.
        if !run.lanes[lane].out.is_empty() {
            return;
        }
        let mut bytes = self.pipes[if from == Side::Client { FROM_CLIENT } else { FROM_SERVER }].get(bytes_max);
        if self.canary == Canary::LosesBytes && self.dice.once_in(20) {
            bytes.pop();
        }
        let mut framer = std::mem::take(&mut run.lanes[lane].framer);
        framer.buffer_mut().extend_from_slice(&bytes);
        let frames: Vec<Frame> = std::iter::from_fn(|| framer.next_frame()).collect();
        let mut batch = run.writer.batch(self.now);
        let mut later = Vec::new();
        for frame in &frames {
            let Frame::Line { range, end } = frame else { continue };
            let line = framer.line(range.clone(), *end);
            self.read_line(from, line, &mut batch, &mut later);
        }
        if self.canary == Canary::ForwardsFirst {
            self.flush(from, usize::MAX);
            if self.dice.once_in(4) {
                return self.killed();
            }
        }
        let Some(run) = &mut self.run else { return };
        commit(&mut run.writer, batch, self.room_bytes);
        framer.release_framed();
        run.lanes[lane].framer = framer;
        if self.dice.once_in(300) {
            return self.killed();
        }
        self.carry_out(later);
    }

    /// Lets the engine decide on one line.
    fn read_line<'a>(&mut self, from: Side, line: Line<'a>, batch: &mut Batch<'a>, later: &mut Vec<Effect>) {
        let now = self.now();
        let said = if from == Side::Client { &self.client.mouth.said } else { &self.server.mouth.said };
        if let Err(what) = self.referee.reads(now.elapsed, from, line.bytes, said) {
            return self.broken(what);
        }
        let mut effects = Vec::new();
        let Some(run) = &mut self.run else { return };
        // Nothing is assembled, so no line is held.
        let Some(decision) = run.engine.read(now, Conn::OWN, from, Incoming::Line(line), &mut effects) else { return };
        let Decision { before, record, hold, line: passage, mark, then } = decision;
        self.on_record(effects, batch, later);
        let mut out = Vec::new();
        for own in before {
            batch.push_own_line(&own);
            out.push(Out::Bytes(LineEnd::Newline.ends(own.bytes)));
        }
        record.iter().for_each(|form| batch.push_line(from, form, line));
        out.extend(hold.map(|token| Out::Hold(token, self.now.elapsed)));
        match passage {
            Passage::Forward => out.push(Out::Bytes(line.end.ends(line.bytes.to_vec()))),
            Passage::Replace(own) => {
                batch.push_replacement(&own, line.end);
                let shows = self.canary == Canary::ShowsEnvelopes && from == Side::Server;
                let bytes = if shows { line.bytes.to_vec() } else { own.bytes };
                out.push(Out::Bytes(line.end.ends(bytes)));
            }
            Passage::Withhold => {}
        }
        if let Some(token) = mark {
            self.referee.marked(token, line.bytes);
            let length = out.last().map_or(0, |out| if let Out::Bytes(bytes) = out { bytes.len() } else { 0 });
            out.push(Out::Mark(token, length));
        }
        self.on_record(then, batch, later);
        let is_last = self.happened.times(Event::Step) == STEPS;
        let Some(run) = &mut self.run else { return };
        go_wrong(self.canary, &mut self.dice, from, is_last, &mut out);
        if self.canary == Canary::SwallowsSecondAnswers && from == Side::Client && self.referee.is_second(line.bytes) {
            out.retain(|out| !matches!(out, Out::Bytes(_)));
        }
        let lane = &mut run.lanes[from as usize].out;
        match (self.canary, lane.front(), &out[..]) {
            (Canary::Overtakes, Some(Out::Hold(..)), [Out::Bytes(_)]) => {
                out.into_iter().for_each(|out| lane.push_front(out));
            }
            _ => lane.extend(out),
        }
    }

    /// Carries out the effects of a line that put something on record.
    fn on_record(&mut self, effects: Vec<Effect>, batch: &mut Batch<'_>, later: &mut Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Note(note) => batch.push_note(&note),
                Effect::Order(order) => self.order(order),
                other => later.push(other),
            }
        }
    }

    /// Writes some of the outgoing data.
    pub fn flush(&mut self, from: Side, bytes_max: usize) {
        let mut reached = Vec::new();
        let stalls = self.canary == Canary::Stalls && self.happened.times(Event::Step) > 500;
        let Some(run) = self.run.as_mut().filter(|_| !stalls) else { return };
        let pipe = &mut self.pipes[if from == Side::Client { TO_SERVER } else { TO_CLIENT }];
        let mut left = bytes_max;
        while let Some(front) = run.lanes[from as usize].out.front_mut() {
            match front {
                Out::Bytes(bytes) => {
                    let taken = pipe.put(bytes, left);
                    left -= taken;
                    bytes.drain(..taken);
                    let is_whole = bytes.is_empty();
                    if let Some(Out::Mark(token, _)) = run.lanes[from as usize].out.get(1).filter(|_| taken > 0) {
                        self.referee.begun(*token);
                    }
                    if !is_whole {
                        break;
                    }
                }
                Out::Hold(..) => break,
                Out::Mark(token, _) => reached.push(*token),
            }
            run.lanes[from as usize].out.pop_front();
        }
        // An effect of one of them may end the run.
        reached.into_iter().for_each(|token| self.tell(Input::Written(token)));
    }

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

/// The change that some canaries make to the output for one line.
fn go_wrong(canary: Canary, dice: &mut Dice, from: Side, is_last: bool, out: &mut Vec<Out>) {
    let answers = from == Side::Client && matches!(out.last(), Some(Out::Mark(..)));
    let copy = |out: &[Out]| {
        let bytes = out.iter().find_map(|out| if let Out::Bytes(bytes) = out { Some(bytes.clone()) } else { None });
        bytes.map(Out::Bytes)
    };
    match canary {
        Canary::SaysTwice if from == Side::Server && dice.once_in(50) => out.extend(copy(out)),
        Canary::AnswersTwice if answers => out.extend(copy(out)),
        Canary::LosesTheClientsLast if is_last && from == Side::Client => out.clear(),
        Canary::LosesTheServersLast if is_last && from == Side::Server => out.clear(),
        Canary::AltersAnswers if answers => {
            for out in out {
                if let Out::Bytes(bytes) = out {
                    *bytes = String::from_utf8_lossy(bytes).replace("nth", "9th").into_bytes();
                }
            }
        }
        Canary::SwallowsAnswers if answers => out.retain(|out| !matches!(out, Out::Bytes(_))),
        Canary::ShowsUnkept if from == Side::Server => out.retain(|out| !matches!(out, Out::Hold(..))),
        Canary::SendsUnkept if answers => out.retain(|out| !matches!(out, Out::Hold(..))),
        Canary::PrintsAgain => {
            for out in out {
                if let Out::Bytes(bytes) = out
                    && let Ok(value) = serde_json::from_slice::<Value>(bytes)
                {
                    *bytes = LineEnd::Newline.ends(value.to_string().into_bytes());
                }
            }
        }
        _ => {}
    }
}

/// Records a batch, as far as there is space.
pub fn commit(writer: &mut Writer, batch: Batch<'_>, room_bytes: Option<u64>) {
    let _limit = room_bytes.map(Limit::set);
    // Missing lines are counted, and marked as soon as there is space.
    let _ = writer.commit(batch);
}

fn put_on_record(run: &mut Run, now: Now, lines: &[OwnLine], room_bytes: Option<u64>) {
    let mut batch = run.writer.batch(now);
    lines.iter().for_each(|line| batch.push_own_line(line));
    commit(&mut run.writer, batch, room_bytes);
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

/// Whether nothing is in flight in a run, or between it and its sides.
pub fn is_at_rest(run: &Run, pipes: &[Pipe]) -> bool {
    run.orders.is_empty() && run.lanes.iter().all(|lane| lane.out.is_empty()) && pipes.iter().all(Pipe::is_empty)
}
