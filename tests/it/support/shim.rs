//! The binary under test, in its own home.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::dispositions::with_default_signals;
use super::journal::Journal;

pub const SHIM: &str = env!("CARGO_BIN_EXE_codex-shim");

/// A home for the shim.
pub struct Home {
    root: tempfile::TempDir,
    /// The folder of the home if it is not the one for other files.
    away: Option<tempfile::TempDir>,
    shim: PathBuf,
}

impl Home {
    pub fn new() -> Home {
        // Tests create folders in the home, which must not be writable by others under any umask of the user who runs
        // the tests.
        rustix::process::umask(rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
        Home { root: tempfile::tempdir().expect("a temporary folder"), away: None, shim: PathBuf::from(SHIM) }
    }

    /// A home outside of the folders of temporary files, where models may write, and with it a shim.
    pub fn away() -> Home {
        let away = out_of_reach();
        let shim = shim_out_of_reach(away.path());
        Home { away: Some(away), shim, ..Home::new() }
    }

    /// A home in this folder.
    pub fn within(folder: &Path) -> Home {
        Home { away: Some(tempfile::tempdir_in(folder).expect("a folder")), ..Home::new() }
    }

    pub fn path(&self) -> PathBuf {
        self.away.as_ref().unwrap_or(&self.root).path().join("home")
    }

    /// Makes a folder that fish would fill from all manual pages at its first start, with a process of its own.
    pub fn spares_fish_its_manuals(&self) {
        let folder = self.beside().join(".local/share/fish/generated_completions");
        std::fs::create_dir_all(folder).expect("a folder");
    }

    /// The binary under test, which models can change only if they can change the home.
    pub fn program(&self) -> &Path {
        &self.shim
    }

    /// A folder beside the home for other files of a test.
    pub fn beside(&self) -> &Path {
        self.root.path()
    }

    /// Points a command that runs the shim, directly or indirectly, at this home. No signal is ignored or blocked
    /// there.
    pub fn adopt<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        for variable in ["SESSION", "CODEX", "OFF", "RECORD", "EXIT_GRACE", "DEPTH"] {
            command.env_remove(format!("CODEX_SHIM_{variable}"));
        }
        with_default_signals(command).env("CODEX_SHIM_HOME", self.path())
    }

    /// `codex-shim ARG…` with piped stdio.
    pub fn shim(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.shim);
        self.adopt(&mut command);
        // Rules accept only commands in the user's shell.
        command.env("SHELL", "/bin/bash");
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// `codex-shim run --session s -- sh -c SCRIPT`.
    pub fn shell(&self, script: &str) -> Command {
        self.shim(&["run", "--session", "s", "--", "sh", "-c", script])
    }

    /// The folders of existing sessions, sorted by name.
    pub fn sessions(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path().join("sessions")) else { return Vec::new() };
        let mut dirs: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder can be read").path()).collect();
        dirs.sort();
        dirs
    }

    /// The journal of the only session.
    pub fn journal(&self) -> Journal {
        let sessions = self.sessions();
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        Journal::read(&sessions[0])
    }
}

/// A folder in which no sandbox of codex lets a model write: one of the build, unless that is among the temporary files.
pub fn out_of_reach() -> tempfile::TempDir {
    let folders = [env!("CARGO_TARGET_TMPDIR"), "/root", "/srv", "/opt"].map(Path::new);
    let fit = folders.iter().filter(|folder| !is_temporary(folder));
    let made = fit.into_iter().find_map(|folder| tempfile::tempdir_in(folder).ok());
    made.expect("a folder outside of the temporary files: build elsewhere")
}

fn is_temporary(path: &Path) -> bool {
    let temporary = [PathBuf::from("/tmp"), PathBuf::from("/var/tmp"), std::env::temp_dir()];
    temporary.iter().any(|place| path.starts_with(place))
}

/// The binary under test, or the same below `folder` if the build is among the temporary files.
fn shim_out_of_reach(folder: &Path) -> PathBuf {
    if !is_temporary(Path::new(SHIM)) {
        return PathBuf::from(SHIM);
    }
    let linked = folder.join("codex-shim");
    if fs::hard_link(SHIM, &linked).is_err() {
        copy_shim(&linked);
    }
    linked
}

/// Puts a program at `path`. Another process writes it: a file that this process has open to write cannot be run as long as a child
/// of another test, which is about to run something, holds its descriptor ("Text file busy").
pub fn put_program(path: &Path, bytes: &[u8]) {
    let mut writer = Command::new("sh");
    writer.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut writer = with_default_signals(&mut writer).spawn().expect("sh runs");
    writer.stdin.take().expect("it is piped").write_all(bytes).expect("it is read");
    assert!(writer.wait().expect("it ends").success(), "{}", path.display());
}

/// Puts a copy of the binary under test at `path`, as [`put_program`] does.
pub fn copy_shim(path: &Path) {
    assert!(Command::new("cp").arg(SHIM).arg(path).status().expect("cp runs").success());
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}
