//! Damage to stored data after a world has ended: a restored copy, a lost end, a missing run. A reader that knows the
//! earlier history must not be misled by it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use codex_shim::testing::index::HISTORY_FILE;
use codex_shim::testing::journal::{FORMAT, Generation, Header, Previous, SegmentName, ServerOrigin};
use codex_shim::testing::store::SeqMark;
use rusqlite::Connection;

use super::canary::Canary;
use super::happened::Event;
use super::world::World;

/// Events of the run after the damage.
const EVENTS_AFTER: u64 = 5;

/// A copy of a session's folder, with the mark in its ledger.
#[derive(Debug)]
pub struct Backup {
    dir: PathBuf,
    mark: SeqMark,
}

/// Events by number: the place of the record, and the type.
type Numbered = BTreeMap<i64, (String, String)>;

impl World {
    /// Copies the session's folder, if there is no copy yet.
    pub fn back_up(&mut self) {
        if self.backup.is_none() {
            let dir = self.dir.path().join("backup");
            copy(&self.session(), &dir);
            let mark = self.mark().clone();
            self.backup = Some(Backup { dir, mark });
        }
    }

    /// Damages the session's folder, adds another run, and checks the numbers.
    pub fn harm(&mut self) {
        let before = numbered(&self.session());
        let mut is_run_missing = false;
        self.happened.count(Event::Harm);
        match (self.dice.roll(4), self.backup.take()) {
            (0, Some(Backup { dir, mark })) => {
                fs::remove_dir_all(self.session()).expect("it goes");
                copy(&dir, &self.session());
                *self.mark() = mark;
            }
            (0 | 1, _) => {
                self.cut_journal();
                self.forget_history();
            }
            (2, _) => {
                is_run_missing = self.lose_run();
                self.forget_history();
            }
            _ => self.forget_history(),
        }
        if self.canary == Canary::ForgetsWitness {
            let _ = fs::remove_dir_all(self.dir.path().join("marks"));
            *self.mark() = SeqMark::default();
        }
        self.another_run();
        if self.catch_up(None).is_none() {
            return;
        }
        let after = numbered(&self.session());
        let twice = after.iter().find(|(seq, event)| before.get(*seq).is_some_and(|before| before != *event));
        if let Some((seq, event)) = twice {
            let first = before.get(seq);
            self.broken(format!("4: given twice: {seq} is {event:?} and was {first:?}"));
        }
        let gaps = |events: &Numbered| events.values().filter(|(_, event_type)| event_type == "event_gap").count();
        let lost_with_run =
            before.values().filter(|(key, kind)| kind == "event_gap" && !after.values().any(|(k, _)| k == key));
        if is_run_missing && gaps(&after) + lost_with_run.count() <= gaps(&before) {
            self.broken("4: a missing run is not told".to_owned());
        }
        let new = after.values().filter(|(_, event_type)| event_type == "after").count() as u64;
        if new != EVENTS_AFTER {
            self.broken(format!("4: {new} of {EVENTS_AFTER} new events are indexed"));
        }
    }

    fn forget_history(&self) {
        for beside in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(self.session().join(format!("{HISTORY_FILE}{beside}")));
        }
    }

    /// Removes some of the last records.
    fn cut_journal(&mut self) {
        let Some(last) = segments(&self.journal()).pop() else { return };
        let text = fs::read(&last).expect("it is there");
        let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        let left = 1 + self.dice.roll((lines.len() as u64).saturating_sub(1).max(1)) as usize;
        fs::write(&last, lines[..left.min(lines.len())].concat()).expect("it can be cut");
    }

    /// Removes a run that is neither the first nor the last; false if there is none.
    fn lose_run(&mut self) -> bool {
        let names = SegmentName::list(&self.journal()).expect("the journal can be read");
        let mut runs: Vec<Generation> = names.iter().map(|name| name.generation.clone()).collect();
        runs.dedup();
        if runs.len() < 3 {
            return false;
        }
        let lost = &runs[1 + self.dice.roll(runs.len() as u64 - 2) as usize];
        for name in names.iter().filter(|name| name.generation == *lost) {
            fs::remove_file(self.journal().join(name.to_string())).expect("it goes");
        }
        true
    }

    /// A run after all others.
    fn another_run(&mut self) {
        let seconds = (self.now.unix_us / 1_000_000) as u32 + 1_000;
        let generation = Generation::after(self.generation.as_ref(), seconds, 1);
        let at = self.now.unix_us + 1_000_000_000;
        let header = Header {
            journal: FORMAT,
            session: "s".to_owned(),
            generation: generation.to_string(),
            segment: 1,
            at,
            argv: Vec::new(),
            cwd: "/".to_owned(),
            codex: ServerOrigin { path: "codex".to_owned() },
            adopted: false,
            shim: "0".to_owned(),
            previous: Previous::of_end(&self.journal()),
        };
        let mut text = serde_json::to_string(&header).expect("JSON") + "\n";
        for number in 0..EVENTS_AFTER {
            text += &format!("{{\"at\":{},\"from\":\"server\",\"line\":{{\"method\":\"after\"}}}}\n", at + number);
        }
        let name = SegmentName { generation, number: 1 };
        fs::write(self.journal().join(name.to_string()), text).expect("it can be written");
    }
}

fn numbered(session: &Path) -> Numbered {
    let database = Connection::open(session.join(HISTORY_FILE)).expect("there is a history");
    let sql = "SELECT seq, generation || ':' || segment || ':' || byte_offset, event_type FROM codex_events";
    let mut select = database.prepare(sql).expect("our own SQL");
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, (row.get(1)?, row.get(2)?)));
    select.query_map([], read).and_then(Iterator::collect).expect("events can be read")
}

fn segments(journal: &Path) -> Vec<PathBuf> {
    let names = SegmentName::list(journal).expect("the journal can be read");
    names.iter().map(|name| journal.join(name.to_string())).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("journal")).expect("a folder");
    for dir in [PathBuf::new(), PathBuf::from("journal")] {
        for file in fs::read_dir(from.join(&dir)).expect("a folder").map(|file| file.expect("a file")) {
            if file.path().is_file() {
                fs::copy(file.path(), to.join(&dir).join(file.file_name())).expect("it can be copied");
            }
        }
    }
}
