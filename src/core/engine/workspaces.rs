//! Where models may write, as far as the messages tell. A rule needs this before it accepts a command, because the model may
//! have put another program, or a start-up file of the shell, in such a place.
//!
//! Places are only added: a file that the model could change once may stay changed. The places of all threads count for each
//! thread. If it is unclear where one model may write, or could, no rule accepts anything in any thread until the server ends.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::rules::{Workspace, is_whole_path};
use crate::protocol::review_widens;
use crate::wire::{Members, repeats_member, text};

/// Threads that are remembered; one more makes all others unknown.
const THREADS_MAX: usize = 1_024;

/// Longest id of a thread, in bytes. Those of codex have 36.
const ID_BYTES_MAX: usize = 256;

/// Places that are remembered.
const PLACES_MAX: usize = 256;

/// Longest path, in bytes. Source: `PATH_MAX` of Linux.
const PATH_BYTES_MAX: usize = 4_096;

/// Codex's own permission profiles that its sandbox policy describes in full.
const PROFILES: [&str; 2] = [":read-only", ":workspace"];

/// A thread that no message has described, such as that of a sub-agent.
const UNKNOWN: &str = "the sandbox of this thread is not known";

const EVERYWHERE: &str = "the model of a thread may write everywhere";
const EXTERNAL: &str = "the sandbox of a thread is not codex's own";
const UNCLEAR: &str = "the folder or the sandbox of a thread is not known";
const PROFILE: &str = "the permission profile of a thread is not known";
const WIDER: &str = "the model of a thread has asked for wider permissions";
const ADOPTED: &str = "the hub has taken over a running server, and does not know its earlier threads";
const UNREAD: &str = "a long message was not read, and may have changed where the model of a thread may write";
const GIVEN: &str =
    "its commands run with variables of a client that decide which programs they run (`hub.environment`)";
const TOO_MANY: &str = "the models may write in too many places";

/// Why it is unclear where models may write.
type Why = &'static str;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Workspaces {
    threads: HashMap<String, ThreadWorkspace>,
    places: BTreeSet<String>,
    /// A sandbox has let a model write.
    writes: bool,
    /// One of them has let it write to the folders of temporary files.
    writes_temporary: bool,
    /// There are more places than are remembered.
    has_more: bool,
    /// Why a model may have written elsewhere too.
    #[serde(with = "crate::engine::as_json::compiled_in")]
    unclear: Option<Why>,
    /// Of any thread since the server was started.
    has_variables_in_any: bool,
    /// Changes with each change of what [`Workspaces::reach`] returns.
    revision: u64,
}

/// Folders to which the sandboxes of all known threads let models write. A thread without a sandbox adds nothing: its model needs no file of
/// ours to run what it likes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelsReach {
    /// The folders of the threads, also of those that may only read, and the writable roots.
    pub places: BTreeSet<String>,
    pub writes: bool,
    pub writes_temporary: bool,
    /// There are more places.
    pub has_more: bool,
}

