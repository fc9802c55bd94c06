//! Behaviour that several tools share: two sessions in one folder, narrow terminals, and wrong arguments.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::both_ends::{Live, failed, told};
use crate::support::eventually;
use crate::support::pane::Pane;
use crate::support::requests::refused;
use crate::support::shim::{Home, SHIM};

/// Two relays in one folder: session `one` with the client `vscode`, and session `two` with `zed`, which was started last.
/// Each has a thread with its own name, in which the model has said `hello from NAME` and asks to run `make NAME`.
pub struct Pair {
    pub home: Home,
    pub folder: PathBuf,
    relays: Vec<Child>,
}

impl Pair {
    pub fn start() -> Pair {
        let home = Home::new();
        let folder = home.beside().join("proj");
        std::fs::create_dir(&folder).expect("a folder");
        let mut pair = Pair { home, folder, relays: Vec::new() };
        for (session, client) in [("one", "vscode"), ("two", "zed")] {
            pair.relays.push(relay(&pair, session, client));
            eventually("an action of the session", || {
                let actions = pair.tool(&["tail", session, "--json"]);
                let actions: Value = serde_json::from_slice(&actions.stdout).ok()?;
                (!actions["actions"].as_array()?.is_empty()).then_some(())
            });
        }
        pair
    }

    /// A tool that runs in the folder.
    pub fn tool(&self, arguments: &[&str]) -> Output {
        self.home.shim(arguments).current_dir(&self.folder).stdin(Stdio::null()).output().expect("the tool runs")
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for relay in &mut self.relays {
            let _ = relay.kill();
            let _ = relay.wait();
        }
    }
}

fn relay(pair: &Pair, session: &str, client: &str) -> Child {
    let said = json!({"method": "item/completed", "params": {"threadId": format!("thread-{session}"), "turnId": "u",
        "item": {"type": "agentMessage", "id": "m", "text": format!("hello from {session}")}}});
    let asked = json!({"id": 9, "method": "item/commandExecution/requestApproval", "params": {
        "threadId": format!("thread-{session}"), "turnId": "u", "itemId": "i", "command": format!("make {session}")}});
    let server = r#"read -r line; printf '%s\n%s\n' "$SAID" "$ASKED"; cat >/dev/null"#;
    let mut command = pair.home.shim(&["run", "--session", session, "--", "sh", "-c", server]);
    command.env("SAID", said.to_string()).env("ASKED", asked.to_string());
    let mut relay = command.current_dir(&pair.folder).spawn().expect("the shim starts");
    let line = json!({"id": 0, "method": "initialize", "params": {"clientInfo": {"name": client, "version": "1"}}});
    writeln!(relay.stdin.as_mut().expect("stdin is piped"), "{line}").expect("the relay reads");
    relay
}

