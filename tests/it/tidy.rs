//! The structure of the code: imports run one way, pure rooms stay pure, sizes are limited, and no file is unused.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

/// The packages below `src`, in import order: the folder of each holds some rooms.
const PACKAGES: [&str; 4] = ["core", "proxy", "access", "tools"];

/// A row of the table of rooms in `src/lib.rs`.
struct Room {
    package: String,
    name: String,
    /// The parts that have access to files, clock, environment or processes; `None` if any part may.
    impure: Option<Vec<PathBuf>>,
}

/// The rooms in import order: each may import only the ones before it.
fn rooms() -> Vec<Room> {
    let table = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs")).expect("it is UTF-8");
    let row = Regex::new(r"(?m)^//! \| (\w+) \| `(\w+)`( \(pure\))?.*? \| (.*) \|$").expect("BUG: it is valid");
    let part = Regex::new(r"`(\w+)`").expect("BUG: it is valid");
    let rooms = row.captures_iter(&table).map(|row| {
        let name = row[2].to_owned();
        let parts = row[4].split_once("pure except ").map(|(_, parts)| {
            let parts = part.captures_iter(parts).map(|part| Path::new(&name).join(&part[1]));
            parts.flat_map(|part| [part.with_extension("rs"), part]).collect()
        });
        Room { package: row[1].to_owned(), impure: parts.or(row.get(3).map(|_| Vec::new())), name }
    });
    let rooms: Vec<Room> = rooms.collect();
    assert!(rooms.len() > 25 && rooms.iter().filter(|room| room.impure.is_some()).count() > 10, "src/lib.rs");
    rooms
}

/// Names that no pure room contains.
const IMPURE: &[&str] = &[
    "crate::os",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "std::env",
    "std::io",
    "std::os",
    "Instant::now",
    "SystemTime",
];

/// Names of systems, and of the crates with their calls.
const OF_A_SYSTEM: [&str; 4] = ["target_os", "target_vendor", "rustix", "libc"];

/// At least as many invariants are checked in releases.
const INVARIANTS_MIN: usize = 200;

/// Limit on the lines of a file without its tests.
const FILE_LINES_MAX: usize = 700;

/// Limit on the lines of a function.
const FUNCTION_LINES_MAX: usize = 80;

/// The sources by their paths, each without the folder of its package.
pub fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut dirs = vec![root.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("src can be read") {
            let path = entry.expect("an entry can be read").path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source is UTF-8");
                let path = path.strip_prefix(&root).expect("it is below");
                let in_package = PACKAGES.iter().find_map(|package| path.strip_prefix(package).ok());
                found.push((in_package.unwrap_or(path).to_owned(), text));
            }
        }
    }
    found.sort();
    assert!(found.len() > 10, "{found:?}");
    found
}

/// Each room is in the package that the table says, and no package has a room of one before it: cargo lets none of them import a later
/// one.
#[test]
fn packages_follow_each_other_as_their_rooms_do() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut packages = Vec::new();
    for Room { package, name, .. } in rooms() {
        let folder = root.join(&package);
        assert!(folder.join(&name).is_dir() || folder.join(format!("{name}.rs")).is_file(), "{package}: no `{name}`");
        packages.push(PACKAGES.iter().position(|other| *other == package));
    }
    assert!(packages.iter().all(Option::is_some) && packages.is_sorted(), "{packages:?}");
}

/// A source without its tests.
fn without_tests(text: &str) -> &str {
    // A module in a file of its own is declared anywhere.
    let is_inline = |at: usize| text[at..].lines().nth(2).is_some_and(|line| line.ends_with('{'));
    let from = text.match_indices("\n#[cfg(test)]\nmod ").map(|(at, _)| at).find(|at| is_inline(*at));
    from.map_or(text, |at| &text[..at])
}

