//! A terminal for a program under test, with a scripted user.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use codex_shim::testing;
use rustix::process::Pid;
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

use super::patience::{eventually, poll};
use super::shim::Home;
use super::tmux::child_of;

/// A terminal of 24 lines and 80 columns with a program in it.
pub struct Pane {
    ours: File,
    /// Kept open, so that its mode can be checked after the program has ended.
    theirs: File,
    child: Child,
    shown: Arc<Mutex<Vec<u8>>>,
    looked_to: usize,
}

impl Pane {
    /// Runs a program there, with `home`, in the folder beside it.
    pub fn start(home: &Home, words: &[&str]) -> Pane {
        Pane::start_with(home, words, &[])
    }

    /// The same, with variables.
    pub fn start_with(home: &Home, words: &[&str], variables: &[(&str, &str)]) -> Pane {
        Pane::start_sized(home, words, variables, (24, 80))
    }

    /// The same, in a terminal of so many lines and columns.
    pub fn start_sized(home: &Home, words: &[&str], variables: &[(&str, &str)], (lines, columns): (u16, u16)) -> Pane {
        home.spares_fish_its_manuals();
        let (ours, theirs) = testing::terminals::pair().expect("a terminal");
        let theirs = File::from(theirs);
        // The same session leader as in our own terminals: the program owns the terminal and can be stopped from it.
        let mut command = home.shim(&["terminal-leader", "--"]);
        command.args(words).envs(variables.iter().copied()).current_dir(home.beside());
        command.env("TERM", "xterm-256color").env("HOME", home.beside()).env("LC_ALL", "C.UTF-8");
        let again = || theirs.try_clone().expect("it is open");
        command.stdin(again()).stdout(again()).stderr(again());
        let ours = File::from(ours);
        let mut from = ours.try_clone().expect("it is open");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(read) = from.read(&mut buffer) {
                let mut shown = kept.lock().expect("nobody panics with it");
                shown.extend_from_slice(&buffer[..read]);
            }
        });
        // Before the program runs: it may set a size of its own.
        set_size(&theirs, lines, columns);
        Pane { ours, theirs, child: command.spawn().expect("it starts"), shown, looked_to: 0 }
    }

    pub fn types(&mut self, keys: &str) {
        let _ = self.ours.write_all(keys.as_bytes());
    }

    /// Waits until `words` appear after the last awaited text. Returns the output from there to their end.
    pub fn shows(&mut self, words: &str) -> String {
        let shown = Arc::clone(&self.shown);
        let from = self.looked_to;
        let found = eventually(&format!("{words:?} on the screen"), || {
            let shown = shown.lock().expect("nobody panics with it");
            let at = memchr::memmem::find(&shown[from..], words.as_bytes());
            at.map(|at| from + at + words.len())
        });
        self.looked_to = found;
        String::from_utf8_lossy(&self.shown.lock().expect("nobody panics with it")[from..found]).into_owned()
    }

    /// The whole output.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().expect("nobody panics with it")).into_owned()
    }

    pub fn resize(&self, lines: u16, columns: u16) {
        set_size(&self.theirs, lines, columns);
    }

    pub fn mode(&self) -> Termios {
        tcgetattr(&self.theirs).expect("it has a mode")
    }

    /// Whether the mode is the one a shell sets for a program: line input with echo.
    pub fn is_given_back(&self) -> bool {
        self.mode().local_modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }

    pub fn program(&self) -> Pid {
        eventually("the program", || child_of(self.child.id() as i32))
    }

    pub fn try_ends(&mut self) -> Option<i32> {
        self.child.try_wait().expect("it is ours").and_then(|status| status.code())
    }

    /// Leaves the terminal UI by a key. One that it reads within 50 ms of its start was typed ahead and does nothing, so a person
    /// presses it again. Returns the exit status.
    pub fn leaves(&mut self) -> i32 {
        eventually("the end of the terminal UI", || {
            self.types("\u{11}");
            poll(Duration::from_secs(2), || self.try_ends())
        })
    }

    pub fn ends(&mut self) -> i32 {
        let status = eventually("the end of the program", || self.child.try_wait().expect("it is ours"));
        status.code().expect("it exits")
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set_size(terminal: &File, lines: u16, columns: u16) {
    let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("it has a size");
}
