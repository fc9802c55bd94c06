//! Blame: the recorded change that wrote each line of a file, its turn, and its approval, as one document.
//!
//! The changes come from the histories of all sessions, live and stopped. A relay that has answered has indexed everything that it
//! recorded; a stopped session is indexed first. [`crate::history::blame`] follows the changes.
//!
//! The file itself is read by the caller.

mod recorded;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use self::recorded::{Recorded, changes_of, in_order, of_file, plain, read_texts, ready};
use super::at_once::at_once;
use super::door::{Door, SessionError};
use super::stopped::history_of;
use crate::api::{Identities, Request, ThreadIdentityDocument};
use crate::control::recorded_threads;
use crate::history::blame::{Doubt, LastSeen, Origin, RecordedChange, blame, last_seen, lines_of};
use crate::history::{AUTO_REVIEW, OVERRULED};
use crate::index::{ChangeContext, ChangePlace, History};
use crate::protocol::Word;
use crate::protocol::change::Form;
use crate::requests::answer::outcome_word;
use crate::store::{Found, label, requests_of_items};

/// Longest beginning of a prompt, in characters.
const PROMPT_CHARS_MAX: usize = 200;

/// A file, and a question about its lines.
#[derive(Debug, Clone)]
pub struct BlameQuestion<'a> {
    /// Absolute.
    pub path: &'a Path,
    /// Its text; `None` for a file that does not exist.
    pub text: Option<&'a str>,
    /// Only these lines, from 1 on.
    pub lines: Option<RangeInclusive<usize>>,
    /// Only changes of this time or later are named, in microseconds since the Unix epoch.
    pub since_us: Option<u64>,
    /// Only changes of the session with this id are named.
    pub session: Option<&'a str>,
}

/// The origins of the lines of a file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BlameDocument {
    pub path: String,
    /// The change that has deleted the file; the lines are the last ones of the file.
    pub deleted_by: Option<usize>,
    /// All lines of the file.
    pub line_count: usize,
    pub lines: Vec<BlameLine>,
    /// The changes that the lines name, oldest first.
    pub changes: Vec<BlameChange>,
    /// How many changes of the file are on record.
    pub changes_on_record: usize,
    /// Recorded changes that cannot be seen, in words.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BlameLine {
    pub line: usize,
    pub kind: BlameKind,
    /// The change that wrote it, or after which it was written, or whose record leaves it open.
    pub change: Option<usize>,
    /// Why it is unknown, in words.
    pub why: Option<&'static str>,
    pub text: String,
}

/// The origin of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlameKind {
    /// A recorded change.
    Codex,
    /// Not codex, after a recorded change.
    Outside,
    /// No recorded change.
    Unrecorded,
    Unknown,
    /// A recorded change that was not asked about.
    Other,
}

impl BlameKind {
    pub fn name(self) -> &'static str {
        match self {
            BlameKind::Codex => "codex",
            BlameKind::Outside => "outside",
            BlameKind::Unrecorded => "unrecorded",
            BlameKind::Unknown => "unknown",
            BlameKind::Other => "other",
        }
    }
}

impl Serialize for BlameKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A change of the file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BlameChange {
    /// RFC 3339.
    pub at: String,
    /// `add`, `delete` or `update`.
    pub kind: String,
    /// The name of the file before it.
    pub path: String,
    pub moved_to: Option<String>,
    pub session_id: String,
    /// Folder and client of its thread: `proj (codex-tui)`.
    pub name: String,
    pub thread_id: String,
    pub thread: Option<ThreadIdentityDocument>,
    pub turn_id: Option<String>,
    pub item_id: Option<String>,
    /// The last message of the user in its turn.
    pub prompt: Option<String>,
    /// The client that started its turn.
    pub client: Option<String>,
    pub model: Option<String>,
    pub approval: BlameApproval,
}

