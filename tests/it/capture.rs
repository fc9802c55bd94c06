//! Terminal capture through the real binary: `exec`, shell hooks, `shell`, `watch-pty`.

use std::fs::{self, File, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::both_ends::{Live, carried, envelope, names, tool, turn};
use crate::support::conversations::start_turn;
use crate::support::pane::Pane;
use crate::support::real::{Real, says};
use crate::support::shim::{Home, SHIM, copy_shim};
use crate::support::{eventually, make_fifo};

/// Whether a program is installed; if not, prints that the test is skipped.
pub fn installed(program: &str, test: &str) -> bool {
    let there = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !there {
        let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: there is no {program}");
    }
    there
}

pub fn waiting(live: &Live) -> Vec<Value> {
    live.get("/sessions/self/context")["commands"].as_array().expect("an array").clone()
}

/// The waiting commands, once the last of them is `cmd`.
fn until_last(live: &Live, cmd: &str) -> Vec<Value> {
    eventually(&format!("{cmd:?} as context"), || {
        let waiting = waiting(live);
        waiting.last().is_some_and(|last| last["cmd"] == cmd).then_some(waiting)
    })
}

fn lines(command: &Value) -> Vec<String> {
    serde_json::from_value(command["preview"]["lines"].clone()).expect("they are texts")
}

// exec

#[test]
fn exec_shows_a_command_in_a_terminal_and_keeps_it() {
    let live = Live::start();
    let mut pane = Pane::start(&live.home, &[SHIM, "exec", "--", "sh", "-c", "stty size; tty <&2; echo 'h i'; exit 3"]);
    let before = pane.mode();
    assert_eq!(pane.ends(), 3);
    pane.shows("24 80");
    pane.shows("/dev/");
    pane.shows("h i");
    assert_eq!(format!("{:?}", pane.mode()), format!("{before:?}"));
    let kept = waiting(&live);
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(kept[0]["cmd"], "sh -c 'stty size; tty <&2; echo '\\''h i'\\''; exit 3'");
    assert_eq!((&kept[0]["exit_code"], &kept[0]["source"]), (&json!(3), &json!("exec")));
    assert_eq!(kept[0]["cwd"], live.home.beside().canonicalize().expect("it is there").to_str().expect("UTF-8"));
    assert_eq!((lines(&kept[0]).first(), lines(&kept[0]).last()), (Some(&"24 80".into()), Some(&"h i".into())));
    let shown = tool(&live.home, &["context", "show"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("(exec, "), "{shown:?}");
    live.end_quietly();
}

#[test]
fn exec_takes_a_command_without_dashes_before_it() {
    let live = Live::start();
    let run = |args: &[&str]| {
        let mut command = live.home.shim(args);
        command.current_dir(live.home.beside()).stdin(Stdio::null()).output().expect("it runs")
    };
    let check = |before: &[&str], after: &[&str]| {
        let args = [&["exec"], before, &["sh", "-c", "echo \"$*\"", "x"], after].concat();
        let output = run(&args);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), after.join(" "), "{args:?}: {output:?}");
    };
    check(&[], &["-l", "--session", "y", "--help"]);
    check(&[], &["a", "--", "b"]);
    check(&["--session", "s"], &["-V"]);
    check(&["--"], &["--private"]);
    assert_eq!(waiting(&live).len(), 4);
    assert_eq!(run(&["exec", "--bogus", "ls"]).status.code(), Some(2), "an option before the command is ours");
    assert_eq!(run(&["exec"]).status.code(), Some(2));
    assert_eq!(run(&["exec", "sh", "-c", "exit 7"]).status.code(), Some(7));
    live.end_quietly();
}

#[test]
fn exec_follows_the_size_of_the_terminal() {
    let live = Live::start();
    let script = "trap 'stty size; exit 0' WINCH; echo ready; while :; do read -t 0.1; done";
    let mut pane = Pane::start(&live.home, &[SHIM, "exec", "--", "bash", "-c", script]);
    pane.shows("ready");
    pane.resize(33, 99);
    pane.shows("33 99");
    assert_eq!(pane.ends(), 0);
    live.kill();
}

#[test]
fn exec_can_be_stopped_continued_and_interrupted() {
    let live = Live::start();
    let mut pane = Pane::start_with(&live.home, &["bash", "--norc", "-i"], &[("PS1", "$ ")]);
    pane.shows("$ ");
    // Not run by a shell: dash stopped while it starts a program does not appear stopped, since it waits in `vfork` for a
    // child that stopped before its `exec`.
    pane.types(&format!("{SHIM} exec -- cat -n\n"));
    eventually("the shim in front", || (!pane.is_given_back()).then_some(()));
    pane.types("here\n");
    // Only the program numbers lines; either terminal may echo them.
    pane.shows("1\there\r\n");
    pane.types("\x1a");
    pane.shows("Stopped");
    pane.types("stty -a | grep -wo -- -icanon || echo coo''ked\n");
    pane.shows("cooked");
    pane.types("fg\n");
    pane.shows("exec -- cat");
    // The shim has the terminal again once every key is passed on.
    eventually("the shim in front", || (!pane.is_given_back()).then_some(()));
    pane.types("\x03");
    eventually("its end as context", || (!waiting(&live).is_empty()).then_some(()));
    pane.types("echo st''atus=$?\n");
    pane.shows("status=130");
    live.kill();
}

