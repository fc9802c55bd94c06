//! The parts that take the whole screen: the lists of sessions and threads, a diff under review with its files, and an entry in full.

use ratatui::layout::Rect;

use super::super::inbox::{self, InboxRow};
use super::super::layout;
use super::super::layout::ReadingAreas;
use super::super::lists::Inbox;
use super::super::lists::ListLine;
use super::super::model::{DocumentSubject, Model, Reading, Session};
use super::super::names::{session_id, session_name};
use super::super::pointing::Target;
use super::super::threads::{ThreadRow, rows as rows_of};
use super::edges::fitted_keys;
use super::edges::{badges, in_words, role, sign};
use super::paint::{Canvas, both, one, row_width};
use super::timeline::so_far;
use crate::engine::one_line;
use crate::sessions::diff::Diff;
use crate::sessions::names::short_id;
use crate::sessions::rows::{SessionRow, ThreadLine, Waiting};
use crate::text::doc::{Role, Room, Row};
use crate::text::{bytes, cut, cut_front, fitted, lasted, plain, width, wrap};

/// Rows of details about the selected session.
const WAITING_ROWS_MAX: usize = 4;

pub(super) fn sessions(model: &Model, area: Rect, canvas: &mut Canvas<'_>) {
    let list = &model.list;
    let columns = usize::from(area.width);
    let count = match (list.is_known, list.rows.len()) {
        (false, _) => "reading…".to_owned(),
        (true, 1) => "1 session".to_owned(),
        (true, more) => format!("{more} sessions"),
    };
    let badge: Row = badges(model).into_iter().flat_map(|(row, _)| row).collect();
    let left = vec![("codex-shim".to_owned(), Role::Strong), (format!("  {count}"), Role::Faint)];
    canvas.row(area, 0, &both(&left, &badge, columns));
    let note_rows = layout::note_rows(model);
    let below = Rect { y: area.bottom() - 1, height: 1, ..area };
    canvas.row(below, 0, &foot(columns));
    if let Some(note) = model.note.as_ref().filter(|_| note_rows > 0) {
        super::noted(note, Rect { y: below.y - note_rows, height: note_rows, ..below }, canvas);
    }
    let mut rest = Rect { y: area.y + 1, height: area.height.saturating_sub(2 + note_rows), ..area };
    if list.is_known && list.rows.is_empty() {
        let text = "no sessions yet; start your tool through codex-shim first:\ncodex-shim wrap --help";
        let lines: Vec<Row> = wrap(text, columns).into_iter().map(|line| one(line, Role::Plain)).collect();
        canvas.rows(rest, &lines);
        return;
    }
    let lines = list.lines();
    let at = list.at(&lines);
    let table = Table::new(model, columns);
    if rest.height >= 5 {
        canvas.row(rest, 0, &table.head());
        rest = Rect { y: rest.y + 1, height: rest.height - 1, ..rest };
    }
    let below = lines.get(at).map(|line| table.below(line)).unwrap_or_default();
    let told = (below.len().min(WAITING_ROWS_MAX) as u16).min(rest.height / 3);
    let rows = usize::from(rest.height - told);
    canvas.spot(rest, Target::Sessions);
    let from = at.saturating_sub(rows.saturating_sub(1));
    for (number, line) in lines.iter().enumerate().skip(from).take(rows) {
        let drawn = match line.thread {
            Some(thread) => table.thread(line, thread, model.now_us),
            None => table.row(line.row, model.now_us),
        };
        match number == at {
            true => canvas.selected(rest, number - from, &drawn),
            false => canvas.row(rest, number - from, &drawn),
        }
        let area = Rect { y: rest.y + (number - from) as u16, height: 1, ..rest };
        canvas.spot(area, Target::Session(line.destination()));
    }
    let area = Rect { y: rest.bottom() - told, height: told, ..rest };
    for (number, row) in below.iter().take(usize::from(told)).enumerate() {
        canvas.row(area, number, row);
    }
}

fn foot(columns: usize) -> Row {
    let tag = " sessions ";
    let room = columns.saturating_sub(tag.len() + 1);
    let (enter, keys) = fitted_keys(&["Enter attach", "Enter"], "q quit · ? help", room);
    vec![(tag.to_owned(), Role::Reversed), (format!(" {enter}{keys}"), Role::Plain)]
}

/// The columns of the list.
struct Table<'a> {
    rows: &'a [SessionRow],
    name_columns: usize,
    id_columns: usize,
    columns: usize,
}

/// Columns of a session's state.
const STATE_COLUMNS: usize = 22;

