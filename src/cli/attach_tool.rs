//! `codex-shim attach`: connects a client on our stdin and stdout to a server that `serve` runs.
//!
//! Bytes are copied in chunks and never parsed. Stdout carries only bytes from the relay.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::args::AttachArguments;
use super::select_session;
use super::{FAILED, NOT_RUNNING, say, screen};
use crate::config::Environment;
use crate::control::client::{self, Attached};
use crate::store::{Found, Otherwise};

/// Bytes per read.
const CHUNK_BYTES: usize = 64 << 10;

/// Why a copy ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copied {
    /// End of input.
    All,
    /// The reader of the output is gone.
    Unwanted,
}

/// Runs the tool; returns the exit status.
pub(super) fn run(arguments: &AttachArguments, environment: &Environment) -> i32 {
    let session = match select_session::one(arguments.session.name(), Otherwise::None, environment) {
        Ok(session) => session,
        Err(error) => return error.report(),
    };
    if !session.live {
        return not_running(&session);
    }
    match client::attach(&session.dir) {
        Ok(Attached::Lines(stream)) => carry(stream).unwrap_or_else(|error| failed(&error.to_string())),
        Ok(Attached::Refused(answer)) => {
            let why = answer.document::<serde_json::Value>().err().unwrap_or_else(|| answer.status.to_string());
            failed(&format!("session {} refused the client: {why}", session.id))
        }
        Err(_) if !session.is_still_live() => not_running(&session),
        Err(error) => failed(&error.message(&session)),
    }
}

fn not_running(session: &Found) -> i32 {
    say(&format!(
        "session {} is not running; start it with `codex-shim serve --session {}`, and try again",
        session.id, session.id
    ));
    NOT_RUNNING
}

fn failed(why: &str) -> i32 {
    say(&screen::plain(why));
    FAILED
}

/// Copies in both directions until one end closes; returns the exit status.
fn carry(stream: UnixStream) -> io::Result<i32> {
    let client_has_ended = Arc::new(AtomicBool::new(false));
    let (to_shim, ended) = (stream.try_clone()?, Arc::clone(&client_has_ended));
    // The read of stdin may block forever, so the process does not join this thread.
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        if copy(rustix::stdio::stdin(), to_shim.as_fd()) == Copied::All {
            ended.store(true, Ordering::Release);
            // The relay then sends what it has and closes. An error means that it has closed already.
            let _ = to_shim.shutdown(Shutdown::Write);
        }
    })?;
    let copied = copy(stream.as_fd(), rustix::stdio::stdout());
    let client_has_ended = client_has_ended.load(Ordering::Acquire);
    Ok(match copied {
        Copied::All | Copied::Unwanted if client_has_ended => 0,
        Copied::All => failed("the server or its relay has exited; see `codex-shim status`"),
        Copied::Unwanted => failed("the client closed stdout"),
    })
}

/// Copies bytes as they arrive.
fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Copied {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let taken = match rustix::io::read(from, &mut chunk) {
            Ok(0) => return Copied::All,
            Ok(taken) => taken,
            Err(error) if may_go_on(error, from, PollFlags::IN) => continue,
            // The connection was reset, or the terminal hung up.
            Err(_) => return Copied::All,
        };
        let mut rest = &chunk[..taken];
        while !rest.is_empty() {
            match rustix::io::write(to, rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if may_go_on(error, to, PollFlags::OUT) => {}
                Err(_) => return Copied::Unwanted,
            }
        }
    }
}

/// Whether to retry after an error: a signal arrived, or someone else made the descriptor non-blocking. In that case it waits
/// until the descriptor is ready.
fn may_go_on(error: Errno, fd: BorrowedFd<'_>, flags: PollFlags) -> bool {
    if error == Errno::AGAIN {
        // If this fails, the next read or write reports it.
        let _ = poll(&mut [PollFd::from_borrowed_fd(fd, flags)], None);
    }
    error == Errno::AGAIN || error == Errno::INTR
}
