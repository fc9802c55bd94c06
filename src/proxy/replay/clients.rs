//! Several clients at once: which connection of the tape each of them plays.
//!
//! A client takes a connection of the tape with its first line after `initialize` and `initialized`; until then it may be a
//! probe, which gets the answer of the tape and takes nothing. It takes the first free connection of a client of its name; if
//! the tape has no such client, the first free one. If none is free, it begins a new round: another player from the
//! beginning of the tape. So as many clients as the tape has share a round, and any number of further ones play it again.
//!
//! The own connection of a hub is not on a tape. Such a client gets the answers of the tape, and may answer a request in the
//! place of any client.
//!
//! Pure: no clock, and no connection.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::mapping::{Difference, Mapping};
use super::player::{self, PlayedLine, Player, Strictness};
use super::script::{Script, is_greeting, name_of};
use super::tape::EntryKind;
use crate::engine::OWN_NAME;
use crate::wire::{Body, Conn};

/// Limit of the lines of a client that has not taken a connection of the tape: `initialize` and `initialized`.
const GREETING_LINES_MAX: usize = 2;

/// A client, by its number of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClientId(pub(super) u64);

/// A line for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) to: ClientId,
    pub(super) bytes: Vec<u8>,
    /// The delay after the client's line on the tape, in microseconds.
    pub(super) after_us: u64,
}

/// All clients of a tape.
#[derive(Debug)]
pub(super) struct Clients {
    script: Arc<Script>,
    strictness: Strictness,
    /// In the order of their beginnings.
    rounds: Vec<Round>,
    next_round: u64,
    seats: BTreeMap<ClientId, Client>,
}

/// One playing of the tape.
#[derive(Debug)]
struct Round {
    number: u64,
    player: Player,
}

#[derive(Debug)]
struct Client {
    name: Option<String>,
    seat: Seat,
}

#[derive(Debug)]
enum Seat {
    /// The client has only greeted, with these lines.
    Greeting(Vec<Vec<u8>>),
    Playing {
        round: u64,
        conn: Conn,
    },
    /// A hub's own connection.
    OfHub,
}

impl Clients {
    pub(super) fn new(script: Arc<Script>, strictness: Strictness) -> Clients {
        Clients { script, strictness, rounds: Vec::new(), next_round: 0, seats: BTreeMap::new() }
    }

    /// The server's lines, to all clients, in reply to a line of a client, given without its `\n`.
    pub(super) fn take(&mut self, from: ClientId, line: &[u8]) -> Vec<Sent> {
        let client = self.seats.entry(from).or_insert_with(|| Client { name: None, seat: Seat::Greeting(Vec::new()) });
        match &mut client.seat {
            Seat::Playing { round, conn } => {
                let (round, conn) = (*round, *conn);
                self.play(round, conn, line)
            }
            Seat::OfHub => self.take_of_hub(from, line),
            Seat::Greeting(lines) => {
                let kind = EntryKind::of(line);
                if !is_greeting(kind.method()) || lines.len() == GREETING_LINES_MAX {
                    return self.join(from, line);
                }
                lines.push(line.to_vec());
                if let Some(name) = name_of(line) {
                    client.seat = if name == OWN_NAME { Seat::OfHub } else { Seat::Greeting(std::mem::take(lines)) };
                    client.name = Some(name);
                }
                self.greet(from, line).into_iter().collect()
            }
        }
    }

    /// A client has left. Returns its differences from the tape; for a strict player, including the lines that it never sent.
    pub(super) fn leave(&mut self, id: ClientId) -> Vec<Difference> {
        self.remove(id, self.strictness)
    }

    /// The playing ends before a client has left. It may have had more to send.
    pub(super) fn leave_early(&mut self, id: ClientId) -> Vec<Difference> {
        self.remove(id, Strictness::Lenient)
    }

    fn remove(&mut self, id: ClientId, strictness: Strictness) -> Vec<Difference> {
        let Some(Client { seat: Seat::Playing { round, conn }, .. }) = self.seats.remove(&id) else {
            return Vec::new();
        };
        let Some(place) = self.rounds.iter().position(|one| one.number == round) else { return Vec::new() };
        let player = &mut self.rounds[place].player;
        let mut differences = player.take_differences(conn);
        if strictness == Strictness::Strict {
            differences.extend(player.unsent(conn));
        }
        // The newest round goes on with clients that come later.
        let is_played = self.seats.values().any(|client| client.plays(round));
        if !is_played && place + 1 < self.rounds.len() {
            self.rounds.remove(place);
        }
        differences
    }

