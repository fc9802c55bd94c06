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

/// Method and path of each route in the sources of a room.
fn routes(room: &str) -> Vec<(String, String)> {
    let route = Regex::new(r#"(?s)\.route\(\s*"([^"]+)",\s*(.*?)\)\s*(?:\n|$)"#).expect("BUG: it is valid");
    let method = Regex::new(r"\b(get|post|delete|put)\(").expect("BUG: it is valid");
    let mut routes = Vec::new();
    for (_, text) in crate::tidy::sources().into_iter().filter(|(path, _)| path.starts_with(room)) {
        for found in route.captures_iter(&text) {
            let methods = method.captures_iter(&found[2]).map(|method| method[1].to_uppercase());
            routes.extend(methods.map(|method| (method, found[1].to_owned())));
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
