//! A relay: one client and one server, on pipes. The event loop polls the two directions and the signals; the engine's effects are
//! carried out here if they concern the child: what it reads, its end, and the delivery of its last output to a slow client.
//!
//! A line is recorded before it is sent, also one of ours or one that is forwarded late.

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::child::{Server, to_forward};
use super::core::Core;
use super::direction::{Direction, Waiting};
use super::event_loop::{Polled, Session, Woken, step, take_messages};
use super::pair::Pair;
use super::pipes::{Feeder, PipeSource, Sink};
use super::serve::{Lifecycle, ServedState};
use crate::driver::{Driver, other};
use crate::engine::{ApiCallId, ApiRequest, ChildEffect, Effect, Exit, Input, Now, earlier};
use crate::os::polling::{PollFlags, half_closed};
use crate::wire::{Conn, Frame, Side};

/// How soon a pipe that is still too full to be narrowed after a long line is tried again.
const NARROWED_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Relay {
    pub(super) core: Core,
    pub(super) lifecycle: Lifecycle,
    pub(super) server: Server,
    pub(super) driver: Driver<Pair<PipeSource, Sink>>,
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

/// What the loop polls for a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RelayEnd {
    /// The direction from this side: what it reads from, or what it writes to.
    Of(Side),
    /// Only shows that the client is gone.
    HungUp,
}

impl Relay {
    /// Relays until the child has ended and its output is delivered; returns the exit.
    pub(super) fn run(&mut self) -> Exit {
        let mut effects = Vec::new();
        let now = self.core.clock.now();
        self.core.engine.handle(now, Input::ServerStarted { pid: self.server.pid(), adopted: false }, &mut effects);
        loop {
            if let Some(exit) = step(self, None, &mut effects) {
                return exit;
            }
        }
    }

    /// Delivers the rest of the output, then stops the ledger, the index and the control socket.
    pub(super) fn finish(mut self) {
        self.finish_delivery();
        self.core.recorder.close();
    }

    /// The poll that detects that the client is gone while nothing is read from it: stdin, if lines still wait for the
    /// server, or stdout, if stdin was closed because the server no longer reads.
    fn hang_up_poll(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match self.lifecycle {
            Lifecycle::Client if !self.client_disconnected => {}
            Lifecycle::Client => return None,
            Lifecycle::Served(_) => return self.attached_hang_up_poll(),
        }
        match self.driver.links.from_client.waiting() {
            Waiting::ToRead => None,
            Waiting::ToWrite | Waiting::Held => self.driver.links.from_client.watch_source(half_closed()),
            Waiting::Idle if self.driver.links.from_client.was_abandoned() => {
                self.driver.links.from_server.watch_sink(half_closed())
            }
            Waiting::Idle => None,
        }
    }

    /// The server has ended, or a signal for it has come.
    fn handle_signal(&mut self, number: i32, now: Now, effects: &mut Vec<Effect>) {
        if let Some(signal) = to_forward(number) {
            tracing::info!(?signal, "signal received");
            if let Lifecycle::Served(served) = &mut self.lifecycle {
                served.signalled = true;
            }
            self.core.engine.handle(now, Input::Signalled(signal), effects);
        } else if let Some(exit) = self.server.try_reap() {
            self.core.published.child_ended();
            tracing::info!(?exit, "the server has ended");
            self.core.engine.handle(now, Input::ServerExited(exit), effects);
        }
    }

    fn handle_closes(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let waits = self.release_at_end(effects);
        match self.lifecycle {
            _ if waits => {}
            Lifecycle::Client if self.driver.links.from_client.has_closed() => {
                self.core.engine.handle(now, Input::Closed { from: Side::Client }, effects);
            }
            Lifecycle::Client => {}
            Lifecycle::Served(_) => self.detach_if_done(now, effects),
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
                take_messages(self, now, effects);
                self.pass_frames(from, now, frames, effects);
            }
            Waiting::ToWrite => self.flush(from, now, effects),
            Waiting::Held | Waiting::Idle => {}
        }
    }

    /// Passes what was read.
    pub(super) fn pass_frames(&mut self, from: Side, now: Now, mut frames: Vec<Frame>, effects: &mut Vec<Effect>) {
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
            }
        }
        self.core.publish_pending();
        None
    }
}

