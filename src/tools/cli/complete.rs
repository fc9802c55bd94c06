//! `codex-shim completions`: shell completion scripts, manual pages, and the values that a shell completes.
//!
//! The script calls codex-shim for every completion, with [`VARIABLE`] set and the words of the command line after `--`, so
//! completions know the current sessions, threads and requests. A completion reads files and asks live relays, each within
//! [`ANSWER_WAIT_MAX`]. It never changes or indexes anything, and never prints an error: the shell then offers no values.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Command, ValueHint};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _};
use clap_complete::env::Shells;

use super::Done;
use super::offline::stored_threads;
use super::{screen, select_session, threads, wrap};
use crate::api::{Limit, Query, Requests, ReviewsQuery, State, ThreadDocument, WhichRequests};
use crate::config::Environment;
use crate::control::{client, recorded_threads};
use crate::store::{Found, Otherwise};

/// How long a relay may take to answer, because a person waits at the prompt.
const ANSWER_WAIT_MAX: Duration = Duration::from_millis(300);

/// Most sessions whose requests are queried.
const ASKED_MAX: usize = 8;

/// Most values that are offered.
const OFFERED_MAX: usize = 50;

/// The value that names the newest session, thread or request.
const LATEST: &str = "latest";

/// A value with a short description.
pub(super) type Offer = (String, String);

/// Completes names of sessions.
pub(super) fn sessions() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| offered(typed, || session_offers(&environment()), "the session used last"))
}

/// Completes names of sessions, and paths.
pub(super) fn sessions_and_files() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let mut found = offered(typed, || session_offers(&environment()), "the session used last");
        found.extend(PathCompleter::file().complete(typed));
        found
    })
}

/// Completes ids of threads of the session that the command line names.
pub(super) fn threads() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        offered(typed, || thread_offers(&environment()), "the thread of the last turn")
    })
}

/// Completes ids of pending requests.
pub(super) fn requests() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| offered(typed, || request_offers(&environment()), "the newest that waits"))
}

/// Completes ids of denials of codex's own reviewer.
pub(super) fn denials() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| offered(typed, || denial_offers(&environment()), "the newest denial"))
}

/// Completes targets of `wrap`, and paths.
pub(super) fn targets() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let tools = wrap::targets().map(|tool| (tool.to_owned(), "a setting of this tool".to_owned()));
        let path = ("path".to_owned(), "a link early in PATH".to_owned());
        let codex = ("codex".to_owned(), "the hub, at login".to_owned());
        let mut found = matching(typed, tools.chain([path, codex]).collect());
        found.extend(PathCompleter::any().complete(typed));
        found
    })
}

/// The offers that begin with `typed`; `latest` comes last.
fn offered(typed: &OsStr, offers: impl FnOnce() -> Vec<Offer>, latest: &str) -> Vec<CompletionCandidate> {
    let mut offers = offers();
    if !offers.is_empty() {
        offers.push((LATEST.to_owned(), latest.to_owned()));
    }
    matching(typed, offers)
}

pub(super) fn matching(typed: &OsStr, offers: Vec<Offer>) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else { return Vec::new() };
    let matching = offers.into_iter().filter(|(value, _)| value.starts_with(typed)).take(OFFERED_MAX);
    let candidate = |(order, (value, about)): (usize, Offer)| {
        let about = Some(screen::plain(&about)).filter(|about| !about.is_empty());
        CompletionCandidate::new(value).help(about.map(Into::into)).display_order(Some(order))
    };
    matching.enumerate().map(candidate).collect()
}

fn environment() -> Environment {
    Environment::of_process()
}

fn session_offers(environment: &Environment) -> Vec<Offer> {
    let about = |session: &Found| {
        let cwd = session.holder.as_ref().map(|holder| holder.place.cwd.clone()).unwrap_or_default();
        if session.live { format!("live in {cwd}") } else { format!("stopped, in {cwd}") }
    };
    let found = select_session::all(environment).unwrap_or_default();
    found.iter().map(|session| (session.id.clone(), about(session))).collect()
}

