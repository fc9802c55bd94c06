//! Whether a value behind the name of a secret is one, or a word, a number, or an expression of a program.

use std::ops::Range;

use super::assigned::Name;
use super::names::word_names_secret;
use super::table::WORDS_OF_CODE;

/// Longest value that is judged as a program or a sentence, in bytes: longer ones are secrets, and are not looked at again.
pub(super) const JUDGED_BYTES_MAX: usize = 128;

/// Whether what follows a name is a sentence: a small word, and another one.
pub(super) fn is_prose(word: &[u8], rest: &[u8]) -> bool {
    let is_word = |word: &[u8]| (1..JUDGED_BYTES_MAX).contains(&word.len()) && word.iter().all(u8::is_ascii_lowercase);
    let rest = &rest[..rest.len().min(JUDGED_BYTES_MAX)];
    let next = rest.trim_ascii_start();
    is_word(word)
        && next.len() < rest.len()
        && next.first().is_some_and(|first| first.is_ascii_alphabetic() || *first == b'`')
        && !is_next_name(next)
}

/// Whether a word is the name of the next value: `password: abc user: bob`.
fn is_next_name(next: &[u8]) -> bool {
    let word = next.iter().take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')).count();
    matches!(next.get(word), Some(b':' | b'='))
}

/// Whether one word behind a name and `: ` says something about the name: `token: identifier`, `missing secret: DATABASE_URL`.
/// A password may be any word, and so may the value of a name that says more than what sort of thing it names.
pub(super) fn is_remark(name: &[u8], value: &[u8]) -> bool {
    const SORTS: [&[u8]; 9] = [
        b"token",
        b"tokens",
        b"auth",
        b"authorization",
        b"secret",
        b"secrets",
        b"credential",
        b"credentials",
        b"cookies",
    ];
    let is_word = value.len() <= 24 && value.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'-');
    let is_constant = value.contains(&b'_') && value.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'_');
    SORTS.contains(&name) && (is_word || is_constant)
}

pub(super) fn is_small_number(value: &[u8]) -> bool {
    value.len() <= 9
        && value.first().is_some_and(u8::is_ascii_digit)
        && value.iter().all(|byte| byte.is_ascii_digit() || b"._,%".contains(byte))
}

/// Whether a value only says where the secret is, or that there is none.
pub(super) fn is_open(value: &[u8]) -> bool {
    let wrapped = |front: &[u8], back: &[u8]| {
        value.len() >= front.len() + back.len() && value.starts_with(front) && value.ends_with(back)
    };
    let is_name = |name: &[u8]| {
        name.len() > 1 && name.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_')
    };
    let inner = |front: usize, back: usize| &value[front..value.len() - back];
    const WORDS: [&str; 19] = [
        "inherit",
        "read",
        "write",
        "true",
        "false",
        "null",
        "none",
        "nil",
        "undefined",
        "yes",
        "no",
        "on",
        "off",
        "redacted",
        "hidden",
        "sensitive",
        "required",
        "optional",
        "()",
    ];
    let is_row = |of: &[u8]| value.len() >= 3 * of.len() && value.chunks(of.len()).all(|sign| sign == of);
    [&b"*"[..], b".", b"-", b"x", b"X", b"#", "•".as_bytes()].into_iter().any(is_row)
        || WORDS.iter().any(|word| value.eq_ignore_ascii_case(word.as_bytes()))
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

/// Whether a value is a word that settings of tokens and credentials take: `credentials: "include"`.
pub(super) fn is_setting(value: &[u8]) -> bool {
    matches!(value, b"include" | b"omit" | b"same-origin" | b"enabled" | b"disabled")
}

/// Whether a value is the path of a file that holds a secret: `/etc/ssl/key.pem`, `./key.json`.
fn is_file(value: &[u8]) -> bool {
    const ENDS: [&[u8]; 22] = [
        b"pem", b"key", b"crt", b"cer", b"cert", b"p12", b"pfx", b"jks", b"der", b"ppk", b"gpg", b"asc", b"pub",
        b"age", b"json", b"yaml", b"yml", b"toml", b"txt", b"env", b"conf", b"ini",
    ];
    const ROOTS: [&[u8]; 9] =
        [b"/etc/", b"/var/", b"/home/", b"/Users/", b"/usr/", b"/opt/", b"/root/", b"/run/", b"/tmp/"];
    let is_sign = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-~".contains(byte);
    let end = value.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
    let is_root = || ROOTS.iter().any(|root| value.starts_with(root));
    value.contains(&b'/')
        && value.len() <= JUDGED_BYTES_MAX
        && value.iter().all(is_sign)
        && (ENDS.contains(&end) || is_root())
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
pub(super) fn is_code(text: &[u8], name: &Name, span: Range<usize>) -> bool {
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
    let of_other = [
        &b"self."[..],
        b"this.",
        b"process.env",
        b"os.",
        b"env.",
        b"config.",
        b"settings.",
        b"var.",
        b"local.",
        b"module.",
        b"secrets.",
        b"args.",
        b"req.",
        b"request.",
        b"ctx.",
        b"params.",
        b"opts.",
        b"options.",
        b"props.",
        b"vars.",
    ];
    let is_type =
        WORDS_OF_CODE.iter().any(|word| plain == word.as_bytes()) || (next == Some(b'<') && word == value.len());
    let is_own_name = value.eq_ignore_ascii_case(&text[name.range.clone()]);
    let is_other_name = !value.iter().any(u8::is_ascii_digit)
        && value.contains(&b'_')
        && std::str::from_utf8(value).is_ok_and(|value| {
            value.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') && word_names_secret(value)
        });
    is_call || is_type || is_own_name || is_other_name || of_other.iter().any(|other| plain.starts_with(other))
}
