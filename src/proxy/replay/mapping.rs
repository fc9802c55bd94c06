//! Compares a client's messages with those of a tape; ids, paths and times may differ.
//!
//! Each such difference is stored as a pair, which later messages must respect and which is applied to every line of the
//! player. A placeholder that export has put into a text matches a text of its kind (a home folder, a temporary folder, an
//! id, a time, a port, a host's name, a secret); everything else must be equal. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, LazyLock};

use regex::Regex;
use serde_json::Value;

use super::anonymizer::{HOME, NEAR_S, PATHS, TAPE_BEGINS_S, pattern};
use crate::wire::{TokenKind, tokens};

/// A difference between a client's message and the tape's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// A description of the message.
    pub message: String,
    /// The place in the message, such as `params.input[0].text`; empty for the whole.
    pub place: String,
    /// The tape's value; `None` if it is absent.
    pub on_tape: Option<String>,
    /// The client's value; `None` if it is absent.
    pub sent: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if !self.place.is_empty() {
            write!(f, " at {}", self.place)?;
        }
        write!(f, "\n  - {}", self.on_tape.as_deref().unwrap_or("(nothing on the tape)"))?;
        write!(f, "\n  + {}", self.sent.as_deref().unwrap_or("(nothing sent)"))
    }
}

/// Pairs of a value on the tape and the current value, in a one-to-one mapping.
#[derive(Debug, Clone, Default)]
pub(super) struct Mapping {
    ids: Pairs,
    /// Paths, which are also replaced at the beginning of longer ones.
    paths: Pairs,
    hosts: Pairs,
    /// Whole texts that contain placeholders.
    texts: BTreeMap<Arc<str>, Arc<str>>,
}

#[derive(Debug, Clone, Default)]
struct Pairs {
    now: BTreeMap<String, String>,
    /// The current values that are already in use.
    taken: BTreeSet<String>,
}

impl Pairs {
    /// Adds a pair; returns whether it agrees with the others.
    fn hold(&mut self, on_tape: &str, now: &str) -> bool {
        match self.now.get(on_tape) {
            Some(known) => known == now,
            None if self.taken.contains(now) => false,
            None => {
                self.now.insert(on_tape.to_owned(), now.to_owned());
                self.taken.insert(now.to_owned())
            }
        }
    }
}

/// The result of comparing two messages.
#[derive(Debug, Default)]
pub(super) struct Compared {
    pub(super) differences: Vec<Difference>,
    /// The number of pairs of different texts that the comparison added.
    pub(super) learned: usize,
}

impl Mapping {
    /// Compares two values, stores the permitted differences and returns the others.
    pub(super) fn compare(&mut self, message: &str, on_tape: &Value, sent: &Value, values: Values) -> Compared {
        let mut comparison = Comparison { mapping: self, message, values, compared: Compared::default() };
        comparison.values("params", on_tape, sent);
        comparison.compared
    }

    /// Reserves the ids of a line that is sent unchanged: each stands for itself.
    pub(super) fn hold_ids(&mut self, line: &str) {
        for token in tokens(line).filter(|token| token.kind == TokenKind::Text && token.range.len() == ID_LENGTH + 2) {
            let text = &line[token.range.start + 1..token.range.end - 1];
            if is_id(text) && !self.ids.taken.contains(text) {
                self.ids.hold(text, text);
            }
        }
    }

    /// Applies all pairs to a line of the tape.
    pub(super) fn applied(&self, line: &str) -> String {
        if self.ids.now.is_empty() && self.paths.now.is_empty() && self.texts.is_empty() {
            return line.to_owned();
        }
        let mut mapped = String::with_capacity(line.len());
        let mut copied = 0;
        for token in tokens(line).filter(|token| token.kind != TokenKind::Number) {
            if let Some(replacement) = self.string(&line[token.range.clone()]) {
                mapped.push_str(&line[copied..token.range.start]);
                mapped.push_str(&replacement);
                copied = token.range.end;
            }
        }
        mapped.push_str(&line[copied..]);
        mapped
    }

    /// The current path for a path of the tape.
    pub(super) fn path(&self, on_tape: &str) -> Option<&str> {
        self.paths.now.get(on_tape).map(String::as_str)
    }

