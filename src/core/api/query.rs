//! A query to a session: a type, with its path at the control socket and the type of the document that it returns. Here are those
//! with a fixed path; each other one stands beside its document, made by `query!`.

use serde::de::DeserializeOwned;

use super::session::SessionDocument;
use super::transcript::TranscriptDocument;

/// A question to a session. It changes nothing.
pub trait Query {
    /// What answers it.
    type Document: DeserializeOwned;

    /// The path of `GET`, with its parameters.
    fn path(&self) -> String;
}

/// The state of the session, of its threads and of its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State;

impl Query for State {
    type Document = SessionDocument;

    fn path(&self) -> String {
        "/sessions/self".to_owned()
    }
}

/// The finished entries of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    pub thread_id: String,
}

impl Query for Transcript {
    type Document = TranscriptDocument;

    fn path(&self) -> String {
        format!("/sessions/self/threads/{}/transcript", self.thread_id)
    }
}
