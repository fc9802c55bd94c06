//! Checks the hooks in the startup files of shells, and the program that each names.

use std::path::{Path, PathBuf};

use super::Check;
use crate::config::Environment;
use crate::files;

const NAME: &str = "shell hooks";

/// Checks the startup files.
pub(super) fn check(environment: &Environment) -> Check {
    let folder = |variable: &str| environment.get(variable).map(PathBuf::from);
    let home = folder("HOME").unwrap_or_default();
    let config = folder("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
    let zsh = folder("ZDOTDIR").unwrap_or_else(|| home.clone());
    let files = [home.join(".bashrc"), home.join(".bash_profile"), zsh.join(".zshrc"), config.join("fish/config.fish")];
    let mut hooked = Vec::new();
    for file in files {
        let Some(program) = files::read_named(&file).ok().and_then(|text| program_of(&text)) else { continue };
        if !is_there(&program, environment) {
            let found = format!("{} runs `{program} hook`, but {program} does not exist", file.display());
            return Check::broken(NAME, found, "correct that line; `codex-shim hook --help` shows it for each shell");
        }
        hooked.push(file.display().to_string());
    }
    match hooked.is_empty() {
        false => Check::ok(NAME, format!("in {}", hooked.join(", "))),
        true => Check::note(
            NAME,
            "no hook: the model sees only commands that are pushed",
            "`eval \"$(codex-shim hook bash)\"` in ~/.bashrc, if the model should see what you run",
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

#[cfg(test)]
mod tests {
    use super::*;

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
