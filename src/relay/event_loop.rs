//! The event loop: one thread polls the two directions and the signals, and carries out the engine's effects: lines of ours,
//! lines that were held, questions to the context engine, and the delivery of the last output to a slow client.
//!
//! A line is recorded before it is sent, also one of ours or one that is forwarded late. Only the poll waits.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::child::{Server, to_forward};
use super::core::{Core, Elsewhere};
use super::direction::{Direction, HANG_UP, Waiting};
use super::pipes::Feeder;
use super::serve::{Lifecycle, Wanted};
use crate::control::{Message, Passed, Reply};
use crate::engine::{
    ApiRequest, ChildEffect, Decision, Effect, Exit, Incoming, Injection, Input, LateLine, LinkEffect, Now, OwnLine,
    Passage, Token,
};
use crate::wire::{Conn, Frame, Framer, Line, LineEnd, Side};

#[derive(Debug)]
pub(super) struct Relay {
    pub(super) core: Core,
    pub(super) lifecycle: Lifecycle,
    pub(super) server: Server,
    pub(super) from_client: Direction,
    pub(super) from_server: Direction,
    /// The engine knows that the client is gone.
    pub(super) client_disconnected: bool,
    /// The engine knows that the server's output waits for the client.
    pub(super) output_waits: bool,
    /// How long after a signal the client may accept none of the last output.
    pub(super) exit_grace: Duration,
    pub(super) drain: Option<Drain>,
    /// Delivers the last of our output if stdout needs a thread.
    pub(super) feeder: Option<Feeder>,
    /// Buffers that the reads reuse.
    pub(super) scratch: Scratch,
}

#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) frames: Vec<Frame>,
    line_effects: Vec<Effect>,
}

impl Relay {
    /// Relays until the child has ended and its output is delivered; returns the exit.
    pub(super) fn run(&mut self) -> Exit {
        let mut effects = Vec::new();
        let now = self.core.clock.now();
        self.core.engine.handle(now, Input::ServerStarted { pid: self.server.pid(), adopted: false }, &mut effects);
        loop {
            if let Some(exit) = self.carry_out_all(&mut effects) {
                return exit;
            }
            self.report_output_before_wait(&mut effects);
            let ready = self.wait();
            let now = self.core.clock.now();
            self.report_output_after_wait(ready.from_server, &mut effects);
            if ready.signals {
                self.handle_signals(now, &mut effects);
            }
            self.take_messages(now, &mut effects);
            if ready.client_disconnected {
                self.handle_disconnect(now, &mut effects);
            }
            if ready.from_client {
                self.advance(Side::Client, now, &mut effects);
                // Our own answers to a client's request come before the server's next lines.
                if let Some(exit) = self.carry_out_all(&mut effects) {
                    return exit;
                }
            }
            if ready.from_server {
                self.advance(Side::Server, now, &mut effects);
            }
            self.handle_deadlines(now, &mut effects);
            self.handle_closes(now, &mut effects);
        }
    }

    /// Delivers the rest of the output, then stops the ledger, the index and the control socket.
    pub(super) fn finish(mut self) {
        self.finish_delivery();
        self.core.recorder.close();
    }

    /// Polls until something is ready or due.
    fn wait(&self) -> Ready {
        let none = || PollFd::new(&self.core.signals, PollFlags::empty());
        let from_client = self.from_client.interest().map(poll_fd);
        let from_server = self.from_server.interest().map(poll_fd);
        let left = self.hang_up_poll().map(poll_fd);
        let waits = [true, from_client.is_some(), from_server.is_some(), left.is_some()];
        let mut fds = [
            PollFd::new(&self.core.signals, PollFlags::IN),
            from_client.unwrap_or_else(none),
            from_server.unwrap_or_else(none),
            left.unwrap_or_else(none),
        ];
        let wait = self.next_deadline().map(|due| due.saturating_sub(self.core.clock.elapsed()));
        let timeout = wait.and_then(|wait| Timespec::try_from(wait).ok());
        // An error means that a signal interrupted the poll; it is handled like any other signal.
        let interrupted = rustix::event::poll(&mut fds, timeout.as_ref()).is_err();
        let ready = |index: usize| waits[index] && !fds[index].revents().is_empty();
        Ready {
            signals: interrupted || ready(0),
            from_client: ready(1),
            from_server: ready(2),
            client_disconnected: !interrupted && ready(3),
        }
    }

