//! The signals that we receive while a program runs under us.

use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::{flag, low_level};

use crate::launch::{is_ignored, unblock};

/// The signals received since the last check.
#[derive(Debug)]
pub(super) struct Signals {
    wake: UnixStream,
    come: Vec<(i32, Arc<AtomicBool>)>,
}

impl Signals {
    /// Listens for these signals. An ignored signal stays ignored, for us and the program. One that our launcher has
    /// blocked reaches us, and through us the program, in which it is blocked as it was in us.
    pub(super) fn listen(numbers: &[i32]) -> io::Result<Signals> {
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let mut come = Vec::new();
        unblock(numbers);
        for number in numbers.iter().copied().filter(|number| !is_ignored(*number)) {
            let flag = Arc::new(AtomicBool::new(false));
            flag::register(number, Arc::clone(&flag))?;
            low_level::pipe::register(number, waker.try_clone()?)?;
            come.push((number, flag));
        }
        Ok(Signals { wake, come })
    }

    /// Returns the received signals and clears them.
    pub(super) fn take(&self) -> Vec<i32> {
        let mut bytes = [0; 64];
        while (&self.wake).read(&mut bytes).is_ok_and(|read| read > 0) {}
        let come = self.come.iter().filter(|(_, flag)| flag.swap(false, Ordering::Relaxed));
        come.map(|(number, _)| *number).collect()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
