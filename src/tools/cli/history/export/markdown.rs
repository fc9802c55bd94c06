//! A transcript as Markdown: no text of others is an image, HTML, or a heading as high as ours in it.
//!
//! Messages of the model are written anew from [`message`], with every sign in their texts escaped. Other messages are escaped, except
//! that their blocks of code stay such blocks. All other text of several lines stands between fences that are longer than any in it.

use std::fmt::Write as _;

use super::super::super::screen::Clock;
use super::super::below::{Below, Detail, TextKind, below, lines_of};
use super::super::entry::{Words, Written, words};
use super::message::{self, Block, Inline};
use super::shown::{Part, line_shown, parts};
use crate::api::Entry;

/// Shortest fence.
const FENCE_MIN: usize = 3;

/// The start of a file: everything before the first entry.
pub(super) fn head(facts: &[(&'static str, String)]) -> String {
    let mut text = "# Codex conversation\n\n".to_owned();
    for (name, value) in facts {
        let _ = writeln!(text, "- {name}: {}", code_span(&line_shown(value)));
    }
    text.push('\n');
    text
}

/// An entry of the file.
pub(super) fn entry(entry: &Entry<'_>, clock: &Clock, detail: &Detail) -> String {
    let at = escaped(&clock.text(&entry.ts));
    let mut text = String::new();
    match words(entry) {
        Words::Message { tone: _, written, text: said } => {
            let _ = write!(text, "## {} · {at}\n\n", escaped(entry.content.role()));
            let blocks = if written == Written::Markdown { message::blocks(&said) } else { None };
            match blocks {
                Some(blocks) => rows_of(&blocks).iter().for_each(|row| {
                    let _ = writeln!(text, "{row}");
                }),
                None => verbatim(&mut text, &said),
            }
            text.push('\n');
        }
        Words::Action { tone: _, line } => {
            let _ = write!(text, "{}\n\n", code_span(&line_shown(&line)));
            below(entry, detail).iter().for_each(|below| below_did(&mut text, below));
        }
        Words::TurnEnd { tone: _, line } => {
            let _ = write!(text, "{} · {at}\n\n", indented(&line_shown(&line)));
        }
    }
    text
}

fn below_did(text: &mut String, below: &Below<'_>) {
    let title = Some(below.title.as_str()).filter(|title| !title.is_empty());
    for note in [title, below.missing.as_deref()].into_iter().flatten() {
        let _ = write!(text, "{}\n\n", indented(&line_shown(note)));
    }
    let lines = |shown: fn(&str) -> String| below.text.lines().map(shown).collect::<Vec<_>>();
    match below.kind {
        TextKind::Output => fenced(text, "text", &lines(line_shown)),
        TextKind::Command => fenced(text, "sh", &lines(line_shown)),
        TextKind::Json => fenced(text, "json", &lines(line_shown)),
        TextKind::Diff(_) => {
            let lines: Vec<String> = lines_of(below).iter().map(|(_, line)| line_shown(line)).collect();
            fenced(text, "diff", &lines);
        }
    }
}

/// A message whose signs stand for themselves, except the fences of its blocks of code.
fn verbatim(text: &mut String, said: &str) {
    for part in parts(said) {
        match part {
            Part::Prose(lines) => text.push_str(&prose(&lines)),
            Part::Code(lines) => fenced(text, "", &lines),
        }
    }
}

/// The headings of a file that are ours have levels 1 and 2.
const OUR_LEVELS: usize = 2;

/// Largest number that a list may begin with.
const NUMBER_MAX: u64 = 999_999_999;

/// The rows of a message, with a blank one between two blocks.
fn rows_of(blocks: &[Block]) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for block in blocks {
        if !rows.is_empty() {
            rows.push(String::new());
        }
        match block {
            Block::Paragraph(inlines) => {
                let lines = inline(inlines, &TableLine::Several);
                let last = lines.len().saturating_sub(1);
                let row = |(number, line)| format!("{line}{}", if number < last { "\\" } else { "" });
                rows.extend(lines.into_iter().enumerate().map(row));
            }
            Block::Heading(level, inlines) => {
                let signs = "#".repeat((level + OUR_LEVELS).min(6));
                rows.push(format!("{signs} {}", inline(inlines, &TableLine::One).concat()));
            }
            Block::Quote(blocks) => rows.extend(rows_of(blocks).iter().map(|row| format!("> {row}"))),
            Block::List(first, items) => {
                for (number, item) in (first.unwrap_or(1)..).zip(items) {
                    let mark = match first {
                        Some(_) => format!("{}. ", number.min(NUMBER_MAX)),
                        None => "- ".to_owned(),
                    };
                    rows.extend(hanging(&mark, &rows_of(item)));
                }
            }
            Block::Code(lines) => rows.extend(between_fences("", lines)),
            Block::Table(table) => {
                for (number, row) in table.iter().enumerate() {
                    let cells = row.iter().map(|cell| format!(" {} |", inline(cell, &TableLine::Cell).concat()));
                    rows.push(format!("|{}", cells.collect::<String>()));
                    rows.extend((number == 0).then(|| format!("|{}", "---|".repeat(row.len()))));
                }
            }
            Block::Rule => rows.push("* * *".to_owned()),
        }
    }
    rows
}

/// Rows behind a mark: the other ones stand below the text of the first.
fn hanging(mark: &str, rows: &[String]) -> Vec<String> {
    let blanks = " ".repeat(mark.len());
    let row = |(number, row): (usize, &String)| match (number, row.is_empty()) {
        (0, _) => format!("{mark}{row}"),
        (_, true) => String::new(),
        (_, false) => format!("{blanks}{row}"),
    };
    rows.iter().enumerate().map(row).collect()
}

/// Where a text stands.
#[derive(Debug, PartialEq, Eq)]
enum TableLine {
    /// In a paragraph: a line break begins another line.
    Several,
    /// In a heading.
    One,
    /// In a table.
    Cell,
}

/// The lines of a text.
fn inline(inlines: &[Inline], row: &TableLine) -> Vec<String> {
    let mut lines = vec![String::new()];
    put_inline(&mut lines, inlines, row);
    let lines = lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty());
    lines.map(|line| if *row == TableLine::Several { unlike_block(line) } else { line.to_owned() }).collect()
}

