//! The session that a tool works on: its arguments, its selection and its name in output; and the numbers that tools take, with errors
//! in words.
//!
//! Most tools accept the session as their first word; every tool accepts `--session`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::CliError;
use super::hub_tool::Down;
use super::screen::{self, Screen, Tone};
use super::table::Cell;
use super::{NO_SUCH_SESSION, NO_SUCH_THREAD, complete, say, threads};
use crate::api;
use crate::config::{ContextScope, Environment};
use crate::control::{client, open_threads};
use crate::files::Refused;
use crate::hub;
pub(super) use crate::sessions::at_once;
use crate::store::{
    Choice, ChoiceError, Found, OpenThread, Otherwise, Survey, ThreadChoice, ThreadUse, choose, choose_all,
    choose_thread, full_name, in_scope, label, repository_of, share_repository, short, shown_from_elsewhere,
};

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

/// The session from `--session`, else from CODEX_SHIM_SESSION, else of the current folder. If a tool that reads shows a session
/// of another folder, a note on stderr names it.
pub(super) fn one(flag: Option<&str>, otherwise: Otherwise, environment: &Environment) -> Result<Found, CliError> {
    let (mut session, note) = meant(&here(), flag, otherwise, environment, choose_one)?;
    note.iter().for_each(|note| say(note));
    Ok(session.remove(0))
}

/// [`one`] for the completion of a command line, which prints nothing else.
pub(super) fn one_quietly(
    flag: Option<&str>,
    otherwise: Otherwise,
    environment: &Environment,
) -> Result<Found, CliError> {
    meant(&here(), flag, otherwise, environment, choose_one).map(|(mut session, _)| session.remove(0))
}

/// All sessions that match, because two clients in one folder have a session each. The most recently used one comes first.
pub(super) fn several(
    flag: Option<&str>,
    otherwise: Otherwise,
    environment: &Environment,
) -> Result<Vec<Found>, CliError> {
    several_at(&here(), flag, otherwise, environment)
}

/// [`several`] for a command that ran in `cwd`.
pub(super) fn several_at(
    cwd: &Path,
    flag: Option<&str>,
    otherwise: Otherwise,
    environment: &Environment,
) -> Result<Vec<Found>, CliError> {
    let (sessions, note) = meant(cwd, flag, otherwise, environment, choose_all)?;
    note.iter().for_each(|note| say(note));
    Ok(sessions)
}

/// The sessions here and all others, for a name that is looked up in every folder. [`several`] selects
/// those here; there are none if only sessions of other folders are live. If `--session` names one, there are no others.
pub(super) fn here_and_elsewhere(
    flag: Option<&str>,
    environment: &Environment,
) -> Result<(Vec<Found>, Vec<Found>), CliError> {
    if flag.is_some() {
        return Ok((vec![one(flag, Otherwise::Latest, environment)?], Vec::new()));
    }
    let all = all_quietly(environment)?;
    let is_any_live = all.iter().any(|session| session.live);
    let otherwise = if is_any_live { Otherwise::None } else { Otherwise::Latest };
    let here = match meant(&here(), None, otherwise, environment, choose_all) {
        Ok((here, _)) => here,
        Err(_) if is_any_live && !is_named(None, environment) => Vec::new(),
        Err(error) => return Err(error),
    };
    let elsewhere = all.into_iter().filter(|session| !here.iter().any(|other| other.id == session.id)).collect();
    Ok((here, elsewhere))
}

/// Whether the user names a session, by `--session` or by CODEX_SHIM_SESSION.
pub(super) fn is_named(flag: Option<&str>, environment: &Environment) -> bool {
    flag.is_some() || environment.get(SESSION_VARIABLE).is_some()
}

/// Names the session for all tools.
const SESSION_VARIABLE: &str = "CODEX_SHIM_SESSION";

/// A folder without the links by which a shell may have come to it.
fn resolved(cwd: &Path) -> PathBuf {
    std::fs::canonicalize(cwd).unwrap_or_else(|_| cwd.to_owned())
}

fn here() -> PathBuf {
    std::env::current_dir().unwrap_or_default()
}

fn choose_one<'a>(found: &'a [Found], choice: Choice<'_>) -> Result<Vec<&'a Found>, ChoiceError> {
    choose(found, choice).map(|session| vec![session])
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
    reported(sessions, sessions.iter().map(read))
}

