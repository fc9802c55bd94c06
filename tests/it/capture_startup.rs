//! The startup files of a shell that `codex-shim shell` opens: those that the shell reads without codex-shim, in the same order
//! and with the same variables.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use codex_shim::testing::engine::terminal::{KEPT_BYTES, Parser, Screen, Size};

use crate::capture::{installed, waiting};
use crate::support::both_ends::Live;
use crate::support::eventually;
use crate::support::pane::Pane;
use crate::support::shim::SHIM;

/// A home of a user: his files, and the variables that his terminal sets.
struct User<'a> {
    name: &'a str,
    files: &'a [(&'a str, &'a str)],
    variables: &'a [(&'a str, &'a str)],
    /// What the user sees if the hook cannot be loaded.
    warning: Option<&'a str>,
}

impl User<'_> {
    /// Compares what the shell reads, and what a line and another shell in it see, with a shell that the user starts. `trace` is
    /// the line with which each file and a typed line say where they are.
    fn check(&self, shell: &str, trace: &str, typed: &[&str]) {
        let live = Live::start();
        let home = live.home.beside();
        for (file, text) in self.files {
            let path = home.join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(&path, text.replace("TRACE", &trace.replace("NAME", file))).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("it is ours");
        }
        let program = if home.join("bin").join(shell).exists() { home.join("bin").join(shell) } else { shell.into() };
        let program = program.to_str().expect("UTF-8");
        let alone = self.trace_of(&live, &[program, "-i"], typed, trace);
        let within = self.trace_of(&live, &[SHIM, "shell", program], typed, trace);
        assert_eq!(within, alone, "{}", self.name);
        assert!(self.files.is_empty() || alone.contains("typed"), "{}: {alone}", self.name);
        if self.warning.is_none() {
            eventually(&format!("{}: the line as context", self.name), || {
                waiting(&live).iter().any(|kept| kept["cmd"] == "echo sh''own").then_some(())
            });
        } else {
            assert!(waiting(&live).is_empty(), "{}", self.name);
        }
        live.kill();
    }

    fn trace_of(&self, live: &Live, words: &[&str], typed: &[&str], trace: &str) -> String {
        let log = live.home.beside().join("log");
        let _ = fs::remove_file(&log);
        let home = live.home.beside().to_str().expect("UTF-8");
        let variables: Vec<_> = self.variables.iter().map(|(name, value)| (*name, value.replace('~', home))).collect();
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        // The tests may run in a shell that has one.
        let words = [&["env", "-u", "ZDOTDIR"], words].concat();
        let words = if variables.iter().any(|(name, _)| *name == "ZDOTDIR") { &words[3..] } else { &words };
        let mut pane = Pane::start_with(&live.home, words, &variables);
        if words.contains(&SHIM) {
            self.warning.iter().for_each(|warning| drop(pane.shows(warning)));
        }
        pane.shows("\u{1b}[?2004h");
        let trace = format!(" {}", trace.replace("NAME", "typed"));
        for line in typed.iter().chain(&[trace.as_str(), "echo sh''own"]) {
            pane.types(&format!("{line}\r"));
        }
        pane.shows("shown");
        pane.types(" exit 0\r");
        pane.ends();
        fs::read_to_string(&log).unwrap_or_default()
    }
}

/// Says whether ZDOTDIR is exported, and what it is.
const ZSH_TRACE: &str = r#"print -r -- "NAME ${(t)ZDOTDIR}=${ZDOTDIR-unset} $(printenv ZDOTDIR)" >> $HOME/log"#;

