//! The strings and numbers of a JSON text with their positions, so that some can be replaced while all other bytes stay
//! the same.

use std::ops::Range;

/// A string or a number in a JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub kind: TokenKind,
    /// Range in the text, including the quotation marks of a string.
    pub range: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// The name of a member.
    Name,
    Text,
    Number,
}

/// The strings and numbers of `json`, in order. Input that is not valid JSON gives unspecified tokens, but never a
/// panic.
pub fn tokens(json: &str) -> impl Iterator<Item = Token> {
    let bytes = json.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let byte = *bytes.get(at)?;
            let from = at;
            match byte {
                b'"' => {
                    at = (string_end(bytes, at + 1) + 1).min(bytes.len());
                    let next = bytes[at..].iter().find(|byte| !byte.is_ascii_whitespace());
                    let kind = if next == Some(&b':') { TokenKind::Name } else { TokenKind::Text };
                    return Some(Token { kind, range: from..at });
                }
                b'-' | b'0'..=b'9' => {
                    let is_part = |byte: &&u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                    at += bytes[at..].iter().take_while(is_part).count();
                    return Some(Token { kind: TokenKind::Number, range: from..at });
                }
                _ => at += 1,
            }
        }
    })
}

/// The index of the quotation mark that ends the string whose first character is at `from`; the length of `json` if the
/// string does not end.
pub(super) fn string_end(json: &[u8], mut from: usize) -> usize {
    while let Some(found) = json.get(from..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        from += found;
        if json[from] == b'"' {
            return from;
        }
        from += 2;
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_strings_and_numbers_are_found() {
        let json = r#"{"a":"x\"y", "b" : [-1.5e3,true,"z"],"c":{"d":null}}"#;
        let seen: Vec<String> = tokens(json).map(|token| format!("{:?} {}", token.kind, &json[token.range])).collect();
        assert_eq!(
            seen,
            [
                r#"Name "a""#,
                r#"Text "x\"y""#,
                r#"Name "b""#,
                "Number -1.5e3",
                r#"Text "z""#,
                r#"Name "c""#,
                r#"Name "d""#
            ]
        );
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "[\\[\\]{}\",:\\\\ä0-9e.-]{0,80}") {
            for token in tokens(&text) {
                prop_assert!(text.get(token.range).is_some_and(|text| !text.is_empty()));
            }
        }
    }
}
