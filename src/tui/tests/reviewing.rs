//! A diff is reviewed on the whole screen, and its request is answered there.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::ask::of_row;
use super::super::events::News;
use super::super::model::Focus;
use super::screens::drawn;
use super::{NOW_US, Play, check, noted, row};

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
    let asks = vec![Arc::new(of_row(large(), NOW_US))];
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
    play.step("key Enter");
    assert_eq!(play.done.remove(0), "respond g-0 {\"decision\":\"decline\",\"reason\":\"use make\"}");
    // Only a pending request can be answered, not a diff of the timeline.
    let mut play = check("key Tab e e Up Up Enter");
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
        play.news(News::Pending { asks: vec![Arc::new(of_row(row, NOW_US))], ended: Vec::new() });
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
    play.news(News::Pending { asks: vec![Arc::new(of_row(row, NOW_US))], ended: Vec::new() });
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
