//! Threads: all that the engine remembers about each thread of the server, in one bounded table.
//!
//! One rule bounds the table: beyond [`THREADS_MAX`] threads, the least recently used one is evicted, and one with a running
//! turn or a waiting decline reason only if all have one. An evicted thread receives its fragments and its projection again, and its next turn does not
//! count as its first.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::assembly::{ADDITION, Remembered, SentFragment};
use super::model::GivenVariables;
use super::open_calls::{CallKey, OpenCalls};
use super::purpose::Purpose;
use super::{Effect, LedgerEntry};
use crate::invariants::holds;
use crate::protocol::{SpawnedThread, ThreadDescription, ThreadSettings, cwd_in};
use crate::wire::Members;

/// Tracked threads.
const THREADS_MAX: usize = 1_024;

/// Ended turns that are remembered in each thread.
const ENDED_TURNS_MAX: usize = 16;

/// Longest stored beginning of a thread, in characters.
pub(super) const WORDS_CHARS_MAX: usize = 1_000;

/// Decline reasons that wait for a turn. One more evicts the oldest of the thread that was used longest ago.
const REASONS_MAX: usize = 64;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Threads {
    by_key: HashMap<String, Thread>,
    uses: u64,
    has_evicted: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Thread {
    /// The running turn.
    pub(super) turn: Option<String>,
    /// The last turns that ended, oldest first: a slow subscriber hears of them later.
    ended_turns: VecDeque<String>,
    /// The server has named a turn of the thread.
    has_run: bool,
    /// The server has mentioned the thread, and the ledger knows it.
    is_reported: bool,
    /// The thread has had a turn, in this run or before it was resumed.
    has_begun: bool,
    /// The user's first words, if context went before them.
    words: Option<String>,
    /// As the server described it last, with the folder and the model of the last turn that it accepted.
    description: ThreadDescription,
    /// The names of the tools that the client defined.
    pub(super) tools: Vec<String>,
    /// The thread began during this run.
    pub(super) is_new: bool,
    /// The context engine knows the thread.
    pub(super) is_opened: bool,
    /// The context engine's latest addition in this run, sent or not.
    pub(super) addition: Option<String>,
    /// Context that the server has accepted.
    received: Received,
    /// Decline reasons for the next turn, oldest first.
    reasons: VecDeque<String>,
    /// The variables that its commands get.
    pub(super) variables: Option<Box<GivenVariables>>,
    /// Compactions that the client has requested and that are not observed yet.
    compactions_requested: u32,
    /// The turn of the last reported compaction.
    compacted_in: Option<String>,
    /// The most recently used thread has the greatest value; 0 is unused in this run.
    last_use: u64,
    /// The same when its last turn started.
    started: u64,
}

/// Context that a thread has received, with the call that carried it. Calls may be answered in any order.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Received {
    /// Texts by the names of their fragments; an empty one was lost in a compaction.
    texts: BTreeMap<String, (CallKey, String)>,
    /// The epoch of the last projection.
    epoch: Option<(CallKey, String)>,
    /// The last call before the last compaction.
    lost_up_to: CallKey,
}

/// Context that a thread has received or will receive. Text on its way counts until the server rejects it, because the next
/// turn may begin before the response.
#[derive(Debug)]
pub(super) struct ReceivedContext<'a> {
    texts: BTreeMap<&'a str, (CallKey, &'a str)>,
    epoch: Option<(CallKey, &'a str)>,
}

impl Threads {
    pub(super) fn count(&self) -> usize {
        self.by_key.len()
    }

