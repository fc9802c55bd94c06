//! Secrets known by their own shape: keys of services, private keys as PEM blocks, and passwords in addresses. One pass; each byte
//! is looked at a bounded number of times.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};
use memchr::memmem;

use super::automaton;
use super::middles::{self, MIDDLES};
use super::table::{Behind, KEY_SHAPES, KeyShape, PEM_IN_BASE64, Tail};

/// Bytes of a key that decide if it looks random.
const RANDOM_BYTES_MAX: usize = 96;

/// All beginnings, and the shape of each.
static STARTS: LazyLock<(AhoCorasick, Vec<&KeyShape>)> = LazyLock::new(|| {
    let all = KEY_SHAPES.iter().flat_map(|shape| shape.starts().map(move |start| (start, shape)));
    let (starts, shapes): (Vec<_>, Vec<_>) = all.unzip();
    // The longest: `EAAA`, and not `EAA`.
    let builder = AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostLongest)
        .kind(Some(AhoCorasickKind::DFA))
        .build(starts)
        .expect("BUG: the beginnings are few and short");
    (builder, shapes)
});

/// Each key holds one of these marks, except keys that are known by their dots.
pub(super) fn marks() -> impl Iterator<Item = &'static str> {
    KEY_SHAPES.iter().flat_map(KeyShape::starts).chain(MIDDLES.iter().map(|middle| middle.mark)).chain(OTHER_MARKS)
}

/// Marks of web tokens, of PEM blocks in Base64, and of private keys.
pub(super) const OTHER_MARKS: [&str; 4] = ["eyJ", PEM_IN_BASE64, "PRIVATE KEY", "Private-Lines:"];

/// Adds where keys stand.
pub(super) fn find(text: &[u8], spans: &mut Vec<Range<usize>>) {
    by_start(text, spans);
    middles::find_dotted(text, spans);
    let [web_token, base64, block, lines] = by_middle(text, spans);
    if web_token {
        web_tokens(text, spans);
    }
    if base64 {
        in_base64(text, spans);
    }
    if block || lines {
        private_keys(text, spans);
    }
    addresses(text, spans);
}

/// Adds where keys stand that have their mark in the middle. Returns which of [`OTHER_MARKS`] the text holds.
fn by_middle(text: &[u8], spans: &mut Vec<Range<usize>>) -> [bool; OTHER_MARKS.len()] {
    static MARKED: LazyLock<AhoCorasick> =
        LazyLock::new(|| automaton(MIDDLES.iter().map(|middle| middle.mark).chain(OTHER_MARKS)));
    let mut holds = [false; OTHER_MARKS.len()];
    for found in MARKED.find_overlapping_iter(text) {
        let mark = found.pattern().as_usize();
        match MIDDLES.get(mark) {
            Some(middle) => spans.extend(middle.key(text, found.range())),
            None => holds[mark - MIDDLES.len()] = true,
        }
    }
    holds
}

fn by_start(text: &[u8], spans: &mut Vec<Range<usize>>) {
    let (mut at, mut base64_to, mut key_end) = (0, 0, 0);
    let (starts, shapes) = &*STARTS;
    while let Some(found) = starts.find(Input::new(text).range(at..)) {
        let shape = shapes[found.pattern().as_usize()];
        at = match tail_of(text, found.range(), shape) {
            Some(_) if found.start() < base64_to => found.start() + 1,
            Some(_) if is_in_base64(text, key_end, found.start()) => {
                base64_to = found.start() + text[found.start()..].iter().take_while(|byte| is_base64(byte)).count();
                found.start() + 1
            }
            Some(end) => {
                key_end = end;
                spans.push(found.start()..end);
                if shape.tail == Tail::Upper {
                    spans.extend(secret_beside(text, end));
                }
                end
            }
            None => found.start() + 1,
        };
    }
}

/// Returns the end of the key that begins with `start`, or `None` if no key begins there.
fn tail_of(text: &[u8], start: Range<usize>, shape: &KeyShape) -> Option<usize> {
    let rest = &text[start.end..];
    let near = &rest[..rest.len().min(RANDOM_BYTES_MAX.max(shape.tail_bytes_min + 1))];
    let near_bytes = run(near, shape.tail);
    if near_bytes < shape.tail_bytes_min || shape.tail_bytes_max.is_some_and(|max| near_bytes > max) {
        return None;
    }
    if shape.tail == Tail::Uuid && !is_uuid(&near[..near_bytes]) {
        return None;
    }
    let is_fit = match shape.behind {
        Behind::Anything => true,
        Behind::NoWord => begins_word(text, start.start),
        Behind::WordIfRandom => {
            let tail = &near[..near_bytes];
            // Words end in small letters: `task-`, `risk-`.
            let is_word = text[..start.start].last().is_some_and(u8::is_ascii_lowercase);
            let is_named = || KNOWN_PARTS.iter().any(|part| tail.starts_with(part));
            let begins = begins_word(text, start.start);
            (begins && (is_named() || has_signs(tail)))
                || (!is_word && any_run(tail, |run, _| run.len() >= 16))
                || looks_random(tail)
        }
    };
    is_fit.then(|| {
        let end = start.end + run(rest, shape.tail);
        end - if matches!(shape.tail, Tail::Dotted | Tail::Padded) { dots_before(text, end) } else { 0 }
    })
}

