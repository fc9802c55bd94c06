//! The activity of a session and its threads: a view of the conversations.
//!
//! It depends only on the records and the current time: [`SessionActivity::threads`] and [`SessionActivity::session`]
//! take the time as an argument. Waiting for a human never times out.

use std::cmp::{Ordering, Reverse};
use std::time::Duration;

use super::bounded::Weigh;
use super::conversation::Conversation;
use super::request::Request;
use super::turn::Thread;
use crate::engine::Need;
use crate::protocol::{ThreadKind, named};

/// Silence after which a turn counts as thinking, in microseconds. Source: the contract.
const WORKING_US: u64 = 2_500_000;

named! {
    /// The activity of a session or a thread; those that a person must see first are greater.
    #[derive(Default, PartialOrd, Ord)]
    pub open enum Activity {
        /// The child is not running.
        #[default]
        Stopped = "stopped",
        Idle = "idle",
        /// A turn is running but silent.
        Thinking = "thinking",
        Working = "working",
        WaitingInput = "waiting_input",
        WaitingPermission = "waiting_permission",
    }
}

impl Activity {
    fn waiting(need: Need) -> Activity {
        match need {
            Need::Permission => Activity::WaitingPermission,
            Need::Input => Activity::WaitingInput,
        }
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
    /// Start of the silence of a thinking turn, in microseconds since the Unix epoch.
    pub silent_since_us: Option<u64>,
    pub kind: ThreadKind,
}

/// The activity of a session and its threads at any time after the last record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionActivity {
    child_runs: bool,
    /// When the child started or ended.
    child_since_us: u64,
    threads: Vec<(String, ThreadState)>,
    /// Open requests without a thread, and since when.
    nowhere: Vec<(Activity, u64)>,
}

/// What the activity of a thread depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ThreadState {
    turn_id: Option<String>,
    is_at_work: bool,
    turn_us: u64,
    heard_us: u64,
    /// The most urgent wait for a human, and since when.
    waiting: Option<(Activity, u64)>,
    pending: u64,
    kind: ThreadKind,
}

impl SessionActivity {
    pub(super) fn of(conversation: &Conversation) -> SessionActivity {
        let nowhere = conversation.open_requests().filter(|request| request.place.thread_id.is_none());
        SessionActivity {
            child_runs: conversation.child_runs,
            child_since_us: conversation.child_since_us,
            threads: conversation
                .threads()
                .map(|(id, thread)| (id.to_owned(), ThreadState::of(conversation, id, thread)))
                .collect(),
            nowhere: nowhere.map(waiting).collect(),
        }
    }

    /// The activity of each thread at `now_us`, in microseconds since the Unix epoch, in order of first appearance.
    #[must_use]
    pub fn threads(&self, now_us: u64) -> Vec<ThreadActivity> {
        self.threads.iter().map(|(thread_id, thread)| thread.at(thread_id, now_us)).collect()
    }

    /// The activity of the session at `now_us` and its start, both in microseconds since the Unix epoch: that of its users'
    /// threads, and of others only if they wait for a person.
    #[must_use]
    pub fn session(&self, now_us: u64) -> (Activity, u64) {
        if !self.child_runs {
            return (Activity::Stopped, self.child_since_us);
        }
        let counts = |thread: &ThreadActivity| thread.kind.is_user() || thread.activity >= Activity::WaitingInput;
        let threads = self.threads(now_us).into_iter().filter(counts).map(|thread| (thread.activity, thread.since_us));
        let idle = (Activity::Idle, self.child_since_us);
        // A request may name no thread.
        self.nowhere.iter().copied().chain(threads).fold(idle, |(most, since_us), (activity, at_us)| {
            match activity.cmp(&most) {
                Ordering::Less => (most, since_us),
                // Idle since the last thread became idle; busy since the first became busy.
                Ordering::Equal if most == Activity::Idle => (most, since_us.max(at_us)),
                Ordering::Equal => (most, since_us.min(at_us)),
                Ordering::Greater => (activity, at_us),
            }
        })
    }
}

