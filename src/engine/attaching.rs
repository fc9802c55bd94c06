//! What an engine does where nobody but ourselves initializes the server: it greets a client that attaches itself, is told when
//! that has left, and answers where nobody is there to. Who gets which line is not decided here.

use std::collections::VecDeque;

use serde_json::value::RawValue;

use super::attendance;
use super::turns::{self, Purpose};
use super::version::{self, ClientName};
use super::{AskerId, Effect, Engine, Injection, Note, Now, SideReply, free_line, own_free_line};
use crate::protocol::{Event, Method};
use crate::wire::{Body, Message, Side};

impl Engine {
    /// Initializes the server, as a client would.
    pub(super) fn initialize(&mut self, effects: &mut Vec<Effect>) {
        let params = turns::initialize_params();
        let (_, line) = self.calls.call_server(Method::Initialize.name(), Some(&params), Purpose::Initialize);
        if let Body::Message(message) = Body::parse(&line) {
            effects.extend(self.version.learn(Side::Client, &Event::of(&message), None));
        }
        effects.push(Effect::Inject(Injection { lines: vec![free_line(line)], mark: None }));
    }

    /// Answers an attached client's `initialize` in the server's stead.
    pub(super) fn greet(&mut self, message: &Message<'_>, effects: &mut Vec<Effect>) {
        self.introduce(version::introduced(message).unwrap_or_default(), effects);
        effects.push(Effect::Note(Note::ClientAttached { name: self.client.clone() }));
        if let (Some(id), Some(result)) = (message.id, self.turns.initialized_with()) {
            effects.push(Effect::Answer(own_free_line(Side::Client, attendance::greeting(id, result))));
        }
    }

    /// The attached client has left, where there was one: we are alone again. Gives the ids of what it alone was asked.
    pub(super) fn detach(&mut self, now: Now, effects: &mut Vec<Effect>) -> VecDeque<Box<RawValue>> {
        let Some(left) = self.attendant.detach(now.elapsed, &mut self.calls) else { return VecDeque::new() };
        if left.was_answered {
            effects.push(Effect::Note(Note::ClientLeft { name: self.client.clone() }));
        }
        self.introduce(turns::own_name(), effects);
        left.asked
    }

    fn introduce(&mut self, client: ClientName, effects: &mut Vec<Effect>) {
        self.client.clone_from(&client.name);
        effects.push(Effect::Introduce(Box::new(client)));
    }

    /// A client wants to attach itself.
    pub(super) fn attach(&mut self, asker: AskerId, server_listens: bool, effects: &mut Vec<Effect>) -> SideReply {
        if self.attendant.is_attended() {
            return SideReply::ClientAttached { name: self.client.clone() };
        }
        if !server_listens || self.turns.initialized_with().is_none() {
            return SideReply::NotReady;
        }
        self.attendant.attach(asker);
        // Nobody knows yet who it is.
        self.introduce(ClientName::default(), effects);
        SideReply::Admitted { admission: asker }
    }
}

/// Tells the server that nobody is there to answer this.
pub(super) fn answer_for_nobody(id: &RawValue) -> Effect {
    Effect::Inject(Injection { lines: vec![free_line(attendance::nobodys_answer(id))], mark: None })
}
