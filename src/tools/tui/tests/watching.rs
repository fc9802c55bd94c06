//! Watching a session: messages, declined actions, requests elsewhere, the bell.

use serde_json::{Value, json};

use super::super::lists::Destination;
use super::super::model::Event;
use super::super::model::Focus;
use super::super::pressed::title;
use super::screens::{drawn, sessions};
use super::{NOW_US, Play, check, noted, recorded, timeline};
use crate::sessions::entry::{BODY_BYTES_MAX, Stage};
use crate::sessions::news::News;
use crate::sessions::timeline::Timeline;

fn with(told: Vec<Value>) -> Play {
    let mut play = Play::new();
    play.news(News::Restored { epoch: 0, timeline: Box::new(timeline(told)) });
    play
}

pub(super) fn markdown() -> Play {
    let text = "# Plan\n\nThe **pool** is asked `try_get` *before* it is open:\n\n1. open it\n2. ask it, see [docs](https://x.y/z)\n   - not twice\n\n\
                ```rust\nlet pool = Pool::open().await?;\n```\n\n> quoted\n\n| file | lines |\n|---|---|\n| a.rs | 12 |\n";
    with(vec![
        json!({ "type": "message", "thread_id": "t", "text": "why `500`?" }),
        json!({ "type": "assistant_finalize", "thread_id": "t", "item_id": "a", "text": text }),
    ])
}

/// A message of thirty thousand deltas; only the last ones are missing.
pub(super) fn streaming() -> Play {
    let mut timeline = Timeline::default();
    for number in 0..30_000_u64 {
        let told =
            json!({ "type": "assistant_delta", "thread_id": "t", "item_id": "a", "delta": format!("word{number} ") });
        timeline.take(&recorded(number, told));
    }
    assert!(timeline.entries().iter().all(|entry| entry.body.len() <= 2 * BODY_BYTES_MAX));
    let mut play = Play::new();
    play.news(News::Restored { epoch: 0, timeline: Box::new(timeline) });
    play
}

#[test]
fn the_newest_text_of_a_stream_is_visible() {
    let play = streaming();
    for (width, height) in [(80, 24), (120, 40), (40, 12), (20, 5)] {
        let shown = drawn(&play.model, width, height);
        assert!(shown.contains("word29999") && !shown.contains("word464 "), "{shown}");
    }
}

#[test]
fn a_stream_open_in_full_follows_its_end() {
    let mut play = streaming();
    play.step("key Tab Enter");
    assert!(play.done.remove(0).starts_with("Read(Open("));
    let opened = |words: u64| {
        let text: String = (0..words).map(|word| format!("word{word} ")).collect();
        let mut timeline = Timeline::of(Default::default(), 1 << 20);
        let told = json!({ "type": "assistant_delta", "thread_id": "t", "item_id": "a", "delta": text });
        timeline.take(&recorded(0, told));
        News::Opened(timeline.into_entries().pop().map(Box::new))
    };
    play.news(opened(30_000));
    assert!(drawn(&play.model, 80, 24).contains("word29999"));
    // The entry is read again, but not for each delta.
    let delta = |number: u64| {
        let told = json!({ "type": "assistant_delta", "thread_id": "t", "item_id": "a", "delta": "more " });
        News::Events { epoch: 0, events: vec![recorded(number, told)] }
    };
    play.step("wait 1100");
    (30_000..30_010).for_each(|number| play.news(delta(number)));
    assert_eq!(play.done.len(), 1);
    play.done.clear();
    play.news(opened(30_500));
    assert!(drawn(&play.model, 80, 24).contains("word30499"));
    // Scrolling up keeps the position.
    play.step("key PgUp");
    play.news(opened(31_000));
    let shown = drawn(&play.model, 80, 24);
    assert!(!shown.contains("word30999") && shown.contains("word30"), "{shown}");
}