#[test]
fn exec_is_interrupted_by_a_key() {
    // Without an interactive shell, which may handle the key itself before it starts the program.
    let live = Live::start();
    let mut pane = Pane::start(&live.home, &[SHIM, "exec", "--", "sh", "-c", "echo began; exec sleep 1000"]);
    pane.shows("began");
    pane.types("\x03");
    assert_eq!(pane.ends(), 130);
    assert!(pane.is_given_back());
    assert_eq!(waiting(&live)[0]["exit_code"], 130);
    live.kill();
}

#[test]
fn exec_gives_the_terminal_back_when_it_is_ended() {
    let live = Live::start();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut pane = Pane::start(&live.home, &[SHIM, "exec", "--", "sh", "-c", "echo began; exec sleep 1000"]);
        pane.shows("began");
        assert!(!pane.is_given_back(), "it passes on every key");
        kill_process(pane.program(), signal).expect("it runs");
        assert_eq!(pane.ends(), 128 + signal.as_raw());
        assert!(pane.is_given_back(), "{signal:?}");
    }
    live.kill();
}

#[test]
fn ignored_signals_of_a_launcher_change_no_test() {
    // Background scripts, `nohup` and some launchers ignore these.
    let mut again = Command::new("sh");
    let tests = std::env::current_exe().expect("it is running");
    again.args(["-c", r#"trap '' HUP INT QUIT TERM TSTP TTIN TTOU CHLD PIPE USR1; exec "$@""#, "sh"]).arg(tests);
    again.args(["--exact", "capture::exec_gives_the_terminal_back_when_it_is_ended"]);
    let again = again.args(["capture::exec_is_interrupted_by_a_key"]).stdin(Stdio::null()).output().expect("it starts");
    let said = String::from_utf8_lossy(&again.stdout);
    assert!(again.status.success() && said.contains("2 passed"), "{said}");
}

/// Whether the kernel lets a program insert keys into a terminal's input (TIOCSTI).
fn keys_can_be_handed_back() -> bool {
    fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").map_or(cfg!(unix), |allowed| allowed.trim() == "1")
}

#[test]
fn exec_leaves_to_the_shell_what_was_typed_ahead() {
    let live = Live::start();
    let fifo = live.home.beside().join("fifo");
    make_fifo(&fifo);
    let mut pane = Pane::start_with(&live.home, &["bash", "--norc", "-i"], &[("PS1", "$ ")]);
    pane.shows("$ ");
    // The command reads one line only.
    pane.types(&format!("{SHIM} exec -- sh -c 'read line; echo got-$line; cat fifo; echo that''-was-it'\n"));
    eventually("the shim in front", || (!pane.is_given_back()).then_some(()));
    pane.types("one\n");
    pane.shows("got-one");
    pane.types("echo whole-''line\necho a-''half");
    pane.shows("echo a-''half");
    drop(File::options().write(true).open(&fifo).expect("somebody reads"));
    pane.shows("that-was-it");
    if keys_can_be_handed_back() {
        pane.shows("whole-line");
        pane.types("-and-the-rest\n");
        pane.shows("a-half-and-the-rest");
    } else {
        pane.shows("bytes that you typed ahead were not read");
    }
    live.kill();
}

#[test]
fn exec_in_a_terminal_does_not_wait_for_a_daemon() {
    let live = Live::start();
    let script = "setsid sh -c 'echo $$ > pid; exec sleep 1000' & while [ ! -s pid ]; do sleep 0.01; done; echo up";
    let mut pane = Pane::start(&live.home, &[SHIM, "exec", "--", "sh", "-c", script]);
    pane.shows("up");
    assert_eq!(pane.ends(), 0);
    let pid = fs::read_to_string(live.home.beside().join("pid")).expect("it is there");
    let pid = Pid::from_raw(pid.trim().parse().expect("a number")).expect("no group");
    // The daemon is still running.
    kill_process(pid, Signal::TERM).expect("it runs");
    assert_eq!(lines(&waiting(&live)[0]), ["up"]);
    live.kill();
}

#[test]
fn exec_keeps_a_note_of_a_full_screen() {
    const NOTE: &str = "[a full-screen program; its screen is not kept]";
    let live = Live::start();
    fs::write(live.home.beside().join("text"), "line\n".repeat(100)).expect("a file");
    let mut seen = 0;
    for (program, args, keys, quit) in
        [("vim", &["-u", "NONE", "text"][..], "", ":q\r"), ("less", &["text"][..], "", "q")]
    {
        if !installed(program, "exec_keeps_a_note_of_a_full_screen") {
            continue;
        }
        let words: Vec<&str> = [SHIM, "exec", "--", program].into_iter().chain(args.iter().copied()).collect();
        let mut pane = Pane::start(&live.home, &words);
        pane.shows("\x1b[");
        eventually("the program's own mode", || (!pane.is_given_back()).then_some(()));
        pane.types(keys);
        // The program may ignore keys until it reads input.
        eventually("its end", || {
            pane.types(quit);
            let ended = pane.try_ends();
            std::thread::park_timeout(std::time::Duration::from_millis(20));
            ended
        });
        assert!(pane.is_given_back(), "{program}");
        seen += 1;
        let kept = waiting(&live);
        assert_eq!(kept.len(), seen, "{kept:?}");
        assert_eq!(lines(&kept[seen - 1])[0], NOTE, "{program}");
    }
    live.kill();
}

#[test]
fn exec_keeps_what_stands_on_the_screen_in_the_end() {
    let live = Live::start();
    // The screen has 80 columns: the long lines take two rows, and the program goes up four to draw both anew.
    let script = r#"
        long=$(printf '%0100d' 0)
        printf '\033]0;title\007%s 1%%\n%s 1%%\n' $long $long
        printf '\033[4A\033[J%s 2%%\n\033[32m%s\033[0m 2%%\n' $long $long
        printf 'N\bNA\bAM\bME\bE _\bx\n10%%\r100%%\n'
        printf '\033Pq#0~~\n~~\033\\\033]8;;http://x\033\\link\033]8;;\033\\\n\033[1;3'
    "#;
    let mut pane = Pane::start(&live.home, &[SHIM, "exec", "--", "sh", "-c", script]);
    assert_eq!(pane.ends(), 0);
    let long = "0".repeat(100);
    let expect = [format!("{long} 2%"), format!("{long} 2%"), "NAME x".into(), "100%".into(), "link".into()];
    assert_eq!(lines(&waiting(&live)[0]), expect);

    // Between pipes nobody knows the width, so that each line is one.
    let output = live
        .home
        .shim(&["exec", "--", "sh", "-c", &script.replace("[4A", "[2A")])
        .current_dir(live.home.beside())
        .output();
    assert!(output.expect("it runs").status.success());
    assert_eq!(lines(&waiting(&live)[1]), expect);

    let file = live.home.beside().join("output");
    for (written, expect) in
        [("a\r\nb\r\n", &["a", "b"][..]), ("10%\r20%\r\r\n\x1b[1mok\x0cx\x1b]0;", &["20%", "ok", "x"])]
    {
        fs::write(&file, written).expect("a file");
        let file = file.to_str().expect("UTF-8");
        tool(&live.home, &["context", "push", "--session", "s", "--cmd", "make", "--output-file", file]);
        assert_eq!(lines(waiting(&live).last().expect("it is there")), expect);
    }
    live.kill();
}

#[test]
fn pager_on_the_ordinary_screen_keeps_its_text() {
    if !installed("less", "pager_on_the_ordinary_screen_keeps_its_text") {
        return;
    }
    let live = Live::start();
    fs::write(live.home.beside().join("text"), "one\ntwo\n").expect("a file");
    // As git starts it.
    let mut pane = Pane::start_with(&live.home, &[SHIM, "exec", "--", "less", "text"], &[("LESS", "FRX")]);
    assert_eq!(pane.ends(), 0);
    assert_eq!(lines(&waiting(&live)[0]), ["one", "two"]);
    live.kill();
}

#[test]
fn exec_stays_small_whatever_is_written() {
    let live = Live::start();
    let mut command =
        live.home.shim(&["exec", "--", "sh", "-c", "head -c 200000000 /dev/zero | tr '\\0' x; echo; echo end"]);
    command.current_dir(live.home.beside()).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    let status = format!("/proc/{}/status", child.id());
    let mut most_kib = 0;
    let ended = eventually("its end", || {
        let told = fs::read_to_string(&status).unwrap_or_default();
        let kib = told.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
        most_kib = most_kib.max(kib.unwrap_or(0u64));
        child.try_wait().expect("it is ours")
    });
    assert!(ended.success());
    assert!(cfg!(not(target_os = "linux")) || (1..60_000).contains(&most_kib), "{most_kib} KiB");
    let kept = waiting(&live);
    assert_eq!(
        (lines(&kept[0]).last().map(String::as_str), &kept[0]["preview"]["truncated"]),
        (Some("end"), &json!(true))
    );
    live.kill();
}

#[test]
fn exec_between_pipes_changes_nothing() {
    let live = Live::start();
    let mut command = live.home.shim(&["exec", "--", "sh", "-c", "cat; echo err >&2; kill -TERM $$"]);
    let mut child = command.current_dir(live.home.beside()).spawn().expect("it starts");
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let mut stdin = child.stdin.take().expect("it is piped");
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("it ends").expect("it is read");
    assert_eq!(output.status.code(), Some(143), "{:?}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == bytes);
    assert_eq!(output.stderr, b"err\n");
    assert!(lines(&waiting(&live)[0])[0].starts_with("[binary output of "));
    live.kill();
}

/// A user without processes, for tests of the process limit, which does not apply to root.
const NOBODY: u32 = 61_237;

#[test]
#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
fn exec_runs_a_command_once_however_little_is_left() {
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: the test of exec without threads: only root can become another");
        return;
    }
    let home = Home::new();
    // A folder that another user can read, wherever the binary was built.
    let (dir, binary) = (home.beside().join("open"), home.beside().join("open/codex-shim"));
    fs::create_dir(&dir).expect("a folder");
    copy_shim(&binary);
    for path in [home.beside(), &dir] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).expect("it is ours");
    }
    // Starts at 1, the command's own process.
    for processes in 1..6 {
        let ran = dir.join(format!("ran-{processes}"));
        fs::write(&ran, "").expect("a file");
        fs::set_permissions(&ran, Permissions::from_mode(0o666)).expect("it is ours");
        // The command waits for a line, so it does not exit before the shim has decided how to run it.
        let script = format!("echo ran >> {}; read -r line; echo $line; exit 7", ran.display());
        let mut command = Command::new(&binary);
        home.adopt(&mut command).args(["exec", "--", "sh", "-c", &script]).uid(NOBODY).gid(NOBODY);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir("/");
        // SAFETY: the closure makes one plain system call, which is async-signal-safe, and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                let limit = rustix::process::Rlimit { current: Some(processes), maximum: Some(processes) };
                Ok(rustix::process::setrlimit(rustix::process::Resource::Nproc, limit)?)
            });
        }
        let mut child = command.spawn().expect("it starts");
        // One line for each time that the command might run.
        let _ = child.stdin.take().expect("it is piped").write_all(b"a\nb\n");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(7), "{processes}: {output:?}");
        assert_eq!(fs::read_to_string(&ran).expect("a file"), "ran\n", "{processes}: {output:?}");
        assert_eq!(output.stdout, b"a\n", "{processes}: {output:?}");
    }
}

