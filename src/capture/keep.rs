//! Commands on their way into a session: to the relay that runs there, or into the ledger of the one that will.

use std::time::{Duration, SystemTime};

use crate::control::client::{self, Answer, ClientError};
use crate::control::{WaitingDocument, new_commands};
use crate::engine::{ContextBounds, PushedCommand};
use crate::store::{Found, OfflineLedger};

const PATH: &str = "/sessions/self/context";

/// How long a relay may take to keep what was caught: it answers once that is on the disk, which a machine that builds
/// something can keep busy for seconds.
pub(crate) const KEEP_WAIT_MAX: Duration = Duration::from_secs(10);

/// How often a relay that was just started is told of something, until its socket is there.
const TELLINGS_MAX: u32 = 40;

/// How long is left between two tellings.
const TELLING_WAIT: Duration = Duration::from_millis(50);

/// Keeps commands in a session, and tells how many wait there then.
///
/// # Errors
///
/// Why none of them is kept, for a person.
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
    // A relay may have started after we looked, and before it could find this.
    tell_started(session, || client::post(&session.dir, PATH, "[]".to_owned()))?;
    Ok(WaitingDocument { waiting: waiting as u64 })
}

/// Tells a relay that has started in the meantime, as soon as its socket is there.
///
/// # Errors
///
/// That it does not answer, for a person.
pub(crate) fn tell_started(session: &Found, tell: impl Fn() -> Result<Answer, ClientError>) -> Result<(), String> {
    for _ in 0..TELLINGS_MAX {
        if !session.is_still_live() || tell().is_ok() {
            return Ok(());
        }
        std::thread::park_timeout(TELLING_WAIT);
    }
    Err(format!("session {} started meanwhile and does not answer; it reads this at its next start", session.id))
}
