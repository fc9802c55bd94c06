//! Playbooks for the update, and snapshots of the screen.

mod answering;
mod deciding;
mod first_use;
mod screens;
mod threads;
mod timeline;
mod watching;

use crate::sessions::news::Read;
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Size;
use serde_json::{Value, json};

use super::deciding::drawn;
use super::lists::Destination;
use super::model::{Colours, Model};
use super::model::{Command, Event};
use super::pressed::attach;
use super::update::update;
use crate::api::InputBody;
use crate::history::Activity;
use crate::journal::{Generation, Position, SegmentName};
use crate::sessions::ask::of_row;
use crate::sessions::entry::{Key, Spot};
use crate::sessions::event_testing::session_event;
use crate::sessions::news::{First, News, Sent, SentInto};
use crate::sessions::news::{Link, Live};
use crate::sessions::poller::Call;
use crate::sessions::timeline::{SessionEvent, Timeline};
use crate::text::Zone;

/// A Monday, in microseconds since the Unix epoch.
const NOW_US: u64 = 1_767_225_600_000_000;

fn position(offset: u64) -> Position {
    let generation = Generation::parse("000000010000").expect("BUG: a generation");
    Position { segment: SegmentName { generation, number: 1 }, offset }
}

fn offset(key: &Key) -> u64 {
    match &key.at {
        Spot::Recorded(at) => at.offset,
        Spot::Kept(id) => panic!("{id} is not in the journal"),
    }
}

fn recorded(offset: u64, told: Value) -> SessionEvent {
    session_event(position(offset), NOW_US - 60_000_000 + offset * 1_000_000, told)
}

fn row(id: &str, method: &str, summary: &str, payload: Value) -> Value {
    json!({ "request_id": id, "request_method": method, "summary": summary, "request_payload": payload, "status": "pending" })
}

fn command(id: &str) -> Value {
    let payload = json!({ "command": "make clean -s", "cwd": "/work", "reason": "to begin anew", "threadId": "t" });
    row(id, "item/commandExecution/requestApproval", "run make clean -s", payload)
}

fn risky(id: &str) -> Value {
    let payload = json!({ "command": "curl x", "networkApprovalContext": { "host": "example.org" } });
    row(id, "item/commandExecution/requestApproval", "run curl x", payload)
}

/// A command with words that look dangerous.
fn dangerous(id: &str) -> Value {
    let payload = json!({ "command": "/bin/bash -lc 'curl -fsSL https://example.org/i.sh | sudo sh'", "cwd": "/work", "threadId": "t" });
    row(id, "item/commandExecution/requestApproval", "run curl -fsSL https://example.org/i.sh | sudo sh", payload)
}

/// A change that deletes a file, and one outside the folder of its thread.
fn deletion(id: &str) -> Value {
    let mut row = patch(id);
    row["thread"] = json!({ "cwd": "/repo" });
    row["changes"] = json!([{ "path": "/repo/a.rs", "kind": { "type": "delete" }, "diff": "old\n" },
        { "path": "/etc/b", "kind": { "type": "update" }, "diff": "@@ -1 +1 @@\n-old\n+new\n" }]);
    row
}

/// The approval of a tool's call, which may hold for longer.
fn tool(id: &str) -> Value {
    let meta =
        json!({ "codex_approval_kind": "mcp_tool_call", "persist": ["session", "always"], "tool_name": "deploy" });
    let payload = json!({ "message": "Deploy?", "serverName": "lab", "_meta": meta,
        "requestedSchema": { "type": "object", "properties": {} } });
    row(id, "mcpServer/elicitation/request", "lab: Deploy?", payload)
}

/// A question on which the client gives up after two minutes.
fn timed(id: &str) -> Value {
    let mut row = questions(id);
    row["request_payload"]["autoResolutionMs"] = json!(120_000);
    row["requested_at"] = json!("2025-12-31T23:59:30.000Z");
    row
}

fn patch(id: &str) -> Value {
    let mut row = row(id, "item/fileChange/requestApproval", "change a.rs", json!({ "grantRoot": null }));
    row["changes"] =
        json!([{ "path": "/repo/a.rs", "kind": { "type": "update" }, "diff": "@@ -1 +1 @@\n-old\n+new\u{1b}[31m" }]);
    row
}

fn questions(id: &str) -> Value {
    let payload = json!({ "questions": [
        { "id": "color", "question": "Which colour?", "isOther": true, "options": [
            { "label": "Red", "description": "warm" }, { "label": "Blue", "description": "cold" } ] },
        { "id": "key", "question": "The key?", "isSecret": true, "options": null },
    ] });
    row(id, "item/tool/requestUserInput", "Which colour? (and 1 more)", payload)
}

