//! Routes of the context buffer: list, push and remove waiting commands, and list deliveries.

use std::time::SystemTime;

use axum::body::Bytes;
use axum::extract::Path;
use axum::http::StatusCode;

use super::routes::{Refusal, Responded, ThisSession, ok};
use crate::api::{ContextDocument, DeliveriesDocument, FragmentsDocument, WaitingDocument};
use crate::engine::{ContextBounds, PushedCommand, RowId};
use crate::store::{Keep, NewCommand, WhichCommands};

/// Reads one command or an array of them. The first byte decides which, so that an error refers to the form the caller chose.
fn read(body: &[u8]) -> Result<Vec<PushedCommand>, Refusal> {
    let unreadable = |error: serde_json::Error| Refusal::body(format!("the body is not a command in JSON: {error}"));
    match body.trim_ascii_start().first() {
        Some(b'[') => serde_json::from_slice(body).map_err(unreadable),
        Some(_) | None => serde_json::from_slice(body).map(|one| vec![one]).map_err(unreadable),
    }
}

/// Cleans and cuts pushed commands, and drops private ones.
///
/// # Errors
///
/// The problem with the first invalid command.
pub fn new_commands(
    pushed: Vec<PushedCommand>,
    now: SystemTime,
    bounds: &ContextBounds,
) -> Result<Vec<NewCommand>, String> {
    let now_ms = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as i64;
    let single = pushed.len() == 1;
    let kept = pushed.into_iter().enumerate().filter(|(_, pushed)| !pushed.private);
    kept.map(|(index, pushed)| {
        let thread_id = pushed.thread_id.clone();
        let keep = if pushed.once { Keep::Once } else { Keep::Always };
        match pushed.into_command(now_ms, bounds) {
            Ok(command) => Ok(NewCommand { thread_id, command, keep }),
            Err(error) if single => Err(error.to_string()),
            Err(error) => Err(format!("command {index}: {error}; no command was stored")),
        }
    })
    .collect()
}

pub(super) async fn show(ThisSession(app): ThisSession) -> Responded {
    let waiting = app.ledger()?.waiting_context().await?;
    ok(&ContextDocument::of(waiting))
}

pub(super) async fn push(ThisSession(app): ThisSession, body: Bytes) -> Responded {
    let commands = new_commands(read(&body)?, SystemTime::now(), &app.context_bounds());
    let commands = commands.map_err(|why| Refusal::bad("invalid_command", why))?;
    let waiting = app.ledger()?.push_context(commands).await?;
    ok(&WaitingDocument { waiting: waiting as u64 })
}

pub(super) async fn clear(ThisSession(app): ThisSession) -> Responded {
    app.ledger()?.clear_context(WhichCommands::All).await?;
    ok(&WaitingDocument { waiting: 0 })
}

pub(super) async fn drop_one(ThisSession(app): ThisSession, Path((_, command)): Path<(String, String)>) -> Responded {
    let none = || Refusal::new(StatusCode::NOT_FOUND, "command_not_found", not_waiting(&command));
    let id: RowId = command.parse().map_err(|_| none())?;
    let ledger = app.ledger()?;
    if ledger.clear_context(WhichCommands::One(id)).await? == 0 {
        return Err(none());
    }
    let waiting = ledger.waiting_context().await?.len();
    ok(&WaitingDocument { waiting: waiting as u64 })
}

/// The message for an unknown command number.
#[must_use]
pub fn not_waiting(command: &str) -> String {
    format!("no command with the number `{command}` waits; `codex-shim context show` lists the numbers")
}

pub(super) async fn deliveries(ThisSession(app): ThisSession) -> Responded {
    let deliveries = app.ledger()?.deliveries().await?;
    ok(&DeliveriesDocument { deliveries })
}

pub(super) async fn show_fragments(ThisSession(app): ThisSession) -> Responded {
    let kept = app.ledger()?.fragments().await?;
    ok(&FragmentsDocument::of(kept))
}
