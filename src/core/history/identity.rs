//! Who a thread is: its description by the server, and the client that speaks in it. Also who is at each connection.
//!
//! It is remembered beyond the end of a run of the child, because a thread goes on in the next one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::bounded::{Bounded, Weigh, masked_text};
use super::conversation::Call;
use super::record_event::{MethodMessage, RecordEvent, Seen};
use crate::engine::OWN_NAME;
use crate::protocol::{Method, SpawnedThread, ThreadDescription, ThreadKind, ThreadSettings};
use crate::wire::{Conn, Members, RpcId};

/// Longest name of a client or a model that is stored, in characters.
const NAME_CHARS_MAX: usize = 64;

/// Connections whose clients are remembered; the oldest is forgotten.
const CLIENTS_MAX: usize = 256;

/// The start of the ids of our own calls, as JSON.
const OWN_IDS: &str = "\"codex-shim:";

/// The client that started a thread, or that spoke in it last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadClient {
    pub name: String,
    pub version: Option<String>,
    /// The terminal of its process, such as `pts/3`.
    pub terminal: Option<String>,
    pub pid: Option<u32>,
}

/// All that is on record about who a thread is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadIdentity {
    pub description: ThreadDescription,
    pub client: Option<ThreadClient>,
    /// When somebody last spoke in it, or opened it, in microseconds since the Unix epoch.
    pub last_used_us: u64,
}

