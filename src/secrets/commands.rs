//! Secrets in the arguments of commands, by the shapes of `table`.
//!
//! A text is looked through line by line, and a long line in parts, so that no pattern is looked for over more than
//! [`LINE_BYTES_MAX`] bytes at once.

use std::ffi::OsString;
use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use regex::bytes::{Regex, RegexBuilder};

use super::names::names_secret;
use super::table::{COMMAND_SHAPES, CommandShape, DIVIDING};
use super::value::is_open;
use super::{automaton, merged, quote_at, secret_spans};

/// Longest line that is looked at as a whole for these, in bytes; a longer one is taken in parts.
const LINE_BYTES_MAX: usize = 8 << 10;

/// Marks of which every command with a secret holds one.
pub(super) fn marks() -> impl Iterator<Item = &'static str> {
    COMMAND_SHAPES.iter().flat_map(|shape| shape.marks).copied()
}

static MARKED: LazyLock<AhoCorasick> = LazyLock::new(|| automaton(marks()));

/// Each shape with its pattern.
static SHAPES: LazyLock<Vec<(&CommandShape, Regex)>> = LazyLock::new(|| {
    let compiled = |pattern| RegexBuilder::new(pattern).unicode(false).build();
    let compiled = |pattern| compiled(pattern).expect("BUG: the patterns are regular expressions");
    COMMAND_SHAPES.iter().map(|shape| (shape, compiled(shape.pattern))).collect()
});

/// The names of each shape's commands, or its marks if it has none, and the place of the shape.
static WORDS: LazyLock<(AhoCorasick, Vec<usize>)> = LazyLock::new(|| {
    let of_shape = |shape: &CommandShape| if shape.commands.is_empty() { shape.marks } else { shape.commands };
    let words = COMMAND_SHAPES.iter().enumerate();
    let words = words.flat_map(|(at, shape)| of_shape(shape).iter().map(move |word| (*word, at)));
    let (words, shapes): (Vec<_>, Vec<_>) = words.unzip();
    (automaton(words), shapes)
});

/// Adds the places of secrets among a command's arguments. An apostrophe may open a quotation or not, so the commands
/// are divided both ways.
pub(super) fn find(text: &[u8], spans: &mut Vec<Range<usize>>) {
    let (words, shapes) = &*WORDS;
    let mut at = 0;
    for part in parts(text) {
        if MARKED.is_match(part) {
            let mut is_named = [false; COMMAND_SHAPES.len()];
            words.find_overlapping_iter(part).for_each(|found| is_named[shapes[found.pattern().as_usize()]] = true);
            for ((shape, pattern), _) in SHAPES.iter().zip(is_named).filter(|(_, is_named)| *is_named) {
                if shape.commands.is_empty() {
                    add(pattern, part, at, spans);
                    continue;
                }
                for command in [Quotes::Seen, Quotes::Unseen].into_iter().flat_map(|quotes| commands(part, quotes)) {
                    let Some(behind) = behind_name(&part[command.clone()], shape.commands) else { continue };
                    let from = command.start + behind;
                    add(pattern, &part[from..command.end], at + from, spans);
                }
            }
        }
        at += part.len();
    }
}

fn add(shape: &Regex, text: &[u8], at: usize, spans: &mut Vec<Range<usize>>) {
    spans.extend(shape.captures_iter(text).filter_map(|found| {
        let all = found.get_match().range();
        let from = found.name("keep").map_or(all.start, |kept| kept.end());
        let to = found.name("then").map_or(all.end, |kept| kept.start());
        // `-p $PASSWORD` names a place.
        let value = text[from..to].strip_prefix(b"\"").unwrap_or(&text[from..to]);
        let is_place = value.starts_with(b"$") && is_open(value.strip_suffix(b"\"").unwrap_or(value));
        (!is_place).then_some(at + from..at + to)
    }));
}

/// Returns the end of the first name of a command.
fn behind_name(command: &[u8], names: &[&str]) -> Option<usize> {
    let is_word = |at: usize| command.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let behind = |name: &&str| {
        let found = memchr::memmem::find_iter(command, name.as_bytes());
        let mut ends = found.filter(|at| *at == 0 || !is_word(at - 1)).map(|at| at + name.len());
        // `mysqldump` takes what `mysql` takes.
        let is_family = matches!(*name, "mysql" | "mariadb");
        ends.find(|end| is_family || !is_word(*end))
    };
    names.iter().filter_map(behind).min()
}

/// Whether separators in quotation marks divide commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quotes {
    Seen,
    Unseen,
}

