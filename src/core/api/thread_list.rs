//! Threads in lists, by names that tell them apart.

use super::session::ThreadDocument;
use crate::engine::one_line;

/// A thread in the lists of tools and views.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedThread<'a> {
    /// Folder and client: `proj (codex-tui)`, with the terminal where two would be alike.
    pub name: String,
    /// The same without the client.
    pub short_name: String,
    pub thread: &'a ThreadDocument,
}

impl ListedThread<'_> {
    /// Whether its folder is known; without that its name is its id.
    pub fn has_place(&self) -> bool {
        self.thread.identity.place.is_some()
    }

    /// `threads` with names by which they can be told apart, as far as they differ.
    pub(super) fn all<'a>(threads: &[&'a ThreadDocument]) -> Vec<ListedThread<'a>> {
        let names: Vec<Option<String>> = threads.iter().map(|thread| thread.identity.folder_and_client()).collect();
        let listed = |(thread, name): (&&'a ThreadDocument, &Option<String>)| {
            let identity = &thread.identity;
            let is_alone = names.iter().filter(|other| *other == name).count() == 1;
            let name = if is_alone { name.clone() } else { identity.whereabouts() };
            let folder = identity.place.as_ref().map(|place| one_line(&place.folder));
            let terminal = identity.client.as_ref().and_then(|client| client.terminal.as_deref());
            let short_name = match (folder, terminal.filter(|_| !is_alone)) {
                (Some(folder), Some(terminal)) => format!("{folder} ({})", one_line(terminal)),
                (Some(folder), None) => folder,
                (None, _) => thread.thread_id.clone(),
            };
            ListedThread { name: name.unwrap_or_else(|| thread.thread_id.clone()), short_name, thread }
        };
        threads.iter().zip(&names).map(listed).collect()
    }
}
