//! Context besides the user's words and terminal commands.
//!
//! A context engine assembles a projection for a turn and may add developer instructions; fragments are texts that each
//! thread receives once and again after a change. Both come from outside the engine. Until they arrive, or a deadline
//! passes, the turn gate holds the lines of that thread, and only those. Without settings for either, this module
//! inspects nothing.

mod fragments;
pub(super) mod projection;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::requests::OpenBefore;
use fragments::{Fragments, bounded_addition, inject_params};
use serde_json::json;
use serde_json::value::RawValue;

use super::context::{Projection, THREAD_ID_BYTES_MAX, is_unknown_method};
use super::model::Token;
use super::open_calls::CallKey;
use super::purpose::Purpose;
use super::threads::ReceivedContext;
use super::turn_gate::{Awaited, Holds, Prepared};
use super::{Decision, Effect, Engine, LedgerEntry, Note, Now, Passage, Seen, Warning, own_line};
use crate::protocol::{Event, Method, cwd_in};
use crate::wire::{Conn, Members, Message, Side, Splice, elements, text};

pub(super) use fragments::ADDITION;
pub use fragments::{Fragment, FragmentCarrier, FragmentRole, FragmentSource, FragmentThreads, SentFragment};
pub use projection::PROJECTION_START;
pub use projection::{QuotedMessage, project};

/// How long lines wait for fragments: the time limit of a command plus a margin.
const FRAGMENTS_WAIT_MAX: Duration = Duration::from_millis(1_250);

/// Codex's own compaction, by the name that session-manager uses.
const NATIVE_BACKEND: &str = "codex-app-server";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AssemblySettings {
    pub context_engine: Option<ContextEngineSettings>,
    /// In the order of the settings file.
    pub fragments: Vec<Fragment>,
}

/// Context engine, fragments and held lines.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Assembly {
    deadline: Option<Duration>,
    pub(super) holds: Holds,
    fragments: Fragments,
    pub(super) owns_compaction: bool,
    /// The server rejected `thread/inject_items`, and the user was warned.
    inject_refused: bool,
}

/// How to interpret the response to a client's call about a thread.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ThreadCall {
    Start {
        tools: Vec<String>,
        instructed: Vec<SentFragment>,
    },
    /// An existing thread.
    Thread {
        instructed: Vec<SentFragment>,
    },
    /// The response shows whether a compaction was accepted.
    Compact {
        thread_id: String,
    },
}

impl Assembly {
    /// Another program has started this context engine, which says itself what it owns.
    pub(super) fn taken_over(&mut self, engine: Option<&ContextEngineSettings>) {
        (self.deadline, self.owns_compaction) = (engine.map(|engine| engine.deadline), false);
    }

    pub(super) fn new(settings: AssemblySettings, tokens_before: Token) -> Assembly {
        let AssemblySettings { context_engine, fragments } = settings;
        Assembly {
            deadline: context_engine.map(|engine| engine.deadline),
            holds: Holds::new(tokens_before),
            fragments: Fragments::new(fragments),
            owns_compaction: false,
            inject_refused: false,
        }
    }

    /// Replaces the fragments. Lines stop waiting for reads of the old ones.
    pub(super) fn configure(&mut self, fragments: Vec<Fragment>) {
        if self.fragments.configure(fragments) {
            self.holds.forget_fragments();
        }
    }

    /// No turn gets context any more.
    pub(super) fn stop(&mut self) {
        self.deadline = None;
        self.configure(Vec::new());
    }

    /// Whether a context engine or a fragment is configured.
    pub(super) fn is_set(&self) -> bool {
        self.has_engine() || !self.fragments.is_empty()
    }

    /// Whether a context engine is configured.
    fn has_engine(&self) -> bool {
        self.deadline.is_some()
    }

    /// The answers that a turn read at `read_at` waits for; `None` if it need not wait.
    pub(super) fn awaited(&self, read_at: Duration) -> Option<Awaited> {
        let fragments_wait_max = self.fragments.are_read().then_some(FRAGMENTS_WAIT_MAX);
        let awaited = Awaited {
            engine_due: self.deadline.map(|deadline| read_at + deadline),
            fragments_due: fragments_wait_max.map(|wait_max| read_at + wait_max),
        };
        (!awaited.is_nothing()).then_some(awaited)
    }

    /// Likewise for a compaction.
    pub(super) fn awaited_by_compaction(&self, read_at: Duration) -> Option<Awaited> {
        let deadline = self.deadline.filter(|_| self.owns_compaction)?;
        Some(Awaited { engine_due: Some(read_at + deadline), fragments_due: None })
    }
}

impl Engine {
    /// Prepares a thread for the turn that `message` starts. Returns the call to send ahead of it and the projection to put
    /// before the user's words.
    pub(super) fn before_turn(
        &mut self,
        conn: Conn,
        message: &Message<'_>,
        prepared: Option<Prepared>,
    ) -> (Option<Vec<u8>>, Option<Projection>) {
        let (Some(thread_id), Some(_)) = (thread_of(message), message.id) else { return (None, None) };
        let Prepared { assembled, states, cwd: read_in } = prepared.unwrap_or_default();
        let Assembled { projection, epoch, addition } = assembled.unwrap_or_default();
        if let Some(states) = states {
            self.assembly.fragments.read(read_in.as_deref(), states);
        }
        let chosen = message.params.and_then(Members::of).and_then(|params| cwd_in(&params));
        let thread = self.threads.of(&thread_id);
        if let Some(addition) = &addition {
            thread.addition = Some(bounded_addition(addition).to_owned());
        }
        let cwd = read_in.or(chosen).or_else(|| thread.description().cwd.clone());
        let known = self.threads.known(&thread_id, &self.calls.to_server);
        let is_shown = epoch.is_some() && known.epoch() == epoch.as_deref();
        let projection = projection.filter(|_| !is_shown).map(|text| Projection { text, epoch });
        let news = match self.threads.find(&thread_id) {
            Some(thread) if !self.assembly.inject_refused => {
                self.assembly.fragments.news(thread, &known, cwd.as_deref(), addition.as_deref())
            }
            Some(_) | None => Vec::new(),
        };
        let ahead = (!news.is_empty()).then(|| {
            let params = inject_params(&thread_id, &news);
            let purpose = Purpose::Fragments { thread_id, sent: news };
            let name = Method::ThreadInjectItems.name();
            let (_, call) = self.calls.call_server(conn, name, Some(&params), purpose);
            self.own_items.expect(&call);
            call
        });
        (ahead, projection)
    }

