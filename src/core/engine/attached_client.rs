//! Who talks to the server: the client that owns it, or clients that attach one after another to a server that the relay
//! owns; and the names and versions that both sides give in `initialize`.
//!
//! An attached client finds an initialized server. The relay answers its first `initialize` with the server's response
//! to the relay's own, and does not forward its `initialized`; the server rejects a second `initialize`. Before that
//! answer the client receives only responses to its own calls; after it, everything except notifications it opted out
//! of. Requests opened before it attached are not replayed here: codex sends them again, with the same id, when their
//! thread is resumed.
//!
//! Responses to the calls of a departed client are dropped. If the next client reuses the id of such an open call, one
//! or two responses may arrive for that id, and they look the same. The first goes to the client, because the old call
//! may never be answered and the client would wait forever; the second is withheld. The client is misled only if the
//! old call is answered first. Such a call is slow: quick ones complete before another client attaches. An ambiguous
//! call carries no context and settles none.
//!
//! Requests that only a client can answer, such as the time or a token, are answered with an error if no client is
//! attached, or when the client leaves without answering. Otherwise the server would wait forever.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::connections::OnRecord;
use super::model::{ApiCallId, ClientName, Peer, ServerOwner, Transport};
use super::open_calls::{CallKey, Caller, Calls, OpenCall};
use super::purpose::Purpose;
use super::requests::RequestKind;
use super::{ApiReply, Effect, Engine, LinkEffect, Note, Now, free_line, inject, own_free_line};
use crate::invariants::holds;
use crate::protocol::{Event, Method};
use crate::wire::{Conn, Members, Message, Side};

/// The clients of all connections.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Clients {
    own: CurrentClient,
    /// The clients of a hub.
    others: BTreeMap<Conn, CurrentClient>,
}

impl Clients {
    pub(super) fn new(server_owner: ServerOwner) -> Clients {
        Clients { own: CurrentClient::new(server_owner), others: BTreeMap::new() }
    }

    pub(super) fn check(&self, owner: ServerOwner) {
        holds!("clients.several-only-in-hubs", self.others.is_empty() || owner.has_many_clients());
        holds!("clients.own-is-not-among-the-others", !self.others.contains_key(&Conn::OWN));
        holds!("clients.owner-is-the-client-of-its-server", self.own.is_owner() == (owner == ServerOwner::Client));
        holds!("clients.attach-only-to-a-served-server", self.own.stage().is_none() || owner == ServerOwner::Relay);
        holds!("clients.owners-subscribe-to-nothing", !self.own.is_owner() || self.own.threads.is_empty());
        holds!("clients.own-is-no-probe", self.own.on_record != OnRecord::Probe);
        for client in self.others.values() {
            holds!("clients.of-a-hub-own-their-connections", client.is_owner());
            holds!("clients.subscriptions-within-limit", client.has_few_subscriptions());
            holds!("clients.probe-has-named-itself", {
                (client.on_record == OnRecord::Probe) == client.introduction.is_some()
            });
            holds!("clients.unseen-has-no-version", {
                client.on_record != OnRecord::NotYet || client.version == VersionWatch::Before
            });
        }
    }

    /// Whether this is the connection of a client that has not gone.
    pub(super) fn is_connected(&self, conn: Conn) -> bool {
        self.others.contains_key(&conn)
    }

    pub(super) fn count(&self) -> usize {
        self.others.len()
    }

    pub(super) fn subscription_count(&self) -> usize {
        self.own.threads.len() + self.others.values().map(|client| client.threads.len()).sum::<usize>()
    }

    /// The newest open connection.
    pub(super) fn newest(&self) -> Conn {
        self.others.keys().next_back().copied().unwrap_or(Conn::OWN)
    }

    /// The client of [`Conn::OWN`].
    pub(super) fn own(&self) -> &CurrentClient {
        &self.own
    }

    pub(super) fn own_mut(&mut self) -> &mut CurrentClient {
        &mut self.own
    }

    pub(super) fn connected(&mut self, conn: Conn, peer: Peer) {
        let earlier = self.others.insert(conn, CurrentClient { peer, ..CurrentClient::of(Who::Owner) });
        holds!("connections.number-is-free", earlier.is_none());
    }

    pub(super) fn disconnected(&mut self, conn: Conn) -> Option<CurrentClient> {
        let client = self.others.remove(&conn);
        holds!("connections.end-once", client.is_some());
        client
    }

    pub(super) fn of(&self, conn: Conn) -> &CurrentClient {
        match conn {
            Conn::OWN => &self.own,
            other => self.others.get(&other).expect("BUG: the connection is open"),
        }
    }

