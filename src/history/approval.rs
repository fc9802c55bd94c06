//! Requests to a human, from the request line to the note of their end.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::bounded::{Bounded, Weigh};
use super::failure::OUTCOME_UNKNOWN;
use super::object::Object;
use super::record_event::{MethodMessage, Place};
use crate::engine::decisions;
use crate::protocol::RequestKind;
use crate::wire::RpcId;

/// Longest text of a request, such as its command, that is stored whole until its end, in bytes.
const WORDS_BYTES_MAX: usize = 64 << 10;

/// Most offered decisions that are stored, and their limit in bytes, as JSON. The words that every request of a kind
/// accepts are stored in addition.
const OFFERED_MAX: usize = 64;
const OFFERED_BYTES_MAX: usize = 64 << 10;

/// What a human is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Wanted {
    Command,
    Diff,
    Permissions,
    Questions,
    Elicitation,
}

impl Wanted {
    fn of(method: &str) -> Option<Wanted> {
        match RequestKind::of(method)? {
            RequestKind::Command | RequestKind::OldCommand => Some(Wanted::Command),
            RequestKind::FileChange | RequestKind::OldPatch => Some(Wanted::Diff),
            RequestKind::Permissions => Some(Wanted::Permissions),
            RequestKind::UserInput => Some(Wanted::Questions),
            RequestKind::Elicitation => Some(Wanted::Elicitation),
            RequestKind::Other => None,
        }
    }

    /// The name in a document.
    pub(super) fn name(self) -> &'static str {
        match self {
            Wanted::Command => "command",
            Wanted::Diff => "diff",
            Wanted::Permissions => "permissions",
            Wanted::Questions => "questions",
            Wanted::Elicitation => "elicitation",
        }
    }
}

/// An open request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ask {
    /// The ledger name; older journals lack it.
    pub(super) request_id: Option<String>,
    pub(super) wanted: Wanted,
    pub(super) thread_id: Option<String>,
    pub(super) turn_id: Option<String>,
    pub(super) item_id: Option<String>,
    /// The question or command as text.
    pub(super) text: Option<String>,
    pub(super) command: Option<String>,
    pub(super) cwd: Option<String>,
    pub(super) reason: Option<String>,
    /// The possible decisions.
    pub(super) decisions: Vec<Value>,
    /// Number of offered decisions that were omitted; older journals lack it.
    #[serde(default)]
    pub(super) decisions_left_out: usize,
}

/// How a request ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(super) struct End {
    request_id: String,
    pub(super) status: String,
    pub(super) source: Option<String>,
    pub(super) decision: Option<String>,
    pub(super) error_code: Option<String>,
}

/// Open requests by the server's id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked {
    /// The ledger name of the next request.
    next: Option<String>,
    open: Bounded<String, Ask>,
}

impl Ask {
    /// Adds the request to a document.
    pub(super) fn describe(&self, object: Object) -> Object {
        object
            .with_some("request_id", self.request_id.as_ref())
            .with("kind", self.wanted.name())
            .with_some("command", self.command.as_ref())
            .with_some("cwd", self.cwd.as_ref())
            .with_some("reason", self.reason.as_ref())
    }
}

impl Weigh for Ask {
    fn weight(&self) -> usize {
        let Ask { request_id, wanted: _, thread_id, turn_id, item_id, text, command, cwd, reason, .. } = self;
        let texts = [request_id, thread_id, turn_id, item_id, text, command, cwd, reason];
        size_of::<Ask>() + texts.map(Weigh::weight).into_iter().sum::<usize>() + self.decisions.weight()
    }
}

impl End {
    /// An end without details.
    pub(super) fn unknown() -> End {
        End { status: "resolved".to_owned(), ..End::default() }
    }

    /// The end of a request that was evicted.
    pub(super) fn not_followed() -> End {
        End { status: "unknown".to_owned(), error_code: Some(OUTCOME_UNKNOWN.to_owned()), ..End::default() }
    }

    /// Adds the end to a document.
    pub(super) fn describe(&self, object: Object) -> Object {
        object
            .with("status", &self.status)
            .with_some("decision", self.decision.as_ref())
            .with_some("source", self.source.as_ref())
            .with_some("error_code", self.error_code.as_ref())
    }
}

