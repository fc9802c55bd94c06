//! A diff under review: its files, its hunks, and all its lines.
//!
//! Pure. [`crate::protocol::change`] says what each line is; here the lines become a document that is indexed once. No byte of
//! a line is left out: characters that cannot be seen appear as their code points.

use crate::protocol::change::{self, Fate, Form, LineKind};
use crate::requests::view::ChangedFile;
use crate::sessions::entry::Kind;
use crate::text::doc::{Doc, Role};
use crate::text::exact;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its path, relative to the session's folder if it is inside.
    pub path: String,
    /// `A` added, `D` deleted, `M` changed.
    pub sign: char,
    pub added: usize,
    pub removed: usize,
    /// Its first line in the document.
    pub line: usize,
}

/// An indexed diff.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diff {
    pub doc: Doc,
    pub files: Vec<File>,
    /// The first lines of its hunks, in order.
    pub hunks: Vec<usize>,
}

/// A path relative to a folder, if it is inside.
pub fn relative<'a>(path: &'a str, cwd: &str) -> &'a str {
    let cwd = cwd.trim_end_matches('/');
    let inside = path.strip_prefix(cwd).and_then(|rest| rest.strip_prefix('/'));
    inside.filter(|rest| !cwd.is_empty() && !rest.is_empty()).unwrap_or(path)
}

/// Changed files as one text, of [`Form::Listed`]; `None` for an empty list.
pub fn listed(files: &[ChangedFile]) -> Option<String> {
    let mut text = String::new();
    files.iter().for_each(|file| file.list(&mut text));
    (!text.is_empty()).then_some(text)
}

/// The form of the text of an entry, if it is a diff.
pub fn form_of(kind: Kind) -> Option<Form> {
    match kind {
        Kind::Change => Some(Form::Listed),
        Kind::Diff => Some(Form::Turn),
        Kind::User
        | Kind::Assistant
        | Kind::Reasoning
        | Kind::Plan
        | Kind::Command
        | Kind::Tool
        | Kind::Request
        | Kind::Review
        | Kind::Status
        | Kind::Error
        | Kind::Gap
        | Kind::Run => None,
    }
}

impl Diff {
    /// Reads a diff and makes its paths relative to `cwd`.
    pub fn read(form: Form, text: &str, cwd: &str) -> Diff {
        let mut diff = Diff::default();
        for line in change::lines(form, text) {
            let bare = &text[line.range.clone()];
            let bare = bare.strip_suffix('\n').unwrap_or(bare);
            if line.kind == LineKind::File {
                diff.begin(&change::File::at(form, &text[line.range.start..]), cwd);
            }
            let is_in_heading = line.kind == LineKind::File && !bare.starts_with("--- ");
            if !is_in_heading {
                diff.line(line.kind, bare);
            }
        }
        diff
    }

    /// The file that a line of the document belongs to, as an index.
    pub fn file_at(&self, line: usize) -> usize {
        self.files.partition_point(|file| file.line <= line).saturating_sub(1)
    }

    /// The number of the hunk that contains a line, from 1. Lines before the first hunk of a file belong to that hunk.
    #[must_use]
    pub fn hunk_at(&self, line: usize) -> usize {
        let before = self.hunks.partition_point(|hunk| *hunk <= line);
        let file = self.file_at(line);
        let starts = self.files.get(file).map_or(0, |file| file.line);
        let ends = self.files.get(file + 1).map_or(usize::MAX, |next| next.line);
        let has_begun = before > 0 && self.hunks[before - 1] >= starts;
        let has_next = self.hunks.get(before).is_some_and(|next| *next < ends);
        (before + usize::from(!has_begun && has_next)).max(1)
    }

    fn begin(&mut self, file: &change::File<'_>, cwd: &str) {
        if !self.files.is_empty() {
            self.doc.push("", Role::Plain);
        }
        let (sign, word) = match file.fate {
            Fate::Added => ('A', "added"),
            Fate::Deleted => ('D', "deleted"),
            Fate::Changed => ('M', "changed"),
        };
        let path = exact(&file.name(|path| relative(path, cwd).to_owned()));
        let line = self.doc.len();
        self.doc.push_pieces(&[(&path, Role::Heading), (&format!("  {word}"), Role::Faint)], 2);
        self.files.push(File { path, sign, added: 0, removed: 0, line });
    }