    pub(super) fn of_mut(&mut self, conn: Conn) -> &mut CurrentClient {
        match conn {
            Conn::OWN => &mut self.own,
            other => self.others.get_mut(&other).expect("BUG: the connection is open"),
        }
    }

    /// Whether any client has subscribed to a thread.
    pub(super) fn has_subscriber(&self, thread_id: &str) -> bool {
        self.own.threads.contains(thread_id) || self.others.values().any(|client| client.threads.contains(thread_id))
    }

    /// The connections that have subscribed to a thread.
    pub(super) fn subscribers(&self, thread_id: &str) -> impl Iterator<Item = Conn> {
        let own = self.own.threads.contains(thread_id).then_some(Conn::OWN);
        let others = self.others.iter().filter(|(_, client)| client.threads.contains(thread_id));
        own.into_iter().chain(others.map(|(conn, _)| *conn))
    }

    /// Whether a hub has any client besides itself.
    pub(super) fn any_connected(&self) -> bool {
        self.others.values().any(|client| client.on_record == OnRecord::Yes)
    }

    /// Whether the hub or a client other than that of `conn` follows a thread.
    pub(super) fn is_followed(&self, thread_id: &str, conn: Conn) -> bool {
        let others = self.others.iter().filter(|(other, _)| **other != conn).map(|(_, client)| client);
        others.chain([&self.own]).any(|client| client.threads.contains(thread_id))
    }

    pub(super) fn forget_thread(&mut self, thread_id: &str) {
        self.own.threads.remove(thread_id);
        for client in self.others.values_mut() {
            client.threads.remove(thread_id);
        }
    }

    /// Whether the client of a connection receives server lines.
    pub(super) fn listens(&self, conn: Conn) -> bool {
        match conn {
            Conn::OWN => self.own.listens(),
            other => self.others.contains_key(&other),
        }
    }
}

/// The client that talks to the server now, on one connection.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CurrentClient {
    who: Who,
    pub(super) peer: Peer,
    pub(super) on_record: OnRecord,
    /// The threads that a client of a hub or of a served server has subscribed to.
    pub(super) threads: BTreeSet<String>,
    /// The name of a client that may only be a probe.
    pub(super) introduction: Option<ClientName>,
    pub(super) version: VersionWatch,
    /// The client's name for itself.
    pub(super) name: ClientName,
    /// Whether the pieces of the server's current long line pass; `None` between long lines.
    long_line: Option<bool>,
    /// The server's response to our `initialize`, if it has arrived.
    pub(super) initialized_with: Option<Box<RawValue>>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Who {
    /// The client owns the server.
    Owner,
    Nobody,
    Attached(Attached),
}

#[derive(Debug, Serialize, Deserialize)]
struct Attached {
    admission: ApiCallId,
    stage: HandshakeStage,
    /// Notification methods that the client opted out of.
    opted_out: HashSet<String>,
}

/// State that an attached client leaves behind.
#[derive(Debug)]
pub(super) struct Departed {
    /// The client received the answer to `initialize`, so it has named itself.
    pub(super) was_answered: bool,
    /// Raw ids of unanswered requests that only this client could answer.
    pub(super) asked: VecDeque<Box<RawValue>>,
}

/// Handshake progress of an attached client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum HandshakeStage {
    #[default]
    Attached,
    /// We answered its `initialize`.
    Answered,
    /// We saw its `initialized`.
    Initialized,
}

impl CurrentClient {
    pub(super) fn new(server_owner: ServerOwner) -> CurrentClient {
        CurrentClient::of(match server_owner {
            ServerOwner::Client => Who::Owner,
            ServerOwner::Relay | ServerOwner::Hub => Who::Nobody,
        })
    }

    fn of(who: Who) -> CurrentClient {
        CurrentClient {
            who,
            peer: Peer { transport: Transport::Stdio, pid: None, terminal: None, variables: Default::default() },
            on_record: OnRecord::default(),
            threads: BTreeSet::new(),
            introduction: None,
            version: VersionWatch::default(),
            name: ClientName::default(),
            long_line: None,
            initialized_with: None,
        }
    }

    /// The relay owns the server.
    pub(super) fn is_served(&self) -> bool {
        !matches!(self.who, Who::Owner)
    }

    /// A client is connected, whether or not it owns the server.
    pub(super) fn is_attended(&self) -> bool {
        !matches!(self.who, Who::Nobody)
    }

