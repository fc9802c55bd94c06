//! The state that our launcher gave us: signal mask, ignored signals and descriptors. The server that we become or
//! start gets exactly this state; all other programs that we start get none of the descriptors.
//!
//! [`Launch`] is read before the Rust runtime starts, since the runtime ignores SIGPIPE and opens closed standard
//! streams. [`hand_down`] restores the state in a child. [`keep_descriptors`] makes inherited descriptors close at each
//! `exec`, except after [`hand_down`].
//!
//! [`Signals`] delivers later signals to a poll loop, or to an asynchronous program.
//!
//! Nothing here starts, ends or waits for a process.

use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use libc::{SIG_BLOCK, SIG_DFL, SIG_IGN, SIG_SETMASK, SIG_UNBLOCK, SIGCHLD};
use rustix::process::{Pid, Signal, setsid};
#[cfg(target_os = "linux")]
use rustix::process::{getpid, getppid, set_parent_process_death_signal};
use tokio::sync::oneshot;

use crate::os::polling::{PollFlags, poll_one};

/// The highest signal number to check. Source: Linux has 64, other systems fewer.
const SIGNAL_MAX: i32 = 64;

/// The first descriptor that is not a standard stream.
const FIRST_DESCRIPTOR: RawFd = 3;

/// How many descriptors to try on a system that does not list the open ones.
const DESCRIPTORS_MAX: RawFd = 4_096;

