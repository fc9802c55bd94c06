//! The pictures of the terminal UI in a real browser: each letter is in its cell, whatever font is installed.

use std::path::PathBuf;

use serde_json::{Value, json};
use unicode_width::UnicodeWidthChar as _;

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
    let paths: Vec<PathBuf> = vec![drawn.clone(), docs.join("tui.svg"), docs.join("tui-review.svg")];
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
        {
            wrong.push(format!("{path} does not show what it should: {rows:#?}"));
        }
        looked_at += 1;
        Value::Null
    });
    assert_eq!(looked_at, paths.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