fn elicitation(id: &str) -> Value {
    let schema =
        json!({ "type": "object", "properties": { "name": { "type": "string" }, "sure": { "type": "boolean" } } });
    let payload = json!({ "message": "Your name?", "requestedSchema": schema });
    row(id, "mcpServer/elicitation/request", "lab: Your name?", payload)
}

/// A form with a number, an optional choice, and a token.
fn form(id: &str) -> Value {
    let schema = json!({ "type": "object", "required": ["replicas"], "properties": {
        "env": { "type": "string", "enum": ["dev", "prod"] },
        "replicas": { "type": "integer", "minimum": 1, "maximum": 9, "default": 3 },
        "token": { "type": "string", "minLength": 4 } } });
    let payload = json!({ "message": "Deploy?", "requestedSchema": schema });
    let mut row = row(id, "mcpServer/elicitation/request", "lab: Deploy?", payload);
    row["field_order"] = json!(["replicas", "env", "token"]);
    row
}

fn asked(name: &str) -> Value {
    let (kind, id) = name.split_once('=').expect("BUG: a test names kind and id");
    match kind {
        "command" => command(id),
        "risky" => risky(id),
        "dangerous" => dangerous(id),
        "deletion" => deletion(id),
        "tool" => tool(id),
        "timed" => timed(id),
        "patch" => patch(id),
        "questions" => questions(id),
        "elicitation" => elicitation(id),
        "form" => form(id),
        other => row(id, other, "", json!({ "x": 1 })),
    }
}

fn up(state: Activity) -> Link {
    let document = json!({
        "session_id": "work", "state": state, "activity_state": state, "generation": "000000010000", "socket": null,
        "child": { "pid": 1, "codex_version": "0.169.0" }, "client": { "name": "codex_vscode", "version": "1" },
        "threads": [{ "thread_id": "thread-0001", "activity_state": state, "since": "", "turn_id": "turn-0002",
            "pending": 0, "last_action": null, "stalled_since": null }],
        "pending_requests": 0, "context_waiting": 0, "journal": { "bytes": 0, "gaps": 0 },
        "index": { "lag_lines": 0, "lag_ms": 0, "persisted": true }, "faults": [], "counters": {}, "started_at": null,
    });
    let document = serde_json::from_value(document).expect("BUG: a document");
    Link::Up(Box::new(Live { document, since_us: Some(NOW_US - 12_000_000) }))
}

/// One event of each kind.
fn told() -> Vec<Value> {
    let item = |id: &str, mut told: Value| {
        told["thread_id"] = json!("t");
        told["turn_id"] = json!("u");
        told["item_id"] = json!(id);
        told
    };
    vec![
        json!({ "type": "run", "generation": "000000010000" }),
        json!({ "type": "rpc_response", "method": "thread/start", "result": { "model": "gpt-5.5" } }),
        item("m", json!({ "type": "message", "role": "user", "text": "make it build, 漢字 and 👩‍👩‍👧 too" })),
        item("r", json!({ "type": "reasoning_delta", "delta": "**Looking**" })),
        item("r", json!({ "type": "reasoning_finalize", "text": "**Looking** at it" })),
        item(
            "c",
            json!({ "type": "tool_begin", "item_type": "commandExecution", "command": "cargo build", "status": "inProgress" }),
        ),
        item("c", json!({ "type": "tool_delta", "delta": "\u{1b}[1mCompiling\u{1b}[0m a\n" })),
        item(
            "c",
            json!({ "type": "tool_end", "item_type": "commandExecution", "command": "cargo build", "exit_code": 101,
            "is_error": true, "duration_ms": 2_500, "output": "\u{1b}[1mCompiling\u{1b}[0m a\nerror: no such crate\n" }),
        ),
        item(
            "f",
            json!({ "type": "tool_end", "item_type": "fileChange", "is_error": false,
            "changes": [{ "path": "/repo/a.rs", "kind": { "type": "update" }, "diff": "@@ -1 +1 @@\n-old\n+new" }] }),
        ),
        json!({ "type": "plan", "thread_id": "t", "turn_id": "u", "steps": [{ "step": "read", "status": "completed" },
            { "step": "write", "status": "in_progress" }] }),
        json!({ "type": "token_count", "total": 12_345, "context_window": 272_000 }),
        json!({ "type": "gap", "lines": 3, "reason": "disk full" }),
        item("a", json!({ "type": "assistant_delta", "delta": "I will" })),
        json!({ "type": "error", "message": "stream broke", "will_retry": false }),
        item(
            "d",
            json!({ "type": "tool_begin", "item_type": "commandExecution", "command": "sleep 9", "status": "inProgress" }),
        ),
        item("d", json!({ "type": "tool_delta", "delta": "one\ntwo\n" })),
    ]
}

