//! Turn rows: one for the start of a turn and one for its end, which is its own, that of the child, or the start of
//! another turn in its thread.

use super::conversation::{Change, Step};
use super::excerpt::{EXCERPT_CHARS_MAX, latency_ms, masked_start, preview};
use super::turn::{Failure, OUTPUT_CHARS_MAX, Turn, TurnEnd, TurnEvent};

/// A row of `codex_turn_events` without its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRow {
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
    pub thread_id: Option<String>,
    pub turn_id: Option<String>,
    pub event_type: TurnEvent,
    /// The protocol's word for the event.
    pub status: String,
    /// Milliseconds from its start to its end.
    pub latency_ms: Option<u64>,
    /// Characters of streamed answers.
    pub delta_chars: u64,
    /// The start of its last answer, masked.
    pub output_preview: Option<String>,
    /// Input tokens, as far as reported.
    pub input_tokens: Option<u64>,
    /// Output tokens, as far as reported.
    pub output_tokens: Option<u64>,
    /// The kind of failure in one word.
    pub error_code: Option<String>,
    pub error_message: Option<String>,
    /// An excerpt of the recorded payload, as masked JSON; `None` if the payload was not recorded.
    pub raw_payload_json: Option<String>,
}

/// Appends the turn rows of a step.
pub(super) fn turn_rows(step: &Step<'_>, rows: &mut Vec<TurnRow>) {
    // The outcome of a replaced or forgotten turn is unknown. If its end arrives later, it gets another row.
    for (thread_id, turn) in step.lost.turns.iter().filter(|(_, turn)| turn.is_reported()) {
        let row = ended(turn, step.at_us, &TurnEnd::unreported(step.lost_code()));
        rows.push(TurnRow { thread_id: thread_id.clone(), ..row });
    }
    let row = if let Change::TurnStarted { is_new: true } = step.change {
        row(&Turn::default(), step.at_us, TurnEvent::Started, "inProgress")
    } else if let Change::TurnEnded { end, turn, is_new: true, .. } = &step.change {
        ended(turn.as_ref().unwrap_or(&Turn::default()), step.at_us, end)
    } else {
        return;
    };
    let Some(message) = step.message else { return };
    rows.push(TurnRow {
        thread_id: message.place.thread_id.as_deref().map(str::to_owned),
        turn_id: message.place.turn_id.as_deref().map(str::to_owned).or(row.turn_id),
        raw_payload_json: Some(preview(message.params, EXCERPT_CHARS_MAX)),
        ..row
    });
}

fn ended(turn: &Turn, at_us: u64, end: &TurnEnd) -> TurnRow {
    // The last error is reported only for a turn that failed.
    let last = if end.event == TurnEvent::Failed { turn.error.clone() } else { Failure::default() };
    let Failure { message, code } = end.failure.excerpt();
    TurnRow {
        latency_ms: turn.started_us.map(|started_us| latency_ms(started_us, at_us)),
        error_code: code.or(last.code),
        error_message: message.or(last.message),
        ..row(turn, at_us, end.event, &end.status)
    }
}

