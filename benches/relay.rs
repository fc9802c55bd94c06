//! The cost of the relay as ratios to the cost of a pipe, in one interleaved run.
//!
//! The same traffic goes directly to the server, through `cat | server | cat`, through the same with `tee` to files, through the
//! least relay that can record (`support/least.rs`), and through codex-shim with its journal on. Every run checks integrity. `cargo bench --profile dist --bench relay -- NAME…` runs
//! only the measurements whose name contains one of the given words; `QUICK=1` makes all of them shorter and leaves out the
//! long ones. The build has the optimizations of `make dist`.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a benchmark prints, may fail where it stands, and is no library"
)]

#[cfg(feature = "fleet")]
mod fleet;
mod history;
mod home;
mod hub;
mod index;
mod instructions;
mod scale;
mod support;
mod web;

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use support::{Process, Sample, Subject, Sum, Table, median, on_one_core, percentile, rounds};

const PING_BYTES: usize = 200;
const PINGS: usize = 3_000;
const SMALL_LINES: usize = 300_000;
const BIG_LINES: usize = 40_000;
const LONG_LINE_BYTES: usize = 32 << 20;
const START_ROUNDS: usize = 25;
const STORM_LINES: usize = 1_000_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((role, rest)) if role == "server" && rest[0] == "websocket" => return hub::serve(&rest[1]),
        Some((role, rest)) if role == "server" => return support::serve(rest),
        Some((role, rest)) if role == "least-hub" => return support::least::hub(&rest[0], &rest[1]),
        Some((role, rest)) if role == "least" => return support::least::relay(rest),
        Some((role, rest)) if role == "index-lines" => return index::index_lines(rest),
        Some(_) | None => {}
    }
    let words: Vec<&String> = args.iter().filter(|arg| !arg.starts_with("--")).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let mut table = Table::new();
    if wanted("ping") {
        pings(&mut table);
    }
    if wanted("socket") {
        with_reader(&mut table);
    }
    if wanted("storm") {
        storm(&mut table, "storm of 200-byte lines, a write each", 200, SMALL_LINES, "line", Subject::Cat, 0.7);
        storm(&mut table, "storm of 200-byte lines, 64 KiB writes", 200, SMALL_LINES, "block", Subject::Tee, 0.6);
        storm(&mut table, "storm of 4 KiB lines", 4096, BIG_LINES, "block", Subject::Tee, 0.9);
    }
    if wanted("long") {
        long_line(&mut table);
        long_lines(&mut table);
    }
    if wanted("start") {
        start(&mut table);
    }
    if wanted("memory") {
        memory(&mut table);
    }
    if wanted("history") {
        history::lag(&mut table);
        if !support::is_quick() {
            history::start_with_a_gigabyte(&mut table);
        }
    }
    if wanted("index") {
        index::speed(&mut table);
    }
    if wanted("scale") {
        scale::at_rest(&mut table);
        scale::storms(&mut table);
    }
    if wanted("life") && !support::is_quick() {
        scale::long_life(&mut table);
    }
    // It takes minutes and gigabytes, so it runs only by name.
    if words.iter().any(|word| *word == "home") {
        home::home(&mut table);
    }
    if wanted("search") {
        scale::search(&mut table);
    }
    if wanted("context") {
        context(&mut table);
    }
    if wanted("hub") {
        hub::hub(&mut table);
    }
    if wanted("web") {
        web::web(&mut table);
    }
    #[cfg(feature = "fleet")]
    if wanted("fleet") {
        fleet::fleet(&mut table);
    }
    let mut is_within_baseline = true;
    // They have a target of their own in the Makefile, and take half a minute.
    if wanted("instructions") && !(words.is_empty() && support::is_quick()) {
        is_within_baseline = instructions::instructions(&mut table);
    }
    if wanted("codex") {
        codex(&mut table);
    }
    table.print();
    if !is_within_baseline {
        eprintln!("more than a tenth over a figure of benches/baseline.toml");
        std::process::exit(1);
    }
}

/// Round trips of one line, with everything on one core and on the cores that the scheduler chooses.
fn pings(table: &mut Table) {
    for (name, one_core, p50_max) in
        [("round trip of 200 bytes, one core, p50", true, 1.2), ("round trip of 200 bytes, p50", false, 1.0)]
    {
        let mut p50s = [const { Vec::new() }; Subject::COUNT];
        let mut p99s = [const { Vec::new() }; Subject::COUNT];
        on_one_core(one_core, || {
            for _ in 0..rounds() {
                for (index, subject) in Subject::ALL.into_iter().enumerate() {
                    let mut times = ping(subject);
                    p50s[index].push(percentile(&mut times, 50));
                    p99s[index].push(percentile(&mut times, 99));
                }
            }
        });
        let p50s = p50s.map(|times| median(&times));
        table.times(name, p50s, Subject::Cat, p50_max);
        if !one_core {
            table.times("round trip of 200 bytes, p99", p99s.map(|times| median(&times)), Subject::Cat, 1.5);
        }
    }
}

