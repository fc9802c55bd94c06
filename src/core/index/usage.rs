//! The tables of usage: a row for each turn, the account of each thread, and the last limits of the account. Rows add up in place,
//! in the transaction of the records that they come from.
//!
//! Retention deletes events and the rows of turns by age, and the usage of these turns stays. Beyond [`ROWS_MAX`] rows, the
//! oldest turns of a thread become one row.

use std::collections::BTreeMap;

use rusqlite::types::ToSql;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};
use serde::{Deserialize, Serialize};

use super::query::{History, HistoryError};
use crate::api::{Answered, Moment, RateLimitDocument, SessionUsage, ThreadUsage, Tokens, TurnUsage, UsageQuery, Used};
use crate::history::{Account, AnsweredBy, Counts, LimitRow, Rows, UsageRow, rfc3339_millis};
use crate::journal::Position;

/// Most rows of turns; of threads, half as many keep their accounts.
const ROWS_MAX: u64 = 20_000;

/// Rows that become one at a time.
const BATCH_ROWS: u64 = 500;

/// The migration that adds the tables.
///
/// A row of `codex_usage_turns` without a turn belongs to what a thread did outside of its turns, or to its oldest turns; the
/// generation of the latter is `older`. Times are in microseconds since the Unix epoch; only `resets_at` is in seconds.
pub(super) const TABLES: &str = "
    CREATE TABLE codex_usage_turns (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT NOT NULL,
        generation TEXT NOT NULL,
        thread_id TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        turns INTEGER NOT NULL,
        client TEXT,
        model TEXT,
        outcome TEXT,
        began_us INTEGER NOT NULL,
        elapsed_us INTEGER NOT NULL,
        waited_us INTEGER NOT NULL,
        input_tokens INTEGER NOT NULL,
        cached_input_tokens INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL,
        reasoning_output_tokens INTEGER NOT NULL,
        total_tokens INTEGER NOT NULL,
        commands INTEGER NOT NULL,
        requests INTEGER NOT NULL,
        answered_client INTEGER NOT NULL,
        answered_tui INTEGER NOT NULL,
        answered_cli INTEGER NOT NULL,
        answered_api INTEGER NOT NULL,
        answered_policy INTEGER NOT NULL,
        answered_nobody INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX codex_usage_turns_by_turn ON codex_usage_turns (thread_id, turn_id);
    CREATE TABLE codex_usage_threads (
        thread_id TEXT PRIMARY KEY,
        reported_us INTEGER NOT NULL,
        account TEXT NOT NULL
    ) STRICT;
    CREATE TABLE codex_usage_limits (
        name TEXT PRIMARY KEY,
        told_us INTEGER NOT NULL,
        used_percent INTEGER NOT NULL,
        window_minutes INTEGER,
        resets_at INTEGER
    ) STRICT;
    CREATE TABLE codex_usage_since (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        at_us INTEGER NOT NULL,
        is_start INTEGER NOT NULL
    ) STRICT;
";

/// The migration that counts the answers of the web page by themselves. Those before it are among `answered_api`.
pub(super) const OF_THE_PAGE: &str = "ALTER TABLE codex_usage_turns ADD COLUMN answered_web INTEGER NOT NULL DEFAULT 0";

const NEWEST: &str = "
    SELECT id, generation FROM codex_usage_turns WHERE thread_id = ?1 AND turn_id = ?2 AND generation <> 'older'
    ORDER BY id DESC LIMIT 1";

const INSERT: &str = "
    INSERT INTO codex_usage_turns (session_id, generation, thread_id, turn_id, turns, client, model, outcome, began_us,
        elapsed_us, waited_us, input_tokens, cached_input_tokens, output_tokens, reasoning_output_tokens, total_tokens,
        commands, requests, answered_client, answered_tui, answered_web, answered_cli, answered_api, answered_policy, answered_nobody)
    VALUES (?1, ?2, ?3, ?4, ?4 <> '', ?5, ?6, ?7, ?8, IIF(?4 = '', 0, ?9 - ?8), ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,
        ?18, ?19, ?20, ?21, ?22, ?23, ?24)";

/// A late row does not prolong a turn that has ended, unless it is the report of its end.
const ADD: &str = "
    UPDATE codex_usage_turns SET
        generation = IIF(generation = '', ?2, generation),
        client = IFNULL(client, ?5),
        model = IFNULL(model, ?6),
        outcome = IFNULL(?7, outcome),
        elapsed_us = IIF(turn_id <> '' AND (outcome IS NULL OR ?7 IS NOT NULL),
            MAX(elapsed_us + MAX(0, began_us - ?8), ?9 - MIN(began_us, ?8)), elapsed_us),
        began_us = MIN(began_us, ?8),
        waited_us = waited_us + ?10,
        input_tokens = input_tokens + ?11,
        cached_input_tokens = cached_input_tokens + ?12,
        output_tokens = output_tokens + ?13,
        reasoning_output_tokens = reasoning_output_tokens + ?14,
        total_tokens = total_tokens + ?15,
        commands = commands + ?16,
        requests = requests + ?17,
        answered_client = answered_client + ?18,
        answered_tui = answered_tui + ?19,
        answered_web = answered_web + ?20,
        answered_cli = answered_cli + ?21,
        answered_api = answered_api + ?22,
        answered_policy = answered_policy + ?23,
        answered_nobody = answered_nobody + ?24
    WHERE id = ?25";

const ACCOUNT: &str = "SELECT account FROM codex_usage_threads WHERE thread_id = ?1";

const COUNTED: &str = "
    SELECT IFNULL(SUM(input_tokens), 0), IFNULL(SUM(cached_input_tokens), 0), IFNULL(SUM(output_tokens), 0),
        IFNULL(SUM(reasoning_output_tokens), 0), IFNULL(SUM(total_tokens), 0)
    FROM codex_usage_turns WHERE thread_id = ?1";

const SET_ACCOUNT: &str = "
    INSERT OR REPLACE INTO codex_usage_threads (thread_id, reported_us, account) VALUES (?1, ?2, ?3)";

const SET_LIMIT: &str = "
    INSERT OR REPLACE INTO codex_usage_limits (name, told_us, used_percent, window_minutes, resets_at)
    VALUES (?1, ?2, ?3, ?4, ?5)";

const SINCE: &str = "SELECT at_us, is_start FROM codex_usage_since";

/// The record begins with the session only if no epoch of numbers had to begin anew.
const SET_SINCE: &str = "
    INSERT OR IGNORE INTO codex_usage_since (id, at_us, is_start)
    VALUES (1, ?1, ?2 AND NOT EXISTS (SELECT 1 FROM codex_event_epochs WHERE cause <> 'first'))";

/// Whether the first event ever is still there and is of this run of the child.
const BEGINS_WITH: &str =
    "SELECT IFNULL((SELECT seq = 1 AND generation = ?1 FROM codex_events ORDER BY seq LIMIT 1), 1)";

/// The stored form of an account.
#[derive(Serialize, Deserialize)]
struct Stored {
    total: Counts,
    before: Counts,
    unseen: Counts,
    set_back: Counts,
}

/// Stores the usage in `rows`.
pub(super) fn insert(transaction: &Transaction<'_>, session_id: &str, rows: &Rows) -> rusqlite::Result<()> {
    if let Some((Position { segment, .. }, at_us)) = &rows.counted_from {
        transaction.execute(SET_SINCE, params![*at_us as i64, segment.number == 1])?;
    }
    for row in &rows.usage {
        if let (Some(thread_id), Some(total)) = (&row.thread_id, row.total) {
            settle(transaction, thread_id, row, total)?;
        }
        if is_of_turn(row) {
            add(transaction, session_id, row)?;
        }
    }
    for LimitRow { name, at_us, used_percent, window_minutes, resets_at } in &rows.limits {
        let row = params![name, *at_us as i64, *used_percent as i64, signed(*window_minutes), signed(*resets_at)];
        transaction.prepare_cached(SET_LIMIT)?.execute(row)?;
    }
    Ok(())
}

/// Stores the usage of records that an older version has indexed without usage, unless the tables have some already.
pub(super) fn insert_again(transaction: &Transaction<'_>, session_id: &str, rows: &Rows) -> rusqlite::Result<()> {
    let is_counted = transaction.query_row(SINCE, [], |_| Ok(())).optional()?.is_some();
    let Some((Position { segment, .. }, at_us)) = rows.counted_from.as_ref().filter(|_| !is_counted) else {
        return Ok(());
    };
    let begins: bool = transaction.query_row(BEGINS_WITH, [segment.generation.as_str()], |row| row.get(0))?;
    transaction.execute(SET_SINCE, params![*at_us as i64, segment.number == 1 && begins])?;
    insert(transaction, session_id, rows)
}

/// Whether a row says more than the total of its thread.
fn is_of_turn(row: &UsageRow) -> bool {
    row.turn_id.is_some()
        || row.spent != Counts::default()
        || row.waited_us > 0
        || row.commands > 0
        || row.asked > 0
        || row.answered.is_some()
}

fn settle(transaction: &Transaction<'_>, thread_id: &str, row: &UsageRow, total: Counts) -> rusqlite::Result<()> {
    let known: Option<String> =
        transaction.prepare_cached(ACCOUNT)?.query_row([thread_id], |row| row.get(0)).optional()?;
    let known = known.and_then(|json| serde_json::from_str(&json).ok()).map(account);
    let known = match known {
        Some(known) => Some(known),
        None => counted_before(transaction, thread_id)?,
    };
    let Account { total, before, unseen, set_back } = Account::add(known, row.spent, total);
    let stored = serde_json::to_string(&Stored { total, before, unseen, set_back }).unwrap_or_default();
    transaction.prepare_cached(SET_ACCOUNT)?.execute(params![thread_id, row.at_us as i64, stored])?;
    Ok(())
}

/// The account of a thread whose account was forgotten, as far as the rows of its turns tell.
fn counted_before(transaction: &Transaction<'_>, thread_id: &str) -> rusqlite::Result<Option<Account>> {
    let n = |row: &Row<'_>, column| Ok::<_, rusqlite::Error>(number(row, column)?.min(i64::MAX.unsigned_abs()));
    let counts = |row: &Row<'_>| Ok::<[u64; 5], _>([n(row, 0)?, n(row, 1)?, n(row, 2)?, n(row, 3)?, n(row, 4)?]);
    let turns: Counts = transaction.prepare_cached(COUNTED)?.query_row([thread_id], counts)?.into();
    Ok((turns != Counts::default()).then(|| Account { total: turns, ..Account::default() }))
}

fn account(Stored { total, before, unseen, set_back }: Stored) -> Account {
    Account { total, before, unseen, set_back }
}

fn add(transaction: &Transaction<'_>, session_id: &str, row: &UsageRow) -> rusqlite::Result<()> {
    let (thread_id, turn_id) = (row.thread_id.as_deref().unwrap_or(""), row.turn_id.as_deref().unwrap_or(""));
    let found = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?));
    let newest = transaction.prepare_cached(NEWEST)?.query_row([thread_id, turn_id], found).optional()?;
    let is_its = |generation: &str| match &row.begins_in {
        Some(begins_in) => generation.is_empty() || generation == begins_in,
        None => true,
    };
    let newest = newest.filter(|(_, generation)| is_its(generation)).map(|(id, _)| id);
    let generation = row.begins_in.as_deref().unwrap_or("");
    let outcome = row.outcome.map(|outcome| outcome.name());
    let numbers = numbers(row);
    let began_us = row.began_us.unwrap_or(row.at_us).min(row.at_us) as i64;
    let at_us = row.at_us as i64;
    let mut values: Vec<&dyn ToSql> = vec![&session_id, &generation, &thread_id, &turn_id, &row.client, &row.model];
    values.extend([&outcome as &dyn ToSql, &began_us, &at_us]);
    values.extend(numbers.iter().map(|number| number as &dyn ToSql));
    match &newest {
        Some(id) => {
            values.push(id);
            transaction.prepare_cached(ADD)?.execute(&values[..])?
        }
        None => transaction.prepare_cached(INSERT)?.execute(&values[..])?,
    };
    Ok(())
}

