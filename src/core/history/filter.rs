//! A filter: words, and tokens such as `kind:command` or `folder:~/proj`, as users write it wherever things are listed or searched.
//!
//! ```text
//! text ──▶ Filter::read ──▶ Filter::passes(Facts) ──▶ true or false
//! ```
//!
//! Each place only makes the [`Facts`] of its things, so the same text means the same things everywhere. Of several tokens with
//! the same key one has to match, of different keys each, and all words.
//!
//! It never looks anything up: the time, the time zone and the folders that a text can refer to are arguments.

use std::fmt::{self, Write as _};

use jiff::tz::TimeZone;

use super::search_query::SearchQuery;
use super::searchable::SearchKind;
use super::since::since_us;
use crate::engine::{RequestSource, Subject};
use crate::protocol::{named, of_name};

named! {
    /// The key of a token.
    #[derive(PartialOrd, Ord)]
    pub enum FilterKey {
        Kind = "kind",
        Status = "status",
        Client = "client",
        Folder = "folder",
        Thread = "thread",
        Since = "since",
        By = "by",
    }
}

named! {
    /// A value of `kind:`. A request has the kind `request` and that of its subject.
    pub enum FilterKind {
        Message = "message",
        Command = "command",
        Diff = "diff",
        Request = "request",
        Permissions = "permissions",
        Questions = "questions",
        Elicitation = "elicitation",
    }
}

named! {
    /// A value of `status:`: the outcome of a request, or the end of a command, tool or change.
    pub enum FilterStatus {
        Pending = "pending",
        Accepted = "accepted",
        Declined = "declined",
        Cancelled = "cancelled",
        Answered = "answered",
        Unanswered = "unanswered",
        Withdrawn = "withdrawn",
        Expired = "expired",
        Orphaned = "orphaned",
        Completed = "completed",
        Failed = "failed",
        Interrupted = "interrupted",
    }
}

impl FilterKind {
    /// The kind of the entries that can be of this kind.
    fn is_of(self, kind: SearchKind) -> bool {
        match self {
            FilterKind::Message => kind == SearchKind::Message,
            FilterKind::Command => matches!(kind, SearchKind::Command | SearchKind::Request),
            FilterKind::Diff => matches!(kind, SearchKind::Diff | SearchKind::Request),
            FilterKind::Request | FilterKind::Permissions | FilterKind::Questions | FilterKind::Elicitation => {
                kind == SearchKind::Request
            }
        }
    }
}

impl From<SearchKind> for FilterKind {
    fn from(kind: SearchKind) -> FilterKind {
        match kind {
            SearchKind::Command => FilterKind::Command,
            SearchKind::Message => FilterKind::Message,
            SearchKind::Diff => FilterKind::Diff,
            SearchKind::Request => FilterKind::Request,
        }
    }
}

impl From<Subject> for FilterKind {
    fn from(subject: Subject) -> FilterKind {
        match subject {
            Subject::Command => FilterKind::Command,
            Subject::Diff => FilterKind::Diff,
            Subject::Permissions => FilterKind::Permissions,
            Subject::Questions => FilterKind::Questions,
            Subject::Elicitation => FilterKind::Elicitation,
        }
    }
}

/// The value of `by:` for a request that has no answer.
pub const NOBODY: &str = "nobody";

/// Most bytes of a filter.
pub const FILTER_BYTES_MAX: usize = 8 << 10;

/// Most tokens of a filter.
const TOKENS_MAX: usize = 64;

/// The values that a text can refer to.
#[derive(Debug, Clone)]
pub struct FilterPlace<'a> {
    pub now_us: u64,
    pub zone: &'a TimeZone,
    /// The folder that `~` stands for, if there is one.
    pub home: Option<&'a str>,
    /// The folder that `.` stands for, if there is one.
    pub folder: Option<&'a str>,
}

static UTC: TimeZone = TimeZone::UTC;

impl FilterPlace<'static> {
    /// A place without folders, in the zone UTC.
    pub fn nowhere(now_us: u64) -> FilterPlace<'static> {
        FilterPlace { now_us, zone: &UTC, home: None, folder: None }
    }
}

/// The facts of an entry, an event or a request. An unknown fact matches no token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts<'a> {
    pub kinds: &'a [FilterKind],
    pub status: Option<FilterStatus>,
    /// Of a request: the source of its answer and the name of the answerer.
    pub by: &'a [String],
    pub thread_id: Option<&'a str>,
    pub thread: Option<&'a FilterThread>,
    /// When it ended, or else began, in microseconds since 1970.
    pub at_us: u64,
    pub text: &'a str,
}

/// The facts of a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilterThread {
    /// The client that speaks in it, as it calls itself.
    pub client: Option<String>,
    pub folder: Option<String>,
    pub title: Option<String>,
}

