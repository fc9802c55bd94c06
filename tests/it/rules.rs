//! Rules through the real binary: what they answer, what they leave to the client, and what the tools say about them.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::both_ends::{Live, failed, text, told, tool};
use crate::support::eventually;
use crate::support::requests::PENDING;
use crate::support::shim::Home;

/// A request of codex 0.169 for a command.
fn asks(id: u32, script: &str, cwd: &Path) -> String {
    let line = shlex::try_join(["/bin/bash", "-lc", script]).expect("BUG: no NUL");
    let params = json!({
        "kind": "command", "threadId": "t", "turnId": "u1", "itemId": format!("i{id}"), "startedAtMs": 1,
        "environmentId": "local", "reason": "ok?", "command": line, "cwd": cwd, "commandActions": [],
        "availableDecisions": ["accept", "cancel"],
    });
    json!({"id": id, "method": "item/commandExecution/requestApproval", "params": params}).to_string()
}

/// A rule that accepts `/bin/ls -l` in the folder, one that declines `rm -rf`, and one that holds `make`.
fn rules(cwd: &Path) -> String {
    format!(
        "[[rules]]\nname = \"list\"\nmatch = {{ kind = \"command\", argv = [\"/bin/ls\", \"-l\"], cwd = {cwd:?} }}\naction = \"accept\"\n\
         [[rules]]\nname = \"no rm\"\nmatch = {{ kind = \"command\", argv_prefix = [\"rm\", \"-rf\"] }}\naction = \"decline\"\n\
         reason = \"use make clean\"\n\
         [[rules]]\nname = \"make\"\nmatch = {{ kind = \"command\", argv_prefix = [\"make\"] }}\naction = \"hold\"\n"
    )
}

/// A home, out of the reach of models, whose rules are about the folder beside it.
fn home() -> Home {
    let home = Home::away();
    fs::create_dir_all(home.path()).expect("a folder");
    configure(&home, &rules(&place(&home)));
    home
}

fn configure(home: &Home, config: &str) {
    fs::write(home.path().join("config.toml"), config).expect("a file");
}

fn place(home: &Home) -> std::path::PathBuf {
    home.beside().canonicalize().expect("it is there")
}

/// Repeats a test until no rule was late in it: on a busy machine a rule may take longer than the 250 ms after which the client is
/// asked.
pub fn in_time(test: impl Fn() -> Option<()>) {
    eventually("rules that are in time", test);
}

/// The next line at the server; `None` if the client is asked instead, because a rule was late.
fn sent(live: &Live) -> Option<Value> {
    let line = eventually("a line at the server, or the request at the client", || {
        let line = live.server.try_recv().ok().map(Some);
        line.or_else(|| live.client.try_recv().ok().map(|_| None))
    });
    if line.is_none() {
        was_late(|path| live.get(path));
    }
    line.map(|line| serde_json::from_slice(&line).expect("it is JSON"))
}

/// Sends a request that the client must receive unchanged; `None` if it receives an earlier one, because a rule was late.
fn plainly(live: &mut Live, line: &str) -> Option<()> {
    let is_it = live.say(line) == format!("{line}\n");
    if !is_it {
        was_late(|path| live.get(path));
    }
    is_it.then_some(())
}

/// Waits until the documents of a session say that a rule was late.
pub fn was_late(get: impl Fn(&str) -> Value) {
    eventually("why the client was asked", || {
        let events = get("/sessions/self/codex-events?limit=500")["events"].to_string();
        let rows = get(&format!("{PENDING}?all=true"))["requests"].as_array().expect("an array").clone();
        (events.contains("took over 250 ms") || rows.iter().any(|row| row["late"] == true)).then_some(())
    });
}

fn rows(live: &Live) -> Vec<Value> {
    live.get(&format!("{PENDING}?all=true"))["requests"].as_array().expect("an array").clone()
}

