//! Secrets known by their own shape: keys of services, private keys as blocks of lines, and passwords in addresses. Each byte is
//! looked at a bounded number of times.

use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem;
use regex::bytes::Regex;

use super::pattern;
use super::table::{Behind, KeyShape, Tail};

/// Bytes of a key that decide if it looks random.
const RANDOM_BYTES_MAX: usize = 96;

/// The keys of a text, from its start to its end.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// The last key.
    last: Range<usize>,
    /// The end of the key before it.
    end_before: usize,
    /// The end of the last Base64 that no key begins in.
    base64_to: usize,
    /// The end of the first part of the last web token.
    web_token_to: usize,
}

impl Keys {
    /// The key that begins with a mark.
    pub(super) fn key(&mut self, text: &[u8], start: Range<usize>, shape: &KeyShape) -> Option<Range<usize>> {
        // What a key may be in is read once, however many beginnings are in it. A beginning that holds the last one may have a
        // longer key: `EAAA` holds `EAA`.
        let is_within_last = self.last.start < start.start && start.start < self.last.end;
        let is_in_base64_too = shape.behind != Behind::Base64Too && start.start < self.base64_to;
        if start.start < self.end_before || is_within_last || is_in_base64_too {
            return None;
        }
        let end = tail_of(text, start.clone(), shape)?;
        let end_before = if start.start < self.last.end { self.end_before } else { self.last.end };
        if shape.behind != Behind::Base64Too
            && start.start >= self.base64_to
            && is_in_base64(text, end_before, start.start)
        {
            self.base64_to = start.start + text[start.start..].iter().take_while(|byte| is_base64(byte)).count();
        }
        if shape.behind != Behind::Base64Too && start.start < self.base64_to {
            return None;
        }
        let end = if start.start < self.last.end { end.max(self.last.end) } else { end };
        (self.last, self.end_before) = (start.start..end, end_before);
        Some(start.start..end)
    }

    /// A JSON Web Token: a header, a payload and whatever follows, with dots between. Of one that is cut off the payload will do.
    pub(super) fn web_token(&mut self, text: &[u8], from: usize) -> Option<Range<usize>> {
        const PART_BYTES_MIN: usize = 8;
        // Another beginning in front of the same dot has the same rest.
        if from < self.web_token_to {
            return None;
        }
        let dot = from + run(&text[from..], Tail::Dashed);
        self.web_token_to = dot;
        let behind = text[dot..].strip_prefix(b".").filter(|_| dot - from >= PART_BYTES_MIN + 3)?;
        let payload = run(behind, Tail::Dashed);
        let fits = payload >= PART_BYTES_MIN && (behind.get(payload) == Some(&b'.') || behind.starts_with(b"eyJ"));
        fits.then(|| {
            self.web_token_to = dot + 1 + run(behind, Tail::Dotted);
            from..self.web_token_to - dots_before(text, self.web_token_to)
        })
    }
}

/// Returns the end of the key that begins with `start`, or `None` if no key begins there.
fn tail_of(text: &[u8], start: Range<usize>, shape: &KeyShape) -> Option<usize> {
    static UUID: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$"));
    let rest = &text[start.end..];
    let near = &rest[..rest.len().min(RANDOM_BYTES_MAX.max(shape.tail_bytes_min + 1))];
    let tail = &near[..run(near, shape.tail)];
    if tail.len() < shape.tail_bytes_min || shape.tail_bytes_max.is_some_and(|max| tail.len() > max) {
        return None;
    }
    let is_fit = match shape.behind {
        Behind::Anything | Behind::Base64Too => true,
        Behind::NoWord => begins_word(text, start.start),
        Behind::WordIfRandom => {
            // Words end in small letters: `task-`, `risk-`.
            let is_word = text[..start.start].last().is_some_and(u8::is_ascii_lowercase);
            let is_named = || KNOWN_PARTS.iter().any(|part| tail.starts_with(part));
            (begins_word(text, start.start) && (is_named() || has_signs(tail)))
                || (!is_word && any_run(tail, |run, _| run.len() >= 16))
                || looks_random(tail)
        }
    };
    (is_fit && (shape.tail != Tail::Uuid || UUID.is_match(tail))).then(|| {
        let end = start.end + run(rest, shape.tail);
        end - if matches!(shape.tail, Tail::Dotted | Tail::Padded) { dots_before(text, end) } else { 0 }
    })
}

