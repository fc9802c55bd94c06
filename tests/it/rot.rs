//! Stored homes with one damaged file: no tool and no relay panics or hangs, and none shows a wrong row as right.
//!
//! What a tool shows of the damaged home is what it shows of the intact one, or the difference has a name: an error, a warning, a gap,
//! or the file in `doctor --files`.

mod damage;
mod homes;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::key_forms::Random;
use crate::support::patience::poll;
use crate::support::shim::SHIM;

use homes::{Model, WORD, copy, files, models};

/// Cases in each run of the tests.
const CASES: u64 = 60;

/// Longer than any tool takes for a small home, also on a busy machine.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// Members that differ from run to run.
const OF_A_RUN: &[&str] = &["hash", "prev", "until", "age_s", "entries_read"];

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
        let gaps = [
            r#""history_gap":true"#,
            r#""event_gap""#,
            r#""gap_reason":""#,
            r#""kind":"gap""#,
            r#""kind":"malformed""#,
            r#""faults":[{"#,
        ];
        !self.output.status.success() || !self.output.stderr.is_empty() || gaps.iter().any(|gap| text.contains(gap))
    }

    /// What nobody may see, whatever is damaged.
    fn misbehaves(&self) -> Option<String> {
        let code = self.output.status.code();
        let panicked = self.errors().contains("panicked") || self.text().contains("panicked at");
        (panicked || !code.is_some_and(|code| code < 10))
            .then(|| format!("{:?} ended with {:?}: {}", self.args, self.output.status, self.errors()))
    }

    /// What it shows: each member of a list, and the rest of each document.
    fn rows(&self, epoch: &Epoch) -> BTreeMap<String, usize> {
        let mut rows = BTreeMap::new();
        let text = self.text();
        for document in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
            let Ok(mut document) = document else {
                *rows.entry("not JSON".to_owned()).or_default() += 1;
                break;
            };
            strip(&mut document, epoch);
            // They have the time of an audit's export.
            if ["header", "footer"].iter().any(|kind| document["kind"] == *kind) && !document["line"].is_null() {
                continue;
            }
            let Value::Object(members) = &mut document else { continue };
            for (name, value) in members.iter_mut() {
                let Value::Array(list) = value else { continue };
                for row in list.drain(..) {
                    *rows.entry(format!("{name}: {row}")).or_default() += 1;
                }
            }
            *rows.entry(document.to_string()).or_default() += 1;
        }
        rows
    }
}

/// Whether the numbers of events count.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Epoch {
    Same,
    Other,
}

/// Removes what differs from run to run, and numbers of another epoch.
fn strip(value: &mut Value, epoch: &Epoch) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| {
                let is_number = *epoch == Epoch::Other && (name.contains("seq") || name.contains("epoch"));
                !OF_A_RUN.contains(&name.as_str()) && !is_number
            });
            members.values_mut().for_each(|value| strip(value, epoch));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| strip(value, epoch)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn binary() -> PathBuf {
    std::env::var_os("ROT_BINARY").map_or_else(|| PathBuf::from(SHIM), PathBuf::from)
}

fn shim(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    for variable in ["SESSION", "OFF", "RECORD", "EXIT_GRACE", "DEPTH"] {
        command.env_remove(format!("CODEX_SHIM_{variable}"));
    }
    let beside = home.parent().expect("a folder beside the home");
    command
        .env("CODEX_SHIM_HOME", home)
        .env("CODEX_SHIM_CODEX", "/nonexistent")
        .env("HOME", beside)
        .env_remove("CODEX_HOME");
    command.current_dir(beside).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The output of a child; `None` if it hangs.
fn ended(mut child: Child) -> Option<Output> {
    // A pipe has room for 64 KiB, and then the child waits for its reader.
    let readers = {
        let (mut stdout, mut stderr) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let read = |mut from: Box<dyn std::io::Read + Send>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = from.read_to_end(&mut bytes);
                bytes
            })
        };
        let _ = (&mut stdout, &mut stderr);
        (read(Box::new(stdout)), read(Box::new(stderr)))
    };
    let status = poll(HANGS_AFTER, || child.try_wait().expect("it is our child"));
    if status.is_none() {
        let _ = child.kill();
    }
    let (stdout, stderr) = (readers.0.join().expect("it reads"), readers.1.join().expect("it reads"));
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
    of: BTreeMap<Vec<String>, [BTreeMap<String, usize>; 2]>,
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
                    (args, [said.rows(&Epoch::Same), said.rows(&Epoch::Other)])
                };
                let of = views(session, &thread, &request).into_iter().map(show).collect();
                views_of.insert(*session, Views { of });
            }
        }
        House { model, views: views_of }
    }
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
    Missing,
    Wrong,
}

