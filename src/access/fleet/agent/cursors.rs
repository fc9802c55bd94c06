//! How far each session was shipped: a file below the home.
//!
//! A cursor moves once the server has stored everything up to it. After a crash it may be too low, and then messages are shipped again
//! under the same ids; it is never too high.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use crate::files::Folder;
use crate::fleet::wire::{Waited, bytes};
use crate::requests::given::Decision;

/// The folder below the home.
pub(super) const FOLDER: &str = "fleet";

const FILE: &str = "cursors.json";

/// The file with the number of the last description.
const NAME_FILE: &str = "name.json";

/// A session that is in no list for so long is forgotten. A list may lack sessions that are there, for example those of a disk that is
/// not mounted; without its cursor a session would be shipped again from its beginning.
const FORGET_AFTER: Duration = Duration::from_secs(3_600);

/// Number of outcomes kept of answers that have waited.
const OUTCOMES_MAX: usize = 50;

/// The outcome of a decision that is tried again.
const WAITS: &str = "waits";

/// Decisions that are held. Further ones stay in the stream, and nothing is lost.
pub(super) const HELD_MAX: usize = 256;

/// Of these, decisions of one user, so that a session that does not reply does not block the other users.
const HELD_OF_USER_MAX: usize = 64;

/// Of these, decisions on one request. Only the first one that reaches the relay counts.
const HELD_OF_REQUEST_MAX: usize = 4;

/// The last event of a session that the server has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cursor {
    pub(super) epoch: String,
    pub(super) seq: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cursors {
    /// The name under which the events were shipped.
    host: String,
    /// When this host joined the fleet. Sessions that ended before are not shipped.
    pub(super) since: SystemTime,
    /// The last answer that this host has taken from the stream of answers.
    #[serde(default)]
    pub(super) later: LaterCursor,
    /// Those that were taken and whose outcome is not known yet, in the order of the stream.
    #[serde(default)]
    pub(super) held: Vec<Held>,
    /// The outcomes of the last answers from there.
    #[serde(default)]
    outcomes: Vec<Waited>,
    pub(super) sessions: BTreeMap<String, Cursor>,
}

/// A decision that was taken from the stream and is not settled. The decision itself stays in the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) number: u64,
    /// When the server stored it.
    pub(super) at: Option<SystemTime>,
    pub(super) user: String,
    pub(super) request: String,
    /// Without its reason: no text is written to disk. Missing in a file of an earlier version.
    #[serde(default)]
    pub(super) given: Option<Decision>,
    pub(super) expires_at: SystemTime,
    /// An attempt has failed, and another one follows.
    #[serde(default)]
    pub(super) waits: bool,
}

/// Identifies a decision by its number and by the time at which the server stored it: a recreated stream starts its
/// numbers again.
pub(super) type Mark = (u64, Option<SystemTime>);

impl Held {
    pub(super) fn mark(&self) -> Mark {
        (self.number, self.at)
    }
}

/// An answer in the stream of answers that wait. A stream that was deleted and made anew begins its numbers again, but later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LaterCursor {
    pub(super) number: u64,
    /// When the server stored it.
    pub(super) at: Option<SystemTime>,
}

impl LaterCursor {
    /// Whether an answer was not taken yet.
    pub(super) fn is_new(&self, number: u64, at: Option<SystemTime>) -> bool {
        number > self.number || self.at.is_some_and(|known| at.is_some_and(|at| at > known))
    }

    /// Whether an answer shows that the numbers have begun again since the last one was taken.
    pub(super) fn is_of_new_stream(&self, number: u64, at: Option<SystemTime>) -> bool {
        number <= self.number && self.at.is_some_and(|known| at.is_some_and(|at| at > known))
    }

    pub(super) fn takes(&mut self, number: u64, at: Option<SystemTime>) {
        // The clocks of two servers may differ within a stream.
        self.at = if number > self.number { self.at.max(at) } else { at.or(self.at) };
        self.number = number;
    }
}

/// The number of the last description of the host, and when another agent with its name was noticed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameFile {
    host: String,
    pub(super) number: u64,
    others_at: Option<SystemTime>,
}

