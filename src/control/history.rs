//! Routes of the history: events, activity, actions, tools, turns and transcripts.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::document::SessionDocument;
use super::historian::{CaughtUp, Historian, now_us};
use super::refusal::{Refusal, json};
use super::state::{AppState, ThisSession};
use crate::history::Action;
use crate::index::{Cursor, EventPage, HistoryError, Table};

/// Default number of events in a page. Source: the contract.
const EVENTS_DEFAULT: u64 = 200;

/// Largest number of events in a page. Source: the contract.
const EVENTS_MAX: u64 = 500;

/// Longest accepted epoch; ours have 12 digits.
const EPOCH_DIGITS_MAX: usize = 32;

const ACTIONS_DEFAULT: u64 = 20;

const ACTIONS_MAX: u64 = 200;

/// The query string of a request.
pub(super) struct Query(HashMap<String, String>);

impl Query {
    /// Parses a query string. Parameters that are not in `known` are refused.
    pub(super) fn of(query: Option<&str>, known: &[&str]) -> Result<Query, Refusal> {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let mut read = HashMap::new();
        for pair in pairs {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !known.contains(&name) {
                return Err(bad(format!("`{name}`: this path takes {}", known.join(", "))));
            }
            read.insert(name.to_owned(), value.to_owned());
        }
        Ok(Query(read))
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value of a numeric parameter; anything but digits is refused.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        match u64::from_str(text) {
            Ok(number) if digits => Ok(Some(number)),
            // A number beyond u64 is beyond every event number too.
            Err(_) if digits && !text.is_empty() => Ok(Some(u64::MAX)),
            Ok(_) | Err(_) => Err(bad(format!("`{name}={text}`: it must be a whole number, 0 or more"))),
        }
    }

    /// The caller's cursor, if given: the number in the parameter `name`, and its epoch.
    pub(super) fn cursor(&self, name: &str) -> Result<Option<Cursor>, Refusal> {
        let epoch = match self.text("since_epoch") {
            Some(text) => Some(epoch_of(text).ok_or_else(|| {
                bad(format!("`since_epoch={text}`: not an epoch; give the `epoch` of a page or an event"))
            })?),
            None => None,
        };
        Ok(self.number(name)?.map(|seq| Cursor { seq, epoch }))
    }

    /// The parameter `limit`, between 1 and `most`.
    pub(super) fn limit(&self, default: u64, most: u64) -> Result<u64, Refusal> {
        match self.number("limit")? {
            None => Ok(default),
            Some(limit) if (1..=most).contains(&limit) => Ok(limit),
            Some(limit) => Err(bad(format!("`limit={limit}`: it must be 1 to {most}"))),
        }
    }
}

/// Parses an epoch; `None` if it is malformed.
pub(super) fn epoch_of(text: &str) -> Option<String> {
    let is_hex = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hex && text.len() <= EPOCH_DIGITS_MAX).then(|| text.to_ascii_lowercase())
}

pub(super) fn bad(message: String) -> Refusal {
    Refusal::plain(StatusCode::BAD_REQUEST, "invalid_parameter", message)
}

/// The history, or a refusal if this session keeps none.
pub(super) fn historian(app: &AppState) -> Result<&Historian, Refusal> {
    app.historian.as_ref().ok_or_else(|| {
        let message = "this session has no history: the setting `record` is false, or its index could not start";
        Refusal::plain(StatusCode::NOT_FOUND, "not_recorded", message)
    })
}

pub(super) async fn events(
    State(app): State<Arc<AppState>>,
    _: ThisSession,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let query = Query::of(query.as_deref(), &["since_seq", "since_epoch", "limit"])?;
    let (since, limit) = (query.cursor("since_seq")?, query.limit(EVENTS_DEFAULT, EVENTS_MAX)?);
    let historian = historian(&app)?;
    let CaughtUp { opened, is_behind } = historian.catch_up().await;
    let since_seq = since.as_ref().map(|cursor| cursor.seq);
    let page = historian.ask(opened, move |history| history.events(since.as_ref(), limit, opened, is_behind)).await;
    let page = page.unwrap_or_else(|error| {
        tracing::warn!(%error, "a page of events");
        EventPage::unreadable(since_seq)
    });
    Ok(json(StatusCode::OK, &page))
}

