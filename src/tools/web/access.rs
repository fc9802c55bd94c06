//! Access to the page: one-time tokens, and the cookies that replace them.
//!
//! A link contains a token. A browser exchanges the token once for a cookie and a door, which is a part of the path of every
//! later call. Browsers send a cookie to every port of its host, so a server of another user on this machine could collect it.
//! The path attribute of the cookie contains the door, and browsers request that path from this page only.
//!
//! Pure: random bytes and the time since the start are arguments. The state contains hashes of tokens and cookies, not the
//! secrets themselves.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

/// How long a token can be used.
pub(super) const TOKEN_LASTS: Duration = Duration::from_secs(10 * 60);

/// How long a browser stays signed in without a call or an open stream.
const IDLE_MAX: Duration = Duration::from_secs(12 * 3_600);

/// How long a browser stays signed in at most.
pub(super) const SIGNED_IN_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Unused tokens; a further one replaces the oldest.
const TOKENS_MAX: usize = 8;

/// Browsers that are signed in; a further one replaces the one that has been idle for the longest time.
const BROWSERS_MAX: usize = 32;

/// Failed attempts to sign in, per [`ATTEMPTS_WITHIN`].
const ATTEMPTS_MAX: usize = 10;

const ATTEMPTS_WITHIN: Duration = Duration::from_secs(60);

type Hash = [u8; 32];

/// All tokens and cookies.
#[derive(Debug, Default)]
pub(super) struct Access {
    tokens: VecDeque<Token>,
    browsers: Vec<Browser>,
    /// The number of the last browser.
    last: u64,
    /// Times of failed attempts, oldest first.
    failed: VecDeque<Duration>,
}

#[derive(Debug)]
struct Token {
    hash: Hash,
    made: Duration,
}

/// A browser that is signed in.
#[derive(Debug)]
struct Browser {
    number: u64,
    cookie: Hash,
    door: Hash,
    origin: String,
    device: String,
    since: Duration,
    used: Duration,
}

/// What a person recognizes a signed-in browser by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SignedIn {
    pub(super) number: u64,
    /// The browser and its system.
    pub(super) device: String,
    /// The origin of the page at which it signed in.
    pub(super) origin: String,
    /// The time since the sign-in.
    pub(super) since: Duration,
    /// The time since the last call, or of an open stream since the last look.
    pub(super) unused: Duration,
}

/// Random bytes for a new browser.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fresh {
    pub(super) cookie: [u8; 32],
    pub(super) door: [u8; 16],
}

/// The secrets that a browser receives for a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entrance {
    pub(super) cookie: String,
    pub(super) door: String,
}

/// A signed-in browser that makes a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Visitor {
    pub(super) number: u64,
    /// The origin of the page at which it signed in.
    pub(super) origin: String,
}

/// The reason why a sign-in failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotSignedIn {
    Refused,
    /// Too many attempts have failed; the next one counts after this time.
    TooManyTries(Duration),
}

impl Access {
    /// A new token.
    pub(super) fn token(&mut self, random: [u8; 16], now: Duration) -> String {
        self.forget_expired(now);
        if self.tokens.len() == TOKENS_MAX {
            self.tokens.pop_front();
        }
        let token = hex(&random);
        self.tokens.push_back(Token { hash: hash(&token), made: now });
        token
    }

    /// Exchanges a token. A valid token works even after too many failed attempts: 128 bits cannot be guessed, but another user
    /// of this machine could use up the attempts.
    pub(super) fn sign_in(
        &mut self,
        token: &str,
        origin: &str,
        device: &str,
        fresh: Fresh,
        now: Duration,
    ) -> Result<Entrance, NotSignedIn> {
        self.forget_expired(now);
        let given = hash(token);
        // The loop compares every token, so its duration reveals nothing.
        let matches = self.tokens.iter().map(|token| is_same(&token.hash, &given));
        let matching = matches.enumerate().fold(None, |found, (index, is_it)| if is_it { Some(index) } else { found });
        let Some(index) = matching else { return Err(self.failed_attempt(now)) };
        self.tokens.remove(index);
        if self.browsers.len() == BROWSERS_MAX {
            let idlest = self.browsers.iter().enumerate().min_by_key(|(_, browser)| browser.used);
            let idlest = idlest.map(|(index, _)| index);
            idlest.map(|index| self.browsers.remove(index));
        }
        let entrance = Entrance { cookie: hex(&fresh.cookie), door: hex(&fresh.door) };
        self.last += 1;
        self.browsers.push(Browser {
            number: self.last,
            cookie: hash(&entrance.cookie),
            door: hash(&entrance.door),
            origin: origin.to_owned(),
            device: device.to_owned(),
            since: now,
            used: now,
        });
        Ok(entrance)
    }

    fn failed_attempt(&mut self, now: Duration) -> NotSignedIn {
        while self.failed.front().is_some_and(|at| now.saturating_sub(*at) >= ATTEMPTS_WITHIN) {
            self.failed.pop_front();
        }
        if self.failed.len() < ATTEMPTS_MAX {
            self.failed.push_back(now);
            return NotSignedIn::Refused;
        }
        let oldest = self.failed.front().copied().unwrap_or(now);
        NotSignedIn::TooManyTries(ATTEMPTS_WITHIN.saturating_sub(now.saturating_sub(oldest)))
    }

