//! Requests for people: what each asks, in words, what is risky about it, the answers that it takes, and its form.
//!
//! Pure. It reads the row of a request as the ledger has it. The terminal UI, the page, the tools and the agent of a fleet show and
//! answer requests by it, and so do the routes of the control socket.

/// What to ask once more before an answer.
mod again;
/// The bodies of answers.
pub mod answer;
/// Words that are risky in a command.
mod danger;
mod filter;
/// The fields of a question or a form.
pub mod form;
/// Answers as users give them.
pub mod given;
#[cfg(any(test, feature = "testing"))]
pub mod request_testing;
mod schema;
mod until;
pub mod view;
