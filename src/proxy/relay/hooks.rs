//! Hooks: the user's commands that run when a request is pending, the session is idle or a turn has stalled.
//!
//! Each hook has its own thread, gets JSON on stdin, and is killed if it takes too long. A failed hook is logged and
//! has no other effect.
//!
//! A supervisor process of ours runs each hook and kills it in time. Thus a hook that was started completes, but never
//! hangs forever, even if the relay ends first.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::deciders::Use;
use super::guard::Guard;
use crate::control::with_thread;
use crate::os::launch;
use crate::os::processes::{self, Pid};
use crate::os::signals::Signal;
use crate::store::Ledger;

/// Time limit of a hook. Source: the contract.
const HOOK_WAIT_MAX: Duration = Duration::from_secs(10);

/// Time limit of a supervisor, which has to start and end on a busy machine too. Its hook ends no later than it does.
const SUPERVISOR_WAIT_MAX: Duration = Duration::from_secs(60);

/// How long a killed process may take to end.
const REAP_WAIT_MAX: Duration = Duration::from_secs(1);

/// The hidden subcommand that supervises a hook.
const SUPERVISOR: &str = "hook-supervisor";

/// Exit status of a supervisor whose hook took too long. Source: `timeout` of the GNU coreutils.
const KILLED: i32 = 124;
/// Exit status of a supervisor whose hook could not be started.
const NOT_STARTED: i32 = 127;

/// Limit of hooks that run at once; further ones are logged and not run.
const HOOKS_MAX: usize = 8;

const STACK_BYTES: usize = 256 << 10;

/// The user's hooks.
#[derive(Debug, Clone)]
pub(super) struct Hooks {
    pub(super) on_pending: Vec<String>,
    pub(super) on_idle: Vec<String>,
    runner: HookRunner,
}

impl Hooks {
    pub(super) fn new(on_pending: Vec<String>, on_idle: Vec<String>, guard: Guard) -> Hooks {
        Hooks { on_pending, on_idle, runner: HookRunner { running: Arc::default(), starting: Arc::default(), guard } }
    }

    /// How many have begun to start.
    pub(super) fn begun(&self) -> u64 {
        self.runner.starting.begun.load(Ordering::SeqCst)
    }

    /// Whether a hook does not run yet or has not got its input.
    pub(super) fn are_starting(&self) -> bool {
        self.runner.starting.now.load(Ordering::SeqCst) > 0
    }

    /// Runs the hooks that are not triggered here.
    pub(super) fn runner(&self) -> HookRunner {
        self.runner.clone()
    }

    /// Runs `on_pending`: a request has been pending for a while.
    pub(super) fn pending(&self, request_id: String, ledger: &Ledger, (session_id, dir): (&str, Option<PathBuf>)) {
        let ledger = ledger.clone();
        let row = move || Some(named(json!(ledger.request_blocking(request_id)?.request), dir.as_deref()));
        self.runner.run("on_pending", &self.on_pending, session_id, row, || {});
    }

    /// Runs `on_idle`: no turn is in progress.
    pub(super) fn idle(&self, outcome: String, (session_id, dir): (&str, Option<PathBuf>)) {
        let outcome = move || Some(named(serde_json::from_str(&outcome).ok()?, dir.as_deref()));
        self.runner.run("on_idle", &self.on_idle, session_id, outcome, || {});
    }
}

/// The input of a hook, with who its thread is.
pub(super) fn named(document: Value, session_dir: Option<&Path>) -> String {
    with_thread(document, session_dir).to_string()
}

/// Starts hooks, a limited number at the same time.
#[derive(Debug, Clone)]
pub(super) struct HookRunner {
    running: Arc<AtomicUsize>,
    /// Those that do not run yet, or have not got their input.
    starting: Arc<Starts>,
    guard: Guard,
}

/// How many hooks are starting now, and have begun to so far.
#[derive(Debug, Default)]
struct Starts {
    now: AtomicUsize,
    begun: AtomicU64,
}

/// A hook that starts, until this is dropped.
#[derive(Debug)]
struct Starting(Arc<Starts>);

