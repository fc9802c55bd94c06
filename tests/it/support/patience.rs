//! Waiting for a condition, with a limit; and stopping a process.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Limit on any wait in a test. It is not a performance figure: a busy machine is slow.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `condition` returns a value, and polls it meanwhile.
///
/// # Panics
///
/// After [`PATIENCE`], with `what` in the message.
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: it did not come");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Stops a process with `SIGSTOP`, and returns once it runs no more. A thread that the kernel has not stopped yet could still
/// read and answer a line.
///
/// # Panics
///
/// If there is no such process, or it does not stop in [`PATIENCE`].
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
