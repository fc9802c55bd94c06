//! The table of uses of the protocol by clients: a row for each client, version, method, member and value. Rows add up in place, in the
//! transaction of the records that they come from.

use rusqlite::{Connection, Row, Transaction, params};

use super::query::{History, HistoryError};
use crate::api::{ClientUse, ClientUsesDocument, ClientUsesQuery, Moment};
use crate::history::{ClientUseKey, ClientUsed, Rows, rfc3339_millis};
use crate::protocol::of_name;
use crate::secrets::Masker;
use crate::store::RunMode;

/// Most rows. Beyond it, the client that was used least recently loses its rows.
const ROWS_MAX: u64 = 20_000;

/// The migration that adds the table. Times are in microseconds since the Unix epoch.
pub(super) const SCHEMA: &str = "
    CREATE TABLE codex_client_uses (
        client TEXT NOT NULL,
        version TEXT NOT NULL,
        kind TEXT NOT NULL,
        method TEXT NOT NULL,
        member TEXT NOT NULL,
        value TEXT NOT NULL,
        count INTEGER NOT NULL,
        last_used_us INTEGER NOT NULL,
        PRIMARY KEY (client, version, kind, method, member, value)
    ) STRICT, WITHOUT ROWID;
";

const ADD: &str = "
    INSERT INTO codex_client_uses (client, version, kind, method, member, value, count, last_used_us)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT DO UPDATE SET count = count + ?7, last_used_us = MAX(last_used_us, ?8)";

const COUNT: &str = "SELECT COUNT(*) FROM codex_client_uses";

/// The client that was there longest ago goes as a whole, because its counts are compared.
const FORGET: &str = "
    DELETE FROM codex_client_uses WHERE (client, version) IN (
        SELECT client, version FROM codex_client_uses GROUP BY client, version ORDER BY MAX(last_used_us) LIMIT 1)";

/// All uses of the methods that were used since, because their counts are compared.
const SINCE: &str = "
    SELECT client, version, kind, method, member, value, count, last_used_us FROM codex_client_uses
    WHERE (client, version, kind, method) IN (
        SELECT client, version, kind, method FROM codex_client_uses WHERE last_used_us >= ?1)";

const ALL: &str = "SELECT client, version, kind, method, member, value FROM codex_client_uses";

const DELETE: &str = "
    DELETE FROM codex_client_uses
    WHERE client = ?1 AND version = ?2 AND kind = ?3 AND method = ?4 AND member = ?5 AND value = ?6";

/// Stores the uses in `rows`.
pub(super) fn insert(transaction: &Transaction<'_>, rows: &Rows) -> rusqlite::Result<()> {
    for (ClientUseKey { client, version, kind, method, member, value }, ClientUsed { count, last_us }) in &rows.uses {
        let row = params![client, version, kind.name(), method, member, value, *count as i64, *last_us as i64];
        transaction.prepare_cached(ADD)?.execute(row)?;
    }
    Ok(())
}

/// Stores the uses of records that an older version has indexed without them, unless the table has some already.
pub(super) fn insert_again(transaction: &Transaction<'_>, rows: &Rows) -> rusqlite::Result<()> {
    let count: i64 = transaction.query_row(COUNT, [], |row| row.get(0))?;
    if count == 0 { insert(transaction, rows) } else { Ok(()) }
}

/// Brings the table within its bound.
pub(super) fn keep_within_bound(connection: &Connection) -> rusqlite::Result<()> {
    bound(connection, ROWS_MAX)
}

fn bound(connection: &Connection, rows_max: u64) -> rusqlite::Result<()> {
    let count: i64 = connection.prepare_cached(COUNT)?.query_row([], |row| row.get(0))?;
    if count.unsigned_abs() > rows_max {
        connection.prepare_cached(FORGET)?.execute([])?;
    }
    Ok(())
}

