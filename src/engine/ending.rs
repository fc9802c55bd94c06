//! How a relay ends: which end came first, what it leads to, and how long anything may take.
//!
//! Time comes in as the time since the relay began. Nothing here waits; what is due is asked for by
//! [`Ending::tick_due`].

use std::time::Duration;

use super::{Attendance, Effect, Note};

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
pub(super) struct Ending {
    exit_grace: Duration,
    attendance: Attendance,
    client_closed: bool,
    server_closed: bool,
    signalled: bool,
    exited: Option<Exit>,
    terminate_due: Option<Duration>,
    kill_due: Option<Duration>,
    finished: bool,
}

impl Ending {
    pub(super) fn new(exit_grace: Duration, attendance: Attendance) -> Ending {
        Ending {
            exit_grace,
            attendance,
            client_closed: false,
            server_closed: false,
            signalled: false,
            exited: None,
            terminate_due: None,
            kill_due: None,
            finished: false,
        }
    }

    /// The client is gone, though not all that it wrote has been handed on.
    pub(super) fn client_left(&mut self, elapsed: Duration) {
        if self.exited.is_none() {
            self.terminate_due.get_or_insert(elapsed + self.exit_grace);
        }
    }

    pub(super) fn client_closed(&mut self, elapsed: Duration, effects: &mut Vec<Effect>) {
        if !std::mem::replace(&mut self.client_closed, true) {
            effects.push(Effect::CloseServerInput);
            self.client_left(elapsed);
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
        self.terminate_due = None;
        self.kill_due = None;
        self.hand_over(exit, effects);
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
            Some(exit) => self.hand_over(exit, effects),
        }
    }

    pub(super) fn tick(&mut self, elapsed: Duration, effects: &mut Vec<Effect>) {
        if self.terminate_due.is_some_and(|due| due <= elapsed) {
            self.terminate_due = None;
            effects.push(Effect::SignalServer(Signal::Terminate));
            self.kill_due.get_or_insert(elapsed + TERM_GRACE);
        }
        if self.kill_due.is_some_and(|due| due <= elapsed) {
            self.kill_due = None;
            effects.push(Effect::KillServer);
        }
    }

    pub(super) fn tick_due(&self) -> Option<Duration> {
        [self.terminate_due, self.kill_due].into_iter().flatten().min()
    }

    /// The child is gone; what it wrote goes to the client as slowly as that reads. A client that has sent us a signal
    /// may be waiting for our exit instead of reading, so then it is given a limit; and one that is only attached does not
    /// keep the server from being started again.
    fn hand_over(&mut self, exit: Exit, effects: &mut Vec<Effect>) {
        if self.server_closed {
            self.finish(exit, effects);
        } else {
            let stall_max = match self.attendance {
                Attendance::Client => self.signalled.then_some(self.exit_grace),
                Attendance::Nobody => Some(self.exit_grace),
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
        let mut ending = Ending::new(Duration::from_secs(10), Attendance::Client);
        let mut told = Vec::new();
        for step in script.split(", ") {
            let (at, what) = step.split_once(' ').expect("BUG: a step is TIME WHAT");
            let elapsed = Duration::from_millis(at.parse().expect("BUG: a time is a number"));
            let mut effects = Vec::new();
            match what {
                "client left" => ending.client_left(elapsed),
                "client closed" => ending.client_closed(elapsed, &mut effects),
                "server closed" => ending.server_closed(&mut effects),
                "exit 0" => ending.server_exited(Exit::Code(0), &mut effects),
                "killed" => ending.server_exited(Exit::Signal(9), &mut effects),
                "TERM" => ending.signalled(elapsed, Signal::Terminate, &mut effects),
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
