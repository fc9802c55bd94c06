//! Classifies a message for grouping: a piece of an item, or another record of it.
//!
//! Servers of early 2026 report a piece up to three times, on separate lines: under its current name and under two
//! `codex/event/` names, one with the item id and one without. The two protocols are grouped independently: a line of
//! one does not close groups of the other, or nothing would be joined.

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::record_event::{MethodMessage, Place, name};
use crate::protocol::EARLY_PREFIX;
use crate::wire::{Members, TokenKind, text, tokens};

/// Longest parameters stored of a group's first piece, without its text, in bytes.
const BESIDE_BYTES_MAX: usize = 2 << 10;

/// The protocol version of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Telling {
    #[default]
    Now,
    /// `codex/event/*`
    Early,
}

/// The encoding of a piece's text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Spelling {
    /// As `delta`.
    #[default]
    Plain,
    /// In Base64, as `chunk`.
    Base64,
}

/// A message about an item.
pub(super) struct OfItem<'a> {
    pub(super) telling: Telling,
    pub(super) thread_id: Option<Cow<'a, str>>,
    pub(super) turn_id: Option<Cow<'a, str>>,
    /// Missing only in some pieces of early 2026, which belong to the current item of their turn.
    pub(super) item_id: Option<Cow<'a, str>>,
    pub(super) piece: Option<Piece<'a>>,
}

/// A piece of an item.
pub(super) struct Piece<'a> {
    pub(super) spelling: Spelling,
    pub(super) text: Cow<'a, str>,
}

impl<'a> OfItem<'a> {
    /// Classifies a message; `None` if it is not about an item.
    pub(super) fn read(message: &'a MethodMessage<'_>) -> Option<OfItem<'a>> {
        if message.method.starts_with(EARLY_PREFIX) {
            return OfItem::early(message);
        }
        let Place { thread_id, turn_id, item_id: Some(item_id), delta } = &message.place else { return None };
        let piece = delta.as_deref().filter(|_| is_piece(&message.method));
        Some(OfItem {
            telling: Telling::Now,
            thread_id: thread_id.as_deref().map(Cow::Borrowed),
            turn_id: turn_id.as_deref().map(Cow::Borrowed),
            item_id: Some(Cow::Borrowed(item_id)),
            piece: piece.map(|text| Piece { spelling: Spelling::Plain, text: Cow::Borrowed(text) }),
        })
    }

    /// `{id,msg:{…},conversationId}`, where `id` is the turn id.
    fn early(message: &'a MethodMessage<'_>) -> Option<OfItem<'a>> {
        #[derive(Deserialize)]
        struct Named<'a> {
            #[serde(borrow)]
            id: Option<&'a RawValue>,
            #[serde(borrow)]
            msg: &'a RawValue,
        }
        let Named { id, msg } = message.params.read()?;
        let msg = Members::of(msg)?;
        let held = || Members::of(msg.get("item")?)?.text("id");
        Some(OfItem {
            telling: Telling::Early,
            thread_id: message.place.thread_id.as_deref().map(Cow::Borrowed),
            turn_id: msg.text("turn_id").or_else(|| text(id?)).map(Cow::Owned).map(name),
            item_id: msg.text("item_id").or_else(|| msg.text("call_id")).or_else(held).map(Cow::Owned).map(name),
            piece: message.method.ends_with("_delta").then(|| Piece::early(&msg)).flatten(),
        })
    }
}

impl Piece<'_> {
    /// Parses a piece of early 2026. Bytes that are not UTF-8, such as half a character, are not a piece; they stay an
    /// event of their own.
    fn early(msg: &Members<'_>) -> Option<Piece<'static>> {
        let (spelling, text) = match (msg.text("delta"), msg.text("chunk")) {
            (Some(delta), _) => (Spelling::Plain, delta),
            (None, Some(chunk)) => (Spelling::Base64, String::from_utf8(BASE64_STANDARD.decode(chunk).ok()?).ok()?),
            (None, None) => return None,
        };
        Some(Piece { spelling, text: Cow::Owned(text) })
    }
}

/// Whether a method of the current protocol reports a piece of an item.
fn is_piece(method: &str) -> bool {
    let last = method.rsplit('/').next().unwrap_or_default();
    last.ends_with("Delta") || last == "delta"
}

impl Spelling {
    /// The member with the text.
    fn name(self) -> &'static str {
        match self {
            Spelling::Plain => "\"delta\"",
            Spelling::Base64 => "\"chunk\"",
        }
    }

    /// The first piece's parameters with the joined text.
    pub(super) fn params(self, beside: Option<(String, String)>, text: String) -> String {
        let text = match self {
            Spelling::Plain => serde_json::Value::from(text).to_string(),
            Spelling::Base64 => format!("\"{}\"", BASE64_STANDARD.encode(text)),
        };
        match beside {
            Some((before, after)) => format!("{before}{text}{after}"),
            None => format!("{{{}:{text}}}", self.name()),
        }
    }

    /// The parameters of a piece before and after its text; `None` if they are too long.
    pub(super) fn beside(self, params: &str) -> Option<(String, String)> {
        let mut is_next = false;
        let text = tokens(params).find(|token| {
            let found = is_next && token.kind == TokenKind::Text;
            is_next = token.kind == TokenKind::Name && &params[token.range.clone()] == self.name();
            found
        })?;
        let (before, after) = (&params[..text.range.start], &params[text.range.end..]);
        (before.len() + after.len() <= BESIDE_BYTES_MAX).then(|| (before.to_owned(), after.to_owned()))
    }
}
