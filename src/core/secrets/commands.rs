//! Secrets in the arguments of commands, by the rules of `table`.
//!
//! A command is looked at with its line, and of a long line with what is near, so that no pattern is looked for over more than
//! [`LINE_BYTES_MAX`] bytes at once.

use std::ffi::OsString;
use std::ops::Range;

use regex::bytes::Regex;

use super::names::names_secret;
use super::quote::{Quotes, command_end, quote_at};
use super::table::{RULES, Search};
use super::value::is_open;
use super::{marks_in, merged, pattern_of, secret_spans};

/// Longest part of a line that is looked at at once, in bytes, how much of it may stand in front of the first mark, and how much
/// has to stand behind the last one.
const LINE_BYTES_MAX: usize = 8 << 10;
const FRONT_BYTES_MAX: usize = LINE_BYTES_MAX / 4;
const BEHIND_BYTES_MIN: usize = LINE_BYTES_MAX / 4;

/// Adds the places of secrets among a command's arguments. `marks` are the places of marks and their rules, in order. An
/// apostrophe may open a quotation or not, so the commands are divided both ways.
pub(super) fn find(text: &[u8], marks: &[(usize, usize)], spans: &mut Vec<Range<usize>>) {
    let mut marks = marks;
    while let [(first, _), ..] = marks {
        let line = line_around(text, *first);
        let is_cut = line.len() == LINE_BYTES_MAX;
        let to = if is_cut { line.end - BEHIND_BYTES_MIN } else { line.end };
        let (here, behind) = marks.split_at(marks.partition_point(|(at, _)| at <= first || *at < to));
        marks = behind;
        let mut rules: Vec<usize> = here.iter().map(|(_, rule)| *rule).collect();
        rules.sort_unstable();
        rules.dedup();
        for rule in rules {
            let Search::Argument(names, _) = RULES[rule].finds else { continue };
            if names.is_empty() {
                add(pattern_of(rule), text, line.clone(), spans);
                continue;
            }
            for command in
                [Quotes::Seen, Quotes::Unseen].into_iter().flat_map(|quotes| commands(&text[line.clone()], quotes))
            {
                let command = line.start + command.start..line.start + command.end;
                let Some(behind) = behind_name(&text[command.clone()], names) else { continue };
                add(pattern_of(rule), text, command.start + behind..command.end, spans);
            }
        }
    }
}

/// The line at a place, with those that go on behind a `\\`; of one that is too long, what is near.
fn line_around(text: &[u8], at: usize) -> Range<usize> {
    let is_end = |end: &usize| !text[..*end].ends_with(b"\\");
    let begin = |from: usize| {
        let mut ends = memchr::memrchr_iter(b'\n', &text[from..at]).map(|end| from + end);
        ends.find(is_end).map(|end| end + 1).or((from == 0).then_some(0))
    };
    let end = |from: usize| {
        let to = text.len().min(from + LINE_BYTES_MAX);
        let end = memchr::memchr_iter(b'\n', &text[at.min(to)..to]).map(|end| at + end).find(is_end);
        (end.or((to == text.len()).then_some(to)), to)
    };
    if let Some(from) = begin(at.saturating_sub(LINE_BYTES_MAX))
        && let (Some(end), _) = end(from)
    {
        return from..end;
    }
    let near = at.saturating_sub(FRONT_BYTES_MAX);
    let from = begin(near).unwrap_or(near);
    let (end, to) = end(from);
    from..end.unwrap_or(to)
}

fn add(pattern: &Regex, text: &[u8], part: Range<usize>, spans: &mut Vec<Range<usize>>) {
    spans.extend(pattern.captures_iter(&text[part.clone()]).filter_map(|found| {
        let all = found.get_match().range();
        let from = part.start + found.name("keep").map_or(all.start, |kept| kept.end());
        let to = part.start + found.name("then").map_or(all.end, |kept| kept.start());
        // `-p $PASSWORD` names a place.
        let value = text[from..to].strip_prefix(b"\"").unwrap_or(&text[from..to]);
        let is_place = value.starts_with(b"$") && is_open(value.strip_suffix(b"\"").unwrap_or(value));
        (!is_place).then_some(from..to)
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
            let marks: Vec<_> = marks_in(&command).map(|(mark, rule)| (mark.start, rule)).collect();
            find(&command, &marks, &mut found);
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
pub fn masked_args(args: &[OsString]) -> Vec<String> {
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
        for rule in RULES {
            let Search::Key(shape) = &rule.finds else { continue };
            let shortest = rule.marks().map(str::len).min().unwrap_or_default() + shape.tail_bytes_min;
            assert!(shortest >= KEY_BYTES_MIN, "{}", rule.marks);
        }
        assert!(is_plain_word("/home/me/.nvm/versions/node/v20.20.2/bin/codex") && is_plain_word("app-server"));
        for text in ["sk-abcdefghijklmnop", "/a/sk-abcdefghijklmnop", "a:b", "a@b", "a b", "password=x", "ä"] {
            assert!(!is_plain_word(text), "{text}");
        }
    }

    #[test]
    fn lines_are_whole_unless_too_long() {
        let text = format!("a\\\nb\nc curl\\\nd\n{} curl x", "ö".repeat(5_000));
        let line = |at: usize| &text.as_bytes()[line_around(text.as_bytes(), at)];
        assert_eq!(line(7), b"c curl\\\nd");
        assert_eq!(line(0), b"a\\\nb");
        assert_eq!(line(text.len() - 6).len(), FRONT_BYTES_MAX + 6);
    }
}
