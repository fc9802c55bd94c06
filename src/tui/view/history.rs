//! The timeline, and an entry in full.

use std::collections::VecDeque;

use ratatui::text::Line;

use super::super::ask::{Meant, meant};
use super::super::browse::{chosen, shows};
use super::super::entry::{Entry, Keeps, Kind, Stage};
use super::super::model::{Focus, Link, Model, Reading, Session};
use super::super::text::{cut, lasted, plain, short, wrap};
use super::paint::{Brush, Role};
use crate::history::rfc3339_millis;

/// Columns of the name of a kind.
const KIND_COLUMNS: usize = 7;

/// Columns from which on the time of day is shown.
const COLUMNS_FOR_TIME: usize = 60;

pub(super) fn lines<'a>(model: &Model, session: &Session, brush: Brush, rows: usize) -> Vec<Line<'a>> {
    let Some(timeline) = &session.timeline else {
        return vec![Line::from(brush.span("reading the journal…", Role::Faint))];
    };
    let all: Vec<&Entry> = timeline.entries().iter().filter(|entry| shows(session, entry)).collect();
    let is_history = !matches!(session.focus, Focus::Answer);
    let chosen = chosen(session).filter(|_| is_history || session.cursor.is_some());
    let anchor = match chosen {
        Some(entry) => all.partition_point(|other| other.key < entry.key).min(all.len().saturating_sub(1)),
        None => all.len().saturating_sub(1),
    };
    if all.is_empty() {
        let what = match (&session.link, session.filter, &session.thread) {
            (_, Some(_), _) => "nothing of this kind is shown; Up looks further back",
            (_, None, Some(_)) => "nothing of this thread is shown; Up looks further back",
            (Link::Stopped, None, None) => "nothing is on record of this session",
            (Link::New | Link::Up(_) | Link::Silent(_), None, None) => "nothing has happened yet",
        };
        return vec![Line::from(brush.span(&cut(what, brush.width), Role::Faint))];
    }
    let draw =
        |index: usize| entry(all[index], model, brush, chosen.is_some_and(|chosen| chosen.key == all[index].key));
    let mut found: VecDeque<Line<'a>> = draw(anchor).into();
    let own = found.len();
    let mut above = 0;
    for index in (0..anchor).rev() {
        if above >= rows {
            break;
        }
        let lines = draw(index);
        above += lines.len();
        lines.into_iter().rev().for_each(|line| found.push_front(line));
    }
    for index in anchor + 1..all.len() {
        if found.len() >= above + own + rows {
            break;
        }
        found.extend(draw(index));
    }
    if timeline.is_held && timeline.missed > 0 && anchor + 1 == all.len() {
        found.push_back(Line::from(brush.span("… and more has happened since: G goes there", Role::Warning)));
    }
    let last_start = found.len().saturating_sub(rows);
    let start = match session.cursor {
        None => last_start,
        // What is chosen stands in the middle.
        Some(_) => (above + own.min(rows) / 2).saturating_sub(rows / 2).min(last_start),
    };
    found.into_iter().skip(start).take(rows).collect()
}

/// Rows of a body in the timeline.
fn rows_max(entry: &Entry) -> usize {
    match (entry.kind, entry.stage) {
        (Kind::User | Kind::Assistant, _) => 30,
        (Kind::Command, Stage::Open) => 10,
        (Kind::Command, Stage::Done | Stage::Failed) => 6,
        (Kind::Change | Kind::Diff | Kind::Plan, _) => 12,
        (Kind::Reasoning | Kind::Tool, _) => 4,
        (Kind::Request | Kind::Status | Kind::Error | Kind::Gap | Kind::Run, _) => 4,
    }
}

fn role(entry: &Entry) -> Role {
    match (entry.kind, entry.stage) {
        (Kind::Error | Kind::Gap, _) | (_, Stage::Failed) => Role::Bad,
        (Kind::User, _) => Role::Strong,
        (Kind::Request, Stage::Open) => Role::Warning,
        (Kind::Reasoning | Kind::Status | Kind::Run, _) => Role::Faint,
        (Kind::Assistant | Kind::Plan | Kind::Command | Kind::Change | Kind::Diff | Kind::Tool | Kind::Request, _) => {
            Role::Plain
        }
    }
}

/// How it has come, behind its title.
fn so_far(entry: &Entry, now_us: u64) -> String {
    let mut parts = Vec::new();
    parts.extend(entry.exit_code.map(|code| format!("exit {code}")));
    match (entry.stage, entry.kind) {
        (Stage::Open, Kind::Command | Kind::Change | Kind::Tool | Kind::Request) => {
            parts.push(lasted(now_us.saturating_sub(entry.at_us)));
        }
        (Stage::Failed, Kind::Command | Kind::Change | Kind::Tool) if entry.exit_code.is_none() => {
            parts.push("failed".to_owned());
        }
        (Stage::Open | Stage::Done | Stage::Failed, _) => {}
    }
    parts.extend(entry.took_us.filter(|_| entry.kind != Kind::Diff && entry.kind != Kind::Plan).map(|us| match us {
        0..10_000_000 => format!("{}.{}s", us / 1_000_000, us / 100_000 % 10),
        _ => lasted(us),
    }));
    if parts.is_empty() { String::new() } else { format!("  [{}]", parts.join(", ")) }
}

