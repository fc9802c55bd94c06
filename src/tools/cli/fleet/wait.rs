//! Waits for the end of a turn on a host, by the events that the server has stored.
//!
//! The end of the turn is an event like any other. Beside the events, the host is asked for the session and its requests now and
//! then: a turn whose end is missing among the events would be waited for in vain.

use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::super::requests::{PendingTurn, ToldOf, TurnEnd, TurnProgress, wait_for};
use super::super::screen;
use super::super::{CliError, Done, NOT_RUNNING};
use super::{failed, known, not_read, offline, read, tell, text, with_host};
use crate::api::RequestList;
use crate::fleet::{AskError, Client, Question, Runs, Start, TurnEnded, TurnEvents, VERSION, session_rows};

/// Polling interval of the events.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Polling interval of the host.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// How long the server or the host may fail to answer.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// How long after the end of a turn its event may come.
const LATE_MAX: Duration = Duration::from_secs(10);

/// How long before the message the events are read: since the start of a turn that it starts, or of one that it joins.
const BEGINS_BEFORE: Duration = Duration::from_secs(60);
const JOINED_BEGINS_BEFORE: Duration = Duration::from_secs(3_600);

/// How long before the start of a session its events are read, because two clocks differ.
const STARTS_BEFORE: Duration = Duration::from_secs(5);

/// Failures of a host that may be short ones.
const PASSING: [&str; 3] = ["busy", "sessions_unreadable", "failed"];

/// What is read before the message is sent, so that no failure of it hides that it was sent.
pub(super) struct Before<'a> {
    client: &'a Client,
    host: &'a str,
    session: &'a str,
    /// By the clock of the server.
    seen_at: SystemTime,
    /// The host sends no texts.
    is_summary: bool,
    runs: Runs,
}

/// A turn that is waited for.
struct Wait<'a> {
    of: Before<'a>,
    /// The host's reply to the message.
    turn: &'a Value,
    events: TurnEvents,
    start: Start,
    asked_at: Option<Instant>,
    /// Since when the server, or the host, has not answered.
    unread_since: Option<Instant>,
    silent_since: Option<Instant>,
    /// Since when no turn runs in the session.
    at_rest_since: Option<Instant>,
    told_of: ToldOf,
}

impl<'a> Before<'a> {
    /// `since` is the start of the session as its host tells it.
    pub(super) fn read(
        client: &'a Client,
        host: &'a str,
        session: &'a str,
        since: SystemTime,
    ) -> Result<Before<'a>, CliError> {
        let known = known(client, host)?;
        let seen_at = humantime::parse_rfc3339(&known.seen_at).map_err(|_| {
            CliError::failed(format!("host {host}: the server does not say when it was seen, so nothing is sent"))
        })?;
        let mut runs = Runs::default();
        // If this tells nothing, it is not known whether the session is a hub.
        if let Ok(page) = client.events_of(host, session, &from(since, STARTS_BEFORE)) {
            page.iter().filter_map(|stored| stored.message.as_ref()).for_each(|message| runs.take(message));
        }
        Ok(Before { client, host, session, seen_at, is_summary: known.is_summary(), runs })
    }

    /// Waits for the end of the turn that has taken the message, at most for the time `left`, and prints it.
    pub(super) fn wait(mut self, turn: &Value, left: impl Fn() -> Option<Duration>, as_json: bool) -> Done {
        let before = if turn["steered"] == true { JOINED_BEGINS_BEFORE } else { BEGINS_BEFORE };
        let events = TurnEvents::of(text(turn, "thread_id"), text(turn, "turn_id"), std::mem::take(&mut self.runs));
        let wait = Wait {
            turn,
            events,
            start: from(self.seen_at, before),
            asked_at: None,
            unread_since: None,
            silent_since: None,
            at_rest_since: None,
            told_of: ToldOf::default(),
            of: self,
        };
        wait_for(wait, LOOK_EVERY, left)?.print(as_json)
    }
}

/// The events from so long before `at` on.
fn from(at: SystemTime, before: Duration) -> Start {
    Start::Time(at.checked_sub(before).unwrap_or(SystemTime::UNIX_EPOCH))
}

/// Whether a failure that lasts `since` may be a short one.
fn is_short(since: &mut Option<Instant>) -> bool {
    since.get_or_insert_with(Instant::now).elapsed() < SILENCE_MAX
}

/// Whether the host may reply later.
fn is_passing(error: &AskError) -> bool {
    match error {
        AskError::Offline | AskError::TooSlow | AskError::Broken(_) => true,
        AskError::Failed(failure) => PASSING.contains(&&*failure.code),
        AskError::Refused(_) => false,
    }
}

