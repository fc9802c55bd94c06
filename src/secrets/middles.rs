//! Keys that are known by a mark in their middle or at their end, or by the places of their dots.
//!
//! Around each mark and each dot a bounded number of bytes is read.

use std::ops::Range;

use super::keys::{begins_word, is_of};
use super::table::Tail;

/// A mark that stands in the middle or at the end of all keys of a kind.
pub(super) struct Middle {
    pub(super) mark: &'static str,
    around: Around,
}

/// The rest of a key around its mark.
enum Around {
    Runs { front: Run, rest: Run },
    By(fn(&[u8], Range<usize>) -> Option<Range<usize>>),
}

/// Bytes of one sort.
struct Run {
    of: Tail,
    bytes_min: usize,
    bytes_max: usize,
    /// If there are more, they are not part of the key. Else a longer run is not one.
    may_go_on: bool,
}

impl Run {
    const fn exact(of: Tail, bytes: usize) -> Run {
        Run::within(of, bytes, bytes)
    }

    const fn within(of: Tail, bytes_min: usize, bytes_max: usize) -> Run {
        Run { of, bytes_min, bytes_max, may_go_on: false }
    }

    /// So many bytes, whatever stands on their other side.
    const fn next(of: Tail, bytes: usize) -> Run {
        Run { of, bytes_min: bytes, bytes_max: bytes, may_go_on: true }
    }

    /// Any number of bytes, of which at most 256 are read.
    const fn from(of: Tail, bytes_min: usize) -> Run {
        Run { of, bytes_min, bytes_max: 256, may_go_on: true }
    }

    /// Returns the length of this run at the beginning of some bytes.
    fn bytes<'a>(&self, bytes: impl Iterator<Item = &'a u8>) -> Option<usize> {
        let bytes = bytes.take(self.bytes_max + 1).take_while(|byte| is_of(self.of, **byte)).count();
        let fits = bytes >= self.bytes_min && (self.may_go_on || bytes <= self.bytes_max);
        fits.then_some(bytes.min(self.bytes_max))
    }
}

impl Middle {
    const fn runs(mark: &'static str, front: Run, rest: Run) -> Middle {
        Middle { mark, around: Around::Runs { front, rest } }
    }

    const fn by(mark: &'static str, key: fn(&[u8], Range<usize>) -> Option<Range<usize>>) -> Middle {
        Middle { mark, around: Around::By(key) }
    }

    /// The key around the mark at a place.
    pub(super) fn key(&self, text: &[u8], mark: Range<usize>) -> Option<Range<usize>> {
        match &self.around {
            Around::Runs { front, rest } => {
                let front = front.bytes(text[..mark.start].iter().rev())?;
                let rest = rest.bytes(text[mark.end..].iter())?;
                Some(mark.start - front..mark.end + rest)
            }
            Around::By(key) => key(text, mark),
        }
    }
}

const fn of_mailchimp(mark: &'static str) -> Middle {
    Middle::runs(mark, Run::exact(Tail::Hex, 32), Run::within(Tail::Digit, 0, 1))
}

/// A key of Azure: its mark has an exact place, and `=` may follow.
const fn of_azure(mark: &'static str, front_bytes: usize, rest_bytes: usize) -> Middle {
    Middle::runs(mark, Run::exact(Tail::Signs, front_bytes), Run::exact(Tail::Signs, rest_bytes))
}

pub(super) const MIDDLES: [Middle; 35] = [
    // A bot of Telegram: `123456789:AA…`
    Middle::runs(":AA", Run::within(Tail::Digit, 6, 12), Run::from(Tail::Dashed, 31)),
    of_mailchimp("-us0"),
    of_mailchimp("-us1"),
    of_mailchimp("-us2"),
    of_mailchimp("-us3"),
    of_mailchimp("-us4"),
    of_mailchimp("-us5"),
    of_mailchimp("-us6"),
    of_mailchimp("-us7"),
    of_mailchimp("-us8"),
    of_mailchimp("-us9"),
    // HCP Terraform
    Middle::runs(".atlasv1.", Run::next(Tail::Alnum, 14), Run::from(Tail::Base64, 32)),
    // Azure: services with keys of 64, 32 and 39 bytes, and those with keys of the common form.
    of_azure("+ASt", 76, 6),
    of_azure("+ABa", 76, 6),
    of_azure("+AMC", 76, 6),
    of_azure("APIM", 76, 6),
    of_azure("ACDb", 76, 6),
    of_azure("+ASb", 33, 6),
    of_azure("+AEh", 33, 6),
    of_azure("+ARm", 33, 6),
    of_azure("AIoT", 33, 6),
    of_azure("AzCa", 33, 6),
    of_azure("AZEG", 33, 6),
    of_azure("+ACR", 42, 6),
    of_azure("AzSe", 42, 6),
    Middle::runs("AzFu", Run::exact(Tail::Dashed, 44), Run::exact(Tail::Dashed, 6)),
    Middle::runs("JQQJ99", Run::exact(Tail::Alnum, 52), Run::within(Tail::Alnum, 26, 28)),
    Middle::runs("JQQJ9D", Run::exact(Tail::Alnum, 52), Run::within(Tail::Alnum, 26, 28)),
    Middle::runs("JQQJ9H", Run::exact(Tail::Alnum, 52), Run::within(Tail::Alnum, 26, 28)),
    // Entra: `xxx8Q~…`
    Middle::by("Q~", of_entra),
    // MaxMind: `xxxxxx_…_mmk`
    Middle::by("_mmk", of_maxmind),
    // New Relic: `…FFFFNRAL`
    Middle::by("NRAL", of_new_relic),
    // Weaviate
    Middle::runs("PV92MjAw", Run::exact(Tail::Alnum, 80), Run::exact(Tail::Alnum, 0)),
    // Messages of Firebase: `xxxxxxxxxxx:APA91b…`
    Middle::runs(":APA91b", Run::next(Tail::Dashed, 11), Run::from(Tail::Dashed, 100)),
    // Authress: `sc_xxxxx.xxxx.acc_xxxxxxxxxx.…`
    Middle::by(".acc_", of_authress),
];

