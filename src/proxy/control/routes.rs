//! The routes, and what they share: the state behind them, the checks that apply to all of them, and the form of a refusal.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use http_body_util::BodyExt as _;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::history::{Historian, now_us};
use super::places::Places;
use super::published::{Published, Rare};
use super::request_members::Warnings;
use super::{calls, context, history, requests, stream};
use crate::api::{
    ActionsQuery, ClientUsesQuery, ContextQuery, DeliveriesQuery, EventStreamQuery, EventsQuery, FragmentsQuery,
    IndexDocument, JournalDocument, Parameters, ReviewsQuery, SessionDocument, ToolRowsQuery, TurnRowsQuery,
    UsageQuery,
};
use crate::config::Settings;
use crate::engine::{ApiCallId, ApiReply, ApiRequest, ContextBounds, Input, Unready};
use crate::history::{Activity, rfc3339_millis};
use crate::index::{HistoryError, Index};
use crate::socket::{Callers, Refused};
use crate::store::{Ledger, LedgerError};

pub(super) fn router(app: Arc<AppState>) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/metrics", get(super::metrics::metrics))
        .route("/sessions/{id}", get(session))
        .route(ContextQuery::ROUTE, get(context::show).post(context::push).delete(context::clear))
        .route(DeliveriesQuery::ROUTE, get(context::deliveries))
        .route("/sessions/{id}/context/{command}", delete(context::drop_one))
        .route(FragmentsQuery::ROUTE, get(context::show_fragments))
        .route("/sessions/{id}/codex-pending-requests", get(requests::pending))
        .route("/sessions/{id}/codex-requests/{request_id}", get(requests::one))
        .route("/sessions/{id}/codex-requests/{request_id}/respond", post(requests::respond))
        .route(EventsQuery::ROUTE, get(history::answer::<EventsQuery>))
        .route(EventStreamQuery::ROUTE, get(stream::stream))
        .route("/sessions/{id}/activity", get(history::activity))
        .route(ActionsQuery::ROUTE, get(history::answer::<ActionsQuery>))
        .route(ToolRowsQuery::ROUTE, get(history::answer::<ToolRowsQuery>))
        .route(TurnRowsQuery::ROUTE, get(history::answer::<TurnRowsQuery>))
        .route(ClientUsesQuery::ROUTE, get(history::answer::<ClientUsesQuery>))
        .route(UsageQuery::ROUTE, get(history::answer::<UsageQuery>))
        .route("/sessions/{id}/threads/{thread}/transcript", get(history::transcript))
        .route("/sessions/{id}/input", post(calls::input))
        .route("/sessions/{id}/interrupt", post(calls::interrupt))
        .route("/sessions/{id}/rpc", post(calls::rpc))
        .route(ReviewsQuery::ROUTE, get(history::answer::<ReviewsQuery>))
        .route("/sessions/{id}/codex-reviews/{review_id}/overrule", post(calls::overrule))
        .route("/sessions/{id}/attach", post(calls::attach))
        .route("/sessions/{id}/stop", post(calls::stop))
        .route("/sessions/{id}/start", post(calls::start))
        .route("/sessions/{id}/handover", post(calls::hand_over))
        .fallback(|| async {
            Refusal::new(StatusCode::NOT_FOUND, "not_found", "unknown path; `codex-shim docs control` lists the paths")
        })
        .method_not_allowed_fallback(|| async {
            let message = "this path does not take that method; the header `Allow` lists its methods";
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
        })
        .layer(middleware::from_fn(admit))
        .with_state(app)
}

/// Refuses every request.
pub(super) fn refusing(refusal: Refusal) -> Router {
    Router::new().fallback(move |request: Request| async move {
        // A client may write its whole body before it reads the refusal.
        let _ = take_body(request.into_body()).await;
        refusal
    })
}

