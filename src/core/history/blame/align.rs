//! The lines that two texts have in common, in order.
//!
//! Lines are numbers: equal lines have equal numbers. The aligner pairs equal lines at both ends first, then lines that stand once on
//! either side, and the rest between these by the longest common sequence.

use std::collections::{HashMap, HashSet};

/// Most cells of a table of common sequences. A longer stretch without a line that stands only once stays unpaired.
const CELLS_MAX: usize = 1 << 20;

/// Pairs of places, both ascending.
pub(super) type Pairs = Vec<(usize, usize)>;

/// Pairs the lines of two texts. False if a stretch was too long to be compared.
///
/// `weight` is how much two lines have in common: 0 if nothing, and most for equal ones.
pub(super) fn align(old: &[u32], new: &[u32], weight: &impl Fn(u32, u32) -> u32) -> (Pairs, bool) {
    let mut aligned = Aligned { old, new, weight, pairs: Vec::new(), is_complete: true };
    aligned.stretch((0, old.len()), (0, new.len()));
    (aligned.pairs, aligned.is_complete)
}

struct Aligned<'a, W> {
    old: &'a [u32],
    new: &'a [u32],
    weight: &'a W,
    pairs: Pairs,
    is_complete: bool,
}

impl<W: Fn(u32, u32) -> u32> Aligned<'_, W> {
    /// Pairs the lines of a stretch.
    fn stretch(&mut self, (mut old_from, mut old_to): (usize, usize), (mut new_from, mut new_to): (usize, usize)) {
        while old_from < old_to && new_from < new_to && self.old[old_from] == self.new[new_from] {
            self.pairs.push((old_from, new_from));
            (old_from, new_from) = (old_from + 1, new_from + 1);
        }
        let mut ends = Vec::new();
        while old_from < old_to && new_from < new_to && self.old[old_to - 1] == self.new[new_to - 1] {
            (old_to, new_to) = (old_to - 1, new_to - 1);
            ends.push((old_to, new_to));
        }
        if (old_to - old_from).saturating_mul(new_to - new_from) <= CELLS_MAX {
            self.table(&(old_from..old_to).collect::<Vec<_>>(), &(new_from..new_to).collect::<Vec<_>>());
        } else {
            self.long_stretch((old_from, old_to), (new_from, new_to));
        }
        self.pairs.extend(ends.into_iter().rev());
    }

    /// Cuts a long stretch at lines that stand once on either side.
    fn long_stretch(&mut self, (old_from, old_to): (usize, usize), (new_from, new_to): (usize, usize)) {
        let single = singles(&self.old[old_from..old_to], &self.new[new_from..new_to]);
        if single.is_empty() {
            let (olds, news): (HashSet<u32>, HashSet<u32>) = (
                self.old[old_from..old_to].iter().copied().collect(),
                self.new[new_from..new_to].iter().copied().collect(),
            );
            let old: Vec<usize> = (old_from..old_to).filter(|at| news.contains(&self.old[*at])).collect();
            let new: Vec<usize> = (new_from..new_to).filter(|at| olds.contains(&self.new[*at])).collect();
            match old.len().saturating_mul(new.len()) <= CELLS_MAX {
                true => self.table(&old, &new),
                false => self.is_complete = false,
            }
            return;
        }
        let mut at = (old_from, new_from);
        for (old, new) in single.into_iter().map(|(old, new)| (old_from + old, new_from + new)) {
            self.stretch((at.0, old), (at.1, new));
            self.pairs.push((old, new));
            at = (old + 1, new + 1);
        }
        self.stretch((at.0, old_to), (at.1, new_to));
    }

    /// Pairs a few lines so that the pairs weigh the most.
    fn table(&mut self, olds: &[usize], news: &[usize]) {
        let row = news.len() + 1;
        // The weight of the best pairs from each place on.
        let mut best = vec![0_u32; (olds.len() + 1) * row];
        let weight = |old: usize, new: usize| (self.weight)(self.old[olds[old]], self.new[news[new]]);
        for old in (0..olds.len()).rev() {
            for new in (0..news.len()).rev() {
                let skipped = best[(old + 1) * row + new].max(best[old * row + new + 1]);
                let paired = match weight(old, new) {
                    0 => 0,
                    weight => weight + best[(old + 1) * row + new + 1],
                };
                best[old * row + new] = skipped.max(paired);
            }
        }
        let (mut old, mut new) = (0, 0);
        while old < olds.len() && new < news.len() {
            let here = best[old * row + new];
            let weight = weight(old, new);
            if weight > 0 && here == weight + best[(old + 1) * row + new + 1] {
                self.pairs.push((olds[old], news[new]));
                (old, new) = (old + 1, new + 1);
            } else if here == best[(old + 1) * row + new] {
                old += 1;
            } else {
                new += 1;
            }
        }
    }
}

