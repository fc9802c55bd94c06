//! Signals that would end us, kept back while something must be put in order first: a terminal that shows nothing would stay so, and
//! a program that we have started in a group of its own would run on.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::launch::is_ignored;

/// Those that are kept back; there is one for the process.
#[derive(Default)]
pub(super) struct KeptBack {
    /// The last one that came, 0 where none has.
    told: Arc<AtomicUsize>,
    /// Nothing is kept back.
    ends: Arc<AtomicBool>,
}

impl KeptBack {
    /// Keeps them back until they are let go.
    ///
    /// # Errors
    ///
    /// That of the system, which does not let us listen.
    pub(super) fn begin() -> io::Result<&'static KeptBack> {
        static KEPT_BACK: OnceLock<KeptBack> = OnceLock::new();
        if KEPT_BACK.get().is_none() {
            let kept_back = KEPT_BACK.get_or_init(KeptBack::default);
            // What is ignored from the start, as under `nohup`, stays so.
            for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter().filter(|signal| !is_ignored(*signal)) {
                flag::register_conditional_default(signal, Arc::clone(&kept_back.ends))?;
                flag::register_usize(signal, Arc::clone(&kept_back.told), signal as usize)?;
            }
        }
        let kept_back = KEPT_BACK.get_or_init(KeptBack::default);
        kept_back.ends.store(false, Ordering::Relaxed);
        Ok(kept_back)
    }

    /// Whether one has come.
    pub(super) fn has_come(&self) -> bool {
        self.told.load(Ordering::Relaxed) != 0
    }

    /// Lets them end us again.
    pub(super) fn let_go(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    /// The same; one that has come ends us now.
    pub(super) fn let_go_and_obey(&self) {
        self.let_go();
        if let Some(signal) = i32::try_from(self.told.load(Ordering::Relaxed)).ok().filter(|signal| *signal != 0) {
            // It ends us, or we go on as if it had not come.
            let _ = low_level::emulate_default_handler(signal);
        }
    }
}