/// The commands of a part.
fn commands(part: &[u8], quotes: Quotes) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let rest = part.get(from..).filter(|rest| !rest.is_empty())?;
        let command = from..from + command_end(rest, quotes, b"|;&");
        from = command.end + 1;
        Some(command)
    })
}

/// Returns the end of the command that a text begins with: the end of its line, unless a `\\` stands there, or one of `separators`.
pub(super) fn command_end(text: &[u8], quotes: Quotes, separators: &[u8]) -> usize {
    let mut open = None;
    let is_end = |at: &usize| match (text[*at], open) {
        (b'\n', _) => quotes == Quotes::Unseen || !text[..*at].ends_with(b"\\"),
        (byte, Some(quote)) => {
            open = open.filter(|_| byte != quote);
            false
        }
        (quote @ (b'"' | b'\''), None) => {
            open = (quotes == Quotes::Seen).then_some(quote);
            false
        }
        (byte, None) => separators.contains(&byte),
    };
    (0..text.len()).find(is_end).unwrap_or(text.len())
}

/// Returns the start of the last of [`DIVIDING`] in the second half of a text.
fn last_command(text: &[u8]) -> Option<usize> {
    let last = DIVIDING.iter().filter_map(|command| memchr::memmem::rfind(text, command.as_bytes())).max();
    last.filter(|at| *at > text.len() / 2)
}

/// The lines of a text, with those that go on behind a `\\`; of one that is too long, parts that end with a word.
fn parts(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let is_end = |at: &usize| !rest[..*at].ends_with(b"\\");
        let near = &rest[..rest.len().min(LINE_BYTES_MAX)];
        let end = match memchr::memchr_iter(b'\n', near).find(is_end) {
            Some(at) => at + 1,
            None if near.len() == rest.len() => rest.len(),
            // The next part begins with a command, or else not between an option and what it is given.
            None => last_command(near).unwrap_or_else(|| {
                let is_between = |at: &usize| {
                    let word = near[..*at].rsplit(|byte| byte.is_ascii_whitespace()).next();
                    !word.is_some_and(|word| word.starts_with(b"-"))
                };
                let blanks = (1..near.len()).rev().filter(|at| matches!(near[*at], b' ' | b'\n'));
                blanks.take(BLANKS_MAX).find(is_between).map_or(near.len(), |at| at + 1)
            }),
        };
        let (part, behind) = rest.split_at(end);
        rest = behind;
        Some(part)
    })
}

/// Blanks that are tried at the end of a part.
const BLANKS_MAX: usize = 64;

/// Longest list that is read as a command, in bytes.
const LIST_BYTES_MAX: usize = 8 << 10;

/// Returns, in order, the places of secrets in commands that are JSON lists of words.
pub(super) fn given_in_lists(json: &str) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    in_lists(json.as_bytes(), &mut spans);
    merged(spans)
}

/// Adds where secrets stand in lists of texts that are commands. A list that does not close is passed over.
pub(super) fn in_lists(text: &[u8], spans: &mut Vec<Range<usize>>) {
    let mut at = 0;
    while let Some(open) = memchr::memchr(b'[', &text[at..]).map(|found| at + found) {
        let limit = text.len().min(open + LIST_BYTES_MAX);
        let (command, end) = command(&text[open..limit]);
        if !command.is_empty() {
            let mut found = Vec::new();
            find(&command, &mut found);
            spans.extend(found.into_iter().map(|span| open + span.start..open + span.end));
        }
        at = open + end.max(1);
    }
}

/// The words of a list as a line of the same length, with a blank for all between them, and how much of the text was read. Blanks
/// and marks within a word are written as a sign that no command holds. The line is empty if the list is not one of texts.
fn command(list: &[u8]) -> (Vec<u8>, usize) {
    let mut line = Vec::new();
    let mut at = 1 + layout(&list[1..]);
    let mut words = 0;
    while let Some(quote) = quote_at(&list[at..]) {
        let from = at + quote.bytes();
        let Some((bytes, mark)) = list.get(from..).and_then(|rest| quote.close_in(rest)) else {
            return (Vec::new(), list.len());
        };
        line.resize(from, b' ');
        line.extend(list[from..from + bytes].iter().map(|byte| {
            let is_mark = byte.is_ascii_whitespace() || b"\"'`|;&<>()".contains(byte);
            if is_mark { WITHIN } else { *byte }
        }));
        words += 1;
        at = from + bytes + mark;
        at += layout(&list[at..]);
        match list.get(at) {
            Some(b',') => at += 1 + layout(&list[at + 1..]),
            Some(b']') if words > 1 => {
                line.resize(at, b' ');
                return (line, at + 1);
            }
            Some(_) | None => break,
        }
    }
    (Vec::new(), at)
}

