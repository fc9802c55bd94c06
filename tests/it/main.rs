//! Tests through real pipes, with real processes.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod bytes;
mod e2e;
mod endings;
mod faults;
mod kills;
mod start;
mod support;
mod tidy;
