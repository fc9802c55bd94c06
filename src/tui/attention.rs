//! Requests that need attention in any session: the bell rings once for each, and the terminal's title counts them.
//!
//! Pure.

use std::collections::HashSet;

use super::events::Command;
use super::model::{Link, Model};
use super::names;
use super::text::plain;

/// Most requests whose bell is remembered.
const RUNG_MAX: usize = 10_000;

/// Rings once for each new request.
pub(super) fn ring(model: &mut Model) -> Vec<Command> {
    let mut waiting: HashSet<(String, String)> = HashSet::new();
    for row in &model.list.rows {
        waiting.extend(row.waiting.iter().map(|(request_id, _)| (row.id.clone(), request_id.clone())));
    }
    if let Some(session) = &model.session {
        let asks = session.asks.iter().filter(|ask| ask.is_for_human());
        waiting.extend(asks.map(|ask| (session.id.clone(), ask.id.clone())));
    }
    let is_new = !waiting.is_subset(&model.rung);
    // A list that was read before an answer can arrive after it, so ended requests are remembered too.
    if model.rung.len() > RUNG_MAX {
        model.rung.clear();
    }
    model.rung.extend(waiting);
    if is_new { vec![Command::Ring] } else { Vec::new() }
}

/// Requests that wait for a person, in this session and in others.
pub(super) fn counts(model: &Model) -> (usize, usize) {
    let here = model.session.as_ref();
    let here = here.map_or(0, |session| session.asks.iter().filter(|ask| ask.is_for_human()).count());
    (here, model.elsewhere().map(|row| row.waiting.len()).sum())
}

/// The title of the terminal.
pub(super) fn title(model: &Model) -> String {
    let (here, elsewhere) = counts(model);
    let name =
        model.session.as_ref().map(|session| format!(" · {}", plain(&names::session(&session.cwd, session.client()))));
    let waits = match here + elsewhere {
        0 => String::new(),
        1 => "(1 waits) ".to_owned(),
        more => format!("({more} wait) "),
    };
    let is_stopped = model.session.as_ref().is_some_and(|session| session.link == Link::Stopped);
    let stopped = if is_stopped { " (stopped)" } else { "" };
    format!("{waits}codex-shim{}{stopped}", name.unwrap_or_default())
}
