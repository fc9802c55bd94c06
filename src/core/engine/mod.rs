//! The engine: lines and other inputs (what happened) go in, decisions and effects (what to do) come out.
//!
//! [`Engine::read`] decides on a line and [`Engine::handle`] on a signal, an end of stream and all other inputs. Both are
//! total and never block.
//!
//! The relay carries out the decisions of one read together: first it puts all lines and notes on record, in order, with
//! one append to the journal, then it forwards, with one write. So no line reaches a side before it is on record. All other
//! effects follow, in order.
//!
//! Pure: the engine knows no clock, file, pipe, process or thread. Time is an argument, and effects are only described
//! here.

mod api_calls;
mod as_json;
mod assembly;
mod attached_client;
mod budget;
mod checked;
mod config_warning;
mod connections;
mod context;
mod denials;
mod environment;
mod handover;
mod lines;
mod model;
mod open_calls;
mod purpose;
mod rate_limits;
mod refused_peers;
mod requests;
mod rules;
mod safe_state;
pub mod shell_line;
mod shutdown;
pub mod terminal;
mod threads;
mod turn_gate;
mod unstarted;
mod verdict;
mod visible;
mod watching;
mod workspaces;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::wire::{Conn, Glance, Side};

pub use assembly::{
    Assembled, Consultation, ContextEngineSettings, Fragment, FragmentCarrier, FragmentRole, FragmentSource,
    FragmentThreads, QuotedMessage, SentFragment, project,
};
pub use assembly::{AssemblySettings, PROJECTION_START, Remembered};
pub use attached_client::OWN_NAME;
use budget::Budget;
pub use budget::{
    BudgetAnswer, BudgetFound, BudgetLimit, BudgetLimits, BudgetQuery, BudgetUse, Spent, grouped, raised_to,
};
pub use config_warning::ConfigWarning;
pub use connections::PROBE;
pub use context::{Carrier, Command, Envelope, Label, Origin, PushError, message_without_context, without_context};
pub use context::{ContextBounds, ContextSettings, MARKER_END, MARKER_START, Preview, Provenance, PushedCommand};
pub use handover::Arrival;
pub use model::{
    ApiCallId, ApiReply, ApiRequest, ChildEffect, ClientName, ContextChange, Decision, Effect, Exit, GivenVariables,
    Incoming, Input, LedgerEntry, LinkEffect, Note, Now, Order, OwnLine, Passage, Peer, RequestSource, RequestStatus,
    ServerOwner, Token, Transport, Variables, WaitingCommand,
};
pub use model::{
    Delivery, Form, GivenRow, Injection, LateLine, Omitted, OmittedReason, Outcome, OverruleFor, OverruledRow,
    RefusedPeer, RequestEnd, RequestRow, RowId, Signal, Unready, Warning,
};
pub use requests::{
    AnswerBefore, GivenAnswer, OpenBefore, RequestKind, RequestSettings, RequestType, decisions, request_digest, valid,
};
pub use requests::{
    Need, Persist, Subject, UNANSWERED, answers_nothing, command_line, field_order, kept_result, permissions_in_words,
    without_shell, without_system_shell,
};
pub use rules::{
    Asked, Decides, Does, ExactCommand, InThread, Matcher, Miss, ProgramCheck, RuleAction, RulePlace, Trust, Words,
    Workspace, asked, is_shell, is_whole_path, passes_command_on, runs_others, runs_project_files,
    runs_repository_files,
};
pub use rules::{PastRequest, PersonsAnswer, Rule, Suggestion, WouldDo, acceptable_words, suggestions, would_do};
pub use safe_state::broken_in_words;
pub use visible::one_line;
pub use visible::{deceives, visible};
pub use workspaces::ModelsReach;

use api_calls::Interrupts;
use assembly::Assembly;
use attached_client::{Clients, answer_without_client};
use checked::Countdown;
use context::{Context, OwnItems};
use denials::Denials;
use lines::{Seen, event_in, free_line, inject, own_free_line, own_line};
use open_calls::Calls;
use rate_limits::RateLimits;
use refused_peers::RefusedPeers;
use requests::{Items, Requests};
use shutdown::Shutdown;
use threads::Threads;
use unstarted::Unstarted;
use verdict::Secrets;
use watching::Watched;

/// Settings of a new engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineSettings {
    /// Grace period for the child after the client closes our stdin.
    pub exit_grace: Duration,
    pub context: ContextSettings,
    pub requests: RequestSettings,
    /// Context engine and fragments.
    pub assembly: AssemblySettings,
    pub budget: BudgetUse,
    pub server_owner: ServerOwner,
    /// Prefix of the ids of our own calls: `codex-shim:` plus a part unique to this shim, because one shim may run
    /// behind another.
    pub own_ids: String,
    /// The last token of the previous engine, if any. Late events for that engine must not match tokens of this one.
    pub tokens_before: Token,
}

/// The settings that can change while an engine runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveSettings {
    pub context: ContextSettings,
    /// Applies to later requests only.
    pub requests: RequestSettings,
    /// In the order of the settings file.
    pub fragments: Vec<Fragment>,
    pub budget: BudgetUse,
}

