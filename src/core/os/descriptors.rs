//! Descriptors: reads and writes without a buffer, whether they block, and which program inherits them.
//!
//! Reads go into the free room of a buffer, which is not written to before. A pipe is that of [`std::io::pipe`], which no other
//! program inherits; on macOS one that another thread starts at that moment does, and holds it until it exits.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::FdFlags;
pub use rustix::io::{retry_on_intr, write};
pub use rustix::stdio::{stderr, stdin, stdout};

use super::polling::{PollFlags, poll_one};
use super::portable::is_portable;
use super::{Errno, Result};

/// The first descriptor that is not a standard stream.
pub const FIRST_OTHER: RawFd = 3;

/// Reads what is there into `bytes`.
#[inline]
pub fn read(fd: impl AsFd, bytes: &mut [u8]) -> Result<usize> {
    rustix::io::read(fd, bytes)
}

/// Reads what is there into the free room of `buffer`.
#[inline]
pub fn append(fd: impl AsFd, buffer: &mut Vec<u8>) -> Result<usize> {
    rustix::io::read(fd, spare_capacity(buffer))
}

/// As [`append`], from a position of a file.
#[inline]
pub fn append_from(fd: impl AsFd, buffer: &mut Vec<u8>, position: u64) -> Result<usize> {
    rustix::io::pread(fd, spare_capacity(buffer), position)
}

/// How many bytes a pipe holds; `None` if it is no pipe, and on systems that do not say.
pub fn pipe_bytes(fd: impl AsFd) -> Option<usize> {
    #[cfg(target_os = "linux")]
    if !is_portable() {
        return rustix::pipe::fcntl_getpipe_size(fd).ok();
    }
    drop(fd);
    None
}

/// Makes a pipe hold this many bytes, also for all that share it. Returns whether it does: a system allows a user only so much in all pipes,
/// and what is in the pipe has to fit.
pub fn resize_pipe(fd: impl AsFd, bytes: usize) -> bool {
    #[cfg(target_os = "linux")]
    if !is_portable() {
        return rustix::pipe::fcntl_setpipe_size(fd, bytes).is_ok();
    }
    drop((fd, bytes));
    false
}

/// A pipe, a socket or a terminal to which [`has_room_within`] applies takes this many bytes at once, also if it blocks. Source:
/// `PIPE_BUF` of Linux and macOS.
pub fn taken_at_once_bytes() -> usize {
    if is_portable() { 512 } else { 4_096 }
}

/// Waits until [`taken_at_once_bytes`] can be written, `wait_max` at most. Never true on macOS for `/dev/tty`, which cannot be waited for, and for
/// a pipe with a name, which counts as ready with room for one byte. Source: `filt_vnode_common` of xnu.
pub fn has_room_within(fd: &impl AsFd, wait_max: Duration) -> bool {
    if is_portable() && is_named_pipe(fd) {
        return false;
    }
    let found = poll_one(fd, PollFlags::OUT, Some(wait_max));
    found.is_ok_and(|found| !found.is_empty() && !found.contains(PollFlags::NVAL))
}

/// Writes as much of several slices as one call takes.
#[inline]
pub fn write_vectored(fd: impl AsFd, slices: &[IoSlice<'_>]) -> Result<usize> {
    rustix::io::writev(fd, slices)
}

/// Reads some bytes, and waits for them also if another process that shares the open file has made it non-blocking.
pub fn read_waiting(fd: impl AsFd, bytes: &mut [u8]) -> Result<usize> {
    waiting(&fd, PollFlags::IN, || read(&fd, bytes))
}

/// Writes all bytes, and waits as [`read_waiting`] does.
pub fn write_all(fd: impl AsFd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        let written = waiting(&fd, PollFlags::OUT, || write(&fd, bytes))?;
        bytes = &bytes[written..];
    }
    Ok(())
}

fn waiting(fd: &impl AsFd, flags: PollFlags, mut attempt: impl FnMut() -> Result<usize>) -> Result<usize> {
    loop {
        match attempt() {
            Err(Errno::INTR) => {}
            // If this fails, the next attempt does too.
            Err(Errno::AGAIN) => drop(poll_one(fd, flags, None)),
            done => return done,
        }
    }
}

