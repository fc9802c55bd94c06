//! Shell hooks beside other traps, options and hooks: each test types the same lines with the hook and without it, and the
//! output must be the same.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::capture::{bare, installed, waiting};
use crate::support::both_ends::Live;
use crate::support::eventually;
use crate::support::pane::Pane;
use crate::support::shim::SHIM;

/// The prompt. No typed line contains it.
const PROMPT: &str = "@@>";

/// When the shell loads the hook, relative to the settings.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Load {
    Never,
    Before,
    After,
    Twice,
}

/// A shell, its settings, and the lines that the user types.
struct Script<'a> {
    shell: &'a [&'a str],
    set_up: &'a [&'a str],
    typed: &'a [&'a str],
    /// The folder of the programs that the settings need.
    path: Option<&'a Path>,
}

impl Script<'_> {
    /// The output of each typed line, up to the next prompt.
    fn shown(&self, live: &Live, load: Load) -> Vec<String> {
        let shim = Path::new(SHIM).parent().expect("it is in a folder");
        let path = format!("{}:{}", shim.display(), self.path.unwrap_or(shim).display());
        let variables = [
            ("ZDOTDIR", live.home.beside().display().to_string()),
            ("STARSHIP_CONFIG", live.home.beside().join("starship.toml").display().to_string()),
        ];
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut pane = Pane::start_with(&live.home, self.shell, &variables);
        pane.resize(24, 1_000);
        let is_zsh = self.shell[0] == "zsh";
        // Keeps lines that begin with a space out of the history.
        let private = if is_zsh { " setopt HIST_IGNORE_SPACE" } else { " HISTCONTROL=ignorespace" };
        let hook = if is_zsh { " eval \"$(codex-shim hook zsh)\"" } else { " eval \"$(codex-shim hook bash)\"" };
        let load_if = |now: bool| if now { hook } else { " true" };
        let start = format!(" PS1='@''@>' PROMPT_EOL_MARK= PATH='{path}':$PATH");
        let mut lines = vec![start.as_str(), private, load_if(matches!(load, Load::Before | Load::Twice))];
        let set_up: Vec<String> = self.set_up.iter().map(|line| format!(" {line}")).collect();
        lines.extend(set_up.iter().map(String::as_str));
        lines.push(load_if(matches!(load, Load::After | Load::Twice)));
        let first = lines.len();
        lines.extend(self.typed);
        pane.shows("\u{1b}[?2004h");
        let mut shown = Vec::new();
        for line in lines {
            if shown.len() == first {
                // Some settings print a second prompt.
                pane.types(" echo set-''up\n");
                pane.shows("set-up");
                pane.shows(PROMPT);
            }
            pane.types(&format!("{line}\n"));
            shown.push(plain(&pane.shows(PROMPT)));
        }
        pane.types(" exit 0\n");
        pane.ends();
        shown.split_off(first)
    }

    /// Checks that the hook does not change the output, and that it records each public line with its status.
    fn check(&self, loads: &[Load]) {
        let live = Live::start();
        let expect = self.shown(&live, Load::Never);
        for load in loads {
            let had = waiting(&live).len();
            assert_eq!(self.shown(&live, *load), expect, "{load:?}: {:?}", self.set_up);
            let mut typed: Vec<(&str, i64)> =
                self.typed.iter().filter(|line| is_kept(line)).map(|line| (*line, status_of(line))).collect();
            let kept = eventually(&format!("each line, {load:?}: {:?}", self.set_up), || {
                let kept: Vec<Value> = waiting(&live).split_off(had);
                (kept.len() >= typed.len()).then_some(kept)
            });
            let field =
                |kept: &Value| (kept["cmd"].as_str().unwrap_or_default().to_owned(), kept["exit_code"].as_i64());
            let mut kept: Vec<(String, Option<i64>)> = kept.iter().map(field).collect();
            // A separate process reports each line, so the order can vary.
            kept.sort();
            typed.sort_unstable();
            let typed: Vec<_> = typed.into_iter().map(|(line, status)| (line.to_owned(), Some(status))).collect();
            assert_eq!(kept, typed, "{load:?}: {:?}", self.set_up);
        }
        live.kill();
    }
}

/// Whether the hook must record a line.
fn is_kept(line: &str) -> bool {
    !line.is_empty() && !line.starts_with(' ')
}

