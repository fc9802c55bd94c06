//! Requests on which a rule of the user decides.
//!
//! Such a request is not forwarded to the client, because it would show a dialog that closes at once. A rule that declines
//! answers immediately, and one that accepts once the folder and the program are checked. The answer is stored before it is
//! sent, as every answer is, and the first answer wins, as always. If the check fails or takes too long, or if the answer
//! cannot be stored, the rule gives up, and the client gets the request.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answer::{self, CheckedAnswer};
use super::items::About;
use super::kind::RequestKind;
use super::open::{Commit, Decider, Deciding, Request, RequestState, Withheld};
use super::{HOLD_MAX, RequestSettings, Requests, read, response_line};
use crate::engine::attached_client::Clients;
use crate::engine::model::{
    ApiReply, Decision, Effect, GivenRow, LedgerEntry, LinkEffect, Note, Now, Order, RequestEnd, RequestSource,
    RequestStatus, Token,
};
use crate::engine::rules::{Asked, Decides, InThread, ProgramCheck, RuleAction, ruling};
use crate::invariants::holds;
use crate::protocol::{ItemPlace, Word};
use crate::wire::{Conn, Message, RpcId};

/// How long the client waits for a request while a rule is at work.
const RULE_MAX: Duration = HOLD_MAX;

/// The decision of the rules on a request.
#[derive(Debug, Default)]
pub(super) struct RuledRequest {
    by: Option<RuledBy>,
    /// Names of the rules that the request bars, and why.
    barred: Vec<(String, String)>,
}

#[derive(Debug)]
enum RuledBy {
    Accept { name: String, check: Box<ProgramCheck> },
    Decline { name: String, reason: Option<String> },
    Hold { name: String },
}

const NOTHING_DECIDED: &str = "codex-shim has found a defect in itself, and decides nothing any more";

const MOVED: &str = "where models may write has changed during the check";

/// A rule that is at work.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ruled {
    name: String,
    /// The check that it waits for; without one, its answer is being stored.
    check: Option<Token>,
    /// The revision of the places that the check knows.
    places: u64,
    due: Duration,
}

impl Ruled {
    pub(super) fn check_token(&self) -> Option<Token> {
        self.check
    }

    /// Whether its program is being checked.
    pub(super) fn waits_for_check(&self) -> bool {
        self.check.is_some()
    }
}

/// A rule that has given an answer.
#[derive(Debug)]
pub(super) struct AppliedRule {
    name: String,
    action: RuleAction,
    /// The file of the program that it accepted.
    program: Option<String>,
}

impl RuledRequest {
    pub(super) fn holds(&self) -> bool {
        matches!(self.by, Some(RuledBy::Hold { .. }))
    }

    /// Whether a rule may answer.
    pub(super) fn answers(&self) -> bool {
        matches!(self.by, Some(RuledBy::Accept { .. } | RuledBy::Decline { .. }))
    }

    pub(super) fn rule_name(&self) -> Option<String> {
        match self.by.as_ref()? {
            RuledBy::Accept { name, .. } | RuledBy::Decline { name, .. } | RuledBy::Hold { name } => Some(name.clone()),
        }
    }
}

impl AppliedRule {
    /// Its name in the ledger.
    pub(super) fn by(&self) -> String {
        format!("rule:{}", self.name)
    }
}

impl Decider {
    pub(super) fn source(&self) -> RequestSource {
        match self {
            Decider::Api(_, source) => *source,
            Decider::Rule(_) => RequestSource::Policy,
        }
    }

    pub(super) fn reply(&self, reply: ApiReply, effects: &mut Vec<Effect>) {
        match self {
            Decider::Api(api_call, _) => effects.push(Effect::Link(LinkEffect::Reply(*api_call, reply))),
            Decider::Rule(_) => {}
        }
    }

    pub(super) fn rule_applied(&self, request_id: &str) -> Option<Effect> {
        match self {
            Decider::Api(..) => None,
            Decider::Rule(AppliedRule { name, action, program }) => Some(Effect::Note(Note::RuleApplied {
                request_id: request_id.to_owned(),
                rule: name.clone(),
                action: action.name(),
                program: program.clone(),
            })),
        }
    }
}

impl Request {
    /// The accept of a rule is being stored, and the server still wants an answer.
    fn is_being_accepted(&self) -> bool {
        let is_accept = |decider: &Decider| match decider {
            Decider::Rule(rule) => rule.action == RuleAction::Accept,
            Decider::Api(..) => false,
        };
        matches!(&self.state, RequestState::Deciding(deciding) if is_accept(&deciding.decider) && deciding.over.is_none())
    }

    /// The answer of a rule is being stored, and the server still wants one.
    fn is_being_ruled(&self) -> bool {
        let is_rule = |decider: &Decider| match decider {
            Decider::Rule(_) => true,
            Decider::Api(..) => false,
        };
        matches!(&self.state, RequestState::Deciding(deciding) if is_rule(&deciding.decider) && deciding.over.is_none())
    }

    /// The token of the check of its program, or 0.
    pub(super) fn check_token(&self) -> Token {
        self.rule.as_deref().and_then(Ruled::check_token).unwrap_or_default()
    }

