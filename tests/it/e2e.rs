//! The relayed codex is indistinguishable from the real one.
//!
//! Each conversation runs twice directly and once through a relay. The test compares the messages of each item, turn
//! and answer in order, without ids and times. Because codex itself varies between runs, the test repeats both kinds
//! until every relayed stream has also been seen directly.

use std::path::Path;
use std::process::ExitStatus;

use serde_json::Value;

use crate::support::codex::{Lab, installed_or_skip};
use crate::support::conversations::{
    AUTO_REVIEW, COMMAND_APPROVAL, Conversation, END_IN_MID_TURN, FILE_CHANGE_APPROVAL, INTERRUPT, LIST_READ_RESUME,
    PLAIN_TURN, QUESTION, REASONING, STREAMED_DELTAS,
};
use crate::support::journal::Journal;
use crate::support::model::Model;
use crate::support::peer::Peer;
use crate::support::release::{Ability, Release};
use crate::support::shim::{Home, SHIM};
use crate::support::streams::{Runs, Streams, Way, settled, streams_of};

/// A run of a conversation, as streams of messages without values that differ from run to run.
struct Run {
    streams: Streams,
    raw: Vec<Value>,
    status: ExitStatus,
    /// The requests to the model, one list of inputs each.
    asked: Vec<Value>,
    journal: Option<Journal>,
}

fn run(conversation: Conversation, codex: &Path, way: Way) -> Run {
    let model = Model::start((conversation.script)(Release::under_test()));
    let lab = Lab::new(&model);
    let home = Home::new();
    let mut command = match way {
        Way::Direct => lab.command(codex),
        Way::Relayed => lab.command(SHIM),
    };
    command.arg("app-server");
    if way == Way::Relayed {
        home.adopt(&mut command).env("CODEX_SHIM_CODEX", codex);
    }
    let mut peer = Peer::start(&mut command);
    (conversation.drive)(&mut peer, &lab);
    let (raw, status) = peer.finish();
    let root = lab.root().to_string_lossy().into_owned();
    let streams = streams_of(&raw, &root);
    let asked = model.requests().iter().map(|request| settled(&request["input"], &root)).collect();
    Run { streams, raw, status, asked, journal: (way == Way::Relayed).then(|| home.journal()) }
}

/// Limit on runs of either kind if a stream differs, to rule out a random difference.
const RUNS_MAX: usize = 5;

/// Runs a conversation directly and relayed and compares. All runs must agree in at least `streams_min` streams, so
/// that the comparison cannot pass without comparing anything.
fn check(name: &str, conversation: Conversation, streams_min: usize) {
    let Some(codex) = installed_or_skip(name) else { return };
    let run = |way| run(conversation, &codex, way);
    let mut runs = Runs { direct: vec![run(Way::Direct), run(Way::Direct)], relayed: vec![run(Way::Relayed)] };
    let (compared, all) = runs.compare(name, RUNS_MAX, |run| &run.streams, run);
    assert!(compared >= streams_min, "{name}: only {compared} of {all} streams are always the same");
    let Runs { direct: direct_runs, relayed: mut relayed_runs } = runs;
    assert!(
        relayed_runs.iter().any(|relayed| direct_runs.iter().any(|direct| direct.asked == relayed.asked)),
        "{name}: what the model was asked differs"
    );
    let relayed = relayed_runs.swap_remove(0);
    let direct = &direct_runs[0];
    assert_eq!(relayed.status, direct.status, "{name}");
    let journal = relayed.journal.expect("a relayed run has a journal");
    assert_eq!(journal.server.len(), relayed.raw.len(), "{name}: what the client received is what is on record");
    for (recorded, received) in journal.server.iter().zip(&relayed.raw) {
        match recorded {
            Some(line) => assert_eq!(&serde_json::from_slice::<Value>(line).expect("codex writes JSON"), received),
            None => assert!(received["method"].as_str().is_some_and(|method| method.starts_with("account/"))),
        }
    }
    let version = journal.events.iter().find(|(event, _)| event == "codex_version").map(|(_, data)| &data["version"]);
    assert_eq!(version, Some(&Value::from(Release::under_test().to_string())), "{name}");
    assert_eq!(journal.event_names().last(), Some(&"generation_ended"), "{name}");
}

#[test]
fn e2e_plain_turn() {
    check("e2e_plain_turn", PLAIN_TURN, 10);
}

#[test]
fn e2e_reasoning() {
    check("e2e_reasoning", REASONING, 10);
}

#[test]
fn e2e_streamed_deltas() {
    check("e2e_streamed_deltas", STREAMED_DELTAS, 10);
}

#[test]
fn e2e_command_approval() {
    check("e2e_command_approval", COMMAND_APPROVAL, 10);
}

#[test]
fn e2e_file_change_approval() {
    check("e2e_file_change_approval", FILE_CHANGE_APPROVAL, 10);
}

#[test]
fn e2e_auto_review() {
    if Release::under_test().lacks("e2e_auto_review", Ability::AutoReview) {
        return;
    }
    check("e2e_auto_review", AUTO_REVIEW, 10);
}

#[test]
fn e2e_question() {
    if Release::under_test().lacks("e2e_question", Ability::Questions) {
        return;
    }
    check("e2e_question", QUESTION, 10);
}

#[test]
fn e2e_interrupt() {
    check("e2e_interrupt", INTERRUPT, 10);
}

#[test]
fn e2e_list_read_resume() {
    check("e2e_list_read_resume", LIST_READ_RESUME, 10);
}

#[test]
fn e2e_end_in_mid_turn() {
    let release = Release::under_test();
    if release.lacks("e2e_end_in_mid_turn", Ability::EndingInMidTurn) {
        // The relay kills it after the grace period.
        let Some(codex) = installed_or_skip("e2e_end_in_mid_turn") else { return };
        let model = Model::start((END_IN_MID_TURN.script)(release));
        let (lab, home) = (Lab::new(&model), Home::new());
        let mut command = lab.command(SHIM);
        home.adopt(&mut command).env("CODEX_SHIM_CODEX", codex).env("CODEX_SHIM_EXIT_GRACE", "200ms").arg("app-server");
        let mut peer = Peer::start(&mut command);
        (END_IN_MID_TURN.drive)(&mut peer, &lab);
        let (raw, status) = peer.finish();
        assert!(status.success(), "{status}");
        assert_eq!(home.journal().server.len(), raw.len());
        return;
    }
    check("e2e_end_in_mid_turn", END_IN_MID_TURN, 8);
}
