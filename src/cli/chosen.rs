//! Which session a tool is about, and how it ends where that cannot be told.

use std::fmt;
use std::path::Path;

use crate::config::Environment;
use crate::store::{Choice, ChoiceError, Found, Otherwise, StoreError, choose};

use super::{FAILED, NO_SUCH_SESSION, say};

/// Why a tool has no session to work on.
#[derive(Debug)]
pub(super) enum NotChosen {
    /// We do not know where sessions are kept.
    NoHome,
    /// They cannot be looked at.
    Store(StoreError),
    /// None, or none of several.
    Choice(ChoiceError),
}

impl NotChosen {
    /// Tells the user, and gives the status to exit with.
    pub(super) fn told(&self) -> i32 {
        say(&self.to_string());
        match self {
            NotChosen::NoHome | NotChosen::Store(_) => FAILED,
            NotChosen::Choice(_) => NO_SUCH_SESSION,
        }
    }
}

impl fmt::Display for NotChosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotChosen::NoHome => f.write_str("cannot find the state folder: set HOME or CODEX_SHIM_HOME"),
            NotChosen::Store(error) => error.fmt(f),
            NotChosen::Choice(error) => error.fmt(f),
        }
    }
}

/// All sessions, in the order in which they are told.
pub(super) fn all(environment: &Environment) -> Result<Vec<Found>, NotChosen> {
    let home = environment.shim_home().value.ok_or(NotChosen::NoHome)?;
    Found::all(&home).map_err(NotChosen::Store)
}

/// The sessions that a list is of: all, or the one that `--session` names.
pub(super) fn listed(flag: Option<&str>, environment: &Environment) -> Result<Vec<Found>, NotChosen> {
    match flag {
        None => all(environment),
        Some(_) => one(flag, Otherwise::Latest, environment).map(|found| vec![found]),
    }
}

/// The session that is meant by `--session`, else by CODEX_SHIM_SESSION, else by where we are.
pub(super) fn one(flag: Option<&str>, otherwise: Otherwise, environment: &Environment) -> Result<Found, NotChosen> {
    one_at(&std::env::current_dir().unwrap_or_default(), flag, otherwise, environment)
}

/// The same for something that was done at `cwd`.
pub(super) fn one_at(
    cwd: &Path,
    flag: Option<&str>,
    otherwise: Otherwise,
    environment: &Environment,
) -> Result<Found, NotChosen> {
    let variable = environment.get("CODEX_SHIM_SESSION").map(|name| name.to_string_lossy().into_owned());
    let choice = Choice { named: flag.or(variable.as_deref()), cwd, otherwise };
    let found = all(environment)?;
    choose(&found, choice).cloned().map_err(NotChosen::Choice)
}
