//! Requests to a human, from the request line to the note that ends them.
//!
//! Our own notes say how a request ended. A recording without notes, such as one of a bare server, shows at most that
//! it ended.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::bounded::{Weigh, masked_params};
use super::conversation::Purpose;
use super::entry::ApprovalDocument;
use super::item::{ToolCall, command};
use super::record_event::{MethodMessage, Params};
use super::turn::OUTCOME_UNKNOWN;
use crate::engine::{RequestKind, RequestType, Subject, decisions};
use crate::protocol::ItemPlace;

/// Longest text of a request, such as its command, that is stored whole until its end, in bytes.
const WORDS_BYTES_MAX: usize = 64 << 10;

/// Most offered decisions that are stored, and their limit in bytes, as JSON. The words that every request of a kind
/// accepts are stored in addition.
const OFFERED_MAX: usize = 64;
const OFFERED_BYTES_MAX: usize = 64 << 10;

/// A request to a human.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    /// The id in the ledger; without it, no note will follow.
    pub(super) request_id: Option<String>,
    pub(super) wanted: Subject,
    pub(super) place: ItemPlace,
    pub(super) at_us: u64,
    pub(super) state: RequestState,
    /// The action that it asks for, as shown in a tool row.
    pub(super) does: ToolCall,
    /// The question as text.
    pub(super) text: Option<String>,
    pub(super) command: Option<String>,
    pub(super) cwd: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) decisions: Vec<Value>,
    /// Number of offered decisions that were omitted.
    pub(super) decisions_left_out: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum RequestState {
    Open,
    /// It has been open since an earlier hub. The next one gives it a name of its own until it has read its ledger.
    OpenBefore,
    /// The server is done with it; only the note is missing.
    Over,
    /// The child has ended; only the note is missing.
    Cut,
}

documents! {
    /// How a request ended, as in our note.
    #[derive(Debug, Clone, Default, Deserialize)]
    pub(super) struct End {
        #[serde(skip_serializing)]
        request_id: String,
        status?: String,
        decision?: String,
        source?: String,
        error_code?: String,
        /// The answer with which it has ended before. It was not sent.
        #[serde(skip_deserializing)]
        not_sent?: String,
        /// The note, if there is one.
        #[serde(skip)]
        note: Option<Box<RawValue>>,
    }
}

impl End {
    /// Reads a note.
    pub(super) fn of(note: &RawValue) -> Option<End> {
        let end: End = serde_json::from_str(note.get()).ok()?;
        Some(End { note: Some(note.to_owned()), ..end })
    }

    /// The answer in a few words, if there was one.
    pub(super) fn answer(&self) -> Option<String> {
        let is_answered = self.status.as_deref() == Some("resolved") && self.error_code.is_none();
        let decision = is_answered.then(|| self.decision.clone().unwrap_or_else(|| "answered".to_owned()))?;
        Some(self.source.as_ref().map_or_else(|| decision.clone(), |source| format!("{decision} by {source}")))
    }

    /// An end without details.
    pub(super) fn unknown() -> End {
        End { status: Some("resolved".to_owned()), ..End::default() }
    }

    /// The end of a request that was evicted.
    pub(super) fn not_followed() -> End {
        let error_code = Some(OUTCOME_UNKNOWN.to_owned());
        End { status: Some("unknown".to_owned()), error_code, ..End::default() }
    }
}

/// What a request asks, in its own words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) text: Option<String>,
    pub(super) command: Option<String>,
    pub(super) cwd: Option<String>,
    pub(super) reason: Option<String>,
}

impl Asked {
    pub(super) fn of(kind: RequestKind, params: &Value) -> Asked {
        let words = |name: &str| params[name].as_str().map(bounded_words);
        let text = match kind.request_type() {
            RequestType::UserInput => Some(bounded_words(&questions(params))),
            RequestType::Elicitation => words("message").or_else(|| words("description")),
            RequestType::Approval | RequestType::Permissions | RequestType::Other => None,
        };
        let command = command(&params["command"]).as_deref().map(bounded_words);
        Asked { text, command, cwd: words("cwd"), reason: words("reason") }
    }
}