fn entry<'a>(entry: &Entry, model: &Model, brush: Brush, is_chosen: bool) -> Vec<Line<'a>> {
    let time = match brush.width >= COLUMNS_FOR_TIME {
        true => format!("{} ", &rfc3339_millis(entry.at_us)[11..19]),
        false => String::new(),
    };
    let kind_columns = if brush.width < 30 { 0 } else { KIND_COLUMNS };
    let indent = 1 + time.len() + kind_columns;
    let columns = brush.width.saturating_sub(indent).max(1);
    let role = role(entry);
    let mut text: Vec<(String, Role)> = Vec::new();
    let head = format!("{}{}", entry.title, so_far(entry, model.now_us));
    if !head.is_empty() {
        let lines = wrap(&head, columns);
        let more = lines.len() > 3;
        text.extend(lines.into_iter().take(3).map(|line| (line, role)));
        if more && let Some(last) = text.last_mut() {
            last.0 = format!("{}…", cut(&last.0, columns.saturating_sub(1)));
        }
    }
    text.extend(body(entry, columns, role));
    if text.is_empty() {
        text.push(("…".to_owned(), Role::Faint));
    }
    let bar = if is_chosen { "▌" } else { " " };
    let mut lines = Vec::with_capacity(text.len());
    for (number, (line, role)) in text.into_iter().enumerate() {
        let label = match (number, kind_columns) {
            (_, 0) => String::new(),
            (0, _) => format!("{:KIND_COLUMNS$}", entry.kind.name()),
            (_, _) => " ".repeat(KIND_COLUMNS),
        };
        let time = if number == 0 { time.clone() } else { " ".repeat(time.len()) };
        lines.push(Line::from(vec![
            brush.span(bar, Role::Info),
            brush.span(&time, Role::Faint),
            brush.span(&label, Role::Info),
            brush.span(&line, role),
        ]));
    }
    lines
}

/// What is shown of a body.
fn body(entry: &Entry, columns: usize, role: Role) -> Vec<(String, Role)> {
    if entry.body.is_empty() {
        return Vec::new();
    }
    let rows = rows_max(entry);
    let in_body = |line: &str| -> Role {
        match entry.kind {
            Kind::Change | Kind::Diff => of_diff(line),
            Kind::User | Kind::Assistant | Kind::Reasoning | Kind::Plan | Kind::Status | Kind::Error => role,
            Kind::Command | Kind::Tool | Kind::Request | Kind::Gap | Kind::Run => Role::Faint,
        }
    };
    // No more is looked at than can be shown.
    let look_bytes = rows * columns * 4 + 4;
    let text = entry.body.trim_end_matches('\n');
    let (part, is_cut) = match entry.kind.keeps() {
        Keeps::Start => (&text[..text.floor_char_boundary(look_bytes)], text.len() > look_bytes),
        Keeps::End => {
            (&text[text.ceil_char_boundary(text.len().saturating_sub(look_bytes))..], text.len() > look_bytes)
        }
    };
    let mut lines = Vec::new();
    for line in part.split('\n') {
        let role = in_body(line);
        lines.extend(wrap(line, columns).into_iter().map(|line| (line, role)));
    }
    let is_cut = is_cut || entry.cut_bytes > 0 || lines.len() > rows;
    if is_cut {
        let all = short(text.len() as u64 + entry.cut_bytes);
        let mark = (cut(&format!("… {all} bytes in all, Enter opens it"), columns), Role::Faint);
        match entry.kind.keeps() {
            Keeps::Start => {
                lines.truncate(rows.saturating_sub(1).max(1));
                lines.push(mark);
            }
            Keeps::End => {
                let from = lines.len().saturating_sub(rows.saturating_sub(1).max(1));
                lines.drain(..from);
                lines.insert(0, mark);
            }
        }
    }
    lines
}

fn of_diff(line: &str) -> Role {
    match meant(line, "update") {
        Meant::Added => Role::Good,
        Meant::Removed => Role::Bad,
        Meant::Place => Role::Info,
        Meant::Asked | Meant::Plain | Meant::Warning => Role::Plain,
    }
}

/// An entry in full.
pub(super) fn reading<'a>(reading: &Reading, now_us: u64, brush: Brush, rows: usize) -> Vec<Line<'a>> {
    let entry = &reading.entry;
    let mut all: Vec<(String, Role)> = Vec::new();
    let head = format!("{} {}", entry.kind.name(), rfc3339_millis(entry.at_us));
    let more = match (&entry.thread_id, entry.cut_bytes) {
        (_, cut_bytes @ 1..) => format!(" · {} bytes of it are not here", short(cut_bytes)),
        (Some(thread), 0) => format!(" · thread {}", plain(thread)),
        (None, 0) => String::new(),
    };
    all.push((format!("{head}{}{more}", so_far(entry, now_us)), Role::Faint));
    all.extend(wrap(&entry.title, brush.width).into_iter().map(|line| (line, Role::Strong)));
    let is_diff = matches!(entry.kind, Kind::Change | Kind::Diff);
    for line in entry.body.split('\n') {
        let role = if is_diff { of_diff(line) } else { Role::Plain };
        all.extend(wrap(line, brush.width).into_iter().map(|line| (line, role)));
    }
    let from = reading.scroll.min(all.len().saturating_sub(rows));
    all.into_iter().skip(from).take(rows).map(|(line, role)| Line::from(brush.span(&line, role))).collect()
}
