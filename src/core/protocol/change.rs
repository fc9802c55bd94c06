//! The changes of files, file by file and line by line: the only place that reads a diff.
//!
//! Pure. The kind of a change decides first: the text of an added or deleted file is its content, and a line of it that looks
//! like a part of a diff is still a line of the file. In a diff, the counts of a hunk decide next: inside a hunk `--- x` is a
//! removed line and names no file. Parsing is total: the lines cover every byte of the text once. A hunk whose lines are not
//! those that it announces loses none of them; they are read by their signs, and [`Lines::misfits`] counts it.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

use super::early;

/// A changed file, as an item or a request has it.
#[derive(Debug, Clone, Copy)]
pub struct FileChange<'a> {
    pub path: Option<&'a str>,
    /// `add`, `delete` or `update`.
    pub kind: Option<&'a str>,
    pub moved_to: Option<&'a str>,
    /// The diff, or the whole text of an added or deleted file.
    pub diff: Option<&'a str>,
    /// The change as it is written.
    pub value: &'a Value,
}

impl<'a> FileChange<'a> {
    fn of(path: Option<&'a str>, value: &'a Value) -> FileChange<'a> {
        let text = |names: &[&str], early: &[&str]| {
            names.iter().chain(early).find_map(|name| value.pointer(name).and_then(Value::as_str))
        };
        let [kind, moved_to, diff] = early::CHANGE;
        let (kind, moved_to) = (text(&["/kind/type", "/kind"], kind), text(&["/kind/move_path"], moved_to));
        FileChange { path, kind, moved_to, diff: text(&["/diff"], diff), value }
    }

    pub fn form(self) -> Form {
        Form::of_kind(self.kind.unwrap_or_default())
    }

    /// The lines that it adds and removes.
    pub fn size(self) -> ChangeSize {
        ChangeSize::of(self.form(), self.diff.unwrap_or_default())
    }

    /// The files of a list of changes, or of changes by path.
    pub fn all(changes: &'a Value) -> Vec<FileChange<'a>> {
        match changes {
            Value::Array(all) => all.iter().map(|change| FileChange::of(change["path"].as_str(), change)).collect(),
            Value::Object(all) => all.iter().map(|(path, change)| FileChange::of(Some(path), change)).collect(),
            Value::Null => Vec::new(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![FileChange::of(None, changes)],
        }
    }

    /// The files that a request with these parameters names itself, after those of its item.
    pub fn all_of_request(params: &'a Value, of_item: Option<&'a Value>) -> Vec<FileChange<'a>> {
        [of_item.unwrap_or(&Value::Null), early::own_changes(params)].into_iter().flat_map(FileChange::all).collect()
    }
}

/// The changes of a request: those of its item, or those that its parameters name.
pub fn of_request<'a>(params: &'a Value, of_item: &'a Value) -> &'a Value {
    if of_item.is_null() { early::own_changes(params) } else { of_item }
}

/// How the text of a change is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The content of an added file.
    Added,
    /// The content of a deleted file.
    Deleted,
    /// A unified diff of one file.
    Updated,
    /// Unified diffs of several files, as `turn/diff/updated` has them.
    Turn,
    /// A text of [`list`].
    Listed,
}

impl Form {
    /// The form of a change of this kind; a kind that is not known has a diff.
    pub fn of_kind(kind: &str) -> Form {
        match kind {
            "add" => Form::Added,
            "delete" => Form::Deleted,
            _ => Form::Updated,
        }
    }

