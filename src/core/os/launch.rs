//! The state that our launcher gave us: signal mask, ignored signals and descriptors. The server that we become or
//! start gets exactly this state; all other programs that we start get none of the descriptors.
//!
//! [`Launch`] is read before the Rust runtime starts, since the runtime ignores SIGPIPE and opens closed standard
//! streams. [`hand_down`] restores the state in a child. [`keep_descriptors`] makes inherited descriptors close at each
//! `exec`, except after [`hand_down`].
//!
//! Nothing here starts, ends or waits for a process.

use std::ffi::OsString;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use libc::{SIG_BLOCK, SIG_DFL, SIG_IGN, SIG_SETMASK, SIGCHLD};
use rustix::process::{getpid, setsid};
#[cfg(target_os = "linux")]
use rustix::process::{getppid, set_parent_process_death_signal};
use rustix::termios::tcsetpgrp;

use super::descriptors::{FIRST_OTHER, stdin};
use super::portable::is_portable;
#[cfg(target_os = "linux")]
use super::signals::Signal;
use super::signals::{self, is_ignored, set_disposition};

/// The highest signal number to check. Source: Linux has 64, other systems fewer.
const SIGNAL_MAX: i32 = 64;

/// How many descriptors to try on a system that does not list the open ones.
const DESCRIPTORS_MAX: RawFd = 4_096;

/// The state at our start.
#[derive(Clone, Copy)]
pub(super) struct Launch {
    mask: libc::sigset_t,
    /// Bit n-1 is set if signal n was ignored.
    ignored: u64,
    /// Standard streams that were closed.
    closed: [bool; FIRST_OTHER as usize],
}

static LAUNCH: OnceLock<Launch> = OnceLock::new();

/// Inherited descriptors that [`keep_descriptors`] has found.
static DESCRIPTORS: OnceLock<Vec<RawFd>> = OnceLock::new();

/// Runs before `main`, and before the runtime changes anything.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
#[expect(unsafe_code, reason = "nothing else runs before the runtime has changed SIGPIPE and the standard streams")]
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
static READ_BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn read() {
        launch();
    }
    read
};

/// The state at our start. It is read now on a system without [`READ_BEFORE_MAIN`], so call this before changing it.
pub(super) fn launch() -> &'static Launch {
    LAUNCH.get_or_init(|| Launch {
        mask: current_mask(),
        ignored: (1..=SIGNAL_MAX).filter(|number| is_ignored(*number)).map(bit).sum(),
        closed: [0, 1, 2].map(|fd| descriptor_flags(fd).is_none()),
    })
}

fn bit(number: i32) -> u64 {
    1 << (number - 1)
}

/// Whether the launcher had blocked this signal.
#[expect(unsafe_code, reason = "no safe interface reads a signal mask")]
pub fn was_blocked(number: i32) -> bool {
    // SAFETY: the set is initialised.
    unsafe { libc::sigismember(&raw const launch().mask, number) == 1 }
}

/// Makes the end of a child visible to us, even if our launcher had ignored or blocked SIGCHLD.
pub fn wait_for_children() {
    launch();
    if is_ignored(SIGCHLD) {
        set_disposition(SIGCHLD, SIG_DFL);
    }
    signals::unblock(&[SIGCHLD]);
}

/// Makes every inherited descriptor close in the programs that we start from now on, except after [`hand_down`]. Call
/// this before other threads open descriptors.
pub fn keep_descriptors() {
    DESCRIPTORS.get_or_init(|| {
        let inherited = open_descriptors().into_iter().filter(|fd| {
            *fd >= FIRST_OTHER && descriptor_flags(*fd).is_some_and(|flags| flags & libc::FD_CLOEXEC == 0)
        });
        inherited.inspect(|fd| set_descriptor_flags(*fd, libc::FD_CLOEXEC)).collect()
    });
}