#[test]
fn a_stream_in_a_code_block_stays_code() {
    let mut play = Play::new();
    let mut timeline = Timeline::default();
    let delta = |text: &str| json!({ "type": "assistant_delta", "thread_id": "t", "item_id": "a", "delta": text });
    timeline.take(&recorded(0, delta("```c\n")));
    (1..20_000).for_each(|number| timeline.take(&recorded(number, delta("a = b * c * d;\n"))));
    play.news(News::Restored { epoch: 0, timeline: Box::new(timeline) });
    let shown = drawn(&play.model, 80, 24);
    assert!(shown.contains("a = b * c * d;"), "{shown}");
}

#[test]
fn a_declined_command_is_called_declined() {
    let end = |kind: &str, more: Value| {
        let mut told = json!({ "type": "tool_end", "thread_id": "t", "item_id": kind, "item_type": kind, "status": "declined", "is_error": true });
        more.as_object().into_iter().flatten().for_each(|(name, value)| told[name] = value.clone());
        told
    };
    let begin = json!({ "type": "tool_begin", "thread_id": "t", "item_id": "commandExecution", "item_type": "commandExecution", "command": "rm -rf build" });
    let changes = json!([{ "path": "/repo/src/a.rs", "kind": { "type": "update" }, "diff": "@@ -1 +1 @@\n-a\n+b" }]);
    let play = with(vec![
        begin,
        end("commandExecution", json!({ "command": "rm -rf build" })),
        end("fileChange", json!({ "changes": changes })),
    ]);
    let shown = drawn(&play.model, 80, 24);
    assert!(shown.contains("declined: rm -rf build") && shown.contains("declined: change src/a.rs"), "{shown}");
    assert!(!shown.contains("failed") && !shown.contains("running"), "{shown}");
    let timeline = play.model.session.as_ref().and_then(|session| session.timeline.as_ref()).expect("read");
    assert!(timeline.entries().iter().all(|entry| entry.stage == Stage::Stopped && entry.took_us.is_none()));
}

#[test]
fn a_declined_or_cancelled_tool_is_called_so() {
    let end = |item: &str, tool: &str, status: &str| {
        json!({
            "type": "tool_end", "thread_id": "t", "item_id": item, "item_type": "mcpToolCall", "server": "lab", "tool": tool,
            "status": status, "is_error": true,
        })
    };
    let play = with(vec![end("i1", "sum", "declined"), end("i2", "mean", "cancelled")]);
    let shown = drawn(&play.model, 80, 24);
    assert!(shown.contains("declined: call lab.sum") && shown.contains("cancelled: call lab.mean"), "{shown}");
}

#[test]
fn exactly_one_entry_is_selected() {
    let mut play = Play::new();
    for keys in ["", "Tab", "Up", "f", "f", "f", "Up", "Esc", "Tab G", "g", "Down"] {
        if !keys.is_empty() {
            play.step(&format!("key {keys}"));
        }
        let shown = drawn(&play.model, 80, 40);
        let rows: Vec<usize> = shown
            .lines()
            .enumerate()
            .filter(|(_, line)| line.starts_with(['▌', '▏']))
            .map(|(number, _)| number)
            .collect();
        assert!(!rows.is_empty() && rows.windows(2).all(|pair| pair[1] == pair[0] + 1), "{keys}: {rows:?}\n{shown}");
        let heads = rows.iter().filter(|row| shown.lines().nth(**row).is_some_and(|line| line.contains("23:59:")));
        assert_eq!(heads.count(), 1, "{keys}\n{shown}");
    }
}

#[test]
fn a_request_elsewhere_has_a_badge_and_a_key() {
    let mut play = Play::new();
    play.step("type half");
    play.event(Event::Listed(sessions()));
    for (width, height) in [(80, 24), (120, 40), (40, 12)] {
        assert!(drawn(&play.model, width, height).contains("2 elsewhere ^N"));
    }
    assert_eq!((play.rings, &*title(&play.model)), (1, "(2 wait) codex-shim · repo (vscode)"));
    // The bell rings once per request, however often it is listed.
    play.event(Event::Listed(sessions()));
    play.step("asks command=g-0");
    play.step("asks command=g-0");
    assert_eq!(play.rings, 2);
    play.step("ended g-0");
    play.event(Event::Listed(sessions()));
    assert_eq!(play.rings, 2);
    play.step("key ^N");
    assert!(play.done.remove(0).starts_with("Attach { id: \"waits\""));
    assert_eq!(play.model.drafts[&Destination::session("work")].text(), "half");
    // Attaching to a waiting session shows its request, and no key answers it at once.
    play.step("asks command=g-7");
    assert_eq!(play.state(), "approval g-7");
    play.step("key a");
    assert!(noted(&play).contains("just appeared"), "{}", noted(&play));
    play.step("wait 600");
    play.step("key a");
    assert_eq!(play.done.remove(0), "respond g-7 {\"decision\":\"accept\"}");
}

