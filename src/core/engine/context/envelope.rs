//! The envelope: one line of JSON between two markers; its way into the client's own `turn/start`, in front of the user's
//! words, where every other byte stays unchanged; and the recognition of our own texts, an envelope or a projection, whole or
//! as a piece that codex cut from one.
//!
//! Equal commands give equal bytes. Its text cannot steer a terminal, end the envelope early, or name a skill to codex. A
//! text is ours only if it parses as one: a user's words that merely begin with a marker stay the user's.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::ContextSettings;
use super::command::{Command, ContextBounds, Label, Origin, Preview};
use super::strip::IMAGE_PREVIEW;
use crate::engine::assembly::projection::{self, Cut, REQUEST_HEADING};
use crate::engine::model::WaitingCommand;
use crate::engine::threads::WORDS_CHARS_MAX;
use crate::protocol::BYTE_RANGES;
use crate::wire::{Members, Message, Splice, elements, text};

/// Start marker of an envelope.
pub const MARKER_START: &str = "\u{1e}CODEX_META ";

/// End marker.
pub const MARKER_END: char = '\u{1f}';

/// The escaped first character of a codex heading.
const HEADING_HASH: &str = "\\u0023";

/// The tools of a watched terminal, with which the model can see more of it. Source: the contract of the envelope.
const WATCHED_TOOLS: [&str; 2] = ["pty_read_screen", "pty_read_scrollback"];

/// The tools that belong to the sources of the commands.
fn tools_of(commands: &[&WaitingCommand]) -> Vec<String> {
    let is_watched = |waiting: &&WaitingCommand| waiting.command.provenance.source == Origin::WatchPty;
    match commands.iter().any(is_watched) {
        true => WATCHED_TOOLS.map(str::to_owned).to_vec(),
        false => Vec::new(),
    }
}

/// The user's commands as carried by one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The thread of the message, or the newest conversation name that a command gives.
    pub conversation_id: String,
    /// The shell of the newest command that names one.
    pub shell_id: Option<Label>,
    /// Number of commands since the last message, including those not shown.
    pub total_commands_run: u64,
    /// The shown commands, oldest first.
    pub commands: Vec<Command>,
    /// Tools that show more of the terminal.
    pub mcp: Vec<String>,
}

impl Envelope {
    /// The queued commands of a thread, fitted to the bounds; `None` if the bounds leave no room for any of them. The
    /// engine sends this and `context show` prints it.
    pub fn fitted(thread_id: &str, mut queued: Vec<&WaitingCommand>, settings: &ContextSettings) -> Option<Envelope> {
        Command::put_in_order(&mut queued, |waiting| &waiting.command);
        let kept = &queued[queued.len().saturating_sub(settings.bounds.commands_max)..];
        let envelope = Envelope {
            conversation_id: thread_id.to_owned(),
            shell_id: None,
            total_commands_run: queued.iter().map(|waiting| 1 + waiting.forgotten_before).sum(),
            commands: kept.iter().map(|waiting| waiting.command.clone()).collect(),
            mcp: settings.mcp.clone().unwrap_or_else(|| tools_of(kept)),
        };
        envelope.fit(&settings.bounds)
    }

    /// Shrinks an envelope to the bounds: first fewer commands, then shorter previews from the oldest on, then fewer
    /// commands again, then a shorter last command. `None` if it still does not fit.
    pub fn fit(mut self, bounds: &ContextBounds) -> Option<Envelope> {
        let surplus = self.commands.len().saturating_sub(bounds.commands_max);
        self.commands.drain(..surplus);
        self.commands.iter_mut().for_each(|command| command.bound(bounds));
        self.shell_id = self.commands.iter().rev().find_map(|command| command.shell_id.clone());
        if let Some(named) = self.commands.iter().rev().find_map(|command| command.provenance.conversation_id.clone()) {
            self.conversation_id = named;
        }
        loop {
            if self.commands.is_empty() {
                return None;
            }
            let excess = self.render().len().saturating_sub(bounds.envelope_bytes_max);
            if excess == 0 {
                return Some(self);
            }
            if let Some(oldest) = self.commands.iter_mut().find(|command| !command.preview.lines.is_empty()) {
                oldest.preview.shrink(excess);
            } else if self.commands.len() > 1 {
                self.commands.remove(0);
            } else if !self.commands[0].shorten(excess) {
                return None;
            }
        }
    }

