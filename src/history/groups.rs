//! Pieces of one item, such as a streamed answer, joined into few events.
//!
//! Which pieces belong together depends on the records alone: a group takes the pieces of one item and method that come
//! within [`GROUP_US_MAX`] of its first, up to [`GROUP_BYTES_MAX`] of text, and no other record of that item in between.
//! Source: the contract of the history.
//!
//! Everything that tells of pieces is made of these groups, so that there is one rule: the events, and what tools put out.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::event::{EventRow, Key, cut};
use super::happening::{Place, Told};
use crate::engine::redacted;
use crate::journal::Position;
use crate::wire::{TokenKind, tokens};

/// How long after its first piece a group ends, in microseconds.
const GROUP_US_MAX: u64 = 100_000;

/// After how long without its end a group is closed, in microseconds: by then no piece can come that belongs to it.
const SILENCE_US: u64 = 250_000;

/// How much text ends a group, in bytes.
const GROUP_BYTES_MAX: usize = 4 << 10;

/// Longest parameters beside the text that are kept of a group's first piece, in bytes.
const BESIDE_BYTES_MAX: usize = 2 << 10;

/// Groups that are open at once; over that the oldest is closed.
const OPEN_MAX: usize = 256;

/// The groups that are open, in the order in which they began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Groups(Vec<Group>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Group {
    /// Where its first record stands.
    at: Position,
    pub(super) first_us: u64,
    pub(super) method: String,
    pub(super) thread_id: Option<String>,
    pub(super) turn_id: Option<String>,
    pub(super) item_id: String,
    /// The parameters of the first piece, up to its text and behind it.
    beside: Option<(String, String)>,
    /// All of its text; once it is closed, without secrets.
    pub(super) text: String,
    count: u64,
}

impl Groups {
    /// Time has come to `at_us`: what can have no more pieces is closed.
    pub(super) fn time(&mut self, at_us: u64, over: &mut Vec<Group>) {
        self.close_if(|group| at_us > group.first_us + GROUP_US_MAX, over);
    }

    /// Nothing was recorded up to `now_us`.
    pub(super) fn silence(&mut self, now_us: u64, over: &mut Vec<Group>) {
        self.close_if(|group| now_us >= group.first_us + SILENCE_US, over);
    }

