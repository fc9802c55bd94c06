//! Builds the lines of our own requests and notifications.

use serde_json::{Value, json};

use super::method::Method;

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
