//! Lines of ours that stand between two lines: put on record, then sent.

use super::event_loop::Relay;
use crate::engine::{Effect, Injection, OwnLine};
use crate::wire::{LineEnd, Side};

impl Relay {
    /// Puts lines of ours to the server on record, and sends them in one write.
    pub(super) fn inject(&mut self, injection: Injection, effects: &mut Vec<Effect>) {
        self.put_on_record(&injection.lines);
        let lines = injection.lines.into_iter().flat_map(|line| LineEnd::Newline.ends(line.bytes));
        self.from_client.inject(lines.collect(), injection.mark);
        self.flush(Side::Client, self.clock.now(), effects);
    }

    /// Puts a line of ours to the client on record, and sends it.
    pub(super) fn answer(&mut self, line: OwnLine, effects: &mut Vec<Effect>) {
        self.put_on_record(std::slice::from_ref(&line));
        self.pass_late(line.bytes, effects);
    }

    /// Sends the client a line that is on record.
    pub(super) fn pass_late(&mut self, line: Vec<u8>, effects: &mut Vec<Effect>) {
        self.from_server.inject(LineEnd::Newline.ends(line), None);
        self.flush(Side::Server, self.clock.now(), effects);
    }

    fn put_on_record(&mut self, lines: &[OwnLine]) {
        match self.recorder.batch(self.clock.now(), &self.notices) {
            Some(mut batch) => {
                lines.iter().for_each(|line| batch.push_own_line(line));
                self.recorder.commit(batch, &mut self.notices);
            }
            None => lines.iter().for_each(|_| self.recorder.miss_line()),
        }
    }
}
