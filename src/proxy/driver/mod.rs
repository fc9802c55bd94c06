//! What happens to a line between two ends, for every kind of session and in the simulation.
//!
//! All lines of one read are decided on and recorded; only then is one of them queued for the other end.
//!
//! The driver reads no clock, no descriptor and no file: [`Host`] does that for it, and [`Links`] are the queues to the ends. Other
//! effects of the engine follow in the order in which it has given them.

use std::collections::VecDeque;
use std::time::Duration;

use crate::engine::{
    ApiCallId, ApiReply, ChildEffect, ClientName, Decision, Effect, Engine, Form, Incoming, Injection, Input, LateLine,
    LinkEffect, Now, OwnLine, Passage, Token,
};
use crate::invariants::holds;
use crate::journal::Batch;
use crate::wire::{Conn, Line, LineEnd, Side};

/// What one read has passed on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Passed {
    /// Lines that ended in it.
    pub lines: u64,
    /// Of these, the lines that are left out of the record.
    pub omitted_lines: u64,
    /// Forwarded bytes.
    pub bytes: u64,
}

impl Passed {
    /// Counts a line that is left out of the record.
    fn count_omitted(&mut self, decision: &Decision) {
        self.omitted_lines += u64::from(matches!(decision.record, Some(Form::Omitted(_))));
    }
}

/// An effect that is not the host's.
#[derive(Debug)]
pub enum Elsewhere {
    Link(LinkEffect),
    Child(ChildEffect),
}

/// The engine, the record, and everything else that is neither a link nor a child.
pub trait Host {
    fn now(&self) -> Now;

    fn engine(&self) -> &Engine;

    /// Has the engine decide on a line; see [`Engine::read`].
    fn decide(
        &mut self,
        now: Now,
        conn: Conn,
        from: Side,
        incoming: Incoming<'_>,
        effects: &mut Vec<Effect>,
    ) -> Option<Decision>;

    /// Hands an input to the engine.
    fn handle(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>);

    /// A batch for the lines of a connection; `None` if there is no journal.
    fn batch<'a>(&mut self, now: Now, conn: Conn) -> Option<Batch<'a>>;

    /// Counts lines for which there was no batch.
    fn miss(&mut self, lines: usize);

