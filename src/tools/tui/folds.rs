//! The entries of the window that are shown, and the lines that stand for threads that are folded away.
//!
//! Pure. A thread that no person speaks in has one line in the window, where its first entry is; [`super::browse`] opens it.

use std::collections::HashMap;

use super::model::Session;
use crate::protocol::{Showing, ThreadKind};
use crate::sessions::entry::{Entry, Folding, Key, Matcher};
use crate::sessions::news::Link;

/// What the timeline shows now.
#[derive(Debug)]
pub(super) struct Sieve<'a> {
    matcher: Matcher,
    /// By thread.
    lines: HashMap<&'a str, FoldedThread<'a>>,
}

/// A thread that is folded away.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoldedThread<'a> {
    /// Its first entry in the window.
    first: &'a Key,
    kind: ThreadKind,
    entries: usize,
}

impl FoldedThread<'_> {
    /// `12 entries of a subagent`.
    pub(super) fn in_words(self) -> String {
        let count = if self.entries == 1 { "1 entry".to_owned() } else { format!("{} entries", self.entries) };
        format!("{count} of {}", self.kind.in_words())
    }
}

impl<'a> Sieve<'a> {
    pub(super) fn of(session: &'a Session) -> Sieve<'a> {
        let matcher = matcher(session);
        let mut lines: HashMap<&str, FoldedThread<'_>> = HashMap::new();
        // A filter looks for entries, and lines are none.
        if session.filter.is_none() && session.folding == Folding::Folded {
            for entry in session.timeline.iter().flat_map(|timeline| timeline.entries()) {
                let Some(thread_id) = entry.thread_id.as_deref() else { continue };
                if entry.thread_kind.showing() != Showing::Line || !belongs(session, thread_id) {
                    continue;
                }
                let line = FoldedThread { first: &entry.key, kind: entry.thread_kind, entries: 0 };
                lines.entry(thread_id).or_insert(line).entries += 1;
            }
        }
        Sieve { matcher, lines }
    }

    /// Whether an entry, or the line in its place, is shown.
    pub(super) fn shows(&self, entry: &Entry) -> bool {
        self.matcher.takes(entry) || self.line(entry).is_some()
    }

    /// The line that is shown instead of an entry.
    pub(super) fn line(&self, entry: &Entry) -> Option<FoldedThread<'a>> {
        let line = self.lines.get(entry.thread_id.as_deref()?)?;
        (*line.first == entry.key).then_some(*line)
    }
}

/// A matcher for the visible entries.
pub(super) fn matcher(session: &Session) -> Matcher {
    let thread_id = session.thread.clone();
    Matcher { kind: session.filter, thread_id, folding: session.folding, ..Matcher::default() }
}

/// Whether a thread of no person belongs to what is shown: to any thread, or to the chosen one.
fn belongs(session: &Session, thread_id: &str) -> bool {
    let Some(chosen) = &session.thread else { return true };
    let Link::Up(live) = &session.link else { return false };
    let mut threads = live.document.threads.iter();
    chosen != thread_id
        && threads.any(|thread| thread.thread_id == thread_id && thread.identity.parent.as_ref() == Some(chosen))
}
