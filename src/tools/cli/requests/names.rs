//! The names of requests.
//!
//! `latest` and the number alone mean a request of the sessions here. All other names must be unique among the requests of all
//! sessions, answered and stopped ones too, so that a request that the user has not seen is never taken for the one they named.

use std::collections::BTreeSet;

use super::super::offline::{request, requests};
use super::super::select_session;
use super::super::{CliError, NO_SUCH_REQUEST};
use crate::api::{Request, RequestDocument, WhichRequests};
use crate::config::Environment;
use crate::control::RequestOrigin;
use crate::hub;
use crate::sessions::read_each;
use crate::sessions::request_names::{
    IsHere, LATEST, Looked, NotNamed, find_anywhere, find_here, has_short_form, is_whole, pending_here,
};
use crate::store::Found;

/// The named request and its session.
pub(in crate::cli) fn named(
    flag: Option<&str>,
    name: &str,
    environment: &Environment,
) -> Result<(Found, RequestDocument), CliError> {
    let (here, elsewhere) = select_session::here_and_elsewhere(flag, environment)?;
    if is_whole(name)
        && let Some(found) = by_id(name, here.iter().chain(&elsewhere))?
    {
        return Ok(found);
    }
    let (session, request_id) = resolved(flag, name, &here, &elsewhere, environment)?;
    let document = request(&session, &request_id)?.ok_or(NotNamed::Gone(request_id))?;
    Ok((session, document))
}

/// Checks that `latest` means no request of another folder while something is open in this one: whoever answers without seeing the
/// request means one of this folder, and it may have been answered meanwhile.
pub(super) fn may_answer_unseen(
    flag: Option<&str>,
    name: &str,
    (session, row): (&Found, &Request),
    environment: &Environment,
) -> Result<(), CliError> {
    if name != LATEST || select_session::is_named(flag, environment) {
        return Ok(());
    }
    let (here, _) = select_session::here_and_elsewhere(flag, environment)?;
    let is_here = here.iter().any(|of| of.id == session.id) && of_others(session, std::slice::from_ref(row)).is_empty();
    match is_here || !here.iter().any(is_open_here) {
        true => Ok(()),
        false => Err(NotNamed::WaitElsewhere(vec![row.request_id.clone()]).into()),
    }
}

/// Whether a session runs in this folder or, in a hub, has a thread there.
fn is_open_here(session: &Found) -> bool {
    let own = session.holder.as_ref().map(|holder| holder.place.cwd.as_str());
    session.live
        && match &session.threads {
            Some(threads) => {
                threads.iter().any(|thread| thread.is_open && select_session::is_here(&thread.cwd.to_string_lossy()))
            }
            None => own.is_some_and(select_session::is_here),
        }
}

/// The request with this id, which may be older than the lists.
fn by_id<'a>(
    id: &str,
    sessions: impl Iterator<Item = &'a Found>,
) -> Result<Option<(Found, RequestDocument)>, CliError> {
    let sessions: Vec<&Found> = sessions.collect();
    let (found, silent) = read_each(&sessions, |session| request(session, id).map_err(CliError::from));
    match (found.into_iter().next(), silent.into_iter().next()) {
        (Some((session, document)), _) => Ok(Some((session.clone(), document))),
        (None, Some((_, error))) => Err(error),
        (None, None) => Ok(None),
    }
}

/// The session and the id of the named request. A relay elsewhere that does not answer matters only if its session may have a request
/// that the name means too.
fn resolved(
    flag: Option<&str>,
    name: &str,
    here: &[Found],
    elsewhere: &[Found],
    environment: &Environment,
) -> Result<(Found, String), CliError> {
    let is_short = has_short_form(name);
    let (mut read, mut silent) = look(here, IsHere::Yes);
    if select_session::is_named(flag, environment) {
        // Whoever names a hub from elsewhere means all of it.
        read.iter_mut().filter(|of| pending_here(of).next().is_none()).for_each(|of| of.of_others.clear());
    }
    if !is_short {
        if let Some(error) = silent.take() {
            return Err(error);
        }
        if let Some(found) = find_here(name, &read)? {
            return Ok(found);
        }
    }
    let (more, silent_elsewhere) = look(elsewhere, IsHere::No);
    read.extend(more);
    let silent = silent.or(silent_elsewhere);
    match (find_anywhere(name, &read), silent) {
        (Ok(found), Some(_)) if is_short => Ok(found),
        (Err(error @ NotNamed::Ambiguous { .. }), Some(_)) => Err(error.into()),
        (_, Some(silent)) => Err(silent),
        (Ok(found), None) => Ok(found),
        (Err(error), None) => Err(error_with_remedy(error, flag, &read, environment)),
    }
}

/// The requests of the sessions that could be read, and the error of one that could not.
fn look(sessions: &[Found], is_here: IsHere) -> (Vec<Looked<Found>>, Option<CliError>) {
    let read = |session: &Found| requests(session, WhichRequests::All).map(Some).map_err(CliError::from);
    let (read, silent) = read_each(sessions, read);
    let looked = |(session, rows): (Found, Vec<Request>)| {
        let of_others = of_others(&session, &rows);
        Looked { session, is_here, of_others, rows }
    };
    (read.into_iter().map(looked).collect(), silent.into_iter().next().map(|(_, error)| error))
}

/// The requests of a hub whose threads work in other folders than the caller.
fn of_others(session: &Found, rows: &[Request]) -> BTreeSet<String> {
    if !session.holder.as_ref().is_some_and(|holder| hub::is_hub(&holder.place)) {
        return BTreeSet::new();
    }
    let is_of_others = |row: &&Request| !select_session::is_here(&RequestOrigin::of(session, row).cwd);
    let pending = rows.iter().filter(|row| row.is_pending());
    pending.filter(is_of_others).map(|row| row.request_id.clone()).collect()
}

fn error_with_remedy(
    error: NotNamed,
    flag: Option<&str>,
    read: &[Looked<Found>],
    environment: &Environment,
) -> CliError {
    let is_none_pending = error == NotNamed::NothingWaits;
    let error = CliError::from(error);
    // Without `--session`, the same sessions are found again.
    let at = flag.and(read.first()).map(|of| select_session::argument_for(&of.session, flag, environment));
    let remedy = format!("`codex-shim requests --all{}` lists answered ones", at.unwrap_or_default());
    if is_none_pending { error.with_remedy(remedy) } else { error }
}

impl From<NotNamed> for CliError {
    fn from(error: NotNamed) -> CliError {
        CliError::exits(NO_SUCH_REQUEST, error.to_string())
    }
}