/// The most lines that stand once on either side and in the same order there.
fn singles(old: &[u32], new: &[u32]) -> Pairs {
    let mut found: HashMap<u32, (usize, usize, usize, usize)> = HashMap::new();
    for (at, line) in old.iter().enumerate() {
        let (count, place, _, _) = found.entry(*line).or_default();
        (*count, *place) = (*count + 1, at);
    }
    for (at, line) in new.iter().enumerate() {
        if let Some((_, _, count, place)) = found.get_mut(line) {
            (*count, *place) = (*count + 1, at);
        }
    }
    let single = |(olds, old, news, new): (usize, usize, usize, usize)| (olds == 1 && news == 1).then_some((old, new));
    let mut pairs: Pairs = found.into_values().filter_map(single).collect();
    pairs.sort_unstable();
    ascending(&pairs)
}

/// The longest part of pairs with ascending first places whose second places ascend, too.
pub(super) fn ascending(pairs: &[(usize, usize)]) -> Pairs {
    // The pair that ends the best sequence of each length, and the pair before each pair.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    for (at, (_, new)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end| pairs[*end].1 < *new);
        before.push(length.checked_sub(1).map(|last| ends[last]));
        match ends.get_mut(length) {
            Some(end) => *end = at,
            None => ends.push(at),
        }
    }
    let mut longest: Pairs =
        std::iter::successors(ends.last().copied(), |at| before[*at]).map(|at| pairs[at]).collect();
    longest.reverse();
    longest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn equal(one: u32, other: u32) -> u32 {
        u32::from(one == other)
    }

    fn words(text: &str) -> Vec<u32> {
        text.chars().map(u32::from).collect()
    }

    #[test]
    fn common_lines_are_paired() {
        let check = |old: &str, new: &str, expect: &str| {
            let (pairs, _) = align(&words(old), &words(new), &equal);
            let common: String = pairs.iter().map(|(at, _)| old.chars().nth(*at).expect("a place")).collect();
            assert_eq!(common, expect, "{old} {new}");
        };
        check("", "abc", "");
        check("abc", "abc", "abc");
        check("abcdef", "axcyef", "acef");
        check("aab", "ab", "ab");
        check("abcabba", "cbabac", "cbba");
    }

    #[test]
    fn long_stretches_are_cut_at_single_lines() {
        let old: Vec<u32> = (0..6_000).collect();
        let mut new = old.clone();
        new.rotate_left(10);
        new.retain(|line| line % 7 != 3);
        let (pairs, is_complete) = align(&old, &new, &equal);
        let expect: Vec<u32> = (10..6_000).filter(|line| line % 7 != 3).collect();
        assert_eq!(pairs.iter().map(|(at, _)| old[*at]).collect::<Vec<_>>(), expect);
        assert!(is_complete && pairs.iter().all(|(at, to)| old[*at] == new[*to]));
        // Nothing tells these lines apart.
        let alike: Vec<u32> = (0..6_000).map(|line| line * line % 3).collect();
        let other: Vec<u32> = alike.iter().rev().map(|line| 2 - line).collect();
        let (pairs, is_complete) = align(&alike, &other, &equal);
        assert!(!is_complete && pairs.is_sorted());
    }

    proptest! {
        #[test]
        fn pairs_are_equal_and_ascend(old in proptest::collection::vec(0_u32..9, 0..60), new in proptest::collection::vec(0_u32..9, 0..60)) {
            let (pairs, _) = align(&old, &new, &equal);
            prop_assert!(pairs.iter().all(|(at, to)| old[*at] == new[*to]));
            prop_assert!(pairs.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1));
        }
    }
}
