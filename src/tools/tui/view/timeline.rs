//! The timeline: entries in order, the newest last, exactly one selected.

use std::collections::{HashMap, VecDeque};

use ratatui::layout::Rect;

use super::super::browse::chosen;
use super::super::folds::{FoldedThread, Sieve};
use super::super::model::{Focus, Model, Session};
use super::super::pointing::Target;
use super::paint::{Canvas, one};
use crate::api::ListedThread;
use crate::engine::terminal::remains_of;
use crate::sessions::diff::{Diff, form_of, relative};
use crate::sessions::entry::{Entry, Keeps, Key, Kind, Stage};
use crate::sessions::news::Link;
use crate::text::doc::{At, Doc, Role, Room, Row};
use crate::text::markdown;
use crate::text::{bytes, cut_words, fitted, lasted, plain, wrap};

/// Columns of the sign and the word of a kind.
const KIND_COLUMNS: usize = 9;

/// Columns of the sign alone.
const SIGN_COLUMNS: usize = 2;

/// Widths from which each entry shows its label and its time.
const COLUMNS_FOR_WORD: usize = 44;
const COLUMNS_FOR_TIME: usize = 70;

/// Most rows of a message; the full view has the rest.
const MESSAGE_ROWS_MAX: usize = 200;

/// Most rows of a title.
const TITLE_ROWS_MAX: usize = 3;

/// A row, and the entry that it belongs to.
struct Drawn {
    row: Row,
    key: Option<Key>,
}

/// The context of drawing an entry.
#[derive(Clone, Copy)]
struct Pen<'a> {
    model: &'a Model,
    session: &'a Session,
    columns: usize,
    rows: usize,
    has_keys: bool,
    /// The title names the time zone.
    has_zone: bool,
}

/// Draws the entries; `has_zone` says that the title names the time zone.
pub(super) fn draw(model: &Model, session: &Session, area: Rect, has_zone: bool, canvas: &mut Canvas<'_>) {
    canvas.spot(area, Target::Timeline);
    let has_keys = matches!(session.focus, Focus::History | Focus::Search(_));
    let (columns, rows) = (usize::from(area.width), usize::from(area.height));
    let pen = Pen { model, session, columns, rows, has_keys, has_zone };
    for (number, drawn) in pen.all().into_iter().enumerate() {
        canvas.row(area, number, &drawn.row);
        if let Some(key) = drawn.key {
            let area = Rect { y: area.y + number as u16, height: 1, ..area };
            canvas.spot(area, Target::Entry(key));
        }
    }
}

