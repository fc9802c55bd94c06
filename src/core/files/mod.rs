//! Opens and creates the files below `CODEX_SHIM_HOME`.
//!
//! Every file of ours is opened relative to the descriptor of its folder, after the folder has been checked: it belongs to us
//! or to root, and neither its group nor others can write to it. So no other user can replace the file in between.
//!
//! A link is never followed, and only regular files are opened: a FIFO, a device or a socket in the place of a file is an error
//! and never a wait. The home itself may be reached through a link that is ours or root's. Everything that is created gets its
//! mode after creation, so a umask that takes away the owner's rights cannot make it unusable.
//!
//! It never changes the mode of a folder or a file that was there before, except as [`repair_beside_database`] does.

mod reach;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fmt, io};

use crate::os::fs::{FILE_MODE, Facts, FileType, Links, Mode, Writes};
use crate::os::identity::own_uid;
use crate::os::{self, Errno};

pub use reach::{Executable, InReach, Reach, Whose, is_missing};

/// Bits that let the group or others write.
const WRITABLE_BY_OTHERS: Mode = Mode::WGRP.union(Mode::WOTH);

/// How often a file is looked for and created in turn while another process creates and removes it.
const CREATE_TRIES_MAX: u32 = 100;

/// Suffixes of a database and of SQLite's files beside it; `-journal` exists only before a database is in WAL mode.
const DATABASE_SUFFIXES: [&str; 4] = ["", "-wal", "-shm", "-journal"];

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To read a file that exists.
    Read,
    /// To read and write a file that exists.
    Write,
    /// To read and write; the file is created if it does not exist.
    Create,
    /// To read, and to write at the end; the file is created if it does not exist.
    Append,
    /// To read, and to write at the end of a new file. A file that has this name is removed first.
    Replace,
}

impl Access {
    fn writes(self) -> Writes {
        match self {
            Access::Read => Writes::Nothing,
            Access::Write | Access::Create => Writes::Anywhere,
            Access::Append | Access::Replace => Writes::AtEnd,
        }
    }

    fn creates(self) -> bool {
        match self {
            Access::Read | Access::Write => false,
            Access::Create | Access::Append | Access::Replace => true,
        }
    }
}

