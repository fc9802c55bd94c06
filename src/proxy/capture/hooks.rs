//! Shell hooks: the scripts that shells evaluate, and what the scripts report.
//!
//! A script starts one process of ours in the background after each command and passes on what the shell knows. The process
//! does the rest and never prints anything. A script never changes what other hooks, traps or traces see.
//!
//! A shell that runs in a terminal of ours also gets the outputs of its commands from us. The hook knows the commands, and we
//! know their output. Marks that the hook writes to the terminal separate the outputs; the hook asks for one at a socket in a
//! folder that only the user can enter. An unclaimed output is dropped after a few more.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::tail::Output;
use crate::engine::terminal::{Parser, Piece, Size};
use crate::engine::{ContextBounds, Label, Origin, Preview, Provenance, PushedCommand};
use crate::files;

/// A command line or shell with this variable set is not recorded.
const PRIVATE: &str = "CODEX_SHIM_PRIVATE";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShellKind {
    /// bash 4.4 or later.
    Bash,
    Zsh,
    /// fish 3.4 or later.
    Fish,
}

impl ShellKind {
    pub const ALL: [ShellKind; 3] = [ShellKind::Bash, ShellKind::Zsh, ShellKind::Fish];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ShellKind::Bash => "bash",
            ShellKind::Zsh => "zsh",
            ShellKind::Fish => "fish",
        }
    }

    /// The shell with this program name.
    #[must_use]
    pub fn of_program(program: &Path) -> Option<ShellKind> {
        let name = program.file_name()?.to_str()?.trim_start_matches('-');
        ShellKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The script for the shell to evaluate; its hook starts `program`.
#[must_use]
pub fn script(shell: ShellKind, program: &str) -> String {
    let (text, quoted) = match shell {
        ShellKind::Bash => (include_str!("hooks/bash.sh"), program.replace('\'', r"'\''")),
        ShellKind::Zsh => (include_str!("hooks/zsh.zsh"), program.replace('\'', r"'\''")),
        ShellKind::Fish => (include_str!("hooks/fish.fish"), program.replace('\\', r"\\").replace('\'', r"\'")),
    };
    text.replace("@PROGRAM@", &format!("'{quoted}'"))
}

/// The report of a shell's hook.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HookReport {
    /// The command line as it was typed.
    pub line: String,
    pub exit_code: i64,
    /// The directory in which the command began.
    pub cwd: String,
    /// The start in microseconds since the Unix epoch; `None` if the shell does not report it.
    pub began_us: Option<u64>,
    /// The end, likewise.
    pub ended_us: Option<u64>,
    /// The duration, if the shell reports only that.
    pub took_ms: Option<u64>,
    /// The shell's process id, a dot, and the number of the command in that shell.
    pub key: String,
}

/// Whether to record a reported command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookOutcome {
    Record(Box<PushedCommand>),
    /// Ignored: it is private, or one of ours.
    Ignore,
}

impl HookReport {
    /// Turns the report into a command, if it should be recorded. `now_ms` is in milliseconds since the Unix epoch.
    #[must_use]
    pub fn outcome(&self, shell: ShellKind, now_ms: u64) -> HookOutcome {
        let line = self.line.trim_end_matches('\n');
        if line.trim().is_empty() || line.starts_with(' ') || as_private(line) || is_ours(line) || ends_shell(line) {
            return HookOutcome::Ignore;
        }
        let took = self.began_us.zip(self.ended_us).map(|(began, ended)| ended.saturating_sub(began) / 1_000);
        let duration_ms = took.or(self.took_ms);
        // Before 5.0, bash reports only that a command began.
        let began_ms = self.began_us.map(|began| began / 1_000).filter(|began| *began > 0);
        let ts = began_ms.unwrap_or(now_ms.saturating_sub(duration_ms.unwrap_or(0)));
        let pid = self.key.split('.').next().unwrap_or_default();
        HookOutcome::Record(Box::new(PushedCommand {
            cmd: line.to_owned(),
            exit_code: Some(self.exit_code),
            cwd: Some(self.cwd.clone()).filter(|cwd| !cwd.is_empty()),
            shell_id: Some(Label::Text(format!("{}-{pid}", shell.name()))),
            ts: i64::try_from(ts).ok(),
            preview: Some(Preview::default()),
            provenance: Provenance { source: Origin::Hook, duration_ms, conversation_id: None },
            ..PushedCommand::default()
        }))
    }
}

