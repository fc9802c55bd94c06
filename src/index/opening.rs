//! Opens the database: decides where indexing continues and which epoch the numbers belong to.

use std::time::Instant;

use super::database::{Database, Reached, first_segment};
use super::epochs::{Cause, Epoch, Evidence, Expected, RESERVE, Same, Verdict, form, judge, known_ends, needs_mark};
use super::follow::Follower;
use super::indexer::{Failure, Indexed, Indexer};
use super::shared::{IndexNotice, IndexSettings};
use crate::journal::Position;
use crate::store::{DatabaseError, FoundWitness, SeqMark, SeqWish, Witness, WitnessFile};

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
        let witness = self.witness.as_ref().map_or(FoundWitness::Nothing, WitnessFile::read);
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
                let tells_ledger = witness == FoundWitness::Nothing;
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
