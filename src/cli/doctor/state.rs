//! Our own folder: whether it can be written and has room, and whether each session in it is whole.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use rustix::process::{Pid, test_kill_process};

use super::super::wrap;
use super::Check;
use crate::config::Settings;
use crate::control::{SOCKET_FILE, client};
use crate::index::{HISTORY_FILE, HISTORY_FORM};
use crate::store::{Found, LEDGER_FILE, LEDGER_FORM};

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
    if home.exists() && !home.is_dir() {
        return;
    }
    checks.extend(open_to_others(home));
    match wrap::complaints(home) {
        Ok(complaints) => {
            let remedy = "until then tools go past us";
            checks.extend(complaints.into_iter().map(|why| Check::broken("wrap", why, remedy)));
        }
        Err(why) => checks.push(Check::broken("wrap", why, "move that file away: it only says what to take back")),
    }
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
}

fn home_can_be_written(home: &Path) -> Check {
    const NAME: &str = "home";
    // The nearest folder that is there: nothing is made.
    let Some(there) = home.ancestors().find(|folder| folder.exists()) else {
        return Check::broken(NAME, format!("{}: no folder above it is there", home.display()), "set CODEX_SHIM_HOME");
    };
    if !there.is_dir() {
        let remedy = "move that file away, or set CODEX_SHIM_HOME to a folder";
        return Check::broken(NAME, format!("{} is a file and no folder", there.display()), remedy);
    }
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

/// A folder that others may read or write in, which holds what was said and done.
fn open_to_others(folder: &Path) -> Option<Check> {
    let mode = folder.metadata().ok()?.permissions().mode() & 0o777;
    let is_file = folder.is_file();
    let remedy = format!("chmod {} {}", if is_file { "600" } else { "700" }, folder.display());
    let found = format!("{} has the mode {mode:04o}: others can look into it", folder.display());
    (mode & 0o077 != 0).then(|| Check::note("mode", found, remedy))
}

fn room(home: &Path) -> Option<Check> {
    let there = home.ancestors().find(|folder| folder.exists())?;
    let disk = rustix::fs::statvfs(there).ok()?;
    Some(room_of(disk.f_bavail.saturating_mul(disk.f_frsize)))
}

/// What so many free bytes are worth.
fn room_of(free: u64) -> Check {
    let found = format!("{} free", bytesize::ByteSize(free));
    let remedy = "make room, or keep less: `codex-shim prune`, `journal_bytes_max`";
    match free {
        free if free < ROOM_NONE => Check::broken("disk", found, remedy),
        free if free < ROOM_LOW => Check::note("disk", found, remedy),
        _ => Check::ok("disk", found),
    }
}

fn of_session(session: &Found, checks: &mut Vec<Check>) {
    let id = &session.id;
    if let Some(check) = lock(session) {
        checks.push(check);
    }
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
    for (file, known, remedy) in [(LEDGER_FILE, LEDGER_FORM, ledger), (HISTORY_FILE, HISTORY_FORM, history)] {
        let path = session.dir.join(file);
        let told = |why: String| format!("{}: {why}", path.display());
        checks.extend(open_to_others(&path));
        match path.exists().then(|| whole(&path)) {
            None => {}
            Some(Err(why)) => checks.push(Check::broken("database", told(why), remedy)),
            Some(Ok(form)) if form > known => {
                let why = format!("it was written by a newer codex-shim (form {form}, this one knows {known})");
                checks.push(Check::broken("database", told(why), "use that codex-shim, or name another session"));
            }
            Some(Ok(_)) => {}
        }
    }
}

/// Whether who holds a session's lock is who signed it.
fn lock(session: &Found) -> Option<Check> {
    const NAME: &str = "lock";
    let id = &session.id;
    let Some(holder) = &session.holder else {
        let remedy = "the next start in this session signs it anew";
        return session.live.then(|| Check::note(NAME, format!("{id}: held, and by nobody that can be read"), remedy));
    };
    let is_there = Pid::from_raw(holder.pid.cast_signed()).is_some_and(|pid| test_kill_process(pid).is_ok());
    (session.live && !is_there && session.is_still_live()).then(|| {
        let lock = session.dir.join("lock");
        let found = format!("{id}: held, but not by pid {}, which has signed it and is gone", holder.pid);
        Check::broken(NAME, found, format!("see who has it open (`fuser {}`), and end that", lock.display()))
    })
}

/// The form of a database that SQLite finds whole. It reads all of it.
fn whole(path: &Path) -> Result<usize, String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| error.to_string())?;
    let told: String =
        connection.pragma_query_value(None, "quick_check", |row| row.get(0)).map_err(|error| error.to_string())?;
    if told != "ok" {
        return Err(told);
    }
    let form = connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    form.map(|form| usize::try_from(form).unwrap_or_default()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_room_or_not() {
        let verdicts = [0, ROOM_NONE - 1, ROOM_NONE, ROOM_LOW - 1, ROOM_LOW].map(|free| room_of(free).verdict.name());
        assert_eq!(verdicts, ["broken", "broken", "note", "note", "ok"]);
    }

    #[test]
    fn a_database_is_whole_or_not() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("x.db");
        Connection::open(&path).and_then(|db| db.execute_batch("CREATE TABLE a (x)")).expect("it can be made");
        assert_eq!(whole(&path), Ok(0));
        Connection::open(&path).and_then(|db| db.pragma_update(None, "user_version", 7)).expect("it can be set");
        assert_eq!(whole(&path), Ok(7));
        std::fs::write(&path, "no database ".repeat(500)).expect("write");
        assert!(whole(&path).is_err());
    }
}
