//! The sessions of all hosts, for the page and the terminal UI.
//!
//! ```text
//! buckets, questions ──▶ thread ──▶ what is known of each host ──▶ sessions, pending requests
//! stream CSHIM_EV ──────▶ recording ──▶ timeline
//! answers, messages ────▶ question ──▶ host ──▶ relay
//! ```
//!
//! The state of a session and its pending requests come from what the thread has read; each other call is a question to the
//! host. The thread reads the two buckets each second, and asks the hosts that have
//! changed. It rests while no view reads from it.
//!
//! A host that is offline keeps its sessions here, with the time since when it is away. Nothing can be sent to it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::client::{AskError, Client, ClientError, Host};
use super::found::{found, front, session_rows, time_of};
use super::looks::Looks;
use super::recording::{ReadPage, Recording, SEARCHED_MAX};
use super::subject;
use super::wire::{Failure, PendingDocument, Question, VERSION};
use crate::api::{
    ClientDocument, Command, Counters, Fault, InputBody, InterruptBody, ListedSession, OneRequest, Request, Responded,
    SessionDocument,
};
use crate::control::client::{Answer, ClientError as NoAnswer, RawReply, Refused, Unanswered};
use crate::engine::RequestType;
use crate::requests::given::Given;
use crate::sessions::reader::{Following, Teller};
use crate::sessions::source::{Polling, Recorded, Source};
use crate::store::Found;

/// Shortest time between two questions to a host that has not changed, if the fleet is small.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// How long the first read after a rest waits for news.
const FRESH_WAIT_MAX: Duration = Duration::from_secs(2);

/// A fleet with at most this many hosts is small.
const SMALL_MAX: usize = 32;

/// How long a host that was too slow is left alone, because a question waits for the slowest host.
const REST_AFTER_SILENCE: Duration = Duration::from_secs(30);

/// In one pass over all hosts, requests are fetched one by one if their texts did not fit into the list; at most this
/// many.
const COMPLETED_MAX: usize = 16;

/// Says what a host leaves out at the level `summary`.
const SUMMARY: &str = "this host sends only summaries: texts, outputs and diffs stay there";

/// The same for a request.
const SUMMARY_OF_REQUEST: &str = "this host sends only a summary of the request: the rest stays there";

/// The end of a text that did not fit into a reply.
const CUT_OF_REPLY: &str = " bytes in all)";

/// The sessions of all hosts of a fleet.
#[derive(Debug)]
pub struct Views {
    shared: Arc<Shared>,
    /// Wakes the thread. The thread ends with it.
    look: SyncSender<()>,
}

#[derive(Debug)]
struct Shared {
    client: Arc<Client>,
    known: Mutex<Known>,
    has_read: Condvar,
}

/// All that was read.
#[derive(Debug, Default)]
struct Known {
    /// By the beginning of the ids of their sessions.
    hosts: BTreeMap<String, KnownHost>,
    /// Why nothing can be read now.
    problem: Option<String>,
    looks: Looks,
}

#[derive(Debug, Default)]
struct KnownHost {
    host: Host,
    pending: Option<PendingDocument>,
    /// The rows of its sessions.
    sessions: Vec<ListedSession>,
    /// The pending requests of these.
    requests: Vec<Request>,
    /// Why it has not replied, if it is online.
    problem: Option<String>,
    asked_at: Option<Instant>,
    /// The host was too slow and is not asked before this time.
    rests_until: Option<Instant>,
    /// Grows with each change.
    change: u64,
}

/// The id of the session of a request, without the host.
fn session_of(row: &Request) -> &str {
    row.session.as_ref().and_then(|session| session.session_id.as_deref()).unwrap_or_default()
}

/// The text of a member; empty if it is not a string.
pub fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_default()
}

