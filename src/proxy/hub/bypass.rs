//! Finds codex processes that bypass a hub: they run threads in their own server, and no journal has these.
//!
//! A codex with its own thread has the thread's file below `sessions` of its home open to write; a client of another server has not. This
//! identifies the process, and the command line only explains why. Source: seen with codex 0.135, 0.150 and 0.171.
//!
//! A server behind codex-shim descends from a relay or a hub, or is on record as the server of a hub. A process started by a
//! command of a thread descends from that server first.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::process;
use crate::config::{DEPTH_VARIABLE, Environment, resolved};
use crate::history::rfc3339_millis;
use crate::os::processes::{self, ProcessIdentity};
use crate::relay::HookWatch;
use crate::store::Survey;

/// How often a hub looks, if it has a hook for what it finds.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Between the two looks that have to agree: a child of codex that is about to become another program looks like codex.
const CONFIRMED_AFTER: Duration = Duration::from_millis(100);

/// Stack of the thread that looks, in bytes.
const STACK_BYTES: usize = 512 << 10;

/// Most ancestors that are looked at. Source: our own limit of relays within relays, with shells and launchers between them.
const ANCESTORS_MAX: usize = 64;

/// Limit of hook calls after one look.
const TOLD_MAX: usize = 8;

/// A process of codex with threads that are not behind codex-shim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bypass {
    pub pid: u32,
    pub terminal: Option<String>,
    pub folder: Option<String>,
    pub started_at: Option<String>,
    /// Those that it has open.
    pub thread_ids: Vec<String>,
    pub reason: &'static str,
    pub why: String,
    pub remedy: String,
}

/// Why a process has a server of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Reason {
    Exec,
    /// An option of its command line.
    Option(&'static str),
    /// Another program, if it is known, has started a server.
    Program(Option<String>),
    /// A daemon of codex.
    Daemon,
    /// Its relay or its hub is gone.
    LeftBehind,
    /// It started before the hub.
    Earlier,
    NoHub,
    Unknown,
}

/// The facts about a process.
#[derive(Debug, Clone, Default)]
struct CodexProcess {
    /// From the first one after the program on.
    arguments: Vec<String>,
    /// From its parent on.
    ancestors: Vec<Ancestor>,
    /// How many codex-shim are above it, by its environment.
    depth: u32,
    started_s: Option<u64>,
}

/// A process above another one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ancestor {
    program: Program,
    /// How many codex-shim are above it, by its environment.
    depth: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Program {
    CodexShim,
    /// Or a codex-shim under that name.
    Codex,
    /// A name, such as `zsh` or `code`.
    Other(String),
}

/// The words after which codex-shim runs a shell, a command or a hook, and no server.
const NO_SERVER: [&[u8]; 4] = [b"exec", b"terminal-leader", b"hook-supervisor", b"hooked"];

/// Programs that adopt orphaned processes.
const ADOPTS: [&str; 6] = ["init", "systemd", "launchd", "tini", "dumb-init", "docker-init"];

/// The options with which codex runs its server in its own process. Source: seen with 0.171, and its issue threads.
const OWN_SERVER: [&str; 10] = [
    "-c",
    "--config",
    "-p",
    "--profile",
    "--enable",
    "--disable",
    "--search",
    "--oss",
    "--strict-config",
    "--no-daemon",
];

/// Programs that only launch others, so they are not named as the reason.
const LAUNCHERS: [&str; 13] =
    ["codex-shim", "node", "bun", "deno", "npx", "npm", "sh", "bash", "zsh", "fish", "dash", "env", "timeout"];

