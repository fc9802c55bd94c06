//! What the words of a command have programs read that they do not name: files of the folder in which a program starts, and its
//! standard input.
//!
//! A program may be the first word, one that another passes on (`timeout 5 make`), or one in a line for a shell. A line is taken
//! apart only as far as that: its words, its commands and its redirections. Nothing here runs anything.

use std::path::Path;

use super::interpreters::{self, Interpreter, More, row_named};
use super::server_environment::{ServerEnvironment, check_start_files};
use crate::engine::shell_line::{Part, Redirection, RedirectionKind, ShellCommand, commands, program_at};
use crate::engine::{passes_command_on, runs_project_files};
use crate::files::{Executable, InReach, Reach};

/// Most shells within shells. The files of deeper ones are not known.
const DEPTH_MAX: usize = 8;

const GIVE_PYTHON: &str = "give it -P or -I, or a script by its whole path";
const GIVE_NODE: &str = "name the files that it runs by their whole paths";
const GIVE_JAVA: &str = "give it -cp or -jar with whole paths";
const GIVE_SCRIPT: &str = "give it a script by its whole path";
const START_ELSEWHERE: &str = "start it in a folder in which no model works";

/// What a started program reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// Files of the folder in which it starts; the remedy.
    Folder(&'static str),
    /// Commands from its standard input.
    Stdin,
}

/// The standard input of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stdin {
    /// A file with its whole path, which counts like any other file in the words.
    Named,
    /// A file in the folder.
    InFolder,
    Unknown,
}

/// A program, and the arguments that it starts with.
#[derive(Debug, PartialEq, Eq)]
struct Started {
    words: Vec<String>,
    stdin: Stdin,
}

/// Checks what runs before the program of a command acts, and what its words have it read.
///
/// # Errors
///
/// A part of it is in reach, or is not known.
pub(super) fn check(
    reach: &Reach,
    program: &Executable,
    words: &[String],
    server: &ServerEnvironment,
    cwd: &Path,
) -> Result<(), InReach> {
    interpreters::check(reach, program, server, cwd)?;
    if interpreters::row_of(program).is_some() {
        interpreters::check_start(reach, program, program, server, cwd)?;
    }
    let mut all = Vec::new();
    // The program may have another name than its file.
    for first in [&program.spelled, &program.real] {
        let mut words = words.to_vec();
        words[0] = first.to_string_lossy().into_owned();
        add_started(Started { words, stdin: Stdin::Unknown }, 0, &mut all)?;
    }
    for started in &all {
        let name = name_of(started);
        match reads(started) {
            None => {}
            Some(Reads::Folder(remedy)) => {
                let what = format!("{name} reads files of the folder in which it starts ({remedy})");
                reach.check(cwd).map_err(|why| why.named(&what))?;
            }
            Some(Reads::Stdin) => {
                let why = format!("{name} takes its commands from its standard input; {GIVE_SCRIPT}");
                return Err(InReach::Unclear(why));
            }
        }
    }
    if interpreters::starts_login_shell(words) { check_start_files(reach, server) } else { Ok(()) }
}

fn name_of(started: &Started) -> &str {
    let first = started.words.first().map(String::as_str).unwrap_or_default();
    first.rsplit('/').next().unwrap_or_default()
}

/// Adds a program and all that its words start.
fn add_started(started: Started, depth: usize, all: &mut Vec<Started>) -> Result<(), InReach> {
    if depth > DEPTH_MAX {
        let why = format!("it starts more than {DEPTH_MAX} shells within shells; put the line into a script");
        return Err(InReach::Unclear(why));
    }
    let name = name_of(&started).to_owned();
    let arguments = &started.words[1..];
    if name == "eval" {
        add_line(&arguments.join(" "), depth, all)?;
    } else if let Some(shell) = row_named(&name).filter(|row| is_shell(row)) {
        if let Some(line) = line_for(shell, arguments) {
            add_line(line, depth, all)?;
        }
    } else if passes_command_on(&name) {
        // It is not known where the options of each end, so any word may be the program.
        for (at, word) in arguments.iter().enumerate() {
            let passed = Started { words: arguments[at..].to_vec(), stdin: started.stdin };
            if word.contains(char::is_whitespace) {
                add_line(word, depth, all)?;
            } else if !word.starts_with('-') && !passes_command_on(name_of(&passed)) {
                add_started(passed, depth + 1, all)?;
            }
        }
    }
    all.push(started);
    Ok(())
}

fn add_line(line: &str, depth: usize, all: &mut Vec<Started>) -> Result<(), InReach> {
    commands(line).iter().flat_map(started).try_for_each(|started| add_started(started, depth + 1, all))
}

