//! Checks the state folder: whether it is writable and has room, and whether each session in it is intact.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::super::offline::last_header;
use super::super::select_session;
use super::{Check, Verdict};
use crate::api::{self, ConfigWarningDocument};
use crate::config::Settings;
use crate::control::{SOCKET_FILE, client};
use crate::files::{self, Folder, Refused};
use crate::index::{HISTORY_FILE, HISTORY_FORM};
use crate::os::fs::{self, Access};
use crate::os::processes;
use crate::store::{
    DatabaseError, Found, LEDGER_FILE, LEDGER_FORM, StoreError, Survey, check_database, full_name, short,
};

/// Free space below this counts as low, in bytes.
const ROOM_LOW: u64 = 1 << 30;

/// Free space below this counts as full, in bytes.
const ROOM_NONE: u64 = 50 << 20;

/// Time limit for checking a database.
const DATABASE_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long to wait for a locked database.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(1);

/// Name of the check of a folder inside the home.
const FOLDER: &str = "folder";

/// Checks the state folder and all sessions, or only the session `only`.
pub(super) fn checks(settings: &Settings, only: Option<&str>, checks: &mut Vec<Check>) {
    let Some(home) = &settings.home.value else {
        checks.push(Check::broken("home", "neither CODEX_SHIM_HOME nor HOME is set", "set CODEX_SHIM_HOME"));
        return;
    };
    if let Err(error) = Folder::home(home)
        && let Some(refused) = Refused::behind(&error)
    {
        checks.push(not_used("home", refused, "nothing is recorded and no request is stored"));
        return;
    }
    checks.push(home_can_be_written(home));
    checks.extend(folder_not_used(&home.join("marks"), "a session restored from a copy is not detected"));
    checks.extend(folder_not_used(&home.join("places"), "a relay does not find the last session of its folder"));
    checks.extend(folder_not_used(&home.join("shell"), "`codex-shim shell` does not start"));
    checks.extend(open_to_others(home));
    checks.extend(room(home));
    match Survey::of(home) {
        Ok(Survey { found: sessions, refused }) => {
            let left_out = refused.iter().filter(|(id, _)| only.is_none_or(|only| id == only));
            checks.extend(
                left_out.map(|(id, refused)| not_used("session", refused, &format!("session {id} is left out"))),
            );
            let live = sessions.iter().filter(|session| session.live).count();
            checks.push(Check::ok("sessions", format!("{}, {live} of them live", sessions.len())));
            checks.extend(shared_folders(&sessions, only));
            checks.extend(other_versions(&sessions, only));
            // In parallel, because each hung relay takes the full timeout.
            let meant: Vec<&Found> =
                sessions.iter().filter(|session| only.is_none_or(|only| session.id == only)).collect();
            checks.extend(
                select_session::at_once(&meant, |session| of_session(session, &full_name(session, &sessions)))
                    .into_iter()
                    .flatten(),
            );
        }
        Err(StoreError::Io { source, .. }) if Refused::behind(&source).is_some() => {
            let refused = Refused::behind(&source);
            checks.extend(refused.map(|refused| not_used("sessions", refused, "nothing is recorded")));
        }
        Err(error) => {
            checks.push(Check::broken("sessions", error.to_string(), "check the owner and the mode of that folder"))
        }
    }
}

/// The relays that another version of codex-shim has started, as after an upgrade.
fn other_versions(sessions: &[Found], only: Option<&str>) -> Option<Check> {
    let ours = env!("CARGO_PKG_VERSION");
    let live = sessions.iter().filter(|session| session.live && only.is_none_or(|only| session.id == only));
    let of_others =
        live.filter_map(|session| last_header(session).filter(|header| header.shim != ours).map(|of| (session, of)));
    let named: Vec<String> =
        of_others.map(|(session, header)| format!("{} runs {}", full_name(session, sessions), header.shim)).collect();
    let remedy = "they go on as they are, and some tools cannot ask them; start their clients again when it suits you, and a hub \
                  with `codex-shim hub restart`";
    (!named.is_empty()).then(|| Check::note("versions", format!("this is {ours}; {}", named.join(", ")), remedy))
}

