//! Decodes records: the only place that reads recorded lines.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use sha1::{Digest as _, Sha1};

use super::bounded::Weigh;
use crate::journal::{Content, Origin, PlainRecord, Record};
use crate::protocol::{ItemPlace, Method, PLACE_MEMBERS, RANKS};
use crate::wire::{Body, Conn, Members, Message, PlainNotification, RpcId, Side, written_members};

/// Longest name of a method, thread, turn or item that is used unchanged, in bytes. Real servers send shorter ones; a
/// longer name is replaced with its start and a digest, so that different names stay different.
const NAME_BYTES_MAX: usize = 512;

/// Length of that start, in bytes.
const NAME_START_BYTES: usize = 64;

/// A decoded record.
#[derive(Debug)]
pub struct Seen<'a> {
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
    /// The connection of a line.
    pub conn: Conn,
    pub by: Origin,
    /// A line as recorded; empty if the record has none.
    pub line: &'a [u8],
    pub event: RecordEvent<'a>,
}

/// An event in a record, as far as histories need it.
#[derive(Debug)]
pub enum RecordEvent<'a> {
    /// A run of the child begins, or continues in another segment.
    Generation(String),
    /// A notification from the server.
    Notification(MethodMessage<'a>),
    /// A request from the server.
    ServerRequest { message: MethodMessage<'a>, id: RpcId },
    /// A call to the server, by the client or by us.
    ClientRequest { message: MethodMessage<'a>, id: RpcId },
    /// A response from the server.
    Response {
        id: RpcId,
        /// The result, if any.
        result: Option<&'a RawValue>,
        /// The error, if any.
        error: Option<&'a RawValue>,
    },
    /// A client's answer to a request of the server, or ours.
    Answer {
        id: RpcId,
        /// The result; `None` for an error.
        result: Option<&'a RawValue>,
    },
    /// An event of our own.
    ShimEvent { event: &'a str, data: Option<&'a RawValue> },
    /// Lines missing from the record.
    Gap {
        /// Number of lines; 0 if unknown, or if only our own events were lost.
        lines: u64,
        reason: &'a str,
    },
    /// Irrelevant for a history.
    Other,
}

/// A method with its parameters.
#[derive(Debug)]
pub struct MethodMessage<'a> {
    pub method: Cow<'a, str>,
    /// The method, if this program knows it.
    pub known: Option<Method>,
    pub params: Params<'a>,
    /// Its thread, turn and item.
    pub place: Place<'a>,
}

impl<'a> MethodMessage<'a> {
    fn new(method: Cow<'a, str>, params: Params<'a>, place: Place<'a>) -> MethodMessage<'a> {
        MethodMessage { known: Method::of(&method), method: name(method), params, place }
    }
}

impl MethodMessage<'_> {
    /// The text that the message adds to its item, if its method is known to do nothing else.
    pub(super) fn piece(&self) -> Option<&str> {
        let method = self.known?;
        let adds_text = matches!(
            method,
            Method::AgentMessageDelta
                | Method::PlanDelta
                | Method::ReasoningTextDelta
                | Method::ReasoningSummaryTextDelta
                | Method::CommandOutputDelta
        );
        self.place.delta.as_deref().filter(|_| adds_text)
    }
}

/// The recorded parameters of a message.
#[derive(Debug, Clone, Copy)]
pub enum Params<'a> {
    /// Valid JSON, as written.
    Written(&'a str),
    None,
    /// Omitted, for this reason.
    Omitted(&'a str),
}

impl<'a> Params<'a> {
    /// The parameters as written, if recorded.
    #[must_use]
    pub fn written(self) -> Option<&'a str> {
        match self {
            Params::Written(json) => Some(json),
            Params::None | Params::Omitted(_) => None,
        }
    }

    /// Deserializes the parameters; `None` if they do not match.
    #[must_use]
    pub fn read<T: Deserialize<'a>>(self) -> Option<T> {
        serde_json::from_str(self.written()?).ok()
    }

    /// The members of the parameters, if these are an object.
    #[must_use]
    pub(super) fn members(self) -> Option<Members<'a>> {
        Members::of_text(self.written()?)
    }
}

/// The thread, turn and item of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place<'a> {
    pub thread_id: Option<Cow<'a, str>>,
    pub turn_id: Option<Cow<'a, str>>,
    pub item_id: Option<Cow<'a, str>>,
    /// The text that a piece adds to the item.
    pub delta: Option<Cow<'a, str>>,
}