fn is_base64(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/')
}

/// Bytes in front of a beginning that are read: more of them are Base64.
const BASE64_BYTES_MAX: usize = 4_096;

/// Fewest bytes of Base64 in front of a beginning, and fewest of them without `+` and `/`.
const BASE64_BYTES_MIN: usize = 20;
const BASE64_RUN_BYTES_MIN: usize = 16;

/// Whether Base64 began in front of `at`, and goes on there: an image may hold anything that a key begins with. A path is not
/// Base64, and a key behind a `/` is a word of its own. Nothing in front of `floor` is read.
fn is_in_base64(text: &[u8], floor: usize, at: usize) -> bool {
    let front = &text[floor..at];
    let bytes = front.iter().rev().take(BASE64_BYTES_MAX).take_while(|byte| is_base64(byte)).count();
    let (before, base64) = front.split_at(front.len() - bytes);
    if before.ends_with(b"base64,") || bytes == BASE64_BYTES_MAX {
        return true;
    }
    let goes_on = base64.last().is_some_and(|last| *last != b'/') || bytes >= 10 * BASE64_BYTES_MIN;
    let is_dense = || any_run(base64, |run, has| run.len() >= BASE64_RUN_BYTES_MIN && has == [true; 3]);
    goes_on && bytes >= BASE64_BYTES_MIN && is_dense()
}

fn is_of(tail: Tail, byte: u8) -> bool {
    match tail {
        Tail::Alnum => byte.is_ascii_alphanumeric(),
        Tail::Word => byte.is_ascii_alphanumeric() || byte == b'_',
        Tail::Dashed => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'),
        Tail::Dotted => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'),
        Tail::Padded => byte == b'=' || is_of(Tail::Dotted, byte),
        Tail::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
        Tail::Capitals => byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'-',
        Tail::Uuid => byte.is_ascii_hexdigit() || byte == b'-',
        Tail::Hex => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        Tail::Base64 => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'/' | b'='),
    }
}

/// Second parts of keys of OpenAI, Anthropic and OpenRouter.
const KNOWN_PARTS: [&[u8]; 4] = [b"proj-", b"ant-", b"svcacct-", b"or-"];

/// Whether `is` holds for any letters and digits in one piece, and for whether digits, capitals and small letters are in them.
fn any_run(tail: &[u8], is: impl Fn(&[u8], [bool; 3]) -> bool) -> bool {
    tail.split(|byte| !byte.is_ascii_alphanumeric()).any(|run| {
        let has = [u8::is_ascii_digit, u8::is_ascii_uppercase, u8::is_ascii_lowercase].map(|is| run.iter().any(is));
        is(run, has)
    })
}

/// Whether a tail is more than words with dashes between them: `sk-button-primary-large` is the name of a class.
fn has_signs(tail: &[u8]) -> bool {
    any_run(tail, |run, [digit, upper, lower]| run.len() >= 16 || (run.len() >= 8 && (digit || (upper && lower))))
}

/// Whether letters and digits are mixed as no word of a language has them.
fn looks_random(tail: &[u8]) -> bool {
    any_run(tail, |run, has| match has.into_iter().filter(|has| *has).count() {
        3 => run.len() >= 12,
        2 => run.len() >= 20 && !run.iter().all(u8::is_ascii_hexdigit),
        _ => false,
    })
}

/// Whether a word begins at `at`: nothing of a word stands in front, or an escape sequence ends there.
fn begins_word(text: &[u8], at: usize) -> bool {
    let Some(last) = at.checked_sub(1).map(|last| text[last]) else { return true };
    !(last.is_ascii_alphanumeric() || last == b'_') || ends_escape(text, at)
}

/// Longest escape that is looked for in front of a word, in bytes.
const ESCAPE_BYTES_MAX: usize = 20;

