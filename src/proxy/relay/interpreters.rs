//! What a program reads before it acts: the interpreter of a script, and the files that the interpreter and the loader run first.
//!
//! One table lists the interpreters. A variable that names files is followed to them; the variable itself is the user's. An
//! interpreter that the table does not have counts as one that reads something in reach. [`super::invocation`] tells what the
//! words of a command have it read beyond that. Nothing here runs anything.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::first_line::{self, FirstLine};
use super::server_environment::{ServerEnvironment, check_start_files};
use super::words::{named_files, parts};
use crate::engine::runs_others;
use crate::files::{self, Executable, InReach, Reach, is_missing};

pub(super) const NO_HOME: &str = "the server has no variable HOME; set it";

/// Most interpreters of one program: an interpreter may be a script too. Source: `exec(2)`.
const INTERPRETERS_MAX: usize = 4;

/// Bytes of a list of further module folders that are read.
const LIST_BYTES_MAX: u64 = 64 << 10;

/// Entries of a folder of start-up files that are looked at.
const ENTRIES_MAX: usize = 1_024;

/// Variables with which the loader puts other code into any program. Source: `ld.so(8)`, `dyld(1)`.
const LOADER: [&str; 5] = ["LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "DYLD_LIBRARY_PATH"];

const LEAVE_OUT: &str = "leave it out, or set it in the script";

const USE_ANOTHER: &str = "use a shell, python3, perl, ruby or node";

/// Lists of libraries, where a name without `/` is not a file of the folder. Source: `ld.so(8)`.
const BARE_NAMES: [&str; 2] = ["LD_PRELOAD", "LD_AUDIT"];

/// Lists with blanks between their paths.
const BLANKS_BETWEEN: [&str; 3] = ["LD_PRELOAD", "MAKEFILES", "TCLLIBPATH"];

/// An interpreter, and what it reads before its script.
#[derive(Debug, Default)]
pub(super) struct Interpreter {
    /// Its names without the digits at their end.
    names: &'static [&'static str],
    /// Variables with a file or a list of folders.
    lists: &'static [&'static str],
    /// Variables with options, which may name files.
    options: &'static [&'static str],
    /// Files and folders in `HOME`.
    home: &'static [&'static str],
    /// A file that it reads in the folder of the command.
    cwd: Option<&'static str>,
    /// Letters of its options that give it code or a module. Without one of them and without a script, it takes its commands from
    /// its standard input; `None` if it never does.
    pub(super) code: Option<&'static str>,
    pub(super) more: More,
}

/// What a row of the table cannot say.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum More {
    #[default]
    Nothing,
    /// A shell, which may be told to read the files of a login.
    Shell,
    /// zsh reads a file of `ZDOTDIR` in any case.
    Zsh,
    /// Files in a folder of settings.
    Fish,
    /// The modules of the user and of the installation, and the lists of further folders in them.
    Python,
    /// The nearest `package.json` says how a script is read.
    Node,
    /// Classes, in the folder in which it starts unless it is told where.
    Java,
}

const fn of(names: &'static [&'static str]) -> Interpreter {
    Interpreter { names, lists: &[], options: &[], home: &[], cwd: None, code: None, more: More::Nothing }
}

