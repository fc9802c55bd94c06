//! Running something for a bounded time.
//!
//! It runs in a process group of its own, which is killed as a whole where it takes too long, or where a signal ends us meanwhile: a
//! launcher that dies leaves what it has launched. Where it ends by itself and leaves something running, that is its own affair.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::cli::kept_back::KeptBack;

/// How often a program is looked at that has not ended.
const LOOK_WAIT: Duration = Duration::from_millis(10);

/// The most that is read of what it prints, in bytes.
const PRINTED_BYTES_MAX: u64 = 64 << 10;

/// What came of running a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ran {
    /// It has ended well, and printed this.
    Well(String),
    /// It has ended otherwise, or could not be started, in words.
    Badly(String),
    /// It did not end in time, and was killed.
    TooSlow,
}

/// Runs `command` for at most `wait_max`. What it prints beyond a pipe's room is waited for by nobody.
pub(super) fn run(command: &mut Command, wait_max: Duration) -> Ran {
    // In a group of its own it does not get what the terminal sends us.
    let kept_back = match KeptBack::begin() {
        Ok(kept_back) => kept_back,
        Err(error) => return Ran::Badly(format!("signals cannot be listened for: {error}")),
    };
    let ran = run_in_group(command, wait_max, kept_back);
    kept_back.let_go_and_obey();
    ran
}

fn run_in_group(command: &mut Command, wait_max: Duration, kept_back: &KeptBack) -> Ran {
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ran::Badly(format!("it cannot be started: {error}")),
    };
    let began = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if began.elapsed() >= wait_max || kept_back.has_come() => {
                kill(&mut child);
                return Ran::TooSlow;
            }
            Ok(None) => std::thread::park_timeout(LOOK_WAIT),
            Err(error) => return Ran::Badly(format!("it cannot be waited for: {error}")),
        }
    };
    let mut printed = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        // What it left running may hold its end open: only what is there already counts.
        let _ = rustix::fs::fcntl_setfl(&stdout, rustix::fs::OFlags::NONBLOCK);
        let _ = stdout.take(PRINTED_BYTES_MAX).read_to_end(&mut printed);
    }
    if status.success() {
        Ran::Well(String::from_utf8_lossy(&printed).trim().to_owned())
    } else {
        Ran::Badly(status.to_string())
    }
}

/// Kills one that has not been reaped with all that it has started, and reaps it.
fn kill(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended by itself meanwhile.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_waited_for_so_long() {
        let sh = |script: &str| run(Command::new("sh").args(["-c", script]), Duration::from_secs(20));
        assert_eq!(sh("echo hi; sleep 60 &"), Ran::Well("hi".to_owned()));
        assert!(matches!(sh("exit 3"), Ran::Badly(why) if why.contains('3')));
        assert_eq!(run(Command::new("sleep").arg("60"), Duration::from_millis(30)), Ran::TooSlow);
        assert!(matches!(run(&mut Command::new("/nowhere"), Duration::from_secs(1)), Ran::Badly(_)));
    }

    #[test]
    fn a_launcher_that_is_too_slow_goes_with_what_it_has_launched() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let pid_file = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", pid_file.display());
        assert_eq!(run(Command::new("sh").args(["-c", &script]), Duration::from_secs(3)), Ran::TooSlow);
        let pid = std::fs::read_to_string(pid_file).expect("it was begun");
        let stat = format!("/proc/{}/stat", pid.trim());
        let began = Instant::now();
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(began.elapsed() < Duration::from_secs(60), "it runs on");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}