    /// The text, from marker to marker.
    pub fn render(&self) -> String {
        let kept = self.commands.len() as u64;
        let mut out = String::from(MARKER_START);
        out.push_str("{\"v\":1,\"type\":\"user_cmd_context\",\"conversation_id\":");
        push_text(&mut out, &self.conversation_id);
        out.push_str(",\"shell_id\":");
        push_label(&mut out, self.shell_id.as_ref());
        let (total, dropped) = (self.total_commands_run, self.total_commands_run.saturating_sub(kept));
        push(&mut out, format_args!(",\"total_commands_run\":{total},\"kept\":{kept},\"dropped\":{dropped}"));
        out.push_str(",\"commands\":");
        push_list(&mut out, &self.commands, push_command);
        out.push_str(",\"mcp\":");
        push_list(&mut out, &self.mcp, |out, name| push_text(out, name));
        out.push('}');
        out.push(MARKER_END);
        out
    }

    /// Parses the envelope at the start of a text; returns it and the rest.
    #[cfg(test)]
    pub fn parse(text: &str) -> Option<(Envelope, &str)> {
        let (json, rest) = text.strip_prefix(MARKER_START)?.split_once(MARKER_END)?;
        let read: Read = serde_json::from_str(json).ok()?;
        let Read { v: 1, kind, conversation_id, shell_id, total_commands_run, commands, mcp } = read else {
            return None;
        };
        let envelope = Envelope { conversation_id, shell_id, total_commands_run, commands, mcp };
        (kind == "user_cmd_context").then_some((envelope, rest))
    }
}

#[cfg(test)]
#[derive(Deserialize)]
struct Read {
    v: u32,
    #[serde(rename = "type")]
    kind: String,
    conversation_id: String,
    shell_id: Option<Label>,
    total_commands_run: u64,
    commands: Vec<Command>,
    mcp: Vec<String>,
}

impl Preview {
    /// Removes up to `excess_bytes` or slightly more from the front of the preview, as rendered.
    fn shrink(&mut self, excess_bytes: usize) {
        let mut excess_bytes = excess_bytes;
        self.truncated = true;
        while excess_bytes > 0 && !self.lines.is_empty() {
            let first = &mut self.lines[0];
            // Includes the quotation marks and the comma.
            if rendered_bytes(first) + 3 <= excess_bytes {
                excess_bytes -= rendered_bytes(first) + 3;
                self.lines.remove(0);
                continue;
            }
            let cut = shortest_cut(first.chars(), &mut excess_bytes);
            if cut == first.len() {
                self.lines.remove(0);
            } else {
                first.drain(..cut);
            }
        }
    }
}

impl Command {
    /// Removes at least `excess_bytes`, as rendered, from the end of the folder and then of the command. Returns
    /// `false` if nothing of the command would be left.
    fn shorten(&mut self, excess_bytes: usize) -> bool {
        let mut excess_bytes = excess_bytes;
        for text in self.cwd.iter_mut().chain([&mut self.cmd]) {
            let cut = shortest_cut(text.chars().rev(), &mut excess_bytes);
            text.truncate(text.len() - cut);
        }
        excess_bytes == 0 && !self.cmd.is_empty()
    }
}

/// Length in bytes of the shortest prefix of `chars` that renders to at least `excess_bytes`; reduces `excess_bytes` by
/// that rendering.
fn shortest_cut(chars: impl Iterator<Item = char>, excess_bytes: &mut usize) -> usize {
    let mut cut_bytes = 0;
    for char in chars {
        if *excess_bytes == 0 {
            break;
        }
        *excess_bytes = excess_bytes.saturating_sub(rendered_char_bytes(char));
        cut_bytes += char.len_utf8();
    }
    cut_bytes
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("BUG: a String takes every write");
}

fn push_list<T>(out: &mut String, list: &[T], push_one: impl Fn(&mut String, &T)) {
    out.push('[');
    for (index, one) in list.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        push_one(out, one);
    }
    out.push(']');
}

fn push_command(out: &mut String, command: &Command) {
    out.push_str("{\"cmd\":");
    push_text(out, &command.cmd);
    match command.exit_code {
        Some(code) => push(out, format_args!(",\"exit_code\":{code}")),
        None => out.push_str(",\"exit_code\":null"),
    }
    out.push_str(",\"cwd\":");
    match &command.cwd {
        Some(cwd) => push_text(out, cwd),
        None => out.push_str("null"),
    }
    out.push_str(",\"block_id\":");
    push_label(out, command.block_id.as_ref());
    push(out, format_args!(",\"ts\":{},\"preview\":{{\"lines\":", command.ts));
    push_list(out, &command.preview.lines, |out, line| push_text(out, line));
    push(out, format_args!(",\"truncated\":{}}}}}", command.preview.truncated));
}

fn push_label(out: &mut String, label: Option<&Label>) {
    match label {
        Some(Label::Number(number)) => push(out, format_args!("{number}")),
        Some(Label::Text(text)) => push_text(out, text),
        None => out.push_str("null"),
    }
}

