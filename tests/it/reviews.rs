//! Reviews of codex's own reviewer: listed over all sessions, live and stopped, and overruled through the socket and the tool.

use std::process::Output;

use serde_json::{Value, json};

use crate::support::both_ends::{Live, failed, told, tool};
use crate::support::eventually;
use crate::support::history::Stream;
use crate::support::requests::{parsed, refused, turn_completed, turn_started};

const REVIEWS: &str = "/sessions/self/codex-reviews";

/// The end of a review of a command with a secret, in turn `u` of thread `t`.
fn reviewed(review_id: &str, status: &str) -> String {
    let action = json!({"type": "command", "source": "unifiedExec", "command": "/bin/bash -lc 'make TOKEN=hunter22'",
        "cwd": "/w"});
    let review =
        json!({"status": status, "riskLevel": "high", "userAuthorization": "low", "rationale": "It is risky."});
    json!({"method": "item/autoApprovalReview/completed", "params": {"threadId": "t", "turnId": "u", "startedAtMs": 1000,
        "completedAtMs": 1250, "reviewId": review_id, "targetItemId": "i", "decisionSource": "agent", "review": review,
        "action": action}})
    .to_string()
}

/// The call of a client that overrules a denial.
fn overruling(id: u32, review_id: &str) -> String {
    let event =
        json!({"id": review_id, "turn_id": "u", "action": {"type": "command", "command": "make TOKEN=hunter22"}});
    let params = json!({"threadId": "t", "event": event});
    json!({"id": id, "method": "thread/approveGuardianDeniedAction", "params": params}).to_string()
}

/// A relay with a running turn in which one action was denied and one approved.
fn denied() -> Live {
    let mut live = Live::initialized("");
    live.say_plainly(&turn_started("t", "u"));
    live.say_plainly(&reviewed("8adfefc5-1", "denied"));
    live.say_plainly(&reviewed("227c7fc7-1", "approved"));
    live
}

fn overrule(live: &Live, review_id: &str, body: &Value) -> (u16, Value) {
    live.http(&format!("POST {REVIEWS}/{review_id}/overrule"), body.to_string().as_bytes())
}

fn shown(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("it is text")
}

