//! A seeded simulation of the event stream: lines are recorded, the index runs, the database is locked and unlocked, and a
//! reader reads, disconnects and reconnects with its last number, in random order. No event may be lost or sent twice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use axum::body::Bytes;
use http_body_util::BodyExt as _;
use http_body_util::channel::Channel;
use rusqlite::Connection;
use serde_json::Value;

use super::historian::Historian;
use super::state::SessionInfo;
use super::stream::events;
use crate::config::RetentionBounds;
use crate::engine::ContextBounds;
use crate::index::{HISTORY_FILE, IndexSettings, Stepped, TranscriptFiles};
use crate::journal::{Generation, IndexedTo, SegmentName};
use crate::store::{SeqMark, SeqWish};

const SEEDS: u64 = 10;

const STEPS: u64 = 120;

/// A pseudo-random generator: xorshift64*.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % sides
    }
}

/// A session whose journal and index the test drives step by step.
struct Lab {
    dir: tempfile::TempDir,
    journal: std::fs::File,
    recorded: u64,
    stepped: Stepped,
    historian: Arc<Historian>,
}

impl Lab {
    fn new() -> Lab {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let journal_dir = dir.path().join("journal");
        std::fs::create_dir(&journal_dir).expect("a folder");
        let generation = Generation::after(None, 1, 0);
        let name = SegmentName { generation: generation.clone(), number: 1 };
        let header = format!(
            r#"{{"journal":1,"session":"s","generation":"{generation}","segment":1,"at":1,"argv":[],"cwd":"/","codex":{{"path":"c"}},"shim":"0"}}"#
        );
        std::fs::write(journal_dir.join(name.to_string()), header + "\n").expect("a file");
        let journal =
            std::fs::OpenOptions::new().append(true).open(journal_dir.join(name.to_string())).expect("a file");
        let settings = IndexSettings {
            session_id: "s".to_owned(),
            session_dir: dir.path().to_owned(),
            journal_dir: journal_dir.clone(),
            retention: RetentionBounds::UNBOUNDED,
            transcript_files: TranscriptFiles::None,
            home: None,
            indexed_to: IndexedTo::default(),
        };
        let mark = Mutex::new(SeqMark::default());
        let marks = Box::new(move |wish: SeqWish| {
            let mut mark = mark.lock().unwrap_or_else(PoisonError::into_inner);
            mark.reserved = mark.reserved.max(wish.up_to);
            mark.first_generation = mark.first_generation.take().or(wish.first_generation);
            mark.epoch = wish.epoch.or(mark.epoch.take());
            Ok(mark.clone())
        });
        let (index, stepped) = Stepped::new(settings, marks, Box::new(|_| {}));
        let info = SessionInfo {
            session_id: "s".to_owned(),
            session_dir: dir.path().to_owned(),
            journal_dir,
            generation: generation.to_string(),
            started_at: SystemTime::UNIX_EPOCH,
            runtime_dir: None,
            context_bounds: ContextBounds::default(),
        };
        let historian = Arc::new(Historian::new(index, &info));
        Lab { dir, journal, recorded: 0, stepped, historian }
    }

    fn record(&mut self, lines: u64) {
        for _ in 0..lines {
            self.recorded += 1;
            let (number, at) = (self.recorded, 1_767_225_600_000_000 + self.recorded);
            let line = format!(
                "{{\"at\":{at},\"from\":\"server\",\"line\":{{\"method\":\"m\",\"params\":{{\"number\":{number}}}}}}}\n"
            );
            std::io::Write::write_all(&mut self.journal, line.as_bytes()).expect("it can be written");
        }
    }
}

/// A stream reader that checks what it receives.
#[derive(Default)]
struct Reader {
    body: Option<Channel<Bytes>>,
    text: String,
    last_seq: u64,
    /// The number of each key.
    numbered: BTreeMap<String, u64>,
    unnumbered: Vec<String>,
}

impl Reader {
    fn comes(&mut self, lab: &Lab) {
        let (sender, body) = Channel::new(4);
        let (historian, since) = (Arc::clone(&lab.historian), self.last_seq);
        tokio::spawn(async move {
            let _ = events(&historian, since.into(), sender).await;
        });
        self.text.clear();
        self.body = Some(body);
    }

    /// Reads at most one chunk, if one arrives soon.
    async fn reads(&mut self) -> Result<bool, String> {
        let Some(body) = &mut self.body else { return Ok(false) };
        let Ok(Some(Ok(frame))) = tokio::time::timeout(Duration::from_millis(2), body.frame()).await else {
            return Ok(false);
        };
        let Ok(piece) = frame.into_data() else { return Ok(false) };
        self.text.push_str(&String::from_utf8_lossy(&piece));
        while let Some((event, rest)) = self.text.split_once("\n\n") {
            let (event, rest) = (event.to_owned(), rest.to_owned());
            self.text = rest;
            self.told(&event)?;
        }
        Ok(true)
    }

    fn told(&mut self, event: &str) -> Result<(), String> {
        let Some(data) = event.lines().find_map(|line| line.strip_prefix("data: ")) else { return Ok(()) };
        let event: Value = serde_json::from_str(data).expect("it is JSON");
        let Some(key) = event["key"].as_str().map(str::to_owned) else { return Ok(()) };
        match event["seq"].as_u64() {
            Some(seq) if seq != self.last_seq + 1 => Err(format!("{seq} comes behind {}", self.last_seq)),
            Some(seq) => {
                self.last_seq = seq;
                let before = self.numbered.insert(key, seq);
                before.map_or(Ok(()), |before| Err(format!("{seq} is told twice, and was {before}")))
            }
            None if self.numbered.contains_key(&key) => Err(format!("{key} has its number, and is told without it")),
            None => {
                self.unnumbered.push(key);
                Ok(())
            }
        }
    }
}

/// Runs one seed; returns how many events were sent without a number.
async fn play(seed: u64) -> Result<usize, String> {
    let mut dice = Dice(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let (mut lab, mut reader) = (Lab::new(), Reader::default());
    let history = lab.dir.path().join(HISTORY_FILE);
    let mut locker: Option<Connection> = None;
    reader.comes(&lab);
    for _ in 0..STEPS {
        match dice.roll(12) {
            0..=2 => lab.record(1 + dice.roll(8)),
            3..=5 => lab.stepped.step(),
            6..=8 => drop(reader.reads().await?),
            9 => tokio::task::yield_now().await,
            10 if locker.is_some() => locker = None,
            10 if history.exists() => {
                let connection = Connection::open(&history).expect("it can be opened");
                // A second writer sometimes locks the database.
                if dice.roll(2) == 0 && connection.execute_batch("BEGIN IMMEDIATE").is_ok() {
                    locker = Some(connection);
                }
            }
            _ if dice.roll(4) == 0 => {
                reader.body = None;
                tokio::task::yield_now().await;
                reader.comes(&lab);
            }
            _ => {}
        }
    }
    drop(locker);
    lab.record(1);
    for _ in 0..2_000 {
        lab.stepped.step();
        while reader.reads().await? {}
        if reader.last_seq == lab.recorded {
            let never = reader.unnumbered.iter().find(|key| !reader.numbered.contains_key(*key));
            return never.map_or(Ok(reader.unnumbered.len()), |key| Err(format!("{key} never gets a number")));
        }
    }
    Err(format!("{} of {} were told", reader.last_seq, lab.recorded))
}

#[test]
fn each_event_is_sent_once_in_any_order() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut unnumbered = 0;
    for seed in 0..SEEDS {
        unnumbered += runtime.block_on(play(seed)).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
    assert!(unnumbered > 0, "the database was never in the way");
}
