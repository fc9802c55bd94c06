//! An entry of the timeline: one message, action or request, which may combine many events.
//!
//! Pure: plain data. Its texts are untrusted; drawing escapes them.

use super::markdown::is_in_code;
use crate::journal::Position;

/// Longest body of an entry in the window, in bytes. If someone opens a longer one, the journal is read again.
pub(crate) const BODY_BYTES_MAX: usize = 16 << 10;

/// The identity of an entry, which also orders entries: the position where it begins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub at: Spot,
    /// Number among the entries that begin at the same position.
    pub nth: u16,
}

/// A position in the recording.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Spot {
    /// Older than the journal: the transcript line with this number.
    Kept(u64),
    /// A record of the journal.
    Recorded(Position),
}

impl Key {
    /// The first entry that begins at a record.
    #[must_use]
    pub(crate) fn recorded(at: Position) -> Key {
        Key { at: Spot::Recorded(at), nth: 0 }
    }

    /// The boundary between transcripts and journal, whatever the journal's first record is.
    pub(crate) const JOURNAL_BEGINS: Key = Key { at: Spot::Kept(u64::MAX), nth: 0 };

    /// Before every transcript line.
    pub(crate) const START: Key = Key { at: Spot::Kept(0), nth: 0 };
}

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// A message of the user.
    User,
    /// A message of the model.
    Assistant,
    /// The model's reasoning.
    Reasoning,
    /// The model's plan.
    Plan,
    Command,
    /// A file change.
    Change,
    /// The combined changes of a turn.
    Diff,
    Tool,
    /// A request for a person.
    Request,
    /// A turn or a compaction has ended.
    Status,
    Error,
    /// A gap in the recording.
    Gap,
    /// The start of a run of the server.
    Run,
}

impl Kind {
    /// The label on the screen.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::User => "you",
            Kind::Assistant => "codex",
            Kind::Reasoning => "thinks",
            Kind::Plan => "plan",
            Kind::Command => "runs",
            Kind::Change => "edits",
            Kind::Diff => "diff",
            Kind::Tool => "tool",
            Kind::Request => "asks",
            Kind::Status => "turn",
            Kind::Error => "error",
            Kind::Gap => "gap",
            Kind::Run => "server",
        }
    }

    /// The scope of the entry's id, by which later events find it.
    #[must_use]
    pub(crate) fn of(self) -> Of {
        match self {
            Kind::Diff | Kind::Plan => Of::Turn,
            Kind::Request => Of::Request,
            Kind::User
            | Kind::Assistant
            | Kind::Reasoning
            | Kind::Command
            | Kind::Change
            | Kind::Tool
            | Kind::Status
            | Kind::Error
            | Kind::Gap
            | Kind::Run => Of::Item,
        }
    }

    /// The part of a long text to keep: the end of output, and the end of a message in progress.
    #[must_use]
    pub(crate) fn keeps(self, stage: Stage) -> Keeps {
        match self {
            Kind::Command | Kind::Tool => Keeps::End,
            Kind::Assistant | Kind::Reasoning if stage == Stage::Open => Keeps::End,
            Kind::User
            | Kind::Assistant
            | Kind::Reasoning
            | Kind::Plan
            | Kind::Change
            | Kind::Diff
            | Kind::Request
            | Kind::Status
            | Kind::Error
            | Kind::Gap
            | Kind::Run => Keeps::Start,
        }
    }
}

/// The scope of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Item,
    /// A turn, which has one such entry.
    Turn,
    Request,
}

/// The part of a long text that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeps {
    Start,
    End,
}

/// Progress of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Further events may follow.
    Open,
    Done,
    Failed,
    /// Someone declined it before it ran, or stopped it.
    Stopped,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
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
    /// One line: the command, the files, or the subject of a request.
    pub title: String,
    /// The text below the title.
    pub body: String,
    /// Bytes of the body that were cut off.
    pub cut_bytes: u64,
    /// The name by which later events find the open entry.
    pub handle: Option<String>,
}

impl Entry {
    /// A new entry with only a kind and a time.
    #[must_use]
    pub(crate) fn new(key: Key, kind: Kind, at_us: u64) -> Entry {
        Entry {
            key,
            kind,
            stage: Stage::Open,
            at_us,
            took_us: None,
            exit_code: None,
            thread_id: None,
            title: String::new(),
            body: String::new(),
            cut_bytes: 0,
            handle: None,
        }
    }

    /// Approximate memory, in bytes.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        self.title.len() + self.body.len() + 256
    }

    /// Appends to the body, within the limit.
    pub(crate) fn push(&mut self, text: &str, body_bytes_max: usize) {
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

    /// Replaces the body.
    pub(crate) fn set_body(&mut self, text: &str, body_bytes_max: usize) {
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

    /// Whether title or body contains a text, which must be lower case.
    #[must_use]
    pub(crate) fn has(&self, text: &str) -> bool {
        self.title.to_lowercase().contains(text) || self.body.to_lowercase().contains(text)
    }

    /// The whole entry as text.
    #[must_use]
    pub(crate) fn whole(&self) -> String {
        match (self.title.is_empty(), self.body.is_empty()) {
            (false, false) => format!("{}\n{}", self.title, self.body),
            (false, true) => self.title.clone(),
            (true, _) => self.body.clone(),
        }
    }
}

/// Criteria of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Matcher {
    /// Contains this text, given in lower case.
    pub text: Option<String>,
    pub kind: Option<Kind>,
    /// Only failed entries.
    pub failed: bool,
    /// Of this thread, or of no thread.
    pub thread_id: Option<String>,
}

impl Matcher {
    /// Whether an entry matches.
    #[must_use]
    pub(crate) fn takes(&self, entry: &Entry) -> bool {
        let failed = entry.stage == Stage::Failed || entry.kind == Kind::Error;
        let thread_id = self.thread_id.as_deref();
        let is_here = thread_id.is_none_or(|wanted| entry.thread_id.as_deref().is_none_or(|other| other == wanted));
        is_here
            && self.kind.is_none_or(|kind| entry.kind == kind)
            && (!self.failed || failed)
            && self.text.as_deref().is_none_or(|text| entry.has(text))
    }
}

/// A search, and its matches among entries that have left the window.
#[derive(Debug, Clone)]
pub(super) struct Looking {
    pub(super) matcher: Matcher,
    pub(super) first: Option<Key>,
    pub(super) last: Option<Key>,
}

impl Looking {
    pub(super) fn look(&mut self, entry: &Entry) {
        if self.matcher.takes(entry) {
            self.first.get_or_insert_with(|| entry.key.clone());
            self.last = Some(entry.key.clone());
        }
    }
}
