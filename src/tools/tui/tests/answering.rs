//! Typed text is a message or an answer, never one in place of the other. A diff is reviewed on the whole screen, and its request is
//! answered there. The mouse never answers a request.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::{Position, Size};
use serde_json::{Value, json};

use super::super::lists::Destination;
use super::super::model::{Event, Focus};
use super::super::pointing::{Pointing, Target};
use super::super::view;
use super::screens::{drawn, sessions};
use super::{NOW_US, Play, check, noted, row, timeline};
use crate::requests::request_testing::{one_of_each_kind, raw_names};
use crate::sessions::ask::of_row;
use crate::sessions::news::{Link, News};

#[test]
fn chat_says_and_never_answers() {
    check("type hello\nkey Enter\n<< say \"hello\"\nsaid\nkey Enter\n== chat");
    check("paste a\\nb\nkey Enter\n<< say \"a\\nb\"\ntype x\nkey Enter\n== chat");
    // A request arrives while the user types: the text stays text, and nothing is sent.
    let play = check("type ad\nasks command=g-0\ntype asdcy1\nkey Enter\n== chat");
    assert_eq!(play.model.session.as_ref().expect("attached").composer.text(), "adasdcy1");
    assert!(noted(&play).contains("^R"), "{}", noted(&play));
    // A request of an unknown kind does not wait for a person.
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
    let all = [("d", "decline"), ("c", "cancel")];
    for (key, decision) in all {
        check(&format!(
            "asks command=g-0\nkey ^R\nwait 600\nkey {key}\n<< respond g-0 {{\"decision\":\"{decision}\"}}\nok g-0\n== chat"
        ));
    }
    check(
        "asks command=g-0\nkey ^R\nwait 600\nkey r\ntype not so\nwait 600\nkey Enter\n<< respond g-0 {\"decision\":\"decline\",\"reason\":\"not so\"}",
    );
    check("asks command=g-0\nkey ^R\nwait 600\nkey r\ntype acd\nkey Esc\n== approval g-0\nkey Esc\n== chat");
    check("asks command=g-0\nkey ^R\nwait 600\nkey x Enter 1\n== approval g-0");
}

#[test]
fn next_request_must_be_seen_too() {
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
    check("asks command=g-0 questions=g-1\nkey ^R\n== approval g-0\nkey ^R\n== question g-1\nkey ^R\n== approval g-0");
}

#[test]
fn risky_answers_need_confirmation() {
    let shown = "asks risky=g-0\nkey ^R\nwait 600\nkey a\n== approval g-0\nwait 600\n";
    check(&format!("{shown}key a Enter\n== approval g-0\nkey n\n== approval g-0"));
    check(&format!("{shown}key y\n<< respond g-0 {{\"decision\":\"accept\"}}"));
    check("asks risky=g-0\nkey ^R\nwait 600\nkey d\n<< respond g-0 {\"decision\":\"decline\"}");
    // By the words of the command, by what a change does, and by how long the answer holds.
    for (kind, key, decision, danger) in [
        ("dangerous", "a", "accept", "it runs a script from the network as root. Really? y / n (accept)"),
        ("deletion", "a", "accept", "it deletes a file; it changes a file outside the folder. Really? y / n (accept)"),
        ("command", "s", "acceptForSession", "it holds for the whole session. Really? y / n (accept for the session)"),
    ] {
        let play = check(&format!("asks {kind}=g-0\nkey ^R\nwait 600\nkey {key}\n== approval g-0"));
        assert!(drawn(&play.model, 90, 30).contains(danger), "{}", drawn(&play.model, 90, 30));
        check(&format!(
            "asks {kind}=g-0\nkey ^R\nwait 600\nkey {key}\nwait 600\nkey y\n<< respond g-0 {{\"decision\":\"{decision}\"}}"
        ));
        check(&format!("asks {kind}=g-0\nkey ^R\nwait 600\nkey d\n<< respond g-0 {{\"decision\":\"decline\"}}"));
    }
    let (tool, always) =
        ("asks tool=g-0\nkey ^R\nwait 600\n", "<< respond g-0 {\"action\":\"accept\",\"persist\":\"always\"}");
    check(&format!("{tool}key 3 Enter\n== question g-0\nwait 600\nkey y\n{always}"));
    check(&format!(
        "{tool}key 3 Enter\nwait 600\nkey n\n== question g-0\nwait 600\nkey 1 Enter\n<< respond g-0 {{\"action\":\"accept\"}}"
    ));
}

