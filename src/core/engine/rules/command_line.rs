//! Takes a shell line apart, if it means the same in every shell: one simple command of plain words.
//!
//! A parser tells what one shell does with a line. A rule needs more: the line must have the same meaning in bash, dash, ksh
//! and zsh, whatever their options and versions. So a line is compared with a short list of characters that no shell
//! interprets, and only then `shlex` splits it. Each word is either plain or in one pair of quotes. Everything else (expansions,
//! redirections, several commands, globs, comments, escapes, quotes within a word) is unclear, and no rule accepts it.
//!
//! Never runs anything, and knows no file.

use std::fmt;

/// Longest line that is taken apart, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 8 << 10;

/// Most words of a command.
pub(super) const WORDS_MAX: usize = 256;

/// Folders of the shells of the system.
const SHELL_FOLDERS: [&str; 3] = ["/bin", "/usr/bin", "/usr/local/bin"];

/// Shells that agree on plain words and on quotes. fish does not: its functions take the place of programs.
const SHELLS: [&str; 5] = ["bash", "sh", "dash", "ksh", "zsh"];

/// Why a line does not tell which command it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unclear {
    NotGiven,
    TooLong,
    /// Its words are not quoted as codex quotes them.
    Quoting,
    /// A program with the name of a shell that is not a shell of the system, or has other arguments than `-c` or `-lc` and a
    /// script.
    Shell,
    Empty,
    /// A character that a shell may interpret.
    Character(char),
    /// A quote within a word, or one that is not closed.
    Quote,
    /// The first word is quoted, or is not a plain name or path.
    FirstWord,
    /// An unquoted word begins with `=`, which zsh expands.
    Equals,
}

impl fmt::Display for Unclear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unclear::NotGiven => f.write_str("the request does not say which command it is"),
            Unclear::TooLong => write!(f, "the line has more than {LINE_BYTES_MAX} bytes or {WORDS_MAX} words"),
            Unclear::Quoting => f.write_str("the words of the line are not quoted in the usual way"),
            Unclear::Shell => f.write_str(
                "the shell is not bash, sh, dash, ksh or zsh in /bin, /usr/bin or /usr/local/bin with `-c` or `-lc` alone",
            ),
            Unclear::Empty => f.write_str("the line is empty"),
            Unclear::Character(char) => write!(f, "a shell may interpret {char:?} outside of quotes, or in these quotes"),
            Unclear::Quote => f.write_str("a quoted part is not a whole word"),
            Unclear::FirstWord => f.write_str("the first word is not a plain name or path"),
            Unclear::Equals => f.write_str("a word begins with `=`"),
        }
    }
}

/// A command that is known to the last word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainCommand {
    pub argv: Vec<String>,
    /// The shell that runs it, if one does.
    pub shell: Option<String>,
}

/// Takes a line of codex apart: `/bin/bash -lc 'git status'`, or a command without a shell.
pub(super) fn plain_command(line: &str) -> Result<PlainCommand, Unclear> {
    if line.len() > LINE_BYTES_MAX {
        return Err(Unclear::TooLong);
    }
    let words = shlex::split(line).ok_or(Unclear::Quoting)?;
    let joined = shlex::try_join(words.iter().map(String::as_str)).map_err(|_| Unclear::Quoting)?;
    match run_by_shell(&words)? {
        // Quoting makes one line of each list of words, so only one list of words gives this line.
        Some((shell, script)) if joined == line => {
            Ok(PlainCommand { argv: simple_command(script)?, shell: Some(shell.to_owned()) })
        }
        Some(_) => Err(Unclear::Quoting),
        None => Ok(PlainCommand { argv: simple_command(line)?, shell: None }),
    }
}

/// The same for a command that comes as its words.
pub(super) fn plain_words(words: &[String]) -> Result<PlainCommand, Unclear> {
    let bytes: usize = words.iter().map(String::len).sum();
    if bytes > LINE_BYTES_MAX || words.len() > WORDS_MAX {
        return Err(Unclear::TooLong);
    }
    match run_by_shell(words)? {
        Some((shell, script)) => Ok(PlainCommand { argv: simple_command(script)?, shell: Some(shell.to_owned()) }),
        None if words.is_empty() => Err(Unclear::Empty),
        None => Ok(PlainCommand { argv: words.to_vec(), shell: None }),
    }
}

/// The shell of the system and its script; `None` if the first word is not the name of a shell.
fn run_by_shell(words: &[String]) -> Result<Option<(&str, &str)>, Unclear> {
    let Some(program) = words.first() else { return Ok(None) };
    let name = program.rsplit('/').next().unwrap_or_default();
    if !SHELLS.contains(&name) {
        return Ok(None);
    }
    match words {
        [shell, flag, script] if is_shell_of_system(shell) && (flag == "-c" || flag == "-lc") => {
            Ok(Some((shell, script)))
        }
        _ => Err(Unclear::Shell),
    }
}

