//! What the deliberately broken hubs do to messages.

use codex_shim::testing::engine::{Effect, LinkEffect};
use codex_shim::testing::wire::Conn;

use super::super::canary::Canary;
use super::super::lines::Message;
use super::world::HubWorld;

impl HubWorld {
    /// Whether a client other than the first one gets a message.
    pub fn is_bystander(&self, conn: Conn) -> bool {
        let first = self.hub.as_ref().and_then(|hub| hub.keys.keys().copied().find(|conn| *conn != Conn::OWN));
        first != Some(conn)
    }

    /// Whether a hub believes that the earlier one has sent this answer, which was stored.
    pub fn trusts_earlier_hub(&self, line: &[u8]) -> bool {
        let answered = Message::read(line).as_ref().and_then(Message::answer).map(|(id, _)| id);
        let name = answered.and_then(|id| self.referee.name_of(id));
        self.house.canary == Canary::TrustsEarlierHub && name.is_some_and(|name| self.ledger.had_ended(name))
    }

    /// Some canaries take back no answers, or others.
    pub fn recalled_by_canary(&mut self, effects: &mut Vec<Effect>) {
        let canary = self.house.canary;
        match canary {
            Canary::HubKeepsAnswers => effects.retain(|effect| !matches!(effect, Effect::Link(LinkEffect::Recall(_)))),
            Canary::HubRecallsWanted if self.dice().once_in(20) => {
                let wanted = self.hub.iter().flat_map(|hub| hub.marks.first().copied());
                effects.extend(wanted.map(|token| Effect::Link(LinkEffect::Recall(token))));
            }
            _ => {}
        }
    }
}
