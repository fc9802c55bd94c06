//! The routes of the context buffer: what waits, pushing to it, clearing it, and what was shown to the model.

use std::sync::Arc;
use std::time::SystemTime;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::known::{Known, ThisSession};
use super::refusal::{Refusal, json};
use crate::engine::{Command, ContextBounds, PushedCommand, RowId, WaitingCommand};
use crate::store::{Keep, KeptDelivery, Ledger, LedgerError, NewCommand, WhichCommands};

/// What waits to be shown to the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContextDocument {
    /// The commands, oldest first.
    pub commands: Vec<ContextCommand>,
    /// How many were run since the model was last shown some, those that are no longer kept included.
    pub total_commands_run: u64,
}

/// One of these commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContextCommand {
    /// Its number in this session, which no other command ever has: `DELETE …/context/ID` takes it.
    pub id: RowId,
    /// The command.
    #[serde(flatten)]
    pub command: Command,
    /// The thread that it is for; `None` for whichever has the next turn.
    pub thread_id: Option<String>,
}

/// How many commands wait after a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WaitingDocument {
    /// So many.
    pub waiting: u64,
}

/// What the model was shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeliveriesDocument {
    /// The last deliveries, oldest first.
    pub deliveries: Vec<KeptDelivery>,
}

impl ContextDocument {
    /// Of the rows of a ledger.
    #[must_use]
    pub(crate) fn of(mut waiting: Vec<WaitingCommand>) -> ContextDocument {
        Command::put_in_order(&mut waiting, |waiting| &waiting.command);
        let total_commands_run = waiting.iter().map(|waiting| 1 + waiting.forgotten_before).sum();
        let commands = waiting
            .into_iter()
            .map(|waiting| ContextCommand { id: waiting.row, command: waiting.command, thread_id: waiting.thread_id })
            .collect();
        ContextDocument { commands, total_commands_run }
    }
}

/// Reads one command or an array of them. Which it is is told by the first byte, so that an error is about what was meant.
fn read(body: &[u8]) -> Result<Vec<PushedCommand>, Refusal> {
    let unreadable =
        |error: serde_json::Error| Refusal::Unreadable(format!("the body is not a command in JSON: {error}"));
    match body.trim_ascii_start().first() {
        Some(b'[') => serde_json::from_slice(body).map_err(unreadable),
        Some(_) | None => serde_json::from_slice(body).map(|one| vec![one]).map_err(unreadable),
    }
}

/// What was pushed, cleaned and cut; what is private is left out.
///
/// # Errors
///
/// What is wrong with the first of them that cannot be what somebody ran.
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
            Err(error) => Err(format!("command {index}: {error}; none of them is kept")),
        }
    })
    .collect()
}

pub(super) async fn show(State(known): State<Arc<Known>>, _: ThisSession) -> Result<Response, Refusal> {
    let waiting = ledger(&known)?.waiting_context().await.map_err(Refusal::Ledger)?;
    Ok(json(StatusCode::OK, &ContextDocument::of(waiting)))
}

pub(super) async fn push(State(known): State<Arc<Known>>, _: ThisSession, body: Bytes) -> Result<Response, Refusal> {
    let commands = new_commands(read(&body)?, SystemTime::now(), &known.context_bounds());
    let commands = commands.map_err(Refusal::Impossible)?;
    let waiting = ledger(&known)?.push_context(commands).await.map_err(Refusal::Ledger)?;
    Ok(json(StatusCode::OK, &WaitingDocument { waiting: waiting as u64 }))
}

pub(super) async fn clear(State(known): State<Arc<Known>>, _: ThisSession) -> Result<Response, Refusal> {
    ledger(&known)?.clear_context(WhichCommands::All).await.map_err(Refusal::Ledger)?;
    Ok(json(StatusCode::OK, &WaitingDocument { waiting: 0 }))
}

pub(super) async fn drop_one(
    State(known): State<Arc<Known>>,
    _: ThisSession,
    Path((_, command)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let none = || Refusal::plain(StatusCode::NOT_FOUND, "command_not_found", not_waiting(&command));
    let id: RowId = command.parse().map_err(|_| none())?;
    let ledger = ledger(&known)?;
    if ledger.clear_context(WhichCommands::One(id)).await.map_err(Refusal::Ledger)? == 0 {
        return Err(none());
    }
    let waiting = ledger.waiting_context().await.map_err(Refusal::Ledger)?.len();
    Ok(json(StatusCode::OK, &WaitingDocument { waiting: waiting as u64 }))
}

/// Says that no command of this number waits.
#[must_use]
pub(crate) fn not_waiting(command: &str) -> String {
    format!("no command with the number `{command}` waits; `codex-shim context show` lists the numbers")
}

pub(super) async fn deliveries(State(known): State<Arc<Known>>, _: ThisSession) -> Result<Response, Refusal> {
    let deliveries = ledger(&known)?.deliveries().await.map_err(Refusal::Ledger)?;
    Ok(json(StatusCode::OK, &DeliveriesDocument { deliveries }))
}

/// The ledger, or why it cannot be asked.
pub(super) fn ledger(known: &Known) -> Result<&Ledger, Refusal> {
    let none = || Refusal::Ledger(LedgerError::Unavailable("its thread could not be started".to_owned()));
    known.ledger.as_ref().ok_or_else(none)
}