/// A filter.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    tokens: Vec<Token>,
    /// The words and phrases as they are read again.
    words: Vec<String>,
    query: Option<SearchQuery>,
}

impl PartialEq for Filter {
    fn eq(&self, other: &Filter) -> bool {
        (&self.tokens, &self.words) == (&other.tokens, &other.words)
    }
}

impl Eq for Filter {}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    key: FilterKey,
    /// The value as it was written.
    text: String,
    value: Value,
}

#[derive(Debug, Clone)]
enum Value {
    Kind(FilterKind),
    Status(FilterStatus),
    /// In lower case.
    Text(String),
    Thread {
        /// In lower case.
        beginning: String,
        /// `None` if no title can match.
        title: Option<SearchQuery>,
    },
    /// This folder or one below, in lower case and without a slash at its end.
    Below(String),
    /// A folder with this name, in lower case.
    Named(String),
    SinceUs(u64),
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Kind(one), Value::Kind(other)) => one == other,
            (Value::Status(one), Value::Status(other)) => one == other,
            (Value::Text(one), Value::Text(other))
            | (Value::Below(one), Value::Below(other))
            | (Value::Named(one), Value::Named(other))
            | (Value::Thread { beginning: one, .. }, Value::Thread { beginning: other, .. }) => one == other,
            (Value::SinceUs(one), Value::SinceUs(other)) => one == other,
            (
                Value::Kind(_)
                | Value::Status(_)
                | Value::Text(_)
                | Value::Thread { .. }
                | Value::Below(_)
                | Value::Named(_)
                | Value::SinceUs(_),
                _,
            ) => false,
        }
    }
}

impl Eq for Value {}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece<'a> {
    Word(&'a str),
    Phrase { text: &'a str, is_beginning: bool },
    Token { key: FilterKey, value: &'a str },
}

/// Cuts the first piece off; `None` at the end.
fn piece(text: &str) -> Option<(Piece<'_>, &str)> {
    let text = text.trim_start();
    if text.is_empty() {
        return None;
    }
    if let Some(quoted) = text.strip_prefix('"') {
        let (text, rest) = quoted.split_once('"').unwrap_or((quoted, ""));
        let (is_beginning, rest) = rest.strip_prefix('*').map_or((false, rest), |rest| (true, rest));
        return Some((Piece::Phrase { text, is_beginning }, rest));
    }
    let end = |text: &str| text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at(end(text));
    let key = word.split_once(':').and_then(|(key, _)| Some((key.len(), of_name(&key.to_lowercase())?)));
    let Some((key_bytes, key)) = key else { return Some((Piece::Word(word), rest)) };
    let value = &text[key_bytes + 1..];
    let (value, after) = match value.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
        // Without a value it is a word.
        None if value.is_empty() || value.starts_with(char::is_whitespace) => return Some((Piece::Word(word), rest)),
        None => value.split_at(end(value)),
    };
    Some((Piece::Token { key, value: value.trim() }, after))
}

impl Filter {
    /// Reads a text; an empty one gives a filter that everything passes.
    ///
    /// # Errors
    ///
    /// The wrong token and the reason, as text for the user.
    pub fn read(text: &str, place: &FilterPlace<'_>) -> Result<Filter, String> {
        if text.len() > FILTER_BYTES_MAX {
            return Err(format!("it has more than {FILTER_BYTES_MAX} bytes"));
        }
        let (mut tokens, mut words, mut rest) = (Vec::new(), Vec::new(), text);
        while let Some((piece, after)) = piece(rest) {
            rest = after;
            match piece {
                Piece::Word(word) => words.push(word.to_owned()),
                Piece::Phrase { text, .. } if text.trim().is_empty() => {}
                Piece::Phrase { text, is_beginning } => {
                    words.push(format!("\"{text}\"{}", if is_beginning { "*" } else { "" }));
                }
                Piece::Token { key, value: text } => {
                    if tokens.len() == TOKENS_MAX {
                        return Err(format!("it has more than {TOKENS_MAX} tokens such as {}:{text}", key.name()));
                    }
                    let shown = if text.is_empty() { "\"\"" } else { text };
                    let value = value(key, text, place).map_err(|why| format!("{}:{shown}: {why}", key.name()))?;
                    tokens.push(Token { key, text: text.to_owned(), value });
                }
            }
        }
        let query = (!words.is_empty()).then(|| SearchQuery::of_words(&words.join(" "))).transpose()?;
        Ok(Filter { tokens, words, query })
    }

    /// Whether everything passes.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.query.is_none()
    }

    /// The query of its words, if it has any.
    pub fn query(&self) -> Option<&SearchQuery> {
        self.query.as_ref()
    }

    /// Whether a token has this key.
    pub fn has(&self, key: FilterKey) -> bool {
        self.tokens.iter().any(|token| token.key == key)
    }

    /// Whether it reads facts of threads, besides their ids.
    pub fn asks_threads(&self) -> bool {
        [FilterKey::Client, FilterKey::Folder, FilterKey::Thread].into_iter().any(|key| self.has(key))
    }

    /// Whether it reads the end of requests, which only the ledger has in full.
    pub fn asks_requests(&self) -> bool {
        [FilterKey::Status, FilterKey::By].into_iter().any(|key| self.has(key))
    }

    /// The time from which on something passes, in microseconds since 1970.
    pub fn since_us(&self) -> Option<u64> {
        let times = self.tokens.iter().filter_map(|token| match token.value {
            Value::SinceUs(at_us) => Some(at_us),
            Value::Kind(_) | Value::Status(_) | Value::Text(_) => None,
            Value::Thread { .. } | Value::Below(_) | Value::Named(_) => None,
        });
        times.min()
    }

    /// The kinds of entries that may pass; empty if all may.
    pub fn search_kinds(&self) -> Vec<SearchKind> {
        let wanted: Vec<FilterKind> = self.tokens.iter().filter_map(Token::kind).collect();
        let may_pass = |kind: &SearchKind| wanted.iter().any(|wanted| wanted.is_of(*kind));
        SearchKind::ALL.into_iter().filter(may_pass).collect()
    }

    /// Whether something with these facts passes.
    pub fn passes(&self, facts: &Facts<'_>) -> bool {
        self.passes_tokens(facts) && self.query.as_ref().is_none_or(|query| query.matches(facts.text))
    }

    /// The same for its tokens alone.
    pub fn passes_tokens(&self, facts: &Facts<'_>) -> bool {
        FilterKey::ALL.into_iter().all(|key| {
            let mut of_key = self.tokens.iter().filter(|token| token.key == key).peekable();
            of_key.peek().is_none() || of_key.any(|token| token.matches(facts))
        })
    }
}

