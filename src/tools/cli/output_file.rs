//! The file that `-o FILE` names: only its owner can read it, and it is never partial.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::kept_back::KeptBack;
use crate::files;
use crate::os::Errno;
use crate::os::fs::rename_to_new;

/// The handling of an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Existing {
    /// A file is replaced. A link is followed, and its target is written.
    Replaced,
    /// A file or a link to a file is an error.
    Kept,
    /// A file or a link to a file is replaced; the target of the link stays.
    ReplacedItself,
}

/// Whether the work of writing goes on: no signal has arrived.
pub(super) type GoesOn<'a> = &'a dyn Fn() -> bool;

/// Writes a file beside its target and then renames it. A target that is not a regular file, such as a pipe or a link
/// to one, is written directly.
pub(super) fn write(
    path: &Path,
    existing: Existing,
    fill: impl FnOnce(&mut BufWriter<File>, GoesOn<'_>) -> Result<(), String>,
) -> Result<(), String> {
    // The user has not named the file beside it.
    let failed = |error: String| format!("write {}: {error}", path.display());
    let place = Destination::of(path, existing).map_err(failed)?;
    let target = match place {
        Destination::File => path.with_added_extension(format!("{}.partial", std::process::id())),
        Destination::AsItIs => path.to_owned(),
    };
    // A signal must not leave a partial file behind. A pipe needs no cleanup.
    let kept_back = if place == Destination::File { KeptBack::begin().ok() } else { None };
    let file = match place {
        Destination::File => create_beside(&target),
        Destination::AsItIs => open_as_it_is(&target, existing),
    };
    let mut output = BufWriter::new(file.map_err(|error| failed(error.to_string()))?);
    let goes_on = || kept_back.is_none_or(|kept_back| !kept_back.has_come());
    let filled = fill(&mut output, &goes_on).and_then(|()| output.flush().map_err(|error| error.to_string()));
    let done = match (filled, place) {
        (Ok(()), Destination::File) => put_in_place(&target, path, existing),
        (filled, _) => filled,
    };
    if place == Destination::File && done.is_err() {
        let _ = std::fs::remove_file(&target);
    }
    if let Some(kept_back) = kept_back {
        kept_back.let_go_and_obey();
    }
    done.map_err(failed)
}

/// How a target is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Destination {
    /// As a new file beside it, then renamed.
    File,
    /// Opened directly: a pipe, a terminal or a device.
    AsItIs,
}

impl Destination {
    fn of(path: &Path, existing: Existing) -> Result<Destination, String> {
        let Ok(itself) = path.symlink_metadata() else { return Ok(Destination::File) };
        let target_is_open = path.metadata().is_ok_and(|target| !target.is_file());
        match existing {
            Existing::Replaced if itself.is_file() => Ok(Destination::File),
            Existing::Replaced => Ok(Destination::AsItIs),
            Existing::Kept | Existing::ReplacedItself if target_is_open => Ok(Destination::AsItIs),
            Existing::ReplacedItself => Ok(Destination::File),
            Existing::Kept if itself.is_symlink() => Err("it is a link; --force replaces the link".to_owned()),
            Existing::Kept => Err(TAKEN.to_owned()),
        }
    }
}

const TAKEN: &str = "it exists already; --force replaces it";

fn put_in_place(target: &Path, path: &Path, existing: Existing) -> Result<(), String> {
    let said = |error: io::Error| error.to_string();
    if existing == Existing::Kept {
        match rename_to_new(target, path) {
            Ok(()) => return Ok(()),
            Err(Errno::EXIST) => return Err(TAKEN.to_owned()),
            // The file system cannot do that.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) if path.symlink_metadata().is_err() => {}
            Err(error) => return Err(said(error.into())),
        }
    }
    std::fs::rename(target, path).map_err(said)
}

/// Creates a new file and never follows a link.
fn create_beside(target: &Path) -> io::Result<File> {
    let create = || files::create_file(target);
    match create() {
        // Its name contains our process id, so the process that left it is gone. A link is removed, its target stays.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            std::fs::remove_file(target)?;
            create()
        }
        created => created,
    }
}

/// Opens a pipe, a terminal, or the target of a link; its mode stays as it is.
fn open_as_it_is(target: &Path, existing: Existing) -> io::Result<File> {
    let may_be_file = existing == Existing::Replaced;
    let file = OpenOptions::new().write(true).create(may_be_file).truncate(may_be_file).mode(0o600).open(target)?;
    if !may_be_file && file.metadata()?.is_file() {
        return Err(io::Error::other("it has just become a file; run the command again"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn written(path: &Path, existing: Existing) -> Result<String, String> {
        write(path, existing, |output, _| output.write_all(b"new").map_err(|error| error.to_string()))?;
        std::fs::read_to_string(path).map_err(|error| error.to_string())
    }

    #[test]
    fn files_are_kept_unless_forced() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("a");
        assert_eq!(written(&path, Existing::Kept).as_deref(), Ok("new"));
        assert_eq!(path.metadata().expect("it is there").permissions().mode() & 0o777, 0o600);
        std::fs::write(&path, "old").expect("it is ours");
        let refused = written(&path, Existing::Kept).expect_err("it exists");
        assert!(refused.ends_with("it exists already; --force replaces it"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "old");
        assert_eq!(written(&path, Existing::ReplacedItself).as_deref(), Ok("new"));
        assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 1);
    }

    #[test]
    fn links_to_files_are_never_followed() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let (path, target) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&target, "old").expect("it is ours");
        symlink(&target, &path).expect("a link");
        let refused = written(&path, Existing::Kept).expect_err("it is a link");
        assert!(refused.contains("it is a link; --force"), "{refused}");
        assert_eq!(written(&path, Existing::ReplacedItself).as_deref(), Ok("new"));
        assert_eq!(std::fs::read_to_string(&target).expect("it is there"), "old");
        assert!(path.symlink_metadata().expect("it is there").is_file());
        let dangling = dir.path().join("c");
        symlink(dir.path().join("nowhere"), &dangling).expect("a link");
        assert!(written(&dangling, Existing::Kept).is_err());
        assert!(!dir.path().join("nowhere").exists());
    }

    #[test]
    fn devices_are_written_directly() {
        let path = Path::new("/dev/null");
        assert_eq!(written(path, Existing::Kept).as_deref(), Ok(""));
        assert!(!path.metadata().expect("it is there").is_file());
    }
}
