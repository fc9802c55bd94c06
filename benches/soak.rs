//! Ten sessions for any length of time: storms, kills, readers that connect and disconnect. The resources held by each
//! relay must not grow. Three of the sessions keep one relay all the time; their last tenth of the time is compared
//! with the second tenth. Every line that a client received before a kill must be in the journal, in order, and the
//! numbers that a reader receives must have no hole. Exits with 0 if all this holds. `make soak`, or `make soak
//! SOAK_SECONDS=60`.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it is a tool for whoever works on this, and says what it sees"
)]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SHIM: &str = env!("CARGO_BIN_EXE_codex-shim");

const SESSIONS: usize = 10;

/// Number of sessions that keep one relay from beginning to end.
const LASTING: usize = 3;

/// Allowed growth of a relay's resources from the second to the last tenth of the time.
const GROWTH_MAX: Held = Held { resident_kib: 3 << 10, descriptors: 8, threads: 3 };

/// Lines of a storm.
const STORM_LINES: u64 = 20_000;

/// Interval between samples of a relay's resources.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Limit on a relay's resources under any load.
const HELD_MAX: Held = Held { resident_kib: 48 << 10, descriptors: 100, threads: 20 };

/// Resources held by a relay.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    resident_kib: u64,
    descriptors: u64,
    threads: u64,
}

#[derive(Debug, Default)]
struct Seen {
    lines: AtomicU64,
    kills: AtomicU64,
    runs: AtomicU64,
    readers: AtomicU64,
    events: AtomicU64,
    is_over: AtomicBool,
    /// The maximum in each tenth of the time, for temporary and for lasting relays.
    held: Mutex<BTreeMap<(bool, u64), Held>>,
    /// Lines that clients received before a kill, all found in the journal.
    found: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

/// The progress of the whole run.
#[derive(Debug, Clone, Copy)]
struct Time {
    began: Instant,
    lasts: Duration,
}

fn main() -> ExitCode {
    let seconds = std::env::args().skip(1).find_map(|text| text.parse().ok()).unwrap_or(600);
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let seen = Seen::default();
    let time = Time { began: Instant::now(), lasts: Duration::from_secs(seconds) };
    std::thread::scope(|scope| {
        for number in 0..SESSIONS {
            let (seen, home) = (&seen, home.path());
            scope.spawn(move || {
                let done = if number < LASTING {
                    lasting(number, home, seen, time)
                } else {
                    session(number, home, seen, time)
                };
                if let Err(what) = done {
                    seen.wrong.lock().unwrap().push(format!("s{number}: {what}"));
                }
            });
            scope.spawn(move || readers(&home.join(format!("sessions/s{number}")), seen));
        }
        // The user chose the duration.
        std::thread::sleep(time.lasts);
        seen.is_over.store(true, Ordering::SeqCst);
    });
    let [lines, runs, kills, readers, events] =
        [&seen.lines, &seen.runs, &seen.kills, &seen.readers, &seen.events].map(|count| count.load(Ordering::SeqCst));
    println!(
        "{SESSIONS} sessions, {seconds} s: {lines} lines in {runs} runs, {kills} kills, {readers} readers, {events} events"
    );
    println!("{} lines that clients had before a kill were all in the journal", seen.found.load(Ordering::SeqCst));
    let held = seen.held.lock().unwrap();
    for ((lasts, tenth), Held { resident_kib, descriptors, threads }) in held.iter() {
        let mib = *resident_kib as f64 / 1024.0;
        let which = if *lasts { "one relay all the time" } else { "relays that come and go" };
        println!(
            "  {which}, from {:>2} % on: at the most {mib:.1} MiB, {descriptors} descriptors, {threads} threads",
            tenth * 10
        );
    }
    let mut wrong = seen.wrong.lock().unwrap();
    match (held.get(&(true, 1)), held.get(&(true, 9))) {
        (Some(second), Some(last)) if last.exceeds(&second.and(&GROWTH_MAX)) => {
            wrong.push(format!("it grows, from {second:?} to {last:?}"));
        }
        (Some(_), Some(_)) => {}
        (None, _) | (_, None) => wrong.push("it was too short to see whether anything grows".to_owned()),
    }
    wrong.iter().take(20).for_each(|wrong| println!("wrong: {wrong}"));
    println!("{}", if wrong.is_empty() { "flat, and nothing was lost" } else { "not as it has to be" });
    ExitCode::from(u8::from(!wrong.is_empty()))
}

impl Held {
    fn exceeds(&self, most: &Held) -> bool {
        self.resident_kib > most.resident_kib || self.descriptors > most.descriptors || self.threads > most.threads
    }

