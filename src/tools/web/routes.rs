//! The paths of the page, the checks before each of them, and the headers of each response.
//!
//! The checks of a request, in this order: its host, origin and site ([`super::hosts`]), its media type, its cookie and door
//! ([`super::access`]). Its body is read after them, and then the cookie counts only if it still does. No response has a CORS header. A client without a cookie gets only the
//! three files of the page, which contain no data of the user.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use futures_util::StreamExt as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::access::{Access, Entrance, NotSignedIn, SIGNED_IN_MAX, Visitor};
use super::console::{self, Browsers};
use super::device::device;
use super::finding::{self, Finding};
use super::hosts::{Foreign, Hosts, Target};
use super::inbox::Inbox;
use super::stream::{self, Timeline};
use super::timeline::{Follows, Wanted};
use super::{BootClock, calls, random, shown};
use crate::api::Command;
use crate::control::{BodyError, Places, Refusal, Responded, ok, take_body};
use crate::sessions::entry::{Folding, Key};
use crate::sessions::news::Page;
use crate::sessions::source::{Recorded, Source};
use crate::store::Found;

/// Calls that may wait for a relay or a file at the same time.
pub(super) const CALLS_MAX: usize = 24;

/// Entries of a page of the timeline, if the page does not say.
const ENTRIES_DEFAULT: usize = 100;

/// Most entries of a page of the timeline.
const ENTRIES_MAX: usize = 500;

const COOKIE: &str = "codex-shim-web";

/// The prefix makes browsers refuse the cookie of a page without TLS.
const SECURE_COOKIE: &str = "__Secure-codex-shim-web";

const SIGN_IN: &str = "/api/sign-in";

/// Longest body of a sign-in, in bytes. A token has 32 letters.
const SIGN_IN_BYTES_MAX: usize = 1 << 10;

/// How long the body of a sign-in or of a refused request may take.
const SIGN_IN_WAIT_MAX: Duration = Duration::from_secs(5);

/// How much of the body of a refused request is read, in bytes.
const DISCARDED_BYTES_MAX: usize = 64 << 10;

/// The files of the page: path, media type and content.
const FILES: [(&str, &str, &[u8]); 3] = [
    ("/", "text/html; charset=utf-8", include_bytes!("page/index.html")),
    ("/app.css", "text/css; charset=utf-8", include_bytes!("page/app.css")),
    ("/app.js", "text/javascript; charset=utf-8", include_bytes!("page/app.js")),
];

/// Nothing but our own files is loaded, framed, or sent to; text cannot become HTML.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// Headers of every response.
const HEADERS: [(HeaderName, &str); 8] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
    // Responses of the API; a file sets its own.
    (header::CACHE_CONTROL, "no-store"),
];

/// A session, and where it is.
pub(super) type On<'a> = (&'a dyn Source, &'a Found);

/// The state shared by all routes.
#[derive(Debug)]
pub(super) struct App {
    pub(super) hosts: Hosts,
    pub(super) clock: BootClock,
    pub(super) access: Mutex<Access>,
    /// Changes when browsers are signed out.
    pub(super) signed_out: watch::Sender<()>,
    pub(super) source: Arc<dyn Source>,
    pub(super) inbox: Inbox,
    pub(super) follows: Follows,
    pub(super) places: Arc<Places>,
    pub(super) calls: Semaphore,
    /// How sessions are searched; `None` if they are elsewhere.
    pub(super) finding: Option<Finding>,
    /// The file that a browser was opened with; it holds a token.
    pub(super) opened: Mutex<Option<std::path::PathBuf>>,
}

impl App {
    pub(super) fn access(&self) -> MutexGuard<'_, Access> {
        self.access.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_signed_in(&self, visitor: &Visitor) -> bool {
        self.access().is_signed_in(visitor, self.clock.now())
    }

    /// Removes the file with a token.
    pub(super) fn forget_opened(&self) {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        opened.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }

