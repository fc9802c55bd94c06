//! The demo's client: writes and reads lines, and waits with a timeout.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdin, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::message::Message;
use super::{DemoResult, line_of, write_line};

/// Timeout of every wait. It only bounds a hang: on a machine that is busy with a build, a relay and its server take many
/// seconds to start.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// How often a wait checks for an interrupt.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Set by SIGINT or SIGTERM; the demo then cleans up and exits.
static TOLD_TO_END: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Makes SIGINT and SIGTERM end the current wait rather than the process.
pub(super) fn listen_for_the_end() -> std::io::Result<()> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&TOLD_TO_END))?;
    }
    Ok(())
}

/// Fails if a signal has told the demo to end.
pub(super) fn check_told_to_end() -> DemoResult<()> {
    if TOLD_TO_END.load(Ordering::Relaxed) { Err("interrupted".to_owned()) } else { Ok(()) }
}

/// Most received lines that are buffered.
const LINES_AHEAD_MAX: usize = 1_024;

/// A client and its server process.
pub(super) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// All of stderr, once it is closed.
    stderr: Receiver<String>,
    received: Vec<String>,
}

impl Client {
    /// Starts `command` with piped stdio.
    pub(super) fn start(mut command: Command) -> DemoResult<Client> {
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
        let (send, stderr) = sync_channel(1);
        if let Some(mut from) = child.stderr.take() {
            std::thread::spawn(move || {
                let mut said = Vec::new();
                // After an error, the text read so far is reported.
                let _ = from.read_to_end(&mut said);
                send.send(String::from_utf8_lossy(&said).into_owned())
            });
        }
        Ok(Client { child, stdin, lines, stderr, received: Vec::new() })
    }

    pub(super) fn send(&mut self, message: &Value) -> DemoResult<()> {
        self.write(&line_of(message))
    }

    /// Waits for a message and skips those before it.
    pub(super) fn wait(&mut self, wanted: impl Fn(&Message) -> bool) -> DemoResult<Message> {
        loop {
            let line = self.next()?;
            let message = Message::parse(&line)?;
            self.received.push(line);
            if wanted(&message) {
                return Ok(message);
            }
        }
    }

    /// The time from sending a line to receiving its echo.
    pub(super) fn round_trip(&mut self, message: &Value) -> DemoResult<Duration> {
        let line = line_of(message);
        let began = Instant::now();
        self.write(&line)?;
        self.next()?;
        Ok(began.elapsed())
    }

    /// Writes lines as fast as possible, kills the server process once `lines_min` have come back, and returns all received
    /// lines.
    pub(super) fn storm_until_killed(&mut self, lines_min: usize) -> DemoResult<Vec<String>> {
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
    pub(super) fn finish(mut self) -> DemoResult<Vec<String>> {
        drop(self.stdin.take());
        let mut received = std::mem::take(&mut self.received);
        received.extend(self.lines.iter());
        let status = self.child.wait().map_err(|error| format!("wait for the relay: {error}"))?;
        if status.success() { Ok(received) } else { Err(format!("the relay ended with {status}")) }
    }

    fn next(&mut self) -> DemoResult<String> {
        let began = Instant::now();
        loop {
            match self.lines.recv_timeout(LOOK_EVERY) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Timeout) if began.elapsed() < PATIENCE => check_told_to_end()?,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("nothing came back from the relay in {}s", PATIENCE.as_secs()));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    check_told_to_end()?;
                    return Err(self.how_it_ended());
                }
            }
        }
    }

    /// The exit status of a relay that closed its output too early, and the last line of its stderr.
    fn how_it_ended(&mut self) -> String {
        // A relay that has closed stdout exits by itself, unless it hangs.
        drop(self.stdin.take());
        let status = match self.child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let said = self.stderr.recv_timeout(PATIENCE).unwrap_or_default();
        let said = said.lines().last().map(|line| format!(": {line}")).unwrap_or_default();
        format!("the relay ended too early with {status}{said}")
    }

    fn write(&mut self, line: &str) -> DemoResult<()> {
        write_line(self.stdin.as_mut().ok_or("stdin is closed")?, line)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_relay_that_ends_early_is_named_with_its_reason() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'codex-shim: no space' >&2; exit 3"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = Client::start(command).expect("sh starts");
        let why = client.wait(|_| true).expect_err("nothing is printed");
        assert_eq!(why, "the relay ended too early with exit status: 3: codex-shim: no space");
    }
}
