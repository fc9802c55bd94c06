//! The places of a change's lines in the present text.
//!
//! An unchanged hunk is found by all its lines, at the place that the diff names or, if lines above it came or went, at the nearest
//! other one. Of a hunk with later changes, lines count that stand in the old place of the hunk, or that have enough letters to tell
//! them from others.

use std::collections::HashMap;

use super::align::{align, ascending};
use super::{EQUAL, Row, Texts};
use crate::protocol::hunk::Hunk;

/// Letters and digits that lines need to be found anywhere. Source: git, which takes lines for moved from as many on.
const EVIDENCE_MIN: usize = 20;

/// Lines that an unchanged hunk needs to be found anywhere if it has fewer letters.
const LINES_MIN: usize = 3;

/// How many lines may have come in the middle of a hunk, besides as many as it has.
const BETWEEN_MAX: usize = 20;

/// How far a changed hunk may reach beyond its lines that are found.
const BEYOND_MAX: usize = 2;

/// A line of a hunk that is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    /// The line's number in the hunk's new text.
    pub(super) line: usize,
    pub(super) row: usize,
    /// Lines of one group were found together.
    pub(super) group: usize,
}

/// The place of a hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// In order.
    pub(super) pairs: Vec<Pair>,
    /// The row before which it stood, if no line is found.
    pub(super) at: usize,
    /// The hunk has all lines of the file.
    pub(super) is_whole_file: bool,
    /// All lines were compared.
    pub(super) is_complete: bool,
}

impl Place {
    fn exact(at: usize, lines: usize) -> Place {
        let pairs = (0..lines).map(|line| Pair { line, row: at + line, group: 0 }).collect();
        Place { pairs, at, is_whole_file: false, is_complete: true }
    }

    pub(super) fn is_found(&self) -> bool {
        !self.pairs.is_empty()
    }

    /// Whether the hunk reaches an end of the file from which so many rows stand away. Its lines may have been moved from there.
    pub(super) fn reaches(&self, rows: usize, hunk: &Hunk<'_>) -> bool {
        self.is_whole_file || (self.is_found() && rows <= hunk.new_count + BETWEEN_MAX)
    }

    /// Whether all lines stand together.
    pub(super) fn is_exact(&self, lines: usize) -> bool {
        self.pairs.len() == lines && self.pairs.windows(2).all(|two| two[0].row + 1 == two[1].row)
    }

    /// The rows before and after it.
    fn bounds(&self) -> (usize, usize) {
        match (self.pairs.first(), self.pairs.last()) {
            (Some(first), Some(last)) => (first.row, last.row + 1),
            (_, _) => (self.at, self.at),
        }
    }
}

/// Finds the hunks of a change in a file.
pub(super) struct Finder<'a> {
    rows: &'a [Row],
    ids: Vec<u32>,
    texts: &'a Texts<'a>,
    /// The number that each row has in the file after the change, and the row, in order; empty if that is its own.
    numbers: Vec<(isize, usize)>,
    /// The rows with each text, once it is needed.
    index: Option<HashMap<u32, Vec<usize>>>,
}

/// A part of the lines of a hunk, and the rows among which it is looked for.
#[derive(Clone, Copy)]
struct Part {
    lines: (usize, usize),
    rows: (usize, usize),
}

