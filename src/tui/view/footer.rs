//! The last row: the current keys, and the effect of Enter.

use super::super::doc::{Role, Row};
use super::super::keys::Place;
use super::super::model::{Focus, Link, Model, Session};
use super::super::text::{cut, width};
use super::super::threads;
use super::paint::one;

pub(super) fn row(model: &Model, session: &Session, columns: usize) -> Row {
    let (place, _) = model.place();
    let is_gated = session.is_gated();
    let tag = match place {
        Place::Chat | Place::Approval | Place::Input => session.mode().name(),
        Place::Line if matches!(session.focus, Focus::Search(_)) => "search",
        Place::Line => "reason",
        Place::Reading => "entry",
        Place::Everywhere
        | Place::Sessions
        | Place::Sure
        | Place::Summary
        | Place::Review
        | Place::History
        | Place::Threads => place.name(),
    };
    let (enter, more) = (enter(session, place, is_gated), more(session, place));
    let mut row = one(format!(" {tag} "), Role::Reversed);
    let room = columns.saturating_sub(width(&row[0].0) + 1);
    let role = if is_gated && place == Place::Chat { Role::Warning } else { Role::Plain };
    row.push((format!(" {}", cut(&enter, room)), role));
    row.push((cut(more, room.saturating_sub(width(&enter))), Role::Faint));
    row
}

/// The effect of Enter.
fn enter(session: &Session, place: Place, is_gated: bool) -> String {
    let is_ended = session.answering.as_ref().is_some_and(|answering| answering.ended.is_some());
    let has_diff = session.answering.as_ref().is_some_and(|answering| answering.details.diff.is_some());
    let text = match place {
        Place::Chat if is_gated => "Enter off: a request is pending, ^R shows it",
        Place::Chat => match (&session.link, &session.thread) {
            (Link::Stopped, _) => "Enter off: no relay runs here",
            (Link::Silent(_), _) => "Enter off: the relay does not answer",
            (Link::New, _) => "Enter off: connecting",
            (Link::Up(_), Some(thread)) => return format!("Enter sends to {}", threads::short(session, thread)),
            (Link::Up(_), None) => "Enter sends",
        },
        Place::Approval | Place::Input | Place::Summary if is_ended => "Enter continues",
        Place::Line if is_ended && !matches!(session.focus, Focus::Search(_)) => "Enter continues",
        Place::Approval if has_diff => "Enter reviews the diff",
        Place::Approval => "Enter off",
        Place::Input => "Enter takes this answer",
        Place::Summary => "Enter on the last row sends",
        Place::Sure => "y does it, n does not",
        Place::Line if matches!(session.focus, Focus::Search(_)) => "Enter searches",
        Place::Line => "Enter declines with this reason",
        Place::History => "Enter opens the entry",
        Place::Reading => "Enter closes it",
        Place::Review => match &session.focus {
            Focus::Reading(reading) if reading.files.is_some() => "Enter shows the file",
            Focus::Answer | Focus::History | Focus::Search(_) | Focus::Reading(_) | Focus::Threads(_) => {
                "n/p file · ]/[ hunk"
            }
        },
        Place::Threads => "Enter takes this one",
        Place::Sessions | Place::Everywhere => "",
    };
    text.to_owned()
}

/// Other useful keys.
fn more(session: &Session, place: Place) -> &'static str {
    let is_request = match &session.focus {
        Focus::Reading(reading) => matches!(reading.subject, super::super::model::Subject::Request(_)),
        Focus::Answer | Focus::History | Focus::Search(_) | Focus::Threads(_) => false,
    };
    match place {
        Place::Chat => " · Tab timeline · Esc sessions · F1 help",
        Place::History => " · / search · f filter · e error · r request · g start · ? help",
        Place::Approval => " · ^R next · Tab timeline · Esc chat · ? help",
        Place::Input => " · ^B back · ^R next · Esc chat · F1 help",
        Place::Summary => " · ^B back · Esc chat · ? help",
        Place::Review if is_request => " · a s d c r answer · Tab files · o pager · Esc back · ? help",
        Place::Review => " · Tab files · o pager · y copy · Esc back · ? help",
        Place::Reading => " · o pager · y copy · ? help",
        Place::Threads => " · Esc leaves it as it was",
        Place::Sure | Place::Line | Place::Sessions | Place::Everywhere => "",
    }
}