#[track_caller]
fn shown(output: &Output) -> (String, String) {
    assert!(output.status.success(), "{output:?}");
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn lists_show_all_sessions_of_a_folder() {
    let pair = Pair::start();
    let (tail, note) = shown(&pair.tool(&["tail"]));
    for part in ["proj (vscode) one\n", "make one", "proj (zed) two\n", "make two"] {
        assert!(tail.contains(part), "{part}: {tail}");
    }
    assert_eq!(note, "");
    let actions = told(&pair.tool(&["tail", "--json"]))["actions"].as_array().cloned().expect("an array");
    let sessions: Vec<&Value> = actions.iter().map(|action| &action["session_id"]).collect();
    assert!(sessions.contains(&&json!("one")) && sessions.contains(&&json!("two")), "{sessions:?}");
    let (fragments, note) = shown(&pair.tool(&["fragments"]));
    for part in ["proj (vscode) one\n", "proj (zed) two\n", "no fragments were sent yet"] {
        assert!(fragments.contains(part), "{part}: {fragments}");
    }
    assert_eq!((note, told(&pair.tool(&["fragments", "--json"]))), (String::new(), json!({ "threads": [] })));
    // A named session is shown alone.
    let (tail, _) = shown(&pair.tool(&["tail", "one"]));
    assert!(tail.contains("make one") && !tail.contains("make two") && !tail.contains("proj ("), "{tail}");
}

#[test]
fn several_sessions_are_one_document() {
    let pair = Pair::start();
    for session in ["two", "one"] {
        shown(&pair.tool(&["context", "push", session, "--cmd", session]));
    }
    let context = told(&pair.tool(&["context", "show", "--json"]));
    let commands = context["commands"].as_array().cloned().expect("an array");
    let mut of: Vec<_> = commands.iter().map(|one| (one["session_id"].as_str(), one["cmd"].as_str())).collect();
    of.sort_unstable();
    assert_eq!(of, [(Some("one"), Some("one")), (Some("two"), Some("two"))]);
    assert_eq!(context["total_commands_run"], 2);
    // The limit counts the actions of both.
    let last = told(&pair.tool(&["tail", "-n", "1", "--json"]));
    assert_eq!((last["actions"].as_array().map(Vec::len), &last["actions"][0]["session_id"]), (Some(1), &json!("two")));
    let (tail, _) = shown(&pair.tool(&["tail", "-n", "1"]));
    assert!(tail.contains("make two") && !tail.contains("make one"), "{tail}");
    let requests = told(&pair.tool(&["requests", "--json"]));
    let requests: Vec<&Value> =
        requests["requests"].as_array().expect("an array").iter().map(|row| &row["session_id"]).collect();
    assert_eq!(requests, ["one", "two"]);
}

#[test]
fn silent_session_hides_no_other() {
    let pair = Pair::start();
    let is_stopped = Command::new("kill").args(["-STOP", &pair.relays[0].id().to_string()]).status();
    assert!(is_stopped.expect("kill runs").success());
    for (args, expect) in [
        (&["tail"][..], "make two"),
        (&["requests", "--json"], "make two"),
        (&["context", "show", "--json"], "total_commands_run"),
    ] {
        let output = pair.tool(args);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(printed.contains(expect) && !printed.contains("make one"), "{output:?}");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("proj (vscode) one (pid "), "{output:?}");
    }
    let (transcript, note) = shown(&pair.tool(&["transcript", "thread-two"]));
    assert!(transcript.contains("hello from two") && note.contains("proj (vscode) one (pid "), "{transcript} {note}");
}

#[test]
fn events_and_transcripts_name_their_session() {
    let pair = Pair::start();
    // Event numbers and conversations belong to one session: the one used last, with a note.
    for args in [&["events"][..], &["transcript"], &["events", "--json"], &["tail", "-f", "-n", "1"]] {
        let is_endless = args.contains(&"-f");
        let (printed, note) = match is_endless {
            false => shown(&pair.tool(args)),
            true => {
                let mut tool = pair.home.shim(args);
                let mut tool = tool.current_dir(&pair.folder).stdin(Stdio::null()).spawn().expect("the tool runs");
                let mut note = String::new();
                let mut stderr = std::io::BufReader::new(tool.stderr.take().expect("stderr is piped"));
                std::io::BufRead::read_line(&mut stderr, &mut note).expect("it is text");
                tool.kill().expect("it runs");
                tool.wait().expect("it was killed");
                (String::new(), note)
            }
        };
        assert!(note.contains("this is proj (zed) two, ") && note.contains("proj (vscode) one"), "{args:?}: {note}");
        assert!(!printed.contains("thread-one") && !printed.contains("hello from one"), "{args:?}: {printed}");
    }
    // A thread belongs to one session, so its name is enough.
    let (one, note) = shown(&pair.tool(&["transcript", "thread-one"]));
    assert!(one.contains("hello from one") && note.is_empty(), "{one}{note}");
    let (two, note) = shown(&pair.tool(&["transcript", "thread-t"]));
    assert!(two.contains("hello from two") && note.is_empty(), "{two}{note}");
    failed(&pair.tool(&["transcript", "thread-"]), 3, "several threads: thread-two; thread-one");
    failed(&pair.tool(&["transcript", "nope"]), 3, "threads in these sessions: ");
    let (events, note) = shown(&pair.tool(&["events", "--thread", "thread-one"]));
    assert!(events.contains("thread-one") && note.is_empty(), "{events}{note}");
}

