//! Follows the events file of an `agent_pty`, which another process appends to, truncates, or replaces. Turns its blocks into
//! commands with their output, and stores each command once.
//!
//! Source of the shapes: `agent_pty/events.jsonl` of agent_log_server.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::tail::Tail;
use crate::engine::{Command, ContextBounds, Label, Origin, Preview, Provenance, PushError, PushedCommand};
use crate::files;
use crate::files::open_named;

/// The interval between two reads of the file. Source: the time a person takes between the end of a command and the next
/// message.
const POLL_EVERY: Duration = Duration::from_millis(200);

/// Most commands in one request.
const BATCH_COMMANDS_MAX: usize = 50;

/// Most bytes of JSON in one request; a single command may be longer. Source: half of the longest body that a relay
/// accepts.
const BATCH_BYTES_MAX: usize = 512 << 10;

/// Most commands that wait for a retry; beyond this the oldest is dropped, as in the buffer itself.
const UNKEPT_MAX: usize = 200;

#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    follower: Follower,
    blocks: Blocks,
    bounds: ContextBounds,
    unkept: Vec<PushedCommand>,
    fault_told: bool,
}

impl Watch {
    /// Follows the events at `path`, which may not exist yet.
    #[must_use]
    pub fn new(path: &Path, whose: Whose, bounds: ContextBounds) -> Watch {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let dir = path.parent().unwrap_or(&path).to_owned();
        Watch {
            follower: Follower::new(path.clone()),
            blocks: Blocks::new(&dir, whose, bounds),
            bounds,
            path,
            unkept: Vec::new(),
            fault_told: false,
        }
    }

    /// Follows the events forever. `keep` receives new commands, and receives those again that it could not store. `fault`
    /// receives an error when it first occurs and when it recurs after a success.
    pub fn follow(mut self, mut keep: impl FnMut(&[PushedCommand]) -> Result<(), String>, mut fault: impl FnMut(&str)) {
        loop {
            match self.poll(&mut keep) {
                Ok(()) => self.fault_told = false,
                Err(why) if !std::mem::replace(&mut self.fault_told, true) => fault(&why),
                Err(_) => {}
            }
            std::thread::park_timeout(POLL_EVERY);
        }
    }

    /// Passes the commands that ended since the last call to `keep`, cleaned and shortened.
    ///
    /// # Errors
    ///
    /// The events cannot be read, `keep` failed (the commands that it did not take are passed again next time), or a
    /// command is invalid and was dropped.
    pub fn poll(&mut self, keep: &mut impl FnMut(&[PushedCommand]) -> Result<(), String>) -> Result<(), String> {
        let Watch { path, follower, blocks, bounds, unkept, .. } = self;
        let mut impossible = None;
        let mut ended: Vec<EndedCommand> = Vec::new();
        let polled = follower.poll(|line| ended.extend(blocks.line(line)));
        let count = ended.len();
        for (index, ended) in ended.into_iter().enumerate() {
            let screen = if index + 1 == count { BlockOnScreen::ShowsIt } else { BlockOnScreen::IsOutdated };
            match fitting(blocks.with_screen(ended, screen), bounds) {
                Ok(command) => unkept.push(command),
                // A relay would reject the whole request because of it.
                Err(error) => impossible = Some(error),
            }
        }
        let surplus = unkept.len().saturating_sub(UNKEPT_MAX);
        unkept.drain(..surplus);
        while !unkept.is_empty() {
            let together = together(unkept);
            keep(&unkept[..together]).map_err(|why| format!("{why}; its commands are stored once that works"))?;
            unkept.drain(..together);
        }
        polled.map_err(|error| format!("read {}: {error}", path.display()))?;
        impossible.map_or(Ok(()), |error| Err(format!("skipped an invalid command in {}: {error}", path.display())))
    }
}

