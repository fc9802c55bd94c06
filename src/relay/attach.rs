//! A client that attaches to a served server, and detaches.
//!
//! While attached, its socket is the client end of both directions. The engine admits the client and decides which
//! lines it gets.

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::PollFlags;

use super::direction::Waiting;
use super::event_loop::Relay;
use super::pipes::{Sink, Source};
use super::serve_loop::Lifecycle;
use crate::engine::{ApiCallId, ApiReply, Effect, Input, Now};
use crate::wire::Side;

impl Relay {
    /// Connects the client that the engine admitted; `None` if it disconnected first.
    pub(super) fn attach_client(
        &mut self,
        admission: ApiCallId,
        client: Option<UnixStream>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        // The server may have ended meanwhile, and the engine may have admitted another client.
        if self.engine.admitted() != Some(admission) || self.from_client.has_client() {
            return;
        }
        let ends = client.and_then(|client| Some((Source::socket(client.try_clone().ok()?), Sink::socket(client))));
        match ends {
            Some((source, sink)) => {
                self.from_client.attach_source(source);
                self.from_server.attach_sink(sink);
            }
            None => self.engine.handle(now, Input::Detached, effects),
        }
    }

    /// Detaches the client once it has closed its end, all its lines are forwarded, and all output queued for it is
    /// written.
    pub(super) fn detach_if_done(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let owes_nothing = match self.from_server.waiting() {
            Waiting::ToRead | Waiting::Idle => true,
            Waiting::ToWrite | Waiting::Held => false,
        };
        if owes_nothing && self.from_client.has_closed() {
            self.detach_client(now, effects);
        }
    }

    /// The poll that detects that an attached client has closed both its ends while nothing is read from it: the server
    /// may not accept what it wrote for a long time.
    pub(super) fn attached_hang_up_poll(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match self.from_client.waiting() {
            Waiting::ToRead => None,
            Waiting::ToWrite | Waiting::Held | Waiting::Idle if !self.from_client.has_client() => None,
            Waiting::ToWrite | Waiting::Held | Waiting::Idle => {
                self.from_client.source_gone().or_else(|| self.from_server.sink_gone())
            }
        }
    }

    /// Handles a client that disconnected while nothing was read from it.
    pub(super) fn handle_disconnect(&mut self, now: Now, effects: &mut Vec<Effect>) {
        match self.lifecycle {
            Lifecycle::Client => {
                self.client_disconnected = true;
                self.engine.handle(now, Input::ClientDisconnected, effects);
            }
            Lifecycle::Served { .. } => {
                // The server still gets what the client wrote before it left.
                let mut frames = std::mem::take(&mut self.scratch.frames);
                self.from_client.read_rest(now.elapsed, &mut frames);
                self.pass(Side::Client, now, frames, effects);
                self.detach_client(now, effects);
            }
        }
    }

    /// When the attached client counts as stalled: it has not read queued output for the engine's limit.
    pub(super) fn client_stalled_at(&self) -> Option<Duration> {
        let stall_max = self.engine.client_stall_max()?;
        self.from_server.stalled_since().map(|since| since + stall_max)
    }

    /// Disconnects an attached client that reads nothing: the server and all other clients wait for it.
    pub(super) fn disconnect_stalled(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.client_stalled_at().is_none_or(|due| due > now.elapsed) {
            return;
        }
        let stall_max = self.engine.client_stall_max().unwrap_or_default();
        self.notices.report(&format!("the attached client has read nothing for {stall_max:?}; it is disconnected"));
        let mut frames = std::mem::take(&mut self.scratch.frames);
        self.from_client.end(&mut frames);
        self.pass(Side::Client, now, frames, effects);
        self.detach_client(now, effects);
    }

    fn detach_client(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.engine.handle(now, Input::Detached, effects);
        self.close_client();
        self.flush(Side::Client, now, effects);
    }

    /// Replies to an API caller. A client that no longer waits for its admission is detached.
    pub(super) fn reply(&mut self, caller: ApiCallId, reply: ApiReply, effects: &mut Vec<Effect>) {
        let is_admission = matches!(reply, ApiReply::Admitted { .. });
        if !self.callers.reply(caller, reply) && is_admission && self.engine.admitted() == Some(caller) {
            self.engine.handle(self.clock.now(), Input::Detached, effects);
        }
    }

    pub(super) fn close_client(&mut self) {
        match self.lifecycle {
            Lifecycle::Served { .. } => {
                self.from_client.detach_source();
                self.from_server.detach_sink();
            }
            Lifecycle::Client => {}
        }
    }
}