/// The approval of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlameApproval {
    pub kind: ApprovalKind,
    /// How the request ended: `accepted`.
    pub outcome: Option<String>,
    /// RFC 3339.
    pub at: Option<String>,
    /// `client`, `tui`, `web`, `cli` or `api`.
    pub source: Option<String>,
    /// The name of the client, the user, the program or the rule.
    pub by: Option<String>,
    pub request_id: Option<String>,
}

/// The kind of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalKind {
    Person,
    Rule,
    /// Codex's own reviewer.
    Reviewer,
    /// Codex did not ask.
    NotAsked,
    Unknown,
}

impl ApprovalKind {
    pub fn name(self) -> &'static str {
        match self {
            ApprovalKind::Person => "person",
            ApprovalKind::Rule => "rule",
            ApprovalKind::Reviewer => "reviewer",
            ApprovalKind::NotAsked => "not_asked",
            ApprovalKind::Unknown => "unknown",
        }
    }
}

impl Serialize for ApprovalKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl BlameApproval {
    fn of(kind: ApprovalKind) -> BlameApproval {
        BlameApproval { kind, outcome: None, at: None, source: None, by: None, request_id: None }
    }
}

/// The reason for a missing answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlameError {
    #[error("there is no file {path}, and no change of it is on record")]
    NoFile { path: String },
    #[error("{path} was moved to {to}")]
    Moved { path: String, to: String },
    #[error("there is no file {path}: it was last changed {at}, and then deleted or moved outside codex")]
    Gone { path: String, at: String },
    #[error("the text of the deleted file {path} is not on record")]
    NoText { path: String },
    #[error("{path} has {}, and no line {line}", if *lines == 1 { "1 line".to_owned() } else { format!("{lines} lines") })]
    NoLine { path: String, lines: usize, line: usize },
}

/// An answer, and the sessions that could not be read.
pub type Blamed = (Result<BlameDocument, BlameError>, Vec<SessionError>);

/// Answers a question from the histories of these sessions. Calls `advance` after each session.
pub fn blame_file(question: &BlameQuestion<'_>, sessions: &[Found], door: Door, advance: impl Fn() + Sync) -> Blamed {
    let read = at_once(sessions, |session| {
        let changes = ready(session, door).map(|ready| ready.map(|notes| (changes_of(session), notes)));
        advance();
        changes
    });
    let (mut recorded, mut notes, mut unread) = (Vec::new(), Vec::new(), Vec::new());
    for (number, read) in read.into_iter().enumerate() {
        match read {
            Ok(None) => {}
            Ok(Some((Ok(changes), behind))) => {
                recorded.extend(changes.into_iter().map(|change| Recorded { session: number, ..change }));
                notes.extend(behind);
            }
            Ok(Some((Err(error), _))) | Err(error) => unread.push(error),
        }
    }
    let (path, mut changes) = of_file(question.path, recorded);
    read_texts(&mut changes, sessions);
    let changes = in_order(changes);
    let has_all = unread.is_empty() && notes.is_empty();
    let blamed = Blaming { question, sessions, path: &path, changes: &changes, has_all, notes }.document();
    (blamed, unread)
}

/// All that an answer is made of.
struct Blaming<'a> {
    question: &'a BlameQuestion<'a>,
    sessions: &'a [Found],
    path: &'a Path,
    changes: &'a [Recorded],
    /// No session has changes that could not be read.
    has_all: bool,
    notes: Vec<String>,
}

