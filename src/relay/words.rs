//! The files that the words of a command name.
//!
//! A word may be a path, an option with a path in it, or a line for a shell with several. Whatever could be a path counts: a word
//! that only looks like one is in no folder of a model, or hardly ever.

use std::path::{Path, PathBuf};

use crate::engine::runs_others;

/// Characters that end a path in an option or in a line for a shell.
const ENDS: [char; 16] = ['\'', '"', '`', '=', ';', '|', '&', '(', ')', '<', '>', ',', ':', '{', '}', '@'];

/// The paths in words, without links resolved; relative ones are in `cwd`.
pub(super) fn named_files(words: &[String], cwd: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    parts(words).iter().filter_map(|part| path_in(part, cwd, home)).collect()
}

fn parts(words: &[String]) -> Vec<String> {
    let of_word = |word: &String| {
        let word = word.replace("${HOME}", "$HOME");
        let parts = word.split(|char: char| char.is_whitespace() || ENDS.contains(&char));
        parts.filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    words.iter().flat_map(of_word).collect()
}

/// The files that the arguments of a program name. A bare word counts if the program takes the names of files to run.
pub(super) fn argument_files(program: &str, arguments: &[String], cwd: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut files = named_files(arguments, cwd, home);
    let name = program.rsplit('/').next().unwrap_or_default();
    if runs_others(name).is_some() {
        let bare = parts(arguments).into_iter().filter(|part| !part.starts_with('-') && !part.contains(['/', '$']));
        files.extend(bare.map(|part| cwd.join(part)).filter(|file| file.is_file()));
    }
    files
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
        let check = |program: &str, arguments: &[&str], expect: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
            let found = argument_files(program, &arguments, Path::new("/cwd"), Some(Path::new("/home/me")));
            assert_eq!(found, expect.iter().map(PathBuf::from).collect::<Vec<_>>(), "{program} {arguments:?}");
        };
        check("python3", &["/ws/hook.py"], &["/ws/hook.py"]);
        check("python3", &["-u", "hooks/a.py"], &["/cwd/hooks/a.py"]);
        check("sh", &["-c", "jq . >> /ws/log; exec '/ws/it' --x=\"/ws/y\""], &["/ws/log", "/ws/it", "/ws/y"]);
        check(
            "sh",
            &["-c", "~/bin/a && $HOME/bin/b && ${HOME}/c"],
            &["/home/me/bin/a", "/home/me/bin/b", "/home/me/c"],
        );
        check("node", &["--require=./x.js", "-I/ws/inc"], &["/cwd/./x.js", "/ws/inc"]);
        check("ssh", &["host:/ws/x"], &["/ws/x"]);
        // The bare words of a notification are no files.
        check("notify-send", &["codex", "is waiting"], &[]);
    }

    #[test]
    fn bare_word_of_an_interpreter_is_a_file_if_it_exists() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("hook.py"), "").expect("a file");
        let words = ["hook.py".to_owned(), "other.py".to_owned()];
        let found = |program: &str| argument_files(program, &words, folder.path(), None);
        assert_eq!(found("/usr/bin/python3"), [folder.path().join("hook.py")]);
        assert!(found("notify-send").is_empty());
    }
}
