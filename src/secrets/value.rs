//! Finds the start and the end of the value behind a name, and decides if it is a secret, a word, a number, or an expression of a
//! program.

use std::ops::Range;

use super::assigned::{Joined, Name, Sort};
use super::commands::{Quotes, command_end};
use super::names::{names_secret, word_names_secret};
use super::table::{
    BARE_CONSTRUCTORS, CONSTRUCTORS, DESCRIBING, ELSEWHERE, FILE_ENDS, FILE_ROOTS, GETTERS, OPEN_WORDS, SCHEMES,
    SECRET_SORTS, SETTING_WORDS, WORDS_OF_CODE,
};
use super::{Quote, one_of, quote_at};

/// Bytes of a list or an object behind a name that are read.
const BRACKET_BYTES_MAX: usize = 16 << 10;

/// Shortest value in the middle of a line that has no quotation marks, in bytes: shorter ones are words.
const WORD_BYTES_MIN: usize = 6;

/// Longest layout between the name of a member and a value in the next line, in bytes.
const LAYOUT_BYTES_MAX: usize = 200;

/// Longest distance to the next part of a credential that lists its parts, in bytes.
const LISTED_BYTES_MAX: usize = 256;

/// The same of a password, in bytes.
const PASSWORD_BYTES_MIN: usize = 3;

/// Returns the length of the escape sequences at the start of a text, in any notation of ESC.
pub(super) fn escapes(text: &[u8]) -> usize {
    const ESCAPES: [&[u8]; 7] = [b"\x1b", b"\\u001b", b"\\u001B", b"\\x1b", b"\\x1B", b"\\033", b"\\e"];
    let mut rest = text;
    while let Some(codes) = ESCAPES.iter().find_map(|esc| rest.strip_prefix(*esc)?.strip_prefix(b"[")) {
        let bytes = codes.iter().take(16).take_while(|byte| byte.is_ascii_digit() || **byte == b';').count();
        match codes.get(bytes) {
            Some(byte) if byte.is_ascii_alphabetic() => rest = &codes[bytes + 1..],
            Some(_) | None => break,
        }
    }
    text.len() - rest.len()
}

/// Returns the length of the blanks, tabs and escape sequences at the start of a text.
pub(super) fn blanks(text: &[u8]) -> usize {
    let mut at = 0;
    loop {
        let bytes = text[at..].iter().take(200).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let bytes = bytes + escapes(&text[at + bytes..]);
        if bytes == 0 || at > 400 {
            return at;
        }
        at += bytes;
    }
}

/// Takes values out of a text, from its start to its end.
pub(super) struct Values<'a> {
    text: &'a [u8],
    /// Lists and objects up to here were looked through.
    looked_to: usize,
    /// The end of the last value.
    taken_to: usize,
    /// The line that was searched last, from the place of the search on.
    line: Range<usize>,
    /// From here on no quotation mark of a kind closes anything.
    unclosed: Vec<(Quote, usize)>,
    /// The first line of the last list. Several names can precede the same line if `\r` ends theirs.
    list_from: usize,
    pub(super) spans: Vec<Range<usize>>,
}

