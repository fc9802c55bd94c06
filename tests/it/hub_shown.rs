//! Three terminals of codex in three folders on one hub, as the terminal UI, the page and the lists show them.

use serde_json::{Value, json};

use crate::hub_threads::{TITLE, Terminal, Three};
use crate::support::bench::{DIALOG, TUI, says_to};
use crate::support::conversations::start_turn;
use crate::support::eventually;
use crate::support::page::Page;
use crate::support::real::{Real, run, says};
use crate::support::release::{Ability, Release};
use crate::support::tmux::Tmux;
use crate::web_browser::{drives, installed_or_skip};

/// The beginning of the words with which codex asks for a title.
const TITLE_PROMPT: &str = "User prompt";

/// Nothing of a thread for a title is on a screen.
#[track_caller]
fn no_title_thread(screen: &str) {
    assert!(!screen.contains(TITLE_PROMPT), "{screen}");
}

/// Sizes at which a screen shows all of these.
#[track_caller]
fn at_sizes(tmux: &Tmux, sizes: &[(u16, u16)], all: &[&str]) {
    for (columns, rows) in sizes {
        tmux.resize(*columns, *rows);
        no_title_thread(&tmux.shows_all(all));
        let screen = eventually("a screen of this size", || {
            Some(tmux.screen()).filter(|screen| screen.lines().count() == usize::from(*rows))
        });
        assert!(screen.lines().all(|line| line.chars().count() <= usize::from(*columns)), "{screen}");
    }
}

#[test]
fn e2e_terminal_ui_shows_threads() {
    let test = "e2e_terminal_ui_shows_threads";
    let Some(three) = Three::start(test) else { return };
    let Some(tmux) = Tmux::tui(test, &three.bench.home, "") else { return };
    // A row for each terminal, the one that was used last first.
    let (wide, narrow) = ((80, 24), (40, 12));
    at_sizes(&tmux, &[narrow, wide], &["alpha", "beta", "gamma", "idle"]);
    let screen =
        tmux.shows_all(&[&format!("alpha ({TUI})"), &format!("beta ({TUI})"), &format!("gamma ({TUI})"), TITLE]);
    assert!(!screen.contains("thinking"), "{screen}");
    // Opening it shows its timeline alone, and messages go to it.
    tmux.keys(&["Down"]);
    tmux.keys(&["Enter"]);
    let screen = tmux.shows_all(&["hello gamma", &format!("gamma ({TUI})"), "Enter sends to gamma"]);
    assert!(!screen.contains("hello alpha") && !screen.contains("hello beta"), "{screen}");
    at_sizes(&tmux, &[narrow, wide], &["gamma", "hello gamma"]);
    says_to(&tmux, "only for gamma");
    let [alpha, beta, gamma] = &three.terminals[..] else { panic!("three terminals") };
    gamma.tui.shows("only for gamma");
    for other in [alpha, beta] {
        assert!(!other.tui.screen().contains("only for gamma"), "{}", other.name);
    }
    // The whole session has the words of three people, and none of a thread for a title, unless they are asked for.
    tmux.keys(&["Escape"]);
    tmux.shows("1 session");
    tmux.keys(&["Home"]);
    tmux.resize(80, 60);
    tmux.keys(&["Enter"]);
    no_title_thread(&tmux.shows_all(&["hello alpha", "hello beta", "hello gamma"]));
    tmux.keys(&["Tab"]);
    tmux.keys(&["a"]);
    let screen = tmux.shows(TITLE_PROMPT);
    let of_title = screen.lines().find(|line| line.contains(TITLE_PROMPT)).unwrap_or_default();
    assert!(!of_title.contains("you"), "{screen}");
    tmux.keys(&["a"]);
    tmux.shows_no(TITLE_PROMPT);
    // A request says which terminal asks.
    three.bench.model.then(vec![run()]);
    says_to(&alpha.tui, "do it");
    alpha.tui.shows(DIALOG);
    tmux.keys(&["C-p"]);
    let place = format!("alpha ({TUI})");
    tmux.shows(&place);
    tmux.keys(&["Enter"]);
    tmux.shows_all(&[&place, " a  accept"]);
    eventually("a title with the terminal that asks", || {
        let title = tmux.run(&["display-message", "-p", "#{pane_title}"]);
        title.contains(&format!("(1 waits) codex-shim · {place}")).then_some(())
    });
}

