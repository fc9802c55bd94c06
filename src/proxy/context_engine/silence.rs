//! Tracks unanswered calls: decides when an engine counts as hung, and how long a turn waits for a silent one.
//!
//! Pure: time is an argument. Nothing here calls, ends or starts an engine.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::calls::{PendingCall, Task};
use super::conversation::READINGS_MAX;
use super::protocol::Method;
use super::worker::Worker;

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
    open: BTreeMap<u64, OpenOccasion>,
    since: Option<Instant>,
}

#[derive(Debug)]
struct OpenOccasion {
    thread_id: String,
    method: Method,
    sent_at: Instant,
    /// The latest time at which the engine can have begun this call, since it may work sequentially.
    begun_at: Instant,
    limit: Duration,
}

impl OpenOccasion {
    fn hung_at(&self) -> Instant {
        self.begun_at + self.limit + HUNG_AFTER
    }
}

impl Silence {
    /// Notes a call with the time limit `limit`.
    pub(super) fn sent(&mut self, id: u64, thread_id: &str, method: Method, limit: Duration, now: Instant) {
        if self.open.len() < WATCHED_MAX {
            let thread_id = thread_id.to_owned();
            self.open.insert(id, OpenOccasion { thread_id, method, sent_at: now, begun_at: now, limit });
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
        self.open.values().map(OpenOccasion::hung_at).min()
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

// Deadlines: gives up calls that the engine has not answered in time, and tasks that no longer wait for it.
//
// Nothing here ends the engine; [`Silence`] decides when that is due.

impl Worker {
    /// Gives up the calls whose deadline has passed.
    pub(super) fn give_up_late_calls(&mut self, now: Instant) {
        let late: Vec<u64> = self.calls.iter().filter(|(_, call)| self.due(call) <= now).map(|(id, _)| *id).collect();
        for id in late {
            let Some(call) = self.calls.remove(&id) else { continue };
            // A call counts as unanswered only if the engine has read it and had its full time; calls sent together
            // count as one.
            let has_read = self.phase.process().is_some_and(|process| process.has_read(call.line));
            if has_read && call.due <= now && call.sent_at >= self.unanswered.1 {
                self.unanswered = (self.unanswered.0 + 1, now);
            }
            self.waited_in_vain(&call.thread_id, now);
            tracing::warn!(
                method = call.step.method().name(),
                thread_id = call.thread_id,
                "the context engine has not answered in time"
            );
            self.reporter.note(&call, 0, "timeout");
            self.give_up(call);
        }
        // A held compaction goes on earlier than its call is given up.
        let compactions = self.calls.values().filter(|call| {
            call.work.task.is_overdue(None, now)
                && self.threads.get(&call.thread_id).is_some_and(|thread| thread.silent_since.is_none())
        });
        let threads: Vec<String> = compactions.map(|call| call.thread_id.clone()).collect();
        threads.iter().for_each(|thread_id| self.waited_in_vain(thread_id, now));
    }

    /// When a call is given up.
    pub(super) fn due(&self, call: &PendingCall) -> Instant {
        match &call.work.task {
            Task::TurnBegins { wait, .. } => wait.until_from(call.sent_at, self.silent_since(&call.thread_id)),
            Task::NewThread | Task::TurnCompleted { .. } | Task::Compaction { .. } => call.due,
        }
    }

    /// Since when the engine is silent for this thread.
    pub(super) fn silent_since(&self, thread_id: &str) -> Option<Instant> {
        let engine = self.silence.since();
        self.threads.get(thread_id).map_or(engine, |thread| thread.silent_since(engine))
    }

    /// Notes a turn of this thread that waited for the engine in vain; the next one waits less.
    fn waited_in_vain(&mut self, thread_id: &str, now: Instant) {
        self.silence.waited_in_vain(now);
        if let Some(thread) = self.threads.get_mut(thread_id) {
            thread.silent_since.get_or_insert(now);
        }
    }

    /// Refuses the tasks whose deadline passed before a call was made.
    pub(super) fn refuse_late_tasks(&mut self, now: Instant) {
        let late = self.readings.iter().filter(|(_, (_, task))| task.is_overdue(None, now));
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        for number in late {
            let Some((thread_id, task)) = self.readings.remove(&number) else { continue };
            self.reporter.refuse(&thread_id, &task, "timeout");
            self.release_thread(&thread_id);
        }
        let engine = self.silence.since();
        let waits_for_history = self.readings_open >= READINGS_MAX;
        let mut in_vain = Vec::new();
        for (thread_id, thread) in &mut self.threads {
            let silent_since = thread.silent_since(engine);
            let before = thread.tasks.len();
            thread.tasks.retain(|task| {
                let is_overdue = task.is_overdue(silent_since, now);
                if is_overdue {
                    self.reporter.refuse(thread_id, task, "timeout");
                }
                !is_overdue
            });
            // A late history is not the engine's fault.
            let reads_history = waits_for_history || self.readings.values().any(|(reading, _)| reading == thread_id);
            if thread.tasks.len() < before && !reads_history {
                in_vain.push(thread_id.clone());
            }
        }
        in_vain.iter().for_each(|thread_id| self.waited_in_vain(thread_id, now));
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
