//! `codex-shim backup` copies the sessions to another folder; `codex-shim restore` puts them into a home again.

mod reach;
mod restore;

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use clap::{Args, ValueHint};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::progress::Progress;
use super::requests::print_json;
use super::screen::{self, counted};
use super::select_session::SessionFlag;
use super::{CliError, Done, FAILED, NO_SUCH_SESSION, say, select_session};
use crate::config::{Environment, Flags, Settings, parse_duration};
use crate::keeping::backup::{
    Backup, BackupError, BackupErrorKind, BackupOptions, BackupRun, InHome, Manifest, Moment, Span,
};
use crate::os::limits::lower_thread_priority;
use crate::os::polling::{PollFlags, poll_one};
use crate::os::signals::Signals;
use crate::store::Otherwise;

pub(super) use restore::{RestoreArguments, run_restore};

/// How much the work yields to relays.
const NICENESS: i32 = 10;

/// How often --follow looks.
const LOOKS_EVERY: &str = "10s";

/// The shortest time between two looks.
const LOOKS_EVERY_MIN: Duration = Duration::from_millis(50);

/// The age of a history's copy with --follow: newer events are in the journal's copy.
const HISTORY_AGE_MAX: Duration = Duration::from_secs(3_600);

impl From<BackupError> for CliError {
    fn from(error: BackupError) -> CliError {
        let exit = match error.kind {
            BackupErrorKind::NoSuchSession => NO_SUCH_SESSION,
            BackupErrorKind::Failed | BackupErrorKind::Unwritable => FAILED,
        };
        let failed = CliError::exits(exit, screen::plain(&error.problem));
        match error.remedy {
            Some(remedy) => failed.with_remedy(screen::plain(&remedy)),
            None => failed,
        }
    }
}

/// Copy the sessions to another folder while relays run
///
/// Relays and hubs go on and never wait for it. The first run copies everything, each later one what has changed since. The copy
/// has the journals, ledgers, histories and transcripts, config.toml, and which session belongs to which folder. The output has the time up to
/// which the copy is complete. If a run is interrupted, the copy is the one before.
///
/// If the folder has lost its copy, for example because its disk is not mounted, the run fails and begins no other copy there. The copy
/// keeps data that the home has lost or damaged; the output names the file, and the exit status is 1.
///
/// Sessions and segments that were deleted from the home stay in the copy. After `redact`, the next run replaces the copy of the session.
/// Sockets, locks, logs and the state of running processes are not copied.
#[derive(Debug, Args)]
#[command(after_long_help = "\
DIR must be outside of the home and writable only by you: an empty folder, a
backup of this home, or one that does not exist yet. Its files can be read only
by you. They are not encrypted. A folder where models work, or one for
temporary files, is a bad place: a model may write to it. Earlier states of the
requests stay in the backup for 60 days; `codex-shim restore --at` takes one.

Exit status: 0, or 1 if something could not be copied, or 3 if there is no such
session. With --follow: 0 after SIGINT or SIGTERM.

Examples:
  codex-shim backup /mnt/disk/codex-shim
  codex-shim backup /mnt/disk/codex-shim --session work
  codex-shim backup /mnt/disk/codex-shim --follow
  codex-shim backup /mnt/disk/codex-shim --verify
  codex-shim backup /mnt/disk/codex-shim --json | jq -r .complete_to
  codex-shim restore /mnt/disk/codex-shim --dry-run    is the copy intact?")]
pub(super) struct BackupArguments {
    /// Folder of the backup
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: PathBuf,
    #[command(flatten)]
    session: SessionFlag,
    /// Go on until interrupted, so that the copy is never old
    #[arg(long)]
    follow: bool,
    /// How often --follow looks
    #[arg(long, value_name = "TIME", value_parser = parse_pause, default_value = LOOKS_EVERY, requires = "follow")]
    every: Duration,
    /// Remove from the copy what was deleted from the home
    #[arg(long)]
    delete: bool,
    /// Read the whole copy, and make damaged files of it anew
    #[arg(long)]
    verify: bool,
    /// Begin another backup in a folder that has lost its backup
    #[arg(long)]
    new: bool,
    /// Print one JSON document; with --follow one for each look
    #[arg(long)]
    json: bool,
}