    /// Adds a pair of ids; returns whether it agrees with the others.
    pub(super) fn hold_id(&mut self, on_tape: &str, now: &str) -> bool {
        self.ids.hold(on_tape, now)
    }

    /// Adds a path for a placeholder of the tape; returns whether it agrees with the others.
    pub(super) fn hold_path(&mut self, on_tape: &str, now: &str) -> bool {
        self.paths.hold(on_tape, now)
    }

    /// Adds a host's name for that of the tape; returns whether it agrees with the others.
    pub(super) fn hold_host(&mut self, on_tape: &str, now: &str) -> bool {
        self.hosts.hold(on_tape, now)
    }

    /// Stores a text that the client sent, for its echoes.
    pub(super) fn hold_text(&mut self, on_tape: &str, sent: &str) {
        if on_tape != sent {
            self.texts.insert(on_tape.into(), sent.into());
        }
    }

    fn string(&self, quoted: &str) -> Option<String> {
        let text: String = serde_json::from_str(quoted).ok()?;
        let mapped = self.text(&text);
        (mapped != text).then(|| Value::String(mapped).to_string())
    }

    fn text(&self, text: &str) -> String {
        if let Some(id) = self.ids.now.get(text) {
            return id.clone();
        }
        if let Some(sent) = self.texts.get(text) {
            return sent.as_ref().to_owned();
        }
        if !text.starts_with('/') {
            return text.to_owned();
        }
        // The path itself, then its parent folders, innermost first.
        let ends = [text.len()].into_iter().chain(text.rmatch_indices('/').map(|(at, _)| at)).filter(|end| *end > 0);
        let mut mapped = ends.filter_map(|end| Some(format!("{}{}", self.paths.now.get(&text[..end])?, &text[end..])));
        mapped.next().unwrap_or_else(|| text.to_owned())
    }
}

/// Whether a message on a tape may contain masks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Values {
    /// The message has its original values.
    AsSent,
    /// Some values may be masks in place of credentials; a mask matches any value.
    MaybeMasked,
}

struct Comparison<'a> {
    mapping: &'a mut Mapping,
    message: &'a str,
    values: Values,
    compared: Compared,
}

impl Comparison<'_> {
    fn values(&mut self, place: &str, on_tape: &Value, sent: &Value) {
        match (on_tape, sent) {
            _ if self.values == Values::MaybeMasked && may_stand_for(on_tape, sent) => {}
            (Value::Object(on_tape), Value::Object(sent)) => {
                let mut others: Vec<&String> = sent.keys().filter(|name| !on_tape.contains_key(*name)).collect();
                for (name, on_tape) in on_tape {
                    let sent = sent.get(name).or_else(|| sent.get(self.other_name(name, &mut others)?));
                    // An explicit null equals an absent member.
                    self.values(&format!("{place}.{name}"), on_tape, sent.unwrap_or(&Value::Null));
                }
                for name in others {
                    self.values(&format!("{place}.{name}"), &Value::Null, &sent[name]);
                }
            }
            (Value::Array(on_tape), Value::Array(sent)) if on_tape.len() == sent.len() => {
                for (index, (on_tape, sent)) in on_tape.iter().zip(sent).enumerate() {
                    self.values(&format!("{place}[{index}]"), on_tape, sent);
                }
            }
            (Value::String(on_tape_text), Value::String(sent_text)) => {
                if !self.texts(place, on_tape_text, sent_text) {
                    self.differ(place, on_tape, sent);
                }
            }
            (Value::Number(_), Value::Number(_)) if is_time(place) => {}
            (Value::Number(on_tape), Value::Number(sent)) if are_times(&on_tape.to_string(), &sent.to_string()) => {}
            (on_tape, sent) if on_tape == sent => {}
            (on_tape, sent) => self.differ(place, on_tape, sent),
        }
    }

    /// Whether two texts are equal or can be added as a pair.
    fn texts(&mut self, place: &str, on_tape: &str, sent: &str) -> bool {
        let pairs = if is_id(on_tape) && is_id(sent) {
            &mut self.mapping.ids
        } else if is_path(on_tape) && is_path(sent) && !is_said(place) {
            if self.mapping.text(on_tape) == sent && on_tape != sent {
                return true;
            }
            &mut self.mapping.paths
        } else {
            return self.placeholders(on_tape, sent);
        };
        let held = pairs.hold(on_tape, sent);
        self.compared.learned += usize::from(held && on_tape != sent);
        held || (is_path(on_tape) && on_tape != sent && self.placeholders(on_tape, sent))
    }

    /// Whether the client's text is the tape's with other texts in place of placeholders.
    fn placeholders(&mut self, on_tape: &str, sent: &str) -> bool {
        let held = on_tape == sent || self.mapping.holds_placeholders(on_tape, sent, self.values);
        self.compared.learned += usize::from(held && on_tape != sent);
        held
    }

    /// The client's member for a member of the tape whose name is a path; it is removed from `others`.
    fn other_name<'a>(&mut self, on_tape: &str, others: &mut Vec<&'a String>) -> Option<&'a String> {
        let index = others.iter().position(|sent| self.mapping.holds_placeholders(on_tape, sent, Values::AsSent))?;
        Some(others.remove(index))
    }

    fn differ(&mut self, place: &str, on_tape: &Value, sent: &Value) {
        let shown = |value: &Value| (!value.is_null()).then(|| value.to_string());
        self.compared.differences.push(Difference {
            message: self.message.to_owned(),
            place: place.to_owned(),
            on_tape: shown(on_tape),
            sent: shown(sent),
        });
    }
}