/// The decisions of one relay during one run of the child.
#[derive(Debug, Serialize, Deserialize)]
pub struct Engine {
    secrets: Secrets,
    context: Context,
    own_items: OwnItems,
    assembly: Assembly,
    #[serde(default)]
    budget: Budget,
    requests: Requests,
    items: Items,
    calls: Calls,
    threads: Threads,
    #[serde(skip)]
    interrupts: Interrupts,
    denials: Denials,
    shutdown: Shutdown,
    clients: Clients,
    watched: Watched,
    unstarted: Unstarted,
    rate_limits: RateLimits,
    refused_peers: RefusedPeers,
    /// The server's version is on record.
    knows_version: bool,
    #[serde(skip)]
    glance: Glance,
    owner: ServerOwner,
    /// The server of this hub has answered a client that is on record, maybe one of an earlier hub.
    has_had_client: bool,
    /// The server has refused a call because it is shutting down.
    is_draining: bool,
    /// The subscriptions of a client of the hub have changed.
    subscriptions_changed: bool,
    exit_grace: Duration,
    /// The first invariant that has failed, if one has: from then on nothing is decided.
    #[serde(default)]
    broken: Option<String>,
    /// Down to the next check of all.
    #[serde(skip)]
    lines: Countdown,
    #[serde(skip)]
    inputs: Countdown,
}

impl Engine {
    /// An engine for a child that has not started yet.
    pub fn new(settings: EngineSettings) -> Engine {
        let mut context = Context::new(settings.context);
        context.may_begin_with(openings_of_users(&settings.assembly.fragments));
        Engine {
            secrets: Secrets::default(),
            context,
            own_items: OwnItems::default(),
            assembly: Assembly::new(settings.assembly, settings.tokens_before),
            budget: Budget::of(settings.budget),
            requests: Requests::new(settings.requests, settings.server_owner, settings.tokens_before),
            items: Items::default(),
            calls: Calls::new(settings.own_ids),
            threads: Threads::default(),
            interrupts: Interrupts::default(),
            denials: Denials::default(),
            shutdown: Shutdown::new(settings.exit_grace, settings.server_owner),
            clients: Clients::new(settings.server_owner),
            watched: Watched::default(),
            unstarted: Unstarted::default(),
            rate_limits: RateLimits::default(),
            refused_peers: RefusedPeers::default(),
            knows_version: false,
            glance: Glance::default(),
            owner: settings.server_owner,
            has_had_client: false,
            is_draining: false,
            subscriptions_changed: false,
            exit_grace: settings.exit_grace,
            broken: None,
            lines: Countdown::default(),
            inputs: Countdown::default(),
        }
    }

    /// Decides how to react to `input` and appends the effects.
    pub fn handle(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        self.take(now, input, effects);
        self.requests.keep_unread(effects);
        self.input_handled();
    }

