//! `codex-shim hub`: runs a hub in the foreground, and starts, stops, restarts and shows one in the background.
//!
//! A hub is found by its session: the one that the user names, else the one of `CODEX_HOME`. It runs if the session's lock is
//! held; the process that is signalled is the holder, by the word of the kernel if its socket answers.

mod status;

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, FromArgMatches as _, Subcommand, ValueHint};

pub(super) use self::status::{Fault, Status, bypass_line, bypasses};
use self::status::{StatusArguments, run_status};
use super::drift_tool::{self, Outlook};
use super::screen::{self, counted};
use super::{CliError, Done, FAILED, NO_SUCH_SESSION, complete, offline, relay_tools, say, select_session};
use crate::api::{self, State};
use crate::config::{Environment, Flags, SessionName, Settings, is_path};
use crate::control::HANDS_OVER;
use crate::control::client::{self, ANSWER_WAIT_MAX, Unanswered};
pub(super) use crate::hub::Down;
use crate::hub::process::{self, Stopped};
use crate::hub::sockets::{CODEX_SOCKET, default_socket};
use crate::hub::{self, DefaultSocket, HubOptions};
use crate::os::descriptors::never_block;
use crate::os::launch;
use crate::os::processes::{self, ProcessIdentity};
use crate::os::signals::Signal;
use crate::os::sockets::connect;
use crate::socket::{self, LOOK_EVERY, Peer};
use crate::store::Found;

/// Run one codex server for all clients of this machine
///
/// codex 0.135 and later connects to a server that it finds in its home, and otherwise starts a daemon of its own. A hub runs
/// the real `codex app-server` and listens in its place: every terminal and every tool that connects there shares one server,
/// one recording and one list of requests. It runs until SIGTERM or SIGINT. They end the hub and leave the server running, and
/// the next hub takes it over. `hub start` runs a hub in the background.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "\
The hub listens on $CODEX_HOME/app-server-control/app-server-control.sock, where
codex looks for a server, and on codex.sock in the folder of its session, for
`codex --remote unix://PATH`.

Exit status:
  0  a signal has ended the hub
  1  something else answers on codex's socket, or the server cannot be started
  2  usage

Examples:
  codex-shim hub start                start a hub in the background
  codex                               connects to it by itself
  codex-shim hub status               the server, and who is connected
  codex-shim hub stop                 end the hub and the server
  codex-shim hub --no-default-socket --session test   beside a codex daemon"
)]
pub(super) struct HubArguments {
    #[command(flatten)]
    flags: HubFlags,
    /// The descriptor with the state of the hub that has run in this process before.
    #[arg(long = &hub::TAKE_OVER[2..], hide = true)]
    take_over: Option<RawFd>,
    /// Read the state of a hub on stdin, and write it to stdout for the program that the hub becomes.
    #[arg(long = &hub::KEEP_STATE[2..], hide = true)]
    keep_state: bool,
    #[command(subcommand)]
    tool: Option<HubTool>,
}

#[derive(Debug, Args)]
pub(super) struct HubFlags {
    /// Name of the session [default: the one of this CODEX_HOME]
    #[arg(long, id = "session", value_name = "NAME", add = complete::sessions())]
    pub(super) session: Option<SessionName>,
    /// The real codex, 0.135 or later: a path, or a name on PATH
    #[arg(long, value_name = "PATH", value_hint = ValueHint::ExecutablePath)]
    pub(super) codex: Option<PathBuf>,
    /// Listen only in the session's folder, not where codex looks for a server
    #[arg(long)]
    pub(super) no_default_socket: bool,
}

#[derive(Debug, Subcommand)]
enum HubTool {
    Start(StartArguments),
    Stop(StopArguments),
    Restart(RestartArguments),
    Status(StatusArguments),
}

/// Start a hub in the background
///
/// Returns once the hub listens, after 20 s at most. If one runs already, it says so and does nothing.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status:
  0  the hub listens
  1  something else answers on codex's socket, or the server cannot be started;
     or a hub runs, but does not listen on a socket, or has a server that is
     shutting down

Examples:
  codex-shim hub start
  codex-shim hub start --codex ~/bin/codex-0.169.0")]
