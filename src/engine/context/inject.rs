//! Puts text in front of the user's words in the client's own `turn/start`; every other byte stays unchanged.

use serde_json::value::RawValue;

use super::strip::IMAGE_PREVIEW;
use crate::engine::threads::WORDS_CHARS_MAX;
use crate::wire::{Members, Message, Splice, elements, text};

/// Longest text of a turn that codex accepts, in characters over all text items. Source: its error `input_too_large`
/// (0.169).
pub(in crate::engine) const TURN_CHARS_MAX: usize = 1_048_576;

/// Longest accepted thread id, in bytes.
pub(in crate::engine) const THREAD_ID_BYTES_MAX: usize = 200;

/// A `turn/start` that can carry something.
#[derive(Debug)]
pub(in crate::engine) struct TurnStart<'a> {
    line: &'a [u8],
    pub(super) thread_id: String,
    /// The input array and its elements.
    input: &'a RawValue,
    items: Vec<&'a RawValue>,
    said: Said<'a>,
}

/// The user's words in an input.
#[derive(Debug, Default)]
struct Said<'a> {
    /// The first non-empty text item, with its text as written.
    first: Option<(Members<'a>, &'a RawValue)>,
    /// The concatenated text.
    text: String,
    has_image: bool,
}

impl<'a> TurnStart<'a> {
    /// Parses the message of a line. `None` if the server would reject it too.
    pub(in crate::engine) fn read(line: &'a [u8], message: &Message<'a>) -> Option<TurnStart<'a>> {
        if message.repeated_member {
            return None;
        }
        let params = Members::of(message.params?)?;
        let thread_id = params.text("threadId").filter(|id| !id.is_empty() && id.len() <= THREAD_ID_BYTES_MAX)?;
        let input = params.get("input")?;
        let items = elements(input)?;
        let said = Said::of(&items)?;
        Some(TurnStart { line, thread_id, input, items, said })
    }

    /// The line with `envelope` in front of the user's words; `None` if codex would reject its length.
    pub(super) fn with_envelope(&self, envelope: &str) -> Option<Vec<u8>> {
        if self.said.text.chars().count() + envelope.chars().count() > TURN_CHARS_MAX {
            return None;
        }
        let quoted = serde_json::to_string(envelope).expect("BUG: a string is JSON");
        let mut splice = Splice::of(self.line);
        match &self.said.first {
            Some((item, words)) => {
                let words = splice.range_of(words);
                splice.replace(words.start + 1..words.start + 1, &quoted[1..quoted.len() - 1]);
                move_ranges(&mut splice, item, |offset| offset.checked_add(envelope.len() as u64));
            }
            None => {
                let at = splice.range_of(self.input).start + 1;
                let comma = if self.items.is_empty() { "" } else { "," };
                splice.replace(at..at, format!("{{\"type\":\"text\",\"text\":{quoted}}}{comma}"));
            }
        }
        splice.apply()
    }

    /// The user's words.
    pub(in crate::engine) fn said_text(&self) -> &str {
        &self.said.text
    }

    /// The preview that codex derives for a thread that begins with this message.
    pub(super) fn preview(&self) -> String {
        match &*self.said.text {
            "" if self.said.has_image => IMAGE_PREVIEW.to_owned(),
            text => text.chars().take(WORDS_CHARS_MAX).collect(),
        }
    }
}

