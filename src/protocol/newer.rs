//! Names that only a newer relay has: an older tool reads them, and shows and writes them as they are.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Names that are kept; any further one is [`UNKNOWN`].
const NAMES_MAX: usize = 64;

/// Longest name that is kept, in bytes.
const NAME_BYTES_MAX: usize = 40;

/// In the place of a name that is not kept.
const UNKNOWN: &str = "unknown";

/// The names so far. Each is kept for good, so that an enum with one of them can be copied as any other.
static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// A name for as long as the program runs.
pub(crate) fn newer_name(name: &str) -> &'static str {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
        return UNKNOWN;
    }
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    match names.get(name) {
        Some(kept) => kept,
        None if names.len() >= NAMES_MAX => UNKNOWN,
        None => {
            let kept: &'static str = Box::leak(Box::from(name));
            names.insert(kept);
            kept
        }
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
        check("dark-blue_2", Colour::Newer("dark-blue_2"));
        check("", Colour::Newer("unknown"));
        check("\u{1b}[2J", Colour::Newer("unknown"));
        check(&"x".repeat(41), Colour::Newer("unknown"));
        assert!(serde_json::from_value::<Colour>(Value::Null).is_err());
    }

    #[test]
    fn names_are_bounded() {
        let names: BTreeSet<&str> = (0..2 * NAMES_MAX).map(|number| newer_name(&format!("bounded-{number}"))).collect();
        assert!(names.len() <= NAMES_MAX + 1 && names.contains(UNKNOWN), "{}", names.len());
    }
}
