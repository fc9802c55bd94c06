//! What stands below the timeline: what waits, the request that is answered, the composer.

use ratatui::text::Line;
use unicode_width::UnicodeWidthChar as _;

use super::super::ask::{Ask, Meant};
use super::super::keys::Place;
use super::super::model::{Answering, Focus, Mode, Model, Session};
use super::super::text::{Field, cut, lasted, plain, width, wrap};
use super::paint::{Brush, Role};
use crate::engine::visible;

/// Requests that are listed.
const LISTED_MAX: usize = 3;

/// Rows of the composer.
const COMPOSER_ROWS_MAX: usize = 6;

/// What is shown, and where the cursor is in it.
#[derive(Debug, Default)]
pub(super) struct Bottom<'a> {
    pub(super) lines: Vec<Line<'a>>,
    /// Column and row.
    pub(super) cursor: Option<(usize, usize)>,
}

pub(super) fn draw<'a>(model: &Model, session: &Session, brush: Brush, rows: usize) -> Bottom<'a> {
    if let Focus::Search(field) = &session.focus {
        let mut bottom = Bottom::default();
        typed(&mut bottom, "/", field, brush, 1);
        return bottom;
    }
    let is_answering = matches!(session.focus, Focus::Answer);
    match &session.answering {
        // A row of the timeline stays, where there are any to spare.
        Some(answering) if is_answering => {
            let spare = match rows {
                0..6 => 0,
                6..16 => 2,
                _ => rows / 3,
            };
            panel(model, session, answering, brush, rows - spare)
        }
        Some(_) | None => {
            let mut bottom = Bottom::default();
            queue(model, session, brush, rows.saturating_sub(2), &mut bottom);
            if is_answering {
                let room = COMPOSER_ROWS_MAX.min(rows.saturating_sub(bottom.lines.len() + 1)).max(1);
                let mark = if session.is_saying { "… " } else { "› " };
                typed(&mut bottom, mark, &session.composer, brush, room);
            }
            bottom
        }
    }
}

/// What waits, with the key that leads there.
fn queue<'a>(model: &Model, session: &Session, brush: Brush, rows: usize, bottom: &mut Bottom<'a>) {
    let listed = session.asks.len().min(LISTED_MAX).min(rows.max(1));
    for ask in session.asks.iter().take(listed) {
        let age = lasted(model.now_us.saturating_sub(ask.asked_us));
        let text = format!("^R {age} {}", plain(&ask.summary()));
        bottom.lines.push(Line::from(brush.span(&cut(&text, brush.width), Role::Warning)));
    }
    let rest = session.asks.len() - listed;
    if rest > 0 && rows > listed {
        bottom.lines.push(Line::from(brush.span(&format!("   and {rest} more"), Role::Warning)));
    }
}

/// A field, the part of it in which the cursor is.
fn typed(bottom: &mut Bottom<'_>, mark: &str, field: &Field, brush: Brush, rows: usize) {
    let columns = brush.width.saturating_sub(width(mark) + 1).max(1);
    // As many lines in front of the cursor as there are rows; the cursor stands behind the last of them.
    let before = wrap_typed(field.before_cursor(), columns);
    let all = wrap_typed(field.text(), columns);
    let at = before.len() - 1;
    let from = at.saturating_sub(rows.saturating_sub(1));
    let pad = " ".repeat(width(mark));
    let first = bottom.lines.len();
    for (number, line) in all.iter().enumerate().skip(from).take(rows) {
        let mark = if number == 0 { mark } else { &pad };
        bottom.lines.push(Line::from(vec![brush.span(mark, Role::Info), brush.span(line, Role::Plain)]));
    }
    bottom.cursor = Some((width(mark) + before.last().map_or(0, |line| width(line)), first + at - from));
}