/// Whether digits and dashes are those of a UUID.
fn is_uuid(text: &[u8]) -> bool {
    text.len() == 36 && (0..36).all(|at| (text[at] == b'-') == matches!(at, 8 | 13 | 18 | 23))
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
    let (before, run) = front.split_at(front.len() - bytes);
    if before.ends_with(b"base64,") || bytes == BASE64_BYTES_MAX {
        return true;
    }
    let is_dense = |run: &[u8]| {
        let mut pieces = run.split(|byte| !byte.is_ascii_alphanumeric());
        let is_mixed = |piece: &[u8]| {
            [u8::is_ascii_digit, u8::is_ascii_uppercase, u8::is_ascii_lowercase].iter().all(|is| piece.iter().any(is))
        };
        pieces.any(|piece| piece.len() >= BASE64_RUN_BYTES_MIN && is_mixed(piece))
    };
    let goes_on = run.last().is_some_and(|last| *last != b'/') || run.len() >= 10 * BASE64_BYTES_MIN;
    goes_on && run.len() >= BASE64_BYTES_MIN && is_dense(run)
}

pub(super) fn is_of(tail: Tail, byte: u8) -> bool {
    match tail {
        Tail::Digit => byte.is_ascii_digit(),
        Tail::Alnum => byte.is_ascii_alphanumeric(),
        Tail::Word => byte.is_ascii_alphanumeric() || byte == b'_',
        Tail::Dashed => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'),
        Tail::Dotted => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'),
        Tail::Padded => byte == b'=' || is_of(Tail::Dotted, byte),
        Tail::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
        Tail::Capitals => byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'-',
        Tail::Uuid => byte.is_ascii_hexdigit() || byte == b'-',
        Tail::Hex => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        Tail::Signs => is_base64(&byte),
        Tail::Base64 => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'/' | b'='),
    }
}

/// Second parts of keys of OpenAI, Anthropic and OpenRouter.
const KNOWN_PARTS: [&[u8]; 4] = [b"proj-", b"ant-", b"svcacct-", b"or-"];

/// Whether `is` holds for any letters and digits in one piece, by their number and by digits, capitals and small letters in them.
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
pub(super) fn begins_word(text: &[u8], at: usize) -> bool {
    let Some(last) = at.checked_sub(1).map(|last| text[last]) else { return true };
    !(last.is_ascii_alphanumeric() || last == b'_') || ends_escape(text, at)
}

/// Whether an escape ends at `at`: `\n` in two characters, `\u001b`, `\x1b`, `%20`, or the end of a colour (`ESC[32m`, of which
/// the ESC may be written in any way).
pub(super) fn ends_escape(text: &[u8], at: usize) -> bool {
    let back = |bytes: usize| at.checked_sub(bytes).map_or(&text[..0], |from| &text[from..at]);
    let is_hex = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_hexdigit);
    let is_colour = || {
        let Some((b'A'..=b'Z' | b'a'..=b'z', front)) = text[..at].split_last().map(|(last, front)| (*last, front))
        else {
            return false;
        };
        let codes = front.iter().rev().take(16).take_while(|byte| byte.is_ascii_digit() || **byte == b';').count();
        front[..front.len() - codes].last() == Some(&b'[')
    };
    matches!(back(2), [b'\\', b'n' | b'r' | b't' | b'b' | b'f' | b'v' | b'a' | b'e' | b'0'])
        || matches!(back(3), [b'%', hex @ ..] if is_hex(hex))
        || matches!(back(4), [b'\\', b'x', hex @ ..] if is_hex(hex))
        || matches!(back(4), [b'\\', b'0', b'3', b'3'])
        || matches!(back(6), [b'\\', b'u', hex @ ..] if is_hex(hex))
        || is_colour()
}

/// The secret of AWS right behind the id of its key, as in a row of CSV or a table.
fn secret_beside(text: &[u8], end: usize) -> Option<Range<usize>> {
    let rest = &text[end..];
    let between = rest.iter().take(8).take_while(|byte| b" \t,:;|\"'\r\n".contains(byte)).count();
    let secret = &rest[between..];
    let bytes =
        secret.iter().take(41).take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'+')).count();
    (between > 0 && bytes == 40).then(|| end + between..end + between + bytes)
}

