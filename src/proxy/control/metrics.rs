//! `GET /metrics`: the state in the Prometheus text format.

use std::fmt::{Display, Write as _};
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::places::Counts;
use super::routes::AppState;
use crate::api::{CallCount, ContextEngineDocument, SessionDocument, SessionUsage, UsageQuery, Used};
use crate::index::IndexState;

/// The media type of that format.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) async fn metrics(State(app): State<Arc<AppState>>) -> Response {
    let document = app.document().await;
    let (mut index, mut used) = (None, None);
    if let Some(historian) = &app.historian {
        let state = historian.index.state().borrow().clone();
        let opened = state.opened;
        used = historian.ask(opened, move |history| history.usage(&UsageQuery::default(), opened)).await.ok();
        index = Some(state);
    }
    let text = rendered(&document, app.places.counts(), index.as_ref(), used.as_ref());
    (StatusCode::OK, [(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response()
}

struct Text(String);

impl Text {
    /// A number that only grows.
    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "counter", help, &[("", &value)]);
    }

    /// A number that can go up and down.
    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help, &[("", &value)]);
    }

    fn family(&mut self, name: &str, kind: &str, help: &str, samples: &[(&str, &dyn Display)]) {
        let mut write = || -> std::fmt::Result {
            writeln!(self.0, "# HELP codex_shim_{name} {help}")?;
            writeln!(self.0, "# TYPE codex_shim_{name} {kind}")?;
            samples.iter().try_for_each(|(labels, value)| writeln!(self.0, "codex_shim_{name}{labels} {value}"))
        };
        write().expect("BUG: a String takes every write");
    }
}

fn rendered(
    session: &SessionDocument,
    connected: Counts,
    index: Option<&IndexState>,
    used: Option<&SessionUsage>,
) -> String {
    let mut text = Text(String::new());
    let counters = &session.counters;
    let quoted = |text: &Option<String>| label(text.as_deref().unwrap_or_default());
    let info = format!(
        "{{session_id={},generation={},codex_version={},version={}}}",
        label(&session.session_id),
        quoted(&session.generation),
        quoted(&session.child.codex_version),
        label(env!("CARGO_PKG_VERSION"))
    );
    text.family("info", "gauge", "The running session, server and relay.", &[(&info, &1)]);
    let state = format!("{{state={}}}", label(session.state.name()));
    text.family("activity", "gauge", "The activity of the session.", &[(&state, &1)]);
    let by_side = |text: &mut Text, name: &str, help: &str, client: &u64, server: &u64| {
        text.family(name, "counter", help, &[("{from=\"client\"}", client), ("{from=\"server\"}", server)]);
    };
    let help = "Lines forwarded in this run.";
    by_side(&mut text, "lines_total", help, &counters.client_lines, &counters.server_lines);
    by_side(&mut text, "bytes_total", "Bytes forwarded in this run.", &counters.client_bytes, &counters.server_bytes);
    text.counter("omitted_lines_total", "Lines left out of the record on purpose.", counters.omitted_lines);
    text.counter("journal_appended_bytes_total", "Bytes appended to the journal.", counters.journal_appended_bytes);
    text.counter("journal_missed_lines_total", "Lines that could not be recorded.", counters.journal_missed_lines);
    text.gauge("journal_bytes", "Size of the journal.", session.journal.bytes);
    let gaps = session.journal.gaps.unwrap_or_default();
    text.counter("journal_gaps_total", "Stretches of lines that could not be recorded.", gaps);
    text.gauge("pending_requests", "Requests that wait for an answer.", session.pending_requests);
    text.gauge("context_waiting", "Commands that wait to be shown to the model.", session.context_waiting);
    text.counter("faults_total", "Faults of codex-shim.", session.faults.len() as u64 + counters.faults_unlisted);
    let Counts { requests, streams, requests_closed, streams_closed } = connected;
    let by_kind =
        |text: &mut Text, name: &str, kind: &str, help: &str, requests: &dyn Display, streams: &dyn Display| {
            text.family(name, kind, help, &[("{kind=\"request\"}", requests), ("{kind=\"stream\"}", streams)]);
        };
    by_kind(&mut text, "connections", "gauge", "Connections to the control socket.", &requests, &streams);
    let help = "Connections closed to make room for another.";
    by_kind(&mut text, "connections_closed_total", "counter", help, &requests_closed, &streams_closed);
    text.counter("turns_projected_total", "Turns with context of a context engine.", counters.turns_projected);
    text.counter("fragments_told_total", "Fragments sent to threads.", counters.fragments_told);
    text.counter("fragments_failed_total", "Fragments that could not be read.", counters.fragments_failed);
    if let Some(engine) = &session.context_engine {
        context_engine(&mut text, engine);
    }
    if let Some(index) = index {
        text.gauge("index_lag_records", "Records that are not indexed yet.", session.index.lag_lines);
        let lag_seconds = session.index.lag_ms as f64 / 1_000.0;
        text.gauge("index_lag_seconds", "Age of the oldest record that is not indexed.", lag_seconds);
        text.gauge("event_seq", "Number of the last event.", index.last_seq);
        text.counter("event_persist_error_total", "Commits of events that failed.", index.failed_commits);
        let pruned: [(&str, &dyn Display); 3] = [
            ("{table=\"codex_events\"}", &index.pruned.events),
            ("{table=\"codex_tool_events\"}", &index.pruned.tool_events),
            ("{table=\"codex_turn_events\"}", &index.pruned.turn_events),
        ];
        text.family("pruned_rows_total", "counter", "Rows deleted because of retention limits.", &pruned);
        text.counter("prune_seconds_total", "Time spent deleting rows.", index.pruned.took_ms as f64 / 1_000.0);
    }
    if let Some(used) = used {
        usage(&mut text, used);
    }
    text.0
}