impl Views {
    /// Reads the fleet once, and then until this is dropped.
    ///
    /// # Errors
    ///
    /// The fleet cannot be read.
    pub fn start(client: Client) -> Result<Views, ClientError> {
        let (client, known, has_read) = (Arc::new(client), Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { client, known, has_read });
        shared.read()?;
        let (look, told) = sync_channel(1);
        let own = Arc::clone(&shared);
        std::thread::Builder::new().name("fleet".to_owned()).spawn(move || {
            let _told = TellsItsEnd(Arc::clone(&own));
            while own.is_due(&told) {
                let problem = own.read().err().map(|error| format!("the fleet cannot be read: {error}"));
                let mut known = own.known();
                known.problem = problem;
                known.looks.has_read();
                drop(known);
                own.has_read.notify_all();
            }
        })?;
        Ok(Views { shared, look })
    }

    fn look(&self) {
        // A look that is already due is enough.
        let _ = self.look.try_send(());
    }

    /// The current state, for a view. The first read after a rest waits for news, within a limit.
    fn seen(&self) -> MutexGuard<'_, Known> {
        let mut known = self.shared.known();
        known.looks.last_at = Instant::now();
        if !known.looks.rests {
            return known;
        }
        let reads = known.looks.reads;
        self.look();
        let is_old = |known: &mut Known| known.looks.reads == reads;
        let waited = self.shared.has_read.wait_timeout_while(known, FRESH_WAIT_MAX, is_old);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sends a question. If it may change anything, the thread reads the fleet again at once.
    fn ask(&self, to: &To, question: &Question) -> Result<Value, Unanswered> {
        let host = to.host.name();
        let asked = self.shared.client.ask(host, question);
        if question.mode() == subject::Mode::Write {
            self.look();
        }
        asked.map_err(|error| match error {
            AskError::Failed(failure) => refused(&failure),
            AskError::Refused(_) => {
                let message = format!("{error}; `codex-shim fleet check` says what these credentials may do");
                refused(&Failure::new("fleet_refused", message))
            }
            AskError::Offline => NoAnswer::of_host(to.host.offline()).into(),
            AskError::TooSlow => {
                let message = format!("host {host}: {error}; it may still carry it out");
                NoAnswer::of_host_after_sending(message).into()
            }
            AskError::Broken(_) => NoAnswer::of_host_after_sending(format!("host {host}: {error}")).into(),
        })
    }

    /// Reads what is known of a session of a host that can be asked, by its own name.
    fn read<T>(
        &self,
        session: &Found,
        read: impl FnOnce(&KnownHost, &str) -> Result<T, String>,
    ) -> Result<T, Unanswered> {
        let to = self.to(session)?;
        let known = self.seen();
        let host = known.hosts.get(&front(to.host.name())).ok_or_else(|| to.host.offline());
        let read = host.and_then(|host| known.away(host).map_or_else(|| read(host, &to.session), Err));
        read.map_err(|why| NoAnswer::of_host(why).into())
    }

    /// Finds the host of a session.
    fn to(&self, session: &Found) -> Result<To, NoAnswer> {
        let (front_of, own) = session.id.split_once('/').unwrap_or_default();
        let known = self.shared.known();
        let Some(KnownHost { host, .. }) = known.hosts.get(front_of) else {
            return Err(NoAnswer::of_host(format!("no host `{front_of}` is in the fleet")));
        };
        Ok(To { host: host.clone(), session: own.to_owned() })
    }

    fn respond(&self, to: &To, request: &OneRequest, body: &Value) -> Result<RawReply, Unanswered> {
        let id = request.id();
        if to.host.is_summary() && self.shared.known().needs_texts(to.host.name(), id, body) {
            let message = format!("{SUMMARY_OF_REQUEST}, so answer it on host {}", to.host.name());
            return Err(refused(&Failure::new("summary_only", message)));
        }
        let given = Given::Whole { body: body.clone() };
        let asked = Question::Respond { v: VERSION, session: Some(to.session.clone()), request: id.to_owned(), given };
        let document: Responded = reply(&self.ask(to, &asked)?).document()?;
        // The next reply of the host no longer lists it.
        self.shared.known().forget(to.host.name(), id);
        // Whether the answer counts was decided with the whole row, which may have stayed on the host.
        Ok(reply(&json!(Responded { idempotent: !document.ok, ..document })))
    }
}

