//! The context of the model: commands that wait for it, deliveries, and fragments.

use serde::{Deserialize, Serialize};

use super::parameter::query;
use crate::engine::{Command, ContextSettings, Envelope, RowId, WaitingCommand};

query! {
    /// The commands that wait.
    ContextQuery -> ContextDocument = "context"
}

query! {
    /// The latest deliveries.
    DeliveriesQuery -> DeliveriesDocument = "context/deliveries"
}

query! {
    /// The fragments that threads were sent.
    FragmentsQuery -> FragmentsDocument = "fragments"
}

/// Commands that wait to be delivered to the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextDocument {
    /// Oldest first.
    pub commands: Vec<ContextCommand>,
    /// Commands run since the last delivery, including those that were evicted.
    pub total_commands_run: u64,
}

/// A waiting command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextCommand {
    /// Unique in its session; the ID in `DELETE …/context/ID`.
    pub id: RowId,
    #[serde(flatten)]
    pub command: Command,
    /// The thread to deliver it to; `None` for the thread of the next turn.
    pub thread_id: Option<String>,
}

/// Number of waiting commands after a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingDocument {
    pub waiting: u64,
}

/// Deliveries of context to the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveriesDocument {
    /// The latest deliveries, oldest first.
    pub deliveries: Vec<DeliveryDocument>,
}

impl ContextDocument {
    /// Builds the document from ledger rows.
    #[must_use]
    pub fn of(mut waiting: Vec<WaitingCommand>) -> ContextDocument {
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
pub struct FittedContext {
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
    pub fn fitted(&self, settings: &ContextSettings) -> FittedContext {
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

/// A delivery, for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryDocument {
    /// When it was sent, RFC 3339.
    pub at: String,
    pub thread_id: String,
    /// The turn, once the server has named it.
    pub turn_id: Option<String>,
    /// `envelope` or `inject_items`.
    pub carrier: String,
    /// `sent`, `delivered`, `refused`, `server_exited` or `unknown`.
    pub outcome: String,
    /// The text that the model saw.
    pub text: String,
}

/// Fragments of all threads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FragmentsDocument {
    /// The thread with the latest fragment comes last.
    pub threads: Vec<ThreadFragments>,
}

/// Fragments of one thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadFragments {
    pub thread_id: String,
    /// The latest text of each fragment, in the order they were sent.
    pub fragments: Vec<FragmentDocument>,
}

impl FragmentsDocument {
    /// Builds the document from ledger rows.
    #[must_use]
    pub fn of(kept: Vec<FragmentDocument>) -> FragmentsDocument {
        let mut threads: Vec<ThreadFragments> = Vec::new();
        for fragment in kept {
            let known = threads.iter().position(|thread| thread.thread_id == fragment.thread_id);
            let mut thread = match known {
                Some(index) => threads.remove(index),
                None => ThreadFragments { thread_id: fragment.thread_id.clone(), fragments: Vec::new() },
            };
            thread.fragments.push(fragment);
            threads.push(thread);
        }
        FragmentsDocument { threads }
    }
}

/// A fragment as last sent to a thread, for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FragmentDocument {
    pub thread_id: String,
    pub name: String,
    /// `developer` or `user`.
    pub role: String,
    /// `inject_items` or `developer_instructions`.
    pub carrier: String,
    /// When it was last sent, RFC 3339.
    pub at: String,
    /// The thread was compacted since; the fragment is sent again with the next turn.
    pub stale: bool,
    /// The text that the model saw.
    pub text: String,
}
