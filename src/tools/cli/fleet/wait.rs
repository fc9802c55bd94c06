//! Waits for the end of a turn on a host, by the events that the server has stored.
//!
//! The end of the turn is an event like any other. Beside the events, the host is asked for the session and its requests now and
//! then: a turn whose end is missing among the events would be waited for in vain.

use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::super::requests::TurnEnd;
use super::super::screen;
use super::super::{CliError, Done, NOT_RUNNING, say};
use super::{failed, host_named, hosts_of, not_read, offline, read, text, with_host};
use crate::api::RequestList;
use crate::config::FleetLevel;
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
pub(super) struct Wait<'a> {
    client: &'a Client,
    host: &'a str,
    session: &'a str,
    /// The host's reply to the message.
    turn: Value,
    is_summary: bool,
    events: TurnEvents,
    start: Start,
    asked_at: Option<Instant>,
    /// Since when the server, or the host, has not answered.
    unread_since: Option<Instant>,
    silent_since: Option<Instant>,
    /// Since when no turn runs in the session.
    at_rest_since: Option<Instant>,
    told_of: Option<String>,
}

impl<'a> Before<'a> {
    /// `since` is the start of the session as its host tells it.
    pub(super) fn read(
        client: &'a Client,
        host: &'a str,
        session: &'a str,
        since: SystemTime,
    ) -> Result<Before<'a>, CliError> {
        let hosts = hosts_of(client)?;
        let known = host_named(&hosts, host)?;
        let seen_at = humantime::parse_rfc3339(&known.seen_at).map_err(|_| {
            CliError::failed(format!("host {host}: the server does not say when it was seen, so nothing is sent"))
        })?;
        let mut runs = Runs::default();
        // If this tells nothing, it is not known whether the session is a hub.
        if let Ok(page) = client.events_of(host, session, &from(since, STARTS_BEFORE)) {
            page.iter().for_each(|stored| runs.take(&stored.payload));
        }
        let is_summary = known.document.level == FleetLevel::Summary.to_string();
        Ok(Before { client, host, session, seen_at, is_summary, runs })
    }

    /// The turn that has taken the message.
    pub(super) fn turn(self, turn: Value) -> Wait<'a> {
        let Before { client, host, session, seen_at, is_summary, runs } = self;
        let before = if turn["steered"] == true { JOINED_BEGINS_BEFORE } else { BEGINS_BEFORE };
        Wait {
            client,
            host,
            session,
            is_summary,
            events: TurnEvents::of(text(&turn, "thread_id"), text(&turn, "turn_id"), runs),
            turn,
            start: from(seen_at, before),
            asked_at: None,
            unread_since: None,
            silent_since: None,
            at_rest_since: None,
            told_of: None,
        }
    }
}

