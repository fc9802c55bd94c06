//! Which session a tool is about, and how it ends where that cannot be told.

use std::fmt;
use std::path::Path;

use crate::config::Environment;
use crate::files::Refused;
use crate::store::{Choice, ChoiceError, Found, Otherwise, StoreError, Survey, choose, choose_all, label, short};

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
    /// The session of this id cannot be trusted.
    Refused(String, Refused),
}

impl NotChosen {
    /// Tells the user, and gives the status to exit with.
    pub(super) fn told(&self) -> i32 {
        say(&self.to_string());
        match self {
            NotChosen::NoHome | NotChosen::Store(_) | NotChosen::Refused(..) => FAILED,
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
            NotChosen::Refused(id, refused) => write!(f, "session {id} is not used: {refused}"),
        }
    }
}

/// All sessions, in the order in which they are listed. Each session that is left out is reported on stderr with the reason.
pub(super) fn all(environment: &Environment) -> Result<Vec<Found>, NotChosen> {
    let Survey { found, refused } = survey(environment)?;
    for (id, refused) in refused {
        say(&NotChosen::Refused(id, refused).to_string());
    }
    Ok(found)
}

/// The same, and nothing is reported: to name sessions apart from one another.
pub(super) fn all_quietly(environment: &Environment) -> Result<Vec<Found>, NotChosen> {
    survey(environment).map(|survey| survey.found)
}

fn survey(environment: &Environment) -> Result<Survey, NotChosen> {
    let home = environment.shim_home().value.ok_or(NotChosen::NoHome)?;
    Survey::of(&home).map_err(NotChosen::Store)
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
    let cwd = std::env::current_dir().unwrap_or_default();
    meant(&cwd, flag, otherwise, environment, |found, choice| choose(found, choice).cloned())
}

/// All that are meant: two clients in one folder have a session each. The one that was used last comes first.
pub(super) fn several(
    flag: Option<&str>,
    otherwise: Otherwise,
    environment: &Environment,
) -> Result<Vec<Found>, NotChosen> {
    several_at(&std::env::current_dir().unwrap_or_default(), flag, otherwise, environment)
}

/// The same for something that was done at `cwd`.
pub(super) fn several_at(
    cwd: &Path,
    flag: Option<&str>,
    otherwise: Otherwise,
    environment: &Environment,
) -> Result<Vec<Found>, NotChosen> {
    meant(cwd, flag, otherwise, environment, |found, choice| {
        Ok(choose_all(found, choice)?.into_iter().cloned().collect())
    })
}

/// The one of several that was used last, for tools that can show one alone; says on stderr which one it is.
pub(super) fn latest(flag: Option<&str>, otherwise: Otherwise, environment: &Environment) -> Result<Found, NotChosen> {
    let chosen = several(flag, otherwise, environment)?;
    if let [shown, others @ ..] = &chosen[..]
        && !others.is_empty()
    {
        let named = |session: &Found| format!("{} ({})", label(session), short(session, &chosen));
        let others = others.iter().map(named).collect::<Vec<_>>().join(", ");
        say(&format!("this is {}, used last; --session shows another one here: {others}", named(shown)));
    }
    chosen.into_iter().next().ok_or(NotChosen::Choice(ChoiceError::NoSessions))
}

fn meant<T>(
    cwd: &Path,
    flag: Option<&str>,
    otherwise: Otherwise,
    environment: &Environment,
    choose: impl Fn(&[Found], Choice<'_>) -> Result<T, ChoiceError>,
) -> Result<T, NotChosen> {
    let variable = environment.get("CODEX_SHIM_SESSION").map(|name| name.to_string_lossy().into_owned());
    let choice = Choice { named: flag.or(variable.as_deref()), cwd, otherwise };
    let Survey { found, mut refused } = survey(environment)?;
    choose(&found, choice).map_err(|error| {
        // The user may mean a session that is left out.
        let meant = refused.iter().position(|(id, _)| choice.named.is_none_or(|named| id.starts_with(named)));
        match (error, meant) {
            (
                ChoiceError::UnknownName { .. } | ChoiceError::NoSessions | ChoiceError::NoLiveSession { .. },
                Some(meant),
            ) => {
                let (id, why) = refused.swap_remove(meant);
                NotChosen::Refused(id, why)
            }
            (error, _) => NotChosen::Choice(error),
        }
    })
}
