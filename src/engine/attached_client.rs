//! Who speaks to the server: the client whose server it is, or clients that attach themselves to a server of ours, one
//! after the other.
//!
//! An attached client finds a server that is initialized. Its first `initialize` is answered in the server's stead, with
//! what the server answered to ours, and its `initialized` goes no further; a second `initialize` is the server's to
//! refuse. Until that answer it gets nothing but the answers to its own calls; after it, all but the notifications that it
//! has opted out of. Requests that were open before it came are not shown to it here: codex asks again, with the same id,
//! once their thread is resumed.
//!
//! The answer to a call of a client that has left goes to nobody. Where the next client uses the id of such a call while
//! that is open, two answers may come for one id, or only one, and nothing tells them apart: the first is the client's, who
//! would otherwise wait for ever where the elder call is never answered, and the second is withheld. So it is misled where
//! the elder call is answered first, which has taken long by then: what is quickly answered is not open when a client has
//! left and the next one has come. Such a call carries no context, and settles none.
//!
//! What the server asks of its client alone, such as the time or a token, is answered in the client's stead while nobody
//! listens, and when a client leaves that has not answered: the server would wait for ever.
//!
//! Lines are only judged here: nothing is recorded, followed or sent.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use serde_json::value::RawValue;

use super::open_calls::{CallKey, Caller, Calls, OpenCall, OpenCalls};
use super::token::ApiCallId;
use super::turns::{self, Purpose};
use super::version::{self, ClientName};
use super::{ApiReply, Effect, Engine, Injection, Note, Now, free_line, own_free_line};
use crate::protocol::{Event, Method, RequestKind};
use crate::wire::{Body, Members, Message, Side};

/// Who speaks to the server, as an engine is told at its beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServerOwner {
    /// A client.
    #[default]
    Client,
    /// Only ourselves, and clients that attach themselves: the server is initialized by us.
    Relay,
}

/// Who speaks to the server now.
#[derive(Debug)]
pub(super) struct CurrentClient {
    who: Who,
    /// The line of the server whose pieces pass now, where one does.
    long_line: Option<Passing>,
}

#[derive(Debug)]
enum Who {
    /// The client whose server it is.
    Owner,
    Nobody,
    Attached(Attached),
}

#[derive(Debug)]
struct Attached {
    admission: ApiCallId,
    stage: Stage,
    /// Methods of notifications that it does not want.
    opted_out: HashSet<String>,
}

/// What an attached client has left behind.
#[derive(Debug)]
pub(super) struct Departed {
    /// It was answered, so that it has named itself.
    pub(super) was_answered: bool,
    /// What it alone was asked and has not answered, by raw ids.
    pub(super) asked: VecDeque<Box<RawValue>>,
}

/// How far an attached client has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Attached,
    /// Its `initialize` was answered.
    Answered,
    /// And its `initialized` was seen.
    Initialized,
}

/// Whether a line of the server goes to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passing {
    Passes,
    Withheld,
}

/// What is done with a call or a notification of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnCall {
    /// It is the server's.
    PassOn,
    /// It is the server's too, and its answer cannot be told from that to the call of a client that has left.
    PassAmbiguous,
    /// We answer it, in the server's stead.
    Greet,
    /// It goes no further.
    Withhold,
}

impl CurrentClient {
    pub(super) fn new(server_owner: ServerOwner) -> CurrentClient {
        let who = match server_owner {
            ServerOwner::Client => Who::Owner,
            ServerOwner::Relay => Who::Nobody,
        };
        CurrentClient { who, long_line: None }
    }

    /// Nobody but ourselves initializes this server.
    pub(super) fn is_served(&self) -> bool {
        !matches!(self.who, Who::Owner)
    }

    /// A client is there, whether its server it is or not.
    pub(super) fn is_attended(&self) -> bool {
        !matches!(self.who, Who::Nobody)
    }

