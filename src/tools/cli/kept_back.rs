//! Defers signals while something must be cleaned up first. Otherwise a terminal would stay without echo, or a program in its
//! own process group would keep running.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::os::signals::is_ignored;

/// Deferred signals; one instance per process.
#[derive(Default)]
pub(super) struct KeptBack {
    /// The last deferred signal; 0 if none arrived.
    told: Arc<AtomicUsize>,
    /// True while signals have their default action.
    ends: Arc<AtomicBool>,
}

impl KeptBack {
    /// Defers signals until [`KeptBack::let_go`].
    pub(super) fn begin() -> io::Result<&'static KeptBack> {
        static KEPT_BACK: OnceLock<KeptBack> = OnceLock::new();
        if KEPT_BACK.get().is_none() {
            let kept_back = KEPT_BACK.get_or_init(KeptBack::default);
            // Signals that were ignored at the start, as under `nohup`, stay ignored.
            for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter().filter(|signal| !is_ignored(*signal)) {
                flag::register_conditional_default(signal, Arc::clone(&kept_back.ends))?;
                flag::register_usize(signal, Arc::clone(&kept_back.told), signal as usize)?;
            }
        }
        let kept_back = KEPT_BACK.get_or_init(KeptBack::default);
        kept_back.ends.store(false, Ordering::Relaxed);
        Ok(kept_back)
    }

    /// Whether a signal arrived.
    pub(super) fn has_come(&self) -> bool {
        self.told.load(Ordering::Relaxed) != 0
    }

    /// Restores the default actions.
    pub(super) fn let_go(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    /// Restores the default actions, and then obeys a signal that arrived.
    pub(super) fn let_go_and_obey(&self) {
        self.let_go();
        if let Some(signal) = i32::try_from(self.told.load(Ordering::Relaxed)).ok().filter(|signal| *signal != 0) {
            // This ends the process, unless the signal's default action is to do nothing.
            let _ = low_level::emulate_default_handler(signal);
        }
    }
}
