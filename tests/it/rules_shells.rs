//! Lines that try to get past a rule: whatever a rule could accept, real shells run as exactly those words and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use codex_shim::testing::engine::acceptable_words;
use proptest::prelude::*;

use crate::support::shim::put_program;

/// Shells that run the lines, with what lets them read no file of the user.
const SHELLS: [(&str, &[&str]); 5] =
    [("bash", &["--norc", "--noprofile"]), ("dash", &[]), ("sh", &[]), ("zsh", &["-f"]), ("ksh", &[])];

/// Parts of lines; most of them mean something to a shell.
const PARTS: [&str; 64] = [
    "status",
    "-s",
    "--format=%h",
    "a/b",
    "x:y",
    "a,b",
    "a@b",
    "1",
    "+",
    "'a b'",
    "\"a b\"",
    "''",
    "\"\"",
    "'$x'",
    "\"it's\"",
    "'a;b'",
    ";",
    ";;",
    "&&",
    "||",
    "|",
    "&",
    "|&",
    "\n",
    "\r",
    "\t",
    "$(id)",
    "`id`",
    "$HOME",
    "${x}",
    "$((1))",
    "$'a'",
    "$\"a\"",
    ">f",
    ">>f",
    "<f",
    "2>&1",
    "<<E",
    "<<<x",
    "<(id)",
    "*",
    "?",
    "[a]",
    "{a,b}",
    "~",
    "~root",
    "#c",
    "!x",
    "!!",
    "\\",
    "\\x",
    "\\\n",
    "(",
    ")",
    "{ ",
    "}",
    "A=1",
    "=ls",
    "%1",
    "^",
    "é",
    "\u{a0}",
    "'",
    "\"",
];

const GAPS: [&str; 4] = [" ", " ", "  ", ""];

const FIRST: [&str; 16] = [
    "git",
    "git",
    "git",
    "make",
    "g++",
    "'git'",
    "\\git",
    "time git",
    "eval git",
    "exec git",
    "command git",
    "A=1 git",
    "! git",
    "if git",
    ". git",
    "env git",
];

fn lines() -> impl Strategy<Value = String> {
    let part = (prop::sample::select(&GAPS[..]), prop::sample::select(&PARTS[..]));
    // Half of the parts of a line are plain, so that some lines are accepted.
    let plain = (Just(" "), prop::sample::select(&PARTS[..16]));
    let parts = prop::collection::vec(prop_oneof![part, plain], 0..5);
    (prop::sample::select(&GAPS[..]), prop::sample::select(&FIRST[..]), parts)
        .prop_map(|(gap, first, parts)| {
            let rest: String = parts.iter().map(|(gap, part)| format!("{gap}{part}")).collect();
            format!("{gap}{first}{rest}")
        })
        .boxed()
}

/// A folder with programs that write down how they were called, and an empty one to call them in.
struct Lab {
    root: tempfile::TempDir,
    programs: Mutex<BTreeSet<String>>,
}