pub(super) async fn activity(State(app): State<Arc<AppState>>, _: ThisSession) -> Result<Response, Refusal> {
    historian(&app)?;
    let SessionDocument { state, state_since, threads, .. } = app.document().await;
    let told = json!({ "activity_state": state, "since": state_since, "threads": threads });
    Ok(json(StatusCode::OK, &told))
}

pub(super) async fn actions(
    State(app): State<Arc<AppState>>,
    _: ThisSession,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let limit = Query::of(query.as_deref(), &["limit"])?.limit(ACTIONS_DEFAULT, ACTIONS_MAX)?;
    let historian = historian(&app)?;
    let CaughtUp { opened, .. } = historian.catch_up().await;
    let actions = historian.ask(opened, move |history| history.actions(limit, opened)).await.map_err(unreadable)?;
    let actions: Vec<Value> = actions.iter().map(Action::document).collect();
    Ok(json(StatusCode::OK, &json!({ "actions": actions })))
}

pub(super) async fn tools(
    app: State<Arc<AppState>>,
    session: ThisSession,
    query: RawQuery,
) -> Result<Response, Refusal> {
    rows(Table::Tools, &app, session, query).await
}

pub(super) async fn turns(
    app: State<Arc<AppState>>,
    session: ThisSession,
    query: RawQuery,
) -> Result<Response, Refusal> {
    rows(Table::Turns, &app, session, query).await
}

async fn rows(table: Table, app: &AppState, _: ThisSession, RawQuery(query): RawQuery) -> Result<Response, Refusal> {
    let query = Query::of(query.as_deref(), &["since_id", "since_epoch", "limit"])?;
    let (since, limit) = (query.cursor("since_id")?, query.limit(EVENTS_DEFAULT, EVENTS_MAX)?);
    let historian = historian(app)?;
    let CaughtUp { opened, is_behind } = historian.catch_up().await;
    let page =
        historian.ask(opened, move |history| history.rows(table, since.as_ref(), limit, opened, is_behind)).await;
    Ok(json(StatusCode::OK, &page.map_err(unreadable)?))
}

pub(super) async fn transcript(
    State(app): State<Arc<AppState>>,
    _: ThisSession,
    Path((_, thread_id)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let historian = historian(&app)?;
    let CaughtUp { opened, .. } = historian.catch_up().await;
    let of_thread = thread_id.clone();
    let entries = historian.ask(opened, move |history| history.transcript(&of_thread, opened)).await;
    let entries = entries.map_err(unreadable)?;
    let is_known = || historian.index.activity().threads(now_us()).iter().any(|thread| thread.thread_id == thread_id);
    if entries.is_empty() && !is_known() {
        let message = "unknown thread: this session has no messages of it";
        return Err(Refusal::plain(StatusCode::NOT_FOUND, "thread_not_found", message));
    }
    let read = |entry: String| RawValue::from_string(entry).unwrap_or_else(|_| RawValue::NULL.to_owned());
    let entries: Vec<Box<RawValue>> = entries.into_iter().map(read).collect();
    Ok(json(StatusCode::OK, &TranscriptDocument { thread_id, entries }))
}

#[derive(Serialize)]
struct TranscriptDocument {
    thread_id: String,
    entries: Vec<Box<RawValue>>,
}

pub(super) fn unreadable(error: HistoryError) -> Refusal {
    Refusal::plain(StatusCode::SERVICE_UNAVAILABLE, "history_unavailable", error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_parameters_are_parsed_and_bounded() {
        let read = |text: &str| Query::of(Some(text), &["since_seq", "limit"]);
        let number = |text: &str| read(text).and_then(|query| query.number("since_seq"));
        assert_eq!(number("since_seq=7&limit=2"), Ok(Some(7)));
        assert_eq!(number(""), Ok(None));
        assert_eq!(number("since_seq=99999999999999999999999"), Ok(Some(u64::MAX)));
        for wrong in ["since_seq=", "since_seq=-1", "since_seq=+1", "since_seq=x", "sinceseq=1", "since_seq=1.5"] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
        let limit = |text: &str| read(text).and_then(|query| query.limit(200, 500));
        assert_eq!((limit(""), limit("limit=500")), (Ok(200), Ok(500)));
        assert!(limit("limit=0").is_err() && limit("limit=501").is_err());
    }
}
