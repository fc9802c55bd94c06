//! Playbooks for the update, and what is on the screen at several sizes.

use std::path::Path;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::Size;
use ratatui::style::Color;
use serde_json::{Value, json};

use super::ask::of_row;
use super::entry::{Entry, Key, Spot};
use super::model::{Colours, Command, Event, First, Focus, Link, Live, Mode, Model, News, Page, SessionRow};
use super::timeline::{Heard, Timeline};
use super::{attach, keys, update, view};
use crate::history::Activity;
use crate::journal::{Generation, Position, SegmentName};

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

fn heard(offset: u64, told: Value) -> Heard {
    Heard { at: position(offset), at_us: NOW_US - 60_000_000 + offset * 1_000_000, told }
}

fn row(id: &str, method: &str, summary: &str, payload: Value) -> Value {
    json!({ "request_id": id, "request_method": method, "summary": summary, "request_payload": payload, "status": "pending" })
}

fn command(id: &str) -> Value {
    let payload = json!({ "command": "rm -rf target", "cwd": "/work", "reason": "to begin anew", "threadId": "t" });
    row(id, "item/commandExecution/requestApproval", "run rm -rf target", payload)
}

fn risky(id: &str) -> Value {
    let payload = json!({ "command": "curl x", "networkApprovalContext": { "host": "example.org" } });
    row(id, "item/commandExecution/requestApproval", "run curl x", payload)
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

fn asked(name: &str) -> Value {
    let (kind, id) = name.split_once('=').expect("BUG: a test names kind and id");
    match kind {
        "command" => command(id),
        "risky" => risky(id),
        "patch" => patch(id),
        "questions" => questions(id),
        "elicitation" => elicitation(id),
        other => row(id, other, "", json!({ "x": 1 })),
    }
}

fn up(state: Activity) -> Link {
    let document = json!({
        "session_id": "work", "state": state, "activity_state": state, "generation": "000000010000", "socket": null,
        "child": { "pid": 1, "codex_version": "0.169.0" }, "client": { "name": null, "version": null },
        "threads": [{ "thread_id": "thread-0001", "activity_state": state, "since": "", "turn_id": "turn-0002",
            "pending": 0, "last_action": null, "stalled_since": null }],
        "pending_requests": 0, "context_waiting": 0, "journal": { "bytes": 0, "gaps": 0 },
        "index": { "lag_lines": 0, "lag_ms": 0, "persisted": true }, "faults": [], "counters": {}, "started_at": null,
    });
    let document = serde_json::from_value(document).expect("BUG: a document");
    Link::Up(Box::new(Live { document, since_us: Some(NOW_US - 12_000_000) }))
}

/// Something of everything.
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
    told.into_iter().zip(0..).for_each(|(told, offset)| timeline.take(&heard(offset, told)));
    timeline
}

/// A model that is told things in words, and what it wants done in words.
struct Play {
    model: Model,
    now_us: u64,
    done: Vec<String>,
}

impl Play {
    fn new() -> Play {
        let mut model = Model::new(Size { width: 80, height: 24 }, Colours::None, NOW_US);
        let first = attach(&mut model, "work".to_owned());
        assert!(matches!(first[..], [Command::Attach { attachment: 1, .. }]));
        let mut play = Play { model, now_us: NOW_US, done: Vec::new() };
        play.news(News::Linked(up(Activity::Working)));
        play.news(News::Restored { epoch: 0, timeline: Box::new(timeline(told())) });
        play
    }

    fn event(&mut self, event: Event) {
        for command in update(&mut self.model, self.now_us, event) {
            self.done.push(match command {
                Command::Respond { request_id, body } => format!("respond {request_id} {body}"),
                Command::Say { text, thread_id: None } => format!("say {text:?}"),
                Command::Say { text, thread_id: Some(thread) } => format!("say {text:?} to {thread}"),
                Command::Interrupt(thread_id) => format!("interrupt {}", thread_id.unwrap_or_default()),
                Command::Look => continue,
                Command::Copy(text) => format!("copy {}", text.len()),
                Command::ReadOlder(key) => format!("older {}", offset(&key)),
                Command::ReadNewer(key) => format!("newer {}", offset(&key)),
                Command::Find { matcher, from, way } => format!("find {:?} {} {way:?}", matcher.text, offset(&from)),
                other @ (Command::Quit(_)
                | Command::Suspend
                | Command::Retake
                | Command::List
                | Command::Attach { .. }
                | Command::Follow { .. }
                | Command::Open(_)) => format!("{other:?}"),
            });
        }
    }

