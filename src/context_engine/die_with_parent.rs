//! Child processes that end with us: if we end without ending them, the kernel does. Their own children are neither
//! tracked nor ended.

use std::process::Command;

use crate::launch::restore_file_size_signal;

/// Makes the kernel kill the child of `command` when the calling *thread* ends, on Linux only. Call this and spawn the
/// child from a thread that outlives the child. The child does not inherit the signal that we ignore.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
pub(super) fn die_with_parent(command: &mut Command) {
    use std::io;
    use std::os::unix::process::CommandExt as _;

    use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

    let parent = getpid();
    // SAFETY: the closure makes plain system calls, which are async-signal-safe. It allocates nothing: an error made of
    // a kind or a number holds no memory.
    unsafe {
        command.pre_exec(move || {
            restore_file_size_signal();
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // We may have ended before the request.
            if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        });
    }
}

/// Other systems have no such request. The child does not inherit the signal that we ignore.
#[cfg(not(target_os = "linux"))]
#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
pub(super) fn die_with_parent(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;

    // SAFETY: the closure makes one plain system call, which is async-signal-safe, and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            restore_file_size_signal();
            Ok(())
        });
    }
}
