//! What goes past a hub: processes of codex that run threads in a server of their own, which no journal has.
//!
//! A codex with a thread of its own holds the thread's file below `sessions` of its home open, whatever its command line is, and a client
//! of another server does not. So a process is found by what it does, and its command line only tells why. Source: seen with codex 0.135 to
//! 0.171.
//!
//! A server behind codex-shim descends from a relay or a hub, or is on record as the server of a hub. What a command of a thread starts
//! descends from that server first.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::process;
use crate::config::{DEPTH_VARIABLE, Environment, resolved};
use crate::os::processes;
use crate::relay::HookWatch;
use crate::store::Survey;

/// How often a hub looks, if it has a hook for what it finds. A look takes milliseconds.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Stack of the thread that looks, in bytes.
const STACK_BYTES: usize = 512 << 10;

/// Most ancestors that are looked at. Source: our own limit of relays within relays, with shells and launchers between them.
const ANCESTORS_MAX: usize = 64;

/// A process of codex with threads that are not behind codex-shim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bypass {
    pub pid: u32,
    pub terminal: Option<String>,
    pub folder: Option<PathBuf>,
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
    Option(String),
    /// Another program, if it is known, has started a server.
    Program(Option<String>),
    /// It is a daemon of codex.
    Daemon,
    /// Its relay or its hub is gone.
    LeftBehind,
    /// It is older than the hub.
    Earlier,
    NoHub,
    Unknown,
}

/// What is known of a process.
#[derive(Debug, Clone, Default)]
struct CodexProcess {
    /// From the first one after the program on.
    arguments: Vec<String>,
    /// From its parent on.
    ancestors: Vec<Ancestor>,
    /// It descends from a relay or a hub, which has marked its environment.
    is_marked: bool,
    /// It is on record as the server of a hub.
    is_of_hub: bool,
    started_s: Option<u64>,
}

/// A process above another one, by its program.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ancestor {
    CodexShim,
    Codex,
    /// A name, such as `zsh` or `code`.
    Other(String),
}

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

/// What starts codex without being the reason for it.
const LAUNCHERS: [&str; 12] =
    ["node", "bun", "deno", "npx", "npm", "sh", "bash", "zsh", "fish", "dash", "env", "timeout"];

/// Finds them for a home of codex, which is resolved. `shim_home` is our state folder, and `hub_since_s` says since when a hub runs, in
/// seconds since the Unix epoch.
#[must_use]
pub fn found(codex_home: &Path, shim_home: &Path, hub_since_s: Option<u64>) -> Vec<Bypass> {
    let sessions = codex_home.join("sessions");
    let mut found = Vec::new();
    for pid in processes::all().unwrap_or_default() {
        if !processes::program(pid).is_some_and(|program| kind_of(&program) == Ancestor::Codex) {
            continue;
        }
        let files = processes::open_files(pid).unwrap_or_default();
        let thread_ids: BTreeSet<String> = files.iter().filter_map(|file| thread_of(file, &sessions)).collect();
        if thread_ids.is_empty() {
            continue;
        }
        let Some(reason) = reason(&seen(pid, shim_home), hub_since_s) else { continue };
        let started_at = processes::started_unix_s(pid).map(|since| crate::history::rfc3339_millis(since * 1_000_000));
        found.push(Bypass {
            pid,
            terminal: processes::terminal(pid),
            folder: processes::folder(pid),
            started_at,
            thread_ids: thread_ids.into_iter().collect(),
            reason: reason.name(),
            why: reason.why(),
            remedy: reason.remedy(),
        });
    }
    found
}

/// Runs `on_bypass` of a hub once for each process that goes past it.
pub(super) fn watch(watch: HookWatch, codex_home: PathBuf, shim_home: PathBuf, session_id: String) -> io::Result<()> {
    let since = processes::started_unix_s(std::process::id());
    let thread = std::thread::Builder::new().name("bypass".to_owned()).stack_size(STACK_BYTES);
    thread.spawn(move || {
        let mut told = BTreeSet::new();
        loop {
            let settings = watch.next_settings(LOOK_EVERY);
            let found = found(&codex_home, &shim_home, since);
            for bypass in news(&mut told, found) {
                watch.run(&settings, &session_id, move || serde_json::to_string(&bypass).ok());
            }
        }
    })?;
    Ok(())
}

/// Those that were not told of, and have not ended since.
fn news(told: &mut BTreeSet<(u32, Option<String>)>, found: Vec<Bypass>) -> Vec<Bypass> {
    let key = |bypass: &Bypass| (bypass.pid, bypass.started_at.clone());
    let now: BTreeSet<_> = found.iter().map(key).collect();
    told.retain(|before| now.contains(before));
    found.into_iter().filter(|bypass| told.insert(key(bypass))).collect()
}

