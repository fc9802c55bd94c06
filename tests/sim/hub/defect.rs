//! A hub finds a defect in itself: from then on it passes everything on, and decides nothing. It stays so after a handover, and with the
//! next server.

use codex_shim::testing::engine::{Decision, Effect, Input, LedgerEntry, Order, Passage, RequestSource, Token};
use codex_shim::testing::wire::Side;

use super::super::asked::{Decider, Shown};
use super::super::canary::Canary;
use super::super::happened::Event;
use super::super::lines::shown;
use super::super::referee::About;
use super::asked::State;
use super::referee::{Habits, Ours, Referee, RowNumber};
use super::world::HubWorld;

impl HubWorld {
    pub fn finds_defect(&mut self) {
        self.house.say(|| "it finds a defect in itself".to_owned());
        self.house.happened.count(Event::Defect);
        self.habits = Habits { adopts: self.habits.adopts, ..Habits::default() };
        let token = self.hub.as_ref().map_or(0, |hub| hub.engine.last_token());
        self.referee.finds_defect(self.habits, token);
        if self.house.canary != Canary::HubDecidesOn {
            self.tell(Input::Broken("test.defect".to_owned()));
        }
    }
}

impl Referee {
    /// Nobody but clients decides any more: what was hidden from them goes to them.
    fn finds_defect(&mut self, habits: Habits, last: Token) {
        self.defect_after = Some(last);
        self.habits = habits;
        self.held.give_up();
        let mut open: Vec<RowNumber> = self.open.values().copied().collect();
        open.sort_unstable();
        for number in open {
            let asked = &mut self.rows[number];
            let was_held = std::mem::take(&mut asked.is_held);
            asked.expires_at = None;
            if matches!(&asked.state, State::Deciding { by: Decider::Rule(_), is_over: None, .. })
                && let State::Deciding { payload, runner_up, .. } = std::mem::replace(&mut asked.state, State::Pending)
            {
                asked.overtaken.push(payload);
                if let Some((line, payload)) = runner_up {
                    asked.wins(RequestSource::Client, payload, true, self.newest);
                    self.ours.push(Ours::new(line, number));
                }
                self.commits.retain(|_, (of, about)| *of != number || *about != About::Decision);
            }
            // A request that was held is hidden for good only as long as something is decided.
            let asked = &mut self.rows[number];
            if was_held && asked.shown == Shown::Never {
                asked.shown = Shown::NotYet;
            }
            self.rule_gives_up(number);
        }
    }

    /// What is decided about a line is not more than to pass it on.
    pub fn passes_only(&self, from: Side, line: &[u8], decision: &Decision) -> Result<(), String> {
        let adds =
            !decision.before.is_empty() || (from == Side::Client && matches!(decision.line, Passage::Replace(_)));
        match adds && self.defect_after.is_some() {
            true => Err(format!("11: context is sent in spite of a defect, with {}", shown(line))),
            false => Ok(()),
        }
    }

    /// No rule and no expiry is at work. What was ordered before may still wait until the ledger is read.
    pub fn decides_nothing(&self, effects: &[Effect]) -> Result<(), String> {
        let Some(last) = self.defect_after else { return Ok(()) };
        let decides = |effect: &&Effect| match effect {
            Effect::CheckProgram(..) | Effect::RunFragments(..) => true,
            Effect::Order(Order::KeepFirst(token, LedgerEntry::RequestExpired { .. })) => *token > last,
            Effect::Order(Order::Commit(token, LedgerEntry::RequestEnded(end))) => {
                *token > last && end.by.as_deref().is_some_and(|by| by.starts_with("rule:"))
            }
            _ => false,
        };
        match effects.iter().find(decides) {
            Some(effect) => Err(format!("11: it decides in spite of a defect: {effect:?}")),
            None => Ok(()),
        }
    }
}
