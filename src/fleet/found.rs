//! The sessions of a host, as views name them. Pure.

use std::path::PathBuf;
use std::time::SystemTime;

use super::subject;
use crate::api::ListedSession;
use crate::store::{Found, Holder, Place};

/// A host as the beginning of ids of sessions, which stand in paths and addresses.
pub(crate) fn front(host: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match host.bytes().all(is_plain) && !host.starts_with('.') {
        true => host.to_owned(),
        false => subject::token(host),
    }
}

/// A session of a host, by the row in its reply.
pub(crate) fn found(host: &str, row: &ListedSession) -> Found {
    let ListedSession { session_id, name, live, since, cwd, pid, .. } = row;
    let client = name.strip_suffix(')').and_then(|name| name.rsplit_once(" (")).map(|(_, client)| client.to_owned());
    let place = cwd.as_ref().filter(|cwd| !cwd.is_empty()).map(|cwd| Place {
        cwd: cwd.clone(),
        codex_home: String::new(),
        server: Vec::new(),
    });
    Found {
        id: format!("{}/{session_id}", front(host)),
        dir: PathBuf::new(),
        live: *live,
        holder: place.map(|place| Holder { pid: pid.unwrap_or(0), started_at: since.clone(), client, place }),
        repository: None,
        threads: None,
        last_used: time_of(since),
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
