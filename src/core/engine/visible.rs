//! Displays untrusted text so that a reader sees exactly what it contains.
//!
//! Pure. This is the only module that decides which characters are made visible; all displayed text from others passes
//! through here, forwarded text never does.

use std::borrow::Cow;

/// Whether a character that is not a control character can mislead a reader: it reorders its neighbours, breaks their
/// line, or is invisible, so that a command reads differently from how it runs.
///
/// These are the marks and embeddings of Unicode's bidirectional algorithm, line and paragraph separators, blank
/// letters and patterns, zero-width characters that join nothing, and tags. Joiners and the first variation selectors
/// are allowed, because letters and emoji need them.
#[must_use]
pub fn deceives(char: char) -> bool {
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

/// Replaces each misleading character with its code: `\u{202e}`.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
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

/// A text as one line: without line ends and control characters, and with misleading characters made visible.
#[must_use]
pub fn one_line(text: &str) -> String {
    let parts = text.split(|char: char| char.is_control()).filter(|part| !part.is_empty());
    visible(&parts.collect::<Vec<_>>().join(" ")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misleading_characters_are_made_visible() {
        let check = |text: &str, expect: &str| assert_eq!(one_line(text), expect, "{text:?}");
        check("rm \u{202e}txt.a\u{202c}\u{2066}b\u{2069}", r"rm \u{202e}txt.a\u{202c}\u{2066}b\u{2069}");
        check(
            "a\u{200e}\u{200f}\u{61c}\u{200b}\u{feff}\u{e0041}",
            r"a\u{200e}\u{200f}\u{61c}\u{200b}\u{feff}\u{e0041}",
        );
        check("a\u{2028}b\n\u{1b}[1mc", r"a\u{2028}b [1mc");
        check("שלום, 漢字, e\u{301}, 👩\u{200d}👧, \\u{202e}", "שלום, 漢字, e\u{301}, 👩\u{200d}👧, \\u{202e}");
        // All bidirectional controls of Unicode.
        let turns = ['\u{61c}', '\u{200e}', '\u{200f}'].into_iter().chain('\u{202a}'..='\u{202e}');
        assert!(turns.chain('\u{2066}'..='\u{2069}').all(deceives));
    }
}
