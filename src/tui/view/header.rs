//! The header of a session: names, state, context window, and badges of pending requests.

use ratatui::layout::Rect;

use super::super::doc::{Role, Row};
use super::super::model::{Awaited, Link, Model, Session};
use super::super::mouse::Target;
use super::super::names;
use super::super::steps;
use super::super::text::{cut, lasted, plain, short};
use super::super::threads;
use super::paint::{Canvas, both, one, row_width};
use crate::history::Activity;

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
    let name = plain(&names::session(&session.cwd, session.client()));
    let folder = name.split(" (").next().unwrap_or_default().to_owned();
    let id = plain(names::session_id(&session.id, &model.list.rows));
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
    let (here, elsewhere) = steps::counts(model);
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
            let state = live.document.state;
            let since = live.since_us.map(|since_us| lasted(model.now_us.saturating_sub(since_us))).unwrap_or_default();
            let is_stalled = live.document.threads.iter().any(|thread| thread.stalled_since.is_some());
            let stalled = if is_stalled { ", silent for long" } else { "" };
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
    }
}

pub(super) fn role(state: Activity) -> Role {
    match state {
        Activity::Thinking | Activity::Working => Role::Good,
        Activity::WaitingPermission | Activity::WaitingInput => Role::Warning,
        Activity::Idle => Role::Plain,
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
        Some(Awaited::Page) => add("reading…".to_owned(), Role::Info),
        Some(Awaited::Match) => add("searching…".to_owned(), Role::Info),
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
        (Some(thread), _) => add(format!("only thread {}", threads::short(session, thread)), Role::Warning),
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
