//! What was put into a thread's history in this run by calls of our own, so that the client is not told of it.
//!
//! A client that asks for raw events is told of every message that codex puts into a history, also of ours. Only one whose whole
//! content is what was put in is taken for its echo. What stands between markers is known for good; what is in plain words, such
//! as a reason, only once, and until the next turn of its thread is over: a user may say the same. Kept are digests, and of those a
//! bounded number; no text.

use std::collections::VecDeque;

use serde_json::value::RawValue;
use sha1::{Digest as _, Sha1};

use crate::protocol::{Event, Method};
use crate::wire::{Body, Members, elements};

/// Messages whose digests are kept; of more than these the oldest is forgotten.
const DIGESTS_MAX: usize = 1_024;

/// Messages in plain words whose digests are kept, likewise.
const PLAIN_MAX: usize = 64;

/// SHA-1.
type ItemDigest = [u8; 20];

/// Digests of messages that were put into histories.
#[derive(Debug, Default)]
pub(super) struct OwnItems {
    /// Oldest first.
    digests: VecDeque<ItemDigest>,
    /// Those in plain words, oldest first.
    plain: VecDeque<Plain>,
}

/// Words of ours that a user may say, too.
#[derive(Debug)]
struct Plain {
    thread_id: String,
    digest: ItemDigest,
    /// Who tells of it as now, and as until early 2026, has done so; what is told again is somebody else's.
    told: [bool; 2],
    /// A turn was over since: perhaps the one before.
    one_is_over: bool,
}

impl OwnItems {
    /// This call of ours puts items into a history.
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

    /// This call of ours puts items in plain words into the history of `thread_id`, ahead of a turn.
    pub(super) fn expect_plain(&mut self, thread_id: &str, call: &[u8]) {
        for digest in digests_in(call) {
            if self.plain.len() >= PLAIN_MAX {
                self.plain.pop_front();
            }
            self.plain.push_back(Plain {
                thread_id: thread_id.to_owned(),
                digest,
                told: [false; 2],
                one_is_over: false,
            });
        }
    }

    /// A turn of this thread is over: who says now what was said ahead of it is somebody else.
    pub(super) fn turn_is_over(&mut self, thread_id: &str) {
        self.plain.retain_mut(|plain| {
            let is_of_turn = plain.thread_id == thread_id;
            // What is not told yet may be ahead of the turn that follows the one that is over.
            let goes = is_of_turn && (plain.told != [false; 2] || plain.one_is_over);
            plain.one_is_over |= is_of_turn;
            !goes
        });
    }

    /// Whether a message of the server tells only of what was put in by us.
    pub(super) fn is_echo(&mut self, message: &Event<'_>) -> bool {
        if (self.digests.is_empty() && self.plain.is_empty()) || message.id.is_some() {
            return false;
        }
        let params = message.params.and_then(Members::of).unwrap_or_default();
        let (item, thread, spelling) = match message.method {
            Some(Method::RawResponseItemCompleted) => (params.get("item"), "threadId", 0),
            // As it was called until early 2026.
            Some(Method::EarlyRawResponseItem) => {
                let told = params.get("msg").and_then(Members::of);
                (told.and_then(|told| told.get("item")), "conversationId", 1)
            }
            Some(_) | None => return false,
        };
        let Some(digest) = item.and_then(digest_of) else { return false };
        if self.digests.contains(&digest) {
            return true;
        }
        let Some(thread_id) = params.text(thread) else { return false };
        let awaited = |plain: &&mut Plain| {
            plain.digest == digest && plain.thread_id == thread_id && plain.told.get(spelling) == Some(&false)
        };
        let Some(plain) = self.plain.iter_mut().find(awaited) else { return false };
        plain.told.iter_mut().skip(spelling).take(1).for_each(|told| *told = true);
        true
    }
}

/// The digests of what a call of ours puts into a history.
fn digests_in(call: &[u8]) -> Vec<ItemDigest> {
    let Body::Message(message) = Body::parse(call) else { return Vec::new() };
    let items = message.params.and_then(Members::of).and_then(|params| elements(params.get("items")?));
    items.unwrap_or_default().into_iter().filter_map(digest_of).collect()
}