/// [`each`] for sessions that were read already.
pub(super) fn reported<T>(
    sessions: &[Found],
    mut results: impl Iterator<Item = Result<T, CliError>>,
) -> Result<(OfEach<'_, T>, i32), CliError> {
    if let [only] = sessions {
        let result = results.next().into_iter().collect::<Result<Vec<_>, _>>()?;
        return Ok((result.into_iter().map(|found| (only, found)).collect(), 0));
    }
    let (mut all, mut worst) = (Vec::new(), 0);
    for (session, result) in sessions.iter().zip(results) {
        match result {
            Ok(found) => all.push((session, found)),
            Err(error) => worst = worst.max(error.report()),
        }
    }
    Ok((all, worst))
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

/// The argument that names the session in a suggested command, with a space before it. Empty if no session was named and no other
/// one is live: then the command finds it.
pub(super) fn argument_for(session: &Found, flag: Option<&str>, environment: &Environment) -> String {
    argument_among(session, flag, &all_quietly(environment).unwrap_or_default())
}

fn argument_among(session: &Found, flag: Option<&str>, all: &[Found]) -> String {
    let has_rival = all.iter().any(|other| other.live && other.id != session.id);
    if flag.is_none() && !has_rival { String::new() } else { format!(" --session {}", short(session, all)) }
}

/// The sessions that are meant, at least one, and a note if they are of another folder.
fn meant(
    cwd: &Path,
    flag: Option<&str>,
    otherwise: Otherwise,
    environment: &Environment,
    choose: for<'a> fn(&'a [Found], Choice<'_>) -> Result<Vec<&'a Found>, ChoiceError>,
) -> Result<(Vec<Found>, Option<String>), CliError> {
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
                let (id, why) = refused.swap_remove(meant);
                not_used(&id, &why)
            }
            (error @ ChoiceError::NoLiveSession { .. }, None) => not_live(error, &found),
            (error, _) => CliError::exits(NO_SUCH_SESSION, error.to_string()),
        }
    })?;
    let note = sessions.first().and_then(|session| shown_from_elsewhere(&found, choice, session));
    Ok((sessions.into_iter().cloned().collect(), note))
}

/// How long a hub may take to say where its threads work.
const THREADS_WAIT_MAX: Duration = Duration::from_secs(5);

/// Asks each running hub for its open threads. One that does not answer is found by its own folder only.
fn ask_hubs(found: &mut [Found]) {
    let is_hub =
        |session: &&mut Found| session.live && session.holder.as_ref().is_some_and(|holder| hub::is_hub(&holder.place));
    for session in found.iter_mut().filter(is_hub) {
        session.threads = client::ask(&session.dir, &api::State, THREADS_WAIT_MAX).ok().as_ref().map(open_threads);
    }
}

/// The thread that a command means whose user names none: one of the current folder, else the only one of the session. `None` leaves
/// it to the relay, which takes the last one.
///
/// # Errors
///
/// Several threads are open, and none of them in this folder.
pub(super) fn thread_here(session: &Found, used: ThreadUse) -> Result<Option<String>, CliError> {
    if session.live && has_unknown_threads(session) {
        let why = format!("the hub does not say within {} s where its threads work", THREADS_WAIT_MAX.as_secs());
        return Err(CliError::exits(NO_SUCH_THREAD, why).with_remedy("try again, or name a thread with --thread"));
    }
    match choose_thread(session, &here(), used) {
        ThreadChoice::Thread(thread) => Ok(Some(thread.id.clone())),
        ThreadChoice::OfRelay => Ok(None),
        ThreadChoice::Several(several) => {
            let are = if several.iter().any(|thread| thread.is_open) { "are open" } else { "were open" };
            let named = |thread: &&OpenThread| {
                let last_used = Some(&*thread.last_used).filter(|at| !at.is_empty());
                format!("{}  {}", thread.id, threads::with_age(&screen::plain(&thread.name), last_used))
            };
            let why = format!(
                "several threads {are}, and none of them in this folder; go to the folder of one, or name it with --thread:{}",
                threads::lines(&several.iter().map(named).collect::<Vec<_>>())
            );
            Err(CliError::exits(NO_SUCH_THREAD, why))
        }
    }
}

/// Whether what a thread does in `place` is of the current folder.
pub(super) fn is_here(place: &str) -> bool {
    let place = resolved(Path::new(place));
    share_repository(&resolved(&here()), &place, repository_of(&place).as_deref())
}

/// Whether the session is a hub that has not said which threads it has.
fn has_unknown_threads(session: &Found) -> bool {
    session.threads.is_none() && session.holder.as_ref().is_some_and(|holder| hub::is_hub(&holder.place))
}

/// The threads of a session that get a command which ran in `cwd`; `None` is whichever speaks next. A hub that does not say which
/// threads it has, or is down, gets none: it has them in many projects.
pub(super) fn threads_for_context(session: &Found, cwd: &Path, scope: ContextScope) -> Vec<Option<String>> {
    match session.threads.as_ref().filter(|_| scope != ContextScope::Session) {
        None if scope != ContextScope::Session && has_unknown_threads(session) => Vec::new(),
        None => vec![None],
        Some(threads) => in_scope(threads, &resolved(cwd), scope).map(|thread| Some(thread.id.clone())).collect(),
    }
}

/// A session with the threads that are open now.
pub(super) fn refreshed(session: &Found) -> Found {
    let mut now = [Found { live: session.is_still_live(), ..session.clone() }];
    ask_hubs(&mut now);
    let [now] = now;
    now
}

/// The thread of this folder; `None` if there is none, or several without one that is nearer.
pub(super) fn thread_to_read(session: &Found) -> Option<String> {
    match choose_thread(session, &here(), ThreadUse::Read) {
        ThreadChoice::Thread(thread) => Some(thread.id.clone()),
        ThreadChoice::OfRelay | ThreadChoice::Several(_) => None,
    }
}

/// No session is live. A hub that has left its server running is one command away.
fn not_live(error: ChoiceError, found: &[Found]) -> CliError {
    let down = found.iter().filter_map(Down::of).find(|down| down.server.is_some());
    match down {
        None => CliError::exits(NO_SUCH_SESSION, error.to_string()),
        Some(down) => CliError::exits(NO_SUCH_SESSION, format!("no session is live in this folder: {}", down.what()))
            .with_remedy(down.remedy()),
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

#[cfg(test)]
mod session_args_tests {
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