#[test]
fn exec_does_not_wait_for_what_a_command_leaves_behind() {
    let live = Live::start();
    let fifo = live.home.beside().join("fifo");
    make_fifo(&fifo);
    let mut command = live.home.shim(&["exec", "--", "sh", "-c", "cat fifo & echo soon"]);
    let mut child = command.current_dir(live.home.beside()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut stdout = child.stdout.take().expect("it is piped");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(lines(&waiting(&live)[0]), ["soon"]);
    // The background process continues as it would without the shim.
    File::options().write(true).open(&fifo).expect("somebody reads").write_all(b"late\n").expect("it is read");
    let mut said = String::new();
    stdout.read_to_string(&mut said).expect("it is text");
    assert_eq!(said, "soon\nlate\n");
    live.kill();
}

#[test]
fn exec_says_once_what_it_could_not_keep_and_changes_no_status() {
    let home = Home::new();
    let run = |args: &[&str]| {
        let words: Vec<&str> = ["exec"].iter().chain(args).copied().collect();
        home.shim(&words).stdin(Stdio::null()).output().expect("it runs")
    };
    let output = run(&["--", "sh", "-c", "echo a; exit 7"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), &*output.stdout), (Some(7), &b"a\n"[..]));
    assert!(told.starts_with("codex-shim: not kept as context: ") && told.lines().count() == 1, "{told}");
    let output = run(&["--private", "--", "sh", "-c", "exit 7"]);
    assert_eq!((output.status.code(), &*output.stderr), (Some(7), &b""[..]));
    let output = run(&["--", "no-such-program"]);
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "codex-shim: no-such-program is not on PATH\n");
    let output = run(&["--private", "--", "no-such-program"]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "codex-shim: no-such-program is not on PATH\n");
}

