//! The ledger's record of model context besides the user's words: fragments sent to threads, and epochs of a context
//! engine.
//!
//! Every function runs in the caller's transaction.

use rusqlite::{Transaction, params};
use serde::{Deserialize, Serialize};

use crate::engine::{FragmentCarrier, LedgerEntry, Remembered, SentFragment};

pub(super) const TABLES: &str = "
CREATE TABLE codex_fragment_states (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    thread_id TEXT NOT NULL,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    carrier TEXT NOT NULL,
    at_us INTEGER NOT NULL,
    is_stale INTEGER NOT NULL DEFAULT 0,
    text TEXT NOT NULL,
    UNIQUE (thread_id, name)
) STRICT;
CREATE TABLE codex_projection_epochs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    thread_id TEXT NOT NULL UNIQUE,
    epoch TEXT NOT NULL,
    at_us INTEGER NOT NULL
) STRICT;
";

/// Most stored fragment states. Beyond this the oldest are deleted, and their threads get the fragment again.
const STATES_MAX: i64 = 4_096;

/// Most stored epochs, one per thread.
const EPOCHS_MAX: i64 = 1_024;

/// Most fragment states, and most epochs, that a new run loads.
const REMEMBERED_MAX: i64 = 1_024;

/// A fragment as last sent to a thread, for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFragment {
    pub thread_id: String,
    pub name: String,
    /// `developer` or `user`.
    pub role: String,
    /// `inject_items` or `developer_instructions`.
    pub carrier: String,
    /// When it was last sent, RFC 3339.
    pub at: String,
    /// The thread was compacted since; the fragment is sent again with the next turn.
    pub stale: bool,
    /// The text that the model saw.
    pub text: String,
}

/// Applies an entry about fragments or epochs; ignores all others.
pub(super) fn keep(transaction: &Transaction<'_>, entry: &LedgerEntry) -> rusqlite::Result<()> {
    const TELL: &str = "INSERT OR REPLACE INTO codex_fragment_states (thread_id, name, role, carrier, at_us, text)
                        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    const PRUNE_STATES: &str =
        "DELETE FROM codex_fragment_states WHERE id <= (SELECT max(id) FROM codex_fragment_states) - ?1";
    const SHOW: &str = "INSERT OR REPLACE INTO codex_projection_epochs (thread_id, epoch, at_us) VALUES (?1, ?2, ?3)";
    const PRUNE_EPOCHS: &str =
        "DELETE FROM codex_projection_epochs WHERE id <= (SELECT max(id) FROM codex_projection_epochs) - ?1";
    const MAKE_STALE: &str = "UPDATE codex_fragment_states SET is_stale = 1 WHERE thread_id = ?1";
    const FORGET_EPOCH: &str = "DELETE FROM codex_projection_epochs WHERE thread_id = ?1";
    match entry {
        LedgerEntry::FragmentsSent { thread_id, at_us, sent: told } => {
            for SentFragment { name, role, carrier, text } in told {
                let row = params![thread_id, name, role, carrier.name(), *at_us as i64, text];
                transaction.prepare_cached(TELL)?.execute(row)?;
            }
            transaction.prepare_cached(PRUNE_STATES)?.execute([STATES_MAX])?;
        }
        LedgerEntry::EpochShown { thread_id, epoch, at_us } => {
            transaction.prepare_cached(SHOW)?.execute(params![thread_id, epoch, *at_us as i64])?;
            transaction.prepare_cached(PRUNE_EPOCHS)?.execute([EPOCHS_MAX])?;
        }
        LedgerEntry::ThreadCompacted { thread_id } => {
            transaction.prepare_cached(MAKE_STALE)?.execute([thread_id])?;
            transaction.prepare_cached(FORGET_EPOCH)?.execute([thread_id])?;
        }
        LedgerEntry::Sent(_)
        | LedgerEntry::Settled { .. }
        | LedgerEntry::TurnNamed { .. }
        | LedgerEntry::ThreadSeen { .. }
        | LedgerEntry::ThreadBegan { .. }
        | LedgerEntry::RequestOpened(_)
        | LedgerEntry::RequestEnded(_)
        | LedgerEntry::RequestExpired { .. }
        | LedgerEntry::AnswerLost(_)
        | LedgerEntry::RequestDispatched { .. }
        | LedgerEntry::RequestConfirmed { .. }
        | LedgerEntry::RequestUncertain { .. }
        | LedgerEntry::RequestLate { .. }
        | LedgerEntry::RequestShown { .. } => {}
    }
    Ok(())
}

