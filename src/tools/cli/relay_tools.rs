//! `codex-shim run` and `serve`, which start a relay, and `attach`, which connects a client on our stdin and stdout to a server
//! that `serve` runs.
//!
//! `attach`: bytes are copied in chunks and never parsed. Stdout carries only bytes from the relay.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{ArgAction, Args, ValueHint};

use super::select_session::SessionWord;
use super::{CANNOT_RUN, FAILED, NOT_FOUND, complete, say, select_session};
use super::{CliError, Done};
use crate::config::{Complaint, Environment, Flags, SessionName, Settings, parse_bool, parse_duration};
use crate::control::client::{self, Attached};
use crate::engine::Exit;
use crate::os::descriptors::{read_waiting, stdin, stdout, write_all};
use crate::relay::locate::{self, Codex, LocateError};
use crate::relay::{self, RelayError, ServerCommand};
use crate::store::Otherwise;

/// Relay a server command on stdin and stdout
#[derive(Debug, Args)]
#[command(after_long_help = "\
Settings that these options set also come from CODEX_SHIM_* variables and
config.toml; see `codex-shim config`.

Exit status: that of the server, or 128 + n if signal n ended it; 127 if there
is no such server.

Examples:
  codex-shim run                                 relay `codex app-server`
  codex-shim run --codex ~/bin/codex-0.169.0     relay that codex
  codex-shim run --session work -- my-server -x  relay any server
  codex-shim run -- ssh host codex app-server    relay a codex on another host")]
pub(super) struct RunArguments {
    #[command(flatten)]
    relay: RelayArguments,
}

/// Run a server without a client, driven by commands
///
/// codex-shim initializes the server, and restarts it if it dies. Then `send`, `requests`, `respond` and `interrupt` work
/// as they do beside any client. A client can come and go with `attach`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
If the name of the session is in use, the session is called NAME.2, NAME.3, and
so on; the first line on stderr says which name it got.

Examples:
  codex-shim serve bot &
  codex-shim send --session bot --new --wait 'say hello'
  S=~/.local/state/codex-shim/sessions/bot   # its folder, see `status bot`
  curl --unix-socket \"$S/control.sock\" -d '{\"method\":\"model/list\"}' \\
    http://shim/sessions/self/rpc")]
pub(super) struct ServeArguments {
    /// Name of the session [default: the one that last ran in this folder]
    #[arg(value_name = "NAME", conflicts_with = "session", add = complete::sessions())]
    name: Option<SessionName>,
    #[command(flatten)]
    relay: RelayArguments,
}

#[derive(Debug, Args)]
struct RelayArguments {
    /// The real codex: a path, or a name on PATH
    #[arg(long, value_name = "PATH", conflicts_with = "server", value_hint = ValueHint::ExecutablePath)]
    codex: Option<PathBuf>,
    /// Name of the session [default: the one that last ran in this folder]
    #[arg(long, id = "session", value_name = "NAME", add = complete::sessions())]
    session: Option<SessionName>,
    /// Record messages: true or false [default: true]
    #[arg(long, value_name = "BOOL", value_parser = parse_bool, action = ArgAction::Set)]
    record: Option<bool>,
    /// Time that the server has to exit once its stdin is closed [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    exit_grace: Option<Duration>,
    /// Server command and its arguments [default: codex app-server]
    #[arg(last = true, value_name = "SERVER [ARG]", value_hint = ValueHint::CommandWithArguments)]
    server: Vec<OsString>,
}

/// Connect a client on stdin/stdout to a server started by `serve`
///
/// Start it in place of `codex app-server`. The client initializes as always and finds the threads that exist. The server
/// keeps running when the client leaves. One client can be attached at a time.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status:
  0  the client closed stdin
  1  the server ended, or another client is attached
  3  no such session
  4  the session is not running

Examples:
  codex-shim attach
  codex-shim attach bot")]
pub(super) struct AttachArguments {
    #[command(flatten)]
    session: SessionWord,
}

/// Bytes per read.
const CHUNK_BYTES: usize = 64 << 10;

/// Why a copy ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copied {
    /// End of input.
    All,
    /// The reader of the output is gone.
    Unwanted,
}

/// Runs a relay in front of a server, or connects a client to one.
type RunRelay = fn(&ServerCommand, &Settings, &Environment, &[Complaint]) -> Result<Exit, RelayError>;

/// Relays a server on stdin and stdout.
pub(super) fn run_run(run: RunArguments, environment: &Environment) -> Done {
    run_server(run.relay, relay::run, environment)
}

/// Runs a server without a client.
pub(super) fn run_serve(serve: ServeArguments, environment: &Environment) -> Done {
    let ServeArguments { name, relay } = serve;
    run_server(RelayArguments { session: name.or(relay.session), ..relay }, relay::serve, environment)
}

