//! A hub with threads of several clients: what is folded away, the rows of the list, and the names on the screen.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::lists::Destination;
use super::super::model::Event;
use super::super::pressed::title;
use super::screens::{all_as_in_files, drawn, snapshot};
use super::{NOW_US, Play, command, noted, timeline};
use crate::api::SessionDocument;
use crate::history::Activity;
use crate::protocol::ThreadKind;
use crate::sessions::ask::of_row;
use crate::sessions::news::{Link, Live, News, Sent, SentInto};
use crate::sessions::rows::{SessionRow, ThreadLine, Waiting};

/// A message and its answer in a thread of this kind.
fn talk(thread: &str, kind: ThreadKind) -> Vec<Value> {
    let of = |mut told: Value| {
        told["thread_id"] = json!(thread);
        told["thread_kind"] = if kind.is_user() { Value::Null } else { json!(kind) };
        told
    };
    vec![
        of(json!({ "type": "message", "text": format!("words of {kind}") })),
        of(json!({ "type": "assistant_finalize", "item_id": "a", "text": format!("answer of {kind}") })),
    ]
}

/// Who is in a thread of a hub.
fn identity(folder: &str, terminal: &str, title: Option<&str>) -> Value {
    json!({
        "kind": "user", "title": title, "cwd": format!("/p/{folder}"), "place": { "folder": folder },
        "client": { "name": "codex-tui", "terminal": terminal },
    })
}

/// The document of a hub with three threads of persons, one of them closed, and one of a subagent.
fn hub() -> SessionDocument {
    let thread = |id: &str, state: Activity, pending: u64, mut identity: Value| {
        let own = json!({
            "thread_id": id, "activity_state": state, "since": "2025-12-31T23:57:00.000Z", "turn_id": null, "pending": pending,
            "last_action": null, "stalled_since": null,
        });
        identity.as_object_mut().expect("BUG: an object").extend(own.as_object().expect("BUG: an object").clone());
        identity
    };
    let mut agent = identity("alpha", "pts/1", None);
    (agent["kind"], agent["parent"]) = (json!("subagent"), json!("one"));
    let mut untitled = thread("three", Activity::Idle, 0, identity("alpha", "pts/3", None));
    untitled["first_words"] = json!("look at the build");
    let connection = |threads: &[&str]| {
        json!({ "conn": 1, "client": { "name": "codex-tui", "version": "1" }, "transport": "websocket", "since": "", "threads": threads,
            "waiting_bytes": 0 })
    };
    let document = json!({
        "session_id": "work", "state": "waiting_permission", "activity_state": "waiting_permission", "generation": "000000010000",
        "socket": null, "child": { "pid": 1, "codex_version": "0.171.0" }, "client": { "name": "codex-tui", "version": "1" },
        "threads": [
            thread("one", Activity::Working, 0, identity("alpha", "pts/1", Some("Fix the build"))),
            thread("two", Activity::WaitingPermission, 1, identity("beta", "pts/2", Some("Write the docs"))),
            untitled,
            thread("closed", Activity::Idle, 0, identity("gamma", "pts/4", None)),
            thread("agent", Activity::Working, 0, agent),
        ],
        "pending_requests": 1, "context_waiting": 0, "journal": { "bytes": 0, "gaps": 0 },
        "index": { "lag_lines": 0, "lag_ms": 0, "persisted": true }, "faults": [], "counters": {}, "started_at": null,
        "server": { "pid": 1, "version": null, "socket": "", "started_at": "", "adopted": false },
        "connections": [connection(&["one"]), connection(&["two", "three"])],
    });
    serde_json::from_value(document).expect("BUG: a document")
}

fn row() -> SessionRow {
    let line = |listed: crate::api::ListedThread<'_>| ThreadLine {
        id: listed.thread.thread_id.clone(),
        about: listed.thread.about().unwrap_or_default().to_owned(),
        state: listed.thread.activity_state,
        since_us: Some(NOW_US - 180_000_000),
        name: listed.name,
        short_name: listed.short_name,
    };
    let ask = of_row(asked_in_beta().into(), NOW_US);
    SessionRow {
        id: "work".to_owned(),
        live: true,
        away: None,
        state: Some(Activity::WaitingPermission),
        pending: 1,
        waiting: vec![Waiting::of(&ask, "/home/u/.codex")],
        cwd: "/home/u/.codex".to_owned(),
        client: None,
        used_us: NOW_US,
        threads: hub().listed_threads().into_iter().map(line).collect(),
    }
}

