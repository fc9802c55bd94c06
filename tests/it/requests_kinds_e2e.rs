//! The rarer requests of the real codex: an elicitation of an MCP server, wider permissions, a question for a secret.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::eventually;
use crate::support::model::Item;
use crate::support::real::{QUESTION, Real, says};
use crate::support::release::{Ability, Release};
use crate::support::requests::{assert_nowhere, parsed, refused};

const ELICITATION: &str = "mcpServer/elicitation/request";
const PERMISSIONS: &str = "item/permissions/requestApproval";

/// An MCP server with one tool, which asks the user before it answers. It writes all its input to `$1`.
const SERVER: &str = r#"
while IFS= read -r line; do
  printf '%s\n' "$line" >>"$1"
  id=${line#*'"id":'}; id=${id%%[,\}]*}
  case $line in
    *'"method":"initialize"'*)
      printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"lab","version":"1"}}}\n' "$id" ;;
    *'"method":"tools/list"'*)
      printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"confirm","description":"asks","inputSchema":{"type":"object","properties":{}}}]}}\n' "$id" ;;
    *'"method":"tools/call"'*)
      call=$id
      printf '{"jsonrpc":"2.0","id":"asked","method":"elicitation/create","params":{"message":"Your name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}}\n' ;;
    *'"method":'*) ;;
    *'"id":"asked"'*)
      printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"told"}]}}\n' "$call" ;;
  esac
done
"#;

/// Answers in one of the two ways: by the client, or through the API.
fn answer(real: &mut Real, by_client: bool, (asked, row): &(Value, Value), of_client: &Value, at_side: &Value) {
    match by_client {
        true => real.peer.answer(asked, of_client.clone()),
        false => real.responded(row, at_side),
    }
}

/// Checks that a row ends with an answer that the server has confirmed; returns its payload.
fn resolved(real: &Real, row: &Value, by_client: bool) -> Value {
    let row = real.confirmed(row);
    let told = ["status", "resolution_source", "error_code", "late"].map(|name| row[name].clone());
    let source = if by_client { "client" } else { "api" };
    assert_eq!(told, [json!("resolved"), json!(source), Value::Null, json!(false)], "{row:#}");
    assert!(row["dispatched_at"].is_string(), "{row:#}");
    row["resolved_payload"].clone()
}

/// The output of the tool, as the model received it.
fn output(real: &Real) -> String {
    let asked = real.model.requests();
    let input = asked.last().expect("the model was asked")["input"].as_array().expect("an array").clone();
    let output = input.iter().rev().find(|item| item["type"] == "function_call_output");
    output.unwrap_or_else(|| panic!("no output: {input:#?}"))["output"].to_string()
}

fn check_elicitation(test: &str, by_client: bool) {
    if Release::under_test().lacks(test, Ability::Elicitation) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (script, told) = (folder.path().join("server.sh"), folder.path().join("told"));
    fs::write(&script, SERVER).expect("a file");
    let of_codex = format!("[mcp_servers.lab]\ncommand = \"sh\"\nargs = [{script:?}, {told:?}]\n");
    let call = Release::under_test().mcp_tool();
    let Some(mut real) = Real::start_with(test, "", &of_codex, vec![vec![call], says()]) else { return };
    // The request to call the tool at all has the same kind.
    let first = real.asked_by_turn(ELICITATION);
    assert!(first.1["summary"].as_str().is_some_and(|summary| summary.contains("confirm")), "{:#}", first.1);
    let yes = json!({"action": "accept", "content": {}});
    answer(&mut real, by_client, &first, &json!({"action": "accept", "content": {}, "_meta": null}), &yes);
    let second = real.asked(ELICITATION);
    let row = &second.1;
    let told_of = ["request_type", "request_method", "summary", "item_id"].map(|name| row[name].clone());
    assert_eq!(told_of, [json!("request_elicitation"), json!(ELICITATION), json!("lab: Your name?"), Value::Null]);
    assert_eq!(row["available_decisions"], json!(["accept", "decline", "cancel"]));
    let schema = &row["request_payload"]["requestedSchema"];
    assert_eq!((&schema["properties"]["name"]["type"], &schema["required"]), (&json!("string"), &json!(["name"])));
    // An answer that does not fit the schema is rejected.
    let short = json!({"action": "accept", "content": {}});
    refused(real.respond(row, &short), (422, "invalid_response"));
    let of_client = json!({"action": "accept", "content": {"name": "Ada"}, "_meta": null});
    let at_side = json!({"action": "accept", "content": {"name": "Ada"}});
    answer(&mut real, by_client, &second, &of_client, &at_side);
    real.completed("completed");
    for (asked, name) in [(&first, None), (&second, Some("Ada"))] {
        let payload = resolved(&real, &asked.1, by_client);
        assert_eq!((&payload["action"], payload["content"]["name"].as_str()), (&json!("accept"), name));
    }
    let told = fs::read_to_string(told).expect("the server was told something");
    let got: Vec<Value> = told.lines().map(parsed).filter(|line| line["id"] == "asked").collect();
    assert_eq!(got.len(), 1, "{told}");
    assert_eq!(
        (&got[0]["result"]["action"], &got[0]["result"]["content"]),
        (&json!("accept"), &json!({"name": "Ada"})),
        "{told}"
    );
    assert!(output(&real).contains("told"));
    real.end();
}

