//! Tests through real pipes, with real processes.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test may fail where it stands, and is no library")]

mod attach;
mod attach_faults;
mod bytes;
mod capture;
mod capture_beside;
mod capture_tmux;
mod clients;
mod context;
mod context_e2e;
mod context_engine;
mod context_engine_e2e;
mod context_engine_faults;
mod control;
mod demo;
mod dependencies;
mod docs;
mod doctor;
mod e2e;
mod endings;
mod faults;
mod fragments;
mod history;
mod history_e2e;
mod history_faults;
mod history_stream;
mod history_tools;
mod keeping;
mod kills;
mod request_tools;
mod requests;
mod requests_calls;
mod requests_e2e;
mod requests_faults;
mod requests_kills;
mod requests_kinds_e2e;
mod serve;
mod start;
mod support;
mod tapes;
mod tidy;
mod tui;
mod wrap;
