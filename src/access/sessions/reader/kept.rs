//! The part of the history that is older than the journal.
//!
//! It is read from `history.db` as it is: nothing is indexed, repaired or waited for. If the database is missing or unreadable,
//! the timeline says that nothing before the journal is kept.

use std::path::Path;

use super::first_at_us;
use super::{journal_dir, segments};
use crate::history::{self, Pending, UiContent, UiEvent, rfc3339_millis};
use crate::index::{HISTORY_FILE, History, JournalGap, Side, TranscriptLine};
use crate::journal::{Generation, Position, SegmentName};
use crate::protocol::ThreadKind;
use crate::sessions::entry::{BODY_BYTES_MAX, Entry, Happening, Key, Kind, Matcher, Spot, Stage};
use crate::sessions::news::{Page, Way};
use crate::sessions::timeline::{Range, SessionEvent, Timeline};
use crate::text::parsed_us;

/// Entries per page.
pub const PAGE_ENTRIES: usize = 300;

/// The kept history of a session.
#[derive(Debug)]
pub(super) struct Kept {
    history: History,
    /// The journal's start, in microseconds since the Unix epoch.
    begins_us: u64,
    /// The number of the first line at or after that time.
    end: u64,
    /// Whether the first segments of the journal were deleted.
    is_cut: bool,
}

/// The situation at the start of the journal.
enum Edge {
    /// Older lines are kept.
    More,
    /// The journal starts with the session.
    Start,
    /// Older lines existed and are deleted.
    Gone,
}

/// Beyond the number of every line.
const END: u64 = i64::MAX as u64;

impl Kept {
    /// Opens the history of a session folder.
    pub(super) fn of(session_dir: &Path) -> Kept {
        let dir = journal_dir(session_dir);
        let first = segments(&dir).into_iter().next();
        let begins_us = first.as_ref().and_then(|first| first_at_us(&dir.join(first.to_string())));
        let begins_us = begins_us.unwrap_or(LAST_US).min(LAST_US);
        let history = History::new(&session_dir.join(HISTORY_FILE));
        let end = history.first_line_from(&rfc3339_millis(begins_us), 0).ok().flatten().unwrap_or(END);
        Kept { history, begins_us, end, is_cut: first.is_some_and(|first| first.number > 1) }
    }

    /// Whether there is anything to show before the journal.
    pub(super) fn has_any(&self) -> bool {
        !matches!(self.edge(), Edge::Start)
    }

    fn edge(&self) -> Edge {
        let before = self.said(Side::Before, END, 1);
        match (before.is_empty(), self.history.first_seq(0)) {
            (false, _) => Edge::More,
            (true, Ok(Some(1))) => Edge::Start,
            (true, Ok(Some(_))) => Edge::Gone,
            (true, Ok(None) | Err(_)) if self.is_cut => Edge::Gone,
            (true, Ok(None) | Err(_)) => Edge::Start,
        }
    }

    fn said(&self, side: Side, id: u64, limit: usize) -> Vec<TranscriptLine> {
        self.history.transcript_lines(side, id, self.end, limit as u64, 0).unwrap_or_default()
    }

    /// The page before the first record of the journal: a marker, if there is anything to say.
    pub(super) fn in_front_of_journal(&self) -> Page {
        match self.edge() {
            Edge::Start => Page { entries: Vec::new(), is_last: true },
            Edge::Gone => Page { entries: vec![nothing_before(self.begins_us)], is_last: true },
            Edge::More => Page { entries: vec![journal_begins(self.begins_us)], is_last: false },
        }
    }

    /// The first page of the session; if the history is short, it ends at the journal.
    pub(super) fn first(&self) -> Page {
        match self.edge() {
            Edge::Start | Edge::Gone => self.in_front_of_journal(),
            Edge::More => {
                let mut page = self.newer(0);
                if !matches!(self.history.first_seq(0), Ok(Some(1))) {
                    let at_us = page.entries.first().map_or(0, |entry| entry.at_us);
                    page.entries.insert(0, nothing_before(at_us));
                }
                page
            }
        }
    }

