//! The state of the terminal UI, its events and its commands.
//!
//! Pure: plain data. [`super::update`] changes it, [`mod@super::view`] draws it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crossterm::event::KeyEvent;
use ratatui::layout::{Position, Size};

use super::form::{Field, Form, Stand};
use super::key_times::Keys;
use super::keys::{KeyPlace, Letters};
use super::lists::Inbox;
use super::lists::{Destination, List};
use super::pointing::{Mouse, Pointing, Spot};
use super::searching::{Folders, Knowledge};
use crate::api::SessionDocument;
use crate::history::Activity;
use crate::requests::view::Choice;
use crate::sessions::ask::{Ask, Details};
use crate::sessions::diff::Diff;
use crate::sessions::entry::{Entry, Folding, Key, Kind, Matcher, ThreadFacts};
use crate::sessions::news::{Link, Live, News, Overruling, Read};
use crate::sessions::poller::Call;
use crate::sessions::rows::SessionRow;
use crate::sessions::timeline::Timeline;
use crate::text::doc::{At, Doc, Room};
use crate::text::{Zone, parsed_us};

/// Lifetime of a note, in microseconds.
pub(crate) const NOTE_US: u64 = 12_000_000;

/// The whole state.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    /// The time, in microseconds since the Unix epoch.
    pub now_us: u64,
    pub size: Size,
    /// Whether the screen shows colours.
    pub colours: Colours,
    /// The time zone of all visible times.
    pub zone: Zone,
    /// The folders that a search can refer to.
    pub folders: Folders,
    pub list: List,
    pub session: Option<Box<Session>>,
    /// The requests of all sessions, while they are open.
    pub inbox: Option<Inbox>,
    /// The scroll position of the help, while it is open.
    pub help: Option<usize>,
    pub note: Option<Note>,
    /// Unsent messages, by the place that they are for.
    pub drafts: HashMap<Destination, Field>,
    /// Answers that were begun and not sent, by session and request.
    pub begun: HashMap<(String, String), Answering>,
    /// Requests that the bell has rung for, by session and request.
    pub rung: HashSet<(String, String)>,
    /// The keys so far.
    pub keys: Keys,
    /// The receiver of clicks and the wheel.
    pub mouse: Mouse,
    /// Places on the screen that the mouse can point at.
    pub spots: Vec<Spot>,
    /// The part of the screen that scrolls, as it was last laid out.
    pub room: Room,
    /// Number of attachments so far, by which news of an earlier one are recognized.
    pub attachments: u64,
}

/// Whether the screen shows colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colours {
    Some,
    /// No colours: `NO_COLOR` is set, or the terminal has none.
    None,
}

/// A temporary message to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub text: String,
    pub tone: Tone,
    pub about: About,
    /// When it disappears.
    pub until_us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    /// Something went wrong.
    Bad,
}

/// The cause of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    /// About the last key; the next key removes it.
    Key,
    /// About an event; it stays for its lifetime.
    News,
}

/// The meaning of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Typed text is sent to the model.
    Chat,
    /// One key answers a request.
    Approval,
    /// Typed text answers a question.
    Input,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Chat => "chat",
            Mode::Approval => "approval",
            Mode::Input => "question",
        }
    }
}

/// The part of the screen that receives keys.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Focus {
    /// The composer or the request.
    Answer,
    History,
    Search(Field),
    /// A document in full.
    Reading(Box<Reading>),
    /// The list of threads, with the selected row; the first row stands for all threads.
    Threads(usize),
}

/// A document in full.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reading {
    pub subject: DocumentSubject,
    pub text: Text,
    /// The scroll position.
    pub at: At,
    /// The selected file, while the list of files receives keys.
    pub files: Option<usize>,
    /// Whether Esc leads back to the timeline.
    pub from_history: bool,
    /// The time of the last read of an entry, in microseconds since the Unix epoch.
    pub read_us: u64,
    /// Whether the end stays visible while the text grows.
    pub follows: bool,
}

