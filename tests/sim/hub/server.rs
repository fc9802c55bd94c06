//! The server: it outlives the hubs, serves many connections, and sends each message of a thread to all its subscribers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

use super::super::dice::Dice;
use super::super::rules::{COMMANDS, DECLINED};
use super::super::side::Said;
use super::super::spelling::Spelling;

/// A connection to the server. No number is used twice.
pub type Key = u64;

/// Threads beyond which none starts another.
const THREADS_MAX: usize = 12;

/// Messages that a connection takes before the server reads some.
pub const UNREAD_MAX: usize = 4;

/// The commands that the server asks about when a connection hangs. Rules and API callers answer, and the answers wait there.
const ASKS_AT_HANG: [&str; 4] = [DECLINED, "touch x", DECLINED, "touch y"];

/// The server's end of a connection.
#[derive(Debug, Default)]
pub struct Session {
    is_initialized: bool,
    threads: BTreeSet<String>,
    /// All that the server has sent.
    pub said: Vec<Said>,
    /// How many of these the hub has read.
    pub read: usize,
    /// Messages from the hub that the server has not read.
    pub unread: VecDeque<Vec<u8>>,
    /// The hub has closed the connection.
    pub is_left: bool,
    /// The server reads nothing more, and will close the connection. How many more messages its end takes.
    pub hangs: Option<usize>,
}

#[derive(Debug)]
struct Waiting {
    thread: String,
    line: Vec<u8>,
}

/// The folders in which clients start threads.
pub const FOLDERS: [&str; 3] = ["/p/a", "/p/b", "/p/b/deep"];

/// What a thread is, as the server describes it.
#[derive(Debug, Clone)]
struct About {
    kind: Kind,
    folder: String,
    parent: Option<String>,
}

/// Whose thread it is. Only clients start the first two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    User,
    Title,
    Subagent,
    Review,
    Guardian,
}

impl Kind {
    /// The kinds that the server starts itself.
    const OF_SERVER: [Kind; 3] = [Kind::Subagent, Kind::Review, Kind::Guardian];

    /// As the history names it.
    fn name(self) -> &'static str {
        match self {
            Kind::User => "user",
            Kind::Title => "title",
            Kind::Subagent => "subagent",
            Kind::Review => "review",
            Kind::Guardian => "guardian",
        }
    }

    /// The members of the thread's object that tell it.
    fn members(self, parent: Option<&str>) -> Value {
        match self {
            Kind::User => json!({"threadSource": "user", "source": "cli"}),
            Kind::Title => json!({"threadSource": "thread_title", "ephemeral": true}),
            Kind::Subagent => {
                let spawn = json!({"subAgent": {"thread_spawn": {"parent_thread_id": parent, "depth": 1}}});
                json!({"threadSource": "subagent", "parentThreadId": parent, "source": spawn})
            }
            Kind::Review => json!({"source": {"subAgent": "review"}, "parentThreadId": parent}),
            Kind::Guardian => json!({"source": {"subAgent": {"other": "guardian"}}, "threadSource": "subagent"}),
        }
    }
}

#[derive(Debug, Default)]
pub struct Server {
    pub sessions: BTreeMap<Key, Session>,
    threads: u64,
    turns: u64,
    /// The running turn of each loaded thread.
    loaded: BTreeMap<String, Option<String>>,
    /// What each thread is.
    about: BTreeMap<String, About>,
    requests: u64,
    waiting: BTreeMap<u64, Waiting>,
    sent: u64,
    pub answers: u64,
    /// It has only threads in which persons speak.
    pub is_plain: bool,
    /// The status of a thread that works does not say that it waits for somebody.
    pub is_terse: bool,
}

/// The user's words without the text before them.
fn words(text: &str) -> Option<&str> {
    text.strip_prefix("\u{1e}CODEX_META ")?.split_once('\u{1f}').map(|(_, words)| words)
}