/// Starts `command` with the signal mask, the ignored signals and the descriptors that our launcher gave us. A standard
/// stream in `closed` is closed if it was closed at our start.
#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
pub fn hand_down(command: &mut Command, closed: &'static [RawFd]) {
    let launch = *launch();
    let descriptors = DESCRIPTORS.get().map(Vec::as_slice).unwrap_or_default();
    // SAFETY: the closure makes plain system calls, which are async-signal-safe, and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            for number in 1..=SIGNAL_MAX {
                let was_ignored = launch.ignored & bit(number) != 0;
                if is_ignored(number) != was_ignored {
                    set_disposition(number, if was_ignored { SIG_IGN } else { SIG_DFL });
                }
            }
            for fd in descriptors {
                set_descriptor_flags(*fd, 0);
            }
            for fd in closed {
                if launch.closed[*fd as usize] {
                    libc::close(*fd);
                }
            }
            match libc::pthread_sigmask(SIG_SETMASK, &raw const launch.mask, std::ptr::null_mut()) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        });
    }
}

/// Becomes another program, which keeps our process id, our children and the descriptors that are [shared](super::descriptors::share). It finds
/// the state that our launcher gave us. Returns only if that fails.
pub fn become_program(program: &Path, arguments: impl IntoIterator<Item = OsString>) -> io::Error {
    let mut command = Command::new(program);
    command.arg0("codex-shim").args(arguments);
    hand_down(&mut command, &[]);
    command.exec()
}

/// Resets the signal that we ignore for ourselves to its default in `command`, which is not started with [`hand_down`].
#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
pub fn restore_file_size_signal(command: &mut Command) {
    // SAFETY: the closure makes one plain system call, which is async-signal-safe, and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            set_disposition(libc::SIGXFSZ, SIG_DFL);
            Ok(())
        });
    }
}

/// Makes the kernel send `signal` to `command` when the calling *thread* ends. Its own children are neither tracked nor ended.
/// Call this and start it from a thread that outlives it.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
pub(super) fn end_with_parent(command: &mut Command, signal: Signal) {
    let parent = getpid();
    // SAFETY: the closure makes plain system calls, which are async-signal-safe. It allocates nothing: an error made of
    // a kind or a number holds no memory.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(signal))?;
            // The parent may have ended before the request.
            if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        });
    }
}

/// Starts `command` in a session of its own: no terminal, and none of the signals for our process group, reach it. SIGINT, which a
/// shell makes its background jobs ignore, has its default action again.
#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
pub fn own_session(command: &mut Command) {
    // SAFETY: the closure makes plain system calls, which are async-signal-safe, and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            set_disposition(libc::SIGINT, SIG_DFL);
            setsid()?;
            Ok(())
        });
    }
}

/// Starts `command` in a process group of its own, which is in the foreground of the terminal on our stdin from the start. The
/// caller ignores SIGTTOU. Without a terminal the program can still run.
#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
pub fn foreground_group(command: &mut Command) {
    command.process_group(0);
    // SAFETY: the closure only makes system calls, which are async-signal-safe, and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            let _ = tcsetpgrp(stdin(), getpid());
            Ok(())
        });
    }
}

/// Ignores SIGXFSZ, so that exceeding a limit on file sizes fails a write and does not kill us.
pub fn ignore_file_size_signal() {
    signals::ignore(libc::SIGXFSZ);
}

#[expect(unsafe_code, reason = "no safe interface reads a signal mask")]
fn current_mask() -> libc::sigset_t {
    // SAFETY: an all-zero `sigset_t` is valid to be initialised by `sigemptyset`; without a new set the call only reads the mask.
    unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut mask);
        libc::pthread_sigmask(SIG_BLOCK, std::ptr::null(), &raw mut mask);
        mask
    }
}

/// The flags of a descriptor; `None` if it is not open.
#[expect(unsafe_code, reason = "a descriptor that is inherited comes as a number")]
fn descriptor_flags(fd: RawFd) -> Option<i32> {
    // SAFETY: the call only reads flags, and fails for a number that is not open.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    (flags >= 0).then_some(flags)
}

#[expect(unsafe_code, reason = "a descriptor that is inherited comes as a number")]
fn set_descriptor_flags(fd: RawFd, flags: i32) {
    // SAFETY: the call is async-signal-safe, and changes only whether the descriptor outlives an `exec`.
    unsafe { libc::fcntl(fd, libc::F_SETFD, flags) };
}

/// The numbers of the open descriptors.
fn open_descriptors() -> Vec<RawFd> {
    let folder = if is_portable() { "/dev/fd" } else { "/proc/self/fd" };
    match std::fs::read_dir(folder) {
        Ok(entries) => entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect(),
        Err(_) => (FIRST_OTHER..DESCRIPTORS_MAX).collect(),
    }
}