#[test]
fn zsh_reads_the_files_that_the_users_zsh_reads() {
    if !installed("zsh", "zsh_reads_the_files_that_the_users_zsh_reads") {
        return;
    }
    let real = ["/usr/bin/zsh", "/bin/zsh", "/usr/local/bin/zsh"].into_iter().find(|path| Path::new(path).exists());
    let real = real.expect("zsh is in a usual folder");
    let rc = "setopt hist_ignore_space; PS1='$ '\nTRACE\n";
    let both = [(".zshenv", "TRACE\n"), (".zshrc", rc), ("z/.zshenv", "TRACE\n"), ("z/.zshrc", rc)];
    let with = |zshenv: &'static str| {
        let mut files = both.to_vec();
        files[0].1 = zshenv;
        files
    };
    // Stands for the system's zshenv, which the tests cannot write: it runs before anything else and sees the environment.
    let system = |set: &str| format!("#!/bin/sh\n{set}\nexec {real} \"$@\"\n");
    let (by_default, always) = (system("export ZDOTDIR=\"${ZDOTDIR-$HOME/z}\""), system("export ZDOTDIR=\"$HOME/z\""));
    let in_z: &[(&str, &str)] = &[("ZDOTDIR", "~/z")];
    let check = |name: &str, files: &[(&str, &str)], variables: &[(&str, &str)], warning: Option<&str>| {
        // Another shell in this one; its prompt takes the next line.
        User { name, files, variables, warning }.check("zsh", ZSH_TRACE, &[" zsh -i -c true"]);
    };
    check("not set", &both, &[], None);
    check("in the environment", &both, in_z, None);
    check("empty", &both, &[("ZDOTDIR", "")], None);
    check(
        "a folder with a quote",
        &[("a 'b\"/.zshenv", "TRACE\n"), ("a 'b\"/.zshrc", rc)],
        &[("ZDOTDIR", "~/a 'b\"")],
        None,
    );
    check("exported in ~/.zshenv", &with("TRACE\nexport ZDOTDIR=$HOME/z\n"), &[], None);
    check("not exported in ~/.zshenv", &with("ZDOTDIR=$HOME/z\nTRACE\n"), &[], None);
    check("unset in ~/.zshenv", &with("TRACE\n[[ -n $ZDOTDIR ]] && unset ZDOTDIR\n"), in_z, None);
    check("~/.zshenv returns", &with("ZDOTDIR=$HOME/z\nTRACE\nreturn 3\n"), &[], None);
    check("~/.zshenv fails", &with("ZDOTDIR=$HOME/z\nTRACE\n) (\n"), &[], None);
    check("~/.zshenv wants no more files", &with("setopt no_rcs; ZDOTDIR=$HOME/z\nTRACE\n"), &[], None);
    check("no files", &[], &[], None);
    let replaces = format!("{rc}precmd_functions=() preexec_functions=()\nZDOTDIR=/nowhere\n");
    check(".zshrc replaces all hooks", &[(".zshrc", &*replaces)], &[], None);
    let mut files = both.to_vec();
    files.push(("bin/zsh", &*by_default));
    check("by default in the system's zshenv", &files, &[], None);
    files.pop();
    files.push(("bin/zsh", &*always));
    check(
        "always in the system's zshenv",
        &files,
        &[],
        Some("the hook is not loaded: the system's zshenv sets ZDOTDIR"),
    );
}

#[test]
fn bash_and_fish_read_the_files_that_the_users_shell_reads() {
    let trace = r#"echo "NAME ${BASH_ENV-unset}" >> $HOME/log"#;
    let rc = "PS1='$ ' HISTCONTROL=ignorespace\nTRACE\n";
    for (name, end) in [("bash", ""), ("returns", "return 3\n"), ("fails", ") (\n")] {
        let rc = format!("{rc}{end}");
        let files = [(".bashrc", &*rc), (".bash_profile", "TRACE\n"), (".profile", "TRACE\n"), ("env", "TRACE\n")];
        let user = User { name, files: &files, variables: &[("BASH_ENV", "~/env")], warning: None };
        user.check("bash", trace, &[" bash -c true"]);
    }
    if installed("fish", "bash_and_fish_read_the_files_that_the_users_shell_reads") {
        let files = [
            ("x/fish/config.fish", "TRACE\n"),
            ("x/fish/conf.d/a.fish", "TRACE\n"),
            (".config/fish/config.fish", "TRACE\n"),
        ];
        let fish = User { name: "fish", files: &files, variables: &[("XDG_CONFIG_HOME", "~/x")], warning: None };
        fish.check("fish", r#"echo "NAME $XDG_CONFIG_HOME" >> $HOME/log"#, &[" fish -c true"]);
    }
}

/// A startup file, the shell that reads it, and the program that the shell becomes.
struct Replaced {
    shell: &'static str,
    file: (&'static str, &'static str),
    needs: &'static str,
    expect: Option<&'static str>,
}

#[test]
fn shell_that_becomes_another_program_says_so() {
    let bash = |text, needs, expect| Replaced { shell: "bash", file: (".bashrc", text), needs, expect };
    let zsh = |text, expect| Replaced { shell: "zsh", file: (".zshrc", text), needs: "zsh", expect };
    let fish =
        |text, expect| Replaced { shell: "fish", file: (".config/fish/config.fish", text), needs: "fish", expect };
    let cases = [
        bash(
            "export PS1='ready> '; exec sh\n",
            "sh",
            Some("bash has become sh, and nothing in it is captured; run `codex-shim shell`"),
        ),
        bash("printf half; export PS1='ready> '; exec sh -i\n", "sh", Some("bash has become sh, and nothing in it")),
        bash(
            "export PS1='ready> '; [ $LVL ] || LVL=1 exec bash --norc\n",
            "sh",
            Some("bash has become another bash, and nothing in it"),
        ),
        bash(
            "exec zsh -f\n",
            "zsh",
            Some("bash has become zsh, and nothing in it is captured unless its own settings load the hook"),
        ),
        bash(
            "exec fish --no-config\n",
            "fish",
            Some("bash has become fish, and nothing in it is captured unless its own"),
        ),
        zsh(
            "PS1='ready> ' exec bash --norc -i\n",
            Some("zsh has become bash, and nothing in it is captured unless its own"),
        ),
        zsh("exec zsh -f -i\n", Some("zsh has become another zsh, and nothing in it is captured unless its own")),
        fish(
            "PS1='ready> ' exec bash --norc -i\n",
            Some("fish has become bash, and nothing in it is captured unless its own"),
        ),
        // None of these becomes anything.
        bash("PS1='ready> '; exec 3>&1; bash -c true; sh -c 'exec true'; exec 3>&-\n", "sh", None),
        zsh("PS1='ready> '; exec 3>&1; sh -c 'exec true'\n", None),
    ];
    for Replaced { shell, file: (file, text), needs, expect } in cases {
        if !installed(needs, "shell_that_becomes_another_program_says_so") {
            continue;
        }
        let live = Live::start();
        let path = live.home.beside().join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, text).expect("a file");
        // Wide enough that a message is one line.
        let mut pane = Pane::start_sized(&live.home, &[SHIM, "shell", shell], &[], (24, 250));
        if let Some(expect) = expect {
            let before = pane.shows("codex-shim: ");
            assert!(before == "codex-shim: " || before.ends_with("\r\ncodex-shim: "), "{text}: {before:?}");
            pane.shows(expect);
            pane.shows("\r\n");
        }
        // Whatever the prompt is, the program takes a line.
        pane.types(" echo sh''own\r");
        pane.shows("shown");
        pane.types(" exit 0\r");
        pane.ends();
        let shown = pane.shown();
        assert_eq!(shown.matches("has become").count(), usize::from(expect.is_some()), "{text}: {shown:?}");
        live.kill();
    }
}

