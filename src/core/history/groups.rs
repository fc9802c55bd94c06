//! Joins the pieces of one item, such as a streamed answer, into few events.
//!
//! Grouping depends on the records alone: a group has the pieces of one item and method within [`GROUP_US_MAX`] of its
//! first, up to [`GROUP_BYTES_MAX`] of text, without another record of that item in between. Source: the contract of
//! the history.
//!
//! A server may report a piece up to three times, on separate lines: in today's dialect and twice as an event, once with the
//! item id and once without. The two dialects are grouped independently: a line of one does not close groups of the other,
//! or nothing would be joined.
//!
//! All rows about pieces, both events and tool output, are built from these groups.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::bounded::{PREVIEW_CHARS_MAX, cut_with};
use super::event_row::{EventRow, Key};
use super::record_event::{MethodMessage, Place, name};
use crate::invariants::holds;
use crate::journal::Position;
use crate::protocol::{Dialect, Encoding, ItemEvent};
use crate::secrets::redacted;
use crate::wire::{TokenKind, tokens};

/// Longest duration of a group after its first piece, in microseconds.
const GROUP_US_MAX: u64 = 100_000;

/// Time after which a group without an end is closed, in microseconds; no later piece can belong to it.
const SILENCE_US: u64 = 250_000;

/// Text at which a group ends, in bytes.
const GROUP_BYTES_MAX: usize = 4 << 10;

/// Longest text that a closed group keeps, in bytes: more than its rows show. A server may send a long text in one piece.
const CLOSED_BYTES_MAX: usize = 64 << 10;

/// Open groups; the oldest is closed first.
const OPEN_MAX: usize = 256;

/// Open groups, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Groups(Vec<Group>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Group {
    /// The position of its first record.
    at: Position,
    pub(super) first_us: u64,
    pub(super) method: String,
    pub(super) thread_id: Option<String>,
    pub(super) turn_id: Option<String>,
    /// Missing only in some events.
    pub(super) item_id: Option<String>,
    #[serde(default, rename = "telling")]
    pub(super) dialect: Dialect,
    #[serde(default, rename = "spelling")]
    encoding: Encoding,
    /// The parameters of the first piece before and after its text. Not stored, like the text: see [`super::Recall`].
    #[serde(default, skip_serializing)]
    beside: Option<(String, String)>,
    /// The joined text; masked once the group is closed.
    #[serde(default, skip_serializing)]
    pub(super) text: String,
    /// What a closed group does not keep of its text.
    #[serde(skip)]
    pub(super) beyond: Beyond,
    count: u64,
}

/// The part of a text that is only counted, in characters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Beyond {
    pub(super) chars: usize,
    /// As it is written in JSON.
    written_chars: usize,
}

impl Groups {
    /// Advances the time to `at_us` and closes groups that can get no more pieces.
    pub(super) fn time(&mut self, at_us: u64, over: &mut Vec<Group>) {
        self.close_if(|group| at_us > group.first_us + GROUP_US_MAX, over);
    }

    /// No record was written up to `now_us`.
    pub(super) fn silence(&mut self, now_us: u64, over: &mut Vec<Group>) {
        self.close_if(|group| now_us >= group.first_us + SILENCE_US, over);
    }

    /// The run has ended.
    pub(super) fn close_all(&mut self, over: &mut Vec<Group>) {
        self.close_if(|_| true, over);
    }