impl Session for Relay {
    type Polled = RelayEnd;
    type Ending = Exit;

    fn core(&self) -> &Core {
        &self.core
    }

    fn core_mut(&mut self) -> &mut Core {
        &mut self.core
    }

    fn settle(&mut self, effects: &mut Vec<Effect>) -> Option<Exit> {
        let exit = self.carry_out_all(effects);
        if exit.is_none() {
            self.report_output_before_wait(effects);
        }
        exit
    }

    fn interests<'a>(&'a self, polled: &mut Polled<'a, RelayEnd>) {
        if let Some(interest) = self.driver.links.from_client.interest() {
            polled.add(RelayEnd::Of(Side::Client), interest);
        }
        if let Some(interest) = self.driver.links.from_server.interest() {
            polled.add(RelayEnd::Of(Side::Server), interest);
        }
        if let Some(interest) = self.hang_up_poll() {
            polled.add(RelayEnd::HungUp, interest);
        }
    }

    fn next_deadline(&self) -> Option<Duration> {
        // The client's last lines were released, so the engine must learn of the client's end now.
        let is_at_end = self.driver.links.from_client.is_at_end() && !self.core.engine.waits_for_budget();
        let ended = is_at_end.then_some(Duration::ZERO);
        let directions = [&self.driver.links.from_client, &self.driver.links.from_server];
        let narrowed = directions.iter().any(|of| of.is_wide()).then(|| self.core.clock.elapsed() + NARROWED_AFTER);
        earlier(earlier(earlier(self.delivery_due(), self.client_stalled_at()), ended), narrowed)
    }

    fn woken(&mut self, woken: &Woken<RelayEnd>, effects: &mut Vec<Effect>) {
        self.report_output_after_wait(woken.has(RelayEnd::Of(Side::Server)), effects);
    }

    fn signalled(&mut self, numbers: Vec<i32>, now: Now, effects: &mut Vec<Effect>) -> Option<Exit> {
        numbers.into_iter().for_each(|number| self.handle_signal(number, now, effects));
        None
    }

    fn api_call(&mut self, request: ApiRequest, api_call: ApiCallId, now: Now, effects: &mut Vec<Effect>) {
        if request == ApiRequest::Stop {
            self.set_wanted(ServedState::Stopped, api_call, now, effects);
        } else if request == ApiRequest::Start {
            self.set_wanted(ServedState::Started, api_call, now, effects);
        } else {
            let server_listens = self.driver.links.from_client.takes_injections();
            self.core.engine.handle(now, Input::ApiRequest { api_call, request, server_listens }, effects);
        }
    }

    fn attach(&mut self, admission: ApiCallId, client: Option<UnixStream>, now: Now, effects: &mut Vec<Effect>) {
        self.attach_client(admission, client, now, effects);
    }

    fn pass(&mut self, woken: &Woken<RelayEnd>, now: Now, effects: &mut Vec<Effect>) -> Option<Exit> {
        if woken.has(RelayEnd::HungUp) {
            self.handle_disconnect(now, effects);
        }
        if woken.has(RelayEnd::Of(Side::Client)) {
            self.advance(Side::Client, now, effects);
            // Our own answers to a client's request come before the server's next lines.
            if let Some(exit) = self.carry_out_all(effects) {
                return Some(exit);
            }
        }
        if woken.has(RelayEnd::Of(Side::Server)) {
            self.advance(Side::Server, now, effects);
        }
        None
    }

    fn finish_round(&mut self, now: Now, effects: &mut Vec<Effect>) -> Option<Exit> {
        self.disconnect_stalled(now, effects);
        self.end_delivery(now, effects);
        self.handle_closes(now, effects);
        let directions = [&self.driver.links.from_client, &self.driver.links.from_server];
        directions.into_iter().filter(|of| of.is_wide()).for_each(Direction::settle);
        None
    }
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
                self.pass_frames(Side::Server, now, frames, effects);
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
