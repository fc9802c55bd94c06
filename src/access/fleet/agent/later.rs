//! Gives the decisions that were left while this host was away, and notes what became of each.
//!
//! The agent first notes in the file of its cursors that it holds a decision. It then gives the decision to the relay
//! and, until it expires, tries again with growing pauses. The decision itself stays in the stream, where the
//! administrator can withdraw it. Several are tried at once, so that a relay that is away delays no other; those for one request are
//! tried one after the other, in order.
//!
//! After a crash the agent may give one twice; the ledger has it already then.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::answers::may_pass;
use super::cursors::{HELD_MAX, Held, Mark};
use super::told::Trouble;
use super::{Shared, answers, locked};
use crate::api::{Request, Responded};
use crate::fleet::connection::backoff;
use crate::fleet::stored::{Messages, ReadError, Start, Stored};
use crate::fleet::subject::{self, LATER_STREAM};
use crate::fleet::wire::{Failure, ID_BYTES_MAX, Later, QUESTION_BYTES_MAX, VERSION, Waited};
use crate::requests::given::Given;
use crate::sessions::request_names::is_whole;

/// How often the stream is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Decisions that are tried at the same time.
pub(super) const GIVEN_AT_ONCE_MAX: usize = 4;

/// The outcome of an answer that counts.
const GIVEN: &str = "given";

/// The outcome of an answer after another.
const ANSWERED_BEFORE: &str = "answered_before";

/// The outcome of a decision that was not given before it expired.
const TOO_LATE: &str = "too_late";

/// The outcome of a decision that is no longer in the stream.
const WITHDRAWN: &str = "withdrawn";

/// The outcome of a decision beyond the number that may wait.
const TOO_MANY: &str = "too_many";

/// The outcome of a decision that may have been given, if the session does not say.
const UNKNOWN: &str = "unknown";

/// The result of an attempt at a decision, as far as it is known.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    /// The code of the outcome, and its words.
    Settled(String, String),
    /// The reason for another attempt.
    Again { why: String, may_be_given: bool },
}

impl Attempt {
    fn settled(failure: Failure) -> Attempt {
        Attempt::Settled(failure.code, format!("was not given: {}", failure.message))
    }

    /// An attempt that has panicked.
    fn panicked() -> Attempt {
        Attempt::Again { why: "it could not be given".to_owned(), may_be_given: true }
    }
}

/// The attempts in progress, with their decisions.
#[derive(Default)]
struct Attempts {
    tasks: JoinSet<Attempt>,
    held: HashMap<Id, Held>,
}

impl Attempts {
    fn spawn(&mut self, held: Held, attempt: impl Future<Output = Attempt> + Send + 'static) {
        self.held.insert(self.tasks.spawn(attempt).id(), held);
    }

    /// Waits for the end of an attempt; `None` without any. A panic ends only the attempt in which it happens.
    async fn next(&mut self) -> Option<(Held, Attempt)> {
        let (id, attempt) = match self.tasks.join_next_with_id().await? {
            Ok(ended) => ended,
            Err(error) => (error.id(), Attempt::panicked()),
        };
        Some((self.held.remove(&id).expect("BUG: each task was spawned with its decision"), attempt))
    }
}

/// The attempts at a decision so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tries {
    failures: u32,
    next: Instant,
    is_under_way: bool,
    /// An attempt may have reached the relay.
    may_be_given: bool,
}

/// When each held decision is tried next. Pure.
#[derive(Debug, Default)]
struct Plan(HashMap<Mark, Tries>);

impl Plan {
    /// Follows the decisions that are held, and forgets the others. An earlier agent may have given its decisions
    /// already.
    fn follow(&mut self, held: &[Held], now: Instant, may_be_given: bool) {
        self.0.retain(|mark, tries| tries.is_under_way || held.iter().any(|held| held.mark() == *mark));
        for held in held {
            let fresh = Tries { failures: 0, next: now, is_under_way: false, may_be_given };
            self.0.entry(held.mark()).or_insert(fresh);
        }
    }

