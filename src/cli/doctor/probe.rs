//! Running something for a bounded time.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ran::Badly(format!("it cannot be started: {error}")),
    };
    let began = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if began.elapsed() >= wait_max => {
                // It may have ended by itself meanwhile.
                let _ = child.kill();
                let _ = child.wait();
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
}
