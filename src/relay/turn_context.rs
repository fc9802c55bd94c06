//! Added context for the model: passes the engine's questions to the context engine and the fragments' threads, and
//! forwards lines that were held meanwhile.
//!
//! Nothing here waits. A line that is forwarded late is recorded before it is sent, like any other.

use std::path::PathBuf;

use super::event_loop::Relay;
use crate::control::Passed;
use crate::engine::{Consultation, Decision, Effect, Exit, Input, LateLine, Note, Passage, Token};
use crate::wire::{Line, LineEnd, Side};

impl Relay {
    /// Passes a consultation to the context engine. If there is none or it cannot be reached, the engine learns that at
    /// once.
    pub(super) fn consult(&mut self, consultation: Box<Consultation>, effects: &mut Vec<Effect>) {
        let refused = match self.recorder.context_engine() {
            Some(engine) => engine.consult(consultation, self.clock.now().elapsed).err(),
            None => Some(consultation),
        };
        let (token, method, thread_id) = match refused.map(|refused| *refused) {
            Some(Consultation::Assemble { token, thread_id, .. }) => (token, "assemble", thread_id),
            Some(Consultation::Compact { token, thread_id, .. }) => (token, "compact", thread_id),
            Some(Consultation::Opened { .. } | Consultation::TurnCompleted { .. }) | None => return,
        };
        effects.push(Effect::Note(Note::ContextEngineCall {
            method,
            thread_id: Some(thread_id),
            ms: 0,
            request_bytes: 0,
            response_bytes: 0,
            outcome: "not_running",
        }));
        self.engine.handle(self.clock.now(), Input::Consulted { token, assembled: None }, effects);
    }

    /// Starts to read the fragments, in the thread's folder if it is known.
    pub(super) fn read_fragments(&mut self, token: Token, cwd: Option<String>, effects: &mut Vec<Effect>) {
        match self.recorder.outbox() {
            Ok(outbox) => self.fragments.read(token, cwd.map(PathBuf::from), move |input| outbox.post(input)),
            Err(error) => {
                tracing::warn!(%error, "the fragments cannot be read");
                let states = Vec::new();
                self.engine.handle(self.clock.now(), Input::FragmentsRead { token, states }, effects);
            }
        }
    }

    /// Lets the engine decide on held lines. All lines read so far are decided on, and nothing is read in between.
    pub(super) fn decide_held(&mut self, token: Token, effects: &mut Vec<Effect>) -> Option<Exit> {
        let mut at_once = Vec::new();
        self.engine.handle(self.clock.now(), Input::ReleaseHeld(token), &mut at_once);
        let exit = self.carry_out(&mut at_once);
        effects.append(&mut at_once);
        exit
    }

    /// Records and forwards the client's held lines.
    pub(super) fn forward_held(&mut self, lines: Vec<LateLine>, effects: &mut Vec<Effect>) {
        let mut batch = self.recorder.batch(self.clock.now(), &self.notices);
        let mut passed = Passed::default();
        for LateLine { bytes, end, decision } in &lines {
            self.recorder.add_line(&mut batch, Side::Client, Line { bytes, end: *end }, decision);
            passed.count_omitted(decision);
        }
        if let Some(batch) = batch {
            self.recorder.commit(batch, &mut self.notices);
        }
        for LateLine { bytes, end, decision: Decision { before, line, then, .. } } in lines {
            let before = before.into_iter().map(|own| LineEnd::Newline.ends(own.bytes));
            let line = match line {
                Passage::Forward => Some(end.ends(bytes)),
                Passage::Replace(own) => Some(end.ends(own.bytes)),
                Passage::Withhold => None,
            };
            for bytes in before.chain(line) {
                passed.bytes += bytes.len() as u64;
                self.from_client.inject(bytes, None);
            }
            effects.extend(then);
        }
        self.published.count(Side::Client, passed);
        self.flush(Side::Client, self.clock.now(), effects);
    }

    /// Releases the client's held lines if the client has closed its input, so that its end follows them. Returns
    /// whether there were any.
    pub(super) fn release_at_end(&mut self, effects: &mut Vec<Effect>) -> bool {
        let waits = self.engine.holds_lines() && self.from_client.is_at_end();
        if waits {
            self.engine.handle(self.clock.now(), Input::ReleaseAllHeld, effects);
        }
        waits
    }
}