/// Rejects requests that could come from a web page.
async fn admit(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    // The body is read even if the request is refused, so that a client that writes it all first can read the reason.
    let body = take_body(body).await;
    if head.headers.contains_key(header::ORIGIN) {
        let message = "a request with an `Origin` header comes from a browser and is refused";
        return Refusal::new(StatusCode::FORBIDDEN, "origin_refused", message).into_response();
    }
    if !is_a_tools(&head.uri, &head.headers) {
        let message =
            "a `Host` with a dot could be the name of a web page and is refused; use `localhost` or any one word";
        return Refusal::new(StatusCode::FORBIDDEN, "host_refused", message).into_response();
    }
    match body {
        Ok(bytes) => next.run(Request::from_parts(head, Body::from(bytes))).await,
        Err(error) => Refusal::from(error).into_response(),
    }
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
}

async fn healthz() -> Responded {
    ok(&Health { status: "ok" })
}

async fn session(ThisSession(app): ThisSession) -> Responded {
    ok(&app.document().await)
}

// Reads a request body whole before the route runs, bounded in size and time.
//
// A body over the limit is read and dropped up to a second limit, so that a client that writes everything before it reads
// still gets its response.

/// Longest accepted body, in bytes.
pub const BODY_BYTES_MAX: u64 = 1 << 20;

/// How much of a body over the limit is read and dropped, in bytes.
const BODY_BYTES_READ_AWAY_MAX: u64 = 16 << 20;

const BODY_WAIT_MAX: Duration = Duration::from_secs(30);

/// Why a body was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// Longer than [`BODY_BYTES_MAX`].
    TooBig,
    TooSlow,
    /// The connection broke, or the framing is invalid.
    Broken,
}

/// Reads a whole body.
pub async fn take_body(body: Body) -> Result<Bytes, BodyError> {
    match timeout(BODY_WAIT_MAX, take_unhurried(body)).await {
        Ok(taken) => taken,
        Err(_) => Err(BodyError::TooSlow),
    }
}

async fn take_unhurried(mut body: Body) -> Result<Bytes, BodyError> {
    let mut kept = Vec::new();
    let mut seen_bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| BodyError::Broken)?;
        let Some(data) = frame.data_ref() else { continue };
        seen_bytes += data.len() as u64;
        if seen_bytes <= BODY_BYTES_MAX {
            kept.extend_from_slice(data);
        } else {
            kept = Vec::new();
        }
        if seen_bytes > BODY_BYTES_READ_AWAY_MAX {
            break;
        }
    }
    if seen_bytes > BODY_BYTES_MAX { Err(BodyError::TooBig) } else { Ok(kept.into()) }
}

// DNS rebinding protection: rejects requests made under a host name that a web page could have.
//
// The author of a page can point the page's own name at this machine after it has loaded. Its requests are then same-origin
// and carry no `Origin` header. Such a name is a registered one, which contains a dot. Tools send any host, because a Unix
// socket has none: `shim`, `localhost`, `x`.

/// Whether the host is absent or one that only a tool would send.
pub(super) fn is_a_tools(uri: &Uri, headers: &HeaderMap) -> bool {
    // An absolute URI takes precedence over the header.
    let asked = uri.authority().map(|authority| authority.as_str());
    asked.is_none_or(is_harmless)
        && headers.get_all(header::HOST).iter().all(|host| host.to_str().is_ok_and(|host| is_harmless(host.trim())))
}

