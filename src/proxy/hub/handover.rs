//! A hub's state on its way to the program that it becomes: another codex-shim, which goes on with its connections.
//!
//! The hub stops reading once no work is in progress ([`Hub::may_hand_over`]); new bytes wait in the sockets. It writes its state
//! to the other program, started as a child, and that says whether it can read it. If it cannot, the hub goes on. If it can, the hub
//! becomes that program by `exec`, with all sockets open, and gets its state back from the child, so that it is on no disk and bound
//! to no system.
//!
//! *What is lost.* Nothing that clients or the server have sent. The hub first answers all tools that wait; a call that comes
//! at that very moment gets no answer, and may have been carried out. Streams of events of the control socket end, and their tools follow from their
//! cursors.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{SendError, sync_channel};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::error::Category;
use serde_json::value::RawValue;
use signal_hook::consts::SIGCHLD;

use super::links::{HubLinks, Own};
use super::on_sockets::{Hub, Reach};
use crate::config::Settings;
use crate::engine::{ApiCallId, ApiReply, Engine};
use crate::os::descriptors::{append, inherited, never_block, retry_on_intr, share};
use crate::os::launch;
use crate::os::polling::{PollFlags, poll_one};
use crate::os::processes;
use crate::os::signals::Signals;
use crate::relay::event_loop::take_messages;
use crate::relay::{Checking, Core, CoreState};
use crate::websocket::{End, HandedEnd, HandedListener, Listener};

/// The form of the state. A program reads this one alone: a change of any type in it that an older program cannot read, or reads as
/// something else, makes another form.
const FORM: u32 = 1;

/// How long to wait until nothing is in progress.
const REST_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long the ledger may take to write its queue. The hub reads nothing in that time.
const LEDGER_WAIT_MAX: Duration = Duration::from_millis(250);

/// How long the other program may take to read the state. The hub reads nothing in that time. A busy machine needs seconds for a state of
/// many megabytes, and a pause is better than clients that have to connect again.
const READ_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long a program that cannot read the state may take to end.
const ERROR_WAIT_MAX: Duration = Duration::from_millis(200);

/// How long all of that may take. A program on a disk that hangs may not even start, nor end when it is killed.
const START_WAIT_MAX: Duration = Duration::from_millis(5_500);

/// How long the program that has taken over may take to read the state. Nobody else could go on, so it gets more time than before.
const TAKE_OVER_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long calls of the context engine are waited for. A call lost is better than clients that have to connect again.
const CONTEXT_ENGINE_WAIT_MAX: Duration = Duration::from_secs(3);

/// Bytes of one read of the state.
const READ_BYTES: usize = 1 << 20;

/// How many attempts may be disturbed. A confined program that calls in a loop could disturb each.
const DISTURBED_MAX: u32 = 20;

/// How soon to look again at what does not wake the hub: a check of the program, and the context engine.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// The other program's reply once it has read the state. The state follows.
const READ: &[u8] = b"read\n";

/// Most bytes of its error that are passed on.
const ERROR_BYTES_MAX: u64 = 4 << 10;

/// The option with the descriptor from which the state is read.
pub const TAKE_OVER: &str = "--take-over";

/// The option of the child that reads the state, keeps it, and hands it back.
pub const KEEP_STATE: &str = "--keep-state";

/// The wish to hand over.
pub(super) struct HandoverWish {
    /// The program to become.
    program: PathBuf,
    caller: ApiCallId,
    since: Duration,
    check: ProgramCheck,
    /// How often a message of another thread came in between.
    disturbed: u32,
}

impl HandoverWish {
    /// The deadline.
    fn until(&self) -> Duration {
        self.since + REST_WAIT_MAX
    }
}

/// Whether a model can change the program.
enum ProgramCheck {
    /// The revision of the guard when it began, for which it holds.
    Running((Checking, u64)),
    /// No model could, at this revision of the guard.
    Passed(u64),
}

/// The end of an attempt.
pub(super) enum Attempt {
    /// The hub goes on. The caller knows why, or the attempt is repeated.
    Stays(Box<Hub>),
    /// A signal came that ends the hub.
    Signalled(Box<Hub>),
}

/// The state of a hub: `E` is its engine, `L` has its links and `N` is what listens.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct State<E, L, N> {
    pub(super) core: CoreState<E>,
    pub(super) links: L,
    /// In the order of the entrances; `None` for one that listens at no socket now.
    pub(super) listeners: Vec<Option<N>>,
    /// An earlier hub has started the server.
    pub(super) is_adopted: bool,
}