/// Round trips with and without an API caller that polls the control socket without a pause.
fn with_reader(table: &mut Table) {
    let mut p50s = [const { Vec::new() }; 2];
    for _ in 0..rounds() {
        p50s[0].push(percentile(&mut ping(Subject::Shim), 50));
        let process = Subject::Shim.start(&["echo"]);
        let session = process.session_dir();
        let asking = AtomicBool::new(true);
        let mut asked = 0u64;
        let mut times = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut answers = 0u64;
                while asking.load(Ordering::Relaxed) {
                    answers += u64::from(codex_shim::testing::control::client::get(&session, "/sessions/self").is_ok());
                }
                answers
            });
            let times = ping_through(Subject::Shim, process);
            asking.store(false, Ordering::Relaxed);
            asked += reader.join().unwrap();
            times
        });
        assert!(asked > 0, "nobody was answered");
        p50s[1].push(percentile(&mut times, 50));
    }
    let [alone, asked] = p50s.map(|times| median(&times));
    table.pair("round trip, nobody (first) and somebody asking at the socket", alone, asked, 1.2);
}

fn ping(subject: Subject) -> Vec<Duration> {
    ping_through(subject, subject.start(&["echo"]))
}

fn ping_through(subject: Subject, mut process: Process) -> Vec<Duration> {
    let line = support::line(PING_BYTES);
    let mut answer = vec![0; PING_BYTES];
    let mut times = Vec::with_capacity(PINGS);
    for turn in 0..PINGS + 200 {
        let began = Instant::now();
        process.stdin.write_all(&line).unwrap();
        process.stdout.read_exact(&mut answer).unwrap();
        if turn >= 200 {
            times.push(began.elapsed());
        }
        assert!(answer == line, "{subject:?} altered a line");
    }
    process.end();
    times
}

/// Lines from the server at full speed.
fn storm(
    table: &mut Table,
    name: &'static str,
    line_bytes: usize,
    lines: usize,
    writes: &str,
    yardstick: Subject,
    rate_min: f64,
) {
    let expect = Sum::of_lines(line_bytes, lines);
    let mut times = [const { Vec::new() }; Subject::COUNT];
    for _ in 0..rounds() {
        for (index, subject) in Subject::ALL.into_iter().enumerate() {
            let process = subject.start(&["storm", &line_bytes.to_string(), &lines.to_string(), writes]);
            let (elapsed, sum) = drain(process, &expect);
            assert!(sum == expect, "{subject:?} altered the storm");
            times[index].push(elapsed);
        }
    }
    table.rates(name, lines, times.map(|times| median(&times)), yardstick, rate_min);
}

/// Starts the server's output, and reads all of it.
fn drain(mut process: Process, expect: &Sum) -> (Duration, Sum) {
    let mut sum = Sum::default();
    let mut chunk = vec![0; 256 << 10];
    process.ready();
    let began = Instant::now();
    process.stdin.write_all(b"go\n").unwrap();
    // Not to the end of the stream: a pair of `cat` keeps it open until its input ends.
    while sum.bytes < expect.bytes {
        match process.stdout.read(&mut chunk).unwrap() {
            0 => break,
            read => sum.add(&chunk[..read]),
        }
    }
    let elapsed = began.elapsed();
    process.end();
    (elapsed, sum)
}

fn long_line(table: &mut Table) {
    let expect = Sum::of_lines(LONG_LINE_BYTES, 1);
    let mut times = [const { Vec::new() }; Subject::COUNT];
    for _ in 0..rounds() {
        for (index, subject) in Subject::ALL.into_iter().enumerate() {
            let process = subject.start(&["storm", &LONG_LINE_BYTES.to_string(), "1", "block"]);
            let (elapsed, sum) = drain(process, &expect);
            assert!(sum == expect, "{subject:?} altered the line");
            times[index].push(elapsed);
        }
    }
    table.times("one 32 MiB line", times.map(|times| median(&times)), Subject::Tee, 1.5);
}

