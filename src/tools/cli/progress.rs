//! A progress bar on stderr for long work. There is none if stderr is not a terminal, or if the work takes less than a second.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that is shorter shows no bar.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// Redraws a second.
const DRAWS_PER_SECOND: u8 = 10;

/// The bar of one piece of work. It disappears when it is dropped.
pub(super) struct Progress {
    bar: ProgressBar,
    began: Instant,
}

impl Progress {
    /// The bar of `total` steps, of which `what` is the name: `searching`.
    pub(super) fn new(what: &'static str, total: u64) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{prefix} {wide_bar} {percent:>3} % {eta}");
        bar.set_style(style.expect("BUG: the template is valid"));
        bar.set_prefix(what);
        Progress { bar, began: Instant::now() }
    }

    /// More steps are done.
    pub(super) fn advance(&self, steps: u64) {
        if self.bar.is_hidden() && self.began.elapsed() >= SHOWN_AFTER && std::io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND));
        }
        self.bar.inc(steps);
    }

    /// Prints above the bar without breaking it.
    pub(super) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
