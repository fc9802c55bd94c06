//! A hook that a thread of its own runs when it sees what the hook is about. Without the hook the thread sleeps.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::hooks::HookRunner;

/// The settings of a watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchSettings {
    /// The program and its arguments; empty without a hook.
    pub(super) command: Vec<String>,
    /// How long something must have lasted, if that matters.
    pub(super) after: Duration,
}

/// Whoever has a copy can change the settings of the thread that watches.
///
/// *Locking.* The relay takes the lock only to change the settings, and the thread only to copy them.
#[derive(Debug, Clone)]
pub struct HookWatch {
    name: &'static str,
    settings: Arc<(Mutex<WatchSettings>, Condvar)>,
    told: Arc<Mutex<Vec<ToldOf>>>,
    hooks: HookRunner,
}

/// A cause for which the hook was called: its name, and since when it exists.
pub(super) type ToldOf = (String, String);

impl HookWatch {
    /// The watch of the hook of this name.
    pub(super) fn new(name: &'static str, settings: WatchSettings, told: Vec<ToldOf>, hooks: HookRunner) -> HookWatch {
        HookWatch {
            name,
            settings: Arc::new((Mutex::new(settings), Condvar::new())),
            told: Arc::new(told.into()),
            hooks,
        }
    }

    /// The causes for which the hook was called, also by the program before, as long as they exist.
    pub fn told(&self) -> Vec<ToldOf> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces them.
    pub fn keep_told(&self, told: Vec<ToldOf>) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = told;
    }

    /// Changes the settings.
    pub(super) fn configure(&self, settings: WatchSettings) {
        *self.lock() = settings;
        self.settings.1.notify_all();
    }

    /// The settings after a pause; waits longer while there is no hook.
    pub fn next_settings(&self, pause: Duration) -> WatchSettings {
        let changed = &self.settings.1;
        let (settings, _) = changed.wait_timeout(self.lock(), pause).unwrap_or_else(PoisonError::into_inner);
        let is_off = |settings: &mut WatchSettings| settings.command.is_empty();
        changed.wait_while(settings, is_off).unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs the hook on a thread of its own. From its start on, `told` are the causes for which the hook was called.
    pub(super) fn run(
        &self,
        settings: &WatchSettings,
        session_id: &str,
        input: impl FnOnce() -> Option<String> + Send + 'static,
        told: Vec<ToldOf>,
    ) {
        self.hooks.run(self.name, &settings.command, session_id, input, || self.keep_told(told));
    }

    /// Runs the hook, and waits for its end. Returns whether it was allowed to run. From its start on, `told` are the causes for which
    /// the hook was called.
    pub fn run_here(&self, settings: &WatchSettings, session_id: &str, input: &str, told: Vec<ToldOf>) -> bool {
        self.hooks.run_here((self.name, &settings.command), session_id, input, || self.keep_told(told))
    }

    fn lock(&self) -> MutexGuard<'_, WatchSettings> {
        self.settings.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
