//! The activity of a session and its threads, reduced from the records.
//!
//! A state depends only on the records and the current time: [`ActivityFold::threads`] and [`ActivityFold::session`]
//! take the time as an argument. Waiting for a human never times out.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::bounded::{Bounded, Weigh};
use super::record_event::{MethodMessage, Params, RecordEvent, Seen};
use crate::protocol::{Method, RequestKind, RequestType};
use crate::wire::{Members, elements, text};

/// Silence after which a turn counts as thinking, in microseconds. Source: the contract.
const WORKING_US: u64 = 2_500_000;

/// Silence after which a turn counts as stalled, in microseconds. Source: the contract.
const STALLED_US: u64 = 300_000_000;

/// The activity of a session or a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// A turn is running but silent.
    Thinking,
    Working,
    WaitingPermission,
    WaitingInput,
    Idle,
    /// The child is not running.
    Stopped,
}

impl Activity {
    /// The name in a document.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Activity::Thinking => "thinking",
            Activity::Working => "working",
            Activity::WaitingPermission => "waiting_permission",
            Activity::WaitingInput => "waiting_input",
            Activity::Idle => "idle",
            Activity::Stopped => "stopped",
        }
    }

    /// The more urgent of two activities for a person.
    fn first(self, other: Activity) -> Activity {
        let rank = |activity: Activity| match activity {
            Activity::WaitingPermission => 5,
            Activity::WaitingInput => 4,
            Activity::Working => 3,
            Activity::Thinking => 2,
            Activity::Idle => 1,
            Activity::Stopped => 0,
        };
        if rank(other) > rank(self) { other } else { self }
    }
}

/// The activity of one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadActivity {
    pub thread_id: String,
    pub activity: Activity,
    /// Start of the activity, in microseconds since the Unix epoch.
    pub since_us: u64,
    /// The running turn, if its id is known.
    pub turn_id: Option<String>,
    /// Number of its requests waiting for a human.
    pub pending: u64,
    /// Start of the silence of a stalled turn, in microseconds since the Unix epoch.
    pub stalled_since_us: Option<u64>,
}

