//! What a relay does whose server is its own: it has it started and ended as it is told, and waits while none runs.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::event_loop::Relay;
use super::lifecycle::{Lifecycle, Rested, Wanted};
use crate::engine::{ApiCallId, ApiReply, Effect, Input, Now};
use crate::wire::Side;

impl Relay {
    /// Waits while no child runs: at most for `wait_max`, until somebody has it started, or until a signal.
    pub(super) fn rest(&mut self, wait_max: Option<Duration>) -> Rested {
        let until = wait_max.map(|wait_max| self.clock.now().elapsed + wait_max);
        loop {
            if !self.signals.take().signals.is_empty() {
                return Rested::Signalled;
            }
            let now = self.clock.now();
            let mut effects = Vec::new();
            self.take_letters(now, &mut effects);
            while !effects.is_empty() {
                // Whatever it is, it is the end of a run that is over.
                let _ = self.carry_out(&mut effects);
            }
            match &mut self.lifecycle {
                Lifecycle::Served { wanted: Wanted::Started, .. } if until.is_none() => return Rested::Enough,
                // It need not be waited for that it may be started.
                Lifecycle::Served { wanted: Wanted::Stopped, .. } if until.is_some() => return Rested::Enough,
                // Who asks for it to be started waits for that, and not for the time to be up.
                Lifecycle::Served { wanted: Wanted::Started, waiting, .. } if !waiting.is_empty() => {
                    return Rested::Enough;
                }
                Lifecycle::Served { .. } | Lifecycle::Client => {}
            }
            let left = until.map(|until| until.saturating_sub(now.elapsed));
            if left.is_some_and(|left| left.is_zero()) {
                return Rested::Enough;
            }
            let timeout =
                left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) });
            // An error is an interruption by a signal, which is looked at above.
            let _ = rustix::event::poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], timeout.as_ref());
        }
    }

    /// Has the server end or start, where it is ours to.
    pub(super) fn want(&mut self, wish: Wanted, api_call: ApiCallId, now: Now, effects: &mut Vec<Effect>) {
        let Lifecycle::Served { wanted, runs, waiting, .. } = &mut self.lifecycle else {
            effects.push(Effect::Reply(api_call, ApiReply::NotServed));
            return;
        };
        let is_so = *runs == (wish == Wanted::Started);
        if *wanted == wish && is_so && waiting.is_empty() {
            effects.push(Effect::Reply(api_call, ApiReply::Done));
            return;
        }
        waiting.push(api_call);
        if wish == Wanted::Stopped && *wanted == Wanted::Started {
            // As a client that is done with it.
            self.engine.handle(now, Input::Closed { from: Side::Client }, effects);
        }
        *wanted = wish;
    }

    /// The server runs again, as it was wanted.
    pub(super) fn is_started(&mut self) {
        if let Lifecycle::Served { runs, .. } = &mut self.lifecycle {
            *runs = true;
        }
        self.is_as_wanted();
    }

    /// The server is as it was wanted.
    pub(super) fn is_as_wanted(&mut self) {
        if let Lifecycle::Served { waiting, .. } = &mut self.lifecycle {
            for api_call in std::mem::take(waiting) {
                self.askers.reply(api_call, ApiReply::Done);
            }
        }
    }
}