#[test]
fn time_left_for_a_question_is_on_the_screen() {
    let mut play = check("asks timed=g-0\nkey ^R\n== question g-0");
    for size in [(120, 40), (80, 24), (40, 12)] {
        assert!(
            drawn(&play.model, size.0, size.1).contains(" · 1m 30s left · "),
            "{}",
            drawn(&play.model, size.0, size.1)
        );
    }
    play.step("wait 80000");
    play.step("key Down");
    assert!(drawn(&play.model, 80, 24).contains(" · 10s left · "), "{}", drawn(&play.model, 80, 24));
    assert!(!drawn(&check("asks questions=g-0\nkey ^R").model, 80, 24).contains("left"));
}

#[test]
fn another_terminal_answers_first() {
    let play = check("asks command=g-0\nkey ^R\nended g-0\n== chat");
    assert_eq!(noted(&play), "request g-0 was answered by client (ide): accept");
    // The next request does not replace the one on the screen.
    check(
        "asks command=g-0 patch=g-1\nkey ^R\nwait 600\nended g-0\n== approval g-0 ended\nkey a d\n== approval g-0 ended\nkey Enter\n== approval g-1",
    );
    // Text that was being typed does not end up in the composer.
    let play = check(
        "asks questions=g-0\nkey ^R\nwait 600\nkey 3\ntype sec\nended g-0\n== question g-0 ended\ntype ret\nkey Enter\n== chat",
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
        == question g-0
        type k3y
        key Enter
        == question g-0
        wait 600
        key Enter
        << respond g-0 {"answers":{"color":["Blue"],"key":["k3y"]}}
        ok g-0
        == chat
        "#,
    );
    check(
        "asks questions=g-0\nkey ^R\nwait 600\ntype green 2\nkey Enter Enter Enter Enter\n<< respond g-0 {\"answers\":{\"color\":[\"green 2\"]}}",
    );
    let fields = "{\"action\":\"accept\",\"content\":{\"name\":\"Ada\",\"sure\":false}}";
    check(&format!(
        "asks elicitation=g-0\nkey ^R\nwait 600\nkey Enter\ntype Ada\nkey Enter 2 Enter Enter\n<< respond g-0 {fields}\nfails g-0\n== question g-0\nkey Enter\n<< respond g-0 {fields}"
    ));
    check("asks elicitation=g-0\nkey ^R\nwait 600\nkey 2 Enter\n<< respond g-0 {\"action\":\"decline\"}");
}

#[test]
fn a_form_is_validated_before_it_is_sent() {
    // The default is filled in. A value out of range is refused at once and can be corrected.
    let mut play = check("asks form=g-0\nkey ^R\nwait 600\nkey Enter\ntype 9\nkey Enter\n== question g-0");
    assert!(noted(&play).contains("39 is greater than the maximum of 9"), "{}", noted(&play));
    let shown = drawn(&play.model, 80, 24);
    assert!(shown.contains("2 of 4: replicas") && shown.contains("required · integer 1 to 9 · default 3"), "{shown}");
    assert!(shown.contains("› 39") && shown.contains("39 is greater"), "{shown}");
    play.step("key ^U");
    play.step("key Enter");
    // An emptied field sends its default. The choice is optional, and a secret is hidden.
    play.step("key 1 Enter");
    play.step("type key");
    play.step("key Enter");
    assert!(noted(&play).contains("shorter than 4"), "{}", noted(&play));
    play.step("type s");
    play.step("key Enter");
    let shown = drawn(&play.model, 80, 24);
    assert!(shown.contains("3. env  dev") && shown.contains("token  ••••") && !shown.contains("keys"), "{shown}");
    play.step("key 3 3 Enter Enter");
    assert_eq!(
        play.done.remove(0),
        "respond g-0 {\"action\":\"accept\",\"content\":{\"replicas\":3,\"token\":\"keys\"}}"
    );
}