/// Whether an escape ends at `at`: `\n` in two characters, `\u001b`, `\x1b`, `%20`, or the end of a colour (`ESC[32m`, of which
/// the ESC may be written in any way).
pub(super) fn ends_escape(text: &[u8], at: usize) -> bool {
    static ESCAPE: LazyLock<Regex> = LazyLock::new(|| {
        pattern(r"(?:\\[nrtbfvae0]|%[\da-fA-F]{2}|\\x[\da-fA-F]{2}|\\033|\\u[\da-fA-F]{4}|\[[\d;]{0,16}[A-Za-z])$")
    });
    ESCAPE.is_match(&text[at.saturating_sub(ESCAPE_BYTES_MAX)..at])
}

/// Returns the length of the bytes of a key at the start of a text.
fn run(text: &[u8], tail: Tail) -> usize {
    text.iter().take_while(|byte| is_of(tail, **byte)).count()
}

/// A dot at the end is not part of a key.
fn dots_before(text: &[u8], end: usize) -> usize {
    text[..end].iter().rev().take_while(|byte| **byte == b'.').count()
}

/// Bytes around the first dot of a key that are looked at.
const BEFORE_DOT_BYTES: usize = 41;
const BEHIND_DOT_BYTES: usize = 300;

/// Whether a dot may be the first one of a key that is known by the places of its dots: of a bot of Discord, of Harness, Zoho or
/// Airtable.
fn may_begin_dotted(text: &[u8], at: usize) -> bool {
    let is_dot = |bytes: usize| text.get(at + bytes) == Some(&b'.');
    let behind = |bytes: usize| at.checked_sub(bytes).map_or(&text[..0], |from| &text[from..at]);
    is_dot(7)
        || (is_dot(23) && matches!(behind(3), b"pat" | b"sat"))
        || (is_dot(33) && behind(4) == b"1000")
        || behind(17).starts_with(b"pat")
}

/// Whether a text holds a dot as a key has it that is known by its dots.
pub(super) fn may_hold_dotted(text: &[u8]) -> bool {
    memchr::memchr_iter(b'.', text).any(|at| may_begin_dotted(text, at))
}

/// Adds where keys stand that are known by the places of their dots.
pub(super) fn dotted(text: &[u8], spans: &mut Vec<Range<usize>>) {
    static DOTTED: LazyLock<Regex> = LazyLock::new(|| {
        pattern(concat!(
            r"[MNO][\w-]{22,40}\.[\w-]{6}\.[\w-]{27,}",
            r"|(?:(?:pat|sat)\.[\w-]{22}\.[A-Za-z0-9]{24}\.[\w-]{20}|1000\.[0-9a-f]{32}\.[0-9a-f]{32}|pat[A-Za-z0-9]{14}\.[0-9a-f]{64})\b"
        ))
    });
    let mut to = 0;
    for at in memchr::memchr_iter(b'.', text) {
        if at >= to && may_begin_dotted(text, at) {
            let from = to.max(at.saturating_sub(BEFORE_DOT_BYTES));
            let near = &text[from..text.len().min(at + BEHIND_DOT_BYTES)];
            let Some(found) = DOTTED.find(near).map(|found| from + found.start()..from + found.end()) else { continue };
            if matches!(text[found.start], b'M' | b'N' | b'O') || begins_word(text, found.start) {
                to = found.end;
                spans.push(found);
            }
        }
    }
}

/// Longest user name and password in an address, in bytes.
const USER_BYTES_MAX: usize = 1_024;

/// Shortest user name in an address that counts as a token, in bytes.
const TOKEN_BYTES_MIN: usize = 20;

/// Bytes in front of the last line of a block that are read if its first line is missing.
const HEADLESS_BYTES_MAX: usize = 16 << 10;