struct StartArguments {
    #[command(flatten)]
    flags: HubFlags,
}

/// End a hub and its server
///
/// Clients that are connected lose their connection. If turns are running or requests are open, it asks first; without a terminal,
/// it then does nothing. If no hub runs but its server does, it ends that, and asks first if a request waits there.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status:
  0  neither the hub nor the server runs
  1  one of them could not be ended, or turns are running or requests wait and
     nobody agrees to interrupt them
  3  there is no session with this name

Examples:
  codex-shim hub stop
  codex-shim hub stop --session test")]
struct StopArguments {
    /// Name of the hub's session [default: the one of this CODEX_HOME]
    #[arg(long, id = "session", value_name = "NAME", add = complete::sessions())]
    session: Option<SessionName>,
    /// Do not ask before running turns are interrupted
    #[arg(long)]
    yes: bool,
}

/// Replace a hub and keep its server
///
/// For an upgrade of codex-shim, or a changed setting. The hub becomes this program and goes on with all connections, so that no
/// client notices. If that cannot be, it says why and starts another hub. No turn is lost then either: terminals of codex 0.153 and
/// later connect again by themselves; older ones exit, and `codex resume` continues. A terminal without a message yet has to be
/// opened again. If no hub runs, one is started. Give the options of the hub again.
///
/// `--server` also replaces the server. If turns are running or requests are open, it asks first; without a terminal, it then does
/// nothing.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: that of `hub start`; also 1 if turns are running and nobody
agrees to interrupt them.

Examples:
  codex-shim hub restart
  codex-shim hub restart --server     also the server, for another codex")]
struct RestartArguments {
    #[command(flatten)]
    flags: HubFlags,
    /// Also replace the server, which interrupts running turns
    #[arg(long)]
    server: bool,
    /// Begin anew, with the PATH and the environment of this terminal; the clients connect again
    #[arg(long)]
    anew: bool,
    /// Do not ask before running turns are interrupted
    #[arg(long, requires = "server")]
    yes: bool,
}

/// How long a hub may take until it listens.
const START_WAIT_MAX: Duration = Duration::from_secs(20);

/// How long a program that has taken over may take until it answers.
const TAKE_OVER_WAIT_MAX: Duration = Duration::from_secs(15);

/// How long to wait for the end of a restart that another tool has asked for.
const OTHER_TOOL_WAIT_MAX: Duration = Duration::from_secs(30);

/// How soon to ask again then. Each call disturbs that restart.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How long it has to go on before the restart counts as done.
const GOES_ON_FOR: Duration = Duration::from_secs(1);

/// How long a hub may take to end.
const END_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long a hub may take until it listens again on sockets that were removed.
const RECOVERY_WAIT_MAX: Duration = LOOK_EVERY.saturating_mul(2);

/// The pause between two looks at a hub that starts or ends.
pub(super) const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// Most bytes of the stderr of a hub that are passed on.
const STDERR_BYTES_MAX: u64 = 64 << 10;

/// Variables with a path, which may be relative to the folder of the user's shell.
const PATH_VARIABLES: [&str; 3] = ["CODEX_HOME", "CODEX_SHIM_HOME", "CODEX_SHIM_CODEX"];

pub(super) fn run(arguments: HubArguments, environment: &Environment) -> Done {
    match arguments.tool {
        None => run_here(arguments, environment),
        Some(HubTool::Start(start)) => run_start(&start.flags, environment),
        Some(HubTool::Stop(stop)) => run_stop(&stop, environment),
        Some(HubTool::Restart(restart)) => run_restart(restart, environment),
        Some(HubTool::Status(status)) => run_status(&status, environment),
    }
}

