//! Checks the real codex: whether it exists, its version, and whether the schema that it writes still has the parts of the
//! protocol that we use.

use std::cell::Cell;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::Check;
use super::probe::{Asked, Ran, ask, run};
use crate::config::{Environment, Settings};
use crate::files;
use crate::protocol::{Method, RESPONSES};
use crate::relay::locate::{self, Codex};

/// How long codex may take to print its version; the Node launcher is slow to start.
const VERSION_WAIT_MAX: Duration = Duration::from_secs(7);

/// How long codex may take to write its schema.
const SCHEMA_WAIT_MAX: Duration = Duration::from_secs(8);

/// How long the app-server may take to answer `initialize`.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

/// Longest quoted line, in characters.
const SHOWN_CHARS_MAX: usize = 200;

/// Most missing items that are named.
const NAMED_MAX: usize = 12;

pub(super) fn checks(settings: &Settings, environment: &Environment, checks: &mut Vec<Check>) {
    let program = match locate::codex(settings, environment) {
        Ok(program) => program,
        Err(error) => {
            checks.push(Check::broken(
                "codex",
                error.to_string(),
                "install it with `npm install -g @openai/codex`, or name it",
            ));
            checks.extend(["app-server", "protocol"].map(|name| skipped(name, "no codex was found")));
            checks.push(on_path(environment));
            return;
        }
    };
    let at = program.program.display();
    let ran = run(command(&program).arg("--version"), VERSION_WAIT_MAX);
    let (is_too_slow, is_leading_back) =
        (ran == Ran::TooSlow, matches!(&ran, Ran::Well(version) if version.starts_with("codex-shim ")));
    let has_version = matches!(ran, Ran::Well(_)) && !is_leading_back;
    checks.push(match ran {
        Ran::Well(version) if is_leading_back => Check::broken(
            "codex",
            format!("{at} leads back to codex-shim: its version is `{version}`"),
            "name the real one with CODEX_SHIM_CODEX or `codex` in config.toml",
        ),
        Ran::Well(version) => Check::ok("codex", format!("{at}: {version}")),
        Ran::Badly(why) => {
            Check::broken("codex", format!("{at} --version: {why}"), "reinstall codex, or name another one")
        }
        Ran::TooSlow => {
            let found = format!("{at} --version did not exit within {VERSION_WAIT_MAX:?}");
            Check::broken("codex", found, "run it by hand to see what it waits for")
        }
    });
    if has_version {
        checks.push(app_server(&program));
    } else {
        checks.push(skipped("app-server", "this codex printed no version"));
    }
    // A codex that does not print its version in time writes no schema in time.
    if !is_too_slow {
        checks.push(protocol(&program));
    } else {
        checks.push(skipped("protocol", "this codex is too slow"));
    }
    checks.push(on_path(environment));
}

/// A check that needs a codex that runs.
fn skipped(name: &'static str, why: &str) -> Check {
    Check::note(name, format!("skipped: {why}"), "mend `codex` above, and run `doctor` again")
}

fn command(codex: &Codex) -> Command {
    let mut command = Command::new(&codex.program);
    command.envs(codex.path.iter().map(|path| ("PATH", path)));
    command
}

/// Starts the app-server as a relay does, and initializes it. CODEX_HOME is new and empty, so the check neither reads nor
/// changes the user's state and needs no account.
fn app_server(codex: &Codex) -> Check {
    const NAME: &str = "app-server";
    const REMEDY: &str = "install a codex that has it with `npm install -g @openai/codex@latest`, or name another one with \
                          CODEX_SHIM_CODEX or `codex` in config.toml";
    let at = format!("{} app-server", codex.program.display());
    let folder = std::env::temp_dir().join(format!("codex-shim-doctor-{}", std::process::id()));
    if let Err(error) = files::create_folder(&folder) {
        return Check::note(NAME, format!("create {}: {error}", folder.display()), "set TMPDIR to a folder with room");
    }
    let mut server = command(codex);
    server.arg("app-server").env("CODEX_HOME", &folder);
    let asked = ask(&mut server, &initialize(), ANSWER_WAIT_MAX);
    let _ = std::fs::remove_dir_all(&folder);
    let why = match asked {
        Asked::Line(line) => match initialize_error(&line) {
            None => return Check::ok(NAME, format!("{at} answers")),
            Some(why) => why,
        },
        Asked::Ended(why) => format!("it exited without an answer to `initialize` ({why})"),
        Asked::TooSlow => format!("no answer to `initialize` in {ANSWER_WAIT_MAX:?}"),
    };
    Check::broken(NAME, format!("{at}: {why}"), REMEDY)
}

