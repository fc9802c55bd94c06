//! Every mark of every rule in a text, by one pass.
//!
//! The compiler makes the table, as that of [`super::marks`]: built at run time, it would take 2 MiB of each process.

use std::ops::Range;

use super::marks::{CLASS_OF, CLASSES};
use super::table::RULES;

/// The marks in a text and the numbers of their rules, by their ends; of those with one end the longest comes first. Capitals do not
/// count.
pub(super) fn every_mark(text: &[u8]) -> EveryMark<'_> {
    EveryMark { text, at: 0, state: 0, mark: NONE }
}

#[derive(Debug)]
pub(super) struct EveryMark<'a> {
    text: &'a [u8],
    at: usize,
    state: u16,
    /// The next one that ends here.
    mark: u16,
}

impl Iterator for EveryMark<'_> {
    /// The place, the mark, and the number of its rule.
    type Item = (Range<usize>, &'static [u8], usize);

    fn next(&mut self) -> Option<Self::Item> {
        while self.mark == NONE {
            let byte = *self.text.get(self.at)?;
            self.at += 1;
            self.state = NEXT[UNIT * usize::from(self.state) + usize::from(CLASS_OF[usize::from(byte)])];
            self.mark = NEXT[UNIT * usize::from(self.state) + FIRST_MARK];
        }
        let Mark { text, rule, then } = MARKS[usize::from(self.mark)];
        self.mark = then;
        Some((self.at - text.len()..self.at, text, usize::from(rule)))
    }
}

/// A mark of a rule.
#[derive(Clone, Copy)]
struct Mark {
    text: &'static [u8],
    rule: u16,
    /// The next mark that ends where this one does.
    then: u16,
}

/// No mark, or no node.
const NONE: u16 = u16::MAX;

const MARKS_MAX: usize = 512;

/// More than there are beginnings of marks.
const NODES_MAX: usize = 4_096;

/// Places that one name of a state stands for.
const UNIT: usize = 8;

/// The place in a row with the first mark that ends in the state.
const FIRST_MARK: usize = CLASSES;

/// The places of a state.
const ROW: usize = (FIRST_MARK + 1).next_multiple_of(UNIT);

const fn name(state: usize) -> u16 {
    let units = state * ROW / UNIT;
    assert!(units < NONE as usize);
    units as u16
}

/// The marks as a tree of their beginnings.
struct Tree {
    /// The nodes that lead on from each, of which the first is empty.
    nodes: [[u16; CLASSES]; NODES_MAX],
    count: usize,
    /// The first mark that ends at each node.
    ends: [u16; NODES_MAX],
    marks: [Mark; MARKS_MAX],
}

/// All marks of all rules; equal ones follow each other.
const TREE: Tree = {
    let empty = Mark { text: b"", rule: 0, then: NONE };
    let mut tree =
        Tree { nodes: [[NONE; CLASSES]; NODES_MAX], count: 1, ends: [NONE; NODES_MAX], marks: [empty; MARKS_MAX] };
    let (mut count, mut rule) = (0, 0);
    while rule < RULES.len() {
        let mut rest = RULES[rule].marks.as_bytes();
        while !rest.is_empty() {
            let (mut bytes, mut node) = (0, 0);
            while bytes < rest.len() && rest[bytes] != b'|' {
                let class = CLASS_OF[rest[bytes] as usize] as usize;
                assert!(class != 0);
                if tree.nodes[node][class] == NONE {
                    tree.nodes[node][class] = tree.count as u16;
                    tree.count += 1;
                }
                node = tree.nodes[node][class] as usize;
                bytes += 1;
            }
            let (text, behind) = rest.split_at(bytes);
            tree.marks[count] = Mark { text, rule: rule as u16, then: NONE };
            match tree.ends[node] {
                NONE => tree.ends[node] = count as u16,
                first => {
                    let mut last = first as usize;
                    while tree.marks[last].then != NONE {
                        last = tree.marks[last].then as usize;
                    }
                    tree.marks[last].then = count as u16;
                }
            }
            count += 1;
            rest = if behind.is_empty() { behind } else { behind.split_at(1).1 };
        }
        rule += 1;
    }
    tree
};