    fn news(&mut self, news: News) {
        self.event(Event::Of(self.model.attachments, news));
    }

    fn key(&mut self, name: &str) {
        let (code, held) = match name {
            "Enter" => (KeyCode::Enter, KeyModifiers::NONE),
            "Esc" => (KeyCode::Esc, KeyModifiers::NONE),
            "Tab" => (KeyCode::Tab, KeyModifiers::NONE),
            "Up" => (KeyCode::Up, KeyModifiers::NONE),
            "Down" => (KeyCode::Down, KeyModifiers::NONE),
            _ => match name.strip_prefix('^').and_then(|rest| rest.chars().next()) {
                Some(letter) => (KeyCode::Char(letter.to_ascii_lowercase()), KeyModifiers::CONTROL),
                None => (KeyCode::Char(name.chars().next().expect("BUG: a key")), KeyModifiers::NONE),
            },
        };
        self.event(Event::Key(KeyEvent::new(code, held)));
    }

    /// Does what a line of a playbook says.
    fn step(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "key" => rest.split(' ').for_each(|name| self.key(name)),
            "type" => rest
                .chars()
                .for_each(|char| self.event(Event::Key(KeyEvent::new(KeyCode::Char(char), KeyModifiers::NONE)))),
            "paste" => self.event(Event::Pasted(rest.replace("\\n", "\n"))),
            "wait" => self.now_us += rest.parse::<u64>().expect("BUG: milliseconds") * 1_000,
            "asks" => {
                let asks = rest
                    .split(' ')
                    .filter(|name| !name.is_empty())
                    .map(|name| of_row(asked(name), self.now_us))
                    .collect();
                self.news(News::Pending { asks, ended: Vec::new() });
            }
            "ended" => {
                let asks = self.model.session.as_ref().expect("BUG: attached").asks.clone();
                let asks = asks.into_iter().filter(|ask| ask.id != rest).collect();
                self.news(News::Pending { asks, ended: vec![resolved(rest)] });
            }
            "ok" => self.news(News::Responded { request_id: rest.to_owned(), result: Ok((resolved(rest), First::We)) }),
            "fails" => {
                self.news(News::Responded { request_id: rest.to_owned(), result: Err("ledger is busy".to_owned()) })
            }
            "said" => self.news(News::Said(Ok("a turn has begun".to_owned()))),
            other => panic!("BUG: {other} is no step"),
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
        // What was wanted and nobody has looked at is no success.
        assert!(std::thread::panicking() || self.done.is_empty(), "{:?}", self.done);
    }
}

fn resolved(id: &str) -> Value {
    json!({ "request_id": id, "status": "resolved", "resolution_source": "client", "resolved_by": "ide",
        "resolved_payload": { "decision": "accept" } })
}

/// Each line is a step, `<< ` what is to be done then, `== ` the mode and what is shown.
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

#[test]
fn chat_says_and_never_answers() {
    check("type hello\nkey Enter\n<< say \"hello\"\nsaid\nkey Enter\n== chat");
    check("paste a\\nb\nkey Enter\n<< say \"a\\nb\"\ntype x\nkey Enter\n== chat");
    // A request comes under the user's fingers: what is typed stays text, and nothing is sent.
    let play = check("type ad\nasks command=g-0\ntype asdcy1\nkey Enter\n== chat");
    assert_eq!(play.model.session.as_ref().expect("attached").composer.text(), "adasdcy1");
    assert!(noted(&play).contains("^R"), "{}", noted(&play));
    // What we do not know waits for nobody.
    check("asks new/method=g-9\ntype x\nkey Enter\n<< say \"x\"\n== chat");
}

