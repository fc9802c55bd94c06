//! `codex-shim tui --fleet` and `web --fleet`: the sessions of two hosts with a real NATS server.

use serde_json::{Value, json};

use crate::support::both_ends::Live;
use crate::support::eventually;
use crate::support::fleet::{Agent, Console, Fleet};
use crate::support::page::{Browser, Page};
use crate::support::requests::{change_asked, command_asked, parsed, question_asked};
use crate::support::shim::Home;
use crate::support::tmux::Tmux;

/// A message of the assistant.
fn said(text: &str) -> String {
    let item = json!({ "id": "m", "type": "agentMessage", "text": text });
    json!({ "method": "item/completed", "params": { "threadId": "t", "turnId": "u1", "item": item } }).to_string()
}

/// Two hosts, one at each level; each has a session.
struct Hosts {
    fleet: Fleet,
    full: Live,
    summary: Live,
}

impl Hosts {
    fn start(test: &str) -> Option<Hosts> {
        let fleet = Fleet::start(test)?;
        let full = Live::start_in(fleet.host(7, "full")).in_turn();
        let summary = Live::start_in(fleet.host(8, "summary")).initialize();
        Some(Hosts { fleet, full, summary })
    }
}

#[test]
fn terminal_ui_shows_and_answers_all_hosts() {
    let test = "terminal_ui_shows_and_answers_all_hosts";
    let Some(Hosts { fleet, mut full, summary }) = Hosts::start(test) else { return };
    let agent = Agent::start(&full.home);
    let _other = Agent::start(&summary.home);
    eventually("both hosts", || {
        let rows = fleet.ann.document(&["sessions", "--json"]);
        rows["sessions"].as_array().is_some_and(|rows| rows.len() == 2).then_some(())
    });
    full.say_plainly(&said("It ran on seven."));
    let Some(tmux) = Tmux::tui(test, &fleet.ann.0, "--fleet") else { return };
    tmux.shows_all(&["build-7/", "build-8/", "2 sessions"]);

    // The request is answered with the keys of the local view, in the name of the user.
    let first = full.asked(&command_asked("7", "t"), "7");
    tmux.shows("1 request waits");
    tmux.keys(&["C-n"]);
    tmux.shows_a_while(" a  accept");
    tmux.shows("build-7/");
    tmux.keys(&["a"]);
    assert_eq!(parsed(full.at_server().trim_end()), json!({ "id": 7, "result": { "decision": "accept" } }));
    assert_eq!(full.row_with(&first, "resolved_by")["resolved_by"], "fleet:ann@build-7");
    tmux.shows_all(&[" chat  Enter sends", "It ran on seven."]);
    full.say_plainly(r#"{"method":"serverRequest/resolved","params":{"threadId":"t","requestId":7}}"#);

    // What happens now is in the timeline, and a message reaches the model.
    full.say_plainly(&said("And it ran again."));
    tmux.shows("And it ran again.");
    tmux.sends("go on");
    let call = parsed(full.at_server().trim_end());
    assert_eq!(call["params"]["input"][0]["text"], "go on");
    full.say_unseen(&json!({ "id": call["id"], "result": { "turn": { "id": "u1" } } }).to_string());

    // A host that is away is named, and cannot be answered.
    let second = full.asked(&command_asked("9", "t"), "9");
    tmux.shows("Enter sends nothing: a request is pending");
    tmux.keys(&["C-r"]);
    tmux.shows_a_while(" a  accept");
    agent.kill();
    tmux.shows("host build-7 is offline since");
    tmux.keys(&["a"]);
    tmux.shows("nothing was sent");
    assert_eq!(full.row(&second)["status"], "pending");
    let _agent = Agent::start(&full.home);
    tmux.shows_no("offline since");
    full.kill();
    summary.kill();
}

/// The inbox once it has so many requests.
fn inbox(browser: &Browser, count: usize) -> Value {
    eventually("the requests", || {
        let inbox = browser.get("/inbox");
        (inbox["requests"].as_array().is_some_and(|all| all.len() == count)).then_some(inbox)
    })
}

fn of_host<'a>(rows: &'a Value, host: &str) -> &'a Value {
    let rows = rows.as_array().expect("a list");
    rows.iter().find(|row| row["host"] == host).unwrap_or_else(|| panic!("{rows:?}"))
}