/// Stands for a blank or a mark within a word.
const WITHIN: u8 = 1;

/// Returns the length of blanks and line ends, also as JSON in a text has them.
fn layout(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

/// A command line for the record. Masks the value of each name that names a secret, and each argument that looks like a key.
#[must_use]
pub(crate) fn masked_args(args: &[OsString]) -> Vec<String> {
    let has_secret = |text: &str| !is_plain_word(text) && !secret_spans(text.as_bytes()).is_empty();
    let mut after_secret_option = false;
    args.iter()
        .map(|arg| {
            let arg = arg.to_string_lossy();
            let is_value = std::mem::replace(&mut after_secret_option, arg.starts_with('-') && names_secret(&arg));
            match arg.split_once('=') {
                // `-c env={API_KEY="…"}` names the secret in the value.
                Some((name, value)) if names_secret(name) || names_secret(value) || has_secret(value) => {
                    after_secret_option = false;
                    format!("{name}={MASK}")
                }
                Some(_) => arg.into_owned(),
                None if is_value || has_secret(&arg) => MASK.to_owned(),
                // `Authorization: Bearer …`
                None if arg.contains([':', ' ']) && names_secret(&arg) => MASK.to_owned(),
                None => arg.into_owned(),
            }
        })
        .collect()
}

/// Whether a text is a short word or an absolute path of short words, which cannot look like a secret. Spares the start of a
/// relay the construction of the automata.
fn is_plain_word(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_word = |word: &str| word.len() < KEY_BYTES_MIN && word.bytes().all(is_part);
    match text.strip_prefix('/') {
        Some(path) => path.split('/').all(is_word),
        None => is_word(text),
    }
}

/// No key without a name is shorter, in bytes.
const KEY_BYTES_MIN: usize = 13;

/// Replaces a secret in a command line.
const MASK: &str = "[secret]";

#[cfg(test)]
mod tests {
    use super::super::table::KEY_SHAPES;
    use super::*;

    #[test]
    fn command_lines_are_masked() {
        let check = |arg: &str, expect: &str| assert_eq!(masked_args(&[OsString::from(arg)]), [expect]);
        check("x.api_key=sk-1", "x.api_key=[secret]");
        check("model=gpt", "model=gpt");
        check("max_tokens=5", "max_tokens=5");
        check(r#"mcp_servers.x.env={API_KEY="k"}"#, "mcp_servers.x.env=[secret]");
        check("Authorization: Bearer abc", "[secret]");
        check("sk-abcdefghijklmnopqrst", "[secret]");
        check("--token=t", "--token=[secret]");
        check("AWS_SECRET_ACCESS_KEY=x", "AWS_SECRET_ACCESS_KEY=[secret]");
        check("--listen=postgres://u:pw@h/db", "--listen=[secret]");
        check("密钥ghp_abcdefghijklmnopqrst", "[secret]");
        let args = ["--api-key", "k", "--verbose", "k"].map(OsString::from);
        assert_eq!(masked_args(&args), ["--api-key", "[secret]", "--verbose", "k"]);
    }

    #[test]
    fn plain_words_are_too_short_for_a_key() {
        for shape in KEY_SHAPES {
            let shortest = shape.starts().map(str::len).min().unwrap_or_default() + shape.tail_bytes_min;
            assert!(shortest >= KEY_BYTES_MIN, "{:?}", shape.starts().collect::<Vec<_>>());
        }
        assert!(is_plain_word("/home/me/.nvm/versions/node/v20.20.2/bin/codex") && is_plain_word("app-server"));
        for text in ["sk-abcdefghijklmnop", "/a/sk-abcdefghijklmnop", "a:b", "a@b", "a b", "password=x", "ä"] {
            assert!(!is_plain_word(text), "{text}");
        }
    }

    #[test]
    fn long_lines_are_divided_between_words() {
        let long = format!("{} curl -u a:bcd h\n", "x".repeat(9_000));
        let text = format!("a\\\nb\n{long}ä {}", "ö".repeat(5_000));
        assert_eq!(parts(text.as_bytes()).collect::<Vec<_>>().concat(), text.as_bytes());
        assert_eq!(parts(text.as_bytes()).next(), Some(&b"a\\\nb\n"[..]));
        assert!(parts(text.as_bytes()).all(|part| part.len() <= LINE_BYTES_MAX));
    }
}
