//! The members of a request's document that are computed from its other members: the warnings about it, and the time until which it can
//! be answered.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, PoisonError};

use crate::api::Request;
use crate::history::rfc3339_millis;
use crate::requests::view::{answer_until, warnings_of};

/// Most requests whose warnings are remembered.
const REMEMBERED_MAX: usize = 1_024;

/// Warnings about pending requests, which are listed again and again. To read a long command takes milliseconds.
#[derive(Debug, Default)]
pub(super) struct Warnings(Mutex<HashMap<String, (u64, Vec<String>)>>);

impl Warnings {
    /// [`add_computed_members`] for rows of the ledger.
    pub(super) fn add_members(&self, rows: &mut [Request]) {
        rows.iter_mut().for_each(|row| add_to(row, |row| self.of(row)));
    }

    fn of(&self, row: &Request) -> Vec<String> {
        if !row.is_pending() {
            return warnings_of(row);
        }
        let id = &row.request_id;
        // All else in the row of a request stays as it was.
        let mut hasher = DefaultHasher::new();
        (row.thread().map(|thread| &thread.cwd), &row.changes).hash(&mut hasher);
        let made_of = hasher.finish();
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, warnings)) = known().get(id).filter(|(of, _)| *of == made_of) {
            return warnings.clone();
        }
        let warnings = warnings_of(row);
        let mut known = known();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(id.clone(), (made_of, warnings.clone()));
        warnings
    }
}

/// Adds these members to rows of requests. The folders of their threads must be known by then.
pub fn add_computed_members(rows: &mut [Request]) {
    rows.iter_mut().for_each(|row| add_to(row, warnings_of));
}

fn add_to(row: &mut Request, warnings: impl FnOnce(&Request) -> Vec<String>) {
    row.warnings = Some(warnings(row));
    row.answer_until = Some(answer_until(row).map(rfc3339_millis));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn warnings_are_made_anew_if_more_is_known() {
        let warnings = Warnings::default();
        let of = |status: &str, cwd: &str, changes: Value, command: &str| {
            let mut rows = [Request::from(json!({
                "request_id": "g-0", "status": status, "request_method": "item/fileChange/requestApproval",
                "request_payload": { "command": command }, "thread": { "cwd": cwd }, "changes": changes,
            }))];
            warnings.add_members(&mut rows);
            rows[0].warnings.as_ref().expect("BUG: they are added").len()
        };
        let change = |path: &str| json!([{ "path": path, "kind": { "type": "update" }, "diff": "x" }]);
        assert_eq!(of("pending", "/w", change("/w/a"), ""), 0);
        // What does not change is not read again.
        assert_eq!(of("pending", "/w", change("/w/a"), "rm -r x"), 0);
        assert_eq!(of("resolved", "/w", change("/w/a"), "rm -r x"), 1);
        assert_eq!(of("pending", "/v", change("/w/a"), ""), 1);
        assert_eq!(of("pending", "/w", change("/x"), ""), 1);
        assert_eq!(of("pending", "/w", change("/w/a"), ""), 0);
    }
}
