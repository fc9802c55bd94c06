//! The server thread: accepts connections, and bounds their number and durations.
//!
//! A connection has a slot: it waits for its client, or answers, or is a stream. Requests and streams have separate limits. If
//! all request slots are taken, the connection that has waited longest for its client is closed: an idle one, or one whose client
//! sends half a request or reads nothing. If there are too many streams, the one that has been idle longest ends. A connection
//! that is answering is never closed for another.

use super::places::{Answered, Awaited, Leave, Place, Places, Stream};
use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::{Extension, Router};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::lasting::{LastingListener, SharedEndpoint, SocketFault};
use super::published::Published;
use super::routes;
use super::routes::{AppState, Ask, Message, Refusal, SessionInfo, Stores};
use crate::engine::{Input, RefusedPeer};
use crate::os;
use crate::socket::{Callers, Endpoint, EndpointState, Peer, Refused, SocketError};

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
pub const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(200);

const STACK_BYTES: usize = 1 << 20;

/// Binds the socket, or goes on with that of another process, and starts a thread that serves it until the process ends. The thread calls `report` if it cannot run, and while
/// something else is in the place of the socket.
///
/// # Errors
///
/// Nothing is bound after an error.
pub fn start(
    info: SessionInfo,
    before: Option<EndpointState>,
    published: Arc<Published>,
    stores: Stores,
    ask: Ask,
    report: impl Fn(SocketFault<'_>) + Send + 'static,
) -> Result<ControlSocket, SocketError> {
    let short_name = format!("{}-{}.sock", info.generation, std::process::id());
    let (at, runtime_dir) = (info.session_dir.join(super::SOCKET_FILE), info.runtime_dir.as_deref());
    let (endpoint, listener, path) = match before {
        Some(before) => Endpoint::taken_over(&at, runtime_dir, before)?,
        None => Endpoint::bind(&at, runtime_dir, short_name)?,
    };
    let endpoint = SharedEndpoint::new(endpoint);
    let thread = std::thread::Builder::new().name("control".to_owned()).stack_size(STACK_BYTES);
    let app = AppState::new(info, published, stores, ask, path.clone());
    let (ending, ended) = oneshot::channel();
    let own = endpoint.clone();
    let started = thread.spawn(move || {
        let at = app.socket.clone();
        if let Err(error) = listen(own, listener, app, &report, ended) {
            report(SocketFault::Began(&format!("listen at {}: {error}", at.display())));
        }
    });
    match started {
        Ok(_) => Ok(ControlSocket { endpoint, ending }),
        Err(source) => {
            endpoint.remove();
            Err(SocketError::Io { action: "start a thread for", path, source })
        }
    }
}

/// The socket while it is served.
#[derive(Debug)]
pub struct ControlSocket {
    endpoint: SharedEndpoint,
    ending: oneshot::Sender<SyncSender<()>>,
}

impl ControlSocket {
    /// Removes the socket's files, and waits at most [`LAST_RESPONSES_WAIT_MAX`] until the responses in preparation are written:
    /// their callers learn that the server has ended.
    pub fn close(self) {
        self.endpoint.remove();
        self.write_last(LAST_RESPONSES_WAIT_MAX);
    }

    /// The state for another process; `None` if nothing listens now.
    pub fn state(&self) -> Option<EndpointState> {
        self.endpoint.state()
    }

    /// As [`ControlSocket::close`], but the socket stays for the program that this process becomes, which waits less.
    pub fn leave(self) -> os::Result<()> {
        let endpoint = self.endpoint.clone();
        self.write_last(LAST_RESPONSES_OF_PROGRAM_WAIT_MAX);
        endpoint.share()?;
        endpoint.leave();
        Ok(())
    }

    fn write_last(self, wait_max: Duration) {
        let (written, all_written) = sync_channel(1);
        if self.ending.send(written).is_ok() {
            let _ = all_written.recv_timeout(wait_max);
        }
    }
}

/// How long the last responses may delay the end of the process.
const LAST_RESPONSES_WAIT_MAX: Duration = Duration::from_millis(250);

/// The same for the end of a program whose process goes on: its clients wait.
const LAST_RESPONSES_OF_PROGRAM_WAIT_MAX: Duration = Duration::from_millis(30);

/// Waits for the end of the relay, and then until no response is in preparation.
async fn end(ending: oneshot::Receiver<SyncSender<()>>, places: &Places) {
    let Ok(written) = ending.await else { return };
    places.all_answered().await;
    // The task that has just prepared a response writes it before it lets this one run.
    let _ = written.send(());
}

/// A runtime on the caller's thread, for a program whose calls to relays block on at most this many threads.
pub fn runtime_of_calls(threads_max: usize) -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().max_blocking_threads(threads_max).thread_name("call").build()
}

