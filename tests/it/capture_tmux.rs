//! Capture in a terminal run by tmux: shells with their hooks, and full-screen programs, compared with runs without
//! codex-shim.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::capture::installed;
use crate::support::both_ends::Live;
use crate::support::eventually;
use crate::support::shim::SHIM;
use crate::support::tmux::Tmux;

fn waiting(live: &Live) -> Vec<Value> {
    live.get("/sessions/self/context")["commands"].as_array().expect("an array").clone()
}

/// The texts of the waiting commands, as soon as there are `count` of them.
fn commands(live: &Live, count: usize) -> Vec<String> {
    let kept = eventually(&format!("{count} commands"), || Some(waiting(live)).filter(|kept| kept.len() >= count));
    kept.iter().map(|command| command["cmd"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Checks a shell set up as in the documentation, with the hook's line in its own startup file.
fn check_shell(shell: &str, file: &str, line: &str) {
    let test = format!("tmux_hook_of_{shell}");
    if !installed(shell, &test) {
        return;
    }
    let live = Live::start();
    let rc = live.home.beside().join(file);
    fs::create_dir_all(rc.parent().expect("a folder")).expect("a folder");
    // As in the documentation, except for the program's path.
    fs::write(&rc, format!("{}\n", line.replace("codex-shim", SHIM))).expect("a file");
    let Some(tmux) = Tmux::start(&test, &live.home, &format!("exec {shell} -i")) else { return };
    // Waits until the shell reads input; its startup output does not matter here.
    tmux.enters(" echo rea''dy");
    tmux.shows("ready");
    tmux.enters("cd / && echo fir''st");
    tmux.shows("first");
    // A separate process pushes each command, so commands typed at the same moment arrive in any order.
    commands(&live, 1);
    tmux.enters("sh -c 'exit 3'");
    commands(&live, 2);
    tmux.enters(" echo sec''ret");
    tmux.shows("secret");
    // One key that edits, and one that interrupts a command.
    tmux.types("echo wrong");
    tmux.keys(&["C-u"]);
    tmux.enters("sleep 1000");
    eventually("the program", || {
        (tmux.run(&["display-message", "-p", "#{pane_current_command}"]).trim() == "sleep").then_some(())
    });
    tmux.keys(&["C-c"]);
    commands(&live, 3);
    tmux.enters("echo la''st");
    tmux.shows("last");
    let kept = commands(&live, 4);
    assert_eq!(kept, ["cd / && echo fir''st", "sh -c 'exit 3'", "sleep 1000", "echo la''st"]);
    let codes: Vec<_> = waiting(&live).iter().map(|command| command["exit_code"].as_i64()).collect();
    assert_eq!(codes, [Some(0), Some(3), Some(130), Some(0)]);
    assert_eq!(waiting(&live)[1]["cwd"], "/");
    live.kill();
}

#[test]
fn tmux_hook_of_bash() {
    check_shell("bash", ".bashrc", "HISTCONTROL=ignorespace; eval \"$(codex-shim hook bash)\"");
}

#[test]
fn tmux_hook_of_zsh() {
    check_shell("zsh", ".zshrc", "eval \"$(codex-shim hook zsh)\"");
}

#[test]
fn tmux_hook_of_fish() {
    check_shell("fish", ".config/fish/config.fish", "codex-shim hook fish | source");
}

/// When a program is asked again to leave: far longer than it takes on a busy machine.
const QUIT_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Runs a full-screen program in two terminals, one of them through codex-shim.
fn check_program(program: &str, args: &str, shown: &str, move_by: &[&str], quit: &[&str]) {
    let test = format!("tmux_exec_of_{program}");
    if !installed(program, &test) {
        return;
    }
    let live = Live::start();
    let text: String = (1..=200).map(|number| format!("line {number} äöü 漢字\n")).collect();
    fs::write(live.home.beside().join("text"), text).expect("a file");
    let Some(direct) = Tmux::start(&test, &live.home, &format!("{program} {args}; echo left $?; cat")) else { return };
    let through = format!("'{SHIM}' exec -- {program} {args}; echo left $?; cat");
    let Some(through) = Tmux::start(&test, &live.home, &through) else { return };
    let both = [&direct, &through];
    let same = |what: &str| {
        eventually(&format!("the same screen: {what}"), || {
            let screen = direct.coloured();
            (screen == through.coloured()).then_some(screen)
        })
    };
    both.iter().for_each(|tmux| drop(tmux.shows(shown)));
    let first = same("at first");
    both.iter().for_each(|tmux| tmux.keys(move_by));
    eventually("something else", || (direct.coloured() != first).then_some(()));
    same("moved");
    both.iter().for_each(|tmux| tmux.resize(60, 12));
    eventually("its new size", || (direct.screen().lines().count() == 12).then_some(()));
    let small = same("smaller");
    both.iter().for_each(|tmux| tmux.resize(110, 34));
    eventually("something else", || (direct.coloured() != small).then_some(()));
    same("larger");
    // No extra keys at once: which program would read and echo them depends on timing. A program may lose one while it draws itself anew.
    both.iter().for_each(|tmux| tmux.keys(quit));
    for (how, tmux) in [("direct", &direct), ("through exec", &through)] {
        let mut asked_at = Instant::now();
        eventually(&format!("{program} has left, {how}"), || {
            let has_left = tmux.screen().contains("left 0");
            if !has_left && asked_at.elapsed() > QUIT_AGAIN_AFTER {
                tmux.keys(quit);
                asked_at = Instant::now();
            }
            has_left.then_some(())
        });
    }
    same("left");
    let kept = waiting(&live);
    assert_eq!(kept.len(), 1, "{kept:?}");
    live.kill();
}

#[test]
fn tmux_exec_of_vim() {
    check_program("vim", "-u NONE -n text", "line 1 äöü", &["C-f"], &["Escape", ":q!", "Enter"]);
}

#[test]
fn tmux_exec_of_less() {
    check_program("less", "text", "line 1 äöü", &["Space"], &["q"]);
}

#[test]
fn tmux_exec_of_top_shows_it_and_ends() {
    let test = "tmux_exec_of_top_shows_it_and_ends";
    if !installed("top", test) {
        return;
    }
    let live = Live::start();
    let Some(tmux) = Tmux::start(test, &live.home, &format!("'{SHIM}' exec -- top; echo left $?; cat")) else { return };
    tmux.shows_all(&["PID", "load average"]);
    tmux.resize(60, 12);
    eventually("its new size", || {
        Some(tmux.screen()).filter(|screen| screen.lines().count() == 12 && screen.contains("PID"))
    });
    tmux.keys(&["q"]);
    tmux.shows("left 0");
    live.kill();
}