fn asked_in_beta() -> Value {
    let mut row = command("6b02d1a90c4e-0");
    row["thread_id"] = json!("two");
    row["thread"] = identity("beta", "pts/2", Some("Write the docs"));
    row
}

fn at_hub(told: Vec<Value>) -> Play {
    let mut play = Play::new();
    play.news(News::Placed("/home/u/.codex".to_owned()));
    play.news(News::Linked(Link::Up(Box::new(Live { document: hub(), since_us: None }))));
    play.news(News::Restored { epoch: 0, timeline: Box::new(timeline(told)) });
    play
}

#[test]
fn words_of_other_threads_are_never_the_user_s() {
    for (kind, folded) in [
        (ThreadKind::User, None),
        (ThreadKind::Title, Some("")),
        (ThreadKind::Subagent, Some("2 entries of a subagent")),
        (ThreadKind::Review, Some("2 entries of a review")),
        (ThreadKind::Guardian, Some("2 entries of codex's own reviewer")),
        (ThreadKind::Other, Some("2 entries of a thread of the client")),
    ] {
        let mut play = at_hub([talk("one", ThreadKind::User), talk("x", kind)].concat());
        for (width, height) in [(80, 24), (40, 12)] {
            let shown = drawn(&play.model, width, height);
            assert!(shown.contains("words of user"), "{shown}");
            let own = format!("words of {kind}");
            assert_eq!(shown.contains(&own), folded.is_none(), "{kind}: {shown}");
            assert_eq!(shown.contains("▸"), folded.is_some_and(|words| !words.is_empty()), "{kind}: {shown}");
            if let (Some(words), 80) = (folded, width) {
                assert!(shown.contains(words), "{kind}: {shown}");
            }
        }
        // The switch shows all, but calls nobody else `you`.
        play.step("key Tab a");
        let shown = drawn(&play.model, 80, 24);
        let line =
            shown.lines().find(|line| line.contains(&format!("words of {kind}"))).expect("it is shown").to_owned();
        assert!(line.contains(&format!("❯ {}", kind.speaker())), "{kind}: {line}");
        play.step("key a");
        assert_eq!(drawn(&play.model, 80, 24).contains(&format!("words of {kind}")), folded.is_none());
    }
}

#[test]
fn line_of_a_thread_opens_it() {
    let mut play = at_hub([talk("one", ThreadKind::User), talk("agent", ThreadKind::Subagent)].concat());
    play.step("key Tab Enter");
    let shown = drawn(&play.model, 80, 24);
    assert!(shown.contains("words of subagent") && !shown.contains("words of user"), "{shown}");
    // Nobody speaks there.
    play.step("key Tab");
    play.step("type hello");
    play.step("key Enter");
    assert!(noted(&play).contains("nobody speaks in this thread"), "{}", noted(&play));
    play.step("key Tab Esc");
    let shown = drawn(&play.model, 80, 24);
    assert!(shown.contains("2 entries of a subagent") && shown.contains("words of user"), "{shown}");
    // The same in the thread that has started it, and nowhere else.
    for (thread, expect) in [("one", true), ("two", false)] {
        play.model.session.as_mut().expect("attached").thread = Some(thread.to_owned());
        assert_eq!(drawn(&play.model, 80, 24).contains("of a subagent"), expect, "{thread}");
    }
}

#[test]
fn facts_are_those_of_persons() {
    let tokens = |thread: &str, kind: Value, total: u64| json!({ "type": "token_count", "thread_id": thread, "thread_kind": kind, "total": total, "context_window": 100 });
    let play = at_hub(vec![tokens("one", Value::Null, 41), tokens("x", json!("title"), 7)]);
    let facts = play.model.session.as_ref().and_then(|session| session.facts().cloned()).expect("facts");
    assert_eq!(facts.tokens, Some((41, Some(100))));
}

