//! Putting us where a tool looks for codex, and taking us away again.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::both_ends::Live;
use crate::support::pane::Pane;
use crate::support::requests::{command_asked, turn_started};
use crate::support::shim::{Home, SHIM};

pub struct Lab {
    pub home: Home,
    /// The home of somebody who uses us, with `bin` and `real` on PATH.
    pub user: PathBuf,
}

impl Lab {
    pub fn new() -> Lab {
        let home = Home::new();
        let user = home.beside().join("user");
        fs::create_dir_all(user.join("bin")).expect("a folder");
        fs::create_dir_all(user.join(".config/Code/User")).expect("a folder");
        Lab { home, user }
    }

    fn settings(&self) -> PathBuf {
        self.user.join(".config/Code/User/settings.json")
    }

    /// A codex that says who it is.
    pub fn codex(&self, folder: &str) -> PathBuf {
        let path = self.user.join(folder).join("codex");
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, "#!/bin/sh\necho codex-cli 1.2.3 \"$@\"\n").expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
        path
    }

    fn run(&self, program: &Path, args: &[&str]) -> Output {
        let mut command = self.home.shim(&[]);
        let mut path = OsString::from(self.user.join("bin"));
        path.push(":");
        path.push(self.user.join("real"));
        path.push(":/usr/bin:/bin");
        let mut other = std::process::Command::new(program);
        other.args(args).env_clear().env("PATH", path).env("HOME", &self.user).stdin(Stdio::null());
        for (name, value) in command.env("X", "").get_envs() {
            if let (true, Some(value)) = (name == "CODEX_SHIM_HOME", value) {
                other.env(name, value);
            }
        }
        other.output().expect("it runs")
    }

    pub fn shim(&self, args: &[&str]) -> Output {
        self.run(Path::new(SHIM), args)
    }

    pub fn well(&self, args: &[&str]) -> String {
        let output = self.shim(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }
}

#[test]
fn a_link_is_put_ahead_on_the_path_and_taken_away() {
    let lab = Lab::new();
    lab.codex("real");
    let link = lab.user.join("bin/codex");
    assert!(lab.well(&["wrap", "path", "--dry-run"]).starts_with("link "));
    assert!(!link.exists());
    assert_eq!(lab.shim(&["wrap", "path"]).status.code(), Some(1));
    lab.well(&["wrap", "path", "--yes"]);
    assert!(lab.well(&["wrap", "path", "--yes"]).contains("done already"));
    let told = lab.run(&link, &["--version"]);
    assert_eq!(String::from_utf8_lossy(&told.stdout), "codex-cli 1.2.3 --version\n");
    lab.well(&["unwrap"]);
    assert!(!link.exists() && lab.well(&["unwrap"]).contains("nothing is wrapped"));
}

#[test]
fn a_codex_whose_name_was_taken_is_found_and_put_back() {
    let lab = Lab::new();
    let codex = lab.codex("bin");
    let before = fs::read(&codex).expect("it is there");
    let target = codex.to_str().expect("UTF-8").to_owned();
    lab.well(&["wrap", &target, "--yes"]);
    let told = lab.run(&codex, &["--version"]);
    assert_eq!(String::from_utf8_lossy(&told.stdout), "codex-cli 1.2.3 --version\n");
    assert!(lab.well(&["wrap", &target, "--yes"]).contains("done already"));
    lab.well(&["unwrap", &target]);
    assert_eq!(fs::read(&codex).expect("it is there"), before);
    assert_eq!(fs::read_dir(lab.user.join("bin")).expect("a folder").count(), 1);
}

#[test]
fn a_codex_that_path_does_not_name_is_found_by_the_link_that_has_its_name() {
    let lab = Lab::new();
    let codex = lab.codex("elsewhere");
    let target = codex.to_str().expect("UTF-8").to_owned();
    lab.well(&["wrap", &target, "--yes"]);
    let says = |program: &Path| String::from_utf8_lossy(&lab.run(program, &["--version"]).stdout).into_owned();
    assert_eq!(says(&codex), "codex-cli 1.2.3 --version\n");
    // Whoever starts us otherwise is led there by what wrap has put down.
    let found = lab.well(&["doctor"]);
    assert!(found.contains("elsewhere/codex-before-codex-shim: codex-cli 1.2.3"), "{found}");
    // It is the one that was asked for, whatever PATH names.
    let other = lab.codex("real");
    fs::write(&other, "#!/bin/sh\necho another\n").expect("write");
    assert_eq!(says(&codex), "codex-cli 1.2.3 --version\n");
}