/// A folder that has been checked.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens the home. A link to it is followed if the link is ours or root's.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if it does not exist; a [`Refused`] if it cannot be trusted.
    pub fn home(home: &Path) -> io::Result<Folder> {
        if let Ok(link) = os::fs::facts_at(home, Links::Refused)
            && !is_trusted_owner(&link)
        {
            return Err(Refused::error(home, Why::Foreign(link.uid)));
        }
        Folder::opened(home, Links::Followed)
    }

    /// Opens a folder below the home.
    ///
    /// # Errors
    ///
    /// As [`Folder::home`]; a link is refused.
    pub fn at(path: &Path) -> io::Result<Folder> {
        Folder::opened(path, Links::Refused)
    }

    /// Opens the home, or creates it with the folders above it.
    ///
    /// # Errors
    ///
    /// As [`Folder::home`].
    pub fn make_home(home: &Path) -> io::Result<Folder> {
        match Folder::home(home) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_missing(home)?;
                Folder::home(home)
            }
            opened => opened,
        }
    }

    /// Opens a folder below the home, or creates it. Its parent must exist.
    ///
    /// # Errors
    ///
    /// As [`Folder::at`].
    pub fn make(path: &Path) -> io::Result<Folder> {
        match os::fs::create_folder(path) {
            Ok(()) | Err(Errno::EXIST) => Folder::at(path),
            Err(error) => Err(error.into()),
        }
    }

    fn opened(path: &Path, links: Links) -> io::Result<Folder> {
        let fd = os::fs::open_folder(path, links).map_err(|error| not_folder(path, error))?;
        check_writers(path, &os::fs::facts(&fd)?, WRITABLE_BY_OTHERS)?;
        Ok(Folder { fd, path: path.to_owned() })
    }

    /// Locks a file in this folder until it is closed; `None` if another process has locked it.
    ///
    /// # Errors
    ///
    /// As [`Folder::open`], or that of locking it.
    pub fn lock(&self, name: impl AsRef<OsStr>) -> io::Result<Option<File>> {
        os::fs::locked(self.open(name, Access::Create)?)
    }

    /// Opens a file in this folder.
    ///
    /// # Errors
    ///
    /// That of opening or creating it; a [`Refused`] if it is not a regular file, or belongs to another user.
    pub fn open(&self, name: impl AsRef<OsStr>, access: Access) -> io::Result<File> {
        let name = name.as_ref();
        if access == Access::Replace {
            self.remove(name)?;
        }
        for _ in 0..CREATE_TRIES_MAX {
            let opened = self.open_existing(name, access);
            match opened {
                Err(error) if error.kind() == io::ErrorKind::NotFound && access.creates() => {}
                opened => return opened,
            }
            match self.create(name, access) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => return created,
            }
        }
        Err(io::Error::other("another process keeps creating and removing it"))
    }

    /// Reads a whole file in this folder.
    ///
    /// # Errors
    ///
    /// As [`Folder::open`].
    pub fn read(&self, name: impl AsRef<OsStr>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(name, Access::Read)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Gives a file or folder another name in this folder, which nothing may have.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] if something has that name.
    pub fn rename_to_new(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        match os::fs::rename_to_new(&self.path.join(from), &self.path.join(to)) {
            // A file system that cannot refuse an existing name.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => match os::fs::facts_in(&self.fd, to) {
                Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
                Err(Errno::NOENT) => Ok(os::fs::rename_in(&self.fd, from, to)?),
                Err(error) => Err(error.into()),
            },
            renamed => Ok(renamed?),
        }
    }

    /// Puts a file with these bytes in this folder, in the place of one that was there. A crash leaves the old or the new one.
    ///
    /// # Errors
    ///
    /// As [`Folder::open`]; the file that was there is unchanged then.
    pub fn put(&self, name: impl AsRef<OsStr>, bytes: &[u8]) -> io::Result<()> {
        let name = name.as_ref();
        let mut beside = name.to_owned();
        beside.push(format!(".{}.new", std::process::id()));
        let mut file = self.open(&beside, Access::Replace)?;
        let written = file.write_all(bytes).and_then(|()| os::fs::sync(&file));
        let put = written.and_then(|()| Ok(os::fs::rename_in(&self.fd, &beside, name)?));
        if put.is_err() {
            let _ = self.remove(&beside);
        }
        put
    }

    /// Has the names of the files in this folder reach the disk.
    ///
    /// # Errors
    ///
    /// That of the system.
    pub fn sync(&self) -> io::Result<()> {
        os::fs::sync_folder(&self.fd)
    }

    fn remove(&self, name: &OsStr) -> io::Result<()> {
        match os::fs::remove_in(&self.fd, name) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn open_existing(&self, name: &OsStr, access: Access) -> io::Result<File> {
        // Looked at first: to open a device can do something, and to open a FIFO lets its other end go on.
        self.check_file(name, &os::fs::facts_in(&self.fd, name)?)?;
        let fd = os::fs::open_in(&self.fd, name, access.writes())?;
        self.check_file(name, &os::fs::facts(&fd)?)?;
        os::fs::waiting(fd)
    }

    /// Creates a file. It gets its name once it has its mode: under a umask that takes away the owner's rights, another thread
    /// could not open it in between.
    fn create(&self, name: &OsStr, access: Access) -> io::Result<File> {
        if access == Access::Replace {
            return Ok(os::fs::create_in(&self.fd, name, access.writes())?.into());
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let (file, unnamed) = loop {
            let unnamed = unnamed(name, NUMBER.fetch_add(1, Ordering::Relaxed));
            match os::fs::create_in(&self.fd, &unnamed, access.writes()) {
                // Left by a process that had our number.
                Err(Errno::EXIST) => {}
                made => break (made?, unnamed),
            }
        };
        let linked = os::fs::link_in(&self.fd, &unnamed, name);
        self.remove(&unnamed)?;
        match linked {
            Ok(()) => Ok(file.into()),
            // A file system without hard links.
            Err(Errno::PERM | Errno::NOTSUP | Errno::NOSYS) => {
                Ok(os::fs::create_in(&self.fd, name, access.writes())?.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn check_file(&self, name: &OsStr, file: &Facts) -> io::Result<()> {
        let refused = |why| Err(Refused::error(&self.path.join(name), why));
        if file.kind != FileType::RegularFile {
            return refused(Why::NotFile(kind_name(file.kind)));
        }
        if is_trusted_owner(file) { Ok(()) } else { refused(Why::Foreign(file.uid)) }
    }
}

/// The temporary name of a file while it is created in its folder.
fn unnamed(name: &OsStr, number: u32) -> OsString {
    let mut unnamed = OsString::from(".");
    unnamed.push(name);
    unnamed.push(format!(".{}-{number}.new", std::process::id()));
    unnamed
}

/// The name of the file that was being created or replaced under this name when a process was killed.
#[must_use]
pub fn named_later(unnamed: &str) -> Option<&str> {
    let (name, by) = unnamed.strip_suffix(".new")?.rsplit_once('.')?;
    let is_number = by.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    is_number.then(|| name.strip_prefix('.').unwrap_or(name))
}

/// Opens a file below the home, in its folder.
///
/// # Errors
///
/// As [`Folder::at`] and [`Folder::open`].
pub fn open(path: &Path, access: Access) -> io::Result<File> {
    let (folder, name) = parts(path)?;
    Folder::at(folder)?.open(name, access)
}

/// Reads a whole file below the home.
///
/// # Errors
///
/// As [`open`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let (folder, name) = parts(path)?;
    Folder::at(folder)?.read(name)
}

/// The path at which SQLite opens the database at `path`. All links above it are resolved, so SQLite need not follow a link.
///
/// # Errors
///
/// As [`Folder::at`]; a [`Refused`] if the database, or a file that SQLite keeps beside it, exists and is not a regular file.
pub fn database(path: &Path) -> io::Result<PathBuf> {
    let (parent, name) = parts(path)?;
    let folder = Folder::at(parent)?;
    for suffix in DATABASE_SUFFIXES {
        let mut name = name.to_owned();
        name.push(suffix);
        match os::fs::facts_in(&folder.fd, &name) {
            Ok(there) => folder.check_file(&name, &there)?,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(parent.canonicalize()?.join(name))
}

/// Gives the files that SQLite keeps beside the database at `path` the rights of their owner back, if they lack them. SQLite sets
/// their mode after it has created them, so a process that ends in between leaves them with the mode of its umask.
///
/// # Errors
///
/// As [`Folder::at`], or that of changing the mode.
pub fn repair_beside_database(path: &Path) -> io::Result<()> {
    let (parent, name) = parts(path)?;
    let folder = Folder::at(parent)?;
    for suffix in DATABASE_SUFFIXES.iter().filter(|suffix| !suffix.is_empty()) {
        let mut name = name.to_owned();
        name.push(suffix);
        let Ok(there) = os::fs::facts_in(&folder.fd, &name) else { continue };
        let is_ours = there.kind == FileType::RegularFile && there.uid == own_uid();
        if is_ours && !there.mode.contains(FILE_MODE) {
            match os::fs::protect_in(&folder.fd, &name) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Opens a regular file that the user has named, and that links may lead to. Anything else is refused and never waited for.
///
/// # Errors
///
/// That of opening it, or a [`Refused`].
pub fn open_named(path: &Path) -> io::Result<File> {
    let check = |Facts { kind, .. }| {
        if kind == FileType::RegularFile { Ok(()) } else { Err(Refused::error(path, Why::NotFile(kind_name(kind)))) }
    };
    check(os::fs::facts_at(path, Links::Followed)?)?;
    let fd = os::fs::open_followed(path)?;
    check(os::fs::facts(&fd)?)?;
    os::fs::waiting(fd)
}

/// Reads a text as [`open_named`] opens it.
///
/// # Errors
///
/// As [`open_named`]; [`io::ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_named(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open_named(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Reads a text that is trusted like a setting: as [`read_named`], from a file that no other user can have written. A group that
/// has the number of the user is taken for the user's own.
///
/// # Errors
///
/// As [`read_named`]; a [`Refused`] if another user owns the file or can write to it.
pub fn read_trusted(path: &Path) -> io::Result<String> {
    let mut file = open_named(path)?;
    let facts = os::fs::facts(&file)?;
    check_writers(path, &facts, if facts.gid == own_uid() { Mode::WOTH } else { WRITABLE_BY_OTHERS })?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Reads a text that is a secret: as [`read_named`], from a file of ours that no other user can read or write.
///
/// # Errors
///
/// As [`read_named`]; a [`Refused`] if another user owns the file, or can read or write it.
pub fn read_secret(path: &Path) -> io::Result<String> {
    let mut file = open_named(path)?;
    let facts = os::fs::facts(&file)?;
    check_writers(path, &facts, Mode::empty())?;
    if facts.mode.intersects(Mode::RWXG | Mode::RWXO) {
        return Err(Refused::error(path, Why::Readable(facts.mode)));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Creates a folder that only we can enter, anywhere, whatever the umask is.
///
/// # Errors
///
/// [`io::ErrorKind::AlreadyExists`] if something has its name.
pub fn create_folder(path: &Path) -> io::Result<()> {
    Ok(os::fs::create_folder(path)?)
}

/// Creates a file that only we can read and write, anywhere, whatever the umask is.
///
/// # Errors
///
/// [`io::ErrorKind::AlreadyExists`] if something has its name.
pub fn create_file(path: &Path) -> io::Result<File> {
    Ok(os::fs::create(path, Writes::Anywhere)?.into())
}

/// Checks that a file or folder is ours or root's, and that it has none of these rights of others to write.
fn check_writers(path: &Path, facts: &Facts, of_others: Mode) -> io::Result<()> {
    if !is_trusted_owner(facts) {
        return Err(Refused::error(path, Why::Foreign(facts.uid)));
    }
    if facts.mode.intersects(of_others) {
        return Err(Refused::error(path, Why::Writable(facts.mode)));
    }
    Ok(())
}

fn parts(path: &Path) -> io::Result<(&Path, &OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Ok((folder.unwrap_or(Path::new(".")), name))
}

/// Creates a folder, and those above it that are missing.
fn make_missing(path: &Path) -> io::Result<()> {
    match os::fs::create_folder(path) {
        Err(Errno::NOENT) => {
            make_missing(path.parent().ok_or(io::ErrorKind::NotFound)?)?;
            Ok(os::fs::create_folder(path).or_else(is_there)?)
        }
        made => Ok(made.or_else(is_there)?),
    }
}

fn is_there(error: Errno) -> Result<(), Errno> {
    if error == Errno::EXIST { Ok(()) } else { Err(error) }
}

/// The error of a folder that could not be opened, which may be something else.
fn not_folder(path: &Path, error: Errno) -> io::Error {
    match (error, os::fs::facts_at(path, Links::Refused)) {
        (Errno::NOTDIR | Errno::LOOP, Ok(there)) => Refused::error(path, Why::NotFolder(kind_name(there.kind))),
        (error, _) => error.into(),
    }
}

fn is_trusted_owner(facts: &Facts) -> bool {
    facts.uid == 0 || facts.uid == own_uid()
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a folder",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of an unknown kind",
    }
}

// Why a file or folder is not used although it is there. It knows what to do about it, and opens nothing.

/// Why a file or folder is not used although it is there. Carried as the source of an [`io::Error`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    path: PathBuf,
    why: Why,
}

/// The reason of a [`Refused`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Why {
    /// It belongs to the user of this uid.
    Foreign(u32),
    /// Its mode lets the group or others write.
    Writable(Mode),
    /// Its mode lets the group or others read a secret.
    Readable(Mode),
    /// Not a folder but this kind of file.
    NotFolder(&'static str),
    /// Not a regular file but this kind.
    NotFile(&'static str),
}

impl Refused {
    /// The refusal behind an error, if it is one.
    #[must_use]
    pub fn behind(error: &io::Error) -> Option<&Refused> {
        error.get_ref()?.downcast_ref()
    }

    /// The problem, for a message.
    #[must_use]
    pub fn problem(&self) -> String {
        let path = self.path.display();
        match &self.why {
            Why::Foreign(uid) => format!("{path} belongs to another user (uid {uid})"),
            Why::Writable(mode) => format!("group or others can write to {path} (mode {:04o})", mode.bits()),
            Why::Readable(mode) => format!("group or others can read {path} (mode {:04o})", mode.bits()),
            Why::NotFolder(kind) => format!("{path} is {kind}, not a folder"),
            Why::NotFile(kind) => format!("{path} is {kind}, not a regular file"),
        }
    }

    /// The remedy, for a message.
    #[must_use]
    pub fn remedy(&self) -> String {
        let path = self.path.display();
        match &self.why {
            Why::Foreign(_) => "make it yours with `chown`, or set CODEX_SHIM_HOME to a folder of your own".to_owned(),
            Why::Writable(_) => format!("run `chmod go-w {path}`, or set CODEX_SHIM_HOME to a folder of your own"),
            Why::Readable(_) => format!("run `chmod 600 {path}`"),
            Why::NotFolder(_) | Why::NotFile(_) => "move it away".to_owned(),
        }
    }

    /// The refusal of this file or folder, as an error.
    pub(super) fn error(path: &Path, why: Why) -> io::Error {
        let kind = match why {
            Why::Foreign(_) | Why::Writable(_) | Why::Readable(_) => io::ErrorKind::PermissionDenied,
            Why::NotFolder(_) | Why::NotFile(_) => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, Refused { path: path.to_owned(), why })
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem(), self.remedy())
    }
}

impl std::error::Error for Refused {}
