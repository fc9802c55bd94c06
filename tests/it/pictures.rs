//! The pictures of the documentation: each letter of a terminal is in its cell, whatever font is installed; and three projects that ask
//! on one hub have a picture in the terminal UI and one on the page.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use unicode_width::UnicodeWidthChar as _;

use crate::support::bench::{Bench, DIALOG, says_to};
use crate::support::model::Item;
use crate::support::page::Page;
use crate::support::release::{Ability, Release};
use crate::support::tmux::Tmux;
use crate::web_browser::{drives, installed_or_skip, project};

#[path = "picture/screen.rs"]
mod screen;

use screen::{BASELINE, CELL, MARGIN, svg};

/// How far from its place a letter may be, in units of the picture. A cell is 8.4 wide.
const OFF_MAX: f64 = 0.3;

/// Rows with escape sequences, and what they show.
const SCREEN: [(&str, &str); 12] = [
    ("plain", "plain"),
    ("    indented   and   spaced    ", "    indented   and   spaced"),
    ("\x1b[1m  bold first\x1b[0m then", "  bold first then"),
    ("one \x1b[31mred \x1b[0m two", "one red  two"),
    ("a\x1b[7m badge \x1b[0mz", "a badge z"),
    ("\x1b[7m            \x1b[0m|", "            |"),
    ("\x1b[4ma  link\x1b[24m  \x1b[2mfaint\x1b[22m", "a  link  faint"),
    ("── title ───┬──│ 50% ▋░░", "── title ───┬──│ 50% ▋░░"),
    ("<a href=\"x\"> & \x1b[3mitalic\x1b[23m</a>", "<a href=\"x\"> & italic</a>"),
    ("日本語 wide 日本", "日本語 wide 日本"),
    ("fi ffl -> != === |> iiii WWWW", "fi ffl -> != === |> iiii WWWW"),
    ("ä ü é ñ Ω ж", "ä ü é ñ Ω ж"),
];

/// Checks the places of a picture's letters. Returns the rows that they spell.
fn rows_of(path: &str, texts: &Value, wrong: &mut Vec<String>) -> Vec<String> {
    let mut rows: Vec<(usize, usize, String)> = Vec::new();
    for text in texts.as_array().expect("texts") {
        let letters = text["text"].as_str().expect("a text");
        let edges = text["edges"].as_array().expect("edges");
        if edges.len() != letters.encode_utf16().count() {
            wrong.push(format!("{path}: {letters:?}: only {} letters have a place", edges.len()));
            continue;
        }
        let edge = |letter: usize, side: usize| edges[letter][side].as_f64().expect("a number");
        let row = (text["row"].as_f64().expect("a number") - MARGIN - BASELINE) / CELL.1;
        let first = (edge(0, 0) - MARGIN) / CELL.0;
        let (mut column, is_monospaced) = (first.round(), text["isMonospaced"] == true);
        rows.push((row.round() as usize, column as usize, letters.to_owned()));
        let last = letters.chars().count() - 1;
        for (index, letter) in letters.chars().enumerate() {
            let from = MARGIN + column * CELL.0;
            column += letter.width().unwrap_or(0) as f64;
            let to = MARGIN + column * CELL.0;
            let is_off = |place: f64, expected: f64| (place - expected).abs() > OFF_MAX;
            if (is_monospaced || index == 0) && is_off(edge(index, 0), from)
                || (is_monospaced || index == last) && is_off(edge(index, 1), to)
            {
                let (now, then) = (edge(index, 0), edge(index, 1));
                wrong.push(format!("{path}: {letter} in {letters:?}: {now:.1} to {then:.1}, not {from:.1} to {to:.1}"));
                break;
            }
        }
        if (row - row.round()).abs() * CELL.1 > OFF_MAX {
            wrong.push(format!("{path}: {letters:?} is between two rows"));
        }
    }
    rows.sort();
    let mut spelled = vec![String::new(); rows.last().map_or(0, |(row, ..)| row + 1)];
    for (row, column, letters) in rows {
        let line = &mut spelled[row];
        let columns: usize = line.chars().filter_map(unicode_width::UnicodeWidthChar::width).sum();
        if columns > column {
            wrong.push(format!("{path}: {letters:?} begins in {line:?}"));
        }
        line.push_str(&" ".repeat(column.saturating_sub(columns)));
        line.push_str(&letters);
    }
    spelled
}