type StateRef<'a> = State<&'a Engine, &'a HubLinks<End>, &'a Listener>;

/// As it is read.
pub(super) type StateRead = State<Engine, HubLinks<HandedEnd>, HandedListener>;

/// The state with the inherited descriptors open.
pub(super) type StateTaken = State<Engine, HubLinks<End>, Listener>;

#[derive(Serialize)]
struct Written<'a> {
    form: u32,
    shim: &'static str,
    state: StateRef<'a>,
}

#[derive(Deserialize)]
struct Unread<'a> {
    form: u32,
    shim: String,
    #[serde(borrow)]
    state: &'a RawValue,
}

fn read_state(bytes: &[u8], reading: StateReading) -> Result<StateRead, String> {
    let unread: Unread<'_> = serde_json::from_slice(bytes).map_err(|error| unreadable("a hub", &error))?;
    let Unread { form, shim, state } = unread;
    if form != FORM {
        return Err(format!("the state of a hub of codex-shim {shim} has form {form}, and this version reads {FORM}"));
    }
    let read = serde_json::from_str(state.get())
        .map_err(|error| unreadable(&format!("a hub of codex-shim {shim}"), &error))?;
    if reading == StateReading::Checked && !is_read_whole(state, &read) {
        return Err(format!(
            "the state of a hub of codex-shim {shim} has members that this version does not have, or lacks some"
        ));
    }
    Ok(read)
}

/// The position of an error in the state. The error's own text may quote values, which must not reach a log.
fn unreadable(whose: &str, error: &serde_json::Error) -> String {
    let kind = match error.classify() {
        Category::Data => "has something unknown",
        Category::Io | Category::Syntax | Category::Eof => "is damaged",
    };
    format!("the state of {whose} {kind} at byte {}", error.column())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StateReading {
    Checked,
    /// The same program has checked it.
    Again,
}

/// Whether this program has read each member of a state and added none: it writes the same state again.
fn is_read_whole(state: &RawValue, read: &StateRead) -> bool {
    let written = serde_json::from_str(state.get()).and_then(|before| Ok((before, serde_json::to_value(read)?)));
    written.is_ok_and(|(before, after): (Value, Value)| in_order(before) == in_order(after))
}

/// A copy with sorted lists: a list that comes from a map has a random order.
fn in_order(value: Value) -> Value {
    match value {
        Value::Array(elements) => {
            let mut elements: Vec<Value> = elements.into_iter().map(in_order).collect();
            elements.sort_by_cached_key(Value::to_string);
            Value::Array(elements)
        }
        Value::Object(members) => members.into_iter().map(|(name, member)| (name, in_order(member))).collect(),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => plain,
    }
}

/// Reads the state of a hub from stdin, says that it can, and hands it back on stdout.
///
/// # Errors
///
/// This program cannot go on with that state, or not with these settings.
pub fn keep_state(settings: &Settings) -> Result<(), String> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).map_err(|error| format!("the state of a hub: {error}"))?;
    if read_state(&bytes, StateReading::Checked)?.core.is_recorded() != settings.record.value {
        return Err("the setting `record` has changed, so that another record begins".to_owned());
    }
    let mut stdout = std::io::stdout().lock();
    // This fails if the hub has given up.
    let _ = stdout.write_all(READ).and_then(|()| stdout.write_all(&bytes)).and_then(|()| stdout.flush());
    Ok(())
}

/// Takes over the state that the program before has left at this descriptor, with the descriptors that it names.
pub(super) fn take_over(from: RawFd) -> Result<StateTaken, String> {
    let failed = |error: std::io::Error| format!("the state of the hub before: {error}");
    let from = inherited(from).ok_or("there is no descriptor with the state of the hub before")?;
    let bytes = read_within(&from, TAKE_OVER_WAIT_MAX).map_err(failed)?;
    let State { core, links, listeners, is_adopted } = read_state(&bytes, StateReading::Again)?;
    core.claim().map_err(|errno| failed(errno.into()))?;
    let links = links.try_map(HandedEnd::open).map_err(failed)?;
    let open = |listener: Option<HandedListener>| listener.map(HandedListener::open).transpose();
    let listeners = listeners.into_iter().map(open).collect::<std::io::Result<_>>().map_err(failed)?;
    Ok(State { core, links, listeners, is_adopted })
}

