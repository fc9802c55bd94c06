//! What the terminal UI knows, everything that can happen to it, and what it can want done.
//!
//! Pure: plain data. [`super::update`] changes it, [`super::view`] shows it.

use std::collections::HashMap;

use crossterm::event::KeyEvent;
use ratatui::layout::Size;
use serde_json::Value;

use super::ask::{Ask, Choice, Step};
use super::entry::{Entry, Key, Kind, Matcher};
use super::keys::{Letters, Place};
use super::text::Field;
use super::timeline::{Heard, Timeline};
use crate::control::SessionDocument;
use crate::history::Activity;

/// How long a request has to stand on the screen before a key answers it, in microseconds: a key that was meant for the one
/// before it does nothing.
pub const LOOK_FIRST_US: u64 = 500_000;

/// How long a note stands, in microseconds.
pub const NOTE_US: u64 = 12_000_000;

/// All that there is.
#[derive(Debug, Clone)]
pub struct Model {
    /// The time, in microseconds since the Unix epoch.
    pub now_us: u64,
    /// The screen.
    pub size: Size,
    /// What it can show.
    pub colours: Colours,
    /// The sessions.
    pub list: List,
    /// The one that is shown.
    pub session: Option<Box<Session>>,
    /// Where the help is scrolled to, while it is shown.
    pub help: Option<usize>,
    /// What was just learned.
    pub note: Option<Note>,
    /// What was typed and not sent, by session.
    pub drafts: HashMap<String, Field>,
    /// How often a session was attached to: what belongs to an earlier time is known by it.
    pub attachments: u64,
}

/// What a screen can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    /// Colours.
    Some,
    /// None, by `NO_COLOR` or because it has none.
    None,
}

/// Something to be told for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// It.
    pub text: String,
    /// Whether it is bad.
    pub tone: Tone,
    /// Until when.
    pub until_us: u64,
}

/// How a note is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// As it is.
    Plain,
    /// Something went wrong.
    Bad,
}

/// The list of sessions.
#[derive(Debug, Clone, Default)]
pub struct List {
    /// They, as they are shown.
    pub rows: Vec<SessionRow>,
    /// The id of the one that is chosen.
    pub chosen: Option<String>,
    /// They have been looked for.
    pub is_known: bool,
}

/// A session in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// Its id.
    pub id: String,
    /// A relay runs in it.
    pub live: bool,
    /// What it does; `None` where it does not answer.
    pub state: Option<Activity>,
    /// Requests that wait.
    pub pending: u64,
    /// Where it runs.
    pub cwd: String,
    /// When it was last used, in microseconds since the Unix epoch.
    pub used_us: u64,
}

/// How a session can be reached.
#[derive(Debug, Clone, PartialEq)]
pub enum Link {
    /// It was not asked yet.
    New,
    /// Its relay answers.
    Up(Box<Live>),
    /// A relay runs and does not answer.
    Silent(String),
    /// No relay runs.
    Stopped,
}

/// A session whose relay answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    /// What the relay says.
    pub document: SessionDocument,
    /// Since when its state is what it is, in microseconds since the Unix epoch.
    pub since_us: Option<u64>,
}

/// Whose keys they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// What is typed is said to the model.
    Chat,
    /// A key answers a request.
    Approval,
    /// What is typed answers a question.
    Input,
}

impl Mode {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::Chat => "chat",
            Mode::Approval => "approval",
            Mode::Input => "input",
        }
    }
}

/// The part of the screen that takes the keys.
#[derive(Debug, Clone, PartialEq)]
pub enum Focus {
    /// That of the mode.
    Answer,
    /// The timeline.
    History,
    /// What is searched for.
    Search(Field),
    /// An entry in full.
    Reading(Reading),
    /// The threads, and which of them is chosen; the first row is all of them.
    Threads(usize),
}

/// An entry in full.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// It.
    pub entry: Entry,
    /// Lines above the screen.
    pub scroll: usize,
}

