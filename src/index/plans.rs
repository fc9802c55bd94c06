//! Ensures that no query of a history scans or sorts more rows than it returns, judging by SQLite's own counters.

use rusqlite::{Connection, StatementStatus, params};

use super::{database, maintenance, query, tables, transcripts};

/// Rows per table: more than a query returns, and enough that a scan would show.
const ROWS: i64 = 3_000;

fn filled() -> Connection {
    let mut connection = Connection::open_in_memory().expect("memory");
    let form = database::form();
    form.migrations.iter().for_each(|migration| connection.execute_batch(migration).expect("our own SQL"));
    let transaction = connection.transaction().expect("a transaction");
    for row in 1..=ROWS {
        let thread = format!("t{}", row % 3);
        for (sql, words) in [
            (
                "INSERT INTO codex_events (seq, session_id, timestamp, event_type, thread_id, payload_preview, generation,
                    segment, byte_offset) VALUES (?1, 's', '2026-01-01T00:00:00.000Z', 'x', ?2, '{}', 'g', 1, ?1)",
                &thread,
            ),
            (
                "INSERT INTO codex_tool_events (session_id, thread_id, event_type, phase, created_at)
                    VALUES ('s', ?2, 'started', 'running', '2026-01-01T00:00:00.000Z' || substr(?1, 1, 0))",
                &thread,
            ),
            (
                "INSERT INTO codex_turn_events (session_id, thread_id, event_type, created_at)
                    VALUES ('s', ?2, 'started', '2026-01-01T00:00:00.000Z' || substr(?1, 1, 0))",
                &thread,
            ),
            (
                "INSERT INTO codex_transcript_entries (session_id, thread_id, identity, entry) VALUES ('s', ?2, ?1, '{}')",
                &thread,
            ),
            (
                "INSERT INTO codex_event_gaps (session_id, after_seq, lines, reason)
                    VALUES ('s', ?1, 1, 'x' || substr(?2, 1, 0))",
                &thread,
            ),
        ] {
            transaction.execute(sql, params![row, words]).expect("a row");
        }
    }
    transaction.commit().expect("rows");
    connection
}

/// Rows stepped over without an index, sorts, and rows returned or changed.
fn cost(connection: &Connection, sql: &str, arguments: &[&dyn rusqlite::ToSql]) -> (i32, i32, usize) {
    let mut statement = connection.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let rows = match statement.column_count() {
        0 => statement.execute(arguments).expect("it can be carried out"),
        _ => {
            let mut rows = statement.query(arguments).expect("it can be asked");
            let mut count = 0;
            while rows.next().expect("a row").is_some() {
                count += 1;
            }
            count
        }
    };
    (statement.get_status(StatementStatus::FullscanStep), statement.get_status(StatementStatus::Sort), rows)
}

#[test]
fn no_question_reads_more_than_it_tells_of() {
    let connection = filled();
    let check = |sql: &str, arguments: &[&dyn rusqlite::ToSql], rows_told: usize| {
        let (scanned, sorts, rows) = cost(&connection, sql, arguments);
        assert_eq!(rows, rows_told, "{sql}");
        assert!(scanned as usize <= rows_told, "{scanned} rows are looked at one by one for {rows_told}: {sql}");
        assert_eq!(sorts, 0, "{sql}");
    };
    let last = ROWS - 1;
    check(query::BOUNDS, &[], 1);
    check(query::LAST_SEQ, &[], 0);
    check(query::LAST_GAP, &[], 1);
    check(query::EVENTS_AFTER, &[&(ROWS / 2), &500], 500);
    check(query::EVENTS_AFTER, &[&last, &500], 1);
    for table in [tables::Table::Tools, tables::Table::Turns] {
        check(table.after(), &[&(ROWS / 2), &500], 500);
    }
    check(tables::LAST_TOOLS, &[&200], 200);
    check(transcripts::LINES_BEFORE, &[&last, &300], 300);
    check(transcripts::LINES_AFTER, &[&(ROWS / 2), &300, &last], 300);
    check(transcripts::LINE_FROM, &[&(ROWS / 2)], 1);
    check(transcripts::LAST_LINE, &[], 1);
    check(transcripts::FIRST_EVENT, &[], 1);
    check(transcripts::JOURNAL_GAPS, &[&100], 100);
    check(tables::TRANSCRIPT, &[&"t1"], ROWS as usize / 3);
    check(tables::TRANSCRIPT_NEWEST_FIRST, &[&"t1"], ROWS as usize / 3);
    check(transcripts::ENTRY_AT, &[&"t1", &7], 1);
    for pruning in [maintenance::EVENTS, maintenance::TOOLS, maintenance::TURNS] {
        check(pruning.bounds, &[], 1);
        check(pruning.oldest, &[], 1);
        // A batch is visited twice: to find its end, and to delete it.
        let (scanned, _, rows) = cost(&connection, pruning.delete, &[&10, &"2025", &500]);
        assert!(rows == 10 && scanned <= 1_000, "{rows} {scanned}: {}", pruning.delete);
    }
    // Only the returned rows are sorted again.
    for (sql, rows_told) in
        [(query::LAST_EVENTS, 500), (tables::Table::Tools.last(), 500), (tables::Table::Turns.last(), 500)]
    {
        let (scanned, _, rows) = cost(&connection, sql, &[&500]);
        assert!(rows == rows_told && scanned as usize <= 2 * rows_told, "{rows} {scanned}: {sql}");
    }
}

#[test]
fn a_scan_is_seen_for_one() {
    let (scanned, sorts, rows) =
        cost(&filled(), "SELECT seq FROM codex_events WHERE event_type = 'y' ORDER BY timestamp", &[]);
    assert!(scanned as i64 >= ROWS - 1 && sorts == 1 && rows == 0, "{scanned} {sorts} {rows}");
}
