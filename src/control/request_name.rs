//! The short name of a request: the end of its id, `90c4e-0` for `6b02d1a90c4e-0`.
//!
//! Pure. An id is the run of the server, 12 hex digits of which the last 4 are random, and the number that the server gave the
//! request. Each server counts from the beginning, so the number alone would soon name a request that the user has not seen. The
//! end of the run tells the requests of all sessions of a home apart.

use std::collections::HashMap;

/// Digits of a run.
const RUN_DIGITS: usize = 12;

/// Fewest digits of the run in a short name: the random ones.
const NAME_DIGITS_MIN: usize = 4;

/// The short names of some requests.
#[derive(Debug)]
pub(crate) struct ShortNames<'a> {
    /// The ids by their shortest possible name.
    by_end: HashMap<&'a str, Vec<&'a str>>,
}

impl<'a> ShortNames<'a> {
    /// The names are unique among these ids.
    pub(crate) fn among(ids: impl Iterator<Item = &'a str>) -> ShortNames<'a> {
        let mut by_end: HashMap<&str, Vec<&str>> = HashMap::new();
        for id in ids {
            by_end.entry(end(id, NAME_DIGITS_MIN)).or_default().push(id);
        }
        ShortNames { by_end }
    }

    /// The shortest name of an id.
    pub(crate) fn of<'b>(&self, id: &'b str) -> &'b str {
        let alike = self.by_end.get(end(id, NAME_DIGITS_MIN)).map(Vec::as_slice).unwrap_or_default();
        let is_unique = |name: &&str| !alike.iter().any(|other| *other != id && other.ends_with(name));
        (NAME_DIGITS_MIN..RUN_DIGITS).map(|digits| end(id, digits)).find(is_unique).unwrap_or(id)
    }
}

/// The part of an id from the last `digits` of its run on; the whole id if it does not begin with a run.
fn end(id: &str, digits: usize) -> &str {
    if is_whole(id) { &id[RUN_DIGITS - digits..] } else { id }
}

/// Whether `name` is a short name of this id.
pub(crate) fn is_short_name(name: &str, id: &str) -> bool {
    is_whole(id) && name.len() >= id.len() - (RUN_DIGITS - NAME_DIGITS_MIN) && id.ends_with(name)
}

/// Whether a name has the form of a whole id.
pub(crate) fn is_whole(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    name.bytes().all(is_plain) && name.find('-') == Some(RUN_DIGITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_short_as_is_unique() {
        let ids = ["6b02d1a90c4e-0", "6b02d1a90c4e-10", "6b02d1a00c4e-10", "6b02d1b12222-0", "odd"];
        let names = ShortNames::among(ids.into_iter());
        let short = ids.map(|id| names.of(id));
        assert_eq!(short, ["0c4e-0", "90c4e-10", "00c4e-10", "2222-0", "odd"]);
        for (id, name) in ids.iter().zip(short).take(4) {
            assert_eq!(ids.iter().filter(|id| is_short_name(name, id)).collect::<Vec<_>>(), [id], "{name}");
        }
    }

    #[test]
    fn number_alone_is_not_a_short_name() {
        let check = |name: &str, expect: bool| assert_eq!(is_short_name(name, "6b02d1a90c4e-0"), expect, "{name}");
        check("0", false);
        check("-0", false);
        check("c4e-0", false);
        check("0c4e-0", true);
        check("6b02d1a90c4e-0", true);
        check("6b02d1a90c4e-00", false);
    }

    #[test]
    fn whole_ids_are_recognised() {
        assert!(is_whole("c000cccccccc-0") && is_whole("c000cccccccc-s.a_b-c"));
        assert!(!is_whole("0") && !is_whole("c000cccccccc-/") && !is_whole("-7"));
    }
}
