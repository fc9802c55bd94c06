//! Where models may write, as far as the messages tell. A rule needs this before it accepts a command, because the model may
//! have put another program, or a start-up file of the shell, in such a place.
//!
//! Places are only added: a file that the model could change once may stay changed. The places of all threads count for each
//! thread. No rule accepts commands of a thread whose folder and sandbox are not known.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;
use serde_json::value::RawValue;

use super::rules::{Workspace, is_whole_path};
use crate::wire::{Members, text};

/// Threads that are remembered; one more makes all others unknown.
const THREADS_MAX: usize = 1_024;

/// Places that are remembered; beyond that, no rule accepts anything.
const PLACES_MAX: usize = 256;

/// Longest answer about a thread that is read when no rule accepts anything, in bytes.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// Codex's own permission profiles that its sandbox policy describes in full.
const PROFILES: [&str; 2] = [":read-only", ":workspace"];

const EVERYWHERE: &str = "the model of this thread may write everywhere";
const UNKNOWN: &str = "the sandbox of this thread is not known";
const PROFILE: &str = "the permission profile of this thread is not known";
const WIDER: &str = "the model of this thread has asked for wider permissions";

#[derive(Debug, Default)]
pub(super) struct Workspaces {
    threads: HashMap<String, Thread>,
    places: BTreeSet<String>,
    has_too_many_places: bool,
}

#[derive(Debug, Default)]
struct Thread {
    cwd: Option<String>,
    has_sandbox: bool,
    /// Why its model may write elsewhere too.
    unclear: Option<&'static str>,
}

impl Workspaces {
    /// The server answers a call that opens a thread.
    pub(super) fn thread_opened(&mut self, result: Option<&RawValue>, is_needed: bool) {
        let Some(result) = result.filter(|result| is_needed || result.get().len() <= ANSWER_BYTES_MAX) else { return };
        let Some(result) = Members::of(result) else { return };
        let thread_id = result.get("thread").and_then(Members::of).and_then(|thread| thread.text("id"));
        if let Some(thread_id) = thread_id {
            self.learn(&thread_id, &result, result.get("sandbox"));
        }
    }

    /// A call changes the settings of a thread: a turn with its own folder, for example.
    pub(super) fn settings_called(&mut self, params: Option<&RawValue>) {
        let Some(params) = params.and_then(Members::of) else { return };
        if let Some(thread_id) = params.text("threadId") {
            self.learn(&thread_id, &params, params.get("sandboxPolicy"));
        }
    }

    /// The server reports the settings of a thread.
    pub(super) fn settings_reported(&mut self, params: &RawValue) {
        let Some(params) = Members::of(params) else { return };
        let settings = params.get("threadSettings").and_then(Members::of);
        if let (Some(thread_id), Some(settings)) = (params.text("threadId"), settings) {
            self.learn(&thread_id, &settings, settings.get("sandboxPolicy"));
        }
    }

    /// The server asks for more permissions in a thread. Whether they are granted is not followed.
    pub(super) fn asks_for_more(&mut self, thread_id: Option<&str>) {
        if let Some(thread_id) = thread_id {
            self.thread(thread_id).unclear.get_or_insert(WIDER);
        }
    }

    /// The folders of a thread and all places where models may write.
    ///
    /// # Errors
    ///
    /// Why they are not known.
    pub(super) fn of(&self, thread_id: Option<&str>) -> Result<Workspace, String> {
        let thread = thread_id.and_then(|thread_id| self.threads.get(thread_id)).ok_or(UNKNOWN)?;
        match (thread.unclear, &thread.cwd) {
            (Some(why), _) => Err(why.to_owned()),
            (None, Some(cwd)) if thread.has_sandbox && !self.has_too_many_places => {
                Ok(Workspace { cwd: cwd.clone(), places: self.places.iter().cloned().collect() })
            }
            (None, _) => Err(UNKNOWN.to_owned()),
        }
    }

