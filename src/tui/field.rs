//! Text that is being typed: its cursor and the edits.
//!
//! Pure. It may be a secret, so it is never shown in debug output.

use unicode_segmentation::UnicodeSegmentation as _;

/// Text that is being typed.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Field {
    text: String,
    /// The cursor's byte offset.
    at: usize,
}

impl std::fmt::Debug for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Field({} bytes)", self.text.len())
    }
}

/// Longest text that can be typed or pasted, in bytes: the control socket takes bodies up to 1 MiB.
pub(crate) const TYPED_BYTES_MAX: usize = 900 << 10;

impl Field {
    /// A field with the cursor at the end of `text`.
    #[must_use]
    pub(crate) fn of(text: String) -> Field {
        let at = text.len();
        Field { text, at }
    }

    #[must_use]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The text before the cursor.
    #[must_use]
    pub(crate) fn before_cursor(&self) -> &str {
        &self.text[..self.at]
    }

    /// Removes and returns the text.
    pub(crate) fn take(&mut self) -> String {
        self.at = 0;
        std::mem::take(&mut self.text)
    }

    /// Inserts text at the cursor while there is room; control characters other than line breaks and tabs are dropped.
    pub(crate) fn insert(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let kept: String = text.chars().filter(|char| matches!(char, '\n' | '\t') || !char.is_control()).collect();
        let room = TYPED_BYTES_MAX.saturating_sub(self.text.len());
        let kept = &kept[..kept.floor_char_boundary(room)];
        self.text.insert_str(self.at, kept);
        self.at += kept.len();
    }

    /// Deletes the letter before the cursor.
    pub(crate) fn backspace(&mut self) {
        let from = self.text[..self.at].grapheme_indices(true).next_back().map_or(0, |(at, _)| at);
        self.text.replace_range(from..self.at, "");
        self.at = from;
    }

    /// Deletes the word before the cursor.
    pub(crate) fn backspace_word(&mut self) {
        let kept = self.text[..self.at].trim_end();
        let from = kept.rfind([' ', '\n']).map_or(0, |at| at + 1);
        self.text.replace_range(from..self.at, "");
        self.at = from;
    }

    /// Deletes everything before the cursor.
    pub(crate) fn clear_before(&mut self) {
        self.text.replace_range(..self.at, "");
        self.at = 0;
    }

    /// Moves the cursor to the left.
    pub(crate) fn left(&mut self) {
        self.at = self.text[..self.at].grapheme_indices(true).next_back().map_or(0, |(at, _)| at);
    }

    /// Moves the cursor to the right.
    pub(crate) fn right(&mut self) {
        self.at += self.text[self.at..].graphemes(true).next().map_or(0, str::len);
    }

    /// Moves the cursor to the start.
    pub(crate) fn home(&mut self) {
        self.at = 0;
    }

    /// Moves the cursor to the end.
    pub(crate) fn end(&mut self) {
        self.at = self.text.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_can_be_edited() {
        let mut field = Field::default();
        field.insert("one two\x1b[31m");
        assert_eq!(field.text(), "one two[31m");
        let mut pasted = Field::default();
        pasted.insert("all:\r\n\tmake");
        assert_eq!(pasted.text(), "all:\n\tmake");
        field.backspace_word();
        field.insert("é👩‍👩‍👧");
        field.backspace();
        field.left();
        field.insert("x");
        assert_eq!(field.text(), "one xé");
        field.home();
        field.right();
        field.clear_before();
        assert_eq!((field.text(), field.before_cursor()), ("ne xé", ""));
        field.end();
        field.insert(&"y".repeat(TYPED_BYTES_MAX));
        assert_eq!(field.text().len(), TYPED_BYTES_MAX);
        assert_eq!(field.take().len(), TYPED_BYTES_MAX);
        assert_eq!(format!("{field:?}"), "Field(0 bytes)");
    }
}
