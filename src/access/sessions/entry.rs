//! An entry of the timeline: one message, action or request, which may combine many events. Its texts come from `mode=ui`
//! events, which also tell facts about threads.
//!
//! Pure. The texts are untrusted; drawing escapes them.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::engine::{Subject, permissions_in_words, without_shell, without_system_shell};
use crate::history::{
    self, Content, Filter, FilterKind, ItemDocument, KnownFacts, Pending, ReviewDocument, ReviewStatus, Thing,
    UiContent, UiEvent, action_in_words,
};
use crate::journal::Position;
use crate::protocol::change::{FileChange, Form};
use crate::protocol::{Method, Showing, ThreadKind};
use crate::requests::view::{answer_in_words, files};
use crate::sessions::diff::{Diff, listed};
use crate::text::markdown::is_in_code;

/// Longest body of an entry in the window, in bytes. If someone opens a longer one, the journal is read again.
pub const BODY_BYTES_MAX: usize = 16 << 10;

/// The identity of an entry, which also orders entries: the position where it begins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub at: Spot,
    /// Number among the entries that begin at the same position.
    pub nth: u16,
}

/// A position in the recording.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spot {
    /// Older than the journal: the transcript line with this number.
    Kept(u64),
    /// A record of the journal.
    Recorded(Position),
}

impl Key {
    /// The first entry that begins at a record.
    pub fn recorded(at: Position) -> Key {
        Key { at: Spot::Recorded(at), nth: 0 }
    }

    /// The boundary between transcripts and journal, whatever the journal's first record is.
    pub const JOURNAL_BEGINS: Key = Key { at: Spot::Kept(u64::MAX), nth: 0 };

    /// Before every transcript line.
    pub const START: Key = Key { at: Spot::Kept(0), nth: 0 };

    /// The key of the next entry, if it begins at the same record.
    #[must_use]
    pub fn behind(&self) -> Key {
        Key { at: self.at.clone(), nth: self.nth.saturating_add(1) }
    }
}

/// Declares the kinds of entries, each with its label on the screen. The page has the same names.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $label:literal,)*) => {
        /// The kind of an entry.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// All kinds, in order.
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];

            /// The label on the screen.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $label,)* }
            }
        }
    };
}

kinds! {
    User = "you",
    /// A message of the model.
    Assistant = "codex",
    /// The model's reasoning.
    Reasoning = "thinks",
    /// The model's plan.
    Plan = "plan",
    Command = "runs",
    Change = "edits",
    /// The combined changes of a turn.
    Diff = "diff",
    Tool = "tool",
    Request = "asks",
    /// Codex's own reviewer decides on an action.
    Review = "review",
    /// A turn or a compaction has ended.
    Status = "turn",
    Error = "error",
    /// A gap in the recording.
    Gap = "gap",
    /// The start of a run of the server.
    Run = "server",
}

impl Kind {
    /// The kind for a filter; the diff of a turn has none, because it repeats the changes.
    fn for_filter(self) -> Option<FilterKind> {
        match self {
            Kind::User | Kind::Assistant | Kind::Plan => Some(FilterKind::Message),
            Kind::Command | Kind::Tool => Some(FilterKind::Command),
            Kind::Change => Some(FilterKind::Diff),
            Kind::Request | Kind::Review => Some(FilterKind::Request),
            Kind::Reasoning | Kind::Diff | Kind::Status | Kind::Error | Kind::Gap | Kind::Run => None,
        }
    }

    /// The part of a long text to keep: the end of output, and the end of a message in progress.
    pub fn keeps(self, stage: Stage) -> Keeps {
        let is_output = matches!(self, Kind::Command | Kind::Tool);
        let is_being_written = stage == Stage::Open && matches!(self, Kind::Assistant | Kind::Reasoning);
        if is_output || is_being_written { Keeps::End } else { Keeps::Start }
    }
}

/// The part of a long text that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    Start,
    End,
}

