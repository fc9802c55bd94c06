//! The thread that listens: who is let in, how many at once, and how long each may take.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::{Extension, Router};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::ask::Ask;
use super::historian::Historian;
use super::known::Known;
use super::peer::{Peer, trusted};
use super::places::{Answered, Awaited, Leave, Place, Places, Stream};
use super::published::Published;
use super::routes;
use super::socket::{self, Bound, SocketError, SocketFiles};
use super::stall::Unstalled;
use super::subject::{Beside, Subject};

/// Questions to the history that are answered at once; more wait for one of these.
const QUESTIONS_MAX: usize = 4;

/// How long a client may take to send the head of a request, from the connection or the last answer on.
const HEAD_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long a client may take nothing of an answer.
const WRITE_STALL_MAX: Duration = Duration::from_secs(30);

/// How long a stream that makes room for another may take to say so.
const FAREWELL_WAIT_MAX: Duration = Duration::from_secs(1);

/// Longest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// How long to leave a socket alone that could not accept. There is nothing to wait for: with no file descriptor left,
/// say, a connection still waits and the socket stays ready, so that without a pause this would only spin.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Stack of a thread, in bytes.
const STACK_BYTES: usize = 1 << 20;

/// Binds the socket, and has a thread of its own answer there to the end of the process. `beside` is what stands beside
/// the relay, and `ask` the way to it. `say_fault` is called on that
/// thread at most once, where it cannot.
///
/// # Errors
///
/// [`SocketError`]; nothing is bound then.
pub(crate) fn start(
    subject: Subject,
    published: Arc<Published>,
    beside: Beside,
    ask: Option<Ask>,
    say_fault: impl FnOnce(&str) + Send + 'static,
) -> Result<SocketFiles, SocketError> {
    let short_name = format!("{}-{}.sock", subject.generation, std::process::id());
    let Bound { listener, path, files } =
        socket::bind(&subject.session_dir, subject.runtime_dir.as_deref(), &short_name)?;
    let thread = std::thread::Builder::new().name("control".to_owned()).stack_size(STACK_BYTES);
    let Beside { ledger, index } = beside;
    let historian = index.map(|index| Historian::new(index, &subject));
    let places = Arc::new(Places::default());
    let known = Known::new(subject, published, ledger, historian, ask, path.clone(), places);
    let started = thread.spawn(move || {
        let at = known.socket.clone();
        if let Err(error) = listen(listener, known) {
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

fn listen(listener: std::os::unix::net::UnixListener, known: Known) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(QUESTIONS_MAX)
        .thread_stack_size(STACK_BYTES)
        .thread_name("history")
        .build()?;
    runtime.block_on(async {
        let listener = UnixListener::from_std(listener)?;
        let places = Arc::clone(&known.places);
        accept(listener, &places, routes::router(known)).await;
        Ok(())
    })
}

/// Serves whoever connects, to the end of the process.
async fn accept(listener: UnixListener, places: &Arc<Places>, routes: Router) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if let Some(peer) = trusted(&stream) {
                    // While all places are busy with answers, new connections wait in the socket's own queue.
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
    // How a client's connection ends is the client's affair.
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the control socket");
    }
}
