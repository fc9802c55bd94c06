//! The thread that speaks to a context engine: starts it, asks it, and starts it again where it has ended.
//!
//! Calls of one thread of codex go one after the other, in the order of [`super::lifecycle`]; those of several threads go at the
//! same time, as many as it reads; the rest waits here. Whoever waits for an answer is always told something, in time: an engine
//! that is not there, or is slow, or answers nonsense, costs what it would have said. Nothing here waits for the history: what
//! was said is read by a thread of its own ([`super::reading`]).

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use super::call::{self, Beginning, Introduced};
use super::conversation::Conversation;
use super::lifecycle::{Abilities, Method};
use super::process::{Heard, Process};
use super::reading::{Conversations, Reader};
use super::silence::{Silence, Wait};
use super::task::{Call, Line, Reporter, Task, Tell};
use crate::engine::{Consultation, ContextEngineSettings, Input, Note, redacted};

/// Says what the user must know.
type SayFault = Box<dyn Fn(&str) + Send>;

/// What is to be done and was heard, and not looked at yet.
const EVENTS_MAX: usize = 256;

/// Threads that are kept apart; with more than these those are forgotten that wait for nothing.
const THREADS_MAX: usize = 1_024;

/// What may wait for one thread's turn; of more than these the oldest is not done.
const TASKS_MAX: usize = 32;

/// How long an engine may take to say who it is.
const INITIALIZE_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long it may read nothing of what waits for it.
const NOT_READING_MAX: Duration = Duration::from_secs(10);

/// Calls in a row, each made after the one before was given up, that may stay unanswered.
const UNANSWERED_MAX: u32 = 3;

/// The shortest and the longest time until an engine is started again.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

/// How long it has to have run for the next time to be the shortest again.
const BACK_OFF_FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// How long its end is waited for, until it is told to a second time. The relay waits a little longer for that, and no more.
const END_WAIT_MAX: Duration = Duration::from_millis(60);

/// Stack of the thread, in bytes.
const STACK_BYTES: usize = 1 << 20;

/// What a speaker is told at its beginning.
#[derive(Debug, Clone)]
pub(crate) struct SpeakerSettings {
    /// The engine.
    pub engine: ContextEngineSettings,
    /// The session's id.
    pub session_id: String,
}

/// The way to the thread.
#[derive(Debug)]
pub(crate) struct ContextEngine(SyncSender<Event>);

#[derive(Debug)]
enum Event {
    /// What the relay asks or tells, and when that began to count its time.
    Consult(Box<Consultation>, Instant),
    /// Of the run of this number.
    Heard(u64, Heard),
    /// The engine has read something.
    HasRead,
    /// What came of the reading of this number.
    Read(u64, Result<Conversation, String>),
    End(SyncSender<()>),
}

impl ContextEngine {
    /// Starts the thread, and with it the engine. What comes of it is told through `tell`; `say_fault` is called once, where the
    /// engine cannot be used.
    ///
    /// # Errors
    ///
    /// That of starting the thread.
    pub(crate) fn start(
        settings: SpeakerSettings,
        conversations: Conversations,
        tell: Tell,
        say_fault: impl Fn(&str) + Send + 'static,
    ) -> io::Result<ContextEngine> {
        let (own, events) = sync_channel(EVENTS_MAX);
        let (to_speaker, from_reader) = (own.clone(), own.clone());
        // Once nobody listens any more, there is nothing to be told.
        let reader = conversations.start(move |number, read| drop(from_reader.send(Event::Read(number, read))))?;
        let thread = std::thread::Builder::new().name("context-engine".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || {
            let say_fault: SayFault = Box::new(say_fault);
            Speaker::new(settings, reader, tell, say_fault, to_speaker).run(&events);
        })?;
        Ok(ContextEngine(own))
    }

