//! Finds strings of JSON that are secrets by the names of their members.

use crate::wire::{Token, TokenKind};

use super::names::names_secret;
use super::table::DESCRIBING;

/// Longest text that is looked at as a name, in bytes of JSON.
const NAME_BYTES_MAX: usize = 200;

/// Follows the tokens of a JSON text. A string is a secret if its member, or a list or an object around it, has a name that
/// means one, or if it is the `value` beside a `name` that does.
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
}

impl<'a> Members<'a> {
    /// Begins with the first token of `json`.
    #[must_use]
    pub(crate) fn of(json: &'a str) -> Members<'a> {
        Members { json, seen_to: 0, depth: 0, name: "", secret_from: None, pair_at: None }
    }

    /// Whether the next token is a string that is a secret by a name.
    pub(crate) fn is_secret(&mut self, token: &Token) -> bool {
        for byte in &self.json.as_bytes()[self.seen_to..token.range.start] {
            match byte {
                b'{' | b'[' => {
                    self.depth += 1;
                    if !self.name.is_empty() && self.secret_from.is_none() && means_secret(self.name) {
                        self.secret_from = Some(self.depth);
                    }
                    self.name = "";
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.secret_from = self.secret_from.filter(|from| self.depth >= *from);
                    self.pair_at = self.pair_at.filter(|at| self.depth >= *at);
                }
                _ => {}
            }
        }
        self.seen_to = token.range.end;
        let written = self.json[token.range.clone()].trim_matches('"');
        match token.kind {
            TokenKind::Name => {
                self.name = written;
                false
            }
            TokenKind::Number => {
                self.name = "";
                false
            }
            TokenKind::Text => {
                let name = std::mem::take(&mut self.name);
                let is_in_secret = self.secret_from.is_some() && !DESCRIBING.contains(&name);
                let is_beside = self.pair_at == Some(self.depth) && name.eq_ignore_ascii_case("value");
                if matches!(name, "name" | "Name" | "key" | "Key" | "header") {
                    self.pair_at = means_secret(written).then_some(self.depth);
                }
                is_in_secret || is_beside || means_secret(name)
            }
        }
    }
}

/// Of a path only the last part is a name.
fn means_secret(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && names_secret(name.rsplit('/').next().unwrap_or_default())
}
