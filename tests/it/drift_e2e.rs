//! `drift` against what really happens: clients run with several releases of codex, and what it says of each pair is compared with the
//! errors that the other release has answered.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use serde_json::{Value, json};

use crate::clients;
use crate::support::codex::Lab;
use crate::support::eventually;
use crate::support::journal::Journal;
use crate::support::model::{Item, Model};
use crate::support::peer::Peer;
use crate::support::release::Release;
use crate::support::shim::{Home, SHIM};
use crate::support::streams::Way;

/// The releases under test, if installed: the newest, and older ones from `make codex CODEX_VERSION=…`.
const MINORS: [u32; 8] = [77, 98, 125, 135, 143, 150, 169, 171];

/// A release with a call that later ones refuse for a reason that no schema has: it reads the turns of a thread before its first
/// message. Only a replay shows that.
const UNTOLD: u32 = 98;

/// The experience of a client with a release.
struct Met {
    release: Release,
    home: Home,
    /// The calls of each method, and the errors, without words that have digits, such as ids.
    calls: BTreeMap<String, (u32, Vec<String>)>,
    /// Whether it has come to its end.
    has_succeeded: bool,
}

impl Met {
    fn of(release: Release, home: Home, has_succeeded: bool) -> Met {
        let journal = Journal::read(&home.path().join("sessions/s"));
        let lines = |lines: &[Option<Vec<u8>>]| -> Vec<Value> {
            lines.iter().flatten().filter_map(|line| serde_json::from_slice(line).ok()).collect()
        };
        let answers = lines(&journal.server);
        let mut calls: BTreeMap<String, (u32, Vec<String>)> = BTreeMap::new();
        for call in lines(&journal.client) {
            let (Some(method), false) = (call["method"].as_str(), call["id"].is_null()) else { continue };
            let answer = answers.iter().find(|answer| answer["id"] == call["id"] && answer.get("method").is_none());
            let of_method = calls.entry(method.to_owned()).or_default();
            of_method.0 += 1;
            let error = answer.and_then(|answer| answer["error"]["message"].as_str());
            let is_plain = |word: &&str| !word.contains(|char: char| char.is_ascii_digit());
            of_method.1.extend(error.map(|it| it.split(' ').filter(is_plain).collect::<Vec<_>>().join(" ")));
        }
        Met { release, home, calls, has_succeeded }
    }

    fn errors(&self, method: &str) -> &[String] {
        self.calls.get(method).map_or(&[], |(_, errors)| errors)
    }

    /// Whether calls of a method failed more often than with another release, or for another reason.
    fn is_worse(&self, method: &str, other: &Met) -> bool {
        let (errors, others) = (self.errors(method), other.errors(method));
        errors.len() > others.len() || errors.iter().any(|error| !others.contains(error))
    }

    /// The findings of `drift` about another release.
    fn findings(&self, other: Release) -> Vec<Value> {
        let other = other.path();
        let mut drift = self.home.shim(&["drift", "--json", "--codex", other.to_str().expect("UTF-8")]);
        if self.release == Release::of_minor(UNTOLD) {
            drift.arg("--replay");
        }
        // A busy machine may not start codex in time.
        let output = eventually("a report", || {
            let output = drift.env("CODEX_SHIM_CODEX", self.release.path()).output().expect("the shim runs");
            Some(output).filter(|output| output.status.code() != Some(2))
        });
        let told = serde_json::from_slice::<Value>(&output.stdout);
        let told = told.unwrap_or_else(|error| panic!("{error}: {output:?}"));
        assert_eq!(
            (&told["from"], &told["to"]),
            (&json!(self.release.to_string()), &json!(version_of(other.as_path())))
        );
        let findings = told["findings"].as_array().expect("an array").clone();
        let is_rejected = findings.iter().any(|finding| finding["kind"] == "rejected");
        assert_eq!(output.status.code(), Some(i32::from(is_rejected)), "{told:#}");
        findings
    }
}

/// The version in the path of a release that `make codex` has installed.
fn version_of(codex: &std::path::Path) -> String {
    let output = std::process::Command::new(codex).arg("--version").output().expect("codex runs");
    String::from_utf8_lossy(&output.stdout).trim().rsplit(' ').next().unwrap_or_default().to_owned()
}

fn installed() -> Vec<Release> {
    MINORS.into_iter().map(Release::of_minor).filter(|release| release.path().exists()).collect()
}

