//! A diff under review: its files, its hunks, and all its lines.
//!
//! Pure. All forms of a change (a list of changes, an old patch by path, the diff of a turn) are first converted to one text,
//! in which a line outside of hunks begins each file. That text is then indexed once.

use super::doc::{Doc, Role};
use super::text::plain;
use crate::control::request_view::ChangedFile;

/// The prefix of a file's first line in our own texts: `diff update src/a.rs`.
const FILE: &str = "diff ";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
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
pub(crate) struct Diff {
    pub doc: Doc,
    pub files: Vec<File>,
    /// The first lines of its hunks, in order.
    pub hunks: Vec<usize>,
}

/// A path relative to a folder, if it is inside.
pub(crate) fn relative<'a>(path: &'a str, cwd: &str) -> &'a str {
    let cwd = cwd.trim_end_matches('/');
    let inside = path.strip_prefix(cwd).and_then(|rest| rest.strip_prefix('/'));
    inside.filter(|rest| !cwd.is_empty() && !rest.is_empty()).unwrap_or(path)
}

/// Changed files as one text; `None` for an empty list.
pub(crate) fn unified(files: &[ChangedFile]) -> Option<String> {
    let mut text = String::new();
    files.iter().for_each(|file| write(file, &mut text));
    (!text.is_empty()).then_some(text)
}

fn write(file: &ChangedFile, text: &mut String) {
    // A line break in a path must not begin another line.
    let path = file.path.replace(['\n', '\r'], "\u{fffd}");
    let to =
        file.moved_to.as_ref().map(|to| format!(" -> {}", to.replace(['\n', '\r'], "\u{fffd}"))).unwrap_or_default();
    text.push_str(&format!("{FILE}{} {path}{to}\n", file.kind));
    let is_unified = file.text.starts_with("@@") || file.text.starts_with("--- ");
    let sign = match &*file.kind {
        _ if !file.has_diff => " ",
        "add" if !is_unified => "+",
        "delete" if !is_unified => "-",
        _ => "",
    };
    for line in file.text.lines() {
        // Outside of hunks no line may look like the start of another file.
        let guard = if sign.is_empty() && line.starts_with(FILE) { " " } else { sign };
        text.push_str(guard);
        text.push_str(line);
        text.push('\n');
    }
}

/// The state while a diff is read.
#[derive(Debug, Default)]
struct Reading {
    diff: Diff,
    /// Lines that the present hunk still has on the old and the new side.
    left: (usize, usize),
    in_hunk: bool,
    /// The file began with a `diff --git` line, so the `---` and `+++` that follow belong to it.
    has_header: bool,
}

impl Diff {
    /// Reads a diff and makes its paths relative to `cwd`.
    pub(crate) fn read(text: &str, cwd: &str) -> Diff {
        let mut reading = Reading::default();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let names_file = line.starts_with("--- ") && lines.peek().is_some_and(|next| next.starts_with("+++ "));
            match line {
                _ if line.starts_with(FILE) => reading.file(line, cwd),
                _ if names_file && !reading.in_counted_hunk() => {
                    let new = lines.next().unwrap_or_default();
                    reading.named(line, new, cwd);
                }
                _ if line.starts_with("@@") => reading.hunk(line),
                _ => reading.line(line),
            }
        }
        reading.diff
    }

    /// The file that a line of the document belongs to, as an index.
    pub(crate) fn file_at(&self, line: usize) -> usize {
        self.files.partition_point(|file| file.line <= line).saturating_sub(1)
    }

    /// The number of the hunk that contains a line, from 1. Lines before the first hunk of a file belong to that hunk.
    #[must_use]
    pub(crate) fn hunk_at(&self, line: usize) -> usize {
        let before = self.hunks.partition_point(|hunk| *hunk <= line);
        let file = self.file_at(line);
        let starts = self.files.get(file).map_or(0, |file| file.line);
        let ends = self.files.get(file + 1).map_or(usize::MAX, |next| next.line);
        let has_begun = before > 0 && self.hunks[before - 1] >= starts;
        let has_next = self.hunks.get(before).is_some_and(|next| *next < ends);
        (before + usize::from(!has_begun && has_next)).max(1)
    }

    /// Lines added and removed in all.
    pub(crate) fn counts(&self) -> (usize, usize) {
        self.files.iter().fold((0, 0), |(added, removed), file| (added + file.added, removed + file.removed))
    }

    /// `3 files +12 -4`
    pub(crate) fn summary(&self) -> String {
        let (added, removed) = self.counts();
        let files = if self.files.len() == 1 { "1 file".to_owned() } else { format!("{} files", self.files.len()) };
        format!("{files} +{added} -{removed}")
    }
}