    /// Checks the table; `last_call` is the key of the last call to the server.
    pub(super) fn check(&self, last_call: CallKey) {
        holds!("threads.within-limit", self.by_key.len() <= THREADS_MAX);
        let used: BTreeSet<u64> = self.by_key.values().map(|thread| thread.last_use).filter(|used| *used > 0).collect();
        holds!("threads.uses-differ", used.len() == self.by_key.values().filter(|thread| thread.last_use > 0).count());
        holds!("threads.uses-were-counted", used.last().is_none_or(|used| *used <= self.uses));
        let reasons: usize = self.by_key.values().map(|thread| thread.reasons.len()).sum();
        holds!("threads.reasons-within-limit", reasons <= REASONS_MAX);
        for thread in self.by_key.values() {
            holds!("threads.started-when-used", thread.started <= thread.last_use);
            holds!("threads.ended-turns-within-limit", thread.ended_turns.len() <= ENDED_TURNS_MAX);
            let has_ended = thread.turn.as_ref().is_some_and(|turn| thread.ended_turns.contains(turn));
            holds!("threads.running-turn-has-not-ended", !has_ended);
            holds!("threads.running-turn-has-begun", thread.turn.is_none() || thread.has_run);
            let ended: BTreeSet<&String> = thread.ended_turns.iter().collect();
            holds!("threads.turn-ends-once", ended.len() == thread.ended_turns.len());
            let Received { texts, epoch, lost_up_to } = &thread.received;
            let calls = texts.values().map(|(call, _)| call).chain(epoch.iter().map(|(call, _)| call));
            holds!("threads.context-came-with-a-known-call", calls.max().is_none_or(|call| *call <= last_call));
            holds!("threads.context-was-lost-with-a-known-call", *lost_up_to <= last_call);
        }
    }

    /// Whether a turn of a thread runs.
    pub(super) fn runs(&self, thread_id: &str) -> bool {
        self.find(thread_id).is_some_and(|thread| thread.turn.is_some())
    }

    /// The server has closed a thread.
    pub(super) fn closed(&mut self, thread_id: &str) {
        if let Some(thread) = self.find_mut(thread_id) {
            thread.variables = None;
        }
    }

    pub(super) fn given_variables(&self) -> Vec<(&String, &GivenVariables)> {
        let mut given: Vec<_> =
            self.by_key.iter().filter_map(|(id, thread)| Some((id, thread.variables.as_deref()?))).collect();
        given.sort_by_key(|(id, _)| *id);
        given
    }

    pub(super) fn find(&self, thread_id: &str) -> Option<&Thread> {
        self.by_key.get(thread_id)
    }

    fn find_mut(&mut self, thread_id: &str) -> Option<&mut Thread> {
        self.by_key.get_mut(thread_id)
    }

    /// Marks a thread as used and returns it, new if unknown.
    pub(super) fn of(&mut self, thread_id: &str) -> &mut Thread {
        if !self.has_room_for(thread_id) {
            self.evict();
        }
        self.uses += 1;
        // A thread that was evicted is not told apart from one that is new.
        let has_begun = self.has_evicted;
        let unknown = || Thread { has_begun, ..Thread::default() };
        let thread = self.by_key.entry(thread_id.to_owned()).or_insert_with(unknown);
        thread.last_use = self.uses;
        thread
    }

    fn has_room_for(&self, thread_id: &str) -> bool {
        self.by_key.len() < THREADS_MAX || self.by_key.contains_key(thread_id)
    }

    fn evict(&mut self) {
        // Ties are broken by id, so eviction is deterministic.
        let first = self
            .by_key
            .iter()
            .min_by_key(|(key, thread)| (thread.turn.is_some() || !thread.reasons.is_empty(), thread.last_use, *key));
        let evicted = first.map(|(key, _)| key.clone()).and_then(|key| self.by_key.remove(&key));
        // A thread that is only known from earlier runs begins when the client resumes it.
        self.has_evicted |= evicted.is_some_and(|thread| thread.has_begun);
    }

    /// Loads what earlier runs sent, newest first, without evicting a thread used in this run.
    pub(super) fn remember(&mut self, remembered: Remembered) {
        for (thread_id, SentFragment { name, text, .. }) in remembered.fragments.into_iter().rev() {
            if let Some(thread) = self.known_before(thread_id) {
                thread.received.texts.entry(name).or_insert((CallKey::default(), text));
            }
        }
        for (thread_id, epoch) in remembered.epochs.into_iter().rev() {
            if let Some(thread) = self.known_before(thread_id) {
                thread.received.epoch.get_or_insert((CallKey::default(), epoch));
            }
        }
    }

