//! The timeline: joins a session's events to entries, in a window with fixed limits.
//!
//! Pure. Events come in journal order, each with its position, so an entry has the same place whoever reads it and however
//! often. Entries that are read again fit in where they were.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use crate::engine::without_shell;
use crate::protocol::Method;
use crate::sessions::entry::{BODY_BYTES_MAX, Entry, Key, Kind, Looking, Matcher, Stage};
pub(crate) use crate::sessions::entry::{Facts, Range, SessionEvent};
use crate::sessions::entry::{asked, body, describe_review, files_of_diff, in_words, thread_kind, title};
use crate::text::lasted;

/// Most entries in a window.
pub(crate) const ENTRIES_MAX: usize = 1_000;

/// Approximate size limit of a window, in bytes.
pub(crate) const WINDOW_BYTES_MAX: usize = 6 << 20;

/// The outcome of a denial that a person overruled.
const OVERRULED: &str = "overruled";

/// The outcome of a request whose server exited before there was an answer.
const ORPHANED: &str = " → orphaned: server_restarted";

/// A window of entries.
#[derive(Debug, Clone)]
pub(crate) struct Timeline {
    entries: VecDeque<Entry>,
    open: HashMap<String, Key>,
    bytes: usize,
    body_bytes_max: usize,
    range: Range,
    last: Option<Key>,
    /// New events are not taken: the window shows the past.
    pub is_held: bool,
    /// New entries since then.
    pub missed: u64,
    /// Whether there are entries before the first.
    pub has_older: bool,
    pub facts: Facts,
    /// The search among entries that leave the window.
    looking: Option<Looking>,
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline::of(Range::default(), BODY_BYTES_MAX)
    }
}

impl Timeline {
    /// A timeline for a range of entries, with a limit on each body.
    pub(crate) fn of(range: Range, body_bytes_max: usize) -> Timeline {
        Timeline {
            entries: VecDeque::new(),
            open: HashMap::new(),
            bytes: 0,
            body_bytes_max,
            range,
            last: None,
            is_held: false,
            missed: 0,
            has_older: false,
            facts: Facts::default(),
            looking: None,
        }
    }

    /// A timeline that also searches the entries that leave it.
    pub(crate) fn looking(mut self, matcher: Matcher) -> Timeline {
        self.looking = Some(Looking { matcher, first: None, last: None });
        self
    }

    /// Whether the search has found an entry that left the window.
    pub(crate) fn has_match(&self) -> bool {
        self.looking.as_ref().is_some_and(|looking| looking.first.is_some())
    }

    /// The first and the last match among all entries.
    pub(crate) fn into_matches(self) -> (Option<Key>, Option<Key>) {
        let Some(mut looking) = self.looking else { return (None, None) };
        self.entries.iter().for_each(|entry| looking.look(entry));
        (looking.first, looking.last)
    }

    /// Oldest first.
    pub(crate) fn entries(&self) -> &VecDeque<Entry> {
        &self.entries
    }

    pub(crate) fn into_entries(self) -> Vec<Entry> {
        self.entries.into()
    }

    /// Whether an entry is still open.
    pub(crate) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Takes no further entries from `key` on.
    pub(crate) fn end_before(&mut self, key: Key) {
        self.range.before = Some(key);
    }

