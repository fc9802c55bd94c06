//! The parts of the benchmark: a server, the programs in front of it, and the table of figures.

pub mod least;

use std::io::{BufRead as _, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use codex_shim::testing::engine::{
    AssemblySettings, ContextSettings, Effect, Engine, EngineSettings, Incoming, Now, RequestSettings, ServerOwner,
};
use codex_shim::testing::wire::{Conn, Line, LineEnd, Side};

/// The measured binary: that of this build, or the one that `BINARY` names.
pub static SHIM: LazyLock<PathBuf> =
    LazyLock::new(|| match std::env::var_os("BINARY").filter(|path| !path.is_empty()) {
        Some(path) => std::fs::canonicalize(&path).expect("BINARY names the program to measure"),
        None => PathBuf::from(env!("CARGO_BIN_EXE_codex-shim")),
    });

/// The programs between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    Direct,
    Cat,
    Tee,
    /// [`least`]
    Least,
    Shim,
}

impl Subject {
    pub const ALL: [Subject; Self::COUNT] =
        [Subject::Direct, Subject::Cat, Subject::Tee, Subject::Least, Subject::Shim];

    pub const COUNT: usize = 5;

    /// Starts our server in `role` behind this subject.
    pub fn start(self, role: &[&str]) -> Process {
        let server = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut command = match self {
            Subject::Direct => Command::new(&server),
            Subject::Cat => shell("cat | \"$0\" \"$@\" | cat", &server),
            Subject::Tee => shell("tee in | \"$0\" \"$@\" | tee out", &server),
            Subject::Least => {
                let mut least = Command::new(&server);
                least.arg("least").arg(&server);
                least
            }
            Subject::Shim => shim(&dir, &server),
        };
        command.arg("server").args(role).current_dir(dir.path());
        Process::start(command, dir)
    }

    /// Starts the real codex behind this subject.
    pub fn start_codex(self, codex: &Path) -> Process {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut command = match self {
            Subject::Shim => shim(&dir, codex),
            Subject::Direct | Subject::Cat | Subject::Tee | Subject::Least => Command::new(codex),
        };
        command.arg("app-server").env("CODEX_HOME", dir.path()).current_dir(dir.path()).stderr(Stdio::null());
        Process::start(command, dir)
    }
}

fn shell(script: &str, server: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(server);
    command
}

fn shim(dir: &tempfile::TempDir, server: &Path) -> Command {
    let mut command = Command::new(&*SHIM);
    command.env("CODEX_SHIM_HOME", dir.path().join("home")).args(["run", "--"]).arg(server);
    command
}

/// Starts our server in `role` behind a shim in a session of this name.
pub fn start_in(home: &Path, session: &str, role: &[&str]) -> Process {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = Command::new(&*SHIM);
    command
        .env("CODEX_SHIM_HOME", home)
        .args(["run", "--session", session, "--"])
        .arg(std::env::current_exe().unwrap());
    command.arg("server").args(role).current_dir(dir.path());
    Process::start(command, dir)
}

/// The real codex as installed by `make codex`, if it exists.
pub fn codex() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/codex/node_modules/.bin/codex");
    path.exists().then_some(path)
}

/// A subject with a server behind it.
pub struct Process {
    child: Child,
    pub stdin: ChildStdin,
    pub stdout: ChildStdout,
    dir: tempfile::TempDir,
}

impl Process {
    fn start(mut command: Command, dir: tempfile::TempDir) -> Process {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Process { child, stdin, stdout, dir }
    }

    /// Waits for the first line, which every server except the echo sends.
    pub fn ready(&mut self) {
        self.stdout.read_exact(&mut [0; 6]).unwrap();
    }

    /// The folder of the shim's session, once its socket is there.
    pub fn session_dir(&self) -> PathBuf {
        loop {
            let sessions = std::fs::read_dir(self.dir.path().join("home/sessions"));
            let first = sessions.ok().and_then(|mut sessions| sessions.next()?.ok());
            match first {
                Some(session) if session.path().join("control.sock").exists() => return session.path(),
                Some(_) | None => std::thread::yield_now(),
            }
        }
    }

    /// Reads up to a line that is an answer.
    pub fn read_answer(&mut self) {
        let mut line = Vec::new();
        let mut chunk = [0; 4096];
        while !(line.ends_with(b"\n") && line.windows(9).any(|window| window == b"\"result\":")) {
            let read = self.stdout.read(&mut chunk).unwrap();
            assert!(read > 0, "the server has ended");
            line.extend_from_slice(&chunk[..read]);
        }
    }