/// Finds them for a home of codex, which is resolved. `shim_home` is our state folder, and `hub_since_s` says since when a hub runs, in
/// seconds since the Unix epoch.
#[must_use]
pub fn found(codex_home: &Path, shim_home: &Path, hub_since_s: Option<u64>) -> Vec<Bypass> {
    let seen = looked_at(codex_home, shim_home, hub_since_s);
    if seen.is_empty() {
        return Vec::new();
    }
    std::thread::park_timeout(CONFIRMED_AFTER);
    let again = looked_at(codex_home, shim_home, hub_since_s);
    again.into_iter().filter(|(process, _)| seen.contains_key(process)).map(|(_, bypass)| bypass).collect()
}

/// One look.
fn looked_at(codex_home: &Path, shim_home: &Path, hub_since_s: Option<u64>) -> HashMap<Process, Bypass> {
    // The kernel reports resolved paths.
    let sessions = resolved(&codex_home.join("sessions"));
    let writers = writers(&sessions);
    let has_the_same = |pid: Option<u32>, threads: &BTreeSet<String>| {
        pid.and_then(|pid| writers.get(&pid)).is_some_and(|others| !others.is_disjoint(threads))
    };
    let mut found = HashMap::new();
    for (pid, threads) in &writers {
        // Before exec, a child still has the files of its parent.
        if has_the_same(processes::parent(*pid), threads) {
            continue;
        }
        let Some(ProcessIdentity { started, .. }) = ProcessIdentity::of(*pid) else { continue };
        let process = codex_process(*pid);
        let Some(reason) = reason(&process, hub_since_s, || is_of_live_hub(*pid, &process, shim_home)) else {
            continue;
        };
        let bypass = Bypass {
            pid: *pid,
            terminal: processes::terminal(*pid),
            folder: processes::folder(*pid).map(|folder| folder.to_string_lossy().into_owned()),
            started_at: process.started_s.map(|since| rfc3339_millis(since * 1_000_000)),
            thread_ids: threads.iter().cloned().collect(),
            reason: reason.name(),
            why: reason.why(),
            remedy: reason.remedy().to_owned(),
        };
        found.insert((*pid, started), bypass);
    }
    found
}

/// A process for good, as in [`ProcessIdentity`].
type Process = (u32, String);

/// The processes called `codex` that write to files of threads, and those threads.
fn writers(sessions: &Path) -> HashMap<u32, BTreeSet<String>> {
    let of = |pid: u32| {
        processes::program(pid).filter(|program| named(program) == Program::Codex)?;
        let files = processes::written_files(pid, |file| thread_of(file, sessions).is_some())?;
        let threads: BTreeSet<String> = files.iter().filter_map(|file| thread_of(file, sessions)).collect();
        (!threads.is_empty()).then_some((pid, threads))
    };
    processes::all().unwrap_or_default().into_iter().filter_map(of).collect()
}

/// Runs `on_bypass` of a hub once for each process that goes past it.
pub(super) fn watch(watch: HookWatch, codex_home: PathBuf, shim_home: PathBuf, session_id: String) -> io::Result<()> {
    let since = processes::started_unix_s(std::process::id());
    let thread = std::thread::Builder::new().name("bypass".to_owned()).stack_size(STACK_BYTES);
    thread.spawn(move || {
        let before = watch.told().into_iter().filter_map(|(pid, started)| Some((pid.parse().ok()?, started)));
        let mut told = Told(before.collect());
        loop {
            let settings = watch.next_settings(LOOK_EVERY);
            let found = found(&codex_home, &shim_home, since);
            told.tell(found, identity, |bypass, told| {
                let input = serde_json::to_string(bypass).unwrap_or_default();
                watch.run_here(&settings, &session_id, &input, kept(told))
            });
            watch.keep_told(kept(&told.0));
        }
    })?;
    Ok(())
}

fn kept(told: &BTreeSet<Process>) -> Vec<(String, String)> {
    told.iter().map(|(pid, started)| (pid.to_string(), started.clone())).collect()
}

fn identity(pid: u32) -> Option<Process> {
    ProcessIdentity::of(pid).map(|process| (process.pid, process.started))
}