impl Weigh for ItemPlace {
    fn weight(&self) -> usize {
        self.thread_id.weight() + self.turn_id.weight() + self.item_id.weight()
    }
}

/// The text of a JSON string, borrowed if it has no escapes.
fn text(raw: &str) -> Option<Cow<'_, str>> {
    let plain = raw.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', plain.as_bytes()).is_none() {
        return Some(Cow::Borrowed(plain));
    }
    serde_json::from_str::<String>(raw).ok().map(Cow::Owned)
}

/// Bounds a name.
pub(super) fn name(name: Cow<'_, str>) -> Cow<'_, str> {
    if name.len() <= NAME_BYTES_MAX {
        return name;
    }
    let digest: String = Sha1::digest(name.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    Cow::Owned(format!("{}…{digest}", &name[..name.floor_char_boundary(NAME_START_BYTES)]))
}

impl<'a> Place<'a> {
    /// Reads the place from parameters.
    #[must_use]
    pub fn of(params: &'a str) -> Place<'a> {
        let mut places = Places::default();
        written_members(params).for_each(|(name, value)| places.take(&name, value));
        places.place()
    }

    pub(super) fn owned(&self) -> ItemPlace {
        let owned = |part: &Option<Cow<'_, str>>| part.as_deref().map(str::to_owned);
        ItemPlace { thread_id: owned(&self.thread_id), turn_id: owned(&self.turn_id), item_id: owned(&self.item_id) }
    }
}

/// The members of parameters that name a place.
#[derive(Default)]
struct Places<'a> {
    /// In the order of [`PLACE_MEMBERS`].
    ids: [[Option<Cow<'a, str>>; RANKS]; 3],
    delta: Option<Cow<'a, str>>,
}

impl<'a> Places<'a> {
    /// Takes a member with its value as written.
    fn take(&mut self, name: &str, value: &'a str) {
        let mut parts = self.ids.iter_mut().zip(&PLACE_MEMBERS);
        let found = parts.find_map(|(ids, members)| ids.get_mut(members.iter().position(|member| *member == name)?));
        let Some(id) = found.or((name == "delta").then_some(&mut self.delta)) else { return };
        *id = match name {
            "thread" | "turn" | "item" => {
                written_members(value).filter(|(name, _)| name == "id").last().and_then(|(_, id)| text(id))
            }
            _ => text(value),
        };
    }

    fn place(self) -> Place<'a> {
        let [thread_id, turn_id, item_id] = self.ids.map(|ids| ids.into_iter().flatten().next().map(name));
        Place { thread_id, turn_id, item_id, delta: self.delta }
    }
}

impl<'a> Seen<'a> {
    pub(super) fn without_line(at_us: u64, event: RecordEvent<'a>) -> Seen<'a> {
        Seen { at_us, conn: Conn::OWN, by: Origin::Shim, line: b"", event }
    }

    /// Decodes the record of a peer's message, which is nearly every record; `None` for any other.
    #[must_use]
    pub fn of_message(record: &'a [u8]) -> Option<Seen<'a>> {
        let PlainRecord { at_us, conn, from, line } = PlainRecord::of(record)?;
        let by_peer = Origin::Side(from);
        let mut places = Places::default();
        let found = PlainNotification::of(line, |name, value| places.take(name, value));
        if let Some(PlainNotification { method, params }) = found {
            let params = params.map_or(Params::None, Params::Written);
            let message = MethodMessage::new(Cow::Borrowed(method), params, places.place());
            return Some(Seen { at_us, conn, by: by_peer, line, event: by(from, message, None) });
        }
        match Body::parse(line) {
            Body::Message(message) => Some(Seen { at_us, conn, by: by_peer, line, event: said(from, message) }),
            Body::OtherJson | Body::Text | Body::Bytes => None,
        }
    }

    /// Decodes a record. `shown` is the line to decode instead of a line of the server or of a call of ours, if any; the record
    /// of a replacement is irrelevant by itself.
    #[must_use]
    pub fn of(record: &'a Record<'a>, shown: Option<&'a [u8]>) -> Seen<'a> {
        match record {
            // The server goes on, and so does its work.
            Record::Header(header) if header.adopted => Seen::without_line(header.at, RecordEvent::Other),
            Record::Header(header) => Seen::without_line(header.at, RecordEvent::Generation(header.generation.clone())),
            Record::Line { at_us, conn, from, to, replaces, content, masked: _, end: _ } => {
                let event = match (from, to) {
                    (_, _) if *replaces => RecordEvent::Other,
                    (Origin::Side(Side::Server), _) => line(Side::Server, content, shown),
                    (Origin::Side(Side::Client), _) => line(Side::Client, content, None),
                    (Origin::Shim, Some(Side::Server)) => line(Side::Client, content, shown),
                    (Origin::Shim, Some(Side::Client) | None) => RecordEvent::Other,
                };
                let line = content.bytes().unwrap_or_default();
                Seen { at_us: *at_us, conn: *conn, by: *from, line, event }
            }
            Record::Event { at_us, event, data } => {
                Seen::without_line(*at_us, RecordEvent::ShimEvent { event, data: *data })
            }
            Record::Gap { at_us, lines, reason } => {
                Seen::without_line(*at_us, RecordEvent::Gap { lines: *lines, reason })
            }
        }
    }
}

/// Whether the note of a start tells of a server that runs already.
pub(super) fn is_adopted(data: Option<&RawValue>) -> bool {
    is_true(data, "adopted")
}

/// Whether the note of a start is that of a hub.
pub(super) fn is_hub(data: Option<&RawValue>) -> bool {
    is_true(data, "hub")
}

fn is_true(data: Option<&RawValue>, name: &str) -> bool {
    data.and_then(Members::of).and_then(|data| data.get(name)).is_some_and(|value| value.get() == "true")
}

/// The key of a call.
pub(super) fn call_key(conn: Conn, id: &RpcId) -> String {
    match conn {
        Conn::OWN => id.to_string(),
        Conn(conn) => format!("{conn} {id}"),
    }
}

fn line<'a>(from: Side, content: &'a Content<'a>, shown: Option<&'a [u8]>) -> RecordEvent<'a> {
    match (shown.or_else(|| content.bytes()), content) {
        (Some(bytes), _) => match Body::parse(bytes) {
            Body::Message(message) => said(from, message),
            Body::OtherJson | Body::Text | Body::Bytes => RecordEvent::Other,
        },
        (None, Content::Omitted { reason, method: Some(method), id, .. }) => {
            let method = Cow::Borrowed(&**method);
            let message = MethodMessage::new(method, Params::Omitted(reason), Place::default());
            by(from, message, id.map(RpcId::from_raw))
        }
        (None, _) => RecordEvent::Other,
    }
}

fn said(from: Side, message: Message<'_>) -> RecordEvent<'_> {
    let id = message.id.map(RpcId::from_raw);
    match message.method {
        Some(method) => by(from, with_params(method, message.params.map(RawValue::get)), id),
        None => match (from, id) {
            (Side::Server, Some(id)) => {
                let error = message.error.filter(|error| error.get() != "null");
                RecordEvent::Response { id, result: message.result, error }
            }
            (Side::Client, Some(id)) => RecordEvent::Answer { id, result: message.result },
            (Side::Server | Side::Client, None) => RecordEvent::Other,
        },
    }
}

fn with_params<'a>(method: Cow<'a, str>, params: Option<&'a str>) -> MethodMessage<'a> {
    let place = params.map(Place::of).unwrap_or_default();
    MethodMessage::new(method, params.map_or(Params::None, Params::Written), place)
}

fn by<'a>(from: Side, message: MethodMessage<'a>, id: Option<RpcId>) -> RecordEvent<'a> {
    match (from, id) {
        (Side::Server, None) => RecordEvent::Notification(message),
        (Side::Server, Some(id)) => RecordEvent::ServerRequest { message, id },
        (Side::Client, Some(id)) => RecordEvent::ClientRequest { message, id },
        (Side::Client, None) => RecordEvent::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(record: &str, replaced_by: Option<&str>, expect: &str) {
        let record = Record::parse(record.as_bytes()).expect("BUG: a test gives records");
        let seen = Seen::of(&record, replaced_by.map(str::as_bytes));
        let place = |actual: &MethodMessage<'_>| {
            let Place { thread_id, turn_id, item_id, delta } = &actual.place;
            let parts = [thread_id, turn_id, item_id, delta].map(|part| part.as_deref().unwrap_or("-").to_owned());
            format!("{} {}", actual.method, parts.join("/"))
        };
        let actual = match &seen.event {
            RecordEvent::Generation(generation) => format!("generation {generation}"),
            RecordEvent::Notification(actual) => format!("actual {}", place(actual)),
            RecordEvent::ServerRequest { message, id } => format!("asked {id} {}", place(message)),
            RecordEvent::ClientRequest { message, id } => format!("called {id} {}", place(message)),
            RecordEvent::Response { id, result, error } => {
                format!("answered {id} {} {}", result.is_some(), error.is_some())
            }
            RecordEvent::Answer { id, result } => format!("replied {id} {}", result.is_some()),
            RecordEvent::ShimEvent { event, .. } => format!("ours {event}"),
            RecordEvent::Gap { lines, reason } => format!("gap {lines} {reason}"),
            RecordEvent::Other => "other".to_owned(),
        };
        assert_eq!(actual, expect);
    }

    #[test]
    fn long_names_are_bounded_and_stay_distinct() {
        let long = |last: &str| format!("{}{last}", "ä".repeat(NAME_BYTES_MAX));
        let [a, b] = ["a", "b"].map(|last| name(Cow::Owned(long(last))).into_owned());
        assert!(a != b && a.len() < NAME_BYTES_MAX && a.starts_with("ää"), "{a}");
        assert_eq!(name(Cow::Owned(long("a"))), a);
        let longest = "x".repeat(NAME_BYTES_MAX);
        assert_eq!(name(Cow::Borrowed(&longest)), longest);
        let record = format!(
            r#"{{"at":1,"from":"server","line":{{"method":"{0}","params":{{"threadId":"{0}","turnId":"{0}","itemId":"{0}"}}}}}}"#,
            long("a")
        );
        check(&record, None, &format!("actual {a} {a}/{a}/{a}/-"));
    }

    #[test]
    fn records_are_decoded_by_kind() {
        let line = |from: &str, line: &str| format!(r#"{{"at":1,"from":{from},"line":{line}}}"#);
        let server = |text: &str| line("\"server\"", text);
        let item = r#"{"threadId":"t","turnId":"u","itemId":"i","delta":"a\"b"}"#;
        check(&server(&format!(r#"{{"method":"x/delta","params":{item}}}"#)), None, "actual x/delta t/u/i/a\"b");
        let held = r#"{"turn":{"x":[{}],"id":"u"},"item":{"id":"i"},"thread":{"id":"t"},"delta":null}"#;
        check(&server(&format!(r#"{{"method":"m","params":{held}}}"#)), None, "actual m t/u/i/-");
        check(
            &server(r#"{"id":"0","method":"m","params":{"conversationId":"c","callId":"k"}}"#),
            None,
            r#"asked "0" m c/-/k/-"#,
        );
        check(&server(r#"{"method":"m","params":[1]}"#), None, "actual m -/-/-/-");
        check(&server(r#"{"id":0,"result":{}}"#), None, "answered 0 true false");
        check(&server(r#"{"id":0,"error":null}"#), None, "answered 0 false false");
        check(&server("7"), None, "other");
        check(&server(r#"{"method":"a"}"#), Some(r#"{"method":"b"}"#), "actual b -/-/-/-");
        check(&line("\"client\"", r#"{"id":0,"result":{}}"#), None, "replied 0 true");
        check(&line("\"client\"", r#"{"id":0,"error":{}}"#), None, "replied 0 false");
        check(&line("\"client\"", r#"{"id":1,"method":"turn/start"}"#), None, "called 1 turn/start -/-/-/-");
        check(&line(r#""shim","to":"server""#, r#"{"id":"s","method":"m"}"#), None, r#"called "s" m -/-/-/-"#);
        check(&line(r#""shim","to":"server","replaces":true"#, r#"{"id":1,"method":"turn/start"}"#), None, "other");
        check(
            r#"{"at":1,"from":"server","omitted":"secret","bytes":9,"method":"account/x"}"#,
            None,
            "actual account/x -/-/-/-",
        );
        check(r#"{"at":1,"from":"server","omitted":"size","bytes":9}"#, None, "other");
        check(r#"{"at":1,"from":"shim","event":"e","data":{}}"#, None, "ours e");
        check(r#"{"at":1,"gap":{"lines":3,"reason":"r"}}"#, None, "gap 3 r");
    }
}
