//! The ledger's record of requests: one row each, and all answers.
//!
//! Every function runs in the caller's transaction. A row's end is written once, except that policy may still end an expired
//! one, that an answer which does not go to the server gives way to the one that does, or to none, and that a row is open again
//! if its answer is given up.

use std::time::SystemTime;

use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};
use serde_json::{Value, json};

use crate::api::{LEFT_OUT_FOR_SIZE, Request, StoredAnswer, WhichRequests};
use crate::engine::{
    AnswerBefore, GivenRow, LedgerEntry, OpenBefore, RequestEnd, RequestKind, RequestRow, RequestSource, RequestType,
    field_order, kept_result, request_digest,
};
use crate::history::rfc3339_millis;
use crate::invariants::holds;
use crate::protocol::{Method, of_name};

pub(super) const TABLES: &str = "
CREATE TABLE codex_pending_requests (
    request_id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL,
    process_generation TEXT NOT NULL,
    rpc_request_id TEXT NOT NULL,
    thread_id TEXT,
    turn_id TEXT,
    item_id TEXT,
    request_type TEXT NOT NULL,
    request_method TEXT NOT NULL,
    requested_at TEXT NOT NULL,
    expires_at TEXT,
    status TEXT NOT NULL,
    request_payload_json TEXT,
    resolved_payload_json TEXT,
    resolved_at TEXT,
    resolution_source TEXT,
    resolved_by TEXT,
    dispatched_at TEXT,
    confirmed_at TEXT,
    error_code TEXT,
    error_message TEXT,
    late INTEGER NOT NULL DEFAULT 0,
    changes_json TEXT,
    item_json TEXT,
    summary TEXT NOT NULL
) STRICT;
CREATE INDEX codex_pending_requests_by_status ON codex_pending_requests (status, requested_at);
CREATE TABLE codex_request_answers (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    request_id TEXT NOT NULL,
    at TEXT NOT NULL,
    source TEXT NOT NULL,
    by TEXT NOT NULL,
    payload_json TEXT NOT NULL,
    won INTEGER NOT NULL
) STRICT;
CREATE INDEX codex_request_answers_by_request ON codex_request_answers (request_id);
";

/// Why a request was declined, for the model.
pub(super) const REASON_COLUMN: &str = "ALTER TABLE codex_pending_requests ADD COLUMN reason TEXT;";

/// The rule that decides on a request, and the file of the program that it accepted.
pub(super) const RULE_COLUMNS: &str = "
ALTER TABLE codex_pending_requests ADD COLUMN rule TEXT;
ALTER TABLE codex_pending_requests ADD COLUMN program TEXT;
";

/// The run that new rows belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunIds {
    pub(super) session_id: String,
    /// The run of the server, to which its requests belong.
    pub(super) generation: String,
    /// The run of codex-shim, in which deliveries of context are numbered. A hub may have a server that is older.
    pub(super) own_run: String,
}

/// Most ended requests of a run that are loaded.
const ENDED_MAX: i64 = 10_000;

/// Most rows in a list of all requests.
const ROWS_MAX: i64 = 1_000;

/// Most rows in a list of pending requests; the engine has no more than that open.
const WAITING_ROWS_MAX: i64 = 10_000;

/// Most bytes of large columns in one list; beyond that, only a query for one row returns them.
const LIST_BYTES_MAX: usize = 8 << 20;

/// Columns that may be as large as a line.
const LARGE: [&str; 4] = ["request_payload_json", "resolved_payload_json", "changes_json", "item_json"];