/// Whether a path is that of a shell of the system.
pub(super) fn is_shell_of_system(path: &str) -> bool {
    path.rsplit_once('/').is_some_and(|(folder, name)| SHELLS.contains(&name) && SHELL_FOLDERS.contains(&folder))
}

/// The words of a line that every shell takes for one simple command of exactly these words.
pub(super) fn simple_command(script: &str) -> Result<Vec<String>, Unclear> {
    if script.len() > LINE_BYTES_MAX {
        return Err(Unclear::TooLong);
    }
    check_characters(script)?;
    let argv = shlex::split(script).ok_or(Unclear::Quote)?;
    if argv.len() > WORDS_MAX {
        return Err(Unclear::TooLong);
    }
    let first = argv.first().ok_or(Unclear::Empty)?;
    // A quoted first word is not an alias or a reserved word for some shells, but is for others.
    if !is_plain_program(first) || !script.trim_start_matches(' ').starts_with(first.as_str()) {
        return Err(Unclear::FirstWord);
    }
    let requoted = shlex::try_join(argv.iter().map(String::as_str)).map_err(|_| Unclear::Quote)?;
    if shlex::split(&requoted).as_ref() != Some(&argv) {
        return Err(Unclear::Quoting);
    }
    Ok(argv)
}

/// The place of a character in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Gap,
    Plain,
    Single,
    Double,
    /// After a closing quote.
    Quoted,
}

fn check_characters(script: &str) -> Result<(), Unclear> {
    let mut at = At::Gap;
    for char in script.chars() {
        at = match (at, char) {
            (At::Single, '\'') | (At::Double, '"') => At::Quoted,
            (At::Single, ' '..='~') => At::Single,
            (At::Double, '$' | '`' | '\\' | '!') => return Err(Unclear::Character(char)),
            (At::Double, ' '..='~') => At::Double,
            (At::Gap | At::Plain | At::Quoted, ' ') => At::Gap,
            (At::Gap, '\'') => At::Single,
            (At::Gap, '"') => At::Double,
            (At::Plain | At::Quoted, '\'' | '"') => return Err(Unclear::Quote),
            (At::Gap, '=') => return Err(Unclear::Equals),
            (At::Gap | At::Plain, char) if is_plain(char) => At::Plain,
            (At::Quoted, char) if is_plain(char) => return Err(Unclear::Quote),
            (At::Gap | At::Plain | At::Single | At::Double | At::Quoted, char) => return Err(Unclear::Character(char)),
        };
    }
    match at {
        At::Gap | At::Plain | At::Quoted => Ok(()),
        At::Single | At::Double => Err(Unclear::Quote),
    }
}

/// Whether no shell interprets the character in a word that is not quoted.
fn is_plain(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.' | '/' | ':' | '@' | '%' | '+' | ',' | '=')
}

/// A name or a path without anything that a shell looks at in a first word: `=` assigns, `:` and `.` are commands.
pub(super) fn is_plain_program(word: &str) -> bool {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.' | '/' | '+');
    let begins_well = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '/');
    word.chars().next().is_some_and(begins_well) && word.chars().all(is_plain)
}

