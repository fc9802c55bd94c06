//! A command that the user ran in a terminal, cleaned and bounded for the model.
//!
//! The tail of what an output leaves on a screen is kept. Omitted text sets `truncated`; overwritten text, escape sequences
//! and control characters do not.

use std::collections::VecDeque;
use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::engine::terminal::{KEPT_BYTES, Parser, Remains, Screen, without_controls};
use crate::protocol::named;
use crate::secrets::redacted;

/// Limits on the context of one message. Source: the contract of the envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextBounds {
    /// Commands per envelope; the oldest are dropped first.
    pub commands_max: usize,
    /// Lines per preview.
    pub preview_lines_max: usize,
    /// Bytes per preview, including the line ends between lines.
    pub preview_bytes_max: usize,
    /// Bytes per `cmd`.
    pub cmd_bytes_max: usize,
    /// Bytes per `cwd`.
    pub cwd_bytes_max: usize,
    /// Bytes per envelope from marker to marker, as the model sees it.
    #[serde(rename = "bytes_max")]
    pub envelope_bytes_max: usize,
}

impl Default for ContextBounds {
    fn default() -> ContextBounds {
        ContextBounds {
            commands_max: 10,
            preview_lines_max: 20,
            preview_bytes_max: 3_000,
            cmd_bytes_max: 1_024,
            cwd_bytes_max: 1_024,
            envelope_bytes_max: 4_096,
        }
    }
}

/// The last millisecond of the year 9999.
const TS_MS_MAX: i64 = 253_402_300_799_999;

/// Longest label, in bytes.
const LABEL_BYTES_MAX: usize = 200;

/// A command that was run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The command line.
    pub cmd: String,
    /// The exit status, if any.
    pub exit_code: Option<i64>,
    /// The working folder.
    pub cwd: Option<String>,
    /// The pusher's name for the command.
    pub block_id: Option<Label>,
    /// When it ran, in milliseconds since the Unix epoch.
    pub ts: i64,
    /// The end of its output.
    pub preview: Preview,
    /// The pusher's name for the shell.
    #[serde(default)]
    pub shell_id: Option<Label>,
    #[serde(flatten)]
    pub provenance: Provenance,
}

impl Command {
    /// Sorts commands of shells with a hook by start time: a separate process pushes each of them, so two quick
    /// commands may arrive in reverse order. Commands from other sources stay in place, and nothing moves across them.
    pub fn put_in_order<T>(kept: &mut [T], command: impl Fn(&T) -> &Command) {
        let is_of_shell = |one: &T| matches!(command(one).provenance.source, Origin::Hook | Origin::Shell);
        kept.chunk_by_mut(|one, next| is_of_shell(one) && is_of_shell(next))
            .for_each(|together| together.sort_by_key(|one| command(one).ts));
    }
}

/// A pusher's name for an object of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Label {
    Number(i64),
    Text(String),
}

/// The end of an output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preview {
    pub lines: Vec<String>,
    /// There was more output.
    #[serde(default)]
    pub truncated: bool,
}

/// A command as pushed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushedCommand {
    /// The command line.
    pub cmd: String,
    #[serde(default)]
    pub exit_code: Option<i64>,
    /// The working folder.
    #[serde(default)]
    pub cwd: Option<String>,
    /// The pusher's name for the command.
    #[serde(default)]
    pub block_id: Option<Label>,
    /// The pusher's name for the shell.
    #[serde(default)]
    pub shell_id: Option<Label>,
    /// Start time in milliseconds since the Unix epoch; defaults to now.
    #[serde(default)]
    pub ts: Option<i64>,
    /// The end of the output, cut by the pusher.
    #[serde(default)]
    pub preview: Option<Preview>,
    /// The full output, to be cut here.
    #[serde(default)]
    pub output: Option<String>,
    /// The target thread; defaults to whichever has the next turn.
    #[serde(default)]
    pub thread_id: Option<String>,
    /// Drop the command at once.
    #[serde(default)]
    pub private: bool,
    /// Drop the command if one with the same `block_id` was pushed this way before.
    #[serde(default)]
    pub once: bool,
    #[serde(flatten, deserialize_with = "known_provenance")]
    pub provenance: Provenance,
}

