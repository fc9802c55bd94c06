//! What the deliberately broken relays do: what the engine is told, what it decides, and what is done about it.

use std::fs;

use codex_shim::testing::driver::Host as _;
use codex_shim::testing::engine::{Decision, Effect, Input, LedgerEntry, LinkEffect, Now, OwnLine, Passage};
use codex_shim::testing::journal::SegmentName;
use codex_shim::testing::wire::{Line, Side};
use serde_json::Value;

use super::canary::Canary;
use super::happened::Event;
use super::rules::Does;
use super::world::{STEPS, World};

impl World {
    /// The change that some canaries make to a decision.
    pub fn go_wrong(&mut self, from: Side, line: Line<'_>, decision: &mut Decision) {
        let is_last = self.happened.times(Event::Step) == STEPS;
        let answers = from == Side::Client && decision.mark.is_some();
        let to = if from == Side::Client { Side::Server } else { Side::Client };
        let Some(form) = decision.record.clone() else { return };
        let own = |bytes: Vec<u8>| Passage::Replace(OwnLine { to, form: form.clone(), bytes });
        match self.canary {
            Canary::AnswersTwice if answers && decision.line == Passage::Forward => {
                self.run.iter_mut().for_each(|run| run.copied = Some((to, line.bytes.to_vec())));
            }
            Canary::SaysTwice if from == Side::Server && self.dice.once_in(50) => {
                self.run.iter_mut().for_each(|run| run.copied = Some((to, line.bytes.to_vec())));
            }
            Canary::LosesTheClientsLast if is_last && from == Side::Client => decision.line = Passage::Withhold,
            Canary::LosesTheServersLast if is_last && from == Side::Server => decision.line = Passage::Withhold,
            Canary::AltersAnswers if answers && decision.line == Passage::Forward => {
                decision.line = own(String::from_utf8_lossy(line.bytes).replace("nth", "9th").into_bytes());
            }
            Canary::SwallowsAnswers if answers => decision.line = Passage::Withhold,
            Canary::SwallowsSecondAnswers if from == Side::Client && self.referee.is_second(line.bytes) => {
                decision.line = Passage::Withhold;
            }
            Canary::ShowsRuled if self.referee.is_ruled(line.bytes) => decision.line = Passage::Forward,
            Canary::ShowsUnkept if from == Side::Server => decision.hold = None,
            Canary::SendsUnkept if answers => decision.hold = None,
            Canary::ShowsEnvelopes if from == Side::Server && matches!(decision.line, Passage::Replace(_)) => {
                decision.line = Passage::Forward;
            }
            Canary::PrintsAgain if decision.line == Passage::Forward => {
                if let Ok(value) = serde_json::from_slice::<Value>(line.bytes) {
                    decision.line = own(value.to_string().into_bytes());
                }
            }
            Canary::Overtakes if from == Side::Server => self.overtake(line, decision, own),
            Canary::MixesLines if from == Side::Client && decision.line == Passage::Forward => {
                let (start, end) = line.bytes.split_at(line.bytes.len() / 2);
                let is_text = format!("{form:?}") == "Text" && !start.is_empty();
                let ours = self.run.as_mut().and_then(|run| run.overtaken.take_if(|_| is_text));
                if let Some(ours) = ours {
                    decision.line = own([start, &ours.bytes, b"\n", end].concat());
                }
            }
            _ => {}
        }
    }

    /// Lets a line that should wait behind a request overtake it.
    fn overtake(&mut self, line: Line<'_>, decision: &mut Decision, own: impl Fn(Vec<u8>) -> Passage) {
        let Some(run) = &mut self.run else { return };
        if decision.line != Passage::Forward {
            return;
        }
        match (decision.hold.is_some(), run.overtaken.take()) {
            (true, None) => {
                if let Passage::Replace(line) = own(line.bytes.to_vec()) {
                    run.overtaken = Some(line);
                    (decision.line, decision.hold) = (Passage::Withhold, None);
                }
            }
            (_, Some(overtaken)) => decision.line = own([line.bytes, &overtaken.bytes].join(&b'\n')),
            (false, None) => {}
        }
    }

    /// What some canaries leave out of the effects of a line, or do instead.
    pub fn spoil(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let (begins, delays) = (self.canary == Canary::RecallsBegun, self.canary == Canary::RecallsLast);
        if self.canary != Canary::KeepsAnswers && !begins && !delays {
            return;
        }
        let recalls = effects.extract_if(.., |effect| matches!(effect, Effect::Link(LinkEffect::Recall(_))));
        for recall in recalls.collect::<Vec<Effect>>() {
            match recall {
                Effect::Link(LinkEffect::Recall(token))
                    if begins && self.run.as_ref().is_some_and(|run| run.begun.contains(&token)) =>
                {
                    self.handle(now, Input::Recalled(token), effects);
                }
                recall if begins => effects.push(recall),
                recall if delays => self.delay(recall, 3),
                _ => {}
            }
        }
    }

