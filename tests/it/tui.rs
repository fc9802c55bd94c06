//! The terminal UI in a real terminal: tmux runs it, types keys, and reads the screen.

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::support::both_ends::{Live, text};
use crate::support::eventually;
use crate::support::real::{COMMAND, Real, run, says};
use crate::support::requests::{
    command_asked, decision, parsed, question_asked, resolved, turn_completed, turn_started,
};
use crate::support::shim::{Home, SHIM};
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
    assert!(screen.contains("runs   make all  running"), "{screen}");
    // After the relay was called.
    tmux.shows(" chat  Enter sends");

    // One key answers, after the request was seen.
    let request = live.asked(&command_asked("7", "t"), "7");
    tmux.shows("Enter sends nothing: a request is pending");
    tmux.keys(&["C-r"]);
    tmux.shows_a_while(" a  accept");
    tmux.keys(&["a"]);
    assert_eq!(line(&live), json!({"id": 7, "result": {"decision": "accept"}}));
    tmux.shows(" chat  Enter sends");
    assert_eq!(live.row(&request)["resolution_source"], "tui");
    live.say_plainly(&resolved("7"));

    // A question, answered by an option.
    live.asked(&question_asked("8", false), "8");
    tmux.shows("1 pending ^R");
    tmux.keys(&["C-r"]);
    tmux.shows_a_while("1. Red  red");
    tmux.keys(&["Enter"]);
    assert_eq!(line(&live)["result"], json!({"answers": {"color": {"answers": ["Red"]}}}));
    live.say_plainly(&resolved("8"));
    tmux.shows(" chat  Enter sends");

    // Another caller answers first, and the screen names it.
    let request = live.asked(&command_asked("9", "t"), "9");
    tmux.shows("1 pending ^R");
    tmux.keys(&["C-r"]);
    tmux.shows(" a  accept");
    live.responded(&request, &decision("decline"));
    line(&live);
    tmux.shows("was answered by api (");
    tmux.shows(" chat  Enter sends");
    live.say_plainly(&resolved("9"));

    // A new turn.
    live.say_plainly(&turn_completed("t", "u"));
    tmux.sends("hello äöü");
    let call = line(&live);
    assert_eq!((&call["method"], &call["params"]["input"][0]["text"]), (&json!("turn/start"), &json!("hello äöü")));
    live.say_unseen(&json!({"id": call["id"], "result": {"turn": {"id": "u2", "items": []}}}).to_string());
    tmux.shows("a turn has begun");

    // The smallest size, and back.
    tmux.resize(20, 5);
    eventually("a small screen", || {
        Some(tmux.screen()).filter(|screen| screen.lines().count() == 5 && screen.contains(" chat  Enter"))
    });
    tmux.resize(100, 30);
    tmux.shows("Tab timeline");

    // After the relay's end the old entries are still readable, and the terminal is restored.
    let _home = live.end();
    tmux.shows("  stopped");
    tmux.keys(&["Tab"]);
    tmux.sends("/make all");
    tmux.shows("▌");
    let screen = tmux.leaves();
    assert!(!screen.contains("timeline"), "{screen}");
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

/// A message of the assistant in a thread.
#[test]
fn pasted_text_answers_nothing() {
    let mut live = Live::initialized("");
    let Some(tmux) = Tmux::tui("pasted_text_answers_nothing", &live.home, "s") else { return };
    live.say_plainly(&turn_started("t", "u"));
    tmux.shows(" chat  Enter sends");
    let asked = live.asked(&command_asked("7", "t"), "7");
    tmux.shows("1 pending ^R");
    tmux.keys(&["C-r"]);
    tmux.shows_a_while(" a  accept");
    for text in ["add a test\n", "a", "d\n", "yes\n"] {
        // A single letter is a key: it is pasted before and after another.
        let text = if text.len() == 1 { "aa" } else { text };
        tmux.pastes(text);
        tmux.shows("keys came too fast: nothing was answered");
        assert_eq!(live.row(&asked)["status"], "pending", "{text:?}");
        tmux.shows_a_while(" a  accept");
        tmux.keys(&["j"]);
        tmux.shows_no("keys came too fast");
        tmux.shows_a_while(" a  accept");
    }
    tmux.keys(&["a"]);
    assert_eq!(line(&live), json!({"id": 7, "result": {"decision": "accept"}}));
    live.say_plainly(&resolved("7"));
    // Lines that are pasted into the composer are lines of one message, and the program does not end with a letter of them.
    tmux.shows(" chat  Enter sends");
    tmux.pastes("first line\nquit it\n");
    tmux.shows_all(&["first line", "quit it"]);
    tmux.leaves();
    live.end();
}

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
    // A signal from outside stops it as well.
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
    tmux.leaves();
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
    tmux.shows("to the terminal's clipboard");
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
        tmux.shows_all(&["codex  red \\u{202e}txet 漢字|", "1 pending ^R"]);
    }
    // Colours are 40 after `38;`, or 30 to 48 alone.
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
    let screen = tmux.shows(" threads  Enter takes");
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

