//! Counts the records that are not indexed yet, in the background, within a bound, and at most once a second.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::journal::{Position, end_of, reader};

/// Most records that are counted.
const RECORDS_MAX: u64 = 100_000;

/// Most bytes that are read for one count; later records are not counted.
const BYTES_MAX: usize = 64 << 20;

/// How long a count stays valid. Source: a working index is behind for less, and a broken one for much longer.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// Records that are not indexed yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lag {
    pub(super) records: u64,
    /// Time of the oldest one, in microseconds since the Unix epoch.
    pub(super) oldest_us: Option<u64>,
}

#[derive(Debug)]
pub(super) struct LagMeter {
    journal_dir: PathBuf,
    last: Mutex<Option<(Instant, Lag)>>,
}

impl LagMeter {
    pub(super) fn new(journal_dir: &Path) -> LagMeter {
        LagMeter { journal_dir: journal_dir.to_owned(), last: Mutex::new(None) }
    }

    /// The lag of an index at position `from`, at most [`GOOD_FOR`] old.
    pub(super) async fn lag(&self, from: Option<Position>, now: Instant) -> Lag {
        let end = end_of(&self.journal_dir);
        if end.is_none() || from >= end {
            return Lag::default();
        }
        // Concurrent callers wait for this count and share it.
        let mut last = self.last.lock().await;
        if let Some((counted_at, lag)) = *last
            && now.saturating_duration_since(counted_at) < GOOD_FOR
        {
            return lag;
        }
        let journal_dir = self.journal_dir.clone();
        let counted = tokio::task::spawn_blocking(move || count(&journal_dir, from, RECORDS_MAX, BYTES_MAX)).await;
        // Blocking tasks are never cancelled.
        let lag = counted.unwrap_or_else(|stopped| std::panic::resume_unwind(stopped.into_panic()));
        *last = Some((now, lag));
        lag
    }
}

fn count(journal_dir: &Path, from: Option<Position>, records_max: u64, bytes_max: usize) -> Lag {
    #[derive(serde::Deserialize)]
    struct At {
        at: u64,
    }
    let mut reader = reader::Reader::new(journal_dir, from);
    let (mut lag, mut read_bytes) = (Lag::default(), 0);
    while let Ok(step) = reader.step() {
        match step {
            reader::Step::Record { bytes, .. } => {
                if lag.records == 0 {
                    lag.oldest_us = serde_json::from_slice::<At>(bytes).ok().map(|record| record.at);
                }
                lag.records += 1;
                read_bytes += bytes.len();
            }
            reader::Step::Lost { .. } => {}
            reader::Step::End => break,
        }
        if lag.records >= records_max || read_bytes >= bytes_max {
            break;
        }
    }
    lag
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;
    use std::sync::mpsc::sync_channel;

    const SEGMENT: &str = "000000050009-001.jsonl";

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .expect("BUG: a runtime")
    }

    fn journal(records: usize) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let records: String = (0..records).map(|number| format!("{{\"at\":{}}}\n", 7 + number)).collect();
        fs::write(dir.path().join(SEGMENT), records).expect("it is ours");
        dir
    }

    #[test]
    fn a_count_is_bounded() {
        let dir = journal(9);
        let check = |records_max, bytes_max, records| {
            let expect = Lag { records, oldest_us: Some(7) };
            assert_eq!(count(dir.path(), None, records_max, bytes_max), expect, "{records_max} {bytes_max}");
        };
        check(100, 1_000, 9);
        check(4, 1_000, 4);
        // The second record has eight bytes too; the third is not read.
        check(100, 9, 2);
    }

    #[test]
    fn a_count_is_reused_for_a_while() {
        let dir = journal(2);
        let meter = LagMeter::new(dir.path());
        runtime().block_on(async {
            let now = Instant::now();
            assert_eq!(meter.lag(None, now).await.records, 2);
            let longer = fs::read(dir.path().join(SEGMENT)).expect("it is there").repeat(2);
            fs::write(dir.path().join(SEGMENT), longer).expect("it is ours");
            assert_eq!(meter.lag(None, now + GOOD_FOR / 2).await.records, 2);
            assert_eq!(meter.lag(None, now + GOOD_FOR).await.records, 4);
            assert_eq!(meter.lag(end_of(dir.path()), now + GOOD_FOR).await, Lag::default());
        });
    }

    #[test]
    fn counting_does_not_block_the_runtime() {
        let dir = journal(2);
        let meter = LagMeter::new(dir.path());
        let (release, released) = sync_channel::<()>(0);
        runtime().block_on(async {
            // The only thread for blocking work is busy, so that the count cannot begin.
            let busy = tokio::task::spawn_blocking(move || released.recv());
            let mut lag = std::pin::pin!(meter.lag(None, Instant::now()));
            tokio::select! {
                biased;
                _ = &mut lag => panic!("the runtime's own thread has counted"),
                () = tokio::task::yield_now() => {}
            }
            drop(release);
            assert_eq!(lag.await.records, 2);
            let _ = busy.await;
        });
    }
}