impl ModelsReach {
    /// Adds another reach, as of the threads of an earlier server.
    pub fn add(&mut self, other: ModelsReach) {
        for place in other.places {
            if self.places.len() < PLACES_MAX || self.places.contains(&place) {
                self.places.insert(place);
            } else {
                self.has_more = true;
            }
        }
        self.writes |= other.writes;
        self.writes_temporary |= other.writes_temporary;
        self.has_more |= other.has_more;
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct ThreadWorkspace {
    cwd: Option<String>,
    has_sandbox: bool,
    /// Its commands may have variables of a client that decide which programs they run.
    has_variables: bool,
    /// A client has opened it. Others, such as those of sub-agents, have the variables of their parents.
    is_opened: bool,
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
        if review_widens(params) {
            self.asks_for_more();
        }
    }

    /// The server answers a call that opens a thread.
    pub(super) fn thread_opened(&mut self, result: Option<&RawValue>) {
        let Some(result) = result else { return };
        self.read(result, |workspaces, result| {
            let thread_id = result.get("thread").and_then(Members::of).and_then(|thread| thread.text("id"));
            let sandbox = result.get("sandbox").filter(not_null);
            workspaces.learn(thread_id.clone(), &result, sandbox)?;
            if let Some(thread) = thread_id.and_then(|id| workspaces.threads.get_mut(&id)) {
                thread.is_opened = true;
            }
            sandbox.map(drop).ok_or(UNCLEAR)
        });
    }

    /// A call changes the settings of a thread: a turn with its own folder, for example.
    pub(super) fn settings_called(&mut self, params: Option<&RawValue>) {
        let Some(params) = params else { return };
        self.read(params, |workspaces, params| {
            workspaces.learn(params.text("threadId"), &params, params.get("sandboxPolicy"))
        });
    }

    /// The server reports the settings of a thread.
    pub(super) fn settings_reported(&mut self, params: &RawValue) {
        self.read(params, |workspaces, params| {
            let settings = params.get("threadSettings").and_then(Members::of).ok_or(UNCLEAR)?;
            workspaces.learn(params.text("threadId"), &settings, settings.get("sandboxPolicy"))
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
        let may_have =
            |thread: &ThreadWorkspace| thread.has_variables || self.has_variables_in_any && !thread.is_opened;
        if thread.is_some_and(may_have) {
            return Err(GIVEN.to_owned());
        }
        let cwd = thread.and_then(|thread| thread.cwd.clone()).ok_or(UNKNOWN)?;
        Ok(Workspace { cwd, places: self.places.iter().cloned().collect() })
    }

    /// The commands of a thread get variables of a client that decide which programs they run.
    pub(super) fn variables_given(&mut self, thread_id: &str) {
        if thread_id.len() <= ID_BYTES_MAX {
            self.has_variables_in_any = true;
            self.thread(thread_id.to_owned()).has_variables = true;
        }
    }

    pub(super) fn has_variables(&self, thread_id: &str) -> bool {
        self.threads.get(thread_id).is_some_and(|thread| thread.has_variables)
    }

    fn thread(&mut self, thread_id: String) -> &mut ThreadWorkspace {
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&thread_id) {
            if self.has_variables_in_any {
                self.unclear.get_or_insert(TOO_MANY);
            }
            self.threads.clear();
        }
        self.threads.entry(thread_id).or_default()
    }

    /// The known folders to which models may write.
    pub(super) fn reach(&self) -> ModelsReach {
        ModelsReach {
            places: self.places.clone(),
            writes: self.writes,
            writes_temporary: self.writes_temporary,
            has_more: self.has_more,
        }
    }

    /// A number that changes with the reach.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Reads a message about a thread. It counts also if something else is unclear, since no program of ours may lie in a known
    /// place.
    fn read(&mut self, message: &RawValue, learn: impl FnOnce(&mut Workspaces, Members<'_>) -> Result<(), Why>) {
        let members = Members::of(message).ok_or(UNREAD);
        if let Err(why) = members.and_then(|members| learn(self, members)) {
            self.unclear.get_or_insert(why);
        }
    }

    /// Adds places.
    ///
    /// # Errors
    ///
    /// There are too many; those that are known stay.
    fn add(&mut self, places: impl Iterator<Item = String>) -> Result<(), Why> {
        for place in places.filter(|place| !self.places.contains(place)).collect::<BTreeSet<String>>() {
            if self.places.len() >= PLACES_MAX {
                self.revision += u64::from(!std::mem::replace(&mut self.has_more, true));
                return Err(TOO_MANY);
            }
            self.places.insert(place);
            self.revision += 1;
        }
        Ok(())
    }

    fn may_write(&mut self, writes: bool, writes_temporary: bool) {
        let before = (self.writes, self.writes_temporary);
        self.writes |= writes;
        self.writes_temporary |= writes_temporary;
        self.revision += u64::from((self.writes, self.writes_temporary) != before);
    }

    fn learn(&mut self, thread_id: Option<String>, told: &Members<'_>, sandbox: Option<&RawValue>) -> Result<(), Why> {
        let given = |name: &str| told.get(name).filter(not_null);
        let sandbox = sandbox.filter(not_null);
        let policy = sandbox.map(Policy::of).transpose();
        let cwd = given("cwd").map(|cwd| text(cwd).ok_or(UNCLEAR)).transpose();
        let mut places: Vec<String> = cwd.iter().flatten().cloned().collect();
        match &policy {
            Ok(Some(policy)) => {
                places.extend(policy.roots.iter().cloned());
                self.may_write(policy.writes, policy.writes_temporary);
            }
            // At least as a known sandbox would let it.
            Err(why) if *why != EVERYWHERE => self.may_write(true, true),
            Err(_) | Ok(None) => {}
        }
        let mut all_read = Ok(());
        for (name, is_path) in [("runtimeWorkspaceRoots", true), ("environments", false)] {
            match given(name).map(|value| serde_json::from_str(value.get())) {
                Some(Ok(value)) => paths_in(&value, is_path, &mut places),
                Some(Err(_)) => all_read = Err(UNCLEAR),
                None => {}
            }
        }
        let all_clear = places.iter().all(|place| is_clear(place));
        let added = self.add(places.into_iter().filter(|place| is_clear(place)));
        // All that is known is known by now, whatever bars rules.
        let (policy, cwd) = (policy?, cwd?);
        added.and(all_read)?;
        let is_whole_profile = |profile| {
            let id = Members::of(profile).and_then(|profile| profile.text("id"));
            id.is_some_and(|id| PROFILES.contains(&id.as_str()))
        };
        if given("permissions").is_some() || given("activePermissionProfile").is_some_and(|of| !is_whole_profile(of)) {
            self.may_write(true, true);
            return Err(PROFILE);
        }
        let thread_id = thread_id.filter(|id| id.len() <= ID_BYTES_MAX && all_clear).ok_or(UNCLEAR)?;
        let thread = self.thread(thread_id);
        thread.cwd = cwd.or(thread.cwd.take());
        thread.has_sandbox |= policy.is_some();
        Ok(())
    }
}

fn not_null(value: &&RawValue) -> bool {
    value.get() != "null"
}

fn is_clear(place: &str) -> bool {
    place.len() <= PATH_BYTES_MAX && is_whole_path(place)
}

/// The folders to which a sandbox policy lets a model write.
struct Policy {
    /// Folders beside the thread's own.
    roots: Vec<String>,
    writes: bool,
    writes_temporary: bool,
}

impl Policy {
    /// Reads a policy. Each member must be known: a new one may let the model write more. Source: the schemas of 0.77, 0.125 and
    /// 0.169.
    fn of(policy: &RawValue) -> Result<Policy, Why> {
        if repeats_member(policy) {
            return Err(UNCLEAR);
        }
        let Ok(Value::Object(policy)) = serde_json::from_str::<Value>(policy.get()) else { return Err(UNCLEAR) };
        let flag = |name: &str| match policy.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(is_set)) => Ok(*is_set),
            Some(_) => Err(UNCLEAR),
        };
        let kind = policy.get("type").and_then(Value::as_str);
        let known: &[&str] = match kind {
            // Its model may write everywhere, whatever else the policy says.
            Some("dangerFullAccess") => return Err(EVERYWHERE),
            Some("externalSandbox") => return Err(EXTERNAL),
            Some("readOnly") => &["type", "networkAccess", "access"],
            Some("workspaceWrite") => {
                &["type", "networkAccess", "readOnlyAccess", "writableRoots", "excludeTmpdirEnvVar", "excludeSlashTmp"]
            }
            Some(_) | None => return Err(UNCLEAR),
        };
        // Earlier releases could also narrow what a sandbox reads.
        let narrows = |name: &str| match policy.get(name) {
            None | Some(Value::Null) => true,
            Some(access) => matches!(access["type"].as_str(), Some("fullAccess" | "restricted")),
        };
        let is_known = policy.keys().all(|name| known.contains(&name.as_str()));
        if !is_known || !["access", "readOnlyAccess"].into_iter().all(narrows) {
            return Err(UNCLEAR);
        }
        flag("networkAccess")?;
        let roots = match policy.get("writableRoots") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(roots)) => {
                roots.iter().map(|root| root.as_str().map(str::to_owned).ok_or(UNCLEAR)).collect::<Result<_, _>>()?
            }
            Some(_) => return Err(UNCLEAR),
        };
        let writes = kind == Some("workspaceWrite");
        let leaves_out_temporary = flag("excludeTmpdirEnvVar")? & flag("excludeSlashTmp")?;
        Ok(Policy { roots, writes, writes_temporary: writes && !leaves_out_temporary })
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
        workspaces.thread_opened(Some(raw(&result)));
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
    fn variables_of_a_client_bar_rules_in_its_threads_and_those_below() {
        let mut workspaces = opened(READ_ONLY);
        let settings = format!(r#"{{"threadId":"below","cwd":"/p","sandboxPolicy":{READ_ONLY}}}"#);
        workspaces.settings_called(Some(raw(&settings)));
        let bars = |workspaces: &Workspaces| ["t", "below"].map(|id| workspaces.of(Some(id)).err());
        assert_eq!(bars(&workspaces), [None, None]);
        workspaces.variables_given("other");
        assert_eq!(bars(&workspaces), [None, Some(GIVEN.to_owned())], "nobody knows whose that thread is");
        workspaces.variables_given("t");
        assert_eq!(bars(&workspaces), [Some(GIVEN.to_owned()), Some(GIVEN.to_owned())]);
        // What was forgotten may have had them.
        for thread in 0..=THREADS_MAX {
            workspaces.settings_called(Some(raw(&settings.replace("below", &format!("n{thread}")))));
        }
        let result = format!(r#"{{"thread":{{"id":"t"}},"cwd":"/p","sandbox":{READ_ONLY}}}"#);
        workspaces.thread_opened(Some(raw(&result)));
        assert!(workspaces.of(Some("t")).is_err());
    }

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
        check(r#"{"type":"externalSandbox"}"#, Err(EXTERNAL));
        assert!(opened(r#"{"type":"externalSandbox"}"#).reach().writes);
        check(
            r#"{"type":"workspaceWrite","writableRoots":null,"networkAccess":true,"excludeSlashTmp":true,"readOnlyAccess":{"type":"fullAccess"}}"#,
            Ok("/p: /p"),
        );
        check(r#"{"type":"readOnly","access":{"type":"restricted","readableRoots":["/x"]}}"#, Ok("/p: /p"));
        check("null", Err(UNCLEAR));
        for unclear in [
            r#"{"type":"new"}"#,
            "{}",
            "7",
            r#"{"type":"workspaceWrite","writableRoots":[7]}"#,
            r#"{"type":"workspaceWrite","writableRoots":"/a"}"#,
            // A member that is not known, in any place, or one that is repeated.
            r#"{"type":"workspaceWrite","writableFiles":["/etc/x"]}"#,
            r#"{"type":"workspaceWrite","writable_roots":["/etc"]}"#,
            r#"{"type":"readOnly","writableRoots":[]}"#,
            r#"{"type":"readOnly","escape":false}"#,
            r#"{"type":"readOnly","type":"workspaceWrite"}"#,
            r#"{"type":"workspaceWrite","writableRoots":["/etc"],"writableRoots":[]}"#,
            r#"{"type":"readOnly","access":{"type":"fullAccess","type":"new"}}"#,
            r#"{"type":"readOnly","access":{"type":"new"}}"#,
            r#"{"type":"readOnly","access":true}"#,
            r#"{"type":"readOnly","networkAccess":"enabled"}"#,
            r#"{"type":"workspaceWrite","excludeSlashTmp":"yes"}"#,
        ] {
            check(unclear, Err(UNCLEAR));
            // It counts as one that lets its model write.
            let reach = opened(unclear).reach();
            assert!(reach.writes && reach.writes_temporary && reach.places.contains("/p"), "{unclear}");
        }
        let mut profiled = opened(READ_ONLY);
        assert!(!profiled.reach().writes && !opened(r#"{"type":"dangerFullAccess"}"#).reach().writes);
        profiled.settings_called(Some(raw(r#"{"threadId":"t","permissions":"mine"}"#)));
        assert!(profiled.reach().writes);
        for relative in [r#"["a"]"#, r#"["/a/../b"]"#, r#"[""]"#, r#"["/a",".."]"#] {
            check(&format!(r#"{{"type":"workspaceWrite","writableRoots":{relative}}}"#), Err(UNCLEAR));
        }
    }

    /// What programs of ours are checked against stays known, whatever bars rules.
    #[test]
    fn known_places_survive_what_is_unclear() {
        let told = |workspaces: &Workspaces| {
            let ModelsReach { places, writes, writes_temporary, has_more: false } = workspaces.reach() else {
                panic!("these are few")
            };
            (places.into_iter().collect::<Vec<_>>().join(" "), writes, writes_temporary)
        };
        let mut workspaces = opened(READ_ONLY);
        assert_eq!(told(&workspaces), ("/p".to_owned(), false, false));
        let before = workspaces.revision();
        workspaces.settings_called(Some(raw(r#"{"threadId":"t","cwd":"/p"}"#)));
        assert_eq!(workspaces.revision(), before);
        let check = |workspaces: &mut Workspaces, rest: &str, expect: (&str, bool, bool)| {
            let before = workspaces.revision();
            workspaces.settings_called(Some(raw(&format!(r#"{{"threadId":"o",{rest}}}"#))));
            assert_eq!(told(workspaces), (expect.0.to_owned(), expect.1, expect.2), "{rest}");
            assert_ne!(workspaces.revision(), before, "{rest}");
        };
        let excluding = r#""sandboxPolicy":{"type":"workspaceWrite","writableRoots":["/a"],"excludeSlashTmp":true,"excludeTmpdirEnvVar":true}"#;
        check(&mut workspaces, excluding, ("/a /p", true, false));
        check(&mut workspaces, r#""sandboxPolicy":{"type":"workspaceWrite"}"#, ("/a /p", true, true));
        check(
            &mut workspaces,
            r#""cwd":"/full","sandboxPolicy":{"type":"dangerFullAccess"}"#,
            ("/a /full /p", true, true),
        );
        assert_eq!(why(&workspaces), EVERYWHERE);
        check(&mut workspaces, r#""cwd":"/q","permissions":"mine""#, ("/a /full /p /q", true, true));
        check(&mut workspaces, r#""cwd":"/r","sandboxPolicy":7"#, ("/a /full /p /q /r", true, true));
    }

    /// For an accept, a model of which something is not known may write everywhere. Its folder counts from then on all the same.
    #[test]
    fn unknown_sandboxes_bar_accepts() {
        let opens = |rest: &str| format!(r#"{{"thread":{{"id":"o"}},"cwd":"/o"{rest}}}"#);
        type Step<'a> = &'a dyn Fn(&mut Workspaces);
        let steps: [(&str, bool, Step<'_>); 8] = [
            ("no sandbox", true, &|of| of.thread_opened(Some(raw(&opens(""))))),
            ("null", true, &|of| of.thread_opened(Some(raw(&opens(r#","sandbox":null"#))))),
            ("unread", true, &|of| of.thread_opened(Some(raw(&opens(r#","sandbox":{"type":"new"}"#))))),
            ("no id", true, &|of| of.thread_opened(Some(raw(r#"{"cwd":"/o","sandbox":{"type":"readOnly"}}"#)))),
            ("no object", false, &|of| of.thread_opened(Some(raw("7")))),
            ("a long line", false, &Workspaces::line_skipped),
            ("wider", false, &Workspaces::asks_for_more),
            ("adopted", false, &Workspaces::server_adopted),
        ];
        for (what, has_place, step) in steps {
            let mut workspaces = opened(READ_ONLY);
            step(&mut workspaces);
            assert_eq!(workspaces.reach().places.contains("/o"), has_place, "{what}");
            let why = places(&workspaces).expect_err(what);
            assert!(why.ends_with("rules accept again once the server has been restarted"), "{what}: {why}");
        }
        // A refused call opens nothing.
        let mut refused = opened(READ_ONLY);
        refused.thread_opened(None);
        assert_eq!(places(&refused).as_deref(), Ok("/p: /p"));
    }

    #[test]
    fn places_are_only_added() {
        let mut workspaces = opened(READ_ONLY);
        let called = |workspaces: &mut Workspaces, params: &str| workspaces.settings_called(Some(raw(params)));
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
            workspaces.thread_opened(Some(raw(fine)));
            // Enough threads to forget all earlier ones.
            for number in 0..=THREADS_MAX {
                workspaces.settings_called(Some(raw(&format!(r#"{{"threadId":"{number}"}}"#))));
            }
            workspaces.thread_opened(Some(raw(fine)));
            let told = places(&workspaces).expect_err("it is unclear");
            assert!(told.starts_with(expect) && told.ends_with("once the server has been restarted"), "{told}");
        };
        fn called(workspaces: &mut Workspaces, rest: &str) {
            workspaces.settings_called(Some(raw(&format!(r#"{{"threadId":"other",{rest}}}"#))));
        }
        check(|of| called(of, r#""sandboxPolicy":{"type":"dangerFullAccess"}"#), EVERYWHERE);
        check(|of| called(of, r#""sandboxPolicy":{"type":"externalSandbox"}"#), EXTERNAL);
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
                of.settings_called(Some(raw(&format!(r#"{{"threadId":"{id}"}}"#))));
            },
            UNCLEAR,
        );
    }

    #[test]
    fn memory_is_bounded_and_an_overflow_is_no_permission() {
        let mut workspaces = opened(READ_ONLY);
        for number in 0..2 * THREADS_MAX {
            workspaces.settings_called(Some(raw(&format!(r#"{{"threadId":"{number}"}}"#))));
        }
        assert!(workspaces.threads.len() <= THREADS_MAX);
        assert!(places(&workspaces).is_err() && workspaces.unclear.is_none());
        for number in 0..2 * PLACES_MAX {
            workspaces.settings_called(Some(raw(&format!(r#"{{"threadId":"t","cwd":"/{number}"}}"#))));
        }
        assert_eq!((workspaces.places.len(), why(&workspaces)), (PLACES_MAX, TOO_MANY));
    }

    /// Nothing counts as out of reach of a place that was forgotten.
    #[test]
    fn places_beyond_the_limit_are_told() {
        let told = |count: usize| {
            let mut workspaces = opened(READ_ONLY);
            let call = |number: usize| format!(r#"{{"threadId":"t","cwd":"/{number}"}}"#);
            // The folder in which it was opened is one of them.
            (1..count).for_each(|number| workspaces.settings_called(Some(raw(&call(number)))));
            let before = workspaces.revision();
            workspaces.settings_called(Some(raw(&call(1))));
            assert_eq!(workspaces.revision(), before, "{count}");
            (workspaces.reach().has_more, workspaces.reach().places.len())
        };
        for (count, expect) in
            [(2, (false, 2)), (PLACES_MAX, (false, PLACES_MAX)), (PLACES_MAX + 1, (true, PLACES_MAX))]
        {
            assert_eq!(told(count), expect, "{count}");
        }
        let of = |places: std::ops::Range<usize>| ModelsReach {
            places: places.map(|number| format!("/{number}")).collect(),
            ..ModelsReach::default()
        };
        for (one, other, expect) in [
            (0..1, 1..2, false),
            (0..PLACES_MAX, 1..PLACES_MAX, false),
            (0..PLACES_MAX, 0..PLACES_MAX + 1, true),
            (0..PLACES_MAX / 2, PLACES_MAX / 2..PLACES_MAX + 1, true),
        ] {
            let mut reach = of(one.clone());
            reach.add(of(other.clone()));
            assert_eq!((reach.has_more, reach.places.len() <= PLACES_MAX), (expect, true), "{one:?} {other:?}");
        }
    }

    #[test]
    fn long_messages_are_read_too() {
        let long = "x".repeat(1 << 20);
        let opens =
            format!(r#"{{"thread":{{"id":"t","preview":"{long}"}},"cwd":"/p","sandbox":{{"type":"readOnly"}}}}"#);
        let turn = format!(r#"{{"threadId":"t","cwd":"/q","input":["{long}"]}}"#);
        let mut workspaces = Workspaces::default();
        workspaces.thread_opened(Some(raw(&opens)));
        workspaces.settings_called(Some(raw(&turn)));
        assert_eq!(places(&workspaces).as_deref(), Ok("/q: /p /q"));
        workspaces.settings_called(Some(raw("7")));
        assert_eq!(why(&workspaces), UNREAD);
    }
}
