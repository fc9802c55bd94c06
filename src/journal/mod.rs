//! The journal: every line as it passed, on record before it is passed on.
//!
//! A session's journal is a folder of segments, [`SegmentName`] by name. Lines and notes flow in through [`Writer`] in
//! batches, one batch for what one read brought; whoever wants to know what happened follows the files with
//! [`reader::Reader`], from a [`Position`] that it keeps.
//!
//! A whole record is never changed, and never taken back once a reader may have seen it. Nothing here waits for a
//! disk's sync but the keeper's own thread.

mod chain;
mod keeper;
pub mod reader;
mod record;
mod segment;
mod writer;

pub use chain::{Previous, all_ended, is_whole};
pub use keeper::{Bounds, IndexedTo, Size, over_bounds};
pub use record::{Content, FORMAT, Header, Origin, PlainRecord, Record, RecordError, ServerOrigin};
pub use segment::{Generation, NoGeneration, Position, SegmentName, end_of, size_bytes};
pub use writer::{Batch, JournalError, SEGMENT_BYTES_MAX, Tally, Writer};
