//! The ledger: it takes any time, or fails, and outlives a run.

use std::collections::BTreeMap;

use codex_shim::testing::engine::{LedgerEntry, RequestSource, RequestStatus};

use super::canary::Canary;

/// A request as the ledger stores it.
#[derive(Debug, Clone)]
pub struct Row {
    pub status: RequestStatus,
    pub source: Option<RequestSource>,
    /// The answer, as JSON.
    pub payload: Option<String>,
    /// The request, or its answer, was forwarded before it was stored.
    pub late: bool,
    /// How often it has ended.
    ends: u32,
    /// Who or what has answered it.
    by: Option<String>,
}

#[derive(Debug, Default)]
pub struct Rows {
    requests: BTreeMap<String, Row>,
    /// Losing answers: the request's name and the answer.
    pub lost: Vec<(String, String)>,
}

impl Rows {
    pub fn get(&self, request_id: &str) -> Option<&Row> {
        self.requests.get(request_id)
    }

    /// The rows of one run.
    pub fn of<'a>(&'a self, generation: &'a str) -> impl Iterator<Item = (&'a String, &'a Row)> {
        self.requests
            .iter()
            .filter(move |(name, _)| name.strip_prefix(generation).is_some_and(|id| id.starts_with('-')))
    }

    /// A run begins: the previous owner of the folder is gone, and no request of an earlier run is open.
    pub fn begin(&mut self, canary: Canary) -> Result<(), String> {
        self.lost.clear();
        let is_open = |row: &Row| matches!(row.status, RequestStatus::Pending | RequestStatus::Expired);
        for row in self.requests.values_mut().filter(|row| is_open(row) && canary != Canary::LeavesEarlierOpen) {
            row.status = RequestStatus::Orphaned;
            row.ends += 1;
        }
        match self.requests.iter().find(|(_, row)| is_open(row)) {
            Some((name, row)) => Err(format!("3: open after its run: {name}: {row:?}")),
            None => Ok(()),
        }
    }

    pub fn keep(&mut self, entry: LedgerEntry, canary: Canary) -> Result<(), String> {
        match entry {
            LedgerEntry::RequestOpened(row) => {
                let (status, late) = (RequestStatus::Pending, row.late);
                let kept = Row { status, source: None, payload: None, late, ends: 0, by: None };
                if self.requests.insert(row.request_id.clone(), kept).is_some() {
                    return Err(format!("3: opened twice: {}", row.request_id));
                }
            }
            LedgerEntry::RequestEnded(end) => match self.requests.get_mut(&end.request_id) {
                Some(row) => {
                    row.ends += u32::from(!end.instead || row.ends == 0);
                    row.late |= end.late;
                    (row.status, row.source, row.payload, row.by) = (end.status, Some(end.source), end.payload, end.by);
                    if row.ends > 1 {
                        return Err(format!("3: ends twice: {}", end.request_id));
                    }
                }
                None => return Err(format!("3: ends and was never opened: {}", end.request_id)),
            },
            LedgerEntry::RequestExpired { request_id, .. } => match self.requests.get_mut(&request_id) {
                Some(row) if row.status == RequestStatus::Pending => row.status = RequestStatus::Expired,
                Some(_) | None => return Err(format!("3: expires and does not wait: {request_id}")),
            },
            // It takes back the accept of a rule, if that was stored.
            LedgerEntry::RequestReopened { request_id, by } => {
                let row = self.requests.get_mut(&request_id).filter(|row| row.status != RequestStatus::Pending);
                match row {
                    Some(row) if row.status == RequestStatus::Resolved && row.by.as_ref() == Some(&by) => {
                        (row.status, row.source, row.payload, row.by) = (RequestStatus::Pending, None, None, None);
                        row.ends -= 1;
                    }
                    Some(row) => return Err(format!("3: reopened: {request_id}: {row:?}")),
                    None => {}
                }
            }
            LedgerEntry::RequestDispatched { request_id, .. } => {
                let row = self.requests.get(&request_id);
                if row.is_some_and(|row| row.status != RequestStatus::Resolved) {
                    return Err(format!("3: sent, and has no end: {request_id}: {row:?}"));
                }
            }
            LedgerEntry::RequestLate { request_id } => {
                if let Some(row) = self.requests.get_mut(&request_id) {
                    row.late |= canary != Canary::HidesLateness;
                }
            }
            LedgerEntry::AnswerLost(given) => {
                if canary == Canary::LastAnswerWins
                    && let Some(row) = self.requests.get_mut(&given.request_id)
                {
                    row.payload = Some(given.payload.clone());
                }
                self.lost.push((given.request_id, given.payload));
            }
            _ => {}
        }
        Ok(())
    }
}
