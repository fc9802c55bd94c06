//! Portable mode: this program does as on a system without the calls that Linux alone has, so that tests on Linux run what macOS runs.
//!
//! A build with debug assertions does so if it finds [`VARIABLE`] in its environment; a release has no trace of it. Apple's own calls
//! cannot run on Linux. In their place stand, in this mode, too: the peer of a socket by `SO_PEERCRED`, and what `facts` reads
//! of a process in `/proc`. Pipes and sockets of the standard library are those of Linux. `poll` reports as little as that of macOS.

#[cfg(all(target_os = "linux", debug_assertions))]
pub(super) use reported_by_macos::poll;

/// Set to anything, it turns portable mode on.
#[cfg(all(target_os = "linux", debug_assertions))]
const VARIABLE: &str = "CODEX_SHIM_PORTABLE";

/// Whether calls that only Linux has are not to be used.
#[inline]
pub(super) fn is_portable() -> bool {
    #[cfg(all(target_os = "linux", debug_assertions))]
    {
        static IS_PORTABLE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        #[expect(clippy::disallowed_methods, reason = "a test sets it for all programs that it starts")]
        *IS_PORTABLE.get_or_init(|| std::env::var_os(VARIABLE).is_some())
    }
    #[cfg(not(all(target_os = "linux", debug_assertions)))]
    {
        cfg!(not(target_os = "linux"))
    }
}

/// `poll` of Linux with what that of macOS leaves out. Source: `sys_generic.c`, `kern_event.c` and `uipc_socket.c` of xnu.
#[cfg(all(target_os = "linux", debug_assertions))]
mod reported_by_macos {
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    use rustix::event::{PollFd, PollFlags, Timespec};
    use rustix::fs::FileType;

    use crate::os::{Result, descriptors};

    /// How often to look whether a named pipe without a writer has one again.
    const PIPE_LOOK_EVERY: Duration = Duration::from_millis(10);

    /// What becomes of a descriptor in this call.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum PollWatch {
        Full,
        /// Its only event has come, and nobody asked for it.
        Spent,
        /// A named pipe whose last writer has left, which is not reported.
        Left,
        /// A device that cannot be waited for.
        Refused,
    }

    /// As [`crate::os::polling::poll`], once.
    pub(in crate::os) fn poll(fds: &mut [PollFd<'_>], wait_max: Option<Duration>) -> Result<usize> {
        let began = Instant::now();
        let mut watches: Vec<PollWatch> =
            fds.iter().map(|fd| if is_refused(fd) { PollWatch::Refused } else { PollWatch::Full }).collect();
        let waits = !watches.contains(&PollWatch::Refused);
        loop {
            let left = wait_max.map(|wait_max| wait_max.saturating_sub(began.elapsed()));
            let left = if waits { left } else { Some(Duration::ZERO) };
            let mut found = vec![PollFlags::empty(); fds.len()];
            look(fds, &watches, left, &mut found)?;
            for (at, fd) in fds.iter_mut().enumerate() {
                let (reported, watch) = reported(fd, found[at], watches[at]);
                watches[at] = watch;
                raw(fd).revents = reported.bits().cast_signed();
            }
            let ready = fds.iter().filter(|fd| !fd.revents().is_empty()).count();
            if ready > 0 || left.is_some_and(|left| left.is_zero()) {
                return Ok(ready);
            }
        }
    }

    /// Asks Linux, and waits less than `wait_max` if there is something to look at again.
    fn look(
        fds: &mut [PollFd<'_>],
        watches: &[PollWatch],
        wait_max: Option<Duration>,
        found: &mut [PollFlags],
    ) -> Result<()> {
        let asked: Vec<PollFlags> = fds.iter_mut().map(|fd| asked(fd)).collect();
        let watched: Vec<usize> = (0..fds.len()).filter(|at| watches[*at] == PollWatch::Full).collect();
        let mut polled: Vec<PollFd<'_>> =
            watched.iter().map(|at| PollFd::from_borrowed_fd(fds[*at].as_fd(), asked[*at])).collect();
        let soon = watches.contains(&PollWatch::Left).then_some(PIPE_LOOK_EVERY);
        let wait_max = wait_max.into_iter().chain(soon).min();
        rustix::event::poll(&mut polled, wait_max.and_then(|wait_max| Timespec::try_from(wait_max).ok()).as_ref())?;
        watched.iter().zip(&polled).for_each(|(at, fd)| found[*at] = fd.revents());
        Ok(())
    }

    /// What to ask Linux for: the end of one half, too, and whether bytes have come.
    fn asked(fd: &mut PollFd<'_>) -> PollFlags {
        let asked = PollFlags::from_bits_retain(raw(fd).events.cast_unsigned());
        match asked {
            PollFlags::HUP => PollFlags::RDHUP | PollFlags::IN,
            _ if asked.contains(PollFlags::IN) => asked | PollFlags::RDHUP,
            _ => asked,
        }
    }

    /// What macOS reports of what Linux has found, and what becomes of the descriptor.
    fn reported(fd: &mut PollFd<'_>, found: PollFlags, watch: PollWatch) -> (PollFlags, PollWatch) {
        match watch {
            PollWatch::Refused => return (PollFlags::NVAL, watch),
            PollWatch::Left => return (PollFlags::empty(), PollWatch::Full),
            PollWatch::Spent => return (PollFlags::empty(), watch),
            PollWatch::Full => {}
        }
        let asked = PollFlags::from_bits_retain(raw(fd).events.cast_unsigned());
        let is_over = found.intersects(PollFlags::HUP | PollFlags::RDHUP);
        if found == PollFlags::HUP && asked.contains(PollFlags::IN) && descriptors::is_named_pipe(&*fd) {
            return (PollFlags::empty(), PollWatch::Left);
        }
        if asked == PollFlags::HUP && found == PollFlags::IN {
            return (PollFlags::empty(), PollWatch::Spent);
        }
        let either = if is_over { PollFlags::HUP } else { PollFlags::empty() };
        ((found - PollFlags::RDHUP) & (asked | PollFlags::ERR) | either, PollWatch::Full)
    }

    /// The requested and the reported events of a descriptor; rustix has no access to them.
    #[expect(unsafe_code, reason = "rustix has no interface for it")]
    fn raw<'a>(fd: &'a mut PollFd<'_>) -> &'a mut libc::pollfd {
        // SAFETY: it is what the kernel reads and writes, so it is laid out as a `pollfd`, and any numbers are valid in it.
        unsafe { &mut *std::ptr::from_mut(fd).cast() }
    }

    /// Whether it is a device that macOS cannot wait for: not a terminal, unless it was opened as `/dev/tty`.
    fn is_refused(fd: &PollFd<'_>) -> bool {
        let Ok(stat) = rustix::fs::fstat(fd.as_fd()) else { return false };
        let is_device =
            matches!(FileType::from_raw_mode(stat.st_mode), FileType::CharacterDevice | FileType::BlockDevice);
        // Source: devices.txt of Linux: consoles, new terminals, and both sides of a pseudo terminal.
        let numbers = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        let is_terminal = matches!(numbers, (4 | 136..=143, _) | (5, 2));
        is_device && !is_terminal
    }
}
