//! Moving, searching and filtering in the timeline, back into the journal and forward again.

use std::sync::Arc;

use serde_json::json;

use super::super::lists::Destination;
use super::super::model::{Command, Event};
use super::super::model::{Focus, Mode};
use super::super::pressed::attach;
use super::screens::{everywhere, snapshot};
use super::{NOW_US, Play, check, command, noted, offset, position, recorded, timeline, told};
use crate::engine::OverruleFor;
use crate::sessions::ask::of_row;
use crate::sessions::entry::{BODY_BYTES_MAX, Entry, Key};
use crate::sessions::news::{News, Page, Sought};
use crate::sessions::news::{NotOverruled, Overruling};
use crate::sessions::timeline::Timeline;

fn offsets(play: &Play) -> Option<u64> {
    play.model.session.as_ref().and_then(|session| session.cursor.as_ref()).map(offset)
}

#[test]
fn the_timeline_is_walked_and_searched() {
    let mut play = check("key Tab Up");
    assert_eq!(offsets(&play), Some(14));
    play.step("key e");
    assert_eq!(offsets(&play), Some(13));
    play.step("key e");
    assert_eq!(offsets(&play), Some(11), "a gap");
    for char in ["/", "M", "A", "K", "E", "Enter"] {
        play.key(char);
    }
    assert_eq!(offsets(&play), Some(2));
    play.step("key g");
    assert_eq!(offsets(&play), Some(0));
    play.step("key g");
    assert_eq!(play.done, [""; 0], "there is nothing older");
    play.step("key G");
    assert_eq!(offsets(&play), None);
    play.step("key f f");
    play.step("key Up");
    assert_eq!(offsets(&play), Some(12), "the model's words");
    play.step("key y");
    assert_eq!(play.done.remove(0), "copy 6");
    play.step("key Enter");
    assert!(matches!(play.model.session.as_ref().map(|session| &session.focus), Some(Focus::Reading(_))));
    play.step("key Esc Esc");
    assert_eq!(play.model.session.as_ref().map(|session| session.mode()), Some(Mode::Chat));
}

fn entries(offsets: std::ops::Range<u64>) -> Vec<Entry> {
    let mut timeline = Timeline::default();
    for offset in offsets {
        timeline.take(&recorded(offset, json!({ "type": "message", "text": format!("m{offset}") })));
    }
    timeline.into_entries()
}

#[test]
fn the_window_moves_back_and_forth_without_gaps() {
    let mut play = Play::new();
    let mut recent =
        timeline((0..3_000).map(|number| json!({ "type": "message", "text": format!("m{number}") })).collect());
    assert_eq!((recent.entries().len(), recent.has_older), (1_000, true));
    recent.facts = Default::default();
    play.news(News::Restored { epoch: 0, timeline: Box::new(recent) });
    play.step("key Tab PgUp");
    let oldest = (0..200).find(|_| {
        play.step("key PgUp");
        !play.done.is_empty()
    });
    assert!(oldest.is_some());
    assert_eq!(play.done.remove(0), "older 2000");
    play.step("key Up");
    assert_eq!(play.done, [""; 0], "one at a time");
    play.news(News::Older(Page { entries: entries(1_700..2_000), is_last: false }));
    assert_eq!(offsets(&play), Some(1_999));
    let window = |play: &Play| {
        let timeline = play.model.session.as_ref().and_then(|session| session.timeline.clone()).expect("read");
        let offsets: Vec<u64> = timeline.entries().iter().map(|entry| offset(&entry.key)).collect();
        assert!(offsets.windows(2).all(|pair| pair[1] == pair[0] + 1), "a hole");
        (offsets[0], *offsets.last().expect("some"), timeline.is_held)
    };
    assert_eq!(window(&play), (1_700, 2_699, true));
    // Events that arrive meanwhile leave no gap.
    play.news(News::Events { epoch: 0, events: vec![recorded(3_000, json!({ "type": "message", "text": "new" }))] });
    assert_eq!(window(&play), (1_700, 2_699, true));
    play.step("key /");
    play.step("type m7");
    play.step("key Enter");
    assert_eq!(play.done.remove(0), "find Some(\"m7\") 1700 Back");
    play.news(News::Found(Sought::At(
        Key::recorded(position(799)),
        Page { entries: entries(500..800), is_last: false },
    )));
    assert_eq!((window(&play), offsets(&play)), ((500, 799, true), Some(799)));
    play.step("key /");
    play.step("type nowhere");
    play.step("key Enter");
    assert_eq!(play.done.remove(0), "find Some(\"nowhere\") 500 Back");
    play.news(News::Found(Sought::NothingAmong(50_000)));
    let note = play.model.note.as_ref().map(|note| note.text.clone()).unwrap_or_default();
    assert!(note.ends_with("matches `nowhere`; only the nearest 50000 events were searched"), "{note}");
    play.step("key Down");
    assert_eq!(play.done.remove(0), "newer 799");
    play.news(News::Newer(Page { entries: entries(800..1_100), is_last: false }));
    assert_eq!((window(&play), offsets(&play)), ((500, 1_099, true), Some(800)));
    play.step("key G");
    assert_eq!(play.done.remove(0), "Follow { epoch: 1 }");
    play.news(News::Events {
        epoch: 0,
        events: vec![recorded(3_001, json!({ "type": "message", "text": "of before" }))],
    });
    // The end of a long journal comes first. Older pages are not requested until the rest has arrived.
    play.news(News::Glanced(1, Box::new(timeline(told()[..3].to_vec()))));
    let glanced = window_len(&play);
    play.step("key Home Up");
    assert_eq!((glanced > 0 && glanced < 10, play.done.len()), (true, 0), "{:?}", play.done);
    play.news(News::Restored { epoch: 1, timeline: Box::new(timeline(told())) });
    assert_eq!(window_len(&play), 10);
}

