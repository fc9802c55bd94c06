//! `codex-shim hook`, and what the hook of a shell starts for each command.

use std::io::{self, Read as _};
use std::path::Path;
use std::time::SystemTime;

use super::args::{HookArguments, HookedArguments, ShellName};
use super::{chosen, screen};
use crate::capture::{HookOutcome, HookReport, ShellKind, answers_privately, keep, output_of, script};
use crate::config::{Environment, Flags, Settings};
use crate::engine::Origin;
use crate::store::Otherwise;

/// Longest line that is taken, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// The variable in which `codex-shim shell` tells the hook where outputs are asked for.
pub(super) const SHELL_VARIABLE: &str = "CODEX_SHIM_SHELL";

impl From<ShellName> for ShellKind {
    fn from(name: ShellName) -> ShellKind {
        match name {
            ShellName::Bash => ShellKind::Bash,
            ShellName::Zsh => ShellKind::Zsh,
            ShellName::Fish => ShellKind::Fish,
        }
    }
}

/// Prints what the shell is to evaluate.
pub(super) fn run_hook(arguments: &HookArguments) -> i32 {
    screen::print(&script(arguments.shell.into(), &our_program()))
}

/// How a shell starts us, wherever it is by then.
pub(super) fn our_program() -> String {
    let path = std::env::current_exe().unwrap_or_else(|_| "codex-shim".into());
    path.to_string_lossy().into_owned()
}

/// Keeps a command that was typed. Nobody waits for it or listens to it: it says nothing, and always ends with 0.
pub(super) fn run_hooked(arguments: HookedArguments, environment: &Environment) -> i32 {
    let HookedArguments { shell, exit_code, cwd, began, ended, took, key, again } = arguments;
    let variable = |name: &str| environment.get(name).map(|value| value.to_string_lossy().into_owned());
    let line = match shell {
        ShellName::Fish => variable("CODEX_SHIM_LINE").unwrap_or_default(),
        ShellName::Bash | ShellName::Zsh => {
            let mut line = Vec::new();
            if io::stdin().lock().take(LINE_BYTES_MAX).read_to_end(&mut line).is_err() {
                return 0;
            }
            String::from_utf8_lossy(&line).into_owned()
        }
    };
    if variable("CODEX_SHIM_PRIVATE").is_some_and(|value| answers_privately(&value)) {
        return 0;
    }
    let is_certain = !again;
    let hooked = HookReport {
        line,
        exit_code,
        cwd: cwd.to_string_lossy().into_owned(),
        began_us: began.parse().ok(),
        ended_us: ended.parse().ok(),
        took_ms: took.parse().ok(),
        key: key.clone(),
        again: again.then(|| variable("CODEX_SHIM_LAST").unwrap_or_default()),
    };
    let now_ms = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let HookOutcome::Record(mut pushed) = hooked.outcome(shell.into(), now_ms) else { return 0 };
    let Ok(sessions) = chosen::several_at(Path::new(&cwd), None, Otherwise::None, environment) else { return 0 };
    if let Some(socket) = variable(SHELL_VARIABLE) {
        pushed.provenance.source = Origin::Shell;
        // Of a line that may be another's the output may be private.
        if is_certain && let Some(output) = output_of(Path::new(&socket), &key) {
            pushed.preview = Some(output);
        }
    }
    let (settings, _) = Settings::load(Flags::default(), environment);
    for session in &sessions {
        let _ = keep(session, std::slice::from_ref(&*pushed), &settings.context().bounds);
    }
    0
}
