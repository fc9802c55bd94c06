//! Commands of the user's that are run when something waits for them, or is done.
//!
//! Each has a thread of its own, gets JSON on its stdin, and is killed where it takes too long. What becomes of it is its own
//! affair: a failure is logged and nothing else.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use super::signals;
use crate::store::Ledger;

/// How long a command may take. Source: the contract.
const HOOK_WAIT_MAX: Duration = Duration::from_secs(10);

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
                run(&program, &args, &session_id, &input, HOOK_WAIT_MAX);
            }
            on_thread.fetch_sub(1, Ordering::SeqCst);
        });
        if let Err(error) = started {
            running.fetch_sub(1, Ordering::SeqCst);
            tracing::warn!(%error, "a hook has no thread");
        }
    }
}

#[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
fn run(program: &str, args: &[String], session_id: &str, input: &str, wait_max: Duration) {
    let mut command = Command::new(program);
    // So that a tool of ours in it is about this session.
    command
        .args(args)
        .env("CODEX_SHIM_SESSION", session_id)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A group of its own, so that what it has started ends with it.
        .process_group(0);
    // SAFETY: the closure makes one plain system call, which is async-signal-safe, and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            signals::restore_file_size_signal();
            Ok(())
        });
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return tracing::warn!(%error, program, "a hook cannot be started"),
    };
    let stdin = child.stdin.take();
    let input = format!("{input}\n");
    let (done, ended) = sync_channel(1);
    // Written by a thread of its own: a command that reads nothing would hold up the one that kills it.
    let writer = std::thread::Builder::new().name("hook-stdin".to_owned()).stack_size(STACK_BYTES).spawn(move || {
        let _ = stdin.map(|mut stdin| stdin.write_all(input.as_bytes()));
    });
    let pid = child.id();
    let waiter = std::thread::Builder::new().name("hook-wait".to_owned()).stack_size(STACK_BYTES).spawn(move || {
        let _ = done.send(wait(&mut child));
    });
    if writer.is_err() || waiter.is_err() {
        return tracing::warn!(program, "a hook has no thread to wait with");
    }
    match ended.recv_timeout(wait_max) {
        Ok(Some(0)) => {}
        Ok(status) => tracing::warn!(program, ?status, "a hook has failed"),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            tracing::warn!(program, "a hook took too long: killed");
            if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
                // It has not been reaped, or its thread would have told.
                let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

fn wait(child: &mut Child) -> Option<i32> {
    child.wait().ok()?.code()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_gets_its_input_and_one_that_is_not_there_harms_nobody() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let file = dir.path().join("got");
        let script = format!("cat > {0}; echo $CODEX_SHIM_SESSION >> {0}", file.display());
        run("sh", &["-c".to_owned(), script], "s", "{\"a\":1}", HOOK_WAIT_MAX);
        assert_eq!(std::fs::read_to_string(&file).expect("it was written"), "{\"a\":1}\ns\n");
        run("/no/such/command", &[], "s", "", HOOK_WAIT_MAX);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_command_ignores_no_signal_because_we_do() {
        signals::ignore_file_size_signal();
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let file = dir.path().join("ignored");
        let script = format!("grep ^SigIgn: /proc/self/status > {}", file.display());
        run("sh", &["-c".to_owned(), script], "s", "", HOOK_WAIT_MAX);
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
        run("sh", &["-c".to_owned(), script], "s", &input, Duration::from_secs(3));
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