fn of_entra(text: &[u8], mark: Range<usize>) -> Option<Range<usize>> {
    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"_~.-".contains(byte);
    let from = mark.start.checked_sub(4).filter(|_| text[mark.start - 1].is_ascii_digit())?;
    let rest = text[mark.end..].iter().take(40).take_while(is_part).count();
    let fits = text[from..mark.start].iter().all(|byte| is_part(&byte)) && (31..=36).contains(&rest);
    fits.then(|| from..mark.end + rest)
}

fn of_maxmind(text: &[u8], mark: Range<usize>) -> Option<Range<usize>> {
    let from = mark.start.checked_sub(36)?;
    let has = |part: Range<usize>| text[part].iter().all(u8::is_ascii_alphanumeric);
    let fits = has(from..from + 6) && text[from + 6] == b'_' && has(from + 7..mark.start);
    fits.then_some(from..mark.end)
}

fn of_new_relic(text: &[u8], mark: Range<usize>) -> Option<Range<usize>> {
    let from = mark.start.checked_sub(36)?;
    let (front, letters) = text[from..mark.start].split_at(32);
    let fits = front.iter().all(u8::is_ascii_alphanumeric) && letters.iter().all(|byte| (b'A'..=b'F').contains(byte));
    fits.then_some(from..mark.end)
}

fn of_authress(text: &[u8], mark: Range<usize>) -> Option<Range<usize>> {
    let front = text[..mark.start].iter().rev().take(64).take_while(|byte| is_of(Tail::Dotted, **byte)).count();
    let from = mark.start - front;
    let name = &text[from..mark.start];
    let is_start = ["sc_", "ext_", "scauth_", "authress_"].iter().any(|start| name.starts_with(start.as_bytes()));
    let rest = text[mark.end..].iter().take(256).take_while(|byte| is_of(Tail::Base64, **byte) || **byte == b'.');
    let rest = rest.count();
    (is_start && rest >= 40).then_some(from..mark.end + rest)
}

/// Whether a text holds a dot as a key has it that is known by its dots.
pub(super) fn may_hold_dotted(text: &[u8]) -> bool {
    let is_held = |at| text.get(at + 7) == Some(&b'.') || (begins_dotted(text, at) && of_parts(text, at).is_some());
    memchr::memchr_iter(b'.', text).any(is_held)
}

/// Whether a dot is the first one of a key of Harness, Zoho or Airtable.
fn begins_dotted(text: &[u8], at: usize) -> bool {
    let is_dot = |bytes: usize| text.get(at + bytes) == Some(&b'.');
    let behind = |bytes: usize| at.checked_sub(bytes).map_or(&text[..0], |from| &text[from..at]);
    (is_dot(23) && matches!(behind(3), b"pat" | b"sat"))
        || (is_dot(33) && behind(4) == b"1000")
        || behind(17).starts_with(b"pat")
}

/// Adds where keys stand that are known by the places of their dots.
pub(super) fn find_dotted(text: &[u8], spans: &mut Vec<Range<usize>>) {
    for at in memchr::memchr_iter(b'.', text) {
        if text.get(at + 7) == Some(&b'.') {
            spans.extend(of_discord(text, at));
        }
        if begins_dotted(text, at) {
            spans.extend(of_parts(text, at));
        }
    }
}

/// A bot of Discord: `M….xxxxxx.…`
fn of_discord(text: &[u8], at: usize) -> Option<Range<usize>> {
    let is_dashed = |byte: &&u8| is_of(Tail::Dashed, **byte);
    if !text[at + 1..at + 7].iter().all(|byte| is_dashed(&byte)) {
        return None;
    }
    let front = text[..at].iter().rev().take(41).take_while(is_dashed).count();
    let rest = text[at + 8..].iter().take(256).take_while(is_dashed).count();
    let first = text[at - front..at].iter().position(|byte| matches!(byte, b'M' | b'N' | b'O'))?;
    (front - first >= 23 && rest >= 27).then(|| at - front + first..at + 8 + rest)
}

/// Harness: `pat.….….…`; Zoho: `1000.….…`; Airtable: `pat….…`.
fn of_parts(text: &[u8], at: usize) -> Option<Range<usize>> {
    const KINDS: [(usize, &[(Tail, usize)]); 3] = [
        (3, &[(Tail::Dashed, 22), (Tail::Alnum, 24), (Tail::Dashed, 20)]),
        (4, &[(Tail::Hex, 32), (Tail::Hex, 32)]),
        (17, &[(Tail::Hex, 64)]),
    ];
    KINDS.into_iter().find_map(|(front, parts)| {
        let from = at.checked_sub(front)?;
        let is_word = begins_word(text, from) && text[from..at].iter().all(u8::is_ascii_alphanumeric);
        let starts = match front {
            3 => matches!(&text[from..at], b"pat" | b"sat"),
            4 => &text[from..at] == b"1000",
            _ => text[from..].starts_with(b"pat"),
        };
        let mut end = at;
        for (of, bytes) in parts {
            let rest = text[end..].strip_prefix(b".")?;
            let run = rest.iter().take(bytes + 1).take_while(|byte| is_of(*of, **byte)).count();
            end += 1 + Some(run).filter(|run| run == bytes)?;
        }
        (is_word && starts).then_some(from..end)
    })
}
