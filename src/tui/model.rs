//! The state of the terminal UI, its events and its commands, and the names of sessions and threads.
//!
//! Pure: plain data. [`super::update`] changes it, [`mod@super::view`] draws it.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use crossterm::event::KeyEvent;
use ratatui::layout::{Position, Size};
use serde_json::Value;
use uuid::Uuid;

use super::ask::{Ask, Details};
use super::deciding::Keys;
use super::diff::Diff;
use super::doc::{At, Doc, Room};
use super::entry::{Entry, Key, Kind, Matcher, ThreadFacts};
use super::form::{Field, Form, Stand};
use super::inbox::Inbox;
use super::keys::{Letters, Place};
use super::mouse::{Mouse, Pointing, Spot};
use super::text::Zone;
use super::timeline::{SessionEvent, Timeline};
use crate::control::SessionDocument;
use crate::control::request_view::Choice;
use crate::engine::OverruleFor;
use crate::history::Activity;
use crate::store;

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
    pub list: List,
    pub session: Option<Box<Session>>,
    /// The requests of all sessions, while they are open.
    pub inbox: Option<Inbox>,
    /// The scroll position of the help, while it is open.
    pub help: Option<usize>,
    pub note: Option<Note>,
    /// Unsent messages, by session.
    pub drafts: HashMap<String, Field>,
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

#[derive(Debug, Clone, Default)]
pub(crate) struct List {
    /// The rows in screen order.
    pub rows: Vec<SessionRow>,
    /// The id of the selected session.
    pub chosen: Option<String>,
    /// Whether the sessions were read at least once.
    pub is_known: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionRow {
    pub id: String,
    pub live: bool,
    /// Why it cannot answer, if that is known: its host is offline.
    pub away: Option<String>,
    /// Its activity; `None` if it does not answer.
    pub state: Option<Activity>,
    pub pending: u64,
    /// The requests that wait for a human, oldest first.
    pub waiting: Vec<Waiting>,
    pub cwd: String,
    pub client: Option<String>,
    /// When it was last used, in microseconds since the Unix epoch.
    pub used_us: u64,
}

/// A request that waits for a human.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub id: String,
    pub summary: String,
    /// When it arrived, in microseconds since the Unix epoch.
    pub asked_us: u64,
}

/// How a session can be reached.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Link {
    /// The relay was not queried yet.
    New,
    /// The relay answers.
    Up(Box<Live>),
    /// A relay is running but does not answer; the reason.
    Silent(String),
    /// No relay is running.
    Stopped,
}

/// A session whose relay answers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Live {
    pub document: SessionDocument,
    /// Start of the current state, in microseconds since the Unix epoch.
    pub since_us: Option<u64>,
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
    pub subject: Subject,
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
pub(crate) enum Subject {
    Entry(Entry),
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

/// A denial of codex's own reviewer that the user is about to overrule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Overruling {
    pub review_id: String,
    pub applies: OverruleFor,
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
    /// A denial that is overruled once the user has confirmed it.
    pub overruling: Option<Overruling>,
    /// The last search.
    pub searched: Option<Matcher>,
    /// The note if the search in progress finds nothing.
    pub missing: Option<String>,
    /// The reason of the read in progress.
    pub reading: Option<Awaited>,
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
pub(crate) enum Awaited {
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
            overruling: None,
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

