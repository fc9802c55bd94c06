//! Tracks unanswered calls: decides when an engine counts as hung, and how long a turn waits for a silent one.
//!
//! Pure: time is an argument. Nothing here calls, ends or starts an engine.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::lifecycle::Method;

/// How long after its limit an unanswered call means that the engine hangs. Source: docs/context-engines.md.
const HUNG_AFTER: Duration = Duration::from_secs(10);

/// How long a turn waits for an engine that has missed a deadline and has answered nothing since. The time to read the
/// conversation is extra.
const SILENT_WAIT_MAX: Duration = Duration::from_millis(250);

/// Limit of tracked calls. Further ones are not tracked, since the tracked ones count as hung earlier.
const WATCHED_MAX: usize = 1_024;

/// The unanswered calls of an engine process, and since when it is silent.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// Calls without an answer, whether in time or late, in the order of sending.
    open: BTreeMap<u64, Open>,
    since: Option<Instant>,
}

#[derive(Debug)]
struct Open {
    thread_id: String,
    method: Method,
    sent_at: Instant,
    /// The latest time at which the engine can have begun this call, since it may work sequentially.
    begun_at: Instant,
    limit: Duration,
}

impl Open {
    fn hung_at(&self) -> Instant {
        self.begun_at + self.limit + HUNG_AFTER
    }
}

impl Silence {
    /// Notes a call with the time limit `limit`.
    pub(super) fn sent(&mut self, id: u64, thread_id: &str, method: Method, limit: Duration, now: Instant) {
        if self.open.len() < WATCHED_MAX {
            let thread_id = thread_id.to_owned();
            self.open.insert(id, Open { thread_id, method, sent_at: now, begun_at: now, limit });
        }
    }

    /// Notes an answer, in time or late. Returns the thread of the call.
    pub(super) fn answered(&mut self, id: u64, now: Instant) -> Option<String> {
        self.since = None;
        let call = self.open.remove(&id)?;
        // An engine that works sequentially begins the next call only now.
        self.open.range_mut(id..).for_each(|(_, later)| later.begun_at = now);
        Some(call.thread_id)
    }

    /// Notes that a turn or a compaction waited in vain.
    pub(super) fn waited_in_vain(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// Since when the engine is silent: it missed a deadline then and has answered nothing since.
    pub(super) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Forgets the calls of a process that has ended. The silence goes on until the next process answers.
    pub(super) fn ended(&mut self) {
        self.open.clear();
    }

    /// When the engine counts as hung if it answers nothing until then.
    pub(super) fn hung_at(&self) -> Option<Instant> {
        self.open.values().map(Open::hung_at).min()
    }

    /// The method that a hung engine has not answered, and for how long.
    pub(super) fn hung(&self, now: Instant) -> Option<(Method, Duration)> {
        let hung = self.open.values().find(|call| call.hung_at() <= now)?;
        Some((hung.method, now.saturating_duration_since(hung.sent_at)))
    }
}

/// How long a turn or a compaction waits for the engine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    pub(super) queued_at: Instant,
    pub(super) due: Instant,
}

impl Wait {
    /// The end of the wait in the queue, if the engine is silent since `silent_since`.
    pub(super) fn until(&self, silent_since: Option<Instant>) -> Instant {
        self.until_from(self.queued_at, silent_since)
    }

    /// The end of the wait for a call that was sent at `sent_at`.
    pub(super) fn until_from(&self, sent_at: Instant, silent_since: Option<Instant>) -> Instant {
        match silent_since {
            Some(since) => self.due.min(since.max(sent_at) + SILENT_WAIT_MAX),
            None => self.due,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(2);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn unanswered_call_means_a_hang() {
        let (mut silence, now) = (Silence::default(), Instant::now());
        silence.sent(1, "t", Method::Bootstrap, LIMIT, now);
        assert_eq!(silence.hung_at(), Some(now + seconds(12)));
        assert_eq!(silence.hung(now + seconds(11)), None);
        assert_eq!(silence.hung(now + seconds(13)), Some((Method::Bootstrap, seconds(13))));
        silence.answered(1, now + seconds(11));
        assert_eq!((silence.hung_at(), silence.hung(now + seconds(99))), (None, None));
    }

    #[test]
    fn answers_to_later_calls_do_not_prevent_a_hang() {
        let (mut silence, now) = (Silence::default(), Instant::now());
        silence.sent(1, "t", Method::AfterTurn, LIMIT, now);
        for id in 2..12 {
            silence.sent(id, "t", Method::Assemble, LIMIT, now + seconds(id));
            silence.answered(id, now + seconds(id));
        }
        assert_eq!(silence.hung(now + seconds(12)), Some((Method::AfterTurn, seconds(12))));
    }

    #[test]
    fn sequential_engine_gets_full_time_for_each_call() {
        let (mut silence, now) = (Silence::default(), Instant::now());
        for id in 1..=9 {
            silence.sent(id, "t", Method::Bootstrap, LIMIT, now);
        }
        for id in 1..=8 {
            assert_eq!(silence.hung(now + seconds(id * 10)), None, "{id}");
            silence.answered(id, now + seconds(id * 10));
        }
        assert_eq!(silence.hung_at(), Some(now + seconds(92)));
    }

    #[test]
    fn turns_wait_briefly_for_a_silent_engine() {
        let (mut silence, now) = (Silence::default(), Instant::now());
        silence.waited_in_vain(now + seconds(2));
        silence.waited_in_vain(now + seconds(3));
        let later = Wait { queued_at: now + seconds(9), due: now + seconds(11) };
        assert_eq!(later.until(silence.since()), now + seconds(9) + SILENT_WAIT_MAX);
        let earlier = Wait { queued_at: now, due: now + seconds(60) };
        assert_eq!(earlier.until(silence.since()), now + seconds(2) + SILENT_WAIT_MAX);
        let soon = Wait { queued_at: now + seconds(9), due: now + seconds(9) };
        assert_eq!(soon.until(silence.since()), now + seconds(9));
        // The next process has not answered yet either.
        silence.ended();
        assert_eq!(silence.since(), Some(now + seconds(2)));
        silence.answered(0, now + seconds(9));
        assert_eq!(later.until(silence.since()), later.due);
    }
}
