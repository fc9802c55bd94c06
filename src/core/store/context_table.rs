//! The ledger's record of what the model was told besides the user's words: waiting commands, recent deliveries, known threads;
//! fragments sent to threads, and epochs of a context engine.
//!
//! Every function runs in the caller's transaction.

use rusqlite::{OptionalExtension as _, Transaction, params};

use crate::api::{DeliveryDocument, FragmentDocument};
use crate::engine::{
    Command, ContextChange, Delivery, FragmentCarrier, Label, LedgerEntry, Outcome, Remembered, RowId, SentFragment,
    WaitingCommand,
};
use crate::history::rfc3339_millis;
use crate::protocol::of_name;

pub(super) const TABLES: &str = "
CREATE TABLE codex_context_commands (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    thread_id TEXT,
    forgotten_before INTEGER NOT NULL DEFAULT 0,
    command_json TEXT NOT NULL
) STRICT;
CREATE TABLE codex_context_deliveries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    process_generation TEXT NOT NULL,
    number INTEGER NOT NULL,
    at_us INTEGER NOT NULL,
    thread_id TEXT NOT NULL,
    turn_id TEXT,
    carrier TEXT NOT NULL,
    outcome TEXT NOT NULL,
    text TEXT NOT NULL,
    UNIQUE (process_generation, number)
) STRICT;
CREATE TABLE codex_threads (
    thread_id TEXT PRIMARY KEY,
    beginning TEXT
) STRICT;
";

/// Ids of terminal blocks whose command was stored, to store each block once.
pub(super) const BLOCKS_TABLE: &str = "
CREATE TABLE codex_context_blocks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    block_id TEXT NOT NULL UNIQUE
) STRICT;
";

/// Most stored block ids: years of one terminal.
const BLOCKS_MAX: i64 = 100_000;

/// Most commands waiting for one thread, or for any thread. Beyond this the oldest is deleted and only counted.
const WAITING_MAX: i64 = 200;

/// Most stored deliveries.
const DELIVERIES_KEPT: i64 = 20;

/// Most thread beginnings that a new run loads.
const BEGINNINGS_MAX: i64 = 256;

/// The outcome of a delivery that has not ended.
const SENT: &str = "sent";

/// The outcome of a delivery whose end was not recorded.
const UNKNOWN: &str = "unknown";

/// A command to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCommand {
    /// The thread that it is for; `None` for any.
    pub thread_id: Option<String>,
    pub command: Command,
    pub keep: Keep,
}

/// Whether to deduplicate a command by its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Store it every time.
    Always,
    /// Store it only if no command with this `block_id` was ever stored with `Once`.
    Once,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichCommands {
    All,
    One(RowId),
}

/// The first of these threads that this session has not seen.
pub(super) fn unknown_thread(transaction: &Transaction<'_>, pushed: &[NewCommand]) -> rusqlite::Result<Option<String>> {
    const SQL: &str = "SELECT 1 FROM codex_threads WHERE thread_id = ?1";
    for thread_id in pushed.iter().filter_map(|pushed| pushed.thread_id.as_ref()) {
        let seen = transaction.prepare_cached(SQL)?.query_row([thread_id], |_| Ok(())).optional()?;
        if seen.is_none() {
            return Ok(Some(thread_id.clone()));
        }
    }
    Ok(None)
}

