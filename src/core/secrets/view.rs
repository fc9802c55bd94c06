//! Views of a text in which nothing stands between a rule and what it looks for.
//!
//! [`decoded`] reads quotation marks that are written as escapes. [`undecorated`] leaves out what tools put in front of a line
//! or between its words: escape sequences, prompts, numbers of lines, marks of changes. A rule knows none of these: it looks at
//! a text and at its views, and [`View::place`] says where in the text its finding stands.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use memchr::memmem;

use super::table::{ENTITIES, ESCAPED_QUOTES};
use super::{automaton_of_any_case, patterns};

/// A text made of another one.
#[derive(Debug, Default)]
pub(super) struct View {
    text: Vec<u8>,
    /// In order, without gaps in the view.
    pieces: Vec<Piece>,
}

/// A part of a view: bytes that were kept, or one byte in the place of several.
#[derive(Debug, Clone, Copy)]
struct Piece {
    /// Where it begins in the view. It ends with the beginning of the next one.
    at: u32,
    /// Where it begins in the other text, and where it ends.
    from: u32,
    to: u32,
}

impl View {
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns the place in the text of a part of the view that is not empty.
    pub(super) fn place(&self, span: &Range<usize>) -> Range<usize> {
        self.place_from(self.piece_at(span.start), span.start)..self.place_to(self.piece_at(span.end - 1), span.end)
    }

    /// The piece that a byte of the view belongs to.
    fn piece_at(&self, at: usize) -> usize {
        self.pieces.partition_point(|piece| piece.at as usize <= at) - 1
    }

    /// Where a piece ends in the view.
    fn end_of(&self, piece: usize) -> usize {
        self.pieces.get(piece + 1).map_or(self.text.len(), |next| next.at as usize)
    }

    /// Where a byte of a piece begins in the other text.
    fn place_from(&self, piece: usize, at: usize) -> usize {
        let Piece { at: begin, from, .. } = self.pieces[piece];
        from as usize + at - begin as usize
    }

    /// Where the bytes of a piece up to `end` end in the other text.
    fn place_to(&self, piece: usize, end: usize) -> usize {
        if end == self.end_of(piece) { self.pieces[piece].to as usize } else { self.place_from(piece, end) }
    }

    /// Appends a part of the text.
    fn keep(&mut self, text: &[u8], part: Range<usize>) {
        // A view is not longer than its text.
        if self.text.is_empty() {
            self.text.reserve_exact(text.len());
        }
        self.add_piece(self.text.len(), part.clone(), part.len());
        self.text.extend_from_slice(&text[part]);
    }

    /// Appends one byte in the place of a part of the text.
    fn put(&mut self, byte: u8, part: Range<usize>) {
        self.add_piece(self.text.len(), part, 1);
        self.text.push(byte);
    }

    /// Adds what stands at `at` for a part of the other text. Kept bytes that follow each other there are one piece.
    fn add_piece(&mut self, at: usize, part: Range<usize>, bytes: usize) {
        let (at, from, to) = (at as u32, part.start as u32, part.end as u32);
        match self.pieces.last_mut() {
            _ if bytes == 0 => {}
            Some(last) if part.len() == bytes && last.to == from && last.to - last.from == at - last.at => last.to = to,
            Some(_) | None => self.pieces.push(Piece { at, from, to }),
        }
    }

    /// The same view of the text that `inner` is a view of.
    pub(super) fn through(mut self, inner: &View) -> View {
        let (pieces, mut piece) = (std::mem::take(&mut self.pieces), 0);
        for (number, &Piece { at, from, to }) in pieces.iter().enumerate() {
            let end = pieces.get(number + 1).map_or(self.text.len(), |next| next.at as usize);
            let (at, mut from, to) = (at as usize, from as usize, to as usize);
            if end - at < to - from {
                self.add_piece(at, inner.place(&(from..to)), end - at);
                continue;
            }
            while from < to {
                while inner.end_of(piece) <= from {
                    piece += 1;
                }
                let part_to = to.min(inner.end_of(piece));
                let place = inner.place_from(piece, from)..inner.place_to(piece, part_to);
                self.add_piece(end - (to - from), place, part_to - from);
                from = part_to;
            }
        }
        self
    }
}