    /// Loads the beginning of a thread, as stored by an earlier run.
    pub(super) fn remember_words(&mut self, thread_id: String, words: &str) {
        if let Some(thread) = self.known_before(thread_id) {
            thread.learn_words(words);
        }
    }

    fn known_before(&mut self, thread_id: String) -> Option<&mut Thread> {
        self.has_room_for(&thread_id).then(|| self.by_key.entry(thread_id).or_default())
    }

    /// The named thread, or else that of the last turn of a person.
    pub(super) fn named_or_last(&self, named: Option<String>) -> Option<String> {
        named.or_else(|| self.last_of(|_| true))
    }

    /// The thread of the last turn among those that take messages that name no thread.
    fn last_of(&self, is_meant: impl Fn(&Thread) -> bool) -> Option<String> {
        let takes = |(_, thread): &(&String, &Thread)| thread.started > 0 && thread.description.takes_messages();
        let meant = self.by_key.iter().filter(takes).filter(|(_, thread)| is_meant(thread));
        meant.max_by_key(|(key, thread)| (thread.started, *key)).map(|(key, _)| key.clone())
    }

    /// The same for an interruption: without a name, that of the last of these turns that runs.
    pub(super) fn named_or_running(&self, named: Option<String>) -> Option<String> {
        named.or_else(|| self.last_of(|thread| thread.turn.is_some())).or_else(|| self.last_of(|_| true))
    }

    /// Whether the server has mentioned a thread in this run.
    pub(super) fn knows(&self, thread_id: &str) -> bool {
        self.find(thread_id).is_some_and(|thread| thread.is_reported || thread.has_run)
    }

    /// The server mentions a thread.
    pub(super) fn mention(&mut self, thread_id: &str, effects: &mut Vec<Effect>) {
        if !std::mem::replace(&mut self.of(thread_id).is_reported, true) {
            effects.push(Effect::keep(LedgerEntry::ThreadSeen { thread_id: thread_id.to_owned() }));
        }
    }

    /// The server describes the thread in these parameters or this result, whose id is returned.
    pub(super) fn mentioned_in(&mut self, value: &RawValue, effects: &mut Vec<Effect>) -> Option<String> {
        let (thread_id, mut description) = ThreadDescription::within(value)?;
        let result = Members::of(value)?;
        description.model = result.text("model").or(description.model);
        description.cwd = cwd_in(&result).or(description.cwd);
        self.mention(&thread_id, effects);
        self.of(&thread_id).description.update(description);
        Some(thread_id)
    }

    /// The server describes a thread without a client that opens it: only a known thread learns from that.
    pub(super) fn described_in(&mut self, value: &RawValue) {
        let described = ThreadDescription::within(value);
        if let Some((thread_id, description)) = described
            && let Some(thread) = self.find_mut(&thread_id)
        {
            thread.description.update(description);
        }
    }

    /// An item of a thread may say that its model has started another one, which takes no messages that name no thread.
    pub(super) fn spawned_in(&mut self, params: &RawValue) {
        let Some(SpawnedThread { thread_id, parent }) = SpawnedThread::within(params) else { return };
        let cwd = self.find(&parent).and_then(|parent| parent.description.cwd.clone());
        self.of(&thread_id).description.spawned(parent, cwd);
    }

    /// The server has accepted settings of a thread, or reports them.
    pub(super) fn set(&mut self, thread_id: &str, settings: ThreadSettings) {
        self.of(thread_id).description.set(settings);
    }

    /// The server reports the settings of a thread.
    pub(super) fn settings_reported(&mut self, params: &RawValue) {
        let Some(params) = Members::of(params) else { return };
        let settings = params.get("threadSettings").and_then(Members::of);
        if let (Some(thread_id), Some(settings)) = (params.text("threadId"), settings) {
            self.set(&thread_id, ThreadSettings::of(&settings).unwrap_or_default());
        }
    }