fn listen(
    endpoint: SharedEndpoint,
    listener: std::os::unix::net::UnixListener,
    app: AppState,
    report: &impl Fn(SocketFault<'_>),
    ending: oneshot::Receiver<SyncSender<()>>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(QUESTIONS_MAX)
        .thread_stack_size(STACK_BYTES)
        .thread_name("history")
        .build()?;
    runtime.block_on(async {
        let listener = LastingListener::new(endpoint, listener, report)?;
        let places = Arc::clone(&app.places);
        let app = Arc::new(app);
        tokio::join!(accept(listener, &app), end(ending, &places));
        Ok(())
    })
}

/// Serves connections until the process ends.
async fn accept(mut listener: LastingListener<impl Fn(SocketFault<'_>)>, app: &Arc<AppState>) {
    let routes = routes::router(Arc::clone(app));
    let report = |refused: &Refused| app.run(Message::Input(Input::PeerRefused(refused_peer("control", refused))));
    loop {
        match listener.accept().await {
            Ok(stream) => {
                if let Some(routes) = routes_of_peer(&stream, &app.info.callers, &routes, report) {
                    // While all slots are answering, new connections wait in the socket's backlog.
                    let place = app.places.enter().await;
                    tokio::spawn(serve(stream, routes, place));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "accept a connection to the control socket");
                // No event reports free descriptors.
                tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
            }
        }
    }
}

/// Serves one connection within the limits of its slot.
pub async fn serve<S>(stream: S, routes: Router, place: Arc<Place>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = TokioIo::new(Unstalled::new(stream, WRITE_STALL_MAX, Some(Arc::clone(&place))));
    let routes = TowerToHyperService::new(routes);
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
        tracing::debug!(%error, "a connection");
    }
}

// The process at the other end of a connection.

/// The routes for the process at the other end. They are `routes` if it may call, and a refusal of everything if it is confined.
/// `None` if its user is neither ours nor root.
pub fn routes_of_peer(
    stream: &UnixStream,
    callers: &Callers,
    routes: &Router,
    report: impl FnOnce(&Refused),
) -> Option<Router> {
    let peer = match Peer::of(stream) {
        // It only looked whether something listens.
        Ok(peer) if peer.has_left(stream) => return None,
        Ok(peer) if peer.is_ours() || peer.is_root() => peer,
        Ok(peer) => {
            tracing::warn!(uid = peer.uid, "another user at the control socket: closed");
            return None;
        }
        Err(error) => {
            tracing::warn!(%error, "the control socket's peer is unknown: closed");
            return None;
        }
    };
    match callers.check(stream, peer) {
        Ok(()) => Some(routes.clone().layer(Extension(peer))),
        Err(refused) => {
            report(&refused);
            Some(routes::refusing(Refusal::sandboxed(&refused)))
        }
    }
}

/// The event for a peer that this socket refused.
pub fn refused_peer(socket: &'static str, refused: &Refused) -> RefusedPeer {
    let Refused { peer, program, restriction } = refused;
    RefusedPeer { socket, reason: restriction.name(), uid: peer.uid, pid: peer.pid, program: program.clone() }
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
