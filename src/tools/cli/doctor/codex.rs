//! Checks the real codex: whether it exists, its version, and whether the schema that it writes still has the parts of the
//! protocol that we use.
//!
//! It runs programs with a timeout, each in its own process group. On a timeout, or if a signal ends us, the whole group is killed,
//! because killing a launcher alone would leave its children running. Processes that outlive a program that exits by itself are left
//! alone.

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write as _};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::kept_back::KeptBack;
use super::Check;
use crate::config::{Environment, Settings};
use crate::files;
use crate::os::descriptors::never_block;
use crate::os::processes::kill_group_of;
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
    let ran = version(&program);
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
    Check::note(name, format!("skipped: {why}"), "fix `codex` above, and run `doctor` again")
}

/// Has codex print its version.
pub(in super::super) fn version(codex: &Codex) -> Ran {
    run(command(codex).arg("--version"), VERSION_WAIT_MAX)
}

/// Has codex write the schema of its protocol into a folder.
pub(in super::super) fn write_schema(codex: &Codex, folder: &Path) -> Ran {
    let write = |flags: &[&str]| {
        let mut command = command(codex);
        command.args(["app-server", "generate-json-schema"]).args(flags).arg("--out").arg(folder);
        run(&mut command, SCHEMA_WAIT_MAX)
    };
    // The oldest versions have only experimental schemas and do not know the flag.
    match write(&["--experimental"]) {
        Ran::Badly(why) if why.contains("--experimental") => write(&[]),
        ran @ (Ran::Well(_) | Ran::Badly(_) | Ran::TooSlow) => ran,
    }
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
        CodexReply::Line(line) => match initialize_error(&line) {
            None => return Check::ok(NAME, format!("{at} answers")),
            Some(why) => why,
        },
        CodexReply::Ended(why) => format!("it exited without an answer to `initialize` ({why})"),
        CodexReply::TooSlow => format!("no answer to `initialize` in {ANSWER_WAIT_MAX:?}"),
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
    let ran = write_schema(codex, &folder);
    let missing = missing(&folder);
    let _ = std::fs::remove_dir_all(&folder);
    match (ran, missing) {
        (Ran::Well(_), Some(missing)) if missing.is_empty() => {
            let (methods, fields) = touched();
            Check::ok(NAME, format!("this codex has all {methods} methods and {fields} fields that codex-shim uses"))
        }
        (Ran::Well(_), Some(missing)) => {
            let remedy = "features that need them do not work with this codex; everything else does, and all messages are relayed";
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
            "tools that look for `codex` on PATH bypass codex-shim; `codex-shim wrap path` changes that",
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

/// Polling interval.
const LOOK_WAIT: Duration = Duration::from_millis(10);

/// Most output that is kept, in bytes.
const PRINTED_BYTES_MAX: usize = 64 << 10;

/// Most reads of a stream between two checks of its program.
const ROUND_READS_MAX: usize = 64;

/// Longest quoted output of a failed program, in lines and in characters.
const OUTPUT_LINES_MAX: usize = 3;
const OUTPUT_CHARS_MAX: usize = 300;

/// Result of [`run`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Ran {
    /// Exited successfully, with this output.
    Well(String),
    /// Failed or could not be started; the reason.
    Badly(String),
    /// Killed after the timeout.
    TooSlow,
}

/// Runs `command` for at most `wait_max`.
pub(super) fn run(command: &mut Command, wait_max: Duration) -> Ran {
    // Its own process group does not receive the signals of the terminal.
    let kept_back = match KeptBack::begin() {
        Ok(kept_back) => kept_back,
        Err(error) => return Ran::Badly(format!("install signal handlers: {error}")),
    };
    let ran = run_in_group(command, wait_max, kept_back);
    kept_back.let_go_and_obey();
    ran
}

fn run_in_group(command: &mut Command, wait_max: Duration, kept_back: &KeptBack) -> Ran {
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ran::Badly(format!("it cannot be started: {error}")),
    };
    let mut printed = (Printed::default(), Printed::default());
    let began = Instant::now();
    let status = loop {
        printed.0.take(child.stdout.as_mut());
        printed.1.take(child.stderr.as_mut());
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if began.elapsed() >= wait_max || kept_back.has_come() => {
                kill_group_of(&mut child);
                return Ran::TooSlow;
            }
            Ok(None) => std::thread::park_timeout(LOOK_WAIT),
            Err(error) => return Ran::Badly(format!("it cannot be waited for: {error}")),
        }
    };
    printed.0.take(child.stdout.as_mut());
    printed.1.take(child.stderr.as_mut());
    if status.success() {
        Ran::Well(printed.0.text().trim().to_owned())
    } else {
        Ran::Badly(printed.1.why(status.to_string()))
    }
}