    pub(super) fn check(&self) {
        holds!("history.open-streams-within-limit", self.0.len() <= OPEN_MAX);
        holds!("history.open-streams-have-pieces", self.0.iter().all(|group| group.count > 0));
        let begun: BTreeSet<&Position> = self.0.iter().map(|group| &group.at).collect();
        holds!("history.record-begins-one-stream", begun.len() == self.0.len());
        holds!("history.open-streams-are-short", self.0.iter().all(|group| group.text.len() <= CLOSED_BYTES_MAX));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The position of the first piece in any open group.
    pub(super) fn first(&self) -> Option<&Position> {
        self.0.iter().map(|group| &group.at).min()
    }

    /// Forgets the groups that began before `at`.
    pub(super) fn forget_before(&mut self, at: &Position) {
        self.0.retain(|group| group.at >= *at);
    }

    /// Processes a message; returns whether it was a piece. Any other message about an item closes that item's groups.
    pub(super) fn take(
        &mut self,
        at: &Position,
        at_us: u64,
        message: &MethodMessage<'_>,
        over: &mut Vec<Group>,
    ) -> bool {
        let Some(of) = OfItem::read(message) else { return false };
        let Some((encoding, text)) = &of.piece else {
            // A piece without an item id belongs to the current item of its turn, until the turn reports something
            // else.
            self.close_if(|group| group.is_of_turn(&of) && (group.is_of_item(&of) || group.item_id.is_none()), over);
            return false;
        };
        let beside = || beside(*encoding, message.params.written()?);
        // The two streams of a command are grouped separately.
        let is_other = |group: &Group| {
            group.method != message.method || (*encoding == Encoding::Base64 && group.beside != beside())
        };
        self.close_if(|group| group.is_of_turn(&of) && group.is_of_item(&of) && is_other(group), over);
        match self.0.iter_mut().find(|group| group.is_of_turn(&of) && group.is_of_item(&of)) {
            Some(group) => {
                group.text.push_str(text);
                group.count += 1;
            }
            None => self.0.push(Group::of(at, at_us, message, &of, (*encoding, text), beside())),
        }
        self.close_if(|group| group.text.len() >= GROUP_BYTES_MAX, over);
        if self.0.len() > OPEN_MAX {
            over.push(self.0.remove(0).closed());
        }
        true
    }

    /// Takes the text of a piece that was processed before the groups were stored. An item has one open group at a
    /// time, with all its pieces since the first.
    pub(super) fn recall(&mut self, at: &Position, message: &MethodMessage<'_>, met: &mut Vec<Position>) {
        if self.0.is_empty() {
            return;
        }
        let Some(of) = OfItem::read(message) else { return };
        let Some((encoding, text)) = &of.piece else { return };
        let is_meant = |group: &&mut Group| group.at <= *at && group.is_of_turn(&of) && group.is_of_item(&of);
        let Some(group) = self.0.iter_mut().find(is_meant) else { return };
        if group.at == *at {
            group.text.clear();
            group.beside = message.params.written().and_then(|params| beside(*encoding, params));
            met.push(at.clone());
        }
        if met.contains(&group.at) {
            group.text.push_str(text);
        }
    }

    fn close_if(&mut self, is_over: impl Fn(&Group) -> bool, over: &mut Vec<Group>) {
        if self.0.iter().any(&is_over) {
            let (closed, open): (Vec<Group>, Vec<Group>) =
                std::mem::take(&mut self.0).into_iter().partition(|group| is_over(group));
            self.0 = open;
            over.extend(closed.into_iter().map(Group::closed));
        }
    }
}

impl Group {
    fn of(
        at: &Position,
        first_us: u64,
        message: &MethodMessage<'_>,
        of: &OfItem<'_>,
        (encoding, text): (Encoding, &str),
        beside: Option<(String, String)>,
    ) -> Group {
        let owned = |part: &Option<Cow<'_, str>>| part.as_deref().map(str::to_owned);
        Group {
            at: at.clone(),
            first_us,
            method: message.method.clone().into_owned(),
            thread_id: owned(&of.thread_id),
            turn_id: owned(&of.turn_id),
            item_id: owned(&of.item_id),
            dialect: of.dialect,
            encoding,
            beside,
            text: text.to_owned(),
            beyond: Beyond::default(),
            count: 1,
        }
    }

    fn is_of_turn(&self, of: &OfItem<'_>) -> bool {
        self.dialect == of.dialect
            && self.turn_id.as_deref() == of.turn_id.as_deref()
            && self.thread_id.as_deref() == of.thread_id.as_deref()
    }

    fn is_of_item(&self, of: &OfItem<'_>) -> bool {
        self.item_id.as_deref() == of.item_id.as_deref()
    }

    /// Closes the group. Its joined text is masked, because a secret may span pieces.
    fn closed(mut self) -> Group {
        if let Some(masked) = redacted(&self.text) {
            self.text = masked;
        }
        if self.encoding == Encoding::Plain && self.text.len() > CLOSED_BYTES_MAX {
            let kept = self.text.floor_char_boundary(CLOSED_BYTES_MAX);
            let beyond = &self.text[kept..];
            self.beyond = Beyond { chars: beyond.chars().count(), written_chars: written_chars(beyond) };
            self.text.truncate(kept);
            self.text.shrink_to_fit();
        }
        self
    }

