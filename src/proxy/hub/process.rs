//! The server process: starting it, finding it again, and stopping it.
//!
//! It is `codex app-server --listen unix://…` in a session of its own (setsid), so it outlives the hub, and a hub that starts
//! again adopts it. `server.json` in the session folder says which process it is; `server.log` has what it prints.
//!
//! The npm package's `codex` is a Node script whose child is the server. The *launcher* is the process that we started; the
//! server is the one that listens on the socket, by the word of the kernel. Both are one process if codex is the native
//! program.
//!
//! *Locking.* The caller holds the session's lock.
//!
//! *Trust.* A process is adopted or signalled only if its id and its start time are the recorded ones ([`ProcessIdentity`]).
//!
//! Nothing here speaks the protocol, and only [`ServerProcess::stop`] and [`start`] may wait, for a bounded time.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::files::{self, Access, Folder};
use crate::os::descriptors::never_block;
use crate::os::launch;
use crate::os::processes::ProcessIdentity;
use crate::os::signals::Signal;
use crate::os::sockets::connect;
use crate::relay::ServerCommand;
use crate::socket::{self, Peer, SocketError};

/// The server's socket, in the session folder.
pub const SERVER_SOCKET: &str = "server.sock";

/// The record of the server, in the session folder.
pub const SERVER_FILE: &str = "server.json";

/// The server's stdout and stderr, in the session folder.
pub const SERVER_LOG: &str = "server.log";

/// The first minor version of codex 0.x that works with a hub. Source: seen with 0.135.0; the server of 0.125.0 listens on a Unix
/// socket, but takes no WebSocket handshake there.
const MINOR_MIN: u32 = 135;

/// How long codex may take to print its version; the Node launcher is slow to start.
const VERSION_WAIT_MAX: Duration = Duration::from_secs(7);

/// How long a server may take until its socket accepts.
const LISTEN_WAIT_MAX: Duration = Duration::from_secs(15);

/// How long a server without a running turn may take to end after SIGINT; 0.169 takes 0.03 s.
const FIRST_INTERRUPT_WAIT_MAX: Duration = Duration::from_millis(300);

/// How long a server may take to end after the second SIGINT; 0.169 takes 0.1 s.
const INTERRUPT_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long the threads of a server that was killed may take to close its socket. One that is still open then is of another process.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(2);

/// How long the kernel may take to end a killed process, and a launcher to follow its server.
const KILL_WAIT_MAX: Duration = Duration::from_secs(2);

/// The pause between two looks at a process that is ending.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// How often to call [`Starting::poll`].
pub const POLL_PAUSE: Duration = Duration::from_millis(20);

/// The size from which the server's log is emptied, in bytes.
const LOG_BYTES_MAX: u64 = 8 << 20;

/// Most bytes at the end of the log that an error quotes from.
const LOG_TAIL_BYTES_MAX: u64 = 4 << 10;

/// Most characters of a quoted line.
const QUOTED_CHARS_MAX: usize = 300;

/// Most bytes of the output of `codex --version` that are read.
const VERSION_BYTES_MAX: u64 = 1 << 10;

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("start {}: {source}", .program.display())]
    Start { program: PathBuf, source: io::Error },
    /// A file of the session folder.
    #[error("{action} {}: {source}", .path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    /// The socket's path is too long, and no folder allows a shorter one.
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("{} --version {why}; run it by hand to see what is wrong", .program.display())]
    NoVersion { program: PathBuf, why: String },
    #[error("{} leads back to codex-shim; name the real codex with CODEX_SHIM_CODEX or `codex` in config.toml", .program.display())]
    IsOurselves { program: PathBuf },
    #[error(
        "{} is codex {version}; a hub needs 0.{MINOR_MIN}.0 or later: `npm install -g @openai/codex@latest`, or name \
         another codex with --codex", .program.display()
    )]
    TooOld { program: PathBuf, version: String },
    /// It exited before it listened.
    #[error("the server exited ({status}){}; see {}", quoted(.said), .log.display())]
    Ended { status: String, said: String, log: PathBuf },
    #[error("the server did not listen on its socket within {LISTEN_WAIT_MAX:?}{}; see {}", quoted(.said), .log.display())]
    Silent { said: String, log: PathBuf },
    /// The process that answers on the socket is not the one that was started.
    #[error("another process{} answers on {}; end it and start again", pid_in_words(*.pid), .socket.display())]
    Foreign { pid: Option<u32>, socket: PathBuf },
}