const STATES: usize = TREE.count;

/// The tree with a way for each byte: where no beginning goes on, the longest other one does that the text ends with, and the marks
/// that end with that end here, too.
const fn whole() -> ([u16; STATES * ROW], [Mark; MARKS_MAX]) {
    let Tree { mut nodes, mut ends, mut marks, .. } = TREE;
    let mut next = [0; STATES * ROW];
    // Nodes by the length of their beginnings, and the longest other beginning that each ends with.
    let (mut order, mut fallback) = ([0_u16; STATES], [0_u16; STATES]);
    let (mut at, mut count) = (0, 1);
    while at < count {
        let node = order[at] as usize;
        let other = fallback[node] as usize;
        if node != 0 && ends[node] == NONE {
            ends[node] = ends[other];
        } else if node != 0 {
            let mut last = ends[node] as usize;
            while marks[last].then != NONE {
                last = marks[last].then as usize;
            }
            marks[last].then = ends[other];
        }
        let mut class = 0;
        while class < CLASSES {
            let elsewhere = if node == 0 { 0 } else { nodes[other][class] };
            let child = nodes[node][class];
            if child == NONE {
                nodes[node][class] = elsewhere;
            } else {
                fallback[child as usize] = elsewhere;
                order[count] = child;
                count += 1;
            }
            next[node * ROW + class] = name(nodes[node][class] as usize);
            class += 1;
        }
        next[node * ROW + FIRST_MARK] = ends[node];
        at += 1;
    }
    (next, marks)
}

/// The next state for each state and each class of bytes, and the first mark that ends in the state. A state is named by its place
/// here in units, which fits in two bytes.
static NEXT: [u16; STATES * ROW] = whole().0;

static MARKS: [Mark; MARKS_MAX] = whole().1;

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use aho_corasick::AhoCorasick;
    use proptest::prelude::*;

    use super::*;

    static ALL: LazyLock<Vec<(&[u8], usize)>> = LazyLock::new(|| {
        let marks = RULES.iter().enumerate().flat_map(|(rule, of)| of.marks().map(move |mark| (mark.as_bytes(), rule)));
        marks.collect()
    });

    /// The same, made at run time by other code.
    static OTHER: LazyLock<AhoCorasick> = LazyLock::new(|| {
        let marks = ALL.iter().map(|(mark, _)| mark);
        AhoCorasick::builder().ascii_case_insensitive(true).build(marks).expect("the marks are few and short")
    });

    fn check(text: &[u8]) {
        let other = OTHER.find_overlapping_iter(text).map(|found| {
            let (mark, rule) = ALL[found.pattern().as_usize()];
            (found.range(), mark, rule)
        });
        assert_eq!(every_mark(text).collect::<Vec<_>>(), other.collect::<Vec<_>>());
    }

    #[test]
    fn marks_are_found_with_all_their_rules() {
        check(b"");
        for (mark, _) in &*ALL {
            check(&[b"a ", *mark, b" ", &mark.to_ascii_uppercase(), *mark].concat());
        }
    }

    proptest! {
        #[test]
        fn what_another_automaton_finds_is_found(
            parts in proptest::collection::vec((0..1_024_usize, 0..40_usize, any::<bool>()), 0..12),
            more in proptest::collection::vec(any::<u8>(), 0..8),
        ) {
            let mut text = Vec::new();
            for (mark, bytes, is_upper) in parts {
                let mark = ALL[mark % ALL.len()].0;
                let part = &mark[..bytes.min(mark.len())];
                text.extend(if is_upper { part.to_ascii_uppercase() } else { part.to_vec() });
            }
            text.extend(more);
            check(&text);
        }
    }
}
