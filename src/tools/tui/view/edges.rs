//! The first rows (names, state, context window, badges of pending requests) and the last row: the current keys, and the effect of
//! Enter.

use std::borrow::Cow;

use ratatui::layout::Rect;

use super::super::keys::{BINDINGS, KeyPlace, names};
use super::super::model::{AwaitedRead, DocumentSubject, Focus, Model, Session};
use super::super::names::session_id;
use super::super::pointing::Target;
use super::super::{layout, pressed, respond, threads};
use super::paint::{Canvas, both, one, row_width};
use crate::history::Activity;
use crate::sessions::news::Link;
use crate::text::doc::{At, Role, Room, Row};
use crate::text::{cut, cut_words, lasted, plain, short, width, wrap};

/// Width of the context bar.
const BAR_COLUMNS: u64 = 10;

/// Widest name of a model in the first row.
const MODEL_COLUMNS_MAX: usize = 16;

/// Time between two images of the spinner, in microseconds.
const SPIN_US: u64 = 120_000;

/// Part of a cell of the bar.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

pub(super) fn draw(model: &Model, session: &Session, area: Rect, canvas: &mut Canvas<'_>) {
    let columns = usize::from(area.width);
    let badges = badges(model);
    let row = first_row(model, session, &badges, area, columns);
    canvas.row(area, 0, &row);
    let mut end = area.right();
    for (row, target) in badges.into_iter().rev() {
        let wide = (row_width(&row) as u16).min(end.saturating_sub(area.x));
        canvas.spot(Rect { x: end - wide, width: wide, height: 1, ..area }, target);
        end = end.saturating_sub(wide + 2);
    }
    if area.height > 1 {
        canvas.row(area, 1, &both(&facts(session), &context(session, columns), columns));
    }
}

/// Names, state and badges. On a narrow screen the id, the client and the words of the state are left out before anything is
/// cut; without a second row, the model and the share of the context window are here.
fn first_row(model: &Model, session: &Session, badges: &[(Row, Target)], area: Rect, columns: usize) -> Row {
    let name = plain(&session.name());
    let folder = name.split(" (").next().unwrap_or_default().to_owned();
    let id = plain(session_id(&session.id, &model.list.rows));
    let mut whole = one(name.clone(), Role::Strong);
    if folder != id {
        whole.push((format!("  {id}"), Role::Faint));
    }
    let facts = if area.height > 1 { Row::new() } else { short_facts(session) };
    let right = |parts: &[&Row]| {
        let parts = parts.iter().copied().chain(badges.iter().map(|(row, _)| row));
        let mut right = Row::new();
        for part in parts.filter(|part| !part.is_empty()) {
            if !right.is_empty() {
                right.push(("  ".to_owned(), Role::Plain));
            }
            right.extend(part.iter().cloned());
        }
        right
    };
    let (state, sign) = (state(model, session, true), state(model, session, false));
    let (named, bare) = (one(name, Role::Strong), one(folder, Role::Strong));
    let all = [
        (&whole, right(&[&facts, &state])),
        (&named, right(&[&facts, &state])),
        (&bare, right(&[&facts, &state])),
        (&bare, right(&[&facts, &sign])),
        (&bare, right(&[&facts])),
        (&bare, right(&[&sign])),
    ];
    let fits = all.into_iter().find(|(left, right)| row_width(left) + 1 + row_width(right) <= columns);
    fits.map_or_else(|| both(&bare, &right(&[]), columns), |(left, right)| both(left, &right, columns))
}

/// The model, and the share of the context window that is used: `gpt-5 41%`.
fn short_facts(session: &Session) -> Row {
    let facts = session.facts();
    let Some(facts) = facts else { return Row::new() };
    let mut row: Row = facts.model.iter().map(|model| (cut(&plain(model), MODEL_COLUMNS_MAX), Role::Info)).collect();
    if let Some((percent, role)) = facts.tokens.and_then(used) {
        row.push((format!("{}{percent}%", if row.is_empty() { "" } else { " " }), role));
    }
    row
}