/// The session named in the command line that is being completed.
fn session(environment: &Environment) -> Option<Found> {
    let words: Vec<String> = std::env::args().collect();
    select_session::one_quietly(session_in(&words).as_deref(), Otherwise::Latest, environment)
        .ok()
        .map(|(found, _)| found)
}

/// The value of `--session` in a command line.
fn session_in(words: &[String]) -> Option<String> {
    let at = words.iter().rposition(|word| word == "--session").and_then(|at| words.get(at + 1).cloned());
    at.or_else(|| words.iter().rev().find_map(|word| word.strip_prefix("--session=").map(str::to_owned)))
        .filter(|name| !name.is_empty())
}

fn thread_offers(environment: &Environment) -> Vec<Offer> {
    let Some(session) = session(environment) else { return Vec::new() };
    let live = asked(&session, &State).map(|document| document.threads).unwrap_or_default();
    let mut offers: Vec<Offer> = Vec::new();
    for ThreadDocument { thread_id, activity_state, last_action, identity, .. } in live.into_iter().rev() {
        let who = identity.in_words().unwrap_or_default();
        let about = [&who, activity_state.name(), last_action.as_deref().unwrap_or_default()].join(" ");
        offers.push((thread_id, about.trim().to_owned()));
    }
    let past = stored_threads(&session);
    let is_new = |thread: &String| !offers.iter().any(|(id, _)| id == thread);
    let past: Vec<String> = past.into_iter().filter(is_new).take(OFFERED_MAX).collect();
    let known = recorded_threads(&session.dir, &past);
    offers.extend(past.into_iter().map(|thread| {
        let about = known.get(&thread).and_then(threads::in_words).unwrap_or_default();
        (thread, about)
    }));
    offers
}

/// The live sessions that the command line means.
fn live_sessions(environment: &Environment) -> impl Iterator<Item = Found> {
    let words: Vec<String> = std::env::args().collect();
    let sessions = match session_in(&words) {
        Some(_) => session(environment).into_iter().collect(),
        None => select_session::all(environment).unwrap_or_default(),
    };
    sessions.into_iter().filter(|session| session.live).take(ASKED_MAX)
}

fn denial_offers(environment: &Environment) -> Vec<Offer> {
    let query = ReviewsQuery { limit: Some(Limit(50)), ..ReviewsQuery::default() };
    let denials = live_sessions(environment)
        .flat_map(|session| asked(&session, &query).map(|document| document.reviews))
        .flatten();
    let open = denials.filter(|denial| denial.overruled_at.is_none());
    open.map(|denial| (denial.review_id, denial.subject.unwrap_or_default())).collect()
}

fn request_offers(environment: &Environment) -> Vec<Offer> {
    let listed = live_sessions(environment).flat_map(|session| asked(&session, &Requests(WhichRequests::Pending)));
    let rows = listed.flat_map(|list| list.requests);
    rows.map(|row| (row.request_id, row.summary)).collect()
}

/// The answer of a live relay; `None` if none is running or it does not answer in time.
fn asked<Q: Query>(session: &Found, query: &Q) -> Option<Q::Document> {
    session.live.then(|| client::ask(&session.dir, query, ANSWER_WAIT_MAX).ok()).flatten()
}

/// Names the shell that calls for a completion.
pub(super) const VARIABLE: &str = "CODEX_SHIM_COMPLETE";

/// The name by which the script calls us.
const PROGRAM: &str = "codex-shim";

/// Print shell completions, or write manual pages
///
/// Completions know your sessions, threads, pending requests and the targets of `wrap`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
The shell runs `codex-shim` from PATH to complete a word. If you keep the
output in a file, write the file again after an upgrade.

Examples:
  source <(codex-shim completions bash)          in ~/.bashrc
  source <(codex-shim completions zsh)           in ~/.zshrc, after compinit
  codex-shim completions fish | source           in ~/.config/fish/config.fish
  codex-shim completions zsh > ~/.zfunc/_codex-shim
  codex-shim completions --man ~/.local/share/man/man1")]