/// Applies an entry about requests; returns how many rows changed, 0 for any other entry.
pub(super) fn keep(transaction: &Transaction<'_>, run: &RunIds, entry: &LedgerEntry) -> rusqlite::Result<usize> {
    const DISPATCHED: &str =
        "UPDATE codex_pending_requests SET dispatched_at = ?2 WHERE request_id = ?1 AND status = 'resolved'";
    const CONFIRMED: &str =
        "UPDATE codex_pending_requests SET confirmed_at = ?2 WHERE request_id = ?1 AND confirmed_at IS NULL";
    const UNCERTAIN: &str = "UPDATE codex_pending_requests SET error_code = 'outcome_unknown',
        error_message = 'the server needs no answer any more, and has not confirmed this one' WHERE request_id = ?1 AND confirmed_at IS NULL";
    const EXPIRED: &str = "UPDATE codex_pending_requests SET status = 'expired', error_code = 'request_expired',
        error_message = 'nobody answered in time', resolution_source = 'policy', resolved_at = ?2
        WHERE request_id = ?1 AND status = 'pending'";
    const REOPENED: &str =
        "UPDATE codex_pending_requests SET status = 'pending', resolved_at = NULL, resolution_source = NULL,
        resolved_by = NULL, resolved_payload_json = NULL, error_code = NULL, error_message = NULL, program = NULL,
        reason = NULL, dispatched_at = NULL
        WHERE request_id = ?1 AND status = 'resolved' AND resolved_by = ?2";
    const NOT_SENT: &str = "UPDATE codex_request_answers SET won = 0 WHERE request_id = ?1 AND by = ?2";
    const LATE: &str = "UPDATE codex_pending_requests SET late = 1 WHERE request_id = ?1";
    const SHOWN: &str = "UPDATE codex_pending_requests SET changes_json = ?2, summary = ?3 WHERE request_id = ?1";
    match entry {
        LedgerEntry::RequestOpened(row) => open(transaction, run, row),
        LedgerEntry::RequestEnded(ended) => end(transaction, ended),
        LedgerEntry::AnswerLost(given) => add_answer(transaction, given, false),
        LedgerEntry::RequestExpired { request_id, at_us } => {
            set(transaction, EXPIRED, params![request_id, rfc3339_millis(*at_us)])
        }
        LedgerEntry::RequestDispatched { request_id, at_us } => {
            let sent = set(transaction, DISPATCHED, params![request_id, rfc3339_millis(*at_us)])?;
            holds!("ledger.sent-answer-is-stored", sent == 0 || has_answer(transaction, request_id)?);
            Ok(sent)
        }
        LedgerEntry::RequestConfirmed { request_id, at_us } => {
            set(transaction, CONFIRMED, params![request_id, rfc3339_millis(*at_us)])
        }
        LedgerEntry::RequestUncertain { request_id, at_us: _ } => set(transaction, UNCERTAIN, params![request_id]),
        LedgerEntry::RequestReopened { request_id, by } => {
            let reopened = set(transaction, REOPENED, params![request_id, by])?;
            if reopened > 0 {
                set(transaction, NOT_SENT, params![request_id, by])?;
            }
            Ok(reopened)
        }
        LedgerEntry::RequestLate { request_id } => set(transaction, LATE, params![request_id]),
        LedgerEntry::RequestShown { request_id, changes, summary } => {
            set(transaction, SHOWN, params![request_id, changes, summary])
        }
        LedgerEntry::DenialOverruled(_)
        | LedgerEntry::Sent(_)
        | LedgerEntry::Settled { .. }
        | LedgerEntry::TurnNamed { .. }
        | LedgerEntry::ThreadSeen { .. }
        | LedgerEntry::ThreadBegan { .. }
        | LedgerEntry::FragmentsSent { .. }
        | LedgerEntry::EpochShown { .. }
        | LedgerEntry::ThreadCompacted { .. } => Ok(0),
    }
}

/// Whether a row has an answer.
fn has_answer(transaction: &Transaction<'_>, request_id: &str) -> rusqlite::Result<bool> {
    const SQL: &str = "SELECT resolved_payload_json IS NOT NULL FROM codex_pending_requests WHERE request_id = ?1";
    transaction.prepare_cached(SQL)?.query_row([request_id], |row| row.get(0))
}

