//! Requests for people: what each asks, in words, what is risky about it, the answers that it takes, and its form.
//!
//! Pure. It reads the row of a request as the ledger has it. The terminal UI, the page, the tools and the agent of a fleet show and
//! answer requests by it, and so do the routes of the control socket.

mod again;
pub mod answer;
mod danger;
pub mod form;
#[cfg(any(test, feature = "testing"))]
pub mod request_testing;
mod schema;
mod until;
pub mod view;