/// The exit status of a line that these tests type.
fn status_of(line: &str) -> i64 {
    match line {
        "false" => 1,
        "(exit 3)" => 3,
        "two() { return 4; }; two" | "(exit 3) | (cat >/dev/null; exit 4)" => 4,
        _ => i64::from(line == "! true"),
    }
}

/// Renders output as a terminal does.
///
/// A shell that reads its keys slowly redraws some of them: it sends backspaces and the same letters.
pub fn plain(shown: &str) -> String {
    let parts =
        regex::Regex::new("(?s)\u{1b}\\[[0-9;?]*[A-Za-z]|\u{1b}\\][^\u{7}]*\u{7}|\u{1b}[=>]|.").expect("it is one");
    let mut lines = vec![Vec::new()];
    let mut at = 0_usize;
    for part in parts.find_iter(shown) {
        let line = lines.last_mut().expect("there is one");
        match part.as_str() {
            "\n" => {
                lines.push(Vec::new());
                at = 0;
            }
            "\r" => at = 0,
            "\u{8}" => at = at.saturating_sub(1),
            "\u{1b}[K" => line.truncate(at),
            sequence if sequence.starts_with('\u{1b}') || sequence == "\u{7}" => {}
            letter => {
                if line.len() <= at {
                    line.resize(at + 1, ' ');
                }
                line[at] = letter.chars().next().expect("it has one");
                at += 1;
            }
        }
    }
    let lines: Vec<String> = lines.into_iter().map(|line| line.into_iter().collect::<String>()).collect();
    lines.join("\n")
}

#[test]
fn letters_that_are_drawn_again_are_shown_once() {
    assert_eq!(plain("e\u{8}echo a\u{1b}[K\u{1b}[?2004l\r\r\na\r\n@@>"), "echo a\na\n@@>");
    assert_eq!(plain("abc\r\u{1b}[Kd"), "d");
}

/// Lines with statuses, pipelines, functions, and a private line. A DEBUG trap may print into the pipeline, so its last
/// command reads its input.
const TYPED: &[&str] = &[
    "false",
    "true one",
    "(exit 3)",
    "",
    "two() { return 4; }; two",
    "echo status=$?",
    "for i in 1 2; do echo $i; done",
    " echo private",
    "(exit 3) | (cat >/dev/null; exit 4)",
    "echo \"${PIPESTATUS[@]-$pipestatus} jobs=$(jobs)\"",
    "echo end",
];

const BOTH: &[Load] = &[Load::Before, Load::After];

fn check_bash(set_up: &[&str], loads: &[Load]) {
    Script { shell: &bare("bash"), set_up, typed: TYPED, path: None }.check(loads);
}

#[test]
fn bash_traps_do_not_see_the_hook() {
    check_bash(&["trap 'echo ERR:$?' ERR"], &[Load::Before, Load::After, Load::Twice]);
    check_bash(&["set -E; trap 'echo ERR:$?' ERR; PROMPT_COMMAND='echo pc=$?:$_:${PIPESTATUS[*]}'"], &[Load::After]);
    check_bash(&["trap 'printf \"<%s>\" \"$BASH_COMMAND\"' DEBUG"], BOTH);
    check_bash(&["set -T; trap 'echo RETURN' RETURN; f() { true; }"], BOTH);
}

#[test]
fn bash_title_and_timer_by_debug_trap_are_unchanged() {
    // Many traps skip the prompt command with this comparison.
    let title = "trap '[ \"$BASH_COMMAND\" = \"$PROMPT_COMMAND\" ] || printf \"<%s>\" \"$BASH_COMMAND\"' DEBUG";
    check_bash(&["mine() { true; }; PROMPT_COMMAND=mine", title], BOTH);
    // The test counts the starts of the timer; it does not measure time.
    let start = "start() { timer=${timer:-on}; n=$((n + 1)); }; stop() { was=$timer:$n; unset timer n; }";
    let prompt = "PS1='${was}:${timer-off}@''@>'; trap start DEBUG; PROMPT_COMMAND=stop";
    check_bash(&[start, prompt], BOTH);
}

#[test]
fn bash_traces_nothing_of_the_hook() {
    let typed = ["false", "true one", "", "echo $((1 + 1))", " echo private"];
    for set_up in ["set -x", "exec 9>&2; BASH_XTRACEFD=9; set -x", "set -x; PROMPT_COMMAND='true; true'"] {
        Script { shell: &bare("bash"), set_up: &[set_up], typed: &typed, path: None }.check(BOTH);
    }
}