    /// The decisions that are tried now, at most so many: the first one of each request, those with the fewest failures first.
    fn due<'a>(&self, held: &'a [Held], now: Instant, most: usize) -> Vec<(&'a Held, bool)> {
        let known = firsts(held).filter_map(|held| Some((held, self.0.get(&held.mark())?)));
        let mut due: Vec<_> = known.filter(|(_, tries)| !tries.is_under_way && tries.next <= now).collect();
        due.sort_by_key(|(_, tries)| tries.failures);
        due.into_iter().take(most).map(|(held, tries)| (held, tries.may_be_given)).collect()
    }

    fn begins(&mut self, mark: Mark) {
        if let Some(tries) = self.0.get_mut(&mark) {
            tries.is_under_way = true;
        }
    }

    /// Plans the next attempt, after a pause that depends on the number of failures and ends at the expiry.
    fn failed(&mut self, mark: Mark, now: Instant, expires_in: Duration, may_be_given: bool) {
        if let Some(tries) = self.0.get_mut(&mark) {
            tries.failures = tries.failures.saturating_add(1);
            let pause = backoff(tries.failures);
            tries.next = now + if expires_in.is_zero() { pause } else { pause.min(expires_in) };
            tries.is_under_way = false;
            tries.may_be_given |= may_be_given;
        }
    }

    fn under_way(&self) -> usize {
        self.0.values().filter(|tries| tries.is_under_way).count()
    }

    /// The time of the next attempt.
    fn next(&self, held: &[Held]) -> Option<Instant> {
        let known = firsts(held).filter_map(|held| self.0.get(&held.mark()));
        known.filter(|tries| !tries.is_under_way).map(|tries| tries.next).min()
    }
}

/// The first decision of each request: the later ones wait until it is settled.
fn firsts(held: &[Held]) -> impl Iterator<Item = &Held> {
    let is_first = |index: usize| held[..index].iter().all(|before| before.request != held[index].request);
    (0..held.len()).filter(move |index| is_first(*index)).map(|index| &held[index])
}

/// Gives decisions until the process ends.
pub(super) async fn give(shared: &Arc<Shared>) {
    let (mut plan, mut attempts) = (Plan::default(), Attempts::default());
    plan.follow(&locked(&shared.cursors).held, Instant::now(), true);
    let mut look_at = Instant::now();
    loop {
        shared.is_only().await;
        if look_at <= Instant::now() {
            look(shared).await;
            look_at = Instant::now() + LOOK_EVERY;
        }
        let held = locked(&shared.cursors).held.clone();
        let now = Instant::now();
        plan.follow(&held, now, false);
        let free = GIVEN_AT_ONCE_MAX.saturating_sub(plan.under_way());
        for (held, may_be_given) in plan.due(&held, now, free).into_iter().map(|(held, given)| (held.clone(), given)) {
            plan.begins(held.mark());
            let (shared, tries) = (Arc::clone(shared), held.clone());
            attempts.spawn(held, async move { tried(&shared, &tries, may_be_given).await });
        }
        let next = plan.next(&held).filter(|_| plan.under_way() < GIVEN_AT_ONCE_MAX);
        let wakes_at = next.map_or(look_at, |next| next.min(look_at));
        tokio::select! {
            Some((held, attempt)) = attempts.next() => learns(shared, &mut plan, &held, attempt),
            () = sleep_until(wakes_at) => {}
        }
    }
}

