//! Finds strings and numbers of JSON that are secrets by the names of their members, and by the words around them.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use crate::wire::{Token, TokenKind, tokens};

use super::given_in_lists;
use super::names::names_secret;
use super::table::DESCRIBING;

/// Longest text that is looked at as a name, in bytes of JSON.
const NAME_BYTES_MAX: usize = 200;

/// Longest distance from a member `value` to the member `name` behind it, in bytes.
const PAIR_BYTES_MAX: usize = 240;

/// Shortest number under the name of a secret that is one, in digits: shorter ones are counts and codes.
const DIGITS_MIN: usize = 10;

/// Follows the tokens of a JSON text. A string or a long number is a secret if its member, or a list or an object around it, has
/// a name that means one, if it is the `value` beside a `name` that does, if it stands in an object `env`, or if it is the word
/// behind an option in a list of words.
#[derive(Debug)]
pub(crate) struct Members<'a> {
    json: &'a str,
    seen_to: usize,
    depth: usize,
    /// The name of the value that comes next.
    name: &'a str,
    /// The depth of the list or object whose name means a secret.
    secret_from: Option<usize>,
    /// The depth of the object whose `name` means a secret.
    pair_at: Option<usize>,
    /// The string in front in the same list, and whether that is the first one.
    word_before: Option<(&'a str, bool)>,
    /// The list has just begun.
    is_first: bool,
    /// Secrets that commands are given in lists of words, in order.
    given: Vec<Range<usize>>,
    /// How many of them were passed.
    given_to: usize,
}

impl<'a> Members<'a> {
    /// Begins with the first token of `json`.
    #[must_use]
    pub(crate) fn of(json: &'a str) -> Members<'a> {
        Members {
            json,
            seen_to: 0,
            depth: 0,
            name: "",
            secret_from: None,
            pair_at: None,
            word_before: None,
            is_first: false,
            given: given_in_lists(json),
            given_to: 0,
        }
    }

    /// Whether the next token is a secret by what stands around it.
    pub(crate) fn is_secret(&mut self, token: &Token) -> bool {
        self.pass(token.range.start);
        self.seen_to = token.range.end;
        let written = self.json[token.range.clone()].trim_matches('"');
        if token.kind == TokenKind::Name {
            self.name = written;
            return false;
        }
        let name = std::mem::take(&mut self.name);
        let is_named = (self.secret_from.is_some() && !DESCRIBING.contains(&name))
            || means_secret(name)
            || self.is_beside(name, token);
        match token.kind {
            TokenKind::Name => false,
            TokenKind::Number => {
                self.word_before = None;
                is_named && written.bytes().filter(u8::is_ascii_digit).count() >= DIGITS_MIN
            }
            TokenKind::Text => {
                if matches!(name, "name" | "Name" | "key" | "Key" | "header") {
                    self.pair_at = means_secret(written).then_some(self.depth);
                }
                let is_word = name.is_empty() && self.is_word(written, token.range.end);
                is_named || is_word || self.is_given(&token.range)
            }
        }
    }

    /// Reads what stands between two tokens.
    fn pass(&mut self, to: usize) {
        for byte in &self.json.as_bytes()[self.seen_to..to] {
            match byte {
                b'{' | b'[' => {
                    self.depth += 1;
                    let is_place = *byte == b'{' && is_environment(self.name);
                    if !self.name.is_empty() && self.secret_from.is_none() && (is_place || means_secret(self.name)) {
                        self.secret_from = Some(self.depth);
                    }
                    self.name = "";
                    self.word_before = None;
                    self.is_first = *byte == b'[';
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.secret_from = self.secret_from.filter(|from| self.depth >= *from);
                    self.pair_at = self.pair_at.filter(|at| self.depth >= *at);
                    self.word_before = None;
                    self.is_first = false;
                }
                _ => {}
            }
        }
    }

    /// Whether a value belongs to a `name` in front or behind.
    fn is_beside(&self, name: &str, token: &Token) -> bool {
        name.eq_ignore_ascii_case("value")
            && (self.pair_at == Some(self.depth) || names_behind(&self.json[token.range.end..]))
    }

    /// Whether a string of a list is what the word in front says: `"--password", "x"`, `["X-Api-Key", "x"]`.
    fn is_word(&mut self, written: &'a str, end: usize) -> bool {
        let is_first = std::mem::take(&mut self.is_first);
        let Some((before, was_first)) = self.word_before.replace((written, is_first)) else { return false };
        let is_option =
            before.starts_with('-') && !before.contains('=') && means_secret(before) && !written.starts_with('-');
        let is_last = || self.json[end..].trim_start().starts_with(']');
        let is_header = |name: &str| name.contains('-') || !name.bytes().any(|byte| byte.is_ascii_lowercase());
        let is_constant = |word: &str| !word.bytes().any(|byte| byte.is_ascii_lowercase()) && means_secret(word);
        let is_mixed =
            written.bytes().any(|byte| byte.is_ascii_digit()) && written.bytes().any(|byte| byte.is_ascii_alphabetic());
        let is_pair = was_first
            && !before.starts_with('-')
            && means_secret(before)
            && !means_secret(written)
            && !is_constant(written)
            && (is_header(before) || is_mixed)
            && is_last();
        is_option || is_pair
    }

    /// Whether a string without blanks is a secret that a command is given.
    fn is_given(&mut self, range: &Range<usize>) -> bool {
        while self.given.get(self.given_to).is_some_and(|span| span.end <= range.start) {
            self.given_to += 1;
        }
        let is_within = self.given.get(self.given_to).is_some_and(|span| span.start < range.end);
        is_within && !self.json[range.clone()].contains(char::is_whitespace)
    }
}

/// Names of objects whose members are all values of an environment or of headers.
const ENVIRONMENTS: [&str; 4] = ["env", "environment", "http_headers", "httpHeaders"];

fn is_environment(name: &str) -> bool {
    name.rsplit('.').next().is_some_and(|last| ENVIRONMENTS.contains(&last))
}

/// Whether JSON may hold an object of such a name.
pub(super) fn may_hold_environment(json: &str) -> bool {
    static MARKED: LazyLock<AhoCorasick> = LazyLock::new(|| {
        let marks = ENVIRONMENTS.map(|name| format!("{name}\""));
        AhoCorasick::new(marks).expect("BUG: the marks are few and short")
    });
    MARKED.is_match(json)
}

/// Whether the rest of an object has a `name` that means a secret.
fn names_behind(rest: &str) -> bool {
    let near = &rest[..rest.floor_char_boundary(PAIR_BYTES_MAX)];
    let near = &near[..near.find(['{', '}', '[', ']']).unwrap_or(near.len())];
    let mut name = "";
    for token in tokens(near) {
        let written = near[token.range.clone()].trim_matches('"');
        match token.kind {
            TokenKind::Name => name = written,
            TokenKind::Text if matches!(name, "name" | "Name" | "key" | "Key" | "header") => {
                return means_secret(written);
            }
            TokenKind::Text | TokenKind::Number => {}
        }
    }
    false
}

/// Of a path only the last part is a name.
fn means_secret(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && names_secret(name.rsplit('/').next().unwrap_or_default())
}