/// Appends commands to the queue. Returns which older ones were dropped for them.
pub(super) fn push(transaction: &Transaction<'_>, pushed: &[NewCommand]) -> rusqlite::Result<Vec<ContextChange>> {
    const INSERT: &str = "INSERT INTO codex_context_commands (thread_id, command_json) VALUES (?1, ?2)";
    const COUNT: &str = "SELECT count(*) FROM codex_context_commands WHERE thread_id IS ?1";
    const OLDEST: &str =
        "SELECT id, forgotten_before FROM codex_context_commands WHERE thread_id IS ?1 ORDER BY id LIMIT 2";
    const COUNT_ON: &str =
        "UPDATE codex_context_commands SET forgotten_before = forgotten_before + 1 + ?2 WHERE id = ?1";
    let mut changes = Vec::new();
    for NewCommand { thread_id, command, keep } in pushed {
        if *keep == Keep::Once && !is_new_block(transaction, command)? {
            continue;
        }
        let json = serde_json::to_string(command).expect("BUG: plain data is JSON");
        transaction.prepare_cached(INSERT)?.execute(params![thread_id, json])?;
        let waiting: i64 = transaction.prepare_cached(COUNT)?.query_row([thread_id], |row| row.get(0))?;
        if waiting > WAITING_MAX {
            let mut statement = transaction.prepare_cached(OLDEST)?;
            let oldest: Vec<(RowId, i64)> =
                statement.query_map([thread_id], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
            if let [(row, forgotten_before), (counted_by, _)] = oldest[..] {
                delete(transaction, &[row])?;
                transaction.prepare_cached(COUNT_ON)?.execute([counted_by, forgotten_before])?;
                changes.push(ContextChange::Forgotten { row, counted_by });
            }
        }
    }
    Ok(changes)
}

/// Records the command's block; returns false if it was recorded before.
fn is_new_block(transaction: &Transaction<'_>, command: &Command) -> rusqlite::Result<bool> {
    const INSERT: &str = "INSERT INTO codex_context_blocks (block_id) VALUES (?1) ON CONFLICT DO NOTHING";
    const PRUNE: &str = "DELETE FROM codex_context_blocks WHERE id <= (SELECT max(id) FROM codex_context_blocks) - ?1";
    let Some(block_id) = &command.block_id else { return Ok(true) };
    let block_id = match block_id {
        Label::Number(number) => number.to_string(),
        Label::Text(text) => text.clone(),
    };
    let is_new = transaction.prepare_cached(INSERT)?.execute([block_id])? > 0;
    if is_new {
        transaction.prepare_cached(PRUNE)?.execute([BLOCKS_MAX])?;
    }
    Ok(is_new)
}

/// Waiting commands with a row id above `after`, oldest first.
pub(super) fn waiting_after(transaction: &Transaction<'_>, after: RowId) -> rusqlite::Result<Vec<WaitingCommand>> {
    const SQL: &str = "SELECT id, thread_id, forgotten_before, command_json FROM codex_context_commands
                       WHERE id > ?1 ORDER BY id";
    let mut statement = transaction.prepare_cached(SQL)?;
    let rows = statement.query_map([after], |row| {
        let json: String = row.get(3)?;
        // A command that this version cannot parse is from a newer one; it stays in the table.
        let command: Option<Command> = serde_json::from_str(&json).ok();
        let (row, thread_id, forgotten) = (row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?);
        let forgotten_before = u64::try_from(forgotten).unwrap_or(0);
        Ok(command.map(|command| WaitingCommand { row, thread_id, forgotten_before, command }))
    })?;
    rows.filter_map(Result::transpose).collect()
}

/// Deletes waiting commands; returns their row ids.
pub(super) fn clear(transaction: &Transaction<'_>, which: WhichCommands) -> rusqlite::Result<Vec<RowId>> {
    const SQL: &str = "DELETE FROM codex_context_commands WHERE ?1 IS NULL OR id = ?1 RETURNING id";
    let only = match which {
        WhichCommands::All => None,
        WhichCommands::One(row) => Some(row),
    };
    transaction.prepare_cached(SQL)?.query_map([only], |row| row.get(0))?.collect()
}

/// A stored time.
fn time(at_us: i64) -> String {
    rfc3339_millis(u64::try_from(at_us).unwrap_or(0))
}

/// Stored deliveries, oldest first.
pub(super) fn deliveries(transaction: &Transaction<'_>) -> rusqlite::Result<Vec<DeliveryDocument>> {
    const SQL: &str =
        "SELECT at_us, thread_id, turn_id, carrier, outcome, text FROM codex_context_deliveries ORDER BY id";
    let mut statement = transaction.prepare_cached(SQL)?;
    let rows = statement.query_map([], |row| {
        Ok(DeliveryDocument {
            at: time(row.get(0)?),
            thread_id: row.get(1)?,
            turn_id: row.get(2)?,
            carrier: row.get(3)?,
            outcome: row.get(4)?,
            text: row.get(5)?,
        })
    })?;
    rows.collect()
}

/// Ids and first words of recent threads, for a new run.
pub(super) fn beginnings(transaction: &Transaction<'_>) -> rusqlite::Result<Vec<(String, String)>> {
    const SQL: &str = "SELECT thread_id, beginning FROM codex_threads WHERE beginning IS NOT NULL
                       ORDER BY rowid DESC LIMIT ?1";
    transaction.prepare_cached(SQL)?.query_map([BEGINNINGS_MAX], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Marks deliveries that earlier runs left in flight as unknown. Only the holder of the session may call this.
pub(super) fn end_earlier_deliveries(transaction: &Transaction<'_>, generation: &str) -> rusqlite::Result<()> {
    const SQL: &str =
        "UPDATE codex_context_deliveries SET outcome = ?1 WHERE outcome = ?2 AND process_generation <> ?3";
    transaction.prepare_cached(SQL)?.execute([UNKNOWN, SENT, generation])?;
    Ok(())
}

/// Keeps what the relay has done with context; nothing where the entry is about something else.
pub(super) fn keep(transaction: &Transaction<'_>, generation: &str, entry: &LedgerEntry) -> rusqlite::Result<()> {
    const NAME_TURN: &str =
        "UPDATE codex_context_deliveries SET turn_id = ?3 WHERE process_generation = ?1 AND number = ?2";
    const SEE_THREAD: &str = "INSERT INTO codex_threads (thread_id) VALUES (?1) ON CONFLICT DO NOTHING";
    const SEE_BEGINNING: &str = "INSERT INTO codex_threads (thread_id, beginning) VALUES (?1, ?2)
        ON CONFLICT DO UPDATE SET beginning = coalesce(beginning, excluded.beginning)";
    const SHOW: &str = "INSERT OR REPLACE INTO codex_projection_epochs (thread_id, epoch, at_us) VALUES (?1, ?2, ?3)";
    const PRUNE_EPOCHS: &str =
        "DELETE FROM codex_projection_epochs WHERE id <= (SELECT max(id) FROM codex_projection_epochs) - ?1";
    const MAKE_STALE: &str = "UPDATE codex_fragment_states SET is_stale = 1 WHERE thread_id = ?1";
    const FORGET_EPOCH: &str = "DELETE FROM codex_projection_epochs WHERE thread_id = ?1";
    match entry {
        LedgerEntry::Sent(delivery) => keep_delivery(transaction, generation, delivery),
        LedgerEntry::Settled { delivery, outcome, delete: done } => {
            settle(transaction, generation, *delivery, *outcome)?;
            delete(transaction, done)
        }
        LedgerEntry::TurnNamed { delivery, turn_id } => {
            transaction.prepare_cached(NAME_TURN)?.execute(params![generation, *delivery as i64, turn_id])?;
            Ok(())
        }
        LedgerEntry::ThreadSeen { thread_id } => {
            transaction.prepare_cached(SEE_THREAD)?.execute([thread_id])?;
            Ok(())
        }
        LedgerEntry::ThreadBegan { thread_id, words } => {
            transaction.prepare_cached(SEE_BEGINNING)?.execute([thread_id, words])?;
            Ok(())
        }
        LedgerEntry::FragmentsSent { thread_id, at_us, sent } => keep_fragments(transaction, thread_id, *at_us, sent),
        LedgerEntry::EpochShown { thread_id, epoch, at_us } => {
            transaction.prepare_cached(SHOW)?.execute(params![thread_id, epoch, *at_us as i64])?;
            transaction.prepare_cached(PRUNE_EPOCHS)?.execute([EPOCHS_MAX])?;
            Ok(())
        }
        LedgerEntry::ThreadCompacted { thread_id } => {
            transaction.prepare_cached(MAKE_STALE)?.execute([thread_id])?;
            transaction.prepare_cached(FORGET_EPOCH)?.execute([thread_id])?;
            Ok(())
        }
        LedgerEntry::RequestOpened(_)
        | LedgerEntry::RequestEnded(_)
        | LedgerEntry::RequestExpired { .. }
        | LedgerEntry::AnswerLost(_)
        | LedgerEntry::RequestDispatched { .. }
        | LedgerEntry::RequestConfirmed { .. }
        | LedgerEntry::RequestReopened { .. }
        | LedgerEntry::RequestUncertain { .. }
        | LedgerEntry::RequestLate { .. }
        | LedgerEntry::DenialOverruled(_)
        | LedgerEntry::RequestShown { .. } => Ok(()),
    }
}

fn keep_delivery(transaction: &Transaction<'_>, generation: &str, delivery: &Delivery) -> rusqlite::Result<()> {
    const INSERT: &str = "INSERT INTO codex_context_deliveries
        (process_generation, number, at_us, thread_id, carrier, outcome, text) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    const PRUNE: &str =
        "DELETE FROM codex_context_deliveries WHERE id <= (SELECT max(id) FROM codex_context_deliveries) - ?1";
    let Delivery { number, at_us, thread_id, carrier, text } = delivery;
    let (number, at_us) = (*number as i64, *at_us as i64);
    let row = params![generation, number, at_us, thread_id, carrier.name(), SENT, text];
    transaction.prepare_cached(INSERT)?.execute(row)?;
    transaction.prepare_cached(PRUNE)?.execute([DELIVERIES_KEPT])?;
    Ok(())
}

fn settle(transaction: &Transaction<'_>, generation: &str, number: u64, outcome: Outcome) -> rusqlite::Result<()> {
    const SQL: &str = "UPDATE codex_context_deliveries SET outcome = ?3 WHERE process_generation = ?1 AND number = ?2";
    transaction.prepare_cached(SQL)?.execute(params![generation, number as i64, outcome.name()])?;
    Ok(())
}

fn delete(transaction: &Transaction<'_>, rows: &[RowId]) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare_cached("DELETE FROM codex_context_commands WHERE id = ?1")?;
    rows.iter().try_for_each(|row| statement.execute([row]).map(|_| ()))
}

pub(super) const ASSEMBLY_TABLES: &str = "
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

/// Stores the fragments that a thread was sent.
fn keep_fragments(
    transaction: &Transaction<'_>,
    thread_id: &str,
    at_us: u64,
    sent: &[SentFragment],
) -> rusqlite::Result<()> {
    const TELL: &str = "INSERT OR REPLACE INTO codex_fragment_states (thread_id, name, role, carrier, at_us, text)
                        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    const PRUNE: &str =
        "DELETE FROM codex_fragment_states WHERE id <= (SELECT max(id) FROM codex_fragment_states) - ?1";
    for SentFragment { name, role, carrier, text } in sent {
        let row = params![thread_id, name, role, carrier.name(), at_us as i64, text];
        transaction.prepare_cached(TELL)?.execute(row)?;
    }
    transaction.prepare_cached(PRUNE)?.execute([STATES_MAX])?;
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
        let told = SentFragment {
            name: row.get(1)?,
            role: if role == "developer" { "developer" } else { "user" },
            carrier: of_name(&carrier).unwrap_or(FragmentCarrier::InjectItems),
            // Empty text differs from any current text, so the fragment is sent again.
            text: if is_stale { String::new() } else { row.get(5)? },
        };
        Ok((row.get(0)?, told))
    })?;
    let fragments = fragments.collect::<rusqlite::Result<_>>()?;
    let mut epochs = transaction.prepare_cached(EPOCHS)?;
    let epochs = epochs.query_map([REMEMBERED_MAX], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let epochs = epochs.collect::<rusqlite::Result<_>>()?;
    Ok(Remembered { fragments, epochs, ..Remembered::default() })
}

/// Fragments sent to threads, the most recent last.
pub(super) fn fragments(transaction: &Transaction<'_>) -> rusqlite::Result<Vec<FragmentDocument>> {
    const SQL: &str =
        "SELECT thread_id, name, role, carrier, at_us, is_stale, text FROM codex_fragment_states ORDER BY id";
    let mut statement = transaction.prepare_cached(SQL)?;
    let rows = statement.query_map([], |row| {
        Ok(FragmentDocument {
            thread_id: row.get(0)?,
            name: row.get(1)?,
            role: row.get(2)?,
            carrier: row.get(3)?,
            at: time(row.get(4)?),
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
        connection.execute_batch(&format!("{TABLES}{ASSEMBLY_TABLES}")).expect("tables");
        let transaction = connection.transaction().expect("a transaction");
        let told = |name: &str, text: &str| SentFragment {
            name: name.to_owned(),
            role: "developer",
            carrier: FragmentCarrier::InjectItems,
            text: text.to_owned(),
        };
        let tell = |thread: &str, told: Vec<SentFragment>| {
            let entry = LedgerEntry::FragmentsSent { thread_id: thread.to_owned(), at_us: 1_000, sent: told };
            keep(&transaction, "g", &entry).expect("it is kept");
        };
        tell("t", vec![told("a", "1"), told("b", "2")]);
        tell("t", vec![told("a", "3")]);
        let epoch =
            |epoch: &str| LedgerEntry::EpochShown { thread_id: "t".to_owned(), epoch: epoch.to_owned(), at_us: 5 };
        keep(&transaction, "g", &epoch("e1")).expect("it is kept");
        keep(&transaction, "g", &epoch("e2")).expect("it is kept");
        let known = remembered(&transaction).expect("it can be read");
        let texts = |known: &Remembered| -> Vec<(String, String)> {
            known.fragments.iter().map(|(_, told)| (told.name.clone(), told.text.clone())).collect()
        };
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(texts(&known), [pair("b", "2"), pair("a", "3")]);
        assert_eq!(known.epochs, [pair("t", "e2")]);
        keep(&transaction, "g", &LedgerEntry::ThreadCompacted { thread_id: "t".to_owned() }).expect("it is kept");
        tell("t", vec![told("a", "4")]);
        let known = remembered(&transaction).expect("it can be read");
        assert_eq!((texts(&known), known.epochs), (vec![pair("b", ""), pair("a", "4")], Vec::new()));
        let shown = fragments(&transaction).expect("it can be read");
        let told: Vec<(&str, bool, &str)> = shown.iter().map(|kept| (&*kept.name, kept.stale, &*kept.text)).collect();
        assert_eq!(told, [("b", true, "2"), ("a", false, "4")]);
        assert_eq!(shown[0].at, "1970-01-01T00:00:00.001Z");
    }
}
