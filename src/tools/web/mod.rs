//! The web page: shows the pending requests of all sessions and accepts answers, in a browser on this machine or behind a proxy
//! that the user has chosen.
//!
//! ```text
//! browser ──▶ 127.0.0.1 ──▶ hosts ─▶ access ─▶ routes ──▶ control sockets of live sessions
//!    ▲                                           │
//!    └───────────── stream ◀── inbox, timeline ◀─┴──────  journals
//! codex-shim web --new-link ──▶ web.sock ──▶ console
//! ```
//!
//! It is a process of its own that runs only while it is wanted. The control sockets stay closed to browsers: they never see a
//! request of one, only calls that were made here.
//!
//! *Trust.* Every user and program of this machine can connect to the port. A token in a link, used once, and then a cookie let
//! a browser in ([`access`]); `Host`, `Origin` and `Sec-Fetch-Site` keep other pages of that browser out ([`hosts`]).
//!
//! *Bounds.* Connections, streams, bodies, heads, waits, listed requests, followed sessions, tokens and browsers all have
//! limits. A stream looks up its next event once the tab has read the event before, so a slow tab has no queue.
//!
//! It never listens on another address than 127.0.0.1, never prints or stores a token elsewhere than the link that the user
//! asked for, and never sends anything to another host.

mod access;
mod calls;
mod console;
mod device;
mod finding;
mod hosts;
mod inbox;
mod random;
mod routes;
mod shown;
mod stream;
mod timeline;
mod words;

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tokio::sync::{Semaphore, watch};
use uuid::Uuid;

pub(crate) use console::{
    Browsers, ConsoleError, Links, PageDocument, SignedIn, SignedOut, browsers, new_link, running, sign_out,
    sign_out_one,
};
pub(crate) use finding::Finding;
pub(crate) use hosts::HostName;

use crate::control::{self, LastingListener, Places, SharedEndpoint, SocketFault, routes_of_peer, runtime_of_calls};
use crate::files::Folder;
use crate::os::clocks::since_boot;
use crate::os::signals::Signals;
use crate::sessions::source::Source;
use crate::socket::{self, Callers, Endpoint, Refused, SocketError};
use access::Access;
use hosts::Hosts;
use inbox::Inbox;
use routes::App;
use timeline::Follows;

/// Held while a page is served; its file is in the home.
const LOCK_FILE: &str = "web.lock";

/// The file with which version 0.2 opened a browser.
const OLD_OPEN_FILE: &str = "web-open.html";

/// How many processes that were refused at the page's socket are reported.
const REFUSALS_REPORTED_MAX: usize = 3;

/// Threads for calls that block.
const THREADS_MAX: usize = routes::CALLS_MAX;

/// Options of a page.
#[derive(Debug)]
pub(crate) struct Options {
    pub home: PathBuf,
    /// The sessions to show.
    pub source: Arc<dyn Source>,
    /// `None` for a free port.
    pub port: Option<u16>,
    /// Further names under which the page may be used.
    pub names: Vec<HostName>,
    /// The only session to show.
    pub session: Option<String>,
    /// How sessions are searched; `None` if they are elsewhere.
    pub finding: Option<Finding>,
    /// Folder for the user's sockets, if known.
    pub runtime_dir: Option<PathBuf>,
    /// Tells the user something.
    pub report: fn(&str),
}

/// The reason why a page cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebError {
    /// Another process serves one for this home.
    #[error("a web page is being served already")]
    Running,
    #[error("open {}: {source}", .path.display())]
    Home { path: PathBuf, source: io::Error },
    #[error("listen on 127.0.0.1:{port}: {source}")]
    Bind { port: u16, source: io::Error },
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("set up {what}: {source}")]
    SetUp { what: &'static str, source: io::Error },
}

/// The time since the start of the process. Time in which the machine sleeps counts, where the system counts it.
#[derive(Debug, Clone, Copy)]
struct BootClock;

impl BootClock {
    fn now(self) -> Duration {
        since_boot()
    }
}

/// A page that is ready to be served.
#[derive(Debug)]
pub(crate) struct Server {
    app: Arc<App>,
    home: PathBuf,
    listener: TcpListener,
    console: (SharedEndpoint, UnixListener),
    signals: Signals,
    report: fn(&str),
    _lock: File,
}

impl Server {
    /// Listens, and serves nothing yet.
    ///
    /// # Errors
    ///
    /// Nothing listens after an error.
    pub(crate) fn start(options: Options) -> Result<Server, WebError> {
        let set_up = |what| move |source| WebError::SetUp { what, source };
        let Options { home, source, port, names, session, finding, runtime_dir, report } = options;
        let signals = Signals::listen(&[SIGTERM, SIGINT, SIGHUP]).map_err(set_up("signal handlers"))?;
        let lock = lock(&home)?;
        // A page that was killed leaves it behind; the token in it has ended.
        let _ = std::fs::remove_file(home.join(OLD_OPEN_FILE));
        open_file(&home).iter().for_each(|file| drop(std::fs::remove_file(file)));
        let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let wanted = port.unwrap_or(0);
        let listener = bind(wanted).map_err(|source| WebError::Bind { port: wanted, source })?;
        listener.set_nonblocking(true).map_err(set_up("the listener"))?;
        let port = listener.local_addr().map_err(set_up("the listener"))?.port();
        let short_name = format!("web-{}.sock", std::process::id());
        let socket = home.join(console::SOCKET_FILE);
        let (endpoint, console, _) = Endpoint::bind(&socket, runtime_dir.as_deref(), short_name)?;
        let console = (SharedEndpoint::new(endpoint), console);
        let app = App {
            hosts: Hosts::new(port, names),
            clock: BootClock,
            access: Mutex::new(Access::default()),
            signed_out: watch::channel(()).0,
            inbox: Inbox::start(home.clone(), Arc::clone(&source), session).map_err(set_up("a thread"))?,
            follows: Follows::of(Arc::clone(&source)),
            source,
            places: Arc::new(Places::default()),
            calls: Semaphore::new(routes::CALLS_MAX),
            finding,
            opened: Mutex::default(),
        };
        Ok(Server { app: Arc::new(app), home, listener, console, signals, report, _lock: lock })
    }

