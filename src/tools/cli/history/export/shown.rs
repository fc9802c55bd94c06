//! Text of others in a page: nothing in it can steer, hide or reorder what a reader sees.

use super::super::super::screen;

/// A part of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Prose(Vec<String>),
    /// A block of code, without its fences.
    Code(Vec<String>),
}

/// A message as blocks of prose and of code, line by line.
pub(super) fn parts(text: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut prose: Vec<String> = Vec::new();
    let mut code: Option<(&str, Vec<String>)> = None;
    for line in text.lines() {
        let fence = fence(line);
        match (&mut code, fence) {
            (Some((opened, lines)), Some(fence)) if closes(line, fence, opened) => {
                parts.push(Part::Code(std::mem::take(lines)));
                code = None;
            }
            (Some((_, lines)), _) => lines.push(line_shown(line)),
            (None, Some(fence)) => {
                end_prose(&mut parts, &mut prose);
                code = Some((fence, Vec::new()));
            }
            (None, None) => prose.push(line_shown(line)),
        }
    }
    parts.extend(code.map(|(_, lines)| Part::Code(lines)));
    end_prose(&mut parts, &mut prose);
    parts
}

fn end_prose(parts: &mut Vec<Part>, prose: &mut Vec<String>) {
    if prose.iter().any(|line| !line.trim().is_empty()) {
        parts.push(Part::Prose(std::mem::take(prose)));
    }
    prose.clear();
}

/// The fence that a line begins with.
fn fence(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let signs = line.len() - line.trim_start_matches('`').len();
    (signs >= 3 && !line[signs..].contains('`')).then_some(&line[..signs])
}

fn closes(line: &str, fence: &str, opened: &str) -> bool {
    fence.len() >= opened.len() && line.trim() == fence
}

/// A line without control characters; misleading characters are visible.
pub(super) fn line_shown(line: &str) -> String {
    screen::plain(&line.replace('\t', "    "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_by_its_fences() {
        let prose = |lines: &[&str]| Part::Prose(lines.iter().map(|line| (*line).to_owned()).collect());
        let code = |lines: &[&str]| Part::Code(lines.iter().map(|line| (*line).to_owned()).collect());
        let check = |text: &str, expect: &[Part]| assert_eq!(parts(text), expect, "{text:?}");
        check("a\n\n```rust\nx\n\n```\nb", &[prose(&["a", ""]), code(&["x", ""]), prose(&["b"])]);
        check("````\n```\nx\n````", &[code(&["```", "x"])]);
        check("```\nopen", &[code(&["open"])]);
        check("```a`b", &[prose(&["```a`b"])]);
        check("\n \n", &[]);
    }

    #[test]
    fn nothing_steers_or_hides() {
        assert_eq!(line_shown("a\tb\u{202e}c\u{1b}[31m\0"), "a    b\\u{202e}c\u{fffd}[31m\u{fffd}");
    }
}
