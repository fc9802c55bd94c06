//! Instructions of the relay's thread per line, counted by callgrind: this figure is the same on any machine.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{self, Table};

const FEW: usize = 2_000;
const MANY: usize = 12_000;

/// The extra instructions of [`MANY`] lines compared with [`FEW`], per line, sent together and one by one.
pub fn instructions(table: &mut Table) {
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("instructions: there is no valgrind, this is left out");
        return;
    }
    let together = difference(|lines| {
        counted(&["storm", "200", &lines.to_string(), "block"], |stdin, stdout| {
            stdin.write_all(b"go\n").unwrap();
            stdout.read_exact(&mut vec![0; 200 * lines]).unwrap();
        })
    });
    table.figure("instructions of the relay's thread for a line of 200 bytes, many at once", together, "-");
    let line = support::line(200);
    let alone = difference(|lines| {
        counted(&["echo-after-hello"], |stdin, stdout| {
            for _ in 0..lines {
                stdin.write_all(&line).unwrap();
                stdout.read_exact(&mut [0; 200]).unwrap();
            }
        })
    });
    table.figure("the same for a line there and back, each alone", alone, "-");
}

fn difference(count: impl Fn(usize) -> u64) -> String {
    format!("{}", (count(MANY) - count(FEW)) / (MANY - FEW) as u64)
}

/// Instructions of a relay's main thread during the client's actions.
fn counted(role: &[&str], client: impl FnOnce(&mut std::process::ChildStdin, &mut std::process::ChildStdout)) -> u64 {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let out = dir.path().join("out");
    let mut command = Command::new("valgrind");
    command
        .args(["-q", "--tool=callgrind", "--separate-threads=yes"])
        .arg(format!("--callgrind-out-file={}", out.display()));
    command.arg(support::SHIM).args(["run", "--"]).arg(std::env::current_exe().unwrap()).arg("server").args(role);
    command.env("CODEX_SHIM_HOME", dir.path().join("home")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    stdout.read_exact(&mut [0; 6]).unwrap();
    client(&mut stdin, &mut stdout);
    drop((stdin, stdout));
    child.wait().unwrap();
    of_main_thread(&dir.path().join("out-01")).expect("callgrind says how many")
}

fn of_main_thread(path: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let totals = text.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")))?;
    totals.trim().parse().ok()
}