/// Reads to the end.
fn read_within(from: &OwnedFd, wait_max: Duration) -> std::io::Result<Vec<u8>> {
    let until = Instant::now() + wait_max;
    let mut bytes = Vec::new();
    loop {
        if poll_one(from, PollFlags::IN, Some(until.saturating_duration_since(Instant::now())))?.is_empty() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        bytes.reserve(READ_BYTES);
        if retry_on_intr(|| append(from, &mut bytes))? == 0 {
            return Ok(bytes);
        }
    }
}

impl Hub {
    /// A caller wants this hub to become another program.
    pub(super) fn wants_handover(&mut self, program: PathBuf, caller: ApiCallId) {
        if self.handover.is_some() {
            self.core.callers.reply(caller, ApiReply::HandsOver);
            return;
        }
        let since = self.core.clock.elapsed();
        let check = ProgramCheck::Running(self.core.begin_check_of_own_program(&program));
        self.handover = Some(HandoverWish { program, caller, since, check, disturbed: 0 });
    }

    /// Gives the wish up.
    fn refuse_handover(&mut self, caller: ApiCallId, why: String) {
        self.handover = None;
        tracing::warn!(%why, "the hub is not handed over");
        self.core.callers.reply(caller, ApiReply::NotHandedOver(why));
    }

    /// Whether it is time to hand over. Gives the wish up if that takes too long, or if a model can change the program.
    pub(super) fn may_hand_over(&mut self) -> bool {
        let Some(mut wish) = self.handover.take() else { return false };
        let checked = match &wish.check {
            ProgramCheck::Running((checking, revision)) => {
                checking.wait(Duration::ZERO).map(|checked| checked.map(|()| *revision))
            }
            ProgramCheck::Passed(revision) => Some(Ok(*revision)),
        };
        let checked = match checked {
            Some(Ok(revision)) if revision != self.core.guard_revision() => {
                wish.check = ProgramCheck::Running(self.core.begin_check_of_own_program(&wish.program));
                None
            }
            checked => checked,
        };
        let in_progress = match checked {
            Some(Err(why)) => {
                self.refuse_handover(wish.caller, why);
                return false;
            }
            Some(Ok(revision)) => {
                wish.check = ProgramCheck::Passed(revision);
                self.in_progress(wish.caller).or_else(|| self.calls_context_engine(wish.since))
            }
            None => Some("its program is being checked"),
        };
        if let Some(what) = in_progress
            && self.core.clock.elapsed() >= wish.until()
        {
            self.refuse_handover(wish.caller, format!("{what}, for {REST_WAIT_MAX:?} now"));
            return false;
        }
        self.handover = Some(wish);
        in_progress.is_none()
    }

    /// When to look again, at the latest.
    pub(super) fn handover_due(&self) -> Option<Duration> {
        let wish = self.handover.as_ref()?;
        let is_soon = match wish.check {
            ProgramCheck::Running(..) => true,
            ProgramCheck::Passed(_) => self.calls_context_engine(wish.since).is_some(),
        };
        Some(if is_soon { self.core.clock.elapsed() + LOOK_AGAIN_AFTER } else { wish.until() })
    }