impl Starting {
    fn new(starts: &Arc<Starts>) -> Starting {
        starts.now.fetch_add(1, Ordering::SeqCst);
        starts.begun.fetch_add(1, Ordering::SeqCst);
        Starting(Arc::clone(starts))
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

impl HookRunner {
    /// Runs the command of the hook `name` on a thread of its own; nothing happens if it is empty, or in the reach of a model.
    /// `starts` is called once it counts as starting.
    pub(super) fn run(
        &self,
        name: &'static str,
        command: &[String],
        session_id: &str,
        input: impl FnOnce() -> Option<String> + Send + 'static,
        starts: impl FnOnce(),
    ) {
        let Some((program, args)) = command.split_first() else { return };
        let (program, args, running) = (program.clone(), args.to_vec(), Arc::clone(&self.running));
        let wanted = Use::command(name, command);
        let session_id = session_id.to_owned();
        if running.fetch_add(1, Ordering::SeqCst) >= HOOKS_MAX {
            running.fetch_sub(1, Ordering::SeqCst);
            tracing::warn!(program, "too many hooks run: this one is skipped");
            return;
        }
        let thread = std::thread::Builder::new().name("hook".to_owned()).stack_size(STACK_BYTES);
        let (on_thread, guard, starting) = (Arc::clone(&running), self.guard.clone(), Starting::new(&self.starting));
        starts();
        let started = thread.spawn(move || {
            // The guard reports why not.
            if guard.check_patiently(&wanted).is_ok()
                && let Some(input) = input()
            {
                run(&program, &args, &session_id, (&input, starting));
            }
            on_thread.fetch_sub(1, Ordering::SeqCst);
        });
        if let Err(error) = started {
            running.fetch_sub(1, Ordering::SeqCst);
            tracing::warn!(%error, "start a thread for a hook");
        }
    }

    /// Runs it on this thread, beside the others and their limit. Returns whether it was allowed to; nothing else tells that it failed.
    /// `starts` is called once it counts as starting.
    pub(super) fn run_here(
        &self,
        (name, command): (&'static str, &[String]),
        session_id: &str,
        input: &str,
        starts: impl FnOnce(),
    ) -> bool {
        let Some((program, args)) = command.split_first() else { return false };
        let starting = Starting::new(&self.starting);
        starts();
        let is_allowed = self.guard.check_patiently(&Use::command(name, command)).is_ok();
        if is_allowed {
            run(program, args, session_id, (input, starting));
        }
        is_allowed
    }
}

/// Runs a hook under a supervisor and waits for it.
fn run(program: &str, args: &[String], session_id: &str, (input, starting): (&str, Starting)) {
    let mut supervisor = Command::new(processes::own_program());
    // The name decides which program we are: started as `codex`, we would be the relay.
    supervisor.arg0("codex-shim").arg(SUPERVISOR).arg("--").arg(program).args(args);
    // A codex-shim that the hook starts then uses this session by default.
    supervisor.env("CODEX_SHIM_SESSION", session_id).stdin(Stdio::piped());
    match run_within(&mut supervisor, (input, Some(starting)), SUPERVISOR_WAIT_MAX) {
        Outcome::Ended(Some(0)) => {}
        Outcome::Ended(Some(KILLED)) | Outcome::Killed => {
            tracing::warn!(program, "the hook took too long and was killed")
        }
        Outcome::Ended(Some(NOT_STARTED)) => tracing::warn!(program, "the hook cannot be started"),
        Outcome::Ended(status) => tracing::warn!(program, ?status, "the hook has failed"),
        Outcome::NotStarted(error) => tracing::warn!(%error, program, "start the hook's supervisor"),
    }
}

/// Runs `words` with our stdin, and kills its process group if it takes too long. Returns the exit status.
#[must_use]
pub fn supervise_hook(words: &[OsString]) -> i32 {
    let Some((program, args)) = words.split_first() else { return NOT_STARTED };
    match run_within(Command::new(program).args(args).stdin(Stdio::inherit()), ("", None), HOOK_WAIT_MAX) {
        Outcome::Ended(status) => status.unwrap_or(1),
        Outcome::Killed => KILLED,
        Outcome::NotStarted(_) => NOT_STARTED,
    }
}

/// The result of a hook that was run as a test.
#[derive(Debug)]
pub struct HookTried {
    pub outcome: Outcome,
    /// The end of what it wrote to stdout and stderr.
    pub output: String,
    pub took: Duration,
}

/// Most bytes of output that a test shows.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// How long to wait for the rest of the output; a child of the hook may keep the pipe open.
const OUTPUT_WAIT_MAX: Duration = Duration::from_millis(500);

/// Runs a hook with the input, the variable and the time limit that a relay gives it, and keeps its output.
pub fn try_hook(command: &[String], session_id: &str, input: &str) -> io::Result<HookTried> {
    let began = Instant::now();
    let (program, args) = command.split_first().map_or(("", &[][..]), |(program, args)| (program.as_str(), args));
    let (reader, writer) = io::pipe()?;
    let mut hook = Command::new(program);
    hook.args(args).env("CODEX_SHIM_SESSION", session_id).stdin(Stdio::piped());
    hook.stdout(writer.try_clone()?).stderr(writer);
    let (done, output) = sync_channel(1);
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&bytes);
    std::thread::Builder::new().name("hook-output".to_owned()).stack_size(STACK_BYTES).spawn(move || {
        let mut reader = reader;
        let mut piece = [0; 4_096];
        while let Ok(count @ 1..) = reader.read(&mut piece) {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let surplus = (kept.len() + count).saturating_sub(OUTPUT_BYTES_MAX).min(kept.len());
            kept.drain(..surplus);
            kept.extend_from_slice(&piece[..count]);
        }
        let _ = done.send(());
    })?;
    let outcome = run_piped_within(&mut hook, (input, None), HOOK_WAIT_MAX);
    let took = began.elapsed();
    // Its ends of the pipe.
    drop(hook);
    let _ = output.recv_timeout(OUTPUT_WAIT_MAX);
    let output = String::from_utf8_lossy(&bytes.lock().unwrap_or_else(PoisonError::into_inner)).into_owned();
    Ok(HookTried { outcome, output, took })
}

#[derive(Debug)]
pub enum Outcome {
    /// The exit status; `None` if a signal killed it.
    Ended(Option<i32>),
    /// Killed because it took too long or could not be waited for.
    Killed,
    NotStarted(io::Error),
}

/// Runs a command without output, writes its input to its stdin if that is a pipe, and kills its process group after `wait_max`.
fn run_within(command: &mut Command, input: (&str, Option<Starting>), wait_max: Duration) -> Outcome {
    run_piped_within(command.stdout(Stdio::null()).stderr(Stdio::null()), input, wait_max)
}

/// [`run_within`] with an output that the caller has set.
fn run_piped_within(command: &mut Command, (input, starting): (&str, Option<Starting>), wait_max: Duration) -> Outcome {
    // A process group of its own, so that its children die with it.
    command.process_group(0);
    launch::restore_file_size_signal(command);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Outcome::NotStarted(error),
    };
    let input = child.stdin.take().map(|stdin| (stdin, format!("{input}\n")));
    let (done, ended) = sync_channel(1);
    // On a thread of its own: a command that does not read its stdin must not block the one that kills it.
    let writer = std::thread::Builder::new().name("hook-stdin".to_owned()).stack_size(STACK_BYTES).spawn(move || {
        let _ = input.map(|(mut stdin, input)| stdin.write_all(input.as_bytes()));
        drop(starting);
    });
    let pid = Pid::from_child(&child);
    let waiter = std::thread::Builder::new().name("hook-wait".to_owned()).stack_size(STACK_BYTES).spawn(move || {
        let _ = done.send(wait(&mut child));
    });
    // Without the threads, the receive fails at once and the command is killed.
    let waited = if writer.is_ok() && waiter.is_ok() { wait_max } else { Duration::ZERO };
    match ended.recv_timeout(waited) {
        Ok(status) => Outcome::Ended(status),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            // The process is not reaped, or its thread would have sent the status.
            let _ = processes::signal_group(pid, Signal::KILL);
            // Lets the waiting thread reap it.
            let _ = ended.recv_timeout(REAP_WAIT_MAX);
            Outcome::Killed
        }
    }
}

