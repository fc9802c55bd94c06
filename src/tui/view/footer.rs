//! The last row: the current keys, and the effect of Enter.

use std::borrow::Cow;

use super::super::doc::{Role, Row};
use super::super::keys::{BINDINGS, Place, names};
use super::super::model::{Focus, Link, Model, Session, Subject};
use super::super::text::{cut_words, width, wrap};
use super::super::{respond, threads};
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
    let (texts, more) = (enter(session, place, is_gated), more(model, session, place));
    let mut row = one(format!(" {tag} "), Role::Reversed);
    let room = columns.saturating_sub(width(&row[0].0) + 1);
    let role = if is_gated && place == Place::Chat { Role::Warning } else { Role::Plain };
    let (enter, more) = fitted_keys(&[&texts[0], &texts[1]], &more, room);
    row.push((format!(" {enter}"), role));
    row.push((more, Role::Faint));
    row
}

/// The first of some texts that leaves room for the keys that matter most, and as many keys as fit after it. The last two keys
/// lead away and to the help, so they come before the others.
pub(super) fn fitted_keys(texts: &[&str], more: &str, columns: usize) -> (String, String) {
    let keys: Vec<&str> = more.split(" · ").filter(|key| !key.is_empty()).collect();
    let taken = |kept: &[&str]| kept.iter().map(|key| width(key) + 3).sum::<usize>();
    let last = |count: usize| taken(&keys[keys.len().saturating_sub(count)..]);
    let first_with = |count: usize| texts.iter().find(|text| width(text) + last(count) <= columns);
    let shortest = texts.iter().min_by_key(|text| width(text)).copied().unwrap_or_default();
    let text = cut_words([2, 1, 0].into_iter().find_map(first_with).copied().unwrap_or(shortest), columns);
    let mut left = columns.saturating_sub(width(&text));
    let mut kept: Vec<usize> = Vec::new();
    let (others, ends) = (0..keys.len()).partition::<Vec<usize>, _>(|at| at + 2 < keys.len());
    for at in ends.into_iter().rev().chain(others) {
        let wide = width(keys[at]) + 3;
        if wide <= left {
            left -= wide;
            kept.push(at);
        }
    }
    kept.sort_unstable();
    let more = kept.into_iter().map(|at| format!(" · {}", keys[at])).collect();
    (text, more)
}

/// The effect of Enter, and shorter words for it.
fn enter(session: &Session, place: Place, is_gated: bool) -> [Cow<'static, str>; 2] {
    let is_ended = session.answering.as_ref().is_some_and(|answering| answering.ended.is_some());
    let has_diff = session.answering.as_ref().is_some_and(|answering| answering.details.diff.is_some());
    let is_search = matches!(session.focus, Focus::Search(_));
    let (text, short) = match place {
        Place::Chat if is_gated => ("Enter sends nothing: a request is pending (^R)", "^R shows a request"),
        Place::Chat => match (&session.link, &session.thread) {
            (Link::Stopped, _) => ("Enter does nothing: no relay runs here", "no relay runs here"),
            (Link::Silent(_), _) => ("Enter does nothing: the relay does not answer", "no answer"),
            (Link::New, _) => ("Enter does nothing: connecting", "connecting"),
            (Link::Up(_), Some(thread)) => {
                let to = format!("Enter sends to {}", threads::short(session, thread));
                return [to.into(), "Enter sends".into()];
            }
            (Link::Up(_), None) => ("Enter sends", "Enter sends"),
        },
        Place::Approval | Place::Input | Place::Summary if is_ended => ("Enter continues", "Enter continues"),
        Place::Line if is_ended && !is_search => ("Enter continues", "Enter continues"),
        Place::Approval if has_diff => ("Enter reviews the diff", "Enter reviews"),
        Place::Approval => ("Enter does nothing here", "no Enter"),
        Place::Input if is_unchosen(session) => ("Enter takes the answer that you choose", "choose one"),
        Place::Input => ("Enter takes this answer", "Enter takes it"),
        Place::Summary => ("Enter on the last row sends", "last row sends"),
        Place::Sure => ("y does it, n does not", "y / n"),
        Place::Line if is_search => ("Enter searches", "Enter searches"),
        Place::Line => ("Enter declines with this reason", "Enter declines"),
        Place::History => ("Enter opens the entry", "Enter opens it"),
        Place::Reading => ("Enter closes it", "Enter closes it"),
        Place::Review if is_ended && is_request(session) => ("Enter continues", "Enter continues"),
        Place::Review => match &session.focus {
            Focus::Reading(reading) if reading.files.is_some() => ("Enter shows the file", "Enter shows it"),
            Focus::Answer | Focus::History | Focus::Search(_) | Focus::Reading(_) | Focus::Threads(_) => {
                ("n/p file · ]/[ hunk", "n/p file")
            }
        },
        Place::Threads => ("Enter takes this one", "Enter takes it"),
        Place::Sessions | Place::Everywhere => ("", ""),
    };
    [text.into(), short.into()]
}

