//! Processes: their groups, the facts that the system shows of them, and their identity, so that one that was recorded earlier
//! is recognized.
//!
//! A process id alone identifies nothing, because the system uses it again. Together with the start time and the boot it does.
//!
//! macOS shows the start of a process. Its program, arguments, environment, parent and terminal are shown by Linux alone.
//!
//! Nothing here starts a process.

use std::io;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Signals go to a process or to the group that it leads. The caller knows that it has not been reaped: otherwise another one may have
/// its id.
pub use rustix::process::{Pid, kill_process as signal, kill_process_group as signal_group, setsid as begin_session};
use rustix::process::{WaitOptions, test_kill_process, waitpid};
use serde::{Deserialize, Serialize};

use super::Result;
use super::signals::Signal;

/// Kills the process group that a child leads, which has not been reaped, and reaps the child.
pub fn kill_group_of(child: &mut Child) {
    // It may have exited meanwhile.
    let _ = signal_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

/// How often [`end`] looks whether a child has ended. The system offers no wait with a limit.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Asks a child to end, kills it after `wait_max`, and reaps it.
pub fn end(child: &mut Child, wait_max: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    if matches!(child.try_wait(), Ok(None)) {
        let _ = signal(Pid::from_child(child), Signal::TERM);
    }
    while matches!(child.try_wait(), Ok(None)) && began.elapsed() < wait_max {
        std::thread::park_timeout(LOOK_EVERY);
    }
    let _ = child.kill();
    child.wait().ok()
}

/// Whether a process has this id, and is ours to signal.
pub fn exists(pid: u32) -> bool {
    raw(pid).is_some_and(|pid| test_kill_process(pid).is_ok())
}

fn raw(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// What has become of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Its exit status, or 128 plus the number of the signal that ended it, as a shell reports it.
    Ended(i32),
    Stopped,
}

/// Waits until a child ends or is stopped.
pub fn wait_for_change(child: Pid) -> Result<Option<Change>> {
    changed(child, WaitOptions::UNTRACED)
}

/// Whether a child has ended or was stopped since the last call.
pub fn change(child: Pid) -> Result<Option<Change>> {
    changed(child, WaitOptions::UNTRACED | WaitOptions::NOHANG)
}

fn changed(child: Pid, options: WaitOptions) -> Result<Option<Change>> {
    let change = waitpid(Some(child), options)?.and_then(|(_, status)| {
        let ended_by = || status.terminating_signal().map(|signal| 128 + signal);
        let ended = status.exit_status().or_else(ended_by).map(Change::Ended);
        ended.or(status.stopped().then_some(Change::Stopped))
    });
    Ok(change)
}

/// The process group of a process, or ours. `None` if the process is gone, or if the leader of the group is in another process
/// namespace, as in a container: the kernel then says 0, which rustix takes for a valid id.
#[expect(unsafe_code, reason = "the safe interface of rustix is undefined for the id 0")]
pub fn process_group(pid: Option<Pid>) -> Option<Pid> {
    // SAFETY: the call takes a number and returns one.
    positive(unsafe { libc::getpgid(Pid::as_raw(pid)) })
}

/// The process that leads the session of this one; `None` as for [`process_group`].
#[expect(unsafe_code, reason = "the safe interface of rustix is undefined for the id 0")]
pub fn session_leader(pid: Pid) -> Option<Pid> {
    // SAFETY: the call takes a number and returns one.
    positive(unsafe { libc::getsid(pid.as_raw_pid()) })
}

fn positive(raw: i32) -> Option<Pid> {
    Some(raw).filter(|raw| *raw > 0).and_then(Pid::from_raw)
}

/// A process that has not been reaped, identified for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub pid: u32,
    /// When it started, as the kernel says: comparable only for equality.
    pub started: String,
}

impl ProcessIdentity {
    /// The process that has this id now; `None` if no process has this id, if it has exited, or if the system does not
    /// report its start.
    pub fn of(pid: u32) -> Option<ProcessIdentity> {
        started(pid).map(|started| ProcessIdentity { pid, started })
    }

    pub fn is_alive(&self) -> bool {
        ProcessIdentity::of(self.pid).as_ref() == Some(self)
    }