impl PendingTurn for Wait<'_> {
    /// Reads a page of events, and asks the host now and then.
    fn look(&mut self) -> Result<TurnProgress, CliError> {
        let page = match self.of.client.events_of(self.of.host, self.of.session, &self.start) {
            Ok(page) => {
                self.unread_since = None;
                page
            }
            Err(_) if is_short(&mut self.unread_since) => Vec::new(),
            Err(error) => return Err(self.given_up(&not_read(error))),
        };
        if let Some(last) = page.last() {
            self.start = Start::After(last.number);
            // The end may be among what follows.
            self.at_rest_since = None;
        }
        if let Some(ended) = page.iter().find_map(|stored| self.events.take(stored.message.as_ref()?)) {
            return Ok(TurnProgress::Ended(self.end(ended)));
        }
        if page.last().is_some_and(|last| last.more > 0) {
            return Ok(TurnProgress::Again);
        }
        if self.asked_at.is_some_and(|at| at.elapsed() < ASK_EVERY) {
            return Ok(TurnProgress::Running);
        }
        self.asked_at = Some(Instant::now());
        Ok(self.ask()?.map_or(TurnProgress::Running, |ended| TurnProgress::Ended(self.end(ended))))
    }

    fn late(&self) -> String {
        let (host, thread) = (self.of.host, text(self.turn, "thread_id"));
        format!(
            "`codex-shim fleet tail {host} -f` shows its events, `codex-shim transcript {thread}` on that host its messages"
        )
    }
}

impl Wait<'_> {
    /// An error after the message was sent: whoever sends it again sends it twice.
    fn given_up(&self, error: &CliError) -> CliError {
        let message = format!("the message was sent, and its turn may still run; {}", error.message);
        CliError::exits(error.exit, screen::plain(&message)).with_remedy(screen::plain(&self.late()))
    }

    /// The command for the messages of the turn.
    fn on_host(&self) -> String {
        screen::plain(&format!("see `codex-shim transcript {}` on that host", text(self.turn, "thread_id")))
    }

    /// Asks the host for its session. Returns the end of a turn that will not be among the events any more.
    fn ask(&mut self) -> Result<Option<TurnEnded>, CliError> {
        let (host, session) = (self.of.host, self.of.session);
        let sessions = match self.of.client.ask(host, &Question::Sessions { v: VERSION }) {
            Ok(document) => document,
            Err(error) if is_passing(&error) && is_short(&mut self.silent_since) => return Ok(None),
            Err(error) => {
                let why = match (&error, self.of.client.host(host)) {
                    (AskError::Offline, Ok(Some(known))) => offline(&known),
                    (_, _) => failed(host, &error),
                };
                return Err(self.given_up(&why));
            }
        };
        let Some(row) = session_rows(&sessions).into_iter().find(|row| row.session_id == session) else {
            // It may be listed again.
            if is_short(&mut self.silent_since) {
                return Ok(None);
            }
            let why = CliError::failed(format!("host {host} does not list session {session} any more"));
            return Err(self.given_up(&why));
        };
        self.silent_since = None;
        if !row.is_at_rest() {
            self.at_rest_since = None;
            self.tell_of_requests();
            return Ok(None);
        }
        if self.at_rest_since.get_or_insert_with(Instant::now).elapsed() < LATE_MAX {
            return Ok(None);
        }
        if row.live {
            return Err(self.not_told("the session is idle, and how the turn ended is not among its stored events"));
        }
        if self.events.ends_with_session() {
            return Ok(Some(TurnEvents::stopped()));
        }
        let why =
            format!("host {host}: session {session} is not running; if it is a hub, the turn goes on in its server");
        let error = self.given_up(&CliError::exits(NOT_RUNNING, why));
        Err(error.with_remedy(format!("start the hub again, and {}", self.on_host())))
    }

    /// The turn has ended, and how is not known here.
    fn not_told(&self, why: &str) -> CliError {
        CliError::failed(format!("the message was sent; host {}: {why}", self.of.host)).with_remedy(self.on_host())
    }

    fn tell_of_requests(&mut self) {
        let (v, session) = (VERSION, Some(self.of.session.to_owned()));
        let asked = self.of.client.ask(self.of.host, &Question::Requests { v, all: false, session });
        if let Ok(RequestList { requests }) =
            asked.map_err(drop).and_then(|rows| read(self.of.host, &rows).map_err(drop))
        {
            let answer = format!("fleet respond {}/", self.of.host);
            self.told_of.tell(&requests, text(self.turn, "thread_id"), &answer);
        }
    }

    /// The end of the turn, with the model's last message. Says if that is on the host.
    fn end(&self, ended: TurnEnded) -> TurnEnd {
        let (thread, host) = (text(self.turn, "thread_id"), self.of.host);
        let why = "the turn has ended, and its event was cut before it says how";
        let (outcome, error, unknown) = match ended {
            TurnEnded::Told { outcome, error } => (outcome, error, None),
            TurnEnded::Untold => ("unknown".to_owned(), None, Some(self.not_told(why))),
        };
        let message = self.events.message();
        let what = match &message {
            None if self.of.is_summary => Some("the messages of the turn stay"),
            Some(message) if message.is_cut => Some("the rest of the message is"),
            Some(_) | None => None,
        };
        if let Some(what) = what {
            let how = if unknown.is_some() { "ended" } else { &outcome };
            tell(format!("turn {how}; {what} on host {host}: `codex-shim transcript {thread}` there"));
        }
        let mut turn = with_host(host, self.turn);
        turn["message_is_whole"] = json!(message.as_ref().is_some_and(|message| !message.is_cut));
        TurnEnd { turn, outcome, error, message: message.map(|message| message.text), unknown }
    }
}
