//! The use of this host's sessions: sums by session, day, client and model, so that a reply stays short.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::Shared;
use super::answers::all_sessions;
use crate::api::{Moment, Parameter as _, SessionUsage, TurnUsage, UsageQuery, Used};
use crate::control::client;
use crate::fleet::level::{self, Leaving};
use crate::fleet::wire::{Failure, UsageSum};
use crate::store::{Found, label};

/// How long the sessions are read. Those that are left out are counted.
const READ_MAX: Duration = Duration::from_secs(4);

/// Most sums in a reply.
const SUMS_MAX: usize = 2_000;

/// A sum has one day in UTC, one client and one model.
type Key = (Option<String>, Option<String>, Option<String>);

/// The sums, with the members of `codex-shim usage --json`.
pub(super) fn usage(shared: &Shared, since: Option<&str>) -> Result<Leaving, Failure> {
    let since = since.map(Moment::read).transpose();
    let query = UsageQuery { since: since.map_err(|_| Failure::new("invalid_question", "`since` is not a time"))? };
    let began = Instant::now();
    let (mut rows, mut left_out, mut problems) = (Vec::new(), 0_u64, Vec::new());
    for session in all_sessions(shared)? {
        if began.elapsed() >= READ_MAX || rows.len() >= SUMS_MAX {
            left_out += 1;
            continue;
        }
        match of_session(shared, &session, &query) {
            Ok(usage) => rows.extend(sums(&session, &usage)),
            Err(why) => problems.push((session.clone(), Failure::quoted("session_failed", why))),
        }
    }
    Ok(level::usage(&rows, left_out, &problems, shared.member.level))
}

fn of_session(shared: &Shared, session: &Found, query: &UsageQuery) -> Result<SessionUsage, String> {
    if session.is_still_live() {
        return match client::ask(&session.dir, query, READ_MAX) {
            Err(error) if error.code() == "not_recorded" => Ok(SessionUsage::default()),
            answered => answered.map(|document| document.usage).map_err(|error| error.to_string()),
        };
    }
    let is_before = |Moment(at_us)| session.last_used < SystemTime::UNIX_EPOCH + Duration::from_micros(at_us);
    if query.since.is_some_and(is_before) {
        return Ok(SessionUsage::default());
    }
    let read = shared.read(session).query_recorded(query).map_err(|error| error.to_string())?;
    Ok(read.map(|document| document.usage).unwrap_or_default())
}

fn sums(session: &Found, usage: &SessionUsage) -> Vec<Value> {
    let mut sums: BTreeMap<Key, Used> = BTreeMap::new();
    for TurnUsage { client, model, began_at, older, used, .. } in &usage.turns {
        let day = began_at.get(..10).filter(|_| !older).map(str::to_owned);
        sums.entry((day, client.clone(), model.clone())).or_default().add(used);
    }
    let (session_id, session_name) = (&session.id, label(session));
    let sum = |((day, client, model), used): (Key, Used)| {
        let (session_id, session_name) = (session_id.clone(), session_name.clone());
        json!(UsageSum { used, session_id, session_name, day, client, model })
    };
    sums.into_iter().map(sum).collect()
}