#[test]
fn hooked_commands_go_to_every_session_here() {
    let pair = Pair::start();
    let script = format!(
        "PATH={}:$PATH; eval \"$(codex-shim hook bash)\"\nfalse-ish() {{ return 3; }}\nfalse-ish one two\nexit\n",
        Path::new(SHIM).parent().expect("it is in a folder").display()
    );
    let mut command = pair.home.shim(&["--version"]);
    let _ = &mut command;
    let mut pane =
        Pane::start_with(&pair.home, &["bash", "--norc", "-i"], &[("PS1", "@@>"), ("HISTFILE", "/dev/null")]);
    pane.types(&format!("cd {}\n{script}", pair.folder.display()));
    for session in ["one", "two"] {
        let kept = eventually("the typed command as context", || {
            let context = told(&pair.tool(&["context", "show", "--session", session, "--json"]));
            let commands = context["commands"].as_array().cloned().unwrap_or_default();
            commands.into_iter().find(|command| command["cmd"] == "false-ish one two")
        });
        assert_eq!((&kept["exit_code"], &kept["cwd"]), (&json!(3), &json!(pair.folder)), "{session}: {kept}");
    }
}

#[test]
fn context_tools_print_the_short_name() {
    let live = Live::start();
    let mut pane = Pane::start_with(
        &live.home,
        &["sh", "-c", &format!("{SHIM} context push --cmd ls; {SHIM} context clear; echo so that ''is all")],
        &[("NO_COLOR", "1")],
    );
    let printed = pane.shows("so that is all");
    let name = live.home.beside().file_name().and_then(|name| name.to_str()).expect("UTF-8");
    assert!(printed.contains(&format!("message in session {name} s carries 1 command")), "{printed}");
    assert!(printed.contains(&format!("are waiting in session {name} s any more")), "{printed}");
    // Programs get the id.
    let pushed = live.tool(&["context", "push", "--cmd", "ls"]);
    assert_eq!(String::from_utf8_lossy(&pushed.stdout), "the next message in session s carries 1 command\n");
    live.kill();
}

#[test]
fn context_show_knows_the_settings_of_the_relay() {
    let home = Home::new();
    let mut command = home.shim(&["run", "--session", "s", "--", "cat"]);
    command.env("CODEX_SHIM_CARRIER", "off").env("CODEX_SHIM_CONTEXT_COMMANDS_MAX", "1").current_dir(home.beside());
    let mut relay = command.spawn().expect("the shim starts");
    let tool = |args: &[&str]| home.shim(args).current_dir(home.beside()).output().expect("the tool runs");
    for cmd in ["first", "second"] {
        eventually("the relay", || tool(&["context", "push", "s", "--cmd", cmd]).status.success().then_some(()));
    }
    let (printed, _) = shown(&tool(&["context", "show", "s"]));
    assert!(printed.contains("carries 1 command") && printed.contains("`carrier` is \"off\""), "{printed}");
    assert!(printed.contains("second") && !printed.contains("first"), "{printed}");
    let context = told(&tool(&["status", "s", "--json"]))["config"]["context"].clone();
    assert_eq!((&context["carrier"], &context["commands_max"]), (&json!("off"), &json!(1)), "{context}");
    relay.kill().expect("it runs");
    relay.wait().expect("it was killed");
    // A stopped session uses the settings of the file and the environment.
    let (printed, _) = shown(&tool(&["context", "show", "s"]));
    assert!(!printed.contains("`carrier`"), "{printed}");
}

#[test]
fn invalid_form_fields_are_named_in_the_refusal() {
    let mut live = Live::initialized("");
    let form = r#"{"id":4,"method":"mcpServer/elicitation/request","params":{"threadId":"t","turnId":"u1","serverName":"lab","mode":"form","message":"Deploy?","requestedSchema":{"type":"object","properties":{"replicas":{"type":"integer","maximum":9},"env":{"type":"string","enum":["dev","prod"]},"owner":{"type":"string"}},"required":["owner"]}}}"#;
    let request_id = live.asked(form, "4");
    let given = json!({"action": "accept", "content": {"replicas": 99, "env": "mars"}});
    let detail = refused(live.respond(&request_id, &given), (422, "invalid_response"));
    let members: Vec<&str> = detail.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(members, ["error_code", "fields", "message", "valid"]);
    let fields = json!({
        "env": "`mars` is not one of dev, prod", "owner": "a value is required",
        "replicas": "99 is greater than the maximum of 9",
    });
    assert_eq!(detail["fields"], fields);
    live.kill();
}