    /// Decides on a client's call about a thread, which may carry instructions.
    pub(super) fn call_about_thread(&mut self, seen: &Seen<'_>, event: &Event<'_>, decision: &mut Decision) {
        let Some(method) = event.method.filter(|_| self.assembly.is_set()) else { return };
        let asked = match (method, thread_of(event)) {
            (Method::ThreadCompactStart, Some(thread_id)) if self.assembly.has_engine() => {
                self.threads.of(&thread_id).request_compaction();
                ThreadCall::Compact { thread_id }
            }
            (Method::ThreadStart, _) => {
                let instructed = self.instruct(seen, event, Vec::new(), decision);
                ThreadCall::Start { tools: tools_in(event), instructed }
            }
            (Method::ThreadResume, _) => {
                let addition = self.addition_for_resume(event).into_iter().collect();
                ThreadCall::Thread { instructed: self.instruct(seen, event, addition, decision) }
            }
            (Method::ThreadFork, _) => ThreadCall::Thread { instructed: Vec::new() },
            _ => return,
        };
        if let Some(call) = seen.opened.and_then(|call| self.calls.to_server.get_mut(call)) {
            call.asked = Some(asked);
        }
    }

    /// Adds instructions to a call: `texts`, and the developer fragments for a server that accepts them only there. Returns
    /// the fragments that it carries then.
    fn instruct(
        &self,
        seen: &Seen<'_>,
        event: &Event<'_>,
        texts: Vec<String>,
        decision: &mut Decision,
    ) -> Vec<SentFragment> {
        let mut instructed = Vec::new();
        if self.assembly.inject_refused {
            let cwd = event.params.and_then(Members::of).and_then(|params| cwd_in(&params));
            let of_thread =
                thread_of(event).and_then(|thread_id| self.threads.find(&thread_id)?.description().cwd.clone());
            instructed = self.assembly.fragments.developers(cwd.or(of_thread).as_deref());
        }
        let texts: Vec<String> = instructed.iter().map(|sent| sent.text.clone()).chain(texts).collect();
        let replaced = if texts.is_empty() { None } else { with_instructions(seen.line, event, &texts.join("\n\n")) };
        let Some(bytes) = replaced else { return Vec::new() };
        decision.line = Passage::Replace(own_line(Side::Server, &seen.verdict, seen.body, bytes));
        instructed
    }

    /// The context engine's developer addition for a `thread/resume`. Instructions in that call override those in the
    /// user's settings; so if the client sends none and the thread already has the addition in its history, the line
    /// stays unchanged.
    fn addition_for_resume(&self, message: &Message<'_>) -> Option<String> {
        let instructs =
            Members::of(message.params?)?.text("developerInstructions").is_some_and(|said| !said.is_empty());
        let thread_id = thread_of(message)?;
        let known: ReceivedContext<'_> = self.threads.known(&thread_id, &self.calls.to_server);
        let addition = self.threads.addition(&thread_id, &known)?;
        let is_in_history = known.text(ADDITION).is_some_and(|text| !text.is_empty());
        (instructs || !is_in_history).then(|| addition.to_owned())
    }

    /// The server responds to a client's call about a thread.
    pub(super) fn answered_about_thread(
        &mut self,
        now: Now,
        call: CallKey,
        asked: ThreadCall,
        message: &Message<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let is_refused = message.refusal().is_some();
        match asked {
            ThreadCall::Compact { thread_id } => {
                if is_refused && self.threads.of(&thread_id).take_compaction_request() {
                    effects.push(self.native_compaction(thread_id, None, "client", "failed"));
                }
            }
            _ if is_refused => {}
            ThreadCall::Start { tools, instructed } => {
                let Some(thread_id) = thread_answered(message) else { return };
                let thread = self.threads.of(&thread_id);
                (thread.tools, thread.is_new, thread.is_opened) = (tools, true, true);
                let carrier = FragmentCarrier::DeveloperInstructions;
                self.fragments_arrived(now, call, thread_id, instructed, carrier, effects);
            }
            ThreadCall::Thread { instructed } => {
                let Some(thread_id) = thread_answered(message) else { return };
                if self.assembly.has_engine() {
                    self.open_thread(&thread_id, effects);
                }
                let carrier = FragmentCarrier::DeveloperInstructions;
                self.fragments_arrived(now, call, thread_id, instructed, carrier, effects);
            }
        }
    }

    /// Tells the context engine about a thread, once.
    pub(super) fn open_thread(&mut self, thread_id: &str, effects: &mut Vec<Effect>) {
        let thread = self.threads.of(thread_id);
        if !std::mem::replace(&mut thread.is_opened, true) {
            effects.push(Effect::Consult(Box::new(Consultation::Opened { thread_id: thread_id.to_owned() })));
        }
    }

