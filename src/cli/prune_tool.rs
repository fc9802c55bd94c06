//! `codex-shim prune`: what is over its bounds goes.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::screen::{self, Screen, Tone, plain};
use super::{FAILED, chosen, say};
use crate::config::{Environment, Flags, Settings, parse_duration};
use crate::index::TranscriptFiles;
use crate::keeping::{Bounds, Kind, PrunedSessions, Went, prune, prune_sessions};
use crate::store::{Deed, Found, Otherwise};

/// Remove what is kept longer, or is more, than the settings say
///
/// Segments of journals, rows of histories, and whole sessions that nobody uses any more. A relay that runs does this by
/// itself, in the background; this does it now, for all sessions, also those in which no relay runs. What is not indexed yet
/// stays, and so does what a relay has in hand, and any file that codex-shim did not create. --dry-run names each file.
#[derive(Debug, Args)]
#[command(after_long_help = "\
The bounds are the settings journal_bytes_max, journal_age_max, events_max, tool_events_max, turn_events_max,
history_age_max and session_age_max; see `codex-shim config`. --older-than is another age for everything.

Exit status: 0 it is done, also where there was nothing to do, 1 not all could be done, 3 there is no such session.

Examples:
  codex-shim prune --dry-run
  codex-shim prune --older-than 7d                 also sessions that were not used for a week
  codex-shim prune --session work --older-than 1d
  codex-shim prune --json | jq .total.bytes")]
pub(super) struct PruneArguments {
    /// Take what is older than this, such as 12h or 7d, instead of what the settings say
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    older_than: Option<Duration>,
    /// Only tell what would go
    #[arg(long)]
    dry_run: bool,
    /// Only this session, or the one whose name begins so
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    dry_run: bool,
    went: &'a [Went],
    total: Total,
    /// Files that stay in the folders of deleted sessions because codex-shim did not create them.
    left: &'a [String],
    faults: &'a [String],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Total {
    count: u64,
    bytes: u64,
}

/// Removes it, or tells what would go.
pub(super) fn run(arguments: &PruneArguments, environment: &Environment) -> i32 {
    let (settings, complaints) = Settings::load(Flags::default(), environment);
    // A bound that was meant otherwise would take what was meant to stay.
    if let Some(complaint) = complaints.first() {
        say(&format!("{complaint}; nothing is removed before that is mended"));
        return FAILED;
    }
    let found = match &arguments.session {
        Some(name) => chosen::one(Some(name), Otherwise::None, environment).map(|session| vec![session]),
        None => chosen::all(environment),
    };
    let (found, home) = match (found, &settings.home.value) {
        (Ok(found), Some(home)) => (found, home),
        (Ok(_), None) => return chosen::NotChosen::NoHome.told(),
        (Err(error), _) => return error.told(),
    };
    let bounds = Bounds { journal: settings.journal_bounds(), retention: settings.retention() };
    let bounds = arguments.older_than.map_or(bounds, |age| bounds.older_than(age));
    let deed = if arguments.dry_run { Deed::Looked } else { Deed::Done };
    let transcript_files = if settings.transcript_files.value { TranscriptFiles::Kept } else { TranscriptFiles::None };
    let only = arguments.session.as_ref().and_then(|_| found.first()).map(|session| &*session.id);
    let PrunedSessions { mut went, left, mut faults } = prune_sessions(home, only, &bounds, deed);
    let gone: Vec<String> = went.iter().map(|session| session.session_id.clone()).collect();
    let is_left = |session: &&Found| !gone.contains(&session.id) && (only.is_some() || !session.dir.is_symlink());
    for session in found.iter().filter(is_left) {
        match prune(session, &bounds, transcript_files, deed) {
            Ok(more) => went.extend(more),
            Err(fault) => faults.push(fault),
        }
    }
    tell(arguments, &went, [&left, &faults], environment)
}

fn tell(arguments: &PruneArguments, went: &[Went], [left, faults]: [&[String]; 2], environment: &Environment) -> i32 {
    let total =
        Total { count: went.iter().map(|went| went.count).sum(), bytes: went.iter().map(|went| went.bytes).sum() };
    let text = if arguments.json {
        let document = Document { dry_run: arguments.dry_run, went, total, left, faults };
        format!("{}\n", serde_json::to_string(&document).expect("BUG: plain data is JSON"))
    } else {
        as_table(went, total, arguments.dry_run, Screen::of_stdout(environment))
    };
    let printed = screen::print(&text);
    if !arguments.json {
        left.iter().for_each(|path| say(&format!("{path} stays: codex-shim did not create it")));
    }
    faults.iter().for_each(|fault| say(fault));
    if faults.is_empty() { printed } else { FAILED }
}

fn as_table(went: &[Went], total: Total, is_dry: bool, to: Screen) -> String {
    if went.is_empty() {
        return "nothing is over its bounds\n".to_owned();
    }
    let cells = |went: &Went| {
        [plain(&went.session_id), went.what.name().to_owned(), went.count.to_string(), went.bytes.to_string()]
    };
    let mut rows: Vec<[String; 4]> = went.iter().map(cells).collect();
    rows.insert(0, ["SESSION", "WHAT", "COUNT", "BYTES"].map(str::to_owned));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let [id_width, what_width, count_width, bytes_width] = std::array::from_fn(width);
    let line = |(index, [id, what, count, bytes]): (usize, &[String; 4])| {
        let line = format!("{id:id_width$}  {what:what_width$}  {count:>count_width$}  {bytes:>bytes_width$}");
        format!("{}\n", if index == 0 { to.paint(Tone::Faint, &line) } else { line })
    };
    let mut table: String = rows.iter().enumerate().map(line).collect();
    if is_dry {
        let files = went.iter().flat_map(|went| &went.files);
        files.for_each(|file| table.push_str(&format!("{}\n", to.paint(Tone::Faint, &plain(file)))));
    }
    let sessions = went.iter().filter(|went| went.what == Kind::Session).count();
    let verb = if is_dry { "would go" } else { "went" };
    format!("{table}{} bytes {verb}, {sessions} of {} sessions as a whole\n", total.bytes, sessions_in(went))
}

fn sessions_in(went: &[Went]) -> usize {
    let ids: std::collections::BTreeSet<&str> = went.iter().map(|went| &*went.session_id).collect();
    ids.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_what_goes() {
        let went = |id: &str, what, count, bytes| {
            let files = if what == Kind::Session { vec![format!("sessions/{id}/lock")] } else { Vec::new() };
            Went { session_id: id.to_owned(), what, count, bytes, files }
        };
        let went = [went("old", Kind::Session, 1, 12_345), went("work", Kind::JournalSegments, 2, 9)];
        let total = Total { count: 3, bytes: 12_354 };
        assert_eq!(
            as_table(&went, total, true, Screen::None),
            "SESSION  WHAT              COUNT  BYTES\n\
             old      session               1  12345\n\
             work     journal segments      2      9\n\
             sessions/old/lock\n\
             12354 bytes would go, 1 of 2 sessions as a whole\n"
        );
        assert_eq!(as_table(&[], total, true, Screen::None), "nothing is over its bounds\n");
    }
}
