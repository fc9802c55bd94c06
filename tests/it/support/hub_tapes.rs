//! Conversations of several clients of a hub, by the names of their tapes.

use std::path::Path;

use serde_json::{Value, json};

use super::codex::Lab;
use super::websocket::Client;

/// Two clients on one thread: both are asked, the second one answers. They leave while a second request is open, come back,
/// and the first one answers.
pub const TWO_CLIENTS: &str = "hub_two_clients";

/// A real TUI: one turn with an approval.
pub const TUI: &str = "hub_tui";

/// What the user of [`TUI`] types.
pub const WORDS: &str = "run it";

/// The mark before the TUI's input.
pub const PROMPT: &str = "›";

/// The dialog of an approval.
pub const DIALOG: &str = "Would you like to run the following command?";

/// Answers of the TUI to the screens of its first start: without them it waits for a person.
pub const FIRST_START: &str = r#"
[tui]
screen_reader_detection_done = true
[tui.model_availability_nux]
"gpt-6.1-sol" = 2
[notice.model_migrations]
"gpt-5.5" = "gpt-6-sol"
"#;

/// A shell command that runs the TUI of codex as a client of this socket.
pub fn remote(codex: &Path, socket: &Path, lab: &Lab) -> String {
    let (cwd, codex_home, home) = (lab.cwd(), lab.codex_home(), lab.root());
    format!(
        "cd '{cwd}'; export CODEX_HOME='{}' HOME='{}'; exec '{}' --remote 'unix://{}' -C '{cwd}' 2>'{}'",
        codex_home.display(),
        home.display(),
        codex.display(),
        socket.display(),
        home.join("tui.err").display(),
        cwd = cwd.display(),
    )
}

pub fn is_asked(message: &Value) -> bool {
    message["method"] == "item/commandExecution/requestApproval"
}

pub fn is_resolved(message: &Value) -> bool {
    message["method"] == "serverRequest/resolved"
}

pub fn is_completed(message: &Value) -> bool {
    message["method"] == "turn/completed"
}

fn resume(client: &mut Client, thread: &str) {
    client.call("thread/resume", json!({"threadId": thread, "excludeTurns": true}));
}

fn turn(client: &mut Client, thread: &str, words: &str) {
    let input = json!([{"type": "text", "text": words, "text_elements": []}]);
    client.call("turn/start", json!({"threadId": thread, "input": input}));
}

/// Both are asked, with the same id; returns it.
fn both_asked(first: &mut Client, second: &mut Client) -> Value {
    let asked = first.wait_for("the request", is_asked);
    assert_eq!(second.wait_for("the request", is_asked), asked);
    asked["id"].clone()
}

/// Plays the clients of [`TWO_CLIENTS`] at a socket.
pub fn two_clients(socket: &Path, cwd: &Path) {
    let mut editor = Client::connect(socket);
    editor.initialize("editor");
    let mut terminal = Client::connect(socket);
    terminal.initialize("terminal");
    let params = json!({"cwd": cwd, "approvalPolicy": "on-request", "sandbox": "read-only"});
    let thread = editor.call("thread/start", params)["thread"]["id"].as_str().expect("a name").to_owned();
    turn(&mut editor, &thread, "run it");
    editor.wait_for("the request", |message| message["method"] == "item/commandExecution/requestApproval");
    resume(&mut terminal, &thread);
    let asked = terminal.wait_for("the request", is_asked);
    terminal.answer(&asked["id"], json!({"decision": "accept"}));
    for client in [&mut editor, &mut terminal] {
        let resolved = client.wait_for("its end", is_resolved);
        assert_eq!(resolved["params"]["requestId"], asked["id"]);
        client.wait_for("the end of the turn", is_completed);
    }
    turn(&mut editor, &thread, "once more");
    let open = both_asked(&mut editor, &mut terminal);
    assert_ne!(open, asked["id"]);
    editor.close();
    terminal.close();

    let mut editor = Client::connect(socket);
    editor.initialize("editor");
    resume(&mut editor, &thread);
    let mut terminal = Client::connect(socket);
    terminal.initialize("terminal");
    resume(&mut terminal, &thread);
    assert_eq!(both_asked(&mut editor, &mut terminal), open);
    editor.answer(&open, json!({"decision": "accept"}));
    for client in [&mut editor, &mut terminal] {
        let resolved = client.wait_for("its end", is_resolved);
        assert_eq!(resolved["params"]["requestId"], open);
        client.wait_for("the end of the turn", is_completed);
    }
    editor.close();
    terminal.close();
}
