//! A line of an audit file, as JSON and as CSV, and the chain that joins the lines.
//!
//! The JSON text is the canonical form: the members of [`COLUMNS`] in that order, without blanks, and without the ones that a line
//! does not have. `hash` is the last member: the SHA-256 of the line without it. `prev` is the hash of the line before. A row of a
//! CSV file has the hashes of the JSON line with the same members.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

/// How a member is written in JSON. In CSV, each is text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemberForm {
    Text,
    /// A number, a truth value, an array or an object.
    Json,
}

/// All members, in order.
pub(super) const COLUMNS: [(&str, MemberForm); 42] = [
    ("line", MemberForm::Json),
    ("kind", MemberForm::Text),
    ("at", MemberForm::Text),
    ("session", MemberForm::Text),
    ("folder", MemberForm::Text),
    ("client", MemberForm::Text),
    ("generation", MemberForm::Text),
    ("request", MemberForm::Text),
    ("thread", MemberForm::Text),
    ("thread_name", MemberForm::Text),
    ("thread_folder", MemberForm::Text),
    ("thread_title", MemberForm::Text),
    ("thread_kind", MemberForm::Text),
    ("turn", MemberForm::Text),
    ("item", MemberForm::Text),
    ("type", MemberForm::Text),
    ("method", MemberForm::Text),
    ("summary", MemberForm::Text),
    ("command", MemberForm::Text),
    ("cwd", MemberForm::Text),
    ("reason", MemberForm::Text),
    ("files", MemberForm::Json),
    ("expires_at", MemberForm::Text),
    ("answer_id", MemberForm::Json),
    ("source", MemberForm::Text),
    ("by", MemberForm::Text),
    ("uid", MemberForm::Json),
    ("pid", MemberForm::Json),
    ("rule", MemberForm::Text),
    ("won", MemberForm::Json),
    ("answer", MemberForm::Json),
    ("status", MemberForm::Text),
    ("error_code", MemberForm::Text),
    ("error", MemberForm::Text),
    ("format", MemberForm::Json),
    ("since", MemberForm::Text),
    ("until", MemberForm::Text),
    ("only_session", MemberForm::Text),
    ("sessions", MemberForm::Json),
    ("unreadable", MemberForm::Json),
    ("prev", MemberForm::Text),
    ("hash", MemberForm::Text),
];

/// Members that files of older versions lack.
const ADDED: [&str; 4] = ["thread_name", "thread_folder", "thread_title", "thread_kind"];

/// The columns of a CSV file by the cells of its first row; `None` if it is not a file of this program.
pub(super) fn columns_of(first_row: &[String]) -> Option<Vec<&'static str>> {
    let all: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let before: Vec<&str> = all.iter().copied().filter(|name| !ADDED.contains(name)).collect();
    [all, before].into_iter().find(|columns| columns.iter().eq(first_row))
}

/// Kinds of lines besides those of ledger entries.
pub(super) const HEADER: &str = "header";
pub(super) const FOOTER: &str = "footer";

/// The format of the file.
pub(super) const FORMAT: u64 = 1;

/// The `prev` of the first line.
pub(super) const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A line. Missing members are `None`; a present member is never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AuditLine([Option<String>; COLUMNS.len()]);

impl AuditLine {
    pub(super) fn new(kind: &str, at: &str) -> AuditLine {
        let mut line = AuditLine(std::array::from_fn(|_| None));
        line.set("kind", Some(kind.to_owned()));
        line.set("at", Some(at.to_owned()));
        line
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0[column(name)].as_deref()
    }

    /// Sets a member: text, or JSON if that is its form.
    pub(super) fn set(&mut self, name: &str, value: Option<String>) {
        self.0[column(name)] = value.filter(|value| !value.is_empty());
    }

    pub(super) fn set_number(&mut self, name: &str, value: Option<u64>) {
        self.set(name, value.map(|value| value.to_string()));
    }

