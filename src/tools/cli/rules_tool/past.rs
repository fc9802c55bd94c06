//! The requests of stored sessions, as rules see them.

use super::super::select_session;
use super::super::since::Since;
use crate::engine::{PastRequest, PersonsAnswer, asked};
use crate::requests::view::warnings_of;
use crate::store::{Found, PastRow, past_requests};

/// A request of a session.
pub(super) struct Recorded {
    pub past: PastRequest,
    pub session: String,
    pub request_id: String,
    pub summary: String,
    pub cwd: Option<String>,
}

impl Recorded {
    fn of(session: &str, row: PastRow) -> Recorded {
        let PastRow { request, answer, source, by } = row;
        let [item, changes] =
            [&request.item, &request.changes].map(|value| Some(value).filter(|value| !value.is_null()));
        let given = source.as_deref().zip(answer.as_deref());
        let cwd = request.request_payload["cwd"].as_str().or_else(|| request.item["cwd"].as_str()).map(str::to_owned);
        Recorded {
            past: PastRequest {
                at: request.requested_at.clone(),
                asked: asked(request.kind(), &request.request_payload, item, changes),
                answer: given.and_then(|(source, answer)| PersonsAnswer::of(source, answer)),
                // The process of a caller says nothing later.
                by: by.map(|by| by.split(", pid ").next().unwrap_or_default().to_owned()).unwrap_or_default(),
                is_risky: !warnings_of(&request).is_empty(),
            },
            session: session.to_owned(),
            request_id: request.request_id,
            summary: request.summary,
            cwd,
        }
    }
}

/// The requests of all sessions since a time, oldest first, and the sessions that cannot be read.
pub(super) fn all(sessions: &[Found], since: Option<Since>) -> (Vec<Recorded>, Vec<String>) {
    let since = since.map(Since::rfc3339).unwrap_or_default();
    let read = select_session::at_once(sessions, |session| {
        let (name, mut requests) = (session.name(), Vec::new());
        past_requests(&session.dir, session.live, &since, |row| requests.push(Recorded::of(&name, row)))
            .map(|()| requests)
    });
    let (mut all, mut unread) = (Vec::new(), Vec::new());
    for (session, read) in sessions.iter().zip(read) {
        match read {
            Ok(requests) => all.extend(requests),
            Err(error) => unread.push(format!("session {}: {error}", session.name())),
        }
    }
    all.sort_by(|one: &Recorded, other| one.past.at.cmp(&other.past.at));
    (all, unread)
}
