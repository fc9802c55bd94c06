//! Files and folders by their descriptors, without links, with modes that no umask changes.
//!
//! Whoever opens a file here names its folder by a descriptor, so that nobody can put another folder in its place meanwhile. macOS
//! folds case and normalises names, so two names may be one file there.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// `check_access` fails if the user may not use a file or a folder so.
pub use rustix::fs::{Access, FileType, Mode, access as check_access};
use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags, Stat};

use super::identity::own_uid;
#[cfg(target_os = "linux")]
use super::portable::is_portable;
use super::{Errno, Result, descriptors};

/// Mode of a folder of ours.
const FOLDER_MODE: Mode = Mode::RWXU;

/// Mode of a file of ours.
pub const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A descriptor that only names a folder needs no right to read it on Linux.
fn names_a_folder() -> OFlags {
    #[cfg(target_os = "linux")]
    if !is_portable() {
        return OFlags::PATH;
    }
    OFlags::RDONLY
}

/// Most bytes of the names of a file's attributes that are read.
const ATTRIBUTES_BYTES_MAX: usize = 64 << 10;

/// The facts about a file.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    pub kind: FileType,
    pub mode: Mode,
    pub uid: u32,
    pub gid: u32,
}

impl From<Stat> for Facts {
    fn from(stat: Stat) -> Facts {
        let (kind, mode) = (FileType::from_raw_mode(stat.st_mode), Mode::from_raw_mode(stat.st_mode));
        Facts { kind, mode, uid: stat.st_uid, gid: stat.st_gid }
    }
}

/// Whether a link at the end of a path is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    Followed,
    Refused,
}

/// What may be done with an open file, besides reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    Nothing,
    Anywhere,
    AtEnd,
}

impl Writes {
    fn flags(self) -> OFlags {
        match self {
            Writes::Nothing => OFlags::RDONLY,
            Writes::Anywhere => OFlags::RDWR,
            Writes::AtEnd => OFlags::RDWR | OFlags::APPEND,
        }
    }
}

/// The facts about an open file.
pub fn facts(fd: impl AsFd) -> Result<Facts> {
    rustix::fs::fstat(fd).map(Facts::from)
}

/// The facts about what is at a path.
pub fn facts_at(path: &Path, links: Links) -> Result<Facts> {
    match links {
        Links::Followed => rustix::fs::stat(path),
        Links::Refused => rustix::fs::lstat(path),
    }
    .map(Facts::from)
}

/// The facts about what is in a folder, which may be a link.
pub fn facts_in(folder: impl AsFd, name: &OsStr) -> Result<Facts> {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map(Facts::from)
}

/// Opens a folder to name the files in it.
pub fn open_folder(path: &Path, links: Links) -> Result<OwnedFd> {
    let follow = if links == Links::Followed { OFlags::empty() } else { OFlags::NOFOLLOW };
    rustix::fs::open(path, names_a_folder() | OFlags::DIRECTORY | OFlags::CLOEXEC | follow, Mode::empty())
}

/// Opens what is in a folder, and neither follows a link nor waits for the other end of a FIFO. Reads and writes do not wait either.
pub fn open_in(folder: impl AsFd, name: &OsStr, writes: Writes) -> Result<OwnedFd> {
    let flags = writes.flags() | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty())
}

/// Opens what is at a path to read it, as [`open_in`] does; links are followed.
pub fn open_followed(path: &Path) -> Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
}

/// Opens a file at a path, to read it and to write to it, as [`open_in`] does.
pub fn open_unlinked(path: &Path) -> io::Result<File> {
    Ok(open_in(CWD, path.as_os_str(), Writes::Anywhere)?.into())
}

/// Creates a file that only we can read and write, whatever the umask is. Fails if something has its name.
pub fn create_in(folder: impl AsFd, name: &OsStr, writes: Writes) -> Result<OwnedFd> {
    let fd =
        rustix::fs::openat(folder, name, writes.flags() | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC, FILE_MODE)?;
    rustix::fs::fchmod(&fd, FILE_MODE)?;
    Ok(fd)
}

/// As [`create_in`], at a path.
pub fn create(path: &Path, writes: Writes) -> Result<OwnedFd> {
    create_in(CWD, path.as_os_str(), writes)
}

/// Creates a folder that only we can enter, whatever the umask is. Fails if something has its name.
pub fn create_folder(path: &Path) -> Result<()> {
    rustix::fs::mkdir(path, FOLDER_MODE)?;
    let made = facts_at(path, Links::Refused)?;
    let is_made = made.kind == FileType::Directory && made.uid == own_uid();
    if is_made && made.mode != FOLDER_MODE {
        rustix::fs::chmodat(CWD, path, FOLDER_MODE, AtFlags::empty())?;
    }
    Ok(())
}

/// Makes a file in a folder one that only we can read and write.
pub fn protect_in(folder: impl AsFd, name: &OsStr) -> Result<()> {
    rustix::fs::chmodat(folder, name, FILE_MODE, AtFlags::empty())
}

/// Gives a file another name in its folder, in the place of one that had it.
pub fn rename_in(folder: impl AsFd, from: &OsStr, to: &OsStr) -> Result<()> {
    rustix::fs::renameat(&folder, from, &folder, to)
}

/// Gives a file a second name in its folder. Fails if something has that name. Not every file system can do it.
pub fn link_in(folder: impl AsFd, from: &OsStr, to: &OsStr) -> Result<()> {
    rustix::fs::linkat(&folder, from, &folder, to, AtFlags::empty())
}