    /// The client receives server lines.
    pub(super) fn listens(&self) -> bool {
        match &self.who {
            Who::Owner => true,
            Who::Nobody => false,
            Who::Attached(client) => client.stage != HandshakeStage::Attached,
        }
    }

    /// The handshake of the attached client; `None` for the client that owns the server.
    pub(super) fn stage(&self) -> Option<HandshakeStage> {
        match &self.who {
            Who::Attached(client) => Some(client.stage),
            Who::Owner | Who::Nobody => None,
        }
    }

    /// The attached client completed its handshake.
    pub(super) fn has_initialized(&mut self) {
        if let Who::Attached(client) = &mut self.who {
            client.stage = HandshakeStage::Initialized;
        }
    }

    /// The API call that admitted the attached client.
    pub(super) fn admitted(&self) -> Option<ApiCallId> {
        match &self.who {
            Who::Attached(client) => Some(client.admission),
            Who::Owner | Who::Nobody => None,
        }
    }

    pub(super) fn attach(&mut self, admission: ApiCallId) {
        self.who = Who::Attached(Attached { admission, stage: HandshakeStage::default(), opted_out: HashSet::new() });
    }

    /// Removes the attached client and returns its leftover state.
    pub(super) fn detach(&mut self, elapsed: Duration, calls: &mut Calls) -> Option<Departed> {
        if !self.is_served() {
            return None;
        }
        let Who::Attached(client) = std::mem::replace(&mut self.who, Who::Nobody) else { return None };
        calls.to_server.caller_left(Conn::OWN, elapsed);
        // The rest of a line that this client received in part goes to nobody else.
        self.long_line = self.long_line.map(|_| false);
        let asked = calls.to_client.iter_mut().filter_map(|call| call.for_client_alone.take()).collect();
        Some(Departed { was_answered: client.stage != HandshakeStage::Attached, asked })
    }

    /// Whether the client is the one that started us, which receives every line.
    pub(super) fn is_owner(&self) -> bool {
        matches!(self.who, Who::Owner)
    }

    /// Whether the client receives a server message that does not answer one of our own calls.
    pub(super) fn receives(&self, event: &Event<'_>, completed: Option<&OpenCall>) -> bool {
        if self.is_owner() {
            return true;
        }
        match (event.name(), event.id, completed.map(|call| call.caller)) {
            (None, Some(_), Some(Caller::Peer)) => true,
            (None, Some(_), Some(Caller::Departed(_))) => false,
            (None, Some(_), Some(Caller::Relay) | None) => self.is_attended(),
            (Some(method), None, _) => self.listens() && !self.has_opted_out(method),
            (Some(_), Some(_), _) | (None, None, _) => self.listens(),
        }
    }

    /// Whether only the attached client can answer this request of the server.
    pub(super) fn answers_alone(&self, method: &str) -> bool {
        matches!(self.who, Who::Attached(_)) && self.listens() && RequestKind::of(method).is_none()
    }

    fn has_opted_out(&self, method: &str) -> bool {
        match &self.who {
            Who::Attached(client) => client.opted_out.contains(method),
            Who::Owner | Who::Nobody => false,
        }
    }

    /// Decides once for all pieces of a long line, so that one client gets all of it or nothing.
    pub(super) fn receives_piece(&mut self) -> bool {
        let listens = self.listens();
        *self.long_line.get_or_insert(listens)
    }

    /// Likewise for the last piece of the line.
    pub(super) fn receives_last_piece(&mut self) -> bool {
        let receives = self.receives_piece();
        self.long_line = None;
        receives
    }
}

impl Engine {
    /// Initializes the server, as a client would.
    pub(super) fn initialize(&mut self, effects: &mut Vec<Effect>) {
        let params = initialize_params();
        let name = Method::Initialize.name();
        let (_, line) = self.calls.call_server(Conn::OWN, name, Some(&params), Purpose::Initialize);
        self.clients.own_mut().version = VersionWatch::Asked;
        self.introduce(Conn::OWN, own_name(), effects);
        effects.push(inject(Conn::OWN, vec![free_line(line)]));
    }

    /// Answers an attached client's `initialize` for the server.
    pub(super) fn greet(&mut self, id: &RawValue, event: &Event<'_>, call: Option<CallKey>, effects: &mut Vec<Effect>) {
        if let Who::Attached(client) = &mut self.clients.own_mut().who {
            client.stage = HandshakeStage::Answered;
            client.opted_out = opted_out(event).unwrap_or_default();
        }
        call.into_iter().for_each(|call| self.calls.to_server.forget(call));
        self.introduce(Conn::OWN, introduced(event).unwrap_or_default(), effects);
        effects.push(Effect::Note(Note::ClientAttached { name: self.clients.own().name.name.clone() }));
        if let Some(result) = self.clients.own().initialized_with.as_deref() {
            effects
                .push(Effect::Link(LinkEffect::Answer(Conn::OWN, own_free_line(Side::Client, greeting(id, result)))));
        }
    }