    /// Marks a thread as begun; returns whether that is new.
    pub(super) fn begin(&mut self, thread_id: &str) -> bool {
        !std::mem::replace(&mut self.of(thread_id).has_begun, true)
    }

    /// Whether a turn is one of the last that ended in a thread.
    pub(super) fn has_ended(&self, thread_id: &str, turn_id: &str) -> bool {
        self.find(thread_id).is_some_and(|thread| thread.ended_turns.iter().any(|ended| ended == turn_id))
    }

    /// The running turn of a thread.
    pub(super) fn turn_in(&self, thread_id: &str) -> Option<&str> {
        self.find(thread_id)?.turn.as_deref()
    }

    /// The threads with a running turn.
    pub(super) fn running(&self) -> impl Iterator<Item = &str> {
        self.by_key.iter().filter(|(_, thread)| thread.turn.is_some()).map(|(key, _)| key.as_str())
    }

    /// No turn is running.
    pub(super) fn are_idle(&self) -> bool {
        self.by_key.values().all(|thread| thread.turn.is_none())
    }

    /// No turn of a person is running.
    pub(super) fn of_users_are_idle(&self) -> bool {
        self.by_key.values().all(|thread| thread.turn.is_none() || !thread.description.kind.is_user())
    }

    pub(super) fn turn_started(&mut self, thread_id: &str, turn_id: String) {
        let thread = self.of(thread_id);
        if thread.ended_turns.contains(&turn_id) {
            return;
        }
        thread.started = thread.last_use;
        (thread.turn, thread.has_run) = (Some(turn_id), true);
    }

    /// A turn ended. Returns whether that is new: the server tells each subscriber.
    pub(super) fn turn_completed(&mut self, thread_id: &str, turn_id: &str) -> bool {
        let Some(thread) = self.find_mut(thread_id) else { return true };
        thread.turn.take_if(|turn| turn == turn_id);
        if thread.ended_turns.iter().any(|ended| ended == turn_id) {
            return false;
        }
        if thread.ended_turns.len() == ENDED_TURNS_MAX {
            thread.ended_turns.pop_front();
        }
        thread.ended_turns.push_back(turn_id.to_owned());
        true
    }

    /// No turn runs in a thread. A slow connection may still deliver the end of the last one.
    pub(super) fn turn_is_over(&mut self, thread_id: &str) {
        self.find_mut(thread_id).into_iter().for_each(|thread| thread.turn = None);
    }

    /// The server has ended, and all its turns with it.
    pub(super) fn server_ended(&mut self) {
        self.by_key.values_mut().for_each(|thread| thread.turn = None);
    }

    /// Queues a decline reason for the next turn of a thread.
    pub(super) fn keep_reason(&mut self, thread_id: &str, reason: String) {
        self.of(thread_id).reasons.push_back(reason);
        if self.by_key.values().map(|thread| thread.reasons.len()).sum::<usize>() > REASONS_MAX {
            let with_reasons = self.by_key.values_mut().filter(|thread| !thread.reasons.is_empty());
            if let Some(oldest) = with_reasons.min_by_key(|thread| thread.last_use) {
                oldest.reasons.pop_front();
            }
        }
    }

    pub(super) fn take_reasons(&mut self, thread_id: &str) -> VecDeque<String> {
        self.find_mut(thread_id).map(|thread| std::mem::take(&mut thread.reasons)).unwrap_or_default()
    }

