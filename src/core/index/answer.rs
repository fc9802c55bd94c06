//! What a history answers to queries: for the relay, and for tools that read a stopped session.

use std::collections::BTreeSet;

use serde::Serialize;

use super::query::{History, HistoryError, TableRow};
use crate::api::{
    ActionsQuery, ClientUsesDocument, ClientUsesQuery, Cursor, EventPage, EventsQuery, Identities, Limit, Query,
    ReviewsQuery, RowPage, ThreadIdentityDocument, ToolRowsQuery, Transcript, TranscriptDocument, TurnRowsQuery,
    UsageDocument, UsageQuery,
};
use crate::history::ThreadIdentity;

/// Default number of events in a page. Source: the contract.
const EVENTS_DEFAULT: u64 = 200;

const ACTIONS_DEFAULT: u64 = 20;

/// How far a history is when it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadAt {
    /// The number of the database, see [`super::IndexState::opened`].
    pub opened: u64,
    /// Some lines recorded before the query are not indexed yet.
    pub is_behind: bool,
}

impl ReadAt {
    /// A stopped session, all of which is indexed.
    pub const WHOLE: ReadAt = ReadAt { opened: 0, is_behind: false };
}

/// A query that a history answers.
pub trait HistoryQuery: Query<Document: Serialize + Send + 'static> + Send + 'static {
    /// Reads the document.
    fn read(&self, history: &History, at: ReadAt) -> Result<Self::Document, HistoryError>;

    /// The document if the history cannot be read at all; `None` if that is an error.
    fn unreadable(&self) -> Option<Self::Document> {
        None
    }
}

impl HistoryQuery for EventsQuery {
    fn read(&self, history: &History, at: ReadAt) -> Result<Self::Document, HistoryError> {
        let since = Cursor::of(self.since_seq, self.since_epoch.clone());
        let limit = self.limit.map_or(EVENTS_DEFAULT, |Limit(limit)| limit);
        Ok(history.events(since.as_ref(), limit, at.opened, at.is_behind)?.verbatim())
    }

    fn unreadable(&self) -> Option<Self::Document> {
        Some(EventPage::unreadable(self.since_seq).verbatim())
    }
}

impl HistoryQuery for ActionsQuery {
    fn read(&self, history: &History, at: ReadAt) -> Result<Self::Document, HistoryError> {
        let limit = self.limit.map_or(ACTIONS_DEFAULT, |Limit(limit)| limit);
        Ok(history.actions(limit, at.opened)?.into())
    }
}

impl HistoryQuery for ToolRowsQuery {
    fn read(&self, history: &History, at: ReadAt) -> Result<Self::Document, HistoryError> {
        rows(history, Cursor::of(self.since_id, self.since_epoch.clone()), self.limit, at)
    }
}

impl HistoryQuery for TurnRowsQuery {
    fn read(&self, history: &History, at: ReadAt) -> Result<Self::Document, HistoryError> {
        rows(history, Cursor::of(self.since_id, self.since_epoch.clone()), self.limit, at)
    }
}

fn rows<T: TableRow, const MOST: u64>(
    history: &History,
    since: Option<Cursor>,
    limit: Option<Limit<MOST>>,
    at: ReadAt,
) -> Result<RowPage<T>, HistoryError> {
    history.rows(since.as_ref(), limit.map_or(EVENTS_DEFAULT, |Limit(limit)| limit), at.opened, at.is_behind)
}

impl HistoryQuery for ReviewsQuery {
    fn read(&self, history: &History, at: ReadAt) -> Result<Self::Document, HistoryError> {
        history.reviews(self, at.opened)
    }
}

impl HistoryQuery for ClientUsesQuery {
    fn read(&self, history: &History, at: ReadAt) -> Result<ClientUsesDocument, HistoryError> {
        history.client_uses(self, at.opened)
    }
}

impl HistoryQuery for UsageQuery {
    fn read(&self, history: &History, at: ReadAt) -> Result<UsageDocument, HistoryError> {
        let usage = history.usage(self, at.opened)?;
        let of_turns = usage.turns.iter().filter_map(|turn| turn.thread_id.clone());
        let ids: BTreeSet<String> = of_turns.chain(usage.threads.iter().map(|it| it.thread_id.clone())).collect();
        let ids: Vec<String> = ids.into_iter().collect();
        Ok(UsageDocument { identities: history.recorded_identities(&ids, at.opened), usage })
    }
}

impl HistoryQuery for Transcript {
    fn read(&self, history: &History, at: ReadAt) -> Result<TranscriptDocument, HistoryError> {
        Ok(TranscriptDocument::of(self.thread_id.clone(), history.transcript(&self.thread_id, at.opened)?))
    }
}

impl History {
    /// The recorded identities of threads, by their ids. Threads without a record are left out.
    pub fn recorded_identities(&self, ids: &[String], opened: u64) -> Identities {
        let identities = self.known_identities(ids, opened).into_iter();
        identities.map(|(id, identity)| (id, ThreadIdentityDocument::recorded(identity))).collect()
    }

    /// The same as the history has them.
    pub fn known_identities(&self, ids: &[String], opened: u64) -> Vec<(String, ThreadIdentity)> {
        let identities = self.identities(ids, opened).unwrap_or_else(|error| {
            tracing::debug!(%error, "who threads are");
            Vec::new()
        });
        ids.iter().zip(identities).filter_map(|(id, identity)| Some((id.clone(), identity?))).collect()
    }
}
