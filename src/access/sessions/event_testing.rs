//! Events of a session from their JSON, for tests.

use serde_json::Value;

use super::entry::{Happening, SessionEvent};
use crate::history::event_testing::ui_event;
use crate::journal::Position;

/// An event of `mode=ui`, or one of the type `run` or `gap`.
pub fn session_event(at: Position, at_us: u64, json: Value) -> SessionEvent {
    let text = |member: &str| json[member].as_str().unwrap_or_default().to_owned();
    let what = match json["type"].as_str() {
        Some("run") => Happening::Run { generation: text("generation") },
        Some("gap") => Happening::Gap { lines: json["lines"].as_u64().unwrap_or(0), reason: text("reason") },
        Some(_) | None => Happening::Ui(Box::new(ui_event(json))),
    };
    SessionEvent { at, at_us, what }
}
