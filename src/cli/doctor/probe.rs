//! Running something for a bounded time.
//!
//! It runs in a process group of its own, which is killed as a whole where it takes too long, or where a signal ends us meanwhile: a
//! launcher that dies leaves what it has launched. Where it ends by itself and leaves something running, that is its own affair.

use std::io::{ErrorKind, Read, Write as _};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::cli::kept_back::KeptBack;

/// How often a program is looked at that has not ended.
const LOOK_WAIT: Duration = Duration::from_millis(10);

/// The most that is read of what it prints, in bytes.
const PRINTED_BYTES_MAX: usize = 64 << 10;

/// How often a stream is read before its program is looked at again.
const ROUND_READS_MAX: usize = 64;

/// Limits for the output of a failed program in a message, in lines and in characters.
const SHOWN_LINES_MAX: usize = 3;
const SHOWN_CHARS_MAX: usize = 300;

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

/// Runs `command` for at most `wait_max`.
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
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ran::Badly(format!("it cannot be started: {error}")),
    };
    let mut printed = (Printed::default(), Printed::default());
    let began = Instant::now();
    let status = loop {
        printed.0.take(child.stdout.as_mut());
        printed.1.take(child.stderr.as_mut());
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
    printed.0.take(child.stdout.as_mut());
    printed.1.take(child.stderr.as_mut());
    if status.success() {
        Ran::Well(printed.0.text().trim().to_owned())
    } else {
        Ran::Badly(printed.1.why(status.to_string()))
    }
}

/// Result of a request to a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    /// The first line that it has printed.
    Line(String),
    /// The program ended, or could not start; the reason.
    Ended(String),
    /// The program printed no line in time.
    TooSlow,
}

/// Starts `command`, writes a short request to its stdin, waits at most `wait_max` for a line on its stdout, and kills it.
pub(super) fn ask(command: &mut Command, request: &str, wait_max: Duration) -> Asked {
    let kept_back = match KeptBack::begin() {
        Ok(kept_back) => kept_back,
        Err(error) => return Asked::Ended(format!("signals cannot be listened for: {error}")),
    };
    let asked = ask_in_group(command, request, wait_max, kept_back);
    kept_back.let_go_and_obey();
    asked
}

fn ask_in_group(command: &mut Command, request: &str, wait_max: Duration, kept_back: &KeptBack) -> Asked {
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Asked::Ended(format!("it cannot be started: {error}")),
    };
    // A short request has room in the pipe. A program that has ended already is seen below.
    let written = child.stdin.as_mut().map(|stdin| stdin.write_all(request.as_bytes()));
    let mut printed = (Printed::default(), Printed::default());
    let began = Instant::now();
    let mut is_reaped = false;
    let asked = loop {
        // Asks for the status before the last read, so that no output from before the end is lost.
        let status = child.try_wait();
        is_reaped |= matches!(status, Ok(Some(_)));
        printed.0.take(child.stdout.as_mut());
        printed.1.take(child.stderr.as_mut());
        if let Some(line) = printed.0.first_line() {
            break Asked::Line(line);
        }
        match status {
            Ok(Some(status)) => break Asked::Ended(printed.1.why(status.to_string())),
            Ok(None) if began.elapsed() >= wait_max || kept_back.has_come() => break Asked::TooSlow,
            Ok(None) => std::thread::park_timeout(LOOK_WAIT),
            Err(error) => break Asked::Ended(format!("it cannot be waited for: {error}")),
        }
    };
    drop(written);
    if !is_reaped {
        kill(&mut child);
    }
    asked
}

/// The first bytes that a program prints on a stream; anything behind them is read and dropped.
#[derive(Debug, Default)]
struct Printed(Vec<u8>);

impl Printed {
    /// Reads the available bytes and never waits: a program that was left running may hold the other end open.
    fn take(&mut self, stream: Option<&mut (impl Read + AsFd)>) {
        let Some(stream) = stream else { return };
        let _ = rustix::fs::fcntl_setfl(stream.as_fd(), rustix::fs::OFlags::NONBLOCK);
        let mut buffer = [0; 4096];
        // A program that prints without end is looked at between two of these rounds.
        for _ in 0..ROUND_READS_MAX {
            let read = match stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            let room = PRINTED_BYTES_MAX.saturating_sub(self.0.len());
            self.0.extend_from_slice(&buffer[..read.min(room)]);
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }

    /// The first line, or the part of it that fits.
    fn first_line(&self) -> Option<String> {
        let end = self.0.iter().position(|byte| *byte == b'\n');
        let end = end.or_else(|| (self.0.len() == PRINTED_BYTES_MAX).then_some(PRINTED_BYTES_MAX))?;
        Some(String::from_utf8_lossy(&self.0[..end]).into_owned())
    }

    /// How a program has ended, with the first lines that it has printed.
    fn why(&self, status: String) -> String {
        let text = self.text();
        let lines: Vec<&str> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).take(SHOWN_LINES_MAX).collect();
        let shown: String = lines.join("; ").chars().take(SHOWN_CHARS_MAX).collect();
        if shown.is_empty() { status } else { format!("{status}: {shown}") }
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
