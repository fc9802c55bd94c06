//! Checks of the turns that wait, and their release in the safe state.

use super::{Budget, BudgetUse, HeldThread, State, THREADS_MAX, Waiting};
use crate::engine::model::{Now, Token};
use crate::engine::requests::ErrorText;
use crate::engine::{Effect, Engine};
use crate::invariants::holds;
use crate::wire::Conn;

const OFF: ErrorText = ("budget_off", "codex-shim has found a defect in itself, so the turn has begun");

impl Budget {
    /// Checks the entries; tokens were issued up to `last_token`.
    pub(in crate::engine) fn check(&self, last_token: Token) {
        // Of each thread, one with turns, and one that goes on at once.
        holds!("budget.threads-within-limit", self.held.len() <= 2 * THREADS_MAX);
        for HeldThread { state, waiting, .. } in &self.held {
            let token = match state {
                State::Looks { token, .. } | State::Goes(token) => Some(*token),
                State::Asks { again, .. } => *again,
            };
            holds!("budget.tokens-were-issued", token.is_none_or(|token| (1..=last_token).contains(&token)));
            let looks = matches!(state, State::Looks { .. });
            holds!("budget.looks-for-something-that-waits", !looks || !waiting.is_empty());
            holds!("budget.only-turns-wait-for-people", !state.asks() || waiting.iter().all(Waiting::starts));
        }
    }

    /// The connections of all lines that wait.
    pub(in crate::engine) fn conns(&self) -> impl Iterator<Item = Conn> {
        self.held.iter().flat_map(|held| &held.waiting).filter_map(|waiting| match waiting {
            Waiting::Line { conn, .. } => Some(*conn),
            Waiting::Api(_) => None,
        })
    }
}

impl Engine {
    /// No turn waits for the budget any more, but for an answer that is being stored.
    pub(in crate::engine) fn let_turns_begin(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.budget.wanted = BudgetUse::default();
        self.budget.next_look = None;
        for at in (0..self.budget.held.len()).rev() {
            let goes = match &self.budget.held[at].state {
                State::Asks { id, .. } => {
                    let id = id.clone();
                    self.requests.own_is_over(now, &id, OFF, effects)
                }
                State::Looks { .. } => true,
                State::Goes(_) => false,
            };
            match goes {
                true if self.budget.held[at].waiting.is_empty() => drop(self.budget.held.remove(at)),
                true => self.goes(at, effects),
                false => {}
            }
        }
    }
}
