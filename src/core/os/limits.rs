//! Limits and priorities of this process and its threads.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Result;
use super::portable::is_portable;

/// Most descriptors that macOS gives to a process that asks for all. Source: `OPEN_MAX` of its `sys/syslimits.h`, see its
/// setrlimit(2).
const DESCRIPTORS_MAX: u64 = 10_240;

/// Allows as many descriptors as the system lets us have.
pub fn raise_descriptors() -> Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.into_iter().chain(is_portable().then_some(DESCRIPTORS_MAX)).min();
    let is_higher = match (current, wanted) {
        (Some(current), Some(wanted)) => current < wanted,
        (current, None) => current.is_some(),
        (None, Some(_)) => false,
    };
    if is_higher { setrlimit(Resource::Nofile, Rlimit { current: wanted, maximum }) } else { Ok(()) }
}

/// Makes the calling thread yield to others by a niceness. Only Linux has one for each thread: elsewhere this does nothing.
pub fn lower_thread_priority(niceness: i32) -> Result<()> {
    #[cfg(target_os = "linux")]
    if !is_portable() {
        return rustix::process::setpriority_process(Some(rustix::thread::gettid()), niceness);
    }
    let _ = niceness;
    Ok(())
}
