//! Reads fragments: runs their commands and reads their files, with a time limit and a size limit.
//!
//! Each command runs in its own process group, which is killed as a whole if it takes too long. If a command ends but
//! leaves a process running, that process is neither waited for nor killed. Stdin and stderr are `/dev/null`.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::calls::Post;
use super::permit::{Permit, Subject};
use crate::engine::{Fragment, FragmentSource, Input, Note, Token};
use crate::files;
use crate::os::descriptors::never_block;
use crate::os::keeper;
use crate::os::launch;
use crate::os::polling::{PollFlags, poll_one};
use crate::os::processes;
use crate::os::signals::Signal;

/// Time limit of a command or a file. Source: the contract.
const FRAGMENT_WAIT_MAX: Duration = Duration::from_secs(1);

/// Limit of what is read of a fragment, in bytes; far more than the model ever gets.
const READ_BYTES_MAX: u64 = 1 << 20;

/// Limit of readings in parallel; callers beyond it share the next reading.
const READINGS_MAX: usize = 8;

/// Limit of callers that wait for the next reading. Further ones get no result; the engine forwards their lines at the
/// deadline.
const WAITING_MAX: usize = 1_024;

/// How long to read the rest of a command's output after it has ended.
const LINGER: Duration = Duration::from_millis(100);

/// How often to check whether a command has ended.
const CHECK_EVERY: Duration = Duration::from_millis(10);

const CHUNK_BYTES: usize = 64 << 10;

const STACK_BYTES: usize = 256 << 10;

/// Reads fragments on threads of its own.
#[derive(Debug, Clone)]
pub struct FragmentReader {
    fragments: Arc<Vec<Fragment>>,
    permit: Permit,
    readings: Arc<Mutex<Readings>>,
}

/// The number of running readings, and the callers that wait for the next one.
#[derive(Default)]
struct Readings {
    running: usize,
    waiting: Vec<Waiter>,
}

/// A caller that wants the fragments, read in folder `cwd`.
struct Waiter {
    token: Token,
    cwd: Option<PathBuf>,
    post: Post,
}

impl fmt::Debug for Readings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readings").field("running", &self.running).finish_non_exhaustive()
    }
}

impl FragmentReader {
    #[must_use]
    pub fn new(fragments: Vec<Fragment>, permit: Permit) -> FragmentReader {
        FragmentReader { fragments: Arc::new(fragments), permit, readings: Arc::default() }
    }

    /// Reads the fragments in the folder `cwd`, or in our own, on another thread, and posts the result under `token`.
    /// Never waits.
    pub fn read(&self, token: Token, cwd: Option<PathBuf>, post: impl Fn(Input) + Send + 'static) {
        let waiter = Waiter { token, cwd, post: Box::new(post) };
        {
            let mut readings = lock(&self.readings);
            if readings.running >= READINGS_MAX {
                match readings.waiting.len() < WAITING_MAX {
                    true => readings.waiting.push(waiter),
                    false => tracing::warn!("the fragments are not read: too many callers wait"),
                }
                return;
            }
            readings.running += 1;
        }
        let (fragments, readings) = (Arc::clone(&self.fragments), Arc::clone(&self.readings));
        let permit = self.permit.clone();
        let thread = std::thread::Builder::new().name("fragments".to_owned()).stack_size(STACK_BYTES);
        let started = thread.spawn(move || {
            let mut waiting = vec![waiter];
            while let Some(Waiter { cwd, post, token: _ }) = waiting.first() {
                let states = read_all(&fragments, &permit, cwd.as_deref(), post);
                for Waiter { token, post, cwd: _ } in waiting {
                    post(Input::FragmentsRead { token, states: states.clone() });
                }
                // Callers that came meanwhile get a new reading.
                waiting = lock(&readings).next();
            }
        });
        if let Err(error) = started {
            lock(&self.readings).running -= 1;
            tracing::warn!(%error, "start a thread for the fragments");
        }
    }
}

