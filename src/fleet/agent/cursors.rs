//! How far each session was shipped: a file below the home.
//!
//! A cursor moves once the server has stored everything up to it. After a crash it may be too low, and then messages are shipped again
//! under the same ids; it is never too high.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::files::Folder;

/// The folder below the home.
pub(super) const FOLDER: &str = "fleet";

const FILE: &str = "cursors.json";

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
    /// Number of the last answer that this host has taken from the stream of answers.
    #[serde(default)]
    pub(super) later: u64,
    sessions: BTreeMap<String, Cursor>,
}

impl Cursors {
    fn new(host: &str, since: SystemTime) -> Cursors {
        Cursors { host: host.to_owned(), since, later: 0, sessions: BTreeMap::new() }
    }

    /// The cursors in the text of a file. Those of another host are not used: the subjects are others.
    fn read(text: &[u8], host: &str) -> Option<Cursors> {
        serde_json::from_slice(text).ok().filter(|cursors: &Cursors| cursors.host == host)
    }

    /// Reads the cursors of the home; begins new ones without a usable file.
    ///
    /// # Errors
    ///
    /// The folder cannot be made.
    pub(super) fn load(home: &Path, host: &str, now: SystemTime) -> io::Result<Cursors> {
        let folder = Folder::make(&home.join(FOLDER))?;
        match folder.read(FILE) {
            Ok(text) => Ok(Cursors::read(&text, host).unwrap_or_else(|| Cursors::new(host, now))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Cursors::new(host, now)),
            Err(error) => Err(error),
        }
    }

    /// # Errors
    ///
    /// The file cannot be written; the one that was there is unchanged.
    pub(super) fn save(&self, home: &Path) -> io::Result<()> {
        Folder::make(&home.join(FOLDER))?.put(FILE, &serde_json::to_vec(self).expect("BUG: plain data is JSON"))
    }

    pub(super) fn of(&self, session: &str) -> Option<&Cursor> {
        self.sessions.get(session)
    }

    pub(super) fn put(&mut self, session: &str, cursor: Cursor) {
        self.sessions.insert(session.to_owned(), cursor);
    }

    /// Forgets the sessions that are deleted.
    pub(super) fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.sessions.retain(|session, _| exists(session));
    }

    /// Whether a stopped session is shipped that was used last at this time.
    pub(super) fn concern(&self, session: &str, last_used: SystemTime) -> bool {
        self.sessions.contains_key(session) || last_used >= self.since
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn cursors_are_read_back_under_one_name() {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let mut cursors = Cursors::load(home.path(), "h", now).expect("the folder can be made");
        cursors.put("s", Cursor { epoch: "e".to_owned(), seq: 7 });
        cursors.later = 3;
        cursors.save(home.path()).expect("it can be written");
        assert_eq!(Cursors::load(home.path(), "h", now + Duration::from_secs(1)).expect("it is there"), cursors);
        let other = Cursors::load(home.path(), "other", now).expect("it is there");
        assert_eq!((other.of("s"), other.later), (None, 0));
        cursors.retain(|_| false);
        assert_eq!(cursors.of("s"), None);
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
        cursors.put("s", Cursor { epoch: "e".to_owned(), seq: 1 });
        assert!(cursors.concern("s", SystemTime::UNIX_EPOCH));
    }
}
