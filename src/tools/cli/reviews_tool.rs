//! `codex-shim reviews` lists what codex's own reviewer has denied, and `codex-shim overrule` approves such an action after all.
//!
//! Reviews are read from the history of any session, live or stopped. Only a relay can overrule a denial, because its server
//! must still know the thread.

use std::cmp::Reverse;

use clap::Args;

use super::complete;
use super::offline::{self, Read};
use super::progress::Progress;
use super::requests::print_json;
use super::screen::{self, Clock, Screen, Times, Tone};
use super::select_session::{self, SessionFlag, SessionWord};
use super::since::SinceFlag;
use super::table::{Cell, Column, Table};
use super::{CliError, Done, NO_SUCH_REQUEST, say};
use crate::api::{Command, Moment, OverruledDocument, ReviewDocument, ReviewsDocument, ReviewsQuery};
use crate::config::Environment;
use crate::control::client::Unanswered;
use crate::engine::{OverruleFor, one_line, without_shell};
use crate::store::Found;

/// The newest denial that can be overruled.
const LATEST: &str = "latest";

/// Most ids that an error lists.
const TOLD_MAX: usize = 8;

/// List what codex's own reviewer has denied, and why
///
/// With `approvals_reviewer = "auto_review"` codex asks no person: a reviewer of its own approves or denies. This lists the
/// denials of all sessions, newest first: the action, the reason, and whether you have overruled it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0, or 1 if a history cannot be read, or 3 if there is no such
session.

Examples:
  codex-shim reviews
  codex-shim reviews --all --since 7d    approved ones, too
  codex-shim reviews work --json | jq -r '.reviews[].reason'")]
pub(super) struct ReviewsArguments {
    #[command(flatten)]
    session: SessionWord,
    /// Every review, whatever was decided
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    since: SinceFlag,
    /// Print one JSON document
    #[arg(long = "json")]
    as_json: bool,
    #[command(flatten)]
    times: Times,
}

/// Approve an action that codex's own reviewer has denied
///
/// The model learns that you approve exactly this action, and may try it again. Codex's reviewer then looks at it once more, and
/// knows of your approval. This works while the turn of the denial runs. With --next-turn the approval waits for the next
/// message in the thread if the turn is over.
#[derive(Debug, Args)]
#[command(after_long_help = "\
A denial is named by its id, by a unique beginning of it, or by `latest`.

Exit status: 0, or 1 if the turn of the denial is over, the denial belongs to
an earlier run of the server, was overruled before, or codex refuses, or 3 if
there is no such denial or session, or 4 if its session is not running.

Examples:
  codex-shim overrule latest
  codex-shim overrule 8adfefc5 --next-turn && codex-shim send 'try again'")]
pub(super) struct OverruleArguments {
    /// Denial: its id, a unique beginning of it, or `latest`
    #[arg(value_name = "REVIEW", add = complete::denials())]
    review: String,
    /// If the turn is over, approve the action for the next one
    #[arg(long)]
    next_turn: bool,
    #[command(flatten)]
    session: SessionFlag,
    /// Print one JSON document
    #[arg(long = "json")]
    as_json: bool,
}

/// A session and its reviews.
type Listed<'a> = Vec<(&'a Found, ReviewDocument)>;

/// Lists reviews.
pub(super) fn run_reviews(arguments: &ReviewsArguments, environment: &Environment) -> Done {
    let sessions = select_session::listed(arguments.session.name(), environment)?;
    let since = arguments.since.get().map(|since| Moment(since.micros()));
    let query = ReviewsQuery { all: Some(arguments.all), since, limit: None };
    let (reviews, status) = read(&sessions, &query, environment)?;
    if arguments.as_json {
        let reviews = reviews.into_iter().rev().map(|(_, review)| review).collect();
        return Ok(status.max(print_json(&ReviewsDocument { reviews })));
    }
    if reviews.is_empty() {
        let place = match &sessions[..] {
            [only] if arguments.session.name().is_some() => format!("session {}", only.name()),
            _ => "any session".to_owned(),
        };
        let period = if since.is_some() { " in this period" } else { "" };
        let done = if arguments.all { "looked at" } else { "denied" };
        say(&format!("codex's reviewer has {done} nothing in {place}{period}"));
        return Ok(status);
    }
    let (clock, to) = (Clock::of(&arguments.times), Screen::of_stdout(environment));
    let all = select_session::all_quietly(environment)?;
    Ok(status.max(screen::print(&as_table(&reviews, &all, (&clock, arguments.times.is_utc()), to))))
}

