//! What the deliberately broken hubs do to messages.

use codex_shim::testing::engine::Token;
use codex_shim::testing::wire::{Conn, Side};

use super::super::canary::Canary;
use super::super::lines::Message;
use super::link::{Link, Piece};
use super::world::HubWorld;

impl HubWorld {
    /// Whether a client other than the first one gets a message.
    pub fn is_bystander(&self, conn: Conn) -> bool {
        let first = self.hub.as_ref().and_then(|hub| hub.links.keys().copied().find(|conn| *conn != Conn::OWN));
        first != Some(conn)
    }

    /// Whether a hub believes that the earlier one has sent this answer, which was stored.
    pub fn trusts_earlier_hub(&self, line: &[u8]) -> bool {
        let answered = Message::read(line).as_ref().and_then(Message::answer).map(|(id, _)| id);
        let name = answered.and_then(|id| self.referee.name_of(id));
        self.house.canary == Canary::TrustsEarlierHub && name.is_some_and(|name| self.ledger.had_ended(name))
    }

    /// The answers that are taken back; some canaries leave them out, or add others.
    pub fn recalled_by_canary(&mut self, mut recalls: Vec<Token>) -> Vec<Token> {
        let canary = self.house.canary;
        match canary {
            Canary::HubKeepsAnswers => recalls.clear(),
            Canary::HubRecallsWanted if self.dice().once_in(20) => {
                let links = self.hub.iter().flat_map(|hub| hub.links.values());
                let mark = |link: &Link| {
                    let pieces = link.server.queue.iter();
                    pieces
                        .filter_map(|piece| if let Piece::Mark(token, _) = piece { Some(*token) } else { None })
                        .next()
                };
                recalls.extend(links.filter_map(mark).next());
            }
            _ => {}
        }
        recalls
    }

    /// The message that some canaries pass instead; `None` if they pass none.
    pub fn go_wrong(&mut self, conn: Conn, to: Side, line: Vec<u8>) -> Option<Vec<u8>> {
        let canary = self.house.canary;
        match canary {
            Canary::MixesClients if to == Side::Client && self.dice().once_in(40) => {
                let other =
                    self.hub.as_ref()?.links.keys().copied().find(|other| *other != Conn::OWN && *other != conn);
                if let Some(link) = other.and_then(|other| self.hub.as_mut()?.links.get_mut(&other)) {
                    link.push(to, Piece::Text(line));
                    return None;
                }
                Some(line)
            }
            _ => Some(line),
        }
    }
}