#[test]
fn secrets_are_masked_before_they_are_kept() {
    let live = Live::start();
    let script = "export MY_TOKEN=abc; echo ghp_0123456789012345678901234567890123456789; true --password hunter2";
    let output = tool(&live.home, &["exec", "--", "sh", "-c", script]);
    assert!(output.status.success(), "{output:?}");
    let kept = waiting(&live)[0].to_string();
    assert!(["=abc", "0123456789", "hunter2"].iter().all(|secret| !kept.contains(secret)), "{kept}");
    let ledger = live.session.join("ledger.db");
    let home = live.kill();
    let bytes =
        [fs::read(&ledger).expect("it is there"), fs::read(ledger.with_extension("db-wal")).unwrap_or_default()];
    assert!(bytes.iter().all(|bytes| memchr::memmem::find(bytes, b"hunter2").is_none()));
    drop(home);
}

// Shell hooks

/// Starts a shell without the startup files of the user who runs the tests.
pub fn bare(shell: &str) -> Vec<&str> {
    match shell {
        "bash" => vec!["bash", "--norc", "-i"],
        "zsh" => vec!["zsh", "-f", "-i"],
        other => vec![other, "-i"],
    }
}

/// Types into a shell as a user would, and checks the kept commands. Only source `shell` has output.
fn check_shell(shell: &str, source: &str, pane: &mut Pane, live: &Live) {
    let run = |pane: &mut Pane, line: &str, mark: &str| {
        pane.types(&format!("{line}\n"));
        pane.shows(mark);
    };
    // The echo of the line differs from its output, so this waits for the output.
    run(pane, "printf 'sh%s\\n' own-1", "shown-1");
    let first = until_last(live, "printf 'sh%s\\n' own-1");
    assert_eq!((&first[0]["source"], &first[0]["exit_code"]), (&json!(source), &json!(0)));
    assert!(first[0]["shell_id"].as_str().is_some_and(|id| id.starts_with(&format!("{shell}-"))), "{first:?}");
    assert_eq!(lines(&first[0]), if source == "shell" { vec!["shown-1"] } else { vec![] });
    run(pane, " printf 'sh%s\\n' own-2", "shown-2");
    let private = if shell == "fish" { "env CODEX_SHIM_PRIVATE=1" } else { "CODEX_SHIM_PRIVATE=1" };
    run(pane, &format!("{private} printf 'sh%s\\n' own-3"), "shown-3");
    run(pane, &format!("{SHIM} --version"), "codex-shim 0.");
    run(pane, "sh -c 'printf \"sh%s é\\n\" own-4; exit 4'", "shown-4");
    let kept = until_last(live, "sh -c 'printf \"sh%s é\\n\" own-4; exit 4'");
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert_eq!(kept[1]["exit_code"], 4);
    // The same line again is another command.
    run(pane, "sh -c 'printf \"sh%s é\\n\" own-4; exit 4'", "shown-4");
    eventually("it again", || (waiting(live).len() == 3).then_some(()));
    let many = match shell {
        "fish" => "for i in 5\nprintf 'sh%s\\n' own-$i\nend",
        // bash keeps the ends of lines only there, unless `lithist` is set.
        "bash" => "i=5; echo \"$(\nprintf 'sh%s\\n' own-$i\n)\"",
        _ => "for i in 5; do\nprintf 'sh%s\\n' own-$i\ndone",
    };
    run(pane, many, "shown-5");
    let kept = eventually("the lines", || Some(waiting(live)).filter(|kept| kept.len() == 4));
    assert_eq!(kept[3]["cmd"], many, "{kept:?}");
    run(pane, "cd / && printf 'sh%s\\n' own-6", "shown-6");
    let kept = eventually("the change of folder", || Some(waiting(live)).filter(|kept| kept.len() == 5));
    assert_ne!(kept[4]["cwd"], "/", "{kept:?}");
    // The duration of a slow command is recorded.
    run(pane, "sleep 0.2; printf 'sh%s\\n' own-7", "shown-7");
    let kept = eventually("the last", || Some(waiting(live)).filter(|kept| kept.len() == 6));
    assert!(kept[5]["duration_ms"].as_u64().is_some_and(|took| took >= 200) && kept[5]["cwd"] == "/", "{kept:?}");
    let shown = pane.shown();
    for noise in ["[1]", "Done", "hooked", "not found", "unbound"] {
        assert!(!shown.contains(noise), "{noise}: {shown}");
    }
    pane.types("exit 0\n");
    pane.ends();
    // fish reports its `exit`, too.
    let kept: Vec<Value> = waiting(live).into_iter().filter(|kept| kept["cmd"] != "exit 0").collect();
    assert_eq!(kept.len(), 6, "{kept:?}");
}

