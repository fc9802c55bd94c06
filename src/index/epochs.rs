//! Epochs: decides whether a history continues the numbers that its readers have seen.
//!
//! All numbers of a history belong to one epoch. A history without proof of its numbers begins a new epoch above every
//! number that may have been issued, so a number never stands for two events. The evidence is the database, the mark in the
//! ledger, the journal, and the witness outside the session's folder.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use super::database::{Reached, first_segment};
use crate::history::{Fold, named, of_name};
use crate::journal::{Position, SegmentName, all_ended, is_whole};
use crate::store::{FoundWitness, SeqMark, Witness, boot_id, booted_unix_s};

/// Numbers reserved at a time. Source: the contract.
pub(super) const RESERVE: u64 = 10_000;

/// If the mark may be too low, a new epoch begins at most this many times [`RESERVE`] above it.
const LEAP_MAX: u64 = 1_000_000;

/// A run creates its first segment within this time after it got its name.
const RUN_BEGINS_WITHIN: Duration = Duration::from_secs(10);

/// Most ends of runs in a witness, at some 80 bytes each.
const KNOWN_ENDS_MAX: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Epoch {
    pub(super) id: String,
    /// The number before its first one.
    pub(super) after_seq: u64,
    pub(super) cause: Cause,
    /// The last number issued in it, which the database may lack while it is rebuilt.
    pub(super) promised: u64,
}

named! {
    /// Why an epoch began.
    pub(super) enum Cause {
        /// The session had no epoch before.
        First = "first",
        /// The database is lost, and the journal no longer has its first record.
        StartLost = "start_lost",
        /// The database is lost or older than the issued numbers, and the journal cannot prove that it has all records that had
        /// one.
        JournalShorter = "journal_shorter",
        /// The machine was restarted before a run recorded its end.
        MachineRestarted = "machine_restarted",
        /// The home or the session was restored from a copy.
        Copied = "copied",
        /// The database belongs to another epoch.
        OtherHistory = "other_history",
        /// The journal yields other events for the issued numbers.
        OtherEvents = "other_events",
        /// The database is lost, and this version may number its rows of tools and turns otherwise.
        OtherVersion = "other_version",
    }
}

