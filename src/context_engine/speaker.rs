//! The thread that speaks to a context engine: starts it, asks it, and starts it again where it has ended.
//!
//! Calls of one thread of codex go one after the other, in the order of [`super::lifecycle`]; those of several threads go at the
//! same time. Whoever waits for an answer is always told something, in time: an engine that is not there, or is slow, or answers
//! nonsense, costs what it would have said.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use super::call::{self, About, Beginning, Introduced};
use super::conversation::Conversations;
use super::lifecycle::{self, Abilities, Method, Occasion, Step};
use super::process::{Heard, Process};
use super::task::{Call, Line, Reporter, Task, Tell, Work};
use crate::engine::{Assembled, Consultation, ContextEngineSettings, Input, Note};

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

/// How long a call may take that no line waits for.
const CALL_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long the index is waited for, where no line waits.
const HISTORY_WAIT_MAX: Duration = Duration::from_secs(5);

/// Calls in a row that may stay unanswered.
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
pub struct SpeakerSettings {
    /// The engine.
    pub engine: ContextEngineSettings,
    /// The session's id.
    pub session_id: String,
}

/// The way to the thread.
#[derive(Debug)]
pub struct ContextEngine(SyncSender<Event>);

#[derive(Debug)]
enum Event {
    Consult(Box<Consultation>),
    /// Of the run of this number.
    Heard(u64, Heard),
    End(SyncSender<()>),
}

impl ContextEngine {
    /// Starts the thread, and with it the engine. What comes of it is told through `tell`; `say_fault` is called once, where the
    /// engine cannot be used.
    ///
    /// # Errors
    ///
    /// That of starting the thread.
    pub fn start(
        settings: SpeakerSettings,
        conversations: Conversations,
        tell: Tell,
        say_fault: impl Fn(&str) + Send + 'static,
    ) -> io::Result<ContextEngine> {
        let (own, events) = sync_channel(EVENTS_MAX);
        let to_speaker = own.clone();
        let thread = std::thread::Builder::new().name("context-engine".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || {
            let say_fault: SayFault = Box::new(say_fault);
            Speaker::new(settings, conversations, tell, say_fault, to_speaker).run(&events);
        })?;
        Ok(ContextEngine(own))
    }

    /// Asks or tells the engine something, and never waits.
    ///
    /// # Errors
    ///
    /// What was to be asked, where too much waits already.
    pub fn consult(&self, consultation: Box<Consultation>) -> Result<(), Box<Consultation>> {
        match self.0.try_send(Event::Consult(consultation)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(event) | TrySendError::Disconnected(event)) => match event {
                Event::Consult(consultation) => Err(consultation),
                Event::Heard(..) | Event::End(_) => unreachable!("BUG: an event is given back as it came"),
            },
        }
    }

    /// Has the engine end. What is given back is told once it has, or was told to a second time.
    #[must_use]
    pub fn end(&self) -> Receiver<()> {
        let (done, ended) = sync_channel(1);
        // Where there is no room for it the sender goes, which is an end as well.
        drop(self.0.try_send(Event::End(done)));
        ended
    }
}

#[derive(Debug)]
enum Phase {
    Down { until: Instant },
    Starting { process: Process, due: Instant },
    Ready { process: Process, can: Abilities },
}

struct Speaker {
    settings: SpeakerSettings,
    conversations: Conversations,
    reporter: Reporter,
    say_fault: SayFault,
    fault_said: bool,
    own: SyncSender<Event>,
    phase: Phase,
    /// Counts the processes.
    run: u64,
    began: Instant,
    back_off: Duration,
    last_call: u64,
    calls: HashMap<u64, Call>,
    lines: HashMap<String, Line>,
    unanswered: u32,
}

impl Speaker {
    fn new(
        settings: SpeakerSettings,
        conversations: Conversations,
        tell: Tell,
        say_fault: SayFault,
        own: SyncSender<Event>,
    ) -> Speaker {
        let now = Instant::now();
        Speaker {
            settings,
            conversations,
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
            unanswered: 0,
        }
    }

