//! The header of a session: names, state, context window, and badges of pending requests.

use ratatui::layout::Rect;

use super::super::attention;
use super::super::doc::{Role, Row};
use super::super::model::{Awaited, Link, Model, Session};
use super::super::names;
use super::super::pointing::Target;
use super::super::text::{lasted, plain, short};
use super::super::threads;
use super::paint::{Canvas, both, one, row_width};
use crate::history::Activity;

/// Width of the context bar.
const BAR_COLUMNS: u64 = 10;

/// Time between two images of the spinner, in microseconds.
const SPIN_US: u64 = 120_000;

/// Part of a cell of the bar.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

pub(super) fn draw(model: &Model, session: &Session, area: Rect, canvas: &mut Canvas<'_>) {
    let columns = usize::from(area.width);
    let badges = badges(model);
    let mut right = state(model, session);
    for (row, _) in &badges {
        right.push(("  ".to_owned(), Role::Plain));
        right.extend(row.iter().cloned());
    }
    let name = plain(&names::session(&session.cwd, session.client()));
    let mut left = vec![(name.clone(), Role::Strong)];
    let folder = name.split(" (").next().unwrap_or_default();
    let id = names::session_id(&session.id, &model.list.rows);
    if folder != id {
        left.push((format!("  {}", plain(id)), Role::Faint));
    }
    // On a narrow screen the state is cut first, because the badges lead to a decision.
    let mut row = both(&left, &right, columns);
    if row_width(&right) + 4 > columns {
        let only: Row = badges.iter().flat_map(|(row, _)| row.iter().cloned()).collect();
        row = both(&left, &only, columns);
    }
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

/// Badges for pending requests, here and in other sessions.
pub(super) fn badges(model: &Model) -> Vec<(Row, Target)> {
    let (here, elsewhere) = attention::counts(model);
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

fn state(model: &Model, session: &Session) -> Row {
    match &session.link {
        Link::New => one("connecting", Role::Faint),
        Link::Silent(_) => one("! does not answer", Role::Bad),
        Link::Stopped => one("stopped", Role::Faint),
        Link::Up(live) => {
            let state = live.document.state;
            let since = live.since_us.map(|since_us| lasted(model.now_us.saturating_sub(since_us))).unwrap_or_default();
            let is_stalled = live.document.threads.iter().any(|thread| thread.stalled_since.is_some());
            let stalled = if is_stalled { ", silent for long" } else { "" };
            let text = format!("{} {since}{stalled}", in_words(state));
            one(format!("{} {}", sign(state, model.now_us), text.trim_end()), role(state))
        }
    }
}

/// The symbol of an activity.
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
    if let Some(kind) = session.filter {
        add(format!("only {}", kind.name()), Role::Warning);
    }
    let facts = session.timeline.as_ref().and_then(|timeline| timeline.facts.of(session.thread.as_deref()));
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

/// How full the context window is.
fn context(session: &Session, columns: usize) -> Row {
    let facts = session.timeline.as_ref().and_then(|timeline| timeline.facts.of(session.thread.as_deref()));
    let Some((used, window)) = facts.and_then(|facts| facts.tokens) else { return Row::new() };
    let Some(window) = window.filter(|window| *window > 0) else {
        return one(format!("{} tokens", short(used)), Role::Faint);
    };
    let percent = used.saturating_mul(100) / window;
    let eighths = (used.saturating_mul(8 * BAR_COLUMNS) / window).min(8 * BAR_COLUMNS) as usize;
    let bar = "█".repeat(eighths / 8) + EIGHTHS[eighths % 8];
    let rest = (BAR_COLUMNS as usize).saturating_sub(bar.chars().count());
    let role = match percent {
        0..60 => Role::Good,
        60..85 => Role::Warning,
        _ => Role::Bad,
    };
    let mut row = vec![(bar, role), ("░".repeat(rest), Role::Faint), (format!(" {percent}%"), role)];
    if columns >= 60 {
        row.insert(0, ("context ".to_owned(), Role::Faint));
        row.push((format!(" of {}", short(window)), Role::Faint));
    }
    if columns >= 80 {
        row.insert(1, (format!("{} ", short(used)), Role::Faint));
    }
    row
}