/// A text in which quotation marks are written as escapes, without these escapes; `None` if no quotation mark is written so.
pub(super) fn decoded(text: &[u8]) -> Option<View> {
    static MARKED: LazyLock<AhoCorasick> = LazyLock::new(|| automaton_of_any_case(ESCAPED_QUOTES));
    if !MARKED.is_match(text) {
        return None;
    }
    let (mut view, mut kept_to) = (View::default(), 0);
    for at in memchr::memchr3_iter(b'%', b'\\', b'&', text) {
        if at >= kept_to
            && let Some((bytes, byte)) = escape(&text[at..])
        {
            view.keep(text, kept_to..at);
            view.put(byte, at..at + bytes);
            kept_to = at + bytes;
        }
    }
    view.keep(text, kept_to..text.len());
    Some(view)
}

/// The length of the escape that a text begins with, and the character of one byte that it stands for.
fn escape(text: &[u8]) -> Option<(usize, u8)> {
    match text {
        [b'%', high, low, ..] => Some((3, hex([b'0', b'0', *high, *low])?)),
        [b'\\', b'u', digits @ ..] => Some((6, hex(*digits.first_chunk()?)?)),
        [b'\\', b'x', high, low, ..] => Some((4, hex([b'0', b'0', *high, *low])?)),
        [b'&', ..] => ENTITIES.into_iter().find_map(|(name, byte)| {
            text.get(..name.len())?.eq_ignore_ascii_case(name.as_bytes()).then_some((name.len(), byte))
        }),
        _ => None,
    }
}

/// The visible character of one byte with a number in hexadecimal digits.
fn hex(digits: [u8; 4]) -> Option<u8> {
    let value =
        digits.into_iter().try_fold(0_u32, |value, digit| Some(value * 16 + char::from(digit).to_digit(16)?))?;
    u8::try_from(value).ok().filter(|byte| (b' '..=b'~').contains(byte))
}

/// Whether an escape sequence may divide a name or a key in a text.
pub(super) fn may_be_divided(text: &[u8]) -> bool {
    memchr::memchr(0x1b, text).is_some() || memmem::find(text, b"u001b").is_some()
}

/// A text without escape sequences and without the marks in front of its lines, in which blanks that do not break and line ends
/// in two characters are blanks and line ends; `None` if it has none of these.
pub(super) fn undecorated(text: &[u8]) -> Option<View> {
    let plain = without_escapes(text);
    let lines = plain.as_ref().map_or(text, View::text);
    let mut bare = View::default();
    let (mut at, mut kept_to, mut goes_on) = (0, 0, false);
    while at < lines.len() {
        let end = memchr::memchr(b'\n', &lines[at..]).map_or(lines.len(), |found| at + found + 1);
        for begin in beginnings(&lines[at..end]) {
            let from = at + begin;
            let bytes = marks(&lines[from..end], goes_on);
            if bytes > 0 && from >= kept_to {
                bare.keep(lines, kept_to..from);
                kept_to = from + bytes;
            }
        }
        goes_on = lines[at..end].trim_ascii_end().ends_with(b"\\");
        at = end;
    }
    if kept_to == 0 {
        return plain;
    }
    bare.keep(lines, kept_to..lines.len());
    Some(match plain {
        Some(plain) => bare.through(&plain),
        None => bare,
    })
}

/// Returns where the text of a line may begin: at its start, and in each string of JSON.
fn beginnings(line: &[u8]) -> impl Iterator<Item = usize> {
    let opens = |at: &usize| {
        let front = &line[..*at];
        let escapes = front.iter().rev().take(8).take_while(|byte| **byte == b'\\').count();
        let front = &front[..front.len() - escapes];
        let blanks = front.iter().rev().take(8).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        front[..front.len() - blanks].last().is_none_or(|last| b":[,({=".contains(last))
    };
    let first = usize::from(matches!(line.first(), Some(b'"' | b'\'')));
    std::iter::once(first).chain(memchr::memchr2_iter(b'"', b'\'', line).filter(opens).map(|at| at + 1))
}