/// The numbers that a row adds, in the order of the columns.
fn numbers(row: &UsageRow) -> Vec<i64> {
    let spent: [u64; 5] = row.spent.into();
    let answered = AnsweredBy::ALL.map(|by| u64::from(row.answered == Some(by)));
    let numbers = [row.waited_us].into_iter().chain(spent).chain([row.commands, row.asked]).chain(answered);
    numbers.map(|number| i64::try_from(number).unwrap_or(i64::MAX)).collect()
}

fn signed(number: Option<u64>) -> Option<i64> {
    number.and_then(|number| i64::try_from(number).ok())
}

const COUNT: &str = "SELECT COUNT(*) FROM codex_usage_turns";

/// Makes one row of the oldest ones that have the same thread, client and model. Threads whose accounts are forgotten have one
/// row together, without a thread.
const ROLL_UP: [&str; 2] = [
    "INSERT INTO codex_usage_turns (session_id, generation, thread_id, turn_id, turns, client, model, outcome, began_us,
        elapsed_us, waited_us, input_tokens, cached_input_tokens, output_tokens, reasoning_output_tokens, total_tokens,
        commands, requests, answered_client, answered_tui, answered_web, answered_cli, answered_api, answered_policy, answered_nobody)
    SELECT session_id, 'older', of_thread, '', SUM(turns), client, model, NULL, MIN(began_us), SUM(elapsed_us),
        SUM(waited_us), SUM(input_tokens), SUM(cached_input_tokens), SUM(output_tokens), SUM(reasoning_output_tokens),
        SUM(total_tokens), SUM(commands), SUM(requests), SUM(answered_client), SUM(answered_tui), SUM(answered_web),
        SUM(answered_cli), SUM(answered_api), SUM(answered_policy), SUM(answered_nobody)
    FROM (SELECT *, IIF(thread_id IN (SELECT thread_id FROM codex_usage_threads), thread_id, '') AS of_thread
        FROM codex_usage_turns WHERE id <= ?1)
    GROUP BY of_thread, client, model",
    "DELETE FROM codex_usage_turns WHERE id <= ?1",
];