/// Whether no web page from elsewhere can have this host name.
fn is_harmless(host: &str) -> bool {
    if let Some(bracketed) = host.strip_prefix('[') {
        let address = bracketed.split_once(']').and_then(|(address, port)| is_port(port).then_some(address));
        return address.and_then(|address| address.parse().ok()).is_some_and(|address: Ipv6Addr| address.is_loopback());
    }
    let name = match host.find(':') {
        Some(colon) if is_port(&host[colon..]) => &host[..colon],
        Some(_) => return false,
        None => host,
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.%".contains(&byte);
    if !name.bytes().all(plain) {
        return false;
    }
    // Names below `.localhost` never reach DNS (RFC 6761, section 6.3). Docker's tools send `api.moby.localhost`.
    let is_local = name.to_ascii_lowercase().ends_with(".localhost");
    !name.contains('.') || is_local || name.parse().is_ok_and(|address: Ipv4Addr| address.is_loopback())
}

/// Whether `text` is empty, or a colon and a number.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

// The state behind the routes.

/// Constants of the running session.
#[derive(Debug)]
pub struct SessionInfo {
    pub session_id: String,
    /// The session folder, whose lock we hold.
    pub session_dir: PathBuf,
    pub journal_dir: PathBuf,
    /// Id of the first run of the child.
    pub generation: String,
    /// When the relay started.
    pub started_at: SystemTime,
    /// Folder for the user's sockets, if known.
    pub runtime_dir: Option<PathBuf>,
    /// Limits applied to pushed commands.
    pub context_bounds: ContextBounds,
    /// The processes that may call.
    pub callers: Callers,
}

/// The stores of the relay, as far as they could be opened.
#[derive(Debug, Default)]
pub struct Stores {
    pub ledger: Option<Ledger>,
    /// `None` if nothing is recorded.
    pub index: Option<Index>,
}

/// The state shared by all routes.
pub(super) struct AppState {
    pub(super) info: SessionInfo,
    pub(super) published: Arc<Published>,
    pub(super) ledger: Option<Ledger>,
    /// `None` if nothing is recorded.
    pub(super) historian: Option<Historian>,
    pub(super) warnings: Warnings,
    pub(super) ask: Ask,
    /// Path of the socket, links resolved.
    pub(super) socket: PathBuf,
    pub(super) places: Arc<Places>,
    /// Permits for calls that wait for the server.
    calls: Semaphore,
}

/// Calls that may wait for the server at the same time. It is lower than the number of connections, so that other requests
/// still find a place.
const CALLS_MAX: usize = 48;

/// How long a call waits for a server that starts.
const START_WAIT_MAX: Duration = Duration::from_secs(15);

/// How often it looks whether the server has started.
const START_LOOK: Duration = Duration::from_millis(50);

/// Extractor of the state; rejects paths that name another session.
pub(super) struct ThisSession(pub(super) Arc<AppState>);

impl FromRequestParts<Arc<AppState>> for ThisSession {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<AppState>) -> Result<ThisSession, Refusal> {
        match Path::<HashMap<String, String>>::from_request_parts(parts, app).await {
            Ok(Path(named)) if named.get("id").is_some_and(|id| id == "self" || *id == app.info.session_id) => {
                Ok(ThisSession(Arc::clone(app)))
            }
            Ok(_) | Err(_) => {
                let message = "this socket belongs to another session; use its id, or `self`";
                Err(Refusal::new(StatusCode::NOT_FOUND, "session_not_found", message))
            }
        }
    }
}

/// Extractor of the parameters of a query.
pub(super) struct Given<Q>(pub(super) Q);

impl<Q: Parameters, S: Sync> FromRequestParts<S> for Given<Q> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Given<Q>, Refusal> {
        let read = Q::read(parts.uri.query().unwrap_or_default());
        read.map(Given).map_err(|why| Refusal::bad("invalid_parameter", why))
    }
}

impl AppState {
    pub(super) fn new(
        info: SessionInfo,
        published: Arc<Published>,
        stores: Stores,
        ask: Ask,
        socket: PathBuf,
    ) -> AppState {
        let Stores { ledger, index } = stores;
        let historian = index.map(|index| Historian::new(index, &info));
        let (places, calls) = (Arc::default(), Semaphore::new(CALLS_MAX));
        let warnings = Warnings::default();
        AppState { info, published, ledger, historian, warnings, ask, socket, places, calls }
    }

    /// Calls the server through the relay, which may have to start it first: both take `wait_max` at most. Beyond [`CALLS_MAX`]
    /// the call is refused at once.
    pub(super) async fn call(&self, question: ApiRequest, wait_max: Duration) -> Option<ApiReply> {
        let Ok(_one) = self.calls.try_acquire() else { return Some(ApiReply::NotReady(Unready::Busy)) };
        let began = Instant::now();
        loop {
            let left = wait_max.saturating_sub(began.elapsed());
            match self.ask(question.clone(), left).await {
                Some(ApiReply::NotReady(Unready::Starting)) if began.elapsed() < wait_max.min(START_WAIT_MAX) => {
                    sleep(START_LOOK).await;
                }
                reply => return reply,
            }
        }
    }