/// Most marks in front of a line.
const MARKS_MAX: usize = 8;

/// Longest prompt and longest place in a file, in bytes.
const MARK_BYTES_MAX: usize = 160;

/// Returns the length of all that stands in front of the text of a line: marks of changes, numbers of lines, places, times,
/// prompts. The indentation of the text stays. `goes_on` says that the line goes on with a command of the line before it, and
/// may begin with an option.
fn marks(line: &[u8], goes_on: bool) -> usize {
    let mut at = 0;
    for _ in 0..MARKS_MAX {
        let rest = &line[at..];
        let blanks = rest.iter().take(64).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        match mark(&rest[blanks..], blanks, goes_on) {
            0 => break,
            bytes => at += blanks + bytes,
        }
    }
    at
}

patterns! {
    /// What stands in front of the text of a line, but for the mark of a change.
    MARK = concat!(
        "^(?:",
        // The time of a line of a log.
        r"\d[\d.,+TZ]*[:/-][\d.,+TZ]*(?:[:/-][\d:.,/+TZ-]*[\d.,/+TZ-]|[/-]) ",
        // `file:12:`, `file-12-` and `file:` as `grep` writes them.
        r"|[!#%*+./0-9?@A-Z\\^_a-z~-][!#%*+./0-9?@A-Z\\^_a-z~:-]*?(?::\d{1,10}:|-\d{1,10}-)",
        r"|[!#%*+./0-9?@A-Z\\^_a-z~-]+:(?:\b|[+-]{1,3})",
        // The number of a line as `cat`, `grep`, `nl` and editors write it.
        r"|L?\d{1,9}(?:[\t:-]|[.)] | *(?:\||│|┃) ?|→| {2,})",
        // `web-1  | ` of a service among several.
        r"|[\w.-]+ {1,64}(?:\||│|┃) ",
        // `[12.345] `, `[me@host dir]$ `, `(venv) `
        r#"|(?:\[[^"'`={}\[(,;\]]+\]|\([^"'`={}\[(,;)]+\))(?:[$#%>:]? |[$#%>:])"#,
        // Signs of prompts and of quotations, with the blank behind them.
        r"|(?:[$#%<*|]|•|❯|➜|λ|»|›|│|┃|>>>?|\.\.\.|//|\$>) |> ?",
        // `me@host:~$ `, `bash-5.2$ `, `PS C:\x> `, `C:\x>`
        r#"|(?:PS )?.:\\[^"'`=;|&<{}>\n]*> ?|(?:[^\s"'`=;|&<{}]+?|[~/][^"'`=;|&<{}\n]*?"#,
        r#"|[^"'`=;|&<{}\n]+?@[^"'`=;|&<{}\n]*?)(?:[$#%>]|❯|➜) )"#
    );
}

/// Returns the length of the mark that a text begins with, which stands behind some blanks.
fn mark(text: &[u8], blanks: usize, goes_on: bool) -> usize {
    let near = &text[..text.len().min(MARK_BYTES_MAX)];
    match near.first() {
        Some(b'+') if blanks <= 4 => change(near, goes_on),
        Some(b'-') if blanks <= 1 => change(near, goes_on),
        _ => MARK.find(near).map_or(0, |found| found.len()),
    }
}

/// `+`, `-` of a change, `+ ` of `set -x`. `---` is a heading, a rule, or the first line of a key.
fn change(text: &[u8], goes_on: bool) -> usize {
    let is_mark = |byte: &&u8| **byte == b'+' || (**byte == b'-' && !goes_on);
    match text.iter().take_while(is_mark).count() {
        // An option begins with a letter.
        0 if matches!(text, [b'-', next, ..] if !next.is_ascii_alphabetic() && *next != b'-') => 1,
        bytes if bytes <= 4 && !text.starts_with(b"---") => bytes,
        _ => 0,
    }
}