/// Progress of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Further events may follow.
    Open,
    Done,
    Failed,
    /// Someone declined it before it ran, or stopped it.
    Stopped,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    pub kind: Kind,
    pub stage: Stage,
    /// Start, in microseconds since the Unix epoch.
    pub at_us: u64,
    /// Duration in microseconds, once known.
    pub took_us: Option<u64>,
    /// Exit status of a command.
    pub exit_code: Option<i64>,
    pub thread_id: Option<String>,
    /// What its thread is for.
    pub thread_kind: ThreadKind,
    /// One line: the command, the files, or the subject of a request.
    pub title: String,
    /// The text below the title.
    pub body: String,
    /// Bytes of the body that were cut off.
    pub cut_bytes: u64,
    /// The name by which later events find the open entry.
    pub handle: Option<String>,
    /// The review that has denied the action.
    pub denial: Option<String>,
    /// Its facts for filters.
    pub facts: Box<history::OwnFacts>,
}

impl Entry {
    /// A new entry with only a kind and a time.
    pub fn new(key: Key, kind: Kind, at_us: u64) -> Entry {
        Entry {
            key,
            kind,
            stage: Stage::Open,
            at_us,
            took_us: None,
            exit_code: None,
            thread_id: None,
            thread_kind: ThreadKind::User,
            title: String::new(),
            body: String::new(),
            cut_bytes: 0,
            handle: None,
            denial: None,
            facts: Box::new(history::OwnFacts { kinds: kind.for_filter().into_iter().collect(), ..Default::default() }),
        }
    }

    /// The label on the screen. Only a person is called `you`.
    pub fn label(&self) -> &'static str {
        if self.kind == Kind::User { self.thread_kind.speaker() } else { self.kind.name() }
    }

    /// Approximate memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.title.len() + self.body.len() + 256
    }

    /// Appends to the body, within the limit.
    pub fn push(&mut self, text: &str, body_bytes_max: usize) {
        match self.kind.keeps(self.stage) {
            Keeps::Start => {
                let room = body_bytes_max.saturating_sub(self.body.len());
                let kept = if self.cut_bytes > 0 { "" } else { &text[..text.floor_char_boundary(room)] };
                self.body.push_str(kept);
                self.cut_bytes += (text.len() - kept.len()) as u64;
            }
            Keeps::End => {
                self.body.push_str(text);
                // Cuts only when the body is twice too long, so that each byte moves about once.
                if self.body.len() > 2 * body_bytes_max {
                    self.cut(body_bytes_max);
                }
            }
        }
    }

    pub fn set_body(&mut self, text: &str, body_bytes_max: usize) {
        self.body.clear();
        self.cut_bytes = 0;
        self.push(text, body_bytes_max);
        self.cut(body_bytes_max);
    }

    fn cut(&mut self, body_bytes_max: usize) {
        if self.body.len() > body_bytes_max {
            let from = self.body.ceil_char_boundary(self.body.len() - body_bytes_max);
            // Text inside a code block stays code: the block's first line is repeated.
            let is_prose = matches!(self.kind, Kind::Assistant | Kind::Reasoning);
            let fence = if is_prose && is_in_code(&self.body[..from]) { "```\n" } else { "" };
            self.body.replace_range(..from, fence);
            self.body.shrink_to_fit();
            self.cut_bytes += from as u64;
        }
    }

    /// How long it has lasted at this time, in microseconds; `None` if no time has passed.
    pub fn lasted_us(&self, at_us: u64) -> Option<u64> {
        at_us.checked_sub(self.at_us).filter(|us| *us > 0)
    }

    /// Whether title or body contains a text, which must be lower case.
    pub fn has(&self, text: &str) -> bool {
        self.title.to_lowercase().contains(text) || self.body.to_lowercase().contains(text)
    }

    /// The whole entry as text.
    pub fn whole(&self) -> String {
        match (self.title.is_empty(), self.body.is_empty()) {
            (false, false) => format!("{}\n{}", self.title, self.body),
            (false, true) => self.title.clone(),
            (true, _) => self.body.clone(),
        }
    }
}

/// Whether the entries of threads that no person speaks in are folded away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Folding {
    #[default]
    Folded,
    /// All are shown.
    Unfolded,
}