    fn and(&self, more: &Held) -> Held {
        Held {
            resident_kib: self.resident_kib + more.resident_kib,
            descriptors: self.descriptors + more.descriptors,
            threads: self.threads + more.threads,
        }
    }
}

/// A relay of a session, whose server starts a storm for each line that it reads.
fn relay(number: usize, home: &Path) -> Result<(Child, ChildStdin, BufReader<ChildStdout>), String> {
    let line = r#"{"method":"thread/status/changed","params":{"threadId":"t","number":&}}"#;
    let script = format!("while read -r x; do seq {STORM_LINES} | sed 's|.*|{line}|'; done");
    let mut command = Command::new(SHIM);
    let session = format!("s{number}");
    command.env("CODEX_SHIM_HOME", home).args(["run", "--session", &session, "--", "sh", "-c", &script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut relay = command.spawn().map_err(|error| error.to_string())?;
    let stdout = BufReader::with_capacity(64 << 10, relay.stdout.take().unwrap());
    let stdin = relay.stdin.take().unwrap();
    Ok((relay, stdin, stdout))
}

/// One session with one relay, storm after storm.
fn lasting(number: usize, home: &Path, seen: &Seen, time: Time) -> Result<(), String> {
    let (mut relay, mut stdin, mut stdout) = relay(number, home)?;
    while !seen.is_over.load(Ordering::SeqCst) {
        pass(&mut stdin, &mut stdout, STORM_LINES, &relay, seen, Looks { time, lasts: true })?;
    }
    drop(stdin);
    let _ = std::io::copy(&mut stdout, &mut std::io::sink());
    let status = relay.wait().unwrap();
    seen.runs.fetch_add(1, Ordering::Relaxed);
    if status.code() == Some(0) { Ok(()) } else { Err(format!("it ended with {status}")) }
}

/// One session, run after run; every third run is killed during a storm.
fn session(number: usize, home: &Path, seen: &Seen, time: Time) -> Result<(), String> {
    for run in 1_u64.. {
        if seen.is_over.load(Ordering::SeqCst) {
            break;
        }
        let (mut relay, mut stdin, mut stdout) = relay(number, home)?;
        let mut given = 0;
        let is_killed = run % 3 == 0;
        for storm in (0..3 + run % 4).rev() {
            let lines = if is_killed && storm == 0 { STORM_LINES / 2 } else { STORM_LINES };
            pass(&mut stdin, &mut stdout, lines, &relay, seen, Looks { time, lasts: false })?;
            given += lines;
        }
        match is_killed {
            true => relay.kill().map_err(|error| error.to_string())?,
            false => drop(stdin),
        }
        let mut rest = String::new();
        let _ = stdout.read_to_string(&mut rest);
        given += rest.matches('\n').count() as u64;
        let status = relay.wait().unwrap();
        if !is_killed && status.code() != Some(0) {
            return Err(format!("it ended with {status}"));
        }
        if is_killed {
            recorded(&home.join(format!("sessions/s{number}")), given)?;
            seen.found.fetch_add(given, Ordering::Relaxed);
        }
        seen.runs.fetch_add(1, Ordering::Relaxed);
        seen.kills.fetch_add(u64::from(is_killed), Ordering::Relaxed);
    }
    Ok(())
}

/// Checks that the journal of the last run has all storm lines that its client received, in order.
fn recorded(session: &Path, given: u64) -> Result<(), String> {
    let journal = session.join("journal");
    let entries = std::fs::read_dir(&journal).map_err(|error| error.to_string())?;
    let mut segments: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    segments.sort();
    let generation = |path: &Path| path.file_name().unwrap().to_string_lossy().split('-').next().unwrap().to_owned();
    let last = generation(segments.last().ok_or("there is no journal")?);
    let (mut number, mut found) = (0, 0);
    for segment in segments.iter().filter(|path| generation(path) == last) {
        let file = std::fs::File::open(segment).map_err(|error| error.to_string())?;
        for line in BufReader::with_capacity(1 << 20, file).lines().map_while(Result::ok) {
            let Some((_, after)) = line.split_once("\"number\":") else { continue };
            let digits = after.trim_end_matches('}');
            number = if number == STORM_LINES { 1 } else { number + 1 };
            if digits.parse() != Ok(number) {
                return Err(format!("line {number} is recorded as {line}"));
            }
            found += 1;
        }
    }
    if found >= given { Ok(()) } else { Err(format!("{given} lines were given, {found} are on record")) }
}

/// The time and the kind of relay of a sample.
#[derive(Debug, Clone, Copy)]
struct Looks {
    time: Time,
    /// The relay is a lasting one.
    lasts: bool,
}

/// Starts a storm of the server, and reads `lines` lines of it.
fn pass(
    stdin: &mut ChildStdin,
    stdout: &mut BufReader<ChildStdout>,
    lines: u64,
    relay: &Child,
    seen: &Seen,
    looks: Looks,
) -> Result<(), String> {
    stdin.write_all(b"{\"id\":1,\"method\":\"go\"}\n").map_err(|error| error.to_string())?;
    let mut line = String::new();
    look(relay, seen, looks)?;
    let mut looked = Instant::now();
    for expect in 1..=lines {
        line.clear();
        let read = stdout.read_line(&mut line).map_err(|error| error.to_string())?;
        if read == 0 || !line.ends_with(&format!("\"number\":{expect}}}}}\n")) {
            return Err(format!("line {expect} is `{line}`"));
        }
        if looked.elapsed() > LOOK_EVERY {
            looked = Instant::now();
            look(relay, seen, looks)?;
        }
    }
    seen.lines.fetch_add(lines, Ordering::Relaxed);
    Ok(())
}

fn look(relay: &Child, seen: &Seen, Looks { time, lasts }: Looks) -> Result<(), String> {
    let proc = PathBuf::from(format!("/proc/{}", relay.id()));
    let status = std::fs::read_to_string(proc.join("status")).unwrap_or_default();
    let field = |name: &str| -> u64 {
        let field = status.lines().find_map(|line| line.strip_prefix(name));
        field.and_then(|field| field.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    let descriptors = std::fs::read_dir(proc.join("fd")).map_or(0, |entries| entries.count() as u64);
    let held = Held { resident_kib: field("VmRSS:"), descriptors, threads: field("Threads:") };
    let tenth = (10 * time.began.elapsed().as_millis() / time.lasts.as_millis().max(1)).min(9) as u64;
    let mut all = seen.held.lock().unwrap();
    let most = all.entry((lasts, tenth)).or_default();
    most.resident_kib = most.resident_kib.max(held.resident_kib);
    most.descriptors = most.descriptors.max(held.descriptors);
    most.threads = most.threads.max(held.threads);
    if held.exceeds(&HELD_MAX) { Err(format!("it holds on to {held:?}")) } else { Ok(()) }
}

/// The event numbers that a reader receives. A number may be missing only if a gap is reported.
#[derive(Debug, Default)]
struct Numbers {
    /// The beginning of an incomplete line.
    begun: Vec<u8>,
    last: Option<u64>,
    is_gap: bool,
}

impl Numbers {
    fn take(&mut self, chunk: &[u8]) -> Result<(), String> {
        self.begun.extend_from_slice(chunk);
        while let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.begun.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            self.is_gap |= line.contains("event_gap");
            let Some(number) = line.strip_prefix("id: ").and_then(|id| id.trim_end().parse::<u64>().ok()) else {
                continue;
            };
            if !self.is_gap && self.last.is_some_and(|last| last + 1 != number) {
                return Err(format!("a reader was told {:?} and then {number}", self.last));
            }
            (self.last, self.is_gap) = (Some(number), false);
        }
        Ok(())
    }
}

/// Readers of a session's stream that connect, read for a while, and disconnect halfway; every fifth one is slow.
fn readers(session: &Path, seen: &Seen) {
    for round in 0_u64.. {
        if seen.is_over.load(Ordering::SeqCst) {
            return;
        }
        let Ok(mut stream) = UnixStream::connect(session.join("control.sock")) else {
            // Between two runs the socket does not exist, and no event announces it.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        let mode = ["events", "raw", "ui"][(round % 3) as usize];
        let ask = format!("GET /sessions/self/codex-events/stream?mode={mode} HTTP/1.1\r\nHost: shim\r\n\r\n");
        let _ = stream.set_read_timeout(Some(Duration::from_millis(500)));
        if stream.write_all(ask.as_bytes()).is_err() {
            continue;
        }
        seen.readers.fetch_add(1, Ordering::Relaxed);
        let mut chunk = vec![0; 64 << 10];
        let mut numbers = Numbers::default();
        for _ in 0..200 {
            if seen.is_over.load(Ordering::SeqCst) {
                return;
            }
            match stream.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => {
                    let events = chunk[..read].windows(6).filter(|window| window == b"data: ").count() as u64;
                    seen.events.fetch_add(events, Ordering::Relaxed);
                    if mode == "events"
                        && let Err(what) = numbers.take(&chunk[..read])
                    {
                        seen.wrong.lock().unwrap().push(what);
                        return;
                    }
                }
                Err(_) => {}
            }
            if round % 5 == 0 {
                // This reader is slow on purpose.
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}
