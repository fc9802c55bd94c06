//! Runs a program in a terminal of its own, and shows it in the user's as if it ran there.
//!
//! One loop forwards bytes both ways; neither side blocks the other. Output is shown before it is scanned, and not read
//! faster than the user's terminal takes it, so buffers stay bounded.
//!
//! The first process of that terminal, the leader, stands between us and the program, so that the program can be stopped and
//! continued as under any shell: the kernel does not stop an orphaned process group from its terminal, and the end of a session
//! leader hangs up on background processes. The leader prints nothing and mirrors the program: it stops when the program stops,
//! and exits with its status.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use signal_hook::consts::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTOU, SIGUSR1, SIGUSR2, SIGWINCH};

use super::replaced::Shell;
use super::startup::Startup;
use super::terminal::{Terminal, TypeAhead, received_keys};
use crate::engine::terminal::Size;
use crate::os::descriptors::{self, stderr, stdin};
use crate::os::launch;
use crate::os::polling::{PollFd, PollFlags, poll, poll_one};
use crate::os::processes::{self, Change, Pid};
use crate::os::signals::{self, Signal, Signals};
use crate::os::{Errno, terminals};

/// Size of one read, in bytes.
const READ_BYTES: usize = 64 << 10;

/// After the program's end, output of processes that it left behind ends with this much silence.
const SILENCE_AFTER_END: Duration = Duration::from_millis(50);

/// The interval at which we check whether a terminal in another process's hands is ours again: no signal reports it.
const BACKGROUND_POLL_EVERY: Duration = Duration::from_millis(200);

/// Our hidden subcommand that leads the program's terminal.
pub(super) const LEADER: &str = "terminal-leader";

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ran {
    /// Its exit status, or 128 plus the number of the signal that ended it.
    pub status: i32,
    /// Type-ahead bytes that the program did not read and that could not be returned to the user's terminal.
    pub unread_bytes: usize,
}

impl Ran {
    /// The result of a program without type-ahead.
    pub(super) fn with(status: i32) -> Ran {
        Ran { status, unread_bytes: 0 }
    }
}