pub(super) struct CompletionsArguments {
    /// The shell
    #[arg(required_unless_present = "man")]
    shell: Option<Shell>,
    /// Write a manual page of each command into this folder instead
    #[arg(long, value_name = "DIR", conflicts_with = "shell", value_hint = ValueHint::DirPath)]
    man: Option<PathBuf>,
}

/// Prints the script, or writes the pages. `command` is the root command.
pub(super) fn run(arguments: &CompletionsArguments, command: Command) -> Done {
    if let Some(dir) = &arguments.man {
        let written = std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(command, dir));
        written.map_err(|error| format!("write manual pages to {}: {error}", dir.display()))?;
        return Ok(0);
    }
    let Some(shell) = arguments.shell else { unreachable!("BUG: clap has asked for one of the two") };
    let shells = Shells::builtins();
    let completer = shells.completer(&shell.to_string()).expect("BUG: each shell of the one list is in the other");
    let mut script = Vec::new();
    let written = completer.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script);
    written.map_err(|error| format!("write completions for {shell}: {error}"))?;
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if shell == Shell::Bash {
        script = script.replace(" -F _clap_complete_codex_shim ", " -F _codex_shim_complete ") + WHOLE_WORDS;
    }
    Ok(screen::print_exactly(&script))
}

/// bash splits words at colons, which filters have, and replaces only the text behind the last one. So this joins the last word again, and
/// removes the text before that colon from each offer. It changes the variables of bash for this call only.
const WHOLE_WORDS: &str = r#"
_codex_shim_complete() {
    local _word=${COMP_LINE:0:COMP_POINT} _joined= _i
    _word=${_word##*[[:blank:]]}
    if [[ $_word == *:* && $_word != *[\"\'\\]* ]]; then
        for ((_i = COMP_CWORD; _i > 0; _i--)); do
            _joined=${COMP_WORDS[_i]}$_joined
            [[ $_joined == "$_word" ]] || continue
            local COMP_WORDS=("${COMP_WORDS[@]:0:_i}" "$_word") COMP_CWORD=$_i
            _clap_complete_codex_shim "$1" "$_word" "$3"
            COMPREPLY=("${COMPREPLY[@]#"${_word%:*}:"}")
            return
        done
    fi
    _clap_complete_codex_shim "$@"
}
"#;

/// Answers a completion call: `args` is `--` and the words of the command line. Any other form is not a completion call.
pub(super) fn answer(shell: &str, args: &[OsString], command: impl FnOnce() -> Command) -> Option<i32> {
    let (escape, words) = args.split_first()?;
    if escape != "--" || words.is_empty() {
        return None;
    }
    let shells = Shells::builtins();
    let mut completions = Vec::new();
    let mut command = command();
    command.build();
    let here = std::env::current_dir().ok();
    // An error is dropped, because it would appear in the user's command line.
    if let Some(completer) = shells.completer(shell) {
        let _ = completer.write_complete(&mut command, words.to_vec(), here.as_deref(), &mut completions);
    }
    Some(screen::print_exactly(&String::from_utf8_lossy(&completions)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_match_typed_text_and_are_escaped() {
        let offers = || vec![("ab".to_owned(), "one\u{1b}[31m\n".to_owned()), ("b".to_owned(), String::new())];
        let found = offered(OsStr::new("a"), offers, "the last");
        assert_eq!(found.len(), 1);
        let help = found[0].get_help().map(ToString::to_string);
        assert_eq!((found[0].get_value(), help.as_deref()), (OsStr::new("ab"), Some("one\u{fffd}[31m\u{fffd}")));
        assert_eq!(offered(OsStr::new(""), offers, "the last").len(), 3);
        assert!(offered(OsStr::new(""), Vec::new, "the last").is_empty());
    }

    #[test]
    fn session_is_read_from_command_line() {
        let check = |line: &str, expect: Option<&str>| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(session_in(&words).as_deref(), expect, "{line}");
        };
        check("codex-shim show --session work", Some("work"));
        check("codex-shim show --session=work ", Some("work"));
        check("codex-shim show --session", None);
        check("codex-shim show", None);
    }
}