    fn line(&mut self, kind: LineKind, text: &str) {
        let role = match kind {
            LineKind::Added => Role::Good,
            LineKind::Removed => Role::Bad,
            LineKind::Context => Role::Plain,
            LineKind::Hunk => Role::Info,
            LineKind::File | LineKind::Header | LineKind::Remark | LineKind::Outside => Role::Faint,
        };
        if kind == LineKind::Hunk {
            self.hunks.push(self.doc.len());
        }
        if let Some(file) = self.files.last_mut() {
            file.added += usize::from(kind == LineKind::Added);
            file.removed += usize::from(kind == LineKind::Removed);
        }
        let hang = if kind == LineKind::Hunk { 0 } else { 1 };
        self.doc.push_pieces(&[(&exact(text), role)], hang);
    }

    /// Lines added and removed in all.
    pub fn counts(&self) -> (usize, usize) {
        self.files.iter().fold((0, 0), |(added, removed), file| (added + file.added, removed + file.removed))
    }

    /// `3 files +12 -4`
    pub fn summary(&self) -> String {
        let (added, removed) = self.counts();
        let files = if self.files.len() == 1 { "1 file".to_owned() } else { format!("{} files", self.files.len()) };
        format!("{files} +{added} -{removed}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::requests::view::files as files_of;

    fn shown(diff: &Diff) -> Vec<String> {
        (0..diff.doc.len())
            .map(|line| {
                let pieces = diff.doc.pieces_of(line).map(|(text, role)| format!("{role:?}:{text}"));
                pieces.collect::<Vec<_>>().join("|")
            })
            .collect()
    }

    #[test]
    fn too_large_diff_is_named_with_its_size() {
        let changes = json!([{ "path": "/w/a", "kind": { "type": "add" }, "omitted": "size", "diff_bytes": 9 << 20 }]);
        let expect = "diff add /w/a\n (this diff of 9.0 MiB is too large to keep: see it in the client)\n";
        assert_eq!(listed(&files_of(&changes)).as_deref(), Some(expect));
    }

    #[test]
    fn changes_are_indexed_by_file_and_hunk() {
        let changes = json!([
            { "path": "/w/src/a.rs", "kind": { "type": "update" },
              "diff": "@@ -1,2 +1,2 @@\n keep\n-old\n+new\n@@ -9 +9,2 @@\n-x\n+--- y\n++++ z" },
            { "path": "/w/new.txt", "kind": { "type": "add" }, "diff": "one\ndiff add trick\n" },
            { "path": "/elsewhere/b", "kind": { "type": "delete" }, "diff": "gone\u{1b}[2J\n" },
        ]);
        let diff = Diff::read(Form::Listed, &listed(&files_of(&changes)).expect("there are changes"), "/w/");
        let files: Vec<_> = diff
            .files
            .iter()
            .map(|file| (file.path.as_str(), file.sign, file.added, file.removed, file.line))
            .collect();
        assert_eq!(files, [("src/a.rs", 'M', 3, 2, 0), ("new.txt", 'A', 2, 0, 10), ("/elsewhere/b", 'D', 0, 1, 14)]);
        assert_eq!(diff.hunks, [1, 5]);
        assert_eq!(diff.summary(), "3 files +5 -3");
        let shown = shown(&diff);
        assert_eq!(shown[0], "Heading:src/a.rs|Faint:  changed");
        assert_eq!(shown[11..13], ["Good:+one", "Good:+diff add trick"]);
        assert_eq!(shown[15], "Bad:-gone\\u{1b}[2J");
        assert_eq!((diff.file_at(0), diff.file_at(9), diff.file_at(10), diff.file_at(99)), (0, 0, 1, 2));
    }

    /// All lines of the document but the headings of files.
    fn lines_of(kind: &str, diff: &str) -> Vec<String> {
        let changes = json!([{ "path": "/w/a", "kind": { "type": kind }, "diff": diff }]);
        let diff = Diff::read(Form::Listed, &listed(&files_of(&changes)).expect("there are changes"), "/w");
        (1..diff.doc.len()).map(|line| diff.doc.text_of(line).to_owned()).collect()
    }

    #[test]
    fn new_file_is_shown_from_its_first_line() {
        for text in ["--- \ntitle: x\n", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", "@@ -1 +1 @@\nx\n"] {
            for (kind, sign) in [("add", '+'), ("delete", '-')] {
                let expect: Vec<String> = text.lines().map(|line| format!("{sign}{line}")).collect();
                assert_eq!(lines_of(kind, text), expect);
            }
        }
        assert_eq!(lines_of("add", "a\r\nb"), ["+a\\u{d}", "+b", "\\ No newline at end of file"]);
        assert_eq!(lines_of("delete", ""), ["\\ The file is empty"]);
        let hidden = "+evil\r+harmless\u{2028}\u{202e}\u{9b}2K\u{0}";
        let expect = r"+evil\u{d}+harmless\u{2028}\u{202e}\u{9b}2K\u{0}";
        assert_eq!(lines_of("update", &format!("@@ -0,0 +1 @@\n{hidden}\n")), ["@@ -0,0 +1 @@", expect]);
    }

    proptest! {
        #[test]
        fn every_character_of_a_change_is_shown(text in "([-+@ a\\\\\r\n\u{2028}\u{1b}]|diff |--- |\\+\\+\\+ |@@ -1 \\+1 @@\n){0,20}") {
            for (kind, sign) in [("add", "+"), ("delete", "-"), ("update", "")] {
                let shown = lines_of(kind, &text);
                for (number, line) in text.lines().enumerate() {
                    // `lines` drops a carriage return before a line feed, which the document shows.
                    let line = exact(&format!("{sign}{line}"));
                    // A line that looks like the beginning of a file has `> ` in front.
                    let shown_line = shown[number].trim_start_matches("> ").trim_start_matches(' ');
                    prop_assert!(shown_line.starts_with(line.trim_start_matches(' ')), "{:?} {:?}", shown, line);
                }
            }
        }
    }

    #[test]
    fn diffs_of_turns_and_old_patches_are_read() {
        let git = "diff --git a/x.rs b/x.rs\nindex 1..2 100644\n--- a/x.rs\n+++ b/x.rs\n@@ -1 +1 @@\n-a\n+b\n\
                   --- /dev/null\n+++ b/y.rs\n@@ -0,0 +1 @@\n+c\n";
        let diff = Diff::read(Form::Turn, git, "");
        let files: Vec<_> = diff.files.iter().map(|file| (file.path.as_str(), file.sign, file.added)).collect();
        assert_eq!(files, [("x.rs", 'M', 1), ("y.rs", 'A', 1)]);
        let old = json!({ "/a": { "type": "add", "content": "x\n" }, "/b": { "type": "update", "unified_diff": "@@ -1 +1 @@\n-x\n+y" }, "/c": { "odd": 1 } });
        let diff = Diff::read(Form::Listed, &listed(&files_of(&old)).expect("there are changes"), "");
        assert_eq!(diff.summary(), "3 files +2 -1");
        assert_eq!(listed(&files_of(&Value::Null)), None);
        assert_eq!(listed(&[]), None);
    }

    #[test]
    fn a_huge_diff_is_indexed_once() {
        let file = |number: usize| {
            let body: String = (0..80).map(|line| format!("+line {line} of {number} {}\n", "x".repeat(80))).collect();
            format!("diff update src/file{number}.rs\n@@ -1,0 +1,80 @@\n{body}")
        };
        let text: String = (0..400).map(file).collect();
        assert!(text.len() > 2 << 20, "{}", text.len());
        let diff = Diff::read(Form::Listed, &text, "/w");
        assert_eq!((diff.files.len(), diff.hunks.len(), diff.counts()), (400, 400, (32_000, 0)));
        let room = crate::text::doc::Room { columns: 40, rows: 10 };
        // Each step wraps no more lines than a screen has. Wrapping all of them each time would take minutes.
        let mut at = Default::default();
        for _ in 0..500 {
            at = diff.doc.down(at, room.rows, room);
            assert!(!diff.doc.window(at, room).is_empty());
        }
    }
}
