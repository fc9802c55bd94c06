//! `codex-shim usage` through the real binary: live and stopped sessions, restarts, several sessions, limits, and the real codex.

use codex_shim::testing::control::client;
use serde_json::{Value, json};

use crate::support::both_ends::{Live, failed, told, tool};
use crate::support::conversations::start_turn;
use crate::support::eventually;
use crate::support::real::{COMMAND, Real, run, says};
use crate::support::release::Ability;
use crate::support::requests::{command_asked, respond_path};
use crate::support::shim::Home;

const INITIALIZE: &str = r#"{"id":0,"method":"initialize","params":{"clientInfo":{"name":"ide","version":"1"}}}"#;

fn usage(home: &Home, args: &[&str]) -> Value {
    let args: Vec<&str> = ["usage", "--json"].into_iter().chain(args.iter().copied()).collect();
    told(&tool(home, &args))
}

fn metrics(live: &Live) -> String {
    String::from_utf8(client::get(&live.session, "/metrics").expect("it answers").body.to_vec()).expect("text")
}

/// The row of a turn, a thread or a session.
fn row<'a>(usage: &'a Value, name: &str, value: &str) -> &'a Value {
    let rows = usage["rows"].as_array().expect("rows");
    rows.iter().find(|row| row[name] == value).unwrap_or_else(|| panic!("no {value}: {usage:#}"))
}

fn threads(usage: &Value) -> Vec<&Value> {
    let sessions = usage["sessions"].as_array().expect("sessions").iter();
    sessions.flat_map(|session| session["threads"].as_array().expect("threads")).collect()
}

