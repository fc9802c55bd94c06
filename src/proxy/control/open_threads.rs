//! The threads of persons in a live session, for the tools that choose one of them.

use std::path::PathBuf;

use crate::api::{SessionDocument, ThreadDocument, ThreadIdentityDocument, is_open};
use crate::history::ThreadIdentity;
use crate::store::{OpenThread, repository_of};

/// The threads of persons.
pub fn open_threads(session: &SessionDocument) -> Vec<OpenThread> {
    let held = session.held();
    let of_person = |thread: &ThreadDocument| {
        let ThreadIdentityDocument { cwd, place, refuses_input, last_used_at, .. } = &thread.identity;
        let repository = place.as_ref().and_then(|place| place.repository.as_ref());
        OpenThread {
            id: thread.thread_id.clone(),
            name: thread.identity.in_words().unwrap_or_else(|| thread.thread_id.clone()),
            cwd: resolved(cwd.as_deref().unwrap_or_default()),
            repository: repository.map(|repository| resolved(repository)),
            is_open: is_open(thread, &held),
            runs: thread.runs(),
            takes_messages: !refuses_input,
            last_used: last_used_at.clone().unwrap_or_default(),
        }
    };
    session.threads.iter().filter(|thread| thread.identity.kind.is_user()).map(of_person).collect()
}

/// Who a thread is, with the repository of its folder, which is looked for in the file system.
pub(super) fn with_repository(identity: ThreadIdentity) -> ThreadIdentityDocument {
    let mut document = ThreadIdentityDocument::recorded(identity);
    if let (Some(place), Some(cwd)) = (&mut document.place, &document.cwd) {
        place.repository = repository_of(&resolved(cwd)).map(|root| root.to_string_lossy().into_owned());
    }
    document
}

/// A path without links, if it is there.
fn resolved(path: &str) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| PathBuf::from(path))
}
