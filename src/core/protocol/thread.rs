//! The server's description of a thread, and the table of the kinds of threads.
//!
//! Source: the objects that codex 0.77 to 0.171 sends, and its schema. `threadSource` is any text that a client gives at the start,
//! and releases before 0.125 do not send it.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::named;
use crate::wire::Members;

named! {
    /// Whose thread it is.
    #[derive(Default, PartialOrd, Ord, Hash)]
    pub open enum ThreadKind {
        /// A person speaks in it.
        #[default]
        User = "user",
        /// A client asks the model for the title of another thread, with its words.
        Title = "title",
        /// An agent that the model of another thread has started.
        Subagent = "subagent",
        /// A review of code, begun from another thread.
        Review = "review",
        /// Codex's own reviewer of commands.
        Guardian = "guardian",
        /// Any other work that nobody speaks in.
        Other = "other",
    }
}

/// How lists and timelines show a thread that nobody has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Showing {
    /// Its entries, and a row in lists.
    Whole,
    /// One line that leads to its entries.
    Line,
    /// Nothing.
    Nothing,
}

/// The kind by `threadSource`, if it decides.
const BY_THREAD_SOURCE: [(&str, ThreadKind); 5] = [
    ("user", ThreadKind::User),
    ("thread_title", ThreadKind::Title),
    ("subagent", ThreadKind::Subagent),
    ("memory_consolidation", ThreadKind::Other),
    ("guardian", ThreadKind::Guardian),
];

/// The kind by `source.subAgent`, or by the name of its only member.
const BY_SUB_AGENT: [(&str, ThreadKind); 4] = [
    ("review", ThreadKind::Review),
    ("compact", ThreadKind::Other),
    ("memory_consolidation", ThreadKind::Other),
    ("thread_spawn", ThreadKind::Subagent),
];

/// The name of codex's own reviewer in `source.subAgent.other`.
const GUARDIAN: &str = "guardian";

impl ThreadKind {
    /// Whether a person speaks in it.
    pub fn is_user(self) -> bool {
        self == ThreadKind::User
    }

    /// How it is shown. The words of a title thread are a client's, which has copied them from its user.
    pub fn showing(self) -> Showing {
        match self {
            ThreadKind::User => Showing::Whole,
            ThreadKind::Title => Showing::Nothing,
            ThreadKind::Subagent
            | ThreadKind::Review
            | ThreadKind::Guardian
            | ThreadKind::Other
            | ThreadKind::Newer(_) => Showing::Line,
        }
    }

    /// Such a thread, in a sentence.
    pub fn in_words(self) -> &'static str {
        match self {
            ThreadKind::User => "a thread",
            ThreadKind::Title => "a thread for a title",
            ThreadKind::Subagent => "a subagent",
            ThreadKind::Review => "a review",
            ThreadKind::Guardian => "codex's own reviewer",
            ThreadKind::Other | ThreadKind::Newer(_) => "a thread of the client",
        }
    }

    /// Who speaks in it where otherwise its user does.
    pub fn speaker(self) -> &'static str {
        match self {
            ThreadKind::User => "you",
            ThreadKind::Title => "title",
            ThreadKind::Subagent => "agent",
            ThreadKind::Review => "review",
            ThreadKind::Guardian => "guard",
            ThreadKind::Other | ThreadKind::Newer(_) => "client",
        }
    }

    /// The kind of a thread as the server describes it. A client may give a lasting thread of its user a source of its own; an
    /// ephemeral one with a source that is not known here is a client's own work.
    fn of(thread: &Members<'_>) -> ThreadKind {
        let sub_agent = thread.get("source").and_then(Members::of).and_then(|source| source.get("subAgent"));
        if let Some(kind) = sub_agent.map(of_sub_agent) {
            return kind;
        }
        let has_parent = thread.text("parentThreadId").is_some();
        let is_ephemeral = thread.get("ephemeral").is_some_and(|value| value.get() == "true");
        match thread.text("threadSource") {
            Some(source) => match BY_THREAD_SOURCE.iter().find(|(name, _)| *name == source) {
                Some((_, kind)) => *kind,
                None if has_parent => ThreadKind::Subagent,
                None if is_ephemeral => ThreadKind::Other,
                None => ThreadKind::User,
            },
            None if has_parent => ThreadKind::Subagent,
            None => ThreadKind::User,
        }
    }
}

