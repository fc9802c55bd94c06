//! The server thread: accepts connections, and bounds their number and durations.

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
use super::peer::{Peer, trusted};
use super::places::{Answered, Awaited, Leave, Place, Places, Stream};
use super::published::Published;
use super::routes;
use super::socket::{self, Bound, SocketError, SocketFiles};
use super::stall::Unstalled;
use super::state::AppState;
use super::state::{SessionInfo, Stores};

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
