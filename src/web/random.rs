//! Random bytes of the system, for tokens and cookies.

use std::io;

use super::access::Fresh;

/// As many random bytes as the caller takes.
///
/// # Errors
///
/// The system has none.
pub(super) fn bytes<const COUNT: usize>() -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// The random bytes of a new browser.
///
/// # Errors
///
/// As [`bytes`].
pub(super) fn fresh() -> io::Result<Fresh> {
    Ok(Fresh { cookie: bytes()?, door: bytes()? })
}
