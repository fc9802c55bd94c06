//! Rules with the real codex: an accepted command runs, a declined one tells the model why, and all others are asked.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::rules::{in_time, was_late};
use crate::support::codex::{Lab, installed_or_skip};
use crate::support::conversations::{start_thread, start_turn};
use crate::support::eventually;
use crate::support::model::Model;
use crate::support::peer::Peer;
use crate::support::real::{COMMAND, Real, codex_with_home, says};
use crate::support::release::{Ability, Release};
use crate::support::requests::PENDING;
use crate::support::shim::{Home, out_of_reach};

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

fn write_config(home: &Home, config: &str) {
    fs::create_dir_all(home.path()).expect("a folder");
    fs::write(home.path().join("config.toml"), config).expect("a file");
}

/// The rule that a model would like: it accepts the command that writes to a file outside of the sandbox.
fn rule_of_model(argv: &[String], cwd: &Path) -> String {
    format!(
        "[[rules]]\nname = \"mine\"\nmatch = {{ kind = \"command\", argv = {argv:?}, cwd = {cwd:?} }}\naction = \"accept\"\n\
         trust_terminal = true\n"
    )
}

/// The model writes an accept rule for itself, in codex's own sandbox: through a link of `config.toml` into its workspace, and
/// in a home that lies there. Then it asks for the command. The client is asked, and the command does not run.
#[test]
fn e2e_model_that_writes_a_rule_is_not_obeyed() {
    const TEST: &str = "e2e_model_that_writes_a_rule_is_not_obeyed";
    if installed_or_skip(TEST).is_none() {
        return;
    }
    let release = Release::under_test();
    for how in ["link", "home"] {
        let outside = out_of_reach();
        let escaped = outside.path().canonicalize().expect("it is there").join("escaped");
        let argv = ["/usr/bin/touch".to_owned(), escaped.display().to_string()];
        let model = Model::start(vec![]);
        let lab = Lab::away(&model, out_of_reach());
        let cwd = lab.cwd().canonicalize().expect("it is there");
        let home = if how == "link" { Home::away() } else { Home::within(&cwd) };
        write_config(&home, "");
        let config = home.path().join("config.toml");
        if how == "link" {
            fs::create_dir(cwd.join("dots")).expect("a folder");
            fs::copy(&config, cwd.join("dots/config.toml")).expect("a file");
            fs::remove_file(&config).expect("it is there");
            std::os::unix::fs::symlink(cwd.join("dots/config.toml"), &config).expect("a link");
        }
        let target = config.canonicalize().expect("it is there");
        let write = format!("cat > {} <<'END'\n{}END\n", target.display(), rule_of_model(&argv, &cwd));
        let escape: &'static str = argv.join(" ").leak();
        model.then(vec![vec![release.command(&write)], says(), vec![release.command_to_be_approved(escape)], says()]);
        let Some(mut real) = Real::in_home(TEST, home, lab, model, "workspace-write") else { return };
        let settings = |real: &Real| real.get("/sessions/self")["config"].clone();
        let before = settings(&real);
        start_turn(&mut real.peer, &real.thread, "go on");
        real.completed("completed");
        assert!(fs::read_to_string(&target).expect("it is there").contains("mine"), "{how}: the sandbox let it write");
        // The relay has seen the new file.
        let is_new = |config: &Value| config["error"].is_string() || config["loaded_at"] != before["loaded_at"];
        let seen = eventually("the settings", || Some(settings(&real)).filter(is_new));

        start_turn(&mut real.peer, &real.thread, "go on");
        let (asked, row) = real.asked(COMMAND);
        assert_eq!(row["rule"], json!(null), "{how}");
        real.peer.answer(&asked, json!({"decision": "decline"}));
        real.completed("completed");
        assert!(!escaped.exists(), "{how}: the command ran outside of the sandbox");
        assert!(seen["error"].to_string().contains("where the model may write"), "{how}: {seen}");
        let document = real.get("/sessions/self");
        assert!(document["faults"].to_string().contains("config.toml can be changed by a model"), "{how}: {document}");
        let events = real.get("/sessions/self/codex-events?limit=500")["events"].to_string();
        assert!(events.contains("in_reach"), "{how}: {events}");
        real.end();
    }
}

#[test]
fn e2e_rules_decide_and_everything_else_is_asked() {
    const TEST: &str = "e2e_rules_decide_and_everything_else_is_asked";
    if installed_or_skip(TEST).is_some() {
        in_time(|| rules_decide(TEST));
    }
}

/// Waits for the end of a turn; `None` if the client is asked, because a rule was late.
fn completes_unasked(real: &mut Real) -> Option<()> {
    let message = real.peer.wait_for("the end of the turn, or a request", |message| {
        message["method"] == "turn/completed" || message["method"] == COMMAND
    });
    if message["method"] == COMMAND {
        was_late(|path| real.get(path));
        return None;
    }
    assert_eq!(message["params"]["turn"]["status"], "completed", "{message}");
    Some(())
}

