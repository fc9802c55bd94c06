//! The database: its tables, its file, and the commits of rows with the checkpoint that they lead to.

use super::model::{Reached, last_row};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Transaction, params};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::follow::{fold_again, recalled};
use super::model::{Epoch, Kept};
use super::query::epoch_in;
use super::{client_uses, reviews, search, threads, transcripts, usage};
use crate::files::{self, Access};
use crate::history::{EventRow, Fold, GapRow, Rows, rfc3339_millis};
use crate::invariants::holds;
use crate::journal::{Generation, Position, SegmentName};
use crate::secrets::Masker;
use crate::store::{
    BESIDE, DatabaseError, DatabaseForm, Opened, SetAside, at_once, connect_database, open_database, set_aside,
    set_aside_beside,
};

const INSERT_EVENT: &str = "
    INSERT INTO codex_events (seq, session_id, timestamp, event_type, thread_id, turn_id, item_id, payload_preview,
        generation, segment, byte_offset, delta_count)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

const INSERT_GAP: &str = "INSERT INTO codex_event_gaps (session_id, after_seq, lines, reason) VALUES (?1, ?2, ?3, ?4)";

const INSERT_TOOL: &str = "
    INSERT INTO codex_tool_events (session_id, thread_id, turn_id, item_id, request_id, event_type, item_type, phase,
        command, cwd, exit_code, file_path, diff_summary, approval_decision, latency_ms, final_status, error_code,
        error_message, raw_payload_json, created_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)";

const INSERT_TURN: &str = "
    INSERT INTO codex_turn_events (session_id, thread_id, turn_id, event_type, status, latency_ms, delta_chars,
        output_preview, input_tokens, output_tokens, error_code, error_message, raw_payload_json, created_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";

const CHECKPOINT: &str = "
    INSERT INTO codex_event_checkpoints (session_id, generation, segment, byte_offset, last_seq, state)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT (session_id) DO UPDATE SET generation = excluded.generation, segment = excluded.segment,
        byte_offset = excluded.byte_offset, last_seq = excluded.last_seq, state = excluded.state";
const LOAD: &str = "
    SELECT last_seq, state, generation, segment, byte_offset FROM codex_event_checkpoints WHERE session_id = ?1";
const EPOCH: &str = "SELECT epoch, after_seq, cause, promised FROM codex_event_epochs WHERE session_id = ?1";
const SET_EPOCH: &str = "
    INSERT OR REPLACE INTO codex_event_epochs (session_id, epoch, after_seq, cause, promised) VALUES (?1, ?2, ?3, ?4, ?5)";
const FORGET_OTHERS: &str = "DELETE FROM codex_event_epochs WHERE session_id <> ?1";
const KEY: &str = "SELECT generation, segment, byte_offset FROM codex_events WHERE seq = ?1";
const OF_ANOTHER: &str = "SELECT COUNT(*) FROM codex_event_checkpoints WHERE session_id <> ?1";

/// Adopts the rows of a renamed session.
const ADOPT: [&str; 3] = [
    "DELETE FROM codex_event_checkpoints WHERE session_id <> ?1
        AND EXISTS (SELECT 1 FROM codex_event_checkpoints WHERE session_id = ?1)",
    "UPDATE codex_event_checkpoints SET session_id = ?1",
    "UPDATE OR REPLACE codex_event_epochs SET session_id = ?1",
];

const FIRST: &str = "SELECT MIN(seq) FROM codex_events";

/// Renumbers all rows into another epoch, keeping their order and without a gap.
const RENUMBER: [&str; 3] = [
    "UPDATE codex_events SET seq = seq + ?1",
    "UPDATE codex_event_gaps SET after_seq = after_seq + ?1",
    "UPDATE codex_event_checkpoints SET last_seq = last_seq + ?1",
];

/// The tables whose rows SQLite numbers.
const NUMBERED: [&str; 2] = ["codex_tool_events", "codex_turn_events"];

/// The first row of an empty table gets the next number.
const BEGIN_ROWS: &str = "
    INSERT INTO sqlite_sequence (name, seq)
    SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = ?1)";

const GO_ON_ROWS: &str = "UPDATE sqlite_sequence SET seq = ?2 WHERE name = ?1";

