//! Portable mode: this program does as on a system without the calls that Linux alone has, so that tests on Linux run what macOS runs.
//!
//! A build with debug assertions does so if it finds [`VARIABLE`] in its environment; a release has no trace of it. Apple's own calls
//! cannot run on Linux. In their place stand, in this mode, too: the peer of a socket by `SO_PEERCRED`, and what `facts` reads
//! of a process in `/proc`. Pipes and sockets of the standard library are those of Linux.

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
