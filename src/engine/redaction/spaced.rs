//! Names that no `=` or `:` joins with their values: words of commands, cells of tables, fields of forms, and sentences.

use std::ops::Range;

use super::assigned::{Joined, Name};
use super::judged::is_open;
use super::quotes::{Quote, open_in};
use super::table::WORDS_OF_CODE;

/// Bytes of a line in front of a name that are read.
pub(super) const LINE_BYTES_MAX: usize = 96;

/// Longest distance from the name of a field to its value, in bytes: other headers may stand between.
const FIELD_BYTES_MAX: usize = 400;

/// Longest cell of a table that is a value, in bytes.
const CELL_BYTES_MAX: usize = 512;

/// Words behind which a name and its value follow with blanks between.
const SETTERS: [&str; 10] = [
    "setenv",
    "setx",
    "ENV",
    "ARG",
    "SetEnv",
    "fastcgi_param",
    "uwsgi_param",
    "scgi_param",
    "proxy_set_header",
    "add_header",
];

/// Returns the syntax if only blanks separate a name from its value at `at`. `closed` is the mark behind the name.
pub(super) fn spaced(text: &[u8], name: &Name, at: usize, closed: Option<Quote>) -> Option<Joined> {
    let is_one = at == name.range.end + 1;
    let line = line_before(text, name.range.start);
    let is = |other: &[u8]| text[name.range.clone()].eq_ignore_ascii_case(other);
    let is_quote = matches!(text.get(at), Some(b'\'' | b'"'));
    let said = String::from_utf8_lossy(line);
    if closed.is_some() {
        return (sets(&said) && text.get(at) != Some(&b'-')).then_some(Joined::Argument);
    }
    if name.is_option {
        // Two blanks: the text of a help.
        return (is_one && text.get(at) != Some(&b'-')).then_some(Joined::Argument);
    }
    let mut words = said.split_whitespace().rev().map(unquoted);
    let (last, before) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if last.starts_with('-') && before == "set" {
        return Some(Joined::Words);
    }
    let is_set = SETTERS.contains(&last) || (sets(&said) && text.get(at) != Some(&b'-'));
    let is_netrc = (is(b"password") || is(b"passwd")) && (before == "login" || last == "default");
    let is_netrc = is_netrc || (is(b"password") && last.is_empty() && follows_login(text, name.range.start));
    let is_line = last.is_empty() && (is(b"bindpw") || is(b"rootpw") || is(b"rootbindpw"));
    if is_set || is_netrc || is_line || is(b"requirepass") || is(b"masterauth") {
        return Some(Joined::Argument);
    }
    let word = &text[name.range.clone()];
    let is_sql = is_quote
        && (is(b"password") || is(b"passphrase") || is(b"passwd") || word.ends_with(b"by") || word.ends_with(b"BY"));
    is_sql.then_some(Joined::Quoted)
}

/// A word without the marks that open a text in front of it.
fn unquoted(word: &str) -> &str {
    word.trim_start_matches(['"', '\'', '`', '\\', '(', '{'])
}

/// Whether a line ends with a command that sets what follows: `npm config set`, `git config --global`. The rest of a name in
/// front, as in `//host/:_authToken`, does not count.
fn sets(line: &str) -> bool {
    let whole = line.trim_end_matches(|char: char| !char.is_whitespace());
    let mut words = whole.split_whitespace().rev().map(unquoted).filter(|word| !word.starts_with('-'));
    let (last, before) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    (last == "set" && matches!(before, "config" | "configure" | "conf")) || (last == "config" && before == "git")
}

/// Returns the end of the text in quotation marks that is open in front of a name, in its line.
pub(super) fn enclosing_end(text: &[u8], at: usize, from: usize) -> Option<usize> {
    let quote = open_in(line_before(text, at))?;
    let rest = &text[from..text.len().min(from + (8 << 10))];
    let line = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
    quote.close_in(&rest[..line]).map(|(end, _)| from + end)
}

/// Whether the line in front is that of a name in `.netrc`.
fn follows_login(text: &[u8], at: usize) -> bool {
    let front = &text[at.saturating_sub(LINE_BYTES_MAX)..at];
    let mut lines = front.rsplit(|byte| *byte == b'\n').skip(1);
    lines.next().is_some_and(|line| line.trim_ascii_start().starts_with(b"login "))
}

/// Returns the bytes of the line in front of a name, up to the limit.
pub(super) fn line_before(text: &[u8], at: usize) -> &[u8] {
    let front = &text[at.saturating_sub(LINE_BYTES_MAX)..at];
    let from = memchr::memrchr2(b'\n', b'\r', front).map_or(0, |end| end + 1);
    &front[from..]
}

/// Returns the length of the rest of a label: `Secret Access Key [None]:`, `Unseal Key 1:`, `Your API key is:`.
pub(super) fn label_rest(rest: &[u8]) -> usize {
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
pub(super) fn cell(text: &[u8], name: &Name, at: usize) -> Option<Range<usize>> {
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
    let is_type = WORDS_OF_CODE.iter().any(|word| value == word.as_bytes());
    let is_value = is_first && is_word && (is_mixed || is_variable) && !is_type && !is_open(value);
    let from = value.as_ptr().addr() - text.as_ptr().addr();
    is_value.then(|| from..from + value.len())
}

/// The value of a field of a form: `name="password"`, an empty line, and the value.
pub(super) fn field(text: &[u8], name: &Name, at: usize) -> Option<Range<usize>> {
    let front = &text[..name.range.start - name.open_quote.map_or(0, Quote::bytes)];
    let rest = &text[at..text.len().min(at + FIELD_BYTES_MAX)];
    if !front.ends_with(b"name=") || !matches!(rest.first(), Some(b'\r' | b'\n' | b'\\' | b';')) {
        return None;
    }
    let blank = |mark: &[u8]| memchr::memmem::find(rest, mark).map(|found| at + found + mark.len());
    let from = [&b"\r\n\r\n"[..], b"\n\n", b"\\r\\n\\r\\n", b"\\n\\n"].into_iter().filter_map(blank).min()?;
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n' | b'\\');
    let end = from
        + text[from..]
            .iter()
            .take(FIELD_BYTES_MAX)
            .position(is_end)
            .unwrap_or(text.len().min(from + FIELD_BYTES_MAX) - from);
    (end > from && !is_open(&text[from..end])).then_some(from..end)
}
