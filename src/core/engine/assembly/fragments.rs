//! Fragments: texts that each thread receives once, and again after a change.
//!
//! Nothing is run or read here: the states of the fragments come from outside.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::engine::threads::{ReceivedContext, Thread};
use crate::protocol::{inject_items_params, named};

/// Longest developer addition, in bytes; the rest is cut off.
const ADDITION_BYTES_MAX: usize = 64 << 10;

/// Folders whose fragment states are cached; one more clears the cache.
const FOLDERS_MAX: usize = 256;

/// The name of the context engine's addition.
pub(in crate::engine) const ADDITION: &str = "developer_addition";

/// A text that each thread receives, and receives again after a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fragment {
    /// The name, which is also the tag.
    pub name: String,
    pub role: FragmentRole,
    pub source: FragmentSource,
    pub threads: FragmentThreads,
    /// Longest text in bytes, without the tags.
    pub bytes_max: usize,
}

named! {
    /// The role that a fragment speaks in.
    pub enum FragmentRole {
        Developer = "developer",
        /// The user's role, for text that the user did not write.
        ContextualUser = "contextual_user",
    }
}

impl FragmentRole {
    /// The role of the message that carries it. Source: codex's items.
    pub(in crate::engine) fn of_message(self) -> &'static str {
        match self {
            FragmentRole::Developer => "developer",
            FragmentRole::ContextualUser => "user",
        }
    }
}

/// The source of a fragment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FragmentSource {
    /// Output of a program: the program and its arguments.
    Command(Vec<String>),
    /// Content of a file.
    File(PathBuf),
    /// Fixed text.
    Text(String),
}

impl fmt::Display for FragmentSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FragmentSource::Command(words) => write!(f, "command {}", words.join(" ")),
            FragmentSource::File(path) => write!(f, "file {}", path.display()),
            FragmentSource::Text(_) => f.write_str("text"),
        }
    }
}

named! {
    /// Which threads receive a fragment.
    pub enum FragmentThreads {
        All = "all",
        /// Threads that start while the relay runs; they also receive later changes.
        New = "new",
    }
}

/// A fragment as sent to a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentFragment {
    pub name: String,
    /// The role of the message that carried it.
    #[serde(with = "crate::engine::as_json::compiled_in")]
    pub role: crate::engine::as_json::compiled_in::CompiledIn,
    pub carrier: FragmentCarrier,
    /// The text that the model saw.
    pub text: String,
}

named! {
    /// How a fragment reaches the model.
    pub enum FragmentCarrier {
        /// A call of our own before a turn.
        InjectItems = "inject_items",
        /// The developer instructions of `thread/start` or `thread/resume`.
        DeveloperInstructions = "developer_instructions",
    }
}

/// The fragments and their known states.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::engine) struct Fragments {
    all: Vec<Fragment>,
    /// Initial states, before any read.
    fixed: Vec<Option<String>>,
    /// The last states by folder; `None` is the relay's folder.
    #[serde(with = "crate::engine::as_json::pairs")]
    read: HashMap<Option<String>, Vec<Option<String>>>,
    /// The folder of the last read.
    read_last: Option<String>,
}

impl Fragments {
    pub(in crate::engine) fn new(all: Vec<Fragment>) -> Fragments {
        let fixed = all.iter().map(|fragment| match &fragment.source {
            FragmentSource::Text(text) => Some(text.clone()),
            FragmentSource::Command(_) | FragmentSource::File(_) => None,
        });
        Fragments { fixed: fixed.collect(), read: HashMap::new(), read_last: None, all }
    }

    /// Replaces the fragments, if they differ, and returns whether they do.
    pub(in crate::engine) fn configure(&mut self, all: Vec<Fragment>) -> bool {
        let differs = all != self.all;
        if differs {
            *self = Fragments::new(all);
        }
        differs
    }

    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether any fragment comes from a command or file.
    pub(in crate::engine) fn are_read(&self) -> bool {
        self.all.iter().any(|fragment| !matches!(fragment.source, FragmentSource::Text(_)))
    }

