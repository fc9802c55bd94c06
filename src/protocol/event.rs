//! A message whose method is resolved, and its place; and the lines of our own requests and notifications.

use std::ops::Deref;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::method::Method;
use crate::wire::{Members, Message};

/// A message and the method that it names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event<'a> {
    message: &'a Message<'a>,
    /// The method; `None` for a response and for a method that this program does not know.
    pub(crate) method: Option<Method>,
}

impl<'a> Event<'a> {
    pub(crate) fn of(message: &'a Message<'a>) -> Event<'a> {
        Event { message, method: message.method.as_deref().and_then(Method::of) }
    }

    /// The id of the client's request that its parameters name.
    pub(crate) fn named_request(&self) -> Option<&'a RawValue> {
        let method = self.method.filter(|method| method.names_client_request());
        method.and(self.message.params).and_then(Members::of)?.get("requestId")
    }

    /// The name of its method, known or not; `None` for a response.
    pub(crate) fn name(&self) -> Option<&'a str> {
        self.message.method.as_deref()
    }

    /// Whether the server has refused a call because it ends once its turns are over. Source: codex 0.169 after SIGTERM; it
    /// refuses `thread/start`, `thread/resume`, `thread/fork` and `turn/start`, and shows it in no other way.
    pub(crate) fn is_refused_by_draining_server(&self) -> bool {
        let data = self.message.error.and_then(Members::of).and_then(|error| error.get("data")).and_then(Members::of);
        data.and_then(|data| data.text("reason")).as_deref() == Some("serverShuttingDown")
    }
}

impl<'a> Deref for Event<'a> {
    type Target = Message<'a>;

    fn deref(&self) -> &Message<'a> {
        self.message
    }
}

/// The thread, turn and item of a message, as far as it names them.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ItemPlace {
    pub thread_id: Option<String>,
    pub turn_id: Option<String>,
    pub item_id: Option<String>,
}

impl ItemPlace {
    /// Reads the place from parameters, by current names and those of early 2026.
    pub(crate) fn of(params: Option<&RawValue>) -> ItemPlace {
        let Some(params) = params.and_then(Members::of) else { return ItemPlace::default() };
        let first = |names: [&str; 2]| names.iter().find_map(|name| params.text(name));
        ItemPlace {
            thread_id: first(["threadId", "conversationId"]),
            turn_id: first(["turnId", "turn_id"]),
            item_id: first(["itemId", "callId"]),
        }
    }
}

/// A request line. `params` is JSON.
pub(crate) fn request_line(id: &str, method: &str, params: Option<&str>) -> Vec<u8> {
    let (id, method) = (Value::from(id), Value::from(method));
    let line = match params {
        Some(params) => format!("{{\"id\":{id},\"method\":{method},\"params\":{params}}}"),
        None => format!("{{\"id\":{id},\"method\":{method}}}"),
    };
    line.into_bytes()
}

/// A notification line without parameters.
pub(crate) fn notification_line(method: Method) -> Vec<u8> {
    format!("{{\"method\":\"{}\"}}", method.name()).into_bytes()
}

/// Parameters that put messages into a thread's history: the role and the texts of each.
pub(crate) fn inject_items_params(thread_id: &str, messages: &[(&str, Vec<&str>)]) -> String {
    let items: Vec<Value> = messages
        .iter()
        .map(|(role, texts)| {
            let content: Vec<Value> = texts.iter().map(|text| json!({ "type": "input_text", "text": text })).collect();
            json!({ "type": "message", "role": role, "content": content })
        })
        .collect();
    json!({ "threadId": thread_id, "items": items }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let place = |params: &str| ItemPlace::of(serde_json::from_str(params).ok());
        let told = place(r#"{"threadId":"t","turnId":"u","itemId":"i"}"#);
        assert_eq!((told.thread_id.as_deref(), told.item_id.as_deref()), (Some("t"), Some("i")));
        let old = place(r#"{"conversationId":"c","callId":"k"}"#);
        assert_eq!((old.thread_id.as_deref(), old.turn_id, old.item_id.as_deref()), (Some("c"), None, Some("k")));
    }
}
