//! Clocks that nobody sets, and the boot.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

#[cfg(target_os = "linux")]
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

/// The id of the boot.
#[cfg(target_os = "linux")]
pub fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// The id of the boot.
#[cfg(target_vendor = "apple")]
pub fn boot_id() -> Option<String> {
    let mut id = [0_u8; 64];
    let bytes = sysctl(c"kern.bootsessionuuid", (&raw mut id).cast(), size_of_val(&id))?;
    let id = std::ffi::CStr::from_bytes_until_nul(&id[..bytes]).ok()?.to_str().ok()?;
    Some(id.to_owned()).filter(|id| !id.is_empty())
}

/// When the machine was started, in seconds since the Unix epoch. If the clock is set, so is this.
#[cfg(target_vendor = "apple")]
pub fn booted_unix_s() -> Option<u64> {
    let mut booted = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let bytes = sysctl(c"kern.boottime", (&raw mut booted).cast(), size_of_val(&booted))?;
    u64::try_from(booted.tv_sec).ok().filter(|seconds| bytes == size_of_val(&booted) && *seconds > 0)
}

/// Reads a value of the system into `size` bytes; returns how many it has.
#[cfg(target_vendor = "apple")]
#[expect(unsafe_code, reason = "no safe interface reads a value of the system")]
fn sysctl(name: &std::ffi::CStr, into: *mut libc::c_void, mut size: usize) -> Option<usize> {
    // SAFETY: the name ends with a 0 byte, and the call writes at most `size` bytes, which the caller has there.
    let failed = unsafe { libc::sysctlbyname(name.as_ptr(), into, &raw mut size, std::ptr::null_mut(), 0) } != 0;
    (!failed).then_some(size)
}

/// When the machine was started, in seconds since the Unix epoch.
#[cfg(target_os = "linux")]
pub fn booted_unix_s() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}