/// Folders in which several clients are live, each with its own session.
fn shared_folders(sessions: &[Found], only: Option<&str>) -> Vec<Check> {
    let mut by_folder: BTreeMap<&str, Vec<&Found>> = BTreeMap::new();
    for session in sessions.iter().filter(|session| session.live) {
        if let Some(holder) = &session.holder {
            by_folder.entry(&holder.place.cwd).or_default().push(session);
        }
    }
    let is_meant = |there: &Vec<&Found>| only.is_none_or(|only| there.iter().any(|session| session.id == only));
    let shared = by_folder.into_iter().filter(|(_, there)| there.len() > 1 && is_meant(there));
    let check = |(folder, there): (&str, Vec<&Found>)| {
        let names: Vec<String> = there.iter().map(|session| full_name(session, sessions)).collect();
        let example = there.first().map_or("", |session| short(session, sessions));
        let remedy = format!(
            "nothing, if this is intended: `status`, `requests`, `tail`, `fragments` and `context show` show all of them, and each \
             model sees what you run in a terminal; `events`, `transcript` and `tail -f` use the most recent one, and `send` and \
             `interrupt` need a name, such as `--session {example}`"
        );
        Check::note("clients", format!("{} are live in {folder}: {}", there.len(), names.join(", ")), remedy)
    };
    shared.map(check).collect()
}

/// An untrusted part of the state folder, and the consequence.
fn not_used(name: &'static str, refused: &Refused, so: &str) -> Check {
    Check::broken(name, format!("{}: {so}", refused.problem()), refused.remedy())
}

/// An existing folder that cannot be trusted, and the consequence.
fn folder_not_used(folder: &Path, so: &str) -> Option<Check> {
    let error = Folder::at(folder).err()?;
    Refused::behind(&error).map(|refused| not_used(FOLDER, refused, so))
}

fn home_can_be_written(home: &Path) -> Check {
    const NAME: &str = "home";
    // The nearest existing ancestor: the check creates nothing.
    let Some(there) = home.ancestors().find(|folder| folder.exists()) else {
        return Check::broken(
            NAME,
            format!("{}: its parent folders do not exist", home.display()),
            "set CODEX_SHIM_HOME",
        );
    };
    if !there.is_dir() {
        let remedy = "move that file away, or set CODEX_SHIM_HOME to a folder";
        return Check::broken(NAME, format!("{} is a file, not a folder", there.display()), remedy);
    }
    match fs::check_access(there, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) if there == home => Check::ok(NAME, format!("{} is writable", home.display())),
        Ok(()) => Check::ok(NAME, format!("{} will be created", home.display())),
        Err(error) => Check::broken(
            NAME,
            format!("{}: {error}", there.display()),
            "nothing is recorded and no request is stored until that folder is writable",
        ),
    }
}

/// A folder with private data that other users can read or write.
fn open_to_others(folder: &Path) -> Option<Check> {
    let mode = folder.metadata().ok()?.permissions().mode() & 0o777;
    let is_file = folder.is_file();
    let remedy = format!("chmod {} {}", if is_file { "600" } else { "700" }, folder.display());
    let found = format!("{} has the mode {mode:04o}: other users can read it", folder.display());
    (mode & 0o077 != 0).then(|| Check::note("mode", found, remedy))
}

fn room(home: &Path) -> Option<Check> {
    let there = home.ancestors().find(|folder| folder.exists())?;
    fs::free_bytes(there).ok().map(room_of)
}

/// The result for an amount of free space.
fn room_of(free: u64) -> Check {
    let found = format!("{} free", bytesize::ByteSize(free));
    let remedy = "free some space, or store less: `codex-shim prune`, `journal_bytes_max`";
    match free {
        free if free < ROOM_NONE => Check::broken("disk", found, remedy),
        free if free < ROOM_LOW => Check::note("disk", found, remedy),
        _ => Check::ok("disk", found),
    }
}