#[test]
fn bash_options_and_names_do_not_break_the_hook() {
    for set_up in [
        "alias local='echo L' builtin='echo B' printf='echo P' cat='echo C' declare='echo D' trap='echo T' set='echo S'",
        "printf() { echo P; }; history() { echo H; }; fc() { echo F; }; trap() { echo T; }; shopt() { echo O; }",
        "set -u; set -f; set -C; IFS=-12; shopt -s nullglob failglob nocasematch",
        "set -o posix",
        "readonly HISTTIMEFORMAT='%F ' code=1 line=1 last=1 began=1 ended=1",
        "PS0='[ps0]'",
        "set -a",
    ] {
        check_bash(&[set_up], BOTH);
    }
}

#[test]
fn bash_that_ends_on_errors_goes_on() {
    let typed =
        ["true one", "for i in 1 2; do echo $i; done", " echo private", "! true", "false || echo or", "echo end"];
    let set_up = ["PROMPT_COMMAND='echo pc=$?'; set -e"];
    Script { shell: &bare("bash"), set_up: &set_up, typed: &typed, path: None }.check(BOTH);
}

#[test]
fn bash_prompt_commands_see_what_they_saw() {
    check_bash(&["PROMPT_COMMAND=('echo a=$?:$_:${PIPESTATUS[*]}' 'echo b=$?:$_:${PIPESTATUS[*]}')"], &[Load::After]);
    check_bash(&["PROMPT_COMMAND='echo a=$?:$_:${PIPESTATUS[*]}; echo b'"], BOTH);
    check_bash(&["export PROMPT_COMMAND='echo a=$?:$_:${PIPESTATUS[*]}; echo b'"], &[Load::After]);
    check_bash(&["HISTFILE=~/history; PROMPT_COMMAND='history -a; history -c; history -r'"], BOTH);
}

#[test]
fn bash_children_know_nothing_of_the_hook() {
    let inner = "env PS1='@''@>' bash --norc -i";
    let typed = [inner, "echo in", "(exit 8)", "exit 5", "echo status=$?"];
    let live = Live::start();
    for set_up in ["set -a", "export PROMPT_COMMAND='echo pc; true'; export PS0='[ps0]'"] {
        let script = Script { shell: &bare("bash"), set_up: &[set_up], typed: &typed, path: None };
        assert_eq!(script.shown(&live, Load::After), script.shown(&live, Load::Never), "{set_up}");
    }
    live.kill();
}

#[test]
fn bash_puts_back_the_prompt_that_was_replaced() {
    let live = Live::start();
    let typed = ["PS0=", "echo one", "PS0='[ps0]'", "echo two", "unset PS0", "echo three"];
    let script = Script { shell: &bare("bash"), set_up: &[], typed: &typed, path: None };
    assert_eq!(script.shown(&live, Load::After), script.shown(&live, Load::Never));
    let names = eventually("all lines", || {
        let names: Vec<String> =
            waiting(&live).iter().map(|kept| kept["cmd"].as_str().unwrap_or_default().to_owned()).collect();
        (names.len() == typed.len()).then_some(names)
    });
    assert_eq!(names, typed);
    live.kill();
}

// zsh

fn check_zsh(test: &str, set_up: &[&str], loads: &[Load]) {
    if installed("zsh", test) {
        Script { shell: &bare("zsh"), set_up, typed: TYPED, path: None }.check(loads);
    }
}

#[test]
fn zsh_traps_do_not_see_the_hook() {
    let test = "zsh_traps_do_not_see_the_hook";
    check_zsh(test, &["TRAPDEBUG() { print -r -- D:$ZSH_DEBUG_CMD }"], &[Load::Before, Load::After, Load::Twice]);
    check_zsh(test, &["trap 'print -r -- D:$ZSH_DEBUG_CMD' DEBUG"], BOTH);
    check_zsh(test, &["setopt no_debug_before_cmd; trap 'print D' DEBUG"], BOTH);
    check_zsh(test, &["TRAPZERR() { print ZERR:$? }"], BOTH);
    check_zsh(test, &["TRAPCHLD() { print CHLD }"], BOTH);
    check_zsh(test, &["trap 'print CHLD' CHLD"], BOTH);
}