#[test]
fn e2e_requests_of_an_mcp_server_are_answered_by_the_client() {
    check_elicitation("e2e_requests_of_an_mcp_server_are_answered_by_the_client", true);
}

#[test]
fn e2e_requests_of_an_mcp_server_are_answered_at_the_side() {
    check_elicitation("e2e_requests_of_an_mcp_server_are_answered_at_the_side", false);
}

/// An MCP server with one tool, which asks nothing itself.
fn tool_server(folder: &Path) -> String {
    let script = folder.join("server.sh");
    let asks = SERVER.find("      call=$id").expect("the tool's line");
    let ends = SERVER.find("    *'\"method\":'*)").expect("the next line");
    let says =
        r#"      printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"told"}]}}\n' "$id" ;;"#;
    fs::write(&script, format!("{}{says}\n{}", &SERVER[..asks], &SERVER[ends..])).expect("a file");
    format!("[mcp_servers.lab]\ncommand = \"sh\"\nargs = [{script:?}, {:?}]\n", folder.join("told"))
}

#[test]
fn e2e_requests_of_a_tool_are_accepted_for_longer() {
    let test = "e2e_requests_of_a_tool_are_accepted_for_longer";
    if Release::under_test().lacks(test, Ability::Elicitation) {
        return;
    }
    for persist in ["session", "always"] {
        let folder = tempfile::tempdir().expect("a folder");
        let call = || vec![Release::under_test().mcp_tool()];
        let Some(mut real) = Real::start_with(test, "", &tool_server(folder.path()), vec![call(), call(), says()])
        else {
            return;
        };
        let (_, row) = real.asked_by_turn(ELICITATION);
        let meta = &row["request_payload"]["_meta"];
        let offers = meta["persist"].as_array().is_some_and(|offers| offers.contains(&json!(persist)));
        if !offers {
            // An early release; it must not be sent what it does not offer.
            refused(real.respond(&row, &json!({"action": "accept", "persist": persist})), (422, "invalid_response"));
            real.end();
            return;
        }
        refused(real.respond(&row, &json!({"action": "accept", "persist": "ever"})), (422, "invalid_response"));
        real.responded(&row, &json!({"action": "accept", "persist": persist}));
        // The second call asks nothing.
        real.completed("completed");
        assert_eq!(resolved(&real, &row, false)["_meta"], json!({"persist": persist}));
        let asked = real.peer.seen.iter().filter(|message| message["method"] == ELICITATION).count();
        assert_eq!(asked, 1, "{persist}");
        real.end();
    }
}

fn check_permissions(test: &str, by_client: bool, granted: &Value, model_sees: &[&str]) {
    if Release::under_test().lacks(test, Ability::Permissions) {
        return;
    }
    let arguments = json!({"reason": "to fetch", "permissions": {"network": {"enabled": true}}});
    let script = vec![vec![Item::Call { name: "request_permissions", arguments }], says()];
    let Some(mut real) = Real::start_with(test, "", "request_permissions_tool = true\n", script) else { return };
    let asked = real.asked_by_turn(PERMISSIONS);
    let row = &asked.1;
    let told = ["request_type", "request_method", "summary"].map(|name| row[name].clone());
    assert_eq!(told, ["request_permissions", PERMISSIONS, "allow network access (to fetch)"].map(Value::from));
    assert_eq!(row["request_payload"]["permissions"]["network"], json!({"enabled": true}));
    assert!(row["item_id"].is_string() && row["turn_id"].is_string(), "{row:#}");
    answer(&mut real, by_client, &asked, granted, granted);
    real.completed("completed");
    assert_eq!(resolved(&real, row, by_client), *granted);
    let output = output(&real);
    assert!(model_sees.iter().all(|words| output.contains(words)), "{output}");
    real.end();
}

