//! A transcript as Markdown: no text of others is a heading, a link, an image or HTML in it.
//!
//! Messages are escaped, except that their blocks of code stay such blocks. All other text of several lines stands between
//! fences that are longer than any in it.

use std::fmt::Write as _;

use serde_json::Value;

use super::super::super::screen::Clock;
use super::super::below::{Below, Detail, Kind, below, lines_of};
use super::super::entry::{Told, told};
use super::shown::{Part, line_shown, output_line, parts};

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
pub(super) fn entry(entry: &Value, clock: &Clock, detail: &Detail) -> String {
    let at = escaped(&clock.text(entry["ts"].as_str().unwrap_or_default()));
    let mut text = String::new();
    match told(entry) {
        Told::Said { role, tone: _, text: said } => {
            let _ = write!(text, "## {} · {at}\n\n", escaped(role));
            for part in parts(&said) {
                match part {
                    Part::Prose(lines) => text.push_str(&prose(&lines)),
                    Part::Code(lines) => fenced(&mut text, "", &lines),
                }
            }
        }
        Told::Did { tone: _, line } => {
            let _ = write!(text, "{}\n\n", code_span(&line_shown(&line)));
            below(entry, detail).iter().for_each(|below| below_did(&mut text, below));
        }
        Told::EndedTurn { tone: _, line } => {
            let _ = write!(text, "{} · {at}\n\n", escaped(&line_shown(&line)));
        }
    }
    text
}

fn below_did(text: &mut String, below: &Below<'_>) {
    let title = Some(below.title.as_str()).filter(|title| !title.is_empty());
    for note in [title, below.missing.as_deref()].into_iter().flatten() {
        let _ = write!(text, "{}\n\n", escaped(&line_shown(note)));
    }
    let lines = |shown: fn(&str) -> String| below.text.lines().map(shown).collect::<Vec<_>>();
    match below.kind {
        Kind::Output => fenced(text, "text", &lines(output_line)),
        Kind::Command => fenced(text, "sh", &lines(line_shown)),
        Kind::Json => fenced(text, "json", &lines(line_shown)),
        Kind::Diff(_) => {
            let lines: Vec<String> = lines_of(below).iter().map(|(_, line)| line_shown(line)).collect();
            fenced(text, "diff", &lines);
        }
    }
}

/// Lines between fences.
fn fenced(text: &mut String, language: &'static str, lines: &[String]) {
    let longest = lines.iter().map(|line| longest_run(line)).max().unwrap_or(0);
    let fence = "`".repeat(FENCE_MIN.max(longest + 1));
    let _ = writeln!(text, "{fence}{language}");
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
    let _ = write!(text, "{fence}\n\n");
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