/// State of the session and its threads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityFold {
    child_runs: bool,
    /// When the child started or ended.
    child_since_us: u64,
    threads: Bounded<String, Thread>,
    /// Open requests by the server's id.
    requests: Bounded<String, Open>,
    /// The ledger name of the next request.
    next_request: Option<String>,
    /// The thread of each unanswered `turn/start`, by call id.
    #[serde(default)]
    turn_calls: Bounded<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Thread {
    turn: Turn,
    /// The last turn that ended.
    ended: Option<String>,
    /// When a turn last began or ended.
    turn_us: u64,
    emitted_us: u64,
    /// The server reports that it waits, and for what.
    waits: Option<Wanted>,
    waits_us: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Turn {
    #[default]
    None,
    /// A turn with an unknown id.
    Some,
    /// The server accepted the turn but has not reported its start.
    Accepted(String),
    Named(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Wanted {
    Permission,
    Input,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Open {
    request_id: Option<String>,
    thread_id: Option<String>,
    turn_id: Option<String>,
    item_id: Option<String>,
    wanted: Wanted,
    at_us: u64,
}

/// A thread status reported by the server.
pub(super) struct StatusKind {
    pub(super) kind: String,
    waits: Option<Wanted>,
}

impl StatusKind {
    /// Parses `thread/status/changed`. Invalid flags are ignored.
    pub(super) fn of(params: Params<'_>) -> Option<StatusKind> {
        let params = Members::of(params.written()?)?;
        let status = Members::of(params.get("status")?)?;
        let flags = status.get("activeFlags").and_then(elements);
        let waits = flags.unwrap_or_default().into_iter().find_map(|flag| match text(flag)?.as_str() {
            "waitingOnApproval" => Some(Wanted::Permission),
            "waitingOnUserInput" => Some(Wanted::Input),
            _ => None,
        });
        Some(StatusKind { kind: status.text("type")?, waits })
    }
}

impl ActivityFold {
    /// Processes a record.
    pub(super) fn take(&mut self, seen: &Seen<'_>) {
        match &seen.event {
            RecordEvent::Notification(message) => {
                self.runs(seen.at_us);
                self.message(seen.at_us, message);
            }
            RecordEvent::ServerRequest { message, id } => {
                self.runs(seen.at_us);
                self.asked(seen.at_us, message, id.to_string());
            }
            RecordEvent::ShimEvent { event: "generation_started", .. } => {
                *self = ActivityFold { child_runs: true, child_since_us: seen.at_us, ..ActivityFold::default() };
            }
            RecordEvent::ShimEvent { event: "request_opened", data } => {
                self.next_request = data.and_then(|data| named(Params::Written(data)));
            }
            RecordEvent::ShimEvent { event: "request_resolved", data } => {
                if let Some(request_id) = data.and_then(|data| named(Params::Written(data))) {
                    self.requests.take_if(|_, open| open.request_id.as_ref() == Some(&request_id));
                }
            }
            // The request line of the note may be lost.
            RecordEvent::Gap { .. } => self.next_request = None,
            RecordEvent::ClientRequest { message, id } => {
                if let (Some(Method::TurnStart), Some(thread_id)) = (message.known, message.place.thread_id.as_deref())
                {
                    self.turn_calls.insert(id.to_string(), thread_id.to_owned());
                }
            }
            RecordEvent::Response { id, result, error: _ } => {
                if let Some(thread_id) = self.turn_calls.remove(&id.to_string())
                    && let Some(turn_id) = result.and_then(accepted_turn)
                {
                    self.thread_mut(&thread_id, seen.at_us, |thread| thread.accepts(turn_id, seen.at_us));
                }
            }
            RecordEvent::Generation(_) | RecordEvent::ShimEvent { .. } | RecordEvent::Other => {}
        }
    }

    /// Any server message shows that the child is running, even if the note of its start is missing.
    fn runs(&mut self, at_us: u64) {
        if !std::mem::replace(&mut self.child_runs, true) {
            self.child_since_us = at_us;
        }
    }

    /// The activity of one thread at `now_us`, in microseconds since the Unix epoch.
    pub(super) fn thread_of(&self, thread_id: &str, now_us: u64) -> Option<ThreadActivity> {
        let thread_id = thread_id.to_owned();
        self.threads.get(&thread_id).map(|thread| self.thread(&thread_id, thread, now_us))
    }

    /// The child has ended.
    pub(super) fn run_ended(&mut self, at_us: u64) {
        *self = ActivityFold { child_since_us: at_us, ..ActivityFold::default() };
    }

    /// The activity of each thread at `now_us`, in microseconds since the Unix epoch, in order of first appearance.
    #[must_use]
    pub fn threads(&self, now_us: u64) -> Vec<ThreadActivity> {
        self.threads.iter().map(|(thread_id, thread)| self.thread(thread_id, thread, now_us)).collect()
    }

    /// The activity of the session at `now_us` and its start, both in microseconds since the Unix epoch.
    #[must_use]
    pub fn session(&self, now_us: u64) -> (Activity, u64) {
        if !self.child_runs {
            return (Activity::Stopped, self.child_since_us);
        }
        // A request may name no thread.
        let nowhere = self.requests.iter().filter(|(_, open)| open.thread_id.is_none());
        let nowhere = nowhere.map(|(_, open)| (open.wanted.activity(), open.at_us));
        let threads = self.threads.iter().map(|(thread_id, thread)| {
            let message = self.thread(thread_id, thread, now_us);
            (message.activity, message.since_us)
        });
        let idle = (Activity::Idle, self.child_since_us);
        nowhere.chain(threads).fold(idle, |(most, since_us), (activity, at_us)| match most.first(activity) {
            // Idle since the last thread became idle; busy since the first became busy.
            first if first == most && first == activity && first == Activity::Idle => (first, since_us.max(at_us)),
            first if first == most && first == activity => (first, since_us.min(at_us)),
            first if first == most => (first, since_us),
            first => (first, at_us),
        })
    }

    fn thread(&self, thread_id: &str, thread: &Thread, now_us: u64) -> ThreadActivity {
        let open = || self.requests.iter().filter(|(_, open)| open.thread_id.as_deref() == Some(thread_id));
        let asked = open().map(|(_, open)| (open.wanted.activity(), open.at_us));
        let waits = thread.waits.map(|wanted| (wanted.activity(), thread.waits_us));
        let waiting = asked.chain(waits).reduce(|(most, since_us), (activity, at_us)| match most.first(activity) {
            first if first == most && most == activity => (most, since_us.min(at_us)),
            first if first == most => (most, since_us),
            first => (first, at_us),
        });
        let silent_us = now_us.saturating_sub(thread.emitted_us);
        let (activity, since_us) = match (waiting, &thread.turn) {
            (Some(waiting), _) => waiting,
            (None, Turn::None) => (Activity::Idle, thread.turn_us),
            (None, Turn::Some | Turn::Accepted(_) | Turn::Named(_)) if silent_us >= WORKING_US => {
                (Activity::Thinking, thread.emitted_us + WORKING_US)
            }
            (None, Turn::Some | Turn::Accepted(_) | Turn::Named(_)) => (Activity::Working, thread.turn_us),
        };
        let is_silent = matches!(activity, Activity::Thinking) && silent_us >= STALLED_US;
        ThreadActivity {
            thread_id: thread_id.to_owned(),
            activity,
            since_us,
            turn_id: thread.turn.id().map(str::to_owned),
            pending: open().count() as u64,
            stalled_since_us: is_silent.then_some(thread.emitted_us),
        }
    }

    fn message(&mut self, at_us: u64, message: &MethodMessage<'_>) {
        if message.known == Some(Method::RequestResolved) {
            #[derive(Deserialize)]
            #[serde(rename_all = "camelCase")]
            struct Resolved<'a> {
                #[serde(borrow)]
                request_id: &'a RawValue,
            }
            if let Some(resolved) = message.params.read::<Resolved<'_>>() {
                self.requests.remove(&crate::wire::RpcId::from_raw(resolved.request_id).to_string());
            }
        }
        let Some(thread_id) = message.place.thread_id.as_deref() else { return };
        let turn_id = message.place.turn_id.as_deref();
        match message.known {
            Some(Method::ItemCompleted) => {
                let item_id = message.place.item_id.as_deref();
                self.requests.take_if(|_, open| {
                    item_id.is_some()
                        && open.item_id.as_deref() == item_id
                        && open.turn_id.as_deref() == turn_id
                        && open.thread_id.as_deref() == Some(thread_id)
                });
            }
            Some(Method::TurnCompleted) => {
                self.requests.take_if(|_, open| {
                    open.thread_id.as_deref() == Some(thread_id)
                        && (open.turn_id.is_none() || open.turn_id.as_deref() == turn_id)
                });
            }
            _ => {}
        }
        self.thread_mut(thread_id, at_us, |thread| thread.message(at_us, message));
    }

    fn asked(&mut self, at_us: u64, message: &MethodMessage<'_>, id: String) {
        let request_id = self.next_request.take();
        let wanted = match RequestKind::of(&message.method).map(RequestKind::request_type) {
            Some(RequestType::Approval | RequestType::Permissions) => Wanted::Permission,
            Some(RequestType::UserInput | RequestType::Elicitation) => Wanted::Input,
            Some(RequestType::Other) | None => return,
        };
        let owned = |part: &Option<Cow<'_, str>>| part.as_deref().map(str::to_owned);
        let place = &message.place;
        let (thread_id, turn_id, item_id) = (owned(&place.thread_id), owned(&place.turn_id), owned(&place.item_id));
        if let Some(thread_id) = &thread_id {
            self.thread_mut(thread_id, at_us, |thread| thread.emitted_us = at_us);
        }
        // A repeated request keeps its age.
        let at_us = self.requests.get(&id).filter(|open| open.item_id == item_id).map_or(at_us, |open| open.at_us);
        self.requests.insert(id, Open { request_id, thread_id, turn_id, item_id, wanted, at_us });
    }

    /// Changes the state of a thread. The thread heard from least recently is evicted.
    fn thread_mut(&mut self, thread_id: &str, at_us: u64, change: impl FnOnce(&mut Thread)) {
        let key = thread_id.to_owned();
        if self.threads.get(&key).is_none() {
            self.threads.insert(key.clone(), Thread { turn_us: at_us, ..Thread::default() });
        }
        self.threads.change(&key, change);
    }
}

impl Thread {
    fn message(&mut self, at_us: u64, message: &MethodMessage<'_>) {
        let turn_id = message.place.turn_id.as_deref();
        self.emitted_us = at_us;
        match message.known {
            Some(Method::TurnStarted) => self.begins(turn_id, at_us),
            Some(Method::TurnCompleted) => self.ends(turn_id, at_us),
            Some(Method::ThreadStatusChanged) => {
                if let Some(status) = StatusKind::of(message.params) {
                    self.apply_status(&status, at_us);
                }
            }
            // This includes turns that began before the recording. A completion may follow the end of its turn.
            method
                if (method == Some(Method::ItemStarted) || message.place.delta.is_some())
                    && (self.turn == Turn::None && turn_id.is_some() && self.ended.as_deref() != turn_id) =>
            {
                self.begins(turn_id, at_us);
            }
            _ => {}
        }
    }

    fn begins(&mut self, turn_id: Option<&str>, at_us: u64) {
        if self.turn == Turn::None {
            self.turn_us = at_us;
        }
        self.turn = turn_id.map_or(Turn::Some, |turn_id| Turn::Named(turn_id.to_owned()));
    }

    /// The server accepted a turn: a new one, or the running one that takes the message.
    fn accepts(&mut self, turn_id: String, at_us: u64) {
        if self.turn == Turn::None && self.ended.as_ref() != Some(&turn_id) {
            (self.turn_us, self.emitted_us) = (at_us, at_us);
            self.turn = Turn::Accepted(turn_id);
        }
    }

    fn ends(&mut self, turn_id: Option<&str>, at_us: u64) {
        // The end of a replaced turn may arrive late.
        if turn_id.is_some_and(|turn_id| self.turn.id().is_some_and(|runs| runs != turn_id)) {
            return;
        }
        self.ended = turn_id.map(str::to_owned);
        self.turn = Turn::None;
        self.turn_us = at_us;
        self.waits = None;
    }

    fn apply_status(&mut self, status: &StatusKind, at_us: u64) {
        if status.kind != "active" {
            // A status from before an accepted turn does not end it.
            if !matches!(self.turn, Turn::None | Turn::Accepted(_)) {
                self.ended = self.turn.id().map(str::to_owned);
                self.turn = Turn::None;
                self.turn_us = at_us;
            }
            self.waits = None;
            return;
        }
        if self.turn == Turn::None {
            self.begins(None, at_us);
        }
        if self.waits != status.waits {
            (self.waits, self.waits_us) = (status.waits, at_us);
        }
    }
}

impl Weigh for Activity {
    fn weight(&self) -> usize {
        size_of::<Activity>()
    }
}

impl Weigh for Thread {
    fn weight(&self) -> usize {
        let turn = match &self.turn {
            Turn::Accepted(turn_id) | Turn::Named(turn_id) => turn_id.weight(),
            Turn::None | Turn::Some => 0,
        };
        size_of::<Thread>() + turn + self.ended.weight()
    }
}

impl Weigh for Open {
    fn weight(&self) -> usize {
        let Open { request_id, thread_id, turn_id, item_id, wanted: _, at_us: _ } = self;
        size_of::<Open>() + [request_id, thread_id, turn_id, item_id].map(Weigh::weight).into_iter().sum::<usize>()
    }
}

impl Turn {
    fn id(&self) -> Option<&str> {
        match self {
            Turn::Accepted(turn_id) | Turn::Named(turn_id) => Some(turn_id),
            Turn::None | Turn::Some => None,
        }
    }
}

impl Wanted {
    fn activity(self) -> Activity {
        match self {
            Wanted::Permission => Activity::WaitingPermission,
            Wanted::Input => Activity::WaitingInput,
        }
    }
}

/// The turn in the result of a `turn/start`, unless it has ended already.
fn accepted_turn(result: &RawValue) -> Option<String> {
    let turn = Members::of(result).and_then(|result| result.get("turn")).and_then(Members::of)?;
    let is_over = turn.text("status").is_some_and(|status| status != "inProgress");
    if is_over { None } else { turn.text("id") }
}

/// The request that one of our notes names.
fn named(data: Params<'_>) -> Option<String> {
    #[derive(Deserialize)]
    struct Note {
        request_id: String,
    }
    data.read::<Note>().map(|note| note.request_id)
}

#[cfg(test)]
mod tests {
    use crate::history::playbook::play;

    const RUNS: &str = "1 generation 00000000000a\n2 ! generation_started {\"pid\":1}\n";
    const HOUR_MS: u64 = 3_600_000;

    /// The session and its threads at a time, as `ACTIVITY SINCE` and `THREAD ACTIVITY SINCE TURN PENDING`.
    fn check_child(actual: &str, now_ms: u64, expect: &[&str]) {
        let (fold, _) = play(actual);
        let (activity, since_us) = fold.activity().session(now_ms * 1_000);
        let threads = fold.activity().threads(now_ms * 1_000).into_iter().map(|thread| {
            let turn = thread.turn_id.as_deref().unwrap_or("~");
            let stalled = thread.stalled_since_us.map(|at_us| format!(" stalled {}", at_us / 1_000));
            let (activity, since_ms) = (thread.activity.name(), thread.since_us / 1_000);
            let stalled = stalled.unwrap_or_default();
            format!("{} {activity} {since_ms} {turn} {}{stalled}", thread.thread_id, thread.pending)
        });
        let session = format!("{} {}", activity.name(), since_us / 1_000);
        assert_eq!(std::iter::once(session).chain(threads).collect::<Vec<_>>(), expect, "{actual} at {now_ms}");
    }

    fn check(actual: &str, now_ms: u64, expect: &[&str]) {
        check_child(&format!("{RUNS}{actual}"), now_ms, expect);
    }

    const STARTED: &str = "5 < turn/started t/u\n";
    const ASKED: &str = "9 ?0 item/commandExecution/requestApproval t/u/i\n";

    #[test]
    fn a_child_runs_or_does_not() {
        check_child("", 50, &["stopped 0"]);
        check("", 50, &["idle 2"]);
        check(&format!("{STARTED}{ASKED}10 ! generation_ended"), 50, &["stopped 10"]);
        check(&format!("{STARTED}10 generation 00000000000b\n11 ! generation_started"), 50, &["idle 11"]);
    }

    #[test]
    fn a_turn_works_until_it_is_silent() {
        check(STARTED, 6, &["working 5", "t working 5 u 0"]);
        check(STARTED, 2_504, &["working 5", "t working 5 u 0"]);
        check(STARTED, 2_505, &["thinking 2505", "t thinking 2505 u 0"]);
        let piece = "3000 < item/agentMessage/delta t/u/m {\"delta\":\"a\"}";
        check(&format!("{STARTED}{piece}"), 3_001, &["working 5", "t working 5 u 0"]);
        check(&format!("{STARTED}{piece}"), 5_500, &["thinking 5500", "t thinking 5500 u 0"]);
        check(&format!("{STARTED}20 < turn/completed t/u"), HOUR_MS, &["idle 20", "t idle 20 ~ 0"]);
    }

    #[test]
    fn an_accepted_turn_is_not_idle() {
        let called = "5 >7 turn/start t\n";
        check(called, 6, &["idle 2"]);
        let accepted = format!("{called}7 =7 {{\"turn\":{{\"id\":\"u\",\"status\":\"inProgress\"}}}}\n");
        check(&accepted, 8, &["working 7", "t working 7 u 0"]);
        let stale = format!("{accepted}8 < thread/status/changed t {{\"status\":{{\"type\":\"idle\"}}}}\n");
        check(&stale, 9, &["working 7", "t working 7 u 0"]);
        let started = format!("{stale}9 < turn/started t/u\n");
        check(&started, 10, &["working 7", "t working 7 u 0"]);
        check(&format!("{started}20 < turn/completed t/u"), 21, &["idle 20", "t idle 20 ~ 0"]);
        // The response may follow the end of its turn, and may be an error.
        let late =
            format!("{called}6 < turn/started t/u\n7 < turn/completed t/u\n8 =7 {{\"turn\":{{\"id\":\"u\"}}}}\n");
        check(&late, 9, &["idle 7", "t idle 7 ~ 0"]);
        check(&format!("{called}7 =7 null"), 8, &["idle 2"]);
        let over = format!("{called}7 =7 {{\"turn\":{{\"id\":\"u\",\"status\":\"completed\"}}}}\n");
        check(&over, 8, &["idle 2"]);
    }

    #[test]
    fn late_end_of_replaced_turn_is_ignored() {
        let replaced = format!("{STARTED}8 < turn/started t/v\n20 < turn/completed t/u\n");
        check(&replaced, 21, &["working 5", "t working 5 v 0"]);
        check(&format!("{replaced}30 < turn/completed t/v"), 31, &["idle 30", "t idle 30 ~ 0"]);
    }

    #[test]
    fn long_silent_turn_has_stalled() {
        check(STARTED, 300_004, &["thinking 2505", "t thinking 2505 u 0"]);
        check(STARTED, 300_005, &["thinking 2505", "t thinking 2505 u 0 stalled 5"]);
        // A turn that waits for a human has not stalled.
        check(&format!("{STARTED}{ASKED}"), HOUR_MS, &["waiting_permission 9", "t waiting_permission 9 u 1"]);
        check(&format!("{STARTED}6 < turn/completed t/u"), HOUR_MS, &["idle 6", "t idle 6 ~ 0"]);
    }

    #[test]
    fn waiting_never_fades() {
        let permission = ["waiting_permission 9", "t waiting_permission 9 u 1"];
        for now_ms in [10, HOUR_MS, 1_000 * HOUR_MS] {
            check(&format!("{STARTED}{ASKED}"), now_ms, &permission);
        }
        let question = "9 ?0 item/tool/requestUserInput t/u/i\n";
        check(&format!("{STARTED}{question}"), HOUR_MS, &["waiting_input 9", "t waiting_input 9 u 1"]);
        let both = format!("{STARTED}{question}12 ?1 item/fileChange/requestApproval t/u/j\n");
        check(&both, HOUR_MS, &["waiting_permission 12", "t waiting_permission 12 u 2"]);
        // A repeated request keeps its age.
        let again = ASKED.replace("9 ?0", "50 ?0");
        check(&format!("{STARTED}{ASKED}{again}"), HOUR_MS, &permission);
        // Requests for the client alone do not count as waiting.
        check(&format!("{STARTED}9 ?0 item/tool/call t/u/i"), 10, &["working 5", "t working 5 u 0"]);
    }

    #[test]
    fn every_end_of_waiting() {
        let opened = "8 ! request_opened {\"request_id\":\"g-0\"}\n";
        let check = |end: &str| {
            check(&format!("{STARTED}{opened}{ASKED}{end}"), 21, &["working 5", "t working 5 u 0"]);
        };
        check("20 < serverRequest/resolved t {\"requestId\":0}");
        check("20 < item/completed t/u/i {\"type\":\"commandExecution\"}");
        check("20 ! request_resolved {\"request_id\":\"g-0\"}");
        let stays = |end: &str| {
            let actual = format!("{RUNS}{STARTED}{opened}{ASKED}{end}");
            check_child(&actual, 21, &["waiting_permission 9", "t waiting_permission 9 u 1"]);
        };
        stays("20 < serverRequest/resolved t {\"requestId\":\"0\"}");
        stays("20 < item/completed t/u/j {\"type\":\"commandExecution\"}");
        stays("20 ! request_resolved {\"request_id\":\"g-1\"}");
        stays("20 < turn/completed t/v\n20 < turn/started t/u");
    }

    #[test]
    fn requests_end_with_their_turn() {
        check(&format!("{STARTED}{ASKED}20 < turn/completed t/u"), 21, &["idle 20", "t idle 20 ~ 0"]);
    }

    #[test]
    fn a_request_may_name_no_thread() {
        check("9 ?0 mcpServer/elicitation/request ~", HOUR_MS, &["waiting_input 9"]);
    }

    #[test]
    fn retried_error_ends_nothing() {
        let error = "20 < error t/u {\"error\":{\"message\":\"no\"},\"willRetry\":true}";
        check(&format!("{STARTED}{error}"), 21, &["working 5", "t working 5 u 0"]);
    }

    #[test]
    fn late_items_start_no_turn() {
        let over = format!("{STARTED}20 < turn/completed t/u\n");
        let idle = ["idle 20", "t idle 20 ~ 0"];
        check(&format!("{over}21 < item/completed t/u/i {{\"type\":\"commandExecution\"}}"), 22, &idle);
        check(&format!("{over}21 < item/commandExecution/outputDelta t/u/i {{\"delta\":\"a\"}}"), 22, &idle);
        // A late item of a turn that was not seen to start does count.
        check("21 < item/started t/u/i {\"type\":\"reasoning\"}", 22, &["working 21", "t working 21 u 0"]);
        check("21 < item/agentMessage/delta t/u/i {\"delta\":\"a\"}", 22, &["working 21", "t working 21 u 0"]);
        check("21 < item/completed t/u/i {\"type\":\"reasoning\"}", 22, &["idle 21", "t idle 21 ~ 0"]);
    }

    #[test]
    fn server_status_sets_thread_activity() {
        let status = |status: &str| format!("20 < thread/status/changed t {{\"status\":{status}}}\n");
        let flags = |flags: &str| status(&format!("{{\"type\":\"active\",\"activeFlags\":[{flags}]}}"));
        check(&flags(""), 21, &["working 20", "t working 20 ~ 0"]);
        let permission = ["waiting_permission 20", "t waiting_permission 20 u 0"];
        check(&format!("{STARTED}{}", flags("\"waitingOnApproval\"")), HOUR_MS, &permission);
        let input = ["waiting_input 20", "t waiting_input 20 u 0"];
        check(&format!("{STARTED}{}", flags("\"waitingOnUserInput\"")), HOUR_MS, &input);
        let no_more = format!("{STARTED}{}{}", flags("\"waitingOnApproval\""), flags(""));
        check(&no_more, 21, &["working 5", "t working 5 u 0"]);
        for kind in ["idle", "systemError", "notLoaded"] {
            let actual = format!("{STARTED}{}", status(&format!("{{\"type\":\"{kind}\"}}")));
            check(&actual, 21, &["idle 20", "t idle 20 ~ 0"]);
        }
        // Invalid members beside the type are ignored.
        for odd in ["null", "7", "{}", "[null,7,{}]"] {
            let active_status =
                |kind: &str| status(&format!("{{\"type\":\"{kind}\",\"activeFlags\":{odd},\"x\":null}}"));
            check(&format!("{STARTED}{}", active_status("idle")), 21, &["idle 20", "t idle 20 ~ 0"]);
            check(&active_status("active"), 21, &["working 20", "t working 20 ~ 0"]);
        }
        let mixed = format!("{STARTED}{}", flags("null,\"waitingOnApproval\""));
        check(&mixed, HOUR_MS, &permission);
        check(&format!("{STARTED}{}", status("7")), 21, &["working 5", "t working 5 u 0"]);
    }

    #[test]
    fn sub_agents_count() {
        let actual = "5 < turn/started a/u
                    6 < turn/started b/v
                    7 < turn/completed a/u";
        check(actual, 8, &["working 6", "a idle 7 ~ 0", "b working 6 v 0"]);
        let asked = format!("{actual}\n9 ?0 item/tool/requestUserInput b/v/i");
        check(&asked, HOUR_MS, &["waiting_input 9", "a idle 7 ~ 0", "b waiting_input 9 v 1"]);
        // Idle since the last thread became idle.
        check(&format!("{actual}\n20 < turn/completed b/v"), 21, &["idle 20", "a idle 7 ~ 0", "b idle 20 ~ 0"]);
    }

    #[test]
    fn note_without_line_names_no_other_request() {
        let actual = format!("{STARTED}8 ! request_opened {{\"request_id\":\"g-0\"}}\n8 # full\n{ASKED}");
        let actual = format!("{actual}10 ! request_resolved {{\"request_id\":\"g-0\"}}");
        check(&actual, 21, &["waiting_permission 9", "t waiting_permission 9 u 1"]);
    }
}