/// Fragments and epochs of earlier runs, oldest first, for a new run.
pub(super) fn remembered(transaction: &Transaction<'_>) -> rusqlite::Result<Remembered> {
    const STATES: &str = "SELECT thread_id, name, role, carrier, is_stale, text FROM
        (SELECT * FROM codex_fragment_states ORDER BY id DESC LIMIT ?1) ORDER BY id";
    const EPOCHS: &str = "SELECT thread_id, epoch FROM
        (SELECT * FROM codex_projection_epochs ORDER BY id DESC LIMIT ?1) ORDER BY id";
    let mut states = transaction.prepare_cached(STATES)?;
    let fragments = states.query_map([REMEMBERED_MAX], |row| {
        let (role, carrier): (String, String) = (row.get(2)?, row.get(3)?);
        let is_stale: bool = row.get(4)?;
        let carriers = [FragmentCarrier::InjectItems, FragmentCarrier::DeveloperInstructions];
        let told = SentFragment {
            name: row.get(1)?,
            role: if role == "developer" { "developer" } else { "user" },
            carrier: carriers.into_iter().find(|known| known.name() == carrier).unwrap_or(FragmentCarrier::InjectItems),
            // Empty text differs from any current text, so the fragment is sent again.
            text: if is_stale { String::new() } else { row.get(5)? },
        };
        Ok((row.get(0)?, told))
    })?;
    let fragments = fragments.collect::<rusqlite::Result<_>>()?;
    let mut epochs = transaction.prepare_cached(EPOCHS)?;
    let epochs = epochs.query_map([REMEMBERED_MAX], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(Remembered { fragments, epochs: epochs.collect::<rusqlite::Result<_>>()? })
}

/// Fragments sent to threads, the most recent last.
pub(super) fn fragments(transaction: &Transaction<'_>) -> rusqlite::Result<Vec<KeptFragment>> {
    const SQL: &str =
        "SELECT thread_id, name, role, carrier, at_us, is_stale, text FROM codex_fragment_states ORDER BY id";
    let mut statement = transaction.prepare_cached(SQL)?;
    let rows = statement.query_map([], |row| {
        let at_us = u64::try_from(row.get::<_, i64>(4)?).unwrap_or(0);
        let at = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_micros(at_us);
        Ok(KeptFragment {
            thread_id: row.get(0)?,
            name: row.get(1)?,
            role: row.get(2)?,
            carrier: row.get(3)?,
            at: humantime::format_rfc3339_millis(at).to_string(),
            stale: row.get(5)?,
            text: row.get(6)?,
        })
    })?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    #[test]
    fn compaction_makes_stored_fragments_stale() {
        let mut connection = Connection::open_in_memory().expect("a database");
        connection.execute_batch(TABLES).expect("tables");
        let transaction = connection.transaction().expect("a transaction");
        let told = |name: &str, text: &str| SentFragment {
            name: name.to_owned(),
            role: "developer",
            carrier: FragmentCarrier::InjectItems,
            text: text.to_owned(),
        };
        let tell = |thread: &str, told: Vec<SentFragment>| {
            let entry = LedgerEntry::FragmentsSent { thread_id: thread.to_owned(), at_us: 1_000, sent: told };
            keep(&transaction, &entry).expect("it is kept");
        };
        tell("t", vec![told("a", "1"), told("b", "2")]);
        tell("t", vec![told("a", "3")]);
        let epoch =
            |epoch: &str| LedgerEntry::EpochShown { thread_id: "t".to_owned(), epoch: epoch.to_owned(), at_us: 5 };
        keep(&transaction, &epoch("e1")).expect("it is kept");
        keep(&transaction, &epoch("e2")).expect("it is kept");
        let known = remembered(&transaction).expect("it can be read");
        let texts = |known: &Remembered| -> Vec<(String, String)> {
            known.fragments.iter().map(|(_, told)| (told.name.clone(), told.text.clone())).collect()
        };
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(texts(&known), [pair("b", "2"), pair("a", "3")]);
        assert_eq!(known.epochs, [pair("t", "e2")]);
        keep(&transaction, &LedgerEntry::ThreadCompacted { thread_id: "t".to_owned() }).expect("it is kept");
        tell("t", vec![told("a", "4")]);
        let known = remembered(&transaction).expect("it can be read");
        assert_eq!((texts(&known), known.epochs), (vec![pair("b", ""), pair("a", "4")], Vec::new()));
        let shown = fragments(&transaction).expect("it can be read");
        let told: Vec<(&str, bool, &str)> = shown.iter().map(|kept| (&*kept.name, kept.stale, &*kept.text)).collect();
        assert_eq!(told, [("b", true, "2"), ("a", false, "4")]);
        assert_eq!(shown[0].at, "1970-01-01T00:00:00.001Z");
    }
}
