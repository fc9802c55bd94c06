//! The files that the words of a command name.
//!
//! A word may be a path, an option with a path in it, or a line for a shell with several. Whatever could be a path counts: a word
//! that only looks like one is in no folder of a model, or hardly ever. A relative argument, such as `application/json`, counts if
//! its first folder exists.

use std::path::{Path, PathBuf};

use crate::engine::runs_others;
use crate::files::is_missing;

/// Characters that end a path in an option or in a line for a shell.
const ENDS: [char; 16] = ['\'', '"', '`', '=', ';', '|', '&', '(', ')', '<', '>', ',', ':', '{', '}', '@'];

/// The paths in words, without links resolved; relative ones are in `cwd`.
pub(super) fn named_files(words: &[String], cwd: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    parts(words).iter().filter_map(|part| path_in(part, cwd, home)).collect()
}

/// The parts of words that may be paths, options or words of a line for a shell.
pub(super) fn parts(words: &[String]) -> Vec<String> {
    let of_word = |word: &String| {
        let word = word.replace("${HOME}", "$HOME");
        let parts = word.split(|char: char| char.is_whitespace() || ENDS.contains(&char));
        parts.filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    words.iter().flat_map(of_word).collect()
}

/// The files that the arguments of a program name. A bare word counts if the program takes the names of files to run.
pub(super) fn argument_files(program: &str, arguments: &[String], cwd: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let looks_only_so = |part: &str| {
        let folder = part.split_once('/').map(|(folder, _)| folder).filter(|folder| !folder.is_empty());
        let is_relative = !part.starts_with(['-', '~', '$']);
        is_relative
            && folder.is_some_and(|folder| cwd.join(folder).symlink_metadata().is_err_and(|error| is_missing(&error)))
    };
    let words = parts(arguments).into_iter().filter(|part| !looks_only_so(part));
    let mut files: Vec<PathBuf> = words.filter_map(|part| path_in(&part, cwd, home)).collect();
    let name = program.rsplit('/').next().unwrap_or_default();
    if runs_others(name).is_some() {
        let bare = parts(arguments).into_iter().filter(|part| !part.starts_with('-') && !part.contains(['/', '$']));
        let loads = |file: &PathBuf| if name.starts_with("node") { is_script(file) } else { file.is_file() };
        files.extend(bare.map(|part| cwd.join(part)).filter(loads));
    }
    files
}

/// Whether there is a file of this name, or one that node loads for it. Source: node's `require`.
fn is_script(file: &Path) -> bool {
    let with = |ending: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let endings = ["", ".js", ".json", ".node", "/index.js", "/package.json"];
    endings.iter().any(|ending| with(ending).is_file())
}

fn path_in(part: &str, cwd: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let in_home = ["~/", "$HOME/"].iter().find_map(|start| part.strip_prefix(start));
    if let (Some(rest), Some(home)) = (in_home, home) {
        return Some(home.join(rest.trim_start_matches('/')));
    }
    let slash = part.find('/')?;
    Some(match part.starts_with('-') {
        // `-I/path`
        true => PathBuf::from(&part[slash..]),
        false => cwd.join(part),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_in_all_kinds_of_words() {
        let cwd = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(cwd.path().join("hooks")).expect("a folder");
        let check = |program: &str, arguments: &[&str], expect: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
            let found = argument_files(program, &arguments, cwd.path(), Some(Path::new("/home/me")));
            let expect: Vec<PathBuf> = expect.iter().map(|path| cwd.path().join(path)).collect();
            assert_eq!(found, expect, "{program} {arguments:?}");
        };
        check("python3", &["/ws/hook.py"], &["/ws/hook.py"]);
        check("python3", &["-u", "hooks/a.py"], &["hooks/a.py"]);
        check("sh", &["-c", "jq . >> /ws/log; exec '/ws/it' --x=\"/ws/y\""], &["/ws/log", "/ws/it", "/ws/y"]);
        check(
            "sh",
            &["-c", "~/bin/a && $HOME/bin/b && ${HOME}/c"],
            &["/home/me/bin/a", "/home/me/bin/b", "/home/me/c"],
        );
        check("node", &["--require=./x.js", "-I/ws/inc"], &["./x.js", "/ws/inc"]);
        check("ssh", &["host:/ws/x"], &["/ws/x"]);
        // Words of a notification are not files.
        check("notify-send", &["codex", "is waiting", "accept/decline"], &[]);
        check("curl", &["-H", "Content-Type: application/json", "ntfy.sh/topic"], &[]);
        check("sh", &["-c", "sed s/a/b/"], &[]);
    }

    #[test]
    fn bare_word_of_an_interpreter_is_a_file_if_it_exists() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("hook.py"), "").expect("a file");
        std::fs::write(folder.path().join("hook.js"), "").expect("a file");
        let words = ["hook.py".to_owned(), "other.py".to_owned()];
        let found = |program: &str| argument_files(program, &words, folder.path(), None);
        assert_eq!(found("/usr/bin/python3"), [folder.path().join("hook.py")]);
        assert!(found("notify-send").is_empty());
        let found = argument_files("node", &["hook".to_owned()], folder.path(), None);
        assert_eq!(found, [folder.path().join("hook")]);
    }
}