    /// Runs a call that blocks.
    pub(super) async fn call(&self, call: impl FnOnce() -> Responded + Send + 'static) -> Responded {
        let busy = || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "too many calls are waiting; try again");
        let _one = self.calls.try_acquire().map_err(|_| busy())?;
        tokio::task::spawn_blocking(call).await.unwrap_or_else(|_| Err(busy()))
    }

    /// Runs a call for a session.
    async fn with_session(
        self: &Arc<App>,
        id: String,
        call: impl FnOnce(On<'_>) -> Responded + Send + 'static,
    ) -> Responded {
        let (inbox, source) = (self.inbox.clone(), Arc::clone(&self.source));
        self.call(move || call((&*source, &inbox.session(&id).ok_or_else(no_session)?))).await
    }

    /// Runs a call for a session that must be live, and then looks what has changed.
    async fn with_live(
        self: &Arc<App>,
        id: String,
        call: impl FnOnce(On<'_>) -> Responded + Send + 'static,
    ) -> Responded {
        let stopped = || {
            Refusal::new(StatusCode::CONFLICT, "session_stopped", "this session has stopped; start its client again")
        };
        let done = self.with_session(id, move |on| if on.1.live { call(on) } else { Err(stopped()) }).await;
        self.inbox.look();
        done
    }
}

fn no_session() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "session_not_found", "unknown session; `codex-shim sessions` lists them")
}

pub(super) fn router(app: Arc<App>) -> Router {
    let files = FILES.into_iter().fold(Router::new(), |router, (path, kind, content)| {
        let tag = tag_of(content);
        router.route(path, get(move |headers: HeaderMap| async move { file(&headers, kind, content, &tag) }))
    });
    files
        .route("/favicon.ico", get(|| async { StatusCode::NO_CONTENT }))
        .route(SIGN_IN, post(sign_in))
        .route("/api/{door}/browsers", get(browsers))
        .route("/api/{door}/browsers/{number}/sign-out", post(sign_out))
        .route("/api/{door}/inbox", get(inbox))
        .route("/api/{door}/search", post(finding::find))
        .route("/api/{door}/search/complete", post(finding::completions))
        .route("/api/{door}/stream", get(open_stream))
        .route("/api/{door}/sessions/{id}/timeline", get(timeline))
        .route("/api/{door}/sessions/{id}/entry", get(entry))
        .route("/api/{door}/sessions/{id}/requests/{request_id}/diff", get(diff))
        .route("/api/{door}/sessions/{id}/requests/{request_id}/respond", post(respond))
        .route("/api/{door}/sessions/{id}/input", post(input))
        .route("/api/{door}/sessions/{id}/interrupt", post(interrupt))
        .fallback(|| async { Refusal::new(StatusCode::NOT_FOUND, "not_found", "unknown path; reload the page") })
        .method_not_allowed_fallback(|| async {
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this path does not take that method")
        })
        .layer(middleware::from_fn_with_state(Arc::clone(&app), admit))
        .layer(middleware::map_response(with_headers))
        .with_state(app)
}

async fn with_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// The origin that a request names; it is one of ours.
#[derive(Debug, Clone)]
struct WebOrigin(Option<String>);

/// Checks the head of a request, then reads its body, then runs its route.
async fn admit(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    if let Err(refusal) = check_head(&app, &mut head) {
        // A client may write its whole body before it reads the refusal.
        tokio::spawn(discard(body));
        return *refusal;
    }
    let visitor = head.extensions.get::<Visitor>().cloned();
    let body = if visitor.is_some() { take_body(body).await } else { take_short_body(body).await };
    let body = match body {
        Ok(body) => body,
        Err(error) => return Refusal::from(error).into_response(),
    };
    // The browser may have been signed out while it sent the body.
    if visitor.is_some_and(|visitor| !app.is_signed_in(&visitor)) {
        return signed_out().into_response();
    }
    next.run(Request::from_parts(head, Body::from(body))).await
}

/// Adds the origin, and the visitor if the path needs one, to a request that is admitted.
fn check_head(app: &App, head: &mut Parts) -> Result<(), Box<Response>> {
    let path = head.uri.path();
    let target = match path {
        "/" => Target::Page,
        path if path.starts_with("/api/") => Target::Api,
        _ => Target::File,
    };
    let checked = app.hosts.check(&head.method, &head.uri, &head.headers, target);
    let origin = checked.map_err(|foreign| Box::new(refused(app, foreign, target)))?;
    if head.method == Method::POST && !is_json(&head.headers) {
        let message = "a POST must have the header `Content-Type: application/json`";
        let refusal = Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "json_only", message);
        return Err(Box::new(refusal.into_response()));
    }
    if target == Target::Api && path != SIGN_IN {
        let door = path.split('/').nth(2).unwrap_or_default();
        let visitor = app.access().visitor(cookies(&head.headers), door, app.clock.now());
        let visitor = visitor.filter(|visitor| origin.as_ref().is_none_or(|origin| *origin == visitor.origin));
        let visitor = visitor.ok_or_else(|| Box::new(signed_out().into_response()))?;
        head.extensions.insert(visitor);
    }
    head.extensions.insert(WebOrigin(origin));
    Ok(())
}