impl Pen<'_> {
    fn all(self) -> VecDeque<Drawn> {
        let say = |text: &str| {
            let lines = wrap(text, self.columns).into_iter();
            lines.map(|line| Drawn { row: one(line, Role::Faint), key: None }).collect::<VecDeque<_>>()
        };
        let session = self.session;
        let Some(timeline) = &session.timeline else { return say("reading the journal…") };
        let sieve = Sieve::of(session);
        let all: Vec<&Entry> = timeline.entries().iter().filter(|entry| sieve.shows(entry)).collect();
        let Some(chosen) = chosen(session) else {
            return say(match (&session.link, session.filter, &session.thread) {
                (_, Some(_), _) => "nothing of this kind; Up looks further back, f shows the next kind",
                (_, None, Some(_)) => "nothing of this thread; Up looks further back",
                (Link::Stopped, None, None) => "nothing is on record for this session",
                (Link::New | Link::Up(_) | Link::Silent(_), None, None) => "nothing has happened yet",
            });
        };
        let anchor = all.partition_point(|other| other.key < chosen.key).min(all.len().saturating_sub(1));
        let names = self.names();
        let draw = |index: usize| {
            let before = index.checked_sub(1).map(|before| all[before]);
            let own = all[index].thread_id.as_deref();
            let is_same = before.is_some_and(|before| before.thread_id.as_deref() == own);
            let name = own.filter(|_| !is_same).and_then(|own| names.get(own));
            let folded = sieve.line(all[index]).map(FoldedThread::in_words);
            let mut drawn = self.entry(all[index], folded.as_deref(), before, index == anchor);
            if let Some(name) = name {
                let words = cut_words(&format!("── {}", plain(name)), self.columns);
                // Behind a new day, before the entry.
                let at = drawn.iter().take_while(|drawn| drawn.key.is_none()).count();
                drawn.insert(at, Drawn { row: one(words, Role::Faint), key: None });
            }
            drawn
        };
        let mut found: VecDeque<Drawn> = draw(anchor).into();
        let own = found.len();
        let mut above = 0;
        for index in (0..anchor).rev() {
            if above >= self.rows {
                break;
            }
            let rows = draw(index);
            above += rows.len();
            rows.into_iter().rev().for_each(|row| found.push_front(row));
        }
        for index in anchor + 1..all.len() {
            if found.len() >= above + own + self.rows {
                break;
            }
            found.extend(draw(index));
        }
        if timeline.is_held && timeline.missed > 0 && anchor + 1 == all.len() {
            let row = one("… newer entries follow; G shows them", Role::Warning);
            found.push_back(Drawn { row, key: None });
        }
        let last_start = found.len().saturating_sub(self.rows);
        let start = match (&session.cursor, own > self.rows) {
            (None, _) => last_start,
            // A long entry is shown from its top.
            (Some(_), true) => above.min(last_start),
            (Some(_), false) => (above + own / 2).saturating_sub(self.rows / 2).min(last_start),
        };
        found.drain(..start);
        found.truncate(self.rows);
        found
    }

    /// The names of the threads of persons, if entries of several are shown.
    fn names(self) -> HashMap<String, String> {
        let document = self.session.document().filter(|_| self.session.thread.is_none());
        let listed = document.map(|document| document.listed_threads()).unwrap_or_default();
        let has_names = listed.len() > 1 && listed.iter().all(ListedThread::has_place);
        let named = |listed: ListedThread<'_>| (listed.thread.thread_id.clone(), listed.name);
        if has_names { listed.into_iter().map(named).collect() } else { HashMap::new() }
    }

    /// An entry, or the words that stand for a whole thread.
    fn entry(self, entry: &Entry, folded: Option<&str>, before: Option<&Entry>, is_chosen: bool) -> Vec<Drawn> {
        let zone = &self.model.zone;
        let mut drawn = Vec::new();
        if before.is_none_or(|before| zone.day(before.at_us) != zone.day(entry.at_us)) {
            // The zone of a past day may differ from the one in the title.
            let name = zone.name(entry.at_us);
            let is_named = self.has_zone && name == zone.name(self.model.now_us);
            let name = if is_named { String::new() } else { format!(" · {name}") };
            let day = format!("── {}{name}", zone.day(entry.at_us));
            drawn.push(Drawn { row: one(cut_words(&day, self.columns), Role::Faint), key: None });
        }
        let time = if self.columns >= COLUMNS_FOR_TIME { zone.time(entry.at_us) + " " } else { String::new() };
        let kind_columns = match self.columns {
            0..24 => 0,
            24..COLUMNS_FOR_WORD => SIGN_COLUMNS,
            _ => KIND_COLUMNS,
        };
        let columns = self.columns.saturating_sub(1 + time.len() + kind_columns).max(1);
        let mut text = match folded {
            Some(words) => wrap(words, columns).into_iter().map(|line| one(line, Role::Faint)).collect(),
            None => [head(entry, self, columns), body(entry, self, columns)].concat(),
        };
        if text.is_empty() {
            text.push(one("…", Role::Faint));
        }
        let (bar, bar_role) = match (is_chosen, self.has_keys) {
            (true, true) => ("▌", Role::Info),
            (true, false) => ("▏", Role::Faint),
            (false, _) => (" ", Role::Plain),
        };
        let (sign, role) = if folded.is_some() { ("▸", Role::Faint) } else { sign(entry) };
        let word = if folded.is_some() { entry.thread_kind.speaker() } else { entry.label() };
        let label = match kind_columns {
            KIND_COLUMNS => fitted(&format!("{sign} {word}"), kind_columns),
            columns => fitted(sign, columns),
        };
        let role = if is_chosen && self.has_keys { Role::Reversed } else { role };
        for (number, line) in text.into_iter().enumerate() {
            let is_first = number == 0;
            let blank = |text: &str| " ".repeat(crate::text::width(text));
            let mut row: Row = vec![(bar.to_owned(), bar_role)];
            row.push((if is_first { time.clone() } else { blank(&time) }, Role::Faint));
            match is_first {
                true => {
                    let word = label.trim_end();
                    row.push((word.to_owned(), role));
                    row.push((label[word.len()..].to_owned(), Role::Plain));
                }
                false => row.push((" ".repeat(kind_columns), Role::Plain)),
            }
            row.extend(line);
            drawn.push(Drawn { row, key: Some(entry.key.clone()) });
        }
        drawn
    }
}