impl Cause {
    /// Whether the mark may be lower than numbers that were issued.
    fn may_have_old_mark(self) -> bool {
        match self {
            Cause::Copied => true,
            Cause::First
            | Cause::StartLost
            | Cause::JournalShorter
            | Cause::MachineRestarted
            | Cause::OtherHistory
            | Cause::OtherEvents
            | Cause::OtherVersion => false,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Epoch {
    /// Begins an epoch after the number `after_seq`.
    pub(super) fn begin(after_seq: u64, cause: Cause) -> Epoch {
        // The low 62 bits of a UUIDv7 are random.
        let id = format!("{:012x}", Uuid::now_v7().as_u128() & 0xffff_ffff_ffff);
        Epoch { id, after_seq, cause, promised: after_seq }
    }
}

/// The event that must get a certain number when the journal is read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) seq: u64,
    pub(super) key: Option<Position>,
    pub(super) digest: Option<u64>,
    /// The event was recorded before this position of the journal.
    pub(super) read_to: Position,
}

impl Expected {
    /// Whether the event that gets the number is that one, which also proves all earlier ones.
    pub(super) fn is_met_by(&self, key: Option<&Position>, digest: Option<u64>) -> bool {
        let is_same = self.digest.is_none() || digest.is_none() || self.digest == digest;
        is_same && (self.key.is_none() || self.key.as_ref() == key)
    }
}

/// Adds the event whose first record is `key` to a digest of events (FNV-1a).
pub(super) fn digest(before: u64, key: &Position) -> u64 {
    let Position { segment: SegmentName { generation, number }, offset } = key;
    let bytes = generation.as_str().bytes().chain(number.to_le_bytes()).chain(offset.to_le_bytes());
    let begin = if before == 0 { 0xcbf2_9ce4_8422_2325 } else { before };
    bytes.fold(begin, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The indexed state of a database.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) reached: Reached,
}

pub(super) struct Evidence<'a> {
    pub(super) journal_dir: &'a Path,
    pub(super) kept: Option<&'a Kept>,
    /// The highest number issued for a tool or turn row.
    pub(super) highest_row: u64,
    /// The epoch that the database names.
    pub(super) begun: Option<&'a Epoch>,
    pub(super) witness: &'a FoundWitness,
    /// The mark in the ledger, if [`needs_mark`].
    pub(super) mark: &'a SeqMark,
    /// The first record of the event with a given number in the database.
    pub(super) key_of: &'a dyn Fn(u64) -> Option<Position>,
}

/// The numbers continue.
#[derive(Debug, PartialEq)]
pub(super) struct Same {
    pub(super) epoch: Epoch,
    pub(super) reached: Reached,
    /// The last event that had a number, if the database lacks it.
    pub(super) expected: Option<Expected>,
    pub(super) first_generation: Option<String>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Same(Box<Same>),
    /// A new epoch begins after this number.
    New {
        after_seq: u64,
        cause: Cause,
    },
}

/// The version of the fold that numbers all rows of the epoch, as [`Witness::form`].
pub(super) fn form(kept: Option<&Kept>, witness: &FoundWitness) -> u32 {
    match (kept, witness) {
        (None, _) => Fold::FORM,
        (Some(_), FoundWitness::Original(witness)) if witness.form == Fold::FORM => Fold::FORM,
        (Some(_), FoundWitness::Original(_) | FoundWitness::Copied(_) | FoundWitness::Nothing) => 0,
    }
}

/// Whether [`judge`] needs the mark in the ledger.
pub(super) fn needs_mark(kept: Option<&Kept>, witness: &FoundWitness) -> bool {
    kept.is_none() || !matches!(witness, FoundWitness::Original(_))
}

/// The number after which a new epoch begins.
pub(super) fn base(evidence: &Evidence<'_>, cause: Cause) -> u64 {
    let Evidence { kept, witness, mark, highest_row, .. } = evidence;
    let kept = kept.map_or(0, |kept| kept.reached.reserved.max(kept.reached.seq)).max(*highest_row);
    let witnessed = match witness {
        FoundWitness::Nothing => 0,
        FoundWitness::Original(witness) | FoundWitness::Copied(witness) => {
            witness.reserved.max(witness.seq).max(witness.highest_row)
        }
    };
    let highest = kept.max(witnessed).max(mark.reserved).next_multiple_of(RESERVE);
    if highest == 0 || !cause.may_have_old_mark() {
        return highest;
    }
    // Random, so that restoring a home twice from one copy does not begin two epochs at the same number.
    highest + RESERVE * (1 + Uuid::now_v7().as_u128() as u64 % LEAP_MAX)
}

/// Decides whether the numbers continue.
pub(super) fn judge(evidence: &Evidence<'_>) -> io::Result<Verdict> {
    let new = |cause| Verdict::New { after_seq: base(evidence, cause), cause };
    match evidence.witness {
        FoundWitness::Copied(_) => Ok(new(Cause::Copied)),
        FoundWitness::Nothing if evidence.mark.epoch.is_some() => Ok(new(Cause::Copied)),
        FoundWitness::Nothing => Ok(without_witness(evidence)),
        FoundWitness::Original(witness) => Ok(by_witness(evidence, witness)?.unwrap_or_else(new)),
    }
}

/// Decides without a witness, as older versions did.
fn without_witness(evidence: &Evidence<'_>) -> Verdict {
    let Evidence { kept, begun, mark, journal_dir, .. } = evidence;
    let first_generation = mark.first_generation.clone();
    let epoch = begun.cloned().unwrap_or_else(|| Epoch::begin(0, Cause::First));
    if let Some(Kept { reached }) = kept {
        return Verdict::Same(Box::new(Same { epoch, reached: reached.clone(), expected: None, first_generation }));
    }
    if mark.reserved > 0 && !begins_with(journal_dir, first_generation.as_deref()) {
        return Verdict::New { after_seq: mark.reserved, cause: Cause::StartLost };
    }
    let reached = Reached { reserved: mark.reserved, digest: Some(0), ..Reached::default() };
    Verdict::Same(Box::new(Same { epoch, reached, expected: None, first_generation }))
}

/// Decides by a witness in its original file. The inner error is the cause of a new epoch.
fn by_witness(evidence: &Evidence<'_>, witness: &Witness) -> io::Result<Result<Verdict, Cause>> {
    let Evidence { journal_dir, kept, begun, key_of, mark, .. } = evidence;
    let read_to = witness.read_to.as_ref();
    let was_restarted = matches!((&witness.boot, boot_id()), (Some(then), Some(now)) if *then != now);
    let since = booted_unix_s().unwrap_or(u64::MAX);
    if was_restarted && !all_ended(journal_dir, read_to.map(|at| &at.segment.generation), since)? {
        return Ok(Err(Cause::MachineRestarted));
    }
    let expected = read_to.map(|read_to| Expected {
        seq: witness.seq,
        key: witness.key.clone(),
        digest: witness.digest,
        read_to: read_to.clone(),
    });
    let same = |epoch: Epoch, reached: Reached, expected: Option<Expected>| {
        let promised = expected.as_ref().map_or(epoch.promised, |expected| expected.seq);
        let epoch = Epoch { promised, ..epoch };
        let reached = Reached { reserved: reached.reserved.max(witness.reserved), ..reached };
        let first_generation = witness.first_generation.clone();
        Ok(Ok(Verdict::Same(Box::new(Same { epoch, reached, expected, first_generation }))))
    };
    let proves = |from: Option<&Position>| read_to.map_or(Ok(false), |to| is_whole(journal_dir, from, to));
    match (kept, begun) {
        (Some(Kept { reached }), Some(epoch)) if epoch.id == witness.epoch => {
            let epoch = *epoch;
            if reached.seq < witness.seq {
                return match proves(reached.position.as_ref())? {
                    true => same(epoch.clone(), reached.clone(), expected),
                    false => Ok(Err(Cause::JournalShorter)),
                };
            }
            match (key_of(witness.seq), &witness.key) {
                (Some(kept), Some(witnessed)) if kept != *witnessed => Ok(Err(Cause::OtherEvents)),
                (Some(_) | None, _) => same(epoch.clone(), reached.clone(), None),
            }
        }
        (Some(_), _) => Ok(Err(Cause::OtherHistory)),
        (None, _) => {
            let epoch = Epoch {
                id: witness.epoch.clone(),
                after_seq: witness.after_seq,
                cause: of_name(&witness.cause).unwrap_or(Cause::First),
                promised: witness.after_seq,
            };
            let reached =
                Reached { seq: witness.after_seq, reserved: mark.reserved, digest: Some(0), ..Reached::default() };
            if witness.seq == witness.after_seq {
                return same(epoch, reached, None);
            }
            let first = witness.first_generation.as_deref();
            match begins_with(journal_dir, first) {
                true if witness.highest_row > witness.after_seq && witness.form != Fold::FORM => {
                    Ok(Err(Cause::OtherVersion))
                }
                true if proves(None)? => same(epoch, reached, expected),
                true => Ok(Err(Cause::JournalShorter)),
                false if first.is_some() && read_to.is_some_and(|to| reaches(journal_dir, to)) => {
                    Ok(Err(Cause::StartLost))
                }
                false => Ok(Err(Cause::JournalShorter)),
            }
        }
    }
}

/// The ends that the journal must have, or else the history lacks records; `cause` is that of a new epoch, if one began.
pub(super) fn known_ends(journal_dir: &Path, witness: &FoundWitness, cause: Option<Cause>) -> Vec<Position> {
    let (witness, is_original) = match witness {
        FoundWitness::Nothing => return Vec::new(),
        FoundWitness::Original(witness) => (witness, true),
        FoundWitness::Copied(witness) => (witness, false),
    };
    let is_journal_in_doubt = match cause {
        Some(Cause::JournalShorter | Cause::MachineRestarted) => is_original,
        // The journal may belong to another session, or be older than the witness.
        Some(
            Cause::First
            | Cause::StartLost
            | Cause::Copied
            | Cause::OtherHistory
            | Cause::OtherEvents
            | Cause::OtherVersion,
        )
        | None => false,
    };
    let mut ends = witness.known_ends.clone();
    let first = witness.first_generation.as_deref();
    ends.extend(witness.read_to.clone().filter(|end| is_journal_in_doubt && is_of_journal(journal_dir, first, end)));
    ends.dedup();
    ends.split_off(ends.len().saturating_sub(KNOWN_ENDS_MAX))
}

/// Whether a journal whose first run is `first` can reveal that it lacks this end: the segment of the end exists, or the
/// next run has a later name. Runs that began within the same second have no order.
fn is_of_journal(journal_dir: &Path, first: Option<&str>, end: &Position) -> bool {
    if std::fs::symlink_metadata(journal_dir.join(end.segment.to_string())).is_ok() {
        return true;
    }
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let begun = Duration::from_secs(end.segment.generation.begun_unix_s());
    begins_with(journal_dir, first) && now.saturating_sub(begun) > RUN_BEGINS_WITHIN
}

/// Whether the journal's first record belongs to this run.
fn begins_with(journal_dir: &Path, generation: Option<&str>) -> bool {
    first_segment(journal_dir).is_some_and(|first| first.number == 1 && generation == Some(first.generation.as_str()))
}

/// Whether the journal reaches a position, whatever it lacks before.
fn reaches(journal_dir: &Path, to: &Position) -> bool {
    std::fs::metadata(journal_dir.join(to.segment.to_string())).is_ok_and(|file| file.len() >= to.offset)
}
