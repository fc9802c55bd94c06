//! The usage of turns: tokens, times, commands and requests to a human; and the account of a thread, which shows that the tokens of
//! its turns add up to the total that codex reports.
//!
//! A row adds to the turn that it names. This module stores no sums: the index does, with [`Account::add`].

use serde::{Deserialize, Serialize};

use super::record_event::Params;
use super::turn::TurnEvent;
use crate::protocol::{Method, named, token_counts};

/// The largest count that is credible; a larger one counts as this, so that no sum overflows.
const COUNT_MAX: u64 = 1 << 47;

/// Tokens, as codex counts them: the input includes the cached input, and the output includes the reasoning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 5]", into = "[u64; 5]")]
pub struct Counts {
    pub input: u64,
    pub cached: u64,
    pub output: u64,
    pub reasoning: u64,
    pub total: u64,
}

impl From<[u64; 5]> for Counts {
    fn from([input, cached, output, reasoning, total]: [u64; 5]) -> Counts {
        Counts { input, cached, output, reasoning, total }
    }
}

impl From<Counts> for [u64; 5] {
    fn from(Counts { input, cached, output, reasoning, total }: Counts) -> [u64; 5] {
        [input, cached, output, reasoning, total]
    }
}

impl Counts {
    fn each(self, other: Counts, of: impl Fn(u64, u64) -> u64) -> Counts {
        let (left, right): ([u64; 5], [u64; 5]) = (self.into(), other.into());
        std::array::from_fn(|index| of(left[index], right[index])).into()
    }

    pub fn plus(self, more: Counts) -> Counts {
        self.each(more, u64::saturating_add)
    }

    /// The difference; a count that is smaller than the other one gives 0.
    pub fn minus(self, less: Counts) -> Counts {
        self.each(less, u64::saturating_sub)
    }

    pub(super) fn at_most(self, most: Counts) -> Counts {
        self.each(most, u64::min)
    }

    /// Whether no count is smaller than the other one.
    pub(super) fn has_all_of(self, other: Counts) -> bool {
        other.minus(self) == Counts::default()
    }

    /// Whether these are of a model call. After a compaction, codex reports an estimate of the context, with only a total.
    pub(super) fn are_of_call(self) -> bool {
        self.input > 0 || self.output > 0
    }
}

/// A report of codex on the tokens of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Report {
    /// The last model call.
    pub(super) last: Counts,
    /// All calls of the thread.
    pub(super) total: Counts,
}

impl Report {
    /// Reads a notification: the report, and its turn if the place of the notification does not name it.
    pub(super) fn of(method: Option<Method>, params: Params<'_>) -> Option<(Report, Option<String>)> {
        let (counts, turn_id) = token_counts(method, params.written())?;
        let [last, total] = counts.map(|counts| counts.map(|count| count.min(COUNT_MAX)).into());
        Some((Report { last, total }, turn_id))
    }
}

named! {
    /// The person or program that ended a request to a human.
    pub enum AnsweredBy {
        /// The client of the server.
        Client = "client",
        /// The terminal UI.
        Tui = "tui",
        /// The web page.
        Web = "web",
        /// `codex-shim respond`
        Cli = "cli",
        /// Another caller of the control socket.
        Api = "api",
        /// A rule of codex-shim, such as an expiry.
        Policy = "policy",
        /// Nobody: the server withdrew it, or ended before.
        Nobody = "nobody",
    }
}

impl AnsweredBy {
    /// From the status and the source in the note of an end; `None` if the note does not say it.
    pub(super) fn of(status: Option<&str>, source: Option<&str>) -> Option<AnsweredBy> {
        match (status, source?) {
            (Some("orphaned"), _) | (_, "server") => Some(AnsweredBy::Nobody),
            (_, "client") => Some(AnsweredBy::Client),
            (_, "tui") => Some(AnsweredBy::Tui),
            (_, "web") => Some(AnsweredBy::Web),
            (_, "cli") => Some(AnsweredBy::Cli),
            (_, "policy") => Some(AnsweredBy::Policy),
            (_, _) => Some(AnsweredBy::Api),
        }
    }
}

/// The usage that a record adds to a turn, or to a thread outside its turns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageRow {
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
    pub thread_id: Option<String>,
    /// `None` is outside of all turns.
    pub turn_id: Option<String>,
    /// The turn begins, in this run of the child. Another run may use the ids of turns again.
    pub begins_in: Option<String>,
    /// When it began, if this is known better than by its first row, in microseconds since the Unix epoch.
    pub began_us: Option<u64>,
    /// The client that started it.
    pub client: Option<String>,
    pub model: Option<String>,
    pub spent: Counts,
    /// The total of the thread that codex reports with it.
    pub total: Option<Counts>,
    /// Time with an open request to a human.
    pub waited_us: u64,
    /// Commands that have ended.
    pub commands: u64,
    /// Requests to a human.
    pub asked: u64,
    pub answered: Option<AnsweredBy>,
    /// The turn ended.
    pub outcome: Option<TurnEvent>,
}

/// The tokens of a thread. Always `turns + before + unseen = total + set_back`, where `turns` is the sum over its turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// As codex reported it last.
    pub total: Counts,
    /// Tokens that the thread had used before its first record here.
    pub before: Counts,
    /// Tokens that it used later while nothing was recorded.
    pub unseen: Counts,
    /// How far codex has set its own count back.
    pub set_back: Counts,
}

impl Account {
    /// The account after a report, of which `spent` belongs to a turn. `known` is that after the previous report.
    pub fn add(known: Option<Account>, spent: Counts, total: Counts) -> Account {
        let before = known.unwrap_or_default();
        let (expected, rest) = (before.total.plus(spent), |more: Counts, less: Counts| more.minus(less));
        let set_back = before.set_back.plus(rest(expected, total));
        let more = rest(total, expected);
        match known {
            None => Account { total, before: more, unseen: Counts::default(), set_back },
            Some(_) => Account { total, unseen: before.unseen.plus(more), set_back, ..before },
        }
    }

    /// Whether the tokens of the turns add up.
    pub fn is_met_by(&self, turns: Counts) -> bool {
        turns.plus(self.before).plus(self.unseen) == self.total.plus(self.set_back)
    }
}

/// One of the limits of the account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitRow {
    /// `primary` or `secondary`.
    pub name: &'static str,
    /// When it was reported, in microseconds since the Unix epoch.
    pub at_us: u64,
    pub used_percent: u64,
    pub window_minutes: Option<u64>,
    /// Seconds since the Unix epoch.
    pub resets_at: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_its_own_count() {
        let check =
            |status: &str, source: &str, expect| assert_eq!(AnsweredBy::of(Some(status), Some(source)), Some(expect));
        for by in AnsweredBy::ALL.into_iter().filter(|by| *by != AnsweredBy::Nobody) {
            check("resolved", by.name(), by);
            check("orphaned", by.name(), AnsweredBy::Nobody);
        }
        check("resolved", "server", AnsweredBy::Nobody);
        check("resolved", "a new one", AnsweredBy::Api);
        assert_eq!(AnsweredBy::of(Some("resolved"), None), None);
    }
}
