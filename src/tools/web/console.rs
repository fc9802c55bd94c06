//! The socket by which `codex-shim web --new-link`, `--browsers` and `--sign-out` reach the running page, and its client.
//!
//! The socket is in the home and only its owner can connect. The page also checks the uid of each peer and how it is
//! confined, as a control socket does. A token leaves the process only through this socket, stdout, and the file for `--open`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::extract::{Path as UrlPath, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};

use super::access::TOKEN_LASTS;
use super::hosts::leads_elsewhere;
use super::routes::App;
use crate::control::client::{ClientError, Unanswered, ask_socket};
use crate::control::{Refusal, Responded, ok};
use crate::os::random::bytes;
use crate::socket::{LOOK_EVERY, Occupant, resolve_at};

/// File name in the home.
pub(super) const SOCKET_FILE: &str = "web.sock";

/// The address of a page, and links to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Links {
    /// The page, without a token.
    pub url: String,
    /// Links that sign in once, for each address of the page.
    pub links: Vec<String>,
    /// When the links end, RFC 3339.
    pub expires_at: String,
    /// The process that serves the page.
    pub pid: u32,
}

impl Links {
    /// The first link that leads here from another device.
    pub(crate) fn for_elsewhere(&self) -> Option<&str> {
        self.links.iter().map(String::as_str).find(|link| leads_elsewhere(link))
    }
}

/// The state of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageDocument {
    pub url: String,
    pub pid: u32,
    /// Browsers that are signed in.
    pub browsers: usize,
}

/// A browser that is signed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SignedIn {
    pub number: u64,
    /// The browser and its system, as its user agent names them.
    pub device: String,
    /// The address under which it uses the page.
    pub address: String,
    /// RFC 3339.
    pub signed_in_at: String,
    pub last_used_at: String,
}

/// The browsers that are signed in, in the order of their sign-ins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Browsers {
    pub browsers: Vec<SignedIn>,
}

/// Browsers that were signed out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SignedOut {
    pub signed_out: usize,
}

/// The reason why a call to the running page failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConsoleError {
    #[error("no web page is being served")]
    NotRunning,
    /// Something else is in the place of its socket.
    #[error("{what} is in the place of the socket of the web page, {}; move it away, and a running page is back within {LOOK_EVERY:?}", .socket.display())]
    Displaced { socket: PathBuf, what: &'static str },
    #[error("the web page does not answer: {0}")]
    Silent(#[source] ClientError),
    #[error("the web page has refused: {0}")]
    Refused(String),
}

pub(super) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/page", get(page))
        .route("/links", post(new_links))
        .route("/browsers", get(list))
        .route("/browsers/{number}/sign-out", post(sign_out_numbered))
        .route("/sign-out", post(sign_out_all))
        .layer(middleware::from_fn(refuse_browsers))
        .with_state(app)
}

/// A browser can reach a Unix socket only through a forwarder of TCP connections.
async fn refuse_browsers(request: Request, next: Next) -> Response {
    if request.headers().contains_key(header::ORIGIN)
        || request.headers().get(header::HOST).is_none_or(|host| host != "shim")
    {
        return Refusal::new(StatusCode::FORBIDDEN, "host_refused", "use `codex-shim web`").into_response();
    }
    next.run(request).await
}

async fn page(State(app): State<Arc<App>>) -> Responded {
    let browsers = app.access().browsers(app.clock.now()).len();
    ok(&PageDocument { url: format!("{}/", app.hosts.own_origin()), pid: std::process::id(), browsers })
}

async fn new_links(State(app): State<Arc<App>>) -> Responded {
    let links = links(&app).map_err(|error| {
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "no_random_bytes", format!("read random bytes: {error}"))
    })?;
    ok(&links)
}

async fn sign_out_all(State(app): State<Arc<App>>) -> Responded {
    let signed_out = app.access().sign_out_all();
    app.forget_opened();
    app.signed_out.send_replace(());
    ok(&SignedOut { signed_out })
}

