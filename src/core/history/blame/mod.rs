//! The recorded change that wrote each line of a file.
//!
//! [`blame`] goes backwards: it undoes one change after the other, the newest first, beginning with the present text. A change wrote
//! the lines that it has added and that still stand in their place. Changes outside of codex are not on record. They show only if the
//! text contradicts a recorded change; then the found lines of that change are undone.
//!
//! Pure. It never names a change for a line whose text that change has not added. Of several equal lines, one may be taken for
//! another, as in any comparison of texts.

mod align;
mod place;
#[cfg(test)]
mod simulation;

use std::cell::Cell;
use std::collections::HashMap;

use self::place::{Finder, Place};
use crate::protocol::change::Form;
use crate::protocol::hunk::{Hunk, HunkLine};

/// A recorded change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedChange<'a> {
    pub path: &'a str,
    /// Its new name, if the change has moved it.
    pub moved_to: Option<&'a str>,
    pub form: Form,
    /// The diff, or the whole text of an added or deleted file; `None` if the record has left it out.
    pub text: Option<&'a str>,
    /// Codex says that it was made. Of one that failed, a part may have been.
    pub is_done: bool,
    /// Its place among the others is sure. Codex's own history may lack the time of a change.
    pub is_timed: bool,
}

/// The origin of a line. A number is the place of a change in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Change(usize),
    /// It contradicts what this change has left, so it was written later, and not by codex.
    Outside(usize),
    /// No recorded change has written it.
    Unrecorded,
    /// The record of this change does not say whether it has written the line.
    Unknown(usize, Doubt),
}

/// The reason for an unknown origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// The record has a mask in place of a part of the line.
    Masked,
    /// The record does not have the whole diff.
    Incomplete,
    /// The change failed, and may have been made in part.
    Failed,
    /// Too many lines are equal.
    Alike,
}

/// The last word of the record about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastSeen {
    Never,
    /// The file existed after this change.
    There(usize),
    Deleted(usize),
    /// This change has moved it elsewhere.
    Moved(usize),
}

/// The last word of the changes, oldest first, about `path`.
pub fn last_seen(path: &str, changes: &[RecordedChange<'_>]) -> LastSeen {
    let timed = last_seen_in(path, changes.iter().enumerate().filter(|(_, change)| change.is_timed));
    if timed == LastSeen::Never { last_seen_in(path, changes.iter().enumerate()) } else { timed }
}

fn last_seen_in<'a>(path: &str, changes: impl DoubleEndedIterator<Item = (usize, &'a RecordedChange<'a>)>) -> LastSeen {
    for (number, change) in changes.rev().filter(|(_, change)| change.is_done) {
        let moved_to = change.moved_to.filter(|to| *to != change.path);
        if moved_to == Some(path) {
            return LastSeen::There(number);
        }
        if change.path == path {
            return match (change.form, moved_to) {
                (_, Some(_)) => LastSeen::Moved(number),
                (Form::Deleted, None) => LastSeen::Deleted(number),
                (_, None) => LastSeen::There(number),
            };
        }
    }
    LastSeen::Never
}

/// The lines of a text, without the line feeds.
pub fn lines_of(text: &str) -> impl Iterator<Item = &str> {
    // An empty text has no line, and one that is only a line feed has an empty one.
    let lines = (!text.is_empty()).then(|| text.strip_suffix('\n').unwrap_or(text).split('\n'));
    lines.into_iter().flatten()
}

/// The origin of each of these lines, which the file `path` has after the `changes`, oldest first.
pub fn blame<'a>(path: &str, lines: &[&'a str], changes: &[RecordedChange<'a>]) -> Vec<Origin> {
    blame_within(path, lines, changes, COMPARED_MAX)
}

