//! The search of the page: its two routes. They answer with what `codex-shim search --json` prints, and with completions.
//!
//! A query is in the body, so it is in no log of a proxy.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use jiff::tz::TimeZone;
use serde::Deserialize;
use serde_json::json;

use super::routes::{App, read};
use crate::control::{Refusal, Responded, ok};
use crate::history::{Filter, FilterPlace, complete};
use crate::index::Search;
use crate::sessions::door::Door;
use crate::sessions::search::{choices, search};

/// Matches of a search, if the page does not say, and most of them.
const MATCHES_DEFAULT: usize = 30;
const MATCHES_MAX: usize = 500;

/// How sessions are searched.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    pub door: Door,
    /// The folder that `~` stands for.
    pub user_home: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    query: String,
    limit: Option<usize>,
}

pub(super) async fn find(State(app): State<Arc<App>>, body: Bytes) -> Responded {
    let Asked { query, limit } = read(&body)?;
    let limit = limit.unwrap_or(MATCHES_DEFAULT);
    if !(1..=MATCHES_MAX).contains(&limit) {
        return Err(Refusal::bad("invalid_parameter", format!("`limit` must be 1 to {MATCHES_MAX}")));
    }
    let (finding, inbox) = (app.finding.clone().ok_or_else(elsewhere)?, app.inbox.clone());
    let filter = filter(&query, &finding).map_err(|why| Refusal::bad("invalid_filter", why))?;
    if filter.is_empty() {
        return Err(Refusal::bad("invalid_filter", "there is nothing to search for"));
    }
    app.call(move || {
        let query = filter.query().cloned();
        let wanted = Search { query, filter, kinds: Vec::new(), since: None, all_threads: false, limit };
        let sessions = inbox.sessions();
        let (found, errors) = search(&sessions, finding.door, &wanted);
        let mut document = found.document(&sessions);
        document["errors"] = json!(errors.iter().map(ToString::to_string).collect::<Vec<_>>());
        ok(&document)
    })
    .await
}

/// The texts that complete a query.
pub(super) async fn completions(State(app): State<Arc<App>>, body: Bytes) -> Responded {
    let Asked { query, limit: _ } = read(&body)?;
    let inbox = app.inbox.clone();
    app.finding.as_ref().ok_or_else(elsewhere)?;
    app.call(move || ok(&json!({ "completions": complete(&query, &choices(&inbox.sessions())) }))).await
}

fn elsewhere() -> Refusal {
    let message =
        "the sessions of a fleet cannot be searched from here; `codex-shim search` searches those of a machine";
    Refusal::new(StatusCode::NOT_FOUND, "no_search", message)
}

fn filter(query: &str, finding: &Finding) -> Result<Filter, String> {
    let zone = TimeZone::system();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let now_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
    let place = FilterPlace { now_us, zone: &zone, home: finding.user_home.as_deref(), folder: None };
    Filter::read(query, &place)
}
