//! Clocks that nobody sets, and the boot.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::portable::is_portable;

/// The time since the boot. Time in which the machine sleeps counts.
pub fn since_boot() -> Duration {
    let read = |id| Duration::try_from(clock_gettime(id)).unwrap_or_default();
    #[cfg(target_os = "linux")]
    if !is_portable() {
        return read(ClockId::Boottime);
    }
    // That of macOS goes on in sleep, unlike that of Linux.
    read(ClockId::Monotonic)
}

/// The id of the boot. Only Linux has one.
pub fn boot_id() -> Option<String> {
    if is_portable() {
        return None;
    }
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// When the machine was started, in seconds since the Unix epoch. Only Linux says.
pub fn booted_unix_s() -> Option<u64> {
    if is_portable() {
        return None;
    }
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}
