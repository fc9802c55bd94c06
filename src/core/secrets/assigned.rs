//! Values that stand behind a name that means a secret, however the two are put together.
//!
//! One pass from one name to the next. What is looked at behind a name is either taken as its value, and skipped, or bounded.

use std::ops::Range;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use regex::bytes::Regex;

use super::names::{Label, name_at, sort_of, word_names_secret};
use super::quote::{Quote, open_in, quote_at};
use super::signed::Address;
use super::table::{BEARER_WORDS, LABEL_KEYS, QUERY_NAMES, SPACED, Syntax, WORDS_OF_CODE};
use super::value::{Values, blanks, is_open};
use super::{is_any, one_of, pattern, patterns};

patterns! {
    /// The value of a part of an address, as far as it has to hold a digit.
    QUERY_VALUE = r"^=[\w.~%+/-]{8}";
    /// The marks that may stand around a name in a cell of a table, and the value in the next cell. `map(|pass| …)` is a program.
    CELL_BEFORE = r"^(?:(?:.*(?:\||│|┃))?[ \t]* )?$";
    CELL = r"^[ \t]* (?:\||│|┃) +`?([^\s`|]+?)`?[ \t\r]*(?:\n|\||│|┃|$)";
    /// The field of a form, and its value: behind an empty line.
    FIELD_BEFORE = r#"name=\\*["']$"#;
    FIELD = r#"(?s)^\\*["'](?:[;\r\n\\].{0,400}?)??(?:\r\n\r\n|\n\n|\\r\\n\\r\\n|\\n\\n)([^\r\n\\]+)"#;
    /// One value or two in front of the name in a pair.
    PAIR = concat!(
        r#"(?:(?i:\bvalue)["'\\]*\s*[:=]\s*["'\\]*([^"'\\\n,]+)["'\\]*[\s,+-]+["'\\]*)?"#,
        r#"(?i:\bvalue)["'\\]*\s*[:=]\s*["'\\]*([^"'\\\n,]+)["'\\]*[\s,+-]+["'\\]*"#,
        r#"(?:[+-]\s*)?(?i:name|key)["'\\]*\s*[:=]\s*["'\\]*$"#
    );
    VALUE_BESIDE = r#"^[\s"'`\\,;n+-]+(?i:value)["'`\\ \t]*[:=]"#;
    /// The end of a quotation, blanks, and what joins a name and its value. `Secret Access Key [None]:`, `Your API key is:`
    JOINED = concat!(
        r#"^('\\''|'"'"'|\\{0,8}["'`])?\]?([ \t]*)"#,
        r"(===?|!==?|=>|:=|\?=|\+=|=|%3[Dd]|：|(?:\[[^\]]{0,38}\]|\d{1,39}|is)?:|,|>)?"
    );
    /// What stands in front of the last string of JSON in a line.
    BEFORE_STRING = r#"^.*[:\[,][ \t]*\\*""#;
    /// Layout, marks of a diff or a list, and words of a shell in front of a name that begins its line.
    AT_LINE = concat!(
        r#"^\s*(?:(?:\S*:|\d+)(?:\s+|$))?"#,
        r#"(?:(?:[-+><*|#"'`\\\[\]{}(]+|export|set|env|ENV|ARG|declare|typeset|local|readonly|//|-\S{0,3})(?:\s+|$))*$"#
    );
    /// A command that sets what follows: `npm config set`, `git config --global`. The rest of a name in front, as in
    /// `//host/:_authToken`, does not count.
    SETS = r#"(?:^|[\s"'`\\({\[])(?:(?:config|configure|conf)\s+(?:-\S*\s+)*set|git\s+(?:-\S*\s+)*config)\s+(?:-\S*\s+)*\S*$"#;
    /// `machine x` in front of a password in its line; `machine learning password reset` is prose.
    MACHINE = r#"(?:^|["'`\\({\[])\s*machine\s+(?:\S*\.\S*|localhost)\s+$"#;
}

/// The words in front of a name, for each of [`SPACED`].
static AHEAD: LazyLock<Vec<Regex>> = LazyLock::new(|| SPACED.iter().map(|(_, ahead, _)| pattern(ahead)).collect());

