//! Compares a text of a tape, which contains the placeholders of export, with a client's text.
//!
//! A placeholder matches a text of its kind (a home folder, a temporary folder, an id, a time, a port, a host's name, a
//! secret); everything else must be equal. Pure.

use std::sync::LazyLock;

use regex::Regex;

use super::anonymizer::{PATHS, pattern};
use super::mapping::{ID_LENGTH, Mapping, Values, is_id};

/// Limit of a text that a placeholder matches, in bytes. Source: `PATH_MAX` of Linux.
const REPLACED_BYTES_MAX: usize = 4096;

/// Limit of attempts, per text, to find the end of a replaced text.
const ATTEMPTS_MAX: usize = 4096;

/// Limit of replaced texts of unknown length that are open at once, per text.
const DEPTH_MAX: usize = 32;

static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| {
    let paths = PATHS.map(regex::escape).join("|");
    pattern(&format!(
        r"(?<path>{paths})|(?<temporary>/tmp/tape-\d+)|(?<id>[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}})|(?<time>\d{{4}}-\d\d-\d\dT\d\d[:-]\d\d[:-]\d\d)|(?<day>/\d{{4}}/\d\d/\d\d\b)|(?<port>(?:127\.0\.0\.1|localhost):8080\b)|(?<host>\bhost\b)|(?<mask>\[redacted\]\**)"
    ))
});
static TIME: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\d{4}-\d\d-\d\dT\d\d[:-]\d\d[:-]\d\d"));
static DAY: LazyLock<Regex> = LazyLock::new(|| pattern(r"^/\d{4}/\d\d/\d\d\b"));
static PORT: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(127\.0\.0\.1|localhost):\d{2,5}\b"));
static HOME_OF_SOMEONE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^/(?:home|Users)/\w(?:[\w.-]*\w)?"));

/// Kind of text that a placeholder replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Path,
    Temporary,
    Id,
    Time,
    Day,
    Port,
    Host,
    Mask,
}

impl Kind {
    const ALL: [(Kind, &'static str); 8] = [
        (Kind::Path, "path"),
        (Kind::Temporary, "temporary"),
        (Kind::Id, "id"),
        (Kind::Time, "time"),
        (Kind::Day, "day"),
        (Kind::Port, "port"),
        (Kind::Host, "host"),
        (Kind::Mask, "mask"),
    ];

    /// Adds `sent` for this placeholder; returns whether it agrees with the other pairs.
    fn hold(self, mapping: &mut Mapping, on_tape: &str, sent: &str) -> bool {
        match self {
            Kind::Path | Kind::Temporary => mapping.hold_path(on_tape, sent),
            Kind::Host => mapping.hold_host(on_tape, sent),
            Kind::Mask | Kind::Id | Kind::Time | Kind::Day | Kind::Port => true,
        }
    }

    /// Whether the placeholder may stand for `text`.
    fn fits(self, text: &str) -> bool {
        let is_path = || text.len() > 1 && text.starts_with('/') && !text.ends_with('/') && !text.contains(['\n', '"']);
        match self {
            Kind::Path | Kind::Temporary => is_path(),
            // A plain word could be any other word.
            Kind::Host => {
                text.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '-' | '.' | '_'))
                    && text.contains(|char: char| char.is_ascii_digit() || matches!(char, '-' | '.'))
            }
            Kind::Mask => !text.is_empty(),
            Kind::Id | Kind::Time | Kind::Day | Kind::Port => false,
        }
    }
}

/// A placeholder in a text of a tape.
#[derive(Debug, Clone, Copy)]
struct Found {
    kind: Kind,
    start: usize,
    end: usize,
}

impl Mapping {
    /// Whether `sent` is `on_tape` with other texts in place of its placeholders. If so, stores those as pairs.
    pub(super) fn holds_placeholders(&mut self, on_tape: &str, sent: &str, values: Values) -> bool {
        let found: Vec<Found> = PLACEHOLDER
            .captures_iter(on_tape)
            .filter_map(|captures| {
                let (kind, found) =
                    Kind::ALL.into_iter().find_map(|(kind, name)| Some((kind, captures.name(name)?)))?;
                Some(Found { kind, start: found.start(), end: found.end() })
            })
            .filter(|found| found.kind != Kind::Mask || values == Values::MaybeMasked)
            .collect();
        if found.is_empty() {
            return on_tape == sent;
        }
        let mut matching = Matching { on_tape, sent, found: &found, attempts: 0 };
        let Some(learned) = matching.rest(self.clone(), 0, 0, 0, DEPTH_MAX) else { return false };
        *self = learned;
        self.hold_text(on_tape, sent);
        true
    }
}

