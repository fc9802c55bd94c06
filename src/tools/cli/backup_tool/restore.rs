//! `codex-shim restore`.

use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use clap::{Args, ValueHint};
use serde::Serialize;

use super::super::progress::Progress;
use super::super::requests::print_json;
use super::super::screen::{self, counted};
use super::super::since::{self, Since};
use super::super::{CliError, Done, FAILED, say};
use super::{home, reach};
use crate::config::Environment;
use crate::keeping::backup::{BackupError, Moment, Span};
use crate::keeping::restore::{
    CopiedSettings, Damage, DeletedSessions, HistorySource, Plans, Restored, StoredBackup, check_home, present,
};
use crate::store::RunMode;

/// Put the sessions of a backup into a home
///
/// All files are compared with their checksums first; if one is damaged, nothing is written. A session that the home has already
/// is never replaced, and one that was deleted from the home of the backup is left out unless you ask for it. Requests that were open are orphaned, because the server that has asked is gone. Events of a restored session
/// get the numbers of a new epoch, unless the home itself proves that the old ones still hold.
#[derive(Debug, Args)]
#[command(after_long_help = "\
--at restores the newest state of the ledger that is not after TIME, and the
journal up to it. The output says which time that is; a backup keeps one state
for every 5 minutes of an hour, every hour of 2 days and every day of 60 days,
and between two looks at a ledger that did not change any time is exact.

config.toml names programs that codex-shim runs, and rules that answer for you.
It is restored only with --with-settings, only into a home without one, and
never from a folder to which a model may write.

Exit status: 0, or 1 if something could not be restored, or 3 if the backup has
no such session.

Examples:
  codex-shim restore /mnt/disk/codex-shim --dry-run
  codex-shim restore /mnt/disk/codex-shim
  codex-shim restore /mnt/disk/codex-shim --missing
  codex-shim restore /mnt/disk/codex-shim --session work --to ~/restored
  codex-shim restore /mnt/disk/codex-shim --at 2026-11-30T18:00 --to ~/restored
  CODEX_SHIM_HOME=~/restored codex-shim sessions")]
pub(in crate::cli) struct RestoreArguments {
    /// Folder of the backup
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: PathBuf,
    /// As it was then: 7d or 12h ago, 2026-11-01, or 2026-11-01T09:30
    #[arg(long, value_name = "TIME", value_parser = since::parse)]
    at: Option<Since>,
    /// Home to restore into [default: the one of all tools]
    #[arg(long, value_name = "HOME", value_hint = ValueHint::DirPath)]
    to: Option<PathBuf>,
    /// Only this session of the backup; repeatable
    #[arg(long = "session", value_name = "SESSION")]
    sessions: Vec<String>,
    /// Leave out the sessions that the home has already
    #[arg(long)]
    missing: bool,
    /// Also sessions that were deleted from the home of the backup
    #[arg(long)]
    deleted: bool,
    /// Restore config.toml, too
    #[arg(long)]
    with_settings: bool,
    /// Restore the intact part of a damaged backup, and list the rest
    #[arg(long)]
    salvage: bool,
    /// Check the backup and print what would be restored; write nothing
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct RestoreDocument<'a> {
    dry_run: bool,
    dir: String,
    to: String,
    sessions: &'a [Restored],
    /// Sessions that the home has already.
    present: &'a [String],
    /// Sessions that the backup does not have at that time.
    skipped: &'a [String],
    /// Sessions that were deleted from the home of the backup, and are left out.
    deleted: &'a [String],
    /// Why a model may write to the folder of the backup.
    in_reach: Option<&'a str>,
    settings_restored: bool,
    damaged: &'a [Damage],
    faults: &'a [String],
}

