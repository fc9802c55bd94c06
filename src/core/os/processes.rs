//! Processes: their groups, the facts that the system shows of them, and their identity, so that one that was recorded earlier
//! is recognized.
//!
//! A process id alone identifies nothing, because the system uses it again. Together with the start time and the boot it does.
//!
//! What the systems show is read in `facts`.
//!
//! Nothing here starts a process.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Signals go to a process or to the group that it leads. The caller knows that it has not been reaped: otherwise another one may have
/// its id.
pub use rustix::process::{Pid, kill_process as signal, kill_process_group as signal_group, setsid as begin_session};
use rustix::process::{WaitOptions, test_kill_process, waitpid};
use serde::{Deserialize, Serialize};

use super::facts::{self, Facts};
use super::signals::Signal;
use super::{Errno, Result};

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
        Facts::of(pid).map(|facts| ProcessIdentity { pid, started: facts.started })
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
                match signal_group(group, Signal::KILL) {
                    // It has exited meanwhile: macOS refuses a group of which no process runs.
                    Err(Errno::PERM) if !self.is_alive() => Ok(()),
                    killed => Ok(killed?),
                }
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
pub fn all() -> Option<Vec<u32>> {
    facts::all()
}

/// The file that a process runs.
pub fn program(pid: u32) -> Option<PathBuf> {
    facts::program(pid)
}

/// A path that leads to our own program, on Linux even if the file at its path was replaced.
pub fn own_program() -> PathBuf {
    if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { std::env::current_exe().unwrap_or_default() }
}

/// The command line of a process, a 0 byte after each argument; empty once it has ended.
pub fn arguments(pid: u32) -> Option<Vec<u8>> {
    facts::arguments(pid)
}

/// The environment in which a process was started, a 0 byte after each variable.
pub fn environment(pid: u32) -> Option<Vec<u8>> {
    facts::environment(pid)
}

/// The first process that a process of one thread has started and that has not been reaped.
pub fn child(pid: u32) -> Option<u32> {
    facts::children(pid)?.first().copied()
}

/// The children that this process has and that no thread of it knows: those of the program that ran in it before. Call it before any
/// thread is started.
pub fn inherited_children() -> Vec<u32> {
    facts::children(std::process::id()).unwrap_or_default()
}

/// Reaps a child if it has ended. Returns whether this process has no such child any more.
pub fn is_reaped(child: u32) -> bool {
    raw(child).is_none_or(|child| !matches!(waitpid(Some(child), WaitOptions::NOHANG), Ok(None)))
}

/// The process that has started one which runs, or the one that has taken its place.
pub fn parent(pid: u32) -> Option<u32> {
    Some(Facts::of(pid)?.parent)
}

/// The name of the terminal that a process has, such as `pts/3` or `ttys003`.
pub fn terminal(pid: u32) -> Option<String> {
    Facts::of(pid)?.terminal
}

/// The folder that a process is in.
pub fn folder(pid: u32) -> Option<PathBuf> {
    facts::folder(pid)
}

/// The files that a process of the same user has open to write to.
pub fn written_files(pid: u32, is_wanted: impl Fn(&Path) -> bool) -> Option<Vec<PathBuf>> {
    facts::written_files(pid, is_wanted)
}

/// When a process was started, in seconds since the Unix epoch. If the clock is set, so may this be.
pub fn started_unix_s(pid: u32) -> Option<u64> {
    facts::started_unix_s(pid)
}

/// What `/proc` has of a process. Other systems have no such folder.
pub(super) mod shown {
    use std::fmt::Display;
    use std::path::PathBuf;

    use crate::os::portable::is_portable;

    fn has_folder() -> Option<()> {
        (!is_portable()).then_some(())
    }

    pub(in crate::os) fn file(pid: impl Display, name: &str) -> Option<Vec<u8>> {
        has_folder()?;
        std::fs::read(format!("/proc/{pid}/{name}")).ok()
    }

    pub(in crate::os) fn link(pid: impl Display, name: &str) -> Option<PathBuf> {
        has_folder()?;
        std::fs::read_link(format!("/proc/{pid}/{name}")).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

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
}