/// Source: the manual of each.
const INTERPRETERS: &[Interpreter] = &[
    Interpreter { code: Some("c"), more: More::Shell, ..of(&["sh", "dash", "ash", "busybox", "yash"]) },
    Interpreter { lists: &["BASH_ENV"], code: Some("c"), more: More::Shell, ..of(&["bash", "rbash"]) },
    Interpreter {
        lists: &["ENV"],
        code: Some("c"),
        more: More::Shell,
        ..of(&["ksh", "rksh", "mksh", "lksh", "oksh", "pdksh"])
    },
    Interpreter { code: Some("c"), more: More::Zsh, ..of(&["zsh", "rzsh"]) },
    Interpreter { home: &[".cshrc", ".tcshrc", ".login"], code: Some("c"), ..of(&["csh", "tcsh", "bsd-csh"]) },
    Interpreter { home: &[".local/share/fish"], code: Some("c"), more: More::Fish, ..of(&["fish"]) },
    Interpreter {
        lists: &["PYTHONPATH", "PYTHONHOME"],
        code: Some("cm"),
        more: More::Python,
        ..of(&["python", "pypy", "python3-dbg"])
    },
    Interpreter {
        lists: &["PERL5LIB", "PERLLIB"],
        options: &["PERL5OPT", "PERL5DB"],
        code: Some("eE"),
        ..of(&["perl"])
    },
    Interpreter {
        lists: &["RUBYLIB", "GEM_HOME", "GEM_PATH", "BUNDLE_GEMFILE"],
        options: &["RUBYOPT"],
        home: &[".gem", ".local/share/gem"],
        code: Some("e"),
        ..of(&["ruby"])
    },
    Interpreter {
        lists: &["NODE_PATH"],
        options: &["NODE_OPTIONS"],
        home: &[".node_modules", ".node_libraries"],
        code: Some("ep"),
        more: More::Node,
        ..of(&["node", "nodejs"])
    },
    Interpreter { lists: &["PHPRC", "PHP_INI_SCAN_DIR"], code: Some("rRBEFfS"), ..of(&["php"]) },
    Interpreter {
        options: &["LUA_INIT"],
        lists: &["LUA_PATH", "LUA_CPATH"],
        cwd: Some("?.lua"),
        code: Some("e"),
        ..of(&["lua", "luajit"])
    },
    Interpreter {
        lists: &["TCLLIBPATH", "TCL_LIBRARY"],
        home: &[".expect.rc"],
        code: Some("cf"),
        ..of(&["tclsh", "wish", "expect"])
    },
    Interpreter { lists: &["AWKPATH", "AWKLIBPATH"], ..of(&["awk", "gawk", "mawk", "nawk", "original-awk"]) },
    Interpreter { code: Some("ef"), ..of(&["dc"]) },
    of(&["sed", "cat", "bc", "jq"]),
    Interpreter {
        lists: &["MAKEFILES"],
        options: &["MAKEFLAGS", "GNUMAKEFLAGS"],
        cwd: Some("Makefile"),
        ..of(&["make", "gmake"])
    },
    Interpreter {
        lists: &["GUILE_LOAD_PATH", "GUILE_LOAD_COMPILED_PATH"],
        home: &[".cache/guile"],
        code: Some("cels"),
        ..of(&["guile"])
    },
    Interpreter { cwd: Some(".Rprofile"), code: Some("ef"), ..of(&["rscript", "r", "littler"]) },
    Interpreter {
        lists: &["JULIA_LOAD_PATH", "JULIA_DEPOT_PATH"],
        home: &[".julia"],
        code: Some("eE"),
        ..of(&["julia"])
    },
    Interpreter {
        lists: &["CLASSPATH"],
        options: &["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"],
        more: More::Java,
        ..of(&["java"])
    },
    Interpreter { cwd: Some("deno.json"), ..of(&["deno"]) },
    Interpreter { cwd: Some("bunfig.toml"), ..of(&["bun"]) },
    Interpreter { cwd: Some("tsconfig.json"), code: Some("ep"), ..of(&["ts-node", "tsx"]) },
    Interpreter { cwd: Some(".ocamlinit"), code: Some("e"), ..of(&["ocaml"]) },
];

/// All variables that the checks look at.
pub(super) fn variables() -> impl Iterator<Item = &'static str> {
    let of_table = INTERPRETERS.iter().flat_map(|of| of.lists.iter().chain(of.options).copied());
    LOADER.into_iter().chain(["PYTHONUSERBASE", "XDG_CONFIG_HOME"]).chain(of_table)
}

/// Checks what runs before a program acts. `cwd` is the folder that it runs in.
///
/// # Errors
///
/// A part of it is in reach, or is not known.
pub(super) fn check(
    reach: &Reach,
    program: &Executable,
    server: &ServerEnvironment,
    cwd: &Path,
) -> Result<(), InReach> {
    for name in LOADER {
        check_list(reach, server, name, cwd)?;
    }
    let mut at = program.clone();
    for step in 0..INTERPRETERS_MAX {
        let first_line = first_line::of(&at.real)?;
        if step > 0 {
            check_start(reach, &at, program, server, cwd)?;
        }
        let Some(line) = first_line else { return Ok(()) };
        let Some(interpreter) = started_by(reach, &at.real, &line, server, cwd)? else { return Ok(()) };
        at = interpreter;
    }
    let why = format!("{} has too many interpreters; name the last one in its first line", program.real.display());
    Err(InReach::Unclear(why))
}