    /// The sign that its lines lack: the content of a file has none.
    fn sign(self) -> &'static str {
        match self {
            Form::Added => "+",
            Form::Deleted => "-",
            Form::Updated | Form::Turn | Form::Listed => "",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineKind {
    /// The first line of a file.
    File,
    /// More about a file: its names, its mode, its hash.
    Header,
    /// The heading of a hunk.
    Hunk,
    Context,
    Added,
    Removed,
    /// About the line before, or about the whole file: `\ No newline at end of file`.
    Remark,
    /// Text outside of hunks.
    Outside,
}

/// A line of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub kind: LineKind,
    /// Its bytes, with the line feed that ends it.
    pub range: Range<usize>,
}

/// The beginning of a file in a text of [`list`].
const LISTED: &str = "diff ";

/// The beginning of a file in the diff of a turn.
const GIT: &str = "diff --git ";

/// Stands in front of a line outside of hunks that looks like the beginning of a file. No sign of a hunk: with a blank in front, an
/// open hunk would take the line as its own.
const GUARD: &str = "> ";

/// What git says about a last line without a line feed.
const NO_NEWLINE: &str = "\\ No newline at end of file";

/// The same for a file without any line.
const NO_LINES: &str = "\\ The file is empty";

/// The end of a text that was cut on its way from another machine, which says so itself.
const CUT_END: &str = " bytes in all)";

/// What git writes between the first line of a file and its first hunk.
const HEADERS: [&str; 13] = [
    "index ",
    "old mode ",
    "new mode ",
    "new file mode ",
    "deleted file mode ",
    "similarity index ",
    "dissimilarity index ",
    "rename from ",
    "rename to ",
    "copy from ",
    "copy to ",
    "Binary files ",
    "GIT binary patch",
];

/// The place of the next line in a diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiffPlace {
    /// Before the first file.
    Start,
    /// Between the first line of a file and its first hunk.
    Header,
    /// In a hunk that still has so many lines on the old and the new side.
    Hunk { old: usize, new: usize },
    /// After all lines that a hunk announced.
    HunkEnd,
    /// At lines with signs that no hunk announced.
    Loose,
}

/// The lines of a change, in order.
#[derive(Debug, Clone)]
pub struct Lines<'a> {
    form: Form,
    text: &'a str,
    at: usize,
    place: DiffPlace,
    /// The last line was the old name of a file, so the next one is its new name.
    names_next: bool,
    /// The kind of the present file of a listed text.
    listed: Form,
    misfits: usize,
}

/// The lines of a change.
pub fn lines(form: Form, text: &str) -> Lines<'_> {
    let (place, listed) = (DiffPlace::Start, Form::Updated);
    Lines { form, text, at: 0, place, names_next: false, listed, misfits: 0 }
}

impl Iterator for Lines<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        let from = self.at;
        let rest = self.text.get(from..).filter(|rest| !rest.is_empty())?;
        self.at = from + memchr::memchr(b'\n', rest.as_bytes()).map_or(rest.len(), |at| at + 1);
        let line = &self.text[from..self.at];
        let kind = match self.form {
            Form::Added => LineKind::Added,
            Form::Deleted => LineKind::Removed,
            Form::Updated | Form::Turn => self.of_diff(self.form, line),
            Form::Listed => self.of_list(line),
        };
        if self.at == self.text.len() {
            self.leave_hunk();
        }
        Some(Line { kind, range: from..self.at })
    }
}

impl<'a> Lines<'a> {
    /// The hunks so far whose lines are not those that they announce. Lines with signs before any hunk count as one.
    pub fn misfits(&self) -> usize {
        self.misfits
    }

    /// A line of a text of [`list`], in which only the first line of a file begins with `diff `.
    fn of_list(&mut self, line: &str) -> LineKind {
        if let Some(rest) = line.strip_prefix(LISTED) {
            self.leave_hunk();
            (self.place, self.names_next) = (DiffPlace::Start, false);
            self.listed = Form::of_kind(rest.split(' ').next().unwrap_or_default());
            return LineKind::File;
        }
        match (self.listed, line.as_bytes().first()) {
            (Form::Added, Some(b'+')) => LineKind::Added,
            (Form::Deleted, Some(b'-')) => LineKind::Removed,
            (Form::Added | Form::Deleted, Some(b'\\')) => LineKind::Remark,
            (Form::Added | Form::Deleted, _) => LineKind::Outside,
            (Form::Updated | Form::Turn | Form::Listed, _) => self.of_diff(Form::Updated, line),
        }
    }