impl Folding {
    pub fn other(self) -> Folding {
        match self {
            Folding::Folded => Folding::Unfolded,
            Folding::Unfolded => Folding::Folded,
        }
    }

    /// Whether the entries of a thread of this kind are shown.
    pub fn shows(self, kind: ThreadKind) -> bool {
        self == Folding::Unfolded || kind.showing() == Showing::Whole
    }
}

/// A filter with the facts of the session.
#[derive(Debug, PartialEq, Eq)]
pub struct Sifter {
    pub filter: Filter,
    pub known: Arc<KnownFacts>,
}

impl Sifter {
    fn takes(&self, entry: &Entry) -> bool {
        let at_us = entry.at_us.saturating_add(entry.took_us.unwrap_or_default());
        let thing = Thing { entry: &entry.facts, thread_id: entry.thread_id.as_deref(), at_us, text: &entry.whole() };
        self.known.passes(&self.filter, &thing)
    }
}

/// Criteria of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matcher {
    /// Contains this text, given in lower case.
    pub text: Option<String>,
    /// The search of a person.
    pub sifter: Option<Arc<Sifter>>,
    pub kind: Option<Kind>,
    /// Only failed entries.
    pub failed: bool,
    /// Of this thread, or of no thread.
    pub thread_id: Option<String>,
    /// Of the threads that are not folded away; that with `thread_id` never is.
    pub folding: Folding,
}

impl Matcher {
    pub fn takes(&self, entry: &Entry) -> bool {
        let failed = entry.stage == Stage::Failed || entry.kind == Kind::Error;
        let thread_id = self.thread_id.as_deref();
        let is_here = thread_id.is_none_or(|wanted| entry.thread_id.as_deref().is_none_or(|other| other == wanted));
        let is_chosen = thread_id.is_some() && entry.thread_id.as_deref() == thread_id;
        is_here
            && (is_chosen || self.folding.shows(entry.thread_kind))
            && self.kind.is_none_or(|kind| entry.kind == kind)
            && (!self.failed || failed)
            && self.text.as_deref().is_none_or(|text| entry.has(text))
            && self.sifter.as_ref().is_none_or(|sifter| sifter.takes(entry))
    }
}

/// A search, and its matches among entries that have left the window.
#[derive(Debug, Clone)]
pub struct Looking {
    pub matcher: Matcher,
    pub first: Option<Key>,
    pub last: Option<Key>,
}

impl Looking {
    pub fn look(&mut self, entry: &Entry) {
        if self.matcher.takes(entry) {
            self.first.get_or_insert_with(|| entry.key.clone());
            self.last = Some(entry.key.clone());
        }
    }
}

/// An event with its position and time.
#[derive(Debug, Clone)]
pub struct SessionEvent {
    /// The record it came from.
    pub at: Position,
    /// In microseconds since the Unix epoch.
    pub at_us: u64,
    pub what: Happening,
}

/// What has happened.
#[derive(Debug, Clone)]
pub enum Happening {
    /// An event of `mode=ui`.
    Ui(Box<UiEvent>),
    /// A run of the server began.
    Run { generation: String },
    /// So many lines are missing; 0 if that is not known.
    Gap { lines: u64, reason: String },
}

impl SessionEvent {
    pub fn ui(&self) -> Option<&UiEvent> {
        if let Happening::Ui(event) = &self.what { Some(event) } else { None }
    }
}

/// Most threads with remembered facts.
const THREADS_MAX: usize = 64;

/// Longest remembered start of a message, in characters.
const SAID_CHARS_MAX: usize = 120;

/// Facts that are not entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntryFacts {
    /// By thread; the most recently active thread is last.
    threads: Vec<(String, ThreadFacts)>,
}

/// Facts about a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadFacts {
    /// The model it was started or resumed with.
    pub model: Option<String>,
    /// Context tokens of the last call, and the size of the context window.
    pub tokens: Option<(u64, Option<u64>)>,
    /// The start of the user's last message.
    pub said: Option<String>,
    /// What it is for.
    pub kind: ThreadKind,
}

