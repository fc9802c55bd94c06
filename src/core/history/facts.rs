//! The facts of entries, requests and events that a [`Filter`] reads, and those of the session around them.
//!
//! Each place that filters makes its facts here, so that the same filter means the same things in all of them.
//!
//! Pure.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;

use super::bounded::masked_json;
use super::entry::{ApprovalDocument, Content, ItemDocument};
use super::filter::{Facts, Filter, FilterKind, FilterStatus, FilterThread, NOBODY};
use super::item::ThreadItem;
use super::request::Asked;
use super::searchable::{Lines, OUTPUT_BYTES_MAX, SearchKind, kind_of};
use crate::engine::{RequestKind, Subject, UNANSWERED};
use crate::protocol::{Method, Word, of_name};

/// The facts of a session that a filter reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownFacts {
    /// The facts of every unknown thread.
    pub session: FilterThread,
    pub threads: HashMap<String, FilterThread>,
    /// By their ids in the ledger.
    pub requests: HashMap<String, RequestFacts>,
}

/// The facts of a request in the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestFacts {
    pub kinds: Vec<FilterKind>,
    pub end: EndFacts,
    pub thread_id: Option<String>,
    pub text: String,
}

impl RequestFacts {
    /// With the facts of its thread, and the time when it ended or else arrived.
    pub fn facts<'a>(&'a self, thread: &'a FilterThread, at_us: u64) -> Facts<'a> {
        let (kinds, end) = (&self.kinds, &self.end);
        let thread_id = self.thread_id.as_deref();
        Facts { kinds, status: end.status, by: &end.by, thread_id, thread: Some(thread), at_us, text: &self.text }
    }
}

impl KnownFacts {
    /// Whether an entry or an event passes. The facts in the ledger replace those of a request's entry.
    pub fn passes(&self, filter: &Filter, thing: &Thing<'_>) -> bool {
        self.with_facts(thing, |facts| filter.passes(facts))
    }

    /// The same for the tokens of a filter alone.
    pub fn passes_tokens(&self, filter: &Filter, thing: &Thing<'_>) -> bool {
        self.with_facts(thing, |facts| filter.passes_tokens(facts))
    }

    fn with_facts<T>(&self, thing: &Thing<'_>, does: impl FnOnce(&Facts<'_>) -> T) -> T {
        let Thing { entry, thread_id, at_us, text } = *thing;
        let of_ledger = entry.request_id.as_ref().and_then(|id| self.requests.get(id));
        let kinds = of_ledger.map_or(&entry.kinds, |of| &of.kinds);
        // The ledger may have been read before the end.
        let is_later = |end: &&EndFacts| end.status != Some(FilterStatus::Pending) || entry.end.status.is_none();
        let end = of_ledger.map(|of| &of.end).filter(is_later).unwrap_or(&entry.end);
        let thread_id = thread_id.or_else(|| of_ledger.and_then(|of| of.thread_id.as_deref()));
        let thread = thread_id.and_then(|id| self.threads.get(id)).unwrap_or(&self.session);
        let text = of_ledger.map(|of| &*of.text).filter(|text| !text.is_empty()).unwrap_or(text);
        does(&Facts { kinds, status: end.status, by: &end.by, thread_id, thread: Some(thread), at_us, text })
    }
}

/// An entry or an event, for a filter.
#[derive(Debug, Clone, Copy)]
pub struct Thing<'a> {
    pub entry: &'a OwnFacts,
    pub thread_id: Option<&'a str>,
    /// When it ended, or else began, in microseconds since 1970.
    pub at_us: u64,
    pub text: &'a str,
}

/// The facts of an event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFacts {
    pub entry: OwnFacts,
    pub text: String,
}

impl EventFacts {
    /// Reads the type and the payload of an event.
    pub fn of(event_type: &str, payload: &Value) -> EventFacts {
        let method = Method::of(event_type);
        if matches!(method, Some(Method::ItemStarted | Method::ItemCompleted)) {
            let item = payload["item"].as_object().cloned().and_then(ThreadItem::of);
            if let Some(content) = item.map(|item| item.content())
                && let Some(kind) = kind_of(content.role())
            {
                let text = Lines::of(&content).map(|lines| lines.text).unwrap_or_default();
                return EventFacts { entry: OwnFacts::of(kind, &content), text };
            }
        } else if event_type == "request_resolved" {
            let end: ApprovalDocument<'_> = serde_json::from_value(payload.clone()).unwrap_or_default();
            return EventFacts { entry: OwnFacts::of_request(&end), text: String::new() };
        } else if let Some(kind) = RequestKind::asked(event_type, payload)
            && let Some(subject) = kind.subject()
        {
            let kinds = vec![FilterKind::Request, subject.into()];
            let entry = OwnFacts { kinds, ..OwnFacts::default() };
            return EventFacts { entry, text: request_text(kind, payload) };
        }
        let (mut lines, mut left) = (Lines::default(), OUTPUT_BYTES_MAX);
        lines.values(payload, &mut left);
        EventFacts { entry: OwnFacts::default(), text: lines.text }
    }
}

