//! The process of a context engine, and the threads at its pipes.
//!
//! Each pipe has its own thread, so other threads never wait for a pipe. The queued input is bounded in lines, a line
//! of output in bytes, and output that answers no call in total bytes. An engine that exceeds one of the last two
//! limits is broken; its process group is killed. The process ends with the thread that started it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{self, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::os::keeper::{self, Keeper};
use crate::os::launch;
use crate::os::processes::{Pid, signal_group};
use crate::os::signals::Signal;
use crate::secrets::redacted;

/// Limit of an output line, in bytes.
const LINE_BYTES_MAX: usize = 8 << 20;

/// Limit of output that answers no call since the last valid answer, in bytes.
const UNMATCHED_BYTES_MAX: usize = 1 << 20;

/// Limit of queued input lines. The worker stays far below it.
const LINES_WAITING_MAX: usize = 64;

/// Limit of remembered unanswered calls; beyond it, the oldest is forgotten.
const OPEN_MAX: usize = 1_024;

/// Bytes per write; each completed write proves that the engine reads.
const WRITE_BYTES: usize = 16 << 10;

/// How long an engine may take to end after SIGTERM, until SIGKILL.
const LAST_WAIT_MAX: Duration = Duration::from_millis(20);

/// Limit of stderr lines logged per run.
const STDERR_LINES_MAX: usize = 1_000;

/// Limit of a logged stderr line, in bytes.
const STDERR_LINE_BYTES_MAX: usize = 1_000;

const CHUNK_BYTES: usize = 64 << 10;

const STACK_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(super) enum Output {
    /// An answer to a call.
    Answer { id: u64, answer: Result<Box<RawValue>, String>, bytes: usize },
    /// A violation of a limit.
    Broken(&'static str),
    /// The engine has closed its stdout.
    Ended,
}

/// A running engine.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    keeper: Keeper,
    lines: Option<SyncSender<Vec<u8>>>,
    /// Number of lines sent.
    sent: u64,
    /// The number of bytes that the engine had read at the last check, and when that last changed.
    seen: (u64, Instant),
    progress: Arc<PipeProgress>,
    /// Disconnected once all input is written or cannot be.
    written: Receiver<()>,
}

/// The state that the pipe threads share.
#[derive(Debug, Default)]
struct PipeProgress {
    written_lines: AtomicU64,
    written_bytes: AtomicU64,
    /// Calls that are not answered, whether in time or late.
    open: Mutex<BTreeSet<u64>>,
}

impl PipeProgress {
    fn add_open(&self, id: u64) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= OPEN_MAX {
            open.pop_first();
        }
        open.insert(id);
    }

    /// Removes a call; returns whether it was unanswered.
    fn remove_open(&self, id: u64) -> bool {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&id)
    }
}

/// The input queue is full.
#[derive(Debug)]
pub(super) struct InputFull;