fn parse_pause(text: &str) -> Result<Duration, String> {
    let pause = parse_duration(text)?;
    let is_too_short = pause < LOOKS_EVERY_MIN;
    if is_too_short { Err(format!("`{text}` is too short: at least 50ms")) } else { Ok(pause) }
}

#[derive(Serialize)]
struct BackupDocument<'a> {
    dir: String,
    home: &'a str,
    complete_to: Moment,
    run: u64,
    copied: Bytes,
    removed: Bytes,
    total: Bytes,
    sessions: Vec<SessionLine<'a>>,
    /// Sessions that could not be copied yet.
    lacking: &'a [String],
    /// Why a model may write to the folder.
    in_reach: Option<&'a str>,
    faults: &'a [String],
}

#[derive(Serialize)]
struct Bytes {
    bytes: u64,
}

#[derive(Serialize)]
struct SessionLine<'a> {
    session_id: &'a str,
    complete_to: Moment,
    gone_since: Option<Moment>,
    segments: usize,
    /// The times to which it can be restored.
    points: Vec<Span>,
    restorable_from: Option<Moment>,
    copied: Bytes,
    total: Bytes,
}

impl<'a> BackupDocument<'a> {
    fn of(run: &'a BackupRun, arguments: &BackupArguments, in_reach: Option<&'a str>) -> BackupDocument<'a> {
        let BackupRun { manifest, written, removed, faults } = run;
        let sessions = manifest.sessions.iter().map(|(id, copy)| SessionLine {
            session_id: id,
            complete_to: copy.complete_to,
            gone_since: copy.gone_since,
            segments: copy.journal.len(),
            points: copy.spans(),
            restorable_from: copy.points.first().map(|point| point.at),
            copied: Bytes { bytes: written.get(id).copied().unwrap_or_default() },
            total: Bytes { bytes: copy.files().map(|stored| stored.bytes).sum() },
        });
        BackupDocument {
            dir: arguments.dir.display().to_string(),
            home: &manifest.home,
            complete_to: manifest.complete_to(),
            run: manifest.runs,
            copied: Bytes { bytes: written.values().sum() },
            removed: Bytes { bytes: *removed },
            total: Bytes { bytes: manifest.files().map(|stored| stored.bytes).sum() },
            sessions: sessions.collect(),
            lacking: &manifest.lacking,
            in_reach,
            faults,
        }
    }
}

/// The folder of all sessions.
fn home(environment: &Environment) -> Result<PathBuf, CliError> {
    let (settings, _) = Settings::load(Flags::default(), environment);
    settings.home.value.ok_or_else(CliError::no_home)
}

/// Copies the sessions once, or until interrupted.
pub(super) fn run_backup(arguments: &BackupArguments, environment: &Environment) -> Done {
    let home = home(environment)?;
    let only = match arguments.session.name() {
        Some(name) => Some(select_session::one(Some(name), Otherwise::None, environment)?.id),
        None => None,
    };
    // Without it the work is only less polite.
    let _ = lower_thread_priority(NICENESS);
    let mut backup = Backup::new(&home, &arguments.dir);
    let options = BackupOptions {
        only: only.as_deref(),
        deletes: arguments.delete,
        history_age_max: None,
        begins_anew: arguments.new,
        verifies: arguments.verify,
    };
    let in_reach = reach::of_models(&arguments.dir, [&*home], &[], environment);
    if arguments.follow {
        return follow(arguments, &mut backup, options, in_reach.as_deref());
    }
    let progress = Progress::new("copying", backup.bytes_to_read(options));
    let run = backup.run(options, &|bytes| {
        progress.advance(bytes);
        true
    });
    drop(progress);
    let run = run?.ok_or_else(|| CliError::quiet(FAILED))?;
    let printed = print(&run, arguments, in_reach.as_deref());
    warn(in_reach.as_deref());
    run.faults.iter().for_each(|fault| say(fault));
    Ok(if run.faults.is_empty() { printed } else { FAILED })
}

/// Says why a model may write to the copy.
fn warn(in_reach: Option<&str>) {
    if let Some(why) = in_reach {
        say(&format!("{why}; a backup belongs where no model can change it"));
    }
}

