//! Random bytes for cookies.

use std::io;

use super::access::Fresh;
use crate::os::random::bytes;

/// Returns the random bytes for a new browser.
///
/// # Errors
///
/// The system has no random bytes.
pub(super) fn fresh() -> io::Result<Fresh> {
    Ok(Fresh { cookie: bytes()?, door: bytes()? })
}
