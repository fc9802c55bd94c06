//! What the routes answer from, and which session they are asked about.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::ask::{Ask, Errand};
use super::document::{IndexDocument, JournalDocument, SessionDocument};
use super::historian::{Historian, now_us};
use super::places::Places;
use super::published::Published;
use super::refusal::Refusal;
use super::subject::Subject;
use crate::engine::{ApiReply, ApiRequest, ContextBounds};
use crate::history::{Activity, rfc3339_millis};
use crate::store::Ledger;

/// What the routes answer from.
pub(super) struct Known {
    pub(super) subject: Subject,
    pub(super) published: Arc<Published>,
    pub(super) ledger: Option<Ledger>,
    /// What can be asked of the session's history.
    pub(super) historian: Option<Historian>,
    pub(super) ask: Option<Ask>,
    /// Where the socket really is.
    pub(super) socket: PathBuf,
    /// Who is connected.
    pub(super) places: Arc<Places>,
    /// Calls that wait for the server.
    calls: Semaphore,
}

/// Calls that may wait for the server at once, so that others still find a place.
const CALLS_MAX: usize = 48;

/// Lets only those requests through to a route whose path names the session that runs here.
pub(super) struct ThisSession;

impl FromRequestParts<Arc<Known>> for ThisSession {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, known: &Arc<Known>) -> Result<ThisSession, Refusal> {
        match Path::<HashMap<String, String>>::from_request_parts(parts, known).await {
            Ok(Path(named)) if named.get("id").is_some_and(|id| known.answers_to(id)) => Ok(ThisSession),
            Ok(_) | Err(_) => Err(Refusal::SessionNotFound),
        }
    }
}

impl Known {
    pub(super) fn new(
        subject: Subject,
        published: Arc<Published>,
        ledger: Option<Ledger>,
        historian: Option<Historian>,
        ask: Option<Ask>,
        socket: PathBuf,
        places: Arc<Places>,
    ) -> Known {
        let calls = Semaphore::new(CALLS_MAX);
        Known { subject, published, ledger, historian, ask, socket, places, calls }
    }

    /// Has the relay call the server. Beyond the bound of calls it is not even asked.
    pub(super) async fn call(&self, question: ApiRequest, wait_max: Duration) -> Option<ApiReply> {
        let Ok(_one) = self.calls.try_acquire() else { return Some(ApiReply::NotReady) };
        self.ask(question, wait_max).await
    }

    /// Asks the relay; `None` where it does not reply in time, or ends before. One that does not even take the question is not ready
    /// for it.
    pub(super) async fn ask(&self, question: ApiRequest, wait_max: Duration) -> Option<ApiReply> {
        let (reply, mut replied) = oneshot::channel();
        self.run(Errand::Asked(question, reply));
        match replied.try_recv() {
            Ok(reply) => Some(reply),
            Err(oneshot::error::TryRecvError::Closed) => Some(ApiReply::NotReady),
            Err(oneshot::error::TryRecvError::Empty) => timeout(wait_max, replied).await.ok()?.ok(),
        }
    }

    /// Hands the relay something, where there is a way to it.
    pub(super) fn run(&self, errand: Errand) {
        if let Some(ask) = &self.ask {
            ask(errand);
        }
    }

    fn answers_to(&self, id: &str) -> bool {
        id == "self" || id == self.subject.session_id
    }

    /// The current bounds of a command.
    pub(super) fn context_bounds(&self) -> ContextBounds {
        self.published.context_bounds().unwrap_or(self.subject.context_bounds)
    }

    /// The session as it is now.
    pub(super) async fn document(&self) -> SessionDocument {
        let Known { subject, published, socket, historian, .. } = self;
        let bytes = crate::journal::size_bytes(&subject.journal_dir).unwrap_or_default();
        let (activity, threads, index) = match historian {
            Some(historian) => {
                historian.catch_up().await;
                (Some(historian.activity()), historian.threads(now_us()).await, historian.document().await)
            }
            None => (None, Vec::new(), IndexDocument::NONE),
        };
        // The relay knows best whether the child runs; since when is told where the journal says so too.
        let (state, since_us) = match (published.child_runs(), activity) {
            (false, Some((Activity::Stopped, since_us))) => (Activity::Stopped, Some(since_us)),
            (false, _) => (Activity::Stopped, None),
            (true, None | Some((Activity::Stopped, _))) => (Activity::Idle, None),
            (true, Some((activity, since_us))) => (activity, Some(since_us)),
        };
        SessionDocument {
            session_id: subject.session_id.clone(),
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
            started_at: Some(humantime::format_rfc3339_millis(subject.started_at).to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::time::SystemTime;

    fn known(ask: impl Fn(Errand) + Send + Sync + 'static) -> Known {
        let subject = Subject {
            session_id: "s".to_owned(),
            session_dir: PathBuf::new(),
            journal_dir: PathBuf::new(),
            generation: "g".to_owned(),
            started_at: SystemTime::UNIX_EPOCH,
            runtime_dir: None,
            context_bounds: ContextBounds::default(),
        };
        let published = Arc::new(Published::default());
        Known::new(subject, published, None, None, Some(Box::new(ask)), PathBuf::new(), Arc::default())
    }

    #[test]
    fn calls_beyond_the_bound_are_refused_at_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("BUG: a runtime");
        let kept = std::sync::Mutex::new(Vec::new());
        let known = Arc::new(known(move |errand| kept.lock().expect("BUG: nobody panics").push(errand)));
        runtime.block_on(async {
            let call = |known: Arc<Known>| async move { known.call(ApiRequest::Stop, Duration::from_secs(600)).await };
            let waiting: Vec<_> = (0..CALLS_MAX).map(|_| tokio::spawn(call(Arc::clone(&known)))).collect();
            while known.calls.available_permits() > 0 {
                tokio::task::yield_now().await;
            }
            let refused = call(Arc::clone(&known)).await;
            assert!(matches!(refused, Some(ApiReply::NotReady)), "{refused:?}");
            waiting.iter().for_each(tokio::task::JoinHandle::abort);
        });
    }

    #[test]
    fn a_question_that_was_not_taken_is_not_one_that_may_yet_be_answered() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("BUG: a runtime");
        let replied = runtime.block_on(known(drop).ask(ApiRequest::Start, Duration::from_secs(600)));
        assert!(matches!(replied, Some(ApiReply::NotReady)), "{replied:?}");
        let kept = std::sync::Mutex::new(Vec::new());
        let keeps = known(move |errand| kept.lock().expect("BUG: nobody panics").push(errand));
        let replied = runtime.block_on(keeps.ask(ApiRequest::Start, Duration::ZERO));
        assert!(replied.is_none(), "{replied:?}");
    }
}