/// Whether no answer to the question is chosen yet.
fn is_unchosen(session: &Session) -> bool {
    let current = session.answering.as_ref().and_then(|shown| shown.form.current());
    current.is_some_and(|(step, draft)| draft.chosen >= step.choices())
}

/// Whether the diff of a request is open.
fn is_request(session: &Session) -> bool {
    match &session.focus {
        Focus::Reading(reading) => matches!(reading.subject, Subject::Request(_)),
        Focus::Answer | Focus::History | Focus::Search(_) | Focus::Threads(_) => false,
    }
}

/// Other useful keys; the last two lead away and to the help.
fn more(model: &Model, session: &Session, place: Place) -> Cow<'static, str> {
    let is_ended = session.answering.as_ref().is_some_and(|answering| answering.ended.is_some());
    let text = match place {
        Place::Chat => "Tab timeline · Esc sessions · F1 help",
        Place::History => "/ search · f filter · e error · r request · g start · Esc back · ? help",
        Place::Approval => "^R next · Tab timeline · Esc chat · ? help",
        Place::Input => "^B back · ^R next · Esc chat · F1 help",
        Place::Summary => "^B back · Esc chat · ? help",
        Place::Review if is_request(session) && !is_ended => {
            let answers = respond::valid(model).map(|keys| format!("{keys} answer · ")).unwrap_or_default();
            return format!("{answers}Tab files · o pager · Esc back · ? help").into();
        }
        Place::Review => "Tab files · o pager · y copy · Esc back · ? help",
        Place::Reading => "o pager · y copy · ? help",
        Place::Threads => "Esc leaves it as it was · ? help",
        Place::Line => "Esc leaves it · F1 help",
        Place::Sure | Place::Sessions | Place::Everywhere => "",
    };
    text.into()
}

/// Columns for keys.
const KEYS_COLUMNS: usize = 16;

/// Columns that the action of a key gets at least.
const SAYS_COLUMNS_MIN: usize = 8;

fn order(model: &Model) -> Vec<Place> {
    let (here, _) = model.place();
    let mut places = vec![here];
    if here != Place::Everywhere {
        places.push(Place::Everywhere);
    }
    places.extend(Place::ALL.into_iter().filter(|place| *place != here && *place != Place::Everywhere));
    places
}

/// All rows.
pub(super) fn help(model: &Model) -> Vec<Row> {
    let mut all = Vec::new();
    for place in order(model) {
        if !all.is_empty() {
            all.push(Row::new());
        }
        let here = if place == model.place().0 { " (here)" } else { "" };
        all.push(one(format!("{}{here}", place.name()), Role::Heading));
        for binding in BINDINGS.iter().filter(|binding| binding.place == place) {
            let keys = names(binding);
            let pad = " ".repeat(KEYS_COLUMNS.saturating_sub(width(&keys)).max(1));
            let mut front = format!("  {keys}{pad}");
            let room = usize::from(model.size.width).saturating_sub(width(&front)).max(SAYS_COLUMNS_MIN);
            for line in wrap(binding.says, room) {
                let blank = " ".repeat(width(&front));
                all.push(vec![(std::mem::replace(&mut front, blank), Role::Info), (line, Role::Plain)]);
            }
        }
    }
    all
}
