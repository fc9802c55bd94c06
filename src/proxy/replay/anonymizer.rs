//! Removes machine-specific data from records: paths, names, ids and times. Each value is replaced by the same
//! placeholder everywhere; all other bytes stay the same.
//!
//! Pure: facts about the machine come in as [`Machine`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use regex::{Captures, Regex};

use super::homes::{Begins, USER_NAME, replace_path};
use crate::secrets::names_secret;
use crate::secrets::redacted;
use crate::wire::{TokenKind, tokens};

/// The first second of every tape: 2026-01-01T00:00:00Z, in seconds since the Unix epoch.
pub(super) const TAPE_BEGINS_S: i64 = 1_767_225_600;

/// The placeholder of a secret.
const MASK: &str = "[redacted]";

/// How far from the start of a recording a number may be and still count as one of its times, in seconds.
pub(super) const NEAR_S: i64 = 400 * 86_400;

const SECONDS_OF_DAY: i64 = 86_400;

/// The placeholder of the recording's working directory.
const CWD: &str = "/home/user/project";
pub(super) const HOME: &str = "/home/user";
const CODEX_HOME: &str = "/home/user/.codex";
const CODEX: &str = "/usr/local/bin/codex";
const SHIM_HOME: &str = "/home/user/.local/state/codex-shim";
const SESSION_DIR: &str = "/home/user/.local/state/codex-shim/sessions/tape";

/// All path placeholders; each stands before those that are its prefixes.
pub(super) const PATHS: [&str; 6] = [SESSION_DIR, SHIM_HOME, CODEX_HOME, CWD, CODEX, HOME];

static UUID: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"));
static DATE_TIME: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b(\d{4}-\d{2}-\d{2})T(\d{2})([:-])(\d{2})[:-](\d{2})"));
static DATE_PATH: LazyLock<Regex> = LazyLock::new(|| pattern(r"/(\d{4})/(\d{2})/(\d{2})\b"));
static LOOPBACK: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b(127\.0\.0\.1|localhost):\d{2,5}\b"));
/// The characters before a path that begins here; a `/` within a path is not one of them.
const PATH_BEGINS: &str = r#"(?<before>^|file://|[\s"'`=:;,(<>\[{|&])"#;
static HOME_OF_SOMEONE: LazyLock<Regex> =
    LazyLock::new(|| pattern(&format!(r"{PATH_BEGINS}/(?:home|Users)/{USER_NAME}")));
static TEMPORARY: LazyLock<Regex> = LazyLock::new(|| {
    let name = r#"[^/\s"'`;:,()<>\[\]{}|&\\]+"#;
    pattern(&format!(r"{PATH_BEGINS}(?<folder>(?:/private)?(?:/var/folders/[^/\s]+/[^/\s]+/T|/tmp)/{name})"))
});

/// Beginning of the names of settings of one project, as codex tells their origins.
const PROJECT_SETTINGS: &str = "projects.";

pub(super) fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("BUG: the pattern is a regular expression")
}

/// Facts about the machine of a recording.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// The working directory of the recording.
    pub cwd: String,
    /// The server's program.
    pub codex: String,
    pub home: Option<String>,
    pub shim_home: Option<String>,
    /// The session that was recorded.
    pub session: String,
    pub host: Option<String>,
    /// The start of the recording, in microseconds since the Unix epoch.
    pub began_us: u64,
}

/// Maps the records of one recording, in order.
#[derive(Debug)]
pub struct Anonymizer {
    /// Paths to replace, longest first, with their placeholders; each also as the beginning of a longer path.
    paths: Vec<(String, &'static str)>,
    /// The host's name. It is replaced as a whole string, and within a text only if it is too long to be a common word.
    host: Option<String>,
    host_word: Option<Regex>,
    ids: HashMap<String, String>,
    temporary: HashMap<String, String>,
    began_s: i64,
    redacts: Redaction,
    /// The current record had a secret masked.
    has_masked: bool,
}

/// Whether apparent secrets are masked too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redaction {
    Masked,
    Left,
}

