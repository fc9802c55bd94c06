//! The first screen that a newcomer sees.

use std::process::Stdio;

use crate::support::shim::Home;

#[test]
fn the_demo_shows_what_it_promises_and_leaves_nothing_behind() {
    let home = Home::new();
    let temporary = home.beside().join("tmp");
    std::fs::create_dir(&temporary).expect("a folder");
    let mut command = home.shim(&["demo"]);
    // Settings of the user's are none of its business.
    command
        .env("TMPDIR", &temporary)
        .env("CODEX_SHIM_RECORD", "false")
        .env("CODEX_SHIM_OFF", "1")
        .env("PATH", "/usr/bin:/bin");
    let output = command.stdin(Stdio::null()).output().expect("the shim runs");
    let screen = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{screen}{}", String::from_utf8_lossy(&output.stderr));
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    assert!(!screen.contains('\x1b'), "{screen}");
    for shown in ["may I run  /bin/bash -lc 'echo relayed'", "turn completed", "missing on record         0\n"] {
        assert!(screen.contains(shown), "{shown}: {screen}");
    }
    assert_eq!(std::fs::read_dir(&temporary).expect("it can be read").count(), 0);
    assert!(home.sessions().is_empty());
}
