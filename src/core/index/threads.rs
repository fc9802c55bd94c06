//! The table of threads: a row for each thread, with who it is as known last. A row changes in place.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};

use super::query::{History, HistoryError};
use crate::history::{FilterThread, Rows, ThreadClient, ThreadIdentity};
use crate::protocol::{ThreadDescription, ThreadKind, of_name};

/// Most rows; the threads that were used longest ago are forgotten.
const ROWS_MAX: u64 = 20_000;

/// The migration that adds the table. Times are in microseconds since the Unix epoch; only `started_at` is in seconds.
pub(super) const SCHEMA: &str = "
    CREATE TABLE codex_threads (
        id INTEGER PRIMARY KEY,
        thread_id TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL,
        title TEXT,
        cwd TEXT,
        branch TEXT,
        model TEXT,
        parent_thread_id TEXT,
        forked_from_id TEXT,
        refuses_input INTEGER NOT NULL,
        client_name TEXT,
        client_version TEXT,
        client_terminal TEXT,
        client_pid INTEGER,
        started_at INTEGER,
        last_used_us INTEGER NOT NULL
    ) STRICT;
";

/// The migration that adds what a thread's repository is a copy of.
pub(super) const REMOTES: &str = "ALTER TABLE codex_threads ADD COLUMN remote TEXT";

const SET: &str = "
    INSERT INTO codex_threads (thread_id, kind, title, cwd, branch, model, parent_thread_id, forked_from_id, refuses_input,
        client_name, client_version, client_terminal, client_pid, started_at, last_used_us, remote)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
    ON CONFLICT (thread_id) DO UPDATE SET kind = ?2, title = ?3, cwd = ?4, branch = ?5, model = ?6, parent_thread_id = ?7,
        forked_from_id = ?8, refuses_input = ?9, client_name = ?10, client_version = ?11, client_terminal = ?12,
        client_pid = ?13, started_at = ?14, last_used_us = ?15, remote = ?16";

const FIND: &str = "
    SELECT kind, title, cwd, branch, model, parent_thread_id, forked_from_id, refuses_input, client_name, client_version,
        client_terminal, client_pid, started_at, last_used_us, remote
    FROM codex_threads WHERE thread_id = ?1";

/// The same in a history of an older version.
const FIND_BEFORE_REMOTES: &str = "
    SELECT kind, title, cwd, branch, model, parent_thread_id, forked_from_id, refuses_input, client_name, client_version,
        client_terminal, client_pid, started_at, last_used_us, NULL
    FROM codex_threads WHERE thread_id = ?1";

const FORGET: &str = "
    DELETE FROM codex_threads WHERE id IN (SELECT id FROM codex_threads ORDER BY last_used_us DESC, id DESC LIMIT -1 OFFSET ?1)";

const OF_NO_PERSON: &str = "SELECT thread_id, kind FROM codex_threads WHERE kind <> 'user'";

/// The threads that no person speaks in, and what they are for. A history of an older version knows none.
pub(super) fn of_no_person(connection: &Connection) -> rusqlite::Result<HashMap<String, ThreadKind>> {
    if !connection.table_exists(None, "codex_threads")? {
        return Ok(HashMap::new());
    }
    let of_row = |row: &Row<'_>| Ok((row.get(0)?, kind_named(&row.get::<_, String>(1)?)));
    connection.prepare_cached(OF_NO_PERSON)?.query_map([], of_row)?.collect()
}

const FOR_FILTER: &str = "SELECT thread_id, client_name, cwd, title FROM codex_threads";

/// A newer version may know more kinds.
fn kind_named(name: &str) -> ThreadKind {
    of_name(name).unwrap_or(ThreadKind::Other)
}

/// Stores who the threads in `rows` are.
pub(super) fn insert(transaction: &Transaction<'_>, rows: &Rows) -> rusqlite::Result<()> {
    for (thread_id, ThreadIdentity { description, client, last_used_us }) in &rows.threads {
        let client = client.as_ref();
        transaction.prepare_cached(SET)?.execute(params![
            thread_id,
            description.kind.name(),
            description.title,
            description.cwd,
            description.branch,
            description.model,
            description.parent,
            description.forked_from,
            description.refuses_input,
            client.map(|client| &client.name),
            client.and_then(|client| client.version.as_ref()),
            client.and_then(|client| client.terminal.as_ref()),
            client.and_then(|client| client.pid),
            description.started_at_s.map(|at| at as i64),
            *last_used_us as i64,
            description.remote,
        ])?;
    }
    Ok(())
}

/// Brings the table within its bound.
pub(super) fn keep_within_bound(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare_cached(FORGET)?.execute([ROWS_MAX as i64]).map(drop)
}

fn identity(row: &Row<'_>) -> rusqlite::Result<ThreadIdentity> {
    let kind: String = row.get(0)?;
    let unsigned =
        |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.and_then(|it| it.try_into().ok()));
    let description = ThreadDescription {
        kind: kind_named(&kind),
        title: row.get(1)?,
        cwd: row.get(2)?,
        branch: row.get(3)?,
        remote: row.get(14)?,
        model: row.get(4)?,
        parent: row.get(5)?,
        forked_from: row.get(6)?,
        refuses_input: row.get(7)?,
        started_at_s: unsigned(12)?,
    };
    let name: Option<String> = row.get(8)?;
    let (version, terminal, pid) = (row.get(9)?, row.get(10)?, row.get(11)?);
    let client = name.map(|name| ThreadClient { name, version, terminal, pid });
    Ok(ThreadIdentity { description, client, last_used_us: unsigned(13)?.unwrap_or_default() })
}

impl History {
    /// The threads that no person speaks in, and what they are for.
    pub fn threads_of_no_person(&self, opened: u64) -> Result<HashMap<String, ThreadKind>, HistoryError> {
        self.read(opened, of_no_person)
    }