/// Runs a hub in this process.
fn run_here(arguments: HubArguments, environment: &Environment) -> Done {
    let HubArguments { flags, take_over: state, keep_state, .. } = arguments;
    if state.is_none()
        && !keep_state
        && let Some(hub) = Hub::running(flags.session.as_ref(), environment)?
    {
        return Err(CliError::failed(format!("{} runs already", hub.name()))
            .with_remedy(format!("stop it with `{}`", hub.command("stop"))));
    }
    let (settings, complaints) =
        Settings::load(Flags { codex: flags.codex.map(Some), ..Flags::default() }, environment);
    let command = relay_tools::codex_command(vec!["app-server".into()], &settings, environment)
        .map_err(|error| CliError::failed(error.to_string()))?;
    if keep_state {
        return hub::keep_state(&settings).map(|()| 0).map_err(CliError::failed);
    }
    let default_socket = if flags.no_default_socket { DefaultSocket::LeftAlone } else { DefaultSocket::Claimed };
    let options = HubOptions {
        command,
        settings,
        session: flags.session,
        default_socket,
        codex_home: environment.codex_home_resolved(),
        codex_home_is_set: environment.get("CODEX_HOME").is_some(),
        cwd: folder_that_stays(environment),
        runtime_dir: environment.runtime_dir(),
        state,
    };
    hub::run(options, environment, &complaints).map(|()| 0).map_err(|error| CliError::exits(FAILED, error.to_string()))
}

/// The user's home, else the root.
fn folder_that_stays(environment: &Environment) -> PathBuf {
    let home = environment.get("HOME").map(PathBuf::from).filter(|home| home.is_absolute() && home.is_dir());
    home.unwrap_or_else(|| "/".into())
}

/// The session of a hub.
pub(super) struct Hub {
    pub(super) found: Found,
}

impl Hub {
    /// The sessions of all hubs for this `CODEX_HOME`, with and without names, the live ones first.
    pub(super) fn of_home(environment: &Environment) -> Result<Vec<Hub>, CliError> {
        let codex_home = environment.codex_home_resolved();
        let is_its =
            |found: &Found| found.holder.as_ref().is_some_and(|holder| hub::is_hub_for(&holder.place, &codex_home));
        let found = select_session::all_quietly(environment)?.into_iter().filter(is_its);
        Ok(found.map(|found| Hub { found }).collect())
    }

    /// The sessions of the hub for this `CODEX_HOME` or with this name, the live one first.
    fn all(session: Option<&SessionName>, environment: &Environment) -> Result<Vec<Hub>, CliError> {
        let found: Vec<Found> = match session {
            None => Hub::of_home(environment)?.into_iter().filter(|hub| !hub.has_name()).map(|hub| hub.found).collect(),
            Some(name) => {
                let found = select_session::all_quietly(environment)?.into_iter();
                found.filter(|found| found.id == name.to_string()).collect()
            }
        };
        // Whoever has only just taken a lock has not said yet what it is.
        let hubs: Vec<Hub> =
            found.into_iter().filter(|found| found.holder.is_some()).map(|found| Hub { found }).collect();
        match hubs.iter().find(|hub| !hub.found.holder.as_ref().is_some_and(|holder| hub::is_hub(&holder.place))) {
            Some(other) => Err(CliError::failed(format!("session {} is not the session of a hub", other.found.id))
                .with_remedy("choose another name, or see `codex-shim sessions`")),
            None => Ok(hubs),
        }
    }

    /// The hub that runs, if one does.
    pub(super) fn running(session: Option<&SessionName>, environment: &Environment) -> Result<Option<Hub>, CliError> {
        let mut running = Hub::all(session, environment)?;
        running.retain(|hub| hub.found.live);
        if running.len() > 1 {
            let names: Vec<&str> = running.iter().map(|hub| hub.found.id.as_str()).collect();
            let told = format!("several hubs run for this CODEX_HOME: {}", names.join(", "));
            return Err(CliError::failed(told).with_remedy("end one of them with `kill`; see `codex-shim sessions`"));
        }
        Ok(running.pop())
    }

    /// Whether it runs under a name that the user has given.
    pub(super) fn has_name(&self) -> bool {
        self.found.holder.as_ref().is_some_and(|holder| hub::has_name(&holder.place))
    }

    fn pid(&self) -> Option<u32> {
        self.found.holder.as_ref().map(|holder| holder.pid)
    }

    /// How long it has been running.
    fn age(&self) -> Duration {
        let started = self.found.holder.as_ref().and_then(|holder| humantime::parse_rfc3339(&holder.started_at).ok());
        started.and_then(|started| started.elapsed().ok()).unwrap_or_default()
    }