/// `name` is the session's name in messages.
fn of_session(session: &Found, name: &str) -> Vec<Check> {
    let mut checks = Vec::new();
    let holder =
        session.holder.as_ref().map_or_else(|| "its process".to_owned(), |holder| format!("pid {}", holder.pid));
    checks.extend(lock(session, name));
    let not_recorded = format!("session {name} records nothing, and tools cannot read its events");
    checks.extend(folder_not_used(&session.journal_dir(), &not_recorded));
    let no_transcripts = format!("session {name} writes no transcript files");
    checks.extend(folder_not_used(&session.dir.join("transcripts"), &no_transcripts));
    if session.live
        && let Err(why) = client::check(&session.dir)
        && session.is_still_live()
    {
        let remedy = format!("see shim.log in {}; if {holder} hangs, end it and start again", session.dir.display());
        checks.push(Check::broken("socket", why.message(session), remedy));
    }
    if session.live {
        checks.extend(config_warnings(session, name));
    }
    let is_silent = checks.iter().any(|check| check.name != FOLDER && check.verdict == Verdict::Broken);
    if !session.live && session.dir.join(SOCKET_FILE).symlink_metadata().is_ok() {
        let remedy = "nothing: the next start in this session replaces it";
        checks.push(Check::note("socket", format!("{name}: left over from a relay that was killed"), remedy));
    }
    let history = "move it away; it is rebuilt from the journal";
    let ledger = "move it away, and keep it: it is the only copy";
    for (file, known, remedy) in [(LEDGER_FILE, LEDGER_FORM, ledger), (HISTORY_FILE, HISTORY_FORM, history)] {
        let path = session.dir.join(file);
        let told = |why: String| format!("{}: {why}", path.display());
        checks.extend(open_to_others(&path));
        if let Err(error @ (DatabaseError::Damaged { .. } | DatabaseError::Log { .. })) = check_database(&path) {
            checks.push(Check::broken("database", error.to_string(), damaged_remedy(&error, file)));
            continue;
        }
        match path.exists().then(|| looked_at(&path)) {
            None => {}
            Some(Looked::Whole(form)) if form <= known => {}
            Some(Looked::Broken(why)) => checks.push(Check::broken("database", told(why), remedy)),
            Some(Looked::Locked(why)) => {
                let remedy = match session.is_still_live() {
                    true => {
                        format!("leave it in place: {holder} uses it; if that process hangs, end it and start again")
                    }
                    false => {
                        format!("leave it in place; find the process that has it open (`fuser {}`)", path.display())
                    }
                };
                // For a hung relay, the lock was reported already.
                checks.push(match is_silent {
                    true => Check::note("database", told(why), remedy),
                    false => Check::broken("database", told(why), remedy),
                });
            }
            Some(Looked::TooSlow) => {
                let why = format!("not checked completely within {} s", DATABASE_WAIT_MAX.as_secs());
                let remedy = "run `doctor` again when the disk is less busy; `codex-shim prune` makes the file smaller";
                checks.push(Check::note("database", told(why), remedy));
            }
            Some(Looked::Whole(form)) => {
                let why = format!("it was written by a newer codex-shim (form {form}, this one knows {known})");
                checks.push(Check::broken("database", told(why), "use that codex-shim, or name another session"));
            }
        }
    }
    checks
}

/// The remedy for damage that SQLite does not notice.
fn damaged_remedy(error: &DatabaseError, file: &str) -> &'static str {
    match (error, file) {
        (_, HISTORY_FILE) => "nothing: the next tool or relay that opens it reads the journal again",
        (DatabaseError::Log { .. }, _) => {
            "start its client again: the relay keeps the log; what is missing may be in a backup (`codex-shim docs backup`)"
        }
        (_, _) => "restore a backup (`codex-shim docs backup`), or remove it: the next relay begins a new one",
    }
}

/// What codex has said about its own configuration since its server started.
fn config_warnings(session: &Found, name: &str) -> Vec<Check> {
    const NAME: &str = "codex config";
    let document = client::ask(&session.dir, &api::State, client::ANSWER_WAIT_MAX).ok();
    let check = |warning: &ConfigWarningDocument| {
        let lines = warning.in_words();
        let lines: Vec<&str> = lines.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let found = format!("codex in session {name}: {}", lines.join(" "));
        match warning.is_broken {
            true => {
                Check::broken(NAME, found, "correct it, and start your tool again: until then codex starts no thread")
            }
            false => Check::note(NAME, found, "correct it, if it matters to you, and start your tool again"),
        }
    };
    document.map(|document| document.config_warnings.iter().map(check).collect()).unwrap_or_default()
}

