//! What the model is shown besides: the engine's wishes are handed to those who know, and lines that have waited go on.
//!
//! Nobody is waited for. What goes on late is put on record before it is sent, as all that passes.

use std::path::PathBuf;

use super::event_loop::Relay;
use crate::control::Passed;
use crate::engine::{Consultation, Effect, Exit, Form, Input, LateLine, Note, Token};
use crate::wire::{Line, LineEnd, Side};

impl Relay {
    /// Asks the context engine, or tells it. Where there is no way to it, that is the answer.
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

    /// Has it found out what fragments say now, in the folder of the thread that is to be told where that is known.
    pub(super) fn read_fragments(&mut self, token: Token, cwd: Option<String>, effects: &mut Vec<Effect>) {
        match self.recorder.outbox() {
            Ok(outbox) => self.fragments.read(token, cwd.map(PathBuf::from), move |input| outbox.tell(input)),
            Err(error) => {
                tracing::warn!(%error, "fragments are not read");
                let states = Vec::new();
                self.engine.handle(self.clock.now(), Input::FragmentsRead { token, states }, effects);
            }
        }
    }

    /// Lets lines go on that have waited: all that was read until now is decided on, and nothing is read in between.
    pub(super) fn let_go(&mut self, token: Token, effects: &mut Vec<Effect>) -> Option<Exit> {
        let mut at_once = Vec::new();
        self.engine.handle(self.clock.now(), Input::ReleaseHeld(token), &mut at_once);
        let exit = self.carry_out(&mut at_once);
        effects.append(&mut at_once);
        exit
    }

    /// Passes lines of the client's on that have waited.
    pub(super) fn pass_held(&mut self, lines: Vec<LateLine>, effects: &mut Vec<Effect>) {
        let mut batch = self.recorder.batch(self.clock.now(), &self.notices);
        let (mut outgoing, mut passed) = (Vec::new(), Passed::default());
        for LateLine { bytes, end, effects: of_line } in &lines {
            let line = Line { bytes, end: *end };
            for effect in of_line {
                let sent = match (effect, &mut batch) {
                    (Effect::Record(form), Some(batch)) => {
                        passed.omitted_lines += u64::from(matches!(form, Form::Omitted(_)));
                        batch.push_line(Side::Client, form, line);
                        None
                    }
                    (Effect::Record(_), None) => {
                        self.recorder.miss_line();
                        None
                    }
                    (Effect::Forward, _) => Some(end.ends(bytes.clone())),
                    (Effect::Replace(own), batch) => {
                        match batch {
                            Some(batch) => batch.push_replacement(own, *end),
                            None => self.recorder.miss_line(),
                        }
                        Some(end.ends(own.bytes.clone()))
                    }
                    (Effect::Send(own), batch) => {
                        match batch {
                            Some(batch) => batch.push_own_line(own),
                            None => self.recorder.miss_line(),
                        }
                        Some(LineEnd::Newline.ends(own.bytes.clone()))
                    }
                    (later, _) => {
                        effects.push(later.clone());
                        None
                    }
                };
                passed.bytes += sent.as_ref().map_or(0, |sent| sent.len() as u64);
                outgoing.extend(sent);
            }
        }
        if let Some(batch) = batch {
            self.recorder.commit(batch, &mut self.notices);
        }
        outgoing.into_iter().for_each(|bytes| self.from_client.inject(bytes, None));
        self.published.count(Side::Client, passed);
        self.flush(Side::Client, self.clock.now(), effects);
    }

    /// The client has written all that it will, and lines of it wait: they wait no longer, and its end comes behind them.
    pub(super) fn client_ends(&mut self, effects: &mut Vec<Effect>) -> bool {
        let waits = self.engine.holds_lines() && self.from_client.is_at_end();
        if waits {
            self.engine.handle(self.clock.now(), Input::ReleaseAllHeld, effects);
        }
        waits
    }
}