/// The interpreter that a script's first line starts, with its options checked; `None` if there is none, so that nothing starts.
fn started_by(
    reach: &Reach,
    script: &Path,
    line: &FirstLine,
    server: &ServerEnvironment,
    cwd: &Path,
) -> Result<Option<Executable>, InReach> {
    let named = |why: InReach| why.named(&format!("the first line of {}", script.display()));
    let absent = |name: &str| {
        let why = format!("the interpreter of {}, {name}, does not exist", script.display());
        if reach.counts_users() { Err(InReach::Unclear(why)) } else { Ok(None) }
    };
    if reach.executable(Path::new(&line.interpreter))?.is_none() {
        return absent(&line.interpreter);
    }
    let words = line.words().map_err(|why| named(InReach::Unclear(why)))?;
    let Some((name, options)) = words.split_first() else { return Ok(None) };
    let found = match name.contains('/') {
        true => reach.executable(Path::new(name))?,
        false => reach.on_path(name, server.path())?,
    };
    let Some(found) = found else { return absent(name) };
    if starts_login_shell(&words) {
        check_start_files(reach, server).map_err(named)?;
    }
    named_files(options, cwd, server.home()).iter().try_for_each(|file| reach.check(file))?;
    if let Some(other) = options.iter().find(|word| !is_plain_option(word)) {
        let why = format!("gives `{other}` to {name}, which may make it read other files; {LEAVE_OUT}");
        return Err(named(InReach::Unclear(why)));
    }
    Ok(Some(found))
}

/// Whether a word of a first line is an option with which no interpreter reads other files before its script: letters that stand
/// alone, none of which takes a file, a module or code in any interpreter of the table, and some long ones.
fn is_plain_option(word: &str) -> bool {
    const LETTERS: &str = "aBbdEefhiklnOpqstTuUvwWxX";
    const LONG: [&str; 17] = [
        "",
        "no-warnings",
        "no-deprecation",
        "enable-source-maps",
        "experimental-strip-types",
        "experimental-vm-modules",
        "trace-warnings",
        "trace-deprecation",
        "trace-uncaught",
        "disable-warning",
        "max-old-space-size",
        "max-semi-space-size",
        "stack-size",
        "login",
        "posix",
        "noprofile",
        "norc",
    ];
    if let Some(long) = word.strip_prefix("--") {
        return LONG.contains(&long.split('=').next().unwrap_or_default());
    }
    // Python's `-I` stands alone; to others it is a folder that follows.
    word == "-I" || word.strip_prefix('-').is_some_and(|letters| letters.chars().all(|char| LETTERS.contains(char)))
}

/// Whether words, or a line for a shell in them, start a shell that reads the files of a login or of a terminal.
pub(super) fn starts_login_shell(words: &[String]) -> bool {
    let words = parts(words);
    let is_shell = |word: &str| {
        let name = word.rsplit('/').next().unwrap_or_default();
        row_named(name).is_some_and(|row| matches!(row.more, More::Shell | More::Zsh))
    };
    (0..words.len()).any(|at| is_shell(&words[at]) && has_login_option(&words[at + 1..]))
}

/// Whether the options at the beginning of a shell's arguments ask for the files of a login or of a terminal.
fn has_login_option(arguments: &[String]) -> bool {
    let mut is_value = false;
    for word in arguments {
        let is_option = word.starts_with(['-', '+']);
        if !is_option && !is_value {
            return false;
        }
        let name = word.trim_start_matches(['-', '+']);
        let is_cluster = word.starts_with('-') && !word.starts_with("--") && name.contains(['l', 'i']);
        if is_cluster || ["login", "interactive", "rcfile", "init-file"].contains(&name) {
            return true;
        }
        is_value = is_option && !word.starts_with("--") && name.ends_with(['o', 'O']);
    }
    false
}

