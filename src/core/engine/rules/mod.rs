//! Rules of the user: requests that are accepted, declined or held without asking. The pure part: which rule decides on a request.
//!
//! An accept rule names one command to the last word and one folder; [`ExactCommand`] cannot be made with less. It decides only
//! on requests whose members are all known and harmless ([`Asked`]). So a request with a new member goes to the client, and
//! a part of a rule, as in a file that an editor is writing, never accepts more than the whole rule. Rules that decline or
//! hold may be general.
//!
//! The first rule that matches decides. No rule decides on a command for a person, or on input for a running program.
//!
//! Never looks at a file: whether the folder and the program are what their names say is checked outside, before an answer.

mod asked;
mod command_line;
mod past;
mod programs;

use std::fmt;

pub(crate) use asked::AskedCommand;
pub use asked::{Asked, InThread, Workspace};
pub use past::{PastRequest, PersonsAnswer, Suggestion, WouldDo, suggestions, would_do};
pub use programs::{is_shell, passes_command_on, runs_others, runs_project_files, runs_repository_files};

use serde_json::Value;
use serde_json::value::to_raw_value;

use super::requests::{RequestKind, Subject, with_item};
use crate::protocol::named;
use command_line::{LINE_BYTES_MAX, WORDS_MAX, is_plain_program, is_shell_of_system};
use programs::BUILT_IN;

/// A rule of the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub name: String,
    pub does: Does,
}

/// The action of a rule, and the requests that it matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Does {
    Accept(ExactCommand),
    Decline {
        of: Matcher,
        /// Text for the model.
        reason: Option<String>,
    },
    Hold {
        of: Matcher,
    },
}

named! {
    pub enum RuleAction {
        Accept = "accept",
        Decline = "decline",
        /// The client is not asked, only API callers.
        Hold = "hold",
    }
}

/// A command that a rule accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExactCommand {
    argv: Vec<String>,
    cwd: String,
    trust: Trust,
    /// The only shell that may run it; the user's own if none is named.
    shell: Option<String>,
}

/// The dangers that the user takes with a rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trust {
    /// The shell may look the program up on its PATH.
    pub path: bool,
    /// The model may type into the program, if codex does not ask about that.
    pub terminal: bool,
    /// `git` may run files that the model writes.
    pub repository: bool,
}

/// Requests that a rule declines or holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matcher {
    Command { argv: Option<Words>, cwd: Option<RulePlace> },
    FileChange { below: Option<String> },
    Permissions { cwd: Option<RulePlace> },
    Questions,
    Elicitation,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Words {
    All(Vec<String>),
    First(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RulePlace {
    Exactly(String),
    /// The folder or one below it.
    Below(String),
}

/// A command whose folder and program must be checked outside before a rule accepts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramCheck {
    pub command: ExactCommand,
    /// The shell that runs it, if one does.
    pub shell: Option<String>,
    pub workspace: Workspace,
}

/// What a rule that matches does about the request.
#[derive(Debug)]
pub enum Decides<'a> {
    Accept(Box<ProgramCheck>),
    Decline { reason: Option<&'a str> },
    Hold,
}

/// The facts of a stored request; see [`Asked::of`].
pub fn asked(kind: RequestKind, params: &Value, item: Option<&Value>, changes: Option<&Value>) -> Option<Asked> {
    let raw = to_raw_value(params).ok()?;
    Asked::of(kind, Some(&raw), &with_item(params.clone(), item), changes)
}

impl Rule {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn does(&self) -> &Does {
        &self.does
    }

    pub fn action(&self) -> RuleAction {
        match self.does {
            Does::Accept(_) => RuleAction::Accept,
            Does::Decline { .. } => RuleAction::Decline,
            Does::Hold { .. } => RuleAction::Hold,
        }
    }

    /// What it does about a request, or why it does not match.
    pub fn check(&self, asked: &Asked) -> Result<Decides<'_>, Miss> {
        match &self.does {
            Does::Accept(exact) => exact.check(asked).map(|check| Decides::Accept(Box::new(check))),
            Does::Decline { of, reason } => of.check(asked).map(|()| Decides::Decline { reason: reason.as_deref() }),
            Does::Hold { of } => of.check(asked).map(|()| Decides::Hold),
        }
    }
}

/// Why a rule does not decide on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Miss {
    /// The rule is about other requests.
    Differs(String),
    /// The rule names this command, but the request asks for more or is not known well enough.
    Barred(String),
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Miss::Differs(why) | Miss::Barred(why) => f.write_str(why),
        }
    }
}

