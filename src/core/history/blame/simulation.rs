//! Blame against an oracle: files that recorded changes and changes from outside edit in turn, each line with its true author.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Doubt, LastSeen, Origin, RecordedChange, blame, blame_within, last_seen, lines_of};
use crate::protocol::change::Form;

/// Steps of a session.
const STEPS: usize = 260;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Author {
    Change(usize),
    Outside,
    /// Older than the record.
    Before,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    text: String,
    author: Author,
}

/// A recorded change, with its own texts.
#[derive(Debug, Clone)]
struct Change {
    path: String,
    moved_to: Option<String>,
    form: Form,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Texts {
    /// Each line is the only one with its text.
    Unique,
    /// Many lines are equal, and some have no letters.
    Alike,
}

/// Files, and how they are changed.
struct World {
    state: u64,
    texts: Texts,
    /// One of so many steps comes from outside; 0 means that none does.
    outside_one_in: usize,
    written: usize,
    files: BTreeMap<String, Vec<Line>>,
    changes: Vec<Change>,
}

/// A line in a change of a file.
enum Step {
    Keep(Line),
    Add(Line),
    Remove(Line),
}

impl World {
    fn new(seed: u64, texts: Texts, outside_one_in: usize) -> World {
        let files = BTreeMap::new();
        let mut world = World { state: seed | 1, texts, outside_one_in, written: 0, files, changes: Vec::new() };
        for path in ["/w/a.rs", "/w/b.rs"] {
            let lines = (0..40).map(|_| world.line(Author::Before)).collect();
            world.files.insert(path.to_owned(), lines);
        }
        world
    }

    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 16) as usize % end.max(1)
    }

    fn line(&mut self, author: Author) -> Line {
        self.written += 1;
        let text = match self.texts {
            Texts::Unique => format!("    let value_{} = written(by, {author:?});", self.written),
            Texts::Alike => match self.below(9) {
                0 | 1 => "}".to_owned(),
                2 => String::new(),
                3 => "        return None;".to_owned(),
                other => format!("    assert_eq!(measure(sample), {other});"),
            },
        };
        Line { text, author }
    }

    fn path(&mut self) -> Option<String> {
        let at = self.below(self.files.len());
        self.files.keys().nth(at).cloned()
    }

    fn free_path(&mut self) -> String {
        loop {
            let path = format!("/w/{}.rs", self.below(30));
            if !self.files.contains_key(&path) {
                return path;
            }
        }
    }

    fn step(&mut self) {
        if self.outside_one_in > 0 && self.below(self.outside_one_in) == 0 {
            return self.change_outside();
        }
        match self.below(30) {
            0 => self.add(),
            1 if self.files.len() > 2 => self.delete(),
            2 => self.update(true),
            _ => self.update(false),
        }
    }

    fn record(&mut self, path: &str, moved_to: Option<String>, form: Form, text: String) {
        self.changes.push(Change { path: path.to_owned(), moved_to, form, text });
    }

    fn add(&mut self) {
        let author = Author::Change(self.changes.len());
        let path = match self.below(4) {
            0 => self.path().unwrap_or_default(),
            _ => self.free_path(),
        };
        let count = self.below(30);
        let lines: Vec<Line> = (0..count).map(|_| self.line(author)).collect();
        let text = lines.iter().map(|line| format!("{}\n", line.text)).collect();
        self.record(&path, None, Form::Added, text);
        self.files.insert(path, lines);
    }

    fn delete(&mut self) {
        let Some(path) = self.path() else { return };
        let lines = self.files.remove(&path).unwrap_or_default();
        let text = lines.iter().map(|line| format!("{}\n", line.text)).collect();
        self.record(&path, None, Form::Deleted, text);
    }

    fn update(&mut self, is_move: bool) {
        let Some(path) = self.path() else { return };
        let author = Author::Change(self.changes.len());
        let steps = self.edited(&path, author);
        let context = [1, 1, 3][self.below(3)];
        let diff = unified(&steps, context);
        let moved_to = is_move.then(|| self.free_path());
        if diff.is_empty() {
            return;
        }
        let diff = moved_to.iter().fold(diff, |diff, to| format!("{diff}\n\nMoved to: {to}"));
        self.record(&path, moved_to.clone(), Form::Updated, diff);
        self.files.remove(&path);
        self.files.insert(moved_to.unwrap_or(path), after(steps));
    }

    /// Replaces, adds and removes some lines of a file.
    fn edited(&mut self, path: &str, author: Author) -> Vec<Step> {
        let lines = self.files.get(path).cloned().unwrap_or_default();
        let mut steps = Vec::new();
        let edits = 1 + self.below(3);
        let places: Vec<usize> = (0..edits).map(|_| self.below(lines.len() + 1)).collect();
        let mut removed = 0;
        for at in 0..=lines.len() {
            if places.contains(&at) {
                removed = [0, 0, 1, 2, 4][self.below(5)];
                let added = if removed == 0 { 1 + self.below(5) } else { self.below(5) };
                steps.extend((0..added).map(|_| Step::Add(self.line(author))));
            }
            let Some(line) = lines.get(at).cloned() else { break };
            steps.push(if removed > 0 { Step::Remove(line) } else { Step::Keep(line) });
            removed = usize::saturating_sub(removed, 1);
        }
        steps
    }

    fn change_outside(&mut self) {
        let Some(path) = self.path() else { return };
        let steps = self.edited(&path, Author::Outside);
        self.files.insert(path, after(steps));
    }

    fn recorded(&self) -> Vec<RecordedChange<'_>> {
        let recorded = |change: &'_ Change| RecordedChange {
            path: Box::leak(change.path.clone().into_boxed_str()),
            moved_to: change.moved_to.clone().map(|to| &*Box::leak(to.into_boxed_str())),
            form: change.form,
            text: Some(Box::leak(change.text.clone().into_boxed_str())),
            is_done: true,
            is_timed: true,
        };
        self.changes.iter().map(recorded).collect()
    }

    /// Whether a change has added a line with this text.
    fn has_written(&self, change: usize, text: &str) -> bool {
        let change = &self.changes[change];
        let added = format!("+{text}");
        match change.form {
            Form::Added => change.text.lines().any(|line| line == text),
            Form::Deleted | Form::Updated | Form::Turn | Form::Listed => change.text.lines().any(|line| line == added),
        }
    }
}

