//! Many sessions on one machine, and one session that lasted long.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use crate::support::{self, Process, Subject, Sum, Table, median};
use crate::{history, index};

/// How long relays are observed at rest. Their threads rest after a second; the first pruning of the history is later.
const OBSERVED: Duration = Duration::from_secs(20);

const SETTLING: Duration = Duration::from_secs(5);

/// Segments of 64 MiB with about 10 million lines.
const LONG_LIFE_SEGMENTS: u32 = 38;

/// What a process uses.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    wakeups: u64,
    processor: Duration,
}

/// Relays without traffic: what each costs.
pub fn at_rest(table: &mut Table) {
    let counts: &[usize] = if support::is_quick() { &[10] } else { &[1, 10, 100] };
    for &count in counts {
        let mut relays: Vec<Process> = (0..count).map(|_| Subject::Shim.start(&["echo-after-hello"])).collect();
        relays.iter_mut().for_each(Process::ready);
        // The measurement needs relays that do nothing for some time.
        std::thread::sleep(SETTLING);
        let before: Vec<Used> = relays.iter().map(used).collect();
        std::thread::sleep(OBSERVED);
        let (mut wakeups, mut processor) = (0, Duration::ZERO);
        for (relay, before) in relays.iter().zip(before) {
            let after = used(relay);
            wakeups += after.wakeups - before.wakeups;
            processor += after.processor - before.processor;
        }
        let each = count as f64 * OBSERVED.as_secs_f64();
        let name = |what: &str| format!("{what} of each of {count} relays at rest");
        table.at_most(&name("wake-ups a second"), wakeups as f64 / each, "", 1.0);
        table.at_most(&name("processor time a second"), processor.as_secs_f64() * 1e3 / each, "ms", 0.1);
        let pss: f64 = relays.iter().map(|relay| proportional_mib(relay.id())).sum();
        table.at_most(&name("memory (PSS)"), pss / count as f64, "MiB", if count < 50 { 12.0 } else { 2.5 });
        let descriptors: usize = relays.iter().map(descriptors).sum();
        table.at_most(&name("descriptors"), descriptors as f64 / count as f64, "", 33.0);
        relays.into_iter().for_each(Process::end);
    }
}

fn used(process: &Process) -> Used {
    let mut used = Used::default();
    for task in std::fs::read_dir(format!("/proc/{}/task", process.id())).unwrap() {
        let task = task.unwrap().path();
        let text = |file: &str| std::fs::read_to_string(task.join(file)).unwrap_or_default();
        let status = text("status");
        let switches = status.lines().filter_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        used.wakeups += switches.filter_map(|count| count.trim().parse::<u64>().ok()).sum::<u64>();
        let nanos = text("schedstat").split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
        used.processor += Duration::from_nanos(nanos);
    }
    used
}

/// Memory, where a page that several processes share counts in parts.
fn proportional_mib(process: u32) -> f64 {
    let rollup = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
    let field = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib: f64 = field.and_then(|field| field.split_whitespace().next()?.parse().ok()).unwrap_or(0.0);
    kib / 1024.0
}

fn descriptors(process: &Process) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap().count()
}

/// Ten storms at once.
pub fn storms(table: &mut Table) {
    const STORMS: usize = 10;
    let lines = if support::is_quick() { 20_000 } else { 100_000 };
    let expect = Sum::of_lines(200, lines);
    let mut times = [const { Vec::new() }; Subject::COUNT];
    for _ in 0..3 {
        for (index, subject) in Subject::ALL.into_iter().enumerate() {
            let mut processes: Vec<Process> =
                (0..STORMS).map(|_| subject.start(&["storm", "200", &lines.to_string(), "block"])).collect();
            processes.iter_mut().for_each(Process::ready);
            let began = Instant::now();
            std::thread::scope(|scope| {
                for process in &mut processes {
                    scope.spawn(|| drain(process, &expect));
                }
            });
            times[index].push(began.elapsed());
            processes.into_iter().for_each(Process::end);
        }
    }
    let times = times.map(|times| median(&times));
    table.rates("ten storms of 200-byte lines at once, 64 KiB writes", STORMS * lines, times, Subject::Tee, 0.6);
}

fn drain(process: &mut Process, expect: &Sum) {
    process.stdin.write_all(b"go\n").unwrap();
    let (mut sum, mut chunk) = (Sum::default(), vec![0; 64 << 10]);
    while sum.bytes < expect.bytes {
        match process.stdout.read(&mut chunk).unwrap() {
            0 => break,
            read => sum.add(&chunk[..read]),
        }
    }
    assert!(sum == *expect, "a storm was altered");
}