impl Asked {
    /// Processes one of our notes; returns the request that it ends.
    pub(super) fn noted(&mut self, event: &str, data: Option<&RawValue>) -> Option<(Ask, End)> {
        #[derive(Deserialize)]
        struct Opened {
            request_id: String,
        }
        match event {
            // The previous run may have ended without a note, and request ids start over.
            "generation_started" => *self = Asked::default(),
            "request_opened" => {
                self.next = serde_json::from_str::<Opened>(data?.get()).ok().map(|opened| opened.request_id);
            }
            "request_resolved" => {
                let end: End = serde_json::from_str(data?.get()).ok()?;
                let named = self.open.take_if(|_, ask| ask.request_id.as_deref() == Some(&end.request_id));
                return named.into_iter().next().map(|(_, ask)| (ask, end));
            }
            _ => {}
        }
        None
    }

    /// Processes a server request; returns it if it is new and for a human. `gone` receives requests that are dropped
    /// because their id is reused or too many are open.
    pub(super) fn asked(&mut self, message: &MethodMessage<'_>, id: &RpcId, gone: &mut Vec<Ask>) -> Option<&Ask> {
        let request_id = self.next.take();
        let wanted = Wanted::of(&message.method)?;
        let owned = |part: &Option<Cow<'_, str>>| part.as_deref().map(str::to_owned);
        let params: Value = message.params.read().unwrap_or_default();
        let text = |name: &str| params[name].as_str().map(bounded_words);
        let (decisions, decisions_left_out) =
            RequestKind::of(&message.method).map(|kind| bounded_decisions(kind, &params)).unwrap_or_default();
        let ask = Ask {
            request_id,
            wanted,
            thread_id: owned(&message.place.thread_id),
            turn_id: owned(&message.place.turn_id),
            item_id: owned(&message.place.item_id),
            text: match wanted {
                Wanted::Questions => Some(bounded_words(&questions(&params))),
                Wanted::Elicitation => text("message").or_else(|| text("description")),
                Wanted::Command | Wanted::Diff | Wanted::Permissions => None,
            },
            command: command(&params["command"]).as_deref().map(bounded_words),
            cwd: text("cwd"),
            reason: text("reason"),
            decisions,
            decisions_left_out,
        };
        let id = id.to_string();
        let is_same =
            |open: &Ask| ask.request_id.is_none() && open.item_id == ask.item_id && open.turn_id == ask.turn_id;
        if self.open.get(&id).is_some_and(is_same) {
            return None;
        }
        gone.extend(self.open.insert(id.clone(), ask).into_iter().map(|(_, ask)| ask));
        self.open.get(&id)
    }

    /// The open request about an item.
    pub(super) fn about(&self, place: &Place<'_>) -> Option<&Ask> {
        let is_meant = |ask: &&Ask| {
            ask.item_id.as_deref() == place.item_id.as_deref() && ask.thread_id.as_deref() == place.thread_id.as_deref()
        };
        self.open.iter().map(|(_, ask)| ask).filter(|_| place.item_id.is_some()).find(is_meant)
    }

    /// The server reports the end of a request; returns it if no note will follow.
    pub(super) fn over(&mut self, message: &MethodMessage<'_>) -> Option<Ask> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Resolved<'a> {
            #[serde(borrow)]
            request_id: &'a RawValue,
        }
        let id = RpcId::from_raw(message.params.read::<Resolved<'_>>()?.request_id).to_string();
        if self.open.get(&id)?.request_id.is_some() {
            return None;
        }
        self.open.remove(&id)
    }
}

/// Keeps text whole up to a limit; beyond it, the start and the omitted length.
fn bounded_words(words: &str) -> String {
    match words.floor_char_boundary(WORDS_BYTES_MAX) {
        end if end == words.len() => words.to_owned(),
        end => format!("{}… [{} more bytes]", &words[..end], words.len() - end),
    }
}

/// The possible decisions within the limits, and the number omitted.
fn bounded_decisions(kind: RequestKind, params: &Value) -> (Vec<Value>, usize) {
    let words = decisions(kind, &Value::Null);
    let (mut kept, mut left_out, mut offered, mut bytes) = (Vec::new(), 0, 0, 0);
    for decision in decisions(kind, params) {
        if words.contains(&decision) {
            if !kept.contains(&decision) {
                kept.push(decision);
            }
            continue;
        }
        let taken = bytes + decision.to_string().len();
        if offered < OFFERED_MAX && taken <= OFFERED_BYTES_MAX {
            (offered, bytes) = (offered + 1, taken);
            kept.push(decision);
        } else {
            left_out += 1;
        }
    }
    (kept, left_out)
}

/// A command; a list of words until early 2026.
pub(super) fn command(value: &Value) -> Option<String> {
    match value {
        Value::String(command) => Some(command.clone()),
        Value::Array(words) => Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

fn questions(params: &Value) -> String {
    let questions = params["questions"].as_array().into_iter().flatten();
    questions.filter_map(|question| question["question"].as_str()).collect::<Vec<_>>().join("\n")
}