    fn run(mut self, events: &Receiver<Event>) {
        loop {
            self.tick();
            self.pump();
            let wait = self.next_due().map(|due| due.saturating_duration_since(Instant::now()));
            let event = match wait {
                Some(wait) => events.recv_timeout(wait),
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(Event::Consult(consultation)) => self.take(*consultation),
                Ok(Event::Heard(run, heard)) if run == self.run => self.heard(heard),
                Ok(Event::Heard(..)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::End(done)) => {
                    self.end();
                    let _ = done.try_send(());
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let phase = match &self.phase {
            Phase::Down { until } => Some(*until),
            Phase::Starting { due, .. } => Some(*due),
            Phase::Ready { .. } => None,
        };
        phase.into_iter().chain(self.calls.values().map(|call| call.due)).min()
    }

    /// Does what is due.
    fn tick(&mut self) {
        let now = Instant::now();
        match &self.phase {
            Phase::Down { until } if *until <= now => self.start(),
            Phase::Starting { due, .. } if *due <= now => self.fail("it did not answer initialize in time"),
            Phase::Down { .. } | Phase::Starting { .. } | Phase::Ready { .. } => {}
        }
        let late: Vec<u64> = self.calls.iter().filter(|(_, call)| call.due <= now).map(|(id, _)| *id).collect();
        for id in late {
            let Some(call) = self.calls.remove(&id) else { continue };
            self.reporter.note(&call, 0, "timeout", None);
            self.give_up(call);
            self.unanswered += 1;
        }
        if self.unanswered >= UNANSWERED_MAX {
            self.fail("it did not answer three calls in a row in time");
        }
    }

    fn start(&mut self) {
        self.run += 1;
        (self.began, self.unanswered) = (Instant::now(), 0);
        let (own, run) = (self.own.clone(), self.run);
        // Whoever hears may wait; once nobody listens any more, there is nothing to be told.
        let hear = move |heard| drop(own.send(Event::Heard(run, heard)));
        let started = Process::start(&self.settings.engine.command, &self.settings.session_id, hear);
        match started {
            Ok(process) => {
                let line = call::line(0, Method::Initialize, &call::initialize(&self.settings.session_id));
                let sent = process.send(line);
                self.phase = Phase::Starting { process, due: Instant::now() + INITIALIZE_WAIT_MAX };
                if sent.is_err() {
                    self.fail("it does not read what it is sent");
                }
            }
            Err(error) => {
                let program = self.settings.engine.command.first().map_or("", String::as_str);
                let why = format!("start {program}: {error}");
                self.fail(&why);
            }
        }
    }

    /// The engine is of no use any more: it is ended, and started again later.
    fn fail(&mut self, why: &str) {
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
        self.unanswered = 0;
        for (_, call) in std::mem::take(&mut self.calls) {
            self.reporter.note(&call, 0, "ended", Some(why.to_owned()));
            self.give_up(call);
        }
        self.lines.values_mut().for_each(|line| line.is_met = false);
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
                let dispose = call::line(self.last_call + 1, Method::Dispose, &serde_json::json!({}));
                process.end(dispose, END_WAIT_MAX);
            }
            Phase::Down { .. } => {}
        }
    }

    /// Takes what the relay asks or tells.
    fn take(&mut self, consultation: Consultation) {
        let (thread_id, task) = match consultation {
            Consultation::Opened { thread_id } => (thread_id, Task::Met),
            Consultation::Assemble { token, thread_id, prompt, room_chars, model, tools } => {
                let beginning = Rc::new(Beginning { prompt, room_chars, model, tools });
                let due = Instant::now() + self.settings.engine.deadline;
                (thread_id, Task::TurnBegins { token, beginning, due })
            }
            Consultation::Compact { token, thread_id } => (thread_id, Task::Compaction { token }),
            Consultation::TurnCompleted { thread_id, turn_id } => (thread_id, Task::TurnCompleted { turn_id }),
        };
        if self.lines.len() >= THREADS_MAX {
            self.lines.retain(|_, line| line.is_busy || !line.tasks.is_empty());
        }
        let line = self.lines.entry(thread_id).or_default();
        line.tasks.push_back(task);
        let surplus = if line.tasks.len() > TASKS_MAX { line.tasks.pop_front() } else { None };
        if let Some(task) = surplus {
            self.reporter.answer_without(&task);
        }
    }

    fn heard(&mut self, heard: Heard) {
        match heard {
            Heard::Answer { id: 0, answer, bytes: _ } if matches!(self.phase, Phase::Starting { .. }) => {
                let introduced = answer.and_then(|result| call::introduced(&result));
                match introduced {
                    Ok(introduced) => self.is_ready(introduced),
                    Err(why) => self.fail(&call::told(&why)),
                }
            }
            Heard::Answer { id, answer, bytes } => {
                // One that was given up by then is nobody's.
                if let Some(call) = self.calls.remove(&id) {
                    self.unanswered = 0;
                    self.answered(call, answer, bytes);
                }
            }
            Heard::Broken(why) => self.fail(why),
            Heard::Ended => self.fail("it has ended"),
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

    /// Begins whatever can be begun.
    fn pump(&mut self) {
        match &self.phase {
            // It may be there in time.
            Phase::Starting { .. } => {}
            Phase::Down { .. } => {
                for (thread_id, line) in &mut self.lines {
                    for task in std::mem::take(&mut line.tasks) {
                        self.reporter.refuse(thread_id, &task, "not_running", None);
                    }
                }
            }
            Phase::Ready { .. } => {
                let waiting = |(_, line): &(&String, &Line)| !line.is_busy && !line.tasks.is_empty();
                let free: Vec<String> = self.lines.iter().filter(waiting).map(|(id, _)| id.clone()).collect();
                free.iter().for_each(|thread_id| self.begin(thread_id));
            }
        }
    }

    /// Begins what waits for a thread, up to the first call.
    fn begin(&mut self, thread_id: &str) {
        loop {
            let Phase::Ready { can, .. } = &self.phase else { return };
            let can = can.clone();
            let Some(line) = self.lines.get_mut(thread_id).filter(|line| !line.is_busy) else { return };
            let is_new = !std::mem::replace(&mut line.is_met, true);
            let task = match is_new && can.has(Method::Bootstrap) {
                true => Task::Met,
                false => match line.tasks.pop_front() {
                    Some(Task::Met) => continue,
                    Some(task) => task,
                    None => return,
                },
            };
            let now = Instant::now();
            let history_wait = match &task {
                Task::TurnBegins { due, .. } if *due <= now => {
                    self.reporter.refuse(thread_id, &task, "timeout", None);
                    continue;
                }
                Task::TurnBegins { due, .. } => due.saturating_duration_since(now),
                Task::Compaction { .. } if !can.owns_compaction => {
                    self.reporter.answer_without(&task);
                    continue;
                }
                Task::Met | Task::TurnCompleted { .. } | Task::Compaction { .. } => HISTORY_WAIT_MAX,
            };
            let conversation = match self.conversations.read(thread_id, history_wait) {
                Ok(conversation) => Rc::new(conversation),
                Err(why) => {
                    self.reporter.refuse(thread_id, &task, "no_history", Some(why));
                    continue;
                }
            };
            let occasion = match &task {
                // Nothing to be brought up to date with.
                Task::Met if conversation.messages.is_empty() => continue,
                Task::Met => Occasion::Met,
                Task::TurnBegins { .. } => Occasion::TurnBegins,
                Task::TurnCompleted { turn_id } => {
                    let messages = conversation.of_turn(turn_id).len();
                    Occasion::TurnCompleted { messages }
                }
                Task::Compaction { .. } => Occasion::Compaction,
            };
            match lifecycle::first(occasion, &can) {
                Some(step) => self.call(thread_id, Work { task, occasion, conversation }, step),
                None => self.reporter.answer_without(&task),
            }
        }
    }

    /// Makes a call.
    fn call(&mut self, thread_id: &str, work: Work, step: Step) {
        let Phase::Ready { process, .. } = &self.phase else { return };
        let (beginning, turn_id) = match &work.task {
            Task::TurnBegins { beginning, .. } => (Some(&**beginning), ""),
            Task::TurnCompleted { turn_id } => (None, turn_id.as_str()),
            Task::Met | Task::Compaction { .. } => (None, ""),
        };
        let token_budget = self.settings.engine.token_budget;
        let about = About { session_id: &self.settings.session_id, thread_id, token_budget };
        let params = call::params(step, about, &work.conversation, beginning, turn_id);
        self.last_call += 1;
        let line = call::line(self.last_call, step.method(), &params);
        let sent_at = Instant::now();
        let due = match &work.task {
            Task::TurnBegins { due, .. } => *due,
            Task::Met | Task::TurnCompleted { .. } | Task::Compaction { .. } => sent_at + CALL_WAIT_MAX,
        };
        let call = Call { thread_id: thread_id.to_owned(), work, step, sent_at, due, bytes: line.len() };
        let sent = process.send(line);
        if let Some(line) = self.lines.get_mut(thread_id) {
            line.is_busy = true;
        }
        if sent.is_err() {
            self.reporter.note(&call, 0, "not_reading", None);
            self.give_up(call);
            return self.fail("it does not read what it is sent");
        }
        self.calls.insert(self.last_call, call);
    }

    fn answered(&mut self, call: Call, answer: Result<Box<serde_json::value::RawValue>, String>, bytes: usize) {
        let read = match answer {
            Err(error) => Err(("error", call::told(&error))),
            Ok(result) => self.read(&call, &result).map_err(|why| ("invalid", why)),
        };
        match read {
            Ok(assembled) => {
                self.reporter.note(&call, bytes, "ok", None);
                let Phase::Ready { can, .. } = &self.phase else { return };
                match lifecycle::next(call.work.occasion, call.step, can) {
                    Some(step) => {
                        let Call { thread_id, work, .. } = call;
                        self.call(&thread_id, work, step);
                    }
                    None => {
                        self.is_free(&call.thread_id);
                        self.reporter.consulted(&call.work.task, assembled);
                    }
                }
            }
            Err((outcome, why)) => {
                self.reporter.note(&call, bytes, outcome, Some(why));
                self.give_up(call);
            }
        }
    }

    /// Reads what a call has come to.
    fn read(&self, call: &Call, result: &serde_json::value::RawValue) -> Result<Option<Assembled>, String> {
        match (&call.work.task, call.step) {
            (Task::TurnBegins { beginning, .. }, Step::Assemble) => {
                call::assembled(result, beginning, self.settings.engine.projection_chars_max).map(Some)
            }
            (Task::Compaction { .. }, Step::Compact) => {
                self.reporter.compacted(&call.thread_id, call::compaction(result)?);
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// A call has come to nothing; whoever waits is told so, and nothing follows it.
    fn give_up(&mut self, call: Call) {
        self.is_free(&call.thread_id);
        if let (Task::Compaction { .. }, Step::Compact) = (&call.work.task, call.step) {
            let reason = Some("the context engine has not done it".to_owned());
            self.reporter.compacted(&call.thread_id, call::Compaction { reason, ..call::Compaction::default() });
        }
        self.reporter.answer_without(&call.work.task);
    }

    fn is_free(&mut self, thread_id: &str) {
        if let Some(line) = self.lines.get_mut(thread_id) {
            line.is_busy = false;
        }
    }
}
