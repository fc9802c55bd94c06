//! Usage adds up: examples, the recordings of real servers, and any sequence of turns, restarts, compactions and lost records.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::properties::{play, recordings};
use super::usage::{Account, Counts, UsageRow};
use super::{Fold, Rows, Seen};
use crate::journal::{Position, Record, SegmentName};

/// Adds rows up, as the index does in its tables.
#[derive(Default)]
struct Book {
    turns: Vec<Turn>,
    accounts: BTreeMap<String, Account>,
}

#[derive(Debug, Default, PartialEq)]
struct Turn {
    thread: String,
    id: String,
    generation: String,
    spent: Counts,
    words: BTreeMap<&'static str, u64>,
    names: String,
}

impl Book {
    fn of(rows: &[UsageRow]) -> Book {
        let mut book = Book::default();
        for row in rows {
            let thread = row.thread_id.clone().unwrap_or_default();
            if let Some(total) = row.total {
                let known = book.accounts.get(&thread).copied();
                book.accounts.insert(thread.clone(), Account::add(known, row.spent, total));
            }
            let id = row.turn_id.clone().unwrap_or_default();
            let begins = row.begins_in.clone();
            let is_its = |turn: &&mut Turn| turn.thread == thread && turn.id == id;
            let newest = book.turns.iter_mut().rev().find(is_its);
            let turn = match newest.filter(|turn| begins.as_ref().is_none_or(|begins| *begins == turn.generation)) {
                Some(turn) => turn,
                None => {
                    let generation = begins.unwrap_or_default();
                    book.turns.push(Turn { thread, id, generation, ..Turn::default() });
                    book.turns.last_mut().expect("BUG: it was pushed")
                }
            };
            turn.spent = turn.spent.plus(row.spent);
            let outcome = row.outcome.map(|outcome| (outcome.name(), 1));
            let answered = row.answered.map(|by| (by.name(), 1));
            let words = [("commands", row.commands), ("asked", row.asked), ("waited_us", row.waited_us)];
            for (word, count) in words.into_iter().chain(outcome).chain(answered).filter(|(_, count)| *count > 0) {
                *turn.words.entry(word).or_default() += count;
            }
            for name in row.client.iter().chain(&row.model) {
                if !turn.names.contains(&**name) {
                    turn.names += &format!(" {name}");
                }
            }
        }
        book
    }

    fn sum(&self, thread: &str) -> Counts {
        let of_thread = self.turns.iter().filter(|turn| turn.thread == thread);
        of_thread.fold(Counts::default(), |sum, turn| sum.plus(turn.spent))
    }

    fn assert_adds_up(&self) {
        for (thread, account) in &self.accounts {
            assert!(account.is_met_by(self.sum(thread)), "{thread}: {account:?}, turns {:?}", self.sum(thread));
        }
    }
}

/// Turns as `THREAD/TURN INPUT WORDS NAMES`, and accounts as `THREAD TOTAL before unseen back`, both of input tokens.
fn check(actual: &str, expect: &[&str]) {
    let book = Book::of(&play(actual).1.usage);
    book.assert_adds_up();
    let turns = book.turns.iter().filter(|turn| !turn.id.is_empty() || !turn.words.is_empty()).map(|turn| {
        let words: String = turn.words.iter().map(|(word, count)| format!(" {word}={count}")).collect();
        format!("{}/{} {}{words}{}", turn.thread, turn.id, turn.spent.input, turn.names)
    });
    let accounts = book.accounts.iter().map(|(thread, account)| {
        let Account { total, before, unseen, set_back } = account;
        let [total, before, unseen, set_back] = [total, before, unseen, set_back].map(|counts| counts.input);
        format!("{thread} {total} {before} {unseen} {set_back}")
    });
    assert_eq!(turns.chain(accounts).collect::<Vec<_>>(), expect, "{actual}");
}

fn tokens(input: u64) -> String {
    format!(
        r#"{{"inputTokens":{input},"cachedInputTokens":{},"outputTokens":{},"reasoningOutputTokens":0,"totalTokens":{}}}"#,
        input / 2,
        input / 10,
        input + input / 10
    )
}

