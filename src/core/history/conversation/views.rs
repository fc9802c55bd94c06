//! The state of conversations as views read it: rows, transcripts, UI events and activities.

use super::super::record_event::MethodMessage;
use super::super::request::Request;
use super::super::turn::Thread;
use super::{Conversation, Tool};
use crate::journal::Position;
use crate::protocol::{ItemPlace, Method};

impl Conversation {
    pub(in crate::history) fn threads(&self) -> impl Iterator<Item = (&str, &Thread)> {
        self.threads.iter().filter_map(|(id, thread)| Some((id.as_deref()?, thread)))
    }

    pub(in crate::history) fn thread_of(&self, thread_id: &str) -> Option<&Thread> {
        self.threads.get(&Some(thread_id.to_owned()))
    }

    /// The request with the server's id.
    pub(in crate::history) fn request(&self, id: &str) -> Option<&Request> {
        self.requests.get(&id.to_owned())
    }

    /// The requests that wait for a human.
    pub(in crate::history) fn open_requests(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().map(|(_, request)| request).filter(|request| request.is_open())
    }

    /// The request about an item, whatever its state is.
    pub(in crate::history) fn request_about(&self, item: &ItemPlace) -> Option<&Request> {
        self.requests.iter().map(|(_, request)| request).find(|request| request.is_about(item))
    }

    /// The tool in progress at a place; some requests do not name the turn.
    pub(in crate::history) fn tool_at(&self, place: &ItemPlace) -> Option<&Tool> {
        let is_meant = |key: &ItemPlace| {
            key.item_id == place.item_id
                && key.thread_id == place.thread_id
                && (place.turn_id.is_none() || key.turn_id == place.turn_id)
        };
        self.tools.iter().find(|(key, tool)| !tool.is_ended && is_meant(key)).map(|(_, tool)| tool)
    }

    /// The tool in progress with exactly this place.
    pub(in crate::history) fn tool(&self, place: &ItemPlace) -> Option<&Tool> {
        self.tools.get(place).filter(|tool| !tool.is_ended)
    }

    /// The position of the first record whose text is not stored.
    pub(in crate::history) fn streamed_since(&self) -> Option<&Position> {
        self.threads.iter().filter_map(|(_, thread)| thread.turn.as_ref()?.streamed_since()).min()
    }

    /// Takes the text of a record that was processed before the state was stored.
    pub(in crate::history) fn recall(&mut self, at: &Position, message: &MethodMessage<'_>, met: &mut Vec<Position>) {
        let (Some(Method::AgentMessageDelta), Some(turn_id)) = (message.known, message.place.turn_id.as_deref()) else {
            return;
        };
        let thread_id = message.place.thread_id.as_deref().map(str::to_owned);
        self.threads.change(&thread_id, |thread| {
            let delta = message.place.delta.as_deref().unwrap_or_default();
            let turn = thread.running_mut(turn_id);
            turn.into_iter().for_each(|turn| turn.recall(at, message.place.item_id.as_deref(), delta, met));
        });
    }
}