#[test]
fn what_was_set_aside_comes_back_whatever_became_of_the_link() {
    let lab = Lab::new();
    let codex = lab.codex("bin");
    let aside = codex.with_file_name("codex-before-codex-shim");
    let before = fs::read(&codex).expect("it is there");
    let target = codex.to_str().expect("UTF-8").to_owned();
    let failed = |args: &[&str]| {
        let output = lab.shim(args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    // The link was removed by hand.
    lab.well(&["wrap", &target, "--yes"]);
    fs::remove_file(&codex).expect("it goes");
    assert!(failed(&["wrap", &target, "--yes"]).contains("unwrap"));
    assert!(failed(&["doctor"]).contains("puts it back"));
    lab.well(&["unwrap"]);
    assert_eq!(fs::read(&codex).expect("it is back"), before);
    assert!(!aside.exists());
    // A codex was installed over it.
    lab.well(&["wrap", &target, "--yes"]);
    fs::remove_file(&codex).expect("it goes");
    lab.codex("bin");
    for args in [&["wrap", &target, "--yes"][..], &["unwrap"], &["doctor"]] {
        assert!(failed(args).contains("installed over the link"), "{args:?}");
    }
    fs::remove_file(&aside).expect("it goes");
    lab.well(&["unwrap"]);
    lab.well(&["wrap", &target, "--yes"]);
    lab.well(&["unwrap"]);
    assert_eq!(fs::read(&codex).expect("it is back"), before);
}

/// A copy of us in a folder of its own.
fn copy(lab: &Lab, folder: &str) -> PathBuf {
    let program = lab.user.join(folder).join("codex-shim");
    fs::create_dir_all(program.parent().expect("a folder")).expect("a folder");
    fs::copy(SHIM, &program).expect("a copy");
    program
}

#[test]
fn a_link_of_a_codex_shim_that_was_moved_is_mended_and_its_codex_comes_back() {
    let lab = Lab::new();
    let codex = lab.codex("elsewhere");
    let aside = codex.with_file_name("codex-before-codex-shim");
    let before = fs::read(&codex).expect("it is there");
    let target = codex.to_str().expect("UTF-8").to_owned();
    let old = copy(&lab, "v1");
    fs::write(lab.settings(), "{}").expect("write");
    for args in [&["wrap", &target, "--yes"][..], &["wrap", "vscode", "--yes"]] {
        assert!(lab.run(&old, args).status.success(), "{args:?}");
    }
    let new = lab.user.join("v2/codex-shim");
    fs::create_dir(lab.user.join("v2")).expect("a folder");
    fs::rename(&old, &new).expect("it is moved");
    let told = |args: &[&str]| {
        let output = lab.run(&new, args);
        (
            output.status.code(),
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)),
        )
    };
    let (_, found) = told(&["doctor"]);
    assert!(found.contains("which is gone: `codex-shim wrap") && found.contains("which leads nowhere"), "{found}");
    let (code, shown) = told(&["wrap", &target, "--dry-run"]);
    assert!(code == Some(0) && shown.contains("no longer to") && !codex.exists(), "{shown}");
    for args in [&["wrap", &target, "--yes"][..], &["wrap", "vscode", "--yes"]] {
        assert_eq!(told(args).0, Some(0), "{args:?}");
        assert!(told(args).1.contains("done already"), "{args:?}");
    }
    let says = |program: &Path| String::from_utf8_lossy(&lab.run(program, &["--version"]).stdout).into_owned();
    assert_eq!(says(&codex), "codex-cli 1.2.3 --version\n");
    assert_eq!(says(&lab.home.path().join("bin/codex")), "codex-cli 1.2.3 --version\n");
    assert_eq!(fs::read(&aside).expect("it is kept"), before);
    let (_, found) = told(&["doctor"]);
    assert!(!found.contains("which is gone") && !found.contains("leads nowhere"), "{found}");
    assert_eq!(told(&["unwrap"]).0, Some(0));
    assert_eq!(fs::read(&codex).expect("it is back"), before);
    assert!(!aside.exists() && fs::read_to_string(lab.settings()).ok().as_deref() == Some("{}"));
}