impl NameFile {
    pub(super) fn new(host: &str, number: u64, others_at: Option<SystemTime>) -> NameFile {
        NameFile { host: host.to_owned(), number, others_at }
    }

    /// Reads the record of this host's name from the home; returns the default if the file is missing or invalid.
    pub fn load(home: &Path, host: &str) -> NameFile {
        let text = Folder::at(&home.join(FOLDER)).and_then(|folder| folder.read(NAME_FILE)).unwrap_or_default();
        serde_json::from_slice(&text).ok().filter(|kept: &NameFile| kept.host == host).unwrap_or_default()
    }

    /// # Errors
    ///
    /// The file cannot be written.
    pub(super) fn save(&self, home: &Path) -> io::Result<()> {
        Folder::make(&home.join(FOLDER))?.put(NAME_FILE, &bytes(self))
    }

    /// Whether another agent with the name was noticed within this time.
    pub fn had_others_within(&self, time: Duration) -> bool {
        let age = self.others_at.map(|at| at.elapsed());
        age.is_some_and(|age| age.unwrap_or_default() < time)
    }
}

impl Cursors {
    fn new(host: &str, since: SystemTime) -> Cursors {
        let (later, held, outcomes) = (LaterCursor::default(), Vec::new(), Vec::new());
        Cursors { host: host.to_owned(), since, later, held, outcomes, sessions: BTreeMap::new() }
    }

    /// The cursors in the text of a file, and whether they are those of this host. Those of another one are not used, because the
    /// subjects are others; a host that was renamed keeps only the time at which it has joined.
    fn read(text: &[u8], host: &str) -> Option<(Cursors, bool)> {
        let cursors: Cursors = serde_json::from_slice(text).ok()?;
        Some(match cursors.host == host {
            true => (cursors, true),
            false => (Cursors::new(host, cursors.since), false),
        })
    }

