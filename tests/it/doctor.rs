//! `doctor` in set-ups with one fault each: it names the fault and the remedy.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::both_ends::Live;
use crate::support::codex::installed_or_skip;
use crate::support::release::Release;
use crate::support::shim::SHIM;
use crate::support::{eventually, stop};
use crate::wrap::Lab;

/// The doctor's report; every fault in it has a remedy.
pub fn told(lab: &Lab) -> Value {
    let output = lab.shim(&["doctor", "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let checks = told["checks"].as_array().expect("checks");
    assert!(checks.iter().all(|check| (check["status"] == "ok") == check["remedy"].is_null()), "{told}");
    let is_broken = checks.iter().any(|check| check["status"] == "broken");
    assert_eq!((output.status.code(), &told["healthy"]), (Some(i32::from(is_broken)), &Value::Bool(!is_broken)));
    told
}

/// The status of a check, and its finding.
pub fn check(told: &Value, name: &str) -> (String, String) {
    let checks = told["checks"].as_array().expect("checks");
    let check = checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {told}"));
    let text = |member: &str| check[member].as_str().unwrap_or_default().to_owned();
    (text("status"), text("found"))
}

/// A healthy set-up, except for informational findings.
fn well() -> Lab {
    let lab = Lab::new();
    lab.codex("real");
    lab
}

fn is_broken(lab: &Lab, name: &str, words: &str) {
    let told = told(lab);
    let (status, found) = check(&told, name);
    assert!(status == "broken" && found.contains(words), "{name}: {status} {found}");
    let broken = told["checks"].as_array().expect("checks").iter().filter(|check| check["status"] == "broken").count();
    assert_eq!(broken, 1, "nothing else is: {told}");
}

/// The folder of a stopped session.
fn session(lab: &Lab) -> std::path::PathBuf {
    let session = lab.home.path().join("sessions/s");
    fs::create_dir_all(&session).expect("a folder");
    fs::write(session.join("lock"), "").expect("a file");
    session
}

#[test]
fn doctor_where_all_is_well() {
    let lab = well();
    let told = told(&lab);
    assert_eq!(told["healthy"], true, "{told}");
    assert_eq!(
        check(&told, "codex").1,
        format!("{}: codex-cli 1.2.3 --version", lab.user.join("real/codex").display())
    );
    assert_eq!(check(&told, "shell hooks").0, "note");
    assert!(lab.well(&["doctor"]).contains("nothing is broken; "));
    assert!(!lab.home.path().exists(), "it has made nothing");
}

#[test]
fn doctor_names_clients_that_share_a_folder() {
    let lab = well();
    let start = |session: &str| {
        let mut relay = lab.home.shim(&["run", "--session", session, "--", "cat"]);
        relay.current_dir(&lab.user).spawn().expect("it starts")
    };
    let relays = [start("one"), start("other")];
    let note = eventually("both are live", || {
        let told = told(&lab);
        let checks = told["checks"].as_array().expect("checks");
        checks.iter().find(|check| check["name"] == "clients").cloned()
    });
    assert_eq!(note["status"], "note", "{note}");
    let found = note["found"].as_str().expect("text");
    assert!(found.contains("user one") && found.contains("user other"), "{found}");
    assert!(note["remedy"].as_str().expect("text").contains("--session"), "{note}");
    for mut relay in relays {
        drop(relay.stdin.take());
        assert!(relay.wait().expect("it ends").success());
    }
}

#[test]
fn doctor_without_a_codex_or_with_one_that_does_not_run() {
    let lab = Lab::new();
    is_broken(&lab, "codex", "no codex found in PATH");
    let codex = lab.codex("real");
    fs::write(&codex, "#!/bin/sh\nexit 9\n").expect("a file");
    is_broken(&lab, "codex", "exit status: 9");
    fs::write(&codex, "#!/no/such/interpreter\n").expect("a file");
    is_broken(&lab, "codex", "cannot be started");
}

#[test]
fn doctor_fails_with_a_codex_without_app_server() {
    let version = "[ \"$1\" = --version ] && echo codex-cli 0.1.0 && exit\n";
    let cases = [
        ("echo \"error: unrecognized subcommand '$1'\" >&2; exit 2", "unrecognized subcommand 'app-server'"),
        ("exit 0", "exited without an answer"),
        ("echo hello; exec cat", "`hello`"),
        (r#"echo '{"id":1,"error":{"code":-1,"message":"no config"}}'; exec cat"#, "no config"),
        ("exec sleep 600", "no answer"),
    ];
    for (script, words) in cases {
        let lab = Lab::new();
        lab.program("real/codex", &format!("{version}{script}\n"));
        let told = told(&lab);
        let (status, found) = check(&told, "app-server");
        assert!(status == "broken" && found.contains(words), "{script}: {status} {found}");
        assert!(told.to_string().contains("npm install -g @openai/codex@latest"), "{told}");
    }
    let lab = well();
    assert_eq!(check(&told(&lab), "app-server").0, "ok");
}

#[test]
fn e2e_doctor_starts_the_app_server_of_codex() {
    let Some(codex) = installed_or_skip("e2e_doctor_starts_the_app_server_of_codex") else { return };
    let lab = Lab::new();
    let mut doctor = lab.home.shim(&["doctor", "--json"]);
    doctor.env("HOME", &lab.user).env("CODEX_SHIM_CODEX", &codex).env_remove("CODEX_HOME");
    let output = doctor.output().expect("it runs");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(check(&told, "app-server").0, "ok", "{told}");
    // The doctor neither reads nor writes the user's state.
    assert!(!lab.user.join(".codex").exists());
}

#[test]
fn doctor_runs_each_wrap_with_a_bare_path() {
    let lab = well();
    lab.well(&["wrap", "vscode", "--yes"]);
    lab.well(&["wrap", "path", "--yes"]);
    let wraps = |told: &Value| -> Vec<(String, String)> {
        let checks = told["checks"].as_array().expect("checks").iter().filter(|check| check["name"] == "wrap");
        let text = |check: &Value, member: &str| check[member].as_str().unwrap_or_default().to_owned();
        checks.map(|check| (text(check, "status"), text(check, "found") + &text(check, "remedy"))).collect()
    };
    let found = wraps(&told(&lab));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|(status, found)| status == "ok" && found.contains("codex-cli 1.2.3")), "{found:?}");
    assert!(found[0].1.contains(".config/Code/User/settings.json") && found[1].1.contains("bin/codex"), "{found:?}");
    // The recorded codex needs a helper that only a terminal's PATH has.
    let codex = lab.user.join("real/codex");
    let good = fs::read(&codex).expect("it is there");
    fs::write(&codex, "#!/bin/sh\nonly-in-a-terminal || { echo no such helper >&2; exit 7; }\n").expect("write");
    let found = wraps(&told(&lab));
    assert!(found.iter().all(|(status, found)| status == "broken" && found.contains("no such helper")), "{found:?}");
    assert!(found[0].1.contains("codex-shim wrap vscode"), "{found:?}");
    // The recorded codex is missing, and the editor has no other.
    fs::write(&codex, good).expect("write");
    fs::rename(&codex, lab.codex("else/where").with_file_name("other")).expect("it is moved");
    let found = wraps(&told(&lab));
    assert!(found.iter().all(|(status, found)| status == "broken" && found.contains("real/codex")), "{found:?}");
    // The user has changed the value by hand.
    lab.codex("real");
    let settings = lab.user.join(".config/Code/User/settings.json");
    fs::write(&settings, "{\"chatgpt.cliExecutable\": \"/other\"}").expect("write");
    let found = wraps(&told(&lab));
    assert!(found[0].0 == "note" && found[0].1.contains("codex-shim unwrap --forget vscode"), "{found:?}");
}

#[test]
fn doctor_with_a_codex_that_has_drifted() {
    let lab = well();
    let schema = |lacks: &str| {
        let script = format!(
            r#"#!/bin/sh
[ "$1" = --version ] && echo codex-cli 9.9.9 && exit
for out; do :; done
kind() {{ printf '{{"properties":{{"method":{{"enum":["%s"]}},"params":%s}}}},' "$1" "$2"; }}
file() {{ name=$1; shift; {{ printf '{{"oneOf":['; for m; do {lacks} || kind "$m" true; done; printf '{{}}]}}'; }} > "$out/$name.json"; }}
file ClientRequest initialize thread/start thread/resume thread/fork thread/unsubscribe thread/read thread/list thread/turns/list thread/items/list \
  thread/inject_items \
  thread/compact/start turn/start turn/steer turn/interrupt thread/approveGuardianDeniedAction
file ServerRequest item/commandExecution/requestApproval item/fileChange/requestApproval item/permissions/requestApproval \
  item/tool/requestUserInput item/tool/call mcpServer/elicitation/request currentTime/read
file ServerNotification error thread/started thread/status/changed thread/settings/updated thread/name/updated thread/closed \
  thread/compacted \
  thread/tokenUsage/updated turn/started turn/completed turn/plan/updated turn/diff/updated item/started item/completed item/agentMessage/delta item/plan/delta \
  item/reasoning/textDelta item/reasoning/summaryTextDelta item/commandExecution/outputDelta \
  item/commandExecution/terminalInteraction serverRequest/resolved item/autoApprovalReview/started \
  item/autoApprovalReview/completed account/rateLimits/updated
"#
        );
        fs::write(lab.user.join("real/codex"), script).expect("a file");
        check(&told(&lab), "protocol")
    };
    assert_eq!(schema("false").0, "ok");
    assert_eq!(schema(r#"[ "$m" = turn/steer ]"#), ("note".to_owned(), "this codex lacks turn/steer".to_owned()));
    let renamed =
        r#"[ "$m" = turn/diff/updated ] && kind "$m" '{"properties":{"threadId":{},"turnId":{},"patch":{}}}'"#;
    assert_eq!(schema(renamed), ("note".to_owned(), "this codex lacks turn/diff/updated: diff".to_owned()));
}

#[test]
fn e2e_doctor_tells_what_a_release_of_codex_lacks() {
    let Some(codex) = installed_or_skip("e2e_doctor_tells_what_a_release_of_codex_lacks") else { return };
    let lab = Lab::new();
    fs::create_dir_all(lab.home.path()).expect("a folder");
    fs::write(lab.home.path().join("config.toml"), format!("codex = {codex:?}\n")).expect("a file");
    // The launcher needs a node that is on PATH here.
    let mut doctor = lab.home.shim(&["doctor", "--json"]);
    let output = doctor.env("HOME", &lab.user).output().expect("it runs");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let release = Release::under_test().to_string();
    let lacks = match &*release {
        "0.77.0" => Some(
            "this codex lacks initialize: capabilities.optOutNotificationMethods, thread/start: dynamicTools.name, \
             thread/start: ephemeral, thread/start: threadSource, thread/fork, thread/unsubscribe, thread/read, \
             thread/turns/list, thread/items/list, thread/inject_items, thread/compact/start, \
             turn/start: input.text_elements and 18 more",
        ),
        "0.98.0" => Some(
            "this codex lacks initialize: capabilities.optOutNotificationMethods, thread/start: threadSource, \
             thread/unsubscribe, thread/turns/list, thread/items/list, thread/inject_items, turn/steer, \
             thread/approveGuardianDeniedAction, item/commandExecution/requestApproval: availableDecisions, \
             item/commandExecution/requestApproval: networkApprovalContext.host, item/permissions/requestApproval, \
             mcpServer/elicitation/request and 7 more",
        ),
        "0.125.0" => Some(
            "this codex lacks thread/start: threadSource, thread/turns/list: itemsView, thread/items/list, \
             thread/settings/updated, ThreadTurnsListResponse: data.itemsView",
        ),
        "0.135.0" => Some("this codex lacks thread/items/list"),
        "0.143.0" => Some(
            "this codex lacks ThreadItemsListResponse: data.turnId, ThreadItemsListResponse: data.item, \
             ThreadItemsListResponse: data.startedAtMs, ThreadItemsListResponse: data.completedAtMs",
        ),
        "0.150.0" => Some(
            "this codex lacks ThreadItemsListResponse: data.startedAtMs, ThreadItemsListResponse: data.completedAtMs",
        ),
        _ => None,
    };
    let (status, found) = check(&told, "protocol");
    match lacks {
        Some(lacks) => assert_eq!((&*status, &*found), ("note", lacks)),
        None => assert_eq!(status, "ok", "{found}"),
    }
    assert!(check(&told, "codex").1.contains(&format!("codex-cli {release}")), "{told}");
}

#[test]
fn doctor_with_settings_or_a_home_that_cannot_be_used() {
    let lab = well();
    fs::create_dir_all(lab.home.path()).expect("a folder");
    fs::write(lab.home.path().join("config.toml"), "exit_grace = \"soon\"\n").expect("a file");
    is_broken(&lab, "settings", "exit_grace");
    fs::remove_dir_all(lab.home.path()).expect("it goes");
    fs::write(lab.home.path(), "in the way").expect("a file");
    is_broken(&lab, "home", "is a file, not a folder");
}

#[test]
fn doctor_with_a_codex_that_is_ourselves_in_disguise_or_hangs() {
    let lab = Lab::new();
    let codex = lab.codex("real");
    fs::write(&codex, format!("#!/bin/sh\nexec {SHIM} \"$@\"\n")).expect("a file");
    is_broken(&lab, "codex", "leads back to codex-shim");
    fs::write(&codex, "#!/bin/sh\nexec sleep 600\n").expect("a file");
    let told = told(&lab);
    assert!(check(&told, "codex").1.contains("did not exit"), "{told}");
    // The doctor stops checking this codex; it would hang itself.
    assert!(check(&told, "protocol").1.contains("skipped"), "{told}");
}

#[test]
fn doctor_that_is_interrupted_leaves_no_codex_behind() {
    let lab = well();
    let codex = lab.codex("slow");
    let pid_file = lab.user.join("pid");
    let script = format!("#!/bin/sh\nsleep 600 &\necho $! > {0}.new; mv {0}.new {0}; wait\n", pid_file.display());
    fs::write(&codex, script).expect("a file");
    let mut doctor = lab.home.shim(&["doctor"]).env("CODEX_SHIM_CODEX", &codex).spawn().expect("it starts");
    let launched = eventually("codex is asked", || fs::read_to_string(&pid_file).ok());
    kill_process(Pid::from_child(&doctor), Signal::INT).expect("it runs");
    let status = doctor.wait().expect("it ends");
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{status}");
    let stat = format!("/proc/{}/stat", launched.trim());
    eventually("it ends", || {
        let has_ended = fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
        has_ended.then_some(())
    });
}

#[test]
fn doctor_with_a_home_that_is_open_to_others() {
    use std::os::unix::fs::PermissionsExt as _;
    let lab = well();
    fs::create_dir_all(lab.home.path()).expect("a folder");
    let set = |mode| fs::set_permissions(lab.home.path(), fs::Permissions::from_mode(mode)).expect("a mode");
    set(0o755);
    let (status, found) = check(&told(&lab), "mode");
    assert!(status == "note" && found.contains("0755"), "{status} {found}");
    set(0o777);
    is_broken(&lab, "home", "mode 0777");
    set(0o700);
    assert!(!told(&lab).to_string().contains("\"mode\""));
}

#[test]
fn doctor_with_databases_that_are_broken_or_newer() {
    for (file, remedy) in [("ledger.db", "keep it"), ("history.db", "rebuilt")] {
        let lab = well();
        let path = session(&lab).join(file);
        fs::write(&path, "no database ".repeat(500)).expect("a file");
        is_broken(&lab, "database", file);
        assert!(told(&lab).to_string().contains(remedy));
        fs::remove_file(&path).expect("it goes");
        let newer = rusqlite::Connection::open(&path).expect("a database");
        newer.execute_batch("CREATE TABLE a (x); PRAGMA user_version = 999").expect("it is written");
        drop(newer);
        is_broken(&lab, "database", "it was written by a newer codex-shim (form 999");
    }
}

#[test]
fn doctor_names_damaged_files() {
    let lab = well();
    let session = session(&lab);
    let place = r#""cwd":"/","codex_home":"/","server":["codex"]"#;
    let signed = format!(r#"{{"pid":1,"started_at":"2026-01-01T00:00:00.000Z",{place}}}"#);
    fs::write(session.join("lock"), signed).expect("a file");
    let files = || {
        let output = lab.home.shim(&["doctor", "--files", "--json"]).output().expect("it runs");
        let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        assert_eq!(output.status.success(), told["healthy"] == true, "{told}");
        told
    };
    // Nothing but files is checked.
    assert_eq!(files()["checks"].as_array().expect("checks").len(), 1);
    for (file, name, remedy) in [
        ("ledger.db", "ledger", "backup"),
        ("history.db", "history", "rebuilt from the journal"),
        ("journal/000000010000-001.jsonl", "journal", "leave it in place"),
        ("lock", "file", "move it away"),
    ] {
        let path = session.join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        let before = fs::read(&path).ok();
        fs::write(&path, "not what it was ".repeat(500)).expect("a file");
        let told = files();
        let (status, found) = check(&told, name);
        assert!(status == "broken" && found.contains(&path.display().to_string()), "{told}");
        assert!(told.to_string().contains(remedy), "{told}");
        match before {
            Some(before) => fs::write(&path, before).expect("a file"),
            None => fs::remove_file(&path).expect("it is there"),
        }
        assert_eq!(files()["healthy"], true, "{file}");
    }
}

#[test]
fn doctor_with_a_socket_that_is_left_over_and_a_relay_that_hangs() {
    let lab = well();
    let left = session(&lab).join("control.sock");
    drop(std::os::unix::net::UnixListener::bind(&left).expect("a socket"));
    assert_eq!(check(&told(&lab), "socket").0, "note");
    fs::remove_dir_all(lab.home.path()).expect("it goes");
    let mut relay = lab.home.shell("cat >/dev/null").spawn().expect("the shim starts");
    let socket = lab.home.path().join("sessions/s/control.sock");
    eventually("the control socket", || socket.exists().then_some(()));
    eventually("all is well", || (told(&lab)["healthy"] == true).then_some(()));
    let pid = Pid::from_child(&relay);
    stop(pid);
    is_broken(&lab, "socket", " s (pid ");
    kill_process(pid, Signal::CONT).expect("it is there");
    relay.kill().expect("it runs");
    relay.wait().expect("it was killed");
}

#[test]
fn doctor_with_a_ledger_that_somebody_has_locked_does_not_have_it_moved_away() {
    let lab = well();
    let ledger = session(&lab).join("ledger.db");
    let holder = rusqlite::Connection::open(&ledger).expect("a database");
    holder.execute_batch("CREATE TABLE a (x); BEGIN EXCLUSIVE").expect("a lock");
    let remedy = || {
        let told = told(&lab);
        let checks = told["checks"].as_array().expect("checks").clone();
        let of_it = checks.into_iter().find(|check| check["name"] == "database").unwrap_or_else(|| panic!("{told}"));
        assert!(of_it["found"].as_str().is_some_and(|found| found.contains("locked")), "{of_it}");
        of_it["remedy"].as_str().expect("a remedy").to_owned()
    };
    let stopped = remedy();
    assert!(stopped.contains("has it open") && !stopped.contains("move it"), "{stopped}");
    // If a stopped relay holds the lock, the remedy is to end the relay, not to move its database.
    let lock = ledger.with_file_name("lock");
    let place = r#""cwd":"/","codex_home":"/","server":["codex"]"#;
    let signed = format!(r#"{{"pid":{},"started_at":"2026-01-01T00:00:00.000Z",{place}}}"#, std::process::id());
    fs::write(&lock, signed).expect("a file");
    let held = fs::File::options().write(true).open(&lock).expect("it is there");
    held.lock().expect("nobody holds it");
    let live = remedy();
    assert!(live.contains(&format!("pid {}", std::process::id())) && !live.contains("move it"), "{live}");
}

#[test]
fn doctor_with_a_lock_that_somebody_else_holds() {
    let lab = well();
    let lock = session(&lab).join("lock");
    // The lock's owner has exited, but a child of it still has the lock open.
    let mut gone = Command::new("true").spawn().expect("it starts");
    gone.wait().expect("it ends");
    let place = r#""cwd":"/","codex_home":"/","server":["codex"]"#;
    let signed = format!(r#"{{"pid":{},"started_at":"2026-01-01T00:00:00.000Z",{place}}}"#, gone.id());
    fs::write(&lock, signed).expect("a file");
    let held = fs::File::options().write(true).open(&lock).expect("it is there");
    held.lock().expect("nobody holds it");
    let told = told(&lab);
    let (status, found) = check(&told, "lock");
    assert!(status == "broken" && found.contains(&format!("pid {}", gone.id())), "{told}");
}

#[test]
fn doctor_calls_sessions_by_their_names() {
    const ID: &str = "0192aaaa-0000-7000-8000-00000000ab01";
    let lab = well();
    let session = lab.home.path().join("sessions").join(ID);
    for inner in ["journal", "transcripts"] {
        let folder = session.join(inner);
        fs::create_dir_all(&folder).expect("a folder");
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).expect("its mode");
    }
    drop(std::os::unix::net::UnixListener::bind(session.join("control.sock")).expect("a socket"));
    let mut gone = Command::new("true").spawn().expect("it starts");
    gone.wait().expect("it ends");
    let place = r#""client":"vscode","cwd":"/w/proj","codex_home":"/","server":["codex"]"#;
    let signed = format!(r#"{{"pid":{},"started_at":"2026-01-01T00:00:00.000Z",{place}}}"#, gone.id());
    fs::write(session.join("lock"), signed).expect("a file");
    let found = || -> Vec<String> {
        let told = told(&lab);
        let is_of_session = |check: &&Value| {
            ["folder", "socket", "lock"].iter().any(|name| check["name"] == *name) && check["status"] != "ok"
        };
        let checks = told["checks"].as_array().expect("checks").iter().filter(is_of_session);
        checks.map(|check| check["found"].as_str().expect("text").to_owned()).collect()
    };
    let has = |found: &[String], words: &str| found.iter().any(|found| found.contains(words));
    let stopped = found();
    assert!(has(&stopped, "session proj (vscode) ab01 records nothing"), "{stopped:?}");
    assert!(has(&stopped, "session proj (vscode) ab01 writes no transcript files"), "{stopped:?}");
    assert!(has(&stopped, "proj (vscode) ab01: left over from a relay"), "{stopped:?}");
    let held = fs::File::options().write(true).open(session.join("lock")).expect("it is there");
    held.lock().expect("nobody holds it");
    let live = found();
    assert!(has(&live, &format!("proj (vscode) ab01: held, but not by pid {}", gone.id())), "{live:?}");
    held.set_len(0).expect("it can be written");
    assert!(has(&found(), ": held by a process that is not named in it"), "{:?}", found());
}

#[cfg(target_os = "linux")]
#[test]
fn doctor_with_a_server_that_was_left_behind() {
    let lab = well();
    let pid_file = lab.user.join("pid");
    // The starting process exits at once, so no process of codex-shim is its parent.
    let script = format!(
        "sh -c 'echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 1; done' app-server &",
        pid_file.display()
    );
    let mut starts = Command::new("setsid");
    starts.args(["sh", "-c", &script]).env("CODEX_SHIM_DEPTH", "1");
    let status = starts.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().expect("setsid");
    assert!(status.success());
    let pid = eventually("its pid", || fs::read_to_string(&pid_file).ok()?.trim().parse::<i32>().ok());
    let told = told(&lab);
    kill_process(Pid::from_raw(pid).expect("a number"), Signal::KILL).expect("it runs");
    // Servers of other tests may be left behind too, each with a check of its own.
    let names_it = |check: &Value| {
        let found = check["found"].as_str().unwrap_or_default();
        found.split([' ', ':']).any(|word| word == pid.to_string())
    };
    let checks = told["checks"].as_array().expect("checks").iter();
    let of_it: Vec<&Value> = checks.filter(|check| check["name"] == "servers" && names_it(check)).collect();
    assert!(of_it.len() == 1 && of_it[0]["status"] == "note", "{told}");
}

#[test]
fn doctor_with_hooks_that_are_there_and_one_that_leads_nowhere() {
    let lab = well();
    let rc = lab.user.join(".bashrc");
    fs::write(&rc, format!("eval \"$({SHIM} hook bash)\"\n")).expect("a file");
    let told_now = told(&lab);
    assert_eq!(check(&told_now, "shell hooks"), ("ok".to_owned(), format!("in {}", rc.display())));
    fs::write(&rc, "eval \"$(codex-shim hook bash)\"\n").expect("a file");
    is_broken(&lab, "shell hooks", "codex-shim does not exist");
    let program = lab.user.join("bin/codex-shim");
    std::os::unix::fs::symlink(SHIM, &program).expect("a link");
    assert_eq!(check(&told(&lab), "shell hooks").0, "ok");
}

#[test]
fn doctor_says_where_codex_leads_to_on_path() {
    let lab = well();
    assert_eq!(check(&told(&lab), "path").0, "note");
    lab.well(&["wrap", "path", "--yes"]);
    assert_eq!(check(&told(&lab), "path").0, "ok");
}

#[test]
fn doctor_and_lists_are_of_one_session_where_that_is_named() {
    let lab = well();
    let broken = session(&lab).join("history.db");
    fs::write(&broken, "no database ".repeat(500)).expect("a file");
    let whole = lab.home.path().join("sessions/whole");
    fs::create_dir_all(&whole).expect("a folder");
    fs::write(whole.join("lock"), "").expect("a file");
    let document = |args: &[&str]| -> Value {
        let output = lab.shim(args);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{args:?}: {output:?}"))
    };
    assert_eq!(document(&["doctor", "--json"])["healthy"], false);
    assert_eq!(document(&["doctor", "--json", "--session", "whole"])["healthy"], true);
    assert_eq!(document(&["doctor", "--json", "--session", "s"])["healthy"], false);
    for list in ["sessions", "children"] {
        let ids = |more: &[&str]| -> Vec<String> {
            let rows = document(&[&[list, "--json"], more].concat())[list].as_array().expect("a list").clone();
            rows.iter().map(|row| row["session_id"].as_str().expect("an id").to_owned()).collect()
        };
        assert_eq!(ids(&[]).len(), 2, "{list}");
        assert_eq!(ids(&["--session", "wh"]), ["whole"], "{list}");
    }
    for tool in ["doctor", "sessions", "children"] {
        assert_eq!(lab.shim(&[tool, "--session", "nobody"]).status.code(), Some(3), "{tool}");
    }
}

#[test]
fn warnings_of_codex_about_its_configuration_are_shown() {
    let mut live = Live::initialized("");
    // As 0.171 sends them, to each connection anew.
    let invalid = r#"{"method":"configWarning","params":{"summary":"Invalid configuration; using defaults.","details":"/h/config.toml:1:9: invalid type: integer `5`, expected a string","path":"/h/config.toml","range":{"start":{"line":1,"column":9},"end":{"line":1,"column":9}}}}"#;
    let ignored = r#"{"method":"configWarning","params":{"summary":"Codex is ignoring 1 unrecognized configuration setting.\n  user (/h/config.toml): `nonsense` is ignored.","details":null}}"#;
    for line in [invalid, ignored, invalid] {
        live.say_plainly(line);
    }
    let warnings = eventually("the warnings", || {
        let warnings = live.get("/sessions/self")["config_warnings"].clone();
        (warnings.as_array().map(Vec::len) == Some(2)).then_some(warnings)
    });
    assert_eq!((&warnings[0]["is_broken"], &warnings[1]["is_broken"]), (&true.into(), &false.into()), "{warnings}");
    let status = String::from_utf8(live.tool(&["status"]).stdout).expect("it is text");
    assert!(status.starts_with("the relay is healthy, but codex cannot use its configuration\n"), "{status}");
    for line in [
        "codex     Invalid configuration; using defaults. /h/config.toml:1:9: invalid type: integer `5`, expected a string\n",
        "          Codex is ignoring 1 unrecognized configuration setting.\n",
        "            user (/h/config.toml): `nonsense` is ignored.\n",
    ] {
        assert!(status.contains(line), "{line:?}: {status}");
    }
    let doctor: Value = serde_json::from_slice(&live.tool(&["doctor", "--json"]).stdout).expect("JSON");
    let checks: Vec<&Value> =
        doctor["checks"].as_array().expect("a list").iter().filter(|check| check["name"] == "codex config").collect();
    let states: Vec<&str> = checks.iter().map(|check| check["status"].as_str().expect("a text")).collect();
    assert_eq!(states, ["broken", "note"], "{doctor}");
    for (check, words) in checks.iter().zip(["/h/config.toml:1:9: invalid type", "`nonsense` is ignored"]) {
        assert!(check["found"].as_str().is_some_and(|found| found.contains(words)), "{check}");
    }
    live.kill();
}
