//! The commands that tell a person when they are needed: `on_stalled`, `codex-shim notify test`, and the recipes of
//! `docs/notifications.md`, each run as it is on the page.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use crate::support::both_ends::{Live, failed, lines_of, next, text, told};
use crate::support::eventually;
use crate::support::requests::turn_completed;
use crate::support::shim::{Home, SHIM, put_program};

const COMMAND: &str = r#"{"id":0,"method":"item/commandExecution/requestApproval","params":{"threadId":"t","turnId":"u1","itemId":"i0","command":"make","cwd":"/work"}}"#;

/// A relay with these settings, whose server is initialized and runs turn `u1` in thread `t`.
fn in_turn(home: Home, config: &str) -> Live {
    configure(&home, config);
    Live::start_in(home).in_turn()
}

fn configure(home: &Home, config: &str) {
    fs::create_dir_all(home.path()).expect("a folder");
    fs::write(home.path().join("config.toml"), config).expect("a file");
}

/// A hook that appends its input to a file.
fn appends(file: &Path) -> String {
    format!(r#"["sh", "-c", 'cat >> {0}; echo "$CODEX_SHIM_SESSION" >> {0}']"#, file.display())
}

/// The documents that [`appends`] has written, each with the session.
fn appended(file: &Path) -> Vec<(Value, String)> {
    let whole = fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<&str> = whole.lines().collect();
    lines.chunks_exact(2).map(|pair| (serde_json::from_str(pair[0]).expect("JSON"), pair[1].to_owned())).collect()
}

#[test]
fn silent_turn_is_reported_once_for_each_silence() {
    let home = Home::new();
    let file = home.beside().join("stalled");
    let mut live = in_turn(home, &format!("on_stalled = {}\nstalled_after = \"300ms\"\n", appends(&file)));
    // A slow machine may add silences before these.
    let now = |live: &Live| live.get("/sessions/self")["threads"][0]["stalled_since"].clone();
    let reported = |live: &Live| {
        eventually("the hook", || {
            let last = appended(&file).pop()?;
            (!now(live).is_null() && last.0["stalled_since"] == now(live)).then_some(last)
        })
    };
    let (document, session) = reported(&live);
    assert_eq!((&document["thread_id"], &document["turn_id"]), (&json!("t"), &json!("u1")));
    assert_eq!(session, "s");
    // A notice about the account ends no silence.
    live.say_plainly(r#"{"method":"account/rateLimits/updated","params":{"rateLimits":{}}}"#);
    eventually("the index", || (live.get("/sessions/self")["index"]["lag_lines"] == 0).then_some(()));
    assert_eq!(now(&live), document["stalled_since"]);
    live.say_plainly(
        r#"{"method":"item/agentMessage/delta","params":{"threadId":"t","turnId":"u1","itemId":"m","delta":"a"}}"#,
    );
    assert_ne!(reported(&live).0["stalled_since"], document["stalled_since"]);
    // A turn that waits for a person has not stalled.
    live.say_plainly(COMMAND);
    eventually("the request", || (live.get("/sessions/self")["state"] == "waiting_permission").then_some(()));
    assert_eq!(now(&live), Value::Null);
    let mut since: Vec<String> = appended(&file).iter().map(|(document, _)| text(&document["stalled_since"])).collect();
    let count = since.len();
    since.dedup();
    assert_eq!(since.len(), count, "{since:?}");
    live.kill();
}

#[test]
fn changed_stall_settings_apply_at_once() {
    let home = Home::new();
    let file = home.beside().join("stalled");
    let live = in_turn(home, "");
    configure(&live.home, &format!("on_stalled = {}\nstalled_after = \"100ms\"\n", appends(&file)));
    eventually("the hook", || (!appended(&file).is_empty()).then_some(()));
    live.kill();
}

#[test]
fn hooks_are_tried_with_examples() {
    let home = Home::new();
    let none = home.shim(&["notify", "test"]).output().expect("it runs");
    failed(
        &none,
        1,
        "no command is configured; set on_pending, on_idle, on_stalled, on_bypass, on_budget in config.toml",
    );
    let config = "on_pending = [\"sh\", \"-c\", 'jq -r .summary; echo \"$CODEX_SHIM_SESSION\" >&2']\n\
                  on_idle = [\"sh\", \"-c\", \"exit 3\"]\non_stalled = [\"/no/such/program\"]\n";
    configure(&home, config);
    let output = home.shim(&["notify", "test", "--json"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let told: Vec<(String, Value)> = document["hooks"].as_array().expect("an array").iter().map(row_of).collect();
    let expect = [("on_pending", json!(0)), ("on_idle", json!(3)), ("on_stalled", Value::Null)];
    assert_eq!(told, expect.map(|(name, status)| (name.to_owned(), status)));
    let shown = text(&document["hooks"][0]["output"]);
    assert!(shown.starts_with("run echo") && shown.ends_with("\nexample\n"), "{shown}");
    assert!(text(&document["hooks"][2]["error"]).starts_with("it cannot be started: "), "{document}");
    let one = home.shim(&["notify", "test", "pending"]).output().expect("it runs");
    let shown = String::from_utf8(one.stdout).expect("UTF-8");
    assert!(one.status.success() && shown.starts_with("on_pending  exit status 0  "), "{shown}");
}

fn row_of(hook: &Value) -> (String, Value) {
    (text(&hook["hook"]), hook["exit_status"].clone())
}

/// The example has the members that a relay gives its hook.
#[test]
fn example_is_like_a_real_request() {
    let home = Home::new();
    let file = home.beside().join("pending");
    let config = format!("on_pending = {}\non_pending_after = \"1ms\"\n", appends(&file));
    let mut live = in_turn(home, &config);
    live.say_plainly(COMMAND);
    let real = eventually("the hook", || appended(&file).pop()).0;
    fs::remove_file(&file).expect("it is there");
    assert!(live.tool(&["notify", "test"]).status.success());
    let example = appended(&file).pop().expect("it ran");
    assert_eq!(example.1, "s");
    let members = |row: &Value| row.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(members(&example.0), members(&real));
    live.kill();
}

#[test]
fn hooks_are_told_which_thread_it_is() {
    let home = Home::new();
    let [pending, idle, stalled] = ["pending", "idle", "stalled"].map(|name| home.beside().join(name));
    let config = format!(
        "on_pending = {}\non_pending_after = \"1ms\"\non_idle = {}\non_stalled = {}\nstalled_after = \"100ms\"\n",
        appends(&pending),
        appends(&idle),
        appends(&stalled)
    );
    let mut live = in_turn(home, &config);
    let thread = json!({"id": "t", "cwd": "/p/proj", "name": "Fix it", "threadSource": "user"});
    live.say_plainly(&json!({"method": "thread/started", "params": {"thread": thread}}).to_string());
    let check = |file: &Path| {
        let document = eventually("a hook that knows the thread", || {
            let (document, _) = appended(file).pop()?;
            (!document["thread"]["title"].is_null()).then_some(document)
        });
        let thread = &document["thread"];
        let told = (&thread["title"], &thread["cwd"], &thread["kind"]);
        assert_eq!(told, (&json!("Fix it"), &json!("/p/proj"), &json!("user")), "{document}");
        let name = document["name"].as_str().expect("a name");
        assert!(name == "proj" || name.starts_with("proj ("), "{name}");
    };
    eventually("the index", || (live.get("/sessions/self")["threads"][0]["title"] == "Fix it").then_some(()));
    // Each silence is told once.
    let delta =
        r#"{"method":"item/agentMessage/delta","params":{"threadId":"t","turnId":"u1","itemId":"m","delta":"a"}}"#;
    live.say_plainly(delta);
    check(&stalled);
    live.say_plainly(COMMAND);
    check(&pending);
    live.say_plainly(&turn_completed("t", "u1"));
    check(&idle);
    live.kill();
}

// The recipes

/// Text of a model that would break a careless script.
const HOSTILE: &str = "-x <b>&amp; \"q\" 'q' $(touch pwned) `touch pwned` \\n %s !\u{7f} ü";

fn recipes() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/notifications.md");
    fs::read_to_string(page).expect("the page")
}

/// Writes the script of this name from the page to a folder of programs; returns that folder.
fn script(home: &Home, name: &str) -> PathBuf {
    let page = recipes();
    let head = format!("#!/bin/sh\n# {name}\n");
    let mut scripts = page.split("```sh\n").filter_map(|block| block.split_once("```")).map(|(script, _)| script);
    let script =
        scripts.find(|script| script.starts_with(&head)).unwrap_or_else(|| panic!("{name} is not on the page"));
    let folder = home.beside().join("bin");
    fs::create_dir_all(&folder).expect("a folder");
    put_program(&folder.join(name), script.as_bytes());
    if !folder.join("codex-shim").exists() {
        std::os::unix::fs::symlink(SHIM, folder.join("codex-shim")).expect("a link");
    }
    folder
}

/// Points a command at the scripts and at the files of a user.
#[expect(clippy::disallowed_methods, reason = "the scripts need the programs of this machine")]
fn with_user<'a>(home: &Home, command: &'a mut Command) -> &'a mut Command {
    let path = format!("{}:{}", home.beside().join("bin").display(), std::env::var("PATH").unwrap_or_default());
    for proxy in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env_remove(proxy);
    }
    home.adopt(command).env("PATH", path).env("HOME", home.beside()).current_dir(home.beside())
}

