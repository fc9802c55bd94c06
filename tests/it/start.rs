//! Every way to start a relay, or to become codex, and the session that a start belongs to.
//!
//! Small shell scripts that report how they were started play the real codex.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use codex_shim::testing::journal::Header;
use serde_json::{Map, Value};

use super::support::eventually;
use super::support::journal::Journal;
use super::support::launch::{INHERITED, LAUNCHERS, descriptors, inherits, report, reported};
use super::support::shim::{Home, SHIM};

/// Prints its pid, name, folder, environment and arguments, and exits with 42. Needs no `PATH`.
const REPORT: &str = r#"
printf 'pid=%s\nname=%s\ncwd=%s\n' "$$" "$0" "$(pwd -P)"
printf 'depth=%s\ncodex_home=%s\n' "$CODEX_SHIM_DEPTH" "$CODEX_HOME"
for arg in "$@"; do printf 'arg=%s\n' "$arg"; done
exit 42
"#;

/// A home with folders beside it, for programs and working directories.
struct Scene {
    home: Home,
}

impl Scene {
    fn new() -> Scene {
        Scene { home: Home::new() }
    }

    /// A scene with a codex in the folder `real`.
    fn with_codex() -> Scene {
        let scene = Scene::new();
        scene.script("real", "codex", REPORT);
        scene
    }

    fn dir(&self, name: &str) -> PathBuf {
        let dir = self.home.beside().canonicalize().expect("the root is there").join(name);
        fs::create_dir_all(&dir).expect("a folder");
        dir
    }

