//! The terminal UI in a real terminal: tmux holds it, types at it, and says what is on the screen.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::both_ends::{Live, text};
use crate::support::eventually;
use crate::support::real::{COMMAND, Real, run, says};
use crate::support::requests::{
    command_asked, decision, parsed, question_asked, resolved, turn_completed, turn_started,
};
use crate::support::shim::{Home, SHIM};

/// A terminal of its own. It ends with the test.
struct Tmux {
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Tmux {
    /// `codex-shim tui ARG…` in a terminal, and behind it what the terminal is like once it is left.
    fn start(test: &str, home: &Home, args: &str) -> Option<Tmux> {
        if !Command::new("tmux").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
            let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: there is no tmux");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let tmux = Tmux { socket: folder.path().join("tmux"), _folder: folder };
        let shell = format!(
            "CODEX_SHIM_HOME='{}' '{SHIM}' tui {args}; echo \"left with $?\"; stty -a | tr ' ;' '\\n\\n' | grep icanon; cat",
            home.path().display()
        );
        tmux.run(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", &shell]);
        Some(tmux)
    }

    fn run(&self, args: &[&str]) -> String {
        let output = Command::new("tmux").arg("-S").arg(&self.socket).args(args).output().expect("tmux is there");
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    fn types(&self, text: &str) {
        self.run(&["send-keys", "-l", text]);
    }

    fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    /// Waits until something is on the screen; returns all of it.
    fn shows(&self, what: &str) -> String {
        eventually(what, || Some(self.screen()).filter(|screen| screen.contains(what)))
    }

    /// The process in it.
    fn pid(&self) -> Pid {
        let shell = self.run(&["display-message", "-p", "#{pane_pid}"]);
        let shell = shell.trim();
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).expect("it runs");
        let child = children.split(' ').next().and_then(|pid| pid.parse().ok()).expect("it has a child");
        Pid::from_raw(child).expect("a process has a number")
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").stderr(Stdio::null()).status();
    }
}

fn line(live: &Live) -> Value {
    parsed(live.at_server().trim_end())
}

#[test]
fn a_session_is_seen_answered_and_spoken_to() {
    let mut live = Live::initialized("");
    let Some(tmux) = Tmux::start("a_session_is_seen_answered_and_spoken_to", &live.home, "s") else { return };
    live.say_plainly(&turn_started("t", "u"));
    let item = r#"{"id":"c","type":"commandExecution","command":"make all","cwd":"/w","status":"inProgress"}"#;
    live.say_plainly(&format!(r#"{{"method":"item/started","params":{{"threadId":"t","turnId":"u","item":{item}}}}}"#));
    let piece = r#""threadId":"t","turnId":"u","itemId":"c","delta":"\u001b[31mhalf\u001b[0m way\n""#;
    live.say_plainly(&format!(r#"{{"method":"item/commandExecution/outputDelta","params":{{{piece}}}}}"#));
    let screen = tmux.shows("half way");
    assert!(screen.contains("runs   make all  ["), "{screen}");
    assert!(screen.contains(" chat  Enter sends"), "{screen}");

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
    tmux.run(&["resize-window", "-x", "20", "-y", "5"]);
    eventually("a small screen", || {
        Some(tmux.screen()).filter(|screen| screen.lines().count() == 5 && screen.contains(" chat  Enter"))
    });
    tmux.run(&["resize-window", "-x", "100", "-y", "30"]);
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
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let Some(tmux) = Tmux::start("the_terminal_is_given_back_by_a_signal_too", &live.home, "") else { return };
        tmux.shows("1 session");
        tmux.keys(&["Enter"]);
        tmux.shows(" chat  Enter sends");
        kill_process(tmux.pid(), signal).expect("it runs");
        tmux.shows("left with 0");
        let screen = tmux.shows("icanon");
        assert!(!screen.contains("-icanon"), "{screen}");
    }
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
    let Some(tmux) = Tmux::start(test, &real.home, "s") else { return };
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