/// Runs a script with a document on stdin.
fn run(home: &Home, words: &[&str], input: &Value) -> Output {
    let mut command = Command::new(home.beside().join("bin").join(words[0]));
    command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut script = with_user(home, &mut command).spawn().expect("the script runs");
    write!(script.stdin.take().expect("stdin is piped"), "{input}").expect("it reads");
    let output = script.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{words:?}: {output:?}");
    assert!(!home.beside().join("pwned").exists(), "{words:?} ran the text");
    output
}

/// Ends a script with all that it has started.
fn end_group(script: &mut Child) {
    kill_process_group(Pid::from_child(script), Signal::KILL).expect("it runs");
    script.wait().expect("it ends");
}

fn hostile() -> Value {
    json!({ "summary": HOSTILE, "request_id": "6b02d1a90c4e-0", "request_type": "request_approval", "status": "pending" })
}

fn stalled() -> Value {
    json!({ "thread_id": "t", "turn_id": "u", "stalled_since": "2026-01-02T03:04:05.000Z", "silent_ms": 300_000 })
}

fn idle() -> Value {
    json!({ "thread_id": "t", "turn_id": "u", "status": "failed", "error": null })
}

/// A configuration file of the user.
fn user_file(home: &Home, name: &str, text: &str) {
    let folder = home.beside().join(".config");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join(name), text).expect("a file");
}