/// A session with 10 million events: what its tools take.
pub fn long_life(table: &mut Table) {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let session = home.path().join("sessions/long");
    let lines = history::fill(&session.join("journal"), "long", LONG_LIFE_SEGMENTS);
    let kept = "events_max = 20000000\nhistory_age_max = \"10000d\"\njournal_bytes_max = \"8GiB\"\n";
    std::fs::write(home.path().join("config.toml"), kept).unwrap();
    let mut process = support::start_in(home.path(), "long", &["echo-after-hello"]);
    process.ready();
    let began = Instant::now();
    let last_seq = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let connection = Connection::open_with_flags(session.join("history.db"), flags).ok()?;
        connection.query_row("SELECT MAX(seq) FROM codex_events", [], |row| row.get::<_, Option<i64>>(0)).ok()?
    };
    let mut events = last_seq();
    while events.is_none_or(|events| events.unsigned_abs() < lines) {
        // A database sends no notification when it grows.
        std::thread::sleep(Duration::from_millis(200));
        events = last_seq();
        assert!(began.elapsed() < Duration::from_secs(900), "it is not indexed: {events:?} of {lines}");
    }
    let events = events.unwrap_or(1) as f64;
    table.figure("events of a session that lasted long", format!("{:.1} million", events / 1e6));
    let bytes = std::fs::metadata(session.join("history.db")).unwrap().len();
    table.figure("size of the history for a million events", format!("{:.0} MB", bytes as f64 / events));
    tools(table, home.path(), "live");
    process.end();
    tools(table, home.path(), "stopped");
    let began = Instant::now();
    let mut process = support::start_in(home.path(), "long", &["hello"]);
    process.ready();
    table.at_most("start to first byte in that session", began.elapsed().as_secs_f64() * 1e3, "ms", 100.0);
    process.end();
}

fn tools(table: &mut Table, home: &Path, state: &str) {
    for tool in [&["status", "long"][..], &["tail", "long", "-n", "20"], &["events", "long", "--json", "-n", "500"]] {
        let mut times: Vec<Duration> = (0..5)
            .map(|_| {
                let began = Instant::now();
                let mut command = Command::new(&*support::SHIM);
                command.env("CODEX_SHIM_HOME", home).args(tool).stdout(Stdio::null());
                assert!(command.status().unwrap().success(), "{tool:?}");
                began.elapsed()
            })
            .collect();
        let took_ms = support::percentile(&mut times, 50).as_secs_f64() * 1e3;
        table.at_most(&format!("`{}` in that session, {state}", tool[0]), took_ms, "ms", 100.0);
    }
}

/// A session whose entries have the lines of our own sources: the size of its search index, and the time of searches.
pub fn search(table: &mut Table) {
    let millions = std::env::var("SEARCH_MILLIONS").map_or(1, |count| count.parse().unwrap());
    let events = if support::is_quick() { 100_000 } else { millions * 1_000_000 };
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let session = home.path().join("sessions/long");
    let entries = index::fill_with_items(&session.join("journal"), "long", events);
    let kept = "events_max = 20000000\nhistory_age_max = \"10000d\"\njournal_bytes_max = \"80GiB\"\n";
    std::fs::write(home.path().join("config.toml"), kept).unwrap();
    let mut process = support::start_in(home.path(), "long", &["echo-after-hello"]);
    process.ready();
    let began = Instant::now();
    let asked = |sql: &str| {
        let connection =
            Connection::open_with_flags(session.join("history.db"), OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
        connection.query_row(sql, [], |row| row.get::<_, Option<i64>>(0)).ok()?
    };
    let stored = || asked("SELECT COUNT(*) FROM codex_search_entries").unwrap_or(0).unsigned_abs();
    while stored() < entries {
        // A database sends no notification when it grows.
        std::thread::sleep(Duration::from_millis(500));
        assert!(began.elapsed() < Duration::from_secs(3_600), "it is not indexed: {} of {entries}", stored());
    }
    let per_event = began.elapsed().as_secs_f64() * 1e6 / events as f64;
    table.figure(
        &format!("index, an event, of which every fifth is an entry, {events} events"),
        format!("{per_event:.1} µs"),
    );
    let bytes = |tables: &str| {
        let sql = format!("SELECT SUM(pgsize) FROM dbstat WHERE name {tables}");
        asked(&sql).unwrap_or(0) as f64 / events as f64
    };
    let sizes =
        [("search index", "LIKE 'codex_search%'"), ("entries", "LIKE '%codex_transcript%'"), ("history", "<> ''")];
    for (what, tables) in sizes {
        table.figure(&format!("size of the {what} for a million events"), format!("{:.1} MB", bytes(tables)));
    }
    for (state, process) in [("live", Some(process)), ("stopped", None)] {
        for (what, words, most_ms) in [
            ("a rare word", &["needle7000"][..], 200.0),
            ("three words", &["fn", "self", "rows"], 200.0),
            ("a word of most entries", &["let"], 200.0),
            ("a word and a phrase", &["--kind", "diff", "\"impl History\""], 500.0),
            ("words that no entry has", &["needle7000", "needle9000"], 200.0),
            ("a rare pattern", &["--regex", "needle700[0]"], 10_000.0 * events as f64 / 1e6),
        ] {
            let mut times: Vec<Duration> = (0..5)
                .map(|_| {
                    let began = Instant::now();
                    let mut command = Command::new(&*support::SHIM);
                    command.env("CODEX_SHIM_HOME", home.path()).arg("search").args(words);
                    command.stdout(Stdio::null()).stderr(Stdio::null());
                    assert!(command.status().unwrap().success(), "{words:?}");
                    began.elapsed()
                })
                .collect();
            let took_ms = support::percentile(&mut times, 50).as_secs_f64() * 1e3;
            table.at_most(&format!("`search` of {events} events for {what}, {state}"), took_ms, "ms", most_ms);
        }
        if let Some(process) = process {
            process.end();
        }
    }
}
