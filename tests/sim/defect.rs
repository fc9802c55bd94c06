//! Codex-shim has found a defect in itself: from then on it passes everything on, and decides nothing.

use codex_shim::testing::engine::{Decision, Effect, Input, LedgerEntry, Order, Passage, RequestSource};
use codex_shim::testing::wire::Side;

use super::asked::{Decider, Shown, State};
use super::canary::Canary;
use super::dice::Dice;
use super::happened::Event;
use super::lines::shown;
use super::referee::{About, Habits, Referee};
use super::world::{STEPS, World};

/// The step in which a world finds a defect. It is not one of the world's own throws, so that other seeds stay what they were.
pub fn step_of_defect(seed: u64, canary: Canary) -> Option<u64> {
    let mut dice = Dice::new(seed ^ 0x5AFE_5AFE);
    let has_one = match canary {
        Canary::None => dice.once_in(5),
        Canary::DecidesOn | Canary::HubDecidesOn => true,
        _ => false,
    };
    has_one.then(|| dice.roll(STEPS))
}

impl World {
    pub fn finds_defect(&mut self) {
        self.say(|| "it finds a defect in itself".to_owned());
        self.happened.count(Event::Defect);
        self.referee.finds_defect();
        if self.canary != Canary::DecidesOn {
            self.tell(Input::Broken("test.defect".to_owned()));
        }
    }
}

impl Referee {
    /// Nobody but clients decides any more: what was hidden from the client goes to it.
    fn finds_defect(&mut self) {
        self.has_defect = true;
        self.habits = Habits::default();
        self.held.give_up();
        let mut open: Vec<(usize, u64)> = self.asked.iter().map(|(id, asked)| (asked.arrival, *id)).collect();
        open.sort_unstable();
        for (_, id) in open {
            let Some(asked) = self.asked.get_mut(&id).filter(|asked| asked.is_open) else { continue };
            let was_held = std::mem::take(&mut asked.is_held);
            asked.expires_at = None;
            if let State::Deciding(deciding) = &mut asked.state
                && matches!(deciding.by, Decider::Rule(_))
                && deciding.over.is_none()
                && let State::Deciding(deciding) = std::mem::replace(&mut asked.state, State::Pending)
            {
                asked.overtaken.push(deciding.payload);
                if let Some((line, payload)) = deciding.runner_up {
                    asked.wins(RequestSource::Client, payload, true);
                    self.ours.push(line);
                }
                self.commits.retain(|_, (of, _, about)| *of != id || *about != About::Decision);
            }
            // A request that was held is hidden for good only as long as something is decided.
            if let Some(asked) = self.asked.get_mut(&id).filter(|asked| was_held && asked.shown == Shown::Never) {
                asked.shown = Shown::NotYet;
            }
            self.rule_gives_up(id);
        }
    }

    /// What it has decided about a line and otherwise is not more than to pass it on.
    pub fn passes_only(&self, from: Side, line: &[u8], decision: &Decision, effects: &[Effect]) -> Result<(), String> {
        if !self.has_defect {
            return Ok(());
        }
        let adds =
            !decision.before.is_empty() || (from == Side::Client && matches!(decision.line, Passage::Replace(_)));
        if adds {
            return Err(format!("11: context is sent in spite of a defect, with {}", shown(line)));
        }
        self.decides_nothing(effects)
    }

    /// No rule and no expiry is at work.
    pub fn decides_nothing(&self, effects: &[Effect]) -> Result<(), String> {
        let decides = |effect: &&Effect| match effect {
            Effect::CheckProgram(..) | Effect::RunFragments(..) => true,
            Effect::Order(Order::KeepFirst(_, LedgerEntry::RequestExpired { .. })) => true,
            Effect::Order(Order::Commit(_, LedgerEntry::RequestEnded(end))) => {
                end.by.as_deref().is_some_and(|by| by.starts_with("rule:"))
            }
            _ => false,
        };
        match effects.iter().find(decides).filter(|_| self.has_defect) {
            Some(effect) => Err(format!("11: it decides in spite of a defect: {effect:?}")),
            None => Ok(()),
        }
    }
}
