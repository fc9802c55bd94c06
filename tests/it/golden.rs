//! Golden files: what is seen of codex-shim from outside, byte by byte. The files of `fixtures/golden` have each request and its answer,
//! and a test compares each file whole with what it gets.
//!
//! What a test gets is also in `target/golden`. After a change on purpose, look at the difference, and copy the file from there.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use regex::Regex;

use crate::golden_text::{Names, Stored};
use crate::support::both_ends::http_asked;
use crate::support::history::{EVENTS, Stream};
use crate::support::shim::Home;

/// The files, and nothing else is in the folder.
pub const FILES: &[&str] = &[
    "fleet",
    "hub",
    "live-tools",
    "old-home",
    "other-tools",
    "page",
    "relay",
    "serve",
    "stored-home",
    "stored-home-changes",
];

/// Headers of a response that a caller acts on.
const HEADERS: [&str; 6] =
    ["content-type: ", "allow: ", "upgrade: ", "retry-after: ", "cache-control: ", "set-cookie: "];

/// How much of a long body an entry has.
const BODY_CHARS_MAX: usize = 1_000;

/// A file that is compared with what a test has got.
pub struct Golden {
    name: &'static str,
    text: String,
    pub names: Names,
}

impl Golden {
    /// The file of this name; `stored` is the home that the test reads, if there is one.
    pub fn new(name: &'static str, stored: Option<Stored>) -> Golden {
        assert!(FILES.contains(&name), "{name} is not in the list of the files");
        Golden { name, text: String::new(), names: Names::new(stored) }
    }

    /// Gives the folders of a home their names.
    pub fn know_home(&mut self, home: &Home) {
        self.know_home_of("", home);
    }

    /// The same for one of several homes.
    pub fn know_home_of(&mut self, whose: &str, home: &Home) {
        self.names.know(home.path().display().to_string(), &format!("home{whose}"));
        self.names.know(home.beside().display().to_string(), &format!("root{whose}"));
        self.names.know(home.beside().file_name().expect("a name").to_string_lossy(), &format!("folder{whose}"));
        self.names.know("/usr/bin/sh", "sh");
        self.names.know("/bin/sh", "sh");
    }

    /// Begins an entry.
    pub fn entry(&mut self, request: &str) {
        let request = self.names.text(request);
        self.text.push_str(&format!("=== {request}\n"));
    }

    /// A part of an entry.
    pub fn add(&mut self, text: &str) {
        let text = self.names.body(text);
        self.put(&text);
    }

    fn put(&mut self, text: &str) {
        self.text.push_str(text);
        if !text.is_empty() && !text.ends_with('\n') {
            self.text.push_str("\\ no line feed at the end\n");
        }
    }

    /// Runs a tool, and takes its exit status and all that it prints.
    pub fn tool(&mut self, shell: &Shell<'_>, words: &[&str]) -> Output {
        self.tool_of(shell, words, Names::body)
    }

    /// The same for a tool that prints nothing that differs from run to run, except for paths.
    pub fn exact_tool(&mut self, shell: &Shell<'_>, words: &[&str]) -> Output {
        self.tool_of(shell, words, Names::exact)
    }

    fn tool_of(&mut self, shell: &Shell<'_>, words: &[&str], named: fn(&mut Names, &str) -> String) -> Output {
        let output = shell.command(words).output().expect("the tool runs");
        self.output(&quoted(words), &output, named);
        output
    }

    /// What a tool has printed that was started with these words.
    pub fn output(&mut self, words: &str, output: &Output, named: fn(&mut Names, &str) -> String) {
        self.entry(&format!("codex-shim {words}"));
        let code = output.status.code().map_or_else(|| "a signal".to_owned(), |code| code.to_string());
        self.text.push_str(&format!("exit {code}\n"));
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it is UTF-8");
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        let stdout = aligned(&stdout, &named(&mut self.names, &stdout));
        self.put(&stdout);
        if !stderr.is_empty() {
            let stderr = named(&mut self.names, &stderr);
            self.put(&format!("--- stderr\n{stderr}"));
        }
    }

    /// Asks a control socket; headers may follow `line`.
    pub fn ask(&mut self, who: &str, session: &Path, line: &str, body: &str) {
        let stream = http_asked(session, line, body.as_bytes());
        self.answered(who, line, body, stream);
    }

    /// The second half of [`Golden::ask`]: reads the response.
    pub fn answered(&mut self, who: &str, line: &str, body: &str, mut stream: UnixStream) {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it is answered");
        self.answer(who, line, body, &answer);
    }