    pub(super) fn fragments_answered(
        &mut self,
        now: Now,
        call: CallKey,
        thread_id: String,
        sent: Vec<SentFragment>,
        message: &Message<'_>,
        effects: &mut Vec<Effect>,
    ) {
        match message.refusal() {
            None => self.fragments_arrived(now, call, thread_id, sent, FragmentCarrier::InjectItems, effects),
            Some(error) => {
                effects.push(fragments_note(thread_id, &sent, FragmentCarrier::InjectItems, "refused"));
                if is_unknown_method(error) && !std::mem::replace(&mut self.assembly.inject_refused, true) {
                    effects.push(Effect::Warn(Warning::FragmentsRefused));
                }
            }
        }
    }

    fn fragments_arrived(
        &mut self,
        now: Now,
        call: CallKey,
        thread_id: String,
        sent: Vec<SentFragment>,
        carrier: FragmentCarrier,
        effects: &mut Vec<Effect>,
    ) {
        if sent.is_empty() {
            return;
        }
        let counts = self.threads.of(&thread_id).receives(call, &sent);
        effects.push(fragments_note(thread_id.clone(), &sent, carrier, "delivered"));
        if counts {
            effects.push(Effect::keep(LedgerEntry::FragmentsSent { thread_id, at_us: now.unix_us, sent }));
        }
    }

    /// Tells the context engine of a turn that completed, or notes that its compaction did not.
    pub(super) fn consult_about_turn(
        &mut self,
        message: &Message<'_>,
        thread_id: &str,
        turn_id: &str,
        effects: &mut Vec<Effect>,
    ) {
        if !self.assembly.has_engine() {
            return;
        }
        let params = message.params.and_then(Members::of).unwrap_or_default();
        let turn = params.get("turn").and_then(Members::of).unwrap_or_default();
        let (thread_id, turn_id) = (thread_id.to_owned(), turn_id.to_owned());
        match turn.text("status").as_deref() {
            Some("completed") => {
                effects.push(Effect::Consult(Box::new(Consultation::TurnCompleted { thread_id, turn_id })));
            }
            Some(_) | None => {
                if self.threads.of(&thread_id).take_compaction_request() {
                    effects.push(self.native_compaction(thread_id, Some(turn_id), "client", "failed"));
                }
            }
        }
    }

    /// An item completed, which may be a compaction.
    pub(super) fn item_completed(&mut self, params: &RawValue, effects: &mut Vec<Effect>) {
        let kind = || Members::of(Members::of(params)?.get("item")?)?.text("type");
        if self.assembly.is_set() && kind().is_some_and(|kind| kind == "contextCompaction") {
            self.is_compacted(params, effects);
        }
    }

    /// Codex compacted a thread. It may report this in two ways.
    pub(super) fn is_compacted(&mut self, params: &RawValue, effects: &mut Vec<Effect>) {
        let Some(params) = Members::of(params).filter(|_| self.assembly.is_set()) else { return };
        let Some(thread_id) = params.text("threadId") else { return };
        let turn_id = params.text("turnId").unwrap_or_default();
        let thread = self.threads.of(&thread_id);
        if !thread.compacted(&turn_id, self.calls.to_server.last_key()) {
            return;
        }
        let trigger = if thread.take_compaction_request() { "client" } else { "codex" };
        effects.push(Effect::keep(LedgerEntry::ThreadCompacted { thread_id: thread_id.clone() }));
        if self.assembly.has_engine() {
            effects.push(self.native_compaction(thread_id, Some(turn_id), trigger, "completed"));
        }
    }

    fn native_compaction(
        &self,
        thread_id: String,
        turn_id: Option<String>,
        trigger: &'static str,
        outcome: &'static str,
    ) -> Effect {
        let owns_compaction = self.assembly.owns_compaction;
        Effect::Note(Note::NativeCompaction {
            thread_id,
            turn_id,
            backend: NATIVE_BACKEND,
            owns_compaction,
            trigger,
            outcome,
        })
    }
}

/// Notes that the server accepted or rejected fragments.
fn fragments_note(thread_id: String, sent: &[SentFragment], carrier: FragmentCarrier, outcome: &'static str) -> Effect {
    let fragments = sent.iter().map(|sent| sent.name.clone()).collect();
    let bytes = sent.iter().map(|sent| sent.text.len() as u64).sum();
    Effect::Note(Note::FragmentsSent { thread_id, fragments, bytes, carrier: carrier.name(), outcome })
}

/// The thread that a response describes.
fn thread_answered(message: &Message<'_>) -> Option<String> {
    Members::of(Members::of(message.result?)?.get("thread")?)?.text("id")
}

pub(super) fn thread_of(message: &Message<'_>) -> Option<String> {
    Members::of(message.params?)?.text("threadId").filter(|id| !id.is_empty() && id.len() <= THREAD_ID_BYTES_MAX)
}

/// The names of the tools that a client gives a thread.
fn tools_in(message: &Message<'_>) -> Vec<String> {
    let params = message.params.and_then(Members::of).unwrap_or_default();
    let tools = params.get("dynamicTools").and_then(elements).unwrap_or_default();
    tools.into_iter().filter_map(|tool| Members::of(tool)?.text("name")).collect()
}

