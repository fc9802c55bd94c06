//! The values in JSON that names make secret.

use std::ops::Range;

use super::commands::given_in_lists;
use super::names::names_secret;
use super::table::DESCRIBING;
use super::{patterns, touches};
use crate::wire::{Token, TokenKind};

patterns! {
    /// The name in the rest of an object.
    NAME_BEHIND = r#"^[^{}\[\]]*?"(?:name|Name|key|Key|header)"\s*:\s*"([^"]*)""#;
}

/// Longest text that is looked at as a name, in bytes of JSON.
const WRITTEN_BYTES_MAX: usize = 200;

/// Longest distance from a member `value` to the member `name` behind it, in bytes.
const PAIR_BYTES_MAX: usize = 240;

/// Shortest number under the name of a secret that is one, in digits: shorter ones are counts and codes.
const DIGITS_MIN: usize = 10;

/// Follows the tokens of a JSON text. A string or a long number is a secret if its member, or a list or an object around it, has
/// a name that means one, if it is the `value` beside a `name` that does, if it stands in an object `env`, or if it is the word
/// behind an option in a list of words.
#[derive(Debug, Default)]
pub(super) struct Members<'a> {
    json: &'a str,
    seen_to: usize,
    depth: usize,
    /// The name of the value that comes next.
    name: &'a str,
    /// The same, also of the first value of a list.
    label: &'a str,
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
}

/// The context of a token in a JSON text.
#[derive(Debug)]
pub(super) struct Member<'a> {
    /// The name of a value, or the token if it is a name.
    pub(super) name: &'a str,
    /// How many lists and objects it stands in.
    pub(super) depth: usize,
    /// Its context makes it a secret.
    pub(super) is_secret: bool,
}

impl<'a> Members<'a> {
    /// Begins with the first token of `json`.
    #[must_use]
    pub(super) fn of(json: &'a str) -> Members<'a> {
        Members { json, given: given_in_lists(json), ..Members::default() }
    }

    /// Returns the context of the next token.
    pub(super) fn next(&mut self, token: &Token) -> Member<'a> {
        self.pass(token.range.start);
        self.seen_to = token.range.end;
        let written = self.json[token.range.clone()].trim_matches('"');
        let depth = self.depth;
        if token.kind == TokenKind::Name {
            (self.name, self.label) = (written, written);
            return Member { name: written, depth, is_secret: false };
        }
        let (name, label) = (std::mem::take(&mut self.name), std::mem::take(&mut self.label));
        let is_named = (self.secret_from.is_some() && !DESCRIBING.contains(&name))
            || means_secret(name)
            || self.is_beside(name, token);
        let is_secret = if token.kind == TokenKind::Number {
            self.word_before = None;
            is_named && written.bytes().filter(u8::is_ascii_digit).count() >= DIGITS_MIN
        } else {
            if NAMING.contains(&name) {
                self.pair_at = means_secret(written).then_some(depth);
            }
            let is_word = name.is_empty() && self.is_word(written, token.range.end);
            // In a string with blanks, only the secret itself is masked.
            let is_given = touches(&self.given, &token.range) && !written.contains(char::is_whitespace);
            is_named || is_word || is_given
        };
        Member { name: label, depth, is_secret }
    }

    /// Reads the bytes between two tokens.
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
}

/// Members that name the `value` beside them.
const NAMING: [&str; 5] = ["name", "Name", "key", "Key", "header"];

/// Names of objects whose members are all values of an environment or of headers.
const ENVIRONMENTS: [&str; 4] = ["env", "environment", "http_headers", "httpHeaders"];

fn is_environment(name: &str) -> bool {
    name.rsplit('.').next().is_some_and(|last| ENVIRONMENTS.contains(&last))
}

/// Whether the rest of an object has a `name` that means a secret.
fn names_behind(rest: &str) -> bool {
    let near = &rest.as_bytes()[..rest.len().min(PAIR_BYTES_MAX)];
    let name = NAME_BEHIND.captures(near).and_then(|found| std::str::from_utf8(found.get(1)?.as_bytes()).ok());
    name.is_some_and(means_secret)
}

/// Of a path only the last part is a name.
fn means_secret(name: &str) -> bool {
    name.len() <= WRITTEN_BYTES_MAX && names_secret(name.rsplit('/').next().unwrap_or_default())
}
