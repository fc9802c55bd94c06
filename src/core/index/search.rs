//! The search index: which words each transcript entry has, so that a search reads only entries that may match.
//!
//! `codex_search` is an FTS5 table without texts (`content=''`) and without positions (`detail=none`). Its rows are numbered
//! by the time of their entries, in milliseconds, so that the newest come first and a period is a range of numbers; of several
//! entries of one millisecond, the others get the next free numbers. `codex_search_entries` names the entry of each number.
//!
//! *Completeness.* Entries up to `unfilled_to` are not in the index: those of a history of an earlier version, and all of them
//! after `redact` has changed one. A search reads them one by one, and the index fills itself in small steps while it has
//! nothing else to do.
//!
//! *Deletion.* FTS5 keeps the words of a deleted row until it merges them. Thus a change or deletion of any entry empties the
//! whole index, in the same transaction, by triggers.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::database::form;
use super::query::{History, HistoryError};
use super::threads;
use crate::history::{Excerpt, Filter, KnownFacts, SearchKind, SearchQuery, Searchable, Thing, add_words};
use crate::store::{DatabaseError, DatabaseForm, Life, RunMode, at_once, open_for};

/// The tables of the search index. Its tokenizer finds the words that [`add_words`] has separated.
pub(super) const SCHEMA: &str = "
    CREATE VIRTUAL TABLE codex_search USING fts5 (
        words, content = '', detail = 'none', columnsize = 0, tokenize = 'ascii'
    );
    CREATE TABLE codex_search_entries (at INTEGER PRIMARY KEY, entry_id INTEGER NOT NULL) STRICT;
    CREATE TABLE codex_search_state (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        unfilled_to INTEGER NOT NULL
    ) STRICT;
    INSERT INTO codex_search_state SELECT 1, IFNULL(MAX(id), 0) FROM codex_transcript_entries;
    CREATE TRIGGER codex_search_after_change AFTER UPDATE ON codex_transcript_entries
    WHEN old.entry IS NOT new.entry
    BEGIN
        INSERT INTO codex_search (codex_search) VALUES ('delete-all');
        DELETE FROM codex_search_entries;
        UPDATE codex_search_state SET unfilled_to = (SELECT MAX(id) FROM codex_transcript_entries);
    END;
    CREATE TRIGGER codex_search_after_deletion AFTER DELETE ON codex_transcript_entries
    BEGIN
        INSERT INTO codex_search (codex_search) VALUES ('delete-all');
        DELETE FROM codex_search_entries;
        UPDATE codex_search_state SET unfilled_to = (SELECT IFNULL(MAX(id), 0) FROM codex_transcript_entries);
    END;
";

const INSERT_NUMBER: &str = "INSERT OR IGNORE INTO codex_search_entries (at, entry_id) VALUES (?1, ?2)";

/// The first number from this one on that no entry has.
const FREE_NUMBER: &str = "
    SELECT at + 1 FROM codex_search_entries AS taken
    WHERE at >= ?1 AND NOT EXISTS (SELECT 1 FROM codex_search_entries AS next WHERE next.at = taken.at + 1)
    ORDER BY at LIMIT 1";

const INSERT_WORDS: &str = "INSERT INTO codex_search (rowid, words) VALUES (?1, ?2)";

const UNFILLED_TO: &str = "SELECT unfilled_to FROM codex_search_state";

const SET_UNFILLED_TO: &str = "UPDATE codex_search_state SET unfilled_to = ?1";

pub(super) const UNFILLED: &str = "
    SELECT id, thread_id, entry FROM codex_transcript_entries WHERE id <= ?1 ORDER BY id DESC LIMIT ?2";

/// Entries by their words, newest first.
const BY_WORDS: &str = "
    SELECT e.id, e.thread_id, e.entry FROM codex_search AS f
    CROSS JOIN codex_search_entries AS s ON s.at = f.rowid
    CROSS JOIN codex_transcript_entries AS e ON e.id = s.entry_id
    WHERE f.codex_search MATCH ?1 AND f.rowid >= ?2 ORDER BY f.rowid DESC";

/// All entries, newest first.
const ONE_BY_ONE: &str = "
    SELECT e.id, e.thread_id, e.entry FROM codex_search_entries AS s
    CROSS JOIN codex_transcript_entries AS e ON e.id = s.entry_id
    WHERE s.at >= ?1 ORDER BY s.at DESC";