/// Adds developer instructions to a line; returns `None` if the line has no place for them.
fn with_instructions(line: &[u8], message: &Message<'_>, more: &str) -> Option<Vec<u8>> {
    let params = message.params.filter(|_| !message.repeated_member)?;
    let members = Members::of(params)?;
    let mut splice = Splice::of(line);
    match members.get("developerInstructions") {
        Some(said) if text(said).is_some_and(|said| !said.is_empty()) => {
            let quoted = json!(format!("\n\n{more}")).to_string();
            let end = splice.range_of(said).end - 1;
            splice.replace(end..end, &quoted[1..quoted.len() - 1]);
        }
        Some(said) if said.get() == "null" || text(said).is_some() => {
            splice.replace(splice.range_of(said), json!(more).to_string());
        }
        Some(_) => return None,
        None => {
            let at = splice.range_of(params).start + 1;
            let comma = if members.iter().next().is_some() { "," } else { "" };
            splice.replace(at..at, format!("\"developerInstructions\":{}{comma}", json!(more)));
        }
    }
    splice.apply()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextEngineSettings {
    /// Program and arguments; never empty.
    pub command: Vec<String>,
    /// How long the lines of a thread wait for it.
    pub deadline: Duration,
    /// Advertised room for context, in tokens.
    pub token_budget: Option<u64>,
    /// Longest projection, in characters from marker to marker.
    pub projection_chars_max: usize,
}

/// A call or notification to a context engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consultation {
    /// A thread exists; its earlier history may be sent.
    Opened { thread_id: String },
    /// A turn begins and needs context. Its lines are held until [`crate::engine::Input::Consulted`].
    Assemble {
        /// The hold.
        token: Token,
        /// Deadline, as [`crate::engine::Now::elapsed`].
        due: Duration,
        thread_id: String,
        /// The user's words.
        prompt: String,
        /// Room for context before the prompt, in characters.
        room_chars: usize,
        /// The model, if known.
        model: Option<String>,
        /// Names of the tools that the client defined for the thread.
        tools: Vec<String>,
    },
    /// The client requested a compaction. Its lines are held too.
    Compact {
        /// The hold.
        token: Token,
        /// Deadline, as [`crate::engine::Now::elapsed`].
        due: Duration,
        thread_id: String,
    },
    /// A turn completed without failure or interruption.
    TurnCompleted { thread_id: String, turn_id: String },
}

/// The result of a context engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assembled {
    /// Text to put before the user's words, from marker to marker.
    pub projection: Option<String>,
    /// Show the projection once per thread for each epoch; `None` means with every turn.
    pub epoch: Option<String>,
    /// Developer instructions for this thread from now on.
    pub addition: Option<String>,
}

/// Context sent by earlier runs, from the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remembered {
    /// Fragments by thread, oldest first.
    pub fragments: Vec<(String, SentFragment)>,
    /// Epochs whose projection a thread has seen, oldest first: thread and epoch.
    pub epochs: Vec<(String, String)>,
    /// Names of requests of this run of the server that have ended under another hub.
    pub requests: Vec<String>,
    /// Those that were open when it ended, or whose answers the server has not confirmed; the newest row of an id comes first.
    pub open_requests: Vec<OpenBefore>,
}

#[cfg(test)]
mod tests {
    use crate::engine::LinkEffect;
    use std::time::Duration;

    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::engine::model::LateLine;
    use crate::engine::{
        ApiCallId, ApiReply, ApiRequest, Assembled, AssemblySettings, ContextEngineSettings, ContextSettings,
        EngineSettings, Fragment, Incoming, Injection, Input, RequestSettings, ServerOwner, Token, Unready,
    };
    use crate::wire::{Line, LineEnd};

    const DEADLINE: Duration = Duration::from_millis(100);

    /// An engine with a simulated context engine; `passed` has the lines that the server gets.
    struct Play {
        engine: Engine,
        elapsed: Duration,
        asked: Vec<Token>,
        calls: Vec<String>,
        passed: Vec<String>,
        /// Deadlines of the consultations.
        dues: Vec<Duration>,
        /// Tokens of fragment reads.
        reads: Vec<Token>,
        /// Folders of fragment reads.
        read_in: Vec<Option<String>>,
        replies: Vec<(ApiCallId, ApiReply)>,
        /// Lines to the server, including additions.
        sent: Vec<String>,
    }

    impl Play {
        fn start() -> Play {
            Play::start_with(Vec::new())
        }

        fn start_with(fragments: Vec<Fragment>) -> Play {
            Play::start_as(fragments, ServerOwner::Client)
        }

        fn start_as(fragments: Vec<Fragment>, server_owner: ServerOwner) -> Play {
            let context_engine = ContextEngineSettings {
                command: vec!["x".to_owned()],
                deadline: DEADLINE,
                token_budget: None,
                projection_chars_max: 1_000,
            };
            Play::start_from(AssemblySettings { context_engine: Some(context_engine), fragments }, server_owner)
        }

        fn start_from(assembly: AssemblySettings, server_owner: ServerOwner) -> Play {
            let engine = Engine::new(EngineSettings {
                budget: Default::default(),
                exit_grace: Duration::from_secs(10),
                context: ContextSettings::default(),
                assembly,
                requests: RequestSettings::default(),
                server_owner,
                own_ids: "codex-shim:".to_owned(),
                tokens_before: 0,
            });
            Play {
                engine,
                elapsed: Duration::ZERO,
                asked: Vec::new(),
                calls: Vec::new(),
                passed: Vec::new(),
                sent: Vec::new(),
                dues: Vec::new(),
                reads: Vec::new(),
                read_in: Vec::new(),
                replies: Vec::new(),
            }
        }

        fn line(&mut self, line: &str) {
            self.read(Side::Client, line, Some(line));
        }

        fn server(&mut self, line: &str) {
            self.read(Side::Server, line, None);
        }