/// The result of a call that opens a thread.
#[derive(Deserialize)]
struct Opened {
    model: Option<String>,
    thread: Option<OpenedThread>,
}

#[derive(Deserialize)]
struct OpenedThread {
    id: Option<String>,
}

impl EntryFacts {
    /// The facts of a thread, or of the most recently active one of a person.
    pub fn of(&self, thread_id: Option<&str>) -> Option<&ThreadFacts> {
        let is_it = |(id, facts): &&(String, ThreadFacts)| match thread_id {
            Some(wanted) => wanted == id,
            None => facts.kind.is_user(),
        };
        self.threads.iter().rev().find(is_it).map(|(_, facts)| facts)
    }

    /// Threads by their ids, the most recently active first.
    pub fn threads(&self) -> impl Iterator<Item = (&str, &ThreadFacts)> {
        let named = self.threads.iter().rev().filter(|(id, _)| !id.is_empty());
        named.map(|(id, facts)| (id.as_str(), facts))
    }

    /// Collects the facts in an event.
    pub fn take(&mut self, event: &UiEvent) {
        let (thread_id, kind) = (event.thread_id.as_deref(), event.thread_kind.unwrap_or_default());
        if let UiContent::Entry(content) = &event.detail {
            if let Content::Usage(usage) = &**content
                && let Some(total) = usage.total
            {
                self.thread(thread_id, kind).tokens = Some((total, usage.context_window));
            } else if let Content::User(said) = &**content {
                let text = said.text.as_deref().unwrap_or_default();
                self.thread(thread_id, kind).said = Some(text.chars().take(SAID_CHARS_MAX).collect());
            }
        } else if let UiContent::Answer(answer) = &event.detail
            && answer.method.as_deref().and_then(Method::of).is_some_and(Method::opens_thread)
        {
            let opened = answer.result.as_ref().and_then(|result| serde_json::from_str(result.get()).ok());
            if let Some(Opened { model: Some(model), thread }) = opened {
                let opened = thread.and_then(|thread| thread.id);
                self.thread(opened.as_deref().or(thread_id), kind).model = Some(model);
            }
        }
    }

    fn thread(&mut self, thread_id: Option<&str>, kind: ThreadKind) -> &mut ThreadFacts {
        let thread_id = thread_id.unwrap_or_default();
        let known = self.threads.iter().position(|(id, _)| id == thread_id);
        let entry = known.map_or_else(Default::default, |at| self.threads.remove(at));
        if self.threads.len() == THREADS_MAX {
            self.threads.remove(0);
        }
        self.threads.push((thread_id.to_owned(), ThreadFacts { kind, ..entry.1 }));
        &mut self.threads.last_mut().expect("BUG: it was just put there").1
    }
}

/// The range of entries that a timeline accepts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Range {
    /// Exclusive lower bound.
    pub after: Option<Key>,
    /// Exclusive upper bound.
    pub before: Option<Key>,
}

/// The subject of a request on one line.
pub fn asked(request: &Pending) -> String {
    let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let questions = || {
        let questions = request.questions.as_ref()?.as_array()?.iter();
        let texts = questions.filter_map(|question| question.get("question")?.as_str());
        Some(texts.collect::<Vec<_>>().join(" / "))
    };
    let what = match request.kind {
        Some(Subject::Command) => {
            text(&request.command).map(|command| format!("to run {}", without_system_shell(&command)))
        }
        Some(Subject::Diff) => Some(format!("to change {}", changed(request.changes.as_ref()))),
        Some(Subject::Permissions) => {
            let permissions = permissions_in_words(request.permissions.as_ref().unwrap_or(&Value::Null));
            Some(format!("for {}", permissions.join(", ")))
        }
        Some(Subject::Questions) => questions(),
        Some(Subject::Elicitation) | None => text(&request.message),
    };
    let reason = text(&request.reason).map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("{}{reason}", what.unwrap_or_default())
}