/// Right and wrong predictions, each with its pair.
#[derive(Debug, Default)]
struct Counts {
    pairs: u32,
    /// Calls that failed, and were named.
    found: BTreeSet<String>,
    /// Calls that failed, and were not named; and clients that did not come to their end although nothing was named.
    missed: BTreeSet<String>,
    /// Calls that were named and did not fail.
    wrong: BTreeSet<String>,
    /// Named, but the client has not come so far, or does not call it with that release.
    not_called: BTreeSet<String>,
    /// The client itself refuses the release by its version, before it calls anything: ai-sdk-provider does so before 0.153.
    refused: BTreeSet<String>,
}

impl Counts {
    fn compare(&mut self, who: &str, from: &Met, to: &Met) {
        self.pairs += 1;
        let pair = format!("{who} {} → {}", from.release, to.release);
        let findings = from.findings(to.release);
        let rejected: BTreeSet<&str> =
            findings.iter().filter(|it| it["kind"] == "rejected").filter_map(|it| it["method"].as_str()).collect();
        for method in &rejected {
            let counted = match to.calls.contains_key(*method) {
                false => &mut self.not_called,
                true if to.is_worse(method, from) => &mut self.found,
                true => &mut self.wrong,
            };
            let of_method = findings.iter().find(|it| it["kind"] == "rejected" && it["method"] == *method);
            let detail = of_method.map(|it| format!("{} {}", it["member"], it["value"])).unwrap_or_default();
            counted.insert(format!("{pair}: {method} {detail}"));
        }
        for method in to.calls.keys().filter(|method| to.errors(method).len() > from.errors(method).len()) {
            if !rejected.contains(&**method) {
                self.missed.insert(format!("{pair}: {method}"));
            }
        }
        let may_matter =
            findings.iter().any(|it| ["unanswered", "changed"].contains(&it["kind"].as_str().unwrap_or("")));
        if from.has_succeeded && !to.has_succeeded && rejected.is_empty() && !may_matter {
            let has_called = to.calls.keys().any(|method| method != "initialize");
            let counted = if has_called { &mut self.missed } else { &mut self.refused };
            counted.insert(format!("{pair}: it does not come to its end"));
        }
    }

    /// All pairs in which the client works with the first release.
    fn compare_all(&mut self, who: &str, met: &[Met]) {
        for from in met.iter().filter(|from| from.has_succeeded) {
            for to in met.iter().filter(|to| to.release != from.release) {
                self.compare(who, from, to);
            }
        }
    }

    fn check(&self, test: &str) {
        let Counts { pairs, found, missed, wrong, not_called, refused } = self;
        let [found, lost, bad, idle, refused] = [found, missed, wrong, not_called, refused].map(BTreeSet::len);
        let told = format!(
            "{pairs} pairs: {found} found, {lost} missed, {bad} wrong, {idle} not called, {refused} refused by the client"
        );
        let _ = writeln!(std::io::stderr(), "{test}: {told}\n{self:#?}");
        assert!(missed.is_empty() && wrong.is_empty(), "missed: {missed:#?}\nwrong: {wrong:#?}");
    }
}

/// The calls of a client that has grown old, each with the parameters after which the lab's thread is put.
fn calls(thread: &str, cwd: &str, model: &str) -> Vec<(&'static str, Value)> {
    let input = json!([{"type": "text", "text": "hello", "text_elements": []}]);
    vec![
        ("thread/start", json!({"cwd": cwd, "approvalPolicy": "on-failure"})),
        ("thread/start", json!({"cwd": cwd, "approvalPolicy": "untrusted", "sandbox": "read-only"})),
        ("thread/start", json!({"cwd": cwd, "persistExtendedHistory": true, "experimentalRawEvents": false})),
        ("thread/list", json!({"limit": 5, "sortKey": "created_at", "archived": false})),
        ("thread/loaded/list", json!({})),
        ("thread/read", json!({"threadId": thread, "includeTurns": true})),
        ("thread/name/set", json!({"threadId": thread, "name": "a name"})),
        ("model/list", json!({"limit": 5})),
        ("skills/list", json!({"cwds": [cwd]})),
        ("getUserAgent", json!({})),
        ("getAuthStatus", json!({"includeToken": false, "refreshToken": false})),
        ("userInfo", json!({})),
        ("gitDiffToRemote", json!({"cwd": cwd})),
        (
            "newConversation",
            json!({"cwd": cwd, "model": model, "approvalPolicy": "on-request", "sandbox": "read-only"}),
        ),
        ("listConversations", json!({"pageSize": 5})),
        ("turn/start", json!({"threadId": thread, "input": input, "approvalPolicy": "on-request", "summary": "auto"})),
        ("thread/rollback", json!({"threadId": thread, "numTurns": 1})),
        ("config/read", json!({"includeLayers": false})),
        ("mcpServerStatus/list", json!({})),
        ("no/such/method", json!({})),
    ]
}

