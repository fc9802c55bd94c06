//! Threads in lists and messages of the tools: the id, where the thread works and whose it is, its title, and when it was used last.

use std::path::Path;
use std::time::SystemTime;

use super::screen;
use crate::api::{Identities, ThreadIdentityDocument};
use crate::control::recorded_threads;

/// Most threads that a message lists.
const LISTED_MAX: usize = 8;

/// A thread in words: `proj (codex-tui, pts/3): "Fix the build", 5m ago`; `None` if nothing is known of it.
pub(super) fn in_words(thread: &ThreadIdentityDocument) -> Option<String> {
    let words = screen::plain(&thread.in_words()?);
    Some(with_age(&words, thread.last_used_at.as_deref()))
}

/// `words`, and how long ago `at` was.
pub(super) fn with_age(words: &str, at: Option<&str>) -> String {
    let at = at.and_then(|at| humantime::parse_rfc3339(at).ok());
    let ago = at.map(|at| screen::age(at, SystemTime::now()));
    format!("{words}{}", ago.map(|ago| format!(", {ago} ago")).unwrap_or_default())
}

/// A line for each of the first threads, with a number for the others.
pub(super) fn lines(rows: &[String]) -> String {
    let first = rows.iter().take(LISTED_MAX).map(|row| format!("\n  {row}")).collect::<String>();
    match rows.len().saturating_sub(LISTED_MAX) {
        0 => first,
        more => format!("{first}\n  and {more} more"),
    }
}

/// The same in one line.
pub(super) fn in_line(rows: &[String]) -> String {
    let first = rows.iter().take(LISTED_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
    match rows.len().saturating_sub(LISTED_MAX) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// A row for each thread of the sessions in these folders. Rows that messages leave out have only the id.
pub(super) fn rows(ids: Vec<String>, session_dirs: &[&Path]) -> Vec<String> {
    let mut first: Vec<String> = ids.iter().take(LISTED_MAX).cloned().collect();
    first.sort_unstable();
    let mut known = Identities::new();
    session_dirs.iter().for_each(|dir| known.extend(recorded_threads(dir, &first)));
    let row = |id: String| match known.get(&id).and_then(in_words) {
        Some(words) => format!("{id}  {words}"),
        None => id,
    };
    ids.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_list_the_first_threads() {
        let ids: Vec<String> = (0..10).map(|number| format!("t{number}")).collect();
        let rows = rows(ids, &[]);
        let line = in_line(&rows);
        assert!(line.starts_with("t0; t1; ") && line.ends_with("t7 and 2 more"), "{line}");
        let listed = lines(&rows);
        assert!(listed.starts_with("\n  t0\n  t1\n") && listed.ends_with("\n  t7\n  and 2 more"), "{listed}");
        assert_eq!(lines(&[]), "");
    }
}