/// Badges for pending requests, here and in other sessions.
pub(super) fn badges(model: &Model) -> Vec<(Row, Target)> {
    let (here, elsewhere) = pressed::counts(model);
    let mut badges = Vec::new();
    if here > 0 {
        badges.push((one(format!(" {here} pending ^R "), Role::Badge), Target::Requests));
    }
    if elsewhere > 0 {
        let place = if model.session.is_some() { "elsewhere" } else { "pending" };
        badges.push((one(format!(" {elsewhere} {place} ^N "), Role::Badge), Target::Elsewhere));
    }
    badges
}

/// The current image of the spinner.
pub(super) fn spinner(now_us: u64) -> &'static str {
    SPINNER[(now_us / SPIN_US % SPINNER.len() as u64) as usize]
}

/// The state with its duration; its words can be left out.
fn state(model: &Model, session: &Session, has_words: bool) -> Row {
    match &session.link {
        Link::New if !has_words => one("…", Role::Faint),
        Link::Silent(_) if !has_words => one("!", Role::Bad),
        Link::New => one("connecting", Role::Faint),
        Link::Silent(_) => one("! does not answer", Role::Bad),
        Link::Stopped => one("stopped", Role::Faint),
        Link::Up(live) => {
            let (state, since_us, is_stalled) = session.activity(live);
            let since = since_us.map(|since_us| lasted(model.now_us.saturating_sub(since_us))).unwrap_or_default();
            let stalled = if is_stalled { ", silent for a long time" } else { "" };
            let text = if has_words { format!("{} {since}{stalled}", in_words(state)) } else { since };
            one(format!("{} {}", sign(state, model.now_us), text.trim_end()), role(state))
        }
    }
}

pub(super) fn sign(state: Activity, now_us: u64) -> &'static str {
    match state {
        Activity::Thinking | Activity::Working => spinner(now_us),
        Activity::WaitingPermission | Activity::WaitingInput => "?",
        Activity::Idle => "○",
        Activity::Stopped => "×",
        Activity::Newer(_) => "·",
    }
}

pub(super) fn in_words(state: Activity) -> &'static str {
    match state {
        Activity::Thinking => "thinking",
        Activity::Working => "working",
        Activity::WaitingPermission => "waits for permission",
        Activity::WaitingInput => "waits for an answer",
        Activity::Idle => "idle",
        Activity::Stopped => "server stopped",
        Activity::Newer(newer) => newer.name(),
    }
}

pub(super) fn role(state: Activity) -> Role {
    match state {
        Activity::Thinking | Activity::Working => Role::Good,
        Activity::WaitingPermission | Activity::WaitingInput => Role::Warning,
        Activity::Idle | Activity::Newer(_) => Role::Plain,
        Activity::Stopped => Role::Faint,
    }
}

/// Faults, reads in progress, filters, the model, and the thread.
fn facts(session: &Session) -> Row {
    let mut parts = Row::new();
    let mut add = |text: String, role: Role| {
        if !parts.is_empty() {
            parts.push((" · ".to_owned(), Role::Faint));
        }
        parts.push((plain(&text), role));
    };
    match session.reading {
        Some(AwaitedRead::Page) => add("reading…".to_owned(), Role::Info),
        Some(AwaitedRead::Match) => add("searching…".to_owned(), Role::Info),
        None => {}
    }
    match &session.link {
        Link::Up(live) => {
            live.document.faults.first().into_iter().for_each(|fault| add(format!("! {}", fault.what), Role::Bad));
        }
        Link::Silent(why) => add(why.clone(), Role::Bad),
        Link::New | Link::Stopped => {}
    }
    let facts = session.facts();
    facts.and_then(|facts| facts.model.clone()).into_iter().for_each(|model| add(model, Role::Info));
    let all = threads::rows(session);
    match (&session.thread, &all[..]) {
        (Some(thread), _) => add(session.only_thread(thread), Role::Warning),
        (None, []) => {}
        (None, [thread]) => add(format!("thread {}", threads::short(session, &thread.id)), Role::Faint),
        (None, more) => add(format!("{} threads ^T", more.len()), Role::Faint),
    }
    parts
}

/// How full the context window is, in percent, if its size is known.
fn used((used, window): (u64, Option<u64>)) -> Option<(u64, Role)> {
    let window = window.filter(|window| *window > 0)?;
    let percent = used.saturating_mul(100) / window;
    let role = match percent {
        0..60 => Role::Good,
        60..85 => Role::Warning,
        _ => Role::Bad,
    };
    Some((percent, role))
}

