//! The process of a context engine, and the threads at its pipes.
//!
//! Each pipe has a thread of its own, so nobody else waits for it. What waits to be written is bounded in lines, a line that
//! is read in bytes, and what answers no call in all: an engine that is over one of the last two is broken, and is killed with
//! all that it has started. It does not outlive the thread that has started it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{self, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::parent::end_with_us;
use crate::engine::redacted;

/// Longest line that an engine may write, in bytes.
const LINE_BYTES_MAX: usize = 8 << 20;

/// Bytes that it may write that answer no call, since the last ones that did.
const NONSENSE_BYTES_MAX: usize = 1 << 20;

/// Lines that may wait to be read by it. Whoever sends keeps far below that.
const LINES_WAITING_MAX: usize = 64;

/// Calls whose answers are known as such; of more than these the oldest is forgotten.
const OPEN_MAX: usize = 1_024;

/// Bytes that are written at a time, after which it is known that it reads.
const WRITE_BYTES: usize = 16 << 10;

/// How long its end is waited for once more after it was told to end, until it is killed.
const LAST_WAIT_MAX: Duration = Duration::from_millis(20);

/// Lines of its stderr that are logged, a run.
const STDERR_LINES_MAX: usize = 1_000;

/// Longest line of its stderr that is logged, in bytes.
const STDERR_LINE_BYTES_MAX: usize = 1_000;

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Stack of a thread, in bytes.
const STACK_BYTES: usize = 256 << 10;

/// What is heard of an engine.
#[derive(Debug)]
pub(super) enum Heard {
    /// It has answered a call.
    Answer { id: u64, answer: Result<Box<RawValue>, String>, bytes: usize },
    /// It does what none may.
    Broken(&'static str),
    /// It has closed its stdout.
    Ended,
}

/// An engine that runs.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    lines: Option<SyncSender<Vec<u8>>>,
    /// Lines that were sent.
    sent: u64,
    /// How many bytes it had read, and since when it has read no more.
    seen: (u64, Instant),
    progress: Arc<Progress>,
    /// Told once all that was to be written is, or cannot be.
    written: Receiver<()>,
}

/// How far it is, as the threads at its pipes see it.
#[derive(Debug, Default)]
struct Progress {
    written_lines: AtomicU64,
    written_bytes: AtomicU64,
    /// Calls that it has not answered, in time or late.
    open: Mutex<BTreeSet<u64>>,
}

impl Progress {
    fn opens(&self, id: u64) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= OPEN_MAX {
            open.pop_first();
        }
        open.insert(id);
    }

    /// Whether this call was open; it is no more.
    fn closes(&self, id: u64) -> bool {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&id)
    }
}

/// Too much waits to be read by it already.
#[derive(Debug)]
pub(super) struct NotReading;

