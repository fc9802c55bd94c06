//! Rules with the real codex: an accepted command runs, a declined one tells the model why, and all others are asked.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use crate::support::codex::{Lab, installed_or_skip};
use crate::support::conversations::start_turn;
use crate::support::eventually;
use crate::support::model::Model;
use crate::support::real::{COMMAND, Real, says};
use crate::support::release::{Ability, Release};
use crate::support::requests::PENDING;

fn rules(lab: &Lab) -> String {
    let argv: Vec<&str> = lab.release.git_command().split(' ').collect();
    let cwd = lab.cwd().canonicalize().expect("it is there");
    format!(
        "[[rules]]\nname = \"git here\"\nmatch = {{ kind = \"command\", argv = {argv:?}, cwd = {cwd:?} }}\n\
         action = \"accept\"\ntrust_path = true\ntrust_repository = true\n\
         [[rules]]\nname = \"no rm\"\nmatch = {{ kind = \"command\", argv_prefix = [\"rm\", \"-rf\"] }}\naction = \"decline\"\n\
         reason = \"not on a friday\"\n"
    )
}

#[test]
fn e2e_rules_decide_and_everything_else_is_asked() {
    const TEST: &str = "e2e_rules_decide_and_everything_else_is_asked";
    if installed_or_skip(TEST).is_none() {
        return;
    }
    let release = Release::under_test();
    let command = |script: &'static str| vec![release.command_to_be_approved(script)];
    let mut script =
        vec![command("touch ran.txt"), says(), command(release.git_command()), says(), command("rm -rf build"), says()];
    // Some releases call the model once more for the reason.
    script.push(says());
    let model = Model::start(script);
    let mut lab = Lab::new(&model);
    // The lab, with its codex home, is among the temporary files, where the model may write.
    lab.home = PathBuf::from("/");
    let config = rules(&lab);
    fs::create_dir(lab.cwd().join("build")).expect("a folder");
    let Some(mut real) = Real::in_lab(TEST, &config, lab, model) else { return };
    let row = |real: &Real, index: usize| {
        eventually("the row", || {
            let rows = real.get(&format!("{PENDING}?all=true"))["requests"].as_array().expect("an array").clone();
            rows.get(index).filter(|row| row["status"] == "resolved").cloned()
        })
    };

    let (asked, undecided) = real.asked_by_turn(COMMAND);
    assert_eq!(undecided["rule"], json!(null));
    real.peer.answer(&asked, json!({"decision": "decline"}));
    real.completed("completed");

    start_turn(&mut real.peer, &real.thread, "go on");
    if release.has(Ability::AskingAboutInput) {
        real.completed("completed");
    } else {
        let (asked, undecided) = real.asked(COMMAND);
        assert_eq!(undecided["rule"], json!(null));
        let events = real.get("/sessions/self/codex-events?limit=500")["events"].to_string();
        assert!(events.contains("may let the model type into the program"), "{events}");
        real.peer.answer(&asked, json!({"decision": "accept"}));
        real.completed("completed");
    }
    let accepted = row(&real, 1);
    assert_eq!(accepted["resolved_payload"], json!({"decision": "accept"}), "{accepted:#}");
    if release.has(Ability::AskingAboutInput) {
        let by = (&accepted["resolution_source"], &accepted["resolved_by"]);
        assert_eq!(by, (&json!("policy"), &json!("rule:git here")), "{accepted:#}");
        assert!(accepted["program"].as_str().is_some_and(|program| program.ends_with("/git")), "{accepted:#}");
    }

    start_turn(&mut real.peer, &real.thread, "go on");
    real.completed("completed");
    let declined = row(&real, 2);
    assert_eq!(declined["resolved_by"], "rule:no rm", "{declined:#}");
    assert!(real.lab.cwd().join("build").exists());
    let told = real.model.requests();
    let has_heard = told.iter().any(|request| request.to_string().contains("not on a friday"));
    assert_eq!(has_heard, !release.lacks(TEST, Ability::Steering), "{told:#?}");
    real.end();
}