fn check_hook(shell: &str, set_up: &str) {
    if !installed(shell, &format!("hook_of_{shell}")) {
        return;
    }
    let live = Live::start();
    let mut pane = Pane::start(&live.home, &bare(shell));
    let load =
        if shell == "fish" { format!("{SHIM} hook fish | source") } else { format!("eval \"$({SHIM} hook {shell})\"") };
    pane.shows("\u{1b}[?2004h");
    for line in [set_up, &load, &load] {
        pane.types(&format!("{line}; echo lo''aded\n"));
        pane.shows("loaded");
    }
    check_shell(shell, "hook", &mut pane, &live);
    live.end_quietly();
}

#[test]
fn hook_of_bash() {
    check_hook("bash", "set -u; PROMPT_COMMAND='true;'; trap ': $BASH_COMMAND' DEBUG; HISTCONTROL=ignorespace");
}

#[test]
fn hook_of_bash_without_settings_of_the_user() {
    check_hook("bash", "true");
}

#[test]
fn hook_of_zsh() {
    check_hook("zsh", "setopt NO_UNSET HIST_IGNORE_SPACE; precmd() { was=$? }; preexec() { true }");
}

#[test]
fn hook_of_fish() {
    check_hook("fish", "function mine --on-event fish_postexec; true; end");
}

