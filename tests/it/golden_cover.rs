//! Every route and every tool with `--json` is in a golden file.

use std::collections::BTreeSet;
use std::fs;

use regex::Regex;

use crate::golden::{FILES, Shell, folder};
use crate::support::shim::Home;

/// The first lines of all entries.
fn entries() -> Vec<String> {
    let texts = FILES.iter().map(|name| fs::read_to_string(folder().join(format!("{name}.txt"))).expect("it is there"));
    let entries = texts.flat_map(|text| {
        text.lines().filter_map(|line| line.strip_prefix("=== ")).map(str::to_owned).collect::<Vec<_>>()
    });
    entries.collect()
}

/// Method and path of each route in the sources of a room. That of a query is in `query!`.
fn routes(room: &str) -> Vec<(String, String)> {
    let route =
        Regex::new(r#"(?s)\.route\(\s*(?:"([^"]+)"|(\w+)::ROUTE),\s*(.*?)\)\s*(?:\n|$)"#).expect("BUG: it is valid");
    let method = Regex::new(r"\b(get|post|delete|put)\(").expect("BUG: it is valid");
    let query = Regex::new(r#"(?m)^    (\w+) -> .* = "([^"]+)""#).expect("BUG: it is valid");
    let sources = crate::tidy::sources();
    let of_query = |name: &str| {
        let mut queries = sources.iter().flat_map(|(_, text)| query.captures_iter(text));
        let found = queries.find(|query| query[1] == *name).unwrap_or_else(|| panic!("no query {name}"));
        format!("/sessions/{{id}}/{}", &found[2])
    };
    let mut routes = Vec::new();
    for (_, text) in sources.iter().filter(|(path, _)| path.starts_with(room)) {
        for found in route.captures_iter(text) {
            let path = found.get(1).map_or_else(|| of_query(&found[2]), |path| path.as_str().to_owned());
            let methods = method.captures_iter(&found[3]).map(|method| method[1].to_uppercase());
            routes.extend(methods.map(|method| (method, path.clone())));
        }
    }
    routes
}

/// Routes of the page that only its own tools ask, at a socket.
const OF_THE_CONSOLE: [&str; 5] = ["/page", "/links", "/browsers", "/browsers/{number}/sign-out", "/sign-out"];

#[test]
fn every_route_is_in_a_golden_file() {
    let entries = entries();
    let (control, page) = (routes("control"), routes("web"));
    assert!(control.len() > 25 && page.len() > 10, "{control:?} {page:?}");
    let is_missing = |(method, path): &&(String, String)| {
        let path = Regex::new(r"\{[^}]+\}").expect("BUG: it is valid").replace_all(path, "[^/ ]+");
        let entry = Regex::new(&format!(r"^{method} {path}(\?\S*)?   of ")).expect("BUG: it is valid");
        !entries.iter().any(|line| entry.is_match(line))
    };
    let all = control.iter().chain(page.iter().filter(|(_, path)| !OF_THE_CONSOLE.contains(&&**path)));
    let missing: Vec<&(String, String)> = all.filter(is_missing).collect();
    assert!(missing.is_empty(), "not in fixtures/golden: {missing:?}");
}

/// The tools and their subcommands that take `--json`, each with the words before it.
fn tools_with_json(shell: &Shell<'_>, words: &[&str]) -> Vec<String> {
    let help = shell.command(&[words, &["--help"]].concat()).output().expect("it runs").stdout;
    let help = String::from_utf8(help).expect("it is UTF-8");
    let (about, _) = help.split_once("\nExample").unwrap_or((&help, ""));
    let rows = about.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = rows.filter_map(|row| row.split_whitespace().next()).filter(|name| {
        *name != "help" && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') && !name.starts_with('-')
    });
    let is_group = about.contains("<COMMAND>") || about.contains("[COMMAND]");
    let below: BTreeSet<&str> = if is_group { names.collect() } else { BTreeSet::new() };
    let own = about.lines().any(|line| line.trim_start().trim_start_matches("-f, ").starts_with("--json"));
    let own = own.then(|| words.join(" "));
    own.into_iter().chain(below.iter().flat_map(|name| tools_with_json(shell, &[words, &[name]].concat()))).collect()
}

#[test]
fn every_tool_with_json_is_in_a_golden_file() {
    let home = Home::new();
    let tools = tools_with_json(&Shell::beside(&home), &[]);
    assert!(tools.len() > 35, "{tools:?}");
    let entries = entries();
    let is_of = |entry: &String, tool: &String| entry.starts_with(&format!("codex-shim {tool} "));
    let is_missing = |tool: &&String| {
        // A tool of a group has its own entry.
        let below = tools.iter().filter(|other| other.starts_with(&format!("{tool} "))).collect::<Vec<_>>();
        let is_its = |entry: &&String| is_of(entry, tool) && !below.iter().any(|other| is_of(entry, other));
        !entries.iter().filter(is_its).any(|entry| entry.contains(" --json"))
    };
    let missing: Vec<&String> = tools.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "not in fixtures/golden: {missing:?}");
}