/// Why a line is not a valid answer to `initialize`.
fn initialize_error(line: &str) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
    if answer["id"] == 1 && answer.get("result").is_some() {
        return None;
    }
    if let Some(message) = answer["error"]["message"].as_str() {
        return Some(format!("it refuses `initialize`: {message}"));
    }
    let shown: String = line.chars().take(SHOWN_CHARS_MAX).collect();
    Some(format!("`{shown}` is not an answer to `initialize`"))
}

/// Compares the fields that we use with the schema that this codex writes.
fn protocol(codex: &Codex) -> Check {
    const NAME: &str = "protocol";
    const UNTOLD: &str =
        "messages are relayed anyway; missing features of an older codex are reported when they are needed";
    let folder = std::env::temp_dir().join(format!("codex-shim-schema-{}", std::process::id()));
    if let Err(error) = files::create_folder(&folder) {
        return Check::note(NAME, format!("create {}: {error}", folder.display()), UNTOLD);
    }
    let write = |flags: &[&str]| {
        let mut command = command(codex);
        command.args(["app-server", "generate-json-schema"]).args(flags).arg("--out").arg(&folder);
        run(&mut command, SCHEMA_WAIT_MAX)
    };
    // The oldest versions have only experimental schemas and do not know the flag.
    let ran = match write(&["--experimental"]) {
        Ran::Badly(_) => write(&[]),
        ran @ (Ran::Well(_) | Ran::TooSlow) => ran,
    };
    let missing = missing(&folder);
    let _ = std::fs::remove_dir_all(&folder);
    match (ran, missing) {
        (Ran::Well(_), Some(missing)) if missing.is_empty() => {
            let (methods, fields) = touched();
            Check::ok(NAME, format!("this codex has all {methods} methods and {fields} fields that codex-shim uses"))
        }
        (Ran::Well(_), Some(missing)) => {
            let remedy = "what hangs on them does not work with this codex; everything else does, and all is relayed";
            let rest = missing.len().saturating_sub(NAMED_MAX);
            let named = missing.get(..NAMED_MAX).unwrap_or(&missing).join(", ");
            let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
            Check::note(NAME, format!("this codex lacks {named}{more}"), remedy)
        }
        (Ran::Well(_) | Ran::Badly(_) | Ran::TooSlow, _) => Check::note(NAME, "this codex writes no schema", UNTOLD),
    }
}

/// Whether the first `codex` on `PATH` is codex-shim.
fn on_path(environment: &Environment) -> Check {
    const NAME: &str = "path";
    let path = environment.get("PATH").unwrap_or_default();
    let first = std::env::split_paths(&path).map(|folder| folder.join("codex")).find(|program| program.exists());
    let ourselves = std::env::current_exe().ok().and_then(|program| program.canonicalize().ok());
    match first {
        Some(program) if program.canonicalize().ok() == ourselves => {
            Check::ok(NAME, format!("`codex` is {}, which is codex-shim", program.display()))
        }
        Some(program) => Check::note(
            NAME,
            format!("`codex` is {}, which is not codex-shim", program.display()),
            "tools that look for `codex` on PATH go past us; `codex-shim wrap path` changes that",
        ),
        None => Check::note(NAME, "there is no `codex` on PATH", "`codex-shim wrap path` puts a link there"),
    }
}