/// A relay of another session with a silent server. The test kills it at its end.
struct Quiet(std::process::Child);

impl Quiet {
    fn start(live: &Live) -> Quiet {
        let mut serve = live.home.shim(&["serve", "--session", "quiet", "--", "sh", "-c", "cat >/dev/null"]);
        let quiet = Quiet(serve.spawn().expect("the shim starts"));
        let socket = live.home.path().join("sessions/quiet/control.sock");
        eventually("the other session", || socket.exists().then_some(()));
        quiet
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_request_elsewhere_rings_once_and_is_reached() {
    let test = "a_request_elsewhere_rings_once_and_is_reached";
    let mut live = Live::initialized("");
    let _quiet = Quiet::start(&live);
    let rung = live.home.beside().join("rung");
    let script = format!(
        "printf '\\033]2;before\\007'; while [ ! -e go ]; do sleep 0.1; done; '{SHIM}' tui quiet; echo left; cat"
    );
    let Some(tmux) = Tmux::start(test, &live.home, &script) else { return };
    tmux.run(&["set-hook", "-g", "alert-bell", &format!("run-shell 'echo rung >> {}'", rung.display())]);
    let title = || tmux.run(&["display-message", "-p", "#{pane_title}"]).trim().to_owned();
    eventually("a title of the shell", || (title() == "before").then_some(()));
    std::fs::write(live.home.beside().join("go"), "").expect("a file");
    eventually("our title", || title().starts_with("codex-shim").then_some(()));
    tmux.types("half a message");
    tmux.shows("half a message");
    let request = live.asked(&command_asked("7", "t"), "7");
    tmux.shows("1 elsewhere ^N");
    eventually("a title that counts", || title().starts_with("(1 waits) codex-shim").then_some(()));
    tmux.keys(&["C-n"]);
    // After attaching, the request is visible at once.
    tmux.shows_a_while(" a  accept");
    tmux.keys(&["a"]);
    assert_eq!(line(&live), json!({"id": 7, "result": {"decision": "accept"}}));
    tmux.shows(" chat  Enter sends");
    assert_eq!(live.row(&request)["resolution_source"], "tui");
    live.say_plainly(&resolved("7"));
    eventually("a title that counts nothing", || title().starts_with("codex-shim").then_some(()));
    assert_eq!(std::fs::read_to_string(&rung).unwrap_or_default().lines().count(), 1, "one request, one bell");
    tmux.keys(&["C-c"]);
    tmux.shows("left");
    assert_eq!(title(), "before");
    live.end();
}

#[test]
fn mouse_selects_scrolls_and_is_given_back() {
    let mut live = Live::initialized("");
    let Some(tmux) = Tmux::tui("mouse_selects_scrolls_and_is_given_back", &live.home, "s") else { return };
    let modes = || tmux.run(&["display-message", "-p", "#{mouse_standard_flag} #{mouse_sgr_flag}"]).trim().to_owned();
    for number in 0..60 {
        live.say_plainly(&said("t", &format!("i{number}"), &format!("message {number}.")));
    }
    tmux.shows("message 59.");
    assert_eq!(modes(), "1 1");
    // The wheel over the timeline, upwards.
    let wheel = ["1b", "5b", "3c", "36", "34", "3b", "32", "30", "3b", "38", "4d"];
    for _ in 0..50 {
        tmux.run(&[&["send-keys", "-H"], &wheel[..]].concat());
    }
    tmux.shows_all(&[" timeline  Enter opens", "message 9."]);
    // A click into the composer's row selects there, because that row belongs to the timeline while the timeline has
    // the keys.
    tmux.keys(&["F2"]);
    tmux.shows("mouse off");
    assert_eq!(modes(), "0 0");
    tmux.keys(&["F2"]);
    tmux.shows("mouse on");
    assert_eq!(modes(), "1 1");
    tmux.leaves();
    assert_eq!(modes(), "0 0");
    live.end();
}

#[test]
fn a_diff_is_reviewed_and_opened_in_the_pager() {
    let test = "a_diff_is_reviewed_and_opened_in_the_pager";
    let mut live = Live::initialized("");
    // This pager stores its input and reads one line from the terminal.
    let pager = "cat > paged; echo this is the pager; read answer < /dev/tty; echo \"$answer\" > typed";
    let script =
        format!("export PAGER='{pager}'; '{SHIM}' tui s; echo left; stty -a | tr ' ;' '\\n\\n' | grep icanon; cat");
    let Some(tmux) = Tmux::start(test, &live.home, &script) else { return };
    let cwd = live.home.beside().display().to_string();
    let changes: Vec<Value> = (0..30)
        .map(|number| {
            let diff = format!("@@ -1 +1 @@\n-old {number}\n+new {number}\n");
            json!({"path": format!("{cwd}/src/f{number}.rs"), "kind": {"type": "update"}, "diff": diff})
        })
        .collect();
    let item = json!({"id": "f", "type": "fileChange", "status": "inProgress", "changes": changes});
    live.say_plainly(
        &json!({"method": "item/started", "params": {"threadId": "t", "turnId": "u", "item": item}}).to_string(),
    );
    let asks = json!({"id": 7, "method": "item/fileChange/requestApproval",
        "params": {"threadId": "t", "turnId": "u", "itemId": "f", "reason": null, "grantRoot": null}});
    live.asked(&asks.to_string(), "7");
    tmux.shows("1 pending ^R");
    tmux.keys(&["C-r"]);
    tmux.shows_all(&["30 files +30 -30", "M src/f0.rs"]);
    tmux.shows_a_while(" a  accept");
    tmux.keys(&["v"]);
    tmux.shows("file 1/30 · hunk 1/30");
    tmux.keys(&["n", "n", "]"]);
    tmux.shows("file 3/30 · hunk 3/30");
    tmux.keys(&["o"]);
    tmux.shows("this is the pager");
    // The pager gets the keys, including ^C.
    tmux.types("d");
    tmux.types("a");
    tmux.keys(&["Enter"]);
    tmux.shows("file 3/30 · hunk 3/30");
    let paged = std::fs::read_to_string(live.home.beside().join("paged")).expect("it was given a text");
    assert!(paged.contains("src/f29.rs") && paged.contains("\u{1b}[32m+new 29\u{1b}[0m"), "{paged}");
    let typed = std::fs::read_to_string(live.home.beside().join("typed")).expect("it was typed at");
    assert_eq!(typed, "da\n");
    tmux.keys(&["o"]);
    eventually("the pager once more", || (tmux.screen().matches("this is the pager").count() == 2).then_some(()));
    tmux.keys(&["C-c"]);
    tmux.shows("file 3/30 · hunk 3/30");
    tmux.keys(&["Escape"]);
    tmux.shows_a_while(" a  accept");
    tmux.keys(&["d"]);
    assert_eq!(line(&live), json!({"id": 7, "result": {"decision": "decline"}}));
    live.say_plainly(&resolved("7"));
    tmux.shows(" chat  Enter sends");
    tmux.keys(&["C-c"]);
    tmux.shows("left");
    let screen = tmux.shows("icanon");
    assert!(!screen.contains("-icanon"), "{screen}");
    live.end();
}

#[test]
fn a_session_that_ends_and_starts_again_is_followed() {
    let mut live = Live::initialized("");
    let Some(tmux) = Tmux::tui("a_session_that_ends_and_starts_again_is_followed", &live.home, "s") else { return };
    live.say_plainly(&said("t", "a", "of the first run"));
    tmux.shows("of the first run");
    let (home, _) = live.end();
    tmux.shows("  stopped");
    tmux.enters("nobody hears");
    tmux.shows("no relay answers in this session");
    let mut live = Live::start_in(home);
    tmux.shows("○ idle");
    live.say_plainly(&said("t", "b", "of the second run"));
    let screen = tmux.shows("of the second run");
    assert_eq!(screen.matches("server run ").count(), 2, "{screen}");
    assert!(screen.contains("of the first run") && screen.contains("nobody hears"), "{screen}");
    // Its socket is missing for a while.
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
    tmux.shows("1 pending ^R");
    tmux.keys(&["C-r"]);
    tmux.shows_a_while("echo ran >> ran.txt");
    tmux.keys(&["a"]);
    let row = real.confirmed(&row);
    assert_eq!(text(&row["resolution_source"]), "tui");
    real.completed("completed");
    let screen = tmux.shows("turn completed");
    assert!(screen.contains("codex  Well.") && screen.contains("✓"), "{screen}");
    assert_eq!(real.ran(), 1);
    tmux.leaves();
    real.end();
}

#[test]
fn terminal_that_cannot_move_the_cursor_is_refused() {
    let home = Home::new();
    let script = format!("TERM=dumb '{SHIM}' tui; echo \"left with $?\"; cat");
    let Some(tmux) = Tmux::start("terminal_that_cannot_move_the_cursor_is_refused", &home, &script) else { return };
    let screen = tmux.shows("left with 2");
    assert!(screen.contains("TERM=dumb") && screen.contains("codex-shim requests"), "{screen}");
}