/// The digest of a message's role and its texts; `None` for what is no message, and for one with anything but texts.
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

    fn is_echo(echoes: &mut OwnItems, line: &str) -> bool {
        let Body::Message(message) = Body::parse(line.as_bytes()) else { panic!("{line}: no message") };
        echoes.is_echo(&Event::of(&message))
    }

    #[test]
    fn only_what_was_put_in_whole_is_an_echo() {
        let mut echoes = OwnItems::default();
        let raw = |item: &str| {
            format!(
                r#"{{"method":"rawResponseItem/completed","params":{{"threadId":"t","turnId":"u","item":{item}}}}}"#
            )
        };
        let mine = item("developer", &["a", "b"]);
        assert!(!is_echo(&mut echoes, &raw(&mine)));
        echoes.expect(call(&format!("{mine},{}", item("user", &["\u{1e}é"]))).as_bytes());
        assert!(is_echo(&mut echoes, &raw(&mine)));
        assert!(is_echo(&mut echoes, &raw(&item("user", &["\u{1e}é"]))));
        // With an id of the server's, and in other words of JSON.
        let told = r#"{"id":"msg_1","content":[{"text":"\u0061","type":"input_text"},{"type":"input_text","text":"b"}],"role":"developer","type":"message"}"#;
        assert!(is_echo(&mut echoes, &raw(told)));
        let old = format!(r#"{{"method":"codex/event/raw_response_item","params":{{"msg":{{"item":{mine}}}}}}}"#);
        assert!(is_echo(&mut echoes, &old));
        for other in [
            item("user", &["a", "b"]),
            item("developer", &["a"]),
            item("developer", &["ab"]),
            item("developer", &["a", "b", ""]),
            mine.replace("input_text", "output_text"),
            mine.replace("message", "reasoning"),
            item("developer", &[]),
        ] {
            assert!(!is_echo(&mut echoes, &raw(&other)), "{other}");
        }
        assert!(!is_echo(&mut echoes, &format!(r#"{{"method":"item/completed","params":{{"item":{mine}}}}}"#)));
        assert!(!is_echo(&mut echoes, &raw(&mine).replacen('{', r#"{"id":1,"#, 1)));
    }

    #[test]
    fn plain_words_are_an_echo_once_in_their_thread_and_until_the_turn_behind_them_is_over() {
        let mut echoes = OwnItems::default();
        let said = item("user", &["no"]);
        let raw = |thread: &str| {
            format!(r#"{{"method":"rawResponseItem/completed","params":{{"threadId":"{thread}","item":{said}}}}}"#)
        };
        let old = format!(
            r#"{{"method":"codex/event/raw_response_item","params":{{"conversationId":"t","msg":{{"item":{said}}}}}}}"#
        );
        assert!(!is_echo(&mut echoes, &raw("t")));
        echoes.expect_plain("t", call(&said).as_bytes());
        assert!(!is_echo(&mut echoes, &raw("u")), "who says the same elsewhere is somebody else");
        assert!(is_echo(&mut echoes, &raw("t")) && is_echo(&mut echoes, &old));
        assert!(!is_echo(&mut echoes, &raw("t")) && !is_echo(&mut echoes, &old), "who says it again, too");
        // The turn before may be over only now.
        echoes.expect_plain("t", call(&said).as_bytes());
        echoes.turn_is_over("u");
        echoes.turn_is_over("t");
        assert!(is_echo(&mut echoes, &raw("t")));
        echoes.turn_is_over("t");
        assert!(!is_echo(&mut echoes, &old));
        // What was never told is not waited for.
        echoes.expect_plain("t", call(&said).as_bytes());
        (0..2).for_each(|_| echoes.turn_is_over("t"));
        assert!(!is_echo(&mut echoes, &raw("t")));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut echoes = OwnItems::default();
        (0..=PLAIN_MAX).for_each(|_| echoes.expect_plain("t", call(&item("user", &["no"])).as_bytes()));
        assert_eq!(echoes.plain.len(), PLAIN_MAX);
        (0..=DIGESTS_MAX).for_each(|number| {
            let told = call(&item("user", &[&number.to_string()]));
            echoes.expect(told.as_bytes());
            echoes.expect(told.as_bytes());
        });
        assert_eq!(echoes.digests.len(), DIGESTS_MAX);
    }
}