    /// Context that a thread has received, or that one of the open calls carries.
    pub(super) fn known<'a>(&'a self, thread_id: &str, calls: &'a OpenCalls) -> ReceivedContext<'a> {
        let received = self.find(thread_id).map(|thread| &thread.received);
        let (texts, epoch) = received.map(|received| (&received.texts, &received.epoch)).unzip();
        let mut known = ReceivedContext {
            texts: texts.into_iter().flatten().map(|(name, (call, text))| (&**name, (*call, &**text))).collect(),
            epoch: epoch.and_then(Option::as_ref).map(|(call, epoch)| (*call, &**epoch)),
        };
        let lost_up_to = received.map(|received| received.lost_up_to).unwrap_or_default();
        for call in calls.iter() {
            let is_lost = call.key <= lost_up_to;
            if let Some(Purpose::Fragments { thread_id: of, sent }) = &call.purpose
                && of == thread_id
            {
                sent.iter().for_each(|sent| known.has(call.key, &sent.name, if is_lost { "" } else { &sent.text }));
            }
            if let Some(epoch) = call.epoch_of(thread_id).filter(|_| !is_lost)
                && known.epoch.is_none_or(|(newest, _)| newest < call.key)
            {
                known.epoch = Some((call.key, epoch));
            }
        }
        known
    }

    /// The context engine's latest addition for a thread, if any.
    pub(super) fn addition<'a>(&'a self, thread_id: &str, known: &ReceivedContext<'a>) -> Option<&'a str> {
        let latest = self.find(thread_id).and_then(|thread| thread.addition.as_deref());
        latest.or_else(|| known.text(ADDITION)).filter(|text| !text.is_empty())
    }
}

impl Thread {
    /// The kind, the folder and all else that is known of it.
    pub(super) fn description(&self) -> &ThreadDescription {
        &self.description
    }

    /// Stores the beginning of the thread; the first report counts. Returns the stored text if it is new.
    pub(super) fn learn_words(&mut self, words: &str) -> Option<String> {
        if self.words.is_some() {
            return None;
        }
        self.words = Some(words.chars().take(WORDS_CHARS_MAX).collect());
        self.words.clone()
    }

    /// The user's first words, if context went before them.
    pub(super) fn words(&self) -> Option<&str> {
        self.words.as_deref()
    }

    /// The server accepted texts that a call carried. Returns whether they still count: a compaction after the call may have
    /// removed them.
    pub(super) fn receives(&mut self, call: CallKey, sent: &[SentFragment]) -> bool {
        let Received { texts, lost_up_to, .. } = &mut self.received;
        for SentFragment { name, text, .. } in sent {
            if texts.get(name).is_none_or(|(newest, _)| *newest < call) {
                let text = if call <= *lost_up_to { String::new() } else { text.clone() };
                texts.insert(name.clone(), (call, text));
            }
        }
        call > *lost_up_to
    }

    /// The server accepted a turn that showed the projection of an epoch. Returns whether it still counts.
    pub(super) fn saw_epoch(&mut self, call: CallKey, epoch: String) -> bool {
        let Received { epoch: last, lost_up_to, .. } = &mut self.received;
        let counts = call > *lost_up_to;
        if counts && last.as_ref().is_none_or(|(newest, _)| *newest < call) {
            *last = Some((call, epoch));
        }
        counts
    }

    /// The client requested a compaction.
    pub(super) fn request_compaction(&mut self) {
        self.compactions_requested += 1;
    }

    /// Whether the client requested a compaction of the thread; forgets one such request.
    pub(super) fn take_compaction_request(&mut self) -> bool {
        let requested = self.compactions_requested.checked_sub(1);
        self.compactions_requested = requested.unwrap_or_default();
        requested.is_some()
    }

    /// The history of the thread was compacted: it may have lost everything sent to it up to now. Returns whether that is new.
    pub(super) fn compacted(&mut self, turn_id: &str, last_call: CallKey) -> bool {
        if self.compacted_in.as_deref() == Some(turn_id) {
            return false;
        }
        self.compacted_in = Some(turn_id.to_owned());
        let Received { texts, epoch, lost_up_to } = &mut self.received;
        (*epoch, *lost_up_to) = (None, last_call);
        // Fragments for new threads only need the name to stay known.
        texts.values_mut().for_each(|(_, text)| text.clear());
        true
    }
}

impl<'a> ReceivedContext<'a> {
    fn has(&mut self, call: CallKey, name: &'a str, text: &'a str) {
        let known = self.texts.entry(name).or_insert((call, text));
        if known.0 < call {
            *known = (call, text);
        }
    }