/// The part of a checkpoint without columns of its own.
#[derive(Serialize, Deserialize)]
struct CheckpointState<F> {
    next: Position,
    #[serde(default)]
    reserved: u64,
    #[serde(default)]
    digest: Option<u64>,
    /// The version of the fold's form.
    #[serde(default)]
    form: u32,
    fold: F,
}

/// The index's database.
#[derive(Debug)]
pub(super) struct Database {
    connection: Connection,
    session_id: String,
    path: PathBuf,
    stamp: Stamp,
}

impl Database {
    /// Opens the database at `path`. A corrupt file is set aside; its new path is returned.
    pub(super) fn open(path: &Path, session_id: &str) -> Result<(Database, Option<PathBuf>), DatabaseError> {
        let Opened { connection, set_aside } = open_database(path, form())?;
        let set_aside = match set_aside {
            Some(SetAside::Database(kept)) => Some(kept),
            Some(SetAside::Log(kept)) => {
                // The records since the last whole commit are read from the journal again.
                tracing::warn!(kept = %kept.display(), "the log of the history was corrupt");
                None
            }
            None => None,
        };
        let stamp = Stamp::of(path).map_err(|source| DatabaseError::File { path: path.to_owned(), source })?;
        let (session_id, path) = (session_id.to_owned(), path.to_owned());
        Ok((Database { connection, session_id, path, stamp }, set_aside))
    }

    /// Closes a corrupt database and sets its file aside.
    pub(super) fn set_aside(self) -> Result<PathBuf, DatabaseError> {
        let Database { connection, path, .. } = self;
        // A corrupt database has nothing worth writing back.
        drop(connection);
        set_aside(&path)
    }

    /// Closes a database whose file was removed, and sets aside the files that are still beside it. They belong to the
    /// removed file: a new database must not mistake the log for its own, nor share locks with readers of the old one.
    pub(super) fn leave(self) -> Result<(), DatabaseError> {
        let Database { connection, path, stamp, .. } = self;
        drop(connection);
        set_aside_beside(&path, &stamp.files_beside()).map(drop)
    }

    /// Whether the file is still the one that was opened.
    pub(super) fn fate(&mut self) -> Fate {
        self.stamp.fate()
    }

    /// The connection, for maintenance.
    pub(super) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// The last commit, if any, and the epoch of the numbers. The database of a renamed session is adopted under the new
    /// name. A fold of another version is replaced with that in `again`, or with one that is put there.
    pub(super) fn load(
        &mut self,
        journal_dir: &Path,
        again: &mut Option<FoldedAgain>,
    ) -> Result<(Option<Kept>, Option<Epoch>), DatabaseError> {
        let Database { connection, session_id, path, .. } = self;
        let mut work = || -> rusqlite::Result<(Option<Kept>, Option<Epoch>)> {
            let strangers: i64 = connection.query_row(OF_ANOTHER, [&*session_id], |row| row.get(0))?;
            if strangers > 0 {
                at_once(connection, |transaction| {
                    ADOPT.iter().try_for_each(|sql| transaction.execute(sql, [&*session_id]).map(drop))
                })?;
            }
            let kept = match load(connection, session_id, journal_dir, again)? {
                Some((reached, read)) => read.map_err(converted).map(|()| Some(Kept { reached }))?,
                None => None,
            };
            if let (Some(Kept { reached }), Some(FoldedAgain { rows, .. })) = (&kept, &again) {
                // Otherwise each start would fold the journal again until there is a new record.
                at_once(connection, |transaction| {
                    usage::insert_again(transaction, session_id, rows)?;
                    threads::insert(transaction, rows)?;
                    client_uses::insert_again(transaction, rows)?;
                    checkpoint(transaction, session_id, reached)
                })?;
            }
            *again = None;
            Ok((kept, connection.query_row(EPOCH, [&*session_id], epoch_in).optional()?))
        };
        work().map_err(|source| DatabaseError::Sqlite { path: path.clone(), source })
    }