/// Processes that the hook was called for, until they end.
#[derive(Debug, Default)]
struct Told(BTreeSet<Process>);

impl Told {
    /// Calls `tell` for each new process in turn, with the set of all reported processes. Stops if that returns false; the rest
    /// follows after the next look.
    fn tell(
        &mut self,
        found: Vec<Bypass>,
        identity: impl Fn(u32) -> Option<Process>,
        mut tell: impl FnMut(&Bypass, &BTreeSet<Process>) -> bool,
    ) {
        self.0.retain(|told| identity(told.0).as_ref() == Some(told));
        let is_new = |bypass: &Bypass| identity(bypass.pid).filter(|process| !self.0.contains(process));
        let new: Vec<(Process, &Bypass)> = found.iter().filter_map(|bypass| Some((is_new(bypass)?, bypass))).collect();
        for (process, bypass) in new.into_iter().take(TOLD_MAX) {
            self.0.insert(process.clone());
            if !tell(bypass, &self.0) {
                self.0.remove(&process);
                return;
            }
        }
    }
}

/// The thread whose file this is. Source: codex names it `rollout-TIME-ID.jsonl`.
fn thread_of(file: &Path, sessions: &Path) -> Option<String> {
    const ID_BYTES: usize = 36;
    file.strip_prefix(sessions).ok()?;
    let name = file.file_name()?.to_str()?.strip_prefix("rollout-")?.strip_suffix(".jsonl")?;
    let id = name.get(name.len().checked_sub(ID_BYTES)?..)?;
    uuid::Uuid::try_parse(id).is_ok().then(|| id.to_owned())
}

fn named(program: &Path) -> Program {
    let name = program.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    let is_ours = std::env::current_exe().is_ok_and(|own| own == program);
    match &*name {
        name if is_ours || name.starts_with("codex-shim") => Program::CodexShim,
        // The kernel says so of a program whose file was replaced.
        name if ["codex", "codex (deleted)"].contains(&name) || name.starts_with("codex-") => Program::Codex,
        name => Program::Other(name.trim_end_matches(" (deleted)").to_owned()),
    }
}

fn words(pid: u32) -> Vec<Vec<u8>> {
    let line = processes::arguments(pid).unwrap_or_default();
    line.split(|byte| *byte == 0).skip(1).filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect()
}

fn depth(pid: u32) -> u32 {
    let variables = processes::environment(pid).unwrap_or_default();
    let depth = Environment::of_variables(&variables).get(DEPTH_VARIABLE);
    depth.and_then(|depth| depth.to_str()?.parse().ok()).unwrap_or_default()
}

fn codex_process(pid: u32) -> CodexProcess {
    let above = std::iter::successors(processes::parent(pid), |pid| processes::parent(*pid));
    let above = above.take_while(|pid| *pid > 0).take(ANCESTORS_MAX);
    let ancestor = |pid: u32| {
        let runs_no_server = || words(pid).first().is_some_and(|word| NO_SERVER.contains(&&**word));
        let program = match named(&processes::program(pid)?) {
            Program::CodexShim if runs_no_server() => Program::Other("codex-shim".to_owned()),
            program @ (Program::CodexShim | Program::Codex | Program::Other(_)) => program,
        };
        Some(Ancestor { program, depth: depth(pid) })
    };
    CodexProcess {
        arguments: words(pid).iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect(),
        ancestors: above.filter_map(ancestor).collect(),
        depth: depth(pid),
        started_s: processes::started_unix_s(pid),
    }
}

/// Whether a hub that runs has it on record as its server, which may have outlived the hub that has started it.
fn is_of_live_hub(pid: u32, process: &CodexProcess, shim_home: &Path) -> bool {
    let theirs = Environment::of_variables(&processes::environment(pid).unwrap_or_default()).shim_home().value;
    let homes: BTreeSet<PathBuf> =
        theirs.into_iter().chain([shim_home.to_owned()]).map(|home| resolved(&home)).collect();
    let is_listener = process.arguments.iter().any(|word| word == "--listen");
    is_listener
        && process.depth > 0
        && homes.iter().any(|home| {
            let sessions = Survey::of(home).map(|survey| survey.found).unwrap_or_default();
            let is_its = |server: process::ServerProcess| server.pid == pid;
            sessions.iter().any(|session| session.live && process::recorded(&session.dir).is_some_and(is_its))
        })
}

