//! The request on the screen: its details, and how to answer it.

use std::ops::Range;

use ratatui::layout::Rect;

use super::super::form::Field;
use super::super::form::{Draft, Stand, answer};
use super::super::layout;
use super::super::model::{Answering, Mode, Model, Session};
use super::super::pointing::Target;
use super::paint::{Canvas, one, row_width, title, typed};
use crate::requests::view::Choice;
use crate::sessions::ask::{Ask, Step};
use crate::text::doc::{At, Doc, Role, Room, Row};
use crate::text::{cut, cut_words, lasted, plain, width, wrap};

/// Columns that the headline of a request needs at least beside its age.
const HEADLINE_COLUMNS_MIN: usize = 16;

/// How to answer a request, or its outcome.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Foot {
    pub(in super::super) rows: Vec<Row>,
    /// Column and row of the cursor.
    cursor: Option<(usize, usize)>,
    selected: Range<usize>,
    /// The row and number of each option, from 0.
    options: Vec<(usize, usize)>,
}

impl Foot {
    /// Column and row of the cursor.
    pub(super) fn cursor(&self) -> Option<(usize, usize)> {
        self.cursor
    }

    fn say(mut self, text: &str, role: Role, columns: usize, rows_max: usize) -> Foot {
        self.rows.extend(wrap(text, columns).into_iter().take(rows_max.max(1)).map(|line| one(line, role)));
        self
    }
}

/// Draws the request; returns the position of the cursor.
pub(super) fn draw(
    model: &Model,
    session: &Session,
    shown: &Answering,
    area: Rect,
    canvas: &mut Canvas<'_>,
) -> Option<(u16, u16)> {
    canvas.spot(area, Target::Request);
    let (head, details, below) = layout::request(model, session, shown, area);
    canvas.row(head, 0, &head_of(model, session, shown, details));
    let room = Room { columns: usize::from(details.width).max(1), rows: usize::from(details.height) };
    canvas.rows(details, &shown.details.doc.window(shown.at, room));
    let foot = foot(model, session, shown, usize::from(area.width), usize::from(below.height).max(1));
    for (number, row) in foot.rows.iter().enumerate() {
        match foot.selected.contains(&number) {
            true => canvas.selected(below, number, row),
            false => canvas.row(below, number, row),
        }
    }
    for (row, option) in foot.options {
        let area = Rect { y: below.y + row as u16, height: 1, ..below };
        canvas.spot(area.intersection(below), Target::Option(option));
    }
    foot.cursor.map(|(column, row)| {
        let column = (column as u16).min(below.width.saturating_sub(1));
        (below.x + column, (below.y + row as u16).min(below.bottom().saturating_sub(1)))
    })
}

fn head_of(model: &Model, session: &Session, shown: &Answering, details: Rect) -> Row {
    let at = session.asks.iter().position(|other| other.id == shown.ask.id).map_or(0, |at| at + 1);
    let age = lasted(model.now_us.saturating_sub(shown.ask.asked_us));
    let left = shown.ask.left_us(model.now_us).map(lasted);
    let count = if session.asks.len() > 1 { format!(" {at} of {}", session.asks.len()) } else { String::new() };
    let room = Room { columns: usize::from(details.width).max(1), rows: usize::from(details.height) };
    let is_scrolled = shown.details.doc.end(room) != At::default();
    let percent = match is_scrolled && details.height > 0 {
        true => format!("{}% ", shown.details.doc.percent(shown.at, room)),
        false => String::new(),
    };
    let has_keys = !matches!(session.focus, super::super::model::Focus::History);
    let headline = plain(&shown.ask.headline(&shown.details));
    let right = one(percent, Role::Info);
    let dot = if count.is_empty() { " " } else { " · " };
    // A title takes six columns more than its texts.
    let left_columns = usize::from(details.width).saturating_sub(row_width(&right) + 6);
    let fronts = match left {
        None => {
            [format!("? request{count} · asked {age} ago · "), format!("? request{count} · "), format!("?{count}{dot}")]
        }
        // How long is left is said on every screen.
        Some(left) => {
            let short = format!("?{count} · {left} left · ");
            [format!("? request{count} · asked {age} ago · {left} left · "), short.clone(), short]
        }
    };
    let room = |front: &String| left_columns.saturating_sub(width(front));
    let needs = [width(&headline).min(HEADLINE_COLUMNS_MIN), width(&headline), 0];
    let fits = fronts.iter().zip(needs).find(|(front, needs)| room(front) >= *needs);
    let front = fits.map_or(&fronts[2], |(front, _)| front);
    let left = format!("{front}{}", cut_words(&headline, room(front)));
    title(left.trim_end_matches([' ', '·']), &right, usize::from(details.width), has_keys)
}

