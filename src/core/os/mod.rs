//! The system: what this program asks of the kernel beyond the standard library, one file for each concern.
//!
//! A function is named by what it is for, and says what it promises, and what it cannot promise on which system. Only this room
//! names a system, `rustix` or `libc`. Linux and macOS are implemented. What only Linux has a call for is done another way on every other
//! system, in the same function, and on Linux too in [portable mode](portable). What only macOS can do is marked `target_vendor = "apple"`.
//! A further system is one more implementation of the same functions.
//!
//! The error of a call is an [`Errno`] if its caller tells one from another, and an [`std::io::Error`] otherwise.
//!
//! Nothing here knows what a descriptor, a process or a file is for.

pub mod allocator;
pub mod clocks;
pub mod confinement;
pub mod descriptors;
pub mod desktop;
mod facts;
pub mod fs;
#[cfg(target_os = "linux")]
mod holder;
pub mod identity;
pub mod keeper;
pub mod launch;
pub mod limits;
pub mod memory;
pub mod peers;
pub mod polling;
mod portable;
pub mod processes;
pub mod random;
pub mod self_test;
pub mod signals;
pub mod sockets;
pub mod terminals;

pub use rustix::io::{Errno, Result};