    fn take(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::ServerStarted { pid, adopted } => self.server_started(pid, adopted, effects),
            Input::Connected { conn, peer } => self.connected(conn, peer, effects),
            Input::Disconnected { conn } => self.disconnected(now, conn, effects),
            Input::SessionOpened { generation } => self.requests.session_opened(generation),
            Input::Closed { from: Side::Client } => self.client_closed(now, effects),
            Input::Closed { from: Side::Server } => self.server_closed(now, effects),
            Input::Detached => {
                // Process the client's held lines while it still counts as attached.
                self.left_before_its_turn(now, Conn::OWN, effects);
                self.process_all_held(now, effects);
                let asked = self.detach(now, effects);
                effects.extend(asked.iter().map(|id| answer_without_client(id)));
            }
            Input::ClientDisconnected => {
                self.left_before_its_turn(now, Conn::OWN, effects);
                self.release_all_held(now, effects);
                self.shutdown.client_disconnected(now.elapsed);
            }
            Input::OutputWaits(waits) => self.shutdown.output_waits(now.elapsed, waits),
            Input::ServerExited(exit) => self.shutdown.server_exited(exit, effects),
            Input::Signalled(signal) => self.shutdown.signalled(now.elapsed, signal, effects),
            Input::Context(change) => self.context.changed(change, &mut self.threads),
            Input::Remembered(mut remembered) => {
                let (ended, rows) = (&remembered.requests, std::mem::take(&mut remembered.open_requests));
                self.requests.remember(now, ended, rows, &self.clients, effects);
                self.explain(effects);
                self.watch_all(effects);
                self.threads.remember(*remembered);
            }
            Input::OwnsCompaction(owns) => self.assembly.owns_compaction = owns,
            Input::Consulted { token, assembled } => {
                self.assembly.holds.consulted(now.elapsed, token, assembled.map(|assembled| *assembled));
                self.release_ready(now, effects);
            }
            Input::Configured(settings) => {
                self.configure(now, *settings, effects);
                self.release_ready(now, effects);
            }
            Input::FragmentsRead { token, states } => {
                self.assembly.holds.fragments_read(token, states);
                self.release_ready(now, effects);
            }
            Input::BudgetLookedUp { token, found } => self.budget_looked_up(now, token, found, effects),
            Input::ReleaseHeld(token) => self.release_held(now, token, effects),
            Input::ReleaseAllHeld => self.release_all_held(now, effects),
            Input::Noted(note) => effects.push(Effect::Note(*note)),
            Input::Committed { token, done } => {
                self.requests.committed(now, token, done, &self.clients, effects);
                self.explain(effects);
                self.carry_out_own_outcomes(now, effects);
            }
            Input::ProgramChecked { token, checked } => {
                self.requests.program_checked(now, token, checked, &self.clients, effects);
            }
            Input::SentOver { mark, conn } => self.requests.sent_over(mark, conn),
            Input::Written(token) => self.requests.written(now, token, effects),
            Input::NotWritten(token) => self.requests.not_written(token, effects),
            Input::Recalled(token) => self.requests.recalled(now, token, effects),
            Input::ApiRequest { api_call, request, server_listens } => {
                self.api_request(now, api_call, request, server_listens, effects);
            }
            Input::IndexRecovered => {
                effects.push(Effect::Note(Note::EventPersistRecovered { reason: "persistence_recovered" }));
            }
            Input::Broken(name) => self.breaks(now, name, effects),
            Input::PeerRefused(peer) => self.refused_peers.refused(now.elapsed, peer, effects),
            Input::Tick => self.tick(now, effects),
        }
    }

    fn client_closed(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.left_before_its_turn(now, Conn::OWN, effects);
        self.shutdown.client_closed(now.elapsed, effects);
    }

    fn tick(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.refused_peers.tick(now.elapsed, effects);
        self.shutdown.tick(now.elapsed, effects);
        self.release_ready(now, effects);
        self.interrupts.tick(now.elapsed, effects);
        self.budget_tick(now, effects);
        self.requests.tick(now, &self.clients, effects);
        self.carry_out_own_outcomes(now, effects);
        self.ticked(now);
    }

    fn server_closed(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let calls = self.calls.to_server.take_all();
        for lease in calls.iter().filter_map(|call| call.lease.as_ref()) {
            self.context.server_ended(lease, effects);
        }
        self.context.turns_ended(effects);
        self.assembly_ended(effects);
        self.server_ended_before_turns(effects);
        self.requests.server_ended(now, effects);
        self.threads.server_ended();
        self.denials.server_ended();
        self.watched.server_ended();
        self.unstarted.server_ended();
        self.interrupts.server_ended(effects);
        self.clients.own_mut().initialized_with = None;
        self.is_draining = false;
        for purpose in calls.into_iter().filter_map(|call| call.purpose) {
            purpose.server_ended(effects);
        }
        // Pending requests need no answer: the server is gone.
        drop(self.detach(now, effects));
        match self.owner.outlives_us() {
            true => effects.push(Effect::Note(Note::GenerationEnded { exit_code: None, signal: None })),
            false => self.shutdown.server_closed(effects),
        }
    }

    fn server_started(&mut self, pid: u32, adopted: bool, effects: &mut Vec<Effect>) {
        effects.push(Effect::Note(Note::GenerationStarted { pid, adopted, hub: self.owner.has_many_clients() }));
        self.has_had_client = adopted;
        if adopted {
            self.requests.workspaces.server_adopted();
        }
        if self.clients.own().is_served() && !self.owner.outlives_us() {
            self.initialize(effects);
        }
    }

    /// When the next [`Input::Tick`] is due, as [`Now::elapsed`].
    pub fn next_deadline(&self) -> Option<Duration> {
        let requests = earlier(earlier(self.requests.due(), self.budget.due()), self.assembly.holds.due());
        let callers = earlier(self.interrupts.due(), self.refused_peers.due());
        earlier(earlier(requests, callers), self.shutdown.next_deadline())
    }

    /// Number of the user's commands that the model has not seen yet.
    pub fn context_waiting(&self) -> usize {
        self.context.waiting()
    }

    /// Whether the server of the hub finishes its turns and refuses new ones.
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Whether client lines are held here. Held lines are not on record yet.
    pub fn holds_lines(&self) -> bool {
        !self.assembly.holds.is_empty() || self.budget.is_looking()
    }

    /// Whether client lines wait here until the budget is looked up, which nothing hastens.
    pub fn waits_for_budget(&self) -> bool {
        self.budget.is_looking()
    }

    /// Whether the context engine has said that it owns compaction.
    pub fn owns_compaction(&self) -> bool {
        self.assembly.owns_compaction
    }

    /// Folders to which the sandboxes of the threads let models write.
    pub fn models_reach(&self) -> ModelsReach {
        self.requests.workspaces.reach()
    }

    /// A number that changes with it.
    pub fn models_reach_revision(&self) -> u64 {
        self.requests.workspaces.revision()
    }

    /// Number of unanswered requests.
    pub fn requests_pending(&self) -> usize {
        self.requests.pending()
    }

    /// The API call that admitted the attached (or expected) client.
    pub fn admitted(&self) -> Option<ApiCallId> {
        self.clients.own().admitted()
    }

    /// How long an attached client may leave buffered output unread.
    pub fn client_stall_max(&self) -> Option<Duration> {
        self.clients.own().admitted().map(|_| self.exit_grace)
    }

    /// Whether we received a signal. After a signal, the client has limited time to read the rest of the output.
    pub fn was_signalled(&self) -> bool {
        self.shutdown.was_signalled()
    }

    fn configure(
        &mut self,
        now: Now,
        LiveSettings { context, requests, fragments, budget }: LiveSettings,
        effects: &mut Vec<Effect>,
    ) {
        self.context.configure(context);
        // Earlier context is still removed from echoes.
        self.context.may_begin_with(openings_of_users(&fragments));
        if self.is_safe() {
            return;
        }
        self.configure_budget(now, budget, effects);
        self.requests.configure(requests);
        self.assembly.configure(fragments);
    }

    /// The last token issued, for [`EngineSettings::tokens_before`].
    pub fn last_token(&self) -> Token {
        self.requests.last_token().max(self.assembly.holds.last_token())
    }
}