fn of_sub_agent(sub_agent: &RawValue) -> ThreadKind {
    let named = |name: &str| BY_SUB_AGENT.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
    if let Some(name) = crate::wire::text(sub_agent) {
        return named(&name).unwrap_or(ThreadKind::Other);
    }
    let Some(members) = Members::of(sub_agent) else { return ThreadKind::Other };
    if members.text("other").as_deref() == Some(GUARDIAN) {
        return ThreadKind::Guardian;
    }
    let mut known = BY_SUB_AGENT.iter().filter(|(name, _)| members.get(name).is_some());
    known.next().map_or(ThreadKind::Other, |(_, kind)| *kind)
}

/// Longest text that is remembered of a description, in characters: of a path, a title or a name.
const TEXT_CHARS_MAX: usize = 4_096;

/// The server's description of a thread: its `thread` object. A member is `None` if it is absent or null.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadDescription {
    #[serde(default)]
    pub kind: ThreadKind,
    /// The working folder.
    pub cwd: Option<String>,
    /// The title.
    pub title: Option<String>,
    /// The branch at its start.
    pub branch: Option<String>,
    /// The repository that its own is a copy of: host and path, without a user or a password.
    #[serde(default)]
    pub remote: Option<String>,
    pub model: Option<String>,
    /// The thread whose model has started it, or to which it is attached.
    pub parent: Option<String>,
    pub forked_from: Option<String>,
    /// The server takes no message for it.
    #[serde(default)]
    pub refuses_input: bool,
    /// In seconds since the Unix epoch.
    pub started_at_s: Option<u64>,
}

/// The folder and the model that a call or a report chooses for a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadSettings {
    pub cwd: Option<String>,
    pub model: Option<String>,
}

impl ThreadSettings {
    /// Reads parameters or settings; `None` if they choose neither.
    pub fn of(members: &Members<'_>) -> Option<ThreadSettings> {
        let settings = ThreadSettings { cwd: cwd_in(members), model: members.text("model") };
        (settings != ThreadSettings::default()).then_some(settings)
    }
}

/// Longest accepted path of a thread's folder, in bytes.
const CWD_BYTES_MAX: usize = 4_096;

/// The folder that parameters or a thread name, if it is an absolute path of acceptable length.
pub fn cwd_in(members: &Members<'_>) -> Option<String> {
    members.text("cwd").filter(|cwd| cwd.starts_with('/') && cwd.len() <= CWD_BYTES_MAX && !cwd.contains('\0'))
}

/// The host and the path of a repository's address, such as `github.com/openai/codex` for `git@github.com:openai/codex.git`; a path on
/// this machine stays as it is.
fn remote_in(address: &str) -> Option<String> {
    let (has_scheme, rest) = match address.split_once("://") {
        Some((_, rest)) => (true, rest),
        None => (false, address),
    };
    // The part before an `@` may be a password.
    let place = rest.split_once('/').map_or(rest, |(place, _)| place);
    let rest = &rest[place.rfind('@').map_or(0, |at| at + 1)..];
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let rest = rest.trim_end_matches('/').strip_suffix(".git").unwrap_or(rest.trim_end_matches('/'));
    let named = match rest.split_once(':') {
        Some((host, path)) if !has_scheme && !host.contains('/') => format!("{host}/{}", path.trim_start_matches('/')),
        _ => rest.to_owned(),
    };
    (!named.is_empty()).then_some(named)
}

impl ThreadDescription {
    /// Reads a thread object: its id and the rest.
    pub fn of(thread: &RawValue) -> Option<(String, ThreadDescription)> {
        let thread = Members::of(thread)?;
        let text = |name: &str| bounded(&thread, name);
        let git = thread.get("gitInfo").and_then(Members::of);
        let description = ThreadDescription {
            kind: ThreadKind::of(&thread),
            cwd: text("cwd"),
            title: text("name"),
            branch: git.as_ref().and_then(|git| bounded(git, "branch")),
            remote: git.and_then(|git| remote_in(&bounded(&git, "originUrl")?)),
            model: text("model"),
            parent: text("parentThreadId").or_else(|| text("attachedToThreadId")),
            forked_from: text("forkedFromId"),
            refuses_input: thread.get("canAcceptDirectInput").is_some_and(|value| value.get() == "false"),
            started_at_s: thread.get("createdAt").and_then(|at| at.get().parse().ok()),
        };
        Some((thread.text("id")?, description))
    }

    /// The thread object in the result of a call or in the parameters of a notification.
    pub fn within(value: &RawValue) -> Option<(String, ThreadDescription)> {
        ThreadDescription::of(Members::of(value)?.get("thread")?)
    }