/// The symbol and colour of a kind.
fn sign(entry: &Entry) -> (&'static str, Role) {
    match (entry.kind, entry.stage) {
        (Kind::User, _) => ("❯", Role::User),
        (Kind::Assistant, _) => ("●", Role::Model),
        (Kind::Reasoning, _) => ("∴", Role::Faint),
        (Kind::Plan, _) => ("≡", Role::Info),
        (Kind::Command, Stage::Failed) => ("$", Role::Bad),
        (Kind::Command, _) => ("$", Role::Info),
        (Kind::Change, Stage::Failed) => ("±", Role::Bad),
        (Kind::Change | Kind::Diff, _) => ("±", Role::Good),
        (Kind::Tool, Stage::Failed) => ("◇", Role::Bad),
        (Kind::Tool, _) => ("◇", Role::Info),
        (Kind::Request, Stage::Open) => ("?", Role::Badge),
        (Kind::Request, _) => ("?", Role::Warning),
        (Kind::Review, Stage::Done) => ("◆", Role::Good),
        (Kind::Review, _) => ("◆", Role::Warning),
        (Kind::Status, _) => ("─", Role::Faint),
        (Kind::Error, _) => ("!", Role::Bad),
        (Kind::Gap, _) => ("≈", Role::Bad),
        (Kind::Run, _) => ("»", Role::Faint),
    }
}

/// The role of an entry's text.
fn role(entry: &Entry) -> Role {
    match (entry.kind, entry.stage) {
        (Kind::Error | Kind::Gap, _) | (_, Stage::Failed) => Role::Bad,
        (Kind::Request, Stage::Open) | (_, Stage::Stopped) => Role::Warning,
        (Kind::User, _) => Role::Strong,
        (Kind::Reasoning | Kind::Status | Kind::Run, _) => Role::Faint,
        (
            Kind::Assistant
            | Kind::Plan
            | Kind::Command
            | Kind::Change
            | Kind::Diff
            | Kind::Tool
            | Kind::Request
            | Kind::Review,
            _,
        ) => Role::Plain,
    }
}