    /// Asks the relay; `None` if it does not reply in time or exits first. A relay that does not accept the question replies
    /// [`Unready::Stopped`].
    pub(super) async fn ask(&self, question: ApiRequest, wait_max: Duration) -> Option<ApiReply> {
        let (reply, mut replied) = oneshot::channel();
        self.run(Message::Call(question, reply));
        match replied.try_recv() {
            Ok(reply) => Some(reply),
            Err(oneshot::error::TryRecvError::Closed) => Some(ApiReply::NotReady(Unready::Stopped)),
            Err(oneshot::error::TryRecvError::Empty) => timeout(wait_max, replied).await.ok()?.ok(),
        }
    }

    /// Sends a message to the relay.
    pub(super) fn run(&self, message: Message) {
        (self.ask)(message);
    }

    /// The ledger, or the refusal if it is not available.
    pub(super) fn ledger(&self) -> Result<&Ledger, Refusal> {
        let none = || LedgerError::Unavailable("its thread could not be started".to_owned());
        Ok(self.ledger.as_ref().ok_or_else(none)?)
    }

    /// The history, or a refusal if this session keeps none.
    pub(super) fn historian(&self) -> Result<&Historian, Refusal> {
        self.historian.as_ref().ok_or_else(Refusal::not_recorded)
    }

    pub(super) fn context_bounds(&self) -> ContextBounds {
        self.published.rare().context_bounds.unwrap_or(self.info.context_bounds)
    }

    /// The current state of the session.
    pub(super) async fn document(&self) -> SessionDocument {
        let AppState { info, published, socket, historian, .. } = self;
        let bytes = crate::journal::size_bytes(&info.journal_dir).unwrap_or_default();
        let (activity, threads, index) = match historian {
            Some(historian) => {
                historian.catch_up().await;
                (
                    Some(historian.activity()),
                    historian.threads(now_us(), published.stalled_after()).await,
                    historian.document().await,
                )
            }
            None => (None, Vec::new(), IndexDocument::default()),
        };
        // The relay knows whether the server runs. The start time is given only if the journal agrees.
        let (state, since_us) = match (published.child_runs(), activity) {
            (false, Some((Activity::Stopped, since_us))) => (Activity::Stopped, Some(since_us)),
            (false, _) => (Activity::Stopped, None),
            (true, None | Some((Activity::Stopped, _))) => (Activity::Idle, None),
            (true, Some((activity, since_us))) => (activity, Some(since_us)),
        };
        let Rare { generation, child, client, context_engine, config, config_warnings, hub, faults, .. } =
            published.rare().clone();
        SessionDocument {
            session_id: info.session_id.clone(),
            state,
            activity_state: state,
            state_since: since_us.map(rfc3339_millis),
            generation,
            socket: Some(socket.to_string_lossy().into_owned()),
            child,
            client,
            threads,
            pending_requests: published.pending(),
            context_waiting: published.waiting(),
            journal: JournalDocument { bytes, gaps: Some(published.gaps()) },
            index,
            context_engine,
            config,
            config_warnings,
            hub,
            faults,
            counters: published.counters(),
            started_at: Some(humantime::format_rfc3339_millis(info.started_at).to_string()),
        }
    }
}

// Messages of the routes to the relay thread.

pub type Reply = oneshot::Sender<ApiReply>;

/// A message from another thread to the relay.
#[derive(Debug)]
pub enum Message {
    /// For the engine.
    Input(Input),
    /// Changed settings.
    Configure(Box<Settings>),
    /// A call of an API caller. The relay drops the sender if it takes no more calls.
    Call(ApiRequest, Reply),
    /// Hands over an admitted client.
    Client {
        admission: ApiCallId,
        /// `None` if the connection failed before the upgrade.
        client: Option<UnixStream>,
    },
}

