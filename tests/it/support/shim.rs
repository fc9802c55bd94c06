//! The binary under test, in a home of its own.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::journal::Journal;

/// The binary under test.
pub const SHIM: &str = env!("CARGO_BIN_EXE_codex-shim");

/// A home for the shim.
pub struct Home {
    root: tempfile::TempDir,
}

impl Home {
    pub fn new() -> Home {
        // Tests create folders in the home, which must not be writable by others under any umask of the user who runs the tests.
        rustix::process::umask(rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
        Home { root: tempfile::tempdir().expect("a temporary folder") }
    }

    pub fn path(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// A folder beside the home, for whatever a test needs.
    pub fn beside(&self) -> &Path {
        self.root.path()
    }

    /// Points a command that runs the shim, or will lead to it, at this home.
    pub fn adopt<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        for variable in ["SESSION", "CODEX", "OFF", "RECORD", "EXIT_GRACE", "DEPTH"] {
            command.env_remove(format!("CODEX_SHIM_{variable}"));
        }
        command.env("CODEX_SHIM_HOME", self.path())
    }

    /// `codex-shim ARG…` with its stdio piped.
    pub fn shim(&self, args: &[&str]) -> Command {
        let mut command = Command::new(SHIM);
        self.adopt(&mut command);
        interruptible(&mut command);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// `codex-shim run --session s -- sh -c SCRIPT`.
    pub fn shell(&self, script: &str) -> Command {
        self.shim(&["run", "--session", "s", "--", "sh", "-c", script])
    }

    /// The folders of sessions that exist, in order of their names.
    pub fn sessions(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path().join("sessions")) else { return Vec::new() };
        let mut dirs: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder can be read").path()).collect();
        dirs.sort();
        dirs
    }

    /// The journal of the one session that there is.
    pub fn journal(&self) -> Journal {
        let sessions = self.sessions();
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        Journal::read(&sessions[0])
    }
}

/// Keys and signals that interrupt do so also where the tests themselves are run in the background of a shell, which has what it
/// starts there ignore them.
#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
fn interruptible(command: &mut Command) {
    // SAFETY: the closure makes plain system calls, which are async-signal-safe, and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            libc::signal(libc::SIGQUIT, libc::SIG_DFL);
            Ok(())
        });
    }
}