/// The lines that a change leaves.
fn after(steps: Vec<Step>) -> Vec<Line> {
    let line = |step| match step {
        Step::Keep(line) | Step::Add(line) => Some(line),
        Step::Remove(_) => None,
    };
    steps.into_iter().filter_map(line).collect()
}

/// The diff of a change with so many lines of context; empty if nothing is changed.
fn unified(steps: &[Step], context: usize) -> String {
    let is_changed = |step: &Step| !matches!(step, Step::Keep(_));
    let is_shown = |at: usize| {
        let near = at.saturating_sub(context)..(at + context + 1).min(steps.len());
        steps[near].iter().any(is_changed)
    };
    let (mut diff, mut at, mut old, mut new) = (String::new(), 0, 0, 0);
    while at < steps.len() {
        if !is_shown(at) {
            (at, old, new) = (at + 1, old + 1, new + 1);
            continue;
        }
        let (mut body, old_from, new_from) = (String::new(), old, new);
        while at < steps.len() && is_shown(at) {
            let (sign, line) = match &steps[at] {
                Step::Keep(line) => (' ', line),
                Step::Add(line) => ('+', line),
                Step::Remove(line) => ('-', line),
            };
            old += usize::from(sign != '+');
            new += usize::from(sign != '-');
            body.push_str(&format!("{sign}{}\n", line.text));
            at += 1;
        }
        let range = |from: usize, to: usize| format!("{},{}", if from == to { from } else { from + 1 }, to - from);
        diff.push_str(&format!("@@ -{} +{} @@\n{body}", range(old_from, old), range(new_from, new)));
    }
    diff
}

/// How the lines of all files were judged.
#[derive(Debug, Default, PartialEq, Eq)]
struct Verdict {
    /// Lines of a change that were found to be its own.
    found: usize,
    missed: usize,
    outside: usize,
}

