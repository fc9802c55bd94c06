//! The live timeline of a session: one follower for all tabs that show it.
//!
//! The follower and its window of entries are those of the terminal UI: they read the journal's files, so a stopped session has
//! a timeline too, and it goes on when a relay starts again. Each entry carries the number of its last change. A tab gets the
//! entries with a greater number than the last one it has seen, so a reconnect neither misses nor repeats anything.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

use super::shown;
use crate::protocol::{Showing, ThreadKind};
use crate::sessions::entry::{Folding, Key};
use crate::sessions::news::News;
use crate::sessions::reader::Teller;
use crate::sessions::source::Source;
use crate::sessions::timeline::Timeline;
use crate::store::Found;

/// Sessions that are followed at the same time.
const FOLLOWED_MAX: usize = 16;

/// Entries that a tab gets at first.
const FIRST_MAX: usize = 200;

/// Pieces of news that wait for the window.
const NEWS_MAX: usize = 16;

/// Shortest time between two changes of the window.
const TOGETHER: Duration = Duration::from_millis(25);

/// How long a session is followed after the last tab has left, so that a reconnect can resume.
const LINGER: Duration = Duration::from_secs(30);

/// How often a follower looks whether tabs are left.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// All followed sessions, by id.
#[derive(Debug, Clone)]
pub(super) struct Follows {
    source: Arc<dyn Source>,
    all: Arc<Mutex<HashMap<String, Arc<Follow>>>>,
}

/// A followed session.
#[derive(Debug)]
pub(super) struct Follow {
    pub(super) session_id: String,
    /// Tells this follow from an earlier one of the same session, also of another process.
    epoch: u128,
    window: Mutex<Window>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Window {
    change: u64,
    entries: VecDeque<Shown>,
    /// The change that has replaced all entries.
    replaced: u64,
    /// The greatest number of an entry that has left the window: a tab before it needs the window anew.
    dropped: u64,
    has_older: bool,
    problem: Option<(u64, String)>,
    readers: usize,
    left_at: Option<Instant>,
}

#[derive(Debug)]
struct Shown {
    key: Key,
    thread_id: Option<String>,
    thread_kind: ThreadKind,
    changed: u64,
    json: Arc<str>,
}

/// The entries that a tab wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Only of this thread, of those that belong to it, and of none.
    pub(super) thread: Option<String>,
    /// Of other threads: whether those that no person speaks in are left out or folded.
    pub(super) folding: Folding,
}

impl Wanted {
    /// The page folds threads that have a line, because only it knows which belong to which.
    pub(super) fn takes(&self, thread_id: Option<&str>, kind: ThreadKind) -> bool {
        match (&self.thread, thread_id) {
            (Some(wanted), Some(thread_id)) => wanted == thread_id || kind.showing() == Showing::Line,
            (Some(_), None) => true,
            (None, _) => self.folding == Folding::Unfolded || kind.showing() != Showing::Nothing,
        }
    }

    fn is_of(&self, entry: &Shown) -> bool {
        self.takes(entry.thread_id.as_deref(), entry.thread_kind)
    }
}

/// News of a timeline for a tab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// The last entries, in place of all before.
    Timeline {
        json: String,
        id: String,
    },
    /// New and changed entries.
    Entries {
        json: String,
        id: String,
    },
    Problem {
        json: String,
    },
}

/// A tab that shows the session.
#[derive(Debug)]
pub(super) struct TimelineReader {
    follow: Arc<Follow>,
    wanted: Wanted,
    /// The last change that the tab has.
    seen: u64,
}

impl Drop for TimelineReader {
    fn drop(&mut self) {
        let mut window = self.follow.window();
        window.readers -= 1;
        window.left_at = Some(Instant::now());
    }
}