/// Only a newer relay has further sources; a pusher has to name one of these.
fn known_provenance<'de, D: Deserializer<'de>>(from: D) -> Result<Provenance, D::Error> {
    let provenance = Provenance::deserialize(from)?;
    match provenance.source {
        Origin::Newer(newer) => {
            Err(D::Error::unknown_variant(newer.name(), &["push", "exec", "hook", "shell", "watch-pty"]))
        }
        Origin::Push | Origin::Exec | Origin::Hook | Origin::Shell | Origin::WatchPty => Ok(provenance),
    }
}

/// Why a pushed command is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushError {
    /// `cmd` is empty.
    EmptyCmd,
    /// A member contains a NUL character.
    Nul(&'static str),
    /// Both `output` and `preview` are set.
    OutputAndPreview,
    /// `ts` is before 1970 or after 9999.
    ImpossibleTime,
    /// A member is too long to be genuine.
    TooLong(&'static str),
    /// `once` is set without `block_id`.
    OnceWithoutBlock,
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PushError::EmptyCmd => f.write_str("`cmd` is empty; it must be the command as it was typed"),
            PushError::Nul(member) => {
                write!(f, "`{member}` has a NUL character, which is not possible in a command or a path")
            }
            PushError::OutputAndPreview => f.write_str("give `output` or `preview`, not both"),
            PushError::ImpossibleTime => f.write_str("`ts` must be milliseconds since 1970, up to the year 9999"),
            PushError::TooLong(member) => write!(f, "`{member}` is over {LABEL_BYTES_MAX} bytes"),
            PushError::OnceWithoutBlock => f.write_str("`once` needs a `block_id`"),
        }
    }
}

impl std::error::Error for PushError {}

impl PushedCommand {
    /// Cleans and bounds the command. `now_ms` is in milliseconds since the Unix epoch.
    ///
    /// # Errors
    ///
    /// [`PushError`] if it cannot be a command that somebody ran.
    pub fn into_command(self, now_ms: i64, bounds: &ContextBounds) -> Result<Command, PushError> {
        for (member, text) in [("cmd", Some(&self.cmd)), ("cwd", self.cwd.as_ref())] {
            if text.is_some_and(|text| text.contains('\0')) {
                return Err(PushError::Nul(member));
            }
        }
        let labels = [("block_id", &self.block_id), ("shell_id", &self.shell_id)];
        for (member, label) in labels {
            if matches!(label, Some(Label::Text(text)) if text.len() > LABEL_BYTES_MAX) {
                return Err(PushError::TooLong(member));
            }
        }
        for (member, text) in [("thread_id", &self.thread_id), ("conversation_id", &self.provenance.conversation_id)] {
            if text.as_ref().is_some_and(|text| text.len() > LABEL_BYTES_MAX) {
                return Err(PushError::TooLong(member));
            }
        }
        if self.once && self.block_id.is_none() {
            return Err(PushError::OnceWithoutBlock);
        }
        let cmd = masked(clean(&self.cmd, Keep::LineEnds));
        if cmd.trim().is_empty() {
            return Err(PushError::EmptyCmd);
        }
        if self.ts.is_some_and(|ts| !(0..=TS_MS_MAX).contains(&ts)) {
            return Err(PushError::ImpossibleTime);
        }
        let preview = match (&self.output, self.preview) {
            (Some(_), Some(_)) => return Err(PushError::OutputAndPreview),
            (Some(output), None) => Preview::of_output(output, bounds),
            (None, Some(preview)) => preview.cleaned(bounds),
            (None, None) => Preview::default(),
        };
        let mut command = Command {
            cmd,
            exit_code: self.exit_code,
            cwd: self.cwd.map(|cwd| masked(clean(&cwd, Keep::Nothing))),
            block_id: self.block_id,
            ts: self.ts.unwrap_or(now_ms),
            preview,
            shell_id: self.shell_id,
            provenance: self.provenance,
        };
        command.bound(bounds);
        Ok(command)
    }
}

impl Command {
    /// Cuts members that exceed the bounds.
    pub fn bound(&mut self, bounds: &ContextBounds) {
        self.cmd.truncate(self.cmd.floor_char_boundary(bounds.cmd_bytes_max));
        if let Some(cwd) = &mut self.cwd {
            cwd.truncate(cwd.floor_char_boundary(bounds.cwd_bytes_max));
        }
        let Preview { lines, truncated } = std::mem::take(&mut self.preview);
        self.preview = Preview::tail_of(lines.into_iter().rev(), truncated, bounds);
    }
}

