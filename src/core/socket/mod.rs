//! Unix sockets: where ours are bound, how to connect to one, and who is at the other end.
//!
//! A socket of ours lets its caller decide for the user. So it is bound in a folder that the sandbox of codex hides from the
//! commands that the model runs ([`bind_at`]), and a peer that is confined more than this process is refused ([`Callers`]),
//! since the sandbox confines all that runs in it.
//!
//! Nothing here accepts connections, or reads or writes them.

mod bind;
mod callers;
mod endpoint;
mod leftovers;
mod occupant;
mod own_files;

pub use crate::os::peers::Peer;
pub use bind::{
    Bound, SocketError, bind_at, bind_behind_link, bind_free, fits, hidden_dir, remove_target, resolve_at, short_path,
};
pub use callers::{Callers, Refused};
pub use endpoint::{Displaced, Endpoint, EndpointState, FaultChange, LOOK_EVERY, LastingSocket, bind_again};
pub use occupant::Occupant;
pub use own_files::SocketFiles;