fn run_server(arguments: RelayArguments, how: RunRelay, environment: &Environment) -> Done {
    let RelayArguments { codex, session, record, exit_grace, server } = arguments;
    let flags = Flags { codex: codex.map(Some), session: session.map(Some), record, exit_grace };
    let Some((program, args)) = server.split_first() else {
        return relay_codex(vec!["app-server".into()], flags, how, environment);
    };
    let (settings, complaints) = Settings::load(flags, environment);
    let command = locate::check_depth(environment).and_then(|()| {
        let path = locate::server(program, environment)?;
        Ok(server_command(path, program, args.to_vec(), environment))
    });
    relay(command, &settings, &complaints, how, environment)
}

/// Relays codex.
pub(super) fn relay_codex(codex_args: Vec<OsString>, flags: Flags, how: RunRelay, environment: &Environment) -> Done {
    let (settings, complaints) = Settings::load(flags, environment);
    relay(codex_command(codex_args, &settings, environment), &settings, &complaints, how, environment)
}

fn relay(
    command: Result<ServerCommand, LocateError>,
    settings: &Settings,
    complaints: &[Complaint],
    how: RunRelay,
    environment: &Environment,
) -> Done {
    let command = command.map_err(not_found)?;
    if settings.off.value {
        return Err(cannot_start(relay::become_server(&command)));
    }
    how(&command, settings, environment, complaints).map(|exit| exit.status()).map_err(cannot_start)
}

/// Replaces this process with codex.
pub(super) fn become_codex(codex_args: Vec<OsString>, environment: &Environment) -> Done {
    let (settings, _) = Settings::load(Flags::default(), environment);
    let command = codex_command(codex_args, &settings, environment).map_err(not_found)?;
    Err(cannot_start(relay::become_server(&command)))
}

pub(super) fn codex_command(
    args: Vec<OsString>,
    settings: &Settings,
    environment: &Environment,
) -> Result<ServerCommand, LocateError> {
    locate::check_depth(environment)?;
    let Codex { program, path, notice } = locate::codex(settings, environment)?;
    if let Some(notice) = notice {
        say(&notice);
    }
    let name = program.clone().into_os_string();
    Ok(ServerCommand { path, ..server_command(program, &name, args, environment) })
}

fn server_command(
    program: std::path::PathBuf,
    name: &OsStr,
    args: Vec<OsString>,
    environment: &Environment,
) -> ServerCommand {
    ServerCommand { program, name: name.to_owned(), args, depth: environment.depth() + 1, path: None }
}

fn not_found(error: LocateError) -> CliError {
    CliError::exits(NOT_FOUND, error.to_string())
}

fn cannot_start(error: RelayError) -> CliError {
    let exit = match &error {
        RelayError::Start { source, .. } if source.kind() == std::io::ErrorKind::NotFound => NOT_FOUND,
        RelayError::Start { .. } => CANNOT_RUN,
        RelayError::SetUp { .. } | RelayError::Session(_) => FAILED,
    };
    CliError::exits(exit, error.to_string())
}

pub(super) fn run_attach(arguments: &AttachArguments, environment: &Environment) -> Done {
    let session = select_session::one(arguments.session.name(), Otherwise::None, environment)?;
    let not_running = || {
        let remedy = format!("start it with `codex-shim serve --session {}`, and try again", session.id);
        Err(CliError::not_running(&session).with_remedy(remedy))
    };
    if !session.live {
        return not_running();
    }
    match client::attach(&session.dir) {
        Ok(Attached::Lines(stream)) => {
            carry(stream, &select_session::argument_for(&session, arguments.session.name(), environment))
        }
        Ok(Attached::Refused(refused)) => {
            Err(CliError::failed(format!("session {} refused the client: {}", session.name(), refused.message)))
        }
        Err(_) if !session.is_still_live() => not_running(),
        Err(error) => Err(CliError::failed(error.message(&session))),
    }
}

/// Copies in both directions until one end closes; returns the exit status. `at` names the session in a suggested command.
fn carry(stream: UnixStream, at: &str) -> Done {
    let failed = |error: io::Error| CliError::failed(error.to_string());
    let client_has_ended = Arc::new(AtomicBool::new(false));
    let (to_shim, ended) = (stream.try_clone().map_err(failed)?, Arc::clone(&client_has_ended));
    // The read of stdin may block forever, so the process does not join this thread.
    let reads = std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        if copy(stdin(), to_shim.as_fd()) == Copied::All {
            ended.store(true, Ordering::Release);
            // The relay then sends what it has and closes. An error means that it has closed already.
            let _ = to_shim.shutdown(Shutdown::Write);
        }
    });
    reads.map_err(failed)?;
    let copied = copy(stream.as_fd(), stdout());
    let client_has_ended = client_has_ended.load(Ordering::Acquire);
    match copied {
        Copied::All | Copied::Unwanted if client_has_ended => Ok(0),
        Copied::All => {
            Err(CliError::failed(format!("the server or its relay has exited; see `codex-shim status{at}`")))
        }
        Copied::Unwanted => Err(CliError::failed("the client closed stdout")),
    }
}

/// Copies bytes as they arrive.
fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Copied {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match read_waiting(from, &mut chunk) {
            // The connection was reset, or the terminal hung up.
            Ok(0) | Err(_) => return Copied::All,
            Ok(taken) if write_all(to, &chunk[..taken]).is_err() => return Copied::Unwanted,
            Ok(_) => {}
        }
    }
}