/// The words of a command to decline or hold, as far as they can be read: of a line with several commands, those of the first
/// begin it.
pub(super) fn rough_words(words: Vec<String>) -> Option<Vec<String>> {
    let is_shell = |program: &str| {
        let name = program.rsplit('/').next().unwrap_or_default();
        SHELLS.contains(&name) || name == "fish"
    };
    match &words[..] {
        [shell, flag, script] if is_shell(shell) && matches!(flag.as_str(), "-c" | "-lc" | "-ic" | "-lic") => {
            shlex::split(script).filter(|words| !words.is_empty())
        }
        [] => None,
        [..] => Some(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(script: &str, expect: Result<&[&str], Unclear>) {
        let expect = expect.map(|words| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(simple_command(script), expect, "{script:?}");
    }

    #[test]
    fn plain_and_quoted_words_are_taken_apart() {
        check("git status", Ok(&["git", "status"]));
        check("  git   log  --format=%h ", Ok(&["git", "log", "--format=%h"]));
        check("git commit -m 'it is $HOME; done'", Ok(&["git", "commit", "-m", "it is $HOME; done"]));
        check("git commit -m \"it's\" ''", Ok(&["git", "commit", "-m", "it's", ""]));
        check("/usr/bin/g++ a,b c:d x=y", Ok(&["/usr/bin/g++", "a,b", "c:d", "x=y"]));
    }

    #[test]
    fn everything_that_a_shell_interprets_is_unclear() {
        for char in "$`\\\"';|&<>()[]{}*?~#!^\n\t\r\0\u{1b}\u{a0}\u{2028}é".chars() {
            for script in
                [format!("git status{char}"), format!("git {char}x"), format!("git a{char}b"), format!("{char}git")]
            {
                assert!(simple_command(&script).is_err(), "{script:?}");
            }
        }
        for char in "$`\\!\n\t\0é".chars() {
            assert!(simple_command(&format!("git \"a{char}\"")).is_err(), "{char:?}");
        }
        for char in "\n\t\r\0\u{1b}é".chars() {
            assert!(simple_command(&format!("git 'a{char}'")).is_err(), "{char:?}");
        }
    }

    #[test]
    fn unclear_lines_say_why() {
        check("", Err(Unclear::Empty));
        check("   ", Err(Unclear::Empty));
        check("git status;", Err(Unclear::Character(';')));
        check("bash < x.sh", Err(Unclear::Character('<')));
        check("bash <<EOF", Err(Unclear::Character('<')));
        check("git a'b'", Err(Unclear::Quote));
        check("git 'a''b'", Err(Unclear::Quote));
        check("git 'a'b", Err(Unclear::Quote));
        check("git 'a", Err(Unclear::Quote));
        check("git =ls", Err(Unclear::Equals));
        check("A=1 git status", Err(Unclear::FirstWord));
        check("'git' status", Err(Unclear::FirstWord));
        check("\"git\" status", Err(Unclear::FirstWord));
        check("'' status", Err(Unclear::FirstWord));
        check(". ./x", Err(Unclear::FirstWord));
        check(": x", Err(Unclear::FirstWord));
        check("- git", Err(Unclear::FirstWord));
        check("%1", Err(Unclear::FirstWord));
        check(&"x".repeat(LINE_BYTES_MAX + 1), Err(Unclear::TooLong));
        check(&"x ".repeat(WORDS_MAX + 1), Err(Unclear::TooLong));
    }

    fn check_line(line: &str, expect: Result<(&[&str], Option<&str>), Unclear>) {
        let expect = expect.map(|(argv, shell)| PlainCommand {
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            shell: shell.map(str::to_owned),
        });
        assert_eq!(plain_command(line), expect, "{line:?}");
    }

    #[test]
    fn only_shells_of_the_system_are_omitted() {
        check_line("/bin/bash -lc 'git status'", Ok((&["git", "status"], Some("/bin/bash"))));
        check_line("/usr/bin/zsh -c ls", Ok((&["ls"], Some("/usr/bin/zsh"))));
        check_line("/bin/bash -lc \"git commit -m 'a b'\"", Ok((&["git", "commit", "-m", "a b"], Some("/bin/bash"))));
        check_line("git status", Ok((&["git", "status"], None)));
        for line in [
            "bash -lc ls",
            "./bash -lc ls",
            "/tmp/bash -lc ls",
            "/bin/../tmp/bash -lc ls",
            "/bin/bash -ic ls",
            "/bin/bash -lic ls",
            "/bin/bash -l -c ls",
            "/bin/bash -lc ls name",
            "/bin/bash -xc ls",
            "/bin/bash --rcfile x -c ls",
            "/bin/bash script",
            "/bin/bash -s",
            "/bin/bash -",
            "/bin/bash",
        ] {
            check_line(line, Err(Unclear::Shell));
        }
    }

    #[test]
    fn line_must_be_quoted_as_codex_quotes_it() {
        for line in
            ["/bin/bash -lc ls ", "/bin/bash  -lc ls", "/bin/bash -lc 'ls'", "/bin/bash -lc \\ls", "'/bin/bash' -lc ls"]
        {
            check_line(line, Err(Unclear::Quoting));
        }
        check_line("/bin/bash -lc 'ls", Err(Unclear::Quoting));
        check_line("/bin/bash -lc ls # x", Err(Unclear::Quoting));
        check_line("/bin/bash -lc 'git status'; rm x", Err(Unclear::Shell));
        check_line("git status # x", Err(Unclear::Character('#')));
    }

    #[test]
    fn words_without_a_shell_need_no_quoting() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let plain = plain_words(&words(&["git", "log", "a b;$x"])).expect("it is clear");
        assert_eq!(plain, PlainCommand { argv: words(&["git", "log", "a b;$x"]), shell: None });
        let by_shell = plain_words(&words(&["/bin/sh", "-c", "git status"])).expect("it is clear");
        assert_eq!(by_shell, PlainCommand { argv: words(&["git", "status"]), shell: Some("/bin/sh".to_owned()) });
        assert_eq!(plain_words(&words(&["/bin/sh", "-c", "git status; x"])), Err(Unclear::Character(';')));
        assert_eq!(plain_words(&words(&["/bin/sh", "x"])), Err(Unclear::Shell));
        assert_eq!(plain_words(&[]), Err(Unclear::Empty));
    }
}