#[test]
fn hook_of_bash_tells_no_line_for_a_private_one() {
    let live = Live::start();
    let mut pane = Pane::start(&live.home, &bare("bash"));
    pane.shows("\u{1b}[?2004h");
    pane.types(&format!("HISTCONTROL=ignoreboth; eval \"$({SHIM} hook bash)\"; echo lo''aded\n"));
    pane.shows("loaded");
    let run = |pane: &mut Pane, line: &str, mark: &str| {
        pane.types(&format!("{line}\n"));
        pane.shows(mark);
    };
    run(&mut pane, "printf 'sh%s\\n' own-1", "shown-1");
    until_last(&live, "printf 'sh%s\\n' own-1");
    // Its last word is that of the line before it.
    run(&mut pane, " printf 'no%s\\n' own-1", "noown-1");
    run(&mut pane, "printf 'sh%s\\n' own-2", "shown-2");
    assert_eq!(until_last(&live, "printf 'sh%s\\n' own-2").len(), 2);
    pane.types("exit 0\n");
    pane.ends();
    assert_eq!(waiting(&live).len(), 2, "{:?}", waiting(&live));
    live.end_quietly();
}

#[test]
fn exec_in_the_background_leaves_the_terminal_to_others() {
    let live = Live::start();
    let mut pane = Pane::start(&live.home, &bare("bash"));
    let beside = |name: &str| live.home.beside().join(name);
    let is_there = |name: &str| eventually(name, || beside(name).exists().then_some(()));
    let named = |name: &str| beside(name).display().to_string();
    pane.shows("\u{1b}[?2004h");
    pane.types(&format!("{SHIM} exec -- touch {} &\n", named("of-background")));
    is_there("of-background");
    let waits = format!("touch {}; until [ -e {} ]; do sleep 0.05; done; touch {}", named("a"), named("b"), named("c"));
    // Not dash: if the stop signal arrives in `vfork`, it does not stop.
    pane.types(&format!("{SHIM} exec -- bash -c '{waits}'\n"));
    is_there("a");
    pane.types("\u{1a}");
    pane.shows("Stopped");
    pane.types(&format!("bg; touch {}\n", named("b")));
    is_there("c");
    pane.types("wait; echo wa''ited; exit 0\n");
    pane.shows("waited");
    pane.ends();
    live.kill();
}

#[test]
fn hook_leaves_what_a_prompt_sees_as_it_was() {
    let live = Live::start();
    let mut pane = Pane::start(&live.home, &bare("bash"));
    pane.types(&format!("eval \"$({SHIM} hook bash)\"\n"));
    pane.types("PS1='<${?}:$!>'; PROMPT_COMMAND+=$'\\n''echo pc=$?'; echo re''ady\n");
    pane.shows("ready");
    pane.types("sleep 1000 & was=$!\n");
    pane.types("false\n");
    pane.shows("pc=1");
    pane.types("[ $! = $was ] && echo sa''me\n");
    pane.shows("same");
    pane.types("kill %1; exit\n");
    live.kill();
}

#[test]
fn shell_keeps_the_output_of_each_command() {
    for shell in ["bash", "zsh", "fish"] {
        if !installed(shell, "shell_keeps_the_output_of_each_command") {
            continue;
        }
        let live = Live::start();
        let rc = live.home.beside().join(if shell == "zsh" { ".zshrc" } else { ".bashrc" });
        // The output of a prompt command does not belong to the command before it.
        fs::write(rc, "PS1='$ '; HISTCONTROL=ignorespace; PROMPT_COMMAND='echo of-prompt'\n").expect("a file");
        let mut pane = Pane::start(&live.home, &[SHIM, "shell", shell]);
        pane.shows("\u{1b}[?2004h");
        check_shell(shell, "shell", &mut pane, &live);
        assert!(pane.is_given_back());
        live.end_quietly();
    }
}