    pub(super) fn into_event(self) -> EventRow {
        let payload = params(self.encoding, self.beside, self.text);
        EventRow {
            payload_preview: cut_with(&payload, PREVIEW_CHARS_MAX, self.beyond.written_chars),
            key: Key(self.at),
            at_us: self.first_us,
            event_type: self.method,
            thread_id: self.thread_id,
            turn_id: self.turn_id,
            item_id: self.item_id,
            delta_count: Some(self.count),
        }
    }
}

/// Longest parameters stored of a group's first piece, without its text, in bytes.
const BESIDE_BYTES_MAX: usize = 2 << 10;

/// A message about an item.
struct OfItem<'a> {
    dialect: Dialect,
    thread_id: Option<Cow<'a, str>>,
    turn_id: Option<Cow<'a, str>>,
    /// Missing only in some events, which belong to the current item of their turn.
    item_id: Option<Cow<'a, str>>,
    /// The text that it adds to the item.
    piece: Option<(Encoding, Cow<'a, str>)>,
}

impl<'a> OfItem<'a> {
    /// Classifies a message; `None` if it is not about an item.
    fn read(message: &'a MethodMessage<'_>) -> Option<OfItem<'a>> {
        let Place { thread_id, turn_id, item_id, delta } = &message.place;
        let thread_id = thread_id.as_deref().map(Cow::Borrowed);
        let dialect = Dialect::of(&message.method);
        if dialect == Dialect::Now {
            let piece = delta.as_deref().filter(|_| is_piece(&message.method));
            return Some(OfItem {
                dialect,
                thread_id,
                turn_id: turn_id.as_deref().map(Cow::Borrowed),
                item_id: Some(Cow::Borrowed(item_id.as_deref()?)),
                piece: piece.map(|text| (Encoding::Plain, Cow::Borrowed(text))),
            });
        }
        let ItemEvent { turn_id, item_id, piece } = ItemEvent::of(&message.method, message.params.written()?)?;
        let [turn_id, item_id] = [turn_id, item_id].map(|id| id.map(Cow::Owned).map(name));
        let piece = piece.map(|(encoding, text)| (encoding, Cow::Owned(text)));
        Some(OfItem { dialect, thread_id, turn_id, item_id, piece })
    }
}

/// Whether a method of the current protocol reports a piece of an item.
fn is_piece(method: &str) -> bool {
    let last = method.rsplit('/').next().unwrap_or_default();
    last.ends_with("Delta") || last == "delta"
}

/// The characters of a text in a JSON string.
fn written_chars(text: &str) -> usize {
    let written = |sign: char| match sign {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..' ' => 6,
        _ => 1,
    };
    text.chars().map(written).sum()
}

/// The first piece's parameters with the joined text.
fn params(encoding: Encoding, beside: Option<(String, String)>, text: String) -> String {
    let text = encoding.written(text);
    match beside {
        Some((before, after)) => format!("{before}{text}{after}"),
        None => format!("{{{}:{text}}}", encoding.member()),
    }
}