#[test]
fn e2e_requests_for_permissions_are_granted_by_the_client() {
    let granted = json!({"permissions": {"network": {"enabled": true}}, "scope": "turn"});
    check_permissions("e2e_requests_for_permissions", true, &granted, &[r#"\"enabled\":true"#, r#"\"turn\""#]);
}

#[test]
fn e2e_requests_for_permissions_are_granted_at_the_side() {
    let granted = json!({"permissions": {"network": {"enabled": true}}, "scope": "session"});
    check_permissions("e2e_requests_for_permissions", false, &granted, &[r#"\"enabled\":true"#, r#"\"session\""#]);
}

#[test]
fn e2e_requests_for_permissions_are_refused_at_the_side() {
    let none = json!({"permissions": {}, "scope": "turn"});
    check_permissions("e2e_requests_for_permissions", false, &none, &[r#"\"network\":null"#]);
}

const SECRET: &str = "hunter2-is-nowhere";

/// codex does not offer `isSecret` in the tool, but accepts it from a model.
///
/// The client requests raw items: codex sends it the answer in one of them.
fn check_secret(test: &str, by_client: bool) {
    if Release::under_test().lacks(test, Ability::Questions) {
        return;
    }
    let questions = json!([{"id": "key", "header": "Key", "question": "Which key?", "isSecret": true,
        "options": [{"label": "None", "description": "without"}, {"label": "Mine", "description": "with"}]}]);
    let script =
        vec![vec![Item::Call { name: "request_user_input", arguments: json!({"questions": questions}) }], says()];
    let Some(mut real) = Real::start(test, "", script) else { return };
    let params = json!({"cwd": real.lab.cwd(), "approvalPolicy": "on-request", "experimentalRawEvents": true});
    let thread = real.peer.call("thread/start", params)["thread"]["id"].as_str().expect("an id").to_owned();
    real.thread = thread.clone();
    let asked = real.asked_by_turn(QUESTION);
    assert_eq!(asked.1["request_payload"]["questions"][0]["isSecret"], true);
    let of_client = json!({"answers": {"key": {"answers": [SECRET]}}});
    answer(&mut real, by_client, &asked, &of_client, &json!({"answers": {"key": SECRET}}));
    real.completed("completed");
    let release = real.lab.release;
    let kept = match release.has(Ability::Confirmation) {
        true => resolved(&real, &asked.1, by_client),
        false => eventually("its end", || Some(real.row(&asked.1)).filter(|row| row["status"] != "pending"))
            ["resolved_payload"]
            .clone(),
    };
    assert_eq!(kept, json!({"omitted": "secret"}));
    assert!(output(&real).contains(SECRET));
    let told = real.peer.seen.iter().filter(|message| message.to_string().contains(SECRET));
    let told: BTreeSet<&str> = told.filter_map(|message| message["method"].as_str()).collect();
    let early = (!release.has(Ability::Confirmation)).then_some("codex/event/raw_response_item");
    assert_eq!(told, early.into_iter().chain(["rawResponseItem/completed"]).collect());
    // Other methods that might return the secret.
    for method in ["thread/read", "thread/resume", "thread/turns/list"] {
        if method == "thread/turns/list" && !release.has(Ability::Confirmation) {
            continue;
        }
        real.peer.call(method, json!({"threadId": thread, "includeTurns": true}));
    }
    // A late answer.
    let (status, document) = real.respond(&asked.1, &json!({"answers": {"key": SECRET}}));
    assert_eq!((status, &document["idempotent"]), (200, &json!(true)), "{document}");
    assert_nowhere(&real.home.path(), SECRET);
    let Real { peer, home, .. } = real;
    peer.finish();
    assert_nowhere(&home.path(), SECRET);
}

#[test]
fn e2e_requests_for_a_secret_that_the_client_tells_are_kept_without_it() {
    check_secret("e2e_requests_for_a_secret_that_the_client_tells", true);
}

#[test]
fn e2e_requests_for_a_secret_that_is_told_at_the_side_are_kept_without_it() {
    check_secret("e2e_requests_for_a_secret_that_is_told_at_the_side", false);
}