// watch-pty

fn begin(id: &str, cmd: &str) -> String {
    let block =
        json!({"block_id": id, "ts_begin": 1_768_000_000_000_i64, "cwd": "/p", "cmd": cmd, "status": "running"});
    json!({"type": "agent_block_begin", "conversation_id": "C", "block": block}).to_string() + "\n"
}

fn end(id: &str) -> String {
    let block = json!({"block_id": id, "exit_code": 0, "ts_end": 1_768_000_000_421_i64, "status": "completed"});
    json!({"type": "agent_block_end", "conversation_id": "C", "block": block}).to_string() + "\n"
}

fn append(path: &Path, text: &str) {
    let mut file = File::options().append(true).create(true).open(path).expect("it opens");
    file.write_all(text.as_bytes()).expect("it is written");
}

#[test]
fn watch_pty_keeps_each_block_once() {
    let live = Live::start();
    let events = live.home.beside().join("events.jsonl");
    let path = events.to_str().expect("UTF-8");
    let printed = live.home.beside().join("printed");
    let watch = || {
        let mut command = live.home.shim(&["watch-pty", "--json", path]);
        let printed = File::create(&printed).expect("a file");
        command.current_dir(live.home.beside()).stdout(printed).stderr(Stdio::null()).spawn().expect("it starts")
    };
    append(&events, &(begin("user:1:1", "one") + &end("user:1:1") + &begin("C:9:9", "agents") + &end("C:9:9")));
    let mut first = watch();
    until_last(&live, "one");
    // An incomplete line waits for its rest.
    let whole = end("user:2:2");
    let (half, rest) = whole.split_at(40);
    append(&events, &(begin("user:2:2", "two") + half));
    append(&events, rest);
    until_last(&live, "two");
    // The file is truncated, and later replaced.
    fs::write(&events, begin("user:3:3", "three") + &end("user:3:3")).expect("a file");
    until_last(&live, "three");
    fs::rename(&events, events.with_extension("old")).expect("it moves");
    append(&events, &(begin("user:4:4", "four") + &end("user:4:4")));
    until_last(&live, "four");
    let text = eventually("what is printed", || {
        fs::read_to_string(&printed).ok().filter(|text| text.ends_with('\n') && text.lines().count() == 4)
    });
    let printed: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(names(&json!({ "commands": printed })), ["one", "two", "three", "four"]);
    assert_eq!((&printed[0]["block_id"], &printed[0]["duration_ms"]), (&json!("user:1:1"), &json!(421)));
    first.kill().and_then(|()| first.wait()).expect("it ends");
    // A second run skips the kept blocks, and keeps those added meanwhile.
    append(&events, &(begin("user:5:5", "five") + &end("user:5:5")));
    let mut second = watch();
    let kept = until_last(&live, "five");
    second.kill().and_then(|()| second.wait()).expect("it ends");
    assert_eq!(names(&json!({ "commands": kept })), ["one", "two", "three", "four", "five"]);
    assert_eq!((&kept[0]["source"], &kept[0]["duration_ms"]), (&json!("watch-pty"), &json!(421)));
    live.end_quietly();
}

/// Events that cannot be kept, each for a different reason, and the field that the message names.
fn impossible() -> Vec<(String, &'static str)> {
    let at = |ts: i64| begin("user:8:1", "when").replace("1768000000000", &ts.to_string()) + &end("user:8:1");
    let named = |id: &str, cmd: &str| begin(id, cmd) + &end(id);
    vec![
        (at(1_768_000_000_000_000), "`ts`"),
        (named(&format!("user:{}", "8".repeat(200)), "long"), "`block_id`"),
        (named("user:8:2", "nul\0"), "`cmd`"),
        (named("user:8:3", "\u{7}\u{7}"), "`cmd`"),
        (named("user:8:4", &(" ".repeat(2_000) + "late")), "`cmd`"),
    ]
}

#[test]
fn watch_pty_goes_on_after_what_cannot_be_kept_and_says_so() {
    let live = Live::start();
    for (number, (bad, told)) in impossible().into_iter().enumerate() {
        let file = live.home.beside().join(format!("events-{number}.jsonl"));
        let (id, cmd) = (format!("user:9:{number}"), format!("after-{number}"));
        append(&file, &(bad + &begin(&id, &cmd) + &end(&id)));
        let said = live.home.beside().join(format!("said-{number}"));
        let mut command = live.home.shim(&["watch-pty", file.to_str().expect("UTF-8")]);
        let stderr = File::create(&said).expect("a file");
        let mut watch = command.current_dir(live.home.beside()).stderr(stderr).spawn().expect("it starts");
        until_last(&live, &cmd);
        let said = eventually("a reason", || fs::read_to_string(&said).ok().filter(|said| said.ends_with('\n')));
        assert!(
            said.starts_with("codex-shim: ") && said.contains(told) && said.contains("skipped an invalid command"),
            "{said}"
        );
        watch.kill().and_then(|()| watch.wait()).expect("it ends");
    }
    assert_eq!(live.waiting(), ["after-0", "after-1", "after-2", "after-3", "after-4"]);
    live.end_quietly();
}

