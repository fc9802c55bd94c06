//! Deadlines: gives up calls that the engine has not answered in time, and tasks that no longer wait for it.
//!
//! Nothing here ends the engine; [`super::silence`] decides when that is due.

use std::time::Instant;

use super::history_reader::READINGS_MAX;
use super::task::{Call, Task};
use super::worker::Worker;

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
    pub(super) fn due(&self, call: &Call) -> Instant {
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
