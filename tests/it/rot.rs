//! Stored homes with one damaged file: no tool and no relay panics or hangs, and none shows a wrong row as right.
//!
//! Each tool shows of the damaged home what it shows of the intact one, or the difference has a name: an error, a warning, a gap, or
//! the file in `doctor --files`. [`Case::cannot_be_known`] says where that is impossible.
//!
//! `ROT_CASES=10000` plays more cases, and `ROT_SEED=7` one of them. What was found is in `rot.txt` in the folder for temporary files
//! of the build.

mod damage;
mod homes;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde_json::Value;

use crate::key_forms::Random;
use crate::support::patience::poll;
use crate::support::shim::SHIM;

use damage::{Damage, Done, damage, put};
use homes::{Model, WORD, copy, files, models, stopped};

/// Cases in each run of the tests.
const CASES: u64 = 48;

/// Cases at a time.
const THREADS: usize = 3;

/// Longer than any tool takes for a small home, also on a busy machine.
const HANGS_AFTER: Duration = Duration::from_secs(90);

/// Members that differ from run to run.
const OF_A_RUN: &[&str] = &["hash", "prev", "until", "age_s", "entries_read"];

/// What a tool prints that says that something is missing or wrong.
const GAPS: [&str; 6] = [
    r#""history_gap":true"#,
    r#""event_gap""#,
    r#""gap_reason":""#,
    r#""kind":"gap""#,
    r#""kind":"malformed""#,
    r#""faults":[{"#,
];

/// What a tool shows: its rows, and how often each is there.
type Rows = BTreeMap<String, usize>;

/// What `codex-shim` has said.
struct Said {
    args: Vec<String>,
    output: Output,
}

impl Said {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    fn errors(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// Whether the tool itself says that something is missing or wrong.
    fn names_a_fault(&self) -> bool {
        let text = self.text();
        !self.output.status.success() || !self.output.stderr.is_empty() || GAPS.iter().any(|gap| text.contains(gap))
    }

    /// A panic, an end by a signal, or an odd status, in words.
    fn misbehaves(&self) -> Option<String> {
        let code = self.output.status.code();
        let panicked = self.errors().contains("panicked") || self.text().contains("panicked at");
        (panicked || code.is_none_or(|code| code >= 10))
            .then(|| format!("{:?} ended with {:?}: {}", self.args, self.output.status, self.errors()))
    }

    /// What it shows: each member of a list, and the rest of each document.
    fn rows(&self, numbers: Numbers) -> Rows {
        let mut rows = Rows::new();
        let mut add = |row: String| *rows.entry(row).or_default() += 1;
        for document in serde_json::Deserializer::from_str(&self.text()).into_iter::<Value>() {
            let Ok(mut document) = document else {
                add("not JSON".to_owned());
                break;
            };
            strip(&mut document, numbers);
            // They have the time of an audit's export.
            if ["header", "footer"].iter().any(|kind| document["kind"] == *kind) && !document["line"].is_null() {
                continue;
            }
            let Value::Object(members) = &mut document else { continue };
            for (name, value) in members.iter_mut() {
                let Value::Array(list) = value else { continue };
                list.drain(..).for_each(|row| add(format!("{name}: {row}")));
            }
            add(document.to_string());
        }
        rows
    }
}

/// Whether the numbers of events count. A history that was built again may have others.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Numbers {
    Counted,
    Ignored,
}

/// Removes what differs from run to run.
fn strip(value: &mut Value, numbers: Numbers) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| {
                let is_number = numbers == Numbers::Ignored && (name.contains("seq") || name.contains("epoch"));
                !OF_A_RUN.contains(&name.as_str()) && !is_number
            });
            members.values_mut().for_each(|value| strip(value, numbers));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| strip(value, numbers)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn shim(home: &Path, args: &[&str]) -> Command {
    let beside = home.parent().expect("a folder beside the home");
    let mut command = Command::new(SHIM);
    for variable in ["SESSION", "OFF", "RECORD", "EXIT_GRACE", "DEPTH"] {
        command.env_remove(format!("CODEX_SHIM_{variable}"));
    }
    command
        .env("CODEX_SHIM_HOME", home)
        .env("HOME", beside)
        .env_remove("CODEX_HOME")
        .env("CODEX_SHIM_CODEX", "/nonexistent");
    command.current_dir(beside).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The output of a child; `None` if it hangs.
fn ended(mut child: Child) -> Option<Output> {
    fn all(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            bytes
        })
    }
    let (stdout, stderr) = (all(child.stdout.take().expect("piped")), all(child.stderr.take().expect("piped")));
    let status = poll(HANGS_AFTER, || child.try_wait().expect("it is our child"));
    if status.is_none() {
        let _ = child.kill();
    }
    let [stdout, stderr] = [stdout, stderr].map(|read| read.join().expect("it reads"));
    Some(Output { status: status?, stdout, stderr })
}