/// The state at our start.
#[derive(Clone, Copy)]
struct Launch {
    mask: libc::sigset_t,
    /// Bit n-1 is set if signal n was ignored.
    ignored: u64,
    /// Standard streams that were closed.
    closed: [bool; FIRST_DESCRIPTOR as usize],
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

fn launch() -> &'static Launch {
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
pub(crate) fn was_blocked(number: i32) -> bool {
    // SAFETY: the set is initialised.
    unsafe { libc::sigismember(&raw const launch().mask, number) == 1 }
}

/// Makes the end of a child visible to us, even if our launcher had ignored or blocked SIGCHLD.
pub(crate) fn wait_for_children() {
    launch();
    if is_ignored(SIGCHLD) {
        set_disposition(SIGCHLD, SIG_DFL);
    }
    unblock(&[SIGCHLD]);
}

/// Unblocks these signals in the calling thread and in the threads that it starts.
#[expect(unsafe_code, reason = "no safe interface changes the signal mask")]
pub(crate) fn unblock(numbers: &[i32]) {
    launch();
    // SAFETY: an all-zero `sigset_t` is valid to be initialised by `sigemptyset`; the numbers are those of signals; the
    // old mask is not requested.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for number in numbers {
            libc::sigaddset(&raw mut set, *number);
        }
        libc::pthread_sigmask(SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// The process group of a process, or ours. `None` if the process is gone, or if the leader of the group is in another process
/// namespace, as in a container: the kernel then says 0, which rustix takes for a valid id.
#[expect(unsafe_code, reason = "the safe interface of rustix is undefined for the id 0")]
pub(crate) fn process_group(pid: Option<Pid>) -> Option<Pid> {
    // SAFETY: the call takes a number and returns one.
    positive(unsafe { libc::getpgid(Pid::as_raw(pid)) })
}

/// The process that leads the session of this one; `None` as for [`process_group`].
#[expect(unsafe_code, reason = "the safe interface of rustix is undefined for the id 0")]
pub(crate) fn session_leader(pid: Pid) -> Option<Pid> {
    // SAFETY: the call takes a number and returns one.
    positive(unsafe { libc::getsid(pid.as_raw_pid()) })
}

fn positive(raw: i32) -> Option<Pid> {
    Some(raw).filter(|raw| *raw > 0).and_then(Pid::from_raw)
}

/// Signals to us, as a socket that a loop can poll; other threads wake the loop through the same socket.
///
/// A signal that our launcher ignored, as under `nohup`, stays ignored. One that it blocked is unblocked for us.
#[derive(Debug)]
pub(crate) struct Signals {
    wake: UnixStream,
    /// The write end of `wake`.
    waking: UnixStream,
    seen: Vec<(i32, Arc<AtomicBool>)>,
}

impl Signals {
    pub(crate) fn listen(numbers: &[i32]) -> io::Result<Signals> {
        let (wake, waking) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        waking.set_nonblocking(true)?;
        let mut seen = Vec::new();
        unblock(numbers);
        for number in numbers.iter().copied().filter(|number| !is_ignored(*number) || *number == SIGCHLD) {
            let flag = Arc::new(AtomicBool::new(false));
            // Handlers run in the order of registration: the flag is set before the loop is woken.
            signal_hook::flag::register(number, Arc::clone(&flag))?;
            signal_hook::low_level::pipe::register(number, waking.try_clone()?)?;
            seen.push((number, flag));
        }
        Ok(Signals { wake, waking, seen })
    }

    /// A write end that wakes the loop; a write to it never blocks.
    pub(crate) fn waker(&self) -> io::Result<UnixStream> {
        self.waking.try_clone()
    }

    /// Takes the signals received since the last call, in the order of `listen`.
    pub(crate) fn take(&self) -> Vec<i32> {
        let mut bytes = [0; 64];
        while matches!((&self.wake).read(&mut bytes), Ok(read) if read == bytes.len()) {}
        let taken = self.seen.iter().filter(|(_, flag)| flag.swap(false, Ordering::SeqCst));
        taken.map(|(number, _)| *number).collect()
    }

    /// Waits for a signal on a thread of its own, for an asynchronous program; the receiver gets the first one.
    pub(crate) fn first(self) -> io::Result<oneshot::Receiver<()>> {
        let (signalled, first) = oneshot::channel();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            while self.take().is_empty() {
                // An interrupted wait is repeated.
                let _ = poll_one(&self, PollFlags::IN, None);
            }
            // Without a receiver the program is ending already.
            let _ = signalled.send(());
        })?;
        Ok(first)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Makes every inherited descriptor close in the programs that we start from now on, except after [`hand_down`]. Call
/// this before other threads open descriptors.
pub(crate) fn keep_descriptors() {
    DESCRIPTORS.get_or_init(|| {
        let inherited = open_descriptors().into_iter().filter(|fd| {
            *fd >= FIRST_DESCRIPTOR && descriptor_flags(*fd).is_some_and(|flags| flags & libc::FD_CLOEXEC == 0)
        });
        inherited.inspect(|fd| set_descriptor_flags(*fd, libc::FD_CLOEXEC)).collect()
    });
}

/// Starts `command` with the signal mask, the ignored signals and the descriptors that our launcher gave us. A standard
/// stream in `closed` is closed if it was closed at our start.
#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
pub(crate) fn hand_down(command: &mut Command, closed: &'static [RawFd]) {
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

/// Resets the signal that we ignore for ourselves to its default in `command`, which is not started with [`hand_down`].
#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
pub(crate) fn restore_file_size_signal(command: &mut Command) {
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
pub(crate) fn end_with_parent(command: &mut Command, signal: Signal) {
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

/// No other system than Linux can do this.
#[cfg(not(target_os = "linux"))]
pub(crate) fn end_with_parent(_command: &mut Command, _signal: Signal) {}

/// Starts `command` in a session of its own: no terminal, and none of the signals for our process group, reach it. SIGINT, which a
/// shell makes its background jobs ignore, has its default action again.
#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
pub(crate) fn own_session(command: &mut Command) {
    // SAFETY: the closure makes plain system calls, which are async-signal-safe, and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            set_disposition(libc::SIGINT, SIG_DFL);
            setsid()?;
            Ok(())
        });
    }
}

/// Ignores SIGXFSZ, so that exceeding a limit on file sizes fails a write and does not kill us.
pub(crate) fn ignore_file_size_signal() {
    launch();
    set_disposition(libc::SIGXFSZ, SIG_IGN);
}

#[expect(unsafe_code, reason = "no safe interface reads a signal's disposition")]
pub(crate) fn is_ignored(number: i32) -> bool {
    // SAFETY: an all-zero `sigaction` is a valid value to be overwritten; with no new action given, the call only reads
    // the old one into it, and is async-signal-safe.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(number, std::ptr::null(), &raw mut action) != 0 {
            return false;
        }
        action
    };
    action.sa_sigaction == SIG_IGN
}

#[expect(unsafe_code, reason = "no safe interface sets a signal's disposition")]
fn set_disposition(number: i32, disposition: libc::sighandler_t) {
    // SAFETY: `signal` is async-signal-safe, and the disposition is only ever SIG_DFL or SIG_IGN.
    unsafe { libc::signal(number, disposition) };
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
    let folder = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };
    match std::fs::read_dir(folder) {
        Ok(entries) => entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect(),
        Err(_) => (FIRST_DESCRIPTOR..DESCRIPTORS_MAX).collect(),
    }
}
