//! The diffs of a turn: what identifies one, and which one it replaces.

use serde::{Deserialize, Serialize};
use sha1::{Digest as _, Sha1};

use super::bounded::Weigh;
use crate::protocol::change::{self, Form, LineKind};

/// Hex digits of a digest in the id of a diff. Source: the contract of the history.
const DIGITS: usize = 12;

/// Diffs remembered per turn; the oldest is evicted first.
const DIFFS_MAX: usize = 64;

/// The diffs of the latest turn of a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Diffs {
    turn_id: String,
    /// Digests; the last one is current.
    digests: Vec<String>,
}

/// A snapshot of a turn's diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) diff_id: String,
    /// The previous diff.
    pub(super) supersedes: Option<String>,
    /// Whether the turn has had this diff before.
    pub(super) came: Came,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    /// New in this turn.
    First,
    /// Again: later changes were undone.
    Back,
}

impl Weigh for Diffs {
    fn weight(&self) -> usize {
        self.turn_id.weight() + self.digests.len() * (size_of::<String>() + DIGITS)
    }
}

impl Diffs {
    /// Processes the diff of a turn; returns `None` if it is unchanged.
    pub(super) fn take(&mut self, thread_id: &str, turn_id: &str, diff: &str) -> Option<Snapshot> {
        if self.turn_id != turn_id {
            *self = Diffs { turn_id: turn_id.to_owned(), digests: Vec::new() };
        }
        let Diffs { turn_id, digests } = self;
        let digest = digest(diff);
        // An empty diff matters only after a non-empty one.
        if digests.last() == Some(&digest) || (digests.is_empty() && diff.trim().is_empty()) {
            return None;
        }
        let id = |digest: &String| format!("{thread_id}:{turn_id}:{digest}");
        let supersedes = digests.last().map(id);
        let before = digests.len();
        digests.retain(|known| *known != digest);
        let came = if digests.len() < before { Came::Back } else { Came::First };
        let diff_id = id(&digest);
        digests.push(digest);
        if digests.len() > DIFFS_MAX {
            digests.remove(0);
        }
        Some(Snapshot { diff_id, supersedes, came })
    }
}

/// The id of a diff's content. Source: session-manager's `diff signature`, the SHA-1 of the lines that name files, the
/// hunk headers, and the trimmed text.
pub(super) fn digest(diff: &str) -> String {
    let text = diff.trim();
    if text.is_empty() {
        return "empty".to_owned();
    }
    let (mut heads, mut hunks) = (Vec::new(), Vec::new());
    for line in change::lines(Form::Turn, text) {
        let words = text[line.range].trim_end();
        match line.kind {
            LineKind::File | LineKind::Header if words.starts_with("+++ ") || words.starts_with("--- ") => {
                heads.push(words);
            }
            LineKind::Hunk => hunks.push(words),
            LineKind::File | LineKind::Header | LineKind::Context | LineKind::Added | LineKind::Removed => {}
            LineKind::Remark | LineKind::Outside => {}
        }
    }
    heads.append(&mut hunks);
    let digest = Sha1::digest(format!("{}\n{text}", heads.join("\n")));
    digest.iter().flat_map(|byte| [byte >> 4, byte & 15]).take(DIGITS).map(hex_digit).collect()
}

fn hex_digit(value: u8) -> char {
    char::from_digit(u32::from(value), 16).expect("BUG: four bits are below 16")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_match_session_manager() {
        let check = |diff: &str, expect: &str| assert_eq!(digest(diff), expect);
        check("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", "d5b3fc2aea55");
        check("\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b", "d5b3fc2aea55");
        // A removed line can look like the name of a file.
        check("--- a/x\n+++ b/x\n@@ -1 +1 @@\n--- a\n+++ b\n", "ca22b48ba327");
        check("  x ", "286a84ee950a");
        check(" \n", "empty");
    }

    /// `expect` has one word per snapshot: its id, then `<` and the id it supersedes; `-` if it is dropped.
    fn check(diffs: &[(&str, &str)], expect: &str) {
        let mut state = Diffs::default();
        let name = |id: &str| {
            let known = diffs.iter().find(|(turn, diff)| id == format!("t:{turn}:{}", digest(diff)));
            known.map_or(id.to_owned(), |(turn, diff)| format!("{turn}{diff}"))
        };
        let actual: Vec<String> = diffs
            .iter()
            .map(|(turn, diff)| match state.take("t", turn, diff) {
                None => "-".to_owned(),
                Some(Snapshot { diff_id, supersedes, came }) => {
                    let before = supersedes.map(|id| format!("<{}", name(&id))).unwrap_or_default();
                    let back = if came == Came::Back { "!" } else { "" };
                    format!("{}{before}{back}", name(&diff_id))
                }
            })
            .collect();
        assert_eq!(actual.join(" "), expect);
    }

    #[test]
    fn identical_diff_is_dropped() {
        check(&[("u", "A"), ("u", "A"), ("u", "B"), ("u", "B")], "uA - uB<uA -");
        check(&[("u", "A"), ("v", "A"), ("v", "B")], "uA vA vB<vA");
        check(&[("u", "A"), ("u", "B"), ("u", "A"), ("u", "C")], "uA uB<uA uA<uB! uC<uA");
        check(&[("u", ""), ("u", "A"), ("u", "")], "- uA u<uA");
    }

    #[test]
    fn remembered_diffs_are_bounded() {
        let mut state = Diffs::default();
        (0..200).for_each(|number| drop(state.take("t", "u", &number.to_string())));
        assert_eq!(state.digests.len(), DIFFS_MAX);
        assert_eq!(state.take("t", "u", "0").map(|snapshot| snapshot.came), Some(Came::First));
        assert_eq!(state.take("t", "u", "199").map(|snapshot| snapshot.came), Some(Came::Back));
    }
}