/// Reads the body of a client without a cookie, such as a sign-in.
async fn take_short_body(body: Body) -> Result<Bytes, BodyError> {
    match timeout(SIGN_IN_WAIT_MAX, to_bytes(body, SIGN_IN_BYTES_MAX)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) => Err(BodyError::TooBig),
        Err(_) => Err(BodyError::TooSlow),
    }
}

/// Reads and drops the body of a refused request, up to a limit.
async fn discard(body: Body) {
    let mut pieces = body.into_data_stream();
    let mut bytes = 0;
    let read = async {
        while let Some(Ok(piece)) = pieces.next().await {
            bytes += piece.len();
            if bytes > DISCARDED_BYTES_MAX {
                return;
            }
        }
    };
    let _ = timeout(SIGN_IN_WAIT_MAX, read).await;
}

fn refused(app: &App, foreign: Foreign, target: Target) -> Response {
    let own = app.hosts.own_origin();
    let (code, message) = match foreign {
        Foreign::Host => {
            let names = "or start `codex-shim web` with `--host` and the name that the browser uses";
            ("host_refused", format!("this is not an address of the page; open {own}/, {names}"))
        }
        Foreign::Origin => ("origin_refused", "a request of another page is refused".to_owned()),
        Foreign::Site => ("site_refused", "a request that another page has caused is refused".to_owned()),
    };
    match target {
        Target::Page => (StatusCode::FORBIDDEN, format!("codex-shim: {message}\n")).into_response(),
        Target::File | Target::Api => Refusal::new(StatusCode::FORBIDDEN, code, message).into_response(),
    }
}

fn signed_out() -> Refusal {
    let message = "this browser is not signed in; run `codex-shim web --new-link` and open its link";
    Refusal::new(StatusCode::UNAUTHORIZED, "signed_out", message)
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut kinds = headers.get_all(header::CONTENT_TYPE).iter();
    let kind = kinds.next().and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    kinds.next().is_none() && essence.eq_ignore_ascii_case("application/json")
}

/// The values of our cookie; a page on another port of this host can add further ones.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lists = headers.get_all(header::COOKIE).iter().filter_map(|list| list.to_str().ok());
    let pairs = lists.flat_map(|list| list.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == COOKIE || *name == SECURE_COOKIE).map(|(_, value)| value)
}

pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    // serde would read an array as the members in order.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Refusal::body("the body must be a JSON object"));
    }
    serde_json::from_slice(body).map_err(|error| Refusal::body(format!("the body is not valid: {error}")))
}

// The files of the page.

fn tag_of(content: &[u8]) -> String {
    let digest: String = Sha256::digest(content).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{digest}\"")
}

fn file(headers: &HeaderMap, kind: &'static str, content: &'static [u8], tag: &str) -> Response {
    let tag = HeaderValue::from_str(tag).expect("BUG: a tag is hexadecimal digits");
    let kept = [(header::ETAG, tag.clone()), (header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))];
    if headers.get(header::IF_NONE_MATCH) == Some(&tag) {
        return (StatusCode::NOT_MODIFIED, kept).into_response();
    }
    (kept, [(header::CONTENT_TYPE, kind)], content).into_response()
}

// Signing in and out.

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignIn {
    token: String,
}