    /// The poll that detects that the client is gone while nothing is read from it: stdin, if lines still wait for the
    /// server, or stdout, if stdin was closed because the server no longer reads.
    fn hang_up_poll(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match self.lifecycle {
            Lifecycle::Client if !self.client_disconnected => {}
            Lifecycle::Client => return None,
            Lifecycle::Served { .. } => return self.attached_hang_up_poll(),
        }
        match self.from_client.waiting() {
            Waiting::ToRead => None,
            Waiting::ToWrite | Waiting::Held => self.from_client.watch_source(HANG_UP),
            Waiting::Idle if self.from_client.was_abandoned() => self.from_server.watch_sink(HANG_UP),
            Waiting::Idle => None,
        }
    }

    fn next_deadline(&self) -> Option<Duration> {
        // The client's last lines were released, so the engine must learn of the client's end now.
        let ended = self.from_client.is_at_end().then_some(Duration::ZERO);
        let due = [self.core.next_deadline(), self.delivery_due(), self.client_stalled_at(), ended];
        due.into_iter().flatten().min()
    }

    /// Takes all messages out of the inbox.
    pub(super) fn take_messages(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.core.recorder.drain_overflow();
        let waiting = self.core.engine.context_waiting();
        while let Some(message) = self.core.inbox.take() {
            match message {
                Message::Input(input) => self.core.engine.handle(now, input, effects),
                Message::Configure(settings) => self.core.configure(*settings, effects),
                Message::Call(request, reply) => self.api_call(request, reply, now, effects),
                Message::Client { admission, client } => {
                    self.attach_client(admission, client, now, effects);
                }
            }
        }
        self.core.report_refused(effects);
        self.core.publish_waiting(waiting);
    }

    /// An API caller asks for something; it waits for the reply.
    pub(super) fn api_call(&mut self, request: ApiRequest, reply: Reply, now: Now, effects: &mut Vec<Effect>) {
        let api_call = self.core.callers.add(reply);
        if request == ApiRequest::Stop {
            self.set_wanted(Wanted::Stopped, api_call, now, effects);
        } else if request == ApiRequest::Start {
            self.set_wanted(Wanted::Started, api_call, now, effects);
        } else {
            let server_listens = self.from_client.takes_injections();
            self.core.engine.handle(now, Input::ApiRequest { api_call, request, server_listens }, effects);
        }
    }

    fn handle_signals(&mut self, now: Now, effects: &mut Vec<Effect>) {
        for number in self.core.signals.take() {
            if let Some(signal) = to_forward(number) {
                tracing::info!(?signal, "signal received");
                if let Lifecycle::Served { signalled, .. } = &mut self.lifecycle {
                    *signalled = true;
                }
                self.core.engine.handle(now, Input::Signalled(signal), effects);
            } else if let Some(exit) = self.server.try_reap() {
                self.core.published.child_ended();
                tracing::info!(?exit, "the server has ended");
                self.core.engine.handle(now, Input::ServerExited(exit), effects);
            }
        }
    }

    fn handle_deadlines(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.core.engine.next_deadline().is_some_and(|due| due <= now.elapsed) {
            self.core.engine.handle(now, Input::Tick, effects);
        }
        self.disconnect_stalled(now, effects);
        self.end_delivery(now, effects);
    }

    fn handle_closes(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let waits = self.release_at_end(effects);
        match self.lifecycle {
            _ if waits => {}
            Lifecycle::Client if self.from_client.has_closed() => {
                self.core.engine.handle(now, Input::Closed { from: Side::Client }, effects);
            }
            Lifecycle::Client => {}
            Lifecycle::Served { .. } => self.detach_if_done(now, effects),
        }
        if self.from_server.has_closed() {
            self.core.engine.handle(now, Input::Closed { from: Side::Server }, effects);
        }
    }

    /// Reads or writes, whichever the direction waited for.
    fn advance(&mut self, from: Side, now: Now, effects: &mut Vec<Effect>) {
        let direction = self.direction(from);
        match direction.waiting() {
            Waiting::ToRead => {
                let mut frames = std::mem::take(&mut self.scratch.frames);
                self.direction(from).read(now.elapsed, &mut frames);
                // A caller may have written these bytes because of a message that is still in the inbox.
                self.take_messages(now, effects);
                self.pass(from, now, frames, effects);
            }
            Waiting::ToWrite => self.flush(from, now, effects),
            Waiting::Held | Waiting::Idle => {}
        }
    }