impl Reading {
    fn in_counted_hunk(&self) -> bool {
        self.in_hunk && (self.left.0 > 0 || self.left.1 > 0)
    }

    fn begin(&mut self, sign: char, path: String) {
        if !self.diff.files.is_empty() {
            self.diff.doc.push("", Role::Plain);
        }
        let line = self.diff.doc.len();
        let word = match sign {
            'A' => "added",
            'D' => "deleted",
            _ => "changed",
        };
        self.diff.doc.push_pieces(&[(&path, Role::Heading), (&format!("  {word}"), Role::Faint)], 2);
        self.diff.files.push(File { path, sign, added: 0, removed: 0, line });
        self.in_hunk = false;
        self.left = (0, 0);
    }

    /// `diff update PATH`, or `diff --git a/PATH b/PATH`.
    fn file(&mut self, line: &str, cwd: &str) {
        let rest = line.strip_prefix(FILE).unwrap_or(line);
        let (kind, path) = rest.split_once(' ').unwrap_or(("", rest));
        if kind == "--git" {
            let path = path.rsplit_once(" b/").map_or(path, |(_, path)| path);
            self.begin('M', plain(relative(path, cwd)));
            self.has_header = true;
            return;
        }
        let sign = match kind {
            "add" => 'A',
            "delete" => 'D',
            _ => 'M',
        };
        let path = match path.split_once(" -> ") {
            Some((from, to)) => format!("{} -> {}", relative(from, cwd), relative(to, cwd)),
            None => relative(path, cwd).to_owned(),
        };
        self.begin(sign, plain(&path));
        self.has_header = true;
    }

    /// `--- a/PATH` and `+++ b/PATH`.
    fn named(&mut self, old: &str, new: &str, cwd: &str) {
        let name = |line: &str, side: &str| {
            let path = line[4..].split('\t').next().unwrap_or_default();
            path.strip_prefix(side).unwrap_or(path).to_owned()
        };
        let (old, new) = (name(old, "a/"), name(new, "b/"));
        let sign = match (old.as_str(), new.as_str()) {
            ("/dev/null", _) => 'A',
            (_, "/dev/null") => 'D',
            (_, _) => 'M',
        };
        if std::mem::take(&mut self.has_header) {
            if let Some(file) = self.diff.files.last_mut().filter(|_| sign != 'M') {
                file.sign = sign;
            }
            return;
        }
        let path = if sign == 'D' { &old } else { &new };
        self.begin(sign, plain(relative(path, cwd)));
    }

    fn hunk(&mut self, line: &str) {
        self.has_header = false;
        self.in_hunk = true;
        self.left = counts_of(line);
        self.diff.hunks.push(self.diff.doc.len());
        self.diff.doc.push(line, Role::Info);
    }

    fn line(&mut self, line: &str) {
        let role = match line.as_bytes().first() {
            Some(b'+') => Role::Good,
            Some(b'-') => Role::Bad,
            Some(b'\\') => Role::Faint,
            Some(_) | None if !self.in_hunk => Role::Faint,
            Some(_) | None => Role::Plain,
        };
        let (old, new) = &mut self.left;
        let (on_old, on_new) = match line.as_bytes().first() {
            Some(b'+') => (0, 1),
            Some(b'-') => (1, 0),
            Some(b'\\') => (0, 0),
            Some(_) | None => (1, 1),
        };
        (*old, *new) = (old.saturating_sub(on_old), new.saturating_sub(on_new));
        if let Some(file) = self.diff.files.last_mut() {
            file.added += usize::from(role == Role::Good);
            file.removed += usize::from(role == Role::Bad);
        }
        self.diff.doc.push_pieces(&[(line, role)], 1);
    }
}

