//! Random bytes from the system, for tokens and cookies.

use std::io;

/// Returns `COUNT` random bytes.
///
/// # Errors
///
/// The system has no random bytes.
pub fn bytes<const COUNT: usize>() -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}
