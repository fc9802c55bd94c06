//! Values that stand behind a name that means a secret, however the two are put together.
//!
//! One pass from one name to the next. What is looked at behind a name is either taken as its value, and skipped, or bounded.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use regex::bytes::{Regex, RegexBuilder};

use super::keys::ends_escape;
use super::names::{NAME_BYTES_MAX, word_names_secret};
use super::table::{
    BEARER_WORDS, LABEL_KEYS, LINE_WORDS, ONE_DASH_OPTIONS, PASSWORD_PARTS, QUERY_NAMES, SETTERS, SIGNATURES,
    SIGNED_PARTS, WORDS_OF_CODE,
};
use super::value::{Values, blanks, escapes, is_open};
use super::{Quote, automaton_of_any_case, one_of, open_in, quote_at, quote_before};

/// Shortest value of `key` and `sig` in an address that is a secret, in bytes.
const QUERY_BYTES_MIN: usize = 8;

/// Longest distance from a name to the member `value` that belongs to it, in bytes.
const PAIR_BYTES_MAX: usize = 120;

/// The syntax that joins a name and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Joined {
    /// `NAME=value` with nothing between, at the beginning of a line or a word of its own: up to the next blank all is value.
    Variable,
    /// `name = value`, `name: value` at the beginning of a line.
    Line,
    /// The same anywhere else.
    Within,
    /// `--name value`, `ENV NAME value`.
    Argument,
    /// `set -x NAME value value`: all words of the command.
    Words,
    /// `ENV NAME value value`: all words of the line.
    Rest,
    /// Only a value in quotation marks counts: `name == "value"`, `f("name", "value")`, `PASSWORD 'value'`.
    Quoted,
    /// `<name>value</name>`.
    Element,
}

/// The sort of secret that a name means, if its value has a syntax of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// `Authorization`: a scheme may stand ahead of the credential.
    Scheme,
    /// `Cookie`: all of the line.
    Cookie,
    /// Something that a person makes up: any words, any number.
    Password,
    /// `pass`, `pwd`: a password, a path or a count.
    Weak,
    /// Anything else.
    Other,
}

/// A name in a text.
#[derive(Debug, Clone)]
pub(super) struct Name {
    /// Its place, without the dashes of an option.
    pub(super) range: Range<usize>,
    pub(super) sort: Sort,
    /// It is written in capitals, as variables are.
    pub(super) is_variable: bool,
    /// It is an option: `-name`, `--name`.
    pub(super) is_option: bool,
    /// The quotation mark right in front of it, and how many backslashes that has.
    pub(super) open_quote: Option<Quote>,
}

/// The names in a text that mean a secret and their values, and credentials behind the word that says so; from the start of the
/// text to its end.
pub(super) struct Names<'a> {
    text: &'a [u8],
    values: Values<'a>,
    address: Address,
    /// Everything up to here was looked at.
    at: usize,
    name_end: usize,
}

