//! The help: the table of keys, with the current place first.

use super::super::doc::{Role, Row};
use super::super::keys::{BINDINGS, Place, names};
use super::super::model::Model;
use super::super::text::{width, wrap};
use super::paint::one;

/// Columns for keys.
const KEYS_COLUMNS: usize = 16;

/// Columns that the action of a key gets at least.
const SAYS_COLUMNS_MIN: usize = 8;

/// The places in help order.
fn order(model: &Model) -> Vec<Place> {
    let (here, _) = model.place();
    let mut places = vec![here];
    if here != Place::Everywhere {
        places.push(Place::Everywhere);
    }
    places.extend(Place::ALL.into_iter().filter(|place| *place != here && *place != Place::Everywhere));
    places
}

/// All rows.
pub(super) fn rows(model: &Model) -> Vec<Row> {
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
