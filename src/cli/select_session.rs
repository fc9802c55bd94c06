//! Selects the session that a tool works on.

use std::panic::resume_unwind;
use std::path::Path;

use super::error::CliError;
use super::screen::{self, Screen, Tone};
use super::{NO_SUCH_SESSION, say};
use crate::config::Environment;
use crate::files::Refused;
use crate::store::{Choice, ChoiceError, Found, Otherwise, Survey, choose, choose_all, label, short};

/// The error for a session that cannot be trusted.
fn not_used(id: &str, refused: &Refused) -> CliError {
    CliError::failed(format!("session {id} is not used: {refused}"))
}

/// All sessions in listing order. Skipped sessions are reported on stderr with the reason.
pub(super) fn all(environment: &Environment) -> Result<Vec<Found>, CliError> {
    let Survey { found, refused } = survey(environment)?;
    for (id, refused) in refused {
        say(&not_used(&id, &refused).to_string());
    }
    Ok(found)
}

/// All sessions, without reports. For names that must be unique among all sessions.
pub(super) fn all_quietly(environment: &Environment) -> Result<Vec<Found>, CliError> {
    survey(environment).map(|survey| survey.found)
}

fn survey(environment: &Environment) -> Result<Survey, CliError> {
    let home = environment.shim_home().value.ok_or_else(CliError::no_home)?;
    Survey::of(&home).map_err(|error| CliError::failed(error.to_string()))
}

/// The sessions for a list: all, or the one that `--session` names.
pub(super) fn listed(flag: Option<&str>, environment: &Environment) -> Result<Vec<Found>, CliError> {
    match flag {
        None => all(environment),
        Some(_) => one(flag, Otherwise::Latest, environment).map(|found| vec![found]),
    }
}

/// Sessions that are looked at at the same time.
const AT_ONCE_MAX: usize = 16;

/// Looks at sessions, several at the same time, because each relay may let us wait. Returns the results in the same order.
pub(super) fn at_once<S: Sync, T: Send>(sessions: &[S], look: impl Fn(&S) -> T + Sync) -> Vec<T> {
    let looked = sessions.chunks(AT_ONCE_MAX).flat_map(|some| {
        std::thread::scope(|scope| {
            let looks: Vec<_> = some.iter().map(|session| scope.spawn(|| look(session))).collect();
            let results = looks.into_iter().map(|look| look.join().unwrap_or_else(|panic| resume_unwind(panic)));
            results.collect::<Vec<_>>()
        })
    });
    looked.collect()
}

/// The session from `--session`, else from CODEX_SHIM_SESSION, else of the current folder.
pub(super) fn one(flag: Option<&str>, otherwise: Otherwise, environment: &Environment) -> Result<Found, CliError> {
    let cwd = std::env::current_dir().unwrap_or_default();
    meant(&cwd, flag, otherwise, environment, |found, choice| choose(found, choice).cloned())
}

/// All sessions that match, because two clients in one folder have a session each. The most recently used one comes first.
pub(super) fn several(
    flag: Option<&str>,
    otherwise: Otherwise,
    environment: &Environment,
) -> Result<Vec<Found>, CliError> {
    several_at(&std::env::current_dir().unwrap_or_default(), flag, otherwise, environment)
}

/// [`several`] for a command that ran in `cwd`.
pub(super) fn several_at(
    cwd: &Path,
    flag: Option<&str>,
    otherwise: Otherwise,
    environment: &Environment,
) -> Result<Vec<Found>, CliError> {
    meant(cwd, flag, otherwise, environment, |found, choice| {
        Ok(choose_all(found, choice)?.into_iter().cloned().collect())
    })
}

/// The most recently used match, for tools that show one session; if there are others, it names them on stderr.
pub(super) fn latest(flag: Option<&str>, otherwise: Otherwise, environment: &Environment) -> Result<Found, CliError> {
    let chosen = several(flag, otherwise, environment)?;
    if let [shown, others @ ..] = &chosen[..]
        && !others.is_empty()
    {
        let named = |session: &Found| format!("{} ({})", label(session), short(session, &chosen));
        let others = others.iter().map(named).collect::<Vec<_>>().join(", ");
        say(&format!(
            "this is {}, the most recent session; use --session for another one of this folder: {others}",
            named(shown)
        ));
    }
    chosen.into_iter().next().ok_or_else(|| CliError::exits(NO_SUCH_SESSION, ChoiceError::NoSessions.to_string()))
}

/// The line above the part of one of several sessions in a list.
pub(super) fn section(session: &Found, sessions: &[Found], to: Screen) -> String {
    let name = format!("{} {}", label(session), short(session, sessions));
    format!("{}\n", to.paint(Tone::Faint, &screen::plain(&name)))
}

/// A session's name in a heading: `proj (vscode) ab01` on a terminal, else its id.
pub(super) fn heading(session: &Found, to: Screen, environment: &Environment) -> String {
    match to {
        Screen::None => session.id.clone(),
        Screen::Coloured | Screen::Plain => {
            named_among(session, &all_quietly(environment).unwrap_or_else(|_| vec![session.clone()]))
        }
    }
}

/// The label and the short id; only one of them if they are equal.
fn named_among(session: &Found, all: &[Found]) -> String {
    let (label, short) = (label(session), short(session, all));
    if label == session.id { label } else { format!("{label} {short}") }
}

fn meant<T>(
    cwd: &Path,
    flag: Option<&str>,
    otherwise: Otherwise,
    environment: &Environment,
    choose: impl Fn(&[Found], Choice<'_>) -> Result<T, ChoiceError>,
) -> Result<T, CliError> {
    let variable = environment.get("CODEX_SHIM_SESSION").map(|name| name.to_string_lossy().into_owned());
    let choice = Choice { named: flag.or(variable.as_deref()), cwd, otherwise };
    let Survey { found, mut refused } = survey(environment)?;
    choose(&found, choice).map_err(|error| {
        // The user may mean a skipped session.
        let meant = refused.iter().position(|(id, _)| choice.named.is_none_or(|named| id.starts_with(named)));
        match (error, meant) {
            (
                ChoiceError::UnknownName { .. } | ChoiceError::NoSessions | ChoiceError::NoLiveSession { .. },
                Some(meant),
            ) => {
                let (id, why) = refused.swap_remove(meant);
                not_used(&id, &why)
            }
            (error, _) => CliError::exits(NO_SUCH_SESSION, error.to_string()),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::SystemTime;

    use crate::store::{Holder, Place};

    use super::*;

    #[test]
    fn headings_have_label_and_short_id() {
        let place = Place { cwd: "/w/proj".to_owned(), codex_home: String::new(), server: Vec::new() };
        let holder = Holder { pid: 1, started_at: String::new(), client: Some("vscode".to_owned()), place };
        let session = Found {
            dir: PathBuf::from("s"),
            id: "0192aaaa-0000-7000-8000-00000000ab01".to_owned(),
            live: true,
            holder: Some(holder),
            repository: None,
            last_used: SystemTime::UNIX_EPOCH,
        };
        let unsigned = Found { id: "work".to_owned(), holder: None, ..session.clone() };
        let all = [session, unsigned];
        assert_eq!(all.each_ref().map(|one| named_among(one, &all)), ["proj (vscode) ab01", "work"]);
    }
}