#[test]
fn list_has_a_row_for_each_open_thread() {
    let mut play = Play::new();
    play.model.session = None;
    play.event(Event::Listed(vec![row()]));
    snapshot("hub-sessions", &play, 80, 24);
    snapshot("hub-sessions", &play, 40, 12);
    let asks = |play: &Play| {
        let shown = drawn(&play.model, 80, 24);
        shown.lines().find(|line| line.contains("run make clean")).unwrap_or_default().to_owned()
    };
    // Below the list, the row of the hub says which thread asks.
    assert_eq!(asks(&play), " ?  beta (codex-tui): run make clean -s");
    let mut risky = row();
    risky.waiting[0].warnings = vec!["it deletes folders with all that is in them".to_owned()];
    play.event(Event::Listed(vec![risky]));
    assert_eq!(asks(&play), " !  beta (codex-tui): run make clean -s");
    play.step("key Down");
    assert_eq!(asks(&play), " !  run make clean -s");
    play.event(Event::Listed(vec![row()]));
    snapshot("hub-sessions-chosen", &play, 40, 12);
    all_as_in_files();
    // The thread that waits comes first; opening it shows it alone, and messages go to it.
    play.step("key Enter");
    assert!(play.done.remove(0).starts_with("Attach { id: \"work\""));
    assert_eq!(play.model.session.as_ref().and_then(|session| session.thread.as_deref()), Some("two"));
    play.news(News::Linked(Link::Up(Box::new(Live { document: hub(), since_us: None }))));
    play.news(News::Pending { asks: Vec::new(), ended: Vec::new() });
    play.news(News::Restored { epoch: 0, timeline: Box::new(timeline([talk("one", ThreadKind::User)].concat())) });
    assert!(!drawn(&play.model, 80, 24).contains("words of user"));
    for (width, height) in [(80, 24), (40, 12)] {
        let shown = drawn(&play.model, width, height);
        assert!(shown.lines().next().is_some_and(|line| line.starts_with("beta")), "{shown}");
    }
    assert!(drawn(&play.model, 80, 24).contains("Enter sends to beta (codex-tui)"), "{}", drawn(&play.model, 80, 24));
    play.step("type half");
    play.step("key Esc");
    assert_eq!(play.done.remove(0), "Detach");
    // What was typed for one thread stays with it.
    for (thread, draft) in [(None, ""), (Some("one"), ""), (Some("two"), "half")] {
        let opened = Destination { session: "work".to_owned(), thread: thread.map(str::to_owned) };
        super::attach(&mut play.model, opened);
        assert_eq!(play.model.session.as_ref().expect("attached").composer.text(), draft, "{thread:?}");
    }
    play.news(News::Linked(Link::Up(Box::new(Live { document: hub(), since_us: None }))));
    play.step("key Enter");
    assert_eq!(play.done.remove(0), "say \"half\" to two");
    // The note says where it went.
    for (into, expect) in [
        (SentInto::NewTurn, "sent to beta (codex-tui): a turn has begun"),
        (SentInto::RunningTurn, "sent to the running turn of beta (codex-tui)"),
    ] {
        play.news(News::Said(Ok(Sent { thread_id: Some("two".to_owned()), into })));
        assert_eq!(noted(&play), expect);
    }
    play.news(News::Interrupted(Ok(Some("one".to_owned()))));
    assert_eq!(noted(&play), "the turn of alpha (codex-tui, pts/1) is being interrupted");
}

#[test]
fn refused_page_of_the_past_is_no_entry() {
    for (method, expect) in [("thread/turns/list", false), ("thread/items/list", false), ("thread/resume", true)] {
        let refused = json!({ "type": "rpc_error", "code": -32600, "method": method, "message": "not yet", "id": "1" });
        let play = at_hub(vec![refused]);
        assert_eq!(drawn(&play.model, 80, 24).contains("was refused"), expect, "{method}");
    }
}

#[test]
fn entries_of_several_threads_say_whose_they_are() {
    let user = ThreadKind::User;
    let told = [talk("one", user), talk("two", user), talk("agent", ThreadKind::Subagent), talk("two", user)].concat();
    let mut play = at_hub(told);
    for (width, height) in [(80, 40), (40, 40)] {
        let shown = drawn(&play.model, width, height);
        let heads: Vec<&str> = shown.lines().filter(|line| line.contains("(codex-tui")).collect();
        let expect = ["── alpha (codex-tui, pts/1)", "── beta (codex-tui)", "── beta (codex-tui)"];
        assert_eq!(heads, expect, "{shown}");
    }
    // Alone, the header says it.
    play.model.session.as_mut().expect("attached").thread = Some("two".to_owned());
    assert!(!drawn(&play.model, 80, 40).contains("── beta"));
}

