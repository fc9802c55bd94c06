//! The state behind the routes, and the check that a path names this session.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::document::{IndexDocument, JournalDocument, SessionDocument};
use super::historian::{Historian, now_us};
use super::places::Places;
use super::published::Published;
use super::refusal::Refusal;
use crate::engine::{ApiCallId, ApiReply, ApiRequest, ContextBounds};
use crate::history::{Activity, rfc3339_millis};
use crate::index::Index;
use crate::store::Ledger;

/// Constants of the running session.
#[derive(Debug)]
pub(crate) struct SessionInfo {
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
}

/// The stores of the relay, as far as they could be opened.
#[derive(Debug, Default)]
pub(crate) struct Stores {
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
    pub(super) ask: Option<Ask>,
    /// Path of the socket, links resolved.
    pub(super) socket: PathBuf,
    pub(super) places: Arc<Places>,
    /// Permits for calls that wait for the server.
    calls: Semaphore,
}

/// Calls that may wait for the server at the same time. It is lower than the number of connections, so that other requests
/// still find a place.
const CALLS_MAX: usize = 48;

/// Extractor that rejects paths that name another session.
pub(super) struct ThisSession;

impl FromRequestParts<Arc<AppState>> for ThisSession {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<AppState>) -> Result<ThisSession, Refusal> {
        match Path::<HashMap<String, String>>::from_request_parts(parts, app).await {
            Ok(Path(named)) if named.get("id").is_some_and(|id| app.answers_to(id)) => Ok(ThisSession),
            Ok(_) | Err(_) => Err(Refusal::SessionNotFound),
        }
    }
}

impl AppState {
    pub(super) fn new(
        info: SessionInfo,
        published: Arc<Published>,
        ledger: Option<Ledger>,
        historian: Option<Historian>,
        ask: Option<Ask>,
        socket: PathBuf,
        places: Arc<Places>,
    ) -> AppState {
        let calls = Semaphore::new(CALLS_MAX);
        AppState { info, published, ledger, historian, ask, socket, places, calls }
    }

    /// Calls the server through the relay. Beyond [`CALLS_MAX`] the call is refused at once.
    pub(super) async fn call(&self, question: ApiRequest, wait_max: Duration) -> Option<ApiReply> {
        let Ok(_one) = self.calls.try_acquire() else { return Some(ApiReply::NotReady) };
        self.ask(question, wait_max).await
    }

    /// Asks the relay; `None` if it does not reply in time or exits first. A relay that does not accept the question replies
    /// [`ApiReply::NotReady`].
    pub(super) async fn ask(&self, question: ApiRequest, wait_max: Duration) -> Option<ApiReply> {
        let (reply, mut replied) = oneshot::channel();
        self.run(RelayRequest::Call(question, reply));
        match replied.try_recv() {
            Ok(reply) => Some(reply),
            Err(oneshot::error::TryRecvError::Closed) => Some(ApiReply::NotReady),
            Err(oneshot::error::TryRecvError::Empty) => timeout(wait_max, replied).await.ok()?.ok(),
        }
    }

    /// Sends a request to the relay, if one is connected.
    pub(super) fn run(&self, request: RelayRequest) {
        if let Some(ask) = &self.ask {
            ask(request);
        }
    }

    fn answers_to(&self, id: &str) -> bool {
        id == "self" || id == self.info.session_id
    }

    pub(super) fn context_bounds(&self) -> ContextBounds {
        self.published.context_bounds().unwrap_or(self.info.context_bounds)
    }

    /// The current state of the session.
    pub(super) async fn document(&self) -> SessionDocument {
        let AppState { info, published, socket, historian, .. } = self;
        let bytes = crate::journal::size_bytes(&info.journal_dir).unwrap_or_default();
        let (activity, threads, index) = match historian {
            Some(historian) => {
                historian.catch_up().await;
                (Some(historian.activity()), historian.threads(now_us()).await, historian.document().await)
            }
            None => (None, Vec::new(), IndexDocument::NONE),
        };
        // The relay knows whether the server runs. The start time is given only if the journal agrees.
        let (state, since_us) = match (published.child_runs(), activity) {
            (false, Some((Activity::Stopped, since_us))) => (Activity::Stopped, Some(since_us)),
            (false, _) => (Activity::Stopped, None),
            (true, None | Some((Activity::Stopped, _))) => (Activity::Idle, None),
            (true, Some((activity, since_us))) => (activity, Some(since_us)),
        };
        SessionDocument {
            session_id: info.session_id.clone(),
            state,
            activity_state: state,
            state_since: since_us.map(rfc3339_millis),
            generation: published.generation(),
            socket: Some(socket.to_string_lossy().into_owned()),
            child: published.child(),
            client: published.client(),
            threads,
            pending_requests: published.pending(),
            context_waiting: published.waiting(),
            journal: JournalDocument { bytes, gaps: Some(published.gaps()) },
            index,
            context_engine: published.context_engine(),
            config: published.config_document(),
            faults: published.faults(),
            counters: published.counters(),
            started_at: Some(humantime::format_rfc3339_millis(info.started_at).to_string()),
        }
    }
}

// Requests of the routes to the relay thread.

pub(crate) type Reply = oneshot::Sender<ApiReply>;

/// A request to the relay.
#[derive(Debug)]
pub(crate) enum RelayRequest {
    /// A call of an API caller. The relay drops the sender if it takes no more calls.
    Call(ApiRequest, Reply),
    /// Hands over an admitted client.
    Client {
        admission: ApiCallId,
        /// `None` if the connection failed before the upgrade.
        client: Option<UnixStream>,
    },
}

/// Sends a request to the relay. A question never blocks; handing over a client blocks until the relay's inbox has room.
pub(crate) type Ask = Box<dyn Fn(RelayRequest) + Send + Sync>;

/// The protocol in the `Upgrade` header.
pub(super) const PROTOCOL: &str = "codex-shim-attach";

#[cfg(test)]
mod tests {
    use super::*;

    fn app(ask: impl Fn(RelayRequest) + Send + Sync + 'static) -> AppState {
        let info = SessionInfo {
            session_id: "s".to_owned(),
            session_dir: PathBuf::new(),
            journal_dir: PathBuf::new(),
            generation: "g".to_owned(),
            started_at: SystemTime::UNIX_EPOCH,
            runtime_dir: None,
            context_bounds: ContextBounds::default(),
        };
        let published = Arc::new(Published::default());
        AppState::new(info, published, None, None, Some(Box::new(ask)), PathBuf::new(), Arc::default())
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
            assert!(matches!(refused, Some(ApiReply::NotReady)), "{refused:?}");
            waiting.iter().for_each(tokio::task::JoinHandle::abort);
        });
    }

    #[test]
    fn unaccepted_question_is_not_ready() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("BUG: a runtime");
        let replied = runtime.block_on(app(drop).ask(ApiRequest::Start, Duration::from_secs(600)));
        assert!(matches!(replied, Some(ApiReply::NotReady)), "{replied:?}");
        let kept = std::sync::Mutex::new(Vec::new());
        let keeps = app(move |request| kept.lock().expect("BUG: nobody panics").push(request));
        let replied = runtime.block_on(keeps.ask(ApiRequest::Start, Duration::ZERO));
        assert!(replied.is_none(), "{replied:?}");
    }
}
