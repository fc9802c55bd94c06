//! Identifiers of pending work.

/// Identifies something that the engine waits for.
pub type Token = u64;

/// Identifies an API call that waits for a reply.
pub type ApiCallId = u64;