/// Answering a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Answering {
    /// The request.
    pub ask: Ask,
    /// Since when it is shown, in microseconds since the Unix epoch.
    pub since_us: u64,
    /// What became of it by somebody else's doing.
    pub ended: Option<String>,
    /// An answer is on its way.
    pub is_sent: bool,
    /// What is to be confirmed.
    pub sure: Option<Choice>,
    /// Why it is declined.
    pub reason: Option<Field>,
    /// Lines above what is shown of it.
    pub scroll: usize,
    /// The questions.
    pub steps: Vec<Step>,
    /// What was answered so far.
    pub answers: Vec<(String, String)>,
    /// The option that is chosen; behind the last one stands the text.
    pub chosen: usize,
    /// What is typed.
    pub text: Field,
    /// Enter was pressed where nothing is typed: once more means it.
    pub is_left_empty: bool,
}

impl Answering {
    /// The question that is asked now.
    #[must_use]
    pub fn step(&self) -> Option<&Step> {
        self.steps.get(self.answers.len())
    }

    /// Whether what is typed is text.
    #[must_use]
    pub fn types_text(&self) -> bool {
        self.step().is_some_and(|step| step.takes_text && self.chosen >= step.options.len())
    }
}

/// A session that is shown.
#[derive(Debug, Clone)]
pub struct Session {
    /// Its id.
    pub id: String,
    /// Which time it is that a session was attached to.
    pub attachment: u64,
    /// How often its timeline was begun anew.
    pub epoch: u64,
    /// How it can be reached.
    pub link: Link,
    /// What waits, oldest first.
    pub asks: Vec<Ask>,
    /// The timeline, once it was read.
    pub timeline: Option<Timeline>,
    /// The entry that is chosen; without one, the last.
    pub cursor: Option<Key>,
    /// The kind of entries that is shown.
    pub filter: Option<Kind>,
    /// The thread that is shown and spoken to. Without one: all, and that of the last turn.
    pub thread: Option<String>,
    /// What was searched for.
    pub searched: Option<Matcher>,
    /// What is read just now.
    pub reading: Option<Awaited>,
    /// What takes the keys.
    pub focus: Focus,
    /// The request that is being answered.
    pub answering: Option<Answering>,
    /// What is being typed.
    pub composer: Field,
    /// It is on its way.
    pub is_saying: bool,
}

/// What was asked of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// A page.
    Page,
    /// A match.
    Match,
}

impl Session {
    /// One that was just attached to.
    #[must_use]
    pub fn new(id: String, attachment: u64, composer: Field) -> Session {
        Session {
            id,
            attachment,
            epoch: 0,
            link: Link::New,
            asks: Vec::new(),
            timeline: None,
            cursor: None,
            filter: None,
            thread: None,
            searched: None,
            reading: None,
            focus: Focus::Answer,
            answering: None,
            composer,
            is_saying: false,
        }
    }

    /// Whose keys they are.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match &self.answering {
            None => Mode::Chat,
            Some(answering) if answering.ask.wants_input() => Mode::Input,
            Some(_) => Mode::Approval,
        }
    }

    /// Whether a human is waited for: nothing is said meanwhile, where one thread is spoken to, in that thread.
    #[must_use]
    pub fn is_gated(&self) -> bool {
        let is_here = |ask: &&Ask| match (&self.thread, ask.thread_id()) {
            (Some(thread), Some(other)) => thread == other,
            (Some(_) | None, _) => true,
        };
        self.asks.iter().filter(is_here).any(Ask::is_for_human)
    }
}

impl Model {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(size: Size, colours: Colours, now_us: u64) -> Model {
        Model {
            now_us,
            size,
            colours,
            list: List::default(),
            session: None,
            help: None,
            note: None,
            drafts: HashMap::new(),
            attachments: 0,
        }
    }

    /// Where a key is pressed, and whether letters are text there.
    #[must_use]
    pub fn place(&self) -> (Place, Letters) {
        let Some(session) = &self.session else { return (Place::Sessions, Letters::Keys) };
        match (&session.focus, &session.answering) {
            (Focus::History, _) => (Place::History, Letters::Keys),
            (Focus::Search(_), _) => (Place::Line, Letters::Typed),
            (Focus::Reading(_), _) => (Place::Reading, Letters::Keys),
            (Focus::Threads(_), _) => (Place::Threads, Letters::Keys),
            (Focus::Answer, None) => {
                // With nothing typed yet `?` is the key for help.
                (Place::Chat, if session.composer.text().is_empty() { Letters::Keys } else { Letters::Typed })
            }
            (Focus::Answer, Some(answering)) => match answering {
                Answering { sure: Some(_), .. } => (Place::Sure, Letters::Keys),
                Answering { reason: Some(_), .. } => (Place::Line, Letters::Typed),
                _ if answering.ask.wants_input() => {
                    (Place::Input, if answering.types_text() { Letters::Typed } else { Letters::Keys })
                }
                _ => (Place::Approval, Letters::Keys),
            },
        }
    }
}

