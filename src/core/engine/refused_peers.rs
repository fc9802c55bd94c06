//! Peers that were refused at one of our sockets, as events: one at once, and the later ones of a burst together, so that a
//! command that calls in a loop does not fill the record.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::model::{Effect, Note, RefusedPeer};

/// At most one event in this time.
const EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct RefusedPeers {
    /// When the last event was made.
    last: Option<Duration>,
    /// The last one that no event tells, and how many there are.
    unsaid: Option<(RefusedPeer, u64)>,
}

impl RefusedPeers {
    pub(super) fn refused(&mut self, now: Duration, peer: RefusedPeer, effects: &mut Vec<Effect>) {
        let before = self.unsaid.take().map_or(0, |(_, count)| count);
        self.unsaid = Some((peer, before + 1));
        self.tick(now, effects);
    }

    pub(super) fn tick(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let Some((peer, count)) = self.unsaid.take_if(|_| self.last.is_none_or(|last| now >= last + EVERY)) else {
            return;
        };
        self.last = Some(now);
        effects.push(Effect::Note(Note::SandboxedPeer { peer, count }));
    }

    /// When the next event is due.
    pub(super) fn due(&self) -> Option<Duration> {
        self.unsaid.as_ref().and(self.last).map(|last| last + EVERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_is_counted_once() {
        let mut peers = RefusedPeers::default();
        let peer = |pid| RefusedPeer { socket: "control", reason: "seccomp", uid: 1, pid: Some(pid), program: None };
        let mut effects = Vec::new();
        peers.refused(Duration::ZERO, peer(1), &mut effects);
        assert_eq!(peers.due(), None);
        peers.refused(Duration::from_secs(1), peer(2), &mut effects);
        peers.refused(Duration::from_secs(2), peer(3), &mut effects);
        assert_eq!((effects.len(), peers.due()), (1, Some(EVERY)));
        peers.tick(EVERY, &mut effects);
        peers.tick(EVERY * 2, &mut effects);
        peers.refused(EVERY * 3, peer(4), &mut effects);
        let told: Vec<(Option<u32>, u64)> = effects.iter().filter_map(told).collect();
        assert_eq!(told, [(Some(1), 1), (Some(3), 2), (Some(4), 1)]);
    }

    fn told(effect: &Effect) -> Option<(Option<u32>, u64)> {
        if let Effect::Note(Note::SandboxedPeer { peer, count }) = effect { Some((peer.pid, *count)) } else { None }
    }
}
