//! Findings from playing conversations on record to another codex.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use super::super::kept_back::KeptBack;
use super::super::progress::Progress;
use super::super::screen::counted;
use super::super::since::Since;
use super::super::{CliError, select_session};
use super::scratch::Scratch;
use super::{Compared, say};
use crate::config::Environment;
use crate::drift::{Finding, FindingKind};
use crate::history::rfc3339_millis;
use crate::journal::SegmentName;
use crate::rehearsal::{Heard, HeardKind, Plan, Play, PlayError, Surroundings, differences, play};
use crate::relay::locate::Codex;
use crate::replay::{Tape, TapeEntry};
use crate::store::Found;

/// Longest run of a server that is played, in bytes.
const RUN_BYTES_MAX: u64 = 64 << 20;

/// Most conversations that are played.
const CONVERSATIONS_MAX: usize = 32;

/// The conversation of a client.
struct Conversation {
    client: String,
    version: String,
    /// Microseconds since the Unix epoch.
    ended_us: u64,
    plan: Plan,
}

impl Conversation {
    /// The conversations of a run, the last one first, as far as clients have introduced themselves and talked to a model.
    fn all(tape: &Tape) -> Vec<Conversation> {
        let of = |conn| {
            let entries: Vec<TapeEntry> = tape.entries.iter().filter(|entry| entry.conn == conn).cloned().collect();
            let greeting: Value = serde_json::from_slice(entries.first()?.bytes.as_deref()?).ok()?;
            let text = |name: &str| greeting["params"]["clientInfo"][name].as_str().map(str::to_owned);
            let (client, version) = (text("name")?, text("version").unwrap_or_default());
            let plan = Plan::of(&entries);
            plan.has_turns().then(|| Conversation {
                client,
                version,
                ended_us: entries.last().map_or(0, |it| it.at_us),
                plan,
            })
        };
        let mut all: Vec<Conversation> = tape.connections().into_iter().rev().filter_map(of).collect();
        all.sort_by_key(|conversation| std::cmp::Reverse(conversation.ended_us));
        all
    }
}

/// Plays the tapes, or else the last conversation of each client on record, to both programs, and compares what these say. Without the
/// program of before it compares with the recording.
pub(super) fn findings(
    tapes: &[PathBuf],
    client: Option<&str>,
    since: Since,
    compared: &Compared,
    environment: &Environment,
) -> Result<Vec<Finding>, CliError> {
    let to = compared.to_program.as_ref().ok_or_else(|| {
        let why = format!("codex {} cannot be played to: only its protocol is known", compared.to.version);
        CliError::exits(super::super::USAGE, why).with_remedy("give --codex its program".to_owned())
    })?;
    let mut conversations = if tapes.is_empty() { recorded(since, environment)? } else { of_tapes(tapes)? };
    let mut met = BTreeSet::new();
    conversations.retain(|it| client.is_none_or(|client| it.client == client));
    if tapes.is_empty() {
        conversations.retain(|it| met.insert((it.client.clone(), it.version.clone())));
    }
    conversations.truncate(CONVERSATIONS_MAX);
    say(&counted(conversations.len() as u64, "conversation is played", "conversations are played")
        .unwrap_or_else(|| "no conversation with a model is on record in this period that could be played".to_owned()));
    let progress = Progress::new("playing conversations", conversations.len() as u64);
    let mut found = Vec::new();
    for conversation in &conversations {
        let before = match &compared.from_program {
            Some(from) => Some(heard(from, conversation, environment)?),
            None => None,
        };
        let after = heard(to, conversation, environment)?;
        let (from, surroundings) = match &before {
            Some(before) => (before, Surroundings::Same),
            None => (&conversation.plan.heard, Surroundings::Recorded),
        };
        let who = format!("{} {}", conversation.client, conversation.version);
        let doubts = [("before", before.as_ref().and_then(Heard::doubt)), ("now", after.doubt())];
        for (which, doubt) in doubts.into_iter().filter_map(|(which, doubt)| Some((which, doubt?))) {
            say(&format!("the conversation of {} is not compared to its end: {which}, {doubt}", who.trim_end()));
        }
        found.extend(differences(from, &after, surroundings).into_iter().map(|difference| Finding {
            client: conversation.client.clone(),
            version: conversation.version.clone(),
            kind: match difference.kind {
                HeardKind::Fails => FindingKind::Rejected,
                HeardKind::Unanswered => FindingKind::Unanswered,
                HeardKind::Gone => FindingKind::Changed,
            },
            method: difference.method,
            member: difference.item,
            value: None,
            count: 1,
            last_used_at: Some(rfc3339_millis(conversation.ended_us)),
            advice: difference.words,
        }));
        progress.advance(1);
    }
    Ok(found)
}

