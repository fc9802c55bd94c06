//! Waiting for the end of a turn, in a session of this machine or of a host, and the end in words.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use super::super::{CliError, Done, FAILED, say, screen};
use super::print_json;
use crate::api::Request;
use crate::config::parse_duration;

/// The flags of a message whose turn is waited for.
#[derive(Debug, Args)]
pub(in crate::cli) struct WaitFlags {
    /// Wait until the turn has ended, and print the model's last message
    #[arg(long = "wait", id = "wait")]
    pub(in crate::cli) is_on: bool,
    /// Longest time to wait, such as 90s or 10m [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "wait")]
    timeout: Option<Duration>,
}

impl WaitFlags {
    /// The time that is left; `None` without a limit.
    pub(in crate::cli) fn left(&self, began: Instant) -> Option<Duration> {
        self.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()))
    }
}

/// A turn that is waited for.
pub(in crate::cli) trait PendingTurn {
    fn look(&mut self) -> Result<TurnProgress, CliError>;

    /// How to see more of a turn that takes too long.
    fn late(&self) -> String;
}

/// What a look at a turn has found.
pub(in crate::cli) enum TurnProgress {
    Ended(TurnEnd),
    /// More may be found at once.
    Again,
    Running,
    /// Nothing could be read now. Whoever looks gives up by itself.
    Unread,
}

/// The end of a turn.
#[derive(Debug)]
pub(in crate::cli) struct TurnEnd {
    /// The reply to the message.
    pub(in crate::cli) turn: Value,
    /// `completed`, `failed` or `interrupted`; `unknown` if it has an error of its own.
    pub(in crate::cli) outcome: String,
    /// Set if the turn failed.
    pub(in crate::cli) error: Option<String>,
    /// The model's last message.
    pub(in crate::cli) message: Option<String>,
    /// Why the outcome is not known.
    pub(in crate::cli) unknown: Option<CliError>,
}

/// Waits until a turn has ended or the time `left` is over.
pub(in crate::cli) fn wait_for(
    mut turn: impl PendingTurn,
    look_every: Duration,
    left: impl Fn() -> Option<Duration>,
) -> Result<TurnEnd, CliError> {
    loop {
        match turn.look()? {
            TurnProgress::Ended(end) => return Ok(end),
            TurnProgress::Again => continue,
            TurnProgress::Running => {}
            TurnProgress::Unread => {
                std::thread::park_timeout(look_every);
                continue;
            }
        }
        let left = left();
        if left.is_some_and(|left| left.is_zero()) {
            return Err(CliError::failed(format!("timed out; the turn is still running: {}", turn.late())));
        }
        std::thread::park_timeout(left.map_or(look_every, |left| left.min(look_every)));
    }
}

/// The request that the user knows of.
#[derive(Debug, Default)]
pub(in crate::cli) struct ToldOf(Option<String>);

impl ToldOf {
    /// Reports on stderr, once, that a request is pending in the thread: the turn is blocked until someone answers it. `answer` is the
    /// command for it, up to the id.
    pub(in crate::cli) fn tell(&mut self, pending: &[Request], thread_id: &str, answer: &str) {
        let of_thread = pending.iter().find(|row| row.thread_id.as_ref().is_none_or(|id| id == thread_id));
        let Some(Request { request_id: id, summary, .. }) = of_thread else { return };
        if self.0.replace(id.clone()).as_ref() != Some(id) {
            say(&screen::plain(&format!("waiting for an answer to: {summary}; answer with `codex-shim {answer}{id}`")));
        }
    }
}

impl TurnEnd {
    /// Prints the message; returns the exit status.
    pub(in crate::cli) fn print(self, as_json: bool) -> Done {
        let TurnEnd { mut turn, outcome, error, message, unknown } = self;
        let is_completed = outcome == "completed";
        let printed = if as_json {
            turn["status"] = json!(outcome);
            turn["message"] = json!(message);
            turn["error"] = json!(error);
            print_json(&turn)
        } else {
            let lines = message.as_deref().unwrap_or_default().lines().map(screen::plain);
            screen::print(&lines.map(|line| format!("{line}\n")).collect::<String>())
        };
        match unknown {
            Some(why) => return Err(why),
            None if as_json || is_completed => {}
            None => {
                let why = error.map(|why| format!(": {}", screen::plain(&why))).unwrap_or_default();
                say(&format!("the turn {}{why}", if outcome == "interrupted" { "was interrupted" } else { "failed" }));
            }
        }
        Ok(if is_completed { printed } else { FAILED })
    }
}
