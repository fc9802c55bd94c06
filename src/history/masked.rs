//! Masks secrets in stored conversations.
//!
//! A mask is as long as the secret, like that of `redact`: a history rebuilt from a redacted journal has the same
//! entries.

use std::sync::LazyLock;

use serde_json::value::RawValue;

use super::record_event::Params;
use crate::engine::{Masker, redacted};

static MASKER: LazyLock<Masker> = LazyLock::new(|| Masker::new(&[]).expect("BUG: there is no pattern"));

pub(super) fn masked_json(json: String) -> String {
    MASKER.json(&json).unwrap_or(json)
}

/// Masks parameters; returns `None` if they have no secret.
pub(super) fn masked_params(params: Params<'_>) -> Option<Box<RawValue>> {
    RawValue::from_string(MASKER.json(params.written()?.get())?).ok()
}

pub(super) fn masked_text(text: &str) -> String {
    redacted(text).unwrap_or_else(|| text.to_owned())
}

/// Masks an incomplete text; its last word may be the beginning of a secret, and is left out.
pub(super) fn masked_so_far(text: &str) -> String {
    let masked = masked_text(text);
    masked[..masked.rfind(char::is_whitespace).map_or(0, |at| at + 1)].trim_end().to_owned()
}
