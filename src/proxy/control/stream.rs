//! The event stream: first the history, then new events, without gaps or duplicates between them.
//!
//! A reader has a cursor. Events after the cursor are read from the history page by page, whether they are old or were indexed
//! just now; the index only signals that there are more. So nothing can get lost between the two, and a slow reader costs one
//! cursor and one page. Events that cannot be indexed are sent too, without a number.

use std::convert::Infallible;
use std::path::Path;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde_json::json;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::history::Historian;
use super::places::Stream;
use super::routes::{AppState, Given, Refusal, Responded, ThisSession};
use crate::api::{Cursor, EpochId, EventStreamQuery, GapReason, Parameter as _, StreamMode, gap_event};
use crate::history::{Seen, UiFold};
use crate::index::{Follower, IndexState, LiveEvent, Next, Patience, ReadAt, shown_line};
use crate::journal::{Generation, Position, Record, SegmentName, end_of};

/// Events read from the history at a time.
const PAGE: u64 = 500;

/// Events buffered for a slow reader. hyper writes them together.
const EVENTS_WAITING_MAX: usize = 64;

/// Records buffered for a slow reader; each may be as long as a line.
const RECORDS_WAITING_MAX: usize = 4;

/// Interval of keep-alives, which also detect readers that are gone.
const ALIVE_EVERY: Duration = Duration::from_secs(15);

/// A reader that once was up to date and falls further behind than this gets a gap event.
const BEHIND_MAX: u64 = 1_000;

/// A reader that takes longer than this for the available events counts as slow.
const SLOW_AFTER: Duration = Duration::from_secs(1);

/// Records sent to one reader before others get their turn.
const TURN: u64 = 32;

/// Polling interval of readers of the journal's records.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The reader has disconnected, or there is no history.
struct Gone;

impl From<Refusal> for Gone {
    fn from(_: Refusal) -> Gone {
        Gone
    }
}

/// Events on their way to a reader.
type Sender = mpsc::Sender<Event>;

pub(super) async fn stream(
    ThisSession(app): ThisSession,
    Given(query): Given<EventStreamQuery>,
    headers: HeaderMap,
) -> Responded {
    let EventStreamQuery { since_seq, since_epoch, mode } = query;
    let (since, mode) = (Cursor::of(since_seq, since_epoch), mode.unwrap_or(StreamMode::Events));
    let last_id = headers.get("last-event-id").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    app.historian()?;
    let wrong =
        |id: &str, form: &str| Refusal::bad("invalid_parameter", format!("`Last-Event-ID: {id}`: it must be {form}"));
    let waiting_max = if mode == StreamMode::Events { EVENTS_WAITING_MAX } else { RECORDS_WAITING_MAX };
    let (sender, events) = mpsc::channel(waiting_max);
    match mode {
        StreamMode::Events => {
            let since = match last_id {
                Some(id) => Some(cursor_of(id).ok_or_else(|| wrong(id, "SEQ or EPOCH:SEQ"))?),
                None => since,
            };
            tokio::spawn(async move { send_events(app.historian()?, since.unwrap_or_default(), sender).await });
        }
        StreamMode::Raw | StreamMode::Ui => {
            let (start, gap) = match (last_id, since) {
                (Some(id), _) => (Some(Start::parse(id).ok_or_else(|| wrong(id, "GENERATION:SEGMENT:OFFSET"))?), None),
                (None, Some(since)) => Start::behind(&app, &since).await?,
                (None, None) => (None, None),
            };
            tokio::spawn(async move {
                send_records(app.historian()?, &app.info.journal_dir, (start, gap), mode, sender).await
            });
        }
    }
    Ok(response(events))
}

/// The response that sends these events.
fn response(mut events: mpsc::Receiver<Event>) -> Response {
    let events = stream::poll_fn(move |context| events.poll_recv(context).map(|event| event.map(Ok::<_, Infallible>)));
    let events = Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE_EVERY).text("alive"));
    let headers = [(header::CACHE_CONTROL, "no-store"), (header::CONNECTION, "close")];
    (headers, Extension(Stream), events).into_response()
}

