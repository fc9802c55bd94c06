//! Counts each message of a server once, although a hub records one delivery of it for each client.
//!
//! The server sends the messages of a thread to each subscriber in the same order, and some of them to every client. So the
//! first delivery of a message counts, and a later one on another connection is a copy of it. Each connection delivers each
//! message once: two messages that are alike to the byte, delivered by one connection, are two messages.
//!
//! A message that only one client gets, as one that resumes a thread does, counts like any other.
//!
//! *Limit.* If a client comes while the server sends messages that are alike to the byte, one of these may count twice or not at
//! all. Codex 0.169 writes the time into each notification, so that none are alike.
//!
//! A relay on pipes has one connection, and nothing here looks at its messages.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha1::{Digest as _, Sha1};

use super::record_event::{RecordEvent, Seen, is_hub};
use crate::engine::PROBE;
use crate::wire::Conn;

/// Messages remembered for each thread. The hub reads all connections all the time, so they are seldom this far apart; beyond it,
/// a message counts again.
const MESSAGES_MAX: usize = 4_096;

/// Threads that are followed; the one whose last message is oldest is evicted.
const THREADS_MAX: usize = 64;

/// Connections whose positions are remembered; the oldest is forgotten.
const CONNECTIONS_MAX: usize = 4_096;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Deliveries {
    /// Messages that counted.
    counted: u64,
    /// For each open connection of a hub, the value of `counted` when it began; the hub's own is one from the start. Empty for a
    /// relay on pipes.
    opened: BTreeMap<u32, u64>,
    /// By thread; messages without one belong to `None`.
    threads: Vec<(Option<String>, Sequence)>,
}

/// The last messages of a thread that counted, in that order. Another order is possible on a connection: a client that has
/// just come may be ahead of the others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Sequence {
    messages: VecDeque<Counted>,
    /// For each connection, the number of the first message that it has not delivered.
    reached: BTreeMap<u32, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Counted {
    number: u64,
    digest: u32,
    /// The connections that have delivered it although they have not delivered one before it.
    by: Vec<u32>,
}

impl Deliveries {
    /// Whether this record is the first delivery of its message, or has no message of the server that others may get too.
    pub(super) fn is_first(&mut self, seen: &Seen<'_>) -> bool {
        let message = match &seen.event {
            RecordEvent::ShimEvent { event: "conn_open", data } => {
                self.open(*data);
                return true;
            }
            RecordEvent::ShimEvent { event: "conn_close", data } => {
                self.close(*data);
                return true;
            }
            RecordEvent::ShimEvent { event: "generation_started", data } => {
                *self = Deliveries::default();
                if is_hub(*data) {
                    self.opened.insert(Conn::OWN.0, 0);
                }
                return true;
            }
            RecordEvent::Notification(message) | RecordEvent::ServerRequest { message, .. } => message,
            RecordEvent::Generation(_)
            | RecordEvent::ClientRequest { .. }
            | RecordEvent::Response { .. }
            | RecordEvent::ShimEvent { .. }
            | RecordEvent::Gap { .. }
            | RecordEvent::Answer { .. }
            | RecordEvent::Other => return true,
        };
        if self.opened.is_empty() {
            return true;
        }
        let conn = seen.conn.0;
        let opened = self.opened.get(&conn).copied().unwrap_or_default();
        let counted = self.counted;
        let is_first =
            self.sequence(message.place.thread_id.as_deref()).is_first(conn, opened, digest(seen.line), counted);
        self.counted += u64::from(is_first);
        is_first
    }

    /// Those of records that are read again from one of them on, with the connections that are open now.
    pub(super) fn reading_again(&self) -> Deliveries {
        let opened = self.opened.keys().map(|conn| (*conn, 0)).collect();
        Deliveries { counted: 0, opened, threads: Vec::new() }
    }

    fn open(&mut self, data: Option<&RawValue>) {
        let Some(OfConn { conn, name }) = OfConn::read(data) else { return };
        if self.opened.len() >= CONNECTIONS_MAX {
            self.opened.pop_first();
        }
        // One that might have been a probe goes on record late, and may be behind the others by then.
        let opened = if name.as_deref() == Some(PROBE) { 0 } else { self.counted };
        self.opened.insert(conn, opened);
    }

