//! What each thread has received besides the user's words, and what it needs next.
//!
//! A thread receives a fragment whole, and again only after a change. Sent text counts as received until the server
//! rejects it. Nothing is run or read here: fragment states come from outside.

use std::collections::{BTreeMap, HashMap};

use super::consultation::{FragmentCarrier, Remembered, SentFragment};
use super::settings::{Fragment, FragmentRole, FragmentSource, FragmentThreads};
use crate::protocol::inject_items_params;

/// Threads that are tracked; the least recently used one is evicted and receives everything again.
const THREADS_MAX: usize = 1_024;

/// Longest developer addition, in bytes; the rest is cut off.
const ADDITION_BYTES_MAX: usize = 64 << 10;

/// Folders whose fragment states are cached; one more clears the cache.
const FOLDERS_MAX: usize = 256;

/// The name of the context engine's addition.
pub(in crate::engine) const ADDITION: &str = "developer_addition";

/// The state of a thread.
#[derive(Debug, Default)]
pub(in crate::engine) struct Thread {
    /// The model it started with, or the one the client chose since.
    pub(in crate::engine) model: Option<String>,
    /// The working folder, likewise.
    pub(in crate::engine) cwd: Option<String>,
    /// The names of the tools that the client defined.
    pub(in crate::engine) tools: Vec<String>,
    /// The thread began during this run.
    pub(in crate::engine) is_new: bool,
    /// The context engine knows the thread.
    pub(in crate::engine) is_opened: bool,
    /// The epoch of the last projection shown.
    pub(in crate::engine) epoch: Option<String>,
    /// The context engine's latest addition in this run, sent or not.
    addition: Option<String>,
    sent: BTreeMap<String, String>,
    /// The most recently used thread has the greatest value; 0 is unused in this run.
    last_use: u64,
}

/// All threads, and the known fragment states.
#[derive(Debug)]
pub(in crate::engine) struct Threads {
    fragments: Vec<Fragment>,
    /// Initial fragment states, before any read.
    fixed: Vec<Option<String>>,
    /// The last fragment states by folder; `None` is the relay's folder.
    read: HashMap<Option<String>, Vec<Option<String>>>,
    /// The folder of the last read.
    read_last: Option<String>,
    by_id: HashMap<String, Thread>,
    uses: u64,
}

impl Threads {
    pub(in crate::engine) fn new(fragments: Vec<Fragment>) -> Threads {
        let fixed = fragments.iter().map(|fragment| match &fragment.source {
            FragmentSource::Text(text) => Some(text.clone()),
            FragmentSource::Command(_) | FragmentSource::File(_) => None,
        });
        let (read, by_id) = (HashMap::new(), HashMap::new());
        Threads { fixed: fixed.collect(), read, read_last: None, fragments, by_id, uses: 0 }
    }

    /// Replaces the fragments, if they differ, and returns whether they do. The record of delivered fragments stays.
    pub(in crate::engine) fn configure(&mut self, fragments: Vec<Fragment>) -> bool {
        let differs = fragments != self.fragments;
        if differs {
            let Threads { fragments, fixed, .. } = Threads::new(fragments);
            (self.fragments, self.fixed, self.read_last) = (fragments, fixed, None);
            self.read.clear();
        }
        differs
    }

    /// Whether any fragment comes from a command or file.
    pub(in crate::engine) fn are_read(&self) -> bool {
        self.fragments.iter().any(|fragment| !matches!(fragment.source, FragmentSource::Text(_)))
    }

    /// Marks a thread as used and returns it, new if unknown.
    pub(in crate::engine) fn of(&mut self, thread_id: &str) -> &mut Thread {
        self.make_room_for(thread_id);
        self.uses += 1;
        let thread = self.by_id.entry(thread_id.to_owned()).or_default();
        thread.last_use = self.uses;
        thread
    }

    fn make_room_for(&mut self, thread_id: &str) {
        if self.by_id.len() < THREADS_MAX || self.by_id.contains_key(thread_id) {
            return;
        }
        // Ties are broken by id, so eviction is deterministic.
        let longest_unused =
            self.by_id.iter().min_by_key(|(id, thread)| (thread.last_use, *id)).map(|(id, _)| id.clone());
        if let Some(id) = longest_unused {
            self.by_id.remove(&id);
        }
    }

