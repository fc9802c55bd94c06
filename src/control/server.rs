//! The server thread: accepts connections, and bounds their number and durations.
//!
//! A connection has a slot: it waits for its client, or answers, or is a stream. Requests and streams have separate limits. If
//! all request slots are taken, the connection that has waited longest for its client is closed: an idle one, or one whose client
//! sends half a request or reads nothing. If there are too many streams, the one that has been idle longest ends. A connection
//! that is answering is never closed for another.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::{Extension, Router};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::lasting::{LastingListener, SharedEndpoint, SocketFault};
use super::published::Published;
use super::routes;
use super::routes::{AppState, Ask, Message, Refusal, SessionInfo, Stores};
use crate::engine::{Input, RefusedPeer};
use crate::socket::{Callers, Endpoint, Peer, Refused, SocketError};

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
pub(crate) const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(200);

const STACK_BYTES: usize = 1 << 20;

/// Binds the socket and starts a thread that serves it until the process ends. The thread calls `report` if it cannot run, and while
/// something else is in the place of the socket.
///
/// # Errors
///
/// Nothing is bound after an error.
pub(crate) fn start(
    info: SessionInfo,
    published: Arc<Published>,
    stores: Stores,
    ask: Ask,
    report: impl Fn(SocketFault<'_>) + Send + 'static,
) -> Result<ControlSocket, SocketError> {
    let short_name = format!("{}-{}.sock", info.generation, std::process::id());
    let at = info.session_dir.join(super::SOCKET_FILE);
    let (endpoint, listener, path) = Endpoint::bind(&at, info.runtime_dir.as_deref(), short_name)?;
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
pub(crate) struct ControlSocket {
    endpoint: SharedEndpoint,
    ending: oneshot::Sender<SyncSender<()>>,
}

impl ControlSocket {
    /// Removes the socket's files, and waits at most [`LAST_RESPONSES_WAIT_MAX`] until the responses in preparation are written:
    /// their callers learn that the server has ended.
    pub(crate) fn close(self) {
        self.endpoint.remove();
        let (written, all_written) = sync_channel(1);
        if self.ending.send(written).is_ok() {
            let _ = all_written.recv_timeout(LAST_RESPONSES_WAIT_MAX);
        }
    }
}

/// How long the last responses may delay the end of the process.
const LAST_RESPONSES_WAIT_MAX: Duration = Duration::from_millis(250);

/// Waits for the end of the relay, and then until no response is in preparation.
async fn end(ending: oneshot::Receiver<SyncSender<()>>, places: &Places) {
    let Ok(written) = ending.await else { return };
    loop {
        let answered = places.answered.notified();
        if places.counts_of(Activity::Answer) == 0 {
            break;
        }
        answered.await;
    }
    // The task that has just prepared a response writes it before it lets this one run.
    let _ = written.send(());
}

/// A runtime on the caller's thread, for a program whose calls to relays block on at most this many threads.
pub(crate) fn runtime_of_calls(threads_max: usize) -> io::Result<Runtime> {
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
pub(crate) async fn serve<S>(stream: S, routes: Router, place: Arc<Place>)
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
pub(crate) fn routes_of_peer(
    stream: &UnixStream,
    callers: &Callers,
    routes: &Router,
    report: impl FnOnce(&Refused),
) -> Option<Router> {
    let peer = match Peer::of(stream) {
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
pub(crate) fn refused_peer(socket: &'static str, refused: &Refused) -> RefusedPeer {
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

// Connection slots, and the rule by which one connection is closed in favour of another.

/// Connections served at once, streams excluded.
pub(super) const REQUESTS_MAX: usize = 64;

/// Streams served at once.
pub(crate) const STREAMS_MAX: usize = 64;

/// Streams that may end with a farewell at the same time; beyond these one is cut off.
const ENDING_MAX: usize = 16;

/// The last bytes of an evicted stream: a comment, and the pause before a reconnect.
const FAREWELL: &str =
    ": closed: too many streams are open, and this one was idle for the longest time\nretry: 5000\n\n";

/// A comment starts with this byte and is not an event.
const COMMENT: u8 = b':';

/// Response extension that marks a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream;

/// All connection slots.
#[derive(Debug, Default)]
pub(crate) struct Places {
    taken: Mutex<Taken>,
    /// Notified when a slot may have become free.
    changed: Notify,
    /// Notified when a response may have been written.
    answered: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    /// By number; later connections have higher numbers.
    connections: BTreeMap<u64, Connection>,
    last: u64,
    /// A logical clock.
    moments: Moment,
    counts: Counts,
}

/// A reading of the logical clock.
type Moment = u64;

/// Open connections, and those evicted so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) requests: usize,
    pub(super) streams: usize,
    pub(super) requests_closed: u64,
    pub(super) streams_closed: u64,
}

#[derive(Debug)]
struct Connection {
    activity: Activity,
    leave: watch::Sender<Leave>,
}

/// The activity of a connection and the moment of its last progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activity {
    WaitForClient(Moment),
    Answer,
    /// The moment is that of the last event.
    Stream(Moment),
    /// Evicted.
    End,
}

/// Whether a connection must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leave {
    No,
    /// After the farewell of a stream.
    Farewell,
    Now,
}

/// The slot of one connection.
#[derive(Debug)]
pub(crate) struct Place {
    number: u64,
    places: Arc<Places>,
    leave: watch::Receiver<Leave>,
}

impl Places {
    /// Waits for a request slot.
    pub(crate) async fn enter(self: &Arc<Places>) -> Arc<Place> {
        loop {
            let changed = self.changed.notified();
            if let Some(place) = self.try_enter() {
                return Arc::new(place);
            }
            changed.await;
        }
    }

    fn try_enter(self: &Arc<Places>) -> Option<Place> {
        let mut taken = self.taken();
        if taken.count(|activity| matches!(activity, Activity::WaitForClient(_) | Activity::Answer)) >= REQUESTS_MAX {
            taken.close_oldest(
                |activity| if let Activity::WaitForClient(since) = activity { Some(since) } else { None },
                None,
            )?;
            taken.counts.requests_closed += 1;
        }
        taken.last += 1;
        let number = taken.last;
        let (sender, leave) = watch::channel(Leave::No);
        let activity = Activity::WaitForClient(taken.now());
        taken.connections.insert(number, Connection { activity, leave: sender });
        drop(taken);
        Some(Place { number, places: Arc::clone(self), leave })
    }

    pub(super) fn counts(&self) -> Counts {
        let taken = self.taken();
        let requests = taken.count(|activity| matches!(activity, Activity::WaitForClient(_) | Activity::Answer));
        Counts { requests, streams: taken.count(|activity| matches!(activity, Activity::Stream(_))), ..taken.counts }
    }

    fn counts_of(&self, wanted: Activity) -> usize {
        self.taken().count(|activity| activity == wanted)
    }

    fn changed(&self) {
        self.changed.notify_one();
        self.answered.notify_waiters();
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn count(&self, wanted: impl Fn(Activity) -> bool) -> usize {
        self.connections.values().filter(|connection| wanted(connection.activity)).count()
    }

    fn now(&mut self) -> Moment {
        self.moments += 1;
        self.moments
    }

    /// Evicts the connection with the earliest moment, except `but`.
    fn close_oldest(&mut self, moment: impl Fn(Activity) -> Option<Moment>, but: Option<u64>) -> Option<()> {
        let is_ending = |activity: Activity| activity == Activity::End;
        let may_say_so = self.count(is_ending) < ENDING_MAX;
        let candidates = self.connections.iter_mut().filter(|(number, _)| Some(**number) != but);
        let candidates = candidates.filter_map(|(_, connection)| Some((moment(connection.activity)?, connection)));
        let (_, oldest) = candidates.min_by_key(|(since, _)| *since)?;
        let is_stream = matches!(oldest.activity, Activity::Stream(_));
        oldest.activity = Activity::End;
        let leave = if is_stream && may_say_so { Leave::Farewell } else { Leave::Now };
        // A connection that has just closed has no receiver.
        let _ = oldest.leave.send(leave);
        Some(())
    }
}

impl Place {
    /// Waits until the connection must end.
    pub(super) async fn left(&self) -> Leave {
        let mut leave = self.leave.clone();
        let evicted = leave.wait_for(|leave| *leave != Leave::No).await.map(|leave| *leave);
        evicted.unwrap_or(Leave::Now)
    }

    fn set(&self, next: impl FnOnce(Activity, Moment) -> Activity) {
        let mut taken = self.places.taken();
        let now = taken.now();
        if let Some(connection) = taken.connections.get_mut(&self.number)
            && connection.activity != Activity::End
        {
            connection.activity = next(connection.activity, now);
        }
        drop(taken);
        self.places.changed();
    }

    /// The connection is blocked until its client sends or reads something.
    pub(super) fn waits(&self) {
        self.set(
            |activity, now| {
                if let Activity::WaitForClient(_) = activity { activity } else { Activity::WaitForClient(now) }
            },
        );
    }

    /// The relay is working on a response.
    pub(super) fn answers(&self) {
        self.set(|_, _| Activity::Answer);
    }

    /// The client has read some of the response.
    pub(super) fn moves_on(&self) {
        self.set(
            |activity, now| {
                if let Activity::WaitForClient(_) = activity { Activity::WaitForClient(now) } else { activity }
            },
        );
    }

    /// The response is a stream; this may evict another one.
    pub(super) fn streams(&self) {
        self.set(|_, now| Activity::Stream(now));
        let mut taken = self.places.taken();
        if taken.count(|activity| matches!(activity, Activity::Stream(_))) > STREAMS_MAX {
            let last_sent = |activity| if let Activity::Stream(at) = activity { Some(at) } else { None };
            let closed = taken.close_oldest(last_sent, Some(self.number));
            taken.counts.streams_closed += u64::from(closed.is_some());
        }
    }

    /// The stream was sent an event.
    fn sent(&self) {
        self.set(|activity, now| if let Activity::Stream(_) = activity { Activity::Stream(now) } else { activity });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().connections.remove(&self.number);
        self.places.changed();
    }
}

/// A request body. While it is incomplete, the connection waits for its client.
pub(super) struct Awaited<B> {
    body: B,
    place: Arc<Place>,
}

impl<B> Awaited<B> {
    pub(super) fn new(body: B, place: Arc<Place>) -> Awaited<B> {
        Awaited { body, place }
    }
}

impl<B: HttpBody + Unpin> HttpBody for Awaited<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Pending => self.place.waits(),
            // A client that trickles bytes still counts as waiting.
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(None | Some(Err(_))) => self.place.answers(),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Awaited<B> {
    fn drop(&mut self) {
        self.place.answers();
    }
}

/// A response body. Once it is written, the connection waits for its client again.
pub(super) struct Answered {
    body: Body,
    place: Arc<Place>,
    /// Ends a stream that is evicted.
    farewell: Option<Pin<Box<dyn Future<Output = Leave> + Send>>>,
    is_over: bool,
}

impl Answered {
    pub(super) fn new(body: Body, place: Arc<Place>) -> Answered {
        Answered { body, place, farewell: None, is_over: false }
    }

    /// A response that lasts until its reader leaves or it is evicted.
    pub(super) fn stream(body: Body, place: Arc<Place>) -> Answered {
        place.streams();
        let own = Arc::clone(&place);
        let farewell = Box::pin(async move { own.left().await });
        Answered { body, place, farewell: Some(farewell), is_over: false }
    }
}

impl HttpBody for Answered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Some(farewell) = &mut self.farewell
            && farewell.as_mut().poll(context).is_ready()
        {
            self.is_over = true;
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(FAREWELL.as_bytes())))));
        }
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && frame.data_ref().is_some_and(|data| data.first() != Some(&COMMENT))
        {
            self.place.sent();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.place.waits();
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

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
    }

    fn is_evicted(place: &Place) -> bool {
        *place.leave.borrow() != Leave::No
    }

    #[test]
    fn longest_waiting_connection_is_evicted() {
        runtime().block_on(async {
            let places = Arc::new(Places::default());
            let mut inside = Vec::new();
            for _ in 0..REQUESTS_MAX {
                inside.push(places.enter().await);
            }
            // The first one answers, and the second one has just read something.
            inside[0].answers();
            inside[1].moves_on();
            let late = places.enter().await;
            let evicted: Vec<usize> = (0..REQUESTS_MAX).filter(|at| is_evicted(&inside[*at])).collect();
            assert_eq!(evicted, [2]);
            assert_eq!((places.counts().requests, places.counts().requests_closed), (REQUESTS_MAX, 1));
            drop(late);
        });
    }

    #[test]
    fn answering_connections_are_never_evicted() {
        runtime().block_on(async {
            let places = Arc::new(Places::default());
            let mut inside = Vec::new();
            for _ in 0..REQUESTS_MAX {
                inside.push(places.enter().await);
            }
            inside.iter().for_each(|place| place.answers());
            assert!(places.try_enter().is_none());
            inside[5].waits();
            assert!(places.try_enter().is_some() && is_evicted(&inside[5]));
            inside.pop();
            assert!(places.try_enter().is_some());
        });
    }

    #[test]
    fn idlest_stream_is_evicted() {
        runtime().block_on(async {
            let places = Arc::new(Places::default());
            let mut streams = Vec::new();
            for _ in 0..STREAMS_MAX {
                let place = places.enter().await;
                place.streams();
                streams.push(place);
            }
            streams[0].sent();
            let counts = places.counts();
            assert_eq!((counts.requests, counts.streams, counts.streams_closed), (0, STREAMS_MAX, 0));
            let late = places.enter().await;
            late.streams();
            let evicted: Vec<usize> = (0..STREAMS_MAX).filter(|at| is_evicted(&streams[*at])).collect();
            assert_eq!((evicted, is_evicted(&late)), (vec![1], false));
            assert_eq!(streams[1].left().await, Leave::Farewell);
            assert_eq!(places.counts().streams, STREAMS_MAX);
        });
    }

    #[test]
    fn streams_that_do_not_end_are_cut_off() {
        runtime().block_on(async {
            let places = Arc::new(Places::default());
            let mut streams = Vec::new();
            for _ in 0..STREAMS_MAX + ENDING_MAX + 1 {
                let place = places.enter().await;
                place.streams();
                streams.push(place);
            }
            assert_eq!(streams[0].left().await, Leave::Farewell);
            assert_eq!(streams[ENDING_MAX].left().await, Leave::Now);
        });
    }
}