    pub fn end(self) {
        let Process { mut child, stdin, stdout, dir: _dir } = self;
        drop((stdin, stdout));
        child.wait().unwrap();
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Processor time of the main thread of the started process.
    pub fn relay_thread(&self) -> Duration {
        let id = self.child.id();
        let stat = std::fs::read_to_string(format!("/proc/{id}/task/{id}/schedstat")).unwrap_or_default();
        Duration::from_nanos(stat.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
    }

    /// The most memory that was ever resident, in MiB.
    pub fn peak_mib(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let field = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib: f64 = field.and_then(|field| field.split_whitespace().next()?.parse().ok()).unwrap_or(0.0);
        kib / 1024.0
    }

    /// Memory and processor time of the started process.
    pub fn sample(&self) -> Sample {
        let proc = PathBuf::from(format!("/proc/{}", self.child.id()));
        let status = std::fs::read_to_string(proc.join("status")).unwrap_or_default();
        let field = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = field.and_then(|field| field.split_whitespace().next()?.parse().ok()).unwrap_or(0);
        let stat = std::fs::read_to_string(proc.join("stat")).unwrap_or_default();
        let ticks: u64 = stat.rsplit(')').next().map_or(0, |rest| {
            rest.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
        });
        // USER_HZ is 100 on every Linux.
        Sample { resident_kib: kib, processor: Duration::from_millis(10 * ticks) }
    }
}

/// Resources used by a process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    resident_kib: u64,
    /// Since its start.
    pub processor: Duration,
}

impl Sample {
    pub fn max_resident(self, other: Sample) -> Sample {
        if other.resident_kib > self.resident_kib { other } else { self }
    }