    /// The browser with one of these cookies, if it uses its own door. A page on another port can add cookies to ours.
    pub(super) fn visitor<'a>(
        &mut self,
        cookies: impl Iterator<Item = &'a str>,
        door: &str,
        now: Duration,
    ) -> Option<Visitor> {
        self.forget_expired(now);
        let door = hash(door);
        let cookies: Vec<Hash> = cookies.map(hash).collect();
        let is_it = |browser: &Browser| {
            let has_cookie = cookies.iter().filter(|cookie| is_same(&browser.cookie, cookie)).count() > 0;
            is_same(&browser.door, &door) & has_cookie
        };
        let matches = self.browsers.iter().map(is_it);
        let index = matches.enumerate().fold(None, |found, (index, is_it)| if is_it { Some(index) } else { found })?;
        let browser = self.browsers.get_mut(index)?;
        browser.used = now;
        Some(Visitor { number: browser.number, origin: browser.origin.clone() })
    }

    /// Whether a visitor is still signed in. An open stream counts as use.
    pub(super) fn is_signed_in(&mut self, visitor: &Visitor, now: Duration) -> bool {
        self.forget_expired(now);
        let browser = self.browsers.iter_mut().find(|browser| browser.number == visitor.number);
        browser.map(|browser| browser.used = now).is_some()
    }

    /// Signs a browser out; false if it is not signed in.
    pub(super) fn sign_out(&mut self, number: u64) -> bool {
        let before = self.browsers.len();
        self.browsers.retain(|browser| browser.number != number);
        self.browsers.len() < before
    }

    /// Signs all browsers out and ends all tokens; returns the number of browsers.
    pub(super) fn sign_out_all(&mut self) -> usize {
        self.tokens.clear();
        std::mem::take(&mut self.browsers).len()
    }

    /// The signed-in browsers, in the order of their sign-ins.
    pub(super) fn browsers(&mut self, now: Duration) -> Vec<SignedIn> {
        self.forget_expired(now);
        let signed_in = |browser: &Browser| SignedIn {
            number: browser.number,
            device: browser.device.clone(),
            origin: browser.origin.clone(),
            since: now.saturating_sub(browser.since),
            unused: now.saturating_sub(browser.used),
        };
        self.browsers.iter().map(signed_in).collect()
    }

    fn forget_expired(&mut self, now: Duration) {
        self.tokens.retain(|token| now.saturating_sub(token.made) < TOKEN_LASTS);
        self.browsers.retain(|browser| {
            now.saturating_sub(browser.since) < SIGNED_IN_MAX && now.saturating_sub(browser.used) < IDLE_MAX
        });
    }
}

fn hash(text: &str) -> Hash {
    Sha256::digest(text.as_bytes()).into()
}