    /// The first record of the event with this number.
    pub(super) fn key_of(&self, seq: u64) -> Option<Position> {
        let read = |row: &rusqlite::Row<'_>| {
            Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?, row.get::<_, i64>(2)?.unsigned_abs()))
        };
        let (generation, number, offset) = self.connection.query_row(KEY, [seq as i64], read).ok()?;
        Some(Position { segment: SegmentName { generation: Generation::parse(&generation)?, number }, offset })
    }

    /// The last number of each table of rows.
    pub(super) fn last_rows(&self) -> Result<[u64; 2], DatabaseError> {
        let last = |table| last_row(&self.connection, table).map_err(|source| self.error(source));
        let [tools, turns] = NUMBERED;
        Ok([last(tools)?.unwrap_or(0), last(turns)?.unwrap_or(0)])
    }

    /// Stores the epoch.
    pub(super) fn set_epoch(&self, epoch: &Epoch) -> Result<(), DatabaseError> {
        set_epoch(&self.connection, &self.session_id, epoch).map_err(|source| self.error(source))
    }

    /// Begins an epoch: renumbers all existing events into it. Returns the offset that was added to each number.
    pub(super) fn begin_epoch(&mut self, epoch: &Epoch) -> Result<u64, DatabaseError> {
        let Database { connection, session_id, path, .. } = self;
        let renumbered = at_once(connection, |transaction| {
            let first: Option<i64> = transaction.query_row(FIRST, [], |row| row.get(0))?;
            let last: Option<i64> = transaction.query_row(LOAD, [&*session_id], |row| row.get(0)).optional()?;
            let last = last.map_or(0, |seq| seq.try_into().unwrap_or(0));
            let before = first.map_or(last, |first| first.unsigned_abs().saturating_sub(1));
            let higher_by = epoch.after_seq.saturating_sub(before);
            for sql in RENUMBER {
                transaction.execute(sql, [higher_by as i64])?;
            }
            for table in NUMBERED {
                renumber_rows(transaction, table, epoch.after_seq)?;
            }
            set_epoch(transaction, session_id, epoch)?;
            Ok(higher_by)
        });
        renumbered.map_err(|source| DatabaseError::Sqlite { path: path.clone(), source })
    }

    /// Commits rows whose numbers follow `before`, and the checkpoint `reached`.
    pub(super) fn commit(&mut self, rows: &Rows, before: u64, reached: &Reached) -> Result<(), DatabaseError> {
        let Database { connection, session_id, .. } = self;
        let work = |transaction: &Transaction<'_>| {
            holds!("index.numbers-follow-the-last-one", last_number(transaction)? <= before);
            insert(transaction, session_id, rows, before)?;
            holds!("index.last-number-is-in-the-checkpoint", {
                rows.events.is_empty() || last_number(transaction)? == reached.seq
            });
            usage::insert(transaction, session_id, rows)?;
            client_uses::insert(transaction, rows)?;
            checkpoint(transaction, session_id, reached)
        };
        at_once(connection, work).map_err(|source| self.error(source))
    }

    pub(super) fn error(&self, source: rusqlite::Error) -> DatabaseError {
        DatabaseError::Sqlite { path: self.path.clone(), source }
    }
}

/// The checkpoint of the database at `path`, if it is readable although it cannot be opened for writing.
pub(super) fn peek(
    path: &Path,
    session_id: &str,
    journal_dir: &Path,
    again: &mut Option<FoldedAgain>,
) -> Option<Reached> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = connect_database(path, flags).ok()?;
    load(&connection, session_id, journal_dir, again).ok().flatten().map(|(reached, _)| reached)
}

fn set_epoch(connection: &Connection, session_id: &str, epoch: &Epoch) -> rusqlite::Result<()> {
    let Epoch { id, after_seq, cause, promised } = epoch;
    connection.execute(FORGET_OTHERS, [session_id])?;
    let row = params![session_id, id, *after_seq as i64, cause.name(), *promised as i64];
    connection.execute(SET_EPOCH, row)?;
    for table in NUMBERED {
        connection.execute(BEGIN_ROWS, params![table, *after_seq as i64])?;
    }
    Ok(())
}

/// Renumbers all rows of a table to numbers above `after`, keeping their order and without a gap.
fn renumber_rows(connection: &Connection, table: &str, after: u64) -> rusqlite::Result<()> {
    let Some(last) = last_row(connection, table)? else { return Ok(()) };
    let first: Option<i64> = connection.query_row(&format!("SELECT MIN(id) FROM {table}"), [], |row| row.get(0))?;
    let before = first.map_or(last, |first| first.unsigned_abs().saturating_sub(1));
    let higher_by = after.saturating_sub(before);
    connection.execute(&format!("UPDATE {table} SET id = id + ?1"), [higher_by as i64])?;
    connection.execute(GO_ON_ROWS, params![table, (last + higher_by) as i64]).map(drop)
}

