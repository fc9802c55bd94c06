//! How fast the page of `codex-shim web` is in a headless Chromium, which a script in `tests/browser` drives.
//!
//! The script asks for a line of the server with a line of JSON, and gets the time at which the line was written. The browser
//! has the same clock, so the difference is the time until the line was on the screen.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::support::{self, Process, SHIM, Table};

/// Paths of Chromium on Debian and other distributions.
const CHROMIUM: [&str; 3] = ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium", "/usr/bin/chromium-browser"];

/// The page must appear, and show what happens, within this time.
const MS_MAX: f64 = 100.0;

/// First paint, and the time from a line of the server to the screen.
pub fn web(table: &mut Table) {
    let Some((browser, modules)) = installed() else {
        println!("SKIPPED: web page: Chromium or playwright-core is not installed; `make browser` installs both");
        return;
    };
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut relay = support::start_in(home.path(), "bench", &["told"]);
    relay.ready();
    initialize(&mut relay);
    // No client reads what the server says, and a full pipe would stop it.
    let mut rest = File::from(relay.stdout.as_fd().try_clone_to_owned().unwrap());
    std::thread::spawn(move || std::io::copy(&mut rest, &mut std::io::sink()));
    let mut page = Page(tool(home.path(), &["web", "--json"]).stdout(Stdio::piped()).spawn().unwrap());
    line_of(&mut BufReader::new(page.0.stdout.take().unwrap()));
    let mut script = Command::new("node")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/speed.mjs"))
        .envs([("CHROMIUM", &browser), ("MODULES", &modules)])
        .env("QUICK", if support::is_quick() { "1" } else { "" })
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = script.stdin.take().unwrap();
    let mut asked = BufReader::new(script.stdout.take().unwrap());
    while let Some(line) = line_of(&mut asked) {
        let asked: Value = serde_json::from_str(&line).unwrap();
        let result = match asked["does"].as_str().unwrap() {
            "link" => new_link(home.path()),
            "say" => say(&mut relay, &asked["line"]),
            "times" => times(table, &asked),
            other => panic!("no such wish: {other}"),
        };
        writeln!(told, "{result}").unwrap();
    }
    assert!(script.wait().unwrap().success(), "the script has failed");
    drop(page);
    relay.end();
}

/// `codex-shim web`, which ends with the measurement.
struct Page(Child);

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The browser, and the folder of the packages that drive it.
fn installed() -> Option<(PathBuf, PathBuf)> {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/browser");
    let browser = CHROMIUM.into_iter().map(PathBuf::from).find(|path| path.exists())?;
    modules.join("node_modules/playwright-core").exists().then_some((browser, modules))
}

fn tool(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(&*SHIM);
    command.env("CODEX_SHIM_HOME", home).args(args);
    command
}

fn new_link(home: &Path) -> Value {
    let output = tool(home, &["web", "--new-link", "--json"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn line_of(from: &mut BufReader<ChildStdout>) -> Option<String> {
    let mut line = String::new();
    (from.read_line(&mut line).unwrap() > 0).then_some(line)
}

fn initialize(relay: &mut Process) {
    let info = json!({ "clientInfo": { "name": "bench", "version": "1" } });
    let line = json!({ "method": "initialize", "id": 0, "params": info });
    writeln!(relay.stdin, "{line}").unwrap();
    relay.read_answer();
}

/// Makes the server write a line; returns the time before, in milliseconds since 1970.
fn say(relay: &mut Process, line: &Value) -> Value {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() * 1e3;
    writeln!(relay.stdin, "{}", json!({ "method": "bench/say", "params": line })).unwrap();
    json!(now_ms)
}

/// Takes the times of one measurement, in milliseconds.
fn times(table: &mut Table, asked: &Value) -> Value {
    let mut times: Vec<f64> = asked["ms"].as_array().unwrap().iter().map(|ms| ms.as_f64().unwrap()).collect();
    times.sort_by(f64::total_cmp);
    let name = asked["name"].as_str().unwrap();
    for percent in [50, 95] {
        let time = times[(times.len() - 1) * percent / 100];
        table.at_most(&format!("web page: {name}, p{percent} of {}", times.len()), time, "ms", MS_MAX);
    }
    Value::Null
}