    /// Passes frames to the engine and records them, then forwards them.
    pub(super) fn pass(&mut self, from: Side, now: Now, mut frames: Vec<Frame>, effects: &mut Vec<Effect>) {
        let direction = match from {
            Side::Client => &mut self.from_client,
            Side::Server => &mut self.from_server,
        };
        let mut batch = self.core.recorder.batch(now, Conn::OWN, &self.core.notices);
        let mut passed = Passed::default();
        let waiting = self.core.engine.context_waiting();
        for frame in &frames {
            let (range, line, incoming) = incoming(&direction.framer, frame);
            passed.lines += u64::from(!matches!(frame, Frame::Piece { .. }));
            let line_effects = &mut self.scratch.line_effects;
            let mut decision = self.core.engine.read(now, Conn::OWN, from, incoming, line_effects);
            effects.extend(line_effects.drain(..).filter_map(|effect| self.core.recorder.add(&mut batch, effect)));
            let Some(decision) = &mut decision else { continue };
            self.core.recorder.add_line(&mut batch, from, line, decision);
            passed.count_omitted(decision);
            for own in decision.before.drain(..) {
                direction.outgoing.add_own(LineEnd::Newline.ends(own.bytes));
            }
            if let Some(token) = decision.hold {
                direction.outgoing.hold(token);
            }
            let forwarded_bytes = match std::mem::take(&mut decision.line) {
                Passage::Forward => {
                    direction.outgoing.add(range.clone());
                    Some(range.len())
                }
                Passage::Replace(own) => {
                    let bytes = line.end.ends(own.bytes);
                    let length = bytes.len();
                    direction.outgoing.add_own(bytes);
                    Some(length)
                }
                Passage::Withhold => None,
            };
            if let Some(token) = decision.mark {
                direction.outgoing.mark(token, forwarded_bytes.unwrap_or_default());
            }
            if let Some(bytes) = forwarded_bytes {
                passed.bytes += bytes as u64;
                direction.seam.frame_queued(frame, &mut direction.outgoing);
            }
            effects.extend(decision.then.drain(..).filter_map(|effect| self.core.recorder.add(&mut batch, effect)));
        }
        if let Some(batch) = batch {
            self.core.recorder.commit(batch, &mut self.core.notices);
        }
        self.core.published.count(from, passed);
        frames.clear();
        self.scratch.frames = frames;
        self.core.publish_waiting(waiting);
        self.core.recall(effects, |token| self.from_client.recall(token));
        self.flush(from, now, effects);
    }

    /// Writes queued output and reports the marks reached to the engine.
    pub(super) fn flush(&mut self, from: Side, now: Now, effects: &mut Vec<Effect>) {
        let mut reached = Vec::new();
        self.direction(from).flush(now.elapsed, &mut reached);
        for token in reached {
            self.core.engine.handle(now, Input::Written(token), effects);
        }
    }

    /// Carries out effects until none is left; returns the exit if the relay has ended.
    fn carry_out_all(&mut self, effects: &mut Vec<Effect>) -> Option<Exit> {
        self.core.report_refused(effects);
        while !effects.is_empty() {
            if let Some(exit) = self.carry_out(effects) {
                return Some(exit);
            }
            self.core.report_refused(effects);
        }
        None
    }

    /// Carries out effects; returns the exit if the relay has ended.
    pub(super) fn carry_out(&mut self, effects: &mut Vec<Effect>) -> Option<Exit> {
        for effect in std::mem::take(effects) {
            match self.core.carry_out(effect, effects) {
                None => {}
                Some(Elsewhere::Link(effect)) => {
                    if let Some(exit) = self.carry_out_on_link(effect, effects) {
                        return Some(exit);
                    }
                }
                Some(Elsewhere::Child(ChildEffect::Finish(exit))) => return Some(exit),
                Some(Elsewhere::Child(effect)) => self.carry_out_on_child(effect),
            }
        }
        self.core.publish_pending();
        None
    }

    fn carry_out_on_link(&mut self, effect: LinkEffect, effects: &mut Vec<Effect>) -> Option<Exit> {
        match effect {
            LinkEffect::Introduce(_, client) => {
                self.core.recorder.name_client(client.name.clone());
                self.core.published.introduce(*client);
            }
            LinkEffect::Release(token) => {
                for from in [Side::Client, Side::Server] {
                    self.direction(from).release(token);
                    self.flush(from, self.core.clock.now(), effects);
                }
            }
            LinkEffect::ReleaseHeld(token) => return self.decide_held(token, effects),
            LinkEffect::PassHeld(lines) => self.forward_held(lines, effects),
            LinkEffect::Inject(injection) => self.inject(injection, effects),
            LinkEffect::Answer(line) => self.answer(line, effects),
            LinkEffect::PassLate { conns: _, line } => self.send_to_client(line, effects),
            LinkEffect::Recall(token) => {
                if self.from_client.recall(token) {
                    self.core.handle(Input::Recalled(token), effects);
                }
            }
            LinkEffect::Reply(caller, reply) => self.reply(caller, reply, effects),
        }
        None
    }

