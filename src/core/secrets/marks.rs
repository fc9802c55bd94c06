//! One automaton for all marks of secrets: one pass tells most texts from the few that need a closer look.
//!
//! The compiler makes its table, so that it is a part of the program's file, whose pages all relays of a machine share. Built at
//! run time, it would take a megabyte of each process.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::table::RULES;

/// Whether a text has any of the marks, in any case of its ASCII letters unless the mark is short.
pub(super) fn is_suspicious(text: &[u8]) -> bool {
    holds_long_mark(text) || SHORT.iter().any(|mark| mark.find(text).is_some())
}

/// Beginnings of keys that are parts of many words in small letters, and would make most texts suspicious.
const SHORT_MARKS: [&str; 2] = ["AC", "SK"];

static SHORT: LazyLock<[Finder<'static>; 2]> = LazyLock::new(|| SHORT_MARKS.map(Finder::new));

fn holds_long_mark(text: &[u8]) -> bool {
    let lane_bytes = text.len() / LANES + MARK_BYTES_MAX;
    if text.len() < LANES_BYTES_MIN {
        return holds_mark([text]);
    }
    // The last lane ends with the text, and each lane reaches into the next one by the length of a mark.
    let last = text.len() - lane_bytes;
    holds_mark(std::array::from_fn::<_, LANES, _>(|lane| &text[last * lane / (LANES - 1)..][..lane_bytes]))
}

/// A step waits for the one before it, so a processor has time for the steps of several parts of the text at once.
const LANES: usize = 4;

/// A shorter text is one lane.
const LANES_BYTES_MIN: usize = 2 * LANES * MARK_BYTES_MAX;

/// How many bytes are read between two looks at the states.
const CHUNK_BYTES: usize = 32;

/// Whether any of some texts of one length has a mark.
fn holds_mark<const COUNT: usize>(lanes: [&[u8]; COUNT]) -> bool {
    let mut states = [0_u16; COUNT];
    let mut from = 0;
    while from < lanes[0].len() {
        let to = lanes[0].len().min(from + CHUNK_BYTES);
        let chunks = lanes.map(|lane| &lane[from..to]);
        for at in 0..to - from {
            for (state, chunk) in states.iter_mut().zip(chunks) {
                *state = NEXT[UNIT * usize::from(*state) + usize::from(CLASS_OF[usize::from(chunk[at])])];
            }
        }
        // No byte leads out of this state.
        if states.contains(&FOUND) {
            return true;
        }
        from = to;
    }
    false
}

/// The next state, for each state and each class of bytes. A state is named by its place here in units, which fits in two bytes.
static NEXT: [u16; STATES * ROW] = next();

/// Places that one name stands for.
const UNIT: usize = 4;

/// The places of a state.
const ROW: usize = CLASSES.next_multiple_of(UNIT);

/// The class of each byte. Bytes that mean the same to all marks have one class.
pub(super) static CLASS_OF: [u8; 256] = classes().0;

/// The state in which a mark was found, the last one.
const FOUND: u16 = name(STATES - 1);

const fn name(state: usize) -> u16 {
    let units = state * ROW / UNIT;
    assert!(units <= u16::MAX as usize);
    units as u16
}

pub(super) const CLASSES: usize = classes().1;

const STATES: usize = TREE.1 + 1;

const MARKS_MAX: usize = 512;

/// All marks but the short ones; the rest of the array is empty.
const MARKS: [&[u8]; MARKS_MAX] = marks();

/// No mark is longer.
const MARK_BYTES_MAX: usize = 48;

/// The marks of all rules.
const fn marks() -> [&'static [u8]; MARKS_MAX] {
    let (mut marks, mut count, mut rule): ([&[u8]; MARKS_MAX], _, _) = ([b""; MARKS_MAX], 0, 0);
    while rule < RULES.len() {
        let mut rest = RULES[rule].marks.as_bytes();
        while !rest.is_empty() {
            let mut end = 0;
            while end < rest.len() && rest[end] != b'|' {
                end += 1;
            }
            let (mark, behind) = rest.split_at(end);
            assert!(mark.len() <= MARK_BYTES_MAX);
            if !matches!(mark, b"AC" | b"SK") {
                marks[count] = mark;
                count += 1;
            }
            rest = if behind.is_empty() { behind } else { behind.split_at(1).1 };
        }
        rule += 1;
    }
    marks
}

/// The class of each byte, and the number of classes. Class 0 has the bytes of no mark.
const fn classes() -> ([u8; 256], usize) {
    let (mut classes, mut count) = ([0; 256], 1);
    let (marks, mut mark) = (&MARKS, 0);
    while !marks[mark].is_empty() {
        let mut at = 0;
        while at < marks[mark].len() {
            let byte = marks[mark][at].to_ascii_lowercase();
            if classes[byte as usize] == 0 {
                classes[byte as usize] = count as u8;
                classes[byte.to_ascii_uppercase() as usize] = count as u8;
                count += 1;
            }
            at += 1;
        }
        mark += 1;
    }
    (classes, count)
}

/// More than there are beginnings of marks.
const NODES_MAX: usize = 4_096;

/// No way leads on from a node.
const NONE: u16 = u16::MAX;

/// A mark ends here.
const MARK: u16 = u16::MAX - 1;

/// The marks as a tree of their beginnings, of which the first is empty, and how many these are. Of a mark that has another one in
/// it, only what leads to that is ever reached.
const TREE: ([[u16; CLASSES]; NODES_MAX], usize) = {
    let mut tree = [[NONE; CLASSES]; NODES_MAX];
    let classes = classes().0;
    let (marks, mut mark, mut count) = (&MARKS, 0, 1);
    while !marks[mark].is_empty() {
        let (mut node, mut at) = (0, 0);
        while at < marks[mark].len() {
            let next = &mut tree[node][classes[marks[mark][at] as usize] as usize];
            at += 1;
            if *next == MARK || at == marks[mark].len() {
                *next = MARK;
                break;
            }
            if *next == NONE {
                *next = count as u16;
                count += 1;
            }
            node = *next as usize;
        }
        mark += 1;
    }
    (tree, count)
};

/// The tree with a way for each byte: where no beginning goes on, the longest other one does that the text ends with.
const fn next() -> [u16; STATES * ROW] {
    let mut tree = TREE.0;
    // Nodes by the length of their beginnings, and the longest other beginning that each ends with.
    let (mut order, mut fallback) = ([0; STATES], [0; STATES]);
    let (mut at, mut count) = (0, 1);
    let mut next = [FOUND; STATES * ROW];
    while at < count {
        let node = order[at] as usize;
        let mut class = 0;
        while class < CLASSES {
            let elsewhere = if node == 0 { 0 } else { tree[fallback[node] as usize][class] };
            let child = tree[node][class];
            if child == NONE {
                tree[node][class] = elsewhere;
            } else if elsewhere == MARK {
                tree[node][class] = MARK;
            } else if child != MARK {
                fallback[child as usize] = elsewhere;
                order[count] = child;
                count += 1;
            }
            if tree[node][class] != MARK {
                next[node * ROW + class] = name(tree[node][class] as usize);
            }
            class += 1;
        }
        at += 1;
    }
    next
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use aho_corasick::AhoCorasick;
    use proptest::prelude::*;

    use super::super::table::Rule;
    use super::*;

    fn marks_of_tables() -> impl Iterator<Item = &'static str> {
        RULES.iter().flat_map(Rule::marks)
    }

    #[test]
    fn automaton_has_the_marks_of_all_tables() {
        let short = SHORT_MARKS.into_iter().map(str::as_bytes);
        let marks: BTreeSet<&[u8]> = MARKS.into_iter().filter(|mark| !mark.is_empty()).chain(short).collect();
        assert_eq!(marks, marks_of_tables().map(str::as_bytes).collect());
        for mark in marks_of_tables() {
            for text in [mark.to_owned(), mark.to_ascii_uppercase(), format!("{mark}x"), format!("a {mark} b")] {
                assert!(is_suspicious(text.as_bytes()), "{text}");
            }
        }
        assert!(!is_suspicious(b""));
        assert!(!is_suspicious(b"each task is back on track"));
    }

    #[test]
    fn mark_is_found_wherever_it_stands() {
        for bytes in [0, 1, 200, 479, 481, 600] {
            for mark in [&b"token"[..], b".webhook.office.com/webhookb2/"] {
                for at in 0..bytes {
                    let mut text = vec![b'.'; bytes];
                    text.splice(at..at, mark.iter().copied());
                    assert!(is_suspicious(&text), "{at} of {bytes}");
                }
                assert!(!is_suspicious(&vec![b'.'; bytes]));
            }
        }
    }

    /// The same, made at run time by other code.
    static OTHER: LazyLock<AhoCorasick> = LazyLock::new(|| {
        AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .build(marks_of_tables().filter(|mark| !SHORT_MARKS.contains(mark)))
            .expect("the marks are few and short")
    });

    proptest! {
        #[test]
        fn automaton_finds_what_another_one_finds(
            parts in proptest::collection::vec((0..512_usize, 0..40_usize, any::<bool>()), 0..12),
            more in proptest::collection::vec(any::<u8>(), 0..8),
            padding in 0..700_usize,
        ) {
            let marks: Vec<&[u8]> = marks_of_tables().map(str::as_bytes).collect();
            let mut text = Vec::new();
            for (mark, bytes, is_upper) in parts {
                let mark = marks[mark % marks.len()];
                let part = &mark[..bytes.min(mark.len() - 1)];
                text.extend(if is_upper { part.to_ascii_uppercase() } else { part.to_vec() });
            }
            text.extend(more);
            prop_assert_eq!(holds_long_mark(&text), OTHER.is_match(&text));
            // A mark may stand on the border of two lanes.
            let longer = [&vec![b' '; padding][..], &text, &[b' '; 700]].concat();
            prop_assert_eq!(holds_long_mark(&longer), OTHER.is_match(&longer));
        }
    }
}