pub(super) fn row_of(program: &Executable) -> Option<&'static Interpreter> {
    // `python3` may be a link to `python3.12`, and `sh` to `busybox`.
    [&program.real, &program.spelled]
        .into_iter()
        .find_map(|path| row_named(&path.file_name().unwrap_or_default().to_string_lossy()))
}

pub(super) fn row_named(name: &str) -> Option<&'static Interpreter> {
    let name = name.to_ascii_lowercase();
    let unnumbered = name.trim_end_matches(|char: char| char.is_ascii_digit() || matches!(char, '.' | '-' | '_'));
    let row = |name: &str| INTERPRETERS.iter().find(|row| row.names.contains(&name));
    row(&name).or_else(|| row(unnumbered))
}

/// What an interpreter reads before the script.
pub(super) fn check_start(
    reach: &Reach,
    interpreter: &Executable,
    script: &Executable,
    server: &ServerEnvironment,
    cwd: &Path,
) -> Result<(), InReach> {
    let Some(row) = row_of(interpreter) else {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let runs_others = [&interpreter.spelled, &interpreter.real].iter().find_map(|path| runs_others(&name(path)));
        if let Some(what) = runs_others {
            return Err(InReach::Unclear(format!("{} {what}; {USE_ANOTHER}", interpreter.spelled.display())));
        }
        // A script as interpreter has one of its own, which is checked next.
        if first_line::of(&interpreter.real)?.is_some() {
            return Ok(());
        }
        let why = format!("it is not known what {} reads when it starts; {USE_ANOTHER}", interpreter.real.display());
        return Err(InReach::Unclear(why));
    };
    row.lists.iter().try_for_each(|name| check_list(reach, server, name, cwd))?;
    for name in row.options {
        let Some(value) = server.variable(name) else { continue };
        let words: Vec<String> = value.to_string_lossy().split_whitespace().map(str::to_owned).collect();
        named_files(&words, cwd, server.home()).iter().try_for_each(|file| reach.check(file))?;
    }
    // A class that is not a script may be looked for elsewhere.
    let classes = Some("?.class").filter(|_| row.more == More::Java && interpreter != script);
    if let Some(file) = row.cwd.or(classes) {
        let why = |why: InReach| why.named(&format!("{} reads {file} in its folder", interpreter.real.display()));
        reach.check(&cwd.join(file)).map_err(why)?;
    }
    let needs_home = !row.home.is_empty() || matches!(row.more, More::Zsh | More::Fish | More::Python);
    let home = match server.home() {
        Some(home) => home,
        None if needs_home => return Err(InReach::Unclear(NO_HOME.to_owned())),
        None => Path::new("/"),
    };
    row.home.iter().try_for_each(|file| check_with_entries(reach, &home.join(file)))?;
    match row.more {
        More::Nothing | More::Shell | More::Java => Ok(()),
        More::Zsh => reach.check(&server.zdotdir().unwrap_or(home).join(".zshenv")),
        More::Fish => {
            let config = server.variable("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
            [config.join("fish"), config.join("fish/conf.d")]
                .iter()
                .try_for_each(|file| check_with_entries(reach, file))
        }
        More::Python => check_python(reach, interpreter, server, (home, cwd)),
        More::Node => {
            // The nearest one counts, so a missing one counts too.
            let folders = script.real.ancestors().skip(1).map(|folder| folder.join("package.json"));
            let nearest =
                folders.clone().position(|file| file.symlink_metadata().is_ok()).map_or(usize::MAX, |at| at + 1);
            folders.take(nearest).try_for_each(|file| reach.check_installed(&file))
        }
    }
}

/// Each file or folder that a variable lists.
fn check_list(reach: &Reach, server: &ServerEnvironment, name: &str, cwd: &Path) -> Result<(), InReach> {
    let entries = entries_of(server, name);
    if entries.iter().any(|entry| entry.contains(&b'$')) {
        let why = format!("the variable {name} is not a plain list of paths; write them out, without `$`");
        return Err(InReach::Unclear(why));
    }
    for entry in entries {
        let in_variable = |why: InReach| {
            let entry = String::from_utf8_lossy(entry);
            why.named(&match &*entry {
                "" => format!("the variable {name} has an empty entry, which means {STARTS_IN}; remove the extra `:`"),
                entry if entry.starts_with('/') => format!("the variable {name}"),
                entry => format!("the variable {name} has `{entry}`, which is in {STARTS_IN}; write its whole path"),
            })
        };
        reach.check(&cwd.join(OsStr::from_bytes(entry))).map_err(in_variable)?;
    }
    Ok(())
}

const STARTS_IN: &str = "the folder in which the program starts";

/// The files and folders that a variable lists.
fn entries_of<'a>(server: &'a ServerEnvironment, name: &str) -> Vec<&'a [u8]> {
    let is_blank_between = BLANKS_BETWEEN.contains(&name);
    let is_end = |byte: &u8| matches!(byte, b':' | b';') || (*byte == b' ' && is_blank_between);
    let entries = server.variable(name).map(|value| value.as_bytes().split(is_end)).into_iter().flatten();
    // A pattern of Lua: the folder before its mark.
    let entries = entries.map(|entry| entry.split(|byte| *byte == b'?').next().unwrap_or_default());
    // The loader looks for a bare name in the folders of the system and of LD_LIBRARY_PATH.
    let is_file = |entry: &&[u8]| !BARE_NAMES.contains(&name) || entry.contains(&b'/');
    entries.filter(is_file).filter(|entry| !is_blank_between || !entry.is_empty()).collect()
}

