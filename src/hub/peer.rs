//! Processes as the kernel identifies them, so that one that was recorded earlier is recognized.
//!
//! A process id alone identifies nothing, because the system uses it again. Together with the start time and the boot it does.
//!
//! Nothing here starts a process.

use std::io;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::launch;

#[cfg(target_os = "linux")]
use crate::store::boot_id;

/// A process that has not been reaped, identified for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessIdentity {
    pub pid: u32,
    /// When it started, as the kernel says: comparable only for equality.
    pub started: String,
}

impl ProcessIdentity {
    /// The process that has this id now; `None` if no process has this id, if it has exited, or if the system does not
    /// report its start.
    pub(crate) fn of(pid: u32) -> Option<ProcessIdentity> {
        started(pid).map(|started| ProcessIdentity { pid, started })
    }

    pub(crate) fn is_alive(&self) -> bool {
        ProcessIdentity::of(self.pid).as_ref() == Some(self)
    }

    /// Signals it, unless it has exited.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        match self.raw().filter(|_| self.is_alive()) {
            Some(pid) => Ok(kill_process(pid, signal)?),
            None => Ok(()),
        }
    }

    /// Kills it with its process group, unless it has exited. A group that is also ours is spared.
    pub(crate) fn kill_group(&self) -> io::Result<()> {
        let Some(pid) = self.raw() else { return Ok(()) };
        match launch::process_group(Some(pid)) {
            Some(group) if launch::process_group(None) != Some(group) && self.is_alive() => {
                Ok(kill_process_group(group, Signal::KILL)?)
            }
            Some(_) | None => self.signal(Signal::KILL),
        }
    }

    /// The process that leads the session it belongs to; `None` if that is in another container.
    pub(crate) fn session_leader(&self) -> Option<u32> {
        u32::try_from(launch::session_leader(self.raw()?)?.as_raw_pid()).ok()
    }

    /// Its program, if the system says.
    pub(crate) fn program(&self) -> Option<PathBuf> {
        #[cfg(target_os = "linux")]
        let program = std::fs::read_link(format!("/proc/{}/exe", self.pid)).ok();
        #[cfg(not(target_os = "linux"))]
        let program = None;
        program
    }

    /// Its arguments, if the system says.
    pub(crate) fn arguments(&self) -> Vec<String> {
        #[cfg(target_os = "linux")]
        let line = std::fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        #[cfg(not(target_os = "linux"))]
        let line: Vec<u8> = Vec::new();
        let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    fn raw(&self) -> Option<Pid> {
        i32::try_from(self.pid).ok().and_then(Pid::from_raw)
    }
}

/// When a process started: the boot, and the clock ticks since then.
#[cfg(target_os = "linux")]
fn started(pid: u32) -> Option<String> {
    let ticks = ticks_of(&stat_of(pid)?)?;
    Some(format!("{}:{ticks}", boot_id().unwrap_or_default()))
}

#[cfg(target_os = "linux")]
fn stat_of(pid: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()
}

/// The start time in a line of `/proc/PID/stat`; `None` if the process has exited. The name of a process may contain anything,
/// so the fields are counted from its end.
#[cfg(target_os = "linux")]
fn ticks_of(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    // The state is field 3 of proc(5), and the start time field 22.
    fields.nth(18)?.parse().ok()
}

/// The name of the terminal that a process has, such as `pts/3`; `None` if it has none, or if the system does not say it.
#[cfg(target_os = "linux")]
pub(super) fn terminal_of(pid: u32) -> Option<String> {
    // The terminal is field 7 of proc(5).
    terminal_named(stat_of(pid)?.rsplit_once(')')?.1.split_ascii_whitespace().nth(4)?.parse().ok()?)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn terminal_of(_pid: u32) -> Option<String> {
    None
}

/// The name of a terminal by its device. Source: devices.txt of Linux: pseudo terminals have the major numbers 136 to 143, and the
/// consoles 4 with minor numbers below 64.
#[cfg(target_os = "linux")]
fn terminal_named(device: i32) -> Option<String> {
    let device = device.cast_unsigned();
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0x000f_ff00);
    match major {
        136..=143 => Some(format!("pts/{}", (major - 136) * 256 + minor)),
        4 if minor < 64 => Some(format!("tty{minor}")),
        _ => None,
    }
}

/// When a process started, in microseconds since the Unix epoch.
#[cfg(target_vendor = "apple")]
#[expect(unsafe_code, reason = "no safe interface reads when a process started")]
fn started(pid: u32) -> Option<String> {
    let (pid, size) = (i32::try_from(pid).ok()?, i32::try_from(size_of::<libc::proc_bsdinfo>()).ok()?);
    // SAFETY: an all-zero value is valid, and the call writes at most its size.
    let (read, info) = unsafe {
        let mut info: libc::proc_bsdinfo = std::mem::zeroed();
        let read = libc::proc_pidinfo(pid, libc::PROC_PIDTBSDINFO, 0, (&raw mut info).cast(), size);
        (read, info)
    };
    let is_zombie = info.pbi_status == libc::SZOMB;
    (read == size && !is_zombie).then(|| format!("{}.{:06}", info.pbi_start_tvsec, info.pbi_start_tvusec))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    #[cfg(target_os = "linux")]
    fn terminals_have_the_names_of_their_files() {
        for (device, name) in [
            (0, None),
            (34_816, Some("pts/0")),
            (34_819, Some("pts/3")),
            // Minor number 256 is above the byte of the first 256.
            (34_816 | 1 << 20, Some("pts/256")),
            (1_025, Some("tty1")),
            // A serial line.
            (1_088, None),
        ] {
            assert_eq!(terminal_named(device).as_deref(), name, "{device}");
        }
    }

    #[test]
    fn exited_process_is_not_alive() {
        let mut child = Command::new("sleep").arg("600").spawn().expect("sleep runs");
        let identity = ProcessIdentity::of(child.id()).expect("it runs");
        assert!(identity.is_alive());
        assert!(!ProcessIdentity { started: "another".to_owned(), ..identity.clone() }.is_alive());
        child.kill().expect("it is ours");
        // Not reaped yet.
        let began = std::time::Instant::now();
        while identity.is_alive() {
            assert!(began.elapsed().as_secs() < 60, "it counts as alive");
            std::thread::park_timeout(std::time::Duration::from_millis(5));
        }
        child.wait().expect("it can be reaped");
        assert!(!identity.is_alive());
        identity.signal(Signal::KILL).expect("nothing is signalled");
        identity.kill_group().expect("nothing is signalled");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn names_of_processes_do_not_confuse() {
        let line = "7 (a) Z (b 1) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 10";
        assert_eq!(ticks_of(line), Some(4711));
        assert_eq!(ticks_of(&line.replace(" S ", " Z ")), None);
        assert_eq!(ticks_of("7 (a) S 1"), None);
        assert_eq!(ticks_of(""), None);
    }
}