    fn learn(&mut self, thread_id: &str, told: &Members<'_>, sandbox: Option<&RawValue>) {
        let not_null = |name: &str| told.get(name).filter(|value| value.get() != "null");
        let mut unclear = not_null("permissions").map(|_| PROFILE);
        if let Some(profile) = not_null("activePermissionProfile") {
            let id = Members::of(profile).and_then(|profile| profile.text("id"));
            if id.is_none_or(|id| !PROFILES.contains(&id.as_str())) {
                unclear = Some(PROFILE);
            }
        }
        let sandbox = sandbox.filter(|value| value.get() != "null");
        let mut places = match sandbox.map(writable_roots) {
            None => Vec::new(),
            Some(Ok(roots)) => roots,
            Some(Err(why)) => {
                unclear = Some(why);
                Vec::new()
            }
        };
        let cwd = not_null("cwd").map(text);
        match &cwd {
            Some(Some(cwd)) if is_whole_path(cwd) => places.push(cwd.clone()),
            Some(_) => unclear = Some(UNKNOWN),
            None => {}
        }
        for name in ["runtimeWorkspaceRoots", "environments"] {
            match not_null(name).map(|value| serde_json::from_str::<Value>(value.get())) {
                None => {}
                Some(Ok(value)) => paths_in(&value, &mut places),
                Some(Err(_)) => unclear = Some(UNKNOWN),
            }
        }
        for place in places {
            self.add_place(place);
        }
        let thread = self.thread(thread_id);
        thread.cwd = cwd.flatten().or(thread.cwd.take());
        thread.has_sandbox |= sandbox.is_some();
        thread.unclear = thread.unclear.or(unclear);
    }

    fn add_place(&mut self, place: String) {
        if self.places.len() < PLACES_MAX || self.places.contains(&place) {
            self.places.insert(place);
        } else {
            self.has_too_many_places = true;
        }
    }

    fn thread(&mut self, thread_id: &str) -> &mut Thread {
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(thread_id) {
            self.threads.clear();
        }
        self.threads.entry(thread_id.to_owned()).or_default()
    }
}

/// The folders that a sandbox policy adds to the thread's own.
fn writable_roots(policy: &RawValue) -> Result<Vec<String>, &'static str> {
    let policy: Value = serde_json::from_str(policy.get()).map_err(|_| UNKNOWN)?;
    match (policy["type"].as_str(), &policy["writableRoots"]) {
        (Some("readOnly"), _) | (Some("workspaceWrite"), Value::Null) => Ok(Vec::new()),
        (Some("workspaceWrite"), Value::Array(roots)) => {
            roots.iter().map(|root| root.as_str().map(str::to_owned).ok_or(UNKNOWN)).collect()
        }
        (Some("dangerFullAccess" | "externalSandbox"), _) => Err(EVERYWHERE),
        (_, _) => Err(UNKNOWN),
    }
}