/// How to answer the request, in a limited number of rows.
pub(in super::super) fn foot(model: &Model, session: &Session, shown: &Answering, columns: usize, rows: usize) -> Foot {
    let foot = Foot::default();
    if let Some(ended) = &shown.ended {
        return foot.say(&format!("{ended}. Enter continues."), Role::Info, columns, rows);
    }
    if shown.is_sent {
        return foot.say("your answer is being sent…", Role::Faint, columns, rows);
    }
    if let Some(sure) = &shown.sure {
        return confirmation(sure, columns, rows);
    }
    if let Some(reason) = &shown.reason {
        return field("why not: ", reason, columns, 4.min(rows), foot);
    }
    match (session.mode(), shown.form.stand()) {
        (Mode::Input, Stand::Summary(row)) => summary(shown, row, columns, rows),
        (Mode::Input, Stand::Step(_)) => question(shown, columns, rows),
        (Mode::Approval | Mode::Chat, _) => choices(model, shown, columns, rows),
    }
}

/// The danger of a choice and the keys, before the choice's label, which alone is cut unless the danger needs more rows.
fn confirmation(sure: &Choice, columns: usize, rows: usize) -> Foot {
    const KEYS: &str = "Really? y / n";
    let danger = sure.danger.as_deref().unwrap_or_default();
    let mut lines = cut_rows(&format!("{danger}. {KEYS} ({})", sure.label), columns, rows);
    if !lines.join(" ").contains(KEYS) {
        let (last, mut first) = (rows.max(1) - 1, wrap(danger, columns));
        let rest = first.split_off(last.min(first.len())).join(" ");
        first.push(cut(&format!("{} {KEYS}", cut_words(&rest, columns.saturating_sub(width(KEYS) + 1))), columns));
        lines = first;
    }
    Foot { rows: lines.into_iter().map(|line| one(line, Role::Bad)).collect(), ..Foot::default() }
}

/// A text in at most so many rows; `…` marks a cut.
fn cut_rows(text: &str, columns: usize, rows: usize) -> Vec<String> {
    let mut lines = wrap(text, columns);
    if lines.len() > rows.max(1) {
        let rest = lines.split_off(rows.max(1) - 1).join(" ");
        lines.push(cut_words(&rest, columns));
    }
    lines
}

fn field(mark: &str, field: &Field, columns: usize, rows: usize, mut foot: Foot) -> Foot {
    let typed = typed(mark, field, columns, rows);
    foot.cursor = Some((typed.cursor.0, foot.rows.len() + typed.cursor.1));
    foot.rows.extend(typed.rows);
    foot
}

/// The keys that answer, one per row if there is room, otherwise as many words as fit.
fn choices(model: &Model, shown: &Answering, columns: usize, rows: usize) -> Foot {
    let mut foot = Foot::default();
    let ask = &shown.ask;
    let mut all: Vec<(String, String)> =
        ask.choices().map(|choice| (choice.key.to_string(), choice.label.clone())).collect();
    if all.is_empty() {
        let text = format!(
            "an unknown kind of request; answer it with codex-shim respond {} --json '{{\"result\":…}}'",
            ask.id
        );
        return foot.say(&text, Role::Info, columns, rows);
    }
    if shown.details.diff.is_some() {
        all.push(("v".to_owned(), "review the diff on the whole screen".to_owned()));
    }
    let is_tall = usize::from(model.size.height) >= 20;
    if all.len() <= rows && is_tall {
        foot.rows.extend(all.iter().map(|(key, label)| choice(key, label)));
        return foot;
    }
    let packed = packed(&all, columns);
    if packed.len() <= rows && packed.len() <= 3 {
        foot.rows = packed;
        return foot;
    }
    let short = wrap(&short_choices(ask), columns);
    if short.len() <= rows && short.len() <= 3 {
        foot.rows.extend(short.into_iter().map(|line| one(line.replace('\u{a0}', " "), Role::Info)));
        return foot;
    }
    foot.rows.push(one(cut(&keys_first(ask, columns), columns), Role::Info));
    foot
}