impl<'a> Said<'a> {
    fn of(items: &[&'a RawValue]) -> Option<Said<'a>> {
        let mut said = Said::default();
        let mut first_seen = false;
        for item in items {
            let item = Members::of(item)?;
            match item.text("type").as_deref() {
                Some("text") => {
                    let raw = item.get("text")?;
                    let words = text(raw)?;
                    said.text.push_str(&words);
                    // An empty text cannot be told apart from an injected item in the echo.
                    if !std::mem::replace(&mut first_seen, true) && !words.is_empty() {
                        said.first = Some((item, raw));
                    }
                }
                Some("image" | "localImage") => said.has_image = true,
                Some(_) | None => {}
            }
        }
        Some(said)
    }
}

/// Shifts the byte ranges of a text's elements, under their current and their old names.
pub(super) fn move_ranges(splice: &mut Splice<'_>, item: &Members<'_>, moved: impl Fn(u64) -> Option<u64>) {
    let Some(spans) = item.get("text_elements").and_then(elements) else { return };
    for span in spans.into_iter().filter_map(Members::of) {
        for range in ["byteRange", "byte_range"].iter().filter_map(|name| span.get(name)) {
            move_range(splice, range, &moved);
        }
    }
}

/// Shifts one range, an object with `start` and `end`.
pub(super) fn move_range(splice: &mut Splice<'_>, range: &RawValue, moved: impl Fn(u64) -> Option<u64>) {
    let Some(range) = Members::of(range) else { return };
    for end in ["start", "end"].iter().filter_map(|name| range.get(name)) {
        if let Some(to) = end.get().parse().ok().and_then(&moved) {
            splice.replace(splice.range_of(end), to.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Body;

    const ENVELOPE: &str = "\u{1e}é\"\u{1f}";
    const QUOTED: &str = r#"\u001eé\"\u001f"#;

    fn injected(line: &str) -> Option<String> {
        let Body::Message(message) = Body::parse(line.as_bytes()) else { panic!("{line}: no message") };
        let changed = TurnStart::read(line.as_bytes(), &message)?.with_envelope(ENVELOPE)?;
        Some(String::from_utf8(changed).expect("BUG: a splice of UTF-8 is UTF-8"))
    }

    fn turn(input: &str) -> String {
        format!(r#"{{"id":1,"method":"turn/start","params":{{"threadId":"t","input":{input}}}}}"#)
    }

    /// `@` in `expect` stands for the envelope.
    fn check(input: &str, expect: &str) {
        assert_eq!(injected(&turn(input)).as_deref(), Some(&*turn(&expect.replace('@', QUOTED))), "{input}");
    }

    #[test]
    fn envelope_precedes_first_text() {
        check(r#"[{"type":"text","text":"hi"}]"#, r#"[{"type":"text","text":"@hi"}]"#);
        check(
            r#"[ {"url":"x","type":"image"} , { "text" : "\"\u00e9" , "type" : "text" }, {"type":"text","text":"b"} ]"#,
            r#"[ {"url":"x","type":"image"} , { "text" : "@\"\u00e9" , "type" : "text" }, {"type":"text","text":"b"} ]"#,
        );
    }

    #[test]
    fn envelope_becomes_item_if_no_text() {
        check("[]", r#"[{"type":"text","text":"@"}]"#);
        check(r#"[{"type":"image","url":"x"}]"#, r#"[{"type":"text","text":"@"},{"type":"image","url":"x"}]"#);
        check(
            r#"[{"type":"text","text":""},{"type":"text","text":"b"}]"#,
            r#"[{"type":"text","text":"@"},{"type":"text","text":""},{"type":"text","text":"b"}]"#,
        );
    }

    #[test]
    fn ranges_shift_by_envelope_bytes() {
        check(
            r#"[{"type":"text","text":"ä hi","text_elements":[{"byteRange":{"start":0,"end": 5},"placeholder":null},{"x":1}]}]"#,
            r#"[{"type":"text","text":"@ä hi","text_elements":[{"byteRange":{"start":5,"end": 10},"placeholder":null},{"x":1}]}]"#,
        );
        check(
            r#"[{"text_elements":[{"byteRange":{"start":-1,"end":1.5}}],"type":"text","text":"x"}]"#,
            r#"[{"text_elements":[{"byteRange":{"start":-1,"end":1.5}}],"type":"text","text":"@x"}]"#,
        );
    }

    #[test]
    fn members_come_in_any_order_escaped_and_twice() {
        let line = r#"{"p\u0061rams":{"inp\u0075t":[{"te\u0078t":"a","type":"te\u0078t"}],"thread\u0049d":"t"},"method":"turn\/start","id":1}"#;
        let expect = line.replace("\"a\"", &format!("\"{QUOTED}a\""));
        assert_eq!(injected(line), Some(expect));
        check(r#"[{"type":"text","text":"a","text":"b"}]"#, r#"[{"type":"text","text":"a","text":"@b"}]"#);
        check(
            r#"[],"input":[{"type":"image","type":"text","text":"b"}]"#,
            r#"[],"input":[{"type":"image","type":"text","text":"@b"}]"#,
        );
    }

    #[test]
    fn text_with_leading_marker_is_ordinary() {
        check(
            r#"[{"type":"text","text":"\u001eCODEX_META {}\u001fx"}]"#,
            r#"[{"type":"text","text":"@\u001eCODEX_META {}\u001fx"}]"#,
        );
    }

    #[test]
    fn invalid_turns_are_left_unchanged() {
        for input in ["7", r#"["x"]"#, r#"[{"type":"text"}]"#, r#"[{"type":"text","text":7}]"#] {
            assert_eq!(injected(&turn(input)), None, "{input}");
        }
        assert_eq!(injected(&turn(r#"[{"type":"text","text":"\ud800"}]"#)), None);
        assert_eq!(injected(r#"{"id":1,"method":"turn/start","params":{"input":[]}}"#), None);
        assert_eq!(injected(&turn("[]").replace("\"id\":1", "\"id\":1,\"id\":2")), None);
    }

    #[test]
    fn overlong_turns_are_left_unchanged() {
        let room = TURN_CHARS_MAX - ENVELOPE.chars().count();
        let long = |chars: usize| turn(&format!(r#"[{{"type":"text","text":"{}"}}]"#, "ä".repeat(chars)));
        assert!(injected(&long(room)).is_some());
        assert_eq!(injected(&long(room + 1)), None);
    }
}