    /// The client, once known.
    pub(crate) fn client(&self) -> Option<&str> {
        match &self.link {
            Link::Up(live) => live.document.client.name.as_deref(),
            Link::New | Link::Silent(_) | Link::Stopped => None,
        }
    }
}

impl Model {
    pub(crate) fn new(size: Size, colours: Colours, zone: Zone, now_us: u64) -> Model {
        Model {
            now_us,
            size,
            colours,
            zone,
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
    pub(crate) fn place(&self) -> (Place, Letters) {
        if self.inbox.is_some() {
            return (Place::Inbox, Letters::Keys);
        }
        let Some(session) = &self.session else { return (Place::Sessions, Letters::Keys) };
        if session.overruling.is_some() {
            return (Place::Sure, Letters::Keys);
        }
        let answers_request = match &session.focus {
            Focus::Answer => true,
            Focus::Reading(reading) => matches!(reading.subject, Subject::Request(_)),
            Focus::History | Focus::Search(_) | Focus::Threads(_) => false,
        };
        match session.answering.as_ref().filter(|_| answers_request) {
            Some(Answering { sure: Some(_), .. }) => return (Place::Sure, Letters::Keys),
            Some(Answering { reason: Some(_), .. }) => return (Place::Line, Letters::Typed),
            Some(_) | None => {}
        }
        match (&session.focus, &session.answering) {
            (Focus::History, _) => (Place::History, Letters::Keys),
            (Focus::Search(_), _) => (Place::Line, Letters::Typed),
            (Focus::Reading(reading), _) => match &reading.text {
                Text::Lines(_) => (Place::Reading, Letters::Keys),
                Text::Diff(_) => (Place::Review, Letters::Keys),
            },
            (Focus::Threads(_), _) => (Place::Threads, Letters::Keys),
            (Focus::Answer, None) => {
                // In an empty composer `?` shows the help.
                (Place::Chat, if session.composer.text().is_empty() { Letters::Keys } else { Letters::Typed })
            }
            (Focus::Answer, Some(answering)) if answering.ask.wants_input() => {
                match (answering.form.stand(), answering.form.types_text()) {
                    (Stand::Summary(_), _) => (Place::Summary, Letters::Keys),
                    (Stand::Step(_), true) => (Place::Input, Letters::Typed),
                    (Stand::Step(_), false) => (Place::Input, Letters::Keys),
                }
            }
            (Focus::Answer, Some(_)) => (Place::Approval, Letters::Keys),
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
    Ended(Ending),
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

#[derive(Debug, Clone)]
pub(crate) enum News {
    Placed(String),
    /// How it can be reached now.
    Linked(Link),
    /// Its pending requests, and the rows of requests that ended.
    Pending {
        /// The requests, oldest first.
        asks: Vec<Arc<Ask>>,
        /// Rows of requests that are not pending any more.
        ended: Vec<Value>,
    },
    /// The last entries of a long journal, shown until the rest is read.
    Glanced(u64, Box<Timeline>),
    /// The window at the end of the journal.
    Restored {
        epoch: u64,
        timeline: Box<Timeline>,
    },
    Events {
        epoch: u64,
        events: Vec<SessionEvent>,
    },
    /// The journal cannot be read.
    Unreadable(String),
    /// The first entries of the session.
    Start(Page),
    /// A page before the window.
    Older(Page),
    /// A page after the window.
    Newer(Page),
    Found(Sought),
    Opened(Option<Box<Entry>>),
    /// The result of an answer.
    Responded {
        request_id: String,
        /// The row and whose answer won, or the error.
        result: Result<(Value, First), String>,
    },
    Said(Result<String, String>),
    Interrupted(Result<(), String>),
    Overruled {
        asked: Overruling,
        /// What happens next, or why nothing does.
        result: Result<String, NotOverruled>,
    },
}

/// Why a denial stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotOverruled {
    /// Its turn is over; the approval could wait for the next one.
    TurnOver,
    Other(String),
}

/// Whose answer won.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    We,
    Other,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Sought {
    /// A match, and the entries around it.
    At(Key, Page),
    Nothing,
    /// Nothing among so many events next to the place where the search began. Those beyond them were not searched.
    #[cfg_attr(
        not(any(feature = "fleet", test)),
        expect(dead_code, reason = "a recording of this machine is searched to its end")
    )]
    NothingAmong(u64),
}

/// Entries that were read again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Page {
    /// The entries, oldest first.
    pub entries: Vec<Entry>,
    /// Whether there are no further entries in that direction.
    pub is_last: bool,
}

/// Commands for the event loop.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    /// Ends the program.
    Quit(Ending),
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
    /// Reads the first entries of the session.
    ReadStart,
    /// Reads the entries before one.
    ReadOlder(Key),
    /// Reads the entries after one.
    ReadNewer(Key),
    /// Searches for an entry.
    Find {
        matcher: Matcher,
        /// Where the search begins.
        from: Key,
        way: Way,
    },
    /// Reads an entry in full.
    Open(Key),
    /// Answers a request.
    Respond {
        request_id: String,
        body: Value,
    },
    /// Sends a message to the model.
    Say {
        text: String,
        /// The thread; `None` for that of the last turn.
        thread_id: Option<String>,
    },
    /// Interrupts the turn of this thread, or of the last one.
    Interrupt(Option<String>),
    /// Overrules a denial.
    Overrule(Overruling),
    /// Copies text to the clipboard of the terminal.
    Copy(String),
}

/// Why the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Left,
    /// This signal, or its equivalent: a lost terminal counts as SIGHUP.
    Signal(i32),
}

