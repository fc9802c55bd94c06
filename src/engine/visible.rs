//! Text of others as a person can trust it: what stands there is what is seen.
//!
//! Pure. This is the one place that says which characters are made visible; whatever shows text of others, in a list, at a question
//! or on the whole terminal, comes through here. What is forwarded never does.

use std::borrow::Cow;

/// Whether a character is no control character, and yet turns the order of those beside it, breaks their line, or is there and not
/// seen: with it a command reads otherwise than it runs.
///
/// The marks and embeddings of Unicode's bidirectional algorithm, the separators of lines and paragraphs, letters and patterns that are
/// blank, what has no width and joins nothing, and tags. Joiners and the first variants stay: letters and emoji are made with them.
#[must_use]
pub(crate) fn deceives(char: char) -> bool {
    matches!(
        char,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
            | '\u{e0100}'..='\u{e01ef}'
    )
}

/// The text, with each character that deceives as its number: `\u{202e}`.
#[must_use]
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(deceives) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for char in text.chars() {
        match deceives(char) {
            true => shown.extend(char.escape_unicode()),
            false => shown.push(char),
        }
    }
    Cow::Owned(shown)
}

/// A text without its ends of lines and other control characters, and with what deceives made visible.
#[must_use]
pub fn one_line(text: &str) -> String {
    let parts = text.split(|char: char| char.is_control()).filter(|part| !part.is_empty());
    visible(&parts.collect::<Vec<_>>().join(" ")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_deceives_is_seen() {
        let check = |text: &str, expect: &str| assert_eq!(one_line(text), expect, "{text:?}");
        check("rm \u{202e}txt.a\u{202c}\u{2066}b\u{2069}", r"rm \u{202e}txt.a\u{202c}\u{2066}b\u{2069}");
        check(
            "a\u{200e}\u{200f}\u{61c}\u{200b}\u{feff}\u{e0041}",
            r"a\u{200e}\u{200f}\u{61c}\u{200b}\u{feff}\u{e0041}",
        );
        check("a\u{2028}b\n\u{1b}[1mc", r"a\u{2028}b [1mc");
        check("שלום, 漢字, e\u{301}, 👩\u{200d}👧, \\u{202e}", "שלום, 漢字, e\u{301}, 👩\u{200d}👧, \\u{202e}");
        // All that Unicode has to turn the order of letters.
        let turns = ['\u{61c}', '\u{200e}', '\u{200f}'].into_iter().chain('\u{202a}'..='\u{202e}');
        assert!(turns.chain('\u{2066}'..='\u{2069}').all(deceives));
    }
}