/// The facts of an entry, except its text and its time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnFacts {
    /// A request also has the kind of its subject.
    pub kinds: Vec<FilterKind>,
    pub end: EndFacts,
    /// Of a request: its id in the ledger.
    pub request_id: Option<String>,
}

/// The end of an entry or of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndFacts {
    pub status: Option<FilterStatus>,
    /// Of a request: the source of its answer and the name of the answerer, if known.
    pub by: Vec<String>,
}

impl OwnFacts {
    pub(super) fn of(kind: SearchKind, content: &Content<'_>) -> OwnFacts {
        let kinds = vec![FilterKind::from(kind)];
        match content {
            Content::Command(item) | Content::FileChange(item) | Content::Tool(item) => {
                OwnFacts { kinds, end: EndFacts::of_item(item), request_id: None }
            }
            Content::Approval(request) => OwnFacts::of_request(request),
            Content::User(_) | Content::Assistant(_) | Content::Plan(_) => OwnFacts { kinds, ..OwnFacts::default() },
            Content::Reasoning(_) | Content::Diff(_) | Content::Status(_) | Content::Error(_) => OwnFacts::default(),
            Content::Usage(_) | Content::Compaction | Content::Other(_) => OwnFacts::default(),
        }
    }

    /// A request that has ended.
    pub fn of_request(request: &ApprovalDocument<'_>) -> OwnFacts {
        let mut kinds = vec![FilterKind::Request];
        kinds.extend(of_name::<Subject>(&request.kind).map(FilterKind::from));
        OwnFacts {
            kinds,
            end: if request.review_id.is_some() { EndFacts::default() } else { EndFacts::of_request(request) },
            request_id: request.request_id.as_deref().map(str::to_owned),
        }
    }
}

impl EndFacts {
    /// The end of a command, a change or a call.
    pub fn of_item(item: &ItemDocument) -> EndFacts {
        let status = match item.status.as_deref() {
            Some("inProgress") => None,
            Some("declined") => Some(FilterStatus::Declined),
            Some("cancelled") => Some(FilterStatus::Cancelled),
            Some("interrupted") => Some(FilterStatus::Interrupted),
            Some(_) | None if item.is_error == Some(true) => Some(FilterStatus::Failed),
            Some(_) => Some(FilterStatus::Completed),
            None => None,
        };
        EndFacts { status, by: Vec::new() }
    }

    /// The end of a request by its note, which has no name of the answerer.
    fn of_request(request: &ApprovalDocument<'_>) -> EndFacts {
        let status = match request.status.as_deref() {
            _ if request.error_code.as_deref() == Some(WITHDRAWN) => Some(FilterStatus::Withdrawn),
            Some("resolved") => request.decision.as_deref().map_or(Some(FilterStatus::Answered), |decision| {
                Some(match (Word::named(decision), decision) {
                    (Some(Word::Accept | Word::AcceptForSession), _)
                    | (None, "acceptWithExecpolicyAmendment" | "applyNetworkPolicyAmendment") => FilterStatus::Accepted,
                    (Some(Word::Decline), _) => FilterStatus::Declined,
                    (Some(Word::Cancel), _) => FilterStatus::Cancelled,
                    (None, UNANSWERED) => FilterStatus::Unanswered,
                    (None, _) => FilterStatus::Answered,
                })
            }),
            Some(status) => of_name(status),
            None => None,
        };
        EndFacts::of(status, request.source.as_deref(), None)
    }

    /// The end of a request by its outcome, the source of its answer, and the name of the answerer.
    pub fn of(status: Option<FilterStatus>, source: Option<&str>, name: Option<&str>) -> EndFacts {
        let has_answer = match status {
            Some(
                FilterStatus::Accepted | FilterStatus::Declined | FilterStatus::Cancelled | FilterStatus::Answered,
            ) => true,
            Some(
                FilterStatus::Pending | FilterStatus::Unanswered | FilterStatus::Withdrawn | FilterStatus::Expired,
            )
            | Some(
                FilterStatus::Orphaned | FilterStatus::Completed | FilterStatus::Failed | FilterStatus::Interrupted,
            )
            | None => false,
        };
        let nobody = (!has_answer).then_some(NOBODY);
        let by = [source, name, nobody].into_iter().flatten().map(str::to_owned).collect();
        EndFacts { status, by }
    }
}

/// The error of a request that the server took back.
pub const WITHDRAWN: &str = "withdrawn_by_server";

/// The text of a request, the same as that of its later entry.
pub fn request_text(kind: RequestKind, payload: &Value) -> String {
    let masked = masked_json(payload.to_string());
    let payload: Value = serde_json::from_str(&masked).unwrap_or_default();
    let Asked { text, command, cwd, reason } = Asked::of(kind, &payload);
    let [text, command, cwd, reason] = [text, command, cwd, reason].map(|text| text.map(Cow::Owned));
    let kind = kind.subject().map_or("", Subject::name).into();
    let mut lines = Lines::default();
    lines.request(&ApprovalDocument { kind, text, command, cwd, reason, ..ApprovalDocument::default() });
    lines.text
}
