//! Items that our own calls put into thread histories, so that the client does not see them.
//!
//! A client that asks for raw events is notified of every message that codex adds to a history, including ours. A
//! message counts as an echo only if its whole content is ours. Text between markers is ours for the rest of the run.
//! Plain text, such as a reason, matches only once and only until the next turn of its thread ends, because a user may
//! write the same words. Only a bounded number of digests is stored, never text.

use std::collections::VecDeque;

use serde_json::value::RawValue;
use sha1::{Digest as _, Sha1};

use crate::protocol::{Event, Method};
use crate::wire::{Body, Members, elements};

/// Digests of marked messages; the oldest is evicted first.
const DIGESTS_MAX: usize = 1_024;

/// Digests of plain messages, likewise.
const PLAIN_MAX: usize = 64;

type ItemDigest = [u8; 20];

#[derive(Debug, Default)]
pub(super) struct OwnItems {
    digests: VecDeque<ItemDigest>,
    /// Plain messages, oldest first.
    plain: VecDeque<Plain>,
}

/// Text of ours that a user might write too.
#[derive(Debug)]
struct Plain {
    thread_id: String,
    digest: ItemDigest,
    /// Whether the current notification and the one used until early 2026 have reported the item. A repeated report is
    /// not ours.
    reported: [bool; 2],
    /// A turn has ended since, possibly the previous one.
    one_is_over: bool,
}

impl OwnItems {
    /// Registers the items that one of our calls injects.
    pub(super) fn expect(&mut self, call: &[u8]) {
        for digest in digests_in(call) {
            if self.digests.contains(&digest) {
                continue;
            }
            if self.digests.len() >= DIGESTS_MAX {
                self.digests.pop_front();
            }
            self.digests.push_back(digest);
        }
    }

    /// Registers plain items injected into `thread_id` before a turn.
    pub(super) fn expect_plain(&mut self, thread_id: &str, call: &[u8]) {
        for digest in digests_in(call) {
            if self.plain.len() >= PLAIN_MAX {
                self.plain.pop_front();
            }
            self.plain.push_back(Plain {
                thread_id: thread_id.to_owned(),
                digest,
                reported: [false; 2],
                one_is_over: false,
            });
        }
    }

    /// A turn of this thread ended. From now on, the same words come from somebody else.
    pub(super) fn turn_is_over(&mut self, thread_id: &str) {
        self.plain.retain_mut(|plain| {
            let is_of_turn = plain.thread_id == thread_id;
            // An unreported item may precede the turn after the one that just ended.
            let goes = is_of_turn && (plain.reported != [false; 2] || plain.one_is_over);
            plain.one_is_over |= is_of_turn;
            !goes
        });
    }

    /// Whether a server notification reports only items that we injected.
    pub(super) fn is_echo(&mut self, event: &Event<'_>) -> bool {
        if (self.digests.is_empty() && self.plain.is_empty()) || event.id.is_some() {
            return false;
        }
        let params = event.params.and_then(Members::of).unwrap_or_default();
        let (item, thread, spelling) = match event.method {
            Some(Method::RawResponseItemCompleted) => (params.get("item"), "threadId", 0),
            // The notification's name until early 2026.
            Some(Method::EarlyRawResponseItem) => {
                let msg = params.get("msg").and_then(Members::of);
                (msg.and_then(|msg| msg.get("item")), "conversationId", 1)
            }
            Some(_) | None => return false,
        };
        let Some(digest) = item.and_then(digest_of) else { return false };
        if self.digests.contains(&digest) {
            return true;
        }
        let Some(thread_id) = params.text(thread) else { return false };
        let awaited = |plain: &&mut Plain| {
            plain.digest == digest && plain.thread_id == thread_id && plain.reported.get(spelling) == Some(&false)
        };
        let Some(plain) = self.plain.iter_mut().find(awaited) else { return false };
        plain.reported.iter_mut().skip(spelling).take(1).for_each(|reported| *reported = true);
        true
    }
}

fn digests_in(call: &[u8]) -> Vec<ItemDigest> {
    let Body::Message(message) = Body::parse(call) else { return Vec::new() };
    let items = message.params.and_then(Members::of).and_then(|params| elements(params.get("items")?));
    items.unwrap_or_default().into_iter().filter_map(digest_of).collect()
}

