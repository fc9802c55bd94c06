//! Looks at files on threads of their own: a folder on a network that is gone can stall one for ever.
//!
//! A check that does not answer in time is left alone, and its thread ends when the file system answers. Only so many may hang at a
//! time; further ones are refused at once.
//!
//! The content of a check is its caller's.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const STACK_BYTES: usize = 512 << 10;

/// Starts checks, at most so many at a time. All clones count together.
#[derive(Debug, Clone)]
pub(super) struct Checks {
    running: Arc<AtomicUsize>,
    max: usize,
}

/// The file or setting that a check looks at, to be named if the check does not answer.
#[derive(Debug, Clone)]
pub(super) struct Subject(Arc<Mutex<String>>);

impl Subject {
    fn new(name: &str) -> Subject {
        Subject(Arc::new(Mutex::new(name.to_owned())))
    }

    pub(super) fn is(&self, name: &str) {
        name.clone_into(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn name(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Counts a check as running until it is dropped, also by a panic.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A check that was started, or could not be.
#[derive(Debug)]
pub(super) struct RunningCheck<T> {
    subject: Subject,
    answer: Option<Receiver<T>>,
}

/// The state of a check.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CheckState<T> {
    Is(T),
    /// Not yet. It looks at what has this name.
    Late(String),
    /// The check could not be started, or has failed.
    None(String),
}

impl Checks {
    pub(super) fn new(max: usize) -> Checks {
        Checks { running: Arc::default(), max }
    }

    /// Starts a check, which looks at `first` until it names another subject. Never waits.
    pub(super) fn start<T: Send + 'static>(
        &self,
        first: &str,
        check: impl FnOnce(&Subject) -> T + Send + 'static,
    ) -> RunningCheck<T> {
        let subject = Subject::new(first);
        let before = self.running.fetch_add(1, Ordering::SeqCst);
        let running = Running(Arc::clone(&self.running));
        if before >= self.max {
            return RunningCheck { subject, answer: None };
        }
        let (send, answer) = sync_channel(1);
        let of_thread = subject.clone();
        let thread = std::thread::Builder::new().name("check".to_owned()).stack_size(STACK_BYTES);
        let started = thread.spawn(move || {
            let checked = check(&of_thread);
            drop(running);
            let _ = send.send(checked);
        });
        RunningCheck { subject, answer: started.is_ok().then_some(answer) }
    }
}

impl<T> RunningCheck<T> {
    /// Waits for the answer.
    pub(super) fn wait(&self, wait_max: Duration) -> CheckState<T> {
        let none = || CheckState::None(self.subject.name());
        let Some(answer) = &self.answer else { return none() };
        match answer.recv_timeout(wait_max) {
            Ok(answer) => CheckState::Is(answer),
            Err(RecvTimeoutError::Timeout) => CheckState::Late(self.subject.name()),
            Err(RecvTimeoutError::Disconnected) => none(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::mpsc::SyncSender;
    use std::time::Instant;

    use super::*;

    /// More than any test waits.
    const LONG: Duration = Duration::from_secs(60);

    /// A check that hangs at `b` until it is told an answer.
    type Hung = (RunningCheck<u32>, SyncSender<u32>);

    fn hung(checks: &Checks) -> Hung {
        let (tell, told) = sync_channel(1);
        let (at_b, is_at_b) = sync_channel(1);
        let check = checks.start("a", move |subject| {
            subject.is("b");
            let _ = at_b.send(());
            told.recv().unwrap_or_default()
        });
        is_at_b.recv().expect("it runs");
        (check, tell)
    }

    /// As many checks as may run. They hang until they are dropped.
    pub(in crate::relay) fn hang_all(checks: &Checks) -> Vec<Hung> {
        (0..checks.max).map(|_| hung(checks)).collect()
    }

    #[test]
    fn hung_check_names_its_subject_and_answers_later() {
        let checks = Checks::new(3);
        assert_eq!(checks.start("a", |_| 7).wait(LONG), CheckState::Is(7));
        let (check, tell) = hung(&checks);
        assert_eq!(check.wait(Duration::ZERO), CheckState::Late("b".to_owned()));
        tell.send(8).expect("it waits");
        assert_eq!(check.wait(LONG), CheckState::Is(8));
        let failed = checks.start("a", |_| {
            if true {
                panic!("as wanted")
            }
        });
        assert_eq!(failed.wait(LONG), CheckState::None("a".to_owned()));
    }

    #[test]
    fn hung_checks_are_bounded() {
        let checks = Checks::new(3);
        let mut all = hang_all(&checks);
        assert_eq!(checks.start("c", |_| 7).wait(LONG), CheckState::None("c".to_owned()));
        let (check, tell) = all.pop().expect("BUG: it has some");
        tell.send(8).expect("it waits");
        assert_eq!(check.wait(LONG), CheckState::Is(8));
        assert_eq!(checks.start("c", |_| 7).wait(LONG), CheckState::Is(7));
        // Nobody waits for the rest.
        drop(all);
        let began = Instant::now();
        while checks.running.load(Ordering::SeqCst) > 0 {
            assert!(began.elapsed() < LONG, "the threads end");
            std::thread::yield_now();
        }
    }
}