/// The first request of every client.
fn initialize() -> String {
    let client = json!({ "name": "codex-shim-doctor", "title": null, "version": env!("CARGO_PKG_VERSION") });
    let message = json!({ "id": 1, "method": Method::Initialize.name(), "params": { "clientInfo": client } });
    format!("{message}\n")
}

/// A message or response, and the fields of it that are used.
struct Touched {
    /// The schema file, without `.json`.
    file: &'static str,
    /// The method, in files that cover several kinds of messages; `None` in the file of one response.
    method: Option<&'static str>,
    /// Paths of the used fields.
    fields: &'static [&'static str],
}

/// All messages and responses that this program uses and that a schema can describe, grouped by file.
fn all_touched() -> impl Iterator<Item = Touched> {
    let messages = Method::ALL.iter().filter_map(|method| {
        Some(Touched { file: method.listed().file()?, method: Some(method.name()), fields: method.fields() })
    });
    messages.chain(RESPONSES.iter().map(|response| Touched {
        file: response.file,
        method: None,
        fields: response.fields,
    }))
}

/// Most schemas visited for one field, and the greatest depth. codex's own need a few hundred, and less than twenty. A schema
/// may refer to itself.
const STEPS_MAX: usize = 10_000;
const DEPTH_MAX: usize = 40;

/// The number of methods and fields that we use.
pub(super) fn touched() -> (usize, usize) {
    let methods = all_touched().filter(|touched| touched.method.is_some()).count();
    (methods, all_touched().map(|touched| touched.fields.len()).sum())
}

/// The methods, and fields as `METHOD: FIELD`, that the schema in `folder` lacks; `None` if there is no schema.
pub(super) fn missing(folder: &Path) -> Option<Vec<String>> {
    let mut missing = Vec::new();
    let mut last: Option<(&str, Value)> = None;
    for touched in all_touched() {
        if last.as_ref().is_none_or(|(file, _)| *file != touched.file) {
            last = read(folder, touched.file).map(|schema| (touched.file, schema));
        }
        match (&last, touched.method) {
            (Some((_, schema)), method) => lacks(schema, &touched, method, &mut missing),
            // A missing response file belongs to a request that is reported already.
            (None, None) => {}
            (None, Some(_)) => return None,
        }
    }
    Some(missing)
}

fn read(folder: &Path, file: &str) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(folder.join(format!("{file}.json"))).ok()?).ok()
}

fn lacks(schema: &Value, touched: &Touched, method: Option<&str>, missing: &mut Vec<String>) {
    let within = match method {
        None => Some(schema),
        Some(method) => kind(schema, method).map(|kind| kind.get("params").unwrap_or(&Value::Bool(true))),
    };
    let name = method.unwrap_or_else(|| touched.file.trim_start_matches("v2/"));
    let Some(within) = within else {
        missing.push(name.to_owned());
        return;
    };
    for field in touched.fields {
        let path: Vec<&str> = field.split('.').collect();
        if !Search::of(schema).finds(within, &path, DEPTH_MAX) {
            missing.push(format!("{name}: {field}"));
        }
    }
}

/// The properties of the message kind with this method: `{"method": {"enum": [NAME]}, "params": …}`.
fn kind<'a>(schema: &'a Value, method: &str) -> Option<&'a Value> {
    let kinds = schema["oneOf"].as_array()?;
    kinds.iter().map(|kind| &kind["properties"]).find(|properties| {
        properties["method"]["enum"].as_array().is_some_and(|names| names.iter().any(|n| n == method))
    })
}

/// A search for one field.
struct Search<'a> {
    root: &'a Value,
    steps_left: Cell<usize>,
}

