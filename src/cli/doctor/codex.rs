//! Checks the real codex: whether it exists, its version, and whether its protocol is still compatible.

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::Check;
use super::drift;
use super::probe::{Asked, Ran, ask, run};
use crate::config::{Environment, Settings};
use crate::files;
use crate::protocol::Method;
use crate::relay::locate::{self, Codex};

/// How long codex may take to print its version; the Node launcher is slow to start.
const VERSION_WAIT_MAX: Duration = Duration::from_secs(7);

/// How long codex may take to write its schema.
const SCHEMA_WAIT_MAX: Duration = Duration::from_secs(8);

/// How long the app-server may take to answer `initialize`.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

/// Longest quoted line, in characters.
const SHOWN_CHARS_MAX: usize = 200;

/// Most missing items that are named.
const NAMED_MAX: usize = 12;

pub(super) fn checks(settings: &Settings, environment: &Environment, checks: &mut Vec<Check>) {
    let program = match locate::codex(settings, environment) {
        Ok(program) => program,
        Err(error) => {
            checks.push(Check::broken(
                "codex",
                error.to_string(),
                "install it with `npm install -g @openai/codex`, or name it",
            ));
            return;
        }
    };
    let at = program.program.display();
    let ran = run(command(&program).arg("--version"), VERSION_WAIT_MAX);
    let (is_too_slow, is_leading_back) =
        (ran == Ran::TooSlow, matches!(&ran, Ran::Well(version) if version.starts_with("codex-shim ")));
    let has_version = matches!(ran, Ran::Well(_)) && !is_leading_back;
    checks.push(match ran {
        Ran::Well(version) if is_leading_back => Check::broken(
            "codex",
            format!("{at} leads back to codex-shim: its version is `{version}`"),
            "name the real one with CODEX_SHIM_CODEX or `codex` in config.toml",
        ),
        Ran::Well(version) => Check::ok("codex", format!("{at}: {version}")),
        Ran::Badly(why) => {
            Check::broken("codex", format!("{at} --version: {why}"), "reinstall codex, or name another one")
        }
        Ran::TooSlow => {
            let found = format!("{at} --version did not exit within {VERSION_WAIT_MAX:?}");
            Check::broken("codex", found, "run it by hand to see what it waits for")
        }
    });
    if has_version {
        checks.push(app_server(&program));
    }
    // A codex that does not print its version in time writes no schema in time.
    if !is_too_slow {
        checks.push(protocol(&program));
    }
    checks.push(on_path(environment));
}

fn command(codex: &Codex) -> Command {
    let mut command = Command::new(&codex.program);
    command.envs(codex.path.iter().map(|path| ("PATH", path)));
    command
}

/// Starts the app-server as a relay does, and initializes it. CODEX_HOME is new and empty, so the check neither reads nor
/// changes the user's state and needs no account.
fn app_server(codex: &Codex) -> Check {
    const NAME: &str = "app-server";
    const REMEDY: &str = "install a codex that has it with `npm install -g @openai/codex@latest`, or name another one with \
                          CODEX_SHIM_CODEX or `codex` in config.toml";
    let at = format!("{} app-server", codex.program.display());
    let folder = std::env::temp_dir().join(format!("codex-shim-doctor-{}", std::process::id()));
    if let Err(error) = files::create_folder(&folder) {
        return Check::note(NAME, format!("create {}: {error}", folder.display()), "set TMPDIR to a folder with room");
    }
    let mut server = command(codex);
    server.arg("app-server").env("CODEX_HOME", &folder);
    let asked = ask(&mut server, &initialize(), ANSWER_WAIT_MAX);
    let _ = std::fs::remove_dir_all(&folder);
    let why = match asked {
        Asked::Line(line) => match initialize_error(&line) {
            None => return Check::ok(NAME, format!("{at} answers")),
            Some(why) => why,
        },
        Asked::Ended(why) => format!("it exited without an answer to `initialize` ({why})"),
        Asked::TooSlow => format!("no answer to `initialize` in {ANSWER_WAIT_MAX:?}"),
    };
    Check::broken(NAME, format!("{at}: {why}"), REMEDY)
}

