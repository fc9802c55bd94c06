//! `serve`: starts and stops the server on request, and waits while no server runs.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::event_loop::Relay;
use crate::engine::{ApiCallId, ApiReply, Effect, Input, Now};
use crate::wire::Side;

/// Controls when the server starts and stops.
#[derive(Debug)]
pub(super) enum Lifecycle {
    /// The client that started us.
    Client,
    /// `codex-shim serve`, on the request of API callers.
    Served {
        wanted: Wanted,
        /// The server was started, and its end was not handled yet.
        runs: bool,
        /// A signal ends the relay.
        signalled: bool,
        /// API callers that wait for the wanted state.
        waiting: Vec<ApiCallId>,
    },
}

/// The state in which API callers want a served server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Started,
    Stopped,
}

/// Why a pause without a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PauseEnd {
    Signalled,
    /// The pause is over, or an API caller wants the server started or stopped.
    Over,
}

impl Relay {
    /// Waits while no server runs: for `wait_max` at most, until an API caller wants the server started, or until a
    /// signal.
    pub(super) fn pause(&mut self, wait_max: Option<Duration>) -> PauseEnd {
        let until = wait_max.map(|wait_max| self.clock.now().elapsed + wait_max);
        loop {
            if !self.signals.take().signals.is_empty() {
                return PauseEnd::Signalled;
            }
            let now = self.clock.now();
            let mut effects = Vec::new();
            self.take_messages(now, &mut effects);
            while !effects.is_empty() {
                // These effects belong to a run that is over, so its exit no longer matters.
                let _ = self.carry_out(&mut effects);
            }
            match &mut self.lifecycle {
                Lifecycle::Served { wanted: Wanted::Started, .. } if until.is_none() => return PauseEnd::Over,
                // The server must stay stopped, so the back-off no longer matters.
                Lifecycle::Served { wanted: Wanted::Stopped, .. } if until.is_some() => return PauseEnd::Over,
                // An API caller waits for the start, so the back-off is cut short.
                Lifecycle::Served { wanted: Wanted::Started, waiting, .. } if !waiting.is_empty() => {
                    return PauseEnd::Over;
                }
                Lifecycle::Served { .. } | Lifecycle::Client => {}
            }
            let left = until.map(|until| until.saturating_sub(now.elapsed));
            if left.is_some_and(|left| left.is_zero()) {
                return PauseEnd::Over;
            }
            let timeout =
                left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) });
            // An error means that a signal interrupted the poll; the next iteration checks the signals.
            let _ = rustix::event::poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], timeout.as_ref());
        }
    }

    /// Starts or stops a served server on request.
    pub(super) fn set_wanted(&mut self, target: Wanted, caller: ApiCallId, now: Now, effects: &mut Vec<Effect>) {
        let Lifecycle::Served { wanted, runs, waiting, .. } = &mut self.lifecycle else {
            effects.push(Effect::Reply(caller, ApiReply::NotServed));
            return;
        };
        let is_in_target_state = *runs == (target == Wanted::Started);
        if *wanted == target && is_in_target_state && waiting.is_empty() {
            effects.push(Effect::Reply(caller, ApiReply::Done));
            return;
        }
        waiting.push(caller);
        if target == Wanted::Stopped && *wanted == Wanted::Started {
            // The server ends as it does when its client has closed its input.
            self.engine.handle(now, Input::Closed { from: Side::Client }, effects);
        }
        *wanted = target;
    }

    /// Marks the server as running and replies to the callers that waited for it.
    pub(super) fn server_started(&mut self) {
        if let Lifecycle::Served { runs, .. } = &mut self.lifecycle {
            *runs = true;
        }
        self.reply_to_waiting();
    }

    /// Replies to the callers that waited for the wanted state.
    pub(super) fn reply_to_waiting(&mut self) {
        if let Lifecycle::Served { waiting, .. } = &mut self.lifecycle {
            for caller in std::mem::take(waiting) {
                self.callers.reply(caller, ApiReply::Done);
            }
        }
    }
}