/// Appends a JSON string without raw characters that could end the envelope, steer a terminal, or mean something to
/// codex, which looks for `$name` and for its own heading in user text.
fn push_text(out: &mut String, text: &str) {
    out.push('"');
    for (at, char) in text.char_indices() {
        match char {
            '#' if text[at..].starts_with(REQUEST_HEADING) => out.push_str(HEADING_HASH),
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            _ if is_escaped(char) => push(out, format_args!("\\u{:04x}", u32::from(char))),
            _ => out.push(char),
        }
    }
    out.push('"');
}

/// Whether a character is written as `\uXXXX`; every control character has a number of four digits.
fn is_escaped(char: char) -> bool {
    char == '$' || char.is_control()
}

/// Rendered length of a character, except the longer first character of a codex heading.
fn rendered_char_bytes(char: char) -> usize {
    match char {
        '"' | '\\' | '\n' | '\t' | '\r' => 2,
        _ if is_escaped(char) => 6,
        _ => char.len_utf8(),
    }
}

fn rendered_bytes(text: &str) -> usize {
    let longer = HEADING_HASH.len() - 1;
    text.chars().map(rendered_char_bytes).sum::<usize>() + longer * text.matches(REQUEST_HEADING).count()
}

/// The `type` of an envelope.
const ENVELOPE_TYPE: &str = "user_cmd_context";

/// The first members of every envelope, without blanks. Source: the contract of the envelope.
const ENVELOPE_HEAD: &str = r#"{"v":1,"type":"user_cmd_context","#;

/// The last member of every envelope without tools, without blanks.
const ENVELOPE_TAIL: &str = r#"],"mcp":[]}"#;

/// Prefixes to prepend when parsing a piece whose first character is inside a string of an envelope.
const LOST_BEGINNINGS: [&str; 6] = [
    r#"{"v":1,"type":"user_cmd_context","conversation_id":""#,
    r#"{"v":1,"type":"user_cmd_context","shell_id":""#,
    r#"{"v":1,"type":"user_cmd_context","commands":[{"cmd":""#,
    r#"{"v":1,"type":"user_cmd_context","commands":[{"cwd":""#,
    r#"{"v":1,"type":"user_cmd_context","commands":[{"block_id":""#,
    r#"{"v":1,"type":"user_cmd_context","commands":[{"preview":{"lines":[""#,
];

/// The members that identify an envelope. Others may be present, as earlier builds and pushers wrote them.
#[derive(Deserialize)]
struct EnvelopeMembers<'a> {
    v: u64,
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(rename = "commands")]
    _commands: Vec<IgnoredAny>,
    #[serde(rename = "mcp", default)]
    _mcp: Option<Vec<IgnoredAny>>,
}

/// Whether a text is exactly one envelope or projection, from marker to marker.
pub(super) fn is_ours(text: &str) -> bool {
    is_envelope(text) || projection::is_projection(text)
}

/// Likewise for a snippet, in which codex may replace line ends with blanks.
pub(super) fn is_ours_in_snippet(text: &str) -> bool {
    is_envelope(text) || projection::is_projection_in_snippet(text)
}

/// Whether a text is the beginning of an envelope or projection without its end, possibly with an ellipsis.
pub(super) fn is_cut_off(text: &str) -> bool {
    is_beginning_of_ours(text, projection::is_cut_projection)
}

/// Likewise for a snippet, in which codex may replace line ends with blanks.
pub(super) fn is_cut_off_in_snippet(text: &str) -> bool {
    is_beginning_of_ours(text, projection::is_cut_projection_in_snippet)
}

fn is_beginning_of_ours(text: &str, is_cut_projection: impl Fn(&str) -> bool) -> bool {
    if text.contains(MARKER_END) {
        return false;
    }
    let shown = text.trim_end_matches(['.', '…']);
    is_cut_envelope(shown) || is_cut_envelope(shown.trim_end()) || is_cut_projection(shown)
}

/// Whether a text is only the first character of a marker, possibly with an ellipsis. Without more of ours beside it, it may be
/// anybody's.
pub(super) fn is_start_of_marker(text: &str) -> bool {
    let shown = text.trim_end_matches(['.', '…', ' ']);
    MARKER_START.strip_prefix(shown).is_some_and(|rest| rest.len() + 1 == MARKER_START.len())
}

/// Whether a text is the end of an envelope or projection, without the marker, as in a preview that lost its beginning:
/// codex shows only the text after its own heading, even if that heading was inside our string.
pub(super) fn is_end_of_ours(shown: &str) -> bool {
    let is_end_of_envelope = || LOST_BEGINNINGS.iter().any(|lost| is_envelope_json(&format!("{lost}{shown}")));
    projection::ends_projection(shown) || is_end_of_envelope()
}