async fn sign_in(
    State(app): State<Arc<App>>,
    Extension(WebOrigin(origin)): Extension<WebOrigin>,
    headers: HeaderMap,
    body: Bytes,
) -> Responded {
    let SignIn { token } = read(&body)?;
    // A POST without an origin is refused before.
    let origin = origin.unwrap_or_default();
    let fresh = random::fresh().map_err(|error| {
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "no_random_bytes", format!("read random bytes: {error}"))
    })?;
    let user_agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    let entered = app.access().sign_in(&token, &origin, &device(user_agent), fresh, app.clock.now());
    let Entrance { cookie, door } = match entered {
        Ok(entrance) => entrance,
        Err(why) => return Ok(not_signed_in(why)),
    };
    app.forget_opened();
    let (name, secure) = if origin.starts_with("https://") { (SECURE_COOKIE, "; Secure") } else { (COOKIE, "") };
    let seconds = SIGNED_IN_MAX.as_secs();
    let cookie = format!("{name}={cookie}; Path=/api/{door}/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    let cookie = HeaderValue::from_str(&cookie).expect("BUG: it is ASCII without line breaks");
    let mut response = ok(&json!({ "base": format!("/api/{door}") }))?;
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

fn not_signed_in(why: NotSignedIn) -> Response {
    match why {
        NotSignedIn::Refused => {
            let message = "this link was used before, is too old or is not complete; \
                           run `codex-shim web --new-link` and open its link";
            Refusal::new(StatusCode::FORBIDDEN, "token_refused", message).into_response()
        }
        NotSignedIn::TooManyTries(wait) => {
            let seconds = (wait + Duration::from_millis(999)).as_secs();
            let message = format!("too many attempts have failed; wait {seconds} s, or open a new link");
            let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_tries", message);
            ([(header::RETRY_AFTER, seconds.to_string())], refusal).into_response()
        }
    }
}

/// All signed-in browsers, and the number of the one that asks.
async fn browsers(State(app): State<Arc<App>>, Extension(visitor): Extension<Visitor>) -> Responded {
    let Browsers { browsers } = console::signed_in(&app);
    ok(&json!({ "browsers": browsers, "own": visitor.number }))
}

/// Signs out a browser, which may be the one that asks.
async fn sign_out(State(app): State<Arc<App>>, Path((_, number)): Path<(String, String)>) -> Responded {
    console::sign_out_of(&app, &number)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

// The inbox, and the timeline of a session.

async fn inbox(State(app): State<Arc<App>>) -> Response {
    app.inbox.refresh().await;
    let (_, snapshot) = app.inbox.snapshot();
    ([(header::CONTENT_TYPE, "application/json")], snapshot).into_response()
}

/// The parameters of a query. The page's own parameters need no escapes.
fn parameters<'a>(query: Option<&'a str>, known: &[&str]) -> Result<HashMap<&'a str, &'a str>, Refusal> {
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let named = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if known.contains(&name) { Ok((name, value)) } else { Err(bad("an unknown parameter")) }
    });
    named.collect()
}

fn bad(message: impl Into<String>) -> Refusal {
    Refusal::bad("invalid_parameter", message)
}