#[test]
fn new_requests_are_notified_once() {
    let mut play = Play::new();
    play.event(Event::Listed(sessions()));
    play.event(Event::Listed(sessions()));
    play.step("asks command=g-0");
    play.step("asks command=g-0");
    assert_eq!(play.notified, ["2 requests wait", "repo (vscode): run make clean -s"]);
}

/// Requests of two sessions, in the inbox.
pub(super) fn inbox() -> Play {
    let mut play = Play::new();
    play.event(Event::Listed(sessions()));
    play.step("asks command=6b02d1a9ffff-0");
    play.step("key ^P");
    play
}

#[test]
fn inbox_lists_requests_of_all_sessions() {
    let play = inbox();
    for (width, height) in [(80, 24), (120, 40)] {
        let shown = drawn(&play.model, width, height);
        assert!(shown.starts_with("requests  3 in all sessions"), "{shown}");
        for (line, words) in shown.lines().skip(1).zip([
            ["1m 30s", "0c4e-0", "waits", "! run: rm -rf build"],
            ["1m", "0c4e-1", "waits", "change a.rs"],
            ["0s", "ffff-0", "repo (vscode)", "run make clean -s"],
        ]) {
            assert!(words.iter().all(|word| line.contains(word)), "{words:?}: {shown}");
        }
        assert!(shown.contains("\n! it deletes folders with all that is in them\n"), "{shown}");
    }
    // On a narrow screen the session of the selected request is below the list.
    let narrow = drawn(&play.model, 40, 12);
    assert!(narrow.contains("0c4e-1") && narrow.contains(": run: rm -rf build"), "{narrow}");
    assert_eq!(drawn(&play.model, 20, 5).lines().count(), 5);
}

#[test]
fn inbox_opens_the_chosen_request() {
    let mut play = inbox();
    play.step("key Down Enter");
    assert!(play.done.remove(0).starts_with("Attach { id: \"waits\""));
    play.step("asks command=6b02d1a90c4e-0 patch=6b02d1a90c4e-1");
    assert_eq!(play.state(), "approval 6b02d1a90c4e-1");
    // A request of the attached session needs no attachment.
    let mut play = inbox();
    play.step("key End Enter");
    assert_eq!((play.model.inbox.is_some(), play.state()), (false, "approval 6b02d1a9ffff-0".to_owned()));
}

#[test]
fn inbox_answers_and_types_nothing() {
    let mut play = inbox();
    play.step("wait 600");
    play.step("key a d x 1 Space");
    play.step("paste accept");
    assert!(noted(&play).contains("nothing was pasted"), "{}", noted(&play));
    assert_eq!(play.model.session.as_ref().expect("attached").composer.text(), "");
    // The request below must be visible again before a key answers it.
    play.step("key ^R");
    play.step("wait 600");
    play.step("key ^P ^P");
    play.step("key a");
    assert!(noted(&play).contains("just appeared"), "{}", noted(&play));
    assert_eq!(play.done, [""; 0]);
}

#[test]
fn inbox_keeps_its_choice_while_requests_come_and_go() {
    let mut play = inbox();
    play.step("key End");
    let mut rows = sessions();
    rows[2].waiting.remove(0);
    play.event(Event::Listed(rows));
    play.step("key Enter");
    assert_eq!(play.state(), "approval 6b02d1a9ffff-0");
    let mut empty = inbox();
    empty.step("ended 6b02d1a9ffff-0");
    empty.event(Event::Listed(Vec::new()));
    empty.step("key Enter");
    assert_eq!(noted(&empty), "no request is pending in any session");
    assert!(drawn(&empty.model, 80, 24).contains("requests  0 in all sessions"));
}

