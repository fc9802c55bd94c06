//! The state of a hub's engine on its way to the program that takes over, with its connections, from this one.
//!
//! Serde writes all of it except the settings, which the other program loads itself. Work that others still do for this program (the
//! ledger, a check, the server for a caller of the control socket) is not part of it: the handover waits for its end.

use serde::{Deserialize, Serialize};

use super::{Engine, EngineSettings, Input, LiveSettings, Now, Token};
use crate::invariants::holds;

/// Facts that a state must arrive with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    requests: usize,
    answers_on_their_way: usize,
    commands: usize,
    leased_commands: usize,
    calls: usize,
    threads: usize,
    connections: usize,
    subscriptions: usize,
    last_token: Token,
    is_broken: bool,
}

impl Engine {
    /// Whether no work is in progress that would end with this process.
    pub fn is_at_rest(&self) -> bool {
        self.assembly.holds.is_empty()
            && !self.budget.is_looking()
            && self.interrupts.is_empty()
            && self.requests.are_at_rest()
            && self.calls.to_server.are_at_rest()
    }

    /// Facts of this engine that its copy in the next program must have, too.
    pub fn arrival(&self) -> Arrival {
        Arrival {
            requests: self.requests.open_count(),
            answers_on_their_way: self.requests.on_their_way(),
            commands: self.context.waiting(),
            leased_commands: self.context.leased().count(),
            calls: self.calls.to_server.conns().count() + self.calls.to_client.conns().count(),
            threads: self.threads.count(),
            connections: self.clients.count(),
            subscriptions: self.clients.subscription_count(),
            last_token: self.last_token(),
            is_broken: self.is_safe(),
        }
    }

    /// Checks that all of it has come.
    pub fn check_arrival(&self, sent: &Arrival) {
        let come = self.arrival();
        holds!("handover.requests-arrive", come.requests == sent.requests);
        holds!("handover.answers-on-their-way-arrive", come.answers_on_their_way == sent.answers_on_their_way);
        holds!("handover.commands-arrive", come.commands == sent.commands);
        holds!("handover.leases-arrive", come.leased_commands == sent.leased_commands);
        holds!("handover.calls-arrive", come.calls == sent.calls);
        holds!("handover.threads-arrive", come.threads == sent.threads);
        holds!("handover.connections-arrive", come.connections == sent.connections);
        holds!("handover.subscriptions-arrive", come.subscriptions == sent.subscriptions);
        holds!("handover.tokens-go-on", come.last_token == sent.last_token);
        holds!("handover.safe-state-stays", come.is_broken == sent.is_broken);
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