impl Follows {
    pub(super) fn of(source: Arc<dyn Source>) -> Follows {
        Follows { source, all: Arc::default() }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Follow>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reader of the session, after the change that `last_id` names. `None` if tabs show too many other sessions.
    pub(super) fn reader(&self, session: &Found, wanted: Wanted, last_id: Option<&str>) -> Option<TimelineReader> {
        let mut all = self.all();
        let follow = match all.get(&session.id) {
            Some(follow) => Arc::clone(follow),
            None => {
                if all.len() >= FOLLOWED_MAX {
                    let left = all.values().filter_map(|follow| Some((follow.left_at()?, follow.session_id.clone())));
                    let (_, longest_left) = left.min()?;
                    all.remove(&longest_left);
                }
                let follow = Arc::new(Follow::new(session));
                let (follows, own, session) = (self.clone(), Arc::clone(&follow), session.clone());
                let thread = std::thread::Builder::new().name("timeline".to_owned());
                thread.spawn(move || run(&session, &own, &follows)).ok()?;
                all.insert(follow.session_id.clone(), Arc::clone(&follow));
                follow
            }
        };
        let mut window = follow.window();
        window.readers += 1;
        let resumed = last_id.and_then(|id| follow.change_of(id));
        let seen = resumed.filter(|seen| (window.replaced..=window.change).contains(seen)).unwrap_or(0);
        drop(window);
        Some(TimelineReader { follow, wanted, seen })
    }
}

impl Follow {
    fn new(session: &Found) -> Follow {
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros();
        let (changed, _) = watch::channel(0);
        Follow { session_id: session.id.clone(), epoch, window: Mutex::default(), changed }
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn id(&self, change: u64) -> String {
        format!("{}.{change}", self.epoch)
    }

    fn change_of(&self, id: &str) -> Option<u64> {
        let (epoch, change) = id.split_once('.')?;
        change.parse().ok().filter(|_| epoch == self.epoch.to_string())
    }

    /// When the last tab has left; `None` if one is there.
    fn left_at(&self) -> Option<Instant> {
        let window = self.window();
        window.left_at.filter(|_| window.readers == 0)
    }

    /// Ends the follow if no tab has shown the session for a while, or if another one has taken its place.
    fn ends(&self, follows: &Follows) -> bool {
        // In the order of `Follows::reader`.
        let mut all = follows.all();
        if !self.is_in(&all) {
            return true;
        }
        let window = self.window();
        let is_left = window.readers == 0 && window.left_at.is_none_or(|at| at.elapsed() >= LINGER);
        if is_left {
            all.remove(&self.session_id);
        }
        is_left
    }

    /// Whether this follow, and not a later one of the same session, is in the list.
    fn is_in(&self, all: &HashMap<String, Arc<Follow>>) -> bool {
        all.get(&self.session_id).is_some_and(|listed| std::ptr::eq(&**listed, self))
    }

    fn forget(&self, follows: &Follows) {
        let mut all = follows.all();
        if self.is_in(&all) {
            all.remove(&self.session_id);
        }
    }
}

impl TimelineReader {
    pub(super) fn changed(&self) -> watch::Receiver<u64> {
        self.follow.changed.subscribe()
    }