fn initialize(live: &mut Live) {
    assert_eq!(live.send(INITIALIZE), format!("{INITIALIZE}\n"));
    live.say_plainly(r#"{"id":0,"result":{"userAgent":"x/0.169.0 (Debian; x86_64) dumb"}}"#);
}

fn reports(live: &mut Live, turn: &str, total: u64, last: u64) {
    let tokens = |count: u64| {
        json!({"inputTokens": count, "cachedInputTokens": count / 2, "outputTokens": count / 10,
            "reasoningOutputTokens": 0, "totalTokens": count + count / 10})
    };
    let usage = json!({"total": tokens(total), "last": tokens(last), "modelContextWindow": 9});
    let params = json!({"threadId": "t", "turnId": turn, "tokenUsage": usage});
    live.say_plainly(&json!({"method": "thread/tokenUsage/updated", "params": params}).to_string());
}

fn begins(live: &mut Live, id: u32) {
    assert!(live.turn(id, "t").is_empty());
    live.take_turn(id);
    let params = json!({"threadId": "t", "turn": {"id": format!("u{id}"), "items": []}});
    live.say_plainly(&json!({"method": "turn/started", "params": params}).to_string());
}

fn ends(live: &mut Live, id: u32) {
    let params = json!({"threadId": "t", "turn": {"id": format!("u{id}"), "status": "completed"}});
    live.say_plainly(&json!({"method": "turn/completed", "params": params}).to_string());
}

#[test]
fn usage_is_equal_live_and_stopped() {
    let mut live = Live::start();
    initialize(&mut live);
    begins(&mut live, 1);
    reports(&mut live, "u1", 110, 10);
    reports(&mut live, "u1", 130, 20);
    let running = usage(&live.home, &["--by", "turn"]);
    let turn = row(&running, "turn_id", "u1");
    assert_eq!((&turn["input_tokens"], &turn["outcome"], &turn["client"]), (&json!(30), &Value::Null, &json!("ide")));
    ends(&mut live, 1);
    reports(&mut live, "u1", 130, 20);
    let before = usage(&live.home, &["--by", "thread", "--session", "s"]);
    let home = live.end_quietly();
    let after = usage(&home, &["--by", "thread", "s"]);
    assert_eq!(before, after);
    let thread = row(&after, "thread_id", "t");
    assert_eq!((&thread["turns"], &thread["total_tokens"]), (&json!(1), &json!(33)), "{after:#}");
    let account = threads(&after)[0];
    assert_eq!((&account["adds_up"], &account["codex_total"]["total_tokens"]), (&json!(true), &json!(143)));
    assert_eq!(
        (&account["before_record"]["total_tokens"], &after["before_record"]["input_tokens"]),
        (&json!(110), &json!(100))
    );
    assert_eq!(after["notes"], json!([]));
}

#[test]
fn restarts_do_not_count_twice() {
    let mut live = Live::start();
    initialize(&mut live);
    begins(&mut live, 1);
    reports(&mut live, "u1", 10, 10);
    let home = live.kill();
    let mut live = Live::start_in(home);
    initialize(&mut live);
    reports(&mut live, "u1", 10, 10);
    begins(&mut live, 2);
    reports(&mut live, "u2", 30, 20);
    ends(&mut live, 2);
    let document = usage(&live.home, &["--by", "turn"]);
    assert_eq!(row(&document, "turn_id", "u1")["input_tokens"], 10, "{document:#}");
    assert_eq!(row(&document, "turn_id", "u1")["outcome"], "failed");
    assert_eq!(row(&document, "turn_id", "u2")["input_tokens"], 20);
    assert_eq!(document["total"]["total_tokens"], 33);
    assert_eq!(threads(&document)[0]["codex_total"]["total_tokens"], 33);
    live.end_quietly();
}

#[test]
fn all_sessions_are_counted() {
    let mut first = Live::start();
    initialize(&mut first);
    begins(&mut first, 1);
    reports(&mut first, "u1", 10, 10);
    ends(&mut first, 1);
    let home = first.end_quietly();
    let mut second = Live::start_in_session(home, "other");
    initialize(&mut second);
    begins(&mut second, 1);
    reports(&mut second, "u1", 20, 20);
    let all = usage(&second.home, &["--by", "session"]);
    assert_eq!((&all["total"]["input_tokens"], &all["total"]["turns"]), (&json!(30), &json!(2)), "{all:#}");
    assert_eq!(row(&all, "session_id", "s")["input_tokens"], 10);
    assert_eq!(row(&all, "session_id", "other")["input_tokens"], 20);
    assert_eq!(usage(&second.home, &["--session", "s"])["total"]["input_tokens"], 10);
    assert_eq!(usage(&second.home, &["--by", "client"])["rows"][0]["client"], "ide");
    assert_eq!(usage(&second.home, &["--since", "2099-01-01"])["total"]["turns"], 0);
    // For a program each row is a line of fields.
    let lines = String::from_utf8(second.tool(&["usage", "--by", "session"]).stdout).expect("text");
    let fields: Vec<Vec<&str>> = lines.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(fields.iter().all(|fields| fields.len() == 11), "{lines}");
    failed(&tool(&second.home, &["usage", "--session", "none"]), 3, "none");
    second.end_quietly();
}

#[test]
fn limits_are_recorded_as_numbers_alone() {
    let mut live = Live::start();
    initialize(&mut live);
    let limits = |used: u32| {
        let window = json!({"usedPercent": used, "windowDurationMins": 300, "resetsAt": 4_102_444_800_u64});
        let limits = json!({"limitId": "codex", "limitName": "acme-name", "planType": "acme-plan", "primary": window,
            "secondary": null, "credits": {"hasCredits": true, "unlimited": false, "balance": "acme-12.50"}});
        json!({"method": "account/rateLimits/updated", "params": {"rateLimits": limits}}).to_string()
    };
    for used in [22, 22, 23] {
        live.say_plainly(&limits(used));
    }
    // Early in 2026, they came with the tokens.
    let window = json!({"used_percent": 24.5, "window_minutes": 300, "resets_at": 4_102_444_800_u64});
    let limits = json!({"primary": window, "secondary": null, "plan_type": "acme-plan",
        "credits": {"has_credits": true, "unlimited": false, "balance": "acme-12.50"}});
    let msg = json!({"type": "token_count", "info": null, "rate_limits": limits});
    let params = json!({"id": "u1", "conversationId": "t", "msg": msg});
    live.say_plainly(&json!({"method": "codex/event/token_count", "params": params}).to_string());
    let document = usage(&live.home, &[]);
    let limit = &document["rate_limits"][0];
    assert_eq!(
        (&limit["name"], &limit["used_percent"], &limit["window_minutes"]),
        (&json!("primary"), &json!(23), &json!(300))
    );
    assert_eq!(limit["resets_at"], "2100-01-01T00:00:00.000Z");
    let metrics = metrics(&live);
    assert!(metrics.contains("codex_shim_rate_limit_used_percent{window=\"primary\"} 23\n"), "{metrics}");
    let session = live.session.clone();
    let _home = live.end_quietly();
    let mut notes = 0;
    let mut folders = vec![session];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                let bytes = std::fs::read(&path).expect("a file");
                let has = |words: &str| memchr::memmem::find(&bytes, words.as_bytes()).is_some();
                assert!(!has("acme"), "{}", path.display());
                notes += memchr::memmem::find_iter(&bytes, b"\"event\":\"rate_limits\"").count();
            }
        }
    }
    assert_eq!(notes, 2, "a note for each change");
}

