//! The recorded changes of files, each with the prompt and the decision before it.

use rusqlite::{OptionalExtension as _, Row, params};

use super::query::{History, HistoryError};
use super::search::{self, unfilled_to};
use crate::history::{ApprovalDocument, Content, Entry, SearchKind, kind_for_index};

/// All changes by the search index.
const BY_KIND: &str = "
    SELECT e.id, e.thread_id, e.entry FROM codex_search AS f
    CROSS JOIN codex_search_entries AS s ON s.at = f.rowid
    CROSS JOIN codex_transcript_entries AS e ON e.id = s.entry_id
    WHERE f.codex_search MATCH ?1";

const ONE: &str = "SELECT entry FROM codex_transcript_entries WHERE id = ?1";

const BEFORE: &str = "
    SELECT entry FROM codex_transcript_entries WHERE thread_id = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3";

/// Entries of a turn that are looked through for its prompt.
const BEFORE_MAX: i64 = 10_000;

/// Another run of an old server may use the ids of turns again.
const TURN: &str = "
    SELECT client, model FROM codex_usage_turns WHERE thread_id = ?1 AND turn_id = ?2
    ORDER BY began_us <= ?3 DESC, began_us DESC LIMIT 1";

/// The place of a change in the history.
#[derive(Debug, Clone, Copy)]
pub struct ChangePlace<'a> {
    pub entry_id: u64,
    pub thread_id: &'a str,
    pub turn_id: Option<&'a str>,
    pub item_id: Option<&'a str>,
    pub at_us: u64,
}

/// The facts of a history about a change, besides the change itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChangeContext {
    /// The last message of the user in its turn.
    pub prompt: Option<String>,
    /// The last decision about its item, and the time of that.
    pub approval: Option<(String, ApprovalDocument<'static>)>,
    /// The client that started its turn, and the model of it.
    pub client: Option<String>,
    pub model: Option<String>,
}

impl History {
    /// Passes each entry that changes files to `take`, with its number and its thread. In no order.
    pub fn file_changes(&self, mut take: impl FnMut(u64, &str, &str)) -> Result<(), HistoryError> {
        self.read(0, |connection| {
            let transaction = connection.unchecked_transaction()?;
            let mut pass = |row: &Row<'_>| {
                let entry = row.get_ref(2)?.as_str()?;
                if has_role(entry, "file_change") {
                    take(row.get::<_, i64>(0)?.unsigned_abs(), row.get_ref(1)?.as_str()?, entry);
                }
                Ok(true)
            };
            let unfilled_to = unfilled_to(&transaction)?;
            if unfilled_to < i64::MAX {
                search::each(&transaction, BY_KIND, [kind_for_index(SearchKind::Diff)], &mut pass)?;
            }
            match unfilled_to {
                0 => Ok(()),
                to => search::each(&transaction, search::UNFILLED, [to, -1], &mut pass),
            }
        })
    }

    /// The entry with this number; `None` if it is gone.
    pub fn transcript_entry(&self, entry_id: u64) -> Result<Option<String>, HistoryError> {
        self.read(0, |connection| {
            connection.prepare_cached(ONE)?.query_row([entry_id as i64], |row| row.get(0)).optional()
        })
    }

    /// The prompt and the decision before a change.
    pub fn change_context(&self, place: ChangePlace<'_>) -> Result<ChangeContext, HistoryError> {
        self.read(0, |connection| {
            let mut context = ChangeContext::default();
            let mut select = connection.prepare_cached(BEFORE)?;
            let mut rows = select.query(params![place.thread_id, place.entry_id as i64, BEFORE_MAX])?;
            while let Some(row) = rows.next()? {
                let entry = row.get_ref(0)?.as_str()?;
                if has_role(entry, "approval") {
                    context.approval = context.approval.take().or_else(|| approval_of(entry, place.item_id));
                } else if has_role(entry, "user") {
                    context.prompt = prompt_of(entry, place.turn_id);
                    break;
                }
            }
            // A history of an older version does not have it.
            if let Some(turn_id) = place.turn_id
                && connection.table_exists(None, "codex_usage_turns")?
            {
                let of_turn = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
                let values = params![place.thread_id, turn_id, place.at_us as i64];
                let found = connection.prepare_cached(TURN)?.query_row(values, of_turn).optional()?;
                (context.client, context.model) = found.unwrap_or_default();
            }
            Ok(context)
        })
    }
}

