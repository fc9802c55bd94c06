//! Shell hooks in the states that a shell can be in. Each row types keys into a real terminal; the hook reports exactly the
//! commands that ran, as they were typed, or nothing, and prints nothing that the shell does not print without it.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::capture::{bare, installed, waiting};
use crate::capture_beside::plain;
use crate::support::both_ends::{Live, names};
use crate::support::pane::Pane;
use crate::support::shim::{SHIM, copy_shim};
use crate::support::{eventually, make_fifo};
use serde_json::json;

/// The prompts. No typed line contains them.
const PROMPT: &str = "@@>";
const SECOND_PROMPT: &str = "2@>";

/// Opens the line in an editor (edit-and-execute-command).
const EDIT: &str = "\u{18}\u{5}";

/// Keys, the prompts that they lead to, and the commands that the hook must report for them.
struct Step {
    keys: String,
    until: Vec<&'static str>,
    reported: Vec<String>,
    /// The next keys come once the reports so far have arrived. The processes that send them run beside the shell.
    arrives: bool,
}

impl Step {
    /// The same in a state in which nothing is certain.
    fn kept_out(self) -> Step {
        Step { reported: Vec::new(), ..self }
    }

    fn arrived(self) -> Step {
        Step { arrives: true, ..self }
    }
}

/// A line that is reported as it is typed.
fn seen(line: &str) -> Step {
    keys(&format!("{line}\n"), &[PROMPT], &[line])
}

/// A line that is not reported.
fn unseen(line: &str) -> Step {
    keys(&format!("{line}\n"), &[PROMPT], &[])
}

