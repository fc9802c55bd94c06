//! Stalled turns: runs `on_stalled` once for each silence of a running turn that has lasted for `stalled_after`.
//!
//! The activity of the index decides, by the rule that `stalled_since` follows everywhere. A thread of its own looks at it once a
//! second, so the relay does nothing per event. Without the hook the thread sleeps.
//!
//! It never reports a silence that only comes from an index that is behind: the index must have read everything that was recorded when
//! the silence was noticed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::hook_watch::{HookWatch, ToldOf, WatchSettings};
use super::hooks::named;
use crate::history::{Activity, ThreadActivity, rfc3339_millis};
use crate::index::Index;
use crate::journal::{Position, end_of};

/// How often the activity is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How soon a silence is looked at again until the index has caught up.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(50);

/// Stack of the thread, in bytes.
const STACK_BYTES: usize = 256 << 10;

/// Starts the watch of a session.
pub(super) fn start(watch: HookWatch, index: Index, journal_dir: PathBuf, session_id: String) -> io::Result<()> {
    let mut silences = Silences::after(watch.told());
    let thread = std::thread::Builder::new().name("stalled".to_owned()).stack_size(STACK_BYTES);
    thread.spawn(move || {
        loop {
            let settings = watch.next_settings(silences.pause());
            for thread in silences.due(&index, &settings, || end_of(&journal_dir)) {
                let session_dir = journal_dir.parent().map(Path::to_owned);
                watch.run(
                    &settings,
                    &session_id,
                    move || Some(named(thread, session_dir.as_deref())),
                    silences.reported(),
                );
            }
            watch.keep_told(silences.reported());
        }
    })?;
    Ok(())
}

/// A silence: the thread, and since when, in microseconds since the Unix epoch.
type Silence = (String, u64);

/// The current silences.
#[derive(Debug, Default)]
struct Silences(BTreeMap<Silence, SilenceStep>);

/// How far a silence has come.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SilenceStep {
    /// It was noticed when the journal ended here.
    Noticed(Option<Position>),
    Reported,
}

impl Silences {
    /// Begins with silences that were reported already.
    fn after(told: Vec<ToldOf>) -> Silences {
        let reported = told.into_iter().filter_map(|(thread, since_us)| Some((thread, since_us.parse().ok()?)));
        Silences(reported.map(|silence| (silence, SilenceStep::Reported)).collect())
    }

    fn reported(&self) -> Vec<ToldOf> {
        let reported = self.0.iter().filter(|(_, step)| **step == SilenceStep::Reported);
        reported.map(|((thread, since_us), _)| (thread.clone(), since_us.to_string())).collect()
    }

    fn pause(&self) -> Duration {
        let is_noticed = |step: &SilenceStep| matches!(step, SilenceStep::Noticed(_));
        if self.0.values().any(is_noticed) { LOOK_EVERY_MIN } else { LOOK_EVERY }
    }

    /// The documents of the silences that have to be reported now.
    fn due(&mut self, index: &Index, settings: &WatchSettings, end: impl FnOnce() -> Option<Position>) -> Vec<Value> {
        let activity = index.activity();
        let now_us = now_us();
        let (session, _) = activity.session(now_us);
        let threads = if session == Activity::Stopped { Vec::new() } else { activity.threads(now_us) };
        let has_read = |to: &Position| {
            let state = index.state();
            let state = state.borrow();
            // While nothing can be indexed, the journal is read without the database.
            state.fault.is_some() || state.position.as_ref() >= Some(to)
        };
        let reported = self.take(&threads, now_us, settings.after, end, has_read);
        reported.into_iter().map(|thread| document(thread, now_us)).collect()
    }

