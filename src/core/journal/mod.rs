//! The journal: records every line before it is forwarded.
//!
//! A session's journal is a folder of segments, named by [`SegmentName`]. Lines and notes are appended through [`Writer`]
//! in batches, one for each read. Readers follow the files with [`reader::Reader`], from a [`Position`] of their own.
//!
//! A complete record is never changed, nor removed once a reader may have seen it. Only the background thread waits for a
//! disk sync.

mod background;
pub mod reader;
mod record;
mod segment;
mod shared;
pub mod wall_clock;
mod writer;

pub use background::over_bounds;
pub use background::{Bounds, IndexedTo};
pub use record::reference;
pub use record::{Content, FORMAT, Header, Origin, Record, ServerOrigin};
pub use record::{PlainRecord, RecordError};
pub use segment::Previous;
pub use segment::{Generation, NoGeneration, Position, SegmentName};
pub use segment::{all_ended, is_whole};
pub use segment::{end_of, size_bytes};
pub use shared::resolved;
pub use writer::Tally;
pub use writer::{Batch, Writer, WriterState};