/// Removes a file from a folder.
pub fn remove_in(folder: impl AsFd, name: &OsStr) -> Result<()> {
    rustix::fs::unlinkat(folder, name, AtFlags::empty())
}

/// Gives a file another name, which nothing may have. Not every file system can do it.
pub fn rename_to_new(from: &Path, to: &Path) -> Result<()> {
    rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)
}

/// Locks a folder until the returned file is closed; `None` if another process has locked it.
pub fn lock_folder(folder: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    locked(File::from(rustix::fs::open(folder, flags, Mode::empty())?))
}

/// Locks a file until it is closed; `None` if another process has locked it.
pub fn locked(file: File) -> io::Result<Option<File>> {
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Whether a file has attributes that a new one in its folder would not get by itself; on macOS also flags or an access control list.
/// macOS gives some attributes to files of its own accord, and they count.
pub fn has_attributes(path: &Path) -> bool {
    #[cfg(target_vendor = "apple")]
    if apple::has_flags(path) || apple::has_access_list(path) {
        return true;
    }
    let mut names = vec![0; ATTRIBUTES_BYTES_MAX];
    match rustix::fs::listxattr(path, &mut names[..]) {
        // A new file gets its folder's label, as this one did.
        Ok(bytes) => {
            names[..bytes].split(|byte| *byte == 0).any(|name| !name.is_empty() && name != b"security.selinux")
        }
        Err(Errno::NOTSUP) => false,
        Err(_) => true,
    }
}

/// What macOS keeps of a file beside its attributes.
#[cfg(target_vendor = "apple")]
mod apple {
    use std::ffi::CString;
    use std::io;
    use std::path::Path;

    use super::Errno;

    /// Source: `sys/acl.h` of macOS.
    const ACL_TYPE_EXTENDED: libc::c_int = 0x100;

    /// Whether it has flags of chflags(2).
    pub(super) fn has_flags(path: &Path) -> bool {
        rustix::fs::stat(path).map_or(true, |stat| stat.st_flags != 0)
    }

    /// Whether it has an access control list, which is hidden from its attributes.
    #[expect(unsafe_code, reason = "no safe interface reads an access control list")]
    pub(super) fn has_access_list(path: &Path) -> bool {
        unsafe extern "C" {
            fn acl_get_file(path: *const libc::c_char, kind: libc::c_int) -> *mut libc::c_void;
            fn acl_free(list: *mut libc::c_void) -> libc::c_int;
        }
        let Ok(path) = CString::new(path.as_os_str().as_encoded_bytes()) else { return true };
        // SAFETY: the path ends with a 0 byte and outlives the call.
        let list = unsafe { acl_get_file(path.as_ptr(), ACL_TYPE_EXTENDED) };
        if list.is_null() {
            let error = Errno::from_io_error(&io::Error::last_os_error());
            return !matches!(error, Some(Errno::NOENT | Errno::NOTSUP | Errno::OPNOTSUPP));
        }
        // SAFETY: the list is ours, and nothing uses it.
        let _ = unsafe { acl_free(list) };
        true
    }
}

/// The free space for us where a path is, in bytes.
pub fn free_bytes(path: &Path) -> Result<u64> {
    // `statvfs` of macOS counts blocks in 32 bits.
    #[cfg(target_vendor = "apple")]
    let (blocks, block_bytes) = rustix::fs::statfs(path).map(|disk| (disk.f_bavail, u64::from(disk.f_bsize)))?;
    #[cfg(not(target_vendor = "apple"))]
    let (blocks, block_bytes) = rustix::fs::statvfs(path).map(|disk| (disk.f_bavail, disk.f_frsize))?;
    Ok(blocks.saturating_mul(block_bytes))
}

/// Has all of a file reach the disk. A volume that cannot empty the cache of its disk, such as one of SMB on macOS, does what it can.
pub fn sync(file: &File) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "the errors of macOS are handled")]
    synced(file, file.sync_all())
}

/// As [`sync`]; Linux leaves out facts that no reader needs.
pub fn sync_data(file: &File) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "the errors of macOS are handled")]
    synced(file, file.sync_data())
}

/// Has the names in a folder reach the disk. A file system that cannot do it for a folder does what it can.
pub fn sync_folder(folder: impl AsFd) -> io::Result<()> {
    // The descriptor of a folder may only name it.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(folder, ".", flags, Mode::empty())?);
    match sync(&file) {
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::INVAL | Errno::NOTSUP)) => Ok(()),
        synced => synced,
    }
}

/// Rust asks for `F_FULLFSYNC` on macOS, and for nothing else if the volume does not know that.
#[cfg(target_vendor = "apple")]
fn synced(file: &File, result: io::Result<()>) -> io::Result<()> {
    match result.as_ref().map_err(Errno::from_io_error) {
        Err(Some(Errno::NOTSUP | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOTTY)) => Ok(rustix::fs::fsync(file)?),
        Ok(()) | Err(_) => result,
    }
}

#[cfg(not(target_vendor = "apple"))]
fn synced(_: &File, result: io::Result<()>) -> io::Result<()> {
    result
}

/// Makes reads and writes of a file that [`open_in`] or [`open_followed`] has opened wait again.
pub fn waiting(fd: OwnedFd) -> io::Result<File> {
    descriptors::block(&fd)?;
    Ok(fd.into())
}