/// A direction in the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Towards the past.
    Back,
    /// Towards the present.
    Forward,
}

/// Shortest prefix of an id.
const ID_CHARS_MIN: usize = 8;

/// The machine of a session, by the session's id; `None` for a session of this machine.
pub(crate) fn host_of(id: &str) -> Option<&str> {
    id.split_once('/').map(|(host, _)| host)
}

/// A name with the machine of the session `id` in front.
pub(super) fn with_host(id: &str, name: &str) -> String {
    host_of(id).map_or_else(|| name.to_owned(), |host| format!("{host}/{name}"))
}

/// A session by its folder and client: `proj (vscode)`, or `host/proj (vscode)`.
pub(super) fn session_name(id: &str, cwd: &str, client: Option<&str>) -> String {
    let folder = cwd.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("/");
    let client = client.map(store::client_name).filter(|name| !name.is_empty());
    with_host(id, &client.map_or_else(|| folder.to_owned(), |client| format!("{folder} ({client})")))
}

/// The short id of a session, the same as in `sessions`: the end of a UUID, else the whole id. It does not name the machine.
pub(super) fn session_id<'a>(id: &'a str, rows: &[SessionRow]) -> &'a str {
    let folder = |row| Path::new(row).file_name().and_then(|name| name.to_str());
    let bare = |id: &'a str| id.split_once('/').map_or(id, |(_, bare)| bare);
    let beside = rows.iter().filter(|row| host_of(&row.id) == host_of(id));
    let beside = beside.map(|row| (row.id.split_once('/').map_or(&*row.id, |(_, bare)| bare), folder(&*row.cwd)));
    store::short_id(bare(id), beside)
}

/// The shortest unique prefix of a thread's id, which every command accepts. A name that a user chose stays whole.
pub(crate) fn short_id<'a, 'b>(id: &'a str, all: impl Iterator<Item = &'b str> + Clone) -> &'a str {
    if Uuid::try_parse(id).is_err() {
        return id;
    }
    let ends = id.char_indices().map(|(at, char)| at + char.len_utf8()).filter(|end| *end >= ID_CHARS_MIN);
    for end in ends {
        let is_taken = all.clone().any(|other| other != id && other.starts_with(&id[..end]));
        if !is_taken && !id[..end].ends_with('-') {
            return &id[..end];
        }
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_have_a_folder_and_a_client() {
        assert_eq!(session_name("s", "/home/u/proj/", Some("codex_vscode")), "proj (vscode)");
        assert_eq!(session_name("s", "/home/u/proj", Some("zed")), "proj (zed)");
        assert_eq!(session_name("s", "/", None), "/");
        assert_eq!(session_name("s", "", Some("")), "/");
        assert_eq!(session_name("build-7/s", "/w/proj", Some("zed")), "build-7/proj (zed)");
    }

    #[test]
    fn a_short_id_is_a_unique_prefix() {
        let ids = ["0192c4f0-1111-7000-8000-000000000001", "0192c4f0-1112-7000-8000-000000000001", "work"];
        let short = |id| short_id(id, ids.iter().copied());
        assert_eq!(short(ids[0]), "0192c4f0-1111");
        assert_eq!(short(ids[2]), "work");
        assert_eq!(short_id(ids[0], ids[..1].iter().copied()), "0192c4f0");
        assert_eq!(short("thread-0001"), "thread-0001");
    }

    #[test]
    fn a_session_has_the_id_of_sessions() {
        let row = |id: &str| SessionRow {
            id: id.to_owned(),
            live: true,
            away: None,
            state: None,
            pending: 0,
            waiting: Vec::new(),
            cwd: "/w/proj".to_owned(),
            client: None,
            used_us: 0,
        };
        let rows = ["0192aaaa-0000-7000-8000-00000000ab01", "0192aaaa-0000-7000-8000-00000000cb01", "work"].map(row);
        let short = rows.each_ref().map(|row| session_id(&row.id, &rows));
        assert_eq!(short, ["ab01", "cb01", "work"]);
        // A session of another machine is no reason for a longer name.
        let far = ["h/0192aaaa-0000-7000-8000-00000000ab01", "i/0192bbbb-0000-7000-8000-00000000bb01"].map(row);
        assert_eq!(far.each_ref().map(|row| session_id(&row.id, &far)), ["ab01", "bb01"]);
    }
}
