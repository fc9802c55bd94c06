//! The documents of a session, with a struct for each; the queries that return them, with a type for each; and the commands to a
//! session, with one type for all.
//!
//! Pure. `control` writes these documents and its client reads them, so that both sides of the socket have the same types.
//! A relay of an older version leaves members out, which is why those that came later have a default.

mod activity;
mod client_uses;
mod command;
mod context;
mod event;
#[cfg(test)]
mod newer_tests;
mod parameter;
mod query;
mod request;
mod review;
mod session;
mod session_list;
mod thread_list;
mod transcript;
mod turn;
mod usage;

pub use activity::{
    ActionDocument, ActionsDocument, ActionsQuery, ActivityDocument, RowPage, ToolRowDocument, ToolRowsQuery,
    TurnRowDocument, TurnRowsQuery,
};
pub use client_uses::{ClientUse, ClientUsesDocument, ClientUsesQuery};
pub use command::{Command, CommandCall, HandoverBody, InputBody, InterruptBody, OverruleBody};
pub use context::{
    ContextCommand, ContextDocument, ContextQuery, DeliveriesDocument, DeliveriesQuery, DeliveryDocument,
    FittedContext, FragmentDocument, FragmentsDocument, FragmentsQuery, WaitingDocument,
};
pub use event::Cursor;
pub use event::{
    EVENTS_MAX, EventDocument, EventPage, EventStreamQuery, EventsQuery, GapPayload, GapReason, StreamMode, Verbatim,
    gap_event,
};
pub use parameter::{EpochId, Limit, Moment, Parameter, Parameters};
pub use query::{Query, State, Transcript};
pub use request::Request;
pub use request::{
    LEFT_OUT_FOR_SIZE, OneRequest, RequestDocument, RequestList, RequestSession, Requests, Responded, StoredAnswer,
    WhichRequests,
};
pub use review::{OverruledDocument, REVIEWS_MAX, ReviewDocument, ReviewsDocument, ReviewsQuery};
pub use session::{
    CallCount, ChildDocument, ClientDocument, ConfigDocument, ConfigWarningDocument, ConnectionDocument,
    ContextEngineDocument, Counters, EnvironmentDocument, Fault, HubDocument, IndexDocument, JournalDocument,
    PrunedDocument, ServerDocument, SessionDocument, SocketDocument, ThreadDocument, ThreadIdentityDocument, is_open,
};
pub use session_list::ListedSession;
pub use thread_list::ListedThread;
pub use transcript::TranscriptDocument;

pub use crate::history::{ApprovalDocument, Content, Entry, ItemDocument, Said};
pub use turn::TurnReply;
pub use usage::{
    Answered, Identities, RateLimitDocument, SessionUsage, ThreadUsage, Tokens, TurnUsage, UsageDocument, UsageQuery,
    Used,
};