    fn close(&mut self, data: Option<&RawValue>) {
        let Some(OfConn { conn, .. }) = OfConn::read(data) else { return };
        self.opened.remove(&conn);
        for (_, sequence) in &mut self.threads {
            sequence.reached.remove(&conn);
            sequence.messages.iter_mut().for_each(|message| message.by.retain(|by| *by != conn));
        }
    }

    fn sequence(&mut self, thread_id: Option<&str>) -> &mut Sequence {
        let at = match self.threads.iter().position(|(of, _)| of.as_deref() == thread_id) {
            Some(at) => at,
            None => {
                if self.threads.len() >= THREADS_MAX {
                    let last_of =
                        |(_, sequence): &(Option<String>, Sequence)| sequence.messages.back().map(|last| last.number);
                    let oldest = self.threads.iter().enumerate().min_by_key(|(_, thread)| last_of(thread));
                    let oldest = oldest.map(|(at, _)| at);
                    oldest.into_iter().for_each(|at| drop(self.threads.swap_remove(at)));
                }
                self.threads.push((thread_id.map(str::to_owned), Sequence::default()));
                self.threads.len() - 1
            }
        };
        &mut self.threads[at].1
    }
}

impl Sequence {
    fn is_first(&mut self, conn: u32, opened: u64, digest: u32, number: u64) -> bool {
        let reached = self.reached.get(&conn).copied().unwrap_or(opened);
        let from = self.messages.partition_point(|message| message.number < reached);
        let is_copied = |message: &&mut Counted| message.digest == digest && !message.by.contains(&conn);
        let copied = self.messages.range_mut(from..).find(is_copied);
        let is_first = copied.is_none();
        match copied {
            Some(copied) => copied.by.push(conn),
            None => self.messages.push_back(Counted { number, digest, by: vec![conn] }),
        }
        let mut reached = number + u64::from(is_first);
        for message in self.messages.range_mut(from..) {
            let Some(at) = message.by.iter().position(|by| *by == conn) else {
                reached = message.number;
                break;
            };
            message.by.swap_remove(at);
        }
        self.reached.insert(conn, reached);
        if self.messages.len() > MESSAGES_MAX {
            self.messages.pop_front();
        }
        is_first
    }
}

/// The connection that an event of ours is about, and the name of its client.
#[derive(Deserialize)]
struct OfConn {
    conn: u32,
    name: Option<String>,
}

impl OfConn {
    fn read(data: Option<&RawValue>) -> Option<OfConn> {
        serde_json::from_str(data?.get()).ok()
    }
}

