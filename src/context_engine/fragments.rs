//! What fragments say now: commands are run, files are read, each for a bounded time and up to a bounded size.
//!
//! A command runs in a process group of its own, which is killed as a whole where it takes too long; where it ends and leaves
//! something running, that is neither waited for nor killed. What it wants of stdin it does not get, and its stderr goes nowhere.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, kill_process_group};

use super::parent::end_with_us;
use super::task::Tell;
use crate::engine::{Fragment, FragmentSource, Input, Note, Token};
use crate::files;

/// How long a command may take, or a file. Source: the contract.
const FRAGMENT_WAIT_MAX: Duration = Duration::from_secs(1);

/// Bytes of one that are looked at; far more than of any is shown.
const READ_BYTES_MAX: u64 = 1 << 20;

/// Readings at once; who comes while so many run shares the next one.
const READINGS_MAX: usize = 8;

/// Who may wait for the next reading; more are told nothing, and their lines go on in time.
const WAITING_MAX: usize = 1_024;

/// How long the rest of what a command has printed is waited for once it has ended.
const LINGER: Duration = Duration::from_millis(100);

/// How often it is looked whether a command has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Stack of a thread, in bytes.
const STACK_BYTES: usize = 256 << 10;

/// Finds out what fragments say.
#[derive(Debug, Clone)]
pub(crate) struct FragmentReader {
    fragments: Arc<Vec<Fragment>>,
    readings: Arc<Mutex<Readings>>,
}

/// What is read now, and who waits for the next time.
#[derive(Default)]
struct Readings {
    running: usize,
    waiting: Vec<Waiter>,
}

/// Who wants to know what they say, and in which folder.
struct Waiter {
    token: Token,
    cwd: Option<PathBuf>,
    tell: Tell,
}

impl fmt::Debug for Readings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readings").field("running", &self.running).finish_non_exhaustive()
    }
}

impl FragmentReader {
    /// A reader of these.
    #[must_use]
    pub(crate) fn new(fragments: Vec<Fragment>) -> FragmentReader {
        FragmentReader { fragments: Arc::new(fragments), readings: Arc::default() }
    }