    /// Handles the departure of the attached client. Returns the ids of requests that only it could answer.
    pub(super) fn detach(&mut self, now: Now, effects: &mut Vec<Effect>) -> VecDeque<Box<RawValue>> {
        let Some(left) = self.clients.own_mut().detach(now.elapsed, &mut self.calls) else { return VecDeque::new() };
        if left.was_answered {
            effects.push(Effect::Note(Note::ClientLeft { name: self.clients.own().name.name.clone() }));
        }
        self.introduce(Conn::OWN, own_name(), effects);
        left.asked
    }

    pub(super) fn introduce(&mut self, conn: Conn, client: ClientName, effects: &mut Vec<Effect>) {
        self.clients.of_mut(conn).name.clone_from(&client);
        effects.push(Effect::Link(LinkEffect::Introduce(conn, Box::new(client))));
    }

    /// Admits a client, if possible.
    pub(super) fn attach(&mut self, api_call: ApiCallId, server_listens: bool, effects: &mut Vec<Effect>) -> ApiReply {
        let unready = self.unready(server_listens);
        let client = self.clients.own_mut();
        if client.is_attended() {
            return ApiReply::ClientAttached { name: client.name.name.clone() };
        }
        if !server_listens || client.initialized_with.as_deref().is_none() {
            return ApiReply::NotReady(unready);
        }
        client.attach(api_call);
        // The client has not named itself yet.
        self.introduce(Conn::OWN, ClientName::default(), effects);
        ApiReply::Admitted { admission: api_call }
    }
}

/// The name of codex-shim in an `initialize` of its own.
pub const OWN_NAME: &str = "codex-shim";

/// The relay's client name when it initializes the server itself.
fn own_name() -> ClientName {
    ClientName { name: Some(OWN_NAME.to_owned()), version: Some(env!("CARGO_PKG_VERSION").to_owned()) }
}

fn initialize_params() -> String {
    let ClientName { name, version } = own_name();
    let client = json!({ "name": name, "title": null, "version": version });
    json!({ "clientInfo": client, "capabilities": { "experimentalApi": true } }).to_string()
}

pub(super) fn answer_without_client(id: &RawValue) -> Effect {
    inject(Conn::OWN, vec![free_line(no_client_error(id))])
}

/// Reads `optOutNotificationMethods` from `initialize`.
fn opted_out(message: &Message<'_>) -> Option<HashSet<String>> {
    let capabilities = Members::of(Members::of(message.params?)?.get("capabilities")?)?;
    serde_json::from_str(capabilities.get("optOutNotificationMethods")?.get()).ok()
}

/// Builds the answer to a client's `initialize` from the server's response to ours.
pub(super) fn greeting(id: &RawValue, result: &RawValue) -> Vec<u8> {
    format!("{{\"id\":{},\"result\":{}}}", id.get(), result.get()).into_bytes()
}

/// Builds the error response for a request that no client can answer.
pub(super) fn no_client_error(id: &RawValue) -> Vec<u8> {
    format!("{{\"id\":{},\"error\":{{\"code\":-32601,\"message\":\"no client is attached\"}}}}", id.get()).into_bytes()
}

/// Longest recorded user agent, in bytes; a real server sends about 100.
const USER_AGENT_BYTES_MAX: usize = 1_000;

/// Longest stored name or version of a client, in bytes; the rest is cut off.
const CLIENT_NAME_BYTES_MAX: usize = 200;

/// Watches for the first accepted `initialize` and its response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum VersionWatch {
    /// No `initialize` yet.
    #[default]
    Before,
    /// The request has no response yet.
    Asked,
    /// The response arrived.
    Done,
}

#[derive(Deserialize)]
struct HandshakeQuestion {
    #[serde(rename = "clientInfo")]
    client_info: ClientInfo,
}

#[derive(Deserialize)]
struct ClientInfo {
    name: Option<String>,
    version: Option<String>,
}

#[derive(Deserialize)]
struct HandshakeAnswer {
    #[serde(rename = "userAgent")]
    user_agent: String,
}