struct Case<'a> {
    house: &'a House,
    session: &'static str,
    file: PathBuf,
    what: String,
    seed: u64,
}

#[derive(Default)]
struct Tally {
    counts: BTreeMap<(String, Verdict), u64>,
    faults: Vec<String>,
    silent: Vec<String>,
}

fn kind_of(path: &Path) -> String {
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    let folder = path.parent().and_then(|folder| folder.file_name()).expect("a folder").to_string_lossy().into_owned();
    match &*folder {
        "journal" | "marks" | "places" | "transcripts" => folder,
        _ => name,
    }
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
    let is_meant = |file: &PathBuf| {
        let of_session = file.starts_with(&folder);
        let is_shared = !file.starts_with(home.join("sessions")) && !file.ends_with("config.toml");
        let is_other = ["shim.log", "server.log", "notes.txt", "codex"].iter().any(|name| file.ends_with(name));
        (of_session || is_shared) && !is_other && !file.extension().is_some_and(|name| name == "sha256")
    };
    let mut by_kind: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for file in files(&home).into_iter().filter(is_meant) {
        by_kind.entry(kind_of(&file)).or_default().push(file);
    }
    let mut kinds: Vec<&String> = by_kind.keys().collect();
    // Of what there is most.
    kinds.extend(
        by_kind
            .keys()
            .filter(|kind| ["journal", "ledger.db", "history.db"].contains(&kind.as_str()))
            .flat_map(|kind| [kind; 3]),
    );
    kinds.extend(by_kind.keys().filter(|kind| kind.ends_with("-wal")).flat_map(|kind| [kind; 2]));
    let kind = kinds[random.below(kinds.len())];
    let of_kind = &by_kind[kind];
    let file = of_kind[random.below(of_kind.len())].clone();
    let Some(mut what) = damage::damage(&file, &mut random) else { return };
    if kind == "journal" && random.below(2) == 0 {
        what.push_str(", and the history is gone");
        for beside in ["", "-wal"] {
            let _ = fs::remove_file(folder.join(format!("history.db{beside}")));
        }
    }
    let case = Case { house, session, file, what, seed };
    case.look(&home, kind, &mut random, tally);
}

