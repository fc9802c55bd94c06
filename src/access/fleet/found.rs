//! The sessions of a host, as views name them. Pure.

use std::path::PathBuf;
use std::time::SystemTime;

use serde::Deserialize as _;
use serde_json::Value;

use super::subject;
use crate::api::ListedSession;
use crate::store::{Found, Holder, Place};

/// A host as the beginning of ids of sessions, which stand in paths and addresses.
pub fn front(host: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match host.bytes().all(is_plain) && !host.starts_with('.') {
        true => host.to_owned(),
        false => subject::token(host),
    }
}

/// The sessions in the reply of a host; those that are not valid are left out.
pub fn session_rows(reply: &Value) -> Vec<ListedSession> {
    let rows = reply.get("sessions").and_then(Value::as_array).into_iter().flatten();
    let rows = rows.filter_map(|row| ListedSession::deserialize(row).ok());
    rows.filter(|row| subject::is_plain_id(&row.session_id)).collect()
}

/// A session of a host, by its row.
pub fn found(host: &str, row: &ListedSession) -> Found {
    let client =
        row.name.strip_suffix(')').and_then(|name| name.rsplit_once(" (")).map(|(_, client)| client.to_owned());
    let place = Place { cwd: row.cwd.clone().unwrap_or_default(), codex_home: String::new(), server: Vec::new() };
    let (pid, started_at) = (row.pid.unwrap_or(0), row.since.clone());
    Found {
        id: format!("{}/{}", front(host), row.session_id),
        dir: PathBuf::new(),
        live: row.live,
        holder: Some(Holder { pid, started_at, client, place }).filter(|holder| !holder.place.cwd.is_empty()),
        repository: None,
        threads: None,
        last_used: time_of(&row.since),
    }
}

pub(super) fn time_of(text: &str) -> SystemTime {
    humantime::parse_rfc3339(text).unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_sessions_stand_in_paths() {
        let check = |host: &str, expect: &str| assert_eq!(front(host), expect);
        check("build-7.example.org", "build-7.example.org");
        check("a/b?c", "a~2Fb~3Fc");
        check("..", "~2E~2E");
        check("ä", "~C3~A4");
    }
}