#[test]
fn watch_pty_keeps_commands_that_are_longer_than_is_kept() {
    let live = Live::start();
    let events = live.home.beside().join("events.jsonl");
    let long = format!("echo {}", "\u{e9}".repeat(50_000));
    let many: String = (0..30).map(|n| begin(&format!("user:1:{n}"), &long) + &end(&format!("user:1:{n}"))).collect();
    append(&events, &(many + &begin("user:2:2", "last") + &end("user:2:2")));
    let mut command = live.home.shim(&["watch-pty", events.to_str().expect("UTF-8")]);
    let mut watch = command.current_dir(live.home.beside()).spawn().expect("it starts");
    let kept = until_last(&live, "last");
    assert_eq!(kept[0]["cmd"].as_str().map(str::len), Some(1_023), "the bound is no boundary of a character");
    watch.kill().and_then(|()| watch.wait()).expect("it ends");
    live.end_quietly();
}

#[test]
fn a_relay_goes_on_after_what_cannot_be_kept_and_says_so() {
    let home = Home::new();
    let events = home.beside().join("events.jsonl");
    fs::create_dir_all(home.path()).expect("a folder");
    fs::write(home.path().join("config.toml"), format!("agent_pty = {events:?}\n")).expect("a file");
    let live = Live::start_in(home);
    for (number, (bad, _)) in impossible().into_iter().enumerate() {
        let (id, cmd) = (format!("user:9:{number}"), format!("after-{number}"));
        append(&events, &(bad + &begin(&id, &cmd) + &end(&id)));
        until_last(&live, &cmd);
    }
    let faults = eventually("a fault", || {
        Some(live.get("/sessions/self")["faults"].to_string())
            .filter(|faults| faults.contains("skipped an invalid command"))
    });
    let (_, stderr) = live.end();
    assert!(stderr.contains("skipped an invalid command") && stderr.contains("relaying goes on"), "{stderr}\n{faults}");
}

#[test]
fn watch_pty_is_a_setting_too_and_names_its_tools() {
    let home = Home::new();
    let events = home.beside().join("events.jsonl");
    fs::create_dir_all(home.path()).expect("a folder");
    fs::write(home.path().join("config.toml"), format!("agent_pty = {events:?}\nagent_pty_all = true\n"))
        .expect("a file");
    let mut live = Live::start_in(home);
    append(&events, &(begin("C:1:1", "one") + &end("C:1:1")));
    until_last(&live, "one");
    let sent = turn(1, "t", "hi");
    let shown = envelope(&carried(&live.send(&sent), &sent));
    assert_eq!(shown["conversation_id"], "C");
    assert_eq!(shown["mcp"], json!(["pty_read_screen", "pty_read_scrollback"]));
    assert_eq!(shown["commands"][0]["block_id"], "C:1:1");
    live.take_turn(1);
    live.end_quietly();
}

// With the real codex

#[test]
fn e2e_what_is_typed_beside_the_client_is_seen_by_the_model_alone() {
    let test = "e2e_what_is_typed_beside_the_client_is_seen_by_the_model_alone";
    let Some(mut real) = Real::start(test, "", vec![says()]) else { return };
    let mut pane = Pane::start(&real.home, &[SHIM, "shell", "bash"]);
    pane.shows("\u{1b}[?2004h");
    pane.types("printf 'sh%s\\n' own-by-hand\n");
    pane.shows("shown-by-hand");
    eventually("the command as context", || {
        let waiting = real.get("/sessions/self/context");
        waiting["commands"].as_array().is_some_and(|commands| commands.len() == 1).then_some(())
    });
    let thread = real.thread.clone();
    start_turn(&mut real.peer, &thread, "what did I do?");
    real.completed("completed");
    let asked = serde_json::to_string(&real.model.requests()).expect("it is JSON");
    assert!(asked.contains("own-by-hand") && asked.contains("shown-by-hand"), "{asked}");
    let (seen, _) = real.peer.finish();
    let seen = serde_json::to_string(&seen).expect("it is JSON");
    assert!(seen.contains("what did I do?"), "{seen}");
    for trace in ["own-by-hand", "shown-by-hand", "CODEX_META"] {
        assert!(!seen.contains(trace), "{trace}: {seen}");
    }
}
