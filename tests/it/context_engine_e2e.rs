//! Context engines and fragments with the real codex: the model sees their text, and the client does not.

use std::fs;

use serde_json::{Value, json};

use crate::context_engine::{events, outcomes, projection};
use crate::support::codex::Lab;
use crate::support::conversations::{start_turn, turn_completed};
use crate::support::engine::{ALL, Engine, assembles};
use crate::support::eventually;
use crate::support::model::{Item, Model};
use crate::support::real::{Real, says};
use crate::support::release::{Ability, Release};
use crate::support::shim::Home;

const EARLIER: &str = r#"[{"role":"user","content":"earlier giraffe"}]"#;
const SHOWN: &str = "[user]\nearlier giraffe";

/// Texts that no client may see, as they appear in JSON.
const UNSEEN: [&str; 7] =
    ["CODEX_CONTEXT", "CODEX_META", "\\u001e", "\\u001f", "earlier giraffe", "be zebra", "<notes>"];

/// The texts of a model request, with their roles.
fn shown(request: &Value) -> Vec<(String, String)> {
    let items = request["input"].as_array().expect("a list").iter();
    let texts = items.flat_map(|item| {
        let role = item["role"].as_str().unwrap_or_default().to_owned();
        let content = item["content"].as_array().into_iter().flatten();
        content.filter_map(move |content| Some((role.clone(), content["text"].as_str()?.to_owned())))
    });
    texts.collect()
}

fn count(shown: &[(String, String)], role: &str, text: &str) -> usize {
    shown.iter().filter(|(of, said)| of == role && said == text).count()
}

fn say(real: &mut Real, words: &str) {
    let thread = real.thread.clone();
    start_turn(&mut real.peer, &thread, words);
    turn_completed(&mut real.peer, "completed");
}

#[test]
fn e2e_the_model_is_shown_it_all_and_the_client_none() {
    let place = Home::new();
    let more = r#","systemPromptAddition":"be zebra""#;
    let engine = Engine::new(&place, ALL, &[("assemble", &assembles(EARLIER, more))]);
    let notes = place.beside().join("notes");
    fs::write(&notes, "one").expect("a file");
    let config = format!(
        "{}\n[[fragments]]\nname = \"notes\"\nrole = \"contextual_user\"\nfile = \"{}\"\n",
        engine.config(60_000),
        notes.display()
    );
    let script = (0..5).map(|_| says()).collect();
    let name = "e2e_the_model_is_shown_it_all_and_the_client_none";
    let Some(mut real) = Real::start(name, &config, script) else { return };
    // Texts that need `thread/inject_items`: the engine's developer part and the fragments.
    let injects = !real.lab.release.lacks(name, Ability::InjectItems);
    say(&mut real, "please look at the giraffe");
    real.http("POST /sessions/self/context", &json!({"cmd": "make", "output": "done"}));
    say(&mut real, "and once more");
    fs::write(&notes, "two").expect("a file");
    say(&mut real, "and now");
    let asked = real.model.requests();
    let first = shown(&asked[0]);
    let words = format!("{}please look at the giraffe", projection(SHOWN));
    assert_eq!(count(&first, "user", &words), 1, "{first:#?}");
    let place_of = |text: &str| first.iter().position(|(_, said)| said == text).expect("it is there");
    let last = shown(asked.last().expect("it was asked"));
    let injected = [("developer", "be zebra"), ("user", "<notes>\none\n</notes>"), ("user", "<notes>\ntwo\n</notes>")];
    for (role, text) in injected.into_iter().filter(|_| injects) {
        assert_eq!(count(&last, role, text), 1, "{role}: {text}\n{last:#?}");
    }
    for (_, text) in injected.into_iter().take(2).filter(|_| injects) {
        assert!(place_of(text) < place_of(&words), "{text}");
    }
    for text in [words.clone(), format!("{}and now", projection(SHOWN))] {
        assert_eq!(count(&last, "user", &text), 1, "{text}\n{last:#?}");
    }
    let inside = last.iter().find(|(_, said)| said.starts_with("\u{1e}CODEX_META ")).expect("it was carried");
    assert!(inside.1.ends_with(&format!("\u{1f}{}and once more", projection(SHOWN))), "{inside:?}");
    // The client requests the user's words in every way codex offers.
    let thread = real.thread.clone();
    for (method, params) in [
        ("thread/list", json!({})),
        ("thread/read", json!({"threadId": thread, "includeTurns": true})),
        ("thread/turns/list", json!({"threadId": thread})),
        ("thread/items/list", json!({"threadId": thread})),
        ("thread/timeline/list", json!({"threadId": thread})),
        ("thread/search", json!({"searchTerm": "giraffe"})),
        ("thread/searchOccurrences", json!({"threadId": thread, "searchTerm": "please look"})),
        ("getConversationSummary", json!({"conversationId": thread})),
        ("thread/fork", json!({"threadId": thread})),
        ("thread/resume", json!({"threadId": thread})),
    ] {
        let id = real.peer.request(method, params);
        real.peer.wait_for(method, |message| message.get("method").is_none() && message["id"] == id);
    }
    let list = real.peer.call("thread/list", json!({}));
    assert!(
        list["data"].as_array().expect("a list").iter().any(|listed| listed["preview"] == "please look at the giraffe"),
        "{list}"
    );
    // In another run the sent fragments are known, and the resume carries the last addition.
    let Real { lab, model, home, peer, thread } = real;
    let (seen, status) = peer.finish();
    assert!(status.success());
    let unseen = |seen: &[Value]| {
        for message in seen {
            let text = message.to_string();
            assert!(UNSEEN.iter().all(|mark| !text.contains(mark)), "{text}");
        }
    };
    unseen(&seen);
    let mut again = Real::start_again(lab, model, home, thread.clone());
    again.peer.call("thread/resume", json!({"threadId": thread}));
    let before = again.model.requests().len();
    say(&mut again, "after a restart");
    let resumed = shown(&again.model.requests()[before]);
    assert!(!injects || count(&resumed, "user", "<notes>\ntwo\n</notes>") == 1, "{resumed:#?}");
    assert_eq!(count(&resumed, "user", &format!("{}after a restart", projection(SHOWN))), 1, "{resumed:#?}");
    // Older releases continue with the previous developer part.
    let has_addition = resumed.iter().any(|(role, said)| role == "developer" && said.contains("be zebra"));
    assert!(!injects || has_addition, "{resumed:#?}");
    let assembled = engine.asked_for("assemble", 4);
    let said = assembled["messages"].to_string();
    assert!(said.contains("please look at the giraffe") && said.contains("Well.") && !said.contains("CODEX"), "{said}");
    let (seen, _) = again.peer.finish();
    unseen(&seen);
    assert!(outcomes(&again.home).iter().all(|outcome| outcome.ends_with(" ok")), "{:?}", outcomes(&again.home));
}

