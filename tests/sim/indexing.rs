//! The index of a world: it stops at any record, and resumes later.

use std::sync::{Arc, PoisonError};

use codex_shim::testing::config::RetentionBounds;
use codex_shim::testing::history::SessionActivity;
use codex_shim::testing::index::{Index, IndexSettings, TranscriptFiles};
use codex_shim::testing::journal::{IndexedTo, Position};

use super::canary::Canary;
use super::checks;
use super::happened::Event;
use super::hub::Others;
use super::world::World;

impl World {
    /// The beginning of a random record.
    pub fn some_place(&mut self) -> Option<Position> {
        let mut places = checks::places(&self.journal());
        let count = places.len() as u64;
        (count > 0).then(|| places.swap_remove(self.dice.roll(count) as usize))
    }

    /// Indexes up to a random record.
    pub fn index_some(&mut self) {
        if self.is_indexed
            && let Some(at) = self.some_place()
        {
            self.index(Some(at), None);
        }
    }

    /// Indexes the recorded lines, up to a record or all of them, and compares with a single reading.
    pub fn index(&mut self, until: Option<Position>, others: Option<Others>) {
        let is_all = until.is_none();
        let Some(activity) = self.catch_up(until) else { return };
        if !is_all {
            self.back_up();
            return;
        }
        match self.canary {
            Canary::IndexesAgain => checks::spoil(&self.session(), checks::INDEXED_AGAIN),
            Canary::IndexesTooLittle => checks::spoil(&self.session(), checks::LAST_IS_GONE),
            Canary::LeavesGaps => checks::spoil(&self.session(), checks::LAST_IS_FURTHER),
            Canary::ForgetsTurns => checks::spoil(&self.session(), checks::A_TURN_IS_GONE),
            _ => {}
        }
        let cut = self.dice.roll(200);
        let activity = if self.canary == Canary::ForgetsActivity { Arc::default() } else { activity };
        self.holds(checks::history(&self.session(), &activity, (&self.stops, cut), others));
    }

    /// Checks the activity of a running session with nothing in flight: it agrees with the server.
    pub fn look_at_activity(&mut self) {
        let Some(run) = &self.run else { return };
        // Unrecorded lines leave the activity unknown.
        if run.writer.tally().missed_lines > 0 || self.found.is_some() {
            return;
        }
        let until = match self.canary {
            Canary::LooksTooEarly => self.some_place(),
            _ => None,
        };
        let Some(activity) = self.catch_up(until) else { return };
        self.happened.count(Event::LookAtActivity);
        self.holds(checks::activity(&activity, self.now.unix_us, &self.server));
    }

    pub fn catch_up(&mut self, until: Option<Position>) -> Option<Arc<SessionActivity>> {
        let settings = IndexSettings {
            session_id: "s".to_owned(),
            session_dir: self.session(),
            journal_dir: self.journal(),
            retention: RetentionBounds::UNBOUNDED,
            transcript_files: TranscriptFiles::None,
            home: None,
            indexed_to: IndexedTo::default(),
        };
        let mark = Arc::clone(&self.mark);
        let marks = Box::new(move |wish: codex_shim::testing::store::SeqWish| {
            let mut mark = mark.lock().unwrap_or_else(PoisonError::into_inner);
            mark.reserved = mark.reserved.max(wish.up_to);
            mark.first_generation = mark.first_generation.take().or(wish.first_generation);
            mark.epoch = wish.epoch.or(mark.epoch.take());
            Ok(mark.clone())
        });
        self.say(|| format!("index up to {until:?}"));
        self.happened.count(Event::IndexStop);
        let (state, activity) = Index::catch_up(settings, until, marks, Box::new(|_| {}));
        if let Some(fault) = state.fault {
            self.broken(format!("4: nothing can be indexed: {fault}"));
            return None;
        }
        // A position before the last stop is not another stop.
        self.stops.extend(state.position.filter(|at| self.stops.last().is_none_or(|stop| stop < at)));
        Some(activity)
    }
}