/// Sends a message to the relay. Only handing over a client blocks, until the relay's inbox has room.
pub type Ask = Box<dyn Fn(Message) + Send + Sync>;

/// The protocol in the `Upgrade` header.
pub(super) const PROTOCOL: &str = "codex-shim-attach";

// Responses: a document in JSON, or a refusal.

/// The result of a route.
pub type Responded = Result<Response, Refusal>;

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    #[serde(skip)]
    status: StatusCode,
    detail: Detail,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Detail {
    error_code: &'static str,
    message: String,
    #[serde(flatten)]
    more: Map<String, Value>,
}

impl Refusal {
    pub fn new(status: StatusCode, error_code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { status, detail: Detail { error_code, message: message.into(), more: Map::new() } }
    }

    /// A refusal because of an invalid request.
    pub fn bad(error_code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, error_code, message)
    }

    /// Adds a member to the refusal's code and message.
    pub fn with(mut self, name: &str, value: Value) -> Refusal {
        self.detail.more.insert(name.to_owned(), value);
        self
    }

    /// The body is not valid JSON, or does not have the form that the path takes.
    pub fn body(message: impl Into<String>) -> Refusal {
        Refusal::bad("invalid_body", message)
    }

    pub(super) fn not_recorded() -> Refusal {
        let message = "this session has no history: the setting `record` is false, or its index could not start";
        Refusal::new(StatusCode::NOT_FOUND, "not_recorded", message)
    }

    /// The caller is confined, as the commands of the model are.
    pub fn sandboxed(refused: &Refused) -> Refusal {
        let reason = Value::from(refused.restriction.name());
        Refusal::new(StatusCode::FORBIDDEN, "sandboxed_peer", refused.message()).with("reason", reason)
    }

    /// As the body of a response.
    pub fn document(&self) -> String {
        serde_json::to_string(self).expect("BUG: a refusal is plain data")
    }

    pub(super) fn upgrade_required() -> Refusal {
        let message = "attach with `Connection: Upgrade` and `Upgrade: codex-shim-attach`, or use `codex-shim attach`";
        Refusal::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", message)
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Refusal {
        match error {
            BodyError::TooBig => {
                let message = format!("the body is over {BODY_BYTES_MAX} bytes");
                Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
            }
            BodyError::TooSlow => {
                Refusal::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", "the body did not arrive in time")
            }
            BodyError::Broken => Refusal::bad("body_broken", "the body ended early, or is not valid HTTP"),
        }
    }
}

impl From<LedgerError> for Refusal {
    fn from(error: LedgerError) -> Refusal {
        let (status, error_code) = match &error {
            LedgerError::ThreadNotFound(_) => (StatusCode::NOT_FOUND, "thread_not_found"),
            LedgerError::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "ledger_unavailable"),
        };
        Refusal::new(status, error_code, error.to_string())
    }
}

impl From<HistoryError> for Refusal {
    fn from(error: HistoryError) -> Refusal {
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "history_unavailable", error.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = json(self.status, &self);
        if self.status == StatusCode::UPGRADE_REQUIRED {
            response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
        }
        response
    }
}

pub fn ok(document: &impl Serialize) -> Responded {
    Ok(json(StatusCode::OK, document))
}

