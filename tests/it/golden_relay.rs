//! Golden files of a relay that runs: every path of its control socket, and the tools that call it. The relay goes on in a session of
//! `fixtures/home-0.2`, and the test is its client and its server.

use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::golden::{Golden, Shell, a_millisecond_later, quoted};
use crate::golden_stored::{OF_TAPE, home_02, request_02, stored_02};
use crate::golden_text::{Names, Stored};
use crate::request_tools::finish;
use crate::support::both_ends::{Live, http_asked};
use crate::support::eventually;
use crate::support::requests::parsed;

const SELF: &str = "/sessions/self";

/// What the server says last before its session is read.
const MARKER: &str = "the marker";

/// The relay and its golden file.
struct Relay {
    golden: Golden,
    live: Live,
}

impl Relay {
    fn start() -> Relay {
        let home = home_02();
        let mut golden = Golden::new("relay", Some(Stored { is_live: true, ..stored_02() }));
        golden.know_home(&home);
        let mut live = Live::start_in_session(home, "work").initialize();
        golden.names.know_run(&live.generation(), "run");
        golden.names.know_number(live.relay.id(), "pid");
        live.send(r#"{"id":1,"method":"thread/resume","params":{"threadId":"thread-1"}}"#);
        live.say_plainly(
            r#"{"id":1,"result":{"thread":{"id":"thread-1","cwd":"/tmp/home-of-0.2/project","turns":[]}}}"#,
        );
        let error = json!({ "message": MARKER, "codexErrorInfo": "other" });
        live.say_plainly(
            &json!({ "method": "error", "params": { "threadId": "thread-1", "turnId": "turn-9", "willRetry": true,
            "error": error } })
            .to_string(),
        );
        // An older version has indexed the home, so the journal is read once more.
        eventually("the index", || {
            let index = live.get("/sessions/self")["index"].clone();
            (index["epoch"].is_string() && index["lag_lines"] == 0).then_some(())
        });
        Relay { golden, live }
    }

    fn get(&mut self, path: &str) {
        self.golden.ask("work", &self.live.session, &format!("GET {path}"), "");
    }

    fn post(&mut self, path: &str, body: &str) {
        self.golden.ask("work", &self.live.session, &format!("POST {SELF}/{path}"), body);
    }

    /// Answers a request; the answer may be on its way when the response is made.
    fn respond(&mut self, name: &str, body: &str) {
        self.golden.names.either(ON_ITS_WAY);
        self.post(&format!("codex-requests/{name}/respond"), body);
        self.golden.names.either(&[]);
    }

    /// The same with the tool.
    fn answering(&mut self, words: &[&str]) {
        self.golden.names.either(ON_ITS_WAY);
        self.tool(words);
        self.golden.names.either(&[]);
    }

    /// The server gets an answer, and says so.
    fn gets_answer(&mut self, name: &str) {
        let got = self.live.at_server();
        self.at_server(&got);
        self.is_settled(name);
    }

    fn is_settled(&mut self, name: &str) {
        let id = name.rsplit('-').next().expect("an id");
        self.live.row_with(name, "dispatched_at");
        self.says("serverRequest/resolved", json!({ "threadId": "thread-1", "requestId": parsed(id) }));
        self.live.row_with(name, "confirmed_at");
    }

    /// A call that the server answers: with a result for the lines that `answers` has, in their order.
    fn calls(&mut self, path: &str, body: &str, answers: &[&str]) {
        let line = format!("POST {SELF}/{path}");
        let stream = http_asked(&self.live.session, &line, body.as_bytes());
        let got = self.plays(answers);
        self.golden.answered("work", &line, body, stream);
        self.at_server(&got);
    }

    /// The server answers what it gets, and in between what codex-shim puts in front of a turn.
    fn plays(&mut self, answers: &[&str]) -> String {
        let mut got = String::new();
        for answer in answers {
            loop {
                let line = self.live.at_server();
                got.push_str(&line);
                let call = parsed(line.trim_end());
                let is_carrier = call["method"] == "thread/inject_items";
                let answer = if is_carrier { r#""result":{}"# } else { answer };
                self.live.say_unseen(&format!(r#"{{"id":{},{answer}}}"#, call["id"]));
                if !is_carrier {
                    break;
                }
            }
        }
        got
    }

    fn at_server(&mut self, lines: &str) {
        self.golden.entry("what the server gets");
        self.golden.add(lines);
    }

    fn shell(&self) -> Shell<'_> {
        Shell::beside(&self.live.home)
    }

    /// A tool that needs nothing of the server.
    fn tool(&mut self, words: &[&str]) {
        let shell = Shell::beside(&self.live.home);
        self.golden.tool(&shell, words);
    }

    fn begin(&self, words: &[&str]) -> Child {
        let mut command = self.shell().command(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tool runs")
    }

    /// A tool that calls the server; `play` is what happens there meanwhile.
    fn tool_with(&mut self, words: &[&str], play: impl FnOnce(&mut Relay) -> String) {
        let tool = self.begin(words);
        let got = play(self);
        let output = finish(tool);
        self.golden.output(&quoted(words), &output, Names::body);
        self.at_server(&got);
    }

    /// The server asks, and the client is asked.
    fn asks(&mut self, id: &str, method: &str, mut params: Value) -> String {
        params["threadId"] = json!("thread-1");
        params["turnId"] = json!("turn-9");
        let line = format!(r#"{{"method":"{method}","id":{id},"params":{params}}}"#);
        self.live.asked(&line, id)
    }

    fn asks_command(&mut self, id: &str, command: &str) -> String {
        let params = json!({ "itemId": format!("item-{id}"), "reason": "why not", "command": format!("/bin/bash -lc '{command}'"),
            "cwd": "/tmp/home-of-0.2/project", "availableDecisions": ["accept", "acceptForSession", "cancel"] });
        self.asks(id, "item/commandExecution/requestApproval", params)
    }

    fn says(&mut self, method: &str, params: Value) {
        self.live.say_plainly(&json!({ "method": method, "params": params }).to_string());
    }

    fn turn(&mut self, which: &str, turn: &str) {
        self.says(
            &format!("turn/{which}"),
            json!({ "threadId": "thread-1", "turn": { "id": turn, "status": "completed" } }),
        );
    }
}

/// Members of a request whose answer is being sent.
const ON_ITS_WAY: &[&str] = &["dispatched_at"];

const ACCEPT: &str = r#"{"decision":"accept"}"#;

fn reads(relay: &mut Relay) {
    for path in
        ["/healthz", "/metrics", SELF, "/sessions/work", "/sessions/other", "/nowhere", "/sessions/self/nowhere"]
    {
        relay.get(path);
    }
    let (command, form) = (request_02("2"), request_02("6"));
    let stored = format!("codex-requests/{command}");
    for path in [
        "context",
        "context/deliveries",
        "fragments",
        "codex-pending-requests",
        "codex-pending-requests?include_orphaned=true",
        "codex-pending-requests?all=true",
        "codex-pending-requests?all=maybe",
        &stored,
        &format!("codex-requests/{form}"),
        "codex-requests/nope",
        "activity",
        "activity-actions",
        "activity-actions?limit=3",
        "activity-actions?limit=0",
        "activity-actions?limit=201",
        "client-uses",
        "client-uses?since=2026-11-29T09:57:49Z",
        "usage",
        "usage?since=2026-11-29T09:57:49Z",
        "usage?since=yesterday",
        "codex-reviews",
        "codex-reviews?all=true&limit=1",
        "codex-reviews?all=true&since=2026-11-29T09:58:00Z",
        "codex-reviews?all=maybe",
        "codex-reviews?since=now",
        "codex-reviews?limit=0",
        "threads/thread-1/transcript",
        "threads/thread-1-agent/transcript",
        &format!("threads/{OF_TAPE}/transcript"),
        "threads/nope/transcript",
    ] {
        relay.get(&format!("{SELF}/{path}"));
    }
    let epoch = relay.live.get(SELF)["index"]["epoch"].as_str().expect("an epoch").to_owned();
    for path in [
        "codex-events?since_seq=0&limit=2",
        "codex-events?limit=1",
        "codex-events?since_seq=107",
        "codex-events?since_seq=99999999&limit=1",
        &format!("codex-events?since_seq=105&since_epoch={epoch}&limit=1"),
        "codex-events?since_seq=105&since_epoch=abc&limit=1",
        "codex-events?since_epoch=nope",
        "codex-events?since_seq=-1",
        "codex-events?limit=501",
        "codex-events?nope=1",
        "tool-events?limit=2",
        "tool-events?since_id=35",
        &format!("tool-events?since_id=30&since_epoch={epoch}&limit=1"),
        "tool-events?since_id=99999&limit=1",
        "tool-events?since_id=x",
        "turn-events?limit=2",
        "turn-events?since_id=10",
        "turn-events?since_seq=1",
    ] {
        relay.get(&format!("{SELF}/{path}"));
    }
}

fn streams(relay: &mut Relay) {
    let session = relay.live.session.clone();
    let mut read = |query: &str, last_id: Option<&str>| {
        relay.golden.stream("work", &session, (query, last_id), MARKER);
    };
    read("since_seq=104", None);
    read("since_seq=104&mode=events", Some("108"));
    read("since_seq=9999999", Some("109"));
    read("mode=raw&since_seq=108", None);
    read("mode=ui&since_seq=0", None);
    for query in ["mode=nope", "since_seq=x", "nope=1", "mode=raw&since_epoch=xyz"] {
        relay.get(&format!("{SELF}/codex-events/stream?{query}"));
    }
    relay.golden.ask("work", &session, &format!("GET {SELF}/codex-events/stream\r\nLast-Event-ID: x"), "");
    relay.golden.ask("work", &session, &format!("GET {SELF}/codex-events/stream?mode=ui\r\nLast-Event-ID: 7"), "");
}

fn refusals(relay: &mut Relay) {
    let session = relay.live.session.clone();
    let mut ask = |line: &str, body: &str| relay.golden.ask("work", &session, line, body);
    ask("POST /healthz", "{}");
    ask(&format!("DELETE {SELF}"), "");
    ask(&format!("GET {SELF}\r\nOrigin: http://shim"), "");
    ask("GET http://evil.example/healthz", "");
    for path in ["stop", "start", "attach"] {
        ask(&format!("POST {SELF}/{path}"), "{}");
    }
    ask(&format!("POST {SELF}/attach\r\nConnection: Upgrade\r\nUpgrade: codex-shim-attach"), "");
    ask(&format!("POST {SELF}/context"), &"x".repeat((1 << 20) + 1));
}

fn context(relay: &mut Relay) {
    let session = relay.live.session.clone();
    for body in [
        r#"{"cmd":"make","exit_code":2,"cwd":"/w","ts":7,"output":"no rule\n"}"#,
        r#"[{"cmd":"one","exit_code":0,"cwd":"/w","ts":8,"thread_id":"thread-1"},{"cmd":"two","exit_code":0,"cwd":"/w","ts":9}]"#,
        r#"[{"cmd":"one"},{"cmd":""}]"#,
        r#"{"cmd":"for nobody","thread_id":"nope"}"#,
        r#"{"cmd":"secret","private":true}"#,
        r#"{"command":"make"}"#,
        "make",
        "",
    ] {
        relay.post("context", body);
    }
    relay.get(&format!("{SELF}/context"));
    for command in ["5", "5", "x"] {
        relay.golden.ask("work", &session, &format!("DELETE {SELF}/context/{command}"), "");
    }
    relay.golden.ask("work", &session, &format!("DELETE {SELF}/context"), "");
    let push = ["context", "push", "--cwd", "/w", "--ts", "1000", "--cmd", "make", "--json"];
    for words in [
        &push[..],
        &["context", "show", "--json"],
        &["context", "show", "--utc"],
        &["context", "drop", "latest", "--json"],
    ] {
        relay.tool(words);
    }
}

/// The server's answer to a message that begins a turn.
fn begun(turn: &str) -> String {
    format!(r#""result":{{"turn":{{"id":"{turn}","status":"inProgress","items":[]}}}}"#)
}

const REFUSED: &str = r#""error":{"code":-32600,"message":"no such thread","data":{"why":"closed"}}"#;

fn messages(relay: &mut Relay) {
    relay.post("handover", r#"{"program":"/usr/bin/codex-shim"}"#);
    relay.post("handover", "{}");
    relay.post("interrupt", "{}");
    relay.post("interrupt", r#"{"thread_id":"nope"}"#);
    for body in ["", "[]", r#"{"text":1}"#, r#"{"text":"go","thread":"t"}"#] {
        relay.post("input", body);
    }
    let of_thread = r#"{"text":"go on","thread_id":"thread-1"}"#;
    relay.calls("input", r#"{"text":"go on","thread_id":"nope"}"#, &[REFUSED]);
    relay.calls("input", of_thread, &[REFUSED]);
    relay.calls("input", of_thread, &[&begun("turn-4")]);
    relay.turn("started", "turn-4");
    relay.calls("input", r#"{"text":"and faster"}"#, &[&begun("turn-4")]);
    // A turn that is silent for some seconds is thinking.
    eventually("a silent turn", || (relay.live.get(SELF)["state"] == "thinking").then_some(()));
    relay.get(&format!("{SELF}/activity"));
    relay.calls("interrupt", "", &[r#""result":{}"#]);
    relay.turn("completed", "turn-4");
    for body in [r#"{"method":"initialize","params":{}}"#, r#"{"params":{}}"#, r#"{"method":"model/list","timeout":1}"#]
    {
        relay.post("rpc", body);
    }
    relay.calls("rpc", r#"{"method":"model/list","params":{"limit": 1}}"#, &[r#""result":{"data":[{"id":"a"}]}"#]);
    relay.calls("rpc", r#"{"method":"model/list"}"#, &[r#""error":{"code":-1,"message":"no"}"#]);
    relay.post("rpc", r#"{"method":"slow","timeout_ms":1}"#);
    let late = relay.plays(&[r#""result":{}"#]);
    relay.at_server(&late);
    messages_of_tools(relay);
}

fn messages_of_tools(relay: &mut Relay) {
    relay.tool_with(&["send", "by the tool", "--json"], |relay| relay.plays(&[&begun("turn-5")]));
    relay.turn("started", "turn-5");
    relay.tool_with(&["send", "once more"], |relay| relay.plays(&[&begun("turn-5")]));
    relay.tool_with(&["interrupt", "--json"], |relay| relay.plays(&[r#""result":{}"#]));
    relay.turn("completed", "turn-5");
    relay.tool_with(&["send", "--wait", "--json", "--thread", "thread-1", "wait for it"], |relay| {
        let got = relay.plays(&[&begun("turn-6")]);
        relay.turn("started", "turn-6");
        let item = json!({ "type": "agentMessage", "id": "said", "text": "It is done." });
        relay.says("item/completed", json!({ "threadId": "thread-1", "turnId": "turn-6", "item": item }));
        relay.turn("completed", "turn-6");
        got
    });
    for words in [
        &["wait", "--for", "idle", "--json"][..],
        &["wait", "--for", "pending", "--timeout", "1ms", "--json"],
        &["interrupt", "--json"],
        &["send", "", "--json"],
        &["send", "hi", "--thread", "nope", "--json"],
    ] {
        relay.tool(words);
    }
    relay.tool_with(&["send", "refused", "--thread", "thread-1", "--json"], |relay| relay.plays(&[REFUSED]));
}

fn answers(relay: &mut Relay) {
    relay.turn("started", "turn-9");
    let first = relay.asks_command("20", "rm -rf build");
    relay.get(&format!("{SELF}/codex-pending-requests"));
    relay.get(&format!("{SELF}/codex-requests/{first}"));
    relay.get(SELF);
    for words in [
        &["status"][..],
        &["status", "--json"],
        &["sessions", "--json"],
        &["sessions", "--utc"],
        &["children", "--json"],
        &["children"],
        &["requests", "--json"],
        &["requests"],
        &["requests", "--here", "--json"],
        &["show", "--json"],
        &["show"],
        &["wait", "--for", "pending", "--json"],
        &["send", "not now", "--json"],
    ] {
        relay.tool(words);
    }
    relay.post("input", r#"{"text":"not now"}"#);
    for body in
        ["", "yes", "[]", r#"{"decision":"perhaps"}"#, r#"{"answers":{}}"#, r#"{"decision":"accept","reason":"so"}"#]
    {
        relay.respond(&first, body);
    }
    relay.respond("nope", ACCEPT);
    relay.respond(&first, ACCEPT);
    relay.gets_answer(&first);
    relay.respond(&first, ACCEPT);
    relay.respond(&first, r#"{"decision":"cancel"}"#);
    relay.get(&format!("{SELF}/codex-requests/{first}"));
    forms(relay);
    answers_of_tools(relay);
}

fn answers_of_tools(relay: &mut Relay) {
    let name = relay.asks_command("30", "make");
    relay.answering(&["respond", &name, "accept", "--json"]);
    relay.gets_answer(&name);
    relay.answering(&["respond", &name, "decline", "--json"]);
    let name = relay.asks_command("31", "make");
    relay.tool(&["respond", "latest", "--answer", "color=Red", "--json"]);
    relay.tool(&["respond", "latest", "--json", r#"{"decision":"perhaps"}"#]);
    relay.tool(&["respond", "nope", "accept", "--json"]);
    relay.answering(&["respond", "latest", "decline", "--reason", "not yet", "--json"]);
    let answer = relay.live.at_server();
    let steer = relay.plays(&[r#""result":{"turnId":"turn-9"}"#]);
    relay.at_server(&(answer + &steer));
    relay.is_settled(&name);
    relay.tool(&["show", &name, "--utc"]);
    let name = relay.asks_command("32", "make");
    relay.answering(&["respond", "latest", "--json", ACCEPT]);
    relay.gets_answer(&name);
    let name = relay.asks_command("33", "make");
    relay.answering(&["respond", "latest", "accept-for-session"]);
    relay.gets_answer(&name);
}

/// Questions, forms and permissions.
fn forms(relay: &mut Relay) {
    let options = json!([{ "label": "Red", "description": "red" }, { "label": "Blue", "description": "blue" }]);
    let questions = json!([{ "id": "color", "header": "Color", "question": "Which?", "isOther": false, "isSecret": false, "options": options }]);
    let question = json!({ "itemId": "item-q", "questions": questions, "isBlocking": true, "autoResolutionMs": null });
    let name = relay.asks("21", "item/tool/requestUserInput", question);
    relay.tool(&["show", &name, "--json"]);
    for body in [ACCEPT, r#"{"answers":{"size":"L"}}"#, r#"{"answers":{"color":["Red","Blue"]}}"#] {
        relay.respond(&name, body);
    }
    relay.answering(&["respond", &name, "--answer", "color=Red", "--json"]);
    relay.gets_answer(&name);
    let schema = json!({ "type": "object", "required": ["name", "size"], "properties": {
        "name": { "type": "string", "minLength": 2 }, "size": { "type": "integer", "maximum": 9 } } });
    let form = json!({ "serverName": "lab", "mode": "form", "message": "Your name?", "requestedSchema": schema });
    let name = relay.asks("22", "mcpServer/elicitation/request", form);
    for body in
        [r#"{"action":"accept","content":{"name":"A","size":10}}"#, r#"{"action":"accept"}"#, r#"{"action":"maybe"}"#]
    {
        relay.respond(&name, body);
    }
    relay.respond(&name, r#"{"action":"accept","content":{"name":"Ada","size":9}}"#);
    relay.gets_answer(&name);
    let permissions = json!({ "itemId": "item-p", "reason": "why", "permissions": { "network": { "enabled": true } } });
    let name = relay.asks("23", "item/permissions/requestApproval", permissions);
    relay.respond(&name, r#"{"permissions":{"fileSystem":{"write":["/"]}},"scope":"turn"}"#);
    relay.respond(&name, r#"{"decision":"decline"}"#);
    relay.gets_answer(&name);
}

fn denials(relay: &mut Relay) {
    for (id, turn) in [("denied-1", "turn-9"), ("denied-2", "turn-9"), ("denied-3", "turn-9")] {
        // Those of one millisecond come in another order.
        a_millisecond_later();
        let action = json!({ "type": "command", "source": "unifiedExec", "command": "/bin/bash -lc 'make install'", "cwd": "/w" });
        let review =
            json!({ "status": "denied", "riskLevel": "high", "userAuthorization": "low", "rationale": "It is risky." });
        relay.says("item/autoApprovalReview/completed", json!({ "threadId": "thread-1", "turnId": turn, "startedAtMs": 1000,
            "completedAtMs": 1250, "reviewId": id, "targetItemId": "item-d", "decisionSource": "agent", "review": review,
            "action": action }));
    }
    relay.get(&format!("{SELF}/codex-reviews"));
    let overrule = |id: &str| format!("codex-reviews/{id}/overrule");
    relay.post(&overrule("nope"), "");
    relay.post(&overrule("00000000-0000-7000-8000-000000000005"), "{}");
    relay.post(&overrule("denied-1"), r#"{"next":true}"#);
    relay.calls(&overrule("denied-1"), "{}", &[r#""result":{}"#]);
    relay.post(&overrule("denied-1"), "{}");
    relay.tool_with(&["overrule", "denied-2", "--json"], |relay| relay.plays(&[r#""result":{}"#]));
    relay.turn("completed", "turn-9");
    relay.post(&overrule("denied-3"), "");
    relay.tool(&["overrule", "denied-3", "--json"]);
    relay.tool_with(&["overrule", "latest", "--next-turn", "--json"], |relay| relay.plays(&[r#""result":{}"#]));
    relay.tool(&["reviews", "work", "--json"]);
}

#[test]
fn relay_answers_as_before() {
    let mut relay = Relay::start();
    reads(&mut relay);
    streams(&mut relay);
    refusals(&mut relay);
    context(&mut relay);
    messages(&mut relay);
    answers(&mut relay);
    denials(&mut relay);
    for words in [
        &["events", "--since", "115", "--json"][..],
        &["tail", "-n", "12", "--json"],
        &["usage", "--by", "session", "--json"],
    ] {
        relay.tool(words);
    }
    let Relay { golden, live } = relay;
    live.kill();
    golden.check();
}