    /// A run is over.
    pub(super) fn close_all(&mut self, over: &mut Vec<Group>) {
        self.close_if(|_| true, over);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where the first piece stands of all that are in a group still.
    pub(super) fn first(&self) -> Option<&Position> {
        self.0.iter().map(|group| &group.at).min()
    }

    /// Takes a message. Gives whether it was a piece; of anything else that tells of an item the groups of that are closed.
    pub(super) fn take(&mut self, at: &Position, at_us: u64, told: &Told<'_>, over: &mut Vec<Group>) -> bool {
        let Place { thread_id, turn_id, item_id: Some(item_id), delta } = &told.place else { return false };
        let is_of_item = |group: &Group| {
            group.item_id == **item_id
                && group.turn_id.as_deref() == turn_id.as_deref()
                && group.thread_id.as_deref() == thread_id.as_deref()
        };
        let piece = delta.as_deref().filter(|_| is_piece(&told.method));
        match piece {
            Some(text) => {
                self.close_if(|group| is_of_item(group) && group.method != told.method, over);
                match self.0.iter_mut().find(|group| is_of_item(group)) {
                    Some(group) => {
                        group.text.push_str(text);
                        group.count += 1;
                    }
                    None => self.0.push(Group::of(at, at_us, told, item_id, text)),
                }
                self.close_if(|group| group.text.len() >= GROUP_BYTES_MAX, over);
                if self.0.len() > OPEN_MAX {
                    over.push(self.0.remove(0).closed());
                }
                true
            }
            None => {
                self.close_if(is_of_item, over);
                false
            }
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

/// Whether a method tells of a piece of an item.
fn is_piece(method: &str) -> bool {
    let last = method.rsplit('/').next().unwrap_or_default();
    last.ends_with("Delta") || last == "delta"
}

impl Group {
    fn of(at: &Position, first_us: u64, told: &Told<'_>, item_id: &str, text: &str) -> Group {
        let owned = |part: &Option<std::borrow::Cow<'_, str>>| part.as_deref().map(str::to_owned);
        Group {
            at: at.clone(),
            first_us,
            method: told.method.clone().into_owned(),
            thread_id: owned(&told.place.thread_id),
            turn_id: owned(&told.place.turn_id),
            item_id: item_id.to_owned(),
            beside: told.params.written().and_then(|params| beside(params.get())),
            text: text.to_owned(),
            count: 1,
        }
    }

    /// It takes no more. Pieces may each be harmless and together a secret.
    fn closed(mut self) -> Group {
        if let Some(masked) = redacted(&self.text) {
            self.text = masked;
        }
        self
    }

    pub(super) fn into_event(self) -> EventRow {
        let text = Value::from(self.text).to_string();
        let payload = match self.beside {
            Some((before, after)) => format!("{before}{text}{after}"),
            None => format!("{{\"delta\":{text}}}"),
        };
        EventRow {
            payload_preview: cut(&payload, super::event::PREVIEW_CHARS_MAX),
            key: Key(self.at),
            at_us: self.first_us,
            event_type: self.method,
            thread_id: self.thread_id,
            turn_id: self.turn_id,
            item_id: Some(self.item_id),
            delta_count: Some(self.count),
        }
    }
}

/// What stands before and after the text of a piece.
fn beside(params: &str) -> Option<(String, String)> {
    let mut is_next = false;
    let text = tokens(params).find(|token| {
        let found = is_next && token.kind == TokenKind::Text;
        is_next = token.kind == TokenKind::Name && &params[token.range.clone()] == "\"delta\"";
        found
    })?;
    let (before, after) = (&params[..text.range.start], &params[text.range.end..]);
    (before.len() + after.len() <= BESIDE_BYTES_MAX).then(|| (before.to_owned(), after.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::playbook::{play, take};
    use crate::history::{Fold, Rows};

    fn say(rows: &Rows) -> Vec<String> {
        let joined = rows.events.iter().filter(|event| event.delta_count.is_some());
        let text = |event: &EventRow| {
            let payload: Value = serde_json::from_str(&event.payload_preview).expect("it is JSON");
            payload["delta"].as_str().unwrap_or(&event.payload_preview).to_owned()
        };
        let say = |event: &EventRow| {
            let item_id = event.item_id.as_deref().unwrap_or("~");
            format!("{} {item_id} {} {}", event.at_us / 1_000, event.delta_count.unwrap_or_default(), text(event))
        };
        joined.map(say).collect()
    }

    /// Groups as `MS ITEM PIECES TEXT`, in the order in which they are closed. A piece is written `MS ITEM TEXT`.
    fn check(told: &str, expect: &[&str]) {
        let lines = told.lines().map(|line| match line.trim().splitn(3, ' ').collect::<Vec<_>>()[..] {
            [at, item @ ("i" | "j"), text] => piece(at, item, text),
            _ => line.to_owned(),
        });
        let (_, rows) = play(&lines.collect::<Vec<_>>().join("\n"));
        assert_eq!(say(&rows), expect, "{told}");
    }

    fn piece(at: &str, item: &str, text: &str) -> String {
        format!("{at} < item/agentMessage/delta t/u/{item} {{\"delta\":\"{text}\"}}")
    }

    #[test]
    fn a_group_lasts_100_ms_from_its_first_piece() {
        check("10 i a\n60 i b\n110 i c\n111 i d\n900 < x t", &["10 i 3 abc", "111 i 1 d"]);
        // Any record tells the time.
        check("10 i a\n111 < x t", &["10 i 1 a"]);
        check("10 i a\n110 < x t", &[]);
    }

    #[test]
    fn a_group_ends_at_so_much_text() {
        let half = "x".repeat(GROUP_BYTES_MAX / 2);
        let less = &half[1..];
        let whole = format!("10 i 2 {half}{half}");
        check(&format!("10 i {half}\n11 i {half}\n12 i c"), &[&payload_of(&whole)]);
        check(&format!("10 i {half}\n11 i {less}"), &[]);
    }

    /// What is shown of a text that is too long for a payload.
    fn payload_of(said: &str) -> String {
        let (head, text) = said.rsplit_once(' ').expect("BUG: a test gives a text");
        let params = serde_json::json!({"delta": text, "itemId": "i", "threadId": "t", "turnId": "u"}).to_string();
        format!("{head} {}", cut(&params, crate::history::event::PREVIEW_CHARS_MAX))
    }

    #[test]
    fn another_record_of_the_item_ends_a_group() {
        check("10 i a\n11 < item/x t/u/i\n12 i b\n900 < x t", &["10 i 1 a", "12 i 1 b"]);
        check("10 i a\n11 < item/agentMessage/otherDelta t/u/i {\"delta\":\"b\"}", &["10 i 1 a"]);
        check("10 i a\n11 ?0 item/commandExecution/requestApproval t/u/i", &["10 i 1 a"]);
        // Of another item, turn or thread it does not.
        check("10 i a\n11 < item/x t/u/j\n11 < item/x t/v/i\n11 < item/x s/u/i\n12 i b\n900 < x t", &["10 i 2 ab"]);
        // Nor what has no item, though it holds a piece of something.
        check("10 i a\n11 < thing/delta t/u {\"delta\":\"b\"}\n12 i b\n900 < x t", &["10 i 2 ab"]);
    }

    #[test]
    fn two_items_at_once() {
        check("10 i a\n11 j x\n12 i b\n13 j y\n900 < x t", &["10 i 2 ab", "11 j 2 xy"]);
        check("10 i a\n50 j x\n111 i b\n120 j y\n900 < x t", &["10 i 1 a", "50 j 2 xy", "111 i 1 b"]);
    }

    #[test]
    fn whatever_is_lost_ends_all() {
        check("10 i a\n11 j x\n12 # full\n13 i b\n900 < x t", &["10 i 1 a", "11 j 1 x", "13 i 1 b"]);
        check("10 i a\n12 ! generation_ended", &["10 i 1 a"]);
    }

    #[test]
    fn pieces_may_together_be_a_secret() {
        check("10 i Bearer abcd\n11 i efgh\n900 < x t", &["10 i 2 Bearer [redacted]"]);
    }

    #[test]
    fn what_is_open_is_bounded() {
        let mut pieces: Vec<String> = (0..=OPEN_MAX)
            .map(|number| format!("10 < item/agentMessage/delta t/u/{number} {{\"delta\":\"a\"}}"))
            .collect();
        let (_, rows) = play(&pieces.join("\n"));
        assert_eq!(say(&rows), ["10 0 1 a"]);
        pieces.pop();
        assert!(say(&play(&pieces.join("\n")).1).is_empty());
    }

    #[test]
    fn silence_brings_forward_and_nothing_else() {
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