#[test]
fn a_whole_hub_is_told_and_interrupted_by_choice() {
    for (keys, what) in [("Enter", "not sent"), ("^X", "nothing is interrupted")] {
        let mut play = at_hub(talk("one", ThreadKind::User));
        play.step("type hello");
        play.step(&format!("key {keys}"));
        assert_eq!(play.done, [""; 0], "{keys}");
        assert_eq!(noted(&play), format!("{what}: several threads are open, choose one first"));
        // The list is open, and what was typed is kept.
        play.step("key Down Enter");
        assert_eq!(play.model.session.as_ref().and_then(|session| session.thread.as_deref()), Some("one"));
        play.step("key Enter");
        assert_eq!(play.done.remove(0), "say \"hello\" to one");
    }
}

#[test]
fn closed_thread_gives_way_to_its_session() {
    let mut play = Play::new();
    play.model.session = None;
    let all = |threads: &[usize]| {
        let whole = row();
        let threads = threads.iter().map(|at| whole.threads[*at].clone()).collect();
        Event::Listed(vec![SessionRow { threads, ..whole }])
    };
    play.event(all(&[0, 1, 2]));
    play.step("key Down Down Down");
    let last = play.model.list.chosen.clone().expect("a row");
    assert_eq!(last.thread.as_deref(), Some(row().threads[2].id.as_str()));
    play.event(all(&[2, 0]));
    assert_eq!(play.model.list.chosen, Some(last), "it moves with its row");
    play.event(all(&[0, 1]));
    assert_eq!(play.model.list.chosen, Some(Destination::session("work")));
}

#[test]
fn threads_in_one_folder_are_told_apart_by_terminals() {
    let document = hub();
    let names: Vec<(String, String)> =
        document.listed_threads().into_iter().map(|listed| (listed.name, listed.short_name)).collect();
    let expect = [
        ("beta (codex-tui)", "beta"),
        ("alpha (codex-tui, pts/1)", "alpha (pts/1)"),
        ("alpha (codex-tui, pts/3)", "alpha (pts/3)"),
    ];
    assert_eq!(names, expect.map(|(name, short)| (name.to_owned(), short.to_owned())));
}

#[test]
fn requests_are_named_by_their_thread() {
    let mut play = Play::new();
    play.model.session = None;
    play.event(Event::Listed(vec![row()]));
    assert_eq!(play.notified, ["beta (codex-tui): run make clean -s"]);
    play.step("key ^P");
    let shown = drawn(&play.model, 80, 24);
    assert!(shown.contains("beta (codex-tui)") && !shown.contains(".codex"), "{shown}");
    // It is opened in its thread.
    play.step("key Enter");
    assert!(play.done.remove(0).starts_with("Attach"));
    assert_eq!(play.model.session.as_ref().and_then(|session| session.thread.as_deref()), Some("two"));
    // The card of a request says who asks, whichever thread is chosen.
    for thread in [None, Some("one"), Some("two")] {
        let mut play = at_hub(Vec::new());
        play.model.session.as_mut().expect("attached").thread = thread.map(str::to_owned);
        play.news(News::Pending { asks: vec![Arc::new(of_row(asked_in_beta().into(), NOW_US))], ended: Vec::new() });
        play.step("key ^R");
        for (width, height) in [(80, 24), (40, 12)] {
            let shown = drawn(&play.model, width, height);
            assert!(shown.starts_with("beta") && !shown.contains(".codex"), "{shown}");
        }
        assert_eq!(title(&play.model), "(1 waits) codex-shim · beta (codex-tui)");
    }
}

#[test]
fn list_of_threads_leaves_out_what_is_folded() {
    let mut play = at_hub([talk("one", ThreadKind::User), talk("x", ThreadKind::Title)].concat());
    play.step("key ^T");
    let shown = drawn(&play.model, 80, 24);
    assert!(shown.starts_with("4 threads"), "{shown}");
    assert!(shown.contains("beta (codex-tui)") && shown.contains("\"Fix the build\""), "{shown}");
    play.step("key Esc Tab a ^T");
    let shown = drawn(&play.model, 80, 24);
    assert!(shown.starts_with("6 threads") && shown.contains("a subagent"), "{shown}");
}
