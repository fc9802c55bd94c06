//! The route that lists the fragments sent to each thread.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::context::ledger;
use super::refusal::{Refusal, json};
use super::state::{AppState, ThisSession};
use crate::store::KeptFragment;

/// Fragments of all threads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FragmentsDocument {
    /// The thread that got a fragment last comes last.
    pub threads: Vec<ToldThread>,
}

/// Fragments of one thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ToldThread {
    pub thread_id: String,
    /// The latest text of each fragment, in the order they were sent.
    pub fragments: Vec<KeptFragment>,
}

impl FragmentsDocument {
    /// Builds the document from ledger rows.
    #[must_use]
    pub(crate) fn of(kept: Vec<KeptFragment>) -> FragmentsDocument {
        let mut threads: Vec<ToldThread> = Vec::new();
        for fragment in kept {
            let known = threads.iter().position(|thread| thread.thread_id == fragment.thread_id);
            let mut thread = match known {
                Some(index) => threads.remove(index),
                None => ToldThread { thread_id: fragment.thread_id.clone(), fragments: Vec::new() },
            };
            thread.fragments.push(fragment);
            threads.push(thread);
        }
        FragmentsDocument { threads }
    }
}

pub(super) async fn show(State(app): State<Arc<AppState>>, _: ThisSession) -> Result<Response, Refusal> {
    let kept = ledger(&app)?.fragments().await.map_err(Refusal::Ledger)?;
    Ok(json(StatusCode::OK, &FragmentsDocument::of(kept)))
}
