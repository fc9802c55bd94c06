//! Texts for golden files: JSON laid out with its members in their order, and stable names in the place of what differs from run to
//! run.
//!
//! A text is never parsed into a document and written again: numbers, escapes and the order of members stay as they are.

use std::ops::Range;

use regex::{Captures, Regex};

use crate::support::shim::SHIM;

/// A value that fits into so many columns stands on one line.
const COLUMNS_MAX: usize = 140;

/// A JSON value as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Json {
    /// A string with its quotes, a number, or a word.
    Scalar(String),
    List(Vec<Json>),
    /// Names with their quotes.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// The objects and lists of a text of JSON documents; `None` if it has anything else.
    fn all(text: &str) -> Option<Vec<Json>> {
        let (mut rest, mut all) = (text.trim_start(), Vec::new());
        while !rest.is_empty() {
            rest.starts_with(['{', '[']).then_some(())?;
            let value = Json::read(&mut rest)?;
            all.push(value);
            rest = rest.trim_start();
        }
        (!all.is_empty()).then_some(all)
    }

    fn read(rest: &mut &str) -> Option<Json> {
        *rest = rest.trim_start();
        match rest.chars().next()? {
            '[' => {
                let mut list = Vec::new();
                while take(rest, if list.is_empty() { '[' } else { ',' }) {
                    if list.is_empty() && rest.trim_start().starts_with(']') {
                        break;
                    }
                    list.push(Json::read(rest)?);
                }
                take(rest, ']').then_some(Json::List(list))
            }
            '{' => {
                let mut members = Vec::new();
                while take(rest, if members.is_empty() { '{' } else { ',' }) {
                    if members.is_empty() && rest.trim_start().starts_with('}') {
                        break;
                    }
                    *rest = rest.trim_start();
                    let name = scalar(rest)?;
                    let value = take(rest, ':').then(|| Json::read(rest))??;
                    members.push((name, value));
                }
                take(rest, '}').then_some(Json::Object(members))
            }
            _ => scalar(rest).map(Json::Scalar),
        }
    }

    /// The value with names in place of what differs. `member` is the name of the innermost member that it is in.
    fn named(self, member: &str, names: &mut Names) -> Json {
        match self {
            Json::Scalar(text) => Json::Scalar(names.scalar(member, &text)),
            Json::List(list) => Json::List(list.into_iter().map(|value| value.named(member, names)).collect()),
            Json::Object(members) => {
                let named = members.into_iter().map(|(name, value)| {
                    let value = value.named(name.trim_matches('"'), names);
                    (names.text(&name), value)
                });
                Json::Object(named.collect())
            }
        }
    }

    fn one_line(&self) -> String {
        self.line(" ")
    }

    /// The value in one line, with `blank` behind each comma and colon.
    fn line(&self, blank: &str) -> String {
        let comma = format!(",{blank}");
        match self {
            Json::Scalar(text) => text.clone(),
            Json::List(list) => {
                format!("[{}]", list.iter().map(|value| value.line(blank)).collect::<Vec<_>>().join(&comma))
            }
            Json::Object(members) => {
                let members = members.iter().map(|(name, value)| format!("{name}:{blank}{}", value.line(blank)));
                format!("{{{}}}", members.collect::<Vec<_>>().join(&comma))
            }
        }
    }

    /// What a reader of the bytes would see and the layout here does not show.
    fn bytes_differ(all: &[Json], text: &str) -> &'static str {
        let lines: String = all.iter().map(|json| json.line("") + "\n").collect();
        if text == lines {
            ""
        } else if text == lines.trim_end() {
            "\\ no line feed at the end\n"
        } else {
            "\\ with blanks of its own\n"
        }
    }

    /// The value at this depth, after `before` columns of its line.
    fn laid_out(&self, depth: usize, before: usize) -> String {
        let line = self.one_line();
        let (parts, marks): (Vec<String>, _) = match self {
            Json::List(list) if before + line.chars().count() > COLUMNS_MAX => {
                (list.iter().map(|value| value.laid_out(depth + 1, 2 * depth + 2)).collect(), ('[', ']'))
            }
            Json::Object(members) if before + line.chars().count() > COLUMNS_MAX => {
                let part = |(name, value): &(String, Json)| {
                    format!("{name}: {}", value.laid_out(depth + 1, 2 * depth + 4 + name.chars().count()))
                };
                (members.iter().map(part).collect(), ('{', '}'))
            }
            Json::Scalar(_) | Json::List(_) | Json::Object(_) => return line,
        };
        let indent = "  ".repeat(depth + 1);
        format!("{}\n{indent}{}\n{}{}", marks.0, filled(&parts, depth + 1), "  ".repeat(depth), marks.1)
    }
}