const COUNT: &str = "SELECT COUNT(*) FROM codex_search_entries WHERE at >= ?1";

const COUNT_UNFILLED: &str = "SELECT COUNT(*) FROM codex_transcript_entries WHERE id <= ?1";

/// Most entries, and about the most bytes of them, that one step adds to the index.
const FILLED_MAX: i64 = 256;
const FILLED_BYTES: usize = 256 << 10;

/// Adds stored entries, each with its number, to the search index.
pub(super) fn add<'a>(connection: &Connection, stored: impl Iterator<Item = (i64, &'a str)>) -> rusqlite::Result<()> {
    let found = stored.filter_map(|(id, entry)| Searchable::of(entry).map(|found| (found.at_ms() as i64, id, found)));
    let mut found: Vec<(i64, i64, Searchable)> = found.collect();
    // FTS5 writes a segment whenever a number is lower than the one before.
    found.sort_by_key(|(at, id, _)| (*at, *id));
    let (mut last, mut words) = (i64::MIN, String::new());
    for (at, id, searchable) in found {
        let mut at = at.max(last.saturating_add(1));
        if connection.prepare_cached(INSERT_NUMBER)?.execute([at, id])? == 0 {
            at = connection.prepare_cached(FREE_NUMBER)?.query_row([at], |row| row.get(0))?;
            connection.prepare_cached(INSERT_NUMBER)?.execute([at, id])?;
        }
        words.clear();
        add_words(&searchable, &mut words);
        connection.prepare_cached(INSERT_WORDS)?.execute(params![at, words])?;
        last = at;
    }
    Ok(())
}

/// Adds some of the entries that the index lacks, the newest of them. Returns the number of entries that it has read, 0 at the end.
pub(super) fn fill_search(connection: &mut Connection) -> rusqlite::Result<u64> {
    let unfilled_to = |connection: &Connection| -> rusqlite::Result<i64> {
        connection.prepare_cached(UNFILLED_TO)?.query_row([], |row| row.get(0))
    };
    if unfilled_to(connection)? == 0 {
        return Ok(0);
    }
    at_once(connection, |transaction| {
        let (mut stored, mut bytes): (Vec<(i64, String)>, usize) = (Vec::new(), 0);
        let mut select = transaction.prepare_cached(UNFILLED)?;
        let mut rows = select.query([unfilled_to(transaction)?, FILLED_MAX])?;
        while let Some(row) = rows.next()? {
            let (id, entry): (i64, String) = (row.get(0)?, row.get(2)?);
            bytes += entry.len();
            stored.push((id, entry));
            if bytes >= FILLED_BYTES {
                break;
            }
        }
        add(transaction, stored.iter().map(|(id, entry)| (*id, entry.as_str())))?;
        let left_to = stored.last().map_or(0, |(id, _)| id - 1);
        transaction.execute(SET_UNFILLED_TO, [left_to])?;
        Ok(stored.len() as u64)
    })
}

/// Steps of a tool that fills an index, each of them a transaction, between two looks for a relay.
const STEPS_MAX: u32 = 16;

/// The longest wait of a tool for the lock of a history.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(5);

/// Takes some steps of filling the index of the history at `path`. Returns the number of entries that they have read, 0 at the
/// end.
///
/// # Errors
///
/// The fault of the history, as text for the user.
pub fn fill_stored_search(path: &Path) -> Result<u64, String> {
    let form = DatabaseForm { busy_wait_max: BUSY_WAIT_MAX, ..form() };
    let opened = open_for(path, form, Life::Stopped, RunMode::Apply).map_err(|error| error.to_string())?;
    let Some(mut connection) = opened else { return Ok(0) };
    let mut read = 0;
    for _ in 0..STEPS_MAX {
        match fill_search(&mut connection) {
            Ok(0) => break,
            Ok(entries) => read += entries,
            Err(source) => return Err(DatabaseError::Sqlite { path: path.to_owned(), source }.to_string()),
        }
    }
    Ok(read)
}

