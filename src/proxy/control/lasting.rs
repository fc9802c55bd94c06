//! A listener on a socket of ours that lasts: the socket is bound again if its files are gone.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::os;
use crate::socket::{Endpoint, EndpointState, FaultChange, LOOK_EVERY};

/// The endpoint of a listener, shared with the one who removes its files at the end; `None` once they are removed.
#[derive(Debug, Clone)]
pub struct SharedEndpoint(Arc<Mutex<Option<Endpoint>>>);

impl SharedEndpoint {
    pub fn new(endpoint: Endpoint) -> SharedEndpoint {
        SharedEndpoint(Arc::new(Mutex::new(Some(endpoint))))
    }

    /// Removes the socket for good. Open connections stay open.
    pub fn remove(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// The state for another process; `None` if nothing listens now.
    pub fn state(&self) -> Option<EndpointState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.state()
    }

    /// Has the program that this process becomes inherit the socket.
    pub fn share(&self) -> os::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(Ok(()), Endpoint::share)
    }

    /// Leaves the socket to another process.
    pub fn leave(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().into_iter().for_each(Endpoint::leave);
    }

    /// The new listener if the socket had to be bound again, and its fault if that has changed.
    fn look(&self) -> (Option<UnixListener>, Option<FaultChange>) {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(endpoint) => endpoint.look(UnixListener::from_std),
            None => (None, None),
        }
    }
}

/// A change of a socket that cannot be there, in words.
#[derive(Debug, Clone, Copy)]
pub enum SocketFault<'a> {
    Began(&'a str),
    Ended(&'a str),
}

/// A listener that accepts connections on tokio. It looks after its files while it waits.
pub struct LastingListener<R> {
    endpoint: SharedEndpoint,
    listener: UnixListener,
    look: Interval,
    report: R,
}

impl<R: Fn(SocketFault<'_>)> LastingListener<R> {
    /// Reports each fault of the socket, and its end.
    pub fn new(
        endpoint: SharedEndpoint,
        listener: std::os::unix::net::UnixListener,
        report: R,
    ) -> io::Result<LastingListener<R>> {
        let mut look = interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(LastingListener { endpoint, listener: UnixListener::from_std(listener)?, look, report })
    }

    /// The next connection.
    pub async fn accept(&mut self) -> io::Result<UnixStream> {
        loop {
            tokio::select! {
                // Connections first: when it is time to look, none waits at a listener that is replaced.
                biased;
                accepted = self.listener.accept() => return accepted.map(|(stream, _)| stream),
                _ = self.look.tick() => self.look(),
            }
        }
    }

    fn look(&mut self) {
        let (listener, change) = self.endpoint.look();
        if let Some(listener) = listener {
            self.listener = listener;
        }
        if let Some(FaultChange { ended, new }) = change {
            ended.iter().for_each(|fault| (self.report)(SocketFault::Ended(fault)));
            new.iter().for_each(|fault| (self.report)(SocketFault::Began(fault)));
        }
    }
}