/// The parameters of a piece before and after its text; `None` if they are too long.
fn beside(encoding: Encoding, params: &str) -> Option<(String, String)> {
    let mut is_next = false;
    let text = tokens(params).find(|token| {
        let found = is_next && token.kind == TokenKind::Text;
        is_next = token.kind == TokenKind::Name && &params[token.range.clone()] == encoding.member();
        found
    })?;
    let (before, after) = (&params[..text.range.start], &params[text.range.end..]);
    (before.len() + after.len() <= BESIDE_BYTES_MAX).then(|| (before.to_owned(), after.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::history::properties::{play, take};
    use crate::history::{Fold, Rows};

    fn say(rows: &Rows) -> Vec<String> {
        let joined = rows.events.iter().filter(|event| event.delta_count.is_some());
        let text = |event: &EventRow| {
            let payload: Value = serde_json::from_str(&event.payload_preview).expect("it is JSON");
            let early = || payload["msg"]["delta"].as_str().or_else(|| payload["msg"]["chunk"].as_str());
            payload["delta"].as_str().or_else(early).unwrap_or(&event.payload_preview).to_owned()
        };
        let say = |event: &EventRow| {
            let item_id = event.item_id.as_deref().unwrap_or("~");
            format!("{} {item_id} {} {}", event.at_us / 1_000, event.delta_count.unwrap_or_default(), text(event))
        };
        joined.map(say).collect()
    }

    /// Groups as `MS ITEM PIECES TEXT`, in closing order. A piece is written `MS ITEM TEXT`.
    fn check(actual: &str, expect: &[&str]) {
        let lines = actual.lines().map(|line| match line.trim().splitn(3, ' ').collect::<Vec<_>>()[..] {
            [at, item @ ("i" | "j"), text] => piece(at, item, text),
            _ => line.to_owned(),
        });
        let (_, rows) = play(&lines.collect::<Vec<_>>().join("\n"));
        assert_eq!(say(&rows), expect, "{actual}");
    }

    fn piece(at: &str, item: &str, text: &str) -> String {
        format!("{at} < item/agentMessage/delta t/u/{item} {{\"delta\":\"{text}\"}}")
    }

    #[test]
    fn group_lasts_100_ms_from_first_piece() {
        check("10 i a\n60 i b\n110 i c\n111 i d\n900 < x t", &["10 i 3 abc", "111 i 1 d"]);
        // Any record advances the time.
        check("10 i a\n111 < x t", &["10 i 1 a"]);
        check("10 i a\n110 < x t", &[]);
    }

    #[test]
    fn group_ends_at_byte_limit() {
        let half = "x".repeat(GROUP_BYTES_MAX / 2);
        let less = &half[1..];
        let whole = format!("10 i 2 {half}{half}");
        check(&format!("10 i {half}\n11 i {half}\n12 i c"), &[&payload_of(&whole)]);
        check(&format!("10 i {half}\n11 i {less}"), &[]);
    }

    #[test]
    fn long_piece_is_shown_as_if_it_were_kept() {
        let text = "é\"\\\n\u{1}\u{8}/x".repeat(CLOSED_BYTES_MAX / 8);
        for left_out in [0, 1, text.len() / 4, text.len() - 9_000] {
            let text = &text[text.ceil_char_boundary(left_out)..];
            let written = Value::from(text).to_string();
            let whole = payload_of(&format!("10 i 1 {text}"));
            check(&format!("10 i {}", written.trim_matches('"').trim_end_matches('\\')), &[&whole]);
            let output = format!("10 < item/newTool/outputDelta t/u/i {{\"delta\":{written}}}\n900 ! generation_ended");
            let (_, rows) = play(&output);
            let row: Value =
                serde_json::from_str(rows.tools[0].raw_payload_json.as_deref().expect("an excerpt")).expect("JSON");
            assert_eq!(row["original_chars"], text.chars().count());
        }
    }

    /// The payload of a text that is too long.
    fn payload_of(said: &str) -> String {
        let (head, text) = said.rsplit_once(' ').expect("BUG: a test gives a text");
        let params = serde_json::json!({"delta": text, "itemId": "i", "threadId": "t", "turnId": "u"}).to_string();
        format!("{head} {}", crate::history::bounded::cut(&params, PREVIEW_CHARS_MAX))
    }

    #[test]
    fn other_record_of_item_closes_group() {
        check("10 i a\n11 < item/x t/u/i\n12 i b\n900 < x t", &["10 i 1 a", "12 i 1 b"]);
        check("10 i a\n11 < item/agentMessage/otherDelta t/u/i {\"delta\":\"b\"}", &["10 i 1 a"]);
        check("10 i a\n11 ?0 item/commandExecution/requestApproval t/u/i", &["10 i 1 a"]);
        // A record of another item, turn or thread does not close the group.
        check("10 i a\n11 < item/x t/u/j\n11 < item/x t/v/i\n11 < item/x s/u/i\n12 i b\n900 < x t", &["10 i 2 ab"]);
        // Neither does a record without an item, even if it has a `delta`.
        check("10 i a\n11 < thing/delta t/u {\"delta\":\"b\"}\n12 i b\n900 < x t", &["10 i 2 ab"]);
    }

    #[test]
    fn two_items_at_once() {
        check("10 i a\n11 j x\n12 i b\n13 j y\n900 < x t", &["10 i 2 ab", "11 j 2 xy"]);
        check("10 i a\n50 j x\n111 i b\n120 j y\n900 < x t", &["10 i 1 a", "50 j 2 xy", "111 i 1 b"]);
    }

    /// A piece in an event.
    fn early(at: &str, kind: &str, members: &str) -> String {
        let params = format!(r#"{{"id":"u","msg":{{"type":"{kind}",{members}}},"conversationId":"t"}}"#);
        format!("{at} < codex/event/{kind} ~ {params}")
    }

    #[test]
    fn both_protocols_are_grouped_separately() {
        let piece_of = |at: u32, text: &str| {
            let named = early(
                &at.to_string(),
                "agent_message_content_delta",
                &format!(r#""thread_id":"t","turn_id":"u","item_id":"i","delta":"{text}""#),
            );
            let bare = early(&(at + 2).to_string(), "agent_message_delta", &format!(r#""delta":"{text}""#));
            format!("{named}\n{}\n{bare}\n", piece(&(at + 1).to_string(), "i", text))
        };
        let all = ["10 i 2 ab", "11 i 2 ab", "12 ~ 2 ab"];
        check(&format!("{}{}900 < x t", piece_of(10, "a"), piece_of(20, "b")), &all);
        // Another record of the item closes its group in the same protocol, and the group without an item id.
        let complete = |kind: &str| early("21", kind, r#""turn_id":"u","item":{"id":"i"}"#);
        check(&format!("{}{}", piece_of(10, "a"), complete("item_completed")), &["10 i 1 a", "12 ~ 1 a"]);
        check(&format!("{}21 < item/x t/u/i", piece_of(10, "a")), &["11 i 1 a"]);
        let other = early("21", "token_count", r#""info":null"#);
        check(&format!("{}{other}", piece_of(10, "a")), &["12 ~ 1 a"]);
        let other = early("21", "agent_reasoning_delta", r#""delta":"x""#);
        check(&format!("{}{other}", piece_of(10, "a")), &["12 ~ 1 a"]);
        // A record of another turn does not.
        let other = early("21", "token_count", r#""info":null"#).replace(r#""id":"u""#, r#""id":"v""#);
        check(&format!("{}{other}", piece_of(10, "a")), &[]);
    }

    #[test]
    fn command_output_is_grouped_by_stream() {
        let chunk = |at: u32, stream: &str, chunk: &str| {
            let members = format!(r#""call_id":"c","stream":"{stream}","chunk":"{chunk}""#);
            early(&at.to_string(), "exec_command_output_delta", &members) + "\n"
        };
        let lines = [chunk(10, "stdout", "b3V0MQo="), chunk(11, "stdout", "b3V0Mgo="), chunk(12, "stderr", "ZQ==")];
        let (_, rows) = play(&(lines.concat() + "900 < x t"));
        assert_eq!(say(&rows), ["10 c 2 b3V0MQpvdXQyCg==", "12 c 1 ZQ=="]);
        assert_eq!(rows.tools, []);
        // Half a character is an event of its own and closes the earlier group.
        let half = [chunk(10, "stdout", "b3V0MQo="), chunk(11, "stdout", "w6TD"), chunk(12, "stdout", "pA==")];
        let (_, rows) = play(&(half.concat() + "900 < x t"));
        let actual: Vec<_> = rows.events.iter().map(|event| (event.at_us / 1_000, event.delta_count)).collect();
        assert_eq!(actual, [(10, Some(1)), (11, None), (12, None), (900, None)]);
        // Bearer abcdefgh
        let secret = [chunk(10, "stdout", "QmVhcmVyIGFi"), chunk(11, "stdout", "Y2RlZmdo")];
        check(&(secret.concat() + "900 < x t"), &["10 c 2 QmVhcmVyIFtyZWRhY3RlZF0="]);
    }

    /// A turn of codex 0.77.0.
    #[test]
    fn a_turn_of_early_2026() {
        let lines = include_str!("../../../fixtures/history/early_2026.jsonl").lines();
        let (mut fold, mut rows) = (Fold::default(), Rows::default());
        let segment = crate::journal::SegmentName::parse("000000000001-001.jsonl").expect("BUG: the name is one");
        for (offset, line) in (0..).zip(lines) {
            let record = crate::journal::Record::parse(line.as_bytes()).expect("it holds records");
            let at = Position { segment: segment.clone(), offset };
            fold.take(&at, &crate::history::Seen::of(&record, None), &mut rows);
        }
        let joined = rows.events.iter().filter(|event| event.delta_count.is_some());
        let joined: Vec<_> = joined
            .map(|event| {
                let EventRow { event_type, item_id, delta_count, .. } = event;
                let item_id = item_id.as_deref().unwrap_or("~");
                assert_eq!((event.thread_id.as_deref(), event.turn_id.as_deref()), (Some("t1"), Some("0")));
                format!("{event_type} {item_id} {}", delta_count.unwrap_or_default())
            })
            .collect();
        assert_eq!(
            joined,
            [
                "codex/event/reasoning_content_delta rs_0_0 4",
                "item/reasoning/summaryTextDelta rs_0_0 4",
                "codex/event/agent_reasoning_delta ~ 4",
                "codex/event/reasoning_raw_content_delta rs_0_0 4",
                "codex/event/agent_reasoning_raw_content_delta ~ 4",
                "item/reasoning/textDelta rs_0_0 4",
                "codex/event/exec_command_output_delta call_1 4",
                "item/commandExecution/outputDelta call_1 4",
                "codex/event/agent_message_content_delta msg_1_0 7",
                "codex/event/agent_message_delta ~ 7",
                "item/agentMessage/delta msg_1_0 7",
            ]
        );
    }

    #[test]
    fn gap_closes_all_groups() {
        check("10 i a\n11 j x\n12 # full\n13 i b\n900 < x t", &["10 i 1 a", "11 j 1 x", "13 i 1 b"]);
        check("10 i a\n12 ! generation_ended", &["10 i 1 a"]);
    }

    #[test]
    fn secret_across_pieces_is_masked() {
        check("10 i Bearer abcd\n11 i efgh\n900 < x t", &["10 i 2 Bearer [redacted]"]);
    }

    #[test]
    fn a_secret_split_at_any_byte_is_masked() {
        const KEY: &str = "a7Bq2Rt9XzK4mN8pLs3Dv6Wy";
        for text in [
            format!("密钥ghp_{KEY} x"),
            format!("\u{1b}[32mghp_{KEY}\u{1b}[0m"),
            format!("{{\"a\":\"b\\nghp_{KEY}\"}}"),
            format!("AWS_SECRET_ACCESS_KEY={KEY}\n"),
            format!("db_pass: {KEY}\n"),
            format!("{{\\\"private_key\\\":\\\"{KEY}\\\"}}"),
            format!("Authorization: Basic {KEY}"),
            format!("postgres://u:{KEY}@h/db"),
        ] {
            for at in (1..text.len()).filter(|at| text.is_char_boundary(*at)) {
                let piece = |at: &str, text: &str| {
                    format!("{at} < item/agentMessage/delta t/u/i {}", serde_json::json!({ "delta": text }))
                };
                let (first, second) = text.split_at(at);
                let actual = format!("{}\n{}\n900 < x t", piece("10", first), piece("11", second));
                let rows = play(&actual).1;
                assert!(say(&rows)[0].contains("[redacted]"), "{at}: {text}");
                assert!(rows.events.iter().all(|event| !event.payload_preview.contains(&KEY[4..])), "{at}: {text}");
            }
        }
    }

    #[test]
    fn open_groups_are_bounded() {
        let mut pieces: Vec<String> = (0..=OPEN_MAX)
            .map(|number| format!("10 < item/agentMessage/delta t/u/{number} {{\"delta\":\"a\"}}"))
            .collect();
        let (_, rows) = play(&pieces.join("\n"));
        assert_eq!(say(&rows), ["10 0 1 a"]);
        pieces.pop();
        assert!(say(&play(&pieces.join("\n")).1).is_empty());
    }

    #[test]
    fn silence_only_closes_groups_early() {
        let check = |silent_ms: u64, expect: &[&str]| {
            let (mut fold, mut rows) = play(&piece("10", "i", "a"));
            assert!(fold.awaits_silence());
            fold.silence(silent_ms * 1_000, &mut rows);
            assert_eq!(say(&rows), expect, "after {silent_ms} ms");
            assert_eq!(fold.awaits_silence(), expect.is_empty());
            let (mut other, mut other_rows) = play(&piece("10", "i", "a"));
            for (fold, rows) in [(&mut fold, &mut rows), (&mut other, &mut other_rows)] {
                take(fold, 1, "300 < item/completed t/u/i {\"type\":\"agentMessage\"}", rows);
            }
            assert_eq!((fold, rows), (other, other_rows));
        };
        check(0, &[]);
        check(259, &[]);
        check(260, &["10 i 1 a"]);
        assert!(!Fold::default().awaits_silence());
    }
}