    /// The threads whose silences have to be reported now.
    fn take<'a>(
        &mut self,
        threads: &'a [ThreadActivity],
        now_us: u64,
        after: Duration,
        end: impl FnOnce() -> Option<Position>,
        has_read: impl Fn(&Position) -> bool,
    ) -> Vec<&'a ThreadActivity> {
        let mut stalled: BTreeMap<Silence, &ThreadActivity> = BTreeMap::new();
        for thread in threads {
            if let Some(since_us) = thread.stalled_since_us(now_us, after) {
                stalled.insert((thread.thread_id.clone(), since_us), thread);
            }
        }
        self.0.retain(|silence, _| stalled.contains_key(silence));
        let is_new = |silence: &&Silence| !self.0.contains_key(*silence);
        let new: Vec<Silence> = stalled.keys().filter(is_new).cloned().collect();
        if !new.is_empty() {
            let end = end();
            self.0.extend(new.into_iter().map(|silence| (silence, SilenceStep::Noticed(end.clone()))));
        }
        let mut due = Vec::new();
        for (silence, step) in &mut self.0 {
            let is_due = match step {
                SilenceStep::Noticed(end) => end.as_ref().is_none_or(&has_read),
                SilenceStep::Reported => false,
            };
            if is_due {
                *step = SilenceStep::Reported;
                due.extend(stalled.get(silence).copied());
            }
        }
        due
    }
}

/// The input of the hook.
fn document(thread: &ThreadActivity, now_us: u64) -> Value {
    let since_us = thread.silent_since_us.unwrap_or(now_us);
    json!({
        "thread_id": thread.thread_id,
        "turn_id": thread.turn_id,
        "stalled_since": rfc3339_millis(since_us),
        "silent_ms": now_us.saturating_sub(since_us) / 1_000,
    })
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::journal::SegmentName;
    use crate::protocol::ThreadKind;

    const AFTER: Duration = Duration::from_secs(300);

    fn silent(thread_id: &str, since_s: u64) -> ThreadActivity {
        ThreadActivity {
            thread_id: thread_id.to_owned(),
            activity: Activity::Thinking,
            since_us: since_s * 1_000_000,
            turn_id: Some("u".to_owned()),
            pending: 0,
            silent_since_us: Some(since_s * 1_000_000),
            kind: ThreadKind::User,
        }
    }

    fn at(offset: u64) -> Position {
        let segment = SegmentName::parse("00000000000a-001.jsonl").expect("BUG: a segment");
        Position { segment, offset }
    }

    /// The threads that are reported at this second, with an index that has read the journal up to `read`.
    fn reported(silences: &mut Silences, threads: &[ThreadActivity], now_s: u64, read: u64) -> Vec<String> {
        let due = silences.take(threads, now_s * 1_000_000, AFTER, || Some(at(100)), |to| at(read) >= *to);
        due.into_iter().map(|thread| thread.thread_id.clone()).collect()
    }

    #[test]
    fn each_silence_is_reported_once() {
        let mut silences = Silences::default();
        let threads = [silent("a", 10), silent("b", 20)];
        assert_eq!(reported(&mut silences, &threads, 309, 100), [""; 0]);
        assert_eq!(reported(&mut silences, &threads, 310, 100), ["a"]);
        assert_eq!(reported(&mut silences, &threads, 320, 100), ["b"]);
        assert_eq!(reported(&mut silences, &threads, 900, 100), [""; 0]);
        // It went on, and is silent again.
        assert_eq!(reported(&mut silences, &[silent("a", 910)], 1_210, 100), ["a"]);
        assert_eq!(silences.0.len(), 1);
    }

    #[test]
    fn silence_waits_for_an_index_that_is_behind() {
        let mut silences = Silences::default();
        assert_eq!(reported(&mut silences, &[silent("a", 10)], 310, 99), [""; 0]);
        assert_eq!(silences.pause(), LOOK_EVERY_MIN);
        // The index then reads an event of the thread.
        assert_eq!(reported(&mut silences, &[silent("a", 305)], 311, 100), [""; 0]);
        assert_eq!(reported(&mut silences, &[silent("a", 305)], 605, 99), [""; 0]);
        assert_eq!(reported(&mut silences, &[silent("a", 305)], 606, 100), ["a"]);
        assert_eq!(silences.pause(), LOOK_EVERY);
    }

    #[test]
    fn hook_gets_the_turn_and_its_silence() {
        let document = document(&silent("a", 10), 310_000_000);
        let since = "1970-01-01T00:00:10.000Z";
        let expect = json!({ "thread_id": "a", "turn_id": "u", "stalled_since": since, "silent_ms": 300_000 });
        assert_eq!(document, expect);
    }
}
