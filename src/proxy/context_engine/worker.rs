//! The worker thread of a context engine: starts it, calls it, and restarts it after its end.
//!
//! The calls for one thread of codex are sequential, in the order of [`super::protocol`]; those for several threads
//! run in parallel while the engine reads; the rest is queued here. Every task gets a result in time: an engine that is
//! absent or slow, or gives invalid answers, costs only its contribution. The worker never waits for the history; a
//! separate thread reads it ([`super::conversation`]).

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use super::calls::{PendingCall, Post, Reporter, Task, ThreadQueue};
use super::conversation::Conversation;
use super::conversation::{ConversationReader, Conversations};
use super::permit::{Permit, Subject};
use super::process::{Output, Process};
use super::protocol::{self, EngineInfo, TurnStart};
use super::protocol::{Abilities, Method};
use super::silence::{Silence, Wait};
use crate::engine::{Consultation, ContextEngineSettings, Input, Note};
use crate::secrets::redacted;

/// Reports a fault to the user.
type ReportFault = Box<dyn Fn(&str) + Send>;

/// Capacity of the event queue.
const EVENTS_MAX: usize = 256;

/// Limit of tracked threads; beyond it, the threads without tasks are forgotten.
const THREADS_MAX: usize = 1_024;

/// Limit of a thread's queued tasks; beyond it, the oldest is dropped.
const TASKS_MAX: usize = 32;

/// Time limit of `initialize`.
const INITIALIZE_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long an engine may read nothing of its queued input.
const NOT_READING_MAX: Duration = Duration::from_secs(10);

/// Limit of consecutive unanswered calls, each sent after the previous one was given up.
const UNANSWERED_MAX: u32 = 3;

/// The shortest and the longest delay before a restart.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

/// A run of this length resets the back-off.
const BACK_OFF_FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// How long `dispose` may take, until SIGTERM. The relay waits only a little longer.
const END_WAIT_MAX: Duration = Duration::from_millis(60);

const STACK_BYTES: usize = 1 << 20;

/// The name of the engine for its [`Permit`].
const PERMIT: &str = "context engine";

#[derive(Debug, Clone)]
pub struct WorkerSettings {
    pub engine: ContextEngineSettings,
    pub session_id: String,
    pub permit: Permit,
}

/// A handle of the worker thread.
#[derive(Debug)]
pub struct ContextEngine {
    worker: SyncSender<WorkerEvent>,
    /// How many consultations were passed.
    passed: AtomicU64,
    settled: Arc<AtomicU64>,
}

#[derive(Debug)]
enum WorkerEvent {
    /// A consultation of the relay, and when its time began.
    Consult(Box<Consultation>, Instant),
    /// Output of the engine's run with this number.
    Output(u64, Output),
    /// The engine has read a line.
    HasRead,
    /// The result of the reading with this number.
    Read(u64, Result<Conversation, String>),
    End(SyncSender<()>),
}

impl ContextEngine {
    /// Starts the worker thread, which starts the engine. Results go to `post`; `report_fault` is called once if the
    /// engine cannot be used.
    pub fn start(
        settings: WorkerSettings,
        conversations: Conversations,
        post: Post,
        report_fault: impl Fn(&str) + Send + 'static,
    ) -> io::Result<ContextEngine> {
        let (own, events) = sync_channel(EVENTS_MAX);
        let settled = Arc::new(AtomicU64::new(0));
        let of_worker = Arc::clone(&settled);
        let (to_worker, from_reader) = (own.clone(), own.clone());
        // The send fails only after the worker has ended.
        let reader =
            conversations.start(move |number, read| drop(from_reader.send(WorkerEvent::Read(number, read))))?;
        let thread = std::thread::Builder::new().name("context-engine".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || {
            let report_fault: ReportFault = Box::new(report_fault);
            Worker::new(settings, reader, post, (report_fault, of_worker), to_worker).run(&events);
        })?;
        Ok(ContextEngine { worker: own, passed: AtomicU64::new(0), settled })
    }