/// Plays a session and judges each line. Panics at a wrong author.
fn play(seed: u64, texts: Texts, outside_one_in: usize) -> Verdict {
    let mut world = World::new(seed, texts, outside_one_in);
    (0..STEPS).for_each(|_| world.step());
    assert!(world.changes.len() >= 100, "{}", world.changes.len());
    let recorded = world.recorded();
    let mut verdict = Verdict::default();
    for (path, lines) in &world.files {
        let texts_of: Vec<&str> = lines.iter().map(|line| &*line.text).collect();
        let origins = blame(path, &texts_of, &recorded);
        assert_eq!(origins.len(), lines.len());
        for (number, (line, origin)) in lines.iter().zip(&origins).enumerate() {
            let what = || format!("seed {seed}, {texts:?}, {path}:{}: {line:?} {origin:?}", number + 1);
            let is_exact = outside_one_in == 0 || texts == Texts::Unique;
            match (origin, line.author) {
                (Origin::Change(change), author) => {
                    assert!(!is_exact || author == Author::Change(*change), "{}", what());
                    assert!(world.has_written(*change, &line.text), "{}", what());
                    verdict.found += usize::from(author == Author::Change(*change));
                }
                (Origin::Outside(_), author) => {
                    assert!(!is_exact || author == Author::Outside, "{}", what());
                    verdict.outside += 1;
                }
                (Origin::Unrecorded, Author::Change(_)) => {
                    assert!(outside_one_in > 0, "{}", what());
                    verdict.missed += 1;
                }
                (Origin::Unrecorded, Author::Outside | Author::Before) => {}
                (Origin::Unknown(..), _) => panic!("{}", what()),
            }
        }
    }
    verdict
}

proptest! {
    #[test]
    fn recorded_changes_alone_give_every_author(seed: u64) {
        for texts in [Texts::Unique, Texts::Alike] {
            let verdict = play(seed, texts, 0);
            prop_assert_eq!((verdict.missed, verdict.outside), (0, 0));
        }
    }

    #[test]
    fn unique_lines_survive_changes_from_outside(seed: u64, outside_one_in in 2_usize..12) {
        let verdict = play(seed, Texts::Unique, outside_one_in);
        prop_assert_eq!(verdict.missed, 0, "seed {}, 1 in {}: {:?}", seed, outside_one_in, verdict);
    }

    #[test]
    fn equal_lines_are_of_a_change_that_wrote_them(seed: u64, outside_one_in in 2_usize..12) {
        play(seed, Texts::Alike, outside_one_in);
    }
}

#[test]
fn most_equal_lines_have_their_authors() {
    let (mut found, mut missed) = (0, 0);
    for seed in 1..60 {
        let verdict = play(seed * 7_919, Texts::Alike, 8);
        (found, missed) = (found + verdict.found, missed + verdict.missed);
    }
    assert!(missed * 20 < found, "{found} found, {missed} missed");
}

/// A change of `/w/a` by its kind and text.
fn change<'a>(form: Form, text: &'a str) -> RecordedChange<'a> {
    RecordedChange { path: "/w/a", moved_to: None, form, text: Some(text), is_done: true, is_timed: true }
}