#[test]
fn metrics_count_usage() {
    let mut live = Live::start();
    initialize(&mut live);
    begins(&mut live, 1);
    reports(&mut live, "u1", 20, 20);
    ends(&mut live, 1);
    let metrics = eventually("the turn is counted", || {
        let metrics = metrics(&live);
        metrics.contains("codex_shim_turns_total 1\n").then_some(metrics)
    });
    for line in [
        "codex_shim_tokens_total{kind=\"input\"} 20",
        "codex_shim_tokens_total{kind=\"cached_input\"} 10",
        "codex_shim_tokens_total{kind=\"output\"} 2",
        "codex_shim_commands_total 0",
        "codex_shim_requests_answered_total{by=\"client\"} 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    live.end_quietly();
}

#[test]
fn usage_tells_the_tools_apart() {
    let mut live = Live::start();
    initialize(&mut live);
    begins(&mut live, 1);
    let sources = [("tui", "tui"), ("web", "web"), ("cli", "cli"), ("other", "api")];
    for (id, (header, _)) in sources.iter().enumerate() {
        let id = id.to_string();
        let request_id = live.asked(&command_asked(&id, "t"), &id);
        let line = format!("POST {}\r\nX-Codex-Shim-Source: {header}", respond_path(&request_id));
        assert_eq!(live.http(&line, br#"{"decision":"accept"}"#).0, 200);
        live.at_server();
    }
    ends(&mut live, 1);
    let total = eventually("the answers", || {
        let total = usage(&live.home, &[])["total"].take();
        let is_counted = sources.iter().all(|(_, by)| total["answered_by"][by] != 0);
        is_counted.then_some(total)
    });
    for (_, by) in sources {
        assert_eq!(total["answered_by"][by], 1, "{total:#}");
    }
    live.end_quietly();
}

#[test]
fn e2e_usage_equals_that_of_the_model() {
    let Some(mut real) = Real::start("e2e_usage_equals_that_of_the_model", "", vec![run(), says(), says()]) else {
        return;
    };
    let (_, pending) = real.asked_by_turn(COMMAND);
    real.responded(&pending, &json!({"decision": "accept"}));
    real.completed("completed");
    start_turn(&mut real.peer, &real.thread, "again");
    real.completed("completed");
    // A command that is slow makes codex call the model once more. Each call takes 10 tokens and gives 5.
    let calls = real.model.requests().len() as u64;
    assert!(calls >= 3);
    let document = eventually("the second turn", || {
        let document = usage(&real.home, &["--by", "turn"]);
        let rows = document["rows"].as_array().expect("rows");
        let is_over = rows.len() == 2 && rows.iter().all(|row| row["outcome"] == "completed");
        is_over.then_some(document)
    });
    let total = &document["total"];
    assert_eq!(
        (&total["input_tokens"], &total["output_tokens"], &total["total_tokens"]),
        (&json!(10 * calls), &json!(5 * calls), &json!(15 * calls)),
        "{document:#}"
    );
    assert_eq!((&total["commands"], &total["requests"]), (&json!(1), &json!(1)), "{document:#}");
    assert_eq!(total["answered_by"]["api"], 1, "{document:#}");
    let first = &document["rows"][0];
    assert_eq!((&first["client"], &first["model"]), (&json!("test-client"), &json!(real.lab.release.model_name())));
    let account = threads(&document)[0].clone();
    assert_eq!((&account["adds_up"], &account["codex_total"]["total_tokens"]), (&json!(true), &json!(15 * calls)));
    // Another run resumes the thread, and codex repeats what it has used.
    let Real { lab, model, home, peer, thread } = real;
    peer.finish();
    let mut real = Real::start_again(lab, model, home, thread);
    let resumed = real.peer.call("thread/resume", json!({"threadId": real.thread}));
    assert!(resumed["thread"].is_object(), "{resumed}");
    if !real.lab.release.lacks("usage of a resumed thread", Ability::UsageOnResume) {
        start_turn(&mut real.peer, &real.thread, "once more");
        real.completed("completed");
        let calls = real.model.requests().len() as u64;
        let document = eventually("the third turn", || {
            let document = usage(&real.home, &["--by", "thread"]);
            (document["rows"][0]["turns"] == 3).then_some(document)
        });
        assert_eq!(document["total"]["total_tokens"], 15 * calls, "{document:#}");
        assert_eq!(threads(&document)[0]["codex_total"]["total_tokens"], 15 * calls, "{document:#}");
        assert_eq!(document["before_record"]["total_tokens"], 0, "{document:#}");
    }
    real.end();
}