    /// The name of a client.
    pub(super) fn name(&self, id: ClientId) -> Option<&str> {
        self.seats.get(&id)?.name.as_deref()
    }

    pub(super) fn is_strict(&self) -> bool {
        self.strictness == Strictness::Strict
    }

    /// Whether a strict player has seen a difference.
    pub(super) fn has_failed(&self) -> bool {
        let mut players = self.rounds.iter().map(|round| &round.player);
        self.strictness == Strictness::Strict && players.any(|player| player.differences().next().is_some())
    }

    /// The answer to an `initialize`: that which the tape has for the connection that the client would take.
    fn greet(&self, id: ClientId, line: &[u8]) -> Option<Sent> {
        let Body::Message(message) = Body::parse(line) else { return None };
        let raw = message.id?;
        let free = |round: &Round| self.script.choose(self.name(id), round.player.taken());
        let conn =
            self.rounds.iter().rev().find_map(free).or_else(|| self.script.choose(self.name(id), &BTreeSet::new()));
        let client = self.script.clients.iter().find(|client| Some(client.conn) == conn);
        let of_others = || self.script.clients.iter().filter_map(|client| client.greeting);
        let requests = client.and_then(|client| client.greeting).into_iter().chain(of_others());
        let answers = requests.filter_map(|request| {
            let entry = &self.script.entries[self.script.responses[request]?];
            Some(player::answered(&mut Mapping::default(), entry.bytes.as_deref()?, raw, entry.end))
        });
        let bytes = answers.into_iter().next().unwrap_or_else(|| player::error(raw, "the tape has no initialize"));
        Some(Sent { to: id, bytes, after_us: 0 })
    }

    /// A client takes a connection of the tape, and its line is played.
    fn join(&mut self, id: ClientId, line: &[u8]) -> Vec<Sent> {
        let Some(client) = self.seats.get_mut(&id) else { return Vec::new() };
        let greetings = match &mut client.seat {
            Seat::Greeting(lines) => std::mem::take(lines),
            Seat::Playing { .. } | Seat::OfHub => Vec::new(),
        };
        let name = client.name.as_deref();
        let free = |round: &Round| Some((round.number, self.script.choose(name, round.player.taken())?));
        let (round, conn) = self.rounds.iter().find_map(free).unwrap_or_else(|| {
            let number = self.next_round;
            (number, self.script.choose(name, &BTreeSet::new()).unwrap_or(Conn::OWN))
        });
        client.seat = Seat::Playing { round, conn };
        if round == self.next_round {
            self.next_round += 1;
            let player = Player::new(Arc::clone(&self.script), self.strictness);
            self.rounds.push(Round { number: round, player });
            // Nobody plays them, and the new one now is the newest.
            let seats = &self.seats;
            self.rounds.retain(|one| one.number == round || seats.values().any(|client| client.plays(one.number)));
        }
        let mut sent = Vec::new();
        if let Some(joined) = self.rounds.iter_mut().find(|one| one.number == round) {
            let said = joined.player.join(conn);
            sent.extend(self.addressed(round, said));
        }
        for greeting in greetings {
            let answered = match EntryKind::of(&greeting) {
                EntryKind::Request { id, .. } => Some(id),
                EntryKind::Notification { .. } | EntryKind::Response { .. } | EntryKind::Other => None,
            };
            let mut replies = self.play(round, conn, &greeting);
            // The request has its answer.
            replies.retain(|reply| {
                let kind = EntryKind::of(reply.bytes.trim_ascii_end());
                reply.to != id || !matches!(kind, EntryKind::Response { id } if Some(&id) == answered.as_ref())
            });
            sent.extend(replies);
        }
        sent.extend(self.play(round, conn, line));
        sent
    }

    fn play(&mut self, round: u64, conn: Conn, line: &[u8]) -> Vec<Sent> {
        let Some(playing) = self.rounds.iter_mut().find(|one| one.number == round) else { return Vec::new() };
        let said = playing.player.take(conn, line);
        self.addressed(round, said)
    }

    /// The lines of a round for the clients that have not left.
    fn addressed(&self, round: u64, said: Vec<PlayedLine>) -> Vec<Sent> {
        let sent = said.into_iter().filter_map(|PlayedLine { conn, bytes, after_us }| {
            let plays =
                |client: &Client| matches!(client.seat, Seat::Playing { round: r, conn: c } if (r, c) == (round, conn));
            let (to, _) = self.seats.iter().find(|(_, client)| plays(client))?;
            Some(Sent { to: *to, bytes, after_us })
        });
        sent.collect()
    }