impl<'a> Values<'a> {
    pub(super) fn of(text: &'a [u8]) -> Values<'a> {
        Values { text, looked_to: 0, taken_to: 0, line: 0..0, unclosed: Vec::new(), list_from: 0, spans: Vec::new() }
    }

    /// Adds a value that was found in another way.
    pub(super) fn add(&mut self, span: Range<usize>) {
        self.taken_to = self.taken_to.max(span.end);
        self.spans.push(span);
    }

    pub(super) fn taken_to(&self) -> usize {
        self.taken_to
    }

    /// Adds where the value of `name` stands that begins at `from`, or behind blanks there.
    pub(super) fn take(&mut self, name: &Name, joined: Joined, from: usize, hard_end: Option<usize>) {
        let rest = &self.text[from..];
        let mut at = from + if joined == Joined::Variable { escapes(rest) } else { blanks(rest) };
        at = self.in_next_line(name, at);
        at = self.behind_type(at, joined);
        at += wrapper(&self.text[at..]);
        if joined == Joined::Element {
            // An element is closed; `<TOKEN>` alone stands for a value.
            let end = memchr::memchr2(b'<', b'\n', &self.text[at..]).map(|end| at + end);
            if let Some(end) = end.filter(|end| self.text[*end..].starts_with(b"</")) {
                self.push(name, joined, at..end);
            }
            return;
        }
        if joined == Joined::Words {
            let rest = &self.text[at..hard_end.unwrap_or(self.text.len()).max(at)];
            return self.push(
                name,
                joined,
                at..at + rest[..command_end(rest, Quotes::Seen, b";&|)")].trim_ascii_end().len(),
            );
        }
        let quote = quote_at(&self.text[at..]).filter(|_| hard_end.is_none_or(|end| at < end));
        if joined == Joined::Rest && quote.is_none() {
            let line = self.line_end(at);
            let end = hard_end.map_or(line, |end| end.clamp(at, line));
            return self.push(name, joined, at..rest_of_line(self.text, at, end));
        }
        match quote {
            Some(quote) => self.quoted(name, joined, at, quote),
            None if joined == Joined::Quoted => {}
            None => self.bare(name, joined, at, hard_end),
        }
    }

    /// `"name":` and the value in the next line.
    fn in_next_line(&self, name: &Name, at: usize) -> usize {
        let is_member = name.open_quote.is_some() && self.text[..at].trim_ascii_end().ends_with(b":");
        if !is_member || !matches!(self.text.get(at), Some(b'\n' | b'\r')) {
            return at;
        }
        let layout = self.text[at..].iter().take(LAYOUT_BYTES_MAX);
        let behind = at + layout.take_while(|byte| byte.is_ascii_whitespace()).count();
        let begins = matches!(self.text.get(behind), Some(b'"' | b'\'' | b'0'..=b'9' | b'[' | b'{'));
        if begins { behind } else { at }
    }

    /// `name: Type = value`: the value stands behind its type.
    fn behind_type(&self, at: usize, joined: Joined) -> usize {
        if !matches!(joined, Joined::Line | Joined::Within) {
            return at;
        }
        let near = &self.text[at..self.text.len().min(at + 60)];
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_&'<>[]:|?* ".contains(byte);
        let bytes = near.iter().take_while(|byte| is_part(byte)).count();
        let is_type = bytes > 1 && near[bytes - 1..].starts_with(b" = ");
        if is_type { at + bytes + 1 + blanks(&self.text[at + bytes + 1..]) } else { at }
    }

    fn quoted(&mut self, name: &Name, joined: Joined, at: usize, quote: Quote) {
        let text = self.text;
        let mark = &text[at..at + quote.bytes()];
        let tripled = [mark, mark, mark].concat();
        if text[at..].starts_with(&tripled) {
            let from = at + tripled.len();
            let end = memchr::memmem::find(&text[from..], &tripled).map_or(text.len(), |end| from + end);
            return self.push(name, joined, from..end);
        }
        let from = at + mark.len();
        let line = self.line_end(from);
        let close = self.close(quote, from);
        let (end, close_bytes) = match close {
            Some((end, bytes)) if end <= line || matches!(joined, Joined::Variable | Joined::Argument) => (end, bytes),
            // The quotation does not end in its line, so its value is the rest of the line.
            Some(_) | None => (line, 0),
        };
        self.push(name, joined, from..end);
        let at = end + close_bytes;
        self.taken_to = self.taken_to.max(at);
        let is_of_shell = matches!(joined, Joined::Variable | Joined::Argument) && close_bytes > 0;
        let at = if is_of_shell { self.goes_on(name, joined, at) } else { at };
        self.changed(name, joined, at);
    }

    /// Takes the text that follows a closing quotation mark without a blank, as in `'it'\''s'`. Returns its end.
    fn goes_on(&mut self, name: &Name, joined: Joined, from: usize) -> usize {
        let text = self.text;
        let mut at = from;
        while let Some(byte) = text.get(at) {
            match quote_at(&text[at..]) {
                Some(next) if next.slashes == 0 => {
                    let from = at + next.bytes();
                    let Some((end, bytes)) = self.close(next, from) else { break };
                    self.push(name, joined, from..end);
                    at = end + bytes;
                }
                Some(_) | None if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'\\' | b'$') => {
                    let is_part = |byte: &&u8| !byte.is_ascii_whitespace() && !b"\"';&|".contains(byte);
                    let bytes = text[at..].iter().take_while(is_part).count();
                    // `\'` between two texts
                    let bytes = bytes + usize::from(text[at + bytes - 1] == b'\\' && at + bytes < text.len());
                    self.spans.push(at..at + bytes);
                    at += bytes;
                }
                Some(_) | None => break,
            }
        }
        self.taken_to = self.taken_to.max(at);
        at
    }

