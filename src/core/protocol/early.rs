//! The protocol that codex spoke until about 0.98, beside today's or in its place. Only this file knows its names; all others get
//! their meaning today.
//!
//! | then | today |
//! |---|---|
//! | notifications `codex/event/TYPE {id, msg: {type: TYPE, …}, conversationId}`; `id` is the turn | a method for each |
//! | `execCommandApproval {conversationId, callId, command: [WORD], cwd, parsedCmd, …}` | `item/commandExecution/requestApproval` |
//! | `applyPatchApproval {conversationId, callId, fileChanges: {PATH: {type, …}}, …}` | `item/fileChange/requestApproval`, whose item has the changes |
//! | answers `approved`, `approved_for_session`, `denied`, `abort` | `accept`, `acceptForSession`, `decline`, `cancel` |
//! | turns are numbered in each run of the server, items in each reading of a thread | unique ids |

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{ItemPlace, Method, Word};
use crate::wire::Members;

/// Prefix of the methods of notifications.
const EVENTS: &str = "codex/event/";

/// The member of a notification's parameters with its event.
pub const EVENT_MEMBER: &str = "msg";

/// The members of a result and of an event with the events of a thread's past.
pub const PAST_EVENTS: [&str; 2] = ["initialMessages", "initial_messages"];

/// Another name of `threadId`.
pub const OTHER_THREAD_ID: &str = "conversationId";

/// Another name of `itemId`. It is still the name of the item in `item/tool/call`.
pub(super) const OTHER_ITEM_ID: &str = "callId";

/// The members of a thread object that name it, or the thread with whose words it begins.
pub const THREAD_NAMES: [&str; 3] = ["id", OTHER_THREAD_ID, "forkedFromId"];

/// The changes in a request that does not leave them to its item.
const CHANGES: &str = "fileChanges";

/// The types of an item with a message of the user.
pub const USER_MESSAGES: [&str; 2] = ["userMessage", "UserMessage"];

/// The names of a byte range in a text's elements.
pub const BYTE_RANGES: [&str; 2] = ["byteRange", "byte_range"];

/// Methods that say the same as one of today.
const METHODS: [(Method, Method); 3] = [
    (Method::EarlyCommandApproval, Method::CommandApproval),
    (Method::EarlyPatchApproval, Method::FileChangeApproval),
    (Method::EarlyRawResponseItem, Method::RawResponseItemCompleted),
];

/// Members of approvals, and their names today.
const MEMBERS: [(&str, &str); 4] =
    [(OTHER_THREAD_ID, "threadId"), (OTHER_ITEM_ID, "itemId"), ("parsedCmd", "commandActions"), (CHANGES, "changes")];

/// Members of command approvals whose names have stayed. Source: the schemas of 0.77 and 0.125.
const SAME_MEMBERS: [&str; 4] = ["approvalId", "command", "cwd", "reason"];

impl Method {
    /// The method that says the same today.
    pub fn current(self) -> Method {
        METHODS.iter().find(|(early, _)| *early == self).map_or(self, |(_, today)| *today)
    }
}

/// Whether a request says itself what it asks for. Others may leave their command, or the changes, to the item that they name.
pub fn says_all(method: &str) -> bool {
    matches!(Method::of(method), Some(Method::EarlyCommandApproval | Method::EarlyPatchApproval))
}

/// The word of an answer to a request that says all.
pub(super) const fn word(word: Word) -> &'static str {
    match word {
        Word::Accept => "approved",
        Word::AcceptForSession => "approved_for_session",
        Word::Decline => "denied",
        Word::Cancel => "abort",
    }
}

/// The name of a member of an approval today, if that is another one.
pub fn renamed(name: &str) -> Option<&'static str> {
    MEMBERS.iter().find(|(early, _)| *early == name).map(|(_, today)| *today)
}

/// The name of a member of a command approval today; `None` if such a request does not have it.
pub fn approval_member<'a>(params: &Members<'_>, name: &'a str) -> Option<&'a str> {
    if params.get(OTHER_THREAD_ID).is_none() {
        return Some(name);
    }
    renamed(name).or_else(|| SAME_MEMBERS.contains(&name).then_some(name))
}

/// The changes in a request that says all, by path; null in any other.
pub fn own_changes(params: &Value) -> &Value {
    &params[CHANGES]
}

/// The first of them, as written.
pub fn first_own_change(params: &Members<'_>) -> Option<String> {
    Members::of(params.get(CHANGES)?)?.iter().next().map(|(path, _)| path.to_owned())
}