/// The command in the form that a relay would store: not too long, and accepted.
fn fitting(pushed: PushedCommand, bounds: &ContextBounds) -> Result<PushedCommand, PushError> {
    // A missing time is left to the relay.
    let Command { cmd, cwd, preview, .. } = pushed.clone().into_command(0, bounds)?;
    // Shortening may have left only blanks.
    if cmd.trim().is_empty() {
        return Err(PushError::EmptyCmd);
    }
    Ok(PushedCommand { cmd, cwd, preview: Some(preview), output: None, ..pushed })
}

/// How many of these fit into one request, at least one.
fn together(unkept: &[PushedCommand]) -> usize {
    let mut bytes = 0;
    let fit = unkept.iter().take(BATCH_COMMANDS_MAX).take_while(|command| {
        bytes += serde_json::to_string(command).expect("BUG: plain data is JSON").len();
        bytes <= BATCH_BYTES_MAX
    });
    fit.count().max(1)
}

/// Whose commands to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    Users,
    /// Also the agent's.
    All,
}

/// Most open blocks; beyond this the oldest is dropped.
const OPEN_MAX: usize = 64;

/// Longest snapshot that is read, in bytes.
const SNAPSHOT_BYTES_MAX: u64 = 4 << 20;

/// Prefix of the ids of blocks in the user's own terminal.
const USERS: &str = "user:";

/// An output path may be relative to a folder at most this many levels above the events.
const FOLDERS_UP_MAX: usize = 4;

/// A block that has begun and not ended.
#[derive(Debug)]
struct OpenBlock {
    block_id: String,
    block: Value,
    written: Tail,
}

/// Turns events into commands.
#[derive(Debug)]
pub(super) struct Blocks {
    /// The folder of the events.
    dir: PathBuf,
    whose: Whose,
    bounds: ContextBounds,
    open: VecDeque<OpenBlock>,
}

/// Whether a screen still shows a block's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockOnScreen {
    /// The screen shows the end of it.
    ShowsIt,
    /// Later output has replaced it.
    IsOutdated,
}

/// A command, and whether its output still has to be read from the screen.
#[derive(Debug)]
pub(super) struct EndedCommand {
    pushed: PushedCommand,
    has_output: bool,
}

impl Blocks {
    pub(super) fn new(dir: &Path, whose: Whose, bounds: ContextBounds) -> Blocks {
        Blocks { dir: dir.to_owned(), whose, bounds, open: VecDeque::new() }
    }

    /// Processes one event line; returns the command that ended with it, if any.
    pub(super) fn line(&mut self, line: &[u8]) -> Option<EndedCommand> {
        // Most lines are other events, and may be long.
        memchr::memmem::find(line, b"agent_block_")?;
        let event: Value = serde_json::from_slice(line).ok()?;
        let block_id = event["block"]["block_id"].as_str().or(event["block_id"].as_str())?;
        if self.whose == Whose::Users && !block_id.starts_with(USERS) {
            return None;
        }
        match event["type"].as_str()? {
            "agent_block_begin" => {
                self.take_open(block_id);
                if self.open.len() == OPEN_MAX {
                    self.open.pop_front();
                }
                let block_id = block_id.to_owned();
                self.open.push_back(OpenBlock { block_id, block: event["block"].clone(), written: Tail::default() });
                None
            }
            "agent_block_delta" => {
                let open = self.open.iter_mut().find(|open| open.block_id == block_id)?;
                open.written.take(event["delta"].as_str()?.as_bytes());
                None
            }
            "agent_block_end" => {
                let begun = self.take_open(block_id);
                self.ended(block_id, &event, begun)
            }
            _ => None,
        }
    }

    fn take_open(&mut self, block_id: &str) -> Option<OpenBlock> {
        let index = self.open.iter().position(|open| open.block_id == block_id)?;
        self.open.remove(index)
    }