    /// Reads the cursors of the home. Without a usable file it begins new ones and writes them, so that the time at which the host has
    /// joined stays the same.
    ///
    /// # Errors
    ///
    /// The folder or the file cannot be made.
    pub(super) fn load(home: &Path, host: &str, now: SystemTime) -> io::Result<Cursors> {
        let folder = Folder::make(&home.join(FOLDER))?;
        let known = match folder.read(FILE) {
            Ok(text) => Cursors::read(&text, host),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let (cursors, is_written) = known.unwrap_or_else(|| (Cursors::new(host, now), false));
        if !is_written {
            cursors.save(home)?;
        }
        Ok(cursors)
    }

    /// # Errors
    ///
    /// The file cannot be written; the one that was there is unchanged.
    pub(super) fn save(&self, home: &Path) -> io::Result<()> {
        Folder::make(&home.join(FOLDER))?.put(FILE, &bytes(self))
    }

    /// Why no further decision of this user on this request may be held.
    pub(super) fn refuses(&self, user: &str, request: &str) -> Option<String> {
        let count = |is_one: &dyn Fn(&Held) -> bool| self.held.iter().filter(|held| is_one(held)).count();
        if count(&|held| held.request == request) >= HELD_OF_REQUEST_MAX {
            return Some(format!("{HELD_OF_REQUEST_MAX} decisions on this request wait already"));
        }
        let is_full = count(&|held| held.user == user) >= HELD_OF_USER_MAX;
        is_full.then(|| format!("{HELD_OF_USER_MAX} decisions of this user wait already"))
    }

    /// Notes that a held decision has to wait; returns whether that is news.
    pub(super) fn waits(&mut self, mark: Mark) -> bool {
        let held = self.held.iter_mut().find(|held| held.mark() == mark);
        held.is_some_and(|held| !std::mem::replace(&mut held.waits, true))
    }

    /// Notes what became of a held decision.
    pub(super) fn settle(&mut self, mark: Mark, outcome: Waited) {
        self.held.retain(|held| held.mark() != mark);
        self.note(outcome);
    }

    /// The outcomes of the last decisions, and the first held decisions.
    pub(super) fn waited(&self) -> Vec<Waited> {
        let waits = self.held.iter().filter(|held| held.waits).take(OUTCOMES_MAX).map(|held| Waited {
            user: held.user.clone(),
            request: held.request.clone(),
            at: held.at.map_or_else(String::new, |at| humantime::format_rfc3339_seconds(at).to_string()),
            outcome: WAITS.to_owned(),
        });
        self.outcomes.iter().cloned().chain(waits).collect()
    }

    /// Notes what became of an answer that had waited.
    pub(super) fn note(&mut self, outcome: Waited) {
        self.outcomes.push(outcome);
        let over = self.outcomes.len().saturating_sub(OUTCOMES_MAX);
        self.outcomes.drain(..over);
    }

    /// Whether a stopped session is shipped that was used last at this time.
    pub(super) fn concern(&self, session: &str, last_used: SystemTime) -> bool {
        self.sessions.contains_key(session) || last_used >= self.since
    }
}

/// The sessions that have cursors and are in no list, and since when.
#[derive(Debug, Default)]
pub(super) struct Absent(HashMap<String, Instant>);

impl Absent {
    /// Returns the sessions whose cursors may be forgotten, because they have been absent from all lists for
    /// [`FORGET_AFTER`].
    pub(super) fn looks<'a>(
        &mut self,
        known: impl Iterator<Item = &'a str>,
        is_listed: impl Fn(&str) -> bool,
        now: Instant,
    ) -> Vec<String> {
        let absent: HashMap<String, Instant> = known
            .filter(|session| !is_listed(session))
            .map(|session| (session.to_owned(), self.0.get(session).copied().unwrap_or(now)))
            .collect();
        self.0 = absent;
        let due = self.0.iter().filter(|(_, since)| now.duration_since(**since) >= FORGET_AFTER);
        due.map(|(session, _)| session.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_stream_is_known_by_a_lower_number_at_a_later_time() {
        let at = |second| Some(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(second));
        let cursor = LaterCursor { number: 5, at: at(20) };
        let check =
            |number, second, expect| assert_eq!(cursor.is_of_new_stream(number, at(second)), expect, "{number}");
        check(2, 30, true);
        check(5, 30, true);
        check(5, 20, false);
        check(3, 10, false);
        check(8, 30, false);
    }

    #[test]
    fn one_list_without_a_session_forgets_nothing() {
        let (mut absent, began) = (Absent::default(), Instant::now());
        let mut check = |listed: &[&str], after_s: u64, expect: &[&str]| {
            let now = began + Duration::from_secs(after_s);
            assert_eq!(absent.looks(["a", "b"].into_iter(), |id| listed.contains(&id), now), expect, "{after_s}");
        };
        check(&["a", "b"], 0, &[]);
        check(&[], 1, &[]);
        check(&["a"], 2, &[]);
        check(&[], 3_600, &[]);
        check(&["a", "b"], 3_601, &[]);
        check(&["a"], 3_602, &[]);
        check(&["a"], 7_202, &["b"]);
    }

    #[test]
    fn time_of_the_first_join_stays() {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        let first = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        assert_eq!(Cursors::load(home.path(), "h", first).expect("the folder can be made").since, first);
        // An agent that was killed at once has written nothing else.
        let again = Cursors::load(home.path(), "h", first + Duration::from_secs(60)).expect("it is there");
        assert_eq!(again.since, first);
    }

    #[test]
    fn answers_of_a_new_stream_are_new() {
        let at = |s: u64| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(s));
        let mut cursor = LaterCursor::default();
        assert!(cursor.is_new(1, at(10)));
        cursor.takes(1, at(10));
        cursor.takes(5, at(20));
        assert!(!cursor.is_new(5, at(20)) && !cursor.is_new(4, at(15)) && cursor.is_new(6, at(21)));
        // A server whose clock is behind has stored the next one.
        assert!(cursor.is_new(6, at(19)));
        cursor.takes(6, at(19));
        assert!(!cursor.is_new(5, at(20)) && !cursor.is_new(6, at(19)));
        // The stream was deleted and made anew.
        assert!(cursor.is_new(1, at(30)));
        cursor.takes(1, at(30));
        assert!(cursor.is_new(2, at(31)) && !cursor.is_new(1, at(30)));
    }

    #[test]
    fn name_is_kept_with_its_number() {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        assert_eq!(NameFile::load(home.path(), "h"), NameFile::default());
        NameFile::new("h", 7, Some(SystemTime::now())).save(home.path()).expect("it can be written");
        assert_eq!(NameFile::load(home.path(), "h").number, 7);
        assert!(NameFile::load(home.path(), "h").had_others_within(Duration::from_secs(60)));
        assert_eq!(NameFile::load(home.path(), "other"), NameFile::default());
    }

    #[test]
    fn cursors_are_read_back_under_one_name() {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let mut cursors = Cursors::load(home.path(), "h", now).expect("the folder can be made");
        cursors.sessions.insert("s".to_owned(), Cursor { epoch: "e".to_owned(), seq: 7 });
        cursors.later.takes(3, None);
        cursors.save(home.path()).expect("it can be written");
        assert_eq!(Cursors::load(home.path(), "h", now + Duration::from_secs(1)).expect("it is there"), cursors);
        let other = Cursors::load(home.path(), "other", now + Duration::from_secs(9)).expect("it is there");
        assert_eq!((other.sessions.get("s"), other.later), (None, LaterCursor::default()));
        // A host that is renamed has joined when it did.
        let later = Cursors::load(home.path(), "other", now + Duration::from_secs(60)).expect("it is there");
        assert_eq!((other.since, later.since), (now, now));
        cursors.sessions.remove("s");
        assert_eq!(cursors.sessions.get("s"), None);
    }

    #[test]
    fn one_request_or_user_does_not_fill_all_places() {
        let mut cursors = Cursors::new("h", SystemTime::UNIX_EPOCH);
        let held = |number: u64, user: &str, request: String| {
            let expires_at = SystemTime::UNIX_EPOCH;
            Held { number, at: None, user: user.to_owned(), request, given: None, expires_at, waits: false }
        };
        for number in 0..4 {
            assert_eq!(cursors.refuses("ann", "r"), None);
            cursors.held.push(held(number, "ann", "r".to_owned()));
        }
        assert!(cursors.refuses("ben", "r").is_some_and(|why| why.contains("on this request")));
        for number in 4..64 {
            assert_eq!(cursors.refuses("ann", "other"), None);
            cursors.held.push(held(number, "ann", format!("r-{number}")));
        }
        assert!(cursors.refuses("ann", "other").is_some_and(|why| why.contains("of this user")));
        assert_eq!(cursors.refuses("ben", "other"), None);
        let settled = Waited { user: String::new(), request: String::new(), at: String::new(), outcome: String::new() };
        cursors.settle((0, None), settled);
        assert_eq!((cursors.refuses("ann", "r"), cursors.refuses("ben", "r")), (None, None));
    }

    #[test]
    fn decisions_of_an_earlier_file_are_read() {
        let mut cursors = Cursors::new("h", SystemTime::UNIX_EPOCH);
        let expires_at = SystemTime::UNIX_EPOCH;
        let (user, request) = ("ann".to_owned(), "r".to_owned());
        cursors.held.push(Held { number: 1, at: None, user, request, given: None, expires_at, waits: false });
        let mut text = serde_json::to_value(&cursors).expect("JSON");
        text["held"][0].as_object_mut().expect("an object").remove("given").expect("a member");
        assert_eq!(Cursors::read(text.to_string().as_bytes(), "h"), Some((cursors, true)));
    }

    #[test]
    fn damaged_file_begins_anew() {
        for text in ["", "{", "[]", r#"{"host":"h"}"#] {
            assert_eq!(Cursors::read(text.as_bytes(), "h"), None, "{text}");
        }
    }

    #[test]
    fn sessions_from_before_are_not_shipped() {
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let mut cursors = Cursors::new("h", since);
        assert!(!cursors.concern("s", SystemTime::UNIX_EPOCH) && cursors.concern("s", since));
        cursors.sessions.insert("s".to_owned(), Cursor { epoch: "e".to_owned(), seq: 1 });
        assert!(cursors.concern("s", SystemTime::UNIX_EPOCH));
    }
}