/// A digest that tells the few messages apart by which two connections differ.
fn digest(line: &[u8]) -> u32 {
    Sha1::digest(line).first_chunk().map_or(0, |start| u32::from_le_bytes(*start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Record;

    /// Feeds lines such as `1 a` (the message `a` of the thread `t` on connection 1), `+1` and `-1` (a connection opens and
    /// closes), `~1` (the connection of a daemon that stays goes on record) and `!` (a hub starts), and returns the messages
    /// that counted.
    fn counted(script: &str) -> String {
        let mut deliveries = Deliveries::default();
        let mut counted = Vec::new();
        for step in script.split(", ") {
            let event = |event: &str, conn: &str| {
                format!(r#"{{"at":1,"from":"shim","event":"{event}","data":{{"conn":{conn}}}}}"#)
            };
            let record = match step.split_at(1) {
                ("+", conn) => event("conn_open", conn),
                ("~", conn) => event("conn_open", &format!(r#"{conn},"name":"codex_app_server_daemon""#)),
                ("-", conn) => event("conn_close", conn),
                ("!", _) => {
                    r#"{"at":1,"from":"shim","event":"generation_started","data":{"pid":1,"hub":true}}"#.to_owned()
                }
                (conn, text) => format!(
                    r#"{{"at":1,"conn":{conn},"from":"server","line":{{"method":"m","params":{{"threadId":"t","x":"{}"}}}}}}"#,
                    text.trim()
                ),
            };
            let parsed = Record::parse(record.as_bytes()).expect("BUG: a test gives records");
            if deliveries.is_first(&Seen::of(&parsed, None)) && !step.starts_with(['+', '-', '~', '!']) {
                counted.push(step.split_at(1).1.trim());
            }
        }
        counted.join(" ")
    }

    #[test]
    fn message_counts_once_whoever_delivers_it_first() {
        assert_eq!(counted("+1, +2, 1 a, 1 b, 2 a, 2 b, 2 c, 1 c, 1 d, 2 d"), "a b c d");
    }

    #[test]
    fn equal_messages_count_each() {
        assert_eq!(counted("+1, +2, 1 a, 1 a, 2 a, 2 a, 1 a, 2 a"), "a a a");
        assert_eq!(counted("+1, 1 a, 1 a, +2, 2 a, 1 a"), "a a a");
    }

    #[test]
    fn late_client_takes_over_where_the_other_one_leaves() {
        assert_eq!(counted("+1, 1 a, +2, 1 b, 2 b, 2 c, -1, 2 d"), "a b c d");
        // The one that leaves was ahead.
        assert_eq!(counted("+1, 1 a, +2, 1 b, 1 c, -1, 2 b, 2 c, 2 d"), "a b c d");
    }

    #[test]
    fn message_for_one_client_counts_and_disturbs_nothing() {
        assert_eq!(counted("+1, 1 a, +2, 2 usage, 1 b, 2 b, 1 c, 2 c"), "a usage b c");
        assert_eq!(counted("+1, 1 a, +2, 2 usage, 2 b, 2 c, 1 b, 1 c, 1 d, 2 d"), "a usage b c d");
    }

    #[test]
    fn client_that_gets_fewer_messages_disturbs_nothing() {
        assert_eq!(counted("+1, +2, 1 a, 1 b, 2 b, 1 c, 1 d, 2 d, 2 e, 1 e"), "a b c d e");
    }

    #[test]
    fn connection_on_record_late_doubles_nothing() {
        assert_eq!(counted("+1, 1 a, 1 b, ~2, 2 b, 2 c, 1 c"), "a b c");
        // The other one is the hub's own, and no client has come before.
        assert_eq!(counted("!, 0 a, 0 b, ~1, 1 b, 1 c, 0 c"), "a b c");
    }

    /// Clients come and go and are behind each other at random; every message is different, or one of two. In the latter case all
    /// come before the first message.
    #[test]
    fn nothing_is_lost_or_doubled() {
        for (seed, alike) in (0..300_u64).flat_map(|seed| [(seed, false), (seed, true)]) {
            let mut dice = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut roll = |sides: u64| {
                dice ^= dice >> 12;
                dice ^= dice << 25;
                dice ^= dice >> 27;
                (dice.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % sides
            };
            let mut script = vec!["+1".to_owned()];
            // For each connection, the number of the next message that it delivers.
            let mut next = BTreeMap::from([(1_u32, 0_u64)]);
            let mut sent = 0_u64;
            let text = |number: u64| if alike { format!("{}", number % 2) } else { number.to_string() };
            for _ in 0..200 {
                match roll(8) {
                    0 if next.len() < 4 && !(alike && sent > 0) => {
                        let conn = (1..9).find(|conn| !next.contains_key(conn)).expect("BUG: there is room");
                        script.push(format!("+{conn}"));
                        // A client may be behind when the others are ahead, but gets nothing from before it came.
                        next.insert(conn, sent);
                    }
                    1 if next.len() > 1 => {
                        // One that has everything leaves.
                        let done = next.iter().find(|(_, at)| **at == sent).map(|(conn, _)| *conn);
                        if let Some(conn) = done {
                            next.remove(&conn);
                            script.push(format!("-{conn}"));
                        }
                    }
                    2 | 3 => sent += 1,
                    _ => {
                        let conn = *next.keys().nth(roll(next.len() as u64) as usize).expect("BUG: one is open");
                        let at = next[&conn];
                        if at < sent {
                            script.push(format!("{conn} {}", text(at)));
                            next.insert(conn, at + 1);
                        }
                    }
                }
            }
            for (conn, at) in next {
                script.extend((at..sent).map(|number| format!("{conn} {}", text(number))));
            }
            let expected: Vec<String> = (0..sent).map(text).collect();
            let counted = counted(&script.join(", "));
            if alike {
                // Two messages that are alike may change places.
                assert_eq!(counted.split(' ').filter(|text| !text.is_empty()).count() as u64, sent, "seed {seed}");
            } else {
                let mut numbers: Vec<&str> = counted.split(' ').filter(|text| !text.is_empty()).collect();
                numbers.sort_by_key(|text| text.parse::<u64>().expect("BUG: messages are numbers"));
                assert_eq!(numbers, expected, "seed {seed}");
            }
        }
    }
}