/// Whether a value on the tape is a mask that may stand for `sent`. A mask may be the end of a text.
fn may_stand_for(on_tape: &Value, sent: &Value) -> bool {
    match (on_tape, sent) {
        (Value::String(on_tape), Value::String(sent)) => {
            let shown = on_tape.trim_end_matches('*');
            let shown = shown.strip_suffix("[redacted]").unwrap_or(shown);
            shown.len() < on_tape.len() && sent.len() > shown.len() && sent.starts_with(shown)
        }
        (Value::Number(on_tape), Value::Number(_)) => {
            let digits: String = on_tape.to_string().chars().filter(char::is_ascii_digit).collect();
            digits.trim_end_matches('0') == "1"
        }
        (_, _) => false,
    }
}

/// Length of a UUID in characters.
pub(super) const ID_LENGTH: usize = 36;

/// Whether a text has the shape of a UUID.
pub(super) fn is_id(text: &str) -> bool {
    text.len() == ID_LENGTH
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn is_path(text: &str) -> bool {
    text.starts_with('/') && !text.contains(char::is_whitespace)
}

/// Whether a member contains a user's or a model's words, or a command; a path in it is an ordinary word.
fn is_said(place: &str) -> bool {
    place.ends_with(".text") || place.contains("command")
}

/// Whether a member is a time, judged by its name.
fn is_time(place: &str) -> bool {
    place.ends_with("At") || place.ends_with("AtMs")
}

/// Whether two numbers are times, judged by their size: one that export has moved, and one in the same unit.
fn are_times(on_tape: &str, sent: &str) -> bool {
    let whole = |number: &str| number.split('.').next().unwrap_or_default().to_owned();
    let (on_tape, sent) = (whole(on_tape), whole(sent));
    let unit = match on_tape.len() {
        10 => 1,
        13 => 1_000,
        16 => 1_000_000,
        _ => return false,
    };
    let is_moved = on_tape.parse::<i64>().is_ok_and(|time| (time / unit - TAPE_BEGINS_S).abs() <= NEAR_S);
    is_moved && sent.len() == on_tape.len() && sent.bytes().all(|byte| byte.is_ascii_digit())
}

/// Limit of a text that a placeholder matches, in bytes. Source: `PATH_MAX` of Linux.
const REPLACED_BYTES_MAX: usize = 4096;

/// Limit of attempts, per text, to find the end of a replaced text.
const ATTEMPTS_MAX: usize = 4096;

/// Limit of replaced texts of unknown length that are open at once, per text.
const DEPTH_MAX: usize = 32;

static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| {
    let paths = PATHS.map(regex::escape).join("|");
    pattern(&format!(
        r"(?<path>{paths})|(?<temporary>/tmp/tape-\d+)|(?<id>[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}})|(?<time>\d{{4}}-\d\d-\d\dT\d\d[:-]\d\d[:-]\d\d)|(?<day>/\d{{4}}/\d\d/\d\d\b)|(?<port>(?:127\.0\.0\.1|localhost):8080\b)|(?<host>\bhost\b)|(?<mask>\[redacted\]\**)"
    ))
});
static TIME: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\d{4}-\d\d-\d\dT\d\d[:-]\d\d[:-]\d\d"));
static DAY: LazyLock<Regex> = LazyLock::new(|| pattern(r"^/\d{4}/\d\d/\d\d\b"));
static PORT: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(127\.0\.0\.1|localhost):\d{2,5}\b"));
static HOME_OF_SOMEONE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^/(?:home|Users)/\w(?:[\w.-]*\w)?"));