/// From the start of the process to its first byte.
fn start(table: &mut Table) {
    let mut times = [const { Vec::new() }; Subject::COUNT];
    for _ in 0..START_ROUNDS {
        for (index, subject) in Subject::ALL.into_iter().enumerate() {
            let began = Instant::now();
            let mut process = subject.start(&["hello"]);
            process.ready();
            times[index].push(began.elapsed());
            process.end();
        }
    }
    let times = times.map(|times| median(&times));
    let more = times[Subject::Shim as usize].saturating_sub(times[0]);
    table.at_most("start to first byte, more than direct", more.as_secs_f64() * 1e3, "ms", 3.5);
    for (name, subject) in [("cat pair", Subject::Cat), ("least relay", Subject::Least)] {
        let more = times[subject as usize].saturating_sub(times[0]);
        table.figure(&format!("the same for the {name}"), format!("{:.2} ms", more.as_secs_f64() * 1e3));
    }
}

/// Resident memory in MiB after the relay has given pages back, which it does once, some seconds after its start.
fn at_rest(process: &Process) -> f64 {
    let (began, at_first) = (Instant::now(), process.sample().resident());
    let mut resident = at_first;
    while resident > at_first * 0.75 && began.elapsed() < Duration::from_secs(10) {
        // Nothing announces it.
        std::thread::sleep(Duration::from_millis(100));
        resident = process.sample().resident();
    }
    resident
}

/// Resident code of the program in MiB; most of it is of its start, and is given back.
fn code(process: &Process) -> f64 {
    let maps = std::fs::read_to_string(format!("/proc/{}/smaps", process.id())).unwrap_or_default();
    let of_code = maps.split_once(" r-xp ").and_then(|(_, code)| code.split_once("Rss:")?.1.split_whitespace().next());
    of_code.and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
}

/// Resident memory of the shim alone, and its processor time per line.
fn memory(table: &mut Table) {
    let mut process = Subject::Shim.start(&["echo"]);
    let line = support::line(PING_BYTES);
    let mut answer = vec![0; PING_BYTES];
    for _ in 0..100 {
        process.stdin.write_all(&line).unwrap();
        process.stdout.read_exact(&mut answer).unwrap();
    }
    table.at_most("resident memory at rest", at_rest(&process), "MiB", 12.0);
    table.at_most("resident code of it", code(&process), "MiB", 2.0);
    process.end();

    let lines = STORM_LINES.to_string();
    let mut process = Subject::Shim.start(&["storm-then-wait", "200", &lines, "line"]);
    process.ready();
    process.stdin.write_all(b"go\n").unwrap();
    let mut chunk = vec![0; 64 << 10];
    let (mut left, mut peak) = (200 * STORM_LINES, Sample::default());
    let mut looked = Instant::now();
    while left > 0 {
        left -= process.stdout.read(&mut chunk).unwrap();
        if looked.elapsed() > Duration::from_millis(5) {
            looked = Instant::now();
            peak = peak.max_resident(process.sample());
        }
    }
    let after = process.sample();
    table.at_most("resident memory in a storm of a million lines, peak", peak.resident(), "MiB", 24.0);
    table.at_most("resident memory after it", after.resident(), "MiB", 24.0);
    let per_line = after.processor.as_secs_f64() * 1e6 / STORM_LINES as f64;
    table.figure("processor time a line, a write each", format!("{per_line:.2} µs"));
    history::caught_up(Some(table), &process, STORM_LINES);
    table.at_most("resident memory once that is indexed", process.sample().resident(), "MiB", 24.0);
    let per_line = process.sample().processor.as_secs_f64() * 1e6 / STORM_LINES as f64;
    table.figure("processor time a line, its place in the history too", format!("{per_line:.2} µs"));
    process.end();

    let lines = SMALL_LINES.to_string();
    let mut process = Subject::Shim.start(&["storm-then-wait", "200", &lines, "block"]);
    process.ready();
    let before = process.relay_thread();
    process.stdin.write_all(b"go\n").unwrap();
    let mut left = 200 * SMALL_LINES;
    while left > 0 {
        left -= process.stdout.read(&mut chunk).unwrap();
    }
    let took = process.relay_thread() - before;
    let per_line = took.as_secs_f64() * 1e6 / SMALL_LINES as f64;
    table.at_most("processor time of the relay's thread for a 200-byte line in blocks", per_line, "µs", 0.3);
    process.end();
}

