//! Limits a journal to the records up to a time.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use serde::Deserialize;

use super::super::backup::{BackupError, Moment};
use super::Lines;
use crate::files::{self, Access};
use crate::journal::{Position, SegmentName};

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Any record.
#[derive(Deserialize)]
struct Timed {
    at: u64,
}

/// The segments, oldest first, up to the records of a time and up to a position. The times of a run never decrease. Those of a later run may
/// be before them, if the clock was set back, so each segment counts by itself.
pub(super) fn cut(
    dir: &Path,
    journal: Vec<Lines>,
    to: Moment,
    end: Option<&Position>,
) -> Result<Vec<Lines>, BackupError> {
    let mut kept: Vec<Lines> = Vec::new();
    for Lines { copy, bytes } in journal {
        let name = SegmentName::parse(&copy.name);
        let bytes = match (end, &name) {
            (Some(end), Some(name)) if *name > end.segment => continue,
            (Some(end), Some(name)) if *name == end.segment => bytes.min(end.offset),
            (Some(_) | None, _) => bytes,
        };
        let path = dir.join(&copy.stored.file);
        let end = end_of(&path, bytes, to).map_err(|error| BackupError::io("read", &path, &error))?;
        match end {
            0 => {}
            end if end < bytes => {
                kept.push(Lines { copy, bytes: end });
                break;
            }
            end => kept.push(Lines { copy, bytes: end }),
        }
    }
    Ok(kept)
}

/// The end of the last record of a segment up to a time.
fn end_of(path: &Path, bytes: u64, to: Moment) -> std::io::Result<u64> {
    let file = files::open(path, Access::Read)?;
    let mut records = BufReader::with_capacity(READ_BYTES, file.take(bytes));
    let (mut end, mut record) = (0, Vec::new());
    loop {
        record.clear();
        let length = records.read_until(b'\n', &mut record)?;
        // A line that is not a record has no time, and belongs to the record before it.
        let is_later = serde_json::from_slice::<Timed>(&record).is_ok_and(|timed| timed.at > to.0);
        if length == 0 || is_later {
            return Ok(end);
        }
        end += length as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::backup::{InHome, LinesCopy, StoredFile};
    use super::*;

    /// Cuts segments whose records have these times; returns the times that are left.
    fn check(segments: &[&[u64]], to: u64, end: Option<(u32, u64)>, expect: &[u64]) {
        let dir = tempfile::tempdir().expect("a folder");
        let mut journal = Vec::new();
        for (number, times) in (1..).zip(segments) {
            let name = format!("0a1b2c3d4e5f-{number:03}.jsonl");
            let text: String = times.iter().map(|at| format!("{{\"at\":{at}}}\n")).collect();
            std::fs::write(dir.path().join(&name), &text).expect("write");
            let stored = StoredFile { file: name.clone(), bytes: text.len() as u64, sha256: String::new() };
            let copy = LinesCopy { name, stored, modified: Moment(0), original: None, in_home: InHome::Whole };
            journal.push(Lines { copy, bytes: text.len() as u64 });
        }
        let position = |(number, offset): (u32, u64)| {
            let segment = SegmentName::parse(&format!("0a1b2c3d4e5f-{number:03}.jsonl")).expect("a name");
            Position { segment, offset }
        };
        let cut = cut(dir.path(), journal, Moment(to), end.map(position).as_ref()).expect("it can be read");
        let text: String = cut
            .iter()
            .map(|lines| {
                let text = std::fs::read_to_string(dir.path().join(&lines.copy.name)).expect("it is there");
                text[..lines.bytes as usize].to_owned()
            })
            .collect();
        let times: Vec<u64> =
            text.lines().map(|line| serde_json::from_str::<Timed>(line).expect("a record").at).collect();
        assert_eq!(times, expect, "{segments:?} to {to}");
    }

    #[test]
    fn journal_is_cut_at_a_time() {
        check(&[&[1, 2, 3], &[4, 5]], 9, None, &[1, 2, 3, 4, 5]);
        check(&[&[1, 2, 3], &[4, 5]], 4, None, &[1, 2, 3, 4]);
        check(&[&[1, 2, 3], &[4, 5]], 3, None, &[1, 2, 3]);
        check(&[&[1, 2, 3], &[4, 5]], 2, None, &[1, 2]);
        check(&[&[1, 2, 3], &[4, 5]], 0, None, &[]);
        check(&[], 1, None, &[]);
    }

    #[test]
    fn journal_is_cut_at_a_position() {
        // A record has 9 bytes here.
        check(&[&[1, 2, 3], &[4, 5]], 9, Some((2, 9)), &[1, 2, 3, 4]);
        check(&[&[1, 2, 3], &[4, 5]], 9, Some((1, 18)), &[1, 2]);
        check(&[&[1, 2, 3], &[4, 5]], 1, Some((1, 18)), &[1]);
    }

    #[test]
    fn clock_that_was_set_back_loses_no_later_segment() {
        check(&[&[100, 101], &[4, 5]], 9, None, &[4, 5]);
        check(&[&[1, 2], &[100], &[4, 5]], 9, None, &[1, 2, 4, 5]);
    }
}