/// Result of [`ask`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CodexReply {
    /// The first line of output.
    Line(String),
    /// The program exited or could not be started; the reason.
    Ended(String),
    /// No line before the timeout.
    TooSlow,
}

/// Starts `command`, writes a short request to its stdin, waits at most `wait_max` for a line on its stdout, and kills it.
pub(super) fn ask(command: &mut Command, request: &str, wait_max: Duration) -> CodexReply {
    let kept_back = match KeptBack::begin() {
        Ok(kept_back) => kept_back,
        Err(error) => return CodexReply::Ended(format!("install signal handlers: {error}")),
    };
    let asked = ask_in_group(command, request, wait_max, kept_back);
    kept_back.let_go_and_obey();
    asked
}

fn ask_in_group(command: &mut Command, request: &str, wait_max: Duration, kept_back: &KeptBack) -> CodexReply {
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return CodexReply::Ended(format!("it cannot be started: {error}")),
    };
    // A short request fits into the pipe. If the program has exited already, that is noticed below.
    let written = child.stdin.as_mut().map(|stdin| stdin.write_all(request.as_bytes()));
    let mut printed = (Printed::default(), Printed::default());
    let began = Instant::now();
    let mut is_reaped = false;
    let asked = loop {
        // The status is read before the last output, so that no output from before the exit is lost.
        let status = child.try_wait();
        is_reaped |= matches!(status, Ok(Some(_)));
        printed.0.take(child.stdout.as_mut());
        printed.1.take(child.stderr.as_mut());
        if let Some(line) = printed.0.first_line() {
            break CodexReply::Line(line);
        }
        match status {
            Ok(Some(status)) => break CodexReply::Ended(printed.1.why(status.to_string())),
            Ok(None) if began.elapsed() >= wait_max || kept_back.has_come() => break CodexReply::TooSlow,
            Ok(None) => std::thread::park_timeout(LOOK_WAIT),
            Err(error) => break CodexReply::Ended(format!("it cannot be waited for: {error}")),
        }
    };
    drop(written);
    if !is_reaped {
        kill_group_of(&mut child);
    }
    asked
}

/// The first bytes of a stream; later bytes are read and dropped.
#[derive(Debug, Default)]
struct Printed(Vec<u8>);

impl Printed {
    /// Reads the available bytes and never blocks: a process that was left running may hold the other end open.
    fn take(&mut self, stream: Option<&mut (impl Read + AsFd)>) {
        let Some(stream) = stream else { return };
        let _ = never_block(&stream);
        let mut buffer = [0; 4096];
        // The limit lets the caller check a program that prints without end.
        for _ in 0..ROUND_READS_MAX {
            let read = match stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            let room = PRINTED_BYTES_MAX.saturating_sub(self.0.len());
            self.0.extend_from_slice(&buffer[..read.min(room)]);
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }

    /// The first line, or the part that was kept.
    fn first_line(&self) -> Option<String> {
        let end = self.0.iter().position(|byte| *byte == b'\n');
        let end = end.or_else(|| (self.0.len() == PRINTED_BYTES_MAX).then_some(PRINTED_BYTES_MAX))?;
        Some(String::from_utf8_lossy(&self.0[..end]).into_owned())
    }

    /// How the program ended, with the first lines of its output.
    fn why(&self, status: String) -> String {
        let text = self.text();
        let lines: Vec<&str> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).take(OUTPUT_LINES_MAX).collect();
        let shown: String = lines.join("; ").chars().take(OUTPUT_CHARS_MAX).collect();
        if shown.is_empty() { status } else { format!("{status}: {shown}") }
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

#[cfg(test)]
mod probe_tests {
    use super::*;

    #[test]
    fn programs_time_out() {
        let sh = |script: &str| run(Command::new("sh").args(["-c", script]), Duration::from_secs(20));
        assert_eq!(sh("echo hi; sleep 60 &"), Ran::Well("hi".to_owned()));
        assert!(matches!(sh("exit 3"), Ran::Badly(why) if why.contains('3')));
        assert_eq!(run(Command::new("sleep").arg("60"), Duration::from_millis(30)), Ran::TooSlow);
        assert!(matches!(run(&mut Command::new("/nowhere"), Duration::from_secs(1)), Ran::Badly(_)));
    }

    #[test]
    fn slow_launcher_is_killed_with_its_children() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let pid_file = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", pid_file.display());
        assert_eq!(run(Command::new("sh").args(["-c", &script]), Duration::from_secs(3)), Ran::TooSlow);
        let pid = std::fs::read_to_string(pid_file).expect("it was begun");
        let stat = format!("/proc/{}/stat", pid.trim());
        let began = Instant::now();
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(began.elapsed() < Duration::from_secs(60), "it runs on");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}
