//! Finds servers that run without the process that started them.
//!
//! A hub leaves its server running when it ends, and the next hub takes it over. Such a server is on record in the session of its
//! hub, in whatever home that is; it is never to be killed, nor is anything above it.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::Check;
use crate::config::{DEPTH_VARIABLE, Environment, resolved};
use crate::hub::{self, process};
use crate::os::processes;
use crate::store::Survey;

const NAME: &str = "servers";

/// The facts about a process that matter here.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    parent: u32,
    /// It runs codex-shim.
    is_shim: bool,
    /// It descends from a relay.
    is_marked: bool,
    /// Its arguments are those of a server.
    is_server: bool,
    /// The state folder that its environment names.
    home: Option<PathBuf>,
}

/// The server of a hub, by the record in its session.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OfHub {
    pid: u32,
    session: String,
    /// Starts its hub.
    start: String,
    /// The hub runs.
    has_hub: bool,
}

/// Reports servers without a relay or a hub.
pub(super) fn left_behind(home: Option<&Path>) -> Vec<Check> {
    let Some(processes) = table() else { return Vec::new() };
    let left = orphans(&processes);
    let home = home.map(resolved);
    let homes = left.iter().filter_map(|pid| processes.get(pid)?.home.as_deref()).map(resolved);
    let homes: BTreeSet<PathBuf> = homes.chain(home.clone()).collect();
    let servers: Vec<OfHub> = homes.iter().flat_map(|of| of_hubs(of, home.as_deref())).collect();
    checks(&processes, &left, &servers)
}

/// The servers of the hubs of a home that run.
fn of_hubs(home: &Path, ours: Option<&Path>) -> Vec<OfHub> {
    let sessions = Survey::of(home).map(|survey| survey.found).unwrap_or_default();
    let of = |session: crate::store::Found| {
        let pid = process::recorded(&session.dir)?.pid;
        let start = hub::command("start", &session.holder.as_ref()?.place, &session.id);
        let start = match Some(home) == ours {
            true => start,
            false => format!("CODEX_SHIM_HOME={} {start}", hub::down::quoted(home)),
        };
        Some(OfHub { pid, session: session.id, start, has_hub: session.live })
    };
    sessions.into_iter().filter_map(of).collect()
}

fn checks(processes: &HashMap<u32, Process>, left: &[u32], servers: &[OfHub]) -> Vec<Check> {
    let (mut checks, mut unknown) = (Vec::new(), Vec::new());
    for pid in left {
        match servers.iter().find(|server| is_above(processes, *pid, server.pid)) {
            None => unknown.push(pid.to_string()),
            Some(server) if server.has_hub => {}
            Some(OfHub { pid, session, start, .. }) => {
                let found = format!("pid {pid}: the server of a hub that has ended (session {session})");
                checks.push(Check::note(NAME, found, format!("`{start}` takes it over, with its turns and requests")));
            }
        }
    }
    if !unknown.is_empty() {
        let pids = unknown.join(" ");
        checks.push(Check::note(NAME, format!("pid {pids}: started by a relay that is gone"), format!("kill {pids}")));
    }
    if checks.is_empty() {
        checks.push(Check::ok(NAME, "no server is running without its relay or its hub"));
    }
    checks
}

/// Whether a process is another one or an ancestor of it.
fn is_above(processes: &HashMap<u32, Process>, pid: u32, of: u32) -> bool {
    let parent = |pid: &u32| processes.get(pid).map(|process| process.parent).filter(|parent| *parent != 0);
    // The limit prevents endless loops if pids were reused while the table was read.
    std::iter::successors(Some(of), parent).take(processes.len() + 1).any(|at| at == pid)
}