    fn of_diff(&mut self, form: Form, line: &str) -> LineKind {
        if let Some(kind) = self.in_hunk(line) {
            return kind;
        }
        self.leave_hunk();
        if std::mem::take(&mut self.names_next) {
            return LineKind::Header;
        }
        if line.starts_with("@@") {
            self.place = match counts_of(line) {
                Some((0, 0)) => DiffPlace::HunkEnd,
                Some((old, new)) => DiffPlace::Hunk { old, new },
                None => {
                    self.misfits += 1;
                    DiffPlace::Loose
                }
            };
            return LineKind::Hunk;
        }
        if form == Form::Turn && line.starts_with(GIT) {
            self.place = DiffPlace::Header;
            return LineKind::File;
        }
        if self.begins_names(form, line) {
            let begins_file = form == Form::Turn && self.place != DiffPlace::Header;
            (self.place, self.names_next) = (DiffPlace::Header, true);
            return if begins_file { LineKind::File } else { LineKind::Header };
        }
        let is_header = HEADERS.iter().any(|header| line.starts_with(header));
        if is_header && self.place == DiffPlace::Header {
            return LineKind::Header;
        }
        self.outside(line)
    }

    /// A line that the present hunk has announced.
    fn in_hunk(&mut self, line: &str) -> Option<LineKind> {
        let DiffPlace::Hunk { old, new } = self.place else { return None };
        let (kind, old, new) = match line.as_bytes().first() {
            Some(b'\\') => return Some(LineKind::Remark),
            Some(b'+') => (LineKind::Added, Some(old), new.checked_sub(1)),
            Some(b'-') => (LineKind::Removed, old.checked_sub(1), Some(new)),
            // Some programs drop the blank of an empty line.
            Some(b' ' | b'\n' | b'\r') => (LineKind::Context, old.checked_sub(1), new.checked_sub(1)),
            Some(_) | None => return None,
        };
        let (old, new) = (old?, new?);
        self.place = if (old, new) == (0, 0) { DiffPlace::HunkEnd } else { DiffPlace::Hunk { old, new } };
        Some(kind)
    }

    /// Ends a hunk, which lacks lines if it is still open.
    fn leave_hunk(&mut self) {
        if matches!(self.place, DiffPlace::Hunk { .. }) {
            self.misfits += 1;
            self.place = DiffPlace::Loose;
        }
    }

    /// Whether a line is the old name of a file, and the next one the new name. After a hunk a third line must begin another
    /// hunk: a removed and an added line can look like two names.
    fn begins_names(&self, form: Form, line: &str) -> bool {
        let mut next = self.text[self.at..].split('\n');
        let are_names = line.starts_with("--- ") && next.next().is_some_and(|next| next.starts_with("+++ "));
        let mut precedes_hunk = || next.next().is_some_and(|next| next.starts_with("@@ "));
        match (self.place, form) {
            (DiffPlace::Start | DiffPlace::Header, _) => are_names,
            (_, Form::Turn) => are_names && precedes_hunk(),
            (_, _) => false,
        }
    }

    /// A line that no hunk announced.
    fn outside(&mut self, line: &str) -> LineKind {
        let was_loose = self.place == DiffPlace::Loose;
        let kind = match (line.as_bytes().first(), self.place) {
            (Some(b'+'), _) => LineKind::Added,
            (Some(b'-'), _) => LineKind::Removed,
            (Some(b'\\'), DiffPlace::HunkEnd | DiffPlace::Loose) => return LineKind::Remark,
            (Some(b' '), DiffPlace::HunkEnd | DiffPlace::Loose) => LineKind::Context,
            (_, _) => return LineKind::Outside,
        };
        self.place = DiffPlace::Loose;
        self.misfits += usize::from(!was_loose);
        kind
    }
}

/// The lines of a hunk on the old and the new side: `@@ -1,3 +1,4 @@`.
fn counts_of(line: &str) -> Option<(usize, usize)> {
    ranges_of(line).map(|[(_, old), (_, new)]| (old, new))
}

/// The same, each with the number of its first line.
pub(super) fn ranges_of(line: &str) -> Option<[(usize, usize); 2]> {
    let mut parts = line.strip_prefix("@@ -")?.splitn(3, ' ');
    let old = range_of(parts.next()?)?;
    let new = range_of(parts.next()?.strip_prefix('+')?)?;
    parts.next()?.starts_with("@@").then_some([old, new])
}

