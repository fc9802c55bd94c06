//! The history tools: events, actions, transcripts, children.
//!
//! If a relay is running it is queried, otherwise its files are indexed and read: see [`super::offline`].

mod actions;
mod args;
mod children;
mod events;
mod following;
mod threads;
mod transcript;
mod words;

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::FAILED;
use super::offline::{self, OfflineError, OfflineSession};
use super::requests::{Stop, answered, readable};
use crate::config::{Environment, RetentionBounds};
use crate::control::client::{self, ClientError};
use crate::history::Action;
use crate::index::{Cursor, HistoryError};
use crate::store::Found;

pub(super) use actions::{run_tail, words as action_words};
pub(super) use args::{ChildrenArguments, EventsArguments, TailArguments, TranscriptArguments};
pub(super) use children::run_children;
pub(super) use events::run_events;
pub(super) use threads::{NotAThread, thread_named, thread_or_id};
pub(super) use transcript::run_transcript;

/// Attempts while a session keeps starting or ending.
const TRIES_MAX: u32 = 10;

/// How long a relay may not answer, as happens just after its start.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Pause between two attempts.
const LOOK_WAIT: Duration = Duration::from_millis(50);

/// Access to the history of a session, live or stopped.
struct Read {
    session: Found,
    retention: RetentionBounds,
    past: Option<OfflineSession>,
}

/// A page of events from the control socket.
#[derive(Debug, Deserialize)]
struct Page {
    events: Vec<Box<RawValue>>,
    earliest_seq: Option<u64>,
    latest_seq: Option<u64>,
    history_gap: bool,
    gap_reason: Option<String>,
    next_seq: u64,
    /// Relays of older versions omit it.
    #[serde(default)]
    epoch: Option<String>,
}

#[derive(Deserialize)]
struct Actions {
    actions: Vec<Value>,
}

impl Read {
    /// The session that the flag selects.
    fn chosen(flag: Option<&str>, environment: &Environment) -> Result<Read, Stop> {
        Ok(Read::of(readable(flag, environment)?, environment))
    }

    fn of(session: Found, environment: &Environment) -> Read {
        Read { session, retention: offline::retention(environment), past: None }
    }

    /// At most `limit` events after `since`, or the last ones.
    fn events(&mut self, since: Option<u64>, limit: u64) -> Result<Page, Stop> {
        let since_seq = since.map(|since| format!("since_seq={since}&")).unwrap_or_default();
        let path = format!("/sessions/self/codex-events?{since_seq}limit={limit}");
        self.ask(&path, |past| {
            let page = past.history.events(since.map(Cursor::from).as_ref(), limit, 0, false)?;
            let text = serde_json::to_string(&page).expect("BUG: plain data is JSON");
            Ok(serde_json::from_str(&text).expect("BUG: a page is a page"))
        })
    }

    /// The `limit` most recently changed actions as documents.
    fn actions(&mut self, limit: u64) -> Result<Vec<Value>, Stop> {
        let path = format!("/sessions/self/activity-actions?limit={limit}");
        let told: Actions = self.ask(&path, |past| {
            let actions = past.history.actions(limit, 0)?;
            Ok(Actions { actions: actions.iter().map(Action::document).collect() })
        })?;
        Ok(told.actions)
    }

    /// The relay's response to `GET path`, or the result of `read` if none is running.
    fn ask<T: DeserializeOwned>(
        &mut self,
        path: &str,
        read: impl Fn(&OfflineSession) -> Result<T, HistoryError>,
    ) -> Result<T, Stop> {
        let began = Instant::now();
        for _ in 0..TRIES_MAX {
            if self.session.is_still_live() {
                self.past = None;
                let mut asked = client::get(&self.session.dir, path);
                // A relay holds its lock before it listens.
                let is_young = |asked: &Result<_, ClientError>| asked.as_ref().is_err_and(|error| !error.is_silence());
                while is_young(&asked) && self.session.is_still_live() && began.elapsed() < SILENCE_MAX {
                    std::thread::park_timeout(LOOK_WAIT);
                    asked = client::get(&self.session.dir, path);
                }
                if let Some(answer) = answered(&self.session, asked)? {
                    return answer.document().map_err(Stop::Failed);
                }
            }
            match self.past()? {
                Some(past) => return read(past).map_err(|error| Stop::Failed(error.to_string())),
                None => continue,
            }
        }
        Err(Stop::Failed(format!("session {} keeps restarting; try again", self.session.id)))
    }

    /// The history of the stopped session; `None` if a relay is running by now.
    fn past(&mut self) -> Result<Option<&OfflineSession>, Stop> {
        if self.past.is_none() {
            match OfflineSession::open(&self.session, self.retention) {
                Ok(past) => self.past = Some(past),
                Err(OfflineError::Live) => return Ok(None),
                Err(OfflineError::Failed(why)) => return Err(Stop::Failed(why)),
                Err(OfflineError::NothingRecorded) => {
                    let id = &self.session.id;
                    return Err(Stop::Failed(format!(
                        "session {id} has no recording: its setting `record` is false, or it was never used"
                    )));
                }
            }
        }
        Ok(self.past.as_ref())
    }
}

/// Prints and flushes text; an error is the exit status, 0 if the reader has closed the pipe.
fn put(text: &str) -> Result<(), i32> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| {
        // The reader has closed the pipe.
        if error.kind() == io::ErrorKind::BrokenPipe { 0 } else { FAILED }
    })
}