fn reads(started: &Started) -> Option<Reads> {
    let (name, arguments) = (name_of(started), &started.words[1..]);
    if runs_project_files(name) {
        return Some(Reads::Folder(START_ELSEWHERE));
    }
    let row = row_named(name)?;
    if !has_code_or_script(row, arguments) {
        match started.stdin {
            Stdin::Named => {}
            Stdin::InFolder => return Some(Reads::Folder(GIVE_SCRIPT)),
            Stdin::Unknown => return Some(Reads::Stdin),
        }
    }
    match row.more {
        More::Python => python_loads(arguments).then_some(Reads::Folder(GIVE_PYTHON)),
        More::Node => node_loads(arguments).then_some(Reads::Folder(GIVE_NODE)),
        More::Java => java_loads(arguments).then_some(Reads::Folder(GIVE_JAVA)),
        More::Nothing | More::Shell | More::Zsh | More::Fish => None,
    }
}

fn is_shell(row: &Interpreter) -> bool {
    row.code == Some("c")
}

/// The line in the arguments of a shell.
fn line_for<'a>(shell: &Interpreter, arguments: &'a [String]) -> Option<&'a str> {
    let mut has_code = false;
    let mut arguments = arguments.iter();
    while let Some(word) = arguments.next() {
        let Some(letters) = word.strip_prefix(['-', '+']) else { return has_code.then_some(word) };
        if letters.starts_with('-') {
            continue;
        }
        has_code |= letters.contains('c');
        if letters.ends_with(letters_with_value(shell)) {
            arguments.next();
        }
    }
    None
}

/// Letters of options whose value follows, or is the rest of the word.
fn letters_with_value(row: &Interpreter) -> &'static [char] {
    match row.more {
        More::Shell | More::Zsh => &['o', 'O'],
        More::Python => &['W', 'X'],
        More::Nothing | More::Fish | More::Node | More::Java => &[],
    }
}

/// Options of node with a value in the next word.
const NODE_VALUES: [&str; 8] = [
    "-C",
    "--conditions",
    "--diagnostic-dir",
    "--disable-warning",
    "--env-file-if-exists",
    "--icu-data-dir",
    "--redirect-warnings",
    "--title",
];

/// Whether an interpreter has code or a script in its arguments, or needs none.
fn has_code_or_script(row: &Interpreter, arguments: &[String]) -> bool {
    const LONG: [&str; 8] = ["command", "eval", "execute", "expression", "file", "module", "print", "run"];
    const LONG_VALUES: [&str; 2] = ["--rcfile", "--init-file"];
    let Some(code) = row.code else { return true };
    let is_stdin = |word: &str| ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"].contains(&word);
    let mut arguments = arguments.iter();
    while let Some(word) = arguments.next() {
        if is_stdin(word) {
            return false;
        }
        let Some(letters) = word.strip_prefix(['-', '+']) else { return true };
        if letters == "-" {
            return arguments.next().is_some_and(|word| !is_stdin(word));
        }
        if let Some(long) = letters.strip_prefix('-') {
            if LONG.contains(&long.split('=').next().unwrap_or_default()) {
                return true;
            }
            if LONG_VALUES.contains(&&**word) || (row.more == More::Node && NODE_VALUES.contains(&&**word)) {
                arguments.next();
            }
            continue;
        }
        if row.more == More::Node && NODE_VALUES.contains(&&**word) {
            arguments.next();
            continue;
        }
        let values = letters_with_value(row);
        let end = letters.find(values).unwrap_or(letters.len());
        if letters[..end].contains(|letter: char| code.contains(letter)) {
            return true;
        }
        if is_shell(row) && letters[..end].contains('s') {
            return false;
        }
        if end + 1 == letters.len() {
            arguments.next();
        }
    }
    false
}

/// Whether python loads modules of its folder: it gets code or a module, or reads its script from stdin. Source: its manual (`-c`,
/// `-m`, `-I`, `-P`).
fn python_loads(arguments: &[String]) -> bool {
    let mut arguments = arguments.iter();
    while let Some(word) = arguments.next() {
        let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else { return word == "-" };
        if letters.starts_with('-') {
            continue;
        }
        for (at, letter) in letters.char_indices() {
            match letter {
                'I' | 'P' => return false,
                'c' | 'm' => return true,
                // The rest is its value, or the next word.
                'W' | 'X' => {
                    if at + 1 == letters.len() {
                        arguments.next();
                    }
                    break;
                }
                _ => {}
            }
        }
    }
    true
}

/// Whether node loads modules of its folder: `require` of code that is no file does.
fn node_loads(arguments: &[String]) -> bool {
    let mut arguments = arguments.iter();
    while let Some(word) = arguments.next() {
        if is_node_code(word) {
            return true;
        }
        if !word.starts_with('-') {
            return false;
        }
        if NODE_VALUES.contains(&&**word) {
            arguments.next();
        }
    }
    true
}

