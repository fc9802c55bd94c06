//! Checks that the `codex-shim` of messages and pages is this program: other projects have commands of that name.

use std::path::Path;
use std::process::Command;

use super::codex::{self, Ran};
use super::{Check, VERSION_WAIT_MAX};
use crate::config::Environment;
use crate::relay::locate::is_program;

const NAME: &str = "own name";

/// Whether the first `codex-shim` on `PATH` is this program.
pub(super) fn check(environment: &Environment) -> Check {
    let path = environment.get("PATH").unwrap_or_default();
    let first = std::env::split_paths(&path).map(|folder| folder.join("codex-shim")).find(is_program);
    let ourselves = std::env::current_exe().unwrap_or_default();
    let resolved = |file: &Path| file.canonicalize().ok();
    let Some(first) = first else {
        let found = format!("there is no `codex-shim` on PATH; this is {}", ourselves.display());
        return Check::note(NAME, found, "put its folder on PATH: commands that messages name begin with `codex-shim`");
    };
    if resolved(&first) == resolved(&ourselves) {
        return Check::ok(NAME, format!("`codex-shim` is {}, which is this program", first.display()));
    }
    told(&first, &ourselves, codex::run(Command::new(&first).arg("--version"), VERSION_WAIT_MAX))
}

/// The finding about another program of that name, from its `--version`.
fn told(first: &Path, ourselves: &Path, ran: Ran) -> Check {
    let (first, ourselves, version) = (first.display(), ourselves.display(), env!("CARGO_PKG_VERSION"));
    let remedy = format!("run {ourselves}, or put its folder first on PATH");
    let other = match ran {
        Ran::Well(printed) => match printed.strip_prefix("codex-shim ") {
            Some(theirs) if theirs == version => {
                return Check::ok(NAME, format!("`codex-shim` is {first}, another copy of this version"));
            }
            Some(theirs) => format!("says that it is codex-shim {theirs}: another version, or another project"),
            None => "is another program".to_owned(),
        },
        Ran::Badly(_) | Ran::TooSlow => "is another program".to_owned(),
    };
    Check::note(NAME, format!("`codex-shim` is {first}, which {other}; this is {version} at {ourselves}"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_program_of_the_name_is_told_apart() {
        let check = |ran| {
            let check = told(Path::new("/a/codex-shim"), Path::new("/b/codex-shim"), ran);
            (check.remedy.is_some(), check.found)
        };
        let version = env!("CARGO_PKG_VERSION");
        let here = format!("; this is {version} at /b/codex-shim");
        for (ran, expect) in [
            (
                Ran::Well(format!("codex-shim {version}")),
                "`codex-shim` is /a/codex-shim, another copy of this version".to_owned(),
            ),
            (
                Ran::Well("codex-shim 0.0.1".to_owned()),
                format!(
                    "`codex-shim` is /a/codex-shim, which says that it is codex-shim 0.0.1: another version, or another project{here}"
                ),
            ),
            (
                Ran::Well("Usage: start".to_owned()),
                format!("`codex-shim` is /a/codex-shim, which is another program{here}"),
            ),
            (Ran::Badly("no".to_owned()), format!("`codex-shim` is /a/codex-shim, which is another program{here}")),
            (Ran::TooSlow, format!("`codex-shim` is /a/codex-shim, which is another program{here}")),
        ] {
            let has_remedy = expect.ends_with(&here);
            assert_eq!(check(ran), (has_remedy, expect));
        }
    }
}
