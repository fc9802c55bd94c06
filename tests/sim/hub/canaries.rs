//! What the deliberately broken hubs do to messages.

use codex_shim::testing::engine::{Decision, Effect, Input, LinkEffect, Now, OwnLine};
use codex_shim::testing::wire::{Conn, Side};
use serde_json::{Value, json};

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

    /// Some canaries take back no answers, or others, or late.
    pub fn spoil(&mut self, effects: &mut Vec<Effect>) {
        let is_recall = |effect: &mut Effect| matches!(effect, Effect::Link(LinkEffect::Recall(_)));
        let canary = self.house.canary;
        match canary {
            Canary::HubKeepsAnswers => effects.retain_mut(|effect| !is_recall(effect)),
            Canary::HubRecallsWanted if self.dice().once_in(20) => {
                let wanted = self.hub.iter().flat_map(|hub| hub.marks.first().copied());
                effects.extend(wanted.map(|token| Effect::Link(LinkEffect::Recall(token))));
            }
            Canary::HubRecallsLast => {
                let recalls: Vec<Effect> = effects.extract_if(.., is_recall).collect();
                recalls.into_iter().for_each(|recall| self.delay(recall));
            }
            _ => {}
        }
    }

    /// Another effect is carried out before this one.
    fn delay(&mut self, effect: Effect) {
        if let Some(hub) = &mut self.hub {
            hub.delayed.0.push(effect);
            hub.delayed.1 = 1;
        }
    }

    /// Gives delayed effects back.
    pub fn give_back(&mut self, effects: &mut Vec<Effect>) {
        if let Some(hub) = &mut self.hub {
            match hub.delayed.1 {
                0 => effects.append(&mut hub.delayed.0),
                _ => hub.delayed.1 -= 1,
            }
        }
    }

    /// Lines of ours that are not sent yet are not among the effects in which they are looked for.
    pub fn hides_injections(&mut self, effects: &mut Vec<Effect>) {
        if self.house.canary == Canary::HubHidesInjections && self.hub.as_ref().is_some_and(|hub| hub.is_reading) {
            let injections = effects.extract_if(.., |effect| matches!(effect, Effect::Link(LinkEffect::Inject(_))));
            injections.collect::<Vec<_>>().into_iter().for_each(|injection| self.delay(injection));
        }
    }

    /// What the engine hears instead, if it does.
    pub fn misheard(&self, input: Input) -> Option<Input> {
        match (self.house.canary, input) {
            (Canary::ForgetsLostMarks, Input::NotWritten(_)) => None,
            (Canary::MisnamesCarrier, Input::SentOver { mark, conn }) => {
                let conns = self.hub.iter().flat_map(|hub| hub.keys.keys().copied());
                let other = conns.filter(|other| *other != conn).max().unwrap_or(conn);
                Some(Input::SentOver { mark, conn: other })
            }
            (_, input) => Some(input),
        }
    }

    /// The line that the engine reads instead on the hub's own connection.
    pub fn misread(&self, conn: Conn, from: Side, line: &[u8]) -> Option<Vec<u8>> {
        if self.house.canary != Canary::BelievesFlags || (conn, from) != (Conn::OWN, Side::Server) {
            return None;
        }
        let mut message: Value = serde_json::from_slice(line).ok()?;
        let status = message.pointer_mut("/result/thread/status")?;
        let names_nothing = status["activeFlags"].as_array().is_some_and(Vec::is_empty);
        *status = names_nothing.then(|| json!({"type": "idle"}))?;
        Some(message.to_string().into_bytes())
    }

    /// A mark counts as written before anything is.
    pub fn reports_too_early(&mut self, now: Now, decision: &Decision, effects: &mut Vec<Effect>) {
        if let Some(mark) = decision.mark.filter(|_| self.house.canary == Canary::HubReportsTooEarly)
            && let Some(hub) = &mut self.hub
        {
            hub.engine.handle(now, Input::Written(mark), effects);
        }
    }

    /// Whether lines that waited for their context are lost because their client has left.
    pub fn loses_held(&self, conn: Conn) -> bool {
        let has_left = |hub: &super::shim::Hub| hub.ending.contains_key(&conn);
        self.house.canary == Canary::LosesHeld && self.hub.as_ref().is_some_and(has_left)
    }

    /// The next batches are recorded on this connection, whosever lines they have.
    pub fn records_held_on(&mut self, conn: Option<Conn>, batches: usize) {
        if let Some(hub) = self.hub.as_mut().filter(|_| self.house.canary == Canary::RecordsHeldOnOne && batches > 1) {
            hub.recorded_on = conn.map(|conn| (conn, batches - 1));
        }
    }

    /// All clients get a withheld line.
    pub fn passes_late_to_all(&self, conns: &mut Vec<Conn>) {
        if self.house.canary == Canary::PassesLateToAll {
            let all = self.hub.iter().flat_map(|hub| hub.keys.keys().copied());
            *conns = all.filter(|conn| *conn != Conn::OWN).collect();
        }
    }

    /// Whether an answer goes over a connection that the server has not initialized.
    pub fn answers_nowhere(&mut self, lines: &mut Vec<OwnLine>) -> bool {
        let is_answer = |line: &OwnLine| Message::read(&line.bytes).is_some_and(|message| message.answer().is_some());
        if self.house.canary != Canary::AnswersNowhere || !lines.first().is_some_and(is_answer) {
            return false;
        }
        let deaf = self.referee.wires.iter().find(|(_, wire)| !wire.is_initialized && !wire.has_left);
        let (Some((conn, _)), Some(hub)) = (deaf, &mut self.hub) else { return false };
        hub.misdelivered = lines.pop().map(|line| (Conn(*conn), Side::Server, line.bytes));
        true
    }
}
