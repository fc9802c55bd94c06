//! Tool rows: commands, file changes, tool calls, and requests to a human about them.
//!
//! A tool gets a row for its start, one for each group of output, and one for its end: its own, or that of its turn if
//! the turn is interrupted, fails or is replaced without a reported end, or that of the child. A tool may outlive a
//! completed turn, as a background command does. The old `codex/event/*` notifications give no rows, because current
//! notifications report the same.

use serde::{Deserialize, Serialize};

use super::asked::Asked;
use super::bounded::{Bounded, Weigh};
use super::event::{EXCERPT_CHARS_MAX, cut_plain, masked_start, preview};
use super::failure::{OUTCOME_UNKNOWN, STREAM_CLOSED};
use super::groups::Group;
use super::piece::Telling;
use super::record_event::{MethodMessage, Place, RecordEvent, Seen};
use super::time::latency_ms;
use super::tool_call::{ToolCall, is_tool};
use super::tool_row::{Phase, ToolEvent, ToolRow};
use super::turns::{TurnEnd, TurnEvent};
use crate::protocol::Method;
use crate::wire::Members;

/// Tools in progress, and open requests to a human.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tools {
    open: Bounded<ItemKey, Item>,
    /// Items that ended with their turns and may still be reported as completed.
    ended: Bounded<ItemKey, ()>,
    asked: Asked,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct ItemKey {
    thread_id: Option<String>,
    turn_id: Option<String>,
    item_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Item {
    started_us: u64,
    does: ToolCall,
}

/// How an item ended.
#[derive(Default)]
struct ItemEnd {
    status: Option<String>,
    exit_code: Option<i64>,
    error: Option<String>,
}

impl ItemKey {
    fn of(place: &Place<'_>) -> Option<ItemKey> {
        let owned = |part: &Option<std::borrow::Cow<'_, str>>| part.as_deref().map(str::to_owned);
        let item_id = owned(&place.item_id)?;
        Some(ItemKey { thread_id: owned(&place.thread_id), turn_id: owned(&place.turn_id), item_id })
    }

    fn row(self, row: ToolRow) -> ToolRow {
        let ItemKey { thread_id, turn_id, item_id } = self;
        ToolRow { thread_id, turn_id, item_id: Some(item_id), ..row }
    }
}

impl Tools {
    /// Processes a record, and appends its tool rows.
    pub(super) fn take(&mut self, seen: &Seen<'_>, rows: &mut Vec<ToolRow>) {
        match &seen.event {
            RecordEvent::Notification(message) => self.message(seen.at_us, message, rows),
            RecordEvent::ServerRequest { message, id } => {
                let item = does(&self.open, &message.place);
                self.asked.asked(seen.at_us, message, id.to_string(), item.as_ref(), rows);
            }
            RecordEvent::ShimEvent { event: "request_opened", data: Some(data) } => self.asked.opened(data),
            RecordEvent::ShimEvent { event: "request_resolved", data: Some(data) } => {
                let open = &self.open;
                rows.extend(self.asked.resolved(seen.at_us, data, |place| does(open, place)));
            }
            RecordEvent::Gap { .. } => self.asked.gap(),
            RecordEvent::Generation(_)
            | RecordEvent::ClientRequest { .. }
            | RecordEvent::Response { .. }
            | RecordEvent::ShimEvent { .. }
            | RecordEvent::Other => {}
        }
    }

    /// A group of pieces was closed; if it belongs to a tool, it is output.
    pub(super) fn output(&self, group: &Group, rows: &mut Vec<ToolRow>) {
        let (Telling::Now, Some(item_id)) = (group.telling, group.item_id.clone()) else { return };
        let key = ItemKey { thread_id: group.thread_id.clone(), turn_id: group.turn_id.clone(), item_id };
        // The method of a piece names the item type.
        let named = group.method.strip_prefix("item/").and_then(|rest| rest.split('/').next());
        let does = match (self.open.get(&key), named) {
            (Some(item), _) => item.does.clone(),
            (None, Some(named)) if is_tool(named) => {
                ToolCall { item_type: Some(named.to_owned()), ..ToolCall::default() }
            }
            (None, _) => return,
        };
        let row = ToolRow::new(group.first_us, ToolEvent::OutputDelta, Phase::Running, does);
        rows.push(key.row(ToolRow { raw_payload_json: Some(cut_plain(&group.text, EXCERPT_CHARS_MAX)), ..row }));
    }

    /// The child has ended.
    pub(super) fn run_ended(&mut self, at_us: u64, rows: &mut Vec<ToolRow>) {
        for (key, item) in self.open.take_all() {
            rows.push(item.unreported(key, at_us, STREAM_CLOSED));
        }
        self.ended = Bounded::default();
        self.asked.run_ended(at_us, rows);
    }

    /// A turn was replaced by another one of its thread without a reported end, so its open tools get no end of their
    /// own. If an end arrives later, it gets another row.
    pub(super) fn turn_replaced(
        &mut self,
        at_us: u64,
        thread_id: Option<&str>,
        turn_id: &str,
        rows: &mut Vec<ToolRow>,
    ) {
        let over = self.open_of(thread_id, Some(turn_id));
        rows.extend(over.into_iter().map(|(key, item)| item.unreported(key, at_us, OUTCOME_UNKNOWN)));
    }

    /// Removes the open tools of a turn.
    fn open_of(&mut self, thread_id: Option<&str>, turn_id: Option<&str>) -> Vec<(ItemKey, Item)> {
        self.open.take_if(|key, _| key.thread_id.as_deref() == thread_id && key.turn_id.as_deref() == turn_id)
    }

    fn message(&mut self, at_us: u64, message: &MethodMessage<'_>, rows: &mut Vec<ToolRow>) {
        match message.known {
            Some(Method::ItemStarted) => self.started(at_us, message, rows),
            Some(Method::ItemCompleted) => {
                rows.extend(self.completed(at_us, message));
                self.asked.item_over(&message.place);
            }
            Some(Method::TurnStarted) => {
                let thread_id = message.place.thread_id.as_deref();
                self.ended.take_if(|key, ()| key.thread_id.as_deref() == thread_id);
            }
            Some(Method::TurnCompleted) => {
                self.turn_over(at_us, message, rows);
                self.asked.turn_over(&message.place);
            }
            Some(Method::RequestResolved) => self.asked.server_resolved(message.params),
            _ => {}
        }
    }

    fn started(&mut self, at_us: u64, message: &MethodMessage<'_>, rows: &mut Vec<ToolRow>) {
        let (Some(key), Some((does, _))) = (ItemKey::of(&message.place), read(message)) else { return };
        // It may be running already; the new record has more details.
        let gone = match self.open.change(&key, |item| item.does = does.clone().or(&item.does)) {
            Some(((), gone)) => gone,
            None => {
                let row = ToolRow::new(at_us, ToolEvent::Started, Phase::Running, does.clone());
                let row = ToolRow { raw_payload_json: Some(preview(message.params, EXCERPT_CHARS_MAX)), ..row };
                rows.push(key.clone().row(row));
                self.open.insert(key, Item { started_us: at_us, does })
            }
        };
        // Too many tools are in progress: rows record what was evicted.
        rows.extend(gone.into_iter().map(|(key, item)| item.unreported(key, at_us, OUTCOME_UNKNOWN)));
    }

    fn completed(&mut self, at_us: u64, message: &MethodMessage<'_>) -> Option<ToolRow> {
        let key = ItemKey::of(&message.place)?;
        let (does, end) = read(message)?;
        let item = self.open.remove(&key);
        if self.ended.remove(&key).is_some() {
            return None;
        }
        let event = match end.status.as_deref() {
            Some("failed") => ToolEvent::Failed,
            Some("declined") => ToolEvent::Declined,
            Some(_) | None => ToolEvent::Completed,
        };
        let row = match item {
            Some(Item { started_us, does: before }) => Item { started_us, does: does.or(&before) }.ends(at_us, event),
            None => ToolRow::new(at_us, event, Phase::Post, does),
        };
        Some(key.row(ToolRow {
            exit_code: end.exit_code,
            final_status: Some(end.status.unwrap_or_else(|| event.name().to_owned())),
            error_message: end.error,
            raw_payload_json: Some(preview(message.params, EXCERPT_CHARS_MAX)),
            ..row
        }))
    }

    fn turn_over(&mut self, at_us: u64, message: &MethodMessage<'_>, rows: &mut Vec<ToolRow>) {
        let end = TurnEnd::of(message.params);
        let event = match end.event {
            TurnEvent::Interrupted => ToolEvent::Interrupted,
            TurnEvent::Failed => ToolEvent::Failed,
            // Open tools are reported as completed later, possibly much later.
            TurnEvent::Completed | TurnEvent::Started => return,
        };
        let over = self.open_of(message.place.thread_id.as_deref(), message.place.turn_id.as_deref());
        for (key, item) in over {
            self.ended.insert(key.clone(), ());
            let (error_code, error_message) = (end.error_code.clone(), end.error_message.clone());
            rows.push(key.row(ToolRow { error_code, error_message, ..item.ends(at_us, event) }));
        }
    }
}

/// The action of an open item at `place`; requests of early 2026 do not name the turn.
fn does(open: &Bounded<ItemKey, Item>, place: &Place<'_>) -> Option<ToolCall> {
    let item_id = place.item_id.as_deref()?;
    let is_meant = |key: &ItemKey| {
        key.item_id == item_id
            && key.thread_id.as_deref() == place.thread_id.as_deref()
            && (place.turn_id.is_none() || key.turn_id.as_deref() == place.turn_id.as_deref())
    };
    open.iter().find(|(key, _)| is_meant(key)).map(|(_, item)| item.does.clone())
}

/// The action and the end of an item, if it is a tool.
fn read(message: &MethodMessage<'_>) -> Option<(ToolCall, ItemEnd)> {
    let params = message.params.written().and_then(Members::of)?;
    let item = Members::of(params.get("item")?)?;
    let item_type = item.text("type").filter(|item_type| is_tool(item_type))?;
    let error = item.get("error").and_then(Members::of).and_then(|error| error.text("message"));
    let end = ItemEnd {
        status: item.text("status"),
        exit_code: item.get("exitCode").and_then(|code| code.get().parse().ok()),
        error: error.map(|error| masked_start(&error, EXCERPT_CHARS_MAX)),
    };
    Some((ToolCall::of_item(item_type, &item), end))
}

impl Weigh for ItemKey {
    fn weight(&self) -> usize {
        self.thread_id.weight() + self.turn_id.weight() + self.item_id.weight()
    }
}

impl Weigh for Item {
    fn weight(&self) -> usize {
        size_of::<u64>() + self.does.weight()
    }
}

impl Item {
    /// The row for an end that was never reported.
    fn unreported(self, key: ItemKey, at_us: u64, error_code: &str) -> ToolRow {
        let row = self.ends(at_us, ToolEvent::Failed);
        key.row(ToolRow { error_code: Some(error_code.to_owned()), ..row })
    }

    fn ends(self, at_us: u64, event: ToolEvent) -> ToolRow {
        ToolRow {
            latency_ms: Some(latency_ms(self.started_us, at_us)),
            final_status: Some(event.name().to_owned()),
            ..ToolRow::new(at_us, event, Phase::Post, self.does)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::playbook::play;

    fn part(part: &Option<String>) -> &str {
        part.as_deref().unwrap_or("~")
    }

    /// Rows as `MS EVENT ITEM TYPE LATENCY STATUS`, then other columns.
    fn check(actual: &str, expect: &[&str]) {
        let (_, rows) = play(actual);
        let say = |row: &ToolRow| {
            let latency = row.latency_ms.map_or("~".to_owned(), |ms| ms.to_string());
            let status = part(&row.final_status);
            let (at_ms, event) = (row.at_us / 1_000, row.event_type.name());
            let mut said =
                format!("{at_ms} {event} {} {} {latency} {status}", part(&row.item_id), part(&row.item_type));
            for (name, value) in [("code", &row.error_code), ("error", &row.error_message)] {
                value.iter().for_each(|value| said += &format!(" {name}={value}"));
            }
            row.exit_code.iter().for_each(|code| said += &format!(" exit={code}"));
            said
        };
        assert_eq!(rows.tools.iter().map(say).collect::<Vec<_>>(), expect, "{actual}");
    }

    const STARTED: &str = "5 < item/started t/u/i {\"type\":\"commandExecution\",\"command\":\"ls\",\"cwd\":\"/w\"}\n";
    const BEGAN: &str = "5 started i commandExecution ~ ~";

    #[test]
    fn an_item_starts_and_ends() {
        let check = |end: &str, expect: &str| check(&format!("{STARTED}{end}"), &[BEGAN, expect]);
        let item = |more: &str| format!("9 < item/completed t/u/i {{\"type\":\"commandExecution\"{more}}}");
        check(&item(r#","status":"completed","exitCode":0"#), "9 completed i commandExecution 4 completed exit=0");
        check(&item(r#","status":"completed","exitCode":101"#), "9 completed i commandExecution 4 completed exit=101");
        check(&item(r#","status":"failed","exitCode":-1"#), "9 failed i commandExecution 4 failed exit=-1");
        check(&item(r#","status":"declined","exitCode":null"#), "9 declined i commandExecution 4 declined");
        check(&item(r#","status":"weird""#), "9 completed i commandExecution 4 weird");
        check(&item(""), "9 completed i commandExecution 4 completed");
        check(
            &item(r#","status":"failed","error":{"message":"Bearer abcdefghij"}"#),
            "9 failed i commandExecution 4 failed error=Bearer [redacted]",
        );
    }

    #[test]
    fn tool_types_are_recognized() {
        for item_type in ["userMessage", "agentMessage", "reasoning", "plan", "hookPrompt", "contextCompaction"] {
            check(&format!("5 < item/started t/u/i {{\"type\":\"{item_type}\"}}"), &[]);
            check(&format!("5 < item/completed t/u/i {{\"type\":\"{item_type}\"}}"), &[]);
        }
        check(
            "5 < item/completed t/u/i {\"type\":\"enteredReviewMode\"}\n6 < item/started t/u/j {\"type\":\"newTool\"}",
            &["6 started j newTool ~ ~"],
        );
        check("5 < item/started t/u/i", &[]);
        check("5 < item/completed t/u/~ {\"type\":\"newTool\"}", &[]);
        check("5 < codex/event/exec_command_begin t/u/i {\"msg\":{\"type\":\"exec_command_begin\"}}", &[]);
    }

    #[test]
    fn tool_may_be_seen_only_at_end() {
        check(
            "9 < item/completed t/u/i {\"type\":\"fileChange\",\"status\":\"completed\"}",
            &["9 completed i fileChange ~ completed"],
        );
    }

    #[test]
    fn an_item_starts_once() {
        check(&format!("{STARTED}{STARTED}"), &[BEGAN]);
        // Item ids are unique only within a turn.
        let other = STARTED.replace("t/u/i", "t/v/i");
        check(&format!("{STARTED}{other}"), &[BEGAN, BEGAN]);
    }

    #[test]
    fn open_tools_end_with_their_turn() {
        let late = "9 < item/completed t/u/i {\"type\":\"commandExecution\",\"status\":\"completed\"}";
        let end = |turn: &str| format!("{STARTED}7 < turn/completed t/u {turn}\n");
        check(
            &format!("{}{late}", end(r#"{"status":"interrupted","error":null}"#)),
            &[BEGAN, "7 interrupted i commandExecution 2 interrupted"],
        );
        check(
            &format!("{}{late}", end(r#"{"status":"failed","error":{"message":"no","codexErrorInfo":"other"}}"#)),
            &[BEGAN, "7 failed i commandExecution 2 failed code=other error=no"],
        );
        check(
            &format!("{}{late}", end(r#"{"status":"completed"}"#)),
            &[BEGAN, "9 completed i commandExecution 4 completed"],
        );
        // It may continue in the background, through other turns.
        check(
            &format!("{}8 < turn/started t/v\n{late}", end(r#"{"status":"completed"}"#)),
            &[BEGAN, "9 completed i commandExecution 4 completed"],
        );
        // The end of another thread or turn does not affect it.
        check(&format!("{STARTED}7 < turn/completed x/u {{\"status\":\"interrupted\"}}"), &[BEGAN]);
        check(&format!("{STARTED}7 < turn/completed t/v {{\"status\":\"interrupted\"}}"), &[BEGAN]);
    }

    #[test]
    fn open_tools_end_when_turn_is_replaced() {
        let begins = format!("4 < turn/started t/u\n{STARTED}");
        let next = "7 < turn/started t/v\n";
        let late = "9 < item/completed t/u/i {\"type\":\"commandExecution\",\"status\":\"completed\",\"exitCode\":0}";
        let failed = "7 failed i commandExecution 2 failed code=outcome_unknown";
        check(&format!("{begins}{next}"), &[BEGAN, failed]);
        // It ends once, whatever follows about its turn and the child.
        check(
            &format!("{begins}{next}8 < turn/completed t/u {{\"status\":\"interrupted\"}}\n9 ! generation_ended"),
            &[BEGAN, failed],
        );
        check(&format!("{begins}{next}{late}"), &[BEGAN, failed, "9 completed i commandExecution ~ completed exit=0"]);
        // The same holds for a turn that was not seen to start.
        check(&format!("{STARTED}{next}"), &[BEGAN, failed]);
        // A repeated start of the same turn replaces nothing, nor does a turn of another thread.
        check(&format!("{begins}7 < turn/started t/u\n7 < turn/started x/v"), &[BEGAN]);
    }

    #[test]
    fn open_tools_end_with_the_child() {
        let gone = "8 failed i commandExecution 3 failed code=app_server_stream_closed";
        check(&format!("{STARTED}8 ! generation_ended"), &[BEGAN, gone]);
        check(&format!("{STARTED}8 generation 00000000000a"), &[BEGAN, gone]);
        // Only once.
        check(&format!("{STARTED}8 ! generation_ended\n9 generation 00000000000a"), &[BEGAN, gone]);
    }

    #[test]
    fn output_rows_come_from_groups() {
        let output =
            |at: u64, text: &str| format!("{at} < item/commandExecution/outputDelta t/u/i {{\"delta\":\"{text}\"}}\n");
        let end = "300 < item/completed t/u/i {\"type\":\"commandExecution\",\"status\":\"completed\"}";
        let actual =
            [STARTED, &output(10, "a"), &output(20, "b"), &output(200, "TOKEN=hun"), &output(210, "ter22"), end];
        let (_, rows) = play(&actual.concat());
        let output = rows.tools.iter().filter(|row| row.event_type == ToolEvent::OutputDelta);
        let say =
            |row: &ToolRow| format!("{} {} {}", row.at_us / 1_000, part(&row.command), part(&row.raw_payload_json));
        assert_eq!(output.map(say).collect::<Vec<_>>(), [r#"10 ls "ab""#, r#"200 ls "TOKEN=[redacted]""#]);
        assert_eq!(rows.tools.last().map(|row| row.event_type), Some(ToolEvent::Completed));
    }

    #[test]
    fn output_type_comes_from_the_method() {
        let all = "5 < item/agentMessage/delta t/u/m {\"delta\":\"a\"}
                   5 < item/reasoning/summaryTextDelta t/u/r {\"delta\":\"a\"}
                   5 < item/plan/delta t/u/p {\"delta\":\"a\"}
                   5 < item/newTool/outputDelta t/u/n {\"delta\":\"a\"}
                   900 ! generation_ended";
        check(all, &["5 output_delta n newTool ~ ~"]);
    }

    #[test]
    fn long_output_is_cut() {
        let text = "x".repeat(EXCERPT_CHARS_MAX + 1);
        let actual = format!("5 < item/newTool/outputDelta t/u/n {{\"delta\":\"{text}\"}}\n900 ! generation_ended");
        let (_, rows) = play(&actual);
        let payload: serde_json::Value =
            serde_json::from_str(part(&rows.tools[0].raw_payload_json)).expect("it is JSON");
        assert_eq!(payload["original_chars"], EXCERPT_CHARS_MAX + 1);
        assert_eq!(payload["preview"].as_str().map(str::len), Some(EXCERPT_CHARS_MAX));
    }

    #[test]
    fn rows_describe_their_action() {
        let actual =
            format!("{STARTED}9 < item/completed t/u/i {{\"type\":\"commandExecution\",\"status\":\"completed\"}}");
        let (_, rows) = play(&actual);
        let done = |row: &ToolRow| [&row.command, &row.cwd, &row.thread_id, &row.turn_id].map(part).join(" ");
        assert_eq!(rows.tools.iter().map(done).collect::<Vec<_>>(), ["ls /w t u", "ls /w t u"]);
        assert!(rows.tools[1].raw_payload_json.as_deref().is_some_and(|raw| raw.contains("\"status\":\"completed\"")));
    }

    #[test]
    fn event_names_round_trip() {
        for event in ToolEvent::ALL {
            assert_eq!(ToolEvent::of(event.name()), Some(event));
            assert_eq!(serde_json::to_value(event).expect("plain"), event.name());
        }
        assert_eq!(ToolEvent::of("x"), None);
    }
}
