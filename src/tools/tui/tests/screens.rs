//! Snapshots of the screen at several sizes.

use std::cell::RefCell;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Size};
use ratatui::style::{Color, Modifier};
use serde_json::json;

use super::super::model::Event;
use super::super::model::{Colours, Model};
use super::super::update::update;
use super::super::{keys, view};
use super::{NOW_US, Play, check, command, timeline, told, up};
use crate::history::Activity;
use crate::sessions::ask::of_row;
use crate::sessions::news::Link;
use crate::sessions::news::News;
use crate::sessions::rows::{SessionRow, Waiting};
use crate::text::width as columns_of;

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
    let root = &Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
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

pub(super) fn everywhere(name: &str, play: &Play) {
    for (width, height) in SIZES {
        snapshot(name, play, width, height);
        let shown = drawn(&play.model, width, height);
        let keys = shown.lines().last().unwrap_or_default();
        assert!(!keys.contains('…') && !keys.ends_with('·'), "{name} {width}x{height}: {keys}");
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
    everywhere("search", &check("key Tab /\ntype no such cra"));
    everywhere(
        "typed",
        &check("paste one\\n\ttwo 漢字漢字漢字 and a line that is longer than the narrowest of these screens\\nthree"),
    );
    let mut play = Play::new();
    play.news(News::Linked(Link::Stopped));
    everywhere("stopped", &play);
    all_as_in_files();
}

#[test]
fn screens_of_requests() {
    let play = check("asks command=g-0 patch=g-1\nkey ^R\nwait 5000");
    everywhere("approval", &play);
    snapshot("approval", &play, 20, 5);
    everywhere("approval-diff", &check("asks patch=g-0\nkey ^R\nwait 600"));
    everywhere("approval-danger", &check("asks risky=g-0\nkey ^R\nwait 600\nkey a"));
    everywhere("review", &super::answering::reviewed());
    let mut play = super::answering::reviewed();
    play.step("key f j");
    everywhere("review-files", &play);
    let play = check("asks questions=g-0\nkey ^R\nwait 600\nkey Down");
    everywhere("question", &play);
    snapshot("question", &play, 20, 5);
    everywhere("question-secret", &check("asks questions=g-0\nkey ^R\nwait 600\nkey Down Enter\ntype hunter2"));
    everywhere("form", &check("asks form=g-0\nkey ^R\nwait 600\nkey Enter\ntype 9\nkey Enter"));
    everywhere("answers", &check("asks questions=g-0\nkey ^R\nwait 600\nkey Down Enter\ntype hunter2\nkey Enter"));
    everywhere(
        "reason",
        &check("asks command=g-0\nkey ^R\nwait 600\nkey r\ntype it is the wrong folder, take the one below build"),
    );
    everywhere("unknown-kind", &check("asks new/method=g-0\nkey ^R\nwait 600"));
    everywhere("long-question", &long_question());
    everywhere("answered-elsewhere", &check("asks command=g-0 patch=g-1\nkey ^R\nended g-0"));
    all_as_in_files();
}

/// A question, and options, that are longer than a narrow screen.
fn long_question() -> Play {
    let mut play = Play::new();
    let option = |label: &str, description: &str| json!({ "label": label, "description": description });
    let payload = json!({ "questions": [{
        "id": "q",
        "question": "The tests need a database. Nothing listens on port 5432, and the file with the settings names two other hosts. \
                     Which one of them may be used, and may its tables be emptied before each run of the tests?",
        "options": [
            option("The first", "it is called staging, and other people use it during the day"),
            option("The second", "it is empty"),
            option("None of them", "the tests are skipped until somebody starts a database on this machine"),
        ],
    }]});
    let row = super::row("g-0", "item/tool/requestUserInput", "The tests need a database.", payload);
    play.news(News::Pending { asks: vec![Arc::new(of_row(row.into(), NOW_US))], ended: Vec::new() });
    play.step("key ^R");
    play.step("wait 600");
    play.step("key Down");
    play.step("key Down");
    play
}

/// Four sessions; two requests are pending in one of them.
pub(super) fn sessions() -> Vec<SessionRow> {
    let row = |id: &str, live, waiting: &[(&str, &[&str])], state| SessionRow {
        id: id.to_owned(),
        live,
        away: None,
        state,
        pending: waiting.len() as u64,
        waiting: (0..)
            .zip(waiting)
            .map(|(number, (summary, warnings))| Waiting {
                id: format!("6b02d1a90c4e-{number}"),
                summary: (*summary).to_owned(),
                asked_us: NOW_US - 90_000_000 + number * 30_000_000,
                thread_id: None,
                origin: None,
                warnings: warnings.iter().map(|warning| (*warning).to_owned()).collect(),
            })
            .collect(),
        cwd: format!("/home/u/{id}\u{1b}[31m"),
        client: live.then(|| "codex_vscode".to_owned()),
        used_us: NOW_US - 7_200_000_000,
        threads: Vec::new(),
    };
    vec![
        row("idle", true, &[], Some(Activity::Idle)),
        row("old", false, &[], None),
        row(
            "waits",
            true,
            &[("run: rm -rf build", &["it deletes folders with all that is in them"]), ("change a.rs", &[])],
            Some(Activity::WaitingPermission),
        ),
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
    everywhere("requests", &super::watching::inbox());
    play.key("?");
    everywhere("help", &play);
    let mut empty = Play::new();
    empty.model.session = None;
    empty.event(Event::Listed(Vec::new()));
    everywhere("no-sessions", &empty);
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
fn small_screens_name_model_and_context() {
    for steps in ["", "asks command=g-0 patch=g-1", "asks command=g-0\nkey ^R"] {
        let shown = drawn(&check(steps).model, 40, 12);
        let header = shown.lines().next().unwrap_or_default();
        assert!(
            header.starts_with("repo") && header.contains("gpt-5.5 4%") && header.contains('s'),
            "{steps}: {header}"
        );
    }
}

#[test]
fn long_notes_are_shown_whole() {
    let shown = drawn(&check("asks command=g-0\ntype x\nkey Enter").model, 40, 12);
    assert!(shown.contains("not sent: answer the pending request\nfirst, ^R shows it\n"), "{shown}");
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
    play.news(News::Pending { asks: vec![Arc::new(of_row(row.into(), NOW_US))], ended: Vec::new() });
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

fn cells(model: &Model, width: u16, height: u16) -> Buffer {
    let mut model = model.clone();
    let now_us = model.now_us;
    update(&mut model, now_us, Event::Resized(Size { width, height }));
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    view(&model, buffer.area, &mut buffer);
    buffer
}

/// Colour and modifiers of the cell where a text begins on a screen of 80 columns and 24 rows.
fn style_of(model: &Model, text: &str) -> (Color, Modifier) {
    let shown = drawn(model, 80, 24);
    let found =
        shown.lines().enumerate().find_map(|(row, line)| line.find(text).map(|at| (row, columns_of(&line[..at]))));
    let (row, column) = found.unwrap_or_else(|| panic!("{text} is not in\n{shown}"));
    let cell = cells(model, 80, 24)[(column as u16, row as u16)].clone();
    (cell.fg, cell.modifier)
}

fn screens_of_each_kind() -> Vec<Play> {
    let mut sessions_of = Play::new();
    sessions_of.model.session = None;
    sessions_of.event(Event::Listed(sessions()));
    let mut help = Play::new();
    help.key("F1");
    let playbooks = [
        "",
        "key Tab Up",
        "asks command=g-0",
        "asks patch=g-0\nkey ^R\nwait 600",
        "asks risky=g-0\nkey ^R\nwait 600\nkey a",
        "asks form=g-0\nkey ^R\nwait 600\nkey Enter\ntype 9\nkey Enter",
        "key ^T",
    ];
    let mut all: Vec<Play> = playbooks.into_iter().map(check).collect();
    all.extend([sessions_of, help, super::answering::reviewed(), super::watching::markdown()]);
    for play in &mut all {
        play.model.colours = Colours::Some;
    }
    all
}

#[test]
fn each_role_has_its_style() {
    let check = |play: &Play, colours: Colours, text: &str, color: Color, modifier: Modifier| {
        let mut model = play.model.clone();
        model.colours = colours;
        assert_eq!(style_of(&model, text), (color, modifier), "{text} {colours:?}");
    };
    let chat = Play::new();
    let (some, none, bold) = (Colours::Some, Colours::None, Modifier::BOLD);
    check(&chat, some, "repo (vscode)", Color::Reset, bold);
    check(&chat, some, "⠋ working", Color::Green, Modifier::empty());
    check(&chat, some, "gpt-5.5", Color::Cyan, Modifier::empty());
    check(&chat, some, "❯ you", Color::Blue, bold);
    check(&chat, some, "● codex", Color::Magenta, bold);
    check(&chat, some, "✗ exit 101", Color::Red, Modifier::empty());
    check(&chat, some, "stream broke", Color::Red, Modifier::empty());
    check(&chat, some, "+new", Color::Green, Modifier::empty());
    check(&chat, some, "-old", Color::Red, Modifier::empty());
    check(&chat, some, "local time", Color::Reset, Modifier::DIM);
    check(&chat, none, "stream broke", Color::Reset, bold);
    let risky = super::check("asks risky=g-0\nkey ^R\nwait 600");
    check(&risky, some, " 1 pending ^R", Color::Yellow, bold | Modifier::REVERSED);
    check(&risky, none, " 1 pending ^R", Color::Reset, bold | Modifier::REVERSED);
    check(&risky, some, "! it reaches example.org", Color::Red, Modifier::empty());
    check(&risky, none, "! it reaches example.org", Color::Reset, bold);
    check(&risky, some, " a  accept", Color::Reset, Modifier::REVERSED);
    let text = "# One\n\n## Two\n\n### Three\n\n*so* **much** `snippet` [x](https://y.z)";
    let told = json!({ "type": "assistant_finalize", "thread_id": "t", "item_id": "a", "text": text });
    let mut markdown = Play::new();
    markdown.news(News::Restored { epoch: 0, timeline: Box::new(timeline(vec![told])) });
    check(&markdown, some, "One", Color::Reset, bold | Modifier::UNDERLINED);
    check(&markdown, some, "Two", Color::Reset, bold);
    check(&markdown, some, "Three", Color::Reset, bold | Modifier::ITALIC);
    check(&markdown, some, "so", Color::Reset, Modifier::ITALIC);
    check(&markdown, some, "much", Color::Reset, bold);
    check(&markdown, some, "snippet", Color::Cyan, Modifier::empty());
    check(&markdown, some, "(https://y.z)", Color::Reset, Modifier::UNDERLINED | Modifier::DIM);
}

/// White text would vanish on a light theme, and black text on a dark one; a background hides text of the same colour.
#[test]
fn colours_suit_light_and_dark_themes() {
    use Color::{Blue, Cyan, Green, Magenta, Red, Reset, Yellow};
    for play in screens_of_each_kind() {
        let buffer = cells(&play.model, 80, 24);
        for cell in buffer.content() {
            assert!([Reset, Red, Green, Yellow, Blue, Magenta, Cyan].contains(&cell.fg), "{cell:?}");
            assert_eq!(cell.bg, Reset, "{cell:?}");
        }
        assert!(buffer.content().iter().any(|cell| cell.fg != Reset || !cell.modifier.is_empty()));
    }
}

#[test]
fn no_color_changes_only_colours() {
    for mut play in screens_of_each_kind() {
        let coloured = cells(&play.model, 80, 24);
        play.model.colours = Colours::None;
        let plain = cells(&play.model, 80, 24);
        for (coloured, plain) in coloured.content().iter().zip(plain.content()) {
            assert_eq!((plain.fg, plain.bg), (Color::Reset, Color::Reset), "{plain:?}");
            assert_eq!(coloured.symbol(), plain.symbol());
            // A cell that needs a look still has it.
            assert!(plain.modifier.contains(coloured.modifier), "{coloured:?} {plain:?}");
            let alarms = [Color::Red, Color::Yellow].contains(&coloured.fg);
            assert!(!alarms || plain.modifier.contains(Modifier::BOLD), "{coloured:?} {plain:?}");
        }
    }
}

#[test]
fn spinner_turns_and_elapsed_time_grows() {
    let mut play = Play::new();
    let mut headers = Vec::new();
    for _ in 0..11 {
        headers.push(drawn(&play.model, 80, 24).lines().next().unwrap_or_default().to_owned());
        play.step("wait 120");
        play.event(Event::Ticked);
    }
    let spinner = |line: &String| line.chars().find(|char| ('⠁'..='⣿').contains(char));
    let images: Vec<Option<char>> = headers.iter().map(spinner).collect();
    let first: HashSet<_> = images[..10].iter().collect();
    assert_eq!((first.len(), images[0]), (10, images[10]), "{headers:?}");
    let elapsed = |play: &Play| {
        drawn(&play.model, 80, 24).lines().next().and_then(|line| line.split("working ").nth(1).map(str::to_owned))
    };
    assert_eq!(elapsed(&play).as_deref(), Some("13s"));
    play.step("wait 47000");
    play.event(Event::Ticked);
    assert_eq!(elapsed(&play).as_deref(), Some("1m 00s"));
    assert!(drawn(&play.model, 80, 24).contains("sleep 9  running  1m 34s"));
    // An idle session has nothing that moves.
    play.news(News::Linked(up(Activity::Idle)));
    let idle = drawn(&play.model, 80, 24);
    play.step("wait 120");
    play.event(Event::Ticked);
    assert!(!play.model.is_busy() && drawn(&play.model, 80, 24) == idle);
}

#[test]
fn documentation_has_the_table_of_keys() {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tui.md")).unwrap_or_default();
    assert!(page.contains(&keys::as_markdown()), "docs/tui.md is to have this table:\n{}", keys::as_markdown());
}