fn put_inline(lines: &mut Vec<String>, inlines: &[Inline], row: &TableLine) {
    fn between(lines: &mut Vec<String>, of: &[Inline], row: &TableLine, begin: &str, end: &str) {
        put(lines, begin);
        put_inline(lines, of, row);
        put(lines, end);
    }
    fn put(lines: &mut [String], text: &str) {
        if let Some(line) = lines.last_mut() {
            line.push_str(text);
        }
    }
    for part in inlines {
        match part {
            Inline::Text(text) => put(lines, &signs_escaped(text)),
            Inline::Code(code) if *row == TableLine::Cell => put(lines, &code_span(code).replace('|', "\\|")),
            Inline::Code(code) => put(lines, &code_span(code)),
            Inline::Break if *row == TableLine::Several => lines.push(String::new()),
            Inline::Break => put(lines, " "),
            Inline::Strong(of) => between(lines, of, row, "**", "**"),
            Inline::Emphasis(of) => between(lines, of, row, "*", "*"),
            Inline::Deleted(of) => between(lines, of, row, "~~", "~~"),
            Inline::Link(to, of) => between(lines, of, row, "[", &format!("](<{}>)", address(to))),
        }
    }
}

/// A text in which every sign that means anything anywhere stands for itself.
fn signs_escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + text.len() / 4);
    for char in text.chars() {
        if "\\`*_[]<>&~|$^{}#!".contains(char) {
            escaped.push('\\');
        }
        escaped.push(char);
    }
    escaped
}

/// A line of a paragraph that cannot begin a block.
fn unlike_block(line: &str) -> String {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let at = match line.as_bytes().get(digits) {
        Some(b'.' | b')') if digits > 0 => digits,
        Some(b'-' | b'+' | b'=' | b':') if digits == 0 => 0,
        Some(b'*') if digits == 0 && matches!(line.as_bytes().get(1), None | Some(b' ')) => 0,
        Some(b'~') if line.starts_with("~~~") => 0,
        Some(_) | None => return line.to_owned(),
    };
    format!("{}\\{}", &line[..at], &line[at..])
}

/// The address of a link between `<` and `>`.
fn address(to: &str) -> String {
    let mut address = String::with_capacity(to.len());
    for char in to.chars() {
        match char {
            '&' => address.push_str("\\&"),
            '\\' | '`' | '<' | '>' | '"' | '|' | '$' | '{' | '}' | '^' => {
                let _ = write!(address, "%{:02X}", u32::from(char));
            }
            char => address.push(char),
        }
    }
    address
}

/// Lines between fences, and a blank one.
fn fenced(text: &mut String, language: &'static str, lines: &[String]) {
    for line in between_fences(language, lines) {
        let _ = writeln!(text, "{line}");
    }
    text.push('\n');
}

fn between_fences(language: &'static str, lines: &[String]) -> Vec<String> {
    let longest = lines.iter().map(|line| longest_run(line)).max().unwrap_or(0);
    let fence = "`".repeat(FENCE_MIN.max(longest + 1));
    let (begin, end) = ([format!("{fence}{language}")], [fence]);
    begin.into_iter().chain(lines.iter().cloned()).chain(end).collect()
}

/// The longest run of backticks.
fn longest_run(text: &str) -> usize {
    text.split(|char| char != '`').map(str::len).max().unwrap_or(0)
}

/// One line as code.
fn code_span(line: &str) -> String {
    // A blank line would end the paragraph, and a span of blanks keeps them all.
    if line.trim().is_empty() {
        return String::new();
    }
    let fence = "`".repeat(longest_run(line) + 1);
    format!("{fence} {} {fence}", line.trim())
}

/// Paragraphs that keep their lines.
fn prose(lines: &[String]) -> String {
    let mut text = String::new();
    for paragraph in lines.split(|line| line.trim().is_empty()).filter(|lines| !lines.is_empty()) {
        let lines: Vec<String> = paragraph.iter().map(|line| indented(line)).collect();
        text.push_str(&lines.join("\\\n"));
        text.push_str("\n\n");
    }
    text
}

/// An escaped line whose indentation stays visible and means nothing.
fn indented(line: &str) -> String {
    let words = line.trim_start();
    let blanks = line[..line.len() - words.len()].chars().count();
    format!("{}{}", "&nbsp;".repeat(blanks), escaped(words.trim_end()))
}

/// A line in which every sign of punctuation stands for itself.
fn escaped(line: &str) -> String {
    let mut escaped = String::with_capacity(line.len() + line.len() / 4);
    // Behind digits, `.` and `)` begin a list.
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    for (at, char) in line.char_indices() {
        let begins_block = at == 0 && matches!(char, '-' | '+' | '#' | '=' | ':');
        let begins_list = at == digits && at > 0 && matches!(char, '.' | ')');
        let is_sign =
            matches!(char, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '&' | '~' | '|' | '$' | '^' | '{' | '}');
        if begins_block || begins_list || is_sign {
            escaped.push('\\');
        }
        escaped.push(char);
    }
    escaped
}