/// A fold that was built again from the journal, for a checkpoint of another version. Kept in memory until
/// the database has stored it, because each retry would otherwise read the whole journal again.
#[derive(Debug)]
pub(super) struct FoldedAgain {
    checkpoint: String,
    fold: Fold,
    /// Only usage, threads and uses of clients, which an older version may lack.
    rows: Rows,
}

/// Reads the checkpoint. If its fold is of another version, `again` has the new one; if the journal is unreadable, the
/// fold is empty, and the error comes with it.
fn load(
    connection: &Connection,
    session_id: &str,
    journal_dir: &Path,
    again: &mut Option<FoldedAgain>,
) -> rusqlite::Result<Option<(Reached, io::Result<()>)>> {
    let read = |row: &rusqlite::Row<'_>| {
        let open_since = (row.get::<_, String>(2)?, row.get::<_, u32>(3)?, row.get::<_, i64>(4)?.unsigned_abs());
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, open_since))
    };
    let found = connection.query_row(LOAD, [session_id], read).optional()?;
    let Some((seq, state, (generation, number, offset))) = found else { return Ok(None) };
    let CheckpointState { next, reserved, digest, form, fold } =
        serde_json::from_str::<CheckpointState<Box<RawValue>>>(&state).map_err(converted)?;
    let (fold, read) = match serde_json::from_str(fold.get()) {
        Ok(fold) if form == Fold::FORM => (recalled(fold, journal_dir, &next), Ok(())),
        Ok(_) | Err(_) => match again {
            Some(FoldedAgain { checkpoint, fold, rows: _ }) if *checkpoint == state => (fold.clone(), Ok(())),
            Some(_) | None => match fold_again(journal_dir, &next) {
                Ok((mut fold, rows)) => {
                    // Its rows are committed already, except those of streams that began at this record or later.
                    let segment = Generation::parse(&generation).map(|generation| SegmentName { generation, number });
                    let open_since = segment.map(|segment| Position { segment, offset });
                    fold.forget_streams_before(open_since.as_ref().unwrap_or(&next));
                    *again = Some(FoldedAgain { checkpoint: state, fold: fold.clone(), rows });
                    (fold, Ok(()))
                }
                Err(error) => (Fold::default(), Err(error)),
            },
        },
    };
    let seq = seq.try_into().unwrap_or(0);
    Ok(Some((Reached { fold, position: Some(next), seq, reserved, digest }, read)))
}

fn converted(error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(error))
}

/// The state of a checkpoint with its secrets masked; `None` if there are none. If a pattern matches our own JSON, so that
/// the masked state would be unreadable, the next start folds the journal again.
pub(super) fn masked_state(state: &str, masker: &Masker) -> Option<String> {
    let masked = masker.json(state)?;
    if serde_json::from_str::<CheckpointState<Fold>>(&masked).is_ok() {
        return Some(masked);
    }
    let CheckpointState { next, reserved, digest, .. } =
        serde_json::from_str::<CheckpointState<serde::de::IgnoredAny>>(state).ok()?;
    serde_json::to_string(&CheckpointState { next, reserved, digest, form: 0, fold: () }).ok()
}

fn insert(transaction: &Transaction<'_>, session_id: &str, rows: &Rows, before: u64) -> rusqlite::Result<()> {
    insert_events(transaction, session_id, &rows.events, before)?;
    let mut stamp = Timestamps::default();
    for row in &rows.tools {
        transaction.prepare_cached(INSERT_TOOL)?.execute(params![
            session_id,
            row.thread_id,
            row.turn_id,
            row.item_id,
            row.request_id,
            row.event_type.name(),
            row.item_type,
            row.phase.name(),
            row.command,
            row.cwd,
            row.exit_code,
            row.file_path,
            row.diff_summary,
            row.approval_decision,
            row.latency_ms.map(|value| value as i64),
            row.final_status,
            row.error_code,
            row.error_message,
            row.raw_payload_json,
            stamp.of(row.at_us),
        ])?;
    }
    for row in &rows.turns {
        transaction.prepare_cached(INSERT_TURN)?.execute(params![
            session_id,
            row.thread_id,
            row.turn_id,
            row.event_type.name(),
            row.status,
            row.latency_ms.map(|value| value as i64),
            row.delta_chars as i64,
            row.output_preview,
            row.input_tokens.map(|value| value as i64),
            row.output_tokens.map(|value| value as i64),
            row.error_code,
            row.error_message,
            row.raw_payload_json,
            stamp.of(row.at_us),
        ])?;
    }
    transcripts::insert(transaction, session_id, &rows.entries)?;
    threads::insert(transaction, rows)?;
    for GapRow { after_events, lines, reason } in &rows.gaps {
        let after_seq = before + *after_events as u64;
        let row = params![session_id, after_seq as i64, *lines as i64, reason];
        transaction.prepare_cached(INSERT_GAP)?.execute(row)?;
    }
    Ok(())
}