#[test]
fn home_leads_to_the_start_of_the_session() {
    let mut play = Play::new();
    let recent =
        timeline((0..3_000).map(|number| json!({ "type": "message", "text": format!("m{number}") })).collect());
    play.news(News::Restored { epoch: 0, timeline: Box::new(recent) });
    play.step("key Tab g");
    assert_eq!(play.done.remove(0), "Read(Start)");
    play.news(News::Start(Page { entries: entries(0..300), is_last: false }));
    assert_eq!(offsets(&play), Some(0));
    play.step("key Down g");
    assert_eq!(offsets(&play), Some(0));
    // With a filter, the first matching entry is searched for.
    play.step("key f f g");
    assert_eq!(play.done.remove(0), "find None 299 Forward");
    play.step("key G");
    assert_eq!(play.done.remove(0), "Follow { epoch: 1 }");
}

fn window_len(play: &Play) -> usize {
    play.model
        .session
        .as_ref()
        .and_then(|session| session.timeline.as_ref())
        .map_or(0, |timeline| timeline.entries().len())
}

/// Two threads, one of which the relay knows.
fn two_threads() -> Play {
    let mut play = Play::new();
    let said = |thread: &str, text: &str| json!({ "type": "message", "thread_id": thread, "text": text });
    let told = vec![
        said("thread-0001", "one of the first"),
        said("thread-0002", "one of the second"),
        json!({ "type": "token_count", "thread_id": "thread-0002", "total": 77 }),
        json!({ "type": "run", "generation": "000000010001" }),
        json!({ "type": "token_count", "thread_id": "thread-0001", "total": 55 }),
    ];
    play.news(News::Restored { epoch: 0, timeline: Box::new(timeline(told)) });
    play
}

#[test]
fn a_thread_can_be_chosen() {
    let mut play = two_threads();
    play.step("key ^T");
    everywhere("threads", &play);
    snapshot("threads", &play, 20, 5);
    play.step("key Down Down Down Enter");
    assert_eq!(play.model.session.as_ref().and_then(|session| session.thread.as_deref()), Some("thread-0002"));
    snapshot("one-thread", &play, 60, 10);
    play.step("type hello");
    play.step("key Enter");
    assert_eq!(play.done.remove(0), "say \"hello\" to thread-0002");
    play.step("said");
    play.step("key ^X");
    assert_eq!(play.done.remove(0), "interrupt thread-0002");
    // A search is limited to the chosen thread.
    play.step("key Tab Up");
    assert_eq!(offsets(&play), Some(3), "a run is of every thread");
    play.step("key Up");
    assert_eq!(offsets(&play), Some(1));
    play.step("key Up");
    assert_eq!((offsets(&play), &play.done[..]), (Some(1), &[][..]), "that of the other thread is not shown");
    play.step("key Esc");
    // Only requests in the chosen thread block messages.
    let waits = |thread: &str| {
        let mut row = command("g-0");
        row["thread_id"] = json!(thread);
        News::Pending { asks: vec![Arc::new(of_row(row.into(), NOW_US))], ended: Vec::new() }
    };
    play.news(waits("thread-0001"));
    play.step("type on");
    play.step("key Enter");
    assert_eq!(play.done.remove(0), "say \"on\" to thread-0002");
    play.step("said");
    play.news(waits("thread-0002"));
    play.step("type no");
    play.step("key Enter");
    assert!(noted(&play).contains("^R"), "{}", noted(&play));
    // All threads again; leaving the list changes nothing.
    play.step("key ^T Up Esc");
    assert!(play.model.session.as_ref().is_some_and(|session| session.thread.is_some()));
    play.step("key ^T Up Up Up Enter");
    assert!(play.model.session.as_ref().is_some_and(|session| session.thread.is_none()));
}