fn says(home: &Path, args: &[&str]) -> Result<Said, String> {
    let mut child = shim(home, args).spawn().expect("the shim starts");
    drop(child.stdin.take());
    let output = ended(child).ok_or_else(|| format!("{args:?} hangs"))?;
    Ok(Said { args: args.iter().map(|arg| (*arg).to_owned()).collect(), output })
}

/// A relay in front of `cat` passes a line.
fn relays(home: &Path, session: &str) -> Result<Said, String> {
    let args = ["run", "--session", session, "--", "cat"];
    let mut child = shim(home, &args).spawn().expect("the shim starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let line = "{\"method\":\"rot/line\",\"params\":{}}\n";
    let written = stdin.write_all(line.as_bytes());
    drop(stdin);
    let output = ended(child).ok_or_else(|| format!("{args:?} hangs"))?;
    let said = Said { args: args.iter().map(|arg| (*arg).to_owned()).collect(), output };
    match written.is_ok() && said.text() == line && said.output.status.success() {
        true => Ok(said),
        false => Err(format!("the relay lost a line: {:?} {}", said.output.status, said.errors())),
    }
}

/// The tools that read the session, and what they show of the intact home.
struct Views {
    of: BTreeMap<Vec<String>, [Rows; 2]>,
}

fn views(session: &str, thread: &str, request: &str) -> Vec<Vec<String>> {
    let words: Vec<Vec<&str>> = vec![
        vec!["sessions", "--json"],
        vec!["status", session, "--json"],
        vec!["events", session, "--since", "0", "-n", "1000", "--json"],
        vec!["requests", "--all", "--json"],
        vec!["requests", session, "--all", "--json"],
        vec!["show", request, "--session", session, "--json"],
        vec!["transcript", thread, "--session", session, "--json"],
        vec!["tail", session, "-n", "200", "--json"],
        vec!["search", WORD, "--session", session, "-n", "100", "--json"],
        vec!["usage", session, "--by", "turn", "--json"],
        vec!["audit", "export", "--session", session],
        vec!["tape", "show", "--session", session, "--json"],
        vec!["reviews", session, "--all", "--json"],
        vec!["children", session, "--json"],
        vec!["context", "show", "--session", session, "--json"],
        vec!["context", "show", "--last", "--session", session, "--json"],
        vec!["fragments", session, "--json"],
    ];
    words.into_iter().map(|words| words.into_iter().map(str::to_owned).collect()).collect()
}

struct House {
    model: Model,
    /// Of each session: what is shown of it.
    views: BTreeMap<&'static str, Views>,
}

fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

impl House {
    fn of(model: Model) -> House {
        let path = model.home.path();
        let mut views_of = BTreeMap::new();
        // Twice: the first tools settle what a run has left open, except in a home whose logs are to stay.
        for round in 0..2 {
            for session in model.sessions {
                let copied = tempfile::tempdir().expect("a folder");
                let home = match (round, model.name) {
                    (0, "killed") => continue,
                    (0, _) => path.clone(),
                    _ => {
                        copy(&path, &copied.path().join("home"));
                        copied.path().join("home")
                    }
                };
                let told = |args: &[&str]| says(&home, args).expect("it ends");
                let listed = told(&["requests", session, "--all", "--json"]);
                let listed: Value = serde_json::from_str(&listed.text()).unwrap_or_default();
                let request = listed["requests"][0]["request_id"].as_str().unwrap_or("none").to_owned();
                let events = told(&["events", session, "--since", "0", "-n", "1000", "--json"]).text();
                let events: Value = serde_json::from_str(&events).unwrap_or_default();
                let threads = events["events"].as_array().cloned().unwrap_or_default();
                let thread = threads.iter().find_map(|event| event["thread_id"].as_str()).unwrap_or("none").to_owned();
                let show = |args: Vec<String>| {
                    let said = told(&words(&args));
                    (args, both(&said))
                };
                let of = views(session, &thread, &request).into_iter().map(show).collect();
                views_of.insert(*session, Views { of });
            }
        }
        House { model, views: views_of }
    }
}

fn both(said: &Said) -> [Rows; 2] {
    [said.rows(Numbers::Counted), said.rows(Numbers::Ignored)]
}

/// What became of what a tool shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Intact,
    /// The tool says it.
    NamedByTool,
    /// `doctor --files` names the file.
    NamedByDoctor,
    /// Another tool says that something is wrong.
    NamedElsewhere,
    /// Rows are missing, and nobody says so.
    Missing,
    /// Rows are others, and nobody says so.
    Wrong,
}

struct Case<'a> {
    house: &'a House,
    session: &'static str,
    home: PathBuf,
    file: PathBuf,
    kind: String,
    done: Done,
    /// The history is gone, so the journal is read again.
    is_rebuilt: bool,
    /// The file had a checksum that counts.
    has_sum: bool,
    seed: u64,
}