/// Whether the text of a snippet up to an end marker, which it does not include, is the end of ours. Without an ellipsis the
/// snippet shows the beginning of the message, so a short piece is the user's.
pub(super) fn is_end_in_snippet(text: &str) -> bool {
    let shown = text.trim_start_matches(['.', '…', ' ']);
    let has_ellipsis = text.starts_with("...") || text.starts_with('…');
    let compact: String = shown.chars().filter(|char| !char.is_whitespace()).collect();
    let is_long = compact.len() >= ENVELOPE_TAIL.len();
    let is_end_of_envelope = match compact.rfind(r#"],"mcp":["#) {
        Some(at) => is_list_of_names(&compact[at + r#"],"mcp":"#.len()..]),
        None => ENVELOPE_TAIL.ends_with(&*compact) || (compact.ends_with("\"]}") && is_names_cut_off(&compact)),
    };
    let cut = if has_ellipsis { Cut::Yes } else { Cut::No };
    ((has_ellipsis || is_long) && is_end_of_envelope) || projection::is_end_of_projection(shown, cut)
}

/// Whether a text is `["NAME",…]}`.
fn is_list_of_names(text: &str) -> bool {
    text.strip_suffix('}').is_some_and(|list| serde_json::from_str::<Vec<String>>(list).is_ok())
}

/// Whether a text is the end of `"mcp":["NAME",…]}`, cut anywhere.
fn is_names_cut_off(text: &str) -> bool {
    let is_of_name =
        |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.' | '"' | ',' | '[' | ':');
    text.strip_suffix("]}").is_some_and(|names| names.chars().all(is_of_name))
}

fn is_envelope(text: &str) -> bool {
    let json = text.strip_prefix(MARKER_START).and_then(|text| text.strip_suffix(MARKER_END));
    json.is_some_and(is_envelope_json)
}

/// Whether a text is the JSON of an envelope on one line.
fn is_envelope_json(json: &str) -> bool {
    // A character has up to four bytes.
    let is_bounded = json.len() <= 4 * TURN_CHARS_MAX && !json.contains(['\n', '\r', MARKER_END]);
    is_bounded
        && serde_json::from_str::<EnvelopeMembers<'_>>(json)
            .is_ok_and(|known| known.v >= 1 && known.kind == ENVELOPE_TYPE)
}

/// Whether a text is the beginning of an envelope, cut off after its first character or later.
fn is_cut_envelope(shown: &str) -> bool {
    let Some(json) = shown.strip_prefix(MARKER_START) else {
        return shown.len() > 1 && MARKER_START.starts_with(shown);
    };
    let head: String = json.chars().filter(|char| !char.is_whitespace()).take(ENVELOPE_HEAD.len()).collect();
    let has_head = head == ENVELOPE_HEAD || ENVELOPE_HEAD.starts_with(&*head);
    has_head && !json.contains(['\n', '\r']) && is_beginning_of_json(json)
}

/// Whether a text is JSON, or JSON that is cut off.
fn is_beginning_of_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).map_or_else(|error| error.is_eof(), |_| true)
}

/// Longest text of a turn that codex accepts, in characters over all text items. Source: its error `input_too_large`
/// (0.169).
pub(in crate::engine) const TURN_CHARS_MAX: usize = 1_048_576;

/// Longest accepted thread id, in bytes.
pub(in crate::engine) const THREAD_ID_BYTES_MAX: usize = 200;

/// A `turn/start` that can carry something.
#[derive(Debug)]
pub(in crate::engine) struct TurnStart<'a> {
    line: &'a [u8],
    pub(super) thread_id: String,
    /// The input array and its elements.
    input: &'a RawValue,
    items: Vec<&'a RawValue>,
    said: UserWords<'a>,
}

/// The user's words in an input.
#[derive(Debug, Default)]
struct UserWords<'a> {
    /// The first non-empty text item, with its text as written.
    first: Option<(Members<'a>, &'a RawValue)>,
    /// The concatenated text.
    text: String,
    has_image: bool,
}

