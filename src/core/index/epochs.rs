//! Epochs: decides whether a history continues the numbers that its readers have seen, and opens the database accordingly.
//!
//! All numbers of a history belong to one epoch. A history without proof of its numbers begins a new epoch above every
//! number that may have been issued, so a number never stands for two events. The evidence is the database, the mark in the
//! ledger, the journal, and the witness outside the session's folder.

use super::model::{Cause, Epoch, Kept};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use uuid::Uuid;

use super::database::Database;
use super::follow::Follower;
use super::indexer::{Failure, Indexed, Indexer};
use super::model::{Reached, first_segment};
use super::shared::{IndexNotice, IndexSettings};
use crate::history::Fold;
use crate::journal::{Position, SegmentName, all_ended, is_whole};
use crate::os::clocks::{boot_id, booted_unix_s};
use crate::protocol::of_name;
use crate::store::{DatabaseError, SeqMark, SeqWish, Witness, WitnessFile, WitnessRead};

/// Numbers reserved at a time. Source: the contract.
pub(super) const RESERVE: u64 = 10_000;

/// If the mark may be too low, a new epoch begins at most this many times [`RESERVE`] above it.
const LEAP_MAX: u64 = 1_000_000;

/// A run creates its first segment within this time after it got its name.
const RUN_BEGINS_WITHIN: Duration = Duration::from_secs(10);

/// Most ends of runs in a witness, at some 80 bytes each.
const KNOWN_ENDS_MAX: usize = 16;

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

pub(super) struct Evidence<'a> {
    pub(super) journal_dir: &'a Path,
    pub(super) kept: Option<&'a Kept>,
    /// The highest number issued for a tool or turn row.
    pub(super) highest_row: u64,
    /// The epoch that the database names.
    pub(super) begun: Option<&'a Epoch>,
    pub(super) witness: &'a WitnessRead,
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
pub(super) fn form(kept: Option<&Kept>, witness: &WitnessRead) -> u32 {
    match (kept, witness) {
        (None, _) => Fold::FORM,
        (Some(_), WitnessRead::Original(witness)) if witness.form == Fold::FORM => Fold::FORM,
        (Some(_), WitnessRead::Original(_) | WitnessRead::Copied(_) | WitnessRead::Nothing) => 0,
    }
}

/// Whether [`judge`] needs the mark in the ledger.
pub(super) fn needs_mark(kept: Option<&Kept>, witness: &WitnessRead) -> bool {
    kept.is_none() || !matches!(witness, WitnessRead::Original(_))
}