    /// Its name in a message.
    pub(super) fn name(&self) -> String {
        let pid = self.pid().map_or_else(String::new, |pid| format!(", pid {pid}"));
        format!("hub (session {}{pid})", self.found.id)
    }

    /// `codex-shim hub` with these words for it.
    pub(super) fn command(&self, words: &str) -> String {
        let place = self.found.holder.as_ref().map(|holder| &holder.place);
        place.map_or_else(|| format!("codex-shim hub {words}"), |place| hub::command(words, place, &self.found.id))
    }

    /// The version of the codex that its server runs, and its program.
    fn server(&self) -> Option<(String, PathBuf)> {
        let server = client::ask(&self.found.dir, &State, ANSWER_WAIT_MAX).ok()?.hub?.server;
        Some((server.version?, ProcessIdentity::of(server.pid)?.program()?))
    }

    /// The process that listens on its socket.
    pub(super) fn listening(&self) -> Option<u32> {
        let path = socket::resolve_at(&self.found.dir.join(CODEX_SOCKET)).ok()?;
        let peer = Peer::of(&connect(&path).ok()?).ok()?;
        peer.pid.filter(|_| peer.is_ours())
    }

    /// Whether it was started with these options.
    fn runs_with(&self, flags: &HubFlags) -> bool {
        let process = self.pid().and_then(ProcessIdentity::of);
        let arguments = process.map(|process| process.arguments()).unwrap_or_default();
        let hub = HubArguments::augment_args(clap::Command::new("hub"));
        let own = hub.try_get_matches_from(arguments.into_iter().skip(1));
        let own = own.and_then(|own| HubArguments::from_arg_matches(&own));
        own.is_ok_and(|own| words(&own.flags) == words(flags))
    }

    /// Has it become this program, and waits until that has gone on for a second. Otherwise says why it has not.
    fn hand_over(&self) -> Result<(), String> {
        let program = std::env::current_exe().map_err(|error| format!("find our own program: {error}"))?;
        let (pid, command) = (self.pid(), api::Command::HandOver(program));
        let asked_first = Instant::now();
        let since = loop {
            let since = self.found.holder_now().map(|holder| holder.started_at);
            match client::command(&self.found.dir, &command, client::Caller::Tool) {
                Ok(_) => break since,
                // The path is unknown.
                Err(Unanswered::Refused(refused)) if refused.answer.status == 404 => {
                    let name = self.name();
                    return Err(format!("the {name} is of an older version, which cannot hand its clients over"));
                }
                // Another tool was faster. Afterwards this program takes over.
                Err(Unanswered::Refused(refused)) if refused.code == HANDS_OVER => {
                    if asked_first.elapsed() >= OTHER_TOOL_WAIT_MAX {
                        return Err(format!("another tool restarts it, for {OTHER_TOOL_WAIT_MAX:?} now"));
                    }
                    std::thread::park_timeout(ASK_AGAIN_AFTER);
                }
                // It may have become the other program before it could answer.
                Err(Unanswered::NoAnswer(error)) if !error.is_unsent() => break since,
                Err(error) => return Err(error.why(&self.found)),
            }
        };
        let began = Instant::now();
        let mut answers_since = None;
        loop {
            let holder = self.found.holder_now();
            let is_new = holder
                .as_ref()
                .is_some_and(|holder| Some(holder.pid) == pid && Some(&holder.started_at) != since.as_ref());
            if is_new && client::check(&self.found.dir).is_ok() {
                let answers_since = *answers_since.get_or_insert_with(Instant::now);
                if answers_since.elapsed() >= GOES_ON_FOR {
                    return Ok(());
                }
            } else if !self.found.is_still_live() {
                return Err("the program that has taken over has ended".to_owned());
            } else if began.elapsed() >= TAKE_OVER_WAIT_MAX {
                return Err(format!("the program that has taken over does not answer within {TAKE_OVER_WAIT_MAX:?}"));
            }
            std::thread::park_timeout(LOOK_PAUSE);
        }
    }