    /// The last text of a fragment.
    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.texts.get(name).map(|(_, text)| *text)
    }

    /// The epoch of the last projection.
    pub(super) fn epoch(&self) -> Option<&'a str> {
        self.epoch.map(|(_, epoch)| epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::FragmentCarrier;

    fn remembered(thread_id: &str) -> Remembered {
        let (name, text) = ("f".to_owned(), "x".to_owned());
        let fragment = SentFragment { name, role: "developer", carrier: FragmentCarrier::InjectItems, text };
        Remembered { fragments: vec![(thread_id.to_owned(), fragment)], ..Remembered::default() }
    }

    #[test]
    fn least_recently_used_thread_is_evicted() {
        let mut threads = Threads::default();
        threads.remember(remembered("before"));
        (1..THREADS_MAX).for_each(|number| threads.of(&number.to_string()).is_new = true);
        assert!(threads.of("1").is_new && threads.begin("1"));
        threads.turn_started("2", "u".to_owned());
        (3..THREADS_MAX).for_each(|number| assert!(threads.of(&number.to_string()).is_new));
        threads.remember(remembered("too many"));
        for gone in ["before", "1", "3", "4"] {
            assert!(threads.find(gone).is_some(), "{gone}");
            threads.of(&format!("instead of {gone}"));
            assert!(threads.find(gone).is_none(), "{gone}");
        }
        assert_eq!(threads.by_key.len(), THREADS_MAX);
        assert!(threads.turn_in("2") == Some("u") && threads.find("too many").is_none());
        // It may have had a turn before it was evicted.
        assert!(!threads.begin("1"));
    }

    #[test]
    fn agents_are_not_the_last_thread() {
        let mut threads = Threads::default();
        threads.of("t").description.cwd = Some("/p".to_owned());
        threads.turn_started("t", "u".to_owned());
        let item =
            r#"{"type":"collabAgentToolCall","tool":"spawnAgent","senderThreadId":"t","receiverThreadIds":["a"]}"#;
        let params = format!(r#"{{"threadId":"t","item":{item}}}"#);
        threads.spawned_in(serde_json::from_str(&params).expect("BUG: it is JSON"));
        threads.turn_started("a", "v".to_owned());
        assert_eq!(threads.named_or_last(None).as_deref(), Some("t"));
        assert_eq!(threads.named_or_running(None).as_deref(), Some("t"));
        assert_eq!(threads.find("a").and_then(|thread| thread.description.cwd.as_deref()), Some("/p"));
    }

    #[test]
    fn threads_of_earlier_runs_leave_no_doubt_about_new_ones() {
        let mut threads = Threads::default();
        (0..THREADS_MAX).for_each(|number| threads.remember(remembered(&number.to_string())));
        assert!(threads.begin("new"));
    }

    #[test]
    fn waiting_reasons_outlive_eviction_and_are_bounded() {
        let mut threads = Threads::default();
        threads.keep_reason("t", "why".to_owned());
        (0..2 * THREADS_MAX).for_each(|number| threads.of(&number.to_string()).is_new = true);
        assert_eq!(threads.take_reasons("t"), ["why"]);
        for number in 0..=REASONS_MAX {
            threads.keep_reason(&format!("thread {number}"), number.to_string());
        }
        assert!(threads.take_reasons("thread 0").is_empty());
        assert_eq!(threads.take_reasons("thread 1"), ["1"]);
    }

    #[test]
    fn beginnings_are_bounded() {
        let mut threads = Threads::default();
        let long = "x".repeat(2 * WORDS_CHARS_MAX);
        assert_eq!(threads.of("t").learn_words(&long).map(|words| words.len()), Some(WORDS_CHARS_MAX));
        assert_eq!(threads.of("t").learn_words("y"), None);
        threads.remember_words("t".to_owned(), "z");
        assert_eq!(threads.find("t").and_then(Thread::words), Some(&long[..WORDS_CHARS_MAX]));
    }
}
