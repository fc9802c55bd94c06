//! Every byte of a change is in one line, and no line is taken for what it only looks like.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::change::{ChangeSize, Fate, File, Form, LineKind, Listed, Text, files, lines, list, shown};

const FORMS: [Form; 5] = [Form::Added, Form::Deleted, Form::Updated, Form::Turn, Form::Listed];

/// Lines that look like parts of a diff.
const LOOKALIKES: [&str; 22] = [
    "--- x",
    "+++ y",
    "--- a/x",
    "+++ b/x",
    "---",
    "+++",
    "-- x",
    "++ y",
    "@@ -1 +1 @@",
    "@@ -0,0 +1,9 @@ fn main()",
    "@@",
    "diff --git a/x b/x",
    "diff add x",
    "diff update x -> y",
    "index 1..2 100644",
    "new file mode 100644",
    "rename from x",
    "Binary files a/x and b/x differ",
    "\\ No newline at end of file",
    "",
    "\r",
    "title: x\u{2028}y \u{1b}[2K\rz",
];

fn letters(form: Form, text: &str) -> String {
    let letter = |kind| match kind {
        LineKind::File => 'F',
        LineKind::Header => 'H',
        LineKind::Hunk => '@',
        LineKind::Context => ' ',
        LineKind::Added => '+',
        LineKind::Removed => '-',
        LineKind::Remark => '\\',
        LineKind::Outside => '?',
    };
    lines(form, text).map(|line| letter(line.kind)).collect()
}

/// Checks the kinds of the lines, and how many hunks do not fit.
#[track_caller]
fn check(form: Form, text: &str, expect: &str, misfits: usize) {
    assert_eq!(letters(form, text), expect, "{text}");
    assert_eq!(ChangeSize::of(form, text).misfits, misfits, "{text}");
}

/// Every byte is in one line, and a line ends at a line feed or at the end.
#[track_caller]
fn check_whole(form: Form, text: &str) {
    let mut at = 0;
    for line in lines(form, text) {
        assert_eq!(line.range.start, at, "{form:?} {text:?}");
        let part = &text[line.range.clone()];
        assert_eq!(part.find('\n').map_or(part.len(), |at| at + 1), part.len(), "{form:?} {text:?}");
        assert!(!part.is_empty(), "{form:?} {text:?}");
        at = line.range.end;
    }
    assert_eq!(at, text.len(), "{form:?} {text:?}");
    // Nothing of it is lost where it is shown.
    let sign = match form {
        Form::Added => "+",
        Form::Deleted => "-",
        Form::Updated | Form::Turn | Form::Listed => "",
    };
    let count = lines(form, text).count();
    let bare = |line: &str| line.strip_prefix(sign).expect("it has its sign").to_owned();
    let shown: Vec<String> = shown(form, text).take(count).map(|(_, line)| bare(&line)).collect();
    assert_eq!(shown.join("\n"), text.strip_suffix('\n').unwrap_or(text), "{form:?}");
}

#[test]
fn content_of_a_file_is_never_a_diff() {
    for text in ["--- x\ntitle: y\n---\nz\n", "@@ -1 +1 @@\n-a\n+b\n", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n", "\\ x\n\n"] {
        let count = text.lines().count();
        check(Form::of_kind("add"), text, &"+".repeat(count), 0);
        check(Form::of_kind("delete"), text, &"-".repeat(count), 0);
    }
    check(Form::Added, "", "", 0);
}

#[test]
fn counts_of_a_hunk_win() {
    check(Form::Updated, "@@ -1,2 +1,2 @@\n--- x\n+++ y\n same\n", "@-+ ", 0);
    check(Form::Updated, "@@ -1,3 +1 @@ fn\n--- a\n-@@ -1 +1 @@\n-diff --git a/x b/x\n+\n", "@---+", 0);
    check(Form::Updated, "@@ -1 +1 @@\n-x\n\\ No newline at end of file\n+x\n", "@-\\+", 0);
    check(Form::Updated, "@@ -1 +1 @@\n-x\n+y\n\\ No newline at end of file", "@-+\\", 0);
    // Codex names the new place of a moved file behind the last hunk.
    check(Form::Updated, "@@ -1,2 +1,2 @@\n \n-x\n+y\n\n\nMoved to: /w/b", "@ -+???", 0);
    check(Form::Updated, "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-x\n+y\n", "HH@-+", 0);
    check(Form::Updated, "@@ -1 +1 @@\r\n-x\r\n+y\r\n@@ -9,2 +9 @@\r\n \r\n-\u{2028}\r\n", "@-+@ -", 0);
    // Some programs drop the blank of an empty line.
    check(Form::Updated, "@@ -1,2 +1,2 @@\n\n-x\n+y\n", "@ -+", 0);
}

