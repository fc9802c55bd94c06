//! What the model is shown besides the user's words, as a user sets it: a context engine, and fragments.
//!
//! Plain data. Nothing is run or read here.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What the model is shown besides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AssemblySettings {
    /// A context engine, where one is set.
    pub context_engine: Option<ContextEngineSettings>,
    /// Fragments, in the order of the file.
    pub fragments: Vec<Fragment>,
}

/// A context engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextEngineSettings {
    /// Its program and the arguments of that; never empty.
    pub command: Vec<String>,
    /// How long lines of a thread wait for it.
    pub deadline: Duration,
    /// What it is told that there is room for, in tokens.
    pub token_budget: Option<u64>,
    /// Longest projection of what it assembles, in characters from marker to marker.
    pub projection_chars_max: usize,
}

/// Something that each thread is shown, and shown again once it has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// Its name, which is its tag too.
    pub name: String,
    /// Who says it.
    pub role: FragmentRole,
    /// Where it comes from.
    pub source: FragmentSource,
    /// Which threads are shown it.
    pub threads: FragmentThreads,
    /// Longest text of it, in bytes, without its tags.
    pub bytes_max: usize,
}

/// Who says a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FragmentRole {
    /// The developer.
    Developer,
    /// The user, though it is none of his words.
    ContextualUser,
}

impl FragmentRole {
    /// Its name in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FragmentRole::Developer => "developer",
            FragmentRole::ContextualUser => "contextual_user",
        }
    }

    /// The role of the message that carries it. Source: codex's items.
    #[must_use]
    pub(in crate::engine) fn of_message(self) -> &'static str {
        match self {
            FragmentRole::Developer => "developer",
            FragmentRole::ContextualUser => "user",
        }
    }
}

/// Where a fragment comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FragmentSource {
    /// What a program prints: it and its arguments.
    Command(Vec<String>),
    /// What stands in a file.
    File(PathBuf),
    /// This.
    Text(String),
}

impl fmt::Display for FragmentSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FragmentSource::Command(words) => write!(f, "command {}", words.join(" ")),
            FragmentSource::File(path) => write!(f, "file {}", path.display()),
            FragmentSource::Text(_) => f.write_str("text"),
        }
    }
}

/// Which threads are shown a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FragmentThreads {
    /// All.
    All,
    /// Those that begin while we look on, and those that were shown it when they did.
    New,
}

impl FragmentThreads {
    /// Its name in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FragmentThreads::All => "all",
            FragmentThreads::New => "new",
        }
    }
}