/// Whether a line excludes itself: `CODEX_SHIM_PRIVATE=1 make`.
#[must_use]
pub(super) fn as_private(line: &str) -> bool {
    assignments(line).0.iter().any(|(name, value)| *name == PRIVATE && answers_privately(value))
}

/// Whether a value of CODEX_SHIM_PRIVATE means yes.
#[must_use]
pub fn answers_privately(value: &str) -> bool {
    matches!(value.trim_matches(['\'', '"']), "1" | "true" | "yes" | "on")
}

/// Whether a line runs codex-shim, alone or beside other commands: `clear; codex-shim status`.
fn is_ours(line: &str) -> bool {
    line.contains("codex-shim hook ") || commands(line).iter().any(|command| runs_us(command))
}

/// Whether a single command runs codex-shim.
fn runs_us(command: &str) -> bool {
    let rest = assignments(command).1;
    let mut words = rest.split_whitespace().skip_while(|word| matches!(*word, "command" | "exec" | "builtin" | "time"));
    let Some(word) = words.next() else { return false };
    let program = word.trim_matches(['\'', '"']).trim_start_matches('\\');
    Path::new(program).file_name().is_some_and(|name| name == "codex-shim")
}

/// The commands of a line, split where a shell separates them outside of quotes.
fn commands(line: &str) -> Vec<&str> {
    let mut quote = None;
    let is_end = |char: char| {
        match (quote, char) {
            (None, '\'' | '"') => quote = Some(char),
            (Some(open), char) if open == char => quote = None,
            _ => {}
        }
        quote.is_none() && matches!(char, ';' | '&' | '|' | '\n' | '(' | '{')
    };
    line.split(is_end).collect()
}

/// Whether a line only ends the shell. Other shells than fish end before they report it.
fn ends_shell(line: &str) -> bool {
    let mut words = line.split_whitespace();
    matches!(words.next(), Some("exit" | "logout")) && words.all(|word| word.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Splits the assignments before a command from the rest.
fn assignments(line: &str) -> (Vec<(&str, &str)>, &str) {
    let mut found = Vec::new();
    let mut rest = line.trim_start();
    rest = rest.strip_prefix("env ").unwrap_or(rest);
    loop {
        let word = rest.split_whitespace().next().unwrap_or_default();
        let is_name = |name: &str| {
            name.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_')
                && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_')
        };
        match word.split_once('=') {
            Some((name, value)) if is_name(name) => {
                found.push((name, value));
                rest = rest[word.len()..].trim_start();
            }
            Some(_) | None => return (found, rest),
        }
    }
}

// Outputs of a shell's commands, served to its hook.

/// Most unclaimed outputs.
const OUTPUTS_MAX: usize = 16;

/// How long to wait for the mark at the end of an output.
const MARK_WAIT_MAX: Duration = Duration::from_secs(1);

/// Longest key of a command, in bytes.
const KEY_BYTES_MAX: u64 = 64;

#[derive(Debug)]
pub struct Outputs {
    parser: Parser,
    size: Option<Size>,
    running: Option<(String, Output)>,
    shared: Arc<SharedHooks>,
    dir: PathBuf,
}

#[derive(Debug, Default)]
struct SharedHooks {
    ended: Mutex<VecDeque<(String, Preview)>>,
    another: Condvar,
    bounds: ContextBounds,
}

impl Outputs {
    /// Starts a thread that answers at a socket in a new folder in `base`.
    pub fn start(base: &Path, bounds: ContextBounds, size: Option<Size>) -> io::Result<Outputs> {
        let dir = base.join(format!("codex-shim-shell.{}", uuid::Uuid::now_v7().simple()));
        files::create_folder(&dir)?;
        let shared = Arc::new(SharedHooks { bounds, ..SharedHooks::default() });
        let outputs = Outputs { parser: Parser::default(), size, running: None, shared: Arc::clone(&shared), dir };
        let listener = UnixListener::bind(outputs.socket())?;
        std::thread::Builder::new().name("outputs".to_owned()).spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                // A request may have to wait for its mark; the next one need not.
                let _ = std::thread::Builder::new().spawn(move || shared.answer(stream));
            }
        })?;
        Ok(outputs)
    }

    /// The path of the socket.
    #[must_use]
    pub fn socket(&self) -> OsString {
        self.dir.join("s").into_os_string()
    }

    /// Processes the next bytes from the shell and its commands.
    pub fn take(&mut self, written: &[u8]) {
        let Outputs { parser, size, running, shared, .. } = self;
        parser.parse(written, |piece| match Mark::of(&piece) {
            Some(Mark::Began(key)) => *running = Some((key, Output::new(*size))),
            Some(Mark::Ended(key)) => {
                if let Some((began, output)) = running.take_if(|(began, _)| *began == key) {
                    shared.put(began, output.preview(&shared.bounds));
                }
            }
            None => {
                if let Some((_, output)) = running {
                    output.apply(&piece);
                }
            }
        });
    }

    pub fn resize(&mut self, size: Size) {
        self.size = Some(size);
        if let Some((_, output)) = &mut self.running {
            output.resize(size);
        }
    }
}

