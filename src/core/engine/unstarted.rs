//! Turns of API callers that the server has accepted and not begun: its thread may rest again without a turn, and nothing else says so.
//!
//! Only subscribers of a thread learn of its turns, and each connection may be slow. So a turn has failed only once the server has
//! said on the connection of each subscriber that the thread rests, after it said there that the thread works, or that it is broken.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Effect, Engine, Note};
use crate::invariants::holds;
use crate::wire::{Conn, Members};

/// Most turns that are waited for; for more, nothing is said.
const TURNS_MAX: usize = 1_024;

/// Longest error that is remembered, in characters.
const ERROR_CHARS_MAX: usize = 1_000;

/// The accepted turns by their threads.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Unstarted(BTreeMap<String, Accepted>);

#[derive(Debug, Serialize, Deserialize)]
struct Accepted {
    turn_id: String,
    /// The connections that have not said yet that the thread rests, and whether they have said that it works.
    conns: BTreeMap<Conn, bool>,
    /// The last error of the thread.
    error: Option<String>,
}

impl Unstarted {
    pub(super) fn check(&self) {
        holds!("unstarted.within-limit", self.0.len() <= TURNS_MAX);
        holds!("unstarted.waits-for-some-connection", self.0.values().all(|accepted| !accepted.conns.is_empty()));
        holds!("unstarted.turns-have-names", self.0.values().all(|accepted| !accepted.turn_id.is_empty()));
    }

    /// The server has accepted a turn. `conns` are those of the subscribers of its thread.
    fn accept(&mut self, thread_id: &str, turn_id: String, conns: BTreeMap<Conn, bool>) {
        if self.0.len() < TURNS_MAX && !turn_id.is_empty() {
            self.0.insert(thread_id.to_owned(), Accepted { turn_id, conns, error: None });
        }
    }

    /// A turn of the thread has begun or ended, or a subscriber has come or left.
    pub(super) fn forget(&mut self, thread_id: &str) {
        self.0.remove(thread_id);
    }

    pub(super) fn server_ended(&mut self) {
        self.0.clear();
    }

    fn fails(&mut self, thread_id: &str, error: &str) {
        if let Some(accepted) = self.0.get_mut(thread_id) {
            accepted.error = Some(error.chars().take(ERROR_CHARS_MAX).collect());
        }
    }

    /// The status of a thread on a connection; returns its turn if that has failed.
    fn has_status(&mut self, conn: Conn, thread_id: &str, status: &str) -> Option<Accepted> {
        let accepted = self.0.get_mut(thread_id)?;
        let works = accepted.conns.get_mut(&conn)?;
        match status {
            "active" => *works = true,
            "systemError" => drop(accepted.conns.remove(&conn)),
            _ if *works => drop(accepted.conns.remove(&conn)),
            _ => {}
        }
        if accepted.conns.is_empty() { self.0.remove(thread_id) } else { None }
    }
}

impl Engine {
    /// The server has accepted a turn of an API caller.
    pub(super) fn turn_accepted(&mut self, thread_id: &str, turn_id: &str) {
        if self.threads.turn_in(thread_id).is_some() || self.threads.has_ended(thread_id, turn_id) {
            return;
        }
        let works = self.watched.is_active(thread_id);
        let mut conns: BTreeMap<Conn, bool> = self.clients.subscribers(thread_id).map(|conn| (conn, works)).collect();
        if conns.is_empty() {
            conns.insert(Conn::OWN, works);
        }
        self.unstarted.accept(thread_id, turn_id.to_owned(), conns);
    }

    /// The server reports the status of a thread.
    pub(super) fn unstarted_status(&mut self, conn: Conn, params: &RawValue, effects: &mut Vec<Effect>) {
        let Some(params) = Members::of(params) else { return };
        let status = params.get("status").and_then(Members::of).and_then(|status| status.text("type"));
        let (Some(thread_id), Some(status)) = (params.text("threadId"), status) else { return };
        if let Some(Accepted { turn_id, error, .. }) = self.unstarted.has_status(conn, &thread_id, &status) {
            effects.push(Effect::Note(Note::TurnNotStarted { thread_id, turn_id, status, error }));
        }
    }

    /// The server reports an error that it does not try to mend.
    pub(super) fn unstarted_error(&mut self, params: &RawValue) {
        let Some(params) = Members::of(params) else { return };
        let message = params.get("error").and_then(Members::of).and_then(|error| error.text("message"));
        let retries = params.get("willRetry").is_some_and(|retries| retries.get() == "true");
        if let (Some(thread_id), Some(message), false) = (params.text("threadId"), message, retries) {
            self.unstarted.fails(&thread_id, &message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps `CONN STATUS` after a turn was accepted in a thread with the subscribers 0 and 3; and the step at which it has failed.
    fn check(steps: &[&str], expect: Option<usize>) {
        let mut unstarted = Unstarted::default();
        unstarted.accept("t", "u".to_owned(), BTreeMap::from([(Conn(0), false), (Conn(3), false)]));
        let mut fails_at = steps.iter().enumerate().filter_map(|(at, step)| {
            let (conn, status) = step.split_once(' ').expect("BUG: a step has two words");
            let failed = unstarted.has_status(Conn(conn.parse().expect("BUG: a number")), "t", status)?;
            assert_eq!(failed.turn_id, "u");
            Some(at)
        });
        assert_eq!(fails_at.next(), expect, "{steps:?}");
        assert_eq!(fails_at.next(), None, "{steps:?}");
    }

    #[test]
    fn turn_has_failed_once_all_subscribers_know() {
        check(&["0 active", "0 idle", "3 active", "3 idle", "3 idle"], Some(3));
        check(&["0 active", "3 active", "0 notLoaded", "3 idle"], Some(3));
        check(&["0 systemError", "3 systemError"], Some(1));
        // It may rest since before the turn.
        check(&["0 idle", "3 idle"], None);
        check(&["0 active", "0 idle", "3 idle"], None);
        // Somebody who has not subscribed.
        check(&["4 active", "4 idle", "0 active", "0 idle"], None);
    }

    #[test]
    fn turn_that_begins_is_not_waited_for() {
        let mut unstarted = Unstarted::default();
        unstarted.accept("t", "u".to_owned(), BTreeMap::from([(Conn::OWN, true)]));
        unstarted.fails("t", "no such model");
        unstarted.forget("t");
        assert!(unstarted.has_status(Conn::OWN, "t", "idle").is_none());
        unstarted.accept("t", "u".to_owned(), BTreeMap::from([(Conn::OWN, true)]));
        unstarted.fails("t", "no such model");
        let failed = unstarted.has_status(Conn::OWN, "t", "idle").expect("it rests");
        assert_eq!(failed.error.as_deref(), Some("no such model"));
    }
}