/// Measures the memory while four long lines pass in each direction at once, for two kinds of lines.
fn long_lines(table: &mut Table) {
    const LINES: usize = 4;
    for kind in ["event", "answer"] {
        let mut process = Subject::Shim.start(&["exchange", kind, &LONG_LINE_BYTES.to_string(), &LINES.to_string()]);
        process.ready();
        let Process { stdin, stdout, .. } = &mut process;
        std::thread::scope(|scope| {
            scope
                .spawn(|| (0..LINES).for_each(|id| stdin.write_all(&support::long_call(LONG_LINE_BYTES, id)).unwrap()));
            // The last one is short.
            let (mut chunk, mut left) = (vec![0; 64 << 10], LINES + 1);
            while left > 0 {
                let read = stdout.read(&mut chunk).unwrap();
                left -= chunk[..read].iter().filter(|byte| **byte == b'\n').count();
            }
        });
        // Each call is an event and no answer is one. The four pieces of a message are one event.
        history::caught_up(None, &process, LINES + if kind == "event" { 2 } else { 1 });
        let name = format!("peak of the memory with four 32 MiB lines each way, each an {kind}, index included");
        table.at_most(&name, process.peak_mib(), "MiB", 100.0);
        table.at_most("resident memory after them", at_rest(&process), "MiB", 32.0);
        process.end();
    }
}

/// The engine's cost for a line that is not about context, the part of it that searches for a marker, and the cost of a
/// line with a marker. Runs in this process, without pipe and journal.
fn context(table: &mut Table) {
    const LINES: u32 = 200_000;
    let mut engine = support::engine();
    let mut effects = Vec::new();
    for (name, bytes) in [("200 bytes", 200), ("4 KiB", 4096)] {
        let line = support::line(bytes);
        let line = &line[..line.len() - 1];
        let finder = memchr::memmem::Finder::new(b"\\u001e");
        let (mut engine_times, mut look_times) = (Vec::new(), Vec::new());
        for _ in 0..rounds() {
            let began = Instant::now();
            for _ in 0..LINES {
                support::handle(&mut engine, std::hint::black_box(line), &mut effects);
            }
            engine_times.push(began.elapsed() / LINES);
            let began = Instant::now();
            let found = (0..LINES).filter(|_| finder.find(std::hint::black_box(line)).is_some()).count();
            look_times.push(began.elapsed() / LINES);
            assert_eq!(found, 0);
        }
        let (whole, look) = (median(&engine_times).as_nanos(), median(&look_times).as_nanos());
        table.figure(
            &format!("engine for a line of {name} without a marker; the look for one"),
            format!("{whole} ns; {look} ns"),
        );
    }
    let line = support::line_with_envelope();
    let began = Instant::now();
    for _ in 0..LINES / 10 {
        support::handle(&mut engine, std::hint::black_box(&line), &mut effects);
    }
    let each = began.elapsed().as_nanos() / u128::from(LINES / 10);
    table.figure(&format!("engine for a line of {} bytes with an envelope", line.len()), format!("{each} ns"));
    let line = support::big_thread_with_envelopes();
    let mut times: Vec<Duration> = (0..rounds())
        .map(|_| {
            let began = Instant::now();
            support::handle(&mut engine, std::hint::black_box(&line), &mut effects);
            began.elapsed()
        })
        .collect();
    let took_ms = percentile(&mut times, 50).as_secs_f64() * 1e3;
    let name = format!("engine for the answer to a thread/resume of {} MB with envelopes", line.len() / 1_000_000);
    table.figure(&name, format!("{took_ms:.0} ms"));
}

/// A cheap call to the real codex, if it is installed.
fn codex(table: &mut Table) {
    let Some(codex) = support::codex() else {
        println!("codex: not installed (make codex), its measurement is left out");
        return;
    };
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..3 {
        for (index, subject) in [Subject::Direct, Subject::Shim].into_iter().enumerate() {
            let mut process = subject.start_codex(&codex);
            let call = |process: &mut Process, line: &str| {
                process.stdin.write_all(line.as_bytes()).unwrap();
                process.read_answer();
            };
            call(
                &mut process,
                "{\"id\":0,\"method\":\"initialize\",\"params\":{\"clientInfo\":{\"name\":\"bench\",\"version\":\"1\"}}}\n",
            );
            process.stdin.write_all(b"{\"method\":\"initialized\"}\n").unwrap();
            for turn in 0..600 {
                let began = Instant::now();
                call(&mut process, "{\"id\":1,\"method\":\"thread/loaded/list\",\"params\":{}}\n");
                if turn >= 100 {
                    times[index].push(began.elapsed());
                }
            }
            process.end();
        }
    }
    let [direct, shim] = times.map(|mut times| percentile(&mut times, 50));
    table.pair("thread/loaded/list of the real codex, p50", direct, shim, 1.4);
}