/// The reviews of these sessions, newest first.
fn read<'a>(
    sessions: &'a [Found],
    query: &ReviewsQuery,
    environment: &Environment,
) -> Result<(Listed<'a>, i32), CliError> {
    let door = offline::door(environment);
    let progress = Progress::new("reading sessions", sessions.len() as u64);
    let looked = select_session::at_once(sessions, |session| {
        let found = Read::through(door, session.clone()).query_recorded(query);
        progress.advance(1);
        found
    });
    drop(progress);
    let (mut reviews, mut worst) = (Vec::new(), 0);
    for (session, looked) in sessions.iter().zip(looked) {
        match looked {
            Ok(found) => {
                let found = found.map(|document| document.reviews).unwrap_or_default();
                reviews.extend(found.into_iter().map(|review| (session, review)));
            }
            Err(error) if sessions.len() == 1 => return Err(error.into()),
            Err(error) => {
                let (name, why) = (session.name(), error.to_string());
                let why = if why.contains(&name) { why } else { format!("session {name}: {why}") };
                worst = worst.max(CliError::failed(why).report());
            }
        }
    }
    reviews.sort_by_cached_key(|(_, review)| Reverse(review.changed_at().to_owned()));
    Ok((reviews, worst))
}

fn as_table(reviews: &Listed<'_>, all: &[Found], (clock, is_utc): (&Clock, bool), to: Screen) -> String {
    let when = if is_utc || to == Screen::None { Column::whole(clock.head("DECIDED")) } else { Column::number("AGE") };
    let columns = vec![
        when,
        Column::whole("REVIEW"),
        Column::whole("SESSION").spare(),
        Column::text("NAME").spare(),
        Column::whole("DECISION"),
        Column::text("ACTION"),
        Column::text("REASON"),
    ];
    let ids: Vec<&str> = reviews.iter().map(|(_, review)| &*review.review_id).collect();
    let row = |(session, review): &(&Found, ReviewDocument)| -> Vec<Cell> {
        let age = || clock.age(review.changed_at()).unwrap_or_default();
        let when = if is_utc || to == Screen::None { clock.cell(review.changed_at(), to) } else { age() };
        let [session_id, name] = select_session::cells_of(&session.id, all, to);
        let id = &*review.review_id;
        let id = if to == Screen::None { id } else { short(id, &ids) };
        let (decision, tone) = decision(review);
        let risk = review.risk_level.as_ref().map(|risk| format!("{risk} risk"));
        let reason = review.reason.as_deref().map(one_line);
        let reason = [risk, reason].into_iter().flatten().collect::<Vec<_>>().join(": ");
        vec![
            (Tone::Faint, when),
            (Tone::Strong, id.to_owned()),
            session_id,
            name,
            (tone, decision),
            (Tone::Plain, action(review)),
            (Tone::Plain, reason),
        ]
    };
    Table::of(columns, reviews.iter().map(row).collect(), to)
}

/// The decision, and whether a person overruled it.
fn decision(review: &ReviewDocument) -> (String, Tone) {
    if review.overruled_at.is_some() {
        return ("overruled".to_owned(), Tone::Good);
    }
    let tone = match &*review.status {
        "approved" => Tone::Good,
        "in_progress" => Tone::Warning,
        _ => Tone::Bad,
    };
    (review.status.replace('_', " "), tone)
}

/// The action on one line.
fn action(review: &ReviewDocument) -> String {
    one_line(&without_shell(review.subject.as_deref().unwrap_or_default()))
}

/// Fewest characters of a shortened id.
const SHORT_CHARS_MIN: usize = 8;

/// The beginning of an id that no other one shares.
fn short<'a>(id: &'a str, ids: &[&str]) -> &'a str {
    let is_unique = |length: &usize| {
        let start = &id[..id.floor_char_boundary(*length)];
        ids.iter().filter(|other| other.starts_with(start)).all(|other| *other == id)
    };
    let length = (SHORT_CHARS_MIN..id.len()).find(is_unique).unwrap_or(id.len());
    &id[..id.floor_char_boundary(length)]
}

/// Overrules a denial.
pub(super) fn run_overrule(arguments: &OverruleArguments, environment: &Environment) -> Done {
    let (here, elsewhere) = select_session::here_and_elsewhere(arguments.session.name(), environment)?;
    let denials_of = |sessions| read(sessions, &ReviewsQuery::default(), environment).map(|(denials, _)| denials);
    let (here, elsewhere) = (denials_of(&here)?, denials_of(&elsewhere)?);
    let (session, review) = find(&arguments.review, &here, &elsewhere)?;
    if !session.is_still_live() {
        return Err(CliError::not_running(session));
    }
    let applies = if arguments.next_turn { OverruleFor::NextTurn } else { OverruleFor::ThisTurn };
    let overrule = Command::Overrule(review.review_id.clone(), applies);
    let document: OverruledDocument = offline::command(session, &overrule, |error| refusal(error, review))?;
    if arguments.as_json {
        return Ok(print_json(&document));
    }
    let what = screen::plain(&action(review));
    let at = select_session::argument_for(session, arguments.session.name(), environment);
    Ok(screen::print(&match document.turn_id.is_some() {
        true => format!(
            "approved: {what}\nthe running turn learns of it now; `codex-shim tail -f{at}` shows what it does\n"
        ),
        false => format!(
            "approved: {what}\nthe model learns of it with the next message: `codex-shim send 'try again' --thread {}{at}`\n",
            screen::plain(&document.thread_id)
        ),
    }))
}