/// Adds where private keys stand, also those that PuTTY keeps: the lines behind `Private-Lines: N`.
pub(super) fn private_keys(text: &[u8], spans: &mut Vec<Range<usize>>) {
    // Five dashes, and not those of the next boundary that follows at once.
    static BOUNDARY: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?s)-{4,5} ?(BEGIN|END) (.{0,60}?)-{4,5}"));
    static BODY: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[A-Za-z0-9\s+/=\\:,.-]*"));
    static PUTTY: LazyLock<Regex> = LazyLock::new(|| pattern(r"Private-Lines:[^\n]*\n([A-Za-z0-9+/=\r\n]*)"));
    // A block whose last line is missing ends with the first byte that no block holds. Layout behind it stays.
    let cut_off = |begin: Range<usize>, to: usize| {
        let body = BODY.find(&text[begin.end..to]).map_or(&[][..], |body| body.as_bytes());
        begin.start..begin.end + body.trim_ascii_end().len()
    };
    let (mut begun, mut floor) = (None::<Range<usize>>, 0);
    for found in BOUNDARY.captures_iter(text) {
        let boundary = found.get_match().range();
        let is_key = memmem::find(&found[2], b"PRIVATE KEY").is_some();
        let is_begin = &found[1] == b"BEGIN";
        match begun.take() {
            Some(begin) if is_key && !is_begin => spans.push(begin.start..boundary.end),
            Some(begin) => spans.push(cut_off(begin, boundary.start)),
            None if is_key && !is_begin => {
                let near = &text[floor.max(boundary.start.saturating_sub(HEADLESS_BYTES_MAX))..boundary.start];
                let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+/=\\\r\n".contains(byte);
                let bytes = near.iter().rev().take_while(is_part).count();
                spans.extend((bytes >= TOKEN_BYTES_MIN).then(|| boundary.start - bytes..boundary.end));
            }
            None => {}
        }
        floor = boundary.end;
        begun = (is_key && is_begin).then_some(boundary);
    }
    spans.extend(begun.map(|begin| cut_off(begin, text.len())));
    spans.extend(PUTTY.captures_iter(text).filter_map(|found| Some(found.get(1)?.range())));
}

/// Adds where passwords stand in addresses, and tokens in the place of a name: `scheme://name:password@host`.
pub(super) fn addresses(text: &[u8], spans: &mut Vec<Range<usize>>) {
    if memchr::memchr(b'@', text).is_none() {
        return;
    }
    static SCHEME: LazyLock<Regex> = LazyLock::new(|| pattern(r"[A-Za-z0-9+.-]:(?:\\?/){2}"));
    let mut at = 0;
    while let Some(scheme) = SCHEME.find_at(text, at) {
        let secret = in_address(text, scheme.end());
        at = secret.as_ref().map_or(scheme.end(), |secret| secret.end);
        spans.extend(secret);
    }
}

/// The password, or the name if it is a token, of an address whose authority begins at `from`.
fn in_address(text: &[u8], from: usize) -> Option<Range<usize>> {
    let near = &text[from..text.len().min(from + USER_BYTES_MAX)];
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"\"'<>`\\\x1b".contains(byte);
    let word = &near[..near.iter().position(is_end).unwrap_or(near.len())];
    let authority = &word[..memchr::memchr(b'/', word).unwrap_or(word.len())];
    let first = memchr::memchr2(b':', b'@', authority)?;
    let behind = first + 1;
    let host_at = if authority[first] == b'@' {
        let user = &authority[..first];
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'%');
        let is_token = user.len() >= TOKEN_BYTES_MIN && user.iter().all(is_word) && user.iter().any(u8::is_ascii_digit);
        return is_token.then(|| from..from + first);
    } else if let Some(at) = memchr::memchr(b'@', &authority[behind..]).map(|at| behind + at) {
        // The last one, unless `,`, `;` or `?` stands between it and the first.
        let more = authority[at..].split(|byte| b",;?".contains(byte)).next().unwrap_or_default();
        at + memchr::memrchr(b'@', more).unwrap_or_default()
    } else if authority[behind..].iter().all(u8::is_ascii_digit) || memmem::find(word, b"://").is_some() {
        // A port is a number.
        return None;
    } else {
        // A password may hold a slash.
        memchr::memrchr(b'@', word)?
    };
    (host_at > behind).then(|| from + behind..from + host_at)
}
