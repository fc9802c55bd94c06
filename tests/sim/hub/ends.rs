//! How hubs and servers end, and how everything comes to rest.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use codex_shim::testing::driver::{Link, Own};
use codex_shim::testing::engine::Input;
use codex_shim::testing::journal::SegmentName;
use codex_shim::testing::wire::{Conn, Side};

use super::super::checks::Ending;
use super::super::happened::Event;
use super::checks::{self, Life};
use super::client::Client;
use super::server::Key;
use super::shim::Hub;
use super::wire::{HowEnded, Wire};
use super::world::HubWorld;

/// Rounds within which everything in flight must end.
const ROUNDS_MAX: usize = 3_000;

impl HubWorld {
    /// The hub is gone; the server and the clients go on, and read what they have been sent.
    pub fn killed(&mut self) {
        if self.hub.is_none() {
            return;
        }
        self.house.say(|| "the hub is killed".to_owned());
        self.house.happened.count(Event::HubKill);
        self.over(Ending::Killed);
        (self.hub, self.driver) = (None, None);
        self.ledger.jobs.clear();
        self.close_all();
    }

    fn close_all(&mut self) {
        let keys: Vec<Key> = self.server.sessions.keys().chain(self.clients.keys()).copied().collect();
        keys.into_iter().for_each(|key| self.close(key));
    }

    /// The server dies, and with it every connection.
    pub fn server_dies(&mut self) {
        if self.server_run.take().is_none() {
            return;
        }
        self.house.say(|| "the server dies".to_owned());
        self.house.happened.count(Event::DeathOfTheServer);
        self.house.happened.add(Event::Answer, self.server.answers);
        self.others.extend(self.server.of_no_person());
        self.server = self.server.next();
        if self.hub.is_none() {
            return;
        }
        (self.house.ledger_works, self.house.ledger_hangs) = (true, false);
        for conn in self.conns() {
            self.link_ended(conn, Side::Server);
        }
        self.tell(Input::Closed { from: Side::Server });
        if let Some(driver) = &mut self.driver {
            driver.links.own = Own::AfterClient;
            driver.links.forget_unsent();
        }
        // The hub waits before it starts another server.
        for _ in 0..ROUNDS_MAX {
            if self.ledger.jobs.is_empty() || self.hub.is_none() {
                break;
            }
            self.ledger_works();
        }
        if self.hub.as_ref().is_some_and(|hub| hub.engine.requests_pending() > 0) {
            self.house.broken("3: waits for a server that is gone: a request".to_owned());
        }
        if self.hub.is_some() {
            self.over(Ending::ChildGone);
            self.next_server();
        }
    }

    /// The server reads nothing more on the connection that carries answers of ours, so that some of them are lost with it.
    pub fn server_hangs(&mut self) {
        let (Some(hub), Some(driver)) = (&self.hub, &self.driver) else { return };
        let carrier = driver.links.answers_to(&hub.engine).and_then(|conn| self.key_of(conn));
        if let Some(key) = carrier.filter(|_| self.server.hanging().is_none()) {
            self.house.say(|| format!("the server hangs on {key}"));
            self.server.hangs(&mut self.house.dice, key);
        }
    }

    /// The server closes a connection.
    pub fn server_cuts(&mut self) {
        let keys: Vec<Key> = self.server.sessions.keys().copied().collect();
        if keys.is_empty() {
            return;
        }
        let own = self.key_of(Conn::OWN).filter(|_| self.conns().contains(&Conn::OWN));
        let some = keys[self.dice().roll(keys.len() as u64) as usize];
        // Often one that may have taken an answer of ours along.
        let carrier = self.referee.carrier().and_then(|conn| self.key_of(conn)).filter(|key| keys.contains(key));
        let own = own.filter(|own| self.house.dice.once_in(2) && keys.contains(own));
        let key = carrier.filter(|_| self.house.dice.once_in(2)).or(own).unwrap_or(some);
        self.server_closes(key);
    }

    /// The server closes a connection on which it hangs.
    pub fn server_closes_hanging(&mut self) {
        if let Some(key) = self.server.hanging() {
            self.server_closes(key);
            self.answer_last();
        }
    }

    fn server_closes(&mut self, key: Key) {
        self.house.say(|| format!("the server closes {key}"));
        self.house.happened.count(Event::ServerCuts);
        if self.dice().once_in(2) {
            self.ends.insert((key, Side::Server), HowEnded::Closed(1_010 + (key % 7) as u16));
        }
        self.server.sessions.remove(&key);
    }

