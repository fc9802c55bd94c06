//! What is spent of a budget on a day: from the histories of all sessions of a home, and from the answers in their ledgers that have raised
//! a limit. A turn counts on the day on which it began.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Zoned;
use rusqlite::{OptionalExtension as _, params};
use serde_json::Value;

use super::query::{History, HistoryError};
use super::shared::HISTORY_FILE;
use crate::engine::{BudgetLimit, BudgetLimits, Spent, raised_to};
use crate::history::rfc3339_millis;
use crate::protocol::of_name;
use crate::store::{Found, budget_answers};

/// What is spent of each limit, and the sessions that could not be read, with the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BudgetState {
    /// That of a day is first; then those of clients, by name.
    pub spent: Vec<Spent>,
    /// That of the last turns of some threads.
    pub last_turns: BTreeMap<String, Spent>,
    pub unread: Vec<String>,
}

/// The local day of a time: its name, and its start in microseconds since the Unix epoch.
#[must_use]
pub fn local_day(now: &Zoned) -> (String, u64) {
    let start = now.start_of_day().unwrap_or_else(|_| now.clone());
    let start_us = u64::try_from(start.timestamp().as_microsecond()).unwrap_or(0);
    (now.date().to_string(), start_us)
}

/// What is spent since the start of a day, and in the last turns of some threads.
#[must_use]
pub fn budget_state(
    sessions: &[Found],
    limits: BudgetLimits,
    (day, since_us): (&str, u64),
    threads: &BTreeSet<String>,
) -> BudgetState {
    let (mut clients, mut last_turns) = (BTreeMap::<Option<String>, u64>::new(), BTreeMap::new());
    let (mut raised, mut unread) = (Vec::new(), Vec::new());
    // One that begins just now has no history yet.
    let has_history = |session: &&Found| session.dir.join(HISTORY_FILE).exists();
    for session in sessions.iter().filter(|session| is_used_since(session, since_us)).filter(has_history) {
        let history = History::new(&session.dir.join(HISTORY_FILE));
        match history.spent(since_us) {
            Ok(spent) => spent.into_iter().for_each(|(client, tokens)| {
                let sum = clients.entry(client).or_default();
                *sum = sum.saturating_add(tokens);
            }),
            Err(error) => unread.push(error.to_string()),
        }
        for thread_id in threads {
            match history.last_turn(thread_id) {
                // Two sessions may have had a thread; the later turn counts.
                Ok(Some(turn)) => {
                    let last = last_turns.entry(thread_id.clone()).or_insert(turn);
                    *last = turn.max(*last);
                }
                Ok(None) => {}
                Err(error) => unread.push(error.to_string()),
            }
        }
        match budget_answers(&session.dir, session.live, &rfc3339_millis(since_us)) {
            Ok(answers) => raised.extend(answers.iter().filter_map(|answer| Raised::of(answer, day))),
            Err(error) => unread.push(error.to_string()),
        }
    }
    let most = |limit: BudgetLimit, client: Option<&str>, set: u64| {
        let of_it = raised.iter().filter(|raised| raised.limit == limit && raised.client.as_deref() == client);
        of_it.map(|raised| raised.to).fold(set, u64::max)
    };
    let mut spent = Vec::new();
    if let Some(set) = limits.per_day {
        let used = clients.values().fold(0, |sum: u64, tokens| sum.saturating_add(*tokens));
        let most = most(BudgetLimit::Day, None, set);
        spent.push(Spent { limit: BudgetLimit::Day, client: None, day: day.to_owned(), used, most });
    }
    if let Some(set) = limits.per_client {
        spent.extend(clients.iter().filter_map(|(client, used)| {
            let name = client.as_deref()?;
            let most = most(BudgetLimit::Client, Some(name), set);
            Some(Spent { limit: BudgetLimit::Client, client: client.clone(), day: day.to_owned(), used: *used, most })
        }));
    }
    let of_turn = |(thread_id, (_, used)): (String, (u64, u64))| {
        let most = most(BudgetLimit::Turn, None, limits.per_turn?);
        Some((thread_id, Spent { limit: BudgetLimit::Turn, client: None, day: day.to_owned(), used, most }))
    };
    BudgetState { spent, last_turns: last_turns.into_iter().filter_map(of_turn).collect(), unread }
}

/// Whether a session may have turns since a time.
fn is_used_since(session: &Found, since_us: u64) -> bool {
    let used_us = session.last_used.duration_since(UNIX_EPOCH).map_or(0, |at| at.as_micros());
    // A clock that was set back makes files look older.
    session.live || used_us >= u128::from(since_us) || session.last_used > SystemTime::now()
}

/// A limit that an answer has raised.
#[derive(Debug)]
struct Raised {
    limit: BudgetLimit,
    client: Option<String>,
    to: u64,
}

impl Raised {
    fn of((payload, answer): &(String, String), day: &str) -> Option<Raised> {
        let read = |text: &str| serde_json::from_str::<Value>(text).ok();
        let budget = &read(payload)?["budget"];
        // A limit that was raised after midnight was that of the day before.
        let budget = Some(budget).filter(|budget| budget["day"] == day)?;
        let limit = of_name(budget["limit"].as_str()?)?;
        Some(Raised { limit, client: budget["client"].as_str().map(str::to_owned), to: raised_to(&read(answer)?)? })
    }
}

const SPENT: &str = "
    SELECT client, SUM(total_tokens) FROM codex_usage_turns WHERE began_us >= ?1 GROUP BY client";

const LAST_TURN: &str = "
    SELECT began_us, total_tokens FROM codex_usage_turns WHERE thread_id = ?1 AND turn_id <> ''
    ORDER BY began_us DESC, id DESC LIMIT 1";

impl History {
    /// The tokens that each client has used in turns that began at a time or later.
    fn spent(&self, since_us: u64) -> Result<Vec<(Option<String>, u64)>, HistoryError> {
        self.read(0, |connection| {
            if !connection.table_exists(None, "codex_usage_turns")? {
                return Ok(Vec::new());
            }
            let mut select = connection.prepare(SPENT)?;
            let spent = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)?.max(0).unsigned_abs()));
            select.query_map([since_us as i64], spent)?.collect()
        })
    }

    /// When the last turn of a thread began, and its tokens.
    fn last_turn(&self, thread_id: &str) -> Result<Option<(u64, u64)>, HistoryError> {
        self.read(0, |connection| {
            let number =
                |row: &rusqlite::Row<'_>, at| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at)?.max(0).unsigned_abs());
            let turn = |row: &rusqlite::Row<'_>| Ok((number(row, 0)?, number(row, 1)?));
            connection.query_row(LAST_TURN, params![thread_id], turn).optional()
        })
    }
}