/// Compares in constant time.
fn is_same(one: &Hash, other: &Hash) -> bool {
    let difference = one.iter().zip(other).fold(0, |all, (one, other)| black_box(all | (one ^ other)));
    black_box(difference) == 0
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: &str = "http://127.0.0.1:1";

    const DEVICE: &str = "Firefox on Linux";

    const START: Duration = Duration::ZERO;

    fn fresh(number: u8) -> Fresh {
        Fresh { cookie: [number; 32], door: [number; 16] }
    }

    fn entered(access: &mut Access, number: u8, now: Duration) -> Entrance {
        let token = access.token([number; 16], now);
        access.sign_in(&token, ORIGIN, DEVICE, fresh(number), now).expect("the token is valid")
    }

    fn is_in(access: &mut Access, entrance: &Entrance, now: Duration) -> bool {
        access.visitor([&*entrance.cookie].into_iter(), &entrance.door, now).is_some()
    }

    #[test]
    fn tokens_work_once() {
        let mut access = Access::default();
        let token = access.token([1; 16], START);
        assert_eq!(token.len(), 32);
        assert!(access.sign_in(&token, ORIGIN, DEVICE, fresh(1), START).is_ok());
        assert_eq!(access.sign_in(&token, ORIGIN, DEVICE, fresh(2), START), Err(NotSignedIn::Refused));
    }

    #[test]
    fn tokens_end_after_ten_minutes() {
        let mut access = Access::default();
        let (one, two) = (access.token([1; 16], START), access.token([2; 16], START));
        let just_before = TOKEN_LASTS - Duration::from_millis(1);
        assert!(access.sign_in(&one, ORIGIN, DEVICE, fresh(1), just_before).is_ok());
        assert_eq!(access.sign_in(&two, ORIGIN, DEVICE, fresh(2), TOKEN_LASTS), Err(NotSignedIn::Refused));
    }

    #[test]
    fn unused_tokens_are_bounded() {
        let mut access = Access::default();
        let tokens: Vec<String> = (0..=TOKENS_MAX as u8).map(|number| access.token([number; 16], START)).collect();
        assert_eq!(access.sign_in(&tokens[0], ORIGIN, DEVICE, fresh(0), START), Err(NotSignedIn::Refused));
        assert!(access.sign_in(&tokens[1], ORIGIN, DEVICE, fresh(1), START).is_ok());
    }

    #[test]
    fn failed_attempts_are_limited_and_harm_nobody() {
        let mut access = Access::default();
        let token = access.token([1; 16], START);
        for _ in 0..ATTEMPTS_MAX {
            assert_eq!(access.sign_in("x", ORIGIN, DEVICE, fresh(9), START), Err(NotSignedIn::Refused));
        }
        let later = Duration::from_secs(20);
        let wait = NotSignedIn::TooManyTries(Duration::from_secs(40));
        assert_eq!(access.sign_in("x", ORIGIN, DEVICE, fresh(9), later), Err(wait));
        assert!(access.sign_in(&token, ORIGIN, DEVICE, fresh(1), later).is_ok());
        assert_eq!(access.sign_in("x", ORIGIN, DEVICE, fresh(9), ATTEMPTS_WITHIN), Err(NotSignedIn::Refused));
    }

    #[test]
    fn visitors_need_cookie_and_own_door() {
        let mut access = Access::default();
        let (one, two) = (entered(&mut access, 1, START), entered(&mut access, 2, START));
        assert!(is_in(&mut access, &one, START) && is_in(&mut access, &two, START));
        let mut check = |cookies: &[&str], door: &str| access.visitor(cookies.iter().copied(), door, START).is_some();
        assert!(check(&["x", &one.cookie, ""], &one.door));
        assert!(!check(&[&one.cookie], &two.door) && !check(&[&one.cookie], "") && !check(&[&one.cookie], "x"));
        assert!(!check(&[], &one.door) && !check(&["", "x", &one.door], &one.door));
    }

    #[test]
    fn idle_and_old_cookies_end() {
        let mut access = Access::default();
        let entrance = entered(&mut access, 1, START);
        let mut now = START;
        while now + IDLE_MAX / 2 < SIGNED_IN_MAX {
            now += IDLE_MAX / 2;
            assert!(is_in(&mut access, &entrance, now), "{now:?}");
        }
        assert!(!is_in(&mut access, &entrance, SIGNED_IN_MAX));
        let idle = entered(&mut access, 2, now);
        assert!(!is_in(&mut access, &idle, now + IDLE_MAX));
    }

    #[test]
    fn browsers_are_bounded_and_idlest_goes() {
        let mut access = Access::default();
        let second = Duration::from_secs(1);
        let all: Vec<Entrance> =
            (0..BROWSERS_MAX as u8).map(|number| entered(&mut access, number, second * number.into())).collect();
        let now = second * 100;
        assert!(is_in(&mut access, &all[0], now));
        entered(&mut access, 200, now);
        assert!(is_in(&mut access, &all[0], now) && !is_in(&mut access, &all[1], now));
        assert_eq!(access.browsers(now).len(), BROWSERS_MAX);
    }

    #[test]
    fn browsers_are_listed_without_secrets() {
        let mut access = Access::default();
        let second = Duration::from_secs(1);
        let (one, two) = (entered(&mut access, 1, START), entered(&mut access, 2, second * 10));
        assert!(is_in(&mut access, &one, second * 50));
        let listed = access.browsers(second * 60);
        let signed_in = |number, since: u32, unused: u32| SignedIn {
            number,
            device: DEVICE.to_owned(),
            origin: ORIGIN.to_owned(),
            since: second * since,
            unused: second * unused,
        };
        assert_eq!(listed, [signed_in(1, 60, 10), signed_in(2, 50, 50)]);
        assert!(access.sign_out(1) && !is_in(&mut access, &one, second * 60));
        // A number is never used again.
        entered(&mut access, 3, second * 60);
        let numbers: Vec<u64> = access.browsers(second * 60).into_iter().map(|one| one.number).collect();
        assert_eq!(numbers, [2, 3]);
        assert!(is_in(&mut access, &two, second * 60));
    }

    #[test]
    fn signing_out_ends_one_or_all() {
        let mut access = Access::default();
        let (one, two) = (entered(&mut access, 1, START), entered(&mut access, 2, START));
        let visitor = access.visitor([&*one.cookie].into_iter(), &one.door, START).expect("it is signed in");
        assert!(access.is_signed_in(&visitor, START));
        assert!(access.sign_out(visitor.number) && !access.sign_out(visitor.number));
        assert!(!access.is_signed_in(&visitor, START) && is_in(&mut access, &two, START));
        let unused = access.token([9; 16], START);
        assert_eq!(access.sign_out_all(), 1);
        assert!(!is_in(&mut access, &two, START));
        assert_eq!(access.sign_in(&unused, ORIGIN, DEVICE, fresh(9), START), Err(NotSignedIn::Refused));
    }

    #[test]
    fn nothing_kept_opens_anything() {
        let mut access = Access::default();
        let unused = access.token([7; 16], START);
        let Entrance { cookie, door } = entered(&mut access, 1, START);
        let kept = format!("{access:?}");
        assert!(![&*unused, &*cookie, &*door, "[7, 7, 7"].iter().any(|secret| kept.contains(secret)), "{kept}");
    }
}
