//! Runs a program whose stdin or stdout is not a terminal: it keeps our stdin and our process group, and its output passes
//! through pipes of ours.
//!
//! Each stream has its own thread, so that a slow reader of one does not stall the other.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::screen::{Ran, not_started, status_of};
use super::tail::Tail;
use crate::os::Errno;
use crate::os::descriptors::{are_same_file, stderr, stdout, write_all};
use crate::os::launch;
use crate::os::polling::{PollFlags, poll_one};
use crate::os::processes::{self, Pid};
use crate::os::signals::{Signal, Signals};
use crate::os::terminals::has_us_in_foreground;

/// Size of one read, in bytes.
const READ_BYTES: usize = 64 << 10;

/// The interval at which a stream is checked for the program's end, and how long it may be silent after that.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// Runs `words`; returns how it ended and the end of its output.
///
/// # Errors
///
/// The program was not run.
pub fn run_piped(words: &[OsString]) -> io::Result<(Ran, Tail)> {
    let signals = Signals::listen(&[SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    let (out_reader, out_writer) = io::pipe()?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::inherit());
    // If both go to the same place, one pipe keeps their order.
    let err_reader = match are_same_file(stdout(), stderr()) {
        true => {
            command.stderr(out_writer.try_clone()?);
            None
        }
        false => {
            let (err_reader, err_writer) = io::pipe()?;
            command.stderr(err_writer);
            Some(err_reader)
        }
    };
    command.stdout(out_writer);
    // Everything that may fail comes before the program starts, because on an error the caller runs it another way. A
    // thread that reads a pipe ends when `command` drops the writing ends.
    let tail = Arc::new(Mutex::new(Tail::default()));
    let ended = Arc::new(AtomicBool::new(false));
    let out = pass(out_reader.into(), Stream::Out, &tail, &ended)?;
    let err = err_reader.map(|reader| pass(reader.into(), Stream::Err, &tail, &ended)).transpose()?;
    launch::hand_down(&mut command, &[0]);
    let mut child = match command.spawn() {
        Ok(child) => child,
        // The process limit left no room for another process beside us.
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory) => {
            return Err(error);
        }
        Err(error) => return Ok((Ran::with(not_started(&words[0], &error)), Tail::default())),
    };
    // Drops our copies of the writing ends.
    drop(command);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status_of(status),
            Ok(None) => {}
            // Another thread has already waited for it, so its status is lost.
            Err(_) => break Ran::with(1),
        }
        // An error is an interruption by a signal.
        let _ = poll_one(&signals, PollFlags::IN, None);
        for number in signals.take() {
            pass_signal_on(number, Pid::from_child(&child));
        }
    };
    ended.store(true, Ordering::Release);
    for (stream, thread) in [(Stream::Out, Some(out)), (Stream::Err, err)] {
        if let Some(Some(left)) = thread.map(|thread| thread.join().unwrap_or(None)) {
            pass_without_us(left, stream);
        }
    }
    let tail = std::mem::take(&mut *tail.lock().unwrap_or_else(PoisonError::into_inner));
    Ok((status, tail))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Out,
    Err,
}

/// Starts a thread that forwards a stream. If the program has ended but others hold the writing end, it returns our end.
fn pass(
    from: OwnedFd,
    to: Stream,
    tail: &Arc<Mutex<Tail>>,
    ended: &Arc<AtomicBool>,
) -> io::Result<JoinHandle<Option<OwnedFd>>> {
    let (tail, ended) = (Arc::clone(tail), Arc::clone(ended));
    std::thread::Builder::new().name("pass".to_owned()).spawn(move || {
        let mut from = io::PipeReader::from(from);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let was_over = ended.load(Ordering::Acquire);
            match poll_one(&from, PollFlags::IN, Some(POLL_EVERY)) {
                Ok(found) if found.is_empty() && was_over => return Some(from.into()),
                Ok(found) if found.is_empty() => continue,
                Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(_) => return None,
            }
            let read = match from.read(&mut buffer) {
                Ok(0) => return None,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return None,
            };
            // The reader is gone: closing our end lets the program notice, as it would without us.
            let to = if to == Stream::Out { stdout() } else { stderr() };
            if write_all(to, &buffer[..read]).is_err() {
                return None;
            }
            tail.lock().unwrap_or_else(PoisonError::into_inner).take(&buffer[..read]);
        }
    })
}

/// Processes that outlive the program continue to write to the same place: `cat` takes over from us.
fn pass_without_us(left: OwnedFd, to: Stream) {
    launch::keep_descriptors();
    let mut cat = Command::new("cat");
    cat.stdin(left);
    if to == Stream::Err {
        let Ok(err) = stderr().try_clone_to_owned() else { return };
        cat.stdout(err);
    }
    let _ = cat.stderr(Stdio::null()).spawn();
}

/// A terminal's signals reach the program directly, since it is in our process group; any other signal reaches only us, so
/// it is forwarded.
fn pass_signal_on(number: i32, child: Pid) {
    let signal = match number {
        SIGHUP => Signal::HUP,
        SIGTERM => Signal::TERM,
        SIGINT | SIGQUIT if is_in_foreground() => return,
        SIGINT => Signal::INT,
        SIGQUIT => Signal::QUIT,
        _ => return,
    };
    let _ = processes::signal(child, signal);
}

fn is_in_foreground() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| has_us_in_foreground(terminal).unwrap_or(false))
}
