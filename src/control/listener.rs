//! Reads one of the relay's event streams (Server-Sent Events), for tools. Each call blocks.

use std::path::Path;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Method, Request};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::client::{ANSWER_WAIT_MAX, Answer, Cause, ClientError, Reached, begin, send, talk, whole, within};

/// How long a relay may be silent: it sends a keep-alive every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Longest pause before a reconnect that a relay can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// Longest accepted event, in bytes.
const EVENT_BYTES_MAX: usize = 16 << 20;

/// An event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamEvent {
    /// The id to send as `Last-Event-ID`.
    pub id: Option<String>,
    pub data: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Event(StreamEvent),
    /// No event within the time limit.
    Nothing,
    /// The relay ended the stream.
    End,
}

/// An open stream.
#[derive(Debug)]
pub(crate) struct Listener {
    runtime: Runtime,
    socket: std::path::PathBuf,
    body: Incoming,
    pieces: Pieces,
    /// When the last complete event or keep-alive arrived.
    received_at: Instant,
}

impl Listener {
    /// The pause before a reconnect that the relay asked for, if any.
    #[must_use]
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.pieces.retry_after
    }
}

/// The result of [`Listener::start`].
#[derive(Debug)]
pub(crate) enum Listening {
    Begun(Listener),
    /// The relay's reason for the refusal.
    Refused(Answer),
}

impl Listener {
    /// Opens the stream at `path` of the relay whose session folder is `dir`, after the event `last_id`.
    ///
    /// # Errors
    ///
    /// The relay did not answer.
    pub(crate) fn start(dir: &Path, path: &str, last_id: Option<&str>) -> Result<Listening, ClientError> {
        let (runtime, socket) = begin(dir)?;
        let failed = |cause| ClientError { socket: socket.clone(), cause, reached: Reached::Unsent };
        let ask = async {
            let mut request = Request::builder().method(Method::GET).uri(path);
            if let Some(last_id) = last_id {
                request = request.header("last-event-id", last_id);
            }
            let response = send(&socket, request, Bytes::new()).await?;
            if response.status().is_success() { Ok(Ok(response.into_body())) } else { Ok(Err(whole(response).await?)) }
        };
        match runtime.block_on(within(&socket, ANSWER_WAIT_MAX, ask)) {
            Ok(Ok(body)) => {
                let received_at = Instant::now();
                Ok(Listening::Begun(Listener { runtime, socket, body, pieces: Pieces::default(), received_at }))
            }
            Ok(Err(answer)) => Ok(Listening::Refused(answer)),
            Err(cause) => Err(failed(cause)),
        }
    }

    /// Waits for the next event, for at most `wait_max`.
    ///
    /// # Errors
    ///
    /// The stream broke off, or the relay was silent for too long.
    pub(crate) fn next(&mut self, wait_max: Option<Duration>) -> Result<Received, ClientError> {
        let Listener { runtime, socket, body, pieces, received_at } = self;
        let failed = |cause| ClientError { socket: socket.clone(), cause, reached: Reached::Unsent };
        let began = Instant::now();
        loop {
            let (event, took) = pieces.take();
            if took == Took::Some {
                *received_at = Instant::now();
            }
            if let Some(event) = event {
                return Ok(Received::Event(event));
            }
            if pieces.bytes.len() > EVENT_BYTES_MAX {
                return Err(failed(talk("the event is too long")));
            }
            let silence_left = SILENCE_MAX.saturating_sub(received_at.elapsed());
            let wait =
                wait_max.map_or(silence_left, |wait_max| wait_max.saturating_sub(began.elapsed()).min(silence_left));
            let frame = runtime.block_on(async { timeout(wait, body.frame()).await });
            match frame {
                Ok(None) => return Ok(Received::End),
                Ok(Some(Ok(frame))) => pieces.bytes.extend(frame.into_data().unwrap_or_default()),
                Ok(Some(Err(error))) => return Err(failed(talk(error))),
                Err(_) if received_at.elapsed() >= SILENCE_MAX => return Err(failed(Cause::TooSlow(SILENCE_MAX))),
                Err(_) => return Ok(Received::Nothing),
            }
        }
    }
}

/// Whether anything complete has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Took {
    Some,
    Nothing,
}

/// Received bytes of a stream that were not parsed yet.
#[derive(Debug, Default)]
struct Pieces {
    bytes: Vec<u8>,
    retry_after: Option<Duration>,
}

impl Pieces {
    /// The next event, and whether anything complete has arrived. A keep-alive is complete but not an event.
    fn take(&mut self) -> (Option<StreamEvent>, Took) {
        let mut took = Took::Nothing;
        while let Some(end) = memchr::memmem::find(&self.bytes, b"\n\n") {
            took = Took::Some;
            let block: Vec<u8> = self.bytes.drain(..end + 2).collect();
            let block = String::from_utf8_lossy(&block);
            let member = |name: &str| {
                let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
                Some(line.strip_prefix(' ').unwrap_or(line).to_owned())
            };
            if let Some(retry) = member("retry").and_then(|retry| retry.parse().ok()) {
                self.retry_after = Some(Duration::from_millis(retry).min(RETRY_AFTER_MAX));
            }
            if let Some(data) = member("data") {
                return (Some(StreamEvent { id: member("id"), data }), took);
            }
        }
        (None, took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_any_chunking() {
        let stream = ": alive\n\nid: 7\ndata: {\"a\":\"b: c\"}\n\n: alive\n\ndata: {}\n\nid: 8\nda";
        for bytes_each in [1, 2, 3, 7, 1_000] {
            let mut pieces = Pieces::default();
            let mut taken = Vec::new();
            for piece in stream.as_bytes().chunks(bytes_each) {
                pieces.bytes.extend(piece);
                taken.extend(std::iter::from_fn(|| pieces.take().0));
            }
            let sent = |id: Option<&str>, data: &str| StreamEvent { id: id.map(str::to_owned), data: data.to_owned() };
            assert_eq!(taken, [sent(Some("7"), "{\"a\":\"b: c\"}"), sent(None, "{}")], "{bytes_each}");
            assert_eq!(pieces.bytes, b"id: 8\nda");
            pieces.bytes.extend(b"ta: 1\n\n: closed\nretry: 5000\n\n");
            assert_eq!((pieces.take().0, pieces.take().0), (Some(sent(Some("8"), "1")), None));
            assert_eq!(pieces.retry_after, Some(Duration::from_secs(5)));
        }
    }
}
