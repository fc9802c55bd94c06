//! The real codex, with its own home and the scripted model behind it.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::dispositions::with_default_signals;
use super::model::Model;
use super::release::Release;

/// The real codex of the release under test, if it is installed; otherwise prints that a test is skipped.
pub fn installed_or_skip(test: &str) -> Option<PathBuf> {
    let release = Release::under_test();
    let path = release.path();
    if path.exists() {
        return Some(path);
    }
    // The harness captures stdout, so write to stderr directly: a skipped test must be visible.
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED: {test}: the real codex {release} is not installed; `make codex CODEX_VERSION={release}` does that"
    );
    None
}

/// The shell in which codex runs commands. It asks the system's list of users and not `SHELL`, which a service may not have.
#[expect(clippy::disallowed_methods, reason = "a user whom the list lacks has a shell, too")]
fn login_shell() -> OsString {
    let own = rustix::process::getuid().as_raw().to_string();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let entry = users.lines().map(|user| user.split(':').collect::<Vec<_>>()).find(|user| user.get(2) == Some(&&*own));
    let shell = entry.and_then(|user| user.get(6).map(OsString::from)).filter(|shell| !shell.is_empty());
    shell.or_else(|| std::env::var_os("SHELL")).unwrap_or_else(|| "/bin/sh".into())
}

/// A working directory and a codex home, both fresh.
pub struct Lab {
    root: tempfile::TempDir,
    /// A folder in which no model can write, for its programs.
    away: Option<tempfile::TempDir>,
    /// The variable `HOME` of its programs.
    pub home: PathBuf,
    /// The release that runs in it.
    pub release: Release,
}

impl Lab {
    /// A lab without a model, for recordings of the newest release.
    pub fn bare() -> Lab {
        Lab::of(Release::newest())
    }

    fn of(release: Release) -> Lab {
        let root = release.folder();
        let lab = Lab { home: root.path().to_owned(), root, away: None, release };
        fs::create_dir(lab.cwd()).expect("a folder");
        fs::create_dir(lab.codex_home()).expect("a folder");
        lab
    }

    /// A lab whose codex, the release under test, calls `model`.
    pub fn new(model: &Model) -> Lab {
        Lab::with(model, "")
    }

    /// The same for rules that accept: the lab, with its codex home, is among the temporary files, where models may write, so the
    /// relay has another home, and its programs are in another folder.
    pub fn away(model: &Model, away: tempfile::TempDir) -> Lab {
        Lab { home: PathBuf::from("/"), away: Some(away), ..Lab::new(model) }
    }

    pub fn away_folder(&self) -> Option<&Path> {
        self.away.as_ref().map(tempfile::TempDir::path)
    }

    /// The same with more configuration, which continues the table of features.
    pub fn with(model: &Model, more: &str) -> Lab {
        Lab::of_release(Release::under_test(), model, more)
    }

    /// The same for any release.
    pub fn of_release(release: Release, model: &Model, more: &str) -> Lab {
        let lab = Lab::of(release);
        let config = format!(
            r#"model = "{}"
model_provider = "mock"
approval_policy = "on-request"
sandbox_mode = "workspace-write"
check_for_update_on_startup = false
[model_providers.mock]
name = "mock"
base_url = "{}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
supports_websockets = false
[analytics]
enabled = false
[features]
default_mode_request_user_input = true
{more}"#,
            lab.release.model_name(),
            model.base_url()
        );
        fs::write(lab.codex_home().join("config.toml"), config).expect("a file");
        lab
    }

    /// Has each thread only read that asks for no sandbox. In older releases a thread that is resumed asks for none.
    pub fn only_reads(&self) {
        let path = self.codex_home().join("config.toml");
        let config = fs::read_to_string(&path).expect("it is there");
        fs::write(path, config.replace("workspace-write", "read-only")).expect("a file");
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    pub fn cwd(&self) -> PathBuf {
        self.root.path().join("work")
    }

    pub fn codex_home(&self) -> PathBuf {
        self.root.path().join("codex-home")
    }

    /// `program` set up to run in this lab. Its home has no profile: what a profile prints in a sandbox makes codex 0.98 take a
    /// command that fails for one that the sandbox has denied.
    pub fn command(&self, program: impl Into<OsString>) -> Command {
        let mut command = Command::new(program.into());
        with_default_signals(&mut command)
            .current_dir(self.cwd())
            .env("CODEX_HOME", self.codex_home())
            .env("HOME", &self.home)
            .env("SHELL", login_shell())
            .env_remove("RUST_LOG");
        command.stderr(Stdio::null());
        command
    }
}