fn json(status: StatusCode, document: &impl Serialize) -> Response {
    let mut text = serde_json::to_vec(document).expect("BUG: plain data is JSON");
    text.push(b'\n');
    let kind = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, kind)], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a body of `bytes` bytes; `expect` is the number read.
    fn check(bytes: u64, expect: Result<u64, BodyError>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let taken = runtime.block_on(take_body(Body::from(vec![b'x'; bytes as usize])));
        assert_eq!(taken.map(|taken| taken.len() as u64), expect);
    }

    #[test]
    fn bodies_are_bounded() {
        check(0, Ok(0));
        check(BODY_BYTES_MAX, Ok(BODY_BYTES_MAX));
        check(BODY_BYTES_MAX + 1, Err(BodyError::TooBig));
        check(BODY_BYTES_READ_AWAY_MAX + 1, Err(BodyError::TooBig));
    }

    #[test]
    fn registered_names_are_refused() {
        let tools = [
            "",
            "x",
            "shim",
            "codex-shim",
            "localhost",
            "LocalHost:8080",
            "localhost:",
            "127.0.0.1",
            "127.1.2.3:1",
            "[::1]",
            "[::1]:80",
            "api.moby.localhost",
            "2f746d702f73",
            "%2Ftmp%2Fs",
        ];
        for host in tools {
            assert!(is_harmless(host), "{host}");
        }
        let pages = [
            "evil.example",
            "EVIL.example:80",
            "evil.",
            ".",
            "127.0.0.1.nip.io",
            "10.0.0.1",
            "0.0.0.0",
            "[::]",
            "[fe80::1]",
            "[::ffff:127.0.0.1]",
            "[::1].evil.example",
            "[::1",
            "localhost:80.evil.example",
            "evil.example:x",
            "a:b@c",
            "a b",
            "localhost.evil.example",
            "xlocalhost.",
            "localhost/evil.example",
            "machine.local",
        ];
        for host in pages {
            assert!(!is_harmless(host), "{host}");
        }
    }

    #[test]
    fn uri_and_host_header_both_count() {
        let check = |uri: &str, hosts: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, host.to_vec().try_into().expect("it may be said"));
            }
            is_a_tools(&uri.parse().expect("an address"), &headers)
        };
        assert!(check("/healthz", &[]) && check("/healthz", &[b"shim"]) && check("http://shim/healthz", &[b"shim"]));
        assert!(!check("/healthz", &[b"shim", b"evil.example"]) && !check("/healthz", &[b"\xff"]));
        assert!(!check("http://evil.example/healthz", &[b"shim"]) && !check("http://evil.example/healthz", &[]));
    }

    fn app(ask: impl Fn(Message) + Send + Sync + 'static) -> AppState {
        let info = SessionInfo {
            session_id: "s".to_owned(),
            session_dir: PathBuf::new(),
            journal_dir: PathBuf::new(),
            generation: "g".to_owned(),
            started_at: SystemTime::UNIX_EPOCH,
            runtime_dir: None,
            context_bounds: ContextBounds::default(),
            callers: crate::socket::Callers::default(),
        };
        let published = Arc::new(Published::default());
        AppState::new(info, published, Stores::default(), Box::new(ask), PathBuf::new())
    }

    #[test]
    fn calls_beyond_the_bound_are_refused_at_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("BUG: a runtime");
        let kept = std::sync::Mutex::new(Vec::new());
        let app = Arc::new(app(move |request| kept.lock().expect("BUG: nobody panics").push(request)));
        runtime.block_on(async {
            let call = |app: Arc<AppState>| async move { app.call(ApiRequest::Stop, Duration::from_secs(600)).await };
            let waiting: Vec<_> = (0..CALLS_MAX).map(|_| tokio::spawn(call(Arc::clone(&app)))).collect();
            while app.calls.available_permits() > 0 {
                tokio::task::yield_now().await;
            }
            let refused = call(Arc::clone(&app)).await;
            assert!(matches!(refused, Some(ApiReply::NotReady(Unready::Busy))), "{refused:?}");
            waiting.iter().for_each(tokio::task::JoinHandle::abort);
        });
    }

    #[test]
    fn unaccepted_question_is_not_ready() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("BUG: a runtime");
        let replied = runtime.block_on(app(drop).ask(ApiRequest::Start, Duration::from_secs(600)));
        assert!(matches!(replied, Some(ApiReply::NotReady(Unready::Stopped))), "{replied:?}");
        let kept = std::sync::Mutex::new(Vec::new());
        let keeps = app(move |request| kept.lock().expect("BUG: nobody panics").push(request));
        let replied = runtime.block_on(keeps.ask(ApiRequest::Start, Duration::ZERO));
        assert!(replied.is_none(), "{replied:?}");
    }
}
