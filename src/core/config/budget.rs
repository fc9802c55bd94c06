//! The settings of the token budget: `[budget]`.

use super::kind::{optional_count, word};
use super::{choice, section};
use crate::engine::BudgetLimits;

choice! {
    /// What happens at a limit.
    pub enum BudgetAction {
        /// The next turn waits for the answer of a person.
        #[default]
        Ask = "ask",
        /// `on_budget` runs.
        Warn = "warn",
    } else |text| format!("`{text}` is neither `ask` nor `warn`")
}

section! {
    pub struct BudgetChoice of "budget", such as "tokens_per_day = 5000000" {
        /// Tokens of all turns that began today; `None` is no limit.
        tokens_per_day: Option<usize> = optional_count(), "CODEX_SHIM_BUDGET_TOKENS_PER_DAY";
        /// The same for each client.
        per_client: Option<usize> = optional_count(), "CODEX_SHIM_BUDGET_PER_CLIENT";
        /// Tokens of one turn.
        per_turn: Option<usize> = optional_count(), "CODEX_SHIM_BUDGET_PER_TURN";
        action: BudgetAction = word(), "CODEX_SHIM_BUDGET_ACTION";
    }
}

impl BudgetChoice {
    pub fn limits(&self) -> BudgetLimits {
        let tokens = |setting: &super::Setting<Option<usize>>| setting.value.map(|tokens| tokens as u64);
        BudgetLimits {
            per_day: tokens(&self.tokens_per_day),
            per_client: tokens(&self.per_client),
            per_turn: tokens(&self.per_turn),
        }
    }

    /// Whether turns wait for a person at a limit.
    pub fn asks(&self) -> bool {
        self.limits().are_set() && self.action.value == BudgetAction::Ask
    }
}