/// The same with at most so many comparisons of lines in hunks that are looked for everywhere.
fn blame_within<'a>(path: &str, lines: &[&'a str], changes: &[RecordedChange<'a>], compared_max: u64) -> Vec<Origin> {
    let (mut texts, mut rows) = (Texts::default(), Vec::with_capacity(lines.len()));
    texts.compared_left.set(compared_max);
    for (number, line) in lines.iter().enumerate() {
        rows.push(Row { id: texts.id(line), of: Some(number), shift: 0 });
    }
    let texts = Texts { today: texts.all.len(), ..texts };
    let mut file = File { rows, origins: vec![None; lines.len()], texts, opaque: None, is_shifted: false };
    let (mut names, mut given_up) = (vec![path], None);
    for (number, change) in changes.iter().enumerate().rev() {
        let moved_to = change.moved_to.filter(|to| *to != change.path);
        if moved_to.is_some_and(|to| names.contains(&to)) {
            file.undo(number, change);
            if change.is_done {
                // A move at an unknown time may have come before changes under the new name.
                names.retain(|name| !change.is_timed || Some(*name) != moved_to);
                names.push(change.path);
            }
        } else if names.contains(&change.path) {
            let is_gone = change.is_done && (change.form == Form::Deleted || moved_to.is_some());
            let before = if is_gone { Before::Nothing } else { file.undo(number, change) };
            if before == Before::Nothing && change.is_timed {
                file.end(number);
                break;
            }
        }
        if file.texts.compared_left.get() == 0 {
            given_up = Some(Origin::Unknown(number, Doubt::Alike));
            break;
        }
    }
    let opaque = file.opaque.map(|change| Origin::Unknown(change, Doubt::Incomplete));
    let rest = given_up.or(opaque).unwrap_or(Origin::Unrecorded);
    file.origins.into_iter().map(|origin| origin.unwrap_or(rest)).collect()
}

/// Whether there was a file before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Something,
    Nothing,
}

/// A line of the file as it was at some time.
#[derive(Debug, Clone, Copy)]
struct Row {
    id: u32,
    /// The line today that it has become.
    of: Option<usize>,
    /// Lines between it and the line before that recorded changes do not know, less the missing ones.
    shift: isize,
}

/// Texts as numbers.
#[derive(Debug, Default)]
struct Texts<'a> {
    ids: HashMap<&'a str, u32>,
    all: Vec<&'a str>,
    masked: Vec<bool>,
    /// How many of them are lines of the file today, which no mask stands in.
    today: usize,
    /// Comparisons left for the search of hunks in the whole file. With many equal lines, a hunk would need one for each of its lines at
    /// each row.
    compared_left: Cell<u64>,
}

/// Comparisons of lines, a second or two.
const COMPARED_MAX: u64 = 1 << 27;

/// The likeness of two lines.
const EQUAL: u32 = 4;
const MASKED: u32 = 2;
const WHOLLY_MASKED: u32 = 1;

impl<'a> Texts<'a> {
    fn id(&mut self, text: &'a str) -> u32 {
        let next = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let id = *self.ids.entry(text).or_insert(next);
        if id == next {
            self.all.push(text);
            self.masked.push(pieces(text).nth(1).is_some());
        }
        id
    }

    fn text(&self, id: u32) -> &'a str {
        self.all.get(id as usize).copied().unwrap_or_default()
    }

    fn weight(&self, one: u32, other: u32) -> u32 {
        if one == other {
            return EQUAL;
        }
        let as_mask = |mask: u32, line: u32| {
            let may_be = self.is_masked(mask);
            may_be.then(|| masked_as(self.text(mask), self.text(line))).flatten()
        };
        match as_mask(one, other).or_else(|| as_mask(other, one)) {
            None => 0,
            Some(0) => WHOLLY_MASKED,
            Some(_) => MASKED,
        }
    }

    fn is_masked(&self, id: u32) -> bool {
        id as usize >= self.today && self.masked.get(id as usize).copied().unwrap_or_default()
    }

    /// Letters and digits of a line that tell it from others.
    fn evidence(&self, id: u32) -> usize {
        self.text(id).chars().filter(|char| char.is_alphanumeric()).take(EVIDENCE_PER_LINE_MAX).count()
    }
}

/// Most letters and digits that count in a line.
const EVIDENCE_PER_LINE_MAX: usize = 40;

/// Stars that may stand in place of a short secret.
const STARS_MIN: usize = 3;

/// The parts of a text around the masks of secrets.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    const MASK: &str = "[redacted]";
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let word = text.find(MASK).map(|at| (at, MASK.len()));
        let stars = text.find("***").map(|at| (at, STARS_MIN));
        let Some((at, length)) = [word, stars].into_iter().flatten().min() else { return rest.take() };
        rest = Some(text[at + length..].trim_start_matches('*'));
        Some(&text[..at])
    })
}

/// How many bytes of a masked line are those of another one, if it can be that line; `None` if it is not masked.
fn masked_as(masked: &str, line: &str) -> Option<usize> {
    let pieces: Vec<&str> = pieces(masked).collect();
    let [first, middle @ .., last] = &pieces[..] else { return None };
    let mut rest = line.strip_prefix(first)?;
    for piece in middle {
        rest = &rest[rest.find(piece)? + piece.len()..];
    }
    rest.strip_suffix(last)?;
    Some(pieces.iter().map(|piece| piece.len()).sum())
}