/// What a program in a terminal of ours does.
#[derive(Debug, Clone, Copy)]
pub enum Happened<'a> {
    /// It wrote this, which has been shown.
    Shown(&'a [u8]),
    /// The terminal has a new size; the output after it is for this size.
    Resized(Size),
    /// The shell has become a program with this name, of which nothing has been shown yet.
    Replaced(&'a str),
}

/// Runs `words` in a terminal like `terminal`, with these additional variables, and shows it there. `seen` receives its
/// output; if it is the shell of `startup`, also that the shell has become another program.
///
/// # Errors
///
/// The program was not run.
pub fn run_in_terminal(
    words: &[OsString],
    variables: &[(&str, OsString)],
    terminal: &Terminal,
    startup: Option<&Startup>,
    seen: impl FnMut(Happened<'_>),
) -> io::Result<Ran> {
    let signals = Signals::listen(&[SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH])?;
    let (ours, theirs) = terminals::pair()?;
    terminals::set_mode(&theirs, terminal.before())?;
    if let Some(size) = terminal.size() {
        let _ = terminals::set_size(&theirs, size);
    }
    descriptors::never_block(&ours)?;
    let (unread, unread_to) = io::pipe()?;
    // Everything that may fail comes before the program starts, because on an error the caller runs it another way.
    terminal.pass_through()?;
    let leader = start_leader(words, variables, &theirs, &unread_to)?;
    drop((theirs, unread_to));
    let shell = startup.map(|startup| Shell::new(leader.id(), startup));
    let leader = Pid::from_child(&leader);
    let (typed, hung_up, is_in_background) = (Vec::new(), false, false);
    let mut show = Show { terminal, signals, ours, leader, shell, typed, hung_up, is_in_background, resized: None };
    let mut ran = show.run(seen);
    if !show.hung_up && terminal.is_ours() {
        let mut keys = received_keys(unread);
        keys.append(&mut show.typed);
        ran.unread_bytes = terminals::hand_back(keys, terminal.before());
    }
    terminal.give_back();
    Ok(ran)
}

fn start_leader(
    words: &[OsString],
    variables: &[(&str, OsString)],
    theirs: &OwnedFd,
    unread_to: &io::PipeWriter,
) -> io::Result<Child> {
    let theirs = |_: ()| -> io::Result<Stdio> { Ok(File::from(theirs.try_clone()?).into()) };
    let mut command = Command::new(std::env::current_exe()?);
    // Needs our own name: under another name we would act as codex.
    command
        .arg0("codex-shim")
        .arg(LEADER)
        .arg(format!("--unread-to={}", unread_to.as_raw_fd()))
        .arg("--")
        .args(words)
        .envs(variables.iter().map(|(name, value)| (name, value)));
    command.stdin(theirs(())?).stdout(theirs(())?);
    if stderr().is_terminal() {
        command.stderr(theirs(())?);
    }
    // The leader inherits it, but not the leader's children.
    descriptors::share(unread_to)?;
    launch::hand_down(&mut command, &[]);
    command.spawn()
}

/// A running program and its two terminals.
struct Show<'a> {
    terminal: &'a Terminal,
    signals: Signals,
    /// Our end of its terminal.
    ours: OwnedFd,
    leader: Pid,
    /// The shell that it is to be.
    shell: Option<Shell>,
    /// Keys that its terminal has not taken yet.
    typed: Vec<u8>,
    /// The user's terminal is gone.
    hung_up: bool,
    /// We run in the background of the user's terminal: the program continues, and nothing is typed to it.
    is_in_background: bool,
    /// A size that `seen` has not received yet.
    resized: Option<Size>,
}

impl Show<'_> {
    fn run(&mut self, mut seen: impl FnMut(Happened<'_>)) -> Ran {
        let mut buffer = vec![0; READ_BYTES];
        let mut unshown: Vec<u8> = Vec::new();
        let mut ended: Option<Ran> = None;
        loop {
            let look_wait = self.is_in_background.then_some(BACKGROUND_POLL_EVERY);
            let wait_max = ended.map(|_| SILENCE_AFTER_END).or(look_wait);
            let ready = self.wait(&unshown, wait_max);
            if self.is_in_background {
                self.take_terminal();
            }
            for number in self.signals.take() {
                self.signalled(number);
            }
            if ended.is_none() {
                match self.check_leader(&mut unshown) {
                    Leader::Runs => {}
                    // Readiness from before the stop may be outdated.
                    Leader::WasStopped => continue,
                    Leader::Ended(ran) => ended = Some(ran),
                }
            }
            if self.hung_up {
                return ended.unwrap_or(Ran::with(128 + SIGHUP));
            }
            if ready.typed && ended.is_none() {
                self.take_typed(&mut buffer);
            }
            if !self.typed.is_empty() {
                self.pass_typed();
            }
            self.show(&mut unshown);
            let mut read_some = false;
            // Shows what is left before it reads more.
            while unshown.is_empty() {
                match descriptors::read(&self.ours, &mut buffer) {
                    Ok(0) | Err(Errno::IO) => {
                        match ended {
                            Some(ran) => return ran,
                            // All processes have closed it, and the leader is about to end.
                            None => self.wait_for_leader(),
                        }
                        break;
                    }
                    Ok(read) => {
                        read_some = true;
                        if let Some(name) = self.shell.as_mut().and_then(Shell::replaced_by) {
                            seen(Happened::Replaced(&name));
                        }
                        unshown.extend_from_slice(&buffer[..read]);
                        self.show(&mut unshown);
                        if let Some(size) = self.resized.take() {
                            seen(Happened::Resized(size));
                        }
                        seen(Happened::Shown(&buffer[..read]));
                    }
                    Err(_) => break,
                }
                if ready.signalled || ready.typed {
                    break;
                }
                if self.anything_but_output() {
                    break;
                }
            }
            if let Some(ran) = ended
                && !read_some
                && unshown.is_empty()
                && !ready.any
            {
                return ran;
            }
        }
    }

    /// Waits for a key, a signal or output.
    fn wait(&self, unshown: &[u8], wait_max: Option<Duration>) -> Ready {
        let stdin = stdin();
        let screen = self.terminal.screen();
        let nothing = PollFlags::empty();
        let ours = if unshown.is_empty() { PollFlags::IN } else { nothing }
            | if self.typed.is_empty() { nothing } else { PollFlags::OUT };
        let keys = if self.typed.is_empty() && !self.is_in_background { PollFlags::IN } else { nothing };
        let shown = if unshown.is_empty() { nothing } else { PollFlags::OUT };
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&stdin, keys)];
        fds.push(PollFd::new(&self.ours, ours));
        if !unshown.is_empty() {
            fds.push(PollFd::new(&screen, shown));
        }
        // An error is an interruption by a signal.
        let any = poll(&mut fds, wait_max).unwrap_or(1) > 0;
        let has = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
        Ready { any: any && (has(0) || has(2) || has(3)), signalled: has(0), typed: has(1) }
    }

    /// Whether a key or a signal waits, so that heavy output does not delay it.
    fn anything_but_output(&self) -> bool {
        let stdin = stdin();
        let keys = if self.is_in_background { PollFlags::empty() } else { PollFlags::IN };
        let mut fds = [PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&stdin, keys)];
        poll(&mut fds, Some(Duration::ZERO)).is_ok_and(|ready| ready > 0)
    }

    fn take_typed(&mut self, buffer: &mut [u8]) {
        match descriptors::read(stdin(), &mut buffer[..4_096]) {
            Ok(0) | Err(Errno::IO) => self.hang_up(),
            Ok(read) => self.typed.extend_from_slice(&buffer[..read]),
            Err(_) => {}
        }
    }

    fn pass_typed(&mut self) {
        match descriptors::write(&self.ours, &self.typed) {
            Ok(written) => drop(self.typed.drain(..written)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // No process is left to read it.
            Err(_) => self.typed.clear(),
        }
    }

    /// Shows as much as the user's terminal takes.
    fn show(&mut self, unshown: &mut Vec<u8>) {
        while !unshown.is_empty() {
            match descriptors::write(self.terminal.screen(), unshown) {
                Ok(written) => drop(unshown.drain(..written)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    unshown.clear();
                    self.hang_up();
                }
            }
        }
    }

    fn hang_up(&mut self) {
        self.pass_on(Signal::HUP);
        self.hung_up = true;
    }

    fn signalled(&mut self, number: i32) {
        match number {
            SIGWINCH => self.resize(),
            SIGCONT => self.take_terminal(),
            SIGHUP => self.hang_up(),
            SIGINT => self.pass_on(Signal::INT),
            SIGQUIT => self.pass_on(Signal::QUIT),
            SIGTERM => self.pass_on(Signal::TERM),
            SIGUSR1 => self.pass_on(Signal::USR1),
            SIGUSR2 => self.pass_on(Signal::USR2),
            _ => {}
        }
    }

    /// Forwards a signal to the foreground of the program's terminal.
    fn pass_on(&self, signal: Signal) {
        if let Ok(group) = terminals::foreground(&self.ours) {
            let _ = processes::signal_group(group, signal);
        }
    }

    /// Takes the user's terminal, unless we run in its background.
    fn take_terminal(&mut self) {
        self.is_in_background = !self.terminal.is_ours();
        if !self.is_in_background {
            let _ = self.terminal.pass_through();
            self.resize();
        }
    }

    fn resize(&mut self) {
        self.resized = self.terminal.screen_size();
        if let Some(size) = self.terminal.size() {
            // The kernel sends SIGWINCH to the program.
            let _ = terminals::set_size(&self.ours, size);
        }
    }

    /// Stops when the leader has stopped, and returns its status when it has ended.
    fn check_leader(&mut self, unshown: &mut Vec<u8>) -> Leader {
        match processes::change(self.leader) {
            Ok(Some(Change::Stopped)) => {
                self.show(unshown);
                self.terminal.give_back();
                // The kernel ignores this if no process could continue us.
                let _ = signals::raise_in_group(Signal::TSTP);
                self.take_terminal();
                let _ = processes::signal(self.leader, Signal::CONT);
                Leader::WasStopped
            }
            Ok(Some(Change::Ended(status))) => Leader::Ended(Ran::with(status)),
            Ok(None) | Err(Errno::INTR) => Leader::Runs,
            // Another thread has already waited for it.
            Err(_) => Leader::Ended(Ran::with(1)),
        }
    }

    /// Waits for a signal, such as the leader's end, for a bounded time.
    fn wait_for_leader(&self) {
        let _ = poll_one(&self.signals, PollFlags::IN, Some(Duration::from_millis(20)));
    }
}

