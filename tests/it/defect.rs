//! Codex-shim has found a defect in itself: it passes everything on, says so, and decides nothing.

use serde_json::{Value, json};

use crate::support::both_ends::{Live, text};
use crate::support::eventually;
use crate::support::requests::{answer, command_asked, decision};

const NAME: &str = "test.asked-for";

fn faults(live: &Live) -> Option<Value> {
    let document = live.get("/sessions/self");
    let faults = document["faults"].as_array().filter(|faults| !faults.is_empty())?;
    Some(faults[0].clone())
}

/// A client reads the request that was hidden from it, and answers; a caller, who cannot any more, hears why.
#[test]
fn relay_with_a_defect_leaves_all_decisions_to_the_client() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("defect");
    let mut live = Live::with_defect("hold = true\n", &file).in_turn();
    live.push(&json!({ "cmd": "make" }), 1);
    let asked = command_asked("7", "t");
    live.say_unseen(&asked);
    let name = eventually("the request", || live.pending().first().map(|row| text(&row["request_id"])));
    std::fs::write(&file, "").expect("a file");
    // The next line wakes the relay, and is passed on with nothing in front of its words.
    assert!(live.turn(8, "t").is_empty());
    assert_eq!(live.at_client(), format!("{asked}\n"));
    let fault = eventually("the fault", || faults(&live));
    assert!(fault["what"].as_str().is_some_and(|what| what.contains(NAME)), "{fault}");
    let (status, document) = live.respond(&name, &decision("accept"));
    assert_eq!((status, &document["detail"]["error_code"]), (503, &json!("broken")), "{document}");
    assert!(document["detail"]["message"].as_str().is_some_and(|message| message.contains(NAME)), "{document}");
    let (status, document) = live.http("POST /sessions/self/input", br#"{"text":"go on","thread_id":"t"}"#);
    assert_eq!((status, &document["detail"]["error_code"]), (503, &json!("broken")), "{document}");
    let answered = answer("7", &json!({ "decision": "decline" }));
    assert_eq!(live.send(&answered), format!("{answered}\n"));
    assert_eq!(live.waiting(), ["make"]);
    let (home, stderr) = live.end();
    assert!(stderr.contains(NAME) && stderr.matches("defect in itself").count() == 1, "{stderr}");
    let log = std::fs::read_to_string(home.path().join("sessions/s/shim.log")).expect("a log");
    assert!(log.contains(NAME), "{log}");
}
