//! `codex-shim doctor --files`: reads every byte of the stored files, and names the damaged ones.

use std::path::Path;

use super::super::progress::Progress;
use super::super::screen::counted;
use super::{Check, Verdict};
use crate::config::{SessionName, Settings};
use crate::files;
use crate::keeping::{FileFault, FilesReport, StoredKind, check_files, stored_bytes};
use crate::store::{Found, PLACES_DIR, Survey, WitnessFile, full_name};

/// Checks the files of all sessions and those beside them, or only the files of the session `only`.
pub(super) fn checks(settings: &Settings, only: Option<&str>) -> Vec<Check> {
    let Some(home) = &settings.home.value else {
        return vec![Check::broken("home", "neither CODEX_SHIM_HOME nor HOME is set", "set CODEX_SHIM_HOME")];
    };
    let sessions = match Survey::of(home) {
        Ok(survey) => survey.found,
        Err(error) => {
            let remedy = "check the owner and the mode of that folder";
            return vec![Check::broken("sessions", error.to_string(), remedy)];
        }
    };
    let meant: Vec<&Found> = sessions.iter().filter(|session| only.is_none_or(|only| session.id == only)).collect();
    let progress = Progress::new("checking", meant.iter().map(|session| stored_bytes(session)).sum());
    let mut checks = Vec::new();
    for session in meant {
        let report = check_files(session, &|bytes| progress.advance(bytes));
        checks.extend(report.faults.iter().map(fault));
        checks.push(summary(&full_name(session, &sessions), &report));
    }
    if only.is_none() {
        checks.extend(beside_sessions(home, &sessions));
    }
    checks
}

fn fault(fault: &FileFault) -> Check {
    let FileFault { kind, path, problem } = fault;
    let (name, remedy) = match kind {
        StoredKind::Journal => (
            "journal",
            "leave it in place: what can be read of it counts, and the rest is a gap. Leave history.db too, which has what was \
             indexed before; a backup may have the whole file (`codex-shim docs backup`)",
        ),
        StoredKind::Ledger => (
            "ledger",
            "do not trust its requests and answers. Restore a backup (`codex-shim docs backup`); without one, move it and its log \
             away and keep them, and the next relay begins a new one",
        ),
        StoredKind::History => ("history", "move it and its log away; it is rebuilt from the journal"),
        StoredKind::Other => ("file", "move it away; codex-shim writes it again, or goes on without it"),
    };
    Check::broken(name, format!("{}: {problem}", path.display()), remedy)
}

fn summary(name: &str, report: &FilesReport) -> Check {
    let files = counted(report.files as u64, "file", "files").unwrap_or_else(|| "no file".to_owned());
    let unsummed = match report.unsummed {
        0 => "each with its checksum".to_owned(),
        unsummed => format!("{unsummed} of them without a checksum: another letter in a text is not noticed there"),
    };
    let found = format!("session {name}: {files} read, {unsummed}");
    Check { verdict: Verdict::Ok, ..Check::ok("files", found) }
}

/// The small files of the home itself.
fn beside_sessions(home: &Path, sessions: &[Found]) -> Vec<Check> {
    let mut checks = Vec::new();
    let entries = |folder: &str| {
        let entries = std::fs::read_dir(home.join(folder)).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_file())
    };
    for path in entries(PLACES_DIR) {
        let named = files::read(&path).unwrap_or_default();
        let named = String::from_utf8_lossy(&named).trim().to_owned();
        if named.parse::<SessionName>().is_err() || !sessions.iter().any(|session| session.id == named) {
            let found = format!("{}: it names no session", path.display());
            checks.push(Check::note("place", found, "nothing: the next start in that folder begins a new session"));
        }
    }
    for path in entries("marks") {
        if WitnessFile::is_damaged(&path) {
            let found = format!("{}: it cannot be read", path.display());
            checks.push(Check::note(
                "mark",
                found,
                "nothing: the next relay writes it again, and events get new numbers",
            ));
        }
    }
    checks
}
