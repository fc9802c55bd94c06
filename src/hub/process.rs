//! The server process: starting it, finding it again, and stopping it.
