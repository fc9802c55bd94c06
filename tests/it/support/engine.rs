//! A context engine for tests: a shell script that logs its calls and gives scripted answers.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::eventually;
use super::shim::Home;

/// An engine in its own folder.
pub struct Engine {
    dir: PathBuf,
}

/// The methods of the engine in most tests.
pub const ALL: &str = "bootstrap maintain assemble afterTurn ingestBatch ingest compact";

impl Engine {
    /// An engine that lists `methods` and runs the given script for a method, with the call's id in `$id`; it answers
    /// all other calls with an empty object.
    pub fn new(home: &Home, methods: &str, does: &[(&str, &str)]) -> Engine {
        Engine::of_kind(home, methods, "false", does)
    }

    /// An engine that owns compaction.
    pub fn that_owns_compaction(home: &Home, does: &[(&str, &str)]) -> Engine {
        Engine::of_kind(home, ALL, "true", does)
    }

    fn of_kind(home: &Home, methods: &str, owns: &str, does: &[(&str, &str)]) -> Engine {
        let engine = Engine { dir: home.beside().join("engine") };
        fs::create_dir_all(&engine.dir).expect("a folder");
        let listed = methods.split(' ').map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(",");
        let arms: String = does.iter().map(|(method, does)| format!("  {method}) {does};;\n")).collect();
        let script = format!(
            r#"cd "{dir}"
while IFS= read -r line; do
  printf '%s\n' "$line" >> log
  id=${{line#*\"id\":}}; id=${{id%%,*}}
  method=${{line#*\"method\":\"}}; method=${{method%%\"*}}
  case "$method" in
{arms}  initialize) printf '{{"id":%s,"result":{{"info":{{"id":"lab","name":"Lab","version":"1","ownsCompaction":{owns}}},"methods":[{listed}]}}}}\n' "$id";;
  *) printf '{{"id":%s,"result":{{}}}}\n' "$id";;
  esac
done
"#,
            dir = engine.dir.display()
        );
        fs::write(engine.dir.join("engine.sh"), script).expect("a file");
        engine
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The settings that configure it.
    pub fn config(&self, deadline_ms: u64) -> String {
        let path = self.dir.join("engine.sh");
        format!("[context_engine]\ncommand = [\"sh\", \"{}\"]\ndeadline_ms = {deadline_ms}\n", path.display())
    }

    /// Its calls so far: method and parameters.
    pub fn asked(&self) -> Vec<(String, Value)> {
        let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        // The last line may be incomplete at this moment.
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        whole
            .lines()
            .map(|line| {
                let call: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("no call: {line}"));
                (call["method"].as_str().expect("a method").to_owned(), call["params"].clone())
            })
            .collect()
    }

    /// The methods of its calls.
    pub fn methods(&self) -> Vec<String> {
        self.asked().into_iter().map(|(method, _)| method).collect()
    }

    /// Waits until a method was called for the `count`th time; returns the parameters.
    pub fn asked_for(&self, method: &str, count: usize) -> Value {
        eventually(&format!("{method} {count}"), || {
            self.asked().into_iter().filter(|(asked, _)| asked == method).nth(count - 1).map(|(_, params)| params)
        })
    }

    /// Waits until it has answered `initialize`.
    pub fn is_ready(&self, session: &Path) {
        eventually("the engine", || {
            let answer = codex_shim::testing::control::client::get(session, "/sessions/self").ok()?;
            let document: Value = serde_json::from_slice(&answer.body).ok()?;
            document["context_engine"]["running"].as_bool().filter(|running| *running)
        });
    }
}

/// A script that answers `assemble` with these messages as JSON, and with `more`.
pub fn assembles(messages: &str, more: &str) -> String {
    format!(r#"printf '{{"id":%s,"result":{{"messages":{messages},"estimatedTokens":1{more}}}}}\n' "$id""#)
}