/// An HTTP server that keeps the requests, as their path and body, and answers each with what `answer` says.
struct Server {
    url: String,
    got: Arc<Mutex<Vec<(String, String)>>>,
}

impl Server {
    fn start(answer: impl Fn(&str, &str) -> String + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let got = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&got);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (path, body) = request(&stream);
                let answer = answer(&path, &body);
                kept.lock().unwrap().push((path, body));
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", answer.len());
                let _ = (&stream).write_all(format!("{head}{answer}").as_bytes());
            }
        });
        Server { url, got }
    }

    /// The bodies sent to this path so far.
    fn bodies(&self, path: &str) -> Vec<String> {
        let got = self.got.lock().unwrap();
        got.iter().filter(|(of, _)| of == path).map(|(_, body)| body.clone()).collect()
    }
}

/// The path and the body of an HTTP request.
fn request(stream: &TcpStream) -> (String, String) {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).expect("a line");
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        let line = line.trim_end().to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().expect("a number");
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the body");
    let path = first.split(' ').nth(1).expect("a path").to_owned();
    (path, String::from_utf8(body).expect("UTF-8"))
}

#[test]
fn recipe_for_a_desktop_works() {
    let home = Home::new();
    let folder = script(&home, "codex-desktop");
    let fake = "#!/bin/sh\nfor word; do printf '%s\\n' \"$word\"; done >> \"$HOME/shown\"\n";
    put_program(&folder.join("notify-send"), fake.as_bytes());
    let shown = |input: &Value| {
        let _ = fs::remove_file(home.beside().join("shown"));
        run(&home, &["codex-desktop"], input);
        let words = fs::read_to_string(home.beside().join("shown")).expect("it was shown");
        let text = words.strip_prefix("--app-name=codex-shim\n--\ncodex\n").unwrap_or_else(|| panic!("{words:?}"));
        text.trim_end_matches('\n').to_owned()
    };
    assert_eq!(shown(&hostile()), HOSTILE.replace('&', "&amp;").replace('<', "&lt;"));
    assert_eq!(shown(&stalled()), "a turn is silent since 2026-01-02T03:04:05.000Z");
    assert_eq!(shown(&idle()), "a turn is over: failed");
    // As a user would try it.
    configure(
        &home,
        "on_pending = [\"codex-desktop\"]\non_idle = [\"codex-desktop\"]\non_stalled = [\"codex-desktop\"]\n",
    );
    let mut tried = Command::new(folder.join("codex-shim"));
    let tried = with_user(&home, tried.args(["notify", "test", "--json"])).output().expect("it runs");
    assert_eq!(told(&tried)["hooks"].as_array().map(Vec::len), Some(3));
}

#[test]
fn recipe_for_a_phone_works() {
    let home = Home::new();
    script(&home, "codex-ntfy");
    let server = Server::start(|_, _| "{}".to_owned());
    user_file(
        &home,
        "codex-ntfy",
        &format!("url = \"{}/my-topic\"\nheader = \"Authorization: Bearer x\"\n", server.url),
    );
    for input in [hostile(), stalled(), idle()] {
        run(&home, &["codex-ntfy"], &input);
    }
    let expect = [HOSTILE, "a turn is silent since 2026-01-02T03:04:05.000Z", "a turn is over: failed"];
    assert_eq!(server.bodies("/my-topic"), expect);
}

