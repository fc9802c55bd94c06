//! The help: the table of keys.

use ratatui::text::Line;

use super::super::keys::{BINDINGS, Place, names};
use super::super::text::{cut, width};
use super::paint::{Brush, Role};

/// Columns for keys.
const KEYS_COLUMNS: usize = 16;

pub(super) fn lines<'a>(brush: Brush, scroll: usize, rows: usize) -> Vec<Line<'a>> {
    let mut all = Vec::new();
    for place in Place::ALL {
        all.push(Line::from(brush.span(place.name(), Role::Strong)));
        for binding in BINDINGS.iter().filter(|binding| binding.place == place) {
            let keys = names(binding);
            let pad = " ".repeat(KEYS_COLUMNS.saturating_sub(width(&keys)).max(1));
            let says = cut(binding.says, brush.width.saturating_sub(width(&keys) + pad.len() + 2));
            all.push(Line::from(vec![
                brush.span(&format!("  {keys}{pad}"), Role::Info),
                brush.span(&says, Role::Plain),
            ]));
        }
    }
    let shown = rows.saturating_sub(1);
    let from = scroll.min(all.len().saturating_sub(shown));
    let mut lines: Vec<Line<'a>> = all.into_iter().skip(from).take(shown).collect();
    lines.push(Line::from(brush.span(&cut("arrows scroll, any other key closes this", brush.width), Role::Reversed)));
    lines
}
