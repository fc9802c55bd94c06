//! Where models may write, as far as the messages tell. A rule needs this before it accepts a command, because the model may
//! have put another program, or a start-up file of the shell, in such a place.
//!
//! Places are only added: a file that the model could change once may stay changed. The places of all threads count for each
//! thread. If it is unclear where one model may write, or could, no rule accepts anything in any thread until the server ends.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;
use serde_json::value::RawValue;

use super::rules::{Workspace, is_whole_path};
use crate::protocol::review_widens;
use crate::wire::{Members, text};

/// Threads that are remembered; one more makes all others unknown.
const THREADS_MAX: usize = 1_024;

/// Longest id of a thread, in bytes. Those of codex have 36.
const ID_BYTES_MAX: usize = 256;

/// Places that are remembered.
const PLACES_MAX: usize = 256;

/// Longest path, in bytes. Source: `PATH_MAX` of Linux.
const PATH_BYTES_MAX: usize = 4_096;

/// Longest message about a thread that is read when no rule accepts anything, in bytes.
const MESSAGE_BYTES_MAX: usize = 256 << 10;

/// Codex's own permission profiles that its sandbox policy describes in full.
const PROFILES: [&str; 2] = [":read-only", ":workspace"];

/// A thread that no message has described, such as that of a sub-agent.
const UNKNOWN: &str = "the sandbox of this thread is not known";

const EVERYWHERE: &str = "the model of a thread may write everywhere";
const UNCLEAR: &str = "the folder or the sandbox of a thread is not known";
const PROFILE: &str = "the permission profile of a thread is not known";
const WIDER: &str = "the model of a thread has asked for wider permissions";
const ADOPTED: &str = "the hub has taken over a running server, and does not know its earlier threads";
const UNREAD: &str = "a long message was not read, and may have changed where the model of a thread may write";
const TOO_MANY: &str = "the models may write in too many places";

/// Why it is unclear where models may write.
type Why = &'static str;

#[derive(Debug, Default)]
pub(super) struct Workspaces {
    threads: HashMap<String, Thread>,
    places: BTreeSet<String>,
    /// Why a model may have written elsewhere too.
    unclear: Option<Why>,
}

#[derive(Debug, Default)]
struct Thread {
    cwd: Option<String>,
    has_sandbox: bool,
}

impl Workspaces {
    /// The hub has taken over a running server.
    pub(super) fn server_adopted(&mut self) {
        self.unclear.get_or_insert(ADOPTED);
    }

    /// A line is too long to be read.
    pub(super) fn line_skipped(&mut self) {
        self.unclear.get_or_insert(UNREAD);
    }

    /// The server asks for more permissions in a thread. Whether they are granted is not followed.
    pub(super) fn asks_for_more(&mut self) {
        self.unclear.get_or_insert(WIDER);
    }

    /// Codex's own reviewer decides on an action. How it decides is not followed.
    pub(super) fn reviewed(&mut self, params: &RawValue) {
        if self.unclear.is_none() && review_widens(params) {
            self.asks_for_more();
        }
    }

    /// The server answers a call that opens a thread.
    pub(super) fn thread_opened(&mut self, result: Option<&RawValue>, is_needed: bool) {
        let Some(result) = result else { return };
        self.read(result, is_needed, |workspaces, result| {
            let thread_id = result.get("thread").and_then(Members::of).and_then(|thread| thread.text("id"));
            let sandbox = result.get("sandbox").filter(not_null).ok_or(UNCLEAR)?;
            workspaces.learn(thread_id.ok_or(UNCLEAR)?, &result, Some(sandbox))
        });
    }

    /// A call changes the settings of a thread: a turn with its own folder, for example.
    pub(super) fn settings_called(&mut self, params: Option<&RawValue>, is_needed: bool) {
        let Some(params) = params else { return };
        self.read(params, is_needed, |workspaces, params| {
            workspaces.learn(params.text("threadId").ok_or(UNCLEAR)?, &params, params.get("sandboxPolicy"))
        });
    }

    /// The server reports the settings of a thread.
    pub(super) fn settings_reported(&mut self, params: &RawValue) {
        self.read(params, true, |workspaces, params| {
            let settings = params.get("threadSettings").and_then(Members::of).ok_or(UNCLEAR)?;
            let thread_id = params.text("threadId").ok_or(UNCLEAR)?;
            workspaces.learn(thread_id, &settings, settings.get("sandboxPolicy"))
        });
    }