        /// A side writes a line; it has passed if `passed` is given and it is not withheld.
        fn read(&mut self, from: Side, line: &str, passed: Option<&str>) {
            let line = Line { bytes: line.as_bytes(), end: LineEnd::Newline };
            let mut effects = Vec::new();
            let now = Now { unix_us: 1, elapsed: self.elapsed };
            let decision = self.engine.read(now, Conn::OWN, from, Incoming::Line(line), &mut effects);
            effects.into_iter().for_each(|effect| self.carry_out(effect));
            decision.into_iter().for_each(|decision| self.pass(decision, passed));
        }

        fn pass(&mut self, decision: Decision, line: Option<&str>) {
            let before = decision.before.into_iter().map(|own| String::from_utf8(own.bytes));
            self.sent.extend(before.map(|line| line.expect("BUG: a test writes text")));
            match decision.line {
                Passage::Forward => {
                    self.passed.extend(line.map(str::to_owned));
                    self.sent.extend(line.map(str::to_owned));
                }
                Passage::Replace(own) => {
                    self.passed.extend(line.map(str::to_owned));
                    self.sent.push(String::from_utf8(own.bytes).expect("BUG: a test writes text"));
                }
                Passage::Withhold => {}
            }
            decision.then.into_iter().for_each(|effect| self.carry_out(effect));
        }

        fn at(&mut self, input: Input) {
            let mut effects = Vec::new();
            self.engine.handle(Now { unix_us: 1, elapsed: self.elapsed }, input, &mut effects);
            effects.into_iter().for_each(|effect| self.carry_out(effect));
        }

        #[expect(clippy::wildcard_enum_match_arm, reason = "only lines and consultations matter here")]
        fn carry_out(&mut self, effect: Effect) {
            match effect {
                Effect::Link(LinkEffect::ReleaseHeld(token)) => self.at(Input::ReleaseHeld(token)),
                Effect::Link(LinkEffect::PassHeld(lines)) => {
                    for LateLine { bytes, decision, .. } in lines {
                        let line = String::from_utf8(bytes).expect("BUG: a test writes text");
                        self.pass(decision, Some(&line));
                    }
                }
                Effect::Consult(consultation) => match *consultation {
                    Consultation::Assemble { token, due, thread_id, .. } => {
                        self.dues.push(due);
                        self.asked.push(token);
                        self.calls.push(format!("assemble {thread_id}"));
                    }
                    Consultation::Compact { token, thread_id, .. } => {
                        self.asked.push(token);
                        self.calls.push(format!("compact {thread_id}"));
                    }
                    Consultation::Opened { thread_id } => self.calls.push(format!("opened {thread_id}")),
                    Consultation::TurnCompleted { thread_id, turn_id } => {
                        self.calls.push(format!("completed {thread_id} {turn_id}"));
                    }
                },
                Effect::RunFragments(token, cwd) => {
                    self.reads.push(token);
                    self.read_in.push(cwd);
                }
                Effect::Link(LinkEffect::Inject(Injection { lines, .. })) => {
                    let lines = lines.into_iter().map(|line| String::from_utf8(line.bytes));
                    self.sent.extend(lines.map(|line| line.expect("BUG: a test writes text")));
                }
                Effect::Link(LinkEffect::Reply(api_call, reply)) => self.replies.push((api_call, reply)),
                Effect::Note(Note::ContextEngineCall { method, outcome, .. }) => {
                    self.calls.push(format!("{method} {outcome}"));
                }
                _ => {}
            }
        }

        fn answer(&mut self, index: usize) {
            if !self.asked.is_empty() {
                let token = self.asked.remove(index % self.asked.len());
                self.at(Input::Consulted { token, assembled: None });
            }
        }
    }

    impl Play {
        /// The methods sent since the last call.
        fn methods(&mut self) -> Vec<String> {
            let method = |line: String| {
                let line: Value = serde_json::from_str(&line).expect("BUG: it is JSON");
                line["method"].as_str().unwrap_or_default().to_owned()
            };
            self.sent.drain(..).map(method).collect()
        }

        fn answer_with(&mut self, assembled: Assembled) {
            let token = self.asked.remove(0);
            self.at(Input::Consulted { token, assembled: Some(Box::new(assembled)) });
        }
    }

    fn turn(id: usize, thread: &str) -> String {
        format!(
            r#"{{"id":{id},"method":"turn/start","params":{{"threadId":"{thread}","input":[{{"type":"text","text":"x"}}]}}}}"#
        )
    }