impl Preview {
    /// The preview of a full output, as a terminal would show it.
    pub fn of_output(output: &str, bounds: &ContextBounds) -> Preview {
        let mut screen = Screen::new(None, output.len().max(KEPT_BYTES));
        Parser::default().parse(output.as_bytes(), |piece| screen.apply(&piece));
        Preview::of_remains(&screen.remains(), bounds)
    }

    /// The preview of what is left of an output on a screen.
    pub fn of_remains(remains: &Remains, bounds: &ContextBounds) -> Preview {
        let text = remains.text.strip_suffix('\n').unwrap_or(&remains.text);
        // Masked as a whole, because a secret may span lines.
        let masked = redacted(text);
        let text = masked.as_deref().unwrap_or(text);
        let lines = (!text.is_empty()).then(|| text.rsplit('\n')).into_iter().flatten();
        Preview::tail_of(lines.map(str::to_owned), remains.is_cut, bounds)
    }

    fn cleaned(self, bounds: &ContextBounds) -> Preview {
        let mut lines = self.lines.join("\n");
        lines.push('\n');
        let preview = Preview::of_output(&lines, bounds);
        Preview { truncated: preview.truncated || self.truncated, ..preview }
    }

    /// Keeps as many lines as the bounds allow, given from the last one backwards.
    fn tail_of(from_last: impl Iterator<Item = String>, truncated: bool, bounds: &ContextBounds) -> Preview {
        let mut kept = VecDeque::new();
        let mut left_bytes = bounds.preview_bytes_max;
        let mut truncated = truncated;
        for line in from_last {
            let line_end_bytes = usize::from(!kept.is_empty());
            if kept.len() >= bounds.preview_lines_max || left_bytes < line_end_bytes {
                truncated = true;
                break;
            }
            left_bytes -= line_end_bytes;
            if line.len() > left_bytes {
                truncated = true;
                let tail = &line[line.ceil_char_boundary(line.len() - left_bytes)..];
                if !tail.is_empty() {
                    kept.push_front(tail.to_owned());
                }
                break;
            }
            left_bytes -= line.len();
            kept.push_front(line);
        }
        Preview { lines: kept.into(), truncated }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// Keep line ends and tabs.
    LineEnds,
    /// Keep no control characters; a tab becomes a blank, to keep words apart.
    Nothing,
}

/// Masks anything that looks like a secret.
fn masked(text: String) -> String {
    redacted(&text).unwrap_or(text)
}

/// Removes escape sequences and control characters.
fn clean(text: &str, keep: Keep) -> String {
    match keep {
        // Line by line, so that an unterminated sequence affects only its own line.
        Keep::LineEnds => text.split('\n').map(without_controls).collect::<Vec<_>>().join("\n"),
        Keep::Nothing => without_controls(text).replace(['\t', '\n'], " "),
    }
}

named! {
    /// The source of a command.
    #[derive(Default)]
    pub open enum Origin {
        /// `context push`, or a program at the control socket.
        #[default]
        Push = "push",
        Exec = "exec",
        /// A shell hook.
        Hook = "hook",
        /// A `codex-shim shell`.
        Shell = "shell",
        /// The events of an `agent_pty`.
        WatchPty = "watch-pty",
    }
}

/// Facts about a command that the model does not see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    #[serde(default)]
    pub source: Origin,
    /// Run time in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The pusher's name for the conversation; the model sees it instead of the thread id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(lines: usize, bytes: usize) -> ContextBounds {
        ContextBounds { preview_lines_max: lines, preview_bytes_max: bytes, ..ContextBounds::default() }
    }

    fn check(output: &str, lines_max: usize, bytes_max: usize, lines: &[&str], truncated: bool) {
        let preview = Preview::of_output(output, &bounds(lines_max, bytes_max));
        assert_eq!((&*preview.lines, preview.truncated), (&*owned(lines), truncated), "{output:?}");
    }

    fn owned(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn fitting_output_is_kept_whole() {
        check("", 3, 9, &[], false);
        check("\n", 3, 9, &[], false);
        check("a", 3, 9, &["a"], false);
        check("a\nb\nc\n", 3, 9, &["a", "b", "c"], false);
        check("a\n\n\n", 3, 9, &["a", "", ""], false);
        check("abc\ndef\n", 3, 7, &["abc", "def"], false);
    }

    #[test]
    fn tail_is_kept_and_truncation_marked() {
        check("a\nb\nc\nd\n", 3, 9, &["b", "c", "d"], true);
        check("\n\n\n\n", 3, 9, &["", "", ""], true);
        check("abc\ndef\n", 3, 6, &["bc", "def"], true);
        check("abc\ndef\n", 3, 4, &["def"], true);
        check("abc\ndef\n", 3, 3, &["def"], true);
        check("abc\n", 3, 2, &["bc"], true);
        check("aé\n", 3, 1, &[], true);
        check("éa\n", 3, 2, &["a"], true);
        check("x", 0, 9, &[], true);
    }

    #[test]
    fn terminal_controls_are_removed_without_truncation_mark() {
        check("\x1b[1;31mred\x1b[0m\r\n\x1b]0;title\x07go\n", 9, 99, &["red", "go"], false);
        check("a\0b\x07c\x7fd\u{9b}e", 9, 99, &["abcde"], false);
        check("col1\tcol2", 9, 99, &["col1    col2"], false);
    }

    #[test]
    fn overwritten_text_is_not_shown() {
        check("10%\r20%\r\n", 9, 99, &["20%"], false);
        check("dos\r\nfile\r\n", 9, 99, &["dos", "file"], false);
        check("a\nb\n\x1b[1A\x1b[Kc\n", 9, 99, &["a", "c"], false);
        check("N\x08NA\x08A _\x08x\x0cnext", 9, 99, &["NA x", "next"], false);
        check("TOKEN=hun\x1b[mter\x082\x08r2hunter2", 9, 99, &["TOKEN=[redacted]"], false);
    }

    fn push(json: &str) -> Result<Command, String> {
        let pushed: PushedCommand = serde_json::from_str(json).map_err(|error| error.to_string())?;
        pushed.into_command(7, &ContextBounds::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn push_without_command_is_rejected() {
        assert_eq!(push("{}").expect_err("no cmd"), "missing field `cmd` at line 1 column 2");
        for bad in [
            r#"{"cmd":" \n"}"#,
            r#"{"cmd":"\u0007"}"#,
            r#"{"cmd":"a\u0000"}"#,
            r#"{"cmd":"a","ts":-1}"#,
            r#"{"cmd":"a","ts":253402300800000}"#,
            r#"{"cmd":"a","output":"","preview":{"lines":[]}}"#,
            r#"{"cmd":"a","exit_code":"0"}"#,
            r#"{"cmd":"a","preview":{"lines":"x"}}"#,
        ] {
            assert!(push(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn missing_members_are_null_or_now() {
        let command = push(r#"{"cmd":"ls\n-l"}"#).expect("it is one");
        let expect = Command {
            cmd: "ls\n-l".to_owned(),
            exit_code: None,
            cwd: None,
            block_id: None,
            ts: 7,
            preview: Preview::default(),
            shell_id: None,
            provenance: Provenance::default(),
        };
        assert_eq!(command, expect);
        let command = push(r#"{"cmd":"a","ts":3,"block_id":4,"shell_id":"s","exit_code":-1,"cwd":"/","x":0}"#);
        let command = command.expect("it is one");
        assert_eq!((command.ts, command.exit_code, command.block_id), (3, Some(-1), Some(Label::Number(4))));
    }

    #[test]
    fn the_folder_of_a_command_is_masked() {
        let told = push(r#"{"cmd":"a","cwd":"/x/TOKEN=hunter2hunter2"}"#).expect("it is one");
        assert_eq!(told.cwd.as_deref(), Some("/x/TOKEN=[redacted]"));
    }

    #[test]
    fn a_preview_that_was_cut_stays_cut() {
        let command = push(r#"{"cmd":"a","preview":{"lines":["x\u001b[0m","y\nz"],"truncated":true}}"#).expect("one");
        assert_eq!(command.preview, Preview { lines: owned(&["x", "y", "z"]), truncated: true });
    }

    #[test]
    fn a_long_command_is_cut_on_a_character() {
        let cmd = format!("x{}", "é".repeat(600));
        let command = push(&serde_json::json!({ "cmd": cmd }).to_string()).expect("one");
        assert_eq!(command.cmd.len(), 1_023);
    }
}
