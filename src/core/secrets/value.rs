//! Search the start and the end of the value behind a name, and decides if it is a secret, a word, a number, or an expression of a
//! program.

use std::ops::Range;

use super::names::{Label, Sort, names_secret, word_names_secret};
use super::quote::{Quote, Quotes, command_end, quote_at};
use super::table::{DESCRIBING, GETTERS, SECRET_SORTS, SETTING_WORDS, Syntax, WORDS_OF_CODE};
use super::{one_of, patterns};

/// Bytes of a list or an object behind a name that are read.
const BRACKET_BYTES_MAX: usize = 16 << 10;

/// Shortest value in the middle of a line that has no quotation marks, in bytes: shorter ones are words.
const WORD_BYTES_MIN: usize = 6;

/// The same of a password, in bytes.
const PASSWORD_BYTES_MIN: usize = 3;

/// Longest distance to the next part of a credential that lists its parts, in bytes.
const LISTED_BYTES_MAX: usize = 256;

/// Longest value that is judged as a program or a sentence, in bytes: longer ones are secrets, and are not looked at again.
const JUDGED_BYTES_MAX: usize = 128;

patterns! {
    /// The value of a member in the next line.
    NEXT_LINE = r#"^([\r\n]\s{0,199})["'\d\[{]"#;
    /// `name: Type = value`: the value stands behind its type.
    TYPE = r"^[\w&'<>\[\]:|?* ]{1,58} = [ \t]*";
    /// Constructors whose argument is the value, also without quotation marks.
    BARE_CALLS = r"^(?:(?:[\w.:]*[.:])?(?:Some|Secret|SecretString)\()+";
    /// The same in quotation marks.
    QUOTED_CALLS = concat!(
        r"^((?:(?:new [\w.:]+|[A-Z][\w.:]*[.:]from|(?:[\w.:]*[.:])?(?:Ok|Some|Secret|SecretString|SecretStr|SecretBox|String|str|bytes",
        r#"|Password|ApiKey|b64decode|b64encode|atob|btoa|bytearray|Sensitive|SecureString))\()+)[bBrRfFuUL$@]?\\{0,8}["'`]"#
    );
    /// A function, and its argument if that is more likely a key than a name or a sentence.
    KEY_CALL = r#"^((?:new )?(?:[\w.:]*[.:])?(\w+)\()\\{0,8}["'`]([^\s/"'`\\]{8,128})["'`\\]"#;
    /// The end of a value without quotation marks, in a shell and elsewhere.
    WORD_END = r#"[ \t\r\x1b]|\\["nrtu\\']"#;
    VALUE_END = r#"[ \t\r\x1b"'`,;&|<>)\]}]|\\["nrtu\\']"#;
    /// Ends of strings, and what these stand in.
    WHOLE = r#"^["'`\\]["'`\\ ]{0,11}(?:[,\]}\r\n]|$)"#;
    /// A small word and another one: `password: too short`, but not `password: abc user: bob`.
    PROSE = r"^[a-z]{1,127}\s+(?:`|[A-Za-z][\w-]*(?:[^\w:=-]|$))";
    /// One word behind a name and `: ` that says something about the name: `token: identifier`, `missing secret: DATABASE_URL`.
    REMARK = r"^(?:[a-z-]{1,24}|[A-Z_]*_[A-Z_]*)$";
    SMALL_NUMBER = r"^\d[\d._,%]{0,8}$";
    /// The mark of a block of YAML.
    BLOCK = r"^[|>][\d+ \r-]*$";
    /// The scheme ahead of a credential in `Authorization`.
    SCHEME = r"^(?i:basic|bearer|token|digest|negotiate|ntlm|apikey|api-key|hawk|oauth|aws4-hmac-sha256|key|sharedkey|mac)[ \t\\]{1,8}";
    /// An expression of a program: a call that is closed or goes on in the next line, a path, or what reads a value from somewhere
    /// else. `ab(x` is a value.
    CODE = concat!(
        r"^(?:[A-Za-z_.&*][\w.&*]*(?:::|\((?:.*\)|(?:.*\()?[ \t\r]*(?:\n|$)|.{128}))|[A-Za-z_&*][\w&*]*\.[\w.&*]*\(",
        r"|&?(?:self|this|os|env|config|settings|var|local|module|secrets|args|req|request|ctx|params|opts|options|props|vars)\.|&?process\.env)"
    );
    /// A value that refers to a secret or stands for its absence: a row of one sign, a word, a variable, a placeholder, a version of
    /// a package, an entry of the system (`passwd:x:1000`, `passwd: files systemd`).
    OPEN = concat!(
        r"(?s)^(?:\*{3,}|\.{3,}|-{3,}|x{3,}|X{3,}|#{3,}|(?:•){3,}",
        r"|(?i:inherit|read|write|true|false|null|none|nil|undefined|yes|no|on|off|redacted|hidden|sensitive|required|optional|\(\))",
        r"|\$\{[^}:]*\}|\$\{\{.*|\{\{.*\}\}|\$[A-Z\d_]{2,}|%[A-Z\d_]{2,}%|\$\(.*|<[A-Za-z _.-]*>|\(sensitive.*",
        r"|\s*[\^~>=<v]*\d{1,4}(?:\.\d{1,4}){1,3}|[*!x]:\d.*|(?:files|compat)(?: .*)?",
        r")$"
    );
    /// The path of a file.
    FILE = concat!(
        r"^(?:/(?:etc|var|home|Users|usr|opt|root|run|tmp)/[\w./~-]*",
        r"|[\w./~-]*/[\w./~-]*\.(?:pem|key|crt|cer|cert|p12|pfx|jks|der|ppk|gpg|asc|pub|age|json|yaml|yml|toml|txt|env|conf|ini))$"
    );
}

