//! Queries on the reviews of codex's own reviewer, which are rows of `codex_tool_events`.

use std::collections::HashMap;

use rusqlite::params;
use serde_json::Value;

use super::query::{History, HistoryError, kept_tool};
use crate::api::{Limit, REVIEWS_MAX, ReviewDocument, ReviewsDocument, ReviewsQuery};
use crate::history::{KeptTool, ToolEvent, ToolRow, rfc3339_millis};

/// The reviews are few among many rows, and are listed without the others.
pub(super) const SCHEMA: &str = "
    CREATE INDEX codex_tool_events_of_reviews ON codex_tool_events (id) WHERE item_type = 'autoApprovalReview';
";

/// The rows of at most `?3` reviews that have a row since `?1`, newest first. All their rows come, also older ones. A review is
/// denied if a row says so, or that a person overruled it.
const REVIEWS: &str = "
    SELECT * FROM codex_tool_events WHERE item_type = 'autoApprovalReview' AND item_id IN (
        SELECT item_id FROM codex_tool_events WHERE item_type = 'autoApprovalReview' AND created_at >= ?1
        AND (?2 OR approval_decision IN ('denied', 'overruled')) GROUP BY item_id ORDER BY max(id) DESC LIMIT ?3)
    ORDER BY id DESC";

impl History {
    /// The newest reviews, oldest first.
    pub fn reviews(&self, query: &ReviewsQuery, opened: u64) -> Result<ReviewsDocument, HistoryError> {
        let is_all = query.all == Some(true);
        let since = query.since.map(|since| since.to_string()).unwrap_or_default();
        let limit = query.limit.map_or(REVIEWS_MAX, |Limit(limit)| limit) as i64;
        let mut reviews = self.read(opened, |connection| {
            let mut select = connection.prepare_cached(REVIEWS)?;
            let rows = select.query_map(params![since, is_all, limit], kept_tool)?;
            // One row at a time is in memory.
            joined(rows.filter_map(Result::transpose))
        })?;
        reviews.retain(|review| is_all || review.status == "denied");
        reviews.reverse();
        Ok(ReviewsDocument { reviews })
    }
}

/// The reviews of these rows, which come newest first; so do the reviews.
fn joined<E>(rows: impl Iterator<Item = Result<KeptTool, E>>) -> Result<Vec<ReviewDocument>, E> {
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut reviews: Vec<ReviewDocument> = Vec::new();
    for kept in rows {
        let KeptTool { session_id, row } = kept?;
        let Some(review_id) = row.item_id.clone() else { continue };
        let index = *known.entry(review_id.clone()).or_insert_with(|| {
            reviews.push(empty(review_id, session_id, &row));
            reviews.len() - 1
        });
        take(&mut reviews[index], row);
    }
    Ok(reviews)
}

fn empty(review_id: String, session_id: String, row: &ToolRow) -> ReviewDocument {
    ReviewDocument {
        review_id,
        session_id,
        thread_id: row.thread_id.clone(),
        turn_id: row.turn_id.clone(),
        item_id: None,
        status: String::new(),
        subject: None,
        cwd: None,
        file_path: None,
        reason: None,
        risk_level: None,
        started_at: rfc3339_millis(row.at_us),
        decided_at: None,
        overruled_at: None,
    }
}