    fn calls_context_engine(&self, since: Duration) -> Option<&'static str> {
        let waits = self.core.clock.elapsed() < since + CONTEXT_ENGINE_WAIT_MAX;
        (waits && self.core.recorder.calls_context_engine()).then_some("the context engine is being called")
    }

    /// Whether new clients wait until the other program accepts them: only connections keep this one from becoming it.
    pub(super) fn leaves_clients_waiting(&self) -> bool {
        self.handover.as_ref().is_some_and(|wish| self.in_progress_besides_clients(wish.caller).is_none())
    }

    /// The work that would be lost now, in words. The handover waits for its end.
    fn in_progress(&self, caller: ApiCallId) -> Option<&'static str> {
        let is_connecting = !self.arrivals.is_empty() || matches!(self.driver.links.own, Own::Connecting(_));
        self.in_progress_besides_clients(caller).or(is_connecting.then_some("a client is connecting"))
    }

    fn in_progress_besides_clients(&self, caller: ApiCallId) -> Option<&'static str> {
        if self.reach != Reach::Listening {
            Some("its server cannot be reached")
        } else if self.driver.links.iter().any(|(_, link)| link.is_held()) {
            Some("a message waits for the ledger")
        } else {
            self.core.in_progress(caller)
        }
    }

    fn state(&self) -> Option<StateRef<'_>> {
        let listeners = self.entrances.all_listeners().collect();
        let (core, links) = (self.core.state()?, &self.driver.links);
        Some(State { core, links, listeners, is_adopted: self.server.adopted })
    }

    /// Becomes the other program, unless something comes in between. All effects so far are carried out.
    pub(super) fn hand_over(mut self) -> Attempt {
        // It stays there meanwhile, so that another caller hears of it.
        let Some(HandoverWish { program, caller, .. }) = &self.handover else { return Attempt::Stays(self.into()) };
        let (program, caller) = (program.clone(), *caller);
        if !self.core.recorder.settle_ledger(LEDGER_WAIT_MAX) {
            self.refuse_handover(caller, format!("its ledger has not written everything within {LEDGER_WAIT_MAX:?}"));
            return Attempt::Stays(self.into());
        }
        let hooks_begun = self.core.hooks_begun();
        if self.hears_more() || self.in_progress(caller).is_some() {
            return self.again();
        }
        let began = Instant::now();
        let written = self.state().ok_or_else(|| "its session is not open".to_owned()).and_then(|state| {
            let written = Written { form: FORM, shim: env!("CARGO_PKG_VERSION"), state };
            serde_json::to_vec(&written).map_err(|error| format!("its state cannot be written: {error}"))
        });
        let keeper = match written.and_then(|state| StateKeeper::start_within(&program, state)) {
            Ok(keeper) => keeper,
            Err(why) => {
                self.refuse_handover(caller, why);
                return Attempt::Stays(self.into());
            }
        };
        if self.hears_more() || self.in_progress(caller).is_some() || self.core.hooks_begun() != hooks_begun {
            // The state that the other program has is old.
            keeper.dismiss();
            return self.again();
        }
        if !keeper.is_still(&program) {
            keeper.dismiss();
            self.refuse_handover(caller, format!("{} was replaced meanwhile", program.display()));
            return Attempt::Stays(self.into());
        }
        if is_ended_by(&self.core.signals) {
            keeper.dismiss();
            return Attempt::Signalled(self.into());
        }
        let ms = began.elapsed().as_millis();
        tracing::info!(ms, program = %program.display(), "the other program has read the state");
        self.core.callers.reply(caller, ApiReply::Done);
        self.become_program(&program, &keeper)
    }

    /// Goes on, and tries again soon: a few times, because clients wait during each attempt.
    fn again(mut self) -> Attempt {
        if let Some(wish) = &mut self.handover {
            wish.disturbed += 1;
            let (caller, disturbed) = (wish.caller, wish.disturbed);
            if disturbed >= DISTURBED_MAX || self.core.clock.elapsed() >= wish.until() {
                self.refuse_handover(caller, format!("{disturbed} attempts were disturbed by other work"));
            }
        }
        Attempt::Stays(self.into())
    }

    /// Takes and carries out messages of other threads. Returns whether there were any.
    fn hears_more(&mut self) -> bool {
        let (now, mut effects) = (self.core.clock.now(), Vec::new());
        let has_more = take_messages(self, now, &mut effects) | !effects.is_empty();
        self.carry_out_all(&mut effects);
        has_more
    }

    /// The point of no return. A change that a tool makes through the control socket until that ends is in the ledger.
    fn become_program(self, program: &Path, keeper: &StateKeeper) -> ! {
        let Hub { core, entrances, driver, .. } = self;
        let Core { recorder, signals, .. } = core;
        // Last, because a program that another thread starts inherits them too.
        let shared = recorder.leave().and_then(|()| {
            driver.links.share()?;
            entrances.share()?;
            share(&keeper.state)
        });
        if is_ended_by(&signals) {
            drop((entrances, driver));
            std::process::exit(0)
        }
        let error = match shared {
            Ok(()) => launch::become_program(
                program,
                arguments([TAKE_OVER.into(), keeper.state.as_raw_fd().to_string().into()]),
            ),
            Err(errno) => errno.into(),
        };
        // This is like a kill; `hub restart` starts another hub.
        tracing::error!(%error, program = %program.display(), "become another program");
        let _ = writeln!(std::io::stderr(), "codex-shim: become {}: {error}", program.display());
        drop((entrances, driver));
        std::process::exit(1)
    }
}

fn is_ended_by(signals: &Signals) -> bool {
    signals.take().into_iter().any(|signal| signal != SIGCHLD)
}

/// Our own arguments, and these.
fn arguments(more: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut own = std::env::args_os().skip(1);
    let mut arguments = Vec::new();
    while let Some(argument) = own.next() {
        if argument == TAKE_OVER {
            own.next();
        } else {
            arguments.push(argument);
        }
    }
    arguments.extend(more);
    arguments
}