    /// Takes what a later description says; what it leaves out stays.
    pub fn update(&mut self, later: ThreadDescription) {
        let ThreadDescription {
            kind,
            cwd,
            title,
            branch,
            remote,
            model,
            parent,
            forked_from,
            refuses_input,
            started_at_s,
        } = later;
        (self.kind, self.refuses_input) = (kind, refuses_input);
        let take = |known: &mut Option<String>, later: Option<String>| *known = later.or(known.take());
        take(&mut self.cwd, cwd);
        take(&mut self.title, title);
        take(&mut self.branch, branch);
        take(&mut self.remote, remote);
        take(&mut self.model, model);
        take(&mut self.parent, parent);
        take(&mut self.forked_from, forked_from);
        self.started_at_s = started_at_s.or(self.started_at_s);
    }

    /// Takes settings that hold from now on.
    pub fn set(&mut self, settings: ThreadSettings) {
        let ThreadSettings { cwd, model } = settings;
        self.cwd = cwd.or(self.cwd.take());
        self.model = model.or(self.model.take());
    }

    /// The model of `parent`, which works in this folder, has started it. What the server itself says counts more.
    pub fn spawned(&mut self, parent: String, cwd: Option<String>) {
        if self.kind.is_user() {
            self.kind = ThreadKind::Subagent;
        }
        self.parent.get_or_insert(parent);
        self.cwd = self.cwd.take().or(cwd);
    }

    /// Whether a tool may choose it for a message that names no thread.
    pub fn takes_messages(&self) -> bool {
        self.kind.is_user() && !self.refuses_input
    }
}

/// The type of an item in which the model of a thread deals with its agents, and the tool that starts one.
const AGENT_ITEM: (&str, &str) = ("collabAgentToolCall", "spawnAgent");

/// A thread that the model of another one has started, as an item of that one says. The server need not describe it otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpawnedThread {
    pub thread_id: String,
    pub parent: String,
}

impl SpawnedThread {
    /// Reads the parameters of a notification about an item that is complete.
    pub fn within(params: &RawValue) -> Option<SpawnedThread> {
        let (kind, tool) = AGENT_ITEM;
        // Most items are something else, and may be long.
        if !params.get().contains(tool) {
            return None;
        }
        let item = Members::of(Members::of(params)?.get("item")?)?;
        if item.text("type")? != kind || item.text("tool")? != tool {
            return None;
        }
        let started = crate::wire::elements(item.get("receiverThreadIds")?)?;
        Some(SpawnedThread { thread_id: crate::wire::text(started.first()?)?, parent: item.text("senderThreadId")? })
    }
}