    /// News since the last call.
    pub(super) fn take(&mut self) -> Vec<Told> {
        let follow = &self.follow;
        let window = follow.window();
        let id = follow.id(window.change);
        let mut told = Vec::new();
        let session = serde_json::Value::from(follow.session_id.as_str());
        if self.seen < window.replaced.max(window.dropped) {
            let wanted: Vec<&Shown> = window.entries.iter().filter(|entry| self.wanted.is_of(entry)).collect();
            let left_out = window.entries.len() - wanted.len();
            let first = wanted.len().saturating_sub(FIRST_MAX);
            let has_older = window.has_older || first > 0;
            let entries = joined(wanted.into_iter().skip(first));
            let json = format!(
                r#"{{"session":{session},"entries":[{entries}],"has_older":{has_older},"left_out":{left_out}}}"#
            );
            told.push(Told::Timeline { json, id });
        } else {
            let is_news = |entry: &&Shown| entry.changed > self.seen && self.wanted.is_of(entry);
            let entries = joined(window.entries.iter().filter(is_news));
            let json = format!(r#"{{"session":{session},"entries":[{entries}]}}"#);
            told.extend((!entries.is_empty()).then_some(Told::Entries { json, id }));
        }
        if let Some((_, message)) = window.problem.as_ref().filter(|(change, _)| *change > self.seen) {
            let json = serde_json::json!({ "session": follow.session_id, "message": message }).to_string();
            told.push(Told::Problem { json });
        }
        self.seen = window.change;
        told
    }
}

fn joined<'a>(entries: impl Iterator<Item = &'a Shown>) -> String {
    entries.map(|entry| &*entry.json).collect::<Vec<_>>().join(",")
}

/// Follows a session until no tab shows it.
fn run(session: &Found, follow: &Follow, follows: &Follows) {
    let (events, news) = sync_channel(NEWS_MAX);
    let following = match follows.source.follow(session, 0, Teller::of(events)) {
        Ok(following) => following,
        Err(error) => {
            follow.publish(|window| window.say(format!("start a thread: {error}")));
            follow.forget(follows);
            return;
        }
    };
    let mut recording = Recording::default();
    while !follow.ends(follows) {
        match news.recv_timeout(LOOK_EVERY) {
            Ok(first) => recording.take_all(first, &news, follow),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    drop(following);
    follow.forget(follows);
}

/// The follower's window, and a record of the published entries.
#[derive(Default)]
struct Recording {
    timeline: Timeline,
    /// Keys of entries that could still change.
    open: Vec<Key>,
    last: Option<Key>,
    published_at: Option<Instant>,
}

impl Recording {
    /// Takes news and publishes it: at once, or together with later news if something was published a moment ago.
    fn take_all(&mut self, first: News, news: &Receiver<News>, follow: &Follow) {
        let due = self.published_at.map(|at| at + TOGETHER);
        let mut next = Some(first);
        while let Some(one) = next {
            self.take(one, follow);
            let left = due.and_then(|due| due.checked_duration_since(Instant::now()));
            next = left.and_then(|left| news.recv_timeout(left).ok());
        }
        self.publish_changes(follow);
        self.published_at = Some(Instant::now());
    }

    fn take(&mut self, news: News, follow: &Follow) {
        match news {
            News::Glanced(_, timeline) | News::Restored { timeline, .. } => {
                self.timeline = *timeline;
                self.publish_all(follow);
            }
            News::Events { events, .. } => events.iter().for_each(|event| self.timeline.take(event)),
            News::Unreadable(why) => follow.publish(|window| window.say(why)),
            News::Placed(_)
            | News::Linked(_)
            | News::Pending { .. }
            | News::Start(_)
            | News::Older(_)
            | News::Newer(_)
            | News::Found(_)
            | News::Opened(_)
            | News::Responded { .. }
            | News::Said(_)
            | News::Interrupted(_)
            | News::Facts(_)
            | News::Overruled { .. } => {}
        }
    }

    fn publish_all(&mut self, follow: &Follow) {
        follow.publish(|window| {
            window.replaced = window.change;
            window.entries.clear();
            window.put(self.timeline.entries());
            window.has_older = self.timeline.has_older;
            window.problem = None;
        });
        self.remember();
    }

    /// Publishes new entries and changes of open ones.
    fn publish_changes(&mut self, follow: &Follow) {
        let entries = self.timeline.entries();
        let is_new = |key: &Key| self.last.as_ref().is_none_or(|last| key > last);
        let changed = entries.iter().filter(|entry| is_new(&entry.key) || self.open.binary_search(&entry.key).is_ok());
        let changed: Vec<_> = changed.collect();
        if changed.is_empty() {
            return;
        }
        follow.publish(|window| {
            window.put(changed);
            if let Some(first) = entries.front() {
                let is_gone = |entry: &Shown| entry.key < first.key;
                while let Some(gone) = window.entries.front().filter(|entry| is_gone(entry)) {
                    window.dropped = window.dropped.max(gone.changed);
                    window.entries.pop_front();
                }
                // More than a window has come at once.
                if self.last.as_ref().is_some_and(|last| first.key > *last) {
                    window.dropped = window.change;
                }
            }
            window.has_older = self.timeline.has_older;
        });
        self.remember();
    }

    fn remember(&mut self) {
        let entries = self.timeline.entries();
        self.open = entries.iter().filter(|entry| entry.handle.is_some()).map(|entry| entry.key.clone()).collect();
        self.last = entries.back().map(|entry| entry.key.clone()).or(self.last.take());
    }
}

impl Follow {
    fn publish(&self, change: impl FnOnce(&mut Window)) {
        let mut window = self.window();
        window.change += 1;
        change(&mut window);
        let now = window.change;
        drop(window);
        self.changed.send_replace(now);
    }
}

impl Window {
    /// Adds entries, or replaces those with the same key. The number of an entry that is the same does not change.
    fn put<'a>(&mut self, entries: impl IntoIterator<Item = &'a crate::sessions::entry::Entry>) {
        for entry in entries {
            let json: Arc<str> = shown::entry(entry).to_string().into();
            let (thread_id, thread_kind) = (entry.thread_id.clone(), entry.thread_kind);
            let shown = Shown { key: entry.key.clone(), thread_id, thread_kind, changed: self.change, json };
            match self.entries.binary_search_by(|known| known.key.cmp(&entry.key)) {
                Ok(index) if self.entries[index].json == shown.json => {}
                Ok(index) => self.entries[index] = shown,
                Err(index) => self.entries.insert(index, shown),
            }
        }
    }

    fn say(&mut self, problem: String) {
        self.problem = Some((self.change, problem));
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::{Value, json};

    use super::*;
    use crate::control::client::Caller;
    use crate::journal::{Generation, Position, SegmentName};
    use crate::sessions::event_testing::session_event;
    use crate::sessions::source::Home;
    use crate::sessions::timeline::SessionEvent;

    fn follow() -> Arc<Follow> {
        Arc::new(Follow::new(&Found {
            id: "s".to_owned(),
            dir: PathBuf::new(),
            live: true,
            holder: None,
            repository: None,
            threads: None,
            last_used: SystemTime::UNIX_EPOCH,
        }))
    }

    fn event(offset: u64, fields: Value) -> SessionEvent {
        let segment = SegmentName { generation: Generation::parse("000000000001").expect("digits"), number: 1 };
        session_event(Position { segment, offset }, offset, fields)
    }

    fn said(offset: u64) -> SessionEvent {
        event(offset, json!({ "type": "message", "text": format!("m{offset}") }))
    }

    fn reader(follow: &Arc<Follow>, seen: u64) -> TimelineReader {
        follow.window().readers += 1;
        TimelineReader { follow: Arc::clone(follow), wanted: Wanted::default(), seen }
    }

    /// The bodies that a reader gets, and whether they replace all.
    fn taken(reader: &mut TimelineReader) -> Vec<(bool, Vec<String>)> {
        let told = reader.take().into_iter().map(|told| match told {
            Told::Timeline { json, .. } => (true, json),
            Told::Entries { json, .. } => (false, json),
            Told::Problem { json } => panic!("{json}"),
        });
        let bodies = |json: String| -> Vec<String> {
            let document: Value = serde_json::from_str(&json).expect("it is JSON");
            let entries = document["entries"].as_array().expect("an array").iter();
            entries.map(|entry| entry["body"].as_str().expect("a text").to_owned()).collect()
        };
        told.map(|(is_all, json)| (is_all, bodies(json))).collect()
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn readers_get_each_entry_once() {
        let (follow, mut recording) = (follow(), Recording::default());
        let mut early = reader(&follow, 0);
        assert_eq!(taken(&mut early), []);
        recording.timeline.take(&said(1));
        recording.publish_all(&follow);
        assert_eq!(taken(&mut early), [(true, texts(&["m1"]))]);
        recording.timeline.take(&said(2));
        recording.timeline.take(&said(3));
        recording.publish_changes(&follow);
        assert_eq!(taken(&mut early), [(false, texts(&["m2", "m3"]))]);
        assert_eq!(taken(&mut early), []);
        let mut resumed = reader(&follow, 1);
        assert_eq!(taken(&mut resumed), [(false, texts(&["m2", "m3"]))]);
        assert_eq!(taken(&mut reader(&follow, 0)), [(true, texts(&["m1", "m2", "m3"]))]);
    }

    #[test]
    fn tabs_get_the_entries_of_their_threads() {
        let (follow, mut recording) = (follow(), Recording::default());
        let of = |at: u64, thread: &str, kind: Value| {
            event(at, json!({ "type": "message", "text": format!("m{at}"), "thread_id": thread, "thread_kind": kind }))
        };
        for told in [
            of(1, "one", Value::Null),
            of(2, "two", Value::Null),
            of(3, "t", json!("title")),
            of(4, "a", json!("subagent")),
            event(5, json!({ "type": "message", "text": "m5" })),
        ] {
            recording.timeline.take(&told);
        }
        recording.publish_all(&follow);
        let all = Folding::Unfolded;
        for (thread, folding, expect) in [
            (None, Folding::Folded, &["m1", "m2", "m4", "m5"][..]),
            (None, all, &["m1", "m2", "m3", "m4", "m5"]),
            (Some("one"), Folding::Folded, &["m1", "m4", "m5"]),
            (Some("t"), Folding::Folded, &["m3", "m4", "m5"]),
            (Some("a"), all, &["m4", "m5"]),
        ] {
            let wanted = Wanted { thread: thread.map(str::to_owned), folding };
            let mut tab = reader(&follow, 0);
            tab.wanted = wanted;
            assert_eq!(taken(&mut tab), [(true, texts(expect))], "{thread:?} {folding:?}");
        }
    }

    #[test]
    fn growing_entries_are_sent_again() {
        let (follow, mut recording) = (follow(), Recording::default());
        recording.publish_all(&follow);
        let mut tab = reader(&follow, 0);
        let piece = |at| event(at, json!({ "type": "assistant_delta", "item_id": "i", "delta": "x" }));
        for (at, expect) in [(1, "x"), (2, "xx"), (3, "xxx")] {
            recording.timeline.take(&piece(at));
            recording.publish_changes(&follow);
            assert_eq!(taken(&mut tab).pop().map(|(_, bodies)| bodies), Some(texts(&[expect])));
        }
        let whole = json!({ "type": "assistant_finalize", "item_id": "i", "text": "done" });
        recording.timeline.take(&event(4, whole));
        recording.publish_changes(&follow);
        assert_eq!(taken(&mut tab), [(false, texts(&["done"]))]);
        recording.timeline.take(&said(5));
        recording.publish_changes(&follow);
        assert_eq!(taken(&mut tab), [(false, texts(&["m5"]))]);
    }

    #[test]
    fn windows_stay_bounded() {
        let (follow, mut recording) = (follow(), Recording::default());
        recording.publish_all(&follow);
        let mut slow = reader(&follow, 0);
        for at in 1..=3_000 {
            recording.timeline.take(&said(at));
            if at % 7 == 0 {
                recording.publish_changes(&follow);
            }
        }
        recording.publish_changes(&follow);
        assert_eq!(follow.window().entries.len(), recording.timeline.entries().len());
        let last = follow.window().change;
        let mut behind = reader(&follow, last - 1);
        assert!(!taken(&mut behind)[0].0);
        let mut far_behind = reader(&follow, 2);
        assert!(taken(&mut far_behind)[0].0, "it needs the window anew");
        let first = taken(&mut slow);
        assert_eq!(
            (first[0].0, first[0].1.len(), first[0].1.last().map(String::as_str)),
            (true, FIRST_MAX, Some("m3000"))
        );
    }

    #[test]
    fn session_without_a_tab_makes_room() {
        let source = Home { path: PathBuf::new(), caller: Caller::Web };
        let follows = Follows::of(Arc::new(source));
        let open = |number: usize| {
            let dir = PathBuf::from("there is no such folder");
            let last_used = SystemTime::UNIX_EPOCH;
            let id = format!("s{number}");
            follows.reader(
                &Found { id, dir, live: true, holder: None, repository: None, threads: None, last_used },
                Wanted::default(),
                None,
            )
        };
        for number in 0..2 * FOLLOWED_MAX {
            assert!(open(number).is_some(), "{number}");
        }
        let open_tabs: Vec<TimelineReader> = (0..FOLLOWED_MAX).filter_map(open).collect();
        assert_eq!(open_tabs.len(), FOLLOWED_MAX);
        assert!(open(FOLLOWED_MAX).is_none() && open(0).is_some());
    }

    #[test]
    fn ids_of_other_follows_do_not_resume() {
        let follow = follow();
        assert_eq!(follow.change_of(&follow.id(7)), Some(7));
        for other in ["", "7", "1.7", &format!("{}.x", follow.epoch), &format!("{}.7.1", follow.epoch)] {
            assert_eq!(follow.change_of(other), None, "{other}");
        }
    }
}