/// Why a process goes past the hub; `None` if it does not.
fn reason(process: &CodexProcess, hub_since_s: Option<u64>, is_of_live_hub: impl FnOnce() -> bool) -> Option<Reason> {
    let CodexProcess { arguments, ancestors, depth, started_s } = process;
    // A relay gives its server a greater depth than its own. What the server starts has that of the server.
    let relay = ancestors.iter().position(|above| above.depth < *depth);
    let is_behind = relay.is_some_and(|at| {
        let launches = |above: &Ancestor| matches!(above.program, Program::Other(_));
        !launches(&ancestors[at]) && ancestors[..at].iter().all(launches)
    });
    if is_behind || is_of_live_hub() {
        return None;
    }
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let command = arguments.iter().find(|argument| !argument.starts_with('-')).map(String::as_str);
    let is_adopted = match ancestors.first().map(|above| &above.program) {
        None => true,
        Some(Program::Other(name)) => ADOPTS.contains(&&**name),
        Some(Program::CodexShim | Program::Codex) => false,
    };
    Some(match command {
        Some("app-server") if has("--managed-daemon") => Reason::Daemon,
        Some("app-server" | "mcp-server") if *depth > 0 && is_adopted => Reason::LeftBehind,
        Some("app-server" | "mcp-server") => Reason::Program(ancestors.iter().find_map(name_of_program)),
        Some("exec" | "e" | "review") => Reason::Exec,
        _ => match arguments.iter().find_map(|argument| own_server_option(argument)) {
            Some(option) => Reason::Option(option),
            None => match hub_since_s {
                None => Reason::NoHub,
                Some(since) if started_s.is_some_and(|started| started < since) => Reason::Earlier,
                Some(_) => Reason::Unknown,
            },
        },
    })
}

/// An option with which codex runs its own server, without its value.
fn own_server_option(argument: &str) -> Option<&'static str> {
    let name = argument.split('=').next()?;
    let is_short = |option: &str| option.len() == 2 && name.starts_with(option);
    let mut of_codex = OWN_SERVER.into_iter();
    of_codex.find(|option| *option == name || is_short(option))
}

fn name_of_program(ancestor: &Ancestor) -> Option<String> {
    let Program::Other(name) = &ancestor.program else { return None };
    (!LAUNCHERS.contains(&&**name)).then(|| name.clone())
}

