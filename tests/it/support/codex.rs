//! The real codex, with a home of its own and the scripted model behind it.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::model::Model;

/// Where `make codex` puts it.
const INSTALLED: &str = "target/codex/node_modules/.bin/codex";

/// The real codex, where it is installed; otherwise says loudly that a test is skipped.
pub fn installed_or_skip(test: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(INSTALLED);
    if path.exists() {
        return Some(path);
    }
    // Past the capture of the test's output: a skipped test must be seen.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: the real codex is not installed; `make codex` does that");
    None
}

/// A working directory and a codex home, both fresh.
pub struct Lab {
    root: tempfile::TempDir,
}

impl Lab {
    /// A lab without a model.
    pub fn bare() -> Lab {
        let lab = Lab { root: tempfile::tempdir().expect("a temporary folder") };
        fs::create_dir(lab.cwd()).expect("a folder");
        fs::create_dir(lab.codex_home()).expect("a folder");
        lab
    }

    /// A lab whose codex asks `model`.
    pub fn new(model: &Model) -> Lab {
        Lab::with(model, "")
    }

    /// The same with more in its configuration, which goes on in the table of features.
    pub fn with(model: &Model, more: &str) -> Lab {
        let lab = Lab::bare();
        let config = format!(
            r#"model = "gpt-5.5"
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
            model.base_url()
        );
        fs::write(lab.codex_home().join("config.toml"), config).expect("a file");
        lab
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

    /// `program`, to be run in this lab.
    pub fn command(&self, program: impl Into<OsString>) -> Command {
        let mut command = Command::new(program.into());
        command.current_dir(self.cwd()).env("CODEX_HOME", self.codex_home()).env_remove("RUST_LOG");
        command.stderr(Stdio::null());
        command
    }
}
