//! The order in which requests have arrived, also if the wall clock was set meanwhile.
//!
//! A session lists its requests in the order of their arrival, and that order is kept. Sessions have no counter in common, so
//! requests of several sessions are ordered by time. A request counts as no newer than any that arrived after it in its
//! session: if the clock was set back, the earlier requests have times that lie in the future.

use std::collections::HashMap;
use std::hash::Hash;

/// Puts the requests of several sessions in order, oldest first. Those of one session are in the order of their arrival.
pub fn sort_by_arrival<T, S: Eq + Hash, A: Ord + Clone>(
    rows: &mut Vec<T>,
    session: impl Fn(&T) -> S,
    at: impl Fn(&T) -> A,
) {
    let mut earliest: HashMap<S, A> = HashMap::new();
    let mut keyed: Vec<(A, T)> = Vec::with_capacity(rows.len());
    for row in rows.drain(..).rev() {
        let (session, mut at) = (session(&row), at(&row));
        if let Some(later) = earliest.get(&session).filter(|later| **later < at) {
            at = later.clone();
        }
        earliest.insert(session, at.clone());
        keyed.push((at, row));
    }
    keyed.reverse();
    // The sort is stable.
    keyed.sort_by(|(one, _), (other, _)| one.cmp(other));
    rows.extend(keyed.into_iter().map(|(_, row)| row));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &[(char, u32)], expect: &[(char, u32)]) {
        let mut rows = given.to_vec();
        sort_by_arrival(&mut rows, |(session, _)| *session, |(_, at)| *at);
        assert_eq!(rows, expect);
    }

    #[test]
    fn sessions_are_merged_by_time() {
        check(&[('a', 1), ('a', 4), ('b', 2), ('b', 3)], &[('a', 1), ('b', 2), ('b', 3), ('a', 4)]);
    }

    #[test]
    fn clock_set_back_does_not_reorder_a_session() {
        check(&[('a', 120), ('a', 5)], &[('a', 120), ('a', 5)]);
        check(&[('a', 120), ('a', 5), ('b', 3), ('b', 6)], &[('b', 3), ('a', 120), ('a', 5), ('b', 6)]);
        check(&[('a', 3), ('a', 120), ('a', 5), ('b', 4)], &[('a', 3), ('b', 4), ('a', 120), ('a', 5)]);
    }
}
