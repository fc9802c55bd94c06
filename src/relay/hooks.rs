//! Commands of the user's that are run when something waits for them, or is done.
//!
//! Each has a thread of its own, gets JSON on its stdin, and is killed where it takes too long. What becomes of it is its own
//! affair: a failure is logged and nothing else.
//!
//! Between the relay and a command stands a keeper, a process of ours that does nothing but kill it in time. The relay may end
//! before: what was begun is then neither cut short nor left to hang for good.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use crate::launch;
use crate::store::Ledger;

/// How long a command may take. Source: the contract.
const HOOK_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long a keeper may take: it has to be started too, on a machine that is busy, and to end. What it keeps ends with it only.
const KEEPER_WAIT_MAX: Duration = Duration::from_secs(60);

/// How long one that was killed may take to be gone.
const REAP_WAIT_MAX: Duration = Duration::from_secs(1);

/// The tool of ours that is a keeper.
const KEEPER: &str = "hook-keeper";

/// What a keeper exits with where the command took too long. Source: `timeout` of the GNU coreutils.
const KILLED: i32 = 124;
/// What it exits with where the command could not be started.
const NOT_STARTED: i32 = 127;

/// Commands that run at once; what comes while so many do is logged and not run.
const HOOKS_MAX: usize = 8;

/// Stack of a thread, in bytes.
const STACK_BYTES: usize = 256 << 10;

/// What the user has set.
#[derive(Debug, Clone, Default)]
pub(super) struct Hooks {
    pub(super) on_pending: Vec<String>,
    pub(super) on_idle: Vec<String>,
    running: Arc<AtomicUsize>,
}

impl Hooks {
    pub(super) fn new(on_pending: Vec<String>, on_idle: Vec<String>) -> Hooks {
        Hooks { on_pending, on_idle, running: Arc::default() }
    }

    /// A request has waited for a while.
    pub(super) fn pending(&self, request_id: String, ledger: &Ledger, session_id: &str) {
        let ledger = ledger.clone();
        self.run(&self.on_pending, session_id, move || Some(ledger.request_blocking(request_id)?.row.to_string()));
    }

    /// No turn runs any more.
    pub(super) fn idle(&self, outcome: String, session_id: &str) {
        self.run(&self.on_idle, session_id, move || Some(outcome));
    }

    fn run(&self, command: &[String], session_id: &str, input: impl FnOnce() -> Option<String> + Send + 'static) {
        let Some((program, args)) = command.split_first() else { return };
        let (program, args, running) = (program.clone(), args.to_vec(), Arc::clone(&self.running));
        let session_id = session_id.to_owned();
        if running.fetch_add(1, Ordering::SeqCst) >= HOOKS_MAX {
            running.fetch_sub(1, Ordering::SeqCst);
            tracing::warn!(program, "a hook is not run: too many run already");
            return;
        }
        let thread = std::thread::Builder::new().name("hook".to_owned()).stack_size(STACK_BYTES);
        let on_thread = Arc::clone(&running);
        let started = thread.spawn(move || {
            if let Some(input) = input() {
                run(&program, &args, &session_id, &input);
            }
            on_thread.fetch_sub(1, Ordering::SeqCst);
        });
        if let Err(error) = started {
            running.fetch_sub(1, Ordering::SeqCst);
            tracing::warn!(%error, "a hook has no thread");
        }
    }
}

/// Has a keeper run a command, and waits until that has ended.
fn run(program: &str, args: &[String], session_id: &str, input: &str) {
    let mut keeper = Command::new(own_program());
    // Whatever we are called: under another name it would be codex.
    keeper.arg0("codex-shim").arg(KEEPER).arg("--").arg(program).args(args);
    // So that a tool of ours in it is about this session.
    keeper.env("CODEX_SHIM_SESSION", session_id).stdin(Stdio::piped());
    match run_within(&mut keeper, input, KEEPER_WAIT_MAX) {
        Came::Ended(Some(0)) => {}
        Came::Ended(Some(KILLED)) | Came::Killed => tracing::warn!(program, "a hook took too long: killed"),
        Came::Ended(Some(NOT_STARTED)) => tracing::warn!(program, "a hook cannot be started"),
        Came::Ended(status) => tracing::warn!(program, ?status, "a hook has failed"),
        Came::NotStarted(error) => tracing::warn!(%error, program, "a hook has no keeper"),
    }
}

/// The file that this process runs, also where another one has its name by now.
fn own_program() -> PathBuf {
    if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { std::env::current_exe().unwrap_or_default() }
}