impl<'a> Names<'a> {
    pub(super) fn of(text: &'a [u8]) -> Names<'a> {
        Names { text, values: Values::of(text), address: Address::default(), at: 0, name_end: 0 }
    }

    /// The places of the values.
    pub(super) fn found(self) -> Vec<Range<usize>> {
        self.values.spans
    }

    /// Takes the value of the name with a mark in it.
    pub(super) fn take(&mut self, mark: Range<usize>, is_whole: bool) {
        if mark.start < self.at {
            return;
        }
        self.at = mark.end;
        let (text, values) = (self.text, &mut self.values);
        let Some(name) = name_at(text, mark, self.name_end) else { return };
        self.at = self.at.max(name.range.end);
        self.name_end = name.range.end;
        if let Some(value) = credential(text, &name).or_else(|| self.address.signature(text, &name)) {
            values.add(value);
        } else if is_whole || means_secret(text, &name) {
            values_before(text, &name).into_iter().for_each(|value| values.add(value));
            if let Some(value) = beside(text, &name) {
                values.add(value);
            } else if let Some((joined, from)) = joined(text, &name) {
                values.take(&name, joined, from, hard_end(text, &name, joined, from));
                take_changes(text, &name, values);
            }
        }
        self.at = self.at.max(values.taken_to().min(text.len()));
    }
}

/// Most values of one name in a pair, of which a change has two.
const PAIRS_MAX: usize = 4;

/// Takes the values that stand below the first one of a pair, as a change has them.
fn take_changes(text: &[u8], name: &Name, values: &mut Values<'_>) {
    if value_beside(text, name.range.end).is_none() {
        return;
    }
    for _ in 1..PAIRS_MAX {
        let Some(from) = value_beside(text, values.taken_to()) else { return };
        values.take(name, Joined::Within, from, None);
    }
}

/// The word in which a mark stands.
fn name_at(text: &[u8], mark: Range<usize>, floor: usize) -> Option<Name> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let floor = floor.max(mark.start.saturating_sub(NAME_BYTES_MAX));
    let front = text[floor.min(mark.start)..mark.start].iter().rev().take_while(|byte| is_part(byte)).count();
    let rest = &text[mark.end..text.len().min(mark.end + NAME_BYTES_MAX)];
    let is_word = text[mark.end - 1].is_ascii();
    let end = if is_word { mark.end + rest.iter().take_while(|byte| is_part(byte)).count() } else { mark.end };
    let end = match &text[mark.clone()] {
        [.., b' ' | b'='] => mark.end - 1,
        [.., b'%', b'3', b'D' | b'd'] => mark.end - 3,
        _ => end,
    };
    let mut start = after_escape(text, mark.start - front, mark.start);
    let dashes = text[start..end].iter().take_while(|byte| **byte == b'-').count();
    let is_at_word = start == 0
        || ends_escape(text, start)
        || matches!(text[start - 1], b' ' | b'\t' | b'\n' | b'\r' | b'"' | b'\'' | b'`' | b'[' | b'(' | b'=' | b',');
    start += dashes;
    // A sentence may end behind it, and a range may.
    let end = end - text[start.min(end)..end].iter().rev().take_while(|byte| matches!(byte, b'.' | b'-')).count();
    let word = last_segment(&text[start..end]);
    let start = end - word;
    if word == 0 {
        return None;
    }
    let name = &text[start..end];
    let front = text[..start].iter().rev().take(dashes).take_while(|byte| **byte == b'-').count();
    Some(Name {
        sort: sort_of(name),
        is_variable: !name.iter().any(u8::is_ascii_lowercase) && name.is_ascii(),
        is_option: is_at_word && (dashes == 2 || (dashes == 1 && is_long_option(name))),
        open_quote: quote_before(text, start - front),
        range: start..end,
    })
}

/// Whether what stands behind one dash is the name of an option: `-psecret` is `-p` and its value.
fn is_long_option(name: &[u8]) -> bool {
    let is = |option: &&str| name.eq_ignore_ascii_case(option.as_bytes());
    ONE_DASH_OPTIONS.iter().any(is) || name.contains(&b'-') || name.iter().skip(1).any(u8::is_ascii_uppercase)
}

/// Returns the start of a word whose first letters belong to an escape: `\n`, `\u001b`, `ESC[32m`.
fn after_escape(text: &[u8], start: usize, mark: usize) -> usize {
    let is_behind_escape = start.checked_sub(1).is_some_and(|at| matches!(text[at], b'\\' | b'[' | b';' | b'%' | b'x'));
    if !is_behind_escape {
        return start;
    }
    (start + 1..=mark.min(start + 12)).rev().find(|at| ends_escape(text, *at)).unwrap_or(start)
}

/// Returns the length of the last part of a dotted name. A part such as `value` counts with the part before it.
fn last_segment(name: &[u8]) -> usize {
    let mut parts = name.rsplit(|byte| *byte == b'.');
    match (parts.next().unwrap_or_default(), parts.next()) {
        (last @ (b"value" | b"data" | b"raw" | b"plain" | b"default"), Some(before)) => before.len() + 1 + last.len(),
        (last, _) => last.len(),
    }
}

