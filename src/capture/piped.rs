//! Runs a program whose stdin or stdout is no terminal: it keeps our stdin and our process group, and what it writes passes
//! through pipes of ours.
//!
//! One thread a stream, so that a slow reader of one does not hold up the other.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpgrp, kill_process};
use rustix::stdio::{stderr, stdout};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::leader::not_started;
use super::screen::{Ran, status_of};
use super::signals::Signals;
use super::tail::Tail;
use crate::launch;

/// What one read asks for, in bytes.
const READ_BYTES: usize = 64 << 10;

/// How often a stream is looked at whose program may have ended, and how long it may be silent then.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Runs `words`, and gives how it ended and the end of what it wrote.
///
/// # Errors
///
/// Why it could not be started so; nothing was run then.
pub(crate) fn run_piped(words: &[OsString]) -> io::Result<(Ran, Tail)> {
    let signals = Signals::listen(&[SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    let (out_reader, out_writer) = io::pipe()?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::inherit());
    // Where both go to the same place their order is kept.
    let err_reader = match is_same_file() {
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
    // Whatever may fail comes before the program: once it runs, nothing else runs it. What waits at a pipe whose writing ends are
    // gone with `command` ends by itself.
    let tail = Arc::new(Mutex::new(Tail::default()));
    let ended = Arc::new(AtomicBool::new(false));
    let out = pass(out_reader.into(), Stream::Out, &tail, &ended)?;
    let err = err_reader.map(|reader| pass(reader.into(), Stream::Err, &tail, &ended)).transpose()?;
    launch::hand_down(&mut command, &[0]);
    let mut child = match command.spawn() {
        Ok(child) => child,
        // There was no room for one more process: beside us, that is.
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory) => {
            return Err(error);
        }
        Err(error) => return Ok((Ran::with(not_started(&words[0], &error)), Tail::default())),
    };
    // Our copies of the writing ends go with it.
    drop(command);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status_of(status),
            Ok(None) => {}
            // Somebody else has waited for it: it has ended, and nobody can tell how.
            Err(_) => break Ran::with(1),
        }
        // An error is an interruption by a signal.
        let _ = poll(&mut [PollFd::new(&signals, PollFlags::IN)], None);
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

fn is_same_file() -> bool {
    match (rustix::fs::fstat(stdout()), rustix::fs::fstat(stderr())) {
        (Ok(out), Ok(err)) => (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino),
        _ => false,
    }
}

/// Has a thread pass a stream on. It gives back its end where somebody still holds the other, though the program has ended.
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
            match poll(&mut [PollFd::new(&from.as_fd(), PollFlags::IN)], Some(&LOOK_EVERY)) {
                Ok(0) if was_over => return Some(from.into()),
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(_) => return None,
            }
            let read = match from.read(&mut buffer) {
                Ok(0) => return None,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return None,
            };
            // Nobody reads it any more: the program is to notice, as it would without us.
            if write_all(to, &buffer[..read]).is_err() {
                return None;
            }
            tail.lock().unwrap_or_else(PoisonError::into_inner).take(&buffer[..read]);
        }
    })
}

/// Writes without any buffer between.
fn write_all(to: Stream, bytes: &[u8]) -> rustix::io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let fd = if to == Stream::Out { stdout() } else { stderr() };
        match rustix::io::write(fd, rest) {
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            // Others have made it so; it is waited for instead.
            Err(Errno::AGAIN) => drop(poll(&mut [PollFd::new(&fd, PollFlags::OUT)], None)),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What the program has left behind goes on writing to where it did, without us: `cat` stands in our place.
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

/// What a terminal sends reaches the program without us, since it is in our process group; anything else is for us alone.
fn pass_signal_on(number: i32, child: Pid) {
    let signal = match number {
        SIGHUP => Signal::HUP,
        SIGTERM => Signal::TERM,
        SIGINT | SIGQUIT if is_in_foreground() => return,
        SIGINT => Signal::INT,
        SIGQUIT => Signal::QUIT,
        _ => return,
    };
    let _ = kill_process(child, signal);
}

fn is_in_foreground() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| rustix::termios::tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
}
