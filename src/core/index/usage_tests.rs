//! Usage over real files: it survives retention, rebuilds and upgrades, and says what it cannot know.

use std::time::Duration;

use rusqlite::Connection;

use super::tests::Lab;
use super::usage::bound;
use super::*;
use crate::api::{Moment, SessionUsage, TurnRowDocument, UsageQuery, Used};
use crate::journal::{Generation, SegmentName};
use crate::store::{Life, RunMode};

const DAY_US: u64 = 86_400_000_000;

fn now_us() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_micros() as u64
}

fn line(at_us: u64, method: &str, params: &str) -> String {
    let params = format!(r#"{{"threadId":"t",{params}}}"#);
    format!(r#"{{"at":{at_us},"from":"server","line":{{"method":"{method}","params":{params}}}}}"#)
}

/// A whole turn with one model call of 10 tokens; `total` is the thread's then.
fn turn(at_us: u64, id: &str, total: u64) -> Vec<String> {
    let tokens = |input: u64| {
        format!(
            r#"{{"inputTokens":{input},"cachedInputTokens":0,"outputTokens":0,"reasoningOutputTokens":0,"totalTokens":{input}}}"#
        )
    };
    let usage = format!(r#""turnId":"{id}","tokenUsage":{{"total":{},"last":{}}}"#, tokens(total), tokens(10));
    vec![
        line(at_us, "turn/started", &format!(r#""turn":{{"id":"{id}"}}"#)),
        line(at_us + 1_000, "thread/tokenUsage/updated", &usage),
        line(at_us + 5_000, "turn/completed", &format!(r#""turn":{{"id":"{id}","status":"completed"}}"#)),
    ]
}

impl Lab {
    fn usage(&self) -> SessionUsage {
        self.catch_up();
        History::new(&self.history()).usage(&UsageQuery::default(), 0).expect("it can be asked")
    }

    fn segment_path(&self, generation: u32) -> std::path::PathBuf {
        let name = SegmentName { generation: Generation::after(None, generation, 0), number: 1 };
        self.journal().join(name.to_string())
    }

    fn lose_history(&self) {
        for name in ["history.db", "history.db-wal", "history.db-shm"] {
            let _ = std::fs::remove_file(self.session().join(name));
        }
    }
}

/// Turns as `ID TOKENS`, and the account of the thread as `before unseen total`.
fn said(usage: &SessionUsage) -> Vec<String> {
    let turns = usage.turns.iter().map(|turn| {
        let id = turn.turn_id.as_deref().unwrap_or(if turn.older { "older" } else { "-" });
        format!("{id} {}", turn.used.tokens.total_tokens)
    });
    let threads = usage.threads.iter().map(|thread| {
        assert!(thread.adds_up, "{thread:?}");
        let [before, unseen, total] = [thread.before_record, thread.not_on_record, thread.codex_total];
        format!("{} {} {}", before.total_tokens, unseen.total_tokens, total.total_tokens)
    });
    turns.chain(threads).collect()
}

#[test]
fn usage_survives_retention() {
    let lab = Lab::new();
    let long_ago_us = now_us() - 30 * DAY_US;
    lab.append(1, 1, &turn(long_ago_us, "u", 10));
    lab.append(2, 1, &turn(long_ago_us + DAY_US, "v", 20));
    assert_eq!(said(&lab.usage()), ["u 10", "v 10", "0 0 20"]);
    let bounds = lab.settings().retention;
    prune_history(&lab.history(), &bounds, now_us(), Life::Stopped, RunMode::Apply).expect("it can be pruned");
    std::fs::remove_file(lab.segment_path(1)).expect("it is there");
    assert!(History::new(&lab.history()).rows::<TurnRowDocument>(None, 9, 0, false).expect("rows").events.is_empty());
    lab.append(2, 1, &turn(now_us(), "w", 30));
    let usage = lab.usage();
    assert_eq!(said(&usage), ["u 10", "v 10", "w 10", "0 0 30"]);
    assert!(usage.from_start, "{usage:?}");
}

#[test]
fn rebuild_gives_the_same_usage() {
    let lab = Lab::new();
    lab.append(1, 1, &turn(now_us(), "u", 10));
    lab.append(2, 1, &turn(now_us() + 9_000, "v", 20));
    let before = lab.usage();
    lab.lose_history();
    let rebuilt = lab.usage();
    assert_eq!(rebuilt, before);
    assert!(rebuilt.from_start, "{rebuilt:?}");
}

#[test]
fn rebuild_from_pruned_journal_says_so() {
    let lab = Lab::new();
    lab.append(1, 1, &turn(now_us(), "u", 10));
    lab.append(2, 1, &turn(now_us() + 9_000, "v", 20));
    assert!(lab.usage().from_start);
    lab.lose_history();
    std::fs::remove_file(lab.segment_path(1)).expect("it is there");
    let rebuilt = lab.usage();
    assert_eq!(said(&rebuilt), ["v 10", "10 0 20"]);
    assert!(!rebuilt.from_start, "{rebuilt:?}");
}

#[test]
fn older_history_gets_the_usage_of_its_journal() {
    let lab = Lab::new();
    lab.append(1, 1, &turn(now_us(), "u", 10));
    lab.append(2, 1, &turn(now_us() + 9_000, "v", 20));
    let before = lab.usage();
    let as_before = || {
        let older = Connection::open(lab.history()).expect("it is there");
        older
            .execute_batch(
                "DROP TABLE codex_client_uses; DROP TABLE codex_usage_turns; DROP TABLE codex_usage_threads; DROP TABLE codex_usage_limits;
                DROP TABLE codex_usage_since; DROP INDEX codex_tool_events_of_reviews;
                DROP TABLE codex_threads; DROP INDEX codex_transcript_entries_in_order; ALTER TABLE codex_transcript_entries DROP COLUMN place_us;
                PRAGMA user_version = 3;
                UPDATE codex_event_checkpoints SET state = json_set(state, '$.form', 3, '$.fold', json('{}'))",
            )
            .expect("our own SQL");
    };
    as_before();
    assert_eq!(lab.usage(), before);
    // Another checkpoint of an older form does not count the same records again.
    let older = Connection::open(lab.history()).expect("it is there");
    let form = "UPDATE codex_event_checkpoints SET state = json_set(state, '$.form', 3)";
    older.execute(form, []).expect("our own SQL");
    drop(older);
    assert_eq!(lab.usage(), before);
    // A journal that was pruned before the upgrade lacks its start.
    as_before();
    std::fs::remove_file(lab.segment_path(1)).expect("it is there");
    let pruned = lab.usage();
    assert_eq!((said(&pruned), pruned.from_start), (vec!["v 10".to_owned(), "10 0 20".to_owned()], false));
}

#[test]
fn oldest_turns_become_one_row_without_loss() {
    let lab = Lab::new();
    let (now, count) = (now_us(), 600);
    for number in 0..count {
        lab.append(1, 1, &turn(now + number * 10_000, &format!("u{number}"), 10 * (number + 1)));
    }
    let before = lab.usage();
    let sum = |usage: &SessionUsage| {
        let mut sum = Used::default();
        usage.turns.iter().for_each(|turn| sum.add(&turn.used));
        sum
    };
    let connection = Connection::open(lab.history()).expect("it is there");
    (0..3).for_each(|_| bound(&connection, 300).expect("it can be bounded"));
    drop(connection);
    let after = lab.usage();
    assert_eq!(sum(&after), sum(&before));
    assert_eq!((sum(&after).turns, sum(&after).tokens.total_tokens), (count, 10 * count));
    assert!(after.turns.len() <= 300 && after.turns[0].older, "{}", after.turns.len());
    assert!(after.threads.iter().all(|thread| thread.adds_up), "{:?}", after.threads);
}

#[test]
fn many_threads_stay_within_the_bound() {
    let lab = Lab::new();
    let (now, count) = (now_us(), 600);
    let of_thread = |number: u64, at_us: u64, turn_id: &str, total: u64| -> Vec<String> {
        let lines = turn(at_us, turn_id, total).into_iter();
        lines.map(|line| line.replace(r#""threadId":"t""#, &format!(r#""threadId":"t{number}""#))).collect()
    };
    for number in 0..count {
        lab.append(1, 1, &of_thread(number, now + number * 10_000, "u", 10));
    }
    lab.usage();
    let connection = Connection::open(lab.history()).expect("it is there");
    (0..9).for_each(|_| bound(&connection, 300).expect("it can be bounded"));
    drop(connection);
    let after = lab.usage();
    let total: u64 = after.turns.iter().map(|turn| turn.used.tokens.total_tokens).sum();
    assert_eq!(total, 10 * count);
    assert!(after.turns.len() <= 300, "{}", after.turns.len());
    // A thread whose account is forgotten goes on, with and without rows of its own.
    lab.append(1, 1, &of_thread(0, now + 60_000_000, "v", 20));
    let forgotten = "DELETE FROM codex_usage_threads WHERE thread_id = 't599'";
    Connection::open(lab.history()).and_then(|it| it.execute(forgotten, [])).expect("it is there");
    lab.append(1, 1, &of_thread(599, now + 60_100_000, "v", 20));
    let usage = lab.usage();
    assert!(usage.threads.iter().all(|thread| thread.adds_up), "{:#?}", usage.threads);
    let before = usage.threads.iter().find(|thread| thread.thread_id == "t0").expect("it is counted");
    assert_eq!((before.before_record.total_tokens, before.codex_total.total_tokens), (10, 20));
}

#[test]
fn late_rows_do_not_prolong_a_turn() {
    let lab = Lab::new();
    let now = now_us();
    lab.append(1, 1, &turn(now, "u", 10));
    let late = r#""turnId":"u","item":{"type":"commandExecution","id":"c","status":"completed"}"#;
    lab.append(1, 1, &[line(now + 60_000_000, "item/completed", late)]);
    let usage = lab.usage();
    assert_eq!((usage.turns[0].used.working_ms, usage.turns[0].used.commands), (5, 1));
    // A turn that runs lasts until its last record.
    lab.append(1, 1, &[line(now + 61_000_000, "turn/started", r#""turn":{"id":"v"}"#)]);
    lab.append(1, 1, &[line(now + 63_000_000, "item/completed", &late.replace("\"u\"", "\"v\""))]);
    let usage = lab.usage();
    assert_eq!((usage.turns[1].used.working_ms, &usage.turns[1].outcome), (2_000, &None));
    let since =
        History::new(&lab.history()).usage(&UsageQuery { since: Some(Moment(now + 1)) }, 0).expect("it can be asked");
    assert_eq!(since.turns.len(), 1);
    assert!(Duration::from_millis(usage.turns[1].used.waiting_ms).is_zero());
}

#[test]
fn last_limits_are_kept() {
    let lab = Lab::new();
    let note = |at_us: u64, used: u64| {
        let window = format!(r#"{{"used_percent":{used},"window_minutes":300,"resets_at":1767225600}}"#);
        format!(
            r#"{{"at":{at_us},"from":"shim","event":"rate_limits","data":{{"primary":{window},"secondary":null}}}}"#
        )
    };
    lab.append(1, 1, &[note(now_us(), 3), note(now_us() + 1, 4)]);
    let limits = lab.usage().rate_limits;
    assert_eq!((limits.len(), limits[0].used_percent, &*limits[0].name), (1, 4, "primary"));
    assert_eq!(limits[0].resets_at.as_deref(), Some("2026-01-01T00:00:00.000Z"));
}
