//! The tokens of a JSON text that carry a value or a name, with where they stand, so that some can be replaced and all
//! else stay as it was written.

use std::ops::Range;

/// A string or a number in a JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: TokenKind,
    /// Where it stands; of a string, with its quotation marks.
    pub range: Range<usize>,
}

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// The name of a member.
    Name,
    /// A string.
    Text,
    /// A number.
    Number,
}

/// The strings and numbers of `json`, in order. The text is taken as JSON: of something else it gives something, and
/// never panics.
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

/// The index of the quotation mark that ends the string whose first character is at `from`; the length of `json` where
/// there is none.
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
    fn names_texts_and_numbers() {
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
        fn no_text_can_hurt(text in "[\\[\\]{}\",:\\\\ä0-9e.-]{0,80}") {
            for token in tokens(&text) {
                prop_assert!(text.get(token.range).is_some_and(|text| !text.is_empty()));
            }
        }
    }
}
