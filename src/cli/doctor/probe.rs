//! Runs a program with a timeout.
//!
//! The program gets its own process group. On a timeout, or if a signal ends us, the whole group is killed, because killing a
//! launcher alone would leave its children running. Processes that outlive a program that exits by itself are left alone.

use std::io::{ErrorKind, Read, Write as _};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::super::kept_back::KeptBack;

/// Polling interval.
const LOOK_WAIT: Duration = Duration::from_millis(10);

/// Most output that is kept, in bytes.
const PRINTED_BYTES_MAX: usize = 64 << 10;

/// Most reads of a stream between two checks of its program.
const ROUND_READS_MAX: usize = 64;

/// Longest quoted output of a failed program, in lines and in characters.
const SHOWN_LINES_MAX: usize = 3;
const SHOWN_CHARS_MAX: usize = 300;

/// Result of [`run`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ran {
    /// Exited successfully, with this output.
    Well(String),
    /// Failed or could not be started; the reason.
    Badly(String),
    /// Killed after the timeout.
    TooSlow,
}

/// Runs `command` for at most `wait_max`.
pub(super) fn run(command: &mut Command, wait_max: Duration) -> Ran {
    // Its own process group does not receive the signals of the terminal.
    let kept_back = match KeptBack::begin() {
        Ok(kept_back) => kept_back,
        Err(error) => return Ran::Badly(format!("install signal handlers: {error}")),
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

/// Result of [`ask`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    /// The first line of output.
    Line(String),
    /// The program exited or could not be started; the reason.
    Ended(String),
    /// No line before the timeout.
    TooSlow,
}

/// Starts `command`, writes a short request to its stdin, waits at most `wait_max` for a line on its stdout, and kills it.
pub(super) fn ask(command: &mut Command, request: &str, wait_max: Duration) -> Asked {
    let kept_back = match KeptBack::begin() {
        Ok(kept_back) => kept_back,
        Err(error) => return Asked::Ended(format!("install signal handlers: {error}")),
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
    // A short request fits into the pipe. If the program has exited already, that is noticed below.
    let written = child.stdin.as_mut().map(|stdin| stdin.write_all(request.as_bytes()));
    let mut printed = (Printed::default(), Printed::default());
    let began = Instant::now();
    let mut is_reaped = false;
    let asked = loop {
        // The status is read before the last output, so that no output from before the exit is lost.
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

/// The first bytes of a stream; later bytes are read and dropped.
#[derive(Debug, Default)]
struct Printed(Vec<u8>);

impl Printed {
    /// Reads the available bytes and never blocks: a process that was left running may hold the other end open.
    fn take(&mut self, stream: Option<&mut (impl Read + AsFd)>) {
        let Some(stream) = stream else { return };
        let _ = rustix::fs::fcntl_setfl(stream.as_fd(), rustix::fs::OFlags::NONBLOCK);
        let mut buffer = [0; 4096];
        // The limit lets the caller check a program that prints without end.
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

    /// The first line, or the part that was kept.
    fn first_line(&self) -> Option<String> {
        let end = self.0.iter().position(|byte| *byte == b'\n');
        let end = end.or_else(|| (self.0.len() == PRINTED_BYTES_MAX).then_some(PRINTED_BYTES_MAX))?;
        Some(String::from_utf8_lossy(&self.0[..end]).into_owned())
    }

    /// How the program ended, with the first lines of its output.
    fn why(&self, status: String) -> String {
        let text = self.text();
        let lines: Vec<&str> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).take(SHOWN_LINES_MAX).collect();
        let shown: String = lines.join("; ").chars().take(SHOWN_CHARS_MAX).collect();
        if shown.is_empty() { status } else { format!("{status}: {shown}") }
    }
}

/// Kills the process group of a child that has not been reaped, and reaps the child.
fn kill(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have exited meanwhile.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_time_out() {
        let sh = |script: &str| run(Command::new("sh").args(["-c", script]), Duration::from_secs(20));
        assert_eq!(sh("echo hi; sleep 60 &"), Ran::Well("hi".to_owned()));
        assert!(matches!(sh("exit 3"), Ran::Badly(why) if why.contains('3')));
        assert_eq!(run(Command::new("sleep").arg("60"), Duration::from_millis(30)), Ran::TooSlow);
        assert!(matches!(run(&mut Command::new("/nowhere"), Duration::from_secs(1)), Ran::Badly(_)));
    }

    #[test]
    fn slow_launcher_is_killed_with_its_children() {
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
