//! Settings of the context engine and the fragments. Plain data.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AssemblySettings {
    pub context_engine: Option<ContextEngineSettings>,
    /// In the order of the settings file.
    pub fragments: Vec<Fragment>,
}

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

/// A text that each thread receives, and receives again after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// The name, which is also the tag.
    pub name: String,
    pub role: FragmentRole,
    pub source: FragmentSource,
    pub threads: FragmentThreads,
    /// Longest text in bytes, without the tags.
    pub bytes_max: usize,
}

/// The role that a fragment speaks in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FragmentRole {
    Developer,
    /// The user's role, for text that the user did not write.
    ContextualUser,
}

impl FragmentRole {
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

/// The source of a fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FragmentSource {
    /// Output of a program: the program and its arguments.
    Command(Vec<String>),
    /// Content of a file.
    File(PathBuf),
    /// Fixed text.
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

/// Which threads receive a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FragmentThreads {
    All,
    /// Threads that start while the relay runs; they also receive later changes.
    New,
}

impl FragmentThreads {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FragmentThreads::All => "all",
            FragmentThreads::New => "new",
        }
    }
}