fn quoted(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(": {said}") }
}

fn pid_in_words(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

/// The settings of a start.
#[derive(Debug, Clone)]
pub struct StartOptions {
    /// `app-server` and its options, without `--listen`.
    pub command: ServerCommand,
    pub session_dir: PathBuf,
    /// The server's `CODEX_HOME` if that is set, as an absolute path: the server runs in another folder.
    pub codex_home: Option<PathBuf>,
    /// The server's working directory: one that stays, as the user's home.
    pub cwd: PathBuf,
    pub runtime_dir: Option<PathBuf>,
    /// The generation of this run of the server. Request ids of the server are unique within it.
    pub generation: String,
}

/// A server that listens.
#[derive(Debug)]
pub struct ServerProcess {
    pub pid: u32,
    /// When the process started, as the kernel says; see [`ProcessIdentity`].
    pub started_at: String,
    /// As `codex --version` printed it; `None` if that was not a version.
    pub version: Option<String>,
    /// The path to connect to.
    pub socket: PathBuf,
    /// When it was started, in microseconds since the Unix epoch.
    pub started_at_us: u64,
    /// Another hub has started it.
    pub adopted: bool,
    /// The generation of this run of the server, the same for each hub that has it.
    pub generation: String,
    /// The program that was started; `None` in the record of an older codex-shim.
    program: Option<ProgramFile>,
    session_dir: PathBuf,
    /// The process that this hub has started; to be reaped.
    launcher: Option<Child>,
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The server had already exited.
    Before,
    /// The server exited after the signal.
    Interrupted,
    /// It had to be killed.
    Killed,
}

/// The content of `server.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    generation: String,
    version: Option<String>,
    socket: PathBuf,
    started_at_us: u64,
    launcher: ProcessIdentity,
    /// `None` until it listens.
    server: Option<ProcessIdentity>,
    #[serde(default)]
    program: Option<ProgramFile>,
}

/// A program's file, as it was when it was started. An upgrade of codex replaces it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ProgramFile {
    path: PathBuf,
    device: u64,
    inode: u64,
    bytes: u64,
    /// Time of the last change, in seconds and nanoseconds since the Unix epoch.
    modified: (i64, i64),
}

impl ProgramFile {
    fn of(path: &Path) -> Option<ProgramFile> {
        let file = std::fs::metadata(path).ok()?;
        let modified = (file.mtime(), file.mtime_nsec());
        Some(ProgramFile { path: path.to_owned(), device: file.dev(), inode: file.ino(), bytes: file.len(), modified })
    }
}

impl Record {
    fn read(session_dir: &Path) -> Option<Record> {
        serde_json::from_slice(&files::read(&session_dir.join(SERVER_FILE)).ok()?).ok()
    }

    fn write(&self, session_dir: &Path) -> Result<(), ServerError> {
        let text = serde_json::to_vec(self).expect("BUG: plain data is JSON");
        let put = Folder::at(session_dir).and_then(|folder| folder.put(SERVER_FILE, &text));
        put.map_err(file_error("write", &session_dir.join(SERVER_FILE)))
    }
}

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ServerError {
    let path = path.to_owned();
    move |source| ServerError::File { action, path, source }
}

/// Finds the server that another hub has started in this session: it answers on its socket, and it is the process that was
/// recorded.
#[must_use]
pub fn adopt(session_dir: &Path) -> Option<ServerProcess> {
    let mut record = Record::read(session_dir)?;
    let identity = answering(&record.socket)?;
    match &record.server {
        Some(recorded) if *recorded != identity => return None,
        Some(_) => {}
        // The hub that started it ended before it listened.
        None if identity.session_leader() != Some(record.launcher.pid) => return None,
        None => {
            record.server = Some(identity.clone());
            if let Err(error) = record.write(session_dir) {
                tracing::warn!(%error, "record the adopted server");
            }
        }
    }
    Some(ServerProcess::of(record, identity, session_dir, None))
}