    /// In MiB.
    pub fn resident(self) -> f64 {
        self.resident_kib as f64 / 1024.0
    }
}

/// Runs `measure` with this process and its children on one core, if that is wanted and possible.
#[cfg(target_os = "linux")]
pub fn on_one_core(wanted: bool, measure: impl FnOnce()) {
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    if wanted {
        let mut one = rustix::thread::CpuSet::new();
        one.set((0..1024).find(|core| all.is_set(*core)).unwrap());
        rustix::thread::sched_setaffinity(None, &one).unwrap();
    }
    measure();
    rustix::thread::sched_setaffinity(None, &all).unwrap();
}

/// This system gives no process a core.
#[cfg(not(target_os = "linux"))]
pub fn on_one_core(_wanted: bool, measure: impl FnOnce()) {
    measure();
}

/// A line of JSON with `bytes` bytes, including `
/// `.
pub fn line(bytes: usize) -> Vec<u8> {
    let head = b"{\"method\":\"item/agentMessage/delta\",\"params\":{\"threadId\":\"t\",\"delta\":\"";
    let tail = b"\"}}\n";
    let fill = bytes - head.len() - tail.len();
    let words = b"lorem ipsum dolor sit amet ";
    head.iter().copied().chain(words.iter().copied().cycle().take(fill)).chain(tail.iter().copied()).collect()
}

/// A call with a long text.
pub fn long_call(bytes: usize, id: usize) -> Vec<u8> {
    let head = format!(r#"{{"id":{id},"method":"thread/resume","params":{{"threadId":"t","path":""#);
    let tail = b"\"}}\n";
    [head.as_bytes(), &vec![b'x'; bytes - head.len() - tail.len()], tail].concat()
}

/// The answer to it: a thread with many turns.
fn long_answer(bytes: usize, id: usize) -> Vec<u8> {
    const OUTPUT_BYTES: usize = 20_000;
    let mut line = format!(r#"{{"id":{id},"result":{{"thread":{{"id":"t","turns":["#).into_bytes();
    for turn in 0..bytes / OUTPUT_BYTES {
        let (comma, output) = (if turn == 0 { "" } else { "," }, "x".repeat(OUTPUT_BYTES));
        let command =
            format!(r#""type":"commandExecution","id":"c{turn}","command":"ls","cwd":"/","status":"completed""#);
        let item = format!(r#"{{{command},"aggregatedOutput":"{output}","exitCode":0}}"#);
        line.extend(format!(r#"{comma}{{"id":"u{turn}","status":"completed","items":[{item}]}}"#).into_bytes());
    }
    line.extend_from_slice(b"]}}}\n");
    line
}

/// Length of a numbered line, including `
/// `.
pub const NUMBERED_BYTES: usize = 200;

/// A numbered line of JSON that is one event.
pub fn numbered(number: u64) -> String {
    let head = format!("{{\"method\":\"thread/status/changed\",\"params\":{{\"number\":{number},\"fill\":\"");
    format!("{head}{:x<width$}\"}}}}\n", "", width = NUMBERED_BYTES - head.len() - 4)
}

/// A checksum that accepts bytes in pieces of any size.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub bytes: u64,
    sum: u64,
}

impl Sum {
    pub fn add(&mut self, piece: &[u8]) {
        // The position counts, so that a swap is detected; one multiplication for a whole piece keeps the client's cost
        // low.
        for chunk in piece.chunks(1 << 16) {
            let plain: u64 = chunk.iter().map(|byte| u64::from(*byte)).sum();
            self.sum = self.sum.wrapping_add(plain);
            self.bytes += chunk.len() as u64;
        }
    }

    pub fn of_lines(line_bytes: usize, lines: usize) -> Sum {
        let mut one = Sum::default();
        one.add(&line(line_bytes));
        Sum { bytes: one.bytes * lines as u64, sum: one.sum.wrapping_mul(lines as u64) }
    }
}

/// The server's side.
pub fn serve(role: &[String]) {
    let mut stdin = std::io::stdin().lock();
    let mut stdout = std::fs::File::from(std::os::fd::AsFd::as_fd(&std::io::stdout()).try_clone_to_owned().unwrap());
    match role[0].as_str() {
        "echo" | "echo-after-hello" => {
            if role[0] == "echo-after-hello" {
                stdout.write_all(b"hello\n").unwrap();
            }
            let mut chunk = vec![0; 64 << 10];
            while let Ok(read) = stdin.read(&mut chunk) {
                if read == 0 || stdout.write_all(&chunk[..read]).is_err() {
                    return;
                }
            }
        }
        "hello" => {
            stdout.write_all(b"hello\n").unwrap();
            let _ = stdin.read(&mut [0; 64]);
        }
        "storm" | "storm-then-wait" => {
            let number = |index: usize| role[index].parse::<usize>().unwrap();
            let (bytes, lines) = (number(1), number(2));
            let line = line(bytes);
            let at_once = if role[3] == "line" { 1 } else { (65_536 / bytes).max(1) };
            stdout.write_all(b"ready\n").unwrap();
            let _ = stdin.read(&mut [0; 64]);
            let block = line.repeat(at_once);
            for _ in 0..lines / at_once {
                stdout.write_all(&block).unwrap();
            }
            stdout.write_all(&block[..bytes * (lines % at_once)]).unwrap();
            if role[0] == "storm-then-wait" {
                while stdin.read(&mut [0; 64]).is_ok_and(|read| read > 0) {
                    stdout.write_all(b"hello\n").unwrap();
                }
            }
        }
        "exchange" => {
            let number = |index: usize| role[index].parse::<usize>().unwrap();
            let (bytes, lines) = (number(2), number(3));
            stdout.write_all(b"ready\n").unwrap();
            let mut calls = std::fs::File::from(std::os::fd::AsFd::as_fd(&stdin).try_clone_to_owned().unwrap());
            let calls = std::thread::spawn(move || {
                let mut left = lines;
                let mut chunk = vec![0; 64 << 10];
                while left > 0 {
                    let read = calls.read(&mut chunk).unwrap();
                    left -= chunk[..read].iter().filter(|byte| **byte == b'\n').count();
                }
            });
            for id in 0..lines {
                let line = if role[1] == "event" { line(bytes) } else { long_answer(bytes, id) };
                stdout.write_all(&line).unwrap();
            }
            calls.join().unwrap();
            stdout.write_all(numbered(0).as_bytes()).unwrap();
            let _ = stdin.read(&mut [0; 64]);
        }
        "paced" => {
            let number = |index: usize| role[index].parse::<u64>().unwrap();
            let (rate, lines) = (number(1), number(2));
            stdout.write_all(b"ready\n").unwrap();
            let _ = stdin.read(&mut [0; 64]);
            let began = std::time::Instant::now();
            for line in 0..lines {
                let due = began + Duration::from_nanos(line * 1_000_000_000 / rate);
                // The sleep sets the rate.
                std::thread::sleep(due.saturating_duration_since(std::time::Instant::now()));
                stdout.write_all(numbered(line).as_bytes()).unwrap();
            }
            let _ = stdin.read(&mut [0; 64]);
        }
        "told" => {
            stdout.write_all(b"hello\n").unwrap();
            for line in stdin.lines() {
                let asked: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
                let answer = match asked["method"].as_str() {
                    Some("bench/say") => asked["params"].as_str().unwrap(),
                    Some("initialize") => r#"{"id":0,"result":{"userAgent":"bench/0.169.0 (a server)"}}"#,
                    Some(_) | None => continue,
                };
                writeln!(stdout, "{answer}").unwrap();
            }
        }
        other => panic!("no such role: {other}"),
    }
}

/// An engine like the relay's.
pub fn engine() -> Engine {
    let exit_grace = Duration::from_secs(10);
    let (context, requests) = (ContextSettings::default(), RequestSettings::default());
    Engine::new(EngineSettings {
        budget: Default::default(),
        assembly: AssemblySettings::default(),
        exit_grace,
        context,
        requests,
        server_owner: ServerOwner::Client,
        own_ids: "codex-shim:0:".to_owned(),
        tokens_before: 0,
    })
}

/// Lets the engine decide on a line of the server.
pub fn handle(engine: &mut Engine, line: &[u8], effects: &mut Vec<Effect>) {
    let line = Line { bytes: line, end: LineEnd::Newline };
    let now = Now { unix_us: 1, elapsed: Duration::ZERO };
    std::hint::black_box(engine.read(now, Conn::OWN, Side::Server, Incoming::Line(line), effects));
    std::hint::black_box(&effects);
    effects.clear();
}

/// A user's message as codex repeats it, with an envelope of three commands.
pub fn line_with_envelope() -> Vec<u8> {
    let command = "{\\\"cmd\\\":\\\"cargo test\\\",\\\"exit_code\\\":101,\\\"preview\\\":{\\\"lines\\\":[\\\"x\\\"]}}";
    let envelope = format!("\\u001eCODEX_META {{\\\"v\\\":1,\\\"commands\\\":[{command},{command},{command}]}}\\u001f");
    format!(
        r#"{{"method":"item/started","params":{{"item":{{"type":"userMessage","id":"i","content":[{{"type":"text","text":"{envelope}fix it","text_elements":[]}}]}},"threadId":"t"}}}}"#
    )
    .into_bytes()
}

/// The answer to a `thread/resume`, some 23 MB, in which every tenth item is a message with an envelope.
pub fn big_thread_with_envelopes() -> Vec<u8> {
    let message = String::from_utf8(line_with_envelope()).unwrap();
    let from = message.find("{\"type\":\"userMessage\"").unwrap();
    let message = &message[from..message.rfind(",\"threadId\"").unwrap()];
    let other = format!(r#"{{"type":"agentMessage","id":"i","text":"{}"}}"#, "lorem ipsum \\n".repeat(170));
    let turn = format!(r#"{{"id":"u","items":[{message},{}]}}"#, vec![other; 9].join(","));
    let turns = vec![turn; 1_000].join(",");
    format!(r#"{{"id":1,"result":{{"thread":{{"id":"t","turns":[{turns}]}}}}}}"#).into_bytes()
}

pub fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() - 1) * percent / 100]
}

pub fn median(times: &[Duration]) -> Duration {
    percentile(&mut times.to_vec(), 50)
}

/// Rounds of each measurement.
pub fn rounds() -> usize {
    if is_quick() { 3 } else { 7 }
}

/// Fewer and shorter measurements, for a look in less than a minute: `make bench QUICK=1`.
pub fn is_quick() -> bool {
    std::env::var_os("QUICK").is_some_and(|quick| !quick.is_empty())
}

/// The figures, formatted for people.
pub struct Table(Vec<[String; 9]>);

impl Table {
    pub fn new() -> Table {
        let heads = [
            "measurement",
            "direct",
            "cat pair",
            "tee pair",
            "least relay",
            "codex-shim",
            "ratio",
            "target",
            "verdict",
        ];
        Table(vec![heads.map(String::from)])
    }

    /// Times of the subjects; the target is a ratio to `yardstick` of at most `ratio_max`.
    pub fn times(&mut self, name: &str, times: [Duration; Subject::COUNT], yardstick: Subject, ratio_max: f64) {
        let ratio = times[Subject::Shim as usize].as_secs_f64() / times[yardstick as usize].as_secs_f64();
        let [direct, cat, tee, least, shim] = times.map(micros);
        let target = format!("<= {ratio_max} x {yardstick:?}");
        self.0.push([
            name.to_owned(),
            direct,
            cat,
            tee,
            least,
            shim,
            two_places(ratio),
            target,
            verdict(ratio <= ratio_max),
        ]);
    }

    /// Times for `lines` lines; the target is a ratio of the rates of at least `ratio_min`.
    pub fn rates(
        &mut self,
        name: &str,
        lines: usize,
        times: [Duration; Subject::COUNT],
        yardstick: Subject,
        ratio_min: f64,
    ) {
        let ratio = times[yardstick as usize].as_secs_f64() / times[Subject::Shim as usize].as_secs_f64();
        let [direct, cat, tee, least, shim] =
            times.map(|time| format!("{:.0}k/s", lines as f64 / time.as_secs_f64() / 1e3));
        let target = format!(">= {ratio_min} x {yardstick:?}");
        self.0.push([
            name.to_owned(),
            direct,
            cat,
            tee,
            least,
            shim,
            two_places(ratio),
            target,
            verdict(ratio >= ratio_min),
        ]);
    }

    /// Two times, of which the second is to be at most `ratio_max` of the first.
    pub fn pair(&mut self, name: &str, first: Duration, second: Duration, ratio_max: f64) {
        self.pair_beside_least(name, [first, second], None, ratio_max);
    }

    /// The same with the time of the least program that could do it.
    pub fn pair_beside_least(
        &mut self,
        name: &str,
        [first, second]: [Duration; 2],
        least: Option<Duration>,
        ratio_max: f64,
    ) {
        let ratio = second.as_secs_f64() / first.as_secs_f64();
        let least = least.map_or_else(none, micros);
        let (first, second) = (micros(first), micros(second));
        let target = format!("<= {ratio_max} x first");
        self.0.push([
            name.to_owned(),
            first,
            none(),
            none(),
            least,
            second,
            two_places(ratio),
            target,
            verdict(ratio <= ratio_max),
        ]);
    }

    /// One figure that is to be at most `max`.
    pub fn at_most(&mut self, name: &str, figure: f64, unit: &str, max: f64) {
        let [shown, target] = [figure, max].map(|figure| quantity(figure, unit));
        let target = format!("<= {target}");
        // As it is shown.
        let figure = (figure * 100.0).round() / 100.0;
        self.0.push([name.to_owned(), none(), none(), none(), none(), shown, none(), target, verdict(figure <= max)]);
    }

    /// One figure, as a ratio to `baseline`, which it may exceed by a tenth.
    pub fn against_baseline(&mut self, name: &str, figure: f64, baseline: f64) -> bool {
        let (ratio, is_met) = (figure / baseline, figure <= baseline * 1.1);
        let target = format!("<= 1.1 x {baseline:.0}");
        let shown = quantity(figure, "");
        self.0.push([
            name.to_owned(),
            none(),
            none(),
            none(),
            none(),
            shown,
            two_places(ratio),
            target,
            verdict(is_met),
        ]);
        is_met
    }

    /// A figure without a target.
    pub fn figure(&mut self, name: &str, figure: String) {
        self.0.push([name.to_owned(), none(), none(), none(), none(), figure, none(), none(), none()]);
    }

    pub fn print(&self) {
        println!("measured: {}", SHIM.display());
        let widths: [usize; 9] =
            std::array::from_fn(|column| self.0.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
        for row in &self.0 {
            let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            println!("{}", cells.join("  ").trim_end());
        }
    }
}

fn none() -> String {
    "-".to_owned()
}

fn two_places(ratio: f64) -> String {
    format!("{ratio:.2}")
}

fn micros(time: Duration) -> String {
    format!("{:.1} µs", time.as_secs_f64() * 1e6)
}

fn quantity(figure: f64, unit: &str) -> String {
    let places = if figure >= 100.0 { 0 } else { 2 };
    format!("{figure:.places$} {unit}").trim_end().to_owned()
}

fn verdict(is_met: bool) -> String {
    if is_met { "met" } else { "missed" }.to_owned()
}
