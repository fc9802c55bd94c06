//! Sessions in the lists of the tools and of the agent of a fleet.

use std::time::{Duration, SystemTime};

use crate::api::{ListedSession, Request, RequestSession, ThreadIdentityDocument};
use crate::history::Activity;
use crate::store::{Found, label, short};

/// The row of a session, whose short name is unique in `all`.
pub fn listed_session(session: &Found, all: &[Found], state: Option<Activity>) -> ListedSession {
    let holder = session.holder.as_ref();
    let started = holder.and_then(|holder| humantime::parse_rfc3339(&holder.started_at).ok());
    // The last second that RFC 3339 can name; a file may have any time.
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    let time = |time: SystemTime| humantime::format_rfc3339_seconds(time.min(last)).to_string();
    ListedSession {
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

/// Where a request or a thread comes from: the thread if that works in another folder than the session, else the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestOrigin {
    /// Folder and client: `proj (vscode)`.
    pub name: String,
    /// The same with the client's terminal, for where two would be alike.
    pub exact_name: String,
    /// The working folder; empty if it is not known.
    pub cwd: String,
    pub client: Option<String>,
}

impl RequestOrigin {
    /// The origin of a request.
    pub fn of(session: &Found, row: &Request) -> RequestOrigin {
        RequestOrigin::of_thread(session, row.thread().cloned().unwrap_or_default())
    }

    /// The origin of what a thread does.
    pub fn of_thread(session: &Found, thread: ThreadIdentityDocument) -> RequestOrigin {
        let holder = session.holder.as_ref();
        let cwd = holder.map(|holder| holder.place.cwd.clone()).unwrap_or_default();
        RequestOrigin::elsewhere(thread, &cwd).unwrap_or_else(|| {
            let client = holder.and_then(|holder| holder.client.clone());
            RequestOrigin { name: label(session), exact_name: label(session), cwd, client }
        })
    }

    /// A thread that works in another folder than its session; `None` too if nothing says where it does.
    pub fn elsewhere(thread: ThreadIdentityDocument, cwd_of_session: &str) -> Option<RequestOrigin> {
        let (name, exact_name) = (thread.folder_and_client()?, thread.whereabouts()?);
        let cwd = thread.cwd.filter(|cwd| cwd != cwd_of_session)?;
        Some(RequestOrigin { name, exact_name, cwd, client: thread.client.map(|client| client.name) })
    }
}

/// The session of a request, as a member of its row, with the folder and the client of its thread.
pub fn session_of_request(session: &Found, row: &Request) -> RequestSession {
    let RequestOrigin { name, cwd, client, .. } = RequestOrigin::of(session, row);
    let cwd = Some(cwd).filter(|cwd| !cwd.is_empty());
    RequestSession { client, cwd, live: session.live, name, session_id: None }
}
