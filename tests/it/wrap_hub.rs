//! `wrap --shared` lets a tool's clients join the hub, and `wrap codex` has the hub started at login.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::eventually;
use crate::support::login_file::{ODD_NAME, command_of, members_of, path_with, systemd_accepts};
use crate::support::shim::{copy_shim, put_program};
use crate::support::websocket::FakeServer;
use crate::wrap::Lab;

/// A user with a codex that is the scripted server for a hub, and that says so as the server of one client. At the end of a test
/// no hub runs.
pub struct Bench(pub Lab);

impl Bench {
    pub fn new() -> Bench {
        let lab = Lab::new();
        for folder in [".codex", "fake", "real"] {
            fs::create_dir(lab.user.join(folder)).unwrap();
        }
        let fake = FakeServer::program(&lab.user.join("fake"));
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in --version|*unix://*) exec '{}' \"$@\";; esac\necho \"own: $*\"; exec cat\n",
            fake.display()
        );
        put_program(&lab.user.join("real/codex"), script.as_bytes());
        Bench(lab)
    }

    fn hub_runs(&self) -> bool {
        let told = self.0.shim(&["hub", "status", "--json"]).stdout;
        serde_json::from_slice::<Value>(&told).unwrap()["running"] == true
    }

    /// What `PROGRAM app-server` prints without any input.
    fn app_server(&self, program: &Path) -> String {
        let output = self.0.run(program, &["app-server"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn config(&self) -> PathBuf {
        self.0.user.join(".config/systemd")
    }

    fn unit(&self) -> PathBuf {
        self.config().join("user/codex-shim-hub.service")
    }

    fn enabling_link(&self) -> PathBuf {
        self.config().join("user/default.target.wants/codex-shim-hub.service")
    }

    /// A `systemctl` that notes its arguments and succeeds; `is-active` does as long as a file is there.
    fn systemctl(&self) -> (PathBuf, PathBuf) {
        let (log, active) = (self.0.user.join("systemctl.log"), self.0.user.join("active"));
        let script =
            format!("echo \"$*\" >> '{}'\n[ \"$2\" != is-active ] || [ -e '{}' ]\n", log.display(), active.display());
        self.0.program("bin/systemctl", &script);
        (log, active)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.0.shim(&["hub", "stop", "--yes"]);
    }
}

#[test]
fn shared_wrap_joins_the_hub() {
    let bench = Bench::new();
    let lab = &bench.0;
    let said = lab.well(&["wrap", "vscode", "--yes", "--shared"]);
    assert!(said.contains("let its clients join the hub\n"), "{said}");
    let link = lab.home.path().join("bin/vscode/codex");
    assert_eq!(bench.app_server(&link), "");
    assert!(bench.hub_runs());
    // Another wrap of the same tool keeps that, and a variable overrides it.
    assert!(lab.well(&["wrap", "vscode", "--yes"]).contains("already wrapped"));
    assert!(lab.well(&["wrap", "vscode", "--yes", "--shared"]).contains("already wrapped"));
    let mut own = lab.home.shim(&["app-server"]);
    let own = own.env("CODEX_SHIM_SERVER", "own").env("CODEX_SHIM_CODEX", lab.user.join("real/codex"));
    assert_eq!(String::from_utf8(own.stdin(Stdio::null()).output().unwrap().stdout).unwrap(), "own: app-server\n");
    // Another tool has a server of its own.
    lab.well(&["wrap", "path", "--yes"]);
    assert_eq!(bench.app_server(&lab.user.join("bin/codex")), "own: app-server\n");
    lab.well(&["unwrap", "vscode"]);
    let told = fs::read_to_string(lab.home.path().join("wrapped.json")).unwrap();
    assert!(!told.contains("shared") && !told.contains("vscode"), "{told}");
    assert!(!lab.user.join(".config/Code/User/settings.json").exists());
}

#[test]
fn existing_wrap_becomes_shared() {
    let bench = Bench::new();
    let lab = &bench.0;
    lab.well(&["wrap", "path", "--yes"]);
    let link = lab.user.join("bin/codex");
    assert_eq!(bench.app_server(&link), "own: app-server\n");
    assert_eq!(
        lab.well(&["wrap", "path", "--shared", "--dry-run"]),
        "pin PIN\nlet its clients join the hub\n".replace("PIN", &lab.user.join("real/codex").display().to_string())
    );
    lab.well(&["wrap", "path", "--shared", "--yes"]);
    assert_eq!(bench.app_server(&link), "");
    assert!(bench.hub_runs());
    lab.well(&["unwrap"]);
    assert!(!link.exists());
}

#[test]
fn shared_wrap_starts_the_pinned_codex() {
    let bench = Bench::new();
    let lab = &bench.0;
    lab.well(&["wrap", "vscode", "--yes", "--shared"]);
    let link = lab.home.path().join("bin/vscode/codex");
    // As an editor from the desktop: no folder of the user is on PATH.
    let mut command = Command::new(link);
    command.arg("app-server").env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &lab.user);
    let output = command.env("CODEX_SHIM_HOME", lab.home.path()).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(bench.hub_runs());
}

#[test]
fn hub_is_started_at_login_until_unwrapped() {
    let bench = Bench::new();
    let lab = &bench.0;
    let (log, active) = bench.systemctl();
    let refused = lab.shim(&["wrap", "codex"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("nothing changed; `--yes` skips the question"), "{said}");
    let shown = lab.well(&["wrap", "codex", "--dry-run"]);
    assert!(shown.starts_with(&format!("write {}\n", bench.unit().display())), "{shown}");
    assert!(!bench.config().exists() && !log.exists());
    let said = lab.well(&["wrap", "codex", "--yes"]);
    assert!(said.contains("the hub starts at your next login; `codex-shim hub start` starts it now"), "{said}");
    assert_eq!(fs::read_link(bench.enabling_link()).unwrap(), bench.unit());
    assert_eq!(fs::read_to_string(&log).unwrap(), "--user daemon-reload\n");
    assert!(lab.well(&["wrap", "codex", "--yes"]).contains("already wrapped"));
    let doctor = String::from_utf8(lab.shim(&["doctor"]).stdout).unwrap();
    assert!(doctor.contains("codex-shim-hub.service has the hub started at login"), "{doctor}");
    fs::write(&active, "").unwrap();
    let told: Value = serde_json::from_str(&lab.well(&["unwrap", "codex", "--json"])).unwrap();
    assert_eq!((&told["unwrapped"][0]["target"], &told["unwrapped"][0]["done"]), (&json!("codex"), &json!(true)));
    assert!(!bench.config().exists(), "the folders that were made are gone");
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.contains("--user stop codex-shim-hub.service\n") && log.ends_with("--user daemon-reload\n"), "{log}");
    assert_eq!(lab.shim(&["unwrap", "codex"]).status.code(), Some(1));
}

#[test]
fn unit_runs_a_hub() {
    let bench = Bench::new();
    bench.0.well(&["wrap", "codex", "--yes"]);
    runs_a_hub(&bench);
}

#[test]
fn unit_with_odd_paths_runs_a_hub() {
    let bench = Bench::new();
    let lab = &bench.0;
    let folder = lab.user.join(ODD_NAME);
    fs::create_dir(&folder).unwrap();
    let shim = folder.join("codex-shim");
    copy_shim(&shim);
    fs::rename(lab.user.join("real/codex"), folder.join("codex")).unwrap();
    let mut wrap = Command::new(shim);
    wrap.args(["wrap", "codex", "--yes"]).env_clear().env("PATH", path_with(&folder)).env("HOME", &lab.user);
    let output = wrap.env("CODEX_SHIM_HOME", lab.home.path()).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    runs_a_hub(&bench);
}

fn runs_a_hub(bench: &Bench) {
    let lab = &bench.0;
    let unit = fs::read_to_string(bench.unit()).unwrap();
    systemd_accepts(&unit);
    assert!(unit.contains("\nKillMode=process\n"), "the server outlives the hub: {unit}");
    let mut hub: Child = command_of(&unit).env("HOME", &lab.user).spawn().unwrap();
    eventually("the hub", || {
        assert!(hub.try_wait().unwrap().is_none(), "{unit}");
        bench.hub_runs().then_some(())
    });
    // `hub stop` finds this hub. The hub exits with 0, so systemd does not restart it.
    lab.well(&["hub", "stop"]);
    assert_eq!(hub.wait().unwrap().code(), Some(0));
}

#[test]
fn files_of_packages_name_odd_programs() {
    let lab = Lab::new();
    for name in
        ["plain", "a b", "%h%%", "a&b<c>]]>", "\"", "it's", "a\\b", "$HOME", "${HOME}$$", "@PROGRAM@|", "ä😀", ODD_NAME]
    {
        let program = lab.user.join("programs").join(name).join("codex-shim");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        put_program(&program, b"#!/bin/sh\nprintf '%s\\n' \"$0\" \"$@\"\n");
        let path = program.to_str().unwrap();
        let unit = lab.well(&["login-file", "systemd", path]);
        systemd_accepts(&unit);
        let output = command_of(&unit).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{path}\nhub\n"), "{unit}");
        if let Some(agent) = members_of(lab.well(&["login-file", "launchd", path]).as_bytes()) {
            assert_eq!(agent["ProgramArguments"], json!([path, "hub"]));
        }
    }
    for refused in ["relative/codex-shim", "/a\nb", "/a\u{1}b"] {
        let output = lab.shim(&["login-file", "systemd", refused]);
        assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{output:?}");
    }
}

#[test]
fn unit_that_was_changed_is_left_alone() {
    let bench = Bench::new();
    let lab = &bench.0;
    lab.well(&["wrap", "codex", "--yes"]);
    let changed = format!("{}# mine\n", fs::read_to_string(bench.unit()).unwrap());
    fs::write(bench.unit(), &changed).unwrap();
    for args in [&["unwrap", "codex"][..], &["wrap", "codex", "--yes"]] {
        let output = lab.shim(args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("was changed since"), "{output:?}");
    }
    lab.well(&["unwrap", "--forget", "codex"]);
    assert_eq!(fs::read_to_string(bench.unit()).unwrap(), changed);
    let output = lab.shim(&["wrap", "codex", "--yes"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("not made by `wrap`"), "{output:?}");
}

#[test]
fn unit_follows_the_codex_of_today() {
    let bench = Bench::new();
    let lab = &bench.0;
    lab.well(&["wrap", "codex", "--yes"]);
    fs::rename(lab.user.join("real/codex"), lab.user.join("bin/codex")).unwrap();
    let doctor = String::from_utf8(lab.shim(&["doctor"]).stdout).unwrap();
    assert!(doctor.contains("run `codex-shim wrap codex` in a terminal where codex works"), "{doctor}");
    lab.well(&["wrap", "codex", "--yes"]);
    let unit = fs::read_to_string(bench.unit()).unwrap();
    assert!(unit.contains(&format!("hub --codex \"{}\"\n", lab.user.join("bin/codex").display())), "{unit}");
    lab.well(&["unwrap"]);
    assert!(!bench.config().exists());
}