/// Digest of a message's role and texts; `None` if the item is not a message or has non-text content.
fn digest_of(item: &RawValue) -> Option<ItemDigest> {
    let item = Members::of(item)?;
    if item.text("type")? != "message" {
        return None;
    }
    let mut sha1 = Sha1::new();
    let mut add = |text: &str| {
        sha1.update((text.len() as u64).to_le_bytes());
        sha1.update(text);
    };
    add(&item.text("role")?);
    let content = item.get("content").and_then(elements).filter(|content| !content.is_empty())?;
    for part in content {
        let part = Members::of(part)?;
        if part.text("type")? != "input_text" {
            return None;
        }
        add(&part.text("text")?);
    }
    Some(sha1.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(items: &str) -> String {
        format!(r#"{{"id":"x","method":"thread/inject_items","params":{{"threadId":"t","items":[{items}]}}}}"#)
    }

    fn item(role: &str, texts: &[&str]) -> String {
        let content: Vec<_> =
            texts.iter().map(|text| serde_json::json!({ "type": "input_text", "text": text })).collect();
        serde_json::json!({ "type": "message", "role": role, "content": content }).to_string()
    }

    fn is_echo(own_items: &mut OwnItems, line: &str) -> bool {
        let Body::Message(message) = Body::parse(line.as_bytes()) else { panic!("{line}: no message") };
        own_items.is_echo(&Event::of(&message))
    }

    #[test]
    fn only_fully_injected_items_are_echoes() {
        let mut own_items = OwnItems::default();
        let raw = |item: &str| {
            format!(
                r#"{{"method":"rawResponseItem/completed","params":{{"threadId":"t","turnId":"u","item":{item}}}}}"#
            )
        };
        let mine = item("developer", &["a", "b"]);
        assert!(!is_echo(&mut own_items, &raw(&mine)));
        own_items.expect(call(&format!("{mine},{}", item("user", &["\u{1e}é"]))).as_bytes());
        assert!(is_echo(&mut own_items, &raw(&mine)));
        assert!(is_echo(&mut own_items, &raw(&item("user", &["\u{1e}é"]))));
        // The server added an id, reordered the members and escaped a character.
        let line = r#"{"id":"msg_1","content":[{"text":"\u0061","type":"input_text"},{"type":"input_text","text":"b"}],"role":"developer","type":"message"}"#;
        assert!(is_echo(&mut own_items, &raw(line)));
        let old = format!(r#"{{"method":"codex/event/raw_response_item","params":{{"msg":{{"item":{mine}}}}}}}"#);
        assert!(is_echo(&mut own_items, &old));
        for other in [
            item("user", &["a", "b"]),
            item("developer", &["a"]),
            item("developer", &["ab"]),
            item("developer", &["a", "b", ""]),
            mine.replace("input_text", "output_text"),
            mine.replace("message", "reasoning"),
            item("developer", &[]),
        ] {
            assert!(!is_echo(&mut own_items, &raw(&other)), "{other}");
        }
        assert!(!is_echo(&mut own_items, &format!(r#"{{"method":"item/completed","params":{{"item":{mine}}}}}"#)));
        assert!(!is_echo(&mut own_items, &raw(&mine).replacen('{', r#"{"id":1,"#, 1)));
    }

    #[test]
    fn plain_echo_matches_once_until_turn_ends() {
        let mut own_items = OwnItems::default();
        let said = item("user", &["no"]);
        let raw = |thread: &str| {
            format!(r#"{{"method":"rawResponseItem/completed","params":{{"threadId":"{thread}","item":{said}}}}}"#)
        };
        let old = format!(
            r#"{{"method":"codex/event/raw_response_item","params":{{"conversationId":"t","msg":{{"item":{said}}}}}}}"#
        );
        assert!(!is_echo(&mut own_items, &raw("t")));
        own_items.expect_plain("t", call(&said).as_bytes());
        assert!(!is_echo(&mut own_items, &raw("u")), "who says the same elsewhere is somebody else");
        assert!(is_echo(&mut own_items, &raw("t")) && is_echo(&mut own_items, &old));
        assert!(!is_echo(&mut own_items, &raw("t")) && !is_echo(&mut own_items, &old), "who says it again, too");
        // This may be the end of the previous turn.
        own_items.expect_plain("t", call(&said).as_bytes());
        own_items.turn_is_over("u");
        own_items.turn_is_over("t");
        assert!(is_echo(&mut own_items, &raw("t")));
        own_items.turn_is_over("t");
        assert!(!is_echo(&mut own_items, &old));
        // The server never reported the item.
        own_items.expect_plain("t", call(&said).as_bytes());
        (0..2).for_each(|_| own_items.turn_is_over("t"));
        assert!(!is_echo(&mut own_items, &raw("t")));
    }

    #[test]
    fn stored_digests_are_bounded() {
        let mut own_items = OwnItems::default();
        (0..=PLAIN_MAX).for_each(|_| own_items.expect_plain("t", call(&item("user", &["no"])).as_bytes()));
        assert_eq!(own_items.plain.len(), PLAIN_MAX);
        (0..=DIGESTS_MAX).for_each(|number| {
            let line = call(&item("user", &[&number.to_string()]));
            own_items.expect(line.as_bytes());
            own_items.expect(line.as_bytes());
        });
        assert_eq!(own_items.digests.len(), DIGESTS_MAX);
    }
}
