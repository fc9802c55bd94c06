//! The thread that listens: who is let in, how many at once, and how long each may take.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::ask::Ask;
use super::historian::Historian;
use super::known::Known;
use super::peer::trusted;
use super::published::Published;
use super::routes;
use super::socket::{self, Bound, SocketError, SocketFiles};
use super::stall::Unstalled;
use super::subject::{Beside, Subject};

/// Connections that are served at once; more wait in the socket's own queue.
const CONNECTIONS_MAX: usize = 64;

/// Questions to the history that are answered at once; more wait for one of these.
const QUESTIONS_MAX: usize = 4;

/// How long a client may take to send the head of a request, from the connection or the last answer on.
const HEAD_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long a client may take nothing of an answer.
const WRITE_STALL_MAX: Duration = Duration::from_secs(30);

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
pub fn start(
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
    let known = Known { subject, published, ledger, historian, ask, socket: path.clone() };
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
        accept(listener, routes::router(known)).await;
        Ok(())
    })
}

/// Serves whoever connects, to the end of the process.
async fn accept(listener: UnixListener, routes: Router) {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&free).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                if let Some(peer) = trusted(&stream) {
                    let routes = routes.clone().layer(Extension(peer));
                    tokio::spawn(async move {
                        serve(stream, routes).await;
                        drop(place);
                    });
                }
            }
            Err(error) => {
                tracing::warn!(%error, "accept a connection to the control socket");
                tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
            }
        }
    }
}

async fn serve(stream: UnixStream, routes: Router) {
    let stream = TokioIo::new(Unstalled::new(stream, WRITE_STALL_MAX));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(stream, TowerToHyperService::new(routes))
        .with_upgrades();
    // How a client's connection ends is the client's affair.
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection to the control socket");
    }
}