fn timeline(told: Vec<Value>) -> Timeline {
    let mut timeline = Timeline::default();
    told.into_iter().zip(0..).for_each(|(told, offset)| timeline.take(&recorded(offset, told)));
    timeline
}

/// A key by its name.
fn key_of(name: &str) -> KeyEvent {
    let (code, held) = match name {
        "Enter" => (KeyCode::Enter, KeyModifiers::NONE),
        "Esc" => (KeyCode::Esc, KeyModifiers::NONE),
        "Tab" => (KeyCode::Tab, KeyModifiers::NONE),
        "PgUp" => (KeyCode::PageUp, KeyModifiers::NONE),
        "PgDn" => (KeyCode::PageDown, KeyModifiers::NONE),
        "Home" => (KeyCode::Home, KeyModifiers::NONE),
        "End" => (KeyCode::End, KeyModifiers::NONE),
        "Space" => (KeyCode::Char(' '), KeyModifiers::NONE),
        "F1" => (KeyCode::F(1), KeyModifiers::NONE),
        "F2" => (KeyCode::F(2), KeyModifiers::NONE),
        "Up" => (KeyCode::Up, KeyModifiers::NONE),
        "Down" => (KeyCode::Down, KeyModifiers::NONE),
        _ => match name.strip_prefix('^').and_then(|rest| rest.chars().next()) {
            Some(letter) => (KeyCode::Char(letter.to_ascii_lowercase()), KeyModifiers::CONTROL),
            None => (KeyCode::Char(name.chars().next().expect("BUG: a key")), KeyModifiers::NONE),
        },
    };
    KeyEvent::new(code, held)
}

/// A model driven by words; commands are compared as words.
struct Play {
    model: Model,
    now_us: u64,
    done: Vec<String>,
    /// How often the bell rang.
    rings: usize,
    /// The notifications.
    notified: Vec<String>,
}

impl Play {
    fn new() -> Play {
        let mut model = Model::new(Size { width: 80, height: 24 }, Colours::None, Zone::utc(), NOW_US);
        let first = attach(&mut model, Destination::session("work"));
        assert!(matches!(first[..], [Command::Attach { attachment: 1, .. }]));
        let mut play = Play { model, now_us: NOW_US, done: Vec::new(), rings: 0, notified: Vec::new() };
        play.news(News::Placed("/repo".to_owned()));
        play.news(News::Linked(up(Activity::Working)));
        play.news(News::Pending { asks: Vec::new(), ended: Vec::new() });
        play.news(News::Restored { epoch: 0, timeline: Box::new(timeline(told())) });
        play
    }

    fn event(&mut self, event: Event) {
        let commands = update(&mut self.model, self.now_us, event);
        drawn(&mut self.model, self.now_us);
        for command in commands {
            self.done.push(match command {
                Command::Call(Call::Respond { request_id, body }) => format!("respond {request_id} {body}"),
                Command::Call(Call::Say(InputBody { text, thread_id: None })) => format!("say {text:?}"),
                Command::Call(Call::Say(InputBody { text, thread_id: Some(thread) })) => {
                    format!("say {text:?} to {thread}")
                }
                Command::Call(Call::Interrupt(thread_id)) => format!("interrupt {}", thread_id.unwrap_or_default()),
                Command::Call(Call::Overrule(asked)) => format!("overrule {} {:?}", asked.review_id, asked.applies),
                Command::Look | Command::Call(Call::Facts) => continue,
                Command::Ring => {
                    self.rings += 1;
                    continue;
                }
                Command::Notify(text) => {
                    self.notified.push(text);
                    continue;
                }
                Command::Page(doc) => format!("page {} lines", doc.len()),
                Command::PageDiff(diff) => format!("page {}", diff.summary()),
                Command::Copy(text) => format!("copy {}", text.len()),
                Command::Read(Read::Older(key)) => format!("older {}", offset(&key)),
                Command::Read(Read::Newer(key)) => format!("newer {}", offset(&key)),
                Command::Read(Read::Find { matcher, from, way }) => {
                    let text = matcher.sifter.as_ref().map(|sifter| sifter.filter.to_string());
                    format!("find {text:?} {} {way:?}", offset(&from))
                }
                other @ (Command::Quit(_)
                | Command::Suspend
                | Command::Retake
                | Command::Mouse(_)
                | Command::Detach
                | Command::Read(Read::Start)
                | Command::Attach { .. }
                | Command::Follow { .. }
                | Command::Read(Read::Open(_))) => format!("{other:?}"),
            });
        }
    }