/// Adds what a row says; newer rows were added before.
fn take(review: &mut ReviewDocument, row: ToolRow) {
    let at = rfc3339_millis(row.at_us);
    let payload: Value = row.raw_payload_json.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default();
    let word = |value: &Value| value.as_str().map(str::to_owned);
    let fill = |column: &mut Option<String>, value: Option<String>| *column = column.take().or(value);
    let file = row.file_path.as_deref().map(|file| match row.diff_summary.as_deref() {
        Some(more) => format!("change {file} ({more})"),
        None => format!("change {file}"),
    });
    fill(&mut review.subject, row.command.or(file));
    fill(&mut review.cwd, row.cwd);
    fill(&mut review.file_path, row.file_path);
    fill(&mut review.item_id, word(&payload["targetItemId"]));
    match row.event_type {
        ToolEvent::Overruled => {
            fill(&mut review.overruled_at, Some(at));
            if review.status.is_empty() {
                // Its own rows were deleted with old age.
                review.status = "denied".to_owned();
            }
        }
        ToolEvent::Started => {
            review.started_at = at;
            if review.decided_at.is_none() && review.overruled_at.is_none() {
                review.status = "in_progress".to_owned();
            }
        }
        event @ (ToolEvent::RequestApproval
        | ToolEvent::ApprovalDecision
        | ToolEvent::RequestUserInput
        | ToolEvent::UserInputSubmitted
        | ToolEvent::OutputDelta
        | ToolEvent::Completed
        | ToolEvent::Failed
        | ToolEvent::Interrupted
        | ToolEvent::Cancelled
        | ToolEvent::Declined
        | ToolEvent::Timeout) => {
            let took_us = row.latency_ms.unwrap_or_default().saturating_mul(1_000);
            review.started_at = rfc3339_millis(row.at_us.saturating_sub(took_us));
            fill(&mut review.decided_at, Some(at));
            review.status = row.approval_decision.unwrap_or_else(|| event.name().to_owned());
            fill(&mut review.reason, row.error_message);
            fill(&mut review.risk_level, word(&payload["review"]["riskLevel"]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Phase;

    fn row(at_ms: u64, event_type: ToolEvent, decision: Option<&str>) -> KeptTool {
        let text = |text: &str| Some(text.to_owned());
        let row = ToolRow {
            at_us: at_ms * 1_000,
            thread_id: text("t"),
            turn_id: text("u"),
            item_id: text("r"),
            request_id: None,
            event_type,
            item_type: text("autoApprovalReview"),
            phase: Phase::Pre,
            command: text("ls"),
            cwd: text("/w"),
            exit_code: None,
            file_path: None,
            diff_summary: None,
            approval_decision: decision.map(str::to_owned),
            latency_ms: decision.map(|_| 4),
            final_status: None,
            error_code: None,
            error_message: decision.filter(|decision| *decision == "denied").map(|_| "no".to_owned()),
            raw_payload_json: text(r#"{"targetItemId":"i","review":{"riskLevel":"high"}}"#),
        };
        KeptTool { session_id: "s".to_owned(), row }
    }

    #[test]
    fn rows_of_a_review_are_joined() {
        let start = || row(1, ToolEvent::Started, None);
        let denied = || row(5, ToolEvent::Declined, Some("denied"));
        let overruled = || row(9, ToolEvent::Overruled, None);
        // The rows come newest first.
        let joined = |rows: Vec<KeptTool>| joined(rows.into_iter().map(Ok::<_, ()>)).unwrap_or_default();
        let one = |rows: Vec<KeptTool>| match &joined(rows)[..] {
            [one] => one.clone(),
            others => panic!("{others:#?}"),
        };
        let check = |rows: Vec<KeptTool>, status: &str, decided: bool, overruled: bool| {
            let review = one(rows);
            let told = (&*review.status, review.decided_at.is_some(), review.overruled_at.is_some());
            assert_eq!(told, (status, decided, overruled), "{review:#?}");
            assert_eq!((review.subject.as_deref(), &*review.session_id), (Some("ls"), "s"));
        };
        check(vec![start()], "in_progress", false, false);
        check(vec![denied(), start()], "denied", true, false);
        check(vec![denied()], "denied", true, false);
        check(vec![overruled(), denied(), start()], "denied", true, true);
        check(vec![overruled()], "denied", false, true);
        check(vec![row(5, ToolEvent::Interrupted, None), start()], "interrupted", true, false);
        let review = one(vec![denied(), start()]);
        assert_eq!(review.started_at, rfc3339_millis(1_000));
        let words = [review.reason, review.risk_level, review.item_id];
        assert_eq!(words.map(Option::unwrap_or_default), ["no", "high", "i"]);
    }
}