async fn send_events(historian: &Historian, since: Cursor, sender: Sender) -> Result<(), Gone> {
    let mut state = historian.index.state();
    let mut live = historian.index.live();
    let mut cursor = since;
    let mut was_up = false;
    send_head(&sender).await?;
    historian.catch_up().await;
    let is_faulty = state.borrow().fault.is_some();
    if is_faulty {
        send_gap(&sender, "persistence_error", cursor.seq, None).await?;
    }
    let mut was_slow = false;
    loop {
        // Events without a number are sent before their numbered copies.
        loop {
            match live.try_recv() {
                Ok(told) if has_number(&state.borrow(), &told) => {}
                Ok(told) => send(&sender, None, &told.json).await?,
                // The missed events get numbers later.
                Err(TryRecvError::Lagged(_)) => send_gap(&sender, "persistence_error", cursor.seq, None).await?,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        let now = state.borrow_and_update().clone();
        if was_up && was_slow && now.last_seq.saturating_sub(cursor.seq) > BEHIND_MAX {
            send_gap(&sender, "reader_behind", cursor.seq, Some(now.last_seq)).await?;
        }
        let began = Instant::now();
        was_up = send_pages(historian, now.opened, &mut cursor, &sender).await?;
        was_slow = began.elapsed() >= SLOW_AFTER;
        tokio::select! {
            () = sender.closed() => return Err(Gone),
            // A page that could not be read is tried again.
            () = sleep(ALIVE_EVERY) => {}
            changed = state.changed() => changed.map_err(|_| Gone)?,
            told = live.recv() => match told {
                Ok(told) if has_number(&state.borrow(), &told) => {}
                Ok(told) => send(&sender, None, &told.json).await?,
                // The missed events get numbers later.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return Err(Gone),
            },
        }
    }
}

/// Whether an event that was sent without a number is indexed by now, and so was or will be sent with its number.
fn has_number(state: &IndexState, told: &LiveEvent) -> bool {
    state.position.as_ref().is_some_and(|position| *position > told.at)
}

/// Sends all events after `cursor`; false if the database cannot be read. A reader whose cursor is not of this history gets a
/// gap event and then all events.
async fn send_pages(historian: &Historian, opened: u64, cursor: &mut Cursor, sender: &Sender) -> Result<bool, Gone> {
    loop {
        let since = cursor.clone();
        let page = historian.ask(opened, move |history| history.events(Some(&since), PAGE, opened, false)).await;
        let page = match page {
            Ok(page) => page,
            Err(error) => {
                tracing::debug!(%error, "a page for a stream");
                return Ok(false);
            }
        };
        let first = page.events.first().and_then(|event| event.seq);
        match page.gap_reason {
            Some(reason) if reason.is_other_history() => {
                send_gap(sender, reason.name(), cursor.seq, first.map(|first| first - 1)).await?;
                *cursor = Cursor { seq: page.next_seq.saturating_sub(1), epoch: page.epoch.clone() };
            }
            Some(_) | None => {
                if let Some(first) = first.filter(|first| *first > cursor.seq + 1) {
                    send_gap(sender, "retention", cursor.seq, Some(first - 1)).await?;
                }
                if page.epoch.is_some() {
                    cursor.epoch.clone_from(&page.epoch);
                }
            }
        }
        for event in &page.events {
            let Some(seq) = event.seq else { continue };
            let json = serde_json::to_string(event).expect("BUG: plain data is JSON");
            send(sender, Some(&seq.to_string()), &json).await?;
            cursor.seq = seq;
        }
        if (page.events.len() as u64) < PAGE {
            return Ok(true);
        }
    }
}

async fn send(sender: &Sender, id: Option<&str>, json: &str) -> Result<(), Gone> {
    let event = id.map_or_else(Event::default, |id| Event::default().id(id));
    // JSON may contain line breaks between tokens; in a stream each would end the line.
    let event = if json.contains('\r') { event.data(json.replace('\r', " ")) } else { event.data(json) };
    sender.send(event).await.map_err(|_| Gone)
}

/// Sends a comment first, because hyper sends the response head with the first event.
async fn send_head(sender: &Sender) -> Result<(), Gone> {
    sender.send(Event::default().comment("alive")).await.map_err(|_| Gone)
}

/// Sends a gap event.
async fn send_gap(sender: &Sender, reason: &str, after_seq: u64, up_to_seq: Option<u64>) -> Result<(), Gone> {
    send(sender, None, gap_event(reason, after_seq, up_to_seq).get()).await
}

async fn send_records(
    historian: &Historian,
    journal_dir: &Path,
    (start, missing): (Option<Start>, Option<GapReason>),
    mode: StreamMode,
    sender: Sender,
) -> Result<(), Gone> {
    let mut state = historian.index.state();
    send_head(&sender).await?;
    if let Some(reason) = missing {
        let event = json!({ "type": "event_gap", "reason": reason.name() });
        send(&sender, None, &event.to_string()).await?;
    }
    // The simple form of an event depends on earlier records, so reading starts at the beginning of the segment.
    let from = start.clone().map(|Start { at, .. }| match mode {
        StreamMode::Ui => Position { offset: 0, ..at },
        StreamMode::Events | StreamMode::Raw => at,
    });
    let is_told = |at: &Position, part| start.as_ref().is_none_or(|start| start.tells(at, part));
    let mut follower = Follower::new(journal_dir, from);
    let mut ui = UiFold::default();
    let mut events = Vec::new();
    let mut read = 0;
    let mut silent_for = Duration::ZERO;
    loop {
        let patience = if silent_for >= SILENCE { Patience::None } else { Patience::Some };
        match follower.next(patience) {
            Ok(Next::Record { at, bytes, successor, .. }) => {
                silent_for = Duration::ZERO;
                read += 1;
                let id = format!("{}:{}:{}", at.segment.generation, at.segment.number, at.offset);
                match mode {
                    StreamMode::Events | StreamMode::Raw => {
                        if is_told(&at, 0) {
                            send(&sender, Some(&id), &String::from_utf8_lossy(bytes)).await?;
                        }
                        if let Some(successor) = successor {
                            // The next record follows directly.
                            let at = at.offset + bytes.len() as u64 + 1;
                            let id =
                                id.rsplit_once(':').map_or_else(String::new, |(before, _)| format!("{before}:{at}"));
                            send(&sender, Some(&id), &String::from_utf8_lossy(successor)).await?;
                        }
                    }
                    StreamMode::Ui => {
                        fold(&mut ui, bytes, successor, &mut events);
                        let last = events.len().saturating_sub(1);
                        for (part, event) in events.drain(..).enumerate().filter(|(part, _)| is_told(&at, *part)) {
                            // If one record gives several events, all but the last carry their part number in the id.
                            let id = if part == last { id.clone() } else { format!("{id}:{}", part + 1) };
                            send(&sender, Some(&id), &event).await?;
                        }
                    }
                }
                if read % TURN == 0 {
                    tokio::task::yield_now().await;
                }
            }
            Ok(Next::Lost { at }) => {
                let event = json!({ "type": "event_gap", "reason": "segment_removed", "at": at.offset });
                send(&sender, None, &event.to_string()).await?;
            }
            Ok(Next::End) => {
                if sender.is_closed() || (end_of(journal_dir).is_none() && state.has_changed().is_err()) {
                    return Ok(());
                }
                // The index may signal a new record sooner; if the index has failed, the timeout applies.
                drop(timeout(LOOK_AGAIN_AFTER, state.changed()).await);
                silent_for += LOOK_AGAIN_AFTER;
            }
            Err(error) => {
                tracing::warn!(%error, "read the journal for a stream");
                return Ok(());
            }
        }
    }
}

/// After this long without a record, no later one can replace the one before.
const SILENCE: Duration = Duration::from_millis(250);

fn fold(ui: &mut UiFold, bytes: &[u8], successor: Option<&[u8]>, events: &mut Vec<String>) {
    let Ok(record) = Record::parse(bytes) else { return };
    let successor = successor.and_then(|bytes| Record::parse(bytes).ok());
    let shown = shown_line(&record, successor.as_ref());
    let mut told = Vec::new();
    ui.take(&Seen::of(&record, shown.as_deref()), &mut told);
    let json = |event| serde_json::to_string(event).expect("BUG: plain data is JSON");
    events.extend(told.iter().map(json));
}

/// Parses an id: a number, or an epoch and a number.
fn cursor_of(id: &str) -> Option<Cursor> {
    let (epoch, seq) = match id.split_once(':') {
        Some((epoch, seq)) => (Some(EpochId::read(epoch).ok()?), seq),
        None => (None, id),
    };
    Cursor::of(Some(u64::read(seq).ok()?), epoch)
}

/// Where a reader of records resumes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Start {
    at: Position,
    /// How many events of this record were sent already.
    told: usize,
}

impl Start {
    /// Parses an event id.
    fn parse(id: &str) -> Option<Start> {
        let mut parts = id.split(':');
        let (generation, number, offset) = (parts.next()?, parts.next()?, parts.next()?);
        let told = parts.next().map_or(Some(usize::MAX), |told| told.parse().ok())?;
        let segment = SegmentName { generation: Generation::parse(generation)?, number: number.parse().ok()? };
        parts.next().is_none().then_some(Start { at: Position { segment, offset: offset.parse().ok()? }, told })
    }

    /// The position after event `cursor`, or the first position if that event was pruned. For a number that this history has
    /// not issued: the beginning, and the reason.
    async fn behind(app: &AppState, cursor: &Cursor) -> Result<(Option<Start>, Option<GapReason>), Refusal> {
        let historian = app.historian()?;
        let ReadAt { opened, is_behind } = historian.catch_up().await;
        let of_cursor = cursor.clone();
        let asked = historian.ask(opened, move |history| history.events(Some(&of_cursor), 1, opened, is_behind)).await;
        let asked = asked?;
        if let Some(reason) = asked.gap_reason.filter(|reason| reason.is_other_history()) {
            return Ok((None, Some(reason)));
        }
        let Some(before) = cursor.seq.checked_sub(1) else { return Ok((None, None)) };
        let page =
            historian.ask(opened, move |history| history.events(Some(&Cursor::from(before)), 1, opened, false)).await?;
        let Some(event) = page.events.first() else {
            return Ok((end_of(&app.info.journal_dir).map(|at| Start { at, told: 0 }), None));
        };
        let start = event.key.as_deref().and_then(Start::parse);
        let is_it = event.seq == Some(cursor.seq);
        Ok((start.map(|start| if is_it { start } else { Start { told: 0, ..start } }), None))
    }

    /// Whether part `part` of the record at `at` must still be sent.
    fn tells(&self, at: &Position, part: usize) -> bool {
        *at > self.at || (*at == self.at && part >= self.told)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::SystemTime;

    use axum::body::Body;
    use http_body_util::BodyExt as _;
    use rusqlite::Connection;
    use serde_json::Value;

    use super::super::routes::SessionInfo;
    use crate::config::RetentionBounds;
    use crate::engine::ContextBounds;
    use crate::index::{HISTORY_FILE, IndexSettings, Stepped, TranscriptFiles};
    use crate::journal::IndexedTo;
    use crate::store::{SeqMark, SeqWish};

    use super::*;

    #[test]
    fn cursor_may_name_its_epoch() {
        let read = |id: &str| cursor_of(id).map(|Cursor { seq, epoch }| (seq, epoch.unwrap_or_default()));
        assert_eq!(read("7"), Some((7, String::new())));
        assert_eq!(read("0a1b2c3d4e5f:7"), Some((7, "0a1b2c3d4e5f".to_owned())));
        for wrong in ["", ":7", "7:", "x:7", "a:b:7", "+7", "a:-7"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ids_are_positions() {
        let read = |id: &str| Start::parse(id).map(|Start { at, .. }| format!("{}+{}", at.segment, at.offset));
        assert_eq!(read("000000010000:2:77").as_deref(), Some("000000010000-002.jsonl+77"));
        for wrong in [
            "",
            "7",
            "000000010000:2",
            "000000010000:2:77:x",
            "000000010000:2:77:1:1",
            "xyz:2:77",
            "000000010000:-2:77",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    // A seeded simulation: lines are recorded, the index runs, the database is locked and unlocked, and a reader reads,
    // disconnects and reconnects with its last number, in random order. No event may be lost or sent twice.

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
                callers: crate::socket::Callers::default(),
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
        body: Option<Body>,
        text: String,
        last_seq: u64,
        /// The number of each key.
        numbered: BTreeMap<String, u64>,
        unnumbered: Vec<String>,
    }

    impl Reader {
        fn comes(&mut self, lab: &Lab) {
            let (sender, events) = mpsc::channel(RECORDS_WAITING_MAX);
            let (historian, since) = (Arc::clone(&lab.historian), self.last_seq);
            tokio::spawn(async move {
                let _ = send_events(&historian, since.into(), sender).await;
            });
            self.text.clear();
            self.body = Some(response(events).into_body());
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
                None if self.numbered.contains_key(&key) => {
                    Err(format!("{key} has its number, and is told without it"))
                }
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
}