async fn open_stream(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Responded {
    let query = parameters(query.as_deref(), &["session", "thread", "all"])?;
    let last_id = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let timeline = match query.get("session") {
        Some(id) => {
            // The only escape in an id: the slash behind a host.
            let found = app.inbox.session(&id.replace("%2F", "/")).ok_or_else(no_session)?;
            let wanted = wanted(&query);
            let reader = app.follows.reader(&found, wanted.clone(), last_id);
            reader.map_or_else(|| Timeline::TooMany(found.into(), wanted), Timeline::Read)
        }
        None => Timeline::None,
    };
    Ok(stream::start(Arc::clone(&app), visitor, timeline))
}

/// The threads that a query asks for. Their ids need no escapes.
fn wanted(query: &HashMap<&str, &str>) -> Wanted {
    let folding = if query.contains_key("all") { Folding::Unfolded } else { Folding::Folded };
    Wanted { thread: query.get("thread").map(|&thread| thread.to_owned()), folding }
}

/// The path parameters of a session.
type OfSession = Path<(String, String)>;

/// The path parameters of a request.
type OfRequest = Path<(String, String, String)>;

async fn timeline(State(app): State<Arc<App>>, Path((_, id)): OfSession, RawQuery(query): RawQuery) -> Responded {
    let query = parameters(query.as_deref(), &["before", "limit", "thread", "all"])?;
    let before = match query.get("before") {
        Some(text) => shown::key_of(text).ok_or_else(|| bad("`before` must be the key of an entry"))?,
        None => shown::last_key(),
    };
    let limit = match query.get("limit") {
        Some(text) => text.parse().ok().filter(|limit| (1..=ENTRIES_MAX).contains(limit)),
        None => Some(ENTRIES_DEFAULT),
    };
    let limit = limit.ok_or_else(|| bad(format!("`limit` must be 1 to {ENTRIES_MAX}")))?;
    let of = wanted(&query);
    let (_open, wanted) = TabRequest::new();
    app.with_session(id, move |on| {
        let Page { entries, is_last } = older(&*recorded(on, wanted), before, limit, &of).map_err(unreadable)?;
        ok(&json!({ "entries": entries.iter().map(shown::entry).collect::<Vec<_>>(), "has_older": !is_last }))
    })
    .await
}

/// The page before an entry, of the threads that are wanted. It has an entry, unless there is none.
fn older(recorded: &dyn Recorded, before: Key, limit: usize, of: &Wanted) -> std::io::Result<Page> {
    let mut before = before;
    loop {
        // A read that nobody wants any more ends here, too.
        let Some(mut page) = recorded.older(&before, limit)? else { return Ok(Page::default()) };
        let first = page.entries.first().map(|entry| entry.key.clone());
        page.entries.retain(|entry| of.takes(entry.thread_id.as_deref(), entry.thread_kind));
        match first {
            Some(first) if page.entries.is_empty() && !page.is_last => before = first,
            Some(_) | None => return Ok(page),
        }
    }
}

async fn entry(State(app): State<Arc<App>>, Path((_, id)): OfSession, RawQuery(query): RawQuery) -> Responded {
    let query = parameters(query.as_deref(), &["key"])?;
    let key = query.get("key").and_then(|text| shown::key_of(text)).ok_or_else(no_entry)?;
    let (_open, wanted) = TabRequest::new();
    app.with_session(id, move |on| {
        let entry = recorded(on, wanted).one(&key).map_err(unreadable)?;
        ok(&shown::entry(&entry.filter(|entry| entry.key == key).ok_or_else(no_entry)?))
    })
    .await
}

fn recorded((source, found): On<'_>, wanted: Arc<AtomicBool>) -> Box<dyn Recorded> {
    source.recorded(found, wanted)
}

/// A request of a tab that waits for its response. If the tab is gone, so is the request, and its read ends.
struct TabRequest(Arc<AtomicBool>);

impl TabRequest {
    fn new() -> (TabRequest, Arc<AtomicBool>) {
        let wanted = Arc::new(AtomicBool::new(true));
        (TabRequest(Arc::clone(&wanted)), wanted)
    }
}

impl Drop for TabRequest {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn unreadable(error: std::io::Error) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "journal_unreadable", format!("read the journal: {error}"))
}

fn no_entry() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "entry_not_found", "unknown entry; it may have been pruned")
}

// Requests and turns.

async fn diff(
    State(app): State<Arc<App>>,
    Path((_, id, request_id)): OfRequest,
    RawQuery(query): RawQuery,
) -> Responded {
    let query = parameters(query.as_deref(), &["file", "from"])?;
    let number = |name: &str| {
        let found = query.get(name).and_then(|text| text.parse::<usize>().ok());
        found.ok_or_else(|| bad(format!("`{name}` must be a number")))
    };
    let (file, from) = (number("file")?, number("from")?);
    app.with_live(id, move |on| calls::diff(on, &request_id, file, from)).await
}

async fn respond(State(app): State<Arc<App>>, Path((_, id, request_id)): OfRequest, body: Bytes) -> Responded {
    let given = read(&body)?;
    app.with_live(id, move |on| calls::respond(on, &request_id, &given)).await
}

async fn input(State(app): State<Arc<App>>, Path((_, id)): OfSession, body: Bytes) -> Responded {
    let message = Command::Input(read(&body)?);
    app.with_live(id, move |on| calls::command(on, &message)).await
}