    /// Takes the new value of a plan: `"old" -> "new"`.
    fn changed(&mut self, name: &Name, joined: Joined, at: usize) {
        let behind = at + blanks(&self.text[at..]);
        if self.text[behind..].starts_with(b"->") {
            let at = behind + 2 + blanks(&self.text[behind + 2..]);
            if let Some(quote) = quote_at(&self.text[at..])
                && let Some((end, bytes)) = self.close(quote, at + quote.bytes())
            {
                self.push(name, joined, at + quote.bytes()..end);
                self.taken_to = self.taken_to.max(end + bytes);
            }
        }
    }

    /// Returns the place of the closing quotation mark. A failed search is not repeated.
    fn close(&mut self, quote: Quote, from: usize) -> Option<(usize, usize)> {
        if self.unclosed.iter().any(|(unclosed, at)| *unclosed == quote && from >= *at) {
            return None;
        }
        let close = quote.close_in(&self.text[from..]).map(|(end, bytes)| (from + end, bytes));
        if close.is_none() {
            self.unclosed.push((quote, from));
        }
        close
    }

    /// Returns the end of the line at `at`. Each line is read once.
    fn line_end(&mut self, at: usize) -> usize {
        if !(self.line.start..=self.line.end).contains(&at) {
            self.line = at..memchr::memchr(b'\n', &self.text[at..]).map_or(self.text.len(), |end| at + end);
        }
        self.line.end
    }

    /// A value without quotation marks.
    fn bare(&mut self, name: &Name, joined: Joined, at: usize, hard_end: Option<usize>) {
        let text = self.text;
        match text.get(at) {
            None => return,
            Some(b'[' | b'{') if joined != Joined::Variable => return self.bracket(at),
            Some(b'|' | b'>') if matches!(joined, Joined::Line | Joined::Within) => return self.block(name, at),
            Some(b'\n' | b'\r') if joined == Joined::Line => return self.list(name, at),
            Some(_) => {}
        }
        let line = self.line_end(at);
        let end = hard_end.map_or(line, |end| end.clamp(at, line));
        if joined != Joined::Variable && matches!(name.sort, Sort::Scheme | Sort::Cookie) {
            return self.header(name, joined, at, end);
        }
        let run = at + self.run(&text[at..end], joined);
        let has_more = text[run..end].iter().take(JUDGED_BYTES_MAX).any(|byte| !byte.is_ascii_whitespace());
        // `name: value`
        let is_told = text[..at].ends_with(b" ") && text[..at].trim_ascii_end().ends_with(b":");
        let is_whole = |end: usize| {
            matches!(text.get(end), Some(b'"' | b'\'' | b'`' | b'\\')) && {
                let behind = text[end..].iter().take(12).find(|byte| !b"\"'`\\ ".contains(byte));
                matches!(behind, None | Some(b',' | b']' | b'}' | b'\n' | b'\r'))
            }
        };
        let value = &text[at..run];
        let is_sentence = || {
            let may_be_prose = name.sort != Sort::Password || (is_told && joined == Joined::Within);
            (may_be_prose && is_prose(value, &text[run..end]))
                || (is_told && !has_more && is_remark(&text[name.range.clone()], value))
        };
        let end = match (joined, hard_end) {
            (_, Some(hard_end)) if name.open_quote.is_some() && joined != Joined::Argument && is_whole(hard_end) => {
                hard_end
            }
            (Joined::Line, _) if name.sort == Sort::Password && has_more => rest_of_line(text, at, end),
            (Joined::Line | Joined::Within, _) if is_sentence() => return,
            _ => run,
        };
        let bytes_min = if name.sort == Sort::Password { PASSWORD_BYTES_MIN } else { WORD_BYTES_MIN };
        if joined == Joined::Within && end - at < bytes_min && !name.is_variable {
            return;
        }
        if joined != Joined::Variable && joined != Joined::Argument && is_code(text, name, at..end) {
            return;
        }
        self.push(name, joined, at..end);
    }

