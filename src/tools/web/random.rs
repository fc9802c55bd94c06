//! Random bytes from the operating system, for tokens and cookies.

use std::io;

use super::access::Fresh;

/// Returns `COUNT` random bytes.
///
/// # Errors
///
/// The operating system cannot supply random bytes.
pub(super) fn bytes<const COUNT: usize>() -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// Returns the random bytes for a new browser.
///
/// # Errors
///
/// See [`bytes`].
pub(super) fn fresh() -> io::Result<Fresh> {
    Ok(Fresh { cookie: bytes()?, door: bytes()? })
}