#[test]
fn serve_takes_the_name_of_its_session() {
    let home = Home::new();
    let mut serve = home.shim(&["serve", "bot", "--", "cat"]).current_dir(home.beside()).spawn().expect("it starts");
    eventually("the session", || home.path().join("sessions/bot/control.sock").exists().then_some(()));
    serve.kill().expect("it runs");
    serve.wait().expect("it was killed");
    for (args, words) in [
        (&["serve", "bot", "--session", "bot", "--", "cat"][..], "cannot be used with"),
        (&["serve", "a/b", "--", "cat"], "a/b"),
        (&["run", "bot", "--", "cat"], "bot"),
    ] {
        let output = home.shim(args).stdin(Stdio::null()).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(words), "{args:?}: {said}");
    }
}

#[test]
fn misplaced_options_are_answered_with_their_command() {
    let home = Home::new();
    for (args, remedy) in [
        (&["--codex", "/x/codex"][..], "codex-shim run --codex PATH"),
        (&["--codex=/x/codex"], "codex-shim run --codex PATH"),
        (&["--session", "s"], "codex-shim run --session NAME"),
        (&["--session", "s", "app-server"], "codex-shim run --session NAME"),
        (&["--exit-grace", "3s"], "codex-shim run --exit-grace TIME"),
        (&["--follow"], "codex-shim requests --follow"),
        (&["tape", "--strict"], "codex-shim replay --strict"),
    ] {
        let output = home.shim(args).stdin(Stdio::null()).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{args:?}: {output:?}");
        let option = args.iter().find(|arg| arg.starts_with("--")).expect("an option");
        assert!(said.contains(option.split('=').next().unwrap_or_default()), "{said}");
        assert!(said.contains(remedy), "{args:?}: {said}");
    }
    let output = home.shim(&["--bogus"]).stdin(Stdio::null()).output().expect("it runs");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("codex-shim run"), "{output:?}");
}

/// The output of commands on a terminal with so many columns.
fn on_terminal(home: &Home, columns: usize, args: &str) -> String {
    let script = format!("stty cols {columns}; {SHIM} {args}; echo so that ''is all");
    let mut pane = Pane::start_with(home, &["sh", "-c", &script], &[("NO_COLOR", "1")]);
    let printed = pane.shows("so that is all");
    printed.replace("so that is all", "").replace('\r', "")
}

#[test]
fn help_and_errors_break_between_words() {
    let home = Home::new();
    for args in
        ["--help", "-h", "send --help", "help tape export", "tape", "events --bogus", "respond", "--codex x", "config"]
    {
        for columns in [40, 60] {
            let printed = on_terminal(&home, columns, args);
            for line in printed.lines() {
                // A setting is copied, so it is never broken.
                let is_one_word = !line.trim().contains(' ') || args == "config" && !line.starts_with('#');
                assert!(line.chars().count() <= columns || is_one_word, "{args} at {columns}: {line:?}\n{printed}");
            }
        }
    }
    let wide = on_terminal(&home, 100, "send --help");
    assert!(wide.contains("\n  git diff | codex-shim send - --json | jq -r .turn_id\n"), "{wide}");
    assert!(wide.lines().all(|line| line.chars().count() <= 80), "{wide}");
}

#[test]
fn transcripts_wrap_between_words_on_a_terminal() {
    let mut live = Live::initialized("");
    let long = "one two three four five six seven eight nine ten eleven twelve";
    let text = format!("{long}\n- {long}\n```\nlet code = \"{long}\";\n```\n");
    let item = json!({"type": "agentMessage", "id": "m", "text": text});
    live.say_plainly(
        &json!({"method": "item/completed", "params": {"threadId": "t", "turnId": "u1", "item": item}}).to_string(),
    );
    eventually("the message", || live.tool(&["transcript"]).status.success().then_some(()));
    let printed = on_terminal(&live.home, 40, "transcript --utc");
    let expect = "\
\x20 one two three four five six seven
\x20 eight nine ten eleven twelve
\x20 - one two three four five six seven
\x20   eight nine ten eleven twelve
\x20 ```
\x20 let code = \"one two three four five six seven eight nine ten eleven twelve\";
\x20 ```
";
    assert!(printed.contains(expect), "{printed}");
    // Programs get the lines of the model.
    let piped = String::from_utf8(live.tool(&["transcript"]).stdout).expect("UTF-8");
    assert!(piped.contains(&format!("\n  - {long}\n")), "{piped}");
    live.kill();
}