/// The subject of a document in full.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DocumentSubject {
    Entry(Box<Entry>),
    /// The diff of the request that is being answered, by its id.
    Request(String),
}

/// The text of a document in full.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Text {
    /// Lines.
    Lines(Arc<Doc>),
    Diff(Arc<Diff>),
}

impl Reading {
    pub(crate) fn doc(&self) -> &Doc {
        match &self.text {
            Text::Lines(doc) => doc,
            Text::Diff(diff) => &diff.doc,
        }
    }

    pub(crate) fn diff(&self) -> Option<&Diff> {
        match &self.text {
            Text::Lines(_) => None,
            Text::Diff(diff) => Some(diff),
        }
    }
}

/// A request on the screen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answering {
    pub ask: Arc<Ask>,
    pub details: Arc<Details>,
    /// How it ended, if someone else answered it.
    pub ended: Option<String>,
    /// Whether our answer is on its way.
    pub is_sent: bool,
    /// An answer that needs a confirmation.
    pub sure: Option<Choice>,
    /// The reason for declining, while it is typed.
    pub reason: Option<Field>,
    /// Scroll position of the details.
    pub at: At,
    pub form: Form,
}

/// A thread that is shown alone, although it is folded away otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unfolded {
    /// The thread that was chosen before.
    pub back_to: Option<String>,
    /// The entry that was selected there.
    pub at: Key,
}

#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub id: String,
    /// Its folder, once known.
    pub cwd: String,
    /// The number of this attachment.
    pub attachment: u64,
    /// Number of times its timeline was restarted.
    pub epoch: u64,
    pub link: Link,
    /// Its pending requests, oldest first.
    pub asks: Vec<Arc<Ask>>,
    /// The request that it was attached for.
    pub wanted: Option<String>,
    /// Whether its requests were read since it was attached.
    pub has_looked: bool,
    /// The timeline, once it was read.
    pub timeline: Option<Timeline>,
    /// The selected entry; `None` follows the newest.
    pub cursor: Option<Key>,
    /// The kind of entries that the filter shows.
    pub filter: Option<Kind>,
    /// The chosen thread. Without one, all threads are visible, and messages go to the thread of the last turn.
    pub thread: Option<String>,
    /// Whether threads that no person speaks in are folded away.
    pub folding: Folding,
    /// Set while `thread` is one of those.
    pub unfolded: Option<Unfolded>,
    /// A denial that is overruled once the user has confirmed it.
    pub overruling: Option<Overruling>,
    /// Its facts, for searches.
    pub knowledge: Knowledge,
    /// The last search.
    pub searched: Option<Matcher>,
    /// The note if the search in progress finds nothing.
    pub missing: Option<String>,
    /// The reason of the read in progress.
    pub reading: Option<AwaitedRead>,
    /// The part of the screen that receives keys.
    pub focus: Focus,
    /// The request on the screen.
    pub answering: Option<Answering>,
    pub composer: Field,
    /// The composer's text when the session was attached.
    pub draft: Field,
    /// Whether a message is on its way.
    pub is_saying: bool,
}

/// The purpose of a read of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AwaitedRead {
    Page,
    Match,
}

impl Session {
    /// A session that was just attached.
    pub(crate) fn new(id: String, attachment: u64, composer: Field) -> Session {
        Session {
            id,
            cwd: String::new(),
            attachment,
            epoch: 0,
            link: Link::New,
            asks: Vec::new(),
            wanted: None,
            has_looked: false,
            timeline: None,
            cursor: None,
            filter: None,
            thread: None,
            folding: Folding::default(),
            unfolded: None,
            overruling: None,
            knowledge: Knowledge::default(),
            searched: None,
            missing: None,
            reading: None,
            focus: Focus::Answer,
            answering: None,
            draft: composer.clone(),
            composer,
            is_saying: false,
        }
    }

