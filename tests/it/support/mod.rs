//! Shared by the tests: a shim in its own home, a JSON-RPC peer, the scripted model, the real codex.

pub mod bench;
pub mod both_ends;
pub mod codex;
pub mod conversations;
pub mod dispositions;
pub mod engine;
pub mod fifo;
#[cfg(feature = "fleet")]
pub mod fleet;
pub mod history;
pub mod hub;
pub mod hub_tapes;
pub mod journal;
pub mod launch;
pub mod login_file;
pub mod model;
#[cfg(feature = "fleet")]
pub mod nats;
pub mod page;
pub mod pane;
pub mod patience;
pub mod peer;
pub mod real;
pub mod release;
pub mod requests;
pub mod shim;
pub mod stop;
pub mod streams;
pub mod tmux;
pub mod websocket;

pub use fifo::make_fifo;
pub use patience::{PATIENCE, eventually};
pub use stop::stop;