/// ESC, in spellings that mean nothing else.
macro_rules! certain_esc {
    () => {
        r"(?:\x1b|\\{1,8}(?:u001[bB]|u\{1[bB]\}|x1[bB]|033)|␛|%1[bB]|&#27;|&#x1b;)"
    };
}

/// ESC, in any spelling.
macro_rules! esc {
    () => {
        concat!("(?:", certain_esc!(), r"|\\{1,8}[eE]|\^\[|`e)")
    };
}

patterns! {
    /// Escape sequences, and blanks and line ends that are written in another way.
    DECORATION = concat!(
        "(?s)(?:", esc!(), r"\[|\xc2\x9b)[0-?]*[ -/]*[@-~]|",
        // A title or an address with its end. JSON doubles the backslash at the end.
        esc!(), r"[\]PX^_][^\n\x07\x1b]{0,255}?(?:\x07|\\{1,8}(?:u0007|u\{7\}|x07|007|a)|␇|\^G|%07|\x1b\\",
        r"|(?:\\(?:u001[bB]|u\{1[bB]\}|x1[bB]|033|[eE])|␛|%1[bB]|&#27;|&#x1b;|\^\[|`e)\\{1,2}",
        r"|\\{2}(?:u001[bB]|u\{1[bB]\}|x1[bB]|033|[eE])\\{1,4}|\\{4}(?:u001[bB]|u\{1[bB]\}|x1[bB]|033|[eE])\\{1,8})|",
        esc!(), r"[()*#].|", certain_esc!(), r"[78=>cDEHMNOZ\\]?",
        // A colour whose ESC was lost.
        r"|\[\d[\d;]{0,15}m",
        // Each level of JSON doubles the backslashes. Of three, one stands for itself.
        r"|(?:\\{8}|\\{4}|\\{1,2})[nrt]|\\{1,8}(?:u00|x)[aA]0",
        // Blanks that do not break; those without a width are not even blanks.
        r"|(?:\xc2\xa0)+|\xe2\x80[\x80-\x8f\xaf]|\xe2\x81[\x9f\xa0]|\xe3\x80\x80|\xef\xbb\xbf",
        r"|&nbsp;|&#160;|&#x[aA]0;|%[cC]2%[aA]0|\\?[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
    );
    /// Decorations that end a line: among them those that move the cursor elsewhere.
    ENDS_LINE = r"^(?:\\+[nr]|.{0,12}(?:[^\[^]\[|\^\[\[|\xc2\x9b)(?:[0-?]*[ -/]*[ABEFHJLMSTdf]|[01]?G))$";
    /// Decorations that stand for a blank.
    IS_BLANK = concat!(
        r"^(?:.{0,12}(?:[^\[^]\[|\^\[\[|\xc2\x9b)[0-?]*[ -/]*[CGIa]|\\+(?:u00|x)[aA]0|(?:\xc2\xa0)+|\xe2\x80[\x80-\x8a\xaf]|\xe2\x81\x9f",
        r"|\xe3\x80\x80|&nbsp;|&#160;|&#x[aA]0;|%[cC]2%[aA]0)$"
    );
}

/// A text without escape sequences; `None` if it has none, and no blanks and line ends that are written in another way.
fn without_escapes(text: &[u8]) -> Option<View> {
    let (mut view, mut kept_to) = (View::default(), 0);
    for found in DECORATION.find_iter(text) {
        view.keep(text, kept_to..found.start());
        kept_to = found.end();
        match found.as_bytes() {
            // Most are colours.
            [.., b'm'] => {}
            [b'\\', .., b't'] => view.put(b'\t', found.range()),
            // A cursor that moves at the beginning of a line ends none.
            written if ENDS_LINE.is_match(written) && !is_empty_line(&view.text) => view.put(b'\n', found.range()),
            written if ENDS_LINE.is_match(written) => {}
            written if IS_BLANK.is_match(written) => view.put(b' ', found.range()),
            _ => {}
        }
    }
    view.keep(text, kept_to..text.len());
    (kept_to > 0).then_some(view)
}