/// Breaks by letters, as they are shown, so that a cursor stands where the next letter goes.
fn wrap_typed(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in visible(text).split('\n') {
        let (mut taken, mut rest) = (0, String::new());
        for char in line.chars() {
            let char_columns = char.width().unwrap_or(0);
            if taken + char_columns > columns {
                lines.push(std::mem::take(&mut rest));
                taken = 0;
            }
            rest.push(char);
            taken += char_columns;
        }
        lines.push(rest);
    }
    lines
}

/// The request that is answered.
fn panel<'a>(model: &Model, session: &Session, shown: &Answering, brush: Brush, rows: usize) -> Bottom<'a> {
    let mut bottom = Bottom::default();
    let ask = &shown.ask;
    let at = session.asks.iter().position(|other| other.id == ask.id).map_or(0, |at| at + 1);
    let age = lasted(model.now_us.saturating_sub(ask.asked_us));
    let head = format!("{} · {at}/{} · asked {age} ago · {}", ask.id, session.asks.len(), plain(&ask.summary()));
    let rule = Line::from(brush.span(&cut(&head, brush.width), Role::Warning));
    let foot = how(model, session, shown, brush, rows);
    // What is asked goes before what it is called.
    let head_rows = usize::from(rows > foot.lines.len() + 2);
    if head_rows == 1 {
        bottom.lines.push(rule);
    }
    let room = rows.saturating_sub(foot.lines.len() + head_rows);
    let all = asked(ask, brush);
    let last = all.len().saturating_sub(room);
    let from = shown.scroll.min(last);
    let hidden = all.len() - from.min(all.len());
    for (number, line) in all.into_iter().enumerate().skip(from).take(room) {
        let is_last = room > 1 && number + 1 == from + room && hidden > room;
        bottom.lines.push(match is_last {
            true => Line::from(brush.span(&cut("… more, Down scrolls", brush.width), Role::Faint)),
            false => line,
        });
    }
    let offset = bottom.lines.len();
    bottom.lines.extend(foot.lines);
    bottom.cursor = foot.cursor.map(|(column, row)| (column, row + offset));
    bottom
}

/// What is asked.
fn asked<'a>(ask: &Ask, brush: Brush) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for (meant, text) in ask.lines() {
        let role = match meant {
            Meant::Asked => Role::Strong,
            Meant::Plain => Role::Plain,
            Meant::Added => Role::Good,
            Meant::Removed => Role::Bad,
            Meant::Place => Role::Info,
            Meant::Warning => Role::Warning,
        };
        lines.extend(wrap(&text, brush.width).iter().map(|line| Line::from(brush.span(line, role))));
    }
    lines
}

/// How it can be answered, or what became of it.
fn how<'a>(model: &Model, session: &Session, shown: &Answering, brush: Brush, rows: usize) -> Bottom<'a> {
    let mut bottom = Bottom::default();
    let say = |bottom: &mut Bottom<'a>, text: &str, role: Role| {
        let lines = wrap(text, brush.width);
        bottom.lines.extend(lines.iter().take(rows.max(1)).map(|line| Line::from(brush.span(line, role))));
    };
    if let Some(ended) = &shown.ended {
        say(&mut bottom, ended, Role::Info);
        return bottom;
    }
    if shown.is_sent {
        say(&mut bottom, "your answer is on its way…", Role::Faint);
        return bottom;
    }
    if let Some(sure) = &shown.sure {
        let danger = sure.danger.clone().unwrap_or_default();
        say(&mut bottom, &format!("{}: {danger}. Really? y / n", sure.label), Role::Bad);
        return bottom;
    }
    if let Some(reason) = &shown.reason {
        typed(&mut bottom, "why not: ", reason, brush, 2.min(rows));
        return bottom;
    }
    match (session.mode(), model.place().0) {
        (Mode::Input, _) => question(shown, brush, rows, bottom),
        (Mode::Approval | Mode::Chat, Place::Approval) => {
            let choices = shown.ask.choices();
            let mut parts: Vec<String> =
                choices.iter().map(|choice| format!("[{}] {}", choice.key, choice.label)).collect();
            if shown.ask.takes_reason() {
                parts.insert(parts.len().min(3), "[r] decline and say why".to_owned());
            }
            if choices.is_empty() {
                let id = &shown.ask.id;
                parts
                    .push(format!("what this is is not known here: codex-shim respond {id} --json '{{\"result\":…}}'"));
            }
            let one = parts.join("  ");
            // Half of the rows at most: nobody decides on what is not to be seen.
            let is_narrow = wrap(&one, brush.width).len() * 2 > rows;
            match is_narrow {
                true => say(&mut bottom, &cut(&keys_first(&shown.ask, brush.width), brush.width), Role::Info),
                false => say(&mut bottom, &one, Role::Info),
            }
            bottom
        }
        (Mode::Approval | Mode::Chat, _) => bottom,
    }
}