impl Blaming<'_> {
    fn document(self) -> Result<BlameDocument, BlameError> {
        let names: Vec<[Option<String>; 2]> = self.changes.iter().map(names_of).collect();
        let changes: Vec<RecordedChange<'_>> = self.changes.iter().zip(&names).map(recorded_change).collect();
        let path = self.path.to_string_lossy();
        let deleted_by = self.deleted_by(&path, &changes)?;
        let text = match (self.question.text, deleted_by) {
            (Some(text), _) => text,
            (None, Some(number)) => {
                changes[number].text.ok_or_else(|| BlameError::NoText { path: self.shown_path() })?
            }
            (None, None) => "",
        };
        let lines: Vec<&str> = lines_of(text).collect();
        let origins = blame(&path, &lines, &changes[..deleted_by.unwrap_or(changes.len())]);
        let asked = self.question.lines.clone().unwrap_or(1..=lines.len());
        if let Some(line) = [*asked.start(), *asked.end()].into_iter().find(|line| *line > lines.len())
            && self.question.lines.is_some()
        {
            return Err(BlameError::NoLine { path: self.shown_path(), lines: lines.len(), line });
        }
        let shown = || asked.clone().filter_map(|line| Some((line, *origins.get(line - 1)?)));
        let mut named: BTreeSet<usize> = shown().filter_map(|(_, origin)| self.named(origin)).collect();
        named.extend(deleted_by);
        let numbers: HashMap<usize, usize> = named.iter().enumerate().map(|(place, number)| (*number, place)).collect();
        let line = |(line, origin): (usize, Origin)| {
            let (kind, why) = self.kind(origin);
            let change = self.named(origin).and_then(|number| numbers.get(&number).copied());
            BlameLine { line, kind, change, why, text: lines[line - 1].to_owned() }
        };
        let lines_shown = shown().map(line).collect();
        let mut notes = self.notes.clone();
        let changes = self.named_changes(&named.into_iter().collect::<Vec<_>>(), &mut notes);
        Ok(BlameDocument {
            path: self.shown_path(),
            deleted_by: deleted_by.and_then(|number| numbers.get(&number).copied()),
            line_count: lines.len(),
            lines: lines_shown,
            changes,
            changes_on_record: self.changes.iter().filter(|change| change.is_done).count(),
            notes,
        })
    }

    /// The path as the user knows it.
    fn shown_path(&self) -> String {
        let plain = plain(self.question.path);
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        // A `..` behind a link leads elsewhere than its name says.
        let shown = real(self.question.path).filter(|read| real(&plain).as_ref() != Some(read)).unwrap_or(plain);
        shown.to_string_lossy().into_owned()
    }

    /// The change that has deleted the file, if it is not there.
    fn deleted_by(&self, path: &str, changes: &[RecordedChange<'_>]) -> Result<Option<usize>, BlameError> {
        if self.question.text.is_some() {
            return Ok(None);
        }
        let path_shown = self.shown_path();
        match last_seen(path, changes) {
            LastSeen::Deleted(number) => Ok(Some(number)),
            LastSeen::Never => Err(BlameError::NoFile { path: path_shown }),
            LastSeen::There(number) => Err(BlameError::Gone { path: path_shown, at: self.changes[number].at.clone() }),
            LastSeen::Moved(number) => {
                let to = self.changes[number].moved_to.clone().unwrap_or_default();
                Err(BlameError::Moved { path: path_shown, to })
            }
        }
    }

    /// Whether the question is about this change.
    fn is_meant(&self, number: usize) -> bool {
        let Some(change) = self.changes.get(number) else { return false };
        let session = self.sessions.get(change.session).map(|session| &*session.id);
        let is_of_session = self.question.session.is_none_or(|id| session == Some(id));
        is_of_session && self.question.since_us.is_none_or(|since_us| change.at_us >= since_us)
    }

    fn kind(&self, origin: Origin) -> (BlameKind, Option<&'static str>) {
        match origin {
            Origin::Change(number) if self.is_meant(number) => (BlameKind::Codex, None),
            Origin::Change(_) => (BlameKind::Other, None),
            Origin::Outside(_) | Origin::Unrecorded if !self.has_all => (BlameKind::Unknown, Some(UNREAD)),
            Origin::Outside(_) => (BlameKind::Outside, None),
            Origin::Unrecorded => (BlameKind::Unrecorded, None),
            Origin::Unknown(_, doubt) => (BlameKind::Unknown, Some(in_words(doubt))),
        }
    }

    /// The change that is named with a line.
    fn named(&self, origin: Origin) -> Option<usize> {
        match origin {
            Origin::Change(number) => Some(number).filter(|number| self.is_meant(*number)),
            Origin::Outside(number) | Origin::Unknown(number, _) => Some(number),
            Origin::Unrecorded => None,
        }
    }

    /// The documents of these changes.
    fn named_changes(&self, numbers: &[usize], notes: &mut Vec<String>) -> Vec<BlameChange> {
        let mut sessions: HashMap<usize, OfSession> = HashMap::new();
        for number in numbers {
            let change = &self.changes[*number];
            if let Some(session) = self.sessions.get(change.session) {
                let of_session = || {
                    let of_session = self.changes.iter().filter(|other| other.session == change.session);
                    OfSession::read(session, of_session, notes)
                };
                sessions.entry(change.session).or_insert_with(of_session);
            }
        }
        let document = |number: &usize| {
            let change = &self.changes[*number];
            let (session, of_session) = self.sessions.get(change.session).zip(sessions.get(&change.session))?;
            Some(of_session.document(session, change))
        };
        numbers.iter().filter_map(document).collect()
    }
}

