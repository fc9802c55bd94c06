//! `codex-shim tui --fleet` and `codex-shim web --fleet`: the sessions of all hosts in the local views.

use std::path::Path;
use std::sync::Arc;

use super::super::CliError;
use super::super::screen;
use super::{NO_SUCH_SESSION, Target, connect, not_read};
use crate::config::Environment;
use crate::fleet::Views;
use crate::store::{Choice, ChoiceError, Found, Otherwise, choose};
use crate::tui::source::Source;

/// The fleet of the settings.
pub(in crate::cli) fn views(environment: &Environment) -> Result<Arc<Views>, CliError> {
    Views::start(connect(environment)?).map(Arc::new).map_err(not_read)
}

/// The id of the session that the user names as HOST/SESSION.
pub(in crate::cli) fn session_named(views: &Views, name: &str) -> Result<String, CliError> {
    let Target { host, session: None, last } = name.parse::<Target>().map_err(CliError::usage)? else {
        return Err(CliError::usage("a session is named by its host and its own name, as in HOST/SESSION"));
    };
    let bare = |session: Found| {
        let (_, own) = session.id.split_once('/').filter(|(of, _)| *of == host)?;
        Some(Found { id: own.to_owned(), ..session.clone() })
    };
    let of_host: Vec<Found> = views.all().into_iter().filter_map(bare).collect();
    let choice = Choice { named: Some(&last), cwd: Path::new("/"), otherwise: Otherwise::None };
    match choose(&of_host, choice) {
        Ok(session) => Ok(format!("{host}/{}", session.id)),
        Err(error @ ChoiceError::Ambiguous { .. }) => {
            Err(CliError::exits(NO_SUCH_SESSION, screen::plain(&format!("host {host}: {error}"))))
        }
        Err(ChoiceError::UnknownName { .. } | ChoiceError::NoSessions | ChoiceError::NoLiveSession { .. }) => {
            let message = screen::plain(&format!("host {host} has no session `{last}`"));
            Err(CliError::exits(NO_SUCH_SESSION, message).with_remedy("see `codex-shim fleet sessions`"))
        }
    }
}
