//! `codex-shim doctor`: checks the installation and its surroundings, and gives a remedy for each problem.
//!
//! It changes nothing. The checks of shell hooks and of wraps are here; a wrap is run as a tool started from the desktop does.

pub(super) mod codex;
mod files;
mod hub;
mod own_name;
mod reach;
mod servers;
mod state;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use codex::Ran;

use super::Done;
use super::screen::{Screen, Tone, plain};
use super::select_session::SessionWord;
use super::wrap::{self, Look, Made};
use super::{FAILED, screen, select_session};
use crate::config::{Environment, Flags, Settings};
use crate::files::{Folder, Refused, read_named};
use crate::os::{launch, self_test};
use crate::relay::locate::is_program;
use crate::store::Otherwise;

/// Check the installation, and say how to fix what is broken
///
/// It checks the calls of this system; the real codex and its protocol, and starts its app-server in an empty CODEX_HOME; what `codex` on PATH leads to;
/// each wrap, with PATH=/usr/bin:/bin as an editor has it that is started from the desktop; the server that answers where
/// codex looks for one, who is connected to the hub, and who bypasses it; the state folder and its free
/// space, each session with its lock, databases and relay, whether a model can change what decides for you, servers without a
/// relay, that `codex-shim` on PATH is this program, and the hooks of your shells. It changes nothing.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0 if nothing is broken, 1 if something is, 3 if there is no such
session.

Examples:
  codex-shim doctor
  codex-shim doctor work
  codex-shim doctor --files
  codex-shim doctor --json | jq '.checks[] | select(.status != \"ok\")'")]
pub(super) struct DoctorArguments {
    #[command(flatten)]
    session: SessionWord,
    /// Check the stored files instead, each byte of them; it may take minutes
    #[arg(long)]
    files: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Ok,
    /// Worth knowing, but everything works.
    Note,
    /// Something does not work.
    Broken,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    found: String,
    remedy: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::Ok, found: found.into(), remedy: None }
    }

    fn note(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::Note, found: found.into(), remedy: Some(remedy.into()) }
    }

    fn broken(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::Broken, found: found.into(), remedy: Some(remedy.into()) }
    }
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Note => "note",
            Verdict::Broken => "broken",
        }
    }

    fn tone(self) -> Tone {
        match self {
            Verdict::Ok => Tone::Good,
            Verdict::Note => Tone::Warning,
            Verdict::Broken => Tone::Bad,
        }
    }
}

pub(super) fn run(arguments: &DoctorArguments, environment: &Environment) -> Done {
    launch::keep_descriptors();
    let named = arguments.session.name();
    let only = named.map(|named| select_session::one(Some(named), Otherwise::Latest, environment)).transpose()?;
    let (settings, complaints) = Settings::load(Flags::default(), environment);
    let only_id = only.as_ref().map(|session| &*session.id);
    if arguments.files {
        return Ok(report(&files::checks(&settings, only_id), arguments, environment));
    }
    let mut checks = Vec::new();
    for complaint in complaints {
        let remedy = "correct it, or remove it; `codex-shim config` shows the settings in effect";
        checks.push(Check::broken("settings", complaint.to_string(), remedy));
    }
    if checks.is_empty() {
        checks.push(Check::ok("settings", "all valid"));
    }
    checks.push(system_check());
    codex::checks(&settings, environment, &mut checks);
    checks.extend(wrap_checks(&settings));
    hub::checks(&settings, environment, &mut checks);
    state::checks(&settings, only_id, &mut checks);
    checks.extend(reach::checks(&settings, environment));
    checks.extend(servers::left_behind(settings.home.value.as_deref()));
    checks.push(own_name::check(environment));
    checks.push(hook_check(environment));
    Ok(report(&checks, arguments, environment))
}

/// Prints the checks; returns the exit status.
fn report(checks: &[Check], arguments: &DoctorArguments, environment: &Environment) -> i32 {
    let is_healthy = checks.iter().all(|check| check.verdict != Verdict::Broken);
    let to = Screen::of_stdout(environment);
    let printed = match arguments.json {
        true => screen::print_exactly(&as_json(checks, is_healthy)),
        false => screen::print(&as_text(checks, to)),
    };
    if is_healthy { printed } else { FAILED }
}