    /// The cells of a row of CSV.
    pub(super) fn cells(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|cell| cell.as_deref().unwrap_or_default())
    }

    /// The line of a row of CSV in a file with these columns.
    pub(super) fn of_cells(columns: &[&str], cells: Vec<String>) -> Result<AuditLine, String> {
        if cells.len() != columns.len() {
            return Err(format!("it has {} cells instead of {}", cells.len(), columns.len()));
        }
        let mut line = AuditLine(std::array::from_fn(|_| None));
        columns.iter().zip(cells).for_each(|(name, cell)| line.set(name, Some(cell)));
        for (name, form) in COLUMNS {
            let is_json = |text: &str| serde_json::from_str::<&RawValue>(text).is_ok_and(|raw| raw.get() == text);
            if form == MemberForm::Json && !line.get(name).is_none_or(is_json) {
                return Err(format!("its `{name}` is not valid JSON"));
            }
        }
        Ok(line)
    }

    /// The line of its JSON text, which has to be in the canonical form.
    pub(super) fn of_json(text: &str) -> Result<AuditLine, String> {
        let members: BTreeMap<&str, &RawValue> =
            serde_json::from_str(text).map_err(|_| "it is not a line of an audit file".to_owned())?;
        let mut line = AuditLine(std::array::from_fn(|_| None));
        for (name, form) in COLUMNS {
            let Some(raw) = members.get(name) else { continue };
            let value = match form {
                MemberForm::Json => Ok(raw.get().to_owned()),
                MemberForm::Text => serde_json::from_str(raw.get()),
            };
            line.set(name, Some(value.map_err(|_| format!("its `{name}` is not text"))?));
        }
        if line.json() != text {
            return Err("it is not in the canonical form".to_owned());
        }
        Ok(line)
    }

    /// The JSON text, the canonical form.
    pub(super) fn json(&self) -> String {
        self.first_members(COLUMNS.len())
    }

    /// The JSON text of the members in the first columns.
    fn first_members(&self, columns: usize) -> String {
        let mut text = String::from("{");
        for ((name, form), value) in COLUMNS.iter().zip(&self.0).take(columns) {
            let Some(value) = value else { continue };
            if text.len() > 1 {
                text.push(',');
            }
            text.extend(["\"", *name, "\":"]);
            match form {
                MemberForm::Json => text.push_str(value),
                MemberForm::Text => text.push_str(&Value::from(value.as_str()).to_string()),
            }
        }
        text.push('}');
        text
    }

    /// The correct value of `hash`.
    pub(super) fn computed_hash(&self) -> String {
        // The hash is the last member.
        hex(&Sha256::digest(self.first_members(COLUMNS.len() - 1)))
    }

    /// Makes it the line with this number behind the line with the hash `prev`.
    pub(super) fn chain(&mut self, number: u64, prev: &str) {
        self.set_number("line", Some(number));
        self.set("prev", Some(prev.to_owned()));
        let hash = self.computed_hash();
        self.set("hash", Some(hash));
    }
}

fn column(name: &str) -> usize {
    COLUMNS.iter().position(|(column, _)| *column == name).expect("BUG: only names of columns are used")
}

fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).expect("BUG: four bits are a digit");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> AuditLine {
        let mut line = AuditLine::new("answer", "2026-01-02T03:04:05.678Z");
        line.set("answer", Some(r#"{"decision": "accept"}"#.to_owned()));
        line.set("summary", Some("a \"b\"\n\u{202e}\u{7f}é".to_owned()));
        line.set("by", Some(String::new()));
        line.set_number("uid", Some(1_000));
        line
    }

    #[test]
    fn canonical_form_is_ordered_and_without_blanks() {
        let mut line = line();
        line.chain(7, NO_HASH);
        let text = line.json();
        let expect = format!(
            "{{\"line\":7,\"kind\":\"answer\",\"at\":\"2026-01-02T03:04:05.678Z\",\"summary\":\"a \\\"b\\\"\\n\u{202e}\u{7f}é\",\
             \"uid\":1000,\"answer\":{{\"decision\": \"accept\"}},\"prev\":\"{NO_HASH}\",\"hash\":\"{}\"}}",
            line.get("hash").expect("it is chained")
        );
        assert_eq!(text, expect);
        let (before, hash) = text.rsplit_once(",\"hash\":").expect("it is the last");
        assert_eq!(hash, format!("\"{}\"}}", hex(&Sha256::digest(format!("{before}}}")))));
    }

    #[test]
    fn both_forms_are_read_as_they_were_written() {
        let mut line = line();
        line.chain(7, NO_HASH);
        assert_eq!(AuditLine::of_json(&line.json()).as_ref(), Ok(&line));
        let all: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
        let cells: Vec<String> = line.cells().map(str::to_owned).collect();
        assert_eq!(AuditLine::of_cells(&all, cells.clone()).as_ref(), Ok(&line));
        assert_eq!(line.computed_hash(), line.get("hash").expect("it is chained"));
        // A file of an older version has fewer columns.
        let is_old = |column: &usize| !ADDED.contains(&all[*column]);
        let old = |of: &[String]| (0..all.len()).filter(is_old).map(|column| of[column].clone()).collect::<Vec<_>>();
        let names = all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(columns_of(&names).as_ref(), Some(&all));
        let columns = columns_of(&old(&names)).expect("an older file");
        assert_eq!(AuditLine::of_cells(&columns, old(&cells)).as_ref(), Ok(&line));
        assert_eq!(columns_of(&names[1..]), None);
    }

    #[test]
    fn other_texts_are_refused() {
        let check = |text: &str, why: &str| assert_eq!(AuditLine::of_json(text), Err(why.to_owned()), "{text}");
        check("", "it is not a line of an audit file");
        check("[]", "it is not a line of an audit file");
        check(r#"{"kind":"a", "at":"b"}"#, "it is not in the canonical form");
        check(r#"{"at":"b","kind":"a"}"#, "it is not in the canonical form");
        check(r#"{"kind":"a","at":"b","x":1}"#, "it is not in the canonical form");
        check(r#"{"kind":"a","kind":"a"}"#, "it is not in the canonical form");
        check(r#"{"kind":7}"#, "its `kind` is not text");
        check(r#"{"kind":"\u0061"}"#, "it is not in the canonical form");
        assert!(AuditLine::of_cells(&["line", "kind"], vec![String::new()]).is_err());
        let cells = vec!["7}".to_owned()];
        assert_eq!(AuditLine::of_cells(&["line"], cells), Err("its `line` is not valid JSON".to_owned()));
    }
}
