//! A client of the demo's hub: connects, writes and reads messages, and waits with a timeout.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use super::DemoResult;
use super::client::{LOOK_EVERY, PATIENCE, check_told_to_end};
use super::message::{CallResult, Message};
use crate::os::polling::{PollFlags, poll_one};
use crate::os::sockets::connect;
use crate::protocol::Method;
use crate::socket::resolve_at;
use crate::websocket::{Connecting, End, Ended, Flushed, Reading, UpgradeRequest};

/// The path that clients of codex ask for.
const PATH: &str = "/rpc";

/// A client with a name.
pub(super) struct WebSocketClient {
    name: &'static str,
    end: End,
    waiting: VecDeque<String>,
    /// All messages so far, including those that the demo does not wait for.
    pub(super) received: Vec<String>,
    has_ended: bool,
    next_id: u64,
}

impl WebSocketClient {
    /// Connects, and introduces itself. Returns the client and the result of `initialize`.
    pub(super) fn connect(socket: &Path, name: &'static str) -> DemoResult<(WebSocketClient, CallResult)> {
        let failed = |error: &dyn std::fmt::Display| format!("connect to {}: {error}", socket.display());
        let stream = resolve_at(socket).and_then(|path| connect(&path)).map_err(|error| failed(&error))?;
        let mut connecting = Connecting::new(stream, &UpgradeRequest::of_path(PATH)).map_err(|error| failed(&error))?;
        let began = Instant::now();
        loop {
            match connecting.advance().map_err(|error| failed(&error))? {
                Some(response) if response.is_accepted() => break,
                Some(response) => return Err(failed(&format!("status {}", response.status))),
                None => {}
            }
            wait_for(connecting.as_fd(), connecting.wants_write(), began)?;
        }
        let (waiting, received) = (VecDeque::new(), Vec::new());
        let end = connecting.into_end();
        let mut client = WebSocketClient { name, end, waiting, received, has_ended: false, next_id: 0 };
        let info = json!({"name": name, "title": null, "version": env!("CARGO_PKG_VERSION")});
        let params =
            json!({"clientInfo": info, "capabilities": {"experimentalApi": true, "requiredHumanApproval": true}});
        let result = client.call(Method::Initialize.name(), params)?;
        client.send(&json!({"method": Method::Initialized.name()}))?;
        Ok((client, result))
    }

    /// Sends a request and waits for its result.
    pub(super) fn call(&mut self, method: &str, params: Value) -> DemoResult<CallResult> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"id": id, "method": method, "params": params}))?;
        let Message { result, error, .. } = self.wait(|message| message.answers(id))?;
        result.ok_or_else(|| format!("{method} of the {}: {}", self.name, error.message))
    }

    pub(super) fn send(&mut self, message: &Value) -> DemoResult<()> {
        self.end.send(message.to_string().into());
        let began = Instant::now();
        while self.end.wants_write() {
            match self.end.flush() {
                Flushed::All => {}
                Flushed::Full => wait_for(self.end.as_fd(), true, began)?,
                Flushed::Broken(error) => return Err(format!("write to the hub: {error}")),
            }
        }
        Ok(())
    }

    /// Waits for a message and skips those before it.
    pub(super) fn wait(&mut self, wanted: impl Fn(&Message) -> bool) -> DemoResult<Message> {
        let began = Instant::now();
        loop {
            while let Some(text) = self.waiting.pop_front() {
                let message = Message::parse(&text)?;
                if wanted(&message) {
                    return Ok(message);
                }
            }
            if self.has_ended {
                return Err(format!("the connection of the {} ended", self.name));
            }
            self.read(began)?;
        }
    }

    /// Waits for the end of the connection.
    pub(super) fn wait_for_end(&mut self) -> DemoResult<()> {
        let began = Instant::now();
        while !self.has_ended {
            self.read(began)?;
        }
        Ok(())
    }

    fn read(&mut self, began: Instant) -> DemoResult<()> {
        let mut messages = Vec::new();
        let reading = self.end.read(&mut messages);
        let is_idle = messages.is_empty();
        for message in messages {
            self.received.push(message.to_string());
            self.waiting.push_back(message.to_string());
        }
        match reading {
            Reading::Drained if is_idle => wait_for(self.end.as_fd(), self.end.wants_write(), began),
            Reading::More | Reading::Drained => Ok(()),
            Reading::Ended(Ended::Violation(violation)) => Err(format!("the hub sends {violation}")),
            Reading::Ended(_) => {
                self.has_ended = true;
                Ok(())
            }
        }
    }
}

/// Waits a moment for a descriptor; fails if the wait has taken too long or the demo has to end.
fn wait_for(fd: BorrowedFd<'_>, wants_write: bool, began: Instant) -> DemoResult<()> {
    check_told_to_end()?;
    if began.elapsed() >= PATIENCE {
        return Err(format!("nothing came back from the hub in {}s", PATIENCE.as_secs()));
    }
    let mut flags = PollFlags::IN;
    flags.set(PollFlags::OUT, wants_write);
    // A signal may end the wait early.
    let _ = poll_one(&fd, flags, Some(LOOK_EVERY));
    Ok(())
}
