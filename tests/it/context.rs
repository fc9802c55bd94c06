//! Context through the real binary: pushing, delivery to the server, and the client's view.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use codex_shim::testing::wire::Side;
use serde_json::{Value, json};

use crate::support::both_ends::{
    CONTEXT, Live, OTHERS, carried, command, envelope, failed, names, next, text, told, tool, turn,
};
use crate::support::shim::Home;

// The envelope's place.

#[test]
fn context_stands_in_front_of_the_first_text_and_changes_nothing_else() {
    let mut live = Live::start();
    live.push(&command("make é$HOME"), 1);
    live.push(&json!([command("two"), command("three")]), 3);
    let sent = turn(1, "t", r"h\u0069");
    let got = live.send(&sent);
    let text = carried(&got, &sent);
    let expect = |name: &str| {
        format!(
            r#"{{"cmd":"{name}","exit_code":0,"cwd":"/w","block_id":null,"ts":7,"preview":{{"lines":["{name}!"],"truncated":false}}}}"#
        )
    };
    let commands = [expect(r"make é\u0024HOME"), expect("two"), expect("three")].join(",");
    let json = format!(
        r#"{{"v":1,"type":"user_cmd_context","conversation_id":"t","shell_id":null,"total_commands_run":3,"kept":3,"dropped":0,"commands":[{commands}],"mcp":[]}}"#
    );
    assert_eq!(text, format!("\u{1e}CODEX_META {json}\u{1f}"));
    live.take_turn(1);
    let journal = live.end_quietly().journal();
    assert_eq!(journal.client, [Some(format!("{sent}\n").into_bytes())]);
    assert_eq!(journal.own, [(Side::Server, true, Some(got.into_bytes()))]);
    // The replacement is the record after the client's line.
    let at = journal.texts.iter().position(|record| record.contains(r#""from":"client""#)).expect("it is there");
    let record: Value = serde_json::from_str(&journal.texts[at + 1]).expect("it is JSON");
    assert_eq!((&record["from"], &record["to"]), (&json!("shim"), &json!("server")));
    let delivered = journal.events.iter().find(|(name, _)| name == "context_delivered").expect("it is an event");
    assert_eq!((&delivered.1["thread_id"], &delivered.1["turn_id"]), (&json!("t"), &json!("u1")));
}

#[test]
fn context_moves_the_ranges_of_what_it_precedes() {
    let mut live = Live::start();
    live.push(&command("é"), 1);
    let line = |start: usize| {
        turn(1, "t", "hi").replace(
            r#""type":"text""#,
            &format!(r#""type":"text","text_elements":[{{"byteRange":{{"start":{start},"end":{}}}}}]"#, start + 2),
        )
    };
    let got = live.send(&line(0));
    let got_json: Value = serde_json::from_str(&got).expect("it is JSON");
    let text = text(&got_json["params"]["input"][1]["text"]);
    let bytes = text.strip_suffix("hi").expect("the words").len();
    assert_eq!(carried(&got, &line(bytes)) + "hi", text);
    live.end_quietly();
}

#[test]
fn context_makes_a_text_of_its_own_where_there_is_none() {
    let mut live = Live::start();
    live.push(&command("one"), 1);
    let image = r#"{"type":"image","url":"u"}"#;
    let sent = |input: &str| {
        format!(r#"{{"id":1,"method":"turn/start","params":{{"threadId":"t","input":[{input}],"z":1}}}}"#)
    };
    let got: Value = serde_json::from_str(&live.send(&sent(image))).expect("it is JSON");
    let own = &got["params"]["input"][0];
    assert_eq!((&own["type"], names(&envelope(&text(&own["text"])))), (&json!("text"), vec!["one".to_owned()]));
    let mut rest = got.clone();
    rest["params"]["input"].as_array_mut().expect("an array").remove(0);
    assert_eq!(rest, serde_json::from_str::<Value>(&sent(image)).expect("it is JSON"));
    let echo = |content: &str| {
        format!(r#"{{"method":"item/started","params":{{"item":{{"type":"userMessage","content":[{content}]}}}}}}"#)
    };
    assert_eq!(live.say(&echo(&format!("{own},{image}"))), echo(image) + "\n");
    live.end_quietly();
}

#[test]
fn context_that_is_not_there_changes_nothing() {
    let mut live = Live::start();
    assert_eq!(live.turn(1, "t"), [""; 0]);
    live.take_turn(1);
    live.push(&json!([]), 0);
    live.push(&json!({"cmd": "secret", "private": true}), 0);
    assert_eq!(live.turn(2, "t"), [""; 0]);
    assert_eq!(live.deliveries(), [Value::Null; 0]);
    let journal = live.end_quietly().journal();
    assert_eq!(journal.own, []);
}

#[test]
fn context_needs_no_journal() {
    let mut live = Live::configured("record = false");
    live.push(&command("one"), 1);
    assert_eq!(live.turn(1, "t"), ["one"]);
    live.take_turn(1);
    assert_eq!(live.waiting(), [""; 0]);
    assert_eq!(live.say(&listed(&format!("{OTHERS}x"))), listed("x") + "\n");
    let home = live.end_quietly();
    assert_eq!(fs::read_dir(home.path().join("sessions/s/journal")).map_or(0, Iterator::count), 0);
}

#[test]
fn context_reaches_a_last_line_without_its_end() {
    let mut live = Live::start();
    live.push(&command("one"), 1);
    let sent = turn(1, "t", "hi");
    live.write(&sent);
    drop(live.stdin.take());
    let got = live.at_server();
    assert!(!got.ends_with('\n'));
    assert_eq!(names(&envelope(&carried(&got, &sent))), ["one"]);
    // The other direction as well.
    let echo = |words: &str| format!(r#"{{"id":9,"result":{{"thread":{{"preview":"{words}"}}}}}}"#);
    let last = echo(&format!("{OTHERS}x"));
    live.down.as_mut().expect("the server runs").write_all(last.as_bytes()).expect("the relay reads");
    drop(live.down.take());
    assert_eq!(next(&live.client, "the last line"), echo("x"));
    let (home, stderr) = live.end();
    assert_eq!(stderr, "");
    let own = [(Side::Server, true, Some(got.into_bytes())), (Side::Client, true, Some(echo("x").into_bytes()))];
    assert_eq!(home.journal().own, own);
}

#[test]
fn context_waits_where_codex_would_refuse_so_much() {
    let mut live = Live::start();
    live.push(&command("one"), 1);
    let sent = turn(1, "t", &"x".repeat(1_048_570));
    assert_eq!(live.send(&sent), format!("{sent}\n"));
    live.take_turn(1);
    assert_eq!(live.waiting(), ["one"]);
    assert_eq!(live.turn(2, "t"), ["one"]);
    live.end_quietly();
}

// The lease.

#[test]
fn context_is_deleted_by_a_result() {
    let mut live = Live::start();
    live.push(&command("one"), 1);
    let sent = turn(1, "t", "hi");
    let got = carried(&live.send(&sent), &sent);
    assert_eq!((live.waiting(), live.outcomes()), (vec!["one".to_owned()], vec!["sent".to_owned()]));
    live.take_turn(1);
    assert_eq!(live.get(CONTEXT), json!({"commands": [], "total_commands_run": 0}));
    assert_eq!(live.get("/sessions/self")["context_waiting"], 0);
    let delivery = live.deliveries().remove(0);
    let expect = json!({"at": delivery["at"], "thread_id": "t", "turn_id": "u1", "carrier": "envelope",
        "outcome": "delivered", "text": got});
    assert_eq!(delivery, expect);
    assert_eq!(live.turn(2, "t"), [""; 0]);
    live.end_quietly();
}

#[test]
fn context_keeps_the_last_20_deliveries() {
    let mut live = Live::start();
    for id in 1..=21 {
        live.push(&command(&id.to_string()), 1);
        assert_eq!(live.turn(id, "t"), [id.to_string()]);
        live.take_turn(id);
    }
    let deliveries = live.deliveries();
    let turns: Vec<String> = deliveries.iter().map(|delivery| text(&delivery["turn_id"])).collect();
    assert_eq!(turns, (2..=21).map(|id| format!("u{id}")).collect::<Vec<_>>());
    live.end_quietly();
}

#[test]
fn context_that_was_refused_goes_in_front_of_what_came_since() {
    let mut live = Live::start();
    for (id, code) in [(1, -32_600), (2, -32_001)] {
        live.push(&command(&id.to_string()), u64::from(id));
        assert_eq!(live.turn(id, "t").len(), id as usize);
        live.refuse_turn(id, code);
    }
    assert_eq!(live.waiting(), ["1", "2"]);
    assert_eq!(live.outcomes(), ["refused", "refused"]);
    live.push(&command("3"), 3);
    assert_eq!(live.turn(3, "t"), ["1", "2", "3"]);
    live.take_turn(3);
    assert_eq!(live.waiting(), [""; 0]);
    live.end_quietly();
}

#[test]
fn context_outlives_a_server_that_did_not_answer() {
    let mut live = Live::start();
    live.push(&json!([command("one"), command("two")]), 2);
    assert_eq!(live.turn(1, "t"), ["one", "two"]);
    let (home, stderr) = live.server_ends();
    assert_eq!(stderr, "");
    let mut live = Live::start_in(home);
    assert_eq!(live.turn(1, "t"), ["one", "two"]);
    live.take_turn(1);
    assert_eq!(live.waiting(), [""; 0]);
    live.end_quietly();
}

#[test]
fn context_outlives_a_relay_that_was_killed() {
    let mut live = Live::start();
    live.push(&command("one"), 1);
    assert_eq!(live.turn(1, "t"), ["one"]);
    assert_eq!(live.outcomes(), ["sent"]);
    let mut live = Live::start_in(live.kill());
    assert_eq!(live.outcomes(), ["unknown"]);
    assert_eq!(live.turn(1, "t"), ["one"]);
    live.take_turn(1);
    assert_eq!(live.outcomes(), ["unknown", "delivered"]);
    live.end_quietly();
}

#[test]
fn context_is_leased_to_one_turn_at_a_time() {
    let mut live = Live::start();
    live.push(&command("one"), 1);
    assert_eq!(live.turn(1, "t"), ["one"]);
    assert_eq!(live.turn(2, "t"), [""; 0]);
    live.push(&command("two"), 2);
    assert_eq!(live.turn(3, "t"), ["two"]);
    live.refuse_turn(1, -32_600);
    live.take_turn(3);
    assert_eq!(live.waiting(), ["one"]);
    live.take_turn(2);
    assert_eq!(live.turn(4, "t"), ["one"]);
    live.end_quietly();
}

#[test]
fn context_that_was_cleared_on_its_way_does_not_come_back() {
    let mut live = Live::start();
    live.push(&command("one"), 1);
    assert_eq!(live.turn(1, "t"), ["one"]);
    assert_eq!(live.http(&format!("DELETE {CONTEXT}"), b"").0, 200);
    live.refuse_turn(1, -32_600);
    assert_eq!(live.turn(2, "t"), [""; 0]);
    live.end_quietly();
}

// Threads.

#[test]
fn context_for_a_thread_waits_for_that_thread() {
    let mut live = Live::start();
    let bound = |thread: &str| json!({"cmd": thread, "thread_id": thread});
    live.refused(bound("a").to_string().as_bytes(), 404, "thread_not_found");
    live.refused(json!([command("one"), bound("a")]).to_string().as_bytes(), 404, "thread_not_found");
    assert_eq!(live.waiting(), [""; 0]);
    // Each way in which a thread becomes known, from the moment the client sees it.
    let start = r#"{"id":1,"method":"thread/start","params":{}}"#;
    assert_eq!(live.send(start), format!("{start}\n"));
    live.say_plainly(r#"{"id":1,"result":{"thread":{"id":"a","preview":""}}}"#);
    live.push(&bound("a"), 1);
    live.say_plainly(r#"{"method":"thread/started","params":{"thread":{"id":"b"}}}"#);
    live.push(&bound("b"), 2);
    assert_eq!(live.turn(2, "refused"), [""; 0]);
    live.refuse_turn(2, -32_600);
    live.refused(bound("refused").to_string().as_bytes(), 404, "thread_not_found");
    assert_eq!(live.turn(3, "c"), [""; 0]);
    live.take_turn(3);
    live.push(&json!([bound("c"), command("any")]), 4);
    assert_eq!(live.turn(4, "b"), ["b", "any"]);
    live.take_turn(4);
    assert_eq!(live.turn(5, "d"), [""; 0]);
    let mut live = Live::start_in(live.end_quietly());
    live.push(&bound("b"), 3);
    assert_eq!(live.turn(1, "c"), ["c"]);
    assert_eq!(live.turn(2, "a"), ["a"]);
    live.end_quietly();
}

// Other carriers.

/// Sends a turn that must follow a call of our own; returns the id of that call as JSON, and the commands in it.
fn turn_behind_a_call(live: &mut Live, id: u32) -> (Value, String) {
    let sent = turn(id, "t", "hi");
    let call: Value = serde_json::from_str(&live.send(&sent)).expect("it is JSON");
    assert_eq!(live.at_server(), format!("{sent}\n"));
    assert_eq!((&call["method"], &call["params"]["threadId"]), (&json!("thread/inject_items"), &json!("t")));
    assert!(text(&call["id"]).starts_with("codex-shim:"), "{call}");
    let item = &call["params"]["items"][0];
    assert_eq!((&item["type"], &item["role"]), (&json!("message"), &json!("user")));
    assert_eq!(item["content"][0]["type"], "input_text");
    (call["id"].clone(), text(&item["content"][0]["text"]))
}

fn refuse_call(live: &mut Live, id: &Value) {
    live.say_unseen(&format!(r#"{{"error":{{"code":-32601,"message":"unknown variant"}},"id":{id}}}"#));
}

#[test]
fn context_by_a_call_of_its_own_is_settled_by_its_own_answer() {
    let mut live = Live::configured("carrier = \"inject_items\"");
    live.push(&command("one"), 1);
    let (id, shown) = turn_behind_a_call(&mut live, 1);
    assert_eq!(names(&envelope(&shown)), ["one"]);
    live.say_unseen(&format!(r#"{{"id":{id},"result":{{}}}}"#));
    live.refuse_turn(1, -32_600);
    assert_eq!(live.waiting(), [""; 0]);
    let delivery = live.deliveries().remove(0);
    assert_eq!(
        (&delivery["carrier"], &delivery["outcome"], &delivery["text"]),
        (&json!("inject_items"), &json!("delivered"), &json!(shown))
    );
    assert_eq!(live.turn(2, "t"), [""; 0]);
    let journal = live.end_quietly().journal();
    let [(Side::Server, false, Some(call))] = &journal.own[..] else { panic!("{:?}", journal.own) };
    assert!(call.starts_with(b"{") && call.ends_with(b"\n"));
    assert_eq!(journal.server.len(), 2, "the answer to our call is on record too");
}

#[test]
fn context_by_a_call_that_is_refused_waits_and_says_so_once() {
    let mut live = Live::configured("carrier = \"inject_items\"");
    live.push(&command("one"), 1);
    let (id, _) = turn_behind_a_call(&mut live, 1);
    refuse_call(&mut live, &id);
    live.take_turn(1);
    assert_eq!(live.waiting(), ["one"]);
    // A server that has refused the call once is not called again.
    assert_eq!(live.turn(2, "t"), [""; 0]);
    live.take_turn(2);
    assert_eq!((live.waiting(), live.outcomes()), (vec!["one".to_owned()], vec!["refused".to_owned()]));
    let (_, stderr) = live.end();
    assert!(stderr.starts_with("codex-shim: ") && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn context_by_a_call_that_nobody_answered_waits() {
    let mut live = Live::configured("carrier = \"inject_items\"");
    live.push(&command("one"), 1);
    turn_behind_a_call(&mut live, 1);
    live.take_turn(1);
    assert_eq!(live.waiting(), ["one"], "the call is not answered by the turn");
    assert_eq!(live.deliveries()[0]["turn_id"], "u1");
    let (home, stderr) = live.server_ends();
    assert_eq!(stderr, "");
    let mut live = Live::start_in(home);
    let (_, shown) = turn_behind_a_call(&mut live, 1);
    assert_eq!(names(&envelope(&shown)), ["one"]);
    live.end_quietly();
}

#[test]
fn context_falls_back_to_the_envelope_for_good() {
    let mut live = Live::configured("carrier = \"auto\"");
    live.push(&command("one"), 1);
    let (id, _) = turn_behind_a_call(&mut live, 1);
    refuse_call(&mut live, &id);
    live.take_turn(1);
    for turn in [2, 3] {
        assert_eq!(live.turn(turn, "t"), ["one"]);
        live.refuse_turn(turn, -32_600);
    }
    live.end();
}

#[test]
fn context_knows_from_the_version_that_a_call_would_be_refused() {
    let mut live = Live::configured("carrier = \"auto\"");
    let asks = r#"{"id":0,"method":"initialize","params":{"clientInfo":{"name":"x","version":"1"}}}"#;
    assert_eq!(live.send(asks), format!("{asks}\n"));
    live.say_plainly(r#"{"id":0,"result":{"userAgent":"x/0.98.0 (y)"}}"#);
    live.push(&command("one"), 1);
    assert_eq!(live.turn(1, "t"), ["one"]);
    live.take_turn(1);
    // No event needs a report.
    live.end_quietly();
}

#[test]
fn context_that_is_off_stays_where_it_is() {
    let mut live = Live::configured("carrier = \"off\"");
    live.push(&command("one"), 1);
    assert_eq!(live.turn(1, "t"), [""; 0]);
    live.take_turn(1);
    assert_eq!((live.waiting(), live.deliveries().len()), (vec!["one".to_owned()], 0));
    live.end_quietly();
}

// Removal from the client's view.

#[test]
fn context_is_taken_out_of_what_the_client_sees() {
    let mut live = Live::start();
    live.push(&command("a \"b\" é"), 1);
    let sent = turn(1, "t", "hi");
    let shown = serde_json::to_string(&carried(&live.send(&sent), &sent)).expect("it is JSON");
    let shown = shown.trim_matches('"');
    let lines = [
        r#"{"method":"item/started","params":{"item":{"type":"userMessage","id":"i","content":[{"type":"text","text":"@hi"}]},"x": 1.0}}"#,
        r#"{"id":1,"result":{"turn":{"id":"u1","items":[{"type":"userMessage","content":[{"type":"text","text":"@hi"}]}]}}}"#,
        r#"{"id":2,"result":{"data":[{"id":"t","preview":"@hi"},{"id":"o","preview":"plain"}]}}"#,
    ];
    let mut own = Vec::new();
    for line in lines {
        for envelope in [shown, OTHERS] {
            let stripped = line.replace('@', "") + "\n";
            assert_eq!(live.say(&line.replace('@', envelope)), stripped);
            own.push((Side::Client, true, Some(stripped.into_bytes())));
        }
    }
    for line in [
        r#"{"method":"item/completed","params":{"item":{"type":"agentMessage","text":"@hi"}}}"#,
        r#"{"method":"item/started","params":{"item":{"type":"userMessage","content":[{"type":"text","text":"see @"}]}}}"#,
    ] {
        live.say_plainly(&line.replace('@', shown));
    }
    let journal = live.end_quietly().journal();
    assert_eq!(journal.own[1..], own);
    assert_eq!(journal.server[0], Some(format!("{}\n", lines[0].replace('@', shown)).into_bytes()));
    let at = journal.texts.iter().position(|record| record.contains(r#""from":"server""#)).expect("it is there");
    assert!(journal.texts[at + 1].contains(r#""to":"client""#), "{}", journal.texts[at + 1]);
}

/// A user writes a start marker and an end marker without an envelope between them.
#[test]
fn context_markers_in_a_users_own_words_stay() {
    const WORDS: &str = r"\u001eCODEX_META what does this mean?\u001fhi";
    let mut live = Live::start();
    let echo = |words: &str| {
        format!(
            r#"{{"method":"item/started","params":{{"item":{{"type":"userMessage","content":[{{"type":"text","text":"{words}"}}]}}}}}}"#
        )
    };
    live.answer_plainly(&turn(1, "t", WORDS));
    live.say_plainly(&echo(WORDS));
    live.say_plainly(&listed(WORDS));
    live.take_turn(1);
    // After our own envelope, only that envelope is removed.
    live.push(&command("make"), 1);
    let sent = turn(2, "t", WORDS);
    let shown = serde_json::to_string(&carried(&live.send(&sent), &sent)).expect("it is JSON");
    let shown = shown.trim_matches('"');
    assert_eq!(live.say(&echo(&format!("{shown}{WORDS}"))), echo(WORDS) + "\n");
    assert_eq!(live.say(&listed(&format!("{shown}{WORDS}"))), listed(WORDS) + "\n");
    live.take_turn(2);
    live.end_quietly();
}

#[test]
fn context_is_taken_out_of_a_long_answer() {
    let mut live = Live::start();
    let user = r#"{"type":"userMessage","content":[{"type":"text","text":"@hi \u001f \u001eCODEX_META "}]}"#;
    let agent = format!(r#"{{"type":"agentMessage","text":"{}@"}}"#, r"long \n\u00e9é ".repeat(50_000));
    let turns = vec![format!(r#"{{"items":[{user},{}]}}"#, agent.replace('@', OTHERS)); 8].join(",");
    let line = format!(r#"{{"id":1,"result":{{"thread":{{"id":"t","preview":"@hi","turns":[{turns}]}}}}}}"#);
    assert!(line.len() > 5 << 20);
    let got = live.say(&line.replace('@', OTHERS));
    assert!(got == line.replace('@', "") + "\n", "{} bytes, not {}", got.len(), line.len());
    live.end_quietly();
}

/// A list of threads with one preview.
fn listed(preview: &str) -> String {
    format!(r#"{{"id":9,"result":{{"data":[{{"id":"t","preview":"{preview}"}}]}}}}"#)
}

#[test]
fn context_that_cuts_off_a_preview_gives_way_to_what_the_user_wrote() {
    const CUT: &str = r#"\u001eCODEX_META {\"v\":1,\"type\":\"user_cmd"#;
    let mut live = Live::start();
    assert_eq!(live.say(&listed(CUT)), listed("") + "\n");
    live.push(&command("one"), 1);
    live.send(&turn(1, "t", "fix it"));
    live.take_turn(1);
    assert_eq!(live.say(&listed(CUT)), listed("fix it") + "\n");
    let mut live = Live::start_in(live.end_quietly());
    assert_eq!(live.say(&listed(CUT)), listed("fix it") + "\n");
    live.end_quietly();
}

#[test]
fn context_of_a_turn_that_was_refused_is_no_preview() {
    let mut live = Live::start();
    live.push(&command("one"), 1);
    live.send(&turn(1, "t", "never said"));
    live.refuse_turn(1, -32_600);
    live.send(&turn(2, "t", "fix it"));
    live.take_turn(2);
    assert_eq!(live.say(&listed(r"\u001eCODEX_META {\u0022v\u0022:1,\u0022ty")), listed("fix it") + "\n");
    live.end_quietly();
}

// Without a relay.

#[test]
fn context_is_kept_where_no_relay_runs() {
    let home = Live::start().end_quietly();
    let push = ["context", "push", "--session", "s", "--json", "--exit-code", "-1", "--cmd"];
    assert_eq!(told(&tool(&home, &[&push[..], &["one"]].concat())), json!({"waiting": 1}));
    assert_eq!(told(&tool(&home, &[&push[..], &["--two"]].concat())), json!({"waiting": 2}));
    let shown = told(&tool(&home, &["context", "show", "--json"]));
    assert_eq!((names(&shown), &shown["total_commands_run"]), (vec!["one".into(), "--two".into()], &json!(2)));
    assert_eq!(shown["commands"][0]["exit_code"], -1);
    let cwd = fs::canonicalize(home.beside()).expect("it is there");
    assert_eq!(shown["commands"][0]["cwd"], json!(cwd));
    failed(&tool(&home, &["context", "show", "--last"]), 1, " s yet; ");
    let last = tool(&home, &["context", "show", "--last", "--json"]);
    assert_eq!((last.status.code(), String::from_utf8_lossy(&last.stdout)), (Some(1), "null\n".into()));
    assert!(String::from_utf8_lossy(&last.stderr).contains("`codex-shim context push`"), "{last:?}");
    failed(&tool(&home, &["context", "push", "--session", "s", "--cmd", "x", "--thread", "n"]), 1, "n");

    let mut live = Live::start_in(home);
    assert_eq!(live.turn(1, "t"), ["one", "--two"]);
    live.take_turn(1);
    assert_eq!(told(&live.tool(&["context", "show", "--json"])), json!({"commands": [], "total_commands_run": 0}));
    let delivery = live.deliveries().remove(0);
    let shown_last = |home: &Home| {
        assert_eq!(told(&tool(home, &["context", "show", "--last", "--json"])), delivery);
        assert_eq!(tool(home, &["context", "show", "--last"]).stdout, text(&delivery["text"]).into_bytes());
    };
    shown_last(&live.home);
    let home = live.end_quietly();
    shown_last(&home);
    assert_eq!(told(&tool(&home, &[&push[..], &["three"]].concat())), json!({"waiting": 1}));
    assert!(tool(&home, &["context", "clear", "--session", "s"]).status.success());
    let mut live = Live::start_in(home);
    assert_eq!(live.turn(1, "t"), [""; 0]);
    live.push(&command("four"), 1);
    told(&live.tool(&["context", "clear", "--json"]));
    assert_eq!(live.turn(2, "t"), [""; 0]);
    live.end_quietly();
}

#[test]
fn context_is_no_secret_push_behind_a_relay_that_does_not_answer() {
    let home = Live::start().end_quietly();
    let lock = File::open(home.path().join("sessions/s/lock")).expect("it is there");
    lock.lock().expect("nobody has it");
    failed(&tool(&home, &["context", "push", "--session", "s", "--cmd", "x"]), 1, "is live but does not answer");
    failed(&tool(&home, &["context", "clear", "--session", "s"]), 1, "is live but does not answer");
    drop(lock);
    let shown = told(&tool(&home, &["context", "show", "--json"]));
    assert_eq!(names(&shown), [""; 0]);
}

#[test]
fn context_of_no_session_at_all_is_an_error_of_its_own() {
    let home = Home::new();
    for args in [&["show"][..], &["push", "--cmd", "x"], &["clear"], &["show", "--session", "s"]] {
        let output = tool(&home, &[&["context"], args].concat());
        failed(&output, 3, "session");
    }
    assert!(!home.path().join("sessions").exists());
}

// Invalid input.

#[test]
fn context_that_is_none_is_refused_and_not_kept() {
    let live = Live::start();
    let good = r#"{"cmd":"good"}"#;
    let in_array = |bad: &str| format!("[{good},{bad}]");
    for bad in ["", "x", "{", "[", "null", "7", r#""x""#, r#"{"cmd":"a"} {}"#, "{\"cmd\":\"a\0b\"}", "\0"] {
        live.refused(bad.as_bytes(), 400, "invalid_body");
    }
    for bad in [
        "{}",
        "null",
        r#"{"cmd":null}"#,
        r#"{"cmd":7}"#,
        r#"{"cmd":"a","exit_code":"0"}"#,
        r#"{"cmd":"a","cwd":[]}"#,
        r#"{"cmd":"a","ts":"now"}"#,
        r#"{"cmd":"a","output":{}}"#,
        r#"{"cmd":"a","preview":"x"}"#,
        r#"{"cmd":"a","thread_id":1}"#,
    ] {
        live.refused(bad.as_bytes(), 400, "invalid_body");
        live.refused(in_array(bad).as_bytes(), 400, "invalid_body");
    }
    for bad in [r#"{"cmd":""}"#, r#"{"cmd":"a\u0000b"}"#, r#"{"cmd":"a","ts":-1}"#] {
        live.refused(bad.as_bytes(), 400, "invalid_command");
        live.refused(in_array(bad).as_bytes(), 400, "invalid_command");
    }
    live.refused(b"{\"cmd\":\"\xff\"}", 400, "invalid_body");
    let big = json!({"cmd": "a", "output": "x".repeat(5 << 20)}).to_string();
    live.refused(big.as_bytes(), 413, "body_too_large");
    assert_eq!(live.waiting(), [""; 0]);
    live.end_quietly();
}

#[test]
fn context_by_the_tool_takes_what_terminals_give() {
    let live = Live::start();
    let file = live.home.beside().join("output");
    let push = |cmd: &[u8], file: &Path| {
        let mut command = live.home.shim(&["context", "push", "--session", "s", "--cmd"]);
        command.arg(OsStr::from_bytes(cmd)).arg("--output-file").arg(file).output().expect("the tool runs")
    };
    failed(&push(b"x", &file), 1, &file.display().to_string());
    fs::write(&file, b"a\xffb\n").expect("a file");
    assert!(push(b"one \xff", &file).status.success());
    fs::write(&file, [b"first\n".repeat(1 << 20), b"last\n".to_vec()].concat()).expect("a file");
    assert!(push(b"two", &file).status.success());
    let shown = live.get(CONTEXT);
    assert_eq!(names(&shown), ["one \u{fffd}", "two"]);
    assert_eq!(shown["commands"][0]["preview"], json!({"lines": ["a\u{fffd}b"], "truncated": false}));
    let preview = &shown["commands"][1]["preview"];
    let lines = preview["lines"].as_array().expect("an array");
    assert_eq!((lines.len(), &lines[18], &lines[19]), (20, &json!("first"), &json!("last")));
    assert_eq!(preview["truncated"], true);
    live.end_quietly();
}

// Limits.

#[test]
fn context_is_bounded() {
    let mut live = Live::start();
    let output = "é\"\\ ".repeat(60) + "\n";
    let commands: Vec<Value> =
        (1..=12).map(|number| json!({"cmd": format!("c{number}"), "output": output.repeat(30)})).collect();
    live.push(&json!(commands), 12);
    assert_eq!(live.get(CONTEXT)["total_commands_run"], 12);
    let sent = turn(1, "t", "hi");
    let shown = carried(&live.send(&sent), &sent);
    assert!(shown.len() <= 4_096, "{} bytes", shown.len());
    let json = envelope(&shown);
    let counts = [&json["total_commands_run"], &json["kept"], &json["dropped"]];
    assert_eq!(counts, [&json!(12), &json!(10), &json!(2)]);
    assert_eq!(names(&json), ["c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10", "c11", "c12"]);
    assert_eq!(json["commands"][9]["preview"]["truncated"], true);
    live.take_turn(1);
    assert_eq!(live.waiting(), [""; 0]);
    live.end_quietly();
}

#[test]
fn context_keeps_to_the_settings() {
    let mut live = Live::configured("context_commands_max = 3\ncontext_preview_lines_max = 1\n");
    let commands: Vec<Value> = (1..=5).map(|number| json!({"cmd": number.to_string(), "output": "a\nb\n"})).collect();
    live.push(&json!(commands), 5);
    let sent = turn(1, "t", "hi");
    let json = envelope(&carried(&live.send(&sent), &sent));
    assert_eq!((names(&json), &json["dropped"]), (["3", "4", "5"].map(str::to_owned).to_vec(), &json!(2)));
    assert_eq!(json["commands"][0]["preview"], json!({"lines": ["b"], "truncated": true}));
    live.end_quietly();
}

// Unusable ledgers.

/// A home whose session has a ledger created by `make`.
fn home_with_ledger(make: impl Fn(&Path)) -> Home {
    let home = Home::new();
    let session = home.path().join("sessions/s");
    fs::create_dir_all(&session).expect("a folder");
    make(&session.join("ledger.db"));
    home
}

#[test]
fn context_begins_anew_beside_a_ledger_that_is_corrupt() {
    let broken = "no database, and long enough to be seen as none".repeat(200);
    let mut live = Live::start_in(home_with_ledger(|ledger| fs::write(ledger, &broken).expect("a file")));
    live.push(&command("one"), 1);
    assert_eq!(live.turn(1, "t"), ["one"]);
    let files = fs::read_dir(&live.session).expect("a folder").map(|file| file.expect("a file").path());
    let aside: Vec<PathBuf> = files.filter(|path| path.to_string_lossy().contains("/ledger.db.corrupt-")).collect();
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert_eq!(fs::read_to_string(&aside[0]).expect("it is there"), broken);
    assert!(text(&live.get("/sessions/self")["faults"][0]["what"]).contains("ledger.db.corrupt-"));
    let (_, stderr) = live.end();
    assert!(stderr.lines().count() == 1 && stderr.contains("ledger.db.corrupt-"), "{stderr}");
}

#[test]
fn context_is_unavailable_where_the_ledger_is_newer() {
    let newer = |ledger: &Path| {
        let connection = rusqlite::Connection::open(ledger).expect("it can be made");
        connection.pragma_update(None, "user_version", 1_000).expect("it can be written");
    };
    let mut live = Live::start_in(home_with_ledger(newer));
    live.refused(br#"{"cmd":"x"}"#, 503, "ledger_unavailable");
    assert_eq!(live.http(&format!("GET {CONTEXT}"), b"").0, 503);
    assert_eq!(live.turn(1, "t"), [""; 0]);
    live.take_turn(1);
    let status = live.get("/sessions/self");
    assert!(text(&status["faults"][0]["what"]).contains("newer"), "{status}");
    let (home, stderr) = live.end();
    assert!(stderr.starts_with("codex-shim: ") && stderr.lines().count() == 1, "{stderr}");
    failed(&tool(&home, &["context", "push", "--session", "s", "--cmd", "x"]), 1, "newer");
}

#[test]
fn context_show_prints_the_output_that_is_sent() {
    let live = Live::start();
    live.push(&json!({"cmd": "make", "exit_code": 2, "output": "no rule\nfor \u{1b}[31mx"}), 1);
    let output = live.tool(&["context", "show", "--utc"]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.starts_with("the next message in session s carries 1 command\n   1  "), "{shown}");
    assert!(shown.contains(" UTC  exit 2  make  (push)\n      no rule\n      for x\n"), "{shown}");
    live.end_quietly();
}

#[test]
fn context_show_fits_the_output_as_the_envelope() {
    let mut live = Live::start();
    let output = |name: &str| (0..20).map(|line| format!("{name} {line} {}\n", "x".repeat(120))).collect::<String>();
    let commands: Vec<Value> =
        ["a", "b", "c"].iter().map(|name| json!({"cmd": name, "output": output(name)})).collect();
    live.push(&json!(commands), 3);
    let output = live.tool(&["context", "show", "--utc"]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = shown.lines().filter_map(|line| line.strip_prefix("      ")).collect();
    let left_out = shown.lines().last().expect("a line").to_owned();
    let thread_id = "0192c4f0-1111-7000-8000-000000000001";
    let sent = turn(1, thread_id, "hi");
    let json = envelope(&carried(&live.send(&sent), &sent));
    let sent: Vec<String> = json["commands"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|command| command["preview"]["lines"].as_array().into_iter().flatten().map(text))
        .collect();
    assert_eq!(lines, sent);
    assert!(shown.starts_with("the next message in session s carries 3 commands\n"), "{shown}");
    assert_eq!(left_out, format!("… {} lines of output are left out to fit 4.0 KiB", 60 - sent.len()));
    live.take_turn(1);
    live.end_quietly();
}

#[test]
fn context_drop_removes_one_command() {
    let mut live = Live::start();
    for (count, name) in [(1, "one"), (2, "two"), (3, "three"), (4, "four")] {
        live.push(&command(name), count);
    }
    let numbers = |document: &Value| -> Vec<i64> {
        document["commands"].as_array().into_iter().flatten().filter_map(|one| one["id"].as_i64()).collect()
    };
    assert_eq!(numbers(&live.get("/sessions/self/context")), [1, 2, 3, 4]);
    let dropped = live.tool(&["context", "drop", "2"]);
    assert_eq!(String::from_utf8_lossy(&dropped.stdout), "dropped: two\n");
    assert_eq!(told(&live.tool(&["context", "drop", "latest", "--json"])), json!({"waiting": 2}));
    failed(&live.tool(&["context", "drop", "2"]), 1, "no command with the number `2` waits; `codex-shim context show`");
    failed(&live.tool(&["context", "drop", "x"]), 1, "`x`");
    for wrong in ["2", "x", "-1", "99999999999999999999"] {
        let (status, document) = live.http(&format!("DELETE /sessions/self/context/{wrong}"), b"");
        assert_eq!((status, &document["detail"]["error_code"]), (404, &json!("command_not_found")), "{wrong}");
    }
    assert_eq!(live.waiting(), ["one", "three"]);
    assert_eq!(live.turn(1, "t"), ["one", "three"]);
    live.take_turn(1);
    failed(&live.tool(&["context", "drop", "latest"]), 1, "`latest`");
    live.push(&command("five"), 1);
    live.push(&command("six"), 2);

    // The ledger changes while no relay runs; the next start sees the change.
    let home = live.end_quietly();
    assert_eq!(told(&tool(&home, &["context", "drop", "5", "--session", "s", "--json"])), json!({"waiting": 1}));
    failed(&tool(&home, &["context", "drop", "5", "--session", "s"]), 1, "number `5`");
    let mut live = Live::start_in(home);
    assert_eq!(live.turn(1, "t"), ["six"]);
    live.end_quietly();
}