/// A search in one history.
#[derive(Debug, Clone)]
pub struct Search {
    /// The query for the text of an entry; `None` matches every text.
    pub query: Option<SearchQuery>,
    /// The tokens that an entry must match. Its words are those of `query`.
    pub filter: Filter,
    /// Only these kinds; an empty list means all.
    pub kinds: Vec<SearchKind>,
    /// Only entries of this time or later, RFC 3339 and in milliseconds since 1970.
    pub since: Option<(String, u64)>,
    /// Also in threads that no person speaks in.
    pub all_threads: bool,
    /// Most hits that are returned.
    pub limit: usize,
}

/// An entry that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    pub kind: SearchKind,
    /// Its time, RFC 3339.
    pub at: String,
    pub thread_id: String,
    pub turn_id: Option<String>,
    pub item_id: Option<String>,
    /// Of a request: its id in the ledger.
    pub request_id: Option<String>,
    pub excerpt: Excerpt,
}

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hits {
    /// Newest first.
    pub hits: Vec<Hit>,
    /// There are more.
    pub has_more: bool,
    /// Entries that were read.
    pub read: u64,
}

impl Search {
    /// The time from which on entries match, in milliseconds since 1970.
    fn since_ms(&self) -> i64 {
        let of_filter = self.filter.since_us().map(|since_us| since_us / 1_000);
        let since_ms = self.since.as_ref().map(|(_, since_ms)| *since_ms).max(of_filter);
        since_ms.map_or(i64::MIN, |since_ms| i64::try_from(since_ms).unwrap_or(i64::MAX))
    }

    /// The query for the index.
    fn for_index(&self) -> Option<String> {
        let of_filter = self.filter.search_kinds();
        let kinds = if self.kinds.is_empty() { &of_filter } else { &self.kinds };
        self.query.as_ref().map_or_else(|| SearchQuery::for_index_of_kinds(kinds), |query| query.for_index(kinds))
    }

    fn has_words(&self) -> bool {
        self.query.as_ref().is_some_and(SearchQuery::has_words)
    }

    fn hit(&self, thread_id: String, entry: &str, known: &KnownFacts) -> Option<Hit> {
        let found = Searchable::of(entry)?;
        let is_meant = self.kinds.is_empty() || self.kinds.contains(&found.kind);
        let is_since = self.since.as_ref().is_none_or(|(since, _)| found.at >= *since);
        let at_us = found.at_ms().saturating_mul(1_000);
        let thing = Thing { entry: &found.entry, thread_id: Some(&thread_id), at_us, text: &found.text };
        if !is_meant || !is_since || !known.passes_tokens(&self.filter, &thing) {
            return None;
        }
        let excerpt = match &self.query {
            Some(query) => query.find(&found)?,
            None => Excerpt { head: None, line: found.first_line().to_owned(), marks: Vec::new() },
        };
        let Searchable { kind, entry, at, turn_id, item_id, .. } = found;
        Some(Hit { kind, at, thread_id, turn_id, item_id, request_id: entry.request_id, excerpt })
    }
}

