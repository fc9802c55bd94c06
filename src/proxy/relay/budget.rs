//! Looks up what is spent of the token budget, for a turn that waits, and runs `on_budget` when most of a limit is used.
//!
//! A thread of its own does it, because the histories and ledgers of all sessions are read. The engine does not wait longer than its
//! deadline, and then asks a person. `on_budget` runs once a day for each limit at 80 %, and at 100 % if no turn waits for an answer:
//! a file in the home, locked meanwhile, has what was told, whichever relay told it.
//!
//! A command of the model can lock that file and those of SQLite, because a reader can lock a file. So a missing lock
//! silences nothing, and with an index that does not catch up the usage counts as unknown.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Zoned;

use super::hooks::HookRunner;
use crate::config::Settings;
use crate::control::Published;
use crate::engine::{BudgetFound, BudgetQuery, Spent, Token};
use crate::files::Folder;
use crate::history::client_in_usage;
use crate::index::{BudgetState, Index, budget_state, local_day};
use crate::journal::end_of;
use crate::store::Found;

/// How long a look waits until the own session's last turn is in its history.
const CATCH_UP_WAIT_MAX: Duration = Duration::from_secs(10);

/// How often that is looked at.
const CATCH_UP_EVERY: Duration = Duration::from_millis(2);

/// How often a look tries to lock the file of what was told.
const LOCK_TRIES: usize = 500;

/// Percent of a limit at which `on_budget` runs. Source: the contract.
const TOLD_AT: [u64; 2] = [80, 100];

/// Has what was told on this day.
const TOLD_FILE: &str = "budget-told";

const STACK_BYTES: usize = 512 << 10;

/// Looks up what is spent, on a thread that runs as long as there is something to look up. A look serves all turns that wait for one.
#[derive(Debug, Default)]
pub(super) struct BudgetWatch(Arc<Mutex<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    /// The engine bounds the number of turns that wait.
    waiting: Vec<(Token, BudgetQuery)>,
    /// Somebody may have to be told.
    is_due: bool,
    runs: bool,
    /// The lines of this process, because the file may be locked.
    told: BTreeSet<String>,
    /// What `status` shows of the last look.
    faults: BTreeSet<String>,
}

/// What a look needs to know.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) settings: Settings,
    pub(super) index: Option<Index>,
    pub(super) journal_dir: Option<PathBuf>,
    pub(super) session_id: String,
    pub(super) hooks: HookRunner,
    pub(super) published: Arc<Published>,
}

impl BudgetWatch {
    /// Starts a look, and posts what it has found out for a turn that waits. Never waits.
    ///
    /// # Errors
    ///
    /// Why it could not be started; nothing is posted then.
    pub(super) fn look(
        &self,
        look: Look,
        (token, query): (Option<Token>, BudgetQuery),
        post: impl Fn(Token, BudgetFound) + Send + 'static,
    ) -> Result<(), String> {
        let mut queue = lock(&self.0);
        queue.waiting.extend(token.map(|token| (token, query)));
        queue.is_due = true;
        if std::mem::replace(&mut queue.runs, true) {
            return Ok(());
        }
        drop(queue);
        let shared = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name("budget".to_owned()).stack_size(STACK_BYTES);
        let started = thread.spawn(move || {
            let _ends = Ends(Arc::clone(&shared));
            while let Some(waiting) = next(&shared) {
                look.serve(&shared, waiting, &post);
            }
        });
        started.map(drop).map_err(|error| {
            *lock(&self.0) = Queue::default();
            format!("start a thread: {error}")
        })
    }
}

/// Has the next look start another thread, also after a panic of this one.
struct Ends(Arc<Mutex<Queue>>);

impl Drop for Ends {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut queue = lock(&self.0);
            // The engine has a deadline for their turns.
            (queue.runs, queue.is_due) = (false, false);
            queue.waiting.clear();
        }
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The turns that wait for the next look; `None` ends the thread.
fn next(queue: &Mutex<Queue>) -> Option<Vec<(Token, BudgetQuery)>> {
    let mut queue = lock(queue);
    queue.runs = std::mem::take(&mut queue.is_due);
    queue.runs.then(|| std::mem::take(&mut queue.waiting))
}

impl Look {
    fn serve(&self, queue: &Mutex<Queue>, waiting: Vec<(Token, BudgetQuery)>, post: &impl Fn(Token, BudgetFound)) {
        let is_current = self.catch_up();
        let mut state = self.state(&waiting);
        state.unread.extend((!is_current).then(|| "the last records of this session are not indexed yet".to_owned()));
        let asks = self.settings.budget.asks();
        for (token, query) in waiting {
            let query = BudgetQuery { client: query.client.map(|client| client_in_usage(&client)), ..query };
            let of_turn = query.thread_id.as_ref().and_then(|thread_id| state.last_turns.get(thread_id));
            let reached = state.spent.iter().chain(of_turn).find(|spent| asks && query.has_reached(spent));
            post(
                token,
                match reached {
                    Some(spent) => BudgetFound::Reached(spent.clone()),
                    None if asks && !is_current => BudgetFound::Unknown,
                    None => BudgetFound::Allows,
                },
            );
        }
        self.report(queue, state.unread.iter().map(|why| format!("the budget leaves out tokens: {why}")).collect());
        self.tell(queue, &state, asks);
    }

