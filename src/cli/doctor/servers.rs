//! Finds servers that a relay started and that still run without one.

use std::collections::HashMap;

use super::Check;
use crate::config::DEPTH_VARIABLE;

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
}

/// Reports servers without a relay.
pub(super) fn left_behind() -> Option<Check> {
    const NAME: &str = "servers";
    let mut left = orphans(&processes()?);
    left.sort_unstable();
    Some(match left.is_empty() {
        true => Check::ok(NAME, "no server is running without its relay"),
        false => {
            let pids = left.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
            Check::note(NAME, format!("pid {pids}: started by a relay that is gone"), format!("kill {pids}"))
        }
    })
}

/// Marked servers without a codex-shim among their ancestors; only the topmost of each tree.
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
    processes.iter().filter(|(_, process)| is_left(process)).map(|(pid, _)| *pid).collect()
}

/// All processes that can be read.
fn processes() -> Option<HashMap<u32, Process>> {
    let mark = format!("{DEPTH_VARIABLE}=");
    let ourselves = std::env::current_exe().ok();
    let mut found = HashMap::new();
    for entry in std::fs::read_dir("/proc").ok()?.filter_map(Result::ok) {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let words = |bytes: Vec<u8>, is: &dyn Fn(&[u8]) -> bool| bytes.split(|byte| *byte == 0).any(is);
        let stat = String::from_utf8_lossy(&read("stat")).into_owned();
        // The name may contain anything; the state and the parent follow after it.
        let Some((_, rest)) = stat.rsplit_once(") ") else { continue };
        let Some(parent) = rest.split(' ').nth(1).and_then(|parent| parent.parse().ok()) else { continue };
        let program = std::fs::read_link(entry.path().join("exe")).ok();
        let has_our_name = |program: &std::path::Path| {
            program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("codex-shim"))
        };
        let process = Process {
            parent,
            is_shim: program
                .as_deref()
                .is_some_and(|program| Some(program) == ourselves.as_deref() || has_our_name(program)),
            is_marked: words(read("environ"), &|word| word.starts_with(mark.as_bytes())),
            is_server: words(read("cmdline"), &|word| word == b"app-server"),
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
        let process = |parent, is_shim, is_server| Process { parent, is_shim, is_marked: true, is_server };
        let of = |processes: &[(u32, Process)]| {
            let mut found = orphans(&processes.iter().cloned().collect());
            found.sort_unstable();
            found
        };
        let init = (1, Process { parent: 0, is_shim: false, is_marked: false, is_server: false });
        let user = (2, Process { parent: 1, is_shim: false, is_marked: false, is_server: false });
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
}
