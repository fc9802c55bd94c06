//! What is on the screen at several sizes, and what never is.

use std::path::Path;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::Size;
use ratatui::style::Color;
use serde_json::json;

use super::super::ask::of_row;
use super::super::model::{Colours, Event, Model, News, SessionRow};
use super::super::text::width as columns_of;
use super::super::{keys, view};
use super::{NOW_US, Play, check, command, timeline, told};
use crate::history::Activity;

pub(super) fn drawn(model: &Model, width: u16, height: u16) -> String {
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
            hidden = columns_of(symbol).saturating_sub(1);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Holds the screen against a file. What is new is left in `target/tui`, to be looked at and copied.
pub(super) fn snapshot(name: &str, play: &Play, width: u16, height: u16) {
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
fn the_cursor_stands_behind_what_is_seen_of_what_was_pasted() {
    let play = check("paste rm \u{202e}x");
    let (width, height) = (60, 16);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("BUG: a backend in memory");
    let mut cursor = None;
    terminal.draw(|frame| cursor = view(&play.model, frame.area(), frame.buffer_mut())).expect("BUG: it can be drawn");
    let cursor = cursor.expect("something is typed");
    let shown = drawn(&play.model, width, height);
    let line = shown.lines().nth(usize::from(cursor.y)).expect("it is on the screen");
    assert!(line.ends_with(r"rm \u{202e}x"), "{line}");
    assert_eq!(columns_of(line), usize::from(cursor.x));
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