/// The file at some time.
struct File<'a> {
    rows: Vec<Row>,
    /// By the lines of today.
    origins: Vec<Option<Origin>>,
    texts: Texts<'a>,
    /// The newest change so far whose diff is incomplete.
    opaque: Option<usize>,
    /// Some rows have a shift.
    is_shifted: bool,
}

impl<'a> File<'a> {
    /// Undoes a change.
    fn undo(&mut self, number: usize, change: &RecordedChange<'a>) -> Before {
        let Some(text) = change.text else {
            if change.is_done {
                self.opaque.get_or_insert(number);
            }
            return if change.is_done && change.form == Form::Added { Before::Nothing } else { Before::Something };
        };
        match change.form {
            Form::Added => self.undo_whole(number, text, change),
            Form::Deleted => Before::Something,
            Form::Updated | Form::Turn | Form::Listed => {
                self.undo_hunks(number, text, change);
                Before::Something
            }
        }
    }

    /// All lines that are left were written after this change.
    fn end(&mut self, number: usize) {
        let rest = self.rest(number);
        self.rows.drain(..).filter_map(|row| row.of).for_each(|line| self.origins[line] = Some(rest));
    }

    /// The origin of a line that was not there after a change.
    fn rest(&self, number: usize) -> Origin {
        self.opaque.map_or(Origin::Outside(number), |opaque| Origin::Unknown(opaque, Doubt::Incomplete))
    }

    /// Undoes the addition of a file with this text.
    fn undo_whole(&mut self, number: usize, text: &'a str, change: &RecordedChange<'a>) -> Before {
        let added: Vec<HunkLine<'a>> = lines_of(text).map(HunkLine::Added).collect();
        let added = if text.is_empty() { Vec::new() } else { added };
        let new_count = added.len();
        let hunk = Hunk { old_from: 0, new_from: 0, old_count: 0, new_count, lines: added };
        self.undo_all(number, &[hunk], change);
        if change.is_done || self.rows.is_empty() { Before::Nothing } else { Before::Something }
    }

    fn undo_hunks(&mut self, number: usize, diff: &'a str, change: &RecordedChange<'a>) {
        let hunks = Hunk::all(diff);
        if change.is_done && !hunks.iter().all(Hunk::is_whole) {
            self.opaque.get_or_insert(number);
        }
        self.undo_all(number, &hunks, change);
    }