/// Everything that can happen.
#[derive(Debug, Clone)]
pub enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// A text was pasted.
    Pasted(String),
    /// The screen has another size.
    Resized(Size),
    /// Time has passed.
    Ticked,
    /// We are to end, and by what.
    Ended(Ending),
    /// We are to stop for a while.
    Stopped,
    /// We go on.
    Continued,
    /// These are the sessions.
    Listed(Vec<SessionRow>),
    /// Something of the session that is attached to. What comes of an earlier time is dropped.
    Of(u64, News),
}

/// What happened in a session.
#[derive(Debug, Clone)]
pub enum News {
    /// How it can be reached now.
    Linked(Link),
    /// What waits, and the rows of what waits no more.
    Pending {
        /// It, oldest first.
        asks: Vec<Ask>,
        /// Rows with what became of them.
        ended: Vec<Value>,
    },
    /// Which time it is, and the very end of a long journal, until all that belongs to it was read.
    Glanced(u64, Box<Timeline>),
    /// The end of the journal, as it was when it was read.
    Restored {
        /// Which time it is.
        epoch: u64,
        /// It.
        timeline: Box<Timeline>,
    },
    /// What has happened since.
    Heard {
        /// Which time it is.
        epoch: u64,
        /// It.
        heard: Vec<Heard>,
    },
    /// The journal cannot be read.
    Unreadable(String),
    /// A page in front of the window.
    Older(Page),
    /// One behind it.
    Newer(Page),
    /// One around what was looked for, or nothing.
    Found(Option<(Key, Page)>),
    /// An entry in full.
    Opened(Option<Box<Entry>>),
    /// What became of an answer.
    Responded {
        /// To which request.
        request_id: String,
        /// The row, and whether somebody was first; or why not.
        result: Result<(Value, First), String>,
    },
    /// What became of something that was said.
    Said(Result<String, String>),
    /// What became of stopping a turn.
    Interrupted(Result<(), String>),
}

/// Whose answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// Ours.
    We,
    /// Somebody else's.
    Other,
}

/// Entries that were read again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// They, oldest first.
    pub entries: Vec<Entry>,
    /// There is nothing beyond them.
    pub is_last: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Ends the program.
    Quit(Ending),
    /// Hands the terminal back, stops, and takes it again.
    Suspend,
    /// Takes the terminal again, which somebody else had.
    Retake,
    /// Looks at the sessions, and at no single one.
    List,
    /// Looks at a session, and reads its journal.
    Attach {
        /// Its id.
        id: String,
        /// Which time it is.
        attachment: u64,
    },
    /// Looks at its requests now.
    Look,
    /// Reads the journal from its end on.
    Follow {
        /// Which time it is.
        epoch: u64,
    },
    /// Reads what is in front of an entry.
    ReadOlder(Key),
    /// Reads what is behind it.
    ReadNewer(Key),
    /// Looks for an entry in front of this one, or behind it.
    Find {
        /// Which.
        matcher: Matcher,
        /// From where on.
        from: Key,
        /// In which direction.
        way: Way,
    },
    /// Reads an entry in full.
    Open(Key),
    /// Answers a request.
    Respond {
        /// Which.
        request_id: String,
        /// With what.
        body: Value,
    },
    /// Says something to the model.
    Say {
        /// What.
        text: String,
        /// In which thread; without one, in that of the last turn.
        thread_id: Option<String>,
    },
    /// Stops the turn that runs in this thread, or the last one.
    Interrupt(Option<String>),
    /// Hands a text to the terminal's clipboard.
    Copy(String),
}

/// Why the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Its user has had enough.
    Left,
    /// A signal of this number has come, or what stands for it: a terminal that is gone is a hang-up.
    Signal(i32),
}

/// A direction in the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To what was before.
    Back,
    /// To what came later.
    Forward,
}