/// Every key with a short label. Blanks inside a label are not broken.
fn short_choices(ask: &Ask) -> String {
    let label = |choice: &Choice| match choice.key {
        'a' | 's' | 'd' | 'c' => format!("[{}]{}", choice.key, rest_of_word(choice.key)),
        'r' => "[r]\u{a0}say\u{a0}why\u{a0}not".to_owned(),
        key if choice.label.starts_with("accept, and do not ask again") => {
            format!("[{key}]\u{a0}do\u{a0}not\u{a0}ask\u{a0}again")
        }
        key if choice.label.starts_with("decline, and always refuse") => format!("[{key}]\u{a0}always\u{a0}refuse"),
        key => format!("[{key}]\u{a0}other"),
    };
    let (last, first): (Vec<&Choice>, Vec<&Choice>) = ask.choices().partition(|choice| choice.key == 'r');
    first.into_iter().chain(last).map(label).collect::<Vec<_>>().join(" ")
}

/// The word of a key continues after the bracket: `[a]ccept`.
fn rest_of_word(key: char) -> &'static str {
    match key {
        'a' => "ccept",
        's' => "ession",
        'd' => "ecline",
        'c' => "ancel",
        'r' => "eason",
        _ => "",
    }
}

fn choice(key: &str, label: &str) -> Row {
    vec![(format!(" {key} "), Role::Reversed), (format!(" {label}  "), Role::Plain)]
}

/// The choices in as few rows as they need.
fn packed(all: &[(String, String)], columns: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = vec![Row::new()];
    for (key, label) in all {
        let one = choice(key, label);
        let last = rows.last().map_or(0, row_width);
        if last > 0 && last + row_width(&one) > columns + 2 {
            rows.push(Row::new());
        }
        rows.iter_mut().last().into_iter().for_each(|row| row.extend(one.clone()));
    }
    rows
}

/// Every key, with a word for each that fits.
fn keys_first(ask: &Ask, columns: usize) -> String {
    let keys = ask.keys();
    let mut parts: Vec<String> = keys.iter().map(|key| format!("[{key}]")).collect();
    let mut taken = parts.iter().map(|part| part.len() + 1).sum::<usize>() - 1;
    let gap = if taken <= columns { " " } else { "" };
    for key in ['a', 'd', 's', 'c', 'r'] {
        let Some(at) = keys.iter().position(|other| *other == key) else { continue };
        if taken + rest_of_word(key).len() <= columns {
            taken += rest_of_word(key).len();
            parts[at].push_str(rest_of_word(key));
        }
    }
    parts.join(gap)
}

fn question(shown: &Answering, columns: usize, rows: usize) -> Foot {
    let mut foot = Foot::default();
    let Some((step, draft)) = shown.form.current() else { return foot };
    let (at, all) = match shown.form.stand() {
        Stand::Step(at) => (at + 1, shown.form.len()),
        Stand::Summary(_) => (0, 0),
    };
    let count = if all > 1 { format!("{at} of {all}: ") } else { String::new() };
    let mut asks = wrap(&format!("{count}{}", step.question), columns);
    let room = rows.saturating_sub(step.choices().min(rows.saturating_sub(1))).max(1);
    if step.is_long() {
        // The details have it in full, and scroll.
        asks = if all > 1 { vec![cut_words(&asks.join(" "), columns)] } else { Vec::new() };
    } else if asks.len() > room {
        asks = cut_rows(&asks.join(" "), columns, room);
    }
    foot.rows.extend(asks.into_iter().map(|line| one(line, Role::Strong)));
    let more = [(&step.hint, Role::Faint), (draft.error.as_ref().unwrap_or(&String::new()), Role::Bad)]
        .into_iter()
        .filter(|(text, _)| !text.is_empty())
        .flat_map(|(text, role)| wrap(text, columns).into_iter().map(move |line| one(line, role)))
        .collect::<Vec<_>>();
    foot.rows.extend(more.into_iter().take(room.saturating_sub(foot.rows.len())));
    let left = rows.saturating_sub(foot.rows.len()).max(1);
    let types = shown.form.types_text();
    let text = hidden(step, draft);
    let mark = match (types, step.options.len()) {
        (true, 0) => "› ".to_owned(),
        (true, options) => format!("› {}. ", options + 1),
        (false, options) => format!("  {}. something else ", options + 1),
    };
    let text_rows = match (step.takes_text, types) {
        (true, true) => typed(&mark, &text, columns, 3.min(left)).rows.len(),
        (true, false) => usize::from(left >= 3),
        (false, _) => 0,
    };
    let options: Vec<Doc> = step.options.iter().enumerate().map(|(at, option)| option_doc(at, option, draft)).collect();
    let chosen = Some(draft.chosen).filter(|chosen| *chosen < options.len());
    let anchor = if types { options.len() } else { chosen.unwrap_or(0) };
    list(&mut foot, &options, chosen, anchor, Room { columns, rows: left - text_rows });
    if text_rows > 0 {
        foot.options.push((foot.rows.len(), step.options.len()));
        foot = field(&mark, &text, columns, text_rows, foot);
        if !types {
            foot.cursor = None;
        }
    }
    foot
}