    /// Passes a consultation to the engine without waiting. `elapsed` is the relay's current time, to which its
    /// deadlines refer.
    ///
    /// # Errors
    ///
    /// The consultation, if the queue is full or the worker has ended.
    pub fn consult(&self, consultation: Box<Consultation>, elapsed: Duration) -> Result<(), Box<Consultation>> {
        let now = Instant::now();
        let began_at = now.checked_sub(elapsed).unwrap_or(now);
        self.passed.fetch_add(1, Ordering::SeqCst);
        match self.worker.try_send(WorkerEvent::Consult(consultation, began_at)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(event) | TrySendError::Disconnected(event)) => match event {
                WorkerEvent::Consult(consultation, _) => {
                    self.passed.fetch_sub(1, Ordering::SeqCst);
                    Err(consultation)
                }
                WorkerEvent::Output(..) | WorkerEvent::HasRead | WorkerEvent::Read(..) | WorkerEvent::End(_) => {
                    unreachable!("BUG: a failed send returns the event that was sent")
                }
            },
        }
    }

    /// Whether it runs and has calls to answer, or some that wait.
    pub fn is_calling(&self) -> bool {
        self.passed.load(Ordering::SeqCst) != self.settled.load(Ordering::SeqCst)
    }

    /// Ends the engine. The receiver gets a message or is disconnected once the engine has ended or got SIGTERM.
    #[must_use]
    pub fn end(&self) -> Receiver<()> {
        let (done, ended) = sync_channel(1);
        // If the queue is full, dropping `done` disconnects the receiver.
        drop(self.worker.try_send(WorkerEvent::End(done)));
        ended
    }
}

#[derive(Debug)]
pub(super) enum Phase {
    Down { until: Instant },
    Starting { process: Process, due: Instant },
    Ready { process: Process, can: Abilities },
}

impl Phase {
    pub(super) fn process(&mut self) -> Option<&mut Process> {
        match self {
            Phase::Starting { process, .. } | Phase::Ready { process, .. } => Some(process),
            Phase::Down { .. } => None,
        }
    }
}

pub(super) struct Worker {
    pub(super) settings: WorkerSettings,
    pub(super) reader: ConversationReader,
    pub(super) reporter: Reporter,
    report_fault: ReportFault,
    fault_reported: bool,
    own: SyncSender<WorkerEvent>,
    /// How many consultations have come.
    taken: u64,
    /// How many had come when nothing was left to do for the engine.
    settled: Arc<AtomicU64>,
    pub(super) phase: Phase,
    /// The number of the engine process.
    run: u64,
    began: Instant,
    back_off: Duration,
    pub(super) last_call: u64,
    pub(super) calls: HashMap<u64, PendingCall>,
    pub(super) threads: HashMap<String, ThreadQueue>,
    /// A counter that orders the waiting threads.
    pub(super) waited: u64,
    pub(super) last_reading: u64,
    /// The readings in progress, with their thread and task.
    pub(super) readings: HashMap<u64, (String, Task)>,
    /// Readings without a result yet, including those that no task waits for any more.
    pub(super) readings_open: usize,
    /// Consecutive unanswered calls, and when the last of them was given up.
    pub(super) unanswered: (u32, Instant),
    pub(super) silence: Silence,
}

impl Worker {
    fn new(
        settings: WorkerSettings,
        reader: ConversationReader,
        post: Post,
        (report_fault, settled): (ReportFault, Arc<AtomicU64>),
        own: SyncSender<WorkerEvent>,
    ) -> Worker {
        let now = Instant::now();
        Worker {
            settings,
            reader,
            reporter: Reporter(post),
            report_fault,
            fault_reported: false,
            own,
            taken: 0,
            settled,
            phase: Phase::Down { until: now },
            run: 0,
            began: now,
            back_off: BACK_OFF.0,
            last_call: 0,
            calls: HashMap::new(),
            threads: HashMap::new(),
            waited: 0,
            last_reading: 0,
            readings: HashMap::new(),
            readings_open: 0,
            unanswered: (0, now),
            silence: Silence::default(),
        }
    }

