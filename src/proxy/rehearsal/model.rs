//! A scripted model on loopback, which answers each turn as planned.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use futures_util::stream::{self, StreamExt as _};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::plan::TurnEnd;
use super::responses::{PlannedResponse, stream, unforeseen};
use crate::os::random::bytes;

/// Longest request of a codex, in bytes: it has the whole conversation.
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// How long an answer waits for the client's steps before it.
const STEPS_WAIT_MAX: Duration = Duration::from_secs(60);

/// A running model.
#[derive(Debug)]
pub(super) struct ScriptedModel {
    base_url: String,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<ModelState>,
    steps: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct ModelState {
    /// The answers of the turn in progress, by thread.
    turns: BTreeMap<String, VecDeque<PlannedResponse>>,
    answers: u32,
    /// A planned call was of a tool that codex does not offer.
    lacked_tools: bool,
}

impl ScriptedModel {
    /// Starts a model. Only who knows its address can call it, because its answers are a user's conversation.
    pub(super) fn start() -> io::Result<ScriptedModel> {
        let shared = Arc::new(Shared { state: Mutex::default(), steps: watch::Sender::new(0) });
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        listener.set_nonblocking(true)?;
        let path = format!("{:032x}", u128::from_le_bytes(bytes()?));
        let base_url = format!("http://{}/{path}", listener.local_addr()?);
        let routes = Router::new()
            .route(&format!("/{path}/responses"), post(respond))
            .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
            .with_state(Arc::clone(&shared));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("model".to_owned()).spawn(move || {
            runtime.block_on(async move {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
                tokio::select! {
                    () = serve(&listener, &routes) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(ScriptedModel { base_url, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// For codex's `base_url`.
    pub(super) fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The next requests of a thread get these answers.
    pub(super) fn begins(&self, thread: &str, turn: VecDeque<PlannedResponse>) {
        self.shared.state().turns.insert(thread.to_owned(), turn);
    }

    /// Whether codex did not offer a tool of the plan.
    pub(super) fn lacked_tools(&self) -> bool {
        self.shared.state().lacked_tools
    }

    /// The client has made so many steps.
    pub(super) fn made(&self, steps: usize) {
        self.shared.steps.send_replace(steps);
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, ModelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of an answer, and what it says.
    fn next(&self, request: &Value) -> (u32, PlannedResponse) {
        let mut state = self.state();
        state.answers += 1;
        // Titles and the like have a format of their own.
        let wants_json = request["text"]["format"].is_object();
        let thread = request["prompt_cache_key"].as_str().unwrap_or_default();
        let planned = state.turns.get_mut(thread).filter(|_| !wants_json).and_then(VecDeque::pop_front);
        (state.answers, planned.unwrap_or_else(|| unforeseen(wants_json)))
    }
}

/// Serves connections until the runtime ends, and with it all of them.
async fn serve(listener: &tokio::net::TcpListener, routes: &Router) {
    while let Ok((stream, _)) = listener.accept().await {
        let service = TowerToHyperService::new(routes.clone());
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn respond(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (number, response) = shared.next(&request);
    let mut steps = shared.steps.subscribe();
    let _ = timeout(STEPS_WAIT_MAX, steps.wait_for(|made| *made >= response.after_steps)).await;
    let tools = request["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    let streamed = stream(number, &response, tools);
    shared.state().lacked_tools |= streamed.lacks_tools;
    let text = streamed.text;
    let headers = [(CONTENT_TYPE, "text/event-stream")];
    if response.end == TurnEnd::Interrupted {
        let begin = stream::once(async move { Ok::<_, Infallible>(Bytes::from(text)) });
        return (headers, Body::from_stream(begin.chain(stream::pending()))).into_response();
    }
    (headers, text).into_response()
}
