//! Waits for the end of a turn on a host, by the events that the server has stored.
//!
//! The end of the turn is an event like any other. Beside the events, the host is asked for the session and its requests now and
//! then: a turn whose end is missing among the events would be waited for in vain.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::requests::TurnEnd;
use super::super::screen;
use super::super::{CliError, Done, say};
use super::{failed, host_named, hosts_of, not_read, offline, text, with_host};
use crate::config::FleetLevel;
use crate::fleet::{AskError, Client, Question, Start, TurnEnded, TurnEvents, VERSION, is_at_rest};

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

/// A turn that is waited for.
pub(super) struct Wait<'a> {
    client: &'a Client,
    host: &'a str,
    session: &'a str,
    /// The host's reply to the message.
    turn: Value,
    /// The host sends no texts.
    is_summary: bool,
    events: TurnEvents,
    start: Start,
    asked_at: Option<Instant>,
    silent_since: Option<Instant>,
    /// Since when no turn runs in the session.
    at_rest_since: Option<Instant>,
    told_of: Option<String>,
}

impl<'a> Wait<'a> {
    pub(super) fn new(client: &'a Client, host: &'a str, session: &'a str, turn: Value) -> Result<Wait<'a>, CliError> {
        let hosts = hosts_of(client)?;
        let known = host_named(&hosts, host)?;
        // The clock of the server counts.
        let seen_at = humantime::parse_rfc3339(&known.seen_at).map_err(|_| {
            CliError::failed(format!("host {host}: the server does not say when it was seen, so nothing is waited for"))
        })?;
        let before = if turn["steered"] == true { JOINED_BEGINS_BEFORE } else { BEGINS_BEFORE };
        let begin = humantime::format_rfc3339_millis(seen_at - before).to_string();
        Ok(Wait {
            client,
            host,
            session,
            is_summary: known.document.level == FleetLevel::Summary.to_string(),
            events: TurnEvents::of(text(&turn, "thread_id"), text(&turn, "turn_id")),
            turn,
            start: Start::Time(begin),
            asked_at: None,
            silent_since: None,
            at_rest_since: None,
            told_of: None,
        })
    }

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
            Err(_) if self.is_patient() => return Ok((None, false)),
            Err(error) => return Err(not_read(error)),
        };
        if let Some(last) = page.last() {
            self.start = Start::After(last.number);
            // The end may be among what follows.
            self.at_rest_since = None;
        }
        let ended = page.iter().find_map(|stored| self.events.take(&stored.payload));
        Ok((ended, page.last().is_some_and(|last| last.more > 0)))
    }

    /// Whether a failure may be a short one.
    fn is_patient(&mut self) -> bool {
        self.silent_since.get_or_insert_with(Instant::now).elapsed() < SILENCE_MAX
    }

    /// Asks the host for its session. Returns the end of a turn that will not be among the events any more.
    fn ask(&mut self) -> Result<Option<TurnEnded>, CliError> {
        let host = self.host;
        let sessions = match self.client.ask(host, &Question::Sessions { v: VERSION }) {
            Ok(document) => document,
            Err(AskError::Offline | AskError::TooSlow | AskError::Broken(_)) if self.is_patient() => return Ok(None),
            Err(AskError::Offline) => {
                let hosts = hosts_of(self.client)?;
                return Err(offline(host_named(&hosts, host)?).with_remedy("the turn may still run there"));
            }
            Err(error) => return Err(failed(host, &error)),
        };
        self.silent_since = None;
        let rows = sessions["sessions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let row = rows.iter().find(|row| text(row, "session_id") == self.session).unwrap_or(&Value::Null);
        if !is_at_rest(row) {
            self.at_rest_since = None;
            self.tell_of_requests();
            return Ok(None);
        }
        if self.at_rest_since.get_or_insert_with(Instant::now).elapsed() < LATE_MAX {
            return Ok(None);
        }
        if row["live"] != true {
            return Ok(Some(TurnEvents::stopped()));
        }
        let message =
            format!("host {host}: the session is idle, and how the turn ended is not among its stored events");
        let remedy = format!("see `codex-shim transcript {}` on that host", text(&self.turn, "thread_id"));
        Err(CliError::failed(screen::plain(&message)).with_remedy(screen::plain(&remedy)))
    }

    /// Reports on stderr, once, that a request is pending in the thread: the turn is blocked until someone answers it.
    fn tell_of_requests(&mut self) {
        let (v, session) = (VERSION, Some(self.session.to_owned()));
        let Ok(asked) = self.client.ask(self.host, &Question::Requests { v, all: false, session }) else { return };
        let thread = &self.turn["thread_id"];
        let rows = asked["requests"].as_array().map(Vec::as_slice).unwrap_or_default();
        let pending = rows.iter().find(|row| row["thread_id"].is_null() || row["thread_id"] == *thread);
        if let Some(row) = pending.filter(|row| self.told_of.as_deref() != row["request_id"].as_str()) {
            let id = text(row, "request_id");
            say(&screen::plain(&format!(
                "waiting for an answer to: {}; answer with `codex-shim fleet respond {}/{id}`",
                text(row, "summary"),
                self.host
            )));
            self.told_of = Some(id.to_owned());
        }
    }

    /// Prints the end of the turn and the model's last message, or says that it is on the host.
    fn print(self, ended: TurnEnded, as_json: bool) -> Done {
        let (thread, host) = (text(&self.turn, "thread_id"), self.host);
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
            let outcome = &ended.outcome;
            say(&screen::plain(&format!(
                "turn {outcome}; {what} on host {host}: `codex-shim transcript {thread}` there"
            )));
        }
        let TurnEnded { outcome, error } = ended;
        TurnEnd::of(turn, outcome, error, message.map(|message| message.text)).print(as_json)
    }
}
