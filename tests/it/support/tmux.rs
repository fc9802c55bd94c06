//! A terminal run by tmux: it runs a program, types, and reads the screen.

use std::cell::Cell;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::dispositions::with_default_signals;
use super::patience::{PATIENCE, eventually, poll};
use super::shim::{Home, SHIM};

/// Shortest time between two keys of a person.
const PACE: Duration = Duration::from_millis(200);

/// A separate tmux server. It ends with the test.
pub struct Tmux {
    socket: PathBuf,
    /// When keys were last sent.
    keys_at: Cell<Instant>,
    _folder: tempfile::TempDir,
}

impl Tmux {
    /// Runs the shell script `script` in a terminal of 100 columns and 30 rows, with `home`, in the folder beside it.
    /// Without tmux it prints that the test is skipped, and returns `None`.
    pub fn start(test: &str, home: &Home, script: &str) -> Option<Tmux> {
        if !Command::new("tmux").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
            let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: there is no tmux");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let tmux = Tmux { socket: folder.path().join("tmux"), keys_at: Cell::new(Instant::now()), _folder: folder };
        home.spares_fish_its_manuals();
        let beside = home.beside().display();
        let set_up = format!(
            "cd '{beside}'; export CODEX_SHIM_HOME='{}' HOME='{beside}' LC_ALL=C.UTF-8; unset ZDOTDIR XDG_CONFIG_HOME; {script}",
            home.path().display()
        );
        // The first call starts tmux's server, and its settings apply to the programs in it.
        tmux.run(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", &set_up]);
        Some(tmux)
    }

    /// `codex-shim tui ARG…`, and afterwards the state of the terminal.
    pub fn tui(test: &str, home: &Home, args: &str) -> Option<Tmux> {
        let script =
            format!("'{SHIM}' tui {args}; echo \"left with $?\"; stty -a | tr ' ;' '\\n\\n' | grep icanon; cat");
        Tmux::start(test, home, &script)
    }

    pub fn run(&self, args: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        // The first call starts the server.
        with_default_signals(&mut tmux).arg("-S").arg(&self.socket).args(args);
        let output = tmux.output().expect("tmux is there");
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Presses keys. As with a person's, some time has passed since the keys before.
    pub fn keys(&self, keys: &[&str]) {
        let before = self.keys_at.get();
        eventually("the pace of a person", || (before.elapsed() > PACE).then_some(()));
        self.run(&[&["send-keys"], keys].concat());
        self.keys_at.set(Instant::now());
    }

    pub fn types(&self, text: &str) {
        self.run(&["send-keys", "-l", text]);
        self.keys_at.set(Instant::now());
    }

    /// Types a message and sends it. An Enter that comes in one burst with the text, on a busy machine, sends nothing.
    pub fn sends(&self, text: &str) {
        self.types(text);
        self.shows(text);
        self.keys(&["Enter"]);
    }

    /// Pastes text as a terminal without bracketed paste does.
    pub fn pastes(&self, text: &str) {
        self.run(&["set-buffer", text]);
        self.run(&["paste-buffer"]);
        self.keys_at.set(Instant::now());
    }

    /// Types a line.
    pub fn enters(&self, line: &str) {
        self.types(line);
        self.keys(&["Enter"]);
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        self.run(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    }

    pub fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    /// The screen with its colours, as escape sequences.
    pub fn coloured(&self) -> String {
        self.run(&["capture-pane", "-p", "-e"])
    }

    /// Waits until a text is on the screen; returns the whole screen.
    pub fn shows(&self, what: &str) -> String {
        self.shows_all(&[what])
    }

    /// Waits until a request with a text has been on the screen for more than half a second: its age has changed twice.
    pub fn shows_a_while(&self, what: &str) {
        let mut ages = std::collections::BTreeSet::new();
        eventually(&format!("{what:?} for a while"), || {
            let screen = self.screen();
            let age = screen.contains(what).then(|| screen.split("asked ").nth(1)?.split(" ago").next()).flatten();
            ages.extend(age.map(str::to_owned));
            (ages.len() > 2).then_some(())
        });
    }

    /// The same as [`Tmux::shows`] for several texts.
    pub fn shows_all(&self, what: &[&str]) -> String {
        let has_all = || Some(self.screen()).filter(|screen| what.iter().all(|what| screen.contains(what)));
        poll(PATIENCE, has_all)
            .unwrap_or_else(|| panic!("{what:?} is not on the screen, which has:\n{}", self.screen()))
    }

    /// Waits until a text has left the screen; returns the whole screen.
    pub fn shows_no(&self, what: &str) -> String {
        eventually(&format!("a screen without {what:?}"), || {
            Some(self.screen()).filter(|screen| !screen.contains(what))
        })
    }

    /// Leaves the terminal UI, whose end the shell reports as "left with 0"; returns the whole screen. A key that comes while the
    /// UI has not been quiet does nothing there, so a person presses it again.
    pub fn leaves(&self) -> String {
        let has_left = || Some(self.screen()).filter(|screen| screen.contains("left with 0"));
        eventually("the end of the terminal UI", || {
            self.keys(&["C-c"]);
            poll(Duration::from_secs(2), has_left)
        })
    }

    /// The process that the shell in it runs.
    pub fn pid(&self) -> Pid {
        let shell = self.run(&["display-message", "-p", "#{pane_pid}"]);
        child_of(shell.trim().parse().expect("a number")).expect("it has a child")
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").stderr(Stdio::null()).status();
    }
}

/// The first child of a process.
pub fn child_of(pid: i32) -> Option<Pid> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    Pid::from_raw(children.split(' ').next()?.parse().ok()?)
}
