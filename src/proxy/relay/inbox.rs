//! The inbox: messages from other threads to the relay, which also wake its poll.
//!
//! The inbox is bounded. A thread that posts to a full inbox blocks, an API call is refused, and the relay itself never
//! waits.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::config::Settings;
use crate::control::{Message, Reply};
use crate::engine::{ApiCallId, ApiReply, Input};
use crate::invariants::holds;

/// Capacity of the inbox, in messages.
const MESSAGES_MAX: usize = 256;

/// The receiving end, which the relay owns.
#[derive(Debug)]
pub struct Inbox(Receiver<Message>);

/// A sending end, which other threads own.
#[derive(Debug, Clone)]
pub(super) struct Outbox {
    messages: SyncSender<Message>,
    /// The write end of the relay's wake-up socket: one descriptor for all threads.
    wake: Arc<UnixStream>,
}

/// Creates both ends; the loop polls the other end of `wake`.
pub(super) fn inbox(wake: UnixStream) -> (Outbox, Inbox) {
    let (messages, taken) = sync_channel(MESSAGES_MAX);
    (Outbox { messages, wake: Arc::new(wake) }, Inbox(taken))
}

impl Inbox {
    pub fn take(&self) -> Option<Message> {
        self.0.try_recv().ok()
    }
}

impl Outbox {
    /// Posts an input to the relay and wakes it.
    pub(super) fn post(&self, input: Input) {
        self.send(Message::Input(input));
    }

    pub(super) fn configure(&self, settings: Settings) {
        self.send(Message::Configure(Box::new(settings)));
    }

    fn send(&self, message: Message) {
        // Fails only after the relay has ended.
        if self.messages.send(message).is_ok() {
            self.wake();
        }
    }

    /// As [`Outbox::post`], for a caller that may be the relay's own thread, which must not wait for itself.
    pub(super) fn try_post(&self, input: Input) {
        if self.messages.try_send(Message::Input(input)).is_ok() {
            self.wake();
        } else {
            tracing::warn!("the inbox is full: a message from another part of the relay is lost");
        }
    }

    /// Forwards a message of the control socket. If the inbox is full, a question is dropped, which closes its reply channel, and so
    /// is a report for the engine; a client's connection waits for room, because the relay must learn of it.
    pub(super) fn forward(&self, message: Message) {
        match message {
            Message::Call(..) | Message::Input(_) | Message::Configure(_) => {
                if self.messages.try_send(message).is_ok() {
                    self.wake();
                }
            }
            Message::Client { .. } => self.send(message),
        }
    }

    fn wake(&self) {
        use std::io::Write as _;
        // A full socket wakes the loop as well.
        let _ = (&*self.wake).write(&[0]);
    }
}

/// API callers that wait for a reply.
#[derive(Debug, Default)]
pub struct ApiCallers {
    last_id: ApiCallId,
    waiting: HashMap<ApiCallId, Reply>,
}

impl ApiCallers {
    pub fn add(&mut self, reply: Reply) -> ApiCallId {
        self.waiting.retain(|_, reply| !reply.is_closed());
        self.last_id += 1;
        let earlier = self.waiting.insert(self.last_id, reply);
        holds!("callers.number-is-new", earlier.is_none());
        self.last_id
    }

    /// Whether another one than this still waits.
    pub fn are_waiting_besides(&self, caller: ApiCallId) -> bool {
        self.waiting.iter().any(|(waiting, reply)| *waiting != caller && !reply.is_closed())
    }

    /// Replies to a caller; returns whether it still waited.
    pub fn reply(&mut self, caller: ApiCallId, reply: ApiReply) -> bool {
        self.waiting.remove(&caller).is_some_and(|waiting| waiting.send(reply).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_reports_whether_the_caller_still_waits() {
        let mut callers = ApiCallers::default();
        let (reply, replied) = tokio::sync::oneshot::channel();
        let here = callers.add(reply);
        assert!(callers.reply(here, ApiReply::Done) && !callers.reply(here, ApiReply::Done));
        drop(replied);
        let (reply, replied) = tokio::sync::oneshot::channel();
        let gone = callers.add(reply);
        drop(replied);
        assert!(!callers.reply(gone, ApiReply::Done));
    }
}
