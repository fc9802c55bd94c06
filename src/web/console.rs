//! The socket by which `codex-shim web --new-link` and `--sign-out` reach the running page, and its client.
//!
//! The socket is in the home and only its owner can connect. The page also checks the uid of each peer and how it is
//! confined, as a control socket does. A token leaves the process only through this socket, stdout, and the file for `--open`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};

use super::access::TOKEN_LASTS;
use super::random;
use super::routes::App;
use crate::control::client::{ClientError, ask_socket};
use crate::control::{Refusal, Responded, ok};
use crate::socket::resolve_at;

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

/// The state of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageDocument {
    pub url: String,
    pub pid: u32,
    /// Browsers that are signed in.
    pub browsers: usize,
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
    #[error("the web page does not answer: {0}")]
    Silent(#[source] ClientError),
    #[error("the web page has refused: {0}")]
    Refused(String),
}

pub(super) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/page", get(page))
        .route("/links", post(new_links))
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
    let browsers = app.access().browsers(app.clock.now());
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

/// New links, which share one token.
pub(super) fn links(app: &App) -> io::Result<Links> {
    let token = app.access().token(random::bytes()?, app.clock.now());
    let expires_at = std::time::SystemTime::now() + TOKEN_LASTS;
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

/// The running page of `home`.
pub(crate) fn running(home: &Path) -> Result<PageDocument, ConsoleError> {
    ask(home, Method::GET, "/page")
}

fn ask<T: serde::de::DeserializeOwned>(home: &Path, method: Method, path: &str) -> Result<T, ConsoleError> {
    let socket = resolve_at(&home.join(SOCKET_FILE)).map_err(|_| ConsoleError::NotRunning)?;
    match ask_socket(&socket, method, path) {
        Ok(answer) => answer.document().map_err(ConsoleError::Refused),
        Err(error) if error.is_nobody() => Err(ConsoleError::NotRunning),
        Err(error) => Err(ConsoleError::Silent(error)),
    }
}
