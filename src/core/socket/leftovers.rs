//! What killed processes have left in the folder of our sockets.

use std::fs::{DirEntry, ReadDir};
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::os::sockets;

/// Age of a file that may be removed. A younger socket may be bound and not listened on yet.
const AGE_MIN: Duration = Duration::from_hours(1);
/// Old files looked at in one go: calls wait meanwhile.
const LOOKS_MAX: usize = 1024;

/// Removes sockets of ours that nobody listens on, and files with ended tokens. Sockets of codex stay: their names have no
/// extension.
pub(super) fn remove_leftovers(dir: &Path) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in left_over(entries, SystemTime::now()) {
        let _ = std::fs::remove_file(entry.path());
    }
}

/// Files with names of ours that may be removed.
fn left_over(entries: ReadDir, now: SystemTime) -> impl Iterator<Item = DirEntry> {
    let is_of_ours = |entry: &DirEntry| {
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        name.ends_with(b".sock") || name.starts_with(b"web-open-") && name.ends_with(b".html")
    };
    let ours = entries.filter_map(Result::ok).filter(is_of_ours);
    ours.filter(move |entry| is_old(entry, now)).take(LOOKS_MAX).filter(is_dead)
}

fn is_old(entry: &DirEntry, now: SystemTime) -> bool {
    // The metadata of a link is its own.
    let modified = entry.metadata().and_then(|there| there.modified()).ok();
    modified.and_then(|at| now.duration_since(at).ok()).is_some_and(|age| age >= AGE_MIN)
}

fn is_dead(entry: &DirEntry) -> bool {
    let Ok(there) = entry.metadata() else { return false };
    there.is_file() || there.file_type().is_socket() && is_deaf(&entry.path())
}

/// Whether nobody listens on a socket. A listener that accepts nothing more counts as one.
fn is_deaf(path: &Path) -> bool {
    sockets::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_what_is_old_and_dead_is_removed() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = |name: &str| dir.path().join(name);
        let socket = |name: &str| UnixListener::bind(path(name)).expect("it can be bound");
        let names = ["dead.sock", "codex", "alive.sock", "web-open-1.html", "web-open-1.txt", "file.sock"];
        let dead = [socket(names[0]), socket(names[1])];
        let _alive = socket(names[2]);
        for name in &names[3..] {
            File::create_new(path(name)).expect("a file");
        }
        drop(dead);
        let gone = |now| -> Vec<&str> {
            let entries = std::fs::read_dir(dir.path()).expect("a folder");
            let gone: Vec<_> = left_over(entries, now).collect();
            names.into_iter().filter(|name| gone.iter().any(|entry| entry.file_name() == **name)).collect()
        };
        assert_eq!(gone(SystemTime::now()), [""; 0]);
        assert_eq!(gone(SystemTime::now() + AGE_MIN), ["dead.sock", "web-open-1.html", "file.sock"]);
    }
}
