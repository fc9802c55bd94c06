//! Stopping a process.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use super::patience::eventually;

/// Stops a process with `SIGSTOP`, and returns once it no longer runs. A thread that the kernel has not stopped yet could still
/// read and answer a line.
///
/// # Panics
///
/// If there is no such process, or it does not stop in [`super::PATIENCE`].
pub fn stop(pid: Pid) {
    kill_process(pid, Signal::STOP).expect("the process is there");
    let threads = format!("/proc/{}/task", pid.as_raw_nonzero());
    // Other systems have no such folder.
    if !Path::new(&threads).exists() {
        return;
    }
    eventually("a stopped process", || {
        let mut threads = fs::read_dir(&threads).ok()?.flatten();
        threads.all(|thread| is_stopped(&thread.path())).then_some(())
    });
}

fn is_stopped(thread: &Path) -> bool {
    let stat = fs::read_to_string(thread.join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}