/// Longest distance from a name to the member `value` that belongs to it, in bytes.
const PAIR_BYTES_MAX: usize = 120;

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

/// Most values of one name in a pair, of which a change has two.
const PAIRS_MAX: usize = 4;

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
        let Some(mut name) = name_at(text, mark, self.name_end) else { return };
        self.at = self.at.max(name.range.end);
        self.name_end = name.range.end;
        if let Some(value) = credential(text, &name).or_else(|| self.address.signature(text, &name)) {
            values.add(value);
        } else if is_whole || means_secret(text, &name) {
            name.sort = sort_of(&text[name.range.clone()]);
            values_before(text, &name).into_iter().for_each(|value| values.add(value));
            if let Some(value) = beside(text, &name) {
                values.add(value);
            } else if let Some((joined, from)) = joined(text, &name) {
                values.take(&name, joined, from, hard_end(text, &name, joined, from));
                // The values that stand below the first one of a pair, as a change has them.
                let pairs = if value_beside(text, name.range.end).is_some() { PAIRS_MAX } else { 1 };
                for _ in 1..pairs {
                    let Some(from) = value_beside(text, values.taken_to()) else { break };
                    values.take(&name, Syntax::Within, from, None);
                }
            }
        }
        self.at = self.at.max(values.taken_to().min(text.len()));
    }
}

fn means_secret(text: &[u8], name: &Label) -> bool {
    let Ok(word) = std::str::from_utf8(&text[name.range.clone()]) else { return false };
    let front = &text[..name.range.start];
    let is_weak = is_any(word.trim_matches(['_', '-']).as_bytes(), &["pass", "pwd"]);
    !word.is_ascii()
        || (is_weak && !is_verdict(text, name))
        || word.split('.').any(word_names_secret)
        || (word.eq_ignore_ascii_case("passe") && front.ends_with(b"ot de "))
        || (is_any(word.as_bytes(), &["key", "keys"]) && is_label(front))
        || is_query(text, name, word)
}

/// Whether the words in front make `key` a secret: `Secret Access Key: …`.
fn is_label(front: &[u8]) -> bool {
    let Some(front) = front.strip_suffix(b" ") else { return false };
    let before = front.iter().rev().take(16).take_while(|byte| byte.is_ascii_alphabetic()).count();
    is_any(&front[front.len() - before..], &LABEL_KEYS)
}

/// Whether a name is that of a part of an address that opens something: `?key=…`, `&sig=…`.
fn is_query(text: &[u8], name: &Label, word: &str) -> bool {
    let is_part = [&b"?"[..], b"&", b"&amp;", b"\\u0026"].iter().any(|mark| text[..name.range.start].ends_with(mark));
    is_part
        && is_any(word.as_bytes(), &QUERY_NAMES)
        && QUERY_VALUE
            .find(&text[name.range.end..])
            .is_some_and(|value| value.as_bytes().iter().any(u8::is_ascii_digit))
}

/// Whether `PASS:` is the verdict of a test runner: `--- PASS: TestX` of Go, or `PASS: test` of automake at the start of a line.
/// An environment in YAML is indented.
fn is_verdict(text: &[u8], name: &Label) -> bool {
    let (before, behind) = (&text[..name.range.start], &text[name.range.end..]);
    text[name.range.clone()] == *b"PASS"
        && behind.starts_with(b": ")
        && (before.is_empty() || before.ends_with(b"\n") || before.ends_with(b"--- "))
}