/// Whether the calls of this system answer as they should.
fn system_check() -> Check {
    let failures = self_test::failures();
    match failures.is_empty() {
        true => Check::ok("system", "its calls answer as they should"),
        false => Check::note(
            "system",
            format!("its calls do not answer as they should for {}", failures.join(", ")),
            "what needs these works less well: `codex-shim docs platforms` says what",
        ),
    }
}

fn as_json(checks: &[Check], is_healthy: bool) -> String {
    let checks: Vec<_> = checks
        .iter()
        .map(|check| json!({ "name": check.name, "status": check.verdict.name(), "found": check.found, "remedy": check.remedy }))
        .collect();
    format!("{}\n", json!({ "healthy": is_healthy, "checks": checks }))
}

fn as_text(checks: &[Check], to: Screen) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let verdict = to.paint(check.verdict.tone(), &format!("{:6}", check.verdict.name()));
        text.push_str(&format!("{verdict}  {:width$}  {}\n", check.name, plain(&check.found)));
        if let Some(remedy) = &check.remedy {
            // No line ends behind the arrow.
            text.push_str(&format!("{:8}→\u{a0}{}\n", "", plain(remedy)));
        }
    }
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let told = match (count(Verdict::Broken), count(Verdict::Note)) {
        (0, 0) => to.paint(Tone::Good, "all is well"),
        (0, notes) => to.paint(Tone::Good, &format!("nothing is broken; {notes} worth knowing")),
        (broken, _) => to.paint(Tone::Bad, &format!("{broken} broken")),
    };
    text.push_str(&format!("\n{told}\n"));
    text
}

const HOOKS: &str = "shell hooks";

/// Checks the startup files.
fn hook_check(environment: &Environment) -> Check {
    let folder = |variable: &str| environment.get(variable).map(PathBuf::from);
    let home = folder("HOME").unwrap_or_default();
    let config = folder("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
    let zsh = folder("ZDOTDIR").unwrap_or_else(|| home.clone());
    let files = [home.join(".bashrc"), home.join(".bash_profile"), zsh.join(".zshrc"), config.join("fish/config.fish")];
    let mut hooked = Vec::new();
    for file in files {
        let Some(program) = read_named(&file).ok().and_then(|text| program_of(&text)) else { continue };
        if !is_there(&program, environment) {
            let found = format!("{} runs `{program} hook`, but {program} does not exist", file.display());
            return Check::broken(HOOKS, found, "correct that line; `codex-shim hook --help` shows it for each shell");
        }
        hooked.push(file.display().to_string());
    }
    match hooked.is_empty() {
        false => Check::ok(HOOKS, format!("in {}", hooked.join(", "))),
        true => Check::note(
            HOOKS,
            "no hook: the model sees only commands that are pushed",
            "if the model should see what you run, add `eval \"$(codex-shim hook bash)\"` to ~/.bashrc",
        ),
    }
}

/// The program whose hook a startup file loads.
fn program_of(text: &str) -> Option<String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let mut unquoted = lines.map(|line| line.replace(['"', '\''], ""));
    let before = unquoted.find_map(|line| line.split_once("codex-shim hook ").map(|(before, _)| before.to_owned()))?;
    let from = before.rfind(|char: char| char.is_whitespace() || "(`".contains(char)).map_or(0, |at| at + 1);
    Some(format!("{}codex-shim", &before[from..]))
}

