//! What a context engine is asked and told, and what comes of it.
//!
//! Plain data. How the engine is reached, and what it needs to know of the conversation, is not known here.

use std::time::Duration;

use crate::engine::token::Token;

/// Something that a context engine is asked or told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consultation {
    /// There is a thread: what was said in it before may be told.
    Opened {
        /// Which.
        thread_id: String,
    },
    /// A turn begins: what is the model to be shown? Lines wait for [`crate::engine::Input::Consulted`].
    Assemble {
        /// What waits.
        token: Token,
        /// Until when it waits, as [`crate::engine::Now::elapsed`].
        due: Duration,
        /// The thread.
        thread_id: String,
        /// What the user says.
        prompt: String,
        /// What there is room for in front of it, in characters.
        room_chars: usize,
        /// The model, where it is known.
        model: Option<String>,
        /// The tools that the client has given the thread, by their names.
        tools: Vec<String>,
    },
    /// The client has the thread compacted. Lines wait, likewise.
    Compact {
        /// What waits.
        token: Token,
        /// Until when it waits, as [`crate::engine::Now::elapsed`].
        due: Duration,
        /// The thread.
        thread_id: String,
    },
    /// A turn is over, and was not failed or interrupted.
    TurnCompleted {
        /// The thread.
        thread_id: String,
        /// The turn.
        turn_id: String,
    },
}

/// What a context engine has assembled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assembled {
    /// What goes in front of the user's words, from marker to marker.
    pub projection: Option<String>,
    /// It is to be shown once for each of these and thread; `None` is with every turn.
    pub epoch: Option<String>,
    /// What the developer says in this thread from now on.
    pub addition: Option<String>,
}

/// What earlier runs have told threads, as the ledger has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remembered {
    /// The fragments that threads were told, oldest first.
    pub fragments: Vec<(String, SentFragment)>,
    /// The epochs of which threads were shown a projection, oldest first: thread and epoch.
    pub epochs: Vec<(String, String)>,
}

/// A fragment as a thread was told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentFragment {
    /// Its name.
    pub name: String,
    /// The role of the message that carried it.
    pub role: &'static str,
    /// How it was carried.
    pub carrier: FragmentCarrier,
    /// What the model was shown.
    pub text: String,
}

/// How a fragment gets to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FragmentCarrier {
    /// By a call of our own ahead of a turn.
    InjectItems,
    /// With the developer's words of a thread that is started or resumed.
    DeveloperInstructions,
}

impl FragmentCarrier {
    /// Its name in the ledger.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FragmentCarrier::InjectItems => "inject_items",
            FragmentCarrier::DeveloperInstructions => "developer_instructions",
        }
    }
}
