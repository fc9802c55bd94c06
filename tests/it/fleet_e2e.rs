//! Two hosts of a fleet with the real codex: seen and answered from the command line, the page and the terminal UI.

use std::fs;

use serde_json::{Value, json};

use crate::support::conversations::start_turn;
use crate::support::eventually;
use crate::support::fleet::{Agent, Fleet};
use crate::support::model::Item;
use crate::support::page::Page;
use crate::support::real::{COMMAND, Real, run};
use crate::support::tmux::Tmux;

/// A real codex behind a relay on a host.
fn host(fleet: &Fleet, test: &str, number: u8, level: &str, says: &'static str) -> Option<Real> {
    let config = fs::read_to_string(fleet.host(number, level).path().join("config.toml")).expect("it is there");
    let says = || vec![Item::Text(vec![says])];
    Real::start(test, &config, vec![run(), says(), run(), says(), says()])
}

/// The names of the requests that wait in the fleet, once there are so many.
fn waiting(fleet: &Fleet, count: usize) -> Vec<String> {
    eventually("the requests", || {
        let document = fleet.ann.document(&["requests", "--json"]);
        let rows = document["requests"].as_array()?;
        let name = |row: &Value| Some(format!("{}/s/{}", row["host"].as_str()?, row["request_id"].as_str()?));
        let names: Option<Vec<String>> = rows.iter().map(name).collect();
        names.filter(|names| names.len() == count)
    })
}

#[test]
fn e2e_fleet_answers_real_codex_on_two_hosts() {
    let test = "e2e_fleet_answers_real_codex_on_two_hosts";
    let Some(fleet) = Fleet::start(test) else { return };
    let Some(mut seven) = host(&fleet, test, 7, "full", "It ran on seven.") else { return };
    let Some(mut eight) = host(&fleet, test, 8, "summary", "It ran on eight.") else { return };
    let _agents = [Agent::start(&seven.home), Agent::start(&eight.home)];

    // One request each, answered from the command line.
    let (_, first) = seven.asked_by_turn(COMMAND);
    let (_, second) = eight.asked_by_turn(COMMAND);
    let names = waiting(&fleet, 2);
    for (real, row, host) in [(&mut seven, &first, "build-7"), (&mut eight, &second, "build-8")] {
        let name = names.iter().find(|name| name.starts_with(host)).expect("its request");
        let done = fleet.ann.document(&["respond", name, "accept", "--json"]);
        assert_eq!(done["request"]["status"], "resolved", "{done}");
        real.completed("completed");
        assert_eq!(real.ran(), 1, "{host}");
        let row = real.confirmed(row);
        assert_eq!(row["resolved_by"], format!("fleet:ann@{host}"), "{row:#}");
    }

    // The next ones from the page and the terminal UI.
    let page = Page::start(&fleet.ann.0, &["--fleet"]);
    let browser = page.browser();
    start_turn(&mut eight.peer, &eight.thread, "once more");
    let (_, third) = eight.asked(COMMAND);
    let id = third["request_id"].as_str().expect("an id");
    eventually("the request on the page", || browser.get("/inbox").to_string().contains(id).then_some(()));
    let (status, told) = browser.respond("build-8%2Fs", id, &json!({ "body": { "decision": "decline" } }));
    assert_eq!((status, &told["won"]), (200, &json!(true)), "{told}");
    eight.completed("completed");
    assert_eq!(eight.ran(), 1, "it was declined");

    start_turn(&mut seven.peer, &seven.thread, "once more");
    seven.asked(COMMAND);
    let name = waiting(&fleet, 1).remove(0);
    match Tmux::tui(test, &fleet.ann.0, "--fleet") {
        Some(tmux) => {
            tmux.shows("1 request waits");
            tmux.keys(&["C-n"]);
            tmux.shows_a_while(" a  accept");
            tmux.keys(&["a"]);
            seven.completed("completed");
            tmux.shows("It ran on seven.");
        }
        None => {
            fleet.ann.document(&["respond", &name, "accept", "--json"]);
            seven.completed("completed");
        }
    }
    assert_eq!(seven.ran(), 2);

    // A message from another machine, with the end of its turn.
    let sent = fleet.ann.ask(&["send", "build-7/s", "well done", "--wait"]);
    let (told, said) = (String::from_utf8_lossy(&sent.stderr), String::from_utf8_lossy(&sent.stdout));
    assert!(sent.status.success() && said.contains("It ran on seven."), "{said} {told}");
    let asked = seven.model.requests();
    assert!(asked.last().is_some_and(|last| last.to_string().contains("well done")), "{asked:#?}");

    // The events of build-7 have its texts, and those of build-8 have none.
    let stored = eventually("all events", || {
        let stored = fleet.ann.messages()?;
        let of = |host: &str| stored.iter().filter(|message| message["host"] == host).map(Value::to_string).collect();
        let texts: [String; 2] = ["build-7", "build-8"].map(of);
        texts[0].contains("It ran on seven.").then_some(texts)
    });
    assert!(!stored[1].is_empty() && !stored[1].contains("It ran on eight."), "{}", stored[1]);
    seven.end();
    eight.end();
}