/// Whether the last line of a text has nothing but marks yet.
fn is_empty_line(text: &[u8]) -> bool {
    let near = &text[text.len().saturating_sub(MARK_BYTES_MAX)..];
    let line = &near[memchr::memrchr(b'\n', near).map_or(0, |end| end + 1)..];
    line.len() < MARK_BYTES_MAX && line[marks(line, false)..].trim_ascii().is_empty()
}

#[cfg(test)]
mod tests {
    use super::super::masking::redacted_json;
    use super::super::{Masker, redacted};
    use super::{Piece, View, decoded, undecorated};

    const SECRET: &str = "Hunter2!Zq";

    /// Texts in which a rule looks at the beginning of a line or of a word. The secret stands at `@`.
    const RULES: [&str; 45] = [
        "curl -u me:@ https://x",
        "curl -H X-Api-Key:@ https://h",
        "docker login -u me -p @ r.io",
        "mysql -uroot -p@ db",
        "sshpass -p @ ssh h",
        "redis-cli -a @ ping",
        "vault login @",
        "htpasswd -b f u @",
        "openssl enc -k @ -in a",
        "zip -P @ a.zip b",
        "7z a -p@ a.7z b",
        "ldapsearch -x -w @ -b dc=x",
        "http -a u:@ https://h",
        "gh secret set N --body @",
        "fly secrets set API=@",
        "smbclient -U bob%@ //h/x",
        "mongosh -u a -p @ db",
        "plink -pw @ h",
        "echo @ | docker login --password-stdin",
        "curl https://h \\\n  -u me:@ -o f",
        "export API_KEY=@",
        "API_KEY=@ ./run",
        "ENV DB_PASSWORD @",
        "ENV DB_PASSWORD correct horse @",
        "ENV DB_PASSWORD=@",
        "ARG API_KEY=@",
        "setx API_KEY @",
        "setx /M API_KEY @",
        "set -gx API_KEY @",
        "set -g -x API_KEY @",
        "setenv API_KEY @",
        "SetEnv DB_PASSWORD @",
        "fastcgi_param DB_PASSWORD @;",
        "bindpw @",
        "requirepass @",
        "machine h login b password @",
        "machine h\n  login b\n  password @",
        "machine h\n  password @\n  login b",
        "- name: DB_PASSWORD\n  value: @",
        "name: API_KEY\nvalue: \"@\"",
        "password: |\n    @\n    @\nx: 1",
        "git config --global user.password @",
        "aws configure set aws_secret_access_key @",
        "npm config set //host/:_authToken @",
        "password: correct horse @",
    ];

    /// Escape sequences; `␛` stands for ESC.
    const ESCAPES: [&str; 13] = [
        "␛[32m",
        "␛[1;38;5;12m",
        "␛[38:2::1:2:3m",
        "␛[m␛[K",
        "␛[?2004l",
        "␛[2J␛[H",
        "␛[2;1H",
        "␛]0;me@host: ~\u{7}",
        "␛]133;A␛\\",
        "␛]8;;https://h/x␛\\",
        "␛(B␛[m",
        "␛P1$r0m␛\\",
        "␛[32;1m␛]0;t\u{7}␛[0m",
    ];

    /// The spellings of ESC, and of BEL with them.
    const SPELLINGS: [(&str, &str); 12] = [
        ("\u{1b}", "\u{7}"),
        ("\\u001b", "\\u0007"),
        ("\\u001B", "\\u0007"),
        ("\\u{1b}", "\\u{7}"),
        ("\\x1b", "\\x07"),
        ("\\x1B", "\\x07"),
        ("\\033", "\\007"),
        ("\\e", "\\a"),
        ("\\E", "\\a"),
        ("^[", "^G"),
        ("\\\\u001b", "\\\\u0007"),
        ("␛", "␇"),
    ];

