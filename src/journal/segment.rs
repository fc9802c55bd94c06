//! Names and order of segments.

use std::fmt;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// One run of the server within a session: 12 hex digits. Later runs of a session sort after earlier ones.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Generation([u8; GENERATION_DIGITS]);

/// The error of an invalid generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoGeneration(String);

impl fmt::Display for NoGeneration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a valid generation ({GENERATION_DIGITS} hex digits)", self.0)
    }
}

impl std::error::Error for NoGeneration {}

impl From<Generation> for String {
    fn from(generation: Generation) -> String {
        generation.as_str().to_owned()
    }
}

impl TryFrom<String> for Generation {
    type Error = NoGeneration;

    fn try_from(text: String) -> Result<Generation, NoGeneration> {
        Generation::parse(&text).ok_or(NoGeneration(text))
    }
}

/// Hex digits of a generation.
const GENERATION_DIGITS: usize = 12;

const HEX_DIGITS: [u8; 16] = *b"0123456789abcdef";

impl Generation {
    /// The generation of a child started at `unix_s`. Sorts after `last`, the newest of the session, even if the clock was
    /// set back. `salt` distinguishes it from others of that second, and from a later one that a restore has lost.
    #[must_use]
    pub fn after(last: Option<&Generation>, unix_s: u32, salt: u16) -> Generation {
        let fresh = u64::from(unix_s) << 16 | u64::from(salt);
        let floor = last.map_or(0, |last| last.number() + 1 + u64::from(salt));
        let number = fresh.max(floor);
        let digit = |place: usize| HEX_DIGITS[(number >> (4 * (GENERATION_DIGITS - 1 - place))) as usize & 15];
        Generation(std::array::from_fn(digit))
    }

    /// Parses a generation; `None` unless it is 12 lower-case hex digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Generation> {
        let digits: [u8; GENERATION_DIGITS] = text.as_bytes().try_into().ok()?;
        digits.iter().all(|digit| HEX_DIGITS.contains(digit)).then_some(Generation(digits))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("BUG: a generation is 12 hex digits")
    }

    /// When its server was started, in seconds since the Unix epoch, provided that the clock was never set back.
    #[must_use]
    pub fn begun_unix_s(&self) -> u64 {
        self.number() >> 16
    }

    fn number(&self) -> u64 {
        u64::from_str_radix(self.as_str(), 16).expect("BUG: a generation is 12 hex digits")
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A segment of a journal. Segments sort in the order in which they were written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SegmentName {
    /// The run of the server.
    pub generation: Generation,
    /// The number of the segment in that run, from 1.
    pub number: u32,
}

impl SegmentName {
    /// Parses the name of a segment's file, such as `6a20f3c41b07-001.jsonl`.
    #[must_use]
    pub fn parse(file_name: &str) -> Option<SegmentName> {
        let (generation, number) = file_name.strip_suffix(".jsonl")?.split_once('-')?;
        let name = SegmentName { generation: Generation::parse(generation)?, number: number.parse().ok()? };
        (name.to_string() == file_name).then_some(name)
    }

    /// The segments in a journal's folder, oldest first. Files with other names are ignored.
    pub fn list(dir: &Path) -> io::Result<Vec<SegmentName>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            names.extend(entry?.file_name().to_str().and_then(SegmentName::parse));
        }
        names.sort_unstable();
        Ok(names)
    }
}

/// Size of all segments in a journal's folder, in bytes. A segment that is deleted meanwhile counts as 0.
pub(crate) fn size_bytes(dir: &Path) -> io::Result<u64> {
    let segments = SegmentName::list(dir)?;
    let size = |name: &SegmentName| std::fs::metadata(dir.join(name.to_string())).map_or(0, |file| file.len());
    Ok(segments.iter().map(size).sum())
}

/// The current end of a journal; `None` if it has no segment or cannot be read.
#[must_use]
pub(crate) fn end_of(dir: &Path) -> Option<Position> {
    let segment = SegmentName::list(dir).ok()?.pop()?;
    let offset = std::fs::metadata(dir.join(segment.to_string())).ok()?.len();
    Some(Position { segment, offset })
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:03}.jsonl", self.generation, self.number)
    }
}

/// The start of a record, which may not be written yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    pub segment: SegmentName,
    /// Bytes from the start of the segment.
    pub offset: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_names_sort_by_age() {
        let first = Generation::after(None, 5, 9);
        let clock_set_back = Generation::after(Some(&first), 4, 0);
        let later = Generation::after(Some(&clock_set_back), 6, 0);
        assert_eq!(first.to_string(), "000000050009");
        assert!(first < clock_set_back && clock_set_back < later);
        let name = |number| SegmentName { generation: first.clone(), number };
        assert!(name(999) < name(1000));
        assert_eq!(SegmentName::parse(&name(1000).to_string()), Some(name(1000)));
        assert_eq!(SegmentName::parse(&name(7).to_string()), Some(name(7)));
    }

    #[test]
    fn other_files_are_not_segments() {
        for name in ["000000050009-01.jsonl", "000000050009-001.json", "00000005000G-001.jsonl", "-001.jsonl", ".jsonl"]
        {
            assert_eq!(SegmentName::parse(name), None, "{name}");
        }
    }
}