/// From this many free columns on, the row of a thread says what it is about.
const ABOUT_COLUMNS_MIN: usize = 12;

/// Before the name of a thread of the session above.
const THREAD_INDENT: &str = "  ";

impl<'a> Table<'a> {
    fn new(model: &'a Model, columns: usize) -> Table<'a> {
        let rows = &model.list.rows;
        let longest = |widths: &mut dyn Iterator<Item = usize>, least: usize| widths.max().unwrap_or(0).max(least);
        let short = |row: &SessionRow| width(&plain(session_id(&row.id, rows)));
        let id_columns = longest(&mut rows.iter().map(short), 2).min(20);
        let name = |row: &SessionRow| {
            let own = width(&plain(&session_name(&row.id, &row.cwd, row.client.as_deref())));
            let threads = row.threads.iter().map(|thread| width(&plain(&thread.name)) + THREAD_INDENT.len());
            threads.chain([own]).max().unwrap_or(0)
        };
        // On a narrow screen the names get everything that the states leave.
        let beside = columns.saturating_sub(STATE_COLUMNS + 3).min(24);
        let name_columns = longest(&mut rows.iter().map(name), 7).min((columns / 3).max(beside).max(8));
        Table { rows, name_columns, id_columns, columns }
    }

    fn has_id(&self) -> bool {
        self.columns >= self.name_columns + self.id_columns + STATE_COLUMNS + 4
    }

    fn parts(&self, name: &str, id: &str, state: (&str, Role), cwd: &str) -> Row {
        let state_columns = STATE_COLUMNS.min(self.columns.saturating_sub(self.name_columns + 3));
        let mut row = vec![(format!(" {}  ", fitted(name, self.name_columns)), Role::Strong)];
        if self.has_id() {
            row.push((format!("{}  ", fitted(id, self.id_columns)), Role::Info));
        }
        row.push((fitted(state.0, state_columns), state.1));
        let taken = super::paint::row_width(&row);
        if self.columns > taken + 12 && !cwd.is_empty() {
            row.push((format!("  {}", cut_front(cwd, self.columns - taken - 2)), Role::Faint));
        }
        row
    }

    fn head(&self) -> Row {
        let has_titles = self.rows.iter().any(|row| !row.threads.is_empty());
        let about = if has_titles { "FOLDER OR TITLE" } else { "FOLDER" };
        let row = self.parts("SESSION", "ID", ("STATE", Role::Faint), about);
        row.into_iter().map(|(text, _)| (text, Role::Faint)).collect()
    }

    fn row(&self, row: &SessionRow, now_us: u64) -> Row {
        let (state, of_state) = match (row.live, row.waiting.len(), row.state) {
            (false, ..) if row.away.is_some() => {
                (row.away.as_ref().map_or(String::new(), |away| format!("! {}", plain(away))), Role::Warning)
            }
            (false, ..) => (format!("  stopped {} ago", lasted(now_us.saturating_sub(row.used_us))), Role::Faint),
            (true, _, None) => (
                row.away.as_ref().map_or("! does not answer".to_owned(), |away| format!("! {}", plain(away))),
                Role::Bad,
            ),
            (true, 0, Some(state)) => (format!("{} {}", sign(state, now_us), in_words(state)), role(state)),
            (true, waiting, Some(_)) => (requests(waiting), Role::Warning),
        };
        let whole = plain(&session_name(&row.id, &row.cwd, row.client.as_deref()));
        let fits = width(&whole) <= self.name_columns;
        let name = if fits { whole } else { plain(&session_name(&row.id, &row.cwd, None)) };
        let id = plain(session_id(&row.id, self.rows));
        self.parts(&name, &id, (&cut(&state, STATE_COLUMNS), of_state), &plain(&row.cwd))
    }

    /// A thread below its session, with the age of its state, and what it is about.
    fn thread(&self, line: &ListLine<'_>, thread: &ThreadLine, now_us: u64) -> Row {
        let age = thread.since_us.map(|since_us| lasted(now_us.saturating_sub(since_us)));
        // Its largest unit.
        let age = age.as_deref().and_then(|age| age.split(' ').next());
        let (state, of_state) = match line.waiting().count() {
            0 => (format!("{} {}", sign(thread.state, now_us), in_words(thread.state)), role(thread.state)),
            waiting => (requests(waiting), Role::Warning),
        };
        let state = format!("{state} {}", age.unwrap_or_default());
        let room = self.name_columns.saturating_sub(THREAD_INDENT.len());
        let whole = plain(&thread.name);
        let name = if width(&whole) <= room { whole } else { plain(&thread.short_name) };
        let mut row = self.parts(&format!("{THREAD_INDENT}{name}"), "", (&cut(&state, STATE_COLUMNS), of_state), "");
        let taken = row_width(&row);
        if self.columns > taken + ABOUT_COLUMNS_MIN && !thread.about.is_empty() {
            row.push((format!("  {}", cut(&plain(&one_line(&thread.about)), self.columns - taken - 2)), Role::Plain));
        }
        row
    }

    /// What is told about the selected row below the list: the title of a thread that has no room, and its requests.
    fn below(&self, line: &ListLine<'_>) -> Vec<Row> {
        let has_about = self.columns > self.name_columns + self.id_columns + STATE_COLUMNS + 5 + ABOUT_COLUMNS_MIN;
        let about =
            line.thread.map(|thread| plain(&one_line(&thread.about))).filter(|about| !has_about && !about.is_empty());
        let asks = |one: &Waiting| {
            // The row of a session stands for several threads.
            let of = one.origin.as_ref().filter(|_| line.thread.is_none()).map(|of| format!("{}: ", of.name));
            let asks = format!(" {}{}", of.map(|of| plain(&of)).unwrap_or_default(), plain(&one.summary));
            vec![(format!(" {} ", mark(&one.warnings)), Role::Badge), (asks, role_of(&one.warnings))]
        };
        let about = about.map(|about| one(format!(" {about}"), Role::Plain));
        about.into_iter().chain(line.waiting().map(asks)).collect()
    }
}

/// The mark of a request in a list, which may cut off the words that are dangerous.
fn mark(warnings: &[String]) -> char {
    if warnings.is_empty() { '?' } else { '!' }
}

fn role_of(warnings: &[String]) -> Role {
    if warnings.is_empty() { Role::Warning } else { Role::Bad }
}

fn requests(waiting: usize) -> String {
    if waiting == 1 { "? 1 request waits".to_owned() } else { format!("? {waiting} requests wait") }
}

/// Rows of the selected request below the list: its session, what it asks in full, and its warnings.
const REQUEST_ROWS_MAX: u16 = 6;

/// Columns of the age of a request.
const AGE_COLUMNS: usize = 7;

/// Narrowest column for what a request asks; below that the row leaves the session to the rows below.
const ASKS_COLUMNS_MIN: usize = 24;

/// The requests of all sessions.
pub(super) fn inbox(model: &Model, inbox: &Inbox, area: Rect, canvas: &mut Canvas<'_>) {
    let columns = usize::from(area.width);
    let rows = inbox::rows(model);
    let left = vec![("requests".to_owned(), Role::Strong), (format!("  {} in all sessions", rows.len()), Role::Faint)];
    canvas.row(area, 0, &left);
    let note_rows = layout::note_rows(model);
    let below = Rect { y: area.bottom() - 1, height: 1, ..area };
    let tag = " requests ";
    let (enter, keys) =
        fitted_keys(&["Enter shows it", "Enter"], "Esc back · ? help", columns.saturating_sub(tag.len() + 1));
    canvas.row(below, 0, &vec![(tag.to_owned(), Role::Reversed), (format!(" {enter}{keys}"), Role::Plain)]);
    if let Some(note) = model.note.as_ref().filter(|_| note_rows > 0) {
        super::noted(note, Rect { y: below.y - note_rows, height: note_rows, ..below }, canvas);
    }
    let rest = Rect { y: area.y + 1, height: area.height.saturating_sub(2 + note_rows), ..area };
    let at = inbox::chosen(inbox, &rows);
    let Some(chosen) = rows.get(at) else { return };
    let mut told = wrap(&format!("{}: {}", plain(&chosen.place), plain(&chosen.summary)), columns);
    let warned_from = told.len();
    told.extend(chosen.warnings.iter().flat_map(|warning| wrap(&format!("! {}", plain(warning)), columns)));
    let told_rows = (told.len() as u16).min(REQUEST_ROWS_MAX).min(rest.height / 3);
    let list = Rect { height: rest.height - told_rows, ..rest };
    canvas.spot(list, Target::Inbox);
    let shown = usize::from(list.height);
    let from = at.saturating_sub(shown.saturating_sub(1));
    let widest = |text: &dyn Fn(&InboxRow) -> usize| rows.iter().map(text).max().unwrap_or(0);
    let name_columns = widest(&|row| width(&plain(&row.name)));
    let place_columns = widest(&|row| width(&plain(&row.place))).min(columns / 3);
    let has_place = columns >= AGE_COLUMNS + name_columns + place_columns + ASKS_COLUMNS_MIN + 7;
    for (number, row) in rows.iter().enumerate().skip(from).take(shown) {
        let age = lasted(model.now_us.saturating_sub(row.asked_us));
        let mut cells = vec![
            (format!(" {}  ", fitted(&age, AGE_COLUMNS)), Role::Faint),
            (format!("{}  ", fitted(&plain(&row.name), name_columns)), Role::Warning),
        ];
        if has_place {
            cells.push((format!("{}  ", fitted(&plain(&row.place), place_columns)), Role::Plain));
        }
        match row.warnings.is_empty() {
            true => cells.push((plain(&row.summary), Role::Strong)),
            false => cells.push((format!("! {}", plain(&row.summary)), Role::Bad)),
        }
        match number == at {
            true => canvas.selected(list, number - from, &cells),
            false => canvas.row(list, number - from, &cells),
        }
        let area = Rect { y: list.y + (number - from) as u16, height: 1, ..list };
        canvas.spot(area, Target::Waiting(row.key.0.clone(), row.key.1.clone()));
    }
    let below = Rect { y: list.bottom(), height: told_rows, ..rest };
    let role = |number| if number < warned_from { Role::Warning } else { Role::Bad };
    let told: Vec<Row> = told.into_iter().enumerate().map(|(number, line)| one(line, role(number))).collect();
    canvas.rows(below, &told);
}

/// Widest name of a thread.
const ID_COLUMNS_MAX: usize = 24;

pub(super) fn threads(session: &Session, chosen: usize, area: Rect, canvas: &mut Canvas<'_>) {
    let threads = rows_of(session);
    let head = match threads.len() {
        0 => "no threads yet".to_owned(),
        1 => "1 thread".to_owned(),
        more => format!("{more} threads"),
    };
    canvas.row(area, 0, &one(head, Role::Heading));
    let rest = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    let rows = usize::from(rest.height).max(1);
    let chosen = chosen.min(threads.len());
    let from = (chosen + 1).saturating_sub(rows);
    let ids: Vec<&str> = threads.iter().map(|row| row.id.as_str()).collect();
    let widest = |columns: &mut dyn Iterator<Item = usize>| columns.max().unwrap_or(0);
    let id_columns = widest(&mut ids.iter().map(|id| width(&short(id, &ids)))).min(ID_COLUMNS_MAX);
    let state_columns = widest(&mut threads.iter().map(|thread| width(state_of(thread).0)));
    for number in (from..=threads.len()).take(rows) {
        let row = match number.checked_sub(1).and_then(|at| threads.get(at)) {
            Some(thread) => one_of(thread, &ids, (id_columns, state_columns)),
            None => {
                let whole = " all threads; messages go to the one of the last turn";
                one(if whole.len() <= usize::from(area.width) { whole } else { " all threads" }, Role::Plain)
            }
        };
        match number == chosen {
            true => canvas.selected(rest, number - from, &row),
            false => canvas.row(rest, number - from, &row),
        }
        let area = Rect { y: rest.y + (number - from) as u16, height: 1, ..rest };
        canvas.spot(area.intersection(rest), Target::Thread(number));
    }
}

fn short(id: &str, ids: &[&str]) -> String {
    plain(short_id(id, ids.iter().copied()))
}

fn state_of(thread: &ThreadRow) -> (&'static str, Role) {
    match (thread.pending, thread.state) {
        (0, None) => ("", Role::Faint),
        (0, Some(state)) => (in_words(state), role(state)),
        (_, _) => ("? a request waits", Role::Warning),
    }
}

fn one_of(thread: &ThreadRow, ids: &[&str], (id_columns, state_columns): (usize, usize)) -> Row {
    let (state, of_state) = state_of(thread);
    let name = thread.name.as_ref().map(|name| (format!("{}  ", plain(name)), Role::Plain));
    let mut row = vec![
        (format!(" {}  ", fitted(&short(&thread.id, ids), id_columns)), Role::Info),
        (format!("{}  ", fitted(state, state_columns)), of_state),
    ];
    row.extend(name);
    row.push((plain(&thread.about), Role::Faint));
    row
}

pub(super) fn draw(model: &Model, session: &Session, shown: &Reading, canvas: &mut Canvas<'_>) {
    let areas = layout::reading(model, shown);
    let room = Room { columns: usize::from(areas.text.width).max(1), rows: usize::from(areas.text.height) };
    let percent = format!("{}%", shown.doc().percent(shown.at, room));
    let (first, second) = match shown.diff() {
        Some(diff) => diff_title(session, shown, diff, &percent),
        None => entry_title(model, session, shown, &percent),
    };
    let columns = usize::from(areas.title.width);
    match areas.title.height {
        0 | 1 => canvas.row(areas.title, 0, &both(&second.0, &second.1, columns)),
        _ => {
            canvas.row(areas.title, 0, &both(&first.0, &first.1, columns));
            canvas.row(areas.title, 1, &both(&second.0, &second.1, columns));
        }
    }
    canvas.rows(areas.text, &shown.doc().window(shown.at, room));
    canvas.spot(areas.text, Target::Document);
    if let Some(diff) = shown.diff() {
        files(shown, diff, &areas, canvas);
    }
    if let Some(note) = model.note.as_ref().filter(|_| areas.note.height > 0) {
        super::noted(note, areas.note, canvas);
    }
    canvas.row(areas.footer, 0, &super::edges::row(model, session, columns));
}

/// A row and the part at its right edge.
type Title = (Row, Row);

fn diff_title(session: &Session, shown: &Reading, diff: &Diff, percent: &str) -> (Title, Title) {
    let (added, removed) = diff.counts();
    let what = match &shown.subject {
        DocumentSubject::Request(_) => "? review of a request",
        DocumentSubject::Entry(_) => "± diff",
    };
    let name = plain(&session.name());
    let first = vec![(what.to_owned(), Role::Heading), (format!("  {name}"), Role::Faint)];
    let count = if diff.files.len() == 1 { "1 file".to_owned() } else { format!("{} files", diff.files.len()) };
    let mut all = one(format!("{count} "), Role::Plain);
    all.extend([(format!("+{added}"), Role::Good), (format!(" -{removed}"), Role::Bad)]);
    let at = diff.file_at(shown.at.line);
    let hunk = diff.hunk_at(shown.at.line);
    let file = diff.files.get(at).map(|file| file.path.clone()).unwrap_or_default();
    let hunks = if diff.hunks.is_empty() { String::new() } else { format!("hunk {hunk}/{} · ", diff.hunks.len()) };
    let right = format!("file {}/{} · {hunks}{percent}", at + 1, diff.files.len());
    let left = one(file, Role::Strong);
    ((first, all), (left, one(right, Role::Info)))
}

fn entry_title(model: &Model, session: &Session, shown: &Reading, percent: &str) -> (Title, Title) {
    let DocumentSubject::Entry(entry) = &shown.subject else { return Default::default() };
    let mut first = vec![(entry.label().to_owned(), Role::Heading)];
    let right_columns = row_width(&so_far(entry, session, model.now_us));
    let times = [model.zone.whole(entry.at_us), model.zone.time(entry.at_us)];
    let room = usize::from(model.size.width).saturating_sub(row_width(&first) + 3 + right_columns);
    let time = times.into_iter().find(|time| time.len() <= room).unwrap_or_default();
    first.push((format!("  {time}"), Role::Faint));
    let mut second = match &entry.thread_id {
        Some(thread) => one(format!("thread {}", plain(thread)), Role::Faint),
        None => Row::new(),
    };
    let mut right = so_far(entry, session, model.now_us);
    if entry.cut_bytes > 0 {
        right.push((format!("  {} not shown", bytes(entry.cut_bytes)), Role::Warning));
    }
    if second.is_empty() {
        second = first.clone();
    }
    ((first, right), (second, one(percent, Role::Info)))
}

/// The files of a diff, with the visible one selected.
fn files(shown: &Reading, diff: &Diff, areas: &ReadingAreas, canvas: &mut Canvas<'_>) {
    if areas.files.area() == 0 {
        return;
    }
    let chosen = shown.files.unwrap_or_else(|| diff.file_at(shown.at.line));
    let rows = usize::from(areas.files.height).max(1);
    let from = chosen.saturating_sub(rows / 2).min(diff.files.len().saturating_sub(rows));
    let columns = usize::from(areas.files.width);
    for (number, one) in diff.files.iter().enumerate().skip(from).take(rows) {
        let counts = format!(" +{} -{}", one.added, one.removed);
        let path = cut_front(&one.path, columns.saturating_sub(2 + width(&counts)));
        let short = crate::sessions::diff::File { path, ..one.clone() };
        let row = super::file(&short);
        match number == chosen {
            true => canvas.selected(areas.files, number - from, &row),
            false => canvas.row(areas.files, number - from, &row),
        }
        let area = Rect { y: areas.files.y + (number - from) as u16, height: 1, ..areas.files };
        canvas.spot(area, Target::File(number));
    }
    canvas.between(areas.between);
}