    /// Asks or tells the engine something, and never waits. `elapsed` is the relay's time now, by which it says what is due when.
    ///
    /// # Errors
    ///
    /// What was to be asked, where too much waits already.
    pub(crate) fn consult(&self, consultation: Box<Consultation>, elapsed: Duration) -> Result<(), Box<Consultation>> {
        let now = Instant::now();
        let began_at = now.checked_sub(elapsed).unwrap_or(now);
        match self.0.try_send(Event::Consult(consultation, began_at)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(event) | TrySendError::Disconnected(event)) => match event {
                Event::Consult(consultation, _) => Err(consultation),
                Event::Heard(..) | Event::HasRead | Event::Read(..) | Event::End(_) => {
                    unreachable!("BUG: an event is given back as it came")
                }
            },
        }
    }

    /// Has the engine end. What is given back is told once it has, or was told to a second time.
    #[must_use]
    pub(crate) fn end(&self) -> Receiver<()> {
        let (done, ended) = sync_channel(1);
        // Where there is no room for it the sender goes, which is an end as well.
        drop(self.0.try_send(Event::End(done)));
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

pub(super) struct Speaker {
    pub(super) settings: SpeakerSettings,
    pub(super) reader: Reader,
    pub(super) reporter: Reporter,
    say_fault: SayFault,
    fault_said: bool,
    own: SyncSender<Event>,
    pub(super) phase: Phase,
    /// Counts the processes.
    run: u64,
    began: Instant,
    back_off: Duration,
    pub(super) last_call: u64,
    pub(super) calls: HashMap<u64, Call>,
    pub(super) lines: HashMap<String, Line>,
    /// Counts whoever waits.
    pub(super) waited: u64,
    pub(super) last_reading: u64,
    /// For whom what was said is read: thread and task.
    pub(super) readings: HashMap<u64, (String, Task)>,
    /// Readings that were asked for and have come to nothing yet, also those that nobody waits for any more.
    pub(super) readings_open: usize,
    /// Calls in a row that were not answered, and when the last of them was given up.
    pub(super) unanswered: (u32, Instant),
    pub(super) silence: Silence,
}

impl Speaker {
    fn new(
        settings: SpeakerSettings,
        reader: Reader,
        tell: Tell,
        say_fault: SayFault,
        own: SyncSender<Event>,
    ) -> Speaker {
        let now = Instant::now();
        Speaker {
            settings,
            reader,
            reporter: Reporter(tell),
            say_fault,
            fault_said: false,
            own,
            phase: Phase::Down { until: now },
            run: 0,
            began: now,
            back_off: BACK_OFF.0,
            last_call: 0,
            calls: HashMap::new(),
            lines: HashMap::new(),
            waited: 0,
            last_reading: 0,
            readings: HashMap::new(),
            readings_open: 0,
            unanswered: (0, now),
            silence: Silence::default(),
        }
    }

    fn run(mut self, events: &Receiver<Event>) {
        let mut next = None;
        loop {
            // What has come already comes before what is due: an answer that is there was not missed.
            for event in next.take().into_iter().chain(events.try_iter().take(EVENTS_MAX)) {
                if let Some(done) = self.take_event(event) {
                    self.end();
                    let _ = done.try_send(());
                    return;
                }
            }
            self.tick();
            self.pump();
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

    /// Takes what has happened; gives whom to tell of the end, where it is to end.
    fn take_event(&mut self, event: Event) -> Option<SyncSender<()>> {
        match event {
            Event::Consult(consultation, began_at) => self.take(*consultation, began_at),
            Event::Heard(run, heard) if run == self.run => self.heard(heard),
            // There may be room for more.
            Event::Heard(..) | Event::HasRead => {}
            Event::Read(number, read) => self.has_read(number, read),
            Event::End(done) => return Some(done),
        }
        None
    }

    fn next_due(&mut self) -> Option<Instant> {
        let phase = match &self.phase {
            Phase::Down { until } => Some(*until),
            Phase::Starting { due, .. } => Some(*due),
            Phase::Ready { .. } => None,
        };
        let reads = self.phase.process().and_then(|process| process.stuck_since()).map(|since| since + NOT_READING_MAX);
        let calls = self.calls.values().map(|call| self.due(call));
        let reading = self.readings.values().filter_map(|(_, task)| task.due(None));
        let waiting = self.lines.values().flat_map(|line| {
            let silent_since = line.silent_since(self.silence.since());
            line.tasks.iter().filter_map(move |task| task.due(silent_since))
        });
        let hung = self.silence.hung_at();
        phase.into_iter().chain(reads).chain(calls).chain(reading).chain(waiting).chain(hung).min()
    }

    /// Does what is due.
    fn tick(&mut self) {
        let now = Instant::now();
        match &self.phase {
            Phase::Down { until } if *until <= now => self.start(),
            Phase::Starting { due, .. } if *due <= now => self.fail("it did not answer initialize in time", "ended"),
            Phase::Down { .. } | Phase::Starting { .. } | Phase::Ready { .. } => {}
        }
        if let Some(process) = self.phase.process() {
            process.look(now);
            if process.stuck_since().is_some_and(|since| since + NOT_READING_MAX <= now) {
                self.fail("it does not read what it is sent", "not_reading");
            }
        }
        self.give_up_late_calls(now);
        self.refuse_what_is_late(now);
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
        // Whoever hears may wait; once nobody listens any more, there is nothing to be told.
        let hear = move |heard| drop(own.send(Event::Heard(run, heard)));
        // Where there is no room for it something else wakes us.
        let has_read = move || drop(reads.try_send(Event::HasRead));
        // On this thread, which ends with the relay, or because it was told to.
        let started = Process::start(&self.settings.engine.command, &self.settings.session_id, hear, has_read);
        match started {
            Ok(mut process) => {
                let line = call::line(0, Method::Initialize, &call::initialize(&self.settings.session_id));
                let sent = process.send(0, line);
                self.phase = Phase::Starting { process, due: Instant::now() + INITIALIZE_WAIT_MAX };
                if sent.is_err() {
                    self.fail("it does not read what it is sent", "not_reading");
                }
            }
            Err(error) => {
                let program = self.settings.engine.command.first().map_or("", String::as_str);
                let why = format!("start {program}: {error}");
                self.fail(&why, "ended");
            }
        }
    }

    /// The engine is of no use any more: it is ended, and started again later. That is the `outcome` of its open calls.
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
        // What it still says is not heard.
        self.run += 1;
        self.unanswered.0 = 0;
        self.silence.ended();
        for (_, call) in std::mem::take(&mut self.calls) {
            self.reporter.note(&call, 0, outcome);
            self.give_up(call);
        }
        for (_, (thread_id, task)) in std::mem::take(&mut self.readings) {
            self.reporter.refuse(&thread_id, &task, "not_running");
            self.is_free(&thread_id);
        }
        for line in self.lines.values_mut() {
            (line.is_met, line.is_met_again_at, line.silent_since) = (false, None, None);
        }
        tracing::warn!(why, ?wait, "the context engine has ended");
        if !std::mem::replace(&mut self.fault_said, true) {
            (self.say_fault)(&format!("the context engine: {why}; turns go on without it, and it is started again"));
        }
        let restart_in_ms = wait.as_millis() as u64;
        self.reporter.say(Note::ContextEngineEnded { reason: why.to_owned(), restart_in_ms });
    }

    /// Tells it to end.
    fn end(self) {
        match self.phase {
            Phase::Starting { process, .. } => process.kill(),
            Phase::Ready { process, can: _ } => {
                let id = self.last_call + 1;
                process.end(id, call::line(id, Method::Dispose, &serde_json::json!({})), END_WAIT_MAX);
            }
            Phase::Down { .. } => {}
        }
    }

    /// Takes what the relay asks or tells.
    fn take(&mut self, consultation: Consultation, began_at: Instant) {
        let wait = |due: Duration| Wait { came_at: Instant::now(), due: began_at + due };
        let (thread_id, task) = match consultation {
            Consultation::Opened { thread_id } => (thread_id, Task::Met),
            Consultation::Assemble { token, due, thread_id, prompt, room_chars, model, tools } => {
                let beginning = Rc::new(Beginning { prompt, room_chars, model, tools });
                (thread_id, Task::TurnBegins { token, beginning, wait: wait(due) })
            }
            Consultation::Compact { token, thread_id, due } => (thread_id, Task::Compaction { token, wait: wait(due) }),
            Consultation::TurnCompleted { thread_id, turn_id } => (thread_id, Task::TurnCompleted { turn_id }),
        };
        if self.lines.len() >= THREADS_MAX {
            self.lines.retain(|_, line| line.is_busy || !line.tasks.is_empty());
        }
        let line = self.lines.entry(thread_id).or_default();
        if line.tasks.is_empty() {
            self.waited += 1;
            line.waits_since = self.waited;
        }
        line.tasks.push_back(task);
        let surplus = if line.tasks.len() > TASKS_MAX { line.tasks.pop_front() } else { None };
        if let Some(task) = surplus {
            self.reporter.answer_without(&task);
        }
    }

    fn heard(&mut self, heard: Heard) {
        match heard {
            Heard::Answer { id: 0, answer, bytes: _ } if matches!(self.phase, Phase::Starting { .. }) => {
                self.silence.answered(0, Instant::now());
                match answer.and_then(|result| call::introduced(&result)) {
                    Ok(introduced) => self.is_ready(introduced),
                    Err(why) => {
                        log_words("initialize", &why);
                        self.fail("it has answered initialize with an error, or with what is no answer to it", "ended");
                    }
                }
            }
            Heard::Answer { id, answer, bytes } => {
                if let Some(thread_id) = self.silence.answered(id, Instant::now())
                    && let Some(line) = self.lines.get_mut(&thread_id)
                {
                    line.silent_since = None;
                }
                // One that was given up by then is nobody's.
                let Some(call) = self.calls.remove(&id) else { return };
                self.unanswered.0 = 0;
                if call.step.method() == Method::Assemble && call.due <= Instant::now() {
                    self.reporter.note(&call, bytes, "timeout");
                    return self.give_up(call);
                }
                self.answered(call, answer, bytes);
            }
            Heard::Broken(why) => self.fail(why, "ended"),
            Heard::Ended => self.fail("it has ended", "ended"),
        }
    }

    fn is_ready(&mut self, introduced: Introduced) {
        let down = Phase::Down { until: Instant::now() };
        let Phase::Starting { process, due: _ } = std::mem::replace(&mut self.phase, down) else { return };
        let Introduced { id, name, version, abilities } = introduced;
        self.reporter.tell(Input::OwnsCompaction(abilities.owns_compaction));
        self.reporter.say(Note::ContextEngineStarted {
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

/// Logs what an engine has said of an error. It may be the user's words.
pub(super) fn log_words(method: &str, words: &str) {
    let words = call::told(words);
    tracing::warn!(method, words = redacted(&words).unwrap_or(words), "the context engine");
}