/// Restores sessions, or says what would be restored.
pub(in crate::cli) fn run_restore(arguments: &RestoreArguments, environment: &Environment) -> Done {
    let to = match &arguments.to {
        Some(to) => to.clone(),
        None => home(environment)?,
    };
    let mode = if arguments.dry_run { RunMode::DryRun } else { RunMode::Apply };
    let at = arguments.at.map(|at| Moment(at.micros()));
    let backup = StoredBackup::open(&arguments.dir)?;
    let in_reach = in_reach(&backup, arguments, &to, environment);
    let settings = if arguments.with_settings { CopiedSettings::Restore } else { CopiedSettings::Leave };
    if let (Some(why), CopiedSettings::Restore, Some(file)) = (&in_reach, settings, backup.settings()) {
        let remedy =
            format!("look at {}, and copy it to {} yourself", file.display(), to.join("config.toml").display());
        return Err(CliError::failed(format!("config.toml is not restored from there: {why}")).with_remedy(remedy));
    }
    let deleted = if arguments.deleted { DeletedSessions::Restore } else { DeletedSessions::Leave };
    let mut plans = backup.plans(&arguments.sessions, at, deleted)?;
    let there = present(&to, &plans);
    if arguments.missing {
        plans.leave_present(&to);
    }
    if mode == RunMode::Apply {
        check_home(&to, &arguments.dir, &plans)?;
    }
    let damaged = checked(&backup, &plans, settings);
    if !damaged.is_empty() {
        if !arguments.salvage {
            return refused(arguments, &to, &plans, &damaged);
        }
        backup.salvage(&mut plans, &damaged);
    }
    backup.cut(&mut plans, at)?;
    let mut outcome = Outcome::default();
    match mode {
        RunMode::DryRun => outcome.sessions = plans.plans.iter().map(|plan| Restored::of(plan, None)).collect(),
        RunMode::Apply => {
            let settings = if is_damaged(&damaged) { CopiedSettings::Leave } else { settings };
            outcome.restore(&backup, &plans, &to, settings);
        }
    }
    let document = RestoreDocument {
        sessions: &outcome.sessions,
        present: &there,
        in_reach: in_reach.as_deref(),
        settings_restored: outcome.settings,
        faults: &outcome.faults,
        ..RestoreDocument::of(arguments, &to, &plans, &damaged)
    };
    let printed = if arguments.json { print_json(&document) } else { screen::print(&in_words(&document, &backup)) };
    if let Some(why) = &in_reach {
        say(&format!("{why}; it may have changed the backup, and its checksums"));
    }
    outcome.faults.iter().for_each(|fault| say(fault));
    Ok(if outcome.faults.is_empty() && plans.skipped.is_empty() { printed } else { FAILED })
}

/// Why a model may write to the folder of a backup, also one of the sessions in it.
fn in_reach(
    backup: &StoredBackup,
    arguments: &RestoreArguments,
    to: &Path,
    environment: &Environment,
) -> Option<String> {
    let sessions = backup.manifest().sessions.values().filter_map(|session| session.holder.as_ref());
    let cwds: Vec<PathBuf> = sessions.map(|holder| PathBuf::from(&holder.place.cwd)).collect();
    let own = home(environment).ok();
    reach::of_models(&arguments.dir, [Some(to), own.as_deref()].into_iter().flatten(), &cwds, environment)
}

impl<'a> RestoreDocument<'a> {
    /// That of a run that has restored nothing.
    fn of(arguments: &RestoreArguments, to: &Path, plans: &'a Plans, damaged: &'a [Damage]) -> RestoreDocument<'a> {
        RestoreDocument {
            dry_run: arguments.dry_run,
            dir: arguments.dir.display().to_string(),
            to: to.display().to_string(),
            sessions: &[],
            present: &[],
            skipped: &plans.skipped,
            deleted: &plans.deleted,
            in_reach: None,
            settings_restored: false,
            damaged,
            faults: &[],
        }
    }
}

/// Whether the settings are among the damaged files.
fn is_damaged(damaged: &[Damage]) -> bool {
    damaged.iter().any(|damage| damage.session_id.is_none())
}

/// Compares the files of a copy with its manifest.
fn checked(backup: &StoredBackup, plans: &Plans, settings: CopiedSettings) -> Vec<Damage> {
    let progress = Progress::new("checking", plans.plans.iter().map(|plan| plan.amount().bytes).sum());
    backup.check(plans, settings, &|bytes| progress.advance(bytes))
}

/// Names the damaged files and the intact sessions. Nothing was written.
fn refused(arguments: &RestoreArguments, to: &Path, plans: &Plans, damaged: &[Damage]) -> Done {
    if arguments.json {
        let printed = print_json(&RestoreDocument::of(arguments, to, plans, damaged));
        if printed != 0 {
            return Ok(printed);
        }
    }
    for Damage { file, problem, .. } in damaged {
        say(&format!("{}: {problem}", arguments.dir.join(file).display()));
    }
    let is_whole = |session: &&str| damaged.iter().all(|damage| damage.session_id.as_deref() != Some(session));
    let whole: Vec<&str> = plans.plans.iter().map(|plan| &*plan.session).filter(is_whole).collect();
    let others = match &whole[..] {
        // Without it no other file is needed.
        _ if is_damaged(damaged) && damaged.len() == 1 => {
            "; all sessions are whole, and are restored without --with-settings".to_owned()
        }
        [] => String::new(),
        whole => format!("; whole are: {}, which --session restores", whole.join(", ")),
    };
    let count = counted(damaged.len() as u64, "file is", "files are").unwrap_or_default();
    let problem = format!("the backup is damaged: {count} not as written; nothing was restored{others}");
    Err(CliError::failed(problem).with_remedy(
        "`codex-shim backup --verify` makes them anew if the home still has the session; --salvage restores all that is intact, and \
         names what it leaves out",
    ))
}

