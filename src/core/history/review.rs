//! Reviews: codex's own reviewer approves or denies an action in the place of a person.
//!
//! A review has an id of its own, because one item may lead to several, and network access belongs to no item.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bounded::{EXCERPT_CHARS_MAX, Weigh, masked_params, masked_start};
use super::conversation::Purpose;
use super::entry::{ReviewDocument, ReviewStatus};
use super::item::{ToolCall, excerpt};
use super::record_event::{Params, name};
use super::request::bounded_words;
use super::rows::ToolEvent;
use crate::engine::{one_line, permissions_in_words};
use crate::protocol::of_name;

/// The item type in the row of a review, which no item of the protocol has.
pub(super) const REVIEW: &str = "autoApprovalReview";

/// The words for a level of authorization.
const LEVELS: [&str; 4] = ["unknown", "low", "medium", "high"];

/// Most files of a change that a document names.
const FILES_MAX: usize = 64;

/// A review that has begun or ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Review {
    pub(super) document: ReviewDocument,
    pub(super) does: ToolCall,
    target_item: Option<String>,
    took_ms: Option<u64>,
}

impl Review {
    /// Reads a notification; `None` if it names no review.
    pub(super) fn of(params: Params<'_>, purpose: Purpose<'_>) -> Option<Review> {
        let masked = match purpose {
            Purpose::Rows(_) => masked_params(params),
            Purpose::Ui => None,
        };
        let written: Value = params.read()?;
        let shown: Value = masked.as_deref().map_or(params, |json| Params::Written(json.get())).read()?;
        let (review, action) = (&shown["review"], &shown["action"]);
        let word = |value: &Value| value.as_str().map(|word| bounded_words(&snake(word)));
        let status = word(&review["status"]).and_then(|word| of_name(&word));
        let status = status.filter(|status| !matches!(status, ReviewStatus::Newer(_))).unwrap_or(ReviewStatus::Unknown);
        let files: Vec<String> = strings(&action["files"]).map(bounded_words).collect();
        let files_left_out = files.len().saturating_sub(FILES_MAX);
        let ms = |member: &str| written[member].as_u64();
        // Its name means a secret, so the mask hides its value.
        let authorized = written["review"]["userAuthorization"].as_str().filter(|level| LEVELS.contains(level));
        let document = ReviewDocument {
            review_id: name(written["reviewId"].as_str()?.into()).into_owned(),
            status,
            action: word(&action["type"]).unwrap_or_else(|| "unknown".to_owned()),
            subject: bounded_words(&subject(action)),
            cwd: action["cwd"].as_str().map(bounded_words),
            files: Some(files.into_iter().take(FILES_MAX).collect()).filter(|files: &Vec<String>| !files.is_empty()),
            files_left_out: Some(files_left_out).filter(|left_out| *left_out > 0),
            reason: review["rationale"].as_str().filter(|reason| !reason.is_empty()).map(bounded_words),
            risk_level: word(&review["riskLevel"]),
            authorized: authorized.map(str::to_owned),
        };
        Some(Review {
            document,
            // Its columns are masked one by one: a mask of a mask would show neither.
            does: call_of(&written["action"]),
            target_item: written["targetItemId"].as_str().map(|item_id| name(item_id.into()).into_owned()),
            took_ms: ms("completedAtMs").zip(ms("startedAtMs")).map(|(end, start)| end.saturating_sub(start)),
        })
    }

    pub(super) fn id(&self) -> &str {
        &self.document.review_id
    }

    /// The item that it is about.
    pub(super) fn target_item(&self) -> Option<&str> {
        self.target_item.as_deref()
    }

    pub(super) fn is_over(&self) -> bool {
        self.document.status != ReviewStatus::InProgress
    }