/// The server of the hub that has run in this process before: it is our own child, or another hub's.
pub(super) fn taken_over(session_dir: &Path, is_adopted: bool) -> Option<ServerProcess> {
    let record = Record::read(session_dir)?;
    let identity = record.server.clone()?;
    Some(ServerProcess { adopted: is_adopted, ..ServerProcess::of(record, identity, session_dir, None) })
}

/// The process that listens at this path, if it runs as our user.
fn answering(socket: &Path) -> Option<ProcessIdentity> {
    let peer = Peer::of(&connect(socket).ok()?).ok()?;
    ProcessIdentity::of(peer.pid?).filter(|_| peer.is_ours())
}

/// Starts a server. A recorded one that still runs is ended first, as it cannot be reached: call [`adopt`] before. Only that
/// may wait, as [`ServerProcess::stop`] does.
pub fn start(options: StartOptions) -> Result<Starting, ServerError> {
    end_recorded(&options.session_dir);
    let log_path = options.session_dir.join(SERVER_LOG);
    let log = files::open(&log_path, Access::Append).map_err(file_error("open", &log_path))?;
    log.set_len(0).map_err(file_error("empty", &log_path))?;
    let asking = asking_for_version(&options.command, &log)?;
    let since = Instant::now();
    Ok(Starting { options, log, log_path, since, stage: StopStage::Version(asking) })
}

/// The recorded server of a session, if the process still runs. It need not answer.
pub fn recorded(session_dir: &Path) -> Option<ServerProcess> {
    let record = Record::read(session_dir)?;
    let identity = record.server.clone().filter(ProcessIdentity::is_alive)?;
    Some(ServerProcess::of(record, identity, session_dir, None))
}

/// Ends the process of a record, if it still runs.
fn end_recorded(session_dir: &Path) {
    let Some(record) = Record::read(session_dir) else { return };
    let launcher = record.launcher.clone();
    let identity = record.server.clone().unwrap_or_else(|| launcher.clone());
    let mut left = ServerProcess::of(record, identity, session_dir, None);
    let stopped = left.stop();
    if stopped != Stopped::Before {
        tracing::warn!(pid = left.pid, ?stopped, "ended a server that did not answer on its socket");
    }
    if let Err(error) = launcher.kill_group() {
        tracing::info!(%error, "kill the launcher of the server");
    }
}

/// Starts `codex --version`.
fn asking_for_version(command: &ServerCommand, log: &File) -> Result<Asking, ServerError> {
    let failed = |source| ServerError::Start { program: command.program.clone(), source };
    let asking = ServerCommand { args: vec!["--version".into()], ..command.clone() };
    let mut process = asking.to_process(&[]);
    process.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
    process.stderr(log.try_clone().map_err(failed)?);
    let mut child = process.spawn().map_err(failed)?;
    let output = child.stdout.take().expect("BUG: the stream was requested as a pipe");
    never_block(&output).map_err(|error| failed(error.into()))?;
    Ok(Asking { child, output })
}

/// A server that is being started. Dropping it kills the process.
#[derive(Debug)]
#[must_use = "the server is killed if nobody polls"]
pub struct Starting {
    options: StartOptions,
    log: File,
    log_path: PathBuf,
    /// When this stage began.
    since: Instant,
    stage: StopStage,
}

#[derive(Debug)]
enum StopStage {
    /// `codex --version` runs.
    Version(Asking),
    /// The server runs and does not listen yet.
    Listening { record: Box<Record>, launcher: Child },
    /// The server was handed over, or nothing is to be had any more.
    Over,
}

#[derive(Debug)]
struct Asking {
    child: Child,
    output: ChildStdout,
}