    /// Lines of the server go to somebody.
    pub(super) fn listens(&self) -> bool {
        match &self.who {
            Who::Owner => true,
            Who::Nobody => false,
            Who::Attached(client) => client.stage != Stage::Attached,
        }
    }

    /// Whether what the server says to its client goes to somebody now.
    pub(super) fn audience(&self) -> Passing {
        Passing::of(self.listens())
    }

    /// By which admission the client was let in that is attached.
    pub(super) fn admitted(&self) -> Option<ApiCallId> {
        match &self.who {
            Who::Attached(client) => Some(client.admission),
            Who::Owner | Who::Nobody => None,
        }
    }

    /// A client attaches itself.
    pub(super) fn attach(&mut self, admission: ApiCallId) {
        self.who = Who::Attached(Attached { admission, stage: Stage::default(), opted_out: HashSet::new() });
    }

    /// The attached client has left; tells what it leaves, where there was one.
    pub(super) fn detach(&mut self, elapsed: Duration, calls: &mut Calls) -> Option<Departed> {
        if !self.is_served() {
            return None;
        }
        let Who::Attached(client) = std::mem::replace(&mut self.who, Who::Nobody) else { return None };
        calls.to_server.caller_left(elapsed);
        // The rest of a line whose beginning it was sent is for nobody.
        self.long_line = self.long_line.map(|_| Passing::Withheld);
        let asked = calls.to_client.iter_mut().filter_map(|call| call.for_client_alone.take()).collect();
        Some(Departed { was_answered: client.stage != Stage::Attached, asked })
    }

    /// The client calls or notifies.
    pub(super) fn client_calls(
        &mut self,
        elapsed: Duration,
        message: &Event<'_>,
        call: Option<CallKey>,
        calls: &mut OpenCalls,
    ) -> OnCall {
        let Who::Attached(client) = &mut self.who else { return OnCall::PassOn };
        match (client.stage, message.id, message.method) {
            (Stage::Attached, Some(_), Some(Method::Initialize)) => {
                client.stage = Stage::Answered;
                client.opted_out = opted_out(message).unwrap_or_default();
                call.into_iter().for_each(|call| calls.forget(call));
                return OnCall::Greet;
            }
            (Stage::Answered, None, Some(Method::Initialized)) => {
                client.stage = Stage::Initialized;
                return OnCall::Withhold;
            }
            (Stage::Attached | Stage::Answered | Stage::Initialized, _, _) => {}
        }
        if call.is_some_and(|call| calls.is_ambiguous(call, elapsed)) { OnCall::PassAmbiguous } else { OnCall::PassOn }
    }

    /// The server says something, and it is no answer to a call of ours.
    pub(super) fn passing_of(&self, message: &Event<'_>, completed: Option<&OpenCall>) -> Passing {
        if matches!(self.who, Who::Owner) {
            return Passing::Passes;
        }
        let passes = match (message.name(), message.id, completed.map(|call| call.caller)) {
            (None, Some(_), Some(Caller::Peer)) => true,
            (None, Some(_), Some(Caller::Departed(_))) => false,
            (None, Some(_), Some(Caller::Relay) | None) => self.is_attended(),
            (Some(method), None, _) => self.listens() && !self.has_opted_out(method),
            (Some(_), Some(_), _) | (None, None, _) => self.listens(),
        };
        Passing::of(passes)
    }

    /// Whether the attached client alone can answer a request of the server.
    pub(super) fn answers_alone(&self, method: &str) -> bool {
        matches!(self.who, Who::Attached(_)) && self.listens() && RequestKind::of(method).is_none()
    }

    fn has_opted_out(&self, method: &str) -> bool {
        match &self.who {
            Who::Attached(client) => client.opted_out.contains(method),
            Who::Owner | Who::Nobody => false,
        }
    }

    /// The server says something that is no message.
    pub(super) fn passing_of_other(&self) -> Passing {
        Passing::of(self.listens())
    }