/// The bar of the context window.
fn context(session: &Session, columns: usize) -> Row {
    let facts = session.facts();
    let Some((tokens, window)) = facts.and_then(|facts| facts.tokens) else { return Row::new() };
    let (Some(window), Some((percent, role))) = (window, used((tokens, window))) else {
        return one(format!("{} tokens", short(tokens)), Role::Faint);
    };
    let eighths = (tokens.saturating_mul(8 * BAR_COLUMNS) / window).min(8 * BAR_COLUMNS) as usize;
    let bar = "█".repeat(eighths / 8) + EIGHTHS[eighths % 8];
    let rest = (BAR_COLUMNS as usize).saturating_sub(bar.chars().count());
    let mut row = vec![(bar, role), ("░".repeat(rest), Role::Faint), (format!(" {percent}%"), role)];
    if columns >= 60 {
        row.insert(0, ("context ".to_owned(), Role::Faint));
        row.push((format!(" of {}", short(window)), Role::Faint));
    }
    if columns >= 80 {
        row.insert(1, (format!("{} ", short(tokens)), Role::Faint));
    }
    row
}

pub(super) fn row(model: &Model, session: &Session, columns: usize) -> Row {
    let (place, _) = model.place();
    let is_gated = session.is_gated();
    let tag = match place {
        KeyPlace::Chat | KeyPlace::Approval | KeyPlace::Input => session.mode().name(),
        KeyPlace::Line if matches!(session.focus, Focus::Search(_)) => "search",
        KeyPlace::Line => "reason",
        KeyPlace::Reading => "entry",
        KeyPlace::Everywhere
        | KeyPlace::Sessions
        | KeyPlace::Inbox
        | KeyPlace::Sure
        | KeyPlace::Summary
        | KeyPlace::Review
        | KeyPlace::History
        | KeyPlace::Threads => place.name(),
    };
    let (texts, more) = (enter(session, place, is_gated), more(model, session, place));
    let mut row = one(format!(" {tag} "), Role::Reversed);
    let room = columns.saturating_sub(width(&row[0].0) + 1);
    let role = if is_gated && place == KeyPlace::Chat { Role::Warning } else { Role::Plain };
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
fn enter(session: &Session, place: KeyPlace, is_gated: bool) -> [Cow<'static, str>; 2] {
    let is_ended = session.answering.as_ref().is_some_and(|answering| answering.ended.is_some());
    let has_diff = session.answering.as_ref().is_some_and(|answering| answering.details.diff.is_some());
    let is_search = matches!(session.focus, Focus::Search(_));
    let (text, short) = match place {
        KeyPlace::Chat if is_gated => ("Enter sends nothing: a request is pending (^R)", "^R shows a request"),
        KeyPlace::Chat => match (&session.link, &session.thread) {
            (Link::Stopped, _) => ("Enter does nothing: no relay runs here", "no relay runs here"),
            (Link::Silent(_), _) => ("Enter does nothing: the relay does not answer", "no answer"),
            (Link::New, _) => ("Enter does nothing: connecting", "connecting"),
            (Link::Up(_), Some(_)) if session.unfolded.is_some() => {
                ("Enter does nothing: nobody speaks here", "no Enter")
            }
            (Link::Up(_), Some(thread)) => {
                let name = session.thread_name(thread).unwrap_or_else(|| threads::short(session, thread).to_owned());
                return [format!("Enter sends to {}", plain(&name)).into(), "Enter sends".into()];
            }
            (Link::Up(_), None) => ("Enter sends", "Enter sends"),
        },
        KeyPlace::Approval | KeyPlace::Input | KeyPlace::Summary if is_ended => ("Enter continues", "Enter continues"),
        KeyPlace::Line if is_ended && !is_search => ("Enter continues", "Enter continues"),
        KeyPlace::Approval if has_diff => ("Enter reviews the diff", "Enter reviews"),
        KeyPlace::Approval => ("Enter does nothing here", "no Enter"),
        KeyPlace::Input if is_unchosen(session) => ("Enter takes the answer that you choose", "choose one"),
        KeyPlace::Input => ("Enter takes this answer", "Enter takes it"),
        KeyPlace::Summary => ("Enter on the last row sends", "last row sends"),
        KeyPlace::Sure => ("y does it, n does not", "y / n"),
        KeyPlace::Line if is_search => ("Enter searches", "Enter searches"),
        KeyPlace::Line => ("Enter declines with this reason", "Enter declines"),
        KeyPlace::History => ("Enter opens the entry", "Enter opens it"),
        KeyPlace::Reading => ("Enter closes it", "Enter closes it"),
        KeyPlace::Review if is_ended && is_request(session) => ("Enter continues", "Enter continues"),
        KeyPlace::Review => match &session.focus {
            Focus::Reading(reading) if reading.files.is_some() => ("Enter shows the file", "Enter shows it"),
            Focus::Answer | Focus::History | Focus::Search(_) | Focus::Reading(_) | Focus::Threads(_) => {
                ("n/p file · ]/[ hunk", "n/p file")
            }
        },
        KeyPlace::Threads => ("Enter takes this one", "Enter takes it"),
        KeyPlace::Sessions | KeyPlace::Inbox | KeyPlace::Everywhere => ("", ""),
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
        Focus::Reading(reading) => matches!(reading.subject, DocumentSubject::Request(_)),
        Focus::Answer | Focus::History | Focus::Search(_) | Focus::Threads(_) => false,
    }
}

/// Whether only a part of the request's details is visible.
fn is_scrolled(model: &Model, session: &Session) -> bool {
    let Some(shown) = &session.answering else { return false };
    let area = layout::areas(model, session).request;
    let (_, details, _) = layout::request(model, session, shown, area);
    let room = Room { columns: usize::from(details.width).max(1), rows: usize::from(details.height) };
    shown.details.doc.end(room) != At::default()
}

/// Whether the window has entries of threads that no person speaks in.
fn has_folded(session: &Session) -> bool {
    let mut entries = session.timeline.iter().flat_map(|timeline| timeline.entries());
    entries.any(|entry| !entry.thread_kind.is_user())
}

/// Other useful keys; the last two lead away and to the help.
fn more(model: &Model, session: &Session, place: KeyPlace) -> Cow<'static, str> {
    let is_ended = session.answering.as_ref().is_some_and(|answering| answering.ended.is_some());
    let text = match place {
        KeyPlace::Chat => "Tab timeline · Esc sessions · F1 help",
        KeyPlace::History if has_folded(session) => {
            "/ search · f filter · a all threads · e error · r request · g start · Esc back · ? help"
        }
        KeyPlace::History => "/ search · f filter · e error · r request · g start · Esc back · ? help",
        KeyPlace::Approval if is_scrolled(model, session) => {
            "PgDn scrolls · ^R next · Tab timeline · Esc chat · ? help"
        }
        KeyPlace::Approval => "^R next · Tab timeline · Esc chat · ? help",
        KeyPlace::Input if is_scrolled(model, session) => "PgDn scrolls · ^B back · ^R next · Esc chat · F1 help",
        KeyPlace::Input => "^B back · ^R next · Esc chat · F1 help",
        KeyPlace::Summary => "^B back · Esc chat · ? help",
        KeyPlace::Review if is_request(session) && !is_ended => {
            let answers = respond::valid(model).map(|keys| format!("{keys} answer · ")).unwrap_or_default();
            return format!("{answers}Tab files · o pager · Esc back · ? help").into();
        }
        KeyPlace::Review => "Tab files · o pager · y copy · Esc back · ? help",
        KeyPlace::Reading => "o pager · y copy · ? help",
        KeyPlace::Threads => "Esc leaves it as it was · ? help",
        KeyPlace::Line => "Esc leaves it · F1 help",
        KeyPlace::Sure | KeyPlace::Sessions | KeyPlace::Inbox | KeyPlace::Everywhere => "",
    };
    text.into()
}

/// Columns for keys.
const KEYS_COLUMNS: usize = 16;

/// Columns that the action of a key gets at least.
const SAYS_COLUMNS_MIN: usize = 8;

fn order(model: &Model) -> Vec<KeyPlace> {
    let (here, _) = model.place();
    let mut places = vec![here];
    if here != KeyPlace::Everywhere {
        places.push(KeyPlace::Everywhere);
    }
    places.extend(KeyPlace::ALL.into_iter().filter(|place| *place != here && *place != KeyPlace::Everywhere));
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
