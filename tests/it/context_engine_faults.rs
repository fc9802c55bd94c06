//! Context engines that are missing, slow, wrong or dead: every turn continues with the user's words, and an event
//! gives the reason.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::context_engine::{events, live, outcomes, projection, take_place};
use crate::support::both_ends::{Live, carried, turn};
use crate::support::engine::{ALL, Engine, assembles};
use crate::support::eventually;
use crate::support::shim::Home;

const EARLIER: &str = r#"[{"role":"user","content":"earlier"}]"#;

/// The deadline in tests with an engine that does not answer.
const SOON_MS: u64 = 300;

/// The recorded reasons of engine exits.
fn ends(home: &Home) -> Vec<String> {
    let ended = events(home, &["context_engine_ended"]);
    ended.iter().map(|event| event["context_engine_ended"]["reason"].as_str().expect("a reason").to_owned()).collect()
}

/// Checks that a turn with this engine passes unchanged; returns the home.
fn passes(does: &str, deadline_ms: u64, outcome: &str) -> Home {
    let home = Home::new();
    let engine = Engine::new(&home, "assemble", &[("assemble", does)]);
    let mut live = live(home, &engine, deadline_ms, "");
    let sent = turn(1, "t", "hi");
    assert_eq!(live.send(&sent), format!("{sent}\n"), "{does}");
    live.take_turn(1);
    let seen = |live: &Live| outcomes(&live.home).first().cloned();
    assert_eq!(eventually(does, || seen(&live)), format!("assemble {outcome}"), "{does}");
    let (home, _) = live.end();
    home
}