/// The highest number of an event that is stored.
fn last_number(transaction: &Transaction<'_>) -> rusqlite::Result<u64> {
    const SQL: &str = "SELECT MAX(seq) FROM codex_events";
    let last: Option<i64> = transaction.prepare_cached(SQL)?.query_row([], |row| row.get(0))?;
    Ok(last.unwrap_or_default().unsigned_abs())
}

/// Values that equal those of the row before stay bound: a commit can have many rows.
fn insert_events(
    transaction: &Transaction<'_>,
    session_id: &str,
    events: &[EventRow],
    before: u64,
) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached(INSERT_EVENT)?;
    let mut stamp = Timestamps::default();
    insert.raw_bind_parameter(2, session_id)?;
    let mut last: Option<&EventRow> = None;
    for (event, seq) in events.iter().zip(before + 1..) {
        let EventRow { key, at_us, event_type, thread_id, turn_id, item_id, payload_preview, delta_count } = event;
        let Position { segment, offset } = &key.0;
        insert.raw_bind_parameter(1, seq as i64)?;
        if last.is_none_or(|last| last.at_us / 1_000 != at_us / 1_000) {
            insert.raw_bind_parameter(3, stamp.of(*at_us))?;
        }
        if last.is_none_or(|last| last.event_type != *event_type) {
            insert.raw_bind_parameter(4, event_type)?;
        }
        if last.is_none_or(|last| last.thread_id != *thread_id) {
            insert.raw_bind_parameter(5, thread_id)?;
        }
        if last.is_none_or(|last| last.turn_id != *turn_id) {
            insert.raw_bind_parameter(6, turn_id)?;
        }
        if last.is_none_or(|last| last.item_id != *item_id) {
            insert.raw_bind_parameter(7, item_id)?;
        }
        insert.raw_bind_parameter(8, payload_preview)?;
        if last.is_none_or(|last| last.key.0.segment != *segment) {
            insert.raw_bind_parameter(9, segment.generation.as_str())?;
            insert.raw_bind_parameter(10, segment.number)?;
        }
        insert.raw_bind_parameter(11, *offset as i64)?;
        insert.raw_bind_parameter(12, delta_count.map(|count| count as i64))?;
        insert.raw_execute()?;
        last = Some(event);
    }
    Ok(())
}

/// Formats a time once for all events of a millisecond.
#[derive(Default)]
struct Timestamps {
    at_ms: u64,
    text: String,
}

impl Timestamps {
    fn of(&mut self, at_us: u64) -> &str {
        if self.at_ms != at_us / 1_000 || self.text.is_empty() {
            (self.at_ms, self.text) = (at_us / 1_000, rfc3339_millis(at_us));
        }
        &self.text
    }
}

fn checkpoint(transaction: &Transaction<'_>, session_id: &str, reached: &Reached) -> rusqlite::Result<()> {
    let Some(next) = &reached.position else { return Ok(()) };
    let Reached { fold, reserved, digest, .. } = reached;
    let (next_record, form) = (next.clone(), Fold::FORM);
    let state =
        serde_json::to_string(&CheckpointState { next: next_record, reserved: *reserved, digest: *digest, form, fold })
            .map_err(converted)?;
    let at = reached.fold.open_since().unwrap_or(next);
    transaction.prepare_cached(CHECKPOINT)?.execute(params![
        session_id,
        at.segment.generation.as_str(),
        at.segment.number,
        at.offset as i64,
        reached.seq as i64,
        state,
    ])?;
    Ok(())
}

