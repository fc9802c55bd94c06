//! How a turn has ended, from the stored events of its session. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::feed::CUT;
use super::follow::Reader;
use super::wire::EventMessage;
use crate::api::EventDocument;
use crate::history::{HIDDEN, hides, mended};
use crate::protocol::Method;

/// Why a turn failed whose server has ended, as in the history.
pub(super) const SERVER_GONE: &str = "app_server_stream_closed";

/// Runs of a session that are remembered.
const RUNS_MAX: usize = 64;

/// For each run of a session, whether it is a hub's. The server of a hub outlives it.
#[derive(Debug, Default)]
pub struct Runs(BTreeMap<String, bool>);

/// The state of a turn by its stored events.
#[derive(Default)]
pub struct TurnEvents {
    thread: String,
    turn: String,
    reader: Reader,
    runs: Runs,
    /// The run of the server in which the turn was seen.
    run: Option<String>,
    message: Option<String>,
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnEnded {
    Told {
        /// `completed`, `failed` or `interrupted`.
        outcome: String,
        /// Set if the turn failed and the host tells why.
        error: Option<String>,
    },
    /// It has ended. The outcome is unknown, because the host has cut the event.
    Untold,
}

/// The model's last message in a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastMessage {
    pub text: String,
    /// The end of it has stayed on the host.
    pub is_cut: bool,
}

impl Runs {
    /// Takes a stored message.
    pub fn take(&mut self, message: &EventMessage) {
        message.document().iter().for_each(|event| self.take_event(event));
    }

    fn take_event(&mut self, event: &EventDocument) {
        let Some((run, start)) = event.generation.clone().zip(event.starts()) else { return };
        // At the level `summary` the event says only whether a hub has taken over a server.
        let is_hub = start.hub || start.adopted;
        if is_hub || start.pid.is_some() {
            self.0.insert(run, is_hub);
        }
        if self.0.len() > RUNS_MAX {
            self.0.pop_first();
        }
    }
}

impl TurnEvents {
    pub fn of(thread: &str, turn: &str, runs: Runs) -> TurnEvents {
        TurnEvents { thread: thread.to_owned(), turn: turn.to_owned(), runs, ..TurnEvents::default() }
    }

    /// Whether the turn ends with its session. The server of a hub outlives it, and it is not always known which it is.
    pub fn ends_with_session(&self) -> bool {
        self.run.as_ref().and_then(|run| self.runs.0.get(run)) == Some(&false)
    }

    /// The model's last message so far; `None` at the level `summary`.
    pub fn message(&self) -> Option<LastMessage> {
        let text = self.message.as_ref()?;
        Some(LastMessage { text: text.clone(), is_cut: text.ends_with(CUT) })
    }

    /// Takes a stored message; returns the end of the turn if it tells of that.
    pub fn take(&mut self, message: &EventMessage) -> Option<TurnEnded> {
        if !self.reader.is_new(message) {
            return None;
        }
        let event = message.document()?;
        self.runs.take_event(&event);
        match event.starts() {
            // The server of a hub outlives the hub, and the turn goes on in the next run.
            Some(start) if start.adopted => {
                self.run = self.run.take().and(event.generation);
                return None;
            }
            Some(_) => return (self.run.is_some() && self.run != event.generation).then(TurnEvents::stopped),
            None if event.event_type == "generation_ended" => {
                return (self.run.is_some() && self.run == event.generation).then(TurnEvents::stopped);
            }
            None => {}
        }
        let is_of_turn = |id: &Option<String>, own: &str| id.as_deref() == Some(own);
        if !is_of_turn(&event.turn_id, &self.turn) || !is_of_turn(&event.thread_id, &self.thread) {
            return None;
        }
        self.run = event.generation.clone();
        let method = Method::of(&event.event_type);
        let payload = mended(event.payload(), CUT);
        let text = |path: &str| payload.pointer(path).and_then(Value::as_str);
        match method {
            Some(Method::ItemCompleted) if text("/item/type") == Some("agentMessage") => {
                let is_hidden = hides(text("/item/moderation/display/mode"));
                let said = text("/item/text").map(|said| if is_hidden { HIDDEN } else { said }.to_owned());
                self.message = said.or(self.message.take());
                None
            }
            Some(Method::TurnCompleted) => Some(match text("/turn/status") {
                Some(status @ ("completed" | "failed" | "interrupted")) => {
                    let error = text("/turn/error/message").filter(|_| status == "failed").map(str::to_owned);
                    TurnEnded::Told { outcome: status.to_owned(), error }
                }
                // It may be behind the cut, or in it.
                Some(_) | None => TurnEnded::Untold,
            }),
            Some(_) | None => None,
        }
    }