#[test]
fn moving_back_loses_and_sends_nothing() {
    let typed = "asks questions=g-0\nkey ^R\nwait 600\nkey 3\ntype green\nkey Enter\ntype k3y";
    let sent = "<< respond g-0 {\"answers\":{\"color\":[\"green\"],\"key\":[\"k3y\"]}}";
    check(&format!("{typed}\nkey ^B ^B ^B Enter Enter\n== question g-0\nwait 600\nkey Enter\n{sent}"));
    check(&format!("{typed}\nkey Enter ^B ^B Enter\n== question g-0\nwait 600\nkey Enter\n{sent}"));
    // Chat, the timeline, another request, another session: typed text survives them all.
    let back = "wait 600\nkey Enter Enter";
    check(&format!("{typed}\nkey Esc\ntype chat\nkey ^R\n{back}\n{sent}"));
    check(&format!("{typed}\nkey Tab Up Tab\n{back}\n{sent}"));
    check(&format!(
        "{}\nkey ^R\n== approval g-1\nkey ^R\n{back}\n{sent}",
        typed.replace("questions=g-0", "questions=g-0 command=g-1")
    ));
    check(&format!(
        "{typed}\nkey Enter 1 Up Enter\n== question g-0\nwait 600\nkey Enter\n<< respond g-0 {{\"answers\":{{\"color\":[\"Blue\"],\"key\":[\"k3y\"]}}}}"
    ));
    let mut play = check(typed);
    play.step("key Esc Esc");
    assert_eq!(play.done.remove(0), "Detach");
    play.model.attachments -= 1;
    super::attach(&mut play.model, Destination::session("work"));
    play.step("asks questions=g-0");
    play.step("wait 600");
    play.step("key Enter Enter");
    assert_eq!(format!("<< {}", play.done.remove(0)), sent);
}