/// On drop, makes all views show that the reading thread has ended.
struct TellsItsEnd(Arc<Shared>);

impl Drop for TellsItsEnd {
    fn drop(&mut self) {
        self.0.known().problem = Some("the fleet is not read any more: start this view again".to_owned());
    }
}

/// A session of a host.
struct To {
    host: Host,
    session: String,
}

fn reply(document: &Value) -> RawReply {
    RawReply(document.to_string().into())
}

fn refused(failure: &Failure) -> Unanswered {
    let status = match &*failure.code {
        "session_not_found" | "request_not_found" | "thread_not_found" => StatusCode::NOT_FOUND,
        "invalid_response" | "invalid_question" => StatusCode::UNPROCESSABLE_ENTITY,
        "fleet_refused" => StatusCode::FORBIDDEN,
        _ => StatusCode::CONFLICT,
    };
    let document = json!({ "detail": { "error_code": failure.code, "message": failure.message } });
    Unanswered::Refused(Refused::of(Answer { status, body: document.to_string().into() }))
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the next read is due; `false` if all views are gone.
    fn is_due(&self, told: &Receiver<()>) -> bool {
        let wait = self.known().looks.wait(Instant::now());
        match wait {
            Some(wait) => told.recv_timeout(wait) != Err(RecvTimeoutError::Disconnected),
            None => told.recv().is_ok(),
        }
    }

    /// Reads the buckets, and asks the hosts that have changed.
    fn read(&self) -> Result<(), ClientError> {
        let (hosts, pending) = (self.client.hosts()?, self.client.pending()?);
        let (sessions_of, requests_of) = self.known().take(hosts, pending);
        let (v, session) = (VERSION, None);
        let sessions = self.client.ask_all(&sessions_of, &Question::Sessions { v });
        let requests = self.client.ask_all(&requests_of, &Question::Requests { v, all: false, session });
        let mut left = COMPLETED_MAX;
        let requests =
            requests_of.iter().zip(requests).map(|(host, asked)| (host, self.complete(host, asked, &mut left)));
        let requests: Vec<_> = requests.collect();
        let mut known = self.known();
        for (host, asked) in sessions_of.iter().zip(sessions) {
            known.replied(host, asked, "sessions");
        }
        for (host, asked) in requests {
            known.replied(host, asked, "requests");
        }
        Ok(())
    }

    /// Asks for requests whose texts did not fit among the others, up to `left` of all hosts, and stops at the first one that fails:
    /// no host may keep the others waiting.
    fn complete(&self, host: &str, asked: Result<Value, AskError>, left: &mut usize) -> Result<Value, AskError> {
        let mut document = asked?;
        for row in document["requests"].as_array_mut().into_iter().flatten().filter(|row| is_cut(row)) {
            let Some(less) = left.checked_sub(1) else { break };
            *left = less;
            let (request, session) = (text(row, "request_id").to_owned(), row["session"].clone());
            let of = session["session_id"].as_str().map(str::to_owned);
            match self.client.ask(host, &Question::Request { v: VERSION, session: of, request }) {
                Ok(mut alone) if alone["request"].is_object() => {
                    *row = alone["request"].take();
                    row["session"] = session;
                }
                Ok(_) => {}
                Err(_) => *left = 0,
            }
        }
        Ok(document)
    }
}

/// Whether something did not fit into a reply.
pub fn is_cut_off(reply: &Value) -> bool {
    reply["cut"] == true || reply["left_out"].as_u64().is_some_and(|left_out| left_out > 0)
}