    /// Has threads of their own find out what they say now in the folder `cwd`, else in our own, and `tell` it for those who
    /// wait under `token`. Never waits.
    pub(crate) fn read(&self, token: Token, cwd: Option<PathBuf>, tell: impl Fn(Input<'static>) + Send + 'static) {
        let waiter = Waiter { token, cwd, tell: Box::new(tell) };
        {
            let mut readings = lock(&self.readings);
            if readings.running >= READINGS_MAX {
                match readings.waiting.len() < WAITING_MAX {
                    true => readings.waiting.push(waiter),
                    false => tracing::warn!("fragments are not read: too many wait for it already"),
                }
                return;
            }
            readings.running += 1;
        }
        let (fragments, readings) = (Arc::clone(&self.fragments), Arc::clone(&self.readings));
        let thread = std::thread::Builder::new().name("fragments".to_owned()).stack_size(STACK_BYTES);
        let started = thread.spawn(move || {
            let mut waiting = vec![waiter];
            while let Some(Waiter { cwd, tell, token: _ }) = waiting.first() {
                let states = read_all(&fragments, cwd.as_deref(), tell);
                for Waiter { token, tell, cwd: _ } in waiting {
                    tell(Input::FragmentsRead { token, states: states.clone() });
                }
                // Who has come in the meantime wants what they say from then on.
                waiting = lock(&readings).next();
            }
        });
        if let Err(error) = started {
            lock(&self.readings).running -= 1;
            tracing::warn!(%error, "fragments have no thread");
        }
    }
}

impl Readings {
    /// Who shares the reading that follows one: the first who waits, and all who want it of the same folder. Where that is nobody,
    /// one reading less runs.
    fn next(&mut self) -> Vec<Waiter> {
        let cwd = self.waiting.first().map(|first| first.cwd.clone());
        let (next, later) =
            std::mem::take(&mut self.waiting).into_iter().partition(|waiter| Some(&waiter.cwd) == cwd.as_ref());
        self.waiting = later;
        let next: Vec<Waiter> = next;
        self.running -= usize::from(next.is_empty());
        next
    }
}

fn lock(readings: &Mutex<Readings>) -> MutexGuard<'_, Readings> {
    readings.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all of them say, at the same time; of those that cannot be had is told why.
fn read_all(fragments: &[Fragment], cwd: Option<&Path>, tell: &Tell) -> Vec<Option<String>> {
    // Each has a thread of its own that is given up where it hangs.
    let begun: Vec<_> = fragments
        .iter()
        .map(|fragment| {
            let (send, receive) = sync_channel(1);
            let (source, cwd) = (fragment.source.clone(), cwd.map(Path::to_owned));
            let thread = std::thread::Builder::new().name("fragment".to_owned()).stack_size(STACK_BYTES);
            let started = thread.spawn(move || drop(send.send(read(&source, cwd.as_deref()))));
            (fragment, started.map(|_| receive))
        })
        .collect();
    // A command that is killed has been waited for as long already.
    let slack = FRAGMENT_WAIT_MAX / 8;
    let late = Instant::now() + FRAGMENT_WAIT_MAX + slack;
    let states = begun.into_iter().map(|(fragment, receive)| {
        let read = match receive {
            Ok(receive) => {
                let left = late.saturating_duration_since(Instant::now());
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

fn read(source: &FragmentSource, cwd: Option<&Path>) -> Result<String, String> {
    match source {
        FragmentSource::Text(text) => Ok(text.clone()),
        FragmentSource::File(path) => read_file(path).map_err(|error| format!("read {}: {error}", path.display())),
        FragmentSource::Command(words) => run(words, cwd),
    }
}

fn read_file(path: &Path) -> io::Result<String> {
    // A pipe with no writer is not waited for.
    let file = files::open_named(path)?;
    let mut bytes = Vec::new();
    file.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What a command prints, if it ends well in time.
fn run(words: &[String], cwd: Option<&Path>) -> Result<String, String> {
    let Some((program, args)) = words.split_first() else { return Err("it has no program".to_owned()) };
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    if let Some(cwd) = cwd {
        command.current_dir(cwd).env("PWD", cwd);
    }
    // This thread waits for it until it has ended.
    end_with_us(&mut command);
    let place = || cwd.map_or_else(String::new, |cwd| format!(" in {}", cwd.display()));
    let mut child = command.spawn().map_err(|error| format!("start {program}{}: {error}", place()))?;
    let mut bytes = Vec::new();
    let printed = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    match follow(&mut child, &mut bytes) {
        Ok(Followed::Ended(status)) if status.success() => Ok(printed(bytes)),
        Ok(Followed::Ended(status)) => Err(format!("it ended with {status}")),
        Ok(Followed::PrintsTooMuch) => {
            kill(&mut child);
            Ok(printed(bytes))
        }
        Ok(Followed::TakesTooLong) => {
            kill(&mut child);
            Err(format!("it took over {FRAGMENT_WAIT_MAX:?}, and was killed"))
        }
        Err(error) => {
            kill(&mut child);
            Err(error.to_string())
        }
    }
}

/// What has become of a command.
#[derive(Debug)]
enum Followed {
    /// It has been reaped.
    Ended(ExitStatus),
    /// It runs, and has printed more than is looked at.
    PrintsTooMuch,
    /// It runs.
    TakesTooLong,
}

/// Takes what a command prints until it ends. Its end is that of the process: what it has left running may keep the pipe.
fn follow(child: &mut Child, bytes: &mut Vec<u8>) -> io::Result<Followed> {
    let due = Instant::now() + FRAGMENT_WAIT_MAX;
    let mut stdout = child.stdout.take();
    if let Some(stdout) = &stdout {
        rustix::io::ioctl_fionbio(stdout, true)?;
    }
    let mut ended: Option<(ExitStatus, Instant)> = None;
    loop {
        // What was printed before its end is there once the end is seen.
        if ended.is_none() {
            ended = child.try_wait()?.map(|status| (status, Instant::now() + LINGER));
        }
        if let Some(pipe) = &mut stdout
            && !read_what_is_there(pipe, bytes)?
        {
            stdout = None;
        }
        let (now, is_cut) = (Instant::now(), bytes.len() as u64 >= READ_BYTES_MAX);
        match ended {
            Some((status, until)) if stdout.is_none() || is_cut || until <= now || due <= now => {
                return Ok(Followed::Ended(status));
            }
            None if is_cut => return Ok(Followed::PrintsTooMuch),
            None if due <= now => return Ok(Followed::TakesTooLong),
            Some(_) | None => {}
        }
        wait_for(stdout.as_ref(), LOOK_AGAIN.min(due.saturating_duration_since(now)));
    }
}

/// Reads until there is nothing to be read, or more than is looked at; tells whether more may come.
fn read_what_is_there(stdout: &mut ChildStdout, bytes: &mut Vec<u8>) -> io::Result<bool> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let room = READ_BYTES_MAX.saturating_sub(bytes.len() as u64).min(CHUNK_BYTES as u64) as usize;
        if room == 0 {
            return Ok(true);
        }
        match stdout.read(&mut chunk[..room]) {
            Ok(0) => return Ok(false),
            Ok(read) => bytes.extend_from_slice(&chunk[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) => return Err(error),
        }
    }
}

fn wait_for(stdout: Option<&ChildStdout>, wait_max: Duration) {
    let timeout = Timespec { tv_sec: wait_max.as_secs() as i64, tv_nsec: i64::from(wait_max.subsec_nanos()) };
    let polled = stdout.map(|stdout| rustix::event::poll(&mut [PollFd::new(stdout, PollFlags::IN)], Some(&timeout)));
    if !matches!(polled, Some(Ok(_))) {
        std::thread::park_timeout(wait_max);
    }
}

/// Kills one that has not been reaped with all that it has started, and reaps it.
fn kill(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
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
        let read = |source: &FragmentSource| read(source, None);
        assert_eq!(read(&shell("printf 'a\\n'")), Ok("a\n".to_owned()));
        assert_eq!(read(&shell("cat; echo b")), Ok("b\n".to_owned()));
        assert_eq!(read(&shell("echo a; exit 3")), Err("it ended with exit status: 3".to_owned()));
        let none = FragmentSource::Command(vec!["/no/such/program".to_owned()]);
        assert!(read(&none).is_err_and(|why| why.starts_with("start /no/such/program: ")));
        assert!(read(&FragmentSource::File(dir.path().join("x"))).is_err());
        assert!(
            read(&FragmentSource::File(dir.path().to_owned()))
                .is_err_and(|why| why.contains("is a folder, not a regular file"))
        );
        std::fs::write(dir.path().join("x"), "from a file").expect("a file");
        assert_eq!(read(&FragmentSource::File(dir.path().join("x"))), Ok("from a file".to_owned()));
    }

    #[test]
    fn a_folder_is_where_they_say_it() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().canonicalize().expect("it is there");
        assert_eq!(read(&shell("pwd; printf %s $PWD"), Some(&path)), Ok(format!("{0}\n{0}", path.display())));
        let gone = read(&shell("pwd"), Some(&path.join("gone")));
        assert!(gone.as_ref().is_err_and(|why| why.starts_with("start sh in ")), "{gone:?}");
    }

    #[test]
    fn one_that_prints_without_end_is_cut_and_one_that_hangs_is_killed_with_all_it_began() {
        assert_eq!(read(&shell("yes"), None).map(|text| text.len()), Ok(READ_BYTES_MAX as usize));
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let pid_file = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", pid_file.display());
        assert_eq!(read(&shell(&script), None), Err("it took over 1s, and was killed".to_owned()));
        let pid: i32 = std::fs::read_to_string(pid_file).expect("it was begun").trim().parse().expect("a number");
        let pid = rustix::process::Pid::from_raw(pid).expect("a process");
        let began = Instant::now();
        while rustix::process::test_kill_process(pid).is_ok()
            && !std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
        {
            assert!(began.elapsed() < Duration::from_secs(60), "it runs on");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    #[test]
    fn one_that_leaves_something_running_has_said_what_it_has_said() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let pid_file = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; echo hi", pid_file.display());
        assert_eq!(read(&shell(&script), None), Ok("hi\n".to_owned()));
        let pid: i32 = std::fs::read_to_string(pid_file).expect("it was begun").trim().parse().expect("a number");
        // It is not ours to end.
        let left = rustix::process::kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL);
        assert_eq!(left, Ok(()));
    }

    #[test]
    fn whoever_comes_while_many_are_read_shares_the_next_reading() {
        let fragment = Fragment {
            name: "f".to_owned(),
            role: crate::engine::FragmentRole::Developer,
            source: shell("sleep 0.1; echo hi"),
            threads: crate::engine::FragmentThreads::All,
            bytes_max: 100,
        };
        let reader = FragmentReader::new(vec![fragment]);
        let (send, told) = std::sync::mpsc::sync_channel(64);
        let tokens: Vec<Token> = (1..=READINGS_MAX as Token * 3).collect();
        for token in &tokens {
            let send = send.clone();
            reader.read(*token, (token % 2 == 0).then(|| "/".into()), move |input| drop(send.send(input)));
        }
        let mut read: Vec<Token> = tokens
            .iter()
            .map(|_| match told.recv_timeout(Duration::from_secs(60)) {
                Ok(Input::FragmentsRead { token, states }) => {
                    assert_eq!(states, [Some("hi\n".to_owned())]);
                    token
                }
                other => panic!("{other:?}"),
            })
            .collect();
        read.sort_unstable();
        assert_eq!(read, tokens);
    }
}
