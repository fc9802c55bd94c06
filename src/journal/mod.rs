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
pub(crate) mod reader;
mod record;
mod segment;
mod writer;

pub use chain::Previous;
pub(crate) use chain::{all_ended, is_whole};
pub(crate) use keeper::over_bounds;
pub use keeper::{Bounds, IndexedTo};
pub use record::{Content, FORMAT, Header, Origin, Record, ServerOrigin};
pub(crate) use record::{PlainRecord, RecordError};
pub use segment::{Generation, Position, SegmentName};
pub(crate) use segment::{end_of, size_bytes};
pub(crate) use writer::Tally;
pub use writer::{Batch, Writer};