    /// A piece of a long line of the server: all of it goes to one client, or none.
    pub(super) fn passing_of_piece(&mut self) -> Passing {
        let passing = Passing::of(self.listens());
        *self.long_line.get_or_insert(passing)
    }

    /// The last piece of such a line.
    pub(super) fn passing_of_last_piece(&mut self) -> Passing {
        self.passing_of_piece();
        self.long_line.take().unwrap_or(Passing::Withheld)
    }
}

impl Passing {
    fn of(passes: bool) -> Passing {
        if passes { Passing::Passes } else { Passing::Withheld }
    }
}

impl Engine {
    /// Initializes the server, as a client would.
    pub(super) fn initialize(&mut self, effects: &mut Vec<Effect>) {
        let params = turns::initialize_params();
        let (_, line) = self.calls.call_server(Method::Initialize.name(), Some(&params), Purpose::Initialize);
        if let Body::Message(message) = Body::parse(&line) {
            effects.extend(self.version.learn(Side::Client, &Event::of(&message), None));
        }
        effects.push(Effect::Inject(Injection { lines: vec![free_line(line)], mark: None }));
    }

    /// Answers an attached client's `initialize` in the server's stead.
    pub(super) fn greet(&mut self, message: &Event<'_>, effects: &mut Vec<Effect>) {
        self.introduce(version::introduced(message).unwrap_or_default(), effects);
        effects.push(Effect::Note(Note::ClientAttached { name: self.client.clone() }));
        if let (Some(id), Some(result)) = (message.id, self.turns.initialized_with()) {
            effects.push(Effect::Answer(own_free_line(Side::Client, greeting(id, result))));
        }
    }

    /// The attached client has left, where there was one: we are alone again. Gives the ids of what it alone was asked.
    pub(super) fn detach(&mut self, now: Now, effects: &mut Vec<Effect>) -> VecDeque<Box<RawValue>> {
        let Some(left) = self.current_client.detach(now.elapsed, &mut self.calls) else { return VecDeque::new() };
        if left.was_answered {
            effects.push(Effect::Note(Note::ClientLeft { name: self.client.clone() }));
        }
        self.introduce(turns::own_name(), effects);
        left.asked
    }

    fn introduce(&mut self, client: ClientName, effects: &mut Vec<Effect>) {
        self.client.clone_from(&client.name);
        effects.push(Effect::Introduce(Box::new(client)));
    }

    /// A client wants to attach itself.
    pub(super) fn attach(&mut self, api_call: ApiCallId, server_listens: bool, effects: &mut Vec<Effect>) -> ApiReply {
        if self.current_client.is_attended() {
            return ApiReply::ClientAttached { name: self.client.clone() };
        }
        if !server_listens || self.turns.initialized_with().is_none() {
            return ApiReply::NotReady;
        }
        self.current_client.attach(api_call);
        // Nobody knows yet who it is.
        self.introduce(ClientName::default(), effects);
        ApiReply::Admitted { admission: api_call }
    }
}

/// Tells the server that nobody is there to answer this.
pub(super) fn answer_without_client(id: &RawValue) -> Effect {
    Effect::Inject(Injection { lines: vec![free_line(no_client_error(id))], mark: None })
}

/// The notifications that a client does not want, as its `initialize` has them.
fn opted_out(message: &Message<'_>) -> Option<HashSet<String>> {
    let capabilities = Members::of(Members::of(message.params?)?.get("capabilities")?)?;
    serde_json::from_str(capabilities.get("optOutNotificationMethods")?.get()).ok()
}

/// The line that answers a client's `initialize`, with what the server answered to ours.
pub(super) fn greeting(id: &RawValue, result: &RawValue) -> Vec<u8> {
    format!("{{\"id\":{},\"result\":{}}}", id.get(), result.get()).into_bytes()
}

