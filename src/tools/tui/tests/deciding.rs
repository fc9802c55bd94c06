//! A key that decides acts alone, and only on what was visible before: all keys in all places.

use std::collections::BTreeMap;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::super::form::Stand;
use super::super::keys::{BINDINGS, Press};
use super::super::model::{Answering, Event};
use super::timeline::reviewed;
use super::{Play, key_of, noted};
use crate::sessions::news::News;

/// How to come to each place, and `wait` where something must be visible first.
const PLACES: [(&str, &str); 17] = [
    ("sessions", "key Esc"),
    ("requests", "asks command=g-0\nkey ^P"),
    ("chat", "type hello"),
    ("approval", "asks command=g-0\nkey ^R\nwait 600"),
    ("approval of a patch", "asks patch=g-0\nkey ^R\nwait 600"),
    ("asked again", "asks risky=g-0\nkey ^R\nwait 600\nkey a\nwait 600"),
    ("reason", "asks command=g-0\nkey ^R\nwait 600\nkey r\nwait 600"),
    ("search", "key Tab /\ntype no"),
    ("question", "asks questions=g-0\nkey ^R\nwait 600"),
    ("last question", "asks elicitation=g-0\nkey ^R\nkey 2\nwait 600"),
    ("your answers", "asks questions=g-0\nkey ^R\nwait 600\nkey Down Enter\nwait 600\ntype k3y\nkey Enter\nwait 600"),
    ("review", "asks patch=g-0\nkey ^R\nwait 600\nkey v\nwait 600"),
    ("timeline", "key Tab"),
    ("an entry in full", "key Tab Enter"),
    ("threads", "key ^T"),
    ("help", "key F1"),
    ("a denial", "denied\nkey o\nwait 600"),
];

/// The keys that decide, and where. Every other key of the table does nothing that cannot be taken back.
const DECIDE: [(&str, &str); 17] = [
    ("sessions", "^C ^Q ^Z q"),
    ("requests", "^C ^Q ^Z"),
    ("chat", "Enter ^C ^Q ^X ^Z"),
    ("approval", "^C ^Q ^X ^Z a c d o r s"),
    ("approval of a patch", "^C ^Q ^X ^Z a c d o r s"),
    ("asked again", "^C ^Q ^X ^Z y"),
    ("reason", "Enter ^C ^Q ^X ^Z"),
    ("search", "^C ^Q ^X ^Z"),
    ("question", "Enter ^C ^Q ^X ^Z"),
    ("last question", "Enter ^C ^Q ^X ^Z"),
    ("your answers", "Enter ^C ^Q ^X ^Z"),
    ("review", "^C ^Q ^X ^Z a c d o r s"),
    ("timeline", "^C ^Q ^X ^Z"),
    ("an entry in full", "^C ^Q ^X ^Z o"),
    ("threads", "^C ^Q ^X ^Z"),
    ("help", "^C ^Q"),
    ("a denial", "y"),
];

fn at(steps: &str) -> Play {
    let (mut play, steps) = match steps.strip_prefix("denied\n") {
        Some(steps) => (reviewed("denied"), steps),
        None => (Play::new(), steps),
    };
    steps.lines().for_each(|step| play.step(step));
    play.done.clear();
    play
}

/// All keys of the table, all letters, and what a pasted line ends with.
fn all_keys() -> BTreeMap<String, KeyEvent> {
    let of_press = |press: &Press| match *press {
        Press::Letter(letter) => vec![KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE)],
        Press::Digit => ('1'..='9').map(|digit| KeyEvent::new(KeyCode::Char(digit), KeyModifiers::NONE)).collect(),
        Press::Ctrl(letter) => vec![KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL)],
        Press::Alt(code) => vec![KeyEvent::new(code, KeyModifiers::ALT)],
        Press::Key(code) => vec![KeyEvent::new(code, KeyModifiers::NONE)],
    };
    let letters = ('a'..='z').map(|letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE));
    let all = BINDINGS.iter().flat_map(|binding| binding.keys).flat_map(of_press).chain(letters);
    all.map(|key| (format!("{:?} {:?}", key.modifiers, key.code), key)).collect()
}

fn name(key: &KeyEvent) -> String {
    match (key.code, key.modifiers.contains(KeyModifiers::CONTROL)) {
        (KeyCode::Char(letter), true) => format!("^{}", letter.to_ascii_uppercase()),
        (KeyCode::Char(letter), false) => letter.to_string(),
        (code, _) => format!("{code:?}"),
    }
}

/// The commands that reach the session or another program, and how far an answer is: each part only grows by a decision.
fn decided(play: &Play) -> (usize, bool, bool, usize) {
    let reaches = ["respond", "say", "interrupt", "overrule", "page", "Quit", "Suspend"];
    let commands = play.done.iter().filter(|done| reaches.iter().any(|word| done.starts_with(word))).count();
    let shown = play.model.session.as_ref().and_then(|session| session.answering.as_ref());
    let stand = shown.map_or(0, |shown| match shown.form.stand() {
        Stand::Step(at) => at,
        Stand::Summary(_) => usize::MAX,
    });
    let has = |of: fn(&Answering) -> bool| shown.is_some_and(of);
    (commands, has(|shown| shown.sure.is_some()), has(|shown| shown.reason.is_some()), stand)
}