#[test]
fn an_engine_that_is_not_there_costs_nothing() {
    let home = Home::new();
    fs::create_dir_all(home.path()).expect("a folder");
    fs::write(home.path().join("config.toml"), "[context_engine]\ncommand = [\"/no/such/engine\"]\n").expect("a file");
    let mut live = Live::start_in(home);
    let sent = turn(1, "t", "hi");
    assert_eq!(live.send(&sent), format!("{sent}\n"));
    live.take_turn(1);
    let document = live.get("/sessions/self");
    assert_eq!(document["context_engine"]["running"], false);
    let (home, stderr) = live.end();
    assert!(stderr.starts_with("codex-shim: the context engine: start /no/such/engine: "), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert_eq!(outcomes(&home), ["assemble not_running"]);
}

#[test]
fn whatever_an_engine_answers_the_turn_goes_on() {
    passes(r#"printf '{"id":%s,"error":{"message":"no"}}\n' "$id""#, 60_000, "error");
    passes(r#"printf '{"id":%s,"result":{"messages":7}}\n' "$id""#, 60_000, "invalid");
    passes(r#"printf '{"id":%s,"result":{}}\n' "$id""#, 60_000, "invalid");
    passes("echo nonsense; printf '\\377\\000{\\n'", SOON_MS, "timeout");
    passes(r#"printf '{"id":999,"result":{"messages":[]}}\n'"#, SOON_MS, "timeout");
}

#[test]
fn an_answer_that_comes_late_is_nobodys() {
    let late = format!("while [ ! -e gate ]; do sleep 0.02; done; {}", assembles(EARLIER, ""));
    let home = Home::new();
    let engine = Engine::new(&home, "assemble", &[("assemble", &late)]);
    let mut live = live(home, &engine, SOON_MS, "");
    let sent = turn(1, "t", "hi");
    assert_eq!(live.send(&sent), format!("{sent}\n"));
    eventually("the time that was up", || outcomes(&live.home).first().cloned());
    fs::write(engine.dir().join("gate"), "").expect("a file");
    let next = turn(2, "t", "hi");
    assert_eq!(carried(&live.send(&next), &next), projection("[user]\nearlier"));
    let (home, _) = live.end();
    assert_eq!(outcomes(&home), ["assemble timeout", "assemble ok"]);
}

#[test]
fn an_engine_that_writes_without_end_is_ended_and_costs_no_memory() {
    for (floods, why) in [
        ("head -c 104857600 /dev/zero | tr '\\0' x; sleep 600", "over 8 MiB"),
        ("yes nonsense | head -c 104857600; sleep 600", "answers no call"),
        // A response without a request is not counted as one.
        ("yes '{\"id\":999,\"result\":1}' | head -c 104857600; sleep 600", "answers no call"),
    ] {
        let home = Home::new();
        let engine = Engine::new(&home, "assemble", &[("assemble", floods)]);
        let mut live = live(home, &engine, 60_000, "");
        let sent = turn(1, "t", "hi");
        assert_eq!(live.send(&sent), format!("{sent}\n"), "{floods}");
        let status = fs::read_to_string(format!("/proc/{}/status", live.relay.id())).unwrap_or_default();
        let peak =
            status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        assert!(peak.is_none_or(|peak: u64| peak < 80 << 10), "{floods}: {peak:?} kB");
        let (home, _) = live.end();
        assert_eq!(outcomes(&home), ["assemble ended"]);
        assert!(ends(&home)[0].contains(why), "{:?}", ends(&home));
    }
}

#[test]
fn an_engine_that_dies_in_any_method_is_started_again() {
    for method in ALL.split(' ').filter(|method| *method != "compact").chain(["initialize"]) {
        // The engine dies once; its next run works.
        let dies = format!("if [ ! -e died ]; then : > died; exit 3; fi; {}", assembles(EARLIER, ""));
        let dies = match method {
            "initialize" => "if [ ! -e died ]; then : > died; exit 3; fi; printf \
                '{\"id\":%s,\"result\":{\"info\":{\"id\":\"lab\"},\"methods\":[\"assemble\"]}}\\n' \"$id\""
                .to_owned(),
            _ => dies,
        };
        // Some methods are called only if another one is not listed.
        let listed = match method {
            "ingestBatch" => "assemble ingestBatch",
            "ingest" => "assemble ingest",
            _ => "bootstrap maintain assemble afterTurn",
        };
        let home = Home::new();
        let mut does = vec![(method, dies.as_str())];
        let works = assembles(EARLIER, "");
        if method != "assemble" {
            does.push(("assemble", &works));
        }
        let engine = Engine::new(&home, listed, &does);
        let mut live = live(home, &engine, 2_000, "");
        live.send(r#"{"id":1,"method":"thread/resume","params":{"threadId":"t"}}"#);
        live.say_plainly(
            r#"{"id":1,"result":{"thread":{"id":"t","turns":[{"id":"t0","status":"completed","items":[{"type":"userMessage","id":"i","content":[{"type":"text","text":"before"}]}]}]}}}"#,
        );
        let sent = turn(2, "t", "hi");
        let shown = carried(&live.send(&sent), &sent);
        assert!(shown.is_empty() || shown == projection("[user]\nearlier"), "{method}: {shown}");
        live.take_turn(2);
        take_place(&mut live, "t", "u2", "hi", "completed");
        eventually(&format!("{method}: its death"), || engine.dir().join("died").exists().then_some(()));
        eventually(&format!("{method}: its end"), || (!ends(&live.home).is_empty()).then_some(()));
        engine.is_ready(&live.session);
        let next = turn(3, "t", "hi");
        assert_eq!(carried(&live.send(&next), &next), projection("[user]\nearlier"), "{method}");
        let (home, stderr) = live.end();
        assert!(stderr.contains("turns go on without it") && stderr.lines().count() == 1, "{method}: {stderr}");
        assert_eq!(ends(&home), ["it has ended"], "{method}");
    }
}

#[test]
fn an_engine_that_does_not_answer_three_times_is_started_again() {
    let home = Home::new();
    let engine = Engine::new(&home, "assemble", &[("assemble", ":")]);
    let mut live = live(home, &engine, 50, "");
    // On a busy machine the deadline can pass before the engine was called at all: such a turn does not count.
    let mut turns = 0;
    eventually("its end", || {
        turns += 1;
        let sent = turn(turns, "t", "hi");
        assert_eq!(live.send(&sent), format!("{sent}\n"));
        live.take_turn(turns);
        eventually("the time that was up", || (outcomes(&live.home).len() >= turns as usize).then_some(()));
        (turns >= 3).then(|| ends(&live.home).first().cloned()).flatten()
    });
    let (home, _) = live.end();
    assert_eq!(ends(&home).first().map(String::as_str), Some("it did not answer three calls in a row in time"));
}

#[test]
fn without_a_record_there_is_nothing_to_assemble_from() {
    let home = Home::new();
    let engine = Engine::new(&home, ALL, &[("assemble", &assembles(EARLIER, ""))]);
    let mut live = live(home, &engine, 60_000, "record = false");
    let sent = turn(1, "t", "hi");
    assert_eq!(live.send(&sent), format!("{sent}\n"));
    live.take_turn(1);
    let calls = live.get("/sessions/self")["context_engine"]["calls"].clone();
    assert_eq!(calls[0]["outcome"], "no_history", "{calls}");
    let _home = live.end_quietly();
    assert_eq!(engine.methods().first().map(String::as_str), Some("initialize"));
    assert!(!engine.methods().contains(&"assemble".to_owned()));
}

#[test]
fn its_state_is_told_in_status_and_metrics() {
    let home = Home::new();
    let engine = Engine::new(&home, "assemble", &[("assemble", &assembles(EARLIER, ""))]);
    let mut live = live(home, &engine, 60_000, "");
    live.send(&turn(1, "t", "hi"));
    live.take_turn(1);
    let document: Value = live.get("/sessions/self");
    let told = &document["context_engine"];
    assert_eq!((&told["name"], &told["calls"][0]["outcome"]), (&"Lab".into(), &"ok".into()), "{told}");
    assert_eq!(document["counters"]["turns_projected"], 1);
    let answer = codex_shim::testing::control::client::get(&live.session, "/metrics").expect("it answers");
    let metrics = String::from_utf8(answer.body.to_vec()).expect("it is text");
    for line in [
        "codex_shim_context_engine_up 1",
        "codex_shim_context_engine_calls_total{method=\"assemble\",outcome=\"ok\"} 1",
        "codex_shim_turns_projected_total 1",
    ] {
        assert!(metrics.lines().any(|told| told == line), "{line}\n{metrics}");
    }
    let status = live.tool(&["status", "--session", "s"]);
    let status = String::from_utf8(status.stdout).expect("it is text");
    assert!(status.contains("Lab 1: 1 call"), "{status}");
    live.end_quietly();
}

/// Appends a torn record, so that the index never catches up with the journal. Returns the file.
fn hold_the_index_up(session: &Path) -> PathBuf {
    let dir = session.join("journal");
    let mut segments: Vec<String> = fs::read_dir(&dir)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".jsonl"))
        .collect();
    segments.sort();
    let last = segments.pop().expect("a segment");
    let (generation, _) = last.rsplit_once('-').expect("a number");
    let path = dir.join(format!("{generation}-999.jsonl"));
    fs::write(&path, "{").expect("a file");
    path
}

#[test]
fn nobody_waits_for_another_threads_history_and_what_is_late_is_told_as_late() {
    let home = Home::new();
    let gate = format!("while [ ! -e gate ]; do sleep 0.02; done; {}", assembles(EARLIER, ""));
    let engine = Engine::new(&home, "assemble", &[("assemble", &gate)]);
    let mut live = live(home, &engine, 8_000, "");
    let first = turn(1, "t", "hi");
    live.write(&format!("{first}\n"));
    engine.asked_for("assemble", 1);
    let held_up = hold_the_index_up(&live.session);
    let (second, third) = (turn(2, "u", "hi"), turn(3, "v", "hi"));
    live.write(&format!("{second}\n{third}\n"));
    fs::write(engine.dir().join("gate"), "").expect("a file");
    // The engine's answer arrives while other threads wait for their history.
    assert_eq!(carried(&live.at_server(), &first), projection("[user]\nearlier"));
    // Both are due at the same time, and the engine got neither call, because the history never came.
    let mut late = [live.at_server(), live.at_server()];
    late.sort();
    assert_eq!(late, [format!("{second}\n"), format!("{third}\n")]);
    fs::remove_file(held_up).expect("it is there");
    eventually("all three", || (outcomes(&live.home).len() == 3).then_some(()));
    let home = live.end_quietly();
    assert_eq!(outcomes(&home), ["assemble ok", "assemble timeout", "assemble timeout"]);
    assert_eq!(engine.methods().iter().filter(|method| *method == "assemble").count(), 1);
}

#[test]
fn a_busy_engine_is_asked_one_after_the_other_and_lives() {
    let home = Home::new();
    let engine = Engine::new(&home, "bootstrap", &[("bootstrap", r#"sleep 0.1; printf '{"id":%s}\n' "$id""#)]);
    let mut live = live(home, &engine, 60_000, "");
    let said = "x".repeat(20_000);
    for id in 0..24 {
        live.send(&format!(r#"{{"id":{id},"method":"thread/resume","params":{{"threadId":"t{id}"}}}}"#));
        live.say_plainly(&format!(
            r#"{{"id":{id},"result":{{"thread":{{"id":"t{id}","turns":[{{"id":"t0","status":"completed","items":[{{"type":"userMessage","id":"i","content":[{{"type":"text","text":"{said}"}}]}}]}}]}}}}}}"#
        ));
    }
    eventually("all of them", || (outcomes(&live.home).len() == 24).then_some(()));
    let home = live.end_quietly();
    assert_eq!(outcomes(&home), ["bootstrap ok"; 24]);
    assert!(ends(&home).is_empty(), "{:?}", ends(&home));
}

#[test]
fn an_engine_that_comes_late_is_told_of_a_turn_once() {
    let home = Home::new();
    let late = r#"while [ ! -e gate ]; do sleep 0.02; done
        printf '{"id":%s,"result":{"info":{"id":"lab"},"methods":["bootstrap","ingestBatch"]}}\n' "$id""#;
    let engine = Engine::new(&home, "", &[("initialize", late)]);
    fs::create_dir_all(home.path()).expect("a folder");
    fs::write(home.path().join("config.toml"), engine.config(SOON_MS)).expect("a file");
    let mut live = Live::start_in(home);
    let sent = turn(1, "t", "hi");
    assert_eq!(live.send(&sent), format!("{sent}\n"));
    live.take_turn(1);
    take_place(&mut live, "t", "u1", "hi", "completed");
    fs::write(engine.dir().join("gate"), "").expect("a file");
    engine.asked_for("ingestBatch", 1);
    let _home = live.end_quietly();
    assert_eq!(engine.methods()[..2], ["initialize", "ingestBatch"]);
}

#[test]
fn an_engine_does_not_outlive_the_relay() {
    let stays = "trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done";
    let started = || {
        let home = Home::new();
        let engine = Engine::new(&home, "assemble", &[("assemble", stays)]);
        let mut live = live(home, &engine, 60_000, "");
        live.write(&format!("{}\n", turn(1, "t", "hi")));
        let pid: u32 =
            eventually("it is asked", || fs::read_to_string(engine.dir().join("pid")).ok()?.trim().parse().ok());
        (live, pid)
    };
    let is_gone = |pid: u32, why: &str| {
        eventually(why, || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
            (stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))).then_some(())
        });
    };
    let (mut live, pid) = started();
    drop(live.stdin.take());
    live.at_server();
    live.end_quietly();
    is_gone(pid, "the relay has ended");
    #[cfg(target_os = "linux")]
    {
        let (live, pid) = started();
        live.kill();
        is_gone(pid, "the relay was killed");
    }
}

#[test]
fn an_engine_that_reads_nothing_for_ten_seconds_is_ended() {
    let home = Home::new();
    let engine = Engine::new(&home, "assemble", &[("assemble", "sleep 600")]);
    let mut live = live(home, &engine, 60_000, "");
    let first = turn(1, "t", "hi");
    live.write(&format!("{first}\n"));
    engine.asked_for("assemble", 1);
    // More than a pipe holds, so the engine visibly leaves it unread.
    let second = turn(2, "u", &"x".repeat(300_000));
    live.write(&format!("{second}\n"));
    let mut got = [live.at_server(), live.at_server()];
    got.sort();
    assert_eq!(got, [format!("{first}\n"), format!("{second}\n")]);
    live.take_turn(1);
    live.take_turn(2);
    eventually("its end", || (!ends(&live.home).is_empty()).then_some(()));
    let (home, stderr) = live.end();
    assert_eq!(outcomes(&home), ["assemble not_reading"; 2]);
    assert_eq!(ends(&home), ["it does not read its input"]);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn a_thread_is_brought_up_again_where_that_has_failed() {
    let home = Home::new();
    let dies = r#"if [ ! -e died ]; then : > died; exit 3; fi; printf '{"id":%s,"result":{}}\n' "$id""#;
    let works = assembles(EARLIER, "");
    let engine = Engine::new(&home, "bootstrap maintain assemble", &[("bootstrap", dies), ("assemble", &works)]);
    let mut live = live(home, &engine, 60_000, "");
    live.send(r#"{"id":1,"method":"thread/resume","params":{"threadId":"t"}}"#);
    live.say_plainly(
        r#"{"id":1,"result":{"thread":{"id":"t","turns":[{"id":"t0","status":"completed","items":[{"type":"userMessage","id":"i","content":[{"type":"text","text":"before"}]}]}]}}}"#,
    );
    eventually("its end", || (!ends(&live.home).is_empty()).then_some(()));
    engine.is_ready(&live.session);
    for id in [2, 3] {
        let sent = turn(id, "t", "hi");
        assert_eq!(carried(&live.send(&sent), &sent), projection("[user]\nearlier"));
        live.take_turn(id);
    }
    let (home, _) = live.end();
    assert_eq!(
        engine.methods()[..8],
        ["initialize", "bootstrap", "initialize", "bootstrap", "maintain", "assemble", "assemble", "dispose"]
    );
    let calls = ["bootstrap ended", "bootstrap ok", "maintain ok", "assemble ok", "assemble ok"];
    assert_eq!(outcomes(&home), calls);
}

#[test]
fn a_thread_whose_history_could_not_be_had_is_brought_up_later() {
    let home = Home::new();
    let engine = Engine::new(&home, "bootstrap", &[]);
    let mut live = live(home, &engine, 60_000, "");
    // The test locks the history, so nothing is written to it.
    let holder = rusqlite::Connection::open(live.session.join("history.db")).expect("a database");
    eventually("the history", || holder.execute_batch("SELECT seq FROM codex_events; BEGIN IMMEDIATE").ok());
    live.send(r#"{"id":1,"method":"thread/resume","params":{"threadId":"t"}}"#);
    live.say_plainly(
        r#"{"id":1,"result":{"thread":{"id":"t","turns":[{"id":"t0","status":"completed","items":[{"type":"userMessage","id":"i","content":[{"type":"text","text":"before"}]}]}]}}}"#,
    );
    let log = live.session.join("shim.log");
    eventually("that is given up", || {
        fs::read_to_string(&log).ok().filter(|log| log.contains("skip the context engine: the history is unavailable"))
    });
    assert_eq!(engine.methods(), ["initialize"]);
    holder.execute_batch("ROLLBACK").expect("it is let go");
    // The engine is not retried at once, but with a later turn.
    let mut id = 1;
    eventually("it is brought up", || {
        id += 1;
        let sent = turn(id, "t", "hi");
        assert_eq!(live.send(&sent), format!("{sent}\n"));
        live.take_turn(id);
        take_place(&mut live, "t", &format!("u{id}"), "hi", "completed");
        // On a busy machine the history would fall ever further behind.
        let ended = "SELECT COUNT(*) FROM codex_turn_events WHERE turn_id = ?1 AND event_type = 'completed'";
        eventually("the turn is in the history", || {
            holder.query_row(ended, [format!("u{id}")], |row| row.get(0)).ok().filter(|count: &i64| *count > 0)
        });
        let (_, params) = engine.asked().into_iter().find(|(method, _)| method == "bootstrap")?;
        assert_eq!(params["messages"][0]["content"][0]["text"], "before");
        Some(())
    });
    let (_home, stderr) = live.end();
    assert!(stderr.contains("is locked") && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn what_an_engine_writes_on_stderr_is_in_the_log_without_its_secrets() {
    let home = Home::new();
    let secret = format!("ghp_{}", "a1B2".repeat(9));
    let long = "x".repeat(990);
    let says = format!("printf 'plainly\\nkey %s\\n%s %s\\n' {secret} {long} {secret} >&2; {}", assembles(EARLIER, ""));
    let engine = Engine::new(&home, "assemble", &[("assemble", &says)]);
    let mut live = live(home, &engine, 60_000, "");
    let sent = turn(1, "t", "hi");
    assert_eq!(carried(&live.send(&sent), &sent), projection("[user]\nearlier"));
    live.take_turn(1);
    let log = live.session.join("shim.log");
    let text = eventually("what it has written", || {
        fs::read_to_string(&log).ok().filter(|text| text.contains(&format!("context engine: {long}")))
    });
    assert!(text.contains("context engine: plainly") && text.contains("context engine: key "), "{text}");
    // The first half of a secret in a truncated line is masked, too.
    assert!(!text.contains(&secret[..8]), "{text}");
    live.end_quietly();
}

#[cfg(target_os = "linux")]
#[test]
fn the_users_programs_ignore_no_signal_because_the_relay_does() {
    let home = Home::new();
    let ignored = |file: &str| format!("grep ^SigIgn: /proc/self/status > '{}'", home.beside().join(file).display());
    let engine = Engine::new(
        &home,
        "assemble",
        &[("assemble", &format!("{}; {}", ignored("by-engine"), assembles(EARLIER, "")))],
    );
    let fragment = format!(
        "[[fragments]]\nname = \"f\"\nrole = \"developer\"\ncommand = [\"sh\", \"-c\", \"{}; echo x\"]",
        ignored("by-fragment")
    );
    let config = format!("{}{fragment}\n", engine.config(60_000));
    let files = ["by-engine", "by-fragment"].map(|file| home.beside().join(file));
    fs::create_dir_all(home.path()).expect("a folder");
    fs::write(home.path().join("config.toml"), config).expect("a file");
    let mut live = Live::start_in(home);
    engine.is_ready(&live.session);
    live.write(&format!("{}\n", turn(1, "t", "hi")));
    live.at_server();
    live.at_server();
    // The relay handles the signal, or this check would prove nothing.
    let mask = |path: &Path| {
        let told = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let line = told.lines().find(|line| line.starts_with("SigIgn:")).expect("a mask");
        u64::from_str_radix(line.split_whitespace().last().expect("a number"), 16).expect("a number")
    };
    let file_size = 1 << (libc::SIGXFSZ - 1);
    assert_ne!(mask(Path::new(&format!("/proc/{}/status", live.relay.id()))) & file_size, 0);
    for file in files {
        let told = eventually("it was written", || fs::read_to_string(&file).ok().filter(|told| !told.is_empty()));
        assert_eq!(mask(&file) & file_size, 0, "{}: {told}", file.display());
    }
    live.kill();
}

#[test]
fn what_an_engine_says_of_an_error_is_in_no_event() {
    let home = Home::new();
    let says = r#"printf '{"id":%s,"error":{"message":"cannot use giraffe"}}\n' "$id""#;
    let compacts = r#"printf '{"id":%s,"result":{"ok":false,"reason":"giraffe"}}\n' "$id""#;
    let engine = Engine::that_owns_compaction(&home, &[("assemble", says), ("compact", compacts)]);
    let mut live = live(home, &engine, 60_000, "");
    let sent = turn(1, "t", "hi");
    assert_eq!(live.send(&sent), format!("{sent}\n"));
    live.take_turn(1);
    let compact = r#"{"id":2,"method":"thread/compact/start","params":{"threadId":"t"}}"#;
    assert_eq!(live.send(compact), format!("{compact}\n"));
    let home = live.end_quietly();
    assert_eq!(outcomes(&home), ["assemble error", "compact ok"]);
    let events = home.journal().events;
    assert!(events.iter().all(|(_, data)| !data.to_string().contains("giraffe")), "{events:?}");
}

/// Runs `hangs` on the first call, and `works` afterwards.
fn hangs_once(hangs: &str, works: &str) -> String {
    format!("if [ ! -e hung ]; then : > hung; {hangs}; fi; {works}")
}

#[test]
fn an_engine_that_blocks_is_started_again() {
    let home = Home::new();
    let engine = Engine::new(&home, "assemble", &[("assemble", &hangs_once("sleep 600", &assembles(EARLIER, "")))]);
    let mut live = live(home, &engine, 5_000, "");
    // Later turns do not get the whole deadline; otherwise three of them would restart the engine.
    for id in 1..=4 {
        let sent = turn(id, "t", "hi");
        assert_eq!(live.send(&sent), format!("{sent}\n"));
        live.take_turn(id);
    }
    let why = eventually("its end", || ends(&live.home).first().cloned());
    assert!(why.starts_with("it has not answered assemble for "), "{why}");
    engine.is_ready(&live.session);
    let next = turn(5, "t", "hi");
    assert_eq!(carried(&live.send(&next), &next), projection("[user]\nearlier"));
    live.take_turn(5);
    let document = live.get("/sessions/self");
    assert_eq!(document["context_engine"]["last_end"], why);
    assert!(document["faults"].to_string().contains(&why), "{document}");
    let status = live.tool(&["status", "--session", "s"]);
    assert!(String::from_utf8_lossy(&status.stdout).contains(&why), "{status:?}");
    let log = fs::read_to_string(live.session.join("shim.log")).expect("a log");
    assert!(log.contains("has not answered in time") && log.contains(&why), "{log}");
    let (home, stderr) = live.end();
    assert!(stderr.contains(&why) && stderr.lines().count() == 1, "{stderr}");
    assert_eq!(outcomes(&home), [["assemble timeout"; 4].as_slice(), &["assemble ok"]].concat());
}

#[test]
fn an_engine_that_answers_only_others_is_started_again() {
    let home = Home::new();
    let never = format!(r#"case "$line" in *'"sessionKey":"t"'*) ;; *) {};; esac"#, assembles(EARLIER, ""));
    let engine = Engine::new(&home, "assemble", &[("assemble", &never)]);
    let mut live = live(home, &engine, 3_000, "");
    let sent = turn(1, "t", "hi");
    assert_eq!(live.send(&sent), format!("{sent}\n"));
    let mut id = 1;
    let why = eventually("its end", || {
        id += 1;
        live.send(&turn(id, "u", "hi"));
        ends(&live.home).first().cloned()
    });
    assert!(why.starts_with("it has not answered assemble for "), "{why}");
    let home = live.kill();
    assert!(engine.methods().len() > 2, "it was asked meanwhile: {:?}", outcomes(&home));
}

#[test]
fn an_engine_that_never_introduces_itself_is_started_again() {
    let home = Home::new();
    let works = r#"printf '{"id":%s,"result":{"info":{"id":"lab"},"methods":["assemble"]}}\n' "$id""#;
    let (hangs, answers) = (hangs_once("sleep 600", works), assembles(EARLIER, ""));
    let engine = Engine::new(&home, "", &[("initialize", &hangs), ("assemble", &answers)]);
    fs::create_dir_all(home.path()).expect("a folder");
    fs::write(home.path().join("config.toml"), engine.config(SOON_MS)).expect("a file");
    let mut live = Live::start_in(home);
    for id in 1..=2 {
        let sent = turn(id, "t", "hi");
        assert_eq!(live.send(&sent), format!("{sent}\n"));
        live.take_turn(id);
    }
    engine.is_ready(&live.session);
    let next = turn(3, "t", "hi");
    assert_eq!(carried(&live.send(&next), &next), projection("[user]\nearlier"));
    live.take_turn(3);
    let (home, _) = live.end();
    assert_eq!(ends(&home), ["it did not answer initialize in time"]);
}

#[test]
fn an_engine_that_blocks_behind_a_turn_is_started_again() {
    let methods = ["bootstrap", "maintain", "afterTurn"];
    let mut all: Vec<(&str, Engine, Live)> = Vec::new();
    for method in methods {
        let home = Home::new();
        let (hangs, answers) = (hangs_once("sleep 600", r#"printf '{"id":%s}\n' "$id""#), assembles(EARLIER, ""));
        let engine =
            Engine::new(&home, "bootstrap maintain assemble afterTurn", &[(method, &hangs), ("assemble", &answers)]);
        let mut live = live(home, &engine, SOON_MS, "");
        live.send(r#"{"id":1,"method":"thread/resume","params":{"threadId":"t"}}"#);
        live.say_plainly(
            r#"{"id":1,"result":{"thread":{"id":"t","turns":[{"id":"t0","status":"completed","items":[{"type":"userMessage","id":"i","content":[{"type":"text","text":"before"}]}]}]}}}"#,
        );
        live.send(&turn(2, "t", "hi"));
        live.take_turn(2);
        take_place(&mut live, "t", "u2", "hi", "completed");
        all.push((method, engine, live));
    }
    // The deadline of each call passes first; the engine is killed later.
    for (method, _, live) in &all {
        let timeout = format!("{method} timeout");
        eventually(&timeout, || outcomes(&live.home).contains(&timeout).then_some(()));
    }
    for (method, engine, mut live) in all {
        let why = eventually(&format!("{method}: its end"), || ends(&live.home).first().cloned());
        assert!(why.starts_with(&format!("it has not answered {method} for ")), "{why}");
        engine.is_ready(&live.session);
        let next = turn(3, "v", "hi");
        assert_eq!(carried(&live.send(&next), &next), projection("[user]\nearlier"), "{method}");
        live.kill();
    }
}

#[test]
fn an_engine_that_does_not_dispose_ends_with_the_relay() {
    let home = Home::new();
    let stays = "trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done";
    let engine = Engine::new(&home, "assemble dispose", &[("assemble", &assembles(EARLIER, "")), ("dispose", stays)]);
    let mut live = live(home, &engine, 60_000, "");
    live.send(&turn(1, "t", "hi"));
    live.take_turn(1);
    let pid = live.get("/sessions/self")["context_engine"]["pid"].clone();
    live.end_quietly();
    eventually("the end of the engine", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        (stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))).then_some(())
    });
}
