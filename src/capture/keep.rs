//! Hands commands to a session: to its relay, or into the ledger for the next relay.

use std::time::{Duration, SystemTime};

use crate::control::client::{self, Answer, ClientError};
use crate::control::{WaitingDocument, new_commands};
use crate::engine::{ContextBounds, PushedCommand};
use crate::store::{Found, OfflineLedger};

const PATH: &str = "/sessions/self/context";

/// How long a relay may take to store a command: it answers after the commit to disk, which takes seconds on a machine busy
/// with a build.
pub(crate) const KEEP_WAIT_MAX: Duration = Duration::from_secs(10);

/// Attempts to reach a relay that was just started, until its socket exists.
const ATTEMPTS_MAX: u32 = 40;

/// The pause between two attempts.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(50);

/// Hands commands to a session; returns how many wait there then.
///
/// # Errors
///
/// A message for the user; no command was stored.
pub(crate) fn keep(
    session: &Found,
    pushed: &[PushedCommand],
    bounds: &ContextBounds,
) -> Result<WaitingDocument, String> {
    if session.live {
        let body = serde_json::to_string(pushed).expect("BUG: plain data is JSON");
        match client::post_within(&session.dir, PATH, body, KEEP_WAIT_MAX) {
            Ok(answer) => return answer.document(),
            Err(_) if !session.is_still_live() => {}
            Err(error) => return Err(error.message(session)),
        }
    }
    let commands = new_commands(pushed.to_vec(), SystemTime::now(), bounds)?;
    let mut ledger = OfflineLedger::open(&session.dir).map_err(|error| error.to_string())?;
    let waiting = ledger.push_context(commands).map_err(|error| error.to_string())?;
    drop(ledger);
    // A relay may have started after our check, and read the ledger before our commit.
    notify_started(session, || client::post(&session.dir, PATH, "[]".to_owned()))?;
    Ok(WaitingDocument { waiting: waiting as u64 })
}

/// Notifies a relay that has just started, as soon as its socket exists.
///
/// # Errors
///
/// A message for the user: the relay does not answer.
pub(crate) fn notify_started(session: &Found, notify: impl Fn() -> Result<Answer, ClientError>) -> Result<(), String> {
    for _ in 0..ATTEMPTS_MAX {
        if !session.is_still_live() || notify().is_ok() {
            return Ok(());
        }
        std::thread::park_timeout(ATTEMPT_PAUSE);
    }
    Err(format!("session {} started meanwhile and does not answer; it reads this at its next start", session.id))
}