/// The kind, the new path, and the diff or text in a change that stands under its path.
pub(super) const CHANGE: [&[&str]; 3] = [&["/type"], &["/move_path"], &["/unified_diff", "/content"]];

/// A command: a line for a shell, or a list of words in a request that says all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandText<'a> {
    Line(&'a str),
    Words(Vec<&'a str>),
}

impl<'a> CommandText<'a> {
    pub fn of(command: &'a Value) -> Option<CommandText<'a>> {
        let words = || command.as_array()?.iter().map(Value::as_str).collect::<Option<_>>().map(CommandText::Words);
        command.as_str().map(CommandText::Line).or_else(words)
    }
}

/// Whether the id of a turn is only its number in one run of the server.
pub fn is_turn_number(turn_id: &str) -> bool {
    turn_id.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether the id of an item is only its number in one reading of the thread.
pub fn is_item_number(item_id: &str) -> bool {
    item_id.strip_prefix("item-").is_some_and(|number| !number.is_empty() && is_turn_number(number))
}

/// How a server reports something. It may report the same in both ways, on separate lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dialect {
    #[default]
    Now,
    /// As an event.
    Early,
}

impl Dialect {
    /// The dialect of a notification.
    pub fn of(method: &str) -> Dialect {
        if method.starts_with(EVENTS) { Dialect::Early } else { Dialect::Now }
    }
}

/// How the text of a piece is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Encoding {
    #[default]
    Plain,
    Base64,
}

impl Encoding {
    /// The name of the member with the text, in its quotation marks.
    pub const fn member(self) -> &'static str {
        match self {
            Encoding::Plain => "\"delta\"",
            Encoding::Base64 => "\"chunk\"",
        }
    }

    /// A text as JSON.
    pub fn written(self, text: String) -> String {
        match self {
            Encoding::Plain => Value::from(text).to_string(),
            Encoding::Base64 => format!("\"{}\"", BASE64_STANDARD.encode(text)),
        }
    }
}

/// What an event reports about an item.
#[derive(Debug, PartialEq, Eq)]
pub struct ItemEvent {
    pub turn_id: Option<String>,
    /// Missing in some pieces, which belong to the current item of their turn.
    pub item_id: Option<String>,
    /// The text that it adds to the item. Bytes that are not UTF-8, such as half a character, are not a piece.
    pub piece: Option<(Encoding, String)>,
}

impl ItemEvent {
    /// Reads the parameters of a notification in the dialect of events.
    pub fn of(method: &str, params: &str) -> Option<ItemEvent> {
        let params = Members::of_text(params)?;
        let event = event(&params)?;
        let held = || Members::of(event.get("item")?)?.text("id");
        let piece = || match (event.text("delta"), event.text("chunk")) {
            (Some(delta), _) => Some((Encoding::Plain, delta)),
            (None, chunk) => Some((Encoding::Base64, String::from_utf8(BASE64_STANDARD.decode(chunk?).ok()?).ok()?)),
        };
        Some(ItemEvent {
            turn_id: event.text("turn_id").or_else(|| params.text("id")),
            item_id: event.text("item_id").or_else(|| event.text("call_id")).or_else(held),
            piece: method.ends_with("_delta").then(piece).flatten(),
        })
    }
}

/// The event in the parameters of a notification.
pub(super) fn event<'a>(params: &Members<'a>) -> Option<Members<'a>> {
    Members::of(params.get(EVENT_MEMBER)?)
}

/// The text to which a piece with these parameters adds: its place, and the names of its item and its stream in an event.
pub fn piece_stream(params: &RawValue) -> (ItemPlace, [Option<String>; 3]) {
    let event = Members::of(params).and_then(|params| event(&params)).unwrap_or_default();
    (ItemPlace::of(Some(params)), ["item_id", "call_id", "stream"].map(|name| event.text(name)))
}

/// The members of a `token_count`; see [`super::token_counts`].
pub(super) const TOKEN_COUNTS: (&[&str], [&str; 2], [&str; 5]) = (
    &[EVENT_MEMBER, "info"],
    ["last_token_usage", "total_token_usage"],
    ["input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens", "total_tokens"],
);