    /// Returns the length of a value that ends at a blank or at another mark that fits its syntax.
    fn run(&self, text: &[u8], joined: Joined) -> usize {
        let is_variable = joined == Joined::Variable;
        let is_end = |at: usize| match text[at] {
            b' ' | b'\t' | b'\r' | 0x1b => true,
            b'\\' => matches!(text.get(at + 1), Some(b'"' | b'n' | b'r' | b't' | b'u' | b'\\' | b'\'')),
            b'"' | b'\'' | b'`' | b',' | b';' | b'&' | b'|' | b'<' | b'>' | b')' | b']' | b'}' => !is_variable,
            _ => false,
        };
        let end = (0..text.len()).find(|at| is_end(*at)).unwrap_or(text.len());
        let trailing = |signs: &[u8]| text[..end].iter().rev().take_while(|byte| signs.contains(byte)).count();
        let around = trailing(b"}];,)&|\"'`");
        if !is_variable {
            return end;
        }
        // The end of a string of JSON, and of what it stands in.
        let ends_string = text[end - around..end].contains(&b'"');
        end - if ends_string { around } else { trailing(b";,)&|\"'`") }
    }

    /// The value of `Authorization` and `Cookie`.
    fn header(&mut self, name: &Name, joined: Joined, at: usize, end: usize) {
        let text = self.text;
        if name.sort == Sort::Cookie {
            // A header without a quotation mark in front ends at the next one: `-H Cookie:a=b "x"`.
            let stop = text[at..end].iter().position(|byte| matches!(byte, b'"' | b'`' | 0x1b));
            let end = rest_of_line(text, at, stop.map_or(end, |stop| at + stop));
            return self.push(name, joined, at..end);
        }
        let scheme = scheme(&text[at..end]);
        let from = at + scheme;
        let run = from + self.run(&text[from..end], joined);
        if scheme == 0 && is_prose(&text[from..run], &text[run..end]) {
            return;
        }
        // Of `Basic`, `Bearer` and `Token` one word; others list what they are made of.
        let is_one = scheme > 0 && matches!(text[at].to_ascii_lowercase(), b'b' | b't');
        let has_more = || text[run..end].iter().take(LISTED_BYTES_MAX).any(|byte| *byte == b'=');
        let end = if !is_one && has_more() { rest_of_line(text, run, end) } else { run };
        self.push(name, joined, from..end);
    }

    /// The texts of a list or an object, but for the names of its members.
    fn bracket(&mut self, at: usize) {
        if at < self.looked_to {
            return;
        }
        let text = self.text;
        let (mut depth, mut next) = (0_usize, at);
        let mut member: &[u8] = b"";
        let end = text.len().min(at + BRACKET_BYTES_MAX);
        while next < end {
            match text[next] {
                b'[' | b'{' => depth += 1,
                b']' | b'}' if depth <= 1 => break,
                b']' | b'}' => depth -= 1,
                b'"' | b'\'' | b'\\' => {
                    if let Some(quote) = quote_at(&text[next..end])
                        && let Some((close, bytes)) = quote.close_in(&text[next + quote.bytes()..end])
                    {
                        let from = next + quote.bytes();
                        let close = from + close;
                        next = close + bytes;
                        let behind = next + blanks(&text[next..]);
                        let is_name = text.get(behind) == Some(&b':');
                        let is_describing = one_of(member, &DESCRIBING);
                        if !is_name && !is_describing && !is_open(&text[from..close]) {
                            self.add(from..close);
                        }
                        member = if is_name { &text[from..close] } else { b"" };
                        continue;
                    }
                }
                _ => {}
            }
            next += 1;
        }
        self.looked_to = next;
    }

