//! Invariants that are checked while the program runs, in releases too. [`holds!`] checks one and gives it a name.
//!
//! In a test a failed one panics. In a release its name is noted, and the relay takes it with its next step: it reports a fault, and its
//! engine decides nothing any more (`engine::safe_state`). The code behind the check goes on, so it must not rely on it.
//!
//! Names are noted for a relay and not for a process: each thread has a list, and a thread that works for a relay joins the list of that
//! relay's thread. So an engine needs no way out for them, and two relays in one process do not hear of each other's faults.
//!
//! A test of the program has it find a defect: a build with debug assertions does so once the file exists that
//! `CODEX_SHIM_FINDS_DEFECT` names. A release has no trace of that.
//!
//! Never checks what a peer can decide: that would let a client or a server stop all rules.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Checks an invariant: its name, `area.words-with-dashes`, and a condition, which costs next to nothing where lines pass.
#[macro_export]
macro_rules! holds {
    ($name:literal, $condition:expr $(,)?) => {
        if !$condition {
            $crate::invariants::broken($name);
        }
    };
}

pub use holds;

/// Something has failed in this process. Only then is it worthwhile to look at a list.
static ANY: AtomicBool = AtomicBool::new(false);

thread_local! {
    static LIST: RefCell<Arc<List>> = RefCell::default();
}

#[derive(Debug)]
struct List {
    /// A failed one panics.
    panics: AtomicBool,
    names: Mutex<Names>,
}

/// The names of failed invariants, each once: there are as many as the sources have.
#[derive(Debug, Default)]
struct Names {
    all: Vec<&'static str>,
    /// How many of them the relay has taken.
    taken: usize,
}

impl Default for List {
    fn default() -> List {
        List { panics: AtomicBool::new(cfg!(debug_assertions)), names: Mutex::default() }
    }
}

impl List {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The list of a thread, for another one that works for the same relay.
#[derive(Debug, Clone, Default)]
pub struct Shared(Arc<List>);

/// The list of this thread.
#[must_use]
pub fn shared() -> Shared {
    Shared(LIST.with(|list| Arc::clone(&list.borrow())))
}

impl Shared {
    /// Notes what fails in this thread in this list.
    pub fn join(self) {
        LIST.set(self.0);
    }
}

/// Notes that an invariant has failed.
///
/// # Panics
///
/// In a test.
#[cold]
#[inline(never)]
pub fn broken(name: &'static str) {
    let list = shared().0;
    assert!(!list.panics.load(Ordering::Relaxed), "BUG: the invariant `{name}` does not hold");
    let mut names = list.names();
    if !names.all.contains(&name) {
        names.all.push(name);
        ANY.store(true, Ordering::Relaxed);
    }
}

/// The names that have been noted since the last call for the relay of this thread.
#[must_use]
pub fn take_broken() -> Vec<&'static str> {
    #[cfg(debug_assertions)]
    if is_asked_for() {
        panic_at_once(false);
        broken("test.asked-for");
    }
    if !ANY.load(Ordering::Relaxed) {
        return Vec::new();
    }
    let list = shared().0;
    let mut names = list.names();
    let new = names.all[names.taken..].to_vec();
    names.taken = names.all.len();
    new
}

/// Whether a test wants a defect to be found.
#[cfg(debug_assertions)]
fn is_asked_for() -> bool {
    use std::path::PathBuf;
    use std::sync::OnceLock;
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "a test sets it for a program that it starts")]
    let file = FILE.get_or_init(|| std::env::var_os("CODEX_SHIM_FINDS_DEFECT").map(PathBuf::from));
    file.as_ref().is_some_and(|file| file.exists())
}

/// Whether a failed invariant panics in this thread, and those that have joined it. Tests of releases want that, too.
pub fn panic_at_once(panics: bool) {
    shared().0.panics.store(panics, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_invariant_is_noted_once_for_its_relay() {
        panic_at_once(false);
        let ours = shared();
        let worker = std::thread::spawn(move || {
            ours.join();
            holds!("test.fails", false);
            holds!("test.holds", true);
            holds!("test.fails", false);
        });
        worker.join().expect("BUG: it does not panic");
        holds!("test.fails-too", false);
        let other = std::thread::spawn(|| {
            panic_at_once(false);
            holds!("test.fails-elsewhere", false);
            take_broken()
        });
        assert_eq!(other.join().expect("BUG: it does not panic"), ["test.fails-elsewhere"]);
        assert_eq!(take_broken(), ["test.fails", "test.fails-too"]);
        assert!(take_broken().is_empty());
    }

    #[test]
    #[should_panic(expected = "the invariant `test.fails` does not hold")]
    fn failed_invariant_panics_in_tests() {
        panic_at_once(true);
        holds!("test.fails", false);
    }
}
