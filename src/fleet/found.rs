//! The sessions of a host, as views name them. Pure.

use std::path::PathBuf;
use std::time::SystemTime;

use serde_json::Value;

use super::subject;
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
pub(crate) fn found(host: &str, row: &Value) -> Found {
    let name = text(row, "name");
    let client = name.strip_suffix(')').and_then(|name| name.rsplit_once(" (")).map(|(_, client)| client.to_owned());
    let place = Place { cwd: text(row, "cwd").to_owned(), codex_home: String::new(), server: Vec::new() };
    let pid = row["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
    let since = text(row, "since");
    Found {
        id: format!("{}/{}", front(host), text(row, "session_id")),
        dir: PathBuf::new(),
        live: row["live"] == true,
        holder: (!place.cwd.is_empty()).then(|| Holder { pid, started_at: since.to_owned(), client, place }),
        repository: None,
        threads: None,
        last_used: time_of(since),
    }
}

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_default()
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