fn sort_of(name: &[u8]) -> Sort {
    let plain: Vec<u8> = name.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase).collect();
    let has = |part: &&str| memchr::memmem::find(&plain, part.as_bytes()).is_some();
    match &*plain {
        b"pass" | b"pwd" => Sort::Weak,
        _ if has(&"authorization") => Sort::Scheme,
        b"cookie" | b"setcookie" | b"cookies" => Sort::Cookie,
        _ if PASSWORD_PARTS.iter().any(has) || plain.ends_with(b"pw") || plain.ends_with(b"psk") => Sort::Password,
        _ if !name.is_ascii() => Sort::Password,
        _ => Sort::Other,
    }
}

fn means_secret(text: &[u8], name: &Name) -> bool {
    let Ok(word) = std::str::from_utf8(&text[name.range.clone()]) else { return false };
    if !word.is_ascii() {
        return true;
    }
    (name.sort == Sort::Weak && !is_verdict(text, name))
        || word.split('.').any(word_names_secret)
        || is_label(text, name.range.start, word)
        || is_query(text, name, word)
}

/// Whether a name is that of a part of an address that opens something: `?key=…`, `&sig=…`.
fn is_query(text: &[u8], name: &Name, word: &str) -> bool {
    let front = &text[..name.range.start];
    let is_part = [&b"?"[..], b"&", b"&amp;", b"\\u0026"].iter().any(|mark| front.ends_with(mark));
    if !is_part || !QUERY_NAMES.iter().any(|open| word.eq_ignore_ascii_case(open)) {
        return false;
    }
    let Some(value) = text[name.range.end..].strip_prefix(b"=") else { return false };
    let is_sign = |byte: &&u8| byte.is_ascii_alphanumeric() || b"-_.~%+/".contains(byte);
    let bytes = value.iter().take(QUERY_BYTES_MIN).take_while(is_sign).count();
    bytes == QUERY_BYTES_MIN && value[..bytes].iter().any(u8::is_ascii_digit)
}

/// Bytes around the name of a signature in which the other parts of its address are looked for.
const ADDRESS_BYTES_MAX: usize = 1_024;

/// The address that was looked at last, so that none is read for each of its parts.
#[derive(Debug, Default)]
struct Address {
    range: Range<usize>,
    /// It has a part that only signed addresses have.
    is_signed: bool,
}

impl Address {
    /// The signature in a signed address: whatever its value looks like, it opens something.
    fn signature(&mut self, text: &[u8], name: &Name) -> Option<Range<usize>> {
        let word = &text[name.range.clone()];
        if !SIGNATURES.iter().any(|signature| word.eq_ignore_ascii_case(signature.as_bytes())) {
            return None;
        }
        let rest = &text[name.range.end..];
        let from = name.range.end + [&b"="[..], b"%3D", b"%3d"].iter().find(|mark| rest.starts_with(mark))?.len();
        let is_sign = |byte: &&u8| byte.is_ascii_alphanumeric() || b"-_.~%+/=".contains(byte);
        let value = &text[from..from + text[from..].iter().take_while(is_sign).count()];
        let bytes = memchr::memmem::find(value, b"%26").unwrap_or(value.len());
        self.read(text, name.range.start);
        (self.is_signed && bytes > 0).then_some(from..from + bytes)
    }

    fn read(&mut self, text: &[u8], at: usize) {
        static SIGNED: LazyLock<AhoCorasick> = LazyLock::new(|| automaton_of_any_case(SIGNED_PARTS));
        if self.range.contains(&at) {
            return;
        }
        // `\u0026` divides parts, too.
        let is_part = |byte: &&u8| byte.is_ascii_graphic() && !b"\"'<>`{}|".contains(byte);
        let front = text[..at].iter().rev().take(ADDRESS_BYTES_MAX).take_while(is_part).count();
        let behind = text[at..].iter().take(ADDRESS_BYTES_MAX).take_while(is_part).count();
        self.range = at - front..at + behind;
        self.is_signed = SIGNED.is_match(&text[self.range.clone()]);
    }
}