const LAST_OF_BATCH: &str = "SELECT MAX(id) FROM (SELECT id FROM codex_usage_turns ORDER BY id LIMIT ?1)";

const FORGET_THREADS: &str = "
    DELETE FROM codex_usage_threads WHERE thread_id IN (
        SELECT thread_id FROM codex_usage_threads ORDER BY reported_us DESC LIMIT -1 OFFSET ?1)";

/// Brings the tables within their bound, one batch at a time. No sum changes.
pub(super) fn bound(connection: &Connection, rows_max: u64) -> rusqlite::Result<()> {
    let count: i64 = connection.prepare_cached(COUNT)?.query_row([], |row| row.get(0))?;
    if count.unsigned_abs() <= rows_max {
        return Ok(());
    }
    let transaction = connection.unchecked_transaction()?;
    let last: Option<i64> = transaction.query_row(LAST_OF_BATCH, [BATCH_ROWS as i64], |row| row.get(0))?;
    // A thread keeps a row for each client and model, so fewer threads than rows keep their names.
    transaction.execute(FORGET_THREADS, [(rows_max / 2) as i64])?;
    for sql in ROLL_UP {
        transaction.execute(sql, [last])?;
    }
    transaction.commit()
}

/// [`bound`] at the bound of this program.
pub(super) fn keep_within_bound(connection: &Connection) -> rusqlite::Result<()> {
    bound(connection, ROWS_MAX)
}