impl<'a> Search<'a> {
    fn of(root: &'a Value) -> Search<'a> {
        Search { root, steps_left: Cell::new(STEPS_MAX) }
    }

    /// Whether `schema` allows a field at `path`.
    fn finds(&self, schema: &Value, path: &[&str], depth: usize) -> bool {
        let Some((first, rest)) = path.split_first() else { return true };
        let (Some(depth), Some(steps)) = (depth.checked_sub(1), self.steps_left.get().checked_sub(1)) else {
            return false;
        };
        self.steps_left.set(steps);
        // The schema `true` allows anything.
        let Some(object) = schema.as_object() else { return schema == &Value::Bool(true) };
        let says_nothing = !["$ref", "allOf", "anyOf", "oneOf", "items", "properties", "type", "enum"]
            .iter()
            .any(|keyword| object.contains_key(*keyword));
        let refers = object.get("$ref").and_then(Value::as_str);
        let referred = refers.and_then(|to| self.root.pointer(to.trim_start_matches('#')));
        let parts = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|of| object.get(of)?.as_array()).flatten();
        let within = object.get("properties").and_then(|fields| fields.get(first));
        says_nothing
            || within.is_some_and(|within| self.finds(within, rest, depth))
            || parts.chain(referred).chain(object.get("items")).any(|part| self.finds(part, path, depth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A schema with everything that we use, except `without`.
    fn written(without: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("BUG: a temporary folder");
        std::fs::create_dir(folder.path().join("v2")).expect("create");
        for touched in all_touched() {
            let alike = all_touched().filter(|other| other.file == touched.file);
            let kinds: Vec<Value> = alike
                .filter(|other| other.method.is_some_and(|method| method != without))
                .map(|other| json!({"properties": {"method": {"enum": [other.method]}, "params": object(&other, without)}}))
                .collect();
            let schema = if touched.method.is_some() { json!({ "oneOf": kinds }) } else { object(&touched, without) };
            std::fs::write(folder.path().join(format!("{}.json", touched.file)), schema.to_string()).expect("write");
        }
        folder
    }

    fn object(touched: &Touched, without: &str) -> Value {
        let mut schema = json!({"type": "object"});
        for field in touched.fields.iter().filter(|field| **field != without) {
            let mut at = &mut schema;
            for step in field.split('.') {
                at = &mut at["properties"][step];
            }
            at["type"] = json!("string");
        }
        schema
    }

    #[test]
    fn missing_schema_parts_are_named() {
        let none = tempfile::tempdir().expect("BUG: a temporary folder");
        assert_eq!(missing(none.path()), None);
        assert_eq!(missing(written("").path()), Some(Vec::new()));
        assert_eq!(missing(written("turn/steer").path()), Some(vec!["turn/steer".to_owned()]));
        assert_eq!(
            missing(written("questions.isSecret").path()),
            Some(vec!["item/tool/requestUserInput: questions.isSecret".to_owned()])
        );
        assert_eq!(missing(written("data.preview").path()), Some(vec!["ThreadListResponse: data.preview".to_owned()]));
    }

    #[test]
    fn fields_are_found_through_references() {
        let root = json!({"definitions": {
            "Turn": {"type": "object", "properties": {"items": {"type": "array", "items": {"$ref": "#/definitions/Item"}}}},
            "Item": {"oneOf": [
                {"type": "object", "properties": {"command": {"type": "string"}}},
                {"anyOf": [{"type": "null"}, {"allOf": [{"type": "object", "properties": {"text": {}}}]}]},
            ]},
            "Round": {"oneOf": [{"$ref": "#/definitions/Round"}, {"$ref": "#/definitions/Round"}]},
        }});
        let turn = json!({"$ref": "#/definitions/Turn"});
        let found = |path: &str| Search::of(&root).finds(&turn, &path.split('.').collect::<Vec<_>>(), DEPTH_MAX);
        assert!(found("items.command"));
        assert!(found("items.text"));
        assert!(found("items.text.anything"), "a field of which the schema says nothing");
        assert!(!found("items.command.deeper"));
        assert!(!found("items.no"));
        assert!(!Search::of(&root).finds(&json!({"$ref": "#/definitions/Round"}), &["x"], DEPTH_MAX));
        assert!(!Search::of(&root).finds(&json!({"$ref": "#/definitions/None"}), &["x"], DEPTH_MAX));
    }
}
