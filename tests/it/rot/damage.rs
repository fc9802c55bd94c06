//! Seeded damage of one file, as disks, file systems and crashes do it.

use std::fs::{self, File};
use std::path::Path;

use crate::key_forms::Random;

/// What is done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// Up to eight bits are another value.
    Flips,
    /// A letter or a digit is another one, so the text around it stays valid.
    Letter,
    /// A part of a block is zero.
    TornToZero,
    /// A part of a block has the content of another block, as that of an older write.
    TornToOther,
    /// The file ends early.
    Truncated,
    /// Nothing of the file is left.
    Emptied,
    /// A block stands in the place of another one.
    Overwritten,
    /// A block stands there twice, and the file is longer.
    Doubled,
    /// Two blocks have changed places.
    Swapped,
    /// Two lines have changed places, or one stands there twice or is missing.
    Lines,
}

const ALL: [Damage; 10] = [
    Damage::Flips,
    Damage::Letter,
    Damage::TornToZero,
    Damage::TornToOther,
    Damage::Truncated,
    Damage::Emptied,
    Damage::Overwritten,
    Damage::Doubled,
    Damage::Swapped,
    Damage::Lines,
];

impl Damage {
    fn any(random: &mut Random) -> Damage {
        match random.below(24) {
            at if at < ALL.len() => ALL[at],
            at if at < 17 => Damage::Flips,
            _ => Damage::Letter,
        }
    }

    /// The damaged content; `None` if this damage cannot be done to these bytes.
    fn done(self, mut bytes: Vec<u8>, random: &mut Random) -> Option<Vec<u8>> {
        let length = bytes.len();
        if length == 0 {
            return None;
        }
        let block = [512, 4096][random.below(2)].min(length);
        let blocks = length / block;
        let (one, other) = (random.below(blocks) * block, random.below(blocks) * block);
        let (begin, end) = {
            let ends = [random.below(block), random.below(block)];
            (ends[0].min(ends[1]), ends[0].max(ends[1]) + 1)
        };
        match self {
            Damage::Flips => (0..=random.below(8)).for_each(|_| bytes[random.below(length)] ^= 1 << random.below(8)),
            Damage::Letter => {
                let at = (0..200).map(|_| random.below(length)).find(|at| bytes[*at].is_ascii_alphanumeric())?;
                bytes[at] = match bytes[at] {
                    digit @ b'0'..=b'9' => b'0' + (digit - b'0' + 1 + random.below(8) as u8) % 10,
                    letter if letter.is_ascii_lowercase() => b'a' + (letter - b'a' + 1 + random.below(24) as u8) % 26,
                    letter => b'A' + (letter - b'A' + 1 + random.below(24) as u8) % 26,
                };
            }
            Damage::TornToZero => bytes[one + begin..one + end].fill(0),
            Damage::TornToOther => bytes.copy_within(other + begin..other + end, one + begin),
            Damage::Truncated => bytes.truncate(if random.below(2) == 0 { random.below(length) } else { one }),
            Damage::Emptied => bytes.clear(),
            Damage::Overwritten => bytes.copy_within(other..other + block, one),
            Damage::Doubled => {
                let doubled = bytes[other..other + block].to_vec();
                bytes.splice(one..one, doubled);
            }
            Damage::Swapped => {
                let kept = bytes[one..one + block].to_vec();
                bytes.copy_within(other..other + block, one);
                bytes[other..other + block].copy_from_slice(&kept);
            }
            Damage::Lines => {
                let mut lines: Vec<Vec<u8>> =
                    bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
                let (one, other) = (random.below(lines.len()), random.below(lines.len()));
                match random.below(3) {
                    0 => lines.swap(one, other),
                    1 => lines.insert(other, lines[one].clone()),
                    _ => drop(lines.remove(one)),
                }
                bytes = lines.concat();
            }
        }
        Some(bytes)
    }
}

/// What was done to a file.
#[derive(Debug, Clone)]
pub struct Done {
    pub damage: Damage,
    /// The first byte that differs.
    pub from: usize,
    /// The length of the file before, in bytes.
    pub bytes: usize,
}

/// Damages a file, which keeps its time: nobody has written it. `None` if it has no content to damage.
pub fn damage(path: &Path, random: &mut Random) -> Option<Done> {
    let intact = fs::read(path).expect("it can be read");
    for _ in 0..20 {
        let damage = Damage::any(random);
        let Some(damaged) = damage.done(intact.clone(), random).filter(|damaged| *damaged != intact) else { continue };
        put(path, &damaged);
        let from = intact.iter().zip(&damaged).position(|(one, other)| one != other);
        return Some(Done { damage, from: from.unwrap_or(damaged.len().min(intact.len())), bytes: intact.len() });
    }
    None
}

/// Replaces the content of a file, which keeps its time.
pub fn put(path: &Path, bytes: &[u8]) {
    let written = path.metadata().and_then(|metadata| metadata.modified()).expect("a time");
    fs::write(path, bytes).expect("write");
    File::options().append(true).open(path).and_then(|file| file.set_modified(written)).expect("it is ours");
}
