//! The session that a tool works on: its arguments, its selection and its name in output; and the numbers that tools take, with errors
//! in words.
//!
//! Most tools accept the session as their first word; every tool accepts `--session`.

use std::path::Path;

use clap::Args;

use super::CliError;
use super::screen::{self, Screen, Tone};
use super::table::Cell;
use super::{NO_SUCH_SESSION, NO_SUCH_THREAD, complete, say, threads};
use crate::config::Environment;
pub(super) use crate::sessions::at_once;
use crate::sessions::selection::{self, SelectionError, ThreadSelectionError};
pub(super) use crate::sessions::selection::{
    all as all_quietly, argument_for, here_and_elsewhere, is_here, is_named, one as one_quietly, refreshed,
    thread_here, thread_to_read, threads_for_context,
};
use crate::store::{ChoiceError, Found, OpenThread, Otherwise, Survey, full_name, label, short};

impl From<SelectionError> for CliError {
    fn from(error: SelectionError) -> CliError {
        let message = error.to_string();
        match error {
            SelectionError::NoHome | SelectionError::Unlisted(_) | SelectionError::NotUsed { .. } => {
                CliError::failed(message)
            }
            SelectionError::NotFound(_) => CliError::exits(NO_SUCH_SESSION, message),
            SelectionError::HubDown(down) => CliError::exits(NO_SUCH_SESSION, message).with_remedy(down.remedy()),
        }
    }
}

impl From<ThreadSelectionError> for CliError {
    fn from(error: ThreadSelectionError) -> CliError {
        let several = match error {
            ThreadSelectionError::Several(several) => several,
            ThreadSelectionError::Unknown(wait_max) => {
                let why = format!("the hub does not say within {} s where its threads work", wait_max.as_secs());
                return CliError::exits(NO_SUCH_THREAD, why).with_remedy("try again, or name a thread with --thread");
            }
        };
        let are = if several.iter().any(|thread| thread.is_open) { "are open" } else { "were open" };
        let named = |thread: &OpenThread| {
            let last_used = Some(&*thread.last_used).filter(|at| !at.is_empty());
            format!("{}  {}", thread.id, threads::with_age(&screen::plain(&thread.name), last_used))
        };
        let why = format!(
            "several threads {are}, and none of them in this folder; go to the folder of one, or name it with --thread:{}",
            threads::lines(&several.iter().map(named).collect::<Vec<_>>())
        );
        CliError::exits(NO_SUCH_THREAD, why)
    }
}

/// All sessions in listing order. Skipped sessions are reported on stderr with the reason.
pub(super) fn all(environment: &Environment) -> Result<Vec<Found>, CliError> {
    let Survey { found, refused } = selection::survey(environment)?;
    for (id, refused) in refused {
        CliError::from(SelectionError::NotUsed { id, refused }).report();
    }
    Ok(found)
}

/// The sessions for a list: all, or the one that `--session` names.
pub(super) fn listed(flag: Option<&str>, environment: &Environment) -> Result<Vec<Found>, CliError> {
    match flag {
        None => all(environment),
        Some(_) => one(flag, Otherwise::Latest, environment).map(|found| vec![found]),
    }
}

/// The session from `--session`, else from CODEX_SHIM_SESSION, else of the current folder. If a tool that reads shows a session
/// of another folder, a note on stderr names it.
pub(super) fn one(flag: Option<&str>, otherwise: Otherwise, environment: &Environment) -> Result<Found, CliError> {
    Ok(noted(selection::one(flag, otherwise, environment)?))
}

/// All sessions that match, because two clients in one folder have a session each. The most recently used one comes first.
pub(super) fn several(
    flag: Option<&str>,
    otherwise: Otherwise,
    environment: &Environment,
) -> Result<Vec<Found>, CliError> {
    several_at(&selection::here(), flag, otherwise, environment)
}

/// [`several`] for a command that ran in `cwd`.
pub(super) fn several_at(
    cwd: &Path,
    flag: Option<&str>,
    otherwise: Otherwise,
    environment: &Environment,
) -> Result<Vec<Found>, CliError> {
    Ok(noted(selection::several_at(cwd, flag, otherwise, environment)?))
}

/// Prints the note beside a selection.
fn noted<T>((selected, note): (T, Option<String>)) -> T {
    note.iter().for_each(|note| say(note));
    selected
}

/// The most recently used match, for tools that show one session; if there are others, it names them on stderr.
pub(super) fn latest(flag: Option<&str>, otherwise: Otherwise, environment: &Environment) -> Result<Found, CliError> {
    let chosen = several(flag, otherwise, environment)?;
    if let [shown, others @ ..] = &chosen[..]
        && !others.is_empty()
    {
        let all = all_quietly(environment)?;
        let named = |session: &Found| full_name(session, &all);
        let others = others.iter().map(named).collect::<Vec<_>>().join(", ");
        say(&format!(
            "this is {}, the most recent session; use --session for another one of this folder: {others}",
            named(shown)
        ));
    }
    chosen.into_iter().next().ok_or_else(|| CliError::exits(NO_SUCH_SESSION, ChoiceError::NoSessions.to_string()))
}

