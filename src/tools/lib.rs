//! The command line, the terminal UI and the web page.

#[cfg(feature = "fleet")]
use codex_shim_access::fleet;
use codex_shim_access::sessions;
use codex_shim_core::{
    api, config, drift, engine, files, history, index, journal, keeping, os, protocol, requests, secrets, socket,
    store, text, websocket, wire,
};
use codex_shim_proxy::{capture, control, hub, rehearsal, relay, replay};

mod cli;
mod tui;
mod web;

/// Runs the program with the arguments of this process. Returns its exit status.
#[must_use]
pub fn main() -> i32 {
    cli::main()
}
