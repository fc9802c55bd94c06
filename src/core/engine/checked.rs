//! Checks of the engine between two inputs. Each part checks itself; here is what they know of each other.
//!
//! A check of all is not for every line: it comes after each input that is not one, and once in [`LINES`] lines.

use std::collections::BTreeSet;

use super::model::Now;
use super::{Engine, ServerOwner};
use crate::invariants::holds;
use crate::wire::Conn;

/// How many lines pass between two checks of all. Tests check more often, and play fewer lines.
const LINES: usize = if cfg!(debug_assertions) { 1 } else { 16_384 };

/// How many inputs, likewise.
const INPUTS: usize = if cfg!(debug_assertions) { 1 } else { 64 };

/// How many of the things that are checked have one more line or input between two checks, so that the cost of each stays the same.
const THINGS: usize = 16;

/// Lines or inputs up to the next check.
#[derive(Debug, Default)]
pub(super) struct Countdown(usize);

impl Engine {
    /// A line was decided on.
    #[inline]
    pub(super) fn line_decided(&mut self) {
        match self.lines.0.checked_sub(1) {
            Some(left) => self.lines.0 = left,
            None => self.lines.0 = LINES - 1 + self.check() / THINGS,
        }
    }

    /// An input was handled.
    pub(super) fn input_handled(&mut self) {
        self.requests.check_taken();
        match self.inputs.0.checked_sub(1) {
            Some(left) => self.inputs.0 = left,
            None => self.inputs.0 = INPUTS - 1 + self.check() / THINGS,
        }
    }

    /// All deadlines were looked at.
    pub(super) fn ticked(&self, now: Now) {
        holds!("engine.tick-leaves-nothing-due", self.next_deadline().is_none_or(|due| due > now.elapsed));
    }

    /// Checks everything; returns how much there was.
    #[cold]
    fn check(&self) -> usize {
        self.requests.check();
        self.calls.check();
        self.context.check();
        self.threads.check(self.calls.to_server.last_key());
        self.clients.check(self.owner);
        self.watched.check(self.owner);
        self.assembly.holds.check();
        self.budget.check(self.assembly.holds.last_token());
        self.interrupts.check();
        self.unstarted.check();
        self.denials.check();
        self.shutdown.check(self.owner);
        self.secrets.check();
        self.check_connections();
        self.check_context();
        if self.is_safe() {
            self.requests.check_safe();
            holds!("held.everything-goes-on-in-the-safe-state", self.assembly.holds.are_given_up());
            holds!("assembly.off-in-the-safe-state", !self.assembly.is_set());
        }
        self.requests.count() + self.calls.to_server.iter().count() + self.threads.count()
    }

    /// The state of a connection goes with it.
    fn check_connections(&self) {
        let is_open = |conn: Conn| conn == Conn::OWN || self.clients.is_connected(conn);
        holds!("calls.clients-call-on-open-connections", self.calls.to_server.conns().all(is_open));
        holds!("calls.server-calls-on-open-connections", self.calls.to_client.conns().all(is_open));
        holds!("held.lines-come-from-open-connections", self.assembly.holds.conns().all(is_open));
        holds!("budget.lines-come-from-open-connections", self.budget.conns().all(is_open));
        holds!("clients.newest-connection-is-known", self.clients.newest() <= self.requests.newest_connection());
        let has_connection = self.is_initialized(Conn::OWN);
        holds!("watched.subscribes-over-a-connection", self.watched.has_no_subscription() || has_connection);
        holds!("clients.greeting-is-of-a-served-client", {
            self.clients.own().initialized_with.is_none() || self.clients.own().is_served()
        });
        holds!("engine.drains-only-a-server-that-outlives-us", !self.is_draining || self.owner == ServerOwner::Hub);
    }

    /// Context is on its way once, and arrives or comes back.
    fn check_context(&self) {
        let in_calls = self.calls.to_server.iter().filter_map(|call| call.lease.as_ref()).map(|lease| lease.delivery());
        let all: Vec<u64> = in_calls.chain(self.context.joined_deliveries()).collect();
        let different: BTreeSet<u64> = all.iter().copied().collect();
        holds!("context.delivery-has-one-carrier", different.len() == all.len());
        holds!("context.leased-is-on-its-way", self.context.leased().all(|delivery| different.contains(&delivery)));
        holds!(
            "context.carriers-have-made-deliveries",
            different.iter().all(|delivery| self.context.has_made(*delivery))
        );
        holds!("context.joins-turns-only-in-hubs", {
            self.owner.has_many_clients() || self.context.joined_deliveries().next().is_none()
        });
    }
}
