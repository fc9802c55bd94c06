//! The arguments that name a session, the same for every tool.
//!
//! A tool whose first word would mean nothing else takes the session there; every tool takes `--session`.

use clap::Args;

use super::complete;

/// The session as a word or as `--session`.
#[derive(Debug, Args)]
pub(super) struct SessionWord {
    /// Session: its name, a unique beginning of it, or `latest`
    #[arg(value_name = "SESSION", id = "session_word", conflicts_with = "session", add = complete::sessions())]
    word: Option<String>,
    /// The same as SESSION
    #[arg(long = "session", value_name = "SESSION", id = "session", add = complete::sessions())]
    flag: Option<String>,
}

impl SessionWord {
    /// The name that the user gave, if any.
    pub(super) fn name(&self) -> Option<&str> {
        self.word.as_deref().or(self.flag.as_deref())
    }
}

/// The session as `--session`.
#[derive(Debug, Args)]
pub(super) struct SessionFlag {
    /// Session: its name, a unique beginning of it, or `latest`
    #[arg(long = "session", value_name = "SESSION", id = "session", add = complete::sessions())]
    flag: Option<String>,
}

impl SessionFlag {
    /// The name that the user gave, if any.
    pub(super) fn name(&self) -> Option<&str> {
        self.flag.as_deref()
    }
}