fn report(place: &str, total: u64, last: &str) -> String {
    let usage = format!("{{\"tokenUsage\":{{\"total\":{},\"last\":{last}}}}}", tokens(total));
    format!("6 < thread/tokenUsage/updated {place} {usage}\n")
}

fn call(place: &str, total: u64, last: u64) -> String {
    report(place, total, &tokens(last))
}

const BEGIN: &str = "1 generation 00000000000a\n2 ! generation_started {\"pid\":1}\n5 < turn/started t/u\n";
const AGAIN: &str = "20 generation 00000000000b\n21 ! generation_started {\"pid\":2}\n";
const END: &str = "9 < turn/completed t/u {\"status\":\"completed\"}\n";

#[test]
fn calls_of_a_turn_add_up() {
    let calls = [call("t/u", 10, 10), call("t/u", 30, 20)].concat();
    check(&format!("{BEGIN}{calls}{END}"), &["t/u 30 completed=1", "t 30 0 0 0"]);
    // A client that resumes gets the last report again.
    check(&format!("{BEGIN}{calls}{END}{}", call("t/u", 30, 20)), &["t/u 30 completed=1", "t 30 0 0 0"]);
    // Reports of two clients can arrive in another order.
    check(&format!("{BEGIN}{calls}{}{END}", call("t/u", 10, 10)), &["t/u 30 completed=1", "t 30 0 0 0"]);
    // The report of the last call is late.
    check(&format!("{BEGIN}{END}{}", call("t/u", 10, 10)), &["t/u 0 completed=1", "t 10 10 0 0"]);
    let late = format!("{BEGIN}{}{END}{}", call("t/u", 10, 10), call("t/u", 30, 20));
    check(&late, &["t/u 30 completed=1", "t 30 0 0 0"]);
}

#[test]
fn earlier_work_is_before_the_record() {
    check(&format!("{BEGIN}{}{END}", call("t/u", 110, 10)), &["t/u 10 completed=1", "t 110 100 0 0"]);
    check(&format!("{}{BEGIN}{END}", call("t/z", 100, 10)), &["t/u 0 completed=1", "t 100 100 0 0"]);
}

#[test]
fn restart_keeps_the_account() {
    let first = format!("{BEGIN}{}{END}{AGAIN}", call("t/u", 10, 10));
    let second = "25 < turn/started t/v\n";
    let plain = format!("{first}{}{second}{}", call("t/u", 10, 10), call("t/v", 30, 20));
    check(&plain, &["t/u 10 completed=1", "t/v 20", "t 30 0 0 0"]);
    // Codex ran without us in between.
    let unseen = format!("{first}{}{second}{}", call("t/x", 70, 10), call("t/v", 90, 20));
    check(&unseen, &["t/u 10 completed=1", "t/v 20", "t 90 0 60 0"]);
    // An early server uses the id of a turn again.
    let reused = format!("{first}{}25 < turn/started t/u\n{}", call("t/u", 10, 10), call("t/u", 30, 20));
    check(&reused, &["t/u 10 completed=1", "t/u 20", "t 30 0 0 0"]);
    // A run without an end.
    check(&format!("{BEGIN}{}{AGAIN}", call("t/u", 10, 10)), &["t/u 10 failed=1", "t 10 0 0 0"]);
}

#[test]
fn compaction_is_no_second_call() {
    let estimate =
        r#"{"inputTokens":0,"cachedInputTokens":0,"outputTokens":0,"reasoningOutputTokens":0,"totalTokens":999}"#;
    let apart = [call("t/u", 10, 10), report("t/u", 10, estimate), call("t/u", 30, 20)].concat();
    check(&format!("{BEGIN}{apart}{END}"), &["t/u 30 completed=1", "t 30 0 0 0"]);
    // The call of the compaction and the estimate come in one report.
    let at_once = [call("t/u", 10, 10), report("t/u", 25, estimate), call("t/u", 30, 5)].concat();
    check(&format!("{BEGIN}{at_once}{END}"), &["t/u 30 completed=1", "t 30 0 0 0"]);
    // A full context makes codex set its counts back.
    let full = [call("t/u", 50, 50), report("t/u", 0, estimate), call("t/u", 20, 20)].concat();
    check(&format!("{BEGIN}{full}{END}"), &["t/u 70 completed=1", "t 20 0 0 50"]);
}

