//! The tools that keep terminal commands as context: `exec`, `hook`, `shell` and `watch-pty`.
//!
//! `exec` runs a command as if codex-shim were not there: nothing happens before the command starts, and an error afterwards is
//! one line at the end. The command that a shell's hook runs prints nothing.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Instant, SystemTime};

use clap::{Args, ValueHint};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT};

use super::history::thread_or_id;
use super::select_session::SessionFlag;
use super::{CANNOT_RUN, NOT_FOUND, complete, say, screen, select_session};
use super::{CliError, Done};
use crate::capture::{
    Happened, HookOutcome, HookReport, Outputs, Ran, ShellKind, Startup, Tail, Terminal, Watch, Whose,
    answers_privately, as_typed, keep, output_of, run_in_terminal, run_piped, script, why_not_started,
};
use crate::config::{ContextScope, Environment, Flags, Settings};
use crate::engine::{Origin, Preview, Provenance, PushedCommand};
use crate::os::{launch, signals};
use crate::secrets::redacted;
use crate::store::{Found, Otherwise};

pub(super) fn run_exec(arguments: &ExecArguments, environment: &Environment) -> Done {
    let kept_out =
        environment.get("CODEX_SHIM_PRIVATE").is_some_and(|value| answers_privately(&value.to_string_lossy()));
    if arguments.private || kept_out {
        return Err(become_it(arguments));
    }
    let cwd = std::env::current_dir().unwrap_or_default();
    let (began_at, began) = (SystemTime::now(), Instant::now());
    let (Ran { status, unread_bytes }, tail) = match ran(arguments) {
        Ok(ran) => ran,
        Err(error) => {
            say(&format!("open a terminal for the command: {error}; it runs without one and is not kept as context"));
            return Err(become_it(arguments));
        }
    };
    let took = began.elapsed();
    say_unread(unread_bytes);
    // A command that could not be run is not worth keeping.
    if tail.is_empty() && matches!(status, NOT_FOUND | CANNOT_RUN) {
        return Ok(status);
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
    Ok(status)
}

/// Runs the command; returns its status and the end of its output.
fn ran(arguments: &ExecArguments) -> io::Result<(Ran, Tail)> {
    let Some(terminal) = Terminal::of_process() else { return run_piped(&arguments.words) };
    let mut tail = Tail::new(terminal.screen_size());
    let seen = |happened: Happened<'_>| match happened {
        Happened::Shown(written) => tail.take(written),
        Happened::Resized(size) => tail.resize(size),
        Happened::Replaced(_) => {}
    };
    let ran = run_in_terminal(&arguments.words, &[], &terminal, None, seen)?;
    Ok((ran, tail))
}