#[test]
fn zsh_options_and_names_do_not_break_the_hook() {
    for set_up in [
        "setopt ksh_arrays sh_word_split no_unset warn_create_global no_nomatch no_clobber",
        "setopt null_glob ksh_glob sh_glob rc_quotes no_bang_hist no_multi_func_def",
        "emulate sh",
        "emulate ksh",
        "alias local='echo L' builtin='echo B' print='echo P' typeset='echo T' emulate='echo E' trap='echo T'; alias -g L=X",
        "print() { echo P }; trap() { echo T }; typeset() { echo T }; local() { echo L }",
        "autoload -Uz add-zsh-hook; a() { echo pre=$? }; b() { echo exe:$1 }; add-zsh-hook precmd a; add-zsh-hook preexec b",
    ] {
        check_zsh("zsh_options_and_names_do_not_break_the_hook", &[set_up], BOTH);
    }
    let test = "zsh_options_and_names_do_not_break_the_hook";
    if installed("zsh", test) {
        let typed = ["true one", "echo two"];
        Script { shell: &bare("zsh"), set_up: &["setopt xtrace"], typed: &typed, path: None }.check(BOTH);
    }
}

#[test]
fn shells_tell_of_no_job_of_the_hook() {
    check_bash(&["set -m; set -b"], BOTH);
    check_bash(&["set +m"], BOTH);
    for set_up in ["setopt monitor notify long_list_jobs", "setopt no_monitor", "setopt verbose"] {
        check_zsh("shells_tell_of_no_job_of_the_hook", &[set_up], BOTH);
    }
}

// Third-party programs

/// The folder in which `make shells` installs programs. If `program` is missing, prints that the test is skipped.
fn with_program(program: &str, test: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/hooks/bin");
    if folder.join(program).exists() {
        return Some(folder);
    }
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {program} is not in target/hooks; run `make shells`");
    None
}

const OFTEN: &[&str] =
    &["false", "true one", "", "(exit 3)", "for i in 1 2; do echo $i; done", "echo status=$?", "echo end"];

/// Functions that a bash-preexec user defines.
const PREEXEC: &str = "pe() { echo \"pe:$1\"; }; pc() { echo \"pc:$?\"; }; \
    preexec_functions+=(pe); precmd_functions+=(pc)";

#[test]
fn bash_preexec_works_beside_the_hook() {
    let Some(folder) = with_program("atuin", "bash_preexec_works_beside_the_hook") else { return };
    // atuin ships bash-preexec.
    let preexec =
        ". <(atuin init bash | sed -n '/^__atuin_load_builtin_preexec()/,/^}/p'); __atuin_load_builtin_preexec";
    for (set_up, loads) in [
        (&[preexec, PREEXEC][..], &[Load::Before, Load::After, Load::Twice][..]),
        (&["PROMPT_COMMAND='echo mine=$?'", preexec, PREEXEC], &[Load::After]),
        (&["__bp_enable_subshells=1", preexec, PREEXEC], BOTH),
        (&[preexec, PREEXEC, "trap 'echo ERR:$?' ERR"], BOTH),
    ] {
        Script { shell: &bare("bash"), set_up, typed: OFTEN, path: Some(&folder) }.check(loads);
    }
}

#[test]
fn atuin_works_beside_the_hook() {
    let Some(folder) = with_program("atuin", "atuin_works_beside_the_hook") else { return };
    for shell in ["bash", "zsh"] {
        if !installed(shell, "atuin_works_beside_the_hook") {
            continue;
        }
        let init = format!("eval \"$(atuin init {shell})\"");
        // atuin's history has each line once, and no line of the hook.
        let own = "atuin history list --session --cmd-only | grep -c .";
        // atuin binds the key `?`.
        let often = OFTEN.iter().copied().filter(|line| !line.contains('?'));
        let typed: Vec<&str> = often.chain([own]).collect();
        Script { shell: &bare(shell), set_up: &[&init], typed: &typed, path: Some(&folder) }.check(BOTH);
    }
}

#[test]
fn starship_works_beside_the_hook() {
    let Some(folder) = with_program("starship", "starship_works_beside_the_hook") else { return };
    let config = "printf 'add_newline = false\\nformat = \"$status@@>\"\\n[status]\\ndisabled = false\\nformat = \"S$status\"\\n'";
    let config = format!("{config} > $STARSHIP_CONFIG");
    for shell in ["bash", "zsh"] {
        if !installed(shell, "starship_works_beside_the_hook") {
            continue;
        }
        let full = if shell == "bash" {
            "eval \"$(starship init bash --print-full-init)\""
        } else {
            "eval \"$(starship init zsh)\""
        };
        Script { shell: &bare(shell), set_up: &[&config, full], typed: OFTEN, path: Some(&folder) }.check(BOTH);
    }
}