/// Kind of text that a placeholder replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextKind {
    Path,
    Temporary,
    Id,
    Time,
    Day,
    Port,
    Host,
    Mask,
}

impl TextKind {
    const ALL: [(TextKind, &'static str); 8] = [
        (TextKind::Path, "path"),
        (TextKind::Temporary, "temporary"),
        (TextKind::Id, "id"),
        (TextKind::Time, "time"),
        (TextKind::Day, "day"),
        (TextKind::Port, "port"),
        (TextKind::Host, "host"),
        (TextKind::Mask, "mask"),
    ];

    /// Adds `sent` for this placeholder; returns whether it agrees with the other pairs.
    fn hold(self, mapping: &mut Mapping, on_tape: &str, sent: &str) -> bool {
        match self {
            TextKind::Path | TextKind::Temporary => mapping.hold_path(on_tape, sent),
            TextKind::Host => mapping.hold_host(on_tape, sent),
            TextKind::Mask | TextKind::Id | TextKind::Time | TextKind::Day | TextKind::Port => true,
        }
    }

    /// Whether the placeholder may stand for `text`.
    fn fits(self, text: &str) -> bool {
        let is_path = || text.len() > 1 && text.starts_with('/') && !text.ends_with('/') && !text.contains(['\n', '"']);
        match self {
            TextKind::Path | TextKind::Temporary => is_path(),
            // A plain word could be any other word.
            TextKind::Host => {
                text.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '-' | '.' | '_'))
                    && text.contains(|char: char| char.is_ascii_digit() || matches!(char, '-' | '.'))
            }
            TextKind::Mask => !text.is_empty(),
            TextKind::Id | TextKind::Time | TextKind::Day | TextKind::Port => false,
        }
    }
}

/// A placeholder in a text of a tape.
#[derive(Debug, Clone, Copy)]
struct Placeholder {
    kind: TextKind,
    start: usize,
    end: usize,
}

impl Mapping {
    /// Whether `sent` is `on_tape` with other texts in place of its placeholders. If so, stores those as pairs.
    pub(super) fn holds_placeholders(&mut self, on_tape: &str, sent: &str, values: Values) -> bool {
        let found: Vec<Placeholder> = PLACEHOLDER
            .captures_iter(on_tape)
            .filter_map(|captures| {
                let (kind, found) =
                    TextKind::ALL.into_iter().find_map(|(kind, name)| Some((kind, captures.name(name)?)))?;
                Some(Placeholder { kind, start: found.start(), end: found.end() })
            })
            .filter(|found| found.kind != TextKind::Mask || values == Values::MaybeMasked)
            .collect();
        if found.is_empty() {
            return on_tape == sent;
        }
        let mut matching = Matching { on_tape, sent, found: &found, attempts: 0 };
        let Some(learned) = matching.rest(self.clone(), 0, 0, 0, DEPTH_MAX) else { return false };
        *self = learned;
        self.hold_text(on_tape, sent);
        true
    }
}

struct Matching<'a> {
    on_tape: &'a str,
    sent: &'a str,
    found: &'a [Placeholder],
    attempts: usize,
}

