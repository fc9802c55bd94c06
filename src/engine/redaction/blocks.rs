//! Private keys as PEM blocks, and passwords in addresses.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, Input};
use memchr::memmem;

/// Longest name of a block between its dashes, in bytes.
const LABEL_BYTES_MAX: usize = 64;

/// Longest user name and password in an address, in bytes.
const USER_BYTES_MAX: usize = 1_024;

/// Shortest user name in an address that counts as a token, in bytes.
const TOKEN_BYTES_MIN: usize = 20;

/// Bytes in front of the last line of a block that are read if its first line is missing.
const HEADLESS_BYTES_MAX: usize = 16 << 10;

static ADDRESS: LazyLock<AhoCorasick> =
    LazyLock::new(|| AhoCorasick::new(["://", ":\\/\\/"]).expect("BUG: the marks are few and short"));

/// Marks of which every private key holds one.
pub(super) const MARKS: [&str; 2] = ["PRIVATE KEY", "Private-Lines:"];

/// Whether a text may hold an address with a name in it.
pub(super) fn may_hold_address(text: &[u8]) -> bool {
    memchr::memchr(b'@', text).is_some() && ADDRESS.is_match(text)
}

/// Adds where private keys stand.
pub(super) fn private_keys(text: &[u8], spans: &mut Vec<Range<usize>>) {
    if memmem::find(text, b"Private-Lines:").is_some() {
        putty_keys(text, spans);
    }
    if memmem::find(text, b"PRIVATE KEY").is_none() {
        return;
    }
    let mut at = 0;
    let mut begun: Option<usize> = None;
    let mut block_end = 0;
    // Every boundary once: `-----BEGIN … PRIVATE KEY…-----` or `-----END …`.
    while let Some((from, end, kind)) = boundary(text, at) {
        at = end;
        match (kind, begun.take()) {
            (Boundary::Begin, open) => {
                if let Some(open) = open {
                    spans.push(open..cut_off(&text[..from], open));
                }
                begun = Some(from);
            }
            (Boundary::End, Some(open)) => {
                spans.push(open..end);
                block_end = end;
            }
            (Boundary::End, None) => {
                if let Some(start) = headless(text, block_end, from) {
                    spans.push(start..end);
                }
                block_end = end;
            }
            (Boundary::Other, Some(open)) => {
                spans.push(open..cut_off(&text[..from], open));
                block_end = from;
            }
            (Boundary::Other, None) => {}
        }
    }
    if let Some(open) = begun {
        spans.push(open..cut_off(text, open));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Boundary {
    Begin,
    End,
    /// Of something that is not a private key.
    Other,
}

/// The next boundary of a block.
fn boundary(text: &[u8], from: usize) -> Option<(usize, usize, Boundary)> {
    let mut at = from;
    loop {
        let dashes = at + memmem::find(&text[at..], b"----")?;
        let dashes_end = dashes + text[dashes..].iter().take_while(|byte| **byte == b'-').count();
        let rest = text[dashes_end..].strip_prefix(b" ").unwrap_or(&text[dashes_end..]);
        let (is_begin, is_end) = (rest.starts_with(b"BEGIN "), rest.starts_with(b"END "));
        let label = &rest[..rest.len().min(LABEL_BYTES_MAX)];
        if (is_begin || is_end)
            && let Some(label_bytes) = memmem::find(label, b"----")
        {
            let label_at = text.len() - rest.len();
            let label = &text[label_at..label_at + label_bytes];
            let end = label_at + label_bytes;
            // Five dashes, and not those of the next boundary that follows at once.
            let end = end + text[end..].iter().take(5).take_while(|byte| **byte == b'-').count();
            let kind = match (memmem::find(label, b"PRIVATE KEY").is_some(), is_begin) {
                (true, true) => Boundary::Begin,
                (true, false) => Boundary::End,
                (false, _) => Boundary::Other,
            };
            // Of more dashes than five, the first ones are something else's: a diff has one in front.
            return Some((dashes_end.saturating_sub(5).max(dashes), end, kind));
        }
        at = dashes_end;
    }
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
fn headless(text: &[u8], from: usize, end: usize) -> Option<usize> {
    let floor = from.max(end.saturating_sub(HEADLESS_BYTES_MAX));
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
pub(super) fn addresses(text: &[u8], spans: &mut Vec<Range<usize>>) {
    if memchr::memchr(b'@', text).is_none() {
        return;
    }
    let mut at = 0;
    // As JSON of some writers has it, too.
    while let Some((found, end)) = ADDRESS.find(Input::new(text).range(at..)).map(|found| (found.start(), found.end()))
    {
        at = end;
        let is_scheme = found > 0 && (text[found - 1].is_ascii_alphanumeric() || b"+.-".contains(&text[found - 1]));
        if !is_scheme {
            continue;
        }
        if let Some(secret) = in_address(text, at) {
            at = secret.end;
            spans.push(secret);
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
