//! Homes to damage, and copies of them that codex-shim takes for the originals.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};

use crate::golden_stored::{home_01, home_02};
use crate::support::both_ends::{Live, turn};
use crate::support::eventually;
use crate::support::requests::{answer, change_asked, change_started, command_asked, decision, question_asked};
use crate::support::shim::Home;

/// A home that stays as it is.
pub struct Model {
    pub name: &'static str,
    pub home: Home,
    pub sessions: &'static [&'static str],
}

/// A word of the conversations here, for `search`.
pub const WORD: &str = "linker";

pub fn models() -> Vec<Model> {
    vec![
        Model { name: "0.1", home: home_01(), sessions: &["main", "context", "killed"] },
        Model { name: "0.2", home: home_02(), sessions: &["work", "hub"] },
        Model { name: "stopped", home: stopped(), sessions: &["s", "other"] },
        Model { name: "killed", home: killed(), sessions: &["s"] },
    ]
}

fn rpc(method: &str, params: &Value) -> String {
    json!({ "method": method, "params": params }).to_string()
}

fn item(live: &mut Live, turn: &str, item: &Value) {
    live.say_plainly(&rpc("item/started", &json!({ "threadId": "t", "turnId": turn, "item": item })));
    live.say_plainly(&rpc("item/completed", &json!({ "threadId": "t", "turnId": turn, "item": item })));
}

/// A run with turns, messages, a command, a change, usage, and requests that are answered by the client and by a caller.
fn run(home: Home, session: &str, words: &str) -> Live {
    let mut live = Live::start_in_session(home, session).initialize();
    for number in 1..6 {
        let name = format!("u{number}");
        live.send(&turn(number, "t", &format!("{words} {number}: what does the linker say?")));
        live.take_turn(number);
        live.say_plainly(&rpc("turn/started", &json!({ "threadId": "t", "turn": { "id": name, "items": [] } })));
        let said = format!("The linker says {words} {number}. ").repeat(number as usize * 9);
        for piece in said.as_bytes().chunks(40) {
            let delta = String::from_utf8_lossy(piece);
            let params =
                json!({ "threadId": "t", "turnId": name, "itemId": format!("m{number}-{words}"), "delta": delta });
            live.say_plainly(&rpc("item/agentMessage/delta", &params));
        }
        item(&mut live, &name, &json!({ "type": "agentMessage", "id": format!("m{number}-{words}"), "text": said }));
        let output = format!("{words} output {number}\n").repeat(20);
        item(
            &mut live,
            &name,
            &json!({ "type": "commandExecution", "id": format!("c{number}-{words}"), "command": format!("make {words}"),
            "cwd": "/w", "status": "completed", "exitCode": 0, "durationMs": 7, "aggregatedOutput": output }),
        );
        let usage = json!({ "inputTokens": 100 * number, "cachedInputTokens": 7, "outputTokens": 30, "reasoningOutputTokens": 2, "totalTokens": 130 });
        let usage = json!({ "threadId": "t", "turnId": name, "tokenUsage": { "total": usage, "last": usage, "modelContextWindow": 9000 } });
        live.say_plainly(&rpc("thread/tokenUsage/updated", &usage));
        let done = json!({ "id": name, "status": "completed", "items": [] });
        live.say_plainly(&rpc("turn/completed", &json!({ "threadId": "t", "turn": done })));
    }
    let command = live.asked(&command_asked("10", "t"), "10");
    live.responded(&command, &decision("accept"));
    live.at_server();
    live.say_plainly(&change_started());
    let change = live.asked(&change_asked("11"), "11");
    live.answer_plainly(&answer("11", &decision("decline")));
    live.row_with(&change, "dispatched_at");
    let question = live.asked(&question_asked("12", false), "12");
    live.answer_plainly(&answer("12", &json!({ "answers": { "color": { "answers": ["Red"] } } })));
    live.row_with(&question, "dispatched_at");
    live.push(&json!({ "cmd": format!("ls {words}"), "exit_code": 0, "cwd": "/w", "ts": 7 }), 1);
    eventually("an index at rest", || {
        let index = live.get("/sessions/self")["index"].clone();
        (!index["epoch"].is_null() && index["lag_lines"] == 0).then_some(())
    });
    live
}

/// Two sessions of this version, one with three runs.
pub fn stopped() -> Home {
    let mut home = Home::new();
    for (session, words) in [("s", "first"), ("other", "beside"), ("s", "second"), ("s", "third")] {
        home = run(home, session, words).end_quietly();
    }
    home
}

/// A session whose last run was killed, so its databases have logs.
fn killed() -> Home {
    let home = run(Home::new(), "s", "first").end_quietly();
    run(home, "s", "second").kill()
}

/// The regular files below a folder.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    let is_file = |path: &PathBuf| !path.is_symlink() && (path.is_dir() || path.is_file());
    let mut files: Vec<PathBuf> = entries.filter(is_file).flat_map(below).collect();
    files.sort();
    files
}

/// A copy that codex-shim takes for the original: the files have their times, and the witnesses name their new files.
pub fn copy(from: &Path, to: &Path) {
    for file in files(from).iter().filter(|file| !file.to_string_lossy().ends_with("-shm")) {
        let copy = to.join(file.strip_prefix(from).expect("it is below"));
        let folder = copy.parent().expect("a folder");
        fs::create_dir_all(folder).expect("a folder");
        folder.ancestors().take_while(|folder| folder.starts_with(to)).for_each(|folder| mode(folder, 0o700));
        fs::copy(file, &copy).expect("a copy");
        let written = file.metadata().and_then(|metadata| metadata.modified()).expect("a time");
        if copy.parent().is_some_and(|folder| folder.ends_with("marks")) {
            sign(&copy);
        }
        File::options().append(true).open(&copy).and_then(|file| file.set_modified(written)).expect("it is ours");
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

/// Has a witness name the file that it is in.
fn sign(mark: &Path) {
    let Ok(mut witness) = serde_json::from_str::<Value>(&fs::read_to_string(mark).expect("a witness")) else { return };
    let metadata = mark.metadata().expect("a file");
    let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    witness["file"] = json!({ "inode": metadata.ino(), "born_ns": born.map(|born| born.as_nanos() as u64) });
    fs::write(mark, format!("{witness}\n")).expect("write");
}
