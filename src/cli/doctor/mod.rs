//! `codex-shim doctor`: checks the installation and its surroundings, and gives a remedy for each problem.
//!
//! It changes nothing.

mod codex;
mod drift;
mod hooks;
mod probe;
#[cfg(target_os = "linux")]
mod servers;
mod state;
mod wraps;

use clap::Args;
use serde_json::json;

use super::screen::{Screen, Tone, plain};
use super::session_args::SessionWord;
use super::{FAILED, screen, select_session};
use crate::config::{Environment, Flags, Settings};
use crate::launch;
use crate::store::Otherwise;

/// Check the installation, and say how to fix what is broken
///
/// It checks the real codex and its protocol, and starts its app-server in an empty CODEX_HOME; what `codex` on PATH leads to;
/// each wrap, with PATH=/usr/bin:/bin as an editor has it that is started from the desktop; the state folder and its free
/// space, each session with its lock, databases and relay, servers without a relay, and the hooks of your shells. It changes
/// nothing.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0 if nothing is broken, 1 if something is, 3 if there is no such
session.

Examples:
  codex-shim doctor
  codex-shim doctor work
  codex-shim doctor --json | jq '.checks[] | select(.status != \"ok\")'")]
pub(super) struct DoctorArguments {
    #[command(flatten)]
    session: SessionWord,
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

pub(super) fn run(arguments: &DoctorArguments, environment: &Environment) -> i32 {
    launch::keep_descriptors();
    let only =
        match arguments.session.name().map(|named| select_session::one(Some(named), Otherwise::Latest, environment)) {
            None => None,
            Some(Ok(found)) => Some(found.id),
            Some(Err(error)) => return error.report(),
        };
    let (settings, complaints) = Settings::load(Flags::default(), environment);
    let mut checks = Vec::new();
    for complaint in complaints {
        let remedy = "correct it, or remove it; `codex-shim config` shows what holds";
        checks.push(Check::broken("settings", complaint.to_string(), remedy));
    }
    if checks.is_empty() {
        checks.push(Check::ok("settings", "all can be used"));
    }
    codex::checks(&settings, environment, &mut checks);
    checks.extend(wraps::checks(&settings));
    state::checks(&settings, only.as_deref(), &mut checks);
    #[cfg(target_os = "linux")]
    checks.extend(servers::left_behind());
    checks.push(hooks::check(environment));
    let is_healthy = checks.iter().all(|check| check.verdict != Verdict::Broken);
    let to = Screen::of_stdout(environment);
    let text = if arguments.json { as_json(&checks, is_healthy) } else { as_text(&checks, to, screen::columns(to)) };
    let printed = screen::print(&text);
    if is_healthy { printed } else { FAILED }
}

fn as_json(checks: &[Check], is_healthy: bool) -> String {
    let checks: Vec<_> = checks
        .iter()
        .map(|check| json!({ "name": check.name, "status": check.verdict.name(), "found": check.found, "remedy": check.remedy }))
        .collect();
    format!("{}\n", json!({ "healthy": is_healthy, "checks": checks }))
}

fn as_text(checks: &[Check], to: Screen, columns_max: Option<usize>) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let verdict = to.paint(check.verdict.tone(), &format!("{:6}", check.verdict.name()));
        let indent = width + 10;
        let wrapped = |text: &str, first| screen::wrapped(&plain(text), first, first, columns_max);
        text.push_str(&format!("{verdict}  {:width$}  {}\n", check.name, wrapped(&check.found, indent)));
        if let Some(remedy) = &check.remedy {
            text.push_str(&format!("{:8}{:width$}  → {}\n", "", "", wrapped(remedy, indent + 2)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_listed_with_their_remedies() {
        let checks = [Check::ok("settings", "all can be used"), Check::broken("codex", "not there", "install it")];
        let text = as_text(&checks, Screen::None, None);
        assert_eq!(
            text,
            "ok      settings  all can be used\nbroken  codex     not there\n                  → install it\n\n1 broken\n"
        );
        let narrow = as_text(&checks, Screen::Plain, Some(32));
        assert!(narrow.starts_with("ok      settings  all can be\n  used\n"), "{narrow}");
        assert!(as_json(&checks, false).contains(r#""healthy":false"#));
    }
}