/// Distinguishes our marks from others.
const AID: &str = "aid=codex-shim.";

/// A mark of the shell's hook in the output, with the key of a command.
#[derive(Debug, PartialEq, Eq)]
enum Mark {
    Began(String),
    Ended(String),
}

impl Mark {
    fn of(piece: &Piece<'_>) -> Option<Mark> {
        let Piece::Command(command) = piece else { return None };
        let mark = std::str::from_utf8(command).ok()?.strip_prefix("133;")?;
        let key = mark.split(';').find_map(|part| part.strip_prefix(AID))?.to_owned();
        match mark.as_bytes().first()? {
            b'C' => Some(Mark::Began(key)),
            b'D' => Some(Mark::Ended(key)),
            _ => None,
        }
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl SharedHooks {
    fn put(&self, key: String, preview: Preview) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.len() == OUTPUTS_MAX {
            ended.pop_front();
        }
        ended.push_back((key, preview));
        self.another.notify_all();
    }

    fn answer(&self, mut stream: UnixStream) {
        let mut key = String::new();
        let _ = stream.set_read_timeout(Some(MARK_WAIT_MAX));
        if (&stream).take(KEY_BYTES_MAX).read_to_string(&mut key).is_err() {
            return;
        }
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let is_missing = |ended: &mut VecDeque<(String, Preview)>| !ended.iter().any(|(ended, _)| *ended == key);
        let waited = self.another.wait_timeout_while(ended, MARK_WAIT_MAX, is_missing);
        let (mut ended, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let found = ended.iter().position(|(ended, _)| *ended == key).and_then(|index| ended.remove(index));
        drop(ended);
        if let Some((_, preview)) = found {
            let _ = stream.write_all(&serde_json::to_vec(&preview).expect("BUG: plain data is JSON"));
        }
    }
}

/// Asks a socket of [`Outputs`] for the output of a command.
#[must_use]
pub fn output_of(socket: &Path, key: &str) -> Option<Preview> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(2 * MARK_WAIT_MAX)).ok()?;
    stream.write_all(key.as_bytes()).ok()?;
    // macOS refuses it if the other end is closed already; the answer is there to be read.
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut told = Vec::new();
    stream.read_to_end(&mut told).ok()?;
    serde_json::from_slice(&told).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(shell: ShellKind, line: &str) -> Option<String> {
        let hooked =
            HookReport { line: line.to_owned(), cwd: "/w".to_owned(), key: "7.1".to_owned(), ..HookReport::default() };
        match hooked.outcome(shell, 5) {
            HookOutcome::Record(pushed) => Some(pushed.cmd),
            HookOutcome::Ignore => None,
        }
    }

