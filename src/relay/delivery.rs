//! Delivery of the server's output to a slow client: whether output waits for the client, and for how long after the
//! server has ended.
//!
//! Nothing here reads or writes; the engine sets the limits.

use std::time::Duration;

use super::direction::Waiting;
use super::event_loop::Relay;
use crate::engine::{Effect, Input, Now};
use crate::wire::Side;

/// Limits of the delivery after the child is reaped; see [`Effect::DrainServer`].
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
            self.engine.handle(self.clock.now(), Input::OutputWaits(waits), effects);
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
                self.notices.report("the client did not read all of the server's output");
                self.from_server.abandon();
            }
            Waiting::Held | Waiting::Idle => {}
        }
    }

    /// Waits for the thread that feeds our stdout, if there is one, with the same limits.
    pub(super) fn finish_delivery(&mut self) {
        let Some(feeder) = self.feeder.take() else { return };
        let mut signals = usize::from(self.engine.was_signalled());
        feeder.finish(self.exit_grace, || {
            signals += self.signals.take().signals.len();
            signals
        });
    }
}