#[test]
fn recipe_for_slack_works() {
    let home = Home::new();
    script(&home, "codex-slack");
    let server = Server::start(|_, _| "ok".to_owned());
    user_file(&home, "codex-slack", &format!("url = \"{}/services/x\"\n", server.url));
    for input in [hostile(), stalled(), idle()] {
        run(&home, &["codex-slack"], &input);
    }
    let sent: Vec<Value> =
        server.bodies("/services/x").iter().map(|body| serde_json::from_str(body).expect("JSON")).collect();
    let escaped = HOSTILE.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    assert_eq!(sent[0], json!({ "text": format!("codex: {escaped}") }));
    assert_eq!(sent[1]["text"], "codex: a turn is silent since 2026-01-02T03:04:05.000Z");
    assert_eq!(sent[2]["text"], "codex: a turn is over: failed");
}

#[test]
fn recipe_for_a_bell_works() {
    let home = Home::new();
    let folder = script(&home, "codex-bell");
    let mut live = in_turn(home, "");
    let mut command = Command::new(folder.join("codex-bell"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let mut bell = with_user(&live.home, &mut command).spawn().expect("the script runs");
    let lines = lines_of(bell.stdout.take().expect("stdout is piped"));
    live.say_plainly(COMMAND);
    let line = next(&lines, "a bell");
    assert!(line.starts_with('\u{7}') && line.ends_with(" (ide)  run make\n"), "{line:?}");
    end_group(&mut bell);
    live.kill();
}

/// The message of a request has buttons; pressing one answers the request. Others cannot press it.
#[test]
fn recipe_for_telegram_answers() {
    let home = Home::new();
    let folder = script(&home, "codex-telegram");
    // Presses `accept` on the first message, first as a stranger.
    let pressed = Arc::new(Mutex::new(None::<String>));
    let button = Arc::clone(&pressed);
    let asked = Mutex::new(0);
    let server = Server::start(move |path, body| match path {
        "/bottoken/sendMessage" => {
            let message: Value = serde_json::from_str(body).expect("JSON");
            let data = message["reply_markup"]["inline_keyboard"][0][0]["callback_data"].as_str();
            button.lock().unwrap().get_or_insert_with(|| data.unwrap_or_default().to_owned());
            r#"{"ok":true}"#.to_owned()
        }
        "/bottoken/getUpdates" => {
            let mut asked = asked.lock().unwrap();
            *asked += 1;
            let press = |id: u32, from: u32, data: &str| json!({ "update_id": id, "callback_query": { "id": id.to_string(), "from": { "id": from }, "data": data } });
            let data = button.lock().unwrap().clone().filter(|data| !data.is_empty());
            let updates = match (&data, *asked) {
                (Some(data), _) if body.contains("\"offset\": 0") || body.contains("\"offset\":0") => {
                    vec![
                        press(5, 13, &data.replace("accept", "decline")),
                        press(6, 42, "accept $(touch pwned)"),
                        press(7, 42, data),
                    ]
                }
                _ => Vec::new(),
            };
            json!({ "ok": true, "result": updates }).to_string()
        }
        _ => r#"{"ok":true}"#.to_owned(),
    });
    user_file(&home, "codex-telegram", &format!("TOKEN=token\nCHAT=42\nAPI={}\n", server.url));
    let input = json!({ "summary": HOSTILE, "request_id": "6b02d1a90c4e-0", "request_type": "request_user_input" });
    run(&home, &["codex-telegram", "send"], &stalled());
    run(&home, &["codex-telegram", "send"], &input);
    let sent: Vec<Value> =
        server.bodies("/bottoken/sendMessage").iter().map(|body| serde_json::from_str(body).unwrap()).collect();
    assert_eq!(sent[0]["text"], "a turn is silent since 2026-01-02T03:04:05.000Z");
    assert_eq!(sent[1], json!({ "chat_id": "42", "text": HOSTILE }));
    *pressed.lock().unwrap() = None;
    let mut live = in_turn(home, "on_pending_after = \"1ms\"\n");
    live.say_plainly(COMMAND);
    let row = live.get("/sessions/self/codex-pending-requests")["requests"][0].clone();
    run(&live.home, &["codex-telegram", "send"], &row);
    let mut command = Command::new(folder.join("codex-telegram"));
    command.arg("answer").stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    let mut answers = with_user(&live.home, &mut command).spawn().expect("the script runs");
    let answer: Value = serde_json::from_str(&live.at_server()).expect("JSON");
    assert_eq!(answer["result"], json!({ "decision": "accept" }));
    let answered = eventually("the answer to the button", || server.bodies("/bottoken/answerCallbackQuery").pop());
    assert!(answered.contains("answered: accept") && answered.contains("\"7\""), "{answered}");
    end_group(&mut answers);
    assert!(!live.home.beside().join("pwned").exists());
    live.kill();
}