    #[test]
    fn response_to_departed_clients_turn_is_dropped() {
        let mut play = Play::start_as(Vec::new(), ServerOwner::Relay);
        play.at(Input::SessionOpened { generation: "g".to_owned() });
        play.at(Input::ServerStarted { pid: 1, adopted: false });
        play.server(r#"{"id":"codex-shim:1","result":{"userAgent":"x/1.2.3"}}"#);
        let come = |play: &mut Play| {
            play.at(Input::ApiRequest { api_call: 9, request: ApiRequest::Attach, server_listens: true });
            play.line(r#"{"id":0,"method":"initialize","params":{"clientInfo":{"name":"ide"}}}"#);
        };
        let answer = r#"{"id":5,"result":{"turn":{"id":"u"}}}"#;
        let mut answered = |goes: bool| {
            come(&mut play);
            play.line(&turn(5, "t"));
            assert_eq!(play.passed, [""; 0]);
            if goes {
                play.at(Input::Detached);
                come(&mut play);
            } else {
                play.answer(play.asked.len() - 1);
            }
            assert_eq!(std::mem::take(&mut play.passed), [turn(5, "t")]);
            play.read(Side::Server, answer, Some(answer));
            play.at(Input::Detached);
            std::mem::take(&mut play.passed)
        };
        assert_eq!(answered(true), [""; 0]);
        assert_eq!(answered(false), [answer]);
    }

    #[test]
    fn context_engine_gets_thread_and_turn_events() {
        let mut play = Play::start();
        let over = |turn: &str, status: &str| {
            format!(
                r#"{{"method":"turn/completed","params":{{"threadId":"t","turn":{{"id":"{turn}","status":"{status}"}}}}}}"#
            )
        };
        play.line(r#"{"id":1,"method":"thread/resume","params":{"threadId":"t"}}"#);
        play.server(r#"{"id":1,"result":{"thread":{"id":"t"}}}"#);
        play.line(&turn(2, "t"));
        play.answer(0);
        for (turn, status) in [("a", "completed"), ("b", "failed"), ("c", "interrupted")] {
            play.server(&over(turn, status));
        }
        // A new thread has no history to load, and an unknown thread is opened now.
        play.line(r#"{"id":3,"method":"thread/start","params":{}}"#);
        play.server(r#"{"id":3,"result":{"thread":{"id":"n"}}}"#);
        play.line(&turn(4, "n"));
        play.line(&turn(5, "u"));
        assert_eq!(play.calls, ["opened t", "assemble t", "completed t a", "assemble n", "opened u", "assemble u"]);
    }

    #[test]
    fn compaction_waits_only_for_owning_engine() {
        let mut play = Play::start();
        let compact = |id: u32| format!(r#"{{"id":{id},"method":"thread/compact/start","params":{{"threadId":"t"}}}}"#);
        play.line(&compact(1));
        assert_eq!(play.passed.len(), 1);
        play.at(Input::OwnsCompaction(true));
        play.line(&compact(2));
        assert_eq!((play.passed.len(), play.calls.last().map(String::as_str)), (1, Some("compact t")));
        play.elapsed = DEADLINE;
        assert_eq!(play.engine.next_deadline(), Some(DEADLINE));
        play.at(Input::Tick);
        assert_eq!(play.passed, [compact(1), compact(2)]);
    }

    fn text_fragment() -> Fragment {
        Fragment {
            name: "f".to_owned(),
            role: crate::engine::FragmentRole::Developer,
            source: crate::engine::FragmentSource::Text("x".to_owned()),
            threads: crate::engine::FragmentThreads::All,
            bytes_max: 100,
        }
    }

    #[test]
    fn fragments_without_engine_return_after_compaction() {
        let assembly = AssemblySettings { context_engine: None, fragments: vec![text_fragment()] };
        let mut play = Play::start_from(assembly, ServerOwner::Client);
        let injected = |play: &Play| play.sent.iter().filter(|line| line.contains("thread/inject_items")).count();
        play.line(&turn(1, "t"));
        play.server(r#"{"id":"codex-shim:1","result":{}}"#);
        play.line(&turn(2, "t"));
        assert_eq!(injected(&play), 1, "{:?}", play.sent);
        play.server(r#"{"method":"thread/compacted","params":{"threadId":"t","turnId":"u"}}"#);
        play.line(&turn(3, "t"));
        assert_eq!(injected(&play), 2, "{:?}", play.sent);
    }

    #[test]
    fn compaction_carries_no_instructions() {
        let mut play = Play::start_with(vec![text_fragment()]);
        play.line(&turn(1, "t"));
        play.answer(0);
        play.server(r#"{"id":"codex-shim:1","error":{"code":-32601,"message":"unknown method"}}"#);
        play.line(r#"{"id":2,"method":"thread/resume","params":{"threadId":"t"}}"#);
        assert!(play.sent.last().is_some_and(|sent| sent.contains("developerInstructions")), "{:?}", play.sent);
        let compact = r#"{"id":3,"method":"thread/compact/start","params":{"threadId":"t"}}"#;
        play.line(compact);
        assert_eq!(play.sent.last().map(String::as_str), Some(compact));
    }

    /// Whether a turn started now carries the projection of this epoch.
    fn shown(play: &mut Play, id: usize, epoch: &str) -> bool {
        play.line(&turn(id, "t"));
        play.answer_with(Assembled {
            projection: Some("\u{1e}CODEX_CONTEXT\n\u{1f}".to_owned()),
            epoch: Some(epoch.to_owned()),
            addition: None,
        });
        play.sent.last().is_some_and(|sent| sent.contains("CODEX_CONTEXT"))
    }

    #[test]
    fn epoch_is_shown_once_unless_rejected() {
        let mut play = Play::start();
        let answers = |play: &mut Play, id: usize, answer: &str| play.server(&format!(r#"{{"id":{id},{answer}}}"#));
        assert!(shown(&mut play, 1, "e"));
        assert!(!shown(&mut play, 2, "e"));
        answers(&mut play, 1, r#""result":{"turn":{"id":"a"}}"#);
        answers(&mut play, 2, r#""error":{"code":-1,"message":"no"}"#);
        assert!(!shown(&mut play, 3, "e"));
        assert!(shown(&mut play, 4, "f"));
        answers(&mut play, 4, r#""error":{"code":-1,"message":"no"}"#);
        // The epoch shown earlier counts again.
        assert!(!shown(&mut play, 5, "e"));
        assert!(shown(&mut play, 6, "f"));
    }

    #[test]
    fn consecutive_rejected_epochs_are_shown_again() {
        for refused_first in [1, 2] {
            let mut play = Play::start();
            assert!(shown(&mut play, 1, "e") && shown(&mut play, 2, "f"));
            for id in [refused_first, 3 - refused_first] {
                play.server(&format!(r#"{{"id":{id},"error":{{"code":-32001,"message":"overloaded"}}}}"#));
            }
            assert!(shown(&mut play, 3, "e"), "{refused_first}");
            assert!(shown(&mut play, 4, "f"), "{refused_first}");
        }
    }

    #[test]
    fn held_bytes_limit_spans_threads() {
        let mut play = Play::start();
        let long = |id: usize| turn(id, &format!("t{id}")).replace("\"x\"", &format!("\"{}\"", "x".repeat(3 << 20)));
        for id in 1..6 {
            let line = long(id);
            assert!(line.len() > 3 << 20, "{}", turn(id, "t"));
            play.line(&line);
        }
        assert_eq!(play.passed, [long(3), long(4), long(5)]);
        let asked = ["opened t1", "assemble t1", "opened t2", "assemble t2"];
        assert_eq!(play.calls, [&asked[..], &["assemble given_up"; 3]].concat());
    }

    #[test]
    fn queued_turns_keep_their_own_deadlines() {
        let mut play = Play::start();
        let at = |play: &mut Play, ms: u64| {
            play.elapsed = Duration::from_millis(ms);
            play.at(Input::Tick);
        };
        (1..4).for_each(|id| play.line(&turn(id, "t")));
        at(&mut play, 60);
        play.line(&turn(4, "t"));
        play.line(r#"{"id":5,"method":"turn/interrupt","params":{"threadId":"t"}}"#);
        at(&mut play, 99);
        assert_eq!(play.passed.len(), 0);
        at(&mut play, 100);
        assert_eq!(play.passed.len(), 3);
        assert_eq!(play.calls, ["opened t", "assemble t", "assemble timeout", "assemble timeout", "assemble t"]);
        assert_eq!(play.dues, [100, 160].map(Duration::from_millis));
        at(&mut play, 160);
        assert_eq!(play.passed.len(), 5);
    }

    #[test]
    fn engine_and_fragments_have_separate_deadlines() {
        let fragment = Fragment {
            name: "f".to_owned(),
            role: crate::engine::FragmentRole::Developer,
            source: crate::engine::FragmentSource::File("f".into()),
            threads: crate::engine::FragmentThreads::All,
            bytes_max: 100,
        };
        let mut play = Play::start_with(vec![fragment]);
        let assembled = || Assembled { projection: Some("CODEX_CONTEXT".to_owned()), epoch: None, addition: None };
        play.line(&turn(1, "t"));
        play.line(&turn(2, "u"));
        assert_eq!(play.dues, [DEADLINE; 2]);
        let reads = play.reads.clone();
        // The fragments arrive before their deadline. The engine's answer is in time for one thread and late for the
        // other.
        play.elapsed = DEADLINE;
        play.answer_with(assembled());
        play.elapsed = DEADLINE * 2;
        play.at(Input::Tick);
        play.answer_with(assembled());
        assert_eq!(play.passed.len(), 0);
        for token in reads {
            play.at(Input::FragmentsRead { token, states: vec![Some("x".to_owned())] });
        }
        let turns = play.sent.iter().filter(|sent| sent.contains("turn/start"));
        assert_eq!(turns.map(|sent| sent.contains("CODEX_CONTEXT")).collect::<Vec<_>>(), [true, false]);
        // A turn whose wait expired behind another one is released with it.
        play.line(&turn(3, "t"));
        play.line(&turn(4, "t"));
        play.elapsed += Duration::from_millis(1_250);
        play.at(Input::Tick);
        assert_eq!((play.passed.len(), play.engine.next_deadline()), (4, None));
    }

    #[test]
    fn api_calls_queue_behind_held_lines() {
        let mut play = Play::start();
        let ask = |play: &mut Play, api_call, request| {
            play.at(Input::ApiRequest { api_call, request, server_listens: true });
        };
        let interrupt = || ApiRequest::Interrupt { thread_id: Some("t".to_owned()) };
        let rpc = |thread: &str| ApiRequest::Rpc {
            method: "turn/steer".to_owned(),
            params: Some(format!(r#"{{"threadId":"{thread}"}}"#)),
            by: "me".to_owned(),
        };
        let started =
            |turn: &str| format!(r#"{{"method":"turn/started","params":{{"threadId":"t","turn":{{"id":"{turn}"}}}}}}"#);
        play.line(r#"{"id":0,"method":"initialize","params":{"clientInfo":{"name":"x","version":"1"}}}"#);
        play.server(r#"{"id":0,"result":{"userAgent":"x/0.169.0"}}"#);
        play.server(&started("a"));
        play.sent.clear();
        // A running turn is interrupted after the input queued before the interrupt.
        play.line(&turn(1, "t"));
        ask(&mut play, 1, interrupt());
        ask(&mut play, 2, rpc("t"));
        ask(&mut play, 3, rpc("u"));
        assert_eq!(play.methods(), ["turn/steer"]);
        play.answer(0);
        assert_eq!(play.methods(), ["turn/start", "turn/interrupt", "turn/steer"]);
        // A turn that starts with the queued line is interrupted once the server names it.
        play.server(r#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"a","status":"completed"}}}"#);
        play.line(&turn(4, "t"));
        ask(&mut play, 5, interrupt());
        play.answer(0);
        assert_eq!(play.methods(), ["turn/start"]);
        play.server(&started("b"));
        assert!(play.sent.last().is_some_and(|sent| sent.contains(r#""turnId":"b""#)), "{:?}", play.sent);
        assert_eq!((play.methods().len(), play.replies.len()), (1, 0));
        // The wait for a turn that never starts is bounded.
        play.server(r#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"b","status":"completed"}}}"#);
        play.line(&turn(6, "t"));
        ask(&mut play, 7, interrupt());
        play.answer(0);
        play.elapsed = play.engine.next_deadline().expect("somebody waits");
        play.at(Input::Tick);
        assert_eq!(play.replies, [(7, ApiReply::NoActiveTurn)]);
        play.server(&started("c"));
        assert_eq!((play.methods(), play.engine.next_deadline()), (vec!["turn/start".to_owned()], None));
        // Queued calls are answered when the server ends.
        play.line(&turn(8, "t"));
        ask(&mut play, 9, interrupt());
        ask(&mut play, 10, rpc("t"));
        play.at(Input::Closed { from: Side::Server });
        assert_eq!(play.replies[1..3], [9, 10].map(|call| (call, ApiReply::NotReady(Unready::Ended))));
    }

    #[test]
    fn resume_carries_addition_only_when_needed() {
        let mut play = Play::start();
        let addition = || Assembled { addition: Some("be brief".to_owned()), ..Assembled::default() };
        let resumed = |play: &mut Play, rest: &str| {
            play.line(&format!(r#"{{"id":7,"method":"thread/resume","params":{{"threadId":"t"{rest}}}}}"#));
            play.sent.last().is_some_and(|sent| sent.contains("be brief"))
        };
        let instructs = r#","developerInstructions":"mine""#;
        assert!(!resumed(&mut play, instructs));
        for (answer, goes_alone) in
            [(r#""result":{}"#, false), (r#""error":{"code":-32601,"message":"unknown method"}"#, true)]
        {
            play = Play::start();
            play.line(&turn(1, "t"));
            play.answer_with(addition());
            assert!(resumed(&mut play, instructs));
            play.server(&format!(r#"{{"id":"codex-shim:1",{answer}}}"#));
            assert_eq!(resumed(&mut play, ""), goes_alone);
            assert_eq!(resumed(&mut play, r#","developerInstructions":null"#), goes_alone);
            assert!(resumed(&mut play, instructs));
        }
    }

    #[test]
    fn injected_raw_item_is_recorded_but_withheld() {
        let mut play = Play::start();
        let reaches = |play: &mut Play, text: &str| {
            let line = format!(
                r#"{{"method":"rawResponseItem/completed","params":{{"threadId":"t","item":{{"type":"message","role":"developer","content":[{{"type":"input_text","text":"{text}"}}]}}}}}}"#
            );
            let line = Line { bytes: line.as_bytes(), end: LineEnd::Newline };
            let now = Now { unix_us: 1, elapsed: play.elapsed };
            let decision = play.engine.read(now, Conn::OWN, Side::Server, Incoming::Line(line), &mut Vec::new());
            let decision = decision.expect("BUG: no line is held");
            assert!(decision.record.is_some());
            !decision.is_withheld()
        };
        assert!(reaches(&mut play, "be brief"));
        play.line(&turn(1, "t"));
        play.answer_with(Assembled { addition: Some("be brief".to_owned()), ..Assembled::default() });
        assert!(!reaches(&mut play, "be brief"));
        assert!(reaches(&mut play, "be brief!"));
    }

    #[derive(Debug, Clone)]
    enum Op {
        Turn(usize),
        Other(usize),
        Answer(usize),
        Time(u64),
    }

    fn any_op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0usize..3).prop_map(Op::Turn),
            (0usize..4).prop_map(Op::Other),
            (0usize..9).prop_map(Op::Answer),
            (0u64..60).prop_map(Op::Time),
        ]
    }

    proptest! {
        /// Each line is released exactly once and in order per thread; a line without a thread passes at once.
        #[test]
        fn held_lines_keep_order_per_thread(
            ops in proptest::collection::vec(any_op(), 0..60),
        ) {
            let threads = ["a", "b", "c", ""];
            let mut play = Play::start();
            let mut written: Vec<Vec<String>> = vec![Vec::new(); threads.len()];
            for (number, op) in ops.into_iter().enumerate() {
                let line = match op {
                    Op::Turn(thread) => Some((thread, turn(number, threads[thread]))),
                    Op::Other(3) => Some((3, format!(r#"{{"id":{number},"method":"thread/list","params":{{}}}}"#))),
                    Op::Other(thread) => Some((thread, format!(
                        r#"{{"id":{number},"method":"turn/interrupt","params":{{"threadId":"{}"}}}}"#, threads[thread]
                    ))),
                    Op::Answer(index) => {
                        play.answer(index);
                        None
                    }
                    Op::Time(ms) => {
                        play.elapsed += Duration::from_millis(ms);
                        if play.engine.next_deadline().is_some_and(|due| due <= play.elapsed) {
                            play.at(Input::Tick);
                        }
                        None
                    }
                };
                if let Some((thread, line)) = line {
                    written[thread].push(line.clone());
                    play.line(&line);
                    let passes_at_once = thread == 3;
                    prop_assert!(!passes_at_once || play.passed.last() == Some(&line));
                }
                prop_assert!(play.engine.next_deadline().is_none_or(|due| due <= play.elapsed + DEADLINE));
            }
            play.at(Input::ReleaseAllHeld);
            prop_assert!(!play.engine.holds_lines());
            let all: usize = written.iter().map(Vec::len).sum();
            prop_assert_eq!(play.passed.len(), all);
            for of_thread in &written {
                let passed: Vec<&String> = play.passed.iter().filter(|line| of_thread.contains(line)).collect();
                prop_assert_eq!(passed, of_thread.iter().collect::<Vec<_>>());
            }
        }
    }
}