/// The events from so long before `at` on.
fn from(at: SystemTime, before: Duration) -> Start {
    let at = at.checked_sub(before).unwrap_or(SystemTime::UNIX_EPOCH);
    Start::Time(humantime::format_rfc3339_millis(at).to_string())
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

impl Wait<'_> {
    /// Waits until the turn has ended or the time `left` is over, and prints what is known of its end.
    pub(super) fn run(mut self, left: impl Fn() -> Option<Duration>, as_json: bool) -> Done {
        loop {
            let (ended, is_more) = self.read()?;
            if let Some(ended) = ended {
                return self.print(ended, as_json);
            }
            if is_more {
                continue;
            }
            if self.asked_at.is_none_or(|at| at.elapsed() >= ASK_EVERY) {
                self.asked_at = Some(Instant::now());
                if let Some(ended) = self.ask()? {
                    return self.print(ended, as_json);
                }
            }
            let left = left();
            if left.is_some_and(|left| left.is_zero()) {
                let Wait { host, turn, .. } = &self;
                return Err(CliError::failed(screen::plain(&format!(
                    "timed out; the turn is still running: `codex-shim fleet tail {host} -f` shows its events, \
                     `codex-shim transcript {}` on that host its messages",
                    text(turn, "thread_id")
                ))));
            }
            std::thread::park_timeout(left.map_or(LOOK_EVERY, |left| left.min(LOOK_EVERY)));
        }
    }

    /// Reads a page of events. Returns the end of the turn, and whether more events are there.
    fn read(&mut self) -> Result<(Option<TurnEnded>, bool), CliError> {
        let page = match self.client.events_of(self.host, self.session, &self.start) {
            Ok(page) => page,
            Err(_) if is_short(&mut self.unread_since) => return Ok((None, false)),
            Err(error) => return Err(self.given_up(&not_read(error))),
        };
        self.unread_since = None;
        if let Some(last) = page.last() {
            self.start = Start::After(last.number);
            // The end may be among what follows.
            self.at_rest_since = None;
        }
        let ended = page.iter().find_map(|stored| self.events.take(&stored.payload));
        Ok((ended, page.last().is_some_and(|last| last.more > 0)))
    }

    /// An error after the message was sent: whoever sends it again sends it twice.
    fn given_up(&self, error: &CliError) -> CliError {
        let Wait { host, turn, .. } = self;
        let message = format!("the message was sent, and its turn may still run; {}", error.message);
        let thread = text(turn, "thread_id");
        let remedy = format!(
            "`codex-shim fleet tail {host} -f` shows its events, `codex-shim transcript {thread}` on that host its messages"
        );
        CliError::exits(error.exit, screen::plain(&message)).with_remedy(screen::plain(&remedy))
    }

    /// Asks the host for its session. Returns the end of a turn that will not be among the events any more.
    fn ask(&mut self) -> Result<Option<TurnEnded>, CliError> {
        let (host, session) = (self.host, self.session);
        let sessions = match self.client.ask(host, &Question::Sessions { v: VERSION }) {
            Ok(document) => document,
            Err(error) if is_passing(&error) && is_short(&mut self.silent_since) => return Ok(None),
            Err(error) => {
                let why = match (&error, self.client.host(host)) {
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
        let remedy = format!(
            "start the hub again, and see `codex-shim transcript {}` on that host",
            text(&self.turn, "thread_id")
        );
        Err(error.with_remedy(screen::plain(&remedy)))
    }

    /// The turn has ended, and how is not known here.
    fn not_told(&self, why: &str) -> CliError {
        let message = format!("the message was sent; host {}: {why}", self.host);
        let remedy = format!("see `codex-shim transcript {}` on that host", text(&self.turn, "thread_id"));
        CliError::failed(screen::plain(&message)).with_remedy(screen::plain(&remedy))
    }

    /// Reports on stderr, once, that a request is pending in the thread: the turn is blocked until someone answers it.
    fn tell_of_requests(&mut self) {
        let (v, session) = (VERSION, Some(self.session.to_owned()));
        let Ok(asked) = self.client.ask(self.host, &Question::Requests { v, all: false, session }) else { return };
        let Ok(RequestList { requests }) = read(self.host, &asked) else { return };
        let thread = text(&self.turn, "thread_id");
        let pending = requests.into_iter().find(|row| row.thread_id.as_ref().is_none_or(|id| id == thread));
        if let Some(row) = pending.filter(|row| self.told_of.as_ref() != Some(&row.request_id)) {
            say(&screen::plain(&format!(
                "waiting for an answer to: {}; answer with `codex-shim fleet respond {}/{}`",
                row.summary, self.host, row.request_id
            )));
            self.told_of = Some(row.request_id);
        }
    }

    /// Prints the end of the turn and the model's last message, or says that it is on the host.
    fn print(self, ended: TurnEnded, as_json: bool) -> Done {
        let (thread, host) = (text(&self.turn, "thread_id"), self.host);
        let (outcome, error, untold) = match ended {
            TurnEnded::Told { outcome, error } => (outcome, error, None),
            TurnEnded::Untold => {
                let why = "the turn has ended, and its event was cut before it says how";
                ("unknown".to_owned(), None, Some(self.not_told(why)))
            }
        };
        let message = self.events.message();
        let is_whole = message.as_ref().is_some_and(|message| !message.is_cut);
        let mut turn = with_host(host, &self.turn);
        turn["message_is_whole"] = json!(is_whole);
        let what = match &message {
            None if self.is_summary => Some("the messages of the turn stay"),
            Some(message) if message.is_cut => Some("the rest of the message is"),
            Some(_) | None => None,
        };
        if let Some(what) = what {
            let how = if untold.is_some() { "ended" } else { &outcome };
            say(&screen::plain(&format!("turn {how}; {what} on host {host}: `codex-shim transcript {thread}` there")));
        }
        let text = message.map(|message| message.text);
        let Some(untold) = untold else {
            return TurnEnd::of(turn, outcome, error, text).print(as_json);
        };
        if as_json {
            TurnEnd::of(turn, outcome, error, text).print(as_json)?;
        } else {
            let lines = text.as_deref().unwrap_or_default().lines().map(screen::plain);
            // The error below has a status of its own.
            let _ = screen::print(&lines.map(|line| format!("{line}\n")).collect::<String>());
        }
        Err(untold)
    }
}