#[test]
fn typing_is_not_interrupted_by_a_request() {
    let mut play = Play::new();
    play.event(Event::Listed(sessions()));
    play.step("key ^N");
    play.done.clear();
    play.step("type a");
    play.step("asks command=g-7");
    assert_eq!(play.state(), "chat");
    // Further typing answers nothing either: each key restarts the half second.
    let mut play = Play::new();
    play.event(Event::Listed(sessions()));
    play.step("key ^N");
    play.done.clear();
    play.step("asks command=g-7");
    for _ in 0..5 {
        play.step("wait 300");
        play.step("key a");
    }
    assert_eq!(play.done, [""; 0]);
}

#[test]
fn notes_about_keys_disappear_at_the_next_key() {
    let mut play = check("asks command=g-0\nkey ^R\nkey a");
    assert!(noted(&play).contains("just appeared"));
    play.step("key Down");
    assert_eq!(noted(&play), "");
    let play = check("type x\nasks command=g-0\nkey Enter\nended g-0");
    assert!(noted(&play).contains("answered by client"), "{}", noted(&play));
    let mut play = check("asks command=g-0\nended g-0");
    play.step("key Tab");
    assert!(noted(&play).contains("answered by client"), "news stay for their time");
    play.step("wait 13000");
    play.event(Event::Ticked);
    assert_eq!(noted(&play), "");
}

#[test]
fn notes_about_wrong_keys_name_valid_ones() {
    let check = |playbook: &str, expect: &[&str]| {
        let play = check(playbook);
        assert!(expect.iter().all(|part| noted(&play).contains(part)), "{playbook}: {}", noted(&play));
    };
    check("asks command=g-0\nkey ^R\nwait 600\nkey x", &["`x` does nothing here", "a s d c r answer"]);
    check("asks command=g-0\nkey ^R\nwait 600\nkey 5", &["`5` is not an answer", "valid: a s d c r"]);
    check("asks risky=g-0\nkey ^R\nwait 600\nkey a x", &["`x` does nothing here: y n"]);
    check("asks questions=g-0\nkey ^R\nwait 600\nkey 9", &["valid: 1 to 3"]);
    check("key Tab x", &["`x` does nothing here", "Enter"]);
    check("key Tab Enter x", &["`x` does nothing here"]);
    check("key ^T x", &["`x` does nothing here"]);
    check("asks questions=g-0\nkey ^R\nwait 600\nkey Enter\ntype k\nkey Enter x", &["`x` does nothing here"]);
    check("key ^R", &["no request is pending in this or any other session"]);
    check("key ^G", &["`^G` does nothing here"]);
}

#[test]
fn help_begins_with_the_current_keys() {
    let first = |play: &Play| drawn(&play.model, 80, 24).lines().next().unwrap_or_default().to_owned();
    let mut play = check("asks command=g-0\nkey ^R ?");
    assert_eq!(first(&play), "approval (here)");
    // It ends at the last key and scrolls no further.
    play.step("key End Up");
    play.step("key Esc");
    assert_eq!(first(&check("key Tab ?")), "timeline (here)");
    assert_eq!(first(&check("key ?")), "chat (here)");
    let Some(Focus::Answer) = play.model.session.as_ref().map(|session| session.focus.clone()) else {
        panic!("a mode")
    };
}

#[test]
fn times_are_local_and_name_the_zone() {
    let mut play = Play::new();
    play.model.zone = crate::text::Zone::new(jiff::tz::TimeZone::fixed(jiff::tz::offset(-3)));
    let shown = drawn(&play.model, 80, 24);
    assert!(shown.contains("20:59:00") && shown.contains("local time, -03:00"), "{shown}");
    play.step("key Tab Enter");
    let shown = drawn(&play.model, 80, 24);
    assert!(shown.contains("2025-12-31 20:59:14 -03:00"), "{shown}");
    let _ = NOW_US;
}
