//! Makes text of a transcript fit to be handed on: secrets are masked, and home folders are replaced.
//!
//! Stored entries are masked already, but by the shapes that were known when they were stored; here they are masked again.

use serde_json::Value;

use crate::config::Environment;
use crate::engine::terminal::without_sequences;
use crate::replay::Homes;
use crate::secrets::Masker;

/// Cleans texts and JSON.
pub(super) struct Cleaner {
    masker: Masker,
    /// `None` if paths stay as they are.
    homes: Option<Homes>,
}

impl Cleaner {
    pub(super) fn new(has_paths: bool, environment: &Environment) -> Cleaner {
        let home = environment.get("HOME").map(|home| home.to_string_lossy().into_owned());
        // Commands may name the folder that a link to the home leads to.
        let real = home.as_ref().and_then(|home| std::fs::canonicalize(home).ok());
        let real = real.map(|real| real.to_string_lossy().into_owned());
        Cleaner::of_home((!has_paths).then_some(home.into_iter().chain(real)))
    }

    /// A cleaner for these paths of the user's home. `None` leaves all paths unchanged.
    pub(super) fn of_home(home: Option<impl IntoIterator<Item = String>>) -> Cleaner {
        Cleaner { masker: Masker::new(&[]).expect("BUG: there is no pattern"), homes: home.map(Homes::new) }
    }

    pub(super) fn text(&self, text: &str) -> String {
        // An escape sequence may stand in or before a secret or a path.
        let plain = without_sequences(text);
        let masked = self.masker.text(&plain).unwrap_or_else(|| plain.into_owned());
        self.homes.as_ref().map_or(masked.clone(), |homes| homes.text(&masked))
    }

    /// JSON with its secrets masked; text that is not JSON becomes `null`.
    pub(super) fn masked(&self, json: &str) -> Value {
        let masked = self.masker.json(json);
        serde_json::from_str(masked.as_deref().unwrap_or(json)).unwrap_or_default()
    }

    /// Cleans every string and every member name. Ids are included, although stored entries leave them unmasked.
    pub(super) fn all_texts(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.all_texts(value)),
            Value::Object(members) => {
                for (name, mut value) in std::mem::take(members) {
                    self.all_texts(&mut value);
                    members.insert(self.text(&name), value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_hide_no_secret_and_no_home() {
        let cleaner = Cleaner::of_home(Some(["/root".to_owned()]));
        let check = |text: &str, expect: &str| assert_eq!(cleaner.text(text), expect, "{text:?}");
        check("\u{1b}[35m/root/x\u{1b}[m:\u{1b}[32m/home/bob\u{1b}[m", "~/x:/home/user");
        check("/ro\u{1b}[1mot/x\n\u{1b}[1m/home/\u{1b}[1mbob", "~/x\n/home/user");
        check("sk-abcdefgh\u{1b}[1mijklmnopqrst", "[redacted]*************");
        check("a\u{1b}]8;;x\nb", "a\nb");
    }
}