/// Whether an entry has this role, which stands at its beginning. One that was written otherwise is read.
fn has_role(entry: &str, role: &str) -> bool {
    let written = entry.strip_prefix(r#"{"ts":""#).and_then(|rest| rest.split_once(r#"","role":""#));
    match written.filter(|(at, _)| !at.contains('"')).and_then(|(_, rest)| rest.split_once('"')) {
        Some((written, _)) => written == role,
        None => Entry::read(entry).is_some_and(|entry| entry.content.role() == role),
    }
}

fn approval_of(entry: &str, item_id: Option<&str>) -> Option<(String, ApprovalDocument<'static>)> {
    let entry = Entry::read(entry).filter(|entry| entry.item_id.is_some() && entry.item_id.as_deref() == item_id)?;
    let Content::Approval(approval) = entry.content else { return None };
    Some((entry.ts.into_owned(), approval))
}

fn prompt_of(entry: &str, turn_id: Option<&str>) -> Option<String> {
    let entry = Entry::read(entry).filter(|entry| entry.turn_id.is_some() && entry.turn_id.as_deref() == turn_id)?;
    let Content::User(said) = entry.content else { return None };
    said.text.map(|text| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::super::tests::Lab;
    use super::*;

    fn of_server(at_us: u64, method: &str, params: &str) -> String {
        format!(r#"{{"at":{at_us},"from":"server","line":{{"method":"{method}","params":{params}}}}}"#)
    }

    fn item(at_us: u64, turn: &str, members: &str) -> String {
        of_server(at_us, "item/completed", &format!(r#"{{"threadId":"t","turnId":"{turn}","item":{{{members}}}}}"#))
    }

    fn said(at_us: u64, turn: &str, text: &str) -> String {
        let content = format!(r#""content":[{{"type":"text","text":"{text}"}}]"#);
        item(at_us, turn, &format!(r#""type":"userMessage","id":"{text}",{content}"#))
    }

    fn changed(at_us: u64, turn: &str, id: &str) -> String {
        let changes = r#"[{"path":"/w/a","kind":{"type":"add"},"diff":"role\n"}]"#;
        item(at_us, turn, &format!(r#""type":"fileChange","id":"{id}","status":"completed","changes":{changes}"#))
    }

    #[test]
    fn changes_are_found_with_what_was_said() {
        let lab = Lab::new();
        lab.append(
            1,
            1,
            &[
                said(1, "u", "first"),
                changed(2, "u", "c1"),
                said(3, "v", "second"),
                said(4, "v", "and more"),
                item(5, "v", r#""type":"agentMessage","id":"m","text":"{\"role\":\"user\"}""#),
                changed(6, "v", "c2"),
                changed(7, "w", "c3"),
            ],
        );
        lab.catch_up();
        let history = History::new(&lab.history());
        let mut found: Vec<(u64, String)> = Vec::new();
        history
            .file_changes(|id, thread, entry| found.push((id, format!("{thread} {entry}"))))
            .expect("it can be read");
        found.sort();
        assert_eq!(found.len(), 3, "{found:?}");
        let prompts = found.iter().zip(["u", "v", "w"]).map(|((entry_id, entry), turn_id)| {
            assert!(entry.starts_with("t {") && entry.contains("file_change"), "{entry}");
            let (turn_id, item_id) = (Some(turn_id), Some("c"));
            let place = ChangePlace { entry_id: *entry_id, thread_id: "t", turn_id, item_id, at_us: 9 };
            history.change_context(place).expect("it can be read").prompt
        });
        assert_eq!(prompts.collect::<Vec<_>>(), [Some("first".to_owned()), Some("and more".to_owned()), None]);
        let entry = history.transcript_entry(found[0].0).expect("it can be read").expect("it is there");
        assert!(entry.contains("\"item_id\":\"c1\""));
        // As after `redact`, the search index knows no entry.
        let connection = rusqlite::Connection::open(lab.history()).expect("it is there");
        connection.execute("UPDATE codex_transcript_entries SET entry = entry || ' '", []).expect("rows");
        let mut again = 0;
        history.file_changes(|_, _, _| again += 1).expect("it can be read");
        assert_eq!(again, 3);
    }
}
