//! How the server's output reaches a client that takes it slowly: whether it waits for the client, and for how long once the server
//! has ended.
//!
//! Nothing here reads or writes; the limits come from the engine.

use std::time::Duration;

use super::direction::Waiting;
use super::event_loop::Relay;
use crate::engine::{Effect, Input, Now};
use crate::wire::Side;

/// The limits of the delivery once the child was reaped. See [`Effect::DrainServer`].
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
    /// Output that waits for the client now goes on waiting until this is looked at again.
    pub(super) fn see_output_before_wait(&mut self, effects: &mut Vec<Effect>) {
        if self.from_server.waiting() == Waiting::ToWrite {
            self.tell_output_waits(true, effects);
        }
    }

    /// Output no longer waits for the client once that has taken all and the server has nothing more to read: its pipe may have
    /// been full meanwhile.
    pub(super) fn see_output_after_wait(&mut self, server_is_ready: bool, effects: &mut Vec<Effect>) {
        if !server_is_ready && self.from_server.waiting() != Waiting::ToWrite {
            self.tell_output_waits(false, effects);
        }
    }

    fn tell_output_waits(&mut self, waits: bool, effects: &mut Vec<Effect>) {
        if std::mem::replace(&mut self.output_waits, waits) != waits {
            self.engine.handle(self.clock.now(), Input::OutputWaits(waits), effects);
        }
    }

    /// When the delivery has to be looked at again.
    pub(super) fn delivery_due(&self) -> Option<Duration> {
        // The client has taken all that has waited for it; the next look tells whether the server has more.
        let look = (self.output_waits && self.from_server.waiting() != Waiting::ToWrite).then_some(Duration::ZERO);
        look.or_else(|| self.drained_at())
    }

    fn drained_at(&self) -> Option<Duration> {
        self.drain.and_then(|drain| self.from_server.drained_at(drain.since, drain.quiet_max, drain.stall_max))
    }

    /// Ends the delivery if the server's output has been silent, or the client has taken nothing, for too long.
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
                self.notices.say("the client did not take all that the server wrote");
                self.from_server.give_up();
            }
            Waiting::Held | Waiting::Idle => {}
        }
    }

    /// Waits for the thread that feeds our stdout, if one does, with the same limits.
    pub(super) fn finish_delivery(&mut self) {
        let Some(feeder) = self.feeder.take() else { return };
        let mut signals = usize::from(self.engine.was_signalled());
        feeder.finish(self.exit_grace, || {
            signals += self.signals.take().signals.len();
            signals
        });
    }
}
