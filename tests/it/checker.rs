//! The checker in `tests/checker` knows the documentation alone. Its check is tried here on histories with and without faults, and a
//! short run of each workload on the program; `make jepsen` has long ones.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::shim::SHIM;

/// Runs Python in the checker's folder; `None` without Python, which is reported.
fn python(test: &str, arguments: &[&str]) -> Option<Output> {
    let python = || Command::new("python3");
    if python().arg("--version").stdout(Stdio::null()).status().is_err() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: there is no python3");
        return None;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/checker");
    Some(python().arg("-B").args(arguments).current_dir(folder).output().expect("python3 runs"))
}

#[test]
fn checker_finds_what_is_wrong_in_a_history() {
    let Some(output) = python("checker_finds_what_is_wrong_in_a_history", &["-m", "unittest"]) else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("OK") && !said.contains("Ran 0 tests"), "{said}");
}

/// A round with these faults, and more of them until each claim had a case and each fault found something to do. A round has a fixed
/// number of steps, and its verdict does not depend on time. It fails if it ends early.
fn finds_nothing(test: &str, workload: &str, faults: &str) {
    let round =
        ["run.py", "--rounds", "1", "--seed", "1", "--workload", workload, "--faults", faults, "--binary", SHIM];
    let Some(output) = python(test, &round) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    let is_whole = said.contains("violations=0")
        && said.contains("chances to fail: ")
        && !said.contains("NO CHANCE")
        && !said.contains("GIVEN UP");
    assert!(output.status.success() && is_whole, "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn checker_finds_nothing_in_a_relay() {
    finds_nothing("checker_finds_nothing_in_a_relay", "relay", "lock_ledger,kill_relay");
}

#[test]
fn checker_finds_nothing_in_serve() {
    finds_nothing("checker_finds_nothing_in_serve", "serve", "kill_server,lock_ledger");
}

#[test]
fn checker_finds_nothing_in_a_hub() {
    finds_nothing("checker_finds_nothing_in_a_hub", "hub", "hub_restart,kill_relay");
}