impl Readings {
    /// The callers that share the next reading: the first that waits, and all others with the same folder. If none
    /// waits, the number of running readings decreases.
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

/// Reads all fragments in parallel; posts an event for each one that fails.
fn read_all(fragments: &[Fragment], permit: &Permit, cwd: Option<&Path>, post: &Post) -> Vec<Option<String>> {
    // Each has its own thread, which is abandoned if it hangs.
    let begun: Vec<_> = fragments
        .iter()
        .map(|fragment| {
            let (send, receive) = sync_channel(1);
            let (source, cwd) = (fragment.source.clone(), cwd.map(Path::to_owned));
            let (name, permit) = (fragment.name.clone(), permit.clone());
            let thread = std::thread::Builder::new().name("fragment".to_owned()).stack_size(STACK_BYTES);
            let started = thread.spawn(move || {
                let subject = match &source {
                    FragmentSource::Command(words) => Some(Subject::Command(words.clone())),
                    FragmentSource::File(path) => Some(Subject::File(path.clone())),
                    // The settings themselves hold it.
                    FragmentSource::Text(_) => None,
                };
                let is_permitted = subject.map_or(Ok(()), |subject| permit.check(&name, subject, cwd.as_deref()));
                drop(send.send(is_permitted.and_then(|()| read(&source, cwd.as_deref()))));
            });
            (fragment, started.map(|_| receive))
        })
        .collect();
    // Time to kill a command that has used up its limit.
    let slack = FRAGMENT_WAIT_MAX / 8;
    let late = Instant::now() + FRAGMENT_WAIT_MAX + slack;
    let states = begun.into_iter().map(|(fragment, receive)| {
        let read = match receive {
            Ok(receive) => {
                let left = late.saturating_duration_since(Instant::now());
                receive.recv_timeout(left).unwrap_or_else(|_| Err(format!("it took over {FRAGMENT_WAIT_MAX:?}")))
            }
            Err(error) => Err(format!("start a thread: {error}")),
        };
        read.map_err(|reason| {
            tracing::warn!(fragment = fragment.name, reason, "a fragment failed");
            post(Input::Noted(Box::new(Note::FragmentFailed { name: fragment.name.clone(), reason })));
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
    // `open_named` never waits for the writer of a pipe.
    let file = files::open_named(path)?;
    let mut bytes = Vec::new();
    file.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A command's output, if the command succeeds in time.
fn run(words: &[String], cwd: Option<&Path>) -> Result<String, String> {
    let Some((program, args)) = words.split_first() else { return Err("it has no program".to_owned()) };
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    if let Some(cwd) = cwd {
        command.current_dir(cwd).env("PWD", cwd);
    }
    // Safe here: this thread waits until the command has ended.
    launch::restore_file_size_signal(&mut command);
    let place = || cwd.map_or_else(String::new, |cwd| format!(" in {}", cwd.display()));
    let (mut child, mut keeper) =
        keeper::spawn(&mut command, Signal::KILL).map_err(|error| format!("start {program}{}: {error}", place()))?;
    let mut bytes = Vec::new();
    let printed = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let followed = follow(&mut child, &mut bytes);
    if !matches!(followed, Ok(CommandState::Ended(_))) {
        processes::kill_group_of(&mut child);
    }
    keeper.reaped();
    match followed {
        Ok(CommandState::Ended(status)) if status.success() => Ok(printed(bytes)),
        Ok(CommandState::Ended(status)) => Err(format!("it ended with {status}")),
        Ok(CommandState::TooMuchOutput) => Ok(printed(bytes)),
        Ok(CommandState::TimedOut) => Err(format!("it took over {FRAGMENT_WAIT_MAX:?}, and was killed")),
        Err(error) => Err(error.to_string()),
    }
}

#[derive(Debug)]
enum CommandState {
    /// The command has been reaped.
    Ended(ExitStatus),
    /// The command is running and has exceeded the size limit.
    TooMuchOutput,
    /// The command is running and has exceeded the time limit.
    TimedOut,
}

/// Collects a command's output until the command ends. A child that it leaves behind may keep the pipe open.
fn follow(child: &mut Child, bytes: &mut Vec<u8>) -> io::Result<CommandState> {
    let due = Instant::now() + FRAGMENT_WAIT_MAX;
    let mut stdout = child.stdout.take();
    if let Some(stdout) = &stdout {
        never_block(stdout)?;
    }
    let mut ended: Option<(ExitStatus, Instant)> = None;
    loop {
        // The end is checked before the pipe is read, so all of the command's own output is read.
        if ended.is_none() {
            ended = child.try_wait()?.map(|status| (status, Instant::now() + LINGER));
        }
        if let Some(pipe) = &mut stdout
            && !read_available(pipe, bytes)?
        {
            stdout = None;
        }
        let (now, is_cut) = (Instant::now(), bytes.len() as u64 >= READ_BYTES_MAX);
        match ended {
            Some((status, until)) if stdout.is_none() || is_cut || until <= now || due <= now => {
                return Ok(CommandState::Ended(status));
            }
            None if is_cut => return Ok(CommandState::TooMuchOutput),
            None if due <= now => return Ok(CommandState::TimedOut),
            Some(_) | None => {}
        }
        wait_for(stdout.as_ref(), CHECK_EVERY.min(due.saturating_duration_since(now)));
    }
}

/// Reads what is available, up to the size limit; returns whether more may follow.
fn read_available(stdout: &mut ChildStdout, bytes: &mut Vec<u8>) -> io::Result<bool> {
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
    let polled = stdout.map(|stdout| poll_one(stdout, PollFlags::IN, Some(wait_max)));
    if !matches!(polled, Some(Ok(_))) {
        std::thread::park_timeout(wait_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> FragmentSource {
        FragmentSource::Command(vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()])
    }

    #[test]
    fn commands_and_files_give_text_or_error() {
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
    fn command_runs_in_given_folder() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().canonicalize().expect("it is there");
        assert_eq!(read(&shell("pwd; printf %s $PWD"), Some(&path)), Ok(format!("{0}\n{0}", path.display())));
        let gone = read(&shell("pwd"), Some(&path.join("gone")));
        assert!(gone.as_ref().is_err_and(|why| why.starts_with("start sh in ")), "{gone:?}");
    }

    #[test]
    fn endless_output_is_cut_and_hung_command_killed() {
        assert_eq!(read(&shell("yes"), None).map(|text| text.len()), Ok(READ_BYTES_MAX as usize));
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let pid_file = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", pid_file.display());
        assert_eq!(read(&shell(&script), None), Err("it took over 1s, and was killed".to_owned()));
        let pid: u32 = std::fs::read_to_string(pid_file).expect("it was begun").trim().parse().expect("a number");
        let began = Instant::now();
        while processes::ProcessIdentity::of(pid).is_some() {
            assert!(began.elapsed() < Duration::from_secs(60), "it runs on");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    #[test]
    fn process_left_behind_does_not_delay_output() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let pid_file = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; echo hi", pid_file.display());
        assert_eq!(read(&shell(&script), None), Ok("hi\n".to_owned()));
        let pid: i32 = std::fs::read_to_string(pid_file).expect("it was begun").trim().parse().expect("a number");
        // The process left behind must still run.
        let left = processes::signal(processes::Pid::from_raw(pid).expect("a process"), Signal::KILL);
        assert_eq!(left, Ok(()));
    }

    #[test]
    fn callers_beyond_limit_share_the_next_reading() {
        let fragment = Fragment {
            name: "f".to_owned(),
            role: crate::engine::FragmentRole::Developer,
            source: shell("sleep 0.1; echo hi"),
            threads: crate::engine::FragmentThreads::All,
            bytes_max: 100,
        };
        let reader = FragmentReader::new(vec![fragment], Permit::new(|_, _, _| Ok(())));
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