/// The progress of an entry, after its title.
pub(super) fn so_far(entry: &Entry, session: &Session, now_us: u64) -> Row {
    let is_action = matches!(entry.kind, Kind::Command | Kind::Change | Kind::Tool);
    let took = entry.took_us.filter(|_| is_action || entry.kind == Kind::Request).map(|us| match us {
        0..10_000_000 => format!("{}.{}s", us / 1_000_000, us / 100_000 % 10),
        _ => lasted(us),
    });
    // Nothing runs without a relay, and no record says how it ended.
    let has_ended = matches!(session.link, Link::Stopped);
    let (sign, role) = match (entry.stage, is_action) {
        (Stage::Open, true) if has_ended => ("unknown outcome".to_owned(), Role::Warning),
        (Stage::Open, false) if has_ended && entry.kind == Kind::Request => {
            ("ended with its server".to_owned(), Role::Warning)
        }
        (Stage::Open, true) if is_awaited(entry, session) => ("not yet allowed".to_owned(), Role::Warning),
        (Stage::Open, true) => ("running".to_owned(), Role::Info),
        (Stage::Open, false) if entry.kind == Kind::Request => ("pending".to_owned(), Role::Warning),
        (Stage::Done, true) => ("✓".to_owned(), Role::Good),
        (Stage::Failed, true) => ("✗ failed".to_owned(), Role::Bad),
        (Stage::Open | Stage::Done | Stage::Failed | Stage::Stopped, _) => (String::new(), Role::Faint),
    };
    let sign = match entry.exit_code.filter(|_| entry.stage != Stage::Open) {
        Some(0) | None => sign,
        Some(code) => format!("✗ exit {code}"),
    };
    let is_running = !has_ended && entry.stage == Stage::Open && (is_action || entry.kind == Kind::Request);
    let took = if is_running { Some(lasted(now_us.saturating_sub(entry.at_us))) } else { took };
    let mut row = Row::new();
    if !sign.is_empty() {
        row.push((format!("  {sign}"), role));
    }
    row.extend(took.map(|took| (format!("  {took}"), Role::Faint)));
    row
}

/// Whether an action waits for a pending request.
fn is_awaited(entry: &Entry, session: &Session) -> bool {
    entry.handle.is_some() && session.asks.iter().any(|ask| ask.handle() == entry.handle)
}

/// The title with the progress.
fn head(entry: &Entry, pen: Pen<'_>, columns: usize) -> Vec<Row> {
    let role = role(entry);
    let title = match (entry.kind == Kind::Change, entry.title.split_once(": change ")) {
        (true, Some((status, path))) => format!("{status}: change {}", relative(path, &pen.session.cwd)),
        (true, None) => relative(&entry.title, &pen.session.cwd).to_owned(),
        (false, _) => entry.title.clone(),
    };
    let after = so_far(entry, pen.session, pen.model.now_us);
    if title.is_empty() && after.is_empty() {
        return Vec::new();
    }
    let mut doc = Doc::default();
    for line in title.split('\n').take(TITLE_ROWS_MAX) {
        doc.push(line, role);
    }
    let mut rows = doc.window(At::default(), Room { columns, rows: TITLE_ROWS_MAX + 1 });
    if rows.len() > TITLE_ROWS_MAX || title.split('\n').count() > TITLE_ROWS_MAX {
        rows.truncate(TITLE_ROWS_MAX);
        rows.iter_mut().last().into_iter().for_each(|row| row.push((" …".to_owned(), Role::Faint)));
    }
    match rows.last_mut() {
        Some(last) if super::paint::row_width(last) + super::paint::row_width(&after) <= columns => last.extend(after),
        Some(_) if after.is_empty() => {}
        Some(_) | None => {
            let mut after = after;
            after.iter_mut().take(1).for_each(|(text, _)| *text = text.trim_start().to_owned());
            rows.push(after);
        }
    }
    rows
}

/// The part of a body that the timeline shows.
fn body(entry: &Entry, pen: Pen<'_>, columns: usize) -> Vec<Row> {
    if entry.body.is_empty() {
        return Vec::new();
    }
    match entry.kind {
        Kind::User | Kind::Assistant | Kind::Reasoning | Kind::Plan => message(entry, pen, columns),
        Kind::Change | Kind::Diff => changes(entry, pen, columns),
        // The request itself shows its diff, and so does the full view.
        Kind::Request => Vec::new(),
        Kind::Command | Kind::Tool => {
            let rows_max = match (entry.stage, entry.kind) {
                (Stage::Open, _) => 10,
                (Stage::Done | Stage::Failed | Stage::Stopped, Kind::Command) => 6,
                (Stage::Done | Stage::Failed | Stage::Stopped, _) => 4,
            };
            output(entry, columns, rows_max)
        }
        Kind::Review | Kind::Status | Kind::Error | Kind::Gap | Kind::Run => {
            wrap(&entry.body, columns).into_iter().take(4).map(|line| one(line, Role::Faint)).collect()
        }
    }
}