struct Matching<'a> {
    on_tape: &'a str,
    sent: &'a str,
    found: &'a [Found],
    attempts: usize,
}

impl Matching<'_> {
    /// Matches the rest: the tape's text from `at`, the client's from `to`, with the placeholders from `next` on.
    fn rest(
        &mut self,
        mut mapping: Mapping,
        mut next: usize,
        mut at: usize,
        mut to: usize,
        depth: usize,
    ) -> Option<Mapping> {
        loop {
            let Some(found) = self.found.get(next).copied() else {
                return (self.on_tape.get(at..)? == self.sent.get(to..)?).then_some(mapping);
            };
            let literal = self.on_tape.get(at..found.start)?;
            to += self.sent.get(to..)?.strip_prefix(literal).map(|_| literal.len())?;
            at = found.start;
            next += 1;
            let rest = &self.sent[to..];
            match self.fixed(&mut mapping, found, rest) {
                Fixed::Taken { on_tape, sent } => (at, to) = (at + on_tape, to + sent),
                Fixed::Differs => return None,
                Fixed::Open => return self.open(&mapping, found, next, to, depth.checked_sub(1)?),
            }
        }
    }

    /// Matches a placeholder for a text of known length.
    fn fixed(&self, mapping: &mut Mapping, found: Found, rest: &str) -> Fixed {
        let text = &self.on_tape[found.start..found.end];
        let shape = |shape: &Regex| match shape.find(rest) {
            Some(sent) => Fixed::Taken { on_tape: text.len(), sent: sent.len() },
            None => Fixed::Differs,
        };
        match found.kind {
            Kind::Id => match rest.get(..ID_LENGTH).filter(|id| is_id(id)) {
                Some(id) if mapping.hold_id(text, id) => Fixed::Taken { on_tape: text.len(), sent: id.len() },
                Some(_) | None => Fixed::Differs,
            },
            Kind::Time => shape(&TIME),
            Kind::Day => shape(&DAY),
            Kind::Port => match shape(&PORT) {
                taken @ Fixed::Taken { .. } if rest.split(':').next() == text.split(':').next() => taken,
                Fixed::Taken { .. } | Fixed::Differs | Fixed::Open => Fixed::Differs,
            },
            Kind::Path => {
                for path in self.paths(found) {
                    if let Some(known) = mapping.path(path)
                        && rest.starts_with(known)
                    {
                        return Fixed::Taken { on_tape: path.len(), sent: known.len() };
                    }
                }
                if rest.starts_with(text) {
                    return Fixed::Taken { on_tape: text.len(), sent: text.len() };
                }
                // Export gives all users' homes the same placeholder.
                match HOME_OF_SOMEONE.find(rest) {
                    Some(home) if mapping.path(HOME).is_some() => {
                        Fixed::Taken { on_tape: HOME.len(), sent: home.len() }
                    }
                    Some(_) | None => Fixed::Open,
                }
            }
            Kind::Temporary => match mapping.path(text).filter(|known| rest.starts_with(known)) {
                Some(known) => Fixed::Taken { on_tape: text.len(), sent: known.len() },
                None => Fixed::Open,
            },
            Kind::Host | Kind::Mask if rest.starts_with(text) => Fixed::Taken { on_tape: text.len(), sent: text.len() },
            Kind::Host | Kind::Mask => Fixed::Open,
        }
    }

    /// Matches a placeholder for a text of unknown length: tries each end after which the client's text continues like
    /// the tape's.
    fn open(&mut self, mapping: &Mapping, found: Found, next: usize, to: usize, depth: usize) -> Option<Mapping> {
        let begun = match found.kind {
            Kind::Path => self.paths(found).collect(),
            Kind::Temporary | Kind::Id | Kind::Time | Kind::Day | Kind::Port | Kind::Host | Kind::Mask => {
                vec![&self.on_tape[found.start..found.end]]
            }
        };
        for text in begun {
            let at = found.start + text.len();
            let goes_on =
                &self.on_tape[at..self.found.get(next).map_or(self.on_tape.len(), |later| later.start.max(at))];
            let is_last = self.found.get(next).is_none();
            let rest = &self.sent[to..];
            let ends: Vec<usize> = match goes_on {
                "" if is_last => vec![rest.len()],
                "" => rest.char_indices().map(|(end, _)| end).take_while(|end| *end <= REPLACED_BYTES_MAX).collect(),
                _ if is_last => rest.strip_suffix(goes_on).map(str::len).into_iter().collect(),
                _ => {
                    let ends = rest.match_indices(goes_on).map(|(end, _)| end);
                    ends.take_while(|end| *end <= REPLACED_BYTES_MAX).collect()
                }
            };
            for end in ends {
                self.attempts += 1;
                if self.attempts > ATTEMPTS_MAX {
                    return None;
                }
                let stands_for = &rest[..end];
                let mut mapping = mapping.clone();
                if !found.kind.fits(stands_for) || !found.kind.hold(&mut mapping, text, stands_for) {
                    continue;
                }
                if let Some(learned) = self.rest(mapping, next, at, to + end, depth) {
                    return Some(learned);
                }
            }
        }
        None
    }

    /// The paths that a placeholder may be, longest first: another user's folder may begin with the name of one.
    fn paths(&self, found: Found) -> impl Iterator<Item = &'static str> {
        let text = self.on_tape[found.start..found.end].to_owned();
        PATHS.into_iter().filter(move |path| text.starts_with(path))
    }
}

