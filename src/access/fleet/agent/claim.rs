//! If several agents use one host name, decides which of them works. Pure.
//!
//! The server stores a description of the host only from an agent that knows the number of the last one, so two agents with one name
//! notice each other. The one that has the name ships and answers. Another one waits: it takes the name once nobody has described the
//! host for [`WATCH`], and meanwhile lets the first one notice it by a description of its own, the *challenge*.

use std::time::{Duration, Instant};

/// How often the host is described, if nothing changes.
pub(super) const SEEN_EVERY: Duration = Duration::from_secs(10);

/// After so long without a description, the agent that has the name is gone: three times [`SEEN_EVERY`].
pub(super) const WATCH: Duration = Duration::from_secs(30);

/// How long another agent counts as there after it was noticed last: longer than the interval of its challenges.
const OTHERS_FOR: Duration = Duration::from_secs(150);

/// So long after the last description that was stored, the name is still this agent's without news: less than [`WATCH`].
const HELD_FOR: Duration = Duration::from_secs(20);

/// An agent that has described the host so often in a row has the name; the one that comes between is the challenger.
const SETTLED: u32 = 2;

/// An agent whose regular claims were overtaken so often in a row is not the only one that believes to have the name.
const LOST_MAX: u32 = 3;

/// An agent that waits challenges after one of so many watches.
const CHALLENGE_EVERY: u32 = 3;

/// Whether this agent works for its host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// This agent has the name.
    Only,
    /// The agent has just started, or has lost its connection.
    #[default]
    Unsure,
    /// Another agent may have the name.
    Waits,
}

/// The purpose of a description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Claim,
    Challenge,
}

/// The result of sending a description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Stored under this number.
    Stored(u64),
    /// Not stored, because the last one has this number.
    Overtaken(u64),
    Unknown,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Now(Act),
    After(Duration, Act),
    /// After the pause that follows so many failures in a row.
    Again(u32, Act),
}

#[derive(Debug, Default)]
pub(super) struct Claim {
    pub(super) standing: Standing,
    /// The number of the last description, as far as this agent knows.
    pub(super) known: u64,
    in_a_row: u32,
    /// Regular claims in a row before which another agent had written.
    lost_in_a_row: u32,
    /// Watches in a row in which another agent has written.
    watches: u32,
    /// The next claim repeats one before which another agent had written.
    is_second: bool,
    others_at: Option<Instant>,
    stored_at: Option<Instant>,
    /// Descriptions in a row whose fate is not known.
    failures: u32,
}

impl Claim {
    /// Begins with the number that the agent before has left; 0 without one.
    pub(super) fn new(known: u64) -> Claim {
        Claim { known, ..Claim::default() }
    }

    /// Whether another agent with this name was noticed lately.
    pub(super) fn has_others(&self, now: Instant) -> bool {
        self.others_at.is_some_and(|at| now.duration_since(at) < OTHERS_FOR)
    }

    /// The connection is lost: another agent may take the name meanwhile.
    pub(super) fn is_cut(&mut self) {
        if self.standing == Standing::Only {
            self.standing = Standing::Unsure;
            self.in_a_row = 0;
        }
    }

    pub(super) fn learns(&mut self, act: Act, fate: Fate, now: Instant) -> Next {
        self.failures = if fate == Fate::Unknown { self.failures.saturating_add(1) } else { 0 };
        match (act, fate) {
            (Act::Claim, Fate::Stored(number)) => {
                self.known = number;
                self.stored_at = Some(now);
                self.in_a_row = self.in_a_row.saturating_add(1);
                if self.standing == Standing::Waits {
                    // The other has been silent for long enough, which proves that this one is alone.
                    (self.others_at, self.in_a_row) = (None, SETTLED);
                }
                self.standing = Standing::Only;
                if !std::mem::take(&mut self.is_second) {
                    self.lost_in_a_row = 0;
                }
                Next::After(SEEN_EVERY, Act::Claim)
            }
            // The bucket is new and has no description.
            (_, Fate::Overtaken(0)) if self.known > 0 => {
                self.known = 0;
                Next::Now(Act::Claim)
            }
            (Act::Claim, Fate::Overtaken(number)) => {
                self.known = number;
                self.overtaken(now)
            }
            (Act::Challenge, Fate::Stored(number) | Fate::Overtaken(number)) => {
                self.known = number;
                Next::After(WATCH, Act::Claim)
            }
            // A late acknowledgment stops nothing.
            (act, Fate::Unknown) => {
                if self.stored_at.is_none_or(|at| now.duration_since(at) >= HELD_FOR) {
                    self.is_cut();
                }
                Next::Again(self.failures, act)
            }
        }
    }