    pub(super) fn older(&self, before: u64) -> Page {
        let said = self.said(Side::Before, before, PAGE_ENTRIES);
        let is_last = said.len() < PAGE_ENTRIES;
        let mut entries = self.entries(&said);
        if is_last && !matches!(self.history.first_seq(0), Ok(Some(1))) {
            let at_us = entries.first().map_or(0, |entry| entry.at_us);
            entries.insert(0, nothing_before(at_us));
        }
        Page { entries, is_last }
    }

    /// The page after a line. The last page ends at the journal.
    pub(super) fn newer(&self, after: u64) -> Page {
        let said = self.said(Side::After, after, PAGE_ENTRIES);
        let is_over = said.len() < PAGE_ENTRIES;
        let mut entries = self.entries(&said);
        if is_over {
            entries.push(journal_begins(self.begins_us));
        }
        Page { entries, is_last: false }
    }

    /// One entry with a body limit.
    pub(super) fn one(&self, id: u64, body_bytes_max: usize) -> Option<Entry> {
        let said = self.said(Side::After, id.checked_sub(1)?, 1).pop().filter(|said| said.id == id)?;
        entry_of(&said, self.kind_of(&said.thread_id), body_bytes_max)
    }

    fn kind_of(&self, thread_id: &str) -> ThreadKind {
        let of_no_person = self.history.threads_of_no_person(0).unwrap_or_default();
        of_no_person.get(thread_id).copied().unwrap_or_default()
    }

    /// The next match. `is_wanted` is called now and then and can cancel the search.
    pub(super) fn find(&self, matcher: &Matcher, from: u64, way: Way, is_wanted: impl Fn() -> bool) -> Option<Key> {
        let mut from = from;
        while is_wanted() {
            let side = match way {
                Way::Back => Side::Before,
                Way::Forward => Side::After,
            };
            let said = self.said(side, from, PAGE_ENTRIES);
            let edge = match way {
                Way::Back => said.first(),
                Way::Forward => said.last(),
            };
            from = edge?.id;
            let entries = self.entries(&said);
            let mut found = entries.iter().filter(|entry| matcher.takes(entry));
            let found = match way {
                Way::Back => found.next_back(),
                Way::Forward => found.next(),
            };
            if let Some(entry) = found {
                return Some(entry.key.clone());
            }
        }
        None
    }

    /// Lines as entries, with the gaps of the journal between them.
    fn entries(&self, said: &[TranscriptLine]) -> Vec<Entry> {
        let (Some(first), Some(last)) = (said.first(), said.last()) else { return Vec::new() };
        let of_no_person = self.history.threads_of_no_person(0).unwrap_or_default();
        let entry = |said: &TranscriptLine| {
            let kind = of_no_person.get(&said.thread_id).copied().unwrap_or_default();
            entry_of(said, kind, BODY_BYTES_MAX)
        };
        let mut entries: Vec<Entry> = said.iter().filter_map(entry).collect();
        let lacking = self.history.journal_gaps(0).unwrap_or_default();
        let within = |after_id: u64| (first.id..=last.id).contains(&after_id);
        let lacking = lacking.iter().filter(|lacking| within(lacking.after_id)).zip(0..);
        entries.extend(lacking.filter_map(|(lacking, nth)| entry_of_lacking(lacking, nth)));
        entries.sort_by(|one, other| one.key.cmp(&other.key));
        entries
    }
}

/// The latest time that can be formatted, in microseconds since the Unix epoch.
const LAST_US: u64 = 253_402_300_799_000_000;

/// The line number of an entry from before the journal; `None` for later entries.
pub(super) fn kept_id(spot: &Spot) -> Option<u64> {
    match spot {
        Spot::Kept(id) => Some(*id),
        Spot::Recorded(_) => None,
    }
}

