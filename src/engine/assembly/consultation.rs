//! A context engine: its settings, the calls to it, and their results.
//!
//! Plain data. This module does not know how to reach an engine or what conversation history it needs.

use std::time::Duration;

use super::SentFragment;
use crate::engine::token::Token;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextEngineSettings {
    /// Program and arguments; never empty.
    pub command: Vec<String>,
    /// How long the lines of a thread wait for it.
    pub deadline: Duration,
    /// Advertised room for context, in tokens.
    pub token_budget: Option<u64>,
    /// Longest projection, in characters from marker to marker.
    pub projection_chars_max: usize,
}

/// A call or notification to a context engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consultation {
    /// A thread exists; its earlier history may be sent.
    Opened { thread_id: String },
    /// A turn begins and needs context. Its lines are held until [`crate::engine::Input::Consulted`].
    Assemble {
        /// The hold.
        token: Token,
        /// Deadline, as [`crate::engine::Now::elapsed`].
        due: Duration,
        thread_id: String,
        /// The user's words.
        prompt: String,
        /// Room for context before the prompt, in characters.
        room_chars: usize,
        /// The model, if known.
        model: Option<String>,
        /// Names of the tools that the client defined for the thread.
        tools: Vec<String>,
    },
    /// The client requested a compaction. Its lines are held too.
    Compact {
        /// The hold.
        token: Token,
        /// Deadline, as [`crate::engine::Now::elapsed`].
        due: Duration,
        thread_id: String,
    },
    /// A turn completed without failure or interruption.
    TurnCompleted { thread_id: String, turn_id: String },
}

/// The result of a context engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assembled {
    /// Text to put before the user's words, from marker to marker.
    pub projection: Option<String>,
    /// Show the projection once per thread for each epoch; `None` means with every turn.
    pub epoch: Option<String>,
    /// Developer instructions for this thread from now on.
    pub addition: Option<String>,
}

/// Context sent by earlier runs, from the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remembered {
    /// Fragments by thread, oldest first.
    pub fragments: Vec<(String, SentFragment)>,
    /// Epochs whose projection a thread has seen, oldest first: thread and epoch.
    pub epochs: Vec<(String, String)>,
}