/// How long the index waits for another process's lock.
const BUSY_WAIT_MAX: Duration = Duration::from_millis(250);

/// The schema of a history, append-only.
///
/// `codex_events`, `codex_tool_events`, `codex_turn_events` and `codex_event_checkpoints` are a documented interface for
/// readers of the file. A checkpoint names the start of the first record that has not led to all its rows; `state` holds
/// the actions in progress after that, and the position where reading continues.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE codex_events (
        seq INTEGER PRIMARY KEY,
        session_id TEXT NOT NULL,
        timestamp TEXT NOT NULL,
        event_type TEXT NOT NULL,
        thread_id TEXT,
        turn_id TEXT,
        item_id TEXT,
        payload_preview TEXT NOT NULL,
        generation TEXT NOT NULL,
        segment INTEGER NOT NULL,
        byte_offset INTEGER NOT NULL,
        delta_count INTEGER
    ) STRICT;
    CREATE TABLE codex_event_gaps (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT NOT NULL,
        after_seq INTEGER NOT NULL,
        lines INTEGER NOT NULL,
        reason TEXT NOT NULL
    ) STRICT;
    CREATE INDEX codex_event_gaps_by_seq ON codex_event_gaps (after_seq);
    CREATE TABLE codex_tool_events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT NOT NULL,
        thread_id TEXT,
        turn_id TEXT,
        item_id TEXT,
        request_id TEXT,
        event_type TEXT NOT NULL,
        item_type TEXT,
        phase TEXT,
        command TEXT,
        cwd TEXT,
        exit_code INTEGER,
        file_path TEXT,
        diff_summary TEXT,
        approval_decision TEXT,
        latency_ms INTEGER,
        final_status TEXT,
        error_code TEXT,
        error_message TEXT,
        raw_payload_json TEXT,
        created_at TEXT NOT NULL
    ) STRICT;
    CREATE TABLE codex_turn_events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT NOT NULL,
        thread_id TEXT,
        turn_id TEXT,
        event_type TEXT NOT NULL,
        status TEXT,
        latency_ms INTEGER,
        delta_chars INTEGER,
        output_preview TEXT,
        input_tokens INTEGER,
        output_tokens INTEGER,
        error_code TEXT,
        error_message TEXT,
        raw_payload_json TEXT,
        created_at TEXT NOT NULL
    ) STRICT;
    CREATE TABLE codex_transcript_entries (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT NOT NULL,
        thread_id TEXT NOT NULL,
        identity TEXT NOT NULL,
        entry TEXT NOT NULL,
        UNIQUE (thread_id, identity)
    ) STRICT;
    CREATE INDEX codex_transcript_entries_by_thread ON codex_transcript_entries (thread_id, id);
    CREATE TABLE codex_event_checkpoints (
        session_id TEXT PRIMARY KEY,
        generation TEXT NOT NULL,
        segment INTEGER NOT NULL,
        byte_offset INTEGER NOT NULL,
        last_seq INTEGER NOT NULL,
        state TEXT NOT NULL
    ) STRICT;
",
    "
    CREATE TABLE codex_event_epochs (
        session_id TEXT PRIMARY KEY,
        epoch TEXT NOT NULL,
        after_seq INTEGER NOT NULL,
        cause TEXT NOT NULL,
        promised INTEGER NOT NULL
    ) STRICT;
",
    search::SCHEMA,
    usage::TABLES,
    reviews::SCHEMA,
    transcripts::PLACES,
    usage::OF_THE_PAGE,
    threads::SCHEMA,
    transcripts::PLACES_OF_BEFORE,
    client_uses::SCHEMA,
    threads::REMOTES,
];

/// The schema version that this program writes.
pub const HISTORY_FORM: usize = MIGRATIONS.len();

/// How a history is opened for writing.
pub(super) fn form() -> DatabaseForm {
    DatabaseForm { migrations: MIGRATIONS, synchronous: "NORMAL", busy_wait_max: BUSY_WAIT_MAX }
}

/// The first bytes of a SQLite file.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// The identity of a file when it was opened.
#[derive(Debug)]
pub(super) struct Stamp {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// SQLite never shrinks such a file unasked, so a shorter one was truncated or vacuumed.
    bytes: u64,
    /// The files beside it, by device and inode.
    beside: [Option<(u64, u64)>; 2],
}