    fn carry_out_on_child(&mut self, effect: ChildEffect) {
        match effect {
            ChildEffect::CloseServerInput => drop(self.from_client.close_sink()),
            ChildEffect::CloseClientOutput => {
                self.feeder = self.from_server.close_sink();
                self.close_client();
            }
            ChildEffect::SignalServer(signal) => self.server.signal(signal),
            ChildEffect::KillServer => self.server.kill(),
            ChildEffect::DrainServer { quiet_max, stall_max } => {
                self.drain = Some(Drain::since(self.core.clock.now().elapsed, quiet_max, stall_max));
            }
            // The loop ends with it.
            ChildEffect::Finish(_) => {}
        }
    }

    fn direction(&mut self, from: Side) -> &mut Direction {
        match from {
            Side::Client => &mut self.from_client,
            Side::Server => &mut self.from_server,
        }
    }
}

fn poll_fd<'a>((fd, flags): (BorrowedFd<'a>, PollFlags)) -> PollFd<'a> {
    PollFd::from_borrowed_fd(fd, flags)
}

/// The range and the line of a frame, and what the engine reads.
fn incoming<'a>(framer: &'a Framer, frame: &Frame) -> (Range<usize>, Line<'a>, Incoming<'a>) {
    match frame {
        Frame::Line { range, end } => {
            let line = framer.line(range.clone(), *end);
            (range.clone(), line, Incoming::Line(line))
        }
        Frame::Piece { range } => (range.clone(), Line::unseen(LineEnd::EndOfStream), Incoming::Piece),
        Frame::LastPiece { range, line_bytes, end } => {
            (range.clone(), Line::unseen(*end), Incoming::LastPiece { line_bytes: *line_bytes })
        }
    }
}

struct Ready {
    signals: bool,
    from_client: bool,
    from_server: bool,
    client_disconnected: bool,
}

// Own lines: recorded first, then sent between two other lines.

impl Relay {
    /// Records own lines to the server and sends them in one write.
    pub(super) fn inject(&mut self, injection: Injection, effects: &mut Vec<Effect>) {
        self.core.record(Conn::OWN, &injection.lines);
        let lines = injection.lines.into_iter().flat_map(|line| LineEnd::Newline.ends(line.bytes));
        self.from_client.inject(lines.collect(), injection.mark);
        self.flush(Side::Client, self.core.clock.now(), effects);
    }

    /// Records an own line to the client and sends it.
    pub(super) fn answer(&mut self, line: OwnLine, effects: &mut Vec<Effect>) {
        self.core.record(Conn::OWN, std::slice::from_ref(&line));
        self.send_to_client(line.bytes, effects);
    }

    /// Sends the client a line that is already recorded.
    pub(super) fn send_to_client(&mut self, line: Vec<u8>, effects: &mut Vec<Effect>) {
        self.from_server.inject(LineEnd::Newline.ends(line), None);
        self.flush(Side::Server, self.core.clock.now(), effects);
    }
}

// Context for the model: the engine's questions go to the context engine and the threads that read fragments, and the lines that
// were held meanwhile are forwarded.

impl Relay {
    /// Lets the engine decide on held lines. All lines read so far are decided on, and nothing is read in between.
    pub(super) fn decide_held(&mut self, token: Token, effects: &mut Vec<Effect>) -> Option<Exit> {
        let mut at_once = Vec::new();
        self.core.engine.handle(self.core.clock.now(), Input::ReleaseHeld(token), &mut at_once);
        let exit = self.carry_out(&mut at_once);
        effects.append(&mut at_once);
        exit
    }