impl<'a> TurnStart<'a> {
    /// Parses the message of a line. `None` if the server would reject it too.
    pub(in crate::engine) fn read(line: &'a [u8], message: &Message<'a>) -> Option<TurnStart<'a>> {
        if message.repeated_member {
            return None;
        }
        let params = Members::of(message.params?)?;
        let thread_id = params.text("threadId").filter(|id| !id.is_empty() && id.len() <= THREAD_ID_BYTES_MAX)?;
        let input = params.get("input")?;
        let items = elements(input)?;
        let said = UserWords::of(&items)?;
        Some(TurnStart { line, thread_id, input, items, said })
    }

    /// The line with `envelope` in front of the user's words; `None` if codex would reject its length.
    pub(super) fn with_envelope(&self, envelope: &str) -> Option<Vec<u8>> {
        if self.said.text.chars().count() + envelope.chars().count() > TURN_CHARS_MAX {
            return None;
        }
        let quoted = serde_json::to_string(envelope).expect("BUG: a string is JSON");
        let mut splice = Splice::of(self.line);
        match &self.said.first {
            Some((item, words)) => {
                let words = splice.range_of(words);
                splice.replace(words.start + 1..words.start + 1, &quoted[1..quoted.len() - 1]);
                move_ranges(&mut splice, item, |offset| offset.checked_add(envelope.len() as u64));
            }
            None => {
                let at = splice.range_of(self.input).start + 1;
                let comma = if self.items.is_empty() { "" } else { "," };
                splice.replace(at..at, format!("{{\"type\":\"text\",\"text\":{quoted}}}{comma}"));
            }
        }
        splice.apply()
    }

    /// The text in which the user's words begin, as written.
    pub(super) fn first_text(&self) -> Option<&'a RawValue> {
        self.said.first.as_ref().map(|(_, text)| *text)
    }

    /// The user's words.
    pub(in crate::engine) fn said_text(&self) -> &str {
        &self.said.text
    }

    /// The preview that codex derives for a thread that begins with this message.
    pub(super) fn preview(&self) -> String {
        match &*self.said.text {
            "" if self.said.has_image => IMAGE_PREVIEW.to_owned(),
            text => text.chars().take(WORDS_CHARS_MAX).collect(),
        }
    }
}

