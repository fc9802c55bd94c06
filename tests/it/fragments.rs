//! Fragments, with the test as both sides: sent once, again after a change, and remembered.

use std::fs;

use serde_json::{Value, json};

use crate::context_engine::{events, own_call};
use crate::support::both_ends::{Live, text, told, turn};
use crate::support::shim::Home;
use crate::support::{eventually, stop};

/// One fragment per role: the user's from a file and the developer's from a command.
fn config(home: &Home) -> String {
    let dir = home.beside().display();
    format!(
        r#"
[[fragments]]
name = "notes"
role = "contextual_user"
file = "{dir}/notes"
[[fragments]]
name = "repo_state"
role = "developer"
command = ["cat", "{dir}/state"]
[[fragments]]
name = "rules"
role = "developer"
text = "No tabs."
threads = "new"
"#
    )
}

fn say(home: &Home, notes: &str, state: &str) {
    fs::write(home.beside().join("notes"), notes).expect("a file");
    fs::write(home.beside().join("state"), state).expect("a file");
}

fn live(home: Home, config: &str) -> Live {
    fs::create_dir_all(home.path()).expect("a folder");
    fs::write(home.path().join("config.toml"), config).expect("a file");
    Live::start_in(home)
}

fn start_thread(live: &mut Live, id: u32, thread: &str) {
    live.send(&format!(r#"{{"id":{id},"method":"thread/start","params":{{}}}}"#));
    live.say_plainly(&format!(r#"{{"id":{id},"result":{{"thread":{{"id":"{thread}"}}}}}}"#));
}

/// Runs a turn; returns the messages before it, each as a role and its texts.
fn takes(live: &mut Live, id: u32, thread: &str) -> Vec<(String, Vec<String>)> {
    let sent = turn(id, thread, "hi");
    live.write(&format!("{sent}\n"));
    let first = live.at_server();
    if first == format!("{sent}\n") {
        live.take_turn(id);
        return Vec::new();
    }
    let (own_id, params) = own_call(&first);
    assert_eq!(params["threadId"], thread);
    assert_eq!(live.at_server(), format!("{sent}\n"));
    live.say_unseen(&format!(r#"{{"id":"{own_id}","result":{{}}}}"#));
    live.take_turn(id);
    let items = params["items"].as_array().expect("an array");
    let texts = |item: &Value| -> Vec<String> {
        item["content"].as_array().expect("an array").iter().map(|content| text(&content["text"])).collect()
    };
    items.iter().map(|item| (text(&item["role"]), texts(item))).collect()
}

fn of(role: &str, texts: &[&str]) -> (String, Vec<String>) {
    (role.to_owned(), texts.iter().map(|text| (*text).to_owned()).collect())
}

#[test]
fn each_thread_is_told_once_and_again_after_a_change_also_over_a_restart() {
    let home = Home::new();
    say(&home, "one\n", "clean\n");
    let config = config(&home);
    let mut first_run = live(home, &config);
    start_thread(&mut first_run, 1, "t");
    let (notes, state) = ("<notes>\none\n</notes>", "<repo_state>\nclean\n</repo_state>");
    let rules = "<rules>\nNo tabs.\n</rules>";
    let both = [of("developer", &[state, rules]), of("user", &[notes])];
    assert_eq!(takes(&mut first_run, 2, "t"), both);
    assert_eq!(takes(&mut first_run, 3, "t"), []);
    // A thread from before this run receives no fragments for new threads.
    assert_eq!(takes(&mut first_run, 4, "old"), [of("developer", &[state]), of("user", &[notes])]);
    say(&first_run.home, "one\n", "dirty\n");
    let dirty = "<repo_state>\ndirty\n</repo_state>";
    assert_eq!(takes(&mut first_run, 5, "t"), [of("developer", &[dirty])]);
    let shown = told(&first_run.tool(&["fragments", "--session", "s", "--json"]));
    let home = first_run.end_quietly();
    assert_eq!(told(&crate::support::both_ends::tool(&home, &["fragments", "--session", "s", "--json"])), shown);
    let threads: Vec<&str> = shown["threads"]
        .as_array()
        .expect("an array")
        .iter()
        .filter_map(|thread| thread["thread_id"].as_str())
        .collect();
    assert_eq!(threads, ["old", "t"]);
    let told_of_t: Vec<(&str, &str)> = shown["threads"][1]["fragments"]
        .as_array()
        .expect("an array")
        .iter()
        .map(|told| (told["name"].as_str().expect("a name"), told["text"].as_str().expect("a text")))
        .collect();
    assert_eq!(told_of_t, [("notes", notes), ("rules", rules), ("repo_state", dirty)]);
    // After a kill and after a clean end, sent fragments are known; a resumed thread is the same thread.
    let mut second_run = live(home, &config);
    second_run.send(r#"{"id":1,"method":"thread/resume","params":{"threadId":"t"}}"#);
    second_run.say_plainly(r#"{"id":1,"result":{"thread":{"id":"t"}}}"#);
    assert_eq!(takes(&mut second_run, 2, "t"), []);
    say(&second_run.home, "two\n", "dirty\n");
    assert_eq!(takes(&mut second_run, 3, "t"), [of("user", &["<notes>\ntwo\n</notes>"])]);
    let home = second_run.end_quietly();
    let human = crate::support::both_ends::tool(&home, &["fragments", "--session", "s"]);
    let human = String::from_utf8(human.stdout).expect("it is text");
    assert!(human.contains("notes") && human.contains("    two\n"), "{human}");
}

#[test]
fn what_fails_or_takes_too_long_says_what_it_said_last() {
    let home = Home::new();
    let state = home.beside().join("state.sh");
    let script = |does: &str| fs::write(&state, does).expect("a file");
    script("echo fine");
    let config =
        format!("[[fragments]]\nname = \"state\"\nrole = \"developer\"\ncommand = [\"sh\", \"{}\"]\n", state.display());
    let mut live = live(home, &config);
    let fine = [of("developer", &["<state>\nfine\n</state>"])];
    assert_eq!(takes(&mut live, 1, "t"), fine);
    script("exit 3");
    assert_eq!(takes(&mut live, 2, "t"), []);
    assert_eq!(takes(&mut live, 3, "u"), fine);
    script("sleep 600");
    assert_eq!(takes(&mut live, 4, "t"), []);
    let failed = || events(&live.home, &["fragment_failed"]);
    let failed = eventually("the events", || Some(failed()).filter(|failed| failed.len() == 3));
    let reasons = failed.iter().map(|failed| text(&failed["fragment_failed"]["reason"])).collect::<Vec<_>>();
    assert_eq!(reasons[..2], ["it ended with exit status: 3"; 2]);
    // On a busy machine the kill may come later than this is said.
    assert!(reasons[2].starts_with("it took over 1s"), "{reasons:?}");
    assert!(failed.iter().all(|failed| failed["fragment_failed"]["name"] == "state"), "{failed:?}");
    live.end_quietly();
}

/// The text of the first fragment before the turn of this line, if its thread has not received it yet.
fn told_ahead(live: &mut Live, line: &str) -> String {
    live.write(&format!("{line}\n"));
    let (own_id, params) = own_call(&live.at_server());
    assert_eq!(live.at_server(), format!("{line}\n"));
    live.say_unseen(&format!(r#"{{"id":"{own_id}","result":{{}}}}"#));
    text(&params["items"][0]["content"][0]["text"])
}

#[test]
fn each_thread_is_told_what_is_so_in_its_folder() {
    let home = Home::new();
    let folder = |name: &str| {
        let folder = home.beside().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("state"), name).expect("a file");
        folder.display().to_string()
    };
    let [a, b, c] = ["a", "b", "c"].map(folder);
    let mut live = live(home, "[[fragments]]\nname = \"s\"\nrole = \"developer\"\ncommand = [\"cat\", \"state\"]\n");
    let says = |name: &str| format!("<s>\n{name}\n</s>");
    // The thread's folder is in the answer that started the thread, in each release's own form.
    live.send(r#"{"id":1,"method":"thread/start","params":{}}"#);
    live.say_plainly(&format!(r#"{{"id":1,"result":{{"thread":{{"id":"t"}},"cwd":"{a}"}}}}"#));
    live.send(r#"{"id":2,"method":"thread/resume","params":{"threadId":"u"}}"#);
    live.say_plainly(&format!(r#"{{"id":2,"result":{{"thread":{{"id":"u","cwd":"{b}"}}}}}}"#));
    assert_eq!(told_ahead(&mut live, &turn(3, "t", "hi")), says("a"));
    live.take_turn(3);
    assert_eq!(told_ahead(&mut live, &turn(4, "u", "hi")), says("b"));
    live.take_turn(4);
    // A turn may change the folder, also for the turns after it.
    let moved = turn(5, "t", "hi").replacen(r#""threadId":"t""#, &format!(r#""threadId":"t","cwd":"{c}""#), 1);
    assert_eq!(told_ahead(&mut live, &moved), says("c"));
    live.take_turn(5);
    assert_eq!(takes(&mut live, 6, "t"), []);
    assert_eq!(takes(&mut live, 7, "u"), []);
    live.end_quietly();
}

#[cfg(target_os = "linux")]
#[test]
fn what_is_run_for_one_does_not_outlive_a_relay_that_is_killed() {
    use rustix::process::Pid;

    // Whether a process runs and is not a zombie.
    let runs = |pid: u32| fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    // The command has a second, and the relay is stopped meanwhile: a slow machine needs several attempts.
    for _ in 0..20 {
        let home = Home::new();
        let pid_file = home.beside().join("pid");
        let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600", pid_file.display());
        let config =
            format!("[[fragments]]\nname = \"s\"\nrole = \"developer\"\ncommand = [\"sh\", \"-c\", \"{script}\"]\n");
        let mut live = live(home, &config);
        live.write(&format!("{}\n", turn(1, "t", "hi")));
        let pid: u32 = eventually("it is run", || fs::read_to_string(&pid_file).ok()?.trim().parse().ok());
        stop(Pid::from_child(&live.relay));
        let ran = runs(pid);
        live.kill();
        if ran {
            return eventually("its end", || (!runs(pid)).then_some(()));
        }
    }
    panic!("it was never seen to run");
}

#[test]
fn a_server_that_refuses_them_gets_the_developers_with_the_next_thread() {
    let home = Home::new();
    say(&home, "one\n", "clean\n");
    let config = config(&home);
    let mut live = live(home, &config);
    // The answer names its folder, even if the client has named none.
    live.send(r#"{"id":9,"method":"thread/start","params":{}}"#);
    live.say_plainly(r#"{"id":9,"result":{"thread":{"id":"t"},"cwd":"/"}}"#);
    let sent = turn(1, "t", "hi");
    live.write(&format!("{sent}\n"));
    let (id, _) = own_call(&live.at_server());
    live.at_server();
    live.say_unseen(&format!(
        r#"{{"id":"{id}","error":{{"code":-32600,"message":"Invalid request: unknown variant `thread/inject_items`"}}}}"#
    ));
    live.take_turn(1);
    assert_eq!(takes(&mut live, 2, "t"), []);
    let got = live.send(r#"{"id":3,"method":"thread/start","params":{"developerInstructions":"Be kind."}}"#);
    let got: Value = serde_json::from_str(&got).expect("it is JSON");
    let instructions = "Be kind.\n\n<repo_state>\nclean\n</repo_state>\n\n<rules>\nNo tabs.\n</rules>";
    assert_eq!(got["params"]["developerInstructions"], instructions);
    live.say_plainly(r#"{"id":3,"result":{"thread":{"id":"n"}}}"#);
    let shown = told(&live.tool(&["fragments", "--session", "s", "--json"]));
    let told = &shown["threads"][0];
    assert_eq!((&told["thread_id"], &told["fragments"][0]["carrier"]), (&json!("n"), &json!("developer_instructions")));
    let (_, stderr) = live.end();
    assert_eq!((stderr.matches("developer fragments").count(), stderr.lines().count()), (1, 1), "{stderr}");
}

#[test]
fn one_that_is_refused_for_another_reason_is_told_with_the_next_turn() {
    let home = Home::new();
    let mut live = live(home, "[[fragments]]\nname = \"rules\"\nrole = \"contextual_user\"\ntext = \"No tabs.\"\n");
    let sent = turn(1, "t", "hi");
    live.write(&format!("{sent}\n"));
    let (id, _) = own_call(&live.at_server());
    live.at_server();
    live.say_unseen(&format!(r#"{{"id":"{id}","error":{{"code":-32000,"message":"thread not found"}}}}"#));
    live.refuse_turn(1, -32_000);
    assert_eq!(takes(&mut live, 2, "t"), [of("user", &["<rules>\nNo tabs.\n</rules>"])]);
    assert_eq!(takes(&mut live, 3, "t"), []);
    live.end_quietly();
}

#[test]
fn changed_fragments_are_shown_to_running_threads() {
    let mut live = live(Home::new(), "");
    start_thread(&mut live, 1, "t");
    assert_eq!(takes(&mut live, 2, "t"), []);
    let fragment = |text: &str| format!("[[fragments]]\nname = \"rules\"\nrole = \"developer\"\ntext = \"{text}\"\n");
    let mut id = 3;
    for text in ["No tabs.", "Tabs."] {
        fs::write(live.home.path().join("config.toml"), fragment(text)).expect("a file");
        let shown = eventually("the fragment", || {
            id += 1;
            Some(takes(&mut live, id, "t")).filter(|shown| !shown.is_empty())
        });
        assert_eq!(shown, [of("developer", &[&format!("<rules>\n{text}\n</rules>")])]);
        id += 1;
        assert_eq!(takes(&mut live, id, "t"), []);
    }
}
