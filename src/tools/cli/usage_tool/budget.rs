//! What is used of the token budget, and what tokens cost by the user's prices.

use std::collections::BTreeSet;

use jiff::Zoned;
use serde_json::Value;

use super::super::screen::{self, Screen, Tone};
use crate::api::TurnUsage;
use crate::config::{Environment, Flags, Price, Settings};
use crate::engine::{BudgetLimit, Spent, grouped};
use crate::index::{BudgetState, budget_state, local_day};
use crate::store::Found;

/// The limits of today.
#[derive(Debug, Default)]
pub(super) struct Today {
    spent: Vec<Spent>,
    /// Sessions whose tokens do not count, and why.
    pub(super) unread: Vec<String>,
}

impl Today {
    /// What is used of the budget in all sessions of the home.
    pub(super) fn of(settings: &Settings) -> Today {
        let (day, since_us) = local_day(&Zoned::now());
        let limits = settings.budget.limits();
        if !limits.are_set() {
            return Today::default();
        }
        let sessions = settings.home.value.as_deref().and_then(|home| Found::all(home).ok()).unwrap_or_default();
        let BudgetState { spent, unread, .. } = budget_state(&sessions, limits, (&day, since_us), &BTreeSet::new());
        Today { spent, unread }
    }

    pub(super) fn documents(&self) -> Vec<Value> {
        self.spent.iter().map(Spent::document).collect()
    }

    /// A line for each limit; `None` if there is none.
    pub(super) fn lines(&self, to: Screen) -> Option<String> {
        let lines: Vec<String> = self.spent.iter().map(|spent| line(spent, to)).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

fn line(spent: &Spent, to: Screen) -> String {
    let percent = spent.percent();
    let tone = match percent {
        0..80 => Tone::Plain,
        80..100 => Tone::Warning,
        _ => Tone::Bad,
    };
    let of = match (spent.limit, &spent.client) {
        (BudgetLimit::Client, Some(client)) => format!("budget of {}", screen::plain(client)),
        (BudgetLimit::Day | BudgetLimit::Client | BudgetLimit::Turn, _) => "budget".to_owned(),
    };
    to.paint(tone, &format!("{of}: {} of {} tokens today ({percent} %)", grouped(spent.used), grouped(spent.most)))
}

/// What turns cost, as far as their models have prices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Millionths of the user's currency.
    micro: u64,
    /// Tokens of models without a price.
    unpriced: u64,
}

impl Cost {
    pub(super) fn add(&mut self, prices: &[Price], turn: &TurnUsage) {
        let tokens = turn.used.tokens;
        match prices.iter().find(|price| Some(&price.model) == turn.model.as_ref()) {
            Some(price) => {
                let cost = price.of(tokens.input_tokens, tokens.cached_input_tokens, tokens.output_tokens);
                self.micro = self.micro.saturating_add(cost);
            }
            None => self.unpriced = self.unpriced.saturating_add(tokens.total_tokens),
        }
    }

    pub(super) fn plus(self, more: Cost) -> Cost {
        let Cost { micro, unpriced } = self;
        Cost { micro: micro.saturating_add(more.micro), unpriced: unpriced.saturating_add(more.unpriced) }
    }

    /// In the currency, and the tokens that it leaves out.
    pub(super) fn members(self) -> [(&'static str, Value); 2] {
        [("cost", Value::from(self.micro as f64 / 1e6)), ("unpriced_tokens", Value::from(self.unpriced))]
    }

    /// `+` says that some tokens have no price.
    pub(super) fn text(self) -> String {
        let more = if self.unpriced > 0 { "+" } else { "" };
        let cents = self.micro.div_ceil(10_000);
        format!("{}.{:02}{more}", cents / 100, cents % 100)
    }
}

/// The settings that the usage needs.
pub(super) fn settings(environment: &Environment) -> Settings {
    Settings::load(Flags::default(), environment).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_in_words() {
        let check = |limit, client: Option<&str>, used, most, expect: &str| {
            let spent = Spent { limit, client: client.map(str::to_owned), day: String::new(), used, most };
            assert_eq!(line(&spent, Screen::None), expect);
        };
        check(BudgetLimit::Day, None, 812_000, 1_000_000, "budget: 812,000 of 1,000,000 tokens today (81 %)");
        check(BudgetLimit::Client, Some("a\u{1b}b"), 0, 0, "budget of a\u{fffd}b: 0 of 0 tokens today (100 %)");
    }

    #[test]
    fn costs_are_never_shown_too_low() {
        let check = |micro, unpriced, expect: &str| assert_eq!(Cost { micro, unpriced }.text(), expect);
        check(0, 0, "0.00");
        check(1, 0, "0.01");
        check(10_000, 0, "0.01");
        check(1_234_567, 7, "1.24+");
    }
}
