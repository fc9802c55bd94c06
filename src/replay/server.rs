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
use super::player::{Player, Said, Strictness};
use super::tape::Tape;
use crate::wire::LINE_BYTES_MAX;

/// Limit of client lines that are read ahead.
const LINES_AHEAD_MAX: usize = 16;

/// The slowest and the fastest pace, as multiples of the recording's.
const TIMES_MIN: f64 = 0.001;
const TIMES_MAX: f64 = 1_000_000.0;

/// How fast a tape is played.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pace {
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
pub(crate) enum ReplayError {
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
struct Schedule(VecDeque<(Instant, Vec<u8>)>);

impl Schedule {
    fn add(&mut self, pace: Pace, said: Vec<Said>) {
        let now = Instant::now();
        for Said { bytes, after_us } in said {
            let wait = match pace {
                Pace::Max => Duration::ZERO,
                Pace::Times(times) => Duration::from_secs_f64(after_us as f64 / 1e6 / times),
            };
            let not_before = self.0.back().map_or(now, |(due, _)| *due);
            self.0.push_back(((now + wait).max(not_before), bytes));
        }
    }

    /// Writes the due lines; those due at the same time in one write.
    fn write_due(&mut self, to: &mut impl Write) -> io::Result<()> {
        let now = Instant::now();
        let mut bytes = Vec::new();
        while let Some((_, line)) = self.0.pop_front_if(|(due, _)| *due <= now) {
            bytes.extend_from_slice(&line);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        to.write_all(&bytes)?;
        to.flush()
    }

    /// The time until the next line is due; `None` if the queue is empty.
    fn wait(&self) -> Option<Duration> {
        self.0.front().map(|(due, _)| due.saturating_duration_since(Instant::now()))
    }
}

/// Plays `tape` to the client on stdin and stdout until stdin ends. A strict player ends at the first difference.
///
/// Returns the client's differences; for a strict player, including the lines that it never sent.
pub(crate) fn serve(tape: Tape, strictness: Strictness, pace: Pace) -> Result<Vec<Difference>, ReplayError> {
    // A client may end its server by SIGTERM, and codex then exits with 0.
    let always = Arc::new(AtomicBool::new(true));
    signal_hook::flag::register_conditional_shutdown(signal_hook::consts::SIGTERM, 0, always)
        .map_err(ReplayError::Read)?;
    let mut player = Player::new(tape, strictness);
    let mut schedule = Schedule::default();
    let mut stdout = io::stdout().lock();
    let lines = read_lines();
    schedule.add(pace, player.begin());
    let mut open = true;
    while open || !schedule.0.is_empty() {
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
            Ok(line) => schedule.add(pace, player.take(&line.map_err(ReplayError::Read)?)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => open = false,
        }
        if strictness == Strictness::Strict && !player.differences().is_empty() {
            schedule.write_due(&mut stdout).map_err(ReplayError::Write)?;
            return Ok(player.differences().to_vec());
        }
    }
    let mut differences = player.differences().to_vec();
    if strictness == Strictness::Strict {
        differences.extend(player.unsent());
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
