//! Shutdown: which side closed first, what follows, and the deadlines.
//!
//! Pure: time is passed in as the duration since the relay started, and [`Shutdown::next_deadline`] tells the caller
//! when to tick.
//!
//! After the client closes its input, the server's grace period pauses while server output is blocked on that client:
//! without us, the server would block in `write` just as long. A signal ends that wait.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::model::{Exit, Signal};
use super::{ChildEffect, Effect, ServerOwner, earlier};
use crate::invariants::holds;

/// Grace period between SIGTERM and SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// After the child is reaped, its output counts as closed once it has been silent this long: a launcher's own child may
/// keep the pipe open.
const DRAIN_QUIET_MAX: Duration = Duration::from_millis(100);

/// Observed ends and pending deadlines.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Shutdown {
    exit_grace: Duration,
    server_owner: ServerOwner,
    client_closed: bool,
    server_closed: bool,
    signalled: bool,
    exited: Option<Exit>,
    /// Remaining time for the child after the client's end.
    grace: Option<Grace>,
    /// Server output is blocked on the client.
    output_waits: bool,
    kill_due: Option<Duration>,
    finished: bool,
}

/// A countdown that can pause.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Grace {
    left: Duration,
    /// `None` while paused.
    runs_since: Option<Duration>,
}

impl Grace {
    fn run(&mut self, elapsed: Duration) {
        self.runs_since.get_or_insert(elapsed);
    }

    fn stand_still(&mut self, elapsed: Duration) {
        if let Some(since) = self.runs_since.take() {
            self.left = self.left.saturating_sub(elapsed.saturating_sub(since));
        }
    }

    fn due(&self) -> Option<Duration> {
        self.runs_since.map(|since| since + self.left)
    }
}

impl Shutdown {
    pub(super) fn new(exit_grace: Duration, server_owner: ServerOwner) -> Shutdown {
        Shutdown {
            exit_grace,
            server_owner,
            client_closed: false,
            server_closed: false,
            signalled: false,
            exited: None,
            grace: None,
            output_waits: false,
            kill_due: None,
            finished: false,
        }
    }

    pub(super) fn check(&self, owner: ServerOwner) {
        holds!("shutdown.owner-stays", self.server_owner == owner);
        holds!("shutdown.nothing-is-due-after-the-exit", self.exited.is_none() || self.next_deadline().is_none());
        holds!("shutdown.finishes-after-the-exit", !self.finished || self.exited.is_some());
        holds!("shutdown.only-the-client-delays-its-server", !self.output_waits || owner == ServerOwner::Client);
        let runs = self.grace.is_some_and(|grace| grace.runs_since.is_some());
        holds!("shutdown.grace-stands-still-while-output-waits", !(self.output_waits && runs));
    }

    /// The client disconnected while some of its output was still queued.
    pub(super) fn client_disconnected(&mut self, elapsed: Duration) {
        if self.exited.is_none() {
            let runs_since = (!self.output_waits).then_some(elapsed);
            self.grace.get_or_insert(Grace { left: self.exit_grace, runs_since });
        }
    }

    /// Server output became blocked on the client, or unblocked. An attached client cannot delay the stop of a server
    /// that the relay owns.
    pub(super) fn output_waits(&mut self, elapsed: Duration, waits: bool) {
        self.output_waits = waits && self.server_owner == ServerOwner::Client;
        if let Some(grace) = &mut self.grace {
            if self.output_waits { grace.stand_still(elapsed) } else { grace.run(elapsed) }
        }
    }

    pub(super) fn client_closed(&mut self, elapsed: Duration, effects: &mut Vec<Effect>) {
        if !std::mem::replace(&mut self.client_closed, true) {
            effects.push(Effect::Child(ChildEffect::CloseServerInput));
            self.client_disconnected(elapsed);
        }
    }

    pub(super) fn server_closed(&mut self, effects: &mut Vec<Effect>) {
        if std::mem::replace(&mut self.server_closed, true) {
            return;
        }
        effects.push(Effect::Child(ChildEffect::CloseClientOutput));
        if let Some(exit) = self.exited {
            self.finish(exit, effects);
        }
    }