/// How many answers of a row have won.
fn winners(transaction: &Transaction<'_>, request_id: &str) -> rusqlite::Result<u64> {
    const SQL: &str = "SELECT count(*) FROM codex_request_answers WHERE request_id = ?1 AND won = 1";
    transaction.prepare_cached(SQL)?.query_row([request_id], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
}

/// Applies one statement about one request; returns how many rows changed.
fn set(transaction: &Transaction<'_>, sql: &str, values: impl rusqlite::Params) -> rusqlite::Result<usize> {
    transaction.prepare_cached(sql)?.execute(values)
}

fn open(transaction: &Transaction<'_>, run: &RunIds, row: &RequestRow) -> rusqlite::Result<usize> {
    // A conflict means that an earlier commit succeeded but was not confirmed.
    const SQL: &str = "INSERT INTO codex_pending_requests (request_id, session_id, process_generation, rpc_request_id,
        thread_id, turn_id, item_id, request_type, request_method, requested_at, expires_at, status,
        request_payload_json, late, changes_json, item_json, summary, rule)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 'pending', ?12, ?13, ?14, ?15, ?16, ?17)
        ON CONFLICT DO NOTHING";
    let values = params![
        row.request_id,
        run.session_id,
        run.generation,
        row.rpc_request_id,
        row.place.thread_id,
        row.place.turn_id,
        row.place.item_id,
        row.kind.request_type().name(),
        row.method,
        rfc3339_millis(row.requested_at_us),
        row.expires_at_us.map(rfc3339_millis),
        row.payload,
        row.late,
        row.changes,
        row.item,
        row.summary,
        row.rule,
    ];
    set(transaction, SQL, values)
}

fn end(transaction: &Transaction<'_>, ended: &RequestEnd) -> rusqlite::Result<usize> {
    const SQL: &str = "UPDATE codex_pending_requests SET status = ?2, resolved_at = ?3, resolution_source = ?4,
        resolved_by = ?5, resolved_payload_json = ?6, error_code = ?7, error_message = ?8, late = late OR ?9, program = ?10,
        reason = ?12, dispatched_at = CASE WHEN ?11 THEN NULL ELSE dispatched_at END,
        confirmed_at = CASE WHEN ?11 THEN NULL ELSE confirmed_at END
        WHERE request_id = ?1 AND (status IN ('pending', 'expired') OR ?11 AND status = 'resolved')";
    const LOST: &str = "UPDATE codex_request_answers SET won = 0 WHERE request_id = ?1";
    if ended.instead {
        set(transaction, LOST, params![ended.request_id])?;
    }
    let (code, message) = ended.error.unzip();
    let values = params![
        ended.request_id,
        ended.status.name(),
        rfc3339_millis(ended.at_us),
        ended.source.name(),
        ended.by,
        ended.payload,
        code,
        message,
        ended.late,
        ended.program,
        ended.instead,
        ended.reason,
    ];
    let moved = transaction.prepare_cached(SQL)?.execute(values)?;
    match (&ended.payload, &ended.by) {
        (Some(payload), Some(by)) if moved > 0 => {
            let (request_id, payload, by) = (ended.request_id.clone(), payload.clone(), by.clone());
            let given = GivenRow { request_id, at_us: ended.at_us, source: ended.source, by, payload };
            add_answer(transaction, &given, true)?;
            holds!("ledger.row-has-one-winner", winners(transaction, &given.request_id)? == 1);
        }
        (Some(_), Some(_)) | (Some(_), None) | (None, _) => {}
    }
    Ok(moved)
}

fn add_answer(transaction: &Transaction<'_>, given: &GivenRow, won: bool) -> rusqlite::Result<usize> {
    const SQL: &str = "INSERT INTO codex_request_answers (request_id, at, source, by, payload_json, won)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    set(
        transaction,
        SQL,
        params![given.request_id, rfc3339_millis(given.at_us), given.source.name(), given.by, given.payload, won],
    )
}

/// How often a rule matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleUse {
    pub rule: String,
    pub matched: u64,
    /// How many of these requests it answered.
    pub answered: u64,
    /// The time of the last one that arrived.
    pub last_at: String,
}