fn wait(child: &mut Child) -> Option<i32> {
    child.wait().ok()?.code()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped());
        command
    }

    #[test]
    fn command_gets_input_and_reports_its_status() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let file = dir.path().join("got");
        let script = format!("cat > {0}", file.display());
        let outcome = run_within(&mut shell(&script), ("{\"a\":1}", None), HOOK_WAIT_MAX);
        assert!(matches!(outcome, Outcome::Ended(Some(0))), "{outcome:?}");
        assert_eq!(std::fs::read_to_string(&file).expect("it was written"), "{\"a\":1}\n");
        let outcome = run_within(&mut Command::new("/no/such/command"), ("", None), HOOK_WAIT_MAX);
        assert!(matches!(outcome, Outcome::NotStarted(_)), "{outcome:?}");
        assert_eq!((supervise_hook(&[]), supervise_hook(&["/no/such/command".into()])), (NOT_STARTED, NOT_STARTED));
        assert_eq!(supervise_hook(&["sh".into(), "-c".into(), "exit 7".into()]), 7);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn command_inherits_no_ignored_file_size_signal() {
        launch::ignore_file_size_signal();
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let file = dir.path().join("ignored");
        let script = format!("grep ^SigIgn: /proc/self/status > {}", file.display());
        run_within(&mut shell(&script), ("", None), HOOK_WAIT_MAX);
        let told = std::fs::read_to_string(&file).expect("it was written");
        let ignored = told.split_whitespace().last().and_then(|mask| u64::from_str_radix(mask, 16).ok());
        assert_eq!(ignored.map(|ignored| ignored & 1 << (libc::SIGXFSZ - 1)), Some(0), "{told}");
    }

    #[test]
    fn hung_command_dies_with_its_children() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let pids = dir.path().join("pids");
        let script = format!("sleep 1000 & echo $$ $! > {0}.new; mv {0}.new {0}; wait", pids.display());
        // More than a pipe holds; the command reads none of it.
        let input = "x".repeat(1 << 20);
        let outcome = run_within(&mut shell(&script), (&input, None), Duration::from_secs(3));
        assert!(matches!(outcome, Outcome::Killed), "{outcome:?}");
        let pids = std::fs::read_to_string(&pids).expect("it began");
        for pid in pids.split_whitespace() {
            let began = std::time::Instant::now();
            let pid = pid.parse().expect("a number");
            while processes::ProcessIdentity::of(pid).is_some() {
                assert!(began.elapsed() < Duration::from_secs(60), "{pid} lives on");
                std::thread::yield_now();
            }
        }
    }
}
