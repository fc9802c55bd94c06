//! New lines of transcripts.

use std::ops::Range;

/// Texts are stored in blocks of this size, in bytes; a longer one has a block of its own.
const BLOCK_BYTES: usize = 1 << 20;

/// A line of a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryRow<'a> {
    pub thread_id: &'a str,
    /// Entries of one thread with the same identity are one.
    pub identity: &'a str,
    /// Its place in the thread, in microseconds since the Unix epoch: that of its record, or else when it happened. Of two with
    /// the same place, the later one follows.
    pub place_us: u64,
    /// The entry as JSON.
    pub json: &'a str,
}

/// Lines of transcripts, in the order in which they were added.
///
/// A client that reads a long thread adds thousands. One by one, their texts would leave holes in the heap once they are stored; a block
/// goes back to the system.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct EntryRows {
    rows: Vec<Placed>,
    blocks: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
struct Placed {
    thread_id: String,
    identity: String,
    place_us: u64,
    block: usize,
    json: Range<usize>,
}

impl EntryRows {
    pub(super) fn push(&mut self, row: EntryRow<'_>) {
        let EntryRow { thread_id, identity, place_us, json } = row;
        if self.blocks.last().is_none_or(|block| block.len() + json.len() > BLOCK_BYTES) {
            // Most rows are few, and need no block of full size.
            let bytes = if self.blocks.is_empty() { json.len() } else { json.len().max(BLOCK_BYTES) };
            self.blocks.push(String::with_capacity(bytes));
        }
        let at = self.blocks.len() - 1;
        let block = &mut self.blocks[at];
        let from = block.len();
        block.push_str(json);
        let (thread_id, identity, json) = (thread_id.to_owned(), identity.to_owned(), from..block.len());
        self.rows.push(Placed { thread_id, identity, place_us, block: at, json });
    }

    pub fn iter(&self) -> impl Iterator<Item = EntryRow<'_>> {
        self.rows.iter().map(|Placed { thread_id, identity, place_us, block, json }| EntryRow {
            thread_id,
            identity,
            place_us: *place_us,
            json: &self.blocks[*block][json.clone()],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_as_they_were_added() {
        let texts = [3, BLOCK_BYTES - 3, 1, BLOCK_BYTES + 1, 0, BLOCK_BYTES / 2, BLOCK_BYTES / 2, 7]
            .map(|bytes| "é".repeat(bytes / 2) + if bytes % 2 == 1 { "." } else { "" });
        let named = |at: usize| EntryRow { thread_id: "t", identity: "i", place_us: at as u64, json: &texts[at] };
        let mut rows = EntryRows::default();
        (0..texts.len()).for_each(|at| rows.push(named(at)));
        assert!(rows.iter().eq((0..texts.len()).map(named)));
        let blocks: Vec<usize> = rows.blocks.iter().map(String::len).collect();
        assert_eq!(blocks, [BLOCK_BYTES, 1, BLOCK_BYTES + 1, BLOCK_BYTES, 7]);
    }
}
