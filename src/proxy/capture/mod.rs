//! Captures what the user does in a terminal: commands run through us, shell hooks, shells in a terminal of ours, and the
//! events of an `agent_pty`.
//!
//! A program's bytes pass unchanged to the user's terminal while the end of what they leave on its screen is kept ([`Tail`]). Each command becomes
//! one [`crate::engine::PushedCommand`], handed to the running relay or to the ledger for the next one ([`keep`]).
//!
//! This room never changes a byte on its way to the terminal, never keeps more than a tail in memory, never leaves a
//! terminal in another mode, and never fails a program because its command cannot be stored.

mod agent_pty;
mod hooks;
mod piped;
mod replaced;
mod screen;
mod startup;
mod tail;
mod terminal;

use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use crate::api::{Command, WaitingDocument};
use crate::control::client::{self, Caller, Unanswered};
use crate::control::new_commands;
use crate::engine::{ContextBounds, PushedCommand};
use crate::store::{Found, OfflineLedger};
pub use agent_pty::{Watch, Whose};
pub use hooks::{HookOutcome, HookReport, Outputs, ShellKind, answers_privately, output_of, script};
pub use piped::run_piped;
pub use screen::{Happened, Ran, lead, run_in_terminal, why_not_started};
pub use startup::Startup;
pub use tail::Tail;
pub use terminal::{Terminal, terminal_size, usual_size};

/// Attempts to reach a relay that was just started, until its socket exists.
const ATTEMPTS_MAX: u32 = 40;

/// The pause between two attempts.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(50);

/// Hands commands to a session; returns how many wait there then.
///
/// # Errors
///
/// A message for the user; no command was stored.
pub fn keep(session: &Found, pushed: &[PushedCommand], bounds: &ContextBounds) -> Result<WaitingDocument, String> {
    let push = |commands| client::command(&session.dir, &Command::Push(commands), Caller::Tool);
    if session.live {
        match push(pushed.to_vec()).and_then(|reply| reply.document()) {
            Ok(waiting) => return Ok(waiting),
            Err(Unanswered::NoAnswer(_)) if !session.is_still_live() => {}
            Err(error) => return Err(error.message(session)),
        }
    }
    let commands = new_commands(pushed.to_vec(), SystemTime::now(), bounds)?;
    let mut ledger = OfflineLedger::open(&session.dir).map_err(|error| error.to_string())?;
    let waiting = ledger.push_context(commands).map_err(|error| error.to_string())?;
    drop(ledger);
    // A relay may have started after our check, and read the ledger before our commit.
    notify_started(session, || push(Vec::new()).map(drop))?;
    Ok(WaitingDocument { waiting: waiting as u64 })
}

/// Notifies a relay that has just started, as soon as its socket exists.
///
/// # Errors
///
/// A message for the user: the relay does not answer.
pub fn notify_started(session: &Found, notify: impl Fn() -> Result<(), Unanswered>) -> Result<(), String> {
    for _ in 0..ATTEMPTS_MAX {
        if !session.is_still_live() || !matches!(notify(), Err(Unanswered::NoAnswer(_))) {
            return Ok(());
        }
        std::thread::park_timeout(ATTEMPT_PAUSE);
    }
    Err(format!("session {} started meanwhile and does not answer; it reads this at its next start", session.id))
}

/// Joins words so that a shell would split them the same way. Bytes that are not UTF-8 become U+FFFD.
#[must_use]
pub fn as_typed(words: &[OsString]) -> String {
    words.iter().map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_alphanumeric() || "-_./=:,@%+~^".contains(char);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_if_necessary() {
        let check = |words: &[&str], expect: &str| {
            let words: Vec<_> = words.iter().map(Into::into).collect();
            assert_eq!(as_typed(&words), expect);
        };
        check(&["cargo", "test", "--lib"], "cargo test --lib");
        check(&["sh", "-c", "echo 'a b'; exit 3"], r"sh -c 'echo '\''a b'\''; exit 3'");
        check(&["echo", "", "ä", "$x"], "echo '' ä '$x'");
    }
}