impl Anonymizer {
    /// An anonymizer for one recording.
    #[must_use]
    pub fn new(machine: Machine, redacts: Redaction) -> Anonymizer {
        let host = machine.host.filter(|host| !host.is_empty() && host != "localhost");
        let long = host.as_deref().filter(|host| host.len() > 3);
        let mut anonymizer = Anonymizer {
            paths: Vec::new(),
            host_word: long.map(|host| pattern(&format!(r"\b{}\b", regex::escape(host)))),
            host,
            ids: HashMap::new(),
            temporary: HashMap::new(),
            began_s: (machine.began_us / 1_000_000) as i64,
            redacts,
            has_masked: false,
        };
        anonymizer.learn_path(machine.cwd, CWD);
        anonymizer.learn_path(machine.codex, CODEX);
        anonymizer.learn_path(machine.home.unwrap_or_default(), HOME);
        let shim_home = machine.shim_home.unwrap_or_default();
        anonymizer.learn_path(format!("{shim_home}/sessions/{}", machine.session), SESSION_DIR);
        anonymizer.learn_path(shim_home, SHIM_HOME);
        anonymizer
    }

    /// Adds the home of codex, which the server sends in the response to `initialize`.
    pub fn learn_codex_home(&mut self, path: String) {
        self.learn_path(path, CODEX_HOME);
    }

    fn learn_path(&mut self, path: String, stands_for_it: &'static str) {
        if path.len() > 1 && path.starts_with('/') {
            self.paths.push((path, stands_for_it));
            self.paths.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        }
    }

    /// Anonymizes a record: one line of a journal without its `\n`.
    #[must_use]
    pub fn record(&mut self, record: &str) -> String {
        let kind = RecordKind::of(record);
        self.has_masked = false;
        let mut mapped = String::with_capacity(record.len());
        let (mut copied, mut name) = (0, "");
        for token in tokens(record) {
            let text = &record[token.range.clone()];
            let replacement = match token.kind {
                TokenKind::Name => {
                    name = text;
                    self.quoted(text)
                }
                TokenKind::Number if kind == RecordKind::OfShim && name == "\"pid\"" => Some("1".to_owned()),
                TokenKind::Number => self.number(text),
                TokenKind::Text => self.string(kind, name, text),
            };
            if let Some(replacement) = replacement {
                mapped.push_str(&record[copied..token.range.start]);
                mapped.push_str(&replacement);
                copied = token.range.end;
            }
        }
        mapped.push_str(&record[copied..]);
        // `codex-shim redact` masks a record in place and cannot mark it as masked.
        if (self.has_masked || mapped.contains(MASK)) && kind.is_line(record) && !is_marked(&mapped) {
            mapped.truncate(mapped.len() - 1);
            mapped.push_str(",\"masked\":true}");
        }
        mapped
    }

