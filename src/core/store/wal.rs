//! Whether the log of a database, `…-wal`, is as SQLite has written it.
//!
//! SQLite reads a log up to the first frame whose checksum is wrong, and says nothing: after a crash that is where the writer
//! was. If frames of the same log follow whose checksums continue from there, the writer was further, and what SQLite leaves
//! out was committed.
//!
//! Damage of the last frame, or of two of the last three, and a log that ends early, cannot be told from a crash.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::files::{self, Access};

/// Lengths in bytes, from the file format of SQLite.
const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;

/// The part of the header that its checksum covers.
const HEADER_SUMMED_BYTES: usize = 24;

/// The part of a frame's header that the checksum of the frame covers.
const FRAME_SUMMED_BYTES: usize = 8;

/// The first number of a log whose checksums are of numbers with the lowest byte first; one more for the other order.
const MAGIC: u32 = 0x377f_0682;

/// Page sizes that SQLite has.
const PAGE_BYTES: std::ops::RangeInclusive<usize> = 512..=65_536;

/// Attempts while another process writes.
const TRIES: u32 = 3;

/// The log of the database at `path`.
pub(super) fn of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

/// The problem of the log of the database at `path`; `None` if nothing is known to be.
pub(super) fn damage_of_log(path: &Path) -> io::Result<Option<String>> {
    let log = of(path);
    if std::fs::symlink_metadata(&log).map_or(true, |log| log.len() == 0) {
        return Ok(None);
    }
    let file = files::open(&log, Access::Read)?;
    let mut found = None;
    for _ in 0..TRIES {
        let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or_default()];
        match file.read_exact_at(&mut bytes, 0) {
            Ok(()) => {}
            // It was shortened meanwhile.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
            Err(error) => return Err(error),
        }
        let before = std::mem::replace(&mut found, damage(&bytes));
        // A writer that begins the log again replaces the frames one after the other.
        if found.is_none() || before == found {
            return Ok(found);
        }
    }
    Ok(None)
}

/// A checksum after more bytes, whose length is a multiple of 8.
fn summed((mut first, mut second): (u32, u32), bytes: &[u8], is_big: bool) -> (u32, u32) {
    let number = |bytes: &[u8; 4]| if is_big { u32::from_be_bytes(*bytes) } else { u32::from_le_bytes(*bytes) };
    let (numbers, _) = bytes.as_chunks::<4>();
    let (pairs, _) = numbers.as_chunks::<2>();
    for [one, other] in pairs {
        first = first.wrapping_add(number(one)).wrapping_add(second);
        second = second.wrapping_add(number(other)).wrapping_add(first);
    }
    (first, second)
}

/// The number at a place; 0 behind the end.
fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |number| u32::from_be_bytes(*number))
}

fn pair(bytes: &[u8], at: usize) -> (u32, u32) {
    (number(bytes, at), number(bytes, at + 4))
}

fn damage(log: &[u8]) -> Option<String> {
    let (header, frames) = log.split_at_checked(HEADER_BYTES)?;
    let is_big = number(header, 0) == MAGIC + 1;
    let page_bytes = number(header, 8) as usize;
    let sum = summed((0, 0), &header[..HEADER_SUMMED_BYTES], is_big);
    if number(header, 0) & !1 != MAGIC || sum != pair(header, 24) || !PAGE_BYTES.contains(&page_bytes) {
        return Some("its header is not valid, so SQLite reads nothing of it".to_owned());
    }
    let salt = pair(header, 16);
    let frames: Vec<&[u8]> = frames.chunks_exact(FRAME_HEADER_BYTES + page_bytes).collect();
    // Whether a frame continues the checksum that the frame before it has.
    let continues = |at: usize| {
        let before = at.checked_sub(1).map_or(sum, |before| pair(frames[before], 16));
        let (head, page) = frames[at].split_at(FRAME_HEADER_BYTES);
        let of_head = summed(before, &head[..FRAME_SUMMED_BYTES], is_big);
        pair(head, 8) == salt && summed(of_head, page, is_big) == pair(head, 16)
    };
    let whole = (0..frames.len()).find(|at| !continues(*at))?;
    let further = (whole + 1..frames.len()).filter(|at| continues(*at)).count();
    let count = frames.len();
    (further > 0)
        .then(|| format!("frame {} of {count} is not as it was written, and SQLite reads none from it on", whole + 1))
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    /// A log with a frame of each of several transactions, and the length of a frame.
    fn log() -> (Vec<u8>, usize) {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("a.db");
        let database = Connection::open(&path).expect("a database");
        database.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE a (x)").expect("our own SQL");
        for number in 0..20 {
            database.execute("INSERT INTO a VALUES (?1)", [number]).expect("our own SQL");
        }
        let log = std::fs::read(of(&path)).expect("it is there");
        assert_eq!(damage_of_log(&path).expect("it can be read"), None);
        let frame = FRAME_HEADER_BYTES + number(&log, 8) as usize;
        assert!((log.len() - HEADER_BYTES).is_multiple_of(frame) && log.len() > 20 * frame);
        (log, frame)
    }

    #[test]
    fn damage_before_the_last_frames_is_found() {
        let (log, frame) = log();
        assert_eq!(damage(&log), None);
        // Damage of the last checksum but one is like that of the last frame.
        for at in (0..log.len() - 2 * frame).step_by(97) {
            let mut log = log.clone();
            log[at] ^= 4;
            assert!(damage(&log).is_some(), "{at}");
        }
    }

    #[test]
    fn end_amid_a_write_is_no_damage() {
        let (log, frame) = log();
        for cut in [1, 100, frame, frame + 1, 5 * frame + 9] {
            assert_eq!(damage(&log[..log.len() - cut]), None, "{cut}");
        }
        let mut torn = log.clone();
        let from = torn.len() - 300;
        torn[from..].fill(0);
        assert_eq!(damage(&torn), None);
    }

    #[test]
    fn rest_of_an_earlier_log_is_no_damage() {
        let (log, frame) = log();
        let (mut later, _) = self::log();
        later.truncate(HEADER_BYTES + 3 * frame);
        later.extend_from_slice(&log[HEADER_BYTES + 3 * frame..]);
        assert_eq!(damage(&later), None);
    }

    #[test]
    fn no_bytes_are_too_odd() {
        let (log, _) = log();
        for length in (0..200).chain([4_000, 4_128, 5_000]) {
            damage(&log[..length]);
            damage(&vec![0x37; length]);
            damage(&vec![0; length]);
        }
    }
}