fn range_of(range: &str) -> Option<(usize, usize)> {
    let (at, count) = range.split_once(',').unwrap_or((range, "1"));
    Some((at.parse().ok()?, count.parse().ok()?))
}

/// Lines added and removed, and hunks whose lines are not those that they announce.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChangeSize {
    pub added: usize,
    pub removed: usize,
    pub misfits: usize,
}

impl ChangeSize {
    pub fn of(form: Form, text: &str) -> ChangeSize {
        let (mut counts, mut lines) = (ChangeSize::default(), lines(form, text));
        lines.by_ref().for_each(|line| counts.take(line.kind));
        counts.misfits = lines.misfits();
        counts
    }

    pub fn take(&mut self, kind: LineKind) {
        self.added += usize::from(kind == LineKind::Added);
        self.removed += usize::from(kind == LineKind::Removed);
    }

    pub fn plus(self, other: ChangeSize) -> ChangeSize {
        let ChangeSize { added, removed, misfits } = other;
        ChangeSize { added: self.added + added, removed: self.removed + removed, misfits: self.misfits + misfits }
    }
}

/// The lines as they are shown: without the line feeds, and with the signs that the content of a file lacks. A remark says that
/// such a content is empty, or that its last line has no line feed.
pub fn shown(form: Form, text: &str) -> impl Iterator<Item = (LineKind, Cow<'_, str>)> {
    let sign = form.sign();
    let line = move |line: Line| {
        let bare = &text[line.range];
        let bare = bare.strip_suffix('\n').unwrap_or(bare);
        let whole = if sign.is_empty() { Cow::Borrowed(bare) } else { Cow::Owned(format!("{sign}{bare}")) };
        (line.kind, whole)
    };
    let remark = match text {
        _ if sign.is_empty() => None,
        "" => Some(NO_LINES),
        text if text.ends_with('\n') || text.ends_with(CUT_END) => None,
        _ => Some(NO_NEWLINE),
    };
    lines(form, text).map(line).chain(remark.map(|remark| (LineKind::Remark, Cow::Borrowed(remark))))
}

/// A change of a file for [`list`].
#[derive(Debug, Clone, Copy)]
pub struct Listed<'a> {
    /// `add`, `delete`, `update`, or another word.
    pub kind: &'a str,
    pub path: &'a str,
    pub moved_to: Option<&'a str>,
    pub text: Text<'a>,
}

/// What is known of the lines of a change.
#[derive(Debug, Clone, Copy)]
pub enum Text<'a> {
    Diff(&'a str),
    /// Why there is no diff.
    Missing(&'a str),
}

/// Appends a change to a text that [`Form::Listed`] reads: `diff KIND PATH`, and the lines with their signs.
pub fn list(change: Listed<'_>, out: &mut String) {
    // A line break in a name must not begin another line.
    let name = |path: &str| path.replace(['\n', '\r'], "\u{fffd}");
    let to = change.moved_to.map(|to| format!("{MOVED}{}", name(to))).unwrap_or_default();
    out.push_str(&format!("{LISTED}{} {}{to}\n", name(change.kind), name(change.path)));
    let mut push = |line: &str, guard: &str| {
        out.push_str(guard);
        out.push_str(line);
        out.push('\n');
    };
    match change.text {
        Text::Missing(why) => why.lines().for_each(|line| push(line, " ")),
        // Outside of hunks no line may look like the beginning of a file.
        Text::Diff(text) => shown(Form::of_kind(change.kind), text)
            .for_each(|(_, line)| push(&line, if line.starts_with(LISTED) { GUARD } else { "" })),
    }
}

/// Stands between the old and the new name of a file that is moved.
const MOVED: &str = " -> ";

/// What becomes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Added,
    Deleted,
    Changed,
}

/// A file of a text with several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File<'a> {
    pub fate: Fate,
    /// Its old name; empty if there is none.
    pub old: &'a str,
    /// Its new name; empty if there is none.
    pub new: &'a str,
}