impl Server {
    /// Whether a person speaks in a thread.
    pub fn is_of_person(&self, thread: &str) -> bool {
        self.about.get(thread).is_none_or(|about| about.kind == Kind::User)
    }

    pub fn of_no_person(&self) -> Vec<String> {
        self.about.keys().filter(|thread| !self.is_of_person(thread)).cloned().collect()
    }

    /// A server that is started after this one. No two threads have the same id.
    pub fn next(&self) -> Server {
        Server { threads: self.threads, is_plain: self.is_plain, is_terse: self.is_terse, ..Server::default() }
    }

    pub fn folder(&self, thread: &str) -> &str {
        self.about.get(thread).map_or("", |about| &about.folder)
    }

    /// The kind and the folder of each thread.
    pub fn described_threads(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.about.iter().map(|(thread, about)| (thread.as_str(), about.kind.name(), about.folder.as_str()))
    }

    /// The object of a thread, with its status if there is one.
    fn described(&self, thread: &str, status: &Value) -> Value {
        let Some(About { kind, folder, parent }) = self.about.get(thread) else { return json!({"id": thread}) };
        let mut described = kind.members(parent.as_deref());
        described["id"] = thread.into();
        described["cwd"] = folder.as_str().into();
        if !status.is_null() {
            described["status"] = status.clone();
        }
        described
    }

    /// The threads in which persons speak.
    pub fn of_persons(&self) -> Vec<String> {
        self.loaded.keys().filter(|thread| self.is_of_person(thread)).cloned().collect()
    }

    /// A thread that a client may resume.
    pub fn some_thread(&self, dice: &mut Dice) -> Option<String> {
        let mut threads = self.of_persons();
        (!threads.is_empty()).then(|| threads.swap_remove(dice.roll(threads.len() as u64) as usize))
    }

    pub fn all_threads(&self) -> Vec<String> {
        self.loaded.keys().cloned().collect()
    }

    pub fn waits_for(&self) -> impl Iterator<Item = u64> {
        self.waiting.keys().copied()
    }

    fn say(&mut self, key: Key, said: Said) {
        if let Some(session) = self.sessions.get_mut(&key) {
            session.said.push(said);
        }
    }

    fn respond(&mut self, dice: &mut Dice, key: Key, id: &Value, result: &Value) {
        let bytes = Spelling::by_chance(dice).line(&json!({"id": id, "result": result}));
        self.say(key, Said { bytes, plain: None });
    }

    /// Sends the same message to some connections.
    fn send(&mut self, to: impl Fn(&Session) -> bool, said: &Said) {
        for session in self.sessions.values_mut().filter(|session| session.is_initialized && to(session)) {
            session.said.push(said.clone());
        }
    }

    fn notification(&mut self, method: &str, params: &Value) -> Value {
        self.sent += 1;
        json!({"method": method, "params": params, "emittedAtMs": 1_767_225_600_000_u64 + self.sent})
    }

    fn tell(&mut self, dice: &mut Dice, thread: &str, method: &str, params: &Value) {
        let message = self.notification(method, params);
        let said = Said { bytes: Spelling::by_chance(dice).line(&message), plain: None };
        self.send(|session| session.threads.contains(thread), &said);
    }

    fn tell_all(&mut self, dice: &mut Dice, method: &str, params: &Value) {
        let message = self.notification(method, params);
        let said = Said { bytes: Spelling::by_chance(dice).line(&message), plain: None };
        self.send(|_| true, &said);
    }

    fn status_of(&self, thread: &str) -> Value {
        let waits = !self.is_terse && self.waiting.values().any(|waiting| waiting.thread == thread);
        let flags = if waits { json!(["waitingOnApproval"]) } else { json!([]) };
        let is_active = self.loaded.get(thread).is_some_and(Option::is_some);
        if is_active { json!({"type": "active", "activeFlags": flags}) } else { json!({"type": "idle"}) }
    }