#[test]
fn empty_text_is_never_sent_by_accident() {
    let mut play = check("asks questions=g-0\nkey ^R\nwait 600");
    for code in [KeyCode::Right, KeyCode::Left, KeyCode::PageDown, KeyCode::Home, KeyCode::Backspace] {
        play.event(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }
    let chosen = |play: &Play| {
        let session = play.model.session.as_ref().expect("attached");
        session.answering.as_ref().map(|shown| {
            let chosen = shown.form.current().map_or(0, |(_, draft)| draft.chosen);
            (chosen, shown.form.answers().len())
        })
    };
    assert_eq!(chosen(&play), Some((0, 0)));
    play.step("key 3 Enter");
    assert_eq!(chosen(&play), Some((2, 0)));
    assert!(noted(&play).contains("nothing is typed"), "{}", noted(&play));
    // Moving away and back repeats the warning.
    play.step("key Up Down Enter");
    assert_eq!(chosen(&play), Some((2, 0)));
    play.step("key Enter");
    assert_eq!(chosen(&play), Some((0, 1)));
}

#[test]
fn last_row_names_the_effect_of_enter() {
    let last_row = |play: &Play| drawn(&play.model, 80, 24).lines().last().unwrap_or_default().to_owned();
    let mut play = Play::new();
    assert!(last_row(&play).contains("Enter sends"), "{}", last_row(&play));
    for link in [Link::Stopped, Link::Silent("it is busy".to_owned()), Link::New] {
        play.model.session.as_mut().expect("attached").link = link;
        assert!(last_row(&play).contains("Enter does nothing"), "{}", last_row(&play));
    }
    let mut play = check("asks command=g-0 patch=g-1\nkey ^R\nwait 600\nkey r\ntype no");
    assert!(last_row(&play).contains("Enter declines"), "{}", last_row(&play));
    play.step("ended g-0");
    assert!(last_row(&play).contains("Enter continues"), "{}", last_row(&play));
    play.step("key Enter");
    assert_eq!(play.state(), "approval g-1");
}

#[test]
fn request_of_a_crashed_server_is_orphaned() {
    let asks = json!({ "type": "approval", "request_id": "g-0", "kind": "command", "status": "pending" });
    let run = json!({ "type": "run", "generation": "000000010001" });
    let timeline = timeline(vec![asks, run]);
    let title = &timeline.entries()[0].title;
    assert!(title.ends_with("→ orphaned: server_restarted"), "{title}");
    assert!(!timeline.has_open());
}

#[test]
fn no_kind_shows_names_of_members() {
    for row in one_of_each_kind() {
        let mut play = Play::new();
        play.news(News::Pending { asks: vec![Arc::new(of_row(row.clone(), NOW_US))], ended: Vec::new() });
        play.step("key ^R");
        let mut shown = drawn(&play.model, 120, 60);
        play.step("wait 600");
        play.step("key 1");
        shown.push_str(&drawn(&play.model, 120, 60));
        let names = raw_names(&row.request_payload, &shown);
        assert!(names.is_empty(), "{names:?}\n{shown}");
        play.done.clear();
    }
}

/// Draws, so that the model knows all targets.
fn draw(play: &mut Play) {
    let Size { width, height } = play.model.size;
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("BUG: a backend in memory");
    let mut spots = Vec::new();
    terminal
        .draw(|frame| spots = view(&play.model, frame.area(), frame.buffer_mut()).spots)
        .expect("BUG: it can be drawn");
    play.model.spots = spots;
}

/// Points at the first target for which `is_it` holds.
fn point(play: &mut Play, does: Pointing, is_it: impl Fn(&Target) -> bool) {
    draw(play);
    let spot = play.model.spots.iter().find(|spot| is_it(&spot.target)).expect("it is on the screen").area;
    play.event(Event::Pointed(Position::new(spot.x, spot.y), does));
}

#[test]
fn clicks_select_and_open() {
    let mut play = Play::new();
    let is_entry = |target: &Target| matches!(target, Target::Entry(_));
    point(&mut play, Pointing::Click, is_entry);
    let chosen = play.model.session.as_ref().and_then(|session| session.cursor.clone());
    assert!(chosen.is_some());
    let is_chosen = move |target: &Target| matches!(target, Target::Entry(key) if Some(key) == chosen.as_ref());
    point(&mut play, Pointing::Click, is_chosen);
    assert!(matches!(play.model.session.as_ref().expect("attached").focus, Focus::Reading(_)));
    play.step("key Esc");
    point(&mut play, Pointing::WheelUp, |target| *target == Target::Timeline);
    play.event(Event::Listed(sessions()));
    point(&mut play, Pointing::Click, |target| *target == Target::Elsewhere);
    assert!(play.done.remove(0).starts_with("Attach { id: \"waits\""));
    play.model.session = None;
    let is_idle = |target: &Target| *target == Target::Session(Destination::session("idle"));
    point(&mut play, Pointing::Click, is_idle);
    assert_eq!(play.model.list.chosen, Some(Destination::session("idle")));
    point(&mut play, Pointing::Click, is_idle);
    assert!(play.done.remove(0).starts_with("Attach { id: \"idle\""));
}

#[test]
fn no_click_answers_a_request() {
    for asked in ["command", "patch", "risky", "questions", "elicitation"] {
        for size in ["80x24", "120x40", "40x12"] {
            let mut play = check(&format!("resize {size}\nasks {asked}=g-0\nkey ^R\nwait 600"));
            for _ in 0..3 {
                draw(&mut play);
                let spots: Vec<_> = play.model.spots.iter().map(|spot| spot.area).collect();
                for area in spots {
                    let position = Position::new(area.x + area.width / 2, area.y + area.height / 2);
                    for does in [Pointing::Click, Pointing::WheelDown, Pointing::WheelUp] {
                        play.event(Event::Pointed(position, does));
                    }
                }
            }
            play.done.retain(|done| done.starts_with("respond"));
            assert_eq!(play.done, [""; 0], "{asked} {size}");
        }
    }
}

#[test]
fn options_files_and_diffs_take_the_mouse() {
    let mut play = check("asks questions=g-0\nkey ^R\nwait 600");
    point(&mut play, Pointing::Click, |target| *target == Target::Option(1));
    play.step("key Enter");
    play.step("type k");
    play.step("key Enter Enter");
    assert_eq!(play.done.remove(0), "respond g-0 {\"answers\":{\"color\":[\"Blue\"],\"key\":[\"k\"]}}");
    let mut play = super::answering::reviewed();
    point(&mut play, Pointing::Click, |target| *target == Target::File(3));
    let line = |play: &Play| {
        let Focus::Reading(reading) = &play.model.session.as_ref().expect("attached").focus else { panic!("a review") };
        reading.doc().text_of(reading.at.line).to_owned()
    };
    assert_eq!(line(&play), "src/file03.rs  changed");
    point(&mut play, Pointing::WheelDown, |target| *target == Target::Document);
    assert_ne!(line(&play), "src/file03.rs  changed");
    play.step("key F2");
    assert_eq!(play.done.remove(0), "Mouse(Left)");
}

/// A request with twelve files, one of them new and one deleted.
fn large() -> Value {
    let mut row = row("g-0", "item/fileChange/requestApproval", "change 12 files", json!({ "grantRoot": null }));
    let hunk = |number: usize| {
        let lines: String =
            (0..5).map(|line| format!("-old {number}.{line}\n+new {number}.{line}\n context\n")).collect();
        format!("@@ -{0},10 +{0},10 @@\n{lines}", 10 * number + 1)
    };
    let changes: Vec<Value> = (0..12)
        .map(|number| match number {
            1 => json!({ "path": "/repo/src/added.rs", "kind": { "type": "add" }, "diff": "fn added() {\n\tbody();\n}\n" }),
            2 => json!({ "path": "/repo/src/deleted.rs", "kind": { "type": "delete" }, "diff": "gone\n" }),
            _ => json!({ "path": format!("/repo/src/file{number:02}.rs"), "kind": { "type": "update" },
                "diff": hunk(number) + &hunk(number + 20) }),
        })
        .collect();
    row["changes"] = json!(changes);
    row
}

fn asked() -> Play {
    let mut play = Play::new();
    let asks = vec![Arc::new(of_row(large().into(), NOW_US))];
    play.news(News::Pending { asks, ended: Vec::new() });
    play.step("key ^R");
    play.step("wait 600");
    play
}

/// The review, with the second file on top.
pub(super) fn reviewed() -> Play {
    let mut play = asked();
    play.step("key v n");
    play
}

/// The first visible line of the document, and the position in the title.
fn position(play: &Play) -> (String, String) {
    let session = play.model.session.as_ref().expect("attached");
    let Focus::Reading(reading) = &session.focus else { panic!("{:?}", session.focus) };
    let shown = drawn(&play.model, 80, 24);
    let right = shown.lines().nth(1).and_then(|line| line.split("file ").nth(1)).unwrap_or_default().to_owned();
    (reading.doc().text_of(reading.at.line).to_owned(), right)
}

#[test]
fn files_hunks_and_pages_are_reached_by_key() {
    let mut play = asked();
    play.step("key v");
    let check = |play: &mut Play, keys: &str, line: &str, at: &str| {
        play.step(&format!("key {keys}"));
        let (top, shown) = position(play);
        assert!(top == line && shown.starts_with(at) && shown.ends_with('%'), "{keys}: {top} {shown}");
    };
    check(&mut play, "]", "@@ -1,10 +1,10 @@", "1/12 · hunk 1/20");
    check(&mut play, "]", "@@ -201,10 +201,10 @@", "1/12 · hunk 2/20");
    check(&mut play, "n", "src/added.rs  added", "2/12 · hunk 2/20");
    check(&mut play, "n n", "src/file03.rs  changed", "4/12 · hunk 3/20");
    check(&mut play, "p", "src/deleted.rs  deleted", "3/12 · hunk 2/20");
    check(&mut play, "[", "@@ -201,10 +201,10 @@", "1/12 · hunk 2/20");
    check(&mut play, "Home", "src/file00.rs  changed", "1/12 · hunk 1/20");
    check(&mut play, "PgDn", " context", "1/12 · hunk 2/20");
    play.step("key End");
    assert!(position(&play).1.ends_with("100%"), "{:?}", position(&play));
    // Scrolling up works at once after scrolling beyond the end.
    let end = position(&play).0;
    play.step("key Down Down Up");
    assert_ne!(position(&play).0, end);
    play.step("key Home n n n n n n n n n n n n n");
    assert_eq!(position(&play).0, "src/file11.rs  changed", "the last file comes to the top");
    play.step("key o");
    assert_eq!(play.done.remove(0), "page 12 files +103 -101");
    play.step("key Esc");
    assert_eq!(play.state(), "approval g-0");
}

#[test]
fn the_list_of_files_leads_to_a_file() {
    let mut play = asked();
    play.step("resize 40x12");
    play.step("key v Tab j j Enter");
    assert_eq!(position(&play).0, "src/deleted.rs  deleted");
    play.step("key f g G Enter");
    assert_eq!(position(&play).0, "src/file11.rs  changed");
    play.step("key Tab Esc q");
    assert_eq!(play.state(), "approval g-0");
}

#[test]
fn a_request_is_answered_in_its_review() {
    let mut play = asked();
    play.step("key v x");
    assert!(noted(&play).contains("a s d c r answer"), "{}", noted(&play));
    play.step("key d");
    assert_eq!(play.done.remove(0), "respond g-0 {\"decision\":\"decline\"}");
    play.step("ok g-0");
    assert_eq!(play.state(), "chat");
    let mut play = asked();
    play.step("key v r");
    play.step("type use make");
    play.step("wait 600");
    play.step("key Enter");
    assert_eq!(play.done.remove(0), "respond g-0 {\"decision\":\"decline\",\"reason\":\"use make\"}");
    // Only a pending request can be answered, not a diff of the timeline.
    let mut play = check("key Tab e e Up Up Enter\nwait 600");
    play.step("key a");
    assert!(noted(&play).contains("cannot be answered"), "{}", noted(&play));
}

#[test]
fn paths_are_relative_and_tabs_are_tabs() {
    let shown = drawn(&reviewed().model, 80, 24);
    assert!(!shown.contains("/repo/") && shown.contains("+       body();"), "{shown}");
}

#[test]
fn a_patch_without_a_diff_says_so() {
    let play = {
        let mut row = super::patch("g-0");
        row["changes"] = Value::Null;
        let mut play = Play::new();
        play.news(News::Pending { asks: vec![Arc::new(of_row(row.into(), NOW_US))], ended: Vec::new() });
        play.step("key ^R");
        play
    };
    let shown = drawn(&play.model, 80, 24);
    assert!(shown.contains("! the diff is not on record"), "{shown}");
}

#[test]
fn a_long_request_scrolls_by_pages() {
    let mut row = super::command("g-0");
    let lines: Vec<String> = (0..100).map(|line| format!("line {line}")).collect();
    row["request_payload"]["command"] = json!(lines.join("\n"));
    let mut play = Play::new();
    play.news(News::Pending { asks: vec![Arc::new(of_row(row.into(), NOW_US))], ended: Vec::new() });
    play.step("key ^R");
    let at = |play: &Play| {
        play.model.session.as_ref().and_then(|session| session.answering.as_ref()).map(|shown| shown.at.line)
    };
    play.step("key PgDn");
    let page = play.model.room.rows - 1;
    assert!(page > 3, "{page}");
    assert_eq!(at(&play), Some(page));
    play.step("key End");
    let end = at(&play);
    play.step("key Down Down Down Up");
    assert_eq!(at(&play), end.map(|end| end - 1));
    play.step("key Home");
    assert_eq!(at(&play), Some(0));
}