impl Engine {
    /// The client that owns the server initializes it.
    pub(super) fn client_initializes(&mut self, conn: Conn, event: &Event<'_>, effects: &mut Vec<Effect>) {
        let client = self.clients.of_mut(conn);
        if client.version != VersionWatch::Before {
            return;
        }
        client.version = VersionWatch::Asked;
        if client.on_record != OnRecord::Probe {
            introduced(event).into_iter().for_each(|client| self.introduce(conn, client, effects));
        }
    }

    /// The server responds to `initialize`.
    pub(super) fn server_initialized(&mut self, conn: Conn, event: &Event<'_>, effects: &mut Vec<Effect>) {
        let client = self.clients.of_mut(conn);
        match client.version {
            VersionWatch::Asked if event.error.is_some() => client.version = VersionWatch::Before,
            VersionWatch::Asked => {
                client.version = VersionWatch::Done;
                // A client that only looks whether a server answers leaves no trace.
                if client.on_record == OnRecord::Probe {
                    return;
                }
                // One server has one version for all connections.
                if std::mem::replace(&mut self.knows_version, true) {
                    return;
                }
                let answer = event.result.and_then(|result| serde_json::from_str::<HandshakeAnswer>(result.get()).ok());
                let answer = answer.filter(|answer| answer.user_agent.len() <= USER_AGENT_BYTES_MAX);
                let Some(HandshakeAnswer { user_agent }) = answer else { return };
                let version = version_in(&user_agent).map(str::to_owned);
                version.iter().for_each(|version| self.context.server_is(version));
                self.requests.server_is(version.as_deref());
                effects.push(Effect::Note(Note::CodexVersion { version, user_agent }));
            }
            VersionWatch::Before | VersionWatch::Done => {}
        }
    }
}

/// Reads `clientInfo` from `initialize`.
pub(super) fn introduced(initialize: &Message<'_>) -> Option<ClientName> {
    let HandshakeQuestion { client_info } = serde_json::from_str(initialize.params?.get()).ok()?;
    Some(client_info.bounded())
}

impl ClientInfo {
    fn bounded(self) -> ClientName {
        let cut = |text: Option<String>| {
            text.map(|mut text| {
                text.truncate(text.floor_char_boundary(CLIENT_NAME_BYTES_MAX));
                text
            })
        };
        ClientName { name: cut(self.name), version: cut(self.version) }
    }
}

