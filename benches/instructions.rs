//! Instructions for a line, counted by callgrind: these figures are nearly the same on any machine.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{self, Table};

const FEW: usize = 2_000;
const MANY: usize = 12_000;

/// The accepted figures, and those of the previous release.
const BASELINE: &str = include_str!("baseline.toml");

/// The extra instructions of [`MANY`] lines compared with [`FEW`], for each line. Returns whether all of them are within the
/// baseline.
pub fn instructions(table: &mut Table) -> bool {
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIPPED: instructions for a line: there is no valgrind");
        return true;
    }
    let baseline: toml::Table = BASELINE.parse().unwrap();
    let mut is_within = true;
    let mut row = |key: &str, name: &str, count: &dyn Fn(usize) -> u64| {
        let each = (count(MANY) - count(FEW)) as f64 / (MANY - FEW) as f64;
        let figures = &baseline[key];
        let of_release = figures
            .get("release_0_1_0")
            .and_then(toml::Value::as_integer)
            .map(|of_release| format!(" (0.1.0: {of_release})"));
        let name = format!("instructions for a line: {name}{}", of_release.unwrap_or_default());
        is_within &= table.against_baseline(&name, each, figures["accepted"].as_integer().unwrap() as f64);
    };
    row("relay_block", "relay's thread, 200 bytes, many at once", &|lines| {
        relay(&["storm", "200", &lines.to_string(), "block"], |stdin, stdout| {
            stdin.write_all(b"go\n").unwrap();
            stdout.read_exact(&mut vec![0; 200 * lines]).unwrap();
        })
    });
    let line = support::line(200);
    row("relay_round_trip", "relay's thread, there and back, each alone", &|lines| {
        relay(&["echo-after-hello"], |stdin, stdout| {
            for _ in 0..lines {
                stdin.write_all(&line).unwrap();
                stdout.read_exact(&mut [0; 200]).unwrap();
            }
        })
    });
    row("index_event", "index, one event", &|lines| index("event", lines));
    row("index_piece", "index, a piece", &|lines| index("piece", lines));
    row("index_item", "index, a finished item", &|lines| index("item", lines));
    is_within
}

/// Instructions of a relay's main thread during the client's actions.
fn relay(role: &[&str], client: impl FnOnce(&mut std::process::ChildStdin, &mut std::process::ChildStdout)) -> u64 {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let out = dir.path().join("out");
    let mut command = callgrind(&out);
    command.arg(&*support::SHIM).args(["run", "--"]).arg(std::env::current_exe().unwrap()).arg("server").args(role);
    command.env("CODEX_SHIM_HOME", dir.path().join("home")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    stdout.read_exact(&mut [0; 6]).unwrap();
    client(&mut stdin, &mut stdout);
    drop((stdin, stdout));
    child.wait().unwrap();
    of_main_thread(&dir.path().join("out-01")).expect("callgrind says how many")
}

/// Instructions of indexing.
fn index(kind: &str, lines: usize) -> u64 {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let out = dir.path().join("out");
    let mut command = callgrind(&out);
    command.arg(std::env::current_exe().unwrap()).args(["index-lines", kind, &lines.to_string()]);
    assert!(command.status().unwrap().success());
    of_main_thread(&dir.path().join("out-01")).expect("callgrind says how many")
}

fn callgrind(out: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["-q", "--tool=callgrind", "--separate-threads=yes"]);
    command.arg(format!("--callgrind-out-file={}", out.display())).stderr(Stdio::null());
    command
}

fn of_main_thread(path: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let totals = text.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")))?;
    totals.trim().parse().ok()
}
