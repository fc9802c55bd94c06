//! The rules of codex-shim, most of them pure, and what it stores.

pub mod api;
pub mod config;
pub mod drift;
pub mod engine;
pub mod files;
pub mod history;
pub mod index;
pub mod invariants;
pub mod journal;
pub mod keeping;
pub mod os;
pub mod protocol;
pub mod requests;
pub mod secrets;
pub mod socket;
pub mod store;
pub mod text;
pub mod websocket;
pub mod wire;