    fn ended(&self, block_id: &str, event: &Value, begun: Option<OpenBlock>) -> Option<EndedCommand> {
        let block = &event["block"];
        let of_begun = |name: &str| begun.as_ref().map_or(&Value::Null, |begun| &begun.block[name]);
        let text = |name: &str| block[name].as_str().or_else(|| of_begun(name).as_str()).map(str::to_owned);
        let number = |name: &str| block[name].as_i64().or_else(|| of_begun(name).as_i64());
        let cmd = text("cmd").filter(|cmd| !cmd.trim().is_empty())?;
        let (began, ended) = (number("ts_begin"), number("ts_end"));
        let in_file = text("output_path").and_then(|path| self.tail_of(&path));
        let written = begun.as_ref().map(|begun| &begun.written).filter(|written| !written.is_empty());
        let inline = text("output").map(|output| {
            let mut tail = Tail::default();
            tail.take(output.as_bytes());
            tail
        });
        let output = in_file.as_ref().or(written).or(inline.as_ref());
        let conversation_id = event["conversation_id"].as_str().map(str::to_owned).or_else(|| text("conversation_id"));
        let pushed = PushedCommand {
            cmd,
            exit_code: number("exit_code"),
            cwd: text("cwd"),
            block_id: Some(Label::Text(block_id.to_owned())),
            shell_id: self.read_small("shell_id.txt").map(|id| Label::Text(id.trim().to_owned())),
            ts: began,
            preview: Some(output.map_or_else(Preview::default, |output| output.preview(&self.bounds))),
            once: true,
            provenance: Provenance {
                source: Origin::WatchPty,
                duration_ms: began.zip(ended).and_then(|(began, ended)| u64::try_from(ended.checked_sub(began)?).ok()),
                conversation_id,
            },
            ..PushedCommand::default()
        };
        Some(EndedCommand { pushed, has_output: output.is_some() })
    }

    /// Completes a command, with the output on the screen if there is no other source.
    pub(super) fn with_screen(&self, ended: EndedCommand, screen: BlockOnScreen) -> PushedCommand {
        let EndedCommand { mut pushed, has_output } = ended;
        if !has_output
            && screen == BlockOnScreen::ShowsIt
            && let Some(lines) = self
                .snapshot("scrollback.snapshot.json", "lines")
                .or_else(|| self.snapshot("screen.snapshot.json", "rows"))
        {
            // A screen shows only part of the output, and may show other output too.
            let preview = Preview::of_output(&lines.join("\n"), &self.bounds);
            pushed.preview = Some(Preview { truncated: true, ..preview });
        }
        pushed
    }

    /// The lines of a snapshot beside the events, without trailing empty ones.
    fn snapshot(&self, file: &str, member: &str) -> Option<Vec<String>> {
        let snapshot: Value = serde_json::from_str(&self.read_small(file)?).ok()?;
        let mut lines: Vec<String> =
            snapshot[member].as_array()?.iter().filter_map(|line| Some(line.as_str()?.trim_end().to_owned())).collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        (!lines.is_empty()).then_some(lines)
    }

    fn read_small(&self, file: &str) -> Option<String> {
        let file = open_named(&self.dir.join(file)).ok()?;
        let mut text = String::new();
        file.take(SNAPSHOT_BYTES_MAX).read_to_string(&mut text).ok()?;
        Some(text)
    }

    /// The end of an output file, whatever folder its path is relative to.
    fn tail_of(&self, path: &str) -> Option<Tail> {
        let dirs = self.dir.ancestors().take(FOLDERS_UP_MAX);
        Tail::of_file(dirs.map(|dir| dir.join(path)).find_map(|path| open_named(&path).ok())?).ok()
    }
}

/// Size of one read, in bytes.
const READ_BYTES: usize = 256 << 10;

/// How much of the last read text is remembered, in bytes: a rewritten file of the same or greater length differs there.
const REMEMBERED_BYTES_MAX: usize = 256;

/// Longest line, in bytes; longer ones are skipped.
const LINE_BYTES_MAX: usize = 16 << 20;

/// Follows a file from its beginning.
#[derive(Debug)]
pub(super) struct Follower {
    path: PathBuf,
    file: Option<OpenedPty>,
}

