//! The first process of a terminal of ours. It stands between us and the program, so that the program can be stopped and
//! continued as under any shell: the kernel does not stop an orphaned process group from its terminal, and the end of a
//! session leader hangs up on background processes.
//!
//! It prints nothing and mirrors the program: it stops when the program stops, and exits with its status.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, setsid, waitpid};
use rustix::stdio::stdin;
use rustix::termios::tcsetpgrp;

use super::terminal::TypeAhead;
use crate::launch;

/// A shell's exit status for a command that cannot be run.
const CANNOT_RUN: i32 = 126;
/// A shell's exit status for an unknown command.
const NOT_FOUND: i32 = 127;

/// Becomes the leader of the terminal on our stdin, runs `words` in its foreground, and returns the exit status: the
/// program's, or 128 plus the number of the signal that ended it. Unread keys are written to the descriptor `unread_to`, if
/// given.
#[must_use]
pub(crate) fn lead(words: &[OsString], unread_to: Option<RawFd>) -> i32 {
    let ahead = unread_to.and_then(TypeAhead::inherited);
    let status = run(words);
    if let Some(ahead) = ahead {
        ahead.report();
    }
    status
}

fn run(words: &[OsString]) -> i32 {
    // Either fails only if it is already so.
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
                    // Our parent has continued us.
                    let _ = tcsetpgrp(stdin(), program);
                    let _ = kill_process_group(program, Signal::CONT);
                }
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return CANNOT_RUN,
        }
    }
}

/// Starts the program in its own process group, which is in the foreground from the start.
#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
fn start(words: &[OsString]) -> io::Result<Pid> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).process_group(0);
    // SAFETY: the closure only makes system calls, which are async-signal-safe, and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            // Without a terminal the program can still run.
            let _ = tcsetpgrp(stdin(), getpid());
            Ok(())
        });
    }
    // After the call above, which SIGTTOU must not stop.
    launch::hand_down(&mut command, &[]);
    let child = command.spawn()?;
    Ok(Pid::from_child(&child))
}

/// Ignores SIGTTOU, which stops a background process that hands the terminal on.
#[expect(unsafe_code, reason = "no safe interface sets a signal's disposition")]
fn ignore_background_output() {
    // SAFETY: SIG_IGN is a valid disposition for SIGTTOU, and no handler of ours is replaced.
    unsafe { libc::signal(libc::SIGTTOU, libc::SIG_IGN) };
}

/// Prints a shell's message for a program that cannot run; returns a shell's status for it.
pub(super) fn not_started(word: &OsString, error: &io::Error) -> i32 {
    let _ = writeln!(io::stderr(), "codex-shim: {}", why_not_started(word, error));
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN }
}

/// Why a program cannot run: a name without a slash is looked up on PATH.
pub(crate) fn why_not_started(word: &OsString, error: &io::Error) -> String {
    let name = word.to_string_lossy();
    let is_looked_up = error.kind() == io::ErrorKind::NotFound && !name.contains('/');
    if is_looked_up { format!("{name} is not on PATH") } else { format!("{name}: {error}") }
}