/// Adds the entries of a list that fit, around the anchor: all of them whole if there is room, else only the chosen one.
fn list(foot: &mut Foot, entries: &[Doc], chosen: Option<usize>, anchor: usize, room: Room) {
    let Room { columns, rows } = room;
    let heights: Vec<usize> = entries.iter().map(|entry| entry.rows(columns, rows + 1)).collect();
    let is_whole = heights.iter().sum::<usize>() <= rows;
    let height = |at: usize| if is_whole || chosen == Some(at) { heights[at].min(rows) } else { 1 };
    let mut from = anchor.min(entries.len());
    let mut taken = if from < entries.len() { height(from) } else { 0 };
    while from > 0 && taken + height(from - 1) <= rows {
        from -= 1;
        taken += height(from);
    }
    let mut left = rows;
    for (at, entry) in entries.iter().enumerate().skip(from) {
        let rows = height(at).min(left);
        if rows == 0 {
            break;
        }
        left -= rows;
        let mut drawn = entry.window(At::default(), Room { columns, rows });
        if let Some(last) = drawn.last_mut().filter(|_| heights[at] > rows) {
            last.push(("…".to_owned(), Role::Faint));
        }
        foot.options.push((foot.rows.len(), at));
        if chosen == Some(at) {
            foot.selected = foot.rows.len()..foot.rows.len() + drawn.len();
        }
        foot.rows.extend(drawn);
    }
}

/// Columns before the second row of an entry of a list.
const LIST_HANG: u16 = 5;

fn option_doc(number: usize, (label, about): &(String, String), draft: &Draft) -> Doc {
    let mark = if number == draft.chosen { "›" } else { " " };
    let one_line = |text: &str| text.replace('\n', " ");
    let about = if about.is_empty() { String::new() } else { format!("  {}", one_line(about)) };
    let (mark, label) = (format!("{mark} {}. ", number + 1), one_line(label));
    let mut doc = Doc::default();
    doc.push_pieces(&[(&mark, Role::Info), (&label, Role::Plain), (&about, Role::Faint)], LIST_HANG);
    doc
}

/// The typed text, masked if it is secret.
fn hidden(step: &Step, draft: &Draft) -> Field {
    match step.is_secret {
        true => Field::of("•".repeat(draft.text.text().chars().count())),
        false => draft.text.clone(),
    }
}

/// All answers, before they are sent.
fn summary(shown: &Answering, selected: usize, columns: usize, rows: usize) -> Foot {
    let mut foot = Foot::default();
    foot.rows.push(one("Your answers:", Role::Strong));
    let room = Room { columns, rows: rows.saturating_sub(1).max(1) };
    let mut all: Vec<Doc> = Vec::new();
    for (number, (step, draft)) in shown.form.all().enumerate() {
        let given = plain(&answer(step, draft).replace('\n', "⏎"));
        let (given, role) = match (given.is_empty(), step.is_secret && draft.chosen >= step.options.len()) {
            (true, _) => ("not answered".to_owned(), Role::Faint),
            (false, true) => ("•".repeat(given.chars().count().min(40)), Role::Plain),
            (false, false) => (given, Role::Plain),
        };
        let question = cut(&plain(&step.question.replace('\n', " ")), columns / 2);
        let (number, question) = (format!("  {}. ", number + 1), format!("{question}  "));
        let error = draft.error.as_ref().map(|error| format!("  ! {error}")).unwrap_or_default();
        let pieces = [(&*number, Role::Info), (&question, Role::Faint), (&given, role), (&error, Role::Bad)];
        let mut doc = Doc::default();
        doc.push_pieces(&pieces, LIST_HANG);
        all.push(doc);
    }
    let mut send = Doc::default();
    send.push("  Send these answers", Role::Strong);
    all.push(send);
    list(&mut foot, &all, Some(selected), selected, room);
    foot
}