    pub(super) fn server_exited(&mut self, exit: Exit, effects: &mut Vec<Effect>) {
        self.exited = Some(exit);
        self.grace = None;
        self.kill_due = None;
        self.drain(exit, effects);
    }

    pub(super) fn signalled(&mut self, elapsed: Duration, signal: Signal, effects: &mut Vec<Effect>) {
        let signalled_before = std::mem::replace(&mut self.signalled, true);
        match self.exited {
            None => {
                effects.push(Effect::Child(ChildEffect::SignalServer(signal)));
                if signal == Signal::Terminate && self.kill_due.is_none() {
                    self.kill_due = Some(elapsed + TERM_GRACE);
                }
            }
            // The child is gone. A second signal skips the drain.
            Some(exit) if signalled_before => self.finish(exit, effects),
            Some(exit) => self.drain(exit, effects),
        }
    }

    pub(super) fn tick(&mut self, elapsed: Duration, effects: &mut Vec<Effect>) {
        if self.grace.and_then(|grace| grace.due()).is_some_and(|due| due <= elapsed) {
            self.grace = None;
            effects.push(Effect::Child(ChildEffect::SignalServer(Signal::Terminate)));
            self.kill_due.get_or_insert(elapsed + TERM_GRACE);
        }
        if self.kill_due.is_some_and(|due| due <= elapsed) {
            self.kill_due = None;
            effects.push(Effect::Child(ChildEffect::KillServer));
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        earlier(self.grace.and_then(|grace| grace.due()), self.kill_due)
    }

    pub(super) fn was_signalled(&self) -> bool {
        self.signalled
    }

    /// The child is gone; the client reads the remaining output at its own pace. There is a limit if the client sent us
    /// a signal, because it may be waiting for our exit instead of reading, and for an attached client, because it must
    /// not delay the restart of the server.
    fn drain(&mut self, exit: Exit, effects: &mut Vec<Effect>) {
        if self.server_closed {
            self.finish(exit, effects);
        } else {
            let stall_max = match self.server_owner {
                ServerOwner::Client => self.signalled.then_some(self.exit_grace),
                ServerOwner::Relay | ServerOwner::Hub => Some(self.exit_grace),
            };
            effects.push(Effect::Child(ChildEffect::DrainServer { quiet_max: DRAIN_QUIET_MAX, stall_max }));
        }
    }

    fn finish(&mut self, exit: Exit, effects: &mut Vec<Effect>) {
        if !std::mem::replace(&mut self.finished, true) {
            effects.extend([Effect::Note(exit.note()), Effect::Child(ChildEffect::Finish(exit))]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays `script` (steps `TIME INPUT`, times in milliseconds) and returns the effects as words.
    #[expect(clippy::wildcard_enum_match_arm, reason = "new effects are shown in debug form")]
    fn check(script: &str, expect: &[&str]) {
        let mut ending = Shutdown::new(Duration::from_secs(10), ServerOwner::Client);
        let mut actual = Vec::new();
        for step in script.split(", ") {
            let (at, what) = step.split_once(' ').expect("BUG: a step is TIME WHAT");
            let elapsed = Duration::from_millis(at.parse().expect("BUG: a time is a number"));
            let mut effects = Vec::new();
            match what {
                "client left" => ending.client_disconnected(elapsed),
                "output waits" => ending.output_waits(elapsed, true),
                "output goes on" => ending.output_waits(elapsed, false),
                "client closed" => ending.client_closed(elapsed, &mut effects),
                "server closed" => ending.server_closed(&mut effects),
                "exit 0" => ending.server_exited(Exit::Code(0), &mut effects),
                "killed" => ending.server_exited(Exit::Signal(9), &mut effects),
                "TERM" => ending.signalled(elapsed, Signal::Terminate, &mut effects),
                "blocked TERM" => ending.signalled(elapsed, Signal::BlockedTerminate, &mut effects),
                "INT" => ending.signalled(elapsed, Signal::Interrupt, &mut effects),
                "tick" => ending.tick(elapsed, &mut effects),
                other => panic!("unknown step {other}"),
            }
            actual.extend(effects.iter().map(|effect| match effect {
                Effect::Child(ChildEffect::DrainServer { stall_max, .. }) => format!("drain {stall_max:?}"),
                Effect::Child(ChildEffect::Finish(exit)) => format!("finish {}", exit.status()),
                Effect::Note(_) => "note".to_owned(),
                Effect::Child(ChildEffect::SignalServer(signal)) => format!("{signal:?}"),
                Effect::Child(other) => format!("{other:?}"),
                other => format!("{other:?}"),
            }));
        }
        assert_eq!(actual, expect);
    }

    #[test]
    fn client_close_leads_to_drain_and_exit() {
        check(
            "0 client closed, 50 exit 0, 51 server closed",
            &["CloseServerInput", "drain None", "CloseClientOutput", "note", "finish 0"],
        );
        check(
            "0 client closed, 50 server closed, 51 exit 0",
            &["CloseServerInput", "CloseClientOutput", "note", "finish 0"],
        );
    }

    #[test]
    fn child_death_ends_relay_despite_client() {
        check("0 killed, 5 server closed", &["drain None", "CloseClientOutput", "note", "finish 137"]);
    }

    #[test]
    fn stubborn_child_is_terminated_then_killed() {
        check(
            "0 client closed, 9999 tick, 10000 tick, 11999 tick, 12000 tick, 12001 tick",
            &["CloseServerInput", "Terminate", "KillServer"],
        );
    }

    #[test]
    fn sigterm_is_forwarded_with_deadline() {
        check(
            "0 TERM, 100 TERM, 1999 tick, 2000 tick, 2001 killed, 2002 server closed",
            &["Terminate", "Terminate", "KillServer", "drain Some(10s)", "CloseClientOutput", "note", "finish 137"],
        );
    }

    #[test]
    fn grace_pauses_while_output_is_blocked() {
        check(
            "0 client closed, 4000 output waits, 90000 tick, 90000 output goes on, 95999 tick, 96000 tick, 98000 tick",
            &["CloseServerInput", "Terminate", "KillServer"],
        );
        check(
            "0 output waits, 0 client closed, 10000 tick, 60000 output goes on, 69999 tick, 70000 tick",
            &["CloseServerInput", "Terminate"],
        );
        check("0 output waits, 0 client left, 60000 tick, 60001 output goes on, 70001 tick", &["Terminate"]);
        check("0 client left, 9999 output waits, 9999 output waits, 50000 output goes on, 50001 tick", &["Terminate"]);
    }

    #[test]
    fn signal_deadlines_ignore_blocked_output() {
        check(
            "0 client closed, 1 output waits, 5000 TERM, 7000 tick, 7001 killed, 7002 TERM",
            &["CloseServerInput", "Terminate", "KillServer", "drain Some(10s)", "note", "finish 137"],
        );
    }

    #[test]
    fn blocked_sigterm_has_no_deadline() {
        check("0 blocked TERM, 60000 tick, 60001 TERM, 62001 tick", &["BlockedTerminate", "Terminate", "KillServer"]);
    }

    #[test]
    fn sigint_has_no_deadline() {
        check("0 INT, 60000 tick, 60001 INT", &["Interrupt", "Interrupt"]);
    }

    #[test]
    fn second_signal_after_child_exit_ends_relay() {
        check(
            "0 exit 0, 5 TERM, 6 server closed",
            &["drain None", "drain Some(10s)", "CloseClientOutput", "note", "finish 0"],
        );
        check("0 exit 0, 5 TERM, 6 TERM, 7 TERM", &["drain None", "drain Some(10s)", "note", "finish 0"]);
    }

    #[test]
    fn disconnect_with_queued_lines_starts_grace() {
        check(
            "0 client left, 9000 client closed, 10000 tick, 12000 tick",
            &["CloseServerInput", "Terminate", "KillServer"],
        );
    }
}