impl<'a> File<'a> {
    /// The file whose first line begins `text`, which is of [`Form::Turn`] or [`Form::Listed`].
    pub fn at(form: Form, text: &'a str) -> File<'a> {
        let line = |range: Range<usize>| text[range].trim_end_matches(['\n', '\r']);
        let mut lines = lines(form, text);
        let first = lines.next().map(|first| line(first.range)).unwrap_or_default();
        if form == Form::Listed {
            return File::of_list(first);
        }
        let mut file = File::of_git(first);
        for header in lines.take_while(|line| line.kind == LineKind::Header) {
            file.take(line(header.range));
        }
        if file.old.is_empty() && file.fate == Fate::Changed {
            file.old = file.new;
        }
        file
    }

    fn of_list(line: &'a str) -> File<'a> {
        let rest = line.strip_prefix(LISTED).unwrap_or(line);
        let (kind, path) = rest.split_once(' ').unwrap_or(("", rest));
        let (old, new) = path.split_once(MOVED).unwrap_or((path, path));
        let fate = match Form::of_kind(kind) {
            Form::Added => Fate::Added,
            Form::Deleted => Fate::Deleted,
            Form::Updated | Form::Turn | Form::Listed => Fate::Changed,
        };
        File { fate, old, new }
    }

    /// `diff --git a/OLD b/NEW`, where blanks may be part of the names, or `--- a/OLD`.
    fn of_git(line: &'a str) -> File<'a> {
        let mut file = File { fate: Fate::Changed, old: "", new: "" };
        let Some(names) = line.strip_prefix(GIT) else {
            file.take(line);
            return file;
        };
        let half = names.len() / 2;
        let halves = names.is_char_boundary(half).then(|| names.split_at(half));
        let same = halves.filter(|(old, new)| old.strip_prefix('a') == new.strip_prefix(" b"));
        let (old, new) = same
            .or_else(|| names.rsplit_once(" b/").map(|(old, _)| names.split_at(old.len())))
            .unwrap_or((names, names));
        (file.old, file.new) = (bare(old, "a/"), bare(new.trim_start(), "b/"));
        file
    }

    /// A line between the first one and the first hunk.
    fn take(&mut self, line: &'a str) {
        let named = |head: &str| line.strip_prefix(head).map(|name| name.split('\t').next().unwrap_or(name));
        if let Some(name) = named("--- ") {
            match name {
                "/dev/null" => self.fate = Fate::Added,
                name => self.old = bare(name, "a/"),
            }
        } else if let Some(name) = named("+++ ") {
            match name {
                "/dev/null" => self.fate = Fate::Deleted,
                name => self.new = bare(name, "b/"),
            }
        } else if let Some(name) = line.strip_prefix("rename from ") {
            self.old = name;
        } else if let Some(name) = line.strip_prefix("rename to ") {
            self.new = name;
        } else if line.starts_with("new file mode ") {
            self.fate = Fate::Added;
        } else if line.starts_with("deleted file mode ") {
            self.fate = Fate::Deleted;
        }
    }

    /// Its name, or both names of a file that is moved.
    pub fn name(&self, short: impl Fn(&str) -> String) -> String {
        match self.fate {
            Fate::Added => short(self.new),
            Fate::Deleted => short(self.old),
            Fate::Changed if self.old == self.new => short(self.new),
            Fate::Changed => format!("{}{MOVED}{}", short(self.old), short(self.new)),
        }
    }
}

/// A name without the letter of its side.
fn bare<'a>(name: &'a str, side: &str) -> &'a str {
    name.strip_prefix(side).unwrap_or(name)
}

/// The files of a text, each with its counts.
pub fn files(form: Form, text: &str) -> Vec<(File<'_>, ChangeSize)> {
    let mut files: Vec<(File<'_>, ChangeSize)> = Vec::new();
    for line in lines(form, text) {
        match (line.kind, files.last_mut()) {
            (LineKind::File, _) => files.push((File::at(form, &text[line.range.start..]), ChangeSize::default())),
            (kind, Some((_, counts))) => counts.take(kind),
            (_, None) => {}
        }
    }
    files
}