    /// Signals it, unless it has exited.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match raw(self.pid).filter(|_| self.is_alive()) {
            Some(pid) => Ok(self::signal(pid, signal)?),
            None => Ok(()),
        }
    }

    /// Kills it with its process group, unless it has exited. A group that is also ours is spared.
    pub fn kill_group(&self) -> io::Result<()> {
        let Some(pid) = raw(self.pid) else { return Ok(()) };
        match process_group(Some(pid)) {
            Some(group) if process_group(None) != Some(group) && self.is_alive() => {
                Ok(signal_group(group, Signal::KILL)?)
            }
            Some(_) | None => self.signal(Signal::KILL),
        }
    }

    /// The process that leads the session it belongs to; `None` if that is in another container.
    pub fn session_leader(&self) -> Option<u32> {
        u32::try_from(session_leader(raw(self.pid)?)?.as_raw_pid()).ok()
    }

    /// Its program, if the system says.
    pub fn program(&self) -> Option<PathBuf> {
        program(self.pid)
    }

    /// Its arguments, if the system says.
    pub fn arguments(&self) -> Vec<String> {
        let line = arguments(self.pid).unwrap_or_default();
        let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }
}

/// The ids of all processes; `None` if the system does not list them.
pub fn all() -> Option<impl Iterator<Item = u32>> {
    let entries = shown::folder()?.filter_map(std::result::Result::ok);
    Some(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// The file that a process runs.
pub fn program(pid: u32) -> Option<PathBuf> {
    shown::link(pid, "exe")
}

/// A path that leads to our own program, on Linux even if the file at its path was replaced.
pub fn own_program() -> PathBuf {
    if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { std::env::current_exe().unwrap_or_default() }
}

/// The command line of a process, a 0 byte after each argument; empty once it has ended.
pub fn arguments(pid: u32) -> Option<Vec<u8>> {
    shown::memory(pid, "cmdline")
}

/// The environment in which a process was started, a 0 byte after each variable.
pub fn environment(pid: u32) -> Option<Vec<u8>> {
    shown::memory(pid, "environ")
}

/// The first process that a process of one thread has started and that has not been reaped.
pub fn child(pid: u32) -> Option<u32> {
    let children = shown::file(pid, &format!("task/{pid}/children"))?;
    String::from_utf8_lossy(&children).split_whitespace().next()?.parse().ok()
}

pub fn parent(pid: u32) -> Option<u32> {
    stat_fields(&stat(pid)?)?.nth(PARENT)?.parse().ok()
}

/// The name of the terminal that a process has, such as `pts/3`.
pub fn terminal(pid: u32) -> Option<String> {
    terminal_named(stat_fields(&stat(pid)?)?.nth(TERMINAL)?.parse().ok()?)
}

/// When a process started, in ticks since the boot; `None` if it has exited.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "elsewhere this is not read from a text"))]
pub fn started_ticks(pid: u32) -> Option<u64> {
    // In portable mode this stands for the call of macOS.
    ticks_of(&String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/stat")).ok()?))
}

/// What `/proc` has of a process. Other systems have no such folder.
pub(super) mod shown {
    use std::fmt::Display;
    use std::fs::{File, ReadDir};
    use std::io::{self, Read as _};
    use std::path::PathBuf;

    use crate::os::portable::is_portable;

    /// Most command lines and environments fit. In bytes.
    const FIRST_READ_BYTES: usize = 64 * 1024;

    /// Linux allows a quarter of the stack, at most 6 MiB, for both together. Source: execve(2).
    const LAST_READ_BYTES: usize = 8 * 1024 * 1024;

    fn has_folder() -> Option<()> {
        (!is_portable()).then_some(())
    }

    pub(in crate::os) fn folder() -> Option<ReadDir> {
        has_folder()?;
        std::fs::read_dir("/proc").ok()
    }

    pub(in crate::os) fn file(pid: impl Display, name: &str) -> Option<Vec<u8>> {
        has_folder()?;
        std::fs::read(format!("/proc/{pid}/{name}")).ok()
    }

    /// A text that the kernel takes from the memory of a process. Empty once it has ended.
    pub(super) fn memory(pid: impl Display, name: &str) -> Option<Vec<u8>> {
        has_folder()?;
        let path = format!("/proc/{pid}/{name}");
        from_memory(|text| File::open(&path)?.read(text))
    }

    /// The text that `read` puts into an empty buffer, from its beginning at each call. It is read at once: a process that ends or
    /// becomes another between two reads would leave a text that is cut off or mixed.
    pub(super) fn from_memory(mut read: impl FnMut(&mut [u8]) -> io::Result<usize>) -> Option<Vec<u8>> {
        let mut size = FIRST_READ_BYTES;
        while size <= LAST_READ_BYTES {
            let mut text = vec![0; size];
            let length = read(&mut text).ok()?;
            if length < size {
                text.truncate(length);
                return Some(text);
            }
            size *= 2;
        }
        None
    }

    pub(in crate::os) fn link(pid: impl Display, name: &str) -> Option<PathBuf> {
        has_folder()?;
        std::fs::read_link(format!("/proc/{pid}/{name}")).ok()
    }
}

fn stat(pid: u32) -> Option<String> {
    Some(String::from_utf8_lossy(&shown::file(pid, "stat")?).into_owned())
}

/// The fields of `/proc/PID/stat` from the state on, which is field 3 of proc(5). The name of a process, before it, may contain
/// anything, so the fields are counted from its end.
fn stat_fields(stat: &str) -> Option<std::str::SplitAsciiWhitespace<'_>> {
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace())
}

/// Fields of proc(5), counted from the state on: 4, 7 and 22.
const PARENT: usize = 1;
const TERMINAL: usize = 4;
const STARTED: usize = 19;

/// The start time in a line of `/proc/PID/stat`; `None` if the process has exited.
fn ticks_of(stat: &str) -> Option<u64> {
    let mut fields = stat_fields(stat)?;
    if matches!(fields.clone().next()?, "Z" | "X") {
        return None;
    }
    fields.nth(STARTED)?.parse().ok()
}

/// When a process started: the boot, and the clock ticks since then.
#[cfg(target_os = "linux")]
fn started(pid: u32) -> Option<String> {
    let ticks = started_ticks(pid)?;
    Some(format!("{}:{ticks}", super::clocks::boot_id().unwrap_or_default()))
}

/// The name of a terminal by its device. Source: devices.txt of Linux: pseudo terminals have the major numbers 136 to 143, and the
/// consoles 4 with minor numbers below 64.
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

    #[test]
    fn text_of_a_process_that_ends_while_it_is_read_is_whole_or_empty() {
        for length in [0, 1, 31, 32, 33, 65_535, 65_536, 65_537, 300_000, 8 * 1024 * 1024 - 1, 8 * 1024 * 1024] {
            for reads_left in 0..10_u32 {
                let whole: Vec<u8> = (0..=250).cycle().take(length).collect();
                let mut reads = 0;
                let text = shown::from_memory(|text| {
                    reads += 1;
                    let read = if reads > reads_left { 0 } else { whole.len().min(text.len()) };
                    text[..read].copy_from_slice(&whole[..read]);
                    Ok(read)
                });
                let is_too_long = length == 8 * 1024 * 1024 && reads_left >= 8;
                let is_right = text.as_ref().map_or(is_too_long, |text| text.is_empty() || *text == whole);
                assert!(is_right, "{length}, {reads_left}: {:?}", text.map(|text| text.len()));
            }
        }
    }

    #[test]
    fn command_line_and_environment_of_a_process_are_read() {
        let mut child =
            Command::new("sleep").arg("600").env("OF_THE_TEST", "x".repeat(100_000)).spawn().expect("it runs");
        if cfg!(target_os = "linux") {
            assert_eq!(arguments(child.id()).as_deref(), Some(&b"sleep\x00600\0"[..]));
            let environment = environment(child.id()).expect("it is ours");
            assert!(
                environment.split(|byte| *byte == 0).any(|variable| variable.len() == "OF_THE_TEST=".len() + 100_000)
            );
        }
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
    }

    #[test]
    fn names_of_processes_do_not_confuse() {
        let line = "7 (a) Z (b 1) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 10";
        assert_eq!(ticks_of(line), Some(4711));
        assert_eq!(ticks_of(&line.replace(" S ", " Z ")), None);
        assert_eq!(ticks_of("7 (a) S 1"), None);
        assert_eq!(ticks_of(""), None);
    }
}