/// The thread whose file this is. Source: codex names it `rollout-TIME-ID.jsonl`.
fn thread_of(file: &Path, sessions: &Path) -> Option<String> {
    const ID_BYTES: usize = 36;
    file.strip_prefix(sessions).ok()?;
    let name = file.file_name()?.to_str()?.strip_prefix("rollout-")?.strip_suffix(".jsonl")?;
    let id = name.get(name.len().checked_sub(ID_BYTES)?..)?;
    uuid::Uuid::try_parse(id).is_ok().then(|| id.to_owned())
}

fn kind_of(program: &Path) -> Ancestor {
    let name = program.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    let is_ours = std::env::current_exe().is_ok_and(|own| own == program);
    match &*name {
        name if is_ours || name.starts_with("codex-shim") => Ancestor::CodexShim,
        name if name.starts_with("codex") => Ancestor::Codex,
        // The kernel says so of a program whose file was replaced.
        name => Ancestor::Other(name.trim_end_matches(" (deleted)").to_owned()),
    }
}

fn seen(pid: u32, shim_home: &Path) -> CodexProcess {
    let arguments = processes::arguments(pid).unwrap_or_default();
    let words = arguments.split(|byte| *byte == 0).skip(1).filter(|word| !word.is_empty());
    let environment = Environment::of_variables(&processes::environment(pid).unwrap_or_default());
    let above = std::iter::successors(processes::parent(pid), |pid| processes::parent(*pid));
    let above = above.take_while(|pid| *pid > 0).take(ANCESTORS_MAX);
    let homes = environment.shim_home().value.into_iter().chain([shim_home.to_owned()]);
    CodexProcess {
        arguments: words.map(|word| String::from_utf8_lossy(word).into_owned()).collect(),
        ancestors: above.filter_map(processes::program).map(|program| kind_of(&program)).collect(),
        is_marked: environment.get(DEPTH_VARIABLE).is_some(),
        is_of_hub: homes.map(|home| resolved(&home)).any(|home| is_server_of_hub(pid, &home)),
        started_s: processes::started_unix_s(pid),
    }
}

/// Whether a session of this state folder has it as the server of its hub.
fn is_server_of_hub(pid: u32, shim_home: &Path) -> bool {
    let sessions = Survey::of(shim_home).map(|survey| survey.found).unwrap_or_default();
    sessions.iter().any(|session| process::recorded(&session.dir).is_some_and(|server| server.pid == pid))
}

/// Why a process goes past the hub; `None` if it does not.
fn reason(seen: &CodexProcess, hub_since_s: Option<u64>) -> Option<Reason> {
    let CodexProcess { arguments, ancestors, is_marked, is_of_hub, started_s } = seen;
    let nearest = ancestors.iter().find(|above| !matches!(above, Ancestor::Other(_)));
    if *is_of_hub || *is_marked && nearest == Some(&Ancestor::CodexShim) {
        return None;
    }
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let starts_server = has("app-server") || has("mcp-server");
    Some(if starts_server && has("--managed-daemon") {
        Reason::Daemon
    } else if starts_server && *is_marked && nearest.is_none() {
        Reason::LeftBehind
    } else if starts_server {
        Reason::Program(ancestors.iter().find_map(name_of_program))
    } else if has("exec") || has("e") || has("review") {
        Reason::Exec
    } else if let Some(option) = arguments.iter().find_map(|argument| own_server_option(argument)) {
        Reason::Option(option)
    } else {
        match hub_since_s {
            None => Reason::NoHub,
            Some(since) if started_s.is_some_and(|started| started < since) => Reason::Earlier,
            Some(_) => Reason::Unknown,
        }
    })
}

/// An option with which codex runs its own server, without its value.
fn own_server_option(argument: &str) -> Option<String> {
    let name = argument.split('=').next()?;
    let is_short = |option: &str| option.len() == 2 && name.starts_with(option);
    let mut of_codex = OWN_SERVER.into_iter();
    of_codex.find(|option| *option == name || is_short(option)).map(str::to_owned)
}