fn bounded(members: &Members<'_>, name: &str) -> Option<String> {
    let text = members.text(name).filter(|text| !text.is_empty())?;
    Some(match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remotes_are_named_by_host_and_path() {
        for (address, expect) in [
            ("git@github.com:openai/codex.git", "github.com/openai/codex"),
            ("https://github.com/openai/codex.git", "github.com/openai/codex"),
            ("https://github.com/openai/codex/", "github.com/openai/codex"),
            ("https://user:pass@word@example.org/a/b", "example.org/a/b"),
            ("https://token@example.org:8443/a/b.git", "example.org:8443/a/b"),
            ("ssh://git@example.org:22/a/b.git", "example.org:22/a/b"),
            ("https://example.org/a/b?token=secret#x", "example.org/a/b"),
            ("example.org:/srv/a.git", "example.org/srv/a"),
            ("/srv/git/a.git", "/srv/git/a"),
            ("../a", "../a"),
            ("file:///srv/git/a.git", "/srv/git/a"),
        ] {
            assert_eq!(remote_in(address).as_deref(), Some(expect), "{address}");
        }
        assert_eq!(remote_in(""), None);
        assert_eq!(remote_in("https://user@"), None);
    }

    #[test]
    fn agents_are_found_in_the_items_that_start_them() {
        let check = |item: &str, expect: Option<&str>| {
            let params = format!(r#"{{"threadId":"t","item":{item}}}"#);
            let params: &RawValue = serde_json::from_str(&params).expect("BUG: the case is JSON");
            let found = SpawnedThread::within(params).map(|found| format!("{} of {}", found.thread_id, found.parent));
            assert_eq!(found.as_deref(), expect, "{item}");
        };
        let item = |kind: &str, tool: &str, started: &str| {
            format!(r#"{{"type":"{kind}","tool":"{tool}","senderThreadId":"t","receiverThreadIds":{started}}}"#)
        };
        check(&item("collabAgentToolCall", "spawnAgent", r#"["a"]"#), Some("a of t"));
        for other in [
            item("collabAgentToolCall", "spawnAgent", "[]"),
            item("collabAgentToolCall", "spawnAgent", "null"),
            item("collabAgentToolCall", "wait", r#"["a"]"#),
            item("mcpToolCall", "spawnAgent", r#"["a"]"#),
            r#"{"type":"agentMessage","text":"spawnAgent"}"#.to_owned(),
        ] {
            check(&other, None);
        }
    }

    fn described(members: &str) -> ThreadDescription {
        let thread = format!(r#"{{"id":"t",{members}}}"#);
        let thread: &RawValue = serde_json::from_str(&thread).expect("BUG: the case is JSON");
        let (id, description) = ThreadDescription::of(thread).expect("BUG: it has an id");
        assert_eq!(id, "t");
        description
    }

    #[test]
    fn every_thread_has_a_kind() {
        use ThreadKind::{Guardian, Other, Review, Subagent, Title, User};
        let cases = [
            (r#""threadSource":"user","ephemeral":false,"source":"vscode""#, User),
            (r#""threadSource":"thread_title","ephemeral":true,"source":"vscode""#, Title),
            (r#""threadSource":"thread_title""#, Title),
            // `codex exec --ephemeral`, and releases that do not tell a source.
            (r#""threadSource":"user","ephemeral":true"#, User),
            (r#""threadSource":null,"ephemeral":true,"source":"exec""#, User),
            (r#""threadSource":null,"source":"cli""#, User),
            (r#""source":"unknown""#, User),
            (r#""model":"m""#, User),
            (r#""source":{"custom":"acme"}"#, User),
            (r#""threadSource":"acme","ephemeral":false"#, User),
            (r#""threadSource":"recap","ephemeral":true"#, Other),
            (r#""threadSource":"memory_consolidation""#, Other),
            (r#""threadSource":null,"parentThreadId":"p""#, Subagent),
            (r#""threadSource":"subagent","parentThreadId":"p""#, Subagent),
            (r#""threadSource":"acme","parentThreadId":"p""#, Subagent),
            (r#""source":{"subAgent":{"thread_spawn":{"depth":1,"parent_thread_id":"p"}}}"#, Subagent),
            (r#""source":{"subAgent":"review"},"threadSource":"user""#, Review),
            (r#""source":{"subAgent":"compact"}"#, Other),
            (r#""source":{"subAgent":{"other":"guardian"}},"parentThreadId":"p""#, Guardian),
            (r#""source":{"subAgent":{"other":"new"}}"#, Other),
            (r#""source":{"subAgent":"new"}"#, Other),
            (r#""source":{"subAgent":7}"#, Other),
        ];
        for (members, kind) in cases {
            assert_eq!(described(members).kind, kind, "{members}");
        }
    }

    #[test]
    fn description_is_read_and_updated() {
        let members = r#""cwd":"/p","name":"Fix it","gitInfo":{"branch":"main","sha":"1","originUrl":"https://me:hunter2@example.org/me/proj.git"},"model":"m","forkedFromId":"f",
            "canAcceptDirectInput":false,"createdAt":7,"attachedToThreadId":"a""#;
        let mut thread = described(members);
        let text = |text: &str| Some(text.to_owned());
        let expect = ThreadDescription {
            kind: ThreadKind::User,
            cwd: text("/p"),
            title: text("Fix it"),
            branch: text("main"),
            remote: text("example.org/me/proj"),
            model: text("m"),
            parent: text("a"),
            forked_from: text("f"),
            refuses_input: true,
            started_at_s: Some(7),
        };
        assert_eq!(thread, expect);
        assert!(!thread.takes_messages());
        thread.update(described(r#""cwd":"/q","name":null,"canAcceptDirectInput":true"#));
        let expect = ThreadDescription { cwd: text("/q"), refuses_input: false, ..expect };
        assert_eq!(thread, expect);
        assert!(thread.takes_messages());
    }

    #[test]
    fn only_an_object_with_an_id_is_a_thread() {
        for json in ["null", "7", "[]", r#"{"name":"x"}"#, r#"{"id":7}"#] {
            assert_eq!(ThreadDescription::of(serde_json::from_str(json).expect("BUG: JSON")), None, "{json}");
        }
        let long = "x".repeat(2 * TEXT_CHARS_MAX);
        let cut = described(&format!(r#""cwd":"/{long}""#)).cwd.expect("BUG: a folder");
        assert_eq!(cut.chars().count(), TEXT_CHARS_MAX);
    }
}