fn row(turn: &Turn, at_us: u64, event_type: TurnEvent, status: &str) -> TurnRow {
    let output = turn.output();
    TurnRow {
        at_us,
        thread_id: None,
        turn_id: turn.id.clone(),
        event_type,
        status: status.to_owned(),
        latency_ms: None,
        delta_chars: turn.delta_chars,
        output_preview: (!output.is_empty()).then(|| masked_start(output, OUTPUT_CHARS_MAX)),
        input_tokens: turn.spent.map(|spent| spent.input),
        output_tokens: turn.spent.map(|spent| spent.output),
        error_code: None,
        error_message: None,
        raw_payload_json: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::playbook::play;

    /// Rows as `MS EVENT THREAD/TURN STATUS LATENCY CHARS PREVIEW TOKENS`, and the error.
    fn check(actual: &str, expect: &[&str]) {
        let (_, rows) = play(actual);
        let part = |part: &Option<String>| part.clone().unwrap_or("~".to_owned());
        let say = |row: &TurnRow| {
            let latency = row.latency_ms.map_or("~".to_owned(), |ms| ms.to_string());
            let tokens = row.input_tokens.zip(row.output_tokens).map_or("~".to_owned(), |(i, o)| format!("{i}+{o}"));
            let (at_ms, event, status) = (row.at_us / 1_000, row.event_type.name(), &row.status);
            let (thread_id, turn_id) = (part(&row.thread_id), part(&row.turn_id));
            let (chars, preview) = (row.delta_chars, part(&row.output_preview));
            let mut said =
                format!("{at_ms} {event} {thread_id}/{turn_id} {status} {latency} {chars} {preview} {tokens}");
            [&row.error_code, &row.error_message].into_iter().flatten().for_each(|part| said += &format!(" {part}"));
            said
        };
        assert_eq!(rows.turns.iter().map(say).collect::<Vec<_>>(), expect, "{actual}");
    }

    const STARTED: &str = "5 < turn/started t/u {\"status\":\"inProgress\"}\n";
    const BEGAN: &str = "5 started t/u inProgress ~ 0 ~ ~";
    const COMPLETED: &str = "9 < turn/completed t/u {\"status\":\"completed\",\"error\":null}\n";

    fn check_end(actual: &str, expect: &str) {
        check(&format!("{STARTED}{actual}"), &[BEGAN, expect]);
    }

    #[test]
    fn ends() {
        check_end(COMPLETED, "9 completed t/u completed 4 0 ~ ~");
        check_end("9 < turn/completed t/u {\"status\":\"interrupted\"}", "9 interrupted t/u interrupted 4 0 ~ ~");
        check_end("9 < turn/completed t/u {\"status\":\"weird\"}", "9 completed t/u weird 4 0 ~ ~");
        check_end("9 < turn/completed t/u", "9 completed t/u completed 4 0 ~ ~");
        let failed = |error: &str| format!("9 < turn/completed t/u {{\"status\":\"failed\",\"error\":{error}}}");
        check_end(
            &failed(r#"{"message":"Bearer abcdefghij","codexErrorInfo":"usageLimitExceeded"}"#),
            "9 failed t/u failed 4 0 ~ ~ usageLimitExceeded Bearer [redacted]",
        );
        check_end(
            &failed(r#"{"message":"no","codexErrorInfo":{"httpConnectionFailed":{"httpStatusCode":500}}}"#),
            "9 failed t/u failed 4 0 ~ ~ httpConnectionFailed no",
        );
        check_end(&failed("null"), "9 failed t/u failed 4 0 ~ ~");
        let gone = "9 failed t/u failed 4 0 ~ ~ app_server_stream_closed";
        check_end("9 ! generation_ended", gone);
        check_end("9 generation 00000000000a\n10 ! generation_ended", gone);
    }

    #[test]
    fn an_end_comes_once() {
        check_end(&format!("{COMPLETED}{COMPLETED}"), "9 completed t/u completed 4 0 ~ ~");
        check_end(&format!("{COMPLETED}10 ! generation_ended"), "9 completed t/u completed 4 0 ~ ~");
        check(&format!("{STARTED}{STARTED}"), &[BEGAN]);
        // A late record of it starts no turn.
        let late = "10 < item/agentMessage/delta t/u/m {\"delta\":\"a\"}
                    10 < item/completed t/a/m {\"type\":\"agentMessage\",\"text\":\"a\"}
                    11 ! generation_ended";
        check_end(&format!("{COMPLETED}{late}"), "9 completed t/u completed 4 0 ~ ~");
    }

    #[test]
    fn turns_without_recorded_start_get_rows() {
        check(COMPLETED, &["9 completed t/u completed ~ 0 ~ ~"]);
        check(
            &format!("6 < item/agentMessage/delta t/u/m {{\"delta\":\"Hi\"}}\n{COMPLETED}"),
            &["9 completed t/u completed ~ 2 Hi ~"],
        );
        check(
            "6 < item/started t/u/m {\"type\":\"reasoning\"}\n9 ! generation_ended",
            &["9 failed t/u failed ~ 0 ~ ~ app_server_stream_closed"],
        );
    }

    #[test]
    fn turns_of_several_threads() {
        let actual = "5 < turn/started a/0
                    6 < turn/started b/0
                    7 < item/agentMessage/delta b/0/m {\"delta\":\"Hi\"}
                    8 < turn/completed a/0 {\"status\":\"completed\"}
                    9 < turn/completed b/0 {\"status\":\"completed\"}
                    10 < turn/started a/0";
        check(
            actual,
            &[
                "5 started a/0 inProgress ~ 0 ~ ~",
                "6 started b/0 inProgress ~ 0 ~ ~",
                "8 completed a/0 completed 3 0 ~ ~",
                "9 completed b/0 completed 3 2 Hi ~",
                "10 started a/0 inProgress ~ 0 ~ ~",
            ],
        );
    }

    #[test]
    fn next_turn_ends_turn_without_end() {
        let next = "7 started t/v inProgress ~ 0 ~ ~";
        let lost = "7 failed t/u failed 2 0 ~ ~ outcome_unknown";
        check(
            &format!("{STARTED}7 < turn/started t/v\n9 ! generation_ended"),
            &[BEGAN, lost, next, "9 failed t/v failed 2 0 ~ ~ app_server_stream_closed"],
        );
        // Earlier facts are kept even if its start was not recorded.
        check(
            "6 < item/agentMessage/delta t/u/m {\"delta\":\"Hi\"}\n7 < turn/started t/v",
            &["7 failed t/u failed ~ 2 Hi ~ outcome_unknown", next],
        );
        // A repeated start, a turn of another thread, and an ended turn replace nothing.
        check(&format!("{STARTED}7 < turn/started t/u\n7 < turn/started s/v"), &[BEGAN, &next.replace("t/v", "s/v")]);
        let completed = "9 completed t/u completed 4 0 ~ ~";
        check(&format!("{STARTED}{COMPLETED}7 < turn/started t/v"), &[BEGAN, completed, next]);
        // The end may be reported late.
        check(
            &format!("{STARTED}7 < turn/started t/v\n{COMPLETED}"),
            &[BEGAN, lost, next, "9 completed t/u completed ~ 0 ~ ~"],
        );
    }

    #[test]
    fn answers() {
        let delta =
            |item: &str, text: &str| format!("6 < item/agentMessage/delta t/u/{item} {{\"delta\":\"{text}\"}}\n");
        let message =
            |text: &str| format!("7 < item/completed t/u/m {{\"type\":\"agentMessage\",\"text\":\"{text}\"}}\n");
        let check = |actual: &[&str], expect: &str| check_end(&format!("{}{COMPLETED}", actual.concat()), expect);
        check(&[&delta("m", "Hé"), &delta("m", "llo")], "9 completed t/u completed 4 5 Héllo ~");
        check(&[&delta("m", "a"), &delta("n", "b")], "9 completed t/u completed 4 2 b ~");
        check(&[&delta("m", "a"), &message("all")], "9 completed t/u completed 4 1 all ~");
        check(&[&message("all"), &message("")], "9 completed t/u completed 4 0 all ~");
        check(&[&message("all"), &delta("n", "b")], "9 completed t/u completed 4 1 b ~");
        check(&["6 < item/reasoning/textDelta t/u/r {\"delta\":\"a\"}\n"], "9 completed t/u completed 4 0 ~ ~");
        check(&["6 < item/completed t/u/r {\"type\":\"plan\",\"text\":\"a\"}\n"], "9 completed t/u completed 4 0 ~ ~");
        // A secret may span pieces.
        check(&[&delta("m", "Bearer abcd"), &delta("m", "efgh")], "9 completed t/u completed 4 15 Bearer [redacted] ~");
        let long = "ä".repeat(3_000);
        let cut = "ä".repeat(400);
        check(&[&message(&long)], &format!("9 completed t/u completed 4 0 {cut} ~"));
        check(&[&delta("m", &long)], &format!("9 completed t/u completed 4 3000 {cut} ~"));
    }

    #[test]
    fn turn_usage_is_summed() {
        let usage = |turn: &str, total: u64, last: u64| {
            let tokens = |count: u64| format!("{{\"inputTokens\":{count},\"outputTokens\":{}}}", count / 10);
            let usage = format!("{{\"total\":{},\"last\":{}}}", tokens(total), tokens(last));
            format!("6 < thread/tokenUsage/updated t/{turn} {{\"tokenUsage\":{usage}}}\n")
        };
        let check = |actual: &[String], expect: &str| check_end(&format!("{}{COMPLETED}", actual.concat()), expect);
        check(&[usage("u", 110, 10)], "9 completed t/u completed 4 0 ~ 10+1");
        // A turn calls the model several times.
        check(&[usage("u", 110, 10), usage("u", 130, 20)], "9 completed t/u completed 4 0 ~ 30+3");
        // A repetition without a call does not count; earlier usage is reported on resume.
        check(&[usage("u", 110, 10), usage("u", 110, 10)], "9 completed t/u completed 4 0 ~ 10+1");
        check(&[usage("z", 100, 50), usage("u", 100, 50), usage("u", 110, 10)], "9 completed t/u completed 4 0 ~ 10+1");
        let odd =
            "6 < thread/tokenUsage/updated t/u {\"tokenUsage\":{\"last\":{\"inputTokens\":1,\"outputTokens\":2}}}\n";
        check(&[odd.to_owned(), odd.to_owned()], "9 completed t/u completed 4 0 ~ 2+4");
        check(&["6 < thread/tokenUsage/updated t/u\n".to_owned()], "9 completed t/u completed 4 0 ~ ~");
    }

    #[test]
    fn errors_do_not_end_a_turn() {
        let error = |retries: &str| {
            format!("6 < error t/u {{\"error\":{{\"message\":\"no\",\"codexErrorInfo\":\"other\"}}{retries}}}\n")
        };
        let failed = "9 < turn/completed t/u {\"status\":\"failed\",\"error\":null}";
        check(&format!("{STARTED}{}", error("")), &[BEGAN]);
        check_end(&format!("{}{COMPLETED}", error("")), "9 completed t/u completed 4 0 ~ ~");
        check_end(&format!("{}{failed}", error(",\"willRetry\":false")), "9 failed t/u failed 4 0 ~ ~ other no");
        check_end(&format!("{}{failed}", error(",\"willRetry\":true")), "9 failed t/u failed 4 0 ~ ~");
    }

    #[test]
    fn rows_have_payload_excerpts() {
        let (_, rows) = play(&format!("{STARTED}{COMPLETED}{}", STARTED.replace("t/u", "t/v")));
        let raw = |row: &TurnRow| row.raw_payload_json.clone().unwrap_or_default();
        assert!(raw(&rows.turns[0]).contains("\"inProgress\"") && raw(&rows.turns[1]).contains("\"completed\""));
        let (_, rows) = play(&format!("{STARTED}9 ! generation_ended"));
        assert_eq!(rows.turns[1].raw_payload_json, None);
    }

    #[test]
    fn late_records_revive_no_ended_turn() {
        let turn = |id: &str| {
            let start = STARTED.replace("t/u", &format!("t/{id}"));
            format!("{start}{}", COMPLETED.replace("t/u", &format!("t/{id}")))
        };
        let late =
            ["item/started t/u/i {\"type\":\"commandExecution\"}", "item/agentMessage/delta t/u/m {\"delta\":\"a\"}"];
        for late in late {
            let others: String = (0..7).map(|number| turn(&format!("v{number}"))).collect();
            let (_, rows) = play(&format!("{}{others}9 < {late}\n9 < turn/started t/w", turn("u")));
            assert_eq!(rows.turns.len(), 17, "{late}");
            // A turn that was replaced has ended as well.
            let (_, rows) = play(&format!("{STARTED}{}9 < {late}\n9 < turn/started t/w", turn("v")));
            assert_eq!(rows.turns.len(), 5, "{late}");
        }
        // Only a message or the start of an item begins a turn that was not seen to start.
        check("6 < item/commandExecution/outputDelta t/u/i {\"delta\":\"a\"}\n9 ! generation_ended", &[]);
    }

    #[test]
    fn turn_of_an_idle_thread_awaits_its_end() {
        let idle = "7 < thread/status/changed t {\"status\":{\"type\":\"idle\"}}\n";
        let other = "8 < item/started t/z/i {\"type\":\"commandExecution\"}\n";
        let said = "6 < item/agentMessage/delta t/u/m {\"delta\":\"Hi\"}\n";
        check_end(&format!("{said}{idle}{other}{COMPLETED}"), "9 completed t/u completed 4 2 Hi ~");
        // If a gap may contain its end and the start of the next turn, it is replaced.
        let lost = "8 failed t/u failed 3 2 Hi ~ outcome_unknown";
        check(&format!("{STARTED}{said}{idle}7 # full\n{other}"), &[BEGAN, lost]);
    }

    #[test]
    fn end_without_id_ends_the_running_turn() {
        let end = "9 < turn/completed t {\"status\":\"interrupted\"}\n";
        check_end(end, "9 interrupted t/u interrupted 4 0 ~ ~");
        check_end(&format!("{end}{COMPLETED}"), "9 interrupted t/u interrupted 4 0 ~ ~");
        check(end, &[]);
    }

    #[test]
    fn unparsable_members_hide_nothing_else() {
        let deep = format!("{}{}", "[".repeat(130), "]".repeat(130));
        for odd in ["\"\\ud800\"", "1e999", &deep] {
            let check = |lines: &str, expect: &str| {
                let started =
                    r#"5 << turn/started {"threadId":"t","x":ODD,"turn":{"id":"u","x":ODD,"status":"inProgress"}}"#;
                check(&format!("{started}\n{lines}").replace("ODD", odd), &[BEGAN, expect]);
            };
            let usage = r#"6 << thread/tokenUsage/updated {"threadId":"t","turnId":"u","x":ODD,"tokenUsage":{"x":ODD,"last":{"inputTokens":1,"outputTokens":2,"x":ODD}}}"#;
            let error = r#"6 << error {"threadId":"t","turnId":"u","x":ODD,"error":{"message":"no","x":ODD,"codexErrorInfo":{"other":ODD}}}"#;
            let end = |members: &str| {
                format!(
                    r#"9 << turn/completed {{"threadId":"t","x":ODD,"turn":{{"id":"u","durationMs":ODD,{members}}}}}"#
                )
            };
            let interrupted = end(r#""status":"interrupted""#);
            check(&format!("{usage}\n{interrupted}"), "9 interrupted t/u interrupted 4 0 ~ 1+2");
            check(&format!("{error}\n{}", end(r#""status":"failed""#)), "9 failed t/u failed 4 0 ~ ~ other no");
            let failed = end(r#""status":"failed","error":{"x":ODD,"message":"no","codexErrorInfo":{"other":ODD}}"#);
            check(&failed, "9 failed t/u failed 4 0 ~ ~ other no");
        }
    }

    #[test]
    fn a_member_named_delta_makes_no_piece() {
        let params = r#"{"threadId":"t","turn":{"id":"u","status":"completed"},"delta":"a"}"#;
        let actual = format!("5 << turn/started {params}\n9 << turn/completed {params}");
        check(&actual, &[BEGAN, "9 completed t/u completed 4 0 ~ ~"]);
    }

    #[test]
    fn running_turns_are_evicted_last() {
        let others: String = (0..4_200).map(|number| format!("6 < thread/x x{number}\n")).collect();
        check_end(&format!("{others}{COMPLETED}"), "9 completed t/u completed 4 0 ~ ~");
        // Plans weigh apart from threads.
        let step = format!("{{\"plan\":[{{\"step\":\"{}\",\"status\":\"pending\"}}]}}", "x".repeat(62_000));
        let planned: String = (0..36)
            .map(|number| format!("6 < turn/started y{number}/a\n6 < turn/plan/updated y{number}/a {step}\n"))
            .collect();
        let (_, rows) = play(&format!("{STARTED}{planned}{COMPLETED}"));
        let (ends, starts): (Vec<&TurnRow>, Vec<&TurnRow>) =
            rows.turns.iter().partition(|row| row.event_type != TurnEvent::Started);
        assert_eq!((starts.len(), ends.len()), (37, 1));
    }
}