#[test]
fn a_link_of_another_codex_shim_is_never_set_aside_as_a_codex() {
    let lab = Lab::new();
    lab.codex("real");
    let folder = lab.user.join("bin");
    let target = folder.to_str().expect("UTF-8");
    let link = folder.join("codex");
    let (one, other) = (copy(&lab, "one"), copy(&lab, "other"));
    let says = |program: &Path| String::from_utf8_lossy(&lab.run(program, &["--version"]).stdout).into_owned();
    assert!(lab.run(&one, &["wrap", target, "--yes"]).status.success());
    // By the folder and by PATH it is the same link.
    for (program, target) in [(&other, target), (&one, "path")] {
        let output = lab.run(program, &["wrap", target, "--yes"]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::read_link(&link).expect("a link"), *program);
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1);
        assert_eq!(says(&link), "codex-cli 1.2.3 --version\n");
    }
    assert!(lab.run(&other, &["unwrap", target]).status.success());
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 0);
    // One that is on no record here is left alone, and said to be what it is.
    symlink(&one, &link).expect("a link");
    let output = lab.run(&other, &["wrap", target, "--yes"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && told.contains("is a link to another codex-shim"), "{output:?}");
    assert_eq!(fs::read_link(&link).expect("a link"), one);
    // Where one has come to stand in the place of ours, nobody is told to remove the codex.
    fs::remove_file(&link).expect("it goes");
    let codex = lab.codex("bin");
    let before = fs::read(&codex).expect("it is there");
    lab.well(&["wrap", target, "--yes"]);
    fs::remove_file(&link).expect("it goes");
    symlink(&one, &link).expect("a link");
    for args in [&["wrap", target, "--yes"][..], &["unwrap"], &["doctor"]] {
        let output = lab.shim(args);
        let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.code() == Some(1) && told.contains("another codex-shim"), "{args:?}: {told}");
        assert!(!told.contains("installed over"), "{args:?}: {told}");
    }
    fs::remove_file(&link).expect("it goes");
    lab.well(&["unwrap"]);
    assert_eq!(fs::read(&codex).expect("it is back"), before);
}

#[test]
fn what_is_not_wrapped_is_not_taken_back_in_silence() {
    let lab = Lab::new();
    fs::write(lab.settings(), "{}").expect("write");
    lab.well(&["wrap", "vscode", "--yes"]);
    let link = lab.user.join("bin");
    lab.well(&["wrap", link.to_str().expect("UTF-8"), "--yes"]);
    for args in [&["unwrap", "vscod"][..], &["unwrap", "vscod", "--json"]] {
        let output = lab.shim(args);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{output:?}");
        assert!(
            told.contains("`vscod` is not wrapped") && told.contains("vscode (") && told.contains("bin/codex"),
            "{told}"
        );
    }
    lab.well(&["unwrap", &format!("{}/", link.display())]);
    assert!(!link.join("codex").exists());
    lab.well(&["unwrap", "vscode"]);
    assert!(lab.well(&["unwrap", "vscode"]).contains("nothing is wrapped"));
}