    fn take_of_hub(&mut self, from: ClientId, line: &[u8]) -> Vec<Sent> {
        let Body::Message(message) = Body::parse(line) else { return Vec::new() };
        match EntryKind::of(line) {
            EntryKind::Response { id } => {
                let asked = self.rounds.iter().rev().find_map(|round| Some((round.number, round.player.asked(&id)?)));
                asked.map(|(round, conn)| self.play(round, conn, line)).unwrap_or_default()
            }
            EntryKind::Request { method, .. } => {
                let Some(raw) = message.id else { return Vec::new() };
                let same = |index: &usize| {
                    let entry = &self.script.entries[*index];
                    let is_same = |bytes: &[u8]| player::params_of(bytes) == player::params_of(line);
                    entry.kind.method() == Some(&method) && entry.bytes.as_deref().is_some_and(is_same)
                };
                let response = (0..self.script.entries.len()).find(same).and_then(|index| self.script.responses[index]);
                let entry = response.map(|response| &self.script.entries[response]);
                let answer = entry.and_then(|entry| {
                    Some(player::answered(&mut Mapping::default(), entry.bytes.as_deref()?, raw, entry.end))
                });
                let why = || player::error(raw, &format!("the tape has no {method} like this one"));
                vec![Sent { to: from, bytes: answer.unwrap_or_else(why), after_us: 0 }]
            }
            EntryKind::Notification { .. } | EntryKind::Other => Vec::new(),
        }
    }
}

