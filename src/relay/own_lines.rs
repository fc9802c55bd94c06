//! Own lines: recorded first, then sent between two other lines.

use super::event_loop::Relay;
use crate::engine::{Effect, Injection, OwnLine};
use crate::wire::{LineEnd, Side};

impl Relay {
    /// Records own lines to the server and sends them in one write.
    pub(super) fn inject(&mut self, injection: Injection, effects: &mut Vec<Effect>) {
        self.record(&injection.lines);
        let lines = injection.lines.into_iter().flat_map(|line| LineEnd::Newline.ends(line.bytes));
        self.from_client.inject(lines.collect(), injection.mark);
        self.flush(Side::Client, self.clock.now(), effects);
    }

    /// Records an own line to the client and sends it.
    pub(super) fn answer(&mut self, line: OwnLine, effects: &mut Vec<Effect>) {
        self.record(std::slice::from_ref(&line));
        self.send_to_client(line.bytes, effects);
    }

    /// Sends the client a line that is already recorded.
    pub(super) fn send_to_client(&mut self, line: Vec<u8>, effects: &mut Vec<Effect>) {
        self.from_server.inject(LineEnd::Newline.ends(line), None);
        self.flush(Side::Server, self.clock.now(), effects);
    }

    fn record(&mut self, lines: &[OwnLine]) {
        match self.recorder.batch(self.clock.now(), &self.notices) {
            Some(mut batch) => {
                lines.iter().for_each(|line| batch.push_own_line(line));
                self.recorder.commit(batch, &mut self.notices);
            }
            None => self.recorder.miss_lines(lines.len() as u64),
        }
    }
}