/// What was restored.
#[derive(Default)]
struct Outcome {
    sessions: Vec<Restored>,
    settings: bool,
    faults: Vec<String>,
}

impl Outcome {
    fn restore(&mut self, backup: &StoredBackup, plans: &Plans, to: &Path, settings: CopiedSettings) {
        if settings == CopiedSettings::Restore {
            match backup.restore_settings(to) {
                Ok(restored) => self.settings = restored,
                Err(error) => self.fault("the settings were not restored", &error),
            }
        }
        let progress = Progress::new("restoring", plans.plans.iter().map(|plan| plan.amount().bytes).sum());
        for plan in &plans.plans {
            match backup.restore(plan, to, &|bytes| progress.advance(bytes)) {
                Ok(restored) => self.sessions.push(restored),
                Err(error) => self.fault(&format!("session {} was not restored", plan.session), &error),
            }
        }
        if !plans.plans.is_empty()
            && let Err(error) = backup.restore_places(plans, to)
        {
            self.fault("a relay will not find its last session by its folder", &error);
        }
    }

    fn fault(&mut self, what: &str, error: &BackupError) {
        let remedy = error.remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
        self.faults.push(format!("{what}: {error}{remedy}"));
    }
}

/// The times of a state, as --at takes them.
fn span(span: &Span) -> String {
    if span.from == span.until { span.from.to_string() } else { format!("{} to {}", span.from, span.until) }
}

/// Whether the settings were restored, and why not.
fn settings_in_words(document: &RestoreDocument<'_>, backup: &StoredBackup) -> Option<String> {
    let file = screen::plain(&backup.settings()?.display().to_string());
    let home = Path::new(&document.to).join("config.toml");
    Some(match document.settings_restored {
        true => "config.toml: restored\n".to_owned(),
        false if home.symlink_metadata().is_ok() => "config.toml: not restored, because the home has one\n".to_owned(),
        false => format!("config.toml: not restored; after a look at {file}, --with-settings does it\n"),
    })
}

fn in_words(document: &RestoreDocument<'_>, backup: &StoredBackup) -> String {
    let verb = if document.dry_run { "would be restored" } else { "restored" };
    let mut text = String::new();
    for Restored { session_id, restored_to, segments, bytes, orphaned, history, left_out, points } in document.sessions
    {
        let journal = counted(*segments, "journal segment", "journal segments");
        let journal = journal.unwrap_or_else(|| "no journal".to_owned());
        text.push_str(&format!("{session_id}: {verb} as of {restored_to}, {journal}, {}\n", ByteSize(*bytes)));
        if document.present.contains(session_id) {
            text.push_str(&format!("  not into {}, which has this session already\n", screen::plain(&document.to)));
        }
        if let Some(requests) = counted(orphaned.unwrap_or_default(), "open request is", "open requests are") {
            text.push_str(&format!("  {requests} orphaned: no server waits for an answer\n"));
        }
        match history {
            HistorySource::Copied => {}
            HistorySource::Journal => text.push_str("  the history is built again from the journal\n"),
        }
        left_out.iter().for_each(|what| text.push_str(&format!("  left out: {what}\n")));
        if document.dry_run {
            let times: Vec<String> = points.iter().map(span).collect();
            text.push_str(&format!("  --at restores: {}\n", times.join(", ")));
        }
    }
    document.skipped.iter().for_each(|skipped| text.push_str(&format!("{skipped}\n")));
    for id in document.deleted {
        let deleted = "was deleted from its home; --deleted or --session restores it";
        text.push_str(&format!("session {id} {deleted}\n"));
    }
    text.extend(settings_in_words(document, backup));
    if backup.manifest().sessions.is_empty() {
        text.push_str("the backup has no session\n");
    }
    for id in &backup.manifest().lacking {
        text.push_str(&format!("session {id} is not in the backup: it could never be copied\n"));
    }
    text.push_str(&format!("the backup is complete up to {}\n", backup.manifest().complete_to()));
    text
}
