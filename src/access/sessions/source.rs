//! Where a view gets its sessions: the home of this machine, or a fleet of machines.
//!
//! A view lists sessions, asks one of them or sends it a command, and reads its recording. It does not know where the session
//! runs. The session of another machine has an id that begins with the name of that machine and a slash, which no session of a
//! home can have.
//!
//! A source never decides: the relay of the session does.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::api::{Command, OneRequest, Request, Requests, SessionDocument, State, WhichRequests};
use crate::control::client::{self, ANSWER_WAIT_MAX, Caller, RawReply, Unanswered};
use crate::history::KnownFacts;
use crate::sessions::entry::{Entry, Key, Matcher};
use crate::sessions::news::{Page, Sought, Way};
use crate::sessions::reader::{self, Following, Pager, Teller};
use crate::sessions::search::readable_facts;
use crate::store::Found;

/// A source of sessions. All calls may block within a limit.
pub trait Source: fmt::Debug + Send + Sync {
    /// All sessions: live ones first.
    fn all(&self) -> Vec<Found>;

    /// Whether a session that was live can still be expected to answer.
    fn is_still_live(&self, session: &Found) -> bool;

    /// Changes after each traffic in a session.
    fn traffic(&self, session: &Found) -> (String, u64);

    /// How the sessions are polled.
    fn polling(&self) -> Polling;

    /// How many requests wait in each session, by its id; `None` if only the sessions know.
    fn waiting(&self) -> Option<HashMap<String, usize>> {
        None
    }

    /// The state of a session.
    fn state(&self, session: &Found) -> Result<SessionDocument, Unanswered>;

    /// The requests of a session that wait for an answer.
    fn pending(&self, session: &Found) -> Result<Vec<Request>, Unanswered>;

    /// A request of a session, whatever its status.
    fn request(&self, session: &Found, request: &OneRequest) -> Result<Request, Unanswered>;

    /// The facts of a session for filters; empty if this source has none.
    fn facts(&self, _session: &Found) -> KnownFacts {
        KnownFacts::default()
    }

    /// Sends a command to a session.
    fn command(&self, session: &Found, command: &Command) -> Result<RawReply, Unanswered>;

    /// A reader of the pages of a session's recording. It stops early once `wanted` is false.
    fn recorded(&self, session: &Found, wanted: Arc<AtomicBool>) -> Box<dyn Recorded>;

    /// Follows the recording of a session from its end.
    ///
    /// # Errors
    ///
    /// The thread could not be started.
    fn follow(&self, session: &Found, epoch: u64, teller: Teller) -> io::Result<Following>;
}

/// How the sessions of a source are polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polling {
    /// Each poll asks a relay, which may be slow.
    Relays,
    /// A poll reads what the source knows already.
    Known,
}

/// The pages of a recording; `None` if the read was cancelled.
pub trait Recorded: Send {
    /// The first page of the session.
    fn start(&self) -> io::Result<Option<Page>>;

    /// At most `count` entries before one.
    fn older(&self, before: &Key, count: usize) -> io::Result<Option<Page>>;

    /// The page after an entry.
    fn newer(&self, after: &Key) -> io::Result<Option<Page>>;

    /// An entry in full.
    fn one(&self, key: &Key) -> io::Result<Option<Entry>>;

    /// The next match, with the entries around it.
    fn find(&self, matcher: &Matcher, from: &Key, way: Way) -> io::Result<Option<Sought>>;
}

/// The sessions of a home.
#[derive(Debug)]
pub struct Home {
    pub path: PathBuf,
    /// Whose commands these are.
    pub caller: Caller<'static>,
}

/// The last segment of a session's journal, and its size; it changes with each record.
pub fn end_of_journal(session: &Found) -> (String, u64) {
    let Some(segment) = session.last_segment().map(|segment| segment.to_string()) else { return (String::new(), 0) };
    let bytes = std::fs::metadata(session.journal_dir().join(&segment)).map_or(0, |file| file.len());
    (segment, bytes)
}

impl Source for Home {
    fn all(&self) -> Vec<Found> {
        // A folder that cannot be read now may be readable later.
        Found::all(&self.path).unwrap_or_default()
    }

    fn is_still_live(&self, session: &Found) -> bool {
        session.is_still_live()
    }

    fn traffic(&self, session: &Found) -> (String, u64) {
        end_of_journal(session)
    }

    fn polling(&self) -> Polling {
        Polling::Relays
    }

    fn state(&self, session: &Found) -> Result<SessionDocument, Unanswered> {
        client::ask(&session.dir, &State, ANSWER_WAIT_MAX)
    }

    fn pending(&self, session: &Found) -> Result<Vec<Request>, Unanswered> {
        let listed = client::ask(&session.dir, &Requests(WhichRequests::Pending), ANSWER_WAIT_MAX);
        listed.map(|list| list.requests)
    }

    fn request(&self, session: &Found, request: &OneRequest) -> Result<Request, Unanswered> {
        client::ask(&session.dir, request, ANSWER_WAIT_MAX).map(|document| document.request)
    }

    fn facts(&self, session: &Found) -> KnownFacts {
        readable_facts(session)
    }

    fn command(&self, session: &Found, command: &Command) -> Result<RawReply, Unanswered> {
        client::command(&session.dir, command, self.caller)
    }

    fn recorded(&self, session: &Found, wanted: Arc<AtomicBool>) -> Box<dyn Recorded> {
        Box::new(Pager::new(&session.dir, wanted))
    }

    fn follow(&self, session: &Found, epoch: u64, teller: Teller) -> io::Result<Following> {
        reader::follow(&session.dir, epoch, teller)
    }
}