    /// Ends the hub and waits for that. Its server runs on.
    fn end(&self) -> Result<(), CliError> {
        let failed = |why: String| CliError::failed(format!("end {}: {why}", self.name()));
        let pid = self.listening().or(self.pid()).ok_or_else(|| failed("its process is not known".to_owned()))?;
        let process = ProcessIdentity::of(pid);
        // The lock is held, and its content names a process that was looked at in between: it is the holder's.
        if let Some(process) = process.filter(|_| self.found.is_still_live()) {
            process.signal(Signal::TERM).map_err(|error| failed(error.to_string()))?;
        }
        let began = Instant::now();
        while self.found.is_still_live() {
            if began.elapsed() >= END_WAIT_MAX {
                return Err(failed(format!("it still runs after {END_WAIT_MAX:?}"))
                    .with_remedy(format!("end it with `kill -KILL {pid}`; its server runs on")));
            }
            std::thread::park_timeout(LOOK_PAUSE);
        }
        Ok(())
    }
}

fn settings_of(flags: &HubFlags, environment: &Environment) -> Settings {
    Settings::load(Flags { codex: flags.codex.clone().map(Some), ..Flags::default() }, environment).0
}

/// Starts a hub in the background, unless one runs.
fn run_start(flags: &HubFlags, environment: &Environment) -> Done {
    if let Some(hub) = Hub::running(flags.session.as_ref(), environment)? {
        return runs_already(&hub, environment);
    }
    let mut child = spawn(flags, None, environment)?;
    let mut stderr = child.stderr.take();
    let began = Instant::now();
    loop {
        let exited = child.try_wait().map_err(|error| CliError::failed(format!("wait for the hub: {error}")))?;
        let running = Hub::running(flags.session.as_ref(), environment)?;
        if let Some(status) = exited {
            // Another one was faster.
            if let Some(hub) = running.filter(|hub| hub.pid() != Some(child.id())) {
                return runs_already(&hub, environment);
            }
            let told = said_by(stderr.as_mut());
            let why = if told.is_empty() { format!("the hub exited ({status})") } else { told };
            return Err(CliError::exits(status.code().unwrap_or(FAILED), why));
        }
        if let Some(hub) = running.filter(|hub| hub.listening() == Some(child.id())) {
            let told = said_by(stderr.as_mut());
            if !told.is_empty() {
                say(&told);
            }
            let printed = screen::print(&format!("{} listens{}\n", hub.name(), places(&hub, flags, environment)));
            if let Some((version, program)) = hub.server() {
                drift_tool::keep(&version, program, &settings_of(flags, environment));
            }
            return Ok(printed);
        }
        if began.elapsed() >= START_WAIT_MAX {
            // It does not listen.
            let _ = processes::end(&mut child, END_WAIT_MAX);
            let told = said_by(stderr.as_mut());
            return Err(CliError::failed(format!("the hub did not listen within {START_WAIT_MAX:?}: {told}")));
        }
        std::thread::park_timeout(LOOK_PAUSE);
    }
}

/// A hub runs, which may be one that no client reaches. A hub that starts, or that gets well by itself, is waited for.
fn runs_already(hub: &Hub, environment: &Environment) -> Done {
    let (began, wait_max) = (Instant::now(), RECOVERY_WAIT_MAX.max(START_WAIT_MAX.saturating_sub(hub.age())));
    loop {
        let faults = Status::of(hub, environment).faults;
        if faults.is_empty() {
            return Ok(screen::print(&format!("{} runs already\n", hub.name())));
        }
        if began.elapsed() >= wait_max || !faults.iter().any(|fault| fault.may_pass) {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            return Err(CliError::failed(format!("{} runs already, but {}", hub.name(), faults.join(", and "))));
        }
        std::thread::park_timeout(LOOK_PAUSE);
    }
}

/// The sockets of a hub, in words.
fn places(hub: &Hub, flags: &HubFlags, environment: &Environment) -> String {
    let own = hub.found.dir.join(CODEX_SOCKET);
    match flags.no_default_socket {
        true => format!(" on {}", own.display()),
        false => format!(" on {} and {}", default_socket(&environment.codex_home_resolved()).display(), own.display()),
    }
}