/// The usage of the whole session, over all its runs.
fn usage(text: &mut Text, session: &SessionUsage) {
    let mut used = Used::default();
    session.turns.iter().for_each(|turn| used.add(&turn.used));
    text.counter("turns_total", "Turns of the session.", used.turns);
    let tokens = used.tokens;
    let of_kind: [(&str, &dyn Display); 4] = [
        ("{kind=\"input\"}", &tokens.input_tokens),
        ("{kind=\"cached_input\"}", &tokens.cached_input_tokens),
        ("{kind=\"output\"}", &tokens.output_tokens),
        ("{kind=\"reasoning_output\"}", &tokens.reasoning_output_tokens),
    ];
    let help = "Tokens of turns. Input includes cached input, and output includes reasoning output.";
    text.family("tokens_total", "counter", help, &of_kind);
    let seconds = |ms: u64| ms as f64 / 1_000.0;
    text.counter("turn_working_seconds_total", "Time of turns that waited for no human.", seconds(used.working_ms));
    text.counter("turn_waiting_seconds_total", "Time of turns that waited for a human.", seconds(used.waiting_ms));
    text.counter("commands_total", "Commands that ended.", used.commands);
    text.counter("requests_total", "Requests to a human.", used.requests);
    let answered = used.answered_by.named().map(|(by, count)| (format!("{{by={}}}", label(by)), count));
    let answered: Vec<(&str, &dyn Display)> =
        answered.iter().map(|(by, count)| (&**by, count as &dyn Display)).collect();
    text.family("requests_answered_total", "counter", "Requests to a human by who answered.", &answered);
    let limits: Vec<(String, u64)> = session
        .rate_limits
        .iter()
        .map(|limit| (format!("{{window={}}}", label(&limit.name)), limit.used_percent))
        .collect();
    let limits: Vec<(&str, &dyn Display)> =
        limits.iter().map(|(window, used)| (&**window, used as &dyn Display)).collect();
    if !limits.is_empty() {
        let help = "Used part of a rate limit of the account, as last reported.";
        text.family("rate_limit_used_percent", "gauge", help, &limits);
    }
}

fn context_engine(text: &mut Text, engine: &ContextEngineDocument) {
    text.gauge("context_engine_up", "Whether the context engine runs.", u64::from(engine.running));
    let help = "How many times the context engine exited or could not be started.";
    text.counter("context_engine_ends_total", help, engine.ends);
    let labels = |call: &CallCount| format!("{{method={},outcome={}}}", label(&call.method), label(&call.outcome));
    let of: Vec<(String, u64, f64)> =
        engine.calls.iter().map(|call| (labels(call), call.count, call.ms as f64 / 1_000.0)).collect();
    let counts: Vec<(&str, &dyn Display)> = of.iter().map(|(of, count, _)| (&**of, count as &dyn Display)).collect();
    let help = "Calls to the context engine by method and outcome.";
    text.family("context_engine_calls_total", "counter", help, &counts);
    let took: Vec<(&str, &dyn Display)> = of.iter().map(|(of, _, took)| (&**of, took as &dyn Display)).collect();
    let help = "Time spent in calls to the context engine.";
    text.family("context_engine_call_seconds_total", "counter", help, &took);
}

/// A quoted and escaped label value.
fn label(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_quoted() {
        assert_eq!(label("a\"b\\c\nd"), r#""a\"b\\c\nd""#);
    }
}