/// Returns the length of the bytes of a key at the start of a text.
fn run(text: &[u8], tail: Tail) -> usize {
    text.iter().take_while(|byte| is_of(tail, **byte)).count()
}

/// JSON Web Tokens: a header, a payload and whatever follows, with dots between. Of one that is cut off the payload will do.
fn web_tokens(text: &[u8], spans: &mut Vec<Range<usize>>) {
    const PART_BYTES_MIN: usize = 8;
    let mut at = 0;
    for found in memmem::find_iter(text, b"eyJ") {
        // Another beginning in front of the same dot has the same rest.
        if found < at {
            continue;
        }
        let dot = found + run(&text[found..], Tail::Dashed);
        at = dot;
        let Some(behind) = text[dot..].strip_prefix(b".").filter(|_| dot - found >= PART_BYTES_MIN + 3) else {
            continue;
        };
        let payload = run(behind, Tail::Dashed);
        if payload >= PART_BYTES_MIN && (behind.get(payload) == Some(&b'.') || behind.starts_with(b"eyJ")) {
            at = dot + 1 + run(behind, Tail::Dotted);
            spans.push(found..at - dots_before(text, at));
        }
    }
}

/// A dot at the end is not part of a key.
fn dots_before(text: &[u8], end: usize) -> usize {
    text[..end].iter().rev().take_while(|byte| **byte == b'.').count()
}

/// PEM blocks in Base64.
fn in_base64(text: &[u8], spans: &mut Vec<Range<usize>>) {
    let mut at = 0;
    for found in memmem::find_iter(text, PEM_IN_BASE64.as_bytes()) {
        if found >= at {
            at = found + run(&text[found..], Tail::Base64);
            spans.push(found..at);
        }
    }
}

/// Longest name of a block between its dashes, in bytes.
const LABEL_BYTES_MAX: usize = 64;

/// Longest user name and password in an address, in bytes.
const USER_BYTES_MAX: usize = 1_024;

/// Shortest user name in an address that counts as a token, in bytes.
const TOKEN_BYTES_MIN: usize = 20;

/// Bytes in front of the last line of a block that are read if its first line is missing.
const HEADLESS_BYTES_MAX: usize = 16 << 10;

/// The second one as JSON of some writers has it.
static ADDRESS: LazyLock<AhoCorasick> = LazyLock::new(|| automaton(["://", ":\\/\\/"]));

/// Whether a text may hold an address with a name in it.
pub(super) fn may_hold_address(text: &[u8]) -> bool {
    memchr::memchr(b'@', text).is_some() && ADDRESS.is_match(text)
}

/// Adds where private keys stand.
fn private_keys(text: &[u8], spans: &mut Vec<Range<usize>>) {
    if memmem::find(text, b"Private-Lines:").is_some() {
        putty_keys(text, spans);
    }
    let mut begun: Option<usize> = None;
    for Boundary { range, is_key, is_begin } in boundaries(text) {
        let open = begun.take();
        if is_key && !is_begin {
            spans.extend(open.or_else(|| headless(text, range.start)).map(|open| open..range.end));
        } else {
            spans.extend(open.map(|open| open..cut_off(&text[..range.start], open)));
            begun = is_key.then_some(range.start);
        }
    }
    spans.extend(begun.map(|open| open..cut_off(text, open)));
}

/// `-----BEGIN …-----` or `-----END …-----`.
struct Boundary {
    range: Range<usize>,
    /// Of a private key.
    is_key: bool,
    is_begin: bool,
}

/// The boundaries of all blocks, in order.
fn boundaries(text: &[u8]) -> impl Iterator<Item = Boundary> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let from = at + memmem::find(&text[at..], b"----")?;
            at = from + text[from..].iter().take_while(|byte| **byte == b'-').count();
            // Of more dashes than five, the first ones are something else's: a diff has one in front.
            let from = at.saturating_sub(5).max(from);
            let rest = text[at..].strip_prefix(b" ").unwrap_or(&text[at..]);
            let is_begin = rest.starts_with(b"BEGIN ");
            let label = &rest[..rest.len().min(LABEL_BYTES_MAX)];
            let Some(bytes) = memmem::find(label, b"----").filter(|_| is_begin || rest.starts_with(b"END ")) else {
                continue;
            };
            // Five dashes, and not those of the next boundary that follows at once.
            let dashes = rest[bytes..].iter().take(5).take_while(|byte| **byte == b'-').count();
            at = text.len() - rest.len() + bytes + dashes;
            let is_key = memmem::find(&label[..bytes], b"PRIVATE KEY").is_some();
            return Some(Boundary { range: from..at, is_key, is_begin });
        }
    })
}