    /// Records and forwards the client's held lines.
    pub(super) fn forward_held(&mut self, lines: Vec<LateLine>, effects: &mut Vec<Effect>) {
        let mut batch = self.core.recorder.batch(self.core.clock.now(), Conn::OWN, &self.core.notices);
        let mut passed = Passed::default();
        for LateLine { bytes, end, decision, .. } in &lines {
            self.core.recorder.add_line(&mut batch, Side::Client, Line { bytes, end: *end }, decision);
            passed.count_omitted(decision);
        }
        if let Some(batch) = batch {
            self.core.recorder.commit(batch, &mut self.core.notices);
        }
        for LateLine { conn: _, bytes, end, decision: Decision { before, line, then, .. } } in lines {
            let before = before.into_iter().map(|own| LineEnd::Newline.ends(own.bytes));
            let line = match line {
                Passage::Forward => Some(end.ends(bytes)),
                Passage::Replace(own) => Some(end.ends(own.bytes)),
                Passage::Withhold => None,
            };
            for bytes in before.chain(line) {
                passed.bytes += bytes.len() as u64;
                self.from_client.inject(bytes, None);
            }
            effects.extend(then);
        }
        self.core.published.count(Side::Client, passed);
        self.flush(Side::Client, self.core.clock.now(), effects);
    }

    /// Releases the client's held lines if the client has closed its input, so that its end follows them. Returns
    /// whether there were any.
    pub(super) fn release_at_end(&mut self, effects: &mut Vec<Effect>) -> bool {
        let waits = self.core.engine.holds_lines() && self.from_client.is_at_end();
        if waits {
            self.core.engine.handle(self.core.clock.now(), Input::ReleaseAllHeld, effects);
        }
        waits
    }
}

// Delivery of the server's output to a slow client: whether output waits for the client, and for how long after the server has
// ended. The engine sets the limits.

/// Limits of the delivery after the child is reaped; see [`Effect::Child(ChildEffect::DrainServer)`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Drain {
    since: Duration,
    quiet_max: Duration,
    stall_max: Option<Duration>,
}

impl Drain {
    pub(super) fn since(since: Duration, quiet_max: Duration, stall_max: Option<Duration>) -> Drain {
        Drain { since, quiet_max, stall_max }
    }
}

impl Relay {
    /// Reports queued output to the engine before the loop waits.
    pub(super) fn report_output_before_wait(&mut self, effects: &mut Vec<Effect>) {
        if self.from_server.waiting() == Waiting::ToWrite {
            self.report_output_waits(true, effects);
        }
    }

    /// Reports that the queue is empty, but only if the server has nothing more to read either: its pipe may have
    /// filled up while the client was slow.
    pub(super) fn report_output_after_wait(&mut self, server_is_ready: bool, effects: &mut Vec<Effect>) {
        if !server_is_ready && self.from_server.waiting() != Waiting::ToWrite {
            self.report_output_waits(false, effects);
        }
    }

    fn report_output_waits(&mut self, waits: bool, effects: &mut Vec<Effect>) {
        if std::mem::replace(&mut self.output_waits, waits) != waits {
            self.core.engine.handle(self.core.clock.now(), Input::OutputWaits(waits), effects);
        }
    }

    /// When to check the delivery again.
    pub(super) fn delivery_due(&self) -> Option<Duration> {
        // The client has read everything queued; the next poll shows whether the server has more.
        let look = (self.output_waits && self.from_server.waiting() != Waiting::ToWrite).then_some(Duration::ZERO);
        look.or_else(|| self.drained_at())
    }

    fn drained_at(&self) -> Option<Duration> {
        self.drain.and_then(|drain| self.from_server.drained_at(drain.since, drain.quiet_max, drain.stall_max))
    }

    /// Ends the delivery if the server has written nothing, or the client has read nothing, for too long.
    pub(super) fn end_delivery(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.drained_at().is_none_or(|due| due > now.elapsed) {
            return;
        }
        match self.from_server.waiting() {
            Waiting::ToRead => {
                let mut frames = std::mem::take(&mut self.scratch.frames);
                self.from_server.end(&mut frames);
                self.pass(Side::Server, now, frames, effects);
            }
            Waiting::ToWrite => {
                self.core.notices.report("the client did not read all of the server's output");
                self.from_server.abandon();
            }
            Waiting::Held | Waiting::Idle => {}
        }
    }

    /// Waits for the thread that feeds our stdout, if there is one, with the same limits.
    pub(super) fn finish_delivery(&mut self) {
        let Some(feeder) = self.feeder.take() else { return };
        let mut signals = usize::from(self.core.engine.was_signalled());
        feeder.finish(self.exit_grace, || {
            signals += self.core.signals.take().into_iter().filter_map(to_forward).count();
            signals
        });
    }
}
