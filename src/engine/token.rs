//! Names for what is waited for.

/// Names something that is waited for.
pub type Token = u64;

/// Names somebody at the side who waits for a reply.
pub type ApiCallId = u64;
