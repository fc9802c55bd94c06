//! Arbitrary bodies at the control socket: answers to requests, and commands for the context.

#![no_main]

use std::time::SystemTime;

use codex_shim::testing::api::Request;
use codex_shim::testing::control::new_commands;
use codex_shim::testing::engine::{ContextBounds, GivenAnswer, PushedCommand, RequestKind, decisions, one_line, valid};
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

const METHODS: [&str; 8] = [
    "item/commandExecution/requestApproval",
    "item/fileChange/requestApproval",
    "item/tool/requestUserInput",
    "item/permissions/requestApproval",
    "mcpServer/elicitation/request",
    "applyPatchApproval",
    "execCommandApproval",
    "some/other",
];

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let mut parts = rest.splitn(2, |byte| *byte == 0);
    let (body, params) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let method = METHODS[usize::from(*first) % METHODS.len()];
    let kind = RequestKind::of(method).unwrap_or(RequestKind::Other);
    let params: Option<Box<RawValue>> = serde_json::from_slice(params).ok();
    if let Ok(given) = serde_json::from_slice::<GivenAnswer>(body) {
        // An accepted answer is one that the server can receive.
        if let Ok(checked) = given.check(kind, method, params.as_deref()) {
            let _ = format!("{checked:?}");
        }
    }
    if let Some(params) = params.as_deref().and_then(|params| serde_json::from_str(params.get()).ok()) {
        let _ = (valid(kind, &params), decisions(kind, &params));
        let mut request = Request::default();
        (request.request_method, request.request_payload) = (method.to_owned(), params);
        let _ = request.with_choices();
    }
    let _ = one_line(&String::from_utf8_lossy(body));
    if let Ok(pushed) = serde_json::from_slice::<Vec<PushedCommand>>(body) {
        let bounds = ContextBounds::default();
        for kept in new_commands(pushed, SystemTime::UNIX_EPOCH, &bounds).unwrap_or_default() {
            let preview = serde_json::to_string(&kept.command).expect("it is JSON");
            assert!(!preview.contains('\u{1e}') && !preview.contains('\u{1b}'));
        }
    }
});
