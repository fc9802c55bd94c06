//! The demo's client: writes and reads lines, and waits with a timeout.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdin, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Outcome, line_of, write_line};

/// Timeout of every wait.
const PATIENCE: Duration = Duration::from_secs(8);

/// How often a wait checks for an interrupt.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Set by SIGINT or SIGTERM; the demo then cleans up and exits.
static TOLD_TO_END: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Makes SIGINT and SIGTERM end the current wait rather than the process.
pub(super) fn listen_for_the_end() -> std::io::Result<()> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&TOLD_TO_END))?;
    }
    Ok(())
}

/// Most received lines that are buffered.
const LINES_AHEAD_MAX: usize = 1_024;

/// A client and its server process.
pub(super) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    received: Vec<String>,
}

impl Client {
    /// Starts `command` with piped stdio.
    pub(super) fn start(mut command: Command) -> Outcome<Client> {
        let mut child = command.spawn().map_err(|error| format!("start {:?}: {error}", command.get_program()))?;
        let stdout = child.stdout.take().ok_or("the relay has no stdout")?;
        let stdin = child.stdin.take();
        let (send, lines) = sync_channel(LINES_AHEAD_MAX);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Client { child, stdin, lines, received: Vec::new() })
    }

    pub(super) fn send(&mut self, message: &Value) -> Outcome<()> {
        self.write(&line_of(message))
    }

    /// Waits for a message and skips those before it.
    pub(super) fn wait(&mut self, wanted: impl Fn(&Value) -> bool) -> Outcome<Value> {
        loop {
            let line = self.next()?;
            let message: Value = serde_json::from_str(&line).map_err(|error| format!("a line is no JSON: {error}"))?;
            self.received.push(line);
            if wanted(&message) {
                return Ok(message);
            }
        }
    }

    /// The time from sending a line to receiving its echo.
    pub(super) fn round_trip(&mut self, message: &Value) -> Outcome<Duration> {
        let line = line_of(message);
        let began = Instant::now();
        self.write(&line)?;
        self.next()?;
        Ok(began.elapsed())
    }

    /// Writes lines as fast as possible, kills the server process once `lines_min` have come back, and returns all received
    /// lines.
    pub(super) fn storm_until_killed(&mut self, lines_min: usize) -> Outcome<Vec<String>> {
        let mut stdin = self.stdin.take().ok_or("stdin is closed")?;
        let writer = std::thread::spawn(move || {
            for number in 0u64.. {
                let line = line_of(&json!({"id": number, "method": "storm", "params": {"fill": "x".repeat(100)}}));
                if write_line(&mut stdin, &line).is_err() {
                    return;
                }
            }
        });
        let mut received = Vec::new();
        while received.len() < lines_min {
            received.push(self.next()?);
        }
        self.child.kill().map_err(|error| format!("kill the relay: {error}"))?;
        received.extend(self.lines.iter());
        // The kill may have cut off the last line, which then does not count as received.
        if received.last().is_some_and(|last| serde_json::from_str::<Value>(last).is_err()) {
            received.pop();
        }
        let _ = writer.join();
        Ok(received)
    }

    /// Closes stdin and returns all received lines.
    pub(super) fn finish(mut self) -> Outcome<Vec<String>> {
        drop(self.stdin.take());
        let mut received = std::mem::take(&mut self.received);
        received.extend(self.lines.iter());
        let status = self.child.wait().map_err(|error| format!("wait for the relay: {error}"))?;
        if status.success() { Ok(received) } else { Err(format!("the relay ended with {status}")) }
    }

    fn next(&mut self) -> Outcome<String> {
        let began = Instant::now();
        loop {
            match self.lines.recv_timeout(LOOK_EVERY) {
                Ok(line) => return Ok(line),
                Err(_) if TOLD_TO_END.load(Ordering::Relaxed) => return Err("interrupted".to_owned()),
                Err(RecvTimeoutError::Timeout) if began.elapsed() < PATIENCE => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Err("nothing came back from the relay".to_owned());
                }
            }
        }
    }

    fn write(&mut self, line: &str) -> Outcome<()> {
        write_line(self.stdin.as_mut().ok_or("stdin is closed")?, line)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
