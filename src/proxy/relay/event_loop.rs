//! The event loop, of relays and hubs alike: one thread polls the signals, the inbox and the ends of links, and has the session do
//! what is due.
//!
//! Only the poll waits.

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use smallvec::SmallVec;

use super::core::Core;
use crate::control::{Message, Reply};
use crate::engine::{ApiCallId, ApiRequest, Effect, Now, earlier};
use crate::os::polling::{PollFd, PollFlags, poll, poll_one};
use crate::os::signals::Signals;

/// Descriptors for which no memory is allocated: more than a relay has.
const FEW: usize = 5;

/// A relay, or a hub.
pub trait Session {
    /// An end that is polled.
    type Polled: Copy;
    /// Why the loop ends.
    type Ending;

    fn core(&self) -> &Core;

    fn core_mut(&mut self) -> &mut Core;

    /// Carries out all effects, before the loop waits.
    fn settle(&mut self, effects: &mut Vec<Effect>) -> Option<Self::Ending>;

    /// The ends that can be read or written now.
    fn interests<'a>(&'a self, polled: &mut Polled<'a, Self::Polled>);

    /// When something is due, besides what is due in the core. It does not wait if that is now.
    fn next_deadline(&self) -> Option<Duration>;

    /// The wait is over, and nothing has been read yet.
    fn woken(&mut self, woken: &Woken<Self::Polled>, effects: &mut Vec<Effect>);

    fn signalled(&mut self, numbers: Vec<i32>, now: Now, effects: &mut Vec<Effect>) -> Option<Self::Ending>;

    /// Handles a request of an API caller that waits for a reply under this number.
    fn api_call(&mut self, request: ApiRequest, api_call: ApiCallId, now: Now, effects: &mut Vec<Effect>);

    /// A client takes the place for which the engine has admitted it. Clients of a hub have sockets of their own.
    fn attach(&mut self, admission: ApiCallId, client: Option<UnixStream>, now: Now, effects: &mut Vec<Effect>);

    /// Reads and writes what can be read and written.
    fn pass(&mut self, woken: &Woken<Self::Polled>, now: Now, effects: &mut Vec<Effect>) -> Option<Self::Ending>;

    /// Does what is due, besides the engine's own deadlines.
    fn finish_round(&mut self, now: Now, effects: &mut Vec<Effect>) -> Option<Self::Ending>;
}

/// The descriptors that are polled, each with its end.
pub struct Polled<'a, E> {
    fds: SmallVec<[PollFd<'a>; FEW]>,
    ends: SmallVec<[E; FEW]>,
}

impl<'a, E> Polled<'a, E> {
    fn new(signals: &'a Signals) -> Polled<'a, E> {
        let mut fds = SmallVec::new();
        fds.push(PollFd::new(signals, PollFlags::IN));
        Polled { fds, ends: SmallVec::new() }
    }

    pub fn add(&mut self, end: E, (fd, flags): (BorrowedFd<'a>, PollFlags)) {
        self.fds.push(PollFd::from_borrowed_fd(fd, flags));
        self.ends.push(end);
    }
}

/// What the wait has ended with.
#[derive(Debug)]
pub struct Woken<E> {
    signals: bool,
    /// The ends that are ready, and what for.
    pub ends: SmallVec<[(E, PollFlags); FEW]>,
}

impl<E: PartialEq> Woken<E> {
    pub fn has(&self, end: E) -> bool {
        self.ends.iter().any(|(ready, _)| *ready == end)
    }
}

/// Waits until there is something to do, or until a given time, and does it. Returns why the loop ends, if it does.
pub fn step<S: Session>(session: &mut S, until: Option<Duration>, effects: &mut Vec<Effect>) -> Option<S::Ending> {
    if let Some(ending) = session.settle(effects) {
        return Some(ending);
    }
    let woken = wait(session, until);
    let now = session.core().clock.now();
    session.woken(&woken, effects);
    if woken.signals {
        let numbers = session.core_mut().signals.take();
        if let Some(ending) = session.signalled(numbers, now, effects) {
            return Some(ending);
        }
    }
    take_messages(session, now, effects);
    if let Some(ending) = session.pass(&woken, now, effects) {
        return Some(ending);
    }
    session.core_mut().tick_if_due(now, effects);
    session.finish_round(now, effects)
}

/// Polls until an end is ready, a signal or a message comes, or something is due.
fn wait<S: Session>(session: &S, until: Option<Duration>) -> Woken<S::Polled> {
    let core = session.core();
    let mut polled = Polled::new(&core.signals);
    session.interests(&mut polled);
    let due = earlier(earlier(core.next_deadline(), session.next_deadline()), until);
    let Polled { mut fds, ends } = polled;
    // By a signal, which is then handled like any other.
    let interrupted = poll(&mut fds, due.map(|due| due.saturating_sub(core.clock.elapsed()))).is_err();
    let mut woken = Woken { signals: interrupted, ends: SmallVec::new() };
    if !interrupted {
        woken.signals = !fds[0].revents().is_empty();
        for (end, fd) in ends.iter().zip(&fds[1..]) {
            let flags = fd.revents();
            if !flags.is_empty() {
                woken.ends.push((*end, flags));
            }
        }
    }
    woken
}

/// Waits for a signal or a message, for `wait` at most.
pub fn wait_for_core(core: &Core, wait: Option<Duration>) {
    let _ = poll_one(&core.signals, PollFlags::IN, wait);
}

/// Takes all messages out of the inbox. Returns whether there were any.
pub fn take_messages<S: Session>(session: &mut S, now: Now, effects: &mut Vec<Effect>) -> bool {
    session.core_mut().recorder.drain_overflow();
    let waiting = session.core().engine.context_waiting();
    let mut has_changed = false;
    while let Some(message) = session.core_mut().inbox.take() {
        has_changed = true;
        match message {
            Message::Input(input) => session.core_mut().engine.handle(now, input, effects),
            Message::Configure(settings) => session.core_mut().configure(*settings, effects),
            Message::Call(request, reply) => call(session, request, reply, now, effects),
            Message::Client { admission, client } => session.attach(admission, client, now, effects),
        }
    }
    session.core_mut().report_refused(effects);
    if has_changed {
        session.core_mut().publish_waiting(waiting);
    }
    has_changed
}

fn call<S: Session>(session: &mut S, request: ApiRequest, reply: Reply, now: Now, effects: &mut Vec<Effect>) {
    let api_call = session.core_mut().callers.add(reply);
    session.api_call(request, api_call, now, effects);
}