/// How often each rule matched since that time; nothing if no rule could when the ledger was last written.
pub(super) fn rule_uses(connection: &Connection, since: &str) -> rusqlite::Result<Vec<RuleUse>> {
    // SQLite takes the time from the row with the highest number.
    const SQL: &str = "SELECT rule, count(*), total(resolved_by IS 'rule:' || rule), requested_at, max(rowid)
        FROM codex_pending_requests WHERE rule IS NOT NULL AND requested_at >= ?1 GROUP BY rule";
    if !connection.column_exists(None, "codex_pending_requests", "rule")? {
        return Ok(Vec::new());
    }
    let read = |row: &Row<'_>| {
        Ok(RuleUse {
            rule: row.get(0)?,
            matched: row.get::<_, i64>(1)? as u64,
            answered: row.get::<_, f64>(2)? as u64,
            last_at: row.get(3)?,
        })
    };
    connection.prepare(SQL)?.query_map([since], read)?.collect()
}

/// A request of the past with the answer that it got.
#[derive(Debug, Clone, PartialEq)]
pub struct PastRow {
    /// The columns of the question; the others are empty.
    pub request: Request,
    /// The answer that counts, as it is stored.
    pub answer: Option<String>,
    pub source: Option<String>,
    pub by: Option<String>,
}

/// Passes the requests since a time to `take`, oldest first.
pub(super) fn past(connection: &Connection, since: &str, mut take: impl FnMut(PastRow)) -> rusqlite::Result<()> {
    const SQL: &str = "SELECT requested_at, request_id, thread_id, request_type, request_method, summary,
        request_payload_json, item_json, changes_json, resolved_payload_json, resolution_source, resolved_by
        FROM codex_pending_requests WHERE requested_at >= ?1 ORDER BY rowid";
    let mut select = connection.prepare(SQL)?;
    let mut rows = select.query([since])?;
    while let Some(row) = rows.next()? {
        let json = |at: usize| -> rusqlite::Result<Value> {
            let text: Option<String> = row.get(at)?;
            Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
        };
        let request = Request {
            requested_at: row.get(0)?,
            request_id: row.get(1)?,
            thread_id: row.get(2)?,
            request_type: row.get(3)?,
            request_method: row.get(4)?,
            summary: row.get(5)?,
            request_payload: json(6)?,
            item: json(7)?,
            changes: json(8)?,
            ..Request::default()
        };
        take(PastRow { request, answer: row.get(9)?, source: row.get(10)?, by: row.get(11)? });
    }
    Ok(())
}