#[test]
fn lost_records_leave_only_the_last_call() {
    let lost = [&call("t/u", 10, 10), "7 # disk full\n", &call("t/u", 60, 20)].concat();
    check(&format!("{BEGIN}{lost}{END}"), &["t/u 30 completed=1", "t 60 0 30 0"]);
}

#[test]
fn early_servers_report_twice() {
    let early = r#"6 << codex/event/token_count {"id":"u","conversationId":"t","msg":{"type":"token_count","info":{
        "total_token_usage":{"input_tokens":10,"cached_input_tokens":5,"output_tokens":1,"reasoning_output_tokens":0,"total_tokens":11},
        "last_token_usage":{"input_tokens":10,"cached_input_tokens":5,"output_tokens":1,"reasoning_output_tokens":0,"total_tokens":11}}}}"#;
    let early = early.replace("\n        ", "") + "\n";
    check(&format!("{BEGIN}{early}{}{END}", call("t/u", 10, 10)), &["t/u 10 completed=1", "t 10 0 0 0"]);
    check(&format!("{BEGIN}{early}{END}"), &["t/u 10 completed=1", "t 10 0 0 0"]);
}

#[test]
fn turns_know_client_and_model() {
    let start = "1 generation 00000000000a\n2 >0 initialize ~ {\"clientInfo\":{\"name\":\"editor\"}}\n\
        3 >1 thread/start ~ {}\n4 =1 {\"thread\":{\"id\":\"t\"},\"model\":\"m-1\"}\n";
    let turn = "5 >2 turn/start t {\"id\":1}\n6 =2 {\"turn\":{\"id\":\"u\",\"status\":\"inProgress\"}}\n7 < turn/started t/u\n";
    check(&format!("{start}{turn}{END}"), &["t/u 0 completed=1 editor m-1"]);
    // The start of the turn comes first.
    let turn = "5 >2 turn/start t\n6 < turn/started t/u\n7 =2 {\"turn\":{\"id\":\"u\",\"status\":\"inProgress\"}}\n";
    check(&format!("{start}{turn}{END}"), &["t/u 0 completed=1 m-1 editor"]);
    let ours = turn.replace(">2", ">\"codex-shim:0:1\"").replace("=2", "=\"codex-shim:0:1\"");
    check(&format!("{start}{ours}{END}"), &["t/u 0 completed=1 m-1 codex-shim"]);
}

#[test]
fn waiting_counts_overlapping_requests_once() {
    let ask = |at: u64, id: u64| {
        format!(
            "{at} ! request_opened {{\"request_id\":\"g-{id}\"}}\n{at} ?{id} item/commandExecution/requestApproval t/u/i{id}\n"
        )
    };
    let answer = |at: u64, id: u64, source: &str| {
        format!(
            "{at} ! request_resolved {{\"request_id\":\"g-{id}\",\"status\":\"resolved\",\"source\":\"{source}\"}}\n"
        )
    };
    let two = [ask(10, 0), ask(20, 1), answer(30, 0, "tui"), answer(50, 1, "client")].concat();
    let end = "60 < turn/completed t/u {\"status\":\"completed\"}\n";
    check(&format!("{BEGIN}{two}{end}"), &["t/u 0 asked=2 client=1 completed=1 tui=1 waited_us=40000"]);
    // The turn ends first.
    let open = "60 < turn/completed t/u {\"status\":\"interrupted\"}\n";
    let withdrawn = format!("{BEGIN}{}{open}{}", ask(10, 0), answer(61, 0, "server"));
    check(&withdrawn, &["t/u 0 asked=1 interrupted=1 nobody=1 waited_us=50000"]);
    // The run ends first: nothing is known to happen after its last record.
    let killed = format!("{BEGIN}{}70 < turn/diff/updated t/u\n9000 generation 00000000000b\n", ask(10, 0));
    check(&killed, &["t/u 0 asked=1 failed=1 waited_us=60000"]);
}