/// Notes the end of an attempt.
fn learns(shared: &Shared, plan: &mut Plan, held: &Held, attempt: Attempt) {
    let Held { user, request, expires_at, .. } = held;
    let tell = |words: &str| {
        (shared.say)(&format!("the answer of {user} to request {request}, which had waited, {words}"));
    };
    match attempt {
        Attempt::Settled(outcome, words) => {
            plan.0.remove(&held.mark());
            tell(&words);
            locked(&shared.cursors).settle(held.mark(), waited(user, request, outcome));
        }
        Attempt::Again { why, may_be_given } => {
            let expires_in = expires_at.duration_since(SystemTime::now()).unwrap_or_default();
            plan.failed(held.mark(), Instant::now(), expires_in, may_be_given);
            if !locked(&shared.cursors).waits(held.mark()) {
                return;
            }
            let until = humantime::format_rfc3339_seconds(*expires_at);
            tell(&format!("is not given yet: {why}; trying again until {until}"));
        }
    }
    shared.cursors_changed.notify_one();
    shared.host_changed.notify_one();
}

fn waited(user: &str, request: &str, outcome: String) -> Waited {
    let at = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    Waited { user: user.to_owned(), request: request.to_owned(), at, outcome }
}

/// Takes new decisions from the stream.
async fn look(shared: &Arc<Shared>) {
    match take_all(shared).await {
        Ok(()) if locked(&shared.cursors).held.len() >= HELD_MAX => {
            let message =
                format!("{HELD_MAX} answers wait for sessions that do not reply; further ones stay in the server");
            shared.tell(Trouble::Answers, &message);
        }
        // A server without this stream has no such answers.
        Ok(()) | Err(ReadError::NoStream(_)) => shared.mended(&Trouble::Answers),
        Err(error) => shared.tell(Trouble::Answers, &format!("answers that wait: {error}; trying again")),
    }
}

async fn take_all(shared: &Arc<Shared>) -> Result<(), ReadError> {
    let filter = subject::later_of_host(&shared.member.host);
    loop {
        let cursor = locked(&shared.cursors).later;
        // By number and by time: the numbers of a stream that was made anew begin again.
        let by_time = cursor.at.map(Start::Time);
        let messages = Messages { connection: &shared.connection, stream: LATER_STREAM, filter: &filter };
        let mut pages = match by_time {
            Some(start) => vec![messages.page(&start).await?],
            None => Vec::new(),
        };
        // In a new stream the page by time has all, oldest first.
        if !pages.iter().flatten().any(|message| cursor.is_of_new_stream(message.number, message.at)) {
            pages.insert(0, messages.page(&Start::After(cursor.number)).await?);
        }
        let mut has_taken = false;
        for message in pages.into_iter().flatten() {
            if locked(&shared.cursors).held.len() >= HELD_MAX {
                break;
            }
            has_taken |= take(shared, &message);
        }
        if !has_taken {
            return Ok(());
        }
        // Before anything is tried, so that a crash during an attempt does not lose the decision.
        shared.save_cursors().await;
        shared.host_changed.notify_one();
    }
}

/// Takes a decision, unless it was taken before: one that is valid is held.
fn take(shared: &Shared, message: &Stored) -> bool {
    let (number, at) = (message.number, message.at);
    let mut cursors = locked(&shared.cursors);
    if !cursors.later.is_new(number, at) {
        return false;
    }
    cursors.later.takes(number, at);
    let Some(user) = subject::left_by(&message.subject, &shared.member.host) else { return true };
    let admitted = due(&message.payload, SystemTime::now()).and_then(|(later, expires_at)| {
        match cursors.refuses(&user, &later.request) {
            Some(why) => Err((later.request, Failure::new(TOO_MANY, why))),
            None => Ok((later, expires_at)),
        }
    });
    match admitted {
        Ok((Later { request, given, .. }, expires_at)) => {
            let given = Some(given.without_reason());
            cursors.held.push(Held { number, at, user, request, given, expires_at, waits: false });
        }
        Err((request, failure)) => {
            let words = format!("was not given: {}", failure.message);
            (shared.say)(&format!("the answer of {user} to request {request}, which had waited, {words}"));
            cursors.note(waited(&user, &request, failure.code));
        }
    }
    true
}

