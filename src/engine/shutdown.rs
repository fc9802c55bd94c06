//! How a relay ends: which end came first, what it leads to, and how long anything may take.
//!
//! Time comes in as the time since the relay began. Nothing here waits; what is due is asked for by
//! [`Shutdown::next_deadline`].
//!
//! The grace of a server whose client has ended its input stands still while the server's output waits for that client: without us
//! the server would wait in its `write` for as long. A signal is the way to end that wait.

use std::time::Duration;

use super::{Effect, Note, ServerOwner};

/// How long a child may take to end after a SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// How long the server's output may be silent, once the child is reaped, before it counts as ended: a launcher's own
/// child may hold it open.
const DRAIN_QUIET_MAX: Duration = Duration::from_millis(100);

/// A signal that is passed on to the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Signal {
    /// SIGTERM.
    Terminate,
    /// SIGTERM, which our launcher has blocked: the child inherits that, and need not see the signal until it unblocks it.
    BlockedTerminate,
    /// SIGINT.
    Interrupt,
    /// SIGHUP.
    HangUp,
}

/// How the child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// The status that we hand back: the child's own, or 128+n where signal n ended it.
    #[must_use]
    pub fn status(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
        }
    }

    fn note(self) -> Note {
        let (exit_code, signal) = match self {
            Exit::Code(code) => (Some(code), None),
            Exit::Signal(signal) => (None, Some(signal)),
        };
        Note::GenerationEnded { exit_code, signal }
    }
}

/// The ends that have been seen, and the deadlines they set.
#[derive(Debug)]
pub(super) struct Shutdown {
    exit_grace: Duration,
    server_owner: ServerOwner,
    client_closed: bool,
    server_closed: bool,
    signalled: bool,
    exited: Option<Exit>,
    /// What is left of the time that the child has after the client's end.
    grace: Option<Grace>,
    /// The server's output waits for the client to take some.
    output_waits: bool,
    kill_due: Option<Duration>,
    finished: bool,
}

/// A time that stands still now and then.
#[derive(Debug, Clone, Copy)]
struct Grace {
    left: Duration,
    /// `None` while it stands still.
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

    /// The client is gone, though not all that it wrote has been handed on.
    pub(super) fn client_disconnected(&mut self, elapsed: Duration) {
        if self.exited.is_none() {
            let runs_since = (!self.output_waits).then_some(elapsed);
            self.grace.get_or_insert(Grace { left: self.exit_grace, runs_since });
        }
    }

    /// The server's output waits for the client, or no longer does. A server of ours that is told to stop is not given longer by a
    /// client that is only attached.
    pub(super) fn output_waits(&mut self, elapsed: Duration, waits: bool) {
        self.output_waits = waits && self.server_owner == ServerOwner::Client;
        if let Some(grace) = &mut self.grace {
            if self.output_waits { grace.stand_still(elapsed) } else { grace.run(elapsed) }
        }
    }

    pub(super) fn client_closed(&mut self, elapsed: Duration, effects: &mut Vec<Effect>) {
        if !std::mem::replace(&mut self.client_closed, true) {
            effects.push(Effect::CloseServerInput);
            self.client_disconnected(elapsed);
        }
    }

