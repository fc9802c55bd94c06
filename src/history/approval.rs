//! What a human is asked, from the line that asks to the note that it has come to an end.

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

/// Longest words of a request, such as its command, that are kept whole until its end, in bytes.
const WORDS_BYTES_MAX: usize = 64 << 10;

/// Most decisions that the server offers and that are kept, and most bytes of them, as JSON. The words that can be given to
/// every request of a kind are kept beside them.
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

    /// Its name in a document.
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

/// A request that is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ask {
    /// What it is called; older journals do not say.
    pub(super) request_id: Option<String>,
    pub(super) wanted: Wanted,
    pub(super) thread_id: Option<String>,
    pub(super) turn_id: Option<String>,
    pub(super) item_id: Option<String>,
    /// What is asked, in words.
    pub(super) text: Option<String>,
    pub(super) command: Option<String>,
    pub(super) cwd: Option<String>,
    pub(super) reason: Option<String>,
    /// What can be decided.
    pub(super) decisions: Vec<Value>,
    /// So many more were offered; older journals do not say.
    #[serde(default)]
    pub(super) decisions_left_out: usize,
}

/// How a request has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(super) struct End {
    request_id: String,
    pub(super) status: String,
    pub(super) source: Option<String>,
    pub(super) decision: Option<String>,
    pub(super) error_code: Option<String>,
}

/// The requests that are open, by the ids that the server gave them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked {
    /// What the next one is called.
    next: Option<String>,
    open: Bounded<String, Ask>,
}

impl Ask {
    /// Adds what is asked.
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
    /// That of a request of which only that is known, that it is over.
    pub(super) fn unknown() -> End {
        End { status: "resolved".to_owned(), ..End::default() }
    }

    /// That of a request that is not followed any more.
    pub(super) fn not_followed() -> End {
        End { status: "unknown".to_owned(), error_code: Some(OUTCOME_UNKNOWN.to_owned()), ..End::default() }
    }

    /// Adds how it has ended.
    pub(super) fn describe(&self, object: Object) -> Object {
        object
            .with("status", &self.status)
            .with_some("decision", self.decision.as_ref())
            .with_some("source", self.source.as_ref())
            .with_some("error_code", self.error_code.as_ref())
    }
}

impl Asked {
    /// Takes a note of ours; gives the request that has ended by it.
    pub(super) fn noted(&mut self, event: &str, data: Option<&RawValue>) -> Option<(Ask, End)> {
        #[derive(Deserialize)]
        struct Opened {
            request_id: String,
        }
        match event {
            // The run before this may have ended without a word, and ids begin anew.
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

    /// The server asks; gives the request where it is for a human, and is not open already. To `gone` those are added that
    /// are not followed any more, since another one has their id, or more are open than are remembered.
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

    /// What is asked about an item.
    pub(super) fn about(&self, place: &Place<'_>) -> Option<&Ask> {
        let is_meant = |ask: &&Ask| {
            ask.item_id.as_deref() == place.item_id.as_deref() && ask.thread_id.as_deref() == place.thread_id.as_deref()
        };
        self.open.iter().map(|(_, ask)| ask).filter(|_| place.item_id.is_some()).find(is_meant)
    }

    /// The server says that a request is over; gives it where nothing else will.
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

/// Words, kept whole up to a bound; over that their start, and how much is missing.
fn bounded_words(words: &str) -> String {
    match words.floor_char_boundary(WORDS_BYTES_MAX) {
        end if end == words.len() => words.to_owned(),
        end => format!("{}… [{} more bytes]", &words[..end], words.len() - end),
    }
}

/// What can be decided, as far as there is room for what is offered, and how much of that is left out.
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

/// A command, which was a list of words until early 2026.
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
