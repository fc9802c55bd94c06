//! The texts below an action of a transcript: what a command printed, the diffs of a change, the input and result of a tool.

use std::borrow::Cow;

use serde_json::Value;

use crate::api::{Content, Entry, ItemDocument};
use crate::engine::terminal::remains_of;
use crate::engine::without_shell;
use crate::history::cut_value;
use crate::protocol::change::{self, FileChange, Form, LineKind};

/// The amount of detail below an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Detail {
    /// Lines shown from the end of an output; `None` shows all.
    pub(super) output_lines_max: Option<usize>,
    /// Prints diffs.
    pub(super) has_diffs: bool,
    /// Further texts.
    pub(super) more: More,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum More {
    /// Nothing: the text for a terminal.
    None,
    /// Commands of several lines, and where an output was cut.
    Notes,
    /// Also the input and the result of a tool; whole outputs were read from the journal.
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextKind {
    Command,
    Output,
    /// The text of a change; [`lines_of`] has its lines.
    Diff(Form),
    Json,
}

/// A text below an action: an output as it stood on the screen in the end, all others as they were written.
#[derive(Debug)]
pub(super) struct Below<'a> {
    pub(super) kind: TextKind,
    /// May be empty.
    pub(super) title: String,
    /// A note about missing text.
    pub(super) missing: Option<String>,
    pub(super) text: Cow<'a, str>,
}

/// The texts below an entry.
pub(super) fn below<'a>(entry: &'a Entry<'_>, detail: &Detail) -> Vec<Below<'a>> {
    let below = |kind, title: &str, text| Below { kind, title: title.to_owned(), missing: None, text };
    let mut all = Vec::new();
    match &entry.content {
        Content::Command(item) if detail.more != More::None => {
            let command = without_shell(item.command.as_deref().unwrap_or_default());
            let is_long = command.trim_end().contains('\n');
            all.extend(is_long.then(|| below(TextKind::Command, "", command.into())));
        }
        Content::Tool(item) if detail.more == More::All => {
            let members = [("arguments", &item.arguments), ("result", &item.result), ("details", &item.details)];
            all.extend(members.into_iter().filter_map(|(name, value)| Some(json_below(name, value.as_ref()?))));
        }
        Content::Diff(diff) if detail.has_diffs => {
            all.push(below(TextKind::Diff(Form::Turn), "", (&*diff.text).into()))
        }
        Content::User(_)
        | Content::Assistant(_)
        | Content::Reasoning(_)
        | Content::Plan(_)
        | Content::Command(_)
        | Content::FileChange(_)
        | Content::Tool(_)
        | Content::Diff(_)
        | Content::Approval(_)
        | Content::Status(_)
        | Content::Error(_)
        | Content::Usage(_)
        | Content::Compaction
        | Content::Other(_) => {}
    }
    let Some(item) = entry.content.item() else { return all };
    all.extend(output(item, detail));
    for change in item.changes.iter().filter(|_| detail.has_diffs).flat_map(FileChange::all) {
        let (kind, title) = (TextKind::Diff(change.form()), change.path.unwrap_or("a file"));
        all.extend(change.diff.map(|diff| below(kind, title, diff.into())));
    }
    all
}

/// The lines of a text, and what they are in a diff.
pub(super) fn lines_of<'a>(below: &'a Below<'_>) -> Vec<(LineKind, Cow<'a, str>)> {
    match below.kind {
        TextKind::Diff(form) => change::shown(form, &below.text).collect(),
        TextKind::Command | TextKind::Output | TextKind::Json => {
            below.text.lines().map(|line| (LineKind::Outside, Cow::Borrowed(line))).collect()
        }
    }
}

fn output<'a>(item: &'a ItemDocument, detail: &Detail) -> Option<Below<'a>> {
    let text = remains_of(item.output.as_deref()?);
    if text.is_empty() {
        return None;
    }
    let lines = text.lines().count();
    let hidden = detail.output_lines_max.map_or(0, |lines_max| lines.saturating_sub(lines_max));
    let from = text.match_indices('\n').nth(hidden.wrapping_sub(1)).map_or(0, |(at, _)| at + 1);
    let cut = item.output_truncated_by_bytes.filter(|_| detail.more != More::None);
    let missing = match (hidden, cut) {
        (0, None) => None,
        (0, Some(cut)) if detail.more == More::All => Some(not_found(cut)),
        (0, Some(cut)) => Some(format!("… {cut} bytes before this are not shown")),
        (_, _) => Some(format!("… {hidden} more above")),
    };
    let text = match text {
        Cow::Borrowed(text) => text[from..].into(),
        Cow::Owned(text) => text[from..].to_owned().into(),
    };
    Some(Below { kind: TextKind::Output, title: String::new(), missing, text })
}