/// The lines of a hunk on both sides: `@@ -1,3 +1,4 @@`.
pub(crate) fn counts_of(line: &str) -> (usize, usize) {
    let count = |sign: char| {
        let part = line.split(' ').find_map(|part| part.strip_prefix(sign))?;
        Some(part.split_once(',').map_or(1, |(_, count)| count.parse().unwrap_or(0)))
    };
    (count('-').unwrap_or(0), count('+').unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::control::request_view::files as files_of;

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
        assert_eq!(unified(&files_of(&changes)).as_deref(), Some(expect));
    }

    #[test]
    fn changes_are_indexed_by_file_and_hunk() {
        let changes = json!([
            { "path": "/w/src/a.rs", "kind": { "type": "update" },
              "diff": "@@ -1,2 +1,2 @@\n keep\n-old\n+new\n@@ -9 +9,2 @@\n-x\n+--- y\n++++ z" },
            { "path": "/w/new.txt", "kind": { "type": "add" }, "diff": "one\ndiff add trick\n" },
            { "path": "/elsewhere/b", "kind": { "type": "delete" }, "diff": "gone\u{1b}[2J\n" },
        ]);
        let diff = Diff::read(&unified(&files_of(&changes)).expect("there are changes"), "/w/");
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
        assert_eq!(shown[15], "Bad:-gone");
        assert_eq!((diff.file_at(0), diff.file_at(9), diff.file_at(10), diff.file_at(99)), (0, 0, 1, 2));
    }

    #[test]
    fn diffs_of_turns_and_old_patches_are_read() {
        let git = "diff --git a/x.rs b/x.rs\nindex 1..2 100644\n--- a/x.rs\n+++ b/x.rs\n@@ -1 +1 @@\n-a\n+b\n\
                   --- /dev/null\n+++ b/y.rs\n@@ -0,0 +1 @@\n+c\n";
        let diff = Diff::read(git, "");
        let files: Vec<_> = diff.files.iter().map(|file| (file.path.as_str(), file.sign, file.added)).collect();
        assert_eq!(files, [("x.rs", 'M', 1), ("y.rs", 'A', 1)]);
        let old = json!({ "/a": { "type": "add", "content": "x\n" }, "/b": { "type": "update", "unified_diff": "@@ -1 +1 @@\n-x\n+y" }, "/c": { "odd": 1 } });
        let diff = Diff::read(&unified(&files_of(&old)).expect("there are changes"), "");
        assert_eq!(diff.summary(), "3 files +2 -1");
        assert_eq!(unified(&files_of(&Value::Null)), None);
        assert_eq!(unified(&[]), None);
    }

    #[test]
    fn a_huge_diff_is_indexed_once() {
        let file = |number: usize| {
            let body: String = (0..80).map(|line| format!("+line {line} of {number} {}\n", "x".repeat(80))).collect();
            format!("diff update src/file{number}.rs\n@@ -1,0 +1,80 @@\n{body}")
        };
        let text: String = (0..400).map(file).collect();
        assert!(text.len() > 2 << 20, "{}", text.len());
        let diff = Diff::read(&text, "/w");
        assert_eq!((diff.files.len(), diff.hunks.len(), diff.counts()), (400, 400, (32_000, 0)));
        let room = super::super::doc::Room { columns: 40, rows: 10 };
        // Each step wraps no more lines than a screen has. Wrapping all of them each time would take minutes.
        let mut at = Default::default();
        for _ in 0..500 {
            at = diff.doc.down(at, room.rows, room);
            assert!(!diff.doc.window(at, room).is_empty());
        }
    }
}