/// Tries to give a held decision.
async fn tried(shared: &Arc<Shared>, held: &Held, may_be_given: bool) -> Attempt {
    let filter = subject::later(&shared.member.host, &held.user);
    let messages = Messages { connection: &shared.connection, stream: LATER_STREAM, filter: &filter };
    let read = match messages.one(held.number).await {
        Ok(read) => read.filter(|message| message.at == held.at),
        // A server that has just started may not know its streams yet.
        Err(ReadError::NoStream(_)) if held.expires_at <= SystemTime::now() => None,
        Err(error) => return Attempt::Again { why: error.to_string(), may_be_given: false },
    };
    let later = read.and_then(|message| due(&message.payload, SystemTime::UNIX_EPOCH).ok());
    let (own, held) = (Arc::clone(shared), held.clone());
    let blocking = move || match later {
        Some((later, expires_at)) if expires_at > SystemTime::now() => give_now(&own, &later, &held.user),
        Some((later, _)) => became(&own, &held, Some(Given::Decision(later.given)), may_be_given),
        None => became(&own, &held, None, may_be_given),
    };
    tokio::task::spawn_blocking(blocking).await.unwrap_or_else(|_| Attempt::panicked())
}

/// Gives a decision.
fn give_now(shared: &Shared, later: &Later, user: &str) -> Attempt {
    let asked = match answers::find(shared, None, &later.request) {
        Ok(asked) => asked,
        Err(failure) if may_pass(&failure) => return Attempt::Again { why: failure.message, may_be_given: false },
        Err(failure) => return Attempt::settled(failure),
    };
    let given = Given::Decision(later.given.clone());
    match answers::respond(shared, &asked, &given, user) {
        Ok(Responded { ok: true, .. }) => Attempt::Settled(GIVEN.to_owned(), "was given".to_owned()),
        Ok(Responded { request, .. }) => Attempt::settled(Failure::new(ANSWERED_BEFORE, before(&request))),
        Err(failure) if failure.code == "request_unavailable" => match answers::find(shared, None, &later.request) {
            Ok((_, document)) => unavailable(&document.request, &given),
            Err(failure) => Attempt::Again { why: failure.message, may_be_given: false },
        },
        Err(failure) if may_pass(&failure) => {
            Attempt::Again { may_be_given: !answers::is_unsent(&failure), why: failure.message }
        }
        Err(failure) => Attempt::settled(failure),
    }
}

/// The outcome of a decision that has expired or is no longer in the stream. An attempt before may have
/// given it.
fn became(shared: &Shared, held: &Held, given: Option<Given>, may_be_given: bool) -> Attempt {
    let (code, words) = match held.expires_at <= SystemTime::now() {
        true => (TOO_LATE, format!("it was valid until {}", humantime::format_rfc3339_seconds(held.expires_at))),
        false => (WITHDRAWN, "the server does not have it any more".to_owned()),
    };
    let over = || Attempt::settled(Failure::new(code, &*words));
    let row = match answers::find(shared, None, &held.request) {
        Ok((_, document)) => document.request,
        Err(failure) if may_be_given && may_pass(&failure) => {
            let words = format!("may have been given: its session does not reply, and {words}");
            return Attempt::Settled(UNKNOWN.to_owned(), words);
        }
        Err(_) => return over(),
    };
    let is_ours = match given {
        Some(given) => answers::holds(&row, &given),
        None => may_be_of(&row, held, &shared.member.host),
    };
    ended(&row, is_ours).unwrap_or_else(over)
}

/// Whether the answer that counts for a request may be a decision that the stream has no more: its user and its word are known.
fn may_be_of(row: &Request, held: &Held, host: &str) -> bool {
    // A file of an earlier version does not have the word.
    let is_word = held.given.as_ref().is_none_or(|given| answers::holds(row, &Given::Decision(given.clone())));
    is_word && row.resolved_by == Some(answers::by(&held.user, host))
}