    /// Loads what earlier runs sent, newest first, without evicting a thread used in this run.
    pub(in crate::engine) fn remember(&mut self, remembered: Remembered) {
        for (thread_id, fragment) in remembered.fragments.into_iter().rev() {
            if let Some(thread) = self.known_before(thread_id) {
                thread.sent.entry(fragment.name).or_insert(fragment.text);
            }
        }
        for (thread_id, epoch) in remembered.epochs.into_iter().rev() {
            if let Some(thread) = self.known_before(thread_id) {
                thread.epoch.get_or_insert(epoch);
            }
        }
    }

    fn known_before(&mut self, thread_id: String) -> Option<&mut Thread> {
        let has_room = self.by_id.len() < THREADS_MAX || self.by_id.contains_key(&thread_id);
        has_room.then(|| self.by_id.entry(thread_id).or_default())
    }

    /// Stores fragment states read in a folder. If a fragment could not be read, its last state there stays.
    pub(in crate::engine) fn read(&mut self, cwd: Option<&str>, states: Vec<Option<String>>) {
        let cwd = cwd.map(str::to_owned);
        if self.read.len() >= FOLDERS_MAX && !self.read.contains_key(&cwd) {
            self.read.clear();
        }
        let folder = cwd.clone();
        let said = self.read.entry(cwd).or_insert_with(|| self.fixed.clone());
        self.read_last.clone_from(&folder);
        for (last, now) in said.iter_mut().zip(states) {
            if now.is_some() {
                *last = now;
            }
        }
    }

    /// The working folder of a thread, if known.
    pub(in crate::engine) fn cwd(&self, thread_id: &str) -> Option<&str> {
        self.by_id.get(thread_id)?.cwd.as_deref()
    }

    /// The last fragment states in a folder.
    fn said_in(&self, cwd: Option<&str>) -> &[Option<String>] {
        self.read.get(&cwd.map(str::to_owned)).unwrap_or(&self.fixed)
    }

    /// The texts that a thread in `cwd` needs before its next turn: fragments in the order of the settings, then the
    /// context engine's addition.
    pub(in crate::engine) fn news(
        &mut self,
        thread_id: &str,
        cwd: Option<&str>,
        addition: Option<&str>,
    ) -> Vec<SentFragment> {
        let (fragments, states) = (self.fragments.clone(), self.said_in(cwd).to_vec());
        let thread = self.of(thread_id);
        let mut news = Vec::new();
        for (fragment, state) in fragments.iter().zip(&states) {
            let Some(state) = state else { continue };
            let (text, before) = (fragment.render(state), thread.sent.get(&fragment.name));
            let is_shown = fragment.threads == FragmentThreads::All || thread.is_new || before.is_some();
            let says_nothing = before.is_none() && state.trim().is_empty();
            if is_shown && !says_nothing && before != Some(&text) {
                news.push(fragment.as_sent(text, FragmentCarrier::InjectItems));
            }
        }
        if let Some(addition) = addition.map(bounded_addition).filter(|addition| !addition.is_empty())
            && thread.sent.get(ADDITION).map(String::as_str) != Some(addition)
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
        let shown = self.fragments.iter().zip(self.said_in(cwd)).filter_map(|(fragment, state)| {
            let state = state.as_ref().filter(|state| !state.trim().is_empty())?;
            (fragment.role == FragmentRole::Developer)
                .then(|| fragment.as_sent(fragment.render(state), FragmentCarrier::DeveloperInstructions))
        });
        shown.collect()
    }

    /// Stores the context engine's addition for a thread.
    pub(in crate::engine) fn set_addition(&mut self, thread_id: &str, addition: &str) {
        self.of(thread_id).addition = Some(bounded_addition(addition).to_owned());
    }

    /// The context engine's latest addition for a thread, if any.
    pub(in crate::engine) fn addition(&self, thread_id: &str) -> Option<&str> {
        let thread = self.by_id.get(thread_id)?;
        let said = thread.addition.as_ref().or_else(|| thread.sent.get(ADDITION))?;
        (!said.is_empty()).then_some(said)
    }

    /// Whether the history of a thread has this addition: one of our calls sent it, and no compaction followed.
    pub(in crate::engine) fn has_addition(&self, thread_id: &str) -> bool {
        self.by_id.get(thread_id).and_then(|thread| thread.sent.get(ADDITION)).is_some_and(|text| !text.is_empty())
    }

