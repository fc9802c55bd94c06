//! A thread's conversation in the form that a context engine gets. Pure: made from the lines of our own transcript.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::api::{Content, Entry};
use crate::index::{HISTORY_FILE, History, Index, IndexState};
use crate::journal::{Position, end_of};

#[derive(Debug, Clone, Default)]
pub(super) struct Conversation {
    /// Messages, oldest first.
    pub(super) messages: Vec<Value>,
    /// The token usage of each turn, by its id, oldest first.
    pub(super) usage: Vec<(String, Value)>,
}

impl Conversation {
    /// Reads the lines of a transcript.
    pub(super) fn of(entries: &[String]) -> Conversation {
        let mut conversation = Conversation::default();
        for entry in entries {
            let Some(entry) = Entry::read(entry) else { continue };
            if let Content::Usage(usage) = &entry.content {
                conversation.usage.push((entry.turn_id.unwrap_or_default().into_owned(), json!(usage)));
            } else if let Some(message) = message(&entry) {
                conversation.messages.push(message);
            }
        }
        conversation
    }

    /// Removes the messages of these turns.
    pub(super) fn leave_out(&mut self, turn_ids: &[&str]) {
        self.messages.retain(|message| message["turnId"].as_str().is_none_or(|id| !turn_ids.contains(&id)));
    }

    /// The range of a turn's messages; an empty range at the end if it has none. The range excludes later messages and
    /// those of an older turn with the same id.
    pub(super) fn of_turn(&self, turn_id: &str) -> Range<usize> {
        let turn_of = |message: &Value| message["turnId"].as_str().map(|id| id == turn_id);
        let Some(last) = self.messages.iter().rposition(|message| turn_of(message) == Some(true)) else {
            return self.messages.len()..self.messages.len();
        };
        let before = self.messages[..last].iter().rposition(|message| turn_of(message) == Some(false));
        let begins = before.map_or(0, |before| before + 1);
        let unnamed = self.messages[begins..].iter().take_while(|message| turn_of(message).is_none()).count();
        begins + unnamed..last + 1
    }

    /// The token usage of a turn.
    pub(super) fn usage(&self, turn_id: &str) -> Option<&Value> {
        self.usage.iter().rev().find(|(of, _)| of == turn_id).map(|(_, usage)| usage)
    }
}

/// Converts an entry to a message; `None` if it contains neither words nor an action.
fn message(entry: &Entry<'_>) -> Option<Value> {
    let said = |text: &str| json!({ "type": "text", "text": text });
    let did = |name: &str, input: Members<'_>| json!({ "type": "tool_call", "name": name, "input": present(input) });
    let gave = |output: Members<'_>| json!({ "type": "tool_result", "id": entry.item_id, "content": present(output) });
    let (role, content) = match &entry.content {
        Content::User(words) => {
            let images = words.content.iter().flatten().filter(|kind| kind.to_lowercase().contains("image"));
            let mut content: Vec<Value> = images.map(|_| json!({ "type": "image" })).collect();
            content.extend(words.text.as_deref().filter(|text| !text.is_empty()).map(said));
            ("user", content)
        }
        Content::Assistant(words) => ("assistant", vec![said(words.text.as_deref()?)]),
        Content::Command(item) => {
            let input = [("command", json!(item.command)), ("cwd", json!(item.cwd))];
            let output = [("output", json!(item.output)), ("exit_code", json!(item.exit_code))];
            ("tool", vec![did("command", &input), gave(&output)])
        }
        Content::FileChange(item) => {
            let input = [("changes", json!(item.changes))];
            ("tool", vec![did("file_change", &input), gave(&[("status", json!(item.status))])])
        }
        Content::Tool(item) => {
            let name = item.tool.as_deref().unwrap_or(&item.item_type);
            let (server, arguments, details) = (json!(item.server), json!(item.arguments), json!(item.details));
            let input = [("server", server), ("arguments", arguments), ("details", details)];
            let output = [("result", json!(item.result)), ("status", json!(item.status))];
            ("tool", vec![did(name, &input), gave(&output)])
        }
        Content::Reasoning(_)
        | Content::Plan(_)
        | Content::Diff(_)
        | Content::Approval(_)
        | Content::Status(_)
        | Content::Error(_)
        | Content::Usage(_)
        | Content::Compaction
        | Content::Other(_) => return None,
    };
    if content.is_empty() {
        return None;
    }
    Some(json!({
        "role": role,
        "content": content,
        "ts": entry.ts,
        "itemId": entry.item_id,
        "turnId": entry.turn_id,
    }))
}