#[test]
fn commands_count_once_they_ended() {
    let item = |status: &str| {
        format!("7 < item/completed t/u/{status} {{\"type\":\"commandExecution\",\"status\":\"{status}\"}}\n")
    };
    let items = [item("completed"), item("failed"), item("declined")].concat();
    check(&format!("{BEGIN}{items}{END}"), &["t/u 0 commands=2 completed=1"]);
}

#[test]
fn recorded_servers_add_up() {
    for (name, tape) in recordings() {
        let (mut fold, mut rows) = (Fold::default(), Rows::default());
        let mut last: BTreeMap<String, u64> = BTreeMap::new();
        for (offset, line) in (0..).zip(tape.lines()) {
            let record = Record::parse(line.as_bytes()).expect("a tape holds records");
            let segment = SegmentName::parse("000000000001-001.jsonl").expect("BUG: the name is one");
            fold.take(&Position { segment, offset }, &Seen::of(&record, None), &mut rows);
            let record: serde_json::Value = serde_json::from_str(line).expect("a tape holds JSON");
            let params = &record["line"]["params"];
            if record["line"]["method"] == "thread/tokenUsage/updated" {
                let thread = params["threadId"].as_str().expect("a thread").to_owned();
                last.insert(thread, params["tokenUsage"]["total"]["totalTokens"].as_u64().expect("a number"));
            }
        }
        let book = Book::of(&rows.usage);
        book.assert_adds_up();
        for (thread, total) in last {
            assert_eq!(book.sum(&thread).total, total, "{name}: all work of {thread} is in the recording");
        }
        let turns = book.turns.iter().filter(|turn| !turn.id.is_empty()).count();
        let started = rows.turns.iter().filter(|row| row.event_type.name() == "started").count();
        assert_eq!(turns, started, "{name}");
    }
}

/// Actions of a server and its threads. The numbers are the thread and the tokens.
#[derive(Debug, Clone)]
enum Act {
    Start(u8),
    Call(u8, u64),
    /// Reports the last call again.
    Repeat(u8),
    Compact(u8, u64),
    End(u8),
    /// The relay and the server start again, with or without a note of the end.
    Restart(bool),
    /// Codex works on a thread while no relay runs: only between two runs.
    Elsewhere(u8, u64),
    /// The next records are lost.
    Lose(u8),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let (thread, count) = (0..3_u8, 1..900_u64);
    let act = prop_oneof![
        3 => thread.clone().prop_map(Act::Start),
        6 => (thread.clone(), count.clone()).prop_map(|(thread, count)| Act::Call(thread, count)),
        1 => thread.clone().prop_map(Act::Repeat),
        1 => (thread.clone(), count.clone()).prop_map(|(thread, count)| Act::Compact(thread, count)),
        3 => thread.clone().prop_map(Act::End),
        1 => any::<bool>().prop_map(Act::Restart),
        1 => (thread, count).prop_map(|(thread, count)| Act::Elsewhere(thread, count)),
        1 => (1..5_u8).prop_map(Act::Lose),
    ];
    proptest::collection::vec(act, 1..60)
}

/// A server with three threads, and the true usage of its turns.
#[derive(Default)]
struct Server {
    lines: Vec<String>,
    lose: u8,
    has_lost: bool,
    runs: u32,
    turns: u32,
    running: BTreeMap<u8, String>,
    total: BTreeMap<u8, u64>,
    last: BTreeMap<u8, (String, u64)>,
    /// The true tokens of each turn.
    spent: BTreeMap<String, u64>,
    elsewhere: BTreeMap<u8, u64>,
    /// Totals that are on record.
    reported: BTreeMap<u8, u64>,
}

impl Server {
    fn write(&mut self, line: String) -> bool {
        let at = self.lines.len();
        if self.lose > 0 {
            self.lose -= 1;
            self.has_lost = true;
            if self.lose == 0 {
                self.lines.push(format!("{at} # disk full"));
            }
            return false;
        }
        self.lines.push(format!("{at} {}", line.trim_end().trim_start_matches("6 ")));
        true
    }

