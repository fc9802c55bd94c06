//! Resolves the names of threads that users type.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use super::super::NO_SUCH_THREAD;
use super::super::error::CliError;
use super::super::offline::{Read, answered};
use super::super::select_session;
use crate::config::Environment;
use crate::control::client;
use crate::index::{HISTORY_FILE, History};
use crate::store::{Found, Otherwise};

/// The thread with the latest message.
const LATEST: &str = "latest";

/// Most threads that an error names.
const LISTED_MAX: usize = 8;

/// Why a name is not resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NotAThread {
    Unknown { name: String, threads: Vec<String> },
    Ambiguous { name: String, matching: Vec<String> },
}

impl fmt::Display for NotAThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotAThread::Unknown { name, threads } if threads.is_empty() => {
                write!(
                    f,
                    "unknown thread `{name}`: this session has no threads yet; `codex-shim send --new TEXT` starts one"
                )
            }
            NotAThread::Unknown { name, threads } => {
                write!(f, "unknown thread `{name}`; threads in this session, latest first: {}", listed(threads))
            }
            NotAThread::Ambiguous { name, matching } => {
                write!(f, "`{name}` is the beginning of several threads: {}; give more of the id", listed(matching))
            }
        }
    }
}

impl From<NotAThread> for CliError {
    fn from(error: NotAThread) -> CliError {
        CliError::exits(NO_SUCH_THREAD, error.to_string())
    }
}

fn listed(threads: &[String]) -> String {
    let first = threads.iter().take(LISTED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match threads.len().saturating_sub(LISTED_MAX) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Finds a thread by its id, a unique beginning of it, or `latest`. `threads` is sorted, latest first.
pub(super) fn find(name: &str, threads: &[String]) -> Result<String, NotAThread> {
    if let Some(exact) = threads.iter().find(|thread| *thread == name) {
        return Ok(exact.clone());
    }
    if let (LATEST, Some(latest)) = (name, threads.first()) {
        return Ok(latest.clone());
    }
    let matching: Vec<String> =
        threads.iter().filter(|thread| !name.is_empty() && thread.starts_with(name)).cloned().collect();
    match &matching[..] {
        [only] => Ok(only.clone()),
        [] => Err(NotAThread::Unknown { name: name.to_owned(), threads: threads.to_vec() }),
        _ => Err(NotAThread::Ambiguous { name: name.to_owned(), matching }),
    }
}

/// Resolves a thread's name. A session without a history accepts only whole ids.
pub(in crate::cli) fn thread_named(session: &Found, name: &str, environment: &Environment) -> Result<String, CliError> {
    Ok(resolved(session, name, environment)?)
}

fn resolved(session: &Found, name: &str, environment: &Environment) -> Result<String, NotAThread> {
    match known(&mut Read::of(session.clone(), environment)) {
        Ok(threads) => find(name, &threads),
        Err(_) => Ok(name.to_owned()),
    }
}

/// The history of the session of this folder that has the named thread. Without a name, and for `latest`, it is the session
/// used last.
pub(super) fn read_of(
    flag: Option<&str>,
    name: Option<&str>,
    environment: &Environment,
) -> Result<Result<Read, NotAThread>, CliError> {
    let sessions = select_session::several(flag, Otherwise::Latest, environment)?;
    let Some(name) = name.filter(|name| *name != LATEST && sessions.len() > 1) else {
        return Read::chosen(flag, environment).map(Ok);
    };
    let (mut reads, mut threads) = (Vec::new(), Vec::new());
    for session in sessions {
        let mut read = Read::of(session, environment);
        let known = known(&mut read)?;
        threads.extend(known.iter().cloned());
        reads.push((read, known));
    }
    Ok(find(name, &threads).map(|thread| {
        let read = reads.into_iter().find(|(_, known)| known.contains(&thread));
        read.expect("BUG: each thread comes from a session").0
    }))
}

/// All threads of a session: those with messages, and those that a live relay has seen.
pub(super) fn known(read: &mut Read) -> Result<Vec<String>, CliError> {
    let mut threads = all(read)?;
    let session = &read.session;
    // A new thread has no messages yet.
    if session.is_still_live()
        && let Some(answer) = answered(session, client::get(&session.dir, "/sessions/self"))?
        && let Ok(document) = answer.document::<Value>()
    {
        let live = document["threads"].as_array().into_iter().flatten();
        let live: Vec<String> = live.filter_map(|thread| thread["thread_id"].as_str()).map(str::to_owned).collect();
        threads.extend(live.into_iter().filter(|thread| !threads.contains(thread)).collect::<Vec<_>>());
    }
    Ok(threads)
}

/// [`thread_named`] that accepts an unknown name as a whole id; the caller checks it.
pub(in crate::cli) fn thread_or_id(session: &Found, name: &str, environment: &Environment) -> Result<String, CliError> {
    match resolved(session, name, environment) {
        Err(NotAThread::Unknown { .. }) if name != LATEST => Ok(name.to_owned()),
        found => Ok(found?),
    }
}

/// The thread for a filter: `latest`, or the beginning of an existing id.
pub(super) fn thread_or_beginning(read: &mut Read, name: &str) -> Result<String, CliError> {
    match find(name, &known(read)?) {
        Ok(thread) => Ok(thread),
        // A filter may match several threads, and threads without messages.
        Err(_) if name != LATEST => Ok(name.to_owned()),
        Err(error) => Err(error.into()),
    }
}

/// All threads with messages, latest first.
fn all(read: &mut Read) -> Result<Vec<String>, CliError> {
    // A relay that has answered has indexed everything it recorded, so its database can be read directly.
    let path = read.session.dir.join(HISTORY_FILE);
    let of_past =
        read.ask("/sessions/self/codex-events?limit=1", |past| past.history.threads(0).map(Known::Threads))?;
    match of_past {
        Known::Threads(threads) => Ok(threads),
        Known::Page {} => History::new(&path).threads(0).map_err(|error| CliError::failed(error.to_string())),
    }
}

/// The threads of a session.
#[derive(Deserialize)]
#[serde(untagged)]
enum Known {
    Threads(Vec<String>),
    /// A relay answered.
    Page {},
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_found_by_unique_beginning() {
        let threads = ["ab-2", "ab-1", "c"].map(str::to_owned);
        let check = |name: &str, expect: Result<&str, &str>| match (find(name, &threads), expect) {
            (Ok(found), Ok(expect)) => assert_eq!(found, expect),
            (Err(why), Err(words)) => assert!(why.to_string().contains(words), "{why}"),
            (found, expect) => panic!("{name}: {found:?}, not {expect:?}"),
        };
        check("latest", Ok("ab-2"));
        check("c", Ok("c"));
        check("ab-1", Ok("ab-1"));
        check("ab", Err("several threads: ab-2, ab-1; give more"));
        check("x", Err("unknown thread `x`; threads in this session, latest first: ab-2, ab-1, c"));
        check("", Err("unknown thread ``"));
        let none = find("latest", &[]).expect_err("there is no thread").to_string();
        assert!(none.contains("no threads yet") && none.contains("--new"), "{none}");
    }
}