/// A file, or a folder with what is in it.
pub(super) fn check_with_entries(reach: &Reach, path: &Path) -> Result<(), InReach> {
    reach.check_installed(path)?;
    check_each(path, entries(path)?, |entry| reach.check_installed(entry))
}

/// The entries of a folder, or none if there is no such folder.
fn entries(folder: &Path) -> Result<impl Iterator<Item = Result<PathBuf, InReach>> + use<>, InReach> {
    let folder = folder.to_owned();
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => Some(entries),
        Err(error) if is_missing(&error) => None,
        Err(error) => return Err(InReach::unseen(&folder, &error)),
    };
    let path = move |entry: io::Result<fs::DirEntry>| {
        entry.map(|entry| entry.path()).map_err(|error| InReach::unseen(&folder, &error))
    };
    Ok(entries.into_iter().flatten().map(path))
}

/// Checks the entries of a folder. Those beyond the limit count as in reach.
fn check_each(
    folder: &Path,
    mut paths: impl Iterator<Item = Result<PathBuf, InReach>>,
    check: impl Fn(&Path) -> Result<(), InReach>,
) -> Result<(), InReach> {
    paths.by_ref().take(ENTRIES_MAX).try_for_each(|path| check(&path?))?;
    match paths.next() {
        None => Ok(()),
        Some(_) => Err(InReach::OfModel(format!("{} has more entries than are checked", folder.display()))),
    }
}

/// The modules that python loads by itself.
fn check_python(
    reach: &Reach,
    python: &Executable,
    server: &ServerEnvironment,
    (home, cwd): (&Path, &Path),
) -> Result<(), InReach> {
    let listed = |name: &str| entries_of(server, name).into_iter().map(|entry| cwd.join(OsStr::from_bytes(entry)));
    listed("PYTHONPATH").try_for_each(|folder| check_customizations(reach, &folder))?;
    let base = server.variable("PYTHONUSERBASE").map_or_else(|| home.join(".local"), PathBuf::from);
    // A virtual environment is told by the path before links.
    let prefixes = [&python.spelled, &python.real].map(|path| path.parent().and_then(Path::parent).map(Path::to_owned));
    for prefix in std::iter::once(base).chain(prefixes.into_iter().flatten()).chain(listed("PYTHONHOME")) {
        reach.check_installed(&prefix.join("pyvenv.cfg"))?;
        let lib = prefix.join("lib");
        reach.check_installed(&lib)?;
        let is_of_python =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("py"));
        let versions = entries(&lib)?.filter(|path| path.as_ref().map_or(true, is_of_python));
        check_each(&lib, versions, |version| {
            check_customizations(reach, version)?;
            let folders = ["site-packages", "dist-packages"];
            folders.iter().try_for_each(|folder| check_site(reach, &version.join(folder)))
        })?;
    }
    Ok(())
}

