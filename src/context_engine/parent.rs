//! Children that do not outlive us, and have nothing of ours but what is meant for them: where we end without having ended them,
//! the kernel does. What they have started besides is not known here, and is not ended.

use std::process::Command;

use crate::launch::restore_file_size_signal;

/// Has the child of `command` killed when the calling *thread* ends, on Linux: call this, and start the child, from one that lives as
/// long as the child may. Signals are to it what they are to any program, whatever we ignore.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
pub(super) fn end_with_us(command: &mut Command) {
    use std::io;
    use std::os::unix::process::CommandExt as _;

    use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

    let parent = getpid();
    // SAFETY: the closure makes plain system calls, which are async-signal-safe, and allocates nothing: an error of a kind or
    // of a number holds no memory.
    unsafe {
        command.pre_exec(move || {
            restore_file_size_signal();
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // We may have ended before the request was made.
            if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        });
    }
}

/// Elsewhere there is no such request; signals are to it what they are to any program.
#[cfg(not(target_os = "linux"))]
#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
pub(super) fn end_with_us(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;

    // SAFETY: the closure makes one plain system call, which is async-signal-safe, and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            restore_file_size_signal();
            Ok(())
        });
    }
}
