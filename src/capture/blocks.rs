//! The blocks of an `agent_pty`: turns its events into commands and finds their output.
//!
//! Source of the shapes: `agent_pty/events.jsonl` of agent_log_server.

use std::collections::VecDeque;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde_json::Value;

use super::tail::Tail;
use crate::engine::{ContextBounds, Label, Origin, Preview, Provenance, PushedCommand};

/// Whose commands to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    Users,
    /// Also the agent's.
    All,
}

/// Most open blocks; beyond this the oldest is dropped.
const OPEN_MAX: usize = 64;

/// How much of the end of an output file is read, in bytes.
const OUTPUT_BYTES: u64 = 64 << 10;

/// Longest snapshot that is read, in bytes.
const SNAPSHOT_BYTES_MAX: u64 = 4 << 20;

/// Prefix of the ids of blocks in the user's own terminal.
const USERS: &str = "user:";

/// An output path may be relative to a folder at most this many levels above the events.
const FOLDERS_UP_MAX: usize = 4;

/// A block that has begun and not ended.
#[derive(Debug)]
struct Open {
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
    open: VecDeque<Open>,
}

/// Whether a screen still shows a block's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Screen {
    /// The screen shows the end of it.
    ShowsIt,
    /// Later output has replaced it.
    IsOutdated,
}

/// A command, and whether its output still has to be read from the screen.
#[derive(Debug)]
pub(super) struct Ended {
    pushed: PushedCommand,
    has_output: bool,
}

impl Blocks {
    pub(super) fn new(dir: &Path, whose: Whose, bounds: ContextBounds) -> Blocks {
        Blocks { dir: dir.to_owned(), whose, bounds, open: VecDeque::new() }
    }

    /// Processes one event line; returns the command that ended with it, if any.
    pub(super) fn line(&mut self, line: &[u8]) -> Option<Ended> {
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
                self.open.push_back(Open { block_id, block: event["block"].clone(), written: Tail::default() });
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

    fn take_open(&mut self, block_id: &str) -> Option<Open> {
        let index = self.open.iter().position(|open| open.block_id == block_id)?;
        self.open.remove(index)
    }

    fn ended(&self, block_id: &str, event: &Value, begun: Option<Open>) -> Option<Ended> {
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
        Some(Ended { pushed, has_output: output.is_some() })
    }

    /// Completes a command, with the output on the screen if there is no other source.
    pub(super) fn with_screen(&self, ended: Ended, screen: Screen) -> PushedCommand {
        let Ended { mut pushed, has_output } = ended;
        if !has_output
            && screen == Screen::ShowsIt
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
        let file = open_file(&self.dir.join(file))?;
        let mut text = String::new();
        file.take(SNAPSHOT_BYTES_MAX).read_to_string(&mut text).ok()?;
        Some(text)
    }

    /// The end of an output file, whatever folder its path is relative to.
    fn tail_of(&self, path: &str) -> Option<Tail> {
        let dirs = self.dir.ancestors().take(FOLDERS_UP_MAX);
        let mut file = dirs.map(|dir| dir.join(path)).find_map(|path| open_file(&path))?;
        let bytes = file.metadata().ok()?.len();
        let skipped = bytes.saturating_sub(OUTPUT_BYTES);
        file.seek(SeekFrom::Start(skipped)).ok()?;
        let mut written = Vec::new();
        file.take(OUTPUT_BYTES).read_to_end(&mut written).ok()?;
        let mut tail = Tail::default();
        tail.take(&written);
        if skipped > 0 {
            tail.is_cut();
        }
        Some(tail)
    }
}

/// Opens a regular file; opening any other kind could block.
fn open_file(path: &Path) -> Option<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::File::options();
    let file = options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
        let ended: Vec<Ended> = lines.iter().filter_map(|line| blocks.line(line)).collect();
        ended.into_iter().map(|ended| blocks.with_screen(ended, Screen::ShowsIt)).collect()
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
}