/// The child that has the state and hands it back.
struct StateKeeper {
    child: Child,
    state: ChildStdout,
    /// The device and the inode of its program.
    file: (u64, u64),
}

impl StateKeeper {
    /// [`StateKeeper::start`] with a limit.
    fn start_within(program: &Path, state: Vec<u8>) -> Result<StateKeeper, String> {
        // Nothing is sent to a receiver that has gone.
        let (done, started) = sync_channel(0);
        let own = program.to_owned();
        let thread = std::thread::Builder::new().name("handover".to_owned()).spawn(move || {
            if let Err(SendError(Ok(keeper))) = done.send(StateKeeper::start(&own, state)) {
                keeper.dismiss();
            }
        });
        thread.map_err(|error| format!("start a thread: {error}"))?;
        started
            .recv_timeout(START_WAIT_MAX)
            .unwrap_or_else(|_| Err(format!("{} does not start within {START_WAIT_MAX:?}", program.display())))
    }

    /// Has the other program read the state and keep it.
    fn start(program: &Path, state: Vec<u8>) -> Result<StateKeeper, String> {
        let failed = |error: std::io::Error| format!("start {}: {error}", program.display());
        let mut command = Command::new(program);
        command.arg0("codex-shim").args(arguments([KEEP_STATE.into()]));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let file = file_of(program).map_err(failed)?;
        let mut child = command.spawn().map_err(failed)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (mut stdin, mut stdout) = stdin.zip(stdout).expect("BUG: both were requested");
        // Ends with the child at the latest.
        let write = std::thread::Builder::new().name("handover".to_owned()).spawn(move || {
            let _ = stdin.write_all(&state);
        });
        if let Err(error) = write {
            processes::end(&mut child, Duration::ZERO);
            return Err(failed(error));
        }
        match reads_within(&mut stdout, READ_WAIT_MAX) {
            // It ends once its output is read. The other program reaps it.
            Answer::Read => Ok(StateKeeper { child, state: stdout, file }),
            failed @ (Answer::Other | Answer::TooLate) => Err(said_by(child, failed, program)),
        }
    }
}

impl StateKeeper {
    /// Whether its program is the one that would be executed now.
    fn is_still(&self, program: &Path) -> bool {
        file_of(program).is_ok_and(|file| file == self.file)
    }

    /// Ends it without waiting.
    fn dismiss(self) {
        let StateKeeper { mut child, state, .. } = self;
        // If no thread starts, the closed pipe ends the child.
        drop(state);
        let thread = std::thread::Builder::new().name("handover".to_owned());
        drop(thread.spawn(move || processes::end(&mut child, Duration::ZERO)));
    }
}

/// The device and the inode of a file.
fn file_of(path: &Path) -> std::io::Result<(u64, u64)> {
    let found = std::fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// The other program's reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Read,
    /// Its output has ended, or is something else.
    Other,
    TooLate,
}

/// Waits until the other program says that it has read the state.
fn reads_within(stdout: &mut ChildStdout, wait_max: Duration) -> Answer {
    let until = Instant::now() + wait_max;
    for expected in READ {
        let found = poll_one(&stdout, PollFlags::IN, Some(until.saturating_duration_since(Instant::now())));
        if found.is_ok_and(|found| found.is_empty()) {
            return Answer::TooLate;
        }
        let mut byte = [0];
        if !stdout.read(&mut byte).is_ok_and(|read| read == 1 && byte[0] == *expected) {
            return Answer::Other;
        }
    }
    Answer::Read
}

/// Ends the child that cannot go on, and tells why.
fn said_by(mut child: Child, answer: Answer, program: &Path) -> String {
    let program = program.display();
    if answer == Answer::TooLate {
        processes::end(&mut child, Duration::ZERO);
        return format!("{program} has not read the state of this hub within {READ_WAIT_MAX:?}");
    }
    // It may say why before it ends.
    processes::end(&mut child, ERROR_WAIT_MAX);
    let mut said = Vec::new();
    if let Some(stderr) = &mut child.stderr {
        // A process that it has started may have it open too.
        let _ = never_block(&*stderr);
        let _ = stderr.take(ERROR_BYTES_MAX).read_to_end(&mut said);
    }
    let said = String::from_utf8_lossy(&said);
    match said.trim().trim_start_matches("codex-shim: ") {
        "" => format!("{program} cannot go on with the state of this hub"),
        said => said.to_owned(),
    }
}