/// Marked servers without a codex-shim among their ancestors, by pid; only the topmost of each tree.
fn orphans(processes: &HashMap<u32, Process>) -> Vec<u32> {
    let parent_of = |process: &Process| processes.get(&process.parent).filter(|_| process.parent != 0);
    let is_ours = |process: &Process| process.is_marked && process.is_server && !process.is_shim;
    let is_left = |process: &Process| {
        let mut above = parent_of(process);
        // A launcher that looks like a server stands for its children.
        if !is_ours(process) || above.is_some_and(is_ours) {
            return false;
        }
        // The limit prevents endless loops if pids were reused while the table was read.
        for _ in 0..processes.len() {
            match above {
                Some(process) if process.is_shim => return false,
                Some(process) => above = parent_of(process),
                None => return true,
            }
        }
        false
    };
    let mut left: Vec<u32> = processes.iter().filter(|(_, process)| is_left(process)).map(|(pid, _)| *pid).collect();
    left.sort_unstable();
    left
}

/// All processes that can be read.
fn table() -> Option<HashMap<u32, Process>> {
    let ourselves = std::env::current_exe().ok();
    let mut found = HashMap::new();
    for pid in processes::all()? {
        let Some(parent) = processes::parent(pid) else { continue };
        let program = processes::program(pid);
        let has_our_name = |program: &std::path::Path| {
            program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("codex-shim"))
        };
        let environment = Environment::of_variables(&processes::environment(pid).unwrap_or_default());
        let arguments = processes::arguments(pid).unwrap_or_default();
        let process = Process {
            parent,
            is_shim: program
                .as_deref()
                .is_some_and(|program| Some(program) == ourselves.as_deref() || has_our_name(program)),
            is_marked: environment.get(DEPTH_VARIABLE).is_some(),
            home: environment.shim_home().value,
            is_server: arguments.split(|byte| *byte == 0).any(|word| word == b"app-server"),
        };
        found.insert(pid, process);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_without_a_relay_are_found() {
        let process = |parent, is_shim, is_server| Process { parent, is_shim, is_marked: true, is_server, home: None };
        let of = |processes: &[(u32, Process)]| orphans(&processes.iter().cloned().collect());
        let init = (1, Process { parent: 0, is_shim: false, is_marked: false, is_server: false, home: None });
        let user = (2, Process { parent: 1, is_shim: false, is_marked: false, is_server: false, home: None });
        // A relay, a launcher below it, and the server below the launcher.
        let whole = [
            init.clone(),
            user.clone(),
            (10, process(2, true, true)),
            (11, process(10, false, true)),
            (12, process(11, false, true)),
        ];
        assert_eq!(of(&whole), [0; 0]);
        // The relay is gone; init or another process has adopted its children.
        let gone = [init.clone(), user.clone(), (11, process(2, false, true)), (12, process(11, false, true))];
        assert_eq!(of(&gone), [11]);
        let of_init = [init.clone(), (12, process(1, false, true))];
        assert_eq!(of(&of_init), [12]);
        // A process that is not a server, or that no relay started, is not reported.
        let unmarked = Process { is_marked: false, ..process(1, false, true) };
        assert_eq!(of(&[init, (13, process(1, false, false)), (14, unmarked)]), [0; 0]);
    }

    #[test]
    fn server_of_a_hub_is_never_to_be_killed() {
        let process = |parent| Process { parent, is_shim: false, is_marked: true, is_server: true, home: None };
        let processes: HashMap<u32, Process> = [(11, process(1)), (12, process(11)), (20, process(1))].into();
        let left = orphans(&processes);
        assert_eq!(left, [11, 20]);
        let server = |pid, has_hub| OfHub { pid, session: "s".to_owned(), start: "start it".to_owned(), has_hub };
        for (servers, expect) in [
            (vec![], "pid 11 20: started by a relay that is gone → kill 11 20"),
            (vec![server(12, true)], "pid 20: started by a relay that is gone → kill 20"),
            (vec![server(11, true), server(20, true)], "no server is running without its relay or its hub → "),
            (
                vec![server(12, false), server(20, true)],
                "pid 12: the server of a hub that has ended (session s) → `start it` takes it over, with its turns and \
                 requests",
            ),
        ] {
            let told: Vec<String> = checks(&processes, &left, &servers)
                .iter()
                .map(|check| format!("{} → {}", check.found, check.remedy.as_deref().unwrap_or_default()))
                .collect();
            assert_eq!(told.join("; "), expect, "{servers:?}");
        }
    }
}