/// Brings the copy up to date again and again.
fn follow(
    arguments: &BackupArguments,
    backup: &mut Backup,
    options: BackupOptions<'_>,
    in_reach: Option<&str>,
) -> Done {
    let signals = Signals::listen(&[SIGINT, SIGTERM]).map_err(|error| format!("listen for signals: {error}"))?;
    let is_over = Cell::new(false);
    let goes_on = |_| {
        is_over.set(is_over.get() || !signals.take().is_empty());
        !is_over.get()
    };
    let (mut known_faults, mut is_first) = (Vec::new(), true);
    while goes_on(0) {
        let history_age_max = Some(HISTORY_AGE_MAX).filter(|_| !is_first);
        let verifies = options.verifies && is_first;
        let faults = match backup.run(BackupOptions { history_age_max, verifies, ..options }, &goes_on) {
            Ok(None) => break,
            Ok(Some(run)) => {
                let has_news = is_first || run.written.values().any(|bytes| *bytes > 0);
                if (arguments.json || has_news) && print(&run, arguments, in_reach) != 0 {
                    return Ok(FAILED);
                }
                if is_first {
                    warn(in_reach);
                }
                is_first = false;
                run.faults
            }
            // A disk that is full or not there may come back. The copy is the one before.
            Err(error) if !is_first => vec![CliError::from(error).to_string()],
            Err(error) => return Err(error.into()),
        };
        if faults != known_faults {
            faults.iter().for_each(|fault| say(fault));
            known_faults = faults;
        }
        // A wait that fails is over, and so is one that a signal ends.
        let _ = poll_one(&signals, PollFlags::IN, Some(arguments.every));
    }
    Ok(0)
}

/// Prints the outcome of a run without its faults; returns the exit status.
fn print(run: &BackupRun, arguments: &BackupArguments, in_reach: Option<&str>) -> i32 {
    match arguments.json {
        true => print_json(&BackupDocument::of(run, arguments, in_reach)),
        false => screen::print(&in_words(run, arguments)),
    }
}

fn in_words(run: &BackupRun, arguments: &BackupArguments) -> String {
    let BackupRun { manifest, written, .. } = run;
    let dir = screen::plain(&arguments.dir.display().to_string());
    let begun = if manifest.runs == 1 { format!("a new backup begins in {dir}\n") } else { String::new() };
    let sessions = counted(manifest.sessions.len() as u64, "session", "sessions");
    let sessions = sessions.unwrap_or_else(|| "no session".to_owned());
    let total: u64 = manifest.files().map(|stored| stored.bytes).sum();
    let copied: u64 = written.values().sum();
    let mut text = format!(
        "{begun}complete up to {}: {sessions}, {}; {} copied\n",
        manifest.complete_to(),
        ByteSize(total),
        ByteSize(copied)
    );
    text.extend(gone_in_words(manifest));
    for id in &manifest.lacking {
        text.push_str(&format!("session {id} is not in it yet\n"));
    }
    text
}

/// Data that stays in the copy, although the home has lost it.
fn gone_in_words(manifest: &Manifest) -> Option<String> {
    let gone = manifest.sessions.values().filter(|session| session.gone_since.is_some()).count() as u64;
    let journals = manifest.sessions.values().filter(|session| session.gone_since.is_none());
    let lines: Vec<InHome> = journals.flat_map(|session| &session.journal).map(|lines| lines.in_home).collect();
    let count = |of: InHome| lines.iter().filter(|in_home| **in_home == of).count() as u64;
    let all =
        [counted(gone, "session", "sessions"), counted(count(InHome::Gone), "journal segment", "journal segments")];
    let all: Vec<String> = all.into_iter().flatten().collect();
    let gone = all.join(" and ");
    let gone =
        (!gone.is_empty()).then(|| format!("{gone} that the home no longer has stay in it; --delete removes them\n"));
    let less = count(InHome::Shorter) + count(InHome::Differs);
    let less = counted(less, "journal segment of the home lacks", "journal segments of the home lack");
    let less = less.map(|segments| format!("{segments} lines that the copy keeps\n"));
    (gone.is_some() || less.is_some()).then(|| [gone, less].into_iter().flatten().collect())
}
