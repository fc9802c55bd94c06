//! What a new user reads: nothing is cut before it is decided on, and each state and key says what it is.

use std::sync::Arc;

use serde_json::{Value, json};

use super::screens::drawn;
use super::{NOW_US, Play, check, noted, row, timeline};
use crate::sessions::ask::of_row;
use crate::sessions::news::Link;
use crate::sessions::news::News;
use crate::text::doc::{Doc, Role};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (40, 12)];

/// A request on the screen, long enough to be answered.
fn shown(row: Value) -> Play {
    let mut play = Play::new();
    play.news(News::Pending { asks: vec![Arc::new(of_row(row.into(), NOW_US))], ended: Vec::new() });
    play.step("key ^R");
    play.step("wait 600");
    play
}

/// The words on a screen, whatever its line breaks are; of two panes, those of the request.
fn words(play: &Play, (width, height): (u16, u16)) -> String {
    let shown = drawn(&play.model, width, height);
    let panes = shown.lines().filter_map(|line| line.split('│').next_back());
    panes.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

fn footer(play: &Play, (width, height): (u16, u16)) -> String {
    drawn(&play.model, width, height).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn wider_permissions_need_a_confirmation() {
    let asks = |permissions: Value| {
        let payload = json!({ "cwd": "/repo", "permissions": permissions, "reason": "why" });
        let mut play = shown(row("g-0", "item/permissions/requestApproval", "permissions", payload));
        play.step("key a");
        let is_asked = drawn(&play.model, 80, 24).contains("Really?");
        play.done.clear();
        is_asked
    };
    assert!(asks(json!({ "network": { "enabled": true } })));
    assert!(asks(json!({ "fileSystem": { "write": ["/etc"] } })));
    assert!(asks(json!({ "fileSystem": { "write": ["/repo/../etc"] } })));
    let entry = |path: Value| json!({ "fileSystem": { "entries": [{ "access": "write", "path": path }] } });
    assert!(asks(entry(json!({ "type": "special", "value": { "kind": "root" } }))));
    assert!(asks(json!({ "new": true })));
    assert!(!asks(entry(json!({ "type": "special", "value": { "kind": "project_roots" } }))));
    assert!(!asks(json!({ "fileSystem": { "write": ["/repo/build"], "read": ["/usr"] } })));
}

#[test]
fn long_requests_say_how_to_scroll() {
    let asks = |command: &str| {
        let payload = json!({ "command": command, "cwd": "/repo" });
        shown(row("g-0", "item/commandExecution/requestApproval", "run x", payload))
    };
    let (long, short) = (asks(&"x ".repeat(6000)), asks("x"));
    for size in [(80, 24), (120, 40)] {
        assert!(footer(&long, size).contains("PgDn scrolls"), "{}", footer(&long, size));
        assert!(!footer(&short, size).contains("PgDn"), "{}", footer(&short, size));
    }
}

#[test]
fn confirmations_keep_their_danger_and_keys() {
    let rule = json!({ "acceptWithExecpolicyAmendment": { "execpolicy_amendment": ["x ".repeat(6000)] } });
    let payload = json!({ "command": "x", "cwd": "/repo" });
    let mut asked = row("g-0", "item/commandExecution/requestApproval", "run x", payload);
    asked["available_decisions"] = json!(["accept", rule, "cancel"]);
    let mut play = shown(asked);
    play.step("key 1");
    for size in SIZES {
        let told = words(&play, size);
        let expect = "it changes what is asked about from now on. Really? y / n (accept, and do not ask again for";
        assert!(told.contains(expect) && told.contains("x… "), "{told}");
    }
    let root = format!("/repo/{}", "folder ".repeat(1500));
    let mut play =
        shown(row("g-1", "item/fileChange/requestApproval", "change a", json!({ "grantRoot": root, "reason": "why" })));
    play.step("key a");
    for size in SIZES {
        let told = words(&play, size);
        assert!(told.contains("folder… Really? y / n"), "{told}");
    }
}

#[test]
fn filters_are_named_above_the_timeline() {
    for size in SIZES {
        let shown = drawn(&check("key Tab f").model, size.0, size.1);
        assert!(shown.lines().any(|line| line.starts_with("── timeline · only you")), "{shown}");
    }
}

#[test]
fn searches_without_a_match_say_so() {
    let play = check("key Tab /\ntype zzzz\nkey Enter");
    assert_eq!(noted(&play), "no entry matches `zzzz`");
    assert!(noted(&check("key Tab e e e e e")).contains("no error before"));
    assert!(noted(&check("key Tab r")).contains("no request"));
}

#[test]
fn options_and_answers_are_whole() {
    let first = "it is called staging, and other people use it during the day";
    let last = "the tests are skipped until somebody starts a database on this machine";
    let option = |label: &str, description: &str| json!({ "label": label, "description": description });
    let payload = json!({ "questions": [
        { "id": "q", "question": "Which host?", "options": [option("The first", first), option("None", last)] },
        { "id": "n", "question": "Name?", "options": null },
    ]});
    let mut play = shown(row("g-0", "item/tool/requestUserInput", "Which host?", payload));
    for size in SIZES {
        let text = words(&play, size);
        assert!(text.contains(first) && text.contains(last), "{size:?} {text}");
    }
    play.step("key Enter");
    let typed = "an answer that the user wrote in several words, all of which are to be seen before it is sent";
    play.step(&format!("type {typed}"));
    play.step("key Enter");
    for size in SIZES {
        let text = words(&play, size);
        assert!(text.contains(typed) && text.contains("Send these answers"), "{size:?} {text}");
    }
}

#[test]
fn long_paragraphs_break_between_words() {
    let text = (0..20_000).map(|number| format!("word{number}")).collect::<Vec<_>>().join(" ");
    let mut doc = Doc::default();
    doc.push(&text, Role::Plain);
    let lines: Vec<&str> = (0..doc.len()).map(|line| doc.text_of(line).trim_end()).collect();
    assert!(lines.len() > 1);
    assert_eq!(lines.join(" "), text);
}

#[test]
fn review_ends_with_its_request() {
    let mut play = check("asks patch=g-0\nkey ^R\nwait 600\nkey v\nended g-0");
    let footer = footer(&play, (80, 24));
    assert!(footer.contains("Enter continues") && !footer.contains("a s d"), "{footer}");
    play.step("key Enter");
    assert_eq!(play.state(), "chat");
}

#[test]
fn answers_in_the_timeline_are_words() {
    let told = json!({ "type": "tool_end", "thread_id": "t", "item_id": "q", "item_type": "dynamicToolCall",
        "tool": "request_user_input", "output": "{\"answers\":{\"color\":{\"answers\":[\"Red\"]}}}" });
    let timeline = timeline(vec![told]);
    assert_eq!(timeline.entries()[0].body, "color: Red");
}

/// An approval of a tool call, which arrives as a form without fields.
fn tool_approval() -> Value {
    let payload = json!({ "serverName": "lab", "mode": "form", "message": "Allow lab to run tool \"sum\"?",
        "requestedSchema": { "type": "object", "properties": {} },
        "_meta": { "codex_approval_kind": "mcp_tool_call", "tool_title": "sum", "tool_params": { "a": 1 },
            "persist": ["session", "always"], "tool_params_display": [{ "name": "a", "value": 1, "display_name": "a" }] } });
    row("g-0", "mcpServer/elicitation/request", "lab: Allow", payload)
}

#[test]
fn tool_calls_are_approved_knowingly() {
    let mut play = shown(tool_approval());
    let text = words(&play, (80, 24));
    assert!(text.contains("the tool `sum` of the MCP server `lab`") && text.contains("a: 1"), "{text}");
    assert!(!text.contains("codex approval kind") && !text.contains('{'), "{text}");
    play.step("key Enter");
    assert_eq!(play.done, [""; 0]);
    assert!(noted(&play).contains("choose"), "{}", noted(&play));
    play.step("key Down Enter");
    assert_eq!(play.done.remove(0), "respond g-0 {\"action\":\"accept\"}");
}

#[test]
fn tool_calls_are_accepted_for_longer() {
    let text = words(&shown(tool_approval()), (80, 24));
    assert!(text.contains("2. accept for the session it holds for the whole session"), "{text}");
    assert!(text.contains("3. accept, and do not ask again it changes what is asked about from now on"), "{text}");
    assert!(!text.contains("persist") && !text.contains("params display"), "{text}");
    for (key, expect) in [
        ('1', r#"{"action":"accept"}"#),
        ('2', r#"{"action":"accept","persist":"session"}"#),
        ('3', r#"{"action":"accept","persist":"always"}"#),
        ('4', r#"{"action":"decline"}"#),
        ('5', r#"{"action":"cancel"}"#),
    ] {
        let mut play = shown(tool_approval());
        play.step(&format!("key {key} Enter"));
        if expect.contains("persist") {
            assert_eq!(play.done, [""; 0]);
            play.step("wait 600");
            play.step("key y");
        }
        assert_eq!(play.done.remove(0), format!("respond g-0 {expect}"));
    }
}

#[test]
fn small_screens_name_every_answer() {
    let always = json!({ "acceptWithExecpolicyAmendment": { "execpolicy_amendment": ["touch", "x"] } });
    let mut row = super::command("g-0");
    row["available_decisions"] = json!([always]);
    row["request_payload"]["command"] = json!("one\ntwo\nthree\nfour\nfive\nsix\nseven\neight");
    let shown = drawn(&shown(row).model, 40, 12);
    assert!(shown.contains("[a]ccept [s]ession [d]ecline [c]ancel\n[1] do not ask again [r] say why not\n"), "{shown}");
}

#[test]
fn help_fits_narrow_screens() {
    let mut play = Play::new();
    play.step("key F1");
    let mut text = String::new();
    for _ in 0..40 {
        text.push_str(&drawn(&play.model, 40, 12));
        play.step("key Down");
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!text.contains('…') || text.contains("1…9") && !text.contains("… "), "{text}");
    assert!(text.contains("show a request that") && text.contains("waits in another"), "{text}");
}

#[test]
fn invalid_keys_are_explained_briefly() {
    let mut play = check("asks command=g-0\nkey ^R\nwait 600\nkey z");
    assert_eq!(noted(&play), "`z` does nothing here: a s d c r answer; v o Esc; ? lists all keys");
    play = check("key Tab z");
    assert_eq!(noted(&play), "`z` does nothing here: Enter / n N f a e r o y Esc; ? lists all keys");
    let footer = footer(&check("asks command=g-0\nkey ^R"), (80, 24));
    assert!(footer.contains("Enter does nothing") && !footer.contains("Enter off"), "{footer}");
}

#[test]
fn missing_requests_are_missing_everywhere() {
    assert_eq!(noted(&check("key ^R")), "no request is pending in this or any other session");
    assert_eq!(noted(&check("key ^N")), "no request is pending in any other session");
}

#[test]
fn nothing_runs_in_a_stopped_session() {
    let mut play = Play::new();
    let asks =
        json!({ "type": "approval", "request_id": "g-0", "kind": "command", "command": "ls", "status": "pending" });
    let run = json!({ "type": "tool_begin", "item_type": "commandExecution", "item_id": "c", "command": "sleep 9" });
    play.news(News::Restored { epoch: 0, timeline: Box::new(timeline(vec![asks, run])) });
    play.news(News::Linked(Link::Stopped));
    let shown = drawn(&play.model, 80, 24);
    assert!(!shown.contains("running") && !shown.contains("pending"), "{shown}");
    assert!(shown.contains("sleep 9  unknown outcome") && shown.contains("ls  ended with its server"), "{shown}");
}

#[test]
fn time_zone_is_named_once() {
    for size in SIZES {
        let shown = drawn(&Play::new().model, size.0, size.1);
        assert!(shown.matches("local time").count() <= 1, "{shown}");
    }
    assert!(drawn(&Play::new().model, 80, 24).contains("local time"));
}

#[test]
fn typed_text_wraps_between_words() {
    let text = "it is the wrong folder, take the one below the build folder, because other people use this one too";
    for steps in [format!("type {text}"), format!("asks command=g-0\nkey ^R\nwait 600\nkey r\ntype {text}")] {
        let play = check(&steps);
        for columns in [80, 41, 40, 39] {
            let text_shown = words(&play, (columns, 24));
            assert!(text_shown.contains(text), "{columns} {text_shown}");
        }
    }
}
