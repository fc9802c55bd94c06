//! The body of a request: taken whole before a route sees it, with bounds on its size and on the time that it takes.
//!
//! One that is too big is read away up to a limit, so that a client that writes first and reads then gets its answer.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::BodyExt as _;
use tokio::time::timeout;

/// Longest body that a route is given, in bytes.
pub(super) const BODY_BYTES_MAX: u64 = 1 << 20;

/// How much of a longer one is read away, in bytes.
const BODY_BYTES_READ_AWAY_MAX: u64 = 16 << 20;

/// How long a client may take to send a body.
const BODY_WAIT_MAX: Duration = Duration::from_secs(30);

/// Why there is no body to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyError {
    /// It is over [`BODY_BYTES_MAX`].
    TooBig,
    /// It did not come in time.
    TooSlow,
    /// It broke off, or is no body as HTTP has them.
    Broken,
}

/// Takes a body whole.
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

    /// What becomes of a body of so many bytes: how many were taken.
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
