//! Routes of the context buffer: list, push and remove waiting commands, and list deliveries.

use std::time::SystemTime;

use axum::body::Bytes;
use axum::extract::Path;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::routes::{Refusal, Responded, ThisSession, ok};
use crate::engine::{Command, ContextBounds, ContextSettings, Envelope, PushedCommand, RowId, WaitingCommand};
use crate::store::{Keep, KeptDelivery, KeptFragment, NewCommand, WhichCommands};

/// Commands that wait to be delivered to the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContextDocument {
    /// Oldest first.
    pub commands: Vec<ContextCommand>,
    /// Commands run since the last delivery, including those that were evicted.
    pub total_commands_run: u64,
}

/// A waiting command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContextCommand {
    /// Unique in its session; the ID in `DELETE …/context/ID`.
    pub id: RowId,
    #[serde(flatten)]
    pub command: Command,
    /// The thread to deliver it to; `None` for the thread of the next turn.
    pub thread_id: Option<String>,
}

/// Number of waiting commands after a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WaitingDocument {
    pub waiting: u64,
}

/// Deliveries of context to the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeliveriesDocument {
    /// The latest deliveries, oldest first.
    pub deliveries: Vec<KeptDelivery>,
}

impl ContextDocument {
    /// Builds the document from ledger rows.
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

/// The waiting commands as a message would carry them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FittedContext {
    /// The commands that fit the bounds, with the part of their output that fits. Oldest first.
    pub commands: Vec<ContextCommand>,
    pub commands_left_out: usize,
    /// Output lines of all waiting commands that do not fit.
    pub lines_left_out: usize,
}

impl ContextDocument {
    /// Fits the commands to the bounds as the relay does when a message is sent. Commands for different threads go out
    /// with different messages.
    #[must_use]
    pub(crate) fn fitted(&self, settings: &ContextSettings) -> FittedContext {
        let mut evicted = self.total_commands_run.saturating_sub(self.commands.len() as u64);
        let mut threads: Vec<&str> = self.commands.iter().filter_map(|one| one.thread_id.as_deref()).collect();
        threads.sort_unstable();
        threads.dedup();
        // Only the length of an unknown thread id matters.
        let unknown = uuid::Uuid::nil().to_string();
        // A command without a thread is fitted as part of a message to an unknown thread, unless the others share one thread.
        let messages: Vec<&str> = match &threads[..] {
            [] => vec![&unknown],
            [only] => vec![only],
            several => several.iter().copied().chain([&*unknown]).collect(),
        };
        let mut kept: Vec<Option<ContextCommand>> = vec![None; self.commands.len()];
        for thread_id in messages {
            let is_for = |one: &ContextCommand| one.thread_id.as_deref().is_none_or(|own| own == thread_id);
            let places: Vec<usize> = (0..self.commands.len()).filter(|at| is_for(&self.commands[*at])).collect();
            let queued: Vec<WaitingCommand> =
                places.iter().map(|at| self.commands[*at].waiting(std::mem::take(&mut evicted))).collect();
            let Some(envelope) = Envelope::fitted(thread_id, queued.iter().collect(), settings) else { continue };
            for (at, command) in places.iter().rev().zip(envelope.commands.into_iter().rev()) {
                kept[*at] = Some(ContextCommand { command, ..self.commands[*at].clone() });
            }
        }
        let lines =
            |commands: &[ContextCommand]| -> usize { commands.iter().map(|one| one.command.preview.lines.len()).sum() };
        let commands: Vec<ContextCommand> = kept.into_iter().flatten().collect();
        FittedContext {
            commands_left_out: self.commands.len() - commands.len(),
            lines_left_out: lines(&self.commands).saturating_sub(lines(&commands)),
            commands,
        }
    }
}

impl ContextCommand {
    fn waiting(&self, forgotten_before: u64) -> WaitingCommand {
        let (thread_id, command) = (self.thread_id.clone(), self.command.clone());
        WaitingCommand { row: self.id, thread_id, forgotten_before, command }
    }
}

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
pub(crate) fn not_waiting(command: &str) -> String {
    format!("no command with the number `{command}` waits; `codex-shim context show` lists the numbers")
}

pub(super) async fn deliveries(ThisSession(app): ThisSession) -> Responded {
    let deliveries = app.ledger()?.deliveries().await?;
    ok(&DeliveriesDocument { deliveries })
}

// The route that lists the fragments sent to each thread.

/// Fragments of all threads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FragmentsDocument {
    /// The thread with the latest fragment comes last.
    pub threads: Vec<ToldThread>,
}

/// Fragments of one thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ToldThread {
    pub thread_id: String,
    /// The latest text of each fragment, in the order they were sent.
    pub fragments: Vec<KeptFragment>,
}

impl FragmentsDocument {
    /// Builds the document from ledger rows.
    #[must_use]
    pub(crate) fn of(kept: Vec<KeptFragment>) -> FragmentsDocument {
        let mut threads: Vec<ToldThread> = Vec::new();
        for fragment in kept {
            let known = threads.iter().position(|thread| thread.thread_id == fragment.thread_id);
            let mut thread = match known {
                Some(index) => threads.remove(index),
                None => ToldThread { thread_id: fragment.thread_id.clone(), fragments: Vec::new() },
            };
            thread.fragments.push(fragment);
            threads.push(thread);
        }
        FragmentsDocument { threads }
    }
}

pub(super) async fn show_fragments(ThisSession(app): ThisSession) -> Responded {
    let kept = app.ledger()?.fragments().await?;
    ok(&FragmentsDocument::of(kept))
}