    /// The meaning of keys.
    pub(crate) fn mode(&self) -> Mode {
        match &self.answering {
            None => Mode::Chat,
            Some(answering) if answering.ask.wants_input() => Mode::Input,
            Some(_) => Mode::Approval,
        }
    }

    /// Whether a request blocks messages: one that waits for a person, in the chosen thread if there is one.
    pub(crate) fn is_gated(&self) -> bool {
        let is_here = |ask: &&Arc<Ask>| match (&self.thread, ask.thread_id()) {
            (Some(thread), Some(other)) => thread == other,
            (Some(_) | None, _) => true,
        };
        self.asks.iter().filter(is_here).any(|ask| ask.is_for_human())
    }

    /// Facts about the chosen thread, or about the most recently active one.
    pub(crate) fn facts(&self) -> Option<&ThreadFacts> {
        self.timeline.as_ref().and_then(|timeline| timeline.facts.of(self.thread.as_deref()))
    }

    /// The client, once known. A hub has many.
    pub(crate) fn client(&self) -> Option<&str> {
        self.document()?.only_client()
    }

    /// The relay's document, while it answers.
    pub(crate) fn document(&self) -> Option<&SessionDocument> {
        match &self.link {
            Link::Up(live) => Some(&live.document),
            Link::New | Link::Silent(_) | Link::Stopped => None,
        }
    }

    /// The activity of the chosen thread, or else of the session: its start, in microseconds since the Unix epoch, and whether its
    /// turn has stalled.
    pub(crate) fn activity(&self, live: &Live) -> (Activity, Option<u64>, bool) {
        let mut threads = live.document.threads.iter();
        match self.thread.as_ref().and_then(|chosen| threads.find(|thread| thread.thread_id == *chosen)) {
            Some(thread) => (thread.activity_state, parsed_us(&thread.since), thread.stalled_since.is_some()),
            None => {
                let is_stalled = live.document.threads.iter().any(|thread| thread.stalled_since.is_some());
                (live.document.state, live.since_us, is_stalled)
            }
        }
    }

    /// What is on the screen.
    pub(crate) fn destination(&self) -> Destination {
        let thread = self.unfolded.as_ref().map_or(&self.thread, |unfolded| &unfolded.back_to);
        Destination { session: self.id.clone(), thread: thread.clone() }
    }
}

impl Model {
    pub(crate) fn new(size: Size, colours: Colours, zone: Zone, now_us: u64) -> Model {
        Model {
            now_us,
            size,
            colours,
            zone,
            folders: Folders::default(),
            list: List::default(),
            session: None,
            inbox: None,
            help: None,
            note: None,
            drafts: HashMap::new(),
            begun: HashMap::new(),
            rung: HashSet::new(),
            keys: Keys::default(),
            mouse: Mouse::Taken,
            spots: Vec::new(),
            room: Room::default(),
            attachments: 0,
        }
    }