type Members<'a> = &'a [(&'a str, Value)];

/// An object of the members that are there.
fn present(members: Members<'_>) -> Value {
    members.iter().filter(|(_, value)| !value.is_null()).cloned().collect()
}

// The thread that reads conversations. It waits for the index to catch up, so that its callers need not.
//
// Readings run sequentially. That delays no one: the journal only grows, so a later reading needs at least what an
// earlier one waits for. A reading whose deadline has passed is dropped.

/// Limit of queued readings.
pub(super) const READINGS_MAX: usize = 32;

/// Limit of a conversation in bytes of its newest entries; older entries are left out.
const ENTRIES_BYTES_MAX: usize = 2 << 20;

const STACK_BYTES: usize = 1 << 20;

/// The source of conversations.
#[derive(Debug)]
pub struct Conversations {
    index: Option<Index>,
    history: History,
    journal_dir: PathBuf,
}

/// A handle of the thread.
#[derive(Debug)]
pub(super) struct ConversationReader {
    readings: SyncSender<Reading>,
    journal_dir: PathBuf,
}

/// A conversation to read.
#[derive(Debug)]
struct Reading {
    number: u64,
    thread_id: String,
    /// The end of the journal at the time of the request.
    end: Option<Position>,
    due: Instant,
}

/// The queue is full.
#[derive(Debug)]
pub(super) struct QueueFull;

impl Conversations {
    /// The conversations of the session in `session_dir`. Without an index, nothing is recorded or can be read.
    #[must_use]
    pub fn new(session_dir: &Path, journal_dir: &Path, index: Option<Index>) -> Conversations {
        let history = History::new(&session_dir.join(HISTORY_FILE));
        Conversations { index, history, journal_dir: journal_dir.to_owned() }
    }

    /// Starts the thread, which passes each result to `post`. The thread ends with the [`ConversationReader`].
    pub(super) fn start(
        self,
        post: impl Fn(u64, Result<Conversation, String>) + Send + 'static,
    ) -> io::Result<ConversationReader> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let (readings, to_read) = sync_channel(READINGS_MAX);
        let journal_dir = self.journal_dir.clone();
        let thread = std::thread::Builder::new().name("engine-history".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || self.read_all(&to_read, &runtime, &post))?;
        Ok(ConversationReader { readings, journal_dir })
    }

    fn read_all(
        &self,
        to_read: &Receiver<Reading>,
        runtime: &Runtime,
        post: &impl Fn(u64, Result<Conversation, String>),
    ) {
        for reading in to_read {
            let number = reading.number;
            post(number, self.read(&reading, runtime));
        }
    }

    fn read(&self, reading: &Reading, runtime: &Runtime) -> Result<Conversation, String> {
        let Some(index) = &self.index else { return Err("nothing is recorded in this session".to_owned()) };
        let Reading { thread_id, end, due, number: _ } = reading;
        let mut state = index.state();
        let is_there = |state: &IndexState| end.is_none() || state.position >= *end;
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("the deadline has passed".to_owned());
        }
        if !is_there(&state.borrow()) {
            index.wake();
            let settled = state.wait_for(|state| is_there(state) || state.fault.is_some());
            // The state below shows whether it caught up in time.
            drop(runtime.block_on(async { timeout(left, settled).await }));
        }
        let (is_behind, fault, epoch) = {
            let state = state.borrow();
            (!is_there(&state), state.fault.clone(), state.opened)
        };
        if let Some(fault) = fault {
            return Err(fault);
        }
        if is_behind {
            return Err("the index did not catch up in time".to_owned());
        }
        let entries = self.history.transcript_end(thread_id, ENTRIES_BYTES_MAX, epoch).map_err(|error| {
            if error.is_broken() {
                index.rebuild(epoch);
            }
            error.to_string()
        })?;
        Ok(Conversation::of(&entries))
    }
}