/// A finished message whole, an unfinished one from its end.
fn message(entry: &Entry, pen: Pen<'_>, columns: usize) -> Vec<Row> {
    let is_open = entry.stage == Stage::Open && entry.kind.keeps(entry.stage) == Keeps::End;
    let doc = match is_open {
        true => markdown::tail(&entry.body, pen.rows * columns * 3),
        false => markdown::doc(&entry.body),
    };
    let rows_max = match (entry.kind, is_open) {
        (_, true) => pen.rows.max(1),
        (Kind::Reasoning, false) => 4,
        (_, false) => MESSAGE_ROWS_MAX,
    };
    let room = Room { columns, rows: rows_max };
    let at = if is_open { doc.end(room) } else { At::default() };
    let mut rows = doc.window(at, room);
    let own = role(entry);
    for (_, role) in rows.iter_mut().flatten().filter(|(_, role)| *role == Role::Plain) {
        *role = own;
    }
    let is_cut = !is_open && (entry.cut_bytes > 0 || doc.rows(columns, rows_max + 1) > rows_max);
    if is_cut {
        rows.truncate(rows_max.saturating_sub(1).max(1));
        rows.push(more(entry, columns));
    }
    rows
}

fn more(entry: &Entry, columns: usize) -> Row {
    let all = bytes(entry.body.len() as u64 + entry.cut_bytes);
    one(cut_words(&format!("… {all} in all, Enter opens it"), columns), Role::Faint)
}

/// The end of what a program has printed, as it stands on its screen, or of a tool's result.
fn output(entry: &Entry, columns: usize, rows_max: usize) -> Vec<Row> {
    let remains = (entry.kind == Kind::Command).then(|| remains_of(&entry.body));
    let text = remains.as_deref().unwrap_or(&entry.body).trim_end_matches('\n');
    // Only the visible part is wrapped.
    let look_bytes = rows_max * columns * 4 + 4;
    let part = &text[text.ceil_char_boundary(text.len().saturating_sub(look_bytes))..];
    let mut rows: Vec<Row> = wrap(part, columns).into_iter().map(|line| one(line, Role::Faint)).collect();
    if part.len() < text.len() || entry.cut_bytes > 0 || rows.len() > rows_max {
        let from = rows.len().saturating_sub(rows_max.saturating_sub(1).max(1));
        rows.drain(..from);
        rows.insert(0, more(entry, columns));
    }
    rows
}

/// The diff of one file, or the files of several.
fn changes(entry: &Entry, pen: Pen<'_>, columns: usize) -> Vec<Row> {
    const ROWS_MAX: usize = 10;
    // The request beside it shows the same diff.
    let is_under_review = entry.stage == Stage::Open && pen.session.answering.is_some();
    if is_under_review {
        return Vec::new();
    }
    let Some(form) = form_of(entry.kind) else { return Vec::new() };
    let diff = Diff::read(form, &entry.body, &pen.session.cwd);
    if diff.files.len() == 1 && entry.kind == Kind::Change {
        let room = Room { columns, rows: ROWS_MAX + 1 };
        let mut rows = diff.doc.window(At::line(1), room);
        if rows.len() > ROWS_MAX || entry.cut_bytes > 0 {
            rows.truncate(ROWS_MAX - 1);
            rows.push(more(entry, columns));
        }
        return rows;
    }
    let mut rows: Vec<Row> = diff.files.iter().take(6).map(super::file).collect();
    if diff.files.len() > rows.len() || entry.cut_bytes > 0 {
        rows.push(more(entry, columns));
    }
    rows
}