    /// A block of YAML: `name: |` and all lines that are further in.
    fn block(&mut self, name: &Name, at: usize) {
        let text = self.text;
        let line = self.line_end(at);
        if !text[at + 1..line].iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b' ' | b'\r')) {
            let end = at + self.run(&text[at..line], Joined::Variable);
            return self.push(name, Joined::Line, at..end);
        }
        let own = indent_of(text, name.range.start);
        let mut from = line + 1;
        while from < text.len() {
            let (indent, start, end) = line_at(text, from);
            if start < end && indent <= own {
                break;
            }
            self.spans.extend((start < end).then_some(start..end));
            from = end + 1;
        }
        self.taken_to = self.taken_to.max(from.min(text.len()));
    }

    /// A list of YAML below its name, as far as its values are plain.
    fn list(&mut self, name: &Name, at: usize) {
        let text = self.text;
        let mut from = text.len().min(self.line_end(at) + 1);
        // The first name took the values, or there are none.
        if from <= self.list_from {
            return;
        }
        self.list_from = from;
        while from < text.len() {
            let (_, start, end) = line_at(text, from);
            let value = text[start..end].strip_prefix(b"- ");
            let Some(value) = value.filter(|value| memchr::memmem::find(value, b": ").is_none()) else { return };
            let value_at = end - value.len();
            let value_end = rest_of_line(text, value_at, end);
            self.push(name, Joined::Line, value_at..value_end);
            from = end + 1;
        }
    }

    fn push(&mut self, name: &Name, joined: Joined, span: Range<usize>) {
        let value = &self.text[span.clone()];
        self.taken_to = self.taken_to.max(span.end);
        let is_count = is_small_number(value);
        let is_other = match name.sort {
            Sort::Password | Sort::Scheme => false,
            Sort::Weak => is_count || value.first().is_some_and(|first| b"/~.".contains(first)),
            Sort::Cookie | Sort::Other => is_count && joined != Joined::Argument || one_of(value, &SETTING_WORDS),
        };
        // `--api-key API_KEY` in the text of a help.
        let is_name = |word: &str| {
            !word.bytes().any(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) && names_secret(word)
        };
        let is_stand_in = joined == Joined::Argument && std::str::from_utf8(value).is_ok_and(is_name);
        if span.is_empty() || is_open(value) || is_other || is_stand_in {
            return;
        }
        let scheme = if name.sort == Sort::Scheme { scheme(value) } else { 0 };
        self.spans.push(span.start + scheme..span.end);
    }
}

/// Returns the length of the scheme ahead of a credential, with the blanks behind it.
fn scheme(value: &[u8]) -> usize {
    let word = value.iter().take(24).take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'-').count();
    let is_scheme = SCHEMES.iter().any(|scheme| value[..word].eq_ignore_ascii_case(scheme.as_bytes()));
    let behind = value[word..].iter().take(8).take_while(|byte| matches!(byte, b' ' | b'\t' | b'\\')).count();
    if is_scheme && behind > 0 && word + behind < value.len() { word + behind } else { 0 }
}

/// Returns the end of a value that takes the rest of its line. A remark, a closing `,` or `;` and blanks do not belong to it.
fn rest_of_line(text: &[u8], at: usize, end: usize) -> usize {
    let line = &text[at..end];
    let remark = memchr::memmem::find(line, b" #").unwrap_or(line.len());
    let kept =
        line[..remark].iter().rev().take_while(|byte| byte.is_ascii_whitespace() || b",;".contains(byte)).count();
    at + remark - kept
}

/// Returns the indentation of the line of a name at `at`.
fn indent_of(text: &[u8], at: usize) -> usize {
    let near = at.saturating_sub(256);
    let from = memchr::memrchr(b'\n', &text[near..at]).map_or(near, |end| near + end + 1);
    line_at(&text[..at], from).0
}

