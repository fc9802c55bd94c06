//! `codex-shim tui --fleet` and `codex-shim web --fleet`: the sessions of all hosts in the local views.

use std::path::Path;
use std::sync::Arc;

use super::super::CliError;
use super::{HostTarget, NO_SUCH_SESSION, connect, exits, not_read};
use crate::config::Environment;
use crate::fleet::{Views, front};
use crate::sessions::source::Source;
use crate::store::{Choice, ChoiceError, Found, Otherwise, choose};

/// The fleet of the settings.
pub(in crate::cli) fn views(environment: &Environment) -> Result<Arc<Views>, CliError> {
    Views::start(connect(environment)?).map(Arc::new).map_err(not_read)
}

/// The id of the session that the user names as HOST/SESSION.
pub(in crate::cli) fn session_named(views: &Views, name: &str) -> Result<String, CliError> {
    named_among(views.all(), name).map(|session| session.id)
}

/// The session among these that the user names as HOST/SESSION.
pub(super) fn named_among(all: Vec<Found>, name: &str) -> Result<Found, CliError> {
    let HostTarget { host, session: None, last } = name.parse::<HostTarget>().map_err(CliError::usage)? else {
        return Err(CliError::usage("a session is named by its host and its own name, as in HOST/SESSION"));
    };
    let front = front(&host);
    let bare = |session: Found| {
        let (_, own) = session.id.split_once('/').filter(|(of, _)| *of == front)?;
        Some(Found { id: own.to_owned(), ..session.clone() })
    };
    let of_host: Vec<Found> = all.into_iter().filter_map(bare).collect();
    let choice = Choice { named: Some(&last), cwd: Path::new("/"), otherwise: Otherwise::None };
    match choose(&of_host, choice) {
        Ok(session) => Ok(Found { id: format!("{front}/{}", session.id), ..session.clone() }),
        Err(error @ ChoiceError::Ambiguous { .. }) => Err(exits(NO_SUCH_SESSION, format!("host {host}: {error}"))),
        Err(ChoiceError::UnknownName { .. } | ChoiceError::NoSessions | ChoiceError::NoLiveSession { .. }) => {
            let message = format!("host {host} has no session `{last}`");
            Err(exits(NO_SUCH_SESSION, message).with_remedy("see `codex-shim fleet sessions`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_hosts_with_any_name_are_named() {
        let found = |id: &str| Found {
            id: id.to_owned(),
            dir: std::path::PathBuf::new(),
            live: true,
            holder: None,
            repository: None,
            threads: None,
            last_used: std::time::SystemTime::UNIX_EPOCH,
        };
        let check = |name: &str, expect: Option<&str>| {
            let all = ["build-7/work", "~C3~A4/work", "~C3~A4/other", "b.c/work"].map(found).to_vec();
            assert_eq!(named_among(all, name).ok().map(|session| session.id).as_deref(), expect, "{name}");
        };
        check("build-7/work", Some("build-7/work"));
        check("ä/work", Some("~C3~A4/work"));
        check("~C3~A4/other", Some("~C3~A4/other"));
        check("b.c/work", Some("b.c/work"));
        check("ö/work", None);
        check("work", None);
    }
}