impl Process {
    /// Starts `command`. Another thread passes its output to `on_output`, which may block. `has_read` is called when the
    /// engine has read a line, and must not block. The process is killed when this one ends: see [`keeper::spawn`].
    pub(super) fn start(
        command: &[String],
        session_id: &str,
        on_output: impl Fn(Output) + Send + 'static,
        has_read: impl Fn() + Send + 'static,
    ) -> io::Result<Process> {
        let (program, args) = command.split_first().ok_or_else(|| io::Error::other("it has no program"))?;
        let mut command = Command::new(program);
        command.args(args).env("CODEX_SHIM_SESSION", session_id).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        launch::restore_file_size_signal(&mut command);
        let (mut child, keeper) = keeper::spawn(&mut command, Signal::KILL)?;
        let taken = "BUG: the stream was requested as a pipe";
        let stdin = child.stdin.take().expect(taken);
        let stdout = child.stdout.take().expect(taken);
        let stderr = child.stderr.take().expect(taken);
        let (lines, to_write) = sync_channel(LINES_WAITING_MAX);
        let (done, written) = sync_channel(1);
        let progress = Arc::new(PipeProgress::default());
        let (for_writer, for_listener) = (Arc::clone(&progress), Arc::clone(&progress));
        let (lines, seen) = (Some(lines), (0, Instant::now()));
        let process = Process { child, keeper, lines, sent: 0, seen, progress, written };
        let threads = thread("engine-stdin", move || {
            write_all(stdin, &to_write, &for_writer, &has_read);
            let _ = done.send(());
        })
        .and_then(|()| thread("engine-stdout", move || listen(stdout, &for_listener, &on_output)))
        .and_then(|()| thread("engine-stderr", move || log(stderr)));
        match threads {
            Ok(()) => Ok(process),
            Err(error) => {
                process.kill();
                Err(error)
            }
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Queues the line of call `id` without waiting; returns the number of the line.
    pub(super) fn send(&mut self, id: u64, line: Vec<u8>) -> Result<u64, InputFull> {
        if self.unread() == 0 {
            self.seen.1 = Instant::now();
        }
        self.progress.add_open(id);
        self.lines.as_ref().and_then(|lines| lines.try_send(line).ok()).ok_or(InputFull)?;
        self.sent += 1;
        Ok(self.sent)
    }

    /// The number of lines that are not in the pipe yet.
    pub(super) fn unread(&self) -> u64 {
        self.sent - self.progress.written_lines.load(Ordering::SeqCst)
    }

    /// Whether the line of this number is in the pipe.
    pub(super) fn has_read(&self, number: u64) -> bool {
        number <= self.progress.written_lines.load(Ordering::SeqCst)
    }

    /// Updates the read progress.
    pub(super) fn update_progress(&mut self, now: Instant) {
        let bytes = self.progress.written_bytes.load(Ordering::SeqCst);
        if bytes != self.seen.0 {
            self.seen = (bytes, now);
        }
    }

    /// Since when the engine has read nothing of its queued input; `None` if none is queued.
    pub(super) fn stalled_since(&self) -> Option<Instant> {
        (self.unread() > 0).then_some(self.seen.1)
    }

    /// Kills the process group without waiting.
    pub(super) fn kill(self) {
        self.signal(Signal::KILL);
        self.reap();
    }

    /// Sends `last`, the line of call `id`, and closes the input; waits for the process to end, for `wait_max` at most,
    /// then sends SIGTERM and soon SIGKILL.
    pub(super) fn end(mut self, id: u64, last: Vec<u8>, wait_max: Duration) {
        let due = Instant::now() + wait_max;
        let _ = self.send(id, last);
        self.lines = None;
        let _ = self.written.recv_timeout(wait_max);
        if !self.wait_for_exit(due) {
            self.signal(Signal::TERM);
            if !self.wait_for_exit(due + LAST_WAIT_MAX) {
                self.signal(Signal::KILL);
            }
        }
    }

    /// Waits until `due` for the process to end. The system offers no wait with a limit.
    fn wait_for_exit(&mut self, due: Instant) -> bool {
        while matches!(self.child.try_wait(), Ok(None)) {
            if due <= Instant::now() {
                return false;
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
        self.keeper.reaped();
        true
    }

    /// The child is not reaped yet, so its process id cannot belong to another process.
    fn signal(&self, signal: Signal) {
        if let Err(error) = signal_group(Pid::from_child(&self.child), signal) {
            tracing::debug!(%error, "signal the context engine");
        }
    }

    fn reap(self) {
        let (mut child, mut keeper) = (self.child, self.keeper);
        if !matches!(child.try_wait(), Ok(None)) {
            return keeper.reaped();
        }
        let reaping = thread("engine-reap", move || {
            let _ = child.wait();
            keeper.reaped();
        });
        if let Err(error) = reaping {
            tracing::warn!(%error, "start a thread to reap the killed context engine");
        }
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(work).map(|_| ())
}

fn write_all(mut stdin: ChildStdin, lines: &Receiver<Vec<u8>>, progress: &PipeProgress, has_read: &impl Fn()) {
    for line in lines {
        for bytes in line.chunks(WRITE_BYTES) {
            if let Err(error) = stdin.write_all(bytes) {
                // The reader of stdout detects the end.
                tracing::debug!(%error, "write to the context engine");
                return;
            }
            progress.written_bytes.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        }
        progress.written_lines.fetch_add(1, Ordering::SeqCst);
        has_read();
    }
}

fn listen(stdout: ChildStdout, progress: &PipeProgress, on_output: &impl Fn(Output)) {
    let mut unmatched_bytes = 0;
    let broken = read_lines(stdout, LINE_BYTES_MAX, |line| {
        match read_answer(line).filter(|(id, _)| progress.remove_open(*id)) {
            Some((id, answer)) => {
                unmatched_bytes = 0;
                on_output(Output::Answer { id, answer, bytes: line.len() });
            }
            None => {
                if unmatched_bytes == 0 {
                    tracing::warn!("the context engine has written a line that answers no call");
                }
                unmatched_bytes += line.len() + 1;
            }
        }
        unmatched_bytes <= UNMATCHED_BYTES_MAX
    });
    match broken {
        ReadEnd::End => on_output(Output::Ended),
        ReadEnd::LongLine => on_output(Output::Broken("it has written a line of over 8 MiB")),
        ReadEnd::Declined => on_output(Output::Broken("it has written over 1 MiB that answers no call")),
    }
}

/// Reads an answer: its id, and its result or error.
fn read_answer(line: &[u8]) -> Option<(u64, Result<Box<RawValue>, String>)> {
    #[derive(Deserialize)]
    struct EngineAnswer {
        id: Value,
        #[serde(default)]
        result: Option<Box<RawValue>>,
        #[serde(default)]
        error: Option<Value>,
    }
    let EngineAnswer { id, result, error } = serde_json::from_slice(line).ok()?;
    let id = id.as_u64().or_else(|| id.as_str()?.parse().ok())?;
    let answer = match (result, error) {
        (_, Some(error)) => Err(match error["message"].as_str().or_else(|| error.as_str()) {
            Some(message) => message.to_owned(),
            None => error.to_string(),
        }),
        (Some(result), None) => Ok(result),
        // A `null` result is valid.
        (None, None) => Ok(RawValue::NULL.to_owned()),
    };
    Some((id, answer))
}

fn log(stderr: ChildStderr) {
    let mut lines = 0;
    let mut say = |line: &[u8]| {
        lines += 1;
        if lines <= STDERR_LINES_MAX {
            let line = String::from_utf8_lossy(line);
            // Redacts before the cut: half of a secret is not recognizable.
            let line = redacted(&line).map_or(line, Cow::Owned);
            tracing::info!("context engine: {}", &line[..line.floor_char_boundary(STDERR_LINE_BYTES_MAX)]);
        }
        true
    };
    let mut stderr = stderr;
    // A line over the limit is dropped and reading goes on, so that the engine never blocks on stderr.
    while read_lines(&mut stderr, CHUNK_BYTES, &mut say) == ReadEnd::LongLine {}
}

#[derive(Debug, PartialEq, Eq)]
enum ReadEnd {
    End,
    /// A line exceeds the limit.
    LongLine,
    /// `take` wants no more.
    Declined,
}

/// Passes each line of at most `bytes_max` to `take` until that returns false.
fn read_lines(mut from: impl Read, bytes_max: usize, mut take: impl FnMut(&[u8]) -> bool) -> ReadEnd {
    let (mut chunk, mut line) = (vec![0; CHUNK_BYTES], Vec::new());
    loop {
        let read = match from.read(&mut chunk) {
            Ok(0) => return ReadEnd::End,
            Ok(read) => &chunk[..read],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return ReadEnd::End,
        };
        let mut rest = read;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            line.extend_from_slice(&rest[..end]);
            if !take(&line) {
                return ReadEnd::Declined;
            }
            line.clear();
            rest = &rest[end + 1..];
        }
        if line.capacity() > CHUNK_BYTES && line.is_empty() {
            line = Vec::new();
        }
        line.extend_from_slice(rest);
        if line.len() > bytes_max {
            return ReadEnd::LongLine;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_distinguished_from_other_output() {
        let check = |line: &str, expect: Option<(u64, Result<&str, &str>)>| {
            let read = read_answer(line.as_bytes());
            let told = read
                .as_ref()
                .map(|(id, answer)| (*id, answer.as_ref().map(|result| result.get()).map_err(String::as_str)));
            assert_eq!(told, expect, "{line}");
        };
        check(r#"{"id":1,"result":{"a":1}}"#, Some((1, Ok(r#"{"a":1}"#))));
        check(r#"{"id":"1","result":null,"x":2}"#, Some((1, Ok("null"))));
        check(r#"{"id":1}"#, Some((1, Ok("null"))));
        check(r#"{"id":1,"error":{"message":"no"}}"#, Some((1, Err("no"))));
        check(r#"{"id":1,"error":"no"}"#, Some((1, Err("no"))));
        check(r#"{"id":1,"error":{"code":3}}"#, Some((1, Err(r#"{"code":3}"#))));
        for bad in ["", "x", "[]", r#"{"result":1}"#, r#"{"id":-1}"#, r#"{"id":null,"result":1}"#, r#"{"id":1}}"#] {
            check(bad, None);
        }
    }

    #[test]
    fn lines_are_bounded() {
        let mut taken = Vec::new();
        let long = "x".repeat(200_000);
        let stopped = read_lines(format!("a\n\n{long}\nb").as_bytes(), 300_000, |line| {
            taken.push(line.len());
            true
        });
        assert_eq!((stopped, taken), (ReadEnd::End, vec![1, 0, 200_000]));
        assert_eq!(read_lines(long.as_bytes(), 100_000, |_| true), ReadEnd::LongLine);
        assert_eq!(read_lines("a\nb\n".as_bytes(), 9, |_| false), ReadEnd::Declined);
    }
}