/// `Bearer …`, and `Basic …` if that holds a name and a password.
fn credential(text: &[u8], name: &Label) -> Option<Range<usize>> {
    let word = &text[name.range.clone()];
    let is_bearer = word.eq_ignore_ascii_case(b"bearer");
    if !is_bearer && !word.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let from = name.range.end + blanks(&text[name.range.end..]);
    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"._~+/=-".contains(byte);
    let bytes = text[from..].iter().take_while(is_part).count();
    let token = &text[from..from + bytes];
    let fits = if is_bearer {
        let is_name = token.starts_with(b"token") && token.len() < 12;
        // `Bearer: x` and `bearer = x` are names with values.
        from > name.range.end && bytes >= 8 && !is_any(token, &BEARER_WORDS) && !is_name && token[0] != b'='
    } else {
        let holds_pair = |said: Vec<u8>| said.contains(&b':') && said.iter().all(|byte| *byte >= b' ');
        bytes >= 4 && BASE64_STANDARD.decode(&token[..bytes / 4 * 4]).is_ok_and(holds_pair)
    };
    fits.then_some(from..from + bytes)
}

/// The value in the next cell of a table or below the name of a field of a form.
fn beside(text: &[u8], name: &Label) -> Option<Range<usize>> {
    let line = line_before(text, name.range.start);
    let near = &text[name.range.end..text.len().min(name.range.end + BESIDE_BYTES_MAX)];
    let value = match near.first()? {
        b' ' if line.len() < LINE_BYTES_MAX && CELL_BEFORE.is_match(line) => {
            let value = CELL.captures(near)?.get(1)?;
            let has = |is: fn(&u8) -> bool| value.as_bytes().iter().any(is);
            let is_mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic);
            let is_variable = name.is_variable && text[name.range.clone()].contains(&b'_');
            Some(value).filter(|value| (is_mixed || is_variable) && !one_of(value.as_bytes(), &WORDS_OF_CODE))?
        }
        b'"' | b'\'' | b'\\' if FIELD_BEFORE.is_match(line) => FIELD.captures(near)?.get(1)?,
        _ => return None,
    };
    (!is_open(value.as_bytes())).then(|| name.range.end + value.start()..name.range.end + value.end())
}

