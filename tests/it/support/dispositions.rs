//! Signal dispositions of the tests and of their children.
//!
//! A shell that starts `make test` in the background makes it ignore SIGINT and SIGQUIT, `nohup` makes it ignore
//! SIGHUP, and some launchers block signals or ignore SIGCHLD. Children inherit all of that, so the tests set the
//! dispositions they rely on.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The highest number of a signal that is not a real-time signal.
const SIGNAL_MAX: i32 = 31;

/// Starts a command without blocked or ignored signals.
#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
pub fn with_default_signals(command: &mut Command) -> &mut Command {
    // SAFETY: the closure makes plain system calls, which are async-signal-safe, and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            for number in 1..=SIGNAL_MAX {
                // SIGKILL and SIGSTOP cannot be changed, which is harmless.
                libc::signal(number, libc::SIG_DFL);
            }
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            Ok(())
        })
    }
}

/// Runs before `main`: while SIGCHLD is ignored, no test can wait for a child.
#[used]
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "no safe interface sets a signal's disposition, or runs before `main`")]
// SAFETY: functions in this section are called without arguments that matter here, and `signal` needs no runtime.
#[unsafe(link_section = ".init_array")]
static WAITABLE: extern "C" fn() = {
    extern "C" fn waitable() {
        // SAFETY: the default disposition is always valid.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
    waitable
};
