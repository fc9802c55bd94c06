//! Codex's own reviewer: the real codex, a scripted model that is both the agent and the reviewer, and a person who overrules.

use serde_json::{Value, json};

use crate::support::both_ends::{text, told, tool};
use crate::support::conversations::{start_reviewed_thread, start_turn, verdict};
use crate::support::eventually;
use crate::support::model::Item;
use crate::support::real::{Real, run, says};
use crate::support::release::{Ability, Release};

const REVIEWS: &str = "/sessions/self/codex-reviews";

/// A relayed codex whose reviewer has denied the model's command, after the end of that turn.
fn denied(test: &str, more: Vec<Vec<Item>>) -> Option<Real> {
    if Release::under_test().lacks(test, Ability::AutoReview) {
        return None;
    }
    let script = [vec![run(), verdict("deny"), says()], more].concat();
    let mut real = Real::start(test, "", script)?;
    real.thread = start_reviewed_thread(&mut real.peer, &real.lab);
    let thread = real.thread.clone();
    start_turn(&mut real.peer, &thread, "go on");
    real.completed("completed");
    assert_eq!(real.ran(), 0);
    Some(real)
}

fn review(real: &Real) -> Value {
    let reviews = real.get(REVIEWS)["reviews"].clone();
    assert_eq!(reviews.as_array().map(Vec::len), Some(1), "{reviews:#}");
    reviews[0].clone()
}

#[test]
fn e2e_review_that_denies_is_listed() {
    let Some(real) = denied("e2e_review_that_denies_is_listed", Vec::new()) else { return };
    let review = review(&real);
    let words = ["status", "reason", "risk_level", "thread_id"];
    let expect = ["denied", "It writes outside the sandbox.", "high", &real.thread];
    assert_eq!(words.map(|word| review[word].clone()), expect.map(Value::from), "{review:#}");
    assert!(text(&review["subject"]).contains("echo ran >> ran.txt"), "{review:#}");
    assert!(review["decided_at"].is_string() && review["item_id"].is_string(), "{review:#}");
    assert_eq!(told(&tool(&real.home, &["reviews", "--json"]))["reviews"], json!([review]));
    real.end();
}

#[test]
fn e2e_review_is_overruled_for_the_next_turn() {
    let more = vec![run(), verdict("allow"), says()];
    let Some(mut real) = denied("e2e_review_is_overruled_for_the_next_turn", more) else { return };
    let review_id = text(&review(&real)["review_id"]);
    let path = format!("POST {REVIEWS}/{review_id}/overrule");
    let (status, document) = real.http(&path, &json!({}));
    assert_eq!((status, &document["detail"]["error_code"]), (409, &json!("turn_over")), "{document}");
    let (status, document) = real.http(&path, &json!({"next_turn": true}));
    assert_eq!((status, &document["ok"], &document["turn_id"]), (200, &json!(true), &Value::Null), "{document}");
    let thread = real.thread.clone();
    start_turn(&mut real.peer, &thread, "try again");
    real.completed("completed");
    assert_eq!(real.ran(), 1);
    // The agent and the reviewer have both learned of the approval.
    let asked = real.model.requests();
    let heard = asked.iter().filter(|asked| asked.to_string().contains("manually approved")).count();
    assert!(heard >= 2, "{heard}");
    eventually("the overruled review", || Some(review(&real)).filter(|review| review["overruled_at"].is_string()));
    real.end();
}

#[test]
fn e2e_review_is_overruled_in_its_turn() {
    if Release::under_test().lacks("e2e_review_is_overruled_in_its_turn", Ability::AutoReview) {
        return;
    }
    // The model says nothing more, so that the turn runs on.
    let script = vec![run(), verdict("deny"), vec![Item::Hang]];
    let Some(mut real) = Real::start("e2e_review_is_overruled_in_its_turn", "", script) else { return };
    real.thread = start_reviewed_thread(&mut real.peer, &real.lab);
    let thread = real.thread.clone();
    let turn = start_turn(&mut real.peer, &thread, "go on");
    let ended = real.peer.wait_for_method("item/autoApprovalReview/completed");
    let path = format!("POST {REVIEWS}/{}/overrule", text(&ended["params"]["reviewId"]));
    let (status, document) = real.http(&path, &json!({}));
    assert_eq!((status, &document["turn_id"]), (200, &json!(turn)), "{document}");
    real.peer.call("turn/interrupt", json!({"threadId": thread, "turnId": turn}));
    real.completed("interrupted");
    real.end();
}
