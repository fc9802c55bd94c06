//! The state of a hub's engine on its way to the program that takes over, with its connections, from this one.
//!
//! Serde writes all of it except the settings, which the other program loads itself. Work that others still do for this program (the
//! ledger, a check, the server for a caller of the control socket) is not part of it: the handover waits for its end.

use super::{Engine, EngineSettings, Input, LiveSettings, Now};

impl Engine {
    /// Whether no work is in progress that would end with this process.
    pub fn is_at_rest(&self) -> bool {
        self.assembly.holds.is_empty()
            && !self.budget.is_looking()
            && self.interrupts.is_empty()
            && self.requests.are_at_rest()
            && self.calls.to_server.are_at_rest()
    }

    /// Goes on with the state of another program, and with the settings of this one.
    pub fn taken_over(&mut self, now: Now, settings: EngineSettings) {
        let EngineSettings { exit_grace, context, requests, assembly, budget, .. } = settings;
        self.exit_grace = exit_grace;
        self.assembly.taken_over(assembly.context_engine.as_ref().filter(|_| !self.is_safe()));
        let live = LiveSettings { context, requests, fragments: assembly.fragments, budget };
        // Nothing is held but turns beyond a budget, of which the next look comes in time.
        self.handle(now, Input::Configured(Box::new(live)), &mut Vec::new());
    }
}