fn differs<T>(why: impl Into<String>) -> Result<T, Miss> {
    Err(Miss::Differs(why.into()))
}

impl ExactCommand {
    /// # Errors
    ///
    /// A message with the remedy, if such a command can never be accepted.
    pub fn new(argv: Vec<String>, cwd: String, trust: Trust, shell: Option<String>) -> Result<ExactCommand, String> {
        let Some(program) = argv.first() else { return Err("argv: it is empty".to_owned()) };
        if argv.len() > WORDS_MAX || argv.iter().map(String::len).sum::<usize>() > LINE_BYTES_MAX {
            return Err(format!("argv: the limits are {WORDS_MAX} words and {LINE_BYTES_MAX} bytes"));
        }
        if argv.iter().any(|word| !word.chars().all(|char| matches!(char, ' '..='~'))) {
            return Err("argv: a rule accepts only words of printable ASCII characters".to_owned());
        }
        let is_path = program.contains('/');
        if !is_plain_program(program) || (is_path && !is_whole_path(program)) {
            return Err(format!("argv: `{program}` is neither a plain name nor an absolute path of a program"));
        }
        let name = program.rsplit('/').next().unwrap_or_default();
        if let Some(why) = runs_others(name) {
            return Err(format!("argv: a rule does not accept `{name}`, because it {why}"));
        }
        // Settings and folders that the model may write name the files that `git status` runs.
        if runs_repository_files(name) && !trust.repository {
            return Err(format!(
                "argv: `{name}` can run files that the model writes; if you accept that, add `trust_repository = true` to \
                 the rule"
            ));
        }
        if !is_path && BUILT_IN.contains(&name) {
            return Err(format!("argv: `{name}` is built into some shells; give the path of the program"));
        }
        if !is_path && !trust.path {
            return Err(format!(
                "argv: the shell that codex starts looks `{name}` up on its PATH, which your profile may change; give the path \
                 of the program, or add `trust_path = true` to the rule"
            ));
        }
        if !is_whole_path(&cwd) {
            return Err(format!("cwd: `{cwd}` is not an absolute path without `.`, `..` and a slash at its end"));
        }
        if let Some(shell) = shell.as_deref().filter(|shell| !is_shell_of_system(shell)) {
            return Err(format!(
                "shell: `{shell}` is not bash, sh, dash, ksh or zsh in /bin, /usr/bin or /usr/local/bin, with its whole path"
            ));
        }
        Ok(ExactCommand { argv, cwd, trust, shell })
    }

    pub fn argv(&self) -> &[String] {
        &self.argv
    }

    pub fn cwd(&self) -> &str {
        &self.cwd
    }

    pub fn trust(&self) -> Trust {
        self.trust
    }

    pub fn shell(&self) -> Option<&str> {
        self.shell.as_deref()
    }

    fn check(&self, asked: &Asked) -> Result<ProgramCheck, Miss> {
        let Asked::Command(AskedCommand { plain, cwd, bar, in_thread, .. }) = asked else {
            return differs("it accepts only commands");
        };
        let plain = plain.as_ref().map_err(|why| Miss::Differs(why.to_string()))?;
        if plain.argv != self.argv {
            return differs("another command");
        }
        match cwd {
            Some(cwd) if *cwd == self.cwd => {}
            Some(cwd) => return differs(format!("it runs in {cwd}, not in {}", self.cwd)),
            None => return differs("the request does not say where the command runs"),
        }
        let barred = |why: String| Err(Miss::Barred(why));
        if let Some(bar) = bar {
            return barred(bar.clone());
        }
        if !in_thread.asks_about_input && !self.trust.terminal {
            return barred(
                "this version of codex may let the model type into the program without asking; codex 0.169 asks"
                    .to_owned(),
            );
        }
        match &in_thread.workspace {
            Err(why) => barred(why.clone()),
            Ok(workspace) => {
                Ok(ProgramCheck { command: self.clone(), shell: plain.shell.clone(), workspace: workspace.clone() })
            }
        }
    }
}

impl Matcher {
    pub fn subject(&self) -> Subject {
        match self {
            Matcher::Command { .. } => Subject::Command,
            Matcher::FileChange { .. } => Subject::Diff,
            Matcher::Permissions { .. } => Subject::Permissions,
            Matcher::Questions => Subject::Questions,
            Matcher::Elicitation => Subject::Elicitation,
        }
    }