/// The entry of a transcript line; `None` if the timeline does not show it.
pub(super) fn entry_of(said: &TranscriptLine, thread_kind: ThreadKind, body_bytes_max: usize) -> Option<Entry> {
    let line = history::Entry::read(&said.entry)?;
    let at_us = parsed_us(&line.ts).unwrap_or_default();
    let mut timeline = Timeline::of(Range::default(), body_bytes_max);
    let opened = Pending::of_entry(&line);
    let event = UiEvent::of_entry(line, &said.thread_id, at_us);
    let opened = opened.map(|request| UiEvent { detail: UiContent::Pending(Box::new(request)), ..event.clone() });
    for event in opened.into_iter().chain([event]) {
        timeline.take(&SessionEvent { at: nowhere(), at_us, what: Happening::Ui(Box::new(event)) });
    }
    let mut entry = timeline.into_entries().pop()?;
    entry.key = Key { at: Spot::Kept(said.id), nth: 0 };
    entry.handle = None;
    entry.thread_kind = thread_kind;
    if entry.stage == Stage::Open {
        entry.stage = Stage::Done;
    }
    Some(entry)
}

/// A gap in the journal; `nth` distinguishes several after the same line.
pub(super) fn entry_of_lacking(lacking: &JournalGap, nth: u16) -> Option<Entry> {
    let what = Happening::Gap { lines: lacking.lines, reason: lacking.reason.clone() };
    let at_us = parsed_us(&lacking.at).unwrap_or_default();
    let mut timeline = Timeline::default();
    timeline.take(&SessionEvent { at: nowhere(), at_us, what });
    let mut entry = timeline.into_entries().pop()?;
    entry.key = Key { at: Spot::Kept(lacking.after_id), nth: nth.saturating_add(1) };
    Some(entry)
}

/// The entry that marks the start of the journal.
pub(super) fn journal_begins(at_us: u64) -> Entry {
    marker(
        Key::JOURNAL_BEGINS,
        Kind::Run,
        at_us,
        "the journal begins here; from before, only messages and actions are kept",
    )
}

/// The entry that marks the end of the kept history.
pub(super) fn nothing_before(at_us: u64) -> Entry {
    marker(Key::START, Kind::Gap, at_us, "nothing before this is kept")
}

fn marker(key: Key, kind: Kind, at_us: u64, title: &str) -> Entry {
    let mut entry = Entry::new(key, kind, at_us);
    entry.stage = Stage::Done;
    entry.title = title.to_owned();
    entry
}

fn no_run() -> Generation {
    Generation::parse("000000000000").expect("BUG: these are 12 hex digits")
}

/// A placeholder: these entries have no position in the journal.
fn nowhere() -> Position {
    Position { segment: SegmentName { generation: no_run(), number: 0 }, offset: 0 }
}

#[cfg(test)]
mod tests {
    use super::super::pager::Pager;
    use crate::config::RetentionBounds;
    use crate::index::{Index, IndexSettings, TranscriptFiles};
    use crate::journal::{IndexedTo, end_of};
    use crate::sessions::news::Sought;
    use crate::sessions::source::Recorded as _;
    use crate::store::SeqMark;
    use std::fs;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    /// A Monday, in microseconds since the Unix epoch.
    const MONDAY_US: u64 = 1_767_225_600_000_000;

    /// Messages per run.
    const MESSAGES: u64 = 400;

    struct Lab {
        dir: tempfile::TempDir,
    }

    impl Lab {
        /// A fully indexed session of three runs, an hour each.
        fn new() -> Lab {
            let lab = Lab { dir: tempfile::tempdir().expect("BUG: a temporary folder") };
            fs::create_dir(lab.dir.path().join("journal")).expect("a folder");
            for run in 1..=3 {
                fs::write(lab.segment(run), text(run)).expect("a file");
            }
            lab.index();
            lab
        }

        fn segment(&self, run: u64) -> PathBuf {
            self.dir.path().join(format!("journal/00000000000{run}-001.jsonl"))
        }