    /// The index of an entry.
    ///
    /// # Errors
    ///
    /// The index where it would be inserted.
    pub(crate) fn index_of(&self, key: &Key) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| entry.key.cmp(key))
    }

    /// Inserts entries at the front. Excess entries at the other end are dropped, and new events are no longer taken.
    pub(crate) fn prepend(&mut self, older: Vec<Entry>, has_older: bool) {
        for entry in older.into_iter().rev() {
            if self.entries.front().is_none_or(|first| entry.key < first.key) {
                self.bytes += entry.bytes();
                self.entries.push_front(entry);
            }
        }
        self.has_older = has_older;
        while self.is_too_big() {
            let Some(entry) = self.entries.pop_back() else { break };
            self.forget(&entry);
            self.is_held = true;
        }
    }

    /// Appends entries. Excess entries at the other end are dropped.
    pub(crate) fn append(&mut self, newer: Vec<Entry>) {
        for entry in newer {
            if self.entries.back().is_none_or(|last| entry.key > last.key) {
                self.bytes += entry.bytes();
                self.entries.push_back(entry);
            }
        }
        self.shrink();
    }

    pub(crate) fn replace(&mut self, entries: Vec<Entry>, has_older: bool) {
        self.entries.clear();
        self.open.clear();
        self.bytes = 0;
        self.is_held = true;
        self.append(entries);
        self.has_older = has_older;
    }

    fn is_too_big(&self) -> bool {
        self.entries.len() > ENTRIES_MAX || (self.bytes > WINDOW_BYTES_MAX && self.entries.len() > 1)
    }

    fn shrink(&mut self) {
        while self.is_too_big() {
            let Some(entry) = self.entries.pop_front() else { break };
            self.forget(&entry);
            self.has_older = true;
        }
    }

    fn forget(&mut self, entry: &Entry) {
        if let Some(looking) = &mut self.looking {
            looking.look(entry);
        }
        self.bytes = self.bytes.saturating_sub(entry.bytes());
        if let Some(handle) = &entry.handle {
            self.open.remove(handle);
        }
    }

    pub(crate) fn take(&mut self, event: &SessionEvent) {
        let fields = &event.fields;
        let text = |member: &str| fields[member].as_str().unwrap_or_default();
        self.facts.take(fields);
        match text("type") {
            "message" => {
                let other = fields["content"].as_array().map(|parts| {
                    let parts: Vec<&str> =
                        parts.iter().filter_map(Value::as_str).filter(|part| *part != "text").collect();
                    format!("[{}]", parts.join(", "))
                });
                self.say(event, Kind::User, Stage::Done, &other.unwrap_or_default(), text("text"));
            }
            "assistant_delta" => self.grows(event, Kind::Assistant, text("delta")),
            "assistant_finalize" => self.ends_as(event, Kind::Assistant, text("text")),
            "reasoning_delta" => self.grows(event, Kind::Reasoning, text("delta")),
            "reasoning_finalize" => self.ends_as(event, Kind::Reasoning, text("text")),
            "plan" => self.plan(event),
            "diff" => self.diff(event, text("text")),
            "tool_begin" => self.tool(event, Stage::Open),
            "tool_delta" => self.tool_grows(event),
            "tool_end" => {
                let stage = match fields["status"].as_str() {
                    Some("declined" | "cancelled" | "interrupted") => Stage::Stopped,
                    _ if fields["is_error"] == true => Stage::Failed,
                    _ => Stage::Done,
                };
                self.tool(event, stage);
            }
            "auto_review" => self.review(event),
            "approval" if fields["kind"] == "auto_review" => self.kept_review(event),
            "approval" | "user_input" => self.request(event),
            "status" => self.status(event),
            "error" => {
                let again = if fields["will_retry"] == true { "it is tried again" } else { "" };
                let stage = if again.is_empty() { Stage::Failed } else { Stage::Done };
                self.say(event, Kind::Error, stage, text("message"), again);
            }
            "rpc_error" if Method::of(text("method")).is_some_and(Method::reads_pages) => {}
            "rpc_error" => {
                let title = format!("{} was refused: {}", text("method"), text("message"));
                self.say(event, Kind::Error, Stage::Failed, &title, "");
            }
            "run" => {
                self.run_ended(event.at_us);
                self.say(event, Kind::Run, Stage::Done, &format!("run {} begins", text("generation")), "");
            }
            "gap" => {
                let lines = match fields["lines"].as_u64() {
                    Some(0) | None => "something".to_owned(),
                    Some(1) => "1 line".to_owned(),
                    Some(lines) => format!("{lines} lines"),
                };
                self.say(event, Kind::Gap, Stage::Failed, &format!("{lines} missing here: {}", text("reason")), "");
            }
            _ => {}
        }
    }

    /// The key of a new entry for this record, if it is in our range.
    fn key(&mut self, event: &SessionEvent) -> Option<Key> {
        let mut key = Key::recorded(event.at.clone());
        if let Some(last) = self.last.as_ref().filter(|last| last.at == key.at) {
            key.nth = last.nth.saturating_add(1);
        }
        self.last = Some(key.clone());
        let Range { after, before } = &self.range;
        let is_ours =
            after.as_ref().is_none_or(|after| key > *after) && before.as_ref().is_none_or(|before| key < *before);
        // Entries that are read again exist already.
        let is_new = self.entries.back().is_none_or(|last| key > last.key);
        (is_ours && is_new).then_some(key)
    }

    fn add(&mut self, event: &SessionEvent, kind: Kind, stage: Stage, handle: Option<String>) -> Option<&mut Entry> {
        let key = self.key(event)?;
        if self.is_held {
            let is_piece = event.fields["type"].as_str().is_some_and(|name| name.ends_with("_delta"));
            self.missed += u64::from(!is_piece);
            return None;
        }
        let mut entry = Entry::new(key.clone(), kind, event.at_us);
        entry.stage = stage;
        entry.thread_id = event.fields["thread_id"].as_str().map(str::to_owned);
        entry.thread_kind = thread_kind(&event.fields);
        entry.handle = handle.clone();
        if let Some(handle) = handle {
            self.open.insert(handle, key);
        }
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        self.shrink();
        self.entries.back_mut()
    }

    fn say(&mut self, event: &SessionEvent, kind: Kind, stage: Stage, title: &str, body: &str) {
        let max = self.body_bytes_max;
        if let Some(entry) = self.add(event, kind, stage, None) {
            entry.title = title.to_owned();
            entry.set_body(body, max);
            let grown = title.len() + entry.body.len();
            self.bytes += grown;
        }
    }

    /// The name that links the events of one thing.
    fn handle(event: &SessionEvent, kind: Kind) -> String {
        let part = |member: &str| event.fields[member].as_str().unwrap_or_default();
        // A turn has one diff and one plan.
        if matches!(kind, Kind::Diff | Kind::Plan) {
            format!("{}:{}:{}", kind.name(), part("thread_id"), part("turn_id"))
        } else if kind == Kind::Request {
            format!("{}:{}", kind.name(), part("request_id"))
        } else if kind == Kind::Review {
            format!("{}:{}", kind.name(), part("review_id"))
        } else {
            format!("{}:{}", part("thread_id"), part("item_id"))
        }
    }

    /// Applies `does` to the open entry with this handle, or to a new one.
    fn with_open(&mut self, event: &SessionEvent, kind: Kind, handle: String, does: impl FnOnce(&mut Entry, usize)) {
        let max = self.body_bytes_max;
        let known = self.open.get(&handle).and_then(|key| self.index_of(key).ok());
        let entry = match known {
            Some(index) => self.entries.get_mut(index),
            None => self.add(event, kind, Stage::Open, Some(handle)),
        };
        let Some(entry) = entry else { return };
        let before = entry.bytes();
        does(entry, max);
        let (after, stage, handle) = (entry.bytes(), entry.stage, entry.handle.clone());
        if stage != Stage::Open {
            entry.handle = None;
            if let Some(handle) = handle {
                self.open.remove(&handle);
            }
        }
        self.bytes = (self.bytes + after).saturating_sub(before);
        self.shrink();
    }

    fn grows(&mut self, event: &SessionEvent, kind: Kind, delta: &str) {
        let handle = Timeline::handle(event, kind);
        self.with_open(event, kind, handle, |entry, max| entry.push(delta, max));
    }

    fn ends_as(&mut self, event: &SessionEvent, kind: Kind, text: &str) {
        let handle = Timeline::handle(event, kind);
        if text.is_empty() && !self.open.contains_key(&handle) {
            return;
        }
        self.with_open(event, kind, handle, |entry, max| {
            entry.stage = Stage::Done;
            if !text.is_empty() {
                entry.set_body(text, max);
            }
        });
    }

    fn plan(&mut self, event: &SessionEvent) {
        let fields = &event.fields;
        let Some(steps) = fields["steps"].as_array() else {
            return match fields["delta"].as_str() {
                Some(delta) => self.grows_written_plan(event, delta, Stage::Open),
                None => self.grows_written_plan(event, fields["text"].as_str().unwrap_or_default(), Stage::Done),
            };
        };
        let line = |step: &Value| {
            let mark = match step["status"].as_str() {
                Some("completed") => "[x]",
                Some("in_progress") => "[>]",
                Some(_) | None => "[ ]",
            };
            format!("{mark} {}", step["step"].as_str().unwrap_or_default())
        };
        let body = steps.iter().map(line).collect::<Vec<_>>().join("\n");
        let title = fields["explanation"].as_str().unwrap_or_default().to_owned();
        self.with_open(event, Kind::Plan, Timeline::handle(event, Kind::Plan), |entry, max| {
            entry.title = title;
            entry.set_body(&body, max);
        });
    }

    fn grows_written_plan(&mut self, event: &SessionEvent, text: &str, stage: Stage) {
        let handle = format!("written {}", Timeline::handle(event, Kind::Assistant));
        self.with_open(event, Kind::Plan, handle, |entry, max| {
            entry.stage = stage;
            match stage {
                Stage::Open => entry.push(text, max),
                Stage::Done | Stage::Failed | Stage::Stopped => entry.set_body(text, max),
            }
        });
    }

    fn diff(&mut self, event: &SessionEvent, text: &str) {
        let files = files_of_diff(text);
        self.with_open(event, Kind::Diff, Timeline::handle(event, Kind::Diff), |entry, max| {
            entry.title = if text.is_empty() { "no changes any more".to_owned() } else { files };
            entry.set_body(text, max);
        });
    }

    fn tool(&mut self, event: &SessionEvent, stage: Stage) {
        let fields = &event.fields;
        let kind = match fields["item_type"].as_str() {
            Some("commandExecution") => Kind::Command,
            Some("fileChange") => Kind::Change,
            Some(_) | None => Kind::Tool,
        };
        self.with_open(event, kind, Timeline::handle(event, kind), |entry, max| {
            entry.stage = stage;
            entry.title = title(kind, fields);
            if let Some(body) = body(kind, fields) {
                entry.set_body(&body, max);
            }
            entry.cut_bytes += fields["output_truncated_by_bytes"].as_u64().unwrap_or_default();
            entry.exit_code = fields["exit_code"].as_i64();
            // A declined action did not run, so it has no duration.
            if matches!(stage, Stage::Done | Stage::Failed) {
                let measured = fields["duration_ms"].as_u64().map(|ms| ms.saturating_mul(1_000));
                entry.took_us = measured.or_else(|| event.at_us.checked_sub(entry.at_us).filter(|us| *us > 0));
            }
        });
    }

    fn tool_grows(&mut self, event: &SessionEvent) {
        let fields = &event.fields;
        let handle = Timeline::handle(event, Kind::Tool);
        let kind = if fields["changes"].is_array() { Kind::Change } else { Kind::Command };
        self.with_open(event, kind, handle, |entry, max| {
            match (fields["delta"].as_str(), fields["stdin"].as_str()) {
                (Some(delta), _) => entry.push(delta, max),
                (None, Some(stdin)) => entry.push(stdin, max),
                (None, None) => {}
            }
            if fields["changes"].is_array() {
                entry.title = title(Kind::Change, fields);
                entry.set_body(&body(Kind::Change, fields).unwrap_or_default(), max);
            }
        });
    }

    fn request(&mut self, event: &SessionEvent) {
        let fields = &event.fields;
        let text = |member: &str| fields[member].as_str().unwrap_or_default();
        let is_pending = text("status") == "pending";
        self.with_open(event, Kind::Request, Timeline::handle(event, Kind::Request), |entry, max| {
            if is_pending {
                entry.title = asked(fields);
                entry.set_body(&body(Kind::Change, fields).unwrap_or_default(), max);
                return;
            }
            entry.stage = if text("status") == "orphaned" { Stage::Failed } else { Stage::Done };
            entry.took_us = event.at_us.checked_sub(entry.at_us).filter(|us| *us > 0);
            if entry.title.is_empty() {
                entry.title = text("kind").to_owned();
            }
            let by = match text("source") {
                "" => String::new(),
                source => format!(" ({source})"),
            };
            let word = [text("decision"), text("error_code"), text("status")].into_iter().find(|word| !word.is_empty());
            entry.title = format!("{} → {}{by}", entry.title, in_words(word.unwrap_or_default()));
        });
    }

    /// A review begins or ends, or a person overrules it.
    fn review(&mut self, event: &SessionEvent) {
        let fields = &event.fields;
        if fields["status"] == OVERRULED {
            return self.overruled(event, fields["subject"].as_str().unwrap_or_default());
        }
        self.with_open(event, Kind::Review, Timeline::handle(event, Kind::Review), |entry, max| {
            describe_review(entry, fields, max);
            if entry.stage != Stage::Open {
                entry.took_us = event.at_us.checked_sub(entry.at_us).filter(|us| *us > 0);
            }
        });
    }

    /// A review in a transcript, or that a person overruled it.
    fn kept_review(&mut self, event: &SessionEvent) {
        let mut fields = event.fields.clone();
        if fields["status"] == "pending" {
            return;
        }
        let mut review = fields["review"].take();
        if review.is_null() {
            return self.overruled(event, fields["text"].as_str().unwrap_or_default());
        }
        review["thread_id"] = fields["thread_id"].take();
        self.review(&SessionEvent { fields: review, ..event.clone() });
    }

    fn overruled(&mut self, event: &SessionEvent, subject: &str) {
        self.say(event, Kind::Review, Stage::Done, &format!("{} → {OVERRULED}", without_shell(subject)), "");
    }

    fn status(&mut self, event: &SessionEvent) {
        let fields = &event.fields;
        let text = |member: &str| fields[member].as_str().unwrap_or_default();
        let is_turn = text("subject") == "turn";
        let stage = match text("status") {
            "in_progress" if is_turn => return,
            "in_progress" => Stage::Open,
            "failed" => Stage::Failed,
            _ => Stage::Done,
        };
        if is_turn {
            self.turn_ended(fields, event.at_us);
        }
        let took = fields["duration_ms"].as_u64().map(|ms| format!(" in {}", lasted(ms * 1_000))).unwrap_or_default();
        let why = [text("error_message"), text("error_code")].into_iter().find(|why| !why.is_empty());
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        let title = format!("{} {}{took}{why}", text("subject"), text("status").replace('_', " "));
        if is_turn {
            return self.say(event, Kind::Status, stage, &title, "");
        }
        let handle = format!("compaction:{}", text("thread_id"));
        self.with_open(event, Kind::Status, handle, |entry, _| {
            entry.stage = stage;
            entry.title = title;
        });
    }

    /// Closes the entries that belong to the turn as a whole.
    fn turn_ended(&mut self, fields: &Value, at_us: u64) {
        let part = |member: &str| fields[member].as_str().unwrap_or_default();
        for kind in [Kind::Diff, Kind::Plan] {
            self.close(&format!("{}:{}:{}", kind.name(), part("thread_id"), part("turn_id")), Stage::Done, at_us);
        }
    }

    /// Closes all entries that were open when the server ended.
    fn run_ended(&mut self, at_us: u64) {
        for (handle, key) in std::mem::take(&mut self.open) {
            // No record in the journal ends a request whose relay was killed; only the ledger knows.
            if let Some(entry) = self.index_of(&key).ok().and_then(|index| self.entries.get_mut(index))
                && entry.kind == Kind::Request
            {
                entry.title.push_str(ORPHANED);
                self.bytes += ORPHANED.len();
            }
            self.open.insert(handle.clone(), key);
            self.close(&handle, Stage::Failed, at_us);
        }
    }

    fn close(&mut self, handle: &str, stage: Stage, at_us: u64) {
        let Some(key) = self.open.remove(handle) else { return };
        if let Some(entry) = self.index_of(&key).ok().and_then(|index| self.entries.get_mut(index)) {
            entry.stage = stage;
            entry.handle = None;
            entry.took_us = at_us.checked_sub(entry.at_us).filter(|us| *us > 0);
        }
    }
}
