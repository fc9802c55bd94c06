//! The hunks of the diff of one file, each with its place and its lines.
//!
//! Pure, and total as [`super::change`], which says what each line is.

use super::change::{Form, LineKind, lines, ranges_of};

/// A line of a hunk, without its sign and its line feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HunkLine<'a> {
    Context(&'a str),
    Added(&'a str),
    Removed(&'a str),
}

/// A part of a file that a diff changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk<'a> {
    /// Lines of the file before its first one, in the old and in the new file.
    pub old_from: usize,
    pub new_from: usize,
    pub old_count: usize,
    pub new_count: usize,
    pub lines: Vec<HunkLine<'a>>,
}

impl<'a> Hunk<'a> {
    /// The hunks of a diff, in its order.
    pub fn all(diff: &'a str) -> Vec<Hunk<'a>> {
        let mut hunks: Vec<Hunk<'a>> = Vec::new();
        for line in lines(Form::Updated, diff) {
            let text = &diff[line.range];
            let text = text.strip_suffix('\n').unwrap_or(text);
            // A program may drop the blank in front of an empty line.
            let bare = |sign| text.strip_prefix(sign).unwrap_or(text);
            let line = match line.kind {
                LineKind::Hunk => {
                    hunks.push(Hunk::headed(text));
                    continue;
                }
                LineKind::Context => HunkLine::Context(bare(' ')),
                LineKind::Added => HunkLine::Added(bare('+')),
                LineKind::Removed => HunkLine::Removed(bare('-')),
                LineKind::File | LineKind::Header | LineKind::Remark | LineKind::Outside => continue,
            };
            match hunks.last_mut() {
                Some(hunk) => hunk.lines.push(line),
                // Lines of no hunk make one without a place.
                None => hunks.push(Hunk { lines: vec![line], ..Hunk::headed("") }),
            }
        }
        hunks
    }

    fn headed(line: &str) -> Hunk<'a> {
        let [(old_at, old_count), (new_at, new_count)] = ranges_of(line).unwrap_or_default();
        // A range without lines is named by the line before it.
        let before = |at: usize, count: usize| if count == 0 { at } else { at.saturating_sub(1) };
        let (old_from, new_from) = (before(old_at, old_count), before(new_at, new_count));
        Hunk { old_from, new_from, old_count, new_count, lines: Vec::new() }
    }

    /// Whether it has the lines that its heading announces.
    pub fn is_whole(&self) -> bool {
        (self.old_lines().count(), self.new_lines().count()) == (self.old_count, self.new_count)
            && !self.lines.is_empty()
    }

    /// Its lines in the old file.
    pub fn old_lines(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.lines.iter().filter_map(|line| match line {
            HunkLine::Context(text) | HunkLine::Removed(text) => Some(*text),
            HunkLine::Added(_) => None,
        })
    }

    /// Its lines in the new file.
    pub fn new_lines(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.lines.iter().filter_map(|line| match line {
            HunkLine::Context(text) | HunkLine::Added(text) => Some(*text),
            HunkLine::Removed(_) => None,
        })
    }

    /// Whether it surely reaches the end of the new file: no line that stays follows its last change, though it shows such lines.
    pub fn ends_file(&self) -> bool {
        let shows_context = self.lines.iter().any(|line| matches!(line, HunkLine::Context(_)));
        let was_empty = (self.old_from, self.old_count) == (0, 0);
        let is_empty = (self.new_from, self.new_count) == (0, 0);
        was_empty || is_empty || (shows_context && !matches!(self.lines.last(), Some(HunkLine::Context(_))))
    }

    /// Whether it begins with the new file.
    pub fn begins_file(&self) -> bool {
        self.new_from == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_have_places_and_lines() {
        let diff = "--- a\n+++ b\n@@ -1,2 +1,3 @@\n a\n+b\r\n c\n@@ -9 +10,0 @@\n-x\n\\ No newline at end of file\n\n\nMoved to: /w/b";
        let hunks = Hunk::all(diff);
        let places: Vec<_> = hunks.iter().map(|hunk| (hunk.old_from, hunk.new_from, hunk.is_whole())).collect();
        assert_eq!(places, [(0, 0, true), (8, 10, true)]);
        assert_eq!(hunks[0].new_lines().collect::<Vec<_>>(), ["a", "b\r", "c"]);
        assert_eq!(hunks[1].old_lines().collect::<Vec<_>>(), ["x"]);
        assert!(hunks[0].begins_file() && !hunks[0].ends_file());
        let ends = |diff: &str| Hunk::all(diff).last().is_some_and(Hunk::ends_file);
        assert!(ends("@@ -3 +3,2 @@\n c\n+d\n") && ends("@@ -0,0 +1 @@\n+a\n") && ends("@@ -1 +0,0 @@\n-a\n"));
        assert!(!ends("@@ -9 +10 @@\n-x\n+y\n") && !ends("@@ -3 +3,2 @@\n+d\n c\n"));
    }

    #[test]
    fn damaged_hunks_are_not_whole() {
        let check = |diff: &str, expect: &[bool]| {
            assert_eq!(Hunk::all(diff).iter().map(Hunk::is_whole).collect::<Vec<_>>(), expect, "{diff}");
        };
        check("@@ -1,2 +1,3 @@\n a\n+b\n", &[false]);
        check("@@ -1 +1 @@\n-a\n+b\n+c\n@@ -5 +6 @@\n-d\n+e\n", &[false, true]);
        check("+a\n-b\n", &[false]);
        check("@@ odd @@\n+a\n", &[false]);
        check("@@ -1,0 +1,0 @@\n", &[false]);
        check("", &[]);
    }
}