/// Fills in the entry of a review.
pub fn describe_review(entry: &mut Entry, review: &ReviewDocument, body_bytes_max: usize) {
    let subject = without_shell(&review.subject);
    entry.stage = match review.status {
        ReviewStatus::InProgress => Stage::Open,
        ReviewStatus::Approved => Stage::Done,
        ReviewStatus::Denied | ReviewStatus::Aborted => Stage::Stopped,
        ReviewStatus::TimedOut | ReviewStatus::Unknown | ReviewStatus::Newer(_) => Stage::Failed,
    };
    entry.title = match entry.stage {
        Stage::Open => subject,
        Stage::Done | Stage::Failed | Stage::Stopped => {
            format!("{subject} → {}", review.status.name().replace('_', " "))
        }
    };
    entry.denial = (review.status == ReviewStatus::Denied).then(|| review.review_id.clone());
    let risk = review.risk_level.as_ref().map(|risk| format!("{risk} risk"));
    let body = [risk, review.reason.clone()].into_iter().flatten().collect::<Vec<_>>().join(": ");
    entry.set_body(&body, body_bytes_max);
}

/// The changed file, or the number of files.
pub fn changed(changes: Option<&Value>) -> String {
    match &changes.map(FileChange::all).unwrap_or_default()[..] {
        [one] => one.path.unwrap_or_default().to_owned(),
        more => format!("{} files", more.len()),
    }
}

/// Changes as one text, of [`Form::Listed`]; `None` if there are none.
pub fn changes_listed(changes: Option<&Value>) -> Option<String> {
    let changes = listed(&files(changes?))?;
    Some(changes.strip_suffix('\n').unwrap_or(&changes).to_owned())
}

pub fn title(kind: Kind, item: &ItemDocument) -> String {
    match kind {
        Kind::Command => by_status("command", item, &without_shell(item.command.as_deref().unwrap_or_default())),
        Kind::Change => by_status("file_change", item, &changed(item.changes.as_ref())),
        Kind::User
        | Kind::Assistant
        | Kind::Reasoning
        | Kind::Plan
        | Kind::Diff
        | Kind::Tool
        | Kind::Request
        | Kind::Review
        | Kind::Status
        | Kind::Error
        | Kind::Gap
        | Kind::Run => {
            let name = item.name();
            let given = item.arguments.as_ref().or(item.details.as_ref());
            by_status("tool", item, &given.map_or(name.to_string(), |given| format!("{name} {given}")))
        }
    }
}

/// An action in words that fit its status.
fn by_status(kind: &str, item: &ItemDocument, action: &str) -> String {
    match item.status.as_deref() {
        Some(status @ ("declined" | "cancelled" | "interrupted")) => action_in_words(kind, status, action),
        Some(_) | None => action.to_owned(),
    }
}

/// The body; `None` keeps the previous one.
pub fn body(kind: Kind, item: &ItemDocument) -> Option<String> {
    let error = item.error().map(|error| format!("{error}\n"));
    if kind == Kind::Change {
        let changes = changes_listed(item.changes.as_ref())?;
        // No line of the error looks like the beginning of a file.
        let error = error.map(|error| error.lines().map(|line| format!(" {line}\n")).collect::<String>());
        return Some(error.unwrap_or_default() + &changes);
    }
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let [output, result] =
        [item.output.clone(), item.result.as_ref().map(text)].map(|text| text.as_deref().map(in_words));
    let parts = [output, error, result];
    parts.iter().any(Option::is_some).then(|| parts.into_iter().flatten().collect())
}

/// The answers to questions in words; any other text as it is.
pub fn in_words(text: &str) -> String {
    let answers =
        serde_json::from_str::<Value>(text).ok().filter(|value| value.get("answers").is_some_and(Value::is_object));
    answers.map_or_else(|| text.to_owned(), |answers| answer_in_words(&answers))
}

/// The changed file of a diff, or the number of files.
pub fn files_of_diff(text: &str) -> String {
    let diff = Diff::read(Form::Turn, text, "");
    match &diff.files[..] {
        [] => String::new(),
        [one] => one.path.clone(),
        _ => diff.summary(),
    }
}