/// Runs a tool that calls the server, and answers that call.
fn with_server(live: &mut Live, args: &[&str], answer: &str) -> (Value, Output) {
    let mut command = live.home.shim(args);
    let tool = command.current_dir(live.home.beside()).spawn().expect("the tool runs");
    let call = parsed(&live.at_server());
    live.say_unseen(&format!(r#"{{"id":{},{answer}}}"#, call["id"]));
    (call, tool.wait_with_output().expect("the tool ends"))
}

#[test]
fn denials_are_listed_with_their_reasons() {
    let live = denied();
    let document = told(&live.tool(&["reviews", "--json"]));
    assert_eq!(document, live.get(REVIEWS));
    let reviews = document["reviews"].as_array().expect("an array");
    assert_eq!(reviews.len(), 1, "{document:#}");
    let words = ["review_id", "status", "subject", "reason", "risk_level", "session_id", "thread_id", "item_id"];
    let expect =
        ["8adfefc5-1", "denied", "/bin/bash -lc 'make TOKEN=[redacted]'", "It is risky.", "high", "s", "t", "i"];
    assert_eq!(words.map(|word| reviews[0][word].clone()), expect.map(Value::from), "{document:#}");
    let list = shown(&live.tool(&["reviews"]));
    assert!(
        list.contains("8adfefc5-1") && list.contains("make TOKEN=[redacted]") && list.contains("It is risky."),
        "{list}"
    );
    assert!(!list.contains("227c7fc7"), "{list}");
    let all = shown(&live.tool(&["reviews", "--all"]));
    assert!(all.contains("227c7fc7-1") && all.contains("approved"), "{all}");
    let actions = shown(&live.tool(&["tail"]));
    assert!(actions.contains("Auto-review denied: make TOKEN=[redacted]: It is risky."), "{actions}");
    let transcript = shown(&live.tool(&["transcript"]));
    assert!(transcript.contains("It is risky."), "{transcript}");
    live.end_quietly();
}

#[test]
fn denials_of_all_sessions_are_listed() {
    let home = denied().end_quietly();
    let mut live = Live::start_in_session(home, "other").initialize();
    live.say_plainly(&turn_started("t", "u"));
    live.say_plainly(&reviewed("ffffffff-1", "denied"));
    let ids = |args: &[&str]| -> Vec<String> {
        let document = told(&live.tool(args));
        let reviews = document["reviews"].as_array().expect("an array").iter();
        reviews.map(|review| format!("{} {}", review["session_id"], review["review_id"])).collect()
    };
    let (old, new) = ("\"s\" \"8adfefc5-1\"".to_owned(), "\"other\" \"ffffffff-1\"".to_owned());
    assert_eq!(ids(&["reviews", "--json"]), [old.clone(), new.clone()]);
    assert_eq!(ids(&["reviews", "--since", "1h", "--json"]), [old.clone(), new]);
    assert_eq!(ids(&["reviews", "--session", "s", "--json"]), [old]);
    assert!(ids(&["reviews", "--since", "0s", "--json"]).is_empty());
    // Only a live session can be overruled.
    failed(&live.tool(&["overrule", "8adfefc5"]), 4, " s is not running");
    failed(&live.tool(&["overrule", "nope"]), 3, "unknown denial `nope`; `codex-shim reviews` lists them");
    live.end_quietly();
}

#[test]
fn nothing_denied_is_said() {
    let live = Live::initialized("");
    let output = live.tool(&["reviews"]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("has denied nothing in any session"), "{output:?}");
    failed(&live.tool(&["overrule", "latest"]), 3, "no denial of a running session is left to overrule");
    let home = live.end_quietly();
    assert_eq!(told(&tool(&home, &["reviews", "--json"])), json!({"reviews": []}));
}

#[test]
fn session_without_history_has_no_reviews() {
    let live = Live::initialized("record = false\n");
    assert_eq!(told(&live.tool(&["reviews", "--json"])), json!({"reviews": []}));
    live.end_quietly();
}

#[test]
fn denial_is_overruled_with_the_exact_action() {
    let mut live = denied();
    let (call, output) = with_server(&mut live, &["overrule", "8adf", "--json"], "\"result\":{}");
    assert_eq!(call["method"], "thread/approveGuardianDeniedAction");
    let event = &call["params"]["event"];
    // Codex compares the action word by word, so no mask applies.
    let command = "/bin/bash -lc 'make TOKEN=hunter22'";
    assert_eq!(event["action"], json!({"type": "command", "source": "unified_exec", "command": command, "cwd": "/w"}));
    let words = ["id", "target_item_id", "turn_id", "status", "risk_level", "decision_source"];
    assert_eq!(
        words.map(|word| event[word].clone()),
        ["8adfefc5-1", "i", "u", "denied", "high", "agent"].map(Value::from)
    );
    let outcome = json!({"ok": true, "review_id": "8adfefc5-1", "thread_id": "t", "turn_id": "u"});
    assert_eq!(told(&output), outcome);
    let review = live.get(REVIEWS)["reviews"][0].clone();
    assert!(review["overruled_at"].is_string(), "{review:#}");
    assert!(shown(&live.tool(&["reviews"])).contains("overruled"));
    failed(&live.tool(&["overrule", "8adfefc5"]), 1, "this denial was overruled before");
    refused(overrule(&live, "8adfefc5-1", &json!({})), (409, "already_overruled"));
    live.end_quietly();
}

#[test]
fn open_view_learns_of_an_overruling() {
    let mut live = denied();
    let mut view = Stream::open(&live.session, "mode=ui", None).begun();
    with_server(&mut live, &["overrule", "latest"], "\"result\":{}");
    let overruled = std::iter::repeat_with(|| view.next().json()).find(|event| event["status"] == "overruled");
    let overruled = overruled.expect("the stream goes on");
    let words = ["type", "review_id", "thread_id", "turn_id", "subject"].map(|word| overruled[word].clone());
    let subject = "/bin/bash -lc 'make TOKEN=[redacted]'";
    assert_eq!(words, ["auto_review", "8adfefc5-1", "t", "u", subject].map(Value::from), "{overruled:#}");
    live.end_quietly();
}

#[test]
fn audit_says_who_overruled_what_and_when() {
    let mut live = denied();
    live.say_plainly(&reviewed("aaaaaaaa-1", "denied"));
    live.say_plainly(&reviewed("bbbbbbbb-1", "denied"));
    with_server(&mut live, &["overrule", "8adf"], "\"result\":{}");
    // A refused call overrules nothing.
    with_server(&mut live, &["overrule", "bbbb"], "\"error\":{\"code\":-1,\"message\":\"no\"}");
    live.send(&overruling(9, "aaaaaaaa-1"));
    live.say_plainly(r#"{"id":9,"result":{}}"#);
    let file = live.home.beside().join("audit.jsonl");
    let path = file.to_str().expect("UTF-8");
    let lines = || -> Vec<Value> {
        shown(&live.tool(&["audit", "export", "--force", "-o", path]));
        let text = std::fs::read_to_string(path).expect("it was written");
        let lines = text.lines().map(parsed).filter(|line| line["kind"] == "overruling");
        lines.collect()
    };
    let found = eventually("both are in the ledger", || Some(lines()).filter(|lines| lines.len() == 2));
    let members = |line: &Value| ["request", "source", "thread", "turn", "summary"].map(|name| line[name].clone());
    let command = "/bin/bash -lc 'make TOKEN=********'";
    assert_eq!(members(&found[0]), ["8adfefc5-1", "cli", "t", "u", command].map(Value::from), "{found:#?}");
    assert_eq!(members(&found[1]), ["aaaaaaaa-1", "client", "t", "u", "make TOKEN=********"].map(Value::from));
    assert_eq!(
        (found[0]["uid"].as_u64(), found[0]["item"].as_str()),
        (Some(u64::from(rustix::process::getuid().as_raw())), Some("i")),
        "{found:#?}"
    );
    assert!(found[0]["pid"].is_u64() && found[1]["by"].is_string(), "{found:#?}");
    let verified = told(&live.tool(&["audit", "verify", path, "--json"]));
    assert_eq!((&verified["intact"], &verified["compared"]), (&true.into(), &2.into()), "{verified:#}");
    let home = live.end_quietly();
    // A ledger that has lost one is noticed.
    let ledger = rusqlite::Connection::open(home.path().join("sessions/s/ledger.db")).expect("it is there");
    ledger.execute("DELETE FROM codex_overrulings WHERE source = 'cli'", []).expect("it can be changed");
    let verified = tool(&home, &["audit", "verify", path, "--json"]);
    let verified: Value = serde_json::from_slice(&verified.stdout).expect("one document");
    assert_eq!(verified["problems"][0]["problem"], "the ledger lacks this line", "{verified:#}");
}

#[test]
fn refused_overruling_can_be_tried_again() {
    let mut live = denied();
    let refusal = r#""error":{"code":-32600,"message":"thread not found: t"}"#;
    let (_, output) = with_server(&mut live, &["overrule", "latest"], refusal);
    failed(&output, 1, "thread not found: t");
    let (_, output) = with_server(&mut live, &["overrule", "latest"], "\"result\":{}");
    assert!(shown(&output).starts_with("approved: make TOKEN=[redacted]\nthe running turn learns of it now"));
    live.end_quietly();
}

#[test]
fn ended_turn_needs_the_next_one() {
    let mut live = denied();
    live.say_plainly(&turn_completed("t", "u"));
    failed(&live.tool(&["overrule", "latest"]), 1, "the turn of this denial is over");
    refused(overrule(&live, "8adfefc5-1", &json!({})), (409, "turn_over"));
    let (call, output) = with_server(&mut live, &["overrule", "latest", "--next-turn"], "\"result\":{}");
    assert_eq!(call["params"]["event"]["id"], "8adfefc5-1");
    assert!(shown(&output).contains("codex-shim send 'try again' --thread t"), "{output:?}");
    live.end_quietly();
}

#[test]
fn denial_of_an_earlier_run_is_refused() {
    let home = denied().end_quietly();
    let live = Live::start_in(home).initialize();
    failed(&live.tool(&["overrule", "8adfefc5"]), 1, "belongs to an earlier run of the server");
    refused(overrule(&live, "8adfefc5-1", &json!({"next_turn": true})), (404, "review_not_found"));
    refused(overrule(&live, "227c7fc7-1", &json!({})), (404, "review_not_found"));
    refused(overrule(&live, "x", &json!({"next": true})), (400, "invalid_body"));
    live.end_quietly();
}

#[test]
fn search_finds_what_the_reviewer_said() {
    let mut live = denied();
    with_server(&mut live, &["overrule", "latest"], "\"result\":{}");
    let found = |text: &str| -> Vec<Value> {
        let document = told(&live.tool(&["search", "--json", "--kind", "request", text]));
        document["matches"].as_array().expect("an array").clone()
    };
    // The words of the reviewer, about both actions.
    let said = found("\"is risky\"");
    assert_eq!(said.len(), 2, "{said:#?}");
    let words = ["thread_id", "turn_id", "item_id", "kind"].map(|word| said[0][word].clone());
    assert_eq!(words, ["t", "u", "i", "request"].map(Value::from), "{said:#?}");
    assert!(said[0]["line"].as_str().is_some_and(|line| line.contains("It is risky.")), "{said:#?}");
    // Denied, approved, and overruled.
    assert_eq!(found("make").len(), 3, "{:#?}", found("make"));
    assert_eq!(found("hunter22"), Vec::<Value>::new());
    live.end_quietly();
}

#[test]
fn since_keeps_the_whole_review() {
    let mut live = denied();
    with_server(&mut live, &["overrule", "latest"], "\"result\":{}");
    let whole = live.get(REVIEWS)["reviews"][0].clone();
    let since = whole["overruled_at"].as_str().expect("it was overruled");
    assert!(since > whole["decided_at"].as_str().expect("it was decided"), "{whole:#}");
    for query in [format!("since={since}"), format!("since={since}&all=true")] {
        assert_eq!(live.get(&format!("{REVIEWS}?{query}"))["reviews"], json!([whole]), "{query}");
    }
    live.end_quietly();
}

#[test]
fn repeated_overruling_hides_no_other_review() {
    let mut live = denied();
    live.say_plainly(&reviewed("aaaaaaaa-1", "denied"));
    // A client may repeat its call.
    for id in 100..104 {
        live.send(&overruling(id, "aaaaaaaa-1"));
        live.say_plainly(&format!(r#"{{"id":{id},"result":{{}}}}"#));
    }
    let reviews = live.get(&format!("{REVIEWS}?all=true&limit=2"))["reviews"].clone();
    let told: Vec<_> = (0..2).map(|nth| (&reviews[nth]["review_id"], &reviews[nth]["reason"])).collect();
    let reason = Value::from("It is risky.");
    assert_eq!(told, [(&"227c7fc7-1".into(), &Value::Null), (&"aaaaaaaa-1".into(), &reason)], "{reviews:#}");
    let denied = live.get(&format!("{REVIEWS}?limit=2"))["reviews"].clone();
    assert_eq!([0, 1].map(|nth| &denied[nth]["reason"]), [&reason, &reason], "{denied:#}");
    live.end_quietly();
}

#[test]
fn reviews_take_valid_parameters_only() {
    let live = denied();
    for query in ["all=maybe", "since=yesterday", "limit=0", "limit=1001", "x=1"] {
        refused(live.http(&format!("GET {REVIEWS}?{query}"), b""), (400, "invalid_parameter"));
    }
    assert_eq!(live.get(&format!("{REVIEWS}?all=true&limit=1"))["reviews"][0]["review_id"], "227c7fc7-1");
    live.end_quietly();
}
