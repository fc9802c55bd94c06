//! The server thread: accepts connections, and bounds their number and durations.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};

use axum::body::Body;
use axum::{Extension, Router};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::historian::Historian;
use super::places::{Answered, Awaited, Leave, Place, Places, Stream};
use super::published::Published;
use super::routes;
use super::socket::{self, Bound, SocketError, SocketFiles};
use super::state::{AppState, Ask, SessionInfo, Stores};

/// History queries that run at once; further ones wait.
const QUESTIONS_MAX: usize = 4;

/// How long a client may take to send a request head, counted from the connection or the last response.
const HEAD_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long a client may stop reading a response.
const WRITE_STALL_MAX: Duration = Duration::from_secs(30);

/// How long an evicted stream may take to write its farewell.
const FAREWELL_WAIT_MAX: Duration = Duration::from_secs(1);

/// Longest request head, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Pause after a failed accept. If file descriptors have run out, for example, the pending connection keeps the socket ready,
/// and the loop would spin.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(200);

const STACK_BYTES: usize = 1 << 20;

/// Binds the socket and starts a thread that serves it until the process ends. The thread calls `say_fault` at most once, if it
/// cannot run.
///
/// # Errors
///
/// Nothing is bound after an error.
pub(crate) fn start(
    info: SessionInfo,
    published: Arc<Published>,
    stores: Stores,
    ask: Option<Ask>,
    say_fault: impl FnOnce(&str) + Send + 'static,
) -> Result<SocketFiles, SocketError> {
    let short_name = format!("{}-{}.sock", info.generation, std::process::id());
    let Bound { listener, path, files } = socket::bind(&info.session_dir, info.runtime_dir.as_deref(), &short_name)?;
    let thread = std::thread::Builder::new().name("control".to_owned()).stack_size(STACK_BYTES);
    let Stores { ledger, index } = stores;
    let historian = index.map(|index| Historian::new(index, &info));
    let places = Arc::new(Places::default());
    let app = AppState::new(info, published, ledger, historian, ask, path.clone(), places);
    let started = thread.spawn(move || {
        let at = app.socket.clone();
        if let Err(error) = listen(listener, app) {
            say_fault(&format!("listen at {}: {error}", at.display()));
        }
    });
    match started {
        Ok(_) => Ok(files),
        Err(source) => {
            files.remove();
            Err(SocketError::Io { action: "start a thread for", path, source })
        }
    }
}

fn listen(listener: std::os::unix::net::UnixListener, app: AppState) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(QUESTIONS_MAX)
        .thread_stack_size(STACK_BYTES)
        .thread_name("history")
        .build()?;
    runtime.block_on(async {
        let listener = UnixListener::from_std(listener)?;
        let places = Arc::clone(&app.places);
        accept(listener, &places, routes::router(app)).await;
        Ok(())
    })
}

/// Serves connections until the process ends.
async fn accept(listener: UnixListener, places: &Arc<Places>, routes: Router) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if let Some(peer) = trusted(&stream) {
                    // While all slots are answering, new connections wait in the socket's backlog.
                    let place = places.enter().await;
                    tokio::spawn(serve(stream, routes.clone(), peer, place));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "accept a connection to the control socket");
                tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
            }
        }
    }
}

async fn serve(stream: UnixStream, routes: Router, peer: Peer, place: Arc<Place>) {
    let stream = TokioIo::new(Unstalled::new(stream, WRITE_STALL_MAX, Some(Arc::clone(&place))));
    let routes = TowerToHyperService::new(routes.layer(Extension(peer)));
    let own = Arc::clone(&place);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        own.answers();
        let (place, routes) = (Arc::clone(&own), routes.clone());
        async move {
            let request = request.map(|body| Body::new(Awaited::new(body, Arc::clone(&place))));
            let response = routes.call(request).await?;
            let is_stream = response.extensions().get::<Stream>().is_some();
            let watched = if is_stream { Answered::stream } else { Answered::new };
            Ok::<_, Infallible>(response.map(|body| watched(body, place)))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(stream, service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        leave = place.left() => match leave {
            Leave::Farewell => timeout(FAREWELL_WAIT_MAX, connection).await.unwrap_or(Ok(())),
            Leave::No | Leave::Now => Ok(()),
        },
    };
    // Errors of a single connection matter only to its client.
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the control socket");
    }
}

// The user and process at the other end of a connection.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer {
    uid: u32,
    pid: Option<i32>,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "uid {}, pid {pid}", self.uid),
            None => write!(f, "uid {}", self.uid),
        }
    }
}

/// The peer, if its user is our own or root.
pub(super) fn trusted(stream: &UnixStream) -> Option<Peer> {
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == rustix::process::geteuid().as_raw() => {
            Some(Peer { uid: peer.uid(), pid: peer.pid() })
        }
        Ok(peer) => {
            tracing::warn!(uid = peer.uid(), "another user at the control socket: closed");
            None
        }
        Err(error) => {
            tracing::warn!(%error, "the control socket's peer is unknown: closed");
            None
        }
    }
}

// A stream whose writes time out if the peer stops reading.

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
    use tokio::net::UnixStream;

    use super::*;

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