/// Decides about the next attempt if the relay takes no answer to a request. The request may be pending: a hub that has just started takes
/// answers only once the server has sent it the request again, and the commit of another answer may fail.
fn unavailable(row: &Request, given: &Given) -> Attempt {
    let again = || Attempt::Again { why: "its session takes no answer to it yet".to_owned(), may_be_given: false };
    ended(row, answers::holds(row, given)).unwrap_or_else(again)
}

/// The outcome of a decision on a request that has ended; `None` for one that is pending.
fn ended(row: &Request, is_ours: bool) -> Option<Attempt> {
    match &*row.status {
        "pending" => None,
        "resolved" if is_ours => Some(Attempt::Settled(GIVEN.to_owned(), "was given".to_owned())),
        "resolved" => Some(Attempt::settled(Failure::new(ANSWERED_BEFORE, before(row)))),
        status => Some(Attempt::settled(Failure::new(status, format!("the request is {status}")))),
    }
}

fn before(row: &Request) -> String {
    format!("the answer of {} holds", row.resolved_by.as_deref().unwrap_or("another"))
}

/// The decision in a message and its expiry, unless it is not valid or too old. Only a decision on one request can wait.
fn due(payload: &[u8], now: SystemTime) -> Result<(Later, SystemTime), (String, Failure)> {
    let invalid = |why: String| (String::new(), Failure::new("invalid_question", why));
    if payload.len() > QUESTION_BYTES_MAX {
        return Err(invalid("it is too long".to_owned()));
    }
    let later: Later = serde_json::from_slice(payload)
        .map_err(|error| invalid(format!("it is not a decision on a request: {error}")))?;
    if later.request.len() > ID_BYTES_MAX {
        let begin = &later.request[..later.request.floor_char_boundary(ID_BYTES_MAX)];
        let why = format!("the id of its request has more than {ID_BYTES_MAX} bytes");
        return Err((format!("{begin}…"), Failure::new("invalid_question", why)));
    }
    if !is_whole(&later.request) {
        return Err(invalid("it does not name its request by the whole id".to_owned()));
    }
    if later.given.word().is_none() {
        return Err((later.request, Failure::new("invalid_response", "it is not a decision")));
    }
    let expires_at = humantime::parse_rfc3339(&later.expires_at)
        .map_err(|_| invalid("its `expires_at` is not a time".to_owned()))?;
    match (later.v, expires_at > now) {
        (VERSION, true) => Ok((later, expires_at)),
        (VERSION, false) => {
            let why = format!("it was valid until {}", later.expires_at);
            Err((later.request, Failure::new(TOO_LATE, why)))
        }
        (other, _) => {
            let why = format!("its version is {other}, not {VERSION}");
            Err((later.request, Failure::new("unknown_version", why)))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::connection::BACKOFF_MAX;
    use crate::protocol::Word;
    use crate::requests::given::Decision;

    const ID: &str = "6b02d1a90c4e-0";

    fn code(json: &str) -> Option<String> {
        let now = humantime::parse_rfc3339("2026-01-02T03:04:05Z").expect("a time");
        due(json.as_bytes(), now).err().map(|(_, failure)| failure.code)
    }

    #[test]
    fn old_answers_are_not_given() {
        let check = |expires_at: &str, v: u8, expect: Option<&str>| {
            let json =
                format!(r#"{{"v":{v},"request":"{ID}","given":{{"word":"accept"}},"expires_at":"{expires_at}"}}"#);
            assert_eq!(code(&json).as_deref(), expect, "{json}");
        };
        check("2026-01-02T03:04:06Z", 1, None);
        check("2026-01-02T03:04:05Z", 1, Some("too_late"));
        check("2026-01-02T03:04:06Z", 2, Some("unknown_version"));
        check("soon", 1, Some("invalid_question"));
    }

    #[test]
    fn only_decisions_wait() {
        let check = |request: &str, given: &str, expect: Option<&str>| {
            let json =
                format!(r#"{{"v":1,"request":"{request}","given":{given},"expires_at":"2026-01-02T03:04:06Z"}}"#);
            assert_eq!(code(&json).as_deref(), expect, "{json}");
        };
        check(ID, r#"{"word":"decline","reason":"no"}"#, None);
        check(ID, r#"{"answers":[["q","x"]]}"#, Some("invalid_question"));
        check(ID, r#"{"body":{"decision":"accept"}}"#, Some("invalid_question"));
        check(ID, r#"{"word":"accept","body":{}}"#, Some("invalid_question"));
        check(ID, r#"{"word":"erase"}"#, Some("invalid_response"));
        check("latest", r#"{"word":"accept"}"#, Some("invalid_question"));
        check("0c4e-0", r#"{"word":"accept"}"#, Some("invalid_question"));
        assert_eq!(code(r#"{"v":1,"ask":"send","session":"s","text":"t"}"#).as_deref(), Some("invalid_question"));
        assert_eq!(code("[]").as_deref(), Some("invalid_question"));
    }

    #[test]
    fn long_ids_are_refused_and_cut() {
        let now = SystemTime::UNIX_EPOCH;
        let check = |id: &str, is_taken: bool| {
            let expires_at = "2026-01-02T03:04:06Z";
            let later =
                json!({ "v": 1, "request": id, "given": { "word": "accept" }, "expires_at": expires_at }).to_string();
            let refused = due(later.as_bytes(), now).err();
            assert_eq!(refused.is_none(), is_taken, "{id}");
            assert!(refused.is_none_or(|(id, _)| id.len() <= ID_BYTES_MAX + "…".len()));
        };
        check(&format!("{ID}{}", "0".repeat(ID_BYTES_MAX - ID.len())), true);
        check(&format!("{ID}{}", "0".repeat(ID_BYTES_MAX - ID.len() + 1)), false);
        check(&format!("{ID}{}", "0".repeat(60_000)), false);
        check(&"ä".repeat(30_000), false);
        check(&format!("a{}", "ä".repeat(30_000)), false);
    }

    /// The row of a request that ann has answered.
    fn row(status: &str, decision: &str) -> Request {
        json!({ "request_method": "item/commandExecution/requestApproval", "request_payload": { "command": "ls" },
            "status": status, "resolved_by": "fleet:ann@h", "resolved_payload": { "decision": decision } })
        .into()
    }

    #[test]
    fn pending_request_is_tried_again() {
        let given = Given::Decision(Decision::new(Word::Accept, None));
        let outcome = |row: &Request| match unavailable(row, &given) {
            Attempt::Settled(outcome, _) => Some(outcome),
            Attempt::Again { may_be_given, .. } => {
                assert!(!may_be_given, "{row:?}");
                None
            }
        };
        assert_eq!(outcome(&json!({ "status": "pending" }).into()), None);
        assert_eq!(outcome(&json!({ "status": "orphaned" }).into()).as_deref(), Some("orphaned"));
        // Another answer was stored meanwhile.
        assert_eq!(outcome(&row("resolved", "decline")).as_deref(), Some(ANSWERED_BEFORE));
        assert_eq!(outcome(&row("resolved", "accept")).as_deref(), Some(GIVEN));
    }

    #[test]
    fn withdrawn_decision_is_told_from_another_of_its_user() {
        let check = |word: Word, user: &str, expect: bool| {
            let given = Some(Decision::new(word, Some("no")).without_reason());
            let held = Held { given, user: user.to_owned(), ..held(1, ID) };
            assert_eq!(may_be_of(&row("resolved", "accept"), &held, "h"), expect, "{held:?}");
            assert!(!serde_json::to_string(&held).expect("JSON").contains("reason"));
        };
        check(Word::Accept, "ann", true);
        check(Word::Decline, "ann", false);
        check(Word::Accept, "ben", false);
    }

    #[test]
    fn panic_ends_only_its_own_attempt() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let mut attempts = Attempts::default();
            let settled = || Attempt::Settled(GIVEN.to_owned(), String::new());
            attempts.spawn(held(1, "a"), async { panic!("an attempt that panics") });
            assert_eq!(attempts.next().await, Some((held(1, "a"), Attempt::panicked())));
            attempts.spawn(held(2, "b"), async { panic!("an attempt that panics") });
            attempts.spawn(held(3, "c"), async move { settled() });
            let mut ended = [attempts.next().await, attempts.next().await].map(|ended| ended.expect("an attempt"));
            ended.sort_by_key(|(held, _)| held.number);
            assert_eq!(ended, [(held(2, "b"), Attempt::panicked()), (held(3, "c"), settled())]);
            assert_eq!(attempts.next().await, None);
        });
    }

    fn held(number: u64, request: &str) -> Held {
        let (at, expires_at) = (Some(SystemTime::UNIX_EPOCH), SystemTime::UNIX_EPOCH);
        Held { number, at, user: "ann".to_owned(), request: request.to_owned(), given: None, expires_at, waits: false }
    }

    #[test]
    fn decision_that_fails_blocks_only_those_for_its_request() {
        let (now, hour) = (Instant::now(), Duration::from_secs(3_600));
        let all = [held(1, "a"), held(2, "a"), held(3, "b"), held(4, "c")];
        let mut plan = Plan::default();
        plan.follow(&all, now, false);
        let due = |plan: &Plan, now: Instant, most: usize| -> Vec<u64> {
            plan.due(&all, now, most).iter().map(|(held, _)| held.number).collect()
        };
        assert_eq!((due(&plan, now, 4), due(&plan, now, 2)), (vec![1, 3, 4], vec![1, 3]));
        [1, 3].into_iter().for_each(|number| plan.begins((number, Some(SystemTime::UNIX_EPOCH))));
        assert_eq!((due(&plan, now, 4), plan.under_way(), plan.next(&all)), (vec![4], 2, Some(now)));
        let mark = all[0].mark();
        for _ in 0..20 {
            plan.failed(mark, now, hour, false);
        }
        let later = now + BACKOFF_MAX;
        assert!(!due(&plan, now, 4).contains(&1), "it has no pause");
        // One that was not tried yet comes first.
        assert_eq!(due(&plan, later, 4), [4, 1]);
        // At its expiry it is looked at once more, and after that not without a pause.
        plan.failed(mark, now, Duration::from_millis(1), false);
        assert_eq!(due(&plan, now + Duration::from_millis(1), 4), [4, 1]);
        plan.failed(mark, now, Duration::ZERO, false);
        assert_eq!(due(&plan, now + Duration::from_millis(1), 4), [4]);
        // The next one for its request follows once it is settled.
        plan.0.remove(&mark);
        assert!(plan.due(&all[1..], now, 4).iter().any(|(held, _)| held.number == 2));
    }

    #[test]
    fn attempts_that_may_have_counted_are_remembered() {
        let (now, all) = (Instant::now(), [held(1, "a"), held(2, "b")]);
        let may_be_given = |plan: &Plan| -> Vec<bool> {
            plan.due(&all, now + BACKOFF_MAX, 4).into_iter().map(|(_, may_be_given)| may_be_given).collect()
        };
        // The agent before may have been killed in the middle of one.
        let mut plan = Plan::default();
        plan.follow(&all[..1], now, true);
        plan.follow(&all, now, false);
        assert_eq!(may_be_given(&plan), [true, false]);
        plan.failed(all[1].mark(), now, BACKOFF_MAX, true);
        plan.failed(all[1].mark(), now, BACKOFF_MAX, false);
        assert_eq!(may_be_given(&plan), [true, true]);
        plan.follow(&all[1..], now, false);
        assert_eq!(plan.0.len(), 1);
    }
}
