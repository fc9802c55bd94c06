//! `wrap` puts codex-shim where a tool looks for codex; `unwrap` removes it.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::both_ends::Live;
use crate::support::make_fifo;
use crate::support::pane::Pane;
use crate::support::requests::{command_asked, turn_started};
use crate::support::shim::{Home, SHIM, copy_shim, put_program};
use crate::surroundings::ends;

/// The PATH of a program started from the desktop.
const BARE_PATH: &str = "/usr/bin:/bin";

pub struct Lab {
    pub home: Home,
    /// The user's home folder, with `bin` and `real` on PATH.
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

    /// A codex that prints its version, and answers `initialize` as an app-server.
    pub fn codex(&self, folder: &str) -> PathBuf {
        let server = r#"[ "$*" = app-server ] && read -r line && echo '{"id":1,"result":{}}' && exec cat"#;
        self.program(&format!("{folder}/codex"), &format!("{server}\necho codex-cli 1.2.3 \"$@\"\n"))
    }

    /// An executable shell script.
    pub fn program(&self, path: &str, script: &str) -> PathBuf {
        let path = self.user.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        put_program(&path, format!("#!/bin/sh\n{script}").as_bytes());
        path
    }

    /// Runs a program as an editor started from the desktop would: without the user's folders on PATH.
    fn run_with_bare_path(&self, program: &Path, args: &[&str]) -> Output {
        let mut command = std::process::Command::new(program);
        command.args(args).env_clear().env("PATH", BARE_PATH).env("HOME", &self.user).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        ends(command.spawn().expect("it runs"), &format!("{args:?}"))
    }