    /// The facts of all threads for a filter; empty for a history of an older version.
    pub fn threads_for_filter(&self, opened: u64) -> Result<HashMap<String, FilterThread>, HistoryError> {
        self.read(opened, |connection| {
            if !connection.table_exists(None, "codex_threads")? {
                return Ok(HashMap::new());
            }
            let of_row = |row: &Row<'_>| {
                Ok((row.get(0)?, FilterThread { client: row.get(1)?, folder: row.get(2)?, title: row.get(3)? }))
            };
            connection.prepare_cached(FOR_FILTER)?.query_map([], of_row)?.collect()
        })
    }

    /// Who each of `threads` is, as far as the history says it; histories of older versions say nothing.
    pub fn identities(&self, threads: &[String], opened: u64) -> Result<Vec<Option<ThreadIdentity>>, HistoryError> {
        self.read(opened, |connection| {
            if !connection.table_exists(None, "codex_threads")? {
                return Ok(vec![None; threads.len()]);
            }
            let has_remotes = connection.column_exists(None, "codex_threads", "remote")?;
            let mut select = connection.prepare_cached(if has_remotes { FIND } else { FIND_BEFORE_REMOTES })?;
            threads.iter().map(|thread_id| select.query_row([thread_id], identity).optional()).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Lab;
    use super::*;

    fn of_server(at_us: u64, method: &str, params: &str) -> String {
        format!(r#"{{"at":{at_us},"from":"server","line":{{"method":"{method}","params":{params}}}}}"#)
    }

    fn found(lab: &Lab) -> Vec<Option<ThreadIdentity>> {
        lab.catch_up();
        let threads = ["t", "x", "nobody"].map(str::to_owned);
        History::new(&lab.history()).identities(&threads, 0).expect("it can be asked")
    }

    #[test]
    fn threads_of_an_older_history_come_from_its_journal() {
        let lab = Lab::new();
        let thread = r#"{"thread":{"id":"t","cwd":"/p","threadSource":"user","createdAt":7}}"#;
        let title = r#"{"thread":{"id":"x","threadSource":"thread_title","ephemeral":true}}"#;
        let named = r#"{"threadId":"t","threadName":"Fix it"}"#;
        let lines = [("thread/started", thread), ("thread/started", title), ("thread/name/updated", named)];
        lab.append(1, 1, &lines.map(|(method, params)| of_server(5, method, params)));
        let before = found(&lab);
        let told = |thread: &Option<ThreadIdentity>| {
            thread.as_ref().map(|thread| (thread.description.kind, thread.description.title.clone()))
        };
        let expect = [Some((ThreadKind::User, Some("Fix it".to_owned()))), Some((ThreadKind::Title, None)), None];
        assert_eq!(before.iter().map(told).collect::<Vec<_>>(), expect);
        let of_no_person = History::new(&lab.history()).threads_of_no_person(0).expect("it can be asked");
        assert_eq!(of_no_person, HashMap::from([("x".to_owned(), ThreadKind::Title)]));
        let older = Connection::open(lab.history()).expect("it is there");
        let undone = "DROP TABLE codex_threads; DROP TABLE codex_client_uses; PRAGMA user_version = 7;
            UPDATE codex_event_checkpoints SET state = json_set(state, '$.form', 6, '$.fold', json('{}'))";
        older.execute_batch(undone).expect("our own SQL");
        // A reader of a history that no relay has opened since.
        let threads = ["t".to_owned()];
        assert_eq!(History::new(&lab.history()).identities(&threads, 0).expect("it can be asked"), [None]);
        assert_eq!(found(&lab), before);
    }

    #[test]
    fn first_words_are_those_of_the_user() {
        let lab = Lab::new();
        let said = |thread: &str, kind: &str, text: &str| {
            let content = match kind {
                "userMessage" => format!(r#""content":[{{"type":"text","text":"{text}"}}]"#),
                _ => format!(r#""text":"{text}""#),
            };
            let params =
                format!(r#"{{"threadId":"{thread}","turnId":"u","item":{{"id":"{text}","type":"{kind}",{content}}}}}"#);
            of_server(5, "item/completed", &params)
        };
        let long = "x".repeat(300);
        lab.append(
            1,
            1,
            &[
                said("t", "agentMessage", "Welcome"),
                said("t", "userMessage", "fix it"),
                said("t", "userMessage", "and then"),
                said("v", "userMessage", &long),
                said("w", "agentMessage", "Welcome"),
            ],
        );
        lab.catch_up();
        let threads = ["t", "v", "w", "nobody"].map(str::to_owned);
        let words = History::new(&lab.history()).first_words(&threads, 0).expect("it can be asked");
        assert_eq!(words, [Some("fix it".to_owned()), Some(long[..200].to_owned()), None, None]);
    }

    #[test]
    fn table_keeps_the_threads_that_were_used_last() {
        let lab = Lab::new();
        lab.append(1, 1, &[of_server(5, "thread/started", r#"{"thread":{"id":"t"}}"#)]);
        lab.catch_up();
        let connection = Connection::open(lab.history()).expect("it is there");
        let many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
            INSERT INTO codex_threads (thread_id, kind, refuses_input, last_used_us) SELECT 'n' || i, 'user', 0, i FROM n";
        connection.execute_batch(many).expect("our own SQL");
        keep_within_bound(&connection).expect("our own SQL");
        let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("our own SQL");
        assert_eq!(count("SELECT COUNT(*) FROM codex_threads"), ROWS_MAX as i64);
        assert_eq!(count("SELECT COUNT(*) FROM codex_threads WHERE thread_id = 't'"), 0);
    }
}