    /// Marks texts as sent to a thread. Returns the earlier texts, to restore if the server rejects the new ones.
    pub(in crate::engine) fn mark_sent(
        &mut self,
        thread_id: &str,
        sent: &[SentFragment],
    ) -> Vec<(String, Option<String>)> {
        let thread = self.of(thread_id);
        let one = |fragment: &SentFragment| {
            let before = thread.sent.insert(fragment.name.clone(), fragment.text.clone());
            (fragment.name.clone(), before)
        };
        sent.iter().map(one).collect()
    }

    /// Restores an earlier text, unless the thread has received yet another one since.
    pub(in crate::engine) fn put_back(&mut self, thread_id: &str, name: String, refused: &str, before: Option<String>) {
        let thread = self.of(thread_id);
        if thread.sent.get(&name).map(String::as_str) != Some(refused) {
            return;
        }
        match before {
            Some(text) => drop(thread.sent.insert(name, text)),
            None => drop(thread.sent.remove(&name)),
        }
    }

    /// The history of a thread was compacted: it may have lost everything sent to it.
    pub(in crate::engine) fn forget(&mut self, thread_id: &str) {
        let thread = self.of(thread_id);
        thread.epoch = None;
        // Fragments for new threads only need the name to stay known.
        thread.sent.values_mut().for_each(String::clear);
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

fn bounded_addition(addition: &str) -> &str {
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

    fn fragment(name: &str, role: FragmentRole, threads: FragmentThreads) -> Fragment {
        let source = FragmentSource::Command(vec!["x".to_owned()]);
        Fragment { name: name.to_owned(), role, source, threads, bytes_max: 20 }
    }

    fn threads() -> Threads {
        Threads::new(vec![
            fragment("a", FragmentRole::ContextualUser, FragmentThreads::All),
            fragment("b", FragmentRole::Developer, FragmentThreads::New),
        ])
    }

    fn news(threads: &mut Threads, thread: &str, addition: Option<&str>) -> String {
        let news = threads.news(thread, None, addition);
        threads.mark_sent(thread, &news);
        news.iter().map(|sent| format!("{}:{}", sent.role, sent.text.replace('\n', "|"))).collect::<Vec<_>>().join(" ")
    }

    fn set_states(threads: &mut Threads, a: &str, b: &str) {
        threads.read(None, vec![Some(a.to_owned()), Some(b.to_owned())]);
    }

    #[test]
    fn fragments_are_sent_whole_after_changes() {
        let mut threads = threads();
        assert_eq!(news(&mut threads, "t", None), "");
        threads.of("t").is_new = true;
        set_states(&mut threads, "1", "x\n");
        assert_eq!(news(&mut threads, "t", None), "user:<a>|1|</a> developer:<b>|x|</b>");
        assert_eq!(news(&mut threads, "t", None), "");
        // A failed read keeps the last state.
        threads.read(None, vec![None, Some("y".to_owned())]);
        assert_eq!(news(&mut threads, "t", None), "developer:<b>|y|</b>");
        // A thread from before this run.
        assert_eq!(news(&mut threads, "old", None), "user:<a>|1|</a>");
        set_states(&mut threads, "", "y");
        assert_eq!(news(&mut threads, "t", None), "user:<a>||</a>");
        assert_eq!(news(&mut threads, "other", None), "");
    }

    #[test]
    fn each_folder_has_what_was_read_there() {
        let mut threads = threads();
        let texts = |threads: &mut Threads, thread: &str, cwd: Option<&str>| {
            let news = threads.news(thread, cwd, None);
            news.iter().map(|sent| sent.text.replace('\n', "|")).collect::<Vec<_>>().join(" ")
        };
        let says = |a: &str| vec![Some(a.to_owned()), None];
        threads.read(None, says("relay"));
        threads.read(Some("/a"), says("a"));
        assert_eq!(texts(&mut threads, "t", None), "<a>|relay|</a>");
        assert_eq!(texts(&mut threads, "t", Some("/a")), "<a>|a|</a>");
        // A failed read does not fall back to another folder's state.
        threads.read(Some("/b"), vec![None, None]);
        assert_eq!(texts(&mut threads, "t", Some("/b")), "");
        threads.read(Some("/a"), vec![None, None]);
        assert_eq!(texts(&mut threads, "t", Some("/a")), "<a>|a|</a>");
        (0..FOLDERS_MAX).for_each(|number| threads.read(Some(&number.to_string()), says("x")));
        assert!(threads.read.len() <= FOLDERS_MAX);
        assert_eq!(texts(&mut threads, "t", Some("/a")), "");
    }

    #[test]
    fn rejected_or_forgotten_fragments_are_sent_again() {
        let mut threads = threads();
        threads.of("t").is_new = true;
        set_states(&mut threads, "1", "x");
        let first = threads.news("t", None, None);
        let before = threads.mark_sent("t", &first);
        set_states(&mut threads, "2", "x");
        assert_eq!(news(&mut threads, "t", None), "user:<a>|2|</a>");
        for ((name, before), refused) in before.into_iter().zip(&first) {
            threads.put_back("t", name.clone(), "something else", None);
            threads.put_back("t", name, &refused.text, before);
        }
        // Only changes since the last send.
        assert_eq!(news(&mut threads, "t", None), "developer:<b>|x|</b>");
        threads.of("t").is_new = false;
        threads.of("t").epoch = Some("e".to_owned());
        threads.forget("t");
        assert_eq!(threads.of("t").epoch, None);
        assert_eq!(news(&mut threads, "t", None), "user:<a>|2|</a> developer:<b>|x|</b>");
    }

    #[test]
    fn addition_comes_last_and_is_sent_once() {
        let mut threads = Threads::new(vec![Fragment {
            source: FragmentSource::Text("fixed".to_owned()),
            ..fragment("c", FragmentRole::Developer, FragmentThreads::All)
        }]);
        assert!(!threads.are_read());
        assert_eq!(news(&mut threads, "t", Some(" be brief ")), "developer:<c>|fixed|</c> developer:be brief");
        assert_eq!(news(&mut threads, "t", Some("be brief")), "");
        assert_eq!(news(&mut threads, "t", None), "");
        assert_eq!(news(&mut threads, "t", Some("be long")), "developer:be long");
        assert_eq!(threads.addition("t"), Some("be long"));
        assert_eq!(threads.developers(None).len(), 1);
    }

    #[test]
    fn changed_fragments_forget_only_what_was_read() {
        let mut threads = threads();
        threads.of("t").is_new = true;
        set_states(&mut threads, "1", "x");
        assert_eq!(news(&mut threads, "t", None), "user:<a>|1|</a> developer:<b>|x|</b>");
        let same = threads.fragments.clone();
        assert!(!threads.configure(same));
        let fixed = |name: &str, text: &str| Fragment {
            source: FragmentSource::Text(text.to_owned()),
            ..fragment(name, FragmentRole::Developer, FragmentThreads::All)
        };
        assert!(threads.configure(vec![fixed("c", "new"), fixed("b", "x")]));
        assert_eq!(news(&mut threads, "t", None), "developer:<c>|new|</c>");
    }

    #[test]
    fn fragments_of_earlier_runs_are_not_repeated() {
        let mut threads = threads();
        let fragment = fragment("b", FragmentRole::Developer, FragmentThreads::New)
            .as_sent("<b>\nx\n</b>".to_owned(), FragmentCarrier::InjectItems);
        let epochs = vec![("t".to_owned(), "e".to_owned())];
        threads.remember(Remembered { fragments: vec![("t".to_owned(), fragment)], epochs });
        set_states(&mut threads, "1", "x");
        assert_eq!(news(&mut threads, "t", None), "user:<a>|1|</a>");
        assert_eq!(threads.of("t").epoch.as_deref(), Some("e"));
        set_states(&mut threads, "1", "changed");
        assert_eq!(news(&mut threads, "t", None), "developer:<b>|changed|</b>");
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

    #[test]
    fn least_recently_used_thread_is_evicted() {
        let mut threads = threads();
        let fragment = fragment("b", FragmentRole::Developer, FragmentThreads::New)
            .as_sent("x".to_owned(), FragmentCarrier::InjectItems);
        let remembered =
            |id: &str| Remembered { fragments: vec![(id.to_owned(), fragment.clone())], epochs: Vec::new() };
        threads.remember(remembered("before"));
        (1..THREADS_MAX).for_each(|number| threads.of(&number.to_string()).is_new = true);
        assert!(threads.of("1").is_new);
        threads.remember(remembered("too many"));
        for gone in ["before", "2", "3"] {
            assert!(threads.by_id.contains_key(gone), "{gone}");
            threads.of(&format!("instead of {gone}"));
            assert!(!threads.by_id.contains_key(gone), "{gone}");
        }
        assert_eq!(threads.by_id.len(), THREADS_MAX);
        assert!(threads.of("1").is_new && !threads.by_id.contains_key("too many"));
    }
}