/// Starts `codex-shim hub` in a session of its own. Only its stderr is ours. Its PATH may differ from ours.
pub(super) fn spawn(flags: &HubFlags, path: Option<&OsStr>, environment: &Environment) -> Result<Child, CliError> {
    let failed = |error: std::io::Error| CliError::failed(format!("start the hub: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    // Its name decides what it does.
    command.arg0("codex-shim").arg("hub").args(words(flags)).current_dir(folder_that_stays(environment));
    for name in PATH_VARIABLES {
        let path = environment.get(name).filter(|path| name != "CODEX_SHIM_CODEX" || is_path(path));
        command.envs(path.and_then(|path| Some((name, std::path::absolute(path).ok()?))));
    }
    command.envs(path.map(|path| ("PATH", path)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // A pipe of our launcher would otherwise stay open as long as the hub and its server.
    launch::keep_descriptors();
    launch::own_session(&mut command);
    let mut child = command.spawn().map_err(failed)?;
    if let Some(stderr) = &mut child.stderr {
        never_block(stderr).map_err(|error| failed(error.into()))?;
    }
    Ok(child)
}

/// The flags as words of a command line.
fn words(flags: &HubFlags) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    if let Some(session) = &flags.session {
        words.extend(["--session".into(), session.to_string().into()]);
    }
    if let Some(codex) = &flags.codex {
        let codex = if is_path(codex.as_os_str()) { std::path::absolute(codex).ok() } else { None }
            .unwrap_or_else(|| codex.clone());
        words.extend(["--codex".into(), codex.into()]);
    }
    if flags.no_default_socket {
        words.push("--no-default-socket".into());
    }
    words
}

/// What a hub has printed so far. Each line loses its `codex-shim: `.
pub(super) fn said_by(stderr: Option<&mut ChildStderr>) -> String {
    let mut bytes = Vec::new();
    if let Some(stderr) = stderr {
        // An end need not come: the pipe stays open as long as the hub runs.
        let _ = stderr.take(STDERR_BYTES_MAX).read_to_end(&mut bytes);
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().map(|line| line.strip_prefix("codex-shim: ").unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

/// Ends the hub and the server.
fn run_stop(stop: &StopArguments, environment: &Environment) -> Done {
    let session = stop.session.as_ref();
    let mut told = String::new();
    let running = Hub::running(session, environment)?;
    if let Some(name) = session.filter(|_| running.is_none())
        && Hub::all(session, environment)?.is_empty()
    {
        return Err(CliError::exits(NO_SUCH_SESSION, format!("no session is called `{name}`"))
            .with_remedy("see `codex-shim sessions`"));
    }
    let hubs = match running {
        Some(hub) => vec![hub],
        None => Hub::all(session, environment)?,
    };
    if !stop.yes
        && let Some(work) = known_work(&hubs)
    {
        let told = format!("{work}; stopping the server interrupts them");
        if !is_agreed(&told, "stop it? [y/N] ")? {
            return Ok(FAILED);
        }
    }
    for hub in hubs {
        if hub.found.live {
            hub.end()?;
            told.push_str(&format!("stopped the {}\n", hub.name()));
        }
        told.push_str(&stop_server(&hub.found.dir)?);
    }
    Ok(screen::print(if told.is_empty() { "no hub is running\n" } else { &told }))
}

/// Stops the server of this `CODEX_HOME` that a hub has left running; says so.
pub(super) fn stop_server_left(environment: &Environment) -> Result<String, CliError> {
    Hub::all(None, environment)?.iter().map(|hub| stop_server(&hub.found.dir)).collect()
}

/// Stops the server of a session; says so.
fn stop_server(dir: &Path) -> Result<String, CliError> {
    let Some(mut server) = process::recorded(dir) else { return Ok(String::new()) };
    let pid = server.pid;
    match server.stop() {
        Stopped::Before => Ok(String::new()),
        Stopped::Interrupted => Ok(format!("stopped the server (pid {pid})\n")),
        Stopped::Killed if server.is_alive() => {
            Err(CliError::failed(format!("the server (pid {pid}) cannot be killed")))
        }
        Stopped::Killed => Ok(format!("killed the server (pid {pid}), which did not end when told\n")),
    }
}

/// The running turns and open requests of a server, as text. Only a hub that runs and keeps a history has this information.
enum Work {
    Known(String),
    Unknown(&'static str),
}

/// The work of the servers of hubs, in words; `None` if all are idle.
fn interrupted_work(hubs: &[Hub]) -> Option<String> {
    let unknown = "no hub watches the server, so turns may be running";
    let work = hubs.iter().find_map(|hub| match hub.found.live {
        true => work_of(hub),
        false => process::recorded(&hub.found.dir).map(|_| Work::Unknown(unknown)),
    });
    work.map(|work| match work {
        Work::Known(work) => work,
        Work::Unknown(why) => why.to_owned(),
    })
}

/// What is known of such work. A hub that does not answer, or has no history, can be ended without a question, and so can a server
/// without a hub if no request is known to wait there.
fn known_work(hubs: &[Hub]) -> Option<String> {
    hubs.iter().find_map(|hub| match (hub.found.live, process::recorded(&hub.found.dir)) {
        (true, _) => match work_of(hub)? {
            Work::Known(work) => Some(work),
            Work::Unknown(_) => None,
        },
        (false, Some(_)) => counted(offline::pending(&hub.found).ok()?, "request is open", "requests are open"),
        (false, None) => None,
    })
}

/// Asks whether to interrupt work.
///
/// # Errors
///
/// Nobody can be asked.
fn is_agreed(told: &str, question: &str) -> Result<bool, CliError> {
    if !screen::can_ask() {
        return Err(CliError::failed(told).with_remedy("wait for the end, or add --yes"));
    }
    say(told);
    Ok(screen::is_agreed(question)?)
}

fn work_of(hub: &Hub) -> Option<Work> {
    let Ok(document) = client::ask(&hub.found.dir, &State, ANSWER_WAIT_MAX) else {
        return Some(Work::Unknown("the hub does not answer, so turns may be running"));
    };
    if document.index.epoch.is_none() {
        return Some(Work::Unknown("the hub keeps no history, so turns may be running"));
    }
    let running = document.threads.iter().filter(|thread| thread.runs()).count() as u64;
    let turns = counted(running, "turn is running", "turns are running");
    let requests = counted(document.pending_requests, "request is open", "requests are open");
    let work: Vec<String> = turns.into_iter().chain(requests).collect();
    (!work.is_empty()).then(|| Work::Known(work.join(", ")))
}

/// Replaces the hub, and the server if the user says so.
fn run_restart(restart: RestartArguments, environment: &Environment) -> Done {
    let RestartArguments { flags, server, anew, yes } = restart;
    let running = Hub::running(flags.session.as_ref(), environment)?;
    if server
        && let Some((version, _)) = running.as_ref().and_then(Hub::server)
        && let Some(outlook) = Outlook::of(&version, &settings_of(&flags, environment), environment)
    {
        say(&if outlook.breaks() { outlook.report() } else { outlook.in_one_line() });
    }
    if server
        && !yes
        && let Some(work) = interrupted_work(&Hub::all(flags.session.as_ref(), environment)?)
    {
        let told = format!("{work}; replacing the server interrupts them");
        if !is_agreed(&told, "replace it? [y/N] ")? {
            return Ok(FAILED);
        }
    }
    if let Some(hub) = running {
        match (server || anew, hub.runs_with(&flags)) {
            (false, true) => match hub.hand_over() {
                Ok(()) => return Ok(screen::print(&format!("{} goes on, with all clients\n", hub.name()))),
                Err(why) => say(&format!("{why}; another hub starts, and the clients connect again")),
            },
            (false, false) => say("the hub runs with other options; another one starts, and the clients connect again"),
            (true, _) => {}
        }
        if hub.found.is_still_live() {
            hub.end()?;
        }
    }
    let mut printed = 0;
    if server {
        for hub in Hub::all(flags.session.as_ref(), environment)? {
            printed = printed.max(screen::print(&stop_server(&hub.found.dir)?));
        }
    }
    Ok(printed.max(run_start(&flags, environment)?))
}