impl Process {
    /// Starts `command`; what is heard of it is passed to `hear` from another thread, which may be made to wait. `has_read` is
    /// called when it has read a line, and must not wait. On Linux it is killed when the calling *thread* ends.
    pub(super) fn start(
        command: &[String],
        session_id: &str,
        hear: impl Fn(Heard) + Send + 'static,
        has_read: impl Fn() + Send + 'static,
    ) -> io::Result<Process> {
        let (program, args) = command.split_first().ok_or_else(|| io::Error::other("it has no program"))?;
        let mut command = Command::new(program);
        command.args(args).env("CODEX_SHIM_SESSION", session_id).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        end_with_us(&mut command);
        let mut child = command.spawn()?;
        let taken = "BUG: the stream was asked to be piped";
        let stdin = child.stdin.take().expect(taken);
        let stdout = child.stdout.take().expect(taken);
        let stderr = child.stderr.take().expect(taken);
        let (lines, to_write) = sync_channel(LINES_WAITING_MAX);
        let (done, written) = sync_channel(1);
        let progress = Arc::new(Progress::default());
        let (for_writer, for_listener) = (Arc::clone(&progress), Arc::clone(&progress));
        let process = Process { child, lines: Some(lines), sent: 0, seen: (0, Instant::now()), progress, written };
        let threads = thread("engine-stdin", move || {
            write_all(stdin, &to_write, &for_writer, &has_read);
            let _ = done.send(());
        })
        .and_then(|()| thread("engine-stdout", move || listen(stdout, &for_listener, &hear)))
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

    /// Has the line of call `id` written, and never waits; gives the number of the line.
    pub(super) fn send(&mut self, id: u64, line: Vec<u8>) -> Result<u64, NotReading> {
        if self.unread() == 0 {
            self.seen.1 = Instant::now();
        }
        self.progress.opens(id);
        self.lines.as_ref().and_then(|lines| lines.try_send(line).ok()).ok_or(NotReading)?;
        self.sent += 1;
        Ok(self.sent)
    }

    /// How many lines it has not read, as far as the pipe tells.
    pub(super) fn unread(&self) -> u64 {
        self.sent - self.progress.written_lines.load(Ordering::SeqCst)
    }

    /// Whether it has read the line of this number, as far as the pipe tells.
    pub(super) fn has_read(&self, number: u64) -> bool {
        number <= self.progress.written_lines.load(Ordering::SeqCst)
    }

    /// Sees what it has read.
    pub(super) fn look(&mut self, now: Instant) {
        let bytes = self.progress.written_bytes.load(Ordering::SeqCst);
        if bytes != self.seen.0 {
            self.seen = (bytes, now);
        }
    }

    /// Since when it has read nothing of what waits for it, as it was seen last; `None` where nothing waits.
    pub(super) fn stuck_since(&self) -> Option<Instant> {
        (self.unread() > 0).then_some(self.seen.1)
    }

    /// Kills it with all that it has started, and waits for nothing.
    pub(super) fn kill(self) {
        self.signal(Signal::KILL);
        self.reap();
    }

    /// Has it read `last`, the line of call `id`, and the end of what it is sent; waits until it has ended, at most for
    /// `wait_max`, tells it to, and soon kills it.
    pub(super) fn end(mut self, id: u64, last: Vec<u8>, wait_max: Duration) {
        let due = Instant::now() + wait_max;
        let _ = self.send(id, last);
        self.lines = None;
        let _ = self.written.recv_timeout(wait_max);
        if !self.ends_until(due) {
            self.signal(Signal::TERM);
            if !self.ends_until(due + LAST_WAIT_MAX) {
                self.signal(Signal::KILL);
            }
        }
    }

    /// Waits for its end, which is not told by anything that could be waited for with a limit.
    fn ends_until(&mut self, due: Instant) -> bool {
        while matches!(self.child.try_wait(), Ok(None)) {
            if due <= Instant::now() {
                return false;
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
        true
    }

    /// It is ours until it is reaped, so its number is nobody else's.
    fn signal(&self, signal: Signal) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
            && let Err(error) = kill_process_group(group, signal)
        {
            tracing::debug!(%error, "signal the context engine");
        }
    }

    fn reap(self) {
        let mut child = self.child;
        if let Ok(None) = child.try_wait()
            && let Err(error) = thread("engine-reap", move || drop(child.wait()))
        {
            tracing::warn!(%error, "a context engine that was killed is not waited for");
        }
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(work).map(|_| ())
}

fn write_all(mut stdin: ChildStdin, lines: &Receiver<Vec<u8>>, progress: &Progress, has_read: &impl Fn()) {
    for line in lines {
        for bytes in line.chunks(WRITE_BYTES) {
            if let Err(error) = stdin.write_all(bytes) {
                // Its end is heard elsewhere.
                tracing::debug!(%error, "write to the context engine");
                return;
            }
            progress.written_bytes.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        }
        progress.written_lines.fetch_add(1, Ordering::SeqCst);
        has_read();
    }
}

fn listen(stdout: ChildStdout, progress: &Progress, hear: &impl Fn(Heard)) {
    let mut nonsense_bytes = 0;
    let broken = read_lines(stdout, LINE_BYTES_MAX, |line| {
        match read_answer(line).filter(|(id, _)| progress.closes(*id)) {
            Some((id, answer)) => {
                nonsense_bytes = 0;
                hear(Heard::Answer { id, answer, bytes: line.len() });
            }
            None => {
                if nonsense_bytes == 0 {
                    tracing::warn!("the context engine has written a line that answers no call");
                }
                nonsense_bytes += line.len() + 1;
            }
        }
        nonsense_bytes <= NONSENSE_BYTES_MAX
    });
    match broken {
        Stopped::End => hear(Heard::Ended),
        Stopped::LongLine => hear(Heard::Broken("it has written a line of over 8 MiB")),
        Stopped::Enough => hear(Heard::Broken("it has written over 1 MiB that is no answer")),
    }
}

/// Reads an answer: its id, and what it says.
fn read_answer(line: &[u8]) -> Option<(u64, Result<Box<RawValue>, String>)> {
    #[derive(Deserialize)]
    struct Answer {
        id: Value,
        #[serde(default)]
        result: Option<Box<RawValue>>,
        #[serde(default)]
        error: Option<Value>,
    }
    let Answer { id, result, error } = serde_json::from_slice(line).ok()?;
    let id = id.as_u64().or_else(|| id.as_str()?.parse().ok())?;
    let answer = match (result, error) {
        (_, Some(error)) => Err(match error["message"].as_str().or_else(|| error.as_str()) {
            Some(message) => message.to_owned(),
            None => error.to_string(),
        }),
        (Some(result), None) => Ok(result),
        // A `null` is a result.
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
            // Before it is cut: of half a secret nobody can tell that it is one.
            let line = redacted(&line).map_or(line, Cow::Owned);
            tracing::info!("context engine: {}", &line[..line.floor_char_boundary(STDERR_LINE_BYTES_MAX)]);
        }
        true
    };
    let mut stderr = stderr;
    // What is too long for a line is dropped, and the rest is read on: an engine must not be stuck on it.
    while read_lines(&mut stderr, CHUNK_BYTES, &mut say) == Stopped::LongLine {}
}

/// Why no more lines are read.
#[derive(Debug, PartialEq, Eq)]
enum Stopped {
    End,
    /// One is longer than any may be.
    LongLine,
    /// Whoever takes them has had enough.
    Enough,
}

/// Passes each line of at most `bytes_max` to `take`, for as long as that wants more.
fn read_lines(mut from: impl Read, bytes_max: usize, mut take: impl FnMut(&[u8]) -> bool) -> Stopped {
    let (mut chunk, mut line) = (vec![0; CHUNK_BYTES], Vec::new());
    loop {
        let read = match from.read(&mut chunk) {
            Ok(0) => return Stopped::End,
            Ok(read) => &chunk[..read],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Stopped::End,
        };
        let mut rest = read;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            line.extend_from_slice(&rest[..end]);
            if !take(&line) {
                return Stopped::Enough;
            }
            line.clear();
            rest = &rest[end + 1..];
        }
        if line.capacity() > CHUNK_BYTES && line.is_empty() {
            line = Vec::new();
        }
        line.extend_from_slice(rest);
        if line.len() > bytes_max {
            return Stopped::LongLine;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_from_nonsense() {
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
        assert_eq!((stopped, taken), (Stopped::End, vec![1, 0, 200_000]));
        assert_eq!(read_lines(long.as_bytes(), 100_000, |_| true), Stopped::LongLine);
        assert_eq!(read_lines("a\nb\n".as_bytes(), 9, |_| false), Stopped::Enough);
    }
}
