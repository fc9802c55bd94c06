//! What other threads tell and ask the relay, and how they wake it.
//!
//! Bounded: who tells more than the relay has taken waits for it, who asks more is refused, and the relay waits for nobody.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::config::Settings;
use crate::control::{Errand, Reply};
use crate::engine::{ApiCallId, ApiReply, ApiRequest, Input};

/// Letters that may lie in the inbox.
const LETTERS_MAX: usize = 256;

/// What somebody tells or asks.
#[derive(Debug)]
pub(super) enum Letter {
    /// This has happened.
    Input(Input<'static>),
    /// The settings after a change of the config file.
    Configured(Box<Settings>),
    /// Somebody wants something, and waits.
    Asked { question: ApiRequest, reply: Reply },
    /// The client that was let in by this admission is there, or it is gone before it came.
    Client { admission: ApiCallId, client: Option<UnixStream> },
}

/// The relay's end.
#[derive(Debug)]
pub(super) struct Inbox(Receiver<Letter>);

/// Another thread's end.
#[derive(Debug)]
pub(super) struct Outbox {
    letters: SyncSender<Letter>,
    /// A byte into this wakes the loop.
    wake: UnixStream,
}

/// An inbox, and who puts something into it; `wake` is a stream that the loop polls the other end of.
pub(super) fn inbox(wake: UnixStream) -> (Outbox, Inbox) {
    let (letters, taken) = sync_channel(LETTERS_MAX);
    (Outbox { letters, wake }, Inbox(taken))
}

impl Inbox {
    /// The next letter, where there is one.
    pub(super) fn take(&self) -> Option<Letter> {
        self.0.try_recv().ok()
    }
}

impl Outbox {
    /// Another end of the same.
    pub(super) fn try_clone(&self) -> io::Result<Outbox> {
        Ok(Outbox { letters: self.letters.clone(), wake: self.wake.try_clone()? })
    }

    /// Tells the relay something, and wakes it.
    pub(super) fn tell(&self, input: Input<'static>) {
        self.send(Letter::Input(input));
    }

    /// Sends changed settings to the relay.
    pub(super) fn configure(&self, settings: Settings) {
        self.send(Letter::Configured(Box::new(settings)));
    }

    fn send(&self, letter: Letter) {
        // A relay that has ended takes nothing.
        if self.letters.send(letter).is_ok() {
            self.wake();
        }
    }

    /// As [`Outbox::tell`], from the relay's own thread, which cannot wait for itself.
    pub(super) fn tell_self(&self, input: Input<'static>) {
        if self.letters.try_send(Letter::Input(input)).is_ok() {
            self.wake();
        } else {
            tracing::warn!("the inbox is full: a request may be without a row");
        }
    }

    /// Asks the relay something, and wakes it; where it does not take any more, the reply is dropped. What it is told of a
    /// client it has to learn.
    pub(super) fn run(&self, errand: Errand) {
        match errand {
            Errand::Asked(question, reply) => {
                if self.letters.try_send(Letter::Asked { question, reply }).is_ok() {
                    self.wake();
                }
            }
            Errand::Client { admission, client } => self.send(Letter::Client { admission, client }),
        }
    }

    fn wake(&self) {
        use std::io::Write as _;
        // A stream that is full of wake-ups wakes as well.
        let _ = (&self.wake).write(&[0]);
    }
}

/// Who waits for a reply.
#[derive(Debug, Default)]
pub(super) struct Askers {
    asked: ApiCallId,
    waiting: HashMap<ApiCallId, Reply>,
}

impl Askers {
    /// One more.
    pub(super) fn add(&mut self, reply: Reply) -> ApiCallId {
        self.waiting.retain(|_, reply| !reply.is_closed());
        self.asked += 1;
        self.waiting.insert(self.asked, reply);
        self.asked
    }

    /// Tells one of them; gives whether it was still there to be told.
    pub(super) fn reply(&mut self, api_call: ApiCallId, reply: ApiReply) -> bool {
        self.waiting.remove(&api_call).is_some_and(|waiting| waiting.send(reply).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_somebody_was_told_is_known() {
        let mut askers = Askers::default();
        let (reply, replied) = tokio::sync::oneshot::channel();
        let here = askers.add(reply);
        assert!(askers.reply(here, ApiReply::Done) && !askers.reply(here, ApiReply::Done));
        drop(replied);
        let (reply, replied) = tokio::sync::oneshot::channel();
        let gone = askers.add(reply);
        drop(replied);
        assert!(!askers.reply(gone, ApiReply::Done));
    }
}