/// Whether the program exists at its path or on PATH.
fn is_there(program: &str, environment: &Environment) -> bool {
    let in_home = ["~/", "$HOME/", "${HOME}/"].iter().find_map(|home| program.strip_prefix(home));
    if let Some(rest) = in_home {
        return environment.get("HOME").is_some_and(|home| Path::new(&home).join(rest).exists());
    }
    if program.contains('$') {
        // Only the shell can expand this.
        return true;
    }
    if program.contains('/') {
        return Path::new(program).exists();
    }
    let path = environment.get("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

/// PATH of a tool started from the desktop, on every system.
const BARE_PATH: &str = "/usr/bin:/bin";

/// How long a wrap may take to print codex's version.
const VERSION_WAIT_MAX: Duration = Duration::from_secs(7);

const WRAPS: &str = "wrap";

fn wrap_checks(settings: &Settings) -> Vec<Check> {
    let Some(home) = &settings.home.value else { return Vec::new() };
    // A home that is not trusted is reported by the checks of the home.
    if Folder::home(home).is_err_and(|error| Refused::behind(&error).is_some()) {
        return Vec::new();
    }
    match wrap::looks(home) {
        Ok(looks) => looks.into_iter().map(wrap_check).collect(),
        Err(why) => {
            vec![Check::broken(WRAPS, why, "move that file away; without it, `unwrap` does not know what to undo")]
        }
    }
}

fn wrap_check(look: Look) -> Check {
    match look {
        Look::Broken(why) => Check::broken(
            WRAPS,
            why,
            "repair it as described; until then tools do not use codex-shim, or find no codex",
        ),
        Look::Changed(found, remedy) => Check::note(WRAPS, found, remedy),
        Look::AtLogin(file, codex) => match codex.filter(|codex| !is_program(codex)) {
            None => Check::ok(WRAPS, format!("{} has the hub started at login", file.display())),
            Some(gone) => Check::broken(
                WRAPS,
                format!("{} has the hub started with {}, which is gone", file.display(), gone.display()),
                "run `codex-shim wrap codex` in a terminal where codex works",
            ),
        },
        Look::AsMade(made) => check_made(&made),
    }
}

fn check_made(made: &Made) -> Check {
    let Made { name, place, program, pinned, is_shared: _ } = made;
    let mut command = Command::new(program);
    // A variable of this terminal may name a codex that the tool never sees.
    command.arg("--version").env("PATH", BARE_PATH).env_remove("CODEX_SHIM_CODEX");
    let remedy = || {
        format!("run `codex-shim wrap {name}` in a terminal where codex works; `codex-shim unwrap {name}` undoes it")
    };
    let shown = program.display();
    match codex::run(&mut command, VERSION_WAIT_MAX) {
        Ran::Well(version) => {
            let found = format!("{place} runs {version}, with PATH={BARE_PATH}, too");
            match pinned.as_ref().filter(|pinned| !is_program(pinned)) {
                Some(gone) => Check::note(WRAPS, format!("{found}; the pinned {} is gone", gone.display()), remedy()),
                None => Check::ok(WRAPS, found),
            }
        }
        Ran::Badly(why) => {
            Check::broken(WRAPS, format!("{place}: with PATH={BARE_PATH}, {shown} --version fails: {why}"), remedy())
        }
        Ran::TooSlow => {
            let found =
                format!("{place}: with PATH={BARE_PATH}, {shown} --version did not exit within {VERSION_WAIT_MAX:?}");
            Check::broken(WRAPS, found, remedy())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_listed_with_their_remedies() {
        let checks = [Check::ok("settings", "all valid"), Check::broken("codex", "not there", "install it")];
        let text = as_text(&checks, Screen::None);
        assert_eq!(
            text,
            "ok      settings  all valid\nbroken  codex     not there\n        →\u{a0}install it\n\n1 broken\n"
        );
        assert!(as_json(&checks, false).contains(r#""healthy":false"#));
    }

    #[test]
    fn hook_program_is_found() {
        let check = |text: &str, expect: Option<&str>| assert_eq!(program_of(text).as_deref(), expect, "{text}");
        check("alias x=y\neval \"$(codex-shim hook bash)\"\n", Some("codex-shim"));
        check("eval \"$(/opt/bin/codex-shim hook bash)\"", Some("/opt/bin/codex-shim"));
        check("  ~/bin/codex-shim hook fish | source", Some("~/bin/codex-shim"));
        check("eval \"$($HOME/bin/codex-shim hook bash)\"", Some("$HOME/bin/codex-shim"));
        check("eval \"$(\"${HOME}/bin/codex-shim\" hook bash)\"", Some("${HOME}/bin/codex-shim"));
        check("# eval \"$(codex-shim hook bash)\"", None);
        check("codex-shim exec -- make", None);
    }
}
