//! The timeline: joins a session's events to entries, in a window with fixed limits.
//!
//! Pure. Events come in journal order, each with its position, so an entry has the same place whoever reads it and however
//! often. Entries that are read again fit in where they were.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use crate::engine::without_shell;
use crate::history::{
    AUTO_REVIEW, ApprovalDocument, Content, EndDocument, EndFacts, Ended, FilterKind, FilterStatus, ItemDocument,
    OVERRULED, OwnFacts, Pending, PlanDocument, ReviewDocument, Said, UiContent, UiEvent, UiKind,
};
use crate::protocol::Method;
use crate::sessions::entry::{BODY_BYTES_MAX, Entry, Happening, Key, Kind, Looking, Matcher, Stage};
pub use crate::sessions::entry::{EntryFacts, Range, SessionEvent};
use crate::sessions::entry::{asked, body, changed, changes_listed, describe_review, files_of_diff, in_words, title};
use crate::text::lasted;

/// Most entries in a window.
pub const ENTRIES_MAX: usize = 1_000;

/// Approximate size limit of a window, in bytes.
pub const WINDOW_BYTES_MAX: usize = 6 << 20;

/// The outcome of a request whose server exited before there was an answer.
const ORPHANED: &str = " → orphaned: server_restarted";

/// A window of entries.
#[derive(Debug, Clone)]
pub struct Timeline {
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
    pub facts: EntryFacts,
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
    pub fn of(range: Range, body_bytes_max: usize) -> Timeline {
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
            facts: EntryFacts::default(),
            looking: None,
        }
    }

    /// A timeline that also searches the entries that leave it.
    pub fn looking(mut self, matcher: Matcher) -> Timeline {
        self.looking = Some(Looking { matcher, first: None, last: None });
        self
    }

    /// Whether the search has found an entry that left the window.
    pub fn has_match(&self) -> bool {
        self.looking.as_ref().is_some_and(|looking| looking.first.is_some())
    }

    /// The first and the last match among all entries.
    pub fn into_matches(self) -> (Option<Key>, Option<Key>) {
        let Some(mut looking) = self.looking else { return (None, None) };
        self.entries.iter().for_each(|entry| looking.look(entry));
        (looking.first, looking.last)
    }

    /// Oldest first.
    pub fn entries(&self) -> &VecDeque<Entry> {
        &self.entries
    }

    pub fn into_entries(self) -> Vec<Entry> {
        self.entries.into()
    }

    /// Whether an entry is still open.
    pub fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Takes no further entries from `key` on.
    pub fn end_before(&mut self, key: Key) {
        self.range.before = Some(key);
    }

    /// The index of an entry.
    ///
    /// # Errors
    ///
    /// The index where it would be inserted.
    pub fn index_of(&self, key: &Key) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| entry.key.cmp(key))
    }

    /// Inserts entries at the front. Excess entries at the other end are dropped, and new events are no longer taken.
    pub fn prepend(&mut self, older: Vec<Entry>, has_older: bool) {
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
    pub fn append(&mut self, newer: Vec<Entry>) {
        for entry in newer {
            if self.entries.back().is_none_or(|last| entry.key > last.key) {
                self.bytes += entry.bytes();
                self.entries.push_back(entry);
            }
        }
        self.shrink();
    }

    pub fn replace(&mut self, entries: Vec<Entry>, has_older: bool) {
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

    pub fn take(&mut self, event: &SessionEvent) {
        match &event.what {
            Happening::Ui(ui) => {
                self.facts.take(ui);
                self.tell(event, ui);
            }
            Happening::Run { generation } => {
                self.run_ended(event.at_us);
                self.say(event, Kind::Run, Stage::Done, &format!("run {generation} begins"), "");
            }
            Happening::Gap { lines, reason } => {
                let lines = match lines {
                    0 => "something".to_owned(),
                    1 => "1 line".to_owned(),
                    lines => format!("{lines} lines"),
                };
                self.say(event, Kind::Gap, Stage::Failed, &format!("{lines} missing here: {reason}"), "");
            }
        }
    }

    fn tell(&mut self, event: &SessionEvent, ui: &UiEvent) {
        match (ui.kind, &ui.detail) {
            (_, UiContent::Entry(content)) => self.entry(event, ui, content),
            (UiKind::AssistantDelta, UiContent::Delta(piece)) => self.grows(event, ui, Kind::Assistant, &piece.delta),
            (UiKind::ReasoningDelta, UiContent::Delta(piece)) => self.grows(event, ui, Kind::Reasoning, &piece.delta),
            (UiKind::Plan, UiContent::Delta(piece)) => self.written_plan(event, ui, &piece.delta, Stage::Open),
            (_, UiContent::Delta(piece)) => self.tool_grows(event, ui, Some(&piece.delta), None),
            (_, UiContent::Progress(progress)) => {
                let text = progress.delta.as_deref().or(progress.stdin.as_deref());
                let changes = progress.changes.as_ref().filter(|changes| changes.is_array());
                self.tool_grows(event, ui, text, changes);
            }
            (_, UiContent::Begun(item)) => self.tool(event, ui, item, Stage::Open),
            (_, UiContent::Review(review)) => self.review(event, review),
            (_, UiContent::Overruled(review)) => self.overruled(event, &review.subject),
            (_, UiContent::Pending(request)) => self.opened(event, request),
            (UiKind::RpcError, UiContent::Answer(answer)) => {
                let method = answer.method.as_deref().unwrap_or_default();
                if !Method::of(method).is_some_and(Method::reads_pages) {
                    let message = answer.message.as_ref().and_then(Value::as_str).unwrap_or_default();
                    let title = format!("{method} was refused: {message}");
                    self.say(event, Kind::Error, Stage::Failed, &title, "");
                }
            }
            (_, UiContent::Answer(_) | UiContent::Activity { .. }) => {}
        }
    }

    /// Takes what a transcript tells, too.
    fn entry(&mut self, event: &SessionEvent, ui: &UiEvent, content: &Content<'_>) {
        let text = |said: &Said<'_>| said.text.as_deref().unwrap_or_default().to_owned();
        match content {
            Content::User(said) => {
                let other = said.content.as_ref().map(|parts| {
                    let parts: Vec<&str> = parts.iter().map(|part| &**part).filter(|part| *part != "text").collect();
                    format!("[{}]", parts.join(", "))
                });
                self.say(event, Kind::User, Stage::Done, &other.unwrap_or_default(), &text(said));
            }
            Content::Assistant(said) => self.ends_as(event, ui, Kind::Assistant, &text(said)),
            Content::Reasoning(said) => self.ends_as(event, ui, Kind::Reasoning, &text(said)),
            Content::Plan(plan) => self.plan(event, ui, plan),
            Content::Diff(diff) => self.diff(event, ui, &diff.text),
            Content::Command(item) | Content::FileChange(item) | Content::Tool(item) => {
                let stage = match item.status.as_deref() {
                    Some("declined" | "cancelled" | "interrupted") => Stage::Stopped,
                    _ if item.is_error == Some(true) => Stage::Failed,
                    _ => Stage::Done,
                };
                self.tool(event, ui, item, stage);
            }
            Content::Approval(request) if request.kind == AUTO_REVIEW => match &request.review {
                Some(review) => self.review(event, review),
                None => self.overruled(event, request.text.as_deref().unwrap_or_default()),
            },
            Content::Approval(request) => self.closed(event, request),
            Content::Status(end) => self.status(event, ui, end.subject.unwrap_or(Ended::Turn), end),
            Content::Compaction => {
                self.status(event, ui, Ended::Compaction, &EndDocument::of_status("completed"));
            }
            Content::Error(error) => {
                let will_retry = error.will_retry == Some(true);
                let (stage, again) = if will_retry { (Stage::Done, "it is tried again") } else { (Stage::Failed, "") };
                self.say(event, Kind::Error, stage, error.text(), again);
            }
            Content::Usage(_) | Content::Other(_) => {}
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
            self.missed += u64::from(!event.ui().is_some_and(|ui| ui.kind.is_piece()));
            return None;
        }
        let mut entry = Entry::new(key.clone(), kind, event.at_us);
        entry.stage = stage;
        entry.thread_id = event.ui().and_then(|ui| ui.thread_id.clone());
        entry.thread_kind = event.ui().and_then(|ui| ui.thread_kind).unwrap_or_default();
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
    fn handle(ui: &UiEvent, kind: Kind) -> String {
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        // A turn has one diff and one plan.
        if matches!(kind, Kind::Diff | Kind::Plan) {
            format!("{}:{}:{}", kind.name(), part(&ui.thread_id), part(&ui.turn_id))
        } else {
            format!("{}:{}", part(&ui.thread_id), part(&ui.item_id))
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

    fn grows(&mut self, event: &SessionEvent, ui: &UiEvent, kind: Kind, delta: &str) {
        let handle = Timeline::handle(ui, kind);
        self.with_open(event, kind, handle, |entry, max| entry.push(delta, max));
    }

    fn ends_as(&mut self, event: &SessionEvent, ui: &UiEvent, kind: Kind, text: &str) {
        let handle = Timeline::handle(ui, kind);
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

    fn plan(&mut self, event: &SessionEvent, ui: &UiEvent, plan: &PlanDocument) {
        let Some(body) = plan.steps_in_words() else {
            return self.written_plan(event, ui, plan.text.as_deref().unwrap_or_default(), Stage::Done);
        };
        self.with_open(event, Kind::Plan, Timeline::handle(ui, Kind::Plan), |entry, max| {
            entry.title = plan.explanation.clone().unwrap_or_default();
            entry.set_body(&body, max);
        });
    }

    fn written_plan(&mut self, event: &SessionEvent, ui: &UiEvent, text: &str, stage: Stage) {
        let handle = format!("written {}", Timeline::handle(ui, Kind::Assistant));
        self.with_open(event, Kind::Plan, handle, |entry, max| {
            entry.stage = stage;
            match stage {
                Stage::Open => entry.push(text, max),
                Stage::Done | Stage::Failed | Stage::Stopped => entry.set_body(text, max),
            }
        });
    }

    fn diff(&mut self, event: &SessionEvent, ui: &UiEvent, text: &str) {
        let files = files_of_diff(text);
        self.with_open(event, Kind::Diff, Timeline::handle(ui, Kind::Diff), |entry, max| {
            entry.title = if text.is_empty() { "no changes any more".to_owned() } else { files };
            entry.set_body(text, max);
        });
    }

    fn tool(&mut self, event: &SessionEvent, ui: &UiEvent, item: &ItemDocument, stage: Stage) {
        let kind = match &*item.item_type {
            "commandExecution" => Kind::Command,
            "fileChange" => Kind::Change,
            _ => Kind::Tool,
        };
        self.with_open(event, kind, Timeline::handle(ui, kind), |entry, max| {
            entry.stage = stage;
            entry.facts.end = EndFacts::of_item(item);
            entry.title = title(kind, item);
            if let Some(body) = body(kind, item) {
                entry.set_body(&body, max);
            }
            entry.cut_bytes += item.output_truncated_by_bytes.unwrap_or_default();
            entry.exit_code = item.exit_code();
            // A declined action did not run, so it has no duration.
            if matches!(stage, Stage::Done | Stage::Failed) {
                let measured = item.duration_ms().map(|ms| ms.saturating_mul(1_000));
                entry.took_us = measured.or_else(|| entry.lasted_us(event.at_us));
            }
        });
    }

    /// A piece of output, or the changes so far.
    fn tool_grows(&mut self, event: &SessionEvent, ui: &UiEvent, text: Option<&str>, changes: Option<&Value>) {
        let kind = if changes.is_some() { Kind::Change } else { Kind::Command };
        self.with_open(event, kind, Timeline::handle(ui, Kind::Tool), |entry, max| {
            entry.push(text.unwrap_or_default(), max);
            if changes.is_some() {
                entry.title = changed(changes);
                entry.set_body(&changes_listed(changes).unwrap_or_default(), max);
            }
        });
    }

    fn request(&mut self, event: &SessionEvent, request_id: Option<&str>, does: impl FnOnce(&mut Entry, usize)) {
        let handle = format!("{}:{}", Kind::Request.name(), request_id.unwrap_or_default());
        self.with_open(event, Kind::Request, handle, does);
    }

    fn opened(&mut self, event: &SessionEvent, request: &Pending) {
        self.request(event, request.request_id.as_deref(), |entry, max| {
            entry.title = asked(request);
            entry.facts.kinds.extend(request.kind.map(FilterKind::from));
            entry.facts.end = EndFacts::of(Some(FilterStatus::Pending), None, None);
            entry.facts.request_id.clone_from(&request.request_id);
            entry.set_body(&changes_listed(request.changes.as_ref()).unwrap_or_default(), max);
        });
    }

    fn closed(&mut self, event: &SessionEvent, request: &ApprovalDocument<'_>) {
        self.request(event, request.request_id.as_deref(), |entry, _| {
            entry.stage = if request.status.as_deref() == Some("orphaned") { Stage::Failed } else { Stage::Done };
            entry.took_us = entry.lasted_us(event.at_us);
            *entry.facts = OwnFacts::of_request(request);
            if entry.title.is_empty() {
                entry.title = request.kind.to_string();
            }
            let by = request.source.as_ref().map(|source| format!(" ({source})")).unwrap_or_default();
            let word = [&request.decision, &request.error_code, &request.status].into_iter().flatten().next();
            let word = word.map(|word| in_words(word)).unwrap_or_default();
            entry.title = format!("{} → {word}{by}", entry.title);
        });
    }

    /// A review begins or ends.
    fn review(&mut self, event: &SessionEvent, review: &ReviewDocument) {
        let handle = format!("{}:{}", Kind::Review.name(), review.review_id);
        self.with_open(event, Kind::Review, handle, |entry, max| {
            describe_review(entry, review, max);
            if entry.stage != Stage::Open {
                entry.took_us = entry.lasted_us(event.at_us);
            }
        });
    }

    fn overruled(&mut self, event: &SessionEvent, subject: &str) {
        self.say(event, Kind::Review, Stage::Done, &format!("{} → {OVERRULED}", without_shell(subject)), "");
    }

    fn status(&mut self, event: &SessionEvent, ui: &UiEvent, subject: Ended, end: &EndDocument) {
        let stage = match (&*end.status, subject) {
            ("in_progress", Ended::Turn) => return,
            ("in_progress", Ended::Compaction) => Stage::Open,
            ("failed", _) => Stage::Failed,
            _ => Stage::Done,
        };
        let took = end.duration_ms().map(|ms| format!(" in {}", lasted(ms * 1_000))).unwrap_or_default();
        let why = end.why().map(|why| format!(": {why}")).unwrap_or_default();
        let title = format!("{subject} {}{took}{why}", end.status.replace('_', " "));
        if subject == Ended::Turn {
            self.turn_ended(ui, event.at_us);
            return self.say(event, Kind::Status, stage, &title, "");
        }
        let handle = format!("compaction:{}", ui.thread_id.as_deref().unwrap_or_default());
        self.with_open(event, Kind::Status, handle, |entry, _| {
            entry.stage = stage;
            entry.title = title;
        });
    }

    /// Closes the entries that belong to the turn as a whole.
    fn turn_ended(&mut self, ui: &UiEvent, at_us: u64) {
        for kind in [Kind::Diff, Kind::Plan] {
            self.close(&Timeline::handle(ui, kind), Stage::Done, at_us);
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
            entry.took_us = entry.lasted_us(at_us);
        }
    }
}