/// Runs `words` with our stdin, and ends them and all of their process group where they take too long. Returns the status
/// to exit with.
#[must_use]
pub(crate) fn keep_hook(words: &[OsString]) -> i32 {
    let Some((program, args)) = words.split_first() else { return NOT_STARTED };
    match run_within(Command::new(program).args(args).stdin(Stdio::inherit()), "", HOOK_WAIT_MAX) {
        Came::Ended(status) => status.unwrap_or(1),
        Came::Killed => KILLED,
        Came::NotStarted(_) => NOT_STARTED,
    }
}

/// What came of a command.
#[derive(Debug)]
enum Came {
    /// It has ended with this status, or by a signal.
    Ended(Option<i32>),
    /// It took too long, or could not be waited for.
    Killed,
    NotStarted(io::Error),
}

/// Runs a command that says nothing, gives it a line where its stdin is a pipe, and kills its process group after `wait_max`.
#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
fn run_within(command: &mut Command, input: &str, wait_max: Duration) -> Came {
    // A group of its own, so that what it has started ends with it.
    command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    // SAFETY: the closure makes one plain system call, which is async-signal-safe, and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            launch::restore_file_size_signal();
            Ok(())
        });
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Came::NotStarted(error),
    };
    let input = child.stdin.take().map(|stdin| (stdin, format!("{input}\n")));
    let (done, ended) = sync_channel(1);
    // Written by a thread of its own: a command that reads nothing would hold up the one that kills it.
    let writer = std::thread::Builder::new().name("hook-stdin".to_owned()).stack_size(STACK_BYTES).spawn(move || {
        let _ = input.map(|(mut stdin, input)| stdin.write_all(input.as_bytes()));
    });
    let pid = child.id();
    let waiter = std::thread::Builder::new().name("hook-wait".to_owned()).stack_size(STACK_BYTES).spawn(move || {
        let _ = done.send(wait(&mut child));
    });
    // Where there is no thread to wait with it is not waited for: the other end is gone.
    let waited = if writer.is_ok() && waiter.is_ok() { wait_max } else { Duration::ZERO };
    match ended.recv_timeout(waited) {
        Ok(status) => Came::Ended(status),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
                // It has not been reaped, or its thread would have told.
                let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
            }
            // So that nobody else has to reap it.
            let _ = ended.recv_timeout(REAP_WAIT_MAX);
            Came::Killed
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
    fn a_command_gets_its_input_and_one_that_is_not_there_harms_nobody() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let file = dir.path().join("got");
        let script = format!("cat > {0}", file.display());
        let came = run_within(&mut shell(&script), "{\"a\":1}", HOOK_WAIT_MAX);
        assert!(matches!(came, Came::Ended(Some(0))), "{came:?}");
        assert_eq!(std::fs::read_to_string(&file).expect("it was written"), "{\"a\":1}\n");
        let came = run_within(&mut Command::new("/no/such/command"), "", HOOK_WAIT_MAX);
        assert!(matches!(came, Came::NotStarted(_)), "{came:?}");
        assert_eq!((keep_hook(&[]), keep_hook(&["/no/such/command".into()])), (NOT_STARTED, NOT_STARTED));
        assert_eq!(keep_hook(&["sh".into(), "-c".into(), "exit 7".into()]), 7);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_command_ignores_no_signal_because_we_do() {
        launch::ignore_file_size_signal();
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let file = dir.path().join("ignored");
        let script = format!("grep ^SigIgn: /proc/self/status > {}", file.display());
        run_within(&mut shell(&script), "", HOOK_WAIT_MAX);
        let told = std::fs::read_to_string(&file).expect("it was written");
        let ignored = told.split_whitespace().last().and_then(|mask| u64::from_str_radix(mask, 16).ok());
        assert_eq!(ignored.map(|ignored| ignored & 1 << (libc::SIGXFSZ - 1)), Some(0), "{told}");
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_all_that_it_has_started() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let pids = dir.path().join("pids");
        let script = format!("sleep 1000 & echo $$ $! > {0}.new; mv {0}.new {0}; wait", pids.display());
        // More than a pipe holds, of which it takes nothing.
        let input = "x".repeat(1 << 20);
        let came = run_within(&mut shell(&script), &input, Duration::from_secs(3));
        assert!(matches!(came, Came::Killed), "{came:?}");
        let pids = std::fs::read_to_string(&pids).expect("it began");
        for pid in pids.split_whitespace() {
            let began = std::time::Instant::now();
            let lives = || {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
            };
            while lives() {
                assert!(began.elapsed() < Duration::from_secs(60), "{pid} lives on");
                std::thread::yield_now();
            }
        }
    }
}
