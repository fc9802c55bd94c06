//! Plays a tape on stdin and stdout as a server: the shell around the [`Player`].
//!
//! One thread reads the client's lines; this one writes the lines that are due. No line is sent before the client's
//! line that precedes it on the tape.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead as _, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use super::mapping::Difference;
use super::player::{PlayedLine, Player, Strictness};
use super::script::{Script, name_of};
use super::tape::Tape;
use crate::wire::{Conn, LINE_BYTES_MAX};

/// Limit of client lines that are read ahead.
const LINES_AHEAD_MAX: usize = 16;

/// The slowest and the fastest pace, as multiples of the recording's.
const TIMES_MIN: f64 = 0.001;
const TIMES_MAX: f64 = 1_000_000.0;

/// How fast a tape is played.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Without delays.
    Max,
    /// A multiple of the recording's speed.
    Times(f64),
}

impl std::str::FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Pace, String> {
        let times = text.parse::<f64>().ok().filter(|times| (TIMES_MIN..=TIMES_MAX).contains(times));
        match (text, times) {
            ("max", _) => Ok(Pace::Max),
            (_, Some(times)) => Ok(Pace::Times(times)),
            (_, None) => {
                Err(format!("`{text}` is neither `max` nor a number from {TIMES_MIN} to {TIMES_MAX}, such as 1 or 10"))
            }
        }
    }
}

/// Why the playing ended early.
#[derive(Debug)]
pub enum ReplayError {
    Read(io::Error),
    Write(io::Error),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Read(error) => write!(f, "read the client's lines: {error}"),
            ReplayError::Write(error) => write!(f, "write to the client: {error}"),
        }
    }
}

impl std::error::Error for ReplayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ReplayError::Read(error) | ReplayError::Write(error) => Some(error),
        }
    }
}

/// The lines to send, in order, with their times.
#[derive(Debug, Default)]
pub(super) struct Schedule(VecDeque<(Instant, Vec<u8>)>);

impl Schedule {
    fn add(&mut self, pace: Pace, said: Vec<PlayedLine>) {
        let now = Instant::now();
        said.into_iter().for_each(|PlayedLine { bytes, after_us, .. }| self.push(pace, now, bytes, after_us));
    }

    /// Adds a line that is due `after_us` of the recording's time after `now`, and not before those that wait.
    pub(super) fn push(&mut self, pace: Pace, now: Instant, bytes: Vec<u8>, after_us: u64) {
        let wait = match pace {
            Pace::Max => Duration::ZERO,
            Pace::Times(times) => Duration::from_secs_f64(after_us as f64 / 1e6 / times),
        };
        let not_before = self.0.back().map_or(now, |(due, _)| *due);
        self.0.push_back(((now + wait).max(not_before), bytes));
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the next line if it is due.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.0.pop_front_if(|(due, _)| *due <= now).map(|(_, line)| line)
    }

    /// Writes the due lines; those due at the same time in one write.
    fn write_due(&mut self, to: &mut impl Write) -> io::Result<()> {
        let now = Instant::now();
        let mut bytes = Vec::new();
        while let Some(line) = self.pop_due(now) {
            bytes.extend_from_slice(&line);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        to.write_all(&bytes)?;
        to.flush()
    }

    /// The time until the next line is due; `None` if the queue is empty.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.0.front().map(|(due, _)| due.saturating_duration_since(Instant::now()))
    }
}

/// Plays `tape` to the client on stdin and stdout until stdin ends. A strict player ends at the first difference.
///
/// Returns the client's differences; for a strict player, including the lines that it never sent.
pub fn serve(tape: Tape, strictness: Strictness, pace: Pace) -> Result<Vec<Difference>, ReplayError> {
    // A client may end its server by SIGTERM, and codex then exits with 0.
    let always = Arc::new(AtomicBool::new(true));
    signal_hook::flag::register_conditional_shutdown(signal_hook::consts::SIGTERM, 0, always)
        .map_err(ReplayError::Read)?;
    let script = Arc::new(Script::of(tape));
    let mut player = Player::new(Arc::clone(&script), strictness);
    let mut schedule = Schedule::default();
    let mut stdout = io::stdout().lock();
    let lines = read_lines();
    // With several clients on the tape, the first line says which one this is.
    let mut conn =
        if script.clients.len() < 2 { script.choose(None, player.taken()).or(Some(Conn::OWN)) } else { None };
    if let Some(conn) = conn {
        schedule.add(pace, player.join(conn));
    }
    let mut open = true;
    while open || !schedule.is_empty() {
        schedule.write_due(&mut stdout).map_err(ReplayError::Write)?;
        let next = match (open, schedule.wait()) {
            (true, None) => lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
            (true, Some(wait)) => lines.recv_timeout(wait),
            (false, wait) => {
                std::thread::park_timeout(wait.unwrap_or_default());
                Err(RecvTimeoutError::Timeout)
            }
        };
        match next {
            Ok(line) => {
                let line = line.map_err(ReplayError::Read)?;
                let conn = *conn.get_or_insert_with(|| {
                    let chosen = script.choose(name_of(&line).as_deref(), player.taken()).unwrap_or(Conn::OWN);
                    schedule.add(pace, player.join(chosen));
                    chosen
                });
                schedule.add(pace, player.take(conn, &line).into_iter().filter(|said| said.conn == conn).collect());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => open = false,
        }
        if strictness == Strictness::Strict && player.differences().next().is_some() {
            schedule.write_due(&mut stdout).map_err(ReplayError::Write)?;
            return Ok(player.differences().cloned().collect());
        }
    }
    let mut differences: Vec<Difference> = player.differences().cloned().collect();
    if let (Strictness::Strict, Some(conn)) = (strictness, conn.or_else(|| script.choose(None, player.taken()))) {
        differences.extend(player.unsent(conn));
    }
    Ok(differences)
}

/// Reads lines from stdin on a separate thread, without their `\n`.
fn read_lines() -> Receiver<io::Result<Vec<u8>>> {
    let (send, lines) = sync_channel(LINES_AHEAD_MAX);
    std::thread::spawn(move || read_into(&send));
    lines
}

fn read_into(send: &SyncSender<io::Result<Vec<u8>>>) {
    let mut stdin = io::stdin().lock();
    loop {
        let mut line = Vec::new();
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = io::Read::take(&mut stdin, limit).read_until(b'\n', &mut line);
        line.pop_if(|last| *last == b'\n');
        let read = match read {
            Ok(0) => return,
            Ok(_) => send.send(Ok(line)),
            Err(error) => send.send(Err(error)),
        };
        if read.is_err() {
            return;
        }
    }
}
