//! Which sessions a tool works on: those that the user names, those of a folder, or all; and which of their threads.
//!
//! A hub has threads in many folders, so it is asked for them before a folder decides.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::api::State;
use crate::config::{ContextScope, Environment};
use crate::control::{client, open_threads};
use crate::files::Refused;
use crate::hub::{self, Down};
use crate::store::{
    Choice, ChoiceError, Found, OpenThread, Otherwise, StoreError, Survey, ThreadChoice, ThreadUse, choose, choose_all,
    choose_thread, in_scope, repository_of, share_repository, short, shown_from_elsewhere,
};

/// Why no session was selected.
#[derive(Debug, thiserror::Error)]
pub enum SelectionError {
    #[error("cannot find the state folder: set HOME or CODEX_SHIM_HOME")]
    NoHome,
    #[error(transparent)]
    Unlisted(StoreError),
    /// The session cannot be trusted.
    #[error("session {id} is not used: {refused}")]
    NotUsed { id: String, refused: Refused },
    #[error("{0}")]
    NotFound(ChoiceError),
    /// No session is live here, but a hub has left its server running.
    #[error("no session is live in this folder: {}", .0.what())]
    HubDown(Down),
}

/// All sessions in listing order, and those that are skipped.
pub fn survey(environment: &Environment) -> Result<Survey, SelectionError> {
    let home = environment.shim_home().value.ok_or(SelectionError::NoHome)?;
    Survey::of(&home).map_err(SelectionError::Unlisted)
}

/// All sessions, for names that must be unique among them.
pub fn all(environment: &Environment) -> Result<Vec<Found>, SelectionError> {
    survey(environment).map(|survey| survey.found)
}

/// The session that `flag` names, else CODEX_SHIM_SESSION, else the one of the current folder; and a note if it is one of another
/// folder.
pub fn one(
    flag: Option<&str>,
    otherwise: Otherwise,
    environment: &Environment,
) -> Result<(Found, Option<String>), SelectionError> {
    let only = |found: &'_ [Found], choice: Choice<'_>| choose(found, choice).map(|session| vec![session.clone()]);
    meant(&here(), flag, otherwise, environment, only).map(|(mut session, note)| (session.remove(0), note))
}

/// All sessions that match in `cwd`, because two clients in one folder have a session each; at least one. The most recently used one
/// comes first.
pub fn several_at(
    cwd: &Path,
    flag: Option<&str>,
    otherwise: Otherwise,
    environment: &Environment,
) -> Result<(Vec<Found>, Option<String>), SelectionError> {
    let all = |found: &'_ [Found], choice: Choice<'_>| Ok(choose_all(found, choice)?.into_iter().cloned().collect());
    meant(cwd, flag, otherwise, environment, all)
}

/// The sessions here and all others, for a name that is looked up in every folder. [`several_at`] selects those here; there are none if
/// only sessions of other folders are live. If `flag` names one, there are no others.
pub fn here_and_elsewhere(
    flag: Option<&str>,
    environment: &Environment,
) -> Result<(Vec<Found>, Vec<Found>), SelectionError> {
    if flag.is_some() {
        return Ok((vec![one(flag, Otherwise::Latest, environment)?.0], Vec::new()));
    }
    let all = all(environment)?;
    let is_any_live = all.iter().any(|session| session.live);
    let otherwise = if is_any_live { Otherwise::None } else { Otherwise::Latest };
    let here = match several_at(&here(), None, otherwise, environment) {
        Ok((here, _)) => here,
        Err(_) if is_any_live && !is_named(None, environment) => Vec::new(),
        Err(error) => return Err(error),
    };
    let elsewhere = all.into_iter().filter(|session| !here.iter().any(|other| other.id == session.id)).collect();
    Ok((here, elsewhere))
}

/// Whether the user names a session, by a flag or by CODEX_SHIM_SESSION.
pub fn is_named(flag: Option<&str>, environment: &Environment) -> bool {
    flag.is_some() || environment.get(SESSION_VARIABLE).is_some()
}

/// Names the session for all tools.
const SESSION_VARIABLE: &str = "CODEX_SHIM_SESSION";

/// A folder without the links by which a shell may have come to it.
fn resolved(cwd: &Path) -> PathBuf {
    std::fs::canonicalize(cwd).unwrap_or_else(|_| cwd.to_owned())
}

/// The current folder.
pub fn here() -> PathBuf {
    std::env::current_dir().unwrap_or_default()
}

