//! Thins the earlier ledgers of a session in a copy.

use std::time::Duration;

use super::manifest::{Moment, Point};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Ages, and the periods of which the last point is kept up to that age; in seconds.
const PERIODS: [(u64, u64); 3] = [(HOUR, 5 * MINUTE), (2 * DAY, HOUR), (60 * DAY, DAY)];

/// Most bytes of earlier ledgers of a session.
const EARLIER_BYTES_MAX: u64 = 256 << 20;

/// Removes points of which there are later ones in the same period. The last one stays.
pub(super) fn thin(points: &mut Vec<Point>, now: Moment) {
    let Some(last) = points.pop() else { return };
    let (mut room, mut taken) = (EARLIER_BYTES_MAX, None);
    let mut kept: Vec<Point> = Vec::new();
    for point in points.drain(..).rev() {
        // After a step of the clock a point may be from the future.
        let age = Duration::from_micros(now.0.saturating_sub(point.until.0)).as_secs();
        let Some((_, period)) = PERIODS.iter().find(|(up_to, _)| age <= *up_to) else { continue };
        let slot = (*period, point.until.0 / (period * 1_000_000));
        if taken == Some(slot) {
            continue;
        }
        let bytes = point.ledger.as_ref().map_or(0, |ledger| ledger.bytes);
        let Some(left) = room.checked_sub(bytes) else { break };
        (room, taken) = (left, Some(slot));
        kept.push(point);
    }
    kept.reverse();
    kept.push(last);
    *points = kept;
}

#[cfg(test)]
mod tests {
    use super::super::manifest::StoredFile;
    use super::*;

    fn point(second: u64, bytes: u64) -> Point {
        let ledger = StoredFile { file: format!("{second}"), bytes, sha256: String::new() };
        let at = Moment(second * 1_000_000);
        Point { at, until: at, ledger: Some(ledger), journal_end: None }
    }

    fn check(seconds: &[u64], bytes: u64, now: u64, expect: &[u64]) {
        let mut points: Vec<Point> = seconds.iter().map(|second| point(*second, bytes)).collect();
        thin(&mut points, Moment(now * 1_000_000));
        let kept: Vec<u64> = points.iter().map(|point| point.at.0 / 1_000_000).collect();
        assert_eq!(kept, expect);
    }

    #[test]
    fn one_point_of_each_period_is_kept() {
        let now = 100 * DAY;
        check(&[], 1, now, &[]);
        check(&[1], 1, now, &[1]);
        // The last one, and those of five minutes each.
        check(
            &[now - 650, now - 601, now - 599, now - 301, now - 1, now],
            1,
            now,
            &[now - 601, now - 301, now - 1, now],
        );
        check(&[now - DAY - 20, now - DAY - 10, now - DAY, now], 1, now, &[now - DAY - 10, now - DAY, now]);
        check(&[now - 61 * DAY, now - 50 * DAY + 7, now - 50 * DAY + 9, now], 1, now, &[now - 50 * DAY + 9, now]);
        // The clock was set back.
        check(&[now + 10, now + 20, now], 1, now, &[now + 20, now]);
    }

    #[test]
    fn earlier_ledgers_have_a_bound() {
        let (now, big) = (100 * DAY, 100 << 20);
        check(&[now - 4 * HOUR, now - 3 * HOUR, now - 2 * HOUR, now], big, now, &[now - 3 * HOUR, now - 2 * HOUR, now]);
        check(&[now - 2 * HOUR, now], 4 * big, now, &[now]);
    }
}