impl Matching<'_> {
    /// Matches the rest: the tape's text from `at`, the client's from `to`, with the placeholders from `next` on.
    fn rest(
        &mut self,
        mut mapping: Mapping,
        mut next: usize,
        mut at: usize,
        mut to: usize,
        depth: usize,
    ) -> Option<Mapping> {
        loop {
            let Some(found) = self.found.get(next).copied() else {
                return (self.on_tape.get(at..)? == self.sent.get(to..)?).then_some(mapping);
            };
            let literal = self.on_tape.get(at..found.start)?;
            to += self.sent.get(to..)?.strip_prefix(literal).map(|_| literal.len())?;
            at = found.start;
            next += 1;
            let rest = &self.sent[to..];
            match self.fixed(&mut mapping, found, rest) {
                Fixed::Taken { on_tape, sent } => (at, to) = (at + on_tape, to + sent),
                Fixed::Differs => return None,
                Fixed::Open => return self.open(&mapping, found, next, to, depth.checked_sub(1)?),
            }
        }
    }

    /// Matches a placeholder for a text of known length.
    fn fixed(&self, mapping: &mut Mapping, found: Placeholder, rest: &str) -> Fixed {
        let text = &self.on_tape[found.start..found.end];
        let shape = |shape: &Regex| match shape.find(rest) {
            Some(sent) => Fixed::Taken { on_tape: text.len(), sent: sent.len() },
            None => Fixed::Differs,
        };
        match found.kind {
            TextKind::Id => match rest.get(..ID_LENGTH).filter(|id| is_id(id)) {
                Some(id) if mapping.hold_id(text, id) => Fixed::Taken { on_tape: text.len(), sent: id.len() },
                Some(_) | None => Fixed::Differs,
            },
            TextKind::Time => shape(&TIME),
            TextKind::Day => shape(&DAY),
            TextKind::Port => match shape(&PORT) {
                taken @ Fixed::Taken { .. } if rest.split(':').next() == text.split(':').next() => taken,
                Fixed::Taken { .. } | Fixed::Differs | Fixed::Open => Fixed::Differs,
            },
            TextKind::Path => {
                for path in self.paths(found) {
                    if let Some(known) = mapping.path(path)
                        && rest.starts_with(known)
                    {
                        return Fixed::Taken { on_tape: path.len(), sent: known.len() };
                    }
                }
                if rest.starts_with(text) {
                    return Fixed::Taken { on_tape: text.len(), sent: text.len() };
                }
                // Export gives all users' homes the same placeholder.
                match HOME_OF_SOMEONE.find(rest) {
                    Some(home) if mapping.path(HOME).is_some() => {
                        Fixed::Taken { on_tape: HOME.len(), sent: home.len() }
                    }
                    Some(_) | None => Fixed::Open,
                }
            }
            TextKind::Temporary => match mapping.path(text).filter(|known| rest.starts_with(known)) {
                Some(known) => Fixed::Taken { on_tape: text.len(), sent: known.len() },
                None => Fixed::Open,
            },
            TextKind::Host | TextKind::Mask if rest.starts_with(text) => {
                Fixed::Taken { on_tape: text.len(), sent: text.len() }
            }
            TextKind::Host | TextKind::Mask => Fixed::Open,
        }
    }

    /// Matches a placeholder for a text of unknown length: tries each end after which the client's text continues like
    /// the tape's.
    fn open(&mut self, mapping: &Mapping, found: Placeholder, next: usize, to: usize, depth: usize) -> Option<Mapping> {
        let begun = match found.kind {
            TextKind::Path => self.paths(found).collect(),
            TextKind::Temporary
            | TextKind::Id
            | TextKind::Time
            | TextKind::Day
            | TextKind::Port
            | TextKind::Host
            | TextKind::Mask => {
                vec![&self.on_tape[found.start..found.end]]
            }
        };
        for text in begun {
            let at = found.start + text.len();
            let goes_on =
                &self.on_tape[at..self.found.get(next).map_or(self.on_tape.len(), |later| later.start.max(at))];
            let is_last = self.found.get(next).is_none();
            let rest = &self.sent[to..];
            let ends: Vec<usize> = match goes_on {
                "" if is_last => vec![rest.len()],
                "" => rest.char_indices().map(|(end, _)| end).take_while(|end| *end <= REPLACED_BYTES_MAX).collect(),
                _ if is_last => rest.strip_suffix(goes_on).map(str::len).into_iter().collect(),
                _ => {
                    let ends = rest.match_indices(goes_on).map(|(end, _)| end);
                    ends.take_while(|end| *end <= REPLACED_BYTES_MAX).collect()
                }
            };
            for end in ends {
                self.attempts += 1;
                if self.attempts > ATTEMPTS_MAX {
                    return None;
                }
                let stands_for = &rest[..end];
                let mut mapping = mapping.clone();
                if !found.kind.fits(stands_for) || !found.kind.hold(&mut mapping, text, stands_for) {
                    continue;
                }
                if let Some(learned) = self.rest(mapping, next, at, to + end, depth) {
                    return Some(learned);
                }
            }
        }
        None
    }

    /// The paths that a placeholder may be, longest first: another user's folder may begin with the name of one.
    fn paths(&self, found: Placeholder) -> impl Iterator<Item = &'static str> {
        let text = self.on_tape[found.start..found.end].to_owned();
        PATHS.into_iter().filter(move |path| text.starts_with(path))
    }
}