/// The sessions that are meant, at least one, and a note if they are of another folder.
fn meant(
    cwd: &Path,
    flag: Option<&str>,
    otherwise: Otherwise,
    environment: &Environment,
    choose: impl Fn(&[Found], Choice<'_>) -> Result<Vec<Found>, ChoiceError>,
) -> Result<(Vec<Found>, Option<String>), SelectionError> {
    let variable = environment.get(SESSION_VARIABLE).map(|name| name.to_string_lossy().into_owned());
    let cwd = resolved(cwd);
    let choice = Choice { named: flag.or(variable.as_deref()), cwd: &cwd, otherwise };
    let Survey { mut found, mut refused } = survey(environment)?;
    ask_hubs(&mut found);
    let sessions = choose(&found, choice).map_err(|error| {
        // The user may mean a skipped session.
        let meant = refused.iter().position(|(id, _)| choice.named.is_none_or(|named| id.starts_with(named)));
        match (error, meant) {
            (
                ChoiceError::UnknownName { .. } | ChoiceError::NoSessions | ChoiceError::NoLiveSession { .. },
                Some(meant),
            ) => {
                let (id, refused) = refused.swap_remove(meant);
                SelectionError::NotUsed { id, refused }
            }
            (error @ ChoiceError::NoLiveSession { .. }, None) => {
                // A hub that has left its server running is one command away.
                let down = found.iter().filter_map(Down::of).find(|down| down.server.is_some());
                down.map_or(SelectionError::NotFound(error), SelectionError::HubDown)
            }
            (error, _) => SelectionError::NotFound(error),
        }
    })?;
    let note = sessions.first().and_then(|session| shown_from_elsewhere(&found, choice, session));
    Ok((sessions, note))
}

/// How long a hub may take to say where its threads work.
const THREADS_WAIT_MAX: Duration = Duration::from_secs(5);

/// Asks each running hub for its open threads. One that does not answer is found by its own folder only.
fn ask_hubs(found: &mut [Found]) {
    for session in found.iter_mut().filter(|session| session.live && is_hub(session)) {
        session.threads = client::ask(&session.dir, &State, THREADS_WAIT_MAX).ok().as_ref().map(open_threads);
    }
}

fn is_hub(session: &Found) -> bool {
    session.holder.as_ref().is_some_and(|holder| hub::is_hub(&holder.place))
}

/// Why no thread was selected.
#[derive(Debug)]
pub enum ThreadSelectionError {
    /// The hub does not say within this time which threads it has.
    Unknown(Duration),
    /// Several threads are open, and none of them in this folder.
    Several(Vec<OpenThread>),
}

/// The thread that a command means whose user names none: one of the current folder, else the only one of the session. `None` leaves
/// it to the relay, which takes the last one.
pub fn thread_here(session: &Found, used: ThreadUse) -> Result<Option<String>, ThreadSelectionError> {
    if session.live && has_unknown_threads(session) {
        return Err(ThreadSelectionError::Unknown(THREADS_WAIT_MAX));
    }
    match choose_thread(session, &here(), used) {
        ThreadChoice::Thread(thread) => Ok(Some(thread.id.clone())),
        ThreadChoice::OfRelay => Ok(None),
        ThreadChoice::Several(several) => Err(ThreadSelectionError::Several(several.into_iter().cloned().collect())),
    }
}

/// Whether what a thread does in `place` is of the current folder.
pub fn is_here(place: &str) -> bool {
    let place = resolved(Path::new(place));
    share_repository(&resolved(&here()), &place, repository_of(&place).as_deref())
}

/// Whether the session is a hub that has not said which threads it has.
fn has_unknown_threads(session: &Found) -> bool {
    session.threads.is_none() && is_hub(session)
}

/// The threads of a session that get a command which ran in `cwd`; `None` is whichever speaks next. A hub that does not say which
/// threads it has, or is down, gets none: it has them in many projects.
pub fn threads_for_context(session: &Found, cwd: &Path, scope: ContextScope) -> Vec<Option<String>> {
    match session.threads.as_ref().filter(|_| scope != ContextScope::Session) {
        None if scope != ContextScope::Session && has_unknown_threads(session) => Vec::new(),
        None => vec![None],
        Some(threads) => in_scope(threads, &resolved(cwd), scope).map(|thread| Some(thread.id.clone())).collect(),
    }
}

/// A session with the threads that are open now.
pub fn refreshed(session: &Found) -> Found {
    let mut now = [Found { live: session.is_still_live(), ..session.clone() }];
    ask_hubs(&mut now);
    let [now] = now;
    now
}

/// The thread of this folder; `None` if there is none, or several without one that is nearer.
pub fn thread_to_read(session: &Found) -> Option<String> {
    match choose_thread(session, &here(), ThreadUse::Read) {
        ThreadChoice::Thread(thread) => Some(thread.id.clone()),
        ThreadChoice::OfRelay | ThreadChoice::Several(_) => None,
    }
}

/// The argument that names the session in a suggested command, with a space before it. Empty if no session was named and no other
/// one is live: then the command finds it.
pub fn argument_for(session: &Found, flag: Option<&str>, environment: &Environment) -> String {
    argument_among(session, flag, &all(environment).unwrap_or_default())
}

fn argument_among(session: &Found, flag: Option<&str>, all: &[Found]) -> String {
    let has_rival = all.iter().any(|other| other.live && other.id != session.id);
    if flag.is_none() && !has_rival { String::new() } else { format!(" --session {}", short(session, all)) }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn suggested_commands_name_ambiguous_sessions() {
        let session = |id: &str, live| Found {
            dir: PathBuf::from(id),
            id: id.to_owned(),
            live,
            holder: None,
            repository: None,
            threads: None,
            last_used: SystemTime::UNIX_EPOCH,
        };
        let one = session("0192aaaa-0000-7000-8000-00000000ab01", true);
        let all = [one.clone(), session("work", false)];
        assert_eq!(argument_among(&one, None, &all), "");
        assert_eq!(argument_among(&one, Some("ab01"), &all), " --session ab01");
        assert_eq!(argument_among(&one, None, &[one.clone(), session("work", true)]), " --session ab01");
        assert_eq!(argument_among(&all[1], None, &all), " --session work");
    }
}