/// A search finds the words of a projection too, because codex has it on record. Each excerpt is cut somewhere else.
#[test]
fn e2e_search_shows_nothing_of_a_projection() {
    let place = Home::new();
    let long = format!(r#"[{{"role":"user","content":"earlier giraffe {}"}}]"#, "lorem ipsum ".repeat(40));
    let engine = Engine::new(&place, "assemble", &[("assemble", &assembles(&long, ""))]);
    let name = "e2e_search_shows_nothing_of_a_projection";
    let script = vec![says(), says()];
    let Some(mut real) = Real::start_with(name, &engine.config(60_000), "thread_search = true\n", script) else {
        return;
    };
    say(&mut real, "please look at the zebra");
    real.http("POST /sessions/self/context", &json!({"cmd": "make", "output": "done"}));
    say(&mut real, "and once more");
    let thread = real.thread.clone();
    for term in
        ["CODEX_CONTEXT", "CODEX_META", "Assembled", "user_cmd_context", "reference data", "user request", "zebra"]
    {
        for (method, params) in [
            ("thread/search", json!({"searchTerm": term})),
            ("thread/searchOccurrences", json!({"threadId": thread, "searchTerm": term})),
        ] {
            let id = real.peer.request(method, params);
            real.peer.wait_for(method, |message| message.get("method").is_none() && message["id"] == id);
        }
    }
    for message in real.peer.finish().0 {
        let text = message.to_string();
        assert!(UNSEEN[..4].iter().all(|mark| !text.contains(mark)), "{text}");
    }
}

#[test]
fn e2e_an_epoch_is_shown_once_over_a_restart() {
    let place = Home::new();
    let once = assembles(EARLIER, r#","contextProjection":{"mode":"thread_bootstrap","epoch":"e1"}"#);
    let engine = Engine::new(&place, "assemble", &[("assemble", &once)]);
    let script = (0..3).map(|_| says()).collect();
    let Some(mut real) = Real::start("e2e_an_epoch_is_shown_once_over_a_restart", &engine.config(60_000), script)
    else {
        return;
    };
    say(&mut real, "one");
    say(&mut real, "two");
    let Real { lab, model, home, peer, thread } = real;
    drop(peer.finish());
    let mut again = Real::start_again(lab, model, home, thread.clone());
    again.peer.call("thread/resume", json!({"threadId": thread}));
    say(&mut again, "three");
    let last = shown(again.model.requests().last().expect("it was asked"));
    let projected: Vec<&str> =
        last.iter().map(|(_, said)| said.as_str()).filter(|said| said.contains("CODEX_CONTEXT")).collect();
    assert_eq!(projected, [format!("{}one", projection(SHOWN))]);
    assert_eq!((count(&last, "user", "two"), count(&last, "user", "three")), (1, 1), "{last:#?}");
    again.end();
}

#[test]
fn e2e_turns_that_fail_or_are_interrupted_are_none_of_its_business() {
    let place = Home::new();
    let engine = Engine::new(&place, ALL, &[("assemble", &assembles("[]", ""))]);
    let script = vec![says(), vec![Item::Text(vec!["I begin"]), Item::Hang], vec![Item::Fail]];
    let test = "e2e_turns_that_fail_or_are_interrupted_are_none_of_its_business";
    let Some(mut real) = Real::start(test, &engine.config(60_000), script) else { return };
    say(&mut real, "one");
    engine.asked_for("maintain", 1);
    let thread = real.thread.clone();
    let turn = start_turn(&mut real.peer, &thread, "two");
    eventually("the model", || (real.model.requests().len() == 2).then_some(()));
    real.peer.call("turn/interrupt", json!({"threadId": thread, "turnId": turn}));
    turn_completed(&mut real.peer, "interrupted");
    start_turn(&mut real.peer, &thread, "three");
    turn_completed(&mut real.peer, "failed");
    let Real { lab: _lab, model: _model, home: _home, peer, thread: _ } = real;
    drop(peer.finish());
    eventually("its end", || engine.methods().contains(&"dispose".to_owned()).then_some(()));
    assert_eq!(
        engine.methods(),
        ["initialize", "assemble", "afterTurn", "maintain", "assemble", "assemble", "dispose"]
    );
}

#[test]
fn e2e_compactions_are_told_apart() {
    let name = "e2e_compactions_are_told_apart";
    if Release::under_test().lacks(name, Ability::Compaction) {
        return;
    }
    let place = Home::new();
    let compacts = r#"printf '{"id":%s,"result":{"ok":true,"compacted":true}}\n' "$id""#;
    let engine = Engine::that_owns_compaction(&place, &[("compact", compacts), ("assemble", &assembles("[]", ""))]);
    let model = Model::start((0..9).map(|_| says()).collect());
    let lab = Lab::new(&model);
    let path = lab.codex_home().join("config.toml");
    let of_codex = fs::read_to_string(&path).expect("it is there");
    // Fewer tokens than one answer of the model has.
    fs::write(&path, format!("model_auto_compact_token_limit = 12\n{of_codex}")).expect("a file");
    let Some(mut real) = Real::in_lab(name, &engine.config(60_000), lab, model) else {
        return;
    };
    let triggers = |home: &Home| -> Vec<String> {
        let told = events(home, &["context_engine_compacted", "native_compaction"]);
        let word = |event: &Value| match event["native_compaction"]["trigger"].as_str() {
            Some(trigger) => format!("native {trigger}"),
            None => format!("engine {}", event["context_engine_compacted"]["ok"]),
        };
        told.iter().map(word).collect()
    };
    say(&mut real, "one");
    say(&mut real, "two");
    eventually("codex's own", || triggers(&real.home).contains(&"native codex".to_owned()).then_some(()));
    let before = triggers(&real.home);
    assert!(before.iter().all(|trigger| trigger == "native codex"), "{before:?}");
    let thread = real.thread.clone();
    real.peer.call("thread/compact/start", json!({"threadId": thread}));
    turn_completed(&mut real.peer, "completed");
    let after = triggers(&real.home);
    assert_eq!(after[before.len()..], ["engine true", "native client"]);
    real.end();
}

#[test]
fn e2e_every_turn_completes_whatever_the_engine_does() {
    let name = "e2e_every_turn_completes_whatever_the_engine_does";
    let works = assembles(EARLIER, "");
    let faults: [(&str, &str, &str); 9] = [
        ("assemble", "exit 3", "ended"),
        ("assemble", "echo nonsense", "timeout"),
        ("assemble", "head -c 104857600 /dev/zero | tr '\\0' x", "ended"),
        ("assemble", "sleep 600", "timeout"),
        ("assemble", r#"printf '{"id":%s,"error":{"message":"no"}}\n' "$id""#, "error"),
        ("initialize", "exit 3", "not_running"),
        ("initialize", "sleep 600", "timeout"),
        ("afterTurn", "exit 3", "ok"),
        ("maintain", "exit 3", "ok"),
    ];
    for (method, does, outcome) in faults {
        let place = Home::new();
        let mut arms = vec![(method, does)];
        if method != "assemble" {
            arms.push(("assemble", &works));
        }
        let engine = Engine::new(&place, "assemble afterTurn maintain", &arms);
        let script = (0..2).map(|_| says()).collect();
        let Some(mut real) = Real::start(name, &engine.config(1_000), script) else { return };
        if method != "initialize" {
            engine.is_ready(&real.home.path().join("sessions/s"));
        }
        say(&mut real, "the words of the user");
        let said = shown(&real.model.requests()[0]);
        let words = match outcome {
            "ok" => format!("{}the words of the user", projection(SHOWN)),
            _ => "the words of the user".to_owned(),
        };
        assert_eq!(count(&said, "user", &words), 1, "{method} {does}: {said:#?}");
        let told = eventually("the event", || outcomes(&real.home).first().cloned());
        let expect = [outcome, "not_running"].map(|outcome| format!("assemble {outcome}"));
        assert!(expect.contains(&told), "{method} {does}: {told}");
        say(&mut real, "and once more");
        real.end();
    }
}
