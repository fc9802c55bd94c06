//! Names and order of segments.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::{fmt, io};

use serde::{Deserialize, Serialize};

use super::record::{Header, Record};
use crate::files::Access;

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
pub fn size_bytes(dir: &Path) -> io::Result<u64> {
    let segments = SegmentName::list(dir)?;
    let size = |name: &SegmentName| std::fs::metadata(dir.join(name.to_string())).map_or(0, |file| file.len());
    Ok(segments.iter().map(size).sum())
}

/// The current end of a journal; `None` if it has no segment or cannot be read.
#[must_use]
pub fn end_of(dir: &Path) -> Option<Position> {
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

// The chain of segments: each header names the previous segment and its length, so a deleted or truncated segment is
// noticed, even if it was a whole run.
//
// Headers of older versions name no segment and do not break the chain.

/// Longest header that is read, in bytes.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// How much of the end of a run is read to find its last record, in bytes.
const LAST_RECORD_BYTES_MAX: u64 = 64 << 10;

/// The previous segment, as named by a header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Previous {
    /// Its run, 12 hex digits.
    pub generation: String,
    /// Its number in that run.
    pub segment: u32,
    /// Its length when the later segment began, in bytes.
    pub bytes: u64,
    /// Its last record is `generation_ended`.
    pub ended: bool,
}

impl Previous {
    /// The end of the journal in the folder `dir`; `None` if it has no segment or cannot be read.
    #[must_use]
    pub fn of_end(dir: &Path) -> Option<Previous> {
        let Position { segment, offset } = end_of(dir)?;
        let ended = has_ended(dir, &segment);
        Some(Previous { generation: segment.generation.to_string(), segment: segment.number, bytes: offset, ended })
    }

    fn is(&self, segment: &SegmentName) -> bool {
        self.generation == segment.generation.as_str() && self.segment == segment.number
    }
}

/// Whether records are missing between the position `at`, the end of its segment, and the segment `next`.
pub(super) fn is_broken(dir: &Path, at: &Position, next: &SegmentName) -> io::Result<bool> {
    let Some(previous) = previous_of(dir, next)? else { return Ok(!follows(&at.segment, next)) };
    if !previous.is(&at.segment) {
        return Ok(true);
    }
    let bytes = std::fs::metadata(dir.join(at.segment.to_string())).map_or(0, |file| file.len());
    Ok(bytes.max(at.offset) < previous.bytes)
}

/// Whether the header of the segment `next` names the segment of `at` as the previous one, ending there.
pub(super) fn ended_at(dir: &Path, at: &Position, next: &SegmentName) -> io::Result<bool> {
    Ok(previous_of(dir, next)?.is_some_and(|previous| previous.is(&at.segment) && previous.bytes <= at.offset))
}

/// Whether the journal in `dir` has every record from `from`, or from its first one, up to the position `to`.
pub fn is_whole(dir: &Path, from: Option<&Position>, to: &Position) -> io::Result<bool> {
    let segments = SegmentName::list(dir)?;
    let begin = from.map_or_else(|| segments.first().cloned(), |from| Some(from.segment.clone()));
    let Some(begin) = begin else { return Ok(false) };
    let between: Vec<&SegmentName> = segments.iter().filter(|name| begin <= **name && **name <= to.segment).collect();
    if between.first() != Some(&&begin) || between.last() != Some(&&to.segment) {
        return Ok(false);
    }
    for pair in between.windows(2) {
        if is_broken(dir, &Position { segment: pair[0].clone(), offset: 0 }, pair[1])? {
            return Ok(false);
        }
    }
    let file = open(dir, &to.segment)?;
    let Some(last) = to.offset.checked_sub(1) else { return Ok(true) };
    let mut byte = [0];
    Ok(file.read_at(&mut byte, last)? == 1 && byte == *b"\n")
}

/// Whether the run whose last segment is `segment` has recorded its end there.
#[must_use]
pub(super) fn has_ended(dir: &Path, segment: &SegmentName) -> bool {
    let last_line = || -> io::Result<Vec<u8>> {
        let file = open(dir, segment)?;
        let bytes = file.metadata()?.len();
        let from = bytes.saturating_sub(LAST_RECORD_BYTES_MAX);
        let mut end = vec![0; (bytes - from) as usize];
        file.read_exact_at(&mut end, from)?;
        let whole = end.strip_suffix(b"\n").unwrap_or_default();
        Ok(whole.rsplit(|byte| *byte == b'\n').next().unwrap_or_default().to_vec())
    };
    let line = last_line().unwrap_or_default();
    matches!(Record::parse(&line), Ok(Record::Event { event, .. }) if event == "generation_ended")
}