/// Makes reads and writes fail with [`Errno::AGAIN`] instead of waiting, for all that share the open file.
pub fn never_block(fd: impl AsFd) -> Result<()> {
    rustix::io::ioctl_fionbio(fd, true)
}

/// Makes reads and writes wait again.
pub fn block(fd: impl AsFd) -> Result<()> {
    rustix::io::ioctl_fionbio(fd, false)
}

/// No program that is started later inherits it.
pub(super) fn close_at_exec(fd: impl AsFd) -> Result<()> {
    rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC)
}

/// Every program that is started later inherits it.
pub fn share(fd: impl AsFd) -> Result<()> {
    rustix::io::fcntl_setfd(fd, FdFlags::empty())
}

/// Makes sure that no program that we start inherits a descriptor that came by its number, until [`inherited`] takes it.
#[expect(unsafe_code, reason = "a descriptor that is inherited comes as a number")]
pub fn claim(number: RawFd) -> Result<()> {
    if number < FIRST_OTHER {
        return Err(Errno::BADF);
    }
    // SAFETY: it is borrowed for one call, which fails if it is not open.
    close_at_exec(unsafe { BorrowedFd::borrow_raw(number) })
}

/// The descriptor that our parent has opened for us and named by its number. No program that we start inherits it. `None` if it is
/// a standard stream or not open.
#[expect(unsafe_code, reason = "a descriptor that is inherited comes as a number")]
pub fn inherited(number: RawFd) -> Option<OwnedFd> {
    if number < FIRST_OTHER {
        return None;
    }
    // SAFETY: our parent opened this descriptor for us and named it on our command line; nothing else in this process, which has
    // just started, uses it. `fcntl` detects a closed one before it is used.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    match rustix::io::fcntl_getfd(&fd).and_then(|_| close_at_exec(&fd)) {
        Ok(()) => Some(fd),
        Err(_) => {
            // The descriptor is not open, so it must not be closed.
            std::mem::forget(fd);
            None
        }
    }
}

/// Whether two descriptors lead to the same file, pipe or device. Sockets of the network have no number on macOS, and count as different.
pub fn are_same_file(a: impl AsFd, b: impl AsFd) -> bool {
    match (rustix::fs::fstat(a), rustix::fs::fstat(b)) {
        (Ok(a), Ok(b)) => a.st_ino != 0 && (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    }
}

/// Whether a write to a socket that others share can be one that does not wait. macOS ignores the flag that asks for that. Source:
/// `sosendcheck` of xnu, which waits unless the socket itself never blocks.
fn writes_without_waiting() -> bool {
    !is_portable()
}

/// Whether a descriptor leads to a pipe that has a name. One without has no links on macOS.
pub fn is_named_pipe(fd: impl AsFd) -> bool {
    let fd = fd.as_fd();
    let Ok(stat) = rustix::fs::fstat(fd) else { return false };
    let has_name = if cfg!(target_os = "linux") { !is_unnamed_pipe(fd) } else { stat.st_nlink > 0 };
    FileType::from_raw_mode(stat.st_mode) == FileType::Fifo && has_name
}

/// Whether only a read finds out that the last writer has left: that of a pipe that has a name, on macOS. Source: `fifo_close_internal` of
/// xnu, which does not report it to the file that is polled.
pub fn ends_unseen(fd: impl AsFd) -> bool {
    is_portable() && is_named_pipe(fd)
}

fn is_unnamed_pipe(fd: BorrowedFd<'_>) -> bool {
    let target = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    target.is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"pipe:["))
}

/// How a descriptor is used without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Plain reads and writes: it never blocks, or never for long.
    Plain,
    /// The calls of [`super::sockets`].
    Socket,
}

/// Takes over our stdin, which becomes empty. See [`own`].
pub fn take_stdin() -> io::Result<(OwnedFd, Option<Kind>)> {
    let taken = own(stdin(), OFlags::RDONLY)?;
    rustix::stdio::dup2_stdin(null(OFlags::RDONLY)?)?;
    Ok(taken)
}

