//! Tools of a fleet whose output is lost.

use std::process::{Child, Stdio};

use crate::lost_output::{BOTH, Lost, takes};
use crate::request_tools::{end_turn, finish};
use crate::support::both_ends::Live;
use crate::support::eventually;
use crate::support::fleet::{Agent, Console, Fleet};
use crate::support::requests::{answer, command_asked, decision, resolved};

/// Runs a tool of the fleet in the console.
fn begins(ann: &Console, words: &[&str], lost: Lost) -> Child {
    let mut tool = ann.0.shim(&[&["fleet"], words].concat());
    tool.stdin(Stdio::null()).stdout(lost.stdout()).spawn().expect("the tool runs")
}

/// What is wrong with a tool of the fleet that prints at once. A host on a busy machine may not reply in time, and is asked anew.
fn fault_in_fleet(ann: &Console, words: &[&str], lost: Lost) -> Option<String> {
    let output = eventually("a reply", || {
        let output = finish(begins(ann, words, lost));
        (!String::from_utf8_lossy(&output.stderr).contains("no reply in")).then_some(output)
    });
    lost.fault(words, &output)
}

#[test]
fn tools_of_the_fleet_say_that_their_output_is_lost() {
    let Some(fleet) = Fleet::start("tools_of_the_fleet_say_that_their_output_is_lost") else { return };
    let mut live = Live::start_in(fleet.host(7, "full")).in_turn();
    end_turn(&mut live);
    let agent = Agent::start(&live.home);
    eventually("the session", || {
        let rows = fleet.ann.document(&["sessions", "--json"]);
        (rows["sessions"][0]["session_id"] == "s").then_some(())
    });
    let id = live.asked(&command_asked("9", "t"), "9");
    let request = format!("build-7/s/{id}");
    eventually("events", || fleet.ann.messages().filter(|messages| !messages.is_empty()));
    let mut wrong = Vec::new();
    for words in [
        &["hosts"][..],
        &["hosts", "--json"],
        &["sessions"],
        &["sessions", "--json"],
        &["requests"],
        &["requests", "--json"],
        &["show", &request],
        &["show", &request, "--json"],
        &["tail", "--since", "1d"],
        &["tail", "--since", "1d", "--json"],
        &["usage"],
        &["usage", "--json"],
        &["check"],
        &["check", "--json"],
        // The first one decides, and the others repeat it.
        &["respond", &request, "accept"],
        &["respond", &request, "accept", "--json"],
    ] {
        wrong.extend(BOTH.into_iter().filter_map(|lost| fault_in_fleet(&fleet.ann, words, lost)));
    }
    assert_eq!(live.at_server(), format!("{}\n", answer("9", &decision("accept"))));
    live.say_plainly(&resolved("9"));
    wrong.extend(fleet_sends(&fleet, &mut live));
    assert_eq!(wrong, [""; 0]);
    agent.ends();
    live.kill();
}

/// What is wrong with `fleet send`.
fn fleet_sends(fleet: &Fleet, live: &mut Live) -> Vec<String> {
    let mut wrong = Vec::new();
    let formats = [&[][..], &["--json"], &["--wait"], &["--wait", "--json"]];
    for (number, (lost, format)) in BOTH.into_iter().flat_map(|lost| formats.map(|format| (lost, format))).enumerate() {
        let words = [&["send", "build-7/s", "go", "--thread", "t"], format].concat();
        let tool = begins(&fleet.ann, &words, lost);
        takes(live, &format!("v{number}"));
        wrong.extend(lost.fault(&words, &finish(tool)));
    }
    wrong
}