/// Whether every run from `from` on has recorded its end, or began at `since_unix_s` or later.
pub fn all_ended(dir: &Path, from: Option<&Generation>, since_unix_s: u64) -> io::Result<bool> {
    let segments = SegmentName::list(dir)?;
    let is_last = |at: usize| segments.get(at + 1).is_none_or(|next| next.generation != segments[at].generation);
    let last = (0..segments.len()).filter(|at| is_last(*at)).map(|at| &segments[at]);
    let mut asked = last.filter(|last| from.is_none_or(|from| last.generation >= *from));
    Ok(asked.all(|last| last.generation.begun_unix_s() >= since_unix_s || has_ended(dir, last)))
}

/// Whether `next` directly follows `segment`, as far as their names show.
fn follows(segment: &SegmentName, next: &SegmentName) -> bool {
    if segment.generation == next.generation { next.number == segment.number + 1 } else { next.number == 1 }
}

/// Reads `previous` from the header of a segment; `None` in headers of older versions.
fn previous_of(dir: &Path, segment: &SegmentName) -> io::Result<Option<Previous>> {
    let mut line = Vec::new();
    BufReader::new(open(dir, segment)?.take(HEADER_BYTES_MAX)).read_until(b'\n', &mut line)?;
    Ok(match Record::parse(line.strip_suffix(b"\n").unwrap_or(&line)) {
        Ok(Record::Header(Header { previous, .. })) => previous,
        Ok(_) | Err(_) => None,
    })
}

fn open(dir: &Path, segment: &SegmentName) -> io::Result<File> {
    crate::files::open(&dir.join(segment.to_string()), Access::Read)
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

    struct Lab(tempfile::TempDir);

    fn name(generation: u32, number: u32) -> SegmentName {
        SegmentName { generation: Generation::after(None, generation, 0), number }
    }

    impl Lab {
        fn new() -> Lab {
            Lab(tempfile::tempdir().expect("BUG: a temporary folder"))
        }

        fn dir(&self) -> &Path {
            self.0.path()
        }

        /// Writes a segment whose header names the current end of the journal.
        fn write(&self, segment: &SegmentName, records: &str) -> Position {
            let previous = Previous::of_end(self.dir());
            let previous = serde_json::to_string(&previous).expect("JSON");
            let SegmentName { generation, number } = segment;
            let header = format!(
                r#"{{"journal":1,"session":"s","generation":"{generation}","segment":{number},"at":1,"argv":[],"cwd":"/","codex":{{"path":"c"}},"shim":"0","previous":{previous}}}"#
            );
            std::fs::write(self.dir().join(segment.to_string()), format!("{header}\n{records}")).expect("write");
            end_of(self.dir()).expect("there is a journal")
        }

        fn cut(&self, segment: &SegmentName, bytes: u64) {
            let file = File::options().write(true).open(self.dir().join(segment.to_string())).expect("it is there");
            let length = file.metadata().expect("it is there").len();
            file.set_len(length - bytes).expect("it can be cut");
        }
    }

    const ENDED: &str = "{\"at\":2,\"from\":\"shim\",\"event\":\"generation_ended\",\"data\":{}}\n";

    #[test]
    fn missing_or_shortened_segment_breaks_the_chain() {
        let check = |harm: fn(&Lab), expect: bool| {
            let lab = Lab::new();
            lab.write(&name(1, 1), "{\"at\":2}\n");
            lab.write(&name(1, 2), ENDED);
            lab.write(&name(2, 1), ENDED);
            let end = lab.write(&name(3, 1), "{\"at\":2}\n");
            harm(&lab);
            assert_eq!(is_whole(lab.dir(), None, &end).expect("it can be read"), expect);
        };
        check(|_| {}, true);
        check(|lab| std::fs::remove_file(lab.dir().join(name(2, 1).to_string())).expect("it goes"), false);
        check(|lab| std::fs::remove_file(lab.dir().join(name(1, 2).to_string())).expect("it goes"), false);
        check(|lab| lab.cut(&name(1, 1), 3), false);
        check(|lab| lab.cut(&name(2, 1), 3), false);
        check(|lab| lab.cut(&name(3, 1), 1), false);
        check(|lab| std::fs::remove_file(lab.dir().join(name(3, 1).to_string())).expect("it goes"), false);
    }

    #[test]
    fn recorded_end_of_a_run_is_found() {
        let lab = Lab::new();
        lab.write(&name(1, 1), ENDED);
        lab.write(&name(2, 1), "{\"at\":2}\n");
        assert_eq!((has_ended(lab.dir(), &name(1, 1)), has_ended(lab.dir(), &name(2, 1))), (true, false));
        let all = |since| all_ended(lab.dir(), None, since).expect("it can be read");
        assert_eq!((all(3), all(2)), (false, true));
        lab.write(&name(3, 1), ENDED);
        assert!(all_ended(lab.dir(), Some(&name(3, 1).generation), 9).expect("it can be read"));
    }
}
