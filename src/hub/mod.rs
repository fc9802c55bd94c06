//! The hub: one server for all clients of a machine. Clients connect over WebSocket on Unix sockets; each gets a connection of its
//! own to the server, which is a process of its own and outlives the hub.

mod process;
mod sockets;
pub(crate) mod websocket;