    pub(super) fn rule_due(&self) -> Option<Duration> {
        self.rule.as_ref().map(|rule| rule.due)
    }

    /// The line of a rule's answer.
    pub(super) fn ruled_answer(&self) -> Option<Vec<u8>> {
        let end = self.end.as_ref().filter(|end| end.source == RequestSource::Policy)?;
        let result: Value = serde_json::from_str(end.payload.as_deref()?).ok()?;
        Some(response_line(&self.row.rpc_request_id, &result))
    }

    /// The request has an answer, so its line is not needed any more.
    pub(super) fn is_ruled(&mut self) {
        self.rule = None;
        if self.withheld.is_some() {
            self.withheld = Some(Withheld::Kept);
        }
    }

    /// Its row is stored and no rule is at work: the client gets its line, unless it is held.
    pub(super) fn settle(&mut self, clients: &Clients, effects: &mut Vec<Effect>) {
        let is_open = matches!(self.state, RequestState::Pending | RequestState::Deciding(_) | RequestState::Expired);
        match self.withheld.take() {
            Some(Withheld::Until(line)) if is_open && !self.is_held => {
                let conns: Vec<Conn> = self.conns.iter().copied().filter(|conn| clients.listens(*conn)).collect();
                if !conns.is_empty() {
                    effects.push(Effect::Link(LinkEffect::PassLate { conns, line }));
                }
            }
            // Once nothing is decided any more, the client gets it after all.
            Some(withheld @ Withheld::Until(_)) if is_open => self.withheld = Some(withheld),
            withheld => self.withheld = withheld.map(|_| Withheld::Kept),
        }
    }
}

impl Requests {
    /// The decision of the rules on a request. There is none if the ledger is not usable, because an answer could not be stored.
    pub(super) fn ruling(
        &self,
        kind: RequestKind,
        message: &Message<'_>,
        shown: &Value,
        about: About<'_>,
    ) -> RuledRequest {
        if self.settings.rules.is_empty() || !self.is_trusted {
            return RuledRequest::default();
        }
        let changes = about.changes.map(read);
        let Some(mut asked) = Asked::of(kind, message.params, shown, changes.as_ref()) else {
            return RuledRequest::default();
        };
        let thread_id = ItemPlace::of(message.params).thread_id;
        let asks_about_input = self.asks_about_input;
        asked.is_in(|| InThread { workspace: self.workspaces.of(thread_id.as_deref()), asks_about_input });
        if message.repeated_member {
            asked.bar("a member of the request is repeated");
        }
        let found = ruling(&self.settings.rules, &asked);
        let barred = found.barred.into_iter().map(|(rule, why)| (rule.name.clone(), why)).collect();
        let by = found.rule.map(|(rule, decides)| {
            let name = rule.name.clone();
            match decides {
                Decides::Accept(check) => RuledBy::Accept { name, check },
                Decides::Decline { reason } => RuledBy::Decline { name, reason: reason.map(str::to_owned) },
                Decides::Hold => RuledBy::Hold { name },
            }
        });
        RuledRequest { by, barred }
    }

    /// Carries out the decision of the rules on an open request. The notes follow the request's line in the record.
    pub(super) fn rule_begins(
        &mut self,
        now: Now,
        id: &RpcId,
        ruled: RuledRequest,
        decision: &mut Decision,
        effects: &mut Vec<Effect>,
    ) {
        let Some(request) = self.open.get_mut(id) else { return };
        let request_id = request.row.request_id.clone();
        decision.then.extend(ruled.barred.into_iter().map(|(rule, reason)| refused(&request_id, rule, reason)));
        let due = now.elapsed + RULE_MAX;
        match ruled.by {
            None => {}
            Some(RuledBy::Hold { name }) => {
                let action = RuleAction::Hold.name();
                decision.then.push(Effect::Note(Note::RuleApplied { request_id, rule: name, action, program: None }));
            }
            Some(RuledBy::Accept { name, check }) => {
                self.tokens += 1;
                request.rule =
                    Some(Box::new(Ruled { name, check: Some(self.tokens), places: self.workspaces.revision(), due }));
                effects.push(Effect::CheckProgram(self.tokens, check));
            }
            Some(RuledBy::Decline { name, reason }) => {
                request.rule = Some(Box::new(Ruled { name: name.clone(), check: None, places: 0, due }));
                let Some(result) = answer::by_policy(request.kind, &request.row.method) else { return };
                let answer = CheckedAnswer { result, reason, is_cancel: false };
                let rule = AppliedRule { name, action: RuleAction::Decline, program: None };
                self.rule_answers(now, id, rule, answer, effects);
            }
        }
    }

