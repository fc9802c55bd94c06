//! The ledger of a hub's session, by the rules of `store::request_table`: it takes any time, or fails, and outlives hubs and
//! servers. What is not committed when a hub is killed is lost.

use std::collections::{BTreeMap, VecDeque};

use codex_shim::testing::engine::{
    AnswerBefore, LedgerEntry, OpenBefore, RequestSource, RequestStatus, WaitingCommand, request_digest,
};

use super::super::shim::Told;

/// A request as the ledger stores it.
#[derive(Debug, Clone)]
pub struct Row {
    /// The run of the server.
    pub generation: String,
    /// What the next hub learns of one that is open, or whose answer the server has not confirmed.
    asked: OpenBefore,
    /// The order in which rows were opened.
    number: usize,
    is_dispatched: bool,
    /// The server has confirmed the answer, or its turn is over.
    is_settled: bool,
    pub status: RequestStatus,
    pub source: Option<RequestSource>,
    /// The answer, as JSON.
    pub payload: Option<String>,
    /// Who or what has answered it.
    by: Option<String>,
    /// The request, or its answer, was passed on before it was stored.
    pub late: bool,
}

impl Row {
    pub fn is_open(&self) -> bool {
        matches!(self.status, RequestStatus::Pending | RequestStatus::Expired)
    }
}

/// Work on its way to the ledger.
#[derive(Debug)]
pub enum Job {
    /// Opens the file for a run of the server and reads what the engine has to know.
    Load(String),
    Order(Told, LedgerEntry),
}

#[derive(Debug, Default)]
pub struct Ledger {
    rows: BTreeMap<String, Row>,
    /// Answers that did not win, in order: the request's name and the answer.
    pub lost: Vec<(String, String)>,
    /// The user's commands that are not settled.
    pub commands: Vec<WaitingCommand>,
    pub jobs: VecDeque<Job>,
    /// The run of the server that new rows belong to.
    generation: String,
    /// Rows that had ended when the file was opened last.
    ended_before: Vec<String>,
}

impl Ledger {
    pub fn get(&self, request_id: &str) -> Option<&Row> {
        self.rows.get(request_id)
    }

    /// Whether the file is still to be opened for this hub.
    pub fn is_loading(&self) -> bool {
        self.jobs.iter().any(|job| matches!(job, Job::Load(_)))
    }

    pub fn had_ended(&self, request_id: &str) -> bool {
        self.ended_before.iter().any(|name| name == request_id)
    }

    /// Begins a run of the server; returns the names of its requests that have ended.
    pub fn load(&mut self, generation: String) -> Vec<String> {
        for row in self.rows.values_mut().filter(|row| row.is_open() && row.generation != generation) {
            (row.status, row.source) = (RequestStatus::Orphaned, Some(RequestSource::Policy));
        }
        self.ended_before = self.ended_in(&generation);
        self.generation = generation;
        self.ended_before.clone()
    }

    /// The names of the requests of a run that have ended.
    pub fn ended_in(&self, generation: &str) -> Vec<String> {
        let of_run = self.rows.iter().filter(|(_, row)| row.generation == generation && !row.is_open());
        of_run.map(|(name, _)| name.clone()).collect()
    }

    /// Requests of this run of the server that are open, or whose answers it has not confirmed; the newest first.
    pub fn open(&self) -> Vec<OpenBefore> {
        let is_due = |row: &&Row| row.is_open() || (row.payload.is_some() && !row.is_settled);
        let mut of_run: Vec<&Row> =
            self.rows.values().filter(|row| row.generation == self.generation).filter(is_due).collect();
        of_run.sort_by_key(|row| std::cmp::Reverse(row.number));
        let asked = |row: &Row| {
            let answer = row.payload.clone().filter(|_| !row.is_open()).map(|payload| AnswerBefore {
                payload,
                at_us: 0,
                source: row.source.unwrap_or(RequestSource::Policy),
                by: String::new(),
                reason: None,
                is_dispatched: row.is_dispatched,
            });
            OpenBefore { answer, ..row.asked.clone() }
        };
        of_run.into_iter().map(asked).collect()
    }

    /// Stores an entry; returns whether it has changed the row of a request.
    pub fn keep(&mut self, entry: LedgerEntry) -> bool {
        let number = self.rows.len();
        match entry {
            LedgerEntry::RequestOpened(row) => {
                let kept = Row {
                    generation: self.generation.clone(),
                    asked: OpenBefore {
                        request_id: row.request_id.clone(),
                        rpc_request_id: row.rpc_request_id.clone(),
                        thread_id: row.place.thread_id.clone(),
                        turn_id: row.place.turn_id.clone(),
                        is_for_human: row.kind.request_type().is_for_human(),
                        digest: request_digest(&row.method, row.payload.as_deref()),
                        answer: None,
                    },
                    number,
                    is_dispatched: false,
                    is_settled: false,
                    status: RequestStatus::Pending,
                    source: None,
                    payload: None,
                    by: None,
                    late: row.late,
                };
                self.rows.entry(row.request_id.clone()).or_insert(kept);
                true
            }
            LedgerEntry::RequestEnded(end) => {
                let is_due = |row: &&mut Row| row.is_open() || end.instead && row.status == RequestStatus::Resolved;
                let Some(row) = self.rows.get_mut(&end.request_id).filter(is_due) else { return false };
                row.late |= end.late;
                (row.status, row.source, row.payload, row.by) = (end.status, Some(end.source), end.payload, end.by);
                true
            }
            LedgerEntry::RequestExpired { request_id, .. } => {
                let row = self.rows.get_mut(&request_id).filter(|row| row.status == RequestStatus::Pending);
                row.map(|row| row.status = RequestStatus::Expired).is_some()
            }
            LedgerEntry::RequestDispatched { request_id, .. } => {
                self.rows.get_mut(&request_id).into_iter().for_each(|row| row.is_dispatched = true);
                false
            }
            LedgerEntry::RequestConfirmed { request_id, .. } | LedgerEntry::RequestUncertain { request_id, .. } => {
                self.rows.get_mut(&request_id).into_iter().for_each(|row| row.is_settled = true);
                false
            }
            // It takes back the accept of a rule, if that was stored.
            LedgerEntry::RequestReopened { request_id, by } => {
                let is_its = |row: &&mut Row| row.status == RequestStatus::Resolved && row.by.as_ref() == Some(&by);
                let Some(row) = self.rows.get_mut(&request_id).filter(is_its) else { return false };
                (row.status, row.source, row.payload, row.by) = (RequestStatus::Pending, None, None, None);
                true
            }
            LedgerEntry::RequestLate { request_id } => {
                self.rows.get_mut(&request_id).map(|row| row.late = true).is_some()
            }
            LedgerEntry::AnswerLost(given) => {
                self.lost.push((given.request_id, given.payload));
                true
            }
            LedgerEntry::Settled { delete, .. } => {
                self.commands.retain(|command| !delete.contains(&command.row));
                false
            }
            _ => false,
        }
    }
}
