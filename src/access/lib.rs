//! The sessions of this machine and of a fleet, for those who look at them.

use codex_shim_core::{api, config, engine, files, history, index, journal, protocol, requests, store, text};
#[cfg(feature = "fleet")]
use codex_shim_core::{os, secrets};
use codex_shim_proxy::{capture, control, hub};

#[cfg(feature = "fleet")]
pub mod fleet;
pub mod sessions;