fn kept(
    arguments: &ExecArguments,
    cwd: &Path,
    pushed: &PushedCommand,
    environment: &Environment,
) -> Result<(), CliError> {
    let sessions = select_session::several_at(cwd, arguments.session.name(), Otherwise::None, environment)?;
    let (settings, _) = Settings::load(Flags::default(), environment);
    let mut pairs: Vec<(&Found, Option<String>)> = Vec::new();
    for session in &sessions {
        match &arguments.thread {
            Some(thread) => pairs.push((session, Some(thread_or_id(session, thread, environment)?))),
            None => {
                let threads = select_session::threads_for_context(session, cwd, settings.context_scope.value);
                pairs.extend(threads.into_iter().map(|thread| (session, thread)));
            }
        }
    }
    if pairs.is_empty() {
        let why = "no thread of this repository is open in the hub; name one with --thread, or see `codex-shim status`";
        return Err(CliError::failed(why));
    }
    let kept = pairs.into_iter().map(|(session, thread_id)| {
        let pushed = PushedCommand { thread_id, ..pushed.clone() };
        Ok(keep(session, &[pushed], &settings.context().bounds).map(drop)?)
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
fn become_it(arguments: &ExecArguments) -> CliError {
    let mut command = Command::new(&arguments.words[0]);
    launch::hand_down(command.args(&arguments.words[1..]), &[0, 1, 2]);
    let error = command.exec();
    let exit = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
    CliError::exits(exit, why_not_started(&arguments.words[0], &error))
}

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
    screen::print_exactly(&script(arguments.shell.into(), &our_program()))
}

/// The command by which a shell starts us from any folder.
pub(super) fn our_program() -> String {
    let path = std::env::current_exe().unwrap_or_else(|_| "codex-shim".into());
    path.to_string_lossy().into_owned()
}

/// Keeps a typed command. It runs in the background, prints nothing and always exits with 0.
pub(super) fn run_hooked(arguments: HookedArguments, environment: &Environment) -> i32 {
    // fish starts this in its own process group, which gets SIGHUP when fish ends, as if that were a job.
    [SIGHUP, SIGINT, SIGQUIT].into_iter().for_each(signals::ignore);
    let HookedArguments { shell, exit_code, cwd, began, ended, took, key, as_typed } = arguments;
    // The bash hook of an earlier version reports the newest entry of the history, which may be another command.
    if matches!(shell, ShellName::Bash) && !as_typed {
        return 0;
    }
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
    let hooked = HookReport {
        line,
        exit_code,
        cwd: cwd.to_string_lossy().into_owned(),
        began_us: began.parse().ok(),
        ended_us: ended.parse().ok(),
        took_ms: took.parse().ok(),
        key: key.clone(),
    };
    let now_ms = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let HookOutcome::Record(mut pushed) = hooked.outcome(shell.into(), now_ms) else { return 0 };
    let Ok(sessions) = select_session::several_at(Path::new(&cwd), None, Otherwise::None, environment) else {
        return 0;
    };
    if let Some(socket) = variable(SHELL_VARIABLE) {
        pushed.provenance.source = Origin::Shell;
        if let Some(output) = output_of(Path::new(&socket), &key) {
            pushed.preview = Some(output);
        }
    }
    let (settings, _) = Settings::load(Flags::default(), environment);
    for session in &sessions {
        for thread_id in select_session::threads_for_context(session, Path::new(&cwd), settings.context_scope.value) {
            let pushed = PushedCommand { thread_id, ..(*pushed).clone() };
            let _ = keep(session, &[pushed], &settings.context().bounds);
        }
    }
    0
}

pub(super) fn run_shell(arguments: &ShellArguments, environment: &Environment) -> Done {
    let program = arguments.shell.clone().or_else(|| environment.get("SHELL").map(PathBuf::from));
    let program = program.unwrap_or_else(|| "bash".into());
    let Some(kind) = ShellKind::of_program(&program) else {
        let error = CliError::usage(format!("unknown shell {}", program.display()));
        return Err(error.with_remedy("use `codex-shim shell bash`, zsh or fish"));
    };
    let Some(terminal) = Terminal::of_process() else {
        return Err(CliError::usage("shell needs a terminal on stdin and stdout"));
    };
    let mut variables: Vec<(&str, OsString)> = Vec::new();
    if let Some(session) = arguments.session.name() {
        let found = select_session::one(Some(session), Otherwise::None, environment)?;
        variables.push(("CODEX_SHIM_SESSION", found.id.into()));
    }
    let home = environment.shim_home().value.ok_or_else(CliError::no_home)?;
    let (settings, _) = Settings::load(Flags::default(), environment);
    let base = environment.runtime_dir().unwrap_or_else(std::env::temp_dir);
    let mut outputs = Outputs::start(&base, settings.context().bounds, terminal.screen_size())
        .map_err(|error| say(&format!("listen in {}: {error}; no output is kept", base.display())))
        .ok();
    // Without the socket the hook prints marks but cannot ask for outputs.
    variables.push((SHELL_VARIABLE, outputs.as_ref().map_or_else(|| "-".into(), Outputs::socket)));
    let startup = Startup::new(kind, &program, &home.join("shell"), &our_program())
        .map_err(|error| format!("write the startup file of the shell in {}: {error}", home.display()))?;
    variables.extend(startup.variables.iter().cloned());
    if let Some(warning) = &startup.warning {
        say(warning);
    }
    let mut last_shown = b'\n';
    let seen = |happened: Happened<'_>| match happened {
        Happened::Shown(written) => {
            last_shown = written.last().copied().unwrap_or(last_shown);
            if let Some(outputs) = &mut outputs {
                outputs.take(written);
            }
        }
        Happened::Resized(size) => {
            if let Some(outputs) = &mut outputs {
                outputs.resize(size);
            }
        }
        Happened::Replaced(_) if startup.warning.is_some() => {}
        Happened::Replaced(name) => say_replaced(kind, name, last_shown),
    };
    let ran = run_in_terminal(&startup.words, &variables, &terminal, Some(&startup), seen);
    let ran = ran.map_err(|error| format!("open a terminal: {error}"))?;
    say_unread(ran.unread_bytes);
    Ok(ran.status)
}

/// Reports that the shell has become another program. The terminal is in raw mode, and its last line may not be at an end.
fn say_replaced(shell: ShellKind, name: &str, last_shown: u8) {
    let became = ShellKind::of_program(Path::new(name));
    let what = if became == Some(shell) { format!("another {name}") } else { name.to_owned() };
    let unless = if became.is_some() { " unless its own settings load the hook" } else { "" };
    let keep = "keep that `exec` from a shell in which CODEX_SHIM_SHELL is set";
    let remedy = match became {
        Some(other) if other != shell => format!("run `codex-shim shell {name}` instead"),
        Some(_) => keep.to_owned(),
        None => format!("run `codex-shim shell` in it, or {keep}"),
    };
    let message = format!("{} has become {what}, and nothing in it is captured{unless}; {remedy}", shell.name());
    let text = screen::fitted(&format!("codex-shim: {}", screen::plain(&message)), screen::columns_of_stderr());
    let text = match (io::stderr().is_terminal(), last_shown) {
        (false, _) => format!("{text}\n"),
        (true, b'\n') => format!("{}\r\n", text.replace('\n', "\r\n")),
        (true, _) => format!("\r\n{}\r\n", text.replace('\n', "\r\n")),
    };
    // Without a reader it is lost, as any message.
    let _ = io::stderr().write_all(text.as_bytes());
}

pub(super) fn run_watch_pty(arguments: &WatchPtyArguments, environment: &Environment) -> Done {
    let session = select_session::one(arguments.session.name(), Otherwise::None, environment)?;
    let (settings, _) = Settings::load(Flags::default(), environment);
    let bounds = settings.context().bounds;
    let whose = if arguments.all || settings.agent_pty_all.value { Whose::All } else { Whose::Users };
    if !arguments.file.exists() {
        say(&format!("{} does not exist yet; waiting for it", arguments.file.display()));
    }
    Watch::new(&arguments.file, whose, bounds).follow(
        |commands| {
            // The relay may have started or exited meanwhile, and its threads have changed.
            let now = select_session::refreshed(&session);
            for (thread_id, commands) in by_thread(&now, commands, settings.context_scope.value) {
                let for_thread = |command| PushedCommand { thread_id: thread_id.clone(), ..command };
                let commands: Vec<PushedCommand> = commands.into_iter().map(for_thread).collect();
                keep(&now, &commands, &bounds)?;
            }
            if arguments.json {
                // The reader of stdout may be gone; the commands are kept anyway.
                let _ = screen::print_exactly(&commands.iter().map(json_line).collect::<String>());
            }
            Ok(())
        },
        say,
    );
    Ok(0)
}

/// The commands that each thread of a session gets, in order; `None` is whichever thread speaks next.
fn by_thread(
    session: &Found,
    commands: &[PushedCommand],
    scope: ContextScope,
) -> BTreeMap<Option<String>, Vec<PushedCommand>> {
    let mut by_thread: BTreeMap<Option<String>, Vec<PushedCommand>> = BTreeMap::new();
    for command in commands {
        let cwd = Path::new(command.cwd.as_deref().unwrap_or_default());
        for thread_id in select_session::threads_for_context(session, cwd, scope) {
            by_thread.entry(thread_id).or_default().push(command.clone());
        }
    }
    by_thread
}

/// The JSON line for a kept command, without its output.
fn json_line(command: &PushedCommand) -> String {
    let cmd = redacted(&command.cmd).unwrap_or_else(|| command.cmd.clone());
    let PushedCommand { exit_code, cwd, block_id, ts, provenance, .. } = command;
    let duration_ms = provenance.duration_ms;
    let told = json!({
        "block_id": block_id, "cmd": cmd, "exit_code": exit_code, "cwd": cwd, "ts": ts, "duration_ms": duration_ms,
    });
    format!("{told}\n")
}

/// Run a command and show the model what it printed
///
/// The command runs in a terminal of its own and looks as it does without codex-shim: colours, size, keys, job control,
/// full-screen programs. If stdin or stdout is not a terminal, it runs between pipes. The command, its status and the end
/// of its output go to the model with your next message.
#[derive(Debug, Args)]
#[command(after_long_help = "\
The output of full-screen programs and binary output is not kept. Text that
looks like a key or a password is masked. With --private or
CODEX_SHIM_PRIVATE=1 nothing is kept. Options of codex-shim stand before CMD.

Exit status: that of the command, or 128 + n if signal n ended it.

Examples:
  codex-shim exec cargo test
  codex-shim exec ls -l
  codex-shim exec sh -c 'make 2>&1 | tail'
  codex-shim exec --session work -- git log")]
pub(super) struct ExecArguments {
    #[command(flatten)]
    pub(super) session: SessionFlag,
    /// Only for this thread: its id, a unique beginning of it, or `latest`
    #[arg(long, value_name = "THREAD", add = complete::threads())]
    pub(super) thread: Option<String>,
    /// Keep nothing
    #[arg(long)]
    pub(super) private: bool,
    /// Command and its arguments
    #[arg(
        trailing_var_arg = true,
        required = true,
        value_names = ["CMD", "ARG"],
        value_hint = ValueHint::CommandWithArguments
    )]
    pub(super) words: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ShellName {
    Bash,
    Zsh,
    Fish,
}

