//! An entry of the timeline: one message, action or request, however many events it took.
//!
//! Pure: plain data. Its texts are as peers wrote them; drawing makes them safe for a terminal.

use super::markdown::is_in_code;
use crate::journal::Position;

/// Longest text of an entry in the window, in bytes. The journal is read again if someone opens a longer one.
pub(crate) const BODY_BYTES_MAX: usize = 16 << 10;

/// Where an entry begins, which is also its name and its place among the others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// What it begins with.
    pub at: Spot,
    /// Which of those that begin with it.
    pub nth: u16,
}

/// A place in what is on record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Spot {
    /// In front of all that the journal has: the line of the transcripts with this number.
    Kept(u64),
    /// A record of the journal.
    Recorded(Position),
}

impl Key {
    /// The first that begins with a record.
    #[must_use]
    pub(crate) fn recorded(at: Position) -> Key {
        Key { at: Spot::Recorded(at), nth: 0 }
    }

    /// Where the journal begins, whatever its first record is: behind all that is kept, in front of all that is recorded.
    pub(crate) const JOURNAL_BEGINS: Key = Key { at: Spot::Kept(u64::MAX), nth: 0 };

    /// In front of all that is kept.
    pub(crate) const START: Key = Key { at: Spot::Kept(0), nth: 0 };
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// What the user has said.
    User,
    /// What the model has said.
    Assistant,
    /// What it has thought.
    Reasoning,
    /// What it wants to do.
    Plan,
    /// A command.
    Command,
    /// A change of files.
    Change,
    /// What a turn has changed in all.
    Diff,
    /// Any other tool.
    Tool,
    /// A request for a human.
    Request,
    /// A turn or a compaction has ended.
    Status,
    /// Something went wrong.
    Error,
    /// Something is missing here.
    Gap,
    /// A run of the server begins.
    Run,
}

impl Kind {
    /// Its word on the screen.
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

    /// To what it belongs, so that events about the same thing find each other.
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

/// What an entry belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// An item.
    Item,
    /// A turn, of which there is one such entry.
    Turn,
    /// A request.
    Request,
}

/// The part of a text that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// The first of it.
    Start,
    /// The last of it.
    End,
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// More may come.
    Open,
    /// It is over.
    Done,
    /// Ended with a failure.
    Failed,
    /// It did not run, or not to its end, because someone declined or stopped it.
    Stopped,
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its place.
    pub key: Key,
    /// What it is.
    pub kind: Kind,
    /// How far it has come.
    pub stage: Stage,
    /// When it began, in microseconds since the Unix epoch.
    pub at_us: u64,
    /// How long it took, in microseconds, once that is known.
    pub took_us: Option<u64>,
    /// The status that a command has ended with.
    pub exit_code: Option<i64>,
    /// Its thread.
    pub thread_id: Option<String>,
    /// One line: the command, the files, what is asked.
    pub title: String,
    /// The rest.
    pub body: String,
    /// How much of the body is not here, in bytes.
    pub cut_bytes: u64,
    /// By what name it is found again while it is open.
    pub handle: Option<String>,
}

impl Entry {
    /// One that has just begun, of which nothing more is known.
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

    /// Bytes that it holds, about.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        self.title.len() + self.body.len() + 256
    }

    /// Appends to its body, within the bound.
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
                // Now and then, so that each byte is moved about once.
                if self.body.len() > 2 * body_bytes_max {
                    self.cut(body_bytes_max);
                }
            }
        }
    }

    /// Puts another body in the place of the one that it has.
    pub(crate) fn set_body(&mut self, text: &str, body_bytes_max: usize) {
        self.body.clear();
        self.cut_bytes = 0;
        self.push(text, body_bytes_max);
        self.cut(body_bytes_max);
    }

    fn cut(&mut self, body_bytes_max: usize) {
        if self.body.len() > body_bytes_max {
            let from = self.body.ceil_char_boundary(self.body.len() - body_bytes_max);
            // The rest of a code block stays one: its first line is written again.
            let is_prose = matches!(self.kind, Kind::Assistant | Kind::Reasoning);
            let fence = if is_prose && is_in_code(&self.body[..from]) { "```\n" } else { "" };
            self.body.replace_range(..from, fence);
            self.body.shrink_to_fit();
            self.cut_bytes += from as u64;
        }
    }

    /// Whether it has a text in it, whose letters are small.
    #[must_use]
    pub(crate) fn has(&self, text: &str) -> bool {
        self.title.to_lowercase().contains(text) || self.body.to_lowercase().contains(text)
    }

    /// All of it as text.
    #[must_use]
    pub(crate) fn whole(&self) -> String {
        match (self.title.is_empty(), self.body.is_empty()) {
            (false, false) => format!("{}\n{}", self.title, self.body),
            (false, true) => self.title.clone(),
            (true, _) => self.body.clone(),
        }
    }
}

/// Which entries somebody looks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Matcher {
    /// With this text, in small letters.
    pub text: Option<String>,
    /// Of this kind.
    pub kind: Option<Kind>,
    /// Only those that have failed.
    pub failed: bool,
    /// Of this thread, or of none.
    pub thread_id: Option<String>,
}

impl Matcher {
    /// Whether an entry is meant.
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

/// A search, and what it has found in entries that are not held any more.
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
