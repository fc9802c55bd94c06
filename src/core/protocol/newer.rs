//! Names that only a newer relay has: an older tool reads them, and shows and writes them as they are.

use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Names that are kept; any further one is [`UNKNOWN`].
const NAMES_MAX: u8 = 64;

/// Longest name that is kept, in bytes.
const NAME_BYTES_MAX: usize = 40;

/// In the place of a name that is not kept.
const UNKNOWN: &str = "unknown";

/// The names so far.
static NAMES: Mutex<Names> = Mutex::new(Names(Vec::new()));

/// Names. Each is kept for good, so that an enum with one of them is as small and as easy to copy as any other.
struct Names(Vec<&'static str>);

impl Names {
    /// The place of a name, which is added if there is room; [`NAMES_MAX`] if it is not kept.
    fn place(&mut self, name: &str) -> u8 {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            return NAMES_MAX;
        }
        let at = self.0.iter().position(|kept| *kept == name).unwrap_or(self.0.len());
        if at == self.0.len() && at < usize::from(NAMES_MAX) {
            self.0.push(Box::leak(Box::from(name)));
        }
        at as u8
    }

    fn at(&self, place: u8) -> &'static str {
        self.0.get(usize::from(place)).copied().unwrap_or(UNKNOWN)
    }
}

/// The place of a name among [`NAMES`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NewerName(u8);

impl NewerName {
    pub fn of(name: &str) -> NewerName {
        NewerName(NAMES.lock().unwrap_or_else(PoisonError::into_inner).place(name))
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.lock().unwrap_or_else(PoisonError::into_inner).at(self.0)
    }
}

impl fmt::Debug for NewerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.name(), f)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::protocol::named;

    named! {
        open enum Colour {
            Red = "red",
        }
    }

    #[test]
    fn name_of_a_newer_relay_is_kept() {
        let check = |name: &str, expect: Colour| {
            let read: Colour = serde_json::from_value(json!(name)).expect("it can be read");
            assert_eq!((read, json!(read)), (expect, json!(expect.name())), "{name}");
        };
        check("red", Colour::Red);
        check("dark-blue_2", Colour::Newer(NewerName::of("dark-blue_2")));
        for name in ["", "\u{1b}[2J", &"x".repeat(41)] {
            check(name, Colour::Newer(NewerName(NAMES_MAX)));
        }
        assert_eq!(Colour::Newer(NewerName::of("dark-blue_2")).name(), "dark-blue_2");
        assert_eq!(Colour::Newer(NewerName::of("")).name(), UNKNOWN);
        assert!(serde_json::from_value::<Colour>(Value::Null).is_err());
    }

    #[test]
    fn names_are_bounded() {
        let mut names = Names(Vec::new());
        let places: Vec<u8> = (0..2 * NAMES_MAX).map(|number| names.place(&format!("name-{number}"))).collect();
        let expect: Vec<u8> = (0..2 * NAMES_MAX).map(|number| number.min(NAMES_MAX)).collect();
        assert_eq!(places, expect);
        assert_eq!((names.place("name-7"), names.at(7), names.at(NAMES_MAX)), (7, "name-7", UNKNOWN));
    }
}