/// The result of matching a placeholder of known length.
enum Fixed {
    /// A match, with lengths in bytes.
    Taken {
        on_tape: usize,
        sent: usize,
    },
    Differs,
    /// The length is unknown.
    Open,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const A: &str = "00000000-0000-7000-8000-000000000001";
    const C: &str = "00000000-0000-7000-8000-00000000000c";
    const B: &str = "11111111-0000-7000-8000-000000000001";

    #[test]
    fn ids_paths_and_times_may_differ_and_are_held_to() {
        let mut mapping = Mapping::default();
        let on_tape = json!({"threadId": A, "cwd": "/home/user/project", "startedAt": 5, "x": null});
        let sent = json!({"threadId": B, "cwd": "/w", "startedAt": 9});
        assert_eq!(mapping.compare("m", &on_tape, &sent, Values::AsSent).differences, []);
        let line = format!(r#"{{"id":"{A}","p":"/home/user/project/a","q":"/home/user/projects","n":"{A}x"}}"#);
        let expect = format!(r#"{{"id":"{B}","p":"/w/a","q":"/home/user/projects","n":"{A}x"}}"#);
        assert_eq!(mapping.applied(&line), expect);
        let again = |mapping: &mut Mapping, on_tape, sent| {
            mapping
                .compare("m", &json!({"threadId": on_tape}), &json!({"threadId": sent}), Values::AsSent)
                .differences
                .len()
        };
        assert_eq!(again(&mut mapping, A, A), 1);
        // A current value that is in use cannot stand for another one.
        assert_eq!(again(&mut mapping, C, B), 1);
        assert_eq!(again(&mut mapping, C, C), 0);
    }

    #[test]
    fn what_is_said_or_run_is_no_path_and_a_length_of_time_no_time() {
        let differs =
            |on_tape, sent| Mapping::default().compare("m", &on_tape, &sent, Values::AsSent).differences.len();
        assert_eq!(differs(json!({"input": [{"text": "/etc"}]}), json!({"input": [{"text": "/usr"}]})), 1);
        assert_eq!(differs(json!({"command": ["/bin/true"]}), json!({"command": ["/bin/false"]})), 1);
        assert_eq!(differs(json!({"x": "/a b"}), json!({"x": "/c d"})), 1);
        assert_eq!(differs(json!({"timeoutMs": 1}), json!({"timeoutMs": 2})), 1);
        assert_eq!(differs(json!({"startedAtMs": 1}), json!({"startedAtMs": 2})), 0);
    }

    #[test]
    fn mask_on_tape_matches_any_value() {
        let differs = |on_tape: &str, sent: &str| {
            let of = |values| {
                let compared = Mapping::default().compare("m", &json!({"a": on_tape}), &json!({"a": sent}), values);
                compared.differences.len()
            };
            assert_eq!(of(Values::AsSent), usize::from(on_tape != sent));
            of(Values::MaybeMasked) > 0
        };
        assert!(!differs("[redacted]***", "anything at all") && !differs("***", "x"));
        assert!(!differs("--token=[redacted]", "--token=x") && differs("--token=***", "--other=x"));
        assert!(differs("plain", "other") && differs("***", ""));
    }

    #[test]
    fn everything_else_is_a_difference_with_its_place() {
        let found = Mapping::default()
            .compare(
                "turn/start",
                &json!({"input": [{"text": "a"}], "n": 1}),
                &json!({"input": [{"text": "b"}], "more": true, "n": 2}),
                Values::AsSent,
            )
            .differences;
        let places: Vec<&str> = found.iter().map(|difference| difference.place.as_str()).collect();
        assert_eq!(places, ["params.input[0].text", "params.n", "params.more"]);
        assert_eq!(found[0].to_string(), "turn/start at params.input[0].text\n  - \"a\"\n  + \"b\"");
        assert_eq!(found[2].to_string(), "turn/start at params.more\n  - (nothing on the tape)\n  + true");
    }

    fn same(on_tape: &str, sent: &str) -> bool {
        Mapping::default().holds_placeholders(on_tape, sent, Values::AsSent)
    }

    #[test]
    fn placeholders_stand_for_what_export_replaces() {
        for (on_tape, sent) in [
            ("read /home/user/notes/a.txt now", "read /home/jane/notes/a.txt now"),
            ("read /home/user/notes/a.txt", "read /srv/jane/notes/a.txt"),
            ("in /home/user/project and /home/user/x.", "in /w/über uns and /Users/ann/x."),
            ("/home/user/projects/b", "/home/jane/projects/b"),
            ("diff /home/user/a /home/user/b", "diff /home/ann/a /home/bob/b"),
            ("see file:///home/user/a%20b", "see file:///home/jane/a%20b"),
            ("rm /tmp/tape-1;ls '/tmp/tape-2/c' /tmp/tape-1", "rm /tmp/xa;ls '/private/tmp/.yb/c' /tmp/xa"),
            (
                "get http://127.0.0.1:8080/v1 since 2026-01-01T00:00:05",
                "get http://127.0.0.1:40123/v1 since 2026-11-21T22:46:44",
            ),
            ("ssh host.local uptime", "ssh build-7.local uptime"),
            ("id 00000000-0000-7000-8000-000000000001!", "id 01a2004a-5c25-7460-9c08-e1221ad2ce90!"),
            ("/home/user/.codex/sessions/2026/01/01/x", "/home/jane/.codex/sessions/2026/11/21/x"),
        ] {
            assert!(same(on_tape, sent), "{on_tape} | {sent}");
        }
    }

    #[test]
    fn other_words_around_placeholders_are_differences() {
        for (on_tape, sent) in [
            ("read /home/user/a.txt", "read /home/jane/b.txt"),
            ("read /etc/hosts", "read /etc/passwd"),
            ("ask the host", "ask the server"),
            ("rm /tmp/tape-1 /tmp/tape-1", "rm /tmp/a /tmp/b"),
            ("rm /tmp/tape-1 /tmp/tape-2", "rm /tmp/a /tmp/a"),
            ("read ../x", "read ../y"),
            ("see http://127.0.0.1:8080", "see http://localhost:8081"),
            ("key [redacted]", "key abc"),
        ] {
            assert!(!same(on_tape, sent), "{on_tape} | {sent}");
        }
    }

    #[test]
    fn mask_in_masked_record_stands_for_secret() {
        let same = |on_tape, sent| Mapping::default().holds_placeholders(on_tape, sent, Values::MaybeMasked);
        assert!(same("use [redacted] or [redacted] here", "use sk-1 or sk-2 here"));
        assert!(same("use [redacted]*** here", "use sk-1234567890 here"));
        assert!(!same("use [redacted] here", "use sk-1 there"));
    }

    #[test]
    fn text_with_many_placeholders_ends_soon() {
        let on_tape = "/home/user ".repeat(2_000) + "a";
        assert!(same(&on_tape, &("/home/jane ".repeat(2_000) + "a")));
        assert!(!same(&on_tape, &("/home/jane ".repeat(2_000) + "b")));
    }
}
