//! Lines that several connections of a hub deliver: recorded in full once, and then as a reference to that record.
//!
//! A reference names the offset of a record in the same segment, so that a segment can be read and removed by itself.
//!
//! Pure.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

use super::record;
use crate::wire::Conn;

/// Shortest line that is worth a reference, in bytes. A reference itself is some 70 bytes long.
const LINE_BYTES_MIN: usize = 96;

/// Longest line that is remembered.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Limit on the remembered lines, in bytes. The hub reads at most some 1 MiB from one connection before it reads from the next.
const REMEMBERED_BYTES_MAX: usize = 4 << 20;

/// Limit on their number.
const REMEMBERED_MAX: usize = 16_384;

/// The last lines that the open segment has in full.
#[derive(Debug, Default)]
pub(super) struct SharedLines {
    hasher: RandomState,
    lines: HashMap<u64, SharedLine>,
    /// Their hashes, oldest first.
    order: VecDeque<u64>,
    bytes: usize,
}

#[derive(Debug)]
struct SharedLine {
    conn: Conn,
    /// The offset of its record.
    offset: u64,
    line: Box<[u8]>,
}

impl SharedLines {
    /// Whether lines of this length are shared.
    pub(super) fn takes(line: &[u8]) -> bool {
        (LINE_BYTES_MIN..=LINE_BYTES_MAX).contains(&line.len())
    }

    /// The offset of the full record of this line from another connection.
    pub(super) fn find(&self, conn: Conn, line: &[u8]) -> Option<u64> {
        let shared = self.lines.get(&self.hasher.hash_one(line))?;
        (shared.conn != conn && *shared.line == *line).then_some(shared.offset)
    }

    pub(super) fn remember(&mut self, conn: Conn, offset: u64, line: Box<[u8]>) {
        let hash = self.hasher.hash_one(&*line);
        self.bytes += line.len();
        match self.lines.insert(hash, SharedLine { conn, offset, line }) {
            Some(before) => self.bytes -= before.line.len(),
            None => self.order.push_back(hash),
        }
        while self.bytes > REMEMBERED_BYTES_MAX || self.order.len() > REMEMBERED_MAX {
            let Some(oldest) = self.order.pop_front() else { return };
            self.bytes -= self.lines.remove(&oldest).map_or(0, |shared| shared.line.len());
        }
    }

    /// Another segment begins.
    pub(super) fn clear(&mut self) {
        self.lines.clear();
        self.order.clear();
        self.bytes = 0;
    }
}

/// The record that a reference stands for: its own start, and the rest of the record in full. `None` if that is not a record of
/// a line of the server.
pub fn resolved(reference: &[u8], full: &[u8]) -> Option<Vec<u8>> {
    let start = record::start_of(reference)?;
    let rest = full.strip_prefix(record::start_of(full)?)?;
    record::reference(full).is_none().then(|| [start, rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_another_connection_is_found() {
        let mut shared = SharedLines::default();
        shared.remember(Conn(1), 17, (*b"abc").into());
        assert_eq!(shared.find(Conn(2), b"abc"), Some(17));
        assert_eq!((shared.find(Conn(1), b"abc"), shared.find(Conn(2), b"abd")), (None, None));
        shared.remember(Conn(2), 40, (*b"abc").into());
        assert_eq!((shared.find(Conn(1), b"abc"), shared.find(Conn(2), b"abc")), (Some(40), None));
        shared.clear();
        assert_eq!(shared.find(Conn(1), b"abc"), None);
    }

    #[test]
    fn remembered_lines_are_bounded() {
        let mut shared = SharedLines::default();
        let line = |number: u64| {
            let mut line = vec![b'x'; LINE_BYTES_MAX];
            line[..8].copy_from_slice(&number.to_le_bytes());
            line.into_boxed_slice()
        };
        for number in 0..10 {
            shared.remember(Conn(1), number, line(number));
        }
        assert_eq!((shared.bytes, shared.lines.len()), (REMEMBERED_BYTES_MAX, 4));
        assert_eq!((shared.find(Conn(2), &line(9)), shared.find(Conn(2), &line(5))), (Some(9), None));
        for number in 0..2 * REMEMBERED_MAX as u64 {
            shared.remember(Conn(1), number, Box::from(number.to_le_bytes()));
        }
        assert_eq!((shared.lines.len(), shared.order.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
    }

    #[test]
    fn reference_becomes_the_whole_record() {
        let full = br#"{"at":5,"from":"server","line":{"method":"x","same":3}}"#;
        let reference = br#"{"at":7,"conn":2,"from":"server","same":40}"#;
        assert_eq!(
            resolved(reference, full).as_deref(),
            Some(&br#"{"at":7,"conn":2,"from":"server","line":{"method":"x","same":3}}"#[..])
        );
        for other in [&reference[..], br#"{"at":5,"from":"client","line":{}}"#, b"", b"x", br#"{"at":5,"gap":{}}"#] {
            assert_eq!(resolved(reference, other), None);
        }
    }
}