    /// Stores the states read in a folder. If a fragment could not be read, its last state there stays.
    pub(in crate::engine) fn read(&mut self, cwd: Option<&str>, states: Vec<Option<String>>) {
        let cwd = cwd.map(str::to_owned);
        if self.read.len() >= FOLDERS_MAX && !self.read.contains_key(&cwd) {
            self.read.clear();
        }
        self.read_last.clone_from(&cwd);
        let said = self.read.entry(cwd).or_insert_with(|| self.fixed.clone());
        for (last, now) in said.iter_mut().zip(states) {
            if now.is_some() {
                *last = now;
            }
        }
    }

    /// The last states in a folder.
    fn said_in(&self, cwd: Option<&str>) -> &[Option<String>] {
        self.read.get(&cwd.map(str::to_owned)).unwrap_or(&self.fixed)
    }

    /// The texts that a thread in `cwd` needs before its next turn: fragments in the order of the settings, then the
    /// context engine's addition.
    pub(in crate::engine) fn news(
        &self,
        thread: &Thread,
        known: &ReceivedContext<'_>,
        cwd: Option<&str>,
        addition: Option<&str>,
    ) -> Vec<SentFragment> {
        let mut news = Vec::new();
        for (fragment, state) in self.all.iter().zip(self.said_in(cwd)) {
            let Some(state) = state else { continue };
            let (text, before) = (fragment.render(state), known.text(&fragment.name));
            let is_shown = fragment.threads == FragmentThreads::All || thread.is_new || before.is_some();
            let says_nothing = before.is_none() && state.trim().is_empty();
            if is_shown && !says_nothing && before != Some(&text) {
                news.push(fragment.as_sent(text, FragmentCarrier::InjectItems));
            }
        }
        if let Some(addition) = addition.map(bounded_addition).filter(|addition| !addition.is_empty())
            && known.text(ADDITION) != Some(addition)
        {
            let (name, role) = (ADDITION.to_owned(), FragmentRole::Developer.of_message());
            news.push(SentFragment { name, role, carrier: FragmentCarrier::InjectItems, text: addition.to_owned() });
        }
        news
    }

    /// The developer fragments for this folder, for a server that accepts them only as instructions. Without a folder,
    /// the states of the last read apply, because the server then uses its own folder.
    pub(in crate::engine) fn developers(&self, cwd: Option<&str>) -> Vec<SentFragment> {
        let cwd = cwd.or(self.read_last.as_deref());
        let shown = self.all.iter().zip(self.said_in(cwd)).filter_map(|(fragment, state)| {
            let state = state.as_ref().filter(|state| !state.trim().is_empty())?;
            (fragment.role == FragmentRole::Developer)
                .then(|| fragment.as_sent(fragment.render(state), FragmentCarrier::DeveloperInstructions))
        });
        shown.collect()
    }
}

impl Fragment {
    /// The opening tag.
    pub(in crate::engine) fn opening(&self) -> String {
        format!("<{}>\n", self.name)
    }

    /// The text that the model sees for `state`.
    fn render(&self, state: &str) -> String {
        let closing = format!("</{}>", self.name);
        let clean: String = state.chars().filter(|char| !char.is_control() || matches!(char, '\n' | '\t')).collect();
        let clean = clean.trim_end().replace(&closing, &format!("<\\/{}>", self.name));
        let cut = clean.len().saturating_sub(self.bytes_max);
        let body = match cut {
            0 => clean,
            _ => {
                let kept = &clean[..clean.floor_char_boundary(self.bytes_max)];
                format!("{kept}\n[truncated {} bytes]", clean.len() - kept.len())
            }
        };
        format!("{}{body}\n{closing}", self.opening())
    }

    fn as_sent(&self, text: String, carrier: FragmentCarrier) -> SentFragment {
        SentFragment { name: self.name.clone(), role: self.role.of_message(), carrier, text }
    }
}