impl Case<'_> {
    fn told(&self, args: &[String], more: &str) -> String {
        let file = self.file.components().rev().take(3).map(|part| part.as_os_str().to_string_lossy().into_owned());
        let file: Vec<String> = file.collect::<Vec<_>>().into_iter().rev().collect();
        let Case { house, what, seed, .. } = self;
        format!("seed {seed}: home {}: {}: {what}: {}: {more}", house.model.name, file.join("/"), args.join(" "))
    }

    fn look(&self, home: &Path, kind: &str, random: &mut Random, tally: &Mutex<Tally>) {
        let fault = |args: &[String], why: String| tally.lock().expect("no panic").faults.push(self.told(args, &why));
        let checked = |said: Result<Said, String>| match said {
            Ok(said) => match said.misbehaves() {
                Some(why) => {
                    fault(&said.args, why);
                    None
                }
                None => Some(said),
            },
            Err(why) => {
                fault(&[], why);
                None
            }
        };
        let Some(doctor) = checked(says(home, &["doctor", "--files", "--json"])) else { return };
        let name = self.file.file_name().expect("a name").to_string_lossy().into_owned();
        let is_named = doctor_names(&doctor.text(), &self.file, &name);
        let views: Vec<&Vec<String>> = self.house.views[self.session].of.keys().collect();
        let mut said = Vec::new();
        for number in 0..4 {
            let mut args = views[random.below(views.len())];
            // Some tools show what the history says of a thread, and do not read the journal for it.
            if number == 0 && !home.join("sessions").join(self.session).join("history.db").exists() {
                args = views.iter().find(|args| args[0] == "events").expect("it is among them");
            }
            let Some(one) = checked(says(home, &words(args))) else { return };
            said.push((args, one));
        }
        if random.below(8) == 0 && checked(relays(home, self.session)).is_none() {
            return;
        }
        let elsewhere = said.iter().any(|(_, said)| said.names_a_fault());
        for (args, said) in &said {
            let intact = &self.house.views[self.session].of[*args];
            let (verdict, difference) = compare(said, intact, is_named, elsewhere);
            let mut tally = tally.lock().expect("no panic");
            *tally.counts.entry((format!("{} {kind}", self.house.model.name), verdict)).or_default() += 1;
            if verdict > Verdict::NamedElsewhere {
                let told = self.told(args, &format!("{verdict:?}: {difference}"));
                tally.silent.push(told);
            }
        }
    }
}

fn doctor_names(text: &str, file: &Path, name: &str) -> bool {
    let document: Value = serde_json::from_str(text).unwrap_or_default();
    let path = file.display().to_string();
    let checks = document["checks"].as_array().cloned().unwrap_or_default();
    let _ = name;
    let of_log = path.strip_suffix("-wal").map(str::to_owned);
    checks.iter().any(|check| {
        let found = check["found"].as_str().unwrap_or_default();
        check["status"] != "ok" && (found.contains(&path) || of_log.as_ref().is_some_and(|path| found.contains(path)))
    })
}

fn compare(said: &Said, intact: &[BTreeMap<String, usize>; 2], is_named: bool, elsewhere: bool) -> (Verdict, String) {
    let [same, other] = intact;
    if said.rows(&Epoch::Same) == *same {
        return (Verdict::Intact, String::new());
    }
    let rows = said.rows(&Epoch::Other);
    if rows == *other {
        return (Verdict::Intact, String::new());
    }
    if said.names_a_fault() {
        return (Verdict::NamedByTool, String::new());
    }
    if is_named {
        return (Verdict::NamedByDoctor, String::new());
    }
    if elsewhere {
        return (Verdict::NamedElsewhere, String::new());
    }
    let new: BTreeSet<&String> =
        rows.iter().filter(|(row, count)| other.get(*row) < Some(count)).map(|(row, _)| row).collect();
    let gone = other.iter().find(|(row, count)| rows.get(*row) < Some(count)).map(|(row, _)| row);
    let clip = |row: &String| row.chars().take(900).collect::<String>();
    match new.first() {
        Some(new) => (Verdict::Wrong, format!("{} / {}", clip(new), gone.map(clip).unwrap_or_default())),
        None => (Verdict::Missing, gone.map(clip).unwrap_or_default()),
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
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
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + cases {
                        return;
                    }
                    play(&houses, seed, &tally);
                }
            });
        }
    });
    let Tally { counts, faults, silent } = tally.into_inner().expect("no panic");
    let mut told = String::new();
    for ((kind, verdict), count) in &counts {
        told.push_str(&format!("{kind}: {verdict:?}: {count}\n"));
    }
    told.push_str(&format!("{cases} cases in {:?}\n", began.elapsed()));
    told.push_str(&format!("faults:\n{}\nsilent:\n{}\n", faults.join("\n"), silent.join("\n")));
    fs::write("/tmp/rot.txt", &told).unwrap();
    assert!(faults.is_empty() && silent.is_empty(), "{told}");
}