/// Whether keys decide something in a place, and the note after them.
fn decide(steps: &str, press: impl FnOnce(&mut Play)) -> (bool, String) {
    let mut play = at(steps);
    let before = decided(&play);
    press(&mut play);
    let after = decided(&play);
    let note = noted(&play).to_owned();
    play.done.clear();
    let is_asked = (after.1 && !before.1) || (after.2 && !before.2);
    (is_asked || after.0 > before.0 || after.3 > before.3, note)
}

#[test]
fn deciding_keys_are_those_of_the_table() {
    let keys = all_keys();
    let of_place = |(place, steps): &(&'static str, &str)| {
        let alone = keys.values().filter(|key| decide(steps, |play| play.burst(&[**key])).0);
        let mut names: Vec<String> = alone.map(name).collect();
        names.sort();
        (*place, names.join(" "))
    };
    assert_eq!(PLACES.iter().map(of_place).collect::<Vec<_>>(), DECIDE.map(|(place, keys)| (place, keys.to_owned())));
}

#[test]
fn no_key_decides_in_a_burst() {
    let other = key_of("x");
    for (place, steps) in PLACES {
        for key in all_keys().into_values() {
            let alone = decide(steps, |play| play.burst(&[key])).0;
            let bursts = [
                vec![other, key],
                vec![key, other],
                vec![key, key],
                vec![other, key, other],
                vec![key, key_of("Enter")],
            ];
            for burst in bursts {
                let (has_acted, note) = decide(steps, |play| play.burst(&burst));
                let names: Vec<String> = burst.iter().map(name).collect();
                assert!(!has_acted, "{place}: {names:?}");
                // Another key before it has taken the question about a denial away.
                let is_said = note.contains("too fast") || place == "a denial";
                assert!(!alone || is_said, "{place}: {names:?}: {note}");
            }
        }
    }
}

#[test]
fn pasted_and_typed_text_decides_nothing() {
    let text = "add a test\ny\rr no\n1\nq";
    let as_key = |char: char| match char {
        '\n' | '\r' => key_of("Enter"),
        ' ' => key_of("Space"),
        char => KeyEvent::new(KeyCode::Char(char), KeyModifiers::NONE),
    };
    let keys: Vec<KeyEvent> = text.chars().map(as_key).collect();
    for (place, steps) in PLACES {
        assert!(!decide(steps, |play| play.burst(&keys)).0, "{place}");
        let paste = |play: &mut Play| {
            play.event(Event::Pasted(text.to_owned()));
            play.event(Event::Key(key_of("Enter")));
            play.event(Event::Key(key_of("a")));
            play.event(Event::Quiet);
        };
        assert!(!decide(steps, paste).0, "{place}");
    }
}

#[test]
fn what_has_just_appeared_is_not_decided() {
    for (place, steps) in PLACES {
        let Some(steps) = steps.strip_suffix("\nwait 600") else { continue };
        for key in all_keys().into_values().filter(|key| !key.modifiers.contains(KeyModifiers::CONTROL)) {
            // A pager shows only what is there.
            if name(&key) == "o" {
                continue;
            }
            let (has_acted, note) = decide(steps, |play| {
                play.step("wait 400");
                play.burst(&[key]);
                play.step("wait 400");
                play.burst(&[key]);
            });
            assert!(!has_acted, "{place}: {}: {note}", name(&key));
        }
    }
}

#[test]
fn burst_keeps_its_note_and_then_a_key_acts() {
    let mut play = at("asks command=g-0\nkey ^R\nwait 600");
    play.step("burst a d d Space a Space t e s t Enter");
    assert!(noted(&play).contains("too fast: nothing was answered"), "{}", noted(&play));
    play.step("wait 400");
    play.step("key a");
    assert!(noted(&play).contains("just appeared"), "the rest of a burst can come late: {}", noted(&play));
    play.step("wait 600");
    play.step("key a");
    assert_eq!(play.done.drain(..).collect::<Vec<_>>(), [r#"respond g-0 {"decision":"accept"}"#]);
}

#[test]
fn key_held_is_dropped_if_its_request_ends() {
    let mut play = at("asks command=g-0 patch=g-1\nkey ^R\nwait 600");
    play.event(Event::Key(key_of("a")));
    play.step("ended g-0");
    play.event(Event::Key(key_of("Enter")));
    play.event(Event::Quiet);
    let mut play = at("asks command=g-0\nkey ^R\nwait 600");
    play.event(Event::Key(key_of("a")));
    play.news(News::Pending { asks: Vec::new(), ended: Vec::new() });
    play.event(Event::Quiet);
}

#[test]
fn pasted_lines_become_lines_of_the_message() {
    let mut play = at("type ok");
    play.step("burst a Enter b Enter");
    let text = || "oka\nb\n";
    assert_eq!(play.model.session.as_ref().expect("attached").composer.text(), text());
    assert!(noted(&play).contains("nothing was sent"), "{}", noted(&play));
    play.step("wait 600");
    play.step("key Enter");
    assert_eq!(play.done.drain(..).collect::<Vec<_>>(), [r#"say "oka\nb\n""#]);
}

#[test]
fn screen_of_another_program_hides_the_request() {
    for event in [Event::Continued, Event::Paged(Ok(()))] {
        let mut play = at("asks command=g-0\nkey ^R\nwait 600");
        play.event(event);
        play.step("key a");
        assert!(noted(&play).contains("just appeared"), "{}", noted(&play));
        play.done.clear();
    }
}
