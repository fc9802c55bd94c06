//! The first process of a terminal of ours: it stands between us and the program, so that the program can be stopped and
//! continued there as under any shell. A process that nobody in its session has started cannot be stopped from its
//! terminal, and its end would hang up on what it has left behind.
//!
//! It says nothing; what becomes of the program becomes of it: it stops when the program stops, and ends with its status.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, setsid, waitpid};
use rustix::stdio::stdin;
use rustix::termios::tcsetpgrp;

use super::ahead::Ahead;
use crate::launch;

/// Exit status of a shell for a command that cannot be run.
const CANNOT_RUN: i32 = 126;
/// Exit status of a shell for a command that is not there.
const NOT_FOUND: i32 = 127;

/// Becomes the leader of the terminal on our stdin, runs `words` in its foreground, and gives the status to exit with:
/// the program's, or 128 and the number of the signal that ended it. What was typed and not read there is written to the
/// descriptor `unread_to`, where there is one.
#[must_use]
pub(crate) fn lead(words: &[OsString], unread_to: Option<RawFd>) -> i32 {
    let ahead = unread_to.and_then(Ahead::inherited);
    let status = run(words);
    if let Some(ahead) = ahead {
        ahead.tell();
    }
    status
}

fn run(words: &[OsString]) -> i32 {
    // Either fails only where it is so already.
    let _ = setsid();
    let _ = rustix::process::ioctl_tiocsctty(stdin());
    ignore_background_output();
    let program = match start(words) {
        Ok(program) => program,
        Err(error) => return not_started(&words[0], &error),
    };
    loop {
        match waitpid(Some(program), WaitOptions::UNTRACED) {
            Ok(Some((_, status))) => {
                if let Some(code) = status.exit_status() {
                    return code;
                }
                if let Some(signal) = status.terminating_signal() {
                    return 128 + signal;
                }
                if status.stopped() {
                    let _ = kill_process(getpid(), Signal::STOP);
                    // Continued by whoever looks after us.
                    let _ = tcsetpgrp(stdin(), program);
                    let _ = kill_process_group(program, Signal::CONT);
                }
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return CANNOT_RUN,
        }
    }
}

/// Starts the program in a process group of its own, which has the terminal from its first moment.
#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
fn start(words: &[OsString]) -> io::Result<Pid> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).process_group(0);
    // SAFETY: the closure makes plain system calls, which are async-signal-safe, and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            // Where there is no terminal to have, the program can still run.
            let _ = tcsetpgrp(stdin(), getpid());
            Ok(())
        });
    }
    // Behind the above, which SIGTTOU must not stop.
    launch::hand_down(&mut command, &[]);
    let child = command.spawn()?;
    Ok(Pid::from_child(&child))
}

/// Ignores SIGTTOU, which would stop a process that gives a terminal away from its background.
#[expect(unsafe_code, reason = "no safe interface sets a signal's disposition")]
fn ignore_background_output() {
    // SAFETY: SIG_IGN is a valid disposition for SIGTTOU, and no handler of ours is replaced.
    unsafe { libc::signal(libc::SIGTTOU, libc::SIG_IGN) };
}

/// Says what a shell would, and gives the status that it would.
pub(super) fn not_started(word: &OsString, error: &io::Error) -> i32 {
    let _ = writeln!(io::stderr(), "codex-shim: {}: {error}", word.to_string_lossy());
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN }
}