#[test]
fn one_key_answers_a_request_that_was_seen() {
    check(
        r#"
        asks command=g-0
        key ^R
        == approval g-0
        key a
        == approval g-0
        wait 600
        key a
        << respond g-0 {"decision":"accept"}
        key a d
        ok g-0
        == chat
        "#,
    );
    let all = [("s", "acceptForSession"), ("d", "decline"), ("c", "cancel")];
    for (key, decision) in all {
        check(&format!(
            "asks command=g-0\nkey ^R\nwait 600\nkey {key}\n<< respond g-0 {{\"decision\":\"{decision}\"}}\nok g-0\n== chat"
        ));
    }
    check(
        "asks command=g-0\nkey ^R\nwait 600\nkey r\ntype not so\nkey Enter\n<< respond g-0 {\"decision\":\"decline\",\"reason\":\"not so\"}",
    );
    check("asks command=g-0\nkey ^R\nwait 600\nkey r\ntype acd\nkey Esc\n== approval g-0\nkey Esc\n== chat");
    check("asks command=g-0\nkey ^R\nwait 600\nkey x Enter 1\n== approval g-0");
}

#[test]
fn the_next_one_has_to_be_seen_too() {
    check(
        r#"
        asks command=g-0 patch=g-1
        key ^R
        wait 600
        key a
        << respond g-0 {"decision":"accept"}
        ok g-0
        == approval g-1
        key a
        == approval g-1
        wait 600
        key d
        << respond g-1 {"decision":"decline"}
        fails g-1
        == approval g-1
        key Esc
        == chat
        "#,
    );
    check("asks command=g-0 questions=g-1\nkey ^R\n== approval g-0\nkey ^R\n== input g-1\nkey ^R\n== approval g-0");
}

#[test]
fn what_is_dangerous_is_asked_again() {
    let shown = "asks risky=g-0\nkey ^R\nwait 600\nkey a\n== approval g-0\n";
    check(&format!("{shown}key a Enter\n== approval g-0\nkey n\n== approval g-0"));
    check(&format!("{shown}key y\n<< respond g-0 {{\"decision\":\"accept\"}}"));
    check("asks risky=g-0\nkey ^R\nwait 600\nkey d\n<< respond g-0 {\"decision\":\"decline\"}");
}

#[test]
fn another_terminal_is_first() {
    let play = check("asks command=g-0\nkey ^R\nended g-0\n== chat");
    assert_eq!(noted(&play), "request g-0 was answered by client (ide): accept");
    // The next request does not take the place of the one that is on the screen.
    check(
        "asks command=g-0 patch=g-1\nkey ^R\nwait 600\nended g-0\n== approval g-0 ended\nkey a d\n== approval g-0 ended\nkey Enter\n== approval g-1",
    );
    // What was being typed does not end in the composer.
    let play = check(
        "asks questions=g-0\nkey ^R\nwait 600\nkey 3\ntype sec\nended g-0\n== input g-0 ended\ntype ret\nkey Enter\n== chat",
    );
    assert_eq!(play.model.session.as_ref().expect("attached").composer.text(), "");
    let play = check("asks command=g-0\nended g-0\n== chat");
    assert_eq!(noted(&play), "request g-0 was answered by client (ide): accept");
}

#[test]
fn questions_are_answered_in_turn() {
    check(
        r#"
        asks questions=g-0
        key ^R
        wait 600
        key Down Enter
        == input g-0
        type k3y
        key Enter
        << respond g-0 {"answers":{"color":["Blue"],"key":["k3y"]}}
        ok g-0
        == chat
        "#,
    );
    check(
        "asks questions=g-0\nkey ^R\nwait 600\nkey 2 ^B 1 Enter Enter Enter\n<< respond g-0 {\"answers\":{\"color\":[\"Red\"]}}",
    );
    check(
        "asks questions=g-0\nkey ^R\nwait 600\ntype green 2\nkey Enter Enter Enter\n<< respond g-0 {\"answers\":{\"color\":[\"green 2\"]}}",
    );
    let fields = "{\"action\":\"accept\",\"content\":{\"name\":\"Ada\",\"sure\":false}}";
    check(&format!(
        "asks elicitation=g-0\nkey ^R\nwait 600\nkey Enter\ntype Ada\nkey Enter 2 Enter\n<< respond g-0 {fields}\nfails g-0\n== input g-0"
    ));
    check("asks elicitation=g-0\nkey ^R\nwait 600\nkey 2 Enter\n<< respond g-0 {\"action\":\"decline\"}");
}