/// The state of the file now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    InPlace,
    /// The file was removed or replaced.
    Gone,
    /// The file was truncated or overwritten.
    Broken,
}

impl Stamp {
    pub(super) fn of(path: &Path) -> io::Result<Stamp> {
        let file = std::fs::metadata(path)?;
        let beside = BESIDE.map(|suffix| identity(path, suffix));
        Ok(Stamp { path: path.to_owned(), device: file.dev(), inode: file.ino(), bytes: file.len(), beside })
    }

    /// Suffixes of its files that are still beside it, even if it is gone.
    pub(super) fn files_beside(&self) -> Vec<&'static str> {
        let is_left = |(suffix, was): &(&'static str, Option<_>)| was.is_some() && *was == identity(&self.path, suffix);
        BESIDE.into_iter().zip(self.beside).filter(is_left).map(|(suffix, _)| suffix).collect()
    }

    /// Checks the file.
    pub(super) fn fate(&mut self) -> Fate {
        let Ok(file) = std::fs::metadata(&self.path) else { return Fate::Gone };
        if (file.dev(), file.ino()) != (self.device, self.inode) {
            return Fate::Gone;
        }
        let is_shorter = file.len() < self.bytes && !is_complete(&self.path, file.len());
        if is_shorter || !begins_well(&self.path, &file) {
            return Fate::Broken;
        }
        self.bytes = file.len();
        Fate::InPlace
    }
}

/// Whether a file has all the pages that its header declares, as a vacuumed one has. Source: SQLite's file format, page
/// size at byte 16, number of pages at byte 28.
fn is_complete(path: &Path, bytes: u64) -> bool {
    let mut head = [0; 32];
    if files::open(path, Access::Read).and_then(|file| file.read_exact_at(&mut head, 0)).is_err() {
        return false;
    }
    let page_bytes = match u16::from_be_bytes([head[16], head[17]]) {
        1 => 65_536,
        bytes => u64::from(bytes),
    };
    let pages = u64::from(u32::from_be_bytes([head[28], head[29], head[30], head[31]]));
    pages > 0 && page_bytes > 0 && pages * page_bytes <= bytes
}

/// Device and inode of a file beside the database.
fn identity(path: &Path, suffix: &str) -> Option<(u64, u64)> {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    std::fs::metadata(name).ok().map(|file| (file.dev(), file.ino()))
}

/// Whether a file starts like a SQLite file; it is empty before the first checkpoint.
fn begins_well(path: &Path, metadata: &Metadata) -> bool {
    let mut magic = [0; MAGIC.len()];
    let read = files::open(path, Access::Read).and_then(|file| file.read_exact_at(&mut magic, 0));
    metadata.len() == 0 || (read.is_ok() && magic == *MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_notices_changed_files() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("x.db");
        let write = |text: &[u8]| std::fs::write(&path, text).expect("write");
        write(b"SQLite format 3\0 and more");
        let mut stamp = Stamp::of(&path).expect("it is there");
        assert_eq!(stamp.fate(), Fate::InPlace);
        write(b"SQLite format 3\0 and more and more");
        assert_eq!(stamp.fate(), Fate::InPlace);
        write(b"SQLite format 3\0 and more");
        assert_eq!(stamp.fate(), Fate::Broken);
        write(&[b'x'; 99]);
        assert_eq!(stamp.fate(), Fate::Broken);
        std::fs::rename(&path, dir.path().join("y.db")).expect("rename");
        assert_eq!(stamp.fate(), Fate::Gone);
        write(b"SQLite format 3\0 and more");
        assert_eq!(stamp.fate(), Fate::Gone);
    }

    #[test]
    fn files_beside_are_compared_by_inode() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = |name: &str| dir.path().join(name);
        for name in ["x.db", "x.db-wal", "x.db-shm"] {
            std::fs::write(path(name), "x").expect("write");
        }
        let stamp = Stamp::of(&path("x.db")).expect("it is there");
        std::fs::remove_file(path("x.db")).expect("remove");
        assert_eq!(stamp.files_beside(), ["-wal", "-shm"]);
        std::fs::write(path("y"), "y").expect("write");
        std::fs::rename(path("y"), path("x.db-wal")).expect("rename");
        assert_eq!(stamp.files_beside(), ["-shm"]);
    }
}