impl Weigh for Request {
    fn weight(&self) -> usize {
        let Request { request_id, does, text, command, cwd, reason, decisions, place, .. } = self;
        let texts = [request_id, text, command, cwd, reason];
        let texts = texts.map(Weigh::weight).into_iter().sum::<usize>();
        size_of::<Request>() + place.weight() + does.weight() + texts + decisions.weight()
    }
}

impl Request {
    /// Reads a request of the server; `None` if it is not for a human. `item` is the tool call it is about, if known.
    pub(super) fn of(
        request_id: Option<String>,
        at_us: u64,
        message: &MethodMessage<'_>,
        item: Option<&ToolCall>,
        purpose: Purpose<'_>,
    ) -> Option<Request> {
        RequestKind::of(&message.method)?.subject()?;
        let place = message.place.owned();
        let state = RequestState::Open;
        let masked = match purpose {
            Purpose::Rows(_) => masked_params(message.params),
            Purpose::Ui => None,
        };
        let params: Value =
            masked.as_deref().map_or(message.params, |json| Params::Written(json.get())).read().unwrap_or_default();
        let kind = RequestKind::asked(&message.method, &params)?;
        let wanted = kind.subject()?;
        let (does, (decisions, decisions_left_out)) = match purpose {
            Purpose::Rows(_) => {
                let does = ToolCall::of_request(kind, message.params);
                (item.map_or(does.clone(), |item| does.or(item)), (Vec::new(), 0))
            }
            Purpose::Ui => (ToolCall::default(), bounded_decisions(kind, &params)),
        };
        let Asked { text, command, cwd, reason } = Asked::of(kind, &params);
        Some(Request {
            request_id,
            wanted,
            place,
            at_us,
            state,
            does,
            text,
            command,
            cwd,
            reason,
            decisions,
            decisions_left_out,
        })
    }

    /// The request and its end as a document.
    pub(super) fn document<'a>(&'a self, end: &'a End) -> ApprovalDocument<'a> {
        let borrowed = |text: &'a Option<String>| text.as_deref().map(Cow::Borrowed);
        ApprovalDocument {
            request_id: borrowed(&self.request_id),
            kind: self.wanted.name().into(),
            command: borrowed(&self.command),
            cwd: borrowed(&self.cwd),
            reason: borrowed(&self.reason),
            text: borrowed(&self.text),
            status: borrowed(&end.status),
            decision: borrowed(&end.decision),
            source: borrowed(&end.source),
            error_code: borrowed(&end.error_code),
            not_sent: borrowed(&end.not_sent),
            review_id: None,
            review: None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, RequestState::Open | RequestState::OpenBefore)
    }

    /// Another hub takes over the server.
    pub(super) fn outlives_hub(&mut self) {
        if self.is_open() {
            self.state = RequestState::OpenBefore;
        }
    }

    /// Whether this repeats `open` for a client that resumed; only the next hub notes a repetition.
    pub(super) fn is_again(&self, open: &Request) -> bool {
        let is_named_alike =
            self.request_id.is_none() || self.request_id == open.request_id || open.state == RequestState::OpenBefore;
        is_named_alike && open.is_open() && self.wanted == open.wanted && self.place == open.place
    }

    /// Whether another request asks for the same.
    pub(super) fn asks_the_same(&self, other: &Request) -> bool {
        (self.wanted, &self.place, &self.does) == (other.wanted, &other.place, &other.does)
            && (&self.text, &self.command, &self.cwd) == (&other.text, &other.command, &other.cwd)
    }

    pub(super) fn is_about(&self, item: &ItemPlace) -> bool {
        item.item_id.is_some()
            && self.place.item_id == item.item_id
            && self.place.thread_id == item.thread_id
            && (self.place.turn_id.is_none() || self.place.turn_id == item.turn_id)
    }

    /// Whether it ends with this turn.
    pub(super) fn is_of_turn(&self, turn: &ItemPlace) -> bool {
        turn.thread_id.is_some()
            && self.place.thread_id == turn.thread_id
            && (self.place.turn_id.is_none() || self.place.turn_id == turn.turn_id)
    }
}

/// Keeps text whole up to a limit; beyond it, the start and the omitted length.
pub(super) fn bounded_words(words: &str) -> String {
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

fn questions(params: &Value) -> String {
    let questions = params["questions"].as_array().into_iter().flatten();
    questions.filter_map(|question| question["question"].as_str()).collect::<Vec<_>>().join("\n")
}