/// Returns the indentation of a line, and the start and the end of its text. The mark of a diff counts as indentation.
fn line_at(text: &[u8], from: usize) -> (usize, usize, usize) {
    let line = &text[from..memchr::memchr(b'\n', &text[from..]).map_or(text.len(), |end| from + end)];
    let mark = usize::from(line.starts_with(b"+ ") || line.starts_with(b"- "));
    let indent = mark + line[mark..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    (indent, from + indent, from + line.len())
}

/// Constructors within each other that are looked through.
const WRAPPERS_MAX: usize = 3;

/// Shortest text of an unknown function that is a value, in bytes.
const TEXT_BYTES_MIN: usize = 8;

/// Returns the length of what stands around a value in quotation marks, and of the letter in `b"…"` and `$'…'`.
fn wrapper(text: &[u8]) -> usize {
    let mut at = 0;
    for _ in 0..WRAPPERS_MAX {
        match constructor(&text[at..]) {
            0 => break,
            bytes => at += bytes,
        }
    }
    let rest = &text[at..];
    let letter = rest.len() > 1 && b"bBrRfFuUL$@".contains(&rest[0]) && matches!(rest[1], b'"' | b'\'');
    at + usize::from(letter)
}

/// Returns the length of a call up to its first argument, if that is a value.
fn constructor(text: &[u8]) -> usize {
    let new = if text.starts_with(b"new ") { 4 } else { 0 };
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.:".contains(byte);
    let path = text[new..].iter().take(JUDGED_BYTES_MAX).take_while(|byte| is_part(byte)).count();
    let end = new + path;
    if path == 0 || text.get(end) != Some(&b'(') {
        return 0;
    }
    let path = &text[new..end];
    let last = path.rsplit(|byte| b".:".contains(byte)).next().unwrap_or_default();
    let is = |name: &&str| last == name.as_bytes();
    // `String::from`, `Buffer.from`
    let is_from = last == b"from" && path[0].is_ascii_uppercase();
    let is_value = new > 0 || is_from || CONSTRUCTORS.iter().any(&is);
    let argument = &text[end + 1..];
    let is_nested = || {
        CONSTRUCTORS.iter().any(|name| argument.starts_with(name.as_bytes())) || argument.starts_with(b"String::from")
    };
    let is_known = is_value && (quote_at(argument).is_some() || BARE_CONSTRUCTORS.iter().any(&is) || is_nested());
    let is_key = || !GETTERS.iter().any(&is) && quote_at(argument).is_some_and(|quote| holds_key(quote, argument));
    if is_known || is_key() { end + 1 } else { 0 }
}

/// Whether a text in quotation marks is more likely a key than a name or a sentence.
fn holds_key(quote: Quote, argument: &[u8]) -> bool {
    let near = &argument[quote.bytes()..argument.len().min(quote.bytes() + JUDGED_BYTES_MAX)];
    let Some((end, _)) = quote.close_in(near) else { return false };
    let value = &near[..end];
    let has = |is: fn(&u8) -> bool| value.iter().any(is);
    let is_path = value.contains(&b'/') || value.iter().any(u8::is_ascii_whitespace);
    value.len() >= TEXT_BYTES_MIN && has(u8::is_ascii_digit) && has(u8::is_ascii_lowercase) && !is_path
}

/// Longest value that is judged as a program or a sentence, in bytes: longer ones are secrets, and are not looked at again.
const JUDGED_BYTES_MAX: usize = 128;

/// Whether what follows a name is a sentence: a small word, and another one.
fn is_prose(word: &[u8], rest: &[u8]) -> bool {
    let is_word = |word: &[u8]| (1..JUDGED_BYTES_MAX).contains(&word.len()) && word.iter().all(u8::is_ascii_lowercase);
    let rest = &rest[..rest.len().min(JUDGED_BYTES_MAX)];
    let next = rest.trim_ascii_start();
    // `password: abc user: bob`
    let name = next.iter().take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')).count();
    is_word(word)
        && next.len() < rest.len()
        && next.first().is_some_and(|first| first.is_ascii_alphabetic() || *first == b'`')
        && !matches!(next.get(name), Some(b':' | b'='))
}

/// Whether one word behind a name and `: ` says something about the name: `token: identifier`, `missing secret: DATABASE_URL`.
/// A password may be any word, and so may the value of a name that says more than what sort of thing it names.
fn is_remark(name: &[u8], value: &[u8]) -> bool {
    let is_word = value.len() <= 24 && value.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'-');
    let is_constant = value.contains(&b'_') && value.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'_');
    one_of(name, &SECRET_SORTS) && (is_word || is_constant)
}

fn is_small_number(value: &[u8]) -> bool {
    value.len() <= 9
        && value.first().is_some_and(u8::is_ascii_digit)
        && value.iter().all(|byte| byte.is_ascii_digit() || b"._,%".contains(byte))
}