/// Whether an event has words of the user as its `message`.
pub fn has_user_words(event: &Members<'_>) -> bool {
    event.text("type").as_deref() == Some("user_message")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::change::FileChange;
    use super::super::token_counts;
    use super::*;

    #[test]
    fn requests_have_their_method_of_today() {
        let check = |name: &str, expect: &str| {
            let method = Method::of(name).expect("BUG: it is in the table");
            assert_eq!((method.current().name(), says_all(name)), (expect, name != expect), "{name}");
        };
        check("execCommandApproval", "item/commandExecution/requestApproval");
        check("applyPatchApproval", "item/fileChange/requestApproval");
        check("item/commandExecution/requestApproval", "item/commandExecution/requestApproval");
        check("item/fileChange/requestApproval", "item/fileChange/requestApproval");
        let raw = Method::of("codex/event/raw_response_item").map(|method| method.current().name());
        assert_eq!(raw, Some("rawResponseItem/completed"));
    }

    #[test]
    fn answers_have_the_words_of_their_method() {
        for (early, today) in [
            ("approved", "accept"),
            ("approved_for_session", "acceptForSession"),
            ("denied", "decline"),
            ("abort", "cancel"),
        ] {
            let word = Word::named(early);
            assert_eq!((word, word.map(Word::decision)), (Word::named(today), Some(today)));
            for (method, sent) in [("applyPatchApproval", early), ("item/fileChange/requestApproval", today)] {
                assert_eq!(word.map(|word| word.in_answer_to(method)), Some(sent), "{method}");
                assert_eq!(Word::given(method, today), word, "{method}");
                assert_eq!(Word::given(method, early), word.filter(|_| sent == early), "{method}");
            }
        }
        assert_eq!(Word::named("maybe"), None);
    }

    #[test]
    fn places() {
        let place = |params: &str| ItemPlace::of(serde_json::from_str(params).ok());
        let expect = ItemPlace { thread_id: Some("c".to_owned()), turn_id: None, item_id: Some("k".to_owned()) };
        assert_eq!(place(r#"{"conversationId":"c","callId":"k"}"#), expect);
        assert_eq!(place(r#"{"callId":"x","conversationId":"x","itemId":"k","threadId":"c"}"#), expect);
    }

    #[test]
    fn members_of_approvals_have_their_names_of_today() {
        let name = |params: &str, name: &str| {
            let params = Members::of_text(params).expect("BUG: a test gives an object");
            approval_member(&params, name).map(str::to_owned)
        };
        for (early, today) in [
            ("conversationId", Some("threadId")),
            ("callId", Some("itemId")),
            ("parsedCmd", Some("commandActions")),
            ("command", Some("command")),
            ("threadId", None),
            ("availableDecisions", None),
        ] {
            assert_eq!(name(r#"{"conversationId":"c"}"#, early).as_deref(), today);
            assert_eq!(name(r#"{"threadId":"t"}"#, early).as_deref(), Some(early));
        }
        assert_eq!((renamed("fileChanges"), renamed("changes")), (Some("changes"), None));
    }

    #[test]
    fn changes_are_read_under_their_paths() {
        let params = r#"{"fileChanges":{
            "/b":{"type":"update","unified_diff":"d","move_path":"/c"},"/a":{"type":"add","content":"x"},"/d":{"odd":1}}}"#;
        let own = Members::of_text(params).as_ref().and_then(first_own_change);
        assert_eq!(own.as_deref(), Some("/b"));
        let params: Value = serde_json::from_str(params).expect("BUG: it is JSON");
        let changes = FileChange::all(own_changes(&params)).into_iter();
        let changes = changes.map(|FileChange { path, kind, moved_to, diff, .. }| [path, kind, moved_to, diff]);
        let expect = [
            [Some("/a"), Some("add"), None, Some("x")],
            [Some("/b"), Some("update"), Some("/c"), Some("d")],
            [Some("/d"), None, None, None],
        ];
        assert_eq!(changes.collect::<Vec<_>>(), expect);
        assert!(own_changes(&json!({ "changes": [] })).is_null());
    }

    #[test]
    fn commands_are_lines_or_words() {
        let (line, words, odd) = (json!("ls -l"), json!(["ls", "-l"]), json!(["ls", 1]));
        assert_eq!(CommandText::of(&line), Some(CommandText::Line("ls -l")));
        assert_eq!(CommandText::of(&words), Some(CommandText::Words(vec!["ls", "-l"])));
        assert_eq!((CommandText::of(&odd), CommandText::of(&Value::Null)), (None, None));
    }

    #[test]
    fn numbers_are_not_unique_ids() {
        assert!(is_turn_number("0") && is_turn_number("12") && !is_turn_number("0199a-1"));
        assert!(
            is_item_number("item-3") && !is_item_number("item-") && !is_item_number("item-a") && !is_item_number("3")
        );
    }

    #[test]
    fn events_report_items() {
        let check = |kind: &str, members: &str, expect: &str| {
            let params = format!(r#"{{"id":"u","msg":{{"type":"{kind}",{members}}},"conversationId":"t"}}"#);
            let event = ItemEvent::of(&format!("codex/event/{kind}"), &params).expect("BUG: it is an event");
            let piece = event.piece.map(|(encoding, text)| format!("{encoding:?} {text}"));
            let parts = [event.turn_id, event.item_id, piece].map(|part| part.unwrap_or_else(|| "~".to_owned()));
            assert_eq!(parts.join(" "), expect, "{kind} {members}");
        };
        check("agent_message_delta", r#""delta":"a""#, "u ~ Plain a");
        check("agent_message_content_delta", r#""turn_id":"v","item_id":"i","delta":"a""#, "v i Plain a");
        check("exec_command_output_delta", r#""call_id":"c","stream":"stdout","chunk":"YQ==""#, "u c Base64 a");
        // Half a character.
        check("exec_command_output_delta", r#""call_id":"c","stream":"stdout","chunk":"w6Q=""#, "u c Base64 ä");
        check("exec_command_output_delta", r#""call_id":"c","stream":"stdout","chunk":"ww==""#, "u c ~");
        check("item_started", r#""item":{"id":"i"}"#, "u i ~");
        check("token_count", r#""delta":"a""#, "u ~ ~");
        assert_eq!(ItemEvent::of("codex/event/x", r#"{"id":"u"}"#), None);
        assert_eq!([Dialect::of("codex/event/x"), Dialect::of("item/x")], [Dialect::Early, Dialect::Now]);
    }

    #[test]
    fn streams_of_pieces_are_told_apart() {
        let stream = |params: &str| piece_stream(serde_json::from_str(params).expect("BUG: it is JSON"));
        let event = |members: &str| stream(&format!(r#"{{"id":"u","msg":{{{members}}},"conversationId":"t"}}"#));
        let one = event(r#""call_id":"c","stream":"stdout","chunk":"YQ==""#);
        assert_eq!(one, event(r#""call_id":"c","stream":"stdout","chunk":"Yg==""#));
        for other in [r#""call_id":"d","stream":"stdout""#, r#""call_id":"c","stream":"stderr""#, r#""item_id":"c""#] {
            assert_ne!(one, event(other));
        }
        assert_ne!(stream(r#"{"threadId":"t","itemId":"i"}"#), stream(r#"{"threadId":"t","itemId":"j"}"#));
    }

    #[test]
    fn events_with_words_of_the_user() {
        let has = |event: &str| Members::of_text(event).is_some_and(|event| has_user_words(&event));
        assert!(has(r#"{"type":"user_message","message":""}"#) && !has(r#"{"type":"agent_message","message":""}"#));
    }

    #[test]
    fn token_counts_are_read() {
        let counts = |method: &str, params: &str| token_counts(Method::of(method), Some(params));
        let early = r#"{"id":"u","conversationId":"t","msg":{"type":"token_count","info":{
            "total_token_usage":{"input_tokens":6,"cached_input_tokens":7,"output_tokens":8,"reasoning_output_tokens":9,"total_tokens":10},
            "last_token_usage":{"input_tokens":1,"cached_input_tokens":2,"output_tokens":3,"reasoning_output_tokens":4,"total_tokens":5}}}}"#;
        let expect = [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]];
        assert_eq!(counts("codex/event/token_count", early), Some((expect, Some("u".to_owned()))));
        let today = r#"{"threadId":"t","turnId":"u","tokenUsage":{
            "last":{"totalTokens":5,"inputTokens":1,"cachedInputTokens":2,"outputTokens":3,"reasoningOutputTokens":4},
            "total":{"totalTokens":10,"inputTokens":6,"cachedInputTokens":7,"outputTokens":8,"reasoningOutputTokens":9}}}"#;
        assert_eq!(counts("thread/tokenUsage/updated", today), Some((expect, None)));
        assert_eq!(counts("codex/event/token_count", r#"{"id":"u","msg":{"info":null}}"#), None);
        assert_eq!((counts("thread/tokenUsage/updated", early), counts("turn/started", today)), (None, None));
    }
}
