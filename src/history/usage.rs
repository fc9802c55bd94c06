//! Token usage of a thread.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::object::Object;
use super::record_event::Params;

/// Tokens of the last model call, which is the used part of its context window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Usage {
    total: Option<u64>,
    input: Option<u64>,
    cached_input: Option<u64>,
    output: Option<u64>,
    reasoning_output: Option<u64>,
    context_window: Option<u64>,
    /// Tokens of all calls of the thread.
    thread_total: Option<u64>,
}

impl Usage {
    /// Parses `thread/tokenUsage/updated`.
    pub(super) fn of(params: Params<'_>) -> Option<Usage> {
        let params: Value = params.read()?;
        let usage = &params["tokenUsage"];
        let last = |name: &str| usage["last"][name].as_u64();
        usage.is_object().then(|| Usage {
            total: last("totalTokens"),
            input: last("inputTokens"),
            cached_input: last("cachedInputTokens"),
            output: last("outputTokens"),
            reasoning_output: last("reasoningOutputTokens"),
            context_window: usage["modelContextWindow"].as_u64(),
            thread_total: usage["total"]["totalTokens"].as_u64(),
        })
    }

    pub(super) fn describe(&self, object: Object) -> Object {
        object
            .with_some("total", self.total)
            .with_some("input_tokens", self.input)
            .with_some("cached_input_tokens", self.cached_input)
            .with_some("output_tokens", self.output)
            .with_some("reasoning_output_tokens", self.reasoning_output)
            .with_some("context_window", self.context_window)
            .with_some("thread_total", self.thread_total)
    }
}
