//! One end of a WebSocket connection: handshake and messages on a non-blocking socket.