#[test]
fn hunk_that_does_not_fit_loses_nothing() {
    check(Form::Updated, "@@ -1 +1 @@\n-x\n+y\n--- z\n+++ z\n c\n", "@-+-+ ", 1);
    check(Form::Updated, "@@ -1,9 +1,9 @@\n-x\n+y\n@@ -1 +1 @@\n-x\n+y\n", "@-+@-+", 1);
    check(Form::Updated, "@@ -1,2 +1,2 @@\n-x\nstray\n+y\n", "@-?+", 1);
    check(Form::Updated, "@@ -1 +1 @@\n-x\n-y\n+z\n", "@--+", 1);
    for heading in ["@@", "@@ fn main() {", "@@ -1 +x @@", "@@ -1,99999999999999999999 +1 @@", "@@@ -1 -1 +1 @@@"] {
        check(Form::Updated, &format!("{heading}\n-x\n+y\n c\n"), "@-+ ", 1);
    }
    check(Form::Updated, "+x\n-y\n z", "+- ", 1);
    check(Form::Turn, "--- a/x\n+++ b/x\n+x\n", "FH+", 1);
}

#[test]
fn files_of_a_turn_have_their_names() {
    let check = |text: &str, expect: &str| {
        let file = |(file, size): (File<'_>, ChangeSize)| {
            format!("{:?} {} +{} -{}", file.fate, file.name(str::to_owned), size.added, size.removed)
        };
        assert_eq!(files(Form::Turn, text).into_iter().map(file).collect::<Vec<_>>().join("; "), expect, "{text}");
        check_whole(Form::Turn, text);
    };
    let hunk = "@@ -1,2 +1,2 @@\n--- a/q\n+++ b/q\n c\n";
    check(
        &format!(
            "diff --git a/q b/q\nindex 1..2 100644\n--- a/q\n+++ b/q\n{hunk}diff --git a/r b/r\nold mode 100644\nnew mode 100755\n"
        ),
        "Changed q +1 -1; Changed r +0 -0",
    );
    check(
        "diff --git a/n b/n\nnew file mode 100644\nindex 0..1\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+@@ x\n",
        "Added n +1 -0",
    );
    check(
        "diff --git a/n b/n\ndeleted file mode 100644\n--- a/n\n+++ /dev/null\n@@ -1 +0,0 @@\n--- x\n",
        "Deleted n +0 -1",
    );
    check(
        "diff --git a/a b/c b/d b/e\nsimilarity index 90%\nrename from a b/c\nrename to d b/e\n",
        "Changed a b/c -> d b/e +0 -0",
    );
    check("diff --git a/x b/y b/x b/y\n", "Changed x b/y +0 -0");
    check("diff --git a/old b/new\n", "Changed old -> new +0 -0");
    check("diff --git a/p.png b/p.png\nBinary files a/p.png and b/p.png differ\n", "Changed p.png +0 -0");
    check("diff --git a/p b/p\nGIT binary patch\nliteral 3\nKc${Nk-~yx\n\n", "Changed p +0 -0");
    // Without the lines of git, a name follows a whole hunk.
    check(
        &format!("--- a/x\n+++ b/x\n{hunk}--- /dev/null\t2026\n+++ b/y\t2026\n@@ -0,0 +1 @@\n+c\n"),
        "Changed x +1 -1; Added y +1 -0",
    );
    check("no diff at all\n", "");
}

#[test]
fn listed_changes_are_read_back() {
    let list_of = |kind: &str, text: Text<'_>| {
        let mut out = String::new();
        list(Listed { kind, path: "/w/a\nb", moved_to: None, text }, &mut out);
        out
    };
    let added = list_of("add", Text::Diff("--- x\n@@ -1 +1 @@\ndiff add y"));
    assert_eq!(added, "diff add /w/a\u{fffd}b\n+--- x\n+@@ -1 +1 @@\n+diff add y\n\\ No newline at end of file\n");
    check(Form::Listed, &added, "F+++\\", 0);
    assert_eq!(list_of("delete", Text::Diff("")), "diff delete /w/a\u{fffd}b\n\\ The file is empty\n");
    let updated = list_of("update", Text::Diff("diff add y\n@@ -1 +1 @@\n--- x\n+++ y\n"));
    check(Form::Listed, &updated, "F?@-+", 0);
    // In a hunk that lacks lines.
    let open = list_of("update", Text::Diff("@@ -1,2 +1 @@\ndiff add y\nb\n-c\n"));
    check(Form::Listed, &open, "F@??-", 1);
    check(Form::Listed, &list_of("update", Text::Missing("too\n+large")), "F??", 0);
    let all = [added, updated].concat();
    let names: Vec<_> = files(Form::Listed, &all).into_iter().map(|(file, size)| (file.fate, size.added)).collect();
    assert_eq!(names, [(Fate::Added, 3), (Fate::Changed, 1)]);
}