impl Starting {
    /// Goes on with the start without waiting; the server, once it listens. Call it every [`POLL_PAUSE`] or so until then or
    /// until it fails, and no longer.
    pub fn poll(&mut self) -> Result<Option<ServerProcess>, ServerError> {
        if let StopStage::Version(asking) = &mut self.stage {
            let program = &self.options.command.program;
            let Some(version) = asking.poll(program, self.since)? else { return Ok(None) };
            self.stage = StopStage::Over;
            self.stage = self.spawn(version)?;
            self.since = Instant::now();
        }
        let StopStage::Listening { record, launcher } = &mut self.stage else { return Ok(None) };
        // Its exit is looked at first: a server that cannot have the socket ends while another one answers there.
        if let Ok(Some(status)) = launcher.try_wait() {
            let said = said_last(&self.log);
            self.stage = StopStage::Over;
            return Err(ServerError::Ended { status: status.to_string(), said, log: self.log_path.clone() });
        }
        let Some(identity) = answering(&record.socket) else {
            if self.since.elapsed() < LISTEN_WAIT_MAX {
                return Ok(None);
            }
            return Err(ServerError::Silent { said: said_last(&self.log), log: self.log_path.clone() });
        };
        if identity.session_leader() != Some(record.launcher.pid) {
            return Err(ServerError::Foreign { pid: Some(identity.pid), socket: record.socket.clone() });
        }
        let record = Record { server: Some(identity.clone()), ..Record::clone(record) };
        record.write(&self.options.session_dir)?;
        let launcher = match std::mem::replace(&mut self.stage, StopStage::Over) {
            StopStage::Listening { launcher, .. } => Some(launcher),
            StopStage::Version(_) | StopStage::Over => None,
        };
        Ok(Some(ServerProcess::of(record, identity, &self.options.session_dir, launcher)))
    }

    /// Starts the server, and records its launcher.
    fn spawn(&self, version: Option<String>) -> Result<StopStage, ServerError> {
        let options = &self.options;
        let failed = |source| ServerError::Start { program: options.command.program.clone(), source };
        let socket = socket_path(&options.session_dir, options.runtime_dir.as_deref())?;
        let mut url = OsString::from("unix://");
        url.push(&socket);
        let mut process = options.command.to_process(&[]);
        process.arg("--listen").arg(url).current_dir(&options.cwd);
        process.envs(options.codex_home.iter().map(|home| ("CODEX_HOME", home)));
        process.stdin(Stdio::null());
        process.stdout(self.log.try_clone().map_err(failed)?).stderr(self.log.try_clone().map_err(failed)?);
        launch::own_session(&mut process);
        let mut launcher = process.spawn().map_err(failed)?;
        let identity = ProcessIdentity::of(launcher.id());
        let record = Record {
            generation: options.generation.clone(),
            version,
            socket,
            started_at_us: now_us(),
            // If it has exited already, that is noticed next.
            launcher: identity.unwrap_or(ProcessIdentity { pid: launcher.id(), started: String::new() }),
            server: None,
            program: ProgramFile::of(&options.command.program),
        };
        if let Err(error) = record.write(&options.session_dir) {
            kill_group_of(&mut launcher);
            return Err(error);
        }
        Ok(StopStage::Listening { record: Box::new(record), launcher })
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        match &mut self.stage {
            StopStage::Version(Asking { child, .. }) | StopStage::Listening { launcher: child, .. } => {
                kill_group_of(child)
            }
            StopStage::Over => {}
        }
    }
}

/// Kills a child, which leads its process group, and reaps it.
fn kill_group_of(child: &mut Child) {
    if let Some(identity) = ProcessIdentity::of(child.id())
        && let Err(error) = identity.kill_group()
    {
        tracing::info!(%error, "kill a process of codex");
    }
    let _ = child.kill();
    let _ = child.wait();
}

impl Asking {
    /// The version, once it was printed; `Some(None)` if the output is not a version.
    fn poll(&mut self, program: &Path, since: Instant) -> Result<Option<Option<String>>, ServerError> {
        let failed = |why: String| ServerError::NoVersion { program: program.to_owned(), why };
        match self.child.try_wait() {
            Ok(None) if since.elapsed() < VERSION_WAIT_MAX => Ok(None),
            Ok(None) => Err(failed(format!("did not exit within {VERSION_WAIT_MAX:?}"))),
            Ok(Some(status)) if !status.success() => Err(failed(format!("failed ({status})"))),
            Ok(Some(_)) => {
                let mut printed = Vec::new();
                // A process that was left running may hold the other end open, so the end may not come.
                let _ = (&mut self.output).take(VERSION_BYTES_MAX).read_to_end(&mut printed);
                let printed = String::from_utf8_lossy(&printed);
                if printed.starts_with("codex-shim ") {
                    return Err(ServerError::IsOurselves { program: program.to_owned() });
                }
                let version = version_in(&printed);
                match version {
                    Some(version) if is_too_old(&version) => {
                        Err(ServerError::TooOld { program: program.to_owned(), version })
                    }
                    version => Ok(Some(version)),
                }
            }
            Err(error) => Err(failed(format!("cannot be waited for: {error}"))),
        }
    }
}