#[test]
fn a_burst_of_events_stays_within_the_window() {
    let mut timeline = Timeline::default();
    for number in 0..200_000_u64 {
        let told = json!({ "type": "tool_delta", "item_id": format!("i{}", number / 1_000), "delta": "x".repeat(100) });
        timeline.take(&recorded(number, told));
    }
    let bytes: usize = timeline.entries().iter().map(Entry::bytes).sum();
    assert!(timeline.entries().len() <= 1_000 && bytes < 8 << 20, "{} {bytes}", timeline.entries().len());
    assert!(timeline.entries().iter().all(|entry| entry.body.len() <= 2 * BODY_BYTES_MAX));
}

#[test]
fn stale_news_are_dropped() {
    let mut play = Play::new();
    let asks = vec![Arc::new(of_row(command("g-0").into(), NOW_US))];
    play.event(Event::Of(0, News::Pending { asks, ended: Vec::new() }));
    assert!(!play.model.session.as_ref().expect("attached").is_gated());
    play.step("type draft");
    play.step("key Esc");
    assert_eq!(play.done.remove(0), "Detach");
    assert!(play.model.session.is_none());
    let first = attach(&mut play.model, Destination::session("work"));
    assert!(matches!(first[..], [Command::Attach { attachment: 2, .. }]));
    assert_eq!(play.model.session.as_ref().expect("attached").composer.text(), "draft");
}

/// A timeline with a review that has this status.
pub(super) fn reviewed(status: &str) -> Play {
    let mut play = Play::new();
    let review = json!({ "type": "auto_review", "thread_id": "t", "turn_id": "u", "item_id": "i", "review_id": "r",
        "status": status, "action": "command", "subject": "/bin/bash -lc 'rm -rf build'", "reason": "It cannot be undone.",
        "risk_level": "high" });
    play.news(News::Linked(super::up(crate::history::Activity::Working)));
    play.news(News::Restored { epoch: 0, timeline: Box::new(timeline(vec![review])) });
    play.step("key Tab");
    play
}

#[test]
fn denial_is_overruled_after_a_confirmation() {
    let mut play = reviewed("denied");
    play.step("key o");
    assert_eq!(play.done, [""; 0], "not without a confirmation");
    assert!(noted(&play).contains("approve it after all? rm -rf build → denied"), "{}", noted(&play));
    play.step("key x");
    assert_eq!((noted(&play), play.done.len()), ("the denial stands", 0));
    play.step("key o y");
    assert_eq!(play.done.remove(0), "overrule r ThisTurn");
    // If its turn is over, the next one is a choice of its own.
    let asked = Overruling { review_id: "r".to_owned(), applies: OverruleFor::ThisTurn };
    play.news(News::Overruled { asked, result: Err(NotOverruled::TurnOver) });
    assert!(noted(&play).contains("its turn is over"), "{}", noted(&play));
    play.step("wait 600");
    play.step("key y");
    assert_eq!(play.done.remove(0), "overrule r NextTurn");
}

/// What was done, but for texts that were copied.
fn without_copies(play: &mut Play) -> Vec<String> {
    std::mem::take(&mut play.done).into_iter().filter(|done| !done.starts_with("copy")).collect()
}

#[test]
fn question_that_nobody_sees_is_off() {
    let over = || News::Overruled {
        asked: Overruling { review_id: "r".to_owned(), applies: OverruleFor::ThisTurn },
        result: Err(NotOverruled::TurnOver),
    };
    // Another note covers it.
    let mut play = reviewed("denied");
    play.step("key o");
    play.news(News::Interrupted(Err("why".to_owned())));
    play.step("key y");
    assert_eq!(without_copies(&mut play), [""; 0]);
    // The user types something else meanwhile.
    let mut play = reviewed("denied");
    play.step("key o y");
    play.done.clear();
    play.step("key Tab");
    play.news(over());
    play.step("key y");
    assert_eq!(without_copies(&mut play), [""; 0]);
}

#[test]
fn only_denials_can_be_overruled() {
    for status in ["approved", "in_progress", "timed_out"] {
        let mut play = reviewed(status);
        play.step("key o");
        assert!(noted(&play).starts_with("this is not a denial"), "{status}: {}", noted(&play));
    }
    let mut play = reviewed("denied");
    play.news(News::Linked(crate::sessions::news::Link::Stopped));
    play.step("key o");
    assert!(noted(&play).starts_with("not overruled: no relay answers"), "{}", noted(&play));
}

#[test]
fn reviews_show_action_decision_and_reason() {
    let entry = |status: &str| {
        let play = reviewed(status);
        let timeline = play.model.session.as_ref().and_then(|session| session.timeline.clone()).expect("it was read");
        let entry = timeline.entries().back().expect("an entry").clone();
        (entry.title, entry.body, entry.denial)
    };
    let reason = || "high risk: It cannot be undone.".to_owned();
    assert_eq!(entry("in_progress"), ("rm -rf build".to_owned(), reason(), None));
    assert_eq!(entry("approved"), ("rm -rf build → approved".to_owned(), reason(), None));
    assert_eq!(entry("denied"), ("rm -rf build → denied".to_owned(), reason(), Some("r".to_owned())));
    assert_eq!(entry("overruled"), ("rm -rf build → overruled".to_owned(), String::new(), None));
}