    /// Moves a number that is a time, judged by its size.
    fn number(&self, text: &str) -> Option<String> {
        let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, rest)| (whole, Some(rest)));
        let unit = match whole.len() {
            10 => 1,
            13 => 1_000,
            16 => 1_000_000,
            _ => return None,
        };
        let shifted = self.shifted(whole.parse::<i64>().ok()?, unit)?;
        Some(fraction.map_or_else(|| shifted.to_string(), |fraction| format!("{shifted}.{fraction}")))
    }

    /// Moves a time of `unit` ticks a second to the tape's; `None` if it is not a time of the recording.
    fn shifted(&self, time: i64, unit: i64) -> Option<i64> {
        let near = (time / unit - self.began_s).abs() <= NEAR_S;
        near.then_some(time + (TAPE_BEGINS_S - self.began_s) * unit)
    }

    fn string(&mut self, kind: RecordKind, name: &str, quoted: &str) -> Option<String> {
        match (kind, name) {
            (RecordKind::Header, "\"session\"") => Some("\"tape\"".to_owned()),
            (RecordKind::Header, "\"generation\"") => Some("\"000000000001\"".to_owned()),
            (RecordKind::OfBytes, "\"base64\"") => self.bytes(quoted),
            // A command's output; a member of this name that is not Base64 is plain text.
            (_, "\"deltaBase64\"") => self.bytes(quoted),
            (_, "\"chunk\"") => {
                self.text_in_base64(quoted).or_else(|| self.quoted(quoted)).or_else(|| self.bytes(quoted))
            }
            _ if self.redacts == Redaction::Masked && names_secret(name) && quoted.len() > 2 => {
                self.has_masked = true;
                Some("\"[redacted]\"".to_owned())
            }
            _ => self.quoted(quoted),
        }
    }

    fn quoted(&mut self, quoted: &str) -> Option<String> {
        let inner = quoted.get(1..quoted.len().checked_sub(1)?)?;
        let text: Cow<'_, str> =
            if inner.contains('\\') { Cow::Owned(serde_json::from_str(quoted).ok()?) } else { Cow::Borrowed(inner) };
        let mapped = self.text(&text);
        (mapped != text).then(|| serde_json::Value::String(mapped).to_string())
    }

    /// Maps a line that is not UTF-8, by treating each byte as one character.
    fn bytes(&mut self, quoted: &str) -> Option<String> {
        let line = BASE64_STANDARD.decode(quoted.trim_matches('"')).ok()?;
        let text: String = line.iter().map(|byte| char::from(*byte)).collect();
        let mapped = self.text(&text);
        let line: Vec<u8> = mapped.chars().map(|char| u8::try_from(char).unwrap_or(b'?')).collect();
        Some(format!("\"{}\"", BASE64_STANDARD.encode(line)))
    }

    /// Maps output in Base64; `None` if it does not decode to text, for example a word that only looks like Base64.
    fn text_in_base64(&mut self, quoted: &str) -> Option<String> {
        let text = String::from_utf8(BASE64_STANDARD.decode(quoted.trim_matches('"')).ok()?).ok()?;
        Some(format!("\"{}\"", BASE64_STANDARD.encode(self.text(&text))))
    }

    fn text(&mut self, text: &str) -> String {
        if self.host.as_deref() == Some(text) {
            return "host".to_owned();
        }
        // The name of a setting of one project: its dots are not those of the path.
        if let Some(rest) = text.strip_prefix(PROJECT_SETTINGS)
            && let Some((path, setting)) = rest.rsplit_once('.').filter(|(path, _)| path.starts_with('/'))
        {
            return format!("{PROJECT_SETTINGS}{}.{setting}", self.text(path));
        }
        let mut text = text.to_owned();
        for (path, stands_for_it) in &self.paths {
            text = replace_path(&text, path, stands_for_it, Begins::AtPath);
        }
        text = HOME_OF_SOMEONE.replace_all(&text, format!("${{before}}{HOME}")).into_owned();
        text = TEMPORARY.replace_all(&text, |found: &Captures<'_>| self.temporary(found)).into_owned();
        text = UUID.replace_all(&text, |found: &Captures<'_>| self.id(&found[0])).into_owned();
        text = DATE_TIME.replace_all(&text, |found: &Captures<'_>| self.date_time(found)).into_owned();
        text = DATE_PATH.replace_all(&text, |found: &Captures<'_>| self.date_path(found)).into_owned();
        text = LOOPBACK.replace_all(&text, "$1:8080").into_owned();
        if let Some(host) = &self.host_word {
            text = host.replace_all(&text, "host").into_owned();
        }
        match self.redacts {
            Redaction::Masked => match redacted(&text) {
                Some(redacted) => {
                    self.has_masked = true;
                    redacted
                }
                None => text,
            },
            Redaction::Left => text,
        }
    }

    /// The placeholder of an id: a UUID numbered by first appearance.
    fn id(&mut self, id: &str) -> String {
        let next = self.ids.len() + 1;
        self.ids.entry(id.to_ascii_lowercase()).or_insert_with(|| format!("00000000-0000-7000-8000-{next:012}")).clone()
    }

    /// The placeholder of a temporary folder or file, numbered by first appearance.
    fn temporary(&mut self, found: &Captures<'_>) -> String {
        let next = self.temporary.len() + 1;
        let stands_for_it =
            self.temporary.entry(found["folder"].to_owned()).or_insert_with(|| format!("/tmp/tape-{next}"));
        format!("{}{stands_for_it}", &found["before"])
    }

    fn date_time(&self, found: &Captures<'_>) -> String {
        let plain = format!("{}T{}:{}:{}Z", &found[1], &found[2], &found[4], &found[5]);
        let moved = seconds_of(&plain).and_then(|seconds| self.shifted(seconds, 1));
        let Some(moved) = moved.and_then(rfc3339) else { return found[0].to_owned() };
        let (date, time) = moved.split_at(10);
        format!("{date}{}", time.trim_end_matches('Z').replace(':', &found[3]))
    }

    /// Moves a date in a path by whole days, together with the day of the recording.
    fn date_path(&self, found: &Captures<'_>) -> String {
        let midnight = seconds_of(&format!("{}-{}-{}T00:00:00Z", &found[1], &found[2], &found[3]));
        let days = TAPE_BEGINS_S / SECONDS_OF_DAY - self.began_s / SECONDS_OF_DAY;
        let near = midnight.filter(|midnight| (midnight - self.began_s).abs() <= NEAR_S);
        match near.and_then(|midnight| rfc3339(midnight + days * SECONDS_OF_DAY)) {
            Some(moved) => format!("/{}", moved[..10].replace('-', "/")),
            None => found[0].to_owned(),
        }
    }
}

/// The kinds of records that are treated differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordKind {
    Header,
    /// An action of codex-shim.
    OfShim,
    /// A line that is not UTF-8.
    OfBytes,
    /// Any other line.
    Other,
}

impl RecordKind {
    fn of(record: &str) -> RecordKind {
        if record.starts_with("{\"journal\":") {
            return RecordKind::Header;
        }
        // codex-shim writes the records, so their members have a fixed order; a line follows its sender.
        let rest = record.split_once("\"from\":\"").map_or("", |(_, rest)| rest);
        if rest.starts_with("shim\",\"event\"") {
            RecordKind::OfShim
        } else if rest.starts_with("client\",\"base64\"") || rest.starts_with("server\",\"base64\"") {
            RecordKind::OfBytes
        } else {
            RecordKind::Other
        }
    }
}

impl RecordKind {
    /// Whether a record of this kind contains a line.
    fn is_line(self, record: &str) -> bool {
        matches!(self, RecordKind::OfBytes | RecordKind::Other)
            && record.contains("\"from\":\"")
            && record.ends_with('}')
    }
}

/// Whether a record is marked as containing masks.
fn is_marked(record: &str) -> bool {
    record.trim_end_matches(",\"eol\":false}").trim_end_matches('}').ends_with(",\"masked\":true")
}

fn seconds_of(rfc3339: &str) -> Option<i64> {
    let time = humantime::parse_rfc3339(rfc3339).ok()?;
    time.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs() as i64)
}

fn rfc3339(seconds: i64) -> Option<String> {
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).ok()?))?;
    Some(humantime::format_rfc3339_seconds(time).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(record: &str, expect: &str) {
        let machine = Machine {
            cwd: "/srv/secret/site".to_owned(),
            codex: "/opt/x/codex".to_owned(),
            home: Some("/var/ann".to_owned()),
            shim_home: Some("/var/ann/state".to_owned()),
            session: "mine".to_owned(),
            host: Some("build-7".to_owned()),
            began_us: 1_795_301_202_981_562,
        };
        let mut anonymizer = Anonymizer::new(machine, Redaction::Masked);
        anonymizer.learn_codex_home("/srv/secret/codex-home".to_owned());
        assert_eq!(anonymizer.record(record), expect);
    }

    #[test]
    fn paths_and_names() {
        check(
            r#"{"cwd":"/srv/secret/site","x":["/srv/secret/site/a.rs","cd /srv/secret/siteshop","/var/ann/.x","taproot"]}"#,
            r#"{"cwd":"/home/user/project","x":["/home/user/project/a.rs","cd /srv/secret/siteshop","/home/user/.x","taproot"]}"#,
        );
        check(r#"{"a":"on build-7: \"/home/ann/x\" \u00e4"}"#, r#"{"a":"on host: \"/home/user/x\" ä"}"#);
        check(
            r#"{"p":"/tmp/.tmpX1/y","u":"http://127.0.0.1:40123/v1"}"#,
            r#"{"p":"/tmp/tape-1/y","u":"http://127.0.0.1:8080/v1"}"#,
        );
        check(r#"{ "keep" : "\/as\/it\/is" , "n":1.50}"#, r#"{ "keep" : "\/as\/it\/is" , "n":1.50}"#);
    }

    #[test]
    fn what_is_told_in_base64_is_mapped_there() {
        let line = |text: &str| format!(r#"{{"msg":{{"chunk":"{}"}}}}"#, BASE64_STANDARD.encode(text));
        check(&line("/srv/secret/site ä export A_TOKEN=abc"), &line("/home/user/project ä export A_TOKEN=[redacted]"));
        let bytes =
            |path: &[u8]| format!(r#"{{"chunk":"{}"}}"#, BASE64_STANDARD.encode([b"\xe9 \xff ", path].concat()));
        check(&bytes(b"/srv/secret/site"), &bytes(b"/home/user/project"));
        check(r#"{"chunk":"/var/ann"}"#, r#"{"chunk":"/home/user"}"#);
        check(r#"{"chunk":"/var/ann is no Base64"}"#, r#"{"chunk":"/home/user is no Base64"}"#);
    }

    #[test]
    fn paths_in_names_of_settings() {
        check(
            r#"{"origins":{"projects./tmp/.tmpX1/y.trust_level":1,"projects./srv/secret/site.trust_level":2,"projects.a.b":3}}"#,
            r#"{"origins":{"projects./tmp/tape-1/y.trust_level":1,"projects./home/user/project.trust_level":2,"projects.a.b":3}}"#,
        );
    }

    #[test]
    fn ids_are_numbered_and_times_are_moved() {
        check(
            r#"{"id":"01a2004a-5c25-7460-9c08-e1221ad2ce90","t":["x-01A2004A-5C25-7460-9C08-E1221AD2CE90"]}"#,
            r#"{"id":"00000000-0000-7000-8000-000000000001","t":["x-00000000-0000-7000-8000-000000000001"]}"#,
        );
        check(
            r#"{"at":1795301202981562,"s":1795301203,"ms":1795301203000,"n":1234567890,"d":12}"#,
            r#"{"at":1767225600981562,"s":1767225601,"ms":1767225601000,"n":1234567890,"d":12}"#,
        );
        check(
            r#"{"p":"/srv/secret/codex-home/sessions/2026/11/21/rollout-2026-11-21T22-46-43-x.jsonl"}"#,
            r#"{"p":"/home/user/.codex/sessions/2026/01/01/rollout-2026-01-01T00-00-01-x.jsonl"}"#,
        );
        check(r#"{"t":"2026-11-21T22:46:44.5Z"}"#, r#"{"t":"2026-01-01T00:00:02.5Z"}"#);
    }

    #[test]
    fn the_shim_s_own_names_go_too() {
        check(
            r#"{"journal":1,"session":"mine","generation":"6b021f52d70f","cwd":"/srv/secret/site"}"#,
            r#"{"journal":1,"session":"tape","generation":"000000000001","cwd":"/home/user/project"}"#,
        );
        check(
            r#"{"at":1,"from":"shim","event":"generation_started","data":{"pid":4711}}"#,
            r#"{"at":1,"from":"shim","event":"generation_started","data":{"pid":1}}"#,
        );
        check(
            r#"{"at":1,"from":"server","line":{"pid":7,"session":"s","generation":"g","p":"/var/ann/state/sessions/mine/x"}}"#,
            r#"{"at":1,"from":"server","line":{"pid":7,"session":"s","generation":"g","p":"/home/user/.local/state/codex-shim/sessions/tape/x"}}"#,
        );
    }

    #[test]
    fn names_of_members_and_bytes_are_mapped_and_look_alikes_are_not() {
        check(r#"{"projects":{"/srv/secret/site":{}}}"#, r#"{"projects":{"/home/user/project":{}}}"#);
        check(
            r#"{"a":"in /srv/secret/site. Done in /var/ann."}"#,
            r#"{"a":"in /home/user/project. Done in /home/user."}"#,
        );
        check(
            r#"{"a":"src/home/page.tsx components/Users/List.tsx https://x.dev/home/about"}"#,
            r#"{"a":"src/home/page.tsx components/Users/List.tsx https://x.dev/home/about"}"#,
        );
        check(
            r#"{"a":"{\"path\": \"/tmp/zzz\", \"n\": 1}","b":"rm /tmp/a;ls '/tmp/zzz/c'"}"#,
            r#"{"a":"{\"path\": \"/tmp/tape-1\", \"n\": 1}","b":"rm /tmp/tape-2;ls '/tmp/tape-1/c'"}"#,
        );
        let base64 = |bytes: &[u8]| BASE64_STANDARD.encode(bytes);
        check(
            &format!(r#"{{"at":1,"from":"client","base64":"{}"}}"#, base64(b"\xff /srv/secret/site")),
            &format!(r#"{{"at":1,"from":"client","base64":"{}"}}"#, base64(b"\xff /home/user/project")),
        );
    }

    #[test]
    fn what_looks_like_a_secret_is_masked_on_request() {
        check(r#"{"a":"key sk-abcdefghijklmnopqrst"}"#, r#"{"a":"key [redacted]"}"#);
        check(
            r#"{"env":{"MY_TOKEN":"hunter22","max_tokens":5}}"#,
            r#"{"env":{"MY_TOKEN":"[redacted]","max_tokens":5}}"#,
        );
    }
}