impl Weigh for ThreadIdentity {
    fn weight(&self) -> usize {
        let ThreadDescription { cwd, title, branch, remote, model, parent, forked_from, .. } = &self.description;
        let texts = [cwd, title, branch, remote, model, parent, forked_from];
        let client = self.client.as_ref().map_or(0, |client| {
            size_of::<ThreadClient>() + client.name.weight() + client.version.weight() + client.terminal.weight()
        });
        size_of::<ThreadIdentity>() + texts.into_iter().map(Weigh::weight).sum::<usize>() + client
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identities {
    /// By connection.
    clients: BTreeMap<u32, ThreadClient>,
    threads: Bounded<String, ThreadIdentity>,
}

impl Identities {
    pub(super) fn kind(&self, thread_id: &str) -> ThreadKind {
        self.threads.get(&thread_id.to_owned()).map(|thread| thread.description.kind).unwrap_or_default()
    }

    pub(super) fn get(&self, thread_id: &str) -> Option<&ThreadIdentity> {
        self.threads.get(&thread_id.to_owned())
    }

    /// Who has made a call: the name of its client, or ours.
    pub(super) fn caller(&self, conn: Conn, id: &RpcId) -> Option<String> {
        match is_own(id) {
            true => Some(OWN_NAME.to_owned()),
            false => self.clients.get(&conn.0).map(|client| client.name.clone()),
        }
    }

    /// The name and the version of the client at a connection, or empty ones.
    pub(super) fn named(&self, conn: Conn) -> (&str, &str) {
        let client = self.clients.get(&conn.0);
        client.map_or(("", ""), |client| (&*client.name, client.version.as_deref().unwrap_or_default()))
    }

    /// Processes a record, with the call that it answers. Returns the id of the thread of which more is known now.
    pub(super) fn take(&mut self, seen: &Seen<'_>, call: Option<&Call>) -> Option<String> {
        match &seen.event {
            RecordEvent::ShimEvent { event, data } => {
                self.noted(event, *data);
                None
            }
            RecordEvent::ClientRequest { message, id } => self.called(seen, message, id),
            RecordEvent::Response { id, result: Some(result), error: None } => {
                let call = call?;
                let method = Method::of(&call.method)?;
                if let Some(chosen) = call.chosen.as_deref() {
                    let thread_id = call.thread_id.as_deref()?;
                    return self.change(thread_id, |thread| thread.description.set(chosen.clone()));
                }
                if !method.opens_thread() && method != Method::ThreadRead {
                    return None;
                }
                let (thread_id, mut description) = ThreadDescription::within(result)?;
                if let Some(result) = Members::of(result).filter(|_| method.opens_thread()) {
                    description.model = result.text("model").or(description.model);
                    description.cwd = result.text("cwd").filter(|cwd| cwd.starts_with('/')).or(description.cwd);
                }
                let is_own = is_own(id);
                let client = self.clients.get(&seen.conn.0).filter(|_| !is_own).cloned();
                self.describe(&thread_id, description, |thread| {
                    if !is_own && method.opens_thread() {
                        thread.last_used_us = seen.at_us;
                    }
                    thread.client = thread.client.take().or(client);
                })
            }
            RecordEvent::Notification(message) => self.notified(message),
            RecordEvent::Generation(_)
            | RecordEvent::ServerRequest { .. }
            | RecordEvent::Response { .. }
            | RecordEvent::Gap { .. }
            | RecordEvent::Answer { .. }
            | RecordEvent::Other => None,
        }
    }

    fn notified(&mut self, message: &MethodMessage<'_>) -> Option<String> {
        match message.known {
            Some(Method::ThreadStarted) => {
                let params: &RawValue = message.params.read()?;
                let (thread_id, description) = ThreadDescription::within(params)?;
                self.describe(&thread_id, description, |_| {})
            }
            Some(Method::ItemCompleted) => {
                let SpawnedThread { thread_id, parent } = SpawnedThread::within(message.params.read()?)?;
                let of_parent = self.threads.get(&parent).cloned().unwrap_or_default();
                self.change(&thread_id, |thread| {
                    thread.description.spawned(parent, of_parent.description.cwd);
                    thread.client = thread.client.take().or(of_parent.client);
                })
            }
            Some(Method::ThreadNameUpdated) => {
                let title = message.params.members()?.text("threadName").filter(|title| !title.is_empty());
                let title = title.map(|title| masked_text(&title));
                self.change(message.place.thread_id.as_deref()?, |thread| thread.description.title = title)
            }
            Some(Method::ThreadSettingsUpdated) => {
                let settings = Members::of(message.params.members()?.get("threadSettings")?)?;
                let settings = masked_settings(&settings)?;
                self.change(message.place.thread_id.as_deref()?, |thread| thread.description.set(settings))
            }
            _ => None,
        }
    }

    /// A client calls the server.
    fn called(&mut self, seen: &Seen<'_>, message: &MethodMessage<'_>, id: &RpcId) -> Option<String> {
        match message.known {
            Some(Method::Initialize) => {
                let info = message.params.members().and_then(|params| Members::of(params.get("clientInfo")?));
                if let (Some(info), false) = (info, is_own(id))
                    && let Some(name) = info.text("name")
                {
                    let version = info.text("version").map(|version| short(&version));
                    let client = self.client(seen.conn.0);
                    (client.name, client.version) = (short(&name), version);
                }
                None
            }
            Some(Method::TurnStart | Method::TurnSteer) => {
                let client = self.clients.get(&seen.conn.0).filter(|_| !is_own(id)).cloned();
                self.change(message.place.thread_id.as_deref()?, |thread| {
                    thread.last_used_us = seen.at_us;
                    thread.client = client.or(thread.client.take());
                })
            }
            _ => None,
        }
    }

    /// Processes one of our notes.
    fn noted(&mut self, event: &str, data: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct OfConn {
            conn: u32,
            name: Option<String>,
            version: Option<String>,
            terminal: Option<String>,
            pid: Option<u32>,
        }
        if !matches!(event, "conn_open" | "conn_close") {
            return;
        }
        let Some(OfConn { conn, name, version, terminal, pid }) =
            data.and_then(|data| serde_json::from_str(data.get()).ok())
        else {
            return;
        };
        if event == "conn_close" {
            self.clients.remove(&conn);
            return;
        }
        let client = self.client(conn);
        (client.name, client.version) = (short(&name.unwrap_or_default()), version.as_deref().map(short));
        (client.terminal, client.pid) = (terminal.as_deref().map(short), pid);
    }

    fn client(&mut self, conn: u32) -> &mut ThreadClient {
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&conn) {
            self.clients.pop_first();
        }
        self.clients.entry(conn).or_default()
    }

    fn describe(
        &mut self,
        thread_id: &str,
        description: ThreadDescription,
        change: impl FnOnce(&mut ThreadIdentity),
    ) -> Option<String> {
        let masked = |text: Option<String>| text.map(|text| masked_text(&text));
        let ThreadDescription { cwd, title, branch, remote, .. } = description;
        let (cwd, title, branch, remote) = (masked(cwd), masked(title), masked(branch), masked(remote));
        let description = ThreadDescription { cwd, title, branch, remote, ..description };
        // An agent works for the client of the thread that has started it.
        let parent = description.parent.as_ref().and_then(|parent| self.threads.get(parent));
        let client = parent.and_then(|parent| parent.client.clone());
        self.change(thread_id, |thread| {
            thread.description.update(description);
            change(thread);
            thread.client = thread.client.take().or(client);
        })
    }

    /// Changes a thread, which may be new. Returns its id if that made a difference.
    fn change(&mut self, thread_id: &str, change: impl FnOnce(&mut ThreadIdentity)) -> Option<String> {
        let key = thread_id.to_owned();
        let mut thread = self.threads.get(&key).cloned().unwrap_or_default();
        change(&mut thread);
        if self.threads.get(&key) == Some(&thread) {
            return None;
        }
        // Those that nothing has changed for the longest time are forgotten first.
        self.threads.remove(&key);
        self.threads.insert(key.clone(), thread);
        Some(key)
    }
}

/// The settings that a client chooses for a thread in a call, or that the server reports, as they are stored.
pub(super) fn masked_settings(settings: &Members<'_>) -> Option<ThreadSettings> {
    let ThreadSettings { cwd, model } = ThreadSettings::of(settings)?;
    Some(ThreadSettings { cwd: cwd.map(|cwd| masked_text(&cwd)), model: model.map(|model| short(&model)) })
}

fn is_own(id: &RpcId) -> bool {
    id.to_string().starts_with(OWN_IDS)
}

/// The start of a name, masked.
/// A client's name as the usage has it.
pub fn client_in_usage(name: &str) -> String {
    short(name)
}

pub(super) fn short(name: &str) -> String {
    masked_text(&name.chars().take(NAME_CHARS_MAX).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::super::properties::play;
    use super::*;

    /// The threads that rows tell of, the last row of each: kind, title, folder, client and terminal.
    fn check(actual: &str, expect: &[&str]) {
        let (_, rows) = play(&format!("1 generation 00000000000a\n{actual}"));
        let mut last: BTreeMap<String, ThreadIdentity> = BTreeMap::new();
        last.extend(rows.threads);
        let told = last.into_iter().map(|(thread_id, ThreadIdentity { description, client, last_used_us })| {
            let client = client.unwrap_or_default();
            let or = |text: Option<String>| text.unwrap_or_else(|| "~".to_owned());
            let (title, cwd, terminal) = (or(description.title), or(description.cwd), or(client.terminal));
            let kind = description.kind;
            format!("{thread_id} {kind} {title} {cwd} {} {terminal} {}", client.name, last_used_us / 1_000)
        });
        assert_eq!(told.collect::<Vec<_>>(), expect, "{actual}");
    }

    const OPEN: &str = r#"2 ! conn_open {"conn":3,"name":"tui","version":"1","terminal":"pts/3","pid":7}"#;
    const TITLE: &str = r#"{"thread":{"id":"x","ephemeral":true,"threadSource":"thread_title"}}"#;

    #[test]
    fn thread_is_who_the_server_and_its_client_say() {
        let started = r#"4 =7@3 {"cwd":"/p/real","thread":{"id":"t","cwd":"/p","threadSource":"user"}}"#;
        let start = format!("{OPEN}\n3 >7@3 thread/start ~\n{started}\n");
        check(&start, &["t user ~ /p/real tui pts/3 4"]);
        let named = r#"5 < thread/name/updated t {"threadName":"Fix it"}"#;
        check(&format!("{start}{named}\n"), &["t user Fix it /p/real tui pts/3 4"]);
        let moved = r#"6 < thread/settings/updated t {"threadSettings":{"cwd":"/q"}}"#;
        check(&format!("{start}{moved}\n"), &["t user ~ /q tui pts/3 4"]);
        check(&format!("{start}5 < thread/started ~ {TITLE}\n"), &["t user ~ /p/real tui pts/3 4", "x title ~ ~  ~ 0"]);
        // An agent that nothing else describes works where it was started.
        let item =
            r#"{"type":"collabAgentToolCall","tool":"spawnAgent","senderThreadId":"t","receiverThreadIds":["a"]}"#;
        let spawned = format!("5 < item/completed t/u/i {item}\n");
        check(&format!("{start}{spawned}"), &["a subagent ~ /p/real tui pts/3 0", "t user ~ /p/real tui pts/3 4"]);
        // A turn in another folder moves its thread once the server has accepted it.
        let turn = format!("{start}5 >8@3 turn/start t {{\"cwd\":\"/q\"}}\n");
        check(&turn, &["t user ~ /p/real tui pts/3 5"]);
        check(&format!("{turn}6 =8@3 !{{\"code\":1,\"message\":\"no\"}}\n"), &["t user ~ /p/real tui pts/3 5"]);
        check(&format!("{turn}6 =8@3 {{\"turn\":{{\"id\":\"u\"}}}}\n"), &["t user ~ /q tui pts/3 5"]);
        // The client that spoke last counts, and ours does not.
        let other = r#"5 ! conn_open {"conn":4,"name":"zed"}"#;
        let spoke = format!("{start}{other}\n6 >8@4 turn/start t\n");
        check(&spoke, &["t user ~ /p/real zed ~ 6"]);
        check(&format!("{start}6 >\"codex-shim:1\" turn/start t\n"), &["t user ~ /p/real tui pts/3 6"]);
    }

    #[test]
    fn nothing_that_looks_like_a_secret_is_stored() {
        let key = concat!("sk-proj-", "abcdefghijklmnopqrstuvwxyz0123456789ABCD");
        let named = format!("3 < thread/name/updated t {{\"threadName\":\"use {key}\"}}\n");
        let (_, rows) = play(&format!("1 generation 00000000000a\n{named}"));
        let title = rows.threads[0].1.description.title.clone().expect("BUG: it has a title");
        assert!(title.starts_with("use ") && !title.contains("abcdefgh"), "{title}");
    }
}
