//! Signatures in signed addresses, as in `https://host/x?sv=1&sig=…`: whatever its value looks like, a signature opens something.
//!
//! An address is read once, however many names stand in it.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::names::Label;
use super::table::{SIGNATURES, SIGNED_PARTS};
use super::{automaton_of_any_case, is_any, patterns};

patterns! {
    SIGNATURE = r"^(?:=|%3[Dd])((?:[\w.~+/=-]|%(?:[013-9A-Za-z]|2[0-57-9A-Za-z]))+)";
}

/// Bytes around the name of a signature in which the other parts of its address are looked for.
const ADDRESS_BYTES_MAX: usize = 1_024;

/// No part is longer.
const PART_BYTES_MAX: usize = 16;

/// The address around the last name of a signature.
#[derive(Debug, Default)]
pub(super) struct Address {
    /// As much of it as was read.
    read: Range<usize>,
    /// The start of the last part in it that only a signed address has.
    part: Option<usize>,
}

impl Address {
    /// The signature behind a name in a signed address. Names come in the order of the text.
    pub(super) fn signature(&mut self, text: &[u8], name: &Label) -> Option<Range<usize>> {
        if !is_any(&text[name.range.clone()], &SIGNATURES) || !self.is_signed(text, name.range.start) {
            return None;
        }
        let value = SIGNATURE.captures(&text[name.range.end..])?.get(1)?.range();
        Some(name.range.end + value.start..name.range.end + value.end)
    }

    /// Whether the address at `at` has a part that only a signed one has.
    fn is_signed(&mut self, text: &[u8], at: usize) -> bool {
        static PARTS: LazyLock<AhoCorasick> = LazyLock::new(|| automaton_of_any_case(SIGNED_PARTS));
        if at > self.read.end {
            let front = text[..at].iter().rev().take(ADDRESS_BYTES_MAX).take_while(is_of_address).count();
            *self = Address { read: at - front..at - front, part: None };
        }
        let behind = &text[self.read.end..text.len().min(at + ADDRESS_BYTES_MAX)];
        let from = self.read.start.max(self.read.end.saturating_sub(PART_BYTES_MAX));
        self.read.end += behind.iter().take_while(is_of_address).count();
        let parts = PARTS.find_overlapping_iter(&text[from..self.read.end]).map(|part| from + part.start());
        self.part = parts.max().max(self.part);
        self.part.is_some_and(|part| part + ADDRESS_BYTES_MAX >= at)
    }
}

/// Whether an address may hold a byte. `\u0026` divides parts, too.
fn is_of_address(byte: &&u8) -> bool {
    byte.is_ascii_graphic() && !b"\"'<>`{}|".contains(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_part_is_known() {
        assert!(SIGNED_PARTS.iter().all(|part| part.len() <= PART_BYTES_MAX));
    }

    #[test]
    fn parts_count_wherever_they_stand_in_the_address() {
        // The last name is the one that is asked about.
        let check = |text: &str, expect: bool| {
            let mut address = Address::default();
            let names = memchr::memmem::find_iter(text.as_bytes(), "sig=");
            let signed: Vec<bool> = names.map(|at| address.is_signed(text.as_bytes(), at)).collect();
            assert_eq!(signed.last(), Some(&expect), "{} {}", text.len(), &text[..text.len().min(60)]);
        };
        let far = "x".repeat(ADDRESS_BYTES_MAX - 4);
        check("h?sv=1&sig=", true);
        check("h?sig=1&SE=2", true);
        check("h?sig=1 &se=2", false);
        check("h?sv=1 sig=", false);
        check("h?sv=1 sig= ?sig=&sp=2", true);
        check(&format!("?sv={far}sig="), true);
        check(&format!("?sv=x{far}sig="), false);
        check(&format!("sig={}&se=", &far[4..]), true);
        check(&format!("sig={}&se=", &far[3..]), false);
        // Parts that are read for the first name belong to the next ones, too.
        check(&format!("sig=sig={}&se=", &far[4..]), true);
        check(&format!("sig=sig={}&se=", &far[3..]), false);
        check(&format!("sig={}&sesig=", &far[3..]), false);
        check(&format!("sig={}&se=sig=", &far[4..]), true);
        check(&format!("{far}{far}?sig={far}{far}sig={far}&se=&sig="), true);
    }

    /// What is read for a name was not read for one before it, but for the length of a part, or stands behind it.
    #[test]
    fn address_is_read_once() {
        const NAMES: usize = 10_000;
        let text = "sig=".repeat(NAMES).into_bytes();
        let (mut address, mut read_bytes) = (Address::default(), 0);
        for at in (0..text.len()).step_by(4) {
            let before = address.read.end;
            assert!(!address.is_signed(&text, at));
            assert_eq!(address.read.start, 0);
            read_bytes += address.read.end - before;
        }
        assert_eq!(read_bytes, text.len());
    }
}