fn of_tapes(tapes: &[PathBuf]) -> Result<Vec<Conversation>, CliError> {
    let mut all = Vec::new();
    for tape in tapes {
        let loaded = Tape::load(tape).map_err(|error| CliError::failed(error.to_string()))?;
        all.extend(Conversation::all(&loaded));
    }
    Ok(all)
}

/// The conversations in the last runs of all sessions since a time, the last one first.
fn recorded(since: Since, environment: &Environment) -> Result<Vec<Conversation>, CliError> {
    let mut all: Vec<Conversation> = Vec::new();
    for session in select_session::listed(None, environment)? {
        match last_run(&session) {
            Ok(Some(tape)) => {
                let of_run = Conversation::all(&tape).into_iter().filter(|it| it.ended_us >= since.micros());
                // Only the last one of each client is played.
                for conversation in of_run {
                    let is_same = |it: &&mut Conversation| {
                        (&it.client, &it.version) == (&conversation.client, &conversation.version)
                    };
                    match all.iter_mut().find(is_same) {
                        Some(known) if known.ended_us >= conversation.ended_us => {}
                        Some(known) => *known = conversation,
                        None => all.push(conversation),
                    }
                }
            }
            Ok(None) => {}
            Err(why) => say(&format!("the conversations of session {} are not played: {why}", session.name())),
        }
    }
    all.sort_by_key(|conversation| std::cmp::Reverse(conversation.ended_us));
    Ok(all)
}

fn last_run(session: &Found) -> Result<Option<Tape>, String> {
    let journal = session.journal_dir();
    let segments = SegmentName::list(&journal).map_err(|error| error.to_string())?;
    let Some(last) = segments.last().map(|segment| segment.generation.clone()) else { return Ok(None) };
    let run: Vec<SegmentName> = segments.into_iter().filter(|segment| segment.generation == last).collect();
    let bytes_of =
        |segment: &SegmentName| std::fs::metadata(journal.join(segment.to_string())).map_or(0, |it| it.len());
    if run.iter().map(bytes_of).sum::<u64>() > RUN_BYTES_MAX {
        return Err(format!(
            "its last run has more than {} MiB; export a tape of one with --conn or --thread",
            RUN_BYTES_MAX >> 20
        ));
    }
    let Some(first) = run.into_iter().next() else { return Ok(None) };
    Tape::of_run(&journal, first).map_err(|error| error.to_string())
}

/// Plays a conversation in a folder of its own, which is removed afterwards.
fn heard(codex: &Codex, conversation: &Conversation, environment: &Environment) -> Result<Heard, CliError> {
    let home = environment.shim_home().value.ok_or_else(|| CliError::failed("no home: set CODEX_SHIM_HOME or HOME"))?;
    let scratch = Scratch::new(&home).map_err(CliError::failed)?;
    let kept_back = KeptBack::begin().map_err(|error| CliError::failed(format!("install signal handlers: {error}")))?;
    let heard = play(&Play {
        codex,
        plan: &conversation.plan,
        folder: scratch.path(),
        environment: &|name| environment.get(name),
        goes_on: &|| !kept_back.has_come(),
    });
    drop(scratch);
    kept_back.let_go_and_obey();
    heard.map_err(|error: PlayError| CliError::failed(error.to_string()))
}
