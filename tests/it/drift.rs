//! `codex-shim drift` with programs that write the schemas of a test.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::both_ends::Live;
use crate::support::hub::Hub;
use crate::support::shim::put_program;
use crate::support::websocket::FAKE_VERSION;

/// A protocol with these calls, and these requests to clients.
struct Protocol {
    calls: Value,
    asks: Value,
}

impl Protocol {
    fn file(messages: &Value) -> String {
        let message = |(method, params): (&String, &Value)| json!({"properties": {"method": {"enum": [method]}, "params": params}});
        json!({"oneOf": messages.as_object().unwrap().iter().map(message).collect::<Vec<_>>()}).to_string()
    }

    /// A codex of this version with this protocol.
    fn program(&self, folder: &Path, version: &str) -> PathBuf {
        let folder = folder.join(version);
        fs::create_dir_all(&folder).unwrap();
        let calls = Protocol::file(&self.calls);
        let asks = Protocol::file(&self.asks);
        let tells = Protocol::file(&json!({"told": {}}));
        for (name, text) in [("ClientRequest", calls), ("ServerRequest", asks), ("ServerNotification", tells)] {
            fs::write(folder.join(format!("{name}.json")), text).unwrap();
        }
        let program = folder.join("codex");
        let script = format!(
            "#!/bin/sh\nfor word; do last=$word; done\ncase $1 in\n--version) echo 'codex-cli {version}' ;;\napp-server) cp '{0}'/*.json \"$last\" ;;\nesac\n",
            folder.display()
        );
        put_program(&program, script.as_bytes());
        program
    }
}

fn older() -> Protocol {
    let policy = json!({"enum": ["never", "on-failure"]});
    Protocol {
        calls: json!({
            "initialize": {}, "getUserAgent": {},
            "thread/start": {"type": "object", "properties": {"approvalPolicy": policy, "model": {"type": "string"}}},
        }),
        asks: json!({"ask": {}}),
    }
}

fn newer() -> Protocol {
    let policy = json!({"enum": ["never"]});
    Protocol {
        calls: json!({
            "initialize": {},
            "thread/start": {"type": "object", "properties": {"approvalPolicy": policy}},
            "thread/wish": {"type": "object", "properties": {"prompt": {"type": "string"}}},
        }),
        asks: json!({"ask": {}, "ask/more": {}}),
    }
}

/// A relay whose client has made some calls.
fn used() -> Live {
    let mut live = Live::start();
    let info = json!({"name": "editor", "version": "1.2"});
    live.send(&json!({"id": 0, "method": "initialize", "params": {"clientInfo": info}}).to_string());
    live.send(&json!({"id": 1, "method": "getUserAgent"}).to_string());
    let params = json!({"approvalPolicy": "on-failure", "model": "m", "own": {"secret words": 1}, "config": {"secretWords": 1}, "value": {"mode": "hunter2"}});
    live.send(&json!({"id": 2, "method": "thread/start", "params": params}).to_string());
    live.say_plainly(&json!({"id": 7, "method": "ask", "params": {}}).to_string());
    live.send(&json!({"id": 7, "result": {"decision": "accept"}}).to_string());
    live
}