#[test]
fn terminal_without_a_size_has_the_usual_one() {
    let live = Live::start();
    for words in [&["exec", "stty", "size"][..], &["shell", "bash"]] {
        let words = [&[SHIM], words].concat();
        let mut pane = Pane::start_sized(&live.home, &words, &[], (0, 0));
        if words.contains(&"bash") {
            pane.types(" stty size\r");
        }
        pane.shows("24 80");
        pane.types(" exit 0\r");
        pane.ends();
    }
    for tool in [&["--help"][..], &["doctor"], &["search", "--help"]] {
        let words = [&[SHIM], tool].concat();
        let mut pane = Pane::start_sized(&live.home, &words, &[("NO_COLOR", "1")], (0, 0));
        pane.ends();
        // What it has written is read by another thread.
        let shown = eventually("the output", || Some(pane.shown()).filter(|shown| !shown.is_empty()));
        // A path has no blank at which it could break, and a command for the user, such as one about a server of another test, stays in one
        // piece.
        let is_wide = |line: &&str| line.chars().count() > 80 && line.trim().contains(' ') && !line.contains('`');
        let wide: Vec<&str> = shown.lines().filter(is_wide).collect();
        assert!(wide.is_empty(), "{tool:?}: {wide:#?}");
    }
    live.kill();
}

/// What a full-screen program has drawn, on a screen of the usual size.
fn drawn(pane: &Pane) -> String {
    let (mut parser, mut screen) = (Parser::default(), Screen::new(Some(Size { columns: 80, rows: 24 }), KEPT_BYTES));
    // Nothing is kept of the alternate screen.
    let output = pane.shown().replace("\u{1b}[?1049h", "");
    parser.parse(output.as_bytes(), |piece| screen.apply(&piece));
    screen.remains().text
}

#[test]
fn terminal_ui_without_a_size_has_the_usual_one() {
    let live = Live::start();
    let mut pane = Pane::start_sized(&live.home, &[SHIM, "tui", "--session", "s"], &[("NO_COLOR", "1")], (0, 0));
    // The input is near the lower end. A row that is too long would go on in the next one, and a row below the last one in it.
    let screen = eventually("the whole screen", || {
        let screen = drawn(&pane);
        (screen.lines().count() == 24 && screen.contains("Enter sends")).then_some(screen)
    });
    let columns = screen.lines().map(|line| line.chars().count()).max();
    assert!(columns.is_some_and(|columns| (60..=80).contains(&columns)), "{screen}");
    assert_eq!(pane.leaves(), 0);
    live.kill();
}