    pub fn run(&self, program: &Path, args: &[&str]) -> Output {
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
        other.stdout(Stdio::piped()).stderr(Stdio::piped());
        ends(other.spawn().expect("it runs"), &format!("{args:?}"))
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
    assert!(lab.well(&["wrap", "path", "--yes"]).contains("already wrapped"));
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
    assert!(lab.well(&["wrap", &target, "--yes"]).contains("already wrapped"));
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
    // Started under its own name, codex-shim finds that codex in the record of `wrap`.
    let found = lab.well(&["doctor"]);
    assert!(found.contains("elsewhere/codex-before-codex-shim: codex-cli 1.2.3"), "{found}");
    // The link runs that codex even if PATH names another one.
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

/// A copy of codex-shim in its own folder.
fn copy(lab: &Lab, folder: &str) -> PathBuf {
    let program = lab.user.join(folder).join("codex-shim");
    fs::create_dir_all(program.parent().expect("a folder")).expect("a folder");
    copy_shim(&program);
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
    assert!(found.contains("does not exist; `codex-shim wrap"), "{found}");
    let (code, shown) = told(&["wrap", &target, "--dry-run"]);
    assert!(code == Some(0) && shown.contains("no longer to") && !codex.exists(), "{shown}");
    for args in [&["wrap", &target, "--yes"][..], &["wrap", "vscode", "--yes"]] {
        assert_eq!(told(args).0, Some(0), "{args:?}");
        assert!(told(args).1.contains("already wrapped"), "{args:?}");
    }
    let says = |program: &Path| String::from_utf8_lossy(&lab.run(program, &["--version"]).stdout).into_owned();
    assert_eq!(says(&codex), "codex-cli 1.2.3 --version\n");
    assert_eq!(says(&lab.home.path().join("bin/vscode/codex")), "codex-cli 1.2.3 --version\n");
    assert_eq!(fs::read(&aside).expect("it is kept"), before);
    let (_, found) = told(&["doctor"]);
    assert!(!found.contains("does not exist"), "{found}");
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
    // The folder and `path` name the same link.
    for (program, target) in [(&other, target), (&one, "path")] {
        let output = lab.run(program, &["wrap", target, "--yes"]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::read_link(&link).expect("a link"), *program);
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1);
        assert_eq!(says(&link), "codex-cli 1.2.3 --version\n");
    }
    assert!(lab.run(&other, &["unwrap", target]).status.success());
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 0);
    // A link that is not on record here is left alone, and the message says that it leads to another codex-shim.
    symlink(&one, &link).expect("a link");
    let output = lab.run(&other, &["wrap", target, "--yes"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && told.contains("is a link to another codex-shim"), "{output:?}");
    assert_eq!(fs::read_link(&link).expect("a link"), one);
    // If such a link has replaced ours, no message advises removing the codex that was set aside.
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
    lab.codex("real");
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
    for args in [&["unwrap", "vscode"][..], &["unwrap", "vscode", "--json"]] {
        let output = lab.shim(args);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{output:?}");
        assert!(says(&output).contains("`vscode` is not wrapped; nothing is wrapped"), "{output:?}");
    }
    assert!(lab.well(&["unwrap"]).contains("nothing is wrapped"));
}

#[test]
fn settings_that_are_gone_are_done_with_and_those_that_cannot_be_read_are_told() {
    let lab = Lab::new();
    lab.codex("real");
    fs::write(lab.settings(), "{}").expect("write");
    lab.well(&["wrap", "vscode", "--yes"]);
    fs::remove_file(lab.settings()).expect("it goes");
    fs::create_dir(lab.settings()).expect("a folder");
    let output = lab.shim(&["unwrap"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && told.contains("is a folder") && !told.contains("was changed"),
        "{output:?}"
    );
    fs::remove_dir(lab.settings()).expect("it goes");
    assert!(lab.well(&["unwrap"]).contains("which is gone"));
    assert!(lab.well(&["unwrap"]).contains("nothing is wrapped"));
}

#[test]
fn a_setting_is_changed_and_put_back_byte_for_byte_unless_it_has_changed() {
    let lab = Lab::new();
    lab.codex("real");
    let before = "{\n  // mine\n  \"a\": 1, /* x */\n}\n";
    fs::write(lab.settings(), before).expect("write");
    let shown = lab.well(&["wrap", "vscode", "--yes"]);
    assert!(shown.contains("+   \"chatgpt.cliExecutable\": ") && !shown.contains("- "), "{shown}");
    let text = fs::read_to_string(lab.settings()).expect("it is there");
    let named = text.lines().nth(1).and_then(|line| line.split('"').nth(3)).expect("a path");
    assert!(named.ends_with("/bin/vscode/codex") && Path::new(named).exists(), "{named}");
    assert!(lab.well(&["wrap", "vscode", "--yes"]).contains("already wrapped"));
    lab.well(&["unwrap", "vscode"]);
    assert_eq!(fs::read_to_string(lab.settings()).expect("it is there"), before);
    lab.well(&["wrap", "vscode", "--yes"]);
    fs::write(lab.settings(), "{}").expect("write");
    assert!(lab.well(&["unwrap"]).contains("has its previous value"));
    assert_eq!(fs::read_to_string(lab.settings()).ok().as_deref(), Some("{}"));
    // If members were added, unwrap removes only ours; if ours was changed, unwrap leaves it.
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
    assert!(lab.well(&["wrap", "vscode", "--yes"]).contains("already wrapped"));
    // Another tool still runs the codex that PATH names.
    let cursor = lab.user.join(".config/Cursor/User");
    fs::create_dir_all(&cursor).expect("a folder");
    lab.well(&["wrap", "cursor", "--yes"]);
    let text = fs::read_to_string(cursor.join("settings.json")).expect("it is there");
    let others = PathBuf::from(text.split('"').nth(3).expect("a path"));
    assert_eq!(says(&others), "codex-cli 1.2.3 --version\n");
    // If that codex is gone, no other one runs in its place.
    fs::remove_file(&own).expect("it goes");
    let output = lab.run(&link, &["--version"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(127) && told.contains("the setting that codex-shim wrap"), "{output:?}");
    lab.well(&["unwrap", "vscode"]);
    assert_eq!(fs::read_to_string(lab.settings()).expect("it is there"), before);
}

/// The value of a setting in one of the user's files: the quoted text after `key`.
fn value(lab: &Lab, file: &str, key: &str) -> PathBuf {
    let text = fs::read_to_string(lab.user.join(file)).expect("it is there");
    let (_, rest) = text.split_once(key).unwrap_or_else(|| panic!("{key}: {text}"));
    let rest = rest.split_once(':').expect("a value").1;
    PathBuf::from(rest.split(['"', '\'']).nth(1).expect("a string"))
}

const VSCODE: &str = ".config/Code/User/settings.json";

fn says(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn an_editor_with_a_bare_path_runs_the_pinned_codex() {
    let lab = Lab::new();
    // As npm installs it: a script for `node`, in a folder that only the user's shell has on PATH.
    lab.program("real/node", "shift\necho codex-cli 9.9.9 of the right node \"$@\"\n");
    let codex = lab.program("real/codex", "");
    fs::write(&codex, "#!/usr/bin/env node\n").expect("write");
    lab.well(&["wrap", "vscode", "--yes"]);
    lab.well(&["wrap", lab.user.join("bin").to_str().expect("UTF-8"), "--yes"]);
    let record = fs::read_to_string(lab.home.path().join("wrapped.json")).expect("it is there");
    assert_eq!(record.matches(codex.to_str().expect("UTF-8")).count(), 2, "{record}");
    for link in [value(&lab, VSCODE, "chatgpt.cliExecutable"), lab.user.join("bin/codex")] {
        let output = match link.starts_with(&lab.user) {
            // A link on PATH does not show which home has its record, so it needs CODEX_SHIM_HOME.
            true => {
                lab.run(Path::new("/usr/bin/env"), &["PATH=/usr/bin:/bin", link.to_str().expect("UTF-8"), "--version"])
            }
            false => lab.run_with_bare_path(&link, &["--version"]),
        };
        assert_eq!(says(&output), "codex-cli 9.9.9 of the right node --version\n", "{}", link.display());
    }
    // A codex that was set aside for the link needs its node, too.
    lab.well(&["unwrap"]);
    lab.well(&["wrap", codex.to_str().expect("UTF-8"), "--yes"]);
    let found =
        lab.run(Path::new("/usr/bin/env"), &["PATH=/usr/bin:/bin", codex.to_str().expect("UTF-8"), "--version"]);
    assert_eq!(says(&found), "codex-cli 9.9.9 of the right node --version\n");
}

#[test]
fn wrap_without_a_codex_is_refused() {
    let lab = Lab::new();
    fs::write(lab.settings(), "{}").expect("write");
    let folder = lab.user.join("bin");
    for target in ["vscode", "path", folder.to_str().expect("UTF-8")] {
        for more in ["--yes", "--dry-run"] {
            let output = lab.shim(&["wrap", target, more]);
            let said = says(&output);
            assert!(output.status.code() == Some(1) && said.contains("no codex found in PATH"), "{target}: {said}");
            assert!(said.contains("npm install -g @openai/codex"), "{said}");
        }
    }
    assert_eq!(fs::read_to_string(lab.settings()).ok().as_deref(), Some("{}"));
    assert!(!lab.home.path().exists() && !folder.join("codex").exists());
}

#[test]
fn a_pinned_codex_that_is_gone_is_reported() {
    let lab = Lab::new();
    let codex = lab.codex("elsewhere");
    lab.codex("real");
    let path = format!("PATH={}:{BARE_PATH}", codex.parent().expect("a folder").display());
    let wrapped = lab.run(Path::new("/usr/bin/env"), &[&path, SHIM, "wrap", "vscode", "--yes"]);
    assert!(wrapped.status.success(), "{wrapped:?}");
    let link = value(&lab, VSCODE, "chatgpt.cliExecutable");
    fs::remove_file(&codex).expect("it goes");
    let output = lab.run(&link, &["--version"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "codex-cli 1.2.3 --version\n");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.lines().count() == 1 && told.contains("elsewhere/codex") && told.contains("real/codex"), "{told}");
    assert!(told.contains("codex-shim wrap vscode"), "{told}");
    // Another wrap pins the codex that PATH names now.
    assert!(lab.well(&["wrap", "vscode", "--dry-run"]).contains("real/codex"));
    lab.well(&["wrap", "vscode", "--yes"]);
    assert_eq!(says(&lab.run_with_bare_path(&link, &["--version"])), "codex-cli 1.2.3 --version\n");
    assert!(lab.well(&["wrap", "vscode", "--yes"]).contains("already wrapped"));
    // No codex is left.
    fs::remove_file(lab.user.join("real/codex")).expect("it goes");
    let output = lab.run_with_bare_path(&link, &["--version"]);
    let told = says(&output);
    assert!(output.status.code() == Some(127) && told.contains("real/codex"), "{output:?}");
    assert!(told.contains("codex-shim wrap vscode"), "{told}");
}

#[test]
fn links_lead_to_the_name_that_path_has() {
    let lab = Lab::new();
    lab.codex("real");
    let output = lab.shim(&["wrap", "vscode", "--yes"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && told.contains("codex-shim is not on PATH"), "{output:?}");
    let link = value(&lab, VSCODE, "chatgpt.cliExecutable");
    assert_eq!(fs::read_link(&link).expect("a link"), Path::new(SHIM));
    let name = lab.user.join("bin/codex-shim");
    symlink(SHIM, &name).expect("a link");
    let output = lab.shim(&["wrap", "vscode", "--yes"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(fs::read_link(&link).expect("a link"), name);
    // An upgrade replaces the program.
    fs::remove_file(&name).expect("it goes");
    symlink(copy(&lab, "v2"), &name).expect("a link");
    assert_eq!(says(&lab.run_with_bare_path(&link, &["--version"])), "codex-cli 1.2.3 --version\n");
    fs::remove_file(&name).expect("it goes");
    symlink(SHIM, &name).expect("a link");
    lab.well(&["wrap", "path", "--yes"]);
    assert_eq!(fs::read_link(lab.user.join("bin/codex")).expect("a link"), name);
}

#[test]
fn each_tool_is_wrapped_where_its_settings_are() {
    let lab = Lab::new();
    lab.codex("real");
    let tools = [
        ("vscode", VSCODE, "chatgpt.cliExecutable"),
        ("vscode-insiders", ".config/Code - Insiders/User/settings.json", "chatgpt.cliExecutable"),
        ("vscodium", ".config/VSCodium/User/settings.json", "chatgpt.cliExecutable"),
        ("cursor", ".config/Cursor/User/settings.json", "chatgpt.cliExecutable"),
        ("windsurf", ".config/Windsurf/User/settings.json", "chatgpt.cliExecutable"),
        ("zed", ".config/zed/settings.json", "CODEX_PATH"),
        ("openclaw", ".openclaw/openclaw.json", "command"),
    ];
    for (tool, file, key) in tools {
        let output = lab.shim(&["wrap", tool, "--yes"]);
        if tool != "vscode" {
            let told = says(&output);
            let place = lab.user.join(file).display().to_string();
            assert!(output.status.code() == Some(1) && told.contains(&place), "{tool}: {told}");
            assert!(told.contains("found here: vscode"), "{told}");
        }
        let settings = lab.user.join(file);
        fs::create_dir_all(settings.parent().expect("a folder")).expect("a folder");
        let before = "{\n  // mine\n  \"agent_servers\": {\"other\": {\"type\": \"custom\", \"command\": \"x\"}},\n}\n";
        fs::write(&settings, before).expect("write");
        let told = lab.well(&["wrap", tool, "--yes"]);
        assert!(told.contains("eload") || told.contains("estart"), "{tool}: {told}");
        let link = value(&lab, file, &format!("\"{key}\""));
        assert_eq!(says(&lab.run_with_bare_path(&link, &["--version"])), "codex-cli 1.2.3 --version\n", "{tool}");
        let is_registry = fs::read_to_string(&settings).expect("it is there").contains("\"type\": \"registry\"");
        assert_eq!(is_registry, tool == "zed");
        lab.well(&["unwrap", tool]);
        assert_eq!(fs::read_to_string(&settings).expect("it is there"), before, "{tool}");
        fs::remove_dir_all(settings.parent().expect("a folder")).expect("it goes");
        fs::create_dir_all(lab.user.join(".config/Code/User")).expect("a folder");
    }
}

#[test]
fn json5_settings_change_only_in_the_value() {
    let lab = Lab::new();
    lab.codex("real");
    let settings = lab.user.join(".openclaw/openclaw.json");
    fs::create_dir_all(settings.parent().expect("a folder")).expect("a folder");
    let text = |value: &str| {
        format!(
            "// mine\n{{\n\tplugins: {{\n\t\tentries: {{ $x: .5, codex: {{config: {{'appServer': {{mode: 'guardian', \
             command: {value} /* c */,}},}},}},}},\n\t}}, n: [+1, 0xF, Infinity, 'it\\'s', 'a \\\nb',],\n}}\n"
        )
    };
    let own = lab.codex("own");
    let before = text(&format!("'{}'", own.display()));
    fs::write(&settings, &before).expect("write");
    lab.well(&["wrap", "openclaw", "--yes"]);
    let link = lab.home.path().join("bin/openclaw/codex");
    assert_eq!(fs::read_to_string(&settings).expect("it is there"), text(&format!("\"{}\"", link.display())));
    assert!(lab.well(&["wrap", "openclaw", "--yes"]).contains("already wrapped"));
    lab.well(&["unwrap"]);
    assert_eq!(fs::read_to_string(&settings).expect("it is there"), before);
    for (broken, words) in [
        ("{\n  plugins: {\n    entries }\n}\n", "line 3"),
        ("{\n  plugins: {entries: [],\n  },\n}\n", "line 2, column 22: `plugins.entries` is not an object"),
        ("[]", "line 1, column 1"),
        ("{\"a\": 1\n \"b\": 2}", "line 1, column 8"),
    ] {
        fs::write(&settings, broken).expect("write");
        let output = lab.shim(&["wrap", "openclaw", "--yes"]);
        let told = says(&output);
        assert!(output.status.code() == Some(1) && told.contains(words), "{broken}: {told}");
        assert!(told.contains("openclaw.json") && told.contains("plugins.entries.codex.config.appServer.command"));
        assert_eq!(fs::read_to_string(&settings).expect("it is there"), broken);
    }
}

#[test]
fn unwrap_forgets_a_value_changed_by_hand() {
    let lab = Lab::new();
    lab.codex("real");
    fs::write(lab.settings(), "{}").expect("write");
    lab.well(&["wrap", "vscode", "--yes"]);
    let other = "{\"chatgpt.cliExecutable\": \"/other\"}";
    fs::write(lab.settings(), other).expect("write");
    let output = lab.shim(&["unwrap", "vscode"]);
    assert!(
        output.status.code() == Some(1) && says(&output).contains("codex-shim unwrap --forget vscode"),
        "{output:?}"
    );
    assert!(lab.well(&["unwrap", "--forget", "vscode", "--dry-run"]).starts_with("would forget "));
    assert!(lab.well(&["unwrap", "--forget", "vscode"]).contains("forgot "));
    assert_eq!(fs::read_to_string(lab.settings()).ok().as_deref(), Some(other));
    assert!(lab.well(&["unwrap"]).contains("nothing is wrapped"));
    // `--forget` still restores an unchanged value.
    fs::write(lab.settings(), "{}").expect("write");
    lab.well(&["wrap", "vscode", "--yes"]);
    lab.well(&["unwrap", "--forget"]);
    assert_eq!(fs::read_to_string(lab.settings()).ok().as_deref(), Some("{}"));
    // If the settings cannot be written, `--forget` keeps the record.
    lab.well(&["wrap", "vscode", "--yes"]);
    fs::set_permissions(lab.settings(), fs::Permissions::from_mode(0o444)).expect("a mode");
    assert_eq!(lab.shim(&["unwrap", "--forget"]).status.code(), Some(1));
    let left = lab.shim(&["unwrap", "--dry-run", "--json"]);
    assert!(says(&left).contains("\"target\":\"vscode\""), "{left:?}");
}

#[test]
fn a_wrap_of_version_0_1_gets_a_pin() {
    let lab = Lab::new();
    lab.codex("real");
    let link = lab.home.path().join("bin/codex");
    let after = format!("{{\"chatgpt.cliExecutable\": \"{}\"}}", link.display());
    fs::write(lab.settings(), &after).expect("write");
    // Lets codex-shim create the home.
    lab.well(&["wrap", "path", "--yes"]);
    lab.well(&["unwrap"]);
    fs::create_dir(link.parent().expect("a folder")).expect("a folder");
    symlink(SHIM, &link).expect("a link");
    let record =
        json!([{"target": "vscode", "path": lab.settings(), "change": "file", "before": "{}", "after": after}]);
    fs::write(lab.home.path().join("wrapped.json"), record.to_string()).expect("write");
    assert_eq!(lab.run_with_bare_path(&link, &["--version"]).status.code(), Some(127));
    lab.well(&["wrap", "vscode", "--yes"]);
    assert_eq!(says(&lab.run_with_bare_path(&link, &["--version"])), "codex-cli 1.2.3 --version\n");
    lab.well(&["unwrap"]);
    assert_eq!(fs::read_to_string(lab.settings()).ok().as_deref(), Some("{}"));
}

#[test]
fn a_preview_shows_tabs_as_tabs() {
    let lab = Lab::new();
    lab.codex("real");
    let before = "{\n\t\"a\": 1,\n\t\"chatgpt.cliExecutable\": null\n}\n";
    fs::write(lab.settings(), before).expect("write");
    let shown = lab.well(&["wrap", "vscode", "--dry-run"]);
    assert!(shown.contains("- \t\"chatgpt.cliExecutable\": null\n+ \t\"chatgpt.cliExecutable\": \"/"), "{shown}");
    // A new line is indented like its neighbours.
    fs::write(lab.settings(), "{\n\t\"a\": 1\n}\n").expect("write");
    let shown = lab.well(&["wrap", "vscode", "--dry-run"]);
    assert!(shown.contains("+ \t\"chatgpt.cliExecutable\""), "{shown}");
}

#[test]
fn programs_are_told_what_was_done() {
    let lab = Lab::new();
    lab.codex("real");
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
    lab.codex("real");
    let home = lab.home.path();
    // The home is a link.
    let real = lab.user.join("real-home");
    fs::create_dir(&real).expect("a folder");
    let record = real.join("wrapped.json");
    for args in [&["unwrap"][..], &["unwrap", "--json"]] {
        symlink(&real, &home).expect("a link");
        fs::write(lab.settings(), "{}").expect("write");
        lab.well(&["wrap", "vscode", "--yes"]);
        // Undoing the second record replaces that link with a file, so the records cannot be updated from then on.
        let (aside, last) = (lab.user.join("aside"), lab.user.join("last"));
        fs::write(&aside, "").expect("a file");
        let mut all: Value = serde_json::from_slice(&fs::read(&record).expect("it is there")).expect("it is JSON");
        let records = all.as_array_mut().expect("a list");
        records.push(json!({"target": "x", "path": home, "change": "link", "to": real, "set_aside": aside}));
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
            assert_eq!(told.lines().filter(|line| line.starts_with("put ")).count(), 2, "{told}");
            assert!(errors.contains("write "), "{errors}");
        }
        // The last change is not undone, and stays on record.
        assert!(last.exists() && home.is_file());
        fs::remove_file(&home).expect("it goes");
        symlink(real.join("../real-home"), &home).expect("another link");
        lab.well(&["unwrap"]);
        assert!(!last.exists() && !aside.exists());
        assert_eq!(fs::read_to_string(lab.settings()).ok().as_deref(), Some("{}"));
        let _ = fs::remove_file(&home);
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

/// Wraps and unwraps VS Code, and checks that its settings have their old text again.
fn there_and_back(lab: &Lab, before: &str) {
    lab.well(&["wrap", "vscode", "--yes"]);
    let during = fs::read_to_string(lab.settings()).expect("it is there");
    assert!(during.contains("chatgpt.cliExecutable"), "{during}");
    lab.well(&["unwrap"]);
    assert_eq!(fs::read_to_string(lab.settings()).expect("it is there"), before);
}

const SETTINGS: &str = "{\n  \"a\": 1\n}\n";

/// The files in the settings folder.
fn beside_settings(lab: &Lab) -> Vec<OsString> {
    let folder = lab.settings().parent().expect("a folder").to_owned();
    let mut names: Vec<OsString> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    names
}

#[test]
fn settings_keep_their_hard_links_and_attributes() {
    let lab = Lab::new();
    lab.codex("real");
    fs::write(lab.settings(), SETTINGS).expect("write");
    fs::set_permissions(lab.settings(), fs::Permissions::from_mode(0o640)).expect("a mode");
    let other = lab.user.join("other-name.json");
    fs::hard_link(lab.settings(), &other).expect("a link");
    let inode = fs::metadata(&other).expect("it is there").ino();
    lab.well(&["wrap", "vscode", "--yes"]);
    assert!(fs::read_to_string(&other).expect("it is there").contains("chatgpt.cliExecutable"));
    lab.well(&["unwrap"]);
    let now = fs::metadata(lab.settings()).expect("it is there");
    assert_eq!((now.ino(), now.nlink(), now.mode() & 0o777), (inode, 2, 0o640));
    assert_eq!(fs::read_to_string(&other).expect("it is there"), SETTINGS);
    assert_eq!(beside_settings(&lab), ["settings.json"]);

    fs::remove_file(&other).expect("it goes");
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(lab.settings(), "user.codex-shim-test", b"kept", flags).is_err() {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), b"SKIPPED: no attributes on this file system\n");
        return;
    }
    there_and_back(&lab, SETTINGS);
    let mut value = [0; 8];
    let bytes = rustix::fs::getxattr(lab.settings(), "user.codex-shim-test", &mut value[..]).expect("it is kept");
    assert_eq!(&value[..bytes], b"kept");
}

#[test]
fn settings_keep_their_owner_under_root() {
    if !rustix::process::geteuid().is_root() {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), b"SKIPPED: only root changes what others own\n");
        return;
    }
    let lab = Lab::new();
    lab.codex("real");
    fs::write(lab.settings(), SETTINGS).expect("write");
    std::os::unix::fs::chown(lab.settings(), Some(65_534), Some(65_533)).expect("root may");
    there_and_back(&lab, SETTINGS);
    let now = fs::metadata(lab.settings()).expect("it is there");
    assert_eq!((now.uid(), now.gid()), (65_534, 65_533));
    assert_eq!(beside_settings(&lab), ["settings.json"]);
}

#[test]
fn read_only_settings_are_refused_with_the_remedy() {
    let lab = Lab::new();
    lab.codex("real");
    // A package manager installs settings as links to read-only files.
    let store = lab.user.join("store.json");
    fs::write(&store, SETTINGS).expect("write");
    for is_link in [false, true] {
        let _ = fs::remove_file(lab.settings());
        match is_link {
            true => symlink(&store, lab.settings()).expect("a link"),
            false => fs::write(lab.settings(), SETTINGS).expect("write"),
        }
        fs::set_permissions(lab.settings(), fs::Permissions::from_mode(0o444)).expect("a mode");
        for more in ["--yes", "--dry-run"] {
            let output = lab.shim(&["wrap", "vscode", more]);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.code() == Some(1) && said.contains("mode 0444"), "{output:?}");
            assert!(said.contains("chmod u+w "), "{said}");
        }
        assert_eq!(fs::read_to_string(lab.settings()).expect("it is there"), SETTINGS);
        assert!(lab.well(&["unwrap"]).contains("nothing is wrapped"));
    }
    // The settings become read-only after the wrap.
    fs::set_permissions(&store, fs::Permissions::from_mode(0o644)).expect("a mode");
    lab.well(&["wrap", "vscode", "--yes"]);
    assert!(fs::symlink_metadata(lab.settings()).is_ok_and(|there| there.is_symlink()), "the link stays");
    let wrapped = fs::read_to_string(&store).expect("it is there");
    fs::set_permissions(&store, fs::Permissions::from_mode(0o444)).expect("a mode");
    let output = lab.shim(&["unwrap"]);
    assert!(output.status.code() == Some(1) && String::from_utf8_lossy(&output.stderr).contains("chmod u+w "));
    assert_eq!(fs::read_to_string(&store).expect("it is there"), wrapped);
    fs::set_permissions(&store, fs::Permissions::from_mode(0o600)).expect("a mode");
    lab.well(&["unwrap"]);
    assert_eq!(fs::read_to_string(&store).expect("it is there"), SETTINGS);
    assert_eq!(fs::metadata(&store).expect("it is there").permissions().mode() & 0o777, 0o600);
}

#[test]
fn irregular_settings_files_are_refused() {
    let lab = Lab::new();
    lab.codex("real");
    let refused = |words: &str| {
        let output = lab.shim(&["wrap", "vscode", "--yes"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(words), "{output:?}");
        fs::remove_file(lab.settings()).expect("it is as it was");
    };
    make_fifo(&lab.settings());
    refused("not a regular file");
    symlink(lab.user.join("nowhere.json"), lab.settings()).expect("a link");
    refused("has no target");
    // A backup left by a crash may hold the only good text.
    let backup = lab.settings().with_extension("json.codex-shim-backup");
    fs::write(lab.settings(), SETTINGS).expect("write");
    fs::hard_link(lab.settings(), lab.user.join("other-name.json")).expect("a link");
    fs::write(&backup, "precious").expect("write");
    refused("cut short");
    assert_eq!(fs::read_to_string(&backup).expect("it is there"), "precious");
}

/// The folder of the binary under test, for PATH.
fn folder() -> &'static str {
    SHIM.strip_suffix("/codex-shim").expect("it has its name")
}

/// A word as the words that bash makes of it for a completion, quoted.
fn split_by_bash(word: &str) -> String {
    let quoted = |part: &str| if part.is_empty() { String::new() } else { format!("'{part}'") };
    match word.split_once(':') {
        Some((key, value)) => format!("{} : {}", quoted(key), quoted(value)),
        None => format!("'{word}'"),
    }
}

/// The values that a shell offers for the last of these words; `None` if the shell is not installed.
fn offers(live: &Live, shell: &str, words: &[&str]) -> Option<Vec<String>> {
    let script = match shell {
        "bash" => format!(
            "export PATH={}:$PATH; source <(codex-shim completions bash)\n\
             COMP_WORDS=({}); COMP_LINE='{}'; COMP_POINT=${{#COMP_LINE}}; COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_TYPE=9\n\
             [ \"${{COMP_WORDS[COMP_CWORD]}}\" = : ] && typed= || typed=${{COMP_WORDS[COMP_CWORD]}}\n\
             _codex_shim_complete codex-shim \"$typed\" x 2>&1\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            folder(),
            words.iter().map(|word| split_by_bash(word)).collect::<Vec<_>>().join(" "),
            words.join(" "),
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
    // fish adds a tab and a description.
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
    // bash replaces the text behind a colon, fish the whole word.
    let checks: [(&[&str], &str, &str); 5] = [
        (&["codex-shim", "search", "kin"], "kind:", "kind:"),
        (&["codex-shim", "search", "kind:"], "kind:", "command"),
        (&["codex-shim", "search", "make", "kind:c"], "kind:", "command"),
        (&["codex-shim", "events", "--filter", "status:"], "status:", "failed"),
        (&["codex-shim", "requests", "--all", "--filter", "by:t"], "by:", "tui"),
    ];
    for shell in ["bash", "fish"] {
        for (words, before, expect) in checks {
            let Some(offers) = offers(&live, shell, words) else { break };
            let expect =
                if shell == "fish" && *before != *expect { format!("{before}{expect}") } else { expect.to_owned() };
            assert!(offers.contains(&expect), "{shell} {words:?}: {offers:?}");
            assert!(!offers.iter().any(|offer| offer.starts_with("--")), "{shell} {words:?}: {offers:?}");
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
