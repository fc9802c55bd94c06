//! A hub that does not run: what is left of it, and the command that starts it.
//!
//! Every command that names a hub is built here: a hub with a name, or with another home of codex than the reader's shell, is not
//! found without them, and a second server for its home would start.

use std::path::Path;

use super::{has_name, is_hub, process};
use crate::config::Environment;
use crate::store::{Found, Place};

/// A hub that does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Down {
    /// The server that it has left running, with its turns and requests.
    pub server: Option<u32>,
    /// Starts the hub.
    command: String,
}

impl Down {
    /// The hub of a session; `None` if it runs, or if the session is not that of a hub.
    pub fn of(session: &Found) -> Option<Down> {
        let place = place_of_hub(session)?;
        if session.live && session.is_still_live() {
            return None;
        }
        let server = process::recorded(&session.dir).map(|server| server.pid);
        Some(Down { server, command: command("start", place, &session.id) })
    }

    /// The hub of a session that was not live when it was listed and has left a server running. `None` costs little.
    pub fn with_server(session: &Found) -> Option<Down> {
        if session.live {
            return None;
        }
        let place = place_of_hub(session)?;
        let server = process::recorded(&session.dir)?.pid;
        Some(Down { server: Some(server), command: command("start", place, &session.id) })
    }

    /// What is the matter.
    pub fn what(&self) -> String {
        match self.server {
            Some(pid) => format!("no hub is running, but its server (pid {pid}) is"),
            None => "no hub is running".to_owned(),
        }
    }

    pub fn remedy(&self) -> String {
        let Down { server, command } = self;
        match server {
            Some(_) => format!("`{command}` takes the server over"),
            None => format!("`{command}` starts it again"),
        }
    }

    /// The state of its session, in a list.
    pub fn in_list(&self) -> String {
        format!("its hub is down; {}", self.remedy())
    }
}

fn place_of_hub(session: &Found) -> Option<&Place> {
    session.holder.as_ref().map(|holder| &holder.place).filter(|place| is_hub(place))
}

/// `codex-shim hub` with these words for the hub of a session, for a shell with the `CODEX_HOME` of this process.
pub fn command(words: &str, place: &Place, session: &str) -> String {
    command_in(&Environment::of_process().codex_home_resolved(), words, place, session)
}

/// The same for a shell with another `CODEX_HOME`, which is resolved.
pub(super) fn command_in(codex_home: &Path, words: &str, place: &Place, session: &str) -> String {
    let its = place.codex_home_resolved();
    let home = if its == codex_home { String::new() } else { format!("CODEX_HOME={} ", quoted(&its)) };
    let name = if has_name(place) { format!(" --session {session}") } else { String::new() };
    format!("{home}codex-shim hub {words}{name}")
}

/// A path as a word of a shell.
pub fn quoted(path: &Path) -> String {
    let path = path.to_string_lossy();
    shlex::try_quote(&path).map_or_else(|_| path.to_string(), |quoted| quoted.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SessionName;

    #[test]
    fn command_names_home_and_session() {
        let name: SessionName = "test".parse().expect("BUG: it is a name");
        for (home, name, expect) in [
            ("/h/.codex", None, "codex-shim hub start"),
            ("/h/.codex", Some(&name), "codex-shim hub start --session test"),
            ("/other", None, "CODEX_HOME=/other codex-shim hub start"),
            ("/my files/it's", Some(&name), "CODEX_HOME=\"/my files/it's\" codex-shim hub start --session test"),
        ] {
            let place = crate::hub::place(Path::new(home), name);
            assert_eq!(command_in(Path::new("/h/.codex"), "start", &place, "test"), expect);
        }
    }
}