/// The version in a line such as `codex-cli 0.169.0`.
fn version_in(printed: &str) -> Option<String> {
    let version = printed.lines().next()?.split_whitespace().last()?;
    numbers_of(version).map(|_| version.to_owned())
}

/// The first two numbers of a version.
fn numbers_of(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Whether this codex cannot listen on a Unix socket. 0.0.0 is a build from a checkout.
fn is_too_old(version: &str) -> bool {
    numbers_of(version).is_some_and(|(major, minor)| major == 0 && minor < MINOR_MIN) && version != "0.0.0"
}

/// The path of the server's socket: in the session folder, or a short one.
fn socket_path(session_dir: &Path, runtime_dir: Option<&Path>) -> Result<PathBuf, SocketError> {
    let path = session_dir.join(SERVER_SOCKET);
    if socket::fits(&path) {
        return Ok(path);
    }
    let name = Uuid::new_v5(&Uuid::NAMESPACE_OID, path.as_os_str().as_encoded_bytes());
    socket::short_path(runtime_dir, &format!("server-{}.sock", name.simple()))
}

/// The last line that the server printed, without colours.
fn said_last(log: &File) -> String {
    let mut tail = Vec::new();
    let mut read = || -> io::Result<()> {
        let mut log = log;
        let end = log.seek(SeekFrom::End(0))?;
        log.seek(SeekFrom::Start(end.saturating_sub(LOG_TAIL_BYTES_MAX)))?;
        log.take(LOG_TAIL_BYTES_MAX).read_to_end(&mut tail)?;
        Ok(())
    };
    if let Err(error) = read() {
        tracing::info!(%error, "read the server's log");
    }
    let text = String::from_utf8_lossy(&tail);
    let text = anstream::adapter::strip_str(&text).to_string();
    let before_trace = text.split("\nStack backtrace:").next().unwrap_or_default();
    let last = before_trace.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.unwrap_or_default().chars().take(QUOTED_CHARS_MAX).collect()
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl ServerProcess {
    fn of(record: Record, identity: ProcessIdentity, session_dir: &Path, launcher: Option<Child>) -> ServerProcess {
        ServerProcess {
            pid: identity.pid,
            started_at: identity.started,
            version: record.version,
            socket: record.socket,
            started_at_us: record.started_at_us,
            adopted: launcher.is_none(),
            generation: record.generation,
            program: record.program,
            session_dir: session_dir.to_owned(),
            launcher,
        }
    }

    /// Whether the program has been replaced since the server started. A program that is missing may be back soon.
    pub fn is_outdated(&self) -> bool {
        let now = self.program.as_ref().and_then(|before| ProgramFile::of(&before.path));
        now.is_some() && now != self.program
    }

    pub(super) fn session_dir(&self) -> &Path {
        &self.session_dir
    }

    fn identity(&self) -> ProcessIdentity {
        ProcessIdentity { pid: self.pid, started: self.started_at.clone() }
    }

    /// Whether the process runs. Reaps the one that this hub has started.
    pub fn is_alive(&mut self) -> bool {
        if let Some(launcher) = &mut self.launcher
            && !matches!(launcher.try_wait(), Ok(None))
        {
            self.launcher = None;
        }
        self.identity().is_alive()
    }

    /// Ends the server: SIGINT, a second one if a turn keeps it, and after 5 s SIGKILL to its process
    /// group. Waits until it has ended. Removes its record, and what it left of its socket.
    pub fn stop(&mut self) -> Stopped {
        let identity = self.identity();
        let stopped = if !self.is_alive() {
            Stopped::Before
        } else {
            // With a turn running or an approval open, the first signal only makes it wait for their end.
            log_failure("interrupt the server", identity.signal(Signal::INT));
            let has_ended = self.has_ended_within(FIRST_INTERRUPT_WAIT_MAX) || {
                log_failure("interrupt the server again", identity.signal(Signal::INT));
                self.has_ended_within(INTERRUPT_WAIT_MAX)
            };
            if has_ended {
                Stopped::Interrupted
            } else {
                log_failure("kill the server", identity.kill_group());
                self.has_ended_within(KILL_WAIT_MAX);
                Stopped::Killed
            }
        };
        // The launcher ends after its child; its exit status is of no interest.
        wait_until(KILL_WAIT_MAX, || !self.is_alive() && self.launcher.is_none());
        self.remove_leftovers();
        stopped
    }

    fn has_ended_within(&mut self, wait_max: Duration) -> bool {
        wait_until(wait_max, || !self.is_alive())
    }

    /// Removes the record and the socket. A server that was killed leaves its socket.
    fn remove_leftovers(&self) {
        let is_recorded = Record::read(&self.session_dir).is_some_and(|record| record.generation == self.generation);
        if !is_recorded || self.identity().is_alive() {
            return;
        }
        // The first thread of a process may be gone while others still hold its sockets, for a moment.
        if wait_until(CLOSE_WAIT_MAX, || connect(&self.socket).is_err()) {
            let _ = std::fs::remove_file(&self.socket);
        }
        let _ = std::fs::remove_file(self.session_dir.join(SERVER_FILE));
    }

    /// Empties the server's log if it has grown too large. Call it now and then.
    pub fn bound_log(&self) {
        let log = files::open(&self.session_dir.join(SERVER_LOG), Access::Write);
        // The server appends, so its next line is at the start again.
        let bound = log.and_then(|log| if log.metadata()?.len() > LOG_BYTES_MAX { log.set_len(0) } else { Ok(()) });
        log_failure("bound the server's log", bound);
    }
}

fn log_failure(action: &str, result: io::Result<()>) {
    if let Err(error) = result {
        tracing::info!(%error, "{action}");
    }
}

fn wait_until(wait_max: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if began.elapsed() >= wait_max {
            return false;
        }
        std::thread::park_timeout(LOOK_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    /// A session folder with a record whose server is `server`, listening or not.
    struct Folder {
        dir: tempfile::TempDir,
    }

    impl Folder {
        fn new() -> Folder {
            Folder { dir: tempfile::tempdir().expect("BUG: a temporary folder") }
        }

        fn record(&self, launcher: ProcessIdentity, server: Option<ProcessIdentity>) -> Record {
            let record = Record {
                generation: "0a1b2c3d4e5f".to_owned(),
                version: Some("0.169.0".to_owned()),
                socket: self.dir.path().join(SERVER_SOCKET),
                started_at_us: 17,
                launcher,
                server,
                program: None,
            };
            record.write(self.dir.path()).expect("it can be written");
            record
        }

        fn listen(&self) -> UnixListener {
            UnixListener::bind(self.dir.path().join(SERVER_SOCKET)).expect("it can be bound")
        }

        fn adopted(&self) -> Option<ServerProcess> {
            adopt(self.dir.path())
        }
    }

    fn ourselves() -> ProcessIdentity {
        ProcessIdentity::of(std::process::id()).expect("we run")
    }

    fn another() -> ProcessIdentity {
        ProcessIdentity { started: "another boot".to_owned(), ..ourselves() }
    }

    /// A process that is started as a server is.
    fn child(script: &str) -> (Child, ProcessIdentity) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped());
        launch::own_session(&mut command);
        let mut child = command.spawn().expect("sh runs");
        // The server reports when it is ready.
        let mut first = [0];
        child.stdout.as_mut().expect("it is piped").read_exact(&mut first).expect("it writes");
        let identity = ProcessIdentity::of(child.id()).expect("it runs");
        (child, identity)
    }

    #[test]
    fn recorded_process_that_answers_is_adopted() {
        let folder = Folder::new();
        assert!(folder.adopted().is_none(), "there is no record");
        folder.record(another(), Some(ourselves()));
        assert!(folder.adopted().is_none(), "nothing answers");
        let _listener = folder.listen();
        let mut server = folder.adopted().expect("it answers");
        assert!(server.adopted && server.is_alive());
        assert_eq!((server.pid, &*server.generation), (std::process::id(), "0a1b2c3d4e5f"));
        assert_eq!((server.version.as_deref(), server.started_at_us), (Some("0.169.0"), 17));
    }

    #[test]
    fn other_process_on_the_socket_is_not_adopted() {
        let folder = Folder::new();
        let _listener = folder.listen();
        folder.record(ourselves(), Some(another()));
        assert!(folder.adopted().is_none());
        std::fs::write(folder.dir.path().join(SERVER_FILE), "{").expect("a file");
        assert!(folder.adopted().is_none());
    }

    #[test]
    fn server_that_began_to_listen_without_a_hub_is_adopted() {
        let folder = Folder::new();
        let _listener = folder.listen();
        folder.record(another(), None);
        let leader = ourselves().session_leader();
        let is_leader = leader == Some(std::process::id());
        assert_eq!(folder.adopted().is_some(), is_leader, "another program has launched it");
        // In a container, the leader of this session may be outside, where it has no id for us.
        let Some(leader) = leader else { return };
        folder.record(ProcessIdentity { pid: leader, started: String::new() }, None);
        assert!(folder.adopted().is_some());
        let record = Record::read(folder.dir.path()).expect("it is there");
        assert_eq!(record.server, Some(ourselves()), "the record is complete now");
    }

    #[test]
    fn stopped_server_leaves_nothing() {
        let folder = Folder::new();
        let (mut child, identity) = child("trap 'exit 0' INT; echo; while :; do sleep 0.05; done");
        folder.record(identity.clone(), Some(identity));
        drop(folder.listen());
        let mut server = recorded(folder.dir.path()).expect("it runs");
        assert_eq!(server.stop(), Stopped::Interrupted);
        assert_eq!(std::fs::read_dir(folder.dir.path()).expect("a folder").count(), 0);
        assert!(recorded(folder.dir.path()).is_none());
        assert_eq!(server.stop(), Stopped::Before);
        child.wait().expect("it is ours");
    }

    #[test]
    fn server_that_ignores_the_signal_is_killed() {
        let folder = Folder::new();
        let (mut child, identity) = child("trap '' INT; echo; while :; do sleep 0.05; done");
        folder.record(identity.clone(), Some(identity.clone()));
        let mut server = recorded(folder.dir.path()).expect("it runs");
        assert_eq!(server.stop(), Stopped::Killed);
        assert!(!identity.is_alive());
        child.wait().expect("it is ours");
    }

    #[test]
    fn other_process_with_the_same_id_is_not_signalled() {
        let folder = Folder::new();
        let (mut child, identity) = child("echo; exec sleep 600");
        let before = ProcessIdentity { started: "before".to_owned(), ..identity.clone() };
        folder.record(before.clone(), Some(before.clone()));
        assert!(recorded(folder.dir.path()).is_none());
        end_recorded(folder.dir.path());
        before.kill_group().expect("nothing is signalled");
        assert!(identity.is_alive());
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
    }

    #[test]
    fn log_is_emptied_when_it_grows() {
        let folder = Folder::new();
        folder.record(ourselves(), Some(ourselves()));
        let server = recorded(folder.dir.path()).expect("we run");
        let log = files::open(&folder.dir.path().join(SERVER_LOG), Access::Append).expect("a file");
        for (before, after) in [(LOG_BYTES_MAX, LOG_BYTES_MAX), (LOG_BYTES_MAX + 1, 0)] {
            log.set_len(before).expect("it can be resized");
            server.bound_log();
            assert_eq!(log.metadata().expect("it is open").len(), after);
        }
    }

    #[test]
    fn last_line_before_the_trace_is_quoted() {
        let folder = Folder::new();
        let path = folder.dir.path().join(SERVER_LOG);
        std::fs::write(&path, "x\n\u{1b}[31mError: taken\u{1b}[0m\n\nStack backtrace:\n 0: <unknown>\n")
            .expect("a file");
        let log = files::open(&path, Access::Append).expect("a file");
        assert_eq!(said_last(&log), "Error: taken");
    }

    #[test]
    fn versions_are_compared() {
        let check = |printed: &str, version: Option<&str>, too_old: bool| {
            assert_eq!(version_in(printed).as_deref(), version, "{printed}");
            assert_eq!(version.is_some_and(is_too_old), too_old, "{printed}");
        };
        check("codex-cli 0.169.0\n", Some("0.169.0"), false);
        check("codex-cli 0.135.0-alpha.3", Some("0.135.0-alpha.3"), false);
        check("codex-cli 0.124.9\nmore", Some("0.124.9"), true);
        check("codex-cli 1.2.0", Some("1.2.0"), false);
        check("codex-cli 0.0.0", Some("0.0.0"), false);
        check("hello", None, false);
        check("", None, false);
    }
}