    fn run(mut self, events: &Receiver<WorkerEvent>) {
        let mut next = None;
        loop {
            // Events come before deadlines: an answer that has already arrived is not late.
            for event in next.take().into_iter().chain(events.try_iter().take(EVENTS_MAX)) {
                if let Some(done) = self.take_event(event) {
                    self.end();
                    let _ = done.try_send(());
                    return;
                }
            }
            self.tick();
            self.pump();
            if !self.is_calling() {
                self.settled.store(self.taken, Ordering::SeqCst);
            }
            let wait = self.next_due().map(|due| due.saturating_duration_since(Instant::now()));
            next = match wait
                .map_or_else(|| events.recv().map_err(RecvTimeoutError::from), |wait| events.recv_timeout(wait))
            {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
        }
    }

    /// Whether there is an engine that has something to do.
    fn is_calling(&self) -> bool {
        let has_tasks = || self.threads.values().any(|thread| !thread.tasks.is_empty());
        let is_down = matches!(self.phase, Phase::Down { .. });
        !is_down && (!self.calls.is_empty() || !self.readings.is_empty() || has_tasks())
    }

    /// Handles an event; returns the sender to notify if the worker must end.
    fn take_event(&mut self, event: WorkerEvent) -> Option<SyncSender<()>> {
        match event {
            WorkerEvent::Consult(consultation, began_at) => {
                self.taken += 1;
                self.take(*consultation, began_at);
            }
            WorkerEvent::Output(run, output) if run == self.run => self.handle_output(output),
            // The queue may have room again.
            WorkerEvent::Output(..) | WorkerEvent::HasRead => {}
            WorkerEvent::Read(number, read) => self.handle_reading(number, read),
            WorkerEvent::End(done) => return Some(done),
        }
        None
    }

    fn next_due(&mut self) -> Option<Instant> {
        let phase = match &self.phase {
            Phase::Down { until } => Some(*until),
            Phase::Starting { due, .. } => Some(*due),
            Phase::Ready { .. } => None,
        };
        let reads =
            self.phase.process().and_then(|process| process.stalled_since()).map(|since| since + NOT_READING_MAX);
        let calls = self.calls.values().map(|call| self.due(call));
        let reading = self.readings.values().filter_map(|(_, task)| task.due(None));
        let waiting = self.threads.values().flat_map(|thread| {
            let silent_since = thread.silent_since(self.silence.since());
            thread.tasks.iter().filter_map(move |task| task.due(silent_since))
        });
        let hung = self.silence.hung_at();
        phase.into_iter().chain(reads).chain(calls).chain(reading).chain(waiting).chain(hung).min()
    }

    /// Handles all that is due.
    fn tick(&mut self) {
        let now = Instant::now();
        match &self.phase {
            Phase::Down { until } if *until <= now => self.start(),
            Phase::Starting { due, .. } if *due <= now => self.fail("it did not answer initialize in time", "ended"),
            Phase::Down { .. } | Phase::Starting { .. } | Phase::Ready { .. } => {}
        }
        if let Some(process) = self.phase.process() {
            process.update_progress(now);
            if process.stalled_since().is_some_and(|since| since + NOT_READING_MAX <= now) {
                self.fail("it does not read its input", "not_reading");
            }
        }
        self.give_up_late_calls(now);
        self.refuse_late_tasks(now);
        if self.unanswered.0 >= UNANSWERED_MAX {
            self.fail("it did not answer three calls in a row in time", "ended");
        }
        if let Some((method, time)) = self.silence.hung(now) {
            self.fail(&format!("it has not answered {} for {} s", method.name(), time.as_secs()), "ended");
        }
    }

    fn start(&mut self) {
        self.run += 1;
        self.began = Instant::now();
        self.unanswered = (0, self.began);
        let (own, reads, run) = (self.own.clone(), self.own.clone(), self.run);
        let command = Subject::Command(self.settings.engine.command.clone());
        if let Err(why) = self.settings.permit.check(PERMIT, command, None) {
            return self.fail(&why, "ended");
        }
        // The send may block; it fails only after the worker has ended.
        let on_output = move |output| drop(own.send(WorkerEvent::Output(run, output)));
        // If the queue is full, another event wakes the worker.
        let has_read = move || drop(reads.try_send(WorkerEvent::HasRead));
        // Spawned from this thread, since the kernel kills the engine when this thread ends.
        let started = Process::start(&self.settings.engine.command, &self.settings.session_id, on_output, has_read);
        match started {
            Ok(mut process) => {
                let line = protocol::line(0, Method::Initialize, &protocol::initialize(&self.settings.session_id));
                let sent = process.send(0, line);
                self.phase = Phase::Starting { process, due: Instant::now() + INITIALIZE_WAIT_MAX };
                if sent.is_err() {
                    self.fail("it does not read its input", "not_reading");
                }
            }
            Err(error) => {
                let program = self.settings.engine.command.first().map_or("", String::as_str);
                let why = format!("start {program}: {error}");
                self.fail(&why, "ended");
            }
        }
    }

    /// Ends an engine that is unusable and schedules a restart. `outcome` is reported for its calls in flight.
    pub(super) fn fail(&mut self, why: &str, outcome: &'static str) {
        if self.began.elapsed() >= BACK_OFF_FORGOTTEN_AFTER {
            self.back_off = BACK_OFF.0;
        }
        let wait = self.back_off;
        self.back_off = (self.back_off * 2).min(BACK_OFF.1);
        let until = Instant::now() + wait;
        match std::mem::replace(&mut self.phase, Phase::Down { until }) {
            Phase::Starting { process, .. } | Phase::Ready { process, .. } => process.kill(),
            Phase::Down { .. } => {}
        }
        // Events of this run are ignored from now on.
        self.run += 1;
        self.unanswered.0 = 0;
        self.silence.ended();
        // Ahead of the turns: a relay may end as soon as they go on.
        let restart_in_ms = wait.as_millis() as u64;
        self.reporter.emit(Note::ContextEngineEnded { reason: why.to_owned(), restart_in_ms });
        for (_, call) in std::mem::take(&mut self.calls) {
            self.reporter.note(&call, 0, outcome);
            self.give_up(call);
        }
        for (_, (thread_id, task)) in std::mem::take(&mut self.readings) {
            self.reporter.refuse(&thread_id, &task, "not_running");
            self.release_thread(&thread_id);
        }
        for thread in self.threads.values_mut() {
            (thread.is_known, thread.retry_at, thread.silent_since) = (false, None, None);
        }
        tracing::warn!(why, ?wait, "the context engine has ended");
        if !std::mem::replace(&mut self.fault_reported, true) {
            (self.report_fault)(&format!("the context engine: {why}; turns go on without it, and it restarts"));
        }
    }

    /// Ends the engine.
    fn end(self) {
        match self.phase {
            Phase::Starting { process, .. } => process.kill(),
            Phase::Ready { process, can: _ } => {
                let id = self.last_call + 1;
                process.end(id, protocol::line(id, Method::Dispose, &serde_json::json!({})), END_WAIT_MAX);
            }
            Phase::Down { .. } => {}
        }
    }

    /// Queues a consultation as a task of its thread.
    fn take(&mut self, consultation: Consultation, began_at: Instant) {
        let wait = |due: Duration| Wait { queued_at: Instant::now(), due: began_at + due };
        let (thread_id, task) = match consultation {
            Consultation::Opened { thread_id } => (thread_id, Task::NewThread),
            Consultation::Assemble { token, due, thread_id, prompt, room_chars, model, tools } => {
                let turn_start = Rc::new(TurnStart { prompt, room_chars, model, tools });
                (thread_id, Task::TurnBegins { token, turn_start, wait: wait(due) })
            }
            Consultation::Compact { token, thread_id, due } => (thread_id, Task::Compaction { token, wait: wait(due) }),
            Consultation::TurnCompleted { thread_id, turn_id } => (thread_id, Task::TurnCompleted { turn_id }),
        };
        if self.threads.len() >= THREADS_MAX {
            self.threads.retain(|_, thread| thread.is_busy || !thread.tasks.is_empty());
        }
        let thread = self.threads.entry(thread_id).or_default();
        if thread.tasks.is_empty() {
            self.waited += 1;
            thread.queued_as = self.waited;
        }
        thread.tasks.push_back(task);
        let surplus = if thread.tasks.len() > TASKS_MAX { thread.tasks.pop_front() } else { None };
        if let Some(task) = surplus {
            self.reporter.answer_without(&task);
        }
    }

    fn handle_output(&mut self, output: Output) {
        match output {
            Output::Answer { id: 0, answer, bytes: _ } if matches!(self.phase, Phase::Starting { .. }) => {
                self.silence.answered(0, Instant::now());
                match answer.and_then(|result| protocol::read_info(&result)) {
                    Ok(read_info) => self.is_ready(read_info),
                    Err(why) => {
                        log_engine_error("initialize", &why);
                        self.fail("its answer to initialize is an error or not valid", "ended");
                    }
                }
            }
            Output::Answer { id, answer, bytes } => {
                if let Some(thread_id) = self.silence.answered(id, Instant::now())
                    && let Some(thread) = self.threads.get_mut(&thread_id)
                {
                    thread.silent_since = None;
                }
                // The call may have been given up.
                let Some(call) = self.calls.remove(&id) else { return };
                self.unanswered.0 = 0;
                if call.step.method() == Method::Assemble && call.due <= Instant::now() {
                    self.reporter.note(&call, bytes, "timeout");
                    return self.give_up(call);
                }
                self.answered(call, answer, bytes);
            }
            Output::Broken(why) => self.fail(why, "ended"),
            Output::Ended => self.fail("it has ended", "ended"),
        }
    }

    fn is_ready(&mut self, read_info: EngineInfo) {
        let down = Phase::Down { until: Instant::now() };
        let Phase::Starting { process, due: _ } = std::mem::replace(&mut self.phase, down) else { return };
        let EngineInfo { id, name, version, abilities } = read_info;
        self.reporter.post(Input::OwnsCompaction(abilities.owns_compaction));
        self.reporter.emit(Note::ContextEngineStarted {
            pid: process.pid(),
            id,
            name,
            version,
            methods: abilities.methods.iter().map(|method| method.name().to_owned()).collect(),
            owns_compaction: abilities.owns_compaction,
        });
        self.phase = Phase::Ready { process, can: abilities };
    }
}

/// Logs an engine's error, redacted: it may contain the user's words.
pub(super) fn log_engine_error(method: &str, words: &str) {
    let words = protocol::printable(words);
    tracing::warn!(method, words = redacted(&words).unwrap_or(words), "the context engine");
}