    /// The folder and the program of an accepted command were checked.
    pub(in crate::engine) fn program_checked(
        &mut self,
        now: Now,
        token: Token,
        checked: Result<String, String>,
        clients: &Clients,
        effects: &mut Vec<Effect>,
    ) {
        self.rules_tick(now, clients, effects);
        let waits = |request: &Request| request.rule.as_ref().is_some_and(|rule| rule.check == Some(token));
        let Some(id) = self.ids_where(waits).into_iter().next() else { return };
        let Some(request) = self.open.get_mut(&id) else { return };
        let Some(rule) = &mut request.rule else { return };
        rule.check = None;
        let (name, thread_id) = (rule.name.clone(), request.row.place.thread_id.as_deref());
        let checked = checked.and_then(|program| match self.workspaces.of(thread_id) {
            Ok(_) if rule.places == self.workspaces.revision() => Ok(program),
            Ok(_) => Err(MOVED.to_owned()),
            Err(why) => Err(why),
        });
        match checked {
            // Somebody else has answered meanwhile.
            _ if !matches!(request.state, RequestState::Pending) => request.rule = None,
            Ok(program) => {
                let result = json!({ "decision": Word::Accept.in_answer_to(&request.row.method) });
                let answer = CheckedAnswer { result, reason: None, is_cancel: false };
                let rule = AppliedRule { name, action: RuleAction::Accept, program: Some(program) };
                self.rule_answers(now, &id, rule, answer, effects);
            }
            Err(reason) => {
                effects.push(refused(&request.row.request_id, name, reason));
                self.rule_gives_up(now, &id, clients, effects);
            }
        }
    }

    /// Stores the answer of a rule, which is sent once it is stored.
    fn rule_answers(
        &mut self,
        now: Now,
        id: &RpcId,
        rule: AppliedRule,
        answer: CheckedAnswer,
        effects: &mut Vec<Effect>,
    ) {
        let Some(request) = self.open.get_mut(id) else { return };
        let given = GivenRow {
            request_id: request.row.request_id.clone(),
            at_us: now.unix_us,
            source: RequestSource::Policy,
            by: rule.by(),
            payload: answer.result.to_string(),
        };
        let (program, reason) = (rule.program.clone(), answer.reason.clone());
        let end = RequestEnd { program, reason, ..RequestEnd::answered(given, RequestStatus::Resolved) };
        request.end = Some(Box::new(end.clone()));
        let deciding = Deciding {
            decider: Decider::Rule(rule),
            answer,
            by: String::new(),
            runner_up: None,
            runner_up_due: None,
            over: None,
        };
        holds!("requests.rule-answers-what-waits", matches!(request.state, RequestState::Pending));
        request.state = RequestState::Deciding(Box::new(deciding));
        let token = self.token(Commit::Decides(id.clone()));
        effects.push(Effect::Order(Order::Commit(token, LedgerEntry::RequestEnded(Box::new(end)))));
    }

    /// Nobody but the client and API callers decides on the request any more.
    pub(super) fn rule_gives_up(&mut self, now: Now, id: &RpcId, clients: &Clients, effects: &mut Vec<Effect>) {
        let Some(request) = self.open.get(id) else { return };
        let (kind, request_id) = (request.kind, request.row.request_id.clone());
        let is_stored = !self
            .commits
            .values()
            .any(|commit| matches!(commit, Commit::Opens { request_id: opened } if *opened == request_id));
        let notify_at = self.notify_at(now, kind);
        let Some(request) = self.open.get_mut(id) else { return };
        if request.rule.take().is_some() {
            request.notify_at = notify_at;
        }
        if matches!(request.state, RequestState::Pending) {
            request.end = None;
        }
        if is_stored && matches!(request.withheld, Some(Withheld::Until(_))) {
            request.settle(clients, effects);
        }
    }

    /// Nothing but clients decides any more, besides API callers whose answers are being stored: all that is withheld goes to the clients.
    pub(in crate::engine) fn decide_nothing(&mut self, now: Now, clients: &Clients, effects: &mut Vec<Effect>) {
        self.settings = RequestSettings { notify_after: self.settings.notify_after, ..RequestSettings::default() };
        // A rule that gives up does not mean here that the ledger is too slow.
        let is_trusted = self.is_trusted;
        for id in self.ids_where(|request| !request.is_ours) {
            let Some(request) = self.open.get_mut(&id) else { continue };
            (request.expires_at, request.is_held) = (None, false);
            if let Some(rule) = &request.rule {
                effects.push(refused(&request.row.request_id, rule.name.clone(), NOTHING_DECIDED.to_owned()));
            }
            if request.is_being_ruled() {
                self.give_up_storing(&id, effects);
            }
            self.rule_gives_up(now, &id, clients, effects);
        }
        self.is_trusted = is_trusted;
    }

    /// Ends the work of rules that take too long. A decline that is being stored still counts if it is stored before another
    /// answer. An accept does not, because the program may have changed since its check.
    pub(super) fn rules_tick(&mut self, now: Now, clients: &Clients, effects: &mut Vec<Effect>) {
        for id in self.ids_where(|request| request.rule_due().is_some_and(|due| due <= now.elapsed)) {
            let Some(request) = self.open.get_mut(&id) else { continue };
            if let Some(rule) = &request.rule {
                let what = if rule.check.is_some() { "the check of its program" } else { "to store its answer" };
                let reason = format!("{what} took over {} ms", RULE_MAX.as_millis());
                effects.push(refused(&request.row.request_id, rule.name.clone(), reason));
            }
            if request.is_being_accepted() {
                self.give_up_storing(&id, effects);
            }
            self.rule_gives_up(now, &id, clients, effects);
        }
    }
}