/// Print shell code that shows the model the commands you type
///
/// The text, status, folder and time of each command go to the model with your next message. The output does not: `exec`
/// and `shell` keep that. Without a live session it keeps nothing.
#[derive(Debug, Args)]
#[command(after_long_help = "\
A leading space keeps a command out, and so does CODEX_SHIM_PRIVATE=1.

Examples, for the file that your shell reads when it starts:
  eval \"$(codex-shim hook bash)\"       ~/.bashrc
  eval \"$(codex-shim hook zsh)\"        ~/.zshrc
  codex-shim hook fish | source         ~/.config/fish/config.fish")]
pub(super) struct HookArguments {
    /// The shell
    #[arg(value_enum)]
    pub(super) shell: ShellName,
}

/// Open a shell whose commands and output the model sees
///
/// It is your own shell with your own settings, in a terminal of codex-shim, with the hook loaded.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Without a name it is the shell in SHELL. A leading space keeps a command out,
and so does CODEX_SHIM_PRIVATE=1.

Examples:
  codex-shim shell
  codex-shim shell zsh --session work")]
pub(super) struct ShellArguments {
    /// bash, zsh or fish: a path, or a name on PATH [default: $SHELL]
    #[arg(value_name = "SHELL", value_hint = ValueHint::ExecutablePath)]
    pub(super) shell: Option<PathBuf>,
    #[command(flatten)]
    pub(super) session: SessionFlag,
}