impl ConversationReader {
    /// Queues a reading of the thread's conversation as of now, to be completed by `due`. Never waits.
    pub(super) fn read(&self, number: u64, thread_id: &str, due: Instant) -> Result<(), QueueFull> {
        let end = end_of(&self.journal_dir);
        let reading = Reading { number, thread_id: thread_id.to_owned(), end, due };
        self.readings.try_send(reading).map_err(|_| QueueFull)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_actions_become_messages() {
        let entries = [
            r#"{"ts":"T","role":"user","item_id":"i","event":"item/completed","turn_id":"u","text":"update_progress","content":["image","text"]}"#,
            r#"{"ts":"T","role":"reasoning","item_id":"r","turn_id":"u","text":"hm"}"#,
            r#"{"ts":"T","role":"command","item_id":"c","turn_id":"u","command":"ls","cwd":"/","output":"a","exit_code":0}"#,
            r#"{"ts":"T","role":"assistant","item_id":"m","turn_id":"u","text":"A file."}"#,
            r#"{"ts":"T","role":"token_usage","event":"x","turn_id":"u","total":9}"#,
            r#"{"ts":"T","role":"status","turn_id":"u","status":"completed"}"#,
            r#"{"ts":"T","role":"user","item_id":"j","turn_id":"v","text":""}"#,
            "torn",
        ];
        let conversation = Conversation::of(&entries.map(str::to_owned));
        let place = |item: &str| json!({ "ts": "T", "itemId": item, "turnId": "u" });
        let message = |item: &str, role: &str, content: Value| {
            let mut message = place(item);
            message["role"] = json!(role);
            message["content"] = content;
            message
        };
        assert_eq!(
            conversation.messages,
            [
                message("i", "user", json!([{ "type": "image" }, { "type": "text", "text": "update_progress" }])),
                message(
                    "c",
                    "tool",
                    json!([
                        { "type": "tool_call", "name": "command", "input": { "command": "ls", "cwd": "/" } },
                        { "type": "tool_result", "id": "c", "content": { "output": "a", "exit_code": 0 } },
                    ])
                ),
                message("m", "assistant", json!([{ "type": "text", "text": "A file." }])),
            ]
        );
        assert_eq!((conversation.of_turn("u"), conversation.of_turn("v")), (0..3, 3..3));
        assert_eq!(conversation.usage("u"), Some(&json!({ "total": 9 })));
        assert_eq!(conversation.usage("v"), None);
    }

    #[test]
    fn turn_range_excludes_other_turns() {
        let turns = |ids: &[Option<&str>]| {
            let messages = ids.iter().map(|id| json!({ "role": "user", "turnId": id })).collect();
            Conversation { messages, ..Conversation::default() }
        };
        let (a, b) = (Some("a"), Some("b"));
        for (ids, expect) in [
            (vec![a, b, b, Some("c")], 1..3),
            (vec![b, a, b], 2..3),
            (vec![None, b, None, b, None], 1..4),
            (vec![b, b], 0..2),
            (vec![a, None], 2..2),
            (vec![], 0..0),
        ] {
            let mut conversation = turns(&ids);
            assert_eq!(conversation.of_turn("b"), expect, "{ids:?}");
            conversation.leave_out(&["b", "x"]);
            let left = ids.iter().filter(|id| **id != b).count();
            assert_eq!((conversation.messages.len(), conversation.of_turn("b").len()), (left, 0), "{ids:?}");
        }
    }
}
