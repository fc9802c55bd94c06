//! `codex-shim hook`, and the command that a shell's hook runs after each command line.

use std::io::{self, Read as _};
use std::path::Path;
use std::time::SystemTime;

use super::args::{HookArguments, HookedArguments, ShellName};
use super::{screen, select_session};
use crate::capture::{HookOutcome, HookReport, ShellKind, answers_privately, keep, output_of, script};
use crate::config::{Environment, Flags, Settings};
use crate::engine::Origin;
use crate::store::Otherwise;

/// Longest accepted line, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Environment variable through which `codex-shim shell` gives the hook the socket for outputs.
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

/// Prints the code for the shell to evaluate.
pub(super) fn run_hook(arguments: &HookArguments) -> i32 {
    screen::print(&script(arguments.shell.into(), &our_program()))
}

/// The command by which a shell starts us from any folder.
pub(super) fn our_program() -> String {
    let path = std::env::current_exe().unwrap_or_else(|_| "codex-shim".into());
    path.to_string_lossy().into_owned()
}

/// Keeps a typed command. It runs in the background, prints nothing and always exits with 0.
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
    let Ok(sessions) = select_session::several_at(Path::new(&cwd), None, Otherwise::None, environment) else {
        return 0;
    };
    if let Some(socket) = variable(SHELL_VARIABLE) {
        pushed.provenance.source = Origin::Shell;
        // If the line may belong to another command, its output may be private.
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