    /// Undoes the hunks that are whole, or nothing of a change that failed and is not there as a whole.
    fn undo_all(&mut self, number: usize, hunks: &[Hunk<'a>], change: &RecordedChange<'a>) {
        let &RecordedChange { is_done, is_timed, .. } = change;
        let news: Vec<Vec<u32>> =
            hunks.iter().map(|hunk| hunk.new_lines().map(|text| self.texts.id(text)).collect()).collect();
        let places = Finder::new(&self.rows, &self.texts, self.is_shifted).find(hunks, &news);
        if !is_done && !places.iter().zip(&news).all(|(place, new)| place.is_exact(new.len())) {
            return;
        }
        let mut undone = Undone {
            number,
            is_done,
            is_timed,
            doubt: None,
            before: Vec::with_capacity(self.rows.len()),
            at: 0,
            sum: 0,
            next_shift: 0,
        };
        for ((hunk, new), place) in hunks.iter().zip(&news).zip(&places) {
            undone.hunk(self, hunk, new, place);
        }
        let to = self.rows.len();
        let rest = to.saturating_sub(undone.at);
        let is_end = |(hunk, place): (&Hunk<'a>, &Place)| hunk.ends_file() && place.reaches(rest, hunk);
        match hunks.last().zip(places.last()).is_some_and(is_end) {
            true => undone.drop_to(self, to),
            false => undone.keep_to(self, to),
        }
        self.is_shifted |= undone.sum != 0 || undone.before.iter().any(|row| row.shift != 0);
        self.rows = undone.before;
    }
}

/// The file before a change, as far as it is built.
struct Undone {
    number: usize,
    is_done: bool,
    is_timed: bool,
    /// The reason for not telling rows at this place from lines of the change.
    doubt: Option<Doubt>,
    before: Vec<Row>,
    /// The next row of the file after the change.
    at: usize,
    /// The sum of the shifts so far.
    sum: isize,
    /// How much more the next row is shifted.
    next_shift: isize,
}

impl Undone {
    /// Undoes a hunk.
    fn hunk<'a>(&mut self, file: &mut File<'a>, hunk: &Hunk<'a>, new: &[u32], place: &Place) {
        let first = place.pairs.first().map_or(place.at, |pair| pair.row);
        match hunk.begins_file() && place.reaches(first, hunk) && self.at == 0 {
            true => {
                let lines_before = place.pairs.first().map_or(new.len(), |pair| pair.line);
                self.doubt = file.has_mask(&new[..lines_before]).then_some(Doubt::Masked);
                self.drop_to(file, first);
            }
            false => self.keep_to(file, first),
        }
        if !place.is_found() && !place.is_whole_file {
            // Its lines are gone, and whether others have their place is not known.
            self.next_shift += hunk.new_count as isize - hunk.old_count as isize;
            return;
        }
        let begins = self.before.len();
        let mut pairs = place.pairs.iter().peekable();
        let mut next = new.iter().enumerate();
        let mut group = None;
        self.doubt = (!place.is_complete).then_some(Doubt::Alike);
        for line in &hunk.lines {
            let (text, is_added) = match line {
                HunkLine::Removed(text) => {
                    let id = file.texts.id(text);
                    self.push(Row { id, of: None, shift: 0 });
                    continue;
                }
                HunkLine::Context(text) => (text, false),
                HunkLine::Added(text) => (text, true),
            };
            let Some((number, id)) = next.next() else { continue };
            match pairs.next_if(|pair| pair.line == number) {
                Some(pair) => {
                    // Rows between two lines that were found together came between them later.
                    match group == Some(pair.group) {
                        true => self.drop_to(file, pair.row),
                        false => self.keep_to(file, pair.row),
                    }
                    group = Some(pair.group);
                    self.doubt = (!place.is_complete).then_some(Doubt::Alike);
                    self.paired(file, pair.row, *id, is_added);
                }
                None => {
                    if file.texts.is_masked(*id) {
                        self.doubt = Some(Doubt::Masked);
                    }
                    if !is_added {
                        let id = file.texts.id(text);
                        self.push(Row { id, of: None, shift: 0 });
                    }
                }
            }
        }
        self.anchor(file, begins, hunk.old_from);
    }

    /// A row that is a line of the hunk.
    fn paired(&mut self, file: &mut File<'_>, row: usize, id: u32, is_added: bool) {
        self.at = row + 1;
        let row = file.rows[row];
        if !is_added {
            return self.push(Row { shift: 0, ..row });
        }
        let origin = match (row.id == id, self.is_done) {
            (_, false) => Origin::Unknown(self.number, Doubt::Failed),
            (true, true) => Origin::Change(self.number),
            (false, true) => Origin::Unknown(self.number, Doubt::Masked),
        };
        if let Some(line) = row.of {
            file.origins[line] = Some(origin);
        }
        if !self.is_timed {
            // Changes that are yet to be undone may be later ones, and need the lines around theirs.
            self.push(Row { of: None, ..row });
        }
    }

    /// Rows that the change has left as they were.
    fn keep_to(&mut self, file: &File<'_>, to: usize) {
        for row in file.rows.get(self.at..to).unwrap_or_default() {
            self.push(*row);
        }
        self.at = self.at.max(to);
    }

    /// Rows that were not there after the change, unless they are lines of it that cannot be compared.
    fn drop_to(&mut self, file: &mut File<'_>, to: usize) {
        if !self.is_timed {
            return self.keep_to(file, to);
        }
        let rest = file.rest(self.number);
        let origin = self.doubt.map_or(rest, |doubt| Origin::Unknown(self.number, doubt));
        for at in self.at..to {
            if let Some(line) = file.rows[at].of {
                file.origins[line] = Some(origin);
            }
        }
        self.at = self.at.max(to);
    }

    fn push(&mut self, row: Row) {
        let shift = row.shift + std::mem::take(&mut self.next_shift);
        self.sum += shift;
        self.before.push(Row { shift, ..row });
    }

    /// The lines of a hunk stood at this place, of which older changes know.
    fn anchor(&mut self, file: &mut File<'_>, row: usize, place: usize) {
        let Some(first) = self.before.get(row) else { return };
        let sum_before = self.sum - self.before[row..].iter().map(|row| row.shift).sum::<isize>();
        let shift = row as isize - place as isize - sum_before;
        self.sum += shift - first.shift;
        self.before[row].shift = shift;
        file.is_shifted |= shift != 0;
    }
}

impl File<'_> {
    fn has_mask(&self, lines: &[u32]) -> bool {
        lines.iter().any(|id| self.texts.is_masked(*id))
    }
}
