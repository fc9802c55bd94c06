//! The tables of `history.db`.

use std::time::Duration;

use crate::store::Form;

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
];

/// The schema version that this program writes.
pub(crate) const HISTORY_FORM: usize = MIGRATIONS.len();

/// How a history is opened for writing.
pub(super) fn form() -> Form {
    Form { migrations: MIGRATIONS, synchronous: "NORMAL", busy_wait_max: BUSY_WAIT_MAX }
}