    /// What stands in front of a line in outputs of tools.
    const MARKS: [&str; 46] = [
        "",
        "  ",
        "\t",
        "$ ",
        "# ",
        "% ",
        "> ",
        ">>> ",
        "❯ ",
        "➜ ",
        "me@host:~$ ",
        "me@host:~/src/x$ ",
        "root@0a1b2c:/# ",
        "[me@host src]$ ",
        "(venv) me@host:~$ ",
        "bash-5.2$ ",
        "sh-5.1# ",
        "host% ",
        "~/src ❯ ",
        "/ # ",
        "PS C:\\Users\\me> ",
        "C:\\Users\\me>",
        "+ ",
        "++ ",
        "+++ ",
        "+",
        "-",
        " ",
        "++",
        " +",
        "> + ",
        "     12\t",
        "    12→",
        "12:",
        "12-",
        "12:+",
        "L12: ",
        "src/a-b.txt:12:",
        "src/a-b.txt-12-",
        "12 | ",
        " 12 │ ",
        "web-1  | ",
        "[12.345] ",
        "2026-01-05T10:00:00.1234567Z ",
        "10:00:00 ",
        "\u{1b}[32m12\u{1b}[0m:\u{1b}[1m+\u{1b}[m",
    ];

    /// A text with something in front of each of its lines.
    fn behind(front: &str, rule: &str) -> String {
        rule.replace('@', SECRET).split('\n').map(|line| format!("{front}{line}")).collect::<Vec<_>>().join("\n")
    }

    fn spelled(escape: &str, (esc, bell): (&str, &str)) -> String {
        let slashes = esc.bytes().take_while(|byte| *byte == b'\\').count();
        let end = format!("{esc}{}", "\\".repeat((2 * slashes).max(1)));
        escape.replace('\u{7}', bell).replace("␛\\", &end).replace('␛', esc)
    }

