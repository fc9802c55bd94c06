//! A client that attaches itself to a server of ours, and leaves it.
//!
//! Its socket stands at the client's end of both directions for as long as it is there. The engine has let it in, and is told
//! when it is gone; which lines it gets is decided there.

use std::os::unix::net::UnixStream;

use super::direction::Waiting;
use super::event_loop::Relay;
use super::lifecycle::Lifecycle;
use super::pipes::{Sink, Source};
use crate::engine::{Effect, Input, Now};
use crate::wire::Side;

impl Relay {
    /// The client that was let in is there, or it is gone before it came.
    pub(super) fn client_came(&mut self, client: Option<UnixStream>, now: Now, effects: &mut Vec<Effect>) {
        // The server that it was let in for may have ended, and then it was told to the engine.
        if !self.engine.is_attended() || self.from_client.has_client() {
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
        let has_left = owes_nothing && self.from_client.has_closed();
        let server_is_deaf = self.from_client.was_given_up() && self.engine.is_attended();
        if has_left || server_is_deaf {
            self.engine.handle(now, Input::Detached, effects);
            self.close_client();
            self.flush(Side::Client, now, effects);
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
