//! `codex-shim shell`: runs the user's shell in our own terminal with the hook loaded.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::args::ShellArguments;
use super::exec_tool::say_unread;
use super::hook_tool::{SHELL_VARIABLE, our_program};
use super::{FAILED, USAGE, say, select_session};
use crate::capture::{Outputs, ShellKind, Terminal, run_in_terminal, script};
use crate::config::{Environment, Flags, Settings};
use crate::files::Folder;
use crate::store::Otherwise;

/// Runs the tool; returns the exit status.
pub(super) fn run(arguments: &ShellArguments, environment: &Environment) -> i32 {
    let program = arguments.shell.clone().or_else(|| environment.get("SHELL").map(PathBuf::from));
    let program = program.unwrap_or_else(|| "bash".into());
    let Some(kind) = ShellKind::of_program(&program) else {
        say(&format!("unknown shell {}; use `codex-shim shell bash`, zsh or fish", program.display()));
        return USAGE;
    };
    let Some(terminal) = Terminal::of_process() else {
        say("shell needs a terminal on stdin and stdout");
        return USAGE;
    };
    let mut variables: Vec<(&str, OsString)> = Vec::new();
    if let Some(session) = arguments.session.name() {
        match select_session::one(Some(session), Otherwise::None, environment) {
            Ok(found) => variables.push(("CODEX_SHIM_SESSION", found.id.into())),
            Err(error) => return error.report(),
        }
    }
    let Some(home) = environment.shim_home().value else {
        say("cannot find the state folder: set HOME or CODEX_SHIM_HOME");
        return FAILED;
    };
    let (settings, _) = Settings::load(Flags::default(), environment);
    let base = environment.runtime_dir().unwrap_or_else(std::env::temp_dir);
    let mut outputs = Outputs::start(&base, settings.context().bounds)
        .map_err(|error| say(&format!("listen in {}: {error}; no output is kept", base.display())))
        .ok();
    // Without the socket the hook prints marks but cannot ask for outputs.
    variables.push((SHELL_VARIABLE, outputs.as_ref().map_or_else(|| "-".into(), Outputs::socket)));
    let words = match start_of(kind, &program, &home.join("shell"), environment, &mut variables) {
        Ok(words) => words,
        Err(error) => {
            say(&format!("write the startup file of the shell in {}: {error}", home.display()));
            return FAILED;
        }
    };
    let seen = |written: &[u8]| {
        if let Some(outputs) = &mut outputs {
            outputs.take(written);
        }
    };
    match run_in_terminal(&words, &variables, &terminal, seen) {
        Ok(ran) => {
            say_unread(ran.unread_bytes);
            ran.status
        }
        Err(error) => {
            say(&format!("open a terminal: {error}"));
            FAILED
        }
    }
}

/// Arguments and variables for a shell that reads its usual startup files and then the hook.
fn start_of(
    kind: ShellKind,
    program: &Path,
    dir: &Path,
    environment: &Environment,
    variables: &mut Vec<(&str, OsString)>,
) -> io::Result<Vec<OsString>> {
    let hook = script(kind, &our_program());
    Folder::make_home(dir.parent().expect("BUG: it is in our home"))?;
    Folder::make(dir)?;
    let program = program.as_os_str().to_owned();
    match kind {
        ShellKind::Bash => {
            let start = dir.join("bashrc");
            write(&start, &format!("[ ! -r ~/.bashrc ] || . ~/.bashrc\n{hook}"))?;
            Ok(vec![program, "--rcfile".into(), start.into(), "-i".into()])
        }
        ShellKind::Zsh => {
            // zsh reads its files from ZDOTDIR. Each of our files reads the user's, and the last one restores ZDOTDIR.
            let own = environment.get("ZDOTDIR");
            let back = match &own {
                Some(own) => format!("export ZDOTDIR='{}'", own.to_string_lossy().replace('\'', r"'\''")),
                None => "unset ZDOTDIR".to_owned(),
            };
            let zsh = dir.join("zsh");
            let users = "\"${ZDOTDIR:-$HOME}\"";
            let ours = zsh.to_string_lossy().replace('\'', r"'\''");
            write(
                &zsh.join(".zshenv"),
                &format!("{back}\n[[ ! -r {users}/.zshenv ]] || . {users}/.zshenv\nexport ZDOTDIR='{ours}'\n"),
            )?;
            write(&zsh.join(".zshrc"), &format!("{back}\n[[ ! -r {users}/.zshrc ]] || . {users}/.zshrc\n{hook}"))?;
            variables.push(("ZDOTDIR", zsh.into_os_string()));
            Ok(vec![program, "-i".into()])
        }
        ShellKind::Fish => Ok(vec![program, "-i".into(), "--init-command".into(), hook.into()]),
    }
}

/// Writes a file of ours atomically, because other shells may be reading it.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let (dir, name) = (path.parent(), path.file_name());
    let (dir, name) = dir.zip(name).expect("BUG: it is in a folder of ours");
    Folder::make(dir)?.put(name, text.as_bytes())
}
