//! What fragments say now: commands are run, files are read, each for a bounded time and up to a bounded size.
//!
//! A command runs in a process group of its own, which is killed as a whole where it takes too long. What it wants of stdin it
//! does not get, and its stderr goes nowhere.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use crate::engine::{Fragment, FragmentSource, Input, Note, Token};

/// How long a command may take, or a file. Source: the contract.
const FRAGMENT_WAIT_MAX: Duration = Duration::from_secs(1);

/// Bytes of one that are looked at; far more than of any is shown.
const READ_BYTES_MAX: u64 = 1 << 20;

/// Readings at once; while so many run, others are told that nothing could be had.
const READINGS_MAX: usize = 8;

/// Stack of a thread, in bytes.
const STACK_BYTES: usize = 256 << 10;

/// Finds out what fragments say.
#[derive(Debug, Clone)]
pub struct FragmentReader {
    fragments: Arc<Vec<Fragment>>,
    running: Arc<AtomicUsize>,
}

impl FragmentReader {
    /// A reader of these.
    #[must_use]
    pub fn new(fragments: Vec<Fragment>) -> FragmentReader {
        FragmentReader { fragments: Arc::new(fragments), running: Arc::default() }
    }

    /// Has threads of their own find out what they say now, and `tell` it for those who wait under `token`. Never waits.
    pub fn read(&self, token: Token, tell: impl Fn(Input<'static>) + Send + 'static) {
        let running = Arc::clone(&self.running);
        if running.fetch_add(1, Ordering::SeqCst) >= READINGS_MAX {
            running.fetch_sub(1, Ordering::SeqCst);
            tracing::warn!("fragments are not read: too many readings run already");
            return;
        }
        let fragments = Arc::clone(&self.fragments);
        let thread = std::thread::Builder::new().name("fragments".to_owned()).stack_size(STACK_BYTES);
        let on_thread = Arc::clone(&running);
        let started = thread.spawn(move || {
            let states = read_all(&fragments, &tell);
            on_thread.fetch_sub(1, Ordering::SeqCst);
            tell(Input::FragmentsRead { token, states });
        });
        if let Err(error) = started {
            running.fetch_sub(1, Ordering::SeqCst);
            tracing::warn!(%error, "fragments have no thread");
        }
    }
}

/// What all of them say, at the same time; of those that cannot be had is told why.
fn read_all(fragments: &[Fragment], tell: &impl Fn(Input<'static>)) -> Vec<Option<String>> {
    // Each has a thread of its own that is given up where it hangs.
    let begun: Vec<_> = fragments
        .iter()
        .map(|fragment| {
            let (send, receive) = sync_channel(1);
            let source = fragment.source.clone();
            let thread = std::thread::Builder::new().name("fragment".to_owned()).stack_size(STACK_BYTES);
            let started = thread.spawn(move || drop(send.send(read(&source))));
            (fragment, started.map(|_| receive))
        })
        .collect();
    // A command that is killed has been waited for as long already.
    let slack = FRAGMENT_WAIT_MAX / 8;
    let late = std::time::Instant::now() + FRAGMENT_WAIT_MAX + slack;
    let states = begun.into_iter().map(|(fragment, receive)| {
        let read = match receive {
            Ok(receive) => {
                let left = late.saturating_duration_since(std::time::Instant::now());
                receive.recv_timeout(left).unwrap_or_else(|_| Err(format!("it took over {FRAGMENT_WAIT_MAX:?}")))
            }
            Err(error) => Err(format!("it has no thread: {error}")),
        };
        read.map_err(|reason| {
            tracing::warn!(fragment = fragment.name, reason, "a fragment");
            tell(Input::Noted(Box::new(Note::FragmentFailed { name: fragment.name.clone(), reason })));
        })
        .ok()
    });
    states.collect()
}

fn read(source: &FragmentSource) -> Result<String, String> {
    match source {
        FragmentSource::Text(text) => Ok(text.clone()),
        FragmentSource::File(path) => read_file(path).map_err(|error| format!("read {}: {error}", path.display())),
        FragmentSource::Command(words) => run(words),
    }
}

fn read_file(path: &Path) -> io::Result<String> {
    // A pipe with no writer is not waited for.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    let mut bytes = Vec::new();
    file.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What a command prints, if it ends well in time.
fn run(words: &[String]) -> Result<String, String> {
    let Some((program, args)) = words.split_first() else { return Err("it has no program".to_owned()) };
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().map_err(|error| format!("start {program}: {error}"))?;
    let group = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    let stdout = child.stdout.take();
    let (send, ended) = sync_channel(1);
    let thread = std::thread::Builder::new().name("fragment-read".to_owned()).stack_size(STACK_BYTES);
    let kill = move || {
        if let Some(group) = group {
            // It has not been reaped, or the one who does that would have told.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    };
    let reading = thread.spawn(move || {
        let mut bytes = Vec::new();
        let read = stdout.map_or(Ok(0), |stdout| stdout.take(READ_BYTES_MAX).read_to_end(&mut bytes));
        let is_cut = bytes.len() as u64 >= READ_BYTES_MAX;
        if is_cut {
            kill();
        }
        let status = child.wait();
        let _ = send.send(match (read, status) {
            (Ok(_), Ok(status)) if status.success() || is_cut => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            (Ok(_), Ok(status)) => Err(format!("it ended with {status}")),
            (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
        });
    });
    if let Err(error) = reading {
        kill();
        return Err(format!("it has no thread: {error}"));
    }
    match ended.recv_timeout(FRAGMENT_WAIT_MAX) {
        Ok(read) => read,
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            kill();
            Err(format!("it took over {FRAGMENT_WAIT_MAX:?}, and was killed"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> FragmentSource {
        FragmentSource::Command(vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()])
    }

    #[test]
    fn commands_and_files_say_what_they_say_or_why_not() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        assert_eq!(read(&shell("printf 'a\\n'")), Ok("a\n".to_owned()));
        assert_eq!(read(&shell("cat; echo b")), Ok("b\n".to_owned()));
        assert_eq!(read(&shell("echo a; exit 3")), Err("it ended with exit status: 3".to_owned()));
        let none = FragmentSource::Command(vec!["/no/such/program".to_owned()]);
        assert!(read(&none).is_err_and(|why| why.starts_with("start /no/such/program: ")));
        assert!(read(&FragmentSource::File(dir.path().join("x"))).is_err());
        assert!(read(&FragmentSource::File(dir.path().to_owned())).is_err_and(|why| why.ends_with("it is no file")));
        std::fs::write(dir.path().join("x"), "from a file").expect("a file");
        assert_eq!(read(&FragmentSource::File(dir.path().join("x"))), Ok("from a file".to_owned()));
    }

    #[test]
    fn one_that_prints_without_end_is_cut_and_one_that_hangs_is_killed_with_all_it_began() {
        assert_eq!(read(&shell("yes")).map(|text| text.len()), Ok(READ_BYTES_MAX as usize));
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let pid_file = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", pid_file.display());
        assert_eq!(read(&shell(&script)), Err("it took over 1s, and was killed".to_owned()));
        let pid: i32 = std::fs::read_to_string(pid_file).expect("it was begun").trim().parse().expect("a number");
        let pid = rustix::process::Pid::from_raw(pid).expect("a process");
        let began = std::time::Instant::now();
        while rustix::process::test_kill_process(pid).is_ok()
            && !std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
        {
            assert!(began.elapsed() < Duration::from_secs(60), "it runs on");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}