#[test]
fn nothing_typed_is_no_answer_by_accident() {
    let mut play = check("asks questions=g-0\nkey ^R\nwait 600");
    for code in [KeyCode::Right, KeyCode::Left, KeyCode::PageDown, KeyCode::Home, KeyCode::Backspace] {
        play.event(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }
    let chosen = |play: &Play| {
        let session = play.model.session.as_ref().expect("attached");
        session.answering.as_ref().map(|shown| (shown.chosen, shown.answers.len()))
    };
    assert_eq!(chosen(&play), Some((0, 0)));
    play.step("key 3 Enter");
    assert_eq!(chosen(&play), Some((2, 0)));
    assert!(noted(&play).contains("nothing is typed"), "{}", noted(&play));
    // Whoever looks elsewhere meanwhile is told again.
    play.step("key Up Down Enter");
    assert_eq!(chosen(&play), Some((2, 0)));
    play.step("key Enter");
    assert_eq!(chosen(&play), Some((0, 1)));
}

#[test]
fn the_last_row_says_what_enter_does() {
    let last_row = |play: &Play| drawn(&play.model, 80, 24).lines().last().unwrap_or_default().to_owned();
    let mut play = Play::new();
    assert!(last_row(&play).contains("Enter sends"), "{}", last_row(&play));
    for link in [Link::Stopped, Link::Silent("it is busy".to_owned()), Link::New] {
        play.model.session.as_mut().expect("attached").link = link;
        assert!(last_row(&play).contains("Enter off"), "{}", last_row(&play));
    }
    let mut play = check("asks command=g-0 patch=g-1\nkey ^R\nwait 600\nkey r\ntype no");
    assert!(last_row(&play).contains("Enter declines"), "{}", last_row(&play));
    play.step("ended g-0");
    assert!(last_row(&play).contains("Enter goes on"), "{}", last_row(&play));
    play.step("key Enter");
    assert_eq!(play.state(), "approval g-1");
}

#[test]
fn a_request_that_a_crash_has_left_is_told_as_orphaned() {
    let asks = json!({ "type": "approval", "request_id": "g-0", "kind": "command", "status": "pending" });
    let run = json!({ "type": "run", "generation": "000000010001" });
    let timeline = timeline(vec![asks, run]);
    let title = &timeline.entries()[0].title;
    assert!(title.ends_with("→ orphaned: server_restarted"), "{title}");
    assert!(!timeline.has_open());
}

fn offsets(play: &Play) -> Option<u64> {
    play.model.session.as_ref().and_then(|session| session.cursor.as_ref()).map(offset)
}

#[test]
fn the_timeline_is_walked_and_searched() {
    let mut play = check("key Tab Up");
    assert_eq!(offsets(&play), Some(14));
    play.step("key e");
    assert_eq!(offsets(&play), Some(13));
    play.step("key e");
    assert_eq!(offsets(&play), Some(11), "a gap");
    for char in ["/", "M", "A", "K", "E", "Enter"] {
        play.key(char);
    }
    assert_eq!(offsets(&play), Some(2));
    play.step("key g");
    assert_eq!(offsets(&play), Some(0));
    play.step("key g");
    assert_eq!(play.done, [""; 0], "there is nothing older");
    play.step("key G");
    assert_eq!(offsets(&play), None);
    play.step("key f f");
    play.step("key Up");
    assert_eq!(offsets(&play), Some(12), "the model's words");
    play.step("key y");
    assert_eq!(play.done.remove(0), "copy 6");
    play.step("key Enter");
    assert!(matches!(play.model.session.as_ref().map(|session| &session.focus), Some(Focus::Reading(_))));
    play.step("key Esc Esc");
    assert_eq!(play.model.session.as_ref().map(|session| session.mode()), Some(Mode::Chat));
}

fn entries(offsets: std::ops::Range<u64>) -> Vec<Entry> {
    let mut timeline = Timeline::default();
    for offset in offsets {
        timeline.take(&heard(offset, json!({ "type": "message", "text": format!("m{offset}") })));
    }
    timeline.into_entries()
}

#[test]
fn the_window_goes_back_and_returns_without_a_hole() {
    let mut play = Play::new();
    let mut recent =
        timeline((0..3_000).map(|number| json!({ "type": "message", "text": format!("m{number}") })).collect());
    assert_eq!((recent.entries().len(), recent.has_older), (1_000, true));
    recent.facts = Default::default();
    play.news(News::Restored { epoch: 0, timeline: Box::new(recent) });
    play.step("key Tab g");
    play.step("key Up");
    assert_eq!(play.done.remove(0), "older 2000");
    play.step("key Up");
    assert_eq!(play.done, [""; 0], "one at a time");
    play.news(News::Older(Page { entries: entries(1_700..2_000), is_last: false }));
    assert_eq!(offsets(&play), Some(1_999));
    let window = |play: &Play| {
        let timeline = play.model.session.as_ref().and_then(|session| session.timeline.clone()).expect("read");
        let offsets: Vec<u64> = timeline.entries().iter().map(|entry| offset(&entry.key)).collect();
        assert!(offsets.windows(2).all(|pair| pair[1] == pair[0] + 1), "a hole");
        (offsets[0], *offsets.last().expect("some"), timeline.is_held)
    };
    assert_eq!(window(&play), (1_700, 2_699, true));
    // What happens meanwhile makes no hole.
    play.news(News::Heard { epoch: 0, heard: vec![heard(3_000, json!({ "type": "message", "text": "new" }))] });
    assert_eq!(window(&play), (1_700, 2_699, true));
    play.step("key /");
    play.step("type m7");
    play.step("key Enter");
    assert_eq!(play.done.remove(0), "find Some(\"m7\") 1700 Back");
    play.news(News::Found(Some((Key::recorded(position(799)), Page { entries: entries(500..800), is_last: false }))));
    assert_eq!((window(&play), offsets(&play)), ((500, 799, true), Some(799)));
    play.step("key Down");
    assert_eq!(play.done.remove(0), "newer 799");
    play.news(News::Newer(Page { entries: entries(800..1_100), is_last: false }));
    assert_eq!((window(&play), offsets(&play)), ((500, 1_099, true), Some(800)));
    play.step("key G");
    assert_eq!(play.done.remove(0), "Follow { epoch: 1 }");
    play.news(News::Heard { epoch: 0, heard: vec![heard(3_001, json!({ "type": "message", "text": "of before" }))] });
    // The end of a long journal comes first; what is further back is not asked for until the rest has come.
    play.news(News::Glanced(1, Box::new(timeline(told()[..3].to_vec()))));
    let glanced = window_len(&play);
    play.step("key Home");
    play.step("key Up");
    assert_eq!((glanced > 0 && glanced < 10, play.done.len()), (true, 0), "{:?}", play.done);
    play.news(News::Restored { epoch: 1, timeline: Box::new(timeline(told())) });
    assert_eq!(window_len(&play), 10);
}

fn window_len(play: &Play) -> usize {
    play.model
        .session
        .as_ref()
        .and_then(|session| session.timeline.as_ref())
        .map_or(0, |timeline| timeline.entries().len())
}

/// Two threads, of which the relay tells one.
fn two_threads() -> Play {
    let mut play = Play::new();
    let said = |thread: &str, text: &str| json!({ "type": "message", "thread_id": thread, "text": text });
    let told = vec![
        said("thread-0001", "one of the first"),
        said("thread-0002", "one of the second"),
        json!({ "type": "token_count", "thread_id": "thread-0002", "total": 77 }),
        json!({ "type": "run", "generation": "000000010001" }),
        json!({ "type": "token_count", "thread_id": "thread-0001", "total": 55 }),
    ];
    play.news(News::Restored { epoch: 0, timeline: Box::new(timeline(told)) });
    play
}

#[test]
fn a_thread_is_chosen_shown_and_spoken_to() {
    let mut play = two_threads();
    play.step("key ^T");
    snapshot("threads", &play, 60, 8);
    snapshot("threads", &play, 20, 5);
    play.step("key Down Down Down Enter");
    assert_eq!(play.model.session.as_ref().and_then(|session| session.thread.as_deref()), Some("thread-0002"));
    snapshot("one-thread", &play, 60, 10);
    play.step("type hello");
    play.step("key Enter");
    assert_eq!(play.done.remove(0), "say \"hello\" to thread-0002");
    play.step("said");
    play.step("key ^X");
    assert_eq!(play.done.remove(0), "interrupt thread-0002");
    // What is looked for is looked for in it.
    play.step("key Tab Up");
    assert_eq!(offsets(&play), Some(3), "a run is of every thread");
    play.step("key Up");
    assert_eq!(offsets(&play), Some(1));
    play.step("key Up");
    assert_eq!((offsets(&play), &play.done[..]), (Some(1), &[][..]), "that of the other thread is not shown");
    play.step("key Esc");
    // Only what waits in this thread keeps it from being spoken to.
    let waits = |thread: &str| {
        let mut row = command("g-0");
        row["thread_id"] = json!(thread);
        News::Pending { asks: vec![of_row(row, NOW_US)], ended: Vec::new() }
    };
    play.news(waits("thread-0001"));
    play.step("type on");
    play.step("key Enter");
    assert_eq!(play.done.remove(0), "say \"on\" to thread-0002");
    play.step("said");
    play.news(waits("thread-0002"));
    play.step("type no");
    play.step("key Enter");
    assert!(noted(&play).contains("^R"), "{}", noted(&play));
    // All of them again; leaving the list changes nothing.
    play.step("key ^T Up Esc");
    assert!(play.model.session.as_ref().is_some_and(|session| session.thread.is_some()));
    play.step("key ^T Up Up Up Enter");
    assert!(play.model.session.as_ref().is_some_and(|session| session.thread.is_none()));
}

#[test]
fn a_storm_of_events_is_a_window() {
    let mut timeline = Timeline::default();
    for number in 0..200_000_u64 {
        let told = json!({ "type": "tool_delta", "item_id": format!("i{}", number / 1_000), "delta": "x".repeat(100) });
        timeline.take(&heard(number, told));
    }
    let bytes: usize = timeline.entries().iter().map(Entry::bytes).sum();
    assert!(timeline.entries().len() <= 1_000 && bytes < 8 << 20, "{} {bytes}", timeline.entries().len());
    assert!(timeline.entries().iter().all(|entry| entry.body.len() <= 2 * super::entry::BODY_BYTES_MAX));
}

#[test]
fn what_belongs_to_an_earlier_time_is_dropped() {
    let mut play = Play::new();
    let asks = vec![of_row(command("g-0"), NOW_US)];
    play.event(Event::Of(0, News::Pending { asks, ended: Vec::new() }));
    assert!(!play.model.session.as_ref().expect("attached").is_gated());
    play.step("type draft");
    play.step("key Esc");
    assert_eq!(play.done.remove(0), "List");
    assert!(play.model.session.is_none());
    let first = attach(&mut play.model, "work".to_owned());
    assert!(matches!(first[..], [Command::Attach { attachment: 2, .. }]));
    assert_eq!(play.model.session.as_ref().expect("attached").composer.text(), "draft");
}

// What is on the screen.

fn drawn(model: &Model, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("BUG: a backend in memory");
    terminal
        .draw(|frame| {
            view(model, frame.area(), frame.buffer_mut());
        })
        .expect("BUG: it can be drawn");
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for row in 0..height {
        let mut line = String::new();
        let mut hidden = 0;
        for column in 0..width {
            let symbol = buffer[(column, row)].symbol();
            // Behind a wide letter stands a cell that shows nothing.
            if hidden > 0 {
                hidden -= 1;
                continue;
            }
            line.push_str(symbol);
            hidden = super::text::width(symbol).saturating_sub(1);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Holds the screen against a file. What is new is left in `target/tui`, to be looked at and copied.
fn snapshot(name: &str, play: &Play, width: u16, height: u16) {
    let mut model = play.model.clone();
    model.size = Size { width, height };
    let shown = drawn(&model, width, height);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = format!("{name}-{width}x{height}.txt");
    let expect = std::fs::read_to_string(root.join("fixtures/tui").join(&file)).unwrap_or_default();
    if shown != expect {
        std::fs::create_dir_all(root.join("target/tui")).expect("a folder");
        std::fs::write(root.join("target/tui").join(&file), &shown).expect("a file");
    }
    assert!(shown == expect, "fixtures/tui/{file} is not what is shown; target/tui has that:\n{shown}");
}

#[test]
fn screens_of_a_session() {
    let play = Play::new();
    for (width, height) in [(80, 24), (40, 12), (20, 5)] {
        snapshot("chat", &play, width, height);
    }
    let play = check("asks command=g-0 questions=g-1\ntype and then\nwait 65000\nkey Enter");
    snapshot("chat-gated", &play, 80, 16);
    snapshot("chat-gated", &play, 20, 5);
    let play = check("key Tab Up Up Up Up");
    snapshot("history", &play, 80, 16);
    let play = check("key Tab e e Up Up Up Enter");
    snapshot("reading", &play, 60, 10);
}

#[test]
fn screens_of_requests() {
    let play = check("asks command=g-0 patch=g-1\nkey ^R\nwait 5000");
    for (width, height) in [(80, 16), (20, 5)] {
        snapshot("approval", &play, width, height);
    }
    let play = check("asks patch=g-0\nkey ^R\nwait 600");
    snapshot("approval-diff", &play, 60, 16);
    let play = check("asks risky=g-0\nkey ^R\nwait 600\nkey a");
    snapshot("approval-danger", &play, 60, 12);
    let play = check("asks questions=g-0\nkey ^R\nwait 600\nkey Down");
    snapshot("input", &play, 60, 14);
    snapshot("input", &play, 20, 5);
    let play = check("asks questions=g-0\nkey ^R\nwait 600\nkey Down Enter\ntype hunter2");
    snapshot("input-secret", &play, 60, 14);
    let play = check("asks command=g-0 patch=g-1\nkey ^R\nended g-0");
    snapshot("answered-elsewhere", &play, 80, 12);
}

#[test]
fn screens_of_sessions_and_keys() {
    let mut play = Play::new();
    let row = |id: &str, live, pending, state| SessionRow {
        id: id.to_owned(),
        live,
        state,
        pending,
        cwd: format!("/home/u/{id}\u{1b}[31m"),
        used_us: NOW_US - 7_200_000_000,
    };
    let rows = vec![
        row("idle", true, 0, Some(Activity::Idle)),
        row("old", false, 0, None),
        row("waits", true, 2, Some(Activity::WaitingPermission)),
        row("mute", true, 0, None),
    ];
    play.model.session = None;
    play.event(Event::Listed(rows));
    snapshot("sessions", &play, 80, 8);
    snapshot("sessions", &play, 20, 5);
    play.key("?");
    snapshot("help", &play, 60, 12);
    play.key("x");
    assert_eq!(play.model.help, None);
    play.key("Enter");
    assert!(play.done.remove(0).starts_with("Attach { id: \"waits\""));
}

#[test]
fn nothing_raw_is_drawn_and_no_size_panics() {
    let hostile = "\u{1b}]0;x\u{7}\u{9b}31m\u{202e}a\u{0}\u{300}\u{200d}漢\u{7f}\r\n\u{feff}";
    let mut told = told();
    for kind in ["message", "error", "assistant_finalize", "rpc_error"] {
        told.push(json!({ "type": kind, "text": hostile, "message": hostile, "method": hostile }));
    }
    let mut play = check("asks questions=g-0 command=g-1\nkey ^R\nwait 600");
    let mut row = command("g-2");
    row["summary"] = json!(hostile);
    row["request_payload"]["command"] = json!(hostile);
    play.news(News::Pending { asks: vec![of_row(row, NOW_US)], ended: Vec::new() });
    play.news(News::Restored { epoch: 0, timeline: Box::new(timeline(told)) });
    for step in ["", "key Enter", "key ^R", "key Tab", "key Up", "key Enter", "key Esc /"] {
        if !step.is_empty() {
            play.step(step);
        }
        for (width, height) in [(1, 1), (2, 3), (3, 20), (20, 5), (33, 9), (80, 24), (200, 3), (0, 0)] {
            let shown = drawn(&play.model, width, height);
            assert!(!shown.chars().any(|char| char.is_control() && char != '\n' || char == '\u{202e}'), "{shown:?}");
        }
    }
    play.done.clear();
}

#[test]
fn without_colours_there_are_none() {
    let colours = |colours: Colours| {
        let mut play = check("asks patch=g-0\nkey ^R\nwait 600");
        play.model.colours = colours;
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("BUG: a backend in memory");
        terminal
            .draw(|frame| {
                view(&play.model, frame.area(), frame.buffer_mut());
            })
            .expect("BUG: it can be drawn");
        let cells = terminal.backend().buffer().content().to_vec();
        cells.iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
    };
    assert_eq!(colours(Colours::None), 0);
    assert!(colours(Colours::Some) > 0);
}

#[test]
fn the_page_has_the_table_of_keys() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tui.md")).unwrap_or_default();
    assert!(page.contains(&keys::as_markdown()), "docs/tui.md is to have this table:\n{}", keys::as_markdown());
}