/// The modules that python loads at each start, from the first folder that has them.
fn check_customizations(reach: &Reach, folder: &Path) -> Result<(), InReach> {
    let names = ["sitecustomize.py", "usercustomize.py", "sitecustomize", "usercustomize"];
    names.iter().try_for_each(|name| reach.check_installed(&folder.join(name)))
}

/// A folder of modules, with the lists in it: each line of a `.pth` is a further folder, or code.
fn check_site(reach: &Reach, folder: &Path) -> Result<(), InReach> {
    check_customizations(reach, folder)?;
    let is_list = |path: &PathBuf| path.extension() == Some(OsStr::new("pth"));
    let lists = entries(folder)?.filter(|path| path.as_ref().map_or(true, is_list));
    check_each(folder, lists, |list| check_pth(reach, list))
}

fn check_pth(reach: &Reach, path: &Path) -> Result<(), InReach> {
    reach.check_installed(path)?;
    let mut bytes = Vec::new();
    match files::open_named(path).and_then(|file| file.take(LIST_BYTES_MAX + 1).read_to_end(&mut bytes)) {
        Ok(_) => {}
        // A folder of this name is not read either.
        Err(error) if is_missing(&error) || path.is_dir() => return Ok(()),
        Err(error) => return Err(InReach::unseen(path, &error)),
    }
    if bytes.len() as u64 > LIST_BYTES_MAX {
        return Err(InReach::OfModel(format!("{} is longer than is checked", path.display())));
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let is_code =
        |line: &&[u8]| line.starts_with(b"#") || line.starts_with(b"import ") || line.starts_with(b"import\t");
    let lines = bytes.split(|byte| matches!(byte, b'\n' | b'\r')).map(<[u8]>::trim_ascii_end);
    for line in lines.filter(|line| !line.is_empty() && !is_code(line)) {
        let named = |why: InReach| why.named(&path.display().to_string());
        reach.check_installed(&folder.join(OsStr::from_bytes(line))).map_err(named)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_are_found_by_name() {
        let row = |real: &str, spelled: &str| {
            row_of(&Executable { spelled: spelled.into(), real: real.into() }).map(|row| row.names[0])
        };
        for (real, expect) in [
            ("/usr/bin/python3.12", Some("python")),
            ("/usr/bin/perl", Some("perl")),
            ("/opt/node", Some("node")),
            ("/usr/bin/ruby3.1", Some("ruby")),
            ("/bin/dash", Some("sh")),
            ("/usr/bin/lua5.4", Some("lua")),
            ("/opt/mytool", None),
        ] {
            assert_eq!(row(real, real), expect, "{real}");
        }
        assert_eq!(row("/etc/alternatives/x", "/usr/bin/awk"), Some("awk"));
    }

    /// What is not looked at counts as in reach.
    #[test]
    fn entries_beyond_the_limits_are_in_reach() {
        let lab = tempfile::tempdir().expect("a folder");
        let reach = Reach::new([lab.path().join("ws")], crate::files::Whose::Models);
        for (extension, count, expect) in
            [("sh", ENTRIES_MAX, true), ("sh", ENTRIES_MAX + 1, false), ("pth", ENTRIES_MAX + 1, false)]
        {
            let folder = tempfile::tempdir_in(lab.path()).expect("a folder");
            for number in 0..count {
                fs::write(folder.path().join(format!("{number}.{extension}")), "").expect("a file");
            }
            assert_eq!(check_with_entries(&reach, folder.path()).is_ok(), expect, "{count} {extension}");
            // Of a folder of modules, only the lists count.
            assert_eq!(check_site(&reach, folder.path()).is_ok(), extension != "pth", "{count} {extension}");
        }
        let folder = tempfile::tempdir_in(lab.path()).expect("a folder");
        for (length, expect) in [(LIST_BYTES_MAX, true), (LIST_BYTES_MAX + 1, false)] {
            fs::write(folder.path().join("a.pth"), "#".repeat(length as usize)).expect("a file");
            assert_eq!(check_site(&reach, folder.path()).is_ok(), expect, "{length}");
        }
    }

    #[test]
    fn table_has_each_name_once() {
        let mut names: Vec<&str> = INTERPRETERS.iter().flat_map(|row| row.names).copied().collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(variables().all(|name| !name.is_empty()));
    }
}
