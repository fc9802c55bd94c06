//! Lines as the referee reads them, without any code of the house.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// The prefix of our own calls' ids.
const OURS: &str = "codex-shim:";

/// The relevant members of a message, as written.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Message<'a> {
    pub id: Option<Value>,
    pub method: Option<String>,
    pub params: Value,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl Message<'_> {
    pub fn read(line: &[u8]) -> Option<Message<'_>> {
        serde_json::from_slice(line).ok()
    }

    pub fn is_ours(&self) -> bool {
        self.id.as_ref().and_then(Value::as_str).is_some_and(|id| id.starts_with(OURS))
    }

    /// Whether a response is not an error.
    pub fn succeeds(&self) -> bool {
        self.error.is_none()
    }

    fn result(&self) -> Value {
        self.result.and_then(|result| serde_json::from_str(result.get()).ok()).unwrap_or_default()
    }

    /// Whether a response is that to `initialize`.
    pub fn names_server(&self) -> bool {
        self.result().get("userAgent").is_some()
    }

    /// The thread in a response, with its status.
    pub fn thread(&self) -> Value {
        self.result()["thread"].take()
    }

    /// The thread in a response that describes its sandbox, and its folder.
    pub fn thread_with_sandbox(&self) -> Option<(String, String)> {
        let result = self.result();
        let thread = result["thread"]["id"].as_str().filter(|_| result["sandbox"].is_object())?;
        Some((thread.to_owned(), result["cwd"].as_str()?.to_owned()))
    }

    /// The answered request and the answer.
    pub fn answer(&self) -> Option<(u64, String)> {
        let id = self.id.as_ref()?.as_u64().filter(|_| self.method.is_none())?;
        match (self.result, self.error) {
            (Some(result), None) => Some((id, result.get().to_owned())),
            (None, Some(error)) => Some((id, format!("{{\"error\":{}}}", error.get()))),
            (Some(_), Some(_)) | (None, None) => None,
        }
    }
}

/// The line without the envelope before the user's words, if it has one.
pub fn without_envelope(line: &[u8]) -> Option<Vec<u8>> {
    let start = memchr::memmem::find(line, b"\\u001eCODEX_META ")?;
    let end = start + memchr::memmem::find(&line[start..], b"\\u001f")? + b"\\u001f".len();
    Some([&line[..start], &line[end..]].concat())
}

/// Whether a line contains an envelope in any spelling.
pub fn marks_envelope(line: &[u8]) -> bool {
    let value = serde_json::from_slice::<Value>(line).unwrap_or_default();
    value.to_string().contains("\\u001eCODEX_META")
}

/// Whether a blank follows the first brace of a line, as in most of the odd spellings.
pub fn is_odd(line: &[u8]) -> bool {
    matches!(line, [b'{', b' ' | b'\t', ..])
}

pub fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(line).into_owned()
}

pub fn or_nothing(line: Option<Vec<u8>>) -> String {
    line.map_or_else(|| "nothing".to_owned(), |line| shown(&line))
}