    fn check(&self, asked: &Asked) -> Result<(), Miss> {
        match (self, asked) {
            (Matcher::Command { argv, cwd }, Asked::Command(command)) => {
                check_words(argv.as_ref(), command.words.as_deref())?;
                check_place(cwd.as_ref(), command.cwd.as_deref())
            }
            (Matcher::Permissions { cwd }, Asked::Permissions { cwd: of_request }) => {
                check_place(cwd.as_ref(), of_request.as_deref())
            }
            (Matcher::FileChange { below: None }, Asked::FileChange { .. })
            | (Matcher::Questions, Asked::Questions)
            | (Matcher::Elicitation, Asked::Elicitation) => Ok(()),
            (Matcher::FileChange { below: Some(folder) }, Asked::FileChange { paths }) => {
                match paths.iter().any(|path| is_below(path, folder)) {
                    true => Ok(()),
                    false if paths.is_empty() => differs("the files that change are not known"),
                    false => differs(format!("no file below {folder} changes")),
                }
            }
            (
                Matcher::Command { .. }
                | Matcher::FileChange { .. }
                | Matcher::Permissions { .. }
                | Matcher::Questions
                | Matcher::Elicitation,
                Asked::Command(_)
                | Asked::FileChange { .. }
                | Asked::Permissions { .. }
                | Asked::Questions
                | Asked::Elicitation,
            ) => differs("a request of another kind"),
        }
    }
}

fn check_words(wanted: Option<&Words>, words: Option<&[String]>) -> Result<(), Miss> {
    let Some(wanted) = wanted else { return Ok(()) };
    let Some(words) = words else { return differs("the words of the command cannot be read") };
    let is_same = match wanted {
        Words::All(all) => words == all.as_slice(),
        Words::First(first) => words.starts_with(first),
    };
    if is_same { Ok(()) } else { differs("another command") }
}

fn check_place(wanted: Option<&RulePlace>, cwd: Option<&str>) -> Result<(), Miss> {
    match (wanted, cwd) {
        (None, _) => Ok(()),
        (Some(_), None) => differs("the request does not say where it applies"),
        (Some(RulePlace::Exactly(wanted)), Some(cwd)) if cwd == wanted => Ok(()),
        (Some(RulePlace::Below(folder)), Some(cwd)) if is_below(cwd, folder) => Ok(()),
        (Some(RulePlace::Exactly(wanted)), Some(cwd)) => differs(format!("it applies to {cwd}, not to {wanted}")),
        (Some(RulePlace::Below(folder)), Some(cwd)) => differs(format!("{cwd} is not below {folder}")),
    }
}

/// Whether a path is absolute, without `.`, `..`, doubled slashes and a slash at its end. Without links, each folder has one
/// such spelling.
pub fn is_whole_path(path: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    let is_printable = !path.chars().any(char::is_control);
    is_printable && (path == "/" || path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_part)))
}

/// Whether a path is a folder or below it. A `..` in it is resolved by its spelling.
fn is_below(path: &str, folder: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    let mut parts: Vec<&str> = Vec::new();
    for part in rest.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let folder: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    parts.starts_with(&folder)
}

/// The words of a command line of codex, if there can be a rule that accepts it.
#[must_use]
pub fn acceptable_words(line: &str) -> Option<Vec<String>> {
    let argv = command_line::plain_command(line).ok()?.argv;
    let trust = Trust { path: true, repository: true, ..Trust::default() };
    ExactCommand::new(argv.clone(), "/".to_owned(), trust, None).is_ok().then_some(argv)
}

/// The rule that decides on a request, and the accept rules before it that the request bars.
#[derive(Debug, Default)]
pub(super) struct Ruling<'a> {
    pub rule: Option<(&'a Rule, Decides<'a>)>,
    pub barred: Vec<(&'a Rule, String)>,
}

/// The first rule that matches.
pub(super) fn ruling<'a>(rules: &'a [Rule], asked: &Asked) -> Ruling<'a> {
    let mut ruling = Ruling::default();
    for rule in rules {
        match rule.check(asked) {
            Ok(decides) => return Ruling { rule: Some((rule, decides)), ..ruling },
            Err(Miss::Barred(why)) => ruling.barred.push((rule, why)),
            Err(Miss::Differs(_)) => {}
        }
    }
    ruling
}

#[cfg(test)]
mod tests;