#[derive(Default)]
struct Tally {
    counts: BTreeMap<(String, Verdict), u64>,
    unknowable: u64,
    faults: Vec<String>,
}

fn kind_of(path: &Path) -> String {
    let part = |path: Option<&Path>| path.and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
    let folder = part(path.parent());
    match &*folder {
        "journal" | "marks" | "places" | "transcripts" => folder,
        _ => part(Some(path)),
    }
}

/// The files of a copy that may be damaged, by their kinds.
fn targets(home: &Path, session: &Path) -> BTreeMap<String, Vec<PathBuf>> {
    // Logs, and what is the user's.
    const OTHERS: [&str; 5] = ["shim.log", "server.log", "notes.txt", "codex", "config.toml"];
    let is_meant = |file: &PathBuf| {
        let is_shared = !file.starts_with(home.join("sessions"));
        let has_content = file.metadata().is_ok_and(|metadata| metadata.len() > 0);
        has_content && (file.starts_with(session) || is_shared) && !OTHERS.iter().any(|name| file.ends_with(name))
    };
    let mut by_kind: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for file in files(home).into_iter().filter(is_meant) {
        by_kind.entry(kind_of(&file)).or_default().push(file);
    }
    by_kind
}

/// Whether a file has a checksum of the time that it has.
fn has_sum(session: &Path, file: &Path) -> bool {
    let text = fs::read_to_string(session.join("sums")).unwrap_or_default();
    let name = file.strip_prefix(session).unwrap_or(file).to_string_lossy().into_owned();
    let written = file.metadata().and_then(|metadata| metadata.modified()).expect("a time");
    let written_ns = written.duration_since(UNIX_EPOCH).expect("a time").as_nanos() as u64;
    let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.rfind(|line| line["file"] == *name).is_some_and(|line| line["written_ns"] == written_ns)
}

/// Plays one case.
fn play(houses: &[House], seed: u64, tally: &Mutex<Tally>) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5DEE_CE66);
    let house = &houses[random.below(houses.len())];
    let beside = tempfile::tempdir().expect("a folder");
    let home = beside.path().join("home");
    copy(&house.model.home.path(), &home);
    let session = house.model.sessions[random.below(house.model.sessions.len())];
    let folder = home.join("sessions").join(session);
    let by_kind = targets(&home, &folder);
    // More of what there is most.
    let weight = |kind: &str| match kind {
        "journal" | "ledger.db" | "history.db" => 4,
        "ledger.db-wal" | "history.db-wal" => 3,
        _ => 1,
    };
    let kinds: Vec<&String> = by_kind.keys().flat_map(|kind| vec![kind; weight(kind)]).collect();
    let kind = kinds[random.below(kinds.len())].clone();
    let file = by_kind[&kind][random.below(by_kind[&kind].len())].clone();
    let has_sum = has_sum(&folder, &file);
    let Some(done) = damage(&file, &mut random) else { return };
    let is_rebuilt = kind == "journal" && random.below(2) == 0;
    if is_rebuilt {
        ["", "-wal"].iter().for_each(|beside| drop(fs::remove_file(folder.join(format!("history.db{beside}")))));
    }
    let case = Case { house, session, home, file, kind, done, is_rebuilt, has_sum, seed };
    match case.look(&mut random) {
        Ok(verdicts) => {
            let mut tally = tally.lock().expect("no panic");
            for (args, verdict, difference) in verdicts {
                *tally.counts.entry((format!("{} {}", house.model.name, case.kind), verdict)).or_default() += 1;
                if verdict > Verdict::NamedElsewhere {
                    match case.cannot_be_known() {
                        true => tally.unknowable += 1,
                        false => tally.faults.push(case.told(&args, &format!("{verdict:?}: {difference}"))),
                    }
                }
            }
        }
        Err(why) => tally.lock().expect("no panic").faults.push(case.told(&[], &why)),
    }
}

