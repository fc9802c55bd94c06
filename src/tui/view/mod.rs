//! What is on the screen.
//!
//! Pure: a model and a size go in, cells come out. Rows are given out from what matters most: who is asked and what a key
//! does is to be seen at any size, and the timeline has what is left.

mod bottom;
mod help;
mod history;
mod list;
mod paint;
mod threads;

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::Line;

use super::keys::Place;
use super::model::{Awaited, Focus, Link, Model, Session, Tone};
use super::text::{cut, lasted, short, width};
use super::threads::tail;
use crate::history::Activity;
use paint::{Brush, Role};

/// Rows above which a second row tells of thread, turn and model.
const ROWS_FOR_FACTS: u16 = 9;

/// Draws the model, and says where the cursor is.
pub fn view(model: &Model, area: Rect, buffer: &mut Buffer) -> Option<Position> {
    let brush = Brush { colours: model.colours, width: usize::from(area.width) };
    if area.width == 0 || area.height == 0 {
        return None;
    }
    if let Some(scroll) = model.help {
        put(&help::lines(brush, scroll, usize::from(area.height)), area, 0, buffer);
        return None;
    }
    let Some(session) = &model.session else {
        put(&list::lines(model, brush, usize::from(area.height)), area, 0, buffer);
        return None;
    };
    if let Focus::Reading(reading) = &session.focus {
        let rows = usize::from(area.height).saturating_sub(1);
        put(&history::reading(reading, model.now_us, brush, rows), area, 0, buffer);
        put(&[footer(model, session, brush)], area, area.height - 1, buffer);
        return None;
    }
    if let Focus::Threads(chosen) = session.focus {
        let rows = usize::from(area.height).saturating_sub(1);
        put(&threads::lines(session, chosen, brush, rows), area, 0, buffer);
        put(&[footer(model, session, brush)], area, area.height - 1, buffer);
        return None;
    }
    let mut head = vec![header(model, session, brush)];
    if area.height >= ROWS_FOR_FACTS {
        head.push(facts(session, brush));
    }
    let mut foot = Vec::new();
    if let Some(note) = model.note.as_ref().filter(|_| area.height >= 7) {
        let role = if note.tone == Tone::Bad { Role::Bad } else { Role::Info };
        foot.push(Line::from(brush.span(&cut(&super::text::plain(&note.text), brush.width), role)));
    }
    foot.push(footer(model, session, brush));
    let rows = usize::from(area.height).saturating_sub(head.len() + foot.len());
    let bottom = bottom::draw(model, session, brush, rows);
    let above = rows.saturating_sub(bottom.lines.len());
    let timeline = history::lines(model, session, brush, above);
    put(&head, area, 0, buffer);
    put(&timeline, area, head.len() as u16, buffer);
    let bottom_row = area.height.saturating_sub((bottom.lines.len() + foot.len()) as u16);
    put(&bottom.lines, area, bottom_row, buffer);
    put(&foot, area, area.height.saturating_sub(foot.len() as u16), buffer);
    bottom.cursor.map(|(column, row)| {
        let column = (column as u16).min(area.width - 1);
        Position::new(area.x + column, area.y + (bottom_row + row as u16).min(area.height - 1))
    })
}

/// Puts lines below one another, as many as there is room for.
fn put(lines: &[Line<'_>], area: Rect, from: u16, buffer: &mut Buffer) {
    for (line, row) in lines.iter().zip(from..area.height) {
        buffer.set_line(area.x, area.y + row, line, area.width);
    }
}

fn header<'a>(model: &Model, session: &Session, brush: Brush) -> Line<'a> {
    let (state, role) = match &session.link {
        Link::New => ("looking".to_owned(), Role::Faint),
        Link::Silent(_) => ("does not answer".to_owned(), Role::Bad),
        Link::Stopped => ("stopped".to_owned(), Role::Faint),
        Link::Up(live) => {
            let since = live.since_us.map(|since_us| lasted(model.now_us.saturating_sub(since_us)));
            let state = live.document.state;
            let stalled = live.document.threads.iter().any(|thread| thread.stalled_since.is_some());
            let stalled = if stalled { ", silent for long" } else { "" };
            (format!("{} {}{stalled}", in_words(state), since.unwrap_or_default()).trim_end().to_owned(), role(state))
        }
    };
    let waits = session.asks.len();
    let right = match waits {
        0 => String::new(),
        1 => "1 waits".to_owned(),
        more => format!("{more} wait"),
    };
    let id_columns = brush.width.saturating_sub(width(&state) + width(&right) + 4).max(4);
    let id = cut(&super::text::plain(&session.id), id_columns);
    let room = brush.width.saturating_sub(width(&id) + width(&right) + 3);
    let state = cut(&state, room);
    let gap = " ".repeat(brush.width.saturating_sub(width(&id) + width(&state) + width(&right) + 2));
    Line::from(vec![
        brush.span(&id, Role::Strong),
        brush.span("  ", Role::Plain),
        brush.span(&state, role),
        brush.span(&gap, Role::Plain),
        brush.span(&right, Role::Warning),
    ])
}

fn in_words(state: Activity) -> &'static str {
    match state {
        Activity::Thinking => "thinking",
        Activity::Working => "working",
        Activity::WaitingPermission => "waits for permission",
        Activity::WaitingInput => "waits for input",
        Activity::Idle => "idle",
        Activity::Stopped => "server stopped",
    }
}