fn room_of(path: &Path) -> String {
    let first = path.components().next().expect("a path has a part").as_os_str().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

#[test]
fn imports_run_one_way() {
    // The package in the root uses all of them.
    let rooms: Vec<String> = rooms().into_iter().map(|room| room.name).chain(["testing".to_owned()]).collect();
    for (path, text) in sources() {
        let room = room_of(&path);
        let Some(own) = rooms.iter().position(|name| *name == room) else {
            assert!(matches!(room.as_str(), "lib" | "main"), "{}: a room that is not in src/lib.rs", path.display());
            continue;
        };
        for line in without_tests(&text).lines().filter(|line| !line.trim_start().starts_with("//")) {
            for (index, other) in rooms.iter().enumerate().filter(|(index, _)| *index > own) {
                // One name may be the beginning of another.
                let name = format!("crate::{other}");
                let imports = line.split(&name).skip(1);
                let is_whole = |rest: &str| !rest.starts_with(|char: char| char.is_alphanumeric() || char == '_');
                let found = imports.filter(|rest| is_whole(rest)).count();
                assert_eq!(found, 0, "{}: {line} ({index} > {own})", path.display());
            }
        }
    }
}

#[test]
fn pure_rooms_are_pure() {
    let rooms = rooms();
    let is_pure = |path: &Path| {
        let room = room_of(path);
        let impure = rooms.iter().find(|other| other.name == room).and_then(|room| room.impure.as_ref());
        impure.is_some_and(|impure| !impure.iter().any(|part| path.starts_with(part))) && !is_for_tests(path)
    };
    for (path, text) in sources().iter().filter(|(path, _)| is_pure(path)) {
        let code = without_tests(text);
        for name in IMPURE {
            assert!(!code.contains(name), "{} names {name}", path.display());
        }
    }
}

/// A fault of a user names an invariant, which has to be found in the sources.
#[test]
fn each_invariant_has_a_name_of_its_own() {
    let checked = Regex::new(r#"\bholds!\(\s*"([^"]*)""#).expect("BUG: it is valid");
    let well_formed = Regex::new(r"^[a-z]+\.[a-z]+(-[a-z]+)+$").expect("BUG: it is valid");
    let mut names = BTreeSet::new();
    for (path, text) in sources() {
        for checked in checked.captures_iter(without_tests(&text)) {
            let name = &checked[1];
            assert!(well_formed.is_match(name), "{}: {name}: it is `area.words-with-dashes`", path.display());
            assert!(names.insert(name.to_owned()), "{}: {name}: there is another one", path.display());
        }
    }
    assert!(names.len() >= INVARIANTS_MIN, "{}", names.len());
}

#[test]
fn only_os_knows_which_system_it_is() {
    for (path, text) in sources() {
        if is_for_tests(&path) || room_of(&path) == "os" {
            continue;
        }
        for line in without_tests(&text).lines().filter(|line| !line.trim_start().starts_with("//")) {
            let found = OF_A_SYSTEM.iter().find(|name| line.contains(**name));
            assert_eq!(found, None, "{}: ask `os`: {line}", path.display());
        }
    }
}

#[test]
fn files_and_functions_are_of_a_size_to_be_read() {
    for (path, text) in sources() {
        let code = without_tests(&text);
        let lines = code.lines().count();
        assert!(lines <= FILE_LINES_MAX, "{}: {lines} lines", path.display());
        let mut function: Option<(usize, &str)> = None;
        for (number, line) in code.lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let begins = ["fn ", "pub fn ", "pub(super) fn ", "pub(crate) fn "]
                .iter()
                .any(|word| line.trim_start().starts_with(word));
            if begins && indent <= 4 {
                function = Some((number, line));
            }
            if let Some((began, name)) = function
                && line.trim_end() == format!("{}}}", " ".repeat(name.len() - name.trim_start().len()))
            {
                let length = number - began + 1;
                assert!(length <= FUNCTION_LINES_MAX, "{}: {length} lines: {name}", path.display());
                function = None;
            }
        }
    }
}

/// Calls that open or create a file and may follow links, wait for a FIFO, or leave the mode to the umask; and those of `os`, which
/// does not know where the home is.
const OPENING: &[&str] = &[
    "File::open",
    "File::create",
    "File::options",
    "OpenOptions::new",
    "DirBuilder::new",
    "fs::read(",
    "fs::read_to_string(",
    "fs::write(",
    "fs::copy(",
    "fs::hard_link(",
    "fs::create_dir",
    "fs::open_folder(",
    "fs::open_in(",
    "fs::open_followed(",
    "open_unlinked(",
    "fs::create_in(",
    "fs::create(",
    "Connection::open",
];

/// Files that may use them because their targets are not below the home, the reason, and the number of calls.
const OPENS: &[(&str, &str, usize)] = &[
    ("files/mod.rs", "this is where it is done", 7),
    ("store/database.rs", "connects to what `files` has checked", 2),
    ("index/query.rs", "the same", 1),
    ("cli/doctor/state.rs", "connects to what `files` has checked", 1),
    ("keeping/redact.rs", "syncs a folder that it has written into", 1),
    ("replay/tape.rs", "a tape that the user names, which may be a pipe", 1),
    ("cli/output_file.rs", "a pipe or a link that the user names", 1),
    ("cli/context_tool.rs", "an output that the user names, which may be a pipe", 1),
    ("cli/blame_tool.rs", "a file that the user names", 1),
    ("cli/complete.rs", "a folder that the user names", 1),
    ("cli/wrap/mod.rs", "the settings of another tool", 2),
    ("cli/doctor/codex.rs", "the schema that codex has written", 1),
    ("cli/drift_tool/schemas.rs", "the same", 1),
    ("cli/rules_tool/backtest.rs", "rules that the user names", 1),
    ("capture/piped.rs", "/dev/tty", 1),
];

#[test]
fn files_below_the_home_are_opened_in_one_place() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        if is_for_tests(&path) || room_of(&path) == "os" {
            continue;
        }
        let code = without_tests(&text).lines().filter(|line| !line.trim_start().starts_with("//"));
        let opens = code.filter(|line| OPENING.iter().any(|way| line.contains(way))).count();
        let allowed = OPENS.iter().find(|(file, _, _)| path == Path::new(file)).map_or(0, |(_, _, times)| *times);
        if opens != allowed {
            found.push(format!("{}: {opens} and not {allowed}", path.display()));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn no_file_is_left_over() {
    let sources = sources();
    let declared: BTreeSet<PathBuf> = sources
        .iter()
        .flat_map(|(path, text)| {
            let parent = path.parent().expect("a file has a folder").to_owned();
            let names = text.lines().filter_map(|line| {
                let line = ["pub ", "pub(super) ", "pub(crate) "]
                    .iter()
                    .find_map(|word| line.strip_prefix(word))
                    .unwrap_or(line);
                line.strip_prefix("mod ")?.strip_suffix(';')
            });
            names
                .flat_map(|name| [parent.join(format!("{name}.rs")), parent.join(name).join("mod.rs")])
                .collect::<Vec<_>>()
        })
        .collect();
    for (path, _) in sources.iter().filter(|(path, _)| !matches!(path.to_str(), Some("lib.rs" | "main.rs"))) {
        assert!(declared.contains(path), "{}: nobody declares it", path.display());
    }
}

#[test]
fn properties_that_are_fuzzed_exist() {
    let makefile = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Makefile")).expect("a file");
    let words = makefile.lines().find_map(|line| line.strip_prefix("PROPERTIES")).expect("their names");
    let words: Vec<&str> = words.split_ascii_whitespace().skip(1).collect();
    assert!(words.len() > 3, "{words:?}");
    let sources: Vec<String> =
        sources().into_iter().map(|(_, text)| text).filter(|text| text.contains("proptest!")).collect();
    for word in words {
        let name = Regex::new(&format!(r"fn \w*{word}\w*\(")).expect("BUG: it is valid");
        assert!(sources.iter().any(|text| name.is_match(text)), "no property is called {word}");
    }
}

#[test]
fn every_file_says_what_it_is() {
    for (path, text) in sources() {
        assert!(text.starts_with("//! "), "{}", path.display());
    }
}

/// The names in the table of methods.
fn method_names(sources: &[(PathBuf, String)]) -> Vec<String> {
    let (_, table) = sources.iter().find(|(path, _)| path == Path::new("protocol/method.rs")).expect("it is there");
    let row = Regex::new(r#"(?m)^    \w+ = "([^"]+)""#).expect("BUG: it is valid");
    row.captures_iter(table).map(|row| row[1].to_owned()).collect()
}

#[test]
fn method_names_stay_in_the_protocol_room() {
    let sources = sources();
    // `error` is the name of a member, too.
    let names: Vec<String> = method_names(&sources).into_iter().filter(|name| name != "error").collect();
    assert!(names.len() > 50, "{names:?}");
    // A context engine has a protocol of its own.
    let others = |path: &Path| !path.starts_with("protocol") && !path.starts_with("context_engine");
    for (path, text) in sources.iter().filter(|(path, _)| others(path)) {
        if is_for_tests(path) {
            continue;
        }
        let program = text.split("#[cfg(test)]\nmod ").next().expect("the first part is there");
        for (number, line) in program.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let found = names.iter().find(|name| line.contains(&format!("\"{name}\"")));
            assert_eq!(found, None, "{}:{}: use `protocol::Method`", path.display(), number + 1);
        }
    }
}

/// Whether only tests use a file.
fn is_for_tests(path: &Path) -> bool {
    let others = ["properties.rs", "usage_properties.rs", "simulation.rs", "cases.rs", "request_testing.rs"];
    let is_named_so = |part: std::path::Component<'_>| {
        let part = part.as_os_str().to_string_lossy();
        part.trim_end_matches(".rs").ends_with("tests")
    };
    path.components().any(is_named_so) || others.iter().any(|name| path.ends_with(name))
}

/// Files of the sources that an installed user may not have.
const OF_THE_SOURCES: [&str; 4] = ["docs/", "README", "CHANGELOG", "fixtures/"];

/// The string literals of a source, each with its line, without those that name a file to include.
fn literals(text: &str) -> Vec<(usize, &str)> {
    let token =
        Regex::new(r##"(?s)//[^\n]*|/\*.*?\*/|'(?:\\.[^']*|[^\\'\n])'|r#"(.*?)"#|r"([^"]*)"|"((?:\\.|[^"\\])*)""##);
    let token = token.expect("BUG: it is valid");
    let found = token.captures_iter(text).filter_map(|found| {
        let literal = (1..=3).find_map(|group| found.get(group))?;
        let before = text[..found.get(0).expect("BUG: it matches").start()].trim_end();
        let is_included = before.ends_with("include_str!(") || before.ends_with("include_bytes!(");
        (!is_included).then(|| (text[..literal.start()].lines().count(), literal.as_str()))
    });
    found.collect()
}

#[test]
fn messages_name_no_file_of_the_sources() {
    let source = "let a = include_str!(\"docs/a\"); // \"docs/b\"\nf('\"', r#\"docs/\"c\"#, '\\'', \"\\\"docs/d\")";
    assert_eq!(literals(source), [(2, "docs/\"c"), (2, "\\\"docs/d")]);
    let mut found = Vec::new();
    for (path, text) in sources().iter().filter(|(path, _)| !is_for_tests(path)) {
        let literals = literals(without_tests(text));
        let naming = literals.iter().filter(|(_, literal)| OF_THE_SOURCES.iter().any(|name| literal.contains(name)));
        found.extend(naming.map(|(line, literal)| format!("{}:{line}: {literal}", path.display())));
    }
    assert!(found.is_empty(), "name `codex-shim docs NAME`: {found:#?}");
}
