//! The texts below an action of a transcript: what a command printed, the diffs of a change, the input and result of a tool.

use std::borrow::Cow;

use serde_json::Value;

use crate::engine::terminal::remains_of;
use crate::engine::without_shell;
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
pub(super) enum Kind {
    Command,
    Output,
    /// The text of a change; [`lines_of`] has its lines.
    Diff(Form),
    Json,
}

/// A text below an action: an output as it stood on the screen in the end, all others as they were written.
#[derive(Debug)]
pub(super) struct Below<'a> {
    pub(super) kind: Kind,
    /// May be empty.
    pub(super) title: String,
    /// A note about missing text.
    pub(super) missing: Option<String>,
    pub(super) text: Cow<'a, str>,
}

/// The texts below an entry.
pub(super) fn below<'a>(entry: &'a Value, detail: &Detail) -> Vec<Below<'a>> {
    let text = |name: &str| entry[name].as_str().unwrap_or_default();
    let mut all = Vec::new();
    if detail.more != More::None && entry["role"] == "command" {
        let command = without_shell(text("command"));
        let is_long = command.trim_end().contains('\n');
        let command = Cow::Owned(command);
        all.extend(is_long.then_some(Below {
            kind: Kind::Command,
            title: String::new(),
            missing: None,
            text: command,
        }));
    }
    if detail.more == More::All && entry["role"] == "tool" {
        all.extend(["arguments", "result", "details"].into_iter().filter_map(|name| json_below(entry, name)));
    }
    all.extend(output(entry, detail));
    if detail.has_diffs {
        for change in FileChange::all(&entry["changes"]) {
            let (kind, title) = (Kind::Diff(change.form()), change.path.unwrap_or("a file").to_owned());
            all.extend(change.diff.map(|diff| Below { kind, title, missing: None, text: diff.into() }));
        }
        if entry["role"] == "diff" {
            let kind = Kind::Diff(Form::Turn);
            all.push(Below { kind, title: String::new(), missing: None, text: text("text").into() });
        }
    }
    all
}

/// The lines of a text, and what they are in a diff.
pub(super) fn lines_of<'a>(below: &'a Below<'_>) -> Vec<(LineKind, Cow<'a, str>)> {
    match below.kind {
        Kind::Diff(form) => change::shown(form, &below.text).collect(),
        Kind::Command | Kind::Output | Kind::Json => {
            below.text.lines().map(|line| (LineKind::Outside, Cow::Borrowed(line))).collect()
        }
    }
}

fn output<'a>(entry: &'a Value, detail: &Detail) -> Option<Below<'a>> {
    let text = remains_of(entry["output"].as_str()?);
    if text.is_empty() {
        return None;
    }
    let lines = text.lines().count();
    let hidden = detail.output_lines_max.map_or(0, |lines_max| lines.saturating_sub(lines_max));
    let from = text.match_indices('\n').nth(hidden.wrapping_sub(1)).map_or(0, |(at, _)| at + 1);
    let cut = entry["output_truncated_by_bytes"].as_u64().filter(|_| detail.more != More::None);
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
    Some(Below { kind: Kind::Output, title: String::new(), missing, text })
}

fn json_below<'a>(entry: &'a Value, name: &str) -> Option<Below<'a>> {
    let value = entry.get(name).filter(|value| !value.is_null())?;
    let (value, missing) = match value["truncated_by_bytes"].as_u64() {
        Some(cut) => (&value["tail"], Some(not_found(cut))),
        None => (value, None),
    };
    let text = match value.as_str() {
        Some(text) => Cow::Borrowed(text),
        None => Cow::Owned(serde_json::to_string_pretty(value).expect("BUG: plain data is JSON")),
    };
    Some(Below { kind: Kind::Json, title: name.to_owned(), missing, text })
}

fn not_found(cut_bytes: u64) -> String {
    format!("… {cut_bytes} bytes before this are no longer on record")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(entry: &Value, detail: Detail, expect: &[(Kind, &str, Option<&str>, &str)]) {
        let all = below(entry, &detail);
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
        check(&entry, BRIEF, &[(Kind::Output, "", Some("… 1 more above"), "2\n3\n")]);
        let notes = Detail { output_lines_max: Some(3), ..NOTES };
        let cut = "… 9 bytes before this are not shown";
        check(&entry, notes, &[(Kind::Command, "", None, "a\nb"), (Kind::Output, "", Some(cut), "1\n2\n3\n")]);
        let lost = "… 9 bytes before this are no longer on record";
        check(&entry, ALL, &[(Kind::Command, "", None, "a\nb"), (Kind::Output, "", Some(lost), "1\n2\n3\n")]);
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
            check(&json!({"role": "command", "output": output}), BRIEF, &[(Kind::Output, "", None, expect)]);
        }
    }

    #[test]
    fn diffs_and_inputs_are_shown_on_request() {
        let entry =
            json!({"role": "file_change", "changes": [{"path": "/a", "diff": "+x"}, {"path": "/b", "diff": ""}]});
        check(&entry, NOTES, &[]);
        let of_files = [(Kind::Diff(Form::Updated), "/a", None, "+x"), (Kind::Diff(Form::Updated), "/b", None, "")];
        check(&entry, ALL, &of_files);
        let entry = json!({"role": "tool", "arguments": {"a": 1}, "result": {"truncated_by_bytes": 3, "tail": "x"}});
        check(&entry, NOTES, &[]);
        let lost = "… 3 bytes before this are no longer on record";
        check(
            &entry,
            ALL,
            &[(Kind::Json, "arguments", None, "{\n  \"a\": 1\n}"), (Kind::Json, "result", Some(lost), "x")],
        );
    }
}