/// The number after which a new epoch begins.
pub(super) fn base(evidence: &Evidence<'_>, cause: Cause) -> u64 {
    let Evidence { kept, witness, mark, highest_row, .. } = evidence;
    let kept = kept.map_or(0, |kept| kept.reached.reserved.max(kept.reached.seq)).max(*highest_row);
    let witnessed = match witness {
        WitnessRead::Nothing => 0,
        WitnessRead::Original(witness) | WitnessRead::Copied(witness) => {
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
        WitnessRead::Copied(_) => Ok(new(Cause::Copied)),
        WitnessRead::Nothing if evidence.mark.epoch.is_some() => Ok(new(Cause::Copied)),
        WitnessRead::Nothing => Ok(without_witness(evidence)),
        WitnessRead::Original(witness) => Ok(by_witness(evidence, witness)?.unwrap_or_else(new)),
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
pub(super) fn known_ends(journal_dir: &Path, witness: &WitnessRead, cause: Option<Cause>) -> Vec<Position> {
    let (witness, is_original) = match witness {
        WitnessRead::Nothing => return Vec::new(),
        WitnessRead::Original(witness) => (witness, true),
        WitnessRead::Copied(witness) => (witness, false),
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

/// The epoch of an index's numbers, and the evidence for it.
pub(super) struct Numbers {
    pub(super) epoch: Epoch,
    /// An event known to have had a number, until the journal is read up to it.
    pub(super) expected: Option<Expected>,
    /// The run whose first record began the epoch.
    pub(super) first_generation: Option<String>,
    /// The first record of the event with the last number.
    pub(super) last_key: Option<Position>,
    /// The last number of each table of rows.
    pub(super) last_rows: [u64; 2],
    /// As [`Witness::form`].
    pub(super) form: u32,
    /// Ends of runs that the journal once had.
    pub(super) known_ends: Vec<Position>,
    /// The ledger does not yet record that a witness exists.
    pub(super) tells_ledger: bool,
}

impl Indexer {
    /// Opens the database and continues at its checkpoint.
    pub(super) fn open(&mut self) -> Result<(), Failure> {
        let IndexSettings { session_id, journal_dir, .. } = &self.settings;
        let failed = |error: DatabaseError| error.to_string();
        if let Some(kept) = self.sums.set_damaged_aside(&self.settings.session_dir).map_err(failed)? {
            (self.notify)(IndexNotice::SetAside(kept));
        }
        let (mut database, set_aside) = Database::open(&self.settings.history_path(), session_id).map_err(failed)?;
        if let Some(kept) = set_aside {
            (self.notify)(IndexNotice::SetAside(kept));
        }
        let (kept, begun) = match database.load(&self.settings.journal_dir, &mut self.folded_again) {
            Ok(loaded) => loaded,
            Err(error) if error.is_broken() => {
                self.set_aside(database)?;
                return self.open();
            }
            Err(error) => return Err(failed(error).into()),
        };
        let witness = self.witness.as_ref().map_or(WitnessRead::Nothing, WitnessFile::read);
        let mark = match needs_mark(kept.as_ref(), &witness) {
            true => (self.marks)(SeqWish::default()).map_err(Failure::Ledger)?,
            false => SeqMark::default(),
        };
        let key_of = |seq| database.key_of(seq);
        let highest_row = database.last_rows().map_err(failed)?.into_iter().fold(0, u64::max);
        let evidence = Evidence {
            journal_dir,
            kept: kept.as_ref(),
            highest_row,
            begun: begun.as_ref(),
            witness: &witness,
            mark: &mark,
            key_of: &key_of,
        };
        let form = form(kept.as_ref(), &witness);
        let verdict = judge(&evidence).map_err(|error| format!("read {}: {error}", journal_dir.display()))?;
        match verdict {
            Verdict::Same(same) => {
                let Same { epoch, reached, expected, first_generation } = *same;
                if begun.as_ref() != Some(&epoch) {
                    database.set_epoch(&epoch).map_err(failed)?;
                }
                let tells_ledger = witness == WitnessRead::Nothing;
                let last_key = database.key_of(reached.seq);
                let last_rows = database.last_rows().map_err(failed)?;
                let known_ends = known_ends(journal_dir, &witness, None);
                let numbers =
                    Numbers { epoch, expected, first_generation, last_key, last_rows, form, known_ends, tells_ledger };
                self.go_on(database, reached, numbers);
            }
            Verdict::New { after_seq, cause } => {
                let known_ends = known_ends(journal_dir, &witness, Some(cause));
                self.begin_epoch(database, kept.map(|kept| kept.reached), (known_ends, form), (after_seq, cause))?;
            }
        }
        self.complete_transcripts(None);
        Ok(())
    }

    /// Begins a new epoch, because the journal yields other events for issued numbers.
    pub(super) fn begin_other_epoch(&mut self) -> Result<(), Failure> {
        let Some(Indexed { database, reached, numbers, .. }) = self.indexed.take() else { return Ok(()) };
        let highest = numbers.expected.map_or(0, |expected| expected.seq).max(reached.reserved).max(reached.seq);
        let highest = numbers.last_rows.into_iter().fold(highest, u64::max).next_multiple_of(RESERVE);
        let reached = reached.position.is_some().then_some(reached);
        self.begin_epoch(database, reached, (numbers.known_ends, numbers.form), (highest, Cause::OtherEvents))
    }

    /// Begins an epoch after the number `after_seq`; reserves its numbers before any reader can see one.
    fn begin_epoch(
        &mut self,
        mut database: Database,
        reached: Option<Reached>,
        (known_ends, form): (Vec<Position>, u32),
        (after_seq, cause): (u64, Cause),
    ) -> Result<(), Failure> {
        let wish = SeqWish { up_to: after_seq + RESERVE, ..SeqWish::default() };
        let reserved = (self.marks)(wish).map_err(Failure::Ledger)?.reserved.max(after_seq);
        let epoch = Epoch::begin(after_seq, cause);
        let higher_by = database.begin_epoch(&epoch).map_err(|error| error.to_string())?;
        tracing::warn!(%cause, epoch = epoch.id, after_seq, "the history begins a new epoch of event numbers");
        let reached = match reached {
            Some(reached) => Reached { seq: reached.seq + higher_by, reserved, ..reached },
            None => Reached { seq: after_seq, reserved, digest: Some(0), ..Reached::default() },
        };
        let last_key = database.key_of(reached.seq);
        let numbers = Numbers {
            epoch,
            expected: None,
            first_generation: None,
            last_key: last_key.clone(),
            last_rows: database.last_rows().map_err(|error| error.to_string())?,
            form,
            known_ends,
            tells_ledger: true,
        };
        self.go_on(database, reached.clone(), numbers);
        self.write_witness(&reached, last_key.as_ref(), 0);
        Ok(())
    }

    fn go_on(&mut self, database: Database, reached: Reached, numbers: Numbers) {
        let follower = Follower::new(&self.settings.journal_dir, reached.position.clone());
        let follower = follower.with_known_ends(&numbers.known_ends);
        let now = Instant::now();
        self.shared.state.send_modify(|state| {
            state.opened += 1;
            state.epoch = Some(numbers.epoch.id.clone());
            state.position = reached.position.clone();
            state.last_seq = reached.seq;
        });
        if self.unindexed.is_none() {
            self.shared.set_activity(reached.fold.activity());
        }
        self.indexed = Some(Indexed { database, reached, follower, numbers, stamp_at: now, read_at: now });
    }

    /// At the first commit, remembers the run whose first record began the numbers.
    pub(super) fn learn_first_generation(&mut self) {
        let Some(Indexed { reached, numbers, .. }) = &mut self.indexed else { return };
        if reached.position.is_none() {
            let first = first_segment(&self.settings.journal_dir).filter(|first| first.number == 1);
            numbers.first_generation = first.map(|first| first.generation.to_string());
        }
    }

    /// Whether the journal lacks an event that had a number.
    pub(super) fn is_disproved(&self) -> bool {
        let Some(Indexed { reached, numbers: Numbers { expected: Some(expected), .. }, .. }) = &self.indexed else {
            return false;
        };
        reached.position.as_ref() >= Some(&expected.read_to) && !reached.fold.awaits_silence()
    }

    /// Writes to the witness which numbers are issued, before any reader can see them: if a crash loses the commit, the
    /// same events must get these numbers again. Without a witness the numbers continue as before, but a restored copy or a
    /// journal that lost its end goes unnoticed.
    pub(super) fn write_witness(&mut self, reached: &Reached, last_key: Option<&Position>, highest_row: u64) {
        let (Some(file), Some(Indexed { numbers, .. })) = (&mut self.witness, &self.indexed) else { return };
        // Below that number the witness in the file knows more. The numbers above it are new, even if they come with it.
        if numbers.expected.as_ref().is_some_and(|expected| expected.seq > reached.seq) {
            return;
        }
        let witness = Witness {
            epoch: numbers.epoch.id.clone(),
            after_seq: numbers.epoch.after_seq,
            cause: numbers.epoch.cause.name().to_owned(),
            seq: reached.seq,
            key: last_key.cloned(),
            digest: reached.digest,
            read_to: reached.position.clone(),
            reserved: reached.reserved,
            first_generation: numbers.first_generation.clone(),
            boot: self.boot.clone(),
            highest_row: numbers.last_rows.into_iter().fold(highest_row, u64::max),
            form: numbers.form,
            known_ends: numbers.known_ends.clone(),
        };
        if let Err(error) = file.write(&witness)
            && !std::mem::replace(&mut self.witness_fault_told, true)
        {
            tracing::warn!(%error, "write which event numbers were issued");
        }
    }

    /// Reserves all numbers up to `seq` if necessary; returns the last reserved one. Also records the first witness in the
    /// ledger.
    pub(super) fn reserve(&mut self, seq: u64) -> Result<u64, Failure> {
        let Some(Indexed { reached, numbers, .. }) = &mut self.indexed else { return Ok(seq) };
        let has_witness = self.witness.as_ref().is_some_and(WitnessFile::is_written);
        let tells_ledger = numbers.tells_ledger && has_witness;
        if seq <= reached.reserved && !tells_ledger {
            return Ok(reached.reserved);
        }
        let wish = SeqWish {
            up_to: seq.max(reached.reserved).next_multiple_of(RESERVE),
            first_generation: numbers.first_generation.clone().filter(|_| numbers.epoch.after_seq == 0),
            epoch: has_witness.then(|| numbers.epoch.id.clone()),
        };
        let reserved = (self.marks)(wish).map_err(Failure::Ledger)?.reserved;
        numbers.tells_ledger &= !tells_ledger;
        Ok(reserved)
    }
}

/// Over real files: which evidence continues an epoch, and what begins a new one.
#[cfg(test)]
mod tests {
    use crate::api::{Cursor, GapReason, RowPage, TurnRowDocument};
    use crate::index::tests::{Lab, numbered, piece, told, words};
    use crate::index::*;
    use crate::journal::{Generation, SegmentName};

    const ENDED: &str = r#"{"at":9,"from":"shim","event":"generation_ended","data":{}}"#;

    impl Lab {
        fn epoch(&self) -> String {
            self.catch_up().epoch.expect("an epoch")
        }

        /// Removes the last `count` lines of a run.
        fn cut(&self, generation: u32, count: usize) {
            let text = std::fs::read_to_string(self.segment(generation)).expect("it is there");
            let lines: Vec<&str> = text.split_inclusive('\n').collect();
            std::fs::write(self.segment(generation), lines[..lines.len() - count].concat()).expect("it can be cut");
        }

        /// Replaces the history with an older one.
        fn restore(&self, history: &[u8]) {
            for beside in ["history.db-wal", "history.db-shm"] {
                let _ = std::fs::remove_file(self.session().join(beside));
            }
            std::fs::write(self.history(), history).expect("it can be restored");
        }

        fn turns(&self, since: u64, epoch: Option<&str>) -> RowPage<TurnRowDocument> {
            let cursor = Cursor { seq: since, epoch: epoch.map(str::to_owned) };
            History::new(&self.history()).rows::<TurnRowDocument>(Some(&cursor), 9, 0, false).expect("it can be asked")
        }

        fn segment(&self, generation: u32) -> std::path::PathBuf {
            let name = SegmentName { generation: Generation::after(None, generation, 0), number: 1 };
            self.journal().join(name.to_string())
        }

        /// Changes the boot id in the witness; false if the system has none.
        fn restart_machine(&self) -> bool {
            let path = self.home().join("marks/s");
            let text = std::fs::read_to_string(&path).expect("it is there");
            let Some(boot) = crate::os::clocks::boot_id() else { return false };
            std::fs::write(&path, text.replace(&boot, "another")).expect("it can be written");
            true
        }
    }

    #[test]
    fn restart_of_the_machine_after_a_crash_begins_an_epoch() {
        let check = |last: Option<&str>, expect: &[&str]| {
            let lab = Lab::new();
            lab.append(1, 1, &numbered(1..=2));
            lab.append(1, 1, &last.map(str::to_owned).into_iter().collect::<Vec<_>>());
            let epoch = lab.epoch();
            let is_known = lab.restart_machine();
            lab.append(2, 1, &[numbered(3..=3), vec![ENDED.to_owned()]].concat());
            let is_new = lab.epoch() != epoch;
            assert!(!is_known || (is_new == last.is_none() && lab.events() == expect), "{:?}", lab.events());
            let epoch = lab.epoch();
            assert_eq!(lab.epoch(), epoch);
        };
        check(None, &["10001 m1", "10002 m2", "10003 m3", "10004 generation_ended"]);
        check(Some(ENDED), &["1 m1", "2 m2", "3 generation_ended", "4 m3", "5 generation_ended"]);
    }

    #[test]
    fn rebuild_that_gives_other_events_begins_an_epoch() {
        let check = |old: &str, new: &str| {
            let lab = Lab::new();
            lab.append(1, 1, &numbered(1..=4));
            let epoch = lab.epoch();
            let text = std::fs::read_to_string(lab.segment(1)).expect("it is there");
            assert!(text.contains(old) && old.len() == new.len());
            std::fs::write(lab.segment(1), text.replacen(old, new, 1)).expect("it can be written");
            std::fs::remove_file(lab.history()).expect("it is there");
            assert_ne!(lab.epoch(), epoch);
            let events = lab.events();
            assert!(events.iter().all(|event| event.starts_with("1000")) && events.len() >= 3, "{events:?}");
            lab.append(1, 1, &numbered(5..=5));
            assert_eq!(lab.epoch(), lab.epoch());
            assert_eq!(lab.page(Some(4), 9).gap_reason, Some(GapReason::NewEpoch));
        };
        // Fewer events, and an event at another position.
        check(r#"{"method":"m4","#, r#"{"xethod":"m4","#);
        check(r#"{"method":"m2","#, r#"{"xethod":"m2","#);
    }

    #[test]
    fn rebuild_in_another_order_begins_an_epoch() {
        let lab = Lab::new();
        let now_us = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_micros() as u64;
        lab.append(1, 1, &[piece(now_us, "x")]);
        // This read closes the group at once; a rebuild closes it after the next event.
        lab.catch_up();
        lab.append(1, 1, &[told(now_us + 2, "m"), told(now_us + 200_000, "m3")]);
        let epoch = lab.epoch();
        assert_eq!(lab.events(), ["1 item/agentMessage/delta", "2 m", "3 m3"]);
        std::fs::remove_file(lab.history()).expect("it is there");
        assert_ne!(lab.epoch(), epoch);
        assert_eq!(lab.events(), ["10001 m", "10002 item/agentMessage/delta", "10003 m3"]);
    }

    #[test]
    fn renamed_session_goes_on_with_its_numbers() {
        let lab = Lab::new();
        lab.append(1, 1, &numbered(1..=2));
        let epoch = lab.epoch();
        let settings = || IndexSettings { session_id: "t".to_owned(), ..lab.settings() };
        lab.append(1, 1, &numbered(3..=3));
        for _ in 0..2 {
            let (state, _) = Index::catch_up(settings(), None, lab.marks(), lab.notify());
            assert_eq!((state.fault, state.last_seq, state.epoch.as_ref()), (None, 3, Some(&epoch)));
        }
        assert_eq!(words(&lab.page(Some(0), 9)), ["1 m1", "2 m2", "3 m3"]);
    }

    #[test]
    fn epoch_stays_without_a_place_for_the_witness() {
        let lab = Lab::new();
        std::fs::write(lab.home().join("marks"), "in the way").expect("write");
        lab.append(1, 1, &numbered(1..=2));
        let epoch = lab.epoch();
        lab.append(2, 1, &numbered(3..=3));
        assert_eq!(lab.epoch(), epoch);
        std::fs::remove_file(lab.home().join("marks")).expect("it is there");
        lab.append(2, 1, &numbered(4..=4));
        assert_eq!((lab.epoch(), lab.home().join("marks/s").exists()), (epoch, true));
        assert_eq!(lab.events(), ["1 m1", "2 m2", "3 m3", "4 m4"]);
    }

    #[test]
    fn history_of_an_older_version_is_adopted() {
        let lab = Lab::new();
        lab.append(1, 1, &numbered(1..=3));
        lab.catch_up();
        std::fs::remove_dir_all(lab.home().join("marks")).expect("it is there");
        lab.forget_epoch();
        let older = rusqlite::Connection::open(lab.history()).expect("it is there");
        let undone = "DROP TABLE codex_event_epochs; DROP TRIGGER codex_search_after_change;
            DROP TRIGGER codex_search_after_deletion; DROP TABLE codex_search; DROP TABLE codex_search_entries;
            DROP TABLE codex_search_state; DROP TABLE codex_usage_turns; DROP TABLE codex_usage_threads;
            DROP TABLE codex_usage_limits; DROP TABLE codex_usage_since; DROP INDEX codex_tool_events_of_reviews;
            DROP TABLE codex_threads; DROP TABLE codex_client_uses; DROP INDEX codex_transcript_entries_in_order; ALTER TABLE codex_transcript_entries DROP COLUMN place_us;
            PRAGMA user_version = 1";
        older.execute_batch(undone).expect("our own SQL");
        drop(older);
        lab.append(1, 1, &numbered(4..=4));
        let epoch = lab.epoch();
        assert_eq!(lab.events(), ["1 m1", "2 m2", "3 m3", "4 m4"]);
        assert_eq!((lab.epoch(), lab.page(Some(3), 9).gap_reason), (epoch, None));
    }

    #[test]
    fn rows_that_the_journal_lacks_stay_in_a_new_epoch() {
        let lab = Lab::new();
        lab.append(1, 1, &numbered(1..=3));
        lab.append(2, 1, &numbered(4..=5));
        lab.catch_up();
        std::fs::remove_file(lab.segment(1)).expect("it is there");
        std::fs::remove_dir_all(lab.home().join("marks")).expect("it is there");
        lab.append(2, 1, &numbered(6..=6));
        lab.catch_up();
        let page = lab.page(Some(0), 9);
        let first = page.earliest_seq.expect("events");
        assert!(first > 20_000 && first % 10_000 == 1, "{first}");
        let expect: Vec<String> = (0..6).map(|number| format!("{} m{}", first + number, number + 1)).collect();
        assert_eq!((words(&page), page.gap_reason), (expect, Some(GapReason::NewEpoch)));
    }

    #[test]
    fn witness_names_every_number_that_was_issued() {
        let lab = Lab::new();
        lab.append(1, 1, &numbered(1..=2));
        lab.catch_up();
        let older = std::fs::read(lab.history()).expect("it is there");
        lab.append(1, 1, &numbered(3..=3));
        lab.catch_up();
        // As after a crash between writing the witness and the commit: the next read indexes the third event with all later
        // ones.
        lab.restore(&older);
        lab.append(2, 1, &numbered(4..=6));
        let epoch = lab.epoch();
        assert_eq!(lab.events().len(), 6);
        // The history alone was restored.
        lab.restore(&older);
        std::fs::remove_file(lab.segment(2)).expect("it is there");
        lab.append(3, 1, &numbered(7..=9));
        assert_ne!(lab.epoch(), epoch);
        assert_eq!(lab.page(Some(6), 9).gap_reason, Some(GapReason::NewEpoch));
    }

    #[test]
    fn lost_end_of_the_last_run_is_a_gap() {
        let lab = Lab::new();
        lab.append(1, 1, &numbered(1..=3));
        lab.append(2, 1, &numbered(4..=6));
        let epoch = lab.epoch();
        lab.cut(2, 1);
        std::fs::remove_file(lab.history()).expect("it is there");
        lab.append(3, 1, &numbered(7..=7));
        let after = lab.epoch();
        assert_ne!(after, epoch);
        let expect = ["10001 m1", "10002 m2", "10003 m3", "10004 m4", "10005 m5", "10006 event_gap", "10007 m7"];
        for _ in 0..2 {
            assert_eq!(lab.events(), expect);
            assert_eq!(lab.page(Some(0), 9).gap_reason, Some(GapReason::NewEpoch));
            assert_eq!(lab.page(Some(10_002), 9).gap_reason, Some(GapReason::JournalGap));
            assert_eq!(lab.page(Some(10_006), 9).gap_reason, None);
            // The next rebuild records the gap too.
            std::fs::remove_file(lab.history()).expect("it is there");
            assert_eq!(lab.epoch(), after);
        }
    }

    #[test]
    fn lost_last_run_is_a_gap() {
        let lab = Lab::new();
        lab.append(1, 1, &numbered(1..=2));
        lab.append(2, 1, &numbered(3..=4));
        lab.catch_up();
        [lab.segment(2), lab.history()].iter().for_each(|path| std::fs::remove_file(path).expect("it is there"));
        lab.append(3, 1, &numbered(5..=5));
        lab.catch_up();
        assert_eq!(lab.events(), ["10001 m1", "10002 m2", "10003 event_gap", "10004 m5"]);
    }

    #[test]
    fn without_evidence_only_the_epoch_tells() {
        let lab = Lab::new();
        lab.append(1, 1, &numbered(1..=4));
        let epoch = lab.epoch();
        lab.cut(1, 2);
        std::fs::remove_file(lab.history()).expect("it is there");
        std::fs::remove_dir_all(lab.home().join("marks")).expect("it is there");
        lab.forget_mark();
        lab.append(2, 1, &numbered(5..=5));
        assert_ne!(lab.epoch(), epoch);
        assert_eq!(lab.events(), ["1 m1", "2 m2", "3 m5"]);
        let told = |seq, epoch: Option<&str>| {
            let cursor = Cursor { seq, epoch: epoch.map(str::to_owned) };
            History::new(&lab.history()).events(Some(&cursor), 9, 0, false).expect("it can be asked").gap_reason
        };
        assert_eq!(told(2, Some(&epoch)), Some(GapReason::NewEpoch));
        assert_eq!(told(4, None), Some(GapReason::CursorAhead));
        assert_eq!((told(3, None), told(0, None)), (None, None));
    }

    #[test]
    fn rebuild_of_rows_of_another_version_begins_an_epoch() {
        let started =
            |at: &String| at.replace("m1", "turn/started").replace(r#""threadId":"t""#, r#""turn":{"id":"u"}"#);
        for (records, is_new) in [(numbered(1..=1), false), (numbered(1..=1).iter().map(started).collect(), true)] {
            let lab = Lab::new();
            lab.append(1, 1, &records);
            let epoch = lab.epoch();
            let path = lab.home().join("marks/s");
            let text = std::fs::read_to_string(&path).expect("it is there");
            let form = format!("\"form\":{}", crate::history::Fold::FORM);
            assert!(text.contains(&form), "{text}");
            std::fs::write(&path, text.replace(&form, "\"form\":1")).expect("it can be written");
            // A history that goes on gives no number twice, but a later rebuild would.
            lab.append(1, 1, &numbered(2..=2));
            assert_eq!(lab.epoch(), epoch);
            std::fs::remove_file(lab.history()).expect("it is there");
            let rebuilt = lab.epoch();
            assert_eq!(rebuilt != epoch, is_new);
            std::fs::remove_file(lab.history()).expect("it is there");
            assert_eq!(lab.epoch(), rebuilt);
        }
    }

    #[test]
    fn rows_have_the_epoch_of_the_events() {
        let turn = |number: u64| {
            let at = numbered(number..=number)[0].clone();
            let line = |method: &str| {
                let turn = format!(r#""turn":{{"id":"u{number}","status":"completed"}}"#);
                at.replace(&format!("m{number}"), method)
                    .replace(r#""threadId":"t""#, &format!(r#""threadId":"t",{turn}"#))
            };
            vec![line("turn/started"), line("turn/completed")]
        };
        let ids = |page: &RowPage<TurnRowDocument>| -> Vec<u64> { page.events.iter().map(|row| row.id).collect() };
        let lab = Lab::new();
        lab.append(1, 1, &turn(1));
        lab.append(2, 1, &turn(2));
        let epoch = lab.epoch();
        for _ in 0..2 {
            let page = lab.turns(0, None);
            assert_eq!((ids(&page), page.next_id, page.gap_reason), (vec![1, 2, 3, 4], 5, None));
            assert_eq!((page.epoch, page.earliest_id, page.latest_id), (Some(epoch.clone()), Some(1), Some(4)));
            assert_eq!(ids(&lab.turns(3, Some(&epoch))), [4]);
            let unindexed = lab.turns(5, None);
            assert_eq!((ids(&unindexed), unindexed.gap_reason), (vec![1, 2, 3, 4], Some(GapReason::CursorAhead)));
            // A whole journal yields the same numbers.
            std::fs::remove_file(lab.history()).expect("it is there");
            assert_eq!(lab.epoch(), epoch);
        }
        let check_new = |gap: Option<GapReason>| {
            let page = lab.turns(2, None);
            let first = page.earliest_id.expect("rows");
            assert!(first > 10_000, "{first}");
            assert_eq!((ids(&page), page.gap_reason), ((first..first + 4).collect(), gap));
            let other = lab.turns(first + 1, Some(&epoch));
            assert_eq!((other.events.len(), other.gap_reason), (4, Some(GapReason::NewEpoch)));
            assert_eq!(
                (ids(&lab.turns(first, None)), lab.turns(first, None).gap_reason),
                (vec![first + 1, first + 2, first + 3], None)
            );
        };
        // The database's rows continue in the new epoch.
        std::fs::remove_dir_all(lab.home().join("marks")).expect("it is there");
        assert_ne!(lab.epoch(), epoch);
        check_new(Some(GapReason::NewEpoch));
        // A rebuilt database's rows do too.
        std::fs::remove_file(lab.history()).expect("it is there");
        lab.catch_up();
        check_new(Some(GapReason::NewEpoch));
    }
}
