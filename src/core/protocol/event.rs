//! A message whose method is resolved, and its place; and the lines of our own requests and notifications.

use std::ops::Deref;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Method, early};
use crate::wire::{Members, Message};

/// A message and the method that it names.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    message: &'a Message<'a>,
    /// The method; `None` for a response and for a method that this program does not know.
    pub method: Option<Method>,
}

impl<'a> Event<'a> {
    pub fn of(message: &'a Message<'a>) -> Event<'a> {
        Event { message, method: message.method.as_deref().and_then(Method::of) }
    }

    /// The id of the client's request that its parameters name.
    pub fn named_request(&self) -> Option<&'a RawValue> {
        let method = self.method.filter(|method| method.names_client_request());
        method.and(self.message.params).and_then(Members::of)?.get("requestId")
    }

    /// The name of its method, known or not; `None` for a response.
    pub fn name(&self) -> Option<&'a str> {
        self.message.method.as_deref()
    }

    /// Whether the server has refused a call because it ends once its turns are over. Source: codex 0.169 after SIGTERM; it
    /// refuses `thread/start`, `thread/resume`, `thread/fork` and `turn/start`, and shows it in no other way.
    pub fn is_refused_by_draining_server(&self) -> bool {
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
    /// Reads the place from parameters.
    pub fn of(params: Option<&RawValue>) -> ItemPlace {
        let Some(params) = params.and_then(Members::of) else { return ItemPlace::default() };
        ItemPlace {
            thread_id: thread_id(&params),
            turn_id: params.text("turnId").or_else(|| params.text("turn_id")),
            item_id: params.text("itemId").or_else(|| params.text(early::OTHER_ITEM_ID)),
        }
    }
}

/// The thread that parameters or a result name.
pub fn thread_id(params: &Members<'_>) -> Option<String> {
    params.text("threadId").or_else(|| params.text(early::OTHER_THREAD_ID))
}

/// The item that the parameters of a request name.
pub fn item_id(params: &Value) -> Option<&str> {
    ["itemId", early::OTHER_ITEM_ID].iter().find_map(|name| params[*name].as_str())
}

/// The members of parameters that name their thread, their turn and their item, themselves or, as an object, by its `id`. Of several
/// for one of them, the first one here counts.
pub const PLACE_MEMBERS: [&[&str]; 3] = [
    &["threadId", early::OTHER_THREAD_ID, "thread"],
    &["turnId", "turn"],
    &["itemId", early::OTHER_ITEM_ID, "item", "targetItemId"],
];

/// The largest number of such members for one of them.
pub const RANKS: usize = 4;

/// The item in a notification that the server adds to a thread's history, as the model gets it.
pub fn raw_item<'a>(method: Option<Method>, params: &Members<'a>) -> Option<&'a RawValue> {
    match method {
        Some(Method::RawResponseItemCompleted) => params.get("item"),
        Some(Method::EarlyRawResponseItem) => early::event(params)?.get("item"),
        Some(_) | None => None,
    }
}

/// The counts in a report on tokens, of the last model call and of all calls: the input, its cached part, the output, its reasoning,
/// and all. An event also names its turn. `None` if it is another notification.
pub fn token_counts(method: Option<Method>, params: Option<&str>) -> Option<([[u64; 5]; 2], Option<String>)> {
    let (path, calls, names) = match method {
        Some(Method::TokenUsageUpdated) => (
            &["tokenUsage"][..],
            ["last", "total"],
            ["inputTokens", "cachedInputTokens", "outputTokens", "reasoningOutputTokens", "totalTokens"],
        ),
        Some(Method::TokenCount) => early::TOKEN_COUNTS,
        Some(_) | None => return None,
    };
    let params = Members::of_text(params?)?;
    let turn_id = params.text("id");
    let usage = path.iter().try_fold(params, |around, name| Members::of(around.get(name)?))?;
    let counts = |call: &str| {
        let call = Members::of(usage.get(call)?)?;
        Some(names.map(|name| call.get(name).and_then(|count| count.get().parse().ok()).unwrap_or(0)))
    };
    Some(([counts(calls[0])?, counts(calls[1])?], turn_id))
}

/// A request line. `params` is JSON.
pub fn request_line(id: &str, method: &str, params: Option<&str>) -> Vec<u8> {
    let (id, method) = (Value::from(id), Value::from(method));
    let line = match params {
        Some(params) => format!("{{\"id\":{id},\"method\":{method},\"params\":{params}}}"),
        None => format!("{{\"id\":{id},\"method\":{method}}}"),
    };
    line.into_bytes()
}

/// A notification line without parameters.
pub fn notification_line(method: Method) -> Vec<u8> {
    format!("{{\"method\":\"{}\"}}", method.name()).into_bytes()
}

/// Parameters that put messages into a thread's history: the role and the texts of each.
pub fn inject_items_params(thread_id: &str, messages: &[(&str, Vec<&str>)]) -> String {
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
        assert_eq!(place("[]"), ItemPlace::default());
    }
}
