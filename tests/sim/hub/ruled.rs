//! Rules of the user, as the referee of a hub sees them, and requests that clients get only later.

use std::time::Duration;

use codex_shim::testing::engine::{RequestSource, Token};
use codex_shim::testing::wire::Conn;

use super::super::asked::{Decider, Shown};
use super::super::happened::Event;
use super::super::lines::Message;
use super::super::referee::About;
use super::super::rules::Does;
use super::asked::{Asked, State};
use super::referee::{Late, Ours, Referee, RowNumber};

impl Referee {
    /// The check of a program begins: for a request that a rule may accept.
    pub fn check_begins(&mut self, token: Token, line: &[u8]) -> Result<(), String> {
        let id = Message::read(line).and_then(|message| message.id?.as_u64());
        let Some(number) = id.and_then(|id| self.open.get(&id)) else {
            return Err("3: a rule answers what it does not match: no request".to_owned());
        };
        let asked = &mut self.rows[*number];
        match asked.rule.as_mut().filter(|rule| rule.is_checking) {
            Some(rule) => rule.check = Some(token),
            None => return asked.ruling.allows(&asked.id.to_string(), Does::Accept.by(), None),
        }
        Ok(())
    }

    /// The check of a program has ended.
    pub fn checked(&mut self, now: Duration, token: Token, succeeds: bool) {
        self.rules_tire(now);
        let is_its = |asked: &Asked| asked.rule.as_ref().is_some_and(|rule| rule.check == Some(token));
        let Some(number) = self.open.values().copied().find(|number| is_its(&self.rows[*number])) else { return };
        let asked = &mut self.rows[number];
        let Some(rule) = &mut asked.rule else { return };
        (rule.is_checking, rule.check) = (false, None);
        match (&asked.state, succeeds && !rule.is_moved) {
            // Somebody else has answered meanwhile.
            (State::Deciding { .. } | State::Answered | State::Expired | State::PolicySpoke, _) => asked.rule = None,
            (State::Pending, true) => {
                asked.ruling.is_checked = true;
                asked.state = State::deciding(Decider::Rule(Does::Accept), Does::Accept.payload().to_owned());
            }
            (State::Pending, false) => {
                self.happened.count(Event::FailedCheck);
                self.rule_gives_up(number);
            }
        }
    }

    /// Rules that have taken too long give up. A decline that is being stored still counts, an accept does not.
    pub fn rules_tire(&mut self, now: Duration) {
        let is_due = |asked: &Asked| asked.rule.as_ref().is_some_and(|rule| rule.due <= now);
        let mut due: Vec<RowNumber> =
            self.open.values().copied().filter(|number| is_due(&self.rows[*number])).collect();
        due.sort_unstable();
        for number in due {
            self.happened.count(Event::TiredRule);
            let asked = &mut self.rows[number];
            let is_accept =
                matches!(&asked.state, State::Deciding { by: Decider::Rule(Does::Accept), is_over: None, .. });
            if is_accept
                && let State::Deciding { payload, runner_up, .. } = std::mem::replace(&mut asked.state, State::Pending)
            {
                self.is_distrusting = true;
                asked.overtaken.push(payload);
                if let Some((line, payload)) = runner_up {
                    asked.wins(RequestSource::Client, payload, true, self.newest);
                    self.ours.push(Ours::new(line, number));
                }
                self.commits.retain(|_, (of, about)| *of != number || *about != About::Decision);
            }
            self.rule_gives_up(number);
        }
    }

    /// Nobody but clients and API callers decides on a request any more.
    pub fn rule_gives_up(&mut self, number: RowNumber) {
        self.rows[number].rule = None;
        if !self.commits.values().any(|(of, about)| *of == number && *about == About::Opening) {
            self.settles(number);
        }
    }

    /// The row of a request is stored, and no rule is at work: clients get it if it still waits, unless they are not asked at all.
    pub fn settles(&mut self, number: RowNumber) {
        let asked = &mut self.rows[number];
        if asked.shown != Shown::NotYet {
            return;
        }
        if asked.is_open() && !asked.is_held && self.open.get(&asked.id) == Some(&number) {
            self.happened.count(Event::ShownAfterRule);
            self.shows(number);
        } else {
            asked.shown = Shown::Never;
        }
    }

    /// The clients that were asked get a withheld request after all.
    pub fn shows(&mut self, number: RowNumber) {
        let asked = &mut self.rows[number];
        if asked.shown != Shown::NotYet || self.open.get(&asked.id) != Some(&number) {
            return;
        }
        asked.shown = Shown::Yes;
        let is_here = |conn: &u32| *conn != Conn::OWN.0 && self.wires.get(conn).is_some_and(|wire| !wire.has_left);
        let conns: Vec<u32> = asked.conns.iter().copied().filter(is_here).collect();
        if !conns.is_empty() {
            self.late.push(Late { line: asked.line.clone(), number, conns });
        }
    }

    /// A withheld request goes to its clients.
    pub fn shows_late(&mut self, line: &[u8]) {
        let Some(at) = self.late.iter().position(|late| late.line == line) else { return };
        let Late { line, number, conns } = self.late.remove(at);
        for conn in conns {
            self.expect_late_at_client(Conn(conn), &line, number);
        }
    }

    pub fn rules_are_at_work(&self) -> bool {
        self.open.values().any(|number| self.rows[*number].rule.is_some())
    }

    /// A request that clients are not asked about, and that still waits.
    pub fn held(&self) -> Option<&str> {
        let held = self.open.values().map(|number| &self.rows[*number]);
        held.filter(|asked| asked.is_held && matches!(asked.state, State::Pending))
            .find_map(|asked| asked.name.as_deref())
    }
}