/// Compares the process that holds the session's lock with the one that signed it.
fn lock(session: &Found, name: &str) -> Option<Check> {
    const NAME: &str = "lock";
    let Some(holder) = &session.holder else {
        let remedy = "nothing: the next start in this session names its process";
        return session
            .live
            .then(|| Check::note(NAME, format!("{name}: held by a process that is not named in it"), remedy));
    };
    let is_there = processes::exists(holder.pid);
    (session.live && !is_there && session.is_still_live()).then(|| {
        let lock = session.dir.join("lock");
        let found = format!("{name}: held, but not by pid {}, which it names and which is gone", holder.pid);
        Check::broken(
            NAME,
            found,
            format!("find the process that has it open (`fuser {}`), and end it", lock.display()),
        )
    })
}

/// Result of checking a database.
#[derive(Debug, PartialEq, Eq)]
enum Looked {
    /// Intact, with this schema version.
    Whole(usize),
    /// Damaged; the reason.
    Broken(String),
    /// Locked by another process, so nothing is known.
    Locked(String),
    TooSlow,
}

/// Checks a database within the time limit. A thread that is not done by then ends with the process.
fn looked_at(path: &Path) -> Looked {
    let (done, looked) = sync_channel(1);
    let path = path.to_owned();
    let look = move || {
        let _ = done.send(match whole(&path) {
            Ok(Ok(form)) => Looked::Whole(form),
            Ok(Err(why)) => Looked::Broken(why),
            Err(error) => match error.sqlite_error_code() {
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Looked::Locked(error.to_string()),
                Some(_) | None => Looked::Broken(error.to_string()),
            },
        });
    };
    match std::thread::Builder::new().name("look".to_owned()).spawn(look) {
        Ok(_) => looked.recv_timeout(DATABASE_WAIT_MAX).unwrap_or(Looked::TooSlow),
        Err(_) => Looked::TooSlow,
    }
}

/// The schema version of an intact database, or SQLite's finding. It reads the whole file.
fn whole(path: &Path) -> rusqlite::Result<Result<usize, String>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let file = files::database(path).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    let connection = Connection::open_with_flags(file, flags | OpenFlags::SQLITE_OPEN_NOFOLLOW)?;
    connection.busy_timeout(BUSY_WAIT_MAX)?;
    let told: String = connection.pragma_query_value(None, "quick_check", |row| row.get(0))?;
    if told != "ok" {
        return Ok(Err(told));
    }
    let form = connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))?;
    Ok(Ok(usize::try_from(form).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_has_two_limits() {
        let verdicts = [0, ROOM_NONE - 1, ROOM_NONE, ROOM_LOW - 1, ROOM_LOW].map(|free| room_of(free).verdict.name());
        assert_eq!(verdicts, ["broken", "broken", "note", "note", "ok"]);
    }

    #[test]
    fn damaged_databases_are_found() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("x.db");
        Connection::open(&path).and_then(|db| db.execute_batch("CREATE TABLE a (x)")).expect("it can be made");
        assert_eq!(looked_at(&path), Looked::Whole(0));
        Connection::open(&path).and_then(|db| db.pragma_update(None, "user_version", 7)).expect("it can be set");
        assert_eq!(looked_at(&path), Looked::Whole(7));
        let holder = Connection::open(&path).expect("it can be opened");
        holder.execute_batch("BEGIN EXCLUSIVE").expect("it can be locked");
        let looked = looked_at(&path);
        assert!(matches!(&looked, Looked::Locked(why) if why.contains("locked")), "{looked:?}");
        drop(holder);
        std::fs::write(&path, "no database ".repeat(500)).expect("write");
        assert!(matches!(looked_at(&path), Looked::Broken(_)));
    }
}