fn rules_decide(test: &str) -> Option<()> {
    let release = Release::under_test();
    let command = |script: &'static str| vec![release.command_to_be_approved(script)];
    let mut script =
        vec![command("touch ran.txt"), says(), command(release.git_command()), says(), command("rm -rf build"), says()];
    // Some releases call the model once more for the reason.
    script.push(says());
    let model = Model::start(script);
    let lab = Lab::away(&model, out_of_reach());
    let config = rules(&lab);
    fs::create_dir(lab.cwd().join("build")).expect("a folder");
    let home = Home::away();
    write_config(&home, &config);
    let mut real = Real::in_home(test, home, lab, model, "read-only")?;
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
        completes_unasked(&mut real)?;
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
    completes_unasked(&mut real)?;
    let declined = row(&real, 2);
    assert_eq!(declined["resolved_by"], "rule:no rm", "{declined:#}");
    assert!(real.lab.cwd().join("build").exists());
    let told = real.model.requests();
    let has_heard = told.iter().any(|request| request.to_string().contains("not on a friday"));
    assert_eq!(has_heard, !release.lacks(test, Ability::Steering), "{told:#?}");
    real.end();
    Some(())
}

/// The command of a rule, in a hub that passes `variable` of its clients: the request, once it is decided; `None` if a client is asked.
fn decided_in_hub(test: &str, variable: &str) -> Option<Option<Value>> {
    let release = Release::under_test();
    let codex = installed_or_skip(test)?;
    let model = Model::start(vec![vec![release.command_to_be_approved(release.git_command())], says()]);
    let lab = Lab::away(&model, out_of_reach());
    let home = Home::away();
    fs::create_dir_all(home.path().join("codex-home")).expect("a folder");
    write_config(&home, &format!("{}[hub]\nenvironment = [\"{variable}\"]\n", rules(&lab)));
    let shim = |args: &[&str]| {
        let mut command = lab.command(home.program());
        let codex = codex_with_home(&codex, &lab, &mut command);
        home.adopt(&mut command).env("CODEX_SHIM_CODEX", codex).env("CODEX_SHIM_SERVER", "shared");
        // What codex has its shells read is out of reach, too.
        command.env("CODEX_HOME", home.path().join("codex-home")).env("SHELL", "/bin/bash").env("MARK", "x").args(args);
        command
    };
    assert!(shim(&["hub", "start"]).output().expect("it runs").status.success());
    let mut editor = Peer::start(&mut shim(&["app-server"]));
    editor.initialize();
    let thread = start_thread(&mut editor, &lab, "read-only");
    start_turn(&mut editor, &thread, "go on");
    let message = editor.wait_for("the end of the turn, or a request", |message| {
        message["method"] == "turn/completed" || message["method"] == COMMAND
    });
    let row = (message["method"] != COMMAND).then(|| {
        let listed = shim(&["requests", "--all", "--json"]).output().expect("it runs");
        let document: Value = serde_json::from_slice(&listed.stdout).expect("it is JSON");
        document["requests"][0].clone()
    });
    if row.is_none() {
        editor.answer(&message, json!({"decision": "decline"}));
        editor.wait_for_method("turn/completed");
    }
    let events = shim(&["events", "--json", "-n", "500"]).output().expect("it runs");
    let events = String::from_utf8_lossy(&events.stdout).into_owned();
    assert!(shim(&["hub", "stop"]).output().expect("it runs").status.success());
    if row.is_none() && variable != "PATH" {
        assert!(events.contains("took over 250 ms"), "the client was asked, and the rule was not late: {events}");
        return None;
    }
    let why = "variables of a client that decide which programs they run";
    assert_eq!(events.contains(why), variable == "PATH", "{events}");
    Some(row)
}

/// A client that gives its thread a PATH decides which program runs, so a rule accepts nothing there.
#[test]
fn e2e_rule_is_barred_where_a_client_gives_its_path() {
    const TEST: &str = "e2e_rule_is_barred_where_a_client_gives_its_path";
    let release = Release::under_test();
    if release.lacks(TEST, Ability::SharedServer) || release.lacks(TEST, Ability::AskingAboutInput) {
        return;
    }
    if installed_or_skip(TEST).is_none() {
        return;
    }
    let decided = |variable: &str| eventually("rules that are in time", || decided_in_hub(TEST, variable));
    let row = decided("MARK").expect("no client is asked");
    assert_eq!(row["resolved_by"], "rule:git here", "{row:#}");
    assert_eq!(decided("PATH"), None);
}