async fn interrupt(State(app): State<Arc<App>>, Path((_, id)): OfSession, body: Bytes) -> Responded {
    let interruption = Command::Interrupt(read(&body)?);
    app.with_live(id, move |on| calls::command(on, &interruption)).await
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;
    use std::time::{Instant, SystemTime};

    use super::*;
    use crate::api::{OneRequest, Request, SessionDocument};
    use crate::control::client::{Answer, RawReply, Refused, Unanswered};
    use crate::sessions::entry::{Entry, Matcher};
    use crate::sessions::news::{Sought, Way};
    use crate::sessions::reader::{Following, Teller};
    use crate::sessions::source::Polling;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A session whose recording is read until nobody wants it.
    #[derive(Debug, Clone, Default)]
    struct Endless {
        has_begun: Arc<AtomicBool>,
        has_ended: Arc<AtomicBool>,
    }

    struct Read(Endless, Arc<AtomicBool>);

    impl Recorded for Read {
        fn start(&self) -> io::Result<Option<Page>> {
            Ok(None)
        }

        fn older(&self, _: &Key, _: usize) -> io::Result<Option<Page>> {
            let Read(Endless { has_begun, has_ended }, wanted) = self;
            has_begun.store(true, Ordering::Relaxed);
            let began = Instant::now();
            while wanted.load(Ordering::Relaxed) && began.elapsed() < PATIENCE {
                std::thread::park_timeout(Duration::from_millis(5));
            }
            has_ended.store(!wanted.load(Ordering::Relaxed), Ordering::Relaxed);
            Ok(None)
        }

        fn newer(&self, _: &Key) -> io::Result<Option<Page>> {
            Ok(None)
        }

        fn one(&self, _: &Key) -> io::Result<Option<Entry>> {
            Ok(None)
        }

        fn find(&self, _: &Matcher, _: &Key, _: Way) -> io::Result<Option<Sought>> {
            Ok(None)
        }
    }

    fn nothing() -> Unanswered {
        Unanswered::Refused(Refused::of(Answer { status: StatusCode::NOT_FOUND, body: Bytes::new() }))
    }

    impl Source for Endless {
        fn all(&self) -> Vec<Found> {
            let (id, dir, last_used) = ("s".to_owned(), PathBuf::new(), SystemTime::UNIX_EPOCH);
            vec![Found { id, dir, live: false, holder: None, repository: None, threads: None, last_used }]
        }

        fn is_still_live(&self, _: &Found) -> bool {
            false
        }

        fn traffic(&self, _: &Found) -> (String, u64) {
            (String::new(), 0)
        }

        fn polling(&self) -> Polling {
            Polling::Relays
        }

        fn state(&self, _: &Found) -> Result<SessionDocument, Unanswered> {
            Err(nothing())
        }

        fn pending(&self, _: &Found) -> Result<Vec<Request>, Unanswered> {
            Err(nothing())
        }

        fn request(&self, _: &Found, _: &OneRequest) -> Result<Request, Unanswered> {
            Err(nothing())
        }

        fn command(&self, _: &Found, _: &Command) -> Result<RawReply, Unanswered> {
            Err(nothing())
        }

        fn recorded(&self, _: &Found, wanted: Arc<AtomicBool>) -> Box<dyn Recorded> {
            Box::new(Read(self.clone(), wanted))
        }

        fn follow(&self, _: &Found, _: u64, _: Teller) -> io::Result<Following> {
            Err(io::Error::other("nothing is followed"))
        }
    }

    /// Waits for a flag, within a limit.
    async fn set(flag: &AtomicBool) -> bool {
        let began = Instant::now();
        while !flag.load(Ordering::Relaxed) && began.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        flag.load(Ordering::Relaxed)
    }

    #[test]
    fn read_ends_with_its_request() {
        let endless = Endless::default();
        let source: Arc<dyn Source> = Arc::new(endless.clone());
        let app = Arc::new(App {
            hosts: Hosts::new(1, Vec::new()),
            clock: BootClock,
            access: Mutex::default(),
            signed_out: watch::channel(()).0,
            inbox: Inbox::start(PathBuf::new(), Arc::clone(&source), None).expect("a thread"),
            follows: Follows::of(Arc::clone(&source)),
            source,
            places: Arc::default(),
            calls: Semaphore::new(CALLS_MAX),
            finding: None,
            opened: Mutex::default(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let asked = timeline(State(app), Path(("door".to_owned(), "s".to_owned())), RawQuery(None));
            tokio::select! {
                _ = asked => panic!("the read has no end"),
                has_begun = set(&endless.has_begun) => assert!(has_begun),
            }
            // The tab is gone, and the request with it.
            assert!(set(&endless.has_ended).await);
        });
    }
}