    /// The folders of a thread and all places where models may write.
    ///
    /// # Errors
    ///
    /// Why they are not known.
    pub(super) fn of(&self, thread_id: Option<&str>) -> Result<Workspace, String> {
        if let Some(why) = self.unclear {
            return Err(format!("{why}; rules accept again once the server has been restarted"));
        }
        let thread = thread_id.and_then(|thread_id| self.threads.get(thread_id)).filter(|thread| thread.has_sandbox);
        let cwd = thread.and_then(|thread| thread.cwd.clone()).ok_or(UNKNOWN)?;
        Ok(Workspace { cwd, places: self.places.iter().cloned().collect() })
    }

    /// Reads a message about a thread, unless nothing that it says matters any more.
    fn read(
        &mut self,
        message: &RawValue,
        is_needed: bool,
        learn: impl FnOnce(&mut Workspaces, Members<'_>) -> Result<(), Why>,
    ) {
        if self.unclear.is_some() {
            return;
        }
        let is_read = is_needed || message.get().len() <= MESSAGE_BYTES_MAX;
        let members = Some(message).filter(|_| is_read).and_then(Members::of).ok_or(UNREAD);
        self.unclear = members.and_then(|members| learn(self, members)).err();
    }

    fn learn(&mut self, thread_id: String, told: &Members<'_>, sandbox: Option<&RawValue>) -> Result<(), Why> {
        let given = |name: &str| told.get(name).filter(not_null);
        let is_whole_profile = |profile| {
            let id = Members::of(profile).and_then(|profile| profile.text("id"));
            id.is_some_and(|id| PROFILES.contains(&id.as_str()))
        };
        if given("permissions").is_some() || given("activePermissionProfile").is_some_and(|of| !is_whole_profile(of)) {
            return Err(PROFILE);
        }
        let sandbox = sandbox.filter(not_null);
        let mut places = sandbox.map(writable_roots).transpose()?.unwrap_or_default();
        let cwd = given("cwd").map(|cwd| text(cwd).ok_or(UNCLEAR)).transpose()?;
        places.extend(cwd.clone());
        for (name, is_path) in [("runtimeWorkspaceRoots", true), ("environments", false)] {
            if let Some(value) = given(name) {
                paths_in(&serde_json::from_str(value.get()).map_err(|_| UNCLEAR)?, is_path, &mut places);
            }
        }
        let is_clear = |place: &String| place.len() <= PATH_BYTES_MAX && is_whole_path(place);
        if thread_id.len() > ID_BYTES_MAX || !places.iter().all(is_clear) {
            return Err(UNCLEAR);
        }
        self.places.extend(places);
        if self.places.len() > PLACES_MAX {
            self.places.clear();
            return Err(TOO_MANY);
        }
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&thread_id) {
            self.threads.clear();
        }
        let thread = self.threads.entry(thread_id).or_default();
        thread.cwd = cwd.or(thread.cwd.take());
        thread.has_sandbox |= sandbox.is_some();
        Ok(())
    }
}

fn not_null(value: &&RawValue) -> bool {
    value.get() != "null"
}

/// The folders that a sandbox policy adds to the thread's own.
fn writable_roots(policy: &RawValue) -> Result<Vec<String>, Why> {
    let policy: Value = serde_json::from_str(policy.get()).map_err(|_| UNCLEAR)?;
    match (policy["type"].as_str(), &policy["writableRoots"]) {
        (Some("readOnly"), _) | (Some("workspaceWrite"), Value::Null) => Ok(Vec::new()),
        (Some("workspaceWrite"), Value::Array(roots)) => {
            roots.iter().map(|root| root.as_str().map(str::to_owned).ok_or(UNCLEAR)).collect()
        }
        (Some("dangerFullAccess" | "externalSandbox"), _) => Err(EVERYWHERE),
        (_, _) => Err(UNCLEAR),
    }
}