    /// The decision as one word.
    pub(super) fn decision(&self) -> &'static str {
        self.document.status.name()
    }

    pub(super) fn event(&self) -> ToolEvent {
        match self.document.status {
            ReviewStatus::InProgress => ToolEvent::Started,
            ReviewStatus::Approved => ToolEvent::Completed,
            ReviewStatus::Denied => ToolEvent::Declined,
            ReviewStatus::TimedOut => ToolEvent::Timeout,
            ReviewStatus::Aborted => ToolEvent::Cancelled,
            ReviewStatus::Unknown | ReviewStatus::Newer(_) => ToolEvent::Failed,
        }
    }

    pub(super) fn took_ms(&self) -> Option<u64> {
        self.took_ms
    }

    /// Why the action was not approved, if the reviewer says so.
    pub(super) fn objection(&self) -> Option<String> {
        let reason = self.document.reason.as_deref().filter(|_| self.document.status != ReviewStatus::Approved)?;
        Some(masked_start(reason, EXCERPT_CHARS_MAX))
    }

    /// The action in words, and the reason of the decision.
    pub(super) fn in_words(&self) -> String {
        let ReviewDocument { subject, reason, .. } = &self.document;
        reason.as_deref().map_or_else(|| subject.clone(), |reason| format!("{subject}: {reason}"))
    }
}

/// A denial that a call overrules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Overruled {
    pub(super) review_id: String,
    pub(super) turn_id: Option<String>,
    pub(super) does: ToolCall,
    /// The action in words, masked.
    pub(super) text: String,
}

impl Overruled {
    /// Reads the call; `None` if it names no review.
    pub(super) fn of(params: Params<'_>) -> Option<Overruled> {
        let params: Value = params.read()?;
        let (event, action) = (&params["event"], &params["event"]["action"]);
        Some(Overruled {
            review_id: name(event["id"].as_str()?.into()).into_owned(),
            turn_id: event["turn_id"].as_str().map(|turn_id| name(turn_id.into()).into_owned()),
            does: call_of(action),
            text: excerpt(&subject(action)),
        })
    }
}

impl Weigh for Overruled {
    fn weight(&self) -> usize {
        let Overruled { review_id, turn_id, does, text } = self;
        review_id.weight() + turn_id.weight() + does.weight() + text.weight()
    }
}

/// Whether this is the review of an action, and not the action itself.
pub(super) fn is_review(does: &ToolCall) -> bool {
    does.item_type.as_deref() == Some(REVIEW)
}

/// The columns of an action.
fn call_of(action: &Value) -> ToolCall {
    let files: Vec<&str> = strings(&action["files"]).collect();
    let is_change = !files.is_empty();
    ToolCall {
        item_type: Some(REVIEW.to_owned()),
        command: Some(subject(action)).filter(|subject| !is_change && !subject.is_empty()).as_deref().map(excerpt),
        cwd: action["cwd"].as_str().map(excerpt),
        file_path: files.first().map(|file| excerpt(file)),
        diff_summary: (files.len() > 1).then(|| format!("{} files", files.len())),
    }
}