fn json_below<'a>(name: &str, value: &'a Value) -> Below<'a> {
    let (text, missing) = match (cut_value(value), value.as_str()) {
        (Some((cut_bytes, tail)), _) => (tail.into(), Some(not_found(cut_bytes))),
        (None, Some(text)) => (text.into(), None),
        (None, None) => (serde_json::to_string_pretty(value).expect("BUG: plain data is JSON").into(), None),
    };
    Below { kind: TextKind::Json, title: name.to_owned(), missing, text }
}

fn not_found(cut_bytes: u64) -> String {
    format!("… {cut_bytes} bytes before this are no longer on record")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(entry: &Value, detail: Detail, expect: &[(TextKind, &str, Option<&str>, &str)]) {
        let json = entry.to_string();
        let read = Entry::read(&json).expect("BUG: a test gives entries");
        let all = below(&read, &detail);
        let told = |below: &Below<'_>| {
            (below.kind, below.title.clone(), below.missing.clone(), below.text.clone().into_owned())
        };
        let expect: Vec<_> = expect
            .iter()
            .map(|(kind, title, missing, text)| {
                (*kind, (*title).to_owned(), missing.map(str::to_owned), (*text).to_owned())
            })
            .collect();
        assert_eq!(all.iter().map(told).collect::<Vec<_>>(), expect, "{entry}");
    }

    const BRIEF: Detail = Detail { output_lines_max: Some(2), has_diffs: false, more: More::None };
    const NOTES: Detail = Detail { more: More::Notes, ..BRIEF };
    const ALL: Detail = Detail { output_lines_max: None, has_diffs: true, more: More::All };

    #[test]
    fn outputs_are_cut_to_their_last_lines() {
        let entry =
            json!({"role": "command", "command": "a\nb", "output": "1\n2\n3\n", "output_truncated_by_bytes": 9});
        check(&entry, BRIEF, &[(TextKind::Output, "", Some("… 1 more above"), "2\n3\n")]);
        let notes = Detail { output_lines_max: Some(3), ..NOTES };
        let cut = "… 9 bytes before this are not shown";
        check(&entry, notes, &[(TextKind::Command, "", None, "a\nb"), (TextKind::Output, "", Some(cut), "1\n2\n3\n")]);
        let lost = "… 9 bytes before this are no longer on record";
        check(&entry, ALL, &[(TextKind::Command, "", None, "a\nb"), (TextKind::Output, "", Some(lost), "1\n2\n3\n")]);
        check(&json!({"role": "command", "output": ""}), ALL, &[]);
    }

    /// A line that was drawn over does not count, and is not shown.
    #[test]
    fn outputs_are_as_they_stood_on_the_screen() {
        for (output, expect) in [
            ("10%\r50%\r100%\r\nok\r\n", "100%\nok\n"),
            ("a 1\nb 1\n\u{1b}[2A\u{1b}[2Ka 2\n\u{1b}[2Kb 2\n", "a 2\nb 2\n"),
            ("one two\u{8}\u{8}\u{8}six\n", "one six\n"),
            ("x\ty \n", "x\ty \n"),
        ] {
            check(&json!({"role": "command", "output": output}), BRIEF, &[(TextKind::Output, "", None, expect)]);
        }
    }

    #[test]
    fn diffs_and_inputs_are_shown_on_request() {
        let entry =
            json!({"role": "file_change", "changes": [{"path": "/a", "diff": "+x"}, {"path": "/b", "diff": ""}]});
        check(&entry, NOTES, &[]);
        let of_files =
            [(TextKind::Diff(Form::Updated), "/a", None, "+x"), (TextKind::Diff(Form::Updated), "/b", None, "")];
        check(&entry, ALL, &of_files);
        let entry = json!({"role": "tool", "arguments": {"a": 1}, "result": {"truncated_by_bytes": 3, "tail": "x"}});
        check(&entry, NOTES, &[]);
        let lost = "… 3 bytes before this are no longer on record";
        check(
            &entry,
            ALL,
            &[(TextKind::Json, "arguments", None, "{\n  \"a\": 1\n}"), (TextKind::Json, "result", Some(lost), "x")],
        );
    }
}