/// A relay whose server says that it is codex 0.169, and that thread `t` began in the folder beside the home.
fn start_in(home: Home) -> Live {
    let mut live = Live::start_in(home);
    opens_thread(&mut live, "0.169.0", r#"{"type":"workspaceWrite","writableRoots":[]}"#);
    live
}

fn opens_thread(live: &mut Live, version: &str, sandbox: &str) {
    live.send(r#"{"id":"init","method":"initialize","params":{"clientInfo":{"name":"x"}}}"#);
    live.say_plainly(&format!(r#"{{"id":"init","result":{{"userAgent":"x/{version} (Debian)"}}}}"#));
    live.send(r#"{"id":"open","method":"thread/start","params":{}}"#);
    let cwd = json!(place(&live.home));
    live.say_plainly(&format!(r#"{{"id":"open","result":{{"thread":{{"id":"t"}},"cwd":{cwd},"sandbox":{sandbox}}}}}"#));
}

#[test]
fn rules_answer_without_asking_the_client() {
    in_time(|| {
        let mut live = start_in(home());
        let cwd = place(&live.home);
        live.say_unseen(&asks(0, "/bin/ls -l", &cwd));
        assert_eq!(sent(&live)?, json!({"id": 0, "result": {"decision": "accept"}}));
        live.say_unseen(&asks(1, "rm -rf build", &cwd));
        assert_eq!(sent(&live)?, json!({"id": 1, "result": {"decision": "decline"}}));
        let steer = sent(&live)?;
        assert!(steer["method"] == "turn/steer" && steer.to_string().contains("use make clean"), "{steer}");
        live.say_unseen(&asks(2, "make", &cwd));
        // The client sees nothing of these, and this as it is.
        plainly(&mut live, &asks(3, "ls -l", &cwd))?;
        let rows = eventually("their rows", || Some(rows(&live)).filter(|rows| rows[0]["dispatched_at"].is_string()));
        let told = |row: &Value| {
            ["status", "resolution_source", "resolved_by", "rule"]
                .map(|name| row[name].as_str().unwrap_or("-").to_owned())
        };
        assert_eq!(told(&rows[0]), ["resolved", "policy", "rule:list", "list"]);
        assert!(text(&rows[0]["program"]).ends_with("/ls"), "{:#}", rows[0]);
        assert_eq!(told(&rows[1]), ["resolved", "policy", "rule:no rm", "no rm"]);
        assert_eq!(told(&rows[2]), ["pending", "-", "-", "make"]);
        assert_eq!(told(&rows[3]), ["pending", "-", "-", "-"]);
        assert!(live.tool(&["respond", "2", "decline"]).status.success());
        assert_eq!(sent(&live)?["id"], 2);
        live.kill();
        Some(())
    });
}

/// Each refusal asks the client, and the history says why.
#[test]
fn accept_needs_a_known_codex_and_a_known_sandbox() {
    let sandboxed = r#"{"type":"readOnly"}"#;
    for (version, sandbox, why) in [
        ("0.150.0", sandboxed, "type into the program"),
        ("0.169.0", r#"{"type":"dangerFullAccess"}"#, "write everywhere"),
        ("0.169.0", "null", "the sandbox of a thread is not known"),
    ] {
        let mut live = Live::start_in(home());
        opens_thread(&mut live, version, sandbox);
        let cwd = place(&live.home);
        live.say_plainly(&asks(0, "/bin/ls -l", &cwd));
        eventually("why the rule was refused", || {
            let events = live.get("/sessions/self/codex-events?limit=500")["events"].to_string();
            (events.contains("rule_refused") && events.contains(why)).then_some(())
        });
        live.kill();
    }
}

#[test]
fn trusted_terminal_accepts_with_an_older_codex() {
    in_time(|| {
        let home = home();
        let cwd = place(&home);
        configure(&home, &rules(&cwd).replace("action = \"accept\"", "action = \"accept\"\ntrust_terminal = true"));
        let mut live = Live::start_in(home);
        opens_thread(&mut live, "0.150.0", r#"{"type":"readOnly"}"#);
        live.say_unseen(&asks(0, "/bin/ls -l", &cwd));
        assert_eq!(sent(&live)?, json!({"id": 0, "result": {"decision": "accept"}}));
        live.kill();
        Some(())
    });
}

#[test]
fn other_shell_than_the_users_is_asked() {
    let mut live = start_in(home());
    let cwd = place(&live.home);
    live.say_plainly(&asks(0, "/bin/ls -l", &cwd).replace("/bin/bash", "/bin/sh"));
    live.kill();
}

#[test]
fn turn_that_widens_the_sandbox_ends_the_accepts() {
    in_time(|| {
        let mut live = start_in(home());
        let cwd = place(&live.home);
        live.say_unseen(&asks(0, "/bin/ls -l", &cwd));
        assert_eq!(sent(&live)?, json!({"id": 0, "result": {"decision": "accept"}}));
        live.send(r#"{"id":5,"method":"turn/start","params":{"threadId":"t","input":[],"sandboxPolicy":{"type":"workspaceWrite","writableRoots":["/usr"]}}}"#);
        plainly(&mut live, &asks(1, "/bin/ls -l", &cwd))?;
        live.kill();
        Some(())
    });
}

/// One invalid rule in an edited file leaves the rules as they are; since the file has other rules then, none accepts.
#[test]
fn invalid_rule_in_an_edited_file_changes_no_rule() {
    in_time(|| {
        let mut live = start_in(home());
        let cwd = place(&live.home);
        configure(
            &live.home,
            &format!("{}[[rules]]\nname = \"bad\"\naction = \"hold\"\n", rules(&cwd).replace("no rm", "other")),
        );
        eventually("the mistake in the status", || {
            let faults = live.get("/sessions/self")["faults"].to_string();
            (faults.contains("rule 4 (`bad`)") && faults.contains("not applied until it is corrected")).then_some(())
        });
        live.say_unseen(&asks(0, "rm -rf x", &cwd));
        assert_eq!(sent(&live)?, json!({"id": 0, "result": {"decision": "decline"}}));
        let rows = eventually("its row", || Some(rows(&live)).filter(|rows| rows[0]["resolved_by"].is_string()));
        assert_eq!(rows[0]["resolved_by"], "rule:no rm");
        live.kill();
        Some(())
    });
}

#[test]
fn command_elsewhere_or_with_more_is_asked() {
    let mut live = start_in(home());
    let cwd = place(&live.home);
    let script = "/bin/ls -l";
    live.say_plainly(&asks(0, script, &cwd.join("x")));
    live.say_plainly(&asks(1, script, &cwd.join("../").join(cwd.file_name().expect("it has a name"))));
    for (id, line) in (2..).zip(["/bin/ls -l; id", "/bin/ls -l > x", "/bin/ls -l $x", "/bin/ls -la", "A=1 /bin/ls -l"])
    {
        live.say_plainly(&asks(id, line, &cwd));
    }
    let wider = asks(20, script, &cwd).replace("\"kind\"", "\"additionalPermissions\":{},\"kind\"");
    live.say_plainly(&wider);
    let newer = asks(21, script, &cwd).replace("\"kind\"", "\"runsAsRoot\":false,\"kind\"");
    live.say_plainly(&newer);
    live.say_plainly(&asks(22, script, &cwd).replace("\"local\"", "\"remote\""));
    live.say_plainly(&asks(23, script, &cwd).replace("\"kind\":\"command\"", "\"kind\":\"humanCommand\""));
    live.say_plainly(&asks(24, "rm -rf x", &cwd).replace("\"kind\":\"command\"", "\"kind\":\"writeStdin\""));
    let events = eventually("why a rule was refused", || {
        let events = live.get("/sessions/self/codex-events?limit=500")["events"].to_string();
        events.contains("runsAsRoot").then_some(events)
    });
    assert!(events.contains("rule_refused"), "{events}");
    live.kill();
}

#[test]
fn edited_rule_accepts_nothing_even_before_it_is_read() {
    in_time(|| {
        let mut live = start_in(home());
        let cwd = place(&live.home);
        let whole = rules(&cwd);
        live.say_unseen(&asks(0, "/bin/ls -l", &cwd));
        assert_eq!(sent(&live)?, json!({"id": 0, "result": {"decision": "accept"}}));
        for (id, edited) in (1..).zip(["", &whole[..whole.len() / 8], "[[rules]\n", "rules = 7\n"]) {
            configure(&live.home, edited);
            plainly(&mut live, &asks(id, "/bin/ls -l", &cwd))?;
        }
        live.kill();
        Some(())
    });
}

#[test]
fn new_rule_applies_to_a_running_relay() {
    in_time(|| {
        let home = Home::away();
        fs::create_dir_all(home.path()).expect("a folder");
        let mut live = start_in(home);
        let cwd = place(&live.home);
        plainly(&mut live, &asks(0, "/bin/ls -l", &cwd))?;
        let loaded_at = |live: &Live| live.get("/sessions/self")["config"]["loaded_at"].clone();
        let before = loaded_at(&live);
        configure(&live.home, &rules(&cwd));
        eventually("the settings", || (loaded_at(&live) != before).then_some(()));
        live.say_unseen(&asks(1, "/bin/ls -l", &cwd));
        assert_eq!(sent(&live)?, json!({"id": 1, "result": {"decision": "accept"}}));
        live.kill();
        Some(())
    });
}

#[test]
fn folder_behind_a_link_is_asked() {
    let home = Home::away();
    fs::create_dir_all(home.path()).expect("a folder");
    let real = place(&home).join("real");
    fs::create_dir(&real).expect("a folder");
    let link = place(&home).join("link");
    std::os::unix::fs::symlink(&real, &link).expect("a link");
    configure(&home, &rules(&link));
    let mut live = start_in(home);
    live.say_plainly(&asks(0, "/bin/ls -l", &link));
    let tried = live.tool(&["rules", "test", "--request", "0"]);
    let said = String::from_utf8(tried.stdout).expect("it is text");
    assert!(said.contains("asks you") && said.contains("reached through a link"), "{said}");
    live.kill();
}

#[test]
fn invalid_rule_is_reported_and_others_go_on() {
    in_time(|| {
        let home = home();
        let cwd = place(&home);
        let broken =
            "[[rules]]\nname = \"all\"\nmatch = { kind = \"command\", argv = [\"rm\"] }\naction = \"accept\"\n";
        configure(&home, &format!("{broken}{}", rules(&cwd)));
        let mut live = start_in(home);
        live.say_unseen(&asks(0, "/bin/ls -l", &cwd));
        assert_eq!(sent(&live)?, json!({"id": 0, "result": {"decision": "accept"}}));
        plainly(&mut live, &asks(1, "rm x", &cwd))?;
        let faults = live.get("/sessions/self")["faults"].to_string();
        assert!(faults.contains("rule 1 (`all`)") && faults.contains("matches nothing"), "{faults}");
        let listed = live.tool(&["rules", "--json"]);
        assert_eq!(listed.status.code(), Some(1));
        let document: Value = serde_json::from_slice(&listed.stdout).expect("it is JSON");
        assert_eq!(document["rules"].as_array().map(Vec::len), Some(3), "{document:#}");
        assert!(document["invalid"][0].as_str().is_some_and(|why| why.contains("rule 1 (`all`)")), "{document:#}");
        assert!(String::from_utf8_lossy(&listed.stderr).contains("rule 1 (`all`)"));
        let checked = String::from_utf8(live.tool(&["doctor"]).stdout).expect("it is text");
        assert!(checked.contains("rule 1 (`all`)"), "{checked}");
        live.kill();
        Some(())
    });
}

#[test]
fn rules_are_listed_with_their_counts() {
    in_time(|| {
        let home = home();
        assert_eq!(told(&tool(&home, &["rules", "--json"]))["rules"][0]["matched"], 0);
        let mut live = start_in(home);
        let cwd = place(&live.home);
        for id in 0..2 {
            live.say_unseen(&asks(id, "/bin/ls -l", &cwd));
            sent(&live)?;
        }
        live.say_unseen(&asks(5, "make", &cwd));
        let count = |live: &Live| {
            let document = told(&live.tool(&["rules", "--json"]));
            let of = |index: usize| {
                let rule = &document["rules"][index];
                (text(&rule["name"]), rule["matched"].as_u64(), rule["answered"].as_u64(), rule["last_at"].is_string())
            };
            [of(0), of(1), of(2)]
        };
        let expect = |name: &str, matched, answered, is_used| (name.to_owned(), Some(matched), Some(answered), is_used);
        eventually("the rows", || (count(&live)[2].1 == Some(1)).then_some(()));
        assert_eq!(
            count(&live),
            [expect("list", 2, 2, true), expect("no rm", 0, 0, false), expect("make", 1, 0, true)]
        );
        let later = told(&live.tool(&["rules", "--since", "2100-01-01", "--json"]));
        assert_eq!(later["rules"][0]["matched"], 0, "{later:#}");
        let listed = String::from_utf8(live.tool(&["rules"]).stdout).expect("it is text");
        assert!(listed.starts_with("list") && listed.contains("run rm -rf …"), "{listed}");
        live.kill();
        Some(())
    });
}

#[test]
fn rules_test_tells_what_would_happen() {
    let home = home();
    let tried = |args: &[&str]| told(&tool(&home, &[&["rules", "test", "--json"], args].concat()));
    let accepted = tried(&["--", "/bin/ls", "-l"]);
    assert_eq!((&accepted["decision"], &accepted["rule"]), (&json!("accept"), &json!("list")), "{accepted:#}");
    assert!(text(&accepted["program"]).ends_with("/ls"));
    assert!(text(&accepted["assumes"]).contains("the thread began in the folder of the command"), "{accepted:#}");
    let shown = tool(&home, &["rules", "test", "--", "/bin/ls", "-l"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("Assumed: the thread began"), "{shown:?}");
    assert_eq!(tried(&["--", "rm", "-rf", "/"])["decision"], "decline");
    assert_eq!(tried(&["--", "make && x"])["decision"], "hold");
    let other = tried(&["--cwd", "/", "--", "/bin/ls", "-l"]);
    assert_eq!(other["decision"], "ask");
    assert!(text(&other["rules"][0]["why"]).starts_with("it runs in /, not in "), "{other:#}");
    let unclear = tried(&["--", "/bin/ls -l | sh"]);
    assert!(text(&unclear["rules"][0]["why"]).contains("a shell may interpret"), "{unclear:#}");
    failed(&tool(&home, &["rules", "test", "--request", "zzz"]), 3, "no sessions yet");
    assert_eq!(tool(&home, &["rules", "test"]).status.code(), Some(2));
}

/// Everything that decides for the user, in a place where the thread's sandbox lets the model write.
#[test]
fn what_decides_in_reach_of_a_model_bars_all_accepts() {
    let sandboxed = r#"{"type":"workspaceWrite","writableRoots":[]}"#;
    for (what, more, place_of_it) in [
        ("on_pending", "on_pending = [\"sh\", \"WS/hook\"]\n", "thread"),
        ("on_idle", "on_idle = \"WS/hook\"\n", "another"),
        ("context_engine.command", "[context_engine]\ncommand = [\"sh\", \"-c\", \"exec WS/engine\"]\n", "thread"),
        ("fragment `f`", "[[fragments]]\nname = \"f\"\nrole = \"developer\"\nfile = \"WS/f.md\"\n", "another"),
        ("config.toml", "", "thread"),
        ("config.toml", "", "another"),
    ] {
        let home = home();
        let cwd = place(&home);
        let other = crate::support::shim::out_of_reach();
        let ws = if place_of_it == "thread" { cwd.clone() } else { other.path().canonicalize().expect("it is there") };
        let config = format!("{}{}", more.replace("WS", &ws.display().to_string()), rules(&cwd));
        if what == "config.toml" {
            fs::remove_file(home.path().join("config.toml")).expect("it is there");
            fs::write(ws.join("dotfile.toml"), &config).expect("a file");
            std::os::unix::fs::symlink(ws.join("dotfile.toml"), home.path().join("config.toml")).expect("a link");
        } else {
            configure(&home, &config);
        }
        let mut live = Live::start_in(home);
        opens_thread(&mut live, "0.169.0", sandboxed);
        if place_of_it == "another" {
            // Another thread of the same server may write there.
            live.send(&json!({"id": "o", "method": "thread/settings/update", "params": {"threadId": "o", "cwd": ws, "sandboxPolicy": {"type": "workspaceWrite"}}}).to_string());
        }
        let fault = eventually("the fault", || {
            let faults = live.get("/sessions/self")["faults"].to_string();
            faults.contains(&format!("{what} can be changed by a model")).then_some(faults)
        });
        assert!(fault.contains("move it out of the folders in which models work"), "{fault}");
        live.say_plainly(&asks(0, "/bin/ls -l", &cwd));
        eventually("the events", || {
            let events = live.get("/sessions/self/codex-events?limit=500")["events"].to_string();
            (events.contains("in_reach") && events.contains("rule_refused")).then_some(())
        });
        if (what, place_of_it) == ("config.toml", "thread") {
            for tool in ["doctor", "status"] {
                let said = String::from_utf8(live.tool(&[tool]).stdout).expect("it is text");
                assert!(said.contains("config.toml can be changed by a model"), "{tool}: {said}");
            }
        }
        live.kill();
    }
}

/// A sandbox that only reads, one that leaves temporary files out, and a thread without one stop no program.
#[test]
fn hook_runs_unless_a_sandbox_can_write_to_it() {
    let excluding = r#"{"type":"workspaceWrite","excludeSlashTmp":true,"excludeTmpdirEnvVar":true}"#;
    for (sandbox, hook_in, expect) in [
        (r#"{"type":"readOnly"}"#, "cwd", true),
        (r#"{"type":"dangerFullAccess"}"#, "cwd", true),
        (r#"{"type":"workspaceWrite"}"#, "home", true),
        (excluding, "tmp", true),
        (r#"{"type":"workspaceWrite"}"#, "tmp", false),
        (excluding, "cwd", false),
    ] {
        let home = home();
        let beside = tempfile::tempdir().expect("a folder");
        let folder = match hook_in {
            "cwd" => place(&home),
            "home" => home.path(),
            _ => beside.path().to_owned(),
        };
        let (hook, ran) = (folder.join("hook"), home.path().join("ran"));
        crate::support::shim::put_program(&hook, format!("#!/bin/sh\necho >> {}\n", ran.display()).as_bytes());
        configure(&home, &format!("on_pending = {hook:?}\non_pending_after = \"0s\"\n"));
        let mut live = Live::start_in(home);
        opens_thread(&mut live, "0.169.0", sandbox);
        live.say_plainly(&asks(0, "make", &place(&live.home)));
        if expect {
            eventually("the hook", || ran.exists().then_some(()));
        } else {
            eventually("the event", || {
                let events = live.get("/sessions/self/codex-events?limit=500")["events"].to_string();
                events.contains("in_reach").then_some(())
            });
            assert!(!ran.exists(), "{sandbox} {hook_in}");
        }
        live.kill();
    }
}

/// Asks until the rule accepts: on a busy machine, a check may take longer than a rule waits for it.
fn accepts_in_the_end(live: &mut Live, cwd: &Path) {
    let mut ids = 10..;
    eventually("an accept", || {
        live.say_unseen(&asks(ids.next()?, "/bin/ls -l", cwd));
        let answer = sent(live)?;
        assert_eq!(answer["result"]["decision"], "accept", "{answer}");
        Some(())
    });
}

/// Without a change of the settings or of a sandbox: the user moves the hook away.
#[test]
fn fault_of_a_hook_in_reach_ends_when_it_is_moved() {
    let home = home();
    let (cwd, ran) = (place(&home), home.path().join("ran"));
    let (hook, target) = (home.path().join("hook"), cwd.join("hook"));
    crate::support::shim::put_program(&target, format!("#!/bin/sh\necho >> {}\n", ran.display()).as_bytes());
    std::os::unix::fs::symlink(&target, &hook).expect("a link");
    configure(&home, &format!("on_pending = {hook:?}\non_pending_after = \"0s\"\n{}", rules(&cwd)));
    let mut live = Live::start_in(home);
    opens_thread(&mut live, "0.169.0", r#"{"type":"workspaceWrite"}"#);
    let faults = |live: &Live| live.get("/sessions/self")["faults"].as_array().expect("an array").clone();
    let fault = eventually("the fault", || Some(faults(&live)).filter(|faults| !faults.is_empty()));
    assert!(fault.len() == 1 && fault[0].to_string().contains("on_pending can be changed by a model"), "{fault:?}");
    // The same fault each time.
    live.say_plainly(&asks(0, "touch x", &cwd));
    live.say_plainly(&asks(1, "/bin/ls -l", &cwd));
    eventually("the refusal", || {
        live.get("/sessions/self/codex-events?limit=500")["events"].to_string().contains("rule_refused").then_some(())
    });
    assert_eq!(faults(&live), fault);
    fs::remove_file(&hook).expect("it is there");
    crate::support::shim::put_program(&hook, &fs::read(&target).expect("it is there"));
    eventually("no fault", || faults(&live).is_empty().then_some(()));
    assert!(!ran.exists());
    live.say_plainly(&asks(2, "touch x", &cwd));
    eventually("the hook", || ran.exists().then_some(()));
    accepts_in_the_end(&mut live, &cwd);
    live.kill();
}

/// A place that is not remembered may be where a program lies.
#[test]
fn more_places_than_are_remembered_bar_all_programs() {
    let home = home();
    let (cwd, ran) = (place(&home), home.path().join("ran"));
    let hook = home.path().join("hook");
    crate::support::shim::put_program(&hook, format!("#!/bin/sh\necho >> {}\n", ran.display()).as_bytes());
    configure(&home, &format!("on_pending = {hook:?}\non_pending_after = \"0s\"\n"));
    let mut live = Live::start_in(home);
    opens_thread(&mut live, "0.169.0", r#"{"type":"workspaceWrite"}"#);
    live.say_plainly(&asks(0, "make", &cwd));
    eventually("the hook", || ran.exists().then_some(()));
    fs::remove_file(&ran).expect("it is there");
    let roots: Vec<String> = (0..300).map(|number| format!("/nowhere/{number}")).collect();
    let policy = json!({"type": "workspaceWrite", "writableRoots": roots});
    live.send(
        &json!({"id": "o", "method": "thread/settings/update", "params": {"threadId": "o", "sandboxPolicy": policy}})
            .to_string(),
    );
    let faults = eventually("the fault", || {
        let faults = live.get("/sessions/self")["faults"].clone();
        faults.to_string().contains("what decides for you counts as if a model could change it").then_some(faults)
    });
    assert_eq!(faults.as_array().map(Vec::len), Some(1), "{faults}");
    live.say_plainly(&asks(1, "make", &cwd));
    eventually("the events", || {
        let events = live.get("/sessions/self/codex-events?limit=500")["events"].to_string();
        (events.contains("in_reach") && events.contains("more places than codex-shim remembers")).then_some(())
    });
    let checked = String::from_utf8(live.tool(&["doctor"]).stdout).expect("it is text");
    assert!(checked.contains("counts as if a model could change it") && !ran.exists(), "{checked}");
    live.kill();
}

#[test]
fn settings_in_reach_of_a_model_are_not_applied() {
    in_time(|| {
        let home = home();
        let cwd = place(&home);
        let (config, target) = (home.path().join("config.toml"), cwd.join("dotfile.toml"));
        fs::write(&target, "").expect("a file");
        fs::remove_file(&config).expect("it is there");
        std::os::unix::fs::symlink(&target, &config).expect("a link");
        let mut live = start_in(home);
        eventually("the fault", || {
            live.get("/sessions/self")["faults"].to_string().contains("config.toml can be").then_some(())
        });
        fs::write(&target, rules(&cwd)).expect("a file");
        eventually("the refusal", || {
            live.get("/sessions/self")["config"]["error"]
                .as_str()
                .is_some_and(|why| why.contains("where the model may write"))
                .then_some(())
        });
        plainly(&mut live, &asks(0, "/bin/ls -l", &cwd))?;
        plainly(&mut live, &asks(1, "rm -rf x", &cwd))?;
        // Moved away, it is read again.
        fs::remove_file(&config).expect("it is there");
        fs::write(&config, rules(&cwd)).expect("a file");
        eventually("the settings", || live.get("/sessions/self")["config"]["error"].is_null().then_some(()));
        eventually("no fault", || {
            live.get("/sessions/self")["faults"].as_array().is_some_and(Vec::is_empty).then_some(())
        });
        live.say_unseen(&asks(2, "/bin/ls -l", &cwd));
        assert_eq!(sent(&live)?, json!({"id": 2, "result": {"decision": "accept"}}));
        live.kill();
        Some(())
    });
}

#[test]
fn rules_hold_without_a_client() {
    in_time(|| {
        let config = "[[rules]]\nname = \"no rm\"\nmatch = { kind = \"command\", argv_prefix = [\"rm\"] }\naction = \"decline\"\n";
        let mut live = Live::served_with(config);
        let initialize: Value = sent(&live)?;
        live.say_unseen(&json!({"id": initialize["id"], "result": {"userAgent": "x/0.169.0"}}).to_string());
        assert_eq!(sent(&live)?["method"], "initialized");
        live.say_unseen(&asks(0, "rm x", Path::new("/p")));
        assert_eq!(sent(&live)?, json!({"id": 0, "result": {"decision": "decline"}}));
        live.kill();
        Some(())
    });
}

/// The recipes of the documentation, with another folder in the place of theirs.
#[test]
fn documented_recipes_do_what_they_say() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/rules.md");
    let text_of = fs::read_to_string(page).expect("it is there");
    let home = Home::away();
    fs::create_dir_all(home.path()).expect("a folder");
    fs::create_dir_all(place(&home).join("proj/src")).expect("a folder");
    let text_of = text_of.replace("/home/me", &place(&home).display().to_string());
    let block = |start: &str| {
        let rest = text_of.split_once(start).unwrap_or_else(|| panic!("no {start} in {page}")).1;
        rest.split("```").next().expect("BUG: never empty").to_owned()
    };
    configure(&home, &block("```toml\n"));
    let listed = told(&tool(&home, &["rules", "--json"]));
    assert_eq!(listed["rules"].as_array().map(Vec::len), Some(6), "{listed:#}");
    let mut tried = 0;
    for line in block("```sh\n").lines() {
        let Some((command, expect)) = line.split_once('#') else { continue };
        let words = shlex::split(command).expect("it is quoted well");
        let mut args: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
        args.insert(2, "--json");
        let mut tool = home.shim(&args);
        let output = tool.env("PATH", "/usr/local/bin:/usr/bin:/bin").output().expect("the tool runs");
        assert_eq!(told(&output)["decision"], expect.trim(), "{line}");
        tried += 1;
    }
    assert!(tried >= 9, "{tried}");
}
