//! Many sessions at the same time.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Sessions that are looked at together.
const AT_ONCE_MAX: usize = 16;

/// Looks at sessions, several at the same time, because each relay may let us wait. One that is silent holds up no other as long as some
/// answer. Returns the results in the same order. The calling thread looks, too, so that one session needs no other thread.
pub fn at_once<S: Sync, T: Send>(sessions: &[S], look: impl Fn(&S) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let take = || {
        let index = next.fetch_add(1, Ordering::Relaxed);
        Some((index, look(sessions.get(index)?)))
    };
    let mut looked: Vec<(usize, T)> = std::thread::scope(|scope| {
        let work = || std::iter::from_fn(take).collect::<Vec<_>>();
        let others: Vec<_> = (1..sessions.len().min(AT_ONCE_MAX)).map(|_| scope.spawn(work)).collect();
        let mut looked = work();
        looked.extend(others.into_iter().flat_map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic))));
        looked
    });
    looked.sort_unstable_by_key(|(index, _)| *index);
    looked.into_iter().map(|(_, result)| result).collect()
}

/// The sessions with a result, and the unreadable ones with their errors.
pub type ReadEach<S, T, E> = (Vec<(S, T)>, Vec<(S, E)>);

/// Reads sessions, several at the same time.
pub fn read_each<S: Sync + Clone, T: Send, E: Send>(
    sessions: &[S],
    read: impl Fn(&S) -> Result<Option<T>, E> + Sync,
) -> ReadEach<S, T, E> {
    let (mut found, mut silent) = (Vec::new(), Vec::new());
    for (session, read) in sessions.iter().zip(at_once(sessions, read)) {
        match read {
            Ok(one) => found.extend(one.map(|one| (session.clone(), one))),
            Err(error) => silent.push((session.clone(), error)),
        }
    }
    (found, silent)
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_session_needs_no_other_thread() {
        let own = std::thread::current().id();
        assert_eq!(at_once(&["one"], |_| std::thread::current().id()), [own]);
        assert_eq!(at_once(&[(); 0], |()| true), [true; 0]);
    }

    #[test]
    fn silent_session_holds_up_no_other() {
        let all: Vec<usize> = (0..100).collect();
        let (tell, told) = mpsc::sync_channel(1);
        let told = Mutex::new(told);
        let looked = at_once(&all, |one| match one {
            0 => told.lock().map(|told| told.recv_timeout(Duration::from_secs(30)).is_ok()).expect("BUG: no panic"),
            99 => tell.send(()).is_ok(),
            _ => one % 2 == 0,
        });
        let expect: Vec<bool> = all.iter().map(|one| one % 2 == 0 || *one == 99).collect();
        assert_eq!(looked, expect);
    }
}