/// One letter or digit for each line: the number of its change, `o` outside, `-` no change, `m` masked, `i` incomplete, `f` failed.
fn check(text: &str, changes: &[RecordedChange<'_>], expect: &str) {
    let lines: Vec<&str> = super::lines_of(text).collect();
    let of = |origin: &Origin| match origin {
        Origin::Change(number) => number.to_string(),
        Origin::Outside(_) => "o".to_owned(),
        Origin::Unrecorded => "-".to_owned(),
        Origin::Unknown(_, Doubt::Masked) => "m".to_owned(),
        Origin::Unknown(_, Doubt::Incomplete) => "i".to_owned(),
        Origin::Unknown(_, Doubt::Failed) => "f".to_owned(),
        Origin::Unknown(_, Doubt::Alike) => "a".to_owned(),
    };
    let actual: String = blame("/w/a", &lines, changes).iter().map(of).collect();
    assert_eq!(actual, expect, "{text}");
}

#[test]
fn added_file_is_known_as_a_whole() {
    let added = change(Form::Added, "one\ntwo\nthree\n");
    check("one\ntwo\nthree\n", &[added], "000");
    check("one\ntwo\nthree", &[added], "000");
    check("zero\none\n2\nthree\nfour\n", &[added], "o0o0o");
    check("", &[added], "");
    check("\n", &[change(Form::Added, "")], "o");
    check("one\r\ntwo\r\n", &[change(Form::Added, "one\r\ntwo\r\n")], "00");
    check("one\ntwo\n", &[change(Form::Added, "one\r\ntwo\r\n")], "oo");
    // Its older lines do not matter.
    check("one\n", &[change(Form::Added, "one\n"), change(Form::Added, "one\n")], "1");
}

#[test]
fn deleted_file_that_is_there_was_made_again() {
    let [added, deleted] = [change(Form::Added, "one\n"), change(Form::Deleted, "one\n")];
    check("one\n", &[added, deleted], "o");
    check("one\n", &[added, deleted, added], "2");
    assert_eq!(last_seen("/w/a", &[added, deleted]), LastSeen::Deleted(1));
    assert_eq!(last_seen("/w/a", &[added, deleted, added]), LastSeen::There(2));
    assert_eq!(last_seen("/w/b", &[added]), LastSeen::Never);
}

#[test]
fn moves_are_followed() {
    let moved = |path, to, diff| RecordedChange { path, moved_to: Some(to), ..change(Form::Updated, diff) };
    let added = RecordedChange { path: "/w/c", ..change(Form::Added, "one\ntwo\n") };
    let first = moved("/w/c", "/w/b", "@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n\n\nMoved to: /w/b");
    let second = moved("/w/b", "/w/a", "@@ -1,2 +1,3 @@\n one\n TWO\n+three\n\n\nMoved to: /w/a");
    // The name belonged to another file before.
    let other = change(Form::Added, "one\n");
    check("one\nTWO\nthree\n", &[other, added, first, second], "123");
    assert_eq!(last_seen("/w/b", &[added, first, second]), LastSeen::Moved(2));
    check("one\n", &[moved("/w/a", "/w/b", "")], "o");
}

#[test]
fn altered_lines_of_a_hunk_are_from_outside() {
    let diff = "@@ -4,2 +4,5 @@\n before();\n+    first_added(line);\n+    second_added(line);\n+    third_added(line);\n after();\n";
    let around = |lines: &str| format!("1\n2\n3\nbefore();\n{lines}after();\n7\n");
    let update = [change(Form::Updated, diff)];
    let whole = "    first_added(line);\n    second_added(line);\n    third_added(line);\n";
    check(&around(whole), &update, "----000--");
    check(&around("    first_added(line);\n    mine(line);\n    third_added(line);\n"), &update, "----0o0--");
    check(&around("    first_added(line);\n    third_added(line);\n"), &update, "----00--");
    check(&around("    mine(line);\n"), &update, "----o--");
    check(&format!("new\nnew\n{}", around(whole)), &update, "------000--");
    check("mine\n", &update, "-");
}

#[test]
fn masked_and_missing_diffs_leave_doubt() {
    let masked = "@@ -1,2 +1,4 @@\n a();\n+export TOKEN=[redacted]**\n+PIN=****\n b();\n";
    check("a();\nexport TOKEN=abcdefghijkl\nPIN=1234\nb();\n", &[change(Form::Updated, masked)], "-mm-");
    check("a();\nexport OTHER=abc\nPIN=1234\nb();\n", &[change(Form::Updated, masked)], "-mm-");
    check("a();\nexport TOKEN=abc\nmine\nPIN=1234\nb();\n", &[change(Form::Updated, masked)], "-mom-");
    let missing = RecordedChange { text: None, ..change(Form::Updated, "") };
    let added = change(Form::Added, "one\ntwo\n");
    check("one\n2\n", &[added, missing], "0i");
    check("one\n2\n", &[missing], "ii");
    check("one\n", &[RecordedChange { text: None, ..added }], "i");
    let cut = change(Form::Updated, "@@ -1,2 +1,9 @@\n one\n+cut");
    check("one\ncut\ntwo\n", &[added, cut], "0i0");
    // Other parts of such a change are whole.
    let half = "@@ -1,2 +1,9 @@\n one\n+cut\n@@ -8,2 +15,3 @@\n eight\n+and_a_half_of_eight\n nine\n";
    let text = "one\ncut\neight\nand_a_half_of_eight\nnine\n";
    check(text, &[change(Form::Updated, half)], "iii0i");
    // A line of stars is a line like any other.
    check("****\nx\n", &[change(Form::Added, "****\n")], "0o");
}

/// Each row of such a file may be the place of the hunk.
#[test]
fn search_among_equal_lines_ends() {
    let diff = format!("@@ -90,50 +90,51 @@\n{}+gone\n \n \n", " \n".repeat(48));
    let changes = [change(Form::Added, "first\n"), change(Form::Updated, &diff)];
    let text = "\n".repeat(2_000);
    let lines: Vec<&str> = lines_of(&text).collect();
    let found = blame_within("/w/a", &lines, &changes, 10_000);
    assert!(found.iter().all(|origin| *origin == Origin::Unknown(1, Doubt::Alike)), "{:?}", found[0]);
    // With enough of them it is known that the file was changed outside.
    let found = blame_within("/w/a", &lines, &changes, 1_000_000);
    assert!(!found.contains(&Origin::Unknown(1, Doubt::Alike)), "{:?}", found[0]);
}

#[test]
fn failed_changes_count_only_if_they_are_there() {
    let failed = RecordedChange { is_done: false, ..change(Form::Updated, "@@ -1,2 +1,3 @@\n a();\n+b();\n c();\n") };
    check("a();\nb();\nc();\n", &[failed], "-f-");
    check("a();\nc();\n", &[failed], "--");
    let added = RecordedChange { is_done: false, ..change(Form::Added, "a();\n") };
    check("a();\n", &[added], "f");
    check("b();\n", &[added], "-");
}

#[test]
fn changes_without_a_time_leave_other_lines_alone() {
    let update = change(Form::Updated, "@@ -1,2 +1,3 @@\n one\n+and a half\n two\n");
    let untimed = |form, text| RecordedChange { is_timed: false, ..change(form, text) };
    // The file was added before it was updated.
    check("one\nand a half\ntwo\nmine\n", &[update, untimed(Form::Added, "one\ntwo\n")], "101-");
    check("one\nand a half\ntwo\n", &[update, untimed(Form::Deleted, "one\ntwo\n")], "-0-");
}

#[test]
fn lines_moved_from_an_end_are_no_evidence() {
    let diff = "@@ -1,2 +1,3 @@\n+use the_first_of_all::lines;\n a();\n b();\n";
    let others = "x\n".repeat(60);
    let text = format!("{others}use the_first_of_all::lines;\n");
    check(&text, &[change(Form::Updated, diff)], &format!("{}0", "-".repeat(60)));
    check("new\nuse the_first_of_all::lines;\n", &[change(Form::Updated, diff)], "o0");
}

#[test]
fn whole_content_of_a_file_is_replaced() {
    let update = change(Form::Updated, "@@ -1,2 +0,0 @@\n-a\n-b\n");
    check("mine\n", &[update], "o");
    let filled = change(Form::Updated, "@@ -0,0 +1,2 @@\n+a\n+b\n");
    check("a\nb\nc\n", &[update, filled], "11o");
    // Without lines that stay it is not known where the file ends.
    check("b\nc\n", &[change(Form::Updated, "@@ -1 +1 @@\n-a\n+b\n")], "0-");
}

#[test]
fn large_file_with_many_changes_is_quick() {
    let mut world = World::new(7, Texts::Unique, 0);
    world.files.clear();
    let lines: Vec<Line> = (0..10_000).map(|_| world.line(Author::Before)).collect();
    world.files.insert("/w/a".to_owned(), lines);
    (0..200).for_each(|_| world.update(false));
    for _ in 0..20 {
        world.outside_one_in = 1;
        world.change_outside();
        world.update(false);
    }
    let recorded = world.recorded();
    let lines: Vec<&str> = world.files["/w/a"].iter().map(|line| &*line.text).collect();
    let origins = blame("/w/a", &lines, &recorded);
    for (line, origin) in world.files["/w/a"].iter().zip(origins) {
        match line.author {
            Author::Change(number) => assert_eq!(origin, Origin::Change(number), "{line:?}"),
            Author::Outside | Author::Before => assert!(!matches!(origin, Origin::Change(_)), "{line:?}"),
        }
    }
}
