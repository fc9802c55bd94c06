//! Putting on record what passes, or counting it where that cannot be done.
//!
//! A session that cannot be opened at the start (a full disk, a folder that is not there) is tried again while the relay
//! goes on; what passed before it could be opened is the gap that its journal begins with.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::notices::Notices;
use crate::config::{SessionName, Settings};
use crate::engine::{Note, Now};
use crate::journal::{Batch, Bounds, FORMAT, Header, ServerOrigin, Writer};
use crate::store::{Place, Session, StoreError, open_log};

/// How long a session that could not be opened is left alone.
const REOPEN_AFTER: Duration = Duration::from_secs(1);

/// Notes that are kept for a journal that is not open yet; what one run of the child gives rise to by itself.
const NOTES_KEPT_MAX: usize = 8;

/// What a journal is opened for.
#[derive(Debug)]
pub(super) struct Opening {
    home: Option<PathBuf>,
    wanted: Option<SessionName>,
    bounds: Bounds,
    place: Place,
    codex_path: String,
}

impl Opening {
    pub(super) fn new(settings: &Settings, place: Place, codex_path: String) -> Opening {
        Opening {
            home: settings.home.value.clone(),
            wanted: settings.session.value.clone(),
            bounds: settings.journal_bounds(),
            place,
            codex_path,
        }
    }

    /// Finds the session that this start belongs to, and gives the writer of its journal.
    ///
    /// The lock is never dropped: the process holds it to its end, whichever that is.
    fn open(&self, notices: &Notices) -> Result<Writer, StoreError> {
        let Some(home) = &self.home else {
            let source = io::Error::new(io::ErrorKind::NotFound, "neither CODEX_SHIM_HOME nor HOME is set");
            return Err(StoreError::Io { action: "find", path: "the state folder".into(), source });
        };
        let session = Session::open(home, self.wanted.as_ref(), &self.place)?;
        if let Err(error) = open_log(&session.dir) {
            notices.say(&format!("open {}: {error}; there is no log", session.dir.join("shim.log").display()));
        }
        let generation = session.next_generation()?;
        let pid = std::process::id();
        tracing::info!(session = %session.id, %generation, pid, server = ?self.place.server, "relay started");
        let header = Header {
            journal: FORMAT,
            session: session.id.clone(),
            generation: generation.to_string(),
            segment: 0,
            at: 0,
            argv: self.place.server.clone(),
            cwd: self.place.cwd.clone(),
            codex: ServerOrigin { path: self.codex_path.clone() },
            shim: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let writer = Writer::new(session.journal_dir.clone(), generation, header, self.bounds);
        std::mem::forget(session);
        Ok(writer)
    }
}

/// Puts on record what passes.
#[derive(Debug)]
pub(super) struct Recorder {
    opening: Opening,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Nothing is to be recorded.
    Off,
    /// There is a journal.
    Open(Box<Writer>),
    /// There is none yet.
    Closed(Closed),
}

/// What has passed before there was a journal.
#[derive(Debug)]
struct Closed {
    lines: u64,
    notes: Vec<Note>,
    reason: String,
    retry_at: Duration,
}

impl Recorder {
    /// A recorder that has tried to open its journal; without `record`, one that only holds the session.
    pub(super) fn open(opening: Opening, record: RecordKept, notices: &Notices) -> Recorder {
        let state = match (opening.open(notices), record) {
            (Ok(writer), RecordKept::Yes) => State::Open(Box::new(writer)),
            (Ok(_), RecordKept::No) => State::Off,
            (Err(error), _) => {
                let what =
                    if record == RecordKept::Yes { "nothing is recorded until it works" } else { "no session is held" };
                notices.say(&format!("{error}; relaying goes on, {what}"));
                match record {
                    RecordKept::Yes => State::Closed(Closed {
                        lines: 0,
                        notes: Vec::new(),
                        reason: error.to_string(),
                        retry_at: REOPEN_AFTER,
                    }),
                    RecordKept::No => State::Off,
                }
            }
        };
        Recorder { opening, state }
    }

    /// A batch for what happened `now`; `None` where there is no journal to put it into.
    pub(super) fn batch<'a>(&mut self, now: Now, notices: &Notices) -> Option<Batch<'a>> {
        if let State::Closed(closed) = &mut self.state
            && now.elapsed >= closed.retry_at
        {
            closed.retry_at = now.elapsed + REOPEN_AFTER;
            if let Ok(mut writer) = self.opening.open(notices) {
                let Closed { lines, notes, reason, .. } = closed;
                if *lines > 0 {
                    writer.begin_with_gap(*lines, std::mem::take(reason));
                }
                let mut batch = writer.batch(now);
                notes.iter().for_each(|note| batch.push_note(note));
                self.state = State::Open(Box::new(writer));
                notices.say("what passes is recorded from now on");
                return Some(batch);
            }
        }
        match &mut self.state {
            State::Open(writer) => Some(writer.batch(now)),
            State::Off | State::Closed(_) => None,
        }
    }

    /// Appends a batch.
    pub(super) fn commit(&mut self, batch: Batch<'_>, notices: &mut Notices) {
        if let State::Open(writer) = &mut self.state
            && let Err(error) = writer.commit(batch)
        {
            notices.journal_failed(&error);
        }
    }

    /// A line has passed for which there was no batch.
    pub(super) fn miss_line(&mut self) {
        if let State::Closed(closed) = &mut self.state {
            closed.lines += 1;
        }
    }

    /// Puts something that we did or learned on record, by itself.
    pub(super) fn note(&mut self, note: Note, now: Now, notices: &mut Notices) {
        if matches!(note, Note::GenerationEnded { .. }) {
            self.try_at_once();
        }
        match self.batch(now, notices) {
            Some(mut batch) => {
                batch.push_note(&note);
                self.commit(batch, notices);
            }
            None => self.miss_note(note),
        }
    }

    /// Something that we did or learned for which there was no batch.
    pub(super) fn miss_note(&mut self, note: Note) {
        if let State::Closed(closed) = &mut self.state
            && closed.notes.len() < NOTES_KEPT_MAX
        {
            closed.notes.push(note);
        }
    }

    /// What comes now is the last: everything is tried once more, however short a time ago it failed.
    fn try_at_once(&mut self) {
        match &mut self.state {
            State::Open(writer) => writer.try_at_once(),
            State::Closed(closed) => closed.retry_at = Duration::ZERO,
            State::Off => {}
        }
    }
}

/// Whether a journal is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordKept {
    /// One is.
    Yes,
    /// None is.
    No,
}
