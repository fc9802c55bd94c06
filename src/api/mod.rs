//! What a session is asked, and what it answers: one struct for each document, one type for each query.
//!
//! Pure. `control` writes these documents and its client reads them, so that both sides of the socket have the same types.
//! A relay of an older version leaves members out, which is why those that came later have a default.

mod query;
mod session;
mod thread_list;
mod transcript;

pub(crate) use query::{Query, State};
pub(crate) use session::{
    CallCount, ChildDocument, ClientDocument, ConfigDocument, ConfigWarningDocument, ConnectionDocument,
    ContextEngineDocument, Counters, Fault, HubDocument, IndexDocument, JournalDocument, PrunedDocument,
    ServerDocument, SessionDocument, SocketDocument, ThreadDocument, ThreadIdentityDocument, is_open,
};
pub(crate) use thread_list::ListedThread;
pub(crate) use transcript::{Transcript, TranscriptDocument};

pub(crate) use crate::history::{ApprovalDocument, Content, Entry, ItemDocument, Said};