/// The paths in a list of roots or of environments: all absolute ones, and relative ones in members for paths.
fn paths_in(value: &Value, is_path: bool, paths: &mut Vec<String>) {
    match value {
        Value::String(text) if is_path || text.starts_with('/') => paths.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| paths_in(value, is_path, paths)),
        Value::Object(members) => {
            let is_path = |name: &str| ["cwd", "runtimeWorkspaceRoots"].contains(&name);
            members.iter().for_each(|(name, value)| paths_in(value, is_path(name), paths));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> &RawValue {
        serde_json::from_str(json).expect("BUG: a test gives JSON")
    }

    fn opened(sandbox: &str) -> Workspaces {
        let mut workspaces = Workspaces::default();
        let result =
            format!(r#"{{"thread":{{"id":"t"}},"cwd":"/p","sandbox":{sandbox},"activePermissionProfile":null}}"#);
        workspaces.thread_opened(Some(raw(&result)), true);
        workspaces
    }

    fn places(workspaces: &Workspaces) -> Result<String, String> {
        workspaces.of(Some("t")).map(|of| format!("{}: {}", of.cwd, of.places.join(" ")))
    }

    fn why(workspaces: &Workspaces) -> &'static str {
        workspaces.unclear.unwrap_or_default()
    }

    const READ_ONLY: &str = r#"{"type":"readOnly","networkAccess":false}"#;

    #[test]
    fn sandbox_tells_where_the_model_writes() {
        let check = |sandbox: &str, expect: Result<&str, &str>| {
            let workspaces = opened(sandbox);
            assert_eq!(places(&workspaces).map_err(|_| why(&workspaces)), expect.map(str::to_owned), "{sandbox}");
        };
        check(READ_ONLY, Ok("/p: /p"));
        check(r#"{"type":"workspaceWrite","writableRoots":["/a","/b"]}"#, Ok("/p: /a /b /p"));
        check(r#"{"type":"workspaceWrite"}"#, Ok("/p: /p"));
        check(r#"{"type":"dangerFullAccess"}"#, Err(EVERYWHERE));
        check(r#"{"type":"externalSandbox"}"#, Err(EVERYWHERE));
        for unclear in [r#"{"type":"new"}"#, "{}", "7", r#"{"type":"workspaceWrite","writableRoots":[7]}"#, "null"] {
            check(unclear, Err(UNCLEAR));
        }
        for relative in [r#"["a"]"#, r#"["/a/../b"]"#, r#"[""]"#, r#"["/a",".."]"#] {
            check(&format!(r#"{{"type":"workspaceWrite","writableRoots":{relative}}}"#), Err(UNCLEAR));
        }
    }

    #[test]
    fn places_are_only_added() {
        let mut workspaces = opened(READ_ONLY);
        let called = |workspaces: &mut Workspaces, params: &str| workspaces.settings_called(Some(raw(params)), true);
        called(
            &mut workspaces,
            r#"{"threadId":"t","cwd":"/q","sandboxPolicy":{"type":"workspaceWrite","writableRoots":["/a"]}}"#,
        );
        called(&mut workspaces, r#"{"threadId":"t","cwd":null,"sandboxPolicy":null,"input":[]}"#);
        assert_eq!(places(&workspaces).as_deref(), Ok("/q: /a /p /q"));
        workspaces.settings_reported(raw(
            r#"{"threadId":"t","threadSettings":{"cwd":"/p","sandboxPolicy":{"type":"readOnly"},"activePermissionProfile":{"id":":workspace"},"environments":[{"environmentId":"local","cwd":"/p","runtimeWorkspaceRoots":["/r"]}]}}"#,
        ));
        assert_eq!(places(&workspaces).as_deref(), Ok("/p: /a /p /q /r"));
        // Another thread of the same server.
        called(&mut workspaces, r#"{"threadId":"other","cwd":"/o"}"#);
        assert_eq!(places(&workspaces).as_deref(), Ok("/p: /a /o /p /q /r"));
        assert!(workspaces.of(Some("other")).is_err() && workspaces.of(None).is_err());
    }

    #[test]
    fn what_is_unclear_in_one_thread_counts_for_all() {
        let check = |step: fn(&mut Workspaces), expect: &str| {
            let mut workspaces = opened(READ_ONLY);
            step(&mut workspaces);
            let fine = r#"{"thread":{"id":"t"},"cwd":"/p","sandbox":{"type":"readOnly"}}"#;
            workspaces.thread_opened(Some(raw(fine)), true);
            // Enough threads to forget all earlier ones.
            for number in 0..=THREADS_MAX {
                workspaces.settings_called(Some(raw(&format!(r#"{{"threadId":"{number}"}}"#))), true);
            }
            workspaces.thread_opened(Some(raw(fine)), true);
            let told = places(&workspaces).expect_err("it is unclear");
            assert!(told.starts_with(expect) && told.ends_with("once the server has been restarted"), "{told}");
        };
        fn called(workspaces: &mut Workspaces, rest: &str) {
            workspaces.settings_called(Some(raw(&format!(r#"{{"threadId":"other",{rest}}}"#))), true);
        }
        check(|of| called(of, r#""sandboxPolicy":{"type":"dangerFullAccess"}"#), EVERYWHERE);
        check(|of| called(of, r#""permissions":"mine""#), PROFILE);
        check(|of| called(of, r#""cwd":"../x""#), UNCLEAR);
        check(|of| called(of, r#""cwd":7"#), UNCLEAR);
        check(|of| called(of, r#""runtimeWorkspaceRoots":["x"]"#), UNCLEAR);
        check(|of| called(of, r#""environments":[{"environmentId":"local","cwd":"x"}]"#), UNCLEAR);
        check(|of| called(of, &format!(r#""cwd":"/{}""#, "x".repeat(PATH_BYTES_MAX))), UNCLEAR);
        check(Workspaces::asks_for_more, WIDER);
        check(Workspaces::server_adopted, ADOPTED);
        check(Workspaces::line_skipped, UNREAD);
        check(|of| of.reviewed(raw(r#"{"threadId":"o","action":{"type":"requestPermissions"}}"#)), WIDER);
        check(
            |of| {
                of.settings_reported(raw(
                    r#"{"threadId":"o","threadSettings":{"cwd":"/p","sandboxPolicy":{"type":"readOnly"},"activePermissionProfile":{"id":"mine"}}}"#,
                ));
            },
            PROFILE,
        );
        check(
            |of| {
                let id = "x".repeat(ID_BYTES_MAX + 1);
                of.settings_called(Some(raw(&format!(r#"{{"threadId":"{id}"}}"#))), true);
            },
            UNCLEAR,
        );
    }

    #[test]
    fn memory_is_bounded_and_an_overflow_is_no_permission() {
        let mut workspaces = opened(READ_ONLY);
        for number in 0..2 * THREADS_MAX {
            workspaces.settings_called(Some(raw(&format!(r#"{{"threadId":"{number}"}}"#))), true);
        }
        assert!(workspaces.threads.len() <= THREADS_MAX);
        assert!(places(&workspaces).is_err() && workspaces.unclear.is_none());
        for number in 0..2 * PLACES_MAX {
            workspaces.settings_called(Some(raw(&format!(r#"{{"threadId":"t","cwd":"/{number}"}}"#))), true);
        }
        assert_eq!((workspaces.places.len(), why(&workspaces)), (0, TOO_MANY));
    }

    #[test]
    fn message_that_is_not_read_is_no_permission() {
        let long = "x".repeat(MESSAGE_BYTES_MAX);
        let opens =
            format!(r#"{{"thread":{{"id":"t","preview":"{long}"}},"cwd":"/p","sandbox":{{"type":"readOnly"}}}}"#);
        let turn = format!(r#"{{"threadId":"t","input":["{long}"]}}"#);
        for (is_needed, expect) in [(false, UNREAD), (true, "")] {
            let mut workspaces = Workspaces::default();
            workspaces.thread_opened(Some(raw(&opens)), is_needed);
            assert_eq!((places(&workspaces).is_ok(), why(&workspaces)), (is_needed, expect));
            let mut workspaces = opened(READ_ONLY);
            workspaces.settings_called(Some(raw(&turn)), is_needed);
            assert_eq!((places(&workspaces).is_ok(), why(&workspaces)), (is_needed, expect));
            // Short messages are read in any case.
            let mut workspaces = Workspaces::default();
            workspaces.thread_opened(Some(raw(&opens.replace(&long, ""))), is_needed);
            assert!(places(&workspaces).is_ok());
        }
    }
}
