//! The wall clock, compared with the monotonic clock. Data is deleted because of its age only while the two agree: a clock
//! that is set a year ahead would make everything old at once.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::os::clocks::since_boot;

/// A difference that only somebody who sets the clock makes.
const JUMP_MIN: Duration = Duration::from_secs(3_600);

/// How long ages do not count after a jump.
const DISTRUST: Duration = Duration::from_secs(24 * 3_600);

/// The last readings of both clocks in this process.
#[derive(Debug, Default)]
pub struct WallClock {
    /// The time since the Unix epoch less the time since the boot, at the last reading, in milliseconds.
    apart_ms: Option<i128>,
    /// As time since the boot.
    distrusted_until: Option<Duration>,
    /// The last jump, until it is reported.
    untold: Option<Jump>,
}

/// The clock was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jump {
    pub is_ahead: bool,
    pub by: Duration,
}

impl WallClock {
    /// Whether ages count at this time; both times are read together.
    fn counts(&mut self, since_epoch: Duration, since_boot: Duration) -> bool {
        let apart_ms = since_epoch.as_millis() as i128 - since_boot.as_millis() as i128;
        let moved_ms = apart_ms - self.apart_ms.replace(apart_ms).unwrap_or(apart_ms);
        let by = Duration::from_millis(u64::try_from(moved_ms.unsigned_abs()).unwrap_or(u64::MAX));
        if by > JUMP_MIN {
            self.distrusted_until = Some(since_boot + DISTRUST);
            self.untold = Some(Jump { is_ahead: moved_ms > 0, by });
        }
        self.distrusted_until.is_none_or(|until| since_boot >= until)
    }
}

/// The clocks by which data gets too old.
pub struct Clock {
    read: &'static (dyn Fn() -> Moment + Sync),
    wall: Mutex<WallClock>,
}

/// Both clocks, read together.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    pub since_epoch: Duration,
    pub since_boot: Duration,
}

/// The clocks of the machine.
pub static SYSTEM: Clock =
    Clock { read: &Moment::now, wall: Mutex::new(WallClock { apart_ms: None, distrusted_until: None, untold: None }) };

impl Clock {
    /// The time, and whether data may be deleted because of its age then. It may not for a day after the clock was set by more
    /// than an hour. The first call has nothing to compare with.
    pub fn now(&self) -> (SystemTime, bool) {
        // Read under the lock: a moment that waits for it would be compared with a later one.
        let mut wall = self.wall.lock().unwrap_or_else(PoisonError::into_inner);
        let moment = (self.read)();
        (SystemTime::UNIX_EPOCH + moment.since_epoch, wall.counts(moment.since_epoch, moment.since_boot))
    }

    /// The last jump, once.
    pub fn untold_jump(&self) -> Option<Jump> {
        self.wall.lock().unwrap_or_else(PoisonError::into_inner).untold.take()
    }
}

impl Moment {
    fn now() -> Moment {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Moment { since_epoch, since_boot: since_boot() }
    }
}

/// Clocks that a test sets.
#[cfg(test)]
pub struct SetByHand(&'static Mutex<Moment>);

#[cfg(test)]
impl SetByHand {
    /// They begin at the present time, and then stand still.
    pub fn new() -> (&'static Clock, SetByHand) {
        let moment: &'static Mutex<Moment> = Box::leak(Box::new(Mutex::new(Moment::now())));
        let read = Box::leak(Box::new(|| *moment.lock().unwrap_or_else(PoisonError::into_inner)));
        (Box::leak(Box::new(Clock { read, wall: Mutex::default() })), SetByHand(moment))
    }

    /// Time passes.
    pub fn pass(&self, time: Duration) {
        let mut moment = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        moment.since_epoch += time;
        moment.since_boot += time;
    }

    /// Somebody sets the wall clock ahead.
    pub fn set_ahead(&self, by: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).since_epoch += by;
    }

    /// Somebody sets the wall clock back.
    pub fn set_back(&self, by: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).since_epoch -= by;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each step: seconds since the boot and on the wall clock, and whether ages count then.
    #[track_caller]
    fn check(steps: &[(u64, u64, bool)], told: Option<Jump>) {
        let mut clock = WallClock::default();
        for (since_boot, since_epoch, expect) in steps {
            let counts = clock.counts(Duration::from_secs(*since_epoch), Duration::from_secs(*since_boot));
            assert_eq!(counts, *expect, "{since_boot}");
        }
        assert_eq!(clock.untold, told);
    }

    #[test]
    fn ages_count_while_the_clocks_agree() {
        check(&[(0, 1_000_000, true), (60, 1_000_060, true), (900_000, 1_900_000, true)], None);
        // Corrections by the network, and a drift of an hour in many steps.
        check(&[(0, 1_000_000, true), (60, 1_003_660, true), (120, 1_007_200, true), (180, 1_003_700, true)], None);
    }

    #[test]
    fn jump_puts_ages_off_for_a_day() {
        let year = 365 * 86_400;
        let ahead = Some(Jump { is_ahead: true, by: Duration::from_secs(year) });
        check(
            &[
                (0, 1_000_000, true),
                (60, 1_000_060 + year, false),
                (86_459, 1_086_459 + year, false),
                (86_460, 1_086_460 + year, true),
            ],
            ahead,
        );
        let back = Some(Jump { is_ahead: false, by: Duration::from_secs(7_200) });
        check(&[(0, 1_000_000, true), (60, 1_000_060 - 7_200, false)], back);
        // It is set back again: another jump, and another day.
        let back = Some(Jump { is_ahead: false, by: Duration::from_secs(year) });
        check(
            &[
                (0, 1_000_000, true),
                (60, 1_000_060 + year, false),
                (3_600, 1_003_600, false),
                (86_460, 1_086_460, false),
                (90_000, 1_090_000, true),
            ],
            back,
        );
    }
}