    /// What is spent today.
    fn state(&self, waiting: &[(Token, BudgetQuery)]) -> BudgetState {
        let (day, since_us) = local_day(&Zoned::now());
        let limits = self.settings.budget.limits();
        let found = self.home().map_or(Ok(Vec::new()), Found::all);
        let (sessions, unlisted) = match found {
            Ok(sessions) => (sessions, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let threads = waiting.iter().filter_map(|(_, query)| query.thread_id.clone()).collect();
        let mut state = budget_state(&sessions, limits, (&day, since_us), &threads);
        state.unread.extend(unlisted);
        state
    }

    /// Has `status` show what could not be read, as long as it cannot.
    fn report(&self, queue: &Mutex<Queue>, now: BTreeSet<String>) {
        let before = std::mem::replace(&mut lock(queue).faults, now.clone());
        before.difference(&now).for_each(|fault| self.published.fault_ended(fault));
        for fault in now.difference(&before) {
            tracing::warn!(fault);
            self.published.fault(fault);
        }
    }

    fn home(&self) -> Option<&Path> {
        self.settings.home.value.as_deref()
    }

    /// Waits, for a bounded time, until everything recorded so far is indexed; returns whether it is.
    fn catch_up(&self) -> bool {
        let (Some(index), Some(journal_dir)) = (&self.index, &self.journal_dir) else { return true };
        let (end, until) = (end_of(journal_dir), Instant::now() + CATCH_UP_WAIT_MAX);
        let state = index.state();
        let is_there = || {
            let state = state.borrow();
            state.opened > 0 && (end.is_none() || state.position >= end)
        };
        index.wake();
        while !is_there() && state.borrow().fault.is_none() && Instant::now() < until {
            std::thread::park_timeout(CATCH_UP_EVERY);
        }
        is_there()
    }

    /// Runs `on_budget` for each limit of which that was not done today. If it cannot be found out whether it was, it runs once more.
    fn tell(&self, queue: &Mutex<Queue>, state: &BudgetState, asks: bool) {
        let command = &self.settings.on_budget.value;
        let Some(home) = self.home().filter(|_| !command.is_empty()) else { return };
        let mut tries = LOCK_TRIES;
        for spent in &state.spent {
            let Some(level) = level(spent, asks) else { continue };
            let day = &*spent.day;
            let client = spent.client.as_deref().unwrap_or("");
            let what = format!("{day}\t{}\t{}\t{level}\t{client:?}", spent.limit.name(), spent.most);
            {
                let told = &mut lock(queue).told;
                told.retain(|of| of.starts_with(day));
                if !told.insert(what.clone()) {
                    continue;
                }
            }
            let is_new = is_new(home, day, &what, tries).unwrap_or_else(|error| {
                tracing::warn!(%error, "{TOLD_FILE} in the home: on_budget may run twice");
                // Turns wait for the next look.
                tries = 1;
                true
            });
            if is_new {
                let document = spent.document().to_string();
                self.hooks.run("on_budget", command, &self.session_id, move || Some(document), || {});
            }
        }
    }
}

/// The highest share of a limit that is used and of which the user is told.
fn level(spent: &Spent, asks: bool) -> Option<u64> {
    let used = spent.percent();
    let told = TOLD_AT.iter().rev().filter(|percent| **percent < 100 || !asks);
    told.copied().find(|percent| used >= *percent)
}

/// Whether a line is not in the file of what was told on this day, to which it is added.
fn is_new(home: &Path, day: &str, what: &str, tries: usize) -> io::Result<bool> {
    let home = Folder::home(home)?;
    // Another relay has it for a moment.
    let mut tries = std::iter::repeat_with(|| home.lock(TOLD_FILE)).take(tries).inspect(|locked| {
        if let Ok(None) = locked {
            std::thread::park_timeout(CATCH_UP_EVERY);
        }
    });
    let locked = tries.find_map(Result::transpose).transpose()?;
    let mut file = locked.ok_or_else(|| io::Error::other("another program has locked it"))?;
    let mut told = Vec::new();
    file.read_to_end(&mut told)?;
    let told = String::from_utf8_lossy(&told);
    if told.lines().any(|line| line == what) {
        return Ok(false);
    }
    let kept: Vec<&str> = told.lines().filter(|line| line.starts_with(day)).chain([what]).collect();
    rewrite(&mut file, &(kept.join("\n") + "\n"))?;
    Ok(true)
}

fn rewrite(file: &mut File, text: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::BudgetLimit;

    #[test]
    fn each_share_is_told_once_a_day() {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        std::fs::set_permissions(home.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("it is ours");
        let told = |day: &str, what: &str| is_new(home.path(), day, &format!("{day}\t{what}"), 1).expect("a file");
        assert!(told("2026-01-02", "a") && told("2026-01-02", "b"));
        assert!(!told("2026-01-02", "a") && !told("2026-01-02", "b"));
        assert!(told("2026-01-03", "a"));
        // The day before is forgotten, which a clock that was set back cannot tell from a new one.
        assert!(told("2026-01-02", "b"));
    }

    #[test]
    fn shares_of_a_limit() {
        let check = |used, most, asks, expect| {
            let spent = Spent { limit: BudgetLimit::Day, client: None, day: String::new(), used, most };
            assert_eq!(level(&spent, asks), expect, "{used} of {most}");
        };
        check(79, 100, true, None);
        check(80, 100, true, Some(80));
        check(150, 100, true, Some(80));
        check(99, 100, false, Some(80));
        check(100, 100, false, Some(100));
        check(0, 0, false, Some(100));
        check(u64::MAX, u64::MAX, false, Some(100));
    }
}