const TURNS: &str = "
    SELECT thread_id, turn_id, generation, client, model, outcome, began_us, turns, input_tokens, cached_input_tokens,
        output_tokens, reasoning_output_tokens, total_tokens, elapsed_us, waited_us, commands, requests, answered_client,
        answered_tui, answered_web, answered_cli, answered_api, answered_policy, answered_nobody
    FROM codex_usage_turns ORDER BY began_us, id";

const THREADS: &str = "SELECT thread_id, account FROM codex_usage_threads ORDER BY reported_us";

const LIMITS: &str = "
    SELECT name, told_us, used_percent, window_minutes, resets_at FROM codex_usage_limits ORDER BY name";

impl History {
    /// The usage of a session.
    pub fn usage(&self, query: &UsageQuery, opened: u64) -> Result<SessionUsage, HistoryError> {
        self.read(opened, |connection| {
            let connection = connection.unchecked_transaction()?;
            let since =
                connection.query_row(SINCE, [], |row| Ok((number(row, 0)?, row.get::<_, bool>(1)?))).optional()?;
            let turns: Vec<(u64, TurnUsage)> =
                connection.prepare_cached(TURNS)?.query_map([], turn)?.collect::<rusqlite::Result<_>>()?;
            let mut sums: BTreeMap<&str, Tokens> = BTreeMap::new();
            for (_, turn) in &turns {
                let thread_id = turn.thread_id.as_deref().unwrap_or("");
                sums.entry(thread_id).or_default().add(turn.used.tokens);
            }
            let thread = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
            let accounts: Vec<(String, String)> =
                connection.prepare_cached(THREADS)?.query_map([], thread)?.collect::<rusqlite::Result<_>>()?;
            let threads = accounts.into_iter().filter_map(|(thread_id, json)| {
                let account = account(serde_json::from_str(&json).ok()?);
                let turns = sums.get(&*thread_id).copied().unwrap_or_default();
                Some(ThreadUsage {
                    thread_id,
                    codex_total: account.total.into(),
                    turns,
                    before_record: account.before.into(),
                    not_on_record: account.unseen.into(),
                    set_back: account.set_back.into(),
                    adds_up: account.is_met_by(turns.counts()),
                })
            });
            let threads: Vec<ThreadUsage> = threads.collect();
            let is_meant = |began_us: u64| query.since.is_none_or(|Moment(since_us)| began_us >= since_us);
            let turns = turns.into_iter().filter(|(began_us, _)| is_meant(*began_us)).map(|(_, turn)| turn).collect();
            Ok(SessionUsage {
                counted_since: since.map(|(at_us, _)| rfc3339_millis(at_us)),
                from_start: since.is_some_and(|(_, is_start)| is_start),
                turns,
                threads,
                rate_limits: connection
                    .prepare_cached(LIMITS)?
                    .query_map([], limit)?
                    .collect::<rusqlite::Result<_>>()?,
            })
        })
    }
}

fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)?.try_into().unwrap_or(0))
}

fn turn(row: &Row<'_>) -> rusqlite::Result<(u64, TurnUsage)> {
    let id = |column| Ok::<_, rusqlite::Error>(Some(row.get::<_, String>(column)?).filter(|id| !id.is_empty()));
    let n = |column| number(row, column);
    let counts: Counts = [n(8)?, n(9)?, n(10)?, n(11)?, n(12)?].into();
    let (elapsed_us, waited_us, began_us) = (n(13)?, n(14)?, n(6)?);
    let answered_by =
        Answered { client: n(17)?, tui: n(18)?, web: n(19)?, cli: n(20)?, api: n(21)?, policy: n(22)?, nobody: n(23)? };
    let used = Used {
        turns: n(7)?,
        tokens: counts.into(),
        working_ms: elapsed_us.saturating_sub(waited_us) / 1_000,
        waiting_ms: waited_us / 1_000,
        commands: n(15)?,
        requests: n(16)?,
        answered_by,
    };
    let turn = TurnUsage {
        thread_id: id(0)?,
        turn_id: id(1)?,
        client: row.get(3)?,
        model: row.get(4)?,
        began_at: rfc3339_millis(began_us),
        outcome: row.get(5)?,
        older: row.get::<_, String>(2)? == "older",
        used,
    };
    Ok((began_us, turn))
}

fn limit(row: &Row<'_>) -> rusqlite::Result<RateLimitDocument> {
    let optional = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(i64::unsigned_abs));
    Ok(RateLimitDocument {
        name: row.get(0)?,
        told_at: rfc3339_millis(number(row, 1)?),
        used_percent: number(row, 2)?,
        window_minutes: optional(3)?,
        resets_at: optional(4)?.map(|seconds| rfc3339_millis(seconds.saturating_mul(1_000_000))),
    })
}