/// Makes these calls in turn, and goes on after errors.
fn meets(release: Release) -> Met {
    let model = Model::start(vec![vec![Item::Text(vec!["Well."])]]);
    let lab = Lab::of_release(release, &model, "");
    let home = Home::new();
    let mut command = lab.command(SHIM);
    home.adopt(&mut command).env("CODEX_SHIM_CODEX", release.path()).env("CODEX_SHIM_SESSION", "s");
    let mut peer = Peer::start(command.arg("app-server"));
    peer.initialize();
    let cwd = lab.cwd().to_string_lossy().into_owned();
    let started = peer.call("thread/start", json!({"cwd": cwd}));
    let thread = started["thread"]["id"].as_str().expect("a thread").to_owned();
    for (method, params) in calls(&thread, &cwd, release.model_name()) {
        let id = peer.request(method, params);
        let answer = peer.wait_for(method, |message| message.get("method").is_none() && message["id"] == id);
        if method == "turn/start" && answer.get("error").is_none() {
            peer.wait_for_method("turn/completed");
        }
    }
    assert!(peer.finish().1.success());
    Met::of(release, home, true)
}

#[test]
fn e2e_drift_foretells_which_calls_fail() {
    let test = "e2e_drift_foretells_which_calls_fail";
    let installed = installed();
    if installed.len() < 3 {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: {test}: fewer than three releases of codex are installed; `make codex CODEX_VERSION=0.98.0` installs one"
        );
        return;
    }
    let met: Vec<Met> = installed.into_iter().map(meets).collect();
    let mut counts = Counts::default();
    counts.compare_all("old client", &met);
    counts.check(test);
    assert!(!counts.found.is_empty(), "no release refuses anything");
}

#[test]
fn clients_meet_what_drift_foretells() {
    let test = "clients_meet_what_drift_foretells";
    let (installed, clients) = (installed(), clients::all());
    let clients: Vec<&clients::Client> = clients.iter().filter(|client| client.is_installed()).collect();
    if installed.len() < 2 || clients.is_empty() {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: {test}: two releases of codex and a client are needed; `make clients` and `make codex CODEX_VERSION=0.98.0` install them"
        );
        return;
    }
    let mut counts = Counts::default();
    for client in clients {
        let meets = |release: &Release| {
            let run = client.run_with(*release, &release.path(), Way::Relayed);
            let has_succeeded = client.has_succeeded(&run);
            Met::of(*release, run.home, has_succeeded)
        };
        let met: Vec<Met> = installed.iter().map(meets).collect();
        counts.compare_all(client.name, &met);
    }
    counts.check(test);
}

/// A client with everything that a script can repeat: an approval, a patch, a question, and a turn that is interrupted.
fn talks(release: Release) -> Home {
    let questions = json!({"questions": [{"id": "q1", "header": "Colour", "question": "Which colour?",
        "options": [{"label": "red", "description": "r"}, {"label": "blue", "description": "b"}]}]});
    let patch = "*** Begin Patch\n*** Add File: mine.txt\n+mine\n*** End Patch\n";
    let model = Model::start(vec![
        vec![Item::Text(vec!["I will look."]), release.command_to_be_approved("touch mine && echo mine")],
        vec![Item::Patch(patch)],
        vec![Item::Call { name: "request_user_input", arguments: questions }],
        vec![Item::Text(vec!["Done."])],
        vec![Item::Hang],
    ]);
    let lab = Lab::of_release(release, &model, "");
    let home = Home::new();
    let mut command = lab.command(SHIM);
    home.adopt(&mut command).env("CODEX_SHIM_CODEX", release.path()).env("CODEX_SHIM_SESSION", "s");
    let mut peer = Peer::start(command.arg("app-server"));
    peer.initialize();
    let started = peer.call("thread/start", json!({"cwd": lab.cwd()}));
    let thread = started["thread"]["id"].as_str().expect("a thread").to_owned();
    let input = json!([{"type": "text", "text": "go on", "text_elements": []}]);
    peer.request("turn/start", json!({"threadId": thread, "input": input}));
    let approval = peer.wait_for_method("item/commandExecution/requestApproval");
    peer.answer(&approval, json!({"decision": "accept"}));
    let question = peer.wait_for_method("item/tool/requestUserInput");
    peer.answer(&question, json!({"answers": {"q1": {"answers": ["red"]}}}));
    peer.wait_for_method("turn/completed");
    let second = peer.call("turn/start", json!({"threadId": thread, "input": input}));
    peer.wait_for_method("turn/started");
    peer.call("turn/interrupt", json!({"threadId": thread, "turnId": second["turn"]["id"]}));
    peer.wait_for_method("turn/completed");
    assert!(peer.finish().1.success());
    home
}