/// A line of a file.
fn content() -> impl Strategy<Value = String> {
    prop_oneof![prop::sample::select(&LOOKALIKES[..]).prop_map(str::to_owned), "[-+@ a-c\\\\\u{e4}]{0,6}"]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Both,
    Old,
    New,
}

/// A hunk, and the letters of its lines.
fn hunk() -> impl Strategy<Value = (String, String)> {
    let side = prop::sample::select(vec![Side::Both, Side::Old, Side::New]);
    prop::collection::vec((side, content(), prop::bool::weighted(0.1)), 1..8).prop_map(|all| {
        let count = |not| all.iter().filter(|(side, ..)| *side != not).count();
        let mut text = format!("@@ -1,{} +1,{} @@\n", count(Side::New), count(Side::Old));
        let mut letters = String::from("@");
        for (side, content, has_remark) in all {
            let sign = match side {
                Side::Both => ' ',
                Side::Old => '-',
                Side::New => '+',
            };
            let _ = writeln!(text, "{sign}{content}");
            letters.push(sign);
            if has_remark {
                text.push_str("\\ No newline at end of file\n");
                letters.push('\\');
            }
        }
        (text, letters)
    })
}

fn hunks() -> impl Strategy<Value = (String, String)> {
    prop::collection::vec(hunk(), 1..4).prop_map(|hunks| hunks.into_iter().unzip())
}

/// The diff of a turn, and the letters of its lines.
fn turn() -> impl Strategy<Value = (String, String)> {
    let git = ("diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n", "FHHH");
    let bare = ("--- a/x\n+++ b/x\n", "FH");
    let file = (prop::sample::select(vec![git, bare]), hunks())
        .prop_map(|((head, of_head), (hunks, letters))| (format!("{head}{hunks}"), format!("{of_head}{letters}")));
    prop::collection::vec(file, 1..4).prop_map(|files| files.into_iter().unzip())
}

/// A text of lines that look like parts of a diff, with any ends of lines.
fn hostile() -> impl Strategy<Value = String> {
    let end = prop::sample::select(vec!["\n", "\n", "\n", "\r\n", "", "\r", "\u{2028}"]);
    prop::collection::vec((content(), end), 0..24)
        .prop_map(|all| all.into_iter().map(|(line, end)| line + end).collect::<String>())
}

/// A diff with a line dropped, repeated or added, or cut anywhere.
fn damaged() -> impl Strategy<Value = String> {
    (turn(), any::<prop::sample::Index>(), content(), 0..4).prop_map(|((text, _), at, line, how)| {
        let mut all: Vec<&str> = text.split_inclusive('\n').collect();
        let index = at.index(all.len());
        let line = format!("{line}\n");
        match how {
            0 => drop(all.remove(index)),
            1 => all.insert(index, all[index]),
            2 => all.insert(index, &line),
            _ => return text[..text.floor_char_boundary(at.index(text.len()))].to_owned(),
        }
        all.concat()
    })
}

proptest! {
    #[test]
    fn every_byte_is_in_one_line(text in prop_oneof![hostile(), damaged(), any::<String>()]) {
        FORMS.iter().for_each(|form| check_whole(*form, &text));
    }

    #[test]
    fn lines_of_hunks_are_what_their_counts_say((text, letters) in hunks()) {
        check(Form::Updated, &text, &letters, 0);
        check(Form::Turn, &format!("diff --git a/x b/x\n{text}"), &format!("F{letters}"), 0);
    }

    #[test]
    fn files_of_a_turn_end_where_their_hunks_end((text, letters) in turn()) {
        check(Form::Turn, &text, &letters, 0);
    }

    #[test]
    fn list_keeps_every_line(text in prop_oneof![hostile(), damaged()], kind in prop::sample::select(vec!["add", "delete", "update"])) {
        let mut all = String::new();
        let one = Listed { kind, path: "x", moved_to: Some("y"), text: Text::Diff(&text) };
        list(one, &mut all);
        list(one, &mut all);
        check_whole(Form::Listed, &all);
        let half: Vec<(LineKind, String)> =
            shown(Form::of_kind(kind), &text).map(|(kind, line)| (kind, line.into_owned())).collect();
        let heading = || std::iter::once((LineKind::File, format!("diff {kind} x -> y")));
        let expect: Vec<_> = heading().chain(half.clone()).chain(heading()).chain(half).collect();
        let read: Vec<_> = shown(Form::Listed, &all).map(|(kind, line)| (kind, line.into_owned())).collect();
        prop_assert_eq!(read.len(), expect.len());
        for ((kind, line), (expect_kind, expect)) in read.iter().zip(&expect) {
            // A line outside of hunks that looks like a file has a mark in front.
            prop_assert!(line == expect || *line == format!("> {expect}"), "{} {}", line, expect);
            prop_assert!(kind == expect_kind || *line != *expect, "{:?} {:?} {}", kind, expect_kind, line);
        }
    }
}