/// Why a line is not a valid answer to `initialize`.
fn initialize_error(line: &str) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
    if answer["id"] == 1 && answer.get("result").is_some() {
        return None;
    }
    if let Some(message) = answer["error"]["message"].as_str() {
        return Some(format!("it refuses `initialize`: {message}"));
    }
    let shown: String = line.chars().take(SHOWN_CHARS_MAX).collect();
    Some(format!("`{shown}` is not an answer to `initialize`"))
}

/// Compares the fields that we use with the schema that this codex writes.
fn protocol(codex: &Codex) -> Check {
    const NAME: &str = "protocol";
    const UNTOLD: &str =
        "messages are relayed anyway; missing features of an older codex are reported when they are needed";
    let folder = std::env::temp_dir().join(format!("codex-shim-schema-{}", std::process::id()));
    if let Err(error) = files::create_folder(&folder) {
        return Check::note(NAME, format!("create {}: {error}", folder.display()), UNTOLD);
    }
    let write = |flags: &[&str]| {
        let mut command = command(codex);
        command.args(["app-server", "generate-json-schema"]).args(flags).arg("--out").arg(&folder);
        run(&mut command, SCHEMA_WAIT_MAX)
    };
    // The oldest versions have only experimental schemas and do not know the flag.
    let ran = match write(&["--experimental"]) {
        Ran::Badly(_) => write(&[]),
        ran @ (Ran::Well(_) | Ran::TooSlow) => ran,
    };
    let missing = drift::missing(&folder);
    let _ = std::fs::remove_dir_all(&folder);
    match (ran, missing) {
        (Ran::Well(_), Some(missing)) if missing.is_empty() => {
            let (methods, fields) = drift::touched();
            Check::ok(NAME, format!("this codex has all {methods} methods and {fields} fields that codex-shim uses"))
        }
        (Ran::Well(_), Some(missing)) => {
            let remedy = "what hangs on them does not work with this codex; everything else does, and all is relayed";
            let rest = missing.len().saturating_sub(NAMED_MAX);
            let named = missing.get(..NAMED_MAX).unwrap_or(&missing).join(", ");
            let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
            Check::note(NAME, format!("this codex lacks {named}{more}"), remedy)
        }
        (Ran::Well(_) | Ran::Badly(_) | Ran::TooSlow, _) => Check::note(NAME, "this codex writes no schema", UNTOLD),
    }
}

/// Whether the first `codex` on `PATH` is codex-shim.
fn on_path(environment: &Environment) -> Check {
    const NAME: &str = "path";
    let path = environment.get("PATH").unwrap_or_default();
    let first = std::env::split_paths(&path).map(|folder| folder.join("codex")).find(|program| program.exists());
    let ourselves = std::env::current_exe().ok().and_then(|program| program.canonicalize().ok());
    match first {
        Some(program) if program.canonicalize().ok() == ourselves => {
            Check::ok(NAME, format!("`codex` is {}, which is codex-shim", program.display()))
        }
        Some(program) => Check::note(
            NAME,
            format!("`codex` is {}, which is not codex-shim", program.display()),
            "tools that look for `codex` on PATH go past us; `codex-shim wrap path` changes that",
        ),
        None => Check::note(NAME, "there is no `codex` on PATH", "`codex-shim wrap path` puts a link there"),
    }
}

/// The first request of every client.
fn initialize() -> String {
    let client = json!({ "name": "codex-shim-doctor", "title": null, "version": env!("CARGO_PKG_VERSION") });
    let message = json!({ "id": 1, "method": Method::Initialize.name(), "params": { "clientInfo": client } });
    format!("{message}\n")
}