/// Values with commas between them: as many on a line as it has room for, and one of several lines on lines of its own.
fn filled(parts: &[String], depth: usize) -> String {
    let (mut text, mut columns, mut is_alone) = (String::new(), 2 * depth, true);
    for part in parts {
        let width = part.chars().count();
        let is_long = part.contains('\n');
        let begins = text.is_empty();
        if !begins {
            text.push(',');
        }
        match !begins && (is_long || is_alone || columns + 2 + width > COLUMNS_MAX) {
            true => {
                text.push_str(&format!("\n{}", "  ".repeat(depth)));
                columns = 2 * depth + width;
            }
            false => {
                text.push_str(if begins { "" } else { " " });
                columns += width + 2;
            }
        }
        text.push_str(part);
        is_alone = is_long;
    }
    text
}

fn take(rest: &mut &str, mark: char) -> bool {
    let found = rest.trim_start().strip_prefix(mark);
    found.inspect(|after| *rest = after).is_some()
}

/// A string, a number or a word at the beginning of a text.
fn scalar(rest: &mut &str) -> Option<String> {
    let end = match rest.strip_prefix('"') {
        Some(string) => {
            let mut is_escaped = false;
            let end = string.find(|char| {
                let is_end = char == '"' && !is_escaped;
                is_escaped = char == '\\' && !is_escaped;
                is_end
            });
            end? + 2
        }
        None => rest.find(|char: char| !char.is_ascii_alphanumeric() && !"+-.".contains(char)).unwrap_or(rest.len()),
    };
    let (scalar, after) = rest.split_at(end);
    *rest = after;
    let is_valid = scalar.starts_with(|char: char| char == '"' || char == '-' || char.is_ascii_digit())
        || ["true", "false", "null"].contains(&scalar);
    is_valid.then(|| scalar.to_owned())
}

/// What a stored home has: its ids and times are the same in each run, and stay.
#[derive(Debug)]
pub struct Stored {
    /// All that stands in its files.
    pub text: String,
    /// When it was recorded, and other times in it, as RFC 3339.
    pub times: Vec<Range<&'static str>>,
    /// A relay goes on in it.
    pub is_live: bool,
}

/// Names for what differs from run to run.
#[derive(Debug)]
pub struct Names {
    /// Texts that a test knows, with their names.
    known: Vec<(String, String)>,
    /// The ends of ids of runs, by which requests are named, and numbers of processes, with their names.
    words: Vec<(Regex, String)>,
    /// Ids that no test knows, by their first occurrence.
    ids: Vec<String>,
    either: &'static [&'static str],
    stored: Option<Stored>,
    patterns: Vec<(Pattern, Regex)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pattern {
    /// The folder depends on `TMPDIR`.
    Reach,
    Socket,
    /// RFC 3339, or the same without a zone.
    Time,
    /// A time of a clock, with the date if it is of another day.
    Clock,
    Day,
    /// The place of a record in a journal.
    Place,
    Uuid,
    Hash,
    /// A run or an epoch.
    Run,
    /// The id of a call of codex-shim to a server.
    Call,
    /// The place of a record in the key of an entry of the page.
    Key,
    /// The place of a tab in a stream of the page: a time and a number.
    Tab,
    /// A metric that counts bytes or time.
    Metric,
    Seconds,
    /// The terminal in the name of a client.
    Terminal,
    Caller,
    Age,
    Size,
    /// Of the server of a fleet.
    Nats,
    /// Of codex-shim. A stored home has that of its day.
    Version,
}