/// The denial with this name, and its session. `latest` is the newest one here; if none is here, the only one elsewhere.
fn find<'a>(
    name: &str,
    here: &'a Listed<'a>,
    elsewhere: &'a Listed<'a>,
) -> Result<(&'a Found, &'a ReviewDocument), CliError> {
    let no_such = |message: String| CliError::exits(NO_SUCH_REQUEST, screen::plain(&message));
    let ambiguous = |matching: &[(&'a Found, &'a ReviewDocument)]| {
        let ids: Vec<&str> = matching.iter().take(TOLD_MAX).map(|(_, review)| &*review.review_id).collect();
        no_such(format!("`{name}` matches {} denials: {}", matching.len(), ids.join(", ")))
    };
    let each = |denials: &'a Listed<'a>| denials.iter().map(|(session, review)| (*session, review));
    if name == LATEST {
        let may_be = |(session, review): &(&Found, &ReviewDocument)| session.live && review.overruled_at.is_none();
        if let Some(newest) = each(here).find(may_be) {
            return Ok(newest);
        }
        return match &each(elsewhere).filter(may_be).collect::<Vec<_>>()[..] {
            [one] => Ok(*one),
            [] => Err(no_such("no denial of a running session is left to overrule".to_owned())
                .with_remedy("`codex-shim reviews` lists all denials")),
            several => Err(ambiguous(several).with_remedy("these are of other folders: name one by its id")),
        };
    }
    let of_id = |is: &dyn Fn(&str) -> bool| -> Vec<(&'a Found, &'a ReviewDocument)> {
        each(here).chain(each(elsewhere)).filter(|(_, review)| is(&review.review_id)).collect()
    };
    let exact = of_id(&|id| id == name);
    let matching = if exact.is_empty() { of_id(&|id| !name.is_empty() && id.starts_with(name)) } else { exact };
    match &matching[..] {
        [one] => Ok(*one),
        [] => Err(no_such(format!("unknown denial `{name}`")).with_remedy("`codex-shim reviews` lists them")),
        several => Err(ambiguous(several).with_remedy("give more of the id, or add --session")),
    }
}

/// The words for a refusal, with the next step.
fn refusal(error: &Unanswered, review: &ReviewDocument) -> Option<CliError> {
    let id = screen::plain(&review.review_id);
    Some(match error.code() {
        "turn_over" => CliError::failed("the turn of this denial is over, so the model would not learn of it now")
            .with_remedy(format!("`codex-shim overrule {id} --next-turn` approves it for the next message")),
        "review_not_found" => CliError::failed(
            "the relay has forgotten this denial: it belongs to an earlier run of the server, or many have followed",
        )
        .with_remedy("ask the model to try again, and overrule the new denial"),
        "already_overruled" => CliError::failed("this denial was overruled before"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::control::client::Refused;

    fn live(id: &str) -> Found {
        let (dir, last_used) = (id.into(), std::time::SystemTime::UNIX_EPOCH);
        Found { id: id.to_owned(), dir, live: true, holder: None, repository: None, threads: None, last_used }
    }

    fn review(id: &str) -> ReviewDocument {
        let review = json!({ "review_id": id, "session_id": "s", "started_at": "", "status": "denied" });
        serde_json::from_value(review).expect("a review")
    }

    #[test]
    fn latest_is_here_or_the_only_one_elsewhere() {
        let (one, other) = (live("one"), live("other"));
        let denial = |session, id: &str| (session, review(id));
        let check = |name: &str, here: &Listed<'_>, elsewhere: &Listed<'_>, expect: &str| {
            let found = find(name, here, elsewhere).map(|(_, review)| review.review_id.clone());
            assert_eq!(found.unwrap_or_else(|error| error.message), expect, "{name}");
        };
        let (a, b) = (denial(&one, "aa"), denial(&other, "aa-2"));
        check("latest", &vec![a.clone()], &vec![b.clone()], "aa");
        check("latest", &vec![], &vec![b.clone()], "aa-2");
        check("latest", &vec![], &vec![a.clone(), b.clone()], "`latest` matches 2 denials: aa, aa-2");
        check("aa", &vec![], &vec![a.clone(), b.clone()], "aa");
        check("a", &vec![a.clone()], &vec![b], "`a` matches 2 denials: aa, aa-2");
        check("", &vec![a], &vec![], "unknown denial ``");
    }

    #[test]
    fn ids_are_cut_while_unique() {
        let ids = ["8adfefc5-a1", "8adfefc5-b2", "short"];
        let check = |id: &str, expect: &str| assert_eq!(short(id, &ids), expect);
        check("8adfefc5-a1", "8adfefc5-a");
        check("short", "short");
        assert_eq!(short("8adfefc5-a1", &ids[..1]), "8adfefc5");
    }

    #[test]
    fn refusals_name_the_next_step() {
        let check = |code: &str, expect: &str| {
            let refused = Unanswered::Refused(Refused::coded(code, &json!({})));
            let error = refusal(&refused, &review("r")).expect("it has words").to_string();
            assert!(error.contains(expect), "{error}");
        };
        check("turn_over", "overrule r --next-turn");
        check("review_not_found", "earlier run");
        check("already_overruled", "before");
    }
}