    /// Checks the remains of a run of a hub with one server.
    fn over(&mut self, ending: Ending) {
        let Some(Hub { writer, .. }) = &self.hub else { return };
        let tally = writer.tally();
        self.house.happened.add(Event::MissedLine, tally.missed_lines);
        self.house.happened.add_all(&std::mem::take(&mut self.referee.happened));
        let life = Life {
            generation: self.house.generation.as_ref().map(ToString::to_string).unwrap_or_default(),
            referee: &self.referee,
            ledger: &self.ledger,
            unmarked_lines: if writer.is_whole() { 0 } else { tally.missed_lines },
            ending,
        };
        let checked = checks::life(&life, &self.house.journal());
        self.house.holds(checked);
    }

    /// The last file of the journal and its length.
    pub fn journal_end(&self) -> Option<(PathBuf, u64)> {
        let name = SegmentName::list(&self.house.journal()).ok()?.pop()?;
        let path = self.house.journal().join(name.to_string());
        let bytes = fs::metadata(&path).ok()?.len();
        Some((path, bytes))
    }

    /// Cuts the last append at any byte: the hub was killed in it.
    pub fn tear(&mut self, before: Option<(PathBuf, u64)>) {
        let (Some((path, bytes)), Some((last, now))) = (before, self.journal_end()) else { return };
        if path == last && now > bytes {
            let cut = bytes + self.dice().roll(now - bytes);
            self.house.happened.count(Event::TornAppend);
            fs::OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(cut)).expect("it can be cut");
        }
    }

    /// Completes everything in flight without faults, and has everything answered that still waits.
    pub fn come_to_rest(&mut self) {
        (self.house.room_bytes, self.house.ledger_works, self.house.ledger_hangs) = (None, true, false);
        self.rests = true;
        self.server_closes_hanging();
        self.drain();
        let last = self.last_client();
        self.drain();
        self.answers_all(last);
        self.drain();
        self.callers_answer_held();
        if self.house.found.is_some() || self.hub.is_none() {
            return;
        }
        let checked = self.referee.all_has_arrived();
        self.house.holds(checked);
        if let Some(id) = self.server.waits_for().next() {
            return self.house.broken(format!("3: the server waits for ever: request {id}"));
        }
        self.house.happened.add(Event::Answer, self.server.answers);
        self.over(Ending::Rest);
        (self.hub, self.driver) = (None, None);
    }

    /// Clients are not asked about some requests, so API callers answer these.
    fn callers_answer_held(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let Some(name) = self.referee.held().map(str::to_owned).filter(|_| self.house.found.is_none()) else {
                return;
            };
            let call = self.call_to_accept(name);
            self.tell(call);
            self.drain();
        }
    }

    /// Reads and passes everything until nothing moves.
    fn drain(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if self.house.found.is_some() {
                return;
            }
            if self.hub.is_none() {
                self.start();
            }
            let mut has_moved = false;
            for conn in self.conns() {
                self.pass(conn, Side::Client);
                self.pass(conn, Side::Server);
                self.flush(conn, usize::MAX);
            }
            for key in self.server.sessions.keys().copied().collect::<Vec<Key>>() {
                has_moved |= self.server_reads(key);
            }
            has_moved |= self.clients.values_mut().map(Client::hear).filter(|heard| *heard).count() > 0;
            self.ledger_works();
            self.somebody_else_works();
            self.house.now.elapsed += Duration::from_millis(1);
            self.house.now.unix_us += 1_000;
            self.go_on();
            if !has_moved && self.is_at_rest() {
                return;
            }
        }
        self.house.broken("it does not come to rest".to_owned());
    }

    fn is_at_rest(&self) -> bool {
        let (Some(driver), Some(hub)) = (&self.driver, &self.hub) else { return false };
        let is_idle = |(conn, link): (Conn, &Link<Wire>)| {
            let Some(key) = self.key_of(conn) else { return false };
            let client_is_read = self.clients.get(&key).is_none_or(|client| client.read == client.said.len());
            let server_is_read = self.server.sessions.get(&key).is_some_and(|at| at.read == at.said.len());
            !link.is_busy() && !link.is_ending() && client_is_read && server_is_read
        };
        let has_unheard = self.clients.values().any(|client| client.has_left || !client.unread.is_empty());
        let is_at_work = hub.engine.holds_lines() || self.referee.rules_are_at_work();
        let is_awaited = !hub.checks.is_empty() || !hub.reads.is_empty() || is_at_work;
        self.ledger.jobs.is_empty()
            && !is_awaited
            && !has_unheard
            && driver.links.iter().all(is_idle)
            && self.server.sessions.values().all(|session| session.unread.is_empty())
    }
}
