//! How the speaker makes its calls: one after the other for each thread of codex, for as many threads as the engine reads.
//!
//! Nothing is waited for. What is begun here is a reading of what was said, and then a call; what comes of either comes back as an
//! event.

use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use super::call::{self, About};
use super::conversation::Conversation;
use super::lifecycle::{self, Method, Occasion, Step};
use super::reading::READINGS_MAX;
use super::speaker::{Phase, Speaker, log_words};
use super::task::{Call, Task, Work};
use crate::engine::Assembled;

/// Calls that may be open at the same time; each holds what was said in its thread.
const CALLS_MAX: usize = 32;

/// Lines that the engine has not read, with which no more calls are begun.
const UNREAD_MAX: usize = 8;

/// How long a call may take that no line waits for.
const CALL_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long the history is waited for, where no line waits. What comes behind it in the same thread could not be had earlier.
const HISTORY_WAIT_MAX: Duration = Duration::from_secs(5);

/// When a thread is made up for whose history could not be had.
const MEET_AGAIN_AFTER: Duration = Duration::from_secs(1);

impl Speaker {
    /// Begins whatever can be begun.
    pub(super) fn pump(&mut self) {
        match &self.phase {
            // It may be there in time.
            Phase::Starting { .. } => {}
            Phase::Down { .. } => {
                for (thread_id, line) in &mut self.lines {
                    for task in std::mem::take(&mut line.tasks) {
                        self.reporter.refuse(thread_id, &task, "not_running");
                    }
                }
            }
            Phase::Ready { .. } => {
                let waiting = self.lines.iter().filter(|(_, line)| !line.is_busy && !line.tasks.is_empty());
                let mut free: Vec<(u64, String)> =
                    waiting.map(|(thread_id, line)| (line.waits_since, thread_id.clone())).collect();
                free.sort_unstable();
                for (_, thread_id) in free {
                    if !self.has_room() {
                        return;
                    }
                    self.begin(&thread_id);
                }
            }
        }
    }

    /// Whether one more call may be begun.
    fn has_room(&self) -> bool {
        let Phase::Ready { process, .. } = &self.phase else { return false };
        let begun = self.readings.len();
        self.readings_open < READINGS_MAX
            && self.calls.len() + begun < CALLS_MAX
            && process.unread() as usize + begun < UNREAD_MAX
    }

    /// Begins what waits for a thread, up to the first that needs to know what was said in it.
    fn begin(&mut self, thread_id: &str) {
        let now = Instant::now();
        loop {
            let Phase::Ready { can, .. } = &self.phase else { return };
            let Some(line) = self.lines.get_mut(thread_id).filter(|line| !line.is_busy) else { return };
            let Some(task) = line.next(can.has(Method::Bootstrap), now) else { return };
            if matches!(task, Task::Compaction { .. }) && !can.owns_compaction {
                self.reporter.answer_without(&task);
                continue;
            }
            line.is_busy = true;
            self.last_reading += 1;
            let due = task.due(None).unwrap_or(now + HISTORY_WAIT_MAX);
            if self.reader.read(self.last_reading, thread_id, due).is_ok() {
                self.readings_open += 1;
                self.readings.insert(self.last_reading, (thread_id.to_owned(), task));
                return;
            }
            self.has_no_history(thread_id, &task, "too much is to be read");
        }
    }

    /// What was said is known, or cannot be: the first call is made.
    pub(super) fn has_read(&mut self, number: u64, read: Result<Conversation, String>) {
        self.readings_open = self.readings_open.saturating_sub(1);
        let Some((thread_id, task)) = self.readings.remove(&number) else { return };
        if task.is_overdue(None, Instant::now()) {
            self.reporter.refuse(&thread_id, &task, "timeout");
            return self.is_free(&thread_id);
        }
        let mut conversation = match read {
            Ok(conversation) => conversation,
            Err(why) => return self.has_no_history(&thread_id, &task, &why),
        };
        self.is_free(&thread_id);
        let occasion = match &task {
            Task::Met => {
                // Turns that it will be told of are not what was said before.
                let told_later = self.lines.get(&thread_id).map(|line| line.completed_turns());
                conversation.leave_out(&told_later.unwrap_or_default());
                if conversation.messages.is_empty() {
                    return;
                }
                Occasion::Met
            }
            Task::TurnBegins { .. } => Occasion::TurnBegins,
            Task::TurnCompleted { turn_id } => {
                Occasion::TurnCompleted { messages: conversation.of_turn(turn_id).len() }
            }
            Task::Compaction { .. } => Occasion::Compaction,
        };
        let Phase::Ready { can, .. } = &self.phase else {
            return self.reporter.refuse(&thread_id, &task, "not_running");
        };
        match lifecycle::first(occasion, can) {
            Some(step) => self.call(&thread_id, Work { task, occasion, conversation: Rc::new(conversation) }, step),
            None => self.reporter.answer_without(&task),
        }
    }