impl History {
    /// Searches the entries of all threads. Reports to `advance` what it reads without the help of the index, of which
    /// [`History::read_by_search`] is the most.
    pub fn search(&self, search: &Search, known: &KnownFacts, advance: impl Fn(u64)) -> Result<Hits, HistoryError> {
        self.read(0, |connection| {
            let transaction = connection.unchecked_transaction()?;
            let unfilled_to = unfilled_to(&transaction)?;
            let hidden = if search.all_threads { HashMap::new() } else { threads::of_no_person(&transaction)? };
            let hit = |row: &Row<'_>| -> rusqlite::Result<Option<Hit>> {
                let thread_id: String = row.get(1)?;
                if hidden.contains_key(&thread_id) {
                    return Ok(None);
                }
                Ok(search.hit(thread_id, row.get_ref(2)?.as_str()?, known))
            };
            let mut found = Hits::default();
            let wanted = search.limit.saturating_add(1);
            let newest_first = |hits: &mut Vec<Hit>| {
                hits.sort_by(|one, other| other.at.cmp(&one.at));
                hits.truncate(wanted);
            };
            if unfilled_to < i64::MAX {
                let since_ms = search.since_ms();
                let is_one_by_one = !search.has_words();
                let take = |row: &Row<'_>| {
                    found.read += 1;
                    advance(u64::from(is_one_by_one));
                    found.hits.extend(hit(row)?);
                    Ok(found.hits.len() < wanted)
                };
                match search.for_index() {
                    Some(words) => each(&transaction, BY_WORDS, params![words, since_ms], take)?,
                    None => each(&transaction, ONE_BY_ONE, [since_ms], take)?,
                }
            }
            if unfilled_to > 0 {
                each(&transaction, UNFILLED, [unfilled_to, -1], |row| {
                    found.read += 1;
                    found.hits.extend(hit(row)?);
                    // Entries are not in the order of their times.
                    if found.hits.len() >= wanted.saturating_mul(2) {
                        newest_first(&mut found.hits);
                    }
                    advance(1);
                    Ok(true)
                })?;
            }
            // Entries of nearly the same time may have their numbers in another order.
            newest_first(&mut found.hits);
            found.has_more = found.hits.len() > search.limit;
            found.hits.truncate(search.limit);
            Ok(found)
        })
    }

    /// How many entries a search reads one by one, at most.
    pub fn read_by_search(&self, search: &Search) -> Result<u64, HistoryError> {
        self.read(0, |connection| {
            let unfilled_to = unfilled_to(connection)?;
            let count = |sql: &str, value: i64| {
                connection.query_row(sql, [value], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
            };
            let unfilled = if unfilled_to > 0 { count(COUNT_UNFILLED, unfilled_to)? } else { 0 };
            let indexed = unfilled_to < i64::MAX && !search.has_words();
            Ok(unfilled + if indexed { count(COUNT, search.since_ms())? } else { 0 })
        })
    }

    /// How many entries the search index lacks.
    pub fn unfilled(&self) -> Result<u64, HistoryError> {
        self.read(0, |connection| match unfilled_to(connection)? {
            0 => Ok(0),
            to => connection.query_row(COUNT_UNFILLED, [to], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs),
        })
    }
}

/// The number up to which entries are not in the index: all, if a relay of an earlier version writes the history.
pub(super) fn unfilled_to(connection: &Connection) -> rusqlite::Result<i64> {
    match connection.table_exists(None, "codex_search_state")? {
        true => connection
            .prepare_cached(UNFILLED_TO)?
            .query_row([], |row| row.get(0))
            .optional()
            .map(Option::unwrap_or_default),
        false => Ok(i64::MAX),
    }
}

