//! A client that attaches itself to a server of ours, and leaves it.
//!
//! Its socket stands at the client's end of both directions for as long as it is there. The engine has let it in, and is told
//! when it is gone; which lines it gets is decided there.

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::PollFlags;

use super::direction::Waiting;
use super::event_loop::Relay;
use super::lifecycle::Lifecycle;
use super::pipes::{Sink, Source};
use crate::engine::{ApiCallId, ApiReply, Effect, Input, Now};
use crate::wire::Side;

impl Relay {
    /// The client that was let in by this admission is there, or it is gone before it came.
    pub(super) fn client_came(
        &mut self,
        admission: ApiCallId,
        client: Option<UnixStream>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        // The server that it was let in for may have ended, and another one have been let in since.
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

    /// Takes the attached client away, once it has closed its end, all that it wrote has been handed on, and it has taken
    /// what was already written for it.
    pub(super) fn take_leave(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let owes_nothing = match self.from_server.waiting() {
            Waiting::ToRead | Waiting::Idle => true,
            Waiting::ToWrite | Waiting::Held => false,
        };
        if owes_nothing && self.from_client.has_closed() {
            self.detach_client(now, effects);
        }
    }

    /// What shows that an attached client has closed both its ends while nothing is read from it: it is gone, though the
    /// server may not take what it wrote for long.
    pub(super) fn sign_of_hanging_up(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match self.from_client.waiting() {
            Waiting::ToRead => None,
            Waiting::ToWrite | Waiting::Held | Waiting::Idle if !self.from_client.has_client() => None,
            Waiting::ToWrite | Waiting::Held | Waiting::Idle => {
                self.from_client.source_gone().or_else(|| self.from_server.sink_gone())
            }
        }
    }

    /// The client is gone while nothing was read from it.
    pub(super) fn client_hung_up(&mut self, now: Now, effects: &mut Vec<Effect>) {
        match self.lifecycle {
            Lifecycle::Client => {
                self.client_left = true;
                self.engine.handle(now, Input::ClientDisconnected, effects);
            }
            Lifecycle::Served { .. } => {
                // What it has written before is the server's all the same.
                let mut frames = std::mem::take(&mut self.scratch.frames);
                self.from_client.read_rest(now.elapsed, &mut frames);
                self.pass(Side::Client, now, frames, effects);
                self.detach_client(now, effects);
            }
        }
    }

    /// When an attached client counts as stalled: it has taken nothing for so long of what waits for it.
    pub(super) fn client_stalled_at(&self) -> Option<Duration> {
        let stall_max = self.engine.client_stall_max()?;
        self.from_server.stalled_since().map(|since| since + stall_max)
    }

    /// Cuts off an attached client that takes nothing, since the server and all others wait for it.
    pub(super) fn cut_off_stalled(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.client_stalled_at().is_none_or(|due| due > now.elapsed) {
            return;
        }
        let stall_max = self.engine.client_stall_max().unwrap_or_default();
        self.notices.say(&format!("the attached client has taken nothing for {stall_max:?}: it is cut off"));
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

    /// Tells somebody at the side. A client that has given up being let in is not let in.
    pub(super) fn reply(&mut self, api_call: ApiCallId, reply: ApiReply, effects: &mut Vec<Effect>) {
        let is_admission = matches!(reply, ApiReply::Admitted { .. });
        if !self.askers.reply(api_call, reply) && is_admission && self.engine.admitted() == Some(api_call) {
            self.engine.handle(self.clock.now(), Input::Detached, effects);
        }
    }

    /// Closes both ends that an attached client has.
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