impl Case<'_> {
    fn told(&self, args: &[String], more: &str) -> String {
        let Case { house, file, done, seed, is_rebuilt, has_sum, .. } = self;
        let file = file.strip_prefix(&self.home).unwrap_or(file).display();
        let how = format!("{done:?}, checksum: {has_sum}, history gone: {is_rebuilt}");
        format!("ROT_SEED={seed}: home {}: {file}: {how}: {}: {more}", house.model.name, args.join(" "))
    }

    /// Whether nothing in the home can say that this file is damaged. docs/reliability.md has the list.
    fn cannot_be_known(&self) -> bool {
        /// The end of a log whose damage is like a crash amid a write: three frames, as damage may be in two of them.
        const END_BYTES: usize = 3 * (4096 + 24);
        if self.has_sum || self.done.damage == Damage::Emptied && !self.kind.ends_with("-wal") {
            return false;
        }
        match &*self.kind {
            "ledger.db-wal" | "history.db-wal" => {
                // SQLite ends the log at the first frame that is out of place.
                let moves = [Damage::Truncated, Damage::Emptied, Damage::Doubled, Damage::Lines];
                moves.contains(&self.done.damage) || self.done.from + END_BYTES >= self.done.bytes
            }
            _ => true,
        }
    }

    /// Has the doctor, some tools and sometimes a relay look at the home.
    fn look(&self, random: &mut Random) -> Result<Vec<(Vec<String>, Verdict, String)>, String> {
        let behaves = |said: Said| said.misbehaves().map_or(Ok(()), Err).map(|()| said);
        let doctor = says(&self.home, &["doctor", "--files", "--json"]).and_then(behaves)?;
        let is_named = self.is_named_in(&doctor.text());
        let views = &self.house.views[self.session].of;
        let all: Vec<&Vec<String>> = views.keys().collect();
        let mut said = Vec::new();
        for number in 0..4 {
            let mut args = all[random.below(all.len())];
            // Some tools show what the history says of a thread, and do not read the journal for it.
            if number == 0 && self.is_rebuilt {
                args = all.iter().find(|args| args[0] == "events").expect("it is among them");
            }
            said.push((args, says(&self.home, &words(args)).and_then(behaves)?));
        }
        if random.below(8) == 0 {
            relays(&self.home, self.session).and_then(behaves)?;
        }
        let elsewhere = said.iter().any(|(_, said)| said.names_a_fault());
        let verdict = |(args, said): &(&Vec<String>, Said)| {
            let (verdict, difference) = compare(&both(said), &views[*args]);
            let verdict = match (said.names_a_fault(), is_named, elsewhere) {
                _ if verdict == Verdict::Intact => verdict,
                (true, ..) => Verdict::NamedByTool,
                (false, true, _) => Verdict::NamedByDoctor,
                (false, false, true) => Verdict::NamedElsewhere,
                (false, false, false) => verdict,
            };
            ((*args).clone(), verdict, difference)
        };
        Ok(said.iter().map(verdict).collect())
    }

    /// Whether the doctor names the file, or the database of a log.
    fn is_named_in(&self, text: &str) -> bool {
        let document: Value = serde_json::from_str(text).unwrap_or_default();
        let path = self.file.display().to_string();
        let path = path.strip_suffix("-wal").unwrap_or(&path);
        let checks = document["checks"].as_array().cloned().unwrap_or_default();
        let names = |check: &Value| check["found"].as_str().is_some_and(|found| found.contains(path));
        checks.iter().any(|check| check["status"] != "ok" && names(check) && check["remedy"].is_string())
    }
}

/// Compares what a tool shows with what it shows of the intact home.
fn compare(shown: &[Rows; 2], intact: &[Rows; 2]) -> (Verdict, String) {
    if shown[0] == intact[0] || shown[1] == intact[1] {
        return (Verdict::Intact, String::new());
    }
    let more = |one: &Rows, other: &Rows| {
        let row = one.iter().find(|(row, count)| other.get(*row) < Some(count)).map(|(row, _)| row.clone());
        row.map(|row| row.chars().take(900).collect::<String>())
    };
    match (more(&shown[1], &intact[1]), more(&intact[1], &shown[1]).unwrap_or_default()) {
        (Some(new), gone) => (Verdict::Wrong, format!("{new} and not {gone}")),
        (None, gone) => (Verdict::Missing, gone),
    }
}