    fn has_no_history(&mut self, thread_id: &str, task: &Task, why: &str) {
        tracing::warn!(thread_id, why, "the context engine is not asked: there is no history");
        self.reporter.refuse(thread_id, task, "no_history");
        self.is_free(thread_id);
        if let (Task::Met, Some(line)) = (task, self.lines.get_mut(thread_id)) {
            (line.is_met, line.is_met_again_at) = (false, Some(Instant::now() + MEET_AGAIN_AFTER));
        }
    }

    /// Makes a call.
    fn call(&mut self, thread_id: &str, work: Work, step: Step) {
        let Phase::Ready { process, .. } = &mut self.phase else { return };
        let (beginning, turn_id) = match &work.task {
            Task::TurnBegins { beginning, .. } => (Some(&**beginning), ""),
            Task::TurnCompleted { turn_id } => (None, turn_id.as_str()),
            Task::Met | Task::Compaction { .. } => (None, ""),
        };
        let token_budget = self.settings.engine.token_budget;
        let about = About { session_id: &self.settings.session_id, thread_id, token_budget };
        let params = call::params(step, about, &work.conversation, beginning, turn_id);
        self.last_call += 1;
        let line = call::line(self.last_call, step.method(), &params);
        let (bytes, sent_at) = (line.len(), Instant::now());
        let due = match &work.task {
            Task::TurnBegins { wait, .. } => wait.due,
            Task::Met | Task::TurnCompleted { .. } | Task::Compaction { .. } => sent_at + CALL_WAIT_MAX,
        };
        let sent = process.send(self.last_call, line);
        self.silence.sent(self.last_call, thread_id, step.method(), due.saturating_duration_since(sent_at), sent_at);
        let line = *sent.as_ref().unwrap_or(&u64::MAX);
        let call = Call { thread_id: thread_id.to_owned(), work, step, line, sent_at, due, bytes };
        if let Some(line) = self.lines.get_mut(thread_id) {
            line.is_busy = true;
        }
        self.calls.insert(self.last_call, call);
        if sent.is_err() {
            self.fail("it does not read what it is sent", "not_reading");
        }
    }

    pub(super) fn answered(&mut self, call: Call, answer: Result<Box<RawValue>, String>, bytes: usize) {
        let read = match answer {
            Err(error) => Err(("error", error)),
            Ok(result) => self.read_answer(&call, &result).map_err(|why| ("invalid", why)),
        };
        match read {
            Ok(assembled) => {
                self.reporter.note(&call, bytes, "ok");
                let Phase::Ready { can, .. } = &self.phase else { return };
                match lifecycle::next(call.work.occasion, call.step, can) {
                    Some(step) => {
                        let Call { thread_id, work, .. } = call;
                        self.call(&thread_id, work, step);
                    }
                    None => {
                        self.is_free(&call.thread_id);
                        self.reporter.consulted(&call.work.task, assembled);
                    }
                }
            }
            Err((outcome, why)) => {
                log_words(call.step.method().name(), &why);
                self.reporter.note(&call, bytes, outcome);
                self.give_up(call);
            }
        }
    }

    /// Reads what a call has come to.
    fn read_answer(&self, call: &Call, result: &RawValue) -> Result<Option<Assembled>, String> {
        match (&call.work.task, call.step) {
            (Task::TurnBegins { beginning, .. }, Step::Assemble) => {
                call::assembled(result, beginning, self.settings.engine.projection_chars_max).map(Some)
            }
            (Task::Compaction { .. }, Step::Compact) => {
                let compaction = call::compaction(result)?;
                if let Some(reason) = &compaction.reason {
                    log_words("compact", reason);
                }
                self.reporter.compacted(&call.thread_id, Some(compaction));
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// A call has come to nothing; whoever waits is told so, and nothing follows it.
    pub(super) fn give_up(&mut self, call: Call) {
        self.is_free(&call.thread_id);
        if let (Task::Compaction { .. }, Step::Compact) = (&call.work.task, call.step) {
            self.reporter.compacted(&call.thread_id, None);
        }
        self.reporter.answer_without(&call.work.task);
    }

    /// What waits behind it in its thread may go on, once it is its turn.
    pub(super) fn is_free(&mut self, thread_id: &str) {
        if let Some(line) = self.lines.get_mut(thread_id) {
            self.waited += 1;
            (line.is_busy, line.waits_since) = (false, self.waited);
        }
    }
}