/// The findings of a replay with the client of [`talks`]: kind and method.
fn replayed(home: &Home, from: &std::path::Path, to: Option<&std::path::Path>) -> Vec<(String, String)> {
    let mut drift = home.shim(&["drift", "--json", "--replay"]);
    drift.args(to.into_iter().flat_map(|to| [std::path::Path::new("--codex"), to])).env("CODEX_SHIM_CODEX", from);
    let output = drift.output().expect("the shim runs");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("1 conversation is played"), "{said}");
    let findings = told["findings"].as_array().expect("an array").iter();
    let text = |finding: &Value, name: &str| finding[name].as_str().expect("a text").to_owned();
    findings.map(|finding| (text(finding, "kind"), text(finding, "method"))).collect()
}

/// The same codex by another version, whose server's lines go through a filter.
fn twin(home: &Home, codex: &std::path::Path, filter: &str) -> std::path::PathBuf {
    let path = home.path().join("codex-twin");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo codex-cli 9.9.9; exit; }}\n\
         [ $# -gt 1 ] && exec {0} \"$@\"\n{0} \"$@\" | {filter}\n",
        codex.display()
    );
    crate::support::shim::put_program(&path, script.as_bytes());
    path
}

#[test]
fn e2e_conversation_is_played_to_another_codex() {
    let test = "e2e_conversation_is_played_to_another_codex";
    let Some(codex) = crate::support::codex::installed_or_skip(test) else { return };
    let release = Release::under_test();
    if release.lacks(test, crate::support::release::Ability::QuestionsInDefaultMode) {
        return;
    }
    let home = talks(release);
    let found = |filter: &str| replayed(&home, &codex, Some(&twin(&home, &codex, filter)));
    let one = |kind: &str, method: &str| (kind.to_owned(), method.to_owned());
    // Nothing may be found in the same codex, nor compared with the recording.
    assert_eq!(found("cat"), []);
    assert_eq!(replayed(&home, &codex, None), []);
    assert_eq!(found("sed -u '/\"turn\\/diff\\/updated\"/d'"), [one("changed", "turn/diff/updated")]);
    assert_eq!(
        found("sed -u '/requestUserInput/{s/requestUserInput/askMe/;}'"),
        [one("unanswered", "item/tool/askMe"), one("changed", "item/tool/requestUserInput"),]
    );
    let interrupted = found("sed -u '/\"result\":{}/s/\"result\":{}/\"error\":{\"message\":\"no\"}/'");
    assert_eq!(interrupted, [one("rejected", "turn/interrupt")]);
    let stays = std::fs::read_dir(home.path()).expect("a folder").filter_map(Result::ok);
    let stays: Vec<_> =
        stays.map(|entry| entry.file_name()).filter(|name| name.to_string_lossy().starts_with(".drift")).collect();
    assert!(stays.is_empty(), "{stays:?}");
}

/// A codex whose protocol has something that codex-shim would have to know fails this test with its name.
#[test]
fn e2e_codex_has_nothing_that_codex_shim_should_know() {
    let test = "e2e_codex_has_nothing_that_codex_shim_should_know";
    let Some(codex) = crate::support::codex::installed_or_skip(test) else { return };
    let home = Home::new();
    let output = home.shim(&["drift", "--json"]).env("CODEX_SHIM_CODEX", codex).output().expect("the shim runs");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!((&told["findings"], output.status.code()), (&json!([]), Some(0)), "{told:#}");
}