fn names_of(change: &Recorded) -> [Option<String>; 2] {
    let name = |path: &PathBuf| path.to_string_lossy().into_owned();
    [Some(name(&change.file)), change.moved_file.as_ref().map(name)]
}

fn recorded_change<'a>((change, [path, moved_to]): (&'a Recorded, &'a [Option<String>; 2])) -> RecordedChange<'a> {
    RecordedChange {
        path: path.as_deref().unwrap_or_default(),
        moved_to: moved_to.as_deref(),
        form: Form::of_kind(&change.kind),
        text: change.text.as_deref(),
        is_done: change.is_done,
        is_timed: change.is_live,
    }
}

/// The reason for calling no line `outside`.
const UNREAD: &str = "a session whose changes could not be read may have written it";

fn in_words(doubt: Doubt) -> &'static str {
    match doubt {
        Doubt::Masked => "a secret may be masked in this line",
        Doubt::Incomplete => "the record does not have the whole diff of a later change",
        Doubt::Failed => "a change that failed, or was made through a link that has changed since, may have written it",
        Doubt::Alike => "too many lines are equal",
    }
}

/// The record of a session about its changes.
struct OfSession {
    history: History,
    threads: Identities,
    /// The last answered request about each item.
    requests: HashMap<(String, String), Request>,
    /// The ledger could be read.
    has_ledger: bool,
}

