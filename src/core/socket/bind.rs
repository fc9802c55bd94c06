//! Where a socket is bound: in a folder that the sandbox of codex hides, behind a link at the path that callers know.
//!
//! If that folder cannot be used, the socket is bound at the path itself or, if that is too long for a socket, behind a link
//! to a short one.
//!
//! *Locking.* The caller of [`bind_at`] holds the lock that belongs to the path. A socket or link of ours that exists already is
//! left over from a killed process and is replaced. Anything else in its place stays untouched.
//!
//! *Trust.* A link leads only to a real folder that belongs to us and that only we can enter.

use std::fs::{Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use super::SocketFiles;
use crate::files;
use crate::os::identity::own_uid;

/// Longest path of a socket, in bytes. Systems allow 103 to 107.
const SOCKET_PATH_BYTES_MAX: usize = 100;

/// Folder of short paths if there is no runtime folder.
const TEMPORARY: &str = "/tmp";

/// Names that are tried for one socket.
const NAMES_MAX: usize = 64;

/// Why the socket could not be created.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another file, of type `what`, is in its place.
    #[error("bind {}: {what} is in the way; remove it and start again", .path.display())]
    InTheWay { path: PathBuf, what: &'static str },
    /// A folder for short paths cannot be trusted.
    #[error("bind a socket in {}: the folder {why}", .dir.display())]
    Untrusted { dir: PathBuf, why: &'static str },
    /// A system call failed.
    #[error("{action} {}: {source}", .path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

/// A listening socket.
#[derive(Debug)]
pub struct Bound {
    pub listener: UnixListener,
    /// The path to connect to, as [`resolve_at`] returns it.
    pub path: PathBuf,
    pub files: SocketFiles,
}

/// Binds a socket called `short_name` in the [`hidden_dir`], and a link to it at `path`, in the place of a socket or a link that
/// was left there. If the folder cannot be used, the socket is bound at `path` itself or, if that is too long, in a folder of ours
/// in `runtime_dir` or `/tmp`.
pub fn bind_at(path: &Path, runtime_dir: Option<&Path>, short_name: &str) -> Result<Bound, SocketError> {
    clear(path)?;
    bind_free(path, runtime_dir, short_name)
}

/// As [`bind_at`], and replaces nothing at `path`.
pub fn bind_free(path: &Path, runtime_dir: Option<&Path>, short_name: &str) -> Result<Bound, SocketError> {
    bind_behind(hidden_dir(), path, runtime_dir, short_name)
}

fn bind_behind(
    hidden_dir: Result<PathBuf, SocketError>,
    path: &Path,
    runtime_dir: Option<&Path>,
    short_name: &str,
) -> Result<Bound, SocketError> {
    let path = path.to_owned();
    let error = match hidden_dir {
        Ok(dir) => return bind_linked(path, &dir.join(short_name)),
        Err(error) => error,
    };
    tracing::warn!(%error, "a socket is bound where the sandbox of codex does not hide it");
    if fits(&path) {
        let listener = listen(&path)?;
        return Ok(Bound { listener, files: SocketFiles::of(&[&path]), path });
    }
    bind_linked(path, &short_path(runtime_dir, short_name)?)
}

/// As [`bind_at`], and always behind a link, in a folder that only we can enter.
pub fn bind_behind_link(path: &Path, runtime_dir: Option<&Path>, short_name: &str) -> Result<Bound, SocketError> {
    clear(path)?;
    let short = hidden_dir().map(|dir| dir.join(short_name)).or_else(|_| short_path(runtime_dir, short_name))?;
    bind_linked(path.to_owned(), &short)
}

/// Binds a socket at `short`, or beside it if a killed process has left one there, and a link to it at `path`.
fn bind_linked(path: PathBuf, short: &Path) -> Result<Bound, SocketError> {
    let (short, listener) = listen_beside(short)?;
    if let Err(source) = symlink(&short, &path) {
        SocketFiles::of(&[&short]).remove();
        return Err(SocketError::Io { action: "link", path, source });
    }
    let files = SocketFiles::of(&[&path, &short]);
    Ok(Bound { listener, files, path: if fits(&path) { path } else { short } })
}

/// The folder that the sandbox of codex hides from the commands that it confines; it is created if necessary. It is the folder
/// of codex's own sockets, whatever `TMPDIR` and `XDG_RUNTIME_DIR` are. Source: codex 0.169, in whose sandbox it has no entries and
/// mode 000, also with access to the network and if all else can be read.
pub fn hidden_dir() -> Result<PathBuf, SocketError> {
    let dir = Path::new(TEMPORARY).join(hidden_name());
    make_dir(&dir)?;
    Ok(dir)
}

fn hidden_name() -> String {
    format!("codex-daemon-{}", own_uid())
}

/// Whether a socket can have this path.
pub fn fits(path: &Path) -> bool {
    path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX
}

/// The path of a socket called `short_name` in a folder of ours in `runtime_dir` or `/tmp`; the folder is created if necessary.
pub fn short_path(runtime_dir: Option<&Path>, short_name: &str) -> Result<PathBuf, SocketError> {
    Ok(short_dir(runtime_dir, short_name)?.join(short_name))
}

/// The path to connect to for the socket that was bound at `path`: a link whose own path is too long for a socket is resolved.
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`] if nothing has that path, or the error of reading the link.
pub fn resolve_at(path: &Path) -> io::Result<PathBuf> {
    let is_link = std::fs::symlink_metadata(path)?.is_symlink();
    if is_link && !fits(path) { std::fs::read_link(path) } else { Ok(path.to_owned()) }
}

/// Listens at `short`. Its name has the number of a process, and a killed process of that number, in this container or another,
/// may have left a socket: then the name gets a number more.
fn listen_beside(short: &Path) -> Result<(PathBuf, UnixListener), SocketError> {
    let mut name = short.to_owned();
    let mut number = 0;
    loop {
        number += 1;
        match listen(&name) {
            Err(SocketError::Io { source, .. }) if source.kind() == io::ErrorKind::AddrInUse && number < NAMES_MAX => {}
            listening => return listening.map(|listener| (name, listener)),
        }
        let mut next = short.file_stem().unwrap_or_default().to_owned();
        next.push(format!("-{number}.sock"));
        name.set_file_name(next);
    }
}

fn listen(path: &Path) -> Result<UnixListener, SocketError> {
    let failed = |action| move |source| SocketError::Io { action, path: path.to_owned(), source };
    let listener = UnixListener::bind(path).map_err(failed("bind"))?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed("protect"))?;
    listener.set_nonblocking(true).map_err(failed("set up"))?;
    Ok(listener)
}

/// Removes the socket or link of a killed relay at `path`, and the socket behind the link.
fn clear(path: &Path) -> Result<(), SocketError> {
    let Some(there) = at(path)? else { return Ok(()) };
    let in_the_way = |what| SocketError::InTheWay { path: path.to_owned(), what };
    if there.uid() != own_uid() {
        return Err(in_the_way("another user's file"));
    }
    let kind = there.file_type();
    if kind.is_symlink() {
        remove_target(path);
    } else if kind.is_dir() {
        return Err(in_the_way("a folder"));
    } else if !kind.is_socket() {
        return Err(in_the_way("a file that is not a socket"));
    }
    std::fs::remove_file(path).map_err(|source| SocketError::Io { action: "remove", path: path.to_owned(), source })
}

/// Removes the socket behind a link of ours that a killed process left. Other targets stay, those of codex too: their names have
/// no extension.
pub fn remove_target(link: &Path) {
    let Ok(target) = std::fs::read_link(link) else { return };
    let is_named_so = |dir: &Path| {
        let name = dir.file_name().unwrap_or_default().as_encoded_bytes();
        name.starts_with(b"codex-shim")
            || name == hidden_name().as_bytes() && target.extension() == Some("sock".as_ref())
    };
    let is_of_ours = target.parent().is_some_and(|dir| is_named_so(dir) && check_dir(dir).is_ok());
    let is_left_over = at(&target).ok().flatten().is_some_and(|there| there.file_type().is_socket());
    if is_of_ours && is_left_over {
        SocketFiles::of(&[&target]).remove();
    }
}

/// The folder for short paths; it is created if necessary.
fn short_dir(runtime_dir: Option<&Path>, short_name: &str) -> Result<PathBuf, SocketError> {
    let room_for_name = SOCKET_PATH_BYTES_MAX - short_name.len() - 1;
    let in_runtime_dir = runtime_dir.map(|dir| dir.join("codex-shim")).filter(|dir| {
        let fits = dir.is_absolute() && dir.as_os_str().len() <= room_for_name;
        fits && make_dir(dir).is_ok()
    });
    match in_runtime_dir {
        Some(dir) => Ok(dir),
        None => {
            let dir = Path::new(TEMPORARY).join(format!("codex-shim-{}", own_uid()));
            make_dir(&dir)?;
            Ok(dir)
        }
    }
}

/// Creates a folder that only we can enter, or accepts an existing one.
fn make_dir(dir: &Path) -> Result<(), SocketError> {
    match files::create_folder(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(source) => return Err(SocketError::Io { action: "create", path: dir.to_owned(), source }),
    }
    check_dir(dir)
}

/// Checks that only we can write to `dir`.
fn check_dir(dir: &Path) -> Result<(), SocketError> {
    let untrusted = |why| SocketError::Untrusted { dir: dir.to_owned(), why };
    let Some(there) = at(dir)? else { return Err(untrusted("is not there")) };
    if !there.is_dir() {
        return Err(untrusted("is none, or a link to one"));
    }
    if there.uid() != own_uid() {
        return Err(untrusted("belongs to another user"));
    }
    if there.mode() & 0o077 != 0 {
        return Err(untrusted("is open to others; `chmod 700` it"));
    }
    Ok(())
}

/// The metadata of `path`, links not followed.
fn at(path: &Path) -> Result<Option<Metadata>, SocketError> {
    match std::fs::symlink_metadata(path) {
        Ok(there) => Ok(Some(there)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(SocketError::Io { action: "look at", path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::{chown, lchown};

    const NAME: &str = "test.sock";

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).expect("it exists").permissions().mode() & 0o777
    }

    const FILE: &str = "control.sock";

    fn no_hidden_dir() -> Result<PathBuf, SocketError> {
        Err(SocketError::Untrusted { dir: PathBuf::from("hidden"), why: "is open to others" })
    }

    #[test]
    fn sockets_are_bound_where_the_sandbox_hides_them() {
        let root = tempfile::tempdir().expect("BUG: a temporary folder");
        let short_name = format!("bind-test-{}.sock", std::process::id());
        for dir in [root.path().join("short"), root.path().join("x".repeat(100))] {
            fs::create_dir(&dir).expect("a folder");
            let path = dir.join(FILE);
            let bound = bind_at(&path, None, &short_name).expect("it can be bound");
            let target = fs::read_link(&path).expect("it is a link");
            let hidden = hidden_dir().expect("it is ours");
            assert_eq!(target.parent(), Some(&*hidden));
            assert_eq!((mode(&target), mode(&hidden)), (0o600, 0o700));
            assert_eq!(resolve_at(&path).expect("it is there"), bound.path);
            assert_eq!(bound.path, *if fits(&path) { &path } else { &target });
            // As one that was killed leaves it.
            let again = bind_at(&path, None, &format!("again-{short_name}")).expect("it can be bound again");
            let next = fs::read_link(&path).expect("it is a link");
            assert!(!target.exists() && next.exists());
            again.files.remove();
            assert_eq!(resolve_at(&path).expect_err("it is gone").kind(), io::ErrorKind::NotFound);
            assert!(!next.exists());
        }
    }

    #[test]
    fn socket_of_a_killed_process_with_our_number_is_not_in_the_way() {
        let root = tempfile::tempdir().expect("BUG: a temporary folder");
        let short_name = format!("bind-twice-{}.sock", std::process::id());
        let bound = ["a", "b", "c"].map(|home| {
            let dir = root.path().join(home);
            fs::create_dir(&dir).expect("a folder");
            bind_at(&dir.join(FILE), None, &short_name).expect("it can be bound")
        });
        let targets = bound.each_ref().map(|bound| fs::read_link(&bound.files.paths()[0]).expect("it is a link"));
        assert!(targets[0] != targets[1] && targets[1] != targets[2] && targets[0] != targets[2], "{targets:?}");
        assert!(targets.iter().all(|target| target.extension() == Some("sock".as_ref())), "{targets:?}");
        let _ = bound.map(|bound| bound.files.remove());
        assert!(targets.iter().all(|target| !target.exists()));
    }

    #[test]
    fn without_hidden_folder_short_paths_are_bound_directly() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join(FILE);
        let bound = bind_behind(no_hidden_dir(), &path, None, NAME).expect("it can be bound");
        assert_eq!(bound.path, path);
        assert_eq!(mode(&bound.path), 0o600);
        assert_eq!(resolve_at(&path).expect("it is there"), bound.path);
    }

    #[test]
    fn without_hidden_folder_long_paths_are_linked() {
        let root = tempfile::tempdir().expect("BUG: a temporary folder");
        let dir = root.path().join("x".repeat(100));
        fs::create_dir(&dir).expect("a folder");
        let runtime = root.path().join("run");
        fs::create_dir(&runtime).expect("a folder");
        let bound = bind_behind(no_hidden_dir(), &dir.join(FILE), Some(&runtime), NAME).expect("it can be bound");
        assert_eq!(bound.path, runtime.join("codex-shim").join(NAME));
        assert_eq!(mode(&runtime.join("codex-shim")), 0o700);
        let target = bound.path.clone();
        bound.files.remove();
        assert!(!target.exists() && fs::read_dir(&dir).expect("a folder").next().is_none());
    }

    #[test]
    fn foreign_files_are_left_alone() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join(FILE);
        fs::write(&path, "precious").expect("a file");
        let error = bind_at(&dir.path().join(FILE), None, NAME).expect_err("a file is in the way");
        assert!(error.to_string().contains("control.sock: a file that is not a socket is in the way"), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "precious");
    }

    #[test]
    fn stale_link_is_replaced_but_not_followed() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let precious = dir.path().join("precious");
        fs::write(&precious, "precious").expect("a file");
        symlink(&precious, dir.path().join(FILE)).expect("a link");
        let short_name = format!("stale-test-{}.sock", std::process::id());
        let bound = bind_at(&dir.path().join(FILE), None, &short_name).expect("it can be bound");
        assert_eq!(fs::read_to_string(&precious).expect("it is there"), "precious");
        assert!(fs::metadata(&bound.path).expect("it is there").file_type().is_socket());
        bound.files.remove();
    }

    /// The uid of another user, if the test may give files away; otherwise it prints what was skipped.
    fn stranger(test: &str) -> Option<u32> {
        if own_uid() == 0 {
            return Some(65_534);
        }
        let _ = writeln!(io::stderr(), "SKIPPED: {test}: only root can give a file to somebody else");
        None
    }

    #[test]
    fn folders_of_others_are_not_trusted() {
        let Some(stranger) = stranger("folders_of_others_are_not_trusted") else { return };
        let root = tempfile::tempdir().expect("BUG: a temporary folder");
        let theirs = root.path().join("theirs");
        files::create_folder(&theirs).expect("a folder");
        chown(&theirs, Some(stranger), None).expect("root may");
        let error = make_dir(&theirs).expect_err("it is not trusted");
        assert!(error.to_string().ends_with("belongs to another user"), "{error}");
        // With an untrusted runtime folder, no socket is created or removed there.
        let dir = root.path().join("x".repeat(100));
        fs::create_dir(&dir).expect("a folder");
        let runtime = root.path().join("run");
        fs::create_dir(&runtime).expect("a folder");
        fs::rename(&theirs, runtime.join("codex-shim")).expect("it can be moved");
        let kept = listen(&runtime.join("codex-shim/kept.sock")).expect("root may");
        symlink(runtime.join("codex-shim/kept.sock"), dir.join(FILE)).expect("a link");
        let path = dir.join(FILE);
        clear(&path).expect("the link is ours");
        let bound = bind_behind(no_hidden_dir(), &path, Some(&runtime), NAME).expect("it can be bound elsewhere");
        assert!(bound.path.starts_with(TEMPORARY) && !bound.path.starts_with(&runtime), "{}", bound.path.display());
        assert!(runtime.join("codex-shim/kept.sock").exists());
        bound.files.remove();
        drop(kept);
    }

    #[test]
    fn sockets_of_other_users_are_left_alone() {
        let Some(stranger) = stranger("what_another_user_has_put_in_the_place_of_the_socket_is_left_alone") else {
            return;
        };
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join(FILE);
        let theirs = UnixListener::bind(&path).expect("it can be bound");
        lchown(&path, Some(stranger), None).expect("root may");
        let error = bind_at(&dir.path().join(FILE), None, NAME).expect_err("a socket is in the way");
        assert!(error.to_string().contains("another user's file is in the way"), "{error}");
        drop(theirs);
        fs::remove_file(&path).expect("it is there");
        symlink("elsewhere", &path).expect("a link");
        lchown(&path, Some(stranger), None).expect("root may");
        let error = bind_at(&dir.path().join(FILE), None, NAME).expect_err("a link is in the way");
        assert!(error.to_string().contains("another user's file is in the way"), "{error}");
        assert_eq!(fs::read_link(&path).expect("it is there"), Path::new("elsewhere"));
    }

    #[test]
    fn folders_that_others_can_enter_are_not_trusted() {
        let root = tempfile::tempdir().expect("BUG: a temporary folder");
        let open = root.path().join("open");
        fs::create_dir(&open).expect("a folder");
        fs::set_permissions(&open, Permissions::from_mode(0o755)).expect("it is ours");
        let linked = root.path().join("linked");
        symlink(root.path(), &linked).expect("a link");
        for (dir, why) in [(open, "open to others"), (linked, "a link to one")] {
            let error = make_dir(&dir).expect_err("it is not trusted");
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