    /// New links to the page.
    ///
    /// # Errors
    ///
    /// The system has no random bytes.
    pub(crate) fn links(&self) -> io::Result<Links> {
        console::links(&self.app)
    }

    /// Writes a file that redirects a browser to `link`. Only its owner can read it, and no command that the sandbox of codex
    /// confines. The page removes the file after the first sign-in, after 10 minutes, and at the end. Every user of the machine
    /// could read a link on a command line.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or there is no folder that the sandbox hides.
    pub(crate) fn file_for(&self, link: &str) -> io::Result<PathBuf> {
        let text = format!(
            "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
             <meta http-equiv=\"refresh\" content=\"0; url={link}\"><title>codex-shim</title>\n"
        );
        let path = open_file(&self.home).map_err(io::Error::other)?;
        let (folder, name) = path.parent().zip(path.file_name()).expect("BUG: it is a file in a folder");
        Folder::at(folder)?.put(name, text.as_bytes())?;
        *self.app.opened.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(path.clone());
        Ok(path)
    }

    /// Serves the page until a signal ends it.
    ///
    /// # Errors
    ///
    /// It could not begin.
    pub(crate) fn run(self) -> Result<(), WebError> {
        let set_up = |what| move |source| WebError::SetUp { what, source };
        let Server { app, listener, console, signals, report, .. } = self;
        let (endpoint, console) = console;
        let end = signals.first().map_err(set_up("a thread"))?;
        let runtime = runtime_of_calls(THREADS_MAX).map_err(set_up("a runtime"))?;
        let (own, files) = (Arc::clone(&app), endpoint.clone());
        let served = runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let console = LastingListener::new(files, console, report_began(report))?;
            tokio::select! {
                () = accept(&listener, &own.places, routes::router(Arc::clone(&own))) => {}
                () = accept_console(console, console::router(Arc::clone(&own)), report) => {}
                () = forget_opened(&own) => {}
                _ = end => {}
            }
            Ok(())
        });
        endpoint.remove();
        app.forget_opened();
        // Calls that wait for a relay do not delay the end.
        runtime.shutdown_background();
        served.map_err(set_up("the listener"))
    }
}

/// Locks the home for one page.
fn lock(home: &Path) -> Result<File, WebError> {
    let path = home.join(LOCK_FILE);
    let failed = |source| WebError::Home { path: path.clone(), source };
    let lock = Folder::make_home(home).and_then(|home| home.lock(LOCK_FILE)).map_err(failed)?;
    lock.ok_or(WebError::Running)
}

/// The file that a browser is opened with.
fn open_file(home: &Path) -> Result<PathBuf, SocketError> {
    let name = Uuid::new_v5(&Uuid::NAMESPACE_OID, home.as_os_str().as_encoded_bytes());
    Ok(socket::hidden_dir()?.join(format!("web-open-{}.html", name.simple())))
}

/// Removes the file with a token once the token is too old.
async fn forget_opened(app: &App) {
    tokio::time::sleep(access::TOKEN_LASTS).await;
    app.forget_opened();
    std::future::pending().await
}

async fn accept(listener: &tokio::net::TcpListener, places: &Arc<Places>, routes: Router) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Events are small and must not wait for each other.
                let _ = stream.set_nodelay(true);
                let place = places.enter().await;
                tokio::spawn(control::serve(stream, routes.clone(), place));
            }
            Err(error) => {
                tracing::warn!(%error, "accept a connection");
                // No event reports free descriptors.
                tokio::time::sleep(control::ACCEPT_AGAIN_AFTER).await;
            }
        }
    }
}

/// Reports the faults of the page's socket.
fn report_began(report: fn(&str)) -> impl Fn(SocketFault<'_>) {
    move |fault| match fault {
        SocketFault::Began(what) => report(what),
        SocketFault::Ended(_) => {}
    }
}

async fn accept_console(mut listener: LastingListener<impl Fn(SocketFault<'_>)>, routes: Router, report: fn(&str)) {
    let places = Arc::new(Places::default());
    // A link signs in to all sessions, and the commands of the model may be anywhere: no container is trusted.
    let callers = Callers::new(&[], None);
    let mut reported = 0;
    let mut refused = |refused: &Refused| {
        tracing::warn!(peer = %refused.peer, reason = refused.restriction.name(), "a confined process at the page's socket");
        if reported < REFUSALS_REPORTED_MAX {
            reported += 1;
            report(&format!("a link to the page was refused: {}", refused.message()));
        }
    };
    loop {
        match listener.accept().await {
            Ok(stream) => {
                if let Some(routes) = routes_of_peer(&stream, &callers, &routes, &mut refused) {
                    let place = places.enter().await;
                    tokio::spawn(control::serve(stream, routes, place));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "accept a connection");
                tokio::time::sleep(control::ACCEPT_AGAIN_AFTER).await;
            }
        }
    }
}