    #[test]
    fn private_and_own_commands_are_ignored() {
        for line in [
            "",
            " ls",
            "CODEX_SHIM_PRIVATE=1 make",
            "A=b CODEX_SHIM_PRIVATE='yes' make",
            "env CODEX_SHIM_PRIVATE=1 make",
            "codex-shim context show",
            "/opt/bin/codex-shim demo",
            "CODEX_SHIM_SESSION=x codex-shim exec -- make",
            "command codex-shim status",
            "eval \"$(codex-shim hook bash)\"",
            "clear; codex-shim context show",
            "clear && A=b codex-shim exec -- make",
            "make | codex-shim send -",
            "(codex-shim status)",
            "exit",
            "exit 1",
        ] {
            assert_eq!(outcome(ShellKind::Zsh, line), None, "{line}");
        }
        for line in
            ["CODEX_SHIM_PRIVATE=0 make", "grep codex-shim README.md", "ls codex-shim", "a=b", "echo 'a; codex-shim b'"]
        {
            assert_eq!(outcome(ShellKind::Fish, line).as_deref(), Some(line));
        }
    }

    #[test]
    fn times_follow_the_shells_report() {
        let hooked = HookReport {
            line: "a".to_owned(),
            began_us: Some(3_000_000),
            ended_us: Some(4_500_000),
            key: "7.1".to_owned(),
            ..HookReport::default()
        };
        let HookOutcome::Record(pushed) = hooked.outcome(ShellKind::Zsh, 9_000) else { panic!("it is kept") };
        assert_eq!((pushed.ts, pushed.provenance.duration_ms), (Some(3_000), Some(1_500)));
        let took = HookReport { began_us: None, took_ms: Some(20), ..hooked };
        let HookOutcome::Record(pushed) = took.outcome(ShellKind::Fish, 9_000) else { panic!("it is kept") };
        assert_eq!((pushed.ts, pushed.provenance.duration_ms), (Some(8_980), Some(20)));
    }

    #[test]
    fn hook_script_quotes_its_program() {
        assert!(script(ShellKind::Bash, "/a b/it's").contains(r"__codex_shim_bin='/a b/it'\''s'"));
        assert!(script(ShellKind::Fish, "/a\\b/it's").contains(r"__codex_shim_bin '/a\\b/it\'s'"));
    }

    #[test]
    fn only_our_marks_are_recognized() {
        let check = |written: &str, expect: &[Mark]| {
            for cut in [1, 3, written.len()] {
                let (mut parser, mut marks) = (Parser::default(), Vec::new());
                written
                    .as_bytes()
                    .chunks(cut)
                    .for_each(|bytes| parser.parse(bytes, |piece| marks.extend(Mark::of(&piece))));
                assert_eq!(marks, expect, "{written:?}");
            }
        };
        let (began, ended) = (Mark::Began("7.1".to_owned()), Mark::Ended("7.1".to_owned()));
        check("$ \x1b]133;C;aid=codex-shim.7.1\x07out\x1b]133;D;0;aid=codex-shim.7.1\x07", &[began, ended]);
        check("\x1b]133;C;aid=codex-shim.7.1\x1b\\x", &[Mark::Began("7.1".to_owned())]);
        check("\x1b]133;C\x07a\x1b]133;D;1;aid=kitty.3\x07b\x1b]133;A;aid=codex-shim.7.1\x07", &[]);
    }

    #[test]
    fn output_is_served_once_its_command_ends() {
        let base = tempfile::tempdir().expect("a folder");
        let mut outputs = Outputs::start(base.path(), ContextBounds::default(), None).expect("it starts");
        let socket = PathBuf::from(outputs.socket());
        outputs.take(b"$ ls\r\n\x1b]133;C;aid=codex-shim.1.1\x07a\r\nb\r\n");
        let asked = std::thread::spawn({
            let socket = socket.clone();
            move || output_of(&socket, "1.1")
        });
        outputs.take(b"\x1b]133;D;0;aid=codex-shim.1.1\x07$ x\r\n");
        assert_eq!(asked.join().expect("it ends").expect("it is told").lines, ["a", "b"]);
        assert_eq!(output_of(&socket, "1.1"), None);
        drop(outputs);
        assert_eq!(std::fs::read_dir(base.path()).expect("it is there").count(), 0);
    }
}