    /// Creates the script `dir/name`. Another process writes it: a child of a concurrent test could briefly inherit a
    /// descriptor that this process has open for writing, and the script could not be run.
    fn script(&self, dir: &str, name: &str, body: &str) -> PathBuf {
        let path = self.dir(dir).join(name);
        let mut command = Command::new("sh");
        command.args(["-c", r#"printf '#!/bin/sh\n%s' "$1" >"$0" && chmod 755 "$0""#]).arg(&path).arg(body);
        assert!(command.status().expect("sh starts").success());
        path
    }

    fn link(&self, dir: &str, name: &str, to: impl AsRef<Path>) -> PathBuf {
        let path = self.dir(dir).join(name);
        symlink(to, &path).expect("a link");
        path
    }

    fn config(&self, text: &str) {
        fs::create_dir_all(self.home.path()).expect("a folder");
        fs::write(self.home.path().join("config.toml"), text).expect("a file");
    }

    /// `program` with only these folders as its `PATH`.
    fn command(&self, program: impl AsRef<OsStr>, path: &[&str]) -> Command {
        let path = std::env::join_paths(path.iter().map(|name| self.dir(name))).expect("plain names");
        let mut command = Command::new(program);
        self.home.adopt(&mut command).env("PATH", path).env("SHIM", SHIM);
        command
    }
}

/// How a command ended, and its output.
struct Ran {
    pid: u32,
    code: Option<i32>,
    stdout: Vec<u8>,
    stderr: String,
}

impl Ran {
    /// The values that [`REPORT`] printed under a name.
    fn all(&self, name: &str) -> Vec<OsString> {
        let lines = self.stdout.split(|byte| *byte == b'\n');
        let values = lines.filter_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        values.map(|value| OsString::from_vec(value.to_vec())).collect()
    }

    fn one(&self, name: &str) -> OsString {
        let mut values = self.all(name);
        assert_eq!(values.len(), 1, "{name}: {}{}", String::from_utf8_lossy(&self.stdout), self.stderr);
        values.remove(0)
    }

    /// Whether the reporting process is the one that was started.
    fn is_the_same_process(&self) -> bool {
        self.one("pid") == *self.pid.to_string()
    }

    /// The single line on stderr, with an empty stdout and this exit status.
    fn refusal(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert_eq!(self.stdout, b"");
        assert_eq!(self.stderr.lines().count(), 1, "{}", self.stderr);
        assert!(self.stderr.ends_with('\n'));
        self.stderr.strip_prefix("codex-shim: ").expect("it says who speaks").trim_end()
    }
}

/// Runs a command to its end, with an empty stdin.
fn run(command: &mut Command) -> Ran {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be started");
    drop(child.stdin.take());
    let status = eventually("the end of a command", || child.try_wait().expect("it is our child"));
    let (mut stdout, mut stderr) = (Vec::new(), String::new());
    child.stdout.take().expect("it is piped").read_to_end(&mut stdout).expect("it can be read");
    child.stderr.take().expect("it is piped").read_to_string(&mut stderr).expect("it is UTF-8");
    Ran { pid: child.id(), code: status.code(), stdout, stderr }
}

#[test]
fn without_arguments_it_relays_codex_app_server() {
    let scene = Scene::with_codex();
    let ran = run(&mut scene.command(SHIM, &["real"]));
    assert_eq!(ran.all("arg"), ["app-server"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(42), ""));
    assert!(!ran.is_the_same_process());
    assert_eq!(scene.home.journal().headers.len(), 1);
}

#[test]
fn without_arguments_a_terminal_gets_the_help() {
    let about = Command::new("script").arg("--version").output();
    if !about.is_ok_and(|about| about.stdout.windows(10).any(|word| word == b"util-linux")) {
        // The harness captures stdout, so write to stderr directly: a skipped test must be visible.
        let _ = writeln!(std::io::stderr(), "SKIPPED: help on a terminal: util-linux's `script` is not installed");
        return;
    }
    let scene = Scene::with_codex();
    let mut command = Command::new("script");
    scene
        .home
        .adopt(&mut command)
        .env("SHIM", SHIM)
        .env("SHELL", "/bin/sh")
        .env("NO_COLOR", "1")
        .env("CODEX_SHIM_CODEX", scene.dir("real").join("codex"));
    let ran = run(command.args(["-qec", r#""$SHIM""#, "/dev/null"]));
    let shown = String::from_utf8_lossy(&ran.stdout);
    assert!(shown.contains("records every message") && shown.contains("Start here:"), "{shown}");
    assert_eq!((ran.all("arg").len(), ran.code), (0, Some(0)));
    assert!(!scene.home.path().exists());
}

#[test]
fn every_argument_reaches_codex_unchanged_and_in_order() {
    let scene = Scene::with_codex();
    let not_utf8 = OsStr::from_bytes(b"k=\xff\xfe");
    let relayed =
        ["-c", "a=b", "app-server", "--enable", "x", "--listen", "stdio://", "-c", "with space", "-c", "", "-c"];
    let becomes = ["--enable", "x", "app-server", "generate-ts", "with space", "", "*", "--"];
    for (args, sessions) in [(&relayed[..], 1), (&becomes[..], 0)] {
        let _ = fs::remove_dir_all(scene.home.path());
        let args: Vec<&OsStr> = args.iter().map(OsStr::new).chain([not_utf8]).collect();
        let ran = run(scene.command(SHIM, &["real"]).args(&args));
        assert_eq!(ran.all("arg"), args);
        assert_eq!((ran.stderr.as_str(), scene.home.sessions().len()), ("", sessions));
    }
}

#[test]
fn what_does_not_speak_on_stdio_becomes_codex() {
    let scene = Scene::with_codex();
    let link = scene.link("link", "codex", SHIM);
    for program in [Path::new(SHIM), &link] {
        for rest in ["generate-ts", "daemon start", "proxy", "--help", "--listen ws://127.0.0.1:0"] {
            let args: Vec<&str> = ["app-server"].into_iter().chain(rest.split(' ')).collect();
            let ran = run(scene.command(program, &["link", "real"]).args(&args));
            assert_eq!(ran.all("arg"), args);
            assert!(ran.is_the_same_process(), "{args:?}");
        }
    }
    assert!(!scene.home.path().exists());
}

#[test]
fn under_the_name_codex_all_but_app_server_becomes_codex() {
    let scene = Scene::with_codex();
    let link = scene.link("link", "codex", SHIM);
    for args in [&["--version"][..], &["login", "status"], &["exec", "app-server"], &["run"], &[]] {
        let ran = run(scene.command(&link, &["link", "real"]).args(args));
        assert_eq!(ran.all("arg"), args);
        assert!(ran.is_the_same_process(), "{args:?}");
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(42), ""));
    }
    assert!(!scene.home.path().exists());
}

#[test]
fn under_the_name_codex_app_server_is_relayed() {
    let scene = Scene::with_codex();
    let link = scene.link("link", "codex", SHIM);
    let ran = run(scene.command(link, &["link", "real"]).args(["-c", "a=b", "app-server"]));
    assert_eq!(ran.all("arg"), ["-c", "a=b", "app-server"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(42), ""));
    assert!(scene.home.journal().server.contains(&Some(b"arg=app-server\n".to_vec())));
}

#[test]
fn a_link_called_codex_app_server_is_the_server() {
    let scene = Scene::with_codex();
    let link = scene.link("link", "codex-app-server", SHIM);
    assert_eq!(run(&mut scene.command(link, &["real"])).all("arg"), ["app-server"]);
    assert_eq!(scene.home.journal().headers.len(), 1);
}

#[test]
fn links_to_ourselves_do_not_loop() {
    let scene = Scene::new();
    let first = scene.link("first", "codex", SHIM);
    let second = scene.link("second", "codex", &first);
    let third = scene.link("third", "codex", &second);
    let real = scene.script("real", "codex", REPORT);
    for program in [Path::new(SHIM), &first, &third] {
        let ran = run(scene.command(program, &["third", "first", "second", "real"]).arg("app-server"));
        assert_eq!((ran.one("name"), ran.one("depth")), (real.clone().into(), "1".into()));
    }
}

#[test]
fn a_wrapper_that_leads_back_to_us_ends_with_one_line() {
    for body in [r#""$SHIM" app-server"#, r#"exec "$SHIM" app-server "$@""#, r#"exec "$SHIM" app-server --help"#] {
        let scene = Scene::new();
        scene.script("wrapper", "codex", body);
        let ran = run(scene.command(SHIM, &["wrapper"]).arg("app-server"));
        let told = ran.refusal(127);
        assert!(told.contains("--codex") && told.contains("CODEX_SHIM_CODEX"), "{told}");
    }
}

#[test]
fn a_codex_that_is_ourselves_is_refused() {
    let scene = Scene::new();
    let link = scene.link("link", "us", SHIM);
    let by_flag = run(scene.command(SHIM, &["link"]).args(["run", "--codex"]).arg(&link));
    let by_name = run(scene.command(SHIM, &["link"]).args(["app-server", "--help"]).env("CODEX_SHIM_CODEX", SHIM));
    scene.config(&format!("codex = {:?}\n", link.display().to_string()));
    let by_file = run(&mut scene.command(SHIM, &["link"]));
    for (ran, named_by) in [(by_flag, "--codex"), (by_name, "CODEX_SHIM_CODEX"), (by_file, "`codex` in config.toml")] {
        let told = ran.refusal(127);
        assert!(told.contains(&format!("(set by {named_by}) is codex-shim itself")), "{told}");
    }
}

#[test]
fn no_codex_is_told_with_where_it_was_looked_for() {
    let scene = Scene::new();
    let link = scene.link("link", "codex", SHIM);
    fs::write(scene.dir("text").join("codex"), "no program").expect("a file");
    for (program, args) in [(Path::new(SHIM), "app-server"), (Path::new(SHIM), "run"), (&link, "--version")] {
        let ran = run(scene.command(program, &["link", "text", "empty"]).arg(args));
        let told = ran.refusal(127);
        for word in ["link", "text", "empty"].map(|name| scene.dir(name).display().to_string()) {
            assert!(told.contains(&word), "{word}: {told}");
        }
        assert!(told.contains("--codex") && told.contains("CODEX_SHIM_CODEX"), "{told}");
    }
}

#[test]
fn a_codex_that_was_named_and_is_missing_is_told_with_where_it_was_looked_for() {
    let scene = Scene::new();
    let missing = scene.dir("empty").join("codex");
    for name in [missing.as_os_str(), OsStr::new("no-such-codex")] {
        let ran = run(scene.command(SHIM, &["empty"]).args(["run", "--codex"]).arg(name));
        let told = ran.refusal(127);
        assert!(told.contains(&*name.to_string_lossy()) && told.contains("CODEX_SHIM_CODEX"), "{told}");
        assert!(told.contains(&*scene.dir("empty").to_string_lossy()), "{told}");
    }
}

#[test]
fn a_server_that_is_missing_is_told_with_where_it_was_looked_for() {
    let scene = Scene::new();
    let missing = scene.dir("empty").join("no-such-server");
    for name in [missing.as_os_str(), OsStr::new("no-such-server")] {
        let ran = run(scene.command(SHIM, &["empty"]).args(["run", "--"]).arg(name));
        let told = ran.refusal(127);
        assert!(told.contains("no-such-server") && told.contains(&*scene.dir("empty").to_string_lossy()), "{told}");
        assert!(told.contains("`--`"), "it says how to name one: {told}");
    }
}

#[test]
fn what_cannot_be_run_ends_with_126() {
    let scene = Scene::new();
    let text = scene.dir("text").join("server");
    fs::write(&text, "no program").expect("a file");
    for args in [["run", "--"], ["run", "--codex"]] {
        let ran = run(scene.command(SHIM, &["text"]).args(args).arg(&text));
        let told = ran.refusal(126);
        assert!(told.contains(&*text.to_string_lossy()), "{told}");
    }
}

#[test]
fn a_flag_names_codex_before_a_variable_before_the_file_before_the_path() {
    let scene = Scene::new();
    let [flag, variable, file, on_path] =
        ["flag", "variable", "file", "path"].map(|dir| scene.script(dir, "codex", REPORT));
    scene.config(&format!("codex = {:?}\n", file.display().to_string()));
    let command = || scene.command(SHIM, &["path"]);
    let all = run(command().args(["run", "--codex"]).arg(&flag).env("CODEX_SHIM_CODEX", &variable));
    let without_flag = run(command().arg("run").env("CODEX_SHIM_CODEX", &variable));
    let without_variable = run(command().arg("run"));
    scene.config("");
    let without_file = run(command().arg("run"));
    let found = [all, without_flag, without_variable, without_file].map(|ran| PathBuf::from(ran.one("name")));
    assert_eq!(found, [flag, variable, file, on_path]);
}

#[test]
fn switched_off_every_relay_becomes_the_server() {
    let scene = Scene::with_codex();
    let server = scene.dir("real").join("codex");
    let server = server.to_str().expect("a plain path");
    for args in [&[][..], &["app-server"], &["run"], &["run", "--session", "s", "--", server, "app-server"]] {
        let ran = run(scene.command(SHIM, &["real"]).args(args).env("CODEX_SHIM_OFF", "1"));
        assert_eq!(ran.all("arg"), ["app-server"], "{args:?}");
        assert!(ran.is_the_same_process(), "{args:?}");
    }
    assert!(!scene.home.path().exists());
}

#[test]
fn the_server_inherits_folder_and_environment() {
    let scene = Scene::with_codex();
    let cwd = scene.dir("work");
    let ran = run(scene.command(SHIM, &["real"]).arg("app-server").current_dir(&cwd).env("CODEX_HOME", "their home"));
    assert_eq!((ran.one("cwd"), ran.one("codex_home")), (cwd.into(), "their home".into()));
    assert_eq!(ran.one("depth"), "1");
}

#[test]
fn our_own_version_and_usage() {
    let home = Home::new();
    let version = run(&mut home.shim(&["--version"]));
    assert_eq!(String::from_utf8_lossy(&version.stdout), concat!("codex-shim ", env!("CARGO_PKG_VERSION"), "\n"));
    assert_eq!(version.code, Some(0));
    let bad_name = ["run", "--session", "a/b", "--", "true"];
    for (args, named) in [(&["bogus"][..], "bogus"), (&["run", "--bogus"], "--bogus"), (&bad_name, "a/b")] {
        let ran = run(&mut home.shim(args));
        assert_eq!((ran.code, ran.stdout.as_slice()), (Some(2), &b""[..]), "{args:?}");
        assert!(ran.stderr.contains(named), "{}", ran.stderr);
    }
    assert!(!home.path().exists());
}

#[test]
fn the_home_is_in_the_state_folder_of_the_user() {
    let scene = Scene::new();
    let user = scene.dir("user");
    let start = |state: &str| {
        let mut command = scene.home.shell(":");
        command.env_remove("CODEX_SHIM_HOME").env("HOME", &user).env("XDG_STATE_HOME", state);
        assert_eq!(run(&mut command).stderr, "");
    };
    let state = scene.dir("state");
    start(state.to_str().expect("a plain path"));
    assert!(state.join("codex-shim/sessions/s/journal").is_dir());
    assert!(!user.join(".local").exists());
    start("");
    assert!(user.join(".local/state/codex-shim/sessions/s/journal").is_dir());
}

/// The newest header of any session.
fn last_header(home: &Home) -> Header {
    let headers = home.sessions().into_iter().flat_map(|session| Journal::read(&session).headers);
    headers.max_by_key(|header| header.at).expect("something has run")
}

#[test]
fn a_start_goes_to_the_session_that_last_ran_at_the_same_place() {
    let scene = Scene::new();
    let session = |cwd: &str, codex_home: &str, args: &[&str]| {
        let mut command = scene.home.shim(args);
        let ran = run(command.current_dir(scene.dir(cwd)).env("CODEX_HOME", scene.dir(codex_home)));
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        last_header(&scene.home).session
    };
    let server = ["run", "--", "sh", "-c", ":"];
    let first = session("a", "codex", &server);
    assert_eq!(uuid::Uuid::parse_str(&first).expect("a new session is a UUID").get_version_num(), 7);
    let elsewhere = session("b", "codex", &server);
    let other_home = session("a", "codex2", &server);
    let other_server = session("a", "codex", &["run", "--", "sh", "-c", ": x"]);
    assert_eq!(BTreeSet::from([&first, &elsewhere, &other_home, &other_server]).len(), 4);
    assert_eq!(session("a", "codex", &server), first);
    assert_eq!(session("b", "codex", &server), elsewhere);
    assert_eq!(session("a", "codex", &["run", "--session", "named", "--", "sh", "-c", ":"]), "named");
    assert_eq!(session("a", "codex", &server), "named", "it was the last one there");
}

#[test]
fn a_session_in_use_is_left_alone() {
    let scene = Scene::new();
    let id = |args: &[&str]| {
        let ran = run(scene.home.shim(args).current_dir(scene.dir("cwd")));
        assert_eq!(ran.code, Some(0));
        (last_header(&scene.home).session, ran.stderr)
    };
    let mut child = scene.home.shim(&["run", "--session", "work", "--", "cat"]);
    let mut child = child.current_dir(scene.dir("cwd")).spawn().expect("it can be started");
    let session = scene.home.path().join("sessions/work");
    let lock: Value = eventually("a lock that names its holder", || {
        serde_json::from_slice(&fs::read(session.join("lock")).ok()?)
            .ok()
            .filter(|lock: &Value| lock["pid"] == child.id())
    });
    assert!(lock["started_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{lock}");
    eventually("its journal", || (!Journal::read(&session).headers.is_empty()).then_some(()));
    let (second, said) = id(&["run", "--session", "work", "--", "sh", "-c", ":"]);
    assert_eq!((second.as_str(), said.as_str()), ("work.2", ""));
    // A second relay at the same place has no name of its own.
    let (beside, said) = id(&["run", "--", "cat"]);
    assert_eq!(said, "");
    assert_eq!(uuid::Uuid::parse_str(&beside).expect("a new session is a UUID").get_version_num(), 7);
    drop(child.stdin.take());
    let status = eventually("the end of the first", || child.try_wait().expect("it is our child"));
    assert!(status.success());
    assert_eq!(id(&["run", "--session", "work", "--", "sh", "-c", ":"]), ("work".to_owned(), String::new()));
}

#[test]
fn a_bad_name_in_the_environment_stops_no_relay() {
    let home = Home::new();
    let ran = run(home.shim(&["run", "--", "sh", "-c", "echo relayed; exit 3"]).env("CODEX_SHIM_SESSION", "a/b"));
    assert_eq!((ran.stdout.as_slice(), ran.code), (&b"relayed\n"[..], Some(3)));
    assert!(ran.stderr.starts_with("codex-shim: CODEX_SHIM_SESSION: "), "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 1);
    assert_eq!(home.journal().server, [Some(b"relayed\n".to_vec())]);
    let named = run(home.shim(&["run", "--", "sh", "-c", ":"]).env("CODEX_SHIM_SESSION", "A.b_c-9"));
    assert_eq!((named.stderr.as_str(), last_header(&home).session.as_str()), ("", "A.b_c-9"));
}

#[test]
fn a_later_generation_sorts_after_an_earlier_one() {
    let home = Home::new();
    for round in ["1", "2", "3", "4"] {
        assert_eq!(run(&mut home.shim(&["run", "--session", "s", "--", "sh", "-c", ":", round])).code, Some(0));
    }
    let headers = home.journal().headers;
    let rounds: Vec<&str> = headers.iter().filter_map(|header| header.argv.last()).map(String::as_str).collect();
    assert_eq!(rounds, ["1", "2", "3", "4"]);
    let files = fs::read_dir(home.path().join("sessions/s/journal")).expect("the journal is there");
    let mut names: Vec<_> = files.map(|file| file.expect("it can be read").file_name()).collect();
    names.sort();
    let told = headers.iter().map(|header| format!("{}-{:03}.jsonl", header.generation, header.segment).into());
    assert_eq!(names, told.collect::<Vec<OsString>>());
    for generation in headers.iter().map(|header| &header.generation) {
        let hex = generation.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        assert!(hex && generation.len() == 12, "{generation}");
    }
}

#[test]
fn what_is_kept_is_for_its_owner_alone() {
    let home = Home::new();
    let mut command = Command::new("sh");
    home.adopt(&mut command).args(["-c", r#"umask 0 && exec "$@""#, "sh", SHIM, "run", "--", "sh", "-c", "echo x"]);
    assert_eq!(run(&mut command).code, Some(0));
    let (mut left, mut files) = (vec![home.path()], 0);
    while let Some(path) = left.pop() {
        let wanted = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(path.metadata().expect("it is there").permissions().mode() & 0o777, wanted, "{}", path.display());
        files += u32::from(path.is_file());
        left.extend(fs::read_dir(&path).into_iter().flatten().map(|entry| entry.expect("it is ours").path()));
    }
    assert!(files >= 2, "a lock and a journal");
}

#[test]
fn config_lists_every_setting_with_its_source() {
    let scene = Scene::new();
    scene.config("record = false\n");
    let config = |args: &[&str]| {
        let ran = run(scene.home.shim(args).env("CODEX_SHIM_EXIT_GRACE", "3s"));
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        String::from_utf8(ran.stdout).expect("it is text")
    };
    let object: Map<String, Value> = serde_json::from_str(&config(&["config", "--json"])).expect("one JSON object");
    for (name, source) in [("home", "CODEX_SHIM_HOME"), ("exit_grace", "CODEX_SHIM_EXIT_GRACE"), ("codex", "default")] {
        assert_eq!(object[name]["source"], source, "{name}");
    }
    assert_eq!((&object["record"]["source"], &object["record"]["value"]), (&"config.toml".into(), &"false".into()));
    let printed = config(&["config"]);
    assert_eq!(printed.lines().count(), object.len(), "{printed}");
    for (name, setting) in &object {
        let is_row = |row: &&str| row.trim_start_matches("# ").split_whitespace().next() == Some(name);
        let row = printed.lines().find(is_row).expect("the same settings");
        assert!(row.ends_with(&format!("  # {}", setting["source"].as_str().expect("a text"))), "{row}");
    }
    // The output is a file with the same settings.
    scene.config(&printed);
    let again: Map<String, Value> = serde_json::from_str(&config(&["config", "--json"])).expect("one JSON object");
    let values = |object: &Map<String, Value>| -> Vec<Value> {
        object.values().map(|setting| setting["value"].clone()).collect()
    };
    assert_eq!(values(&again), values(&object));
}

#[test]
fn a_reader_that_has_had_enough_is_no_failure_of_any_tool() {
    let scene = Scene::new();
    assert_eq!(run(&mut scene.home.shell("echo x")).code, Some(0));
    for args in [
        &["--help"][..],
        &["config"],
        &["config", "--json"],
        &["sessions"],
        &["status"],
        &["requests"],
        &["context", "show"],
        &["events"],
        &["tail"],
        &["tape", "show"],
        &["tape", "show", "--record", "1"],
        &["hook", "bash"],
        &["completions", "bash"],
        &["prune", "--dry-run"],
        &["unwrap"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = scene.home.shim(args).stdin(Stdio::null()).stdout(writer).output().expect("it runs");
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    }
}

#[test]
fn an_unknown_setting_is_told_and_stops_no_relay() {
    let scene = Scene::new();
    scene.config("holds = 1\nexit_grace = \"3s\"\n");
    let config = run(&mut scene.home.shim(&["config"]));
    assert_eq!(config.code, Some(1));
    assert!(config.stderr.contains("`holds`"), "{}", config.stderr);
    assert!(String::from_utf8_lossy(&config.stdout).contains("exit_grace"));
    let relay = run(&mut scene.home.shell("echo relayed; exit 3"));
    assert_eq!((relay.stdout.as_slice(), relay.code), (&b"relayed\n"[..], Some(3)));
    assert!(relay.stderr.starts_with("codex-shim: ") && relay.stderr.contains("`holds`"), "{}", relay.stderr);
    assert_eq!(scene.home.journal().server, [Some(b"relayed\n".to_vec())]);
}

/// Starts a program that reports how it was started, and returns its report. `serve` does not end by itself.
#[cfg(target_os = "linux")]
fn report_of(scene: &Scene, way: &str, launcher: super::support::launch::Launcher) -> String {
    let dir = scene.dir(&format!("{way} {}", launcher.name));
    let words = report(&dir);
    let mut command = match way {
        "directly" => Command::new(&words[0]),
        "codex" => Command::new(scene.link("named", "codex", SHIM)),
        _ => Command::new(SHIM),
    };
    scene.home.adopt(&mut command);
    match way {
        "directly" => command.args(&words[1..]),
        "codex" => command.env("CODEX_SHIM_CODEX", "/bin/cp").args(&words[1..]),
        "off" => command.env("CODEX_SHIM_OFF", "1").args(["run", "--"]).args(&words),
        "private" => command.args(["exec", "--private", "--"]).args(&words),
        tool => command.args([tool, "--"]).args(&words),
    };
    let command = launcher.launch(&mut command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    let told = eventually(&format!("{way}, {}", launcher.name), || {
        let has_ended = way == "serve" || child.try_wait().expect("it is our child").is_some();
        reported(&dir).filter(|_| has_ended)
    });
    if way == "serve" {
        child.kill().expect("it runs");
    }
    let _ = child.wait();
    let _ = fs::remove_file(scene.dir("named").join("codex"));
    told
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_inherits_what_it_would_without_us() {
    let scene = Scene::new();
    for launcher in LAUNCHERS {
        let directly = report_of(&scene, "directly", launcher);
        for way in ["run", "off", "codex", "serve", "exec", "private"] {
            assert_eq!(report_of(&scene, way, launcher), directly, "{way}, {}", launcher.name);
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_in_a_terminal_inherits_signals() {
    if !Command::new("script").arg("--version").output().is_ok_and(|output| output.status.success()) {
        let _ = writeln!(std::io::stderr(), "SKIPPED: signals in a terminal: there is no `script`");
        return;
    }
    let scene = Scene::new();
    let told = |how: &str| {
        let dir = scene.dir(how);
        let mut command = Command::new("script");
        scene.home.adopt(&mut command).env("SHIM", SHIM).env("SHELL", "/bin/sh").env("DIR", &dir);
        let launcher = "env --block-signal=TERM,CHLD,WINCH --ignore-signal=PIPE,USR1,TTOU";
        let shim = if how == "directly" { "" } else { "\"$SHIM\" exec --" };
        let script = format!("exec {launcher} {shim} cp /proc/self/status \"$DIR\"");
        let ran = run(command.args(["-qec", &script, "/dev/null"]));
        let status = fs::read_to_string(dir.join("status")).unwrap_or_else(|error| panic!("{error}: {}", ran.stderr));
        let is_set = |line: &&str| ["SigBlk", "SigIgn", "SigCgt"].iter().any(|name| line.starts_with(name));
        status.lines().filter(is_set).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(told("exec"), told("directly"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_inherits_descriptors_and_none_of_ours() {
    let scene = Scene::new();
    let seen = |command: &mut Command, is_server: &dyn Fn(u32) -> Option<u32>| {
        let (_reading, writing) = std::io::pipe().expect("a pipe");
        let stderr = fs::File::create(scene.dir("x").join("stderr")).expect("a file");
        let command = inherits(command, writing.into()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().expect("it starts");
        // The server runs, with everything it opens.
        child.stdin.as_mut().expect("it is piped").write_all(b"x\n").expect("it reads");
        child.stdout.as_mut().expect("it is piped").read_exact(&mut [0; 2]).expect("it answers");
        let server = eventually("the server", || is_server(child.id()));
        let mut seen = descriptors(server);
        child.kill().expect("it runs");
        child.wait().expect("it is our child");
        // The pipes differ between runs.
        seen.iter_mut()
            .filter(|(_, target)| target.starts_with("pipe:"))
            .for_each(|(_, target)| *target = "pipe".into());
        seen
    };
    let runs_cat = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "cat\n");
    let directly = seen(Command::new("cat").arg("-"), &|pid| runs_cat(pid).then_some(pid));
    assert!(directly.iter().any(|(number, _)| *number == INHERITED), "{directly:?}");
    let relayed = seen(&mut scene.home.shim(&["run", "--session", "s", "--", "cat", "-"]), &|shim| {
        // By then we have opened all our files.
        scene.home.path().join("sessions/s/ledger.db").exists().then_some(())?;
        let children = fs::read_to_string(format!("/proc/{shim}/task/{shim}/children")).ok()?;
        children.split_whitespace().find_map(|pid| pid.parse().ok().filter(|pid| runs_cat(*pid)))
    });
    assert_eq!(relayed, directly);
}