/// The result of matching a placeholder of known length.
enum Fixed {
    /// A match, with lengths in bytes.
    Taken {
        on_tape: usize,
        sent: usize,
    },
    Differs,
    /// The length is unknown.
    Open,
}

/// The placeholder of a user's home.
const HOME: &str = super::anonymizer::HOME;

#[cfg(test)]
mod tests {
    use super::*;

    fn same(on_tape: &str, sent: &str) -> bool {
        Mapping::default().holds_placeholders(on_tape, sent, Values::AsSent)
    }

    #[test]
    fn placeholders_stand_for_what_export_replaces() {
        for (on_tape, sent) in [
            ("read /home/user/notes/a.txt now", "read /home/jane/notes/a.txt now"),
            ("read /home/user/notes/a.txt", "read /srv/jane/notes/a.txt"),
            ("in /home/user/project and /home/user/x.", "in /w/über uns and /Users/ann/x."),
            ("/home/user/projects/b", "/home/jane/projects/b"),
            ("diff /home/user/a /home/user/b", "diff /home/ann/a /home/bob/b"),
            ("see file:///home/user/a%20b", "see file:///home/jane/a%20b"),
            ("rm /tmp/tape-1;ls '/tmp/tape-2/c' /tmp/tape-1", "rm /tmp/xa;ls '/private/tmp/.yb/c' /tmp/xa"),
            (
                "get http://127.0.0.1:8080/v1 since 2026-01-01T00:00:05",
                "get http://127.0.0.1:40123/v1 since 2026-11-21T22:46:44",
            ),
            ("ssh host.local uptime", "ssh build-7.local uptime"),
            ("id 00000000-0000-7000-8000-000000000001!", "id 01a2004a-5c25-7460-9c08-e1221ad2ce90!"),
            ("/home/user/.codex/sessions/2026/01/01/x", "/home/jane/.codex/sessions/2026/11/21/x"),
        ] {
            assert!(same(on_tape, sent), "{on_tape} | {sent}");
        }
    }

    #[test]
    fn other_words_around_placeholders_are_differences() {
        for (on_tape, sent) in [
            ("read /home/user/a.txt", "read /home/jane/b.txt"),
            ("read /etc/hosts", "read /etc/passwd"),
            ("ask the host", "ask the server"),
            ("rm /tmp/tape-1 /tmp/tape-1", "rm /tmp/a /tmp/b"),
            ("rm /tmp/tape-1 /tmp/tape-2", "rm /tmp/a /tmp/a"),
            ("read ../x", "read ../y"),
            ("see http://127.0.0.1:8080", "see http://localhost:8081"),
            ("key [redacted]", "key abc"),
        ] {
            assert!(!same(on_tape, sent), "{on_tape} | {sent}");
        }
    }

    #[test]
    fn mask_in_masked_record_stands_for_secret() {
        let same = |on_tape, sent| Mapping::default().holds_placeholders(on_tape, sent, Values::MaybeMasked);
        assert!(same("use [redacted] or [redacted] here", "use sk-1 or sk-2 here"));
        assert!(same("use [redacted]*** here", "use sk-1234567890 here"));
        assert!(!same("use [redacted] here", "use sk-1 there"));
    }

    #[test]
    fn text_with_many_placeholders_ends_soon() {
        let on_tape = "/home/user ".repeat(2_000) + "a";
        assert!(same(&on_tape, &("/home/jane ".repeat(2_000) + "a")));
        assert!(!same(&on_tape, &("/home/jane ".repeat(2_000) + "b")));
    }
}