/// Returns the end of a block whose last line is missing: the first byte that no block holds.
fn cut_off(text: &[u8], open: usize) -> usize {
    let label_end = memmem::find(&text[open + 5..], b"----").map_or(text.len(), |found| open + 5 + found);
    let label_end = label_end + text[label_end..].iter().take(5).take_while(|byte| **byte == b'-').count();
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || byte.is_ascii_whitespace() || b"+/=\\:,.-".contains(byte);
    let mut end = label_end + text[label_end..].iter().take_while(|byte| is_part(byte)).count();
    // Layout behind it stays.
    while end > label_end && text[end - 1].is_ascii_whitespace() {
        end -= 1;
    }
    end
}

/// Returns the start of a block whose first line is missing: the lines of Base64 in front of its last line.
fn headless(text: &[u8], end: usize) -> Option<usize> {
    let floor = end.saturating_sub(HEADLESS_BYTES_MAX);
    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+/=\\\r\n".contains(byte);
    let bytes = text[floor..end].iter().rev().take_while(is_part).count();
    (bytes >= TOKEN_BYTES_MIN).then(|| end - bytes)
}

/// Keys as PuTTY keeps them: the lines behind `Private-Lines: N`.
fn putty_keys(text: &[u8], spans: &mut Vec<Range<usize>>) {
    let mut line = 0;
    for found in memmem::find_iter(text, b"Private-Lines:") {
        // Several marks in one line have the same lines behind them; reading on for each would be quadratic.
        if found < line {
            continue;
        }
        let Some(end) = memchr::memchr(b'\n', &text[found..]) else { return };
        line = found + end + 1;
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=\r\n".contains(byte);
        let bytes = text[line..].iter().take(HEADLESS_BYTES_MAX).take_while(|byte| is_part(byte)).count();
        spans.push(line..line + bytes);
    }
}

/// Adds where passwords stand in addresses, and tokens in the place of a name: `scheme://name:password@host`.
fn addresses(text: &[u8], spans: &mut Vec<Range<usize>>) {
    if memchr::memchr(b'@', text).is_none() {
        return;
    }
    let mut at = 0;
    for found in ADDRESS.find_iter(text).filter(|found| found.start() > 0) {
        let scheme_end = text[found.start() - 1];
        if found.start() >= at && (scheme_end.is_ascii_alphanumeric() || b"+.-".contains(&scheme_end)) {
            let secret = in_address(text, found.end());
            at = secret.as_ref().map_or(at, |secret| secret.end);
            spans.extend(secret);
        }
    }
}

/// The password, or the name if it is a token, of an address whose authority begins at `from`.
fn in_address(text: &[u8], from: usize) -> Option<Range<usize>> {
    let near = &text[from..text.len().min(from + USER_BYTES_MAX)];
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"\"'<>`\\\x1b".contains(byte);
    let word = &near[..near.iter().position(is_end).unwrap_or(near.len())];
    let slash = memchr::memchr(b'/', word).unwrap_or(word.len());
    let authority = &word[..slash];
    let colon = memchr::memchr(b':', authority);
    let Some(colon) = colon.filter(|colon| memchr::memchr(b'@', &authority[..*colon]).is_none()) else {
        let user = &authority[..memchr::memchr(b'@', authority)?];
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'%');
        let is_token = user.len() >= TOKEN_BYTES_MIN && user.iter().all(is_word) && user.iter().any(u8::is_ascii_digit);
        return is_token.then(|| from..from + user.len());
    };
    let host_at = match memchr::memrchr(b'@', authority) {
        Some(_) => password_end(authority, colon)?,
        // A password may hold a slash; a port is a number.
        None => {
            let port = &authority[colon + 1..];
            if port.iter().all(u8::is_ascii_digit) || memmem::find(word, b"://").is_some() {
                return None;
            }
            memchr::memrchr(b'@', word)?
        }
    };
    (host_at > colon + 1).then(|| from + colon + 1..from + host_at)
}

/// Returns the place of the `@` in front of the host: the last one, unless `,`, `;` or `?` stands between it and the first.
fn password_end(authority: &[u8], colon: usize) -> Option<usize> {
    let first = colon + 1 + memchr::memchr(b'@', &authority[colon + 1..])?;
    let goes_on =
        authority[first..].iter().position(|byte| b",;?".contains(byte)).map_or(authority.len(), |at| first + at);
    memchr::memrchr(b'@', &authority[..goes_on])
}