/// The questions about a budget that were answered since a time, and their answers.
pub(super) fn budget_answers(connection: &Connection, since: &str) -> rusqlite::Result<Vec<(String, String)>> {
    const SQL: &str = "SELECT request_payload_json, resolved_payload_json FROM codex_pending_requests
        WHERE status = 'resolved' AND request_method = ?1 AND resolved_at >= ?2 AND resolved_payload_json IS NOT NULL
        AND request_payload_json IS NOT NULL";
    if !connection.table_exists(None, "codex_pending_requests")? {
        return Ok(Vec::new());
    }
    let mut select = connection.prepare(SQL)?;
    select.query_map([Method::BudgetQuestion.name(), since], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// The requests about these items, oldest first, with the columns of their ends.
pub(super) fn of_items(
    connection: &Connection,
    is_meant: impl Fn(&str, &str) -> bool,
) -> rusqlite::Result<Vec<Request>> {
    const ITEMS: &str =
        "SELECT rowid, thread_id, item_id FROM codex_pending_requests WHERE item_id IS NOT NULL ORDER BY rowid";
    const END: &str =
        "SELECT request_id, request_method, status, resolved_payload_json, resolved_at, resolution_source,
        resolved_by, error_code, thread_id, item_id FROM codex_pending_requests WHERE rowid = ?1 + 0";
    let end = |row: &Row<'_>| {
        let payload: Option<String> = row.get(3)?;
        Ok(Request {
            request_id: row.get(0)?,
            request_method: row.get(1)?,
            status: row.get(2)?,
            resolved_payload: payload.as_deref().map(parsed).unwrap_or_default(),
            resolved_at: row.get(4)?,
            resolution_source: row.get(5)?,
            resolved_by: row.get(6)?,
            error_code: row.get(7)?,
            thread_id: row.get(8)?,
            item_id: row.get(9)?,
            ..Request::default()
        })
    };
    if !connection.table_exists(None, "codex_pending_requests")? {
        return Ok(Vec::new());
    }
    let (mut items, mut ends) = (connection.prepare(ITEMS)?, connection.prepare(END)?);
    let (mut rows, mut found) = (items.query([])?, Vec::new());
    while let Some(row) = rows.next()? {
        let thread_id = row.get_ref(1)?.as_str_or_null()?.unwrap_or_default();
        if is_meant(thread_id, row.get_ref(2)?.as_str()?) {
            found.push(ends.query_row([row.get::<_, i64>(0)?], end)?);
        }
    }
    Ok(found)
}

/// Marks requests that earlier runs left open as orphaned. Only the holder of the session may call this.
pub(super) fn orphan_earlier(transaction: &Transaction<'_>, run: &RunIds, at_us: u64) -> rusqlite::Result<usize> {
    const SQL: &str = "UPDATE codex_pending_requests SET status = 'orphaned', error_code = 'server_restarted',
        error_message = 'the server was started anew before there was an answer', resolution_source = 'policy',
        resolved_at = ?2 WHERE status IN ('pending', 'expired') AND process_generation <> ?1";
    set(transaction, SQL, params![run.generation, rfc3339_millis(at_us)])
}

/// Names of requests of a run that have ended, at most [`ENDED_MAX`]. There are none before a run begins, unless a hub has taken
/// over a server.
pub(super) fn ended_in(transaction: &Transaction<'_>, generation: &str) -> rusqlite::Result<Vec<String>> {
    const SQL: &str = "SELECT request_id FROM codex_pending_requests
        WHERE process_generation = ?1 AND status NOT IN ('pending', 'expired') ORDER BY rowid DESC LIMIT ?2";
    transaction.prepare(SQL)?.query_map(params![generation, ENDED_MAX], |row| row.get(0))?.collect()
}

/// The requests of a run that are open, or whose answers the server has not confirmed; the newest first, at most
/// [`ENDED_MAX`].
pub(super) fn open_in(transaction: &Transaction<'_>, generation: &str) -> rusqlite::Result<Vec<OpenBefore>> {
    const SQL: &str = "SELECT request_id, rpc_request_id, thread_id, turn_id, request_type, request_method,
        request_payload_json, status, resolved_payload_json, resolved_at, resolution_source, resolved_by, dispatched_at,
        reason FROM codex_pending_requests WHERE process_generation = ?1 AND (status IN ('pending', 'expired')
        OR status = 'resolved' AND resolved_payload_json IS NOT NULL AND confirmed_at IS NULL
            AND error_code IS NOT 'outcome_unknown')
        ORDER BY rowid DESC LIMIT ?2";
    let read = |row: &Row<'_>| {
        Ok(OpenBefore {
            request_id: row.get(0)?,
            rpc_request_id: row.get(1)?,
            thread_id: row.get(2)?,
            turn_id: row.get(3)?,
            is_for_human: row.get::<_, String>(4)? != RequestType::Other.name(),
            digest: request_digest(&row.get::<_, String>(5)?, row.get::<_, Option<String>>(6)?.as_deref()),
            answer: if row.get::<_, String>(7)? == "resolved" { answer_before(row)? } else { None },
        })
    };
    transaction.prepare(SQL)?.query_map(params![generation, ENDED_MAX], read)?.collect()
}