    /// A request, and the response to it with its head.
    pub fn answer(&mut self, who: &str, line: &str, body: &str, answer: &str) {
        let mut lines = line.split("\r\n");
        self.entry(&format!("{}   of {who}", lines.next().unwrap_or_default()));
        for header in lines {
            self.text.push_str(&format!("> {header}\n"));
        }
        if !body.is_empty() {
            let body = self.names.text(body.get(..BODY_CHARS_MAX).unwrap_or(body));
            self.text.push_str(&format!("> {body}\n"));
        }
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).expect("a status");
        self.text.push_str(&format!("{status}\n"));
        for line in head.lines().filter(|line| HEADERS.iter().any(|name| line.starts_with(name))) {
            let line = self.names.text(line);
            self.text.push_str(&format!("{line}\n"));
        }
        self.add(body);
    }

    /// Events of a stream, up to the first one in which this text is.
    pub fn stream(&mut self, who: &str, session: &Path, (query, last_id): (&str, Option<&str>), until: &str) {
        let mut stream = Stream::open(session, query, last_id).begun();
        self.entry(&format!("GET {EVENTS}/stream?{query}   of {who}"));
        if let Some(id) = last_id {
            let id = self.names.text(id);
            self.text.push_str(&format!("> Last-Event-ID: {id}\n"));
        }
        loop {
            let sent = stream.next();
            let id = self.names.text(sent.id.as_deref().unwrap_or("none"));
            self.text.push_str(&format!("id: {id}\n"));
            self.add(&format!("{}\n", sent.text));
            if sent.text.contains(until) {
                return;
            }
        }
    }

    /// Compares all with the file.
    ///
    /// # Panics
    ///
    /// If they differ, with the first difference.
    pub fn check(self) {
        let name = format!("{}.txt", self.name);
        let expect = fs::read_to_string(folder().join(&name)).unwrap_or_default();
        if let Some(difference) = difference(&expect, &self.text) {
            panic!("{name} is not as in fixtures/golden; what it is now is in target/golden:\n{difference}");
        }
    }
}

impl Drop for Golden {
    /// Leaves what the test has got, also if it ends in the middle.
    fn drop(&mut self) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/golden");
        let written = fs::create_dir_all(&folder);
        let written = written.and_then(|()| fs::write(folder.join(format!("{}.txt", self.name)), &self.text));
        assert!(written.is_ok() || std::thread::panicking(), "{}: {written:?}", folder.display());
    }
}

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/golden")
}

/// Waits until the clock shows another millisecond: what happened before it has an earlier time on record.
pub fn a_millisecond_later() {
    let now_ms = || SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_millis();
    let before = now_ms();
    while now_ms() <= before {
        std::thread::yield_now();
    }
}

/// The same for what is on record with the second only.
#[cfg(feature = "fleet")]
pub fn a_second_later() {
    let now_s = || SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs();
    let before = now_s();
    while now_s() <= before {
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
}

/// Where and as whom tools are run.
pub struct Shell<'a> {
    pub home: &'a Home,
    pub cwd: PathBuf,
    /// Further variables.
    pub variables: Vec<(&'static str, String)>,
}

impl Shell<'_> {
    pub fn beside(home: &Home) -> Shell<'_> {
        Shell { home, cwd: home.beside().to_owned(), variables: Vec::new() }
    }

    /// A tool with nothing of the machine in its environment.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = self.home.shim(words);
        command.env_clear().env("CODEX_SHIM_HOME", self.home.path()).env("HOME", self.home.beside());
        command.env("PATH", "/usr/bin:/bin").env("SHELL", "/bin/bash").env("TZ", "UTC").env("LC_ALL", "C.UTF-8");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.current_dir(&self.cwd).stdin(Stdio::null());
        command
    }
}

/// Words as one types them.
pub fn quoted(words: &[&str]) -> String {
    let quoted =
        words.iter().map(|word| match word.contains(|char: char| " '\"*$;".contains(char)) || word.is_empty() {
            true => format!("'{word}'"),
            false => (*word).to_owned(),
        });
    quoted.collect::<Vec<_>>().join(" ")
}

/// A table in which a name stands for a text of another length has other gaps in each run: two blanks stand for each.
fn aligned(before: &str, named: &str) -> String {
    if before == named {
        return named.to_owned();
    }
    let gap = Regex::new(r"(\S) {2,}").expect("BUG: it is valid");
    gap.replace_all(named, "$1  ").into_owned()
}

/// The first line in which two texts differ, with those before it from the beginning of its entry.
fn difference(expect: &str, got: &str) -> Option<String> {
    let (mut expect_lines, mut got_lines) = (expect.lines(), got.lines());
    let mut entry = Vec::new();
    loop {
        let (expected, found) = (expect_lines.next(), got_lines.next());
        if expected.is_none() && found.is_none() {
            return (expect != got).then(|| "one of them ends without a line feed".to_owned());
        }
        if expected == found {
            let line = expected.unwrap_or_default();
            if line.starts_with("=== ") {
                entry.clear();
            }
            entry.push(line);
            continue;
        }
        let before = entry.iter().enumerate().filter(|(at, _)| *at == 0 || at + 5 > entry.len());
        let before: String = before.map(|(_, line)| format!("  {line}\n")).collect();
        let line = |line: Option<&str>| line.unwrap_or("(the end)").to_owned();
        return Some(format!("{before}- {}\n+ {}", line(expected), line(found)));
    }
}

#[test]
fn no_golden_file_is_left_over() {
    let there = fs::read_dir(folder()).expect("a folder").map(|entry| entry.expect("a file").file_name());
    let there: BTreeSet<String> = there.map(|name| name.into_string().expect("UTF-8")).collect();
    assert_eq!(there, FILES.iter().map(|name| format!("{name}.txt")).collect());
}

#[test]
fn first_difference_is_named() {
    assert_eq!(difference("=== a\n1\n=== b\n2\n", "=== a\n1\n=== b\n2\n"), None);
    let differ = difference("=== a\n1\n=== b\n2\n3\n", "=== a\n1\n=== b\n2\n4\n");
    assert_eq!(differ.as_deref(), Some("  === b\n  2\n- 3\n+ 4"));
    assert_eq!(difference("=== a\n", "=== a\n1\n").as_deref(), Some("  === a\n- (the end)\n+ 1"));
    assert!(difference("=== a\n1\n", "=== a\n1").is_some());
}