/// Whether an option gives node code, a module or a file of options.
fn is_node_code(word: &str) -> bool {
    const LONG: [&str; 11] = [
        "",
        "env-file",
        "eval",
        "experimental-default-config-file",
        "experimental-loader",
        "import",
        "input-type",
        "loader",
        "print",
        "require",
        "run",
    ];
    match word.strip_prefix("--") {
        Some(long) => LONG.contains(&long.split('=').next().unwrap_or_default()),
        None => word == "-" || word.strip_prefix('-').is_some_and(|letters| letters.contains(['e', 'p', 'r'])),
    }
}

/// Whether java looks for classes in its folder: its class path has a part of it, or is not given.
fn java_loads(arguments: &[String]) -> bool {
    const PATHS: [&str; 5] = ["-cp", "-classpath", "--class-path", "-p", "--module-path"];
    let is_whole = |path: &str| path.split(':').all(|entry| entry.starts_with('/'));
    let mut has_path = false;
    let mut arguments = arguments.iter();
    while let Some(word) = arguments.next() {
        if word == "-jar" {
            return !arguments.next().is_some_and(|jar| is_whole(jar));
        }
        let (option, value) = word.split_once('=').map_or((&**word, None), |(option, value)| (option, Some(value)));
        if PATHS.contains(&option) {
            if !value.or_else(|| arguments.next().map(String::as_str)).is_some_and(is_whole) {
                return true;
            }
            has_path = true;
        } else if !word.starts_with('-') {
            break;
        }
    }
    !has_path
}

/// The programs of a command in a line, and of the commands within it. A substitution may be anything, so what follows one may be a
/// program too.
fn started(command: &ShellCommand) -> Vec<Started> {
    let (mut all, mut words) = (Vec::new(), Vec::new());
    let has_inner = command.words.iter().any(|word| word.inner().next().is_some());
    let stdin = if has_inner { Stdin::Unknown } else { stdin_of(&command.redirections) };
    let end = |words: &mut Vec<String>, all: &mut Vec<Started>| {
        let mut words = std::mem::take(words);
        let words = program_at(&words).map(|at| words.split_off(at));
        all.extend(words.map(|words| Started { words, stdin }));
    };
    for part in command.words.iter().flat_map(|word| &word.parts) {
        match part {
            Part::Text(text) => words.push(text.clone()),
            Part::Inner(inner) => {
                end(&mut words, &mut all);
                all.extend(inner.iter().flat_map(started));
            }
        }
    }
    end(&mut words, &mut all);
    for Redirection { kind, target } in &command.redirections {
        all.extend(target.inner().flatten().flat_map(started));
        if *kind == RedirectionKind::HereDocument {
            all.extend(commands(&target.text()).iter().flat_map(started));
        }
    }
    all
}

/// The standard input of a command with these redirections.
fn stdin_of(redirections: &[Redirection]) -> Stdin {
    let read = redirections.iter().rfind(|one| one.kind != RedirectionKind::To);
    match read.map(|Redirection { kind, target }| (*kind, target.text())) {
        Some((RedirectionKind::From, file)) if file.starts_with(['/', '~', '$']) => Stdin::Named,
        Some((RedirectionKind::From, file)) if file.contains(char::is_alphanumeric) => Stdin::InFolder,
        Some(_) | None => Stdin::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The programs that words start, and their arguments.
    fn check(words: &[&str], expect: &[&str]) {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let mut all = Vec::new();
        add_started(Started { words, stdin: Stdin::Unknown }, 0, &mut all).expect("it is not deep");
        let found: Vec<String> = all.iter().map(|started| started.words.join(" ")).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn programs_in_lines_are_found() {
        check(&["make", "x"], &["make x"]);
        check(&["sh", "-c", "a; b 'c d' | e&&f"], &["a", "b c d", "e", "f", "sh -c a; b 'c d' | e&&f"]);
        check(&["sh", "-c", "echo \"$(a \"b c\") d\""], &["echo ", "a b c", " d", "sh -c echo \"$(a \"b c\") d\""]);
        check(
            &["sh", "-ec", "A=1 B= exec -a x y >/dev/null 2>&1 # z"],
            &["y", "sh -ec A=1 B= exec -a x y >/dev/null 2>&1 # z"],
        );
        check(&["sh", "x", "-c", "a"], &["sh x -c a"]);
        check(&["nice", "sh", "-c", "a"], &["a", "sh -c a", "a", "nice sh -c a"]);
        check(&["sh", "-c", "command -v a"], &["sh -c command -v a"]);
    }

    #[test]
    fn shells_within_shells_are_bounded() {
        let mut line = "true".to_owned();
        for depth in 0..DEPTH_MAX + 2 {
            let words = vec!["sh".to_owned(), "-c".to_owned(), line.clone()];
            let added = add_started(Started { words, stdin: Stdin::Unknown }, 0, &mut Vec::new());
            assert_eq!(added.is_ok(), depth < DEPTH_MAX, "{depth}");
            line = shlex::try_join(["sh", "-c", &line]).expect("it has no NUL");
        }
    }
}