        fn index(&self) {
            let day = Duration::from_secs(86_400);
            let retention = RetentionBounds {
                events_max: 1_000_000,
                tool_events_max: 1_000,
                turn_events_max: 1_000,
                age_max: 36_500 * day,
                session_age_max: day,
            };
            let journal_dir = journal_dir(self.dir.path());
            let end = end_of(&journal_dir);
            let settings = IndexSettings {
                session_id: "s".to_owned(),
                session_dir: self.dir.path().to_owned(),
                journal_dir,
                retention,
                transcript_files: TranscriptFiles::None,
                home: None,
                indexed_to: IndexedTo::default(),
            };
            let marks = |wish: crate::store::SeqWish| Ok(SeqMark { reserved: wish.up_to, ..SeqMark::default() });
            let (state, _) = Index::catch_up(settings, end, Box::new(marks), Box::new(|_| {}));
            assert_eq!(state.fault, None);
        }

        fn pager(&self) -> Pager {
            Pager::new(self.dir.path(), Arc::new(AtomicBool::new(true)))
        }
    }

    fn text(run: u64) -> String {
        let at = MONDAY_US + run * 3_600_000_000;
        let head = format!(r#""session":"s","generation":"00000000000{run}","segment":1,"at":{at}"#);
        let mut text =
            format!("{{\"journal\":1,{head},\"argv\":[],\"cwd\":\"/\",\"codex\":{{\"path\":\"x\"}},\"shim\":\"0\"}}\n");
        for number in 0..MESSAGES {
            let content = format!(r#"[{{"type":"text","text":"run {run} says {number}"}}]"#);
            let item = format!(r#"{{"id":"i{run}-{number}","type":"userMessage","content":{content}}}"#);
            let params = format!(r#"{{"threadId":"t","turnId":"u{run}","item":{item}}}"#);
            let line = format!(r#"{{"method":"item/completed","params":{params}}}"#);
            text += &format!("{{\"at\":{},\"from\":\"server\",\"line\":{line}}}\n", at + number * 1_000_000);
            if number == 100 {
                text += &format!("{{\"at\":{},\"gap\":{{\"lines\":3,\"reason\":\"disk full\"}}}}\n", at + 100_500_000);
            }
        }
        text
    }

    /// All entries, read page by page from the end, oldest first.
    fn back(pager: &Pager) -> Vec<Entry> {
        let last = segments_last(pager);
        let mut before = Key { nth: u16::MAX, ..last };
        let mut found: Vec<Entry> = Vec::new();
        loop {
            let page = pager.older(&before, PAGE_ENTRIES).expect("it can be read").expect("it is wanted");
            before = page.entries.first().map_or(before, |entry| entry.key.clone());
            found.splice(0..0, page.entries);
            assert!(found.len() < 10_000, "it has an end");
            if page.is_last {
                return found;
            }
        }
    }

    fn segments_last(pager: &Pager) -> Key {
        let mut after = Key::JOURNAL_BEGINS;
        loop {
            let page = pager.newer(&after).expect("it can be read").expect("it is wanted");
            after = page.entries.last().map_or(after, |entry| entry.key.clone());
            if page.is_last {
                return after;
            }
        }
    }

    fn words(entries: &[Entry]) -> Vec<String> {
        entries.iter().map(|entry| format!("{}{}", entry.title, entry.body)).collect()
    }

    fn said(run: u64) -> impl Iterator<Item = String> {
        (0..MESSAGES).map(move |number| format!("run {run} says {number}"))
    }

    /// A run that begins a thread for a title and one of a person, and a later segment of it, which does not say which is which.
    fn threads_across_segments() -> Lab {
        let lab = Lab { dir: tempfile::tempdir().expect("BUG: a temporary folder") };
        fs::create_dir(lab.dir.path().join("journal")).expect("a folder");
        let line = |at: u64, method: &str, params: &str| {
            let at = MONDAY_US + at * 1_000_000;
            format!("{{\"at\":{at},\"from\":\"server\",\"line\":{{\"method\":\"{method}\",\"params\":{params}}}}}\n")
        };
        let started = |at: u64, id: &str, source: &str| {
            line(at, "thread/started", &format!(r#"{{"thread":{{"id":"{id}","threadSource":"{source}"}}}}"#))
        };
        let said = |at: u64, thread: &str, text: &str| {
            let item =
                format!(r#"{{"id":"{text}","type":"userMessage","content":[{{"type":"text","text":"{text}"}}]}}"#);
            line(at, "item/completed", &format!(r#"{{"threadId":"{thread}","turnId":"u","item":{item}}}"#))
        };
        let first =
            [started(1, "t", "user"), started(2, "x", "thread_title"), said(3, "x", "early"), said(4, "t", "hello")];
        let second = [said(5, "x", "late"), said(6, "t", "again")];
        for (number, lines) in [(1, first.concat()), (2, second.concat())] {
            let at = MONDAY_US + (number - 1) * 4_500_000;
            let head = format!(r#""session":"s","generation":"000000000001","segment":{number},"at":{at}"#);
            let head = format!(
                "{{\"journal\":1,{head},\"argv\":[],\"cwd\":\"/\",\"codex\":{{\"path\":\"x\"}},\"shim\":\"0\"}}\n"
            );
            let path = lab.dir.path().join(format!("journal/000000000001-00{number}.jsonl"));
            fs::write(path, head + &lines).expect("a file");
        }
        lab
    }

    #[test]
    fn kinds_of_threads_are_known_in_later_segments_and_without_a_journal() {
        let lab = threads_across_segments();
        let kinds = |texts: &[&str]| {
            let all = back(&lab.pager());
            let kind = |text: &&str| all.iter().find(|entry| entry.body == **text).map(|entry| entry.thread_kind);
            texts.iter().map(kind).collect::<Vec<_>>()
        };
        let (title, user) = (Some(ThreadKind::Title), Some(ThreadKind::User));
        assert_eq!(kinds(&["early", "hello"]), [title, user], "the segment says it");
        lab.index();
        assert_eq!(kinds(&["early", "late", "hello", "again"]), [title, title, user, user], "the history says it");
        fs::remove_file(lab.dir.path().join("journal/000000000001-001.jsonl")).expect("it goes");
        assert_eq!(kinds(&["early", "late", "hello", "again"]), [title, title, user, user], "only the history has it");
    }

    #[test]
    fn deleted_segments_are_read_from_the_history() {
        let lab = Lab::new();
        let pager = lab.pager();
        let all = words(&back(&pager));
        assert_eq!((all.len() as u64, &*all[0]), (3 * (MESSAGES + 2), "run 000000000001 begins"), "all of it is there");
        fs::remove_file(lab.segment(1)).expect("it goes");
        fs::remove_file(lab.segment(2)).expect("it goes");
        let found = back(&pager);
        let told = words(&found);
        let begins = told.iter().position(|line| line.starts_with("the journal begins here")).expect("it is told");
        let lost = "3 lines missing here: disk full";
        let kept: Vec<&String> = told[..begins].iter().filter(|line| *line != lost).collect();
        assert_eq!(kept, said(1).chain(said(2)).collect::<Vec<_>>().iter().collect::<Vec<_>>());
        assert_eq!(told[..begins].iter().filter(|line| *line == lost).count(), 2, "two gaps are known");
        assert_eq!(told[101], lost);
        assert_eq!(told[begins + 1], "run 000000000003 begins");
        // And forward again, from the first to the last.
        let mut forward = found[..1].to_vec();
        loop {
            let page = pager.newer(&forward[forward.len() - 1].key).expect("it can be read").expect("it is wanted");
            forward.extend(page.entries);
            if page.is_last {
                break;
            }
        }
        assert_eq!(words(&forward), told);
        assert!(forward.windows(2).all(|pair| pair[0].key < pair[1].key));
        let one = pager.one(&found[7].key).expect("it can be read");
        assert_eq!(one.as_ref(), Some(&found[7]));
    }

    #[test]
    fn search_continues_before_the_journal() {
        let lab = Lab::new();
        let pager = lab.pager();
        fs::remove_file(lab.segment(1)).expect("it goes");
        fs::remove_file(lab.segment(2)).expect("it goes");
        let end = segments_last(&pager);
        let find = |text: &str, from: &Key, way| {
            let matcher = Matcher { text: Some(text.to_owned()), ..Matcher::default() };
            match pager.find(&matcher, from, way).expect("it can be read").expect("it is wanted") {
                Sought::At(key, page) => {
                    assert!(page.entries.iter().any(|entry| entry.key == key), "it is on its page");
                    Some(key)
                }
                Sought::Nothing => None,
                other @ Sought::NothingAmong(_) => panic!("{other:?}"),
            }
        };
        let far = find("run 1 says 7", &end, Way::Back).expect("it is there");
        assert!(matches!(far.at, Spot::Kept(_)), "{far:?}");
        let gap = find("disk full", &end, Way::Back).expect("the last is in the journal");
        let gap = find("disk full", &gap, Way::Back).expect("the one before is kept");
        assert!(matches!(gap, Key { at: Spot::Kept(_), nth: 1 }), "{gap:?}");
        let near = find("run 3 says 5", &far, Way::Forward).expect("it is there");
        assert!(matches!(near.at, Spot::Recorded(_)), "{near:?}");
        assert_eq!(find("nowhere", &end, Way::Back), None);
        assert_eq!(find("nowhere", &far, Way::Forward), None);
    }

    #[test]
    fn missing_history_is_reported() {
        let lab = Lab::new();
        fs::remove_file(lab.segment(1)).expect("it goes");
        fs::remove_file(lab.dir.path().join(HISTORY_FILE)).expect("it goes");
        // The history is rebuilt from what is left, with higher numbers.
        let pager = lab.pager();
        fs::rename(lab.segment(3), lab.dir.path().join("journal/000000000003-002.jsonl")).expect("it moves");
        fs::remove_file(lab.segment(2)).expect("it goes");
        let told = words(&back(&pager));
        assert_eq!(told[0], "nothing before this is kept");
        assert!(Kept::of(lab.dir.path()).has_any());
    }

    fn shown(entry: Value) -> Option<String> {
        let said = TranscriptLine { id: 7, thread_id: "t".to_owned(), entry: entry.to_string() };
        let entry = entry_of(&said, ThreadKind::User, 1_000)?;
        assert_eq!((&entry.key.at, entry.thread_id.as_deref()), (&Spot::Kept(7), Some("t")));
        assert!(entry.handle.is_none() && entry.stage != Stage::Open && entry.at_us == 1_767_225_600_858_000);
        let exit = entry.exit_code.map(|code| format!(" [{code}]")).unwrap_or_default();
        Some(format!("{}: {}{exit} | {}", entry.kind.name(), entry.title, entry.body))
    }

    #[test]
    fn old_entries_look_like_recorded_ones() {
        let check = |mut entry: Value, expect: &str| {
            entry["ts"] = json!("2026-01-01T00:00:00.858Z");
            assert_eq!(shown(entry.clone()).as_deref(), Some(expect), "{entry}");
        };
        check(json!({"role": "user", "text": "run it", "content": ["text", "image"]}), "you: [image] | run it");
        check(json!({"role": "assistant", "text": "It ran."}), "codex:  | It ran.");
        check(json!({"role": "reasoning", "text": "Hm"}), "thinks:  | Hm");
        check(json!({"role": "diff", "text": "--- a/a.rs\n+++ b/a.rs\n+x"}), "diff: a.rs | --- a/a.rs\n+++ b/a.rs\n+x");
        check(
            json!({"role": "command", "item_type": "commandExecution", "command": "ls", "output": "a\n", "exit_code": 2, "is_error": true}),
            "runs: ls [2] | a\n",
        );
        check(
            json!({"role": "plan", "steps": [{"step": "read", "status": "completed"}], "explanation": "first"}),
            "plan: first | [x] read",
        );
        check(json!({"role": "status", "status": "completed", "duration_ms": 2000}), "turn: turn completed in 2s | ");
        check(json!({"role": "error", "text": "broke"}), "error: broke | ");
        check(
            json!({"role": "approval", "kind": "command", "command": "ls", "request_id": "g-0", "status": "resolved", "decision": "accept", "source": "tui"}),
            "asks: to run ls → accept (tui) | ",
        );
        check(json!({"role": "context_compacted"}), "turn: compaction completed | ");
        assert_eq!(shown(json!({"role": "token_usage"})), None);
    }
}