/// All absolute paths in a list of roots or of environments.
fn paths_in(value: &Value, paths: &mut Vec<String>) {
    match value {
        Value::String(text) if text.starts_with('/') => paths.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| paths_in(value, paths)),
        Value::Object(members) => members.values().for_each(|value| paths_in(value, paths)),
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

    const READ_ONLY: &str = r#"{"type":"readOnly","networkAccess":false}"#;

    #[test]
    fn sandbox_tells_where_the_model_writes() {
        let check = |sandbox: &str, expect: Result<&str, &str>| {
            let expect = expect.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(places(&opened(sandbox)), expect, "{sandbox}");
        };
        check(READ_ONLY, Ok("/p: /p"));
        check(r#"{"type":"workspaceWrite","writableRoots":["/a","/b"]}"#, Ok("/p: /a /b /p"));
        check(r#"{"type":"workspaceWrite"}"#, Ok("/p: /p"));
        check(r#"{"type":"dangerFullAccess"}"#, Err(EVERYWHERE));
        check(r#"{"type":"externalSandbox"}"#, Err(EVERYWHERE));
        for unclear in [r#"{"type":"new"}"#, "{}", "7", r#"{"type":"workspaceWrite","writableRoots":[7]}"#, "null"] {
            check(unclear, Err(UNKNOWN));
        }
    }

    #[test]
    fn places_are_only_added() {
        let mut workspaces = opened(READ_ONLY);
        workspaces.settings_called(Some(raw(
            r#"{"threadId":"t","cwd":"/q","sandboxPolicy":{"type":"workspaceWrite","writableRoots":["/a"]}}"#,
        )));
        workspaces.settings_called(Some(raw(r#"{"threadId":"t","cwd":null,"sandboxPolicy":null,"input":[]}"#)));
        assert_eq!(places(&workspaces).as_deref(), Ok("/q: /a /p /q"));
        workspaces.settings_reported(raw(
            r#"{"threadId":"t","threadSettings":{"cwd":"/p","sandboxPolicy":{"type":"readOnly"},"activePermissionProfile":{"id":":workspace"},"environments":[{"environmentId":"local","cwd":"/p","runtimeWorkspaceRoots":["/r"]}]}}"#,
        ));
        assert_eq!(places(&workspaces).as_deref(), Ok("/p: /a /p /q /r"));
        // Another thread of the same server.
        workspaces.settings_called(Some(raw(r#"{"threadId":"other","cwd":"/o"}"#)));
        assert_eq!(places(&workspaces).as_deref(), Ok("/p: /a /o /p /q /r"));
        assert!(workspaces.of(Some("other")).is_err() && workspaces.of(None).is_err());
    }

    #[test]
    fn thread_that_was_unclear_once_stays_so() {
        let check = |step: fn(&mut Workspaces)| {
            let mut workspaces = opened(READ_ONLY);
            step(&mut workspaces);
            workspaces.settings_called(Some(raw(r#"{"threadId":"t","cwd":"/p","sandboxPolicy":{"type":"readOnly"}}"#)));
            assert!(places(&workspaces).is_err());
        };
        check(|of| of.settings_called(Some(raw(r#"{"threadId":"t","sandboxPolicy":{"type":"dangerFullAccess"}}"#))));
        check(|of| of.settings_called(Some(raw(r#"{"threadId":"t","permissions":"mine"}"#))));
        check(|of| of.settings_called(Some(raw(r#"{"threadId":"t","cwd":"../x"}"#))));
        check(|of| of.asks_for_more(Some("t")));
        check(|of| {
            of.settings_reported(raw(
                r#"{"threadId":"t","threadSettings":{"cwd":"/p","sandboxPolicy":{"type":"readOnly"},"activePermissionProfile":{"id":"mine"}}}"#,
            ));
        });
    }

    #[test]
    fn memory_is_bounded_and_an_overflow_is_no_permission() {
        let mut workspaces = opened(READ_ONLY);
        for number in 0..2 * THREADS_MAX {
            workspaces.settings_called(Some(raw(&format!(r#"{{"threadId":"{number}","cwd":"/{number}"}}"#))));
        }
        assert!(workspaces.threads.len() <= THREADS_MAX && workspaces.places.len() <= PLACES_MAX);
        assert!(places(&workspaces).is_err());
        workspaces.thread_opened(Some(raw(r#"{"thread":{"id":"t"},"cwd":"/p","sandbox":{"type":"readOnly"}}"#)), true);
        assert!(places(&workspaces).is_err());
        let long = format!(
            r#"{{"thread":{{"id":"t","preview":"{}"}},"cwd":"/p","sandbox":{{"type":"readOnly"}}}}"#,
            "x".repeat(ANSWER_BYTES_MAX)
        );
        for (is_needed, expect) in [(false, false), (true, true)] {
            let mut workspaces = Workspaces::default();
            workspaces.thread_opened(Some(raw(&long)), is_needed);
            assert_eq!(places(&workspaces).is_ok(), expect);
        }
    }
}