/// The state of the leader.
enum Leader {
    Runs,
    /// It was stopped, and we with it; both continue.
    WasStopped,
    Ended(Ran),
}

/// The result of [`Show::wait`].
#[derive(Debug, Clone, Copy)]
struct Ready {
    any: bool,
    signalled: bool,
    typed: bool,
}

/// The status of a process as a shell reports it.
pub(super) fn status_of(status: std::process::ExitStatus) -> Ran {
    Ran::with(status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1))
}

// The leader.

/// A shell's exit status for a command that cannot be run.
const CANNOT_RUN: i32 = 126;
/// A shell's exit status for an unknown command.
const NOT_FOUND: i32 = 127;

/// Becomes the leader of the terminal on our stdin, runs `words` in its foreground, and returns the exit status: the
/// program's, or 128 plus the number of the signal that ended it. Unread keys are written to the descriptor `unread_to`, if
/// given.
#[must_use]
pub fn lead(words: &[OsString], unread_to: Option<RawFd>) -> i32 {
    let ahead = unread_to.and_then(TypeAhead::inherited);
    let status = run_as_leader(words);
    if let Some(ahead) = ahead {
        ahead.report();
    }
    status
}

fn run_as_leader(words: &[OsString]) -> i32 {
    // Either fails only if it is already so.
    let _ = processes::begin_session();
    let _ = terminals::control(stdin());
    // It stops a background process that hands the terminal on.
    signals::ignore(SIGTTOU);
    let program = match start_program(words) {
        Ok(program) => program,
        Err(error) => return not_started(&words[0], &error),
    };
    loop {
        match processes::wait_for_change(program) {
            Ok(Some(Change::Ended(status))) => return status,
            Ok(Some(Change::Stopped)) => {
                let _ = signals::raise(Signal::STOP);
                // Our parent has continued us.
                let _ = terminals::set_foreground(stdin(), program);
                let _ = processes::signal_group(program, Signal::CONT);
            }
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => return CANNOT_RUN,
        }
    }
}

/// Starts the program in its own process group, which is in the foreground from the start.
fn start_program(words: &[OsString]) -> io::Result<Pid> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    launch::foreground_group(&mut command);
    // After the call above, which SIGTTOU must not stop.
    launch::hand_down(&mut command, &[]);
    let child = command.spawn()?;
    Ok(Pid::from_child(&child))
}

/// Prints a shell's message for a program that cannot run; returns a shell's status for it.
pub(super) fn not_started(word: &OsString, error: &io::Error) -> i32 {
    let _ = writeln!(io::stderr(), "codex-shim: {}", why_not_started(word, error));
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN }
}

/// Why a program cannot run: a name without a slash is looked up on PATH.
pub fn why_not_started(word: &OsString, error: &io::Error) -> String {
    let name = word.to_string_lossy();
    let is_looked_up = error.kind() == io::ErrorKind::NotFound && !name.contains('/');
    if is_looked_up { format!("{name} is not on PATH") } else { format!("{name}: {error}") }
}