fn refused(request_id: &str, rule: String, reason: String) -> Effect {
    Effect::Note(Note::RuleRefused { request_id: request_id.to_owned(), rule, reason })
}

#[cfg(test)]
mod tests {
    use super::super::RequestSettings;
    use super::*;
    use crate::engine::model::{ApiRequest, Incoming, Passage};
    use crate::engine::rules::{Does, ExactCommand, Matcher, Rule, Trust, Words};
    use crate::engine::{
        AssemblySettings, ContextSettings, Engine, EngineSettings, Input, Peer, ServerOwner, Transport,
    };
    use crate::wire::{Line, LineEnd, Side};

    const ASK: &str = r#"{"id":0,"method":"item/commandExecution/requestApproval","params":{"threadId":"t","turnId":"u","itemId":"i","command":"/bin/bash -lc '/bin/ls -l'","cwd":"/p"}}"#;
    const REMOVE: &str = r#"{"id":0,"method":"item/commandExecution/requestApproval","params":{"threadId":"t","turnId":"u","itemId":"i","command":"/bin/bash -lc 'rm -rf x'","cwd":"/p"}}"#;
    const OTHER: &str = r#"{"id":0,"method":"item/commandExecution/requestApproval","params":{"threadId":"t","turnId":"u","itemId":"i","command":"/bin/bash -lc make","cwd":"/p"}}"#;
    const MORE: &str = r#"{"id":0,"method":"item/commandExecution/requestApproval","params":{"threadId":"t","turnId":"u","itemId":"i","command":"/bin/bash -lc '/bin/ls -l'","cwd":"/p","networkApprovalContext":{}}}"#;
    const THREAD: &str = r#"{"thread":{"id":"t"},"cwd":"/p","sandbox":{"type":"workspaceWrite","writableRoots":[]}}"#;
    const RESOLVED: &str = r#"{"method":"serverRequest/resolved","params":{"threadId":"t","requestId":0}}"#;
    const ACCEPT: &str = r#"{"id":0,"result":{"decision":"accept"}}"#;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn rules() -> Vec<Rule> {
        let status = ExactCommand::new(words(&["/bin/ls", "-l"]), "/p".to_owned(), Trust::default(), None)
            .expect("BUG: it can be accepted");
        let first = |name: &str| Matcher::Command { argv: Some(Words::First(words(&[name]))), cwd: None };
        vec![
            Rule { name: "status".to_owned(), does: Does::Accept(status) },
            Rule {
                name: "no rm".to_owned(),
                does: Does::Decline { of: first("rm"), reason: Some("use make clean".to_owned()) },
            },
            Rule { name: "make".to_owned(), does: Does::Hold { of: first("make") } },
        ]
    }

    struct Play(Engine);

    impl Play {
        fn start(settings: RequestSettings) -> Play {
            Play::of(ServerOwner::Client, settings)
        }

        /// A hub with two clients.
        fn hub() -> Play {
            let mut play = Play::of(ServerOwner::Hub, RequestSettings::default());
            for conn in 0..3 {
                let peer =
                    Peer { transport: Transport::WebSocket, pid: None, terminal: None, variables: Default::default() };
                play.at(0, Input::Connected { conn: Conn(conn), peer });
            }
            play.at(0, Input::Remembered(Box::default()));
            play
        }

        fn of(server_owner: ServerOwner, settings: RequestSettings) -> Play {
            let mut engine = Engine::new(EngineSettings {
                budget: Default::default(),
                exit_grace: Duration::from_secs(10),
                context: ContextSettings::default(),
                assembly: AssemblySettings::default(),
                requests: RequestSettings { rules: rules(), ..settings },
                server_owner,
                own_ids: "codex-shim:".to_owned(),
                tokens_before: 0,
            });
            let opened = Input::SessionOpened { generation: "g".to_owned() };
            engine.handle(now(0), opened, &mut Vec::new());
            engine.requests.server_is(Some("0.169.0"));
            engine.requests.thread_opened(serde_json::from_str(THREAD).ok());
            Play(engine)
        }

        fn at(&mut self, elapsed_ms: u64, input: Input) -> String {
            let mut effects = Vec::new();
            self.0.handle(now(elapsed_ms), input, &mut effects);
            effects.iter().map(in_words).collect::<Vec<_>>().join(" ")
        }

        fn line(&mut self, from: Side, line: &str) -> String {
            self.line_on(0, from, line)
        }

        fn line_on(&mut self, conn: u32, from: Side, line: &str) -> String {
            self.line_on_at(0, conn, from, line)
        }

        fn line_at(&mut self, elapsed_ms: u64, from: Side, line: &str) -> String {
            self.line_on_at(elapsed_ms, 0, from, line)
        }

        fn line_on_at(&mut self, elapsed_ms: u64, conn: u32, from: Side, line: &str) -> String {
            let mut effects = Vec::new();
            let line = Line { bytes: line.as_bytes(), end: LineEnd::Newline };
            let decision = self.0.read(now(elapsed_ms), Conn(conn), from, Incoming::Line(line), &mut effects);
            let decision = decision.expect("BUG: no line is held");
            let passes = match decision.line {
                Passage::Forward => "forward",
                Passage::Replace(_) => "replace",
                Passage::Withhold => "withhold",
            };
            let hold = decision.hold.map(|token| format!("hold{token}"));
            let words = effects.iter().map(in_words).chain(hold).chain([passes.to_owned()]);
            words.chain(decision.then.iter().map(in_words)).collect::<Vec<_>>().join(" ")
        }

        fn committed(&mut self, token: Token, done: bool) -> String {
            self.at(1, Input::Committed { token, done })
        }

        fn checked(&mut self, token: Token, checked: Result<&str, &str>) -> String {
            let checked = checked.map(str::to_owned).map_err(str::to_owned);
            self.at(2, Input::ProgramChecked { token, checked })
        }

        fn respond(&mut self) -> String {
            let request = ApiRequest::Respond {
                request_id: "g-0".to_owned(),
                given: Box::new(serde_json::from_str(r#"{"decision":"decline"}"#).expect("BUG: it is an answer")),
                source: RequestSource::Api,
                by: "me".to_owned(),
            };
            self.at(1, Input::ApiRequest { api_call: 9, request, server_listens: true })
        }
    }

    fn now(elapsed_ms: u64) -> Now {
        Now { unix_us: 1, elapsed: Duration::from_millis(elapsed_ms) }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "other effects are shown in debug form")]
    fn in_words(effect: &Effect) -> String {
        let entry = |entry: &LedgerEntry| match entry {
            LedgerEntry::RequestOpened(row) => format!("opened by {}", row.rule.as_deref().unwrap_or("-")),
            LedgerEntry::RequestEnded(end) => {
                let by = end.by.as_deref().unwrap_or("-");
                let instead = if end.instead { " instead" } else { "" };
                let program = end.program.as_deref().unwrap_or("-");
                format!("{} {} {by} {program}{instead}", end.status.name(), end.source.name())
            }
            other => format!("{other:?}").split([' ', '(']).next().unwrap_or_default().to_lowercase(),
        };
        match effect {
            Effect::Order(Order::Keep(kept)) => format!("keep({})", entry(kept)),
            Effect::Order(Order::KeepFirst(token, kept)) => format!("first{token}({})", entry(kept)),
            Effect::Order(Order::Commit(token, kept)) => format!("commit{token}({})", entry(kept)),
            Effect::Link(LinkEffect::Release(token)) => format!("release{token}"),
            Effect::CheckProgram(token, check) => format!("check{token}({})", check.command.argv().join(" ")),
            Effect::Link(LinkEffect::Inject(injection)) => {
                let lines: Vec<_> = injection.lines.iter().map(|line| String::from_utf8_lossy(&line.bytes)).collect();
                format!("inject({})", lines.join("+"))
            }
            Effect::Link(LinkEffect::PassLate { conns, .. }) => {
                format!("late{}", conns.iter().map(|conn| conn.0.to_string()).collect::<Vec<_>>().join("+"))
            }
            Effect::Link(LinkEffect::Reply(_, reply)) => format!("reply({reply:?})").to_lowercase(),
            Effect::Note(Note::RuleApplied { rule, action, .. }) => format!("applied({action} {rule})"),
            Effect::Note(Note::RuleRefused { rule, reason, .. }) => format!("refused({rule}: {reason})"),
            Effect::Note(Note::RequestOpened { held, .. }) => if *held { "asks-held" } else { "asks" }.to_owned(),
            Effect::Note(_) => "note".to_owned(),
            other => format!("{other:?}").to_lowercase(),
        }
    }

    #[test]
    fn accepted_command_is_checked_stored_and_answered() {
        let mut play = Play::start(RequestSettings::default());
        assert_eq!(play.line(Side::Server, ASK), "asks-held first1(opened by status) check2(/bin/ls -l) withhold");
        assert_eq!(play.committed(1, true), "release1 note");
        assert_eq!(play.checked(2, Ok("/usr/bin/ls")), "commit3(resolved policy rule:status /usr/bin/ls)");
        assert_eq!(
            play.committed(3, true),
            r#"note applied(accept status) inject({"id":0,"result":{"decision":"accept"}})"#
        );
        assert_eq!(play.at(3, Input::Written(4)), "keep(requestdispatched)");
        assert_eq!(play.line(Side::Server, RESOLVED), "keep(requestconfirmed) forward");
    }

    #[test]
    fn refused_check_asks_the_client_once_the_row_is_stored() {
        let mut play = Play::start(RequestSettings::default());
        play.line(Side::Server, ASK);
        assert_eq!(play.checked(2, Err("no")), "refused(status: no)");
        assert_eq!(play.committed(1, true), "release1 note late0");
        let mut play = Play::start(RequestSettings::default());
        play.line(Side::Server, ASK);
        play.committed(1, true);
        assert_eq!(play.checked(2, Err("no")), "refused(status: no) late0");
        assert!(play.line(Side::Client, ACCEPT).starts_with("note first3(resolved client"));
        assert_eq!(play.checked(2, Ok("/usr/bin/ls")), "");
    }

    /// A check knows the places of its beginning.
    #[test]
    fn check_counts_only_if_no_model_may_write_elsewhere_since() {
        let other = |sandbox: &str| THREAD.replace(r#""id":"t""#, r#""id":"o""#).replace("\"workspaceWrite\"", sandbox);
        for (thread, expect) in [
            (THREAD.to_owned(), None),
            (other("\"workspaceWrite\""), None),
            (other("\"workspaceWrite\"").replace("\"/p\"", "\"/q\""), Some(MOVED)),
            (other("\"workspaceWrite\"").replace("[]", "[\"/r\"]"), Some(MOVED)),
            (other("\"new\""), Some("the folder or the sandbox of a thread is not known")),
            (other("\"dangerFullAccess\""), Some("the model of a thread may write everywhere")),
        ] {
            let mut play = Play::start(RequestSettings::default());
            play.line(Side::Server, ASK);
            play.committed(1, true);
            play.0.requests.thread_opened(serde_json::from_str(&thread).ok());
            let actual = play.checked(2, Ok("/usr/bin/ls"));
            match expect {
                None => assert!(actual.starts_with("commit3(resolved policy"), "{thread}: {actual}"),
                Some(why) => assert!(actual.starts_with(&format!("refused(status: {why}")), "{thread}: {actual}"),
            }
        }
    }

    #[test]
    fn slow_check_asks_the_client_and_counts_no_more() {
        let mut play = Play::start(RequestSettings::default());
        play.line(Side::Server, ASK);
        play.committed(1, true);
        assert_eq!(play.0.next_deadline(), Some(RULE_MAX));
        assert_eq!(play.at(250, Input::Tick), "refused(status: the check of its program took over 250 ms) late0");
        assert_eq!(play.checked(2, Ok("/usr/bin/ls")), "");
    }

    #[test]
    fn declined_command_gives_its_reason_to_the_model() {
        let mut play = Play::start(RequestSettings::default());
        assert_eq!(
            play.line(Side::Server, REMOVE),
            "asks-held first1(opened by no rm) commit2(resolved policy rule:no rm -) withhold"
        );
        play.committed(1, true);
        let sent = play.committed(2, true);
        assert!(
            sent.starts_with(r#"note applied(decline no rm) inject({"id":0,"result":{"decision":"decline"}}"#),
            "{sent}"
        );
        assert!(sent.contains("turn/steer") && sent.contains("use make clean"), "{sent}");
    }

    #[test]
    fn held_request_is_for_api_callers_alone() {
        let mut play = Play::start(RequestSettings::default());
        assert_eq!(play.line(Side::Server, OTHER), "asks-held first1(opened by make) withhold applied(hold make)");
        assert_eq!(play.committed(1, true), "release1 note");
        assert_eq!(play.respond(), "commit2(resolved api me -)");
    }

    #[test]
    fn dangerous_extra_asks_the_client() {
        let mut play = Play::start(RequestSettings::default());
        let actual = play.line(Side::Server, MORE);
        assert!(actual.starts_with("asks first1(opened by -) hold1 forward refused(status: "), "{actual}");
    }

    #[test]
    fn answer_that_cannot_be_stored_is_not_sent() {
        let mut play = Play::start(RequestSettings::default());
        play.line(Side::Server, REMOVE);
        play.committed(1, true);
        assert_eq!(play.committed(2, false), "late0");
        // The ledger is not trusted until a commit succeeds, so rules are silent.
        let again = REMOVE.replace("\"id\":0", "\"id\":1");
        assert!(play.line(Side::Server, &again).ends_with("forward"));
        let mut play = Play::start(RequestSettings::default());
        play.line(Side::Server, REMOVE);
        assert_eq!(play.committed(1, false), "release1 late0 keep(requestlate)");
    }

    #[test]
    fn slow_ledger_asks_the_client_and_the_first_answer_wins() {
        let mut play = Play::start(RequestSettings::default());
        play.line(Side::Server, REMOVE);
        play.committed(1, true);
        assert_eq!(play.at(250, Input::Tick), "refused(no rm: to store its answer took over 250 ms) late0");
        assert_eq!(play.line(Side::Client, ACCEPT), "withhold");
        let sent = play.committed(2, true);
        assert!(sent.starts_with("keep(answerlost) note applied(decline no rm) inject("), "{sent}");
    }

    #[test]
    fn accept_that_is_stored_late_is_not_sent() {
        let hung = || {
            let mut play = Play::start(RequestSettings::default());
            play.line(Side::Server, ASK);
            play.committed(1, true);
            play.checked(2, Ok("/usr/bin/ls"));
            play
        };
        let given_up = "refused(status: to store its answer took over 250 ms) keep(requestreopened) late0";
        let mut play = hung();
        assert_eq!(play.at(250, Input::Tick), given_up);
        assert_eq!(play.committed(3, true), "");
        let answered = play.line(Side::Client, ACCEPT);
        assert_eq!(answered, "note first4(resolved client client - instead) hold4 forward");
        // The commit itself may be what ends the wait.
        let mut play = hung();
        assert_eq!(play.at(900, Input::Committed { token: 3, done: true }), given_up);
        assert_eq!(play.line(Side::Server, RESOLVED), "note keep(resolved server - - instead) forward");
        let mut play = hung();
        play.at(250, Input::Tick);
        assert_eq!(play.respond(), "commit4(resolved api me - instead)");
        assert!(play.committed(4, true).contains("\"decision\":\"decline\""));
        // A check that ends late.
        let mut play = Play::start(RequestSettings::default());
        play.line(Side::Server, ASK);
        play.committed(1, true);
        let checked = Input::ProgramChecked { token: 2, checked: Ok("/usr/bin/ls".to_owned()) };
        assert_eq!(play.at(900, checked), "refused(status: the check of its program took over 250 ms) late0");
    }

    #[test]
    fn answer_waits_for_a_hung_ledger_only_so_long() {
        let mut play = Play::start(RequestSettings::default());
        play.line(Side::Server, REMOVE);
        play.committed(1, true);
        play.at(250, Input::Tick);
        assert_eq!(play.line_at(300, Side::Client, ACCEPT), "withhold");
        assert_eq!(play.0.next_deadline(), Some(Duration::from_millis(300) + HOLD_MAX));
        assert_eq!(play.at(549, Input::Tick), "");
        assert_eq!(play.at(550, Input::Tick), format!("note keep(resolved client client - instead) inject({ACCEPT})"));
        // The rule's answer is stored after all: it is not sent, and the row gets the other.
        assert_eq!(play.committed(2, true), "");
        assert_eq!(play.at(551, Input::Written(3)), "keep(requestdispatched)");
        assert_eq!(play.line(Side::Server, RESOLVED), "keep(requestconfirmed) forward");
    }

    #[test]
    fn caller_that_hangs_hears_when_the_client_has_won() {
        let mut play = Play::start(RequestSettings::default());
        let other = OTHER.replace("make", "id");
        play.line(Side::Server, &other);
        play.committed(1, true);
        assert_eq!(play.respond(), "commit2(resolved api me -)");
        assert_eq!(play.line(Side::Client, ACCEPT), "withhold");
        let sent = play.at(250, Input::Tick);
        assert!(sent.starts_with("reply(notkept) note keep(resolved client"), "{sent}");
    }

    #[test]
    fn withdrawn_request_sends_no_withheld_answer() {
        let mut play = Play::start(RequestSettings::default());
        play.line(Side::Server, REMOVE);
        play.committed(1, true);
        play.at(250, Input::Tick);
        play.line_at(300, Side::Client, ACCEPT);
        play.line(Side::Server, RESOLVED);
        assert_eq!((play.at(600, Input::Tick).as_str(), play.0.next_deadline()), ("", None));
    }

    #[test]
    fn repeated_member_of_the_request_bars_an_accept() {
        let mut play = Play::start(RequestSettings::default());
        let (head, params) = ASK.split_once("\"params\":").expect("BUG: it has some");
        let twice = format!("{head}\"params\":{},\"params\":{params}", params.trim_end_matches('}').to_owned() + "}");
        let actual = play.line(Side::Server, &twice);
        assert!(!actual.contains("check"), "{actual}");
    }

    #[test]
    fn adopted_server_gets_no_accepts() {
        for (adopted, expect) in [(false, true), (true, false)] {
            let mut play = Play::start(RequestSettings::default());
            play.at(0, Input::ServerStarted { pid: 1, adopted });
            let actual = play.line(Side::Server, ASK);
            assert_eq!((actual.contains("check"), actual.contains("taken over")), (expect, !expect), "{actual}");
        }
    }

    #[test]
    fn line_that_is_too_long_ends_all_accepts() {
        let mut play = Play::start(RequestSettings::default());
        let (now, last) = (now(0), Incoming::LastPiece { line_bytes: 1 });
        drop(play.0.read(now, Conn(0), Side::Client, last, &mut Vec::new()));
        let actual = play.line(Side::Server, ASK);
        assert!(actual.contains("a long message was not read") && !actual.contains("check"), "{actual}");
    }

    #[test]
    fn unknown_version_or_thread_asks_the_client() {
        let check = |version: Option<&str>, thread: Option<&str>, expect: bool| {
            let mut play = Play::start(RequestSettings::default());
            play.0.requests.workspaces = super::super::Workspaces::default();
            play.0.requests.server_is(version);
            play.0.requests.thread_opened(thread.and_then(|thread| serde_json::from_str(thread).ok()));
            let actual = play.line(Side::Server, ASK);
            assert_eq!(actual.contains("check"), expect, "{version:?} {thread:?}: {actual}");
            assert_eq!(actual.contains("refused(status: "), !expect, "{version:?} {thread:?}: {actual}");
        };
        check(Some("0.169.0"), Some(THREAD), true);
        check(Some("0.170.2"), Some(THREAD), true);
        check(Some("1.0.0"), Some(THREAD), true);
        for version in [None, Some("0.150.0"), Some("0.168.9"), Some("0.0.0"), Some("x"), Some("0.169.0-alpha.1")] {
            check(version, Some(THREAD), false);
        }
        check(Some("0.169.0"), None, false);
        let full = THREAD.replace("workspaceWrite", "dangerFullAccess");
        check(Some("0.169.0"), Some(&full), false);
    }

    #[test]
    fn wider_permissions_end_all_accepts() {
        for asks in [
            r#"{"id":7,"method":"item/permissions/requestApproval","params":{"threadId":"t","itemId":"j","permissions":{}}}"#,
            r#"{"id":7,"method":"item/permissions/requestApproval","params":{"threadId":"child","itemId":"j","permissions":{}}}"#,
            r#"{"method":"item/autoApprovalReview/started","params":{"threadId":"t","action":{"type":"applyPatch"}}}"#,
            r#"{"method":"item/autoApprovalReview/completed","params":{"threadId":"t","action":{"type":"requestPermissions"}}}"#,
            r#"{"id":7,"method":"item/fileChange/requestApproval","params":{"threadId":"t","itemId":"j","grantRoot":"/x"}}"#,
        ] {
            let mut play = Play::start(RequestSettings::default());
            play.line(Side::Server, asks);
            let actual = play.line(Side::Server, ASK);
            assert!(actual.contains("wider permissions") && !actual.contains("check"), "{actual}");
        }
    }

    #[test]
    fn request_that_is_not_opened_counts_too() {
        let full = |play: &mut Play| {
            for id in 0..super::super::OPEN_MAX {
                let other = OTHER.replace("\"id\":0", &format!("\"id\":{}", id + 10));
                play.line(Side::Server, &other.replace("bash -lc make", "bash -lc id"));
            }
        };
        let unopened = |play: &mut Play| play.0.requests.generation = None;
        let check = |step: &dyn Fn(&mut Play), asks: &str| {
            let mut play = Play::start(RequestSettings::default());
            step(&mut play);
            play.line(Side::Server, asks);
            assert!(play.0.requests.workspaces.of(Some("t")).is_err(), "{asks}");
        };
        let permissions = r#"{"id":7,"method":"item/permissions/requestApproval","params":{"threadId":"o"}}"#;
        check(&full, permissions);
        check(&unopened, permissions);
        check(&|_| {}, r#"{"id":7,"method":"item/new/requestApproval","params":{"threadId":"o"}}"#);
    }

    #[test]
    fn caller_may_answer_before_the_check() {
        let mut play = Play::start(RequestSettings::default());
        play.line(Side::Server, ASK);
        play.committed(1, true);
        assert_eq!(play.respond(), "commit3(resolved api me -)");
        assert_eq!(play.checked(2, Ok("/usr/bin/ls")), "");
        assert!(play.committed(3, true).contains("\"decision\":\"decline\""));
        let mut play = Play::start(RequestSettings::default());
        play.line(Side::Server, ASK);
        play.committed(1, true);
        play.respond();
        play.checked(2, Ok("/usr/bin/ls"));
        assert_eq!(play.committed(3, false), "reply(notkept) late0");
    }

    #[test]
    fn repeated_request_gets_one_answer() {
        let mut play = Play::start(RequestSettings::default());
        play.line(Side::Server, ASK);
        assert_eq!(play.line(Side::Server, ASK), "withhold");
        play.committed(1, true);
        play.checked(2, Ok("/usr/bin/ls"));
        assert_eq!(play.line(Side::Server, ASK), "withhold");
        play.committed(3, true);
        assert_eq!(play.line(Side::Server, ASK), "withhold");
        play.at(3, Input::Written(4));
        assert_eq!(play.line(Side::Server, RESOLVED), "keep(requestconfirmed) forward");
    }

    #[test]
    fn withdrawn_request_gets_no_answer() {
        let mut play = Play::start(RequestSettings::default());
        play.line(Side::Server, ASK);
        play.committed(1, true);
        assert_eq!(play.line(Side::Server, RESOLVED), "note keep(resolved server - -) forward");
        assert_eq!(play.checked(2, Ok("/usr/bin/ls")), "");
    }

    #[test]
    fn rule_answers_once_for_all_clients_of_a_hub() {
        let mut play = Play::hub();
        let asked = play.line_on(1, Side::Server, REMOVE);
        assert!(asked.ends_with("withhold"), "{asked}");
        assert_eq!(play.line_on(2, Side::Server, REMOVE), "withhold");
        play.committed(1, true);
        assert!(play.committed(2, true).contains("\"decision\":\"decline\""));
        assert_eq!(play.line_on(2, Side::Client, ACCEPT), "note keep(answerlost) withhold");
        // Its connection has ended before the server got it.
        let again = r#"inject({"id":0,"result":{"decision":"decline"}})"#;
        assert_eq!(play.at(2, Input::NotWritten(3)), again);
        assert_eq!(play.at(3, Input::Written(3)), "keep(requestdispatched)");
    }

    #[test]
    fn all_clients_of_a_hub_are_asked_if_a_rule_gives_up() {
        let mut play = Play::hub();
        play.line_on(1, Side::Server, ASK);
        play.line_on(2, Side::Server, ASK);
        play.committed(1, true);
        assert_eq!(play.checked(2, Err("no")), "refused(status: no) late1+2");
    }

    #[test]
    fn hold_applies_to_what_a_rule_leaves() {
        let mut play = Play::start(RequestSettings { hold: true, ..RequestSettings::default() });
        play.line(Side::Server, ASK);
        play.committed(1, true);
        assert_eq!(play.checked(2, Err("no")), "refused(status: no)");
        assert_eq!(play.respond(), "commit3(resolved api me -)");
    }
}