/// Follow an agent_pty events file and keep its commands as context
///
/// It runs until you interrupt it, and keeps each block once. The setting `agent_pty` makes a relay do the same.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Without --all only your own commands are kept: blocks whose id begins with
`user:`.

Examples:
  codex-shim watch-pty ~/.cache/agent_pty/events.jsonl
  codex-shim watch-pty --all --session work events.jsonl")]
pub(super) struct WatchPtyArguments {
    /// File with the events; it may be created later
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) file: PathBuf,
    /// Print each command as one JSON document per line
    #[arg(long)]
    pub(super) json: bool,
    /// Keep the commands of the agent, too
    #[arg(long)]
    pub(super) all: bool,
    #[command(flatten)]
    pub(super) session: SessionFlag,
}

#[derive(Debug, Args)]
pub(super) struct HookedArguments {
    #[arg(value_enum)]
    pub(super) shell: ShellName,
    #[arg(long, allow_hyphen_values = true)]
    pub(super) exit_code: i64,
    #[arg(long, allow_hyphen_values = true)]
    pub(super) cwd: OsString,
    #[arg(long, default_value = "")]
    pub(super) began: String,
    #[arg(long, default_value = "")]
    pub(super) ended: String,
    #[arg(long, default_value = "")]
    pub(super) took: String,
    #[arg(long)]
    pub(super) key: String,
    /// The line is the one that ran; the bash hook of earlier versions did not know
    #[arg(long)]
    pub(super) as_typed: bool,
}

#[derive(Debug, Args)]
pub(super) struct HookSupervisorArguments {
    #[arg(last = true, required = true)]
    pub(super) words: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(super) struct TerminalLeaderArguments {
    #[arg(long)]
    pub(super) unread_to: Option<std::os::fd::RawFd>,
    #[arg(last = true, required = true)]
    pub(super) words: Vec<OsString>,
}
