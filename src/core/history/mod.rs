//! History: the meaning of a journal, record by record.
//!
//! [`Fold`] processes the records of a session in order and emits rows: events, tool and turn rows, and transcript
//! entries. It is the only reader of journal contents: live output and rebuilt output come from the same call, so they
//! agree.
//!
//! One state holds the conversations (`conversation`): threads with their turns, tools in progress, open requests, calls.
//! Each record makes one step in it, and all output is a view of steps and of that state.
//!
//! The output depends only on the records; [`Fold::silence`] merely emits earlier what the next record would have
//! produced.
//!
//! Pure: this room stores no rows. A fold holds bounded state of work in progress, and can be stored and resumed
//! between any two records. A stored fold has no text of open streams; [`Recall`] reads that text again.

/// Declares structs that become JSON without their absent members, which have a `?`.
macro_rules! documents {
    ($($(#[$attr:meta])* $vis:vis struct $struct:ident $(<$($generic:tt),+>)? {
        $($(#[$doc:meta])* $member:ident $(?: $may:ty)? $(: $must:ty)?,)*
    })*) => {
        $($(#[$attr])*
        #[derive(serde::Serialize)]
        $vis struct $struct $(<$($generic),+>)? {
            $($(#[$doc])*
            $(pub $member: $must,)?
            $(#[serde(skip_serializing_if = "Option::is_none")] pub $member: Option<$may>,)?)*
        })*
    };
}

mod action;
mod activity;
pub mod blame;
mod bounded;
mod client_uses;
mod conversation;
mod deliveries;
mod diffs;
mod entry;
mod entry_rows;
mod event_row;
mod facts;
mod filter;
mod fold;
mod groups;
mod identity;
mod item;
mod mended;
mod meter;
mod past;
mod record_event;
mod request;
mod review;
mod rows;
mod rows_of_record;
mod search_query;
mod searchable;
mod since;
mod transcript;
mod turn;
mod ui;
mod usage;

pub use action::{Action, ActionKind, ActionStatus, KeptTool, action_in_words, actions, decided};
pub use activity::ThreadActivity;
pub use activity::{Activity, SessionActivity};
pub use bounded::{cut_value, micros_of, rfc3339_millis};
pub use client_uses::{ClientUseKey, ClientUseKind, ClientUseRows, ClientUsed, add_use};
pub use entry::{
    AUTO_REVIEW, ApprovalDocument, Content, EndDocument, Ended, Entry, ItemDocument, OVERRULED, PlanDocument,
    ReviewDocument, ReviewStatus, Said,
};
pub use entry_rows::{EntryRow, EntryRows};
pub use event_row::EventRow;
pub use facts::{EndFacts, EventFacts, KnownFacts, OwnFacts, RequestFacts, Thing, WITHDRAWN, request_text};
pub use filter::{
    FILTER_BYTES_MAX, Facts, Filter, FilterChoices, FilterKey, FilterKind, FilterPlace, FilterStatus, FilterThread,
    NOBODY, client_name, complete, values,
};
pub use fold::Fold;
pub use fold::Recall;
pub use identity::{ThreadClient, ThreadIdentity, client_in_usage};
pub use item::{HIDDEN, hides};
pub use mended::{beginning, mended};
pub use record_event::RecordEvent;
pub use record_event::Seen;
pub use review::subject as reviewed_action;
pub use rows::{Phase, ToolEvent, ToolRow};
pub use rows_of_record::GapRow;
pub use rows_of_record::Rows;
pub use search_query::{Excerpt, SearchQuery, add_words, kind_for_index};
pub use searchable::{SearchKind, Searchable};
pub use since::since_us;
pub use ui::UiFold;
pub use ui::{Pending, UiContent, UiEvent, UiKind};
pub use usage::{Account, AnsweredBy, Counts, LimitRow, UsageRow};

#[cfg(any(test, feature = "testing"))]
pub mod event_testing;
#[cfg(test)]
mod filter_tests;
#[cfg(test)]
mod past_tests;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod usage_properties;