/// Returns the length of the blanks and tabs at the start of a text.
pub(super) fn blanks(text: &[u8]) -> usize {
    text.iter().take(400).take_while(|byte| matches!(byte, b' ' | b'\t')).count()
}

/// Takes values out of a text, from its start to its end.
pub(super) struct Values<'a> {
    text: &'a [u8],
    /// Lists and objects up to here were looked through. Several names can precede the same line if `\r` ends theirs.
    looked_to: usize,
    /// The same for lists of YAML.
    listed_to: usize,
    /// The end of the last value.
    taken_to: usize,
    /// The line that was searched last, from the place of the search on.
    line: Range<usize>,
    pub(super) spans: Vec<Range<usize>>,
}

impl<'a> Values<'a> {
    pub(super) fn of(text: &'a [u8]) -> Values<'a> {
        Values { text, looked_to: 0, listed_to: 0, taken_to: 0, line: 0..0, spans: Vec::new() }
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
    pub(super) fn take(&mut self, name: &Label, joined: Syntax, from: usize, hard_end: Option<usize>) {
        let text = self.text;
        let mut at = from + if joined == Syntax::Variable { 0 } else { blanks(&text[from..]) };
        if name.open_quote.is_some() && text[..at].trim_ascii_end().ends_with(b":") {
            at += NEXT_LINE.captures(&text[at..]).and_then(|found| found.get(1)).map_or(0, |layout| layout.len());
        }
        if matches!(joined, Syntax::Line | Syntax::Within) {
            at += TYPE.find(&text[at..text.len().min(at + 64)]).map_or(0, |found| found.end());
        }
        at += wrapper(&text[at..text.len().min(at + 2 * JUDGED_BYTES_MAX)]);
        let quote = quote_at(&text[at..]).filter(|_| hard_end.is_none_or(|end| at < end));
        match joined {
            Syntax::Element => {
                // An element is closed; `<TOKEN>` alone stands for a value.
                let end = memchr::memchr2(b'<', b'\n', &text[at..]).map(|end| at + end);
                if let Some(end) = end.filter(|end| text[*end..].starts_with(b"</")) {
                    self.push(name, joined, at..end);
                }
            }
            Syntax::Words => {
                let rest = &text[at..hard_end.unwrap_or(text.len()).max(at)];
                let end = command_end(rest, Quotes::Seen, b";&|)");
                self.push(name, joined, at..at + rest[..end].trim_ascii_end().len());
            }
            Syntax::Rest if quote.is_none() => {
                let line = self.line_end(at);
                let end = hard_end.map_or(line, |end| end.clamp(at, line));
                self.push(name, joined, at..rest_of_line(text, at, end));
            }
            Syntax::Variable | Syntax::Line | Syntax::Within | Syntax::Argument | Syntax::Rest | Syntax::Quoted => {
                match quote {
                    Some(quote) => self.quoted(name, joined, at, quote),
                    None if joined == Syntax::Quoted => {}
                    None => self.bare(name, joined, at, hard_end),
                }
            }
        }
    }

    fn quoted(&mut self, name: &Label, joined: Syntax, at: usize, quote: Quote) {
        let text = self.text;
        let mark = &text[at..at + quote.bytes()];
        let tripled = mark.repeat(3);
        if text[at..].starts_with(&tripled) {
            let from = at + tripled.len();
            let end = memchr::memmem::find(&text[from..], &tripled).map_or(text.len(), |end| from + end);
            return self.push(name, joined, from..end);
        }
        let from = at + mark.len();
        let line = self.line_end(from);
        let is_of_shell = matches!(joined, Syntax::Variable | Syntax::Argument);
        let close = quote.close_in(&text[from..]).map(|(end, bytes)| (from + end, bytes));
        // If the quotation does not end in its line, its value is the rest of the line.
        let (end, close_bytes) = close.filter(|(end, _)| *end <= line || is_of_shell).unwrap_or((line, 0));
        self.push(name, joined, from..end);
        let mut at = end + close_bytes;
        if is_of_shell && close_bytes > 0 {
            at = self.goes_on(name, joined, at);
        }
        self.taken_to = self.taken_to.max(at);
        self.changed(name, joined, at);
    }

    /// Takes the text that follows a closing quotation mark without a blank, as in `"a"'b'c`. Returns its end.
    fn goes_on(&mut self, name: &Label, joined: Syntax, mut at: usize) -> usize {
        let text = self.text;
        while let Some(byte) = text.get(at) {
            match quote_at(&text[at..]) {
                Some(next) if next.slashes == 0 => {
                    let from = at + next.bytes();
                    let Some((end, bytes)) = next.close_in(&text[from..]) else { break };
                    self.push(name, joined, from..from + end);
                    at = from + end + bytes;
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
        at
    }

    /// Takes the new value of a plan: `"old" -> "new"`.
    fn changed(&mut self, name: &Label, joined: Syntax, at: usize) {
        let behind = at + blanks(&self.text[at..]);
        let Some(rest) = self.text[behind..].strip_prefix(b"->") else { return };
        let at = behind + 2 + blanks(rest);
        if let Some(quote) = quote_at(&self.text[at..])
            && let Some((end, _)) = quote.close_in(&self.text[at + quote.bytes()..])
        {
            self.push(name, joined, at + quote.bytes()..at + quote.bytes() + end);
        }
    }

    /// Returns the end of the line at `at`. Each line is read once.
    fn line_end(&mut self, at: usize) -> usize {
        if !(self.line.start..=self.line.end).contains(&at) {
            self.line = at..memchr::memchr(b'\n', &self.text[at..]).map_or(self.text.len(), |end| at + end);
        }
        self.line.end
    }

    /// A value without quotation marks.
    fn bare(&mut self, name: &Label, joined: Syntax, at: usize, hard_end: Option<usize>) {
        let text = self.text;
        let line = self.line_end(at);
        let is_in_line = matches!(joined, Syntax::Line | Syntax::Within);
        match text.get(at) {
            None => return,
            Some(b'[' | b'{') if joined != Syntax::Variable => return self.bracket(at),
            Some(b'|' | b'>') if is_in_line && BLOCK.is_match(&text[at..line]) => return self.block(name, line + 1),
            Some(b'|' | b'>') if is_in_line => {
                return self.push(name, joined, at..at + run(&text[at..line], Syntax::Variable));
            }
            Some(b'\n' | b'\r') if joined == Syntax::Line => return self.list(name, line + 1),
            Some(_) => {}
        }
        let end = hard_end.map_or(line, |end| end.clamp(at, line));
        if joined != Syntax::Variable && matches!(name.sort, Sort::Scheme | Sort::Cookie) {
            return self.header(name, joined, at, end);
        }
        let run = at + run(&text[at..end], joined);
        let has_more = text[run..end].iter().take(JUDGED_BYTES_MAX).any(|byte| !byte.is_ascii_whitespace());
        // `name: value`
        let is_told = text[..at].ends_with(b" ") && text[..at].trim_ascii_end().ends_with(b":");
        let is_sentence = || {
            let may_be_prose = name.sort != Sort::Password || (is_told && joined == Syntax::Within);
            let is_remark = || one_of(&text[name.range.clone()], &SECRET_SORTS) && REMARK.is_match(&text[at..run]);
            (may_be_prose && PROSE.is_match(&text[at..end])) || (is_told && !has_more && is_remark())
        };
        let is_whole = |end: usize| name.open_quote.is_some() && WHOLE.is_match(&text[end..text.len().min(end + 16)]);
        let end = match hard_end {
            Some(hard_end) if joined != Syntax::Argument && is_whole(hard_end) => hard_end,
            _ if joined == Syntax::Line && name.sort == Sort::Password && has_more => rest_of_line(text, at, end),
            _ if is_in_line && is_sentence() => return,
            _ => run,
        };
        let bytes_min = if name.sort == Sort::Password { PASSWORD_BYTES_MIN } else { WORD_BYTES_MIN };
        let is_short = joined == Syntax::Within && end - at < bytes_min && !name.is_variable;
        let is_program = is_in_line && is_code(text, name, at..end);
        if !is_short && !is_program {
            self.push(name, joined, at..end);
        }
    }

    /// The value of `Authorization` and `Cookie`.
    fn header(&mut self, name: &Label, joined: Syntax, at: usize, end: usize) {
        let text = self.text;
        if name.sort == Sort::Cookie {
            // A header without a quotation mark in front ends at the next one: `-H Cookie:a=b "x"`.
            let stop = text[at..end].iter().position(|byte| matches!(byte, b'"' | b'`' | 0x1b));
            let end = rest_of_line(text, at, stop.map_or(end, |stop| at + stop));
            return self.push(name, joined, at..end);
        }
        let from = at + scheme(&text[at..end]);
        let run = from + run(&text[from..end], joined);
        if from == at && PROSE.is_match(&text[from..end]) {
            return;
        }
        // Of `Basic`, `Bearer` and `Token` one word; others list what they are made of.
        let is_one = from > at && matches!(text[at].to_ascii_lowercase(), b'b' | b't');
        let is_list = !is_one && text[run..end].iter().take(LISTED_BYTES_MAX).any(|byte| *byte == b'=');
        self.push(name, joined, from..if is_list { rest_of_line(text, run, end) } else { run });
    }

    /// The texts of a list or an object, but for the names of its members.
    fn bracket(&mut self, at: usize) {
        let text = self.text;
        let (mut depth, mut next, mut member) = (0_usize, at, &b""[..]);
        let end = text.len().min(at + BRACKET_BYTES_MAX);
        while at >= self.looked_to && next < end {
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
                        let is_name = text.get(next + blanks(&text[next..])) == Some(&b':');
                        if !is_name && !one_of(member, &DESCRIBING) && !is_open(&text[from..close]) {
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
        self.looked_to = self.looked_to.max(next);
    }

    /// A block of YAML: `name: |` and all lines that are further in.
    fn block(&mut self, name: &Label, mut from: usize) {
        let text = self.text;
        let near = &text[name.range.start.saturating_sub(256)..name.range.start];
        let own = line_at(&near[memchr::memrchr(b'\n', near).map_or(0, |end| end + 1)..], 0).0;
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
    fn list(&mut self, name: &Label, mut from: usize) {
        let text = self.text;
        // The first name took the values, or there are none.
        if from <= self.listed_to {
            return;
        }
        self.listed_to = from;
        while from < text.len() {
            let (_, start, end) = line_at(text, from);
            let value = text[start..end].strip_prefix(b"- ");
            let Some(value) = value.filter(|value| memchr::memmem::find(value, b": ").is_none()) else { return };
            let at = end - value.len();
            self.push(name, Syntax::Line, at..rest_of_line(text, at, end));
            from = end + 1;
        }
    }

    fn push(&mut self, name: &Label, joined: Syntax, span: Range<usize>) {
        let value = &self.text[span.clone()];
        self.taken_to = self.taken_to.max(span.end);
        let is_count = || SMALL_NUMBER.is_match(value);
        let is_other = match name.sort {
            Sort::Password | Sort::Scheme => false,
            Sort::Weak => is_count() || value.first().is_some_and(|first| b"/~.".contains(first)),
            Sort::Cookie | Sort::Other => (joined != Syntax::Argument && is_count()) || one_of(value, &SETTING_WORDS),
        };
        // `--api-key API_KEY` in the text of a help.
        let is_name = |word: &str| {
            !word.bytes().any(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) && names_secret(word)
        };
        let is_stand_in = || joined == Syntax::Argument && std::str::from_utf8(value).is_ok_and(is_name);
        if span.is_empty() || is_other || is_open(value) || is_stand_in() {
            return;
        }
        let scheme = if name.sort == Sort::Scheme { scheme(value) } else { 0 };
        self.spans.push(span.start + scheme..span.end);
    }
}

/// Returns the length of a value that ends at a blank or at another mark that fits its syntax.
fn run(text: &[u8], joined: Syntax) -> usize {
    let is_variable = joined == Syntax::Variable;
    let found = if is_variable { WORD_END.find(text) } else { VALUE_END.find(text) };
    let end = found.map_or(text.len(), |found| found.start());
    let trailing = |signs: &[u8]| text[..end].iter().rev().take_while(|byte| signs.contains(byte)).count();
    // The end of a string of JSON, and of what it stands in.
    let around = trailing(b"}];,)&|\"'`");
    match () {
        () if !is_variable => end,
        () if text[end - around..end].contains(&b'"') => end - around,
        () => end - trailing(b";,)&|\"'`"),
    }
}

/// Returns the length of the scheme ahead of a credential, with the blanks behind it.
fn scheme(value: &[u8]) -> usize {
    SCHEME.find(value).map(|found| found.end()).filter(|end| *end < value.len()).unwrap_or_default()
}

/// Returns the end of a value that takes the rest of its line. A remark, a closing `,` or `;` and blanks do not belong to it.
fn rest_of_line(text: &[u8], at: usize, end: usize) -> usize {
    let line = &text[at..end];
    let remark = memchr::memmem::find(line, b" #").unwrap_or(line.len());
    let is_end = |byte: &&u8| byte.is_ascii_whitespace() || b",;".contains(byte);
    at + remark - line[..remark].iter().rev().take_while(is_end).count()
}

/// Returns the indentation of a line, and the start and the end of its text. The mark of a diff counts as indentation.
fn line_at(text: &[u8], from: usize) -> (usize, usize, usize) {
    let line = &text[from..memchr::memchr(b'\n', &text[from..]).map_or(text.len(), |end| from + end)];
    let mark = usize::from(line.starts_with(b"+ ") || line.starts_with(b"- "));
    let indent = mark + blanks(&line[mark..]);
    (indent, from + indent, from + line.len())
}

/// Returns the length of what stands around a value in quotation marks, and of the letter in `b"…"` and `$'…'`.
fn wrapper(text: &[u8]) -> usize {
    let mut at = BARE_CALLS.find(text).map_or(0, |found| found.end());
    at += QUOTED_CALLS.captures(&text[at..]).map_or(0, |found| found[1].len());
    at += KEY_CALL.captures(&text[at..]).map_or(0, |found| {
        let has = |is: fn(&u8) -> bool| found[3].iter().any(is);
        let is_key = !one_of(&found[2], &GETTERS) && has(u8::is_ascii_digit) && has(u8::is_ascii_lowercase);
        if is_key { found[1].len() } else { 0 }
    });
    let letter = matches!(text[at..], [first, b'"' | b'\'', ..] if b"bBrRfFuUL$@".contains(&first));
    at + usize::from(letter)
}

/// Whether a value only refers to a secret or stands for its absence.
pub(super) fn is_open(value: &[u8]) -> bool {
    // A longer path is a secret with slashes.
    OPEN.is_match(value) || value.len() <= JUDGED_BYTES_MAX && FILE.is_match(value)
}

/// Whether a value without quotation marks is an expression of a program.
fn is_code(text: &[u8], name: &Label, span: Range<usize>) -> bool {
    let value = &text[span.clone()];
    let plain = value.strip_prefix(b"&").unwrap_or(value);
    let is_other_name = || {
        let is_part = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'_';
        value.contains(&b'_') && value.iter().all(is_part) && std::str::from_utf8(value).is_ok_and(word_names_secret)
    };
    let is_type =
        || text.get(span.end) == Some(&b'<') && plain.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    value.len() <= JUDGED_BYTES_MAX
        && (one_of(plain, &WORDS_OF_CODE)
            || is_type()
            || value.eq_ignore_ascii_case(&text[name.range.clone()])
            || CODE.is_match(&text[span.start..text.len().min(span.end + JUDGED_BYTES_MAX)])
            || is_other_name())
}