fn name_of_program(ancestor: &Ancestor) -> Option<String> {
    let Ancestor::Other(name) = ancestor else { return None };
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
            Reason::Earlier => "it is older than the hub".to_owned(),
            Reason::NoHub => "no hub runs".to_owned(),
            Reason::Unknown => "it has not joined, and its command line does not say why".to_owned(),
        }
    }

    fn remedy(&self) -> String {
        let remedy = match self {
            Reason::Exec => "`codex exec --remote unix://` joins, from codex 0.171 on",
            Reason::Option(option) if option == "--no-daemon" => "leave that out",
            Reason::Option(_) => "leave that out, or set it in the config.toml of codex",
            Reason::Program(_) => {
                "have it start codex-shim instead, with `server = \"shared\"`; `codex-shim wrap` does that for some"
            }
            Reason::Daemon => "end it with `codex app-server daemon stop`, and start a hub with `codex-shim hub start`",
            Reason::LeftBehind => "`codex-shim doctor` says how to end it",
            Reason::Earlier | Reason::Unknown => "quit it and start it again; `codex resume` has its thread",
            Reason::NoHub => "start a hub with `codex-shim hub start`, and codex again",
        };
        remedy.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(name: &str) -> Ancestor {
        Ancestor::Other(name.to_owned())
    }

    #[test]
    fn command_line_and_ancestors_tell_why() {
        let shell = [other("zsh"), other("tmux")];
        let command = [other("bash"), Ancestor::Codex, other("node"), Ancestor::CodexShim];
        let editor = [other("node"), other("code"), other("systemd")];
        let relay = [other("node"), other("sh"), Ancestor::CodexShim, other("code")];
        let captured = [other("bash"), Ancestor::CodexShim, other("bash")];
        let gone = [other("systemd")];
        for (words, ancestors, is_marked, expect) in [
            ("", &shell[..], false, Some(Reason::Unknown)),
            ("resume --last", &shell, false, Some(Reason::Unknown)),
            ("--no-daemon", &shell, false, Some(Reason::Option("--no-daemon".to_owned()))),
            ("resume -cmodel=x", &shell, false, Some(Reason::Option("-c".to_owned()))),
            ("--config=model=x", &shell, false, Some(Reason::Option("--config".to_owned()))),
            ("-p work", &shell, false, Some(Reason::Option("-p".to_owned()))),
            ("-C /work -m gpt", &shell, false, Some(Reason::Unknown)),
            ("exec go", &shell, false, Some(Reason::Exec)),
            ("exec go", &command, true, Some(Reason::Exec)),
            ("app-server", &editor, false, Some(Reason::Program(Some("code".to_owned())))),
            ("app-server", &shell, false, Some(Reason::Program(Some("tmux".to_owned())))),
            ("app-server", &command, true, Some(Reason::Program(None))),
            ("app-server --listen unix:// --managed-daemon", &gone, false, Some(Reason::Daemon)),
            ("app-server", &gone, true, Some(Reason::LeftBehind)),
            ("app-server", &relay, true, None),
            ("app-server --listen unix:///s", &[Ancestor::CodexShim], true, None),
            // A shell of a captured terminal is no relay.
            ("", &captured, false, Some(Reason::Unknown)),
        ] {
            let arguments = words.split_whitespace().map(str::to_owned).collect();
            let seen = CodexProcess { arguments, ancestors: ancestors.to_vec(), is_marked, ..CodexProcess::default() };
            assert_eq!(reason(&seen, Some(1)), expect, "{words} {ancestors:?}");
        }
        let of_hub = CodexProcess { is_of_hub: true, ..CodexProcess::default() };
        assert_eq!(reason(&of_hub, Some(1)), None);
        for (started_s, hub_since_s, expect) in [
            (Some(5), None, Reason::NoHub),
            (Some(5), Some(9), Reason::Earlier),
            (Some(9), Some(9), Reason::Unknown),
            (None, Some(9), Reason::Unknown),
        ] {
            let seen = CodexProcess { started_s, ..CodexProcess::default() };
            assert_eq!(reason(&seen, hub_since_s), Some(expect));
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
    fn each_process_is_told_of_once() {
        let bypass = |pid, at: &str| Bypass {
            pid,
            terminal: None,
            folder: None,
            started_at: Some(at.to_owned()),
            thread_ids: Vec::new(),
            reason: "exec",
            why: String::new(),
            remedy: String::new(),
        };
        let mut told = BTreeSet::new();
        let mut pids = |found: &[Bypass]| -> Vec<u32> {
            news(&mut told, found.to_vec()).iter().map(|bypass| bypass.pid).collect()
        };
        assert_eq!(pids(&[bypass(1, "a"), bypass(2, "a")]), [1, 2]);
        assert_eq!(pids(&[bypass(1, "a"), bypass(3, "a")]), [3]);
        // Another process has its id.
        assert_eq!(pids(&[bypass(1, "b"), bypass(3, "a")]), [1]);
        assert_eq!(pids(&[]), [0; 0]);
    }
}
