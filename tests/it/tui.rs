//! The terminal UI in a real terminal: tmux holds it, types at it, and says what is on the screen.

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::support::both_ends::{Live, text};
use crate::support::eventually;
use crate::support::real::{COMMAND, Real, run, says};
use crate::support::requests::{
    command_asked, decision, parsed, question_asked, resolved, turn_completed, turn_started,
};
use crate::support::shim::SHIM;
use crate::support::tmux::Tmux;

fn line(live: &Live) -> Value {
    parsed(live.at_server().trim_end())
}

#[test]
fn a_session_is_seen_answered_and_spoken_to() {
    let mut live = Live::initialized("");
    let Some(tmux) = Tmux::tui("a_session_is_seen_answered_and_spoken_to", &live.home, "s") else { return };
    live.say_plainly(&turn_started("t", "u"));
    let item = r#"{"id":"c","type":"commandExecution","command":"make all","cwd":"/w","status":"inProgress"}"#;
    live.say_plainly(&format!(r#"{{"method":"item/started","params":{{"threadId":"t","turnId":"u","item":{item}}}}}"#));
    let piece = r#""threadId":"t","turnId":"u","itemId":"c","delta":"\u001b[31mhalf\u001b[0m way\n""#;
    live.say_plainly(&format!(r#"{{"method":"item/commandExecution/outputDelta","params":{{{piece}}}}}"#));
    let screen = tmux.shows("half way");
    assert!(screen.contains("runs   make all  ["), "{screen}");
    // Once the relay was asked.
    tmux.shows(" chat  Enter sends");

    // One key answers, once it was seen.
    let request = live.asked(&command_asked("7", "t"), "7");
    tmux.shows("Enter off: a request waits");
    tmux.keys(&["C-r"]);
    tmux.shows("[a] accept");
    tmux.shows("asked 1s ago");
    tmux.keys(&["a"]);
    assert_eq!(line(&live), json!({"id": 7, "result": {"decision": "accept"}}));
    tmux.shows(" chat  Enter sends");
    assert_eq!(live.row(&request)["resolution_source"], "tui");
    live.say_plainly(&resolved("7"));

    // A question, by an option.
    live.asked(&question_asked("8", false), "8");
    tmux.shows("a request waits");
    tmux.keys(&["C-r"]);
    tmux.shows("1. Red  red");
    tmux.shows("asked 1s ago");
    tmux.keys(&["Enter"]);
    assert_eq!(line(&live)["result"], json!({"answers": {"color": {"answers": ["Red"]}}}));
    live.say_plainly(&resolved("8"));

    // Somebody else is first, and it is said who.
    let request = live.asked(&command_asked("9", "t"), "9");
    tmux.shows("a request waits");
    tmux.keys(&["C-r"]);
    tmux.shows("[a] accept");
    live.responded(&request, &decision("decline"));
    line(&live);
    tmux.shows("was answered by api (");
    tmux.shows(" chat  Enter sends");
    live.say_plainly(&resolved("9"));

    // A new turn.
    live.say_plainly(&turn_completed("t", "u"));
    tmux.types("hello äöü");
    tmux.keys(&["Enter"]);
    let call = line(&live);
    assert_eq!((&call["method"], &call["params"]["input"][0]["text"]), (&json!("turn/start"), &json!("hello äöü")));
    live.say_unseen(&json!({"id": call["id"], "result": {"turn": {"id": "u2", "items": []}}}).to_string());
    tmux.shows("a turn has begun");

    // As small as it can be, and back.
    tmux.resize(20, 5);
    eventually("a small screen", || {
        Some(tmux.screen()).filter(|screen| screen.lines().count() == 5 && screen.contains(" chat  Enter"))
    });
    tmux.resize(100, 30);
    tmux.shows("Tab history");

    // The relay ends, what was is still to be read, and the terminal is as it was.
    let _home = live.end();
    tmux.shows("s  stopped");
    tmux.keys(&["Tab"]);
    tmux.types("/make all");
    tmux.keys(&["Enter"]);
    tmux.shows("▌");
    tmux.keys(&["C-c"]);
    let screen = tmux.shows("left with 0");
    assert!(!screen.contains("history"), "{screen}");
    let screen = tmux.shows("icanon");
    assert!(!screen.contains("-icanon"), "{screen}");
}

#[test]
fn the_terminal_is_given_back_by_a_signal_too() {
    let live = Live::initialized("");
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT] {
        let Some(tmux) = Tmux::tui("the_terminal_is_given_back_by_a_signal_too", &live.home, "") else { return };
        tmux.shows("1 session");
        tmux.keys(&["Enter"]);
        tmux.shows(" chat  Enter sends");
        kill_process(tmux.pid(), signal).expect("it runs");
        tmux.shows(&format!("left with {}", 128 + signal.as_raw()));
        let screen = tmux.shows("icanon");
        assert!(!screen.contains("-icanon"), "{screen}");
    }
    live.end();
}

/// What an assistant says in a thread.
fn said(thread: &str, item: &str, text: &str) -> String {
    let item = json!({"id": item, "type": "agentMessage", "text": text});
    json!({"method": "item/completed", "params": {"threadId": thread, "turnId": "u", "item": item}}).to_string()
}

#[test]
fn the_shell_has_the_terminal_while_it_is_stopped() {
    let test = "the_shell_has_the_terminal_while_it_is_stopped";
    let live = Live::initialized("");
    let Some(tmux) = Tmux::start(test, &live.home, "PS1='$ ' exec bash --norc -i") else { return };
    tmux.shows("$");
    tmux.enters(&format!("{SHIM} tui s"));
    tmux.shows(" chat  Enter sends");
    tmux.types("half of a line");
    tmux.shows("half of a line");
    tmux.keys(&["C-z"]);
    let screen = tmux.shows("Stopped");
    assert!(!screen.contains("half of a line"), "{screen}");
    tmux.enters("stty -a | grep -wo -- -icanon || echo coo''ked");
    tmux.shows("cooked");
    // From outside it is stopped as well.
    tmux.enters("fg");
    tmux.shows_all(&["half of a line", " chat  Enter sends"]);
    let shell = tmux.run(&["display-message", "-p", "#{pane_pid}"]);
    let shown = crate::support::tmux::child_of(shell.trim().parse().expect("a number")).expect("it has a child");
    kill_process(shown, Signal::TSTP).expect("it runs");
    tmux.shows("$");
    let screen =
        eventually("the shell again", || Some(tmux.screen()).filter(|screen| screen.matches("Stopped").count() > 1));
    assert!(!screen.contains("half of a line"), "{screen}");
    tmux.enters("fg");
    tmux.shows_all(&["half of a line", " chat  Enter sends"]);
    tmux.keys(&["C-c"]);
    tmux.shows_no(" chat  Enter sends");
    tmux.enters("echo le''ft=$?");
    tmux.shows("left=0");
    live.end();
}

#[test]
fn where_no_shell_could_continue_it_it_does_not_stop() {
    let live = Live::initialized("");
    let Some(tmux) = Tmux::tui("where_no_shell_could_continue_it_it_does_not_stop", &live.home, "s") else { return };
    tmux.shows(" chat  Enter sends");
    tmux.keys(&["C-z"]);
    tmux.types("still here");
    tmux.shows("still here");
    tmux.keys(&["C-c"]);
    tmux.shows("left with 0");
    live.end();
}

#[test]
fn an_entry_is_copied_to_the_clipboard_of_the_terminal() {
    let test = "an_entry_is_copied_to_the_clipboard_of_the_terminal";
    let mut live = Live::initialized("");
    let Some(tmux) = Tmux::tui(test, &live.home, "s") else { return };
    tmux.run(&["set-option", "-s", "set-clipboard", "on"]);
    live.say_plainly(&said("t", "a", "first line\nsecond äöü 漢字"));
    tmux.shows("second äöü 漢字");
    tmux.keys(&["Tab", "y"]);
    tmux.shows("go to the terminal's clipboard");
    let copied = eventually("what was copied", || {
        let buffers = tmux.run(&["list-buffers"]);
        (!buffers.is_empty()).then(|| tmux.run(&["show-buffer"]))
    });
    assert_eq!(copied, "first line\nsecond äöü 漢字");
    live.end();
}

#[test]
fn without_colours_there_are_none_and_what_steers_is_not_shown() {
    let test = "without_colours_there_are_none_and_what_steers_is_not_shown";
    let mut live = Live::initialized("");
    let script = |set: &str| format!("{set} '{SHIM}' tui s; cat");
    let Some(plain) = Tmux::start(test, &live.home, &script("NO_COLOR=1")) else { return };
    let Some(coloured) = Tmux::start(test, &live.home, &script("")) else { return };
    let text =
        "\u{1b}[31mred\u{1b}[0m \u{1b}]0;title\u{7}\u{202e}txet 漢字|👩\u{200d}👩\u{200d}👧|e\u{301}|\u{fffd}|\u{0}end";
    live.say_plainly(&said("t", "a", text));
    let request = live.asked(&command_asked("7", "t"), "7");
    for tmux in [&plain, &coloured] {
        let screen = tmux.shows_all(&["end", "a request waits"]);
        assert!(screen.contains("codex  red \\u{202e}txet 漢字|"), "{screen}");
    }
    // Forty behind `38;` or thirty to forty-eight alone are colours.
    let has_colours = |tmux: &Tmux| {
        let screen = tmux.coloured();
        screen.split("\u{1b}[").skip(1).filter_map(|rest| rest.split_once('m')).any(|(codes, _)| {
            codes.split(';').any(|code| {
                code.parse::<u8>()
                    .is_ok_and(|code| (30..=38).contains(&code) || (40..=48).contains(&code) || code >= 90)
            })
        })
    };
    assert!(!has_colours(&plain), "{}", plain.coloured());
    assert!(has_colours(&coloured), "{}", coloured.coloured());
    live.responded(&request, &decision("decline"));
    line(&live);
    live.say_plainly(&resolved("7"));
    live.end();
}

#[test]
fn one_of_two_threads_is_chosen_and_spoken_to() {
    let mut live = Live::initialized("");
    let Some(tmux) = Tmux::tui("one_of_two_threads_is_chosen_and_spoken_to", &live.home, "s") else { return };
    for thread in ["thread-a", "thread-b"] {
        live.say_plainly(&turn_started(thread, "u"));
        live.say_plainly(&said(thread, &format!("of-{thread}"), &format!("words in {thread}")));
        live.say_plainly(&turn_completed(thread, "u"));
    }
    tmux.shows_all(&["words in thread-a", "words in thread-b", "2 threads"]);
    tmux.keys(&["C-t"]);
    let screen = tmux.shows("chat ▸ threads");
    let row = screen.lines().position(|line| line.trim_start().starts_with("thread-a")).expect("it is listed");
    (1..row).for_each(|_| tmux.keys(&["Down"]));
    tmux.keys(&["Enter"]);
    tmux.shows("Enter sends to thread-a");
    let screen = tmux.shows_no("words in thread-b");
    assert!(screen.contains("words in thread-a"), "{screen}");
    tmux.enters("go on");
    let call = line(&live);
    assert_eq!((&call["method"], &call["params"]["threadId"]), (&json!("turn/start"), &json!("thread-a")));
    live.say_unseen(&json!({"id": call["id"], "result": {"turn": {"id": "u2", "items": []}}}).to_string());
    tmux.shows("a turn has begun");
    live.end();
}

#[test]
fn a_session_that_ends_and_starts_again_is_followed() {
    let mut live = Live::initialized("");
    let Some(tmux) = Tmux::tui("a_session_that_ends_and_starts_again_is_followed", &live.home, "s") else { return };
    live.say_plainly(&said("t", "a", "of the first run"));
    tmux.shows("of the first run");
    let (home, _) = live.end();
    tmux.shows("s  stopped");
    tmux.enters("nobody hears");
    tmux.shows("no relay answers in this session");
    let mut live = Live::start_in(home);
    tmux.shows("s  idle");
    live.say_plainly(&said("t", "b", "of the second run"));
    let screen = tmux.shows("of the second run");
    assert_eq!(screen.matches("server run ").count(), 2, "{screen}");
    assert!(screen.contains("of the first run") && screen.contains("nobody hears"), "{screen}");
    // Its socket is gone for a while.
    let socket = live.session.join("control.sock");
    let aside = live.session.join("control.sock.aside");
    std::fs::rename(&socket, &aside).expect("it is there");
    tmux.shows("does not answer");
    std::fs::rename(&aside, &socket).expect("it is there");
    tmux.shows_no("does not answer");
    live.end();
}

#[test]
fn without_a_terminal_it_says_so() {
    let live = Live::initialized("");
    let output = live.tool(&["tui"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("needs a terminal") && output.stdout.is_empty(), "{told}");
    let output = live.tool(&["tui", "nobody"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    live.end();
}

#[test]
fn a_turn_of_the_real_codex_is_watched_and_allowed() {
    let test = "a_turn_of_the_real_codex_is_watched_and_allowed";
    let Some(mut real) = Real::start(test, "", vec![run(), says()]) else { return };
    let Some(tmux) = Tmux::tui(test, &real.home, "s") else { return };
    let (_, row) = real.asked_by_turn(COMMAND);
    tmux.shows("a request waits");
    tmux.keys(&["C-r"]);
    tmux.shows("echo ran >> ran.txt");
    tmux.shows("asked 1s ago");
    tmux.keys(&["a"]);
    let row = real.confirmed(&row);
    assert_eq!(text(&row["resolution_source"]), "tui");
    real.completed("completed");
    let screen = tmux.shows("turn completed");
    assert!(screen.contains("codex  Well.") && screen.contains("exit 0"), "{screen}");
    assert_eq!(real.ran(), 1);
    tmux.keys(&["C-c"]);
    tmux.shows("left with 0");
    real.end();
}