fn role(state: Activity) -> Role {
    match state {
        Activity::Thinking | Activity::Working => Role::Good,
        Activity::WaitingPermission | Activity::WaitingInput => Role::Warning,
        Activity::Idle => Role::Plain,
        Activity::Stopped => Role::Faint,
    }
}

/// Thread, turn, model and tokens, as far as they are known.
fn facts<'a>(session: &Session, brush: Brush) -> Line<'a> {
    let mut parts = Vec::new();
    if let Link::Up(live) = &session.link {
        let threads = &live.document.threads;
        let shown = match &session.thread {
            Some(chosen) => threads.iter().find(|thread| thread.thread_id == *chosen),
            None => threads.iter().find(|thread| thread.turn_id.is_some()).or_else(|| threads.last()),
        };
        if session.thread.is_none() && threads.len() > 1 {
            parts.push(format!("{} threads, ^T chooses", threads.len()));
        }
        if let Some(thread) = shown.filter(|_| session.thread.is_none()) {
            parts.push(format!("thread {}", tail(&thread.thread_id)));
        }
        parts.extend(shown.and_then(|thread| thread.turn_id.as_deref()).map(|turn| format!("turn {}", tail(turn))));
        if let Some(fault) = live.document.faults.first() {
            parts.insert(0, format!("! {}", fault.what));
        }
    }
    if let Link::Silent(why) = &session.link {
        parts.push(why.clone());
    }
    if let Some(facts) = session.timeline.as_ref().and_then(|timeline| timeline.facts.of(session.thread.as_deref())) {
        parts.extend(facts.model.clone());
        parts.extend(facts.tokens.map(|(total, window)| match window {
            Some(window) => format!("{}/{} tokens", short(total), short(window)),
            None => format!("{} tokens", short(total)),
        }));
    }
    if let Some(kind) = session.filter {
        parts.insert(0, format!("only: {}", kind.name()));
    }
    if let Some(thread) = &session.thread {
        parts.insert(0, format!("only thread {}", tail(thread)));
    }
    match session.reading {
        Some(Awaited::Page) => parts.insert(0, "reading…".to_owned()),
        Some(Awaited::Match) => parts.insert(0, "searching…".to_owned()),
        None => {}
    }
    Line::from(brush.span(&cut(&super::text::plain(&parts.join(" · ")), brush.width), Role::Faint))
}

/// The mode, and what Enter does.
fn footer<'a>(model: &Model, session: &Session, brush: Brush) -> Line<'a> {
    let (place, _) = model.place();
    let mode = match &session.focus {
        Focus::Answer => session.mode().name().to_owned(),
        Focus::History => format!("{} ▸ history", session.mode().name()),
        Focus::Search(_) => format!("{} ▸ search", session.mode().name()),
        Focus::Reading(_) => format!("{} ▸ entry", session.mode().name()),
        Focus::Threads(_) => format!("{} ▸ threads", session.mode().name()),
    };
    let ended = session.answering.as_ref().is_some_and(|answering| answering.ended.is_some());
    let gated = session.is_gated();
    let to_thread: String;
    let enter = match place {
        Place::Chat if gated => "Enter off: a request waits, ^R leads to it",
        Place::Chat => match (&session.link, &session.thread) {
            (Link::Stopped, _) => "Enter off: no relay runs here",
            (Link::Silent(_), _) => "Enter off: the relay does not answer",
            (Link::New, _) => "Enter off: the relay was not asked yet",
            (Link::Up(_), Some(thread)) => {
                to_thread = format!("Enter sends to {}", tail(thread));
                &to_thread
            }
            (Link::Up(_), None) => "Enter sends",
        },
        Place::Approval | Place::Input if ended => "Enter goes on",
        Place::Line if ended && session.focus == Focus::Answer => "Enter goes on",
        Place::Approval => "Enter off",
        Place::Input => "Enter takes this answer",
        Place::Sure => "y does it, n does not",
        Place::Line if session.focus == Focus::Answer => "Enter declines with this reason",
        Place::Line => "Enter searches",
        Place::History => "Enter opens the entry",
        Place::Reading => "Enter closes it",
        Place::Threads => "Enter takes this one · Esc leaves it as it was",
        Place::Sessions | Place::Everywhere => "",
    };
    let more = match place {
        Place::Chat => " · Tab history · Esc sessions · F1 help",
        Place::History => " · / search · f filter · e error · r request · y copy · Esc back · ? help",
        Place::Approval | Place::Input => " · ^R next · Tab history · Esc chat · F1 help",
        Place::Sure | Place::Line | Place::Reading | Place::Threads | Place::Sessions | Place::Everywhere => "",
    };
    let tag = format!(" {mode} ");
    let room = brush.width.saturating_sub(width(&tag) + 1);
    let role = if gated && place == Place::Chat { Role::Warning } else { Role::Plain };
    Line::from(vec![
        brush.span(&tag, Role::Reversed),
        brush.span(" ", Role::Plain),
        brush.span(&cut(enter, room), role),
        brush.span(&cut(more, room.saturating_sub(width(enter))), Role::Faint),
    ])
}