impl<'a> Finder<'a> {
    pub(super) fn new(rows: &'a [Row], texts: &'a Texts<'a>, is_shifted: bool) -> Finder<'a> {
        let mut sum = 0;
        let number = |(at, row): (usize, &Row)| {
            sum += row.shift;
            (at as isize - sum, at)
        };
        let mut numbers: Vec<_> = if is_shifted { rows.iter().enumerate().map(number).collect() } else { Vec::new() };
        numbers.sort();
        Finder { rows, ids: rows.iter().map(|row| row.id).collect(), texts, numbers, index: None }
    }

    /// The places of hunks that have left these lines.
    pub(super) fn find(mut self, hunks: &[Hunk<'_>], news: &[Vec<u32>]) -> Vec<Place> {
        if let ([hunk], [new]) = (hunks, news)
            && (hunk.is_whole() || hunk.lines.is_empty())
            && hunk.begins_file()
            && hunk.ends_file()
        {
            return vec![self.whole(new)];
        }
        let mut places: Vec<Option<Place>> = self.where_named(hunks, news);
        for step in [Finder::elsewhere, Finder::changed] {
            let next = self.next_places(&places);
            let (mut from, mut moved) = (0, 0);
            for (number, place) in places.iter_mut().enumerate() {
                let mut expected = self.expected(hunks[number].new_from);
                if place.is_none() && hunks[number].is_whole() {
                    expected = with_moved(&expected, moved);
                    *place = step(&mut self, &news[number], (from, next[number].max(from)), &expected);
                }
                if let Some(place) = place {
                    moved = distance(place.bounds().0, &expected);
                    from = place.bounds().1;
                }
            }
        }
        self.complete(hunks, places)
    }

    /// The row at which the next hunk begins that is found, for each hunk.
    fn next_places(&self, places: &[Option<Place>]) -> Vec<usize> {
        let mut next = self.rows.len();
        let begins = |place: &Option<Place>| {
            next = place.as_ref().map_or(next, |place| place.bounds().0);
            next
        };
        let mut all: Vec<usize> = places.iter().rev().map(begins).collect();
        all.reverse();
        all
    }

    /// Places for the hunks of which no line is found, too.
    fn complete(&self, hunks: &[Hunk<'_>], places: Vec<Option<Place>>) -> Vec<Place> {
        let next = self.next_places(&places);
        let mut from = 0;
        let place = |((hunk, next), place): ((&Hunk<'_>, usize), Option<Place>)| {
            let at = || self.expected(hunk.new_from).first().map_or(from, |at| (*at).clamp(from, next.max(from)));
            let place = place.unwrap_or_else(|| Place::exact(at(), 0));
            from = place.bounds().1;
            place
        };
        hunks.iter().zip(next).zip(places).map(place).collect()
    }

    /// The rows at which the line with this number of the file may stand.
    fn expected(&self, number: usize) -> Vec<usize> {
        if self.numbers.is_empty() {
            return vec![number.min(self.rows.len())];
        }
        let number = isize::try_from(number).unwrap_or(isize::MAX);
        let first = self.numbers.partition_point(|(of, _)| *of < number);
        let rest = self.numbers.get(first..).unwrap_or_default();
        let mut found: Vec<usize> = rest.iter().take_while(|(of, _)| *of == number).map(|(_, at)| *at).collect();
        if found.is_empty() {
            found.push(rest.first().map_or(self.rows.len(), |(_, at)| *at));
        }
        // Rows that came from outside stand before the line that is known.
        found.reverse();
        found
    }

    /// The hunks that stand unchanged where the diff says.
    fn where_named(&self, hunks: &[Hunk<'_>], news: &[Vec<u32>]) -> Vec<Option<Place>> {
        let (mut from, mut moved) = (0, 0);
        let mut place = |(hunk, new): (&Hunk<'_>, &Vec<u32>)| {
            if !hunk.is_whole() {
                return None;
            }
            let expected = self.expected(hunk.new_from);
            let found =
                with_moved(&expected, moved).into_iter().find(|at| *at >= from && self.is_at(new, *at).is_some())?;
            moved = distance(found, &expected);
            from = found + new.len();
            Some(Place::exact(found, new.len()))
        };
        hunks.iter().zip(news).map(&mut place).collect()
    }

    /// Whether these lines stand at this row, and how many of them are equal and not only masked.
    fn is_at(&self, new: &[u32], at: usize) -> Option<usize> {
        let rows = self.ids.get(at..at + new.len())?;
        let (mut equal, mut compared) = (0, 0);
        let all = new.iter().zip(rows).all(|(line, row)| {
            compared += 1;
            let weight = self.texts.weight(*line, *row);
            equal += usize::from(weight == EQUAL);
            weight > 0
        });
        let left = &self.texts.compared_left;
        left.set(left.get().saturating_sub(compared));
        all.then_some(equal)
    }

    /// The nearest place of unchanged lines.
    fn elsewhere(&mut self, new: &[u32], (from, to): (usize, usize), expected: &[usize]) -> Option<Place> {
        let last = to.checked_sub(new.len()).filter(|_| !new.is_empty())?;
        let mut found = Vec::new();
        for at in from..=last {
            if self.texts.compared_left.get() == 0 {
                return Some(Place { pairs: Vec::new(), at, is_whole_file: false, is_complete: false });
            }
            found.extend(self.is_at(new, at).is_some_and(|equal| 2 * equal > new.len()).then_some(at));
        }
        let evidence: usize = new.iter().map(|line| self.texts.evidence(*line)).sum();
        if evidence < EVIDENCE_MIN && (found.len() > 1 || new.len() < LINES_MIN) {
            return None;
        }
        let nearest = found.into_iter().min_by_key(|at| distance(*at, expected).unsigned_abs())?;
        Some(Place::exact(nearest, new.len()))
    }

    /// The lines of a changed hunk that are still there.
    fn changed(&mut self, new: &[u32], (from, to): (usize, usize), expected: &[usize]) -> Option<Place> {
        let mut found = Found { pairs: Vec::new(), groups: 0, is_complete: true };
        let all = Part { lines: (0, new.len()), rows: (from, to) };
        self.groups(new, all, expected, &mut found);
        if found.pairs.is_empty() {
            let at = |at: &usize| self.near(new, all, *at);
            found = expected.iter().map(at).max_by_key(|found| found.pairs.len())?;
            let evidence: usize = found.pairs.iter().map(|pair| self.texts.evidence(new[pair.line])).sum();
            if evidence == 0 || (evidence < EVIDENCE_MIN && 2 * found.pairs.len() < new.len()) {
                return None;
            }
        }
        let Found { mut pairs, is_complete, .. } = found;
        pairs.sort_unstable_by_key(|pair| pair.line);
        let at = pairs.first()?.row;
        Some(Place { pairs, at, is_whole_file: false, is_complete })
    }

    /// Pairs a part around lines that stand only once, and then the rest before and after these.
    fn groups(&mut self, new: &[u32], part: Part, expected: &[usize], found: &mut Found) {
        let Some(core) = self.core(new, part, expected) else { return };
        let (Some((first_line, first_row)), Some((last_line, last_row))) =
            (core.first().copied(), core.last().copied())
        else {
            return;
        };
        let Part { lines: (line_from, line_to), rows: (row_from, row_to) } = part;
        let row_before = first_row.saturating_sub(first_line - line_from + BEYOND_MAX).max(row_from);
        let row_after = (last_row + line_to - last_line + BEYOND_MAX).min(row_to);
        let group = found.groups;
        found.groups += 1;
        let begins = found.pairs.len();
        for stretch in [
            Part { lines: (line_from, first_line), rows: (row_before, first_row) },
            Part { lines: (first_line, last_line + 1), rows: (first_row, last_row + 1) },
            Part { lines: (last_line + 1, line_to), rows: (last_row + 1, row_after) },
        ] {
            self.pair(new, stretch, group, found);
        }
        let of_group = &found.pairs[begins..];
        let (Some(first), Some(last)) = (of_group.first().copied(), of_group.last().copied()) else { return };
        self.groups(new, Part { lines: (line_from, first.line), rows: (row_from, first.row) }, &[], found);
        self.groups(new, Part { lines: (last.line + 1, line_to), rows: (last.row + 1, row_to) }, &[], found);
    }

    /// Lines of a part that stand once in it and among its rows, close together, with enough letters or in an expected place.
    fn core(&mut self, new: &[u32], part: Part, expected: &[usize]) -> Option<Vec<(usize, usize)>> {
        let Part { lines: (line_from, line_to), rows: (row_from, row_to) } = part;
        let lines = new.get(line_from..line_to)?;
        let ids = &self.ids;
        let index = self.index.get_or_insert_with(|| {
            let mut index: HashMap<u32, Vec<usize>> = HashMap::new();
            ids.iter().enumerate().for_each(|(at, id)| index.entry(*id).or_default().push(at));
            index
        });
        let mut counts: HashMap<u32, usize> = HashMap::new();
        lines.iter().for_each(|line| *counts.entry(*line).or_default() += 1);
        let single = |(at, line): (usize, &u32)| {
            let rows = index.get(line).filter(|_| counts[line] == 1)?;
            let mut within =
                rows[rows.partition_point(|row| *row < row_from)..].iter().take_while(|row| **row < row_to);
            let row = *within.next()?;
            within.next().is_none().then_some((line_from + at, row))
        };
        let pairs: Vec<(usize, usize)> = lines.iter().enumerate().filter_map(single).collect();
        let mut cores: Vec<Vec<(usize, usize)>> = Vec::new();
        for pair in ascending(&pairs) {
            let is_close = |(line, row): &(usize, usize)| pair.1 - row <= pair.0 - line + lines.len() + BETWEEN_MAX;
            match cores.last_mut().filter(|core| core.last().is_some_and(is_close)) {
                Some(core) => core.push(pair),
                None => cores.push(vec![pair]),
            }
        }
        let evidence =
            |core: &[(usize, usize)]| core.iter().map(|(line, _)| self.texts.evidence(new[*line])).sum::<usize>();
        let is_expected = |core: &[(usize, usize)]| {
            core.iter().any(|(line, row)| expected.iter().any(|at| at + line == *row)) && evidence(core) > 0
        };
        let core = cores.into_iter().max_by_key(|core| (evidence(core), is_expected(core)))?;
        (evidence(&core) >= EVIDENCE_MIN || is_expected(&core)).then_some(core)
    }

    /// Pairs the lines of a hunk with the rows around a place.
    fn near(&self, new: &[u32], part: Part, at: usize) -> Found {
        let (from, to) = part.rows;
        let rows = (at.saturating_sub(BEYOND_MAX).clamp(from, to), (at + new.len() + BEYOND_MAX).clamp(from, to));
        let mut found = Found { pairs: Vec::new(), groups: 1, is_complete: true };
        self.pair(new, Part { rows, ..part }, 0, &mut found);
        found
    }

    fn pair(&self, new: &[u32], part: Part, group: usize, found: &mut Found) {
        let Part { lines: (line_from, line_to), rows: (row_from, row_to) } = part;
        let weight = |line, row| self.texts.weight(line, row);
        let (pairs, is_complete) = align(&new[line_from..line_to], &self.ids[row_from..row_to], &weight);
        let pair = |(line, row): (usize, usize)| Pair { line: line_from + line, row: row_from + row, group };
        found.pairs.extend(pairs.into_iter().map(pair));
        found.is_complete &= is_complete;
    }

    /// The place of a hunk that has all lines of the file.
    fn whole(&self, new: &[u32]) -> Place {
        let mut found = Found { pairs: Vec::new(), groups: 1, is_complete: true };
        self.pair(new, Part { lines: (0, new.len()), rows: (0, self.rows.len()) }, 0, &mut found);
        Place { pairs: found.pairs, at: self.rows.len(), is_whole_file: true, is_complete: found.is_complete }
    }
}

/// Lines that were found so far.
struct Found {
    pairs: Vec<Pair>,
    groups: usize,
    is_complete: bool,
}

/// How far a row is from the nearest expected one.
fn distance(at: usize, expected: &[usize]) -> isize {
    let all = expected.iter().map(|expected| at as isize - *expected as isize);
    all.min_by_key(|distance| distance.unsigned_abs()).unwrap_or_default()
}

/// The expected rows; the first ones are as far away as the hunk before was.
fn with_moved(expected: &[usize], moved: isize) -> Vec<usize> {
    let beside = expected.iter().filter_map(|at| at.checked_add_signed(moved)).filter(|_| moved != 0);
    beside.chain(expected.iter().copied()).collect()
}