    pub(super) fn server_closed(&mut self, effects: &mut Vec<Effect>) {
        if std::mem::replace(&mut self.server_closed, true) {
            return;
        }
        effects.push(Effect::CloseClientOutput);
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
                effects.push(Effect::SignalServer(signal));
                if signal == Signal::Terminate && self.kill_due.is_none() {
                    self.kill_due = Some(elapsed + TERM_GRACE);
                }
            }
            // Nobody is left to pass it on to. Who says it twice does not want the rest of the output.
            Some(exit) if signalled_before => self.finish(exit, effects),
            Some(exit) => self.drain(exit, effects),
        }
    }

    pub(super) fn tick(&mut self, elapsed: Duration, effects: &mut Vec<Effect>) {
        if self.grace.and_then(|grace| grace.due()).is_some_and(|due| due <= elapsed) {
            self.grace = None;
            effects.push(Effect::SignalServer(Signal::Terminate));
            self.kill_due.get_or_insert(elapsed + TERM_GRACE);
        }
        if self.kill_due.is_some_and(|due| due <= elapsed) {
            self.kill_due = None;
            effects.push(Effect::KillServer);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        [self.grace.and_then(|grace| grace.due()), self.kill_due].into_iter().flatten().min()
    }

    pub(super) fn was_signalled(&self) -> bool {
        self.signalled
    }

    /// The child is gone; what it wrote goes to the client as slowly as that reads. A client that has sent us a signal
    /// may be waiting for our exit instead of reading, so then it is given a limit; and one that is only attached does not
    /// keep the server from being started again.
    fn drain(&mut self, exit: Exit, effects: &mut Vec<Effect>) {
        if self.server_closed {
            self.finish(exit, effects);
        } else {
            let stall_max = match self.server_owner {
                ServerOwner::Client => self.signalled.then_some(self.exit_grace),
                ServerOwner::Relay => Some(self.exit_grace),
            };
            effects.push(Effect::DrainServer { quiet_max: DRAIN_QUIET_MAX, stall_max });
        }
    }

    fn finish(&mut self, exit: Exit, effects: &mut Vec<Effect>) {
        if !std::mem::replace(&mut self.finished, true) {
            effects.extend([Effect::Note(exit.note()), Effect::Finish(exit)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays `script` (steps `TIME WHAT`, times in milliseconds) and returns the effects in words.
    #[expect(clippy::wildcard_enum_match_arm, reason = "what is new is told as it stands")]
    fn check(script: &str, expect: &[&str]) {
        let mut ending = Shutdown::new(Duration::from_secs(10), ServerOwner::Client);
        let mut told = Vec::new();
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
            told.extend(effects.iter().map(|effect| match effect {
                Effect::DrainServer { stall_max, .. } => format!("drain {stall_max:?}"),
                Effect::Finish(exit) => format!("finish {}", exit.status()),
                Effect::Note(_) => "note".to_owned(),
                Effect::SignalServer(signal) => format!("{signal:?}"),
                other => format!("{other:?}"),
            }));
        }
        assert_eq!(told, expect);
    }

    #[test]
    fn the_ordinary_end_is_half_close_drain_exit() {
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
    fn a_child_that_dies_ends_us_while_the_client_is_there() {
        check("0 killed, 5 server closed", &["drain None", "CloseClientOutput", "note", "finish 137"]);
    }

    #[test]
    fn a_child_that_ignores_the_end_of_its_input_is_terminated_and_then_killed() {
        check(
            "0 client closed, 9999 tick, 10000 tick, 11999 tick, 12000 tick, 12001 tick",
            &["CloseServerInput", "Terminate", "KillServer"],
        );
    }

    #[test]
    fn a_terminate_is_passed_on_and_has_a_limit() {
        check(
            "0 TERM, 100 TERM, 1999 tick, 2000 tick, 2001 killed, 2002 server closed",
            &["Terminate", "Terminate", "KillServer", "drain Some(10s)", "CloseClientOutput", "note", "finish 137"],
        );
    }

    #[test]
    fn grace_stands_still_while_output_waits() {
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
    fn signals_keep_their_limits_while_output_waits() {
        check(
            "0 client closed, 1 output waits, 5000 TERM, 7000 tick, 7001 killed, 7002 TERM",
            &["CloseServerInput", "Terminate", "KillServer", "drain Some(10s)", "note", "finish 137"],
        );
    }

    #[test]
    fn a_blocked_terminate_is_passed_on_without_a_limit() {
        check("0 blocked TERM, 60000 tick, 60001 TERM, 62001 tick", &["BlockedTerminate", "Terminate", "KillServer"]);
    }

    #[test]
    fn an_interrupt_is_passed_on_without_a_limit() {
        check("0 INT, 60000 tick, 60001 INT", &["Interrupt", "Interrupt"]);
    }

    #[test]
    fn a_signal_after_the_child_has_gone_sets_a_limit_and_a_second_one_ends_us() {
        check(
            "0 exit 0, 5 TERM, 6 server closed",
            &["drain None", "drain Some(10s)", "CloseClientOutput", "note", "finish 0"],
        );
        check("0 exit 0, 5 TERM, 6 TERM, 7 TERM", &["drain None", "drain Some(10s)", "note", "finish 0"]);
    }

    #[test]
    fn a_client_that_leaves_with_lines_on_their_way_starts_the_grace() {
        check(
            "0 client left, 9000 client closed, 10000 tick, 12000 tick",
            &["CloseServerInput", "Terminate", "KillServer"],
        );
    }
}
