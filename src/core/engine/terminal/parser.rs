//! Splits what a program writes to a terminal into text, control characters and control sequences.
//!
//! Follows the state machine of DEC's VT500 series in its UTF-8 form, as xterm and tmux do: a control character inside a
//! sequence is executed, CAN, SUB and ESC abort it, and a string (OSC, DCS, APC, PM, SOS) extends to its terminator or to the
//! next ESC, over line ends too. The payload of strings other than OSC is dropped as it arrives.
//!
//! The pieces do not depend on where a read ends, except that a text may come in several.

const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;
const ESC: u8 = 0x1b;
const DEL: u8 = 0x7f;

/// Numbers of a sequence that are kept; no sequence that moves or erases has more.
const NUMBERS_MAX: usize = 16;

/// Bytes of an operating system command that are kept.
const COMMAND_BYTES_MAX: usize = 1_024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Text without control characters, except those of C1 in their UTF-8 form.
    Text(&'a str),
    /// This many bytes that are not UTF-8 and stand for one character.
    Broken(usize),
    /// A control character of C0.
    Control(u8),
    /// An escape sequence of its last byte and at most one before it.
    Escape { intermediate: Option<u8>, last: u8 },
    /// A control sequence.
    Sequence(&'a Sequence),
    /// The beginning of an operating system command (OSC), without its terminator.
    Command(&'a [u8]),
}

/// A control sequence: `CSI`, numbers, and a last byte that says what to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sequence {
    /// One of `<=>?`.
    pub(super) prefix: Option<u8>,
    pub(super) intermediate: Option<u8>,
    pub(super) last: u8,
    numbers: [u16; NUMBERS_MAX],
    count: usize,
    is_invalid: bool,
}

impl Sequence {
    /// The number at `index`; `default` if it is missing or 0.
    pub(super) fn number(&self, index: usize, default: usize) -> usize {
        match self.numbers.get(index) {
            None | Some(0) => default,
            Some(number) => usize::from(*number),
        }
    }

    pub(super) fn numbers(&self) -> &[u16] {
        &self.numbers[..(self.count + 1).min(NUMBERS_MAX)]
    }

    fn digit(&mut self, digit: u8) {
        if let Some(number) = self.numbers.get_mut(self.count) {
            *number = number.saturating_mul(10).saturating_add(u16::from(digit));
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ParserState {
    #[default]
    Ground,
    Escape,
    Sequence,
    /// In an operating system command.
    Command,
    /// In the payload of another string.
    Payload,
}

#[derive(Debug, Default)]
pub struct Parser {
    state: ParserState,
    /// The beginning of a character.
    partial: Vec<u8>,
    intermediate: Option<u8>,
    sequence: Sequence,
    command: Vec<u8>,
}

impl Parser {
    /// Processes the next bytes.
    pub fn parse(&mut self, bytes: &[u8], mut emit: impl FnMut(Piece<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let used = match self.state {
                ParserState::Ground => self.ground(rest, &mut emit),
                ParserState::Escape => self.escape(rest[0], &mut emit),
                ParserState::Sequence => self.sequence(rest[0], &mut emit),
                ParserState::Command | ParserState::Payload => self.string(rest, &mut emit),
            };
            rest = &rest[used..];
        }
    }

    /// Takes a run of text, or one control character. Returns how many bytes it used.
    fn ground(&mut self, bytes: &[u8], emit: &mut impl FnMut(Piece<'_>)) -> usize {
        let end = bytes.iter().position(|byte| *byte < b' ' || *byte == DEL).unwrap_or(bytes.len());
        if end == 0 {
            self.give_up_partial(emit);
            match bytes[0] {
                ESC => self.begin_escape(),
                DEL => {}
                byte => emit(Piece::Control(byte)),
            }
            return 1;
        }
        let text = self.complete_partial(&bytes[..end], emit);
        for chunk in text.utf8_chunks() {
            if !chunk.valid().is_empty() {
                emit(Piece::Text(chunk.valid()));
            }
            let invalid = chunk.invalid();
            let is_at_end = end == bytes.len() && invalid.as_ptr_range().end == bytes.as_ptr_range().end;
            if is_at_end && std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none()) {
                self.partial.extend_from_slice(invalid);
            } else if !invalid.is_empty() {
                emit(Piece::Broken(invalid.len()));
            }
        }
        end
    }

    /// Completes a character that an earlier read began. Returns the text after it.
    fn complete_partial<'a>(&mut self, text: &'a [u8], emit: &mut impl FnMut(Piece<'_>)) -> &'a [u8] {
        let mut rest = text;
        while let Some((byte, after)) = rest.split_first()
            && !self.partial.is_empty()
        {
            self.partial.push(*byte);
            match std::str::from_utf8(&self.partial) {
                Ok(char) => {
                    emit(Piece::Text(char));
                    self.partial.clear();
                }
                Err(error) if error.error_len().is_none() => {}
                Err(_) => {
                    self.partial.pop();
                    self.give_up_partial(emit);
                    return rest;
                }
            }
            rest = after;
        }
        rest
    }

    fn give_up_partial(&mut self, emit: &mut impl FnMut(Piece<'_>)) {
        if !self.partial.is_empty() {
            emit(Piece::Broken(self.partial.len()));
            self.partial.clear();
        }
    }

    fn begin_escape(&mut self) {
        self.state = ParserState::Escape;
        self.intermediate = None;
    }

    fn escape(&mut self, byte: u8, emit: &mut impl FnMut(Piece<'_>)) -> usize {
        match byte {
            CAN | SUB => self.state = ParserState::Ground,
            ESC => self.begin_escape(),
            0..=0x1f => emit(Piece::Control(byte)),
            // A second one makes a sequence that nothing here knows.
            b' '..=b'/' => self.intermediate = Some(if self.intermediate.is_none() { byte } else { b' ' }),
            b'[' if self.intermediate.is_none() => {
                self.state = ParserState::Sequence;
                self.sequence = Sequence::default();
            }
            b']' if self.intermediate.is_none() => {
                self.state = ParserState::Command;
                self.command.clear();
            }
            // `k` is the title of screen and tmux.
            b'P' | b'X' | b'^' | b'_' | b'k' if self.intermediate.is_none() => self.state = ParserState::Payload,
            b'0'..=b'~' => {
                self.state = ParserState::Ground;
                emit(Piece::Escape { intermediate: self.intermediate, last: byte });
            }
            DEL => {}
            0x80.. => {
                self.state = ParserState::Ground;
                return 0;
            }
        }
        1
    }

    fn sequence(&mut self, byte: u8, emit: &mut impl FnMut(Piece<'_>)) -> usize {
        let sequence = &mut self.sequence;
        match byte {
            CAN | SUB => self.state = ParserState::Ground,
            ESC => self.begin_escape(),
            0..=0x1f => emit(Piece::Control(byte)),
            b'0'..=b'9' => sequence.digit(byte - b'0'),
            b':' | b';' => sequence.count = (sequence.count + 1).min(NUMBERS_MAX),
            b'<'..=b'?' => {
                sequence.is_invalid |= sequence.prefix.is_some() || sequence.count > 0 || sequence.numbers[0] > 0;
                sequence.prefix = Some(byte);
            }
            b' '..=b'/' => {
                sequence.is_invalid |= sequence.intermediate.is_some();
                sequence.intermediate = Some(byte);
            }
            b'@'..=b'~' => {
                sequence.last = byte;
                self.state = ParserState::Ground;
                if !sequence.is_invalid {
                    emit(Piece::Sequence(sequence));
                }
            }
            DEL => {}
            0x80.. => {
                self.state = ParserState::Ground;
                return 0;
            }
        }
        1
    }

    fn string(&mut self, bytes: &[u8], emit: &mut impl FnMut(Piece<'_>)) -> usize {
        let is_command = self.state == ParserState::Command;
        let ends = |byte: &u8| matches!(*byte, CAN | SUB | ESC) || (is_command && *byte == BEL);
        let end = bytes.iter().position(ends).unwrap_or(bytes.len());
        if is_command {
            let room = COMMAND_BYTES_MAX - self.command.len();
            self.command.extend_from_slice(&bytes[..end.min(room)]);
        }
        let Some(terminator) = bytes.get(end) else { return end };
        if is_command && matches!(*terminator, ESC | BEL) {
            emit(Piece::Command(&self.command));
        }
        match *terminator {
            ESC => self.begin_escape(),
            _ => self.state = ParserState::Ground,
        }
        end + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of an output, adjacent text joined; the same however the output is cut.
    fn check(output: &[u8], expect: &str) {
        for cut in 1..=output.len() {
            let (mut parser, mut told) = (Parser::default(), String::new());
            for bytes in output.chunks(cut) {
                parser.parse(bytes, |piece| match piece {
                    Piece::Text(text) => told.push_str(text),
                    Piece::Broken(bytes) => told.push_str(&format!("<{bytes}>")),
                    Piece::Control(byte) => told.push_str(&format!("<^{}>", char::from(byte + 64))),
                    Piece::Escape { intermediate, last } => {
                        told.push_str(&format!("<{}{}>", intermediate.map_or('-', char::from), char::from(last)));
                    }
                    Piece::Sequence(sequence) => {
                        let Sequence { prefix, intermediate, last, .. } = sequence;
                        let signs = [prefix, intermediate]
                            .map(|sign| sign.map_or(String::new(), |sign| char::from(sign).into()));
                        told.push_str(&format!(
                            "<{}{:?}{}{}>",
                            signs[0],
                            sequence.numbers(),
                            signs[1],
                            char::from(*last)
                        ));
                    }
                    Piece::Command(command) => told.push_str(&format!("<{}>", String::from_utf8_lossy(command))),
                });
            }
            assert_eq!(told, expect, "{output:?} by {cut}");
        }
    }

    #[test]
    fn pieces_do_not_depend_on_reads() {
        check("plain é漢\r\n".as_bytes(), "plain é漢<^M><^J>");
        check(b"a\x1b[1;31mred\x1b[mb", "a<[1, 31]m>red<[0]m>b");
        check(b"\x1b[?25l\x1b[!p\x1b[;5H\x1b[99999999;1:2A", "<?[25]l><[0]!p><[0, 5]H><[65535, 1, 2]A>");
        check(b"\x1b(0\x1bM\x1b%Gx\x1b\x1b7", "<(0><-M><%G>x<-7>");
        check(b"a\xffb\xe0\x80\xf0\x9f\x98\xf0\x9fx\xf0\x9f\x1b7", "a<1>b<1><1><3><2>x<2><-7>");
    }

    #[test]
    fn strings_end_with_their_terminator_only() {
        check(b"a\x1b]0;t\nu\x07b\x1b]8;;http://x\x1b\\c", "a<0;t\nu>b<8;;http://x><-\\>c");
        check(
            b"\x1bPq#0;2\r\n-\x07~\x1b\\a\x1b_Gf=1;AA\x1b\\b\x1b^x\x1b\\c\x1bXy\x1b\\d\x1bkt\x1b\\e",
            "<-\\>a<-\\>b<-\\>c<-\\>d<-\\>e",
        );
        check(b"\x1b]0;x\x18a\x1bPx\x1ab\x1b]1;y\x1b[mc", "ab<1;y><[0]m>c");
    }

    #[test]
    fn controls_in_sequences_are_executed() {
        check(b"\x1b[3\n1Ax\x1b\r[my", "<^J><[31]A>x<^M><[0]m>y");
        check(b"\x1b[3\x18x\x1b[1\xc3\xa9y\x1b\xc3\xa9z\x1b[1?2hx\x1b[ !qx", "xéyézxx");
    }

    #[test]
    fn kept_parts_are_bounded() {
        let mut parser = Parser::default();
        let mut commands = 0;
        for _ in 0..1_000 {
            parser.parse(&[b"\x1b]".as_slice(), &[b'1'; 9_999]].concat(), |_| commands += 1);
            parser.parse(b"\x1b[", |piece| {
                assert!(matches!(piece, Piece::Command(text) if text.len() == COMMAND_BYTES_MAX))
            });
            parser.parse(&b"1;".repeat(9_999), |_| {});
        }
        assert!(parser.command.capacity() <= 2 * COMMAND_BYTES_MAX && commands == 0);
    }
}