    fn status(&mut self, dice: &mut Dice, thread: &str) {
        let status = self.status_of(thread);
        self.tell_all(dice, "thread/status/changed", &json!({"threadId": thread, "status": status}));
    }

    /// Reads the next message of a connection. A connection that the hub has left ends after its last message.
    pub fn read(&mut self, dice: &mut Dice, key: Key) -> Option<Vec<u8>> {
        let session = self.sessions.get_mut(&key).filter(|session| session.hangs.is_none())?;
        let Some(line) = session.unread.pop_front() else {
            if session.is_left {
                self.sessions.remove(&key);
            }
            return None;
        };
        let is_initialized = session.is_initialized;
        if let Ok(message) = serde_json::from_slice::<Value>(&line) {
            match (message["method"].as_str(), &message["id"]) {
                (Some(method), id) if !id.is_null() => self.called(dice, key, method, id, &message["params"]),
                (None, Value::Number(id)) if is_initialized => self.answered(dice, id.as_u64().unwrap_or(u64::MAX)),
                _ => {}
            }
        }
        Some(line)
    }

    fn called(&mut self, dice: &mut Dice, key: Key, method: &str, id: &Value, params: &Value) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        if method == "initialize" {
            session.is_initialized = true;
            return self.respond(dice, key, id, &json!({"userAgent": "sim/0.169.0 (Linux; x86_64) sim"}));
        }
        let thread = params["threadId"].as_str().unwrap_or_default().to_owned();
        let is_loaded = self.loaded.contains_key(&thread);
        match method {
            _ if !session.is_initialized => self.refuse(dice, key, id, "Not initialized"),
            "thread/start" => self.start_thread(dice, key, id, params),
            "thread/resume" | "thread/read" | "turn/start" | "turn/interrupt" if !is_loaded => {
                self.refuse(dice, key, id, "no rollout found for thread id");
            }
            "thread/resume" => {
                session.threads.insert(thread.clone());
                let status = self.status_of(&thread);
                self.respond(dice, key, id, &self.opened(&thread, &status));
                let open: Vec<_> = self.waiting.values().filter(|waiting| waiting.thread == thread).collect();
                let open: Vec<_> = open.into_iter().map(|waiting| waiting.line.clone()).collect();
                open.into_iter().for_each(|bytes| self.say(key, Said { bytes, plain: None }));
            }
            "thread/read" => {
                let status = self.status_of(&thread);
                self.respond(dice, key, id, &json!({"thread": self.described(&thread, &status)}));
            }
            "thread/unsubscribe" => {
                session.threads.remove(&thread);
                self.respond(dice, key, id, &json!({"status": "unsubscribed"}));
            }
            "turn/start" => self.start_turn(dice, key, id, &thread, &params["input"]),
            "turn/interrupt" => {
                self.respond(dice, key, id, &json!({}));
                self.end_turn(dice, &thread, "interrupted");
            }
            _ => self.respond(dice, key, id, &json!({"echo": id})),
        }
    }

    fn refuse(&mut self, dice: &mut Dice, key: Key, id: &Value, why: &str) {
        let refusal = json!({"id": id, "error": {"code": -32_600, "message": why}});
        self.say(key, Said { bytes: Spelling::by_chance(dice).line(&refusal), plain: None });
    }

    fn start_thread(&mut self, dice: &mut Dice, key: Key, id: &Value, params: &Value) {
        let kind = if params["threadSource"] == "thread_title" { Kind::Title } else { Kind::User };
        let folder = params["cwd"].as_str().unwrap_or(FOLDERS[0]).to_owned();
        let thread = self.new_thread(About { kind, folder, parent: None });
        if let Some(session) = self.sessions.get_mut(&key) {
            session.threads.insert(thread.clone());
        }
        self.respond(dice, key, id, &self.opened(&thread, &Value::Null));
        let described = json!({"thread": self.described(&thread, &Value::Null)});
        self.tell_all(dice, "thread/started", &described);
        if kind == Kind::Title {
            let turn = self.next_turn();
            self.begin_turn(dice, &thread, &turn);
        }
    }

    /// The answer to a call that opens a thread.
    fn opened(&self, thread: &str, status: &Value) -> Value {
        let sandbox = json!({"type": "readOnly"});
        json!({"thread": self.described(thread, status), "cwd": self.folder(thread), "sandbox": sandbox})
    }

    fn new_thread(&mut self, about: About) -> String {
        self.threads += 1;
        let thread = format!("t{}", self.threads);
        self.loaded.insert(thread.clone(), None);
        self.about.insert(thread.clone(), about);
        thread
    }

    /// The model of a thread, or the server itself, starts another one, which works at once. Who follows the one follows the other.
    fn spawn(&mut self, dice: &mut Dice, parent: &str) {
        if self.loaded.len() >= THREADS_MAX || self.is_plain {
            return;
        }
        let kind = Kind::OF_SERVER[dice.roll(Kind::OF_SERVER.len() as u64) as usize];
        let folder = self.folder(parent).to_owned();
        let thread = self.new_thread(About { kind, folder, parent: Some(parent.to_owned()) });
        for session in self.sessions.values_mut().filter(|session| session.threads.contains(parent)) {
            session.threads.insert(thread.clone());
        }
        let described = json!({"thread": self.described(&thread, &Value::Null)});
        self.tell_all(dice, "thread/started", &described);
        let turn = self.next_turn();
        self.begin_turn(dice, &thread, &turn);
    }

    fn next_turn(&mut self) -> String {
        self.turns += 1;
        format!("u{}", self.turns)
    }

    fn begin_turn(&mut self, dice: &mut Dice, thread: &str, turn: &str) {
        self.loaded.insert(thread.to_owned(), Some(turn.to_owned()));
        self.tell(dice, thread, "turn/started", &json!({"threadId": thread, "turn": {"id": turn, "items": []}}));
        self.status(dice, thread);
    }

    fn start_turn(&mut self, dice: &mut Dice, key: Key, id: &Value, thread: &str, input: &Value) {
        let running = self.loaded.get(thread).cloned().flatten();
        let turn = running.clone().unwrap_or_else(|| self.next_turn());
        self.respond(dice, key, id, &json!({"turn": {"id": turn, "items": [], "status": "inProgress"}}));
        if running.is_none() {
            self.begin_turn(dice, thread, &turn);
        }
        self.repeat(dice, thread, &turn, input);
    }

    /// Repeats the user's input to every subscriber, with everything before it.
    fn repeat(&mut self, dice: &mut Dice, thread: &str, turn: &str, input: &Value) {
        let item = |content: &Value| json!({"type": "userMessage", "id": "m", "content": content});
        let params = |content: &Value| json!({"threadId": thread, "turnId": turn, "item": item(content)});
        let spelling = Spelling::by_chance(dice);
        let message = self.notification("item/started", &params(input));
        let mut content = input.clone();
        let plain = content[0]["text"].as_str().and_then(words).map(str::to_owned).map(|words| {
            content[0]["text"] = Value::from(words);
            let mut plain = message.clone();
            plain["params"] = params(&content);
            spelling.line(&plain)
        });
        let said = Said { bytes: spelling.line(&message), plain };
        self.send(|session| session.threads.contains(thread), &said);
    }

    /// The first answer wins; the server takes it from any client.
    fn answered(&mut self, dice: &mut Dice, id: u64) {
        if let Some(Waiting { thread, .. }) = self.waiting.remove(&id) {
            self.answers += 1;
            self.tell(dice, &thread, "serverRequest/resolved", &json!({"threadId": thread, "requestId": id}));
            self.status(dice, &thread);
        }
    }

    fn end_turn(&mut self, dice: &mut Dice, thread: &str, status: &str) {
        let Some(turn) = self.loaded.get_mut(thread).and_then(Option::take) else { return };
        let over: Vec<u64> =
            self.waiting.iter().filter(|(_, waiting)| waiting.thread == thread).map(|(id, _)| *id).collect();
        let resolved_first = dice.once_in(2);
        let turn = json!({"id": turn, "status": status, "items": []});
        if !resolved_first {
            self.tell(dice, thread, "turn/completed", &json!({"threadId": thread, "turn": turn}));
        }
        for id in over {
            self.waiting.remove(&id);
            self.tell(dice, thread, "serverRequest/resolved", &json!({"threadId": thread, "requestId": id}));
        }
        if resolved_first {
            self.tell(dice, thread, "turn/completed", &json!({"threadId": thread, "turn": turn}));
        }
        self.status(dice, thread);
    }

    /// A running turn, and its thread.
    fn some_turn(&self, dice: &mut Dice) -> Option<(String, String)> {
        let mut running: Vec<_> =
            self.loaded.iter().filter_map(|(thread, turn)| Some((thread.clone(), turn.clone()?))).collect();
        (!running.is_empty()).then(|| running.swap_remove(dice.roll(running.len() as u64) as usize))
    }

    /// It reads nothing more on a connection, and asks on all of them.
    pub fn hangs(&mut self, dice: &mut Dice, key: Key) {
        let takes = if dice.once_in(2) { UNREAD_MAX } else { 0 };
        self.sessions.get_mut(&key).into_iter().for_each(|session| session.hangs = Some(takes));
        for command in ASKS_AT_HANG {
            if let Some((thread, turn)) = self.some_turn(dice) {
                self.ask(dice, &thread, &turn, command);
            }
        }
    }

    /// A connection on which it reads nothing more.
    pub fn hanging(&self) -> Option<Key> {
        self.sessions.iter().find(|(_, session)| session.hangs.is_some()).map(|(key, _)| *key)
    }

    /// Sends something unprompted.
    pub fn work(&mut self, dice: &mut Dice) {
        let Some((thread, turn)) = self.some_turn(dice) else { return };
        match dice.roll(21) {
            20 => self.spawn(dice, &thread),
            0..=8 => {
                let params = json!({"threadId": thread, "turnId": turn, "itemId": "a1", "delta": "some words "});
                self.tell(dice, &thread, "item/agentMessage/delta", &params);
            }
            9..=11 => {
                let item = json!({"type": "agentMessage", "id": "a1", "text": "some words"});
                let params = json!({"threadId": thread, "turnId": turn, "item": item});
                self.tell(dice, &thread, "item/completed", &params);
            }
            12 => self.tell_all(dice, "thread/name/updated", &json!({"threadId": thread, "threadName": "a name"})),
            13 => {
                let first = self.waiting.keys().next().copied();
                first.into_iter().for_each(|id| self.withdraw(dice, id));
            }
            14..=18 => {
                let command = COMMANDS[dice.roll(COMMANDS.len() as u64) as usize];
                self.ask(dice, &thread, &turn, command);
            }
            _ => self.end_turn(dice, &thread, "completed"),
        }
    }

    pub fn withdraw(&mut self, dice: &mut Dice, id: u64) {
        if let Some(Waiting { thread, .. }) = self.waiting.remove(&id) {
            self.tell(dice, &thread, "serverRequest/resolved", &json!({"threadId": thread, "requestId": id}));
        }
    }

    fn ask(&mut self, dice: &mut Dice, thread: &str, turn: &str, command: &str) {
        let id = self.requests;
        self.requests += 1;
        let item = format!("c{id}");
        let params = json!({"threadId": thread, "turnId": turn, "itemId": item, "command": command, "cwd": "/w"});
        let message = json!({"id": id, "method": "item/commandExecution/requestApproval", "params": params});
        let line = Spelling::by_chance(dice).line(&message);
        self.waiting.insert(id, Waiting { thread: thread.to_owned(), line: line.clone() });
        self.send(|session| session.threads.contains(thread), &Said { bytes: line, plain: None });
        self.status(dice, thread);
    }
}