    /// All ways in which a text is masked, as itself and inside JSON; what is left of the secret, and what changes if the masked
    /// text is masked again.
    fn left(text: &str, masker: &Masker) -> Vec<String> {
        let json = serde_json::json!({ "output": text, "n": 1 }).to_string();
        type Masking<'a> = &'a dyn Fn(&str) -> Option<String>;
        let ways: [(&str, Masking<'_>); 6] = [
            (text, &redacted),
            (text, &|text| masker.text(text)),
            (&json, &redacted_json),
            (&json, &|json| masker.json(json)),
            (&json, &redacted),
            (&json, &|json| masker.text(json)),
        ];
        let mut left = Vec::new();
        for (way, (text, masking)) in ways.into_iter().enumerate() {
            let masked = masking(text).unwrap_or_else(|| text.to_owned());
            if masked.contains("Hunter") || masked.contains("2!Zq") {
                left.push(format!("{way}: {text:?} -> {masked:?}"));
            } else if let Some(again) = masking(&masked).filter(|again| *again != masked) {
                left.push(format!("{way}, again: {masked:?} -> {again:?}"));
            }
        }
        left
    }

    fn check(texts: impl IntoIterator<Item = String>) {
        let masker = Masker::new(&[]).expect("no pattern");
        let left: Vec<String> = texts.into_iter().flat_map(|text| left(&text, &masker)).collect();
        let shown = &left[..left.len().min(40)];
        assert!(left.is_empty(), "{} {shown:#?}", left.len());
    }

    #[test]
    fn nothing_before_a_command_hides_its_secrets() {
        check(RULES.iter().flat_map(|rule| MARKS.map(|mark| behind(mark, rule))));
    }

    #[test]
    fn escapes_before_a_command_hide_nothing() {
        let spelled = |escape: &str| spelled(escape, SPELLINGS[0]);
        check(RULES.iter().flat_map(|rule| ESCAPES.map(|escape| behind(&spelled(escape), rule))));
    }

    #[test]
    fn spelled_escapes_hide_nothing() {
        let rules =
            ["curl -u me:@ https://x", "ENV DB_PASSWORD @", "set -gx API_KEY @", "machine h\nlogin b\npassword @"];
        let fronts = ESCAPES.iter().flat_map(|escape| SPELLINGS.map(|spelling| spelled(escape, spelling)));
        check(fronts.flat_map(|front| rules.map(|rule| behind(&front, rule))));
    }

    #[test]
    fn colours_within_a_line_hide_nothing() {
        let texts = [
            "\u{1b}[32mcurl\u{1b}[0m \u{1b}[33m-u\u{1b}[0m me:@ https://x",
            "mysql \u{1b}[33m-p@\u{1b}[0m db",
            "API_\u{1b}[01;31m\u{1b}[KKEY\u{1b}[m\u{1b}[K=@",
            "to\u{1b}[1mken\u{1b}[0m: @",
            "\u{1b}[31mENV\u{1b}[0m \u{1b}[1mDB_PASSWORD\u{1b}[0m @",
            "pass\u{1b}[Kword: @",
            "export API_KEY=Hunt\u{1b}[1mer2!Zq\u{1b}[0m",
        ];
        check(texts.map(|text| text.replace('@', SECRET)));
        let key = ["ghp", "a7Bq2Rt9XzK4mN8pLs3Dv6Wya7Bq2Rt9XzK4"];
        let split = format!("x {}\u{1b}[m_{}\u{1b}[32m{} y", key[0], &key[1][..9], &key[1][9..]);
        assert_eq!(redacted(&split).as_deref(), Some("x [redacted] y"));
    }

    #[test]
    fn blanks_that_do_not_break_hide_nothing() {
        let blanks = ["\u{a0}", "\u{202f}", "\u{2007}", "\u{2009}", "\u{3000}", "\u{a0}\u{a0}", "&nbsp;", "\u{200b} "];
        let texts = [
            "password:_@",
            "API_KEY=_@",
            "password =_@",
            "tool --password_@",
            "curl -u_me:@ https://x",
            "_curl_-u_me:@ https://x",
            "Authorization:_Bearer_@",
            "ENV_DB_PASSWORD_@",
            "setx_API_KEY_@",
            "machine_h_login_b_password_@",
            "name:_DB_PASSWORD\n_value:_@",
            "Your API key is:_@",
        ];
        let text = |text: &str, blank: &str| {
            text.replace("DB_PASSWORD", "DBPASSWORD").replace("API_KEY", "APIKEY").replace('_', blank)
        };
        check(texts.iter().flat_map(|of| blanks.map(|blank| text(of, blank).replace('@', SECRET))));
    }

    #[test]
    fn changes_of_files_hide_nothing() {
        let texts = [
            "diff --git a/Dockerfile b/Dockerfile\n@@ -1,2 +1,2 @@\n FROM x\n-ENV DB_PASSWORD @\n+ENV DB_PASSWORD @2\n RUN y",
            "@@ -1,2 +1,2 @@\n machine h\n   login b\n-  password @\n+  password @2\n",
            "@@ -1,2 +1,2 @@\n machine h\n-  password @\n+  password @2\n   login b\n",
            "@@ -1,2 +1,2 @@\n - name: DB_PASSWORD\n-  value: @\n+  value: @2\n",
            "@@ -1,2 +1,2 @@\n - name: DB_PASSWORD\n-  value: \"@\"\n+  value: \"@2\"\n",
            "@@ -1,2 +1,2 @@\n   \"name\": \"DB_PASSWORD\",\n-  \"value\": \"@\"\n+  \"value\": \"@2\"\n",
            "@@ -1,2 +1,2 @@\n-  value: @\n+  value: @2\n   name: DB_PASSWORD\n",
            "-setx API_KEY @\n+setx API_KEY @2",
            "-set -gx API_KEY @\n+set -gx API_KEY @2",
            "-  password: |\n-    @\n+  password: |\n+    @2\n x: 1",
        ];
        let coloured = |text: &str| {
            let colour = |line: &str| match line.as_bytes().first() {
                Some(b'-') => format!("\u{1b}[31m{line}\u{1b}[m"),
                Some(b'+') => format!("\u{1b}[32m+\u{1b}[m\u{1b}[32m{}\u{1b}[m", &line[1..]),
                Some(_) | None => line.to_owned(),
            };
            text.lines().map(colour).collect::<Vec<_>>().join("\n")
        };
        let numbered = |text: &str| {
            let lines = text.lines().enumerate().map(|(number, line)| format!("{:>6}\t{line}", number + 1));
            lines.collect::<Vec<_>>().join("\n")
        };
        let hunk =
            |text: &str| text.replace("@@ -1,2 +1,2 @@", "\0").replace('@', SECRET).replace('\0', "@@ -1,2 +1,2 @@");
        check(texts.iter().flat_map(|text| [hunk(text), coloured(&hunk(text)), numbered(&hunk(text))]));
    }

    #[test]
    fn any_marks_before_a_rule_hide_nothing() {
        let mut state = 7_u64;
        let mut any = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut texts = Vec::new();
        for _ in 0..40 * RULES.len() {
            let spelling = SPELLINGS[any(SPELLINGS.len())];
            let mut front = String::new();
            for _ in 0..any(3) {
                let (mark, escape) = (MARKS[any(MARKS.len())], spelled(ESCAPES[any(ESCAPES.len())], spelling));
                front += &if any(2) == 0 { escape + mark } else { mark.to_owned() + &escape };
            }
            texts.push(behind(&front, RULES[any(RULES.len())]));
        }
        check(texts);
    }

    fn bytes(view: &View) -> usize {
        view.text.capacity() + view.pieces.capacity() * size_of::<Piece>()
    }

    /// A line may have 64 MiB, and a view of a view is made while both are in memory.
    #[test]
    fn views_are_little_larger_than_their_texts() {
        const BYTES: usize = 1 << 20;
        let repeated = |part: &str| part.repeat(BYTES / part.len()).into_bytes();
        let check = |view: Option<View>, text: &[u8]| {
            let view = view.expect("there is something to leave out");
            assert!(bytes(&view) <= 3 * text.len(), "{} of {}", bytes(&view), text.len());
        };
        let plain = [&br"x\u0022"[..], &repeated("word ")].concat();
        check(decoded(&plain), &plain);
        let coloured = repeated("\x1b[32mword\x1b[m and\x1b[1;33m more\x1b[0m\n");
        check(undecorated(&coloured), &coloured);
        let change = repeated("+  some line of a program\n");
        check(undecorated(&change), &change);
        let both = repeated("\x1b[32m+\x1b[m\x1b[32m  some line of a program\x1b[m\n");
        check(undecorated(&both), &both);
    }

    /// The place of each byte of a view, by each way that leads to it.
    #[test]
    fn places_lead_through_views_of_views() {
        let text = br"a\u0022b%27c&quot;d";
        let view = decoded(text).expect("it has escapes");
        assert_eq!(view.text(), br#"a"b'c"d"#);
        let places = |view: &View| (0..view.text.len()).map(|at| view.place(&(at..at + 1))).collect::<Vec<_>>();
        assert_eq!(places(&view), [0..1, 1..7, 7..8, 8..11, 11..12, 12..18, 18..19]);
        assert_eq!((view.place(&(0..2)), view.place(&(2..6)), view.place(&(6..7))), (0..7, 7..18, 18..19));
        let mut outer = View::default();
        outer.keep(view.text(), 0..3);
        outer.put(b'-', 3..5);
        outer.keep(view.text(), 6..7);
        let outer = outer.through(&view);
        assert_eq!(outer.text(), br#"a"b-d"#);
        assert_eq!(places(&outer), [0..1, 1..7, 7..8, 8..12, 18..19]);
        assert_eq!(outer.place(&(1..4)), 1..12);
    }
}