impl Reason {
    fn name(&self) -> &'static str {
        match self {
            Reason::Exec => "exec",
            Reason::Option(_) => "option",
            Reason::Program(_) => "program",
            Reason::Daemon => "daemon",
            Reason::LeftBehind => "left_behind",
            Reason::Earlier => "earlier",
            Reason::NoHub => "no_hub",
            Reason::Unknown => "unknown",
        }
    }

    fn why(&self) -> String {
        match self {
            Reason::Exec => "`codex exec` runs a server of its own".to_owned(),
            Reason::Option(option) => format!("with {option}, codex runs a server of its own"),
            Reason::Program(Some(program)) => format!("{program} has started a server of its own"),
            Reason::Program(None) => "a program has started a server of its own".to_owned(),
            Reason::Daemon => "a daemon of codex has it".to_owned(),
            Reason::LeftBehind => "its relay is gone".to_owned(),
            Reason::Earlier => "it was started before the hub".to_owned(),
            Reason::NoHub => "no hub runs".to_owned(),
            Reason::Unknown => "it has not joined, and its command line does not say why".to_owned(),
        }
    }

    fn remedy(&self) -> &'static str {
        match self {
            Reason::Exec => "`codex exec --remote unix://` joins, from codex 0.171 on, and works in your home folder",
            Reason::Option("--no-daemon") => "leave that out",
            Reason::Option(_) => "leave that out, or set it in the config.toml of codex",
            Reason::Program(_) => {
                "have it start codex-shim instead, with `server = \"shared\"`; `codex-shim wrap` does that for some"
            }
            Reason::Daemon => "end it with `codex app-server daemon stop`, and start a hub with `codex-shim hub start`",
            Reason::LeftBehind => "`codex-shim doctor` says how to end it",
            Reason::Earlier | Reason::Unknown => "quit it and start it again; `codex resume` has its thread",
            Reason::NoHub => "start a hub with `codex-shim hub start`, and codex again",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ancestors such as `zsh tmux shim:1`: names with depths, of which most are 0.
    fn ancestors(words: &str) -> Vec<Ancestor> {
        let ancestor = |word: &str| {
            let (name, depth) = word.split_once(':').unwrap_or((word, "0"));
            let program = match name {
                "shim" => Program::CodexShim,
                "codex" => Program::Codex,
                name => Program::Other(name.to_owned()),
            };
            Ancestor { program, depth: depth.parse().expect("BUG: a number") }
        };
        words.split_whitespace().map(ancestor).collect()
    }

    #[test]
    fn command_line_and_ancestors_tell_why() {
        let program = |name: &str| Some(Reason::Program(Some(name.to_owned())));
        for (words, above, depth, expect) in [
            ("", "zsh tmux", 0, Some(Reason::Unknown)),
            ("resume --last", "zsh tmux", 0, Some(Reason::Unknown)),
            ("--no-daemon", "zsh tmux", 0, Some(Reason::Option("--no-daemon"))),
            ("resume -cmodel=x", "zsh", 0, Some(Reason::Option("-c"))),
            ("--config=model=x", "zsh", 0, Some(Reason::Option("--config"))),
            ("-p work", "zsh", 0, Some(Reason::Option("-p"))),
            ("-C /work -m gpt", "zsh", 0, Some(Reason::Unknown)),
            ("exec go", "zsh", 0, Some(Reason::Exec)),
            // A prompt.
            ("tell exec", "zsh", 0, Some(Reason::Unknown)),
            // A command of a thread behind a relay.
            ("exec go", "bash:1 codex:1 node:1 shim code", 1, Some(Reason::Exec)),
            ("app-server", "bash:1 codex:1 node:1 shim code", 1, program("code")),
            ("app-server", "node code systemd", 0, program("code")),
            ("app-server", "bash tmux", 0, program("tmux")),
            ("app-server --listen unix:// --managed-daemon", "systemd", 0, Some(Reason::Daemon)),
            ("app-server", "systemd", 1, Some(Reason::LeftBehind)),
            ("app-server", "", 1, Some(Reason::LeftBehind)),
            // Our link has become codex, because the user has turned codex-shim off.
            ("app-server", "node code systemd", 1, program("code")),
            ("app-server", "node:1 sh:1 shim code", 1, None),
            ("app-server --listen unix:///s", "shim", 1, None),
            // A relay within a thread of another one.
            ("app-server", "shim:1 bash:1 codex:1 shim", 2, None),
            // A copy of codex-shim may be called codex.
            ("app-server", "node:1 codex code", 1, None),
            // Our link has become codex in a shell that codex-shim has started, which is no relay.
            ("", "bash codex-shim bash", 1, Some(Reason::Unknown)),
            ("", "codex-shim bash", 1, Some(Reason::Unknown)),
        ] {
            let arguments = words.split_whitespace().map(str::to_owned).collect();
            let process = CodexProcess { arguments, ancestors: ancestors(above), depth, started_s: None };
            assert_eq!(reason(&process, Some(1), || false), expect, "{words} below {above}");
        }
        assert_eq!(reason(&CodexProcess::default(), Some(1), || true), None);
        for (started_s, hub_since_s, expect) in [
            (Some(5), None, Reason::NoHub),
            (Some(5), Some(9), Reason::Earlier),
            (Some(9), Some(9), Reason::Unknown),
            (None, Some(9), Reason::Unknown),
        ] {
            let process = CodexProcess { started_s, ..CodexProcess::default() };
            assert_eq!(reason(&process, hub_since_s, || false), Some(expect));
        }
    }

    #[test]
    fn file_names_its_thread() {
        let sessions = Path::new("/home/me/.codex/sessions");
        let id = "01a22e31-fc3b-7752-acb9-ed867e003fbb";
        for (path, expect) in [
            (format!("/home/me/.codex/sessions/2026/11/30/rollout-2026-11-30T20-42-37-{id}.jsonl"), Some(id)),
            (format!("/home/me/.codex/sessions/rollout-{id}.jsonl"), Some(id)),
            (format!("/home/you/.codex/sessions/2026/11/30/rollout-2026-11-30T20-42-37-{id}.jsonl"), None),
            (format!("/home/me/.codex/sessions/2026/{id}.jsonl"), None),
            ("/home/me/.codex/sessions/rollout-é.jsonl".to_owned(), None),
            (
                "/home/me/.codex/sessions/rollout-2026-11-30T20-42-37-01a22e31-fc3b-7752-acb9-ed867e003fbx.jsonl"
                    .to_owned(),
                None,
            ),
        ] {
            assert_eq!(thread_of(Path::new(&path), sessions).as_deref(), expect, "{path}");
        }
    }

    #[test]
    fn programs_are_known_by_their_names() {
        let other = |name: &str| Program::Other(name.to_owned());
        for (path, expect) in [
            ("/usr/bin/codex", Program::Codex),
            ("/opt/codex-aarch64-apple-darwin", Program::Codex),
            ("/usr/bin/codex (deleted)", Program::Codex),
            ("/usr/bin/codex-shim", Program::CodexShim),
            ("/usr/bin/codex-shim (deleted)", Program::CodexShim),
            ("/usr/bin/codexbar", other("codexbar")),
            ("/bin/zsh", other("zsh")),
        ] {
            assert_eq!(named(Path::new(path)), expect, "{path}");
        }
    }

    #[test]
    fn each_process_is_told_of_once() {
        let bypass = |pid| Bypass {
            pid,
            terminal: None,
            folder: None,
            started_at: None,
            thread_ids: Vec::new(),
            reason: "exec",
            why: String::new(),
            remedy: String::new(),
        };
        let mut told = Told::default();
        let mut pids = |found: &[u32], started: &str, is_allowed: bool| -> Vec<u32> {
            let mut pids = Vec::new();
            let found = found.iter().copied().map(bypass).collect();
            told.tell(
                found,
                |pid| (pid != 9).then(|| (pid, started.to_owned())),
                |bypass, told| {
                    assert!(told.contains(&(bypass.pid, started.to_owned())));
                    pids.push(bypass.pid);
                    is_allowed
                },
            );
            pids
        };
        assert_eq!(pids(&[1, 2], "a", true), [1, 2]);
        assert_eq!(pids(&[], "a", true), [0; 0]);
        // It had no file open in between.
        assert_eq!(pids(&[1, 3], "a", true), [3]);
        assert_eq!(pids(&[4], "a", false), [4]);
        assert_eq!(pids(&[4], "a", true), [4]);
        // Another process has its id, and one has ended.
        assert_eq!(pids(&[1, 9], "b", true), [1]);
        let many: Vec<u32> = (20..40).collect();
        assert_eq!(
            [pids(&many, "b", true).len(), pids(&many, "b", true).len(), pids(&many, "b", true).len()],
            [8, 8, 4]
        );
    }
}
