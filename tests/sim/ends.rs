//! How runs end, and how everything comes to rest.

use std::time::Duration;

use codex_shim::testing::engine::{Exit, Input};
use codex_shim::testing::wire::Side;

use super::canary::Canary;
use super::checks::{self, Ending, Life};
use super::happened::Event;
use super::shim::Run;
use super::world::{FROM_CLIENT, FROM_SERVER, TO_CLIENT, TO_SERVER, World};

/// Number of rounds within which everything in flight must end.
const ROUNDS_MAX: usize = 5_000;

impl World {
    pub fn child_dies(&mut self) {
        self.say(|| "the child dies".to_owned());
        self.happened.count(Event::DeathOfTheChild);
        self.server.mouth.shut();
        (self.child_lives, self.ledger_works, self.ledger_hangs) = (false, true, false);
        self.tell(Input::ServerExited(Exit::Signal(9)));
        self.drain();
        if self.run.is_some() {
            self.client_hears_end();
        }
        if self.canary != Canary::ForgetsTheEnd {
            self.tell(Input::Closed { from: Side::Server });
        }
        self.drain();
        if self.run.as_ref().is_some_and(|run| run.engine.requests_pending() > 0) {
            self.broken("3: waits for a server that is gone: a request".to_owned());
        }
        self.over(Ending::ChildGone);
    }

    /// Everything stops where it is; data in the kernel's pipes is still read.
    pub fn killed(&mut self) {
        self.say(|| "killed".to_owned());
        self.happened.count(Event::Kill);
        self.over(Ending::Killed);
    }

    /// Ends a run and checks its remains. The next step starts another run.
    fn over(&mut self, ending: Ending) {
        let Some(Run { writer, without_journal, .. }) = self.run.take() else { return };
        self.shim = None;
        let bytes = self.pipes[TO_CLIENT].get(usize::MAX);
        self.client_hears(&bytes);
        let bytes = self.pipes[TO_SERVER].get(usize::MAX);
        self.server_hears(&bytes);
        let tally = writer.tally();
        self.happened.add(Event::MissedLine, tally.missed_lines);
        self.happened.add(Event::Answer, self.server.answers);
        self.happened.add_all(&self.referee.happened);
        let unmarked_lines = if writer.is_whole() { 0 } else { tally.missed_lines };
        let unmarked_lines = unmarked_lines + without_journal.map_or(0, |missed| missed.lines);
        drop(writer);
        let generation = self.generation.as_ref().map(ToString::to_string).unwrap_or_default();
        let life = Life {
            generation: &generation,
            client: &self.client,
            server: &self.server,
            referee: &self.referee,
            rows: &self.rows,
            unmarked_lines,
            ending,
        };
        self.holds(checks::life(&life, &self.journal()));
    }

    /// Completes everything in flight without faults.
    pub fn come_to_rest(&mut self) {
        (self.room_bytes, self.ledger_works, self.ledger_hangs) = (None, true, false);
        if self.run.is_none() {
            self.start();
        }
        self.open_journal();
        self.drain();
        if self.is_indexed {
            self.look_at_activity();
        }
        self.client_ends();
        self.tell(Input::ServerExited(Exit::Code(0)));
        self.tell(Input::Closed { from: Side::Server });
        self.drain();
        self.over(Ending::Rest);
    }

    /// The client says its last, of which some may wait for its context, and closes its end.
    fn client_ends(&mut self) {
        self.fragments_hang = self.dice.once_in(2);
        for _ in 0..self.dice.roll(4) {
            self.client.speak(&mut self.dice);
        }
        // A relay glues the next line to a last line that has no end if that has waited for its context.
        let is_cut = self.dice.once_in(2) && !self.referee.habits.gathers;
        self.client.mouth.end(is_cut);
        self.drain();
        self.somebody();
        self.drain();
        let is_waited_for = self.canary != Canary::EndsBeforeHeld;
        if is_waited_for && self.run.as_ref().is_some_and(|run| run.engine.holds_lines()) {
            self.happened.count(Event::EndBehindHeld);
            self.tell(Input::ReleaseAllHeld);
            self.drain();
        }
        self.tell(Input::Closed { from: Side::Client });
        self.drain();
    }

    /// Reads and forwards everything until nothing moves.
    fn drain(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if self.run.is_none() || self.found.is_some() {
                return;
            }
            self.client.mouth.write(&self.pipes[FROM_CLIENT], usize::MAX);
            self.server.mouth.write(&self.pipes[FROM_SERVER], usize::MAX);
            for from in [Side::Client, Side::Server] {
                self.read(from, usize::MAX);
                self.flush(from, usize::MAX);
            }
            let bytes = self.pipes[TO_SERVER].get(usize::MAX);
            self.server_hears(&bytes);
            let bytes = self.pipes[TO_CLIENT].get(usize::MAX);
            self.client_hears(&bytes);
            self.ledger();
            self.somebody_else_works();
            self.now.elapsed += Duration::from_millis(1);
            self.now.unix_us += 1_000;
            self.tick();
            self.nothing_is_held_too_long();
            let are_silent = self.client.mouth.is_silent() && self.server.mouth.is_silent();
            if are_silent && self.is_at_rest() {
                return;
            }
        }
        let orders = self.run.as_ref().map(|run| (run.orders.front(), run.orders.len()));
        self.broken(format!("it does not come to rest: {:?}, {orders:?}, {:?}", self.shim, self.pipes));
    }
}
