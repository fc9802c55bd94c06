//! Rules of the user, as the referee sees them: a request on which one of them decides is hidden until it gives up.

use std::time::Duration;

use codex_shim::testing::engine::{RequestSource, Token};
use serde_json::Value;

use super::asked::{Asked, Decider, Deciding, Shown, State};
use super::happened::Event;
use super::lines::Message;
use super::referee::{About, Referee};
use super::rules::{Does, Ruling};

impl Referee {
    /// What the rules say about a new request: nothing while answers cannot be stored.
    pub fn ruling(&self, params: &Value) -> Ruling {
        let decide = self.habits.has_rules && !self.is_distrusting;
        if decide { Ruling::of(params, &self.threads) } else { Ruling::default() }
    }

    /// The server describes a thread, and perhaps more places where models may write. Programs that are being checked may lie there.
    pub fn learns_thread(&mut self, message: &Message<'_>) {
        if self.threads.learn(message) {
            self.asked.values_mut().filter_map(|asked| asked.rule.as_mut()).for_each(|rule| rule.is_moved = true);
        }
    }

    /// Whether a line is a request that a rule may answer.
    pub fn is_ruled(&self, line: &[u8]) -> bool {
        self.asked_in(line).is_some_and(|asked| asked.rule.is_some())
    }

    /// Whether a line is a request that a rule would accept if its thread were known as the first one is.
    pub fn is_unknown(&self, line: &[u8]) -> bool {
        self.threads.are_known("t0") && self.asked_in(line).is_some_and(|asked| asked.ruling.is_unknown)
    }

    /// Whether a rule holds a request back.
    pub fn is_held(&self, name: &str) -> bool {
        self.asked.values().any(|asked| asked.name == name && asked.ruling.does == Some(Does::Hold))
    }

    /// The last request that came in this line.
    fn asked_in(&self, line: &[u8]) -> Option<&Asked> {
        let id = Message::read(line).filter(|message| message.method.is_some())?.id?.as_u64()?;
        self.asked.get(&id).filter(|asked| asked.line == line)
    }

    /// The check of a program begins: for a request that a rule may accept.
    pub fn check_begins(&mut self, token: Token, line: &[u8]) -> Result<(), String> {
        let id = Message::read(line).and_then(|message| message.id?.as_u64());
        let Some(asked) = id.and_then(|id| self.asked.get_mut(&id)) else {
            return Err("3: a rule answers what it does not match: no request".to_owned());
        };
        match asked.rule.as_mut().filter(|rule| rule.is_checking) {
            Some(rule) => rule.check = Some(token),
            None => return asked.ruling.allows(&asked.name, Does::Accept.by(), None),
        }
        Ok(())
    }

    /// The check of a program has ended.
    pub fn checked(&mut self, now: Duration, token: Token, succeeds: bool) {
        self.rules_tire(now);
        let is_its = |asked: &Asked| asked.is_open && asked.rule.as_ref().is_some_and(|rule| rule.check == Some(token));
        let Some((id, asked)) = self.asked.iter_mut().find(|(_, asked)| is_its(asked)) else { return };
        let (id, Some(rule)) = (*id, &mut asked.rule) else { return };
        (rule.is_checking, rule.check) = (false, None);
        match (&asked.state, succeeds && !rule.is_moved) {
            // Somebody else has answered meanwhile.
            (State::Deciding(_) | State::Answered | State::Expired | State::PolicySpoke, _) => asked.rule = None,
            (State::Pending, true) => {
                let payload = Does::Accept.payload().to_owned();
                asked.ruling.is_checked = true;
                asked.state = State::Deciding(Box::new(Deciding::new(Decider::Rule(Does::Accept), payload)));
            }
            (State::Pending, false) => {
                self.happened.count(Event::FailedCheck);
                self.rule_gives_up(id);
            }
        }
    }

    /// Rules that have taken too long give up. A decline that is being stored still counts, an accept does not.
    pub fn rules_tire(&mut self, now: Duration) {
        let is_due = |asked: &Asked| asked.is_open && asked.rule.as_ref().is_some_and(|rule| rule.due <= now);
        let mut due: Vec<(usize, u64)> =
            self.asked.iter().filter(|(_, asked)| is_due(asked)).map(|(id, asked)| (asked.arrival, *id)).collect();
        due.sort_unstable();
        for (_, id) in due {
            self.happened.count(Event::TiredRule);
            let asked = self.asked.get_mut(&id).expect("it was looked for");
            let is_accept = |deciding: &Deciding| deciding.by == Decider::Rule(Does::Accept) && deciding.over.is_none();
            if matches!(&asked.state, State::Deciding(deciding) if is_accept(deciding))
                && let State::Deciding(deciding) = std::mem::replace(&mut asked.state, State::Pending)
            {
                self.is_distrusting = true;
                asked.overtaken.push(deciding.payload);
                if let Some((line, payload)) = deciding.runner_up {
                    asked.wins(RequestSource::Client, payload, true);
                    self.ours.push(line);
                }
                self.commits.retain(|_, (of, _, about)| *of != id || *about != About::Decision);
            }
            self.rule_gives_up(id);
        }
    }

    /// Nobody but the client and API callers decides on a request any more.
    pub fn rule_gives_up(&mut self, id: u64) {
        let Some(asked) = self.asked.get_mut(&id) else { return };
        asked.rule = None;
        let is_its = |name: &String, about: About| *name == asked.name && about == About::Opening;
        if !self.commits.values().any(|(_, name, about)| is_its(name, *about)) && asked.shown == Shown::NotYet {
            self.settles(id);
        }
    }

    /// The row of a request is stored, and no rule is at work: the client gets it if it still waits, unless it is not asked at all.
    pub fn settles(&mut self, id: u64) {
        let Some(asked) = self.asked.get_mut(&id).filter(|asked| asked.shown == Shown::NotYet) else { return };
        if asked.waits() && !asked.is_held {
            self.happened.count(Event::ShownAfterRule);
            self.shows(id);
        } else {
            asked.shown = Shown::Never;
        }
    }
}
