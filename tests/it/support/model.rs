//! A scripted model: the event stream that codex expects, on loopback.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// One item of a model's answer.
#[derive(Debug, Clone)]
pub enum Item {
    /// Text, streamed in these deltas.
    Text(Vec<&'static str>),
    /// A summary of reasoning.
    Reasoning(&'static str),
    /// A tool call with its arguments.
    Call { name: &'static str, arguments: Value },
    /// The same for a tool of another server.
    CallOf { namespace: &'static str, name: &'static str, arguments: Value },
    /// A change of files, in the format of `apply_patch`.
    Patch(&'static str),
    /// Nothing more: the stream stays open until the server is dropped.
    Hang,
    /// An error that codex does not retry.
    Fail,
}

/// The answers of a model, in order.
pub type Script = Vec<Vec<Item>>;

/// A running model.
pub struct Model {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    script: Mutex<VecDeque<Vec<Item>>>,
    requests: Mutex<Vec<Value>>,
    answers: Mutex<u32>,
    holds_titles: AtomicBool,
    titles: Mutex<Vec<(&'static str, &'static str)>>,
    hangs_on: Mutex<Option<&'static str>>,
}

impl Model {
    /// From now on a request for a title has no answer, or again has one.
    pub fn holds_titles(&self, holds: bool) {
        self.shared.holds_titles.store(holds, Ordering::SeqCst);
    }

    /// From now on a conversation with a word has its title, and every other one the usual title.
    pub fn titles(&self, titles: Vec<(&'static str, &'static str)>) {
        *self.shared.titles.lock().expect("no test panics while it holds this") = titles;
    }

    /// After the end of the script, a request with this word has no answer: codex may ask again when a message joins a turn.
    pub fn hangs_on(&self, word: Option<&'static str>) {
        *self.shared.hangs_on.lock().expect("no test panics while it holds this") = word;
    }

    /// Adds to the script.
    pub fn then(&self, script: Script) {
        self.shared.script.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(script);
    }

    /// Starts a model with a script; after its end every answer is `done`.
    pub fn start(script: Script) -> Model {
        let shared = Arc::new(Shared {
            script: Mutex::new(script.into()),
            requests: Mutex::default(),
            answers: Mutex::new(0),
            holds_titles: AtomicBool::new(false),
            titles: Mutex::default(),
            hangs_on: Mutex::new(None),
        });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
        listener.set_nonblocking(true).expect("a listener");
        let address = listener.local_addr().expect("a listener");
        let (stop, stopped) = oneshot::channel();
        let routes = Router::new().route("/v1/responses", post(respond)).with_state(Arc::clone(&shared));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                let serve = axum::serve(listener, routes);
                tokio::select! {
                    served = async { serve.await } => served.expect("the model serves"),
                    _ = stopped => {}
                }
            });
        });
        Model { address, shared, stop: Some(stop), thread: Some(thread) }
    }

    /// Its address, for codex's `base_url`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Value> {
        self.shared.requests.lock().expect("no test panics while it holds this").clone()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn respond(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    shared.requests.lock().expect("no test panics while it holds this").push(request.clone());
    let items = match is_aside(&request) {
        true if shared.holds_titles.load(Ordering::SeqCst) => Some(vec![Item::Hang]),
        true => Some(vec![title_of(&shared, &request)]),
        false => shared.script.lock().expect("no test panics while it holds this").pop_front(),
    };
    let number = {
        let mut answers = shared.answers.lock().expect("no test panics while it holds this");
        *answers += 1;
        *answers
    };
    let hangs_on = *shared.hangs_on.lock().expect("no test panics while it holds this");
    let otherwise = match hangs_on.is_some_and(|word| request.to_string().contains(word)) {
        true => Item::Hang,
        false => Item::Text(vec!["done"]),
    };
    let items = items.unwrap_or_else(|| vec![otherwise]);
    let hangs = items.iter().any(|item| matches!(item, Item::Hang));
    let text = answer(number, &items);
    let headers = [(CONTENT_TYPE, "text/event-stream")];
    if hangs {
        (headers, Body::from_stream(OpenEnded(Some(text)))).into_response()
    } else {
        (headers, text).into_response()
    }
}

/// The title that a client requests.
fn title_of(shared: &Shared, request: &Value) -> Item {
    let (text, titles) =
        (request["input"].to_string(), shared.titles.lock().expect("no test panics while it holds this"));
    let title = titles.iter().find(|(word, _)| text.contains(word)).map_or(r#"{"title":"A talk"}"#, |(_, title)| title);
    Item::Text(vec![title])
}

/// Whether a client requests a special output format, for example for a thread's title: such requests are not part of
/// the script. Those of codex's own reviewer are: their format has an outcome.
fn is_aside(request: &Value) -> bool {
    let format = &request["text"]["format"];
    format.is_object() && format["schema"]["properties"]["outcome"].is_null()
}

/// The events of one answer.
fn answer(number: u32, items: &[Item]) -> String {
    let response_id = format!("resp_{number}");
    let mut events = vec![json!({"type": "response.created", "response": {"id": response_id}})];
    let mut output = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let id = format!("item_{number}_{index}");
        let call_id = format!("call_{number}_{index}");
        let (finished, deltas) = match item {
            Item::Text(pieces) => (
                json!({"type": "message", "id": id, "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": pieces.concat(), "annotations": []}]}),
                pieces
                    .iter()
                    .map(|piece| {
                        json!({"type": "response.output_text.delta", "item_id": id, "output_index": index,
                            "content_index": 0, "delta": piece})
                    })
                    .collect(),
            ),
            Item::Reasoning(text) => (
                json!({"type": "reasoning", "id": id, "summary": [{"type": "summary_text", "text": text}],
                    "content": null, "encrypted_content": null}),
                vec![json!({"type": "response.reasoning_summary_text.delta", "item_id": id, "output_index": index,
                    "summary_index": 0, "delta": text})],
            ),
            Item::Call { name, arguments } => (
                json!({"type": "function_call", "id": id, "call_id": call_id, "name": name,
                    "arguments": arguments.to_string()}),
                Vec::new(),
            ),
            Item::CallOf { namespace, name, arguments } => (
                json!({"type": "function_call", "id": id, "call_id": call_id, "namespace": namespace, "name": name,
                    "arguments": arguments.to_string()}),
                Vec::new(),
            ),
            Item::Patch(patch) => (
                json!({"type": "custom_tool_call", "id": id, "call_id": call_id, "name": "apply_patch", "input": patch}),
                Vec::new(),
            ),
            Item::Hang => return rendered(&events),
            Item::Fail => {
                let error = json!({"code": "invalid_prompt", "message": "no"});
                let response = json!({"id": response_id, "status": "failed", "error": error});
                events.push(json!({"type": "response.failed", "response": response}));
                return rendered(&events);
            }
        };
        events.push(json!({"type": "response.output_item.added", "output_index": index, "item": finished}));
        events.extend(deltas);
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": finished}));
        output.push(finished);
    }
    let usage = json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15});
    events.push(json!({"type": "response.completed",
        "response": {"id": response_id, "status": "completed", "output": output, "usage": usage}}));
    rendered(&events)
}

fn rendered(events: &[Value]) -> String {
    events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().expect("an event has a type")))
        .collect()
}

/// A body that sends its text and then stays open.
struct OpenEnded(Option<String>);

impl futures_core::Stream for OpenEnded {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        match self.0.take() {
            Some(text) => std::task::Poll::Ready(Some(Ok(Bytes::from(text)))),
            None => std::task::Poll::Pending,
        }
    }
}