/// Whether a text of the row did not fit into a reply.
fn is_cut(value: &Value) -> bool {
    match value {
        Value::String(text) => text.ends_with(CUT_OF_REPLY) && text.contains("… (cut: "),
        Value::Array(values) => values.iter().any(is_cut),
        Value::Object(members) => members.values().any(is_cut),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

impl Known {
    /// Takes the buckets. Returns the hosts to ask for their sessions, and those to ask for their requests.
    fn take(&mut self, hosts: Vec<Host>, pending: Vec<PendingDocument>) -> (Vec<String>, Vec<String>) {
        let now = Instant::now();
        let is_small = hosts.iter().filter(|host| host.is_online).count() <= SMALL_MAX;
        let mut pending: BTreeMap<String, PendingDocument> =
            pending.into_iter().map(|document| (document.host.clone(), document)).collect();
        let (mut sessions_of, mut requests_of) = (Vec::new(), Vec::new());
        let described: BTreeSet<&str> = hosts.iter().map(|host| &*host.document.host).collect();
        for known in self.hosts.values_mut().filter(|known| !described.contains(&*known.host.document.host)) {
            // Its description is gone, or is not valid.
            known.host.is_online = false;
        }
        for host in hosts {
            let name = host.document.host.clone();
            let listed = pending.remove(&name);
            let known = self
                .hosts
                .entry(front(&name))
                .or_insert_with(|| KnownHost { host: host.clone(), ..KnownHost::default() });
            // Its agent had ended before this description was old enough.
            let is_same = known.host.document == host.document;
            let host = if is_same { Host { is_online: known.host.is_online && host.is_online, ..host } } else { host };
            let has_changed = known.host != host || known.pending != listed || known.asked_at.is_none();
            (known.host, known.pending) = (host, listed);
            if !known.host.is_online {
                continue;
            }
            let is_old = known.asked_at.is_none_or(|at| now.duration_since(at) >= ASK_AGAIN_AFTER);
            let rests = known.rests_until.is_some_and(|until| now < until);
            if rests || !(has_changed || (is_small && is_old)) {
                continue;
            }
            known.asked_at = Some(now);
            let has_requests = known.pending.as_ref().is_some_and(|listed| !listed.requests.is_empty());
            if has_requests {
                requests_of.push(name.clone());
            } else if !known.requests.is_empty() {
                known.requests.clear();
                known.change += 1;
            }
            sessions_of.push(name);
        }
        (sessions_of, requests_of)
    }

    /// Takes the reply of a host about its sessions or requests.
    fn replied(&mut self, host: &str, asked: Result<Value, AskError>, member: &str) {
        let Some(known) = self.hosts.get_mut(&front(host)) else { return };
        let document = match asked {
            Ok(document) => document,
            Err(error) => {
                known.host.is_online &= !matches!(error, AskError::Offline);
                known.rests_until = matches!(error, AskError::TooSlow).then(|| Instant::now() + REST_AFTER_SILENCE);
                known.problem = Some(format!("host {host}: {error}"));
                known.change += 1;
                return;
            }
        };
        // A host that is too slow for one of the two questions goes on resting; that about its sessions comes first.
        if member == "sessions" {
            (known.problem, known.rests_until) = (None, None);
        }
        if is_cut_off(&document) {
            known.problem = Some(format!("host {host} has more than fits into a reply; use the tools there"));
        }
        let Some(Value::Array(rows)) = document.get(member) else { return };
        let has_changed = match member {
            "sessions" => {
                let sessions = session_rows(&document);
                std::mem::replace(&mut known.sessions, sessions.clone()) != sessions
            }
            _ => {
                let rows = rows.iter().filter_map(|row| with_left_out(row, known.host.is_summary()));
                let rows: Vec<Request> = rows.filter(|row| subject::is_plain_id(&row.request_id)).collect();
                std::mem::replace(&mut known.requests, rows.clone()) != rows
            }
        };
        known.change += u64::from(has_changed);
    }

    /// The reason why a host cannot be asked, if there is one.
    fn away(&self, known: &KnownHost) -> Option<String> {
        match (&self.problem, known.host.is_online) {
            (Some(problem), _) => Some(problem.clone()),
            (None, true) => None,
            (None, false) => {
                let waiting = known.pending.as_ref().map_or(0, |pending| pending.requests.len());
                let since = known.host.offline();
                Some(match waiting {
                    0 => since,
                    1 => format!("{since}; 1 request waits there"),
                    more => format!("{since}; {more} requests wait there"),
                })
            }
        }
    }

    fn forget(&mut self, host: &str, id: &str) {
        if let Some(known) = self.hosts.get_mut(&front(host)) {
            known.requests.retain(|row| row.request_id != id);
            known.change += 1;
        }
    }

    /// Whether an answer needs texts that a host at the level `summary` has not sent.
    fn needs_texts(&self, host: &str, id: &str, body: &Value) -> bool {
        let rows = self.hosts.get(&front(host)).map(|known| &known.requests[..]).unwrap_or_default();
        let row = rows.iter().find(|row| row.request_id == id);
        let is_no = ["decline", "cancel"].contains(&text(body, "action"));
        // A row that is not known may be of any type.
        row.is_none_or(|row| match row.kind().request_type() {
            RequestType::UserInput => true,
            RequestType::Elicitation => !is_no,
            RequestType::Approval | RequestType::Permissions | RequestType::Other => false,
        })
    }
}

/// A request of a host, which says what has stayed there; `None` if it is not valid.
pub fn with_left_out(row: &Value, is_summary: bool) -> Option<Request> {
    const WHOLE_ON_HOST: &str = "a part of the request did not fit into the reply of the host: look at it there";
    let is_cut = is_cut(row);
    let mut row = Request::deserialize(row).ok()?;
    // A view would ask for the whole row, and hold up the rows of all other hosts.
    let has_dropped = row.drop_left_out();
    let left_out = match (is_summary, has_dropped || is_cut) {
        (true, _) => Some(SUMMARY_OF_REQUEST),
        (false, true) => Some(WHOLE_ON_HOST),
        (false, false) => None,
    };
    row.left_out = left_out.map(str::to_owned).or(row.left_out);
    Some(row)
}

impl KnownHost {
    /// The rows of the sessions; of a host that was never asked, those with pending requests.
    fn rows(&self, is_away: bool) -> Vec<ListedSession> {
        if !self.sessions.is_empty() || !is_away {
            return self.sessions.clone();
        }
        let pending = self.pending.iter().flat_map(|pending| &pending.requests);
        let pending = pending.filter(|row| subject::is_plain_id(&row.session_id));
        let mut names: BTreeMap<&str, &str> = pending.map(|row| (&*row.session_id, &*row.session_name)).collect();
        if names.is_empty() {
            // The host itself, so that a view shows that it is away.
            names.insert("offline", "");
        }
        let row = |(id, name): (&str, &str)| ListedSession {
            session_id: id.to_owned(),
            name: name.to_owned(),
            live: true,
            ..ListedSession::default()
        };
        names.into_iter().map(row).collect()
    }

    fn found(&self, row: &ListedSession, is_away: bool) -> Found {
        let mut found = found(&self.host.document.host, row);
        if is_away {
            found.last_used = time_of(&self.host.seen_at);
        }
        found
    }

    /// The state of a session, as far as its host has told it.
    fn document(&self, session: &str) -> Result<SessionDocument, String> {
        let host = &self.host.document.host;
        let row = self.sessions.iter().find(|row| row.session_id == session && row.live);
        let row = row.ok_or_else(|| format!("no relay runs in this session of host {host}"))?;
        let silent = || self.problem.clone().unwrap_or_else(|| format!("its relay on host {host} does not answer"));
        let state = row.state.ok_or_else(silent)?;
        let name = self.found(row, false).holder.and_then(|holder| holder.client);
        let fault = |what: &String| Fault { what: what.clone(), since: String::new() };
        Ok(SessionDocument {
            session_id: session.to_owned(),
            state,
            activity_state: state,
            client: ClientDocument { name, version: None },
            pending_requests: self.requests_of(session).count() as u64,
            faults: self.problem.iter().map(fault).collect(),
            counters: Counters { server_lines: self.change, ..Counters::default() },
            started_at: Some(row.since.clone()),
            ..SessionDocument::default()
        })
    }

    fn requests_of(&self, session: &str) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(move |row| session_of(row) == session)
    }
}

impl Source for Views {
    fn all(&self) -> Vec<Found> {
        let known = self.seen();
        let mut all = Vec::new();
        for host in known.hosts.values() {
            let is_away = known.away(host).is_some();
            let waiting: BTreeSet<&str> = host.requests.iter().map(session_of).collect();
            for row in host.rows(is_away) {
                all.push((waiting.contains(&*row.session_id), host.found(&row, is_away)));
            }
        }
        // A view has limited room, so sessions with requests come first.
        all.sort_by_key(|(is_waiting, session)| {
            (!is_waiting, !session.live, std::cmp::Reverse(session.last_used), session.id.clone())
        });
        all.into_iter().map(|(_, session)| session).collect()
    }

    fn is_still_live(&self, session: &Found) -> bool {
        let known = self.seen();
        let (front_of, own) = session.id.split_once('/').unwrap_or_default();
        let Some(host) = known.hosts.get(front_of) else { return false };
        let is_it = |row: &ListedSession| row.session_id == own && row.live;
        match host.sessions.is_empty() {
            true => host.rows(known.away(host).is_some()).iter().any(is_it),
            false => host.sessions.iter().any(is_it),
        }
    }

    fn traffic(&self, session: &Found) -> (String, u64) {
        let front_of = session.id.split_once('/').map_or("", |(front_of, _)| front_of);
        let known = self.seen();
        (String::new(), known.hosts.get(front_of).map_or(0, |host| host.change))
    }

    fn polling(&self) -> Polling {
        Polling::Known
    }

    fn waiting(&self) -> Option<HashMap<String, usize>> {
        let known = self.seen();
        let mut waiting = HashMap::new();
        for host in known.hosts.values().filter(|host| known.away(host).is_none()) {
            let front = front(&host.host.document.host);
            for row in &host.requests {
                *waiting.entry(format!("{front}/{}", session_of(row))).or_insert(0) += 1;
            }
        }
        Some(waiting)
    }

    fn state(&self, session: &Found) -> Result<SessionDocument, Unanswered> {
        self.read(session, KnownHost::document)
    }

    fn pending(&self, session: &Found) -> Result<Vec<Request>, Unanswered> {
        self.read(session, |host, own| Ok(host.requests_of(own).cloned().collect()))
    }

    fn request(&self, session: &Found, request: &OneRequest) -> Result<Request, Unanswered> {
        let to = self.to(session)?;
        let (session, request) = (Some(to.session.clone()), request.id().to_owned());
        let document = self.ask(&to, &Question::Request { v: VERSION, session, request })?;
        let unsent = || Failure::new("request_not_found", format!("host {} sent no request", to.host.name()));
        with_left_out(&document["request"], to.host.is_summary()).ok_or_else(|| refused(&unsent()))
    }

    fn command(&self, session: &Found, command: &Command) -> Result<RawReply, Unanswered> {
        let to = self.to(session)?;
        let (v, session) = (VERSION, to.session.clone());
        let question = match command.clone() {
            Command::Respond(request, answer) => return self.respond(&to, &request, &answer),
            Command::Input(InputBody { text, thread_id: thread }) => Question::Send { v, session, text, thread },
            Command::Interrupt(InterruptBody { thread_id: thread }) => Question::Interrupt { v, session, thread },
            Command::Overrule(..)
            | Command::StartThread(_)
            | Command::Push(_)
            | Command::Drop(_)
            | Command::Clear
            | Command::HandOver(_) => {
                let message = format!("this works only on host {} itself", to.host.name());
                return Err(refused(&Failure::new("not_in_fleet", message)));
            }
        };
        Ok(reply(&self.ask(&to, &question)?))
    }

    fn recorded(&self, session: &Found, wanted: Arc<AtomicBool>) -> Box<dyn Recorded> {
        Box::new(self.recording(session, wanted))
    }

    fn follow(&self, session: &Found, epoch: u64, teller: Teller) -> io::Result<Following> {
        self.recording(session, Arc::new(AtomicBool::new(true))).follow(epoch, teller)
    }
}

impl Views {
    fn recording(&self, session: &Found, wanted: Arc<AtomicBool>) -> Recording {
        let client = Arc::clone(&self.shared.client);
        let (host, session, left_out) = match self.to(session) {
            Ok(to) => (to.host.name().to_owned(), to.session, to.host.is_summary().then_some(SUMMARY)),
            // An unknown host has no events.
            Err(_) => (String::new(), session.id.clone(), None),
        };
        let read_page: ReadPage =
            Box::new(move |start| client.events_of(&host, &session, start).map_err(|error| error.to_string()));
        Recording { read_page, left_out, wanted, searched_max: SEARCHED_MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::wire::HostDocument;

    fn host(seen_at: &str, is_online: bool) -> Host {
        let (host, level) = ("build-7".to_owned(), "summary".to_owned());
        let document = HostDocument { host, level, seen_at: seen_at.to_owned(), ..HostDocument::default() };
        Host { document, seen_at: seen_at.to_owned(), is_online }
    }

    fn sessions() -> Value {
        json!({ "sessions": [{ "session_id": "s", "name": "proj (zed)", "live": true, "state": "idle", "cwd": "/w/proj" }] })
    }

    #[test]
    fn hosts_are_found_by_the_ids_of_their_sessions() {
        let mut known = Known::default();
        let names = ["ä", "b.c", "build-7"];
        let hosts = names.map(|name| {
            let mut host = host("1", true);
            host.document.host = name.to_owned();
            host
        });
        assert_eq!(known.take(hosts.to_vec(), Vec::new()).0, names);
        names.iter().for_each(|name| known.replied(name, Ok(sessions()), "sessions"));
        let fronts: Vec<&str> = known.hosts.keys().map(String::as_str).collect();
        assert_eq!(fronts, ["b.c", "build-7", "~C3~A4"]);
        let id = |host: &KnownHost| host.found(&host.sessions[0], false).id;
        assert!(known.hosts.iter().all(|(front, host)| id(host) == format!("{front}/s")));
    }

    #[test]
    fn host_whose_agent_has_ended_is_away_until_it_writes_again() {
        let mut known = Known::default();
        assert_eq!(known.take(vec![host("1", true)], Vec::new()).0, ["build-7"]);
        known.replied("build-7", Ok(sessions()), "sessions");
        let found = known.hosts["build-7"].found(&known.hosts["build-7"].sessions[0], false);
        let client = found.holder.as_ref().and_then(|holder| holder.client.as_deref());
        assert_eq!((&*found.id, found.live, client), ("build-7/s", true, Some("zed")));
        assert!(known.hosts["build-7"].document("s").is_ok() && known.hosts["build-7"].document("t").is_err());
        known.replied("build-7", Err(AskError::Offline), "sessions");
        let away = |known: &Known| known.away(&known.hosts["build-7"]);
        assert_eq!(away(&known).as_deref(), Some("host build-7 is offline since 1"));
        // Its description is not half a minute old yet.
        known.take(vec![host("1", true)], Vec::new());
        assert!(away(&known).is_some());
        assert_eq!(known.take(vec![host("2", true)], Vec::new()).0, ["build-7"]);
        assert_eq!(away(&known), None);
    }

    #[test]
    fn answers_with_texts_need_texts() {
        let mut known = Known::default();
        known.take(vec![host("1", true)], Vec::new());
        let row = |id: &str, method: &str| json!({ "request_id": id, "request_method": method });
        let rows = [
            row("q", "item/tool/requestUserInput"),
            row("f", "mcpServer/elicitation/request"),
            row("c", "item/commandExecution/requestApproval"),
        ];
        known.replied("build-7", Ok(json!({ "requests": rows })), "requests");
        let needs = |id: &str, body: Value| known.needs_texts("build-7", id, &body);
        assert!(needs("q", json!({ "answers": {} })) && needs("f", json!({ "action": "accept", "content": {} })));
        assert!(!needs("f", json!({ "action": "decline" })) && !needs("c", json!({ "decision": "accept" })));
        assert!(known.hosts["build-7"].requests.iter().all(|row| row.left_out.as_deref() == Some(SUMMARY_OF_REQUEST)));
        assert!(is_cut(&json!([{ "diff": "x… (cut: 9 bytes in all)" }])) && !is_cut(&json!("9 bytes in all)")));
    }
}
