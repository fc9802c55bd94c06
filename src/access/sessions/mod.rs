//! The sessions of this machine or of a fleet, for whoever looks at them: the terminal UI, the web page, and tools. A [`source`]
//! lists them, asks them and reads their recordings; a [`timeline`] holds the [entries](entry) of a conversation.
//!
//! *Source of the timeline.* The journal's files, read here with the fold behind `mode=ui`. They are complete: they exist while
//! no relay is running and across restarts, and they record gaps, which that stream does not. One follower reads the end of the
//! journal and every later record, so nothing is lost between the two. An entry's name is the position of its record, so
//! entries that are read again later fit in without duplicates. Pending requests and answers use only the control socket,
//! because the relay decides.
//!
//! *A stopped session.* The tools reach a session through the [`door`]: they ask its relay if one runs, and else read its files
//! ([`stopped`]).
//!
//! *Purity.* Everything is pure except `reader`, `poller`, [`at_once`], [`blame`], [`inbox`], [`search`], [`selection`], [`source`] and [`stopped`].

pub mod ask;
mod at_once;
pub mod blame;
pub mod diff;
pub mod door;
pub mod entry;
mod inbox;
pub mod names;
pub mod news;
pub mod poller;
pub mod reader;
pub mod request_names;
pub mod rows;
pub mod search;
pub mod selection;
pub mod source;
pub mod stopped;
pub mod timeline;

#[cfg(any(test, feature = "testing"))]
pub mod event_testing;
pub use at_once::{ReadEach, at_once, read_each};
pub use inbox::inbox;