    /// The end of a turn whose server has ended, as the local tool tells it.
    pub fn stopped() -> TurnEnded {
        TurnEnded::Told { outcome: "failed".to_owned(), error: Some(SERVER_GONE.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn message(seq: u64, event: Value) -> EventMessage {
        let message = json!({ "v": 1, "host": "h", "session": "s", "epoch": "e", "seq": seq, "event": event });
        serde_json::from_value(message).expect("it is a message")
    }

    /// The end of turn `u` after these events, and the last message.
    fn ended(events: &[(&str, &str, &str, Value)]) -> (Option<TurnEnded>, Option<String>) {
        let mut turn = TurnEvents::of("t", "u", Runs::default());
        let mut ended = None;
        for (seq, (run, event_type, of, payload)) in (1_u64..).zip(events) {
            let event = json!({ "event_type": event_type, "generation": run, "thread_id": "t", "turn_id": of, "payload_preview": payload });
            let message = message(seq, event);
            let told = turn.take(&message);
            assert_eq!(turn.take(&message), None, "each event counts once");
            ended = ended.or(told);
        }
        (ended, turn.message().map(|message| message.text))
    }

    fn says(text: &str) -> Value {
        json!({ "item": { "type": "agentMessage", "id": "m", "text": text } })
    }

    fn completed(status: &str) -> Value {
        json!({ "turn": { "id": "u", "status": status, "error": { "message": "no quota" } } })
    }

    #[test]
    fn turn_ends_with_its_own_event() {
        let end = |outcome: &str, error: Option<&str>| {
            Some(TurnEnded::Told { outcome: outcome.to_owned(), error: error.map(str::to_owned) })
        };
        let events = [
            ("a", "item/completed", "x", says("of another turn")),
            ("a", "turn/completed", "x", completed("failed")),
            ("a", "item/completed", "u", says("first")),
            ("a", "item/completed", "u", says("last")),
        ];
        assert_eq!(ended(&events), (None, Some("last".to_owned())));
        let with = |status: &str| ended(&[&events[..], &[("a", "turn/completed", "u", completed(status))]].concat()).0;
        assert_eq!(with("completed"), end("completed", None));
        assert_eq!(with("interrupted"), end("interrupted", None));
        assert_eq!(with("failed"), end("failed", Some("no quota")));
        // At the level `summary`.
        let brief = json!({ "turn": { "id": "u", "status": "failed" } });
        assert_eq!(ended(&[("a", "turn/completed", "u", brief)]), (end("failed", None), None));
        let silent = json!({ "item": { "type": "agentMessage", "id": "m" } });
        assert_eq!(ended(&[("a", "item/completed", "u", silent)]).1, None);
    }

    #[test]
    fn cut_end_of_turn_is_not_taken_for_completed() {
        let check = |payload: Value, expect: TurnEnded| {
            assert_eq!(ended(&[("a", "turn/completed", "u", payload.clone())]).0, Some(expect), "{payload}");
        };
        let cut = |start: &str| json!({ "truncated": true, "preview": start, "original_chars": 9_999 });
        // At the level `full`, the beginning of the event is there.
        let error = Some(format!("long{CUT}"));
        let failed = TurnEnded::Told { outcome: "failed".to_owned(), error };
        check(cut(r#"{"turn":{"id":"u","status":"failed","error":{"message":"long"#), failed);
        check(cut(r#"{"turn":{"id":"u","error":{"message":"long"#), TurnEnded::Untold);
        check(cut(r#"{"turn":{"id":"u","status":"completed"#), TurnEnded::Untold);
        check(cut(""), TurnEnded::Untold);
        // At the level `summary`, nothing of it is.
        check(json!({}), TurnEnded::Untold);
        check(json!({ "turn": { "id": "u", "status": "of a later codex" } }), TurnEnded::Untold);
    }

    #[test]
    fn turn_of_a_hub_may_outlive_its_session() {
        let check = |started: Value, expect: bool| {
            let mut turn = TurnEvents::of("t", "u", Runs::default());
            let start = json!({ "event_type": "generation_started", "generation": "a", "payload_preview": started });
            turn.take(&message(1, start));
            assert!(!turn.ends_with_session(), "its run is not known yet");
            let begins = json!({ "event_type": "turn/started", "generation": "a", "thread_id": "t", "turn_id": "u" });
            turn.take(&message(2, begins));
            assert_eq!(turn.ends_with_session(), expect);
        };
        check(json!({ "pid": 1 }), true);
        check(json!({ "pid": 1, "hub": true }), false);
        check(json!({ "adopted": true }), false);
        // At the level `summary`.
        check(json!({}), false);
    }

    #[test]
    fn turn_fails_with_its_server() {
        let none = || json!({});
        let seen = ("b", "turn/started", "u", none());
        let is_over = |events: &[(&str, &str, &str, Value)]| ended(events).0 == Some(TurnEvents::stopped());
        // An earlier run is not that of the turn.
        assert!(!is_over(&[
            ("a", "generation_ended", "", none()),
            ("b", "generation_started", "", none()),
            seen.clone()
        ]));
        assert!(is_over(&[seen.clone(), ("b", "generation_ended", "", none())]));
        assert!(is_over(&[seen.clone(), ("c", "generation_started", "", none())]));
        let adopted = json!({ "adopted": true });
        let adopts = ("c", "generation_started", "", adopted);
        assert!(!is_over(&[seen.clone(), adopts.clone()]));
        assert!(is_over(&[seen, adopts, ("c", "generation_ended", "", none())]));
    }

    #[test]
    fn message_that_codex_hides_is_not_told() {
        for (mode, expect) in [("show", "secret"), ("hide", HIDDEN), ("block", HIDDEN)] {
            let mut says = says("secret");
            says["item"]["moderation"] = json!({ "moderated": true, "display": { "mode": mode } });
            assert_eq!(ended(&[("a", "item/completed", "u", says)]).1.as_deref(), Some(expect), "{mode}");
        }
    }

    #[test]
    fn cut_message_is_called_so() {
        let mut turn = TurnEvents::of("t", "u", Runs::default());
        let long = json!({ "truncated": true, "preview": r#"{"item":{"type":"agentMessage","id":"m","text":"It r"# });
        let event =
            json!({ "event_type": "item/completed", "thread_id": "t", "turn_id": "u", "payload_preview": long });
        assert_eq!(turn.take(&message(1, event)), None);
        assert_eq!(turn.message(), Some(LastMessage { text: format!("It r{CUT}"), is_cut: true }));
    }
}