#[derive(Debug)]
struct OpenedPty {
    file: File,
    /// Device and inode, so a renamed file is recognized.
    identity: (u64, u64),
    offset: u64,
    /// The start of an incomplete line.
    incomplete: Vec<u8>,
    is_too_long: bool,
    /// The bytes right before the offset.
    before: Vec<u8>,
}

impl Follower {
    pub(super) fn new(path: PathBuf) -> Follower {
        Follower { path, file: None }
    }

    /// Passes each newly completed line to `emit`. A missing file is not an error.
    pub(super) fn poll(&mut self, mut emit: impl FnMut(&[u8])) -> io::Result<()> {
        let now = match std::fs::metadata(&self.path) {
            Ok(now) if now.is_file() => Some(now),
            Ok(_) => return Err(io::Error::other("not a regular file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if let Some(opened) = &mut self.file {
            // Also reads the last lines of a file that was renamed.
            opened.read(&mut emit)?;
            if now.as_ref().is_some_and(|now| (now.dev(), now.ino()) == opened.identity) {
                return Ok(());
            }
        }
        if now.is_none() {
            // The old file may still grow until it is replaced.
            return Ok(());
        }
        let file = files::open_named(&self.path)?;
        let about = file.metadata()?;
        let identity = (about.dev(), about.ino());
        let opened =
            OpenedPty { file, identity, offset: 0, incomplete: Vec::new(), is_too_long: false, before: Vec::new() };
        let opened = self.file.insert(opened);
        opened.read(&mut emit)
    }
}

impl OpenedPty {
    fn read(&mut self, emit: &mut impl FnMut(&[u8])) -> io::Result<()> {
        if self.file.metadata()?.len() < self.offset || !self.is_unchanged()? {
            // Truncated or rewritten: all of its content is new.
            (self.offset, self.is_too_long) = (0, false);
            self.incomplete.clear();
            self.before.clear();
        }
        self.file.seek(SeekFrom::Start(self.offset))?;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let read = self.file.read(&mut buffer)?;
            if read == 0 {
                return Ok(());
            }
            self.offset += read as u64;
            self.remember(&buffer[..read]);
            self.take(&buffer[..read], emit);
        }
    }

    /// Whether the last read bytes are still at their place.
    fn is_unchanged(&self) -> io::Result<bool> {
        let mut there = vec![0; self.before.len()];
        match self.file.read_exact_at(&mut there, self.offset - self.before.len() as u64) {
            Ok(()) => Ok(there == self.before),
            // Truncated just now.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn remember(&mut self, read: &[u8]) {
        self.before.extend_from_slice(&read[read.len().saturating_sub(REMEMBERED_BYTES_MAX)..]);
        let too_many = self.before.len().saturating_sub(REMEMBERED_BYTES_MAX);
        self.before.drain(..too_many);
    }

    fn take(&mut self, read: &[u8], emit: &mut impl FnMut(&[u8])) {
        let mut rest = read;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            self.incomplete.extend_from_slice(&rest[..end]);
            if !std::mem::take(&mut self.is_too_long) {
                emit(&self.incomplete);
            }
            self.incomplete.clear();
            rest = &rest[end + 1..];
        }
        self.incomplete.extend_from_slice(rest);
        if self.incomplete.len() > LINE_BYTES_MAX {
            self.is_too_long = true;
            self.incomplete.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use serde_json::json;

    use super::*;

    fn of(cmd: &str) -> PushedCommand {
        PushedCommand { cmd: cmd.to_owned(), ..PushedCommand::default() }
    }

    #[test]
    fn batches_fit_into_one_body() {
        let small = vec![of("ls"); 60];
        assert_eq!(together(&small), BATCH_COMMANDS_MAX);
        // Each of its bytes takes six in JSON.
        let large = vec![of(&"\u{1}".repeat(30 << 10)); 3];
        assert_eq!((together(&large), together(&large[2..])), (2, 1));
        assert_eq!(together(&[of(&"x".repeat(BATCH_BYTES_MAX)), of("ls")]), 1);
    }

    #[test]
    fn fitting_commands_are_unchanged() {
        let bounds = ContextBounds { cmd_bytes_max: 8, cwd_bytes_max: 4, ..ContextBounds::default() };
        let pushed =
            PushedCommand { cwd: Some("/w\u{e9}\u{e9}".to_owned()), ts: Some(7), ..of("\u{1b}[1mecho \u{e9}\u{e9}") };
        let fits = fitting(pushed, &bounds).expect("it is a command");
        assert_eq!((&*fits.cmd, fits.cwd.as_deref(), fits.ts), ("echo \u{e9}", Some("/w\u{e9}"), Some(7)));
        assert_eq!(fitting(fits.clone(), &bounds), Ok(fits));
        assert_eq!(fitting(of("         ls"), &bounds), Err(PushError::EmptyCmd));
    }

    fn begin(id: &str, more: Value) -> Vec<u8> {
        let mut block = json!({"block_id": id, "ts_begin": 1_000, "cwd": "/p", "cmd": "ls", "status": "running"});
        block.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({"type": "agent_block_begin", "conversation_id": "C", "block": block}).to_string().into_bytes()
    }

    fn delta(id: &str, text: &str) -> Vec<u8> {
        json!({"type": "agent_block_delta", "block_id": id, "delta": text}).to_string().into_bytes()
    }

    fn end(id: &str) -> Vec<u8> {
        json!({"type": "agent_block_end", "conversation_id": "C", "block": {"block_id": id, "exit_code": 2, "ts_end": 1_421}})
            .to_string()
            .into_bytes()
    }

    fn play(dir: &Path, whose: Whose, lines: &[Vec<u8>]) -> Vec<PushedCommand> {
        let mut blocks = Blocks::new(dir, whose, ContextBounds::default());
        let ended: Vec<EndedCommand> = lines.iter().filter_map(|line| blocks.line(line)).collect();
        ended.into_iter().map(|ended| blocks.with_screen(ended, BlockOnScreen::ShowsIt)).collect()
    }

    fn lines(pushed: &PushedCommand) -> Vec<String> {
        pushed.preview.clone().expect("there is one").lines
    }

    #[test]
    fn user_block_becomes_a_command() {
        let dir = tempfile::tempdir().expect("a folder");
        let id = "user:12:1000";
        let events = [begin(id, json!({})), delta(id, "total 48\n\x1b[1mx"), delta("user:other", "no"), end(id)];
        let pushed = play(dir.path(), Whose::Users, &events);
        assert_eq!(pushed.len(), 1);
        assert_eq!((&*pushed[0].cmd, pushed[0].exit_code, pushed[0].cwd.as_deref()), ("ls", Some(2), Some("/p")));
        assert_eq!(
            (lines(&pushed[0]), pushed[0].provenance.duration_ms),
            (vec!["total 48".into(), "x".into()], Some(421))
        );
        assert!(pushed[0].once && pushed[0].provenance.conversation_id.as_deref() == Some("C"));
    }

    #[test]
    fn impossible_times_give_no_duration() {
        let dir = tempfile::tempdir().expect("a folder");
        let events = [begin("user:1:1", json!({"ts_begin": i64::MIN})), end("user:1:1")];
        assert_eq!(play(dir.path(), Whose::Users, &events)[0].provenance.duration_ms, None);
    }

    #[test]
    fn agent_blocks_are_taken_on_request() {
        let dir = tempfile::tempdir().expect("a folder");
        let events = [begin("C:1:1", json!({})), end("C:1:1"), b"agent_block_ no json".to_vec(), b"{}".to_vec()];
        assert_eq!(play(dir.path(), Whose::Users, &events), []);
        assert_eq!(play(dir.path(), Whose::All, &events).len(), 1);
    }

    #[test]
    fn output_comes_from_file_then_deltas_then_screen() {
        let root = tempfile::tempdir().expect("a folder");
        let dir = root.path().join("agent_pty");
        std::fs::create_dir_all(dir.join("blocks")).expect("a folder");
        let id = "user:1:1";
        let play = |more: Value, deltas: &[&str]| {
            let mut events = vec![begin(id, more)];
            events.extend(deltas.iter().map(|text| delta(id, text)));
            events.push(end(id));
            lines(&play(&dir, Whose::Users, &events)[0])
        };
        assert_eq!(play(json!({}), &[]), [""; 0]);
        std::fs::write(dir.join("screen.snapshot.json"), r#"{"rows":["$ ls","a  ","",""]}"#).expect("a file");
        assert_eq!(play(json!({}), &[]), ["$ ls", "a"]);
        std::fs::write(dir.join("scrollback.snapshot.json"), r#"{"lines":["b"]}"#).expect("a file");
        assert_eq!(play(json!({}), &[]), ["b"]);
        assert_eq!(play(json!({}), &["inline"]), ["inline"]);
        std::fs::write(dir.join("blocks/1.out"), "in its file\n").expect("a file");
        for path in ["blocks/1.out", "agent_pty/blocks/1.out", dir.join("blocks/1.out").to_str().expect("UTF-8")] {
            assert_eq!(play(json!({"output_path": path}), &["inline"]), ["in its file"], "{path}");
        }
        assert_eq!(play(json!({"output_path": "nowhere"}), &["inline"]), ["inline"]);
    }

    fn polled(follower: &mut Follower) -> Vec<String> {
        let mut lines = Vec::new();
        follower.poll(|line| lines.push(String::from_utf8_lossy(line).into_owned())).expect("it can be read");
        lines
    }

    #[test]
    fn lines_are_passed_once_complete() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("events");
        let mut follower = Follower::new(path.clone());
        assert_eq!(polled(&mut follower), [""; 0]);
        let mut file = File::create(&path).expect("a file");
        file.write_all(b"one\ntw").expect("it is written");
        assert_eq!(polled(&mut follower), ["one"]);
        assert_eq!(polled(&mut follower), [""; 0]);
        file.write_all(b"o\nthree\n").expect("it is written");
        assert_eq!(polled(&mut follower), ["two", "three"]);
    }

    #[test]
    fn truncated_or_replaced_file_is_followed() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("events");
        std::fs::write(&path, "first line\nhalf").expect("a file");
        let mut follower = Follower::new(path.clone());
        assert_eq!(polled(&mut follower), ["first line"]);
        std::fs::write(&path, "cut\n").expect("a file");
        assert_eq!(polled(&mut follower), ["cut"]);
        let mut file = File::options().append(true).open(&path).expect("it opens");
        std::fs::rename(&path, dir.path().join("events.1")).expect("it moves");
        file.write_all(b"last of the old\n").expect("it is written");
        assert_eq!(polled(&mut follower), ["last of the old"]);
        std::fs::write(&path, "of the new\n").expect("a file");
        assert_eq!(polled(&mut follower), ["of the new"]);
    }

    #[test]
    fn longer_rewritten_file_is_read_from_its_start() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("events");
        std::fs::write(&path, "one\nhalf").expect("a file");
        let mut follower = Follower::new(path.clone());
        assert_eq!(polled(&mut follower), ["one"]);
        std::fs::write(&path, "another one\nand more\n").expect("a file");
        assert_eq!(polled(&mut follower), ["another one", "and more"]);
        // However long the last read was, only its end is remembered.
        let long = "x".repeat(3 * REMEMBERED_BYTES_MAX);
        let mut file = File::options().append(true).open(&path).expect("it opens");
        file.write_all(format!("{long}\n").as_bytes()).expect("it is written");
        assert_eq!(polled(&mut follower), [long.as_str()]);
        file.write_all(b"last\n").expect("it is written");
        assert_eq!(polled(&mut follower), ["last"]);
    }
}