#[test]
fn page_shows_and_answers_all_hosts() {
    let test = "page_shows_and_answers_all_hosts";
    let Some(Hosts { fleet, mut full, mut summary }) = Hosts::start(test) else { return };
    let agent = Agent::start(&full.home);
    let _other = Agent::start(&summary.home);
    full.say_plainly(&said("It ran on seven."));
    let first = full.asked(&command_asked("7", "t"), "7");
    let change = summary.asked(&change_asked("1"), "1");
    let page = Page::start(&fleet.ann.0, &["--fleet"]);
    let browser = page.browser();
    let all = inbox(&browser, 2);
    let (seven, eight) = (of_host(&all["requests"], "build-7"), of_host(&all["requests"], "build-8"));
    assert_eq!((&seven["session"], &seven["request_id"]), (&json!("build-7/s"), &json!(first)));
    assert!(
        seven["warnings"].as_array().is_some_and(|all| all.iter().all(|text| !text.to_string().contains("summary")))
    );
    assert!(eight["warnings"].to_string().contains("only a summary"), "{eight}");
    let accept = |request: &Value| {
        let all = request["choices"].as_array().expect("a list").iter();
        all.clone().find(|choice| choice["word"] == "accept").expect("it can be accepted").clone()
    };
    // A change that nobody sees here takes a second tap.
    assert!(
        accept(eight)["confirm"].is_string()
            && seven["how"].as_str().is_some_and(|how| how.contains("fleet respond build-7/s/"))
    );
    assert_eq!(of_host(&all["sessions"], "build-8")["id"], "build-8/s");

    let (status, told) = browser.respond("build-7%2Fs", &first, &json!({ "body": { "decision": "accept" } }));
    assert_eq!((status, &told["won"], &told["place"]), (200, &json!(true), &json!("by ann@build-7")), "{told}");
    full.at_server();
    let (_, told) = browser.respond("build-7%2Fs", &first, &json!({ "reason": "too late" }));
    assert_eq!(told["won"], false, "{told}");
    let (status, told) = browser.respond("build-8%2Fs", &change, &json!({ "body": { "decision": "decline" } }));
    assert_eq!((status, &told["won"]), (200, &json!(true)), "{told}");
    summary.at_server();

    let timeline = eventually("the timeline", || {
        let timeline = browser.get("/sessions/build-7%2Fs/timeline");
        timeline.to_string().contains("It ran on seven.").then_some(timeline)
    });
    let entries = timeline["entries"].as_array().expect("a list");
    let message = entries.iter().find(|entry| entry["kind"] == "codex").expect("a message");
    let again = browser.get(&format!("/sessions/build-7%2Fs/entry?key={}", message["key"].as_str().expect("a key")));
    assert_eq!(again["body"], "It ran on seven.");
    let first_key = entries[0]["key"].as_str().expect("a key");
    let older = browser.get(&format!("/sessions/build-7%2Fs/timeline?before={first_key}"));
    assert_eq!((&older["entries"], &older["has_older"]), (&json!([]), &json!(false)));
    let mut stream = browser.stream("/stream?session=build-8%2Fs", None);
    assert!(stream.wait_for("timeline").to_string().contains("sends only summaries"));

    // A question at the level `summary` cannot be answered: its texts are not here.
    let question = summary.asked(&question_asked("2", false), "2");
    eventually("the question", || {
        let inbox = browser.get("/inbox");
        let rows = inbox["requests"].as_array()?;
        rows.iter().any(|row| row["request_id"] == json!(question)).then_some(())
    });
    let (status, told) = browser.respond("build-8%2Fs", &question, &json!({ "answers": { "color": ["Red"] } }));
    assert!((400..500).contains(&status), "{told}");
    assert_eq!(summary.row(&question)["status"], "pending");

    // A viewer may look and not answer.
    let ben = Console(Home::new());
    fleet.nats.configures(&ben.0, "ben", "user = \"ben\"\n");
    let second = full.asked(&command_asked("9", "t"), "9");
    let of_ben = Page::start(&ben.0, &["--fleet", "--session", "build-7/s"]);
    let viewer = of_ben.browser();
    assert_eq!(inbox(&viewer, 1)["requests"][0]["request_id"], json!(second));
    let answered = viewer.asked(
        "POST",
        &format!("/sessions/build-7%2Fs/requests/{second}/respond"),
        r#"{"body":{"decision":"accept"}}"#,
    );
    assert_eq!(answered.error(), (403, "fleet_refused".to_owned()));

    agent.kill();
    let away = eventually("a host that is offline", || {
        let all = browser.get("/inbox");
        let words = of_host(&all["sessions"], "build-7")["words"].as_str().unwrap_or_default().to_owned();
        words.contains("host build-7 is offline since").then_some(words)
    });
    assert!(away.contains("1 request waits there"), "{away}");
    let (status, told) = browser.respond("build-7%2Fs", &second, &json!({ "body": { "decision": "accept" } }));
    assert_eq!((status, &told["detail"]["error_code"]), (502, &json!("session_silent")), "{told}");
    assert!(told["detail"]["message"].as_str().is_some_and(|text| text.contains("is offline since")), "{told}");
    assert_eq!(full.row(&second)["status"], "pending");
    full.kill();
    summary.kill();
}

/// The values that a shell offers for the last of these words.
fn offered(console: &Console, words: &[&str]) -> Vec<String> {
    let mut command = console.0.shim(&[&["--", "codex-shim", "fleet"], words].concat());
    let output = command.env("CODEX_SHIM_COMPLETE", "fish").output().expect("the shim starts");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let lines = String::from_utf8(output.stdout).expect("it is text");
    lines.lines().map(|line| line.split('\t').next().expect("a value").to_owned()).collect()
}

#[test]
fn shell_completes_hosts_sessions_and_requests() {
    let test = "shell_completes_hosts_sessions_and_requests";
    let Some(Hosts { mut fleet, mut full, summary }) = Hosts::start(test) else { return };
    let _agents = [Agent::start(&full.home), Agent::start(&summary.home)];
    let id = full.asked(&command_asked("7", "t"), "7");
    // A slow machine may need more than the time that a person has.
    eventually("the request", || {
        (offered(&fleet.ann, &["show", "build-7/"]) == [format!("build-7/{id}")]).then_some(())
    });
    eventually("the sessions", || {
        (offered(&fleet.ann, &["send", "build-"]) == ["build-7/s", "build-8/s"]).then_some(())
    });
    eventually("the hosts", || (offered(&fleet.ann, &["tail", "build"]) == ["build-7", "build-8"]).then_some(()));
    fleet.nats.server.kill();
    assert_eq!(offered(&fleet.ann, &["show", "build-7/"]), [""; 0]);
    full.kill();
    summary.kill();
}