    fn overtaken(&mut self, now: Instant) -> Next {
        match self.standing {
            Standing::Only if self.in_a_row >= SETTLED && self.lost_in_a_row < LOST_MAX => {
                self.others_at = Some(now);
                self.lost_in_a_row += 1;
                self.is_second = true;
                Next::Now(Act::Claim)
            }
            // Both believed to have the name.
            Standing::Only => {
                self.others_at = Some(now);
                self.waits();
                Next::After(WATCH, Act::Claim)
            }
            // It may be the agent before, whose last number was not written down.
            Standing::Unsure => {
                self.waits();
                Next::After(WATCH, Act::Claim)
            }
            // Agents that wait must leave a watch without a word, or each would take the others for the one that works.
            Standing::Waits => {
                self.others_at = Some(now);
                self.watches += 1;
                if self.watches % CHALLENGE_EVERY == 1 {
                    Next::Now(Act::Challenge)
                } else {
                    Next::After(WATCH, Act::Claim)
                }
            }
        }
    }

    fn waits(&mut self) {
        self.standing = Standing::Waits;
        (self.in_a_row, self.lost_in_a_row, self.watches, self.is_second) = (0, 0, 0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key of the server.
    #[derive(Default)]
    struct Key(u64);

    impl Key {
        fn takes(&mut self, claim: &Claim) -> Fate {
            if claim.known != self.0 {
                return Fate::Overtaken(self.0);
            }
            self.0 += 1;
            Fate::Stored(self.0)
        }
    }

    /// An agent with the time of its next act.
    struct Agent {
        claim: Claim,
        next: (Duration, Act),
    }

    impl Agent {
        fn new(known: u64, at: u64) -> Agent {
            Agent { claim: Claim::new(known), next: (Duration::from_secs(at), Act::Claim) }
        }
    }

    /// Lets the agents that run act for so many seconds.
    fn play(key: &mut Key, agents: &mut [(&mut Agent, bool)], began: Instant, from: u64, to: u64) {
        for second in from..to {
            let now = Duration::from_secs(second);
            for (agent, _) in agents.iter_mut().filter(|(_, runs)| *runs) {
                while agent.next.0 <= now {
                    let act = agent.next.1;
                    let fate = key.takes(&agent.claim);
                    agent.next = match agent.claim.learns(act, fate, began + now) {
                        Next::Now(act) => (now, act),
                        Next::After(wait, act) => (now + wait, act),
                        Next::Again(..) => panic!("the key answers always"),
                    };
                }
            }
        }
    }

    #[test]
    fn first_agent_keeps_the_name_and_both_notice() {
        let (mut key, began) = (Key::default(), Instant::now());
        let (mut one, mut other) = (Agent::new(0, 0), Agent::new(0, 5));
        play(&mut key, &mut [(&mut one, true), (&mut other, true)], began, 0, 300);
        assert_eq!((one.claim.standing, other.claim.standing), (Standing::Only, Standing::Waits));
        let now = began + Duration::from_secs(300);
        assert!(one.claim.has_others(now) && other.claim.has_others(now));
        // The first one ends, and the other takes the name.
        play(&mut key, &mut [(&mut one, false), (&mut other, true)], began, 300, 400);
        assert_eq!(other.claim.standing, Standing::Only);
        play(&mut key, &mut [(&mut other, true)], began, 400, 500);
        assert!(!other.claim.has_others(began + Duration::from_secs(500)));
    }

    /// Plays agents that all lack the last number; how many of them have the name each second from `from` on.
    fn holders(starts: &[u64], from: u64, to: u64) -> Vec<usize> {
        let (mut key, began) = (Key(9), Instant::now());
        let mut agents: Vec<Agent> = starts.iter().map(|at| Agent::new(0, *at)).collect();
        let mut counts = Vec::new();
        for second in 0..to {
            let mut all: Vec<(&mut Agent, bool)> = agents.iter_mut().map(|agent| (agent, true)).collect();
            play(&mut key, &mut all, began, second, second + 1);
            counts.push(agents.iter().filter(|agent| agent.claim.standing == Standing::Only).count());
        }
        counts.split_off(usize::try_from(from).expect("it is small"))
    }

    #[test]
    fn agents_that_start_together_settle_on_one() {
        for delay in 0..30 {
            assert!(holders(&[0, delay], 60, 900).iter().all(|count| *count == 1), "{delay}");
            for other in 0..30 {
                let counts = holders(&[0, delay, other], 60, 900);
                assert!(counts.iter().all(|count| *count == 1), "{delay} {other}: {counts:?}");
            }
        }
    }

    #[test]
    fn agent_that_was_suspended_gives_way() {
        let (mut key, began) = (Key(0), Instant::now());
        let (mut one, mut other) = (Agent::new(0, 0), Agent::new(0, 5));
        play(&mut key, &mut [(&mut one, true), (&mut other, true)], began, 0, 100);
        play(&mut key, &mut [(&mut one, false), (&mut other, true)], began, 100, 300);
        play(&mut key, &mut [(&mut one, true), (&mut other, true)], began, 300, 360);
        let standings = [one.claim.standing, other.claim.standing];
        assert_eq!(standings.iter().filter(|standing| **standing == Standing::Only).count(), 1, "{standings:?}");
    }

    #[test]
    fn agent_goes_on_under_its_number() {
        let (mut key, began) = (Key(7), Instant::now());
        let (mut same, mut copied) = (Agent::new(7, 0), Agent::new(5, 0));
        play(&mut key, &mut [(&mut same, true)], began, 0, 1);
        assert_eq!(same.claim.standing, Standing::Only);
        // Without the number of the last description it waits first.
        play(&mut key, &mut [(&mut copied, true)], began, 0, 29);
        assert_eq!(copied.claim.standing, Standing::Waits);
        play(&mut key, &mut [(&mut copied, true)], began, 29, 31);
        assert_eq!(copied.claim.standing, Standing::Only);
    }

    #[test]
    fn two_that_believe_to_have_the_name_become_one() {
        let (mut key, began) = (Key(0), Instant::now());
        let (mut one, mut other) = (Agent::new(0, 0), Agent::new(0, 3));
        play(&mut key, &mut [(&mut one, true)], began, 0, 60);
        other.claim.known = key.0;
        other.claim.standing = Standing::Only;
        other.next.0 = Duration::from_secs(61);
        play(&mut key, &mut [(&mut one, true), (&mut other, true)], began, 60, 200);
        let standings = [one.claim.standing, other.claim.standing];
        assert_eq!(standings.iter().filter(|standing| **standing == Standing::Only).count(), 1, "{standings:?}");
    }

    #[test]
    fn cut_agent_is_unsure_until_it_is_acknowledged() {
        let (mut key, began) = (Key(0), Instant::now());
        let mut one = Agent::new(0, 0);
        play(&mut key, &mut [(&mut one, true)], began, 0, 30);
        // The pauses grow.
        let mut unknown = |second, failures| {
            let next = one.claim.learns(Act::Claim, Fate::Unknown, began + Duration::from_secs(second));
            assert_eq!(next, Next::Again(failures, Act::Claim));
            one.claim.standing
        };
        // The last description was stored in second 20.
        assert_eq!(
            (unknown(31, 1), unknown(39, 2), unknown(40, 3)),
            (Standing::Only, Standing::Only, Standing::Unsure)
        );
        play(&mut key, &mut [(&mut one, true)], began, 30, 60);
        assert_eq!((one.claim.standing, one.claim.failures), (Standing::Only, 0));
        // The bucket was made anew.
        key = Key(0);
        play(&mut key, &mut [(&mut one, true)], began, 60, 100);
        assert_eq!((one.claim.standing, one.claim.has_others(began)), (Standing::Only, false));
    }
}