impl OfSession {
    fn read<'a>(
        session: &Found,
        changes: impl Iterator<Item = &'a Recorded> + Clone,
        notes: &mut Vec<String>,
    ) -> OfSession {
        let ids: BTreeSet<String> = changes.clone().map(|change| change.thread_id.clone()).collect();
        let threads = recorded_threads(&session.dir, &ids.into_iter().collect::<Vec<_>>());
        let items: HashSet<(&str, &str)> =
            changes.filter_map(|change| Some((&*change.thread_id, change.item_id.as_deref()?))).collect();
        let (mut requests, mut has_ledger) = (HashMap::new(), true);
        match requests_of_items(&session.dir, session.is_still_live(), |thread, item| items.contains(&(thread, item))) {
            Ok(rows) => {
                for row in rows {
                    let of = |id: &Option<String>| id.clone().unwrap_or_default();
                    // Codex may ask again about an item; what was made was accepted.
                    let key = (of(&row.thread_id), of(&row.item_id));
                    if outcome_word(&row) == ACCEPTED || !requests.contains_key(&key) {
                        requests.insert(key, row);
                    }
                }
            }
            Err(error) => {
                has_ledger = false;
                notes.push(format!("session {}: who approved its changes is not known: {error}", session.name()));
            }
        }
        OfSession { history: history_of(session), threads, requests, has_ledger }
    }

    fn document(&self, session: &Found, change: &Recorded) -> BlameChange {
        let place = ChangePlace {
            entry_id: change.entry_id,
            thread_id: &change.thread_id,
            turn_id: change.turn_id.as_deref(),
            item_id: change.item_id.as_deref(),
            at_us: change.at_us,
        };
        let (context, is_read) = match self.history.change_context(place) {
            Ok(context) => (context, true),
            Err(_) => (ChangeContext::default(), false),
        };
        let thread = self.threads.get(&change.thread_id).cloned();
        // The session may have another client by now.
        let of_thread = thread.as_ref().and_then(ThreadIdentityDocument::folder_and_client);
        let approval = self.approval(change, &context, is_read);
        let ChangeContext { prompt, client, model, approval: _ } = context;
        let prompt = prompt.map(|prompt| prompt.chars().take(PROMPT_CHARS_MAX).collect());
        BlameChange {
            at: change.at.clone(),
            kind: change.kind.clone(),
            path: change.path.clone(),
            moved_to: change.moved_to.clone(),
            session_id: session.id.clone(),
            name: of_thread.unwrap_or_else(|| label(session)),
            thread_id: change.thread_id.clone(),
            thread,
            turn_id: change.turn_id.clone(),
            item_id: change.item_id.clone(),
            prompt,
            client,
            model,
            approval,
        }
    }

    fn approval(&self, change: &Recorded, context: &ChangeContext, is_read: bool) -> BlameApproval {
        let item = change.item_id.clone().map(|item_id| (change.thread_id.clone(), item_id));
        if let Some(row) = item.and_then(|item| self.requests.get(&item)) {
            return of_request(row);
        }
        if let Some((at, approval)) = &context.approval {
            let decision = approval.decision.as_deref().unwrap_or_default();
            let kind = match (&*approval.kind, decision) {
                (AUTO_REVIEW, "approved") => ApprovalKind::Reviewer,
                (AUTO_REVIEW, OVERRULED) => ApprovalKind::Person,
                (AUTO_REVIEW, _) => ApprovalKind::Unknown,
                (_, decision) if is_yes(decision) => ApprovalKind::Person,
                (_, _) => ApprovalKind::Unknown,
            };
            let own = |text: Option<&str>| text.map(str::to_owned);
            return BlameApproval {
                outcome: own(approval.decision.as_deref()),
                at: Some(at.clone()),
                source: own(approval.source.as_deref()),
                request_id: own(approval.request_id.as_deref()),
                ..BlameApproval::of(kind)
            };
        }
        let is_known = change.is_live && self.has_ledger && is_read;
        BlameApproval::of(if is_known { ApprovalKind::NotAsked } else { ApprovalKind::Unknown })
    }
}

fn is_yes(decision: &str) -> bool {
    matches!(Word::named(decision), Some(Word::Accept | Word::AcceptForSession))
}

/// How a request ended with a yes.
const ACCEPTED: &str = "accepted";

/// How a request about a change ended.
fn of_request(row: &Request) -> BlameApproval {
    let outcome = outcome_word(row);
    let by = row.resolved_by.as_deref().filter(|by| !by.is_empty());
    let rule = by.and_then(|by| by.strip_prefix("rule:"));
    let kind = match (outcome, rule, row.resolution_source.as_deref()) {
        (ACCEPTED, Some(_), _) => ApprovalKind::Rule,
        (ACCEPTED, None, Some("client" | "tui" | "web" | "cli" | "api")) => ApprovalKind::Person,
        (_, _, _) => ApprovalKind::Unknown,
    };
    BlameApproval {
        outcome: Some(outcome.to_owned()),
        at: row.resolved_at.clone(),
        source: row.resolution_source.clone(),
        // The process of a caller says nothing later.
        by: rule.or(by).map(|by| by.split(", pid ").next().unwrap_or_default().to_owned()),
        request_id: Some(row.request_id.clone()),
        ..BlameApproval::of(kind)
    }
}
