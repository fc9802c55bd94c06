//! Names that only a newer relay has: an older tool reads them, and shows and writes them as they are.

use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Names that are kept; any further one is [`UNKNOWN`].
const NAMES_MAX: u8 = 64;

/// Longest name that is kept, in bytes.
const NAME_BYTES_MAX: usize = 40;

/// In the place of a name that is not kept.
const UNKNOWN: &str = "unknown";

/// The names so far. Each is kept for good, so that an enum with one of them is as small and as easy to copy as any other.
static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// The place of a name among [`NAMES`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NewerName(u8);

impl NewerName {
    pub(crate) fn of(name: &str) -> NewerName {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            return NewerName(NAMES_MAX);
        }
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        let at = names.iter().position(|kept| *kept == name).unwrap_or(names.len());
        if at == names.len() && at < usize::from(NAMES_MAX) {
            names.push(Box::leak(Box::from(name)));
        }
        NewerName(at as u8)
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        names.get(usize::from(self.0)).copied().unwrap_or(UNKNOWN)
    }
}

impl fmt::Debug for NewerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.name(), f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
        let names = (0..2 * NAMES_MAX).map(|number| NewerName::of(&format!("bounded-{number}")).name());
        let names: BTreeSet<&str> = names.collect();
        assert!(names.len() <= usize::from(NAMES_MAX) + 1 && names.contains(UNKNOWN), "{}", names.len());
    }
}
