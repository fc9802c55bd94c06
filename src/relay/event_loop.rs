//! The event loop: one thread polls the two directions and the signals, and carries out the engine's effects: lines of ours,
//! lines that were held, questions to the context engine, and the delivery of the last output to a slow client.
//!
//! A line is recorded before it is sent, also one of ours or one that is forwarded late. Only the poll waits.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::child::{Server, to_forward};
use super::core::Core;
use super::direction::{HANG_UP, Waiting};
use super::pair::Pair;
use super::pipes::{Feeder, Sink, Source};
use super::serve::{Lifecycle, Wanted};
use crate::control::{Message, Reply};
use crate::driver::{Driver, other};
use crate::engine::{ApiRequest, ChildEffect, Effect, Exit, Input, Now};
use crate::wire::{Conn, Frame, Side};

#[derive(Debug)]
pub(super) struct Relay {
    pub(super) core: Core,
    pub(super) lifecycle: Lifecycle,
    pub(super) server: Server,
    pub(super) driver: Driver<Pair<Source, Sink>>,
    /// The engine knows that the client is gone.
    pub(super) client_disconnected: bool,
    /// The engine knows that the server's output waits for the client.
    pub(super) output_waits: bool,
    /// How long after a signal the client may accept none of the last output.
    pub(super) exit_grace: Duration,
    pub(super) drain: Option<Drain>,
    /// Delivers the last of our output if stdout needs a thread.
    pub(super) feeder: Option<Feeder>,
    /// A buffer that the reads reuse.
    pub(super) frames: Vec<Frame>,
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
        let from_client = self.driver.links.from_client.interest().map(poll_fd);
        let from_server = self.driver.links.from_server.interest().map(poll_fd);
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
        match self.driver.links.from_client.waiting() {
            Waiting::ToRead => None,
            Waiting::ToWrite | Waiting::Held => self.driver.links.from_client.watch_source(HANG_UP),
            Waiting::Idle if self.driver.links.from_client.was_abandoned() => {
                self.driver.links.from_server.watch_sink(HANG_UP)
            }
            Waiting::Idle => None,
        }
    }

    fn next_deadline(&self) -> Option<Duration> {
        // The client's last lines were released, so the engine must learn of the client's end now.
        let ended = self.driver.links.from_client.is_at_end().then_some(Duration::ZERO);
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
            let server_listens = self.driver.links.from_client.takes_injections();
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
            Lifecycle::Client if self.driver.links.from_client.has_closed() => {
                self.core.engine.handle(now, Input::Closed { from: Side::Client }, effects);
            }
            Lifecycle::Client => {}
            Lifecycle::Served { .. } => self.detach_if_done(now, effects),
        }
        if self.driver.links.from_server.has_closed() {
            self.core.engine.handle(now, Input::Closed { from: Side::Server }, effects);
        }
    }

    /// Reads or writes, whichever the direction waited for.
    fn advance(&mut self, from: Side, now: Now, effects: &mut Vec<Effect>) {
        let direction = self.driver.links.direction(from);
        match direction.waiting() {
            Waiting::ToRead => {
                let mut frames = std::mem::take(&mut self.frames);
                self.driver.links.direction(from).read(now.elapsed, &mut frames);
                // A caller may have written these bytes because of a message that is still in the inbox.
                self.take_messages(now, effects);
                self.pass(from, now, frames, effects);
            }
            Waiting::ToWrite => self.flush(from, now, effects),
            Waiting::Held | Waiting::Idle => {}
        }
    }

    /// Passes what was read.
    pub(super) fn pass(&mut self, from: Side, now: Now, mut frames: Vec<Frame>, effects: &mut Vec<Effect>) {
        self.driver.pass(&mut self.core, now, (Conn::OWN, from), &mut frames, effects);
        self.frames = frames;
    }

    pub(super) fn flush(&mut self, from: Side, now: Now, effects: &mut Vec<Effect>) {
        self.driver.flush(&mut self.core, now, (Conn::OWN, other(from)), effects);
    }

    /// Carries out effects until none is left; returns the exit if the relay has ended.
    pub(super) fn carry_out_all(&mut self, effects: &mut Vec<Effect>) -> Option<Exit> {
        while let Some(effect) = self.driver.carry_out_all(&mut self.core, effects) {
            match effect {
                ChildEffect::Finish(exit) => return Some(exit),
                ChildEffect::CloseServerInput
                | ChildEffect::CloseClientOutput
                | ChildEffect::SignalServer(_)
                | ChildEffect::KillServer
                | ChildEffect::DrainServer { .. } => self.carry_out_on_child(effect),
            }
        }
        self.core.publish_pending();
        None
    }

    fn carry_out_on_child(&mut self, effect: ChildEffect) {
        match effect {
            ChildEffect::CloseServerInput => drop(self.driver.links.from_client.take_sink()),
            ChildEffect::CloseClientOutput => {
                self.feeder = self.driver.links.from_server.take_sink().and_then(Sink::close);
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
}

fn poll_fd<'a>((fd, flags): (BorrowedFd<'a>, PollFlags)) -> PollFd<'a> {
    PollFd::from_borrowed_fd(fd, flags)
}

struct Ready {
    signals: bool,
    from_client: bool,
    from_server: bool,
    client_disconnected: bool,
}

// Held lines.

impl Relay {
    /// Releases the client's held lines if the client has closed its input, so that its end follows them. Returns
    /// whether there were any.
    pub(super) fn release_at_end(&mut self, effects: &mut Vec<Effect>) -> bool {
        let waits = self.core.engine.holds_lines() && self.driver.links.from_client.is_at_end();
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
        if self.driver.links.from_server.waiting() == Waiting::ToWrite {
            self.report_output_waits(true, effects);
        }
    }

    /// Reports that the queue is empty, but only if the server has nothing more to read either: its pipe may have
    /// filled up while the client was slow.
    pub(super) fn report_output_after_wait(&mut self, server_is_ready: bool, effects: &mut Vec<Effect>) {
        if !server_is_ready && self.driver.links.from_server.waiting() != Waiting::ToWrite {
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
        let look = (self.output_waits && self.driver.links.from_server.waiting() != Waiting::ToWrite)
            .then_some(Duration::ZERO);
        look.or_else(|| self.drained_at())
    }

    fn drained_at(&self) -> Option<Duration> {
        self.drain
            .and_then(|drain| self.driver.links.from_server.drained_at(drain.since, drain.quiet_max, drain.stall_max))
    }

    /// Ends the delivery if the server has written nothing, or the client has read nothing, for too long.
    pub(super) fn end_delivery(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.drained_at().is_none_or(|due| due > now.elapsed) {
            return;
        }
        match self.driver.links.from_server.waiting() {
            Waiting::ToRead => {
                let mut frames = std::mem::take(&mut self.frames);
                self.driver.links.from_server.end(&mut frames);
                self.pass(Side::Server, now, frames, effects);
            }
            Waiting::ToWrite => {
                self.core.notices.report("the client did not read all of the server's output");
                self.driver.links.from_server.abandon();
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
