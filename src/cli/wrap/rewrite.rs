//! Rewrites a settings file of the user, and changes only its text.
//!
//! A plain file is replaced by a rename, so a crash leaves the old or the new text. But a rename creates a new file with this
//! process's owner, without other hard links, and without attributes such as access lists. A file that would lose one of these
//! is written in place, with a backup of the old text beside it until the new text is on disk. A symbolic link stays, and its
//! target is rewritten.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::files;

/// Suffix of the new file before it replaces the old one.
const NEW: &str = "codex-shim-new";

/// Suffix of the backup while a file is written in place.
const BACKUP: &str = "codex-shim-backup";

/// Buffer for the names of a file's attributes, in bytes.
const ATTRIBUTES_BYTES_MAX: usize = 64 << 10;

/// Whether a file can be rewritten or, if it does not exist, created.
pub(super) fn check(path: &Path) -> Result<(), String> {
    target(path).map(drop)
}

/// Rewrites a file, or creates it if it does not exist.
pub(super) fn rewrite(path: &Path, text: &str) -> Result<(), String> {
    let Target { path, was } = target(path)?;
    let failed = |error: io::Error| format!("write {}: {error}", path.display());
    let Some(was) = was else { return put(&path, text, None).map(drop).map_err(failed) };
    let is_replaced = is_plain(&path, &was) && put(&path, text, Some(&was)).map_err(failed)?;
    if is_replaced { Ok(()) } else { in_place(&path, text) }
}

/// The file behind a path.
struct Target {
    /// With all links resolved.
    path: PathBuf,
    /// `None` if it does not exist.
    was: Option<Metadata>,
}

fn target(path: &Path) -> Result<Target, String> {
    let at = path.display();
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Target { path: path.to_owned(), was: None });
        }
        Err(error) => return Err(format!("look at {at}: {error}")),
        Ok(_) => {}
    }
    let target = path.canonicalize().map_err(|error| {
        format!("{at} is a link that has no target ({error}); create the target, or remove the link")
    })?;
    let shown = target.display();
    let was = target.metadata().map_err(|error| format!("look at {shown}: {error}"))?;
    if !was.is_file() {
        return Err(format!("{shown} is not a regular file; it is left unchanged"));
    }
    let mode = was.permissions().mode() & 0o7777;
    let by_hand = "or change the setting where that file comes from";
    if mode & 0o200 == 0 {
        return Err(format!("{shown} is read-only (mode {mode:04o}): run `chmod u+w {shown}` first, {by_hand}"));
    }
    match rustix::fs::access(&target, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Ok(Target { path: target, was: Some(was) }),
        Err(error) => Err(format!("{shown} cannot be written ({error}): check its owner, {by_hand}")),
    }
}

/// Whether a new file could replace this one without losing anything.
fn is_plain(path: &Path, was: &Metadata) -> bool {
    let mut names = vec![0; ATTRIBUTES_BYTES_MAX];
    let has_attributes = match rustix::fs::listxattr(path, &mut names[..]) {
        // A new file gets its folder's label, as this one did.
        Ok(bytes) => {
            names[..bytes].split(|byte| *byte == 0).any(|name| !name.is_empty() && name != b"security.selinux")
        }
        Err(Errno::NOTSUP) => false,
        Err(_) => true,
    };
    was.nlink() == 1 && !has_attributes
}

/// Replaces a file and keeps its mode. Returns false, with nothing changed, if the new file cannot have the same owner or the
/// old one cannot be replaced, such as a mount point.
fn put(path: &Path, text: &str, was: Option<&Metadata>) -> io::Result<bool> {
    let beside = path.with_added_extension(NEW);
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = files::create_file(&beside)?;
    let mut done = || {
        if let Some(was) = was {
            let is = file.metadata()?;
            if (is.uid(), is.gid()) != (was.uid(), was.gid()) {
                return Ok(false);
            }
            file.set_permissions(was.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        match fs::rename(&beside, path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(false),
            renamed => renamed.map(|()| true),
        }
    };
    let done = done();
    if !matches!(done, Ok(true)) {
        let _ = fs::remove_file(&beside);
    }
    done
}

/// Overwrites the text of a file. A backup stays beside it until the new text is on disk.
fn in_place(path: &Path, text: &str) -> Result<(), String> {
    let at = path.display();
    let failed = |error: io::Error| format!("write {at}: {error}");
    let backup = path.with_added_extension(OsString::from(BACKUP));
    let kept = backup.display();
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path).map_err(failed)?;
    let before = fs::read(path).map_err(failed)?;
    let saved = files::create_file(&backup).and_then(|mut backup| {
        backup.write_all(&before)?;
        backup.sync_all()
    });
    match saved {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(format!(
                "{kept} is left from a write that was cut short: keep the text that you want as {at}, and remove {kept}"
            ));
        }
        Err(error) => {
            let _ = fs::remove_file(&backup);
            return Err(format!("write {kept}: {error}"));
        }
        Ok(()) => {}
    }
    if let Err(error) = overwrite(&file, text.as_bytes()) {
        return Err(match overwrite(&file, &before) {
            Ok(()) => {
                let _ = fs::remove_file(&backup);
                failed(error)
            }
            Err(_) => format!("write {at}: {error}; its old text is kept as {kept}"),
        });
    }
    fs::remove_file(&backup).map_err(|error| format!("remove {kept}: {error}"))
}

fn overwrite(file: &File, text: &[u8]) -> io::Result<()> {
    file.write_all_at(text, 0)?;
    file.set_len(text.len() as u64)?;
    file.sync_all()
}
