//! Reads a request body whole before the route runs, bounded in size and time.
//!
//! A body over the limit is read and dropped up to a second limit, so that a client that writes everything before it reads
//! still gets its response.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::BodyExt as _;
use tokio::time::timeout;

/// Longest accepted body, in bytes.
pub(super) const BODY_BYTES_MAX: u64 = 1 << 20;

/// How much of a body over the limit is read and dropped, in bytes.
const BODY_BYTES_READ_AWAY_MAX: u64 = 16 << 20;

const BODY_WAIT_MAX: Duration = Duration::from_secs(30);

/// Why a body was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyError {
    /// Longer than [`BODY_BYTES_MAX`].
    TooBig,
    TooSlow,
    /// The connection broke, or the framing is invalid.
    Broken,
}

/// Reads a whole body.
pub(super) async fn take(body: Body) -> Result<Bytes, BodyError> {
    match timeout(BODY_WAIT_MAX, take_unhurried(body)).await {
        Ok(taken) => taken,
        Err(_) => Err(BodyError::TooSlow),
    }
}

async fn take_unhurried(mut body: Body) -> Result<Bytes, BodyError> {
    let mut kept = Vec::new();
    let mut seen_bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| BodyError::Broken)?;
        let Some(data) = frame.data_ref() else { continue };
        seen_bytes += data.len() as u64;
        if seen_bytes <= BODY_BYTES_MAX {
            kept.extend_from_slice(data);
        } else {
            kept = Vec::new();
        }
        if seen_bytes > BODY_BYTES_READ_AWAY_MAX {
            break;
        }
    }
    if seen_bytes > BODY_BYTES_MAX { Err(BodyError::TooBig) } else { Ok(kept.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a body of `bytes` bytes; `expect` is the number read.
    fn check(bytes: u64, expect: Result<u64, BodyError>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let taken = runtime.block_on(take(Body::from(vec![b'x'; bytes as usize])));
        assert_eq!(taken.map(|taken| taken.len() as u64), expect);
    }

    #[test]
    fn bodies_are_bounded() {
        check(0, Ok(0));
        check(BODY_BYTES_MAX, Ok(BODY_BYTES_MAX));
        check(BODY_BYTES_MAX + 1, Err(BodyError::TooBig));
        check(BODY_BYTES_READ_AWAY_MAX + 1, Err(BodyError::TooBig));
    }
}
