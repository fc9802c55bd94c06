//! What is late: calls that the engine has not answered in time, and turns that no longer wait for it.
//!
//! Nothing here ends the engine: [`super::silence`] says when that is due.

use std::time::Instant;

use super::reading::READINGS_MAX;
use super::speaker::Speaker;
use super::task::{Call, Task};

impl Speaker {
    /// Gives up the calls that are not answered in time.
    pub(super) fn give_up_late_calls(&mut self, now: Instant) {
        let late: Vec<u64> = self.calls.iter().filter(|(_, call)| self.due(call) <= now).map(|(id, _)| *id).collect();
        for id in late {
            let Some(call) = self.calls.remove(&id) else { continue };
            // One that it has not come to says nothing of it, nor does one that had less than its deadline; those that it was
            // asked at the same time count as one.
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
        // The line of a compaction goes on before the call of the engine is given up.
        let compactions = self.calls.values().filter(|call| {
            call.work.task.is_overdue(None, now)
                && self.lines.get(&call.thread_id).is_some_and(|line| line.silent_since.is_none())
        });
        let threads: Vec<String> = compactions.map(|call| call.thread_id.clone()).collect();
        threads.iter().for_each(|thread_id| self.waited_in_vain(thread_id, now));
    }

    /// When a call is given up.
    pub(super) fn due(&self, call: &Call) -> Instant {
        match &call.work.task {
            Task::TurnBegins { wait, .. } => wait.until_from(call.sent_at, self.silent_since(&call.thread_id)),
            Task::Met | Task::TurnCompleted { .. } | Task::Compaction { .. } => call.due,
        }
    }

    /// Since when the engine is silent, as far as this thread is concerned.
    pub(super) fn silent_since(&self, thread_id: &str) -> Option<Instant> {
        let engine = self.silence.since();
        self.lines.get(thread_id).map_or(engine, |line| line.silent_since(engine))
    }

    /// A turn of this thread has waited for the engine in vain: the next one is not to wait as long.
    fn waited_in_vain(&mut self, thread_id: &str, now: Instant) {
        self.silence.waited_in_vain(now);
        if let Some(line) = self.lines.get_mut(thread_id) {
            line.silent_since.get_or_insert(now);
        }
    }

    /// Lines no longer wait for what no call was made for.
    pub(super) fn refuse_what_is_late(&mut self, now: Instant) {
        let late = self.readings.iter().filter(|(_, (_, task))| task.is_overdue(None, now));
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        for number in late {
            let Some((thread_id, task)) = self.readings.remove(&number) else { continue };
            self.reporter.refuse(&thread_id, &task, "timeout");
            self.is_free(&thread_id);
        }
        let engine = self.silence.since();
        let waits_for_history = self.readings_open >= READINGS_MAX;
        let mut in_vain = Vec::new();
        for (thread_id, line) in &mut self.lines {
            let silent_since = line.silent_since(engine);
            let before = line.tasks.len();
            line.tasks.retain(|task| {
                let is_overdue = task.is_overdue(silent_since, now);
                if is_overdue {
                    self.reporter.refuse(thread_id, task, "timeout");
                }
                !is_overdue
            });
            // That the history is late is not the fault of the engine.
            let reads_history = waits_for_history || self.readings.values().any(|(reading, _)| reading == thread_id);
            if line.tasks.len() < before && !reads_history {
                in_vain.push(thread_id.clone());
            }
        }
        in_vain.iter().for_each(|thread_id| self.waited_in_vain(thread_id, now));
    }
}