    /// The place that receives keys, and whether letters are text there.
    pub(crate) fn place(&self) -> (KeyPlace, Letters) {
        if self.inbox.is_some() {
            return (KeyPlace::Inbox, Letters::Keys);
        }
        let Some(session) = &self.session else { return (KeyPlace::Sessions, Letters::Keys) };
        if session.overruling.is_some() {
            return (KeyPlace::Sure, Letters::Keys);
        }
        let answers_request = match &session.focus {
            Focus::Answer => true,
            Focus::Reading(reading) => matches!(reading.subject, DocumentSubject::Request(_)),
            Focus::History | Focus::Search(_) | Focus::Threads(_) => false,
        };
        match session.answering.as_ref().filter(|_| answers_request) {
            Some(Answering { sure: Some(_), .. }) => return (KeyPlace::Sure, Letters::Keys),
            Some(Answering { reason: Some(_), .. }) => return (KeyPlace::Line, Letters::Typed),
            Some(_) | None => {}
        }
        match (&session.focus, &session.answering) {
            (Focus::History, _) => (KeyPlace::History, Letters::Keys),
            (Focus::Search(_), _) => (KeyPlace::Line, Letters::Typed),
            (Focus::Reading(reading), _) => match &reading.text {
                Text::Lines(_) => (KeyPlace::Reading, Letters::Keys),
                Text::Diff(_) => (KeyPlace::Review, Letters::Keys),
            },
            (Focus::Threads(_), _) => (KeyPlace::Threads, Letters::Keys),
            (Focus::Answer, None) => {
                // In an empty composer `?` shows the help.
                (KeyPlace::Chat, if session.composer.text().is_empty() { Letters::Keys } else { Letters::Typed })
            }
            (Focus::Answer, Some(answering)) if answering.ask.wants_input() => {
                match (answering.form.stand(), answering.form.types_text()) {
                    (Stand::Summary(_), _) => (KeyPlace::Summary, Letters::Keys),
                    (Stand::Step(_), true) => (KeyPlace::Input, Letters::Typed),
                    (Stand::Step(_), false) => (KeyPlace::Input, Letters::Keys),
                }
            }
            (Focus::Answer, Some(_)) => (KeyPlace::Approval, Letters::Keys),
        }
    }

    /// Whether the screen shows an animation.
    pub(crate) fn is_busy(&self) -> bool {
        let is_running = |state: &Activity| matches!(state, Activity::Thinking | Activity::Working);
        match self.session.as_ref().map(|session| &session.link) {
            Some(Link::Up(live)) => is_running(&live.document.state),
            Some(Link::New | Link::Silent(_) | Link::Stopped) => false,
            None => self.list.rows.iter().filter_map(|row| row.state.as_ref()).any(is_running),
        }
    }

    /// The other sessions in which a request waits for a person.
    pub(crate) fn elsewhere(&self) -> impl Iterator<Item = &SessionRow> {
        let here = self.session.as_ref().map(|session| session.id.as_str());
        self.list.rows.iter().filter(move |row| Some(row.id.as_str()) != here && !row.waiting.is_empty())
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Event {
    Key(KeyEvent),
    /// No key has followed the last one for a while.
    Quiet,
    Pointed(Position, Pointing),
    Pasted(String),
    /// The screen has another size.
    Resized(Size),
    /// A timer tick.
    Ticked,
    /// The program must exit.
    Ended(UiEnd),
    /// The program must stop for a while.
    Stopped,
    /// The program continues.
    Continued,
    /// The user's pager has ended; an error says why it failed.
    Paged(Result<(), String>),
    Listed(Vec<SessionRow>),
    /// News of the attachment with this number. News of earlier attachments are dropped.
    Of(u64, News),
}

/// Commands for the event loop.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    /// Ends the program.
    Quit(UiEnd),
    /// Hands the terminal back, stops, and takes it again.
    Suspend,
    /// Takes the terminal again.
    Retake,
    Ring,
    /// Shows a notification, if the terminal can.
    Notify(String),
    /// Takes the mouse or leaves it to the terminal.
    Mouse(Mouse),
    /// Shows a document in the user's pager.
    Page(Arc<Doc>),
    /// The same for a diff.
    PageDiff(Arc<Diff>),
    /// Detaches from the session.
    Detach,
    /// Attaches to a session and reads its journal.
    Attach {
        id: String,
        /// The number of this attachment.
        attachment: u64,
    },
    /// Polls the pending requests now.
    Look,
    /// Follows the journal from its end.
    Follow {
        /// The epoch that begins.
        epoch: u64,
    },
    /// Reads entries of the session.
    Read(Read),
    /// Calls the relay of the session.
    Call(Call),
    /// Copies text to the clipboard of the terminal.
    Copy(String),
}

/// Why the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UiEnd {
    Left,
    /// This signal, or its equivalent: a lost terminal counts as SIGHUP.
    Signal(i32),
}
