//! The cost of a relay's history, and its delay behind the traffic.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use crate::support::{self, Process, Subject, Table, median, percentile};

/// Duration of traffic at a fixed rate.
fn paced() -> Duration {
    Duration::from_secs(if support::is_quick() { 3 } else { 8 })
}

/// Interval between samples. Samples are taken at fixed times, because a notification per commit would change the
/// result.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Segments of 64 MiB before a start: a gigabyte, as a thousand times a million bytes.
const SEGMENTS: u32 = 15;

/// The delay of the history at a fixed rate, in an otherwise idle relay: how long the client has had the oldest line
/// that is not yet in the history.
pub fn lag(table: &mut Table) {
    for rate in [100_u64, 10_000] {
        let lines = rate * paced().as_secs();
        let mut process = Subject::Shim.start(&["paced", &rate.to_string(), &lines.to_string()]);
        process.ready();
        let history = process.session_dir().join("history.db");
        process.stdin.write_all(b"go\n").unwrap();
        let mut behind = Vec::new();
        let began = Instant::now();
        std::thread::scope(|scope| {
            let stdout = &mut process.stdout;
            let reader = scope.spawn(move || {
                let mut arrivals = Vec::with_capacity(lines as usize);
                let mut chunk = vec![0; 256 << 10];
                let mut read_bytes = 0;
                while (arrivals.len() as u64) < lines {
                    match stdout.read(&mut chunk).unwrap() {
                        0 => break,
                        read => read_bytes += read,
                    }
                    arrivals.resize(read_bytes / support::NUMBERED_BYTES, Instant::now());
                }
                arrivals
            });
            let mut looks = Vec::new();
            let mut connection = None;
            while !reader.is_finished() {
                // The measurement samples at fixed times.
                std::thread::sleep(LOOK_EVERY);
                looks.push((last_number(&mut connection, &history), Instant::now()));
            }
            let arrivals = reader.join().unwrap();
            assert_eq!(arrivals.len() as u64, lines, "lines are missing");
            // The first second is warm-up.
            for (indexed, at) in looks.into_iter().filter(|(_, at)| *at > began + Duration::from_secs(1)) {
                let next = indexed.map_or(0, |number| number as usize + 1);
                behind
                    .push(arrivals.get(next).map_or(Duration::ZERO, |arrived| at.saturating_duration_since(*arrived)));
            }
        });
        let processor = process.sample().processor;
        let p99 = percentile(&mut behind, 99);
        let name = format!("history behind the client at {rate} lines a second, p99");
        table.at_most(&name, p99.as_secs_f64() * 1e3, "ms", 50.0);
        let share = 100.0 * processor.as_secs_f64() / paced().as_secs_f64();
        table.figure(&format!("processor time at {rate} lines a second"), format!("{share:.1} % of a core"));
        process.end();
    }
}

/// The number of the last indexed line.
fn last_number(connection: &mut Option<Connection>, history: &Path) -> Option<u64> {
    if connection.is_none() {
        *connection = Connection::open_with_flags(history, OpenFlags::SQLITE_OPEN_READ_ONLY).ok();
    }
    let sql = "SELECT json_extract(payload_preview, '$.number') FROM codex_events ORDER BY seq DESC LIMIT 1";
    let number =
        connection.as_ref()?.prepare_cached(sql).ok()?.query_row([], |row| row.get::<_, Option<i64>>(0)).ok()?;
    u64::try_from(number?).ok()
}

/// The time until the history has caught up after a storm.
pub fn caught_up(table: Option<&mut Table>, process: &Process, lines: usize) {
    let began = Instant::now();
    let session = process.session_dir();
    let connection = Connection::open_with_flags(session.join("history.db"), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let last_seq = || -> i64 {
        connection.query_row("SELECT MAX(seq) FROM codex_events", [], |row| row.get(0)).unwrap_or_default()
    };
    while last_seq() < lines as i64 && began.elapsed() < Duration::from_secs(120) {
        // A database sends no notification when it grows.
        std::thread::sleep(LOOK_EVERY);
    }
    assert!(last_seq() >= lines as i64, "it is not indexed after {:?}", began.elapsed());
    let took = format!("{:.1} s", began.elapsed().as_secs_f64());
    if let Some(table) = table {
        table.figure("time after it until all of it is indexed", took);
    }
}

/// From the start of the process to its first byte, with an empty session and with an unindexed gigabyte.
pub fn start_with_a_gigabyte(table: &mut Table) {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fill(&home.path().join("sessions/big/journal"), "big", SEGMENTS);
    let mut times = [const { Vec::new() }; 2];
    for round in 0..10 {
        for (index, session) in ["big".to_owned(), format!("new-{round}")].into_iter().enumerate().rev() {
            let began = Instant::now();
            let mut process = support::start_in(home.path(), &session, &["hello"]);
            process.ready();
            times[1 - index].push(began.elapsed());
            process.end();
        }
    }
    let [empty, big] = times.map(|times| median(&times));
    table.pair("start to first byte, empty (first) and with a gigabyte to index", empty, big, 1.2);
}

/// Writes segments of 64 MiB; returns the number of lines in them.
pub fn fill(journal: &Path, session: &str, segments: u32) -> u64 {
    std::fs::create_dir_all(journal).unwrap();
    let generation = "000000010000";
    let mut records = String::new();
    let mut number = 0_u64;
    while records.len() < (64 << 20) - 1_000 {
        let line = support::numbered(number);
        records.push_str(&format!("{{\"at\":1767225600000000,\"from\":\"server\",\"line\":{}}}\n", line.trim_end()));
        number += 1;
    }
    for segment in 1..=segments {
        let header = format!(
            "{{\"journal\":1,\"session\":\"{session}\",\"generation\":\"{generation}\",\"segment\":{segment},\"at\":1,\
             \"argv\":[],\"cwd\":\"/\",\"codex\":{{\"path\":\"c\"}},\"shim\":\"0\"}}\n"
        );
        std::fs::write(journal.join(format!("{generation}-{segment:03}.jsonl")), header + &records).unwrap();
    }
    number * u64::from(segments)
}
