//! Our own folder: whether it can be written and has room, and whether each session in it is whole.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::Check;
use crate::config::Settings;
use crate::control::{SOCKET_FILE, client};
use crate::index::HISTORY_FILE;
use crate::store::{Found, LEDGER_FILE};

/// Below this a disk is said to be getting full, in bytes.
const ROOM_LOW: u64 = 1 << 30;

/// Below this it is as good as full, in bytes.
const ROOM_NONE: u64 = 50 << 20;

pub(super) fn checks(settings: &Settings, checks: &mut Vec<Check>) {
    let Some(home) = &settings.home.value else {
        checks.push(Check::broken("home", "neither CODEX_SHIM_HOME nor HOME is set", "set CODEX_SHIM_HOME"));
        return;
    };
    checks.push(home_can_be_written(home));
    checks.extend(room(home));
    match Found::all(home) {
        Ok(sessions) => {
            let live = sessions.iter().filter(|session| session.live).count();
            checks.push(Check::ok("sessions", format!("{}, {live} of them live", sessions.len())));
            sessions.iter().for_each(|session| of_session(session, checks));
        }
        Err(error) => {
            checks.push(Check::broken("sessions", error.to_string(), "see who owns that folder, and its mode"))
        }
    }
    checks.extend(left_behind());
    checks.push(hooks());
}

fn home_can_be_written(home: &Path) -> Check {
    const NAME: &str = "home";
    // The nearest folder that is there: nothing is made.
    let Some(there) = home.ancestors().find(|folder| folder.exists()) else {
        return Check::broken(NAME, format!("{}: no folder above it is there", home.display()), "set CODEX_SHIM_HOME");
    };
    match rustix::fs::access(there, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK) {
        Ok(()) if there == home => Check::ok(NAME, format!("{} can be written", home.display())),
        Ok(()) => Check::ok(NAME, format!("{} will be made", home.display())),
        Err(error) => Check::broken(
            NAME,
            format!("{}: {error}", there.display()),
            "nothing is recorded and no request kept until that folder can be written",
        ),
    }
}

fn room(home: &Path) -> Option<Check> {
    let there = home.ancestors().find(|folder| folder.exists())?;
    let disk = rustix::fs::statvfs(there).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let found = format!("{} free", bytesize::ByteSize(free));
    let remedy = "make room, or keep less: `codex-shim prune`, `journal_bytes_max`";
    Some(match free {
        free if free < ROOM_NONE => Check::broken("disk", found, remedy),
        free if free < ROOM_LOW => Check::note("disk", found, remedy),
        _ => Check::ok("disk", found),
    })
}

fn of_session(session: &Found, checks: &mut Vec<Check>) {
    let id = &session.id;
    if session.live
        && let Err(why) = client::get(&session.dir, "/healthz")
        && session.is_still_live()
    {
        let holder =
            session.holder.as_ref().map_or_else(|| "its process".to_owned(), |holder| format!("pid {}", holder.pid));
        let remedy = format!("see shim.log in {}; where {holder} hangs, end it and start anew", session.dir.display());
        checks.push(Check::broken("socket", format!("{id}: {why}"), remedy));
    }
    if !session.live && session.dir.join(SOCKET_FILE).symlink_metadata().is_ok() {
        let remedy = "nothing: the next start in this session replaces it";
        checks.push(Check::note("socket", format!("{id}: left over from a relay that was killed"), remedy));
    }
    let history = "move it away; it is built again from the journal";
    let ledger = "move it away; what it held is only there, so keep it";
    for (file, remedy) in [(LEDGER_FILE, ledger), (HISTORY_FILE, history)] {
        let path = session.dir.join(file);
        if path.exists()
            && let Err(why) = whole(&path)
        {
            checks.push(Check::broken("database", format!("{}: {why}", path.display()), remedy));
        }
    }
}

/// Whether SQLite finds a database whole. It reads all of it.
fn whole(path: &Path) -> Result<(), String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| error.to_string())?;
    let told: String =
        connection.pragma_query_value(None, "quick_check", |row| row.get(0)).map_err(|error| error.to_string())?;
    if told == "ok" { Ok(()) } else { Err(told) }
}

/// Servers that a relay has started and that run on without one.
#[cfg(target_os = "linux")]
fn left_behind() -> Option<Check> {
    use crate::config::DEPTH_VARIABLE;

    let mark = format!("{DEPTH_VARIABLE}=");
    let has_mark =
        |environ: &[u8]| environ.split(|byte| *byte == 0).any(|variable| variable.starts_with(mark.as_bytes()));
    let is_server = |cmdline: &[u8]| cmdline.split(|byte| *byte == 0).any(|word| word == b"app-server");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").ok()?.filter_map(Result::ok) {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let stat = String::from_utf8_lossy(&read("stat")).into_owned();
        // Behind the name, which may hold anything, stand the state and the parent.
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse::<u32>().ok());
        if parent == Some(1) && is_server(&read("cmdline")) && has_mark(&read("environ")) {
            found.push(pid.to_string());
        }
    }
    Some(match found.is_empty() {
        true => Check::ok("servers", "none runs on without its relay"),
        false => {
            let pids = found.join(" ");
            Check::note("servers", format!("pid {pids}: started by a relay that is gone"), format!("kill {pids}"))
        }
    })
}

#[cfg(not(target_os = "linux"))]
fn left_behind() -> Option<Check> {
    None
}

/// Whether a shell tells us what is typed in it.
fn hooks() -> Check {
    const NAME: &str = "shell hooks";
    let home = std::env::home_dir().unwrap_or_default();
    let files = [".bashrc", ".bash_profile", ".zshrc", ".config/fish/config.fish"];
    let has_hook =
        |file: &&&str| std::fs::read_to_string(home.join(file)).is_ok_and(|text| text.contains("codex-shim hook"));
    let hooked: Vec<&str> = files.iter().filter(has_hook).copied().collect();
    match hooked.is_empty() {
        false => Check::ok(NAME, format!("in {}", hooked.join(", "))),
        true => Check::note(
            NAME,
            "none: codex knows only of commands that are pushed",
            "`eval \"$(codex-shim hook bash)\"` in ~/.bashrc, if it is to know what you run",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_whole_or_not() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("x.db");
        Connection::open(&path).and_then(|db| db.execute_batch("CREATE TABLE a (x)")).expect("it can be made");
        assert_eq!(whole(&path), Ok(()));
        std::fs::write(&path, "no database ".repeat(500)).expect("write");
        assert!(whole(&path).is_err());
    }
}