    fn report(&mut self, thread: u8, turn: &str, last: &str) {
        let total = self.total[&thread];
        if self.write(report(&format!("t{thread}/{turn}"), total, last)) {
            self.reported.insert(thread, total);
        }
    }

    fn restart(&mut self, is_noted: bool) {
        // A gap is written before a run ends.
        self.lose = self.lose.min(1);
        if is_noted || self.lose > 0 {
            self.write("! generation_ended".to_owned());
        }
        self.runs += 1;
        self.running.clear();
        let (at, runs) = (self.lines.len(), self.runs);
        self.lines.push(format!("{at} generation {runs:012x}"));
        self.lines.push(format!("{at} ! generation_started {{\"pid\":{runs}}}"));
    }

    /// A client resumes a thread, and gets its last report.
    fn resume(&mut self, thread: u8) {
        if let Some((turn, last)) = self.last.get(&thread).cloned() {
            self.report(thread, &turn, &tokens(last));
        }
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Start(thread) if !self.running.contains_key(thread) => {
                self.resume(*thread);
                self.turns += 1;
                let turn = format!("u{}", self.turns);
                self.write(format!("< turn/started t{thread}/{turn}"));
                self.running.insert(*thread, turn);
            }
            Act::Call(thread, count) => {
                let Some(turn) = self.running.get(thread).cloned() else { return };
                *self.total.entry(*thread).or_default() += count;
                *self.spent.entry(turn.clone()).or_default() += count;
                self.last.insert(*thread, (turn.clone(), *count));
                self.report(*thread, &turn, &tokens(*count));
            }
            Act::Compact(thread, count) => {
                let Some(turn) = self.running.get(thread).cloned() else { return };
                self.act(&Act::Call(*thread, *count));
                self.report(*thread, &turn, r#"{"inputTokens":0,"outputTokens":0,"totalTokens":77}"#);
            }
            Act::Repeat(thread) => self.resume(*thread),
            Act::End(thread) => {
                let Some(turn) = self.running.remove(thread) else { return };
                self.write(format!("< turn/completed t{thread}/{turn} {{\"status\":\"completed\"}}"));
            }
            Act::Restart(is_noted) => self.restart(*is_noted),
            Act::Elsewhere(thread, count) => {
                self.restart(true);
                self.turns += 1;
                *self.total.entry(*thread).or_default() += count;
                *self.elsewhere.entry(*thread).or_default() += count;
                self.last.insert(*thread, (format!("u{}", self.turns), *count));
            }
            Act::Lose(records) => self.lose = self.lose.max(*records),
            Act::Start(_) => {}
        }
    }
}

proptest! {
    #[test]
    fn any_sequence_adds_up(acts in acts()) {
        let mut server = Server::default();
        server.restart(true);
        acts.iter().for_each(|act| server.act(act));
        let book = Book::of(&play(&server.lines.join("\n")).1.usage);
        book.assert_adds_up();
        for (thread, total) in &server.reported {
            let account = book.accounts.get(&format!("t{thread}")).copied().unwrap_or_default();
            prop_assert_eq!(account.total.input, *total);
            prop_assert_eq!(account.set_back, Counts::default());
        }
        for turn in book.turns.iter().filter(|turn| !turn.id.is_empty()) {
            let truth = server.spent.get(&turn.id).copied().unwrap_or_default();
            prop_assert!(turn.spent.input <= truth, "{} has {} of {}", &turn.id, turn.spent.input, truth);
            if !server.has_lost {
                prop_assert_eq!(turn.spent.input, truth, "{}", &turn.id);
            }
        }
        if !server.has_lost {
            for (thread, account) in &book.accounts {
                let elsewhere = server.elsewhere.iter().find(|(number, _)| *thread == format!("t{number}"));
                let unseen = account.before.input + account.unseen.input;
                prop_assert!(unseen <= elsewhere.map_or(0, |(_, count)| *count), "{}: {:?}", thread, account);
            }
        }
    }
}