fn unix_us(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

/// The answer of a row of [`open_in`].
fn answer_before(row: &Row<'_>) -> rusqlite::Result<Option<AnswerBefore>> {
    let at: Option<String> = row.get(9)?;
    let source: Option<String> = row.get(10)?;
    Ok(Some(AnswerBefore {
        payload: row.get(8)?,
        at_us: at.and_then(|at| humantime::parse_rfc3339(&at).ok()).map(unix_us).unwrap_or_default(),
        source: source.and_then(|source| of_name(&source)).unwrap_or(RequestSource::Policy),
        by: row.get::<_, Option<String>>(11)?.unwrap_or_default(),
        reason: row.get(13)?,
        is_dispatched: row.get::<_, Option<String>>(12)?.is_some(),
    }))
}

/// The runs that have open requests.
pub(super) fn open_runs(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    const SQL: &str =
        "SELECT DISTINCT process_generation FROM codex_pending_requests WHERE status IN ('pending', 'expired')";
    connection.prepare(SQL)?.query_map([], |row| row.get(0))?.collect()
}

/// Marks the open requests of these runs, which are known to be over, as orphaned.
pub(super) fn orphan_runs(transaction: &Transaction<'_>, runs: &[String], at_us: u64) -> rusqlite::Result<usize> {
    const SQL: &str = "UPDATE codex_pending_requests SET status = 'orphaned', error_code = 'server_restarted',
        error_message = 'the relay ended before there was an answer', resolution_source = 'policy', resolved_at = ?2
        WHERE status IN ('pending', 'expired') AND process_generation = ?1";
    runs.iter().map(|run| set(transaction, SQL, params![run, rfc3339_millis(at_us)])).sum()
}

/// Marks all open requests of a ledger that was restored from a backup of that time as orphaned: their server is not there.
pub(super) fn orphan_restored(transaction: &Transaction<'_>, complete_to: &str, at_us: u64) -> rusqlite::Result<usize> {
    const SQL: &str = "UPDATE codex_pending_requests SET status = 'orphaned', error_code = 'server_restarted',
        error_message = 'the session was restored from a backup that is complete up to ' || ?1 || '; a later answer is not in it',
        resolution_source = 'policy', resolved_at = ?2 WHERE status IN ('pending', 'expired')";
    set(transaction, SQL, params![complete_to, rfc3339_millis(at_us)])
}

/// Requests in the order of their arrival, oldest first, whatever the wall clock was set to. Large values are replaced by `{"omitted":"size"}` once newer rows have used up the room.
pub(super) fn rows(transaction: &Transaction<'_>, which: WhichRequests) -> rusqlite::Result<Vec<Request>> {
    let (wanted, rows_max) = match which {
        WhichRequests::Pending => ("WHERE status = 'pending'", WAITING_ROWS_MAX),
        WhichRequests::PendingAndOrphaned => ("WHERE status IN ('pending', 'orphaned')", WAITING_ROWS_MAX),
        WhichRequests::All => ("", ROWS_MAX),
    };
    let sql = format!("SELECT * FROM codex_pending_requests {wanted} ORDER BY rowid DESC LIMIT ?1");
    let mut statement = transaction.prepare_cached(&sql)?;
    let mut room = LIST_BYTES_MAX;
    let mut rows: Vec<Request> =
        statement.query_map([rows_max], |row| request(row, &mut room))?.collect::<Result<_, _>>()?;
    rows.reverse();
    Ok(rows)
}

pub(super) fn row(transaction: &Transaction<'_>, request_id: &str) -> rusqlite::Result<Option<Request>> {
    const SQL: &str = "SELECT * FROM codex_pending_requests WHERE request_id = ?1";
    let mut room = usize::MAX;
    transaction.prepare_cached(SQL)?.query_row([request_id], |row| request(row, &mut room)).optional()
}

/// The answers to a request, oldest first.
pub(super) fn answers(transaction: &Transaction<'_>, request_id: &str) -> rusqlite::Result<Vec<StoredAnswer>> {
    const SQL: &str =
        "SELECT at, source, by, payload_json, won FROM codex_request_answers WHERE request_id = ?1 ORDER BY id";
    let answer = |row: &Row<'_>| {
        let (at, source, by) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(StoredAnswer { at, source, by, payload: parsed(&row.get::<_, String>(3)?), won: row.get(4)? })
    };
    transaction.prepare_cached(SQL)?.query_map([request_id], answer)?.collect()
}

