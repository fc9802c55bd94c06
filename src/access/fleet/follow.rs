//! Reads the stored events of a fleet so that each comes once. Pure.
//!
//! The server drops a message that it has under the same id, but only for some minutes. A reader drops the others: an event whose number
//! it has. A message may come after one with a higher number, but never further back than a page of the agent.

use std::collections::{BTreeSet, HashMap};

use super::wire::EventMessage;

/// How far back a number can come late: more than a page of an agent.
const LATE_MAX: u64 = 512;

/// Sessions that are remembered. The one that was silent for the longest time is forgotten first.
const SESSIONS_MAX: usize = 10_000;

/// The numbers of a session's epoch that a reader has.
#[derive(Debug, Default)]
struct Seen {
    epoch: String,
    numbers: BTreeSet<u64>,
    used: u64,
}

/// The events that a reader has seen.
#[derive(Debug, Default)]
pub struct Reader {
    sessions: HashMap<(String, String), Seen>,
    clock: u64,
}

impl Reader {
    /// Whether a message is new.
    pub fn is_new(&mut self, message: &EventMessage) -> bool {
        self.clock += 1;
        let key = (message.host.clone(), message.session.clone());
        if self.sessions.len() >= SESSIONS_MAX
            && !self.sessions.contains_key(&key)
            && let Some(silent) = self.sessions.iter().min_by_key(|(_, seen)| seen.used).map(|(key, _)| key.clone())
        {
            self.sessions.remove(&silent);
        }
        let seen = self.sessions.entry(key).or_default();
        seen.used = self.clock;
        if seen.epoch != message.epoch {
            *seen = Seen { epoch: message.epoch.clone(), numbers: BTreeSet::new(), used: self.clock };
        }
        let highest = seen.numbers.last().copied().unwrap_or(0);
        if message.seq.saturating_add(LATE_MAX) <= highest || !seen.numbers.insert(message.seq) {
            return false;
        }
        while seen.numbers.first().is_some_and(|first| first.saturating_add(LATE_MAX) <= highest.max(message.seq)) {
            seen.numbers.pop_first();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(session: &str, epoch: &str, seq: u64) -> EventMessage {
        let (host, session, epoch) = ("h".to_owned(), session.to_owned(), epoch.to_owned());
        EventMessage { v: 1, host, session, epoch, seq, event: None, gap: None }
    }

    #[test]
    fn each_event_comes_once() {
        let mut reader = Reader::default();
        let mut check = |session: &str, epoch: &str, seq: u64, expect: bool| {
            assert_eq!(reader.is_new(&message(session, epoch, seq)), expect, "{session} {epoch} {seq}");
        };
        check("s", "e", 1, true);
        check("s", "e", 1, false);
        check("s", "e", 7, true);
        // The agent has repeated it after a broken connection.
        check("s", "e", 2, true);
        check("s", "e", 2, false);
        check("t", "e", 1, true);
        check("s", "e", 7 + LATE_MAX, true);
        check("s", "e", 7, false);
        check("s", "f", 7, true);
    }

    #[test]
    fn memory_is_bounded() {
        let mut reader = Reader::default();
        assert!((0..10_000).all(|seq| reader.is_new(&message("s", "e", seq))));
        assert!(reader.sessions.values().all(|seen| seen.numbers.len() as u64 <= LATE_MAX));
        assert!((0..SESSIONS_MAX + 3).all(|number| reader.is_new(&message(&number.to_string(), "e", 1))));
        assert_eq!(reader.sessions.len(), SESSIONS_MAX);
    }
}