/// Takes over our stdout, after which nothing written there is seen. See [`own`].
pub fn take_stdout() -> io::Result<(OwnedFd, Option<Kind>)> {
    let taken = own(stdout(), OFlags::WRONLY)?;
    rustix::stdio::dup2_stdout(null(OFlags::WRONLY)?)?;
    Ok(taken)
}

/// A second descriptor for our stderr. See [`own`].
pub fn own_stderr() -> io::Result<(OwnedFd, Option<Kind>)> {
    own(stderr(), OFlags::WRONLY)
}

/// A descriptor for the target of `fd` that can be used without blocking and without side effects on others, who may share the
/// open file; without a kind if that is impossible, as for a terminal. Systems other than Linux cannot do it for a pipe or for writes to a
/// socket either.
fn own(fd: BorrowedFd<'_>, access: OFlags) -> io::Result<(OwnedFd, Option<Kind>)> {
    let duplicate = || rustix::io::fcntl_dupfd_cloexec(fd, FIRST_OTHER).map_err(io::Error::from);
    match FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) {
        FileType::Fifo => match open_again(fd, access) {
            Some(own) => Ok((own, Some(Kind::Plain))),
            None => Ok((duplicate()?, None)),
        },
        FileType::Socket if access == OFlags::WRONLY && !writes_without_waiting() => Ok((duplicate()?, None)),
        FileType::Socket => Ok((duplicate()?, Some(Kind::Socket))),
        FileType::RegularFile => Ok((duplicate()?, Some(Kind::Plain))),
        FileType::CharacterDevice if !rustix::termios::isatty(fd) => Ok((duplicate()?, Some(Kind::Plain))),
        FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Directory
        | FileType::Symlink
        | FileType::Unknown => Ok((duplicate()?, None)),
    }
}

/// Opens the pipe behind `fd` a second time. Fails if there is no `/proc` or the pipe belongs to another user; also
/// fails for a named pipe, which gives no end of stream to a reader that opens it after its writers have left.
fn open_again(fd: BorrowedFd<'_>, access: OFlags) -> Option<OwnedFd> {
    if is_portable() {
        return None;
    }
    if !is_unnamed_pipe(fd) {
        return None;
    }
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::open(path, access | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok()
}

fn null(access: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open("/dev/null", access | OFlags::CLOEXEC, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn second_description_leaves_the_first_one_blocking() {
        let (reading, writing) = io::pipe().expect("a pipe");
        let (own, kind) = own(writing.as_fd(), OFlags::WRONLY).expect("a description");
        let nonblocking = |fd: BorrowedFd<'_>| rustix::fs::fcntl_getfl(fd).expect("flags").contains(OFlags::NONBLOCK);
        if !is_portable() {
            assert_eq!(kind, Some(Kind::Plain));
            assert!(nonblocking(own.as_fd()));
        }
        assert!(!nonblocking(writing.as_fd()));
        drop((own, writing));
        let mut rest = Vec::new();
        std::fs::File::from(OwnedFd::from(reading)).read_to_end(&mut rest).expect("both ends are closed");
    }

    #[test]
    fn room_is_known_of_a_pipe_without_a_name() {
        let (reading, writing) = io::pipe().expect("a pipe");
        assert!(has_room_within(&writing, Duration::ZERO));
        never_block(&writing).expect("it is open");
        while write(&writing, &[0; 4_096]).is_ok() {}
        assert!(!has_room_within(&writing, Duration::ZERO));
        drop(reading);
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo runs").success());
        let named = std::fs::File::options().read(true).write(true).open(&path).expect("it is there");
        assert_eq!(has_room_within(&named, Duration::ZERO), !is_portable());
    }

    #[test]
    fn blocking_is_turned_off_and_on_again() {
        let (reading, writing) = io::pipe().expect("a pipe");
        never_block(&reading).expect("it is open");
        assert_eq!(read(&reading, &mut [0]), Err(super::super::Errno::AGAIN));
        block(&reading).expect("it is open");
        drop(writing);
        assert_eq!(read(&reading, &mut [0]), Ok(0));
    }
}
