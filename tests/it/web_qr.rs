//! The link of `codex-shim web` as a QR code, read from a terminal.

use std::process::Stdio;

use qrcode::{Color, EcLevel, QrCode};

use crate::support::PATIENCE;
use crate::support::both_ends::lines_of;
use crate::support::pane::Pane;
use crate::support::shim::{Home, SHIM};

const HOST: &str = "laptop.tailnet.ts.net";

/// The last words of a page that has started.
const STARTED: &str = "Ctrl-C ends the page.";

/// The blocks of a code; a blank is one too.
const BLOCKS: [char; 3] = ['█', '▀', '▄'];

/// What a code has around it, in modules.
const QUIET: usize = 4;

/// Black on white.
const COLOURS: &str = "\x1b[38;5;16;48;5;231m";

/// The variable of a terminal that shows Unicode.
const UTF8: &str = "LC_ALL=C.UTF-8";

/// The colour of the ink on the screen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ink {
    Black,
    White,
}

/// The link for another device in a text.
#[track_caller]
fn link(text: &str) -> String {
    let begin = format!("https://{HOST}/#");
    let mut links = text.split_whitespace().filter(|word| word.starts_with(&begin));
    links.next().unwrap_or_else(|| panic!("no link: {text}")).to_owned()
}

/// The lines of a code in a text, without colours.
fn drawing(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.replace(COLOURS, "").replace("\x1b[0m", "").replace('\r', ""));
    let is_drawn = |line: &String| {
        line.chars().count() > 2 * QUIET && line.chars().all(|char| char == ' ' || BLOCKS.contains(&char))
    };
    lines.filter(is_drawn).collect()
}

/// Whether each module is dark, row by row, with the quiet zone.
fn modules(drawing: &[String], ink: Ink) -> Vec<Vec<bool>> {
    let half = |line: &str, inked: [char; 2]| -> Vec<bool> {
        line.chars().map(|char| inked.contains(&char) == (ink == Ink::Black)).collect()
    };
    drawing.iter().flat_map(|line| [half(line, ['█', '▀']), half(line, ['█', '▄'])]).collect()
}

/// Checks that a drawing is the code of this link: each module of it, and a light zone around.
#[track_caller]
fn is_code_of(link: &str, drawing: &[String], ink: Ink) {
    let code = QrCode::with_error_correction_level(link, EcLevel::L).expect("the link is short");
    let (width, dark) = (code.width(), code.to_colors());
    let drawn = modules(drawing, ink);
    let rows = width + 2 * QUIET;
    assert!(drawn.len() == rows || drawn.len() == rows + 1, "{} rows of {rows}: {drawing:#?}", drawn.len());
    for (y, row) in drawn.iter().take(rows).enumerate() {
        assert_eq!(row.len(), rows, "row {y}: {drawing:#?}");
        for (x, is_dark) in row.iter().enumerate() {
            let inner = |at: usize| at.checked_sub(QUIET).filter(|at| *at < width);
            let expect = inner(x).zip(inner(y)).is_some_and(|(x, y)| dark[y * width + x] == Color::Dark);
            assert_eq!(*is_dark, expect, "column {x} of row {y}: {drawing:#?}");
        }
    }
}

/// Starts a page in a terminal, with a variable; returns that and all that is on it.
fn page(home: &Home, variable: &str, size: (u16, u16)) -> (Pane, String) {
    let mut pane = Pane::start_sized(home, &["env", variable, SHIM, "web", "--host", HOST], &[], size);
    let shown = pane.shows(STARTED);
    (pane, shown)
}

fn ends(mut pane: Pane) {
    pane.types("\x03");
    pane.ends();
}

#[test]
fn link_is_drawn_as_a_code_on_a_terminal() {
    let home = Home::new();
    let (pane, shown) = page(&home, UTF8, (50, 100));
    assert!(shown.contains(COLOURS), "{shown}");
    is_code_of(&link(&shown), &drawing(&shown), Ink::Black);
    // A further link has a code of its own.
    let script = format!("{SHIM} web --new-link; echo so that ''is all");
    let further = Pane::start_sized(&home, &["sh", "-c", &script], &[], (50, 100)).shows("so that is all");
    assert_ne!(link(&further), link(&shown));
    is_code_of(&link(&further), &drawing(&further), Ink::Black);
    ends(pane);
}

#[test]
fn code_without_colours_has_light_ink() {
    let home = Home::new();
    let (pane, shown) = page(&home, "NO_COLOR=1", (50, 100));
    assert!(!shown.contains(COLOURS), "{shown}");
    is_code_of(&link(&shown), &drawing(&shown), Ink::White);
    ends(pane);
}

#[test]
fn terminal_that_cannot_show_a_code_gets_none() {
    let home = Home::new();
    for (variable, size) in [(UTF8, (18, 100)), (UTF8, (50, 30)), ("LC_ALL=C", (50, 100))] {
        let (pane, shown) = page(&home, variable, size);
        assert!(shown.contains(&format!("https://{HOST}/#")), "{shown}");
        assert!(!shown.contains(BLOCKS), "{variable} {size:?}: {shown}");
        ends(pane);
    }
}

#[test]
fn output_that_is_no_terminal_gets_no_code() {
    let home = Home::new();
    let mut command = home.shim(&["web", "--host", HOST]);
    let mut page = command.stdin(Stdio::null()).env("LC_ALL", "C.UTF-8").env("TERM", "xterm-256color").spawn().unwrap();
    let lines = lines_of(page.stdout.take().expect("stdout is piped"));
    let mut printed = String::new();
    while !printed.contains(STARTED) {
        let line = lines.recv_timeout(PATIENCE).expect("a line of the page");
        printed.push_str(&String::from_utf8(line).expect("it is UTF-8"));
        printed.push('\n');
    }
    let further = home.shim(&["web", "--new-link"]).env("LC_ALL", "C.UTF-8").output().expect("the shim runs");
    page.kill().expect("it runs");
    page.wait().expect("it was killed");
    for text in [printed, String::from_utf8(further.stdout).expect("it is UTF-8")] {
        link(&text);
        assert!(!text.contains(BLOCKS) && !text.contains('\x1b'), "{text}");
    }
}