/// Stores an answer that came too late; returns the request.
pub(super) fn answer_late(transaction: &Transaction<'_>, given: &GivenRow) -> rusqlite::Result<Option<Request>> {
    let Some(row) = row(transaction, &given.request_id)? else { return Ok(None) };
    if row.is_resolved() {
        let kind = RequestKind::of(&row.request_method).unwrap_or(RequestKind::Other);
        let payload = kept_result(kind, &row.request_payload.to_string(), &given.payload);
        add_answer(transaction, &GivenRow { payload, ..given.clone() }, false)?;
    }
    Ok(Some(row))
}

/// The request of a row. `room` is the number of bytes left for large values.
fn request(row: &Row<'_>, room: &mut usize) -> rusqlite::Result<Request> {
    let text = |name: &str| -> rusqlite::Result<Option<String>> {
        Ok(row.get_ref(name)?.as_bytes_or_null()?.map(|text| String::from_utf8_lossy(text).into_owned()))
    };
    let word = |name: &str| text(name).map(Option::unwrap_or_default);
    // A ledger of an older version does not have the column.
    let later = |name: &str| row.as_ref().column_index(name).is_ok().then(|| text(name)).transpose();
    // Of a list, the columns share the room in this order.
    let [request_payload, resolved_payload, changes, item] = LARGE;
    let schema = text(request_payload)?;
    let mut large = |name: &str| -> rusqlite::Result<Value> {
        let Some(text) = text(name)? else { return Ok(Value::Null) };
        Ok(match room.checked_sub(text.len()) {
            None => json!({ "omitted": LEFT_OUT_FOR_SIZE }),
            Some(left) => {
                *room = left;
                parsed(&text)
            }
        })
    };
    let request_payload = large(request_payload)?;
    // Parsed JSON has lost the order in which the schema defines its fields.
    let has_form = request_payload.get("requestedSchema").is_some_and(|schema| !schema.is_null());
    let order = |payload: String| serde_json::from_str(&payload).map(field_order).unwrap_or_default();
    Ok(Request {
        field_order: schema.filter(|_| has_form).map(order),
        request_payload,
        resolved_payload: large(resolved_payload)?,
        changes: large(changes)?,
        item: large(item)?,
        confirmed_at: text("confirmed_at")?,
        dispatched_at: text("dispatched_at")?,
        error_code: text("error_code")?,
        error_message: text("error_message")?,
        expires_at: text("expires_at")?,
        item_id: text("item_id")?,
        late: row.get("late")?,
        process_generation: word("process_generation")?,
        program: later("program")?,
        reason: later("reason")?,
        request_id: word("request_id")?,
        request_method: word("request_method")?,
        request_type: word("request_type")?,
        requested_at: word("requested_at")?,
        resolution_source: text("resolution_source")?,
        resolved_at: text("resolved_at")?,
        resolved_by: text("resolved_by")?,
        rpc_request_id: parsed(&word("rpc_request_id")?),
        rule: later("rule")?,
        session_id: word("session_id")?,
        status: word("status")?,
        summary: word("summary")?,
        thread_id: text("thread_id")?,
        turn_id: text("turn_id")?,
        ..Request::default()
    })
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|_| json!(json))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::RequestStatus;
    use crate::protocol::ItemPlace;

    fn ledger() -> Connection {
        let connection = Connection::open_in_memory().expect("BUG: a database in memory");
        connection.execute_batch(&format!("{TABLES}{RULE_COLUMNS}{REASON_COLUMN}")).expect("BUG: our own SQL");
        connection
    }

    fn keep_all(connection: &mut Connection, entries: &[LedgerEntry]) -> usize {
        let run = RunIds { session_id: "s".to_owned(), generation: "g".to_owned(), own_run: "g".to_owned() };
        let transaction = connection.transaction().expect("BUG: a transaction");
        let changed = entries.iter().map(|entry| keep(&transaction, &run, entry).expect("it is stored")).sum();
        transaction.commit().expect("it is stored");
        changed
    }

    fn opened() -> LedgerEntry {
        LedgerEntry::RequestOpened(Box::new(RequestRow {
            request_id: "g-0".to_owned(),
            rpc_request_id: "0".to_owned(),
            place: ItemPlace::default(),
            kind: RequestKind::Command,
            method: "m".to_owned(),
            requested_at_us: 1_000,
            expires_at_us: None,
            payload: None,
            changes: None,
            item: None,
            summary: "ls".to_owned(),
            late: false,
            rule: Some("status".to_owned()),
        }))
    }

    fn answered(source: RequestSource, by: &str, instead: bool) -> LedgerEntry {
        let given = GivenRow {
            request_id: "g-0".to_owned(),
            at_us: 2_000,
            source,
            by: by.to_owned(),
            payload: "{}".to_owned(),
        };
        let program = Some("/bin/ls".to_owned()).filter(|_| source == RequestSource::Policy);
        let end = RequestEnd::answered(given, RequestStatus::Resolved);
        LedgerEntry::RequestEnded(Box::new(RequestEnd { program, instead, ..end }))
    }

    #[test]
    fn answer_that_is_given_up_is_taken_back() {
        let mut connection = ledger();
        let reopened = || LedgerEntry::RequestReopened { request_id: "g-0".to_owned(), by: "rule:status".to_owned() };
        let told = |connection: &mut Connection| {
            let transaction = connection.transaction().expect("BUG: a transaction");
            let row = row(&transaction, "g-0").expect("it can be read").expect("it is there");
            let won: Vec<bool> =
                answers(&transaction, "g-0").expect("they can be read").iter().map(|one| one.won).collect();
            (row.status, row.resolved_by, row.program.flatten(), won)
        };
        let pending = |won: Vec<bool>| ("pending".to_owned(), None, None, won);
        // It was not stored.
        assert_eq!(keep_all(&mut connection, &[opened(), reopened()]), 1);
        assert_eq!(told(&mut connection), pending(vec![]));
        assert_eq!(keep_all(&mut connection, &[answered(RequestSource::Policy, "rule:status", false), reopened()]), 2);
        assert_eq!(told(&mut connection), pending(vec![false]));
        // Another answer stays.
        assert_eq!(keep_all(&mut connection, &[answered(RequestSource::Client, "ide", true), reopened()]), 1);
        let won = vec![false, true];
        assert_eq!(told(&mut connection), ("resolved".to_owned(), Some("ide".to_owned()), None, won));
    }

    #[test]
    fn last_use_of_a_rule_is_the_last_that_arrived() {
        let mut connection = ledger();
        for (number, at_us) in [(0, 1_000), (1, 9_000_000), (2, 5_000_000)] {
            let LedgerEntry::RequestOpened(mut row) = opened() else { unreachable!("BUG: it opens a request") };
            (row.request_id, row.requested_at_us) = (format!("g-{number}"), at_us);
            keep_all(&mut connection, &[LedgerEntry::RequestOpened(row)]);
        }
        let used = |since_us: u64| {
            let uses = rule_uses(&connection, &rfc3339_millis(since_us)).expect("they can be read");
            uses.into_iter().map(|of| (of.matched, of.last_at)).collect::<Vec<_>>()
        };
        assert_eq!(used(0), [(3, rfc3339_millis(5_000_000))]);
        // A time that the user names is one of the wall clock.
        assert_eq!(used(6_000_000), [(1, rfc3339_millis(9_000_000))]);
    }
}
