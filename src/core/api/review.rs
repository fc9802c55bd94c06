//! Reviews of codex's own reviewer.

use serde::{Deserialize, Serialize};

use super::parameter::{Limit, Moment, query};

/// Most reviews in a document.
pub const REVIEWS_MAX: u64 = 1_000;

query! {
    /// The newest reviews, oldest first.
    ReviewsQuery -> ReviewsDocument = "codex-reviews" {
        /// Not only denials.
        all: bool,
        /// Only those that began, were decided or overruled since then.
        since: Moment,
        limit: Limit<REVIEWS_MAX>,
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewsDocument {
    pub reviews: Vec<ReviewDocument>,
}

/// A review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewDocument {
    pub cwd: Option<String>,
    /// `null` while the review runs.
    pub decided_at: Option<String>,
    /// The first changed file.
    pub file_path: Option<String>,
    /// The item that the review is about; `null` for network access, or if the payload is too long to be stored whole.
    pub item_id: Option<String>,
    /// When a person overruled it.
    pub overruled_at: Option<String>,
    /// The reviewer's reason, if it did not approve.
    pub reason: Option<String>,
    pub review_id: String,
    pub risk_level: Option<String>,
    pub session_id: String,
    pub started_at: String,
    /// `in_progress`, `approved`, `denied`, `timed_out` or `aborted`; `failed` or `interrupted` if no end was reported.
    pub status: String,
    /// The command, or the action in words.
    pub subject: Option<String>,
    pub thread_id: Option<String>,
    pub turn_id: Option<String>,
}

/// The outcome of an overruled denial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverruledDocument {
    pub ok: bool,
    pub review_id: String,
    pub thread_id: String,
    /// The turn that learns of it; `null` if the next one does.
    pub turn_id: Option<String>,
}

impl ReviewDocument {
    /// When it ended or, if it runs, began.
    pub fn changed_at(&self) -> &str {
        self.decided_at.as_deref().unwrap_or(&self.started_at)
    }
}