/// The line above the part of one of several sessions in a list.
pub(super) fn section(session: &Found, to: Screen) -> String {
    format!("{}\n", to.paint(Tone::Faint, &screen::plain(&session.name())))
}

/// The sessions that could be read, each with the result.
type OfEach<'a, T> = Vec<(&'a Found, T)>;

/// Reads each session. One that fails is reported on stderr, and the others are still returned, together with the worst exit
/// status. The only session fails as a whole.
pub(super) fn each<T>(
    sessions: &[Found],
    read: impl Fn(&Found) -> Result<T, CliError>,
) -> Result<(OfEach<'_, T>, i32), CliError> {
    let (mut all, mut failures) = (Vec::new(), Vec::new());
    for session in sessions {
        match read(session) {
            Ok(found) => all.push((session, found)),
            Err(error) => failures.push(error),
        }
    }
    Ok((all, failed(sessions.len(), failures.into_iter())?))
}

/// Reports which of so many sessions could not be read; returns the worst exit status. The only session fails as a whole.
pub(super) fn failed(sessions: usize, mut failures: impl Iterator<Item = CliError>) -> Result<i32, CliError> {
    match sessions {
        1 => failures.next().map_or(Ok(0), Err),
        _ => Ok(failures.fold(0, |worst, error| worst.max(error.report()))),
    }
}

/// A session's name in a heading: `proj (vscode) ab01` on a terminal, else its id.
pub(super) fn heading(session: &Found, to: Screen, environment: &Environment) -> String {
    match to {
        Screen::None => session.id.clone(),
        Screen::Coloured | Screen::Plain => {
            full_name(session, &all_quietly(environment).unwrap_or_else(|_| vec![session.clone()]))
        }
    }
}

/// The first two cells of a table of sessions: on a terminal the short id, which every tool takes, and `proj (vscode)`. Programs
/// get the whole id and no name, because names contain blanks.
pub(super) fn name_cells(id: &str, short: &str, name: &str, to: Screen) -> [Cell; 2] {
    let (id, name) = if to == Screen::None { (id, "") } else { (short, name) };
    [(Tone::Strong, id.to_owned()), (Tone::Plain, name.to_owned())]
}

/// [`name_cells`] of the session with this id among `all`.
pub(super) fn cells_of(id: &str, all: &[Found], to: Screen) -> [Cell; 2] {
    match all.iter().find(|session| session.id == id) {
        Some(session) => name_cells(id, short(session, all), &label(session), to),
        None => name_cells(id, id, "", to),
    }
}

/// The session and the output format, for tools whose first word is the session.
#[derive(Debug, Args)]
pub(super) struct Common {
    #[command(flatten)]
    pub(super) session: SessionWord,
    /// Print one JSON document
    #[arg(long = "json")]
    pub(super) as_json: bool,
}

/// The session as a word or as `--session`.
#[derive(Debug, Args)]
pub(super) struct SessionWord {
    /// Session: its name, the beginning or end of its id, or `latest`
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
    /// Session: its name, the beginning or end of its id, or `latest`
    #[arg(long = "session", value_name = "SESSION", id = "session", add = complete::sessions())]
    flag: Option<String>,
}

impl SessionFlag {
    pub(super) fn name(&self) -> Option<&str> {
        self.flag.as_deref()
    }
}

/// A whole number, 0 or more.
pub(super) fn whole(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "it must be a whole number, 0 or more".to_owned())
}

/// A whole number that may be negative.
pub(super) fn signed(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "it must be a whole number".to_owned())
}

/// A whole number, 1 or more.
pub(super) fn positive(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "it must be a whole number, 1 or more".to_owned())
}

/// A whole number from 1 to 200.
pub(super) fn up_to_200(text: &str) -> Result<u64, String> {
    let count = text.parse().ok().filter(|count| (1..=200).contains(count));
    count.ok_or_else(|| "it must be a whole number from 1 to 200".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_numbers_are_refused_in_words() {
        assert_eq!((whole("0"), signed("-1"), positive("7"), up_to_200("200")), (Ok(0), Ok(-1), Ok(7), Ok(200)));
        for text in ["x", "1.5", "", "99999999999999999999"] {
            assert!(whole(text).is_err_and(|why| why.contains("whole number")), "{text}");
            assert!(signed(text).is_err_and(|why| why.contains("whole number")), "{text}");
            assert!(positive(text).is_err_and(|why| why.contains("whole number")), "{text}");
            assert!(up_to_200(text).is_err_and(|why| why.contains("1 to 200")), "{text}");
        }
        assert!(whole("-1").is_err() && positive("0").is_err() && up_to_200("0").is_err() && up_to_200("201").is_err());
    }
}
