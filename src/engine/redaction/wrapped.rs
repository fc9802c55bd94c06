//! What a program puts around the text of a value: `new String("x")`, `Some(String::from("x"))`, `b"x"`.

use super::judged::JUDGED_BYTES_MAX;
use super::quotes::{Quote, quote_at};

/// Functions and constructors that give back what they are given.
#[rustfmt::skip]
const CONSTRUCTORS: [&str; 18] = [
    "Some", "Ok", "Secret", "SecretString", "SecretStr", "SecretBox", "String", "str", "bytes", "Password", "ApiKey",
    "b64decode", "b64encode", "atob", "btoa", "bytearray", "Sensitive", "SecureString",
];

/// Those whose argument may stand without quotation marks.
const BARE: [&str; 3] = ["Some", "Secret", "SecretString"];

/// Functions that are given the name of a value.
#[rustfmt::skip]
const GETTERS: [&str; 26] = [
    "getenv", "env", "get", "environ", "getEnv", "var", "prop", "property", "getProperty", "config", "input", "prompt",
    "getpass", "split", "find", "replace", "strip", "format", "print", "log", "require", "load", "open", "read",
    "lookup", "t",
];

/// Constructors within each other that are looked through.
const WRAPPERS_MAX: usize = 3;

/// Shortest text of an unknown function that is a value, in bytes.
const TEXT_BYTES_MIN: usize = 8;

/// Returns the length of what stands around a value in quotation marks, and of the letter in `b"…"` and `$'…'`.
pub(super) fn wrapper(text: &[u8]) -> usize {
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
    let is_known = is_value && (quote_at(argument).is_some() || BARE.iter().any(&is) || is_nested());
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