#[test]
fn e2e_lists_and_transcripts_think_in_threads() {
    let Some(three) = Three::start("e2e_lists_and_transcripts_think_in_threads") else { return };
    let everywhere = three.bench.lab.cwd();
    let children = || three.document(&everywhere, &["children", "--json"])["children"][0].clone();
    let threads = |child: &Value| child["threads"].as_array().cloned().expect("an array");
    let listed = threads(&children());
    assert_eq!(listed.len(), 3, "{listed:#?}");
    for Terminal { name, folder, thread, .. } in &three.terminals {
        let row = listed.iter().find(|row| row["thread_id"] == json!(thread)).expect("it has a row");
        let expect = (json!(format!("{name} ({TUI})")), json!(TITLE), json!(folder), json!("idle"));
        assert_eq!(
            (&row["name"], &row["title"], &row["cwd"], &row["activity_state"]),
            (&expect.0, &expect.1, &expect.2, &expect.3)
        );
        assert!(row["terminal"].as_str().is_some_and(|terminal| terminal.starts_with("pts/")), "{row:#}");
    }
    // A session, and three threads.
    let told = three.says(&everywhere, &["children"]);
    assert_eq!(told.lines().count(), 4, "{told}");
    // A second terminal in one folder is told apart.
    let alpha = &three.terminals[0];
    let Some(twin) = three.bench.tui_in(&alpha.folder, "") else { return };
    three.bench.model.then(vec![run()]);
    says_to(&twin, "do it");
    twin.shows(DIALOG);
    let listed = eventually("a fourth thread that waits", || {
        Some(threads(&children())).filter(|listed| listed.len() == 4 && listed[0]["pending_requests"] == 1)
    });
    let name = |row: &Value| row["name"].as_str().expect("a name").to_owned();
    let of_alpha: Vec<String> = listed.iter().map(name).filter(|name| name.starts_with("alpha")).collect();
    assert!(
        of_alpha.len() == 2 && of_alpha.iter().all(|name| name.starts_with("alpha (codex-tui, pts/")),
        "{of_alpha:?}"
    );
    // The last words are those of a thread for a title, and they are the user's only if all threads are asked for.
    let said = |args: &[&str]| three.says(&alpha.folder, &[&["transcript", "latest"], args].concat());
    no_title_thread(&said(&["--json"]));
    no_title_thread(&said(&["--format", "md"]));
    assert!(said(&["--json", "--all-threads"]).contains(TITLE_PROMPT));
    let exported = said(&["--format", "md"]);
    assert!(exported.contains("alpha") && !exported.contains("codex-home"), "{exported}");
    let exported = said(&["--format", "md", "--all-threads"]);
    assert!(exported.contains("a thread for a title"), "{exported}");
}

#[test]
fn e2e_page_shows_threads() {
    let test = "e2e_page_shows_threads";
    let Some((browser, modules)) = installed_or_skip(test) else { return };
    let Some(three) = Three::start(test) else { return };
    let mut page = Page::start(&three.bench.home, &[]);
    drives("threads.mjs", browser, &modules, |asked| {
        let terminal =
            |name: &Value| three.terminals.iter().find(|terminal| name == terminal.name).expect("it is there");
        match asked["does"].as_str().expect("a name") {
            "link" => json!(format!("{}/#{}", page.origin(), page.token)),
            "heard" => {
                let words = asked["words"].as_str().expect("a text");
                terminal(&asked["by"]).tui.shows(words);
                let others = three.terminals.iter().filter(|other| asked["by"] != other.name);
                json!(others.filter(|other| other.tui.screen().contains(words)).count())
            }
            "asks" => {
                let terminal = terminal(&asked["in"]);
                three.bench.model.then(vec![run()]);
                says_to(&terminal.tui, "do it");
                terminal.tui.shows(DIALOG);
                Value::Null
            }
            other => panic!("{other}: the test does not know this"),
        }
    });
    let _ = page.child.kill();
    let _ = page.child.wait();
}

#[test]
fn e2e_subagent_is_one_line() {
    let test = "e2e_subagent_is_one_line";
    if Release::under_test().lacks(test, Ability::SubAgents) {
        return;
    }
    let script = vec![vec![Release::under_test().sub_agent()], says(), says(), says()];
    let Some(mut real) = Real::start_as(test, "some-model", script) else { return };
    start_turn(&mut real.peer, &real.thread, "go on");
    let thread = real.thread.clone();
    real.peer.wait_for("a turn of another thread", |message| {
        message["method"] == "turn/completed" && message["params"]["threadId"] != thread.as_str()
    });
    eventually("all turns' ends", || (real.get("/sessions/self")["state"] == "idle").then_some(()));
    let document = real.get("/sessions/self");
    let kinds: Vec<&Value> =
        document["threads"].as_array().expect("an array").iter().map(|thread| &thread["kind"]).collect();
    assert_eq!(kinds, ["user", "subagent"], "{document:#}");
    // What the model has told it is not the user's word.
    let Some(tmux) = Tmux::tui(test, &real.home, "s") else { return };
    let screen = tmux.shows_all(&["go on", "of a subagent"]);
    assert!(!screen.contains("help me"), "{screen}");
    tmux.keys(&["Tab"]);
    tmux.keys(&["a"]);
    let screen = tmux.shows("help me");
    assert!(screen.contains("agent") && !screen.lines().any(|line| line.contains("you") && line.contains("help me")));
    tmux.keys(&["a"]);
    tmux.shows_no("help me");
    tmux.leaves();
    real.end();
}