/// Reads the version from a user agent such as `some-client/0.169.0 (Debian 12; x86_64) …`: the text between a `/` and
/// the first parenthesis after it. The client's own name comes first and may contain a version and parentheses too.
/// Without a parenthesis, the version follows the first `/` before a digit and ends at white space.
fn version_in(user_agent: &str) -> Option<&str> {
    let is_version = |text: &&str| text.starts_with(|first: char| first.is_ascii_digit());
    let ahead = user_agent.match_indices(" (").find_map(|(at, _)| {
        let (_, last) = user_agent[..at].rsplit_once('/')?;
        Some(last).filter(is_version).filter(|last| !last.contains(char::is_whitespace))
    });
    ahead.or_else(|| user_agent.split('/').skip(1).find(is_version)?.split_whitespace().next())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{
        ApiReply, ApiRequest, AssemblySettings, ClientName, ContextSettings, Decision, Effect, Engine, EngineSettings,
        Incoming, Input, LedgerEntry, LinkEffect, Note, Now, Order, Passage, RequestSettings,
    };
    use super::*;
    use crate::wire::{Conn, Line, LineEnd, Side};

    const INITIALIZE: &str = concat!(
        r#">{"id": 1.0,"method":"initialize","params":{"clientInfo":{"name":"ide","version":"2"},"#,
        r#""capabilities":{"optOutNotificationMethods":["item/delta"]}}}"#
    );

    fn engine(requests: RequestSettings, server_owner: ServerOwner) -> Engine {
        Engine::new(EngineSettings {
            budget: Default::default(),
            exit_grace: Duration::from_secs(10),
            context: ContextSettings::default(),
            assembly: AssemblySettings::default(),
            requests,
            server_owner,
            own_ids: "codex-shim:".to_owned(),
            tokens_before: 0,
        })
    }

    /// Plays lines against a relay-owned server: `>` client line, `<` server line, `+` attach, `-` detach, `r` an API caller's
    /// method with parameters. `expect` has the effects of each step as words.
    fn check(settings: RequestSettings, server_owner: ServerOwner, script: &[(&str, &str)]) {
        let mut engine = engine(settings, server_owner);
        let now = Now { unix_us: 1, elapsed: Duration::ZERO };
        let mut effects = Vec::new();
        engine.handle(now, Input::SessionOpened { generation: "g".to_owned() }, &mut effects);
        engine.handle(now, Input::ServerStarted { pid: 1, adopted: false }, &mut effects);
        for (step, expect) in script {
            effects.clear();
            let (who, line) = step.split_at(1);
            let line = Line { bytes: line.as_bytes(), end: LineEnd::Newline };
            let incoming = match who {
                ">" => Some((Side::Client, Incoming::Line(line))),
                "<" => Some((Side::Server, Incoming::Line(line))),
                "p" => Some((Side::Server, Incoming::Piece)),
                "l" => Some((Side::Server, Incoming::LastPiece { line_bytes: 1 })),
                _ => None,
            };
            let decision = match incoming {
                Some((from, incoming)) => {
                    engine.read(now, Conn::OWN, from, incoming, &mut effects).expect("BUG: no line is held")
                }
                None => {
                    let input = match who {
                        "+" => Input::ApiRequest { api_call: 9, request: ApiRequest::Attach, server_listens: true },
                        "r" => {
                            let (method, params) = step[1..].split_once(' ').expect("BUG: a call has parameters");
                            let (method, params) = (method.to_owned(), Some(params.to_owned()));
                            let request = ApiRequest::Rpc { method, params, by: "cli".to_owned() };
                            Input::ApiRequest { api_call: 8, request, server_listens: true }
                        }
                        "x" => Input::Committed { token: 1, done: false },
                        "c" => Input::Committed { token: 1, done: true },
                        "." => Input::Closed { from: Side::Server },
                        _ => Input::Detached,
                    };
                    engine.handle(now, input, &mut effects);
                    Decision { line: Passage::Withhold, ..Decision::default() }
                }
            };
            let hold = decision.hold.map(|token| format!("hold{token}"));
            let forward = (!decision.is_withheld()).then(|| "forward".to_owned());
            let of_line = decision.record.map(|_| "record".to_owned()).into_iter().chain(hold).chain(forward);
            let actual = effects.iter().filter_map(in_words).chain(of_line);
            let actual: Vec<String> = actual.chain(decision.then.iter().filter_map(in_words)).collect();
            assert_eq!(actual.join(" "), *expect, "{step}");
        }
    }

    /// Names the effects that concern routing.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other effects have their own tests")]
    fn in_words(effect: &Effect) -> Option<String> {
        Some(match effect {
            Effect::Link(LinkEffect::Release(token)) => format!("release{token}"),
            Effect::Order(Order::Keep(LedgerEntry::RequestLate { .. })) => "row-late".to_owned(),
            Effect::Link(LinkEffect::PassLate { .. }) => "late".to_owned(),
            Effect::Link(LinkEffect::Answer(_, line)) => {
                assert_eq!(line.to, Side::Client);
                format!("answer({})", String::from_utf8_lossy(&line.bytes))
            }
            Effect::Link(LinkEffect::Inject(injection)) => match &injection.lines[0].bytes {
                line if line.ends_with(br#""no client is attached"}}"#) => {
                    format!("nobody({})", String::from_utf8_lossy(&line[6..7]))
                }
                _ => format!("inject({})", injection.lines.len()),
            },
            Effect::Note(Note::ClientAttached { name }) => format!("attached({})", name.as_deref().unwrap_or("-")),
            Effect::Note(Note::ClientLeft { name }) => format!("left({})", name.as_deref().unwrap_or("-")),
            Effect::Link(LinkEffect::Introduce(_, client)) => {
                let ClientName { name, version: _ } = &**client;
                format!("client({})", name.as_deref().unwrap_or("-"))
            }
            Effect::Link(LinkEffect::Reply(9, ApiReply::Admitted { admission: 9 })) => "admitted".to_owned(),
            Effect::Link(LinkEffect::Reply(9, ApiReply::NotReady(_))) => "not ready".to_owned(),
            Effect::Link(LinkEffect::Reply(9, ApiReply::NotServed)) => "not served".to_owned(),
            Effect::Link(LinkEffect::Reply(9, ApiReply::ClientAttached { name })) => {
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
    fn one_client_attaches_after_server_initializes() {
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
    fn handshake_is_intercepted_only_once() {
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
    fn server_lines_pass_after_handshake() {
        let lines = [r#"<{"method":"a"}"#, "<text", "<[]", "<{}"];
        let all = |expect| lines.map(|line| (line, expect));
        let script = [&all("record")[..], &[HERE], &all("record"), &[GREETED], &all("record forward"), &[GONE]];
        check_served(&[&script.concat()[..], &all("record")].concat());
    }

    #[test]
    fn notifications_about_own_calls_are_withheld() {
        let (passes, stays, ours) = ("record forward", "record", "inject(1)");
        let about =
            |what: &str| format!(r#"<{{"method":"deprecationNotice","params":{{"summary":"{what} is deprecated"}}}}"#);
        let [notice, of_resume, other] = ["`includeTurns`", "whole; use `excludeTurns`", "a setting"].map(about);
        let (notice, of_resume, other) = (notice.as_str(), of_resume.as_str(), other.as_str());
        let partial =
            |id: &str| format!(r#"<{{"method":"thread/search/partial","params":{{"data":[],"requestId":{id}}}}}"#);
        let (own, of_client) = (partial(r#""codex-shim:5""#), partial(r#""codex-shim5""#));
        let read = r#"thread/read {"threadId":"t","includeTurns":true}"#;
        let call = r#">{"id":5,"method":"thread/read","params":{"includeTurns":true,"threadId":"t"}}"#;
        check(
            RequestSettings::default(),
            ServerOwner::Client,
            &[
                (INITIALIZE.replace("1.0", "1").as_str(), "record forward client(ide)"),
                (r#"<{"id":1,"result":{"userAgent":"x/1.2.3"}}"#, passes),
                (notice, passes),
                (format!("r{read}").as_str(), ours),
                (other, passes),
                (of_resume, passes),
                (notice, stays),
                (notice, passes),
                (r#"<{"id":"codex-shim:1","result":{}}"#, stays),
                // The client's own call was first.
                (call, passes),
                (format!("r{read}").as_str(), ours),
                (r#"rthread/resume {"threadId":"t"}"#, ours),
                (of_resume, stays),
                (of_resume, passes),
                (notice, passes),
                (notice, stays),
                // These calls cause none.
                (r#"rthread/read {"threadId":"t"}"#, ours),
                (r#"rthread/turns/list {"threadId":"t","itemsView":"full"}"#, ours),
                (notice, passes),
                (r#"rthread/search/stream {"searchTerm":"a"}"#, ours),
                (own.as_str(), stays),
                (of_client.as_str(), passes),
                (partial("5").as_str(), passes),
            ],
        );
    }

    #[test]
    fn opted_out_notifications_are_withheld() {
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
    fn responses_reach_only_their_caller() {
        let call = |id: &str| format!(r#">{{"id":{id},"method":"m"}}"#);
        let answer = |id: &str| format!(r#"<{{"id":{id},"result":{{}}}}"#);
        let (call_5, call_s, answer_5, answer_s) = (call("5"), call("\"5\""), answer("5"), answer("\"5\""));
        let (called, called_s) = ((&*call_5, "record forward"), (&*call_s, "record forward"));
        let (answered, lost, lost_s) = ((&*answer_5, "record forward"), (&*answer_5, "record"), (&*answer_s, "record"));
        // This also holds before its `initialize`: only this client can be meant.
        check_served(&[HERE, called, answered, answered]);
        check_served(&[HERE, GREETED, called, GONE, lost]);
        check_served(&[HERE, called, called_s, GONE_UNNAMED, HERE, GREETED, lost_s]);
        // A connected client always gets an answer.
        let left = [HERE, called, GONE_UNNAMED];
        check_served(&[&left[..], &left, &[HERE, called, answered, lost, lost, answered]].concat());
        check_served(&[&left[..], &[HERE, called, answered, called, answered, lost]].concat());
    }

    #[test]
    fn client_only_requests_fail_without_client() {
        let asked = |id: &str| format!(r#"<{{"id":{id},"method":"item/tool/call","params":{{}}}}"#);
        let (asked_1, asked_2, time) = (asked("1"), asked("2"), r#"<{"id":3,"method":"currentTime/read"}"#);
        let (nobody_1, nobody_time) = ((&*asked_1, "nobody(1) record"), (time, "nobody(3) record"));
        check_served(&[nobody_1, HERE, nobody_time, GREETED, (time, "record forward")]);
        let passed = [(&*asked_1, "record forward"), (&*asked_2, "record forward")];
        let left = ("-", "left(ide) client(codex-shim) nobody(2)");
        let answer = (r#">{"id":1,"result":{}}"#, "record forward");
        check_served(&[&[HERE, GREETED][..], &passed, &[answer, left, HERE, GONE_UNNAMED]].concat());
        // An approval stays open, because any human may answer it from anywhere.
        let approval = r#"<{"id":4,"method":"item/fileChange/requestApproval","params":{}}"#;
        check_served(&[(approval, "record"), HERE, GREETED, (approval, "record hold1 forward"), GONE]);
    }

    #[test]
    fn long_line_reaches_one_client_or_none() {
        check_served(&[("p", ""), HERE, GREETED, ("p", ""), ("l", "record"), ("l", "record forward")]);
        check_served(&[HERE, GREETED, ("p", "forward"), ("p", "forward"), ("l", "record forward"), GONE, ("p", "")]);
        check_served(&[HERE, GREETED, ("p", "forward"), GONE, ("p", ""), HERE, GREETED, ("p", ""), ("l", "record")]);
    }

    #[test]
    fn held_request_is_forwarded_late_to_listener() {
        let hold = RequestSettings { hold: true, ..RequestSettings::default() };
        let asked = (r#"<{"id":0,"method":"item/fileChange/requestApproval","params":{}}"#, "record");
        check(hold.clone(), ServerOwner::Relay, &[READY, asked, HERE, ("x", "release1")]);
        check(hold, ServerOwner::Relay, &[READY, HERE, GREETED, asked, ("x", "release1 late row-late")]);
    }

    #[test]
    fn unseen_request_is_not_late_when_repeated() {
        let asked = r#"<{"id":0,"method":"item/fileChange/requestApproval","params":{}}"#;
        let (unseen, waits, passes) = ((asked, "record"), (asked, "record hold1 forward"), (asked, "record forward"));
        check_served(&[unseen, ("x", ""), unseen, HERE, GREETED, passes]);
        check_served(&[unseen, HERE, GREETED, waits, waits, ("x", "release1 row-late"), passes]);
        check_served(&[unseen, HERE, GREETED, waits, ("c", "release1"), passes]);
    }

    /// Plays lines, `>` from the client and `<` from the server, and returns the effects.
    fn learned(script: &[&str]) -> Vec<Effect> {
        let mut engine = engine(RequestSettings::default(), ServerOwner::Client);
        let now = Now { unix_us: 1, elapsed: Duration::ZERO };
        let learn = |step: &&str| {
            let (side, line) = step.split_at(1);
            let from = if side == ">" { Side::Client } else { Side::Server };
            let line = Line { bytes: line.as_bytes(), end: LineEnd::Newline };
            let decision = engine.read(now, Conn::OWN, from, Incoming::Line(line), &mut Vec::new());
            decision.expect("BUG: no line is held").then
        };
        script.iter().flat_map(learn).collect()
    }

    fn introduced(client_info: &str) -> Vec<Effect> {
        learned(&[&format!(">{{\"id\":0,\"method\":\"initialize\",\"params\":{{\"clientInfo\":{client_info}}}}}")])
    }

    fn client(name: Option<&str>, version: Option<&str>) -> Vec<Effect> {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        vec![Effect::Link(LinkEffect::Introduce(
            Conn::OWN,
            Box::new(ClientName { name: owned(name), version: owned(version) }),
        ))]
    }

    #[test]
    fn clients_name_themselves() {
        assert_eq!(introduced(r#"{"name":"ide","title":null,"version":"1.2"}"#), client(Some("ide"), Some("1.2")));
        assert_eq!(introduced(r#"{"version":null}"#), client(None, None));
        assert_eq!(introduced("7"), []);
        let long = "ä".repeat(300);
        assert_eq!(introduced(&format!(r#"{{"name":"{long}"}}"#)), client(Some(&"ä".repeat(100)), None));
    }

    #[test]
    fn rejected_initialize_is_retried() {
        let asked = r#">{"id":0,"method":"initialize"}"#;
        let refused = r#"<{"id":0,"error":{"code":-1,"message":"no"}}"#;
        let answered = r#"<{"id":0,"result":{"userAgent":"x/1.2.3 y"}}"#;
        assert_eq!(learned(&[asked, refused, answered]), []);
        assert_eq!(learned(&[asked, refused, asked, answered, asked, answered]).len(), 1);
    }

    #[test]
    fn versions() {
        assert_eq!(version_in("codex_vscode/0.169.0 (Linux; x86_64) vscode/1.99"), Some("0.169.0"));
        assert_eq!(version_in("a/b client/1.2.3-alpha.4 x"), Some("1.2.3-alpha.4"));
        assert_eq!(version_in("acme/0.9/0.169.0 (Linux; x86_64) acme/0.9"), Some("0.169.0"));
        assert_eq!(version_in("My IDE (beta)/0.130.0 (Debian 12; x86_64) x"), Some("0.130.0"));
        assert_eq!(version_in("9 lives (of 9)"), None);
        assert_eq!(version_in("nothing"), None);
        assert_eq!(version_in("x/"), None);
    }
}
