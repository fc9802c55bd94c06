//! Clients, and other processes at our sockets.

use serde::{Deserialize, Serialize};

use crate::protocol::named;

/// Who starts and initializes the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerOwner {
    #[default]
    Client,
    /// The relay initializes the server; clients attach to it.
    Relay,
    /// The hub: each client has a connection of its own to a server that outlives the hub, and so has the hub.
    Hub,
}

/// What differs from one kind of session to another.
impl ServerOwner {
    /// Whether the server goes on when we end, was maybe there before us, and is neither started nor stopped for a caller.
    pub fn outlives_us(self) -> bool {
        self == ServerOwner::Hub
    }

    /// Whether the server has several clients at a time. It then sends a request to each of them that follows its thread, and gives
    /// no other request the same id.
    pub fn has_many_clients(self) -> bool {
        self == ServerOwner::Hub
    }

    /// Whether a connection of ours, beside those of the clients, follows threads that no client follows.
    pub fn watches_threads(self) -> bool {
        self == ServerOwner::Hub
    }
}

/// What the kernel and the listener know about a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    pub transport: Transport,
    /// `None` if the kernel does not tell.
    pub pid: Option<u32>,
    /// The terminal of that process, such as `pts/3`.
    pub terminal: Option<String>,
    /// What the commands of its threads get of the environment of that process.
    pub variables: Variables,
}

/// Variables of an environment. Their values may be secret.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variables {
    pub pairs: Vec<(String, String)>,
    /// One of them decides which program a command runs, or what that reads first.
    pub decide: bool,
}

impl Variables {
    pub const NONE: Variables = Variables { pairs: Vec::new(), decide: false };

    pub fn names(&self) -> Vec<String> {
        self.pairs.iter().map(|(name, _)| name.clone()).collect()
    }
}

impl std::fmt::Debug for Variables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Variables").field(&self.names()).finish()
    }
}

named! {
    /// How a client is connected.
    pub open enum Transport {
        WebSocket = "websocket",
        /// A client on pipes, through another codex-shim.
        Stdio = "stdio",
    }
}

/// A client's name for itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientName {
    /// `clientInfo.name`, cut off at 200 bytes.
    pub name: Option<String>,
    /// `clientInfo.version`, likewise.
    pub version: Option<String>,
}

/// A process that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedPeer {
    /// The socket at which it called: `control`, or `hub`.
    #[serde(with = "crate::engine::as_json::compiled_in")]
    pub socket: crate::engine::as_json::compiled_in::CompiledIn,
    /// How it is confined.
    #[serde(with = "crate::engine::as_json::compiled_in")]
    pub reason: crate::engine::as_json::compiled_in::CompiledIn,
    pub uid: u32,
    pub pid: Option<u32>,
    /// The name of its program, as the process gives it.
    pub program: Option<String>,
}

/// Variables that a call gives to the commands of a thread, and whose they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenVariables {
    pub client: ClientName,
    pub terminal: Option<String>,
    pub names: Vec<String>,
    /// See [`Variables::decide`].
    pub decide: bool,
}
