//! History: the meaning of a journal, record by record.
//!
//! [`Fold`] processes the records of a session in order and emits rows: events, tool and turn rows, and transcript
//! entries. It is the only reader of journal contents: live output and rebuilt output come from the same call, so they
//! agree.
//!
//! The output depends only on the records; [`Fold::silence`] merely emits earlier what the next record would have
//! produced.
//!
//! Pure: this room stores no rows. A fold holds bounded state of work in progress, and can be stored and resumed
//! between any two records. A stored fold has no text of open streams; [`Recall`] reads that text again.

mod action;
mod activity;
mod approval;
mod asked;
mod bounded;
mod diff;
mod event;
mod failure;
mod fold;
mod groups;
mod in_progress;
mod item;
mod masked;
mod object;
mod piece;
mod reading;
mod recall;
mod recent;
mod record_event;
mod time;
mod tool_call;
mod tool_row;
mod tools;
mod transcript;
mod turns;
mod ui;
mod usage;

pub(crate) use action::{Action, KeptTool, action_in_words, actions};
pub use activity::ActivityFold;
pub(crate) use activity::{Activity, ThreadActivity};
pub(crate) use event::EventRow;
pub(crate) use fold::GapRow;
pub use fold::{Fold, Rows};
pub(crate) use recall::Recall;
pub(crate) use record_event::RecordEvent;
pub use record_event::Seen;
pub(crate) use time::rfc3339_millis;
pub(crate) use transcript::Entry;
pub use ui::UiFold;

#[cfg(test)]
mod playbook;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tapes;