/// The output of `drift` with this codex in use, and the exit status.
fn drift(live: &Live, own: &Path, words: &[&str]) -> (String, String, Option<i32>) {
    let words = [&["drift"], words].concat();
    let output = live.home.shim(&words).env("CODEX_SHIM_CODEX", own).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

#[test]
fn drift_names_what_another_codex_refuses() {
    let live = used();
    let (own, other) = (older().program(live.home.beside(), "0.1.0"), newer().program(live.home.beside(), "0.2.0"));
    let other = other.to_str().unwrap();
    let (told, said, status) = drift(&live, &own, &["--codex", other, "--json"]);
    assert_eq!(status, Some(1), "{said}");
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["from"], &told["to"]), (&json!("0.1.0"), &json!("0.2.0")));
    let brief = |finding: &Value| {
        let [client, kind, method] =
            ["client", "kind", "method"].map(|name| finding[name].as_str().unwrap().to_owned());
        (client, kind, method, finding["member"].clone(), finding["value"].clone(), finding["count"].clone())
    };
    let of = |client: &str, kind: &str, method: &str, member: Value, value: Value, count: u64| {
        (client.to_owned(), kind.to_owned(), method.to_owned(), member, value, json!(count))
    };
    let (none, policy) = (Value::Null, json!("approvalPolicy"));
    assert_eq!(
        told["findings"].as_array().unwrap().iter().map(brief).collect::<Vec<_>>(),
        [
            of("editor", "rejected", "getUserAgent", none.clone(), none.clone(), 1),
            of("editor", "rejected", "thread/start", policy, json!("on-failure"), 1),
            of("editor", "unanswered", "ask/more", none.clone(), none.clone(), 0),
            of("editor", "ignored", "thread/start", json!("model"), none.clone(), 1),
            of("", "unknown_to_us", "thread/wish", none.clone(), none.clone(), 0),
            of("", "unknown_to_us", "ask/more", none.clone(), none, 0),
        ],
        "{told:#}"
    );
    let (told, ..) = drift(&live, &own, &["--codex", other]);
    for words in [
        "codex 0.1.0 → 0.2.0",
        "editor 1.2: 2 calls fail, 1 thing may matter",
        "approvalPolicy = on-failure",
        "takes never",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    // An unknown client has no findings.
    let (told, _, status) = drift(&live, &own, &["--codex", other, "--client", "bot", "--json"]);
    assert!(status == Some(0) && !told.contains("rejected"), "{told}");
    // A codex named by `--codex` does not become the earlier version.
    let (told, said, status) = drift(&live, &own, &["--json"]);
    assert!(status == Some(0) && told.contains(r#""from":null"#), "{told} {said}");
    // Names and values chosen by clients are not stored.
    let uses = live.get("/sessions/self/client-uses").to_string();
    assert!(uses.contains("thread/start") && uses.contains("own"), "{uses}");
    assert!(["secret words", "secretWords", "hunter2"].iter().all(|words| !uses.contains(words)), "{uses}");
    live.kill();
}

#[test]
fn protocols_are_kept_for_the_day_on_which_codex_was_replaced() {
    let live = used();
    let own = older().program(live.home.beside(), "0.1.0");
    // Nothing to compare with.
    let (told, said, status) = drift(&live, &own, &[]);
    assert!(status == Some(0) && told.contains("codex 0.1.0"), "{told}");
    assert!(said.contains("no protocol of an earlier codex is known"), "{said}");
    fs::rename(newer().program(live.home.beside(), "0.2.0"), &own).unwrap();
    let (told, _, status) = drift(&live, &own, &[]);
    assert!(status == Some(1) && told.contains("codex 0.1.0 → 0.2.0"), "{told}");
    // A version that was seen needs no program.
    let (told, _, status) = drift(&live, &own, &["--codex", "0.1.0", "--json"]);
    assert!(status == Some(0) && told.contains("0.1.0"), "{told}");
    let (_, said, status) = drift(&live, &own, &["--codex", "0.9.0"]);
    assert!(status == Some(2) && said.contains("known: 0.2.0, 0.1.0") && said.contains("npm install"), "{said}");
    let (_, said, status) = drift(&live, &own, &["--codex", "/no/codex"]);
    assert!(status == Some(2) && said.contains("there is no /no/codex"), "{said}");
    let broken = live.home.beside().join("broken");
    put_program(&broken, b"#!/bin/sh\nexit 3\n");
    let (_, said, status) = drift(&live, &own, &["--codex", broken.to_str().unwrap()]);
    assert!(status == Some(2) && said.contains("broken --version"), "{said}");
    live.kill();
}

/// Once another codex has replaced the one that a hub's server runs.
#[test]
fn status_foretells_what_the_next_codex_breaks() {
    let hub = Hub::new();
    let mut client = hub.client("editor");
    client.request("getUserAgent", json!({}));
    let before = older().program(hub.home.beside(), FAKE_VERSION);
    let kept = hub.home.shim(&["drift"]).env("CODEX_SHIM_CODEX", before).output().unwrap();
    assert!(kept.status.success(), "{kept:?}");
    // `doctor` fails: this codex cannot be used without a socket.
    let told = |words: &[&str]| {
        let said = String::from_utf8(hub.command(words).output().unwrap().stdout).unwrap();
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for words in [&["status"][..], &["hub", "status", "--session", "h"], &["doctor"]] {
        assert!(!told(words).contains("is next"), "{words:?}: {}", told(words));
    }
    fs::rename(newer().program(hub.home.beside(), "0.172.0"), &hub.codex).unwrap();
    for words in [&["status"][..], &["hub", "status", "--session", "h"], &["doctor"]] {
        crate::support::eventually(&words.join(" "), || {
            let told = told(words);
            told.contains("codex 0.172.0 is next: 1 client is expected to break").then_some(())
        });
    }
}