fn keys(keys: &str, until: &[&'static str], reported: &[&str]) -> Step {
    let reported = reported.iter().map(|line| (*line).to_owned()).collect();
    Step { keys: keys.to_owned(), until: until.to_vec(), reported, arrives: false }
}

/// Several lines in one paste of a terminal that marks pastes.
fn pasted(lines: &str) -> String {
    format!("\u{1b}[200~{lines}\u{1b}[201~\n")
}

/// A shell in some state, after the hook is loaded.
struct State {
    name: &'static str,
    steps: Vec<Step>,
    /// The end of the message that the hook must print, once.
    said: Option<&'static str>,
}

fn state(name: &'static str, steps: Vec<Step>) -> State {
    State { name, steps, said: None }
}

impl State {
    fn says(self, said: &'static str) -> State {
        State { said: Some(said), ..self }
    }

    fn check(&self, shell: &str, live: &Live) {
        let had = waiting(live).len();
        let program = program_in(live);
        let alone = self.shown(shell, live, None);
        assert_eq!(waiting(live).len(), had, "{}: no hook was loaded", self.name);
        let beside = self.shown(shell, live, Some(&program));
        let messages = beside.concat().matches("codex-shim: ").count();
        assert_eq!(messages, usize::from(self.said.is_some()), "{}: {beside:#?}", self.name);
        for (index, step) in self.steps.iter().enumerate() {
            assert!(!beside[index].contains("__codex_shim"), "{}: {}", self.name, beside[index]);
            // What is typed ahead is echoed once or twice.
            if !step.keys.trim_end().contains('\n') && !step.keys.contains(EDIT) {
                assert_eq!(self.without_message(&beside[index]), alone[index], "{}: {:?}", self.name, step.keys);
            }
        }
        let mut reported = names(&json!({ "commands": waiting(live).split_off(had) }));
        let mut expect: Vec<String> = self.steps.iter().flat_map(|step| step.reported.clone()).collect();
        // A process of its own reports each line.
        reported.sort();
        expect.sort();
        assert_eq!(reported, expect, "{}", self.name);
    }

    /// Removes the message, which must be a line between the typed line and what it printed.
    fn without_message(&self, shown: &str) -> String {
        let Some(said) = self.said else { return shown.to_owned() };
        let mut lines: Vec<&str> = shown.split('\n').collect();
        if lines.get(1).is_some_and(|line| line.starts_with("codex-shim: ") && line.trim_end().ends_with(said)) {
            lines.remove(1);
        }
        lines.join("\n")
    }

    /// Types the steps, with the hook of a program or without one; returns the output of each once every process of the shell
    /// has ended.
    fn shown(&self, shell: &str, live: &Live, program: Option<&PathBuf>) -> Vec<String> {
        let processes = Processes::watch(live);
        let fifo = processes.fifo.display().to_string();
        let words = [&["sh", "-c", "exec 9>\"$0\"; exec \"$@\"", &fifo][..], &bare(shell)].concat();
        let variables = [("ZDOTDIR", live.home.beside().display().to_string())];
        let mut pane =
            Pane::start_with(&live.home, &words, &variables.each_ref().map(|(name, value)| (*name, &**value)));
        pane.resize(24, 1_000);
        let private = if shell == "zsh" { " setopt HIST_IGNORE_SPACE" } else { " HISTFILE= HISTCONTROL=ignorespace" };
        let load = program.map(|program| format!(" eval \"$('{}' hook {shell})\"", program.display()));
        let prompts = " PS1='@''@>' PS2='2''@>' PROMPT_EOL_MARK=".to_owned();
        pane.shows("\u{1b}[?2004h");
        for line in
            [prompts, private.to_owned(), load.unwrap_or_else(|| " true".to_owned()), " echo set-''up".to_owned()]
        {
            pane.types(&format!("{line}\n"));
            pane.shows(if line.ends_with("up") { "set-up" } else { PROMPT });
        }
        pane.shows(PROMPT);
        let (mut shown, mut expected) = (Vec::new(), waiting(live).len());
        for step in &self.steps {
            pane.types(&step.keys);
            shown.push(plain(&step.until.iter().map(|prompt| pane.shows(prompt)).collect::<String>()));
            expected += step.reported.len();
            if step.arrives && program.is_some() {
                eventually("the reports", || (waiting(live).len() == expected).then_some(()));
            }
        }
        pane.types(" exit 0\n");
        pane.ends();
        processes.end();
        shown
    }
}

/// A codex-shim that a shell can move.
fn program_in(live: &Live) -> PathBuf {
    let program = live.home.beside().join("p/codex-shim");
    if !program.exists() {
        fs::create_dir_all(program.parent().expect("a folder")).expect("a folder");
        copy_shim(&program);
    }
    program
}

/// Waits for the end of a shell and of everything that it has started: all of them hold one end of a FIFO.
struct Processes {
    fifo: PathBuf,
    reader: std::thread::JoinHandle<std::io::Result<Vec<u8>>>,
}

impl Processes {
    fn watch(live: &Live) -> Processes {
        let fifo = tempfile::tempdir_in(live.home.beside()).expect("a folder").keep().join("open");
        make_fifo(&fifo);
        let reader = std::thread::spawn({
            let fifo = fifo.clone();
            move || fs::read(fifo)
        });
        Processes { fifo, reader }
    }

    fn end(self) {
        eventually("the end of each process of the shell", || self.reader.is_finished().then_some(()));
    }
}

fn check(shell: &str, test: &str, states: Vec<State>) {
    if !installed(shell, test) {
        return;
    }
    let live = Live::start();
    for (name, text) in [("edits", "echo edited"), ("empties", ""), ("edits-privately", " echo edited")] {
        let editor = live.home.beside().join(name);
        fs::write(&editor, format!("#!/bin/sh\necho '{text}' > \"$1\"\n")).expect("a file");
        fs::set_permissions(&editor, fs::Permissions::from_mode(0o700)).expect("it is ours");
    }
    for state in states {
        state.check(shell, &live);
    }
    live.kill();
}

// bash

fn check_bash(test: &str, states: Vec<State>) {
    check("bash", test, states);
}

#[test]
fn bash_settings_that_keep_lines_out_hide_no_other() {
    let ignored = "HISTCONTROL=ignoredups HISTIGNORE='ls*'";
    let erased = "HISTCONTROL=ignorespace:ignoredups:erasedups";
    check_bash(
        "bash_settings_that_keep_lines_out_hide_no_other",
        vec![
            state(
                "ignoreboth",
                vec![
                    seen("HISTCONTROL=ignoreboth"),
                    seen("echo one"),
                    unseen(" echo private"),
                    unseen("echo one"),
                    seen("echo two"),
                ],
            ),
            state(
                "ignoredups",
                vec![
                    seen("HISTCONTROL=ignoredups"),
                    seen("echo one"),
                    seen("echo one"),
                    unseen(" echo one"),
                    seen("true one"),
                ],
            ),
            state(
                "erasedups",
                vec![seen(erased), seen("echo one"), seen("echo two"), seen("echo one"), unseen("echo one")],
            ),
            state(
                "HISTIGNORE",
                vec![
                    seen("HISTIGNORE='ls*:&'"),
                    unseen("ls -d /"),
                    seen("echo /"),
                    unseen("ls -d / /"),
                    unseen("echo /"),
                    seen("true /"),
                ],
            ),
            state(
                "HISTIGNORE and ignoredups",
                vec![seen(ignored), seen("echo /"), unseen("ls -d /"), unseen("echo /"), seen("true")],
            ),
            state(
                "HISTTIMEFORMAT",
                vec![seen("HISTTIMEFORMAT='%s '"), seen("echo one"), seen("readonly HISTTIMEFORMAT")],
            ),
            state(
                "off",
                vec![
                    seen("set +o history"),
                    unseen("echo off"),
                    unseen("set -o history"),
                    seen("echo on"),
                    seen("echo on"),
                ],
            ),
            state(
                "HISTSIZE",
                vec![
                    seen("HISTSIZE=0"),
                    unseen("echo none"),
                    unseen("HISTSIZE=1"),
                    seen("echo one"),
                    unseen(" echo private"),
                    seen("echo two"),
                    seen("echo two"),
                ],
            ),
            state("no names", vec![seen("enable -n fc"), unseen("echo one")]),
        ],
    );
}

#[test]
fn bash_history_that_is_changed_by_hand_is_no_record() {
    let shared = "HISTFILE=~/shared; PROMPT_COMMAND='history -a; history -n'";
    check_bash(
        "bash_history_that_is_changed_by_hand_is_no_record",
        vec![
            state(
                "history",
                vec![
                    seen("history -s evil"),
                    unseen(" echo private"),
                    seen("history -d 1; echo one"),
                    seen("history -s a; history -c; history -s b"),
                    unseen(" echo private"),
                    seen("history -c"),
                    seen("echo first"),
                    seen("fc -s first=second"),
                    keys("echo !!\n", &[PROMPT], &["echo echo second"]),
                    seen("trap 'history -s trapped' DEBUG"),
                    seen("echo one"),
                    unseen(" echo private"),
                ],
            ),
            state(
                "files",
                vec![
                    seen("echo 'echo of-another' > other"),
                    seen("history -r other; echo one"),
                    unseen(" echo private"),
                    seen(shared),
                    seen("echo 'echo of-another' >> shared"),
                    seen("true"),
                    unseen(" echo private"),
                    seen("PROMPT_COMMAND='history -n'; echo 'echo of-another' >> shared"),
                    unseen(" echo private"),
                    seen("echo end"),
                ],
            ),
        ],
    );
}

#[test]
fn bash_editor_in_the_prompt_reports_no_other_command() {
    let test = "bash_editor_in_the_prompt_reports_no_other_command";
    let with = |editor: &str| unseen(&format!(" EDITOR=~/{editor} VISUAL=~/{editor}"));
    check_bash(
        test,
        vec![
            state(
                "alone",
                vec![
                    with("edits"),
                    keys(EDIT, &[PROMPT], &[]),
                    unseen(" echo private"),
                    keys(EDIT, &[PROMPT], &[]),
                    seen("echo one"),
                    keys(&format!("abc{EDIT}"), &[PROMPT], &[]),
                    unseen(" echo private"),
                    seen("echo one"),
                ],
            ),
            state(
                "before lines that are kept out",
                vec![
                    with("edits"),
                    unseen(" shopt -s lithist"),
                    keys(EDIT, &[PROMPT], &[]),
                    keys(" for i in 1\n", &[SECOND_PROMPT], &[]),
                    keys("do echo $i; done\n", &[PROMPT], &[]),
                    seen("echo one"),
                ],
            ),
            state(
                "between lines",
                ["edits", "empties", "edits-privately"]
                    .into_iter()
                    .flat_map(|editor| {
                        vec![
                            with(editor),
                            unseen(" shopt -s lithist"),
                            keys("for i in 1\n", &[SECOND_PROMPT], &[]),
                            keys(&format!("true{EDIT}"), &[SECOND_PROMPT], &[]),
                            keys("do echo $i; done\n", &[PROMPT], &[]),
                            unseen(" echo private"),
                            seen("echo one"),
                        ]
                    })
                    .collect(),
            ),
        ],
    );
}

#[test]
fn bash_pastes_are_reported_as_typed_or_not() {
    let test = "bash_pastes_are_reported_as_typed_or_not";
    let twice = [PROMPT, PROMPT];
    let lines = "for i in a # c\ndo echo $i\ndone";
    check_bash(
        test,
        vec![
            state(
                "commands",
                vec![
                    keys("echo one\necho two\n", &twice, &["echo one", "echo two"]),
                    keys("echo one\n echo private\n", &twice, &["echo one"]),
                    // There is no prompt between, so nothing says how the first one ended.
                    keys(&pasted("echo one\necho two"), &[PROMPT], &["echo two"]),
                    keys(&pasted("echo one\n echo private"), &[PROMPT], &[]),
                    seen("echo end"),
                ],
            ),
            state(
                "lines that bash joins",
                vec![
                    keys(&format!("{lines}\n"), &[PROMPT], &[]),
                    keys("x=(1\n2 # two\n3)\n", &[PROMPT], &[]),
                    keys("((\n1 +\n2))\n", &[PROMPT], &[]),
                    keys("echo a \\\nb\n", &[PROMPT], &[]),
                    keys("cat <<E |\na\nE\ncat\n", &[PROMPT], &[]),
                    keys("cat <<E\na  b\nE\n", &[PROMPT], &["cat <<E\na  b\nE"]),
                    keys("echo 'a\n b'\n", &[PROMPT], &[]),
                    keys("echo 'a\nb'\n", &[PROMPT], &["echo 'a\nb'"]),
                ],
            ),
            state(
                "lithist",
                vec![
                    seen("shopt -s lithist"),
                    keys(&format!("{lines}\n"), &[PROMPT], &[lines]),
                    keys(&format!(" {lines}\n"), &[PROMPT], &[]),
                    keys(&pasted("for i in b\ndo\n echo $i\ndone"), &[PROMPT], &["for i in b\ndo\n echo $i\ndone"]),
                    keys("echo a \\\nb\n", &[PROMPT], &[]),
                ],
            ),
            state(
                "no cmdhist",
                vec![
                    seen("shopt -u cmdhist"),
                    seen("echo one"),
                    keys(&format!("{lines}\n"), &[PROMPT], &[]),
                    keys("cat <<E\na\nE\n", &[PROMPT], &[]),
                ],
            ),
            state(
                "broken off",
                vec![
                    seen("HISTCONTROL=ignoredups; shopt -s lithist"),
                    keys("for i in 1\n", &[SECOND_PROMPT], &[]),
                    keys("\u{3}", &[PROMPT], &[]),
                    keys("for i in 1\n", &[SECOND_PROMPT], &[]),
                    keys("do echo $i; done\n", &[PROMPT], &[]),
                    unseen("for )"),
                    unseen("# a comment"),
                    seen("echo end"),
                ],
            ),
        ],
    );
}

/// Commands that need only builtins.
fn plain_lines() -> Vec<Step> {
    vec![seen("echo one"), unseen(" echo private"), seen("echo 'a  b'"), unseen("")]
}

fn after(set_up: &str) -> Vec<Step> {
    let mut steps = plain_lines();
    steps.insert(0, unseen(&format!(" {set_up}")));
    steps
}

#[test]
fn bash_states_leave_the_hook_silent_and_exact() {
    let functions = "builtin() { echo B; }; fc() { echo F; }; printf() { echo P; }; history() { echo H; }; command() { echo C; }; \
                     shopt() { echo O; }; trap() { echo T; }";
    check_bash(
        "bash_states_leave_the_hook_silent_and_exact",
        vec![
            state("functions", after(functions)),
            state("a function `unset`", after("builtin() { echo B; }; unset() { echo U; }; set() { echo S; }")),
            state("aliases", after("alias fc='echo F' builtin='echo B' unset='echo U' set='echo S' trap='echo T'")),
            state("options", after("set -u; set -f; set -C; IFS=-12; shopt -s nullglob failglob nocasematch extglob")),
            state("posix", after("set -o posix")),
            state("no numbers", after("unset HISTCMD LINENO; set -u").into_iter().map(Step::kept_out).collect()),
            state("nothing to find", after("PATH=; unset HOME")),
            state("no folder", after("mkdir gone; cd gone; rmdir ../gone")),
            state("stdout to a file", after("exec >out")),
            state("no stdout", after("exec >&-")),
            state("LC_ALL", after("LC_ALL=C")),
            state(
                "PS0 that cannot be put back",
                vec![seen("PS0=; readonly PS0"), unseen("echo one"), unseen("echo two")],
            ),
            state("no promptvars", vec![unseen("shopt -u promptvars"), unseen("echo one"), unseen("echo two")]),
            state("a string", after("export PROMPT_COMMAND='true; true'")),
        ],
    );
}

#[test]
fn bash_says_once_that_it_has_stopped() {
    check_bash(
        "bash_says_once_that_it_has_stopped",
        vec![
            state(
                "the program is gone for a while",
                vec![
                    seen("echo one").arrived(),
                    // With a blank: a report that starts late would find the program that is back.
                    unseen(" mv p/codex-shim away"),
                    unseen("echo gone"),
                    unseen("echo gone again"),
                    unseen("mv away p/codex-shim"),
                    seen("echo back"),
                ],
            )
            .says("codex-shim is gone; this shell is not recorded without it"),
            state("restricted", vec![seen("echo one"), unseen("set -r"), unseen("echo two"), unseen("echo three")])
                .says("a restricted shell cannot start codex-shim; this shell is not recorded any more"),
        ],
    );
}

#[test]
fn restricted_bash_says_once_that_it_is_not_recorded() {
    let live = Live::start();
    let rc = format!("PS1='@''@>'; eval \"$('{SHIM}' hook bash)\"\n");
    fs::write(live.home.beside().join(".bashrc"), rc).expect("a file");
    // bash is not restricted until it has read its startup file.
    let mut pane = Pane::start(&live.home, &["bash", "-r", "-i"]);
    pane.shows(PROMPT);
    for (line, expect) in [("echo one", "codex-shim: a restricted shell"), ("echo two", "two\r\n"), ("", "")] {
        pane.types(&format!("{line}\n"));
        let shown = plain(&pane.shows(PROMPT));
        assert!(shown.contains(&plain(expect)), "{shown}");
    }
    let shown = plain(&pane.shown());
    assert_eq!((shown.matches("codex-shim: ").count(), shown.matches("restricted").count()), (1, 1), "{shown}");
    pane.types("exit 0\n");
    pane.ends();
    assert!(waiting(&live).is_empty(), "{:?}", waiting(&live));
    live.kill();
}

// zsh

#[test]
fn zsh_reports_what_ran_whatever_its_history_has() {
    let test = "zsh_reports_what_ran_whatever_its_history_has";
    let bind = "EDITOR=~/edits VISUAL=~/edits; autoload -U edit-command-line; zle -N edit-command-line; bindkey '^X^E' edit-command-line";
    let lines = "for i in 1\ndo echo $i\ndone";
    let history = vec![
        seen("setopt hist_ignore_all_dups hist_no_functions hist_no_store"),
        seen("echo one"),
        seen("echo one"),
        unseen(" echo private"),
        seen("print -s evil"),
        seen("fc -p"),
        seen("echo two"),
        seen("HISTSIZE=0 SAVEHIST=0"),
        seen("echo three"),
        seen("zshaddhistory() { return 1 }"),
        seen("echo four"),
        seen("setopt no_bang_hist; unset HISTFILE HISTSIZE HISTCHARS"),
        seen("echo five"),
    ];
    let pastes = vec![
        keys("echo one\necho two\n", &[PROMPT, PROMPT], &["echo one", "echo two"]),
        keys(&pasted("echo one\necho two"), &[PROMPT], &["echo one\necho two"]),
        keys(&format!("{lines}\n"), &[PROMPT], &[lines]),
        unseen(&format!(" {bind}")),
        keys(&format!("abc{EDIT}"), &["echo edited"], &[]),
        keys("\n", &[PROMPT], &["echo edited"]),
        unseen(" echo private"),
        seen("echo end"),
    ];
    check("zsh", test, vec![state("history", history), state("pastes", pastes)]);
}

#[test]
fn zsh_states_leave_the_hook_silent_and_exact() {
    let functions =
        "print() { echo P }; trap() { echo T }; typeset() { echo T }; local() { echo L }; return() { echo R }";
    let states = vec![
        state("functions", after(functions)),
        state("a function `builtin`", after("builtin() { echo B }").into_iter().map(Step::kept_out).collect()),
        state("aliases", after("alias builtin='echo B' print='echo P' local='echo L'; alias -g return=R")),
        state("options", after("setopt no_unset ksh_arrays sh_word_split no_nomatch no_clobber warn_create_global")),
        state("sh", after("emulate sh")),
        state("nothing to find", after("PATH=; unset HOME")),
        state("no folder", after("mkdir gone; cd gone; rmdir ../gone")),
        state("stdout to a file", after("exec >out")),
        state("no stdout", after("exec >&-")),
        state("no stderr", after("exec 2>&-")),
        state(
            "the program is gone for a while",
            vec![
                seen("echo one").arrived(),
                // With a blank: a report that starts late would find the program that is back.
                unseen(" mv p/codex-shim away"),
                unseen("echo gone"),
                unseen("echo gone again"),
                unseen("mv away p/codex-shim"),
                seen("echo back"),
            ],
        )
        .says("codex-shim is gone; this shell is not recorded without it"),
        state(
            "restricted",
            vec![seen("echo one"), unseen("setopt restricted"), unseen("echo two"), unseen("echo three")],
        )
        .says("a restricted shell cannot start codex-shim; this shell is not recorded any more"),
    ];
    check("zsh", "zsh_states_leave_the_hook_silent_and_exact", states);
}

// fish, which draws its line more than once

#[test]
fn fish_reports_each_line_and_says_once_that_it_has_stopped() {
    if !installed("fish", "fish_reports_each_line_and_says_once_that_it_has_stopped") {
        return;
    }
    let live = Live::start();
    let program = program_in(&live);
    let processes = Processes::watch(&live);
    let fifo = processes.fifo.display().to_string();
    let mut pane = Pane::start(&live.home, &["sh", "-c", "exec 9>\"$0\"; exec \"$@\"", &fifo, "fish", "-i"]);
    pane.shows("\u{1b}[?2004h");
    let load = format!(" {} hook fish | source", program.display());
    let both = "for i in 1\necho sh''own-2\nend";
    let lines = [
        (load.as_str(), None),
        ("echo sh''own-1", Some("shown-1")),
        (both, Some("shown-2")),
        ("mkdir gone; cd gone; rmdir ../gone; echo sh''own-3", Some("shown-3")),
        ("cd ..; cd ~; mv p/codex-shim away; echo sh''own-4", Some("shown-4")),
        ("echo sh''own-5", Some("codex-shim is gone; this shell is not recorded without it")),
        ("echo sh''own-6", Some("shown-6")),
        ("mv away p/codex-shim; echo sh''own-7", Some("shown-7")),
        ("set -e HOME; set PATH; echo sh''own-8", Some("shown-8")),
    ];
    let arrived = |line: &str| {
        eventually("a report", || {
            names(&json!({ "commands": waiting(&live) })).contains(&line.to_owned()).then_some(())
        });
    };
    for (index, (line, shown)) in lines.iter().enumerate() {
        // The process that reports a line runs beside the shell, and needs the program.
        if line.contains("mv p/") {
            arrived(lines[index - 1].0);
        }
        pane.types(&format!("{}\r", line.replace('\n', "\r")));
        shown.iter().for_each(|shown| drop(pane.shows(shown)));
    }
    // fish may end before it starts the process for its last line, and takes one along that has just been started.
    [7, 8].into_iter().for_each(|index| arrived(lines[index].0));
    pane.types(" exit 0\r");
    pane.ends();
    processes.end();
    let shown = pane.shown();
    assert_eq!(shown.matches("codex-shim: ").count(), 1, "{shown}");
    assert!(!shown.contains("Unknown command") && !shown.contains("__codex_shim"), "{shown}");
    let mut reported = names(&json!({ "commands": waiting(&live) }));
    reported.sort();
    let mut expect: Vec<&str> = [1, 2, 3, 7, 8].map(|index| lines[index].0).to_vec();
    expect.sort_unstable();
    assert_eq!(reported, expect);
    live.kill();
}

#[test]
fn report_that_has_begun_outlives_its_shell() {
    if !PathBuf::from("/proc/self/status").exists() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: report_that_has_begun_outlives_its_shell: there is no /proc");
        return;
    }
    let live = Live::start();
    let mut report = live.home.shim(&["hooked", "zsh", "--exit-code", "0", "--key", "1.1", "--cwd"]);
    let mut report = report.arg(live.home.beside()).stdin(Stdio::piped()).spawn().expect("the shim starts");
    // Now it waits for its line.
    eventually("a report that ignores the end of its shell", || {
        let status = fs::read_to_string(format!("/proc/{}/status", report.id())).ok()?;
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        (u64::from_str_radix(ignored.trim(), 16).ok()? & 1 == 1).then_some(())
    });
    let hung_up = Command::new("kill").args(["-HUP", &report.id().to_string()]).status().expect("kill runs");
    assert!(hung_up.success());
    report.stdin.take().expect("it is piped").write_all(b"echo late").expect("it reads");
    assert!(report.wait().expect("it is ours").success());
    assert_eq!(names(&json!({ "commands": waiting(&live) })), ["echo late"]);
    live.kill();
}
