//! Splits a program's terminal output into text and the escape sequences that matter here.
//!
//! A read may cut a sequence anywhere. One that never ends hides only the rest of its own line.

use memchr::memchr;

/// Longest part of a sequence that is examined, in bytes.
const SEQUENCE_BYTES_MAX: usize = 1_024;

/// Distinguishes our marks from others.
const AID: &str = "aid=codex-shim.";

/// Private terminal modes of full-screen programs: the alternate screen in its three forms, and application cursor keys,
/// which programs set that draw on the ordinary screen, such as `top`.
const SCREEN_MODES: [&str; 4] = ["1049", "1047", "47", "1"];

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Text without escape sequences.
    Text(&'a [u8]),
    /// A program starts to use the whole screen.
    FullScreenBegan,
    /// It stops using the whole screen.
    FullScreenEnded,
    /// A command begins, according to the shell's hook; its key.
    Began(String),
    /// A command has ended.
    Ended(String),
}

/// Splits output that arrives in pieces of any size.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    /// The incomplete sequence.
    sequence: Vec<u8>,
}

impl Scanner {
    /// Processes the next bytes.
    pub(super) fn scan(&mut self, bytes: &[u8], mut emit: impl FnMut(Piece<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.sequence.is_empty() {
                let Some(at) = memchr(0x1b, rest) else {
                    emit(Piece::Text(rest));
                    return;
                };
                if at > 0 {
                    emit(Piece::Text(&rest[..at]));
                }
                self.sequence.push(0x1b);
                rest = &rest[at + 1..];
                continue;
            }
            let byte = rest[0];
            rest = &rest[1..];
            match self.goes_on(byte) {
                Next::More => {}
                Next::Whole => {
                    if let Some(piece) = meaning(&self.sequence) {
                        emit(piece);
                    }
                    self.sequence.clear();
                }
                Next::Line => {
                    self.sequence.clear();
                    emit(Piece::Text(b"\n"));
                }
                Next::Restart => {
                    self.sequence.clear();
                    self.sequence.push(0x1b);
                }
            }
        }
    }

    fn goes_on(&mut self, byte: u8) -> Next {
        if self.sequence.len() == SEQUENCE_BYTES_MAX {
            // Too long to understand: only its end matters now.
            self.sequence.remove(2);
        }
        self.sequence.push(byte);
        let ends_with_escape = self.sequence.len() > 2 && self.sequence[self.sequence.len() - 2] == 0x1b;
        match (self.sequence.get(1), byte) {
            (_, b'\n') => Next::Line,
            (Some(0x1b), _) => Next::Restart,
            (Some(b'['), 0x40..=0x7e) if self.sequence.len() > 2 => Next::Whole,
            (Some(b'['), _) => Next::More,
            (Some(b']' | b'P' | b'_' | b'^' | b'X'), 0x07) => Next::Whole,
            (Some(b']' | b'P' | b'_' | b'^' | b'X'), b'\\') if ends_with_escape => Next::Whole,
            (Some(b']' | b'P' | b'_' | b'^' | b'X'), _) => Next::More,
            (Some(b'(' | b')' | b'*' | b'+' | b'#' | b'%' | b' '), _) if self.sequence.len() == 2 => Next::More,
            (Some(_) | None, _) => Next::Whole,
        }
    }
}

/// The effect of a byte on a sequence.
enum Next {
    /// It continues.
    More,
    /// It is complete.
    Whole,
    /// It is invalid: its line has ended.
    Line,
    /// Another one begins.
    Restart,
}

fn meaning(sequence: &[u8]) -> Option<Piece<'static>> {
    let text = std::str::from_utf8(sequence).ok()?;
    if let Some(modes) = text.strip_prefix("\x1b[?") {
        let (modes, is_set) = match modes.as_bytes().last()? {
            b'h' => (&modes[..modes.len() - 1], true),
            b'l' => (&modes[..modes.len() - 1], false),
            _ => return None,
        };
        let takes = modes.split(';').any(|mode| SCREEN_MODES.contains(&mode));
        return takes.then_some(if is_set { Piece::FullScreenBegan } else { Piece::FullScreenEnded });
    }
    let mark = text.strip_prefix("\x1b]133;")?.trim_end_matches(['\x07', '\\', '\x1b']);
    let key = mark.split(';').find_map(|part| part.strip_prefix(AID))?.to_owned();
    match mark.as_bytes().first()? {
        b'C' => Some(Piece::Began(key)),
        b'D' => Some(Piece::Ended(key)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of an output, adjacent text joined; the same however the output is cut.
    fn check(output: &str, expect: &str) {
        for cut in 1..=output.len() {
            let (mut scanner, mut told) = (Scanner::default(), String::new());
            for bytes in output.as_bytes().chunks(cut) {
                scanner.scan(bytes, |piece| match piece {
                    Piece::Text(text) => told.push_str(&String::from_utf8_lossy(text)),
                    Piece::FullScreenBegan => told.push('<'),
                    Piece::FullScreenEnded => told.push('>'),
                    Piece::Began(key) => told.push_str(&format!("({key}:")),
                    Piece::Ended(key) => told.push_str(&format!(":{key})")),
                });
            }
            assert_eq!(told, expect, "{output:?} by {cut}");
        }
    }

    #[test]
    fn escape_sequences_are_removed_from_text() {
        check("plain\r\n", "plain\r\n");
        check("a\x1b[1;31mred\x1b[0mb", "aredb");
        check("a\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c", "abc");
        check("a\x1b(Bb\x1b=c\x1bM", "abc");
        check("a\x1b\x1b[1mb", "ab");
    }

    #[test]
    fn full_screen_modes_are_recognized() {
        check("a\x1b[?1049hx\x1b[?1049lb", "a<x>b");
        check("\x1b[?25;47h\x1b[?2004h\x1b[?1h\x1b=", "<<");
        check("\x1b[?1049", "");
    }

    #[test]
    fn only_our_marks_are_recognized() {
        check("$ \x1b]133;C;aid=codex-shim.7.1\x07out\x1b]133;D;0;aid=codex-shim.7.1\x07", "$ (7.1:out:7.1)");
        check("\x1b]133;C;aid=codex-shim.7.1\x1b\\x", "(7.1:x");
        check("\x1b]133;C\x07a\x1b]133;D;1;aid=kitty.3\x07b", "ab");
    }

    #[test]
    fn endless_sequence_hides_only_its_line() {
        check("\x1b]0;no end\nnext", "\nnext");
        let long = format!("\x1bP{}\nnext", "x".repeat(5_000));
        let mut told = String::new();
        Scanner::default().scan(long.as_bytes(), |piece| {
            if let Piece::Text(text) = piece {
                told.push_str(&String::from_utf8_lossy(text));
            }
        });
        assert_eq!(told, "\nnext");
    }
}