#[expect(clippy::disallowed_methods, reason = "a test of its own takes it")]
fn number(name: &str) -> Option<u64> {
    std::env::var_os(name).map(|text| text.to_string_lossy().parse().expect("a number"))
}

#[test]
fn damaged_file_is_named() {
    let began = Instant::now();
    let (first, cases) = match number("ROT_SEED") {
        Some(seed) => (seed, 1),
        None => (1, number("ROT_CASES").unwrap_or(CASES)),
    };
    let houses: Vec<House> = models().into_iter().map(House::of).collect();
    let (next, tally) = (AtomicU64::new(first), Mutex::new(Tally::default()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let seed = next.fetch_add(1, Ordering::Relaxed)
                    && seed < first + cases
                {
                    play(&houses, seed, &tally);
                }
            });
        }
    });
    let Tally { counts, unknowable, faults } = tally.into_inner().expect("no panic");
    let lines = counts.iter().map(|((kind, verdict), count)| format!("{kind}: {verdict:?}: {count}\n"));
    let told: String = lines.collect();
    let told =
        format!("{told}{cases} cases, {unknowable} times unknowable, {:?}\n{}\n", began.elapsed(), faults.join("\n"));
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("rot.txt"), &told).expect("write");
    assert!(faults.is_empty(), "{told}");
    let is_named = |verdict: Verdict| verdict != Verdict::Intact;
    assert!(cases < CASES || counts.keys().any(|(_, verdict)| is_named(*verdict)), "no damage was seen: {told}");
}

/// The same damage with a checksum and without: the comparison here finds what codex-shim cannot.
#[test]
fn only_a_checksum_reveals_another_letter() {
    let home = stopped();
    for database in ["ledger.db", "history.db"] {
        let house = |with_sums: bool| {
            let beside = tempfile::tempdir().expect("a folder");
            let copied = beside.path().join("home");
            copy(&home.path(), &copied);
            let session = copied.join("sessions/s");
            let told = |args: &[&str]| says(&copied, args).expect("it ends");
            let tool: &[&str] = match database {
                "ledger.db" => &["requests", "s", "--all", "--json"],
                _ => &["transcript", "t", "--session", "s", "--json"],
            };
            let intact = both(&told(tool));
            if !with_sums {
                fs::remove_file(session.join("sums")).expect("it is there");
            }
            let file = session.join(database);
            let mut bytes = fs::read(&file).expect("it is there");
            let word: &[u8] = if database == "ledger.db" { b"touch x" } else { b"The linker says third 3" };
            let places: Vec<usize> = memchr::memmem::find_iter(&bytes, word).collect();
            assert!(!places.is_empty(), "{database} has it");
            places.into_iter().for_each(|at| bytes[at] ^= 1);
            put(&file, &bytes);
            let doctor = told(&["doctor", "--files", "--json"]);
            let said = told(tool);
            (
                doctor.text().contains(&file.display().to_string()),
                said.names_a_fault(),
                compare(&both(&said), &intact).0,
            )
        };
        assert_eq!(house(false), (false, false, Verdict::Wrong), "{database}");
        let (is_named, tool_names, verdict) = house(true);
        assert!(is_named && tool_names, "{database}");
        // The history is built again from the journal.
        assert_eq!(verdict, if database == "ledger.db" { Verdict::Wrong } else { Verdict::Intact });
    }
}

#[test]
fn comparison_finds_each_difference() {
    let rows = |rows: &[&str]| -> [Rows; 2] {
        let rows: Rows = rows.iter().map(|row| ((*row).to_owned(), 1)).collect();
        [rows.clone(), rows]
    };
    let intact = rows(&["a", "b"]);
    assert_eq!(compare(&rows(&["b", "a"]), &intact).0, Verdict::Intact);
    assert_eq!(compare(&rows(&["a"]), &intact).0, Verdict::Missing);
    assert_eq!(compare(&rows(&["a", "c"]), &intact).0, Verdict::Wrong);
    assert_eq!(compare(&rows(&["a", "b", "c"]), &intact).0, Verdict::Wrong);
}