impl Lab {
    fn new() -> Lab {
        let root = tempfile::tempdir().expect("a folder");
        for folder in ["bin", "cwd"] {
            fs::create_dir(root.path().join(folder)).expect("a folder");
        }
        Lab { root, programs: Mutex::default() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn add(&self, name: &str) {
        if self.programs.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned()) {
            let log = self.at("log");
            let script = format!("#!/bin/sh\nprintf '%s\\0' {name} \"$@\" END >> {}\n", log.display());
            put_program(&self.at("bin").join(name), script.as_bytes());
        }
    }

    /// Runs a line in a shell; returns the calls of programs, and the number of commands that the shell has traced.
    fn run(&self, (shell, flags): (&str, &[&str]), line: &str) -> Option<(Vec<Vec<String>>, usize)> {
        let _ = fs::remove_file(self.at("log"));
        let mut command = Command::new(which(shell)?);
        command.args(flags).args(["-xc", line]).current_dir(self.at("cwd")).stdin(Stdio::null());
        command.env_clear().env("PATH", self.at("bin")).env("PS4", "+ ");
        let output = command.output().expect("the shell runs");
        let log = fs::read_to_string(self.at("log")).unwrap_or_default();
        let mut calls = vec![Vec::new()];
        for word in log.split_terminator('\0') {
            match word {
                "END" => calls.push(Vec::new()),
                word => calls.last_mut().expect("BUG: never empty").push(word.to_owned()),
            }
        }
        calls.pop();
        let traced = String::from_utf8_lossy(&output.stderr).lines().filter(|line| !line.is_empty()).count();
        assert_eq!(fs::read_dir(self.at("cwd")).expect("it is there").count(), 0, "{shell}: {line:?}");
        assert!(output.status.success() && output.stdout.is_empty(), "{shell}: {line:?}: {output:?}");
        Some((calls, traced))
    }
}

const KNOWN: [&str; 7] = ["/bin/bash", "/bin/dash", "/bin/sh", "/bin/zsh", "/usr/bin/zsh", "/bin/ksh", "/usr/bin/ksh"];

fn which(shell: &str) -> Option<&'static Path> {
    KNOWN.iter().map(Path::new).find(|path| path.ends_with(shell) && path.exists())
}

fn by_shell(script: &str) -> String {
    shlex::try_join(["/bin/bash", "-lc", script]).expect("BUG: no NUL")
}

#[test]
fn accepted_lines_run_as_exactly_these_words() {
    let lab = Lab::new();
    lab.add("git");
    let (accepted, traced) = (Mutex::new(0), Mutex::new(BTreeMap::new()));
    let check = |script: &str| {
        let Some(words) = acceptable_words(&by_shell(script)) else { return };
        *accepted.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        assert!(!words[0].contains('/'), "{script:?}");
        lab.add(&words[0]);
        let mut traced = traced.lock().unwrap_or_else(PoisonError::into_inner);
        for shell in SHELLS {
            if let Some(seen) = lab.run(shell, script) {
                // A shell may trace what it reads at its start.
                let traced =
                    *traced.entry(shell.0).or_insert_with(|| lab.run(shell, "git").map_or(0, |(_, traced)| traced));
                assert_eq!(seen, (vec![words.clone()], traced), "{}: {script:?}", shell.0);
            }
        }
    };
    let config = ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(script in lines())| check(&script));
    let accepted = *accepted.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(accepted > 20, "only {accepted} lines were accepted");
}

#[test]
fn no_line_with_a_nasty_part_is_accepted() {
    for part in &PARTS[16..] {
        // Words that are plain to every shell, and numbers of jobs, which only a first word names.
        if ["%1"].contains(part) {
            continue;
        }
        for script in [format!("git {part}"), format!("git{part}"), format!("{part} git"), format!("git a{part}b c")] {
            let is_plain_word =
                ["A=1", "=ls"].contains(part) && !script.starts_with(part) && !script.starts_with("git =");
            assert!(acceptable_words(&by_shell(&script)).is_none() || is_plain_word, "{script:?}");
            assert!(acceptable_words(&script).is_none() || is_plain_word, "{script:?}");
        }
    }
}

#[test]
fn names_that_shells_know_themselves_are_never_accepted() {
    for (shell, listing) in [
        ("bash", "compgen -b; compgen -k"),
        ("zsh", "print -l ${(k)builtins} ${(k)reswords}"),
        ("ksh", "builtin; print -- $(typeset -f)"),
    ] {
        let Some(program) = which(shell) else { continue };
        let printed = Command::new(program).args(["-c", listing]).output().expect("the shell runs");
        let names = String::from_utf8(printed.stdout).expect("it is text");
        assert!(names.split_whitespace().count() > 50, "{shell}: {names}");
        for name in names.split_whitespace().filter(|name| !name.contains('/')) {
            assert_eq!(acceptable_words(&by_shell(&format!("{name} x"))), None, "{shell} has {name}");
        }
    }
}