/// Whether `PASS:` is the verdict of a test runner: `--- PASS: TestX` of Go, or `PASS: test` of automake at the start of a line.
/// An environment in YAML is indented.
fn is_verdict(text: &[u8], name: &Name) -> bool {
    let (before, behind) = (&text[..name.range.start], &text[name.range.end..]);
    text[name.range.clone()] == *b"PASS"
        && behind.starts_with(b": ")
        && (before.is_empty() || before.ends_with(b"\n") || before.ends_with(b"--- "))
}

/// Whether the words in front make `key` a secret: `Secret Access Key: …`.
fn is_label(text: &[u8], at: usize, word: &str) -> bool {
    if word.eq_ignore_ascii_case("passe") {
        return text[..at].ends_with(b"ot de ");
    }
    if !word.eq_ignore_ascii_case("key") && !word.eq_ignore_ascii_case("keys") {
        return false;
    }
    let Some((b' ', front)) = text[..at].split_last().map(|(last, front)| (*last, front)) else { return false };
    let before = front.iter().rev().take(16).take_while(|byte| byte.is_ascii_alphabetic()).count();
    let before = String::from_utf8_lossy(&front[front.len() - before..]).to_ascii_lowercase();
    LABEL_KEYS.contains(&before.as_str())
}

/// `Bearer …`, and `Basic …` if that holds a name and a password.
fn credential(text: &[u8], name: &Name) -> Option<Range<usize>> {
    let word = &text[name.range.clone()];
    let (is_bearer, is_basic) = (word.eq_ignore_ascii_case(b"bearer"), word.eq_ignore_ascii_case(b"basic"));
    if !is_bearer && !is_basic {
        return None;
    }
    let from = name.range.end + blanks(&text[name.range.end..]);
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"._~+/=-".contains(byte);
    let bytes = text[from..].iter().take_while(|byte| is_part(byte)).count();
    let token = &text[from..from + bytes];
    let fits = if is_bearer {
        let is_word = |word: &&str| token.eq_ignore_ascii_case(word.as_bytes());
        let is_name = token.starts_with(b"token") && token.len() < 12;
        // `Bearer: x` and `bearer = x` are names with values.
        from > name.range.end && bytes >= 8 && !BEARER_WORDS.iter().any(is_word) && !is_name && token[0] != b'='
    } else {
        let holds_pair = |said: Vec<u8>| said.contains(&b':') && said.iter().all(|byte| *byte >= b' ');
        bytes >= 4 && BASE64_STANDARD.decode(&token[..bytes / 4 * 4]).is_ok_and(holds_pair)
    };
    fits.then_some(from..from + bytes)
}

/// Whether a name is that of a header in a pair: `["X-Api-Key", "x"]`.
fn is_header(text: &[u8], name: &Name) -> bool {
    let open = name.range.start - name.open_quote.map_or(0, Quote::bytes);
    text[name.range.clone()].contains(&b'-') && text[..open].ends_with(b"[")
}

/// The value in the next cell of a table or below the name of a field.
fn beside(text: &[u8], name: &Name) -> Option<Range<usize>> {
    let closed = quote_at(&text[name.range.end..]).map_or(0, Quote::bytes);
    let at = name.range.end + closed;
    match closed {
        0 => cell(text, name, at + blanks(&text[at..])),
        _ => field(text, name, at),
    }
}

