//! What stands between clients and the server: relays and hubs, their control socket, tapes.

use codex_shim_core::{
    api, config, engine, files, history, index, invariants, journal, os, protocol, requests, secrets, socket, store,
    websocket, wire,
};

pub mod capture;
pub mod context_engine;
pub mod control;
pub mod driver;
pub mod hub;
pub mod rehearsal;
pub mod relay;
pub mod replay;
