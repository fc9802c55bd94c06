//! The real codex: whether it is there, which it is, and whether it still speaks as we know it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::Check;
use super::probe::{Ran, run};
use crate::config::{Environment, Settings};
use crate::relay::locate;

/// How long codex may take to tell its version; a launcher in Node takes a moment.
const VERSION_WAIT_MAX: Duration = Duration::from_secs(7);

/// How long it may take to write its schema.
const SCHEMA_WAIT_MAX: Duration = Duration::from_secs(8);

/// What we look into, change or make ourselves, by the file of the schema that has it.
const TOUCHED: [(&str, &[&str]); 3] = [
    (
        "ClientRequest.json",
        &[
            "initialize",
            "thread/start",
            "thread/resume",
            "thread/read",
            "thread/list",
            "thread/fork",
            "thread/inject_items",
            "thread/compact/start",
            "turn/start",
            "turn/steer",
            "turn/interrupt",
        ],
    ),
    (
        "ServerRequest.json",
        &[
            "item/commandExecution/requestApproval",
            "item/fileChange/requestApproval",
            "item/permissions/requestApproval",
            "item/tool/requestUserInput",
            "mcpServer/elicitation/request",
        ],
    ),
    (
        "ServerNotification.json",
        &[
            "error",
            "item/started",
            "item/completed",
            "item/agentMessage/delta",
            "serverRequest/resolved",
            "thread/status/changed",
            "thread/tokenUsage/updated",
            "turn/completed",
            "turn/diff/updated",
            "turn/plan/updated",
            "turn/started",
        ],
    ),
];

pub(super) fn checks(settings: &Settings, environment: &Environment, checks: &mut Vec<Check>) {
    let program = match locate::codex(settings, environment) {
        Ok(program) => program,
        Err(error) => {
            checks.push(Check::broken(
                "codex",
                error.to_string(),
                "install it with `npm install -g @openai/codex`, or name it",
            ));
            return;
        }
    };
    let at = program.display();
    let ran = run(Command::new(&program).arg("--version"), VERSION_WAIT_MAX);
    let is_too_slow = ran == Ran::TooSlow;
    checks.push(match ran {
        Ran::Well(version) if version.starts_with("codex-shim ") => Check::broken(
            "codex",
            format!("{at} leads back to codex-shim: its version is `{version}`"),
            "name the real one with CODEX_SHIM_CODEX or `codex` in config.toml",
        ),
        Ran::Well(version) => Check::ok("codex", format!("{at}: {version}")),
        Ran::Badly(why) => {
            Check::broken("codex", format!("{at} --version: {why}"), "reinstall codex, or name another one")
        }
        Ran::TooSlow => {
            let found = format!("{at} --version has not ended in {VERSION_WAIT_MAX:?}");
            Check::broken("codex", found, "run it by hand and see what it waits for")
        }
    });
    // Whoever does not tell its version tells no protocol in time.
    if !is_too_slow {
        checks.push(protocol(&program));
    }
    checks.push(on_path(environment));
}

/// Compares what we touch with the schema that this codex writes.
fn protocol(program: &Path) -> Check {
    const NAME: &str = "protocol";
    const UNTOLD: &str = "everything is relayed all the same; what an older codex lacks is told when it is met";
    let folder = std::env::temp_dir().join(format!("codex-shim-schema-{}", std::process::id()));
    if let Err(error) = std::fs::create_dir(&folder) {
        return Check::note(NAME, format!("create {}: {error}", folder.display()), UNTOLD);
    }
    let mut command = Command::new(program);
    command.args(["app-server", "generate-json-schema", "--experimental", "--out"]).arg(&folder);
    let ran = run(&mut command, SCHEMA_WAIT_MAX);
    let drifted = drift(&folder);
    let _ = std::fs::remove_dir_all(&folder);
    match (ran, drifted) {
        (Ran::Well(_), Some(missing)) if missing.is_empty() => {
            let touched: usize = TOUCHED.iter().map(|(_, methods)| methods.len()).sum();
            Check::ok(NAME, format!("this codex knows all {touched} methods that we look into or call"))
        }
        (Ran::Well(_), Some(missing)) => {
            let remedy = "what hangs on them does not work with this codex; everything else does, and all is relayed";
            Check::note(NAME, format!("this codex does not know {}", missing.join(", ")), remedy)
        }
        (Ran::Well(_) | Ran::Badly(_) | Ran::TooSlow, _) => Check::note(NAME, "this codex writes no schema", UNTOLD),
    }
}

/// The methods that are not in the schema in `folder`; `None` where there is none.
fn drift(folder: &Path) -> Option<Vec<&'static str>> {
    let mut missing = Vec::new();
    for (file, methods) in TOUCHED {
        let schema: Value = serde_json::from_slice(&std::fs::read(folder.join(file)).ok()?).ok()?;
        let mut known = BTreeSet::new();
        collect_methods(&schema, &mut known);
        missing.extend(methods.iter().filter(|method| !known.contains(**method)));
    }
    Some(missing)
}

/// The methods of a schema: `{"method": {"enum": [NAME]}}` among the properties of each of its kinds.
fn collect_methods<'a>(schema: &'a Value, known: &mut BTreeSet<&'a str>) {
    let kinds = schema["oneOf"].as_array().into_iter().flatten();
    known.extend(
        kinds
            .flat_map(|kind| kind["properties"]["method"]["enum"].as_array().into_iter().flatten())
            .filter_map(Value::as_str),
    );
}

/// Whether the first `codex` on `PATH` is we ourselves.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_schema_lacks_is_named() {
        let folder = tempfile::tempdir().expect("BUG: a temporary folder");
        assert_eq!(drift(folder.path()), None);
        for (file, methods) in TOUCHED {
            let kinds: Vec<Value> = methods
                .iter()
                .filter(|method| **method != "turn/steer")
                .map(|method| serde_json::json!({"properties": {"method": {"enum": [method]}}}))
                .collect();
            let schema = serde_json::json!({ "oneOf": kinds }).to_string();
            std::fs::write(folder.path().join(file), schema).expect("write");
        }
        assert_eq!(drift(folder.path()), Some(vec!["turn/steer"]));
    }
}
