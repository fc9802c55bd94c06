//! History: what a journal tells, record by record.
//!
//! One fold, [`Fold`], takes the records of a session in their order and gives the rows that they lead to: events, what
//! tools and turns did, what was said. It is the only reading of a journal that there is: what is shown live and what is
//! built again from the files come from the same call, so they agree.
//!
//! Whatever it gives depends on the records alone, and on nothing that it was told besides; [`Fold::silence`] only brings
//! forward what the next record would have led to anyway.
//!
//! This room is pure. It keeps no row: a fold holds what is in progress, bounded, and can be stored and taken up again
//! between any two records. A stored fold holds no text that is still being streamed; [`Recall`] reads that text again.

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
