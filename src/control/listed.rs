//! Sessions in the lists of the tools and of the agent of a fleet.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::{Value, json};

use crate::history::Activity;
use crate::store::{Found, label, short};

/// A row of the list of sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct SessionRow {
    pub session_id: String,
    /// The shortest name that every tool takes.
    pub short_id: String,
    /// The folder and the client: `proj (vscode)`.
    pub name: String,
    pub live: bool,
    /// The state that a live relay reports; `null` if it does not answer.
    pub state: Option<Activity>,
    /// Start of a live session; last use of a stopped one.
    pub since: String,
    pub cwd: Option<String>,
    /// The relay's process id while it runs.
    pub pid: Option<u32>,
}

impl SessionRow {
    /// The row of a session, whose short name is unique in `all`.
    pub(crate) fn of(session: &Found, all: &[Found], state: Option<Activity>) -> SessionRow {
        let holder = session.holder.as_ref();
        let started = holder.and_then(|holder| humantime::parse_rfc3339(&holder.started_at).ok());
        // The last second that RFC 3339 can name; a file may have any time.
        let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
        let time = |time: SystemTime| humantime::format_rfc3339_seconds(time.min(last)).to_string();
        SessionRow {
            session_id: session.id.clone(),
            short_id: short(session, all).to_owned(),
            name: label(session),
            live: session.live,
            state,
            since: time(started.filter(|_| session.live).unwrap_or(session.last_used)),
            cwd: holder.map(|holder| holder.place.cwd.clone()),
            pid: holder.filter(|_| session.live).map(|holder| holder.pid),
        }
    }
}

/// The session of a request, as a member of its row.
pub(crate) fn session_of_request(session: &Found) -> Value {
    let holder = session.holder.as_ref();
    json!({
        "name": label(session),
        "cwd": holder.map(|holder| &holder.place.cwd),
        "client": holder.and_then(|holder| holder.client.as_ref()),
        "live": session.live,
    })
}