impl ThreadActivity {
    /// Since when a running turn of a person has stalled: it has had no event of its own for this long. In microseconds since the Unix epoch.
    #[must_use]
    pub fn stalled_since_us(&self, now_us: u64, after: Duration) -> Option<u64> {
        let has_stalled = |since_us: &u64| u128::from(now_us.saturating_sub(*since_us)) >= after.as_micros();
        self.silent_since_us.filter(|since_us| self.kind.is_user() && has_stalled(since_us))
    }

    /// The activity of one thread at `now_us`, in microseconds since the Unix epoch.
    pub(super) fn of(conversation: &Conversation, thread_id: &str, now_us: u64) -> Option<ThreadActivity> {
        let thread = conversation.thread_of(thread_id)?;
        Some(ThreadState::of(conversation, thread_id, thread).at(thread_id, now_us))
    }
}

/// What a request waits for, and since when.
fn waiting(request: &Request) -> (Activity, u64) {
    (Activity::waiting(request.wanted.need()), request.at_us)
}

impl ThreadState {
    fn of(conversation: &Conversation, thread_id: &str, thread: &Thread) -> ThreadState {
        let open = || conversation.open_requests().filter(|it| it.place.thread_id.as_deref() == Some(thread_id));
        let waits = thread.waits.map(|(need, at_us)| (Activity::waiting(need), at_us));
        // The most urgent one, since the first of its kind.
        let most = open().map(waiting).chain(waits).max_by_key(|(activity, at_us)| (*activity, Reverse(*at_us)));
        ThreadState {
            turn_id: thread.works_on().map(str::to_owned),
            is_at_work: thread.is_at_work(),
            turn_us: thread.turn_us,
            heard_us: thread.heard_us,
            waiting: most,
            pending: open().count() as u64,
            kind: conversation.identities.kind(thread_id),
        }
    }

    fn at(&self, thread_id: &str, now_us: u64) -> ThreadActivity {
        let silent_us = now_us.saturating_sub(self.heard_us);
        let (activity, since_us) = match self.waiting {
            Some(waiting) => waiting,
            None if !self.is_at_work => (Activity::Idle, self.turn_us),
            None if silent_us >= WORKING_US => (Activity::Thinking, self.heard_us + WORKING_US),
            None => (Activity::Working, self.turn_us),
        };
        ThreadActivity {
            thread_id: thread_id.to_owned(),
            activity,
            since_us,
            turn_id: self.turn_id.clone(),
            pending: self.pending,
            silent_since_us: matches!(activity, Activity::Thinking).then_some(self.heard_us),
            kind: self.kind,
        }
    }
}