#[test]
fn settings_that_are_gone_are_done_with_and_those_that_cannot_be_read_are_told() {
    let lab = Lab::new();
    fs::write(lab.settings(), "{}").expect("write");
    lab.well(&["wrap", "vscode", "--yes"]);
    fs::remove_file(lab.settings()).expect("it goes");
    fs::create_dir(lab.settings()).expect("a folder");
    let output = lab.shim(&["unwrap"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && told.contains("directory") && !told.contains("was changed"),
        "{output:?}"
    );
    fs::remove_dir(lab.settings()).expect("it goes");
    assert!(lab.well(&["unwrap"]).contains("which is gone"));
    assert!(lab.well(&["unwrap"]).contains("nothing is wrapped"));
}

#[test]
fn a_setting_is_changed_and_put_back_byte_for_byte_unless_it_has_changed() {
    let lab = Lab::new();
    let before = "{\n  // mine\n  \"a\": 1, /* x */\n}\n";
    fs::write(lab.settings(), before).expect("write");
    let shown = lab.well(&["wrap", "vscode", "--yes"]);
    assert!(shown.contains("+   \"chatgpt.cliExecutable\": ") && !shown.contains("- "), "{shown}");
    let text = fs::read_to_string(lab.settings()).expect("it is there");
    let named = text.lines().nth(1).and_then(|line| line.split('"').nth(3)).expect("a path");
    assert!(named.ends_with("/bin/codex") && Path::new(named).exists(), "{named}");
    assert!(lab.well(&["wrap", "vscode", "--yes"]).contains("done already"));
    lab.well(&["unwrap", "vscode"]);
    assert_eq!(fs::read_to_string(lab.settings()).expect("it is there"), before);
    lab.well(&["wrap", "vscode", "--yes"]);
    fs::write(lab.settings(), "{}").expect("write");
    assert!(lab.well(&["unwrap"]).contains("is as it was"));
    assert_eq!(fs::read_to_string(lab.settings()).ok().as_deref(), Some("{}"));
    // Only our member goes where others came; one that somebody has set to something else stays.
    lab.well(&["wrap", "vscode", "--yes"]);
    let with_more = fs::read_to_string(lab.settings()).expect("it is there").replace("\"\n}", "\",\n  \"b\": 2\n}");
    fs::write(lab.settings(), with_more).expect("write");
    lab.well(&["unwrap"]);
    assert_eq!(fs::read_to_string(lab.settings()).ok().as_deref(), Some("{\n  \"b\": 2\n}"));
    lab.well(&["wrap", "vscode", "--yes"]);
    let other = "{\"chatgpt.cliExecutable\": \"/other\"}";
    fs::write(lab.settings(), other).expect("write");
    let output = lab.shim(&["unwrap"]);
    assert_eq!((output.status.code(), fs::read_to_string(lab.settings()).ok().as_deref()), (Some(1), Some(other)));
    assert!(String::from_utf8_lossy(&output.stderr).contains("\"/other\""), "{output:?}");
    let output = lab.shim(&["wrap", "cursor", "--yes"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("has no settings here"), "{output:?}");
    let output = lab.shim(&["wrap", "nonsense"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("is neither"), "{output:?}");
}

#[test]
fn a_codex_that_a_setting_named_is_what_that_tool_starts_from_then_on() {
    let lab = Lab::new();
    lab.codex("real");
    let own = lab.codex("own");
    fs::write(&own, "#!/bin/sh\necho my own \"$@\"\n").expect("write");
    let before = format!("{{\n  \"chatgpt.cliExecutable\": \"{}\" // mine\n}}\n", own.display());
    fs::write(lab.settings(), &before).expect("write");
    lab.well(&["wrap", "vscode", "--yes"]);
    let text = fs::read_to_string(lab.settings()).expect("it is there");
    let link = PathBuf::from(text.split('"').nth(3).expect("a path"));
    let says = |program: &Path| String::from_utf8_lossy(&lab.run(program, &["--version"]).stdout).into_owned();
    assert_eq!(says(&link), "my own --version\n");
    assert!(lab.well(&["wrap", "vscode", "--yes"]).contains("done already"));
    // Another tool has what PATH names, as it had.
    let cursor = lab.user.join(".config/Cursor/User");
    fs::create_dir_all(&cursor).expect("a folder");
    lab.well(&["wrap", "cursor", "--yes"]);
    let text = fs::read_to_string(cursor.join("settings.json")).expect("it is there");
    let others = PathBuf::from(text.split('"').nth(3).expect("a path"));
    assert_eq!(says(&others), "codex-cli 1.2.3 --version\n");
    // One that has gone is not another one.
    fs::remove_file(&own).expect("it goes");
    let output = lab.run(&link, &["--version"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(127) && told.contains("the setting that codex-shim wrap"), "{output:?}");
    lab.well(&["unwrap", "vscode"]);
    assert_eq!(fs::read_to_string(lab.settings()).expect("it is there"), before);
}

#[test]
fn programs_are_told_what_was_done() {
    let lab = Lab::new();
    fs::write(lab.settings(), "{}").expect("write");
    let told = |args: &[&str]| -> Value { serde_json::from_str(&lab.well(args)).expect("one document") };
    let output = lab.shim(&["wrap", "vscode", "--json"]);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{output:?}");
    let planned = told(&["wrap", "vscode", "--json", "--dry-run"]);
    assert_eq!((&planned["done"], &planned["path"]), (&json!(false), &json!(lab.settings())), "{planned}");
    assert_eq!(fs::read_to_string(lab.settings()).ok().as_deref(), Some("{}"));
    assert_eq!(told(&["wrap", "vscode", "--json", "--yes"])["done"], true);
    assert_eq!(told(&["wrap", "vscode", "--json", "--yes"])["already"], true);
    assert_eq!(told(&["unwrap", "--json", "--dry-run"])["unwrapped"][0]["done"], false);
    assert_eq!(told(&["unwrap", "--json"])["unwrapped"][0]["target"], "vscode");
    assert_eq!(told(&["unwrap", "--json"]), json!({"unwrapped": []}));
    assert_eq!(fs::read_to_string(lab.settings()).ok().as_deref(), Some("{}"));
}

#[test]
fn what_was_taken_back_is_told_where_that_cannot_be_noted() {
    let lab = Lab::new();
    let record = lab.home.path().join("wrapped.json");
    for args in [&["unwrap"][..], &["unwrap", "--json"]] {
        fs::write(lab.settings(), "{}").expect("write");
        lab.well(&["wrap", "vscode", "--yes"]);
        // The second one puts a folder where the record is written next.
        let beside = record.with_extension("codex-shim-new");
        let (aside, last) = (lab.user.join("aside"), lab.user.join("last"));
        fs::create_dir(&aside).expect("a folder");
        let mut all: Value = serde_json::from_slice(&fs::read(&record).expect("it is there")).expect("it is JSON");
        let records = all.as_array_mut().expect("a list");
        records.push(json!({"target": "x", "path": beside, "change": "link", "to": "/x", "set_aside": aside}));
        records.push(json!({"target": "y", "path": last, "change": "file", "before": null, "after": ""}));
        fs::write(&record, all.to_string()).expect("write");
        fs::write(&last, "").expect("write");
        let output = lab.shim(args);
        let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        if args.contains(&"--json") {
            let told: Value = serde_json::from_str(&told).expect("one document");
            let told = told["unwrapped"].as_array().expect("a list");
            let [first, second] = &told[..] else { panic!("{told:?}") };
            assert!(first["error"].is_null() && first["done"] == true, "{first}");
            let error = second["error"].as_str().expect("it says why");
            assert!(error.starts_with("write ") && second["told"].is_string() && second["done"] == true, "{second}");
        } else {
            let told: Vec<&str> = told.lines().collect();
            assert!(told.len() == 2 && told.iter().all(|told| told.starts_with("put ")), "{told:?}");
            assert!(errors.contains("write "), "{errors}");
        }
        // What is not done with stays on record.
        assert!(last.exists() && beside.is_dir());
        fs::remove_dir(&beside).expect("it goes");
        lab.well(&["unwrap"]);
        assert!(!last.exists() && !aside.exists());
        assert_eq!(fs::read_to_string(lab.settings()).ok().as_deref(), Some("{}"));
    }
}

#[test]
fn completions_are_for_each_shell_and_pages_for_each_command() {
    let lab = Lab::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(lab.well(&["completions", shell]).contains("codex-shim"), "{shell}");
    }
    let pages = lab.user.join("share/man/man1");
    lab.well(&["completions", "--man", pages.to_str().expect("UTF-8")]);
    assert!(pages.join("codex-shim-respond.1").exists());
    assert_eq!(lab.shim(&["completions"]).status.code(), Some(2));
}

/// The folder of the binary under test, for PATH.
fn folder() -> &'static str {
    SHIM.strip_suffix("/codex-shim").expect("it has its name")
}

/// The values that a shell offers for the last of these words; `None` if the shell is not installed.
fn offers(live: &Live, shell: &str, words: &[&str]) -> Option<Vec<String>> {
    let quoted = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let script = match shell {
        "bash" => format!(
            "export PATH={}:$PATH; source <(codex-shim completions bash); COMP_WORDS=({quoted}); COMP_CWORD={}\n\
             COMP_TYPE=9; _clap_complete_codex_shim codex-shim \"${{COMP_WORDS[COMP_CWORD]}}\" x 2>&1\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            folder(),
            words.len() - 1
        ),
        "fish" => {
            let typed = words.join(" ");
            format!("set -x PATH {} $PATH; codex-shim completions fish | source; complete -C '{typed}' 2>&1", folder())
        }
        other => panic!("no script for {other}"),
    };
    let mut command = Command::new(shell);
    live.home.adopt(&mut command).env("HOME", live.home.beside()).current_dir(live.home.beside());
    let Ok(output) = command.args(["-c", &script]).stdin(Stdio::null()).output() else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: completions in {shell}: it is not installed");
        return None;
    };
    assert!(output.status.success(), "{shell}: {output:?}");
    let shown = String::from_utf8(output.stdout).expect("UTF-8");
    // A description stands behind the value.
    Some(shown.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect())
}

#[test]
fn completions_know_sessions_threads_requests_and_targets() {
    let mut live = Live::initialized("");
    live.say_plainly(&turn_started("thread-7", "u"));
    let request = live.asked(&command_asked("0", "thread-7"), "0");
    live.say_plainly(&turn_started("thread-8", "u"));
    let checks: [(&[&str], &[&str], &str); 8] = [
        (&["codex-shim", "show", ""], &[&request, "latest"], "s"),
        (&["codex-shim", "respond", "--session", "s", &request[..4]], &[&request], "latest"),
        (&["codex-shim", "status", ""], &["s", "latest"], "thread-7"),
        (&["codex-shim", "events", "--session", ""], &["s", "latest"], "thread-7"),
        (&["codex-shim", "transcript", "thr"], &["thread-7", "thread-8"], "latest"),
        (&["codex-shim", "send", "--thread", ""], &["thread-7", "thread-8", "latest"], "s"),
        (&["codex-shim", "wrap", "vs"], &["vscode"], "path"),
        (&["codex-shim", "con"], &["context", "config"], "status"),
    ];
    for shell in ["bash", "fish"] {
        for (words, expect, not) in checks {
            let Some(offers) = offers(&live, shell, words) else { break };
            let has = |value: &str| offers.iter().any(|offer| offer == value);
            assert!(expect.iter().all(|value| has(value)), "{shell} {words:?}: {offers:?}");
            assert!(!has(not), "{shell} {words:?}: {offers:?}");
        }
    }
    live.kill();
    // Nothing is printed if there is nothing to offer.
    let home = Home::new();
    let mut command = home.shim(&["--", "codex-shim", "show", ""]);
    let output = command.env("CODEX_SHIM_COMPLETE", "fish").output().expect("it runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.lines().all(|line| line.starts_with('-')), "{shown}");
    assert!(!home.path().exists());
}

#[test]
fn zsh_completes_threads_and_describes_requests() {
    if Command::new("zsh").arg("-c").arg(":").status().is_err() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: completions in zsh: it is not installed");
        return;
    }
    let mut live = Live::initialized("");
    live.say_plainly(&turn_started("thread-7", "u"));
    let request = live.asked(&command_asked("0", "thread-7"), "0");
    let mut pane = Pane::start(&live.home, &["zsh", "-f", "-i"]);
    pane.types(&format!("export PATH={}:$PATH; PS1='ready> '\n", folder()));
    pane.types("autoload -U compinit; compinit -D; source <(codex-shim completions zsh)\n");
    pane.types("clear; echo so''urced\n");
    pane.shows("sourced");
    pane.types("codex-shim transcript thr\t");
    pane.shows("thread-7");
    pane.types("\u{15}codex-shim show \t");
    pane.shows(&request);
    pane.shows("run ");
    pane.types("\u{15}exit\n");
    live.kill();
}