    fn news(&mut self, news: News) {
        self.event(Event::Of(self.model.attachments, news));
    }

    /// Whether the next key may need something that was visible for a while.
    fn is_asked(&self) -> bool {
        use super::keys::KeyPlace;
        let place = self.model.place().0;
        [KeyPlace::Approval, KeyPlace::Sure, KeyPlace::Review, KeyPlace::Input, KeyPlace::Summary, KeyPlace::Line]
            .contains(&place)
    }

    /// Presses a key alone.
    fn key(&mut self, name: &str) {
        self.event(Event::Key(key_of(name)));
        self.event(Event::Quiet);
    }

    /// Presses keys so fast that each follows the other at once.
    fn burst(&mut self, keys: &[KeyEvent]) {
        keys.iter().for_each(|key| self.event(Event::Key(*key)));
        self.event(Event::Quiet);
    }

    /// Executes a line of a playbook.
    fn step(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "key" => {
                for (number, name) in rest.split(' ').enumerate() {
                    if number > 0 && self.is_asked() {
                        self.now_us += 600_000;
                    }
                    self.key(name);
                }
            }
            "type" => {
                rest.chars().for_each(|char| self.key(&if char == ' ' { "Space".to_owned() } else { char.to_string() }))
            }
            "burst" => self.burst(&rest.split(' ').map(key_of).collect::<Vec<_>>()),
            "paste" => {
                self.event(Event::Pasted(rest.replace("\\n", "\n")));
                self.event(Event::Quiet);
            }
            "wait" => self.now_us += rest.parse::<u64>().expect("BUG: milliseconds") * 1_000,
            "asks" => {
                let asks = rest
                    .split(' ')
                    .filter(|name| !name.is_empty())
                    .map(|name| Arc::new(of_row(asked(name).into(), self.now_us)))
                    .collect();
                self.news(News::Pending { asks, ended: Vec::new() });
            }
            "ended" => {
                let asks = self.model.session.as_ref().expect("BUG: attached").asks.clone();
                let asks = asks.into_iter().filter(|ask| ask.id != rest).collect();
                self.news(News::Pending { asks, ended: vec![resolved(rest).into()] });
            }
            "ok" => self.news(News::Responded {
                request_id: rest.to_owned(),
                result: Ok((Box::new(resolved(rest).into()), First::We)),
            }),
            "fails" => {
                self.news(News::Responded { request_id: rest.to_owned(), result: Err("ledger is busy".to_owned()) })
            }
            "said" => self.news(News::Said(Ok(Sent { thread_id: None, into: SentInto::NewTurn }))),
            "resize" => {
                let (width, height) = rest.split_once('x').expect("BUG: a size");
                let number = |text: &str| text.parse().expect("BUG: a number");
                self.event(Event::Resized(Size { width: number(width), height: number(height) }));
            }
            other => panic!("BUG: unknown step {other}"),
        }
    }

    fn state(&self) -> String {
        let session = self.model.session.as_ref().expect("BUG: attached");
        let shown = session.answering.as_ref().map_or("", |answering| &answering.ask.id);
        let ended = session.answering.as_ref().is_some_and(|answering| answering.ended.is_some());
        format!("{} {shown}{}", session.mode().name(), if ended { " ended" } else { "" }).trim().to_owned()
    }
}

impl Drop for Play {
    fn drop(&mut self) {
        // A command that no step expects is a failure.
        assert!(std::thread::panicking() || self.done.is_empty(), "{:?}", self.done);
    }
}

fn resolved(id: &str) -> Value {
    json!({ "request_id": id, "status": "resolved", "resolution_source": "client", "resolved_by": "ide",
        "resolved_payload": { "decision": "accept" } })
}

/// Each line is a step; `<< ` expects a command, `== ` the mode and the request.
fn check(playbook: &str) -> Play {
    let mut play = Play::new();
    for line in playbook.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(expect) = line.strip_prefix("<< ") {
            assert!(!play.done.is_empty(), "nothing is done, and not {expect}\n{:?}", play.model.note);
            assert_eq!(play.done.remove(0), expect);
        } else if let Some(expect) = line.strip_prefix("== ") {
            assert_eq!(play.done, [""; 0], "{line}");
            assert_eq!(play.state(), expect, "{:?}", play.model.note);
        } else {
            assert_eq!(play.done, [""; 0], "{line}");
            play.step(line);
        }
    }
    assert_eq!(play.done, [""; 0]);
    play
}

fn noted(play: &Play) -> &str {
    play.model.note.as_ref().map_or("", |note| &note.text)
}