impl Weigh for Activity {
    fn weight(&self) -> usize {
        size_of::<Activity>()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::history::properties::play;

    const RUNS: &str = "1 generation 00000000000a\n2 ! generation_started {\"pid\":1}\n";
    const HOUR_MS: u64 = 3_600_000;
    const STALLED_AFTER: Duration = Duration::from_secs(300);

    /// The session and its threads at a time, as `ACTIVITY SINCE` and `THREAD ACTIVITY SINCE TURN PENDING`.
    fn check_child(actual: &str, now_ms: u64, expect: &[&str]) {
        let (fold, _) = play(actual);
        let (activity, since_us) = fold.activity().session(now_ms * 1_000);
        let threads = fold.activity().threads(now_ms * 1_000).into_iter().map(|thread| {
            let turn = thread.turn_id.as_deref().unwrap_or("~");
            let stalled = thread
                .stalled_since_us(now_ms * 1_000, STALLED_AFTER)
                .map(|at_us| format!(" stalled {}", at_us / 1_000));
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
        // A hub has taken over the server.
        let adopted = r#"11 ! generation_started {"pid":1,"adopted":true}"#;
        check(&format!("{STARTED}{adopted}"), 12, &["working 5", "t working 5 u 0"]);
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
        // A notice about the account is not an event of the turn; one of its own is.
        let notice = "200000 < account/rateLimits/updated ~ {\"rateLimits\":{}}\n";
        check(&format!("{STARTED}{notice}"), 300_005, &["thinking 2505", "t thinking 2505 u 0 stalled 5"]);
        let usage = "200000 < thread/tokenUsage/updated t/u {\"tokenUsage\":{}}\n";
        check(&format!("{STARTED}{usage}"), 300_005, &["thinking 202500", "t thinking 202500 u 0"]);
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
    fn threads_of_no_person_are_no_activity_of_the_session() {
        for members in [
            r#""threadSource":"thread_title","ephemeral":true"#,
            r#""source":{"subAgent":{"thread_spawn":{}}}"#,
            r#""source":{"subAgent":"review"}"#,
            r#""source":{"subAgent":{"other":"guardian"}}"#,
            r#""threadSource":"recap","ephemeral":true"#,
        ] {
            let described = format!("3 < thread/started ~ {{\"thread\":{{\"id\":\"t\",{members}}}}}\n");
            let runs = format!("{described}{STARTED}");
            check(&runs, 6, &["idle 2", "t working 5 u 0"]);
            // It stalls nothing, however long it is silent.
            check(&runs, HOUR_MS, &["idle 2", "t thinking 2505 u 0"]);
            // A person is asked all the same.
            let asks = format!("{runs}{ASKED}");
            check(&asks, HOUR_MS, &["waiting_permission 9", "t waiting_permission 9 u 1"]);
        }
        let of_user = r#"3 < thread/started ~ {"thread":{"id":"t","threadSource":"user"}}"#;
        check(&format!("{of_user}\n{STARTED}"), 6, &["working 5", "t working 5 u 0"]);
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
    fn request_without_turn_ends_with_its_item() {
        let early = "9 ?0 execCommandApproval t/~/~ {\"callId\":\"i\"}\n";
        let ends = "20 < item/completed t/u/i {\"type\":\"commandExecution\"}";
        check(&format!("{STARTED}{early}{ends}"), 21, &["working 5", "t working 5 u 0"]);
        // Item ids are unique only within a turn.
        check(
            &format!("{STARTED}{ASKED}{}", ends.replace("t/u/i", "t/v/i")),
            21,
            &["waiting_permission 9", "t waiting_permission 9 u 1"],
        );
    }

    #[test]
    fn first_record_names_an_active_turn() {
        let active = "20 < thread/status/changed t {\"status\":{\"type\":\"active\"}}\n";
        let item = "22 < item/started t/u/i {\"type\":\"reasoning\"}";
        check(&format!("{active}{item}"), 23, &["working 20", "t working 20 u 0"]);
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

    #[test]
    fn accepted_turn_replaces_a_turn_without_end() {
        let idle = "6 < thread/status/changed t {\"status\":{\"type\":\"idle\"}}\n";
        let accepted = "8 >7 turn/start t\n9 =7 {\"turn\":{\"id\":\"v\",\"status\":\"inProgress\"}}\n";
        let active = "10 < thread/status/changed t {\"status\":{\"type\":\"active\"}}\n";
        let lost = format!("{STARTED}{idle}7 # full\n{accepted}");
        check(&lost, 10, &["working 9", "t working 9 v 0"]);
        check(&format!("{lost}{active}"), 11, &["working 9", "t working 9 v 0"]);
        check(&format!("{lost}{active}12 < turn/started t/v\n"), 13, &["working 9", "t working 9 v 0"]);
        let item = "11 < item/started t/v/i {\"type\":\"reasoning\"}\n";
        check(&format!("{STARTED}{idle}{accepted}{item}"), 12, &["working 9", "t working 9 v 0"]);
        check(&format!("{STARTED}{idle}{accepted}{item}12 < turn/completed t/v"), 13, &["idle 12", "t idle 12 ~ 0"]);
        // Its end may still come.
        check(&format!("{lost}11 < turn/completed t/u\n"), 12, &["working 9", "t working 9 v 0"]);
        check(&format!("{lost}{active}12 < turn/completed t/v\n"), 13, &["idle 12", "t idle 12 ~ 0"]);
    }

    #[test]
    fn end_without_id_leaves_the_thread_idle() {
        check(&format!("{STARTED}20 < turn/completed t"), 21, &["idle 20", "t idle 20 ~ 0"]);
    }
}
