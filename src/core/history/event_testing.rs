//! Events of `mode=ui` from their JSON, for tests of those who read them.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::entry::{Content, EndDocument, PlanDocument};
use super::ui::{Answer, Delta, Overruling, Pending, Progress, UiContent, UiEvent, UiKind};

/// The event with this JSON. Members that a test leaves out are absent or empty.
pub fn ui_event(mut json: Value) -> UiEvent {
    let kind: UiKind = of(json["type"].take());
    let text = |member: &str| json[member].as_str().map(str::to_owned);
    let whole = |member: &str| Some(json[member].clone()).filter(|value| !value.is_null());
    let words = |member: &str| text(member).unwrap_or_default();
    let entry = |content| UiContent::Entry(Box::new(content));
    let detail = match kind {
        UiKind::Activity => UiContent::Activity { activity: of(json["activity"].clone()) },
        UiKind::Message => entry(Content::User(of(json.clone()))),
        UiKind::AssistantFinalize => entry(Content::Assistant(of(json.clone()))),
        UiKind::ReasoningFinalize => entry(Content::Reasoning(of(json.clone()))),
        UiKind::ToolDelta if json["stdin"].is_string() || json["changes"].is_array() => {
            UiContent::Progress(Progress { delta: text("delta"), stdin: text("stdin"), changes: whole("changes") })
        }
        UiKind::Plan if json["delta"].is_null() => entry(Content::Plan(of::<PlanDocument>(json.clone()))),
        UiKind::AssistantDelta | UiKind::ReasoningDelta | UiKind::ToolDelta | UiKind::Plan => {
            UiContent::Delta(Delta { part: None, delta: words("delta") })
        }
        UiKind::Diff => entry(Content::Diff(of(json.clone()))),
        UiKind::Approval | UiKind::UserInput if json["status"] == "pending" => UiContent::Pending(Box::new(Pending {
            status: "pending",
            request_id: text("request_id"),
            kind: Some(of(json["kind"].clone())),
            command: text("command"),
            reason: text("reason"),
            changes: whole("changes"),
            permissions: whole("permissions"),
            questions: whole("questions"),
            message: text("message"),
            ..Pending::default()
        })),
        UiKind::Approval | UiKind::UserInput => entry(Content::Approval(of(json.clone()))),
        UiKind::AutoReview if json["status"] == "overruled" => UiContent::Overruled(Overruling {
            review_id: words("review_id"),
            status: "overruled",
            subject: words("subject"),
        }),
        UiKind::AutoReview => UiContent::Review(Box::new(of(json.clone()))),
        UiKind::ToolBegin => UiContent::Begun(Box::new(of(json.clone()))),
        UiKind::ToolEnd => match json["item_type"].as_str() {
            Some("commandExecution") => entry(Content::Command(of(json.clone()))),
            Some("fileChange") => entry(Content::FileChange(of(json.clone()))),
            Some(_) | None => entry(Content::Tool(of(json.clone()))),
        },
        UiKind::TokenCount => entry(Content::Usage(of(json.clone()))),
        UiKind::Status => {
            let subject = Some(of(json["subject"].clone()));
            entry(Content::Status(EndDocument { subject, ..of::<EndDocument>(json.clone()) }))
        }
        UiKind::Error => entry(Content::Error(of(json.clone()))),
        UiKind::RpcResponse | UiKind::RpcError => UiContent::Answer(Box::new(Answer {
            id: json["id"].clone(),
            method: text("method"),
            code: whole("code"),
            message: whole("message"),
            result: whole("result").map(|result| serde_json::value::to_raw_value(&result).expect("plain data")),
        })),
    };
    UiEvent {
        kind,
        at_us: 0,
        thread_id: text("thread_id"),
        thread_kind: whole("thread_kind").map(of),
        turn_id: text("turn_id"),
        item_id: text("item_id"),
        detail,
    }
}

fn of<T: DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json.clone()).unwrap_or_else(|error| panic!("{error}: {json}"))
}