impl Client {
    fn plays(&self, round: u64) -> bool {
        matches!(self.seat, Seat::Playing { round: of, .. } if of == round)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::tape::Tape;
    use super::*;

    const HEADER: &str = r#"{"journal":1,"session":"s","generation":"000000000001","segment":1,"at":0,"argv":[],"cwd":"/","codex":{"path":""},"shim":""}"#;

    /// All clients of a tape of `1>LINE` and `1<LINE`: what connection 1 sends and receives.
    fn clients(script: &[&str]) -> Clients {
        let mut file = tempfile::NamedTempFile::new().expect("BUG: a temporary file");
        writeln!(file, "{HEADER}").expect("it is written");
        for (at, step) in script.iter().enumerate() {
            let (conn, line) = step.split_at(1);
            let from = if line.starts_with('>') { "client" } else { "server" };
            writeln!(file, r#"{{"at":{at},"conn":{conn},"from":"{from}","line":{}}}"#, &line[1..])
                .expect("it is written");
        }
        let tape = Tape::load(file.path()).expect("BUG: a test writes a tape");
        Clients::new(Arc::new(Script::of(tape)), Strictness::Lenient)
    }

    /// Feeds a line of a client; returns the lines for all clients, such as `1<LINE`.
    fn play(clients: &mut Clients, step: &str) -> String {
        let (client, line) = step.split_once('>').expect("BUG: a step has a client");
        let client = ClientId(client.parse().expect("BUG: a number"));
        let sent = clients.take(client, line.as_bytes());
        let sent =
            sent.iter().map(|Sent { to, bytes, .. }| format!("{}<{}", to.0, String::from_utf8_lossy(bytes).trim_end()));
        sent.collect::<Vec<_>>().join(" ")
    }

    fn hello(client: u32, name: &str) -> String {
        format!(r#"{client}>{{"id":0,"method":"initialize","params":{{"clientInfo":{{"name":"{name}"}}}}}}"#)
    }

    const TWO: [&str; 14] = [
        r#"1>{"id":0,"method":"initialize","params":{"clientInfo":{"name":"a"}}}"#,
        r#"1<{"id":0,"result":"to a"}"#,
        r#"2>{"id":0,"method":"initialize","params":{"clientInfo":{"name":"b"}}}"#,
        r#"2<{"id":0,"result":"to b"}"#,
        r#"3>{"id":0,"method":"initialize","params":{"clientInfo":{"name":"a"}}}"#,
        r#"3<{"id":0,"result":"to a probe"}"#,
        r#"1>{"id":1,"method":"thread/start","params":{}}"#,
        r#"1<{"id":1,"result":{"thread":{"id":"T"}}}"#,
        r#"2<{"method":"thread/started","params":{"thread":{"id":"T"}}}"#,
        r#"2>{"id":1,"method":"thread/resume","params":{"threadId":"T"}}"#,
        r#"2<{"id":1,"result":{"thread":{"id":"T"}}}"#,
        r#"1<{"id":7,"method":"ask","params":{"threadId":"T"}}"#,
        r#"2>{"id":7,"result":{"decision":"accept"}}"#,
        r#"1<{"method":"done","params":{"threadId":"T"}}"#,
    ];

    #[test]
    fn client_takes_the_connection_of_its_name() {
        let mut clients = clients(&TWO);
        assert_eq!(play(&mut clients, &hello(5, "b")), r#"5<{"id":0,"result":"to b"}"#);
        assert_eq!(play(&mut clients, &hello(6, "a")), r#"6<{"id":0,"result":"to a"}"#);
        let start = r#"6>{"id":"x","method":"thread/start","params":{}}"#;
        // The other one has not resumed the thread, and has sent nothing: it may be a probe.
        let asked = r#"6<{"id":7,"method":"ask","params":{"threadId":"T"}}"#;
        assert_eq!(play(&mut clients, start), format!(r#"6<{{"id":"x","result":{{"thread":{{"id":"T"}}}}}} {asked}"#));
        let resume = r#"5>{"id":9,"method":"thread/resume","params":{"threadId":"T"}}"#;
        let started = r#"5<{"method":"thread/started","params":{"thread":{"id":"T"}}}"#;
        assert_eq!(play(&mut clients, resume), format!(r#"{started} 5<{{"id":9,"result":{{"thread":{{"id":"T"}}}}}}"#));
        // The first answer counts, from whichever client.
        let done = r#"6<{"method":"done","params":{"threadId":"T"}}"#;
        assert_eq!(play(&mut clients, r#"6>{"id":7,"result":{"decision":"accept"}}"#), done);
        assert_eq!(play(&mut clients, r#"5>{"id":7,"result":{"decision":"decline"}}"#), "");
        assert_eq!((clients.leave(ClientId(5)), clients.leave(ClientId(6))), (vec![], vec![]));
    }

    #[test]
    fn probes_take_nothing_and_further_clients_begin_anew() {
        let mut clients = clients(&TWO);
        for probe in [1, 2] {
            assert_eq!(play(&mut clients, &hello(probe, "a")), format!(r#"{probe}<{{"id":0,"result":"to a"}}"#));
            clients.leave(ClientId(probe.into()));
        }
        for client in [3, 4] {
            play(&mut clients, &hello(client, "a"));
            let said = play(&mut clients, &format!(r#"{client}>{{"id":1,"method":"thread/start","params":{{}}}}"#));
            assert!(said.starts_with(&format!(r#"{client}<{{"id":1,"result""#)), "{said}");
        }
        assert_eq!(clients.rounds.len(), 2);
        clients.leave(ClientId(3));
        assert_eq!(clients.rounds.len(), 1);
        // A client whose name the tape does not have takes any free connection.
        play(&mut clients, &hello(5, "c"));
        play(&mut clients, r#"5>{"id":9,"method":"thread/resume","params":{"threadId":"T"}}"#);
        assert_eq!(clients.rounds.len(), 1);
    }

    #[test]
    fn hub_of_its_own_takes_nothing_and_may_answer() {
        let mut clients = clients(&TWO);
        play(&mut clients, &hello(1, "a"));
        play(&mut clients, r#"1>{"id":1,"method":"thread/start","params":{}}"#);
        assert_eq!(play(&mut clients, &hello(2, OWN_NAME)), r#"2<{"id":0,"result":"to b"}"#);
        assert_eq!(play(&mut clients, r#"2>{"method":"initialized"}"#), "");
        let same = r#"2>{"id":3,"method":"thread/resume","params":{"threadId":"T"}}"#;
        assert_eq!(play(&mut clients, same), r#"2<{"id":3,"result":{"thread":{"id":"T"}}}"#);
        assert!(play(&mut clients, r#"2>{"id":4,"method":"thread/list"}"#).contains("the tape has no thread/list"));
        let answer = r#"2>{"id":7,"result":{"decision":"accept"}}"#;
        assert_eq!(play(&mut clients, answer), r#"1<{"method":"done","params":{"threadId":"T"}}"#);
        play(&mut clients, &hello(3, "b"));
        play(&mut clients, r#"3>{"id":9,"method":"thread/resume","params":{"threadId":"T"}}"#);
        assert_eq!(clients.rounds.len(), 1);
    }
}