/// The earlier of two times, of which there may be none.
pub fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Opening markers of the fragments with the user role.
fn openings_of_users(fragments: &[Fragment]) -> Vec<String> {
    let of_users = fragments.iter().filter(|fragment| fragment.role == FragmentRole::ContextualUser);
    of_users.map(Fragment::opening).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Method;
    use crate::wire::{Body, Conn, Line, LineEnd};

    fn settings() -> EngineSettings {
        let exit_grace = Duration::from_secs(10);
        EngineSettings {
            exit_grace,
            context: ContextSettings::default(),
            assembly: AssemblySettings::default(),
            budget: Default::default(),
            requests: RequestSettings::default(),
            server_owner: ServerOwner::Client,
            own_ids: "codex-shim:".to_owned(),
            tokens_before: 0,
        }
    }

    /// A playbook: `>` is a client line, `<` a server line. Returns the effects of each step as one text per line.
    fn play(script: &[&str]) -> Vec<String> {
        let mut engine = Engine::new(settings());
        let now = Now { unix_us: 1, elapsed: Duration::ZERO };
        script
            .iter()
            .map(|step| {
                let (side, line) = step.split_at(1);
                let from = if side == ">" { Side::Client } else { Side::Server };
                let line = Line { bytes: line.as_bytes(), end: LineEnd::Newline };
                let mut effects = Vec::new();
                let decision = engine.read(now, Conn::OWN, from, Incoming::Line(line), &mut effects);
                let decision = decision.expect("BUG: no line is held");
                assert!(decision.before.is_empty() && decision.hold.is_none() && decision.mark.is_none());
                let before = effects.iter().map(in_words);
                let record = decision.record.as_ref().map(|form| match form {
                    Form::Omitted(omitted) => format!("omit({:?})", omitted.reason),
                    other @ (Form::Verbatim | Form::Text | Form::Base64 | Form::Masked(_)) => format!("{other:?}"),
                });
                let line = format!("{:?}", decision.line).to_lowercase();
                let words = before.chain(record).chain([line]).chain(decision.then.iter().map(in_words));
                words.collect::<Vec<_>>().join(" ")
            })
            .collect()
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "new effects are shown in debug form")]
    fn in_words(effect: &Effect) -> String {
        match effect {
            Effect::Note(note) => serde_json::to_string(note).expect("BUG: notes are plain data"),
            Effect::Link(LinkEffect::Introduce(_, client)) => {
                format!("client({})", client.name.as_deref().unwrap_or("-"))
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn every_line_is_recorded_and_then_forwarded() {
        assert_eq!(
            play(&[
                r#">{"id":1,"method":"thread/list"}"#,
                "<not json",
                "<",
                r#"<{"id":1,"result":{}}"#,
                "<{}\r",
                "<[1]"
            ]),
            [
                "Verbatim forward",
                "Text forward",
                "Text forward",
                "Verbatim forward",
                "Text forward",
                "Verbatim forward"
            ]
        );
    }

    #[test]
    fn inert_notifications_are_decided_as_if_parsed() {
        let mut engine = Engine::new(settings());
        let now = Now { unix_us: 1, elapsed: Duration::ZERO };
        for method in Method::ALL.iter().filter(|method| method.is_inert()) {
            let item = r#"{"id":"i","type":"userMessage","content":[{"type":"text","text":"x"}]}"#;
            let thread = format!(r#"{{"id":"t","status":{{"type":"active"}},"turns":[{{"items":[{item}]}}]}}"#);
            let params = format!(
                r#"{{"threadId":"t","turnId":"u","itemId":"i","item":{item},"thread":{thread},"turn":{{"id":"u"}}}}"#
            );
            let line = format!(r#"{{"method":"{}","params":{params}}}"#, method.name());
            let mut effects = Vec::new();
            let unparsed = Line { bytes: line.as_bytes(), end: LineEnd::Newline };
            let read = engine.read(now, Conn::OWN, Side::Server, Incoming::Line(unparsed), &mut effects);
            let body = Body::parse(line.as_bytes());
            let decided = engine.decide(now, (Conn::OWN, Side::Server), line.as_bytes(), &body, None, &mut effects);
            assert_eq!((read.as_ref(), effects.len()), (Some(&decided), 0), "{line}");
        }
    }

    #[test]
    fn secret_request_hides_its_answer() {
        assert_eq!(
            play(&[
                r#">{"id":7,"method":"account/login/start","params":{"apiKey":"sk-1"}}"#,
                r#"<{"id":7,"method":"item/tool/call"}"#,
                r#"<{"id":"7","result":{}}"#,
                r#"<{"id":7,"result":{"token":"t"}}"#,
                r#"<{"id":7,"result":{}}"#,
            ]),
            [
                "omit(Secret) forward",
                "Verbatim forward",
                "Verbatim forward",
                "omit(Secret) forward",
                "omit(Secret) forward"
            ]
        );
    }

    #[test]
    fn refused_turn_does_not_move_its_thread() {
        let mut play = Play::start(settings().requests);
        let folder = |play: &Play| {
            let thread = play.0.threads.find("t").expect("BUG: the thread is known");
            let description = thread.description();
            [&description.cwd, &description.model].map(|text| text.clone().unwrap_or_default()).join(" ")
        };
        play.line(Side::Client, r#"{"id":1,"method":"thread/start","params":{}}"#);
        play.line(Side::Server, r#"{"id":1,"result":{"cwd":"/a","model":"m","thread":{"id":"t"}}}"#);
        let start = |id: u32| {
            format!(
                r#"{{"id":{id},"method":"turn/start","params":{{"threadId":"t","cwd":"/b","model":"n","input":[]}}}}"#
            )
        };
        play.line(Side::Client, &start(2));
        assert_eq!(folder(&play), "/a m");
        play.line(Side::Server, r#"{"id":2,"error":{"code":-32600,"message":"no"}}"#);
        assert_eq!(folder(&play), "/a m");
        play.line(Side::Client, &start(3));
        play.line(Side::Server, r#"{"id":3,"result":{"turn":{"id":"u"}}}"#);
        assert_eq!(folder(&play), "/b n");
        let updated = r#"{"method":"thread/settings/updated","params":{"threadId":"t","threadSettings":{"cwd":"/c"}}}"#;
        play.line(Side::Server, updated);
        assert_eq!(folder(&play), "/c n");
    }

    #[test]
    fn version_comes_from_initialize_response() {
        assert_eq!(
            play(&[
                r#">{"id":0,"method":"initialize","params":{"clientInfo":{"name":"x"}}}"#,
                r#"<{"id":0,"result":{"userAgent":"x/0.169.0 (Debian 12; x86_64) dumb (x; 1)"}}"#,
                r#"<{"id":0,"result":{"userAgent":"y/1.0.0"}}"#,
            ]),
            [
                "Verbatim forward client(x)",
                concat!(
                    r#"Verbatim forward {"event":"codex_version","data":{"version":"0.169.0","#,
                    r#""user_agent":"x/0.169.0 (Debian 12; x86_64) dumb (x; 1)"}}"#
                ),
                "Verbatim forward"
            ]
        );
    }

    /// An engine with an open session; returns effects as words.
    struct Play(Engine);

    impl Play {
        fn start(requests: RequestSettings) -> Play {
            let mut engine = Engine::new(EngineSettings { requests, ..settings() });
            let opened = Input::SessionOpened { generation: "g".to_owned() };
            engine.handle(Now { unix_us: 1, elapsed: Duration::ZERO }, opened, &mut Vec::new());
            Play(engine)
        }

        fn at(&mut self, elapsed_ms: u64, input: Input) -> String {
            let mut effects = Vec::new();
            let now = Now { unix_us: 1, elapsed: Duration::from_millis(elapsed_ms) };
            self.0.handle(now, input, &mut effects);
            effects.iter().map(in_a_word).collect::<Vec<_>>().join(" ")
        }

        fn line(&mut self, from: Side, line: &str) -> String {
            let line = Line { bytes: line.as_bytes(), end: LineEnd::Newline };
            let (now, mut effects) = (Now { unix_us: 1, elapsed: Duration::ZERO }, Vec::new());
            let decision =
                self.0.read(now, Conn::OWN, from, Incoming::Line(line), &mut effects).expect("BUG: no line is held");
            let before = decision.before.iter().map(|own| format!("send({})", String::from_utf8_lossy(&own.bytes)));
            let record = decision.record.map(|_| "record".to_owned());
            let hold = decision.hold.map(|token| format!("hold{token}"));
            let line = match decision.line {
                Passage::Forward => Some("forward".to_owned()),
                Passage::Replace(_) => Some("replace".to_owned()),
                Passage::Withhold => None,
            };
            let mark = decision.mark.map(|token| format!("mark{token}"));
            let words = effects.iter().map(in_a_word).chain(before).chain(record).chain(hold).chain(line).chain(mark);
            words.chain(decision.then.iter().map(in_a_word)).collect::<Vec<_>>().join(" ")
        }

        fn respond(&mut self, request_id: &str, body: &str) -> String {
            let request = ApiRequest::Respond {
                request_id: request_id.to_owned(),
                given: serde_json::from_str(body).expect("BUG: a test gives an answer"),
                source: RequestSource::Api,
                by: "me".to_owned(),
            };
            self.at(0, Input::ApiRequest { api_call: 9, request, server_listens: true })
        }
    }

    fn in_a_word(effect: &Effect) -> String {
        match effect {
            Effect::Order(Order::Keep(entry)) => format!("keep({})", entry_in_a_word(entry)),
            Effect::Order(Order::KeepFirst(token, entry)) => format!("first{token}({})", entry_in_a_word(entry)),
            Effect::Order(Order::Commit(token, entry)) => format!("commit{token}({})", entry_in_a_word(entry)),
            Effect::Order(Order::Read(token, entry)) => format!("read{token}({})", entry_in_a_word(entry)),
            Effect::Link(LinkEffect::Release(token)) => format!("release{token}"),
            Effect::Link(LinkEffect::Inject(injection)) => {
                let lines: Vec<String> =
                    injection.lines.iter().map(|line| String::from_utf8_lossy(&line.bytes).into_owned()).collect();
                format!("inject({})", lines.join("+"))
            }
            Effect::Link(LinkEffect::Reply(api_call, reply)) => {
                let actual = format!("{reply:?}");
                let name = actual.split(['(', ' ']).next().unwrap_or_default();
                format!("reply{api_call}({name})")
            }
            Effect::Note(_) => "note".to_owned(),
            Effect::Link(LinkEffect::Recall(token)) => format!("recall{token}"),
            Effect::Link(LinkEffect::Answer(_, line)) => format!("answer({})", String::from_utf8_lossy(&line.bytes)),
            other @ (Effect::Consult(_)
            | Effect::RunFragments(..)
            | Effect::LookAtBudget(..)
            | Effect::CheckProgram(..)
            | Effect::Link(LinkEffect::ReleaseHeld(_))
            | Effect::Link(LinkEffect::PassHeld(_))
            | Effect::Warn(_)
            | Effect::PublishConfigWarning(_)
            | Effect::NotifyPending(_)
            | Effect::Link(LinkEffect::PassLate { .. })
            | Effect::NotifyIdle(_)
            | Effect::Link(LinkEffect::Introduce(..))
            | Effect::Child(ChildEffect::CloseServerInput)
            | Effect::Child(ChildEffect::CloseClientOutput)
            | Effect::Child(ChildEffect::SignalServer(_))
            | Effect::Child(ChildEffect::KillServer)
            | Effect::Child(ChildEffect::DrainServer { .. })
            | Effect::Child(ChildEffect::Finish(_))) => format!("{other:?}").to_lowercase(),
        }
    }

    fn entry_in_a_word(entry: &LedgerEntry) -> String {
        match entry {
            LedgerEntry::RequestOpened(row) => format!("opened {}", row.request_id),
            LedgerEntry::RequestEnded(end) => format!("{} {}", end.status.name(), end.source.name()),
            LedgerEntry::AnswerLost(given) => format!("lost {}", given.source.name()),
            other @ (LedgerEntry::Sent(_)
            | LedgerEntry::Settled { .. }
            | LedgerEntry::TurnNamed { .. }
            | LedgerEntry::ThreadSeen { .. }
            | LedgerEntry::ThreadBegan { .. }
            | LedgerEntry::FragmentsSent { .. }
            | LedgerEntry::EpochShown { .. }
            | LedgerEntry::ThreadCompacted { .. }
            | LedgerEntry::RequestExpired { .. }
            | LedgerEntry::RequestDispatched { .. }
            | LedgerEntry::RequestConfirmed { .. }
            | LedgerEntry::RequestReopened { .. }
            | LedgerEntry::RequestUncertain { .. }
            | LedgerEntry::RequestLate { .. }
            | LedgerEntry::DenialOverruled(_)
            | LedgerEntry::RequestShown { .. }) => {
                format!("{other:?}").split(' ').next().unwrap_or_default().to_lowercase()
            }
        }
    }

    const ASK: &str =
        r#"{"id":0,"method":"item/commandExecution/requestApproval","params":{"threadId":"t","turnId":"u"}}"#;
    const ANSWER: &str = r#"{"id":0,"result":{"decision":"accept"}}"#;
    const RESOLVED: &str = r#"{"method":"serverRequest/resolved","params":{"threadId":"t","requestId":0}}"#;

    #[test]
    fn requests_and_answers_are_stored_before_forwarding() {
        let mut play = Play::start(RequestSettings::default());
        assert_eq!(play.line(Side::Server, ASK), "note first1(opened g-0) record hold1 forward");
        assert_eq!(play.at(1, Input::Committed { token: 1, done: true }), "release1 note");
        assert_eq!(play.line(Side::Client, ANSWER), "note first2(resolved client) record hold2 forward mark2");
        assert_eq!(play.at(1, Input::Committed { token: 2, done: true }), "release2");
        assert_eq!(play.at(1, Input::Written(2)), "keep(requestdispatched)");
        assert_eq!(play.line(Side::Client, ANSWER), "keep(lost client) record");
        assert_eq!(play.line(Side::Server, RESOLVED), "keep(requestconfirmed) record forward");
        assert_eq!(play.line(Side::Client, ANSWER), "keep(lost client) record");
    }

    /// What makes the server's question another one, or none.
    fn ends_of_the_question() -> [(&'static str, String); 4] {
        [
            ("other parameters", ASK.replace("\"u\"", "\"v\"")),
            ("another method", ASK.replace("commandExecution", "fileChange")),
            ("withdrawn", RESOLVED.to_owned()),
            ("turn over", r#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u"}}}"#.to_owned()),
        ]
    }

    /// The answer before the mark is taken back, and the row of its request ends without one.
    fn check_recall(name: &str, play: &mut Play, end: &str, mark: Token) {
        let ended = play.line(Side::Server, end);
        assert_eq!(ended.matches("recall").collect::<Vec<_>>().len(), 1, "{name}: {ended}");
        assert!(ended.contains(&format!("recall{mark}")), "{name}: {ended}");
        assert_eq!(play.at(1, Input::Recalled(mark)), "note keep(resolved server)", "{name}");
        // Whatever is reported of it later changes nothing.
        assert_eq!(play.at(1, Input::Written(mark)), "", "{name}");
        assert_eq!(play.at(1, Input::NotWritten(mark)), "", "{name}");
    }

    #[test]
    fn answer_to_another_question_is_taken_back() {
        for (name, end) in ends_of_the_question() {
            // The client's answer, before and after its commit.
            for is_stored in [false, true] {
                let mut play = Play::start(RequestSettings::default());
                play.line(Side::Server, ASK);
                play.at(0, Input::Committed { token: 1, done: true });
                play.line(Side::Client, ANSWER);
                if is_stored {
                    play.at(0, Input::Committed { token: 2, done: true });
                }
                check_recall(name, &mut play, &end, 2);
            }
            // An API caller's, and that of a client that was sent because the ledger was too slow.
            for done in [true, false] {
                let mut play = Play::start(RequestSettings::default());
                play.line(Side::Server, ASK);
                play.at(0, Input::Committed { token: 1, done: true });
                play.respond("g-0", r#"{"decision":"accept"}"#);
                play.line(Side::Client, ANSWER);
                play.at(0, Input::Committed { token: 2, done });
                check_recall(name, &mut play, &end, 3);
            }
            // Policy's: its row has ended as soon as the server wants no answer.
            let expiry = vec![(RequestType::Approval, Duration::from_millis(5))];
            let mut play = Play::start(RequestSettings { expiry, ..RequestSettings::default() });
            play.line(Side::Server, ASK);
            play.at(0, Input::Committed { token: 1, done: true });
            play.at(6, Input::Tick);
            play.at(6, Input::Committed { token: 2, done: true });
            let ended = play.line(Side::Server, &end);
            assert!(ended.contains("keep(resolved server)") && ended.contains("recall3"), "{name}: {ended}");
            assert_eq!(play.at(7, Input::Recalled(3)) + &play.at(7, Input::Written(3)), "", "{name}");
        }
    }

    #[test]
    fn answer_that_is_written_or_still_fits_is_not_taken_back() {
        let answered = || {
            let mut play = Play::start(RequestSettings::default());
            play.line(Side::Server, ASK);
            play.at(0, Input::Committed { token: 1, done: true });
            play.line(Side::Client, ANSWER);
            play
        };
        // One answer serves both.
        assert_eq!(answered().line(Side::Server, ASK), "record forward");
        for (name, end) in ends_of_the_question() {
            let mut play = answered();
            play.at(0, Input::Committed { token: 2, done: true });
            play.at(0, Input::Written(2));
            let ended = play.line(Side::Server, &end);
            assert!(!ended.contains("recall"), "{name}: {ended}");
        }
        // It was too late: the answer goes out as before.
        let mut play = answered();
        assert_eq!(play.line(Side::Server, RESOLVED), "keep(requestuncertain) recall2 record forward");
        assert_eq!(play.at(1, Input::Written(2)), "keep(requestdispatched)");
        // Nothing is written to a server that has ended.
        assert!(!answered().at(1, Input::Closed { from: Side::Server }).contains("recall"));
    }

    #[test]
    fn lost_answer_to_another_question_is_not_that_of_the_new_one() {
        let mut play = Play::start(RequestSettings::default());
        play.line(Side::Server, ASK);
        play.at(0, Input::Committed { token: 1, done: true });
        play.line(Side::Client, ANSWER);
        play.line(Side::Server, &ends_of_the_question()[0].1);
        play.line(Side::Client, ANSWER);
        play.at(1, Input::NotWritten(2));
        assert_eq!(play.line(Side::Client, ANSWER), "keep(lost client) record");
    }

    #[test]
    fn tokens_continue_after_previous_engine() {
        let mut first = Play::start(RequestSettings::default());
        first.line(Side::Server, ASK);
        let tokens_before = first.0.last_token();
        let mut second = Play(Engine::new(EngineSettings { tokens_before, ..settings() }));
        second.at(0, Input::SessionOpened { generation: "h".to_owned() });
        assert_eq!(second.line(Side::Server, ASK), "note first2(opened h-0) record hold2 forward");
        // A late event for the first engine matches nothing in the second.
        assert_eq!(second.at(1, Input::Committed { token: 1, done: true }), "");
        assert_eq!(second.at(2, Input::Committed { token: 2, done: true }), "release2 note");
    }

    #[test]
    fn hold_expires_and_releases_everything() {
        let mut play = Play::start(RequestSettings::default());
        play.line(Side::Server, ASK);
        assert_eq!(play.0.next_deadline(), Some(Duration::from_millis(250)));
        assert_eq!(play.at(250, Input::Tick), "release1 keep(requestlate)");
        assert_eq!(play.line(Side::Client, ANSWER), "note first2(resolved client) record forward mark2");
        assert_eq!(play.at(251, Input::Committed { token: 1, done: true }), "note");
        let next = ASK.replace("\"id\":0", "\"id\":1");
        assert_eq!(play.line(Side::Server, &next), "note first3(opened g-1) record hold3 forward");
        assert_eq!(play.at(252, Input::Committed { token: 3, done: false }), "release3 keep(requestlate)");
    }

    #[test]
    fn api_answer_is_sent_after_commit() {
        let mut play = Play::start(RequestSettings::default());
        play.line(Side::Server, ASK);
        assert_eq!(play.respond("g-0", r#"{"decision":"maybe"}"#), "reply9(Invalid)");
        assert_eq!(play.respond("g-7", r#"{"decision":"accept"}"#), "reply9(NotOpen)");
        assert_eq!(play.respond("g-0", r#"{"decision":"accept"}"#), "commit2(resolved api)");
        assert_eq!(play.line(Side::Client, ANSWER), "record");
        assert_eq!(
            play.at(1, Input::Committed { token: 2, done: true }),
            r#"keep(lost client) note inject({"id":0,"result":{"decision":"accept"}}) reply9(Kept)"#
        );
        assert_eq!(play.respond("g-0", r#"{"decision":"decline"}"#), "reply9(NotOpen)");
    }

    #[test]
    fn uncommitted_api_answer_yields_to_client() {
        let mut play = Play::start(RequestSettings::default());
        play.line(Side::Server, ASK);
        play.respond("g-0", r#"{"decision":"decline"}"#);
        play.line(Side::Client, ANSWER);
        let inject = format!("inject({ANSWER})");
        assert_eq!(
            play.at(1, Input::Committed { token: 2, done: false }),
            format!("reply9(NotKept) note keep(resolved client) {inject}")
        );
    }

    #[test]
    fn second_client_answer_is_stored_as_lost() {
        let mut play = Play::start(RequestSettings::default());
        play.line(Side::Server, ASK);
        play.respond("g-0", r#"{"decision":"decline"}"#);
        play.line(Side::Client, ANSWER);
        play.line(Side::Server, RESOLVED);
        assert_eq!(
            play.at(1, Input::Committed { token: 2, done: false }),
            "reply9(NotKept) keep(lost client) note keep(resolved server)"
        );
    }

    /// The server asks again after an answer, policy answers the second row, and only then the server confirms the first.
    #[test]
    fn policy_answer_on_its_way_is_the_only_one() {
        let expiry = vec![(RequestType::Approval, Duration::from_millis(5))];
        let mut play = Play::start(RequestSettings { expiry, ..RequestSettings::default() });
        play.line(Side::Server, ASK);
        play.at(0, Input::Committed { token: 1, done: true });
        play.line(Side::Client, ANSWER);
        play.at(0, Input::Committed { token: 2, done: true });
        play.at(0, Input::Written(2));
        assert_eq!(play.line(Side::Server, ASK), "note first3(opened g-0.2) record hold3 forward");
        play.at(0, Input::Committed { token: 3, done: true });
        assert_eq!(play.at(6, Input::Tick), "first4(requestexpired)");
        let by_policy = play.at(6, Input::Committed { token: 4, done: true });
        assert!(by_policy.contains(r#"inject({"id":0,"result":{"decision":"decline"}})"#), "{by_policy}");
        assert_eq!(play.line(Side::Server, RESOLVED), "keep(requestconfirmed) record forward");
        assert_eq!(play.line(Side::Client, ANSWER), "keep(lost client) record");
        assert_eq!(play.at(7, Input::Written(5)), "note keep(resolved policy) keep(requestdispatched)");
    }

    #[test]
    fn command_for_a_person_does_not_expire() {
        let expiry = vec![(RequestType::Approval, Duration::from_millis(5))];
        let mut play = Play::start(RequestSettings { expiry, ..RequestSettings::default() });
        let ask = |kind: &str| {
            let params = format!(r#"{{"threadId":"t","turnId":"u","itemId":"i","command":"ls","kind":"{kind}"}}"#);
            format!(r#"{{"id":0,"method":"item/commandExecution/requestApproval","params":{params}}}"#)
        };
        play.line(Side::Server, &ask("humanCommand"));
        play.at(0, Input::Committed { token: 1, done: true });
        assert_eq!(play.at(60_000, Input::Tick), "");
        play.line(Side::Server, RESOLVED);
        play.line(Side::Server, &ask("writeStdin"));
        play.at(60_000, Input::Committed { token: 2, done: true });
        assert_eq!(play.at(60_005, Input::Tick), "first3(requestexpired)");
    }

    #[test]
    fn the_oldest_expires_first() {
        let expiry = vec![(RequestType::Approval, Duration::from_millis(5))];
        let mut play = Play::start(RequestSettings { expiry, ..RequestSettings::default() });
        for id in 0..8 {
            let asked = ASK.replace("\"id\":0", &format!("\"id\":{id}"));
            let line = Line { bytes: asked.as_bytes(), end: LineEnd::Newline };
            let now = Now { unix_us: 1 + id, elapsed: Duration::ZERO };
            play.0.read(now, Conn::OWN, Side::Server, Incoming::Line(line), &mut Vec::new());
        }
        let mut effects = Vec::new();
        play.0.handle(Now { unix_us: 10, elapsed: Duration::from_millis(5) }, Input::Tick, &mut effects);
        let expired: Vec<&str> = effects
            .iter()
            .filter_map(|effect| {
                if let Effect::Order(Order::KeepFirst(_, LedgerEntry::RequestExpired { request_id, .. })) = effect {
                    Some(request_id.as_str())
                } else {
                    None
                }
            })
            .collect();
        assert_eq!(expired, ["g-0", "g-1", "g-2", "g-3", "g-4", "g-5", "g-6", "g-7"]);
    }

    #[test]
    fn decline_reason_is_sent_now_or_next_turn() {
        let mut play = Play::start(RequestSettings::default());
        play.line(Side::Server, ASK);
        play.respond("g-0", r#"{"decision":"decline","reason":"no"}"#);
        let actual = play.at(1, Input::Committed { token: 2, done: true });
        assert!(actual.contains(r#"{"decision":"decline"}}+{"id":"codex-shim:1","method":"turn/steer""#), "{actual}");
        assert_eq!(play.line(Side::Server, r#"{"id":"codex-shim:1","error":{"code":-32600}}"#), "record");
        let turn = r#"{"id":5,"method":"turn/start","params":{"threadId":"t","input":[]}}"#;
        let actual = play.line(Side::Client, turn);
        assert!(actual.starts_with("send(") && actual.contains("thread/inject_items"), "{actual}");
        assert_eq!(play.line(Side::Client, turn), "record forward");
    }

    #[test]
    fn api_callers_learn_of_server_end() {
        let mut play = Play::start(RequestSettings { hold: true, ..RequestSettings::default() });
        assert_eq!(play.line(Side::Server, ASK), "note first1(opened g-0) record");
        assert_eq!(play.0.requests_pending(), 1);
        let actual = play.at(1, Input::Closed { from: Side::Server });
        assert!(actual.starts_with("note keep(orphaned policy)"), "{actual}");
        assert_eq!(play.0.requests_pending(), 0);
    }
}
