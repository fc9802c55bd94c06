//! Ten sessions for as long as one likes: storms, kills, readers that come and go; and what each relay holds on to, which must
//! not grow. Ends with 0 where all was flat and no line was lost. `make soak`, or `make soak SOAK_SECONDS=60`.

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

/// Lines of a storm.
const STORM_LINES: u64 = 20_000;

/// How often what a relay holds on to is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a relay may hold on to at the most, whatever passes.
const HELD_MAX: Held = Held { resident_kib: 48 << 10, descriptors: 100, threads: 20 };

/// What a relay holds on to.
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
    /// The most that was seen in each tenth of the time.
    held: Mutex<BTreeMap<u64, Held>>,
    wrong: Mutex<Vec<String>>,
}

/// How far the whole is.
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
                if let Err(what) = session(number, home, seen, time) {
                    seen.wrong.lock().unwrap().push(format!("s{number}: {what}"));
                }
            });
            scope.spawn(move || readers(&home.join(format!("sessions/s{number}")), seen));
        }
        // How long it lasts is what was asked for.
        std::thread::sleep(time.lasts);
        seen.is_over.store(true, Ordering::SeqCst);
    });
    let [lines, runs, kills, readers, events] =
        [&seen.lines, &seen.runs, &seen.kills, &seen.readers, &seen.events].map(|count| count.load(Ordering::SeqCst));
    println!(
        "{SESSIONS} sessions, {seconds} s: {lines} lines in {runs} runs, {kills} kills, {readers} readers, {events} events"
    );
    for (tenth, Held { resident_kib, descriptors, threads }) in seen.held.lock().unwrap().iter() {
        let mib = *resident_kib as f64 / 1024.0;
        println!(
            "  from {:>2} % on at the most {mib:.1} MiB, {descriptors} descriptors, {threads} threads",
            tenth * 10
        );
    }
    let wrong = seen.wrong.lock().unwrap();
    wrong.iter().take(20).for_each(|wrong| println!("wrong: {wrong}"));
    println!("{}", if wrong.is_empty() { "flat, and nothing was lost" } else { "not as it has to be" });
    ExitCode::from(u8::from(!wrong.is_empty()))
}

/// One session, run after run, every third of which is killed in the middle of a storm.
fn session(number: usize, home: &Path, seen: &Seen, time: Time) -> Result<(), String> {
    let line = r#"{"method":"thread/status/changed","params":{"threadId":"t","number":&}}"#;
    let script = format!("while read -r x; do seq {STORM_LINES} | sed 's|.*|{line}|'; done");
    for run in 1_u64.. {
        if seen.is_over.load(Ordering::SeqCst) {
            break;
        }
        let mut command = Command::new(SHIM);
        command.env("CODEX_SHIM_HOME", home).args([
            "run",
            "--session",
            &format!("s{number}"),
            "--",
            "sh",
            "-c",
            &script,
        ]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut relay = command.spawn().map_err(|error| error.to_string())?;
        let mut stdout = BufReader::with_capacity(64 << 10, relay.stdout.take().unwrap());
        let mut stdin = relay.stdin.take().unwrap();
        let is_killed = run % 3 == 0;
        for storm in (0..3 + run % 4).rev() {
            let lines = if is_killed && storm == 0 { STORM_LINES / 2 } else { STORM_LINES };
            pass(&mut stdin, &mut stdout, lines, &relay, seen, time)?;
        }
        match is_killed {
            true => relay.kill().map_err(|error| error.to_string())?,
            false => drop(stdin),
        }
        let _ = std::io::copy(&mut stdout, &mut std::io::sink());
        let status = relay.wait().unwrap();
        if !is_killed && status.code() != Some(0) {
            return Err(format!("it ended with {status}"));
        }
        seen.runs.fetch_add(1, Ordering::Relaxed);
        seen.kills.fetch_add(u64::from(is_killed), Ordering::Relaxed);
    }
    Ok(())
}

/// Has the server begin a storm, and reads so many lines of it.
fn pass(
    stdin: &mut ChildStdin,
    stdout: &mut BufReader<ChildStdout>,
    lines: u64,
    relay: &Child,
    seen: &Seen,
    time: Time,
) -> Result<(), String> {
    stdin.write_all(b"{\"id\":1,\"method\":\"go\"}\n").map_err(|error| error.to_string())?;
    let (mut line, mut looked) = (String::new(), Instant::now());
    for expect in 1..=lines {
        line.clear();
        let read = stdout.read_line(&mut line).map_err(|error| error.to_string())?;
        if read == 0 || !line.ends_with(&format!("\"number\":{expect}}}}}\n")) {
            return Err(format!("line {expect} is `{line}`"));
        }
        if looked.elapsed() > LOOK_EVERY {
            looked = Instant::now();
            look(relay, seen, time)?;
        }
    }
    seen.lines.fetch_add(lines, Ordering::Relaxed);
    Ok(())
}

fn look(relay: &Child, seen: &Seen, time: Time) -> Result<(), String> {
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
    let most = all.entry(tenth).or_default();
    most.resident_kib = most.resident_kib.max(held.resident_kib);
    most.descriptors = most.descriptors.max(held.descriptors);
    most.threads = most.threads.max(held.threads);
    let is_over = held.resident_kib > HELD_MAX.resident_kib
        || held.descriptors > HELD_MAX.descriptors
        || held.threads > HELD_MAX.threads;
    if is_over { Err(format!("it holds on to {held:?}")) } else { Ok(()) }
}

/// Readers of a session's stream that come, read for a while, and go in the middle; every fifth is slow.
fn readers(session: &Path, seen: &Seen) {
    for round in 0_u64.. {
        if seen.is_over.load(Ordering::SeqCst) {
            return;
        }
        let Ok(mut stream) = UnixStream::connect(session.join("control.sock")) else {
            // Between two runs there is no socket, and nobody tells when there is one.
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
        for _ in 0..200 {
            if seen.is_over.load(Ordering::SeqCst) {
                return;
            }
            match stream.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => {
                    let events = chunk[..read].windows(6).filter(|window| window == b"data: ").count() as u64;
                    seen.events.fetch_add(events, Ordering::Relaxed);
                }
                Err(_) => {}
            }
            if round % 5 == 0 {
                // It is to be slow.
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}