/// Where there is no room for all words: every key, and a word for each as far as they fit.
fn keys_first(ask: &Ask, columns: usize) -> String {
    let mut keys: Vec<char> = ask.choices().iter().map(|choice| choice.key).collect();
    if ask.takes_reason() {
        keys.push('r');
    }
    if keys.is_empty() {
        return "not known here: see codex-shim respond".to_owned();
    }
    // Behind its bracket a word goes on: `[a]ccept`.
    let word = |key: char| match key {
        'a' => "ccept",
        's' => "ession",
        'd' => "ecline",
        'c' => "ancel",
        'r' => "eason",
        _ => "",
    };
    let mut parts: Vec<String> = keys.iter().map(|key| format!("[{key}]")).collect();
    let mut taken = parts.iter().map(|part| part.len()).sum::<usize>();
    let gaps = parts.len() - 1;
    for key in ['a', 'd', 's', 'c', 'r'] {
        let Some(at) = keys.iter().position(|other| *other == key) else { continue };
        if taken + word(key).len() <= columns {
            taken += word(key).len();
            parts[at].push_str(word(key));
        }
    }
    parts.join(if taken + gaps <= columns { " " } else { "" })
}

/// A question with its options.
fn question<'a>(shown: &Answering, brush: Brush, rows: usize, mut bottom: Bottom<'a>) -> Bottom<'a> {
    let Some(step) = shown.step() else { return bottom };
    let (at, all) = (shown.answers.len() + 1, shown.steps.len());
    let options = step.options.len() + usize::from(step.takes_text);
    let count = if all > 1 { format!("({at}/{all}) ") } else { String::new() };
    let asks = wrap(&format!("{count}{}", step.question), brush.width);
    let room = rows.saturating_sub(options.min(rows.saturating_sub(1))).max(1);
    bottom.lines.extend(asks.iter().take(room).map(|line| Line::from(brush.span(line, Role::Strong))));
    let left = rows.saturating_sub(bottom.lines.len()).max(1);
    let from = shown.chosen.saturating_sub(left.saturating_sub(1));
    for (number, (label, about)) in step.options.iter().enumerate().skip(from).take(left) {
        let is_chosen = number == shown.chosen;
        let mark = if is_chosen { "›" } else { " " };
        let about = if about.is_empty() { String::new() } else { format!("  {about}") };
        let text = cut(&plain(&format!("{mark} {}. {label}{about}", number + 1)), brush.width);
        bottom.lines.push(Line::from(brush.span(&text, if is_chosen { Role::Strong } else { Role::Plain })));
    }
    if step.takes_text && step.options.len() < from + left {
        let mark = match (shown.types_text(), step.options.len()) {
            (true, 0) => "› ".to_owned(),
            (true, options) => format!("› {}. ", options + 1),
            (false, options) => format!("  {}. something else ", options + 1),
        };
        let secret = step.is_secret.then(|| Field::of("•".repeat(shown.text.text().chars().count())));
        let field = secret.as_ref().unwrap_or(&shown.text);
        typed(&mut bottom, &mark, field, brush, 3.min(left));
        if !shown.types_text() {
            bottom.cursor = None;
        }
    }
    bottom
}
