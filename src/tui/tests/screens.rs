//! Snapshots of the screen at several sizes.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::Size;
use ratatui::style::Color;
use serde_json::json;

use super::super::ask::of_row;
use super::super::events::{Event, News};
use super::super::model::{Colours, Model, SessionRow};
use super::super::text::width as columns_of;
use super::super::update::update;
use super::super::{keys, view};
use super::{NOW_US, Play, check, command, timeline, told};
use crate::history::Activity;

pub(super) fn drawn(model: &Model, width: u16, height: u16) -> String {
    let mut model = model.clone();
    let now_us = model.now_us;
    update(&mut model, now_us, Event::Resized(Size { width, height }));
    let model = &model;
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
            // A wide character hides the next cell.
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

/// Compares the screen with a file. A different screen is written to `target/tui` for review.
pub(super) fn snapshot(name: &str, play: &Play, width: u16, height: u16) {
    let shown = drawn(&play.model, width, height);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = format!("{name}-{width}x{height}.txt");
    let expect = std::fs::read_to_string(root.join("fixtures/tui").join(&file)).unwrap_or_default();
    if shown != expect {
        std::fs::create_dir_all(root.join("target/tui")).expect("a folder");
        std::fs::write(root.join("target/tui").join(&file), &shown).expect("a file");
    }
    if shown != expect {
        OTHER.with_borrow_mut(|other| other.push(format!("{file}:\n{shown}")));
    }
}

thread_local! {
    /// Screens that differ from their files.
    static OTHER: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Fails if any screen differs from its file.
pub(super) fn all_as_in_files() {
    let other = OTHER.take();
    assert!(other.is_empty(), "not as in fixtures/tui; the new screens are in target/tui:\n{}", other.join("\n"));
}

/// Sizes of every snapshot.
const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (40, 12)];

fn everywhere(name: &str, play: &Play) {
    for (width, height) in SIZES {
        snapshot(name, play, width, height);
    }
}

#[test]
fn screens_of_a_session() {
    let play = Play::new();
    everywhere("chat", &play);
    snapshot("chat", &play, 20, 5);
    let play = check("asks command=g-0 questions=g-1\ntype and then\nwait 65000\nkey Enter");
    everywhere("chat-gated", &play);
    snapshot("chat-gated", &play, 20, 5);
    everywhere("timeline", &check("key Tab Up Up Up Up"));
    everywhere("entry", &check("key Tab e e Up Up Up Enter"));
    everywhere("message", &super::watching::markdown());
    everywhere("streaming", &super::watching::streaming());
    all_as_in_files();
}

#[test]
fn screens_of_requests() {
    let play = check("asks command=g-0 patch=g-1\nkey ^R\nwait 5000");
    everywhere("approval", &play);
    snapshot("approval", &play, 20, 5);
    everywhere("approval-diff", &check("asks patch=g-0\nkey ^R\nwait 600"));
    everywhere("approval-danger", &check("asks risky=g-0\nkey ^R\nwait 600\nkey a"));
    everywhere("review", &super::reviewing::reviewed());
    let mut play = super::reviewing::reviewed();
    play.step("key f j");
    everywhere("review-files", &play);
    let play = check("asks questions=g-0\nkey ^R\nwait 600\nkey Down");
    everywhere("question", &play);
    snapshot("question", &play, 20, 5);
    everywhere("question-secret", &check("asks questions=g-0\nkey ^R\nwait 600\nkey Down Enter\ntype hunter2"));
    everywhere("form", &check("asks form=g-0\nkey ^R\nwait 600\nkey Enter\ntype 9\nkey Enter"));
    everywhere("answers", &check("asks questions=g-0\nkey ^R\nwait 600\nkey Down Enter\ntype hunter2\nkey Enter"));
    everywhere("answered-elsewhere", &check("asks command=g-0 patch=g-1\nkey ^R\nended g-0"));
    all_as_in_files();
}

/// Four sessions; two requests are pending in one of them.
pub(super) fn sessions() -> Vec<SessionRow> {
    let row = |id: &str, live, waiting: &[&str], state| SessionRow {
        id: id.to_owned(),
        live,
        state,
        pending: waiting.len() as u64,
        waiting: waiting.iter().map(|summary| (format!("{id}-{summary}"), (*summary).to_owned())).collect(),
        cwd: format!("/home/u/{id}\u{1b}[31m"),
        client: live.then(|| "codex_vscode".to_owned()),
        used_us: NOW_US - 7_200_000_000,
    };
    vec![
        row("idle", true, &[], Some(Activity::Idle)),
        row("old", false, &[], None),
        row("waits", true, &["run: rm -rf build", "change a.rs"], Some(Activity::WaitingPermission)),
        row("mute", true, &[], None),
    ]
}

#[test]
fn screens_of_sessions_and_keys() {
    let mut play = Play::new();
    play.model.session = None;
    play.event(Event::Listed(sessions()));
    everywhere("sessions", &play);
    snapshot("sessions", &play, 20, 5);
    play.key("?");
    everywhere("help", &play);
    play.key("x");
    assert_eq!(play.model.help, None);
    play.key("Enter");
    assert!(play.done.remove(0).starts_with("Attach { id: \"waits\""));
    let mut play = Play::new();
    play.event(Event::Listed(sessions()));
    everywhere("chat-elsewhere", &play);
    all_as_in_files();
}

#[test]
fn cursor_follows_pasted_text() {
    let play = check("paste rm \u{202e}x");
    let (width, height) = (60, 16);
    let mut model = play.model.clone();
    update(&mut model, NOW_US, Event::Resized(Size { width, height }));
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("BUG: a backend in memory");
    let mut cursor = None;
    terminal
        .draw(|frame| cursor = view(&model, frame.area(), frame.buffer_mut()).cursor)
        .expect("BUG: it can be drawn");
    let cursor = cursor.expect("something is typed");
    let shown = drawn(&play.model, width, height);
    let line = shown.lines().nth(usize::from(cursor.y)).expect("it is on the screen");
    assert!(line.ends_with(r"rm \u{202e}x"), "{line}");
    assert_eq!(columns_of(line), usize::from(cursor.x));
}

#[test]
fn control_characters_never_reach_the_screen() {
    let hostile = "\u{1b}]0;x\u{7}\u{9b}31m\u{202e}a\u{0}\u{300}\u{200d}漢\u{7f}\r\n\u{feff}";
    let mut told = told();
    for kind in ["message", "error", "assistant_finalize", "rpc_error"] {
        told.push(json!({ "type": kind, "text": hostile, "message": hostile, "method": hostile }));
    }
    let mut play = check("asks questions=g-0 command=g-1\nkey ^R\nwait 600");
    let mut row = command("g-2");
    row["summary"] = json!(hostile);
    row["request_payload"]["command"] = json!(hostile);
    play.news(News::Pending { asks: vec![Arc::new(of_row(row, NOW_US))], ended: Vec::new() });
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
fn no_color_draws_no_colours() {
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
fn documentation_has_the_table_of_keys() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tui.md")).unwrap_or_default();
    assert!(page.contains(&keys::as_markdown()), "docs/tui.md is to have this table:\n{}", keys::as_markdown());
}