/// Whether a value only refers to a secret or stands for its absence.
pub(super) fn is_open(value: &[u8]) -> bool {
    let wrapped = |front: &[u8], back: &[u8]| {
        value.len() >= front.len() + back.len() && value.starts_with(front) && value.ends_with(back)
    };
    let is_name = |name: &[u8]| {
        name.len() > 1 && name.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_')
    };
    let inner = |front: usize, back: usize| &value[front..value.len() - back];
    let is_row = |of: &[u8]| value.len() >= 3 * of.len() && value.chunks(of.len()).all(|sign| sign == of);
    [&b"*"[..], b".", b"-", b"x", b"X", b"#", "•".as_bytes()].into_iter().any(is_row)
        || OPEN_WORDS.iter().any(|word| value.eq_ignore_ascii_case(word.as_bytes()))
        || (wrapped(b"${", b"}") && !inner(2, 1).contains(&b'}') && !inner(2, 1).contains(&b':'))
        || (wrapped(b"{{", b"}}"))
        || (wrapped(b"<", b">") && inner(1, 1).iter().all(|byte| byte.is_ascii_alphabetic() || b" _-.".contains(byte)))
        || (value.starts_with(b"$") && is_name(&value[1..]))
        || value.starts_with(b"$(")
        || is_version(value)
        || is_file(value)
        || is_of_system(value)
        || value.starts_with(b"(sensitive")
        || value.starts_with(b"${{")
        || (wrapped(b"%", b"%") && is_name(inner(1, 1)))
}

/// Whether a value is the path of a file that holds a secret: `/etc/ssl/key.pem`, `./key.json`.
fn is_file(value: &[u8]) -> bool {
    let is_sign = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-~".contains(byte);
    let end = value.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
    let is_root = || FILE_ROOTS.iter().any(|root| value.starts_with(root.as_bytes()));
    value.contains(&b'/')
        && value.len() <= JUDGED_BYTES_MAX
        && value.iter().all(is_sign)
        && (one_of(end, &FILE_ENDS) || is_root())
}

/// Whether a value stands in a table of the system: `passwd:x:1000`, `passwd: files systemd`.
fn is_of_system(value: &[u8]) -> bool {
    let is_account = matches!(value, [b'x' | b'*' | b'!', b':', b'0'..=b'9', ..]);
    let first = value.split(|byte| *byte == b' ').next().unwrap_or_default();
    is_account || matches!(first, b"files" | b"compat")
}

/// Whether a value is the version of a package: `^4.0.0`.
fn is_version(value: &[u8]) -> bool {
    let number = value.trim_ascii_start();
    let number = &number[number.iter().take_while(|byte| b"^~>=<v".contains(byte)).count()..];
    let parts = number.split(|byte| *byte == b'.');
    let is_number = |part: &[u8]| (1..=4).contains(&part.len()) && part.iter().all(u8::is_ascii_digit);
    value.len() <= 20 && (2..=4).contains(&parts.clone().count()) && parts.into_iter().all(is_number)
}

/// Whether a value without quotation marks is an expression of a program.
fn is_code(text: &[u8], name: &Name, span: Range<usize>) -> bool {
    let value = &text[span.clone()];
    if value.len() > JUDGED_BYTES_MAX {
        return false;
    }
    let word = value
        .iter()
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'&' | b'*'))
        .count();
    let next = text.get(span.start + word).copied();
    let behind = &text[span.start + word..text.len().min(span.start + word + JUDGED_BYTES_MAX)];
    let behind = &behind[..memchr::memchr(b'\n', behind).unwrap_or(behind.len())];
    // A call is closed, or goes on in the next line: `ab(x` is a value.
    let is_closed = || behind.trim_ascii_end().ends_with(b"(") || memchr::memchr(b')', behind).is_some();
    let is_call = word > 0
        && !value[0].is_ascii_digit()
        && (next == Some(b'(')
            && (value[..word.min(value.len())].contains(&b'.') || is_closed() || behind.len() == JUDGED_BYTES_MAX)
            || behind.starts_with(b"::"));
    let plain = value.strip_prefix(b"&").unwrap_or(value);
    let is_type = one_of(plain, &WORDS_OF_CODE) || (next == Some(b'<') && word == value.len());
    let is_own_name = value.eq_ignore_ascii_case(&text[name.range.clone()]);
    let is_other_name = !value.iter().any(u8::is_ascii_digit)
        && value.contains(&b'_')
        && std::str::from_utf8(value).is_ok_and(|value| {
            value.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') && word_names_secret(value)
        });
    is_call
        || is_type
        || is_own_name
        || is_other_name
        || ELSEWHERE.iter().any(|other| plain.starts_with(other.as_bytes()))
}
