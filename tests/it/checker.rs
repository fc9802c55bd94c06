//! The checker in `tests/checker` knows the documentation alone. Its check is tried here on histories with and without faults; `make jepsen`
//! runs it against the program.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn checker_finds_what_is_wrong_in_a_history() {
    let python = || Command::new("python3");
    if python().arg("--version").stdout(Stdio::null()).status().is_err() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: checker_finds_what_is_wrong_in_a_history: there is no python3");
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/checker");
    let output = python().args(["-B", "-m", "unittest"]).current_dir(folder).output().expect("python3 runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("OK") && !said.contains("Ran 0 tests"), "{said}");
}