/// The value in a pair that begins with it, `"value": "…", "name": "X"`, and an older one in front of that in a change.
fn values_before(text: &[u8], name: &Label) -> Vec<Range<usize>> {
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

/// Returns the start of the value in a pair: `"name": "X", "value": "…"`, or `name: X` with `value: …` below it.
fn value_beside(text: &[u8], end: usize) -> Option<usize> {
    let near = &text[end..text.len().min(end + PAIR_BYTES_MAX)];
    let is_between = near.first().is_some_and(|byte| byte.is_ascii_whitespace() || b"\"'`\\,;n+-".contains(byte));
    is_between.then(|| VALUE_BESIDE.find(near).map(|found| end + found.end())).flatten()
}

/// Bytes behind a name in which it is joined to its value.
const JOINED_BYTES_MAX: usize = 256;

/// Returns the syntax behind a name and the start of the value.
fn joined(text: &[u8], name: &Label) -> Option<(Syntax, usize)> {
    let end = name.range.end;
    if let Some(pair) = value_beside(text, end) {
        return Some((Syntax::Within, pair));
    }
    let found = JOINED.captures(&text[end..text.len().min(end + JOINED_BYTES_MAX)])?;
    let group = |group| found.get(group).map_or(&[][..], |group| group.as_bytes());
    let (close, gap, mark) = (group(1), group(2), group(3));
    let from = end + found.get_match().end();
    let (is_closed, behind) = (!close.is_empty(), text.get(from));
    let line = || if is_at_line(text, name) { Syntax::Line } else { Syntax::Within };
    let joined = match mark {
        [b'=' | b'!', b'=', ..] => Syntax::Quoted,
        [b'=' | b':' | b'?' | b'+', b'>' | b'='] | [b'%', ..] => Syntax::Within,
        [b'=', ..] if name.is_option => Syntax::Argument,
        b"=" => {
            let is_tight = gap.is_empty() && !is_closed && !matches!(behind, Some(b' ' | b'\t'));
            let start = name.range.start;
            let is_at_word =
                start == 0 || matches!(text[start - 1], b'-' | b'+') || text[start - 1].is_ascii_whitespace();
            // `f(token=token)` is a program.
            let is_variable = is_tight && is_at_word && (name.is_variable || line() == Syntax::Line);
            if is_variable { Syntax::Variable } else { line() }
        }
        b"," => {
            let front = &text[..name.range.start - name.open_quote.map_or(0, Quote::bytes)];
            let is_header = text[name.range.clone()].contains(&b'-') && front.ends_with(b"[");
            let is_call = front.iter().rev().take(4).find(|byte| !byte.is_ascii_whitespace()) == Some(&b'(');
            (is_closed && (name.is_option || is_call || is_header)).then_some(Syntax::Quoted)?
        }
        b">" => (from == end + 1 && text[..name.range.start].ends_with(b"<")).then_some(Syntax::Element)?,
        [.., b':'] => (behind != Some(&b':')).then(line)?,
        [] => (!gap.is_empty()).then(|| spaced(text, name, from, is_closed))??,
        _ => Syntax::Line,
    };
    Some((joined, from))
}

/// Returns the syntax if only blanks separate a name from its value at `at`. `is_closed` says that a quotation ends behind it.
fn spaced(text: &[u8], name: &Label, at: usize, is_closed: bool) -> Option<Syntax> {
    let line = line_before(text, name.range.start);
    let is_option = text.get(at) == Some(&b'-');
    let sets = || !is_option && SETS.is_match(line);
    if is_closed {
        return sets().then_some(Syntax::Argument);
    }
    if name.is_option {
        // Two blanks: the text of a help.
        return (at == name.range.end + 1 && !is_option).then_some(Syntax::Argument);
    }
    let word = &text[name.range.clone()];
    let mut rules = SPACED.iter().zip(&*AHEAD);
    let by_words = rules.find(|((names, ..), ahead)| (names.is_empty() || is_any(word, names)) && ahead.is_match(line));
    let by_words = by_words.map(|((.., joined), _)| *joined);
    by_words.or_else(|| sets().then_some(Syntax::Argument)).or_else(|| {
        let is_netrc = is_any(word, &["password"]) && is_in_netrc(text, name.range.start, line);
        let is_sql = matches!(text.get(at), Some(b'\'' | b'"'))
            && (is_any(word, &["password", "passphrase", "passwd"]) || word.ends_with(b"by") || word.ends_with(b"BY"));
        is_netrc.then_some(Syntax::Argument).or(is_sql.then_some(Syntax::Quoted))
    })
}

/// Whether a name begins its line, or a string of JSON in it.
fn is_at_line(text: &[u8], name: &Label) -> bool {
    let line = line_before(text, name.range.start);
    let string = if name.open_quote.is_none() { BEFORE_STRING.find(line) } else { None };
    let near = &line[string.map_or(0, |found| found.end())..];
    line.len() < LINE_BYTES_MAX && !near.ends_with(b"\\") && AT_LINE.is_match(near)
}

/// Returns the upper bound of a value: the end of the quotation that opens in front of its name, in the same line.
fn hard_end(text: &[u8], name: &Label, joined: Syntax, from: usize) -> Option<usize> {
    let is_words = matches!(joined, Syntax::Words | Syntax::Rest);
    let around = || open_in(line_before(text, name.range.start));
    let quote = match joined {
        Syntax::Words | Syntax::Rest => around()?,
        Syntax::Variable | Syntax::Line => name.open_quote.or_else(around)?,
        Syntax::Quoted => return None,
        Syntax::Within | Syntax::Argument | Syntax::Element => name.open_quote?,
    };
    if !is_words && quote_at(&text[name.range.end..]).is_some() {
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

/// Longest distance from a name to its value in a table or a form, in bytes.
const BESIDE_BYTES_MAX: usize = 800;

/// Bytes in front of a password that are read to tell if it stands in `.netrc`, and lines of an entry with those of a change.
const NETRC_BYTES_MAX: usize = 400;
const NETRC_LINES_MAX: usize = 5;

/// Whether `password` at `at` stands in an entry of `.netrc`: behind `machine x` in its line, or below it.
fn is_in_netrc(text: &[u8], at: usize, line: &[u8]) -> bool {
    if !line.iter().all(|byte| b" \t\"'`\\({[".contains(byte)) {
        return MACHINE.is_match(line);
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