/// The line that tells the server that nobody is there to answer this.
pub(super) fn no_client_error(id: &RawValue) -> Vec<u8> {
    format!("{{\"id\":{},\"error\":{{\"code\":-32601,\"message\":\"no client is attached\"}}}}", id.get()).into_bytes()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{
        ApiReply, ApiRequest, AssemblySettings, ClientName, ContextSettings, Effect, Engine, EngineSettings, Input,
        LedgerEntry, Note, Now, RequestSettings,
    };
    use super::*;
    use crate::wire::{Line, LineEnd, Side};

    const INITIALIZE: &str = concat!(
        r#">{"id": 1.0,"method":"initialize","params":{"clientInfo":{"name":"ide","version":"2"},"#,
        r#""capabilities":{"optOutNotificationMethods":["item/delta"]}}}"#
    );

    /// A server that was initialized by us, and what is done with lines: `>` the client's, `<` the server's; `+` lets a
    /// client in, `-` has it leave. What is done comes out as words, a step a line.
    fn check(settings: RequestSettings, server_owner: ServerOwner, script: &[(&str, &str)]) {
        let mut engine = Engine::new(EngineSettings {
            exit_grace: Duration::from_secs(10),
            context: ContextSettings::default(),
            assembly: AssemblySettings::default(),
            requests: settings,
            server_owner,
            own_ids: "codex-shim:".to_owned(),
            tokens_before: 0,
        });
        let now = Now { unix_us: 1, elapsed: Duration::ZERO };
        let mut effects = Vec::new();
        engine.handle(now, Input::SessionOpened { generation: "g".to_owned() }, &mut effects);
        engine.handle(now, Input::ServerStarted { pid: 1 }, &mut effects);
        for (step, expect) in script {
            effects.clear();
            let (who, line) = step.split_at(1);
            let line = Line { bytes: line.as_bytes(), end: LineEnd::Newline };
            let input = match who {
                ">" => Input::Line { from: Side::Client, line },
                "<" => Input::Line { from: Side::Server, line },
                "+" => Input::ApiRequest { api_call: 9, request: ApiRequest::Attach, server_listens: true },
                "p" => Input::Piece { from: Side::Server },
                "l" => Input::LongLine { from: Side::Server, line_bytes: 1 },
                "x" => Input::Committed { token: 1, done: false },
                "c" => Input::Committed { token: 1, done: true },
                "." => Input::Closed { from: Side::Server },
                _ => Input::Detached,
            };
            engine.handle(now, input, &mut effects);
            let told: Vec<String> = effects.iter().filter_map(told).collect();
            assert_eq!(told.join(" "), *expect, "{step}");
        }
    }

    /// What an effect is in a word, where it is about who gets what.
    #[expect(clippy::wildcard_enum_match_arm, reason = "what else is done is for other tests")]
    fn told(effect: &Effect) -> Option<String> {
        Some(match effect {
            Effect::Record(_) => "record".to_owned(),
            Effect::Forward => "forward".to_owned(),
            Effect::Hold(token) => format!("hold{token}"),
            Effect::Release(token) => format!("release{token}"),
            Effect::Keep(LedgerEntry::RequestLate { .. }) => "row-late".to_owned(),
            Effect::PassLate(_) => "late".to_owned(),
            Effect::Answer(line) => {
                assert_eq!(line.to, Side::Client);
                format!("answer({})", String::from_utf8_lossy(&line.bytes))
            }
            Effect::Inject(injection) => match &injection.lines[0].bytes {
                line if line.ends_with(br#""no client is attached"}}"#) => {
                    format!("nobody({})", String::from_utf8_lossy(&line[6..7]))
                }
                _ => format!("inject({})", injection.lines.len()),
            },
            Effect::Note(Note::ClientAttached { name }) => format!("attached({})", name.as_deref().unwrap_or("-")),
            Effect::Note(Note::ClientLeft { name }) => format!("left({})", name.as_deref().unwrap_or("-")),
            Effect::Introduce(client) => {
                let ClientName { name, version: _ } = &**client;
                format!("client({})", name.as_deref().unwrap_or("-"))
            }
            Effect::Reply(9, ApiReply::Admitted { admission: 9 }) => "admitted".to_owned(),
            Effect::Reply(9, ApiReply::NotReady) => "not ready".to_owned(),
            Effect::Reply(9, ApiReply::NotServed) => "not served".to_owned(),
            Effect::Reply(9, ApiReply::ClientAttached { name }) => {
                format!("taken by {}", name.as_deref().unwrap_or("-"))
            }
            _ => return None,
        })
    }

    const READY: (&str, &str) =
        (r#"<{"id":"codex-shim:1","result":{"userAgent": "x/1.2.3 \u0061"}}"#, "record inject(1)");

    const GREETED: (&str, &str) =
        (INITIALIZE, r#"record client(ide) attached(ide) answer({"id":1.0,"result":{"userAgent": "x/1.2.3 \u0061"}})"#);

    fn check_served(script: &[(&str, &str)]) {
        check(RequestSettings::default(), ServerOwner::Relay, &[&[READY], script].concat());
    }

    const HERE: (&str, &str) = ("+", "client(-) admitted");
    const GONE: (&str, &str) = ("-", "left(ide) client(codex-shim)");
    const GONE_UNNAMED: (&str, &str) = ("-", "client(codex-shim)");

    #[test]
    fn a_client_is_let_in_once_the_server_is_initialized_and_alone() {
        let not_ready = ("+", "not ready");
        check(RequestSettings::default(), ServerOwner::Relay, &[not_ready, READY, HERE, ("+", "taken by -")]);
        check_served(&[HERE, GREETED, ("+", "taken by ide"), GONE, ("-", ""), HERE]);
        check_served(&[HERE, GONE_UNNAMED]);
        check_served(&[HERE, GREETED, (".", "left(ide) client(codex-shim)"), not_ready]);
        let initialized = (&INITIALIZE.replace("1.0", "1"), "record forward client(ide)");
        let initialized = (initialized.0.as_str(), initialized.1);
        check(
            RequestSettings::default(),
            ServerOwner::Client,
            &[("+", "not served"), initialized, ("+", "not served")],
        );
        check(RequestSettings::default(), ServerOwner::Client, &[("-", "")]);
    }

    #[test]
    fn initialize_is_answered_once_and_initialized_withheld_once() {
        let initialized = r#">{"method":"initialized"}"#;
        check_served(&[
            HERE,
            GREETED,
            (initialized, "record"),
            (initialized, "record forward"),
            (INITIALIZE, "record forward"),
            GONE,
            HERE,
            GREETED,
            (initialized, "record"),
        ]);
    }

    #[test]
    fn lines_of_the_server_go_to_a_client_that_was_answered() {
        let lines = [r#"<{"method":"a"}"#, "<text", "<[]", "<{}"];
        let all = |expect| lines.map(|line| (line, expect));
        let script = [&all("record")[..], &[HERE], &all("record"), &[GREETED], &all("record forward"), &[GONE]];
        check_served(&[&script.concat()[..], &all("record")].concat());
    }

    #[test]
    fn a_client_gets_nothing_that_it_has_opted_out_of() {
        let delta = r#"<{"method":"item/delta"}"#;
        check_served(&[
            HERE,
            GREETED,
            (delta, "record"),
            (r#"<{"id":0,"method":"item/delta"}"#, "record hold1 forward"),
        ]);
        let plain = r#">{"id":1,"method":"initialize","params":{"capabilities":{"optOutNotificationMethods":null}}}"#;
        let greeted = r#"record client(-) attached(-) answer({"id":1,"result":{"userAgent": "x/1.2.3 \u0061"}})"#;
        check_served(&[HERE, GREETED, GONE, HERE, (plain, greeted), (delta, "record forward")]);
    }

    #[test]
    fn answers_go_to_those_who_asked() {
        let call = |id: &str| format!(r#">{{"id":{id},"method":"m"}}"#);
        let answer = |id: &str| format!(r#"<{{"id":{id},"result":{{}}}}"#);
        let (call_5, call_s, answer_5, answer_s) = (call("5"), call("\"5\""), answer("5"), answer("\"5\""));
        let (called, called_s) = ((&*call_5, "record forward"), (&*call_s, "record forward"));
        let (answered, lost, lost_s) = ((&*answer_5, "record forward"), (&*answer_5, "record"), (&*answer_s, "record"));
        // Also before its `initialize`: it is the only one that can be meant.
        check_served(&[HERE, called, answered, answered]);
        check_served(&[HERE, GREETED, called, GONE, lost]);
        check_served(&[HERE, called, called_s, GONE_UNNAMED, HERE, GREETED, lost_s]);
        // Whoever is there is never left without.
        let left = [HERE, called, GONE_UNNAMED];
        check_served(&[&left[..], &left, &[HERE, called, answered, lost, lost, answered]].concat());
        check_served(&[&left[..], &[HERE, called, answered, called, answered, lost]].concat());
    }

    #[test]
    fn what_only_a_client_answers_is_answered_for_nobody() {
        let asked = |id: &str| format!(r#"<{{"id":{id},"method":"item/tool/call","params":{{}}}}"#);
        let (asked_1, asked_2, time) = (asked("1"), asked("2"), r#"<{"id":3,"method":"currentTime/read"}"#);
        let (nobody_1, nobody_time) = ((&*asked_1, "nobody(1) record"), (time, "nobody(3) record"));
        check_served(&[nobody_1, HERE, nobody_time, GREETED, (time, "record forward")]);
        let passed = [(&*asked_1, "record forward"), (&*asked_2, "record forward")];
        let left = ("-", "left(ide) client(codex-shim) nobody(2)");
        let answer = (r#">{"id":1,"result":{}}"#, "record forward");
        check_served(&[&[HERE, GREETED][..], &passed, &[answer, left, HERE, GONE_UNNAMED]].concat());
        // An approval waits for a human, wherever that one is.
        let approval = r#"<{"id":4,"method":"item/fileChange/requestApproval","params":{}}"#;
        check_served(&[(approval, "record"), HERE, GREETED, (approval, "record hold1 forward"), GONE]);
    }

    #[test]
    fn a_long_line_goes_to_one_client_or_none() {
        check_served(&[("p", ""), HERE, GREETED, ("p", ""), ("l", "record"), ("l", "record forward")]);
        check_served(&[HERE, GREETED, ("p", "forward"), ("p", "forward"), ("l", "record forward"), GONE, ("p", "")]);
        check_served(&[HERE, GREETED, ("p", "forward"), GONE, ("p", ""), HERE, GREETED, ("p", ""), ("l", "record")]);
    }

    #[test]
    fn what_was_held_back_is_shown_late_to_those_who_listen() {
        let hold = RequestSettings { hold: true, ..RequestSettings::default() };
        let asked = (r#"<{"id":0,"method":"item/fileChange/requestApproval","params":{}}"#, "record");
        check(hold.clone(), ServerOwner::Relay, &[READY, asked, HERE, ("x", "release1")]);
        check(hold, ServerOwner::Relay, &[READY, HERE, GREETED, asked, ("x", "release1 late row-late")]);
    }

    #[test]
    fn what_nobody_sees_is_not_late_and_what_is_asked_again_waits_for_its_row() {
        let asked = r#"<{"id":0,"method":"item/fileChange/requestApproval","params":{}}"#;
        let (unseen, waits, passes) = ((asked, "record"), (asked, "record hold1 forward"), (asked, "record forward"));
        check_served(&[unseen, ("x", ""), unseen, HERE, GREETED, passes]);
        check_served(&[unseen, HERE, GREETED, waits, waits, ("x", "release1 row-late"), passes]);
        check_served(&[unseen, HERE, GREETED, waits, ("c", "release1"), passes]);
    }
}
