//! What the parts of the index tell each other.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::history::{Fold, Rows};
use crate::invariants::holds;
use crate::journal::{Position, SegmentName};
use crate::protocol::named;

named! {
    /// Why an epoch began.
    pub(super) enum Cause {
        /// The session had no epoch before.
        First = "first",
        /// The database is lost, and the journal no longer has its first record.
        StartLost = "start_lost",
        /// The database is lost or older than the issued numbers, and the journal cannot prove that it has all records that had
        /// one.
        JournalShorter = "journal_shorter",
        /// The machine was restarted before a run recorded its end.
        MachineRestarted = "machine_restarted",
        /// The home or the session was restored from a copy.
        Copied = "copied",
        /// The database belongs to another epoch.
        OtherHistory = "other_history",
        /// The journal yields other events for the issued numbers.
        OtherEvents = "other_events",
        /// The database is lost, and this version may number its rows of tools and turns otherwise.
        OtherVersion = "other_version",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Epoch {
    pub(super) id: String,
    /// The number before its first one.
    pub(super) after_seq: u64,
    pub(super) cause: Cause,
    /// The last number issued in it, which the database may lack while it is rebuilt.
    pub(super) promised: u64,
}

impl Cause {
    /// Whether the mark may be lower than numbers that were issued.
    pub(super) fn may_have_old_mark(self) -> bool {
        match self {
            Cause::Copied => true,
            Cause::First
            | Cause::StartLost
            | Cause::JournalShorter
            | Cause::MachineRestarted
            | Cause::OtherHistory
            | Cause::OtherEvents
            | Cause::OtherVersion => false,
        }
    }
}

impl Epoch {
    /// Begins an epoch after the number `after_seq`.
    pub(super) fn begin(after_seq: u64, cause: Cause) -> Epoch {
        // The low 62 bits of a UUIDv7 are random.
        let id = format!("{:012x}", Uuid::now_v7().as_u128() & 0xffff_ffff_ffff);
        Epoch { id, after_seq, cause, promised: after_seq }
    }
}

/// The indexed state of a database.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) reached: Reached,
}

/// The committed state of a history.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Reached {
    pub(super) fold: Fold,
    /// The position of the next record; `None` before the first one.
    pub(super) position: Option<Position>,
    /// The last issued number.
    pub(super) seq: u64,
    /// The last reserved number.
    pub(super) reserved: u64,
    /// A digest of all events of the epoch; `None` if an older version has indexed some of them.
    pub(super) digest: Option<u64>,
}

/// Permanently deleted data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pruned {
    pub events: u64,
    /// Rows of tool events.
    pub tool_events: u64,
    /// Rows of turn events.
    pub turn_events: u64,
    /// Whole sessions.
    pub sessions: u64,
    /// Size of those sessions, in bytes.
    pub session_bytes: u64,
    /// How long the deletion took, in milliseconds.
    pub took_ms: u64,
}

impl Pruned {
    pub(super) fn rows(&self) -> u64 {
        self.events + self.tool_events + self.turn_events
    }

    pub(super) fn add(&mut self, more: Pruned) {
        self.events += more.events;
        self.tool_events += more.tool_events;
        self.turn_events += more.turn_events;
        self.sessions += more.sessions;
        self.session_bytes += more.session_bytes;
        self.took_ms += more.took_ms;
    }
}

/// The last number that a table has issued; `None` if it has issued none.
pub(super) fn last_row(connection: &Connection, table: &str) -> rusqlite::Result<Option<u64>> {
    let last: Option<i64> = connection.query_row(LAST_ROW, [table], |row| row.get(0)).optional()?;
    Ok(last.map(i64::unsigned_abs))
}

pub(super) fn first_segment(journal_dir: &Path) -> Option<SegmentName> {
    SegmentName::list(journal_dir).ok()?.into_iter().next()
}

/// A table with consecutive numbers, of which the oldest rows are deleted.
#[derive(Debug, Clone, Copy)]
pub struct Numbered {
    pub(super) name: &'static str,
    /// The columns of its number and its time.
    pub(super) number: &'static str,
    pub(super) time: &'static str,
    /// The columns that count for its size.
    pub(super) large: [&'static str; 2],
}

impl Numbered {
    /// Selects the rows after a number.
    pub(super) fn after(self) -> String {
        format!("SELECT * FROM {} WHERE id > ?1 ORDER BY id LIMIT ?2", self.name)
    }

    /// Selects the last rows.
    pub(super) fn last(self) -> String {
        format!("SELECT * FROM (SELECT * FROM {} ORDER BY id DESC LIMIT ?1) ORDER BY id", self.name)
    }
}

pub(super) const EVENTS: Numbered =
    Numbered { name: "codex_events", number: "seq", time: "timestamp", large: ["payload_preview", "NULL"] };

pub(super) const TOOLS: Numbered =
    Numbered { name: "codex_tool_events", number: "id", time: "created_at", large: ["raw_payload_json", "command"] };

pub(super) const TURNS: Numbered =
    Numbered { name: "codex_turn_events", large: ["raw_payload_json", "output_preview"], ..TOOLS };

/// The last number that such a table has issued.
const LAST_ROW: &str = "SELECT seq FROM sqlite_sequence WHERE name = ?1";

/// Checks a batch before its commit.
pub(super) fn check_next(rows: &Rows, before: &Reached, next: &Reached) {
    holds!("index.checkpoint-never-goes-back", next.position >= before.position);
    holds!("index.numbers-are-reserved", next.reserved >= next.seq);
    let is_read = |at: &Position| next.position.as_ref().is_some_and(|next| at <= next);
    holds!("index.events-are-behind-the-checkpoint", rows.events.iter().all(|event| is_read(&event.key.0)));
    holds!("index.open-streams-have-been-read", next.fold.open_since().is_none_or(is_read));
    let recorded = || rows.events.iter().filter(|event| event.event_type != "event_gap").map(|event| &event.key.0);
    holds!("index.record-has-one-event", recorded().collect::<BTreeSet<_>>().len() == recorded().count());
    holds!("index.gaps-are-among-the-events", rows.gaps.iter().all(|gap| gap.after_events < rows.events.len()));
    next.fold.check();
}
