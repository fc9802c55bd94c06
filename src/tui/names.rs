//! Names of sessions and threads, for display and for use in commands.
//!
//! Pure.

use std::path::Path;

use uuid::Uuid;

use super::model::SessionRow;
use crate::store;

/// Shortest prefix of an id.
const ID_CHARS_MIN: usize = 8;

/// A session by its folder and client: `proj (vscode)`.
pub(super) fn session(cwd: &str, client: Option<&str>) -> String {
    let folder = cwd.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("/");
    let client = client.map(client_name).filter(|name| !name.is_empty());
    client.map_or_else(|| folder.to_owned(), |client| format!("{folder} ({client})"))
}

/// A client's name without the words that all Codex clients have in common.
fn client_name(name: &str) -> &str {
    let bare = ["codex_", "codex-"].iter().find_map(|prefix| name.strip_prefix(prefix));
    bare.unwrap_or(name)
}

/// The short id of a session, the same as in `sessions`: the end of a UUID, else the whole id.
pub(super) fn session_id<'a>(id: &'a str, rows: &[SessionRow]) -> &'a str {
    let folder = |row| Path::new(row).file_name().and_then(|name| name.to_str());
    store::short_id(id, rows.iter().map(|row| (&*row.id, folder(&*row.cwd))))
}

/// The shortest unique prefix of a thread's id, which every command accepts. A name that a user chose stays whole.
pub(crate) fn short_id<'a, 'b>(id: &'a str, all: impl Iterator<Item = &'b str> + Clone) -> &'a str {
    if Uuid::try_parse(id).is_err() {
        return id;
    }
    let ends = id.char_indices().map(|(at, char)| at + char.len_utf8()).filter(|end| *end >= ID_CHARS_MIN);
    for end in ends {
        let is_taken = all.clone().any(|other| other != id && other.starts_with(&id[..end]));
        if !is_taken && !id[..end].ends_with('-') {
            return &id[..end];
        }
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_have_a_folder_and_a_client() {
        assert_eq!(session("/home/u/proj/", Some("codex_vscode")), "proj (vscode)");
        assert_eq!(session("/home/u/proj", Some("zed")), "proj (zed)");
        assert_eq!(session("/", None), "/");
        assert_eq!(session("", Some("")), "/");
    }

    #[test]
    fn a_short_id_is_a_unique_prefix() {
        let ids = ["0192c4f0-1111-7000-8000-000000000001", "0192c4f0-1112-7000-8000-000000000001", "work"];
        let short = |id| short_id(id, ids.iter().copied());
        assert_eq!(short(ids[0]), "0192c4f0-1111");
        assert_eq!(short(ids[2]), "work");
        assert_eq!(short_id(ids[0], ids[..1].iter().copied()), "0192c4f0");
        assert_eq!(short("thread-0001"), "thread-0001");
    }

    #[test]
    fn a_session_has_the_id_of_sessions() {
        let row = |id: &str| SessionRow {
            id: id.to_owned(),
            live: true,
            state: None,
            pending: 0,
            waiting: Vec::new(),
            cwd: "/w/proj".to_owned(),
            client: None,
            used_us: 0,
        };
        let rows = ["0192aaaa-0000-7000-8000-00000000ab01", "0192aaaa-0000-7000-8000-00000000cb01", "work"].map(row);
        let short = rows.each_ref().map(|row| session_id(&row.id, &rows));
        assert_eq!(short, ["ab01", "cb01", "work"]);
    }
}