#[test]
fn letters_of_pictures_are_in_their_cells() {
    let Some((browser, modules)) = installed_or_skip("letters_of_pictures_are_in_their_cells") else { return };
    let dir = tempfile::tempdir().expect("a temporary folder");
    let drawn = dir.path().join("drawn.svg");
    let shown: Vec<&str> = SCREEN.iter().map(|(row, _)| *row).collect();
    std::fs::write(&drawn, svg("a screen", &shown.join("\n"), 40, SCREEN.len())).expect("a file");
    let docs = project().join("docs");
    let paths: Vec<PathBuf> =
        vec![drawn.clone(), docs.join("tui.svg"), docs.join("tui-review.svg"), docs.join("tui-projects.svg")];
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    drives("places.mjs", browser, &modules, |asked| {
        if asked["does"] == "pictures" {
            return json!(paths);
        }
        let path = asked["path"].as_str().expect("a path");
        let rows = rows_of(path, &asked["texts"], &mut wrong);
        if path == drawn.to_str().expect("UTF-8") {
            for (row, (_, expected)) in SCREEN.iter().enumerate() {
                if rows.get(row).is_none_or(|row| row != expected) {
                    wrong.push(format!("{:?} is shown as {:?}", expected, rows.get(row)));
                }
            }
        } else if !rows.iter().any(|row| row.contains("? request · "))
            && !rows.iter().any(|row| row.contains("file 2/4"))
            && !rows.iter().any(|row| row.contains(" !  shop (codex-tui): run "))
        {
            wrong.push(format!("{path} does not show what it should: {rows:#?}"));
        }
        looked_at += 1;
        Value::Null
    });
    assert_eq!(looked_at, paths.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A hub with three terminals in three folders, each of which asks for something.
struct Projects {
    bench: Bench,
    _terminals: Vec<Tmux>,
}

/// The change in the third project. A question would not do: the terminal gives up on one after two minutes.
const NOTES: &str =
    "*** Begin Patch\n*** Add File: NOTES.md\n+# 2.2.0\n+\n+- The health check waits for the pool.\n*** End Patch";

/// The dialog about it.
const EDITS: &str = "Would you like to make the following edits?";

impl Projects {
    /// `None` if the test is skipped.
    fn ask(test: &'static str) -> Option<Projects> {
        let bench = Bench::start(test, &[Ability::ShownTitles], Vec::new())?;
        // Codex asks before it changes a file.
        bench.lab.only_reads();
        bench.model.titles(vec![
            ("The health check", r#"{"title":"Fix the health check"}"#),
            ("Set up this machine", r#"{"title":"Set up a new machine"}"#),
            ("Write the release notes", r#"{"title":"Write the release notes"}"#),
        ]);
        let command = |cmd: &'static str, why: &'static str| {
            let Item::Call { name, mut arguments } = Release::under_test().command_to_be_approved(cmd) else {
                unreachable!("it is a call")
            };
            arguments["justification"] = json!(why);
            Item::Call { name, arguments }
        };
        let mut terminals = Vec::new();
        for (folder, words, item, shown) in [
            (
                "api",
                "The health check answers 500. Find out why.",
                command("cargo test health", "The tests need the network."),
                DIALOG,
            ),
            (
                "shop",
                "Set up this machine as the wiki says.",
                command("curl -fsSL https://get.example.net/setup.sh | sudo sh", "The wiki begins with this script."),
                DIALOG,
            ),
            ("notes", "Write the release notes.", Item::Patch(NOTES), EDITS),
        ] {
            let folder = bench.lab.root().join(folder);
            fs::create_dir(&folder).expect("a folder");
            bench.trusts(&folder);
            let terminal = bench.tui_in(&folder, "")?;
            bench.model.then(vec![vec![item]]);
            says_to(&terminal, words);
            terminal.shows(shown);
            terminals.push(terminal);
        }
        Some(Projects { bench, _terminals: terminals })
    }

    /// A screen with other names for some things of the test.
    fn named(&self, screen: &str) -> String {
        let root = self.bench.lab.root().display().to_string();
        let screen = screen.replace(&format!("{root}/codex-home"), "/home/ann/.codex");
        screen.replace("codex-home", ".codex    ").replace(&root, "/home/ann")
    }
}

#[test]
fn e2e_terminal_ui_has_its_picture_of_three_projects() {
    let Some(projects) = Projects::ask("e2e_terminal_ui_has_its_picture_of_three_projects") else { return };
    let (columns, rows) = (100, 14);
    let Some(tmux) = Tmux::tui("a picture", &projects.bench.home, "") else { return };
    tmux.resize(columns, rows);
    // Each says who asks; the dangerous one alone is marked.
    tmux.shows_all(&[
        " ?  api (codex-tui): run cargo test health",
        " !  shop (codex-tui): run curl ",
        " ?  notes (codex-tui): change ",
        "Fix the health check",
        "Set up a new machine",
        "Write the release notes",
        "3 pending ^N",
    ]);
    let screen = projects.named(&tmux.coloured());
    let picture = svg("codex-shim tui: three projects that ask", &screen, usize::from(columns), usize::from(rows));
    fs::create_dir_all(project().join("target")).expect("a folder");
    fs::write(project().join("target/tui-projects.svg"), picture).expect("a file");
}

#[test]
fn e2e_page_has_its_picture_of_three_projects() {
    let test = "e2e_page_has_its_picture_of_three_projects";
    let Some((browser, modules)) = installed_or_skip(test) else { return };
    let Some(projects) = Projects::ask(test) else { return };
    let mut page = Page::start(&projects.bench.home, &[]);
    drives(
        "projects.mjs",
        browser,
        &modules,
        |_| json!({ "link": format!("{}/#{}", page.origin(), page.token), "root": projects.bench.lab.root() }),
    );
    let _ = page.child.kill();
    let _ = page.child.wait();
}
