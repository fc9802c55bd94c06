//! The names of sessions and threads on the screen.
//!
//! Pure.

use std::path::Path;

use super::model::Session;
use crate::api::{ListedThread, ThreadIdentityDocument};
use crate::engine::one_line;
use crate::history::client_name;
use crate::sessions::names::host_of;
use crate::sessions::rows::SessionRow;
use crate::store::short_id;

/// A name with the machine of the session `id` in front.
pub(super) fn with_host(id: &str, name: &str) -> String {
    host_of(id).map_or_else(|| name.to_owned(), |host| format!("{host}/{name}"))
}

/// A session by its folder and client: `proj (vscode)`, or `host/proj (vscode)`.
pub(super) fn session_name(id: &str, cwd: &str, client: Option<&str>) -> String {
    let folder = cwd.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("/");
    let client = client.map(client_name).filter(|name| !name.is_empty());
    with_host(id, &client.map_or_else(|| folder.to_owned(), |client| format!("{folder} ({client})")))
}

/// The short id of a session, the same as in `sessions`: the end of a UUID, else the whole id. It does not name the machine.
pub(super) fn session_id<'a>(id: &'a str, rows: &[SessionRow]) -> &'a str {
    let folder = |row| Path::new(row).file_name().and_then(|name| name.to_str());
    let bare = |id: &'a str| id.split_once('/').map_or(id, |(_, bare)| bare);
    let beside = rows.iter().filter(|row| host_of(&row.id) == host_of(id));
    let beside = beside.map(|row| (row.id.split_once('/').map_or(&*row.id, |(_, bare)| bare), folder(&*row.cwd)));
    short_id(bare(id), beside)
}

impl Session {
    /// The session on the screen: the folder and the client of the thread that asks or is chosen, else of the session.
    pub(super) fn name(&self) -> String {
        let asks = self.answering.as_ref().and_then(|answering| answering.ask.origin(&self.cwd));
        let chosen = || self.thread.as_deref().and_then(|thread| self.thread_name(thread));
        match asks.map(|asks| asks.name).or_else(chosen) {
            Some(name) => with_host(&self.id, &name),
            None => session_name(&self.id, &self.cwd, self.client()),
        }
    }

    /// The folder and the client of a thread with a row of its own in lists.
    pub(super) fn thread_name(&self, thread_id: &str) -> Option<String> {
        let listed = self.document().map(|document| document.listed_threads()).unwrap_or_default();
        let is_it = |listed: &ListedThread<'_>| listed.thread.thread_id == thread_id && listed.has_place();
        listed.into_iter().find(is_it).map(|listed| listed.name)
    }

    /// That only one thread is shown, by its title or else its short id.
    pub(super) fn only_thread(&self, thread_id: &str) -> String {
        match self.identity(thread_id).and_then(|identity| identity.title.as_ref()) {
            Some(title) => format!("only \"{}\"", one_line(title)),
            None => format!("only thread {}", super::threads::short(self, thread_id)),
        }
    }

    /// Who a thread is, as the relay says.
    pub(super) fn identity(&self, thread_id: &str) -> Option<&ThreadIdentityDocument> {
        let mut threads = self.document()?.threads.iter();
        threads.find(|thread| thread.thread_id == thread_id).map(|thread| &thread.identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_have_a_folder_and_a_client() {
        assert_eq!(session_name("s", "/home/u/proj/", Some("codex_vscode")), "proj (vscode)");
        assert_eq!(session_name("s", "/home/u/proj", Some("zed")), "proj (zed)");
        assert_eq!(session_name("s", "/", None), "/");
        assert_eq!(session_name("s", "", Some("")), "/");
        assert_eq!(session_name("build-7/s", "/w/proj", Some("zed")), "build-7/proj (zed)");
    }

    #[test]
    fn a_session_has_the_id_of_sessions() {
        let row = |id: &str| SessionRow {
            id: id.to_owned(),
            live: true,
            away: None,
            state: None,
            pending: 0,
            waiting: Vec::new(),
            cwd: "/w/proj".to_owned(),
            client: None,
            used_us: 0,
            threads: Vec::new(),
        };
        let rows = ["0192aaaa-0000-7000-8000-00000000ab01", "0192aaaa-0000-7000-8000-00000000cb01", "work"].map(row);
        let short = rows.each_ref().map(|row| session_id(&row.id, &rows));
        assert_eq!(short, ["ab01", "cb01", "work"]);
        // A session of another machine is no reason for a longer name.
        let far = ["h/0192aaaa-0000-7000-8000-00000000ab01", "i/0192bbbb-0000-7000-8000-00000000bb01"].map(row);
        assert_eq!(far.each_ref().map(|row| session_id(&row.id, &far)), ["ab01", "bb01"]);
    }
}
