//! A stream whose writes time out if the peer stops reading.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::places::Place;

/// A stream with a limit on the duration of a pending write. The caller bounds reads.
#[derive(Debug)]
pub(super) struct Unstalled<S> {
    stream: S,
    stall_max: Duration,
    /// Notified of each write that makes progress.
    place: Option<Arc<Place>>,
    /// Set while a write is pending.
    gives_up: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncWrite + Unpin> Unstalled<S> {
    pub(super) fn new(stream: S, stall_max: Duration, place: Option<Arc<Place>>) -> Unstalled<S> {
        Unstalled { stream, stall_max, place, gives_up: None }
    }

    pub(super) fn into_inner(self) -> S {
        self.stream
    }

    /// Fails a pending write after the limit.
    fn bounded<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.gives_up = None;
            return written;
        }
        let stall_max = self.stall_max;
        let gives_up = self.gives_up.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + stall_max)));
        gives_up.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Unstalled<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unstalled<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let (Poll::Ready(Ok(_)), Some(place)) = (&written, &self.place) {
            place.moves_on();
        }
        self.bounded(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.bounded(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bounded(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixStream;

    #[test]
    fn a_stalled_reader_is_disconnected() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            let mut ours = Unstalled::new(ours, Duration::from_millis(1), None);
            let chunk = [0; 64 << 10];
            let error = loop {
                let written = std::future::poll_fn(|context| Pin::new(&mut ours).poll_write(context, &chunk)).await;
                if let Err(error) = written {
                    break error;
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            drop(theirs);
        });
    }
}