/// The same filter as text.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = |Token { key, text, .. }: &Token| match text.contains(char::is_whitespace) {
            true => format!("{}:\"{text}\"", key.name()),
            false => format!("{}:{text}", key.name()),
        };
        let parts: Vec<String> = self.tokens.iter().map(token).chain(self.words.iter().cloned()).collect();
        f.write_str(&parts.join(" "))
    }
}

impl Token {
    fn kind(&self) -> Option<FilterKind> {
        if let Value::Kind(kind) = self.value { Some(kind) } else { None }
    }

    fn matches(&self, facts: &Facts<'_>) -> bool {
        let thread =
            |fact: fn(&FilterThread) -> &Option<String>| facts.thread.and_then(|thread| fact(thread).as_deref());
        match &self.value {
            Value::Kind(kind) => facts.kinds.contains(kind),
            Value::Status(status) => facts.status == Some(*status),
            Value::Text(wanted) if self.key == FilterKey::Client => {
                let name = thread(|thread| &thread.client).map(str::to_lowercase);
                name.is_some_and(|name| name == *wanted || client_name(&name) == wanted)
            }
            Value::Text(wanted) => facts.by.iter().any(|by| is_named(&by.to_lowercase(), wanted)),
            Value::Thread { beginning, title } => {
                facts.thread_id.is_some_and(|id| id.to_lowercase().starts_with(beginning))
                    || thread(|thread| &thread.title)
                        .is_some_and(|text| title.as_ref().is_some_and(|title| title.matches(text)))
            }
            Value::Below(folder) => {
                let of_thread = thread(|thread| &thread.folder).map(str::to_lowercase);
                of_thread.is_some_and(|of_thread| {
                    let rest = of_thread.strip_prefix(folder);
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                })
            }
            Value::Named(name) => {
                let folder = thread(|thread| &thread.folder).map(str::to_lowercase);
                folder.is_some_and(|folder| folder.trim_end_matches('/').rsplit('/').next() == Some(name))
            }
            Value::SinceUs(at_us) => facts.at_us >= *at_us,
        }
    }
}

/// A client's name without the words that all Codex clients have in common.
#[must_use]
pub fn client_name(name: &str) -> &str {
    let bare = ["codex_", "codex-"].iter().find_map(|prefix| name.strip_prefix(prefix));
    bare.filter(|_| name != crate::engine::OWN_NAME).unwrap_or(name)
}