/// Passes rows on until `take` returns false.
pub(super) fn each(
    connection: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
    mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<bool>,
) -> rusqlite::Result<()> {
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query(values)?;
    while let Some(row) = rows.next()? {
        if !take(row)? {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::history::rfc3339_millis;
    use crate::store::open_database;

    const TEXTS: [&str; 5] =
        ["rm -rf build", "src/index/mod.rs", "RetentionBounds", "a -> b", "请删build at 12:30 OR NOT \"x\""];

    /// A new history with `count` entries, of which neighbours have the same time and some arrive late.
    fn filled(path: &Path, count: u64) -> Connection {
        let mut connection = open_database(path, form()).expect("a new history").connection;
        at_once(&mut connection, |transaction| {
            for first in (0..count).step_by(7) {
                let mut stored = Vec::new();
                for number in first..count.min(first + 7) {
                    let at_ms = if number % 10 == 9 { number } else { 1_000_000 + number / 3 * 10 };
                    let text = TEXTS[number as usize % TEXTS.len()];
                    let entry = json!({ "role": "user", "ts": rfc3339_millis(at_ms * 1_000), "text": format!("{text} {number}") });
                    let insert = "INSERT INTO codex_transcript_entries (session_id, thread_id, identity, entry)
                        VALUES ('s', 't', ?1, ?2)";
                    transaction.execute(insert, params![number.to_string(), entry.to_string()])?;
                    stored.push((transaction.last_insert_rowid(), entry.to_string()));
                }
                add(transaction, stored.iter().map(|(id, entry)| (*id, entry.as_str())))?;
            }
            Ok(())
        })
        .expect("rows");
        connection
    }

    fn words(text: &str) -> Search {
        let query = Some(SearchQuery::of_words(text).expect("it can be searched for"));
        let filter = Filter::default();
        Search { query, filter, kinds: Vec::new(), since: None, all_threads: false, limit: 1_000 }
    }

    fn lines(path: &Path, search: &Search) -> Vec<(String, String)> {
        let found = History::new(path).search(search, &KnownFacts::default(), |_| {}).expect("it can be searched");
        found.hits.into_iter().map(|hit| (hit.at, hit.excerpt.line)).collect()
    }

    fn count(connection: &Connection, sql: &str) -> i64 {
        connection.query_row(sql, [], |row| row.get(0)).expect("our own SQL")
    }

    #[test]
    fn index_and_scan_find_the_same() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("history.db");
        let mut connection = filled(&path, 1_000);
        let searches: Vec<Search> =
            ["rm", "build", "src/ind*", "bounds", "->", "12:30", "7", "99*", "rm missing", "OR", "删"]
                .into_iter()
                .flat_map(|text| {
                    let since = Some((rfc3339_millis(1_001_000_000), 1_001_000));
                    [words(text), Search { limit: 3, ..words(text) }, Search { since, ..words(text) }]
                })
                .collect();
        let by_index: Vec<_> = searches.iter().map(|search| lines(&path, search)).collect();
        assert!(by_index[0].len() == 200 && by_index[1].len() == 3 && by_index[2].len() < 200);
        assert!(by_index[0].is_sorted_by(|(newer, _), (older, _)| newer >= older));
        // As `redact` does.
        connection.execute("UPDATE codex_transcript_entries SET entry = entry || ' ' WHERE id = 7", []).expect("a row");
        assert_eq!(count(&connection, UNFILLED_TO), 1_000);
        let times = |found: &[(String, String)]| found.iter().map(|(at, _)| at.clone()).collect::<Vec<_>>();
        let check = |what: &str| {
            for (search, expect) in searches.iter().zip(&by_index) {
                // Entries of the same time have no order.
                assert_eq!(times(&lines(&path, search)), times(expect), "{what}: {search:?}");
            }
        };
        check("one by one");
        assert_eq!(fill_search(&mut connection).expect("it fills"), FILLED_MAX as u64);
        check("half filled");
        while fill_search(&mut connection).expect("it fills") > 0 {}
        assert_eq!((count(&connection, UNFILLED_TO), History::new(&path).unfilled().expect("a count")), (0, 0));
        check("filled again");
    }

    #[test]
    fn a_change_or_deletion_empties_the_index() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("history.db");
        let mut connection = filled(&path, 20);
        connection
            .execute_batch("CREATE VIRTUAL TABLE temp.terms USING fts5vocab(main, codex_search, row)")
            .expect("a table of words");
        let terms = |connection: &Connection| count(connection, "SELECT COUNT(*) FROM temp.terms");
        for sql in [
            "UPDATE codex_transcript_entries SET entry = '{}' WHERE id = 3",
            "DELETE FROM codex_transcript_entries WHERE id = 20",
        ] {
            assert!(terms(&connection) > 10);
            connection.execute(sql, []).expect("a row");
            assert_eq!((terms(&connection), count(&connection, "SELECT COUNT(*) FROM codex_search_entries")), (0, 0));
            while fill_search(&mut connection).expect("it fills") > 0 {}
        }
        assert_eq!(lines(&path, &words("rm")).len(), 4);
        assert!(terms(&connection) > 10);
        // Nothing has changed.
        connection.execute("UPDATE codex_transcript_entries SET entry = entry", []).expect("rows");
        assert!(terms(&connection) > 10);
    }

    #[test]
    fn history_of_an_earlier_version_is_searched() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("history.db");
        let form = form();
        let earlier = DatabaseForm { migrations: &form.migrations[..2], ..form };
        let connection = open_database(&path, earlier).expect("a new history").connection;
        let insert = "INSERT INTO codex_transcript_entries (session_id, thread_id, identity, entry)
            VALUES ('s', 't', 'i', '{\"role\":\"user\",\"ts\":\"2026-01-02T03:04:05.000Z\",\"text\":\"hello\"}')";
        connection.execute(insert, []).expect("a row");
        let expect = [("2026-01-02T03:04:05.000Z".to_owned(), "hello".to_owned())];
        assert_eq!(lines(&path, &words("hello")), expect);
        let mut connection = open_database(&path, form).expect("it is migrated").connection;
        assert_eq!(lines(&path, &words("hello")), expect);
        assert_eq!(fill_search(&mut connection).expect("it fills"), 1);
        assert_eq!(fill_search(&mut connection).expect("it fills"), 0);
        assert_eq!(lines(&path, &words("hello")), expect);
    }
}
