//! The protocol of `codex app-server`: the methods that this program knows, and their meaning.
//!
//! No other room names methods. This one never parses lines and holds no state.

mod event;
mod method;

pub(crate) use event::{Event, RequestPlace, inject_items_params, notification_line, request_line};
#[cfg(test)]
pub(crate) use method::Listed;
pub(crate) use method::{Method, RESPONSES, Secrecy};
pub(crate) use method::{
    answers_with_credentials, may_ask_for_secret, may_write_config, names_method_with_secret_answer,
    names_method_with_secret_members, names_secret_method,
};

/// Prefix of notification methods until early 2026.
pub(crate) const EARLY_PREFIX: &str = "codex/event/";
