//! A set of recently seen things, stored as digests that do not reveal them.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use sha1::{Digest as _, Sha1};

/// The most recently seen things.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Recent(VecDeque<u64>);

/// Whether something is new, as far as remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Met {
    First,
    Again,
}

impl Recent {
    /// Capacity; a state has several of these sets and is stored often.
    const MAX: usize = 128;

    /// Remembers something, identified by its parts.
    pub(super) fn meet(&mut self, parts: &[&str]) -> Met {
        if self.knows(parts) {
            return Met::Again;
        }
        if self.0.len() == Self::MAX {
            self.0.pop_front();
        }
        self.0.push_back(digest(parts));
        Met::First
    }

    /// Whether something is remembered.
    pub(super) fn knows(&self, parts: &[&str]) -> bool {
        self.0.contains(&digest(parts))
    }
}

/// Stable across versions, because it is stored.
fn digest(parts: &[&str]) -> u64 {
    let mut sha1 = Sha1::new();
    for part in parts {
        sha1.update((part.len() as u64).to_le_bytes());
        sha1.update(part.as_bytes());
    }
    sha1.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recently_seen_things_are_recognized() {
        let mut recent = Recent::default();
        assert_eq!((recent.meet(&["a", "b"]), recent.meet(&["a", "b"])), (Met::First, Met::Again));
        assert_eq!((recent.meet(&["ab", ""]), recent.meet(&["", "ab"])), (Met::First, Met::First));
        assert!(recent.knows(&["a", "b"]) && !recent.knows(&["a"]));
        (0..Recent::MAX - 3).for_each(|number| assert_eq!(recent.meet(&[&number.to_string()]), Met::First));
        assert!(recent.knows(&["a", "b"]) && recent.0.len() == Recent::MAX);
        recent.meet(&["one more"]);
        assert!(!recent.knows(&["a", "b"]) && recent.0.len() == Recent::MAX);
    }

    #[test]
    fn a_digest_is_the_same_in_every_version() {
        assert_eq!(digest(&["thread", "turn"]), 0x88eaa89c495a291a);
    }
}
