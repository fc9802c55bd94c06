//! Looks up what is spent of the token budget, for a turn that waits, and runs `on_budget` when most of a limit is used.
//!
//! A thread of its own does it, because the histories and ledgers of all sessions are read. The engine does not wait longer than its
//! deadline, and the turn then goes on. `on_budget` runs once a day for each limit at 80 %, and at 100 % if no turn waits for an answer:
//! a file in the home, locked meanwhile, has what was told, whichever relay told it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jiff::Zoned;

use super::hooks::HookRunner;
use crate::config::Settings;
use crate::control::Published;
use crate::engine::{BudgetLimit, BudgetQuery, Spent};
use crate::files::Folder;
use crate::index::{BudgetState, Index, budget_state, local_day};
use crate::journal::end_of;
use crate::store::Found;

/// Most looks at once. For further ones nothing is looked up: the others hang.
const LOOKS_MAX: usize = 8;

/// How long a look waits until the own session's last turn is in its history.
const CATCH_UP_WAIT_MAX: Duration = Duration::from_secs(1);

/// How often that is looked at.
const CATCH_UP_EVERY: Duration = Duration::from_millis(2);

/// Percent of a limit at which `on_budget` runs. Source: the contract.
const TOLD_AT: [u64; 2] = [80, 100];

/// Has what was told on this day.
const TOLD_FILE: &str = "budget-told";

const STACK_BYTES: usize = 512 << 10;

/// Starts looks on threads of their own.
#[derive(Debug, Default)]
pub(super) struct BudgetWatch {
    running: Arc<AtomicUsize>,
}

/// Counts a look as running until it is dropped, also by a panic.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a look needs to know.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) query: BudgetQuery,
    pub(super) settings: Settings,
    pub(super) index: Option<Index>,
    pub(super) journal_dir: Option<PathBuf>,
    pub(super) session_id: String,
    pub(super) hooks: HookRunner,
    pub(super) published: Arc<Published>,
}

impl BudgetWatch {
    /// Starts a look, and posts the limit that is reached by the turn of the query. Never waits.
    ///
    /// # Errors
    ///
    /// Why it could not be started; nothing is posted then.
    pub(super) fn look(&self, look: Look, post: impl FnOnce(Option<Spent>) + Send + 'static) -> Result<(), String> {
        let before = self.running.fetch_add(1, Ordering::Relaxed);
        let running = Running(Arc::clone(&self.running));
        if before >= LOOKS_MAX {
            return Err("earlier looks have not ended".to_owned());
        }
        let thread = std::thread::Builder::new().name("budget".to_owned()).stack_size(STACK_BYTES);
        let started = thread.spawn(move || {
            let (day, state) = look.state();
            let asks = look.settings.budget.asks();
            post(state.spent.iter().find(|spent| asks && look.query.has_reached(spent)).cloned());
            look.tell(&day, &state, asks);
            drop(running);
        });
        started.map(drop).map_err(|error| format!("start a thread: {error}"))
    }
}

impl Look {
    /// The day, and what is spent on it.
    fn state(&self) -> (String, BudgetState) {
        let (day, since_us) = local_day(&Zoned::now());
        self.catch_up();
        let limits = self.settings.budget.limits();
        let sessions = self.home().and_then(|home| Found::all(home).ok()).unwrap_or_default();
        let state = budget_state(&sessions, limits, since_us, self.query.thread_id.as_deref());
        for why in &state.unread {
            tracing::warn!(why, "the tokens of a session do not count for the budget");
            self.published.fault(&format!("the tokens of a session do not count for the budget: {why}"));
        }
        (day, state)
    }

    fn home(&self) -> Option<&Path> {
        self.settings.home.value.as_deref()
    }

    /// Waits, for a bounded time, until everything recorded so far is indexed.
    fn catch_up(&self) {
        let (Some(index), Some(journal_dir)) = (&self.index, &self.journal_dir) else { return };
        let (end, until) = (end_of(journal_dir), Instant::now() + CATCH_UP_WAIT_MAX);
        let state = index.state();
        let is_there = || {
            let state = state.borrow();
            state.fault.is_some() || (state.opened > 0 && (end.is_none() || state.position >= end))
        };
        index.wake();
        while !is_there() && Instant::now() < until {
            std::thread::park_timeout(CATCH_UP_EVERY);
        }
    }

    /// Runs `on_budget` for each limit of which that was not done today.
    fn tell(&self, day: &str, state: &BudgetState, asks: bool) {
        let command = &self.settings.on_budget.value;
        let Some(home) = self.home().filter(|_| !command.is_empty()) else { return };
        let due = |spent: &&Spent| spent.limit != BudgetLimit::Turn && level(spent, asks).is_some();
        for spent in state.spent.iter().filter(due) {
            let Some(level) = level(spent, asks) else { continue };
            let client = spent.client.as_deref().unwrap_or("");
            let what = format!("{day}\t{}\t{}\t{level}\t{client:?}", spent.limit.name(), spent.most);
            match is_new(home, day, &what) {
                Ok(true) => {
                    let document = spent.document(day).to_string();
                    self.hooks.run("on_budget", command, &self.session_id, move || Some(document), || {});
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "{TOLD_FILE} in the home: on_budget does not run"),
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
fn is_new(home: &Path, day: &str, what: &str) -> io::Result<bool> {
    // Another relay is about to tell the same.
    let Some(mut file) = Folder::home(home)?.lock(TOLD_FILE)? else { return Ok(false) };
    let mut told = String::new();
    file.read_to_string(&mut told)?;
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

    #[test]
    fn each_share_is_told_once_a_day() {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        std::fs::set_permissions(home.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("it is ours");
        let told = |day: &str, what: &str| is_new(home.path(), day, &format!("{day}\t{what}")).expect("a file");
        assert!(told("2026-01-02", "a") && told("2026-01-02", "b"));
        assert!(!told("2026-01-02", "a") && !told("2026-01-02", "b"));
        assert!(told("2026-01-03", "a"));
        // The day before is forgotten, which a clock that was set back cannot tell from a new one.
        assert!(told("2026-01-02", "b"));
    }

    #[test]
    fn shares_of_a_limit() {
        let check = |used, most, asks, expect| {
            let spent = Spent { limit: BudgetLimit::Day, client: None, used, most };
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