/// An action under review in words. Its members are named as in the protocol, or as in codex's core.
pub fn subject(action: &Value) -> String {
    let text = |member: &str| action[member].as_str().unwrap_or_default();
    let either =
        |one: &str, other: &str| action[one].as_str().or(action[other].as_str()).unwrap_or_default().to_owned();
    match &*snake(text("type")) {
        "command" => text("command").to_owned(),
        "execve" => match strings(&action["argv"]).collect::<Vec<_>>() {
            words if words.is_empty() => text("program").to_owned(),
            words => words.join(" "),
        },
        "write_stdin" => format!("type into the running command: {}", one_line(text("stdin"))),
        "apply_patch" => match &strings(&action["files"]).collect::<Vec<_>>()[..] {
            [] => "change files".to_owned(),
            [file] => format!("change {file}"),
            [first, more @ ..] => format!("change {first} and {} more", more.len()),
        },
        "network_access" => format!("connect to {}", text("target")),
        "mcp_tool_call" => format!("call {}.{}", text("server"), either("toolName", "tool_name")),
        "request_permissions" => {
            let given = &action["permissions"];
            let files = [&given["fileSystem"], &given["file_system"]].into_iter().find(|files| !files.is_null());
            let given = serde_json::json!({ "network": given["network"], "fileSystem": files });
            format!("get permissions: {}", permissions_in_words(&given).join(", "))
        }
        other => one_line(other),
    }
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// A word of the protocol as this program writes words.
fn snake(word: &str) -> String {
    let mut snake = String::with_capacity(word.len() + 2);
    for char in word.chars() {
        if char.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(char.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::properties::{play, records, ui_events};
    use crate::history::rows::ToolRow;

    const COMMAND: &str = r#""action":{"type":"command","source":"unifiedExec","command":"rm -rf build","cwd":"/w"}"#;

    fn started(at_ms: u64) -> String {
        let review = r#""reviewId":"r","targetItemId":"i","startedAtMs":1000,"review":{"status":"inProgress"}"#;
        format!("{at_ms} < item/autoApprovalReview/started t/u {{{review},{COMMAND}}}\n")
    }

    fn completed(at_ms: u64, status: &str, action: &str) -> String {
        let review = format!(
            r#""review":{{"status":"{status}","riskLevel":"high","userAuthorization":"low","rationale":"too much"}}"#
        );
        let ids =
            r#""reviewId":"r","targetItemId":"i","startedAtMs":1000,"completedAtMs":1007,"decisionSource":"agent""#;
        format!("{at_ms} < item/autoApprovalReview/completed t/u {{{ids},{review},{action}}}\n")
    }

    fn told(row: &ToolRow) -> String {
        let part = |part: &Option<String>| part.clone().unwrap_or_else(|| "~".to_owned());
        let latency = row.latency_ms.map_or("~".to_owned(), |ms| ms.to_string());
        let place = [&row.turn_id, &row.item_id].map(part).join("/");
        let what = [&row.command, &row.file_path, &row.approval_decision, &row.error_message].map(part).join("|");
        format!("{} {} {place} {latency} {what}", row.event_type, row.phase)
    }

    fn check(playbook: &str, expect: &[&str]) {
        let (_, rows) = play(playbook);
        assert!(rows.tools.iter().all(|row| row.item_type.as_deref() == Some(REVIEW)), "{rows:#?}");
        assert_eq!(rows.tools.iter().map(told).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn reviews_have_rows_from_start_to_decision() {
        let start = "started pre u/r ~ rm -rf build|~|~|~";
        let check_end = |status: &str, expect: &str| {
            check(&format!("{}{}", started(1), completed(9, status, COMMAND)), &[start, expect]);
        };
        check_end("approved", "completed pre u/r 7 rm -rf build|~|approved|~");
        check_end("denied", "declined pre u/r 7 rm -rf build|~|denied|too much");
        check_end("timedOut", "timeout pre u/r 7 rm -rf build|~|timed_out|too much");
        check_end("aborted", "cancelled pre u/r 7 rm -rf build|~|aborted|too much");
        check_end("later", "failed pre u/r 7 rm -rf build|~|unknown|too much");
        check(&format!("{0}{0}", started(1)), &[start]);
    }

    #[test]
    fn review_without_end_ends_with_its_turn() {
        let turn = "0 < turn/started t/u\n";
        let start = "started pre u/r ~ rm -rf build|~|~|~";
        let interrupted = format!("{turn}{}5 < turn/completed t/u {{\"status\":\"interrupted\"}}\n", started(1));
        let expect = [start, "interrupted pre u/r 4 rm -rf build|~|~|~"];
        check(&interrupted, &expect);
        // A decision that comes too late changes nothing.
        check(&format!("{interrupted}{}", completed(9, "aborted", COMMAND)), &expect);
        check(&format!("{turn}{}5 ! generation_ended\n", started(1)), &[start, "failed pre u/r 4 rm -rf build|~|~|~"]);
    }

    #[test]
    fn actions_are_told_in_words() {
        let check = |action: &str, expect: &str| {
            let (_, rows) = play(&completed(9, "denied", &format!("\"action\":{action}")));
            let row = told(&rows.tools[0]);
            assert_eq!(row.split_once(" 7 ").map(|(_, what)| what), Some(&*format!("{expect}|denied|too much")));
        };
        check(r#"{"type":"execve","program":"/bin/ls","argv":["ls","-l"],"cwd":"/"}"#, "ls -l|~");
        check(r#"{"type":"writeStdin","stdin":"y\n","cwd":"/"}"#, "type into the running command: y|~");
        check(r#"{"type":"applyPatch","files":["/a"],"cwd":"/"}"#, "~|/a");
        check(r#"{"type":"networkAccess","target":"https://x:443","host":"x"}"#, "connect to https://x:443|~");
        check(r#"{"type":"mcpToolCall","server":"lab","toolName":"sum"}"#, "call lab.sum|~");
        check(
            r#"{"type":"requestPermissions","permissions":{"network":{"enabled":true},"fileSystem":{"write":["/a"]}}}"#,
            "get permissions: write /a, network access|~",
        );
        check(r#"{"type":"newThing"}"#, "new_thing|~");
        check("null", "~|~");
        check(r#"{"type":"command","command":"TOKEN=hunter22 ls"}"#, "TOKEN=[redacted] ls|~");
    }

    #[test]
    fn overruling_is_a_row_and_an_entry() {
        let event = r#""event":{"id":"r","turn_id":"u","action":{"type":"command","command":"rm -rf build"}}"#;
        let call = format!("10 >1 thread/approveGuardianDeniedAction t {{{event}}}\n");
        let denied = completed(9, "denied", COMMAND);
        let (_, rows) = play(&format!("{denied}{call}12 =1 {{}}"));
        assert_eq!(rows.tools.last().map(told).as_deref(), Some("overruled pre u/r ~ rm -rf build|~|overruled|~"));
        let entries: Vec<_> = rows.entries.iter().collect();
        let entry = |index: usize| serde_json::from_str::<Value>(entries[index].json).expect("it is JSON");
        assert_eq!((&entry(0)["decision"], &entry(0)["text"]), (&"denied".into(), &"rm -rf build: too much".into()));
        assert_eq!((&entry(0)["role"], &entry(0)["item_id"]), (&"approval".into(), &"i".into()));
        assert_eq!((&entry(1)["decision"], &entry(1)["text"]), (&"overruled".into(), &"rm -rf build".into()));
        assert_eq!(entries.len(), 2);
    }

    #[test]
    fn both_ends_are_events_of_the_target_item() {
        let (_, rows) = play(&format!("{}{}", started(1), completed(9, "denied", COMMAND)));
        let told: Vec<_> = rows.events.iter().map(|event| (&*event.event_type, event.item_id.as_deref())).collect();
        let expect = ["item/autoApprovalReview/started", "item/autoApprovalReview/completed"];
        assert_eq!(told, expect.map(|name| (name, Some("i"))));
        let notification = |method: &str, review: &str| {
            let place = r#""threadId":"t","turnId":"u","targetItemId":"i","reviewId":"r""#;
            format!(r#"<< {{"method":"{method}","params":{{{place},"review":{review},{COMMAND}}}}}"#)
        };
        let verdict = r#"{"status":"denied","riskLevel":"high","userAuthorization":"low","rationale":"too much"}"#;
        let [start, end] = [(expect[0], r#"{"status":"inProgress"}"#), (expect[1], verdict)]
            .map(|(method, review)| notification(method, review));
        let events = ui_events(&records(&format!("{start}\n{end}")));
        let events: Vec<Value> = events.iter().map(|event| serde_json::to_value(event).expect("plain data")).collect();
        let reviews: Vec<&Value> = events.iter().filter(|event| event["type"] == "auto_review").collect();
        assert_eq!(reviews.len(), 2, "{events:#?}");
        assert_eq!((&reviews[0]["status"], &reviews[0]["item_id"]), (&"in_progress".into(), &"i".into()));
        let words = ["status", "subject", "reason", "risk_level", "authorized", "cwd"];
        assert_eq!(
            words.map(|word| reviews[1][word].clone()),
            ["denied", "rm -rf build", "too much", "high", "low", "/w"].map(Value::from)
        );
    }
}
