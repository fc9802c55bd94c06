//! The sockets that clients connect to.