impl<'a> UserWords<'a> {
    fn of(items: &[&'a RawValue]) -> Option<UserWords<'a>> {
        let mut said = UserWords::default();
        let mut first_seen = false;
        for item in items {
            let item = Members::of(item)?;
            match item.text("type").as_deref() {
                Some("text") => {
                    let raw = item.get("text")?;
                    let words = text(raw)?;
                    said.text.push_str(&words);
                    // An empty text cannot be told apart from an injected item in the echo.
                    if !std::mem::replace(&mut first_seen, true) && !words.is_empty() {
                        said.first = Some((item, raw));
                    }
                }
                Some("image" | "localImage") => said.has_image = true,
                Some(_) | None => {}
            }
        }
        Some(said)
    }
}

/// Shifts the byte ranges of a text's elements.
pub(super) fn move_ranges(splice: &mut Splice<'_>, item: &Members<'_>, moved: impl Fn(u64) -> Option<u64>) {
    let Some(spans) = item.get("text_elements").and_then(elements) else { return };
    for span in spans.into_iter().filter_map(Members::of) {
        for range in BYTE_RANGES.iter().filter_map(|name| span.get(name)) {
            move_range(splice, range, &moved);
        }
    }
}

/// Shifts one range, an object with `start` and `end`.
pub(super) fn move_range(splice: &mut Splice<'_>, range: &RawValue, moved: impl Fn(u64) -> Option<u64>) {
    let Some(range) = Members::of(range) else { return };
    for end in ["start", "end"].iter().filter_map(|name| range.get(name)) {
        if let Some(to) = end.get().parse().ok().and_then(&moved) {
            splice.replace(splice.range_of(end), to.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::Provenance;
    use crate::wire::Body;

    fn command(cmd: &str, lines: &[&str]) -> Command {
        Command {
            cmd: cmd.to_owned(),
            exit_code: Some(0),
            cwd: Some("/w".to_owned()),
            block_id: None,
            ts: 5,
            preview: Preview { lines: lines.iter().map(|line| (*line).to_owned()).collect(), truncated: false },
            shell_id: None,
            provenance: Provenance::default(),
        }
    }

    fn envelope(commands: Vec<Command>) -> Envelope {
        Envelope {
            conversation_id: "t1".to_owned(),
            shell_id: None,
            total_commands_run: commands.len() as u64,
            commands,
            mcp: Vec::new(),
        }
    }

    fn bounds(envelope_bytes_max: usize) -> ContextBounds {
        ContextBounds { envelope_bytes_max, ..ContextBounds::default() }
    }

    #[test]
    fn the_bytes() {
        let mut shown = envelope(vec![command("echo \"$HOME\"\n", &["/hömé\u{1f}", "\t"])]);
        shown.total_commands_run = 3;
        shown.shell_id = Some(Label::Text("s".to_owned()));
        shown.mcp = vec!["pty_read_screen".to_owned()];
        assert_eq!(
            shown.render(),
            concat!(
                "\u{1e}CODEX_META {\"v\":1,\"type\":\"user_cmd_context\",\"conversation_id\":\"t1\",\"shell_id\":\"s\",",
                "\"total_commands_run\":3,\"kept\":1,\"dropped\":2,\"commands\":[{\"cmd\":\"echo \\\"\\u0024HOME\\\"\\n\",",
                "\"exit_code\":0,\"cwd\":\"/w\",\"block_id\":null,\"ts\":5,",
                "\"preview\":{\"lines\":[\"/hömé\\u001f\",\"\\t\"],\"truncated\":false}}],",
                "\"mcp\":[\"pty_read_screen\"]}\u{1f}"
            )
        );
    }

    #[test]
    fn codex_headings_are_escaped() {
        let mut shown =
            envelope(vec![command("# ## My request for Codex: x", &["### My request for Codex:", "## My"])]);
        shown.commands[0].cwd = Some(REQUEST_HEADING.to_owned());
        let text = shown.render();
        assert!(text.contains(r###""cmd":"# \u0023# My request for Codex: x""###), "{text}");
        assert!(text.contains(r###"["#\u0023# My request for Codex:","## My"]"###), "{text}");
        assert!(!text.contains(REQUEST_HEADING), "{text}");
        assert_eq!(Envelope::parse(&text), Some((shown.clone(), "")));
        let many = vec![REQUEST_HEADING.repeat(3); 20];
        shown.commands[0].preview.lines = many;
        let fitted = shown.fit(&bounds(700)).expect("it fits");
        assert!((600..=700).contains(&fitted.render().len()), "{}", fitted.render().len());
    }

    #[test]
    fn oldest_commands_are_dropped_first() {
        let commands: Vec<Command> = (0..12).map(|number| command(&number.to_string(), &[])).collect();
        let fitted = envelope(commands).fit(&ContextBounds::default()).expect("it fits");
        assert_eq!(fitted.commands.first().map(|command| &*command.cmd), Some("2"));
        assert!(fitted.render().contains("\"total_commands_run\":12,\"kept\":10,\"dropped\":2"));
    }

    #[test]
    fn oldest_previews_shrink_first() {
        let whole = envelope(vec![command("a", &["12345", "67890"]), command("b", &["abcde"])]);
        let bytes = whole.render().len();
        let fit = |less: usize| {
            let fitted = whole.clone().fit(&bounds(bytes - less)).expect("it fits");
            let preview = |command: &Command| format!("{:?}{}", command.preview.lines, command.preview.truncated);
            fitted.commands.iter().map(preview).collect::<Vec<_>>()
        };
        assert_eq!(fit(0), ["[\"12345\", \"67890\"]false", "[\"abcde\"]false"]);
        assert_eq!(fit(1), ["[\"2345\", \"67890\"]true", "[\"abcde\"]false"]);
        assert_eq!(fit(8), ["[\"67890\"]true", "[\"abcde\"]false"]);
        assert_eq!(fit(20), ["[]true", "[\"e\"]true"]);
        let last = whole.clone().fit(&bounds(bytes - 60)).expect("it fits");
        assert_eq!(last.commands.len(), 1);
        assert!(last.render().contains("\"total_commands_run\":2,\"kept\":1,\"dropped\":1"));
    }

    #[test]
    fn last_command_is_cut_but_never_dropped() {
        let alone = envelope(vec![command(&"$".repeat(1_024), &["x"])]);
        let fitted = alone.clone().fit(&ContextBounds::default()).expect("it fits");
        let left = fitted.commands[0].cmd.len();
        assert!((600..700).contains(&left), "{left}");
        assert!(fitted.render().len() <= 4_096 && fitted.render().len() > 4_080);
        assert!(alone.fit(&bounds(100)).is_none());
        assert!(envelope(Vec::new()).fit(&ContextBounds::default()).is_none());
    }

    #[test]
    fn foreign_text_is_not_an_envelope() {
        let text = envelope(vec![command("a", &[])]).render();
        assert!(Envelope::parse(&format!("x{text}")).is_none());
        assert!(Envelope::parse(text.trim_end_matches(MARKER_END)).is_none());
        assert!(Envelope::parse(&text.replace("\"v\":1", "\"v\":2")).is_none());
    }

    fn any_label() -> impl Strategy<Value = Option<Label>> {
        prop_oneof![
            Just(None),
            any::<i64>().prop_map(|number| Some(Label::Number(number))),
            ".{0,9}".prop_map(|text| Some(Label::Text(text))),
        ]
    }

    prop_compose! {
        fn any_command()(
            cmd in "(?s).{1,60}",
            exit_code in any::<Option<i64>>(),
            cwd in proptest::option::of("(?s).{0,30}"),
            block_id in any_label(),
            ts in any::<i64>(),
            lines in proptest::collection::vec("(?s).{0,40}", 0..8),
            truncated in any::<bool>(),
        ) -> Command {
            let (preview, provenance) = (Preview { lines, truncated }, Provenance::default());
            Command { cmd, exit_code, cwd, block_id, ts, preview, shell_id: None, provenance }
        }
    }

    prop_compose! {
        fn any_envelope()(
            conversation_id in "(?s).{0,20}",
            shell_id in any_label(),
            more in 0u64..20,
            commands in proptest::collection::vec(any_command(), 0..14),
            mcp in proptest::collection::vec("(?s).{0,9}", 0..3),
        ) -> Envelope {
            let total_commands_run = commands.len() as u64 + more;
            Envelope { conversation_id, shell_id, total_commands_run, commands, mcp }
        }
    }

    proptest! {
        #[test]
        fn rendered_envelope_parses_back(envelope in any_envelope(), words in "(?s).{0,20}") {
            let text = envelope.render() + &words;
            prop_assert_eq!(Envelope::parse(&text), Some((envelope, &*words)));
        }

        #[test]
        fn fitted_envelope_respects_bounds(envelope in any_envelope(), bytes_max in 0usize..3_000) {
            let fitted = envelope.clone().fit(&bounds(bytes_max));
            prop_assert_eq!(&fitted, &envelope.clone().fit(&bounds(bytes_max)));
            if let Some(fitted) = fitted {
                let text = fitted.render();
                prop_assert!(text.len() <= bytes_max && !fitted.commands.is_empty());
                let inside = &text[1..text.len() - 1];
                prop_assert!(!inside.contains(|char: char| char.is_control() || char == '$'));
                // Already fits.
                prop_assert_eq!(&fitted.clone().fit(&bounds(bytes_max)), &Some(fitted.clone()));
            } else {
                prop_assert!(envelope.commands.is_empty() || bytes_max < 1_000);
            }
        }
    }

    const JSON: &str = concat!(
        r#"{"v":1,"type":"user_cmd_context","conversation_id":"t","shell_id":null,"total_commands_run":1,"kept":1,"dropped":0,"#,
        r#""commands":[{"cmd":"make","exit_code":2,"cwd":"/w","block_id":null,"ts":5,"#,
        r#""preview":{"lines":["é [1]"],"truncated":false}}],"mcp":["pty_read_screen"]}"#
    );

    fn envelope_text() -> String {
        format!("{MARKER_START}{JSON}{MARKER_END}")
    }

    #[test]
    fn envelopes_are_known_by_their_json() {
        for json in [
            JSON.to_owned(),
            // A pusher that adds a member writes blanks; a later build may too.
            JSON.replacen("{\"v\"", "{\"by\":\"x\",\"v\"", 1),
            JSON.replace("\":", "\": "),
            JSON.replacen("\"v\":1", "\"v\":2", 1),
            r#"{"v":1,"type":"user_cmd_context","commands":[]}"#.to_owned(),
        ] {
            assert!(is_ours(&format!("{MARKER_START}{json}{MARKER_END}")), "{json}");
        }
        for json in [
            "",
            "hello",
            "{}",
            "[]",
            r#"{"v":1}"#,
            r#"{"v":1,"type":"note","commands":[]}"#,
            r#"{"v":0,"type":"user_cmd_context","commands":[]}"#,
            r#"{"v":1,"type":"user_cmd_context","commands":{}}"#,
            r#"{"v":1,"type":"user_cmd_context","commands":[]} and more"#,
            "{\"v\":1,\n\"type\":\"user_cmd_context\",\"commands\":[]}",
        ] {
            assert!(!is_ours(&format!("{MARKER_START}{json}{MARKER_END}")), "{json}");
        }
        assert!(!is_ours(&format!(" {}", envelope_text())) && !is_ours(&format!("{} ", envelope_text())));
    }

    #[test]
    fn any_envelope_prefix_counts_as_cut_off() {
        let text = envelope_text();
        for (at, _) in text.char_indices().skip(2) {
            for ellipsis in ["", "...", "…", " …"] {
                let cut = format!("{}{ellipsis}", &text[..at]);
                assert!(is_cut_off(&cut), "{cut}");
            }
        }
        for whole in
            [&*text, "\u{1e}", "\u{1e}x", "\u{1e}CODEX_METAL", "\u{1e}CODEX_META no end", "\u{1e}CODEX_META {}"]
        {
            assert!(!is_cut_off(whole), "{whole}");
        }
    }

    #[test]
    fn any_envelope_suffix_matches_in_snippet() {
        let text = &envelope_text()[..envelope_text().len() - 1];
        for (at, _) in text.char_indices().skip(1) {
            assert!(is_end_in_snippet(&format!("… {}", &text[at..])), "{}", &text[at..]);
        }
        for mine in ["", "}", "a[0]}", "see ]}", "{\"a\":[]}", "… a[0]}", "... what ", "my request:"] {
            assert!(!is_end_in_snippet(mine), "{mine}");
        }
    }

    #[test]
    fn preview_suffix_must_close_envelope_string() {
        let whole = [" x\"],\"truncated\":false}}],\"mcp\":[]}", " x\",\"exit_code\":0}],\"mcp\":[]}"];
        assert!(whole.iter().all(|end| is_end_of_ours(end)));
        for mine in ["a \"],\"mcp\":[]}", "],\"mcp\":[]}", "{}", "\"commands\":[],\"mcp\":[]}"] {
            assert!(!is_end_of_ours(mine), "{mine}");
        }
    }

    const ENVELOPE: &str = "\u{1e}é\"\u{1f}";
    const QUOTED: &str = r#"\u001eé\"\u001f"#;

    fn injected(line: &str) -> Option<String> {
        let Body::Message(message) = Body::parse(line.as_bytes()) else { panic!("{line}: no message") };
        let changed = TurnStart::read(line.as_bytes(), &message)?.with_envelope(ENVELOPE)?;
        Some(String::from_utf8(changed).expect("BUG: a splice of UTF-8 is UTF-8"))
    }

    fn turn(input: &str) -> String {
        format!(r#"{{"id":1,"method":"turn/start","params":{{"threadId":"t","input":{input}}}}}"#)
    }

    /// `@` in `expect` stands for the envelope.
    fn check(input: &str, expect: &str) {
        assert_eq!(injected(&turn(input)).as_deref(), Some(&*turn(&expect.replace('@', QUOTED))), "{input}");
    }

    #[test]
    fn envelope_precedes_first_text() {
        check(r#"[{"type":"text","text":"hi"}]"#, r#"[{"type":"text","text":"@hi"}]"#);
        check(
            r#"[ {"url":"x","type":"image"} , { "text" : "\"\u00e9" , "type" : "text" }, {"type":"text","text":"b"} ]"#,
            r#"[ {"url":"x","type":"image"} , { "text" : "@\"\u00e9" , "type" : "text" }, {"type":"text","text":"b"} ]"#,
        );
    }

    #[test]
    fn envelope_becomes_item_if_no_text() {
        check("[]", r#"[{"type":"text","text":"@"}]"#);
        check(r#"[{"type":"image","url":"x"}]"#, r#"[{"type":"text","text":"@"},{"type":"image","url":"x"}]"#);
        check(
            r#"[{"type":"text","text":""},{"type":"text","text":"b"}]"#,
            r#"[{"type":"text","text":"@"},{"type":"text","text":""},{"type":"text","text":"b"}]"#,
        );
    }

    #[test]
    fn ranges_shift_by_envelope_bytes() {
        check(
            r#"[{"type":"text","text":"ä hi","text_elements":[{"byteRange":{"start":0,"end": 5},"placeholder":null},{"x":1}]}]"#,
            r#"[{"type":"text","text":"@ä hi","text_elements":[{"byteRange":{"start":5,"end": 10},"placeholder":null},{"x":1}]}]"#,
        );
        check(
            r#"[{"text_elements":[{"byteRange":{"start":-1,"end":1.5}}],"type":"text","text":"x"}]"#,
            r#"[{"text_elements":[{"byteRange":{"start":-1,"end":1.5}}],"type":"text","text":"@x"}]"#,
        );
    }

    #[test]
    fn members_come_in_any_order_escaped_and_twice() {
        let line = r#"{"p\u0061rams":{"inp\u0075t":[{"te\u0078t":"a","type":"te\u0078t"}],"thread\u0049d":"t"},"method":"turn\/start","id":1}"#;
        let expect = line.replace("\"a\"", &format!("\"{QUOTED}a\""));
        assert_eq!(injected(line), Some(expect));
        check(r#"[{"type":"text","text":"a","text":"b"}]"#, r#"[{"type":"text","text":"a","text":"@b"}]"#);
        check(
            r#"[],"input":[{"type":"image","type":"text","text":"b"}]"#,
            r#"[],"input":[{"type":"image","type":"text","text":"@b"}]"#,
        );
    }

    #[test]
    fn text_with_leading_marker_is_ordinary() {
        check(
            r#"[{"type":"text","text":"\u001eCODEX_META {}\u001fx"}]"#,
            r#"[{"type":"text","text":"@\u001eCODEX_META {}\u001fx"}]"#,
        );
    }

    #[test]
    fn invalid_turns_are_left_unchanged() {
        for input in ["7", r#"["x"]"#, r#"[{"type":"text"}]"#, r#"[{"type":"text","text":7}]"#] {
            assert_eq!(injected(&turn(input)), None, "{input}");
        }
        assert_eq!(injected(&turn(r#"[{"type":"text","text":"\ud800"}]"#)), None);
        assert_eq!(injected(r#"{"id":1,"method":"turn/start","params":{"input":[]}}"#), None);
        assert_eq!(injected(&turn("[]").replace("\"id\":1", "\"id\":1,\"id\":2")), None);
    }

    #[test]
    fn overlong_turns_are_left_unchanged() {
        let room = TURN_CHARS_MAX - ENVELOPE.chars().count();
        let long = |chars: usize| turn(&format!(r#"[{{"type":"text","text":"{}"}}]"#, "ä".repeat(chars)));
        assert!(injected(&long(room)).is_some());
        assert_eq!(injected(&long(room + 1)), None);
    }
}