/// Whether this is the name of an answerer or a whole part at its beginning, such as `rule` of `rule:build`.
fn is_named(by: &str, wanted: &str) -> bool {
    by.strip_prefix(wanted).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

fn value(key: FilterKey, text: &str, place: &FilterPlace<'_>) -> Result<Value, String> {
    let lower = text.to_lowercase();
    if text.is_empty() {
        return Err("it has no value".to_owned());
    }
    match key {
        FilterKey::Kind => {
            of_name(&lower).map(Value::Kind).ok_or_else(|| format!("there is no such kind; kinds are {}", listed(key)))
        }
        FilterKey::Status => of_name(&lower)
            .map(Value::Status)
            .ok_or_else(|| format!("there is no such status; they are {}", listed(key))),
        FilterKey::Client | FilterKey::By => Ok(Value::Text(lower)),
        FilterKey::Folder => folder(text, place),
        FilterKey::Thread => Ok(Value::Thread { title: SearchQuery::of_words(text).ok(), beginning: lower }),
        FilterKey::Since => {
            // A month is `M` and a minute `m`, so the text counts as it was written if it can.
            let spellings = [text, &lower, &text.to_uppercase()].map(|text| since_us(text, place.now_us, place.zone));
            let [written, lower, upper] = spellings;
            written.or(lower).or(upper).map(Value::SinceUs)
        }
    }
}

/// The values of a key, as a list in a sentence.
fn listed(key: FilterKey) -> String {
    let names = values(key);
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some(_) | None => names.concat(),
    }
}

fn folder(text: &str, place: &FilterPlace<'_>) -> Result<Value, String> {
    let (begins, rest) = match text.split_once('/') {
        Some((begins, rest)) => (begins, rest),
        None => (text, ""),
    };
    let base = match begins {
        "" => "",
        "~" => place.home.ok_or("there is no home folder here; give an absolute path")?,
        "." | ".." => place.folder.ok_or("there is no current folder here; give an absolute path")?,
        _ if !text.contains('/') => return Ok(Value::Named(text.to_lowercase())),
        _ => return Err("it must be an absolute path, ~/…, ./…, or the name of a folder".to_owned()),
    };
    let parent = if begins == ".." { "/.." } else { "" };
    let mut parts: Vec<&str> = Vec::new();
    let path = format!("{base}{parent}/{rest}");
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let mut whole = String::new();
    for part in parts {
        let _ = write!(whole, "/{part}");
    }
    Ok(Value::Below(whole.to_lowercase()))
}

/// The values that a key can have; those of an open set only by example.
pub fn values(key: FilterKey) -> Vec<&'static str> {
    match key {
        FilterKey::Kind => FilterKind::ALL.iter().map(|kind| kind.name()).collect(),
        FilterKey::Status => FilterStatus::ALL.iter().map(|status| status.name()).collect(),
        FilterKey::By => RequestSource::ALL.iter().map(|source| source.name()).chain([NOBODY]).collect(),
        FilterKey::Since => vec!["1h", "1d", "7d", "30d"],
        FilterKey::Client | FilterKey::Folder | FilterKey::Thread => Vec::new(),
    }
}

/// The known names for keys that take any name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilterChoices {
    pub clients: Vec<String>,
    pub folders: Vec<String>,
    pub threads: Vec<String>,
}

/// Most completions that are offered.
const COMPLETIONS_MAX: usize = 50;

/// The texts that complete this one at its end: its last word as a key or as the value of one.
pub fn complete(text: &str, choices: &FilterChoices) -> Vec<String> {
    let (mut rest, mut last) = (text, None);
    while let Some((piece, after)) = piece(rest) {
        last = Some((text.len() - rest.trim_start().len(), piece));
        rest = after;
    }
    // Behind a blank a new word begins.
    let (at, word) = match last {
        Some((at, Piece::Word(_) | Piece::Token { .. })) if rest.is_empty() => (at, &text[at..]),
        Some((_, Piece::Phrase { .. })) if rest.is_empty() => return Vec::new(),
        Some(_) | None => (text.len(), ""),
    };
    let before = &text[..at];
    let lower = word.to_lowercase();
    let offered: Vec<String> = match lower.split_once(':').and_then(|(key, value)| Some((of_name(key)?, value))) {
        None => FilterKey::ALL.into_iter().map(|key| format!("{}:", key.name())).collect(),
        Some((key, _)) => {
            let own: Vec<String> = values(key).into_iter().map(str::to_owned).collect();
            let known = match key {
                FilterKey::Client => &choices.clients,
                FilterKey::Folder => &choices.folders,
                FilterKey::Thread => &choices.threads,
                FilterKey::Kind | FilterKey::Status | FilterKey::Since | FilterKey::By => &own,
            };
            let quoted = |value: &String| match value.contains(char::is_whitespace) {
                true => format!("\"{value}\""),
                false => value.clone(),
            };
            let is_sound = |value: &&String| !value.contains('"') && !value.is_empty();
            known.iter().filter(is_sound).map(|value| format!("{}:{}", key.name(), quoted(value))).collect()
        }
    };
    let begins = |offer: &String| offer.to_lowercase().starts_with(&lower) && offer.len() > word.len();
    let offered = offered.into_iter().filter(begins).take(COMPLETIONS_MAX);
    offered.map(|offer| format!("{before}{offer}")).collect()
}