/// Counts the rows with a secret, and deletes them if `mode` says so.
pub(super) fn redact(connection: &Connection, masker: &Masker, mode: RunMode) -> rusqlite::Result<u64> {
    if !connection.table_exists(None, "codex_client_uses")? {
        return Ok(0);
    }
    let mut select = connection.prepare(ALL)?;
    let texts = |row: &Row<'_>| (0..6).map(|column| row.get(column)).collect::<rusqlite::Result<Vec<String>>>();
    let rows: Vec<Vec<String>> = select.query_map([], texts)?.collect::<rusqlite::Result<_>>()?;
    let secret: Vec<Vec<String>> =
        rows.into_iter().filter(|row| row.iter().any(|text| masker.text(text).is_some())).collect();
    if mode == RunMode::Apply {
        for row in &secret {
            connection.execute(DELETE, rusqlite::params_from_iter(row))?;
        }
    }
    Ok(secret.len() as u64)
}

impl History {
    /// The uses of the protocol by the clients of a session. A history of an older version has none.
    pub fn client_uses(&self, query: &ClientUsesQuery, opened: u64) -> Result<ClientUsesDocument, HistoryError> {
        let since_us = query.since.map_or(0, |Moment(since_us)| since_us);
        self.read(opened, |connection| {
            if !connection.table_exists(None, "codex_client_uses")? {
                return Ok(ClientUsesDocument::default());
            }
            let mut select = connection.prepare_cached(SINCE)?;
            let uses = select.query_map([since_us as i64], client_use)?.filter_map(Result::transpose);
            Ok(ClientUsesDocument { uses: uses.collect::<rusqlite::Result<_>>()? })
        })
    }
}

/// `None` if only a newer version knows the kind.
fn client_use(row: &Row<'_>) -> rusqlite::Result<Option<ClientUse>> {
    let number = |column| Ok::<_, rusqlite::Error>(row.get::<_, i64>(column)?.unsigned_abs());
    let Some(kind) = of_name(&row.get::<_, String>(2)?) else { return Ok(None) };
    Ok(Some(ClientUse {
        client: row.get(0)?,
        version: row.get(1)?,
        kind,
        method: row.get(3)?,
        member: row.get(4)?,
        value: row.get(5)?,
        count: number(6)?,
        last_used_at: rfc3339_millis(number(7)?),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::ClientUseKind;

    #[test]
    fn uses_add_up_and_are_bounded() {
        let mut connection = Connection::open_in_memory().expect("BUG: SQLite works");
        connection.execute_batch(SCHEMA).expect("BUG: the schema is valid");
        let mut add = |member: &str, last_us: u64| {
            let mut rows = Rows::default();
            let [client, version, method, value] = ["c", "1", "m", ""].map(str::to_owned);
            let member = member.to_owned();
            let key = ClientUseKey { client, version, kind: ClientUseKind::Call, method, member, value };
            rows.uses.insert(key, ClientUsed { count: 2, last_us });
            let transaction = connection.transaction().expect("BUG: none is open");
            insert(&transaction, &rows).expect("BUG: the row is valid");
            transaction.commit().expect("BUG: it can be written");
        };
        add("a", 7);
        add("a", 5);
        add("b", 9);
        let rows: Vec<(String, i64, i64)> = {
            let mut select = connection
                .prepare("SELECT member, count, last_used_us FROM codex_client_uses")
                .expect("BUG: it is valid");
            let rows =
                select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).expect("BUG: it is valid");
            rows.collect::<rusqlite::Result<_>>().expect("BUG: it can be read")
        };
        assert_eq!(rows, [("a".to_owned(), 4, 7), ("b".to_owned(), 2, 9)]);
        let count =
            |connection: &Connection| -> i64 { connection.query_row(COUNT, [], |row| row.get(0)).expect("BUG: one") };
        let masker = Masker::new(&["b".to_owned()]).expect("BUG: a pattern");
        assert_eq!(redact(&connection, &masker, RunMode::DryRun).expect("BUG: it is valid"), 1);
        assert_eq!(count(&connection), 2);
        assert_eq!(redact(&connection, &masker, RunMode::Apply).expect("BUG: it is valid"), 1);
        assert_eq!(count(&connection), 1);
        bound(&connection, 1).expect("BUG: it is valid");
        assert_eq!(count(&connection), 1);
        bound(&connection, 0).expect("BUG: it is valid");
        assert_eq!(count(&connection), 0);
    }
}
