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

    /// A run begins: the previous owner of the folder is gone.
    pub fn begin(&mut self) {
        self.lost.clear();
        for row in self.requests.values_mut() {
            if matches!(row.status, RequestStatus::Pending | RequestStatus::Expired) {
                row.status = RequestStatus::Orphaned;
                row.ends += 1;
            }
        }
    }

    pub fn keep(&mut self, entry: LedgerEntry, canary: Canary) -> Result<(), String> {
        match entry {
            LedgerEntry::RequestOpened(row) => {
                let kept = Row { status: RequestStatus::Pending, source: None, payload: None, late: row.late, ends: 0 };
                if self.requests.insert(row.request_id.clone(), kept).is_some() {
                    return Err(format!("3: opened twice: {}", row.request_id));
                }
            }
            LedgerEntry::RequestEnded(end) => match self.requests.get_mut(&end.request_id) {
                Some(row) => {
                    row.ends += u32::from(!end.instead || row.ends == 0);
                    row.late |= end.late;
                    (row.status, row.source, row.payload) = (end.status, Some(end.source), end.payload);
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
            // It takes back the accept of a rule.
            LedgerEntry::RequestReopened { .. } => return Err("not to be done here: there are no rules".to_owned()),
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