    /// Carries out an effect that puts something on record; returns any other.
    fn add(&mut self, batch: &mut Option<Batch<'_>>, effect: Effect) -> Option<Effect>;

    fn commit(&mut self, batch: &mut Batch<'_>);

    /// Carries out an effect that concerns neither a link nor a child; returns any other.
    fn carry_out(&mut self, effect: Effect, effects: &mut Vec<Effect>) -> Option<Elsewhere>;

    /// Reports orders to the engine that the ledger refused.
    fn report_refused(&mut self, effects: &mut Vec<Effect>);

    fn introduce(&mut self, conn: Conn, client: ClientName);

    fn reply(&mut self, caller: ApiCallId, reply: ApiReply, effects: &mut Vec<Effect>);

    /// The clients of a hub have become more or less.
    fn clients_changed(&mut self, clients: usize);

    /// Publishes what a read has passed on.
    fn passed(&mut self, from: Side, passed: Passed);

    /// Publishes the number of waiting context entries if it is not `before` any more, and the number of pending requests.
    fn publish_waiting(&mut self, before: usize);

    /// Reports a fault to the user, once.
    fn report(&mut self, fault: &str);
}

/// The queues between clients and the server.
pub trait Links {
    /// A line as it was read, or a piece of one.
    type Unit;

    /// The line of an item, and what the engine reads.
    fn line<'a>(&'a self, from: Side, item: &'a Self::Unit) -> (Line<'a>, Incoming<'a>);

    /// Queues what was decided; returns how many bytes of the line go on.
    fn queue(&mut self, conn: Conn, from: Side, item: Self::Unit, decided: Decided) -> Option<usize>;

    /// Queues lines for an end, between two others of its link.
    fn send(&mut self, conn: Conn, to: Side, lines: Vec<Vec<u8>>, mark: Option<Token>);

    /// Queues a line of a client that was held.
    fn send_held(&mut self, conn: Conn, line: Vec<u8>, end: LineEnd);

    /// Queues a withheld line of the server for these clients.
    fn send_late(&mut self, conns: &[Conn], line: Vec<u8>);

    /// The connection that carries lines of ours; `None` if they wait for one, or are not sent at all.
    fn carrier(&mut self, engine: &Engine, injection: Injection) -> Carrier;

    /// Takes back what a mark is about, unless some of it has been written.
    fn recall(&mut self, token: Token) -> bool;

    fn release(&mut self, token: Token);

    /// Writes what an end takes, and collects the marks that are reached.
    fn flush(&mut self, conn: Conn, to: Side, elapsed: Duration, reached: &mut Vec<Token>);

    fn conns(&self) -> Vec<Conn>;
}

/// Where lines of ours go.
#[derive(Debug)]
pub enum Carrier {
    On(Injection),
    /// The engine learns on which of many connections they go.
    Chosen(Injection),
    Waits,
    Dropped,
}

/// A decision without what is on record by now.
#[derive(Debug)]
pub struct Decided {
    pub before: Vec<OwnLine>,
    pub hold: Option<Token>,
    pub line: Passage,
    pub mark: Option<Token>,
}

/// The links, and buffers that reads reuse.
#[derive(Debug)]
pub struct Driver<L: Links> {
    pub links: L,
    effects: Vec<Effect>,
    decided: Vec<Option<Decided>>,
}

/// The other side.
pub fn other(side: Side) -> Side {
    match side {
        Side::Client => Side::Server,
        Side::Server => Side::Client,
    }
}

impl<L: Links> Driver<L> {
    pub fn new(links: L) -> Driver<L> {
        Driver { links, effects: Vec::new(), decided: Vec::new() }
    }

    /// Has the engine decide on all that one read has brought, records it, and passes it on.
    pub fn pass(
        &mut self,
        host: &mut impl Host,
        now: Now,
        (conn, from): (Conn, Side),
        items: &mut Vec<L::Unit>,
        effects: &mut Vec<Effect>,
    ) {
        holds!("driver.nothing-is-left-of-the-last-read", self.decided.is_empty() && self.effects.is_empty());
        let waiting = host.engine().context_waiting();
        let mut batch = host.batch(now, conn);
        let mut passed = Passed::default();
        for item in &*items {
            let (line, incoming) = self.links.line(from, item);
            passed.lines += u64::from(!matches!(incoming, Incoming::Piece));
            let decision = host.decide(now, conn, from, incoming, &mut self.effects);
            add_all(host, &mut batch, &mut self.effects, effects);
            self.decided.push(decision.map(|decision| {
                add_line(host, &mut batch, from, line, &decision);
                passed.count_omitted(&decision);
                let Decision { before, hold, line, mark, mut then, record: _ } = decision;
                add_all(host, &mut batch, &mut then, effects);
                Decided { before, hold, line, mark }
            }));
        }
        if let Some(batch) = &mut batch {
            host.commit(batch);
        }
        holds!("driver.each-line-is-decided-on", self.decided.len() == items.len());
        holds!("driver.omits-only-lines-of-the-read", passed.omitted_lines <= passed.lines);
        for (item, decided) in items.drain(..).zip(self.decided.drain(..)) {
            let bytes = decided.and_then(|decided| self.links.queue(conn, from, item, decided));
            passed.bytes += bytes.unwrap_or_default() as u64;
        }
        host.passed(from, passed);
        host.publish_waiting(waiting);
        self.recall(host, effects);
        self.flush(host, now, (conn, other(from)), effects);
    }

    /// Takes back the answers that the server does not want any more, ahead of all other effects. Each of them is still among
    /// these, or in a queue.
    fn recall(&mut self, host: &mut impl Host, effects: &mut Vec<Effect>) {
        if effects.iter().any(is_recall) {
            let mut waiting = VecDeque::from(std::mem::take(effects));
            self.recall_in(host, &mut waiting);
            *effects = waiting.into();
        }
    }

    fn recall_in(&mut self, host: &mut impl Host, waiting: &mut VecDeque<Effect>) {
        while let Some(at) = waiting.iter().position(is_recall) {
            if let Some(Effect::Link(LinkEffect::Recall(token))) = waiting.remove(at)
                && (self.links.recall(token) || take_injection(waiting, token))
            {
                let mut effects = Vec::new();
                host.handle(host.now(), Input::Recalled(token), &mut effects);
                waiting.extend(effects);
            }
        }
    }

    /// Writes what an end takes, and reports the marks that are reached to the engine.
    pub fn flush(&mut self, host: &mut impl Host, now: Now, (conn, to): (Conn, Side), effects: &mut Vec<Effect>) {
        let mut reached = Vec::new();
        self.links.flush(conn, to, now.elapsed, &mut reached);
        let is_last = |(at, token): (usize, &Token)| !reached[at + 1..].contains(token);
        holds!("driver.marks-are-reached-once", reached.len() < 2 || reached.iter().enumerate().all(is_last));
        reached.into_iter().for_each(|token| host.handle(now, Input::Written(token), effects));
    }

    fn flush_now(&mut self, host: &mut impl Host, conn: Conn, to: Side, effects: &mut Vec<Effect>) {
        let now = host.now();
        self.flush(host, now, (conn, to), effects);
    }

    /// Carries out effects until none is left, or one concerns a child: the rest then waits in `effects`.
    pub fn carry_out_all(&mut self, host: &mut impl Host, effects: &mut Vec<Effect>) -> Option<ChildEffect> {
        host.report_refused(effects);
        if effects.is_empty() {
            return None;
        }
        let mut waiting = VecDeque::new();
        loop {
            host.report_refused(effects);
            let has_recalls = effects.iter().any(is_recall);
            waiting.extend(effects.drain(..));
            if has_recalls {
                self.recall_in(host, &mut waiting);
            }
            let effect = waiting.pop_front()?;
            match host.carry_out(effect, effects) {
                None => {}
                Some(Elsewhere::Link(effect)) => {
                    let at_once = self.carry_out(host, effect, effects);
                    at_once.into_iter().rev().for_each(|effect| waiting.push_front(effect));
                }
                Some(Elsewhere::Child(effect)) => {
                    waiting.extend(effects.drain(..));
                    effects.extend(waiting);
                    return Some(effect);
                }
            }
        }
    }

    /// Carries out an effect; returns those that come before all others.
    fn carry_out(&mut self, host: &mut impl Host, effect: LinkEffect, effects: &mut Vec<Effect>) -> Vec<Effect> {
        let mut at_once = Vec::new();
        match effect {
            LinkEffect::Introduce(conn, client) => host.introduce(conn, *client),
            LinkEffect::Release(token) => {
                self.links.release(token);
                for conn in self.links.conns() {
                    self.flush_now(host, conn, Side::Server, effects);
                    self.flush_now(host, conn, Side::Client, effects);
                }
            }
            // All lines read so far are decided on, and nothing is read in between.
            LinkEffect::ReleaseHeld(token) => host.handle(host.now(), Input::ReleaseHeld(token), &mut at_once),
            LinkEffect::PassHeld(lines) => self.pass_held(host, lines, effects),
            LinkEffect::Inject(injection) => self.inject(host, injection, effects),
            LinkEffect::Answer(conn, line) => {
                holds!("driver.answers-go-to-clients", line.to == Side::Client);
                record(host, conn, std::slice::from_ref(&line));
                self.links.send(conn, Side::Client, vec![line.bytes], None);
                self.flush_now(host, conn, Side::Client, effects);
            }
            LinkEffect::PassLate { conns, line } => {
                holds!("driver.late-requests-go-to-somebody", !conns.is_empty());
                self.links.send_late(&conns, line);
                conns.into_iter().for_each(|conn| self.flush_now(host, conn, Side::Client, effects));
            }
            LinkEffect::Recall(token) => {
                if self.links.recall(token) {
                    host.handle(host.now(), Input::Recalled(token), effects);
                }
            }
            LinkEffect::Reply(caller, reply) => host.reply(caller, reply, effects),
        }
        at_once
    }

    /// Records own lines to the server and sends them.
    pub fn inject(&mut self, host: &mut impl Host, injection: Injection, effects: &mut Vec<Effect>) {
        let (injection, is_chosen) = match self.links.carrier(host.engine(), injection) {
            Carrier::On(injection) => (injection, false),
            Carrier::Chosen(injection) => (injection, true),
            Carrier::Waits | Carrier::Dropped => return,
        };
        let Injection { conn, lines, mark } = injection;
        holds!("driver.own-lines-go-to-the-server", lines.iter().all(|line| line.to == Side::Server));
        holds!("driver.something-is-sent", !lines.is_empty());
        record(host, conn, &lines);
        if let Some(mark) = mark.filter(|_| is_chosen) {
            host.handle(host.now(), Input::SentOver { mark, conn }, effects);
        }
        self.links.send(conn, Side::Server, lines.into_iter().map(|line| line.bytes).collect(), mark);
        self.flush_now(host, conn, Side::Server, effects);
    }

    /// Records and passes lines of clients that were held.
    fn pass_held(&mut self, host: &mut impl Host, lines: Vec<LateLine>, effects: &mut Vec<Effect>) {
        for LateLine { decision: Decision { before, hold, mark, .. }, .. } in &lines {
            holds!("driver.held-lines-wait-for-no-commit", hold.is_none() && mark.is_none());
            holds!("driver.held-lines-go-to-the-server", before.iter().all(|own| own.to == Side::Server));
        }
        for lines in lines.chunk_by(|one, next| one.conn == next.conn) {
            self.record_held(host, lines);
        }
        let mut conns = Vec::new();
        for LateLine { conn, bytes, end, decision: Decision { before, line, then, .. } } in lines {
            let mut passed = Passed::default();
            let before = before.into_iter().map(|own| (own.bytes, LineEnd::Newline));
            let line = match line {
                Passage::Forward => Some((bytes, end)),
                Passage::Replace(own) => Some((own.bytes, end)),
                Passage::Withhold => None,
            };
            for (bytes, end) in before.chain(line) {
                passed.bytes += bytes.len() as u64 + u64::from(end == LineEnd::Newline);
                self.links.send_held(conn, bytes, end);
            }
            effects.extend(then);
            host.passed(Side::Client, passed);
            if conns.last() != Some(&conn) {
                conns.push(conn);
            }
        }
        conns.into_iter().for_each(|conn| self.flush_now(host, conn, Side::Server, effects));
    }

    fn record_held(&mut self, host: &mut impl Host, lines: &[LateLine]) {
        let Some(first) = lines.first() else { return };
        let now = host.now();
        let mut batch = host.batch(now, first.conn);
        let mut passed = Passed::default();
        for LateLine { bytes, end, decision, .. } in lines {
            add_line(host, &mut batch, Side::Client, Line { bytes, end: *end }, decision);
            passed.count_omitted(decision);
        }
        if let Some(batch) = &mut batch {
            host.commit(batch);
        }
        host.passed(Side::Client, passed);
    }
}

/// Puts those of some effects on record that belong there, and adds the others to `effects`.
fn add_all(host: &mut impl Host, batch: &mut Option<Batch<'_>>, some: &mut Vec<Effect>, effects: &mut Vec<Effect>) {
    // Most lines have none.
    if !some.is_empty() {
        effects.extend(some.drain(..).filter_map(|effect| host.add(batch, effect)));
    }
}

/// Records a line with the lines of ours that go with it, as decided, or counts them if there is no batch.
fn add_line<'a>(
    host: &mut impl Host,
    batch: &mut Option<Batch<'a>>,
    from: Side,
    line: Line<'a>,
    Decision { before, record, line: passage, .. }: &Decision,
) {
    let replacement = match passage {
        Passage::Replace(own) => Some(own),
        Passage::Forward | Passage::Withhold => None,
    };
    let Some(batch) = batch else {
        return host.miss(before.len() + usize::from(record.is_some()) + usize::from(replacement.is_some()));
    };
    before.iter().for_each(|own| batch.push_own_line(own));
    if let Some(form) = record {
        batch.push_line(from, form, line);
    }
    if let Some(own) = replacement {
        batch.push_replacement(own, line.end);
    }
}

/// Records lines of ours on a connection.
fn record(host: &mut impl Host, conn: Conn, lines: &[OwnLine]) {
    match host.batch(host.now(), conn) {
        Some(mut batch) => {
            lines.iter().for_each(|line| batch.push_own_line(line));
            host.commit(&mut batch);
        }
        None => host.miss(lines.len()),
    }
}

fn is_recall(effect: &Effect) -> bool {
    matches!(effect, Effect::Link(LinkEffect::Recall(_)))
}

/// Removes lines of ours that have not been sent yet. The API caller of the answer, who is to hear that it will be sent, hears that
/// the request is not open.
fn take_injection(waiting: &mut VecDeque<Effect>, mark: Token) -> bool {
    let is_its =
        |effect: &Effect| matches!(effect, Effect::Link(LinkEffect::Inject(injection)) if injection.mark == Some(mark));
    let Some(at) = waiting.iter().position(is_its) else { return false };
    waiting.remove(at);
    if let Some(Effect::Link(LinkEffect::Reply(_, reply @ ApiReply::Kept))) = waiting.get_mut(at) {
        *reply = ApiReply::NotOpen;
    }
    true
}