async fn list(State(app): State<Arc<App>>) -> Responded {
    ok(&signed_in(&app))
}

async fn sign_out_numbered(State(app): State<Arc<App>>, UrlPath(number): UrlPath<String>) -> Responded {
    sign_out_of(&app, &number)?;
    ok(&SignedOut { signed_out: 1 })
}

/// Signs out the browser with a number.
pub(super) fn sign_out_of(app: &App, number: &str) -> Result<(), Refusal> {
    if !number.parse().is_ok_and(|number| app.access().sign_out(number)) {
        let message = "no signed-in browser has this number; `codex-shim web --browsers` lists them";
        return Err(Refusal::new(StatusCode::NOT_FOUND, "browser_not_found", message));
    }
    app.signed_out.send_replace(());
    Ok(())
}

/// The signed-in browsers.
pub(super) fn signed_in(app: &App) -> Browsers {
    let now = SystemTime::now();
    let ago = |time: Duration| humantime::format_rfc3339_seconds(now - time).to_string();
    let one = |browser: super::access::SignedIn| SignedIn {
        number: browser.number,
        device: browser.device,
        address: browser.origin,
        signed_in_at: ago(browser.since),
        last_used_at: ago(browser.unused),
    };
    Browsers { browsers: app.access().browsers(app.clock.now()).into_iter().map(one).collect() }
}

/// New links, which share one token.
pub(super) fn links(app: &App) -> io::Result<Links> {
    let token = app.access().token(bytes()?, app.clock.now());
    let expires_at = SystemTime::now() + TOKEN_LASTS;
    Ok(Links {
        url: format!("{}/", app.hosts.own_origin()),
        links: app.hosts.origins().iter().map(|origin| format!("{origin}/#{token}")).collect(),
        expires_at: humantime::format_rfc3339_seconds(expires_at).to_string(),
        pid: std::process::id(),
    })
}

/// Makes a further link to the running page of `home`.
pub(crate) fn new_link(home: &Path) -> Result<Links, ConsoleError> {
    ask(home, Method::POST, "/links")
}

/// Signs all browsers out of the running page of `home`.
pub(crate) fn sign_out(home: &Path) -> Result<SignedOut, ConsoleError> {
    ask(home, Method::POST, "/sign-out")
}

/// The browsers that are signed in at the running page of `home`.
pub(crate) fn browsers(home: &Path) -> Result<Browsers, ConsoleError> {
    ask(home, Method::GET, "/browsers")
}

/// Signs one browser out of the running page of `home`.
pub(crate) fn sign_out_one(home: &Path, number: u64) -> Result<SignedOut, ConsoleError> {
    ask(home, Method::POST, &format!("/browsers/{number}/sign-out"))
}

/// The running page of `home`.
pub(crate) fn running(home: &Path) -> Result<PageDocument, ConsoleError> {
    ask(home, Method::GET, "/page")
}

fn ask<T: serde::de::DeserializeOwned>(home: &Path, method: Method, path: &str) -> Result<T, ConsoleError> {
    let at = home.join(SOCKET_FILE);
    let socket = resolve_at(&at).map_err(|_| ConsoleError::NotRunning)?;
    let asked = ask_socket(&socket, method, path).and_then(|reply| reply.document());
    asked.map_err(|error| match error {
        Unanswered::NoAnswer(error) if error.is_nobody() => match Occupant::of(&at) {
            Ok(Occupant::Other(what)) => ConsoleError::Displaced { socket: at, what },
            Ok(Occupant::Nothing | Occupant::Stale | Occupant::Listener(_)) | Err(_) => ConsoleError::NotRunning,
        },
        Unanswered::NoAnswer(error) => ConsoleError::Silent(error),
        Unanswered::Refused(_) | Unanswered::Invalid(_) => ConsoleError::Refused(error.to_string()),
    })
}