    /// Other effects are carried out before this one.
    fn delay(&mut self, effect: Effect, effects: u32) {
        if let Some(run) = &mut self.run {
            run.delayed.0.push(effect);
            run.delayed.1 = effects;
        }
    }

    /// Gives delayed effects back.
    pub fn give_back(&mut self, effects: &mut Vec<Effect>) {
        if let Some(run) = &mut self.run {
            match run.delayed.1 {
                0 => effects.append(&mut run.delayed.0),
                _ => run.delayed.1 -= 1,
            }
        }
    }

    /// Lines of ours that are not sent yet are not among the effects in which they are looked for.
    pub fn hides_injections(&mut self, effects: &mut Vec<Effect>) {
        if self.canary == Canary::HidesInjections && self.run.as_ref().is_some_and(|run| run.is_reading) {
            let injections = effects.extract_if(.., |effect| matches!(effect, Effect::Link(LinkEffect::Inject(_))));
            injections.collect::<Vec<_>>().into_iter().for_each(|injection| self.delay(injection, 1));
        }
    }

    /// Whether a line of ours is kept for the middle of the next line of the client.
    pub fn mixes_lines(&mut self, lines: &mut Vec<OwnLine>) -> bool {
        let run = self.run.as_mut().filter(|run| self.canary == Canary::MixesLines && run.overtaken.is_none());
        run.is_some_and(|run| {
            run.overtaken = lines.pop();
            true
        })
    }

    /// What goes ahead of a turn follows it.
    pub fn calls_after_turn(&self, line: &[u8], decision: &mut Decision) {
        if self.canary == Canary::CallsAfterTurns
            && decision.line == Passage::Forward
            && let Some(ahead) = decision.before.pop()
        {
            decision.before.push(OwnLine { bytes: line.to_vec(), ..ahead.clone() });
            decision.line = Passage::Replace(ahead);
        }
    }

    /// A mark counts as written before anything is.
    pub fn reports_too_early(&mut self, now: Now, decision: &Decision, effects: &mut Vec<Effect>) {
        if let Some(mark) = decision.mark.filter(|_| self.canary == Canary::ReportsTooEarly)
            && let Some(run) = &mut self.run
        {
            run.engine.handle(now, Input::Written(mark), effects);
        }
    }

    /// The line that the engine gets instead.
    pub fn misread(&self, from: Side, line: &[u8]) -> Option<Vec<u8>> {
        let text = std::str::from_utf8(line).ok().filter(|_| from == Side::Server)?;
        match self.canary {
            Canary::AnswersOthers => Some(text.replace("\"/bin/ls -la\"", "\"/bin/ls -l\"").into_bytes()),
            Canary::AcceptsUnknown if self.referee.is_unknown(line) => {
                Some(text.replace("\"threadId\":\"t1\"", "\"threadId\":\"t0\"").into_bytes())
            }
            _ => None,
        }
    }

    /// What the engine hears instead.
    pub fn misheard(&self, now: Now, input: Input) -> (Now, Input) {
        let input = match input {
            Input::ProgramChecked { token, .. } if self.canary == Canary::AcceptsUnchecked => {
                Input::ProgramChecked { token, checked: Ok("/bin/ls".to_owned()) }
            }
            input => input,
        };
        (now, input)
    }

    /// Changes the answer that a rule gives, or lets a rule give one that has none.
    pub fn ruled_by_canary(&self, entry: &mut LedgerEntry) {
        let LedgerEntry::RequestEnded(end) = entry else { return };
        match self.canary {
            Canary::AnswersOtherwise if end.by.as_deref() == Some(Does::Decline.by()) => {
                end.payload = Some(Does::Accept.payload().to_owned());
            }
            Canary::AnswersHeld if self.referee.is_held(&end.request_id) => end.by = Some(Does::Hold.by().to_owned()),
            _ => {}
        }
    }

    /// Opens a request again that the client has answered.
    pub fn reopened_by_canary(&mut self) {
        let Some(run) = self.run.as_mut().filter(|_| self.canary == Canary::Reopens) else { return };
        let Some((_, LedgerEntry::RequestEnded(end))) = run.orders.back() else { return };
        let reopened = LedgerEntry::RequestReopened { request_id: end.request_id.clone(), by: "rule:list".to_owned() };
        run.orders.push_back((super::shim::Told::Nothing, reopened));
    }

    /// Puts a line that replaces another on record before that.
    pub fn recorded_by_canary(&mut self) {
        if self.canary != Canary::RecordsBackwards {
            return;
        }
        let Some(name) = SegmentName::list(&self.journal()).ok().and_then(|mut names| names.pop()) else { return };
        let path = self.journal().join(name.to_string());
        let text = fs::read(&path).expect("it is there");
        let mut lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        let replaces = |line: &&[u8]| String::from_utf8_lossy(line).contains("\"replaces\":true,");
        if let Some(at) = lines.iter().rposition(replaces).filter(|at| *at > 0) {
            lines.swap(at - 1, at);
            fs::write(&path, lines.concat()).expect("it can be written");
        }
    }
}