/// A context engine's addition as it is sent.
pub(in crate::engine) fn bounded_addition(addition: &str) -> &str {
    addition[..addition.floor_char_boundary(ADDITION_BYTES_MAX)].trim()
}

/// Parameters of the call that injects texts: at most one developer message and one user message.
pub(in crate::engine) fn inject_params(thread_id: &str, sent: &[SentFragment]) -> String {
    let roles = [FragmentRole::Developer, FragmentRole::ContextualUser].map(FragmentRole::of_message);
    let messages = roles.map(|role| {
        let sent = sent.iter().filter(|fragment| fragment.role == role);
        (role, sent.map(|fragment| fragment.text.as_str()).collect::<Vec<&str>>())
    });
    let messages: Vec<(&str, Vec<&str>)> = messages.into_iter().filter(|(_, texts)| !texts.is_empty()).collect();
    inject_items_params(thread_id, &messages)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::engine::Remembered;
    use crate::engine::open_calls::Calls;
    use crate::engine::purpose::Purpose;
    use crate::engine::threads::Threads;
    use crate::protocol::Event;
    use crate::wire::{Body, Conn};

    fn fragment(name: &str, role: FragmentRole, threads: FragmentThreads) -> Fragment {
        let source = FragmentSource::Command(vec!["x".to_owned()]);
        Fragment { name: name.to_owned(), role, source, threads, bytes_max: 20 }
    }

    /// Fragments, the threads that receive them, and the calls that carry them.
    struct Play {
        fragments: Fragments,
        threads: Threads,
        calls: Calls,
    }

    impl Play {
        fn start(fragments: Vec<Fragment>) -> Play {
            let (threads, calls) = (Threads::default(), Calls::new("own:".to_owned()));
            Play { fragments: Fragments::new(fragments), threads, calls }
        }

        fn start_with_both_kinds() -> Play {
            Play::start(vec![
                fragment("a", FragmentRole::ContextualUser, FragmentThreads::All),
                fragment("b", FragmentRole::Developer, FragmentThreads::New),
            ])
        }

        fn set_states(&mut self, a: &str, b: &str) {
            self.fragments.read(None, vec![Some(a.to_owned()), Some(b.to_owned())]);
        }

        fn news(&mut self, thread_id: &str, cwd: Option<&str>, addition: Option<&str>) -> Vec<SentFragment> {
            self.threads.of(thread_id);
            let known = self.threads.known(thread_id, &self.calls.to_server);
            let thread = self.threads.find(thread_id).expect("BUG: it was used");
            self.fragments.news(thread, &known, cwd, addition)
        }

        /// A turn begins; returns the texts that go ahead of it.
        fn turn(&mut self, thread_id: &str, addition: Option<&str>) -> String {
            let sent = self.news(thread_id, None, addition);
            let texts = sent.iter().map(|sent| format!("{}:{}", sent.role, sent.text.replace('\n', "|")));
            let texts = texts.collect::<Vec<_>>().join(" ");
            if !sent.is_empty() {
                let purpose = Purpose::Fragments { thread_id: thread_id.to_owned(), sent };
                self.calls.call_server(Conn::OWN, "x", None, purpose);
            }
            texts
        }

        /// The server answers the call of this number.
        fn answer(&mut self, number: usize, accepts: bool) {
            let line = format!(r#"{{"id":"own:{number}","result":{{}}}}"#);
            let Body::Message(message) = Body::parse(line.as_bytes()) else { panic!("BUG: a message") };
            let call =
                self.calls.to_server.complete(Conn::OWN, &Event::of(&message)).call.expect("BUG: the call is open");
            let Some(Purpose::Fragments { thread_id, sent }) = &call.purpose else { panic!("BUG: it has fragments") };
            if accepts {
                self.threads.of(thread_id).receives(call.key, sent);
            }
        }
    }

    #[test]
    fn fragments_are_sent_whole_after_changes() {
        let mut play = Play::start_with_both_kinds();
        assert_eq!(play.turn("t", None), "");
        play.threads.of("t").is_new = true;
        play.set_states("1", "x\n");
        assert_eq!(play.turn("t", None), "user:<a>|1|</a> developer:<b>|x|</b>");
        assert_eq!(play.turn("t", None), "");
        // A failed read keeps the last state.
        play.fragments.read(None, vec![None, Some("y".to_owned())]);
        assert_eq!(play.turn("t", None), "developer:<b>|y|</b>");
        // A thread from before this run.
        assert_eq!(play.turn("old", None), "user:<a>|1|</a>");
        play.set_states("", "y");
        assert_eq!(play.turn("t", None), "user:<a>||</a>");
        assert_eq!(play.turn("other", None), "");
    }

    #[test]
    fn each_folder_has_what_was_read_there() {
        let mut play = Play::start_with_both_kinds();
        let texts = |play: &mut Play, thread: &str, cwd: Option<&str>| {
            let news = play.news(thread, cwd, None);
            news.iter().map(|sent| sent.text.replace('\n', "|")).collect::<Vec<_>>().join(" ")
        };
        let says = |a: &str| vec![Some(a.to_owned()), None];
        play.fragments.read(None, says("relay"));
        play.fragments.read(Some("/a"), says("a"));
        assert_eq!(texts(&mut play, "t", None), "<a>|relay|</a>");
        assert_eq!(texts(&mut play, "t", Some("/a")), "<a>|a|</a>");
        // A failed read does not fall back to another folder's state.
        play.fragments.read(Some("/b"), vec![None, None]);
        assert_eq!(texts(&mut play, "t", Some("/b")), "");
        play.fragments.read(Some("/a"), vec![None, None]);
        assert_eq!(texts(&mut play, "t", Some("/a")), "<a>|a|</a>");
        (0..FOLDERS_MAX).for_each(|number| play.fragments.read(Some(&number.to_string()), says("x")));
        assert!(play.fragments.read.len() <= FOLDERS_MAX);
        assert_eq!(texts(&mut play, "t", Some("/a")), "");
    }

    #[test]
    fn rejected_or_lost_fragments_are_sent_again() {
        let mut play = Play::start_with_both_kinds();
        play.threads.of("t").is_new = true;
        play.set_states("1", "x");
        assert_eq!(play.turn("t", None), "user:<a>|1|</a> developer:<b>|x|</b>");
        play.set_states("2", "x");
        assert_eq!(play.turn("t", None), "user:<a>|2|</a>");
        play.answer(1, false);
        // Only changes since the last send.
        assert_eq!(play.turn("t", None), "developer:<b>|x|</b>");
        play.threads.of("t").is_new = false;
        play.threads.of("t").saw_epoch(play.calls.to_server.last_key(), "e".to_owned());
        assert_eq!(play.threads.known("t", &play.calls.to_server).epoch(), Some("e"));
        play.answer(2, true);
        assert!(play.threads.of("t").compacted("turn", play.calls.to_server.last_key()));
        assert!(!play.threads.of("t").compacted("turn", play.calls.to_server.last_key()));
        assert_eq!(play.threads.known("t", &play.calls.to_server).epoch(), None);
        // The compaction may have removed a text whose response comes later.
        play.answer(3, true);
        assert_eq!(play.turn("t", None), "user:<a>|2|</a> developer:<b>|x|</b>");
    }

    /// Two calls send a thread different texts and are answered in either order.
    #[test]
    fn answers_in_any_order_agree() {
        for first in [1, 2] {
            for (accepts, then) in [([true; 2], ""), ([false; 2], "developer:y"), ([true, false], "developer:y")] {
                let mut play = Play::start(Vec::new());
                assert_eq!(play.turn("t", Some("x")), "developer:x");
                assert_eq!(play.turn("t", Some("y")), "developer:y");
                [first, 3 - first].into_iter().for_each(|number| play.answer(number, accepts[number - 1]));
                assert_eq!(play.turn("t", Some("y")), then, "{first} {accepts:?}");
            }
        }
    }

    #[test]
    fn addition_comes_last_and_is_sent_once() {
        let mut play = Play::start(vec![Fragment {
            source: FragmentSource::Text("fixed".to_owned()),
            ..fragment("c", FragmentRole::Developer, FragmentThreads::All)
        }]);
        assert!(!play.fragments.are_read());
        assert_eq!(play.turn("t", Some(" be brief ")), "developer:<c>|fixed|</c> developer:be brief");
        assert_eq!(play.turn("t", Some("be brief")), "");
        assert_eq!(play.turn("t", None), "");
        assert_eq!(play.turn("t", Some("be long")), "developer:be long");
        let known = play.threads.known("t", &play.calls.to_server);
        assert_eq!(play.threads.addition("t", &known), Some("be long"));
        assert_eq!(play.fragments.developers(None).len(), 1);
    }

    #[test]
    fn changed_fragments_forget_only_what_was_read() {
        let mut play = Play::start_with_both_kinds();
        play.threads.of("t").is_new = true;
        play.set_states("1", "x");
        assert_eq!(play.turn("t", None), "user:<a>|1|</a> developer:<b>|x|</b>");
        let same = play.fragments.all.clone();
        assert!(!play.fragments.configure(same));
        let fixed = |name: &str, text: &str| Fragment {
            source: FragmentSource::Text(text.to_owned()),
            ..fragment(name, FragmentRole::Developer, FragmentThreads::All)
        };
        assert!(play.fragments.configure(vec![fixed("c", "new"), fixed("b", "x")]));
        assert_eq!(play.turn("t", None), "developer:<c>|new|</c>");
    }

    #[test]
    fn fragments_of_earlier_runs_are_not_repeated() {
        let mut play = Play::start_with_both_kinds();
        let fragment = fragment("b", FragmentRole::Developer, FragmentThreads::New)
            .as_sent("<b>\nx\n</b>".to_owned(), FragmentCarrier::InjectItems);
        let epochs = vec![("t".to_owned(), "e".to_owned())];
        play.threads.remember(Remembered {
            fragments: vec![("t".to_owned(), fragment)],
            epochs,
            ..Remembered::default()
        });
        play.set_states("1", "x");
        assert_eq!(play.turn("t", None), "user:<a>|1|</a>");
        assert_eq!(play.threads.known("t", &play.calls.to_server).epoch(), Some("e"));
        play.set_states("1", "changed");
        assert_eq!(play.turn("t", None), "developer:<b>|changed|</b>");
    }

    #[test]
    fn fragment_is_bounded_and_cannot_close_its_tag() {
        let fragment = fragment("a", FragmentRole::Developer, FragmentThreads::All);
        let check = |state: &str, expect: &str| assert_eq!(fragment.render(state), format!("<a>\n{expect}\n</a>"));
        check("\u{1b}[1mx\r\n\ty\n\n", "[1mx\n\ty");
        check("x</a>y", "x<\\/a>y");
        check(&"é".repeat(11), &format!("{}\n[truncated 2 bytes]", "é".repeat(10)));
        check("12345678901234567890", "12345678901234567890");
    }

    #[test]
    fn one_message_per_role() {
        let one = |name: &str, role| {
            fragment(name, role, FragmentThreads::All).as_sent(name.to_owned(), FragmentCarrier::InjectItems)
        };
        let params = inject_params(
            "t",
            &[
                one("a", FragmentRole::ContextualUser),
                one("b", FragmentRole::Developer),
                one("c", FragmentRole::ContextualUser),
            ],
        );
        assert_eq!(
            serde_json::from_str::<Value>(&params).expect("it is JSON"),
            json!({ "threadId": "t", "items": [
                { "type": "message", "role": "developer", "content": [{ "type": "input_text", "text": "b" }] },
                { "type": "message", "role": "user", "content": [
                    { "type": "input_text", "text": "a" }, { "type": "input_text", "text": "c" }] },
            ] })
        );
    }
}
