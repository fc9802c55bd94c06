//! The arguments that name a session, the same for every tool.
//!
//! Most tools accept the session as their first word; every tool accepts `--session`.

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
    pub(super) fn name(&self) -> Option<&str> {
        self.word.as_deref().or(self.flag.as_deref())
    }
}

#[derive(Debug, Args)]
pub(super) struct SessionFlag {
    /// Session: its name, a unique beginning of it, or `latest`
    #[arg(long = "session", value_name = "SESSION", id = "session", add = complete::sessions())]
    flag: Option<String>,
}

impl SessionFlag {
    pub(super) fn name(&self) -> Option<&str> {
        self.flag.as_deref()
    }
}
