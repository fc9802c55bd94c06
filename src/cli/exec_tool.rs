//! `codex-shim exec`: runs a command as if codex-shim were not there, and keeps it as context.
//!
//! Nothing happens before the command starts, and an error afterwards is one line at the end.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Instant, SystemTime};

use super::args::ExecArguments;
use super::history::thread_or_id;
use super::{CANNOT_RUN, NOT_FOUND, say, select_session};
use crate::capture::{Ran, Tail, Terminal, answers_privately, as_typed, keep, run_in_terminal, run_piped};
use crate::config::{Environment, Flags, Settings};
use crate::engine::{Origin, Preview, Provenance, PushedCommand};
use crate::launch;
use crate::store::Otherwise;

/// Runs the tool; returns the exit status.
pub(super) fn run(arguments: &ExecArguments, environment: &Environment) -> i32 {
    let kept_out =
        environment.get("CODEX_SHIM_PRIVATE").is_some_and(|value| answers_privately(&value.to_string_lossy()));
    if arguments.private || kept_out {
        return become_it(arguments);
    }
    let cwd = std::env::current_dir().unwrap_or_default();
    let (began_at, began) = (SystemTime::now(), Instant::now());
    let (Ran { status, unread_bytes }, tail) = match ran(arguments) {
        Ok(ran) => ran,
        Err(error) => {
            say(&format!("open a terminal for the command: {error}; it runs without one and is not kept as context"));
            return become_it(arguments);
        }
    };
    let took = began.elapsed();
    say_unread(unread_bytes);
    // A command that could not be run is not worth keeping.
    if tail.is_empty() && matches!(status, NOT_FOUND | CANNOT_RUN) {
        return status;
    }
    let (settings, _) = Settings::load(Flags::default(), environment);
    let bounds = settings.context().bounds;
    let pushed = |preview: Preview| PushedCommand {
        cmd: as_typed(&arguments.words),
        exit_code: Some(i64::from(status)),
        cwd: Some(cwd.to_string_lossy().into_owned()),
        ts: began_at.duration_since(SystemTime::UNIX_EPOCH).ok().and_then(|at| i64::try_from(at.as_millis()).ok()),
        preview: Some(preview),
        provenance: Provenance {
            source: Origin::Exec,
            duration_ms: u64::try_from(took.as_millis()).ok(),
            conversation_id: None,
        },
        ..PushedCommand::default()
    };
    if let Err(why) = kept(arguments, &cwd, &pushed(tail.preview(&bounds)), environment) {
        say(&format!("not kept as context: {why}"));
    }
    status
}

/// Runs the command; returns its status and the end of its output.
fn ran(arguments: &ExecArguments) -> io::Result<(Ran, Tail)> {
    let Some(terminal) = Terminal::of_process() else { return run_piped(&arguments.words) };
    let mut tail = Tail::default();
    let ran = run_in_terminal(&arguments.words, &[], &terminal, |written| tail.take(written))?;
    Ok((ran, tail))
}

fn kept(
    arguments: &ExecArguments,
    cwd: &Path,
    pushed: &PushedCommand,
    environment: &Environment,
) -> Result<(), String> {
    let sessions = select_session::several_at(cwd, arguments.session.name(), Otherwise::None, environment);
    let sessions = sessions.map_err(|error| error.to_string())?;
    let (settings, _) = Settings::load(Flags::default(), environment);
    let kept = sessions.iter().map(|session| {
        let mut pushed = pushed.clone();
        if let Some(thread) = &arguments.thread {
            pushed.thread_id = Some(thread_or_id(session, thread, environment).map_err(|stop| stop.to_string())?);
        }
        keep(session, &[pushed], &settings.context().bounds).map(drop)
    });
    kept.fold(Ok(()), Result::and)
}

/// Reports typed-ahead input that was lost.
pub(super) fn say_unread(bytes: usize) {
    if bytes > 0 {
        say(&format!(
            "{bytes} bytes that you typed ahead were not read and are lost: this system has no way to hand them back"
        ));
    }
}

/// Replaces this process with the command.
fn become_it(arguments: &ExecArguments) -> i32 {
    let mut command = Command::new(&arguments.words[0]);
    launch::hand_down(command.args(&arguments.words[1..]), &[0, 1, 2]);
    let error = command.exec();
    say(&format!("{}: {error}", arguments.words[0].to_string_lossy()));
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN }
}