/// The value in a pair that begins with it, `"value": "…", "name": "X"`, and an older one in front of that in a change.
fn values_before(text: &[u8], name: &Name) -> Vec<Range<usize>> {
    static PAIR: LazyLock<Regex> = LazyLock::new(|| {
        let value = r#"(?i:\bvalue)["'\\]*\s*[:=]\s*["'\\]*([^"'\\\n,]+)["'\\]*[\s,+-]+["'\\]*"#;
        let pair = format!(r#"(?:{value})?{value}(?:[+-]\s*)?(?i:name|key)["'\\]*\s*[:=]\s*["'\\]*$"#);
        RegexBuilder::new(&pair).unicode(false).build().expect("BUG: the pattern is a regular expression")
    });
    let from = name.range.start.saturating_sub(PAIR_BYTES_MAX);
    let front = &text[from..name.range.start];
    // Most names stand behind something else.
    let end = front.iter().rev().find(|byte| !b"\"'\\ \t".contains(byte));
    if !matches!(end, Some(b':' | b'=')) {
        return Vec::new();
    }
    let found = PAIR.captures(front);
    let values = found.iter().flat_map(|found| [1, 2].map(|group| found.get(group))).flatten();
    let places = values.map(|value| value.range()).filter(|value| !is_open(&front[value.clone()]));
    places.map(|value| from + value.start..from + value.end).collect()
}

/// Returns the syntax behind a name and the start of the value.
fn joined(text: &[u8], name: &Name) -> Option<(Joined, usize)> {
    let end = name.range.end;
    let mut at = end + escapes(&text[end..]);
    let closed = quote_at(&text[at..]);
    at += closed.map_or(0, Quote::bytes);
    at += usize::from(text.get(at) == Some(&b']'));
    let tight = at;
    at += blanks(&text[at..]);
    at += label_rest(&text[at..]);
    let rest = &text[at..];
    let begins = |mark: &[u8]| rest.starts_with(mark);
    if let Some(pair) = value_beside(text, end) {
        return Some((Joined::Within, pair));
    }
    let is_call = || {
        closed.is_some()
            && text[..name.range.start].iter().rev().skip(1).take(4).find(|byte| !byte.is_ascii_whitespace())
                == Some(&b'(')
    };
    let marks = [
        (Joined::Quoted, &["==", "!="][..]),
        (Joined::Within, &["=>", ":=", "?=", "+=", "%3D", "%3d"]),
        (Joined::Line, &["："]),
    ];
    for (joined, marks) in marks {
        if let Some(mark) = marks.iter().find(|mark| begins(mark.as_bytes())) {
            let more = usize::from(rest.get(mark.len()) == Some(&b'=') && joined == Joined::Quoted);
            return Some((joined, at + mark.len() + more));
        }
    }
    // `f(token=token)` is a program.
    let is_variable = || name.is_variable || is_at_line(text, name);
    let is_spaced = rest.get(1).is_some_and(|byte| matches!(byte, b' ' | b'\t'));
    match rest.first() {
        Some(b':') if begins(b"::") => None,
        Some(b':') => Some((if is_at_line(text, name) { Joined::Line } else { Joined::Within }, at + 1)),
        Some(b'=') if name.is_option => Some((Joined::Argument, at + 1)),
        Some(b'=') if at == tight && !is_spaced && closed.is_none() && is_at_word(text, name) && is_variable() => {
            Some((Joined::Variable, at + 1))
        }
        Some(b'=') => Some((if is_at_line(text, name) { Joined::Line } else { Joined::Within }, at + 1)),
        Some(b',') if closed.is_some() && (name.is_option || is_call() || is_header(text, name)) => {
            Some((Joined::Quoted, at + 1))
        }
        Some(b'>') if at == end && text[..name.range.start].ends_with(b"<") => Some((Joined::Element, at + 1)),
        Some(_) if at > tight => spaced(text, name, at, closed).map(|joined| (joined, at)),
        Some(_) | None => None,
    }
}

/// Returns the start of the value in a pair: `"name": "X", "value": "…"`, or `name: X` with `value: …` below it.
fn value_beside(text: &[u8], end: usize) -> Option<usize> {
    let near = &text[end..text.len().min(end + PAIR_BYTES_MAX)];
    let is_between = |byte: &u8| byte.is_ascii_whitespace() || b"\"'`\\,;n+-".contains(byte);
    let between = near.iter().take_while(|byte| is_between(byte)).count();
    let rest = &near[between..];
    let is_value = between > 0 && rest.len() > 5 && rest[..5].eq_ignore_ascii_case(b"value");
    if !is_value {
        return None;
    }
    let behind = &rest[5..];
    let closing = behind.iter().take_while(|byte| b"\"'`\\ \t".contains(byte)).count();
    matches!(behind.get(closing), Some(b':' | b'=')).then(|| end + between + 5 + closing + 1)
}

/// Whether nothing but layout, marks of a diff or a list, and words of a shell stand in front of a name in its line.
fn is_at_line(text: &[u8], name: &Name) -> bool {
    let line = line_before(text, name.range.start);
    if line.len() == LINE_BYTES_MAX {
        return false;
    }
    let line = if name.open_quote.is_none() { behind_quote(line) } else { line };
    let line = String::from_utf8_lossy(line);
    line.split_whitespace().enumerate().all(|(at, word)| {
        let is_mark = word.bytes().all(|byte| b"+-><*|#\"'`\\[]{}(".contains(&byte));
        let is_word = LINE_WORDS.contains(&word);
        // `file:12:`, `12:` and the time of a log
        let is_place = at == 0 && (word.ends_with(':') || word.bytes().all(|byte| byte.is_ascii_digit()));
        is_mark || is_word || is_place || word.starts_with('-') && word.len() <= 4
    })
}

/// The part of a line that stands in a string of JSON which begins in it.
fn behind_quote(line: &[u8]) -> &[u8] {
    let Some(at) = memchr::memrchr(b'"', line) else { return line };
    let front = &line[..at];
    let slashes = front.iter().rev().take_while(|byte| **byte == b'\\').count();
    let front = front[..at - slashes].trim_ascii_end();
    if front.last().is_some_and(|last| b":[,".contains(last)) { &line[at + 1..] } else { line }
}

/// Whether a name begins a word, as a variable of a shell does.
fn is_at_word(text: &[u8], name: &Name) -> bool {
    let start = name.range.start;
    let is_blank = |byte: u8| byte.is_ascii_whitespace() || byte == b'-' || byte == b'+' || byte == 0x1b;
    start == 0 || is_blank(text[start - 1]) || text[start - 1] == b'm' && ends_escape(text, start)
}

/// Returns the upper bound of a value: the end of the quotation that opens in front of its name, in the same line.
fn hard_end(text: &[u8], name: &Name, joined: Joined, from: usize) -> Option<usize> {
    let is_words = matches!(joined, Joined::Words | Joined::Rest);
    let around = || open_in(line_before(text, name.range.start));
    let quote = match joined {
        Joined::Words | Joined::Rest => around()?,
        Joined::Variable | Joined::Line => name.open_quote.or_else(around)?,
        Joined::Within | Joined::Argument | Joined::Quoted | Joined::Element => name.open_quote?,
    };
    if joined == Joined::Quoted || (!is_words && quote_at(&text[name.range.end..]).is_some()) {
        return None;
    }
    let rest = &text[from..text.len().min(from + (8 << 10))];
    let line = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
    let end = quote.close_in(&rest[..line]).map(|(end, _)| from + end)?;
    // In `"declare -x NAME="x"` the second mark opens the value.
    (end > from || name.open_quote.is_some()).then_some(end)
}

/// Bytes of a line in front of a name that are read.
const LINE_BYTES_MAX: usize = 96;

/// Longest distance from the name of a field to its value, in bytes: other headers may stand between.
const FIELD_BYTES_MAX: usize = 400;

/// Longest cell of a table that is a value, in bytes.
const CELL_BYTES_MAX: usize = 512;

/// Returns the syntax if only blanks separate a name from its value at `at`. `closed` is the mark behind the name.
fn spaced(text: &[u8], name: &Name, at: usize, closed: Option<Quote>) -> Option<Joined> {
    let line = String::from_utf8_lossy(line_before(text, name.range.start));
    let word = &text[name.range.clone()];
    let is = |others: &[&str]| others.iter().any(|other| word.eq_ignore_ascii_case(other.as_bytes()));
    let is_option = text.get(at) == Some(&b'-');
    if closed.is_some() {
        return (sets(&line) && !is_option).then_some(Joined::Argument);
    }
    if name.is_option {
        // Two blanks: the text of a help.
        return (at == name.range.end + 1 && !is_option).then_some(Joined::Argument);
    }
    let mut words = line.split_whitespace().rev().map(unquoted);
    let (last, before) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let sets_words = || std::iter::once(before).chain(words).find(|word| !word.starts_with('-')) == Some("set");
    if last.starts_with('-') && sets_words() {
        return Some(Joined::Words);
    }
    if last == "ENV" {
        return Some(Joined::Rest);
    }
    let is_set = SETTERS.contains(&last) || (last.starts_with('/') && before == "setx") || (sets(&line) && !is_option);
    let is_netrc = (is(&["password", "passwd"]) && (before == "login" || last == "default"))
        || (is(&["password"]) && is_in_netrc(text, name.range.start, &line));
    let is_line = last.is_empty() && is(&["bindpw", "rootpw", "rootbindpw"]);
    if is_set || is_netrc || is_line || is(&["requirepass", "masterauth"]) {
        return Some(Joined::Argument);
    }
    let is_sql = matches!(text.get(at), Some(b'\'' | b'"'))
        && (is(&["password", "passphrase", "passwd"]) || word.ends_with(b"by") || word.ends_with(b"BY"));
    is_sql.then_some(Joined::Quoted)
}

/// The part of a word behind the marks that open a text in it.
fn unquoted(word: &str) -> &str {
    word.rsplit(['"', '\'', '`', '\\', '(', '{', '[']).next().unwrap_or_default()
}

/// Whether a line ends with a command that sets what follows: `npm config set`, `git config --global`. The rest of a name in
/// front, as in `//host/:_authToken`, does not count.
fn sets(line: &str) -> bool {
    let whole = line.trim_end_matches(|char: char| !char.is_whitespace());
    let mut words = whole.split_whitespace().rev().map(unquoted).filter(|word| !word.starts_with('-'));
    let (last, before) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    (last == "set" && matches!(before, "config" | "configure" | "conf")) || (last == "config" && before == "git")
}

/// Bytes in front of a password that are read to tell if it stands in `.netrc`.
const NETRC_BYTES_MAX: usize = 400;

/// Lines of an entry of `.netrc` in front of its password, with those of a change.
const NETRC_LINES_MAX: usize = 5;

/// Whether `password` at `at` stands in an entry of `.netrc`: behind `machine x` in its line, or below it.
fn is_in_netrc(text: &[u8], at: usize, line: &str) -> bool {
    let mut words = line.split_whitespace().map(unquoted);
    match (words.next(), words.next(), words.next()) {
        (None | Some(""), None, _) => {}
        // `machine learning password reset` is prose.
        (Some("machine"), Some(host), None) => return host.contains('.') || host == "localhost",
        _ => return false,
    }
    let front = &text[at.saturating_sub(NETRC_BYTES_MAX)..at];
    for line in front.rsplit(|byte| *byte == b'\n').skip(1).take(NETRC_LINES_MAX) {
        let line = line.rsplit(|byte| b"\"'`".contains(byte)).next().unwrap_or_default();
        match line.trim_ascii().split(|byte| *byte == b' ').next().unwrap_or_default() {
            b"login" | b"machine" | b"default" => return true,
            b"password" | b"account" | b"" => {}
            _ => return false,
        }
    }
    false
}

/// Returns the bytes of the line in front of a name, up to the limit.
fn line_before(text: &[u8], at: usize) -> &[u8] {
    let front = &text[at.saturating_sub(LINE_BYTES_MAX)..at];
    let from = memchr::memrchr2(b'\n', b'\r', front).map_or(0, |end| end + 1);
    &front[from..]
}

/// Returns the length of the rest of a label: `Secret Access Key [None]:`, `Unseal Key 1:`, `Your API key is:`.
fn label_rest(rest: &[u8]) -> usize {
    let near = &rest[..rest.len().min(40)];
    let bytes = match near.first() {
        Some(b'[') => near.iter().position(|byte| *byte == b']').map_or(0, |at| at + 1),
        Some(b'0'..=b'9') => near.iter().take_while(|byte| byte.is_ascii_digit()).count(),
        Some(b'i') if near.starts_with(b"is") => 2,
        Some(_) | None => 0,
    };
    if bytes > 0 && near.get(bytes) == Some(&b':') { bytes } else { 0 }
}

/// The upright line between the cells of a table.
const BARS: [&[u8]; 3] = [b"|", "│".as_bytes(), "┃".as_bytes()];

/// The value in the cell behind that of a name: `| DB_PASSWORD | x |`. `at` is the place of the bar between them.
fn cell(text: &[u8], name: &Name, at: usize) -> Option<Range<usize>> {
    let bar = BARS.into_iter().find(|bar| text[at..].starts_with(bar))?;
    let line = line_before(text, name.range.start);
    let front = line.trim_ascii_end();
    // `map(|pass| …)` is a program.
    let is_apart = text[..at].ends_with(b" ") && (line.is_empty() || line.ends_with(b" "));
    let is_first = is_apart && line.len() < LINE_BYTES_MAX && (front.is_empty() || front.ends_with(bar));
    let front = at + bar.len();
    let near = &text[front..text.len().min(front + CELL_BYTES_MAX)];
    let end = BARS.into_iter().filter_map(|bar| memchr::memmem::find(near, bar)).min().unwrap_or(near.len());
    let end = memchr::memchr(b'\n', &near[..end]).unwrap_or(end);
    let value = near[..end].trim_ascii();
    let value = value.strip_prefix(b"`").and_then(|value| value.strip_suffix(b"`")).unwrap_or(value);
    let has = |is: fn(&u8) -> bool| value.iter().any(is);
    let is_word = !value.is_empty() && !has(u8::is_ascii_whitespace) && near.first() == Some(&b' ');
    let is_mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic);
    let is_variable = name.is_variable && text[name.range.clone()].contains(&b'_');
    let is_type = one_of(value, &WORDS_OF_CODE);
    let is_value = is_first && is_word && (is_mixed || is_variable) && !is_type && !is_open(value);
    let from = value.as_ptr().addr() - text.as_ptr().addr();
    is_value.then(|| from..from + value.len())
}

/// The value of a field of a form: `name="password"`, an empty line, and the value.
fn field(text: &[u8], name: &Name, at: usize) -> Option<Range<usize>> {
    let front = &text[..name.range.start - name.open_quote.map_or(0, Quote::bytes)];
    let rest = &text[at..text.len().min(at + FIELD_BYTES_MAX)];
    if !front.ends_with(b"name=") || !matches!(rest.first(), Some(b'\r' | b'\n' | b'\\' | b';')) {
        return None;
    }
    let blank = |mark: &[u8]| memchr::memmem::find(rest, mark).map(|found| at + found + mark.len());
    let from = [&b"\r\n\r\n"[..], b"\n\n", b"\\r\\n\\r\\n", b"\\n\\n"].into_iter().filter_map(blank).min()?;
    let near = &text[from..text.len().min(from + FIELD_BYTES_MAX)];
    let end = from + near.iter().position(|byte| b"\r\n\\".contains(byte)).unwrap_or(near.len());
    (end > from && !is_open(&text[from..end])).then_some(from..end)
}