const PATTERNS: [(Pattern, &str); 20] = [
    (Pattern::Socket, r"/tmp/codex-(?:daemon|shim)-\d+/[0-9A-Za-z_.-]+"),
    (Pattern::Time, r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z?"),
    (Pattern::Clock, r"(?:\d{4}-\d\d-\d\d )?\b\d\d:\d\d:\d\d\b"),
    (Pattern::Day, r"\b\d{4}-\d\d-\d\d\b"),
    (Pattern::Place, r"(\b[0-9a-f]{12}|<[0-9a-z-]+>):(\d+):(\d+)\b"),
    (Pattern::Uuid, r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"),
    (Pattern::Hash, r"\b[0-9a-f]{64}\b"),
    (Pattern::Run, r"\b[0-9a-f]{12}\b"),
    (Pattern::Key, r"\.(\d{10})\.\d{20}\.(\d{5})\b"),
    (Pattern::Tab, r"\b\d{16}\.\d+\b"),
    (Pattern::Terminal, r", pts/\d+"),
    (Pattern::Metric, r"(?m)^(codex_shim_\S*(?:bytes|seconds)\S*) [0-9.]+$"),
    (Pattern::Seconds, r"(?m) \d+\.\d{3}( |$)"),
    (Pattern::Call, r"\bcodex-shim:[0-9a-f]{8}\b"),
    (Pattern::Caller, r"\buid \d+, pid \d+\b|\b(?:uid|pid)[ =]\d+\b"),
    (Pattern::Age, r"\b\d+(?:years?|months?|days?|h|m|s|ms|us)(?: \d+(?:months?|days?|h|m|s|ms))*\b"),
    (Pattern::Size, r"\b\d+(?:\.\d+)? (?:B|KiB|MiB|GiB)\b"),
    (Pattern::Nats, r"nats-server \d[0-9.]*\d"),
    (Pattern::Reach, r"(?:/tmp|<root>) is a folder where the model may write"),
    (Pattern::Version, concat!(r"\b(?:0\.2\.0|", env!("CARGO_PKG_VERSION"), r")\b")),
];

/// Members whose number differs from run to run, wherever they stand: times, durations, and sizes of texts with paths in them.
const OF_A_RUN: [&str; 17] = [
    "at",
    "at_us",
    "byte_offset",
    "bytes",
    "client_bytes",
    "journal_appended_bytes",
    "lag_ms",
    "latency_ms",
    "line_bytes",
    "ms",
    "pid",
    "server_bytes",
    "took_ms",
    "uid",
    "waiting_bytes",
    "waiting_ms",
    "working_ms",
];

/// Those of them that also differ if they are read from a stored home.
const OF_EACH_READ: [&str; 3] = ["lag_ms", "pid", "took_ms"];

impl Names {
    pub fn new(stored: Option<Stored>) -> Names {
        let patterns = PATTERNS.map(|(pattern, text)| (pattern, Regex::new(text).expect("BUG: it is valid"))).to_vec();
        let known = vec![(SHIM.to_owned(), "<codex-shim>".to_owned())];
        Names { known, words: Vec::new(), either: &[], ids: Vec::new(), stored, patterns }
    }

    /// Gives a text a name; one that it has already stays.
    pub fn know(&mut self, text: impl Into<String>, name: &str) {
        let text = text.into();
        if text.is_empty() || self.known.iter().any(|(known, _)| *known == text) {
            return;
        }
        self.known.push((text, format!("<{name}>")));
        // A path before the folder that it is in.
        self.known.sort_by_key(|(known, _)| std::cmp::Reverse(known.len()));
    }

    /// The same for a run of a server. Its requests are named by its id, whole or by the end of it.
    pub fn know_run(&mut self, id: &str, name: &str) {
        self.know(id, name);
        let end = Regex::new(&format!(r"\b{}-(\d+|[sh]\.)", &id[8..])).expect("BUG: it is valid");
        self.words.push((end, format!("<{name}>-$1")));
    }

    /// The same for the number of a process or a port.
    pub fn know_number(&mut self, number: u32, name: &str) {
        let number = Regex::new(&format!(r"\b{number}\b")).expect("BUG: it is valid");
        self.words.push((number, format!("<{name}>")));
    }

    /// Members that from now on may be `null` or not, as far as the product has come by then.
    pub fn either(&mut self, members: &'static [&'static str]) {
        self.either = members;
    }

    /// Documents of JSON laid out, one after the other; any other text with its lines as they are.
    pub fn body(&mut self, text: &str) -> String {
        match Json::all(text) {
            Some(all) => {
                let differ = Json::bytes_differ(&all, text);
                all.into_iter().map(|json| json.named("", self).laid_out(0, 0) + "\n").collect::<String>() + differ
            }
            None => self.text(text),
        }
    }

    /// The same without any name but those that a test has given, for texts that have no time in them.
    pub fn exact(&mut self, text: &str) -> String {
        let known =
            |text: &str| self.known.iter().fold(text.to_owned(), |text, (known, name)| text.replace(known, name));
        let text = known(text);
        match Json::all(&text) {
            Some(all) => {
                let lines: String = all.iter().map(|json| json.laid_out(0, 0) + "\n").collect();
                lines + Json::bytes_differ(&all, &text)
            }
            None => text,
        }
    }

    fn scalar(&mut self, member: &str, text: &str) -> String {
        if self.either.contains(&member) || (member == "terminal" && !self.is_stored()) {
            return format!("<{member} or null>");
        }
        let is_number = text.starts_with(|char: char| char.is_ascii_digit() || char == '-');
        if !is_number {
            return self.text(text);
        }
        let is_named = match &self.stored {
            Some(Stored { is_live: false, .. }) => {
                OF_EACH_READ.contains(&member) && !self.has(&format!("\"{member}\":{text}"))
            }
            Some(_) | None => OF_A_RUN.contains(&member),
        };
        if is_named { format!("<{member}>") } else { text.to_owned() }
    }

    /// A text in one or more lines.
    pub fn text(&mut self, text: &str) -> String {
        let mut text = self.known.iter().fold(text.to_owned(), |text, (known, name)| text.replace(known, name));
        for (pattern, regex) in self.patterns.clone() {
            text = regex.replace_all(&text, |found: &Captures<'_>| self.name_of(pattern, found)).into_owned();
        }
        self.words.iter().fold(text, |text, (end, name)| end.replace_all(&text, name).into_owned())
    }

    /// Whether all that is read has been stored before.
    fn is_stored(&self) -> bool {
        self.stored.as_ref().is_some_and(|stored| !stored.is_live)
    }

    /// Whether this is in the stored home, and not only the beginning of a longer word.
    fn has(&self, text: &str) -> bool {
        let Some(Stored { text: stored, .. }) = &self.stored else { return false };
        let is_whole =
            |(at, _): (usize, &str)| !stored[at + text.len()..].starts_with(|char: char| char.is_alphanumeric());
        stored.match_indices(text).any(is_whole)
    }

    /// An id that a stored home has, or its number.
    fn id(&mut self, id: &str) -> String {
        if self.has(id) {
            return id.to_owned();
        }
        let number = self.ids.iter().position(|known| known == id).unwrap_or_else(|| {
            self.ids.push(id.to_owned());
            self.ids.len() - 1
        });
        format!("<id-{}>", number + 1)
    }

    fn name_of(&mut self, pattern: Pattern, found: &Captures<'_>) -> String {
        let whole = &found[0];
        match pattern {
            Pattern::Socket => "<socket>".to_owned(),
            Pattern::Time | Pattern::Day => {
                let is_in = |Range { start, end }: &Range<&str>| {
                    start.get(..whole.len()).unwrap_or(start) <= whole && whole <= *end
                };
                match self.stored.as_ref().is_some_and(|stored| stored.times.iter().any(is_in)) {
                    true => whole.to_owned(),
                    false if pattern == Pattern::Time => "<time>".to_owned(),
                    false => "<day>".to_owned(),
                }
            }
            Pattern::Clock => "<clock>".to_owned(),
            Pattern::Place => {
                let offset = if self.has(&found[1]) { &found[3] } else { "<offset>" };
                let run = if found[1].starts_with('<') { found[1].to_owned() } else { self.id(&found[1]) };
                format!("{run}:{}:{offset}", &found[2])
            }
            Pattern::Uuid | Pattern::Run => self.id(whole),
            Pattern::Hash => "<hash>".to_owned(),
            Pattern::Key => format!(".{}.<offset>.{}", &found[1], &found[2]),
            Pattern::Tab => "<began>.<change>".to_owned(),
            // A test may be run at a terminal or not.
            Pattern::Terminal if !self.is_stored() => String::new(),
            Pattern::Seconds if !self.is_stored() => format!(" <seconds>{}", &found[1]),
            Pattern::Terminal | Pattern::Seconds => whole.to_owned(),
            Pattern::Metric => format!("{} <number>", &found[1]),
            Pattern::Call if self.has(whole) => whole.to_owned(),
            Pattern::Call => "codex-shim:<salt>".to_owned(),
            // Another user may run the tests, so an id of a user alone says nothing.
            Pattern::Caller if whole.contains(',') && self.has(whole) => whole.to_owned(),
            Pattern::Caller if whole.contains(',') => "uid <uid>, pid <pid>".to_owned(),
            Pattern::Caller => format!("{}<{}>", &whole[..4], &whole[..3]),
            Pattern::Age => "<age>".to_owned(),
            // What is stored has its size in each run; the disk has not.
            Pattern::Size if self.is_stored() && !whole.ends_with("GiB") => whole.to_owned(),
            Pattern::Size => "<size>".to_owned(),
            Pattern::Nats => "nats-server <version>".to_owned(),
            Pattern::Reach => "<folder> is a folder where the model may write".to_owned(),
            Pattern::Version => "<version>".to_owned(),
        }
    }
}

#[test]
fn json_keeps_order_and_spelling() {
    let mut names = Names::new(None);
    let mut check = |text: &str, expect: &str| assert_eq!(names.body(text), expect);
    check("{\"b\":1.0e0,\"a\":[\"\\u0061\",{}],\"c\":[]}\n", "{\"b\": 1.0e0, \"a\": [\"\\u0061\", {}], \"c\": []}\n");
    check("{\"a\":1}\n{\"b\":2}\n", "{\"a\": 1}\n{\"b\": 2}\n");
    check("{\"a\": 1}\n", "{\"a\": 1}\n\\ with blanks of its own\n");
    check("{\"a\":1}", "{\"a\": 1}\n\\ no line feed at the end\n");
    let long = "x".repeat(COLUMNS_MAX);
    check(
        &format!("{{\"a\":1,\"b\":\"{long}\",\"c\":{{\"d\":[\"{long}\"]}}}}\n"),
        &format!(
            "{{\n  \"a\": 1,\n  \"b\": \"{long}\",\n  \"c\": {{\n    \"d\": [\n      \"{long}\"\n    ]\n  }}\n}}\n"
        ),
    );
    for text in ["no JSON\n", "{\"a\":1} and more\n", "{\"a\":nothing}\n", "[1,\n", "1\n", ""] {
        check(text, text);
    }
}

#[test]
fn names_stand_for_what_differs() {
    let mut names = Names::new(None);
    names.know("/tmp/x", "root");
    names.know("/tmp/x/home", "home");
    names.know_run("6b0bf71cd0eb", "run");
    names.know_number(31, "pid-of-it");
    let mut check = |text: &str, expect: &str| assert_eq!(names.body(text), expect);
    check("/tmp/x/home/a and /tmp/x/b", "<home>/a and <root>/b");
    check("6b0bf71cd0eb-0, d0eb-12, d0eb-s.x, d0eb-y", "<run>-0, <run>-12, <run>-s.x, d0eb-y");
    check("6b0bf71cd0eb:2:4000 0123456789ab:1:7", "<run>:2:<offset> <id-1>:1:<offset>");
    check("{\"pid\":7,\"lag_ms\":0,\"seq\":7}\n", "{\"pid\": <pid>, \"lag_ms\": <lag_ms>, \"seq\": 7}\n");
    check("at 2026-01-02T03:04:05.006Z, 310 and 31", "at <time>, 310 and <pid-of-it>");
    check("0123456789ab cdef01234567 0123456789ab", "<id-1> <id-2> <id-1>");
    check("1h 2m ago, 2026-01-02 03:04:05 UTC, uid 7, pid 8", "<age> ago, <clock> UTC, uid <uid>, pid <pid>");
}

#[test]
fn what_is_stored_stays() {
    let text = "\"epoch\":\"0123456789ab\" \"pid\":7 uid 1, pid 7".to_owned();
    let times = vec!["2026-01-02T03:00:00Z".."2026-01-02T04:00:00Z"];
    let mut names = Names::new(Some(Stored { text, times, is_live: false }));
    let mut check = |text: &str, expect: &str| assert_eq!(names.body(text), expect);
    check("0123456789ab:1:7 ffffffffffff:1:7", "0123456789ab:1:7 <id-1>:1:<offset>");
    check("2026-01-02T03:04:05.006Z 2026-01-02T05:00:00Z", "2026-01-02T03:04:05.006Z <time>");
    check("{\"pid\":7,\"at\":1}\n{\"pid\":8}\n", "{\"pid\": 7, \"at\": 1}\n{\"pid\": <pid>}\n");
    check("uid 1, pid 7; uid 1, pid 8; uid 1; pid=7", "uid 1, pid 7; uid <uid>, pid <pid>; uid <uid>; pid=<pid>");
    check("\"pid\":70 {\"epoch\":\"0123456789\"}", "\"pid\":70 {\"epoch\":\"0123456789\"}");
}
